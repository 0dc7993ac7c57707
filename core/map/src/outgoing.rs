//! Requests on their way down: what all mappers do alike with the requests of a driver queue, over
//! [`weir_queue::Legs`] and by its contract. Where a piece goes is a [`Route`]'s business.

use std::collections::VecDeque;
use std::sync::Arc;

use weir_bio::{Bio, Data, Flags, Nanos, Op, Rq, SECTOR, Status};
use weir_queue::{Batch, Cancel, Completion, Device, Done, DriverError, Legs, Request, Tag, Wake};

use crate::layout::{ERROR, Piece, ZERO};

mod entries;

pub(crate) use entries::tag_of;
use entries::{Entry, EntryTable, Later, cookie};

/// Where the pieces of a request go.
pub trait Route {
    /// The longest beginning of a range that is one bio of one leg; asked again if it is not all.
    fn front(&mut self, rq: &Rq, sector: u64, sectors: u32) -> Piece;

    /// The same for a request without memory, as a discard is: all of its bios.
    fn ranges(&mut self, rq: &Rq, visit: &mut dyn FnMut(Piece));

    /// The legs that a flush goes to.
    fn flush(&mut self, visit: &mut dyn FnMut(usize));

    /// In which line the bios of a request wait before they are sent, and how long, ns: equally
    /// long in one line. `None`: they do not.
    #[inline]
    fn hold(&self, rq: &Rq) -> Option<(usize, u64)> {
        let _ = rq;
        None
    }
}

/// The requests of one driver queue whose bios are under way below.
///
/// A bio has the memory of one bio above at most, so memory is cut where a piece ends inside it and
/// never joined: nothing is allocated for a request whose bios each lie in one piece. What a leg's
/// plug joins costs nothing here.
pub struct Outgoing {
    legs: Legs,
    table: EntryTable,
    lane: Option<Arc<dyn Wake>>,
    /// Flags that every bio has beside those of its request.
    flags: Flags,
    held: Lines,
    /// Bios that lie on no leg: the next answer ends them.
    own: Vec<OwnEnd>,
}

/// A bio that no leg is asked about: its cookie, how it ends, and its memory.
type OwnEnd = (u64, Status, Data);

/// Bios that wait for their time, by line: when each is sent, its leg, and itself.
type Lines = Vec<VecDeque<(Nanos, usize, Bio)>>;

/// Cookies from here on are no request's.
pub const OWN_COOKIES: u64 = 1 << 48;

impl Outgoing {
    /// The requests of hard queue `index` with `depth` tags over these devices.
    ///
    /// # Errors
    /// As [`Device::submitter`].
    pub fn open(devices: &[Device], index: u16, depth: u16) -> Result<Outgoing, DriverError> {
        let legs = Legs::open(devices, usize::from(index))
            .map_err(|error| DriverError { what: error.to_string(), source: None })?;
        let (lane, flags, held, own) = (None, Flags::NONE, Vec::new(), Vec::new());
        Ok(Outgoing { legs, table: EntryTable::new(depth), lane, flags, held, own })
    }

    /// The same, whose bios have these flags beside those of their request.
    #[must_use]
    pub fn with_flags(self, flags: Flags) -> Outgoing {
        Outgoing { flags, ..self }
    }

    /// The legs, for what is no request: their ends come by [`reap_with`](Outgoing::reap_with),
    /// and have cookies that no request's bio has, from [`OWN_COOKIES`] on.
    pub fn legs(&mut self) -> &mut Legs {
        &mut self.legs
    }

    /// As [`DriverQueue::at_home`](weir_queue::DriverQueue::at_home).
    pub fn at_home(&mut self, lane: Arc<dyn Wake>) {
        self.lane = Some(Arc::clone(&lane));
        self.legs.at_home(lane);
    }

