//! Few lines of each kind that a client can cause, however often the client causes them.
//!
//! A kind is a place in the code that logs. Once a line is left out, none of its kind is written
//! until the number of those left out is, [`TOLD_AFTER`] later or at the end: a storm makes a
//! handful of lines and a summary each ten seconds. Lines of the level `debug` and below were asked
//! for by `WEIR_LOG` and are all written.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

use super::outlet::Outlet;
use crate::fronts::kinds;

/// Whether a room's lines come from what clients do: those of the control socket, of the
/// address of metrics, or of a front.
fn is_of_clients(room: &str) -> bool {
    ["weir_control", "weir_metrics"].contains(&room) || kinds().iter().any(|kind| kind.room == room)
}

/// Lines of a kind at once.
const BURST: f64 = 20.0;
/// And then so many each second.
const PER_SECOND: f64 = 1.0;

/// The number of lines left out is printed so long after the first of them at the latest.
const TOLD_AFTER: Duration = Duration::from_secs(10);

/// The limit, before the lines are made.
pub(super) struct Rate {
    outlet: Outlet,
    kinds: Arc<Mutex<HashMap<Identifier, Kind>>>,
}

struct Kind {
    level: Level,
    message: String,
    /// Lines it may have now, and when that was reckoned.
    allowed: f64,
    at: Instant,
    left_out: u64,
    /// When the first of them was.
    since: Instant,
}

impl Kind {
    fn new(event: &Event<'_>, now: Instant) -> Kind {
        let mut message = Message::default();
        event.record(&mut message);
        let level = *event.metadata().level();
        Kind { level, message: message.0, allowed: BURST, at: now, left_out: 0, since: now }
    }

    /// Whether one more may be written.
    fn admits(&mut self, now: Instant) -> bool {
        let since = now.saturating_duration_since(self.at).as_secs_f64();
        (self.allowed, self.at) = ((self.allowed + since * PER_SECOND).min(BURST), now);
        if self.allowed < 1.0 || self.left_out > 0 {
            if self.left_out == 0 {
                self.since = now;
            }
            self.left_out += 1;
            return false;
        }
        self.allowed -= 1.0;
        true
    }

    /// The line on the lines left out.
    fn told(&mut self, now: Instant) -> Option<String> {
        let count = std::mem::take(&mut self.left_out);
        let (level, message) = (self.level, &self.message);
        let seconds = now.saturating_duration_since(self.since).as_secs_f64().ceil();
        (count > 0)
            .then(|| format!("{level:>5} {message}: … and {count} more in the last {seconds} s"))
    }
}

impl Rate {
    pub(super) fn new(outlet: Outlet) -> Rate {
        Rate { outlet, kinds: Arc::default() }
    }

    /// Makes the lines that tell of all that was left out.
    pub(super) fn teller(&self) -> impl Fn() -> Vec<String> + Send + Sync + use<> {
        let kinds = Arc::clone(&self.kinds);
        move || {
            let now = Instant::now();
            locked(&kinds).values_mut().filter_map(|kind| kind.told(now)).collect()
        }
    }
}

fn locked<T>(kinds: &Mutex<T>) -> MutexGuard<'_, T> {
    kinds.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<S: Subscriber> Layer<S> for Rate {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        // Of levels the more verbose is the greater.
        let room = metadata.target().split(':').next().unwrap_or_default();
        if *metadata.level() > Level::INFO || !is_of_clients(room) {
            return true;
        }
        let now = Instant::now();
        let mut kinds = locked(&self.kinds);
        let kind = kinds.entry(metadata.callsite()).or_insert_with(|| Kind::new(event, now));
        let admitted = kind.admits(now);
        let first = !admitted && kind.left_out == 1;
        drop(kinds);
        if first {
            self.outlet.at(now + TOLD_AFTER, self.teller());
        }
        admitted
    }
}

/// The fixed text of an event.
#[derive(Default)]
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_the_rest_is_counted_until_that_is_told() {
        let begin = Instant::now();
        let message = String::from("a client");
        let (level, since) = (Level::WARN, begin);
        let mut kind = Kind { level, message, allowed: BURST, at: begin, left_out: 0, since };
        let count = |kind: &mut Kind, now| (0..100).filter(|_| kind.admits(now)).count();
        assert_eq!(count(&mut kind, begin), 20);
        // Not one by one behind each other: the summary comes first.
        let later = begin + Duration::from_secs(3);
        assert_eq!(count(&mut kind, later), 0);
        let told = " WARN a client: … and 180 more in the last 3 s";
        assert_eq!(kind.told(later).as_deref(), Some(told));
        assert_eq!(kind.told(later), None);
        assert_eq!(count(&mut kind, later), 3);
        let told = " WARN a client: … and 97 more in the last 10 s";
        assert_eq!(kind.told(begin + Duration::from_secs(13)).as_deref(), Some(told));
        assert_eq!(count(&mut kind, begin + Duration::from_secs(3600)), 20);
    }
}
