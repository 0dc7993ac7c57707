//! Groups: weights that schedulers share a device by, and caps that act before an I/O is accepted.
//! One tree of groups serves all devices of a daemon. Caps at work are in `group/meter.rs`,
//! submitters that wait for one in `group/held.rs`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use weir_bio::GroupId;

use crate::error::{Error, invalid};

mod held;
mod meter;

pub use held::HeldBack;
pub use meter::{CAPS_AGAIN_NS, Caps, Member, Used};

use meter::{BURST_MAX_NS, Meter};

/// Groups there can be, the root included.
pub const GROUPS_MAX: usize = 1024;

/// Bounds and default of a weight (`io.bfq.weight`).
pub const WEIGHT_MIN: u16 = 1;
/// See [`WEIGHT_MIN`].
pub const WEIGHT_MAX: u16 = 1000;
/// See [`WEIGHT_MIN`].
pub const WEIGHT_DEFAULT: u16 = 100;

/// A group as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupEntry {
    /// Its number in bios.
    pub id: GroupId,
    /// Its place in the tree, names joined by `/`; empty for the root.
    pub path: String,
    /// The group above; `None` for the root.
    pub parent: Option<GroupId>,
    /// Its weight among its siblings.
    pub weight: u16,
    /// Its caps.
    pub caps: Caps,
    /// The use of its own members, groups below not included.
    pub used: Used,
}

/// All groups of a daemon.
#[derive(Default)]
pub struct Groups {
    tree: Mutex<Tree>,
}

struct Tree {
    nodes: Vec<Node>,
    by_path: BTreeMap<String, GroupId>,
    devices: Vec<Weak<dyn SharesByWeight>>,
}

/// A device whose scheduler knows groups.
pub(crate) trait SharesByWeight: Send + Sync {
    /// Tells the scheduler where a group stands, if that is new, and what it weighs.
    fn tell_group(&self, group: GroupId, parent: Option<GroupId>, weight: u16);
}

struct Node {
    path: String,
    parent: Option<GroupId>,
    weight: u16,
    meter: Arc<Meter>,
}

impl Default for Tree {
    fn default() -> Tree {
        let meter = Arc::new(Meter::under(None));
        let root = Node { path: String::new(), parent: None, weight: WEIGHT_DEFAULT, meter };
        Tree {
            nodes: vec![root],
            by_path: BTreeMap::from([(String::new(), GroupId(0))]),
            devices: Vec::new(),
        }
    }
}

impl fmt::Debug for Groups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.all()).finish()
    }
}

impl Groups {
    fn tree(&self) -> MutexGuard<'_, Tree> {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The group of this path, made now with everything above it if it is not there.
    ///
    /// # Errors
    /// A path that is no path, or more than [`GROUPS_MAX`] groups.
    pub fn create(&self, path: &str) -> Result<GroupId, Error> {
        let mut parent = GroupId(0);
        if path.is_empty() {
            return Ok(parent);
        }
        let bad = |name: &str| name.is_empty() || name == "." || name == ".." || name.len() > 255;
        if path.split('/').any(bad) || path.contains(['\0', '\n']) {
            return invalid(format!("group {path:?} is no path of names joined by /"));
        }
        let mut tree = self.tree();
        let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
        for end in ends {
            let here = &path[..end];
            parent = match tree.by_path.get(here) {
                Some(id) => *id,
                None => tree.add(here, parent)?,
            };
        }
        Ok(parent)
    }

    /// The group of this path.
    #[must_use]
    pub fn find(&self, path: &str) -> Option<GroupId> {
        self.tree().by_path.get(path).copied()
    }

    /// All groups, the root first, each after the one above it.
    #[must_use]
    pub fn all(&self) -> Vec<GroupEntry> {
        let tree = self.tree();
        let group = |(id, node): (usize, &Node)| {
            let (caps, used) = node.meter.caps_and_used();
            GroupEntry {
                id: GroupId(id as u32),
                path: node.path.clone(),
                parent: node.parent,
                weight: node.weight,
                caps,
                used,
            }
        };
        tree.nodes.iter().enumerate().map(group).collect()
    }

