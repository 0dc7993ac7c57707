//! Groups: which of them is served next, by disk time divided by share. Source:
//! docs/behaviour/cfq.md, section 6.
//!
//! A group competes with its siblings by `weight`; its own processes compete with its child groups
//! by `leaf_weight`. Only groups with something to do count.

use std::collections::BTreeMap;

use weir_bio::{Class, GroupId};

use super::names::{GroupIndex, Kind, QueueId, TreeId, TreeKey};
use crate::fair::sorted::Sorted;
use crate::fair::think_time::ThinkTime;

/// The root has twice this, so that its own processes are not outvoted by a single group.
const WEIGHT_DEFAULT: u16 = 100;
/// A whole, where the share of a group is a fraction.
pub(super) const WHOLE: u64 = 1 << 32;
/// Nanoseconds of full-share time become virtual time with so many bits of fraction.
const VIRTUAL_SHIFT: u32 = 12;
/// How far behind the last group one that becomes busy starts, in virtual time: about 49 us of
/// full share. Counted in requests it is next to nothing as well.
const BEHIND_TIME: u128 = 200_000_000;
const BEHIND_REQUESTS: u128 = 200;

/// The use of the device by a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupUse {
    /// Disk time it was charged, nanoseconds (`blkio.time`).
    pub time_ns: u64,
    /// Disk time beyond what its slices were for, nanoseconds (`blkio.unaccounted_time`).
    pub unaccounted_ns: u64,
    /// Sectors dispatched (`blkio.sectors`).
    pub sectors: u64,
    /// Requests dispatched.
    pub requests: u64,
}

/// Busy queues of one group, class and kind.
#[derive(Clone, Debug)]
pub(super) struct ServiceTree {
    pub(super) queues: Sorted<TreeKey>,
    pub(super) think: ThinkTime,
}

/// The rest of a workload's time when its group loses service.
#[derive(Clone, Copy, Debug)]
pub(super) struct SavedWorkload {
    pub(super) left_ns: u64,
    pub(super) class: Class,
    pub(super) kind: Kind,
}

#[derive(Clone, Debug)]
pub(super) struct Group {
    parent: Option<GroupIndex>,
    weight: u16,
    leaf_weight: u16,
    /// Weights that count from the next time the group is put in order.
    new_weight: Option<u16>,
    new_leaf_weight: Option<u16>,
    /// Sum of the shares below: active children, and its own processes while they are.
    shares: u64,
    /// How many of those there are.
    active: u32,
    virtual_time: u128,
    /// Its key while it has busy queues.
    place: Option<(u128, u64, GroupIndex)>,
    pub(super) trees: [ServiceTree; TreeId::COUNT],
    pub(super) busy_queues: u32,
    pub(super) in_flight: u32,
    pub(super) think: ThinkTime,
    /// Busy queues of a class (real-time, best-effort, idle), averaged: quick to rise.
    average: [u64; 3],
    pub(super) saved: Option<SavedWorkload>,
    /// Async queues by priority, shared by all its processes.
    pub(super) async_queues: [Option<QueueId>; 17],
    pub(super) used: GroupUse,
}

impl Group {
    fn new(weight: u16, parent: Option<GroupIndex>) -> Group {
        let tree = ServiceTree { queues: Sorted::default(), think: ThinkTime::SILENT };
        Group {
            parent,
            weight,
            leaf_weight: weight,
            new_weight: None,
            new_leaf_weight: None,
            shares: 0,
            active: 0,
            virtual_time: 0,
            place: None,
            trees: std::array::from_fn(|_| tree.clone()),
            busy_queues: 0,
            in_flight: 0,
            think: ThinkTime::SILENT,
            average: [0; 3],
            saved: None,
            async_queues: [None; 17],
            used: GroupUse::default(),
        }
    }

    #[cfg(test)]
    pub(super) fn virtual_time(&self) -> u128 {
        self.virtual_time
    }

