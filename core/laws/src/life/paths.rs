//! A life of multipath: what was acknowledged is read back whichever path answers, and nothing
//! lands over newer data, while paths break, fall silent, lose requests and come back, and while
//! schedulers, lanes and gates of the device and of its legs are changed.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use weir_bio::{Limits, Prng, Status};
use weir_queue::driver::Affinity;
use weir_queue::{Bell, Config, Device, LaneHomes, NoWake, Watch};

use super::Lived;
use crate::client::{Client, Office};
use crate::device::Plan;
use crate::fabric::{Build, Fabric, Narrow};
use crate::path::{Order, Path};
use crate::sender::{Change, Orders, held};
use crate::sleepers::{House, Step as Went};

const SECOND: u64 = 1_000_000_000;

/// Small, so that writes meet.
const SECTORS: u64 = 128;

/// Bios of each client.
const BIOS: u32 = 160;

/// Steps of a run: well above what any takes.
const STEPS_MAX: u64 = 3_000_000;

const SELECTORS: [&str; 4] =
    ["round-robin", "queue-length", "service-time", "historical-service-time"];

fn any_path(prng: &mut Prng) -> Path {
    let paths = [
        Path::mq(1),
        Path::mq(2),
        Path::mq(3).by(Order::Deadline),
        Path::mq(2).by(Order::Kyber),
        Path::mq(2).by(Order::Bfq),
        Path::sq(Affinity::Any),
        Path::sq(Affinity::Fixed),
        Path::sq(Affinity::Any).by(Order::Deadline),
        Path::sq(Affinity::Any).by(Order::Cfq),
    ];
    paths[prng.below(paths.len() as u64) as usize]
}

fn any_table(ways: usize, queues: bool, prng: &mut Prng) -> String {
    let features = if queues { "1 queue_if_no_path" } else { "0" };
    let names: Vec<String> = (0..ways).map(|way| way.to_string()).collect();
    let mut selector = || SELECTORS[prng.below(4) as usize];
    if ways < 3 {
        return format!("{features} 0 1 1 {} 0 {ways} 0 {}", selector(), names.join(" "));
    }
    let (first, second) = names.split_at(2);
    format!(
        "{features} 0 2 1 {} 0 2 0 {} {} 0 {} 0 {}",
        selector(),
        first.join(" "),
        selector(),
        second.len(),
        second.join(" ")
    )
}

/// What a run is to be.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// What a path leaves is sent down another at once: the law is then broken.
    pub immediate: bool,
    /// I/O waits while no path is left, and nothing is lost or lent: no bio may fail.
    pub queues: bool,
    /// The transport's bound, seconds: twice as long after it came a write no longer lands. Without
    /// one, what was lost may land until it is found.
    pub bound_s: Option<u64>,
}

/// Paths lose requests, and no bound says until when these may land.
pub const LOSES: Kind = Kind { immediate: false, queues: false, bound_s: None };

/// What the device does wrong.
fn any_plan(kind: Kind, prng: &mut Prng) -> Plan {
    Plan {
        // A path that breaks never sends again what its driver refused, which the bed is strict
        // about where nothing else goes wrong.
        refused: if kind.queues { 0 } else { 3 },
        refusals_max: 40,
        failed: if kind.queues { 0 } else { 1 },
        errors: vec![Status::Medium, Status::NoSpc],
        // Slow enough for a write that was lost to land while others go on.
        slow_ns: 700_000_000,
        lost: if kind.queues { 0 } else { 4 },
        bound_ns: kind.bound_s.map_or(0, |bound_s| 2 * bound_s * SECOND),
        found: 60,
        cancel_done: 30,
        twice: 20,
        lent: if kind.immediate || prng.percent(60) { 0 } else { 50 },
        reordered: true,
        requeued: 3,
        requeues_max: 40,
        ..Plan::default()
    }
}

fn any_limits(prng: &mut Prng) -> Limits {
    Limits {
        capacity: SECTORS,
        max_hw_sectors: 32,
        takes_segments: true,
        volatile_cache: true,
        fua: prng.percent(50),
        max_hw_discard_sectors: 64,
        discard_granularity: 512,
        max_write_zeroes_sectors: 32,
        ..Limits::default()
    }
}

struct Scene {
    kind: Kind,
    fabric: Fabric,
    driver: Arc<Narrow>,
    above: Device,
    house: House<Client>,
    office: Rc<RefCell<Office>>,
    orders: [(Arc<Orders>, std::ops::Range<usize>); 2],
    caller: Arc<Bell>,
    prng: Prng,
    changes: u64,
    mischief: u64,
}

