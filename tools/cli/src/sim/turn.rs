//! Cases simulated beside each other, with a bar of how far they are.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use weir_sim::scene::{Case, Outcome, SceneError};

use crate::progress::{Line, SHOWN_FROM_S, bar};
use crate::{Failure, log};

/// How often the bar is drawn anew.
const DRAWN_EVERY: Duration = Duration::from_millis(250);

/// How often it is looked whether all has ended.
const LOOK: Duration = Duration::from_millis(2);

/// Of what takes longer that is said where no bar is seen, seconds.
const SAID_FROM_S: f64 = 20.0;

/// As many cases at once as there are processors, if no number is given.
pub(crate) fn threads(given: Option<u16>, cases: usize) -> usize {
    let available = std::thread::available_parallelism().map_or(1, usize::from);
    given.map_or(available, usize::from).min(cases)
}

/// One case, how much of it is done, and what came of it.
struct Work {
    case: Case,
    passed: Arc<AtomicU64>,
    done: AtomicU64,
    outcome: Mutex<Option<Result<Outcome, SceneError>>>,
}

/// A part of a case in a thousand.
const WHOLE: u64 = 1000;

impl Work {
    fn new(case: Case) -> Work {
        let (passed, done) = (Arc::default(), AtomicU64::new(0));
        Work { case, passed, done, outcome: Mutex::new(None) }
    }

    fn run(&self) {
        let outcome = self.case.run_watched(&self.passed);
        *self.outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
        self.done.store(WHOLE, Ordering::Relaxed);
    }

    fn take(&self) -> Option<Result<Outcome, SceneError>> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn done(&self) -> u64 {
        let passed = self.passed.load(Ordering::Relaxed);
        let part = self.case.takes().map_or(0, |all| passed.min(all) * WHOLE / all.max(1));
        self.done.load(Ordering::Relaxed).max(part)
    }
}

/// How cases are simulated.
pub(crate) struct How {
    /// So many at once.
    pub(crate) threads: usize,
    /// Nothing is said of how far they are.
    pub(crate) quiet: bool,
    /// Becomes true when no more is wanted; cases that are under way are then given up.
    pub(crate) interrupted: Arc<AtomicBool>,
}

/// What came of cases.
pub(crate) struct Turned {
    /// Of each in turn; none of one that was not simulated to its end.
    pub(crate) outcomes: Vec<Option<Outcome>>,
    /// How long it took.
    pub(crate) took: Duration,
}

impl Turned {
    /// Whether some were not simulated to their end.
    pub(crate) fn is_partial(&self) -> bool {
        self.outcomes.iter().any(Option::is_none)
    }
}

/// What all threads look at.
struct Shared {
    all: Vec<Work>,
    next: AtomicUsize,
    /// Threads that have not ended.
    at_work: AtomicUsize,
    interrupted: Arc<AtomicBool>,
}

impl Shared {
    fn work(&self) {
        let _end = End(self);
        while !self.interrupted.load(Ordering::Acquire)
            && let Some(one) = self.all.get(self.next.fetch_add(1, Ordering::Relaxed))
        {
            one.run();
        }
    }
}

/// A thread ends when it is dropped, in a panic too.
struct End<'a>(&'a Shared);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.at_work.fetch_sub(1, Ordering::Release);
    }
}

/// Simulates each case by itself.
///
/// # Errors
/// A figure of a host outside its bound.
pub(crate) fn run_all(cases: Vec<Case>, how: &How) -> Result<Turned, Failure> {
    let shared = Shared {
        all: cases.into_iter().map(Work::new).collect(),
        next: AtomicUsize::new(0),
        at_work: AtomicUsize::new(0),
        interrupted: Arc::clone(&how.interrupted),
    };
    turn(&Arc::new(shared), how)
}

fn turn(shared: &Arc<Shared>, how: &How) -> Result<Turned, Failure> {
    let begun = Instant::now();
    let mut threads = Vec::new();
    for number in 0..how.threads {
        let of_thread = Arc::clone(shared);
        shared.at_work.fetch_add(1, Ordering::Relaxed);
        match std::thread::Builder::new().spawn(move || of_thread.work()) {
            Ok(thread) => threads.push(thread),
            // Where the system has no more threads, fewer do the same.
            Err(error) => {
                shared.at_work.fetch_sub(1, Ordering::Relaxed);
                if number == 0 {
                    return Err(Failure::Bad(format!("a thread: {error}")));
                }
                break;
            }
        }
    }
    let mut told = Told { line: Line::new(how.quiet), quiet: how.quiet, has_said: false };
    let mut drawn = begun;
    while shared.at_work.load(Ordering::Acquire) > 0 && !shared.interrupted.load(Ordering::Acquire)
    {
        std::thread::sleep(LOOK);
        if drawn.elapsed() >= DRAWN_EVERY {
            drawn = Instant::now();
            told.tell(&shared.all, begun.elapsed().as_secs_f64());
        }
    }
    told.line.end();
    // One that is in a case is not waited for: the process ends soon.
    let ended = threads.into_iter().filter(std::thread::JoinHandle::is_finished);
    let joined = ended.map(std::thread::JoinHandle::join).all(|thread| thread.is_ok());
    assert!(joined, "a case of a scene panicked");
    let outcomes = shared.all.iter().map(|one| one.take().transpose());
    let outcomes = outcomes.collect::<Result<Vec<_>, _>>().map_err(super::subject::refused)?;
    Ok(Turned { outcomes, took: begun.elapsed() })
}

