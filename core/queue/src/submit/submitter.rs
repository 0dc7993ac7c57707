//! A submitter: one thread's way into a device. It owns its slots, plug, soft queue and counters;
//! other threads reach only its inbox.

use std::collections::VecDeque;
use std::sync::Arc;

use weir_bio::{Bio, Data, Flags, Nanos, RqId, Status, SubmitterId};
use weir_ring::{Claim, Incoming, Member, Producer};

use super::admit::{admit, is_plain};
use super::failing;
use super::payer::Payer;
use crate::bell::{LaneBell, Port};
use crate::completion::{Completion, Refused, Why};
use crate::config::Spread;
use crate::directory::Partition;
use crate::event::{Silent, Sink, What, submitter_tells};
use crate::request::{FlushStep, Request, RequestClaim, State};
use crate::shared::{Leaving, Orphan, Path, Shared};
use crate::snapshot::Snapshot;
use crate::stats::{SubmitterStats, Tally};

mod commands;
mod counting;
mod held;
mod keepsake;
mod layout;
mod parts;
mod pass;
pub(crate) mod patch;
mod plug;
mod telling;
mod unsent;

use commands::Commands;
use held::Held;
use keepsake::Keepsake;
use layout::view;
use parts::SplitBio;
use patch::Patches;
use plug::{PLUG_MAX, Way};

/// One thread's way into a device.
///
/// Dropping it with I/O under way is allowed: that I/O is finished, and its answers are dropped.
pub struct Submitter {
    core: Option<Box<Core>>,
}

pub(crate) struct Core {
    pub(crate) shared: Arc<Shared>,
    pub(crate) id: SubmitterId,
    pub(crate) member: Member,
    pub(crate) stats: Arc<SubmitterStats>,
    port: Arc<Port>,
    pub(crate) snapshot: Arc<Snapshot>,
    /// Added to the sector of each bio: the start of the partition, if it is of one.
    start: u64,
    partition: Option<Arc<Partition>>,
    pub(crate) free: Vec<RequestClaim>,
    slots: u16,
    /// The rings were made for so many.
    slots_max: u16,
    pub(crate) plug: Vec<RequestClaim>,
    /// A ring for each lane in round-robin spread, else one for the own lane.
    pub(crate) rings: Vec<Producer<RequestClaim>>,
    /// The lane it asked for; `lane` is that modulo their number.
    wanted: usize,
    pub(crate) lane: usize,
    /// This thread also turns the single queue, from this place. Apart, as no I/O looks at it.
    pub(crate) turns_single: Option<Box<LaneBell>>,
    /// It may dispatch from the single queue. Not a driver's: devices stacked on one another would
    /// all be inside one call.
    inline: bool,
    pub(crate) touched: u64,
    pub(crate) parts: Vec<Option<SplitBio>>,
    pub(crate) backlog: VecDeque<usize>,
    ended: Vec<Completion>,
    pub(crate) way: Way,
    payer: Payer,
    /// How many of `ended` never passed the gate.
    turned_away: usize,
    /// The latest time this thread brought: what has ended is counted then in a drop.
    pub(crate) last_now: Nanos,
    /// See [`Submitter::bequeath`].
    keepsake: Option<Keepsake>,
    /// Apart, as no plain I/O looks at them.
    patches: Box<Patches>,
    commands: Box<Commands>,
    held: Held,
}

pub(crate) struct Attachment {
    pub(crate) shared: Arc<Shared>,
    /// The one its rings were made by.
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) partition: Option<Arc<Partition>>,
    pub(crate) id: SubmitterId,
    pub(crate) member: Member,
    pub(crate) stats: Arc<SubmitterStats>,
    pub(crate) port: Arc<Port>,
    pub(crate) rings: Vec<Producer<RequestClaim>>,
    pub(crate) lane: usize,
    pub(crate) turns_single: Option<Box<LaneBell>>,
    pub(crate) inline: bool,
}

