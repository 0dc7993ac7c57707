//! Rules of polling as the configuration states them, and as reactors take them.

use weir_control::config::{ExportPolling, Poll};
use weir_live::{PollMode, PollRule};

/// A mode as reactors take it.
#[must_use]
pub fn poll_mode(stated: Poll) -> PollMode {
    match stated {
        Poll::Off => PollMode::Off,
        Poll::Adaptive => PollMode::Adaptive,
        Poll::Always => PollMode::Always,
    }
}

/// A mode as it is stated.
#[must_use]
pub fn stated_mode(mode: PollMode) -> Poll {
    match mode {
        PollMode::Off => Poll::Off,
        PollMode::Adaptive => Poll::Adaptive,
        PollMode::Always => Poll::Always,
    }
}

/// The rule that the clients of an export ask for.
#[must_use]
pub fn poll_rule(stated: ExportPolling) -> PollRule {
    PollRule { mode: stated.poll.map(poll_mode), share: stated.poll_share }
}

/// That rule as it is stated.
#[must_use]
pub fn stated_rule(rule: PollRule) -> ExportPolling {
    ExportPolling { poll: rule.mode.map(stated_mode), poll_share: rule.share }
}