impl Scene {
    fn new(kind: Kind, seed: u64) -> Scene {
        let mut prng = Prng::new(seed);
        let (path, below) = (any_path(&mut prng), any_path(&mut prng));
        let ways = 2 + prng.below(3) as usize;
        let (plan, limits) = (any_plan(kind, &mut prng), any_limits(&mut prng));
        let timeout_ns = if kind.queues { 0 } else { 2 * SECOND };
        // Writes that the throttle holds back do not meet on their ways.
        let config = Config { timeout_ns, wbt_lat_us: Some(0), ..Config::default() };
        let (seed, takes_commands, depth) = (prng.next(), false, 8);
        let fabric = Fabric::new(Build {
            ways,
            path: below,
            limits,
            plan,
            config,
            depth,
            seed,
            takes_commands,
            ports: Vec::new(),
        });
        let table = any_table(ways, kind.queues, &mut prng);
        let options = [
            ("path_checker", "directio"),
            ("polling_interval", "1"),
            ("max_polling_interval", "4"),
            ("checker_timeout", "3"),
            ("replacement_timeout", &kind.bound_s.unwrap_or(600).to_string()),
            ("failback", if prng.percent(50) { "immediate" } else { "manual" }),
            ("retry", if kind.immediate { "immediate" } else { "fenced" }),
            ("slow_path", if prng.percent(30) { "on" } else { "off" }),
        ];
        let driver = fabric.multipath(&table, &options, (16, path.home));
        let late = !kind.queues && prng.percent(30);
        let timeout_ns = if late { 8 * SECOND } else { 0 };
        let config = Config { timeout_ns, wbt_lat_us: Some(0), ..Config::default() };
        let above = path.device(config, Arc::clone(&driver) as Arc<_>);
        let office = Rc::new(RefCell::new(Scene::office(kind, &fabric, &mut prng)));
        let house = Scene::house(&fabric, &office, &mut prng);
        let apart = prng.percent(50);
        let first = if apart { 2 } else { 0 };
        let orders = [(Arc::default(), 0..2), (Arc::default(), first..4)];
        let caller = Bell::new(Box::new(NoWake), 1);
        let (changes, mischief) = (0, 0);
        let mut scene = Scene {
            kind,
            fabric,
            driver,
            above,
            house,
            office,
            orders,
            caller,
            prng,
            changes,
            mischief,
        };
        scene.furnish(path, below);
        scene
    }

    fn house(fabric: &Fabric, office: &Rc<RefCell<Office>>, prng: &mut Prng) -> House<Client> {
        let (sim, office) = (Arc::clone(&fabric.sim), Rc::clone(office));
        let ways = fabric.ways.clone();
        let progress = move || {
            let ways: u64 = ways.iter().map(|way| way.moves()).sum();
            let office = office.borrow();
            sim.progress() + office.last_cookie + office.completions + ways
        };
        House::new(4, prng.next(), |_| None, progress)
    }

    fn office(kind: Kind, fabric: &Fabric, prng: &mut Prng) -> Office {
        Office {
            kind: false,
            errors: match kind.queues {
                true => Vec::new(),
                false => vec![
                    Status::Medium,
                    Status::NoSpc,
                    Status::IoErr,
                    Status::Transport,
                    Status::Offline,
                ],
            },
            // No client is told of a time: a map has none of its own.
            timeout_ns: 1 << 60,
            hands_back: true,
            ..Office::new(fabric.sim.world().limits.clone(), prng.next())
        }
    }

    fn furnish(&mut self, path: Path, below: Path) {
        let levels = std::iter::once((&self.above, path, 0))
            .chain(self.fabric.legs.iter().map(|leg| (leg, below, 1)));
        for (device, path, level) in levels {
            let (orders, homes): &(Arc<Orders>, _) = &self.orders[level];
            for lane in 0..usize::from(path.lanes) {
                self.house.open_lane(device, lane, homes.start + lane % homes.len());
            }
            device.attach_homes(Arc::downgrade(&(Arc::clone(orders) as Arc<dyn LaneHomes>)));
        }
        for home in [0, 1, 1] {
            let (bell, token) = (self.house.homes[home].home.bell(), self.house.next_token(home));
            let submitter = self.above.submitter(bell, token, home).unwrap();
            let client = Client::new(submitter, Rc::clone(&self.office), BIOS, 4 + 8 * home, None);
            self.house.add_app(home, client);
        }
    }

