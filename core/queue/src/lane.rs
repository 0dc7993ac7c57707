//! A lane: one hard queue with a home thread, turned by `turn(now)`.
//!
//! On the multi-queue path the lane owns its hard queue; on the single-queue path it is a way to
//! the one under the lock.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use weir_bio::Nanos;

use crate::bell::LaneBell;
use crate::driver::Waiter;
use crate::hard::HardQueue;
use crate::mq::lane::{Multi, Reach};
use crate::mq::port::LaneState;
use crate::shared::{Path, Shared};
use crate::sq::Sq;

/// One hard queue, to be turned by its home.
pub struct Lane {
    shared: Arc<Shared>,
    index: usize,
    event: Option<OwnedFd>,
    kind: Kind,
    wake_at: Option<Nanos>,
}

enum Kind {
    /// `None` once it has closed.
    Multi(Option<Box<Multi>>),
    /// Its place at this home.
    Single(LaneBell),
}

/// What a lane of the multi-queue path reaches.
#[inline(always)]
fn reach(shared: &Shared, index: usize) -> Reach<'_> {
    let Path::Mq(mq) = &shared.path else { unreachable!("a lane of the multi-queue path") };
    Reach { mq, current: &shared.current, fences: &shared.fences, index }
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
        (hard, event): (HardQueue, Option<OwnedFd>),
        state: &mut LaneState,
    ) -> Lane {
        let multi = Multi::open(reach(shared, index), hard, state);
        let (shared, kind) = (Arc::clone(shared), Kind::Multi(Some(Box::new(multi))));
        Lane { shared, index, event, kind, wake_at: None }
    }

    pub(crate) fn single(shared: &Arc<Shared>, event: Option<OwnedFd>, bell: LaneBell) -> Lane {
        let (shared, kind) = (Arc::clone(shared), Kind::Single(bell));
        Lane { shared, index: 0, event, kind, wake_at: None }
    }

    /// Its number among the device's hard queues.
    #[must_use]
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

    /// One turn: takes answers from the driver, sends what waits, posts completions. Never blocks.
    #[inline]
    pub fn turn(&mut self, now: Nanos) {
        match &mut self.kind {
            Kind::Multi(Some(multi)) => {
                multi.turn(reach(&self.shared, self.index), now);
                self.wake_at = multi.wake_at(now);
            }
            Kind::Multi(None) => {}
            Kind::Single(_) => {
                let sq = single(&self.shared);
                sq.lanes[0].pending.take(|_| {});
                self.wake_at = sq.turn(now);
            }
        }
        if self.shared.has_orphans() {
            self.shared.tend_orphans(now);
        }
    }

    /// When it wants a turn although nobody rings and no descriptor is ready.
    #[must_use]
    pub fn wake_at(&self) -> Option<Nanos> {
        self.wake_at
    }

    /// Becomes readable when the driver has answers.
    #[must_use]
    pub fn event_fd(&self) -> Option<BorrowedFd<'_>> {
        self.event.as_ref().map(AsFd::as_fd)
    }

    /// A way for its home to wait for the driver, or until `beside` becomes readable, where the
    /// driver has one that takes less than polling the [event](Lane::event_fd), which is of no use
    /// any more from then on.
    #[must_use]
    pub fn waiter(&mut self, beside: BorrowedFd<'_>) -> Option<Box<dyn Waiter>> {
        match &mut self.kind {
            Kind::Multi(multi) => multi.as_mut().and_then(|multi| multi.waiter(beside)),
            Kind::Single(_) => single(&self.shared).waiter(beside),
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
