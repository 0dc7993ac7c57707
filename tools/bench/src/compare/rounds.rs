//! Rounds in turn: each has one run of every variant, in an order drawn anew.
//!
//! A run that does not count is made again within its round, so that what is compared stays close
//! in time. Where rounds run and what the host does meanwhile is behind [`Stage`].

use std::collections::VecDeque;

use weir_bio::Prng;
use weir_trace::document::{Bench, BenchDocument, CommandRun, Control, Run};
use weir_trace::window::ends_by_itself;

use super::judge::{Around, COLD_MOST, cold, disturbed, moving, usual};
use super::summary::counts;

/// How many rounds, of how many variants, in what order.
#[derive(Clone, Debug)]
pub struct Order {
    /// Names of the variants.
    pub variants: Vec<String>,
    /// Rounds that are to count; the most of them where they are open.
    pub rounds: u32,
    /// Whether rounds end as soon as [`Stage::goes_on`] says so.
    pub is_open: bool,
    /// Runs that may be made again, altogether; where rounds are open, in the first [`SURE`].
    pub reruns: u32,
    /// The seed that the order and the runs' seeds are drawn from.
    pub seed: u64,
    /// How long each run measures, seconds, unless it ends by itself.
    pub window_s: f64,
}

/// Open rounds never end before so many: of fewer it is not known which were cold.
pub const SURE: u32 = 5;

impl Order {
    /// In what order the variants of a round run. Of each two rounds one has an order and the other
    /// its reverse: whatever it does to be first, of two variants each is first equally often.
    #[must_use]
    pub fn of_round(&self, round: u32) -> Vec<usize> {
        let place = round.saturating_sub(1);
        let mut pair = Prng::new(self.seed_of_round(u32::MAX - place / 2));
        let mut order = shuffled(self.variants.len(), &mut pair);
        if place % 2 == 1 {
            order.reverse();
        }
        order
    }

    /// The seed of a round's I/O: the same for all variants, another for each round.
    #[must_use]
    pub fn seed_of_round(&self, round: u32) -> u64 {
        Prng::new(self.seed.wrapping_add(u64::from(round))).next()
    }
}

/// The numbers below `count`, in an order drawn at random.
fn shuffled(count: usize, prng: &mut Prng) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    for last in (1..count).rev() {
        order.swap(last, prng.below(last as u64 + 1) as usize);
    }
    order
}

/// How fast a run was, in whatever unit all runs of a comparison have.
fn speed(bench: &Bench) -> f64 {
    let Some(CommandRun { wall_s, figure, .. }) = &bench.command_run else {
        return bench.figures.iops;
    };
    match figure {
        Some(figure) if figure.is_time => 1.0 / figure.value,
        Some(figure) => figure.value,
        None => 1.0 / wall_s,
    }
}

/// The readings of the control at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reading {
    /// How long work of a fixed size took, nanoseconds.
    pub control_ns: f64,
    /// CPU time that the hypervisor kept for others since the machine started, ticks.
    pub stolen: u64,
    /// All CPU time since then, idle too, ticks.
    pub all: u64,
}

impl Reading {
    /// The CPU time that the hypervisor kept since `earlier`, per cent.
    #[must_use]
    pub fn steal_pct_since(&self, earlier: &Reading) -> f64 {
        let all = self.all.saturating_sub(earlier.all);
        let stolen = self.stolen.saturating_sub(earlier.stolen);
        if all == 0 { 0.0 } else { stolen as f64 * 100.0 / all as f64 }
    }
}

/// Why a cold round does not count.
const WARMING_UP: &str = "warming up: the first rounds were far from those that followed";

/// How often a variant is run in one round at most: a bad minute is not to use up all that may be
/// made again.
const ATTEMPTS: usize = 3;

/// Why no more rounds are run.
#[derive(Clone, Debug, PartialEq)]
pub enum Stop {
    /// A signal asked for it.
    Interrupted,
    /// A run failed.
    Failed {
        /// The failure, in words.
        why: String,
        /// Its figures so far, if any.
        measured: Option<Box<BenchDocument>>,
    },
}

