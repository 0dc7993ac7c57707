//! Submitters that send whatever comes to mind, and changes of devices in the middle of it.

use std::ops::Range;
use std::sync::Mutex;

use weir_bio::{Bio, Data, Flags, Nanos, Op, Prng};
use weir_queue::{Device, Lane, LaneAnswer, LaneHomes, Progress, Step, Submitter};

use super::filled;
use super::log::Log;
use super::sleepers::{App, House};

/// Sends reads, writes, flushes and discards, now and then one that may not wait.
pub struct Sender {
    /// Its submitter.
    pub submitter: Submitter,
    /// Where it tells what happens.
    pub log: Log,
    /// The source of choices.
    pub prng: Prng,
    /// Bios still to be made up.
    pub left: u32,
    /// Most bios under way.
    pub window: u64,
    /// A bio that was given back.
    pub held: Option<Bio>,
    /// It waits to be told.
    pub waits: bool,
    /// Where the last bio ended; 0: nowhere.
    pub next: u64,
    /// Bios lie below this sector.
    pub span: u64,
    /// Bios that have ended.
    pub ended: u64,
}

impl Sender {
    /// Sends so many bios, up to `window` at a time.
    pub fn new(submitter: Submitter, log: Log, seed: u64, left: u32, window: u64) -> Sender {
        let (prng, held, waits, next, ended) = (Prng::new(seed), None, false, 0, 0);
        let span = 4096;
        Sender { submitter, log, prng, left, window, held, waits, next, span, ended }
    }

    fn invent(&mut self) -> Bio {
        let sectors = 8 * (1 + self.prng.below(6) as u32);
        if self.prng.percent(60) || self.next + u64::from(sectors) > self.span {
            self.next = self.prng.below(self.span / 8 - 5) * 8;
        }
        let sector = std::mem::replace(&mut self.next, 0);
        self.next = sector + u64::from(sectors);
        let cookie = u64::from(self.submitter.id().0) << 16 | u64::from(self.left);
        // The device looks at what it is given to write.
        let data = || filled(cookie, sector, &[sectors]);
        let bio = match self.prng.below(20) {
            0 => Bio::flush(),
            1 => Bio::new(Op::Discard, sector, sectors, Data::None),
            2..10 => Bio::new(Op::Write, sector, sectors, data()),
            _ => Bio::new(Op::Read, sector, sectors, data()),
        };
        match self.prng.below(16) {
            0 if bio.op == Op::Write => bio.with(Flags::FUA | Flags::PREFLUSH),
            1 if bio.sectors > 0 => bio.with(Flags::NOWAIT),
            2 | 3 => bio.with(Flags::SYNC),
            _ => bio,
        }
    }

    /// Whether all it had to send has ended.
    pub fn is_done(&self) -> bool {
        self.left == 0 && self.held.is_none() && self.submitter.in_flight() == 0
    }
}

impl App for Sender {
    fn run(&mut self, now: Nanos, told: bool) -> bool {
        self.waits &= !told;
        let ended = &mut self.ended;
        let count = |_| *ended += 1;
        self.submitter.complete_telling(now, count, self.log.ear());
        for _ in 0..1 + self.prng.below(12) {
            if !self.is_eager() {
                break;
            }
            let bio = match self.held.take() {
                Some(bio) => bio,
                None => {
                    self.left -= 1;
                    self.invent()
                }
            };
            if let Err(refused) = self.submitter.submit_telling(bio, now, self.log.ear()) {
                (self.held, self.waits) = (Some(refused.into_bio()), true);
            }
        }
        self.submitter.flush_plug_telling(now, self.log.ear());
        true
    }

    fn is_eager(&self) -> bool {
        let more = self.left > 0 || self.held.is_some();
        !self.waits && more && self.submitter.in_flight() < self.window
    }
}

/// Orders to homes to open or close lanes.
#[derive(Default)]
pub struct Orders(Mutex<Vec<(bool, Device, usize, LaneAnswer)>>);

impl LaneHomes for Orders {
    fn open(&self, device: &Device, index: usize, answer: LaneAnswer) {
        self.0.lock().unwrap().push((true, device.clone(), index, answer));
    }

    fn close(&self, device: &Device, index: usize, answer: LaneAnswer) {
        self.0.lock().unwrap().push((false, device.clone(), index, answer));
    }
}

impl Orders {
    /// These homes open and close lanes as they are asked: lane `i` at home `i` modulo their
    /// number.
    pub fn obey<A: App>(&self, house: &mut House<A>, homes: Range<usize>) {
        let orders = std::mem::take(&mut *self.0.lock().unwrap());
        for (opens, device, index, answer) in orders {
            let home = homes.start + index % homes.len();
            if opens {
                house.open_lane(&device, index, home);
            } else {
                let is_it = |lane: &Lane| lane.index() == index && device.owns(lane);
                house.homes[home].home.extract(is_it, |_, lane| drop(lane));
            }
            answer.give(Ok(()));
        }
    }
}

/// A change under way: polled until it says that it is over.
pub type Change = Box<dyn FnMut(Nanos) -> bool>;

/// A step as something to be polled; `held` keeps what came of it, for so many polls.
pub fn held<S: Step + 'static>(mut step: S, mut polls: u32, judge: fn(&S::Out)) -> Change {
    let mut out = None;
    Box::new(move |now| {
        if out.is_none() {
            if let Progress::Ended(ended) = step.poll(now) {
                judge(&ended);
                out = Some(ended);
            }
            return false;
        }
        polls = polls.saturating_sub(1);
        if polls == 0 {
            out = None;
        }
        polls == 0
    })
}
