//! A life of a device over others: legs with faults of their own below a table of dm's words, with
//! schedulers, lanes, weights, caps and gates that change on both levels.
//!
//! The laws: every bio ends once and with the right data, every sector lies where the table says,
//! no request breaks a limit of its leg, no submitter waits for ever, and nothing is left when all
//! is done. Where a sector lies is computed here by itself, and held against what a leg gets.

use std::cell::RefCell;
use std::fmt;
use std::num::NonZeroU64;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use weir_bio::{GroupId, Limits, Prng, Status};
use weir_map::kinds::TABLE;
use weir_queue::driver::Affinity;
use weir_queue::{
    Bell, Caps, Config, Device, Groups, LaneHomes, NoWake, QueueMode, Watch, Written,
};

use super::Lived;
use crate::client::{Client, Office};
use crate::device::{Plan, Shape, Sim, any_limits};
use crate::path::Path;
use crate::sender::{Change, Orders, held};
use crate::sleepers::{House, Step};

const SECOND: u64 = 1_000_000_000;

/// The group of all that have none.
const ROOT: GroupId = GroupId(0);

/// Sectors of a leg; small, so that bios meet.
const LEG: u64 = 128;

/// Sectors of a leg that are used, and where these begin: whole blocks and whole chunks.
const USED: u64 = 96;
const OFFSET: u64 = 16;

/// Bios of each client.
const BIOS: u32 = 100;

/// Steps of a life: well above what any takes.
const STEPS_MAX: u64 = 3_000_000;

/// Times in a row that all homes rest while a change is under way.
const RESTS_MAX: u32 = 50;

/// How the sectors lie on the legs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapper {
    /// One leg behind the other.
    Linear,
    /// In chunks of so many sectors, on the legs in turn.
    Striped(u64),
    /// On one leg, each bio so many ms later.
    Delay(u64),
}

impl fmt::Display for Mapper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mapper::Linear => f.write_str("linear"),
            Mapper::Striped(chunk) => write!(f, "striped by {chunk} sectors"),
            Mapper::Delay(ms) => write!(f, "delay of {ms} ms"),
        }
    }
}

impl Mapper {
    /// One by chance.
    pub fn any(prng: &mut Prng) -> Mapper {
        match prng.below(5) {
            0 | 1 => Mapper::Linear,
            2 | 3 => Mapper::Striped([8, 16, 32][prng.below(3) as usize]),
            _ => Mapper::Delay([0, 1, 20][prng.below(3) as usize]),
        }
    }

    /// The table over so many legs, which are called by their numbers.
    fn table(self, legs: u64) -> String {
        let whole = legs * USED;
        match self {
            Mapper::Linear => {
                let row = |leg| format!("{} {USED} linear {leg} {OFFSET}", leg * USED);
                (0..legs).map(row).collect::<Vec<_>>().join(";")
            }
            Mapper::Striped(chunk) => {
                let stripes = (0..legs).map(|leg| format!(" {leg} {OFFSET}"));
                format!("0 {whole} striped {legs} {chunk}{}", stripes.collect::<String>())
            }
            Mapper::Delay(ms) => format!("0 {whole} delay 0 {OFFSET} {ms}"),
        }
    }

    /// The sector of the whole by that of a leg, of so many.
    fn place(self, leg: u64, legs: u64, sector: u64) -> u64 {
        assert!(
            (OFFSET..OFFSET + USED).contains(&sector),
            "sector {sector} of leg {leg} is unused"
        );
        let at = sector - OFFSET;
        match self {
            Mapper::Linear | Mapper::Delay(_) => leg * USED + at,
            Mapper::Striped(chunk) => (at / chunk * legs + leg) * chunk + at % chunk,
        }
    }
}

