//! A running daemon's tree, as administrators reach it: `weir ls`, `get` and `set` over the control
//! socket, and `cat` and `echo` under the folder it is mounted at.

#![forbid(unsafe_code)]

mod daemon;

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use daemon::outside::leave_out;
use daemon::program::{Ended, Noise, Running, nbdkit, program, run};
use daemon::words::{attempt, expect_refused, told};
use daemon::{Daemon, Folder, WEIR, has_uring, weir};
use serde_json::Value;
use weir_control::wire::{Ask, Verb, encode_answer, encode_names};
use weir_control::{Errno, Failure, Node};

#[test]
fn a_running_daemon_is_listed_read_and_written() {
    let folder = Folder::new();
    let daemon = Daemon::start(&folder, &["sda=ram:64MiB", "vdb=ram:1MiB,queue_mode=sq"]);
    assert_eq!(told(&folder, &["ls"]), "block/\ncgroup/\nclass/\nmodule/\nnbd/\nproc/\nweir/\n");
    assert_eq!(told(&folder, &["ls", "block"]), "sda/\nvdb/\n");
    assert!(told(&folder, &["ls", "block/sda/queue/"]).contains("\nnr_requests\n"));
    assert_eq!(told(&folder, &["get", "block/sda/size"]), "131072\n");
    assert_eq!(told(&folder, &["get", "block/vdb/weir/queue_mode"]), "sq\n");
    assert_eq!(told(&folder, &["set", "block/sda/queue/nr_requests", "64"]), "");
    assert_eq!(told(&folder, &["get", "block/sda/queue/nr_requests"]), "64\n");
    let Ended { code, stdout, stderr } =
        attempt(&folder, &["set", "block/sda/queue/nr_requests", "1"]);
    assert_eq!((code, stdout.as_str()), (Some(0), ""));
    assert_eq!(stderr, "weir: block/sda/queue/nr_requests is 4 now, not 1\n");
    let same = attempt(&folder, &["set", "block/sda/queue/nr_requests", "64"]);
    assert_eq!((same.code, same.stderr.as_str()), (Some(0), ""));
    let json: Value =
        serde_json::from_str(&told(&folder, &["get", "--json", "block/sda/queue/nr_requests"]))
            .expect("JSON");
    assert_eq!(json["value"], "64");
    let json: Value = serde_json::from_str(&told(&folder, &["ls", "--json"])).expect("JSON");
    assert_eq!((&json[0]["name"], &json[0]["kind"]), (&"block".into(), &"directory".into()));
    let socket = folder.near("weir-data/control.sock");
    assert_eq!(fs::metadata(&socket).expect("a socket").permissions().mode() & 0o777, 0o600);
    daemon.stop();
    assert!(!socket.exists(), "the socket stays behind");
}

#[test]
fn a_shell_offers_the_names_of_schedulers_and_the_paths_of_the_running_daemon() {
    let folder = Folder::new();
    let daemon = Daemon::start(&folder, &["sda=ram:1MiB,scheduler=mq-deadline"]);
    let offered = |typed: &[&str]| {
        let words = format!("weir {}", typed.join(" "));
        let script = format!(
            "source <(COMPLETE=bash weir); COMP_WORDS=({words}); COMP_CWORD={}; \
             _clap_complete_weir weir {:?} ''; echo ${{COMPREPLY[*]}}",
            typed.len(),
            typed.last().expect("a word"),
        );
        let mut shell = program("bash");
        let beside = Path::new(WEIR).parent().expect("a folder").display();
        let path = std::env::var("PATH").unwrap_or_default();
        shell.args(["-c", &script]).current_dir(folder.path());
        shell.env("PATH", format!("{beside}:{path}")).env_remove("WEIR_CONTROL");
        let Ended { code, stdout, stderr } = Running::start(shell).end();
        assert_eq!(code, Some(0), "{words}: {stderr}");
        stdout.trim_end().to_owned()
    };
    assert_eq!(offered(&["schedulers", "mq"]), "mq-deadline");
    assert_eq!(offered(&["get", "blo"]), "block/");
    assert_eq!(
        offered(&["set", "block/sda/queue/iosched/fifo"]),
        "block/sda/queue/iosched/fifo_batch"
    );
    daemon.stop();
    assert_eq!(offered(&["get", "blo"]), "", "nobody runs");
}

#[test]
fn what_a_shell_would_run_is_not_offered_and_a_daemon_s_reason_acts_on_no_terminal() {
    let folder = Folder::new();
    fs::create_dir(folder.near("weir-data")).expect("a folder");
    let socket = folder.near("weir-data/control.sock");
    let listener = UnixListener::bind(socket).expect("a socket");
    // The daemon of another user, who would have a command run.
    let names = ["$(touch x)", "`touch x`", "a;b", "a b", "a\x1b[2J", "sda", "mmc-0:1.x_y+z@!"];
    let names = names.map(|name| (String::from(name), Node::Directory));
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = BufReader::new(client.expect("a client"));
            while let Ok(Some(ask)) = Ask::read(&mut client) {
                let answer = match ask.verb {
                    Verb::List => Ok(encode_names(&names)),
                    _ => Err(Failure::new(Errno::Io, "\x1b[2Jgone")),
                };
                client.get_mut().write_all(&encode_answer(&answer)).expect("a reader");
            }
        }
    });
    for words in ["get block/", "record "] {
        let (before, typed) = words.rsplit_once(' ').expect("two words");
        let script = format!(
            "source <(COMPLETE=bash weir); COMP_WORDS=(weir {before} {typed:?}); COMP_CWORD=2; \
             _clap_complete_weir weir {typed:?} ''; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        );
        let mut shell = program("bash");
        let beside = Path::new(WEIR).parent().expect("a folder").display();
        let path = std::env::var("PATH").unwrap_or_default();
        shell.args(["-c", &script]).current_dir(folder.path());
        shell.env("PATH", format!("{beside}:{path}")).env_remove("WEIR_CONTROL");
        let said = Running::start(shell).succeed().stdout;
        let offered: Vec<&str> = said.lines().filter(|line| !line.starts_with('-')).collect();
        let plain = ["mmc-0:1.x_y+z@!", "sda"].map(|name| match before {
            "get" => format!("{typed}{name}/"),
            _ => name.to_owned(),
        });
        let offered: BTreeSet<_> = offered.into_iter().map(String::from).collect();
        assert_eq!(offered, BTreeSet::from(plain), "{words}");
    }
    expect_refused(&folder, &["get", "block/sda/size"], &["EIO", "\\u{1b}[2Jgone"]);
}

