//! The law of multipath over the SCSI mid-layer and a simulated target: what was acknowledged is
//! read back whichever path answers, nothing lands over newer data, every request ends, and what
//! was flushed survives a power cut, while ports die and come back, port groups change their
//! states, and commands meet the target's faults.
//!
//! All time is virtual. `SCSI_SEED=n` plays one seed, `SCSI_SEEDS=n` so many.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use weir::scsi_sim::{Patience, PortId, Route, SharedTarget, SimTransport, Spec, TargetTime};
use weir_bio::{Nanos, Prng, Status};
use weir_driver_scsi::{Host, HostOptions, Unit, UnitOptions};
use weir_laws::client::{Client, Office};
use weir_laws::path::{Order, Path};
use weir_laws::sleepers::House;
use weir_laws::{Tell, seeds};
use weir_map::multipath::Multipath;
use weir_map::multipath::settings::Settings;
use weir_map::multipath::table::Table;
use weir_proto_scsi::alua::AccessState;
use weir_proto_scsi::{Lun, ScsiStatus};
use weir_queue::driver::Affinity;
use weir_queue::{Config, Device, Driver};
use weir_sim_target::{
    Action, CommandClass, Effect, Fault, GroupSpec, LunSpec, PortHealth, PortSpec, Speed,
};

const SECOND: u64 = 1_000_000_000;

/// Small, so that writes meet.
const SECTORS: u64 = 128;

/// Bios of each client.
const BIOS: u32 = 120;

/// Bios of each client that outlast a late write.
const LATE_BIOS: u32 = 4_000;

/// Steps of a run: well above what any takes.
const STEPS_MAX: u64 = 6_000_000;

/// Every request has ended by then: all that a path may take (its transport's bound, and each level
/// of the error handler with five retries), once for each path.
const TIME_MAX: u64 = 4 * 3600 * SECOND;

/// What a run is to be.
#[derive(Clone, Copy, Debug)]
struct Kind {
    /// The path device's `retry`: `fenced` or `immediate`.
    retry: &'static str,
    link: Link,
}

/// Whether the transport finds that a port gives no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    /// It asks a silent port, and ends all commands when none of them can land any more. So no
    /// write is in doubt when the path device hears of it, and `retry` has nothing to decide.
    Asks,
    /// It asks no port and waits as long as by default: the error handler climbs its whole ladder
    /// at a dead port, and gives the unit up while the target may still carry out what it has.
    Deaf,
}

/// The laws are held in these, with so many seeds.
const HELD: [(Kind, u64); 3] = [
    (Kind { retry: "fenced", link: Link::Asks }, 300),
    (Kind { retry: "immediate", link: Link::Asks }, 60),
    (Kind { retry: "fenced", link: Link::Deaf }, 20),
];

impl Kind {
    fn patience(self, prng: &mut Prng) -> Patience {
        let patience = Patience::new((1 + prng.below(20)) * SECOND);
        match self.link {
            Link::Asks => patience,
            Link::Deaf => Patience { keep_alive_ns: None, ..Patience::new(120 * SECOND) },
        }
    }

    /// How long after a port has died a command that reached it may be carried out.
    fn late_ns(self) -> u64 {
        if self.link == Link::Deaf { 300 * SECOND } else { 60 * SECOND }
    }

    /// When nothing goes wrong any more, whatever was done by then.
    fn calm_at(self) -> Nanos {
        Nanos(if self.link == Link::Deaf { 2_000 * SECOND } else { 400 * SECOND })
    }
}

fn fault(class: Option<CommandClass>, chance: u32, effect: Effect) -> Fault {
    Fault { class, chance, effect, ..Fault::default() }
}

/// A block that is bad now and then.
fn flaw(class: CommandClass, chance: u32, block: u64) -> Fault {
    Fault { first_block: Some(block), ..fault(Some(class), chance, Effect::Medium) }
}