impl Submitter {
    pub(crate) fn new(with: Attachment) -> Submitter {
        let Attachment { shared, snapshot, id, member, stats, port, rings, lane, .. } = with;
        let partition = with.partition;
        Submitter {
            core: Some(Box::new(Core {
                way: Way::of(&shared),
                payer: Payer::of(&shared),
                shared,
                id,
                member,
                stats,
                port,
                free: Vec::new(),
                slots: 0,
                plug: Vec::with_capacity(PLUG_MAX),
                rings,
                wanted: lane,
                lane: lane % usize::from(snapshot.queues),
                turns_single: with.turns_single,
                inline: with.inline,
                slots_max: snapshot.slots,
                touched: 0,
                start: partition.as_ref().map_or(0, |partition| partition.start()),
                parts: Vec::new(),
                backlog: VecDeque::new(),
                ended: Vec::new(),
                turned_away: 0,
                snapshot: view(partition.as_deref(), snapshot),
                partition,
                last_now: Nanos::ZERO,
                keepsake: None,
                patches: Box::default(),
                commands: Box::default(),
                held: Held::default(),
            })),
        }
    }

    #[inline]
    fn core(&mut self) -> &mut Core {
        self.core.as_mut().expect("a submitter has its core until it is dropped")
    }

    /// The submitter's number within its device: the issuing context schedulers see.
    #[must_use]
    pub fn id(&self) -> SubmitterId {
        self.core.as_ref().expect("a submitter has its core until it is dropped").id
    }

    /// Its figures, for other threads to read.
    #[must_use]
    pub fn tally(&self) -> Tally {
        let core = self.core.as_ref().expect("a submitter has its core until it is dropped");
        Tally::new(Arc::clone(&core.stats), core.member.seen(), core.wanted)
    }

    /// Hands in one I/O. It waits in the plug, where neighbours merge, until
    /// [`flush_plug`](Submitter::flush_plug), which every pass must end with. A malformed bio is
    /// accepted and ends with its status at the next [`complete`](Submitter::complete).
    ///
    /// # Errors
    /// [`Refused`], with the bio, when it would have to wait for a slot, for the gate, or for a cap
    /// of its group.
    #[inline]
    pub fn submit(&mut self, bio: Bio, now: Nanos) -> Result<(), Refused> {
        self.submit_as::<false>(bio, now, Silent)
    }

    /// As [`submit`](Submitter::submit), for a bio that its group has paid for: its holder asked
    /// [`Member::admit`](crate::Member::admit) before it had the memory for it.
    ///
    /// # Errors
    /// As [`submit`](Submitter::submit), but never [`Refused::Capped`].
    #[inline(always)]
    pub fn submit_paid(&mut self, bio: Bio, now: Nanos) -> Result<(), Refused> {
        self.submit_as::<true>(bio, now, Silent)
    }

    #[inline(always)]
    fn submit_as<const PAID: bool>(
        &mut self,
        mut bio: Bio,
        now: Nanos,
        sink: impl Sink,
    ) -> Result<(), Refused> {
        // The bio stays in registers here: nothing that is not inlined may see it.
        let core = self.core();
        // A sector beyond all numbers stays one beyond every end.
        let sector = bio.sector;
        bio.sector = sector.saturating_add(core.start);
        if core.way != Way::General
            && (PAID || core.payer.is_free(bio.group))
            && is_plain(&bio, &core.snapshot)
            && !core.free.is_empty()
            && core.member.enter_beside(&core.shared.gate)
        {
            // Something of ours is inside, so nothing we know can have been replaced.
            if !PAID {
                core.payer.count_plain(bio.op, bio.sectors);
            }
            let claim = core.slot(bio, FlushStep::DATA, now, sink);
            core.plug_plain(claim, now, sink);
            return Ok(());
        }
        core.submit_with_care((bio, sector), PAID, now, sink)
    }

