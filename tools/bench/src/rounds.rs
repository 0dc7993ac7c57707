//! What the comparing benches share: arguments, figures over rounds, the machine they ran on, and
//! a control that tells a disturbed round from a quiet one.
//!
//! Rounds of what is compared are interleaved, so that a busy minute hits all of them.

use std::fmt;
use std::time::{Duration, Instant};

use crate::cpu::CpuTime;

/// The arguments of a bench, and whether it is to run small.
#[derive(Clone, Debug)]
pub struct Arguments {
    words: Vec<String>,
    small: bool,
}

impl Arguments {
    /// Those of this process. `WEIR_BENCH=small` asks for a run that only shows that it still runs.
    #[must_use]
    pub fn of_process() -> Arguments {
        let small = std::env::var("WEIR_BENCH").is_ok_and(|size| size == "small");
        Arguments { words: std::env::args().skip(1).collect(), small }
    }

    /// The word behind the flag `name`.
    #[must_use]
    pub fn word(&self, name: &str) -> Option<&str> {
        let at = self.words.iter().position(|word| word == name)?;
        self.words.get(at + 1).map(String::as_str)
    }

    /// The number behind the flag `name`, or `full`; `small` in a small run.
    ///
    /// # Panics
    /// When it is not a number.
    #[must_use]
    pub fn number(&self, name: &str, full: u32, small: u32) -> u32 {
        let default = if self.small { small } else { full };
        self.word(name).map_or(default, |text| {
            text.parse().unwrap_or_else(|_| panic!("{name} {text} is not a number"))
        })
    }

    /// Whether the flag `name` is there.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.words.iter().any(|word| word == name)
    }
}

/// One figure over all rounds.
#[derive(Clone, Debug, Default)]
pub struct Figure(Vec<f64>);

impl Figure {
    /// Adds a round's value.
    pub fn add(&mut self, value: f64) {
        self.0.push(value);
    }

    /// The middle value; of an even number, the higher of the two.
    ///
    /// # Panics
    /// Without any value.
    #[must_use]
    pub fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted[sorted.len() / 2]
    }

    /// The smallest value.
    #[must_use]
    pub fn least(&self) -> f64 {
        self.0.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// The largest value.
    #[must_use]
    pub fn most(&self) -> f64 {
        self.0.iter().copied().fold(f64::NEG_INFINITY, f64::max)
    }

    /// Round by round, this over `other`.
    #[must_use]
    pub fn over(&self, other: &Figure) -> Figure {
        Figure(self.0.iter().zip(&other.0).map(|(own, other)| own / other).collect())
    }
}

impl fmt::Display for Figure {
    /// `median (least..most)`, with the formatter's precision.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places = f.precision().unwrap_or(0);
        let (median, least, most) = (self.median(), self.least(), self.most());
        write!(f, "{median:.places$} ({least:.places$}..{most:.places$})")
    }
}

/// Tells a disturbed round from a quiet one: by what others used of the CPUs in it, and by how long
/// work of a fixed size took before it.
#[derive(Clone, Debug, Default)]
pub struct Control {
    rounds: Vec<Taken>,
    /// Too few were quiet.
    all_count: bool,
}

#[derive(Clone, Copy, Debug)]
struct Taken {
    /// Of the work of fixed size.
    work: Duration,
    /// CPUs that others kept busy, thousandths of one.
    others: u64,
}

/// CPU time so far.
#[derive(Clone, Copy, Debug)]
struct Ticks {
    /// Of everybody, and what the host took away.
    all: u64,
    /// Of this process, its children and the servers.
    own: u64,
    at: Instant,
}

/// How much longer the work may take than at best, percent, before its round counts as disturbed.
const SLOWER: u32 = 10;

/// How much of one CPU others may use before a round counts as disturbed, thousandths.
const OTHERS: u64 = 60;

/// Rounds of the control's arithmetic: some 20 ms.
const WORK: u64 = 10_000_000;

impl Control {
    /// Runs `round` until `wanted` of its rounds were quiet, but at most three times as often, and
    /// a single one once. What is returned is of the quiet rounds, or of all where too few were.
    /// `servers` are processes that work for us in the rounds.
    pub fn rounds<T>(
        &mut self,
        wanted: u32,
        servers: &[u32],
        mut round: impl FnMut(u32) -> T,
    ) -> Vec<T> {
        let most = if wanted == 1 { 1 } else { 3 * wanted };
        let mut outcomes = Vec::new();
        while outcomes.len() < most as usize && self.quiet() < wanted as usize {
            let work = work();
            let began = Ticks::now(servers);
            outcomes.push(round(outcomes.len() as u32));
            let others = Ticks::now(servers).others_since(&began);
            self.rounds.push(Taken { work, others });
        }
        self.all_count = self.quiet() < wanted as usize;
        let mut number = 0..;
        outcomes.retain(|_| number.next().is_some_and(|n| self.all_count || self.is_quiet(n)));
        outcomes
    }

    fn is_quiet(&self, round: usize) -> bool {
        let best = self.rounds.iter().map(|taken| taken.work).min().unwrap_or_default();
        let Taken { work, others } = self.rounds[round];
        others <= OTHERS && work <= best * (100 + SLOWER) / 100
    }

