//! Which request preempts the queue in service. Source: docs/behaviour/cfq.md, section 8.

use weir_bio::{Nanos, Rq};

use super::Cfq;
use super::cooperation::CLOSE_SECTORS;
use super::names::{Kind, QueueId};
use crate::fair::nearest::is_favoured;

impl Cfq {
    /// Whether the arrival of `rq` in queue `id` ends the slot of the queue in service.
    pub(super) fn should_preempt(&self, id: QueueId, rq: &Rq, now: Nanos) -> bool {
        let Some(active_id) = self.active else { return false };
        let (new, active) = (self.queue(id), self.queue(active_id));
        if new.is_idle_class() {
            return false;
        }
        if active.is_idle_class() {
            return true;
        }
        if active.is_real_time() && !new.is_real_time() {
            return false;
        }
        if rq.is_sync() && !active.sync && !active.slot.must_dispatch {
            return true;
        }
        if !self.groups.is_within(active.group, new.group) {
            return false;
        }
        if active.slot.is_used(now) || new.is_real_time() && !active.is_real_time() {
            return true;
        }
        let active_is_empty = active.is_empty();
        let no_idle = Kind::SyncNoIdle;
        if self.workload.kind == no_idle && new.kind() == no_idle && active_is_empty {
            return true;
        }
        if is_favoured(rq) && active.favoured == 0 {
            return true;
        }
        if active_is_empty && !self.should_idle(active_id) {
            return true;
        }
        self.idle_until.is_some() && rq.sector.abs_diff(self.position) <= CLOSE_SECTORS
    }

    /// Ends the slot in service, of which the rest is kept, and puts queue `id` first.
    pub(super) fn preempt(&mut self, id: QueueId, now: Nanos) {
        let Some(active) = self.active else { return };
        let kind = self.queue(active).kind();
        self.expire(true, now);
        if kind != self.queue(id).kind() {
            let at = self.queue(id).group;
            self.groups[at].saved = None;
        }
        self.place(id, true, now);
    }
}
