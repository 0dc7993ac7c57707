//! Recordings of schedulers against any bytes, replayed on each scheduler.
//!
//! - An error of a recording names a line within it.
//! - A replay counts the dispatches that are there, and is the same each time.
//!
//! Input: a byte of options, then the recording.

use weir_sched::SCHEDULERS;
use weir_sched::replay::{Kind, Options, Recording, replay};

/// Events of a recording that is replayed: one that is followed copies its scheduler at each.
const EVENTS_MAX: usize = 200;

pub(crate) fn check(bytes: &[u8]) {
    let Some((&set, text)) = bytes.split_first() else { return };
    let lossy = String::from_utf8_lossy(text);
    let recording = match Recording::read(text) {
        Ok(recording) => recording,
        Err(error) => {
            assert!(error.line.is_some(), "{error} names no line");
            return crate::text::names_a_line(&error.to_string(), "line ", &lossy);
        }
    };
    if recording.events.len() > EVENTS_MAX {
        return;
    }
    let names = [None].into_iter().chain(SCHEDULERS.iter().map(|entry| Some(entry.name)));
    let scheduler = names.cycle().nth(usize::from(set >> 1)).flatten().map(str::to_owned);
    let options = Options { scheduler, follow: set & 1 == 1, ..Options::default() };
    let outcome = match replay(&recording, &options) {
        Ok(outcome) => outcome,
        Err(error) => {
            if error.line.is_some() {
                crate::text::names_a_line(&error.to_string(), "line ", &lossy);
            }
            return;
        }
    };
    let dispatches = recording.events.iter().filter(|event| event.kind == Kind::Dispatched);
    assert_eq!(outcome.dispatches, dispatches.count() as u64, "dispatches of the recording");
    assert_eq!(outcome.differences.is_some(), options.follow, "only what is followed differs");
    assert!(outcome.hundredths() <= 10_000, "{} hundredths match", outcome.hundredths());
    let again = replay(&recording, &options).expect("as before");
    assert_eq!(again.lines, outcome.lines, "a replay is the same each time");
}
