//! Processes that read one area together share a queue while they do. Source:
//! docs/behaviour/cfq.md, section 9.

use super::Cfq;
use super::names::QueueId;

/// Two positions are close up to this distance, sectors (4 MiB).
pub(super) const CLOSE_SECTORS: u64 = 8192;

impl Cfq {
    /// Puts a queue where its next request is, or nowhere if it has none.
    pub(super) fn update_close(&mut self, id: QueueId) {
        let queue = self.queue(id);
        let next = queue.next.filter(|_| !queue.is_idle_class());
        let new = next.map(|tag| (queue.own.level, (self.node(tag).rq.sector, id)));
        let old = queue.close;
        if old == new {
            return;
        }
        match (old, new) {
            (Some((before, old)), Some((level, new))) if before == level => {
                self.close[usize::from(level)].replace(old, new);
            }
            (old, new) => {
                if let Some((level, key)) = old {
                    self.close[usize::from(level)].remove(key);
                }
                if let Some((level, key)) = new {
                    self.close[usize::from(level)].insert(key);
                }
            }
        }
        self.queue_mut(id).close = new;
    }

    /// The queue whose next request is where the queue in service, which is empty, left off.
    pub(super) fn close_cooperator(&self, id: QueueId) -> Option<QueueId> {
        let queue = self.queue(id);
        if queue.is_idle_class()
            || !queue.sync
            || queue.seeks.is_seeky()
            || self.groups[queue.group].busy_queues == 1
        {
            return None;
        }
        let other_id = self.closest(queue.own.level)?;
        let other = self.queue(other_id);
        let fits = other_id != id
            && other.group == queue.group
            && other.sync
            && !other.seeks.is_seeky()
            && other.is_real_time() == queue.is_real_time();
        fits.then_some(other_id)
    }

    /// The queue of a level whose next request is at the head, or else near it on either side.
    fn closest(&self, level: u8) -> Option<QueueId> {
        let queues = &self.close[usize::from(level)];
        let head = (self.position, QueueId(0));
        let near = |key: &(u64, QueueId)| key.0.abs_diff(self.position) <= CLOSE_SECTORS;
        let above = queues.at_or_after(head).filter(near);
        let below = queues.before(head).filter(near);
        above.or(below).map(|(_, id)| id)
    }

    /// From their next requests on, the processes of one of the two go to the other's queue: those
    /// of the queue that has fewer.
    pub(super) fn set_up_sharing(&mut self, id: QueueId, other: QueueId) {
        if self.queue(id).redirect.is_some() {
            return;
        }
        let mut end = other;
        while let Some(further) = self.queue(end).redirect {
            if further == id {
                return;
            }
            end = further;
        }
        let [processes, others] = [id, end].map(|id| self.queue(id).processes);
        if end == id || processes == 0 || others == 0 {
            return;
        }
        let (from, to) = if others >= processes { (id, end) } else { (end, id) };
        self.queue_mut(from).redirect = Some(to);
        self.queue_mut(to).redirected_here += 1;
    }
}
