//! The driver against servers of other projects: nbdkit and qemu-nbd.

mod support;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpid, pidfd_open, set_child_subreaper, waitpid,
};
use support::outside::{Mortal, kernel_is_asked, leave_out};
use support::program::{nbdkit, nbdkit_tcp, qemu_nbd};
use support::{Folder, HANDED_BACK, Lane, bytes, exercise, flush, hasty, read, write};
use weir_bio::{Bio, Data, Flags, Op, Status};
use weir_driver_nbd::{Address, Nbd, Options};
use weir_proto_nbd::wire::Mode;
use weir_queue::{Driver, Extent};

fn connect(address: &Address, options: Options) -> Nbd {
    Nbd::connect(address.clone(), "", options).expect("a device")
}

fn four() -> Options {
    Options { connections: 4, ..hasty() }
}

/// A connection to nbdkit with these arguments, and its first queue.
fn lane(address: &Address, options: Options) -> (Nbd, Lane) {
    let nbd = connect(address, options);
    let lane = Lane::open(&nbd, 0);
    (nbd, lane)
}

#[test]
fn random_requests_to_nbdkit_s_memory_match_the_model() {
    let Some(server) = nbdkit(&["memory", "8M"]) else { return };
    let nbd = connect(&server.address, hasty());
    assert_eq!((nbd.limits().capacity, nbd.server().mode), (16384, Mode::Structured));
    exercise(&nbd, 1, 4000);
}

#[test]
fn random_requests_over_four_connections_match_the_model() {
    let Some(server) = nbdkit(&["memory", "8M"]) else { return };
    let nbd = connect(&server.address, four());
    assert_eq!(nbd.queues().max, 4);
    exercise(&nbd, 2, 4000);
}

#[test]
fn random_requests_in_simple_mode_match_the_model() {
    let Some(server) = nbdkit(&["--no-sr", "memory", "8M"]) else { return };
    let nbd = connect(&server.address, hasty());
    assert_eq!(nbd.server().mode, Mode::Simple);
    exercise(&nbd, 3, 4000);
}

#[test]
fn random_requests_over_tcp_match_the_model() {
    let Some(server) = nbdkit_tcp(&["memory", "8M"]) else { return };
    exercise(&connect(&server.address, four()), 4, 4000);
}

#[test]
fn random_requests_to_qemu_match_the_model_and_reach_the_file() {
    let Some(server) = qemu_nbd(8 << 20, &[]) else { return };
    let nbd = connect(&server.address, hasty());
    exercise(&nbd, 5, 1500);
    let mut lane = Lane::open(&nbd, 0);
    assert_eq!(lane.status(write(100, 8, 0x77).with(Flags::FUA)), Status::Ok);
    assert_eq!(lane.status(flush()), Status::Ok);
    let image = std::fs::read(server.image()).expect("the image");
    assert!(image[51200..55296].iter().all(|byte| *byte == 0x77));
}

#[test]
fn random_requests_to_qemu_over_four_connections_match_the_model() {
    let Some(server) = qemu_nbd(8 << 20, &["--shared=5"]) else { return };
    let nbd = connect(&server.address, four());
    assert_eq!(nbd.queues().max, 4, "{:?}", nbd.notices());
    exercise(&nbd, 6, 1500);
}

#[test]
fn replies_that_take_their_time_come_back_to_the_right_requests() {
    let filter = ["--filter=delay", "memory", "8M", "rdelay=2ms", "wdelay=1ms"];
    let Some(server) = nbdkit(&filter) else { return };
    exercise(&connect(&server.address, four()), 7, 500);
}

#[test]
fn without_multi_conn_one_connection_is_used_and_a_notice_says_so() {
    let filter = ["--filter=multi-conn", "memory", "1M", "multi-conn-mode=disable"];
    let Some(server) = nbdkit(&filter) else { return };
    let nbd = connect(&server.address, four());
    assert_eq!(nbd.queues().max, 1);
    let notices = nbd.notices();
    assert!(notices[0].contains("connections=4") && notices[0].contains("CAN_MULTI_CONN"));
    let extents = nbd.allocation(0, 2048).unwrap();
    assert_eq!(extents, [Extent { sectors: 2048, hole: false, zero: false }]);
}