#[test]
fn a_bad_write_names_the_error_and_changes_nothing() {
    let folder = Folder::new();
    let daemon = Daemon::start(&folder, &["sda=ram:64MiB,scheduler=none"]);
    for (path, value, name) in [
        ("block/sda/queue/scheduler", "frob", "EINVAL"),
        ("block/sda/queue/scheduler", "", "EINVAL"),
        ("block/sda/queue/nr_requests", "-1", "EINVAL"),
        ("block/sda/queue/nr_requests", "100000", "EINVAL"),
        ("block/sda/queue/nr_requests", "many", "EINVAL"),
        ("block/sda/queue/nr_requests", &"9".repeat(100_000), "EINVAL"),
        ("block/sda/ro", "1", "EACCES"),
        ("block/sda/size", "1", "EINVAL"),
        ("block/sda/queue", "1", "EISDIR"),
        ("block/sda/queue/frob", "1", "ENOENT"),
        ("block/sdb", "1", "ENOENT"),
        ("block/sda/size/x", "1", "ENOTDIR"),
    ] {
        expect_refused(&folder, &["set", path, value], &[name, path]);
    }
    expect_refused(&folder, &["get", "block/sdb"], &["ENOENT", "sdb"]);
    expect_refused(&folder, &["ls", "block/sda/size"], &["ENOTDIR", "block/sda/size"]);
    expect_refused(&folder, &["set", "block/sda/queue/nomerges"], &["VALUE"]);
    let scheduler = told(&folder, &["get", "block/sda/queue/scheduler"]);
    assert!(scheduler == "none\n" || scheduler.starts_with("[none] "), "{scheduler:?}");
    assert_eq!(told(&folder, &["get", "block/sda/queue/nr_requests"]), "128\n");
    daemon.stop();
}

#[test]
fn the_socket_is_named_by_flag_or_environment_and_else_in_weir_data() {
    let folder = Folder::new();
    let (flagged, named) = (folder.near("flagged.sock"), folder.near("named.sock"));
    let serve = |nbd: &str| {
        let mut command = weir(&folder);
        command.args(["serve", "--disk", "sda=ram:1MiB", "--nbd"]).arg(format!("unix:{nbd}"));
        command
    };
    let mut command = serve("a.sock");
    command.arg("--control").arg(&flagged).env("WEIR_CONTROL", &named);
    let first = Daemon::spawn(command);
    assert!(flagged.exists() && !named.exists(), "the flag comes before the environment");
    let mut command = serve("b.sock");
    command.env("WEIR_CONTROL", &named);
    let second = Daemon::spawn(command);
    assert!(named.exists() && !folder.near("weir-data").exists());
    let mut command = weir(&folder);
    command.args(["get", "block/sda/size"]).env("WEIR_CONTROL", &named);
    assert_eq!(Running::start(command).succeed().stdout, "2048\n");
    let path = flagged.display().to_string();
    assert_eq!(told(&folder, &["get", "--control", &path, "block/sda/size"]), "2048\n");
    expect_refused(
        &folder,
        &["get", "block/sda/size"],
        &["weir-data/control.sock", "No such file"],
    );
    let words = ["serve", "--disk", "a=ram:1M", "--nbd", "unix:c.sock", "--control", &path];
    expect_refused(&folder, &words, &[&path, "in use"]);
    let long = "x".repeat(200);
    let words = ["serve", "--disk", "a=ram:1M", "--nbd", "unix:c.sock", "--control", &long];
    expect_refused(&folder, &words, &[&long, "1..=107"]);
    first.stop();
    second.stop();
}

#[test]
fn a_second_daemon_beside_the_first_serves_without_a_control_socket_and_says_so() {
    let folder = Folder::new();
    let first = Daemon::start(&folder, &["sda=ram:1MiB"]);
    let mut command = weir(&folder);
    command.args(["serve", "--disk", "vdb=ram:1MiB", "--nbd", "unix:other.sock"]);
    let second = Daemon::spawn(command);
    assert!(second.said().contains("control.sock is in use"), "{}", second.said());
    second.stop();
    assert_eq!(told(&folder, &["ls", "block"]), "sda/\n", "the first one still has its socket");
    first.stop();
}

#[test]
fn paths_are_taken_as_people_type_them_on_a_host() {
    let folder = Folder::new();
    let disks = ["sda=ram:1M,queues=1", "sdb=ram:1M,queue_mode=sq", "vdc=ram:1M,queues=1"];
    let daemon = Daemon::start(&folder, &disks);
    let list = "none [mq-deadline] kyber bfq \n";
    for path in [
        "block/sda/queue/scheduler",
        "/sys/block/sda/queue/scheduler",
        "sys/class/block/sda/queue/scheduler",
        "/sys/class/block/v*/queue/scheduler",
    ] {
        assert_eq!(told(&folder, &["get", path]), list, "{path}");
    }
    let typed = "/sys/class/block/sd*/queue/scheduler";
    let both = "/sys/class/block/sda/queue/scheduler: none [mq-deadline] kyber bfq \n\
                /sys/class/block/sdb/queue/scheduler: noop [deadline] cfq \n";
    assert_eq!(told(&folder, &["get", typed]), both);
    let json: Value =
        serde_json::from_str(&told(&folder, &["get", "--json", typed])).expect("JSON");
    assert_eq!(json[1]["path"], "/sys/class/block/sdb/queue/scheduler", "{json}");
    // Where a part of the path is not there, the others are what it matches.
    let tunable = told(&folder, &["get", "block/*/queue/iosched/prio_aging_expire"]);
    assert_eq!(tunable.lines().count(), 2, "{tunable}");
    assert_eq!(told(&folder, &["ls", "/sys/class/block"]), "sda/\nsdb/\nvdc/\n");
    let listed = told(&folder, &["ls", "block/sd[ab]/queue/iosched"]);
    let (first, second) = listed.split_once("\n\n").expect("two folders");
    assert!(first.starts_with("block/sda/queue/iosched:\n"), "{listed}");
    assert!(first.contains("\nprio_aging_expire"), "{listed}");
    assert!(second.starts_with("block/sdb/queue/iosched:\n"), "{listed}");
    assert!(second.contains("\nfifo_batch\n") && !second.contains("prio_"), "{listed}");
    told(&folder, &["set", "/sys/block/*/queue/nr_requests", "64"]);
    let set = told(&folder, &["get", "block/*/queue/nr_requests"]);
    assert_eq!(set.lines().filter(|line| line.ends_with(": 64")).count(), 3, "{set}");
    daemon.stop();
}

