//! What a session that turns a disk is made of: the whole disk, or a hard queue of one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use weir_live::EventWake;
use weir_queue::{Bell, Device};

use crate::shared::Open;

/// What it takes to make a session of a whole disk.
#[derive(Clone)]
pub(crate) struct Parts {
    pub(crate) device: Device,
    /// Each after those that it lies on.
    pub(crate) below: Vec<Device>,
    pub(crate) notices: Vec<String>,
    pub(crate) legs: Vec<Arc<Open>>,
    /// The legs know of it.
    pub(crate) is_carried: bool,
    pub(crate) close_limit: Duration,
}

/// A disk whose hard queues are lent to sessions.
pub(super) struct Kept {
    pub(super) device: Device,
    pub(super) notices: Vec<String>,
    close_limit: Duration,
    state: Mutex<State>,
}

struct State {
    /// Hard queues that no session has, the next one last. Each keeps its bell: a lane remembers
    /// all that it ever had.
    free: Vec<(usize, Option<HomeBell>)>,
    /// Hard queues that no session has or will have, because their I/O did not end.
    lost: usize,
    /// The program has its handle of the disk.
    has_handle: bool,
    /// Until the disk is closed.
    parts: Option<Parts>,
}

/// A hard queue that a session has.
pub(super) struct Lent {
    kept: Arc<Kept>,
    index: usize,
    /// None before its first session.
    pub(super) bell: Option<HomeBell>,
}

/// The bell of a hard queue's home, and what it wakes by.
type HomeBell = (EventWake, Arc<Bell>);

impl Kept {
    pub(super) fn new(parts: Parts) -> Kept {
        let (device, notices) = (parts.device.clone(), parts.notices.clone());
        let close_limit = parts.close_limit;
        let free = (0..usize::from(device.queues())).rev().map(|index| (index, None)).collect();
        let state = State { free, lost: 0, has_handle: true, parts: Some(parts) };
        let state = Mutex::new(state);
        Kept { device, notices, close_limit, state }
    }

    /// A hard queue that no session has, and its number.
    pub(super) fn lend(kept: &Arc<Kept>) -> Option<(usize, Lent)> {
        let (index, bell) = kept.state().free.pop()?;
        Some((index, Lent { kept: Arc::clone(kept), index, bell }))
    }

    /// Sessions that have a hard queue.
    pub(super) fn sessions(&self) -> usize {
        let state = self.state();
        usize::from(self.device.queues()) - state.free.len() - state.lost
    }

    /// Hard queues whose I/O did not end.
    pub(super) fn lost(&self) -> usize {
        self.state().lost
    }

    /// It was not closed: what it takes to try again.
    pub(super) fn put_back(&self, parts: Parts) {
        self.state().parts = Some(parts);
    }

    /// The handle goes: the disk, to be closed, if no session has a hard queue.
    pub(super) fn let_go(&self) -> Option<Parts> {
        self.leave(|state| state.has_handle = false)
    }

    /// The disk, if with this change the last who had a part in it has gone.
    fn leave(&self, change: impl FnOnce(&mut State)) -> Option<Parts> {
        let queues = usize::from(self.device.queues());
        let mut state = self.state();
        change(&mut state);
        let is_last = !state.has_handle && state.free.len() == queues;
        if is_last { state.parts.take() } else { None }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lent {
    pub(super) fn device(&self) -> &Device {
        &self.kept.device
    }

    pub(super) fn close_limit(&self) -> Duration {
        self.kept.close_limit
    }

    /// The hard queue is closed: the disk, to be closed, if this was the last session and the
    /// handle has gone.
    pub(super) fn give_back(self) -> Option<Parts> {
        let Lent { kept, index, bell } = self;
        kept.leave(|state| state.free.push((index, bell)))
    }

    /// The hard queue has I/O that did not end, and stays as it is for ever.
    pub(super) fn lose(self) {
        self.kept.state().lost += 1;
    }
}
