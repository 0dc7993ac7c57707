//! A lane: one hard queue with a home thread, which runs it.
//!
//! On the multi-queue path the lane owns its hard queue; on the single-queue path it is a way to
//! the one under the lock.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use weir_bio::Nanos;
use weir_ring::Incoming;

use crate::bell::LaneBell;
use crate::driver::{DriverError, Waiter};
use crate::error::Error;
use crate::event::{Silent, Sink};
use crate::hard::HardQueue;
use crate::mq::lane::{Feed, Multi, Reach};
use crate::mq::port::LaneState;
use crate::request::Request;
use crate::shared::{Path, Shared};
use crate::sq::Sq;

/// One hard queue, to be turned by its home.
pub struct Lane {
    shared: Arc<Shared>,
    index: usize,
    /// The driver tells of its answers by an event, of which this lane is the one to hear.
    announces: bool,
    kind: Kind,
    wake_at: Option<Nanos>,
}

enum Kind {
    /// `None` once it has closed.
    Multi(Option<Box<Multi>>),
    /// Its place at this home.
    Single(LaneBell),
}

/// The parts of the device that a lane of the multi-queue path reaches.
#[inline(always)]
fn reach(shared: &Shared, index: usize) -> Reach<'_> {
    let Path::Mq(mq) = &shared.path else { unreachable!("a lane of the multi-queue path") };
    let Shared { current, wbt, fences, .. } = shared;
    Reach { mq, current, wbt, fences, index }
}

#[inline(always)]
fn single(shared: &Shared) -> &Sq {
    let Path::Sq(sq) = &shared.path else { unreachable!("a lane of the single queue") };
    sq
}

impl Lane {
    pub(crate) fn multi(
        shared: &Arc<Shared>,
        index: usize,
        hard: HardQueue,
        state: &mut LaneState,
    ) -> Lane {
        let announces = hard.announces();
        let multi = Multi::open(reach(shared, index), hard, state);
        let (shared, kind) = (Arc::clone(shared), Kind::Multi(Some(Box::new(multi))));
        Lane { shared, index, announces, kind, wake_at: None }
    }

    pub(crate) fn single(shared: &Arc<Shared>, announces: bool, bell: LaneBell) -> Lane {
        let (shared, kind) = (Arc::clone(shared), Kind::Single(bell));
        Lane { shared, index: 0, announces, kind, wake_at: None }
    }

    /// Its number among the device's hard queues.
    #[must_use]
    #[inline]
    pub fn index(&self) -> usize {
        self.index
    }

    /// Its place in the [roster](crate::Bell::roster) of its home. It is the lane's for as long as
    /// the device lives, also while the lane is closed.
    #[must_use]
    pub fn place(&self) -> usize {
        match &self.kind {
            Kind::Single(bell) => bell.place,
            Kind::Multi(_) => {
                let own = self.shared.path.lanes()[self.index].bell.get();
                own.map_or(0, |home| home.place)
            }
        }
    }

    /// The device's name.
    #[must_use]
    pub fn device(&self) -> &str {
        &self.shared.config.name
    }

    #[inline]
    pub(crate) fn is_of(&self, device: &Arc<Shared>) -> bool {
        Arc::ptr_eq(&self.shared, device)
    }

    /// One run of the hard queue: takes answers from the driver, sends what waits, posts
    /// completions. Does not block, unless it [may](Lane::may_block).
    #[inline]
    pub fn run(&mut self, now: Nanos) {
        self.run_telling(now, Silent);
    }

    /// As [`run`](Lane::run); `sink` hears what happens.
    #[inline]
    pub fn run_telling(&mut self, now: Nanos, sink: impl Sink) {
        match &mut self.kind {
            Kind::Multi(Some(multi)) => {
                multi.run(reach(&self.shared, self.index), now, sink);
                self.wake_at = multi.wake_at(now);
            }
            Kind::Multi(None) => {}
            Kind::Single(_) => {
                let sq = single(&self.shared);
                sq.lanes[0].pending.take(|_| {});
                let ended = |ends| self.shared.end_throttled(ends, now);
                self.wake_at = sq.run(now, self.shared.wbt.window(), ended, sink);
            }
        }
        self.see_to_device(now);
    }

    /// A run for the submitter of this feed, which is of this thread and
    /// [of this device](Lane::is_open_of): what has ended of its requests, unless that comes
    /// through its inbox, and when that was.
    #[inline]
    pub(crate) fn run_for(
        &mut self,
        mut feed: Feed<'_>,
        now: Nanos,
        later: impl FnOnce() -> Nanos,
    ) -> (Incoming<Request>, Nanos) {
        let reach = reach(&self.shared, self.index);
        let Kind::Multi(Some(multi)) = &mut self.kind else { unreachable!("it is open") };
        if let Some((own, now)) = multi.run_lone(&mut feed, reach, now, later) {
            self.wake_at = multi.wake_at(now);
            self.see_to_device(now);
            return (own, now);
        }
        multi.publish(feed);
        self.run(now);
        (Incoming::empty(), now)
    }

