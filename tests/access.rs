//! Access: the addresses a daemon opens by default, the clients that its addresses and exports
//! admit, and the files it trusts in a folder that others can write.

#![forbid(unsafe_code)]

mod daemon;

use std::fs;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use daemon::client::{Client, greeted, option, option_reply};
use daemon::outside::{leave_out, mortal};
use daemon::program::{Running, run};
use daemon::words::{attempt, expect_refused, told};
use daemon::{Daemon, Folder, PATIENCE, WEIR, weir};
use rustix::process::{getegid, geteuid};

/// The number of the user `nobody` of Debian, to which unmapped users belong, too.
const NOBODY: u32 = 65534;

/// A daemon behind a shell that first does this.
fn behind(folder: &Folder, first: &str, words: &[&str]) -> Command {
    let mut shell = mortal("/bin/sh");
    shell.args(["-c", &format!("{first}; exec \"$0\" \"$@\"")]).arg(WEIR).arg("serve").args(words);
    shell.current_dir(folder.path()).stdin(Stdio::null()).stdout(Stdio::null());
    for name in
        ["WEIR_LOG", "WEIR_CONTROL", "XDG_RUNTIME_DIR", "LISTEN_FDS", "LISTEN_PID", "NOTIFY_SOCKET"]
    {
        shell.env_remove(name);
    }
    shell
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).expect("it is there").mode() & 0o7777
}

/// The TCP ports a process listens on, of those that the kernel lists.
fn tcp_ports(daemon: &mut Daemon) -> usize {
    let pid = daemon.child().id();
    let table = |name: &str| fs::read_to_string(format!("/proc/{pid}/net/{name}"));
    let lines = ["tcp", "tcp6"].map(|name| table(name).unwrap_or_default()).concat();
    // The inode is the tenth field.
    let inodes: Vec<&str> =
        lines.lines().filter_map(|line| line.split_whitespace().nth(9)).collect();
    let open = fs::read_dir(format!("/proc/{pid}/fd")).expect("a running daemon");
    let links = open.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    let sockets = links.map(|link| link.display().to_string());
    sockets.filter(|link| inodes.iter().any(|inode| *link == format!("socket:[{inode}]"))).count()
}

#[test]
fn a_daemon_that_is_told_nothing_opens_one_unix_socket_for_its_owner_whatever_the_umask() {
    for umask in ["000", "022", "277"] {
        let folder = Folder::new();
        let mut daemon = Daemon::spawn(behind(&folder, &format!("umask {umask}"), &[]));
        let data = folder.near("weir-data");
        for socket in ["nbd.sock", "control.sock"] {
            assert_eq!(mode(&data.join(socket)), 0o600, "{socket}, umask {umask}");
        }
        assert_eq!(mode(&data) & 0o077, 0, "umask {umask}");
        assert_eq!(mode(&data.join("sda.img")) & 0o077, 0, "umask {umask}");
        assert_eq!(tcp_ports(&mut daemon), 0, "umask {umask}");
        assert!(Client::connect(&data.join("nbd.sock"), "").size > 0);
        daemon.stop();
    }
}

#[test]
fn the_mode_owner_and_group_of_a_socket_are_options_of_its_address() {
    let folder = Folder::new();
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    let root = geteuid().is_root();
    // Only root may give files away.
    let (owner, group) = if root { (NOBODY, 12) } else { (uid, gid) };
    let words = format!("unix:a.sock,mode=0660,owner={owner},group={group}");
    let config = format!(
        "[nbd]\nlisten = [{{ address = \"unix:b.sock\", mode = \"0666\", group = \"{group}\" }}]\n\
         [[disk]]\nname = \"sda\"\ntarget = \"ram:1MiB\"\n\
         [[export]]\nname = \"a\"\ndisk = \"sda\"\nlisten = [\"unix:c.sock,mode=0640\"]\n\
         [[export]]\nname = \"b\"\ndisk = \"sda\"\n"
    );
    fs::write(folder.near("weir.toml"), config).expect("a file");
    let of = |name: &str| {
        let data = fs::symlink_metadata(folder.near(name)).expect("a socket");
        (data.mode() & 0o7777, data.uid(), data.gid())
    };
    // No umask takes from what was asked for.
    let daemon = Daemon::spawn(behind(&folder, "umask 077", &["-c", "weir.toml"]));
    assert_eq!(of("b.sock"), (0o666, uid, group));
    assert_eq!(of("c.sock"), (0o640, uid, gid));
    daemon.wait_for(|line| line.contains("unix:b.sock: every user of this machine is let in"));
    daemon.stop();
    let flags = ["--nbd", &words, "--disk", "sda=ram:1MiB"];
    let daemon = Daemon::spawn(behind(&folder, "umask 077", &flags));
    assert_eq!(of("a.sock"), (0o660, owner, group));
    daemon.stop();
    assert!(!folder.near("a.sock").exists());
}

