//! What the daemon tells of itself in the tree: version, uptime and listeners.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use weir_control::config;
use weir_control::{About, Listener, Polled, ThreadPolled};
use weir_front::stated_mode;
use weir_live::{PollCounts, Polling};

use super::Daemon;
use crate::fronts::MetricsServer;
use crate::reach::Reach;
use crate::reload::Latest;

/// The ways in that are not fronts', once they are open.
pub(super) struct Ways(Arc<OnceLock<Vec<Listener>>>);

/// Shows the daemon in its tree.
pub(super) fn show(daemon: &Daemon, latest: &Arc<Mutex<Latest>>) -> Ways {
    let ways = Ways(Arc::default());
    let idle = idle_ms();
    let (begun, others, fronts) = (Instant::now(), Arc::clone(&ways.0), daemon.fronts.clone());
    let listeners = move || {
        let of_fronts = fronts.iter().flat_map(|front| {
            let kind = front.kind().name;
            front.places().into_iter().map(move |place| Listener { kind, place })
        });
        of_fronts.chain(others.get().into_iter().flatten().cloned()).collect()
    };
    let (host, latest) = (Arc::clone(&daemon.host), Arc::clone(latest));
    let polling = move || {
        let rule = latest.lock().unwrap_or_else(PoisonError::into_inner).config.host;
        let threads = host.poll_counts().into_iter().zip(host.poll_rules());
        Polled { rule, threads: threads.map(|(counts, rule)| polled(counts, rule)).collect() }
    };
    daemon.tree.show_daemon(About {
        version: env!("CARGO_PKG_VERSION"),
        uptime_ms: Box::new(move || begun.elapsed().as_millis() as u64),
        idle_ms: Box::new(move || idle_ms().saturating_sub(idle)),
        listeners: Box::new(listeners),
        polling: Box::new(polling),
    });
    ways
}

/// How long the CPUs of the machine have had nothing to do, summed, ms; 0 without `/proc`.
fn idle_ms() -> u64 {
    let text = std::fs::read_to_string("/proc/uptime").unwrap_or_default();
    let seconds = text.split_whitespace().nth(1).and_then(|word| word.parse::<f64>().ok());
    (seconds.unwrap_or(0.0) * 1000.0) as u64
}

fn polled(counts: PollCounts, rule: Polling) -> ThreadPolled {
    let PollCounts { polls, met, polled_ns, vain_ns } = counts;
    let rule = config::Host { poll: stated_mode(rule.mode), poll_share: rule.share };
    ThreadPolled { rule, polls, met, polled_us: polled_ns / 1000, vain_us: vain_ns / 1000 }
}

impl Ways {
    /// Notes those that are open now.
    pub(super) fn open(&self, reach: &Reach, metrics: &[MetricsServer]) {
        let control = reach.path().map(|path| ("control", path.display().to_string()));
        let metrics = metrics.iter().map(|server| ("metrics", server.address().to_string()));
        let all = control.into_iter().chain(metrics);
        // They are opened once.
        let _ = self.0.set(all.map(|(kind, place)| Listener { kind, place }).collect());
    }
}
