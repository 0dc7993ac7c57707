//! The command as people and supervisors meet it: what it says when it is used badly, what it
//! prints for tools, and every way to be started.

#![forbid(unsafe_code)]

mod daemon;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::process::{Command, Stdio};

use daemon::client::{Client, option, option_reply};
use daemon::outside::mortal;
use daemon::program::{Ended, Running, program, python, run};
use daemon::words::{attempt, expect_refused};
use daemon::{Daemon, Folder, PATIENCE, WEIR, weir};
use serde_json::Value;

#[test]
fn a_disk_that_cannot_be_is_refused_with_its_name_and_what_would_be_right() {
    let folder = Folder::new();
    for (disk, parts) in [
        ("sda", &["\"sda\"", "NAME=TARGET"][..]),
        ("sda=ram:12Q", &["sda", "\"12Q\"", "GiB"]),
        ("sda=ram:1000", &["sda", "1000", "multiple of 512"]),
        ("sda=disk:1M", &["sda", "disk:1M", "ram:SIZE", "nbd+unix:PATH"]),
        ("sda=ram:1M,frob=1", &["sda", "\"frob\"", "valid:", "queue_mode", "nr_requests"]),
        ("sda=ram:1M,latency_us=1", &["sda", "\"latency_us\"", "ram"]),
        ("sda=ram:1M,scheduler=frob", &["sda", "\"frob\"", "valid here: none"]),
        ("sda=ram:1M,scheduler=frob,queue_mode=sq", &["sda", "\"frob\"", "valid here: noop"]),
        ("sda=ram:1M,scheduler=noop", &["sda", "noop", "counterpart here is none"]),
        ("sda=ram:1M,nr_requests=3", &["sda", "nr_requests=3", "4..=2048"]),
        ("sda=ram:1M,queue_mode=sq,queues=2", &["sda", "queues=2", "has 1"]),
        ("sda=ram:1M,spread=round-robin,scheduler=noop", &["sda", "round-robin", "none"]),
        ("sda=ram:1M,nomerges", &["sda", "nomerges", "needs a value"]),
        ("sda=file:missing.img", &["sda", "missing.img", "size="]),
        ("sda=file:/proc,size=1M", &["sda", "/proc", "regular file"]),
        ("sda=file:a.img,io=aio", &["sda", "io=aio", "threads"]),
        ("sda=nbd+unix:/missing.sock", &["sda", "/missing.sock", "No such file"]),
        ("sda=nbd:127.0.0.1:x", &["sda", "\"x\"", "65535"]),
        ("../sda=ram:1M", &["../sda", "letters"]),
    ] {
        expect_refused(&folder, &["serve", "--nbd", "unix:s", "--disk", disk], parts);
    }
    let twice = ["serve", "--nbd", "unix:s", "--disk", "a=ram:1M", "--disk", "a=ram:2M"];
    expect_refused(&folder, &twice, &["\"a\"", "twice"]);
    assert!(!folder.near("a.img").exists() && !folder.near("s").exists());
}

#[test]
fn words_that_mean_nothing_are_refused() {
    let folder = Folder::new();
    for (words, parts) in [
        (&["frob"][..], &["'frob'"][..]),
        (&["serve", "--frob"], &["--frob"]),
        (&["serve", "frob"], &["'frob'"]),
        (&["serve", "--disk"], &["--disk", "value is required"]),
        (&["serve", "--reactors", "0"], &["'0'", "--reactors", "1..=64"]),
        (&["serve", "--reactors", "x"], &["'x'", "--reactors", "1..=64"]),
        (&["serve", "--reactors", "--quiet"], &["'--quiet'", "--reactors", "1..=64"]),
        (&["bench"], &["--target"]),
        (&["bench", "--target", "frob"], &["\"frob\"", "ram:SIZE"]),
    ] {
        expect_refused(&folder, words, parts);
    }
}