/// A command that runs as a user without any rights, or nothing, said aloud.
fn as_nobody(program: &str) -> Option<Command> {
    if !geteuid().is_root() {
        leave_out("only root can be somebody else");
        return None;
    }
    let words = ["--reuid=65534", "--regid=65534", "--clear-groups", "--"];
    let nobody = || {
        let mut command = Command::new("setpriv");
        command.args(words).arg(program).stdin(Stdio::null());
        command
    };
    let probe = nobody().arg("--version").output();
    if !probe.is_ok_and(|ended| ended.status.success()) {
        leave_out(&format!("{program} cannot be run as another user"));
        return None;
    }
    Some(nobody())
}

#[test]
fn another_user_reaches_a_socket_only_where_that_was_said() {
    let folder = Folder::new();
    let Some(_) = as_nobody(WEIR) else { return };
    // The folder is open, so that the socket alone keeps others out.
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("a mode");
    let [closed, open, listed] = ["closed.sock", "open.sock", "listed.sock"];
    let mut serve = weir(&folder);
    serve.args(["serve", "--disk", "sda=ram:1MiB", "--nbd", &format!("unix:{closed}"), "--nbd"]);
    serve.args([&format!("unix:{open},mode=0666"), "--nbd"]);
    serve.arg(format!("unix:{listed},mode=0666,allow=uid:0"));
    let daemon = Daemon::spawn(serve);
    let bench = |socket: &str| {
        let mut command = as_nobody(WEIR).expect("it was so above");
        let target = format!("nbd+unix:{}?sda", folder.near(socket).display());
        command.args(["bench", "--target", &target, "--rw", "randread", "--runtime", "10ms"]);
        Running::start(command).end()
    };
    let refused = bench(closed);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("Permission denied"), "{refused:?}");
    let served = bench(open);
    assert_eq!(served.code, Some(0), "{served:?}");
    daemon
        .wait_for(|line| line.contains("uid=65534 gid=65534") && line.contains("client connected"));
    let refused = bench(listed);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    daemon.wait_for(|line| line.contains("connection refused") && line.contains("uid=65534"));
    daemon.stop();
}

#[test]
fn tcp_is_opened_where_it_is_named_and_beyond_loopback_only_when_that_is_meant() {
    let folder = Folder::new();
    for address in ["0.0.0.0:0", "[::]:0"] {
        let words = ["serve", "--disk", "a=ram:1M", "--nbd", address];
        expect_refused(&folder, &words, &[address, "other hosts", "insecure"]);
    }
    let serve = |words: &[&str]| {
        let mut command = weir(&folder);
        command.args(["serve", "--disk", "sda=ram:1MiB", "--nbd"]).args(words);
        Daemon::spawn(command)
    };
    let mut daemon = serve(&["127.0.0.1:0"]);
    let line = daemon.wait_for(|line| line.contains("every user of this machine is let in"));
    assert!(line.contains("127.0.0.1:"), "{line}");
    assert_eq!(tcp_ports(&mut daemon), 1);
    daemon.stop();
    // Loud: also to who wants to hear of errors only.
    let daemon = serve(&["0.0.0.0:0,insecure", "--quiet"]);
    daemon.wait_for(|line| line.contains("INSECURE: 0.0.0.0:"));
    daemon.stop();
    let config = "[nbd]\nlisten = [\"0.0.0.0:0\"]\ninsecure = true\nallow = [\"10.0.0.0/8\"]\n\
                  [[disk]]\nname = \"sda\"\ntarget = \"ram:1MiB\"\n";
    fs::write(folder.near("weir.toml"), config).expect("a file");
    let mut command = weir(&folder);
    command.args(["serve", "-c", "weir.toml"]);
    let daemon = Daemon::spawn(command);
    let line = daemon.wait_for(|line| line.contains("INSECURE: 0.0.0.0:"));
    assert!(line.contains("10.0.0.0/8"), "{line}");
    let port = line.split(':').nth(2).expect("a port").parse::<u16>().expect("a port");
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    assert_eq!(stream.read(&mut [0]).expect("the end"), 0, "it is not in the list");
    daemon.wait_for(|line| line.contains("connection refused") && line.contains("127.0.0.1:"));
    daemon.stop();
}