/// What a leg does wrong.
fn any_plan(prng: &mut Prng) -> Plan {
    let mut pick = |of: &[u64]| of[prng.below(of.len() as u64) as usize];
    let mut plan = Plan {
        refused: pick(&[0, 10, 50]) as u32,
        refusals_max: 100,
        slow_ns: pick(&[0, 1_000, 1_000_000]),
        lent: pick(&[0, 50, 100]) as u32,
        reordered: pick(&[0, 1]) == 1,
        requeued: pick(&[0, 0, 20]) as u32,
        requeues_max: 50,
        errors: vec![Status::Medium, Status::NoSpc, Status::IoErr],
        ..Plan::default()
    };
    match pick(&[0, 1, 2]) {
        0 => {}
        1 => plan.failed = 5,
        _ => {
            plan.failed = pick(&[0, 3]) as u32;
            (plan.lost, plan.late) = (pick(&[2, 5]) as u32, pick(&[0, 5]) as u32);
            plan.late_ns = 4 * SECOND;
            (plan.cancel_done, plan.found) = (pick(&[0, 50]) as u32, pick(&[0, 50]) as u32);
            plan.twice = pick(&[0, 30]) as u32;
        }
    }
    plan
}

struct Tower {
    sims: Vec<Arc<Sim>>,
    legs: Vec<Device>,
    above: Device,
    house: House<Client>,
    office: Rc<RefCell<Office>>,
    /// Who opens the lanes of each level, and at which homes.
    orders: [(Arc<Orders>, Range<usize>); 2],
    groups: Arc<Groups>,
    caller: Arc<Bell>,
    prng: Prng,
}

/// One of so many legs, with the ops of these limits.
fn leg(
    mapper: Mapper,
    path: Path,
    (leg, legs): (u64, u64),
    ops: &Limits,
    prng: &mut Prng,
) -> (Arc<Sim>, Device) {
    // One size of blocks, or no chunk is whole blocks of all; and what one leg can, all can, or the
    // answer would depend on where a bio lies.
    let limits = Limits {
        logical_block_size: 512,
        physical_block_size: 4096,
        max_hw_discard_sectors: ops.max_hw_discard_sectors,
        discard_granularity: ops.discard_granularity,
        max_secure_erase_sectors: ops.max_secure_erase_sectors,
        max_write_zeroes_sectors: ops.max_write_zeroes_sectors,
        ..any_limits(prng, LEG)
    };
    let plan = any_plan(prng);
    let timeout_ns = if plan.is_kind() { 0 } else { 2 * SECOND };
    let (depth, seed) = ([1, 2, 4, 17][prng.below(4) as usize], prng.next());
    let (shared_tags, home, announced) = (path.shared_tags, path.home, false);
    let sim = Sim::new(Shape { limits, depth, shared_tags, home, announced, plan, seed });
    sim.world().places = Some(Box::new(move |at| mapper.place(leg, legs, at)));
    let config = Config { timeout_ns, wbt_lat_us: Some(0), ..Config::default() };
    let device = path.device(config, Arc::clone(&sim) as Arc<_>);
    (sim, device)
}

impl Tower {
    fn new(mapper: Mapper, path: Path, below: Path, seed: u64) -> Tower {
        let mut prng = Prng::new(seed);
        let count = if matches!(mapper, Mapper::Delay(_)) { 1 } else { 1 + prng.below(3) };
        let ops = any_limits(&mut prng, LEG);
        let each = (0..count).map(|number| leg(mapper, below, (number, count), &ops, &mut prng));
        let (sims, legs): (Vec<_>, Vec<_>) = each.unzip();
        let table = mapper.table(count);
        let written = Written { name: TABLE.names[0], rest: &table, text: &table };
        let backing = (TABLE.parse)(&written).expect("a table");
        let nr_requests = prng.percent(50).then(|| 4 + prng.below(28) as u16);
        let config =
            Config { nr_requests, timeout_ns: 0, wbt_lat_us: Some(0), ..Config::default() };
        let opened = backing.open_over(&config, &legs).expect("a table that fits its legs");
        let above = path.device(config, opened.driver);
        let office = Tower::office(&above, &sims, &mut prng);
        let groups = Arc::new(Groups::default());
        if prng.percent(50) {
            above.attach_groups(&groups);
            legs.iter().for_each(|leg| leg.attach_groups(&groups));
            let names = ["a", "b", "a/c"];
            let made = names.map(|name| groups.create(name).expect("a path"));
            office.borrow_mut().groups = made.into_iter().chain([ROOT]).collect();
        }
        let house = Tower::house(&sims, &office, &mut prng);
        let first = if prng.percent(50) { 2 } else { 0 };
        let orders = [(Arc::default(), 0..2), (Arc::default(), first..4)];
        let caller = Bell::new(Box::new(NoWake), 1);
        let mut tower = Tower { sims, legs, above, house, office, orders, groups, caller, prng };
        tower.furnish(path, below);
        tower
    }

