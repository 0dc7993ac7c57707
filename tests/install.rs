//! `make install` and `make uninstall`: the files in their places, pages that the reader of manuals
//! takes without a warning, completions in real shells, and units that systemd understands and that
//! a socket starts.

#![forbid(unsafe_code)]

mod daemon;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use daemon::client::Client;
use daemon::outside::{leave_out, mortal};
use daemon::program::{Ended, Running, program};
use daemon::words::told;
use daemon::{Daemon, Folder, WEIR, weir};

const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// `make` in the repository, with nothing of a make that runs the tests.
fn make(words: &[&str]) -> Running {
    let mut make = program("make");
    make.current_dir(REPOSITORY);
    let names =
        ["MAKEFLAGS", "MFLAGS", "MAKELEVEL", "WEIR", "LIBWEIR", "PREFIX", "LIBDIR", "DESTDIR"];
    for name in names {
        make.env_remove(name);
    }
    make.args(words);
    Running::start(make)
}

/// Whether a program has a table of symbols, by the types of its sections (ELF of 64 bits).
fn has_symbols(program: &Path) -> bool {
    let bytes = fs::read(program).expect("a program");
    assert_eq!(bytes[..5], *b"\x7fELF\x02", "{}", program.display());
    let number = |at: usize, length: usize| {
        let bytes = bytes[at..at + length].iter().rev();
        bytes.fold(0, |sum, byte| sum << 8 | usize::from(*byte))
    };
    let (table, size, count) = (number(0x28, 8), number(0x3a, 2), number(0x3c, 2));
    (0..count).any(|section| number(table + section * size + 4, 4) == 2)
}

/// weir, installed below a folder of its own.
struct Installed {
    root: PathBuf,
    prefix: &'static str,
}

impl Installed {
    fn new(folder: &Folder, prefix: &'static str) -> Installed {
        let root = folder.image("root");
        let installed = Installed { root, prefix };
        installed.make("install");
        installed
    }

    fn make(&self, target: &str) -> Ended {
        self.make_below(self.prefix, target).succeed()
    }

    fn make_below(&self, prefix: &str, target: &str) -> Running {
        let root = format!("DESTDIR={}", self.root.display());
        make(&[target, &root, &format!("PREFIX={prefix}"), &format!("WEIR={WEIR}")])
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(&self.prefix[1..]).join(path)
    }

    fn read(&self, path: &str) -> String {
        let path = self.path(path);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// The program that the service starts, with its words.
    fn service(&self) -> Vec<String> {
        let unit = self.read("lib/systemd/system/weir.service");
        let line = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/"));
        line.expect("a program").split(' ').map(String::from).collect()
    }
}

/// All files below a folder, with their paths in it.
fn files(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() && !path.is_symlink() {
                folders.push(path);
            } else {
                let inside = path.strip_prefix(folder).expect("a path in it");
                found.insert(inside.display().to_string());
            }
        }
    }
    found
}

#[test]
#[ignore = "needs make, binutils, gzip"]
fn what_is_installed_has_its_places_and_goes_again_but_for_the_configuration() {
    let folder = Folder::new();
    let installed = Installed::new(&folder, "/opt/weir");
    for (path, mode) in [
        ("bin/weir", 0o755),
        ("share/man/man1/weir-serve.1.gz", 0o644),
        ("share/man/man5/weir.toml.5.gz", 0o644),
        ("share/man/man7/weir-targets.7.gz", 0o644),
        ("share/bash-completion/completions/weir", 0o644),
        ("share/zsh/site-functions/_weir", 0o644),
        ("share/fish/vendor_completions.d/weir.fish", 0o644),
        ("lib/systemd/system/weir.service", 0o644),
        ("lib/systemd/system/weir.socket", 0o644),
        ("lib/sysusers.d/weir.conf", 0o644),
        ("lib/tmpfiles.d/weir.conf", 0o644),
    ] {
        let data = fs::metadata(installed.path(path)).unwrap_or_else(|e| panic!("{path}: {e}"));
        assert_eq!(data.permissions().mode() & 0o7777, mode, "{path}");
    }
    assert!(has_symbols(Path::new(WEIR)), "the built one has none to be taken away");
    assert!(!has_symbols(&installed.path("bin/weir")), "it is not stripped");
    assert_eq!(installed.service()[0], "opt/weir/bin/weir");
    let unit = installed.read("lib/systemd/system/weir.service");
    assert!(!unit.contains("/usr/local"), "the paths do not follow PREFIX");

    let configuration = installed.root.join("etc/weir/weir.toml");
    fs::write(&configuration, "# mine\n").expect("a configuration");
    installed.make("install");
    assert_eq!(fs::read_to_string(&configuration).expect("it"), "# mine\n", "it was written over");
    let other = installed.path("bin/other");
    fs::write(&other, "").expect("a file of others");
    let note = installed.path("share/doc/weir/note");
    fs::write(&note, "").expect("a file of others");
    installed.make_below("/opt/weir/", "uninstall").succeed();
    let left = files(&installed.root);
    let expected = ["etc/weir/weir.toml", "opt/weir/bin/other", "opt/weir/share/doc/weir/note"];
    assert_eq!(left, BTreeSet::from(expected.map(String::from)));
    assert!(!installed.path("share/weir").exists(), "the folder of the list stays");
}

