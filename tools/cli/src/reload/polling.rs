//! How the reactors wait, from the configuration.

use weir_control::config::{self, Poll};
use weir_live::{PollMode, Polling};

use super::{CHANGED, NOTE, Reload};

/// The rule of the reactors that the configuration states.
pub(crate) fn rule_of(stated: &config::Host) -> Polling {
    let mode = match stated.poll {
        Poll::Off => PollMode::Off,
        Poll::Adaptive => PollMode::Adaptive,
        Poll::Always => PollMode::Always,
    };
    Polling { mode, share: stated.poll_share }
}

/// A rule that leaves no CPU to others, in words; `None` if it leaves some.
pub(crate) fn remark(stated: &config::Host, reactors: usize) -> Option<String> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let takes_all = stated.poll == Poll::Always && reactors >= cpus;
    takes_all.then(|| {
        format!(
            "poll=always, and reactors={reactors} of {cpus} CPUs never sleep: no CPU is \
             left to other programs; --reactors gives fewer"
        )
    })
}

impl Reload {
    /// Has the reactors wait as is stated now.
    pub(super) fn set_polling(
        &self,
        stated: config::Host,
        applied: &mut config::Host,
        lines: &mut Vec<String>,
    ) {
        if stated == *applied {
            return;
        }
        self.parts.host.set_polling(rule_of(&stated));
        if stated.poll != applied.poll {
            lines.push(format!("{CHANGED}poll of [host] is {}", stated.poll));
        }
        if stated.poll_share != applied.poll_share {
            lines.push(format!("{CHANGED}poll_share of [host] is {}", stated.poll_share));
        }
        if stated.poll != applied.poll {
            let remark = remark(&stated, self.parts.host.reactors());
            lines.extend(remark.map(|line| format!("{NOTE}{line}")));
        }
        *applied = stated;
    }
}