/// Faults of every kind, each now and then.
fn any_faults(prng: &mut Prng) -> Vec<Fault> {
    let write = Some(CommandClass::Write);
    let sense = |key, code, done| Effect::Sense { key, code, done };
    let all = [
        fault(None, 1, Effect::Stuck),
        fault(None, 1, Effect::Dropped),
        fault(write, 2, Effect::Unanswered { after_ns: prng.below(4 * SECOND) }),
        fault(None, 2, Effect::Unanswered { after_ns: 0 }),
        fault(None, 4, Effect::Delayed { by_ns: prng.below(3 * SECOND) }),
        fault(None, 4, Effect::status(ScsiStatus::BUSY)),
        fault(None, 3, Effect::status(ScsiStatus::TASK_SET_FULL)),
        fault(None, 1, Effect::status(ScsiStatus::TASK_ABORTED)),
        flaw(CommandClass::Read, 3, prng.below(SECTORS)),
        flaw(CommandClass::Write, 3, prng.below(SECTORS)),
        // ABORTED COMMAND, UNIT ATTENTION, RECOVERED ERROR, HARDWARE ERROR, becoming ready.
        fault(None, 2, sense(0xb, 0, false)),
        fault(None, 3, sense(6, 0x2900, false)),
        fault(None, 1, sense(6, 0x2a06, false)),
        fault(None, 2, sense(1, 0x1700, true)),
        fault(None, 1, sense(4, 0x4400, false)),
        fault(None, 1, sense(2, 0x0401, false)),
        fault(None, 1, sense(2, 0x040a, false)),
        // DATA PROTECT, space allocation failed.
        fault(write, 1, sense(7, 0x2707, false)),
        // No garbled sense: at random it may say that a command was carried out.
        fault(None, 1, Effect::Senseless),
        fault(write, 1, Effect::Deferred { key: 3, code: 0x0c00 }),
    ];
    // Half of them, so that each run is another place.
    all.into_iter().filter(|_| prng.percent(50)).collect()
}

fn any_spec(ways: u16, prng: &mut Prng) -> Spec {
    let group =
        |id, prng: &mut Prng| GroupSpec { id, preferred: prng.percent(30), ..GroupSpec::default() };
    let speed = Speed { latency_ns: 100_000, spread_ns: 400_000, bandwidth: 0 };
    Spec {
        seed: prng.next(),
        queue_depth: 12,
        transition_ns: prng.below(2 * SECOND),
        journal: 64,
        explicit_alua: prng.percent(70),
        groups: vec![group(1, prng), group(2, prng)],
        ports: (1..=ways)
            .map(|id| PortSpec { id, group: 1 + id % 2, speed: Speed::default() })
            .collect(),
        luns: vec![LunSpec {
            size: SECTORS * 512,
            block: 512,
            queue_depth: 3 + prng.below(8) as u32,
            write_cache: prng.percent(75),
            // Room for half of its blocks now and then, so that it runs full.
            thin: [0, SECTORS * 512, SECTORS * 256][prng.below(3) as usize],
            speed,
            ..LunSpec::default()
        }],
        ..Spec::default()
    }
}

fn any_path(prng: &mut Prng) -> Path {
    let paths = [
        Path::mq(1),
        Path::mq(2),
        Path::mq(2).by(Order::Deadline),
        Path::mq(2).by(Order::Kyber),
        Path::mq(1).by(Order::Bfq),
        Path::sq(Affinity::Any),
        Path::sq(Affinity::Any).by(Order::Cfq),
    ];
    paths[prng.below(paths.len() as u64) as usize]
}

struct Scene {
    kind: Kind,
    target: Arc<SharedTarget>,
    hosts: Vec<Arc<Host>>,
    units: Vec<Arc<Unit>>,
    legs: Vec<Device>,
    above: Device,
    driver: Arc<Multipath>,
    house: House<Client>,
    office: Rc<RefCell<Office>>,
    prng: Prng,
    faults: Vec<Fault>,
    mischief: u64,
}

impl Scene {
    fn new(kind: Kind, seed: u64) -> Scene {
        Scene::with(kind, seed, BIOS, any_faults)
    }