    /// Busy queues of a class.
    pub(super) fn busy_of(&self, class: Class) -> u64 {
        let count = |tree: TreeId| self.trees[tree.index()].queues.len() as u64;
        match class {
            Class::Idle => count(TreeId::IDLE),
            class => Kind::ALL.iter().map(|kind| count(TreeId::new(class, *kind))).sum(),
        }
    }

    /// Busy async queues of both classes that have a tree of them.
    pub(super) fn busy_async(&self) -> u64 {
        let of = |class| self.trees[TreeId::new(class, Kind::Async).index()].queues.len() as u64;
        of(Class::RealTime) + of(Class::BestEffort)
    }

    /// The averaged number of busy queues of a class.
    pub(super) fn average_of(&self, class: Class) -> u64 {
        self.average[class_index(class)]
    }

    /// Moves the average on and answers it: it rises fast and decays slowly.
    pub(super) fn update_average(&mut self, class: Class) -> u64 {
        let busy = self.busy_of(class);
        let average = &mut self.average[class_index(class)];
        let (least, most) = ((*average).min(busy), (*average).max(busy));
        *average = (3 * most + least + 2) / 4;
        *average
    }
}

fn class_index(class: Class) -> usize {
    match class {
        Class::RealTime => 0,
        Class::BestEffort | Class::None => 1,
        Class::Idle => 2,
    }
}

/// All groups, and the order of those with busy queues.
#[derive(Clone, Debug)]
pub(super) struct Groups {
    table: Vec<Group>,
    by_id: BTreeMap<GroupId, GroupIndex>,
    order: Sorted<(u128, u64, GroupIndex)>,
    sequence: u64,
    /// The virtual time no group is behind.
    least: u128,
}

impl std::ops::Index<GroupIndex> for Groups {
    type Output = Group;
    fn index(&self, at: GroupIndex) -> &Group {
        &self.table[at.0 as usize]
    }
}

impl std::ops::IndexMut<GroupIndex> for Groups {
    fn index_mut(&mut self, at: GroupIndex) -> &mut Group {
        &mut self.table[at.0 as usize]
    }
}

impl Groups {
    /// The root alone.
    pub(super) fn new() -> Groups {
        let root = Group::new(2 * WEIGHT_DEFAULT, None);
        Groups {
            table: vec![root],
            by_id: BTreeMap::from([(GroupId(0), GroupIndex(0))]),
            order: Sorted::default(),
            sequence: 0,
            least: 0,
        }
    }

    /// The group of this name; one never heard of is a child of the root.
    pub(super) fn find(&mut self, id: GroupId) -> GroupIndex {
        let Groups { table, by_id, .. } = self;
        *by_id.entry(id).or_insert_with(|| {
            table.push(Group::new(WEIGHT_DEFAULT, Some(GroupIndex(0))));
            GroupIndex(table.len() as u32 - 1)
        })
    }

    /// The group of this name, if it was ever heard of.
    pub(super) fn known(&self, id: GroupId) -> Option<GroupIndex> {
        self.by_id.get(&id).copied()
    }

    /// The group has a new weight among its siblings; the root's also counts for its processes.
    pub(super) fn set_weight(&mut self, at: GroupIndex, weight: u16) {
        self[at].new_weight = Some(weight);
        if self[at].parent.is_none() {
            self[at].new_leaf_weight = Some(weight);
        }
    }

    /// The group's own processes have a new weight against its child groups.
    pub(super) fn set_leaf_weight(&mut self, at: GroupIndex, weight: u16) {
        self[at].new_leaf_weight = Some(weight);
    }

    /// The group belongs to another one from now on.
    pub(super) fn set_parent(&mut self, at: GroupIndex, parent: GroupIndex) {
        assert!(at.0 != 0, "the root group has no parent");
        let mut above = Some(parent);
        while let Some(ancestor) = above {
            assert!(ancestor != at, "a group cannot be its own ancestor");
            above = self[ancestor].parent;
        }
        let counted = self[at].active > 0;
        if counted {
            self.leave_parent(at);
        }
        self[at].parent = Some(parent);
        if counted {
            self.join_parent(at);
        }
    }

