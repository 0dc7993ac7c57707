//! Signals that end a run, which keeps what it has measured.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

use crate::Failure;
use crate::log;

/// Signals so close to the first are the same wish again: `timeout` sends one to the process and
/// one to its group, and a logout sends a hangup and a termination.
const ONE_WISH: Duration = Duration::from_secs(1);

/// Becomes true with the first signal that asks for an end. One that comes later ends the process
/// at once: a back end that hangs would be waited for.
pub(crate) fn interrupted() -> Result<Arc<AtomicBool>, Failure> {
    let failed = |e: std::io::Error| Failure::Bad(format!("signals: {e}"));
    let (heard, writer) = UnixStream::pair().map_err(failed)?;
    let ignored = ignored(&std::fs::read_to_string("/proc/self/status").unwrap_or_default());
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // Under nohup the run is to go on.
        if signal == SIGHUP && ignored >> (signal - 1) & 1 == 1 {
            continue;
        }
        pipe::register(signal, writer.try_clone().map_err(failed)?).map_err(failed)?;
    }
    let interrupted = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&interrupted);
    let listen = move || listen(heard, &told);
    std::thread::Builder::new().name(String::from("signals")).spawn(listen).map_err(failed)?;
    Ok(interrupted)
}

fn listen(mut heard: UnixStream, interrupted: &AtomicBool) {
    let (mut byte, mut first) = ([0], None::<Instant>);
    while heard.read_exact(&mut byte).is_ok() {
        interrupted.store(true, Ordering::Release);
        if first.get_or_insert_with(Instant::now).elapsed() >= ONE_WISH {
            log::say("weir: ended at once by a second signal: nothing is kept");
            if let Some(left) = weir_bench::workload::mark::standing() {
                log::say(&format!("weir: {left}, and what stood there was not put back"));
            }
            std::process::exit(2);
        }
    }
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