#[test]
fn an_error_of_the_server_ends_its_request_and_nothing_else() {
    let errors = [
        ("EPERM", Status::IoErr),
        ("EIO", Status::IoErr),
        ("ENOMEM", Status::IoErr),
        ("EINVAL", Status::Inval),
        ("ENOSPC", Status::NoSpc),
        ("ESHUTDOWN", Status::Transport),
    ];
    for sr in [&["--no-sr"][..], &[]] {
        for (name, status) in errors {
            let error = format!("error={name}");
            let rates = ["error-pread-rate=100%", "error-pwrite-rate=100%"];
            let arguments = [sr, &["--filter=error", "memory", "1M", &error], &rates].concat();
            let Some(server) = nbdkit(&arguments) else { return };
            let (nbd, mut lane) = lane(&server.address, hasty());
            for bio in [read(0, 8), write(0, 8, 1), write(0, 64, 1), read(0, 64)] {
                assert_eq!(lane.status(bio), status, "{name}");
            }
            if name == "ESHUTDOWN" {
                assert!(nbd.notices()[0].contains("shutting down"), "{:?}", nbd.notices());
                continue;
            }
            assert_eq!(lane.status(flush()), Status::Ok);
            assert_eq!(nbd.notices(), Vec::<String>::new());
        }
    }
}

#[test]
fn what_the_server_lacks_is_not_offered_either() {
    let Some(server) = nbdkit(&["--filter=nozero", "memory", "1M"]) else { return };
    let (nbd, mut no_zero) = lane(&server.address, hasty());
    assert_eq!(nbd.limits().max_write_zeroes_sectors, 0);
    let zeroes = || Bio::new(Op::WriteZeroes, 0, 8, Data::None);
    assert_eq!(no_zero.status(zeroes()), Status::NotSupp);
    let Some(server) = nbdkit(&["--filter=fua", "memory", "1M"]) else { return };
    let (nbd, mut no_fua) = lane(&server.address, hasty());
    assert!(!nbd.limits().fua && nbd.limits().volatile_cache);
    assert_eq!(no_fua.status(write(0, 8, 1).with(Flags::FUA)), Status::NotSupp);
    let Some(server) = nbdkit(&["-r", "memory", "1M"]) else { return };
    let nbd = connect(&server.address, hasty());
    assert!(nbd.limits().read_only);
    exercise(&nbd, 8, 200);
    let reader = Options { read_only: true, ..hasty() };
    let Some(server) = nbdkit(&["memory", "1M"]) else { return };
    assert!(connect(&server.address, reader).limits().read_only);
}

#[test]
fn a_fast_zero_is_done_or_refused_without_harm() {
    let Some(server) = nbdkit(&["memory", "1M"]) else { return };
    let (nbd, mut lane) = lane(&server.address, hasty());
    assert!(nbd.limits().fast_write_zeroes);
    assert_eq!(lane.status(write(0, 16, 9)), Status::Ok);
    let fast = Flags::NOFALLBACK | Flags::NOUNMAP;
    let zeroes = Bio::new(Op::WriteZeroes, 0, 8, Data::None).with(fast);
    let expected = match lane.status(zeroes) {
        Status::Ok => 0,
        Status::NotSupp => 9,
        other => panic!("{other:?}"),
    };
    let answer = lane.one(read(0, 16));
    assert!(bytes(&answer.data)[..4096].iter().all(|byte| *byte == expected));
    assert!(bytes(&answer.data)[4096..].iter().all(|byte| *byte == 9));
}

#[test]
fn a_misaligned_request_is_refused_and_the_stream_goes_on() {
    let policy = [
        "--filter=blocksize-policy",
        "memory",
        "8M",
        "blocksize-minimum=4096",
        "blocksize-preferred=65536",
        "blocksize-maximum=1M",
        "blocksize-error-policy=error",
    ];
    let Some(server) = nbdkit(&policy) else { return };
    let nbd = connect(&server.address, hasty());
    let limits = nbd.limits();
    assert_eq!((limits.logical_block_size, limits.physical_block_size), (4096, 65536));
    assert_eq!((limits.io_opt, limits.max_hw_sectors), (65536, 2048));
    {
        let mut lane = Lane::open(&nbd, 0);
        for bio in [read(1, 8), write(1, 8, 1), write(0, 1, 1), write(0, 4096, 1)] {
            assert_eq!(lane.status(bio), Status::Inval);
        }
    }
    exercise(&nbd, 9, 1000);
}

