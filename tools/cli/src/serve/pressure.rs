//! A daemon whose disks its own machine mounts, and memory that is short.
//!
//! The kernel frees memory by writing dirty pages to disks. Where such a disk is one of weir's (a
//! loop device over DIR/dev/<disk>, the kernel's NBD client), that write waits for weir, and weir
//! must not wait for that write: neither when it allocates memory nor when it needs a page back
//! that went to swap.

use clap::Args;
use rustix::io::Errno;
use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{Resource, Rlimit, configure_io_flusher_behavior, getrlimit, setrlimit};

/// Without limit, for [`Resource::Memlock`].
const UNLIMITED: Rlimit = Rlimit { current: None, maximum: None };

#[derive(Clone, Copy, Debug, Args)]
pub(super) struct Pressure {
    /// Allocate memory without waiting for dirty pages to be written (PR_SET_IO_FLUSHER): for
    /// disks that this machine itself mounts, by a loop device over DIR/dev/NAME or by the
    /// kernel's NBD client. Needs CAP_SYS_RESOURCE.
    #[arg(long)]
    io_flusher: bool,
    /// Keep the daemon's memory out of swap (mlockall): for disks that this machine itself mounts,
    /// and where swap would be too slow. Needs RLIMIT_MEMLOCK=infinity or CAP_IPC_LOCK.
    #[arg(long)]
    lock_memory: bool,
}

impl Pressure {
    /// Does so. Before any other thread is there: a thread inherits from its parent that it is an
    /// I/O flusher, io_uring's in the kernel included (prctl(2), PR_SET_IO_FLUSHER).
    ///
    /// # Errors
    /// The option, and the right that is missing.
    pub(super) fn apply(self) -> Result<(), String> {
        if self.io_flusher {
            configure_io_flusher_behavior(true).map_err(|error| match error {
                Errno::PERM => "--io-flusher: CAP_SYS_RESOURCE is missing".to_owned(),
                Errno::INVAL => "--io-flusher: this kernel is older than Linux 5.6".to_owned(),
                error => format!("--io-flusher: PR_SET_IO_FLUSHER: {error}"),
            })?;
        }
        if self.lock_memory {
            lock().map_err(|why| format!("--lock-memory: {why}"))?;
        }
        Ok(())
    }
}

/// Locks all memory: the program itself now, the rest when it is first used, so that a stack or a
/// pool that is never full costs no more than without.
fn lock() -> Result<(), String> {
    let lock = || {
        mlockall(MlockAllFlags::CURRENT)?;
        mlockall(MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT)
    };
    if setrlimit(Resource::Memlock, UNLIMITED).is_ok() {
        return lock().map_err(|error| format!("mlockall: {error}"));
    }
    // Below a limit that holds, memory would be refused later on, in the middle of the work. None
    // holds for this process if it may lock memory below a limit of nothing (mlockall(2), EPERM).
    let Rlimit { current, maximum } = getrlimit(Resource::Memlock);
    let lower = setrlimit(Resource::Memlock, Rlimit { current: Some(0), maximum });
    let locked = lower.and_then(|()| lock());
    let restored = setrlimit(Resource::Memlock, Rlimit { current, maximum });
    locked.and(restored).map_err(|error| match error {
        Errno::PERM => {
            let bytes = maximum.map_or(String::from("infinity"), |bytes| bytes.to_string());
            format!(
                "RLIMIT_MEMLOCK={bytes} has to be infinity (LimitMEMLOCK=infinity in a systemd \
                 unit), or CAP_IPC_LOCK or CAP_SYS_RESOURCE be there"
            )
        }
        error => format!("mlockall: {error}"),
    })
}