#[test]
#[ignore = "needs make, binutils, gzip"]
fn a_newer_one_takes_away_what_only_the_older_one_had_and_leaves_a_link_of_the_operator() {
    let folder = Folder::new();
    let installed = Installed::new(&folder, "/opt/weir");
    let list = installed.path("share/weir/installed");
    let (older, kept) = (installed.path("share/man/man1/weir-older.1"), installed.path("kept"));
    for path in [&older, &kept] {
        fs::write(path, "").expect("a file");
    }
    let listed = fs::read_to_string(&list).expect("the list");
    let more = format!("{listed}/opt/weir/share/man/man1/weir-older.1\n");
    fs::write(&list, &more).expect("a list");
    let configuration = installed.root.join("etc/weir/weir.toml");
    fs::remove_file(&configuration).expect("it was installed");
    std::os::unix::fs::symlink("/nowhere/weir.toml", &configuration).expect("a link");
    installed.make("install");
    assert!(!older.exists(), "it is orphaned");
    assert!(kept.exists() && configuration.is_symlink(), "more was taken away");
    assert_eq!(fs::read_to_string(&list).expect("the list"), listed);
    // A list that was written by another is no reason to remove what it names.
    for path in ["/opt/other", "/opt/weir/../other"] {
        fs::write(installed.root.join("opt/other"), "").expect("a file");
        fs::write(&list, format!("{listed}{path}\n")).expect("a list");
        let ended = installed.make_below("/opt/weir", "uninstall").end();
        assert!(ended.code != Some(0) && ended.stderr.contains(path), "{}", ended.stderr);
        assert!(installed.root.join("opt/other").exists());
    }
}