#[test]
fn a_pattern_that_one_of_several_refuses_is_done_for_the_others() {
    let folder = Folder::new();
    let disks = ["sda=ram:1M,queues=1", "sdb=ram:1M,queue_mode=sq", "sdc=ram:1M,queues=1"];
    let daemon = Daemon::start(&folder, &disks);
    let ended = attempt(&folder, &["set", "block/sd*/queue/scheduler", "kyber"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("EINVAL") && ended.stderr.contains("block/sdb/"), "{ended:?}");
    assert!(ended.stderr.contains("1 of 3 files refused it; the others have it"), "{ended:?}");
    let all = told(&folder, &["get", "block/sd*/queue/scheduler"]);
    assert_eq!(all.matches("[kyber]").count(), 2, "{all}");
    for (words, part) in [
        (&["get", "/sys/block/nvme*/queue/scheduler"][..], "matches nothing in the tree"),
        (&["set", "block/sd*/queue/none", "1"], "block/sd*/queue/none matches nothing"),
        (&["get", "block/sd*"], "block/sd* matches directories only, no file"),
        (&["set", "block/sdb*/queue/scheduler", "kyber"], "EINVAL"),
        (&["get", "/sys/block/sdz/queue/scheduler"], "ENOENT"),
    ] {
        let ended = attempt(&folder, words);
        assert_eq!(ended.code, Some(2), "{words:?}: {ended:?}");
        assert!(ended.stderr.contains(part), "{words:?}: {ended:?}");
    }
    daemon.stop();
}

#[test]
fn every_scheduler_is_told_with_its_tunables() {
    let folder = Folder::new();
    let text = told(&folder, &["schedulers"]);
    assert!(
        text.contains("none (queue_mode=mq, counterpart noop, compat 6.18 or sles12)"),
        "{text}"
    );
    let json: Value =
        serde_json::from_str(&told(&folder, &["schedulers", "--json"])).expect("JSON");
    let entries = json.as_array().expect("an array");
    for entry in entries {
        let name = entry["name"].as_str().expect("a name");
        let one = told(&folder, &["schedulers", name]);
        for tunable in entry["tunables"].as_array().expect("an array") {
            assert!(one.contains(tunable["name"].as_str().expect("a name")), "{one}");
        }
    }
    expect_refused(&folder, &["schedulers", "frob"], &["\"frob\"", "none", "noop"]);
}

/// A daemon whose tree is mounted, and where; `None` where that cannot be done.
fn mounted(folder: &Folder, disk: &str) -> Option<(Daemon, PathBuf)> {
    mounted_with(folder, disk, &[])
}

/// The same of one that is started with more arguments.
fn mounted_with(folder: &Folder, disk: &str, more: &[&str]) -> Option<(Daemon, PathBuf)> {
    let tree = folder.near("tree");
    fs::create_dir_all(&tree).expect("a folder");
    if !Path::new("/dev/fuse").exists() || !rustix::process::geteuid().is_root() {
        leave_out("mounting needs /dev/fuse and root");
        return None;
    }
    let mut serve = serve_tree(folder, disk, &tree);
    serve.args(more);
    Some((Daemon::spawn(serve), tree))
}

#[test]
fn the_mount_may_stand_in_the_configuration_and_a_change_of_it_needs_a_restart() {
    let folder = Folder::new();
    let put = |text: &str| {
        let disk = "[[disk]]\nname = \"sda\"\ntarget = \"ram:1MiB\"\n";
        fs::write(folder.near("weir.toml"), format!("{text}\n{disk}")).expect("a file");
    };
    put("[fuse]\ntree = \"tree\"\nfrob = 1");
    let refused = ["weir.toml: line 3: unknown field `frob`", "`tree`, `allow_other`, `memory`"];
    expect_refused(&folder, &["serve", "-c", "weir.toml"], &refused);
    put("[fuse]\ntree = \"tree\"");
    let tree = folder.near("tree");
    fs::create_dir_all(&tree).expect("a folder");
    if !Path::new("/dev/fuse").exists() || !rustix::process::geteuid().is_root() {
        return leave_out("mounting needs /dev/fuse and root");
    }
    let mut serve = weir(&folder);
    serve.args(["serve", "-c", "weir.toml", "--nbd", "unix:nbd.sock"]);
    let daemon = Daemon::spawn(serve);
    assert!(tree.join("block/sda/queue/scheduler").exists());
    assert_eq!(told(&folder, &["set", "--reload"]), "nothing to change\n");
    put("[fuse]\ntree = \"other\"");
    let restart =
        "needs a restart: the mount of [fuse] and its memory\nnothing to change while it runs\n";
    assert_eq!(told(&folder, &["set", "--reload"]), restart);
    daemon.stop();
    assert!(!tree.join("block").exists(), "it is unmounted");
}

fn serve_tree(folder: &Folder, disk: &str, tree: &Path) -> std::process::Command {
    let mut command = weir(folder);
    command.args(["serve", "--disk", disk, "--nbd", "unix:tree-nbd.sock", "--tree"]).arg(tree);
    command
}

/// A shell in the folder of the tree. bash, because dash says "I/O error" of every error.
#[track_caller]
fn shell(tree: &Path, script: &str) -> Ended {
    let mut command = program("bash");
    command.arg("-c").arg(script).current_dir(tree);
    Running::start(command).end()
}

#[test]
fn cat_and_echo_do_under_the_mount_what_they_do_in_sysfs() {
    let folder = Folder::new();
    let Some((daemon, tree)) = mounted(&folder, "sda=ram:64MiB,queue_mode=sq,scheduler=noop")
    else {
        return;
    };
    let cat = shell(&tree, "cat block/sda/queue/scheduler");
    assert!(cat.stdout.contains("[noop]"), "{cat:?}");
    let echo = shell(
        &tree,
        "echo noop > block/sda/queue/scheduler && echo 64 > block/sda/queue/nr_requests",
    );
    assert_eq!((echo.code, echo.stderr.as_str()), (Some(0), ""));
    assert_eq!(told(&folder, &["get", "block/sda/queue/nr_requests"]), "64\n");
    for (script, said) in [
        ("echo frob > block/sda/queue/scheduler", "Invalid argument"),
        ("echo > block/sda/queue/scheduler", "Invalid argument"),
        (
            "head -c 1048576 /dev/zero | tr '\\0' 9 > block/sda/queue/nr_requests",
            "Invalid argument",
        ),
        ("echo 1 > block/sda/ro", "Permission denied"),
        ("echo 1 > block/sda/size", "Invalid argument"),
        ("echo 1 > block/sda/queue/frob", "Permission denied"),
        ("cat block/sda/queue/frob", "No such file"),
        ("cat block/sda", "Is a directory"),
        ("chmod 777 block/sda/queue/scheduler", "Operation not permitted"),
        ("rm block/sda/queue/scheduler", "Operation not permitted"),
        ("mkdir block/sdb", "Operation not permitted"),
        ("rmdir block/sda", "Operation not permitted"),
        ("mv block/sda block/sdb", "Operation not permitted"),
    ] {
        let ended = shell(&tree, script);
        assert_ne!(ended.code, Some(0), "{script}");
        assert!(ended.stderr.contains(said), "{script}: {ended:?}");
    }
    assert_eq!(told(&folder, &["get", "block/sda/queue/nr_requests"]), "64\n");
    assert_eq!(
        shell(&tree, "ls block/sda/weir").stdout,
        "durability\nflush_error\nkernel_cmdline\nlast_switch_us\nqueue_mode\nqueues\nspread\n\
         target\nuptime_ms\n"
    );
    let everything = shell(&tree, "find . -type f -exec cat {} + > /dev/null");
    assert_eq!((everything.code, everything.stderr.as_str()), (Some(0), ""));
    let modes = shell(&tree, "stat -c %a block/sda/ro block/sda/queue/scheduler block");
    assert_eq!(modes.stdout, "444\n644\n555\n");
    let stats = shell(&tree, "cat proc/diskstats; dd if=proc/diskstats bs=7 status=none");
    let lines: Vec<&str> = stats.stdout.lines().collect();
    assert!(lines.len() == 2 && lines[0] == lines[1], "read in pieces: {stats:?}");
    assert_eq!(lines[0].split_whitespace().nth(2), Some("sda"));
    daemon.stop();
}

#[test]
fn a_stop_unmounts_the_tree_though_it_is_in_use() {
    let folder = Folder::new();
    let Some((daemon, tree)) = mounted(&folder, "sda=ram:1MiB") else { return };
    let held = fs::File::open(tree.join("block/sda/queue/scheduler")).expect("a file");
    daemon.stop();
    assert_eq!(fs::read_dir(&tree).expect("the folder").count(), 0, "it is still mounted");
    drop(held);
}

#[test]
fn a_folder_that_is_missing_or_busy_is_refused_with_its_name() {
    let folder = Folder::new();
    let missing = folder.near("missing").display().to_string();
    let refuse = |tree: &str, part: &str| {
        let words = ["serve", "--disk", "a=ram:1M", "--nbd", "unix:x.sock", "--tree", tree];
        expect_refused(&folder, &words, &[tree, part]);
    };
    refuse(&missing, "no such folder");
    refuse("/dev/null", "no folder");
    let Some((daemon, tree)) = mounted(&folder, "sda=ram:1MiB") else { return };
    let busy = tree.display().to_string();
    refuse(&busy, "busy");
    assert_eq!(shell(&tree, "cat block/sda/size").stdout, "2048\n", "the first one serves on");
    // One that is killed cannot unmount.
    daemon.kill();
    assert!(fs::metadata(&tree).is_err(), "its mount is not left");
    let next = Daemon::spawn(serve_tree(&folder, "sda=ram:2MiB", &tree));
    assert!(next.said().contains("a daemon that is gone was still there"), "{}", next.said());
    assert_eq!(shell(&tree, "cat block/sda/size").stdout, "4096\n");
    next.stop();
    assert_eq!(fs::read_dir(&tree).expect("the folder").count(), 0, "one is still mounted");
}

/// The contents at an offset of the disk in a test: different in every block and every round.
fn pattern(seed: u64, offset: u64, bytes: usize) -> Vec<u8> {
    let mut block = vec![0; bytes];
    Noise::new(seed ^ offset.rotate_left(17)).fill(&mut block);
    block
}

#[test]
fn a_disk_is_a_file_that_many_read_and_write_at_once() {
    const WRITERS: u64 = 8;
    const ROUNDS: u64 = 24;
    const CHUNK: usize = 192 << 10;
    let folder = Folder::new();
    let Some((daemon, tree)) = mounted(&folder, "sda=ram:64MiB,queues=2") else { return };
    let disk = tree.join("dev/sda");
    assert_eq!(fs::metadata(&disk).expect("a disk").len(), 64 << 20);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let disk = &disk;
            scope.spawn(move || {
                let file = fs::OpenOptions::new().read(true).write(true).open(disk).expect("open");
                for round in 0..ROUNDS {
                    let offset = (round * WRITERS + writer) * CHUNK as u64;
                    let bytes = pattern(writer, offset, CHUNK);
                    file.write_all_at(&bytes, offset).expect("a write");
                    let mut back = vec![0; CHUNK];
                    file.read_exact_at(&mut back, offset).expect("a read");
                    assert!(back == bytes, "writer {writer}, round {round}");
                }
                file.sync_all().expect("a flush");
            });
        }
    });
    let file = fs::OpenOptions::new().read(true).write(true).open(&disk).expect("open");
    for place in 0..WRITERS * ROUNDS {
        let offset = place * CHUNK as u64;
        let mut back = vec![0; CHUNK];
        file.read_exact_at(&mut back, offset).expect("a read");
        assert!(back == pattern(place % WRITERS, offset, CHUNK), "at {offset}");
    }
    let size = 64 << 20;
    let mut bytes = [1; 1000];
    assert_eq!(file.read_at(&mut bytes, size - 100).expect("the last bytes"), 100);
    assert_eq!(file.read_at(&mut bytes, size).expect("the end"), 0);
    let errno = |outcome: std::io::Result<usize>| outcome.expect_err("refused").raw_os_error();
    assert_eq!(errno(file.write_at(&bytes[..512], size)), Some(28), "behind the end");
    drop(file);
    let dd = "dd if=/dev/urandom of=dev/sda bs=64k count=16 status=none";
    assert_eq!(shell(&tree, dd).code, Some(0), "dd truncates, and a disk keeps its length");
    assert_eq!(fs::metadata(&disk).expect("a disk").len(), 64 << 20);
    daemon.stop();
}

