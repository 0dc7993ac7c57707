//! The scheduler of a replay: which one, in which setting, with which tunables.

use weir_bio::Limits;

use super::details::attribute;
use super::outcome::Options;
use super::recording::{Recording, ReplayError, Stated};
use crate::contract::{Scheduler, Setup};
use crate::{Entry, SCHEDULERS};

/// Scheduler tags a replay has at first: what Linux gives a device of ordinary depth.
const TAGS_MIN: u16 = 256;

pub(super) fn entry_of(
    recording: &Recording,
    options: &Options,
) -> Result<&'static Entry, ReplayError> {
    let stated = recording.scheduler.as_ref();
    let (line, name) = match (&options.scheduler, stated) {
        (Some(name), _) => (None, name),
        (None, Some(Stated { line, value })) => (Some(*line), value),
        (None, None) => {
            let what = "no `scheduler` line says which scheduler it is".to_owned();
            return Err(ReplayError { line: None, what });
        }
    };
    let made = SCHEDULERS.iter().filter(|entry| entry.replay.is_some());
    made.clone().find(|entry| entry.name == name).ok_or_else(|| {
        let names: Vec<_> = made.map(|entry| entry.name).collect();
        let names = names.join(", ");
        let what = format!("scheduler {name:?} cannot be replayed; these can: {names}");
        ReplayError { line, what }
    })
}

/// Whether every call of this very scheduler is stated: then it is called as it was, and not
/// otherwise.
pub(super) fn has_all_calls(recording: &Recording, options: &Options, entry: &Entry) -> bool {
    let stated = recording.scheduler.as_ref().map(|stated| stated.value.as_str());
    recording.has_all_calls && stated == Some(entry.name) && options.tick_us.is_none()
}

/// The setting of the scheduler, where the recording states it; else one that refuses nothing.
pub(super) fn setup_of(
    recording: &Recording,
    options: &Options,
    entry: &'static Entry,
) -> Result<Setup, ReplayError> {
    let mut setup = Setup {
        limits: unlimited(),
        nr_requests: TAGS_MIN,
        hard_queues: 1,
        nomerges: 0,
        compat: entry.compat[0],
    };
    for Stated { line, value: (name, value) } in &recording.queue {
        let failed = |what| ReplayError { line: Some(*line), what };
        let row = attribute(name).map_err(failed)?;
        (row.set)(&mut setup, *value);
        if (row.get)(&setup) != *value {
            return Err(failed(format!("queue {name} {value} is more than it can be")));
        }
    }
    if setup.nr_requests == 0 || !(1..=64).contains(&setup.hard_queues) || setup.nomerges > 2 {
        let what = format!(
            "nr_requests {}, hard_queues {}, nomerges {}: at least 1, 1..=64, 0..=2",
            setup.nr_requests, setup.hard_queues, setup.nomerges
        );
        return Err(ReplayError { line: None, what });
    }
    if !has_all_calls(recording, options, entry) {
        // Which hard queue asks is a matter of the calls.
        setup.hard_queues = 1;
        return Ok(setup);
    }
    if let Some(Stated { line, value }) = &recording.compat {
        let level = entry.compat.iter().find(|level| *level == value);
        setup.compat = level.ok_or_else(|| {
            let what = format!("compat {value:?}: {} has {}", entry.name, entry.compat.join(", "));
            ReplayError { line: Some(*line), what }
        })?;
    }
    Ok(setup)
}

/// Limits that refuse nothing.
pub(super) fn unlimited() -> Limits {
    Limits {
        capacity: u64::MAX,
        max_hw_sectors: u32::MAX,
        max_user_sectors: u32::MAX,
        max_segments: u16::MAX,
        max_hw_discard_sectors: u32::MAX,
        ..Limits::default()
    }
}

pub(super) fn set_tunables(
    scheduler: &mut dyn Scheduler,
    recording: &Recording,
    options: &Options,
) -> Result<(), ReplayError> {
    let stated = recording.scheduler.as_ref().map(|stated| stated.value.as_str());
    let is_another = options.scheduler.as_deref().is_some_and(|name| stated != Some(name));
    for Stated { line, value: (name, value) } in &recording.settings {
        // A tunable set for the recorded scheduler need not exist in the one that replaces it.
        if is_another && scheduler.tunables().row(name).is_err() {
            continue;
        }
        let set = scheduler.tunables().set_strict(name, value);
        set.map_err(|error| ReplayError { line: Some(*line), what: error.to_string() })?;
    }
    for (name, value) in &options.settings {
        let set = scheduler.tunables().set_strict(name, value);
        set.map_err(|error| ReplayError { line: None, what: error.to_string() })?;
    }
    Ok(())
}