#[test]
fn a_value_of_bench_is_refused_with_its_name_and_its_bound() {
    let folder = Folder::new();
    for (words, parts) in [
        (&["--rw", "sideways"][..], &["sideways", "--rw", "randrw"][..]),
        (&["--rwmixread", "101"], &["'101'", "--rwmixread", "0..=100"]),
        (&["--rwmixread", "-1"], &["'-1'", "--rwmixread", "0..=100"]),
        (&["--bs", "4q"], &["4q", "--bs", "GiB"]),
        (&["--bs", "-4k"], &["-4k", "--bs", "GiB"]),
        (&["--bs", "100"], &["bs=100", "512"]),
        (&["--bs", "0"], &["'0'", "--bs", "below 512 bytes"]),
        (&["--bs", "2G"], &["bs=2147483648", "512..=1073741824"]),
        (&["--bs", "99999999999999999999"], &["--bs", "above 9223372036854775807 bytes"]),
        (&["--iodepth", "0"], &["'0'", "--iodepth", "1..=4096"]),
        (&["--iodepth", "4097"], &["'4097'", "--iodepth", "1..=4096"]),
        (&["--numjobs", "0"], &["'0'", "--numjobs", "1..=256"]),
        (&["--numjobs", "257"], &["'257'", "--numjobs", "1..=256"]),
        (
            &["--numjobs", "256", "--iodepth", "4096", "--bs", "1G"],
            &["numjobs=256", "iodepth=4096", "bs=1073741824", "memory"],
        ),
        (&["--size", "0"], &["size=0", "bs=4096"]),
        (&["--size", "2M"], &["size=2097152", "1048576"]),
        (&["--offset", "100"], &["offset=100", "512"]),
        (&["--offset", "1M"], &["offset=1048576", "1048576"]),
        (&["--runtime", "0"], &["'0'", "--runtime", "1ms..=2592000s"]),
        (&["--runtime", "0s"], &["'0s'", "--runtime", "1ms..=2592000s"]),
        (&["--runtime", "-1s"], &["'-1s'", "--runtime", "as in 10s"]),
        (&["--runtime", "1y"], &["1y", "--runtime", "as in 10s"]),
        (&["--runtime", "9999999s"], &["'9999999s'", "--runtime", "2592000s"]),
        (&["--runtime", "99999999999s"], &["--runtime", "above 18446744073 s"]),
        (&["--ramp-time", "9999999s"], &["'9999999s'", "--ramp-time", "0ns..=2592000s"]),
        (&["--fsync", "-1"], &["'-1'", "--fsync", "0..=4294967295"]),
        (&["--fsync", "4294967296"], &["--fsync", "0..=4294967295"]),
        (&["--randseed", "x"], &["'x'", "--randseed", "0..=18446744073709551615"]),
        (&["--json", "x"], &["'x'"]),
    ] {
        let words = [&["bench", "--target", "ram:1M"], words].concat();
        expect_refused(&folder, &words, parts);
    }
    let read_only = ["bench", "--target", "ram:1M,readonly", "--rw", "write"];
    expect_refused(&folder, &read_only, &["write", "read-only"]);
}

