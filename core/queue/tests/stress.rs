//! The laws of the queue core on real threads, which interleave inside a turn and reorder what a
//! single thread cannot: 8 submitters on threads of their own, lanes on 2 or 3 more, and two that
//! freeze, quiesce and change the device meanwhile. There are more threads than processors.
//!
//! The device, its faults and the clients are those of `laws.rs`; each client has sectors of its
//! own, between those of others, and knows what they hold. A home is a plain loop that sleeps and
//! wakes by the doorbell's rule, as a reactor does. Everything is bounded by counts. A run is over
//! when everything has ended; when nothing has moved for a minute a wake-up was lost, and the test
//! fails with a description of who waits for what.
//!
//! Where requests get lost, time runs 1,000 times as fast, so that timeouts take milliseconds.
//!
//! The scheduler's choices are the system's, so a seed does not repeat a run: `STRESS_SEED=n` only
//! makes the same scene, `STRESS_SEEDS=n` so many.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Barrier, Mutex, OnceLock};
use std::thread::Thread;
use std::time::{Duration, Instant};

use weir_bio::{Limits, Nanos, Prng, Status};
use weir_laws::client::{Client, Office, Plot};
use weir_laws::controller::{Fixed, reconfigure};
use weir_laws::device::{Plan, Shape, Sim, any_limits};
use weir_laws::path::{Order, Path};
use weir_laws::rest::check_tags;
use weir_laws::sleepers::App;
use weir_laws::watched::on_asked;
use weir_laws::{Tell, seeds};
use weir_queue::driver::Affinity;
use weir_queue::{Bell, Config, Device, Home, Lane, LaneAnswer, LaneHomes, QueueMode, Submitter};
use weir_ring::Wake;

/// Seeds of each path.
const SEEDS: u64 = 12;

const SUBMITTERS: u64 = 8;

/// Bios of each.
const BIOS: u32 = 300;

/// Control calls of each controller, unless all clients are done before.
const CALLS: u32 = 40;

/// Sectors of a client's stripes.
const STRIPE: u64 = 32;

/// Stripes of each client.
const STRIPES: u64 = 4;

/// Most lanes of a device, when their number changes.
const LANES_MAX: u64 = 5;

const DEPTHS: [u16; 5] = [1, 2, 4, 17, 64];

/// Of the device's time.
const TIMEOUT_NS: u64 = 2_000_000_000;

/// Turns in which the rest of a scene has to end: more than it has requests.
const TURNS_MAX: u32 = 20_000;

/// From one turn to the next at the end, when no clock is read: schedulers that let time pass
/// between two submitters go on.
const TURN_NS: u64 = 1_000_000;

/// The real time: what runs here runs on real threads.
#[expect(clippy::disallowed_methods, reason = "a test may watch itself; core takes `now`")]
fn real_now() -> Instant {
    Instant::now()
}

/// How long nothing may move, in real time.
const STILL_MAX: Duration = Duration::from_secs(60);

/// Time for all threads of a scene.
struct Clock {
    start: Instant,
    /// How many times as fast as real time.
    speed: u64,
}

impl Clock {
    fn now(&self) -> Nanos {
        Nanos(self.start.elapsed().as_nanos() as u64 * self.speed)
    }

    fn real(&self, ns: u64) -> Duration {
        Duration::from_nanos(ns / self.speed + 1)
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(&self) {
        self.0.unpark();
    }
}

/// The part of a sleeping thread that other threads reach.
#[derive(Default)]
struct Desk {
    bed: OnceLock<(Thread, Arc<Bell>)>,
    /// Bios sent and ended here.
    moves: AtomicU64,
    /// How often it slept.
    sleeps: AtomicU64,
    /// The event the thread waited for when it was asked.
    state: Mutex<String>,
    /// Orders to open or close its lanes.
    orders: Mutex<Vec<LaneOrder>>,
}

/// A lane is to be opened or closed by its home, which says when it is.
enum LaneOrder {
    Open(usize, LaneAnswer),
    Close(usize, LaneAnswer),
}

/// Counts of the changes to a device.
#[derive(Default)]
struct Counts {
    /// Control calls.
    calls: AtomicU64,
    /// Schedulers put in force.
    switches: AtomicU64,
    /// Hard queues picked for on a thread that is not their home, while a scheduler that tells is
    /// there.
    handed_over: AtomicU64,
}

/// The state that all threads of a scene share.
struct Stage {
    sim: Arc<Sim>,
    device: Device,
    clock: Clock,
    desks: Vec<Desk>,
    /// How many of them, from the first on, turn lanes.
    homes: usize,
    ready: Barrier,
    /// Threads with clients that are not done yet.
    at_work: AtomicU64,
    counts: Counts,
    /// Other schedulers come; else the path's own, which tells who is picked for, stays.
    may_switch: bool,
    /// The call that each controller makes.
    doing: [Mutex<&'static str>; 2],
    /// Homes are to end.
    stop: AtomicBool,
    /// Each thread is to say what it waits for.
    report: AtomicBool,
    /// The test has failed: threads end as they are.
    abandon: AtomicBool,
}

impl Stage {
    fn progress(&self) -> u64 {
        let moves = self.desks.iter().map(|desk| desk.moves.load(Ordering::Relaxed));
        moves.sum::<u64>() + self.counts.calls.load(Ordering::Relaxed) + self.sim.progress()
    }

