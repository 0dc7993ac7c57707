//! Patches: writes that begin or end inside a block, carried out as read-modify-write.
//!
//! A patch comes as a write of whole blocks with a few bytes at either end that are to be kept as
//! they are on the device. Its steps:
//!
//! 1. **Hold.** The blocks are held (`hard/fence.rs`): what overlaps them waits, from every way in.
//!    The claim that stands for the hold comes back when nothing that passed before changes them.
//! 2. **Read** the first block, the last one, or both.
//! 3. **Write** all blocks, with FUA if it was asked for and the device has it.
//! 4. **Lift** the hold, and flush if FUA was asked for and the device has none. The flush is
//!    behind the lift because it may wait for writes that wait for the hold.
//!
//! A hold that is still in line after the time of a request is given up, and the patch with it. A
//! step that fails is the last one: the hold is lifted and the patch ends with its status. A write
//! that ran out of time has left a fence of its own by then. A patch that has begun goes on without
//! its submitter, and is inside the gate from beginning to end, so that a frozen device has no
//! patch under way.
//!
//! The requests of a patch have slots of their own and go past plug and scheduler. Otherwise they
//! could wait for a slot or a tag that a request has which waits for the hold.

use std::ops::Range;

use weir_bio::{Bio, Buf, Data, Flags, Nanos, Op, RqId, SECTOR, Segments, Status};
use weir_ring::Claim;

use super::Core;
use super::parts::SplitBio;
use crate::completion::{Completion, Refused, Why};
use crate::event::{Silent, Sink, What, submitter_tells};
use crate::request::{FlushStep, HOLDERS, Request, RequestClaim};
use crate::shared::Path;
use crate::split;
use crate::submit::admit::admit;

/// Patches that a submitter may have under way.
const PATCHES_MAX: usize = 16;

/// The bytes at both ends of a patch's blocks that are kept; each less than a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// In front of what is written.
    pub lead: u32,
    /// Behind it.
    pub trail: u32,
}

/// The patches of a submitter.
#[derive(Default)]
pub(crate) struct Patches {
    list: Vec<Option<Patch>>,
    /// Free slots for their requests, and how many were made.
    free: Vec<RequestClaim>,
    slots: u16,
}

/// One under way.
struct Patch {
    /// The write, with its memory until that is sent.
    bio: Bio,
    /// The caller's memory, if it is not what travels: what is kept must not lie where another may
    /// change it.
    own: Option<Segments>,
    kept: Kept,
    /// Its hold, until that is lifted.
    held: Option<Range<u64>>,
    step: Step,
    /// The flush that makes it durable.
    flush: bool,
    status: Status,
    wait_ns: u64,
    device_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Holds,
    /// So many reads are under way.
    Reads(u32),
    Writes,
    Flushes,
}

impl Patches {
    pub(super) fn len(&self) -> usize {
        self.list.iter().flatten().count()
    }

    fn add(&mut self, patch: Patch) -> usize {
        let free = self.list.iter().position(Option::is_none).unwrap_or(self.list.len());
        if free == self.list.len() {
            self.list.push(None);
        }
        self.list[free] = Some(patch);
        free
    }

    fn at(&mut self, index: usize) -> &mut Patch {
        self.list[index].as_mut().expect("a patch under way")
    }
}

impl Patch {
    /// The blocks to be read: first sector and length.
    fn edges(&self, block: u32) -> Vec<(u64, u32)> {
        let Bio { sector, sectors, .. } = self.bio;
        let Kept { lead, trail } = self.kept;
        let last = sector + u64::from(sectors - block);
        match (lead > 0, trail > 0) {
            (true, true) if sectors > 2 * block => vec![(sector, block), (last, block)],
            (true, true) => vec![(sector, sectors)],
            (true, false) => vec![(sector, block)],
            (false, _) => vec![(last, block)],
        }
    }

