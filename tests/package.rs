//! The Debian package in a root folder of its own: installed, upgraded while a client writes,
//! removed and purged; and the command of the container recipe in such a folder.

#![forbid(unsafe_code)]

mod daemon;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use daemon::client::Client;
use daemon::outside::{leave_out, mortal};
use daemon::program::{Noise, Running, program, run, wait_for_writes};
use daemon::{Daemon, Folder, WEIR};

const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// A root folder with the packages that weir's depends on, as its dpkg knows.
struct Root(PathBuf);

impl Root {
    fn new(folder: &Folder) -> Root {
        let root = Root(folder.image("root"));
        let state = root.path("var/lib/dpkg");
        // Whatever the developer's is, the account comes to what is below.
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
        for inside in ["info", "updates", "triggers"] {
            fs::create_dir_all(state.join(inside)).expect("a folder");
        }
        for inside in ["etc", "tmp", "dev", "proc"] {
            fs::create_dir_all(root.path(inside)).expect("a folder");
        }
        let row = "Package: ${Package}\\nStatus: install ok installed\\nVersion: ${Version}\\n\
                   Architecture: ${Architecture}\\nMulti-Arch: ${Multi-Arch}\\n\
                   Maintainer: its\\nDescription: it\\n\\n";
        let libraries = run("dpkg-query", &["-W", "-f", row, "libc6", "libgcc-s1"]);
        let libraries = libraries.replace("Multi-Arch: \n", "");
        // Its programs are there, from a package or not.
        let version = run("systemd-tmpfiles", &["--version"]);
        let version = version.split_whitespace().nth(1).expect("a version");
        let architecture = run("dpkg", &["--print-architecture"]);
        let systemd = format!(
            "Package: systemd\nStatus: install ok installed\nVersion: {version}\n\
             Architecture: {architecture}Maintainer: its\nDescription: it\n\n"
        );
        fs::write(state.join("status"), libraries + &systemd).expect("a status");
        let architecture = architecture.trim_end();
        for name in ["libc6", "libgcc-s1"] {
            let list = state.join(format!("info/{name}:{architecture}.list"));
            fs::write(list, "").expect("a list");
        }
        fs::write(state.join("info/systemd.list"), "").expect("a list");
        root
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }

    /// dpkg on this folder, whose scripts are told where they are.
    fn dpkg(&self, words: &[&str]) -> String {
        let mut dpkg = program("dpkg");
        dpkg.arg(format!("--root={}", self.0.display())).arg("--force-script-chrootless");
        dpkg.arg(format!("--log={}", self.path("dpkg.log").display())).args(words);
        dpkg.env("DEBIAN_FRONTEND", "noninteractive").env_remove("DPKG_ROOT");
        let ended = Running::start(dpkg).succeed();
        ended.stdout + &ended.stderr
    }

    /// The files that are neither dpkg's own nor lists of accounts.
    fn files(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        let mut folders = vec![self.0.clone()];
        while let Some(next) = folders.pop() {
            for entry in fs::read_dir(&next).expect("a folder") {
                let path = entry.expect("an entry").path();
                let inside = path.strip_prefix(&self.0).expect("inside").display().to_string();
                let others = ["var/lib/dpkg", "dpkg.log", "etc/.pwd.lock"].contains(&&*inside)
                    || ["passwd", "group", "shadow", "gshadow"]
                        .iter()
                        .any(|list| inside.trim_end_matches('-') == format!("etc/{list}"));
                match others {
                    true => {}
                    false if path.is_dir() && !path.is_symlink() => folders.push(path),
                    false => _ = found.insert(inside),
                }
            }
        }
        found
    }

    /// Number and group of the account.
    fn account(&self) -> (u32, u32) {
        let accounts = fs::read_to_string(self.path("etc/passwd")).expect("accounts");
        let account = accounts.lines().find(|line| line.starts_with("weir:")).expect("one");
        let fields: Vec<_> = account.split(':').collect();
        (fields[2].parse().expect("a number"), fields[3].parse().expect("a number"))
    }
}