    /// Sends on what the plug holds.
    #[inline]
    pub fn flush_plug(&mut self, now: Nanos) {
        self.core().flush_plug(now, Silent);
    }

    /// Hands every I/O that has ended to `each`, and says how many there were. What was accepted
    /// and waits goes on here: it is to be called when the bell says so, also if nothing has ended.
    #[inline(always)]
    pub fn complete(&mut self, now: Nanos, each: impl FnMut(Completion)) -> usize {
        self.core().complete(now, each, Silent)
    }

    /// Bios accepted and not handed back yet. Those that would not wait and had to are not among
    /// them: they were never inside.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.core.as_ref().map_or(0, |core| core.member.inside())
    }

    /// Whether something has ended that [`complete`](Submitter::complete) would hand over.
    #[must_use]
    pub fn has_completions(&self) -> bool {
        self.core.as_ref().is_some_and(|core| {
            !core.ended.is_empty() || !core.port.inbox.is_empty() || core.commands.have_ended()
        })
    }
}

impl Drop for Submitter {
    fn drop(&mut self) {
        let Some(mut core) = self.core.take() else { return };
        // The thread that drops it need not be its home, and brings no time: a home sends on the
        // plug, by its own clock.
        core.turns_single = None;
        let now = core.last_now;
        let arrived = core.port.inbox.take();
        core.take_ended(arrived, now, &mut drop, Silent);
        let shared = Arc::clone(&core.shared);
        if core.member.inside() == 0 {
            shared.retire(core.leave());
        } else {
            shared.adopt_orphan(core);
        }
    }
}

impl Orphan for Core {
    fn tend(&mut self, now: Nanos) -> bool {
        self.complete(now, drop, Silent);
        self.send_backlog(now, Silent);
        self.member.inside() == 0
    }

    fn leave(self: Box<Self>) -> Leaving {
        let Core { id, stats, member, partition, .. } = *self;
        Leaving { id, stats, member, partition }
    }
}

impl Core {
    /// As [`Submitter::submit`], for everything: a bio, and its sector as it came.
    #[inline(never)]
    fn submit_with_care(
        &mut self,
        (mut bio, sector): (Bio, u64),
        paid: bool,
        now: Nanos,
        sink: impl Sink,
    ) -> Result<(), Refused> {
        let submitted = self.try_submit(&mut bio, paid, now, sink);
        if submitted.is_err() {
            bio.sector = sector;
        }
        match submitted {
            Ok(()) => {
                // Accepting a bio takes its memory: nothing is left that a drop would free.
                debug_assert!(matches!(bio.data, Data::None), "accepted, but not its memory");
                std::mem::forget(bio);
                Ok(())
            }
            Err(Why::Full) => Err(Refused::Full(bio)),
            Err(Why::Frozen) => Err(Refused::Frozen(bio)),
            Err(Why::Capped(until)) => Err(Refused::Capped { bio, until }),
        }
    }

    fn try_submit(
        &mut self,
        bio: &mut Bio,
        paid: bool,
        now: Nanos,
        sink: impl Sink,
    ) -> Result<(), Why> {
        if self.free.is_empty() && !self.make_slot() {
            return self.refuse(bio, Why::Full);
        }
        if !self.member.enter(&self.shared.gate) {
            // The freezer may have seen the attempt and gone to sleep over it.
            self.shared.tell_freezer();
            return self.refuse(bio, Why::Frozen);
        }
        if self.member.inside() == 1 {
            // Nothing of ours was inside, so what we know may have been replaced.
            self.refresh();
        }
        if is_plain(bio, &self.snapshot) && (paid || self.payer.is_free(bio.group)) {
            if !paid {
                self.payer.count_plain(bio.op, bio.sectors);
            }
            let claim = self.slot_of(bio, FlushStep::DATA, now, sink);
            return self.route(claim, bio, now, sink).or_else(|why| {
                self.give_back(bio, paid);
                self.refuse_inside(bio, why)
            });
        }
        self.submit_special(bio, paid, now, sink)
    }

