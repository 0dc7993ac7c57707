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
/// its scheduler, waits for each thread whose session has I/O, until that makes a call of the
/// session; the number of hard queues does not change. A disk of several hard queues has the
/// scheduler `none` unless its target states one. With another scheduler a hard queue may have to
/// pick I/O of another: then each thread comes back for a [`poll`](super::Session::poll) in time.
///
/// Dropping it with sessions left leaves the disk to the last of them, whose end closes it. What
/// goes wrong then is logged as an error.
pub struct LaneDisk {
    kept: Arc<Kept>,
}

impl LaneDisk {
    pub(crate) fn new(parts: Parts, threads: usize) -> Result<LaneDisk, Error> {
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
        let queues = usize::from(parts.device.queues());
        if !(1..=queues).contains(&threads) {
            return Err(Error::new(format!(
                "disk {name}: {threads} threads are outside 1..={queues}, its hard queues \
                 (queues=; a server connections=)"
            )));
        }
        carry(&parts.legs, name)?;
        let parts = Parts { is_carried: true, ..parts };
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
    /// [`ErrorKind::Unfinished`]: sessions are left, of which the last one closes the disk; or I/O
    /// of a session did not end; or it did not flush in time, as for [`InlineSession::close`].
    /// [`ErrorKind::Refused`]: to flush, its hard queues are opened on this thread, for which the
    /// system lacked something, as descriptors. Then the drop of the handle, which follows, tries
    /// once more, and gives the disk up without a flush.
    pub fn close(self) -> Result<(), Error> {
        if let Some(parts) = self.kept.let_go() {
            return self.try_to_close(parts);
        }
        let (name, sessions) = (&self.device().config().name, self.kept.sessions());
        let what = match (sessions, self.kept.lost()) {
            (0, lost) => format!(
                "disk {name}: I/O of {lost} of its hard queues did not end: it stays as it is, and \
                 its file or its connections in use, until the process ends"
            ),
            (_, 0) => format!("disk {name}: sessions are left ({sessions}): the last closes it"),
            (_, lost) => format!(
                "disk {name}: sessions are left ({sessions}), and I/O of {lost} of its hard queues \
                 did not end: it stays in use until the process ends"
            ),
        };
        Err(Error::of(ErrorKind::Unfinished, what))
    }

    /// What cannot be closed may be closed in a moment: by the drop of the handle.
    fn try_to_close(&self, parts: Parts) -> Result<(), Error> {
        let closed = inline::close(parts.clone());
        if closed.is_err() {
            self.kept.put_back(parts);
        }
        closed
    }
}

impl fmt::Debug for LaneDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaneDisk").field("name", &self.device().config().name).finish()
    }
}

impl Drop for LaneDisk {
    fn drop(&mut self) {
        let disk = &self.device().config().name;
        if let Some(parts) = self.kept.let_go()
            && let Err(error) = inline::close(parts)
        {
            tracing::error!(disk, %error, "the disk was not closed in order");
        }
        if self.kept.lost() > 0 {
            tracing::error!(
                disk,
                "I/O did not end: the disk is not closed before the process ends"
            );
        }
    }
}