#[test]
fn a_port_that_was_passed_in_is_held_to_the_same() {
    let folder = Folder::new();
    let passed = |address: &str, further: &str| {
        let listener = TcpListener::bind(address).expect("a port");
        let mut command = mortal("/bin/sh");
        let line = format!(
            "export LISTEN_FDS=1 LISTEN_PID=$$; exec \"$0\" serve {further} 3<&0 </dev/null"
        );
        command.args(["-c", &line]).arg(WEIR).current_dir(folder.path());
        command.stdin(Stdio::from(OwnedFd::from(listener))).stdout(Stdio::null());
        command
    };
    let disk = "--disk sda=ram:1MiB";
    let ended = Running::start(passed("0.0.0.0:0", disk)).end();
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("the passed socket 0.0.0.0:"), "{ended:?}");
    Daemon::spawn(passed("127.0.0.1:0", disk)).stop();
    fs::write(folder.near("weir.toml"), "[nbd]\ninsecure = true\n").expect("a file");
    let daemon = Daemon::spawn(passed("0.0.0.0:0", &format!("-c weir.toml {disk}")));
    daemon.wait_for(|line| line.contains("INSECURE"));
    daemon.stop();
}

#[test]
fn the_credentials_of_a_local_client_stand_in_the_log_in_the_tree_and_in_top() {
    let folder = Folder::new();
    let daemon = Daemon::start(&folder, &["sda=ram:1MiB"]);
    let client = Client::connect(&folder.socket(), "sda");
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    let who = format!("uid={uid} gid={gid} pid={}", std::process::id());
    daemon.wait_for(|line| line.contains(&who) && line.contains("export=sda"));
    let number = told(&folder, &["ls", "nbd/sda"]);
    let file = format!("nbd/sda/{}/address", number.trim_end_matches("/\n"));
    assert_eq!(told(&folder, &["get", &file]).trim(), who);
    let frame = told(&folder, &["top", "--once", "--interval", "100ms"]);
    assert!(frame.contains(&who), "{frame}");
    drop(client);
    daemon.stop();
}

/// Disks of which one is exported read-only, one at an address of its own, one to no client here,
/// and one has no export but itself.
const EXPORTS: &str = r#"
[nbd]
listen = ["unix:nbd.sock"]
[[disk]]
name = "sda"
target = "ram:1MiB"
[[disk]]
name = "sdb"
target = "ram:2MiB"
[[disk]]
name = "sdc"
target = "ram:3MiB"
[[disk]]
name = "sdd"
target = "ram:4MiB"
[[export]]
name = "readers"
disk = "sda"
readonly = true
[[export]]
name = "sdb"
disk = "sdb"
listen = ["unix:own.sock"]
[[export]]
name = "others"
disk = "sdc"
allow = ["uid:4294967294", "10.0.0.0/8"]
"#;

/// The names an address lists.
fn listed(socket: &Path) -> Vec<String> {
    let mut stream = greeted(socket).expect("a greeting");
    std::io::Write::write_all(&mut stream, &option(3, &[])).expect("a socket");
    let mut names = Vec::new();
    loop {
        match option_reply(&mut stream).expect("an answer") {
            (2, entry) => names.push(String::from_utf8_lossy(&entry[4..]).into_owned()),
            (kind, _) => {
                assert_eq!(kind, 1, "the end of the list");
                return names;
            }
        }
    }
}

/// The error GO is answered with.
fn refusal(socket: &Path, export: &str) -> u32 {
    let mut stream = greeted(socket).expect("a greeting");
    let mut data = (export.len() as u32).to_be_bytes().to_vec();
    data.extend(export.as_bytes());
    data.extend([0, 0]);
    std::io::Write::write_all(&mut stream, &option(7, &data)).expect("a socket");
    let (kind, words) = option_reply(&mut stream).expect("an answer");
    println!("{export}: {}", String::from_utf8_lossy(&words));
    // The connection goes on: a list is answered behind it.
    std::io::Write::write_all(&mut stream, &option(3, &[])).expect("a socket");
    option_reply(&mut stream).expect("an answer");
    kind
}