#[test]
fn a_disk_open_as_a_file_is_a_client_that_can_be_classed_and_ended() {
    let folder = Folder::new();
    let Some((daemon, tree)) = mounted(&folder, "sda=ram:1MiB,queues=2") else { return };
    let listed = || told(&folder, &["ls", "fuse/sda"]);
    assert_eq!(told(&folder, &["ls", "fuse"]), "memory.current\nmemory.max\nsda/\n");
    assert_eq!(listed(), "");
    let open = || fs::OpenOptions::new().read(true).write(true).open(tree.join("dev/sda"));
    let (first, other) = (open().expect("open"), open().expect("open"));
    let numbers = listed();
    let [number, last] = numbers.lines().collect::<Vec<_>>()[..] else { panic!("{numbers}") };
    let file = |number: &str, name: &str| format!("fuse/sda/{}{name}", number);
    let read = |name: &str| told(&folder, &["get", &file(number, name)]);
    // The kernel tells the thread that opened it.
    let own = format!("pid={}\n", rustix::thread::gettid().as_raw_nonzero());
    assert!(read("address").ends_with(&own), "{}", read("address"));
    first.write_all_at(&[7; 8192], 0).expect("a write");
    assert_eq!((read("ios"), read("bytes")), ("1\n".into(), "8192\n".into()));
    assert_eq!(read("disk"), "sda\n");
    told(&folder, &["set", &file(number, "class"), "idle"]);
    assert_eq!(read("class"), "idle\n");
    assert_eq!(read("background"), "0\n");
    told(&folder, &["set", &file(number, "background"), "1"]);
    assert_eq!(read("background"), "1\n");
    first.write_all_at(&[8; 4096], 0).expect("a write");
    told(&folder, &["set", &file(number, "delete"), "1"]);
    assert_eq!(listed(), format!("{last}\n"));
    let ended = first.read_exact_at(&mut [0; 512], 0).expect_err("it was ended");
    assert_eq!(ended.raw_os_error(), Some(19), "ENODEV");
    let mut bytes = [0; 4096];
    other.read_exact_at(&mut bytes, 0).expect("the other goes on");
    assert_eq!(bytes, [8; 4096]);
    drop(other);
    daemon.stop();
}