#[test]
fn a_size_of_no_whole_sectors_is_rounded_down_with_a_notice() {
    let Some(server) = nbdkit(&["memory", "1000001"]) else { return };
    let (nbd, mut lane) = lane(&server.address, hasty());
    assert_eq!(nbd.limits().capacity, 1953);
    assert!(nbd.notices()[0].contains("size=1000001"), "{:?}", nbd.notices());
    assert_eq!(lane.status(read(1952, 1)), Status::Ok);
}

#[test]
fn the_allocation_is_what_the_server_reports() {
    for sr in [&["--no-sr"][..], &[]] {
        let arguments = [sr, &["memory", "4M"]].concat();
        let Some(server) = nbdkit(&arguments) else { return };
        let (nbd, mut lane) = lane(&server.address, hasty());
        assert_eq!(lane.status(write(4096, 64, 1)), Status::Ok);
        // nbdkit keeps memory in pages of 32 KiB, that is 64 sectors.
        let extent = |sectors, empty| Extent { sectors, hole: empty, zero: empty };
        let expected = match sr.is_empty() {
            true => vec![extent(4095, true), extent(64, false), extent(101, true)],
            false => vec![extent(4260, false)],
        };
        assert_eq!(nbd.allocation(1, 4260).unwrap(), expected);
        assert_eq!(nbd.allocation(1, 0).unwrap().iter().map(|e| e.sectors).sum::<u64>(), 0);
        assert_eq!(nbd.notices(), Vec::<String>::new());
    }
}

#[test]
fn a_killed_server_ends_every_request_once_and_is_found_again() {
    let slow = ["--filter=delay", "memory", "1M", "rdelay=60", "wdelay=0"];
    let Some(mut server) = nbdkit(&slow) else { return };
    let (nbd, mut lane) = lane(&server.address, hasty());
    assert_eq!(lane.status(write(0, 8, 1)), Status::Ok);
    lane.submit((0..20).map(|sector| read(sector, 8).cookie(sector)).collect());
    server.kill();
    let mut answers = lane.all();
    answers.sort_by_key(|answer| answer.cookie);
    let ended: Vec<_> = answers.iter().map(|answer| (answer.cookie, answer.status)).collect();
    assert_eq!(ended, (0..20).map(|at| (at, Status::Transport)).collect::<Vec<_>>());
    assert_eq!(lane.status(read(0, 8)), Status::Transport);
    let notices = nbd.notices().join("\n");
    assert!(notices.contains("20 requests in flight"), "{notices}");
    // No server listens, then one does.
    lane.pass_time();
    assert_eq!(lane.status(write(0, 8, 2)), Status::Transport);
    server.restart(&["memory", "1M"]);
    lane.pass_time();
    lane.step_until(|| nbd.notices().last().is_some_and(|last| last.ends_with("is back")));
    // The first server kept its memory to itself, and the write was never flushed.
    assert_eq!(lane.status(flush()), Status::IoErr);
    assert_eq!(lane.status(write(0, 8, 3)), Status::Ok);
    let answer = lane.one(read(0, 8));
    assert!(bytes(&answer.data).iter().all(|byte| *byte == 3));
}

#[test]
fn an_error_to_connect_names_server_and_export() {
    let nowhere = Address::Unix("/nonexistent/socket".into());
    let why = Nbd::connect(nowhere, "disk", hasty()).unwrap_err().to_string();
    assert!(why.starts_with("nbd+unix:/nonexistent/socket?disk: connect: "), "{why}");
    let refused = Address::Tcp { host: "127.0.0.1".to_owned(), port: 1 };
    let why = Nbd::connect(refused, "", hasty()).unwrap_err().to_string();
    assert!(why.starts_with("nbd:127.0.0.1:1: connect: "), "{why}");
    let none = Options { connections: 0, ..hasty() };
    let nowhere = Address::Unix("/nonexistent/socket".into());
    let why = Nbd::connect(nowhere, "", none).unwrap_err().to_string();
    assert!(why.contains("connections=0"), "{why}");
    let Some(server) = qemu_nbd(1 << 20, &["-x", "sda"]) else { return };
    let why = Nbd::connect(server.address.clone(), "sdb", hasty()).unwrap_err();
    let why = why.to_string();
    assert!(why.contains("?sdb: ") && why.contains("ERR_UNKNOWN"), "{why}");
    Nbd::connect(server.address.clone(), "sda", hasty()).expect("the right name");
}

