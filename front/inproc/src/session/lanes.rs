//! A disk with a hard queue for each of several threads, which turn them in their sessions.

use std::fmt;
use std::sync::Arc;

use weir_bio::SECTOR;
use weir_queue::{Device, QueueMode, Spread};

use super::inline::{self, InlineSession};
use super::parts::{Kept, Parts};
use crate::open::{Error, ErrorKind};
use crate::shared::carry;

/// A disk for some threads, each with a hard queue of its own that it turns in the calls of its
/// [`session`](LaneDisk::session): what a thread submits never leaves it, and no reactor is in
/// between. [`Builder::open_lanes`](crate::Builder::open_lanes) opens it.
///
/// ```
/// use weir::Disk;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let disk = Disk::builder("ram:64MiB").name("log").open_lanes(4)?;
/// std::thread::scope(|scope| {
///     for thread in 0..4 {
///         let disk = &disk;
///         scope.spawn(move || -> Result<(), weir::Error> {
///             let mut session = disk.session()?;
///             session.write_at(thread * 4096, &[7; 4096]).expect("it is written");
///             session.close()
///         });
///     }
/// });
/// disk.close()?; // flushes
/// # Ok(())
/// # }
/// ```
///
/// A session stays on the thread that asked for it, as any [`InlineSession`] does, and turns its
/// own hard queue alone. The threads share the disk: its size, statistics, scheduler and flushes,
/// which make durable what any of them was told is written. A change of the disk, as of
/// its scheduler, waits for each thread that has a session until it makes a call of that or gives
/// it back; the number of hard queues does not change. With a scheduler other than `none`, which
/// such a disk has unless its target states one, a hard queue may have to pick I/O of another: then
/// each thread comes back for a [`poll`](super::Session::poll) in time.
///
/// Dropping it with sessions left leaves the disk to the last of them, whose end closes it. What
/// goes wrong then is logged as an error.
pub struct LaneDisk {
    kept: Arc<Kept>,
}

impl LaneDisk {
    pub(crate) fn new(parts: Parts) -> Result<LaneDisk, Error> {
        let config = parts.device.config();
        let name = &config.name;
        if !parts.below.is_empty() {
            return Err(Error::new(format!(
                "disk {name}: it is opened with the disks that it lies on, whose hard queues one \
                 thread turns; open those first, and this one over them"
            )));
        }
        if config.mode == QueueMode::Sq {
            return Err(Error::new(format!(
                "disk {name}: queue_mode=sq has one queue for all threads, and none for each"
            )));
        }
        if config.spread == Spread::RoundRobin {
            return Err(Error::new(format!(
                "disk {name}: spread=round-robin sends a thread's I/O to the hard queues of others"
            )));
        }
        carry(&parts.legs, name)?;
        Ok(LaneDisk { kept: Arc::new(Kept::new(parts)) })
    }

    /// A way into the disk for the calling thread, with a hard queue that no other session has.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`]: every hard queue has a session. Else the driver's, or the system's.
    pub fn session(&self) -> Result<InlineSession, Error> {
        let Some((index, lent)) = Kept::lend(&self.kept) else {
            let (name, queues) = (&self.device().config().name, self.queues());
            return Err(Error::new(format!(
                "disk {name}: each of its hard queues, {queues}, has a session"
            )));
        };
        InlineSession::of_lane(index, lent)
    }

    /// The hard queues: sessions that there can be at one time.
    #[must_use]
    pub fn queues(&self) -> usize {
        usize::from(self.kept.device.queues())
    }

    /// Its size, bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.kept.device.limits().capacity * SECTOR
    }

    /// The device below: its limits, its statistics, its scheduler's name.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.kept.device
    }

    /// Notices for the user about how the disk was opened, a sentence each.
    #[must_use]
    pub fn notices(&self) -> &[String] {
        &self.kept.notices
    }

    /// Closes the disk: flushes, and gives its file or its connections up.
    ///
    /// # Errors
    /// [`ErrorKind::Unfinished`]: sessions are left, of which the last one closes the disk; or it
    /// did not flush in time, as for [`InlineSession::close`].
    pub fn close(self) -> Result<(), Error> {
        if let Some(parts) = self.kept.let_go() {
            return inline::close(parts);
        }
        let (name, sessions) = (&self.device().config().name, self.kept.sessions());
        let what = format!("disk {name}: sessions are left ({sessions}): the last one closes it");
        Err(Error::of(ErrorKind::Unfinished, what))
    }
}

impl fmt::Debug for LaneDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaneDisk").field("name", &self.device().config().name).finish()
    }
}

impl Drop for LaneDisk {
    fn drop(&mut self) {
        let Some(parts) = self.kept.let_go() else { return };
        if let Err(error) = inline::close(parts) {
            let disk = &self.device().config().name;
            tracing::error!(disk, %error, "the disk was not closed in order");
        }
    }
}