/// The package, said to be of this version.
fn package(folder: &Folder, version: &str) -> String {
    package_with(folder, version, "")
}

/// The same with this library for C, if one is named.
fn package_with(folder: &Folder, version: &str, library: &str) -> String {
    let mut make = program("make");
    make.current_dir(REPOSITORY);
    for name in ["MAKEFLAGS", "MFLAGS", "MAKELEVEL", "PREFIX", "DESTDIR", "LIBDIR"] {
        make.env_remove(name);
    }
    make.env("DEB_COMPRESSION", "gzip").env("DEB_DIR", folder.image("deb"));
    make.args(["--silent", "deb"]);
    make.arg(format!("VERSION={version}")).arg(format!("WEIR={WEIR}"));
    make.arg(format!("LIBWEIR={library}"));
    Running::start(make).succeed().stdout.trim_end().to_owned()
}

/// Its functions are tried in front/capi/tests; here it is any library.
#[test]
#[ignore = "needs dpkg-dev and cc"]
fn the_package_has_the_library_for_c_where_the_linker_and_ldconfig_look() {
    let folder = Folder::new();
    let (source, library) = (folder.near("weir.c"), folder.near("built.so"));
    fs::write(&source, "int weir_abi(void) { return 0; }\n").expect("a source");
    let mut cc = program("cc");
    cc.args(["-shared", "-fPIC", "-Wl,-soname,libweir.so.0", "-o"]).arg(&library).arg(&source);
    Running::start(cc).succeed();
    let package = package_with(&folder, "0.3.0", &library.display().to_string());
    let of_control = |file| run("dpkg-deb", &["--info", &package, file]);
    assert_eq!(of_control("triggers"), "activate-noawait ldconfig\n");
    assert_eq!(of_control("shlibs"), "libweir 0 weir (>= 0.3.0)\n");
    let root = folder.image("unpacked");
    run("dpkg-deb", &["--extract", &package, &root.display().to_string()]);
    let triplet = run("dpkg-architecture", &["-qDEB_HOST_MULTIARCH"]);
    let libraries = root.join("usr/lib").join(triplet.trim_end());
    let about = fs::read_to_string(libraries.join("pkgconfig/weir.pc")).expect("it");
    let libdir = format!("libdir=/usr/lib/{}", triplet.trim_end());
    assert!(about.lines().any(|line| line == libdir), "{about}");
    // What ldconfig does for the trigger, with a cache of its own.
    let cache = folder.near("cache").display().to_string();
    let here = libraries.display().to_string();
    run("/sbin/ldconfig", &["-C", &cache, "-f", "/dev/null", &here]);
    let known = run("/sbin/ldconfig", &["-C", &cache, "-p"]);
    assert!(known.contains(&format!("{here}/libweir.so.0")), "{known}");
    fs::write(&source, "#include <weir.h>\nint main(void) { return weir_abi(); }\n").expect("it");
    let mut cc = program("cc");
    cc.arg("-I").arg(root.join("usr/include")).arg("-L").arg(&libraries);
    cc.arg("-o").arg(folder.near("linked")).arg(&source).arg("-lweir");
    Running::start(cc).succeed();
    // Without one there is nothing of it.
    let without = package_with(&folder, "0.3.1", "");
    let listed = run("dpkg-deb", &["--contents", &without]);
    assert!(!listed.contains("weir.h") && !listed.contains("libweir"), "{listed}");
}

/// The service's program with its words: started by the socket below a root folder.
fn service(folder: &Folder, root: &Root) -> Vec<String> {
    let unit = root.path("usr/lib/systemd/system/weir.service");
    let unit = fs::read_to_string(unit).expect("the unit");
    let line = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).expect("a program");
    let control = folder.near("control.sock").display().to_string();
    let word = |word: &str| match word {
        "/run/weir/control.sock" => control.clone(),
        _ if word.starts_with('/') => root.path(&word[1..]).display().to_string(),
        _ => String::from(word),
    };
    line.split(' ').map(word).collect()
}