#[test]
fn a_server_that_does_not_answer_is_given_up_in_time() {
    // It takes one client at a time: the second one's connection waits in the backlog.
    let Some(server) = nbdkit(&["--filter=noparallel", "memory", "1M", "serialize=connections"])
    else {
        return;
    };
    let _first = connect(&server.address, hasty());
    let hasty = Options { connect_timeout: Duration::from_millis(50), ..hasty() };
    let why = Nbd::connect(server.address.clone(), "", hasty).unwrap_err().to_string();
    assert!(why.contains("the greeting") && why.contains("50ms"), "{why}");
}

/// Tells this program that it is the part of the next test that is killed.
const DOOMED: &str = "WEIR_TEST_DOOMED";

#[test]
fn no_server_outlives_the_test_that_started_it() {
    const NAME: &str = "no_server_outlives_the_test_that_started_it";
    let Some(server) = qemu_nbd(1 << 20, &[]) else { return };
    if std::env::var_os(DOOMED).is_some() {
        println!("\npid {}", server.pid());
        loop {
            std::thread::park();
        }
    }
    let patience = Timespec { tv_sec: 60, tv_nsec: 0 };
    let end = |pid: Pid| pidfd_open(pid, PidfdFlags::empty()).expect("a running server");
    let ended = |end| poll(&mut [PollFd::new(end, PollFlags::IN)], Some(&patience)) == Ok(1);
    // A test that panics.
    let panicked = end(server.pid());
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
        let _server = server;
        panic!("as a test that fails");
    }));
    assert!(panic.is_err() && ended(&panicked));
    // A test that is killed, with all of its program.
    if !kernel_is_asked() {
        return leave_out("there is no setpriv, without which a killed test's servers live on");
    }
    let mut doomed = Command::new(std::env::current_exe().expect("this program"));
    doomed.args(["--exact", NAME, "--nocapture"]).env(DOOMED, "1").stdout(Stdio::piped());
    // A killed server cleans nothing up: its folder is in one of ours.
    let folder = Folder::new();
    doomed.env("TMPDIR", folder.path());
    let mut doomed = Mortal(doomed.spawn().expect("this program once more"));
    let mut said = BufReader::new(doomed.stdout.take().expect("piped")).lines();
    let pid = said.find_map(|line| line.expect("text").strip_prefix("pid ")?.parse().ok());
    let pid = Pid::from_raw(pid.expect("a pid")).expect("above 0");
    // The orphan is inherited, so that it is seen how it ended and nothing is left of it.
    set_child_subreaper(Some(getpid())).expect("a right everybody has");
    let killed = end(pid);
    drop(doomed);
    assert!(ended(&killed));
    let (_, status) = waitpid(Some(pid), WaitOptions::NOHANG).expect("a child").expect("ended");
    assert_eq!(status.terminating_signal(), Some(Signal::KILL.as_raw()));
}

#[test]
fn a_server_that_was_stopped_gets_its_writes_again_and_its_flushes_hold() {
    let servers = [nbdkit(&["memory", "1M"]), qemu_nbd(1 << 20, &["--shared=4"])];
    for server in servers.into_iter().flatten() {
        let (nbd, mut lane) = lane(&server.address, Options::default());
        assert_eq!(lane.status(write(0, 8, 1)), Status::Ok);
        server.pause();
        lane.submit(vec![write(8, 8, 2).cookie(1)]);
        lane.now = lane.now + 1_000;
        lane.submit(vec![write(16, 8, 3).cookie(2)]);
        assert!(lane.reap().is_empty());
        assert_eq!(lane.cancel(lane.now - 1), (0, 1));
        assert!(lane.reap().is_empty(), "the server still has both writes");
        server.go_on();
        let back = lane.all().remove(0);
        assert_eq!((back.cookie, back.status, back.data.len()), (2, HANDED_BACK, 4096));
        lane.pass_until(|| nbd.notices().last().is_some_and(|last| last.ends_with("is back")));
        // The word of the old connection may come behind that.
        lane.step_until_none_is_kept();
        // One that had to wait for the word of the old connection is sent again.
        let end = match lane.status(flush()) {
            HANDED_BACK => lane.status(flush()),
            end => end,
        };
        assert_eq!(end, Status::Ok, "{:?}", nbd.notices());
    }
}
