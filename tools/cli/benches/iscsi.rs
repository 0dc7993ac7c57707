//! iSCSI over one session on loopback, 4 KiB random reads: weir's initiator, the SCSI mid-layer
//! and the queues above it, against libiscsi's iscsi-perf, at two targets: tgtd's null disk, and
//! an echo target of this bench that answers zeros and costs little.
//!
//! Rounds are interleaved; target and client are pinned apart. The figures that count are the
//! client's CPU time per I/O and ratios within the run. iscsi-perf's CPU time has its start and its
//! login in it, some ms of each round.
//!
//! cargo bench -p weir-cli --bench iscsi [-- --rounds 7 --seconds 2]

#![forbid(unsafe_code)]

#[path = "../../../tests/daemon/outside.rs"]
mod outside;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Program, Stdio};
use std::time::Duration;

use weir_bench::arguments::{Arguments, Parameter, Usage};
use weir_bench::cpu::{CpuTime, pin};
use weir_bench::rounds::{Control, Figure, Needs, machine};
use weir_proto_iscsi::IscsiName;
use weir_proto_iscsi::target::{Asked, Profile, Target};
use weir_proto_iscsi::wire::{Residual, ScsiCommand};

/// The CPUs of the two sides.
const TARGET: usize = 0;
const CLIENT: usize = 1;

const NAME: &str = "iqn.2024-01.test:bench";
/// Bytes of a block, and blocks of the echo target's disk.
const BLOCK: u32 = 512;
const BLOCKS: u64 = 1 << 31;
/// Commands that the echo target takes at a time.
const WINDOW: u32 = 256;

const USAGE: Usage = Usage {
    bench: concat!(env!("CARGO_PKG_NAME"), " --bench ", env!("CARGO_CRATE_NAME")),
    about: "iSCSI over one session, 4 KiB random reads: weir beside iscsi-perf.",
    parameters: &[
        Parameter::number("--rounds", (7, 1), "rounds in which each client meets each target"),
        Parameter::number("--seconds", (2, 1), "of a measurement"),
        Parameter::switch("--echo", "be the echo target that the bench starts"),
    ],
};

fn main() {
    let arguments = Arguments::of_process(&USAGE);
    if arguments.has("--echo") {
        return echo();
    }
    let setup =
        Setup { rounds: arguments.number("--rounds"), seconds: arguments.number("--seconds") };
    bench(&setup);
}

struct Setup {
    rounds: u32,
    seconds: u32,
}

