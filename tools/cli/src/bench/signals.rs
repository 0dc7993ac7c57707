//! Signals that end a run, which keeps what it has measured.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use crate::Failure;

/// Becomes true with the first signal that asks for an end. The second ends the process at once:
/// a back end that hangs would be waited for.
pub(super) fn interrupted() -> Result<Arc<AtomicBool>, Failure> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let ignored = ignored(&std::fs::read_to_string("/proc/self/status").unwrap_or_default());
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // Whoever started this with nohup wants it to go on.
        if signal == SIGHUP && ignored >> (signal - 1) & 1 == 1 {
            continue;
        }
        let bad = |error| Failure::Bad(format!("signal {signal}: {error}"));
        // In this order: what the first one sets is looked at before it is set.
        flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&interrupted))
            .map_err(bad)?;
        flag::register(signal, Arc::clone(&interrupted)).map_err(bad)?;
    }
    Ok(interrupted)
}

/// The signals a process ignores, by bit from 0, of its `/proc/PID/status`.
fn ignored(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nohup_ignores_is_known() {
        let status = "SigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\n";
        assert_eq!(ignored(status), 0x1001);
        assert_eq!(ignored(status) >> (SIGHUP - 1) & 1, 1);
        assert_eq!(ignored(""), 0);
    }
}