    fn with(kind: Kind, seed: u64, bios: u32, faults: fn(&mut Prng) -> Vec<Fault>) -> Scene {
        let mut prng = Prng::new(seed);
        let ways = 2 + prng.below(3) as u16;
        let spec = any_spec(ways, &mut prng);
        let target = Arc::new(SharedTarget::new(spec, TargetTime::Calls).expect("a spec"));
        let (path, below) = (any_path(&mut prng), any_path(&mut prng));
        let patience = kind.patience(&mut prng);
        let (mut hosts, mut units, mut legs) = (Vec::new(), Vec::new(), Vec::new());
        for port in 1..=ways {
            let (name, port) = (format!("port {port}"), PortId(port));
            let route = Route { name, port, sessions: 2, depth: 8, patience };
            let host =
                Host::new(Arc::new(SimTransport::new(&target, route)), HostOptions::default());
            let unit = Unit::open(&host, Lun::ZERO, UnitOptions::default()).expect("a disk");
            let unit = Arc::new(unit);
            let config = Config { timeout_ns: 2 * SECOND, ..Config::default() };
            legs.push(below.device(config, Arc::clone(&unit) as Arc<dyn Driver>));
            hosts.push(host);
            units.push(unit);
        }
        let driver = Arc::new(multipath(ways, &legs, kind.retry, &mut prng));
        let config = Config { timeout_ns: 0, ..Config::default() };
        let above = path.device(config, Arc::clone(&driver) as Arc<dyn Driver>);
        let office = Rc::new(RefCell::new(office(&above, &mut prng)));
        let (moves, counts) = (Arc::clone(&target), Rc::clone(&office));
        let progress = move || {
            let office = counts.borrow();
            moves.moves() + office.last_cookie + office.completions
        };
        let house = House::new(4, prng.next(), |_| None, progress);
        let faults = faults(&mut prng);
        let mischief = 0;
        let mut scene = Scene {
            kind,
            target,
            hosts,
            units,
            legs,
            above,
            driver,
            house,
            office,
            prng,
            faults,
            mischief,
        };
        scene.furnish(path, below, bios);
        scene
    }

    fn furnish(&mut self, path: Path, below: Path, bios: u32) {
        for lane in 0..usize::from(path.lanes) {
            self.house.open_lane(&self.above, lane, lane % 2);
        }
        for leg in &self.legs {
            for lane in 0..usize::from(below.lanes) {
                self.house.open_lane(leg, lane, 2 + lane % 2);
            }
        }
        for home in [0, 1] {
            let (bell, token) = (self.house.homes[home].home.bell(), self.house.next_token(home));
            let submitter = self.above.submitter(bell, token, home).expect("a submitter");
            let client = Client::new(submitter, Rc::clone(&self.office), bios, 4 + 6 * home, None);
            self.house.add_app(home, client);
        }
        let faults = self.faults.clone();
        self.target.with(self.house.now, |target, _| {
            faults.into_iter().for_each(|fault| target.add_fault(fault).expect("a fault"));
        });
    }

    fn act(&self, action: Action) {
        self.target.with(self.house.now, |target, now| target.apply(action, now)).expect("an act");
    }

    /// Something goes wrong with the target, or right again.
    fn mischief(&mut self) {
        self.mischief += 1;
        let id = 1 + self.prng.below(self.legs.len() as u64) as u16;
        let health = match self.prng.below(9) {
            0 | 1 => PortHealth::Dead {
                arrive: 50 + 50 * (id as u32 % 2),
                after_ns: self.prng.below(self.kind.late_ns()),
            },
            2..5 => PortHealth::Up,
            5 => PortHealth::Slow { by_ns: self.prng.below(3 * SECOND) },
            6 | 7 => {
                let state = AccessState::from_bits([0, 0, 1, 2, 3][self.prng.below(5) as usize]);
                return self.act(Action::Group { id: 1 + id % 2, state });
            }
            _ => {
                let message = format!("reinstate_path {}", id - 1);
                self.driver.control().message(&message, self.house.now).expect("a message");
                return;
            }
        };
        self.act(Action::Port { id, health });
    }

    /// From now on nothing goes wrong.
    fn calm(&mut self) {
        self.target.with(self.house.now, |target, _| target.clear_faults());
        (1..=self.legs.len() as u16)
            .for_each(|id| self.act(Action::Port { id, health: PortHealth::Up }));
        for id in [1, 2] {
            self.act(Action::Group { id, state: AccessState::ActiveOptimized });
        }
        for unit in &self.units {
            unit.set_state(weir_driver_scsi::UnitState::Running);
        }
        self.house.turn_all();
    }

    fn play(mut self, cut: bool) -> Figures {
        let mut calm_at = None;
        for _ in 0..STEPS_MAX {
            self.house.step();
            assert!(self.house.now.0 < TIME_MAX, "a request has no end: {}", self.state());
            let left: u32 = self.house.apps.iter().map(|client| client.left).sum();
            match calm_at {
                None if left < BIOS / 2 || self.house.now > self.kind.calm_at() => {
                    if cut {
                        return self.end_in_the_dark();
                    }
                    calm_at = Some(self.house.now);
                    self.calm();
                }
                None if self.prng.below(1_000) < 6 => self.mischief(),
                // Units that were given up meanwhile, and paths that wait to be looked at.
                Some(at) if self.house.now >= at + 60 * SECOND => {
                    calm_at = Some(self.house.now);
                    self.calm();
                }
                _ => {}
            }
            if self.house.apps.iter().all(Client::is_done) && self.rests() {
                return self.end();
            }
        }
        panic!("it has no end: {}", self.state());
    }

