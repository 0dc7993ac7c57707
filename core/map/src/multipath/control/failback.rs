//! The best group, and when I/O goes back to it.
//! Rules: docs/behaviour/multipath.md, section 5.

use weir_bio::Nanos;

use super::{Control, SECOND_NS};
use crate::multipath::settings::Failback;

impl Control {
    /// The group of the highest priority: the whole mean of those of its valid paths. Of equals
    /// the one with most valid paths, and of those the first. One that is bypassed is the best only
    /// where all with a path are.
    #[must_use]
    pub fn best_group(&self) -> Option<usize> {
        let rank = |group: usize| {
            let valid = self.groups[group].paths.clone().filter(|path| self.is_valid(*path));
            let priorities: Vec<u32> = valid.map(|path| self.priority(path)).collect();
            let count = priorities.len();
            let mean = priorities.iter().sum::<u32>().checked_div(count as u32)?;
            Some((!self.groups[group].is_bypassed, mean, count))
        };
        let ranked = (0..self.groups.len()).filter_map(|group| Some((rank(group)?, group)));
        ranked
            .max_by_key(|(rank, group)| (*rank, std::cmp::Reverse(*group)))
            .map(|(_, group)| group)
    }

    /// Something has changed that may make another group the best; `first_back` is the group whose
    /// first path has come back.
    pub(super) fn consider_failback(&mut self, first_back: Option<usize>, now: Nanos) {
        let best = self.best_group();
        let used = self.next.or(self.current);
        let Some(best) = best.filter(|best| used.is_some_and(|used| used != *best)) else {
            self.failback_at = None;
            return;
        };
        match self.settings.failback {
            Failback::Manual => {}
            Failback::Immediate => self.fail_back(),
            Failback::FollowOver if first_back == Some(best) => self.fail_back(),
            Failback::FollowOver => {}
            Failback::After(seconds) => {
                let at = now + u64::from(seconds) * SECOND_NS;
                self.failback_at.get_or_insert(at);
            }
        }
    }

    /// Back to the best group.
    pub(super) fn fail_back(&mut self) {
        let used = self.next.or(self.current);
        if let Some(best) = self.best_group().filter(|best| used != Some(*best)) {
            self.tell(format!("failback to priority group {}", best + 1));
            self.switch_group(best);
        }
    }

    /// The next request goes to this group, and no group is bypassed.
    pub(super) fn switch_group(&mut self, group: usize) {
        self.next = Some(group);
        self.leave_group();
        for group in &mut self.groups {
            group.is_bypassed = false;
        }
        self.changed();
    }
}