    /// Takes the bytes that are kept from what was read at `sector`.
    fn take_kept(&mut self, sector: u64, read: &Data) {
        let mut bytes = vec![0; read.len()];
        read.copy_to(&mut bytes);
        let (lead, trail) = (self.kept.lead as usize, self.kept.trail as usize);
        if sector == self.bio.sector {
            self.bio.data.copy_from_at(0, &bytes[..lead]);
        }
        if sector + (bytes.len() as u64 / SECTOR) == self.bio.end() {
            let at = self.bio.data.len() - trail;
            self.bio.data.copy_from_at(at, &bytes[bytes.len() - trail..]);
        }
    }
}

impl super::Submitter {
    /// Hands in a write of whole blocks of which a few bytes at either end are kept as they are on
    /// the device: a read-modify-write, atomic towards all other I/O of the device. Its group has
    /// paid for it, as with [`submit_paid`](super::Submitter::submit_paid). The memory of the kept
    /// bytes is overwritten, but not that of segments, which are copied; its contents do not
    /// matter. It ends like any write.
    ///
    /// # Errors
    /// As [`submit_paid`](super::Submitter::submit_paid); also when 16 of these are under way.
    ///
    /// # Panics
    /// When it is no write, or keeps a block or more at either end.
    #[cold]
    pub fn submit_patch(&mut self, bio: Bio, kept: Kept, now: Nanos) -> Result<(), Refused> {
        self.patch(bio, kept, true, now)
    }

    /// As [`submit_patch`](super::Submitter::submit_patch), for one that its group has yet to pay
    /// for: its blocks.
    ///
    /// # Errors
    /// As [`submit_patch`](super::Submitter::submit_patch), and when a cap says later.
    ///
    /// # Panics
    /// As [`submit_patch`](super::Submitter::submit_patch).
    #[cold]
    pub fn submit_unpaid_patch(&mut self, bio: Bio, kept: Kept, now: Nanos) -> Result<(), Refused> {
        self.patch(bio, kept, false, now)
    }

    fn patch(&mut self, mut bio: Bio, kept: Kept, paid: bool, now: Nanos) -> Result<(), Refused> {
        assert!(bio.op == Op::Write && !bio.flags.has(Flags::PREFLUSH), "a patch is a plain write");
        let core = self.core();
        let sector = bio.sector;
        bio.sector = sector.saturating_add(core.start);
        let taken = core.try_patch(&mut bio, kept, paid, now);
        if taken.is_err() {
            bio.sector = sector;
        }
        match taken {
            Ok(()) => Ok(()),
            Err(Why::Full) => Err(Refused::Full(bio)),
            Err(Why::Frozen) => Err(Refused::Frozen(bio)),
            Err(Why::Capped(until)) => Err(Refused::Capped { bio, until }),
        }
    }
}

impl Core {
    fn try_patch(&mut self, bio: &mut Bio, kept: Kept, paid: bool, now: Nanos) -> Result<(), Why> {
        if self.patches.len() >= PATCHES_MAX {
            return Err(Why::Full);
        }
        if !self.member.enter(&self.shared.gate) {
            // The freezer may have seen the attempt and gone to sleep over it.
            self.shared.tell_freezer();
            return Err(Why::Frozen);
        }
        if self.member.inside() == 1 {
            self.refresh();
        }
        match self.admit_patch(bio) {
            Err(status) => self.end_unsent(bio, status),
            Ok(flush) => {
                // Behind the gate, so that one refused there is charged once.
                let charged = if paid { Ok(()) } else { self.charge(bio, now) };
                if let Err(until) = charged {
                    return self.refuse_inside(bio, Why::Capped(until));
                }
                self.hold_for(bio, kept, flush, now);
            }
        }
        Ok(())
    }

