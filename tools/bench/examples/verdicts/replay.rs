//! Comparisons made of recorded rounds, by the code that makes those of `weir compare`.
//!
//! Rounds, their order, cold ones and verdicts are those of [`weir_bench::compare`]: here is a
//! stage on which a run is one that was made before. The run that was first in its round goes to
//! the variant that is first in the drawn order, so that sides are swapped at random and what it
//! does to be second stays with the second.

use std::sync::atomic::{AtomicU32, Ordering};

use weir_bench::compare::interval::Looks;
use weir_bench::compare::rounds::{self, Order, Reading, Stage, Stop, Taken};
use weir_bench::compare::summary::{Judging, by_primary, differs, primary, unsettled, verdicts};
use weir_bio::Prng;
use weir_trace::document::{BenchDocument, Compare, Run};

use crate::Drawing;
use crate::saved::Recorded;

/// The names of the two.
const NAMES: [&str; 2] = ["a", "b"];

/// What stands for the length of every run, seconds: all of a disk have one.
const WINDOW_S: f64 = 1.0;

/// Which verdicts of a comparison were ever that the two differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    pub primary: bool,
    pub any: bool,
}

/// How a comparison ended that stops when it has decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Whether the metric that was asked about differs.
    pub is_found: bool,
    /// Rounds made.
    pub rounds: u32,
}

/// Where runs are recorded ones.
struct Recording<'a> {
    rounds: &'a [[BenchDocument; 2]],
    prng: Prng,
    /// The round that was drawn, while its second run is still to be made.
    drawn: Option<usize>,
    /// Changes the runs of the second variant.
    plant: &'a dyn Fn(&mut BenchDocument),
    /// Told the runs after a round; whether there is to be another.
    look: &'a mut dyn FnMut(&[Run]) -> bool,
}

impl Stage for Recording<'_> {
    fn control(&mut self, _: Option<f64>) -> Reading {
        // Runs that were disturbed are not among those recorded.
        Reading { control_ns: 1.0, ..Reading::default() }
    }

    fn run(&mut self, variant: usize, _: u32, _: u64) -> Result<BenchDocument, Stop> {
        let (round, place) = match self.drawn.take() {
            Some(round) => (round, 1),
            None => (self.prng.below(self.rounds.len() as u64) as usize, 0),
        };
        self.drawn = (place == 0).then_some(round);
        let mut run = self.rounds[round][place].clone();
        run.bench.duration_s = WINDOW_S;
        if variant == 1 {
            (self.plant)(&mut run);
        }
        Ok(run)
    }

    fn goes_on(&mut self, runs: &[Run]) -> bool {
        (self.look)(runs)
    }
}

/// One comparison of drawn rounds; its runs.
fn compare(
    recorded: &[[BenchDocument; 2]],
    most: u32,
    seed: u64,
    plant: &dyn Fn(&mut BenchDocument),
    look: &mut dyn FnMut(&[Run]) -> bool,
) -> Vec<Run> {
    let mut prng = Prng::new(seed);
    let order = Order {
        variants: NAMES.map(String::from).to_vec(),
        rounds: most,
        is_open: true,
        reruns: 0,
        seed: prng.next(),
        window_s: WINDOW_S,
    };
    let mut stage = Recording { rounds: recorded, prng, drawn: None, plant, look };
    rounds::run(&order, Taken::default(), &mut stage).runs
}

/// Looks at all metrics after each round, and never ends before the last.
pub fn never_stopping(
    disk: &Recorded,
    drawing: &Drawing,
    comparisons: u32,
) -> Result<Vec<Seen>, String> {
    let judging = Judging { looks: Looks::AnyTime, ..Judging::default() };
    each(disk, drawing, comparisons, |seed| {
        let mut seen = Seen::default();
        let mut look = |runs: &[Run]| {
            let compare = verdicts(&NAMES, runs, judging);
            seen.primary |= by_primary(&compare).any(differs);
            seen.any |= compare.comparisons.iter().any(differs);
            !seen.primary
        };
        let runs = compare(&disk.rounds, drawing.rounds, seed, &|_| {}, &mut look);
        look(&runs);
        seen
    })
}