#[test]
fn a_value_of_bench_core_is_refused_with_its_name_and_its_bound() {
    let folder = Folder::new();
    for (words, parts) in [
        (&["--scheduler", "frob"][..], &["\"frob\"", "valid here: none"][..]),
        (&["--scheduler", "noop"], &["noop", "none"]),
        (&["--threads", "0"], &["'0'", "--threads", "1..=64"]),
        (&["--threads", "65"], &["'65'", "--threads", "1..=64"]),
        (&["--queues", "0"], &["'0'", "--queues", "1..=64"]),
        (&["--queues", "65"], &["'65'", "--queues", "1..=64"]),
        (&["--queue-mode", "sq", "--queues", "3"], &["queues=3", "1"]),
        (&["--queue-mode", "xq"], &["'xq'", "--queue-mode", "sq, mq"]),
        (&["--queue-mode", "sq", "--spread", "round-robin"], &["spread=round-robin", "sq"]),
        (&["--spread", "x"], &["'x'", "--spread", "round-robin"]),
        (&["--depth", "0"], &["'0'", "--depth", "1..=2048"]),
        (&["--depth", "2049"], &["'2049'", "--depth", "1..=2048"]),
        (&["--batch", "0"], &["'0'", "--batch", "1..=2048"]),
        (&["--batch", "33", "--depth", "32"], &["batch=33", "1..=32"]),
        (&["--runtime", "0"], &["'0'", "--runtime", "1ms..=2592000s"]),
        (&["--randseed", "-1"], &["'-1'", "--randseed", "0..="]),
    ] {
        expect_refused(&folder, &[&["bench", "core"], words].concat(), parts);
    }
    // The default batch is never larger than the depth.
    let told = json(&folder, &["bench", "core", "--json", "--depth", "1", "--runtime", "1ms"]);
    assert_eq!((&told["depth"], &told["batch"]), (&1.into(), &1.into()));
}

#[test]
fn a_configuration_is_refused_with_its_file_and_line() {
    let folder = Folder::new();
    let disk = "[[disk]]\nname = \"sda\"\ntarget = \"ram:1M\"\n";
    for (text, parts) in [
        (format!("{disk}frob = 1\n"), &["weir.toml", "line 4", "`frob`", "`target`"][..]),
        ("[nbd\n".to_owned(), &["weir.toml", "line 1"]),
        ("[nbd]\nlisten = 3\n".to_owned(), &["weir.toml", "line 2"]),
        (format!("{disk}{disk}"), &["weir.toml", "\"sda\"", "twice"]),
        (format!("{disk}[[export]]\nname = \"x\"\ndisk = \"sdb\"\n"), &["\"sdb\"", "disks: sda"]),
        (
            format!("{disk}[[export]]\nname = \"x\"\ndisk = \"sda\"\nlevel = 9\n"),
            &["level=9", "0..=7"],
        ),
        (
            format!("{disk}[[export]]\nname = \"x\"\ndisk = \"sda\"\nlevel = -300\n"),
            &["level=-300", "0..=7"],
        ),
        (
            format!("{disk}[[export]]\nname = \"x\"\ndisk = \"sda\"\n").repeat(2).replacen(
                "[[disk]]\nname = \"sda\"",
                "[[disk]]\nname = \"sdb\"",
                1,
            ),
            &["\"x\"", "twice"],
        ),
        (String::new(), &["no disk"]),
    ] {
        fs::write(folder.near("weir.toml"), text).expect("a file");
        expect_refused(&folder, &["serve", "-c", "weir.toml", "--nbd", "unix:s"], parts);
    }
    expect_refused(&folder, &["serve", "-c", "missing.toml"], &["missing.toml", "No such file"]);
}

#[test]
fn an_address_that_cannot_be_had_is_named() {
    let folder = Folder::new();
    let daemon = Daemon::start(&folder, &["sda=ram:1MiB"]);
    let socket = folder.socket().display().to_string();
    let serve = |address: &str, parts: &[&str]| {
        expect_refused(&folder, &["serve", "--disk", "a=ram:1M", "--nbd", address], parts);
    };
    serve(&format!("unix:{socket}"), &[&socket, "in use"]);
    let port = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = port.local_addr().expect("an address").to_string();
    serve(&address, &[&address, "in use"]);
    serve("frob", &["\"frob\"", "HOST:PORT"]);
    serve("unix:", &["\"unix:\"", "path"]);
    serve("127.0.0.1:99999", &["127.0.0.1:99999", "HOST:PORT"]);
    serve(&format!("unix:/{}", "x".repeat(107)), &["/xxx", "108 bytes", "1..=107"]);
    serve("unix:/missing/socket", &["/missing/socket", "No such file"]);
    // The one that was there first goes on.
    assert!(Client::connect(&folder.socket(), "sda").read(0, 512).expect("an answer").is_ok());
    daemon.stop();
    // And one that ended without a word leaves a socket that is no address in use.
    drop(UnixListener::bind(folder.socket()).expect("a socket"));
    Daemon::start(&folder, &["sda=ram:1MiB"]).stop();
}