    fn ring_all(&self) {
        for (_, bell) in self.desks.iter().filter_map(|desk| desk.bed.get()) {
            bell.doorbell().ring();
        }
    }

    /// The event that each thread waits for. Wakes all threads, but without their bells.
    fn state(&self) -> String {
        self.report.store(true, Ordering::SeqCst);
        self.desks.iter().filter_map(|desk| desk.bed.get()).for_each(|(t, _)| t.unpark());
        let told = |desk: &Desk| !desk.state.lock().expect("a state's lock").is_empty();
        let asked = real_now();
        while !self.desks.iter().all(told) && asked.elapsed() < Duration::from_secs(2) {
            std::thread::yield_now();
        }
        let stats = self.device.stats();
        let mut lines = format!(
            "{} threads at work, {} in flight, {:?} in the driver, which will answer {}; \
             {} quarantined",
            self.at_work.load(Ordering::Relaxed),
            stats.in_flight,
            stats.in_driver,
            self.sim.coming(),
            stats.quarantined,
        );
        for (index, desk) in self.desks.iter().enumerate() {
            let state = desk.state.lock().expect("a state's lock");
            lines +=
                &format!("\nthread {index}: {}", if state.is_empty() { "mute" } else { &state });
        }
        for doing in &self.doing {
            lines += &format!("\ncontroller: {}", doing.lock().expect("a controller's lock"));
        }
        lines
    }
}

impl Stage {
    /// Asks the home of a lane.
    fn order(&self, index: usize, order: LaneOrder) {
        let desk = &self.desks[index % self.homes];
        desk.orders.lock().expect("the lock of orders").push(order);
        desk.bed.get().expect("it has opened lanes").1.doorbell().ring();
    }
}

impl LaneHomes for Stage {
    fn open(&self, _device: &Device, index: usize, answer: LaneAnswer) {
        self.order(index, LaneOrder::Open(index, answer));
    }

    fn close(&self, _device: &Device, index: usize, answer: LaneAnswer) {
        self.order(index, LaneOrder::Close(index, answer));
    }
}

/// A thread with lanes, clients or both: a reactor without descriptors.
struct Worker<'a> {
    stage: &'a Stage,
    desk: &'a Desk,
    home: Home,
    /// By bell token.
    clients: Vec<Client>,
    told: Vec<bool>,
}

impl Worker<'_> {
    /// Until its clients are done, and for a home until it is told to stop.
    fn live(&mut self, is_home: bool, out: &Sender<News>) {
        let mut at_work = true;
        while !self.stage.abandon.load(Ordering::Relaxed) {
            self.pass();
            if at_work && self.clients.iter().all(Client::is_done) {
                at_work = false;
                self.stage.at_work.fetch_sub(1, Ordering::SeqCst);
                let _ = out.send(News::Rests);
            }
            if !at_work && (!is_home || self.stage.stop.load(Ordering::SeqCst)) {
                return;
            }
            self.sleep();
        }
    }

    /// Opens and closes lanes as it is asked to.
    fn follow_orders(&mut self) {
        let orders = std::mem::take(&mut *self.desk.orders.lock().expect("the lock of orders"));
        for order in orders {
            match order {
                LaneOrder::Open(index, answer) => {
                    self.home.open(&self.stage.device, index).expect("a lane of its own");
                    answer.give(Ok(()));
                }
                LaneOrder::Close(index, answer) => {
                    self.home.extract(|lane| lane.index() == index, |_, lane| drop(lane));
                    answer.give(Ok(()));
                }
            }
        }
    }