#[test]
fn an_export_keeps_out_whom_it_does_not_name_and_its_disk_has_no_other_way_in() {
    let folder = Folder::new();
    fs::write(folder.near("weir.toml"), EXPORTS).expect("a file");
    let mut command = weir(&folder);
    command.args(["serve", "-c", "weir.toml"]);
    let daemon = Daemon::spawn(command);
    let (here, own) = (folder.socket(), folder.near("own.sock"));
    assert_eq!(listed(&here), ["readers", "sdd"]);
    assert_eq!(listed(&own), ["sdb"]);
    let (policy, unknown) = (0x8000_0002, 0x8000_0006);
    for (socket, export, error) in [
        // Not the disk beside its read-only export.
        (&here, "sda", unknown),
        (&here, "sdb", unknown),
        (&here, "sdc", unknown),
        (&here, "others", policy),
        (&own, "readers", unknown),
        (&own, "sdd", unknown),
    ] {
        assert_eq!(refusal(socket, export), error, "{export} at {}", socket.display());
    }
    daemon.wait_for(|line| line.contains("export refused") && line.contains("others"));
    // The default is the first disk's.
    for (socket, export, size) in
        [(&here, "", 1), (&here, "readers", 1), (&own, "", 2), (&own, "sdb", 2), (&here, "sdd", 4)]
    {
        let mut client = Client::connect(socket, export);
        assert_eq!(client.size, size << 20, "{export}");
        let read_only = client.flags & 2 != 0;
        assert_eq!(read_only, size == 1, "{export}");
        let expected = if read_only { 1 } else { 0 };
        assert_eq!(client.write(0, 0, &[1; 512]).expect("an answer"), expected, "{export}");
        client.disconnect().expect("the end");
    }
    daemon.stop();
}

#[test]
fn exports_that_all_name_an_address_need_no_other_and_a_bad_list_is_named_with_its_line() {
    let folder = Folder::new();
    let disk = "[[disk]]\nname = \"sda\"\ntarget = \"ram:1MiB\"\n";
    let export = "[[export]]\nname = \"x\"\ndisk = \"sda\"\n";
    let serve = ["serve", "-c", "weir.toml"];
    for (further, parts) in [
        ("allow = [\"uid:frob\"]", &["weir.toml", "line 7", "allow=uid:frob", "/etc/passwd"][..]),
        ("allow = [\"10.0.0.0/40\"]", &["line 7", "10.0.0.0/40", "0..=32"]),
        ("allow = [\"frob\"]", &["line 7", "allow=frob", "uid:USER, gid:GROUP"]),
        ("allow = []", &["line 7", "allow=[]"]),
        ("listen = [\"unix:x,mode=9\"]", &["line 7", "mode=9", "0..=0777"]),
        ("listen = [\"frob\"]", &["line 7", "\"frob\"", "HOST:PORT"]),
    ] {
        let text = format!("{disk}{export}{further}\n");
        fs::write(folder.near("weir.toml"), text).expect("a file");
        expect_refused(&folder, &serve, parts);
    }
    for (address, parts) in [
        ("unix:x,allow=frob", &["unix:x,allow=frob", "uid:USER"][..]),
        ("unix:x,frob", &["\"frob\"", "mode, owner, group, allow"]),
        ("127.0.0.1:1,mode=0600", &["\"mode\"", "insecure, allow"]),
    ] {
        let words = ["serve", "--disk", "a=ram:1M", "--nbd", address];
        expect_refused(&folder, &words, parts);
    }
    let text = format!("{disk}{export}listen = [\"unix:own.sock\"]\n");
    fs::write(folder.near("weir.toml"), text).expect("a file");
    let mut command = weir(&folder);
    command.args(serve);
    let daemon = Daemon::spawn(command);
    assert_eq!(listed(&folder.near("own.sock")), ["x"]);
    assert!(!folder.near("weir-data/nbd.sock").exists(), "nothing would be served there");
    daemon.stop();
}