#[test]
fn a_file_that_another_daemon_serves_is_refused() {
    let folder = Folder::new();
    let disk = folder.file_disk("sda", "1MiB", "");
    let daemon = Daemon::start(&folder, &[&disk]);
    let image = folder.image("sda").display().to_string();
    let words = ["serve", "--disk", &disk, "--nbd", "unix:other.sock"];
    expect_refused(&folder, &words, &[&image, "in use"]);
    daemon.stop();
}

#[test]
fn every_command_explains_itself_with_an_example_to_paste() {
    let folder = Folder::new();
    for words in [
        &["serve", "--help"][..],
        &["ls", "--help"],
        &["get", "--help"],
        &["set", "--help"],
        &["schedulers", "--help"],
        &["bench", "--help"],
        &["bench", "core", "--help"],
    ] {
        let Ended { code, stdout, .. } = attempt(&folder, words);
        assert_eq!(code, Some(0));
        assert!(stdout.contains("Example: weir "), "weir {words:?}: {stdout}");
    }
    let Ended { code, stdout, .. } = attempt(&folder, &["--version"]);
    assert_eq!((code, stdout.split(' ').next()), (Some(0), Some("weir")));
}

fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<_> = value.as_object().expect("an object").keys().map(|k| &**k).collect();
    keys.sort_unstable();
    keys
}

#[track_caller]
fn json(folder: &Folder, words: &[&str]) -> Value {
    let Ended { code, stdout, stderr } = attempt(folder, words);
    assert_eq!(code, Some(0), "weir {words:?}: {stderr}");
    serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error} in {stdout}"))
}

#[test]
fn bench_core_prints_exactly_the_promised_fields() {
    let folder = Folder::new();
    for mode in ["mq", "sq"] {
        let words = ["bench", "core", "--json", "--runtime", "50ms", "--queue-mode", mode];
        let told = json(&folder, &words);
        let mut promised = [
            "scheduler",
            "queue_mode",
            "threads",
            "queues",
            "depth",
            "batch",
            "ios",
            "iops",
            "ns_per_io",
            "generator_ns_per_io",
            "merges_per_io",
            "allocations_per_io",
            "syscalls_per_io",
        ];
        promised.sort_unstable();
        assert_eq!(keys(&told), promised);
        assert_eq!(told["queue_mode"], mode);
        assert_eq!((&told["depth"], &told["batch"]), (&128.into(), &32.into()));
        assert!(told["ios"].as_u64().expect("a count") > 0);
        // A field that cannot be counted on this machine is null; the others are numbers.
        for field in ["allocations_per_io", "syscalls_per_io"] {
            assert!(told[field].is_null() || told[field].is_f64(), "{field}: {told}");
        }
    }
}