    /// Sets a group's weight, for all devices at once.
    ///
    /// # Errors
    /// A weight outside [`WEIGHT_MIN`]..=[`WEIGHT_MAX`], or no such group.
    pub fn set_weight(&self, id: GroupId, weight: u16) -> Result<(), Error> {
        if !(WEIGHT_MIN..=WEIGHT_MAX).contains(&weight) {
            return invalid(format!("weight={weight} is outside {WEIGHT_MIN}..={WEIGHT_MAX}"));
        }
        let mut tree = self.tree();
        tree.node(id)?.weight = weight;
        // Told under the lock: the last one told is the one that stands here.
        for device in tree.devices() {
            device.tell_group(id, None, weight);
        }
        Ok(())
    }

    /// Sets a group's caps. They hold for the next I/O. How much a group is ahead of a cap does not
    /// change with its rate; how long that takes to make up for does.
    ///
    /// # Errors
    /// A burst of more than an hour, or no such group.
    pub fn set_caps(&self, id: GroupId, caps: Caps) -> Result<(), Error> {
        if caps.burst_ns > BURST_MAX_NS {
            let (burst, most) = (caps.burst_ns / 1_000_000_000, BURST_MAX_NS / 1_000_000_000);
            return invalid(format!("burst={burst} s is above {most} s"));
        }
        let mut tree = self.tree();
        tree.node(id)?.meter.set_caps(caps);
        // A group comes before those below it.
        tree.nodes.iter().for_each(|node| node.meter.find_whether_capped());
        Ok(())
    }

    /// A new member of a group: a submitter or client whose I/O counts there.
    ///
    /// # Errors
    /// No such group.
    pub fn join(&self, id: GroupId) -> Result<Member, Error> {
        self.join_on(id, "")
    }

    /// As [`join`](Groups::join), for I/O to the disk of this name, under which
    /// [`used_on`](Groups::used_on) finds it.
    ///
    /// # Errors
    /// No such group.
    pub fn join_on(&self, id: GroupId, disk: &str) -> Result<Member, Error> {
        let meter = Arc::clone(&self.tree().node(id)?.meter);
        Ok(Meter::join(meter, id, disk))
    }

    /// The use of a disk by members of a group, groups below not included; nothing if there is no
    /// such group.
    #[must_use]
    pub fn used_on(&self, id: GroupId, disk: &str) -> Used {
        let tree = self.tree();
        let node = tree.nodes.get(id.0 as usize);
        node.map_or(Used::default(), |node| node.meter.used_on(disk))
    }

    /// Tells a device's scheduler of all groups, and of every change from now on.
    pub(crate) fn attach(&self, device: &Arc<impl SharesByWeight + 'static>) {
        let mut tree = self.tree();
        tree.devices.retain(|known| known.strong_count() > 0);
        let known: Weak<dyn SharesByWeight> = Arc::downgrade(device) as _;
        tree.devices.push(known);
        tree.tell(device.as_ref());
    }

    /// Tells a device's scheduler of all groups.
    pub(crate) fn tell(&self, device: &dyn SharesByWeight) {
        self.tree().tell(device);
    }
}

impl Tree {
    fn add(&mut self, path: &str, parent: GroupId) -> Result<GroupId, Error> {
        if self.nodes.len() >= GROUPS_MAX {
            return invalid(format!("group {path:?}: there are {GROUPS_MAX} groups already"));
        }
        let id = GroupId(self.nodes.len() as u32);
        let above = Arc::clone(&self.nodes[parent.0 as usize].meter);
        let meter = Arc::new(Meter::under(Some(above)));
        meter.find_whether_capped();
        let (path, weight) = (String::from(path), WEIGHT_DEFAULT);
        self.by_path.insert(path.clone(), id);
        self.nodes.push(Node { path, parent: Some(parent), weight, meter });
        for device in self.devices() {
            device.tell_group(id, Some(parent), weight);
        }
        Ok(id)
    }

    fn tell(&self, device: &dyn SharesByWeight) {
        for (id, node) in self.nodes.iter().enumerate() {
            device.tell_group(GroupId(id as u32), node.parent, node.weight);
        }
    }

    fn node(&mut self, id: GroupId) -> Result<&mut Node, Error> {
        let count = self.nodes.len();
        match self.nodes.get_mut(id.0 as usize) {
            Some(node) => Ok(node),
            None => invalid(format!("group number {} of {count}", id.0)),
        }
    }