    /// Judges the write as a whole. `Err` is how it ends at once; else whether a flush has to
    /// follow. The flags are reduced to what the device is to see.
    fn admit_patch(&self, bio: &mut Bio) -> Result<bool, Status> {
        if bio.flags.has(Flags::NOWAIT) {
            // It would have to wait for what it reads.
            return Err(Status::Again);
        }
        if bio.flags.has(Flags::ATOMIC) || bio.sectors == 0 {
            return Err(Status::Inval);
        }
        let step = admit(bio, &self.snapshot)?;
        let limits = &self.snapshot.limits;
        if split::front(bio, limits)? != bio.sectors && !split::blocks_fit(bio, limits) {
            return Err(Status::Inval);
        }
        Ok(step.postflush)
    }

    fn hold_for(&mut self, bio: &mut Bio, kept: Kept, flush: bool, now: Nanos) {
        let block = self.snapshot.limits.logical_block_size;
        assert!(kept.lead < block && kept.trail < block, "{kept:?} of {block}-byte blocks");
        let held = bio.sector..bio.end();
        let (data, own) = match std::mem::take(&mut bio.data) {
            Data::Segments(segments) => {
                let buf = Buf::filled(segments.len(), |bytes| segments.copy_to(0, bytes));
                (Data::One(buf), Some(segments))
            }
            data => (data, None),
        };
        let patch = Patch {
            bio: Bio { data, ..*bio },
            own,
            kept,
            held: None,
            step: Step::Holds,
            flush,
            status: Status::Ok,
            wait_ns: 0,
            device_ns: 0,
        };
        let index = self.patches.add(patch);
        let mut name = Bio::new(Op::Read, held.start, bio.sectors, Data::None);
        (name.group, name.ioprio) = (bio.group, bio.ioprio);
        self.push_holder();
        // A hold is no request: no sink hears of it.
        let mut claim = self.slot_of(&mut name, FlushStep::DATA, now, Silent);
        claim.split = index as u32;
        // It is no request in the statistics.
        (claim.status, claim.refused) = (Status::Again, true);
        self.patches.at(index).held = Some(held);
        if let Some(claim) = self.shared.fences.take_hold(claim) {
            self.shared.path.settle(claim, self.snapshot.queues);
        }
    }

    /// Puts a slot for a patch's request where the next one is taken from.
    pub(super) fn push_holder(&mut self) {
        let Patches { free, slots, .. } = &mut *self.patches;
        let claim = free.pop().unwrap_or_else(|| {
            let id = RqId::new(self.id, HOLDERS + *slots, 0);
            *slots += 1;
            Claim::new(Request::free(id))
        });
        self.free.push(claim);
    }

    /// Takes the slot back that was used last.
    pub(super) fn pop_holder(&mut self) {
        let claim = self.free.pop().expect("it was just put there");
        self.patches.free.push(claim);
    }

    /// A hold is this patch's own, or was waited for in vain: then that is how the patch ends.
    pub(super) fn hold_taken(
        &mut self,
        claim: RequestClaim,
        now: Nanos,
        sink: impl Sink,
    ) -> Option<Completion> {
        let (index, status) = (claim.split as usize, claim.status);
        let waited_ns = now.since(claim.accepted_at);
        // Its memory is none, and a driver never had it.
        drop(self.take_apart(claim));
        self.pop_holder();
        self.patches.at(index).wait_ns = waited_ns;
        if status == Status::Timeout {
            let patch = self.patches.at(index);
            (patch.held, patch.status) = (None, status);
            return Some(self.end_patch(index));
        }
        let block = self.snapshot.limits.block_sectors();
        let patch = self.patches.at(index);
        assert_eq!(patch.step, Step::Holds, "a hold is taken once");
        let edges = patch.edges(block);
        patch.step = Step::Reads(edges.len() as u32);
        let (group, ioprio) = (patch.bio.group, patch.bio.ioprio);
        for (sector, sectors) in edges {
            let bytes = sectors as usize * SECTOR as usize;
            let mut bio = Bio::new(Op::Read, sector, sectors, Data::One(Buf::zeroed(bytes)));
            (bio.group, bio.ioprio, bio.cookie) = (group, ioprio, sector);
            self.send_part(index, bio, FlushStep::DATA, now, sink);
        }
        None
    }

