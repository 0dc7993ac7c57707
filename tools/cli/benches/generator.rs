//! The cost of making I/Os up: `weir bench` on an empty sink, which is its threads, its generator
//! and its counting without a queue or a device; and whether what remains of `weir bench` on the
//! null device without that is what `weir bench core` has without its own generator.
//!
//! All are of one thread on one core, 4 KiB at random over 64 GiB, 70 % reads, no scheduler, and
//! go in passes of `--depth` I/Os: the null device answers all of a pass at once. In turn, CPU time
//! per I/O.
//!
//! cargo bench -p weir-cli --bench generator [-- --rounds 5 --milliseconds 300 --depth 32]

#![forbid(unsafe_code)]

use std::time::Duration;

use weir_bench::arguments::{Arguments, Parameter, Usage};
use weir_bench::core;
use weir_bench::cpu::pin;
use weir_bench::engine::alone::alone;
use weir_bench::engine::run;
use weir_bench::rounds::{Control, Figure, Needs, machine};
use weir_load::{Access, Amount, Direction, Ground, Job};

const CPU: usize = 0;
const DEVICE_BYTES: u64 = 64 << 30;
/// How far the two may be apart, in 100.
const GOAL_PERCENT: f64 = 15.0;
/// I/Os a second and core on the sink, and on the null device: the least, and the aim.
const IOPS_LEAST: f64 = 8e6;
const IOPS_AIM: f64 = 15e6;
/// With fewer rounds than so many nothing is concluded.
const ROUNDS_LEAST: usize = 5;
const RAMP: Duration = Duration::from_millis(10);

#[derive(Default)]
struct Figures {
    sink_ns: Figure,
    sink_iops: Figure,
    null_ns: Figure,
    null_iops: Figure,
    core_ns: Figure,
    generator_ns: Figure,
    ratio: Figure,
}

const USAGE: Usage = Usage {
    bench: concat!(env!("CARGO_PKG_NAME"), " --bench ", env!("CARGO_CRATE_NAME")),
    about: "The cost of making I/Os up: on an empty sink, a null device and in bench core.",
    parameters: &[
        Parameter::number("--rounds", (5, 1), "rounds in which each is measured"),
        Parameter::number("--milliseconds", (300, 20), "of a measurement"),
        Parameter::number("--depth", (32, 32), "I/Os of a pass, below 65536"),
    ],
};

fn main() {
    let arguments = Arguments::of_process(&USAGE);
    let rounds = arguments.number("--rounds");
    let milliseconds = arguments.number("--milliseconds");
    let depth = u16::try_from(arguments.number("--depth"));
    let depth = depth.unwrap_or_else(|_| arguments.refuse("--depth is not below 65536"));
    let runtime = Duration::from_millis(u64::from(milliseconds));
    // Threads started from here stay on this CPU as well.
    let _ = pin(CPU);
    let mut control = Control::new(Needs::Core(CPU));
    let mut figures = Figures::default();
    let taken = control.rounds(rounds, &[], |round| one(depth, u64::from(round) + 1, runtime));
    for [sink, null, core] in &taken {
        figures.sink_ns.add(sink.ns);
        figures.sink_iops.add(sink.other);
        figures.null_ns.add(null.ns);
        figures.null_iops.add(null.other);
        figures.core_ns.add(core.ns);
        figures.generator_ns.add(core.other);
        figures.ratio.add((null.ns - sink.ns) / (core.ns - core.other));
    }
    println!("{}", machine());
    println!("passes of {depth}, {} rounds of {milliseconds} ms, {control}", taken.len());
    tell(&figures);
    if taken.len() >= ROUNDS_LEAST {
        let apart = (figures.ratio.median() - 1.0).abs() * 100.0;
        println!("goals: {}", met(apart <= GOAL_PERCENT, "the two agree within 15 %"));
        for (what, iops) in [("sink", &figures.sink_iops), ("null device", &figures.null_iops)] {
            let iops = iops.median();
            println!("    {}", met(iops >= IOPS_LEAST, &format!("8 million on the {what}")));
            println!("    {}", met(iops >= IOPS_AIM, &format!("15 million on the {what}")));
        }
    }
}

fn met(is: bool, what: &str) -> String {
    format!("{what}: {}", if is { "yes" } else { "NO" })
}

fn tell(figures: &Figures) {
    let Figures { sink_ns, sink_iops, null_ns, null_iops, core_ns, generator_ns, ratio } = figures;
    println!("CPU ns per I/O, medians (spread)");
    println!("    weir bench, empty sink      {sink_ns:.1}, IOPS {sink_iops:.0}");
    println!("    weir bench, null device     {null_ns:.1}, IOPS {null_iops:.0}");
    println!(
        "    weir bench core             {core_ns:.1}, of that {generator_ns:.1} its generator"
    );
    println!("    the layer in weir bench over the layer in weir bench core: {ratio:.3}");
}

/// The result of a way.
#[derive(Clone, Copy)]
struct Way {
    /// CPU time per I/O.
    ns: f64,
    /// I/Os a second; of `weir bench core` its generator's ns.
    other: f64,
}

fn one(depth: u16, seed: u64, runtime: Duration) -> [Way; 3] {
    let job = Job {
        access: Access::Random,
        direction: Direction::Mixed,
        read_percent: 70,
        size: Some(Amount::Bytes(DEVICE_BYTES)),
        depth,
        time_based: true,
        seed,
        ..Job::default()
    };
    let ground = Ground { bytes: DEVICE_BYTES, block: 512, read_only: false };
    let sink = alone(&job, ground, runtime).expect("a job on a sink");
    let ios = sink.tally.all().ios as f64;
    let sink = Way { ns: sink.cpu.as_nanos() as f64 / ios, other: ios / sink.wall.as_secs_f64() };
    let target = weir::Target::parse("null:64GiB,scheduler=none").expect("a target");
    let device = weir::open("null", &target, 1).expect("it opens").device;
    let null = run::one(&job, &device, RAMP, runtime).expect("a job on the null device");
    assert_eq!(null.failure, None);
    let ios = null.tally.all().ios as f64;
    let null =
        Way { ns: null.cpu.total().as_nanos() as f64 / ios, other: ios / null.wall.as_secs_f64() };
    let options = core::Options {
        scheduler: Some(String::from("none")),
        depth,
        batch: depth,
        duration: runtime,
        seed,
        ..core::Options::default()
    };
    let core = core::run(&options).expect("the layer alone");
    [sink, null, Way { ns: core.ns_per_io, other: core.generator_ns_per_io }]
}
