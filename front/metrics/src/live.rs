//! What the live page shows: one event a second, made once for all who watch.
//!
//! No thread of its own makes it: of the watchers, the one that first finds the last event a second
//! old does, and the others get the same text. Without a watcher nothing is made.

mod scene;

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use weir_control::{Census, Tree};

/// Watchers at one time; a further one is refused. They leave room among the peers for scrapers.
pub const WATCHERS_MAX: usize = 16;

/// Time between two events.
const BEAT: Duration = Duration::from_secs(1);

/// After so long without watchers the figures are of no use to compare with.
const STALE: Duration = Duration::from_secs(3);

/// The events of a server.
#[derive(Default)]
pub(crate) struct Live {
    state: Mutex<State>,
    made: Condvar,
}

#[derive(Default)]
struct State {
    watchers: usize,
    before: Option<(Instant, Census)>,
    /// With its number.
    event: Option<(u64, Arc<str>)>,
    /// One of the watchers reads the figures.
    making: bool,
}

/// A place among the watchers, given back when it is dropped.
pub(crate) struct Watcher<'a> {
    live: &'a Live,
    /// The number of the last event it had.
    seen: u64,
}

impl Live {
    /// A place among the watchers; `None` if all are taken.
    pub(crate) fn enter(&self) -> Option<Watcher<'_>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.watchers >= WATCHERS_MAX {
            return None;
        }
        state.watchers += 1;
        let seen = state.event.as_ref().map_or(0, |(number, _)| *number);
        Some(Watcher { live: self, seen })
    }
}

impl Drop for Watcher<'_> {
    fn drop(&mut self) {
        self.live.state.lock().unwrap_or_else(PoisonError::into_inner).watchers -= 1;
    }
}

/// An event that is being made. One who does not come to its end leaves it to another.
struct Unmade<'a>(Option<&'a Live>);

impl Drop for Unmade<'_> {
    fn drop(&mut self) {
        if let Some(live) = self.0 {
            live.state.lock().unwrap_or_else(PoisonError::into_inner).making = false;
        }
    }
}

impl Watcher<'_> {
    /// The next event, within two beats; `None` once `over` says so.
    pub(crate) fn next(&mut self, tree: &Tree, over: impl Fn() -> bool) -> Option<Arc<str>> {
        let live = self.live;
        let mut state = live.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if over() {
                return None;
            }
            if let Some((number, event)) = &state.event
                && *number > self.seen
            {
                self.seen = *number;
                return Some(Arc::clone(event));
            }
            let now = Instant::now();
            let age = state.before.as_ref().map(|(at, _)| now.saturating_duration_since(*at));
            let due = age.is_none_or(|age| age >= BEAT);
            if due && !state.making {
                state.making = true;
                let before = state.before.take().filter(|_| age.is_some_and(|age| age < STALE));
                drop(state);
                let mut unmade = Unmade(Some(live));
                let census = tree.census();
                let at = Instant::now();
                let text = before.map(|(then, before)| {
                    let seconds = at.saturating_duration_since(then).as_secs_f64();
                    Arc::from(format!("data: {}\n\n", scene::between(&before, &census, seconds)))
                });
                state = live.state.lock().unwrap_or_else(PoisonError::into_inner);
                unmade.0 = None;
                state.making = false;
                state.before = Some((at, census));
                if let Some(text) = text {
                    let number = state.event.as_ref().map_or(0, |(number, _)| *number) + 1;
                    state.event = Some((number, text));
                }
                live.made.notify_all();
                continue;
            }
            let left = age.map_or(BEAT, |age| BEAT.saturating_sub(age));
            // One that makes it tells; else it is this one's turn when the time has come.
            let left = if state.making { BEAT } else { left.max(Duration::from_millis(1)) };
            let waited = live.made.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_control::Parameters;

    #[test]
    fn all_who_watch_get_the_same_event_and_there_is_a_bound_on_them() {
        let (live, tree) = (Live::default(), Tree::new(Parameters::default()));
        let mut watchers: Vec<Watcher<'_>> =
            (0..WATCHERS_MAX).map_while(|_| live.enter()).collect();
        assert_eq!(watchers.len(), WATCHERS_MAX);
        assert!(live.enter().is_none(), "no more than the bound");
        let events: Vec<Arc<str>> = std::thread::scope(|scope| {
            let tree = &tree;
            let next = |watcher| scope.spawn(move || Watcher::next(watcher, tree, || false));
            let threads: Vec<_> = watchers.iter_mut().map(next).collect();
            threads.into_iter().map(|one| one.join().expect("no panic").expect("one")).collect()
        });
        assert!(events[0].starts_with("data: {") && events[0].ends_with("}\n\n"), "{}", events[0]);
        assert!(events.iter().all(|event| Arc::ptr_eq(event, &events[0])), "made once for all");
        let number = live.state.lock().unwrap().event.as_ref().map(|(number, _)| *number);
        assert_eq!(number, Some(1));
        drop(watchers.pop());
        assert!(live.enter().is_some(), "a place that was given back");
        assert!(watchers[0].next(&tree, || true).is_none(), "the server ends");
    }
}