#[test]
fn a_disk_of_a_background_export_takes_background_writes_as_a_file_too() {
    let folder = Folder::new();
    let tree = folder.near("tree");
    fs::create_dir_all(&tree).expect("a folder");
    if !Path::new("/dev/fuse").exists() || !rustix::process::geteuid().is_root() {
        return leave_out("mounting needs /dev/fuse and root");
    }
    let disk = |name: &str| format!("[[disk]]\nname = \"{name}\"\ntarget = \"ram:1MiB\"\n");
    let export = "[[export]]\nname = \"a\"\ndisk = \"sda\"\nbackground = true\n";
    let text = format!("[fuse]\ntree = \"tree\"\n{}{}{export}", disk("sda"), disk("sdb"));
    fs::write(folder.near("weir.toml"), text).expect("a file");
    let mut serve = weir(&folder);
    serve.args(["serve", "-c", "weir.toml", "--nbd", "unix:nbd.sock"]);
    let daemon = Daemon::spawn(serve);
    for (disk, background) in [("sda", "1\n"), ("sdb", "0\n")] {
        let file = fs::OpenOptions::new().write(true).open(tree.join("dev").join(disk));
        let file = file.expect("open");
        let number = told(&folder, &["ls", &format!("fuse/{disk}")]);
        let shown = format!("fuse/{disk}/{}background", number.trim_end());
        assert_eq!(told(&folder, &["get", &shown]), background);
        drop(file);
    }
    daemon.stop();
}

#[test]
fn writes_of_a_few_bytes_side_by_side_change_no_other_byte() {
    const WRITERS: usize = 8;
    /// No divisor of a block, so that neighbours share blocks at both ends.
    const PIECE: usize = 111;
    const ROUNDS: usize = 50;
    for disk in
        ["sda=ram:1MiB,queues=2", "sda=ram:1MiB,queue_mode=sq", "sda=ram:1MiB,scheduler=bfq"]
    {
        let folder = Folder::new();
        let Some((daemon, tree)) = mounted(&folder, disk) else { return };
        let disk = tree.join("dev/sda");
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let disk = &disk;
                scope.spawn(move || {
                    let file = fs::OpenOptions::new().write(true).open(disk).expect("open");
                    for round in 0..ROUNDS {
                        let at = (round * WRITERS + writer) * PIECE;
                        let bytes = [writer as u8 + 1; PIECE];
                        assert_eq!(file.write_at(&bytes, at as u64).expect("a write"), PIECE);
                    }
                    file.sync_all().expect("a flush");
                });
            }
        });
        let bytes = fs::read(&disk).expect("the disk");
        let written = WRITERS * ROUNDS * PIECE;
        for (index, piece) in bytes[..written].chunks(PIECE).enumerate() {
            assert_eq!(piece, [(index % WRITERS) as u8 + 1; PIECE], "piece {index}");
        }
        assert!(bytes[written..].iter().all(|byte| *byte == 0), "bytes behind them");
        let file = fs::OpenOptions::new().write(true).open(&disk).expect("open");
        let end = (1 << 20) - 1;
        assert_eq!(file.write_at(&[7; 100], end).expect("a write"), 1, "the last byte");
        assert_eq!(fs::read(&disk).expect("the disk")[end as usize - 1..], [0, 7]);
        drop(file);
        daemon.stop();
    }
}

