//! Caps at work, and what members of a group have used. A cap is a rate with a bound on how far
//! ahead of it one may be (the generic cell rate algorithm): no window, no refill, no timer of its
//! own. A group's I/O counts against its own caps and those of every group above it.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::ops::AddAssign;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_bio::{GroupId, Nanos};
use weir_ring::Counter;

/// How far ahead of its rate a group may be without any burst, so that a wake-up admits several and
/// one that comes late costs nothing. 1 % of a second: with 2 ms a cap of 500 I/Os a second let 484
/// through on a machine whose CPUs others used too.
pub(super) const SLACK_NS: u64 = 10_000_000;

/// A cap may be lifted while it holds I/O back, so the holder asks again after so long, ns.
pub const CAPS_AGAIN_NS: u64 = 100_000_000;

/// The longest burst, ns.
pub(super) const BURST_MAX_NS: u64 = 3_600_000_000_000;

/// The most a group may use a second; `None`: as much as there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caps {
    /// Reads.
    pub riops: Option<NonZeroU64>,
    /// Writes, and what else changes the device.
    pub wiops: Option<NonZeroU64>,
    /// Bytes read.
    pub rbps: Option<NonZeroU64>,
    /// Bytes written.
    pub wbps: Option<NonZeroU64>,
    /// How much allowance that was not used may be spent at once, ns worth of it.
    pub burst_ns: u64,
}

impl Caps {
    fn rate(&self, kind: Kind) -> Option<NonZeroU64> {
        [self.riops, self.wiops, self.rbps, self.wbps][kind as usize]
    }

    fn is_unlimited(&self) -> bool {
        Kind::ALL.iter().all(|kind| self.rate(*kind).is_none())
    }
}

/// The kinds of caps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Riops,
    Wiops,
    Rbps,
    Wbps,
}

impl Kind {
    const ALL: [Kind; 4] = [Kind::Riops, Kind::Wiops, Kind::Rbps, Kind::Wbps];
}

/// The use of a group so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Reads and writes accepted.
    pub ios: [u64; 2],
    /// Bytes of them.
    pub bytes: [u64; 2],
}

/// A submitter's membership in a group: the caps it is held to, and the use it adds to.
pub struct Member {
    id: GroupId,
    meter: Arc<Meter>,
    usage: Arc<Usage>,
}

impl Member {
    /// The group.
    #[must_use]
    pub fn group(&self) -> GroupId {
        self.id
    }

    /// Accepts an I/O of so many bytes, and counts it; or says when to ask again.
    ///
    /// # Errors
    /// The time from which a cap allows it, if no other I/O of the group comes first.
    #[inline]
    pub fn admit(&self, write: bool, bytes: u64, now: Nanos) -> Result<(), Nanos> {
        if self.meter.is_capped() {
            self.meter.take(write, bytes, now)?;
        }
        self.count(write, bytes);
        Ok(())
    }

    /// Takes back an I/O that was admitted, and was then not accepted for another reason.
    pub(crate) fn give_back(&self, write: bool, bytes: u64) {
        if self.meter.is_capped() {
            self.meter.give_back(write, bytes);
        }
        let direction = usize::from(write);
        self.usage.ios[direction].add(1_u64.wrapping_neg());
        self.usage.bytes[direction].add(bytes.wrapping_neg());
    }

    /// Whether the group, or one above it, has a cap.
    #[inline]
    #[must_use]
    pub fn is_capped(&self) -> bool {
        self.meter.is_capped()
    }

    /// Counts an I/O that no cap has a say in.
    #[inline]
    pub fn count(&self, write: bool, bytes: u64) {
        let direction = usize::from(write);
        self.usage.ios[direction].add(1);
        self.usage.bytes[direction].add(bytes);
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let mut state = self.meter.state();
        state.gone.entry(self.usage.disk.clone()).or_default().add(&self.usage);
        state.members.retain(|usage| !Arc::ptr_eq(usage, &self.usage));
    }
}

/// The use of one member; the member alone counts up.
#[derive(Default)]
struct Usage {
    disk: String,
    ios: [Counter; 2],
    bytes: [Counter; 2],
}

impl Used {
    fn add(&mut self, usage: &Usage) {
        for direction in [0, 1] {
            self.ios[direction] += usage.ios[direction].read();
            self.bytes[direction] += usage.bytes[direction].read();
        }
    }
}

impl AddAssign for Used {
    fn add_assign(&mut self, other: Used) {
        for direction in [0, 1] {
            self.ios[direction] += other.ios[direction];
            self.bytes[direction] += other.bytes[direction];
        }
    }
}

/// A group's caps at work.
pub(super) struct Meter {
    parent: Option<Arc<Meter>>,
    /// 1 if it or a group above has a cap; written under the tree's lock.
    capped: Counter,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    caps: Caps,
    /// When what was admitted would have been used up at the capped rate.
    even_at: [Nanos; 4],
    /// The rate of each cap when that was reckoned; `None` before there was one.
    reckoned_at: [Option<NonZeroU64>; 4],
    members: Vec<Arc<Usage>>,
    /// Of members that left, by disk.
    gone: BTreeMap<String, Used>,
}