    /// Whatever is not a plain read or write, and what a cap has a say in.
    fn submit_special(
        &mut self,
        bio: &mut Bio,
        paid: bool,
        now: Nanos,
        sink: impl Sink,
    ) -> Result<(), Why> {
        let asked = bio.flags;
        let step = match admit(bio, &self.snapshot) {
            Ok(step) => step,
            Err(status) => {
                self.end_unsent(bio, status);
                return Ok(());
            }
        };
        if bio.flags.has(Flags::NOWAIT) && self.is_fenced(bio) {
            // Here, as it may be merged with one that waits.
            self.end_unsent(bio, Status::Again);
            return Ok(());
        }
        // Behind slot and gate, so that a bio refused for want of those is charged once.
        let charged = if paid { Ok(()) } else { self.charge(bio, now) };
        let sent = match charged {
            Err(until) => Err(Why::Capped(until)),
            Ok(()) if self.is_whole(bio) && !self.is_throttled(bio) => {
                let mut claim = self.slot_of(bio, step, now, sink);
                claim.charged = !paid;
                self.route(claim, bio, now, sink)
            }
            Ok(()) => self.submit_large(bio, step, !paid, now, sink),
        };
        let Err(why) = sent else { return Ok(()) };
        if charged.is_ok() {
            self.give_back(bio, paid);
        }
        // It may come again under other rules.
        bio.flags = asked;
        self.refuse_inside(bio, why)
    }

    #[cold]
    fn give_back(&self, bio: &Bio, paid: bool) {
        if !paid {
            self.payer.give_back(bio, &self.snapshot.limits);
        }
    }

    #[inline]
    fn charge(&mut self, bio: &Bio, now: Nanos) -> Result<(), Nanos> {
        self.payer.charge(bio, &self.snapshot.limits, &self.shared.config.name, now)
    }

    /// Whether it would have to wait for a write that ran out of time.
    #[cold]
    fn is_fenced(&self, bio: &Bio) -> bool {
        let fences = &self.shared.fences;
        fences.any() && bio.sectors > 0 && fences.stand_in(bio.sector..bio.end())
    }

    /// A slot with the bio in it. The caller has seen that there is one.
    #[inline(always)]
    fn slot(&mut self, mut bio: Bio, step: FlushStep, now: Nanos, sink: impl Sink) -> RequestClaim {
        let claim = self.slot_of(&mut bio, step, now, sink);
        // Its memory is in the slot: nothing is left that a drop would free.
        std::mem::forget(bio);
        claim
    }

    /// The same, leaving the bio without its memory.
    #[inline(always)]
    pub(crate) fn slot_of(
        &mut self,
        bio: &mut Bio,
        step: FlushStep,
        now: Nanos,
        sink: impl Sink,
    ) -> RequestClaim {
        let mut claim = self.free.pop().expect("a free slot");
        claim.fill(bio, step, now);
        submitter_tells(sink, self.id, now, || What::Accepted { rq: claim.rq });
        claim
    }

    /// Makes one more slot, if there may be more.
    #[cold]
    pub(crate) fn make_slot(&mut self) -> bool {
        if self.slots >= self.snapshot.slots.min(self.slots_max) {
            return false;
        }
        self.free.push(Claim::new(Request::free(RqId::new(self.id, self.slots, 0))));
        self.slots += 1;
        true
    }

    pub(crate) fn route(
        &mut self,
        claim: RequestClaim,
        bio: &mut Bio,
        now: Nanos,
        sink: impl Sink,
    ) -> Result<(), Why> {
        if self.shared.config.spread == Spread::RoundRobin {
            let lane = (self.shared.next_ring.next() % self.rings.len() as u64) as usize;
            self.push(lane, claim, sink);
            return Ok(());
        }
        if claim.flush_step.is_sequenced() {
            // The flush machine's own: past plug and scheduler.
            match &self.shared.path {
                Path::Mq(_) => self.push(0, claim, sink),
                Path::Sq(sq) => {
                    sq.insert_sequenced(claim);
                    self.touched = 1;
                }
            }
            return Ok(());
        }
        self.plug(claim, bio, now, sink)
    }