    fn quiet(&self) -> usize {
        (0..self.rounds.len()).filter(|round| self.is_quiet(*round)).count()
    }
}

/// How long work of a fixed size takes now.
fn work() -> Duration {
    let began = Instant::now();
    let sum = (0..std::hint::black_box(WORK))
        .fold(1, |sum: u64, n| (sum ^ n).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23));
    std::hint::black_box(sum);
    began.elapsed()
}

impl fmt::Display for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rounds, quiet) = (self.rounds.len(), self.quiet());
        let counted = if self.all_count { "all count" } else { "they do not count" };
        write!(f, "{} of {rounds} rounds disturbed by others ({counted})", rounds - quiet)
    }
}

impl Ticks {
    fn now(servers: &[u32]) -> Ticks {
        let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let servers = servers.iter().filter_map(|pid| CpuTime::of(*pid));
        let time: Duration = servers.map(|time| time.total()).sum();
        let time = time + CpuTime::of_process().total() + CpuTime::of_children().total();
        let per_second = rustix::param::clock_ticks_per_second();
        let own = time.as_millis() as u64 * per_second / 1000;
        Ticks { all: busy(&stat), own, at: Instant::now() }
    }

    fn others_since(&self, earlier: &Ticks) -> u64 {
        let others = (self.all - earlier.all).saturating_sub(self.own.saturating_sub(earlier.own));
        let per_second = rustix::param::clock_ticks_per_second();
        let wall = (self.at - earlier.at).as_millis().max(1) as u64;
        others * 1_000_000 / per_second / wall
    }
}

/// Ticks that all CPUs together were busy: user, nice, system and stolen (proc(5), `/proc/stat`).
/// Interrupts are left out: they belong to nobody.
fn busy(stat: &str) -> u64 {
    let fields: Vec<u64> = stat
        .lines()
        .next()
        .into_iter()
        .flat_map(|line| line.split_whitespace().skip(1))
        .map_while(|field| field.parse().ok())
        .collect();
    [0, 1, 2, 7].iter().filter_map(|field| fields.get(*field)).sum()
}

/// The machine: processor, CPUs, kernel.
#[must_use]
pub fn machine() -> String {
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let named = |key: &str| {
        let line = cpus.lines().find(|line| line.starts_with(key))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let name = named("model name").unwrap_or_else(|| "unknown processor".into());
    let model = named("model\t").map_or_else(String::new, |model| format!(" (model {model})"));
    let count = cpus.lines().filter(|line| line.starts_with("processor")).count();
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{name}{model}, {count} CPUs, Linux {}", kernel.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(values: &[f64]) -> Figure {
        Figure(values.to_vec())
    }

    #[test]
    fn a_figure_is_told_with_its_spread() {
        let figure = figure(&[3.0, 1.25, 2.0]);
        assert_eq!(format!("{figure:.1}"), "2.0 (1.2..3.0)");
        assert_eq!(figure.median(), 2.0);
    }

    #[test]
    fn a_ratio_is_taken_round_by_round() {
        let ratio = figure(&[10.0, 1.0]).over(&figure(&[5.0, 4.0]));
        assert_eq!((ratio.least(), ratio.most()), (0.25, 2.0));
    }

    #[test]
    fn a_round_in_which_others_were_busy_or_work_took_longer_is_disturbed() {
        let taken = |work, others| Taken { work: Duration::from_millis(work), others };
        let control = |rounds: &[Taken]| Control { rounds: rounds.to_vec(), all_count: false };
        assert_eq!(control(&[taken(100, 0), taken(105, OTHERS)]).quiet(), 2);
        assert_eq!(control(&[taken(100, 0), taken(115, 0), taken(100, OTHERS + 1)]).quiet(), 1);
    }

    #[test]
    fn rounds_end_when_enough_were_quiet_or_after_three_times_as_many() {
        let mut control = Control::default();
        let outcomes = control.rounds(2, &[], |n| n);
        let rounds = control.rounds.len();
        assert!((2..=6).contains(&rounds), "{rounds}");
        assert_eq!(outcomes.len(), if control.all_count { 6 } else { 2 });
    }

    #[test]
    fn what_others_used_is_what_is_left_of_all() {
        let at = Instant::now();
        let later = at + Duration::from_secs(2);
        let per_second = rustix::param::clock_ticks_per_second();
        let began = Ticks { all: 5, own: 1, at };
        let ended = Ticks { all: 5 + 3 * per_second, own: 1 + 2 * per_second, at: later };
        assert_eq!(ended.others_since(&began), 500, "half a CPU");
        assert_eq!(busy("cpu  1 20 300 4000 5 6 7 80000 9 10\ncpu0 1 1 1"), 80321);
    }

    #[test]
    fn arguments_are_found_behind_their_flags() {
        let words = ["--rounds", "3", "--quick"].map(String::from).to_vec();
        let arguments = Arguments { words, small: true };
        assert_eq!(arguments.number("--rounds", 7, 1), 3);
        assert_eq!(arguments.number("--seconds", 7, 1), 1);
        assert!(arguments.has("--quick") && !arguments.has("--slow"));
    }
}
