//! Exports that are slices of a disk.

#![forbid(unsafe_code)]

mod daemon;

use std::fs;
use std::os::unix::fs::FileExt;

use daemon::client::Client;
use daemon::words::{expect_refused, told};
use daemon::{Daemon, Folder, weir};

const MIB: u64 = 1 << 20;

/// The error numbers of NBD.
const PERMISSION: u32 = 1;
const NO_SPACE: u32 = 28;

/// A configuration with a disk `sda` of 8 MiB in a file and these exports of it.
fn configuration(folder: &Folder, exports: &str) -> String {
    let image = folder.image("sda.img");
    format!(
        "[nbd]\nlisten = [\"unix:{}\"]\n[[disk]]\nname = \"sda\"\n\
         target = \"file:{},size=8MiB\"\n{exports}",
        folder.socket().display(),
        image.display()
    )
}

fn start(folder: &Folder, text: &str) -> Daemon {
    fs::write(folder.near("weir.toml"), text).expect("a file");
    let mut command = weir(folder);
    command.args(["serve", "-c", "weir.toml"]);
    Daemon::spawn(command)
}

const SLICES: &str = r#"
[[export]]
name = "first"
disk = "sda"
size = "1MiB"
[[export]]
name = "second"
disk = "sda"
offset = 1048576
size = 2097152
[[export]]
name = "rest"
disk = "sda"
offset = "3MiB"
[[export]]
name = "looked-at"
disk = "sda"
offset = "1MiB"
size = "1MiB"
readonly = true
"#;

#[test]
fn a_slice_is_a_disk_of_its_size_whose_bytes_lie_where_it_says() {
    let folder = Folder::new();
    let daemon = start(&folder, &configuration(&folder, SLICES));
    let client = |name: &str| Client::connect(&folder.socket(), name);
    let names = ["first", "second", "rest", "looked-at"];
    let sizes = names.map(|name| client(name).size);
    assert_eq!(sizes, [MIB, 2 * MIB, 5 * MIB, MIB]);
    let mut second = client("second");
    assert_eq!(second.write(0, 0, &[2; 4096]).expect("an answer"), 0);
    assert_eq!(second.write(0, 2 * MIB - 100, &[3; 100]).expect("an answer"), 0);
    assert_eq!(second.write(0, 2 * MIB - 100, &[4; 101]).expect("an answer"), NO_SPACE);
    let mut rest = client("rest");
    assert_eq!(rest.write(0, 5 * MIB - 512, &[5; 512]).expect("an answer"), 0);
    // The same bytes by another way, which takes no writes.
    let mut looked_at = client("looked-at");
    assert_eq!(looked_at.read(0, 4096).expect("an answer"), Ok(vec![2; 4096]));
    assert_eq!(looked_at.write(0, 0, &[6; 512]).expect("an answer"), PERMISSION);
    drop((second, rest, looked_at));
    daemon.stop();
    let mut expected = vec![0; 8 * MIB as usize];
    expected[MIB as usize..][..4096].fill(2);
    expected[3 * MIB as usize - 100..][..100].fill(3);
    expected[8 * MIB as usize - 512..].fill(5);
    assert!(fs::read(folder.image("sda.img")).expect("the image") == expected);
}

#[test]
fn a_slice_that_the_disk_does_not_have_is_refused_with_its_bound() {
    let folder = Folder::new();
    for (keys, parts) in [
        ("offset = 100", &["export \"a\"", "offset=100 is no multiple"][..]),
        ("size = 1000", &["export \"a\"", "size=1000 is no multiple"]),
        ("offset = \"8MiB\"", &["export \"a\"", "offset=8388608 is not below", "8388608 bytes"]),
        ("offset = \"4MiB\"\nsize = \"5MiB\"", &["end behind the disk", "8388608 bytes"]),
        ("size = 0", &["line 9", "size=0 is no size"]),
        ("offset = -512", &["line 9", "offset=-512 is below 0"]),
        ("offset = \"4 parsecs\"", &["line 9", "offset: ", "4 parsecs"]),
    ] {
        let export = format!("[[export]]\nname = \"a\"\ndisk = \"sda\"\n{keys}\n");
        fs::write(folder.near("weir.toml"), configuration(&folder, &export)).expect("a file");
        expect_refused(&folder, &["serve", "-c", "weir.toml"], parts);
    }
}

#[test]
fn a_slice_without_a_size_grows_with_its_disk_and_others_do_not() {
    let folder = Folder::new();
    let daemon = start(&folder, &configuration(&folder, SLICES));
    let sizes = || ["second", "rest"].map(|name| Client::connect(&folder.socket(), name).size);
    assert_eq!(sizes(), [2 * MIB, 5 * MIB]);
    told(&folder, &["set", "block/sda/size", "32768"]);
    assert_eq!(sizes(), [2 * MIB, 13 * MIB]);
    let mut rest = Client::connect(&folder.socket(), "rest");
    assert_eq!(rest.write(0, 13 * MIB - 512, &[7; 512]).expect("an answer"), 0);
    drop(rest);
    daemon.stop();
    let mut last = [0; 512];
    let image = fs::File::open(folder.image("sda.img")).expect("the image");
    image.read_exact_at(&mut last, 16 * MIB - 512).expect("bytes");
    assert_eq!(last, [7; 512]);
}

#[test]
fn a_reload_tells_of_a_slice_that_differs_and_refuses_one_that_a_new_disk_does_not_have() {
    let folder = Folder::new();
    let pool = "[[pool]]\nname = \"p\"\n[[disk]]\nname = \"one\"\npool = \"p\"\n\
                target = \"ram:1MiB\"\n";
    let text = format!("{}{pool}", configuration(&folder, SLICES));
    let daemon = start(&folder, &text);
    let more = |size: &str| {
        format!(
            "[[disk]]\nname = \"two\"\npool = \"p\"\ntarget = \"ram:1MiB\"\n[[export]]\n\
             name = \"part\"\ndisk = \"two\"\noffset = 512\nsize = \"{size}\"\n"
        )
    };
    let reload = |text: &str| {
        fs::write(folder.near("weir.toml"), text).expect("a file");
        daemon::words::attempt(&folder, &["set", "--reload"])
    };
    let ended = reload(&format!("{text}{}", more("1MiB")));
    assert_eq!(ended.code, Some(1), "{}", ended.stdout);
    let why = "failed: disk two of pool p: export \"part\": offset=512 and size=1048576 end behind";
    assert!(ended.stdout.contains(why), "{}", ended.stdout);
    let ended = reload(&format!("{text}{}", more("4KiB")));
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert_eq!(Client::connect(&folder.socket(), "part").size, 4096);
    let other = text.replace(
        "size = \"1MiB\"\n[[export]]\nname = \"second\"",
        "size = \"2MiB\"\n[[export]]\nname = \"second\"",
    );
    assert_ne!(other, text);
    let ended = reload(&format!("{other}{}", more("4KiB")));
    let told = "needs a restart: export \"first\" has changed";
    assert!(ended.stdout.contains(told), "{}", ended.stdout);
    assert_eq!(Client::connect(&folder.socket(), "first").size, MIB, "until then it stays");
    daemon.stop();
}