    /// The power fails in the middle of it: what was promised is there.
    fn end_in_the_dark(self) -> Figures {
        self.act(Action::PowerCut);
        let office = self.office.borrow();
        let mut bytes = vec![0; SECTORS as usize * 512];
        self.target.with(self.house.now, |target, _| target.peek(0, 0, &mut bytes));
        for (sector, bytes) in (0..).zip(bytes.chunks(512)) {
            let value = weir_laws::get(bytes);
            assert!(
                office.model.may_survive(sector, value),
                "sector {sector} lost what was flushed, and holds what bio {} wrote",
                value >> 24
            );
        }
        drop(office);
        let figures = self.figures();
        // Requests are under way, and this is the end of the run.
        std::mem::forget(self);
        figures
    }

    fn state(&self) -> String {
        let legs: Vec<_> = self
            .legs
            .iter()
            .map(|leg| (leg.stats().in_flight, leg.may_change_late(0..SECTORS)))
            .collect();
        let tags: Vec<_> = self.hosts.iter().map(|host| host.tags().out()).collect();
        let clients: Vec<_> = self.house.apps.iter().map(Client::describe).collect();
        let units: Vec<_> = self.units.iter().map(|unit| unit.state()).collect();
        format!(
            "{}\nabove {}, legs {legs:?}, tags {tags:?}, target {}, units {units:?}\n{clients:?}\n\
             {:#?}",
            self.house.state(),
            self.above.stats().in_flight,
            self.target.outstanding(),
            self.driver.control().listing(),
        )
    }

    /// A port dies with writes that the target has and carries out much later. Clients go on over
    /// the other ports until then.
    fn play_late(mut self) -> Figures {
        let slow = PortHealth::Slow { by_ns: 300_000_000 };
        (1..=self.legs.len() as u16).for_each(|id| self.act(Action::Port { id, health: slow }));
        let after_ns = (20 + self.prng.below(280)) * SECOND;
        let begins = LATE_BIOS * 2 - self.prng.below(100) as u32;
        let mut calm_at = None;
        for _ in 0..STEPS_MAX {
            self.house.step();
            assert!(self.house.now.0 < TIME_MAX, "a request has no end: {}", self.state());
            let left: u32 = self.house.apps.iter().map(|client| client.left).sum();
            match calm_at {
                None if left <= begins => {
                    let health = PortHealth::Dead { arrive: 100, after_ns };
                    self.act(Action::Port { id: 1, health });
                    calm_at = Some(self.house.now + after_ns + 60 * SECOND);
                }
                Some(at) if self.house.now >= at => {
                    calm_at = Some(self.house.now + 60 * SECOND);
                    self.calm();
                }
                _ => {}
            }
            if self.house.apps.iter().all(Client::is_done) && self.rests() {
                self.check_image();
                return self.end();
            }
        }
        panic!("it has no end: {}", self.state());
    }

    /// Everything has ended: the target holds what a read would be right to find.
    fn check_image(&self) {
        let mut bytes = vec![0; SECTORS as usize * 512];
        self.target.with(self.house.now, |target, _| target.peek(0, 0, &mut bytes));
        let model = &mut self.office.borrow_mut().model;
        let now = model.tick();
        for (sector, bytes) in (0..).zip(bytes.chunks(512)) {
            let value = weir_laws::get(bytes);
            let is_right = model.may_read(sector, value, now);
            assert!(is_right, "sector {sector} held what bio {} wrote at the end", value >> 24);
        }
    }

    /// Whether nothing is under way below. The path device's own commands, of which checks are,
    /// hold tags and are no I/O of a leg. The port may still have commands of the mid-layer, which
    /// no tag waits for.
    fn rests(&self) -> bool {
        let is_idle = |host: &Arc<Host>| host.tags().out() == 0;
        let rests = |device: &Device| device.stats().in_flight == 0;
        self.legs.iter().all(rests) && self.hosts.iter().all(is_idle)
    }

    fn end(self) -> Figures {
        assert_eq!(self.above.stats().in_flight, 0);
        self.figures()
    }

    fn figures(&self) -> Figures {
        let office = self.office.borrow();
        let failed = office.failures;
        Figures { well: office.completions - failed, failed, mischief: self.mischief }
    }
}

