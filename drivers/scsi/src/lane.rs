//! A lane: one hardware queue of a logical unit.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use weir_bio::{Data, Nanos, Op, Status};
use weir_proto_scsi::limits::DiskLimits;
use weir_queue::{Batch, Cancel, Done, DriverQueue, Request, Tag, Wake};

use crate::carrier::{Announced, Channel, Entered, Reaper, Wakes};
use crate::counters::Counters;
use crate::host::Host;
use crate::inbox::Remembered;
use crate::places::RETRY_NS;
use crate::slot::{Slot, Stage, Tries};
use crate::translate::{prepare, take_back};
use crate::transport::Refusal;
use crate::unit::{UnitShared, UnitState};

/// One hardware queue of a logical unit.
pub(crate) struct UnitQueue {
    host: Arc<Host>,
    unit: Arc<UnitShared>,
    index: u16,
    seat: u16,
    announced: Announced,
    counters: Arc<Counters>,
    limits: DiskLimits,
    version: u64,
    cdb_max: u8,
    in_flight: usize,
    /// Requests that ended without a command.
    ended: Vec<(Tag, Status)>,
    /// Requests that were handed back, until they come again.
    remembered: Vec<Remembered>,
    /// Empty between two calls.
    lent: Vec<Data>,
    wakes: Wakes,
    now: Nanos,
    wake_at: Option<Nanos>,
    outage: Option<Nanos>,
}

/// What a burst found in its way.
enum Obstacle {
    Refused(Refusal),
    /// The error handler is at work.
    Held,
}

impl UnitQueue {
    pub(crate) fn new(
        host: &Arc<Host>,
        unit: &Arc<UnitShared>,
        index: u16,
        entered: Entered,
        counters: Arc<Counters>,
    ) -> UnitQueue {
        let Entered { seat, announced } = entered;
        UnitQueue {
            host: Arc::clone(host),
            unit: Arc::clone(unit),
            index,
            seat,
            announced,
            counters,
            version: unit.version(),
            limits: unit.disk_limits(),
            cdb_max: host.adapter().cdb_max,
            in_flight: 0,
            ended: Vec::new(),
            remembered: Vec::new(),
            lent: Vec::new(),
            wakes: Wakes::default(),
            now: Nanos::ZERO,
            wake_at: None,
            outage: None,
        }
    }

    fn channel(&self) -> &Channel {
        &self.host.channels[usize::from(self.index)]
    }

    /// Takes the next request of the batch, which ends without a command.
    #[cold]
    fn end_here(&mut self, batch: &mut Batch<'_>, status: Status) {
        let tag = batch.take();
        self.in_flight += 1;
        self.ended.push((tag, status));
        self.wake_at = Some(Nanos::ZERO);
    }

    #[cold]
    fn end_all(&mut self, batch: &mut Batch<'_>, status: Status) {
        while batch.peek().is_some() {
            self.end_here(batch, status);
        }
    }

    #[cold]
    fn follow_limits(&mut self) {
        (self.version, self.limits) = (self.unit.version(), self.unit.disk_limits());
    }

    /// The command of a request, or how it ends without.
    #[inline]
    fn prepare(&mut self, tag: Tag, request: &mut Request) -> Result<Slot, Status> {
        if request.op() == Op::Flush && self.unit.is_doubtful() {
            // The data is lost on every path.
            return Err(Status::Medium);
        }
        if self.limits.capacity == 0 && !request.op().is_passthrough() {
            // A size that is promised above: the unit's own is not known yet, nor is its block.
            return Err(Status::IoErr);
        }
        let prepared = prepare(request, &self.limits, self.cdb_max, &mut self.lent)?;
        let rq = request.rq();
        let tries = if self.remembered.is_empty() {
            None
        } else {
            Tries::recall(&mut self.remembered, rq.id)
        };
        Ok(Slot {
            stage: Stage::Sent,
            tries: tries.unwrap_or(Tries::first(self.now)),
            seat: self.seat,
            tag,
            rq: rq.id,
            flags: rq.flags,
            sent_at: self.now,
            prepared,
        })
    }

    /// Sends a prefix of the batch; what stopped it, if anything did.
    fn send(&mut self, batch: &mut Batch<'_>) -> Option<Obstacle> {
        let host = Arc::clone(&self.host);
        let mut carrier = host.channels[usize::from(self.index)].turn();
        if !carrier.admits(self.seat) {
            carrier.starve(self.seat);
            return Some(Obstacle::Held);
        }
        let mut sent = 0;
        let obstacle = loop {
            let Some((tag, request)) = batch.peek() else { break None };
            let slot = match self.prepare(tag, request) {
                Ok(slot) => slot,
                Err(status) => {
                    self.end_here(batch, status);
                    continue;
                }
            };
            let number = host.shared.slot_of(tag.0);
            match carrier.send(number, slot, &mut self.lent) {
                Ok(()) => {
                    batch.take();
                    sent += 1;
                }
                Err(refusal) => {
                    take_back(request, &slot.prepared, &mut self.lent);
                    if slot.tries != Tries::first(self.now) {
                        self.remembered.push(Remembered { rq: slot.rq, tries: slot.tries });
                    }
                    if refusal == Refusal::Busy {
                        carrier.starve(self.seat);
                    }
                    break Some(Obstacle::Refused(refusal));
                }
            }
        };
        self.in_flight += sent as usize;
        self.counters.sent(sent);
        self.outage = carrier.port().outage_until();
        obstacle
    }

