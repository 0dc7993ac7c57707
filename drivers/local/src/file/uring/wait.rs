//! Waiting in a ring: one call for the completions and for what stands beside it.

use std::os::fd::OwnedFd;
use std::sync::Weak;
use std::time::Duration;

use rustix::io::Errno;
use rustix::io_uring::{
    IoringEnterFlags, io_uring_enter_arg, io_uring_getevents_arg, io_uring_ptr,
};
use weir_queue::Waiter;

/// How long a wait in a ring that failed takes.
const FAILED_WAIT: Duration = Duration::from_millis(10);

fn span_of(at_most_ns: Option<u64>) -> Duration {
    at_most_ns.map_or(Duration::MAX, Duration::from_nanos)
}

/// Waits in the kernel where completions are put on the ring: one call for both.
pub(super) struct RingWaiter {
    pub(super) ring: Weak<OwnedFd>,
}

impl Waiter for RingWaiter {
    fn wait(&mut self, at_most_ns: Option<u64>) {
        // The queue is closed: there is nothing to wait for.
        let Some(ring) = self.ring.upgrade() else { return };
        let span = at_most_ns.map(|ns| rustix::io_uring::Timespec {
            tv_sec: (ns / 1_000_000_000) as i64,
            tv_nsec: (ns % 1_000_000_000) as i64,
        });
        let ts = span.as_ref().map_or_else(io_uring_ptr::null, |span| {
            io_uring_ptr::from(std::ptr::from_ref(span).cast_mut().cast::<std::ffi::c_void>())
        });
        let argument = io_uring_getevents_arg { ts, ..Default::default() };
        let flags = IoringEnterFlags::GETEVENTS | IoringEnterFlags::EXT_ARG;
        // SAFETY: nothing is submitted, and the time it points to outlives the call.
        let waited = unsafe { io_uring_enter_arg(&*ring, 0, 1, flags, Some(&argument)) };
        match waited {
            // Interrupted or over time: the wait has ended all the same.
            Ok(_) | Err(Errno::INTR | Errno::TIME | Errno::AGAIN | Errno::BUSY) => {}
            // A ring that failed for good would have its thread turn without a pause.
            Err(_) => std::thread::sleep(FAILED_WAIT.min(span_of(at_most_ns))),
        }
    }
}
