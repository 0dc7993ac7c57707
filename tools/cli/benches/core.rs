//! What the layer itself costs: `weir bench core` in its four ways, in turn, and how far two
//! threads on two queues outdo one.
//!
//! cargo bench -p weir-cli --bench core [-- --rounds 9 --milliseconds 300]

#![forbid(unsafe_code)]

use std::process::Command;

use weir_bench::rounds::{Arguments, Control, Figure, machine};

/// The path and the threads of each way.
const WAYS: [(&str, &str); 4] = [("mq", "1"), ("mq", "2"), ("sq", "1"), ("sq", "2")];

#[derive(Default)]
struct Way {
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
    let rounds = arguments.number("--rounds", 9, 1);
    let runtime = format!("{}ms", arguments.number("--milliseconds", 300, 100));
    let mut control = Control::default();
    let taken = control.rounds(rounds, &[], |_| WAYS.map(|way| measure(way, &runtime)));
    let mut ways: [Way; 4] = Default::default();
    for (way, json) in taken.iter().flatten().enumerate() {
        ways[way % WAYS.len()].add(json);
    }
    println!("{}", machine());
    println!("{rounds} rounds of {runtime}, {control}; medians (spread)");
    for ((mode, threads), way) in WAYS.iter().zip(&ways) {
        let Way { ns, iops, generator_ns, .. } = way;
        println!("{mode}, {threads} thread(s): CPU ns per I/O {ns:.1}, IOPS {iops:.0}");
        println!("    of that {generator_ns:.1} ns to make the I/O up");
        println!(
            "    per I/O at most {} allocations, {} system calls",
            told(way.allocations),
            told(way.syscalls)
        );
    }
    for (one, two) in [(0, 1), (2, 3)] {
        println!("{}: 2 threads {:.2} x 1", WAYS[one].0, ways[two].iops.over(&ways[one].iops));
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