    fn devices(&self) -> Vec<Arc<dyn SharesByWeight>> {
        self.devices.iter().filter_map(Weak::upgrade).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use weir_bio::Nanos;

    use super::meter::SLACK_NS;
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// How much may be let through ahead of a rate.
    fn ahead(rate: u64) -> u64 {
        rate * SLACK_NS / SECOND
    }

    fn caps(riops: u64, rbps: u64, burst_ns: u64) -> Caps {
        let (riops, rbps) = (NonZeroU64::new(riops), NonZeroU64::new(rbps));
        Caps { riops, rbps, burst_ns, ..Caps::default() }
    }

    /// Reads of `bytes` that are admitted from `from` on, for `ns`, by one who asks again exactly
    /// when told.
    fn admitted(member: &Member, bytes: u64, from: Nanos, ns: u64) -> u64 {
        let (mut now, mut count) = (from, 0);
        while now < from + ns {
            match member.admit(false, bytes, now) {
                Ok(()) => count += 1,
                Err(until) => {
                    assert!(until > now, "{until:?} is not after {now:?}");
                    now = until;
                }
            }
        }
        count
    }

    #[test]
    fn a_cap_holds_over_every_second_and_a_burst_is_spent_once() {
        let groups = Groups::default();
        let id = groups.create("tenants/a").unwrap();
        let member = groups.join(id).unwrap();
        groups.set_caps(id, caps(500, 0, 0)).unwrap();
        for second in 1..5 {
            let count = admitted(&member, 4096, Nanos(second * SECOND), SECOND);
            assert!((499..=501 + ahead(500)).contains(&count), "second {second}: {count}");
        }
        groups.set_caps(id, caps(500, 0, 2 * SECOND)).unwrap();
        let first = admitted(&member, 4096, Nanos(100 * SECOND), SECOND);
        assert!((1499..=1502).contains(&first), "two seconds' worth at once: {first}");
        let second = admitted(&member, 4096, Nanos(101 * SECOND), SECOND);
        assert!((499..=501).contains(&second), "{second}");
    }

    #[test]
    fn bytes_are_capped_however_large_an_io_is() {
        let groups = Groups::default();
        let id = groups.create("a").unwrap();
        let member = groups.join(id).unwrap();
        groups.set_caps(id, caps(0, 1 << 20, 0)).unwrap();
        let count = admitted(&member, 4 << 20, Nanos(SECOND), 40 * SECOND);
        assert!((10..=11).contains(&count), "4 MiB each at 1 MiB a second: {count}");
        assert!(member.admit(true, 1 << 30, Nanos(SECOND)).is_ok(), "writes are free");
    }

    #[test]
    fn a_cap_binds_the_groups_below_and_not_those_beside() {
        let groups = Groups::default();
        let [above, a, b, other] =
            ["t", "t/a", "t/b", "other"].map(|path| groups.create(path).unwrap());
        groups.set_caps(above, caps(100, 0, 0)).unwrap();
        let [a, b, other] = [a, b, other].map(|id| groups.join(id).unwrap());
        let mut counts = [0_u64; 2];
        let mut now = Nanos(SECOND);
        while now < Nanos(2 * SECOND) {
            let asked = [a.admit(false, 1, now), b.admit(false, 1, now)];
            for (count, asked) in counts.iter_mut().zip(asked) {
                *count += u64::from(asked.is_ok());
            }
            if let [Err(one), Err(other)] = asked {
                now = one.min(other);
            }
        }
        let sum = counts[0] + counts[1];
        assert!((99..=103).contains(&sum), "{counts:?}");
        assert!((0..1000).all(|_| other.admit(false, 1, now).is_ok()));
        assert_eq!(groups.all()[above.0 as usize].used.ios, [0, 0], "its own only");
        drop(other);
        assert_eq!(groups.all().last().unwrap().used.ios, [1000, 0], "it outlives its members");
    }

    #[test]
    fn what_was_used_is_told_for_each_disk() {
        let groups = Groups::default();
        let id = groups.create("a").unwrap();
        let [sda, vdb] = ["sda", "vdb"].map(|disk| groups.join_on(id, disk).unwrap());
        (0..3).for_each(|_| sda.admit(true, 512, Nanos(SECOND)).unwrap());
        vdb.admit(false, 4096, Nanos(SECOND)).unwrap();
        drop(sda);
        groups.join_on(id, "sda").unwrap().admit(true, 512, Nanos(SECOND)).unwrap();
        let sda = groups.used_on(id, "sda");
        assert_eq!((sda.ios, sda.bytes), ([0, 4], [0, 2048]));
        assert_eq!(groups.used_on(id, "vdb").bytes, [4096, 0]);
        assert_eq!(groups.used_on(id, "sdb"), Used::default());
        assert_eq!(groups.used_on(GroupId(9), "sda"), Used::default());
        assert_eq!(groups.all()[id.0 as usize].used.ios, [1, 4]);
    }

    #[test]
    fn a_lifted_cap_lets_the_next_one_through() {
        let groups = Groups::default();
        let id = groups.create("a").unwrap();
        let member = groups.join(id).unwrap();
        groups.set_caps(id, caps(1, 0, 0)).unwrap();
        assert!(member.admit(false, 1, Nanos(SECOND)).is_ok());
        assert!(member.admit(false, 1, Nanos(SECOND)).is_err());
        groups.set_caps(id, Caps::default()).unwrap();
        assert!(member.admit(false, 1, Nanos(SECOND)).is_ok());
    }

    #[test]
    fn a_debt_is_the_same_amount_at_another_rate() {
        let groups = Groups::default();
        let id = groups.create("a").unwrap();
        let member = groups.join(id).unwrap();
        groups.set_caps(id, caps(0, 1024, 0)).unwrap();
        assert!(member.admit(false, 4 << 20, Nanos(SECOND)).is_ok());
        groups.set_caps(id, caps(0, 1 << 30, 0)).unwrap();
        let count = admitted(&member, 1 << 20, Nanos(2 * SECOND), SECOND);
        let owed = 1020..=1022 + ahead(1024);
        assert!(owed.contains(&count), "4 of 1024 are owed: {count}");
        groups.set_caps(id, caps(0, 1 << 30, SECOND)).unwrap();
        let again = admitted(&member, 1 << 20, Nanos(3 * SECOND), SECOND);
        // I/O that was let through ahead of the rate before is missing from the burst.
        assert!((2048 - ahead(1024) - 2..=2050).contains(&again), "no other rate: {again}");
        // 1 GiB ahead of its rate, which is a thousand seconds at the next.
        groups.set_caps(id, caps(0, 1 << 20, 0)).unwrap();
        let until = member.admit(false, 1, Nanos(4 * SECOND)).unwrap_err();
        assert!(
            (1000..=1030).contains(&until.since(Nanos(4 * SECOND)).div_ceil(SECOND)),
            "{until:?}"
        );
    }

    #[test]
    fn a_rate_that_goes_to_and_fro_gives_no_new_burst() {
        let groups = Groups::default();
        let id = groups.create("a").unwrap();
        let member = groups.join(id).unwrap();
        let mut count = 0;
        for round in 0..100 {
            let rates = [1000, if round % 2 == 0 { 0 } else { 1001 }];
            for (half, rate) in (0..).zip(rates) {
                groups.set_caps(id, caps(rate, 0, SECOND)).unwrap();
                if rate > 0 {
                    let from = Nanos(SECOND + round * 20_000_000 + half * 10_000_000);
                    count += admitted(&member, 1, from, 10_000_000);
                }
            }
        }
        // Two seconds, and one second's worth at once.
        assert!((2900..=3020).contains(&count), "{count}");
    }

    #[test]
    fn a_path_makes_the_groups_above_it_and_a_bad_one_nothing() {
        let groups = Groups::default();
        let id = groups.create("a/b/c").unwrap();
        let paths: Vec<_> = groups.all().into_iter().map(|group| group.path).collect();
        assert_eq!(paths, ["", "a", "a/b", "a/b/c"]);
        assert_eq!(groups.all()[id.0 as usize].parent, groups.find("a/b"));
        for bad in ["/a", "a/", "a//b", "..", "a/../b", "a\nb", &"x".repeat(256)] {
            assert!(groups.create(bad).is_err(), "{bad:?}");
        }
        assert_eq!(groups.all().len(), 4);
        let error = groups.set_weight(id, 1001).unwrap_err().to_string();
        assert!(error.contains("1001") && error.contains("1..=1000"), "{error}");
        assert!(groups.set_weight(GroupId(99), 1).is_err());
    }
}
