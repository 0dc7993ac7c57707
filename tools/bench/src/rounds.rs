//! The part that comparing benches share: figures over rounds, the machine they ran on, and a
//! control that tells a disturbed round from a quiet one.
//!
//! Rounds of what is compared are interleaved, so that a busy minute hits all of them.

use std::fmt;
use std::time::{Duration, Instant};

use crate::cpu::CpuTime;

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

    /// The smallest value of both.
    #[must_use]
    pub fn least_of(&self, other: &Figure) -> f64 {
        self.least().min(other.least())
    }

    /// The geometric mean, and its standard error as a part of it: what many rounds say of a ratio
    /// that differs much from one to the next.
    ///
    /// # Panics
    /// Without any value.
    #[must_use]
    pub fn geometric_mean(&self) -> (f64, f64) {
        assert!(!self.0.is_empty(), "a figure has a value");
        let count = self.0.len() as f64;
        let mean = self.0.iter().map(|value| value.ln()).sum::<f64>() / count;
        let squares: f64 = self.0.iter().map(|value| (value.ln() - mean).powi(2)).sum();
        let error = (squares / (count - 1.0).max(1.0) / count).sqrt();
        (mean.exp(), error)
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

/// The part of the host that a round needs in order to count. A virtual CPU is often one of the two
/// hardware threads of a core, and the user of the other takes up to half of what the core does.
#[derive(Clone, Copy, Debug)]
pub enum Needs {
    /// This CPU runs as fast as it was ever seen to: it has a core to itself.
    Core(usize),
    /// The first two CPUs run as fast together as each alone: they are not of one core.
    TwoCores,
    /// Nothing but that others leave the CPUs alone: what is measured waits for something else.
    Quiet,
}

impl Needs {
    /// How the host does now: for one core how long work of a fixed size takes, ns; for two how
    /// long it takes on both at once, thousandths of what it takes on each alone.
    fn probe(self) -> u64 {
        match self {
            Needs::Core(cpu) => work_on(cpu).as_nanos() as u64,
            Needs::TwoCores => {
                let alone = [0, 1].map(work_on);
                let both = std::thread::scope(|scope| {
                    [0, 1].map(|cpu| scope.spawn(move || work_on(cpu))).map(|thread| thread.join())
                });
                let slowed = alone.iter().zip(both).map(|(alone, both)| {
                    let both = both.expect("the work does not panic");
                    both.as_nanos() * 1000 / alone.as_nanos().max(1)
                });
                slowed.max().unwrap_or_default() as u64
            }
            Needs::Quiet => 0,
        }
    }

    fn told(self) -> &'static str {
        match self {
            Needs::Core(_) => "a core to themselves",
            Needs::TwoCores => "two cores",
            Needs::Quiet => "quiet",
        }
    }

    /// The most a probe may be, where `best` is the least that was seen.
    fn limit(self, best: u64) -> u64 {
        match self {
            Needs::Core(_) => best * 11 / 10,
            Needs::TwoCores => 1050,
            Needs::Quiet => best,
        }
    }
}

/// Tells a disturbed round from a quiet one: by what others used of the CPUs in it, and by what
/// the host gave before it and after it.
#[derive(Clone, Debug)]
pub struct Control {
    needs: Needs,
    rounds: Vec<Taken>,
    /// The least of all probes.
    best: u64,
    /// Hardly any was quiet.
    all_count: bool,
}

#[derive(Clone, Copy, Debug)]
struct Taken {
    /// Probes before and after it, the larger.
    probe: u64,
    /// CPUs that others kept busy, thousandths of one.
    others: u64,
}

/// CPU time so far.
#[derive(Clone, Copy, Debug)]
struct Ticks {
    /// Of all processes, and the time the host took away.
    all: u64,
    /// Of this process, its children and the servers.
    own: u64,
    at: Instant,
}

/// How much of one CPU others may use before a round counts as disturbed, thousandths.
const OTHERS: u64 = 60;

/// Rounds of the control's arithmetic: some 5 ms.
const WORK: u64 = 1_000_000;

/// With fewer quiet rounds than this, the others count too.
const FEWEST: usize = 3;

/// How often the host is asked whether it gives what a round needs before it is run all the same,
/// and how long between.
const ASKED: u32 = 30;
const BETWEEN: Duration = Duration::from_millis(100);

impl Control {
    /// For rounds that need this.
    #[must_use]
    pub fn new(needs: Needs) -> Control {
        Control { needs, rounds: Vec::new(), best: u64::MAX, all_count: false }
    }

