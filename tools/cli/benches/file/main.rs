//! A `file:` target with direct I/O against fio's io_uring engine: 4 KiB random reads of the same
//! preallocated and written file, at the same depth, on the same CPU, in turn. Many short rounds:
//! a shared disk differs more from one second to the next than the two do.
//!
//! weir runs in three ways: by the engine of `weir bench`, whose thread waits in its ring; on a
//! reactor, which waits on its descriptors as that of a daemon does; and on one that polls first.
//! fio runs twice: as it comes, and with registered buffers and files (`fixedbufs`,
//! `registerfiles`). weir registers the file and not the memory, which is its callers'.
//!
//! cargo bench -p weir-cli --bench file [-- --rounds 40 --milliseconds 500 --depth 32
//!     --mib 1024 --folder DIR]

#![forbid(unsafe_code)]

mod reactor;

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command as Program;
use std::time::Duration;

use weir_bench::arguments::{Arguments, Parameter, Usage};
use weir_bench::cpu::pin;
use weir_bench::rounds::{Control, Figure, Needs, machine};
use weir_bio::{Buf, Prng};
use weir_live::PollMode;

/// The CPU of the program that is measured.
const CPU: usize = 1;

/// How long each reads before it counts.
const RAMP: Duration = Duration::from_millis(300);

/// What is measured, the sides of weir before those of fio.
const SIDES: [&str; 5] =
    ["weir", "weir, reactor", "weir, polling reactor", "fio", "fio, registered"];
const OF_WEIR: usize = 3;

struct Setup {
    file: PathBuf,
    bytes: u64,
    milliseconds: u32,
    depth: u32,
}

const USAGE: Usage = Usage {
    bench: concat!(env!("CARGO_PKG_NAME"), " --bench ", env!("CARGO_CRATE_NAME")),
    about: "A file: target beside the io_uring engine of fio, 4 KiB random reads.",
    parameters: &[
        Parameter::number("--rounds", (40, 1), "rounds in which each is measured"),
        Parameter::number("--milliseconds", (500, 500), "of a measurement"),
        Parameter::number("--depth", (32, 32), "I/Os under way at once"),
        Parameter::number("--mib", (1024, 16), "MiB of the file"),
        Parameter::word("--folder", "DIR", "where its files lie [the folder of the build]"),
    ],
};

fn main() {
    let arguments = Arguments::of_process(&USAGE);
    let rounds = arguments.number("--rounds");
    let folder = arguments
        .word("--folder")
        .map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from);
    let setup = Setup {
        file: folder.join(format!("weir-bench-file-{}.img", std::process::id())),
        bytes: u64::from(arguments.number("--mib")) << 20,
        milliseconds: arguments.number("--milliseconds"),
        depth: arguments.number("--depth"),
    };
    let removed = RemovedAtEnd(&setup.file);
    fill(&setup.file, setup.bytes);
    bench(&setup, rounds);
    drop(removed);
}

struct RemovedAtEnd<'a>(&'a Path);

impl Drop for RemovedAtEnd<'_> {
    fn drop(&mut self) {
        // A file that cannot be removed is in the build's own folder.
        let _ = std::fs::remove_file(self.0);
    }
}

/// Writes the file whole, past the page cache: a hole or a cached page is no read from a device.
fn fill(path: &Path, bytes: u64) {
    let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .custom_flags(direct)
        .open(path)
        .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut prng = Prng::new(1);
    let piece = Buf::filled(1 << 20, |bytes| prng.fill(bytes));
    for _ in 0..bytes >> 20 {
        file.write_all(&piece).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }
    file.sync_all().unwrap_or_else(|e| panic!("{}: {e}", path.display()));
}

#[derive(Default)]
struct Side {
    name: &'static str,
    iops: Figure,
    cpu_ns: Figure,
}