    fn pass(&mut self) {
        self.follow_orders();
        let now = self.stage.clock.now();
        let told = &mut self.told;
        self.home.bell().ready().take(|token| told[token] = true);
        let mut moves = 0;
        for (client, told) in self.clients.iter_mut().zip(told) {
            let told = std::mem::take(told);
            if told || client.is_eager() {
                client.run(now, told);
            }
            moves += client.moves();
        }
        self.desk.moves.store(moves, Ordering::Relaxed);
        let now = self.stage.clock.now();
        let heard: Vec<usize> = self.events(now).map(Lane::place).collect();
        heard.into_iter().for_each(|place| self.home.hear(place));
        self.home.turn(now);
    }

    /// Lanes whose drivers have an event.
    fn events(&self, now: Nanos) -> impl Iterator<Item = &Lane> {
        self.home.lanes().filter(move |lane| self.event_at(lane).is_some_and(|at| at <= now))
    }

    fn event_at(&self, lane: &Lane) -> Option<Nanos> {
        self.stage.sim.event_at(lane.index()).filter(|_| lane.announces())
    }

    fn lane_time(&self, lane: &Lane) -> Option<Nanos> {
        let own = lane.wake_at().filter(|at| *at != Nanos(u64::MAX));
        own.into_iter().chain(self.event_at(lane)).min()
    }

    fn sleep(&self) {
        let now = self.stage.clock.now();
        let sleeps = self.home.before_sleep(now, || {
            self.clients.iter().any(Client::is_eager)
                || self.events(now).next().is_some()
                || !self.desk.orders.lock().expect("the lock of orders").is_empty()
                || self.stage.stop.load(Ordering::SeqCst)
                || self.stage.abandon.load(Ordering::SeqCst)
        });
        if sleeps {
            self.desk.sleeps.fetch_add(1, Ordering::Relaxed);
            let events = self.home.lanes().filter_map(|lane| self.event_at(lane));
            let own = self.home.wake_at().filter(|at| *at != Nanos(u64::MAX));
            match own.into_iter().chain(events).min() {
                Some(at) => std::thread::park_timeout(self.stage.clock.real(at.since(now))),
                None => std::thread::park(),
            }
        }
        if self.stage.report.load(Ordering::SeqCst) {
            *self.desk.state.lock().expect("a state's lock") = self.describe(!sleeps);
        }
        self.home.awake();
    }

    fn describe(&self, awake: bool) -> String {
        let clients: Vec<String> = self.clients.iter().map(Client::describe).collect();
        let lanes = self.home.lanes().map(|l| (l.index(), l.has_work(), self.lane_time(l)));
        format!(
            "{} at {:?}, {:?}, told {}, clients {clients:?}, lanes (work, time) {:?}",
            if awake { "runs" } else { "slept" },
            self.stage.clock.now(),
            self.home.bell().doorbell(),
            self.home.bell().ready().any(),
            lanes.collect::<Vec<_>>(),
        )
    }
}

/// The lanes and clients of a thread that ended well.
#[derive(Default)]
struct Left {
    lanes: Vec<Lane>,
    clients: Vec<(Option<Submitter>, Office)>,
}

/// The part of a thread in the scene.
struct Part {
    desk: usize,
    lanes: Vec<usize>,
    clients: Vec<Recruit>,
    /// Submits as soon as it can, though lanes may not be open yet.
    hasty: bool,
}

/// A client to be.
struct Recruit {
    office: Office,
    lane: usize,
    window: usize,
    quits_at: Option<u32>,
}