    /// A step's I/O has ended; the patch's completion if it was the last.
    pub(super) fn patch_step_ended(
        &mut self,
        index: usize,
        ended: Completion,
        now: Nanos,
        sink: impl Sink,
    ) -> Option<Completion> {
        let patch = self.patches.at(index);
        patch.wait_ns += ended.wait_ns;
        patch.device_ns += ended.device_ns;
        if patch.status.is_ok() {
            patch.status = ended.status;
        }
        let ok = patch.status.is_ok();
        match patch.step {
            Step::Holds => unreachable!("nothing is sent before the hold is taken"),
            Step::Reads(left) => {
                patch.step = Step::Reads(left - 1);
                if ok {
                    patch.take_kept(ended.cookie, &ended.data);
                }
                if left > 1 {
                    return None;
                }
                if ok {
                    patch.step = Step::Writes;
                    let bio = &mut patch.bio;
                    let write = Bio { data: std::mem::take(&mut bio.data), ..*bio };
                    self.send_part(index, write, FlushStep::DATA, now, sink);
                    return None;
                }
            }
            Step::Writes => {
                patch.bio.data = ended.data;
                let flush = patch.flush && ok;
                self.lift(index);
                if flush && self.send_flush(index, now, sink) {
                    return None;
                }
            }
            Step::Flushes => {}
        }
        Some(self.end_patch(index))
    }

    /// Sends the flush that makes a patch durable; whether there is one.
    fn send_flush(&mut self, index: usize, now: Nanos, sink: impl Sink) -> bool {
        let mut flush = Bio::flush();
        let patch = self.patches.at(index);
        (flush.group, flush.ioprio) = (patch.bio.group, patch.bio.ioprio);
        // It is a flush of the partition that the patch is in, and of no other.
        flush.sector = patch.bio.sector;
        // The rules are those under which the patch was accepted: it is inside.
        let Ok(step) = admit(&mut flush, &self.snapshot) else { return false };
        self.patches.at(index).step = Step::Flushes;
        self.send_part(index, flush, step, now, sink);
        true
    }

    fn end_patch(&mut self, index: usize) -> Completion {
        self.lift(index);
        let patch = self.patches.list[index].take().expect("a patch under way");
        self.stats.errors.add(u64::from(!patch.status.is_ok()));
        Completion {
            cookie: patch.bio.cookie,
            status: patch.status,
            op: patch.bio.op,
            sectors: patch.bio.sectors,
            data: patch.own.map_or(patch.bio.data, Data::Segments),
            wait_ns: patch.wait_ns,
            device_ns: patch.device_ns,
        }
    }

    /// Lifts a patch's hold, if it has one yet.
    fn lift(&mut self, index: usize) {
        let Some(held) = self.patches.at(index).held.take() else { return };
        let (path, fences) = (&self.shared.path, &self.shared.fences);
        let mut taken = Vec::new();
        fences.lift_hold(&held, &mut taken);
        fences.tell(|lane| path.lanes().nudge(lane));
        taken.into_iter().for_each(|claim| path.settle(claim, self.snapshot.queues));
    }

    /// Sends one I/O of a patch, in parts if need be.
    fn send_part(&mut self, index: usize, bio: Bio, step: FlushStep, now: Nanos, sink: impl Sink) {
        let parts = SplitBio::of_patch(index, bio, step);
        let parts = self.add_parts(parts);
        self.issue_parts(parts, now, sink);
    }

    /// Sends a request of a patch past everything that others may fill.
    pub(super) fn send_holder(&mut self, claim: RequestClaim, now: Nanos, sink: impl Sink) {
        submitter_tells(sink, self.id, now, || What::Plugged { rq: claim.rq });
        match &self.shared.path {
            Path::Mq(mq) => mq.send(vec![claim], self.lane, self.snapshot.queues),
            Path::Sq(sq) => {
                sq.insert_sequenced(claim);
                sq.restart(self.turns_single.as_deref().filter(|_| sq.any_home));
            }
        }
    }
}
