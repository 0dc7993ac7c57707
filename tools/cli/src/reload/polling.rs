//! How the reactors wait, from the configuration.

use std::sync::Arc;

use weir_control::config::{self, Config, Poll};
use weir_front::{Front, poll_mode};
use weir_live::Polling;

use super::{Applied, CHANGED, NOTE, Reload};

/// The rule of the reactors that the configuration states.
pub(crate) fn rule_of(stated: &config::Host) -> Polling {
    Polling { mode: poll_mode(stated.poll), share: stated.poll_share }
}

/// A rule that leaves no CPU to others, in words; `None` if it leaves some. `fronts` say which
/// exports there are to be clients of: one that waits for a restart is not.
pub(super) fn remark(
    host: &config::Host,
    fronts: &[Arc<dyn Front>],
    reactors: usize,
) -> Option<String> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    if reactors < cpus {
        return None;
    }
    let rest = "no CPU is left to other programs; --reactors gives fewer";
    if host.poll == Poll::Always {
        let what = format!("poll=always, and reactors={reactors} of {cpus} CPUs never sleep");
        return Some(format!("{what}: {rest}"));
    }
    let served = fronts.iter().flat_map(|front| front.clients().polling());
    let polling = served.filter(|(_, rule)| rule.poll == Some(Poll::Always));
    // Of several the same one each time.
    let name = polling.map(|(name, _)| name).min()?;
    Some(format!(
        "export {name:?}: poll=always, and with as many clients of it reactors={reactors} of \
         {cpus} CPUs never sleep: {rest}"
    ))
}

impl Reload {
    /// Has the reactors wait as is stated now. Those of exports are fronts' part.
    pub(super) fn set_polling(
        &self,
        config: &Config,
        applied: &mut Applied,
        lines: &mut Vec<String>,
    ) {
        self.set_host(config.host, &mut applied.host, lines);
        let remark = self.polling_remark(&config.host);
        if remark != applied.polling_remark {
            lines.extend(remark.iter().map(|line| format!("{NOTE}{line}")));
            applied.polling_remark = remark;
        }
    }

    /// What is to be told of reactors that leave no CPU to others.
    pub(super) fn polling_remark(&self, host: &config::Host) -> Option<String> {
        remark(host, &self.parts.fronts, self.parts.host.reactors())
    }

    fn set_host(&self, stated: config::Host, applied: &mut config::Host, lines: &mut Vec<String>) {
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
        *applied = stated;
    }
}