/// Lives a thread's life. `None` when the test has failed, here or elsewhere.
fn play(stage: &Stage, part: Part, out: &Sender<News>) -> Option<Left> {
    let desk = &stage.desks[part.desk];
    let thread = std::thread::current();
    let bell = Bell::with_lanes(Box::new(Unpark(thread.clone())), 8);
    assert!(desk.bed.set((thread, Arc::clone(&bell))).is_ok());
    let handed_over = Rc::new(Cell::new(0));
    let (counted, homes, own) = (Rc::clone(&handed_over), stage.homes, part.desk);
    on_asked(move |lane| {
        counted.set(counted.get() + u64::from(usize::from(lane) % homes != own));
    });
    let mut home = Home::strict(Arc::clone(&bell));
    for index in &part.lanes {
        home.open(&stage.device, *index).expect("a lane of its own");
    }
    home.turn(stage.clock.now());
    if !part.hasty {
        stage.ready.wait();
    }
    let (is_home, count) = (part.desk < stage.homes, part.clients.len());
    let mut offices = Vec::new();
    let client = |(token, recruit): (usize, Recruit)| {
        let submitter = stage.device.submitter(&bell, token, recruit.lane).expect("few submitters");
        let office = Rc::new(RefCell::new(recruit.office));
        offices.push(Rc::clone(&office));
        Client::new(submitter, office, BIOS, recruit.window, recruit.quits_at)
    };
    let clients: Vec<Client> = part.clients.into_iter().enumerate().map(client).collect();
    let told = vec![false; count];
    let mut worker = Worker { stage, desk, home, clients, told };
    let lived = catch_unwind(AssertUnwindSafe(|| worker.live(is_home, out)));
    let Worker { mut home, mut clients, .. } = worker;
    let mut lanes = Vec::new();
    home.extract(|_| true, |_, lane| lanes.push(lane));
    if lived.is_err() || stage.abandon.load(Ordering::SeqCst) {
        // Their requests may not be dropped: submitters wait for them.
        std::mem::forget((lanes, clients));
        return None;
    }
    lanes.iter_mut().for_each(|lane| lane.run(stage.clock.now()));
    stage.counts.handed_over.fetch_add(handed_over.get(), Ordering::Relaxed);
    let submitters: Vec<_> = clients.iter_mut().map(|client| client.submitter.take()).collect();
    drop(clients);
    let offices = offices.into_iter().map(|office| Rc::try_unwrap(office).ok().expect("the last"));
    let clients = submitters.into_iter().zip(offices.map(RefCell::into_inner)).collect();
    Some(Left { lanes, clients })
}

/// Freezes, quiesces and changes the device while clients are at it.
fn control(stage: &Arc<Stage>, which: usize, mut prng: Prng, fixed: Fixed) {
    let doing = |what| *stage.doing[which].lock().expect("a controller's lock") = what;
    let pause = |most: u64, prng: &mut Prng| {
        (0..prng.below(most)).for_each(|_| std::thread::yield_now());
    };
    stage.ready.wait();
    for call in 0..CALLS {
        doing("pauses");
        pause(if call == 0 { 1 } else { 60 }, &mut prng);
        if stage.abandon.load(Ordering::SeqCst)
            || call > 0 && stage.at_work.load(Ordering::SeqCst) == 0
        {
            break;
        }
        // The second one only freezes: the device checks what it does under one set of rules.
        match if which == 0 { prng.below(5) } else { 0 } {
            4 if stage.may_switch => {
                doing("switches the scheduler");
                switch_scheduler(stage, &mut prng);
            }
            3 if stage.device.queues_max() > 1 => {
                doing("changes the number of lanes");
                change_queues(stage, &mut prng);
            }
            0 => {
                doing("freezes");
                let frozen = stage.device.freeze();
                assert_eq!(stage.device.stats().in_flight, 0, "a frozen device holds nothing");
                pause(20, &mut prng);
                drop(frozen);
            }
            1 => {
                doing("quiesces");
                let quiesced = stage.device.quiesce();
                stage.sim.world().quiesced = true;
                pause(100, &mut prng);
                stage.sim.world().quiesced = false;
                drop(quiesced);
            }
            _ => {
                doing("reconfigures");
                reconfigure(&stage.device, &stage.sim, &mut prng, fixed);
            }
        }
        stage.counts.calls.fetch_add(1, Ordering::Relaxed);
    }
    doing("is done");
}