/// Its functions are tried in front/capi/tests; here it is any library.
#[test]
#[ignore = "needs make, binutils, gzip, cc"]
fn a_library_that_is_named_is_installed_with_its_header_and_goes_again() {
    let folder = Folder::new();
    let installed = Installed { root: folder.image("root"), prefix: "/opt/weir" };
    let (source, library) = (folder.near("weir.c"), folder.near("built.so"));
    fs::write(&source, "int weir_abi(void) { return 0; }\n").expect("a source");
    let mut cc = program("cc");
    cc.args(["-shared", "-fPIC", "-Wl,-soname,libweir.so.0", "-o"]).arg(&library).arg(&source);
    Running::start(cc).succeed();
    let words = |target: &str, libdir: &str| {
        let root = format!("DESTDIR={}", installed.root.display());
        let named = format!("LIBWEIR={}", library.display());
        let weir = format!("WEIR={WEIR}");
        make(&[target, &root, "PREFIX=/opt/weir", &weir, &named, &format!("LIBDIR={libdir}")])
    };
    words("install", "/opt/weir/lib/here").succeed();
    let version = env!("CARGO_PKG_VERSION");
    let file = installed.path(&format!("lib/here/libweir.so.{version}"));
    assert_eq!(fs::metadata(&file).expect("the library").permissions().mode() & 0o7777, 0o755);
    for link in ["libweir.so.0", "libweir.so"] {
        let path = installed.path(&format!("lib/here/{link}"));
        assert!(path.is_symlink(), "{link}");
        assert_eq!(fs::canonicalize(path).expect("a file"), fs::canonicalize(&file).expect("it"));
    }
    let header = Path::new(REPOSITORY).join("front/capi/include/weir.h");
    assert_eq!(installed.read("include/weir.h"), fs::read_to_string(header).expect("the header"));
    let about = installed.read("lib/here/pkgconfig/weir.pc");
    for line in ["prefix=/opt/weir", "libdir=/opt/weir/lib/here", "Libs: -L${libdir} -lweir"] {
        assert!(about.lines().any(|found| found == line), "{line}: {about}");
    }
    assert!(about.contains(&format!("\nVersion: {version}\n")), "{about}");
    // A program is linked with what is there.
    fs::write(&source, "#include <weir.h>\nint main(void) { return weir_abi(); }\n").expect("it");
    let mut cc = program("cc");
    cc.arg("-I").arg(installed.path("include")).arg("-L").arg(installed.path("lib/here"));
    cc.arg("-o").arg(folder.near("linked")).arg(&source).arg("-lweir");
    Running::start(cc).succeed();
    words("uninstall", "").succeed();
    assert_eq!(files(&installed.root), BTreeSet::from(["etc/weir/weir.toml".to_owned()]));

    let ended = words("install", "/opt/lib").end();
    let why = "LIBDIR=/opt/lib is not below PREFIX=/opt/weir";
    assert!(ended.code != Some(0) && ended.stderr.contains(why), "{}", ended.stderr);
}

#[test]
#[ignore = "needs make"]
fn a_prefix_that_a_unit_would_read_otherwise_is_refused() {
    let folder = Folder::new();
    let installed = Installed { root: folder.image("root"), prefix: "" };
    for prefix in ["/opt/a b", "/opt/a&b", "/opt/a%b", "/opt/../b", "opt"] {
        let Ended { code, stderr, .. } = installed.make_below(prefix, "install").end();
        assert!(code != Some(0) && stderr.contains(&format!("PREFIX={prefix} ")), "{stderr}");
        assert!(!installed.root.exists(), "{prefix}");
    }
}

#[test]
#[ignore = "needs make"]
fn a_program_that_is_named_is_installed_and_not_built() {
    for (words, built) in [(&["WEIR=target/release/weir"][..], false), (&[], true)] {
        for target in ["install", "deb"] {
            let said = make(&[&["--dry-run", target], words].concat()).succeed().stdout;
            assert_eq!(said.contains("cargo build"), built, "{target} {words:?}: {said}");
            // The library for C is built with the program.
            assert_eq!(said.contains("cargo rustc"), built, "{target} {words:?}: {said}");
        }
    }
}

#[test]
#[ignore = "needs make, binutils, gzip, unshare, mount"]
fn it_is_installed_where_no_program_starts_in_the_folder_for_temporary_files() {
    let folder = Folder::new();
    let temporary = folder.near("temporary");
    fs::create_dir(&temporary).expect("a folder");
    let mut apart = program("unshare");
    apart.args(["--map-root-user", "--mount", "sh", "-euc"]);
    apart.arg("mount -t tmpfs -o noexec none \"$TMPDIR\"; exec \"$@\"").arg("sh");
    apart.arg(Path::new(REPOSITORY).join("contrib/install.sh")).arg("install");
    apart.env("TMPDIR", &temporary).env("PREFIX", "/usr").env("WEIR", WEIR);
    apart.env("DESTDIR", folder.image("root"));
    Running::start(apart).succeed();
    let completions = "root/usr/share/bash-completion/completions/weir";
    let completions = fs::read_to_string(folder.image(completions)).expect("a file");
    assert!(!completions.contains(WEIR), "it names the program that was built: {completions}");
}