    /// Whether `above` is `at` or one of its ancestors.
    pub(super) fn is_within(&self, at: GroupIndex, above: GroupIndex) -> bool {
        let mut here = Some(at);
        while let Some(group) = here {
            if group == above {
                return true;
            }
            here = self[group].parent;
        }
        false
    }

    /// The group's part of the device, of [`WHOLE`], among those that are active.
    pub(super) fn share(&self, at: GroupIndex) -> u64 {
        let group = &self[at];
        let mut share = part(WHOLE, u64::from(group.leaf_weight), group.shares);
        let mut here = at;
        while let Some(parent) = self[here].parent {
            share = part(share, u64::from(self[here].weight), self[parent].shares);
            here = parent;
        }
        share.max(1)
    }

    /// The group has its first busy queue: behind the last one in order.
    pub(super) fn became_busy(&mut self, at: GroupIndex, counts_requests: bool) {
        let behind = if counts_requests { BEHIND_REQUESTS } else { BEHIND_TIME };
        self[at].virtual_time = match self.order.last() {
            Some((last, ..)) => last + behind,
            None => self.least,
        };
        self.activate(at);
    }

    /// The group has no busy queue left and loses its place.
    pub(super) fn became_idle(&mut self, at: GroupIndex) {
        self.deactivate(at);
        self[at].saved = None;
    }

    /// The group was served: `charge` nanoseconds, or requests, of the device.
    pub(super) fn charge(&mut self, at: GroupIndex, charge: u64) {
        let advance =
            (u128::from(charge) << VIRTUAL_SHIFT) * u128::from(WHOLE) / u128::from(self.share(at));
        self.deactivate(at);
        self[at].virtual_time += advance;
        self.activate(at);
    }

    /// From here on service is counted otherwise. Amounts of both kinds cannot be compared, so all
    /// begin at the same point, in the order they are in.
    pub(super) fn begin_anew(&mut self) {
        let mut order = Sorted::default();
        while let Some(place) = self.order.first() {
            let (_, sequence, at) = place;
            self.order.remove(place);
            let place = (self.least, sequence, at);
            order.insert(place);
            self[at].virtual_time = self.least;
            self[at].place = Some(place);
        }
        self.order = order;
    }

    /// The group that is served next: the least virtual time.
    pub(super) fn first(&mut self) -> Option<GroupIndex> {
        let (least, _, at) = self.order.first()?;
        self.least = self.least.max(least);
        Some(at)
    }

    fn activate(&mut self, at: GroupIndex) {
        let mut here = Some(at);
        while let Some(group) = here {
            self.renew_weights(group);
            here = self[group].parent;
        }
        let leaf_weight = u64::from(self[at].leaf_weight);
        self.add_share(at, leaf_weight);
        self.sequence += 1;
        let place = (self[at].virtual_time, self.sequence, at);
        self[at].place = Some(place);
        self.order.insert(place);
    }

    fn deactivate(&mut self, at: GroupIndex) {
        let place = self[at].place.take().expect("a group with busy queues has a place");
        self.order.remove(place);
        let leaf_weight = u64::from(self[at].leaf_weight);
        self.remove_share(at, leaf_weight);
    }

    fn add_share(&mut self, at: GroupIndex, share: u64) {
        self[at].shares += share;
        self[at].active += 1;
        if self[at].active == 1 {
            self.join_parent(at);
        }
    }

    fn remove_share(&mut self, at: GroupIndex, share: u64) {
        self[at].shares -= share;
        self[at].active -= 1;
        if self[at].active == 0 {
            self.leave_parent(at);
        }
    }