    /// Takes all requests of a batch and sends their bios.
    #[inline]
    pub fn submit(&mut self, batch: &mut Batch<'_>, route: &mut impl Route, now: Nanos) {
        let mut ended = false;
        batch.take_all(|tag, request| ended |= self.send(tag, request, route, now));
        if ended {
            self.wake();
        }
    }

    /// Sends the bios of a request and says whether none or some went to no leg: then there is
    /// something for the next reap, for which the lane has to be [woken](Outgoing::wake).
    #[inline(always)] // What is built for a bio stays in registers.
    pub fn send(
        &mut self,
        tag: Tag,
        request: &mut Request,
        route: &mut impl Route,
        now: Nanos,
    ) -> bool {
        let rq = *request.rq();
        let Some(data) = request.lone_data().filter(|_| route.hold(&rq).is_none()) else {
            return self.send_pieces(tag, request, route, now);
        };
        let Piece { leg, sector, sectors } = route.front(&rq, rq.sector, rq.sectors);
        if sectors != rq.sectors || leg >= ERROR {
            return self.send_pieces(tag, request, route, now);
        }
        // Nearly all are one bio, and go to one leg as they are.
        let Rq { op, group, ioprio, hint, .. } = rq;
        let flags = rq.flags | self.flags;
        let entry = self.table.begin(tag, Rq { flags, ..rq });
        (entry.left, entry.bios) = (1, 1);
        let (cookie, data) = (cookie(tag, 0), std::mem::take(data));
        let bio = Bio { sector, sectors, op, flags, ioprio, hint, group, cookie, data };
        self.legs.send(leg, bio, now);
        false
    }

    /// The same for what is not simply one bio for one leg.
    #[inline(never)]
    fn send_pieces(
        &mut self,
        tag: Tag,
        request: &mut Request,
        route: &mut impl Route,
        now: Nanos,
    ) -> bool {
        let mut rq = *request.rq();
        rq.flags |= self.flags;
        let hold = route.hold(&rq);
        let Outgoing { legs, table, held, own, .. } = self;
        let before = own.len();
        let mut sending = Sending { legs, held, own, hold, entry: table.begin(tag, rq), now };
        match rq.op {
            Op::Read | Op::Write => {
                let mut at = rq.sector;
                request.for_each_data(|data| {
                    at = sending.send_memory(at, std::mem::take(data), route);
                });
            }
            Op::Flush => route.flush(&mut |leg| sending.send(leg, Bio::flush())),
            _ => route.ranges(&rq, &mut |piece| {
                let Piece { leg, sector, sectors } = piece;
                sending.send(leg, Bio::new(rq.op, sector, sectors, Data::None));
            }),
        }
        let is_empty = sending.entry.bios == 0;
        if is_empty {
            self.table.ended.push(tag.0);
        }
        is_empty || self.own.len() > before
    }

    /// Sends a bio of a request once more, as [`again`](Outgoing::again) made it.
    pub fn resend(&mut self, leg: usize, bio: Bio, now: Nanos) {
        self.legs.send(leg, bio, now);
    }

    /// Sends the bios whose time has come; `sent` hears the line of each.
    pub fn send_held(&mut self, now: Nanos, mut sent: impl FnMut(usize)) {
        for (line, held) in self.held.iter_mut().enumerate() {
            while held.front().is_some_and(|(due, ..)| *due <= now) {
                let (_, leg, bio) = held.pop_front().expect("the one that was looked at");
                self.legs.send(leg, bio, now);
                sent(line);
            }
        }
        self.legs.commit(now);
    }

    /// When the first bio that waits is sent.
    #[must_use]
    pub fn held_until(&self) -> Option<Nanos> {
        self.held.iter().filter_map(|line| line.front()).map(|(due, ..)| *due).min()
    }

