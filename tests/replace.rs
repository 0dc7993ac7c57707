//! `weir serve --replace`: a daemon takes the place of another, under load and when something is in
//! the way.

#![forbid(unsafe_code)]

mod daemon;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use daemon::client::Client;
use daemon::outside::leave_out;
use daemon::program::{Running, nbdkit, program, wait_for_writes};
use daemon::words::{attempt, told};
use daemon::{Daemon, Folder, weir};
use rustix::process::{Signal, geteuid, kill_process};

const CONTROL: &str = "weir-data/control.sock";

/// A daemon of a disk `sda` in a file of 64 MiB, at the folder's socket, with further words.
fn serve(folder: &Folder, further: &[&str]) -> Command {
    let mut command = weir(folder);
    command.args(["serve", "--disk", &folder.file_disk("sda", "64MiB", "")]);
    command.arg("--nbd").arg(format!("unix:{}", folder.socket().display())).args(further);
    command
}

/// The numbers of the files of both sockets: those of other sockets differ.
fn files(folder: &Folder) -> [u64; 2] {
    [folder.socket(), folder.near(CONTROL)].map(|path| fs::metadata(path).expect("a socket").ino())
}

/// Ends the load also when the test fails, which else would wait for it for ever.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A disk that never opens, as the argument of `--disk`, and where its opening is noticed.
fn silent_disk(folder: &Folder) -> (UnixListener, String) {
    let path = folder.near("silent.sock");
    let listener = UnixListener::bind(&path).expect("a free path");
    (listener, format!("sdb=nbd+unix:{}", path.display()))
}

#[track_caller]
fn expect_refused(folder: &Folder, further: &[&str], code: i32, part: &str) {
    let words = [&["serve", "--replace"], further].concat();
    let ended = attempt(folder, &words);
    assert_eq!(ended.code, Some(code), "{words:?}: {}", ended.stderr);
    assert!(ended.stderr.contains(part), "{words:?} does not say {part:?} but {}", ended.stderr);
}

#[test]
#[ignore = "needs fio"]
fn fio_over_a_disk_that_connects_again_sees_no_error_in_three_replacements() {
    if !Path::new("/dev/fuse").exists() || !geteuid().is_root() {
        return leave_out("mounting needs /dev/fuse and root");
    }
    let folder = Folder::new();
    let mut below = Daemon::spawn(serve(&folder, &[]));
    let before = files(&folder);
    let tree = folder.near("tree");
    fs::create_dir_all(&tree).expect("a folder");
    let mut command = weir(&folder);
    let disk = format!("vm=nbd+unix:{}?sda,reconnect=30", folder.socket().display());
    command.args(["serve", "--nbd", "unix:above.sock", "--control", "above.ctl"]);
    command.args(["--disk", &disk, "--tree"]).arg(&tree);
    let mut above = Daemon::spawn(command);
    // No fsync: after a connection was lost, the client cannot know that what was answered before
    // is durable, and its flushes say so.
    let (over, image) = (AtomicBool::new(false), folder.image("sda"));
    let fio = || {
        let mut runs = 0;
        while !over.load(Ordering::Relaxed) {
            let mut fio = program("fio");
            fio.args(["--name=verify", "--ioengine=psync", "--rw=randrw", "--bsrange=512-64k"]);
            fio.args(["--numjobs=2", "--size=6m", "--offset_increment=16m"]);
            fio.args(["--verify=crc32c", "--verify_fatal=1", "--verify_state_save=0"]);
            fio.arg(format!("--randseed={runs}")).arg("--allow_file_create=0");
            fio.arg(format!("--filename={}", tree.join("dev/vm").display()));
            Running::start(fio).succeed();
            runs += 1;
        }
        runs
    };
    std::thread::scope(|scope| {
        let load = scope.spawn(fio);
        let end = Over(&over);
        for round in 0..3 {
            wait_for_writes(&image, 50);
            let next = Daemon::spawn(serve(&folder, &["--replace"]));
            assert_eq!(below.wait().code(), Some(0), "round {round}: {}", below.said());
            assert_eq!(files(&folder), before, "round {round}: the sockets are others");
            below = next;
        }
        wait_for_writes(&image, 50);
        drop(end);
        println!("{} runs of fio", load.join().expect("no error of fio"));
    });
    assert_eq!(told(&folder, &["get", "block/sda/ro"]), "0\n");
    assert_eq!(above.terminate().0.code(), Some(1));
    assert!(above.said().contains("disk vm: the last flush failed"), "{}", above.said());
    below.stop();
    assert!(!folder.socket().exists(), "the last daemon removes the socket it inherited");
}