/// Writes 1 MiB and more at once from memory that begins between two pages, and reads it back.
const UNALIGNED: &str = r#"
import mmap, os, random, sys
fd = os.open(sys.argv[1], os.O_RDWR)
for size in [1 << 20, 3 << 20, (1 << 20) + 4096, (2 << 20) + 777]:
    for odd in [1, 512, 4095]:
        for at in [0, 333]:
            memory = mmap.mmap(-1, size + 4096)
            memory[odd:odd + size] = random.Random(size + odd).randbytes(size)
            view = memoryview(memory)[odd:odd + size]
            assert os.pwrite(fd, view, at) == size, (size, odd, at)
            assert os.pread(fd, size, at) == view.tobytes(), (size, odd, at)
            view.release()
"#;

#[test]
#[ignore = "needs fio, python3"]
fn large_writes_from_memory_between_pages_arrive_whole() {
    let folder = Folder::new();
    for options in ["queues=2", "queue_mode=sq", "scheduler=bfq"] {
        let Some((daemon, tree)) = mounted(&folder, &format!("sda=ram:64MiB,{options}")) else {
            return;
        };
        let disk = tree.join("dev/sda").display().to_string();
        let mut python = program("python3");
        python.args(["-c", UNALIGNED, &disk]);
        Running::start(python).succeed();
        // The last two have the kernel send all parts of a write at once.
        let engines = ["psync", "libaio", "io_uring"];
        for engine in &engines[..if has_uring() { 3 } else { 2 }] {
            for direct in ["--direct=1", "--direct=0"] {
                let engine = format!("--ioengine={engine}");
                let file = format!("--filename={disk}");
                let how = ["--name=large", &file, &engine, direct, "--iomem_align=16"];
                let what = ["--rw=randwrite", "--bsrange=1m-4m", "--size=64m", "--iodepth=8"];
                let check = ["--verify=crc32c", "--randseed=7", "--verify_state_save=0"];
                run("fio", &[&how[..], &what, &check].concat());
            }
        }
        daemon.stop();
    }
}

/// How often each thread whose name begins so has gone to sleep.
fn sleeps(pid: u32, name: &str) -> Vec<u64> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("threads");
    let mut sleeps: Vec<(PathBuf, u64)> = tasks
        .map(|task| task.expect("a thread").path())
        .filter(|task| fs::read_to_string(task.join("comm")).is_ok_and(|it| it.starts_with(name)))
        .map(|task| {
            let status = fs::read_to_string(task.join("status")).expect("a status");
            let line = status.lines().find(|line| line.starts_with("voluntary_ctxt")).expect("it");
            let count = line.rsplit('\t').next().expect("a number").parse().expect("a number");
            (task, count)
        })
        .collect();
    sleeps.sort();
    sleeps.into_iter().map(|(_, count)| count).collect()
}

#[test]
fn a_look_at_the_tree_wakes_no_thread_of_the_disks_and_a_read_of_a_disk_one_reactor_alone() {
    // With a lane on each reactor, and with one on the first.
    for options in ["", ",queues=1"] {
        let folder = Folder::new();
        let disk = format!("sda=ram:1MiB{options}");
        let Some((daemon, tree)) = mounted(&folder, &disk) else { return };
        wakes_of_looks_and_reads(daemon, &tree);
    }
}

/// Has the threads of the disks woken by what is theirs alone.
#[track_caller]
fn wakes_of_looks_and_reads(mut daemon: Daemon, tree: &Path) {
    const LOOKS: u64 = 2000;
    let pid = daemon.child().id();
    let disk = fs::File::open(tree.join("dev/sda")).expect("a disk");
    // How often the threads that the library has for the two mounts slept over some work, and the
    // reactors, the least first.
    let woken = |work: &dyn Fn()| {
        let [library, reactors] = ["fuser-0\n", "weir-reactor"].map(|name| {
            let before = sleeps(pid, name);
            move || {
                let pairs = sleeps(pid, name).into_iter().zip(before);
                let mut woken: Vec<u64> = pairs.map(|(after, before)| after - before).collect();
                woken.sort_unstable();
                woken
            }
        });
        work();
        (library(), reactors())
    };
    // Any thread may go to sleep late after what was asked of it before, wait for a lock of the
    // library, or have work of its own meanwhile. A thread that the work needed would sleep
    // for most of the calls of each round.
    let round = || {
        let looked = woken(&|| {
            for _ in 0..LOOKS {
                fs::metadata(tree.join("block/sda/queue/scheduler")).expect("an attribute");
            }
        });
        let read = woken(&|| {
            for _ in 0..LOOKS {
                disk.read_at(&mut [0; 512], 0).expect("a block");
            }
        });
        println!("{LOOKS} looks: {looked:?}, {LOOKS} reads: {read:?}");
        assert_eq!((looked.0.len(), read.0.len()), (2, 2), "a thread for each mount");
        let (disks, reactors) = (looked.0[0], looked.1.iter().sum::<u64>());
        let others = read.1.iter().rev().skip(1).sum::<u64>();
        disks.max(reactors).max(read.0.iter().sum()).max(others)
    };
    let strays: Vec<u64> = (0..3).map(|_| round()).collect();
    let least = strays.iter().min().expect("three rounds");
    assert!(*least <= LOOKS / 20, "a thread was woken for what is another's: {strays:?}");
    daemon.stop();
}

#[test]
fn many_who_look_at_the_disks_at_once_are_all_answered_beside_those_who_read_them() {
    const THREADS: usize = 800;
    let folder = Folder::new();
    let Some((daemon, tree)) = mounted(&folder, "sda=ram:1MiB") else { return };
    let dev = tree.join("dev");
    let disk = fs::File::open(dev.join("sda")).expect("a disk");
    // More than the way to the library's thread has room for.
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (dev, disk) = (&dev, &disk);
            scope.spawn(move || {
                for _ in 0..12 {
                    match thread % 4 {
                        0 => assert_eq!(fs::read_dir(dev).expect("a listing").count(), 1),
                        1 => assert_eq!(disk.read_at(&mut [0; 512], 512).expect("a block"), 512),
                        2 => drop(fs::File::open(dev.join("sda")).expect("a disk")),
                        _ => {
                            let why = fs::metadata(dev.join("sdb")).expect_err("no such disk");
                            assert_eq!(why.kind(), std::io::ErrorKind::NotFound);
                        }
                    }
                }
            });
        }
    });
    daemon.stop();
}