fn any_plan(prng: &mut Prng) -> Plan {
    let mut pick = |of: &[u64]| of[prng.below(of.len() as u64) as usize];
    let mut plan = Plan {
        refused: pick(&[0, 0, 5, 20]) as u32,
        refusals_max: 40,
        slow_ns: pick(&[0, 5_000, 50_000]),
        lent: pick(&[0, 50, 100]) as u32,
        reordered: pick(&[0, 1]) == 1,
        requeued: pick(&[0, 0, 10]) as u32,
        requeues_max: 40,
        errors: Status::ALL.into_iter().filter(|s| !s.is_ok()).collect(),
        ..Plan::default()
    };
    // Admission refuses writes to a disk that may only be read.
    plan.errors.retain(|status| !matches!(status, Status::Timeout | Status::ReadOnly));
    match pick(&[0, 1, 2]) {
        0 => {}
        1 => plan.failed = 8,
        _ => {
            (plan.failed, plan.lost) = (pick(&[0, 3]) as u32, 2);
            (plan.late, plan.late_ns) = (pick(&[0, 2]) as u32, 2 * TIMEOUT_NS);
            (plan.cancel_done, plan.found) = (pick(&[0, 50]) as u32, pick(&[0, 50]) as u32);
        }
    }
    plan
}

fn office(limits: &Limits, index: u64, prng: &mut Prng, plan: &Plan, config: &Config) -> Office {
    Office {
        kind: plan.is_kind(),
        errors: plan.errors.clone(),
        timeout_ns: config.timeout_ns,
        last_cookie: (index + 1) << 24,
        plot: Plot { stripe: STRIPE, owner: index, owners: SUBMITTERS + 1 },
        // A home may be kept from running for any time.
        slack_ns: u64::MAX / 2,
        merges: config.nomerges < 2,
        hands_back: true,
        ..Office::new(limits.clone(), prng.next())
    }
}

/// Gives the device another number of lanes. One with a request that was lost cannot be closed.
fn change_queues(stage: &Arc<Stage>, prng: &mut Prng) {
    let homes: Arc<dyn LaneHomes> = stage.clone();
    stage.device.attach_homes(Arc::downgrade(&homes));
    let queues = 1 + prng.below(LANES_MAX) as u16;
    match stage.device.set_queues(queues) {
        Ok(()) => assert_eq!(stage.device.queues(), queues),
        Err(error) => {
            let text = error.to_string();
            assert!(text.contains("requests that timed out"), "{text}");
        }
    }
}

/// Has another scheduler, or none, in between and at the end.
fn switch_scheduler(stage: &Stage, prng: &mut Prng) {
    let names = stage.device.schedulers();
    for _ in 0..1 + prng.below(3) {
        let name = names[prng.below(names.len() as u64) as usize];
        let switched = stage.device.set_scheduler(name, &|| stage.clock.now());
        switched.expect("a name it takes");
        assert_eq!(stage.device.scheduler(), name);
        stage.counts.switches.fetch_add(1, Ordering::Relaxed);
    }
}

/// Few seeds: each path makes other scenes of them.
fn salt(path: Path) -> u64 {
    let text = format!("{path:?}");
    text.bytes().fold(0, |salt: u64, byte| salt.wrapping_mul(31) + u64::from(byte))
}

/// A scene, and the threads it is going to have.
struct Scene {
    stage: Arc<Stage>,
    parts: Vec<Part>,
    prng: Prng,
    fixed: Fixed,
}