/// Ends when the primary metric has decided, as `weir compare` does. `primary` is that metric where
/// another is chosen than the job's own, and `asked` the one whose verdict is looked at.
pub fn stopping(
    disk: &Recorded,
    drawing: &Drawing,
    comparisons: u32,
    [chosen, asked]: [Option<&str>; 2],
    plant: &(dyn Fn(&mut BenchDocument) + Sync),
) -> Result<Vec<Ended>, String> {
    let judging = Judging { looks: Looks::AnyTime, metric: chosen, ..Judging::default() };
    each(disk, drawing, comparisons, |seed| {
        let mut look = |runs: &[Run]| unsettled(&primary(&NAMES, runs, judging)).is_some();
        let runs = compare(&disk.rounds, drawing.rounds, seed, plant, &mut look);
        let compare: Compare = verdicts(&NAMES, &runs, judging);
        let asked = asked.unwrap_or(&compare.metric);
        let mut own = compare.comparisons.iter().filter(|found| found.metric == asked);
        let rounds = runs.iter().map(|run| run.round).max().unwrap_or_default();
        Ended { is_found: own.any(differs), rounds }
    })
}

/// Makes so many comparisons, each from a seed of its own, on all CPUs.
fn each<T: Send>(
    disk: &Recorded,
    drawing: &Drawing,
    comparisons: u32,
    one: impl Fn(u64) -> T + Sync,
) -> Result<Vec<T>, String> {
    if disk.rounds.is_empty() {
        return Err(format!("{}: no round of it counts", disk.name));
    }
    let next = AtomicU32::new(0);
    let work = || {
        let mut made = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= comparisons {
                return made;
            }
            made.push(one(Prng::new(drawing.randseed.wrapping_add(u64::from(number))).next()));
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    Ok(std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let made = threads.into_iter().flat_map(|thread| thread.join().expect("no panic"));
        made.collect()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn drawing(rounds: u32) -> Drawing {
        Drawing { folder: PathBuf::new(), rounds, randseed: 7 }
    }

    /// Rounds whose runs differ by noise of a few per cent and by what it does to be second.
    fn disk(second: f64) -> Recorded {
        let mut prng = Prng::new(3);
        let mut run = |by: f64| {
            let noise: f64 = (0..6).map(|_| prng.below(1000) as f64 / 1000.0).sum::<f64>() - 3.0;
            let mut run = BenchDocument::default();
            run.bench.figures.iops = 1000.0 * by * (0.03 * noise).exp();
            run.bench.cpu.ns_per_io = Some(500.0);
            run
        };
        let rounds = (0..60).map(|_| [run(1.0), run(second)]).collect();
        Recorded { rounds, ..Recorded::default() }
    }

    fn found(ended: &[Ended]) -> usize {
        ended.iter().filter(|one| one.is_found).count()
    }

    #[test]
    fn recorded_rounds_of_like_variants_hardly_ever_differ_even_where_the_second_is_slower() {
        for second in [1.0, 0.8] {
            let seen = never_stopping(&disk(second), &drawing(12), 400).expect("rounds");
            let wrong = seen.iter().filter(|one| one.any).count();
            assert!(wrong <= 14, "{second}: {wrong} of 400");
        }
    }

    #[test]
    fn a_difference_that_is_planted_is_found_and_ends_the_comparison() {
        let plant = |run: &mut BenchDocument| run.bench.figures.iops *= 1.3;
        let ended = stopping(&disk(1.0), &drawing(20), 100, [None; 2], &plant).expect("rounds");
        assert!(found(&ended) >= 95, "{ended:?}");
        assert!(ended.iter().filter(|one| one.is_found).all(|one| one.rounds < 20), "{ended:?}");
        let ended = stopping(&disk(1.0), &drawing(20), 100, [None; 2], &|_| {}).expect("rounds");
        assert!(found(&ended) <= 5 && ended.iter().any(|one| one.rounds == 20), "{ended:?}");
    }

    #[test]
    fn a_round_is_drawn_whole() {
        let mut numbered = disk(1.0);
        for (number, round) in numbered.rounds.iter_mut().enumerate() {
            round[0].bench.seed = 2 * number as u64;
            round[1].bench.seed = 2 * number as u64 + 1;
        }
        let runs = compare(&numbered.rounds, 12, 5, &|_| {}, &mut |_| true);
        assert_eq!(runs.len(), 24);
        for pair in runs.chunks(2) {
            let [first, second] = [&pair[0], &pair[1]].map(|run| run.document.bench.seed);
            assert_eq!((first % 2, second), (0, first + 1));
            assert_eq!(pair[0].round, pair[1].round);
        }
        assert!(runs.iter().step_by(2).any(|run| run.variant == "b"), "sides are swapped");
    }
}