    /// Begins a change of the device or of a leg.
    fn next_change(&mut self) -> Change {
        self.changes += 1;
        let watch = Watch::new(&self.caller, 0);
        let which = self.prng.below(1 + self.fabric.legs.len() as u64) as usize;
        let device = match which {
            0 => &self.above,
            leg => &self.fabric.legs[leg - 1],
        };
        match self.prng.below(3) {
            0 => held(device.begin_freeze(&watch), 3, |_| ()),
            1 if device.queues_max() > 1 => {
                let prepared = device.prepare_lanes(1 + device.queues() % 4).unwrap();
                // Refused while its lane waits for answers to requests that timed out.
                held(device.begin_queues(&watch, prepared), 1, |_| ())
            }
            _ => {
                let names = device.schedulers();
                let name = names[self.prng.below(names.len() as u64) as usize];
                held(device.begin_switch(&watch, name), 1, |out| {
                    assert!(out.is_ok(), "{:?}", out.as_ref().err())
                })
            }
        }
    }

    /// Something goes wrong with a path, or right again.
    fn mischief(&mut self) {
        self.mischief += 1;
        let now = self.house.now;
        let way = self.prng.below(self.fabric.ways.len() as u64) as usize;
        let errors = [Status::Transport, Status::Offline, Status::IoErr];
        let message = match self.prng.below(9) {
            0 | 1 => {
                let error = errors[self.prng.below(3) as usize];
                return self.fabric.ways[way].fail_with(Some(error));
            }
            2 | 3 => return self.fabric.ways[way].fail_with(None),
            // Without a limit below, what is silent holds everything up.
            4 | 5 if !self.kind.queues => {
                let until = now + self.prng.below(6 * SECOND);
                return self.fabric.silence(way, now, until);
            }
            6 => format!("fail_path {way}"),
            7 => format!("switch_group {}", 1 + way / 2 % self.groups()),
            _ => format!("reinstate_path {way}"),
        };
        self.driver.map.message(&message, now).unwrap();
    }

    fn groups(&self) -> usize {
        if self.fabric.ways.len() < 3 { 1 } else { 2 }
    }

    /// From now on nothing goes wrong.
    fn calm(&mut self) {
        self.fabric.sim.world().calm_down();
        self.fabric.ways.iter().for_each(|way| way.fail_with(None));
        self.fabric.sim.find_lost(self.house.now);
        self.house.turn_all();
    }

    fn play(mut self) -> Figures {
        let mut change: Option<Change> = None;
        let mut calm_at = None;
        for step in 0..STEPS_MAX {
            for (orders, homes) in &self.orders {
                orders.obey(&mut self.house, homes.clone());
            }
            let went = self.house.step();
            if let Some(under_way) = &mut change {
                if went == Went::Rest || self.house.prng.percent(20) {
                    let over = under_way(self.house.now);
                    change = change.filter(|_| !over);
                }
            } else if self.prng.below(1_000) < 3 && calm_at.is_none() {
                change = Some(self.next_change());
            }
            let left: u32 = self.house.apps.iter().map(|client| client.left).sum();
            match calm_at {
                None if left < BIOS / 2 || self.house.now.0 > 60 * SECOND => {
                    calm_at = Some(step);
                    self.calm();
                }
                None if self.prng.below(1_000) < 8 => self.mischief(),
                // What was lost after the calm began, and what a silence had.
                Some(at) if (step - at).is_multiple_of(5_000) => self.calm(),
                _ => {}
            }
            let rests = |device: &Device| device.stats().in_flight == 0;
            let is_done = change.is_none() && self.house.apps.iter().all(Client::is_done);
            // A check may be under way still.
            if is_done && self.fabric.legs.iter().all(rests) {
                return self.end();
            }
        }
        panic!("it has no end: {}", self.house.state());
    }

    fn end(self) -> Figures {
        assert_eq!(self.above.stats().in_flight, 0);
        let office = self.office.borrow();
        let well = office.completions - office.failures;
        let House { now, passes, .. } = self.house;
        let lived = Lived { bios: office.completions, until: now, turns: passes };
        Figures { well, changes: self.changes, mischief: self.mischief, lived }
    }
}

/// How much was seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// Bios that ended well.
    pub well: u64,
    /// Changes of the device and its legs.
    pub changes: u64,
    /// Times that something went wrong with a path, or right again.
    pub mischief: u64,
    /// How far it came.
    pub lived: Lived,
}

/// Lives by this seed.
///
/// # Panics
/// When a law is broken.
pub fn live(kind: Kind, seed: u64) -> Figures {
    Scene::new(kind, seed).play()
}
