//! How often a comparison is right: of a variant with itself, and with one that is 5 % slower.
//!
//! The slowdown is real and of known size: a null device that answers 5 % later, at a delay beside
//! which the rest of an I/O is small. Throughput, which the delay bounds, and mean latency must
//! show it.
//!
//! cargo bench -p weir-cli --bench compare -- --same 40 --slower 20 [--first 1]

#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;
use weir_bench::arguments::{Arguments, Parameter, Usage};
use weir_bench::rounds::machine;

/// The ways that are compared with themselves, in turn.
const SAME: &[&[&str]] = &[
    &["--target", "ram:256MiB", "--rw", "randrw", "--bs", "4k", "--iodepth", "32"],
    &["--target", "null:64GiB", "--rw", "randread", "--iodepth", "8", "--numjobs", "2"],
    &["--target", "ram:256MiB,scheduler=mq-deadline", "--rw", "randread", "--iodepth", "16"],
    &["--target", "null:64GiB,latency_us=100", "--rw", "randwrite", "--iodepth", "1"],
    &["--target", "file:disk.img,size=256MiB", "--rw", "randread", "--iodepth", "4"],
];

/// The delays, us. Some 3 % of an I/O is something else, so what is slower is so by 4.9 %.
const DELAY_US: u32 = 4000;
const LATER_US: u32 = 4200;

/// Verdicts that may name a difference where there is none, of 100; and how many of twenty
/// slowdowns have to be found.
const WRONG_MOST: usize = 5;
const FOUND_LEAST: usize = 18;
/// With fewer than so many comparisons, chance decides how many are wrong.
const COMPARISONS_LEAST: usize = 10;

const USAGE: Usage = Usage {
    bench: concat!(env!("CARGO_PKG_NAME"), " --bench ", env!("CARGO_CRATE_NAME")),
    about: "How often weir compare is right.",
    parameters: &[
        Parameter::number("--same", (2, 1), "comparisons of a variant with itself"),
        Parameter::number("--slower", (1, 1), "comparisons with one that is 5 % slower"),
        Parameter::number("--first", (1, 1), "number of the first, which chooses job and seed"),
        Parameter::number("--small", (0, 1), "1: short comparisons"),
    ],
};

fn main() {
    let arguments = Arguments::of_process(&USAGE);
    let same = arguments.number("--same");
    let slower = arguments.number("--slower");
    let first = arguments.number("--first");
    // Twenty seconds for a variant with itself; for a slowdown the defaults of the command.
    let small = ["--rounds", "8", "--runtime", "20ms", "--ramp-time", "10ms"];
    let twenty = ["--rounds", "10", "--runtime", "750ms", "--ramp-time", "150ms"];
    let is_small = arguments.number("--small") == 1;
    let bed = Bed::new();
    println!("{}", machine());
    let (mut wrong, mut verdicts) = (0, 0);
    for n in first..first + same {
        let job = SAME[n as usize % SAME.len()];
        let mut words = vec!["--a", "", "--b", "", "--same"];
        words.extend(job);
        words.extend(if is_small { small } else { twenty });
        let answer = bed.compare(n, &words);
        let named = named(&answer);
        println!("same {n}: {} ({named:?} of {})", job[1], count(&answer));
        wrong += named.len();
        verdicts += count(&answer);
    }
    println!("{wrong} of {verdicts} verdicts name a difference where there is none");
    let (delay, later) = (format!("latency_us={DELAY_US}"), format!("latency_us={LATER_US}"));
    let mut found = 0;
    for n in first..first + slower {
        let mut words = vec!["--target", "null:64GiB", "--a", &delay, "--b", &later];
        words.extend(["--rw", "randread", "--iodepth", "16"]);
        words.extend(if is_small { small.as_slice() } else { &[] });
        let answer = bed.compare(n, &words);
        let is = |metric: &str| comparison(&answer, metric)["verdict"] == "b is slower";
        let both = is("iops") && is("latency_mean_ns");
        found += usize::from(both);
        println!("slower {n}: {} {:?}", both, comparison(&answer, "iops"));
    }
    println!("{found} of {slower} slowdowns of 5 % found");
    let enough = |count: u32| count as usize >= COMPARISONS_LEAST;
    assert!(!enough(same) || wrong * 100 <= WRONG_MOST * verdicts, "{wrong} of {verdicts}");
    let found_least = FOUND_LEAST * slower as usize / 20;
    assert!(!enough(slower) || found >= found_least, "{found} of {slower}");
}

/// A folder that comparisons run in.
struct Bed(PathBuf);

impl Bed {
    fn new() -> Bed {
        let folder =
            std::env::temp_dir().join(format!("weir-bench-compare-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        Bed(folder)
    }

    /// The answer of one comparison.
    fn compare(&self, seed: u32, words: &[&str]) -> Value {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.arg("compare").args(words).args(["--randseed", &seed.to_string()]);
        command.args(["--json", "--quiet", "--save", "runs.json"]);
        command.current_dir(&self.0).stdin(Stdio::null());
        let ended = command.output().expect("the command starts");
        let said = String::from_utf8_lossy(&ended.stderr);
        let is_undecided = said.contains("not compared: ");
        let is_answer = ended.status.code() == Some(0) || is_undecided;
        assert!(is_answer, "{words:?}: {said}");
        serde_json::from_slice(&ended.stdout).expect("JSON")
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn comparisons(answer: &Value) -> &[Value] {
    answer["comparisons"].as_array().expect("comparisons")
}

fn comparison<'a>(answer: &'a Value, metric: &str) -> &'a Value {
    let of = |found: &&Value| found["metric"] == metric;
    comparisons(answer).iter().find(of).expect("every comparison has it")
}

/// The verdicts there are: where too few rounds counted nothing was said, right or wrong.
fn count(answer: &Value) -> usize {
    comparisons(answer).iter().filter(|found| is_decided(found)).count()
}

fn is_decided(found: &Value) -> bool {
    !found["ci99"].is_null()
}

/// The metrics whose verdict names a difference, with its ratio.
fn named(answer: &Value) -> Vec<String> {
    let differs =
        |found: &&Value| is_decided(found) && found["verdict"] != "no detectable difference";
    let shown = |found: &Value| format!("{} {}", found["metric"], found["ratio"]);
    comparisons(answer).iter().filter(differs).map(shown).collect()
}