/// Says how far it is.
struct Told {
    line: Line,
    quiet: bool,
    /// The estimate was said where no line is seen.
    has_said: bool,
}

impl Told {
    fn tell(&mut self, all: &[Work], took_s: f64) {
        let done = all.iter().map(Work::done).sum();
        let whole = all.len() as u64 * WHOLE;
        let Some(text) = text(done, whole, all.len(), took_s) else { return };
        if self.line.is_seen() {
            self.line.show(&text);
        } else if let Some(text) = estimate(done, whole, all.len(), took_s)
            && !self.quiet
            && !std::mem::replace(&mut self.has_said, true)
        {
            log::say(&text);
        }
    }
}

/// What is said once of what takes long, after so much of it that the rest can be estimated.
fn estimate(done: u64, whole: u64, cases: usize, took_s: f64) -> Option<String> {
    let all_s = took_s * whole as f64 / done.max(1) as f64;
    let is_known = done >= WHOLE || took_s > 5.0 && done > 0;
    (is_known && all_s > SAID_FROM_S).then(|| format!("{cases} cases take some {all_s:.0} s"))
}

/// What the bar says; nothing of what does not take long.
fn text(done: u64, whole: u64, cases: usize, took_s: f64) -> Option<String> {
    let cases = if cases == 1 { String::from("1 case") } else { format!("{cases} cases") };
    if done == 0 {
        // Of a case that lasts until its processes have finished nothing is known before its end.
        return (took_s > SHOWN_FROM_S).then(|| format!("{}  {cases}", bar(0, whole)));
    }
    let all_s = took_s * whole as f64 / done as f64;
    let left_s = all_s - took_s;
    (all_s > SHOWN_FROM_S)
        .then(|| format!("{}  {cases}, some {left_s:.0} s left", bar(done, whole)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A host for so long.
    fn case(time: &str) -> Case {
        let text = format!("[process.r]\ndepth = 64\n[run]\ntime = \"{time}\"\n");
        let custom = weir_sim::scene::Custom::parse(&text, "host.toml").expect("a host");
        custom.cases(1).expect("a case").remove(0)
    }

    #[test]
    fn what_was_simulated_when_no_more_is_wanted_is_kept_and_the_rest_is_given_up() {
        let interrupted = Arc::new(AtomicBool::new(false));
        let how = How { threads: 1, quiet: true, interrupted: Arc::clone(&interrupted) };
        let shared = Arc::new(Shared {
            // The second would take minutes: its thread ends with the process.
            all: ["1ms", "1000s"].map(|time| Work::new(case(time))).into(),
            next: AtomicUsize::new(0),
            at_work: AtomicUsize::new(0),
            interrupted: Arc::clone(&interrupted),
        });
        let seen = Arc::clone(&shared);
        let until = std::thread::spawn(move || {
            // The first is kept before the second is begun.
            while seen.next.load(Ordering::Acquire) < 2 {
                std::thread::yield_now();
            }
            interrupted.store(true, Ordering::Release);
        });
        let turned = turn(&shared, &how).expect("a thread");
        until.join().expect("it ends");
        assert!(turned.is_partial());
        let ios = |one: &Option<Outcome>| one.as_ref().map(|one| one.requests > 0);
        assert_eq!(turned.outcomes.iter().map(ios).collect::<Vec<_>>(), [Some(true), None]);
        let whole = How { threads: 2, quiet: true, interrupted: Arc::default() };
        let turned = run_all(vec![case("1ms"), case("2ms"), case("3ms")], &whole).expect("threads");
        assert!(!turned.is_partial() && turned.outcomes.len() == 3);
    }

    #[test]
    fn what_takes_long_is_said_once_a_case_is_through() {
        assert_eq!(estimate(999, 8_000_000, 8000, 0.4), None, "no case is through");
        let told = estimate(1000, 8_000_000, 8000, 0.4).expect("one is");
        assert_eq!(told, "8000 cases take some 3200 s");
        assert_eq!(estimate(1000, 8_000, 8, 0.4), None, "3.2 s are not long");
        assert_eq!(estimate(0, 1000, 1, 60.0), None, "nothing is known");
        assert_eq!(estimate(100, 1000, 1, 6.0).as_deref(), Some("1 cases take some 60 s"));
    }

    #[test]
    fn the_bar_has_an_estimate_and_is_of_what_takes_longer_than_two_seconds() {
        assert_eq!(text(500, 1000, 1, 0.9), None);
        assert_eq!(text(0, 1000, 1, 1.9), None);
        let none = text(0, 1000, 1, 2.1).expect("it takes longer");
        assert_eq!(none, "[....................]   0 %  1 case", "nothing is known of the rest");
        let half = text(500, 1000, 1, 3.0).expect("it takes six");
        assert_eq!(half, "[##########..........]  50 %  1 case, some 3 s left");
        let all = text(3000, 3000, 3, 9.0).expect("it took nine");
        assert_eq!(all, "[####################] 100 %  3 cases, some 0 s left");
    }
}
