//! `nbdcopy` of a whole `file:` disk with four connections, out of it and into it, or random reads
//! of 4 KiB over one connection, against qemu-storage-daemon on the same file, both past the page
//! page cache.
//!
//! Rounds are interleaved. Each server is started for each figure, as the file is locked, and its
//! work begins when it listens. What is copied in comes from the page cache, and what is copied out
//! goes nowhere, so that the disk and the CPUs bound a copy. Reads are those of `weir bench`.
//!
//! cargo bench -p weir-cli --bench copy [-- --rounds 9 --mib 1024 --folder DIR]
//! cargo bench -p weir-cli --bench copy -- --reads
//! cargo bench -p weir-cli --bench copy -- --before PROGRAM    another version of weir beside

#![forbid(unsafe_code)]

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Program, Stdio};
use std::time::{Duration, Instant};

use weir_bench::arguments::{Arguments, Parameter, Usage};
use weir_bench::cpu::CpuTime;
use weir_bench::rounds::{Control, Figure, Needs, machine};
use weir_bio::Prng;

const WEIR: &str = env!("CARGO_BIN_EXE_weir");

/// A server, by the program that is started; weir is started otherwise than QEMU's.
struct Server {
    name: &'static str,
    program: String,
    /// Of each work.
    sides: Vec<Side>,
}

/// What a server is asked for.
#[derive(Clone, Copy)]
enum Work {
    /// The disk is copied out.
    Out,
    /// A file is copied into the disk.
    Into,
    /// Random reads with so many under way, for a second.
    Reads(u16),
}

const COPIES: &[Work] = &[Work::Out, Work::Into];
const READS: &[Work] = &[Work::Reads(1), Work::Reads(8), Work::Reads(32)];

/// Figures of one work: MiB a second and ms of CPU, or I/Os a second and us of CPU for each.
#[derive(Default)]
struct Side {
    rate: Figure,
    cpu: Figure,
}

/// The files of a run.
struct Places {
    folder: PathBuf,
    disk: PathBuf,
    source: PathBuf,
    mib: u32,
}

const USAGE: Usage = Usage {
    bench: concat!(env!("CARGO_PKG_NAME"), " --bench ", env!("CARGO_CRATE_NAME")),
    about: "nbdcopy out of a file: disk and into it: weir beside qemu-storage-daemon.",
    parameters: &[
        Parameter::number("--rounds", (9, 1), "rounds in which each server is copied from and to"),
        Parameter::number("--mib", (1024, 16), "MiB of the disk"),
        Parameter::switch("--reads", "random reads of 4 KiB in place of copies"),
        Parameter::word("--before", "PROGRAM", "another version of weir beside"),
        Parameter::word("--folder", "DIR", "where its files lie [the folder of the build]"),
    ],
};

fn main() {
    let arguments = Arguments::of_process(&USAGE);
    let is_there = |name: &str| Program::new(name).arg("--version").output().is_ok();
    let works = if arguments.has("--reads") { READS } else { COPIES };
    if !arguments.has("--reads") && !is_there("nbdcopy") {
        println!("nbdcopy is not installed: nothing is measured");
        return;
    }
    let (rounds, mib) = (arguments.number("--rounds"), arguments.number("--mib"));
    let folder = arguments
        .word("--folder")
        .map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from)
        .join(format!("weir-bench-copy-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder for files and sockets");
    let (disk, source) = (folder.join("disk.img"), folder.join("source.img"));
    let mut bytes = vec![0; 1 << 20];
    Prng::new(1).fill(&mut bytes);
    let bytes = bytes.repeat(mib as usize);
    for file in [&disk, &source] {
        fs::write(file, &bytes).expect("room for two files");
    }
    drop(bytes);
    let server = |name, program: &str| Server {
        name,
        program: program.into(),
        sides: works.iter().map(|_| Side::default()).collect(),
    };
    let mut servers = vec![server("weir", WEIR)];
    servers.extend(arguments.word("--before").map(|program| server("weir before", program)));
    if is_there(QEMU) {
        servers.push(server(QEMU, QEMU));
    } else {
        println!("{QEMU} is not installed: left out");
    }
    let places = Places { folder, disk, source, mib };
    bench(&places, &mut servers, works, rounds);
    fs::remove_dir_all(&places.folder).expect("the folder goes");
}

const QEMU: &str = "qemu-storage-daemon";