impl Scene {
    fn new(path: Path, seed: u64) -> Scene {
        let mut prng = Prng::new(seed ^ salt(path));
        let limits = any_limits(&mut prng, (SUBMITTERS + 1) * STRIPES * STRIPE);
        let depth = DEPTHS[prng.below(DEPTHS.len() as u64) as usize];
        let plan = any_plan(&mut prng);
        let timeout_ns = if plan.lost + plan.late > 0 { TIMEOUT_NS } else { 0 };
        // An event belongs to the home that opened the queue, and any home may cause it.
        let announced =
            (path.mode == QueueMode::Mq || path.home == Affinity::Fixed) && prng.percent(50);
        let sim = Sim::new(Shape {
            limits: limits.clone(),
            depth,
            shared_tags: path.shared_tags,
            home: path.home,
            announced,
            plan: plan.clone(),
            seed: prng.next(),
        });
        let nr_requests = (path.mode == QueueMode::Sq || path.scheduled)
            .then(|| 4 + prng.below(2 * u64::from(depth) + 8) as u16)
            .filter(|_| prng.percent(70));
        let nomerges = [0, 0, 1, 2][prng.below(4) as usize];
        sim.world().nomerges = nomerges;
        let config = Config { nr_requests, nomerges, timeout_ns, ..Config::default() };
        let device = path.device(config.clone(), Arc::clone(&sim) as Arc<_>);
        let homes = 2 + prng.below(2) as usize;
        let mut parts = Scene::homes(path, homes);
        let mut clients = 0;
        let (limits, hasty) = (sim.world().limits.clone(), prng.percent(50));
        let mut recruit = |prng: &mut Prng| {
            let office = office(&limits, clients, prng, &plan, &config);
            clients += 1;
            let lane = prng.below(8) as usize;
            // A client with few I/Os under way comes to the gate from outside, and sleeps often.
            let widest = if prng.percent(50) { 3 } else { 96 };
            let window = 1 + prng.below(widest) as usize;
            let quits_at = prng.percent(10).then(|| prng.below(u64::from(BIOS)) as u32);
            Recruit { office, lane, window, quits_at }
        };
        for index in 0..SUBMITTERS as usize {
            let desk = homes + index;
            parts.push(Part { desk, lanes: Vec::new(), clients: vec![recruit(&mut prng)], hasty });
        }
        if prng.percent(50) {
            let home = prng.below(homes as u64) as usize;
            parts[home].clients.push(recruit(&mut prng));
        }
        let waiting = parts.iter().filter(|part| !part.hasty).count() + 2;
        let stage = Stage {
            sim,
            device,
            clock: Clock { start: real_now(), speed: if timeout_ns > 0 { 1_000 } else { 1 } },
            desks: parts.iter().map(|_| Desk::default()).collect(),
            homes,
            ready: Barrier::new(waiting),
            at_work: AtomicU64::new(parts.len() as u64),
            counts: Counts::default(),
            may_switch: prng.percent(50),
            doing: [Mutex::new("starts"), Mutex::new("starts")],
            stop: AtomicBool::new(false),
            report: AtomicBool::new(false),
            abandon: AtomicBool::new(false),
        };
        // Where nothing merges it stays so: then each bio's own time can be held against its end.
        let fixed = Fixed { barriers: prng.percent(50), nomerges: nomerges == 2, wbt: false };
        Scene { stage: Arc::new(stage), parts, prng, fixed }
    }

    /// Threads that turn lanes. A fixed single queue has one, and the others are idle.
    fn homes(path: Path, homes: usize) -> Vec<Part> {
        let lanes = usize::from(path.lanes);
        let part = |home| {
            let own = |lane: &usize| lane % homes == home;
            let lanes = match path.mode {
                QueueMode::Sq if path.home == Affinity::Any => vec![0],
                _ => (0..lanes).filter(own).collect(),
            };
            Part { desk: home, lanes, clients: Vec::new(), hasty: false }
        };
        (0..homes).map(part).collect()
    }

    /// Runs all threads to their end, and returns what they left.
    fn run(&mut self) -> Left {
        let (out, news) = channel();
        let parts = std::mem::take(&mut self.parts);
        let threads = parts.len() + 2;
        for which in 0..2 {
            let (prng, fixed) = (Prng::new(self.prng.next()), self.fixed);
            self.spawn(&out, move |stage, out| {
                control(stage, which, prng, fixed);
                let _ = out.send(News::Rests);
                Some(Left::default())
            });
        }
        for part in parts {
            self.spawn(&out, move |stage, out| play(stage, part, out));
        }
        let (mut watch, mut left) = (Watch::new(), Vec::new());
        let (mut resting, mut stopped) = (0, false);
        while left.len() < threads {
            match watch.next(&self.stage, &news) {
                News::Rests => resting += 1,
                News::Ended(one) => left.push(one),
                News::Failed => fail(&self.stage, "a thread failed"),
            }
            if resting == threads && !stopped {
                stopped = true;
                self.stage.stop.store(true, Ordering::SeqCst);
                self.stage.ring_all();
            }
        }
        let mut all = Left::default();
        for one in left {
            all.lanes.extend(one.lanes);
            all.clients.extend(one.clients);
        }
        all
    }

    fn spawn(
        &self,
        out: &Sender<News>,
        work: impl FnOnce(&Arc<Stage>, &Sender<News>) -> Option<Left> + Send + 'static,
    ) {
        let (stage, out) = (Arc::clone(&self.stage), out.clone());
        let thread = move || {
            let ended = catch_unwind(AssertUnwindSafe(|| work(&stage, &out)));
            drop(stage);
            let news = ended.ok().flatten().map_or(News::Failed, News::Ended);
            // No thread listens when the test has failed; then it may not be dropped either.
            out.send(news).unwrap_or_else(std::mem::forget);
        };
        #[expect(clippy::disallowed_methods, reason = "a test may own a thread; core may not")]
        std::thread::spawn(thread);
    }
}