#[test]
fn every_address_goes_on_in_the_next_daemon_and_an_acknowledged_write_is_there() {
    let folder = Folder::new();
    let further = ["--nbd", "127.0.0.1:0", "--nbd", "unix:wide.sock,mode=0600"];
    let mut first = Daemon::spawn(serve(&folder, &further));
    let mut client = Client::connect(&folder.socket(), "sda");
    assert_eq!(client.write(0, 4096, &[7; 4096]).expect("a reply"), 0);
    let wide = fs::metadata(folder.near("wide.sock")).expect("a socket").ino();
    let before = files(&folder);
    // Another mode of a socket that goes on, and one more address.
    let further = [
        "--replace",
        "--nbd",
        "127.0.0.1:0",
        "--nbd",
        "unix:wide.sock,mode=0660",
        "--nbd",
        "unix:more.sock",
    ];
    let second = Daemon::spawn(serve(&folder, &further));
    assert_eq!(first.wait().code(), Some(0), "{}", first.said());
    assert!(client.read(0, 512).is_err(), "the client of the first one is closed");
    assert_eq!(files(&folder), before);
    let now = fs::metadata(folder.near("wide.sock")).expect("a socket");
    assert_eq!((now.ino(), now.mode() & 0o777), (wide, 0o660));
    for socket in [folder.socket(), folder.near("wide.sock"), folder.near("more.sock")] {
        let mut client = Client::connect(&socket, "sda");
        assert_eq!(client.read(4096, 4096).expect("a reply"), Ok(vec![7; 4096]));
    }
    second.stop();
    let left = fs::read_dir(folder.path()).expect("the folder").map(|entry| entry.expect("it"));
    let left: Vec<_> = left.map(|entry| entry.file_name()).filter(|n| *n != "weir-data").collect();
    assert!(left.is_empty(), "{left:?} are left");
}

#[test]
fn a_daemon_that_cannot_open_its_disks_leaves_the_old_one_serving_as_it_was_started() {
    let folder = Folder::new();
    let put = |image: &str| {
        let text = format!(
            "[nbd]\nlisten = [\"unix:{}\"]\n[[disk]]\nname = \"sda\"\ntarget = \"{image}\"\n",
            folder.socket().display()
        );
        fs::write(folder.near("weir.toml"), text).expect("a configuration");
    };
    put("file:sda.img,size=64MiB");
    let mut command = weir(&folder);
    command.args(["serve", "-c", "weir.toml"]);
    let first = Daemon::spawn(command);
    let before = files(&folder);
    let mut client = Client::connect(&folder.socket(), "sda");
    assert_eq!(client.write(0, 0, &[5; 512]).expect("a reply"), 0);
    // Refused before the first one is asked: its client does not notice.
    put("frob:x");
    expect_refused(&folder, &["-c", "weir.toml"], 2, "frob:x");
    assert_eq!(client.read(0, 512).expect("a reply"), Ok(vec![5; 512]));
    // Refused when it is to be opened: the first one serves again, with what it was started with.
    put("file:nowhere/sda.img");
    expect_refused(&folder, &["-c", "weir.toml"], 2, "nowhere/sda.img");
    first.wait_for_many(2, |line| line == "weir: ready");
    assert_eq!(files(&folder), before);
    let mut client = Client::connect(&folder.socket(), "sda");
    assert_eq!(client.read(0, 512).expect("a reply"), Ok(vec![5; 512]));
    // And then it can be replaced all the same.
    put("file:sda.img");
    let mut command = weir(&folder);
    command.args(["serve", "-c", "weir.toml", "--replace"]);
    let second = Daemon::spawn(command);
    let mut first = first;
    assert_eq!(first.wait().code(), Some(0), "{}", first.said());
    second.stop();
}