#[test]
fn a_folder_that_somebody_else_can_change_chooses_no_disk() {
    let folder = Folder::new();
    let data = folder.near("weir-data");
    let elsewhere = folder.near("elsewhere");
    fs::create_dir(&elsewhere).expect("a folder");
    let refused = |part: &str| {
        expect_refused(&folder, &["serve"], &["weir-data", part]);
        let words = ["compare", "--runtime", "10ms", "--rounds", "3"];
        expect_refused(&folder, &words, &["weir-data", part]);
        assert_eq!(fs::read_dir(&elsewhere).expect("a folder").count(), 0);
    };
    symlink(&elsewhere, &data).expect("a link");
    refused("symbolic link");
    // An image that was not asked for is left out, with a message.
    let named = ["--disk", "sda=ram:1MiB", "--nbd", "unix:nbd.sock"];
    let daemon = Daemon::spawn(behind(&folder, "true", &named));
    daemon.wait_for(|line| line.contains("weir-data") && line.contains("symbolic link"));
    daemon.stop();
    fs::remove_file(&data).expect("ours");
    fs::create_dir(&data).expect("a folder");
    for open in [0o775, 0o757, 0o1777] {
        fs::set_permissions(&data, fs::Permissions::from_mode(open)).expect("a mode");
        refused("others may write in it");
    }
    fs::set_permissions(&data, fs::Permissions::from_mode(0o755)).expect("a mode");
    if geteuid().is_root() {
        std::os::unix::fs::chown(&data, Some(NOBODY), None).expect("root may");
        refused("belongs to user 65534");
        std::os::unix::fs::chown(&data, Some(0), None).expect("root may");
    } else {
        leave_out("only root can give a folder away");
    }
    // A folder of ours with a link in it.
    let image = folder.near("elsewhere/secret");
    fs::write(&image, vec![7; 1 << 20]).expect("a file");
    symlink(&image, data.join("sda.img")).expect("a link");
    expect_refused(&folder, &["serve"], &["weir-data/sda.img", "symbolic link"]);
    fs::remove_file(data.join("sda.img")).expect("ours");
    symlink(elsewhere.join("missing"), data.join("sda.img")).expect("a link");
    let ended = attempt(&folder, &["serve"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(!elsewhere.join("missing").exists());
    // An image named on the command line may be a link.
    let disk = "sda=file:weir-data/link.img";
    symlink(&image, data.join("link.img")).expect("a link");
    Daemon::spawn(behind(&folder, "true", &["--disk", disk, "--nbd", "unix:nbd.sock"])).stop();
    // Rules of another user are no rules.
    fs::create_dir(elsewhere.join("rules.d")).expect("a folder");
    symlink(elsewhere.join("rules.d"), data.join("rules.d")).expect("a link");
    let words = ["serve", "--disk", "sda=ram:1M", "--nbd", "unix:nbd.sock"];
    expect_refused(&folder, &words, &["weir-data/rules.d", "symbolic link"]);
}

#[test]
fn saved_results_and_reports_follow_no_link() {
    let folder = Folder::new();
    let (victim, missing) = (folder.near("victim"), folder.near("missing"));
    fs::write(&victim, "kept").expect("a file");
    symlink(&victim, folder.near("link")).expect("a link");
    symlink(&missing, folder.near("dangling")).expect("a link");
    let bench = ["bench", "--target", "ram:16MiB", "--runtime", "10ms", "--ramp-time", "0s"];
    let saved = [&bench[..], &["--save", "result.json"]].concat();
    told(&folder, &saved);
    let oltp = ["bench", "oltp", "--target", "ram:64MiB", "--redo", "ram:64MiB", "--runtime=10ms"];
    let compare = ["compare", "--target", "ram:16MiB", "--a", "queues=1", "--b", "queues=2"];
    let compare = [&compare[..], &["--runtime", "10ms", "--rounds", "3"]].concat();
    for link in ["link", "dangling"] {
        for words in [
            [&bench[..], &["--save", link]].concat(),
            [&oltp[..], &["--commits", link]].concat(),
            [&compare[..], &["--save", link]].concat(),
            [&compare[..], &["--report", link]].concat(),
            vec!["report", "result.json", "-o", link],
            vec!["report", "result.json", "--markdown", link],
            vec!["report", "result.json", "--csv", link],
        ] {
            expect_refused(&folder, &words, &[link, "symbolic link"]);
        }
    }
    assert_eq!(fs::read(&victim).expect("it is there"), b"kept");
    assert!(!missing.exists());
    // A path that is open already is no link of another user.
    let page = told(&folder, &["report", "result.json", "--markdown", "/dev/stdout"]);
    assert!(page.starts_with('#'), "{page}");
}

#[test]
fn of_daemons_that_start_at_once_one_has_the_sockets_and_keeps_them() {
    for round in 0..10 {
        let folder = Folder::new();
        // Sockets that a killed daemon has left.
        for name in ["nbd.sock", "control.sock"] {
            drop(UnixListener::bind(folder.near(name)).expect("a free path"));
        }
        let start = |index: usize| {
            let mut command = weir(&folder);
            let disk = format!("d{index}=ram:1MiB");
            command.args(["serve", "--disk", &disk, "--nbd", "unix:nbd.sock"]);
            command.args(["--control", "control.sock"]);
            Daemon::spawn_unready(command)
        };
        let mut daemons: Vec<Daemon> = (0..6).map(start).collect();
        // Each is ready, or has ended and says why.
        let ready: Vec<bool> = daemons
            .iter_mut()
            .map(|daemon| {
                let line =
                    daemon.wait_for(|line| line == "weir: ready" || line.contains("is in use"));
                line == "weir: ready"
            })
            .collect();
        let winners: Vec<usize> = (0..6).filter(|index| ready[*index]).collect();
        assert_eq!(winners.len(), 1, "round {round}");
        for (index, daemon) in daemons.iter_mut().enumerate() {
            if !ready[index] {
                assert_eq!(daemon.wait().code(), Some(2), "{}", daemon.said());
            }
        }
        let name = format!("d{}", winners[0]);
        assert_eq!(listed(&folder.socket()), [name.as_str()], "round {round}");
        let disks = told(&folder, &["ls", "block", "--control", "control.sock"]);
        assert_eq!(disks.trim(), format!("{name}/"), "round {round}");
        daemons.swap_remove(winners[0]).stop();
        assert!(!folder.socket().exists() && !folder.near("control.sock").exists());
    }
}

/// A file that stands in the repository.
fn repository(path: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_units_open_no_more_than_the_command_does() {
    let settings = |path: &str, key: &str| {
        let text = repository(path);
        let lines = text.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        lines.map(String::from).collect::<Vec<_>>()
    };
    let (socket, service) = ("contrib/systemd/weir.socket", "contrib/systemd/weir.service");
    assert_eq!(settings(socket, "ListenStream"), ["/run/weir/nbd.sock"]);
    assert_eq!(settings(socket, "SocketMode"), ["0600"]);
    assert_eq!(settings(service, "UMask"), ["0077"]);
}

#[test]
fn a_client_that_is_let_in_by_its_group_is_served() {
    let folder = Folder::new();
    let gid = getegid().as_raw();
    let mut command = weir(&folder);
    command.args(["serve", "--disk", "sda=ram:1MiB", "--nbd"]);
    command.arg(format!("unix:nbd.sock,allow=uid:4294967294,allow=gid:{gid}"));
    let daemon = Daemon::spawn(command);
    assert_eq!(Client::connect(&folder.socket(), "sda").size, 1 << 20);
    daemon.stop();
}

#[test]
#[ignore = "needs nbdinfo, qemu-img"]
fn clients_nobody_here_wrote_are_told_that_an_export_is_not_for_them() {
    let folder = Folder::new();
    fs::write(folder.near("weir.toml"), EXPORTS).expect("a file");
    let mut command = weir(&folder);
    command.args(["serve", "-c", "weir.toml"]);
    let daemon = Daemon::spawn(command);
    let ended = daemon::program::attempt("nbdinfo", &["--size", &folder.uri("others")]);
    assert_ne!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stderr.contains("policy") || ended.stderr.contains("not allowed"), "{ended:?}");
    let ended = daemon::program::attempt("qemu-img", &["info", &folder.uri("others")]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert_eq!(run("nbdinfo", &["--size", &folder.uri("readers")]).trim(), "1048576");
    let list = run("nbdinfo", &["--list", "--json", &folder.uri("")]);
    assert!(list.contains("readers") && !list.contains("others"), "{list}");
    // One that knows no other way than EXPORT_NAME is closed on.
    let mut stream: UnixStream = greeted(&folder.socket()).expect("a greeting");
    std::io::Write::write_all(&mut stream, &option(1, b"others")).expect("a socket");
    assert_eq!(stream.read(&mut [0]).expect("the end"), 0);
    daemon.stop();
}
