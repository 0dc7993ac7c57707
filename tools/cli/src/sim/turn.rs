//! Cases simulated beside each other, with a bar of how far they are.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use weir_sim::scene::{Case, Outcome, SceneError};

use crate::progress::{Line, SHOWN_FROM_S, bar};

/// How often the bar is drawn anew.
const DRAWN_EVERY: Duration = Duration::from_millis(250);

/// As many cases at once as there are processors, if no number is given.
pub(crate) fn threads(given: Option<u16>, cases: usize) -> usize {
    let available = std::thread::available_parallelism().map_or(1, usize::from);
    given.map_or(available, usize::from).min(cases)
}

/// One case, and how much of it is done.
struct Work<'a> {
    case: &'a Case,
    passed: Arc<AtomicU64>,
    done: AtomicU64,
}

/// A part of a case in a thousand.
const WHOLE: u64 = 1000;

impl Work<'_> {
    fn run(&self) -> Result<Outcome, SceneError> {
        let outcome = self.case.run_watched(&self.passed);
        self.done.store(WHOLE, Ordering::Relaxed);
        outcome
    }

    fn done(&self) -> u64 {
        let passed = self.passed.load(Ordering::Relaxed);
        let part = self.case.takes().map_or(0, |all| passed.min(all) * WHOLE / all.max(1));
        self.done.load(Ordering::Relaxed).max(part)
    }
}

/// Simulates each case by itself; the outcomes in the order of the cases, and how long it took.
///
/// # Errors
/// A figure of a host outside its bound.
pub(crate) fn run_all(
    cases: &[Case],
    threads: usize,
    quiet: bool,
) -> Result<(Vec<Outcome>, Duration), SceneError> {
    let begun = Instant::now();
    let of = |case| Work { case, passed: Arc::default(), done: AtomicU64::new(0) };
    let all: Vec<Work<'_>> = cases.iter().map(of).collect();
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(vec![None; cases.len()]);
    let work = || {
        while let index = next.fetch_add(1, Ordering::Relaxed)
            && let Some(one) = all.get(index)
        {
            let outcome = one.run();
            outcomes.lock().expect("no thread has panicked")[index] = Some(outcome);
        }
    };
    let mut line = Line::new(quiet);
    let ended = (Mutex::new(false), Condvar::new());
    std::thread::scope(|scope| {
        // Where the system has no more threads, fewer do the same.
        let spawned =
            (1..threads).map_while(|_| std::thread::Builder::new().spawn_scoped(scope, work).ok());
        let others: Vec<_> = spawned.collect();
        if line.is_seen() {
            let draw = || draw(&mut line, &all, begun, &ended);
            let _ = std::thread::Builder::new().spawn_scoped(scope, draw);
        }
        let _end = End(&ended);
        work();
        let joined = others.into_iter().all(|other| other.join().is_ok());
        assert!(joined, "a case of a scene panicked");
    });
    line.end();
    let outcomes = outcomes.into_inner().expect("no thread has panicked");
    let outcomes = outcomes.into_iter().map(|outcome| outcome.expect("each case is simulated"));
    Ok((outcomes.collect::<Result<_, _>>()?, begun.elapsed()))
}

/// Ends the drawing when it is dropped, in a panic too.
struct End<'a>(&'a (Mutex<bool>, Condvar));

impl Drop for End<'_> {
    fn drop(&mut self) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.1.notify_all();
    }
}

/// Draws the bar until all has ended.
fn draw(line: &mut Line, all: &[Work<'_>], begun: Instant, ended: &(Mutex<bool>, Condvar)) {
    let (has_ended, bell) = ended;
    let mut held = has_ended.lock().expect("no thread has panicked");
    while !*held {
        let waited = bell.wait_timeout(held, DRAWN_EVERY);
        held = waited.expect("no thread has panicked").0;
        let done = all.iter().map(Work::done).sum();
        let whole = all.len() as u64 * WHOLE;
        if let Some(text) = text(done, whole, all.len(), begun.elapsed().as_secs_f64()) {
            line.show(&text);
        }
    }
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