    /// Ends the bios of a request that wait for their time; says for each in which line it was.
    pub fn drop_held(&mut self, tag: Tag, mut dropped: impl FnMut(usize)) {
        let Outgoing { held, table, .. } = self;
        for (line, held) in held.iter_mut().enumerate() {
            let is_of_it = |bio: &Bio| tag_of(bio.cookie) == usize::from(tag.0);
            let (meant, left) =
                std::mem::take(held).into_iter().partition(|(.., bio)| is_of_it(bio));
            *held = left;
            let meant: VecDeque<(Nanos, usize, Bio)> = meant;
            for (.., bio) in meant {
                table.end(bio.cookie, Status::Timeout, bio.data);
                dropped(line);
            }
        }
    }

    /// The burst is over.
    pub fn commit(&mut self, now: Nanos) {
        self.legs.commit(now);
    }

    /// Takes what has ended below and answers the requests whose last bio that was.
    pub fn reap(&mut self, now: Nanos, done: &mut Done) {
        self.reap_with(now, done, |_, end| Some(end));
        self.answer(done);
    }

    /// Takes what has ended below; `see` is shown each end with its leg and its request. Requests
    /// of one bio are answered, the others by [`answer`](Outgoing::answer).
    #[inline(always)]
    pub fn reap_seeing(
        &mut self,
        now: Nanos,
        done: &mut Done,
        mut see: impl FnMut(usize, &Completion, &Rq),
    ) {
        let Outgoing { legs, table, .. } = self;
        legs.reap(now, |leg, end| {
            see(leg, &end, &table.entries[tag_of(end.cookie)].rq);
            table.end_or_answer(end.cookie, end.status, end.data, done);
        });
    }

    /// Takes what has ended below: what `judge` gives back has, and what it keeps is still under
    /// way for its request, until it is sent [again](Outgoing::resend) or [ended](Outgoing::end).
    /// Requests of one bio are answered, the others by [`answer`](Outgoing::answer).
    #[inline(always)]
    pub fn reap_with(
        &mut self,
        now: Nanos,
        done: &mut Done,
        mut judge: impl FnMut(usize, Completion) -> Option<Completion>,
    ) {
        let Outgoing { legs, table, .. } = self;
        legs.reap(now, |leg, end| {
            if let Some(Completion { cookie, status, data, .. }) = judge(leg, end) {
                table.end_or_answer(cookie, status, data, done);
            }
        });
    }

    /// Ends what went to no leg, and answers the requests of which nothing is under way.
    pub fn answer(&mut self, done: &mut Done) {
        for (cookie, status, data) in self.own.drain(..) {
            self.table.end_own(cookie, status, data);
        }
        self.table.answer(done);
    }

    /// A bio that has ended, to be sent once more, to a leg where it lies at the same place as in
    /// the request.
    #[must_use]
    pub fn again(&self, end: Completion) -> Bio {
        let entry = &self.table.entries[tag_of(end.cookie)];
        let at = entry.at(end.cookie);
        let mut bio = match entry.rq.op {
            Op::Flush => Bio::flush(),
            op => Bio::new(op, entry.rq.sector + u64::from(at), end.sectors, end.data),
        };
        entry.dress(&mut bio);
        bio.cookie(end.cookie)
    }

    /// The request of a bio that is under way or was kept back.
    #[must_use]
    pub fn rq(&self, cookie: u64) -> &Rq {
        &self.table.entries[tag_of(cookie)].rq
    }

    /// The sectors above of a bio that has ended, where a leg has them at the same place.
    #[must_use]
    pub fn sectors(&self, end: &Completion) -> std::ops::Range<u64> {
        let entry = &self.table.entries[tag_of(end.cookie)];
        let sector = entry.rq.sector + u64::from(entry.at(end.cookie));
        sector..sector + u64::from(end.sectors)
    }

    /// Ends a bio that was kept back.
    pub fn end(&mut self, cookie: u64, status: Status, data: Data) {
        self.table.end(cookie, status, data);
    }