#[test]
fn bench_prints_exactly_the_promised_fields() {
    let folder = Folder::new();
    let words = ["bench", "--json", "--target", "ram:64MiB", "--rw", "randrw"];
    let more = ["--runtime", "100ms", "--ramp-time", "0s", "--iodepth", "8", "--randseed", "7"];
    let told = json(&folder, &[&words[..], &more[..]].concat());
    let mut figures =
        vec!["ios", "bytes", "iops", "bytes_per_s", "latency_ns", "queue_wait_ns", "device_ns"];
    figures.push("unfinished");
    let mut promised = figures.clone();
    promised.push("prepared");
    promised.extend(["weir", "target", "options", "job", "seed", "duration_s", "errors", "cpu"]);
    promised.extend(["groups", "cores", "hard_queues", "percentile_error"]);
    promised.sort_unstable();
    assert_eq!(keys(&told), promised);
    assert_eq!((&told["target"], &told["seed"]), (&"ram:64MiB".into(), &7.into()));
    assert_eq!(told["errors"], 0);
    assert_eq!(keys(&told["cpu"]), ["machine_s", "ns_per_io", "sys_s", "user_s"]);
    figures.extend(["name", "op"]);
    figures.sort_unstable();
    let groups = told["groups"].as_array().expect("groups");
    let ops: Vec<_> = groups.iter().map(|group| &group["op"]).collect();
    assert_eq!(ops, ["read", "write"]);
    for figures_of in groups.iter().chain([&told]) {
        for latency in ["latency_ns", "queue_wait_ns", "device_ns"] {
            let promised = ["max", "mean", "p50", "p90", "p95", "p99", "p999"];
            assert_eq!(keys(&figures_of[latency]), promised);
        }
    }
    groups.iter().for_each(|group| assert_eq!(keys(group), figures));
    let sum: u64 = groups.iter().map(|group| group["ios"].as_u64().expect("a count")).sum();
    assert_eq!(told["ios"], sum);
}

/// `weir serve` behind a shell that hands it standard input as the first passed descriptor.
fn activated(folder: &Folder, listener: UnixListener, pid: &str, further: &str) -> Command {
    let mut command = mortal("/bin/sh");
    let line = format!(
        "export LISTEN_FDS=1 LISTEN_PID={pid}; exec \"$0\" serve --disk sda=ram:1MiB {further} \
         3<&0 </dev/null"
    );
    command.args(["-c", &line]).arg(WEIR).current_dir(folder.path());
    command.stdin(Stdio::from(OwnedFd::from(listener))).stdout(Stdio::null());
    command
}

#[test]
fn a_socket_that_was_passed_in_comes_before_any_address() {
    let folder = Folder::new();
    let listener = UnixListener::bind(folder.near("passed.sock")).expect("a socket");
    let daemon = Daemon::spawn(activated(&folder, listener, "$$", "--nbd unix:told.sock"));
    assert_eq!(Client::connect(&folder.near("passed.sock"), "sda").size, 1 << 20);
    assert!(!folder.near("told.sock").exists(), "it listens where it was told not to");
    daemon.stop();
    // The process that passed the socket owns its name.
    assert!(folder.near("passed.sock").exists());
}

#[test]
fn a_socket_that_was_passed_to_another_process_is_left_alone() {
    let folder = Folder::new();
    let listener = UnixListener::bind(folder.near("passed.sock")).expect("a socket");
    let daemon = Daemon::spawn(activated(&folder, listener, "1", "--nbd unix:told.sock"));
    assert_eq!(Client::connect(&folder.near("told.sock"), "sda").size, 1 << 20);
    daemon.stop();
}

#[test]
#[ignore = "needs nbdinfo, nbdcopy"]
fn clients_that_start_their_own_server_can_start_weir() {
    let folder = Folder::new();
    let weir = env!("CARGO_BIN_EXE_weir");
    let size = run(
        "nbdinfo",
        &["--size", "--", "[", weir, "serve", "--quiet", "--disk", "sda=ram:3MiB", "]"],
    );
    assert_eq!(size.trim(), "3145728");
    let (source, disk) = (folder.image("source"), folder.file_disk("sda", "1MiB", ""));
    daemon::program::Noise::new(9).write_file(&source, 1 << 20);
    let from = source.display().to_string();
    run("nbdcopy", &["--flush", "--", &from, "[", weir, "serve", "--quiet", "--disk", &disk, "]"]);
    let copied = fs::read(folder.image("sda")).expect("the image");
    assert!(copied == fs::read(&source).expect("the source"));
}