    /// Runs `round` until `wanted` of its rounds were quiet, but at most three times as often, and
    /// a single one once. Returns the quiet rounds, or all where not even three were quiet.
    /// `servers` are processes that work for us in the rounds.
    pub fn rounds<T>(
        &mut self,
        wanted: u32,
        servers: &[u32],
        mut round: impl FnMut(u32) -> T,
    ) -> Vec<T> {
        let (most, asked) = if wanted == 1 { (1, 1) } else { (3 * wanted, ASKED) };
        let mut outcomes = Vec::new();
        while outcomes.len() < most as usize && self.quiet() < wanted as usize {
            let before = self.wait(asked);
            let began = Ticks::now(servers);
            outcomes.push(round(outcomes.len() as u32));
            let others = Ticks::now(servers).others_since(&began);
            let probe = before.max(self.probe());
            self.rounds.push(Taken { probe, others });
        }
        self.all_count = self.quiet() < FEWEST.min(wanted as usize);
        let mut number = 0..;
        outcomes.retain(|_| number.next().is_some_and(|n| self.all_count || self.is_quiet(n)));
        outcomes
    }

    /// Until the host gives what a round needs, or was asked often enough; the last probe.
    fn wait(&mut self, asked: u32) -> u64 {
        let mut probe = self.probe();
        for _ in 1..asked {
            if probe <= self.needs.limit(self.best) {
                break;
            }
            std::thread::sleep(BETWEEN);
            probe = self.probe();
        }
        probe
    }

    fn probe(&mut self) -> u64 {
        let probe = self.needs.probe();
        self.best = self.best.min(probe);
        probe
    }

    fn is_quiet(&self, round: usize) -> bool {
        let Taken { probe, others } = self.rounds[round];
        others <= OTHERS && probe <= self.needs.limit(self.best)
    }

    fn quiet(&self) -> usize {
        (0..self.rounds.len()).filter(|round| self.is_quiet(*round)).count()
    }
}

/// How long work of a fixed size takes now on one CPU. Many independent sums: it takes all a core
/// can do at once, where a single chain of them would not notice that half of the core is gone.
fn work_on(cpu: usize) -> Duration {
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            // Where it cannot be pinned it still tells how busy the machine is.
            let _ = crate::cpu::pin(cpu);
            let began = Instant::now();
            let sums = (0..WORK).fold(std::hint::black_box([1_u64; 8]), |sums, n| {
                sums.map(|sum| (sum ^ n).wrapping_add(sum.rotate_left(23)))
            });
            std::hint::black_box(sums);
            began.elapsed()
        });
        thread.join().expect("the work does not panic")
    })
}

impl fmt::Display for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rounds, quiet) = (self.rounds.len(), self.quiet());
        let counted = if self.all_count { "all count" } else { "they do not count" };
        let (disturbed, what) = (rounds - quiet, self.needs.told());
        write!(
            f,
            "{disturbed} of {rounds} rounds disturbed by others or without {what} ({counted})"
        )
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
/// Interrupts are left out: they belong to no process.
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
    format!("{name}{model}, {count} CPUs, Linux {}", crate::results::document::kernel())
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
    fn a_geometric_mean_comes_with_its_standard_error() {
        let (mean, error) = figure(&[0.5, 2.0, 0.5, 2.0]).geometric_mean();
        assert!((mean - 1.0).abs() < 1e-9, "{mean}");
        // The logarithms are ln 2 off the mean, all four.
        let expected = 2_f64.ln() * (4.0_f64 / 3.0 / 4.0).sqrt();
        assert!((error - expected).abs() < 1e-9, "{error}");
        assert_eq!(figure(&[3.0]).geometric_mean().1, 0.0);
    }

    #[test]
    fn a_ratio_is_taken_round_by_round() {
        let ratio = figure(&[10.0, 1.0]).over(&figure(&[5.0, 4.0]));
        assert_eq!((ratio.least(), ratio.most()), (0.25, 2.0));
    }

    #[test]
    fn a_round_in_which_others_were_busy_or_work_took_longer_is_disturbed() {
        let control = |needs, rounds: &[(u64, u64)]| Control {
            rounds: rounds
                .iter()
                .map(|(probe, others)| Taken { probe: *probe, others: *others })
                .collect(),
            best: rounds.iter().map(|(probe, _)| *probe).min().unwrap_or(u64::MAX),
            ..Control::new(needs)
        };
        let core = Needs::Core(0);
        assert_eq!(control(core, &[(100, 0), (110, OTHERS)]).quiet(), 2);
        assert_eq!(control(core, &[(100, 0), (111, 0), (100, OTHERS + 1)]).quiet(), 1);
        assert_eq!(control(Needs::TwoCores, &[(1001, 0), (1050, 0), (1900, 0)]).quiet(), 2);
    }

    #[test]
    fn rounds_end_when_enough_were_quiet_or_after_three_times_as_many() {
        let mut control = Control::new(Needs::Core(0));
        let outcomes = control.rounds(2, &[], |n| n);
        let rounds = control.rounds.len();
        assert!((2..=6).contains(&rounds), "{rounds}");
        assert_eq!(outcomes.len(), if control.all_count { 6 } else { 2 });
        assert_eq!(control.all_count, control.quiet() < 2);
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
}