    fn office(above: &Device, sims: &[Arc<Sim>], prng: &mut Prng) -> Rc<RefCell<Office>> {
        let limits = above.limits();
        let kind = sims.iter().all(|sim| sim.world().plan.is_kind());
        let errors = sims[0].world().plan.errors.clone();
        // No client is told of a time: a map has none of its own.
        let timeout_ns = if kind { 0 } else { 1 << 60 };
        let office = Office::new(limits, prng.next());
        Rc::new(RefCell::new(Office { kind, errors, timeout_ns, hands_back: true, ..office }))
    }

    fn house(sims: &[Arc<Sim>], office: &Rc<RefCell<Office>>, prng: &mut Prng) -> House<Client> {
        let (sims, office) = (sims.to_vec(), Rc::clone(office));
        let progress = move || {
            let legs: u64 = sims.iter().map(|sim| sim.progress()).sum();
            let office = office.borrow();
            legs + office.last_cookie + office.completions
        };
        House::new(4, prng.next(), |_| None, progress)
    }

    fn furnish(&mut self, path: Path, below: Path) {
        let levels = std::iter::once((&self.above, path, 0))
            .chain(self.legs.iter().map(|leg| (leg, below, 1)));
        for (device, path, level) in levels {
            let (orders, homes): &(Arc<Orders>, _) = &self.orders[level];
            let any = path.mode == QueueMode::Sq && path.home == Affinity::Any;
            let lanes = if any { 1 } else { usize::from(path.lanes) };
            for lane in 0..lanes {
                self.house.open_lane(device, lane, homes.start + lane % homes.len());
            }
            device.attach_homes(Arc::downgrade(&(Arc::clone(orders) as Arc<dyn LaneHomes>)));
        }
        for home in [0, 1, 1] {
            let (bell, token) = (self.house.homes[home].home.bell(), self.house.next_token(home));
            let submitter = self.above.submitter(bell, token, home).expect("a submitter");
            let client = Client::new(submitter, Rc::clone(&self.office), BIOS, 4 + 8 * home, None);
            self.house.add_app(home, client);
        }
    }

    /// Begins a change of the device or of a leg.
    fn next_change(&mut self) -> Change {
        let watch = Watch::new(&self.caller, 0);
        let which = self.prng.below(1 + self.legs.len() as u64) as usize;
        let device = match which {
            0 => &self.above,
            leg => &self.legs[leg - 1],
        };
        match self.prng.below(4) {
            0 => held(device.begin_freeze(&watch), 3, |_| ()),
            1 => held(device.begin_quiesce(&watch), 3, |_| ()),
            2 if device.queues_max() > 1 => {
                let prepared = device.prepare_lanes(1 + device.queues() % 4).expect("lanes");
                // Refused while its lane waits for answers to requests that timed out.
                held(device.begin_queues(&watch, prepared), 1, |_| ())
            }
            _ => {
                let names = device.schedulers();
                let name = names[self.prng.below(names.len() as u64) as usize];
                held(device.begin_switch(&watch, name), 1, |out| {
                    assert!(out.is_ok(), "{:?}", out.as_ref().err());
                })
            }
        }
    }