    /// The rest of a batch that was stopped.
    #[cold]
    fn stop(&mut self, batch: &mut Batch<'_>, obstacle: &Obstacle) {
        match obstacle {
            // An end of its own makes room, and has the lane turned.
            Obstacle::Refused(Refusal::Busy) if self.in_flight > self.ended.len() => {
                batch.refuse(Status::DevResource);
            }
            Obstacle::Held | Obstacle::Refused(Refusal::Busy | Refusal::Down) => {
                batch.refuse(Status::Resource);
            }
            Obstacle::Refused(Refusal::Lost) => self.end_all(batch, Status::Transport),
            Obstacle::Refused(Refusal::Gone) => self.end_all(batch, Status::Offline),
        }
    }

    /// After ends: places and depth.
    fn account(&mut self, requests: usize, places: u32, ended: bool, good: u32) {
        self.in_flight -= requests;
        if places > 0 {
            self.unit.places.give_up(places, ended);
        }
        if good > 0 && self.unit.may_rise.load(Ordering::Relaxed) {
            self.unit.rise(good, self.now);
        }
    }

    #[cold]
    fn take_ended(&mut self, done: &mut Done) {
        let reserved = self.host.tags().reserved();
        let mut places = 0;
        for (tag, status) in &self.ended {
            done.push(*tag, *status);
            places += u32::from(tag.0 >= reserved);
        }
        let requests = self.ended.len();
        self.ended.clear();
        self.account(requests, places, false, 0);
    }

    /// Requests that were handed back and never came again are forgotten with their time.
    #[cold]
    fn forget_old(&mut self) {
        let lifetime = self.unit.timeout_ns().saturating_mul(8);
        let now = self.now;
        self.remembered.retain(|one| now.since(one.tries.created) < lifetime);
    }
}

impl DriverQueue for UnitQueue {
    fn submit(&mut self, batch: &mut Batch<'_>, now: Nanos) {
        self.now = now;
        if self.unit.state() == UnitState::Offline {
            return self.end_all(batch, Status::Offline);
        }
        if self.version != self.unit.version() {
            self.follow_limits();
        }
        if let Some(obstacle) = self.send(batch) {
            self.stop(batch, &obstacle);
        }
    }

    fn commit(&mut self, now: Nanos) {
        let host = Arc::clone(&self.host);
        let mut carrier = host.channels[usize::from(self.index)].turn();
        carrier.commit(now);
        let due = carrier.wake_at();
        self.wake_at = if self.ended.is_empty() { due } else { Some(Nanos::ZERO) };
    }

    fn at_home(&mut self, lane: Arc<dyn Wake>) {
        self.channel().turn().seat_mut(self.seat).wake = Some(Arc::clone(&lane));
        self.unit.places.at_home(self.index, Some(lane));
    }

    fn reap(&mut self, now: Nanos, done: &mut Done) {
        self.now = now;
        let host = Arc::clone(&self.host);
        let channel = &host.channels[usize::from(self.index)];
        let mut carrier = channel.turn();
        let mut reaper =
            Reaper { seat: self.seat, now, done, lent: &mut self.lent, wakes: &mut self.wakes };
        let taken = carrier.reap(&mut reaper);
        let inbox = &mut carrier.seat_mut(self.seat).inbox;
        let good = std::mem::take(&mut inbox.good);
        if !inbox.remembered.is_empty() {
            self.remembered.append(&mut inbox.remembered);
        }
        self.wake_at = carrier.wake_at();
        self.outage = carrier.port().outage_until();
        drop(carrier);
        self.wakes.ring();
        if taken.requests > 0 {
            self.account(taken.requests, taken.places, taken.ended, good);
        }
        if !self.ended.is_empty() {
            self.take_ended(done);
        }
        if !self.remembered.is_empty() {
            self.forget_old();
        }
    }

    fn cancel(&mut self, tag: Tag) -> Cancel {
        if self.ended.iter().any(|(ended, _)| *ended == tag) {
            return Cancel::Recovering;
        }
        let host = Arc::clone(&self.host);
        let mut carrier = host.channels[usize::from(self.index)].turn();
        let answer = carrier.overdue(self.seat, tag, &mut self.wakes);
        carrier.commit(self.now);
        self.wake_at = carrier.wake_at();
        drop(carrier);
        self.wakes.ring();
        answer
    }

    fn outage_until(&self) -> Option<Nanos> {
        self.outage.filter(|until| self.now < *until)
    }

    fn wake_at(&self) -> Option<Nanos> {
        if !self.ended.is_empty() {
            return Some(Nanos::ZERO);
        }
        let retry = self.unit.places.needs_retry().then(|| self.now + RETRY_NS);
        [self.wake_at, retry].into_iter().flatten().min()
    }

    fn event_fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.announced {
            Announced::Event(event) => Some(event.as_fd()),
            Announced::Turned | Announced::Nothing => None,
        }
    }

    fn announces(&self) -> bool {
        !matches!(self.announced, Announced::Nothing)
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }
}

impl Drop for UnitQueue {
    fn drop(&mut self) {
        self.unit.places.at_home(self.index, None);
        self.channel().leave(self.seat);
        self.unit.pass_on_port_wish(self.now);
    }
}