#[test]
fn a_disk_of_the_next_start_that_cannot_be_opened_keeps_no_daemon_from_serving_again() {
    let folder = Folder::new();
    let put = |target: &str| {
        let text = format!(
            "[nbd]\nlisten = [\"unix:{}\"]\n[[disk]]\nname = \"sda\"\ntarget = \"{target}\"\n",
            folder.socket().display()
        );
        fs::write(folder.near("weir.toml"), text).expect("a configuration");
    };
    fs::create_dir(folder.near("rules")).expect("a folder");
    put("file:sda.img,size=64MiB");
    let mut command = weir(&folder);
    command.args(["serve", "-c", "weir.toml", "--rules", "rules"]);
    let old = Daemon::spawn(command);
    Client::connect(&folder.socket(), "sda").write(0, 0, &[7; 4096]).expect("a reply");
    put("file:missing/sda.img");
    let said = told(&folder, &["set", "--reload"]);
    assert!(said.contains("needs a restart: disk sda"), "{said}");
    fs::remove_dir(folder.near("rules")).expect("an empty folder");
    fs::create_dir(folder.near("other")).expect("a folder");
    expect_refused(&folder, &["-c", "weir.toml", "--rules", "other"], 2, "missing");
    old.wait_for_many(2, |line| line == "weir: ready");
    assert!(old.said().contains("it serves without rules"), "{}", old.said());
    assert!(old.said().contains("it serves as it was at the start"), "{}", old.said());
    let mut client = Client::connect(&folder.socket(), "sda");
    assert_eq!(client.read(0, 4096).expect("a reply"), Ok(vec![7; 4096]));
    old.stop();
}

#[test]
fn a_daemon_that_dies_half_way_gives_the_place_back_and_the_next_one_in_the_queue_gets_it() {
    let folder = Folder::new();
    let mut first = Daemon::spawn(serve(&folder, &[]));
    let (silent, disk) = silent_disk(&folder);
    let half = Daemon::spawn_unready(serve(&folder, &["--replace", "--disk", &disk]));
    // It opens its disks, so the first one has closed its own.
    let _held = silent.accept().expect("a connection");
    let second = Daemon::spawn_unready(serve(&folder, &["--replace"]));
    half.kill();
    first.wait_for(|line| line.contains("did not take this daemon's place: it serves again"));
    second.wait_for(|line| line == "weir: ready");
    assert_eq!(first.wait().code(), Some(0), "{}", first.said());
    second.stop();
}

#[test]
fn a_signal_ends_a_daemon_that_waits_for_the_next_one() {
    let folder = Folder::new();
    let mut first = Daemon::spawn(serve(&folder, &[]));
    let (silent, disk) = silent_disk(&folder);
    let half = Daemon::spawn_unready(serve(&folder, &["--replace", "--disk", &disk]));
    let _held = silent.accept().expect("a connection");
    assert_eq!(first.terminate().0.code(), Some(0), "{}", first.said());
    half.kill();
}

#[test]
fn a_reload_that_is_asked_for_at_any_moment_of_a_replacement_ends_no_daemon() {
    let folder = Folder::new();
    // It says little: the log of each reload would be more than the test can read.
    let mut first = Daemon::spawn(serve(&folder, &["--quiet"]));
    let process = first.pid();
    let over = AtomicBool::new(false);
    let second = std::thread::scope(|scope| {
        let _over = Over(&over);
        scope.spawn(|| {
            // As dense as they can be: the moment without handlers is short.
            while !over.load(Ordering::Relaxed) {
                kill_process(process, Signal::HUP).expect("a process, or what is left of it");
                std::thread::yield_now();
            }
        });
        for time in 2..6 {
            expect_refused(&folder, &["--disk", "sda=file:nowhere/sda.img"], 2, "nowhere");
            first.wait_for_many(time, |line| line == "weir: ready");
        }
        Daemon::spawn(serve(&folder, &["--replace"]))
    });
    assert_eq!(first.wait().code(), Some(0), "{}", first.said());
    second.stop();
}

