//! The group that pays for a submitter's I/O.
//!
//! A submitter is a member of the group its last bio named, and of those before. Nearly every
//! submitter names one group for life, so the way of a plain bio compares one number and reads one
//! line that changes only with the caps.

use std::sync::Arc;

use weir_bio::{Bio, Flags, GroupId, Limits, Nanos, Op, SECTOR};

use crate::group::{Groups, Member};
use crate::request::Request;
use crate::shared::Shared;

/// The groups of one submitter.
#[derive(Default)]
pub(crate) struct Payer {
    /// `None` while the device has no groups: nothing is capped or counted then.
    groups: Option<Arc<Groups>>,
    /// Of the group that was named last.
    member: Option<Member>,
    /// Of the groups named before.
    others: Vec<Member>,
}

impl Payer {
    pub(crate) fn of(shared: &Shared) -> Payer {
        Payer { groups: shared.groups.get().cloned(), ..Payer::default() }
    }

    /// Looks whether the device has been given groups.
    #[inline]
    pub(crate) fn follow(&mut self, shared: &Shared) {
        if self.groups.is_none() {
            self.groups = shared.groups.get().cloned();
        }
    }

    /// Whether no cap has a say in a bio of this group.
    #[inline(always)]
    pub(crate) fn is_free(&self, group: GroupId) -> bool {
        match &self.member {
            Some(member) => member.group() == group && !member.is_capped(),
            None => self.groups.is_none(),
        }
    }

    /// Counts a plain read or write that [is free](Payer::is_free).
    #[inline(always)]
    pub(crate) fn count_plain(&self, op: Op, sectors: u32) {
        if let Some(member) = &self.member {
            member.count(op == Op::Write, u64::from(sectors) * SECTOR);
        }
    }

    /// Has the bio's group pay for it.
    ///
    /// # Errors
    /// The time from which a cap allows it.
    pub(crate) fn charge(
        &mut self,
        bio: &Bio,
        limits: &Limits,
        disk: &str,
        now: Nanos,
    ) -> Result<(), Nanos> {
        let price = price(bio.op, bio.flags, bio.sectors, limits);
        let Some((write, bytes)) = price else { return Ok(()) };
        self.become_member(bio.group, disk);
        self.member.as_ref().map_or(Ok(()), |member| member.admit(write, bytes, now))
    }

    /// Takes a charge back: the bio was not accepted.
    #[cold]
    pub(crate) fn give_back(&self, bio: &Bio, limits: &Limits) {
        if let Some(price) = price(bio.op, bio.flags, bio.sectors, limits) {
            self.pay_back(bio.group, price);
        }
    }

    /// The same for one that ended without ever having been a request, if it was charged.
    #[cold]
    pub(crate) fn give_back_refused(&self, request: &Request, limits: &Limits) {
        let rq = request.rq();
        let price = price(rq.op, rq.flags, rq.sectors, limits);
        if let Some(price) = price.filter(|_| request.charged) {
            self.pay_back(rq.group, price);
        }
    }

    fn pay_back(&self, group: GroupId, (write, bytes): (bool, u64)) {
        let of = |group| move |member: &&Member| member.group() == group;
        let members = || self.member.iter().chain(&self.others);
        let member = members().find(of(group)).or_else(|| members().find(of(GroupId(0))));
        if let Some(member) = member {
            member.give_back(write, bytes);
        }
    }

    #[inline]
    fn become_member(&mut self, group: GroupId, disk: &str) {
        if self.member.as_ref().is_none_or(|member| member.group() != group) {
            self.join(group, disk);
        }
    }

    /// A number that names no group is the root's.
    #[cold]
    fn join(&mut self, group: GroupId, disk: &str) {
        let Some(groups) = &self.groups else { return };
        self.others.extend(self.member.take());
        let known = |group| move |member: &Member| member.group() == group;
        if let Some(place) = self.others.iter().position(known(group)) {
            self.member = Some(self.others.swap_remove(place));
            return;
        }
        let joined = groups.join_on(group, disk);
        self.member = joined.ok().or_else(|| {
            let root = self.others.iter().position(known(GroupId(0)));
            root.map(|place| self.others.swap_remove(place))
        });
        self.member = self.member.take().or_else(|| groups.join_on(GroupId(0), disk).ok());
    }
}

/// The most that marking a range costs, bytes: the block of metadata that says so.
const MARK: u64 = 4096;

/// How caps count an I/O: whether as a write, and its bytes; `None` for one that is free. A range
/// that the device only marks costs a block of metadata, a prefetch that it ignores costs no bytes.
#[must_use]
pub fn price(op: Op, flags: Flags, sectors: u32, limits: &Limits) -> Option<(bool, u64)> {
    let bytes = u64::from(sectors) * SECTOR;
    match op {
        Op::Read => Some((false, bytes)),
        Op::Prefetch => Some((false, if limits.prefetch { bytes } else { 0 })),
        Op::Write => (bytes > 0).then_some((true, bytes)),
        Op::WriteZeroes if flags.has(Flags::NOUNMAP) || !limits.fast_write_zeroes => {
            Some((true, bytes))
        }
        Op::WriteZeroes | Op::Discard | Op::SecureErase => Some((true, bytes.min(MARK))),
        Op::Flush | Op::DrvIn | Op::DrvOut => None,
    }
}