#[test]
fn large_reads_of_many_wait_for_the_memory_that_a_disk_may_hold() {
    // Each has a MiB asked for at a time.
    const READERS: u64 = 96;
    const LEN: usize = 2 << 20;
    let folder = Folder::new();
    // It takes seconds for all that is read, so that the calls for it gather.
    let disk = "sda=model:nearline-7200,size=64MiB";
    let Some((daemon, tree)) = mounted_with(&folder, disk, &["--tree-memory", "64MiB"]) else {
        return;
    };
    let held = || -> u64 {
        let held = fs::read_to_string(tree.join("fuse/memory.current")).expect("an attribute");
        held.trim().parse().expect("a number")
    };
    let bound = fs::read_to_string(tree.join("fuse/memory.max")).expect("an attribute");
    assert_eq!(bound, format!("{}\n", 64 << 20));
    let path = tree.join("dev/sda");
    let file = fs::OpenOptions::new().read(true).write(true).open(path).expect("open");
    let place = |reader: u64| reader % 32 * LEN as u64;
    (0..32).for_each(|n| file.write_all_at(&pattern(5, place(n), LEN), place(n)).expect("a write"));
    let most = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..READERS)
            .map(|reader| {
                let (file, offset) = (&file, place(reader));
                scope.spawn(move || {
                    let mut bytes = vec![0; LEN];
                    file.read_exact_at(&mut bytes, offset).expect("a read");
                    assert!(bytes == pattern(5, offset, LEN), "reader {reader}");
                })
            })
            .collect();
        let mut most = 0;
        while readers.iter().any(|reader| !reader.is_finished()) {
            most = most.max(held());
        }
        most
    });
    println!("{most} bytes at most");
    // What one disk may have: half of three quarters, and half of the last call.
    assert!(most <= 25 << 20, "{most} bytes are more than was said");
    assert!(most >= 22 << 20, "{most} bytes: nothing had to wait");
    // A share goes back just behind its answer.
    let begun = std::time::Instant::now();
    while held() > 0 {
        assert!(begun.elapsed() < daemon::PATIENCE, "{} bytes are still held", held());
    }
    drop(file);
    daemon.stop();
}

#[test]
fn a_folder_with_thousands_of_disks_is_listed_whole_however_much_is_asked_for_at_once() {
    const DISKS: usize = 2400;
    let folder = Folder::new();
    let name = |n: usize| format!("a-disk-with-a-long-name-{n:06}");
    let disk = |n| format!("[[disk]]\nname = \"{}\"\ntarget = \"null:1MiB,queues=1\"\n", name(n));
    let disks: String = (0..DISKS).map(disk).collect();
    fs::write(folder.near("weir.toml"), disks).expect("a file");
    let Some((daemon, tree)) = mounted_with(&folder, "sda=ram:1MiB", &["-c", "weir.toml"]) else {
        return;
    };
    let mut expected: BTreeSet<String> = (0..DISKS).map(name).collect();
    expected.insert(String::from("sda"));
    let listing = fs::File::open(tree.join("dev")).expect("a folder");
    let mut buffer = vec![std::mem::MaybeUninit::uninit(); 1 << 20];
    let mut entries = rustix::fs::RawDir::new(&listing, &mut buffer);
    let mut listed = Vec::new();
    while let Some(entry) = entries.next() {
        let name = entry.expect("an entry").file_name().to_string_lossy().into_owned();
        listed.extend((!name.starts_with('.')).then_some(name));
    }
    assert_eq!(listed.len(), DISKS + 1, "each once");
    assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), expected);
    daemon.stop();
}

#[test]
fn a_stop_ends_those_who_read_and_write_a_disk_and_keeps_none_waiting() {
    let folder = Folder::new();
    let Some((daemon, tree)) = mounted(&folder, "sda=ram:1MiB") else { return };
    let disk = tree.join("dev/sda");
    let busy = std::sync::Barrier::new(9);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let file = fs::OpenOptions::new().read(true).write(true).open(&disk).expect("open");
            let busy = &busy;
            scope.spawn(move || {
                let go = |_: &u32| match thread % 2 {
                    0 => file.read_at(&mut [0; 4096], 0).is_ok(),
                    _ => file.write_at(&[1; 4096], 4096).is_ok(),
                };
                assert!((0..10).all(|n| go(&n)), "while it runs");
                busy.wait();
                while go(&0) {}
                assert!(!go(&0), "it has ended for good");
            });
        }
        busy.wait();
        daemon.stop();
    });
    assert_eq!(fs::read_dir(&tree).expect("the folder").count(), 0, "it is still mounted");
}

#[test]
fn other_users_look_at_the_tree_only_where_that_was_asked_for() {
    let folder = Folder::new();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("a mode");
    for let_in in [false, true] {
        let tree = folder.near(&format!("tree-{let_in}"));
        fs::create_dir(&tree).expect("a folder");
        if !Path::new("/dev/fuse").exists() || !rustix::process::geteuid().is_root() {
            return leave_out("mounting needs /dev/fuse and root");
        }
        let mut command = serve_tree(&folder, "sda=ram:1MiB", &tree);
        if let_in {
            command.arg("--tree-allow-other");
        }
        let daemon = Daemon::spawn(command);
        let other = |path: &str| {
            let mut cat = program("setpriv");
            cat.args(["--reuid=65534", "--regid=65534", "--clear-groups", "cat"]);
            cat.arg(tree.join(path));
            Running::start(cat).end().code == Some(0)
        };
        assert_eq!(other("block/sda/size"), let_in);
        assert!(!other("dev/sda"), "a disk is its owner's");
        assert_eq!(shell(&tree, "cat block/sda/size").stdout, "2048\n");
        daemon.stop();
    }
}

#[test]
fn a_disk_that_may_only_be_read_is_not_opened_to_write() {
    let folder = Folder::new();
    let Some((daemon, tree)) = mounted(&folder, "sda=ram:1MiB,readonly") else { return };
    let open = fs::OpenOptions::new().write(true).open(tree.join("dev/sda"));
    assert_eq!(open.expect_err("read-only").raw_os_error(), Some(30));
    assert_eq!(fs::read(tree.join("dev/sda")).expect("zeros"), vec![0; 1 << 20]);
    assert_eq!(shell(&tree, "ls dev; stat -c %a dev/sda").stdout, "sda\n400\n");
    daemon.stop();
}