#[test]
fn a_daemon_that_is_told_to_stop_while_it_gives_its_place_away_does_not_come_back() {
    let folder = Folder::new();
    let mut first = Daemon::spawn(serve(&folder, &[]));
    // Answers that its client does not read keep it stopping for a while.
    let mut client = Client::connect(&folder.socket(), "sda");
    for megabyte in 0..16 {
        client.send(0, 0, megabyte << 20, 1 << 20, &[]).expect("a connection");
    }
    let disk = ["--replace", "--disk", "sdb=file:nowhere/sdb.img"];
    let mut next = Daemon::spawn_unready(serve(&folder, &disk));
    first.wait_for(|line| line.contains("another daemon takes the place of this one"));
    first.signal(Signal::TERM);
    assert_eq!(first.wait().code(), Some(0), "{}", first.said());
    assert!(!first.said().contains("it serves again"), "{}", first.said());
    assert_eq!(next.wait().code(), Some(2), "{}", next.said());
}

/// Asks for the place of the daemon as a new one does, with these words of itself.
fn apply(folder: &Folder, says: &str) -> (UnixStream, String) {
    let mut stream = UnixStream::connect(folder.near(CONTROL)).expect("a daemon");
    let ask = format!("replace 0 {}\n{says}", says.len());
    stream.write_all(ask.as_bytes()).expect("it listens");
    let mut start = vec![0; 6];
    stream.read_exact(&mut start).expect("an answer");
    let start = String::from_utf8_lossy(&start).into_owned();
    (stream, start)
}

#[test]
fn two_daemons_at_once_and_other_protocols_are_refused_and_harm_no_client() {
    let folder = Folder::new();
    let daemon = Daemon::spawn(serve(&folder, &[]));
    let mut client = Client::connect(&folder.socket(), "sda");
    let (mut stream, start) = apply(&folder, "2 9.9.9");
    let mut rest = String::new();
    // The connection goes on after a refusal, until its client ends it.
    stream.shutdown(std::net::Shutdown::Write).expect("a stream");
    stream.read_to_string(&mut rest).expect("the answer");
    let refused = format!("{start}{rest}");
    assert!(refused.starts_with("EINVAL ") && refused.contains("weir 9.9.9"), "{refused}");
    assert!(refused.contains("by protocol \"2\""), "{refused}");
    let (talking, start) = apply(&folder, "1 0.0.1");
    assert!(start.starts_with("OK "), "{start}");
    let again = folder.file_disk("sda", "64MiB", "");
    expect_refused(&folder, &["--disk", &again], 1, "another daemon is about to take its place");
    drop(talking);
    daemon.wait_for(|line| line.contains("wanted this place, and went"));
    // An export with a client that the new one does not have.
    let other = folder.file_disk("sdb", "1MiB", "");
    expect_refused(&folder, &["--disk", &other], 1, "exports [\"sda\"] have clients");
    assert_eq!(client.read(0, 512).expect("a reply"), Ok(vec![0; 512]));
    daemon.stop();
}