/// A target that runs beside the bench.
struct Served {
    name: &'static str,
    child: Child,
    port: u16,
    depth: u16,
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended by itself; either way it is waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client at a target: I/Os a second, and its CPU ns per I/O.
struct Pair {
    target: usize,
    peer: bool,
    iops: Figure,
    client_ns: Figure,
}

fn bench(setup: &Setup) {
    let folder = std::env::temp_dir().join(format!("weir-bench-iscsi-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let targets: Vec<_> = [start_tgtd(&folder), Some(start_echo())].into_iter().flatten().collect();
    let has_peer = Program::new("iscsi-perf").output().is_ok();
    if !has_peer {
        println!("iscsi-perf is not installed: left out");
    }
    let peers = if has_peer { &[false, true][..] } else { &[false] };
    let both = |target| {
        let pair = move |peer: &bool| {
            let (iops, client_ns) = Default::default();
            Pair { target, peer: *peer, iops, client_ns }
        };
        peers.iter().map(pair)
    };
    let mut pairs: Vec<_> = (0..targets.len()).flat_map(both).collect();
    let mut control = Control::new(Needs::Core(TARGET));
    let _ = pin(CLIENT);
    let pids: Vec<u32> = targets.iter().map(|target| target.child.id()).collect();
    let outcomes = control.rounds(setup.rounds, &pids, |round| {
        let count = pairs.len();
        let order = (0..count).map(|turn| (round as usize + turn) % count);
        let measure = |which: usize| {
            let Pair { target, peer, .. } = pairs[which];
            let target = &targets[target];
            let outcome = if peer { measure_peer } else { measure_weir };
            (which, outcome(target, setup))
        };
        order.map(measure).collect::<Vec<_>>()
    });
    let counted = outcomes.len();
    for (which, (iops, client_ns)) in outcomes.into_iter().flatten() {
        pairs[which].iops.add(iops);
        pairs[which].client_ns.add(client_ns);
    }
    let Setup { seconds, .. } = setup;
    println!("{}", machine());
    println!(
        "4 KiB random reads, one session, {counted} rounds of {seconds} s, {control}; \
         medians (spread)"
    );
    for (at, Served { name, depth, .. }) in targets.iter().enumerate() {
        let of: Vec<_> = pairs.iter().filter(|pair| pair.target == at).collect();
        for Pair { peer, iops, client_ns, .. } in &of {
            let client = if *peer { "iscsi-perf" } else { "weir" };
            println!("{name:6} depth {depth:3} {client:10} IOPS {iops:.0}");
            println!("{:28} CPU ns per I/O {client_ns:.0}", "");
        }
        if let [own, peer] = of[..] {
            let (iops, cpu) = (own.iops.over(&peer.iops), own.client_ns.over(&peer.client_ns));
            println!(
                "{name}: weir has {iops:.2} x the IOPS of iscsi-perf, {cpu:.2} x its CPU time"
            );
        }
    }
    drop(targets);
    std::fs::remove_dir_all(&folder).expect("the folder goes");
}

fn measure_weir(served: &Served, setup: &Setup) -> (f64, f64) {
    let target = format!("iscsi://127.0.0.1:{}/{NAME}/1,scheduler=none", served.port);
    let target = weir::Target::parse(&target).expect("a target");
    let opened = weir::open("client", &target, 1).expect("the target takes us");
    let job = weir_load::Job {
        access: weir_load::Access::Random,
        size: Some(weir_load::Amount::Bytes(64 << 30)),
        depth: served.depth,
        time_based: true,
        ..weir_load::Job::default()
    };
    let runtime = Duration::from_secs(setup.seconds.into());
    let ramp = Duration::from_millis(300);
    let measured = weir_bench::engine::run::one(&job, &opened.device, ramp, runtime);
    let measured = measured.expect("the job runs");
    assert_eq!(measured.failure, None, "{}", served.name);
    let ios = measured.tally.all().ios as f64;
    (ios / measured.wall.as_secs_f64(), measured.cpu.total().as_nanos() as f64 / ios)
}

fn measure_peer(served: &Served, setup: &Setup) -> (f64, f64) {
    let before = CpuTime::of_children();
    let mut command = Program::new("iscsi-perf");
    command.args(["-m", &served.depth.to_string(), "-b", "8"]);
    command.args(["-t", &setup.seconds.to_string(), "-r"]);
    command.arg(format!("iscsi://127.0.0.1:{}/{NAME}/1", served.port));
    let output = command.stdin(Stdio::null()).output().expect("iscsi-perf");
    let cpu = CpuTime::of_children().since(&before).total();
    let said = String::from_utf8_lossy(&output.stdout);
    // Its last word on the rate, behind those that it corrects.
    let rate = said.rsplit_once("iops average ").and_then(|(_, rest)| rest.split(' ').next());
    let rate: f64 = rate.and_then(|rate| rate.parse().ok()).unwrap_or_else(|| panic!("{said}"));
    (rate, cpu.as_nanos() as f64 / (rate * f64::from(setup.seconds)))
}

fn pin_process(pid: u32, cpu: usize) {
    let pid = rustix::process::Pid::from_raw(pid as i32).expect("a child has a number");
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    // A bench that cannot be pinned still measures, only less steadily.
    let _ = rustix::thread::sched_setaffinity(Some(pid), &set);
}

/// A program that stands in a folder that ordinary users do not search.
fn program(name: &str) -> PathBuf {
    let path = Path::new("/usr/sbin").join(name);
    if path.exists() { path } else { PathBuf::from(name) }
}

/// tgtd with a null disk, set for large segments and many commands.
fn start_tgtd(folder: &Path) -> Option<Served> {
    if Program::new(program("tgtd")).arg("--version").output().is_err() {
        println!("tgtd is not installed: left out");
        return None;
    }
    let port = outside::free_port();
    let ipc = folder.join("ipc");
    let mut command = Program::new(program("tgtd"));
    command.env("TGT_IPC_SOCKET", &ipc).args(["-f", "-C", "8"]);
    command.args(["--iscsi", &format!("portal=127.0.0.1:{port}")]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().expect("tgtd");
    pin_process(child.id(), TARGET);
    let mut served = Served { name: "tgtd", child, port, depth: 32 };
    let admin = |arguments: &[&str]| {
        let mut command = Program::new(program("tgtadm"));
        command.env("TGT_IPC_SOCKET", &ipc).args(["-C", "8", "--lld", "iscsi"]).args(arguments);
        command.output().expect("tgtadm").status.success()
    };
    while !admin(&["--op", "show", "--mode", "system"]) {
        assert!(served.child.try_wait().expect("a child").is_none(), "tgtd ended");
    }
    let (target, unit) = (["--mode", "target", "--tid", "1"], ["--mode", "logicalunit"]);
    let mut all = vec![[&["--op", "new"][..], &target, &["-T", NAME]].concat()];
    let null = ["--tid", "1", "--lun", "1", "-b", "x", "--bstype", "null"];
    all.push([&["--op", "new"][..], &unit, &null].concat());
    for (key, value) in [
        ("InitialR2T", "No"),
        ("MaxRecvDataSegmentLength", "262144"),
        ("MaxXmitDataSegmentLength", "262144"),
        ("MaxQueueCmd", "256"),
    ] {
        all.push([&["--op", "update"][..], &target, &["-n", key, "-v", value]].concat());
    }
    all.push([&["--op", "bind"][..], &target, &["-I", "ALL"]].concat());
    all.iter().for_each(|arguments| assert!(admin(arguments), "tgtadm {arguments:?}"));
    Some(served)
}

fn start_echo() -> Served {
    let mut command = Program::new(std::env::current_exe().expect("this bench's own path"));
    command.arg("--echo").stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("this bench");
    pin_process(child.id(), TARGET);
    let mut port = String::new();
    let mut said = child.stdout.take().expect("piped");
    while !port.ends_with('\n') {
        let mut byte = [0];
        said.read_exact(&mut byte).expect("the echo target says its port");
        port.push(char::from(byte[0]));
    }
    Served { name: "echo", child, port: port.trim().parse().expect("a port"), depth: 128 }
}

/// The bound: a target that answers zeros, with no disk behind it. Says its port first.
fn echo() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    println!("{}", listener.local_addr().expect("a port").port());
    for client in listener.incoming().flatten() {
        // Initiators have several sessions; one that goes away ends its own and nothing else.
        std::thread::spawn(|| echo_one(client));
    }
}

fn echo_one(mut client: TcpStream) -> std::io::Result<()> {
    client.set_nodelay(true)?;
    let mut profile = Profile::new(IscsiName::new(NAME).expect("a name"));
    profile.window = WINDOW;
    let mut target = Target::new(profile);
    let (mut input, mut out) = (vec![0; 256 << 10], Vec::new());
    loop {
        let got = client.read(&mut input)?;
        let (mut bytes, mut over) = (&input[..got], got == 0);
        while !over {
            match target.next(&mut bytes, &mut out) {
                Ok(Asked::NeedMore) => break,
                Ok(Asked::Command { command, .. }) => answer(&mut target, &command, &mut out),
                Ok(Asked::LoggedOut) | Err(_) => over = true,
                Ok(_) => {}
            }
        }
        client.write_all(&out)?;
        out.clear();
        if over {
            return Ok(());
        }
    }
}

/// Answers as a small disk of SPC-4 does, as far as initiators ask before they read.
fn answer(target: &mut Target, command: &ScsiCommand, out: &mut Vec<u8>) {
    target.open(WINDOW);
    let (itt, expected, cdb) = (command.itt, command.expected, &command.cdb);
    let last = BLOCKS - 1;
    let data = match (cdb[0], cdb[1], cdb[2]) {
        // READ(10) and READ(16).
        (0x28 | 0x88, ..) => {
            target.data_in_head((itt, 0, 0), expected, Some((0, Residual::None)), out);
            return out.resize(out.len() + expected as usize, 0);
        }
        // TEST UNIT READY, SYNCHRONIZE CACHE.
        (0x00 | 0x35 | 0x91, ..) => Some(Vec::new()),
        // INQUIRY: the pages 00h and 83h, and the standard data.
        (0x12, 1, 0x00) => Some(vec![0, 0, 0, 2, 0x00, 0x83]),
        (0x12, 1, 0x83) => Some(vec![0, 0x83, 0, 12, 1, 3, 0, 8, 0x50, 1, 2, 3, 4, 5, 6, 7]),
        (0x12, 0, _) => {
            Some([&[0, 0, 6, 2, 31, 0, 0, 2], &b"weir    echo            1   "[..]].concat())
        }
        // READ CAPACITY, REPORT LUNS.
        (0x25, ..) => Some([(last as u32).to_be_bytes(), BLOCK.to_be_bytes()].concat()),
        (0x9e, 0x10, _) => Some([&last.to_be_bytes()[..], &BLOCK.to_be_bytes(), &[0; 20]].concat()),
        (0xa0, ..) => Some(vec![0, 0, 0, 8, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]),
        _ => None,
    };
    match data {
        Some(data) if data.is_empty() || !command.read => {
            target.respond(itt, (0, 0), Residual::None, &[], out);
        }
        Some(mut data) => {
            data.truncate(expected as usize);
            let under = expected - data.len() as u32;
            let residual = if under > 0 { Residual::Under(under) } else { Residual::None };
            target.data_in((itt, 0, 0), &data, Some((0, residual)), out);
        }
        None => {
            // ILLEGAL REQUEST, INVALID COMMAND OPERATION CODE.
            let mut sense = [0; 18];
            (sense[0], sense[2], sense[7], sense[12]) = (0x70, 5, 10, 0x20);
            let residual = if expected > 0 { Residual::Under(expected) } else { Residual::None };
            target.respond(itt, (0, 2), residual, &sense, out);
        }
    }
}
