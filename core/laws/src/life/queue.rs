//! A life of one device: a path, a depth, a device with its faults, clients, and what is done to
//! the device while it works, in every second of them.
//!
//! The laws: every bio ends once and with the right data, no request breaks a limit, no submitter
//! waits for ever, no lane spins, and nothing is left when all is done.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use weir_bio::{Nanos, Prng, Status};
use weir_queue::driver::Affinity;
use weir_queue::{Config, Device, QueueMode};

use super::Lived;
use crate::client::{Client, Office};
use crate::controller::{Controller, Fixed};
use crate::device::{Plan, Shape, Sim, any_limits};
use crate::log::{self, Log};
use crate::path::Path;
use crate::rest::check_tags;
use crate::sleepers::{House, Step};

const DEPTHS: [u16; 6] = [1, 2, 3, 4, 17, 64];

/// Steps of a scene: well above what any takes, which is some hundred thousand.
const STEPS_MAX: u64 = 5_000_000;

const TIMEOUT_NS: u64 = 2_000_000_000;

/// How long a bio may wait in front of a driver that falls silent: its own time, a scan that finds
/// its lane in need, and one that finds the lanes that take over from that in need as well.
const WAIT_MAX_NS: u64 = TIMEOUT_NS + 2_000_000_000;

/// A scene: path, seed and settings of one run.
struct Scene {
    path: Path,
    seed: u64,
    sim: Arc<Sim>,
    device: Device,
    house: House<Client>,
    office: Rc<RefCell<Office>>,
    /// Control calls left to make.
    calls: u64,
    barriers_change: bool,
    throttles: bool,
}

fn any_plan(prng: &mut Prng) -> Plan {
    let mut pick = |of: &[u64]| of[prng.below(of.len() as u64) as usize];
    let mut plan = Plan {
        refused: pick(&[0, 0, 10, 50]) as u32,
        refusals_max: 300,
        slow_ns: pick(&[0, 1_000, 1_000_000]),
        lent: pick(&[0, 50, 100]) as u32,
        reordered: pick(&[0, 1]) == 1,
        requeued: pick(&[0, 0, 20]) as u32,
        requeues_max: 100,
        errors: Status::ALL.into_iter().filter(|s| !s.is_ok()).collect(),
        ..Plan::default()
    };
    // Admission refuses writes to a disk that may only be read; a named seed is the life it was.
    plan.errors.retain(|status| !matches!(status, Status::Timeout | Status::ReadOnly));
    match pick(&[0, 1, 2]) {
        0 => {}
        1 => plan.failed = 8,
        _ => {
            plan.failed = pick(&[0, 3]) as u32;
            plan.lost = pick(&[0, 3]) as u32;
            (plan.late, plan.late_ns) = (pick(&[0, 5]) as u32, 2 * TIMEOUT_NS);
            (plan.cancel_done, plan.found) = (pick(&[0, 50]) as u32, pick(&[0, 50]) as u32);
        }
    }
    plan
}

/// A driver that answers late, never, twice after a cancel, or comes back from the dead.
fn fall_silent(plan: &mut Plan, prng: &mut Prng, lanes: u16) {
    let mut pick = |of: &[u64]| of[prng.below(of.len() as u64) as usize];
    plan.lost = pick(&[0, 0, 5, 30, 100]) as u32;
    (plan.late, plan.late_ns) = (pick(&[0, 5, 50]) as u32, pick(&[1, 2, 5]) * TIMEOUT_NS);
    plan.cancel_done = pick(&[0, 0, 50, 100]) as u32;
    (plan.found, plan.twice) = (pick(&[0, 50, 100]) as u32, pick(&[0, 50]) as u32);
    plan.failed = pick(&[0, 0, 3]) as u32;
    for lane in 0..usize::from(lanes) {
        if pick(&[0, 1]) == 1 {
            let from = pick(&[0, 1_000, 1_000_000, 3_000_000_000]);
            let to = from + pick(&[TIMEOUT_NS / 2, 2 * TIMEOUT_NS, 6 * TIMEOUT_NS]);
            let to = if pick(&[0, 1, 2]) == 0 { u64::MAX } else { to };
            plan.silences.push((lane, Nanos(from), Nanos(to)));
        }
    }
}