    /// As [`DriverQueue::cancel`](weir_queue::DriverQueue::cancel): bios that no leg has taken are
    /// not sent any more. What was sent, or has its memory below, is answered.
    pub fn cancel(&mut self, tag: Tag) -> Cancel {
        let Outgoing { legs, table, .. } = self;
        let before = table.ended.len();
        let is_of_it = |cookie| tag_of(cookie) == usize::from(tag.0);
        legs.recall(is_of_it, |_, bio| table.end(bio.cookie, Status::Timeout, bio.data));
        if table.ended.len() > before {
            self.wake();
        }
        Cancel::Pending
    }

    /// Has the lane turned: something ended outside of a reap.
    pub fn wake(&self) {
        if let Some(lane) = &self.lane {
            lane.wake();
        }
    }

    /// Requests taken and not answered.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.table.in_flight
    }
}

/// A request whose bios are being sent.
struct Sending<'a> {
    legs: &'a mut Legs,
    held: &'a mut Lines,
    own: &'a mut Vec<OwnEnd>,
    hold: Option<(usize, u64)>,
    entry: &'a mut Entry,
    now: Nanos,
}

impl Sending<'_> {
    /// Sends the memory of one bio above; says where the next begins.
    #[inline]
    fn send_memory(&mut self, at: u64, data: Data, route: &mut impl Route) -> u64 {
        let sectors = (data.len() as u64 / SECTOR) as u32;
        let Piece { leg, sector, sectors: first } = route.front(&self.entry.rq, at, sectors);
        if first == sectors && self.entry.more.cuts.is_empty() {
            self.send_at(at, leg, Bio::new(self.entry.rq.op, sector, sectors, data));
        } else {
            self.cut_memory(at, sectors, data, route);
        }
        at + u64::from(sectors)
    }

    #[inline(never)]
    fn cut_memory(&mut self, at: u64, sectors: u32, mut data: Data, route: &mut impl Route) {
        let more = &mut self.entry.more;
        if more.cuts.is_empty() {
            // Each piece before this one became one bio.
            more.cuts.resize(self.entry.bios as usize, 1);
        }
        let (op, before) = (self.entry.rq.op, self.entry.bios);
        let (mut at, end) = (at, at + u64::from(sectors));
        while at < end {
            let piece = route.front(&self.entry.rq, at, (end - at) as u32);
            let rest = data.split_off(piece.sectors as usize * SECTOR as usize);
            let data = std::mem::replace(&mut data, rest);
            self.send_at(at, piece.leg, Bio::new(op, piece.sector, piece.sectors, data));
            at += u64::from(piece.sectors);
        }
        let cuts = self.entry.bios - before;
        self.entry.more.cuts.push(cuts);
    }

    #[inline]
    fn send_at(&mut self, at: u64, leg: usize, bio: Bio) {
        if self.entry.bios > 0 {
            let at = (at - self.entry.rq.sector) as u32;
            self.entry.more.bios.push(Later { at, data: Data::None });
        }
        self.send_next(leg, bio);
    }

    /// Sends a bio without memory.
    fn send(&mut self, leg: usize, bio: Bio) {
        self.send_at(self.entry.rq.sector, leg, bio);
    }

    #[inline]
    fn send_next(&mut self, leg: usize, mut bio: Bio) {
        let entry = &mut *self.entry;
        entry.dress(&mut bio);
        bio.cookie = cookie(entry.tag, entry.bios);
        entry.bios += 1;
        entry.left += 1;
        match self.hold {
            _ if leg >= ERROR => self.end_here(leg, bio),
            None => self.legs.send(leg, bio, self.now),
            Some((line, ns)) => put_in_line(self.held, line, (self.now + ns, leg, bio)),
        }
    }

    #[inline(never)]
    fn end_here(&mut self, leg: usize, bio: Bio) {
        let status = if leg == ZERO { Status::Ok } else { Status::IoErr };
        self.own.push((bio.cookie, status, bio.data));
    }
}

#[inline(never)]
fn put_in_line(held: &mut Lines, line: usize, bio: (Nanos, usize, Bio)) {
    if held.len() <= line {
        held.resize_with(line + 1, VecDeque::new);
    }
    held[line].push_back(bio);
}