#[test]
fn the_supervisor_is_told_of_readiness_and_of_the_end() {
    let folder = Folder::new();
    let supervisor = UnixDatagram::bind(folder.near("notify.sock")).expect("a socket");
    supervisor.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let hear = || {
        let mut bytes = [0; 100];
        let count = supervisor.recv(&mut bytes).expect("word from the daemon");
        String::from_utf8_lossy(&bytes[..count]).into_owned()
    };
    let mut command = weir(&folder);
    command.args(["serve", "--disk", "sda=ram:1MiB", "--nbd", "unix:nbd.sock"]);
    command.env("NOTIFY_SOCKET", folder.near("notify.sock"));
    let daemon = Daemon::spawn_unready(command);
    assert_eq!(hear().trim(), "READY=1");
    // Ready means ready: nothing else is waited for.
    assert_eq!(Client::connect(&folder.socket(), "sda").size, 1 << 20);
    daemon.stop();
    assert_eq!(hear().trim(), "STOPPING=1");
}

/// `weir serve --stdio` on one end of a pair of sockets.
fn on_a_socket(folder: &Folder, disk: &str) -> (Daemon, UnixStream) {
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    ours.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let output = theirs.try_clone().expect("a socket");
    let mut command = weir(folder);
    command.args(["serve", "--stdio", "--disk", disk, "--nbd", "unix:never.sock"]);
    command.stdin(Stdio::from(OwnedFd::from(theirs)));
    command.stdout(Stdio::from(OwnedFd::from(output)));
    (Daemon::spawn(command), ours)
}

#[test]
fn one_connection_is_served_on_standard_input_and_output() {
    let folder = Folder::new();
    let (mut daemon, mut ours) = on_a_socket(&folder, &folder.file_disk("sda", "1MiB", ""));
    let mut greeting = [0; 18];
    ours.read_exact(&mut greeting).expect("a greeting");
    assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
    ours.write_all(&3_u32.to_be_bytes()).expect("a socket");
    ours.write_all(&option(2, &[])).expect("a socket");
    assert_eq!(option_reply(&mut ours).expect("an answer").0, 1);
    assert_eq!(ours.read(&mut [0]).expect("the end"), 0);
    // It ends with its connection, and opened no other address.
    assert_eq!(daemon.wait().code(), Some(0));
    assert!(!folder.near("never.sock").exists() && !folder.near("weir-data").exists());
}