fn bench(setup: &Setup, rounds: u32) {
    let mut sides = SIDES.map(|name| Side { name, ..Side::default() });
    let mut control = Control::new(Needs::Quiet);
    let fio = Program::new("fio").arg("--version").output().is_ok();
    if !fio {
        println!("fio is not installed: weir alone is measured");
    }
    let count = if fio { SIDES.len() } else { OF_WEIR };
    let outcomes = control.rounds(rounds, &[], |round| {
        // The program that comes first finds the device rested, so each comes first in turn.
        let mut outcomes: Vec<_> = (0..count)
            .map(|turn| (round as usize + turn) % count)
            .map(|which| (which, run(which, setup, round)))
            .collect();
        outcomes.sort_by_key(|(which, _)| *which);
        outcomes
    });
    let counted = outcomes.len();
    for (which, (iops, cpu_ns)) in outcomes.into_iter().flatten() {
        sides[which].iops.add(iops);
        sides[which].cpu_ns.add(cpu_ns);
    }
    let Setup { milliseconds, depth, .. } = setup;
    println!("{}", machine());
    println!(
        "4 KiB random direct reads, depth {depth}, {counted} rounds of {milliseconds} ms, {control}"
    );
    for side in &sides[..count] {
        println!("{:22} IOPS {:.0}  CPU ns per I/O {:.0}", side.name, side.iops, side.cpu_ns);
    }
    let (ours, others) = sides[..count].split_at(OF_WEIR);
    for (side, other) in ours.iter().flat_map(|side| others.iter().map(move |other| (side, other)))
    {
        let ratio = side.iops.over(&other.iops);
        let (mean, error) = ratio.geometric_mean();
        println!(
            "{} against {}: {ratio:.3}, geometric mean {mean:.3}, its standard error {:.1} %",
            side.name,
            other.name,
            100.0 * error
        );
    }
}

/// One side's I/Os a second, and CPU ns per I/O.
fn run(which: usize, setup: &Setup, round: u32) -> (f64, f64) {
    match which {
        0 => engine(setup, round),
        1 => on_reactor(setup, round, PollMode::Off),
        2 => on_reactor(setup, round, PollMode::Adaptive),
        _ => run_fio(setup, which == 4, round),
    }
}

/// The same of a reactor that polls so.
fn on_reactor(setup: &Setup, round: u32, poll: PollMode) -> (f64, f64) {
    let _ = pin(CPU);
    reactor::run(&reactor::Load {
        target: &format!("file:{}", setup.file.display()),
        bytes: setup.bytes,
        depth: setup.depth,
        ramp: RAMP,
        runtime: Duration::from_millis(setup.milliseconds.into()),
        seed: u64::from(round) + 1,
        poll,
    })
}

/// I/Os a second, and CPU ns per I/O, by the engine of `weir bench`.
fn engine(setup: &Setup, round: u32) -> (f64, f64) {
    let _ = pin(CPU);
    let target = format!("file:{}", setup.file.display());
    let target = weir::Target::parse(&target).expect("a target");
    let opened = weir::open("file", &target, 1).expect("the file opens");
    let job = weir_load::Job {
        access: weir_load::Access::Random,
        size: Some(weir_load::Amount::Bytes(setup.bytes)),
        depth: setup.depth as u16,
        time_based: true,
        seed: u64::from(round) + 1,
        ..weir_load::Job::default()
    };
    let runtime = Duration::from_millis(setup.milliseconds.into());
    let measured = weir_bench::engine::run::one(&job, &opened.device, RAMP, runtime);
    let measured = measured.expect("the job runs");
    assert_eq!(measured.failure, None);
    let ios = measured.tally.all().ios as f64;
    (ios / measured.wall.as_secs_f64(), measured.cpu.total().as_nanos() as f64 / ios)
}

/// The same of fio.
fn run_fio(setup: &Setup, registered: bool, round: u32) -> (f64, f64) {
    let mut fio = Program::new("fio");
    fio.args(["--name=file", "--ioengine=io_uring", "--direct=1", "--rw=randread", "--bs=4k"]);
    fio.args(["--time_based", "--ramp_time=300ms", "--output-format=json", "--norandommap"]);
    fio.args(["--thread", "--gtod_reduce=0"]);
    fio.arg(format!("--filename={}", setup.file.display()));
    fio.arg(format!("--size={}", setup.bytes));
    fio.arg(format!("--iodepth={}", setup.depth));
    fio.arg(format!("--runtime={}ms", setup.milliseconds));
    fio.arg(format!("--randseed={}", round + 1));
    fio.arg(format!("--cpus_allowed={CPU}"));
    if registered {
        fio.args(["--fixedbufs", "--registerfiles"]);
    }
    let output = fio.output().expect("fio runs");
    assert!(output.status.success(), "fio: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    let json = text.find('{').map_or("", |at| &text[at..]);
    let outcome: serde_json::Value = serde_json::from_str(json).expect("fio speaks JSON");
    let job = &outcome["jobs"][0];
    let number = |value: &serde_json::Value| value.as_f64().expect("a number");
    let iops = number(&job["read"]["iops"]);
    // Percent of one CPU over the time it measured.
    let cpu = number(&job["usr_cpu"]) + number(&job["sys_cpu"]);
    (iops, cpu / 100.0 * 1e9 / iops)
}
