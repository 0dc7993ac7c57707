//! Whole comparisons on paper whose host is disturbed: how often they are wrong, and how many runs
//! they take.

#![forbid(unsafe_code)]

use weir_bench::compare::interval::Looks;
use weir_bench::compare::rounds::{Order, Reading, Stage, Stop, Taken, run};
use weir_bench::compare::summary::{Judging, primary, ratios, unsettled};
use weir_bio::Prng;
use weir_trace::document::{BenchDocument, Run};

const NAMES: [&str; 2] = ["a", "b"];
const WINDOW_S: f64 = 2.0;
const ROUNDS_MOST: u32 = 22;
const JUDGING: Judging<'_> = Judging { metric: None, within: None, looks: Looks::AnyTime };

/// A host on which others work beside a part of the runs.
struct Host {
    prng: Prng,
    /// How much faster the second variant is, a logarithm.
    apart: f64,
    /// Runs that are disturbed, per cent.
    disturbed: u32,
    /// Whether the rounds are asked how large the difference is.
    looks: bool,
    /// By what the run that was just made was slower, while the control is still to be read.
    slower: f64,
}

impl Host {
    fn uniform(&mut self) -> f64 {
        (self.prng.below(1 << 32) as f64 + 0.5) / (1_u64 << 32) as f64
    }
}

impl Stage for Host {
    fn control(&mut self, _: Option<f64>) -> Reading {
        let felt = std::mem::take(&mut self.slower);
        let noise = 0.02 * self.uniform();
        Reading { control_ns: 1000.0 * (felt + noise).exp(), ..Reading::default() }
    }

    fn run(&mut self, variant: usize, _: u32, _: u64) -> Result<BenchDocument, Stop> {
        let is_disturbed = self.prng.percent(self.disturbed);
        // As builds of other programs did: the control took 13 to 18 % longer beside them.
        self.slower = if is_disturbed { 0.12 + 0.05 * self.uniform() } else { 0.0 };
        let noise = (self.uniform() + self.uniform() + self.uniform() - 1.5) * 0.1;
        let mut document = BenchDocument::default();
        let effect = if variant == 1 { self.apart } else { 0.0 };
        document.bench.figures.iops = 1000.0 * (effect + noise - self.slower).exp();
        document.bench.duration_s = WINDOW_S;
        document.bench.job = serde_json::json!({"time_based": true});
        Ok(document)
    }

    fn goes_on(&mut self, runs: &[Run]) -> bool {
        unsettled(&primary(&NAMES, runs, JUDGING)).is_some()
    }

    fn ratios(&self, runs: &[Run]) -> Vec<Vec<f64>> {
        if self.looks { ratios(&NAMES, runs, JUDGING) } else { Vec::new() }
    }
}

/// Whether a comparison was decided, and how many runs it took.
fn compare(seed: u64, apart: f64, disturbed: u32, looks: bool) -> (bool, usize) {
    let variants = NAMES.map(String::from).to_vec();
    let window_s = WINDOW_S;
    let order = Order { variants, rounds: ROUNDS_MOST, is_open: true, reruns: 5, seed, window_s };
    let prng = Prng::new(seed);
    let mut host = Host { prng, apart, disturbed, looks, slower: 0.0 };
    let taken = run(&order, Taken::default(), &mut host);
    (unsettled(&primary(&NAMES, &taken.runs, JUDGING)).is_none(), taken.runs.len())
}

/// The runs that a comparison takes in the middle, and in nine of ten.
fn runs(apart: f64, disturbed: u32, looks: bool) -> [usize; 2] {
    let mut runs: Vec<usize> =
        (1..=200).map(|seed| compare(seed, apart, disturbed, looks).1).collect();
    runs.sort_unstable();
    [runs[100], runs[180]]
}

#[test]
fn a_large_difference_takes_fewer_runs_where_what_is_small_beside_it_is_let_pass() {
    let two = 2_f64.ln();
    let (without, with) = (runs(two, 30, false), runs(two, 30, true));
    println!("30 % disturbed, twice as fast: {without:?} runs, now {with:?}");
    assert!(with[0] < without[0] && with[1] < without[1]);
    // What is as small as a disturbance is judged as ever.
    assert_eq!(runs(0.05, 30, true), runs(0.05, 30, false));
    let quiet = [true, false].map(|looks| runs(two, 0, looks));
    assert!(quiet[0] <= quiet[1], "nor does it cost any where all is quiet: {quiet:?}");
}

#[test]
fn like_variants_are_told_apart_once_in_a_hundred_however_much_disturbs_them() {
    for disturbed in [0, 30, 50, 80] {
        let wrong = (1..=1000).filter(|seed| compare(*seed, 0.0, disturbed, true).0).count();
        println!("{disturbed} % disturbed: {wrong} of 1000 are wrong");
        // One in a hundred and three standard deviations of chance.
        assert!(wrong <= 10 + 9, "{disturbed} % disturbed: {wrong} of 1000");
    }
}