fn bench(places: &Places, servers: &mut [Server], works: &[Work], rounds: u32) {
    let mut control = Control::new(Needs::Quiet);
    let outcomes = control.rounds(rounds, &[], |round| {
        let count = servers.len();
        let turns = (0..count).map(|turn| (round as usize + turn) % count);
        let all = |which: usize| {
            let each = works.iter().map(|work| measure(places, &servers[which].program, *work));
            (which, each.collect::<Vec<_>>())
        };
        turns.map(all).collect::<Vec<_>>()
    });
    let counted = outcomes.len();
    for (which, figures) in outcomes.into_iter().flatten() {
        for (side, (rate, cpu)) in servers[which].sides.iter_mut().zip(figures) {
            side.rate.add(rate);
            side.cpu.add(cpu);
        }
    }
    println!("{}", machine());
    println!("a file: disk of {} MiB by NBD, {counted} rounds, {control}", places.mib);
    let (own, others) = servers.split_first().expect("there is weir");
    for (work, at) in works.iter().zip(0..) {
        let (what, rate, cpu) = match work {
            Work::Out => ("nbdcopy --connections=4 out".to_owned(), "MiB/s", "ms"),
            Work::Into => ("nbdcopy --connections=4 in".to_owned(), "MiB/s", "ms"),
            Work::Reads(depth) => (format!("reads at depth {depth}"), "IOPS", "us per I/O"),
        };
        for Server { name, sides, .. } in &*servers {
            let side = &sides[at];
            println!("{what}: {name:20} {rate} {:.0}, server CPU {cpu} {:.1}", side.rate, side.cpu);
        }
        for other in others {
            let ratio = own.sides[at].rate.over(&other.sides[at].rate);
            println!("{what}: weir against {} {ratio:.2}", other.name);
        }
    }
}

/// A server that is ended with the value.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        // It may have ended by itself; either way it is waited for.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.0.wait();
    }
}

/// Has a server do a work: its rate, and the server's CPU time.
fn measure(places: &Places, program: &str, work: Work) -> (f64, f64) {
    let socket = places.folder.join("nbd.sock");
    // A socket of the server before, which has ended, may be left.
    let _ = fs::remove_file(&socket);
    let mut server = match program {
        QEMU => qemu(&places.disk, &socket),
        _ => weir(program, places, &socket),
    };
    server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let server = Running(server.spawn().unwrap_or_else(|e| panic!("{program}: {e}")));
    let listens = |_| {
        std::thread::sleep(Duration::from_millis(10));
        UnixStream::connect(&socket).is_ok()
    };
    assert!((0..1000).any(listens), "{program} does not listen");
    let used = || CpuTime::of(server.0.id()).expect("the server runs");
    match work {
        Work::Out => copy(places, &socket, true, used),
        Work::Into => copy(places, &socket, false, used),
        Work::Reads(depth) => reads(places, &socket, depth, used),
    }
}

/// Copies the disk out, or the source in: MiB a second, and the server's CPU time, ms.
fn copy(places: &Places, socket: &Path, out: bool, used: impl Fn() -> CpuTime) -> (f64, f64) {
    let disk = format!("nbd+unix:///disk?socket={}", socket.display());
    let mut copy = Program::new("nbdcopy");
    copy.arg("--connections=4");
    match out {
        true => copy.args([&disk, "null:"]),
        false => copy.arg(&places.source).arg(&disk),
    };
    let (before, began) = (used(), Instant::now());
    let ended = copy.status().expect("nbdcopy runs");
    let took = began.elapsed();
    assert!(ended.success(), "nbdcopy: {ended}");
    let cpu = used().since(&before).total();
    (f64::from(places.mib) / took.as_secs_f64(), cpu.as_secs_f64() * 1e3)
}

/// Reads at random: I/Os a second, and the server's CPU time for each, us.
fn reads(places: &Places, socket: &Path, depth: u16, used: impl Fn() -> CpuTime) -> (f64, f64) {
    let target = format!("nbd+unix:{}?disk,connections=1", socket.display());
    let target = weir::Target::parse(&target).expect("a target");
    let opened = weir::open("client", &target, 1).expect("the server takes us");
    let job = weir_load::Job {
        access: weir_load::Access::Random,
        size: Some(weir_load::Amount::Bytes(u64::from(places.mib) << 20)),
        depth,
        time_based: true,
        ..weir_load::Job::default()
    };
    let (before, ramp) = (used(), Duration::from_millis(200));
    let measured = weir_bench::engine::run::one(&job, &opened.device, ramp, Duration::from_secs(1));
    let measured = measured.expect("the job runs");
    let cpu = used().since(&before).total();
    assert_eq!(measured.failure, None, "reads at depth {depth}");
    let ios = measured.tally.all().ios;
    // The server's CPU time covers the ramp too, so it is set against all I/Os.
    let all = opened.device.stats().directions[0].total.count();
    (ios as f64 / measured.wall.as_secs_f64(), cpu.as_secs_f64() * 1e6 / all as f64)
}

fn weir(program: &str, places: &Places, socket: &Path) -> Program {
    let mut serve = Program::new(program);
    serve.args(["serve", "--quiet", "--disk"]).arg(format!("disk=file:{}", places.disk.display()));
    serve.arg("--nbd").arg(format!("unix:{}", socket.display()));
    serve.arg("--control").arg(places.folder.join("control"));
    serve
}

fn qemu(disk: &Path, socket: &Path) -> Program {
    let mut qemu = Program::new(QEMU);
    let file = format!("driver=file,node-name=f,filename={},cache.direct=on", disk.display());
    qemu.args(["--blockdev", &format!("{file},aio=io_uring")]);
    qemu.args(["--blockdev", "driver=raw,node-name=n,file=f", "--nbd-server"]);
    qemu.arg(format!("addr.type=unix,addr.path={}", socket.display()));
    qemu.args(["--export", "type=nbd,id=e,node-name=n,name=disk,writable=on"]);
    qemu
}