fn quiet(mut command: Command, folder: &Folder) -> Command {
    command.current_dir(folder.path()).stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// A client that writes blocks, each with a number of its own, and connects again when it has lost
/// its connection.
struct Writer<'a> {
    socket: &'a Path,
    client: Client,
    /// Of each block the number that was acknowledged last, and those tried since.
    blocks: Vec<(u64, Vec<u64>)>,
    connections: u32,
}

const BLOCKS: usize = 64;
const BYTES: usize = 4096;

/// NBD_ESHUTDOWN: a server that is about to go refuses what comes until the connection is closed.
const SHUTDOWN: u32 = 108;

fn block(number: u64) -> Vec<u8> {
    if number == 0 {
        return vec![0; BYTES];
    }
    let mut bytes = vec![0; BYTES];
    Noise::new(number).fill(&mut bytes);
    bytes
}

impl<'a> Writer<'a> {
    fn new(socket: &'a Path) -> Writer<'a> {
        let client = Client::connect(socket, "sda");
        Writer { socket, client, blocks: vec![(0, Vec::new()); BLOCKS], connections: 1 }
    }

    fn again(&mut self, lost: &io::Error) {
        println!("connection {} was lost: {lost}", self.connections);
        self.client = Client::connect(self.socket, "sda");
        self.connections += 1;
    }

    fn write(&mut self, number: u64) {
        let at = number as usize % BLOCKS;
        self.blocks[at].1.push(number);
        match self.client.write(0, (at * BYTES) as u64, &block(number)) {
            Ok(0) => self.blocks[at] = (number, Vec::new()),
            // Not acknowledged. The connection is closed next.
            Ok(SHUTDOWN) => {}
            Ok(error) => panic!("write {number}: error {error}"),
            Err(lost) => self.again(&lost),
        }
    }

    fn verify(&mut self) {
        for at in 0..BLOCKS {
            let bytes = loop {
                match self.client.read((at * BYTES) as u64, BYTES as u32) {
                    Ok(Ok(bytes)) => break bytes,
                    Ok(Err(SHUTDOWN)) => {}
                    Ok(Err(error)) => panic!("read of block {at}: error {error}"),
                    Err(lost) => self.again(&lost),
                }
            };
            let (acknowledged, tried) = &self.blocks[at];
            let mut may_be = tried.iter().chain([acknowledged]);
            assert!(
                may_be.any(|number| block(*number) == bytes),
                "block {at} is neither write {acknowledged}, which was acknowledged, nor {tried:?}"
            );
        }
    }
}

/// Ends the load also when the test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
#[ignore = "needs dpkg-dev and systemd"]
fn the_package_installs_is_upgraded_under_load_and_goes_without_leaving_a_file() {
    if !rustix::process::geteuid().is_root() {
        return leave_out("accounts and owners need root");
    }
    let folder = Folder::new();
    let packages = ["0.1.0", "0.2.0"].map(|version| package(&folder, version));
    let root = Root::new(&folder);
    let before = root.files();
    root.dpkg(&["-i", &packages[0]]);
    assert!(root.path("etc/systemd/system/sockets.target.wants/weir.socket").is_symlink());
    let owner = |path: &str| fs::metadata(root.path(path)).expect(path).uid();
    assert_eq!(["var/lib/weir", "run/weir"].map(owner), [root.account().0, 0]);
    assert_eq!(owner("usr/bin/weir"), 0);

    let mut command = mortal("systemd-socket-activate");
    command.arg(format!("--listen={}", folder.socket().display())).args(service(&folder, &root));
    let mut first = Daemon::spawn_unready(quiet(command, &folder));
    first.wait_for(|line| line.starts_with("Listening on "));
    let (over, socket) = (AtomicBool::new(false), folder.socket());
    let mut writer = Writer::new(&socket);
    let second = std::thread::scope(|scope| {
        first.wait_for(|line| line == "weir: ready");
        let image = folder.near("sda.img");
        let load = scope.spawn(|| {
            let mut number = 0;
            while !over.load(Ordering::Relaxed) {
                number += 1;
                writer.write(number);
                if number.is_multiple_of(BLOCKS as u64) {
                    writer.verify();
                }
            }
            writer.verify();
            (number, writer.connections)
        });
        let end = Over(&over);
        wait_for_writes(&image, 50);
        let said = root.dpkg(&["-i", &packages[1]]);
        assert!(said.contains("goes on as version 0.1.0"), "{said}");
        // The program has been exchanged, and the daemon serves on.
        wait_for_writes(&image, 50);
        assert_eq!(first.said().lines().filter(|line| *line == "weir: ready").count(), 1);
        let words = service(&folder, &root);
        let mut command = mortal(&words[0]);
        command.args(&words[1..]).arg("--replace");
        let second = Daemon::spawn(quiet(command, &folder));
        assert_eq!(first.wait().code(), Some(0), "{}", first.said());
        wait_for_writes(&image, 50);
        drop(end);
        let (number, connections) = load.join().expect("no error of the load");
        println!("{number} writes");
        assert_eq!(connections, 2, "the upgrade closed connections, or the replacement none");
        second
    });
    second.stop();

    removed_and_installed_again(&root, &before, &packages[1]);
    let configuration = root.path("etc/weir/weir.toml");
    let image = root.path("var/lib/weir/vm.img");
    fs::write(&image, "data").expect("an image");
    let said = root.dpkg(&["-P", "weir"]);
    assert!(!configuration.exists() && said.contains("is not empty and stays"), "{said}");
    let left: BTreeSet<_> = root.files().difference(&before).cloned().collect();
    assert_eq!(left, BTreeSet::from([String::from("var/lib/weir/vm.img")]), "data of the operator");
    assert!(!root.path("etc/weir").exists() && !root.path("run/weir").exists());
}

/// A removal keeps what the operator made: the configuration, and what was enabled and disabled.
fn removed_and_installed_again(root: &Root, before: &BTreeSet<String>, package: &str) {
    let systemctl = |words: &[&str]| {
        let below = format!("--root={}", root.0.display());
        run("systemctl", &[&[below.as_str()], words].concat());
    };
    systemctl(&["disable", "weir.socket"]);
    systemctl(&["enable", "weir.service"]);
    for socket in ["nbd.sock", "control.sock"] {
        fs::write(root.path("run/weir").join(socket), "").expect("a file in its place");
    }
    root.dpkg(&["-r", "weir"]);
    let left = root.files();
    let left = left.difference(before).filter(|path| !path.starts_with("var/lib/systemd/deb-"));
    let service = "etc/systemd/system/multi-user.target.wants/weir.service";
    assert_eq!(left.collect::<Vec<_>>(), [service, "etc/weir/weir.toml"]);
    let said = root.dpkg(&["-i", package]);
    assert!(!said.contains("goes on"), "there is no daemon: {said}");
    let socket = root.path("etc/systemd/system/sockets.target.wants/weir.socket");
    assert!(!socket.is_symlink(), "it was disabled");
    assert!(root.path(service).is_symlink(), "it was enabled");
}

/// The scripts as on a machine that systemd runs, with programs in its place that note their words.
#[test]
#[ignore = "needs unshare, mount"]
fn an_upgrade_stops_nothing_and_every_installation_starts_the_socket() {
    let folder = Folder::new();
    let (programs, told) = (folder.near("programs"), folder.near("told"));
    fs::create_dir(&programs).expect("a folder");
    let helpers = ["deb-systemd-helper", "deb-systemd-invoke"];
    for name in ["systemd-sysusers", "systemd-tmpfiles", "systemctl"].into_iter().chain(helpers) {
        let note = format!("#!/bin/sh\necho {name} \"$@\" >>{}\n", told.display());
        fs::write(programs.join(name), note).expect("a program");
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(programs.join(name), mode).expect("a mode");
    }
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
    let called = |script: &str, words: &[&str]| {
        fs::write(&told, "").expect("a file");
        let mut apart = program("unshare");
        apart.args(["--map-root-user", "--mount", "sh", "-euc"]);
        apart.arg("mount -t tmpfs none /run; mkdir -p /run/systemd/system; exec sh \"$@\"");
        apart.arg("sh").arg(format!("{REPOSITORY}/contrib/deb/{script}")).args(words);
        apart.env("PATH", &path).env_remove("DPKG_ROOT");
        Running::start(apart).succeed();
        fs::read_to_string(&told).expect("a file")
    };
    for words in [
        &["configure", ""][..],
        // After a removal the version is told as it is at an upgrade.
        &["configure", "0.1.0"],
        &["abort-upgrade", "0.2.0"],
        &["abort-remove"],
    ] {
        let calls = called("postinst", words);
        assert!(calls.contains("systemd-tmpfiles --create weir.conf\n"), "{words:?}: {calls}");
        assert!(calls.contains("deb-systemd-invoke start weir.socket\n"), "{words:?}: {calls}");
    }
    assert_eq!(called("prerm", &["upgrade", "0.2.0"]), "");
    let stop = "deb-systemd-invoke stop weir.socket weir.service\n";
    assert_eq!(called("prerm", &["remove"]), stop);
}

/// The command of a recipe for containers: the last `CMD`, a list as JSON has it.
fn recipe() -> Vec<String> {
    let path = Path::new(REPOSITORY).join("contrib/container/Containerfile");
    let text = fs::read_to_string(path).expect("the recipe");
    let line = text.lines().rev().find_map(|line| line.strip_prefix("CMD ")).expect("a command");
    serde_json::from_str(line).expect("a list")
}

#[test]
#[ignore = "needs dpkg-dev and systemd"]
fn the_command_of_the_container_serves_in_a_root_folder_as_its_account() {
    if !rustix::process::geteuid().is_root() {
        return leave_out("another root folder needs root");
    }
    let folder = Folder::new();
    let root = Root::new(&folder);
    root.dpkg(&["-i", &package(&folder, "0.1.0")]);
    // What the base image has of the libraries, and the program that changes the account.
    let setpriv = run("sh", &["-c", "command -v setpriv"]);
    let setpriv = setpriv.trim_end();
    let linked = run("ldd", &[WEIR, setpriv]);
    let linked = linked.split_whitespace().map(|word| word.trim_end_matches(':'));
    for path in linked.filter(|word| word.starts_with('/') && *word != WEIR) {
        let inside = root.path(&path[1..]);
        fs::create_dir_all(inside.parent().expect("a folder")).expect("a folder");
        fs::copy(path, inside).expect("a library");
    }
    let (user, group) = root.account();
    let mut command = mortal("chroot");
    command.arg(&root.0).arg(setpriv).args(["--clear-groups", "--pdeathsig", "KILL"]);
    // With the account goes what the kernel was asked for: it is asked again.
    command.arg(format!("--reuid={user}")).arg(format!("--regid={group}")).arg("--");
    command.args(recipe());
    // The folder of the recipe, where relative paths begin, is that of the root.
    let line = ["name = \"sda\"", "target = \"file:/var/lib/weir/sda.img,size=8MiB\""].join("\n");
    fs::write(root.path("etc/weir/weir.toml"), format!("[[disk]]\n{line}\n")).expect("a file");
    let daemon = Daemon::spawn(quiet(command, &folder));
    // A socket's path is short; the folder's is not.
    let short = folder.near("run");
    std::os::unix::fs::symlink(root.path("run/weir"), &short).expect("a link");
    let mut client = Client::connect(&short.join("nbd.sock"), "sda");
    assert_eq!(client.write(0, 0, &[7; 4096]).expect("a reply"), 0);
    assert_eq!(client.read(0, 4096).expect("a reply"), Ok(vec![7; 4096]));
    client.disconnect().expect("a parting");
    let image = fs::metadata(root.path("var/lib/weir/sda.img")).expect("an image");
    assert_eq!(image.uid(), user, "it serves as another account");
    daemon.stop();
    // The folder is root's, and the account may make and remove its own there.
    let sockets = fs::read_dir(root.path("run/weir")).expect("a folder");
    assert_eq!(sockets.count(), 0, "sockets stay behind");
}