/// News from the threads to the one that watches them.
enum News {
    /// Its clients are done, or its calls.
    Rests,
    Ended(Left),
    Failed,
}

/// Sees to it that something moves.
struct Watch {
    seen: u64,
    since: Instant,
}

impl Watch {
    fn new() -> Watch {
        Watch { seen: 0, since: real_now() }
    }

    fn next(&mut self, stage: &Stage, news: &Receiver<News>) -> News {
        loop {
            match news.recv_timeout(Duration::from_secs(1)) {
                Ok(news) => return news,
                Err(RecvTimeoutError::Disconnected) => unreachable!("a sender is kept"),
                Err(RecvTimeoutError::Timeout) => {}
            }
            let seen = stage.progress();
            if seen != self.seen {
                *self = Watch { seen, since: real_now() };
            } else if self.since.elapsed() > STILL_MAX {
                let state = stage.state();
                fail(stage, &format!("nothing has moved for {STILL_MAX:?}:\n{state}"));
            }
        }
    }
}

/// Lets all threads go, and fails.
fn fail(stage: &Stage, why: &str) -> ! {
    stage.abandon.store(true, Ordering::SeqCst);
    stage.desks.iter().filter_map(|desk| desk.bed.get()).for_each(|(thread, _)| thread.unpark());
    panic!("{why}");
}

/// Ends what was lost, and what submitters left behind that are gone. Returns the time it took.
fn settle(stage: &Stage, lanes: &mut [Lane]) -> Nanos {
    // Later than anything that is still to be answered.
    let mut now = stage.clock.now() + 10 * TIMEOUT_NS;
    for _ in 0..TURNS_MAX {
        stage.sim.find_lost(now);
        lanes.iter_mut().for_each(|lane| lane.run(now));
        let stats = stage.device.stats();
        if (stats.in_flight, stats.in_driver, stats.quarantined) == (0, [0, 0], 0) {
            break;
        }
        now = now + 1_000_000;
    }
    now
}

/// Everything has ended: every bio once, with nothing left anywhere.
fn check_rest(stage: &Stage, left: &Left) {
    let stats = stage.device.stats();
    assert_eq!((stats.in_flight, stats.in_driver), (0, [0, 0]), "at rest");
    assert_eq!((stats.fields()[8], stats.quarantined), (0, 0), "at rest");
    let tally = stage.sim.world().tally.clone();
    let offices = || left.clients.iter().map(|(_, office)| office);
    for (value, must) in offices().flat_map(|office| &office.written) {
        let times = tally.delivered.get(value).copied().unwrap_or(0);
        assert!(times <= 1, "sector {} arrived {times} times", (value & 0xff_ffff) - 1);
        assert!(!must || times == 1, "sector {} never arrived", (value & 0xff_ffff) - 1);
    }
    if offices().any(|office| office.orphans > 0) {
        return;
    }
    let failures: u64 = offices().map(|office| office.failures).sum();
    assert_eq!(stats.errors, failures, "bios that ended with an error");
    if offices().any(|office| !office.kind) {
        return;
    }
    let mut moved = BTreeMap::new();
    for (op, sectors) in offices().flat_map(|office| &office.moved) {
        *moved.entry(*op).or_insert(0) += sectors;
    }
    for (op, sectors) in &moved {
        let arrived = tally.sectors.get(op).copied().unwrap_or(0);
        assert_eq!(arrived, *sectors, "sectors of {op:?}");
    }
    let counted: u64 = stats.directions.iter().map(|d| d.sectors).sum();
    assert_eq!(counted, moved.values().sum::<u64>(), "sectors in the statistics");
}

