//! The header and the shared library as a program in C has them: compiled without a warning, linked
//! and run.

#![forbid(unsafe_code)]

mod built;

use std::path::PathBuf;
use std::process::Command;

use built::{Built, in_room, succeed};

/// Compiles a program with every warning an error, and gives its path.
fn compiled(built: &Built, source: &str, standard: &str) -> PathBuf {
    let program = built.path("program");
    // Rust links with it, so it is there.
    let mut cc = Command::new("cc");
    cc.args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-O1", "-D_POSIX_C_SOURCE=200809L"]);
    cc.arg(standard).arg("-I").arg(in_room("include")).arg("-o").arg(&program);
    cc.arg(in_room(source)).arg("-L").arg(&built.folder).arg("-lweir");
    succeed(&mut cc);
    program
}

fn run(built: &Built, program: &PathBuf) -> Command {
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", &built.folder);
    command
}

#[test]
fn the_example_compiles_without_a_warning_and_fills_disks() {
    let built = Built::new("example");
    let program = compiled(&built, "examples/fill.c", "-std=c11");
    let said = succeed(&mut run(&built, &program));
    let version = env!("CARGO_PKG_VERSION");
    let whole = format!("1000 blocks of 67108864 bytes written and read, weir {version}\n");
    assert_eq!(said, whole);
    let target = format!("file:{},size=8MiB", built.path("a.img").display());
    succeed(run(&built, &program).arg(target));
    let image = std::fs::read(built.path("a.img")).expect("the image");
    for (block, bytes) in image.chunks(4096).take(1000).enumerate() {
        assert_eq!(bytes, [(block % 251) as u8; 4096], "block {block}");
    }
    let output = run(&built, &program).arg("ram:1MiB").output().expect("it runs");
    assert!(!output.status.success(), "the disk is too small");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("end=1052672 is beyond the disk's size, 1048576 bytes"), "{said}");
    let output = run(&built, &program).arg("rom:1MiB").output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("fill: create: target"), "{said}");
}

#[test]
fn the_header_and_the_library_agree() {
    let built = Built::new("abi");
    let program = compiled(&built, "tests/abi.c", "-std=c99");
    let said = succeed(&mut run(&built, &program));
    // Linked by its soname, which has the ABI's number, as the program was found to run at all.
    let expected = "user_data 0 8\nerror_msg 8 8\nret 16 4\nflags 20 4\nreserved 24 16\nsize 40\n\
                    version 0\nabi 0 0\n";
    assert_eq!(said, expected);
    let program = std::fs::read(program).expect("a program");
    let name = b"libweir.so.0\0";
    assert!(program.windows(name.len()).any(|bytes| bytes == name), "not linked by its soname");
    let header = std::fs::read_to_string(in_room("include/weir.h")).expect("the header");
    assert!(header.contains(&format!("#define WEIR_VERSION \"{}\"", env!("CARGO_PKG_VERSION"))));
    assert!(header.contains("#define WEIR_ABI 0\n"));
}

/// The names of the functions that the header declares, in order.
fn declared() -> Vec<String> {
    let header = std::fs::read_to_string(in_room("include/weir.h")).expect("the header");
    let code: String = header
        .split("/*")
        .enumerate()
        .map(|(at, part)| if at == 0 { part } else { part.split_once("*/").expect("an end").1 })
        .collect();
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let calls = code.split('(').filter_map(|before| before.rsplit(|c| !is_name(c)).next());
    let names = calls.filter(|name| name.starts_with("weir_") || name.starts_with("weirq_"));
    let mut declared: Vec<String> = names.map(str::to_owned).collect();
    declared.sort_unstable();
    assert!(declared.len() > 20, "{declared:?}");
    declared
}

#[test]
fn every_function_of_the_library_is_in_the_header_and_none_else() {
    let mut defined = Vec::new();
    for file in ["src/disk_calls.rs", "src/queue_calls.rs"] {
        let text = std::fs::read_to_string(in_room(file)).expect("a source");
        for part in text.split("#[unsafe(no_mangle)]").skip(1) {
            let (_, name) = part.split_once(" fn ").expect("a function");
            defined.push(name.split('(').next().expect("a name").to_owned());
        }
    }
    defined.sort_unstable();
    assert_eq!(declared(), defined);
}

/// That of the tests, or the one that the environment names: `cargo xtask ci long` has the one that
/// is installed built before, whose symbols the linker has been over as a whole.
#[test]
fn the_shared_library_exports_what_the_header_declares_and_nothing_else() {
    let built = Built::new("exports");
    let library = std::env::var_os("WEIR_LIBRARY").map(|library| in_room("../..").join(library));
    let library = library.unwrap_or_else(|| built.path("libweir.so"));
    // It comes with the linker.
    let mut nm = Command::new("nm");
    let said = succeed(nm.args(["-D", "--defined-only", "-f", "posix"]).arg(library));
    let mut exported: Vec<&str> =
        said.lines().filter_map(|line| line.split_whitespace().next()).collect();
    exported.sort_unstable();
    assert_eq!(exported, declared());
}