impl Meter {
    /// Of a new group, below the one whose meter is named.
    pub(super) fn under(parent: Option<Arc<Meter>>) -> Meter {
        Meter { parent, capped: Counter::default(), state: Mutex::default() }
    }

    /// A new member of its group, for I/O to the disk of this name.
    pub(super) fn join(meter: Arc<Meter>, id: GroupId, disk: &str) -> Member {
        let usage = Arc::new(Usage { disk: String::from(disk), ..Usage::default() });
        meter.state().members.push(Arc::clone(&usage));
        Member { id, meter, usage }
    }

    pub(super) fn caps_and_used(&self) -> (Caps, Used) {
        let state = self.state();
        (state.caps, state.used())
    }

    /// The use of a disk by members.
    pub(super) fn used_on(&self, disk: &str) -> Used {
        self.state().used_on(disk)
    }

    pub(super) fn set_caps(&self, caps: Caps) {
        self.state().caps = caps;
    }

    /// Looks whether it has a cap, or the group above, which is to have looked before. To be called
    /// under the tree's lock.
    pub(super) fn find_whether_capped(&self) {
        let above = self.parent.as_ref().is_some_and(|parent| parent.is_capped());
        let capped = above || !self.state().caps.is_unlimited();
        self.capped.set(u64::from(capped));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn is_capped(&self) -> bool {
        self.capped.read() != 0
    }

    /// Takes from the group and from all above it, or from none. The lock of a group is held
    /// while the one above is taken, never the other way round.
    #[cold]
    fn take(&self, write: bool, bytes: u64, now: Nanos) -> Result<(), Nanos> {
        let wanted = amounts(write, bytes);
        let mut state = self.state();
        state.reckon(now);
        let slack = state.caps.burst_ns.max(SLACK_NS);
        let capped = |(kind, _): &(Kind, u64)| state.caps.rate(*kind).is_some();
        let even = wanted.iter().filter(|it| capped(it)).map(|(kind, _)| *kind as usize);
        if let Some(even_at) = even.map(|kind| state.even_at[kind]).max()
            && even_at > now + slack
        {
            return Err(even_at - slack);
        }
        if let Some(parent) = &self.parent {
            parent.take(write, bytes, now)?;
        }
        state.use_up(wanted, now);
        Ok(())
    }

    /// Gives back what [`take`](Meter::take) took, at the present rates.
    #[cold]
    fn give_back(&self, write: bool, bytes: u64) {
        let mut state = self.state();
        for (kind, amount) in amounts(write, bytes) {
            let Some(rate) = state.caps.rate(kind) else { continue };
            let even_at = &mut state.even_at[kind as usize];
            *even_at = Nanos(even_at.0.saturating_sub(cost(amount, rate)));
        }
        if let Some(parent) = &self.parent {
            parent.give_back(write, bytes);
        }
    }
}

/// How long an amount lasts at a rate, ns.
fn cost(amount: u64, rate: NonZeroU64) -> u64 {
    let cost = u128::from(amount) * 1_000_000_000 / u128::from(rate.get());
    u64::try_from(cost).unwrap_or(u64::MAX)
}

/// The amounts that an I/O takes of each cap of its direction.
fn amounts(write: bool, bytes: u64) -> [(Kind, u64); 2] {
    match write {
        false => [(Kind::Riops, 1), (Kind::Rbps, bytes)],
        true => [(Kind::Wiops, 1), (Kind::Wbps, bytes)],
    }
}

impl State {
    /// Converts the use ahead of a cap to the cap's present rate. A control call that changes a cap
    /// has no clock, so the next I/O does it.
    fn reckon(&mut self, now: Nanos) {
        for kind in Kind::ALL {
            let Some(rate) = self.caps.rate(kind) else { continue };
            let before = self.reckoned_at[kind as usize].replace(rate);
            let Some(before) = before.filter(|before| *before != rate) else { continue };
            let even_at = &mut self.even_at[kind as usize];
            let ahead = u128::from(even_at.since(now)) * u128::from(before.get());
            let ahead = ahead.div_ceil(u128::from(rate.get()));
            *even_at = now + u64::try_from(ahead).unwrap_or(u64::MAX);
        }
    }

    fn use_up(&mut self, amounts: [(Kind, u64); 2], now: Nanos) {
        for (kind, amount) in amounts {
            if let Some(rate) = self.caps.rate(kind) {
                let even_at = &mut self.even_at[kind as usize];
                *even_at = (*even_at).max(now) + cost(amount, rate);
            }
        }
    }

    fn used(&self) -> Used {
        let mut used = Used::default();
        self.gone.values().for_each(|gone| used += *gone);
        self.members.iter().for_each(|usage| used.add(usage));
        used
    }

    fn used_on(&self, disk: &str) -> Used {
        let mut used = self.gone.get(disk).copied().unwrap_or_default();
        let members = self.members.iter().filter(|usage| usage.disk == disk);
        members.for_each(|usage| used.add(usage));
        used
    }
}