/// Counts of a scene: control calls, sleeps of threads, schedulers put in force, hard queues picked
/// for by others than their homes.
fn one_seed(path: Path, seed: u64) -> [u64; 4] {
    let _tell = Tell(format!("path {path:?}\nSTRESS_SEED={seed}"));
    let mut scene = Scene::new(path, seed);
    let mut left = scene.run();
    let Scene { stage, .. } = scene;
    let now = settle(&stage, &mut left.lanes);
    check_rest(&stage, &left);
    let Left { mut lanes, clients } = left;
    let mut later = now;
    let mut turn_all = || {
        later = later + TURN_NS;
        lanes.iter_mut().for_each(|lane| lane.run(later));
    };
    check_tags(path.as_it_is(&stage.device), &stage.sim, &stage.device, now, &mut turn_all);
    drop(clients);
    (0..3).for_each(|_| turn_all());
    assert_eq!(stage.device.stats().in_flight, 0, "after the last submitter");
    assert!(lanes.iter_mut().all(|lane| lane.is_idle()), "an idle lane");
    drop(lanes);
    let sleeps = stage.desks.iter().map(|desk| desk.sleeps.load(Ordering::Relaxed)).sum();
    let Counts { calls, switches, handed_over } = &stage.counts;
    let [calls, switches, handed_over] =
        [calls, switches, handed_over].map(|count| count.load(Ordering::Relaxed));
    let counts = [calls, sleeps, switches, handed_over];
    let Stage { sim, device, .. } = Arc::into_inner(stage).expect("all threads have ended");
    drop(device);
    assert_eq!(Arc::strong_count(&sim), 1, "something holds on to the driver");
    counts
}

fn hold_the_laws(path: Path) {
    let started = real_now();
    let (mut scenes, mut counts) = (0, [0; 4]);
    for seed in seeds("STRESS", SEEDS) {
        let scene = one_seed(path, seed);
        scenes += 1;
        counts.iter_mut().zip(scene).for_each(|(count, more)| *count += more);
    }
    let took = started.elapsed();
    let [calls, sleeps, switches, handed_over] = counts;
    println!(
        "{path:?}: {scenes} scenes, {calls} control calls, {switches} switches, {sleeps} sleeps, \
         {handed_over} hand-overs in {took:?}"
    );
    assert!(calls > scenes, "{calls} control calls in {scenes} scenes: nothing was changed");
    assert!(sleeps > 100 * scenes, "{sleeps} sleeps in {scenes} scenes: nobody had to be woken");
    // A scene alone need not have any.
    assert!(scenes < SEEDS || switches > 0, "no other scheduler came in {scenes} scenes");
    let told = path.lanes > 1 && matches!(path.order, Order::Kyber | Order::Bfq);
    assert!(scenes < SEEDS || !told || handed_over > 0, "no lane has left anything to another");
}

macro_rules! stress {
    ($($name:ident: $path:expr;)*) => {
        $(#[test]
        fn $name() {
            hold_the_laws($path);
        })*
    };
}

stress! {
    mq_1_lane: Path::mq(1);
    mq_2_lanes: Path::mq(2);
    mq_3_lanes: Path::mq(3);
    mq_1_lane_scheduled: Path::mq(1).scheduled();
    mq_3_lanes_scheduled: Path::mq(3).scheduled();
    mq_2_lanes_sharing_tags: Path::mq(2).sharing();
    mq_3_lanes_sharing_tags: Path::mq(3).sharing();
    mq_3_lanes_scheduled_sharing_tags: Path::mq(3).scheduled().sharing();
    mq_3_lanes_kyber: Path::mq(3).by(Order::Kyber);
    mq_3_lanes_deadline_sharing_tags: Path::mq(3).by(Order::Deadline).sharing();
    mq_3_lanes_bfq: Path::mq(3).by(Order::Bfq);
    mq_2_lanes_bfq_sharing_tags: Path::mq(2).by(Order::Bfq).sharing();
    sq_deadline: Path::sq(Affinity::Any).by(Order::Deadline);
    mq_3_lanes_with_one_token: Path::mq(3).by(Order::OneToken);
    mq_3_lanes_with_tokens_that_rest: Path::mq(3).by(Order::TokensThatRest);
    mq_2_lanes_with_one_token_sharing_tags: Path::mq(2).by(Order::OneToken).sharing();
    sq_any_home: Path::sq(Affinity::Any);
    sq_fixed_home: Path::sq(Affinity::Fixed);
    sq_fixed_home_cfq: Path::sq(Affinity::Fixed).by(Order::Cfq);
    round_robin_1_lane: Path::mq(1).in_turn();
    round_robin_3_lanes: Path::mq(3).in_turn();
    round_robin_3_lanes_sharing_tags: Path::mq(3).in_turn().sharing();
}