/// Where runs are made.
pub trait Stage {
    /// How the host does now. `usual_ns` is what the control usually takes, for an
    /// implementation that waits a little for that.
    fn control(&mut self, usual_ns: Option<f64>) -> Reading;

    /// One run of a variant, with this seed.
    ///
    /// # Errors
    /// Why there is nothing that counts.
    fn run(&mut self, variant: usize, round: u32, seed: u64) -> Result<BenchDocument, Stop>;

    /// Whether open rounds go on after those that these runs are of.
    fn goes_on(&mut self, runs: &[Run]) -> bool;
}

/// The outcome.
#[derive(Clone, Debug, Default)]
pub struct Taken {
    /// Every run, in the order in which they were made.
    pub runs: Vec<Run>,
    /// The readings of the control around each.
    pub control: Vec<Control>,
    /// The CPU time that the hypervisor kept for others from beginning to end, per cent.
    pub steal_pct: f64,
    /// Why it ended early, in words; none if it did not.
    pub stopped: Option<String>,
}

/// Runs all rounds, or those that follow the ones that were taken `earlier`.
pub fn run(order: &Order, earlier: Taken, stage: &mut impl Stage) -> Taken {
    let began = stage.control(None);
    let first = earlier.runs.iter().map(|run| run.round).max().unwrap_or_default() + 1;
    let mut session = Session {
        order,
        stage,
        taken: earlier,
        first,
        reruns: order.reruns,
        readings: vec![began.control_ns],
        moves_by_nature: false,
        last: began,
    };
    let stopped = session.rounds().err();
    let Session { mut taken, last, .. } = session;
    taken.steal_pct = last.steal_pct_since(&began);
    taken.stopped = stopped;
    taken
}

struct Session<'a, S> {
    order: &'a Order,
    stage: &'a mut S,
    taken: Taken,
    /// The first round that is run here.
    first: u32,
    /// Runs that may still be made again.
    reruns: u32,
    /// The times of the control, nanoseconds.
    readings: Vec<f64>,
    /// A run that was made again for that was still moving too: it is what the workload does, and
    /// no longer ramp would help.
    moves_by_nature: bool,
    last: Reading,
}

/// One run of a round, and what was seen around it.
struct Attempt {
    variant: usize,
    /// Where it stands among all runs.
    position: usize,
    around: Around,
    moving: Option<String>,
}