/// A file system on a loop device on the disk, while requests and parts of the disk change.
const FILE_SYSTEM: &str = r#"
set -e
device=$(losetup --find --show --direct-io=$1 $2/dev/sda)
trap 'umount $3 2>/dev/null || true; losetup --detach $device' EXIT
mkfs.ext4 -q $device
mount $device $3
mkdir $3/data
for round in 1 2 3 4; do
    for file in 1 2 3 4; do
        dd if=/dev/urandom of=$3/data/$round-$file bs=1M count=2 status=none &
    done
    for value in 16 2 0; do
        echo 64 > $2/block/sda/queue/nr_requests
        echo $value > $2/block/sda/queue/nomerges
        echo 128 > $2/block/sda/queue/nr_requests
    done
    wait
done
(cd $3/data && sha256sum *) > $4
sync
umount $3
mount $device $3
(cd $3/data && sha256sum --quiet -c $4)
umount $3
e2fsck -f -n $device
"#;

#[test]
#[ignore = "needs losetup, mkfs.ext4, e2fsck, mount"]
fn a_file_system_on_a_loop_device_on_the_disk_is_whole() {
    for direct in ["on", "off"] {
        let folder = Folder::new();
        let disk = folder.file_disk("sda", "256MiB", "");
        let Some((daemon, tree)) = mounted(&folder, &disk) else { return };
        let (sums, mount) = (folder.near("sums"), folder.near("mnt"));
        fs::create_dir(&mount).expect("a folder");
        let mut command = program("bash");
        command.args(["-c", FILE_SYSTEM, "bash", direct]).args([&tree, &mount, &sums]);
        Running::start(command).succeed();
        daemon.stop();
        run("e2fsck", &["-f", "-n", &folder.image("sda").display().to_string()]);
    }
}

#[test]
#[ignore = "needs nbdkit"]
fn what_is_to_be_durable_on_a_disk_as_a_file_is_made_durable_below_it() {
    let folder = Folder::new();
    let log = folder.image("calls");
    let logfile = format!("logfile={}", log.display());
    let below = nbdkit(&folder, "below.sock", &["--filter=log", "memory", "1M", &logfile]);
    let disk = format!("sda=nbd+unix:{}", below.socket.display());
    let Some((daemon, tree)) = mounted(&folder, &disk) else { return };
    let open = |flags: i32| {
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).custom_flags(flags).open(tree.join("dev/sda")).expect("open")
    };
    let told = |what: &[&str]| {
        let log = fs::read_to_string(&log).expect("a log");
        log.lines().filter(|line| what.iter().all(|what| line.contains(what))).count()
    };
    let durable = || told(&[" Write ", "fua=1"]);
    let flushes = || told(&[" Flush "]);
    let file = open(0);
    file.write_all_at(&[1; 4096], 0).expect("a write");
    assert_eq!((durable(), flushes()), (0, 0), "neither was asked for");
    file.sync_data().expect("a flush");
    assert_eq!((durable(), flushes()), (0, 1));
    let file = open(rustix::fs::OFlags::DSYNC.bits() as i32);
    file.write_all_at(&[2; 4096], 4096).expect("a write");
    assert_eq!((durable(), flushes()), (1, 1));
    daemon.stop();
}

/// strace, which has each `read` of threads of the daemon fail from now on; `more` says which.
fn fail_reads(threads: &[String], more: &[&str]) -> std::process::Child {
    let mut strace = program("strace");
    strace.args(["-e", "trace=read", "-e", "inject=read:error=EIO", "-o", "/dev/null"]);
    strace.args(more).args(threads.iter().flat_map(|thread| ["-p", thread]));
    let mut strace = strace.stderr(Stdio::piped()).spawn().expect("strace");
    let mut stderr = BufReader::new(strace.stderr.take().expect("piped"));
    for _ in threads {
        let mut attached = String::new();
        stderr.read_line(&mut attached).expect("a line");
        assert!(attached.contains("attached"), "{attached}");
    }
    strace
}

/// The threads of the daemon whose name begins so, the youngest last.
fn threads_of(pid: u32, name: &str) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("threads");
    let tasks = tasks.map(|task| task.expect("a thread").path());
    let named = |task: &PathBuf| {
        fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.starts_with(name))
    };
    let number = |task: PathBuf| task.file_name().map(|n| n.to_string_lossy().into_owned());
    let mut threads: Vec<String> = tasks.filter(named).filter_map(number).collect();
    threads.sort_by_key(|thread| thread.parse::<u32>().ok());
    threads
}

#[test]
#[ignore = "needs strace"]
fn those_who_look_a_disk_up_are_told_when_the_thread_for_that_has_ended() {
    let folder = Folder::new();
    let Some((mut daemon, tree)) = mounted(&folder, "sda=ram:1MiB") else { return };
    let disk = fs::File::open(tree.join("dev/sda")).expect("a disk");
    // The younger one is that of the disks.
    let library = threads_of(daemon.child().id(), "fuser-0");
    let mut strace = fail_reads(&library[1..], &[]);
    // The read that it is in may be its last.
    let missing = |name: &str| fs::metadata(tree.join("dev").join(name)).expect_err("no disk");
    let first = missing("none").raw_os_error();
    assert!(matches!(first, Some(2 | 5)), "{first:?}");
    // One that comes while the thread ends, and one behind it.
    assert_eq!(missing("next").raw_os_error(), Some(5));
    assert_eq!(missing("last").raw_os_error(), Some(5));
    disk.read_at(&mut [0; 512], 0).expect("an open disk goes on");
    drop(disk);
    daemon.stop();
    // What it looked at has ended.
    strace.wait().expect("strace");
}

#[test]
#[ignore = "needs strace"]
fn those_who_use_a_disk_as_a_file_are_told_when_no_call_can_be_heard_any_more() {
    let folder = Folder::new();
    let Some((mut daemon, tree)) = mounted(&folder, "sda=ram:1MiB") else { return };
    let disk = fs::File::open(tree.join("dev/sda")).expect("a disk");
    let reactors = threads_of(daemon.child().id(), "weir-reactor");
    let mut strace = fail_reads(&reactors, &["-P", "/dev/fuse"]);
    disk.read_at(&mut [0; 512], 0).expect_err("the disks are not mounted any more");
    fs::read_dir(&tree).expect("the tree goes on");
    drop(disk);
    daemon.stop();
    strace.wait().expect("strace");
}