#[test]
fn a_disk_in_memory_and_one_that_is_used_as_a_file_keep_their_daemon() {
    let folder = Folder::new();
    let daemon = Daemon::start(&folder, &["sda=ram:1MiB"]);
    let disk = folder.file_disk("sda", "1MiB", "");
    expect_refused(&folder, &["--disk", &disk], 1, "disk sda is memory of this daemon");
    daemon.stop();
    if !Path::new("/dev/fuse").exists() || !geteuid().is_root() {
        return leave_out("mounting needs /dev/fuse and root");
    }
    let tree = folder.near("tree");
    fs::create_dir_all(&tree).expect("a folder");
    let further = ["--tree", tree.to_str().expect("UTF-8")];
    let mut daemon = Daemon::spawn(serve(&folder, &further));
    let file = fs::File::open(tree.join("dev/sda")).expect("a disk");
    expect_refused(&folder, &["--disk", &disk], 1, "disk sda is used as a file, by process");
    drop(file);
    // Not used, its mount goes and comes again.
    let next = Daemon::spawn(serve(&folder, &["--replace", further[0], further[1]]));
    assert_eq!(daemon.wait().code(), Some(0), "{}", daemon.said());
    assert!(tree.join("dev/sda").exists());
    next.stop();
}

#[test]
fn without_a_daemon_a_replacement_is_a_start() {
    let folder = Folder::new();
    let daemon = Daemon::spawn(serve(&folder, &["--replace"]));
    assert!(daemon.said().contains("to be replaced"), "{}", daemon.said());
    // A socket file that a daemon left behind is none either.
    daemon.kill();
    Daemon::spawn(serve(&folder, &["--replace"])).stop();
}

#[test]
#[ignore = "needs nbdkit"]
fn a_disk_that_hangs_keeps_its_daemon_and_its_clients() {
    let folder = Folder::new();
    let server = nbdkit(&folder, "below.sock", &["memory", "1M"]);
    let mut command = weir(&folder);
    let disk = format!("sda=nbd+unix:{}", server.socket.display());
    command.args(["serve", "--stop-timeout", "1s", "--disk", &disk]);
    command.arg("--nbd").arg(format!("unix:{}", folder.socket().display()));
    let daemon = Daemon::spawn(command);
    let mut client = Client::connect(&folder.socket(), "sda");
    server.signal(Signal::STOP);
    // It is stopped a moment after it was told so, and might answer until then.
    let number = fs::read_to_string(folder.near("below.sock.pid")).expect("its number");
    let threads = format!("/proc/{}/task", number.trim());
    let is_stopped = |thread: fs::DirEntry| {
        let state = fs::read_to_string(thread.path().join("stat")).expect("a thread");
        state.rsplit(") ").next().is_some_and(|state| state.starts_with('T'))
    };
    let all = || fs::read_dir(&threads).expect("its threads").map(|thread| thread.expect("it"));
    while !all().all(is_stopped) {
        std::thread::yield_now();
    }
    client.send(0, 0, 0, 512, &[]).expect("it is received");
    let in_flight = || told(&folder, &["get", "block/sda/inflight"]);
    while in_flight().split_whitespace().all(|count| count == "0") {
        std::thread::yield_now();
    }
    expect_refused(&folder, &["--disk", &disk], 1, "and goes on: disk sda");
    server.signal(Signal::CONT);
    assert_eq!(client.reply().expect("the read is answered"), (1, 0));
    daemon.stop();
    server.stop();
}

#[test]
fn another_user_may_not_replace_a_daemon() {
    if !geteuid().is_root() {
        return leave_out("becoming another user needs root");
    }
    let folder = Folder::new();
    let daemon = Daemon::spawn(serve(&folder, &[]));
    // Even if the socket lets other users in.
    let open = |path: &Path, mode| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        fs::set_permissions(path, mode).expect("a mode");
    };
    open(folder.path(), 0o711);
    open(&folder.near("weir-data"), 0o711);
    open(&folder.near(CONTROL), 0o666);
    let mut python = program("setpriv");
    python.args(["--reuid=65534", "--clear-groups", "/usr/bin/python3", "-c"]);
    python.arg(
        "import socket, sys\n\
         s = socket.socket(socket.AF_UNIX)\n\
         s.connect(sys.argv[1])\n\
         s.sendall(b'replace 0 1\\n1')\n\
         print(s.recv(4096).decode())",
    );
    python.arg(folder.near(CONTROL));
    let said = Running::start(python).succeed().stdout;
    assert!(said.contains("user 65534 may not replace a daemon of user 0"), "{said}");
    daemon.stop();
}
