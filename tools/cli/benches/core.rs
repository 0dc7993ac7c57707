//! What the layer itself costs: `weir bench core` on either path, in turn, on a core of its own;
//! and how far two threads on two queues outdo one where the two CPUs are two cores.
//!
//! cargo bench -p weir-cli --bench core [-- --rounds 40 --milliseconds 40]

#![forbid(unsafe_code)]

use std::process::Command;

use weir_bench::rounds::{Arguments, Control, Figure, Needs, machine};

/// A path and a number of threads.
#[derive(Default)]
struct Way {
    mode: &'static str,
    threads: &'static str,
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

fn main() {
    let arguments = Arguments::of_process();
    let rounds = arguments.number("--rounds", 40, 1);
    let runtime = format!("{}ms", arguments.number("--milliseconds", 40, 40));
    println!("{}", machine());
    let one = bench(Needs::Core(0), rounds, &runtime, [("mq", "1"), ("sq", "1")]);
    tell(&one);
    for mode in ["mq", "sq"] {
        let ways = bench(Needs::TwoCores, rounds, &runtime, [(mode, "1"), (mode, "2")]);
        tell(&ways);
        println!("{mode}: 2 threads {:.2} x 1", ways[1].iops.over(&ways[0].iops));
    }
}

/// The ways in turn, in rounds that need this of the host.
fn bench<const N: usize>(
    needs: Needs,
    rounds: u32,
    runtime: &str,
    ways: [(&'static str, &'static str); N],
) -> [Way; N] {
    let mut control = Control::new(needs);
    let taken = control.rounds(rounds, &[], |_| ways.map(|way| measure(way, runtime)));
    let mut ways = ways.map(|(mode, threads)| Way { mode, threads, ..Way::default() });
    for (way, json) in taken.iter().flatten().enumerate() {
        ways[way % N].add(json);
    }
    println!("{} rounds of {runtime}, {control}; medians (spread)", taken.len());
    ways
}

fn tell(ways: &[Way]) {
    for Way { mode, threads, ns, iops, generator_ns, allocations, syscalls } in ways {
        println!("{mode}, {threads} thread(s): CPU ns per I/O {ns:.1}, IOPS {iops:.0}");
        println!("    of that {generator_ns:.1} ns to make the I/O up");
        println!(
            "    per I/O at most {} allocations, {} system calls",
            told(*allocations),
            told(*syscalls)
        );
    }
}

fn measure((mode, threads): (&str, &str), runtime: &str) -> serde_json::Value {
    let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
    weir.args(["bench", "core", "--json", "--queue-mode", mode, "--threads", threads]);
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
