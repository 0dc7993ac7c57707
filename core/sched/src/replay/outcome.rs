//! The settings of a replay and its outcome.

use std::fmt;

use super::recording::{Kind, Range};

/// The settings of a replay that differ from the recording's header.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Another scheduler.
    pub scheduler: Option<String>,
    /// Tunables, set behind those of the header: name and value.
    pub settings: Vec<(String, String)>,
    /// Another clock tick, microseconds.
    pub tick_us: Option<u64>,
    /// Led along the recording, each choice compared.
    pub follow: bool,
}

/// The event that a decision was about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The request that was dispatched.
    Dispatch(Range),
    /// The outcome of an arriving bio: inserted, or merged at the back or at the front.
    Arrival(Kind, Range),
    /// Nothing was dispatched.
    Nothing,
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Decision::Dispatch(range) => write!(f, "{range}"),
            Decision::Arrival(kind, range) => write!(f, "{kind} {range}"),
            Decision::Nothing => f.write_str("nothing"),
        }
    }
}

/// One line of an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// The request dispatched at a `D`.
    Dispatched {
        /// Microseconds since the first event.
        time_us: u64,
        /// The request; `None` if it gave nothing.
        range: Option<Range>,
    },
    /// A decision that is not the recorded one.
    Differs {
        /// Microseconds since the first event.
        time_us: u64,
        /// As it was recorded.
        recorded: Decision,
        /// The decision of this replay.
        chose: Decision,
    },
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Line::Dispatched { time_us, range: Some(range) } => write!(f, "{time_us} {range}"),
            Line::Dispatched { time_us, range: None } => write!(f, "{time_us} nothing"),
            Line::Differs { time_us, recorded, chose } => {
                write!(f, "differs at {time_us}: recorded {recorded}, chose {chose}")
            }
        }
    }
}

/// The outcome of a replay.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The scheduler that was replayed.
    pub scheduler: &'static str,
    /// The clock tick deadlines were compared in, microseconds; `None`: exact time.
    pub tick_us: Option<u64>,
    /// Dispatches of the recording.
    pub dispatches: u64,
    /// Followed: decisions that differ, dispatches and merges together. Else `None`.
    pub differences: Option<u64>,
    /// Each dispatch, or (followed) each difference, in order.
    pub lines: Vec<Line>,
}

impl Outcome {
    /// Dispatches less differences; a merge that differs counts against one dispatch.
    #[must_use]
    pub fn matched(&self) -> u64 {
        self.dispatches.saturating_sub(self.differences.unwrap_or(0))
    }

    /// How much matched, in hundredths of a per cent, rounded down: 10,000 only if all did.
    #[must_use]
    pub fn hundredths(&self) -> u64 {
        let all = u128::from(self.dispatches);
        match self.differences.unwrap_or(0) {
            0 => 10_000,
            _ if all == 0 => 0,
            _ => (u128::from(self.matched()) * 10_000 / all) as u64,
        }
    }
}

impl fmt::Display for Outcome {
    /// The closing line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (all, hundredths) = (self.dispatches, self.hundredths());
        if self.differences.is_none() {
            return write!(f, "replay: {all} dispatches");
        }
        let (whole, part) = (hundredths / 100, hundredths % 100);
        let matched = self.matched();
        write!(f, "replay: {matched} of {all} dispatches match ({whole}.{part:02} %)")
    }
}