    fn join_parent(&mut self, at: GroupIndex) {
        if let Some(parent) = self[at].parent {
            self.add_share(parent, u64::from(self[at].weight));
        }
    }

    fn leave_parent(&mut self, at: GroupIndex) {
        if let Some(parent) = self[at].parent {
            self.remove_share(parent, u64::from(self[at].weight));
        }
    }

    /// New weights begin to count. A parent's sum follows at once where the old one is in it.
    fn renew_weights(&mut self, at: GroupIndex) {
        if let Some(weight) = self[at].new_weight.take() {
            let old = std::mem::replace(&mut self[at].weight, weight);
            if let Some(parent) = self[at].parent.filter(|_| self[at].active > 0) {
                let shares = &mut self[parent].shares;
                *shares = *shares - u64::from(old) + u64::from(weight);
            }
        }
        if let Some(weight) = self[at].new_leaf_weight.take() {
            let old = std::mem::replace(&mut self[at].leaf_weight, weight);
            if self[at].place.is_some() {
                let shares = &mut self[at].shares;
                *shares = *shares - u64::from(old) + u64::from(weight);
            }
        }
    }

    /// Whether no group is active and every sum is back to nothing.
    #[cfg(test)]
    pub(super) fn is_at_rest(&self) -> bool {
        self.order.is_empty()
            && self.table.iter().all(|group| {
                let counts = [group.active, group.busy_queues, group.in_flight];
                group.shares == 0 && counts == [0; 3] && group.place.is_none()
            })
    }
}