fn multipath(ways: u16, legs: &[Device], retry: &str, prng: &mut Prng) -> Multipath {
    let names: Vec<String> = (0..ways).map(|way| way.to_string()).collect();
    let selectors = ["round-robin", "queue-length", "service-time", "historical-service-time"];
    let selector = selectors[prng.below(4) as usize];
    let features = if prng.percent(80) { "1 queue_if_no_path" } else { "0" };
    // A group is activated before it is used, or not.
    let handler = if prng.percent(50) { "1 alua" } else { "0" };
    let (first, second) = names.split_at(usize::from(ways) / 2);
    let table = match prng.percent(50) {
        true => format!("{features} {handler} 1 1 {selector} 0 {ways} 0 {}", names.join(" ")),
        false => format!(
            "{features} {handler} 2 1 {selector} 0 {} 0 {} {selector} 0 {} 0 {}",
            first.len(),
            first.join(" "),
            second.len(),
            second.join(" ")
        ),
    };
    let mut settings = Settings::default();
    for (name, value) in [
        ("path_checker", if prng.percent(50) { "tur" } else { "directio" }),
        ("polling_interval", "1"),
        ("max_polling_interval", "4"),
        ("checker_timeout", "3"),
        ("replacement_timeout", "3600"),
        ("retry", retry),
        ("failback", ["immediate", "manual", "followover", "3"][prng.below(4) as usize]),
        ("path_grouping_policy", if prng.percent(30) { "group_by_prio" } else { "multibus" }),
    ] {
        assert!(settings.set(name, value).expect("a setting"), "{name} is an option");
    }
    let table = Table::parse(&table).expect("a table");
    Multipath::new(table, legs.to_vec(), settings).expect("a multipath device")
}

fn office(above: &Device, prng: &mut Prng) -> Office {
    Office {
        kind: false,
        errors: vec![
            Status::Medium,
            Status::NoSpc,
            Status::IoErr,
            Status::Transport,
            Status::Offline,
            Status::Target,
            Status::NotSupp,
        ],
        timeout_ns: 1 << 60,
        hands_back: true,
        ..Office::new(above.limits(), prng.next())
    }
}

/// How much was seen.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    well: u64,
    failed: u64,
    mischief: u64,
}

impl Figures {
    fn add(&mut self, other: Figures) {
        self.well += other.well;
        self.failed += other.failed;
        self.mischief += other.mischief;
    }
}

/// With a power `cut` in the middle, which ends it, or to its end.
fn play(kind: Kind, seed: u64, cut: bool) -> Figures {
    let _tell = Tell(format!("{kind:?}, SCSI_SEED={seed}, power cut: {cut}"));
    Scene::new(kind, seed).play(cut)
}

/// Plays the seeds of each kind in which the laws are held.
fn play_held(cut: bool) {
    for (kind, count) in HELD {
        let mut all = Figures::default();
        for seed in seeds("SCSI", count) {
            all.add(play(kind, seed, cut));
        }
        println!("{kind:?}: {all:?}");
        assert!(cut || all.well > all.failed, "most of it ends well: {all:?}");
    }
}

#[test]
fn what_was_acknowledged_is_read_back_and_nothing_lands_over_newer_data() {
    play_held(false);
}

#[test]
fn what_was_flushed_survives_a_power_cut_of_the_target() {
    play_held(true);
}

fn play_late(retry: &'static str, seed: u64) -> Figures {
    let kind = Kind { retry, link: Link::Deaf };
    let _tell = Tell(format!("{kind:?}, SCSI_SEED={seed}, a late write"));
    Scene::with(kind, seed, LATE_BIOS, |_| Vec::new()).play_late()
}

#[test]
fn a_write_that_lands_late_lands_over_nothing_newer() {
    for seed in seeds("SCSI", 6) {
        println!("{seed}: {:?}", play_late("fenced", seed));
    }
}

#[test]
fn without_the_fence_a_late_write_lands_over_newer_data_and_is_found() {
    let found = (0..30).find(|seed| {
        let run = std::panic::catch_unwind(|| play_late("immediate", *seed));
        run.is_err_and(|panic| {
            let text = panic.downcast_ref::<String>().cloned().unwrap_or_default();
            assert!(text.contains("held what bio"), "another reason: {text}");
            true
        })
    });
    println!("found with seed {found:?}");
    assert!(found.is_some(), "retry=immediate never left older data over newer");
}