impl Scene {
    fn new(path: Path, seed: u64, silent: bool) -> Scene {
        let mut prng = Prng::new(seed ^ 0x5eed);
        let (limits, mut plan) = (any_limits(&mut prng, 512), any_plan(&mut prng));
        let depth = DEPTHS[prng.below(DEPTHS.len() as u64) as usize];
        if silent {
            fall_silent(&mut plan, &mut prng, path.lanes);
        }
        let timeout_ns = if !plan.is_kind() || prng.percent(70) { TIMEOUT_NS } else { 0 };
        let (kind, errors) = (plan.is_kind(), plan.errors.clone());
        let hands_back = plan.requeued > 0;
        let shape = Shape {
            limits: limits.clone(),
            depth,
            shared_tags: path.shared_tags,
            home: path.home,
            announced: prng.percent(50),
            plan,
            seed: prng.next(),
        };
        let sim = Sim::new(shape);
        let most = if path.scheduled { 2 * u64::from(depth) + 11 } else { u64::from(depth) };
        let nr_requests =
            (most >= 4).then(|| 4 + prng.below(most - 3) as u16).filter(|_| prng.percent(70));
        let nomerges = [0, 0, 1, 2][prng.below(4) as usize];
        sim.world().nomerges = nomerges;
        // The seeds of old that are named below are among the others.
        let throttles = seed % 5 < 2;
        let wbt_lat_us = (!throttles).then_some(0);
        let config = Config { nr_requests, nomerges, timeout_ns, wbt_lat_us, ..Config::default() };
        let device = path.device(config, Arc::clone(&sim) as Arc<_>);
        let office = Office {
            kind,
            errors,
            timeout_ns,
            slack_ns: 1_000_000,
            // Time in front of the driver stands still while a control call pauses dispatch.
            wait_max_ns: if silent && seed.is_multiple_of(2) { WAIT_MAX_NS } else { 0 },
            merges: nomerges < 2 || !seed.is_multiple_of(2),
            hands_back,
            ..Office::new(sim.world().limits.clone(), prng.next())
        };
        let office = Rc::new(RefCell::new(office));
        let world = Arc::downgrade(&sim);
        let answered_at = move || world.upgrade().map_or(Nanos(0), |sim| sim.world().answered_at);
        office.borrow_mut().answered_at = Some(Box::new(answered_at));
        let mut house = Scene::furnish(path, &mut prng, &device, &sim, &office);
        house.rounds = seed % 4 == 3 && !house.log.is_kept();
        let calls = if seed.is_multiple_of(2) { 0 } else { 1 + prng.below(4) };
        let barriers_change = prng.percent(50);
        Scene { path, seed, sim, device, house, office, calls, barriers_change, throttles }
    }

    /// Homes with lanes, homes of users alone, and 1 to 4 clients anywhere.
    fn furnish(
        path: Path,
        prng: &mut Prng,
        device: &Device,
        sim: &Arc<Sim>,
        office: &Rc<RefCell<Office>>,
    ) -> House<Client> {
        let lane_homes = 1 + prng.below(3) as usize;
        let homes = lane_homes + prng.below(3) as usize;
        let (events, steps) = (Arc::clone(sim), Arc::clone(sim));
        let ended = Rc::clone(office);
        let mut house = House::new(
            homes,
            prng.next(),
            move |lane| events.event_at(lane),
            move || steps.progress() + ended.borrow().completions + ended.borrow().last_cookie,
        );
        if prng.percent(50) {
            house.log = Log::kept();
        }
        for lane in 0..usize::from(path.lanes) {
            house.open_lane(device, lane, lane % lane_homes);
        }
        if path.mode == QueueMode::Sq && path.home == Affinity::Any {
            (1..lane_homes).for_each(|home| house.open_lane(device, 0, home));
        }
        for _ in 0..1 + prng.below(4) {
            let home = prng.below(homes as u64) as usize;
            let token = house.next_token(home);
            let lane = prng.below(8) as usize;
            let submitter = device.submitter(house.homes[home].home.bell(), token, lane).unwrap();
            let left = 10 + prng.below(60) as u32;
            let window = 1 + prng.below(96) as usize;
            let quits_at = prng.percent(15).then(|| prng.below(u64::from(left)) as u32);
            let mut client = Client::new(submitter, Rc::clone(office), left, window, quits_at);
            client.log = house.log.clone();
            house.add_app(home, client);
        }
        house
    }