/// `whole` times `share` of `shares`; all of it where `shares` is 0.
fn part(whole: u64, share: u64, shares: u64) -> u64 {
    if shares == 0 {
        return whole;
    }
    (u128::from(whole) * u128::from(share) / u128::from(shares)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn percent(groups: &Groups, at: GroupIndex) -> f64 {
        (1000 * groups.share(at) / WHOLE) as f64 / 10.0
    }

    #[test]
    fn a_tree_of_weights_divides_the_device_level_by_level() {
        let mut groups = Groups::new();
        let [root, a, b, aa, ab] = [0, 1, 2, 3, 4].map(|id| groups.find(GroupId(id)));
        groups.set_parent(aa, a);
        groups.set_parent(ab, a);
        groups.set_weight(root, 125);
        groups.set_weight(a, 500);
        groups.set_leaf_weight(a, 750);
        groups.set_weight(b, 250);
        groups.set_weight(aa, 500);
        groups.set_weight(ab, 1000);
        for at in [root, a, b, aa, ab] {
            groups.became_busy(at, false);
        }
        let shares = [root, b, a, aa, ab].map(|at| percent(&groups, at));
        assert_eq!(shares, [14.2, 28.5, 19.0, 12.6, 25.3], "cut to a tenth");
        groups.became_idle(b);
        groups.became_idle(aa);
        let shares = [root, a, ab].map(|at| percent(&groups, at));
        assert_eq!(shares, [19.9, 34.2, 45.7]);
        for at in [root, a, ab] {
            groups.became_idle(at);
        }
        assert!(groups.is_at_rest());
    }

    #[test]
    fn a_new_weight_counts_when_the_group_is_next_put_in_order() {
        let mut groups = Groups::new();
        let [a, b, inner] = [1, 2, 3].map(|id| groups.find(GroupId(id)));
        groups.set_parent(inner, a);
        groups.became_busy(inner, false);
        groups.became_busy(b, false);
        groups.set_weight(a, 300);
        assert_eq!(percent(&groups, inner), 50.0);
        groups.charge(inner, 1);
        assert_eq!(percent(&groups, inner), 75.0);
        groups.set_parent(inner, GroupIndex(0));
        assert_eq!(percent(&groups, inner), 50.0);
    }

    #[test]
    fn charges_divided_by_shares_decide_and_newcomers_start_behind_the_last() {
        let mut groups = Groups::new();
        let [a, b, late] = [1, 2, 3].map(|id| groups.find(GroupId(id)));
        groups.set_weight(a, 200);
        groups.became_busy(a, false);
        groups.became_busy(b, false);
        let mut turns = [0; 2];
        for _ in 0..300 {
            let first = groups.first().expect("two are busy");
            turns[usize::from(first == b)] += 1;
            groups.charge(first, 1_000_000);
        }
        assert_eq!(turns, [200, 100]);
        groups.became_busy(late, false);
        assert_ne!(groups.first(), Some(late));
        groups.charge(a, 50_000_000);
        groups.begin_anew();
        groups.charge(b, 1);
        groups.charge(late, 1);
        assert_eq!(groups.first(), Some(a), "what was before no longer counts");
    }

    #[test]
    fn a_group_that_becomes_busy_starts_a_little_behind_the_last_or_at_the_least() {
        for (counts_requests, behind) in [(false, 200_000_000), (true, 200)] {
            let mut groups = Groups::new();
            let [a, b, c] = [1, 2, 3].map(|id| groups.find(GroupId(id)));
            groups.became_busy(a, counts_requests);
            groups.charge(a, 5_000_000);
            let last = groups[a].virtual_time;
            assert!(last > 0);
            groups.became_busy(b, counts_requests);
            assert_eq!(groups[b].virtual_time, last + behind);
            groups.first();
            groups.became_idle(a);
            groups.became_idle(b);
            groups.became_busy(c, counts_requests);
            assert_eq!(groups[c].virtual_time, last, "no group is busy");
        }
    }

    #[test]
    fn the_processes_of_the_root_weigh_twice_as_much_as_a_group_by_default() {
        let mut groups = Groups::new();
        let [root, a] = [0, 1].map(|id| groups.find(GroupId(id)));
        groups.became_busy(root, false);
        groups.became_busy(a, false);
        assert_eq!([root, a].map(|at| percent(&groups, at)), [66.6, 33.3]);
    }

    #[test]
    fn of_groups_that_had_as_much_the_one_that_had_it_first_is_next() {
        let mut groups = Groups::new();
        let [a, b] = [1, 2].map(|id| groups.find(GroupId(id)));
        groups.became_busy(b, false);
        groups.became_busy(a, false);
        groups.begin_anew();
        for (first, second) in [(b, a), (a, b)] {
            groups.charge(first, 100);
            groups.charge(second, 100);
            assert_eq!(groups[a].virtual_time, groups[b].virtual_time);
            assert_eq!(groups.first(), Some(first));
        }
    }

    #[test]
    fn a_new_weight_of_a_group_that_stays_active_counts_among_its_siblings() {
        let mut groups = Groups::new();
        let [outer, one, two, other] = [1, 2, 3, 4].map(|id| groups.find(GroupId(id)));
        for (at, parent) in [(one, outer), (two, outer)] {
            groups.set_parent(at, parent);
        }
        for at in [one, two, other] {
            groups.became_busy(at, false);
        }
        groups.set_weight(outer, 300);
        groups.charge(one, 1);
        let shares = [one, two, other].map(|at| percent(&groups, at));
        assert_eq!(shares, [37.5, 37.5, 25.0]);
    }

    #[test]
    fn a_new_leaf_weight_of_a_busy_group_counts_when_a_child_is_put_in_order() {
        let mut groups = Groups::new();
        let [outer, inner] = [1, 2].map(|id| groups.find(GroupId(id)));
        groups.set_parent(inner, outer);
        groups.became_busy(outer, false);
        groups.became_busy(inner, false);
        assert_eq!(percent(&groups, outer), 50.0);
        groups.set_leaf_weight(outer, 300);
        groups.charge(inner, 1);
        assert_eq!([percent(&groups, outer), percent(&groups, inner)], [75.0, 25.0]);
        groups.became_idle(inner);
        groups.became_idle(outer);
        assert!(groups.is_at_rest());
    }
}
