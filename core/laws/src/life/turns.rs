//! A life in which others never stop: whatever they send, an I/O has its turn within a time that
//! follows from the rules of its scheduler.
//!
//! Greedy clients keep the device busy with one kind of I/O each, and one client with few bios of
//! its own kind, the *victim*, sends these one after the other. All are of one priority and group:
//! an idle class may starve, and a weight may be as small as its owner wants.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use weir_bio::{Bio, Data, Flags, Limits, Nanos, Op, Prng};
use weir_queue::driver::Affinity;
use weir_queue::{Config, Device, QueueMode, Submitter};

use super::Lived;
use crate::device::{Plan, Shape, Sim};
use crate::filled;
use crate::path::{Order, Path};
use crate::sleepers::{App, House, Step};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

/// Sectors of the device.
const SECTORS: u64 = 1 << 14;

/// Bios of the victim.
const BIOS: u32 = 2;

/// Steps of a life: well above what any takes. With `cfq` a bio among async writes that never stop
/// has waited for 6 s, in which so many other ones have ended.
const STEPS_MAX: u64 = 20_000_000;

/// A kind of I/O; one bio never merges with another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ask {
    Read,
    Write,
    SyncWrite,
    Discard,
}

impl Ask {
    fn any(prng: &mut Prng) -> Ask {
        [Ask::Read, Ask::Write, Ask::SyncWrite, Ask::Discard][prng.below(4) as usize]
    }

    fn bio(self, cookie: u64, sector: u64) -> Bio {
        let op = match self {
            Ask::Read => Op::Read,
            Ask::Write | Ask::SyncWrite => Op::Write,
            Ask::Discard => Op::Discard,
        };
        let data = if op.has_data() { filled(cookie, sector, &[8]) } else { Data::None };
        let bio = Bio::new(op, sector, 8, data).cookie(cookie).with(Flags::NOMERGE);
        if self == Ask::SyncWrite { bio.with(Flags::SYNC) } else { bio }
    }
}

/// The state that the clients share.
#[derive(Default)]
struct Shared {
    cookies: u64,
    ended: u64,
    /// The victim has what it wanted.
    over: bool,
    /// Since when the victim waits for the bio it has sent.
    since: Option<Nanos>,
    /// The longest that it waited, ns.
    longest: u64,
}

struct Asker {
    submitter: Submitter,
    shared: Rc<RefCell<Shared>>,
    prng: Prng,
    ask: Ask,
    window: u64,
    /// Bios that the victim has left; the greedy have no end.
    left: Option<u32>,
    held: Option<Bio>,
    waits: bool,
}

impl Asker {
    fn complete(&mut self, now: Nanos) {
        let is_victim = self.left.is_some();
        let mut count = 0;
        self.submitter.complete(now, |end| {
            assert!(end.status.is_ok(), "{:?} ends with {}", end.op, end.status);
            count += 1;
        });
        let shared = &mut *self.shared.borrow_mut();
        shared.ended += count;
        if is_victim && count > 0 {
            assert_eq!(count, 1, "the victim sends one at a time");
            let since = shared.since.take().expect("it was sent");
            shared.longest = shared.longest.max(now.since(since));
            shared.over = self.left == Some(0);
        }
    }

    fn next(&mut self, now: Nanos) -> Bio {
        let shared = &mut *self.shared.borrow_mut();
        shared.cookies += 1;
        if let Some(left) = &mut self.left {
            *left -= 1;
            shared.since = Some(now);
        }
        self.ask.bio(shared.cookies, self.prng.below(SECTORS / 16) * 16)
    }
}

impl App for Asker {
    fn run(&mut self, now: Nanos, told: bool) -> bool {
        self.waits &= !told;
        self.complete(now);
        while self.is_eager() {
            let bio = match self.held.take() {
                Some(bio) => bio,
                None => self.next(now),
            };
            if let Err(refused) = self.submitter.submit(bio, now) {
                (self.held, self.waits) = (Some(refused.into_bio()), true);
            }
        }
        self.submitter.flush_plug(now);
        true
    }

    fn is_eager(&self) -> bool {
        let more = match self.left {
            Some(left) => left > 0,
            None => !self.shared.borrow().over,
        };
        !self.waits && (more || self.held.is_some()) && self.submitter.in_flight() < self.window
    }
}