impl<S: Stage> Session<'_, S> {
    fn rounds(&mut self) -> Result<(), String> {
        let end = self.order.rounds;
        for round in self.first..=end {
            let made = round - self.first;
            if self.order.is_open && made > 0 {
                self.leave_out_cold();
                if made >= SURE {
                    // As many as the others had for each of theirs.
                    self.reruns += (self.order.variants.len() as u32).div_ceil(2);
                }
                if made >= SURE && !self.stage.goes_on(&self.taken.runs) {
                    return Ok(());
                }
            }
            self.round(round)?;
        }
        let cold = self.leave_out_cold();
        let missing = if self.order.is_open { 0 } else { cold };
        for more in 1..=missing as u32 {
            self.round(end + more)?;
        }
        Ok(())
    }

    /// Voids the first rounds where they were cold, as far as that is known by now; how many.
    fn leave_out_cold(&mut self) -> usize {
        let first = self.first;
        for run in self.taken.runs.iter_mut().filter(|run| run.round >= first) {
            run.voided.take_if(|why| why == WARMING_UP);
        }
        let levels = self.levels();
        let cold = cold(&levels.iter().map(|(_, level)| *level).collect::<Vec<_>>());
        debug_assert!(cold <= COLD_MOST);
        for run in &mut self.taken.runs {
            if levels[..cold].iter().any(|(round, _)| *round == run.round) && counts(run) {
                run.voided = Some(String::from(WARMING_UP));
            }
        }
        cold
    }

    /// Each round in which all variants count, in order, and how fast it was altogether.
    fn levels(&self) -> Vec<(u32, f64)> {
        let level = |round| {
            let own = self.taken.runs.iter().filter(|run| run.round == round && counts(run));
            let logs: Vec<f64> = own.map(|run| speed(&run.document.bench).ln()).collect();
            let whole = logs.len() == self.order.variants.len();
            let level = whole.then(|| logs.iter().sum::<f64>() / logs.len() as f64)?;
            level.is_finite().then_some((round, level))
        };
        // A first round that is not whole is left out of every comparison anyway.
        let last = self.taken.runs.last().map_or(0, |run| run.round);
        (self.first..=last).filter_map(level).collect()
    }

    fn round(&mut self, round: u32) -> Result<(), String> {
        let mut waiting: VecDeque<usize> = self.order.of_round(round).into();
        let mut attempts: Vec<Attempt> = Vec::new();
        loop {
            let judged = attempts.len();
            while let Some(variant) = waiting.pop_front() {
                let mut attempt = self.attempt(variant, round)?;
                let mut earlier = attempts.iter().filter(|earlier| earlier.variant == variant);
                let moved = earlier.any(|earlier| earlier.moving.is_some());
                self.moves_by_nature |= moved && attempt.moving.is_some();
                attempt.moving.take_if(|_| self.moves_by_nature);
                attempts.push(attempt);
            }
            // The judgement of an attempt stands: what is usual moves with those made since, and
            // one that was voided would come back beside the one made in its place.
            self.judge(&attempts[judged..]);
            let missing = self.order.of_round(round).into_iter().filter(|variant| {
                let own = || attempts.iter().filter(|attempt| attempt.variant == *variant);
                let counted = own().any(|attempt| counts(&self.taken.runs[attempt.position]));
                !counted && own().count() < ATTEMPTS
            });
            waiting = missing.take(self.reruns as usize).collect();
            self.reruns -= waiting.len() as u32;
            if waiting.is_empty() {
                return Ok(());
            }
        }
    }

    fn attempt(&mut self, variant: usize, round: u32) -> Result<Attempt, String> {
        let before = self.stage.control(Some(usual(&self.readings).ns));
        let name = &self.order.variants[variant];
        let outcome = self.stage.run(variant, round, self.order.seed_of_round(round));
        let document = match outcome {
            Ok(document) => document,
            Err(stop) => return Err(self.stopped(name, round, stop)),
        };
        let after = self.stage.control(None);
        self.last = after;
        self.readings.extend([before.control_ns, after.control_ns]);
        let control_ns = before.control_ns.max(after.control_ns);
        let steal_pct = after.steal_pct_since(&before);
        self.taken.control.push(Control { round, ns: control_ns, steal_pct });
        let bench = &document.bench;
        // One that ends by itself has no ramp that could have been too short, and no window.
        let timed = !ends_by_itself(&bench.job);
        let window_s = timed.then_some(bench.duration_s);
        let moving = if timed { moving(&document.series) } else { None };
        let position = self.taken.runs.len();
        self.taken.runs.push(Run { variant: name.clone(), round, voided: None, document });
        let around = Around { control_ns, steal_pct, window_s };
        Ok(Attempt { variant, position, around, moving })
    }

    /// Says of runs that were just made whether they count.
    fn judge(&mut self, attempts: &[Attempt]) {
        let usual = usual(&self.readings);
        for Attempt { position, around, moving, .. } in attempts {
            let run = &mut self.taken.runs[*position];
            let why = disturbed(around, &usual, self.order.window_s).or_else(|| moving.clone());
            let failure = run.document.failure.as_ref().map(|why| format!("failed: {why}"));
            run.voided = failure.or(why);
        }
    }

    fn stopped(&mut self, name: &str, round: u32, stop: Stop) -> String {
        match stop {
            Stop::Interrupted => format!("interrupted in round {round}"),
            Stop::Failed { why, measured } => {
                let why = format!("variant {name}, round {round}: {why}");
                if let Some(document) = measured {
                    let failure = document.failure.clone().unwrap_or_else(|| why.clone());
                    let (voided, failure) = (Some(format!("failed: {failure}")), Some(failure));
                    let document = BenchDocument { partial: true, failure, ..*document };
                    let variant = String::from(name);
                    self.taken.runs.push(Run { variant, round, voided, document });
                }
                why
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::summary::tests::run as run_of;
    use super::*;
    use weir_trace::document::Figure;

    /// A host whose control and runs do as the test says; times stand for themselves.
    #[derive(Default)]
    struct Paper {
        /// The runs made: variant and round.
        ran: Vec<(usize, u32)>,
        readings: u32,
        after_a_run: bool,
        /// Runs, counted from 0, during which the host is busy.
        busy: Vec<usize>,
        /// Runs during which it steals.
        stolen: Vec<usize>,
        /// Runs that are still moving at their start.
        moves: Vec<usize>,
        /// The run from whose end on the host is busy all the time.
        busy_from: Option<usize>,
        /// Rounds that are slow, up to this one and from that on.
        cold: u32,
        slow_from: Option<u32>,
        stop: Option<(usize, Stop)>,
        steal: u64,
        /// Of open rounds, those after which they may end; all until then were asked about.
        enough: Option<u32>,
        /// The rounds after which it was asked whether they go on, and how many counted.
        asked: Vec<(u32, usize)>,
        /// Runs whose command fails.
        fails: Vec<usize>,
        /// How long runs take, seconds, where not as asked, and whether their job ends by itself.
        length: Option<(f64, bool)>,
    }

    impl Stage for Paper {
        fn control(&mut self, _: Option<f64>) -> Reading {
            self.readings += 1;
            let after = std::mem::take(&mut self.after_a_run);
            let busy = after && self.busy.contains(&(self.ran.len() - 1));
            let stays = self.busy_from.is_some_and(|from| self.ran.len() > from);
            let control_ns = if busy || stays { 2000.0 } else { 1000.0 };
            Reading { control_ns, stolen: self.steal, all: 200 * u64::from(self.readings) }
        }

        fn run(&mut self, variant: usize, round: u32, _: u64) -> Result<BenchDocument, Stop> {
            let number = self.ran.len();
            if let Some((at, stop)) = &self.stop
                && *at == number
            {
                return Err(stop.clone());
            }
            self.ran.push((variant, round));
            self.after_a_run = true;
            if self.stolen.contains(&number) {
                self.steal += 60;
            }
            let is_slow = round <= self.cold || self.slow_from.is_some_and(|from| round >= from);
            let slow = if is_slow { 0.5 } else { 1.0 };
            let mut run = run_of("", round, 1000.0 * slow);
            let (length, finite) = self.length.unwrap_or((2.0, false));
            run.document.bench.duration_s = length;
            run.document.failure = self.fails.contains(&number).then(|| String::from("status 1"));
            run.document.bench.job = serde_json::json!({"time_based": !finite});
            run.document.series = vec![weir_trace::document::Sample::default(); 20];
            let moves = self.moves.contains(&number);
            for (n, sample) in run.document.series.iter_mut().enumerate() {
                sample.ios = if moves && n < 3 { 10 } else { 100 };
            }
            Ok(run.document)
        }

        fn goes_on(&mut self, runs: &[Run]) -> bool {
            let last = runs.last().expect("rounds were made").round;
            self.asked.push((last, runs.iter().filter(|run| counts(run)).count()));
            self.enough.is_none_or(|enough| last < enough)
        }
    }

    fn order(rounds: u32) -> Order {
        let variants = ["a", "b"].map(String::from).to_vec();
        Order { variants, rounds, is_open: false, reruns: 4, seed: 1, window_s: 2.0 }
    }

    fn counted(taken: &Taken) -> Vec<(String, u32)> {
        let mut counted: Vec<_> = taken
            .runs
            .iter()
            .filter(|run| counts(run))
            .map(|r| (r.variant.clone(), r.round))
            .collect();
        counted.sort_by_key(|(variant, round)| (*round, variant.clone()));
        counted
    }

    fn all(rounds: impl Iterator<Item = u32>) -> Vec<(String, u32)> {
        rounds.flat_map(|n| [(String::from("a"), n), (String::from("b"), n)]).collect()
    }

    fn reasons(taken: &Taken) -> Vec<&str> {
        taken.runs.iter().filter_map(|run| run.voided.as_deref()).collect()
    }

    #[test]
    fn the_same_seed_gives_the_same_order_and_each_round_one_of_its_own() {
        let order = order(40);
        let orders = |order: &Order| (1..=40).map(|n| order.of_round(n)).collect::<Vec<_>>();
        assert_eq!(orders(&order), orders(&order));
        let a_first = orders(&order).iter().filter(|round| round[0] == 0).count();
        assert_eq!(a_first, 20);
        assert_ne!(orders(&order), orders(&Order { seed: 2, ..order.clone() }));
        assert_ne!(order.seed_of_round(1), order.seed_of_round(2));
        let mut paper = Paper::default();
        let taken = run(&order, Taken::default(), &mut paper);
        let ran: Vec<usize> = paper.ran.iter().map(|(variant, _)| *variant).collect();
        assert_eq!(ran, orders(&order).concat());
        assert_eq!(counted(&taken), all(1..=40));
        assert_eq!(taken.control.len(), 80);
    }

    #[test]
    fn of_two_variants_each_is_first_in_half_of_the_rounds_whatever_the_seed() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 1..=200 {
            let order = Order { seed, ..order(10) };
            let firsts: Vec<usize> = (1..=10).map(|round| order.of_round(round)[0]).collect();
            assert_eq!(firsts.iter().sum::<usize>(), 5, "seed {seed}: {firsts:?}");
            for pair in 0..5 {
                let both = [2 * pair + 1, 2 * pair + 2].map(|round| order.of_round(round)[0]);
                assert_ne!(both[0], both[1], "seed {seed}: an order and its reverse");
            }
            seen.insert(firsts);
        }
        // There are 32 ways to choose which of each two is first.
        assert_eq!(seen.len(), 32);
        let variants: Vec<String> = ["a", "b", "c"].map(String::from).to_vec();
        let three = Order { variants, ..order(40) };
        for first in 0..3 {
            let rounds = (1..=40).filter(|round| three.of_round(*round)[0] == first).count();
            assert!((5..=23).contains(&rounds), "{first} is first in {rounds} of 40");
        }
    }

    #[test]
    fn a_run_that_was_voided_stays_so_where_the_host_stays_busy() {
        // By the third round's second attempts, twice as long has become usual.
        let mut paper = Paper { busy_from: Some(3), ..Paper::default() };
        let taken = run(&Order { reruns: 100, ..order(6) }, Taken::default(), &mut paper);
        assert!(paper.ran.len() > 12, "some were made again: {:?}", paper.ran);
        let counted = counted(&taken);
        let mut once = counted.clone();
        once.dedup();
        assert_eq!(counted, once, "at most one of each variant and round");
        assert_eq!(counted[counted.len() - 6..], all(4..=6), "it is usual by then");
    }

    #[test]
    fn a_disturbed_run_is_voided_said_so_and_made_again_in_its_round() {
        for (paper, word) in [
            (
                Paper { busy: vec![3], ..Paper::default() },
                "control took 100 % longer beside it than usual",
            ),
            (Paper { stolen: vec![3], ..Paper::default() }, "kept 30 % of the CPUs"),
            (Paper { moves: vec![3], ..Paper::default() }, "still moving after the ramp"),
        ] {
            let mut paper = paper;
            let taken = run(&order(5), Taken::default(), &mut paper);
            assert_eq!(reasons(&taken).len(), 1, "{word}: {:?}", reasons(&taken));
            assert!(reasons(&taken)[0].contains(word), "{:?}", reasons(&taken));
            assert_eq!(counted(&taken), all(1..=5), "{word}");
            assert_eq!(paper.ran[3], paper.ran[4], "{word}: at once, before the next round");
            assert_eq!(taken.runs[3].voided.as_deref(), Some(reasons(&taken)[0]));
        }
    }

    #[test]
    fn a_job_that_ends_by_itself_counts_however_long_it_took() {
        let took = |finite: bool| {
            let mut paper = Paper { length: Some((3.7, finite)), ..Paper::default() };
            counted(&run(&order(5), Taken::default(), &mut paper)).len()
        };
        assert_eq!((took(true), took(false)), (10, 0));
    }

    #[test]
    fn runs_are_made_again_only_so_often_and_what_moves_by_nature_counts() {
        let mut paper = Paper { stolen: (0..100).collect(), ..Paper::default() };
        let taken = run(&order(5), Taken::default(), &mut paper);
        assert_eq!(paper.ran.len(), 10 + 4);
        assert_eq!((reasons(&taken).len(), counted(&taken).len()), (14, 0));
        let mut paper = Paper { moves: (0..100).collect(), ..Paper::default() };
        let taken = run(&order(5), Taken::default(), &mut paper);
        assert_eq!(counted(&taken), all(1..=5));
        assert_eq!(paper.ran.len(), 12, "again in the first round alone");
    }

    #[test]
    fn a_run_whose_command_failed_is_voided_with_its_failure_and_made_again() {
        let mut paper = Paper { fails: vec![2], ..Paper::default() };
        let taken = run(&order(3), Taken::default(), &mut paper);
        assert_eq!(taken.stopped, None);
        let voided: Vec<_> = taken.runs.iter().filter(|run| run.voided.is_some()).collect();
        let [failed] = voided[..] else { panic!("{voided:?}") };
        assert_eq!(failed.voided.as_deref(), Some("failed: status 1"));
        let again = |run: &&Run| (&run.variant, run.round) == (&failed.variant, failed.round);
        assert_eq!((taken.runs.iter().filter(again).count(), paper.ran.len()), (2, 7));
    }

    #[test]
    fn how_fast_a_command_was_is_its_figure_or_one_over_its_time() {
        let bench = |figure| Bench {
            command_run: Some(CommandRun { wall_s: 4.0, figure, ..CommandRun::default() }),
            ..Bench::default()
        };
        let figure = |is_time| Some(Figure { value: 5.0, is_time, ..Figure::default() });
        assert_eq!(speed(&bench(None)), 0.25);
        assert_eq!(speed(&bench(figure(false))), 5.0);
        assert_eq!(speed(&bench(figure(true))), 0.2);
    }

    #[test]
    fn cold_first_rounds_are_left_out_and_replaced() {
        let mut paper = Paper { cold: 1, ..Paper::default() };
        let taken = run(&order(6), Taken::default(), &mut paper);
        assert_eq!(counted(&taken), all(2..=7));
        assert!(reasons(&taken).iter().all(|why| why.contains("warming up")), "{taken:?}");
    }

    #[test]
    fn a_cold_round_behind_one_that_is_not_whole_is_the_one_left_out() {
        // All of round 1 is disturbed, as often as it is made; rounds up to 2 are slow.
        let mut paper = Paper { stolen: vec![0, 1, 2, 3, 4, 5], cold: 2, ..Paper::default() };
        let taken = run(&Order { reruns: 100, ..order(8) }, Taken::default(), &mut paper);
        let rounds: Vec<u32> = counted(&taken).iter().map(|(_, round)| *round).collect();
        assert!(!rounds.contains(&1) && !rounds.contains(&2), "{rounds:?}");
        assert_eq!(counted(&taken), all(3..=9));
    }

    fn open(rounds: u32) -> Order {
        Order { is_open: true, ..order(rounds) }
    }

    #[test]
    fn open_rounds_end_when_they_may_and_never_before_five() {
        let mut paper = Paper { enough: Some(8), ..Paper::default() };
        let taken = run(&open(1000), Taken::default(), &mut paper);
        assert_eq!(counted(&taken), all(1..=8));
        assert_eq!(paper.asked, [(5, 10), (6, 12), (7, 14), (8, 16)]);
        let mut paper = Paper { enough: Some(1), ..Paper::default() };
        assert_eq!(counted(&run(&open(1000), Taken::default(), &mut paper)), all(1..=5));
        let mut paper = Paper::default();
        let taken = run(&open(7), Taken::default(), &mut paper);
        assert_eq!(counted(&taken), all(1..=7), "the most there may be");
    }

    #[test]
    fn cold_rounds_are_left_out_before_it_is_asked_whether_open_ones_go_on() {
        let mut paper = Paper { cold: 2, enough: Some(9), ..Paper::default() };
        let taken = run(&open(1000), Taken::default(), &mut paper);
        assert_eq!(paper.asked[0], (5, 6), "two of five are known to be cold");
        assert_eq!(counted(&taken), all(3..=9), "none is made for them");
    }

    #[test]
    fn a_first_round_that_was_taken_for_cold_counts_again_where_later_ones_are_like_it() {
        let slow = || Paper { cold: 1, slow_from: Some(6), ..Paper::default() };
        let mut paper = Paper { enough: Some(5), ..slow() };
        let taken = run(&open(1000), Taken::default(), &mut paper);
        assert_eq!(counted(&taken), all(2..=5), "cold, as far as is known by then");
        let mut paper = Paper { enough: Some(14), ..slow() };
        let taken = run(&open(1000), Taken::default(), &mut paper);
        assert_eq!(counted(&taken), all(1..=14), "the slow ones are the usual ones");
    }

    #[test]
    fn open_rounds_may_be_made_again_as_often_as_others() {
        // Everything is stolen: half as many runs again as there are rounds for.
        let mut paper = Paper { stolen: (0..1000).collect(), enough: Some(12), ..Paper::default() };
        run(&Order { reruns: 5, ..open(1000) }, Taken::default(), &mut paper);
        assert_eq!(paper.ran.len(), 24 + 5 + 7);
    }

    #[test]
    fn rounds_go_on_behind_earlier_ones_in_the_order_of_all() {
        let at_once = run(&order(12), Taken::default(), &mut Paper::default());
        let mut first = run(&order(7), Taken::default(), &mut Paper::default());
        first.stopped = Some(String::from("interrupted in round 7"));
        let earlier = Taken { stopped: None, ..first };
        let mut paper = Paper::default();
        let both = run(&open(12), earlier, &mut paper);
        let ran = |taken: &Taken| {
            taken.runs.iter().map(|run| (run.variant.clone(), run.round)).collect::<Vec<_>>()
        };
        assert_eq!(ran(&both), ran(&at_once));
        assert_eq!((paper.ran.len(), both.control.len(), both.stopped), (10, 24, None));
        // What was cold when it went on is known apart from what was at first.
        let mut paper = Paper { cold: 8, ..Paper::default() };
        let both =
            run(&open(14), run(&order(7), Taken::default(), &mut Paper::default()), &mut paper);
        assert_eq!(counted(&both), [all(1..=7), all(9..=14)].concat());
    }

    #[test]
    fn what_was_taken_before_a_failure_or_an_interruption_is_kept() {
        let failed = Stop::Failed {
            why: String::from("3 I/Os failed: Read: EIO"),
            measured: Some(Box::new(run_of("b", 1, 5.0).document)),
        };
        let mut paper = Paper { stop: Some((5, failed)), ..Paper::default() };
        let taken = run(&order(5), Taken::default(), &mut paper);
        let why = taken.stopped.clone().expect("it stopped");
        assert!(why.contains("round 3: 3 I/Os failed: Read: EIO"), "{why}");
        assert_eq!(taken.runs.len(), 6);
        assert_eq!(counted(&taken)[..4], all(1..=2));
        assert!(reasons(&taken)[0].starts_with("failed: variant"), "{:?}", reasons(&taken));
        let mut paper = Paper { stop: Some((3, Stop::Interrupted)), ..Paper::default() };
        let taken = run(&order(5), Taken::default(), &mut paper);
        assert_eq!(taken.stopped.as_deref(), Some("interrupted in round 2"));
        assert_eq!(taken.runs.len(), 3);
    }
}