    /// Whether it is an open lane of this device, of the multi-queue path.
    #[inline]
    pub(crate) fn is_open_of(&self, device: &Arc<Shared>) -> bool {
        self.is_of(device) && matches!(self.kind, Kind::Multi(Some(_)))
    }

    /// Turns what a device has once.
    #[inline]
    fn see_to_device(&mut self, now: Nanos) {
        if self.index == 0
            && let Some(at) = self.shared.tick_throttle(now)
        {
            self.wake_at = Nanos::first_of(self.wake_at, Some(at));
        }
        if self.shared.has_orphans() {
            self.shared.tend_orphans(now);
        }
    }

    /// When it wants a turn although its bell is silent and no descriptor is ready.
    #[must_use]
    pub fn wake_at(&self) -> Option<Nanos> {
        self.wake_at
    }

    /// Whether its driver tells of answers by an [event](Lane::event), of which this lane's home is
    /// the one to hear.
    #[must_use]
    pub fn announces(&self) -> bool {
        self.announces
    }

    /// A descriptor that becomes readable when the driver has answers, if it
    /// [announces](Lane::announces) them: a duplicate, because the driver may sit behind a lock.
    ///
    /// # Errors
    /// The system's: no descriptor is left. Without one its home would not hear of answers.
    pub fn event(&self) -> Result<Option<OwnedFd>, Error> {
        if !self.announces {
            return Ok(None);
        }
        let event = match &self.kind {
            Kind::Multi(multi) => multi.as_ref().map_or(Ok(None), |multi| multi.hard().event()),
            Kind::Single(_) => single(&self.shared).event(),
        };
        event.map_err(|source| {
            let (device, index) = (self.device(), self.index);
            let what = format!("disk {device}: a descriptor for the event of hard queue {index}");
            Error::Driver(DriverError { what, source: Some(source) })
        })
    }

    /// A way for its home to wait for the driver, or until `beside` becomes readable, where the
    /// driver has one that takes less than polling the [event](Lane::event), which is of no use
    /// any more from then on.
    #[must_use]
    pub fn waiter(&mut self, beside: BorrowedFd<'_>) -> Option<Box<dyn Waiter>> {
        match &mut self.kind {
            Kind::Multi(multi) => multi.as_mut().and_then(|multi| multi.waiter(beside)),
            Kind::Single(_) => single(&self.shared).waiter(beside),
        }
    }

    /// Lets the driver make calls that sleep in a turn until the device has answered, for a thread
    /// that has nothing but this lane: `file:` makes a write with FUA, or a flush, with one call,
    /// where it is the only request of the lane. That takes less time than to be told of its end by
    /// another thread of the kernel. For as long as the device does not answer such a call, no I/O
    /// of the lane is submitted, cancelled or ended by its time-out, and no change of the disk goes
    /// on. There is no way back.
    ///
    /// False, and nothing has changed: the driver makes no such calls, or the lane is that of a
    /// single queue ([`QueueMode::Sq`](crate::QueueMode::Sq)), whose lock every submitter takes.
    pub fn may_block(&mut self) -> bool {
        match &mut self.kind {
            Kind::Multi(multi) => multi.as_mut().is_some_and(|multi| multi.may_block()),
            Kind::Single(_) => false,
        }
    }

    /// Whether the bell was rung for this lane since its last turn.
    #[must_use]
    pub fn has_work(&self) -> bool {
        match &self.kind {
            Kind::Multi(Some(multi)) => multi.has_work(reach(&self.shared, self.index)),
            Kind::Multi(None) => false,
            Kind::Single(_) => single(&self.shared).lanes[0].pending.any(),
        }
    }

    /// When the oldest request that is with the driver or waits for it was accepted: for the report
    /// of a stop that took too long. Looks at every tag.
    #[must_use]
    pub fn oldest(&self) -> Option<Nanos> {
        match &self.kind {
            Kind::Multi(multi) => multi.as_ref().and_then(|multi| multi.hard().oldest()),
            Kind::Single(_) => single(&self.shared).oldest(),
        }
    }

    /// Whether no request is with the driver or waits for it. A lane with none may rest.
    #[must_use]
    pub fn is_idle(&mut self) -> bool {
        match &mut self.kind {
            Kind::Multi(multi) => multi.as_mut().is_none_or(|multi| multi.is_idle()),
            Kind::Single(_) => single(&self.shared).is_idle(),
        }
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        match &mut self.kind {
            Kind::Multi(multi) => {
                if let Some(multi) = multi.take() {
                    multi.close(reach(&self.shared, self.index));
                }
            }
            Kind::Single(bell) => single(&self.shared).close(bell),
        }
    }
}
