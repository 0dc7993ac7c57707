//! Disks that their users' threads turn.

use weir_queue::{Device, QueueMode};

use super::{BACKLOG, Builder, Disk, Source};
use crate::open::{self, Error, Opened};
use crate::session::{InlineSession, LaneDisk, Parts};
use crate::target::Target;

impl Builder {
    /// Opens it on the calling thread, which turns it in the calls of the session and needs no
    /// reactor: the shortest way between one thread and a disk. It has one hard queue unless the
    /// target states more. Disks that it lies on by a target of their own are turned by this thread
    /// too; those it is [`over`](Builder::over), by their reactors.
    ///
    /// # Errors
    /// As [`open`](Builder::open), and a builder that was told what is for a disk with reactors:
    /// their number, a host, a backlog, or to drop the disk aside.
    pub fn open_inline(self) -> Result<InlineSession, Error> {
        InlineSession::inline(self.without_reactors("inline", None)?)
    }

    /// Opens it for so many threads, each of which asks the [`LaneDisk`] for a session of its own
    /// and turns one hard queue in the calls of that. It has as many hard queues unless the target
    /// states more. Disks that it lies on are open before ([`over`](Builder::over)).
    ///
    /// Background writes are not throttled unless the target says so (`wbt_lat_usec`): those that
    /// are held back wait for the thread of the first hard queue, and for each that has such writes
    /// under way, for as long as it makes no call.
    ///
    /// # Errors
    /// As [`open_inline`](Builder::open_inline), and a target with fewer hard queues than threads,
    /// with `queue_mode=sq`, `spread=round-robin`, or disks below that would be opened with it.
    pub fn open_lanes(self, threads: usize) -> Result<LaneDisk, Error> {
        LaneDisk::new(self.without_reactors("with lanes", Some(threads))?, threads)
    }

    /// What is opened for threads that turn it themselves, with so many hard queues if that is said
    /// here and not by the target.
    fn without_reactors(self, how: &str, queues: Option<usize>) -> Result<Parts, Error> {
        let Builder { source, name, reactors, host, close_limit, backlog, drops_aside, over } =
            self;
        let name = name.as_deref().unwrap_or("disk");
        let told = [reactors.is_some(), host.is_some(), backlog != BACKLOG, drops_aside];
        let names = ["reactors", "host", "backlog", "drop_aside"];
        if let Some((what, _)) = names.iter().zip(told).find(|(_, told)| *told) {
            return Err(Error::new(format!(
                "disk {name}: {what} is for a disk that reactors turn, and this is opened {how}"
            )));
        }
        let device_of = |name: &str| {
            over.iter().find(|disk| disk.name() == name).map(|disk| disk.device().clone())
        };
        let target = match source {
            Source::Device(device) => Err(device),
            Source::Target(target) => Ok(target.checked()?),
            Source::Text(text) => Ok(Target::parse(&text).map_err(Error::new)?),
        };
        let (device, below, notices) = match target {
            Ok(mut target) => {
                let stated = target.queues_given || target.config.mode == QueueMode::Sq;
                if let Some(queues) = queues.filter(|_| !stated) {
                    // Where that takes another option, as with a server, it has what it has.
                    target = target.clone().with("queues", queues)?.checked().unwrap_or(target);
                }
                if queues.is_some() && target.config.wbt_lat_us.is_none() {
                    // The thread of the first hard queue ends the throttle's windows, and may make
                    // no call.
                    target.config.wbt_lat_us = Some(0);
                }
                let opened = open::open_over(name, &target, 1, device_of)?;
                let below = opened.below();
                let Opened { device, notices, warnings, .. } = opened;
                (device, below, [notices, warnings].concat())
            }
            Err(device) => (device, Vec::new(), Vec::new()),
        };
        let lie = |disk: &Disk| {
            let all = below.iter().chain([&device]);
            all.flat_map(Device::legs).any(|leg| leg.is(disk.device()))
        };
        let legs = over.iter().filter(|disk| lie(disk)).map(|disk| disk.open.clone()).collect();
        Ok(Parts { device, below, notices, legs, is_carried: false, close_limit })
    }
}