#[test]
fn standard_input_and_output_may_be_pipes() {
    let folder = Folder::new();
    let mut command = weir(&folder);
    command.args(["serve", "--stdio", "--disk", "sda=ram:1MiB"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut daemon = Daemon::spawn(command);
    let mut input = daemon.child().stdin.take().expect("piped");
    let mut output = daemon.child().stdout.take().expect("piped");
    let mut bytes = 3_u32.to_be_bytes().to_vec();
    bytes.extend(option(3, &[]));
    bytes.extend(option(2, &[]));
    input.write_all(&bytes).expect("a pipe");
    drop(input);
    let mut said = Vec::new();
    output.read_to_end(&mut said).expect("a pipe");
    assert!(said.starts_with(b"NBDMAGICIHAVEOPT"), "{said:x?}");
    // The greeting, the disk's name in its list, and two acknowledgements: nothing else.
    assert_eq!(said.len(), 18 + (20 + 4 + 3) + 20 + 20, "{said:x?}");
    assert_eq!(daemon.wait().code(), Some(0));
}

#[test]
fn a_signal_ends_standard_input_and_output_too() {
    let folder = Folder::new();
    let (daemon, ours) = on_a_socket(&folder, "sda=ram:1MiB");
    daemon.stop();
    drop(ours);
}

#[test]
#[ignore = "needs libnbd's Python module"]
fn libnbd_talks_to_standard_input_and_output() {
    let folder = Folder::new();
    let mut command = python("libnbd_stdio.py");
    command.args([env!("CARGO_BIN_EXE_weir"), "serve", "--stdio", "--disk"]);
    command.arg(folder.file_disk("sda", "1MiB", ""));
    assert_eq!(Running::start(command).succeed().stdout.trim(), "served on a socket");
    let image = fs::read(folder.image("sda")).expect("the image");
    assert!(image[4096..8192].iter().all(|byte| *byte == 0x77), "the write is missing");
}

#[test]
fn quiet_says_nothing_but_that_it_is_ready() {
    let folder = Folder::new();
    let mut command = weir(&folder);
    command.args(["serve", "--quiet", "--disk", "sda=ram:1MiB", "--nbd", "unix:nbd.sock"]);
    command.stdout(Stdio::piped());
    let mut daemon = Daemon::spawn(command);
    let mut output = daemon.child().stdout.take().expect("piped");
    drop(Client::connect(&folder.socket(), "sda"));
    assert_eq!(daemon.stop(), "weir: ready");
    let mut said = String::new();
    output.read_to_string(&mut said).expect("a pipe");
    assert_eq!(said, "");
}

#[test]
#[ignore = "needs nbdinfo, qemu-img, fio"]
fn the_default_disk_is_served_and_the_lines_to_paste_work() {
    let folder = Folder::new();
    let mut command = weir(&folder);
    command.arg("serve").stdout(Stdio::piped());
    let mut daemon = Daemon::spawn(command);
    let mut output = daemon.child().stdout.take().expect("piped");
    // The output before it is ready fits into a pipe, and the shell pastes it line by line.
    let mut said = vec![0; 64 << 10];
    let count = output.read(&mut said).expect("what it prints");
    let said = String::from_utf8_lossy(&said[..count]).into_owned();
    for part in ["disk sda: 1 GiB", "unix:weir-data/nbd.sock"] {
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
    let image = fs::metadata(folder.near("weir-data/sda.img")).expect("the image");
    assert_eq!(image.len(), 1 << 30);
    assert_eq!(std::os::unix::fs::MetadataExt::blocks(&image), 0, "the image is not sparse");
    let pasted: Vec<_> = said.lines().filter_map(|line| line.strip_prefix("  ")).collect();
    let pasted: Vec<_> = pasted.iter().filter(|line| line.contains("nbd+unix://")).collect();
    assert_eq!(pasted.len(), 3, "{said}");
    for (line, words) in pasted.into_iter().zip(["size", "virtual size: 1 GiB", "READ:"]) {
        // The last word of an option counts for fio; ten seconds of it show no more than one.
        let shorter = if line.starts_with("fio") { " --runtime=1" } else { "" };
        let mut shell = program("/bin/sh");
        shell.arg("-c").arg(format!("{line}{shorter}")).current_dir(folder.path());
        let ended = Running::start(shell).succeed();
        assert!(ended.stdout.contains(words), "{line}: {ended:?}");
    }
    daemon.stop();
    assert!(!folder.near("weir-data/nbd.sock").exists());
}

#[test]
fn there_is_a_man_page_of_every_command() {
    let folder = Folder::new();
    let page = attempt(&folder, &["man", "serve"]);
    assert_eq!(page.code, Some(0), "{}", page.stderr);
    for part in [".TH weir-serve 1", "\\-\\-disk", ".SH EXAMPLES", "weir serve \\-\\-disk"] {
        assert!(page.stdout.contains(part), "{part} is not in {}", page.stdout);
    }
    fs::create_dir(folder.near("man")).expect("a folder");
    assert_eq!(attempt(&folder, &["man", "--dir", "man"]).code, Some(0));
    let pages = fs::read_dir(folder.near("man")).expect("a folder").count();
    assert!(pages > 10 && folder.near("man/weir-bench-core.1").exists(), "{pages} pages");
    expect_refused(&folder, &["man", "frob"], &["\"frob\"", "serve"]);
    expect_refused(&folder, &["man", "--dir", "missing"], &["\"missing\"", "No such file"]);
}
