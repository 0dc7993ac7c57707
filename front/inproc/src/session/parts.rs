//! What a session that turns a disk is made of: the whole disk, or a hard queue of one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use weir_queue::Device;

use crate::shared::Open;

/// What it takes to make a session of a whole disk.
pub(crate) struct Parts {
    pub(crate) device: Device,
    /// Each after those that it lies on.
    pub(crate) below: Vec<Device>,
    pub(crate) notices: Vec<String>,
    pub(crate) legs: Vec<Arc<Open>>,
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
    /// Hard queues that no session has, the next one last.
    free: Vec<usize>,
    /// The program has its handle of the disk.
    has_handle: bool,
    /// Until the disk is closed.
    parts: Option<Parts>,
}

/// A hard queue that a session has.
pub(super) struct Lent {
    kept: Arc<Kept>,
    index: usize,
}

impl Kept {
    pub(super) fn new(parts: Parts) -> Kept {
        let (device, notices) = (parts.device.clone(), parts.notices.clone());
        let close_limit = parts.close_limit;
        let free = (0..usize::from(device.queues())).rev().collect();
        let state = Mutex::new(State { free, has_handle: true, parts: Some(parts) });
        Kept { device, notices, close_limit, state }
    }

    /// A hard queue that no session has, and its number.
    pub(super) fn lend(kept: &Arc<Kept>) -> Option<(usize, Lent)> {
        let index = kept.state().free.pop()?;
        Some((index, Lent { kept: Arc::clone(kept), index }))
    }

    /// Sessions that have a hard queue.
    pub(super) fn sessions(&self) -> usize {
        usize::from(self.device.queues()) - self.state().free.len()
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
    /// handle has gone. One that is dropped instead stays open for ever.
    pub(super) fn give_back(self) -> Option<Parts> {
        self.kept.leave(|state| state.free.push(self.index))
    }
}