/// The longest that a bio waits, ns, where `inside` are under way at most and each takes the device
/// `service_ns` at most.
///
/// The times are the defaults of the schedulers (docs/tunables.md).
fn bound_ns(path: Path, inside: u64, service_ns: u64) -> u64 {
    let all = inside * service_ns;
    match path.order {
        // First in, first out; between the lanes in turn.
        _ if !path.scheduled => 2 * all,
        Order::Noop => 2 * all,
        // Expired it is the next of its direction after a batch of 16, and that is served after
        // `writes_starved` batches of the other: 5 s for a write.
        Order::Deadline => 5 * SECOND + 2 * all + 3 * 16 * service_ns,
        // A domain has its turn after a batch of each other: 16 reads, 8 writes, 1 of the rest. So
        // each that is in front of it may cost a round of all.
        Order::Kyber => (16 + 8 + 1 + 1) * all,
        // A slice of each queue, and time to idle for it; twice as often as each weighs.
        Order::Bfq | Order::Cfq => 10 * SECOND,
        Order::OneToken | Order::TokensThatRest => 4 * all + SECOND,
    }
}

/// Lives by this seed.
///
/// # Panics
/// When the victim's turn does not come in time.
pub fn live(path: Path, seed: u64) -> Lived {
    let mut prng = Prng::new(seed);
    let (shared_tags, home, announced) = (path.shared_tags, path.home, false);
    let depth = [1, 2, 4][prng.below(3) as usize];
    let slow_ns = [MS / 10, MS, 2 * MS][prng.below(3) as usize];
    let limits = Limits {
        capacity: SECTORS,
        max_hw_discard_sectors: 64,
        discard_granularity: 512,
        ..Limits::default()
    };
    let plan = Plan { slow_ns, reordered: prng.percent(50), ..Plan::default() };
    let seed = prng.next();
    let sim = Sim::new(Shape { limits, depth, shared_tags, home, announced, plan, seed });
    let config = Config { timeout_ns: 0, wbt_lat_us: Some(0), ..Config::default() };
    let device = path.device(config, Arc::clone(&sim) as Arc<_>);
    let shared = Rc::new(RefCell::new(Shared::default()));
    let (events, ends) = (Arc::clone(&sim), Rc::clone(&shared));
    let progress = move || events.progress() + ends.borrow().ended + ends.borrow().cookies;
    let mut house = House::new(2, prng.next(), |_| None, progress);
    let any = path.mode == QueueMode::Sq && path.home == Affinity::Any;
    let lanes = if any { 1 } else { usize::from(path.lanes) };
    (0..lanes).for_each(|lane| house.open_lane(&device, lane, lane % 2));
    let (inside, what) = furnish(&mut house, &device, &shared, &mut prng);
    // A turn of a home takes a little time as well.
    let bound_ns = bound_ns(path, inside, slow_ns + MS / 10);
    for _ in 0..STEPS_MAX {
        let went = house.step() == Step::Went;
        let (since, over) = (shared.borrow().since, shared.borrow().over);
        let waited = since.map_or(0, |since| house.now.since(since)).max(shared.borrow().longest);
        assert!(waited <= bound_ns, "starved: {what} waited {waited} ns of {bound_ns} at most");
        if !went {
            assert!(over, "all sleep: a wake-up was lost\n{}", house.state());
            assert_eq!(device.stats().in_flight, 0, "at rest");
            let bios = shared.borrow().ended;
            return Lived { bios, until: house.now, turns: house.passes };
        }
    }
    panic!("time goes on, and nothing ends\n{}", house.state());
}

/// The greedy and their victim: the most that can be under way, and who they are.
fn furnish(
    house: &mut House<Asker>,
    device: &Device,
    shared: &Rc<RefCell<Shared>>,
    prng: &mut Prng,
) -> (u64, String) {
    let mut add = |left: Option<u32>, prng: &mut Prng| {
        let home = prng.below(2) as usize;
        let token = house.next_token(home);
        let lane = prng.below(4) as usize;
        let bell = house.homes[home].home.bell();
        let submitter = device.submitter(bell, token, lane).expect("a submitter");
        let window = if left.is_some() { 1 } else { 4 + prng.below(20) };
        let (shared, ask, own) = (Rc::clone(shared), Ask::any(prng), Prng::new(prng.next()));
        let (held, waits) = (None, false);
        house.add_app(home, Asker { submitter, shared, prng: own, ask, window, left, held, waits });
        (window, ask)
    };
    let mut all = 1;
    let mut greedy = Vec::new();
    for _ in 0..1 + prng.below(3) {
        let (window, ask) = add(None, prng);
        all += window;
        greedy.push(ask);
    }
    let (_, victim) = add(Some(BIOS), prng);
    (all, format!("one {victim:?} at a time beside {greedy:?}"))
}
