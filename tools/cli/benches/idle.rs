//! The cost of an idle daemon: CPU time and wake-ups of all its threads while 100 clients are
//! connected, have each read something, and say nothing more; with `--disks`, beside so many unused
//! `null` disks.
//!
//! cargo bench -p weir-cli --bench idle [-- --seconds 60 --connections 100 --disks 1000
//!     --poll adaptive]

#![forbid(unsafe_code)]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Program, Stdio};
use std::time::Duration;

use weir_bench::arguments::{Arguments, Parameter, Usage};
use weir_bench::rounds::machine;
use weir_proto_nbd::client::{Handshake, Requests, Step, Wanted};
use weir_proto_nbd::wire::{Command, Request};

/// CPU time that 60 idle seconds may cost, ms.
const GOAL_MS: f64 = 10.0;

const USAGE: Usage = Usage {
    bench: concat!(env!("CARGO_PKG_NAME"), " --bench ", env!("CARGO_CRATE_NAME")),
    about: "The cost of an idle daemon with connected clients.",
    parameters: &[
        Parameter::number("--seconds", (60, 3), "that it idles"),
        Parameter::number("--connections", (100, 100), "clients that are connected"),
        Parameter::number("--disks", (0, 10), "unused null disks"),
        Parameter::one_of("--poll", &["off", "adaptive", "always"], "how its reactors poll [off]"),
    ],
};

fn main() {
    let arguments = Arguments::of_process(&USAGE);
    let seconds = arguments.number("--seconds");
    let connections = arguments.number("--connections");
    let folder = std::env::temp_dir().join(format!("weir-bench-idle-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for the disk and the socket");
    let disks = arguments.number("--disks");
    let daemon = Daemon::start(&folder, disks, arguments.word("--poll").unwrap_or("off"));
    let clients: Vec<_> = (0..connections).map(|_| connect(&daemon.socket)).collect();
    // Memory is given back a second after the last I/O; that is the end of being busy.
    std::thread::sleep(Duration::from_secs(3));
    let before = daemon.spent();
    std::thread::sleep(Duration::from_secs(u64::from(seconds)));
    let after = daemon.spent();
    let cpu_ms = (after.cpu_ns - before.cpu_ns) as f64 / 1e6;
    let wakes = after.wakes - before.wakes;
    let minute = cpu_ms * 60.0 / f64::from(seconds);
    println!("{}", machine());
    println!(
        "{connections} idle connections, {disks} unused disks, {} KiB resident, {seconds} s: \
         CPU {cpu_ms:.2} ms ({minute:.2} ms a minute, goal {GOAL_MS}), \
         {wakes} wake-ups of {} threads",
        daemon.resident_kib(),
        after.threads
    );
    drop(clients);
    drop(daemon);
    std::fs::remove_dir_all(&folder).expect("the folder goes");
    let (wakes_max, goal_ms) = (u64::from(seconds), GOAL_MS * f64::from(seconds) / 60.0);
    assert!(wakes <= wakes_max, "{wakes} wake-ups in {seconds} s: some timer is faster than 1 s");
    assert!(cpu_ms <= goal_ms, "{cpu_ms} ms of CPU in {seconds} s, goal {goal_ms}");
}

struct Daemon {
    child: Child,
    socket: PathBuf,
}

/// The CPU time and wakes of all threads of the daemon so far.
struct Spent {
    cpu_ns: u64,
    /// Times they went to sleep, and so were woken again or will be.
    wakes: u64,
    threads: usize,
}

impl Daemon {
    fn start(folder: &Path, disks: u32, poll: &str) -> Daemon {
        let socket = folder.join("nbd.sock");
        let mut serve = Program::new(env!("CARGO_BIN_EXE_weir"));
        serve.args(["serve", "--quiet", "--poll", poll]);
        serve.arg("--nbd").arg(format!("unix:{}", socket.display()));
        serve
            .args(["--disk", &format!("sda=file:{},size=64MiB", folder.join("sda.img").display())]);
        for disk in 0..disks {
            serve.args(["--disk", &format!("unused{disk}=null:1GiB")]);
        }
        serve.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = serve.spawn().expect("the daemon starts");
        let daemon = Daemon { child, socket };
        let listens = |_: &i32| {
            std::thread::sleep(Duration::from_millis(25));
            UnixStream::connect(&daemon.socket).is_ok()
        };
        assert!((0..200).any(|n| listens(&n)), "the daemon does not listen");
        daemon
    }

    /// Memory that it has, KiB.
    fn resident_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let status = status.expect("the daemon runs");
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = resident.and_then(|text| text.trim().strip_suffix(" kB"));
        kib.and_then(|text| text.trim().parse().ok()).expect("a size")
    }

    fn spent(&self) -> Spent {
        let tasks = format!("/proc/{}/task", self.child.id());
        let mut spent = Spent { cpu_ns: 0, wakes: 0, threads: 0 };
        for task in std::fs::read_dir(tasks).expect("the daemon runs").flatten() {
            let read = |name| std::fs::read_to_string(task.path().join(name)).expect("a thread");
            // The first field is the time on a CPU, ns (Linux, Documentation/scheduler).
            let schedstat = read("schedstat");
            let cpu = schedstat.split_whitespace().next().expect("a first field");
            spent.cpu_ns += cpu.parse::<u64>().expect("a number");
            let status = read("status");
            let sleeps = status.lines().find_map(|l| l.strip_prefix("voluntary_ctxt_switches:"));
            spent.wakes += sleeps.expect("a count").trim().parse::<u64>().expect("a number");
            spent.threads += 1;
        }
        spent
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended by itself; either way it is waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client that has read one block and has its answer.
fn connect(socket: &Path) -> UnixStream {
    let mut stream = UnixStream::connect(socket).expect("the daemon listens");
    let mut handshake = Handshake::new(Wanted::everything("sda")).expect("a name that fits");
    let (mut out, mut input) = (Vec::new(), vec![0; 64 << 10]);
    let mut held = 0;
    let server = loop {
        let done = handshake.input(&input[..held], &mut out);
        input.copy_within(done.consumed..held, 0);
        held -= done.consumed;
        stream.write_all(&out).expect("the daemon reads");
        out.clear();
        match done.step {
            Step::Ready(server) => break server,
            Step::Failed(why) => panic!("{why}"),
            Step::StartTls => panic!("TLS was not wanted"),
            Step::NeedMore => match stream.read(&mut input[held..]).expect("the daemon answers") {
                0 => panic!("the daemon closed a connection"),
                count => held += count,
            },
        }
    };
    let read = Request::new(Command::READ, 7, 0, 4096);
    Requests::new(server.mode).push(&read, &mut out).expect("a length that fits");
    stream.write_all(&out).expect("the daemon reads");
    // However the answer looks, it holds the data.
    stream.read_exact(&mut input[..4096]).expect("the daemon answers");
    stream
}