    #[inline(always)]
    pub(crate) fn push(&mut self, ring: usize, claim: RequestClaim, sink: impl Sink) {
        self.touched |= 1 << (ring % 64);
        let at = claim.accepted_at;
        submitter_tells(sink, self.id, at, || What::Plugged { rq: claim.rq });
        let pushed = self.rings[ring].push(claim);
        assert!(pushed.is_ok(), "a ring has room for every slot of its submitter");
    }

    #[inline(always)]
    pub(crate) fn complete(
        &mut self,
        now: Nanos,
        each: impl FnMut(Completion),
        sink: impl Sink,
    ) -> usize {
        let arrived = self.port.inbox.take();
        self.complete_arrived(arrived, now, each, sink)
    }

    #[inline(always)]
    fn complete_arrived(
        &mut self,
        arrived: Incoming<Request>,
        now: Nanos,
        mut each: impl FnMut(Completion),
        sink: impl Sink,
    ) -> usize {
        self.last_now = now;
        let ended = self.take_ended(arrived, now, &mut each, sink);
        if !self.backlog.is_empty() && !self.free.is_empty() {
            self.send_backlog(now, sink);
        }
        if self.held.any() {
            self.send_held(now, sink);
        }
        ended
    }

    #[inline(always)]
    fn take_ended(
        &mut self,
        arrived: Incoming<Request>,
        now: Nanos,
        each: &mut impl FnMut(Completion),
        sink: impl Sink,
    ) -> usize {
        if arrived.is_empty() && self.ended.is_empty() {
            return 0;
        }
        // Statistics are written before a completion is handed over, so that its receiver finds
        // them whole; what is being handed over is no longer in flight.
        let count = self.count_arrived(&arrived, now);
        self.stats.handing_over.set((self.ended.len() + count) as u64);
        let (mut arrived, mut unsent) = (arrived, std::mem::take(&mut self.ended).into_iter());
        let mut ended = 0;
        // `each` is called in one place, so that what it does is not behind a call.
        loop {
            let completion = match unsent.next() {
                Some(unsent) => {
                    self.stats.errors.add(u64::from(!unsent.status.is_ok()));
                    unsent
                }
                None => {
                    let Some(claim) = arrived.next() else { break };
                    if claim.split == Request::WHOLE {
                        self.take_apart(claim)
                    } else if let Some(completion) = self.take_part(claim, now, sink) {
                        completion
                    } else {
                        let left = self.stats.handing_over.read() - 1;
                        self.stats.handing_over.set(left);
                        continue;
                    }
                }
            };
            ended += 1;
            each(completion);
        }
        let left = ended - std::mem::take(&mut self.turned_away);
        if left > 0 && self.member.leave(left as u64, &self.shared.gate) {
            self.shared.tell_freezer();
        }
        self.stats.handing_over.set(0);
        ended
    }

    /// The bio of an ended request; its slot is free again.
    // The completion is built where it is used: to move it once more is to read in wide pieces what
    // has just been written in narrow ones, which stalls for longer than all the rest takes.
    #[inline(always)]
    pub(crate) fn take_apart(&mut self, mut claim: RequestClaim) -> Completion {
        let wait_ns = claim.issued_at.since(claim.accepted_at);
        let device_ns = claim.done_at.since(claim.issued_at);
        let (cookie, status, op) = (claim.cookie, claim.status, claim.rq.op);
        let sectors = claim.rq.sectors;
        let data = std::mem::take(&mut claim.data);
        claim.state = State::Free;
        self.free.push(claim);
        Completion { cookie, status, op, sectors, data, wait_ns, device_ns }
    }
}