#[test]
#[ignore = "needs man"]
fn every_page_is_read_without_a_warning_and_has_its_examples() {
    let folder = Folder::new();
    let installed = Installed::new(&folder, "/usr");
    let pages = files(&installed.path("share/man"));
    assert!(pages.len() > 25, "{pages:?}");
    for page in pages {
        let mut man = program("man");
        man.args(["--warnings=w", "-l"]).arg(installed.path("share/man").join(&page));
        man.env("MANWIDTH", "80").env("LC_ALL", "C.UTF-8");
        let Ended { stdout, stderr, .. } = Running::start(man).succeed();
        assert_eq!(stderr, "", "{page}");
        if !page.contains("targets") {
            let (_, examples) = stdout.split_once("\nEXAMPLES\n").expect(&page);
            let first = examples.lines().next().expect("a line");
            assert!(first.starts_with("       ") && first.trim().len() > 3, "{page}: {first:?}");
        }
    }
}

/// The units with a root folder around them, in which systemd finds nothing else.
#[test]
#[ignore = "needs systemd"]
fn systemd_takes_the_units_the_account_and_the_folder() {
    let folder = Folder::new();
    let installed = Installed::new(&folder, "/usr");
    let units = ["weir.service", "weir.socket"];
    let mut verify = program("systemd-analyze");
    verify.args(["verify", "--man=no", "--recursive-errors=no"]);
    // It looks for the program itself: that of the root folder.
    for name in units {
        let path = format!("lib/systemd/system/{name}");
        let unit = installed.read(&path);
        let program = installed.path("bin/weir").display().to_string();
        let whole = folder.near(name);
        fs::write(&whole, unit.replace("/usr/bin/weir", &program)).expect("a unit");
        verify.arg(whole);
    }
    let said = Running::start(verify).succeed();
    assert_eq!((said.stdout.as_str(), said.stderr.as_str()), ("", ""));

    let root = format!("--root={}", installed.root.display());
    let mut users = program("systemd-sysusers");
    users.arg(&root);
    Running::start(users).succeed();
    let accounts = fs::read_to_string(installed.root.join("etc/passwd")).expect("accounts");
    let account = accounts.lines().find(|line| line.starts_with("weir:")).expect("its account");
    assert!(account.contains(":/var/lib/weir:"), "{account}");
    if !rustix::process::geteuid().is_root() {
        return leave_out("giving a folder to an account needs root");
    }
    let mut folders = program("systemd-tmpfiles");
    folders.args(["--create", &root]);
    Running::start(folders).succeed();
    let made = fs::metadata(installed.root.join("run/weir")).expect("its folder");
    let number = account.split(':').nth(2).expect("a number").parse::<u32>().expect("a number");
    // The account makes its own socket there and cannot exchange that of root.
    assert_eq!((made.uid(), made.gid(), made.mode() & 0o7777), (0, number, 0o1775));
    // An account that the operator chose keeps the images.
    let images = installed.root.join("var/lib/weir");
    assert_eq!(fs::metadata(&images).expect("its folder").uid(), number);
    std::os::unix::fs::chown(&images, Some(65534), Some(65534)).expect("root may");
    let mut folders = program("systemd-tmpfiles");
    folders.args(["--create", &root]);
    Running::start(folders).succeed();
    assert_eq!(fs::metadata(&images).expect("its folder").uid(), 65534);
}

#[test]
#[ignore = "needs make, binutils, gzip"]
fn bash_completes_by_the_installed_file_also_what_the_daemon_has() {
    let folder = Folder::new();
    let installed = Installed::new(&folder, "/usr");
    let daemon = Daemon::start(&folder, &["sda=ram:1MiB,scheduler=mq-deadline"]);
    let file = installed.path("share/bash-completion/completions/weir");
    let offered = |typed: &[&str]| {
        // As bash does it: the function that `complete` has for the command, with the words typed.
        let script = format!(
            "source {}; COMP_WORDS=(weir {}); COMP_CWORD={}; \
             f=$(complete -p weir); f=${{f##*-F }}; ${{f%% *}} weir {:?} ''; \
             echo ${{COMPREPLY[*]}}",
            file.display(),
            typed.join(" "),
            typed.len(),
            typed.last().expect("a word"),
        );
        let mut shell = program("bash");
        let path = std::env::var("PATH").unwrap_or_default();
        shell.args(["-c", &script]).current_dir(folder.path());
        shell.env("PATH", format!("{}:{path}", installed.path("bin").display()));
        shell.env_remove("WEIR_CONTROL");
        Running::start(shell).succeed().stdout.trim_end().to_owned()
    };
    assert_eq!(offered(&["compl"]), "");
    assert_eq!(offered(&["comp"]), "compare");
    assert_eq!(offered(&["schedulers", "mq"]), "mq-deadline");
    assert_eq!(offered(&["get", "block/sda/queue/nr_r"]), "block/sda/queue/nr_requests");
    assert!(offered(&["bench", "ol"]).split(' ').any(|word| word == "oltp"));
    daemon.stop();
}