    /// A group weighs or may have more or less.
    fn change_a_group(&mut self) {
        let office = self.office.borrow();
        if office.groups.is_empty() {
            return;
        }
        let group = office.groups[self.prng.below(office.groups.len() as u64) as usize];
        let weight = 1 + self.prng.below(1000) as u16;
        let mut cap = |percent, most| {
            let some = self.prng.percent(percent).then(|| 1 + self.prng.below(most));
            some.and_then(NonZeroU64::new)
        };
        let caps = Caps {
            riops: cap(30, 10_000),
            wiops: cap(30, 10_000),
            rbps: cap(20, 100 << 20),
            wbps: cap(20, 100 << 20),
            burst_ns: 0,
        };
        if group != ROOT {
            self.groups.set_weight(group, weight).expect("a weight within its bounds");
        }
        self.groups.set_caps(group, caps).expect("caps");
    }

    /// Until all has ended; then all is at rest.
    fn run(&mut self) {
        let mut change: Option<Change> = None;
        let mut rests = 0;
        for _ in 0..STEPS_MAX {
            for (orders, homes) in &self.orders {
                orders.obey(&mut self.house, homes.clone());
            }
            let went = self.house.step() == Step::Went;
            rests = if went { 0 } else { rests + 1 };
            let done = self.house.apps.iter().all(Client::is_done);
            if let Some(under_way) = &mut change {
                if !went || self.house.prng.percent(20) {
                    let over = under_way(self.house.now);
                    change = change.filter(|_| !over);
                }
                assert!(rests < RESTS_MAX, "a change has no end\n{}", self.state());
            } else if went && !done && self.prng.below(1_000) < 3 {
                change = Some(self.next_change());
            } else if went && !done && self.prng.below(1_000) < 3 {
                self.change_a_group();
            } else if !went && done {
                return;
            } else if !went {
                let found = self.find_lost();
                assert!(found > 0, "all sleep: a wake-up was lost\n{}", self.state());
            }
        }
        panic!("time goes on, and nothing ends\n{}", self.state());
    }

    /// What was lost is answered; how much that is.
    fn find_lost(&mut self) -> usize {
        let now = self.house.now;
        let found = self.sims.iter().map(|sim| sim.find_lost(now)).sum();
        self.house.turn_all();
        found
    }

    fn state(&self) -> String {
        let clients: Vec<String> = self.house.apps.iter().map(Client::describe).collect();
        let inside = |device: &Device| device.stats().in_flight;
        let legs: Vec<u64> = self.legs.iter().map(inside).collect();
        let above = inside(&self.above);
        format!("clients: {clients:?}; inside {above}, legs {legs:?}\n{}", self.house.state())
    }

    /// Everything has ended: nothing may be left anywhere.
    fn check_rest(&mut self) {
        self.find_lost();
        while self.house.step() == Step::Went {}
        for device in self.legs.iter().chain([&self.above]) {
            let stats = device.stats();
            assert_eq!((stats.in_flight, stats.in_driver), (0, [0, 0]), "at rest");
            assert_eq!((stats.fields()[8], stats.quarantined), (0, 0), "at rest");
        }
        let office = self.office.borrow();
        assert_eq!(self.above.stats().errors, office.failures, "bios that ended with an error");
        for (value, must) in &office.written {
            let count = |sim: &Arc<Sim>| sim.world().tally.delivered.get(value).copied();
            let times: u32 = self.sims.iter().filter_map(count).sum();
            let sector = (value & 0xff_ffff) - 1;
            assert!(times <= 1, "sector {sector} arrived {times} times");
            assert!(!must || times == 1, "sector {sector} never arrived");
        }
    }
}

/// Lives by this seed: the device's way through the core, and that of each leg.
///
/// # Panics
/// When a law is broken.
pub fn live(mapper: Mapper, path: Path, below: Path, seed: u64) -> Lived {
    let mut tower = Tower::new(mapper, path, below, seed);
    tower.run();
    tower.check_rest();
    let bios = tower.office.borrow().completions;
    Lived { bios, until: tower.house.now, turns: tower.house.passes }
}
