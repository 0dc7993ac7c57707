//! The cost of the layer itself: `weir bench core` under each scheduler of either path, in turn, on
//! a core of its own; how far two threads on two queues outdo one where the two CPUs are two cores;
//! and what two submitters on one device with a scheduler reach beside one.
//!
//! cargo bench -p weir-cli --bench core [-- --rounds 40 --milliseconds 40]

#![forbid(unsafe_code)]

use std::process::Command;

use weir_bench::arguments::{Arguments, Parameter, Usage};
use weir_bench::rounds::{Control, Figure, Needs, machine};

/// A path, a scheduler and a number of threads.
type Setting = (&'static str, &'static str, &'static str);

/// The result of a setting.
#[derive(Default)]
struct Way {
    setting: Setting,
    ns: Figure,
    iops: Figure,
    /// Per I/O, the most seen.
    allocations: Option<f64>,
    syscalls: Option<f64>,
    generator_ns: Figure,
}

impl Way {
    fn add(&mut self, json: &serde_json::Value) {
        let number = |field: &str| json[field].as_f64();
        let figure = |field: &str| number(field).unwrap_or_else(|| panic!("{field} in {json}"));
        self.ns.add(figure("ns_per_io"));
        self.iops.add(figure("iops"));
        self.generator_ns.add(figure("generator_ns_per_io"));
        self.allocations = larger(self.allocations, number("allocations_per_io"));
        self.syscalls = larger(self.syscalls, number("syscalls_per_io"));
    }
}

const USAGE: Usage = Usage {
    bench: concat!(env!("CARGO_PKG_NAME"), " --bench ", env!("CARGO_CRATE_NAME")),
    about: "weir bench core under each scheduler, on one thread and on two.",
    parameters: &[
        Parameter::number("--rounds", (40, 1), "rounds of each setting"),
        Parameter::number("--milliseconds", (40, 40), "of a measurement"),
    ],
};

fn main() {
    let arguments = Arguments::of_process(&USAGE);
    let rounds = arguments.number("--rounds");
    let runtime = format!("{}ms", arguments.number("--milliseconds"));
    println!("{}", machine());
    let mq = ["none", "kyber", "mq-deadline", "bfq"].map(|scheduler| ("mq", scheduler, "1"));
    tell(&bench(Needs::Core(0), rounds, &runtime, mq));
    let sq = ["noop", "deadline", "cfq"].map(|scheduler| ("sq", scheduler, "1"));
    tell(&bench(Needs::Core(0), rounds, &runtime, sq));
    for (mode, scheduler) in [("mq", "none"), ("sq", "noop")] {
        let settings = ["1", "2"].map(|threads| (mode, scheduler, threads));
        let ways = bench(Needs::TwoCores, rounds, &runtime, settings);
        tell(&ways);
        println!("{mode}, {scheduler}: 2 threads {:.2} x 1", ways[1].iops.over(&ways[0].iops));
    }
    for scheduler in ["mq-deadline", "bfq"] {
        share(scheduler, rounds, &runtime);
    }
}

/// Two submitters on one device beside one, as `weir bench core` itself compares them.
fn share(scheduler: &str, rounds: u32, runtime: &str) {
    let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
    weir.args(["bench", "core", "--threads", "2", "--scheduler", scheduler]);
    let status = weir.args(["--rounds", &rounds.to_string(), "--runtime", runtime]).status();
    assert!(status.expect("weir runs").success(), "two submitters on one {scheduler} device");
}

/// The ways in turn, in rounds that need this of the host.
fn bench<const N: usize>(
    needs: Needs,
    rounds: u32,
    runtime: &str,
    settings: [Setting; N],
) -> [Way; N] {
    let mut control = Control::new(needs);
    let taken = control.rounds(rounds, &[], |_| settings.map(|setting| measure(setting, runtime)));
    let mut ways = settings.map(|setting| Way { setting, ..Way::default() });
    for (way, json) in taken.iter().flatten().enumerate() {
        ways[way % N].add(json);
    }
    println!("{} rounds of {runtime}, {control}; medians (spread)", taken.len());
    ways
}

fn tell(ways: &[Way]) {
    for Way { setting, ns, iops, generator_ns, allocations, syscalls } in ways {
        let (mode, scheduler, threads) = setting;
        println!(
            "{mode}, {scheduler}, {threads} thread(s): CPU ns per I/O {ns:.1}, IOPS {iops:.0}"
        );
        println!("    of that {generator_ns:.1} ns to make the I/O up");
        println!(
            "    per I/O at most {} allocations, {} system calls",
            told(*allocations),
            told(*syscalls)
        );
    }
}

fn measure((mode, scheduler, threads): Setting, runtime: &str) -> serde_json::Value {
    let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
    weir.args(["bench", "core", "--json", "--queue-mode", mode, "--threads", threads]);
    weir.args(["--scheduler", scheduler]);
    let output = weir.args(["--runtime", runtime]).output().expect("weir runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one document")
}

fn larger(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    a.into_iter().chain(b).reduce(f64::max)
}

fn told(count: Option<f64>) -> String {
    count.map_or_else(|| String::from("uncounted"), |count| format!("{count:.6}"))
}