#[test]
#[ignore = "needs zsh and fish"]
fn zsh_and_fish_take_their_files() {
    let folder = Folder::new();
    let installed = Installed::new(&folder, "/usr");
    let path = format!(
        "{}:{}",
        installed.path("bin").display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let zsh = installed.path("share/zsh/site-functions");
    let fish = installed.path("share/fish/vendor_completions.d/weir.fish");
    let run = |shell: &str, script: &str| {
        let mut shell = program(shell);
        shell.args(["-c", script]).env("PATH", &path).env("HOME", folder.path());
        // What the developer has set up for shells is not meant.
        for name in ["ZDOTDIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME"] {
            shell.env_remove(name);
        }
        shell.current_dir(folder.path());
        Running::start(shell).succeed()
    };
    // zsh completes in an editor of lines only: the file is found for the command, and read.
    let script = format!(
        "fpath=({} $fpath); autoload -U compinit; compinit -D -u; echo $_comps[weir]; \
         source {}/_weir; echo $_comps[weir]",
        zsh.display(),
        zsh.display()
    );
    let said = run("zsh", &script);
    assert_eq!(said.stdout, "_weir\n_clap_dynamic_completer_weir\n", "{}", said.stderr);
    assert_eq!(said.stderr, "");
    let script = format!("source {}; complete -C 'weir schedulers mq'", fish.display());
    let said = run("fish", &script);
    assert_eq!(said.stdout.trim_end(), "mq-deadline", "{}", said.stderr);
}

#[test]
#[ignore = "needs systemd"]
fn a_client_at_the_socket_starts_the_daemon_as_the_service_says() {
    let folder = Folder::new();
    let installed = Installed::new(&folder, "/usr");
    let mut words = installed.service();
    words[0] = installed.root.join(&words[0]).display().to_string();
    let control = folder.near("control.sock");
    for word in &mut words {
        match word.as_str() {
            "/etc/weir/weir.toml" => {
                *word = installed.root.join(&word[1..]).display().to_string();
            }
            "/run/weir/control.sock" => *word = control.display().to_string(),
            _ => {}
        }
    }
    assert!(words.contains(&control.display().to_string()), "{words:?}");
    let mut command = mortal("systemd-socket-activate");
    command.arg(format!("--listen={}", folder.socket().display())).args(&words);
    command.current_dir(folder.path());
    command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null());
    let mut daemon = Daemon::spawn_unready(command);
    daemon.wait_for(|line| line.starts_with("Listening on "));
    assert!(!control.exists(), "it runs before the first client");
    let mut client = Client::connect(&folder.socket(), "sda");
    assert_eq!(client.write(0, 4096, &[7; 4096]).expect("a reply"), 0);
    assert_eq!(client.read(4096, 4096).expect("a reply"), Ok(vec![7; 4096]));
    let control = control.to_str().expect("UTF-8");
    assert_eq!(told(&folder, &["get", "--control", control, "block/sda/size"]), "2097152\n");
    client.disconnect().expect("a parting");
    assert_eq!(daemon.terminate().0.code(), Some(0), "{}", daemon.said());
    assert!(folder.path().join("sda.img").exists());
}

#[test]
fn a_page_that_is_not_there_is_refused_with_those_that_are() {
    let folder = Folder::new();
    let mut command = weir(&folder);
    command.args(["man", "frob"]);
    let Ended { code, stderr, .. } = Running::start(command).end();
    assert_eq!(code, Some(2));
    assert!(stderr.contains("no page \"frob\"; there are weir, weir-serve,"), "{stderr}");
}