    fn run(&mut self) {
        let mut controller: Option<Controller> = None;
        let mut steps = 0_u64;
        loop {
            steps += 1;
            assert!(steps < STEPS_MAX, "time goes on, and nothing ends\n{}", self.state());
            let busy = self.house.step() == Step::Went;
            if let Some(call) = &mut controller {
                let over = call.poll(self.house.now);
                if call.is_held() {
                    if busy && !self.house.prng.percent(2) {
                        continue;
                    }
                    if !busy && call.what == "quiesce" {
                        let coming = self.sim.coming();
                        assert_eq!(coming, 0, "completions go on while a device is quiesced");
                    }
                    call.release();
                } else if !over {
                    assert!(busy, "{} never ends\n{}", call.what, self.state());
                    continue;
                }
                controller = None;
                continue;
            }
            let done = self.house.apps.iter().all(Client::is_done);
            if busy && !done && self.calls > 0 && self.house.prng.percent(2) {
                self.calls -= 1;
                let prng = &mut self.house.prng;
                let fixed = Fixed {
                    barriers: !self.barriers_change,
                    nomerges: false,
                    wbt: !self.throttles,
                };
                let call = Controller::start(&self.device, &self.sim, prng, fixed);
                controller = Some(call);
            } else if !busy {
                assert!(done, "everybody sleeps: a wake-up was lost\n{}", self.state());
                return;
            }
        }
    }

    fn state(&self) -> String {
        let clients: Vec<String> = self.house.apps.iter().map(Client::describe).collect();
        let coming = self.sim.coming();
        format!("clients: {clients:?}; the device will answer {coming}\n{}", self.house.state())
    }

    /// Everything has ended: nothing may be left anywhere.
    fn check_rest(&mut self) {
        self.sim.find_lost(self.house.now);
        self.house.turn_all();
        while self.house.step() == Step::Went {}
        let stats = self.device.stats();
        assert_eq!((stats.in_flight, stats.in_driver), (0, [0, 0]), "at rest");
        assert_eq!((stats.fields()[8], stats.quarantined), (0, 0), "at rest");
        let office = self.office.borrow();
        let events = std::mem::take(&mut self.house.log).take();
        if office.orphans == 0 {
            // The events of a submitter that was dropped are told to no sink.
            log::check(&events, 0);
        }
        let tally = self.sim.world().tally.clone();
        for (value, must) in &office.written {
            let times = tally.delivered.get(value).copied().unwrap_or(0);
            assert!(times <= 1, "sector {} arrived {times} times", (value & 0xff_ffff) - 1);
            assert!(!must || times == 1, "sector {} never arrived", (value & 0xff_ffff) - 1);
        }
        if office.orphans > 0 {
            return;
        }
        assert_eq!(stats.errors, office.failures, "bios that ended with an error");
        let (mut ios, mut merges) = (0, 0);
        stats.directions.iter().for_each(|d| (ios, merges) = (ios + d.ios, merges + d.merges));
        if !office.kind {
            return;
        }
        for (op, sectors) in &office.moved {
            let arrived = tally.sectors.get(op).copied().unwrap_or(0);
            assert_eq!(arrived, *sectors, "sectors of {op:?}");
        }
        let moved: u64 = stats.directions.iter().map(|d| d.sectors).sum();
        assert_eq!(moved, office.moved.values().sum::<u64>(), "sectors in the statistics");
        if self.calls == 0 && !self.barriers_change || self.seed.is_multiple_of(2) {
            let flushes =
                if self.sim.world().limits.volatile_cache { office.pure_flushes } else { 0 };
            assert_eq!(ios, tally.requests + flushes, "ios");
            assert_eq!(ios + merges, tally.bios + flushes, "ios and merges");
        }
    }

    /// A submitter that has left leaves nothing behind.
    fn check_departure(mut self) {
        self.house.apps.iter_mut().for_each(|client| client.submitter = None);
        for _ in 0..3 {
            self.house.turn_all();
        }
        assert_eq!(self.device.stats().in_flight, 0, "after the last submitter");
        for home in &mut self.house.homes {
            assert!(home.home.is_idle(), "an idle lane");
        }
        let Scene { sim, device, house, .. } = self;
        drop(house);
        drop(device);
        assert_eq!(Arc::strong_count(&sim), 1, "something holds on to the driver");
    }
}

/// Lives by this seed; `silent`: with a driver that falls silent.
///
/// # Panics
/// When a law is broken.
pub fn live(path: Path, seed: u64, silent: bool) -> Lived {
    let mut scene = Scene::new(path, seed, silent);
    scene.run();
    scene.check_rest();
    let Scene { path, sim, device, house, office, .. } = &mut scene;
    let (now, bios) = (house.now, office.borrow().completions);
    check_tags(*path, sim, device, now, || {
        house.now = house.now + 1_000_000;
        house.turn_all();
    });
    let lived = Lived { bios, until: house.now, turns: house.passes };
    scene.check_departure();
    lived
}
