//! Write-back throttling on both paths, in virtual time: a device that serves one request after the
//! other, submitters whose writes wait, and everything that may happen to those meanwhile.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use weir_bio::{Bio, Buf, Flags, Limits, Nanos, Op, Prng, Status};
use weir_queue::{
    Affinity, Batch, Bell, Cancel, Completion, Config, Device, Done, Driver, DriverError,
    DriverQueue, Lane, NoWake, Progress, QueueMode, Queues, Refused, Spread, Step, Submitter, Tag,
    Watch, WbtState, WbtTarget,
};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// A request that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Arrival {
    op: Op,
    sector: u64,
    sectors: u32,
    /// Requests with the device then, this one included.
    beside: usize,
}

/// The device: one request after the other, each for so long.
struct State {
    service_ns: u64,
    /// It answers nothing.
    dead: bool,
    queue: VecDeque<(Tag, Nanos)>,
    free_at: Nanos,
    arrivals: Vec<Arrival>,
}

#[derive(Clone)]
struct Disk {
    state: Arc<Mutex<State>>,
    limits: Limits,
    depth: u16,
    bio_based: bool,
}

impl Driver for Disk {
    fn limits(&self) -> Limits {
        self.limits.clone()
    }

    fn queues(&self) -> Queues {
        let (depth, home) = (self.depth, Affinity::Any);
        Queues { max: 2, depth, reserved: 0, shared_tags: false, home }
    }

    fn is_bio_based(&self) -> bool {
        self.bio_based
    }

    fn open(&self, _: u16, _: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
        Ok(Box::new(Queue(Arc::clone(&self.state))))
    }
}

struct Queue(Arc<Mutex<State>>);

impl DriverQueue for Queue {
    fn submit(&mut self, batch: &mut Batch<'_>, now: Nanos) {
        let state = &mut *self.0.lock().unwrap();
        batch.take_all(|tag, request| {
            state.free_at = state.free_at.max(now) + state.service_ns;
            state.queue.push_back((tag, state.free_at));
            let rq = request.rq();
            let (op, sector, sectors, beside) = (rq.op, rq.sector, rq.sectors, state.queue.len());
            state.arrivals.push(Arrival { op, sector, sectors, beside });
        });
    }

    fn commit(&mut self, _: Nanos) {}

    fn reap(&mut self, now: Nanos, done: &mut Done) {
        let state = &mut *self.0.lock().unwrap();
        while let Some((tag, at)) = state.queue.front()
            && *at <= now
            && !state.dead
        {
            done.push(*tag, Status::Ok);
            state.queue.pop_front();
        }
    }

    fn cancel(&mut self, tag: Tag) -> Cancel {
        self.0.lock().unwrap().queue.retain(|(held, _)| *held != tag);
        Cancel::Done
    }

    fn wake_at(&self) -> Option<Nanos> {
        let state = self.0.lock().unwrap();
        state.queue.front().filter(|_| !state.dead).map(|(_, at)| *at)
    }

    fn announces(&self) -> bool {
        true
    }

    fn in_flight(&self) -> usize {
        self.0.lock().unwrap().queue.len()
    }
}

/// A device with its lane, and submitters.
struct Scene {
    disk: Disk,
    device: Device,
    lane: Lane,
    bell: Arc<Bell>,
    submitters: Vec<Option<Submitter>>,
    ended: Vec<Completion>,
    now: Nanos,
}

/// Each path with each of its schedulers that leaves the throttle on.
const ORDERS: [(QueueMode, &str); 6] = [
    (QueueMode::Mq, "none"),
    (QueueMode::Mq, "mq-deadline"),
    (QueueMode::Mq, "kyber"),
    (QueueMode::Sq, "noop"),
    (QueueMode::Sq, "deadline"),
    (QueueMode::Sq, "cfq"),
];

fn config((mode, scheduler): (QueueMode, &str), wbt_lat_us: Option<u64>) -> Config {
    let scheduler = Some(String::from(scheduler));
    Config { name: String::from("sda"), mode, scheduler, wbt_lat_us, ..Config::default() }
}

fn disk(depth: u16) -> Disk {
    let state = State {
        service_ns: 500 * US,
        dead: false,
        queue: VecDeque::new(),
        free_at: Nanos::ZERO,
        arrivals: Vec::new(),
    };
    let limits = Limits {
        capacity: 1 << 30,
        max_hw_sectors: 64,
        max_hw_discard_sectors: 1 << 20,
        discard_granularity: 512,
        ..Limits::default()
    };
    Disk { state: Arc::new(Mutex::new(state)), limits, depth, bio_based: false }
}

impl Scene {
    fn new(config: Config, disk: Disk, submitters: usize) -> Scene {
        let device = Device::new(config, Arc::new(disk.clone())).unwrap();
        let bell = Bell::new(Box::new(NoWake), 64);
        let lane = device.open_lane(0, &bell).unwrap();
        let submitter = |token| Some(device.submitter(&bell, token, 0).unwrap());
        let submitters = (0..submitters).map(submitter).collect();
        Scene { disk, device, lane, bell, submitters, ended: Vec::new(), now: Nanos(MS) }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.disk.state.lock().unwrap()
    }

    fn submit(&mut self, submitter: usize, bio: Bio) -> Result<(), Refused> {
        let submitter = self.submitters[submitter].as_mut().expect("a submitter");
        submitter.submit(bio, self.now)?;
        submitter.flush_plug(self.now);
        Ok(())
    }

    fn turn(&mut self) {
        self.lane.run(self.now);
        for submitter in self.submitters.iter_mut().flatten() {
            submitter.complete(self.now, |completion| self.ended.push(completion));
        }
        self.lane.run(self.now);
    }

    fn inside(&self) -> u64 {
        self.submitters.iter().flatten().map(Submitter::in_flight).sum()
    }

    /// Lets time go on to the next event.
    fn step(&mut self) {
        self.turn();
        let next = self.lane.wake_at().expect("something is to come");
        self.now = next.max(self.now + 1);
        self.turn();
    }

    fn settle(&mut self) {
        self.turn();
        while self.inside() > 0 {
            self.step();
        }
    }

    /// Until no window is open any more.
    fn rest(&mut self) {
        self.settle();
        while let Some(at) = self.lane.wake_at() {
            self.now = at.max(self.now + 1);
            self.turn();
        }
    }

    fn arrived(&self) -> usize {
        self.state().arrivals.len()
    }
}

/// A background write of a page, apart from all others.
fn write(number: u64) -> Bio {
    let bio = Bio::write(1024 + number * 64, Buf::zeroed(4096)).cookie(number);
    Bio { flags: Flags::BACKGROUND, ..bio }
}

fn read(number: u64) -> Bio {
    Bio::read(number * 64 + (1 << 20), Buf::zeroed(4096)).cookie(1 << 32 | number)
}

/// The latencies of a reader that has one read under way, over the second half of two seconds, in
/// us: their mean and the longest, beside a writer that always has 64 writes to send.
fn read_latency(order: (QueueMode, &str), wbt_lat_us: Option<u64>) -> (u64, u64) {
    let mut scene = Scene::new(config(order, wbt_lat_us), disk(64), 2);
    let (end, mut reads, mut writes) = (scene.now + 2_000 * MS, 0, 0);
    let (mut begun, mut seen) = (scene.now, Vec::new());
    while scene.now < end {
        while scene.submitters[1].as_ref().unwrap().in_flight() < 64 {
            scene.submit(1, write(writes)).unwrap();
            writes += 1;
        }
        if scene.submitters[0].as_ref().unwrap().in_flight() == 0 {
            scene.submit(0, read(reads)).unwrap();
            (reads, begun) = (reads + 1, scene.now);
        }
        scene.step();
        for ended in std::mem::take(&mut scene.ended) {
            if ended.op == Op::Read && scene.now > end - 1_000 * MS {
                seen.push(scene.now.since(begun) / US);
            }
        }
    }
    scene.settle();
    let most = seen.iter().copied().max().expect("reads");
    (seen.iter().sum::<u64>() / seen.len() as u64, most)
}

#[test]
fn a_reader_beside_a_background_writer_keeps_its_latency_while_writes_are_throttled() {
    for order in ORDERS {
        let (on, worst) = read_latency(order, None);
        let (off, _) = read_latency(order, Some(0));
        // The target is 2 ms, which one read and three writes take.
        assert!(on <= 3_000, "{order:?}: {on} us with the throttle, at worst {worst}");
        assert!(worst <= 5_000, "{order:?}: {worst} us at worst");
        assert!(off >= 4 * on, "{order:?}: {on} us with the throttle and {off} without");
    }
}

#[test]
fn no_more_writes_are_with_the_device_than_the_limit_of_their_class() {
    for order in ORDERS {
        // By flags; the limit at first, of 64 tags.
        for (flags, most) in [(Flags::BACKGROUND, 4), (Flags::NONE, 8), (Flags::SYNC, 16)] {
            let mut scene = Scene::new(config(order, None), disk(64), 1);
            for number in 0..40 {
                scene.submit(0, Bio { flags, ..write(number) }).unwrap();
            }
            scene.turn();
            assert_eq!(scene.arrived(), most, "{order:?} {flags:?}");
            scene.settle();
            assert_eq!((scene.arrived(), scene.ended.len()), (40, 40), "{order:?} {flags:?}");
        }
        let mut scene = Scene::new(config(order, None), disk(64), 1);
        for number in 0..40 {
            let direct = write(number).flags.without(Flags::BACKGROUND) | Flags::SYNC | Flags::IDLE;
            scene.submit(0, Bio { flags: direct, ..write(number) }).unwrap();
        }
        scene.turn();
        assert_eq!(scene.arrived(), 40, "{order:?}: direct writes are not held back");
        scene.settle();
    }
}

#[test]
fn a_normal_write_is_as_one_in_the_background_while_there_is_other_io() {
    for order in ORDERS {
        for (apart_ms, most) in [(99, 4), (101, 8)] {
            let mut scene = Scene::new(config(order, None), disk(64), 1);
            scene.submit(0, read(apart_ms)).unwrap();
            scene.settle();
            scene.now = scene.now + apart_ms * MS;
            let before = scene.arrived();
            for number in 0..20 {
                scene.submit(0, Bio { flags: Flags::NONE, ..write(number) }).unwrap();
            }
            scene.turn();
            assert_eq!(scene.arrived() - before, most, "{order:?}: {apart_ms} ms after a read");
            scene.settle();
        }
    }
}

#[test]
fn discards_are_counted_apart() {
    for order in ORDERS {
        let mut scene = Scene::new(config(order, None), disk(64), 1);
        for number in 0..20 {
            let discard = Bio::new(Op::Discard, number * 4096, 8, weir_bio::Data::None);
            scene.submit(0, discard).unwrap();
            scene.submit(0, write(number)).unwrap();
        }
        scene.turn();
        let of = |op| scene.state().arrivals.iter().filter(|it| it.op == op).count();
        assert_eq!((of(Op::Discard), of(Op::Write)), (4, 4), "{order:?}");
        scene.settle();
        assert_eq!(scene.ended.len(), 40, "{order:?}");
    }
}

#[test]
fn writes_of_all_submitters_go_on_in_the_order_in_which_they_came() {
    for mode in [(QueueMode::Mq, "none"), (QueueMode::Sq, "noop")] {
        // Two tags: one write in the background.
        let mut scene = Scene::new(config(mode, None), disk(2), 3);
        for number in 0..60 {
            scene.submit(number as usize % 3, write(number)).unwrap();
        }
        scene.turn();
        assert_eq!(scene.arrived(), 1, "{mode:?}");
        scene.settle();
        let sectors: Vec<u64> = scene.state().arrivals.iter().map(|it| it.sector).collect();
        let sent: Vec<u64> = (0..60).map(|number| write(number).sector).collect();
        assert_eq!(sectors, sent, "{mode:?}");
    }
}

#[test]
fn a_write_that_comes_when_one_has_ended_waits_behind_those_that_wait() {
    for order in ORDERS {
        // Of 64 tags 8 writes go on at a time, and those that wait do so when 2 have ended.
        let mut scene = Scene::new(config(order, None), disk(64), 2);
        let normal = |number| Bio { flags: Flags::NONE, ..write(number) };
        (0..11).for_each(|number| scene.submit(0, normal(number)).unwrap());
        scene.turn();
        while scene.ended.is_empty() {
            scene.step();
        }
        assert_eq!((scene.arrived(), scene.ended.len()), (8, 1), "{order:?}");
        scene.submit(1, normal(11)).unwrap();
        scene.turn();
        assert_eq!(scene.arrived(), 8, "{order:?}: it went past three that wait");
        scene.settle();
        assert_eq!(scene.ended.len(), 12, "{order:?}");
    }
}

#[test]
fn a_thread_that_looks_at_no_answer_keeps_no_other_waiting_for_ever() {
    for order in ORDERS {
        let mut scene = Scene::new(config(order, None), disk(64), 2);
        (0..30).for_each(|number| scene.submit(0, write(number)).unwrap());
        scene.submit(1, write(30)).unwrap();
        // Its own writes wait until it comes back.
        let mut idle = scene.submitters[0].take();
        let began = scene.now;
        while scene.ended.is_empty() {
            scene.step();
            assert!(scene.now.since(began) < 60_000 * MS, "{order:?}");
        }
        assert_eq!((scene.ended[0].cookie, scene.arrived()), (30, 5), "{order:?}");
        // It has as much as its class may have, and what it let pass besides.
        scene.submitters[0] = idle.take();
        scene.settle();
        assert_eq!((scene.ended.len(), scene.arrived()), (31, 31), "{order:?}");
        scene.submit(1, write(31)).unwrap();
        scene.rest();
        assert_eq!(scene.ended.len(), 32, "{order:?}: nothing is counted for ever");
    }
}

#[test]
fn reads_pass_the_writes_of_their_submitter_that_wait() {
    for order in ORDERS {
        let nr_requests = Some(8);
        let config = Config { nr_requests, ..config(order, None) };
        let mut scene = Scene::new(config, disk(64), 1);
        // More than it has slots.
        for number in 0..100 {
            scene.submit(0, write(number)).unwrap();
        }
        scene.submit(0, read(0)).unwrap();
        scene.turn();
        let reads = scene.state().arrivals.iter().filter(|it| it.op == Op::Read).count();
        assert_eq!(reads, 1, "{order:?}");
        scene.settle();
    }
}

#[test]
fn a_thousand_writes_that_wait_all_end() {
    for order in ORDERS {
        let mut scene = Scene::new(config(order, None), disk(64), 10);
        for number in 0..1_000 {
            scene.submit(number as usize % 10, write(number)).unwrap();
        }
        scene.turn();
        assert_eq!(scene.arrived(), 4, "{order:?}");
        scene.settle();
        let mut cookies: Vec<u64> = scene.ended.iter().map(|ended| ended.cookie).collect();
        cookies.sort_unstable();
        assert_eq!(cookies, (0..1_000).collect::<Vec<u64>>(), "{order:?}");
        assert!(scene.ended.iter().all(|ended| ended.status == Status::Ok), "{order:?}");
    }
}

#[test]
fn writes_alone_are_let_through_more_and_more() {
    for order in ORDERS {
        let mut scene = Scene::new(config(order, None), disk(64), 1);
        for number in 0..3_000 {
            while scene.submitters[0].as_ref().unwrap().in_flight() >= 100 {
                scene.step();
            }
            scene.submit(0, Bio { flags: Flags::SYNC, ..write(number) }).unwrap();
        }
        scene.settle();
        let most = scene.state().arrivals.iter().map(|it| it.beside).max();
        assert_eq!(most, Some(48), "{order:?}: three quarters of the tags");
    }
}

#[test]
fn the_windows_end_when_nothing_is_under_way_and_the_scale_is_back() {
    for order in ORDERS {
        let mut scene = Scene::new(config(order, None), disk(64), 1);
        assert_eq!(scene.lane.wake_at(), None, "{order:?}");
        (0..20).for_each(|number| scene.submit(0, write(number)).unwrap());
        scene.settle();
        assert!(scene.lane.wake_at().is_some(), "{order:?}: a window is open");
        let before = scene.now;
        scene.rest();
        assert!(scene.now.since(before) < 5_000 * MS, "{order:?}");
    }
}

/// Begins with writes that wait, and sees all of them end well.
fn with_writes_that_wait(what: impl Fn(&mut Scene, (QueueMode, &str))) {
    for order in ORDERS {
        let mut scene = Scene::new(config(order, None), disk(64), 2);
        for number in 0..50 {
            scene.submit(number as usize % 2, write(number)).unwrap();
        }
        scene.turn();
        assert_eq!(scene.arrived(), 4, "{order:?}");
        what(&mut scene, order);
        scene.settle();
        assert_eq!(scene.ended.len(), 50, "{order:?}");
        assert!(scene.ended.iter().all(|ended| ended.status == Status::Ok), "{order:?}");
    }
}

#[test]
fn switching_it_off_lets_all_go_on() {
    with_writes_that_wait(|scene, order| {
        let watch = Watch::new(&scene.bell, 60);
        let off = |parts: &mut weir_queue::Settings| parts.wbt.write(0).unwrap();
        let mut step = scene.device.begin_reconfigure(&watch, off);
        assert!(step.poll(scene.now).is_waiting(), "{order:?}");
        scene.turn();
        // The single queue of cfq serves one queue of writes at a time.
        let all = order.1 == "cfq" || scene.arrived() == 50;
        assert!(all, "{order:?}: all are on their way at once: {}", scene.arrived());
        scene.settle();
        let Progress::Ended(Ok(())) = step.poll(scene.now) else { panic!("{order:?}") };
        assert_eq!(scene.device.settings().wbt.us(), 0);
        let before = scene.arrived();
        (100..120).for_each(|number| scene.submit(0, write(number)).unwrap());
        scene.turn();
        assert!(order.1 == "cfq" || scene.arrived() == before + 20, "{order:?}");
        scene.settle();
        scene.ended.truncate(50);
        // And on again.
        let on = |parts: &mut weir_queue::Settings| parts.wbt.write(2000).unwrap();
        let Progress::Ended(Ok(())) = scene.device.begin_reconfigure(&watch, on).poll(scene.now)
        else {
            panic!("{order:?}: nothing is inside")
        };
        let before = scene.arrived();
        (200..220).for_each(|number| scene.submit(0, write(number)).unwrap());
        scene.turn();
        assert_eq!(scene.arrived(), before + 4, "{order:?}");
        scene.settle();
        scene.ended.truncate(50);
    });
}

#[test]
fn a_freeze_waits_no_longer_than_for_writes_that_do_not_wait() {
    with_writes_that_wait(|scene, order| {
        let begun = scene.now;
        let mut step = scene.device.begin_freeze(&Watch::new(&scene.bell, 60));
        assert!(step.poll(scene.now).is_waiting(), "{order:?}");
        scene.settle();
        let Progress::Ended(frozen) = step.poll(scene.now) else { panic!("{order:?}") };
        drop(frozen);
        assert!(scene.now.since(begun) <= 50 * 500 * US, "{order:?}: {:?}", scene.now);
    });
}

#[test]
fn a_close_ends_the_writes_that_wait_first() {
    with_writes_that_wait(|scene, order| {
        let watch = Watch::new(&scene.bell, 60);
        let mut step = scene.device.begin_close(&watch, weir_queue::Then::Ends);
        assert!(step.poll(scene.now).is_waiting(), "{order:?}");
        scene.settle();
        while step.poll(scene.now).is_waiting() {
            scene.turn();
        }
        assert!(scene.device.is_offline(), "{order:?}");
    });
}

#[test]
fn a_submitter_that_leaves_has_its_writes_sent_all_the_same() {
    for order in ORDERS {
        let mut scene = Scene::new(config(order, None), disk(64), 2);
        for number in 0..50 {
            scene.submit(number as usize % 2, write(number)).unwrap();
        }
        scene.turn();
        scene.submitters[0] = None;
        while scene.device.stats().in_flight > 0 {
            scene.step();
        }
        assert_eq!((scene.arrived(), scene.ended.len()), (50, 25), "{order:?}");
    }
}

#[test]
fn a_write_that_may_not_wait_ends_again_at_the_limit() {
    for order in ORDERS {
        let mut scene = Scene::new(config(order, None), disk(64), 1);
        for number in 0..6 {
            scene.submit(0, write(number).with(Flags::NOWAIT)).unwrap();
        }
        scene.settle();
        let mut again: Vec<u64> = Vec::new();
        for ended in &scene.ended {
            match ended.status {
                Status::Again => again.push(ended.cookie),
                status => assert_eq!(status, Status::Ok, "{order:?}"),
            }
        }
        assert_eq!((again, scene.arrived()), (vec![4, 5], 4), "{order:?}");
    }
}

#[test]
fn a_large_write_is_throttled_part_by_part_and_comes_back_whole() {
    for order in ORDERS {
        let mut scene = Scene::new(config(order, None), disk(64), 1);
        // 20 parts of 64 sectors.
        let large = Bio::write(0, Buf::filled(20 * 64 * 512, |bytes| bytes.fill(7)));
        scene.submit(0, Bio { flags: Flags::BACKGROUND, ..large }).unwrap();
        scene.turn();
        assert_eq!(scene.arrived(), 4, "{order:?}");
        scene.settle();
        assert_eq!((scene.arrived(), scene.ended.len()), (20, 1), "{order:?}");
        let ended = &scene.ended[0];
        assert_eq!((ended.status, ended.data.len()), (Status::Ok, 20 * 64 * 512), "{order:?}");
    }
}

#[test]
fn a_write_that_joins_one_in_the_plug_needs_no_place() {
    for order in ORDERS {
        let mut scene = Scene::new(config(order, None), disk(64), 1);
        let submitter = scene.submitters[0].as_mut().unwrap();
        for number in 0..8 {
            let bio = Bio::write(4096 + number * 8, Buf::zeroed(4096));
            submitter.submit(Bio { flags: Flags::BACKGROUND, ..bio }, scene.now).unwrap();
        }
        submitter.flush_plug(scene.now);
        scene.turn();
        let arrivals = scene.state().arrivals.clone();
        assert_eq!(arrivals.len(), 1, "{order:?}: {arrivals:?}");
        assert_eq!(arrivals[0].sectors, 64, "{order:?}");
        scene.settle();
        assert_eq!(scene.ended.len(), 8, "{order:?}");
    }
}

#[test]
fn a_full_single_queue_gives_the_place_of_a_write_back() {
    let nr_requests = Some(4);
    let config = Config { nr_requests, ..config((QueueMode::Sq, "noop"), None) };
    let mut scene = Scene::new(config, disk(64), 1);
    let sync = |number| Bio { flags: Flags::SYNC, ..write(number) };
    // Half as many again, for who fills it.
    (0..6).for_each(|number| scene.submit(0, sync(number)).unwrap());
    for number in 6..40 {
        // Far more than the throttle has places.
        let refused = scene.submit(0, sync(number)).unwrap_err();
        assert!(matches!(refused, Refused::Full(_)), "{refused:?}");
    }
    scene.settle();
    for round in 0..20 {
        (0..4).for_each(|number| scene.submit(0, sync(round * 4 + number)).unwrap());
        scene.settle();
    }
    assert_eq!(scene.ended.len(), 86);
}

#[test]
fn a_dead_device_lets_no_write_wait_for_ever() {
    for order in ORDERS {
        let timeout_ns = 1_000 * MS;
        let config = Config { timeout_ns, ..config(order, None) };
        let mut scene = Scene::new(config, disk(64), 1);
        scene.state().dead = true;
        (0..50).for_each(|number| scene.submit(0, write(number)).unwrap());
        let begun = scene.now;
        scene.settle();
        assert_eq!(scene.ended.len(), 50, "{order:?}");
        assert!(scene.ended.iter().all(|ended| ended.status == Status::Timeout), "{order:?}");
        // Those with the device first, then all others; each within its time and a scan.
        let took = scene.now.since(begun);
        let rounds = if order.1 == "cfq" { 12 } else { 2 };
        assert!(took <= rounds * (timeout_ns + 1_000 * MS), "{order:?}: {took} ns");
    }
}

#[test]
fn the_rest_of_a_large_write_that_ran_out_of_time_leaves_the_line() {
    for order in ORDERS {
        let config = Config { timeout_ns: 1_000 * MS, ..config(order, None) };
        let mut scene = Scene::new(config, disk(64), 2);
        scene.state().dead = true;
        // More often than writes of their class may be under way.
        for number in 0..6 {
            let large = Bio::write(0, Buf::zeroed(20 * 64 * 512));
            scene.submit(0, Bio { flags: Flags::BACKGROUND, ..large }).unwrap();
            scene.submit(1, write(7_000 + number)).unwrap();
            scene.settle();
        }
        assert_eq!(scene.ended.len(), 12, "{order:?}");
        assert!(scene.ended.iter().all(|ended| ended.status == Status::Timeout), "{order:?}");
        scene.state().dead = false;
        scene.ended.clear();
        // What was let through for the rests is for no other that waits.
        for number in 0..8 {
            let discard = Bio::new(Op::Discard, number * 4096, 8, weir_bio::Data::None);
            scene.submit(0, discard).unwrap();
        }
        (0..100).for_each(|number| scene.submit(1, write(number)).unwrap());
        scene.settle();
        assert_eq!(scene.ended.len(), 108, "{order:?}");
        assert!(scene.ended.iter().all(|ended| ended.status == Status::Ok), "{order:?}");
    }
}

#[test]
fn bfq_takes_the_default_throttle_away_while_it_is_attached() {
    let mut scene = Scene::new(config((QueueMode::Mq, "none"), None), disk(64), 1);
    let attach = |scene: &Scene, name: &str| {
        let mut step = scene.device.begin_switch(&Watch::new(&scene.bell, 60), name);
        assert!(matches!(step.poll(scene.now), Progress::Ended(Ok(Some(_)))));
        scene.device.settings().wbt
    };
    let shown = |wbt: WbtTarget| (wbt.state(), wbt.us());
    assert_eq!(shown(scene.device.settings().wbt), (WbtState::OnDefault, 2000));
    assert_eq!(shown(attach(&scene, "bfq")), (WbtState::OffDefault, 0));
    (0..40).for_each(|number| scene.submit(0, write(number)).unwrap());
    scene.settle();
    assert!(scene.state().arrivals.iter().any(|it| it.beside > 4), "nothing is held back");
    assert_eq!(shown(attach(&scene, "kyber")), (WbtState::OnDefault, 2000));
    let before = scene.arrived();
    (0..40).for_each(|number| scene.submit(0, write(number)).unwrap());
    scene.turn();
    assert_eq!(scene.arrived() - before, 4);
    scene.settle();
    let stated = Scene::new(config((QueueMode::Mq, "bfq"), Some(2000)), disk(64), 0);
    assert_eq!(shown(stated.device.settings().wbt), (WbtState::OnManual, 2000));
    let begun = Scene::new(config((QueueMode::Mq, "bfq"), None), disk(64), 0);
    assert_eq!(shown(begun.device.settings().wbt), (WbtState::OffDefault, 0));
}

#[test]
fn a_disk_without_a_throttle_refuses_one() {
    let order = (QueueMode::Mq, "none");
    let bio_based = Disk { bio_based: true, ..disk(64) };
    for (spread, disk) in [(Spread::RoundRobin, disk(64)), (Spread::Submitter, bio_based)] {
        let config = |us| Config { spread, ..config(order, us) };
        let stated = Device::new(config(Some(2000)), Arc::new(disk.clone())).map(drop);
        let refused = stated.unwrap_err().to_string();
        assert!(refused.contains("wbt_lat_usec=2000: sda throttles no writes"), "{refused}");
        let mut scene = Scene::new(config(None), disk, 1);
        assert!(!scene.device.has_wbt() && scene.device.settings().wbt.us() == 0);
        scene.device.reconfigure(|parts| parts.wbt.write(2000).unwrap()).unwrap_err();
        (0..40).for_each(|number| scene.submit(0, write(number)).unwrap());
        scene.turn();
        assert_eq!(scene.arrived(), 40);
        scene.settle();
    }
    assert!(Scene::new(config(order, Some(0)), disk(64), 0).device.has_wbt());
}

/// The submitter and its lane, by the short way of a lone request or by the long one.
fn pass(scene: &mut Scene, short: bool) {
    let Scene { lane, submitters, ended, now, .. } = scene;
    let submitter = submitters[0].as_mut().expect("a submitter");
    let each = |completion: Completion| ended.push(completion);
    if short {
        submitter.pass(Some(lane), *now, || *now, each);
    } else {
        submitter.flush_plug(*now);
        lane.run(*now);
        submitter.complete(*now, each);
    }
}

/// Reads and background writes that come one at a time: what came to the disk, what ended, and the
/// figures.
fn life_of_lone_requests(scheduler: &str, seed: u64, short: bool) -> (Vec<u64>, Vec<u64>, String) {
    let config = config((QueueMode::Mq, scheduler), Some(200));
    let (mut scene, mut prng) = (Scene::new(config, disk(8), 1), Prng::new(seed));
    for number in 0..2_000 {
        let most = [MS, MS, 100 * US, 100 * US, 40 * MS][prng.below(5) as usize];
        scene.now = scene.now + 1 + prng.below(most);
        if prng.percent(80) {
            let bio = if prng.percent(30) { read(number) } else { write(number) };
            let submitted = scene.submitters[0].as_mut().unwrap().submit(bio, scene.now);
            assert!(matches!(submitted, Ok(()) | Err(Refused::Full(_))));
        }
        pass(&mut scene, short);
    }
    let came = scene.state().arrivals.iter().map(|arrival| arrival.sector).collect();
    let ended = scene.ended.iter().map(|completion| completion.cookie).collect();
    let stats = format!("{:?}", scene.device.stats());
    scene.rest();
    (came, ended, stats)
}

#[test]
fn lone_requests_are_throttled_as_others_are() {
    for scheduler in ["none", "mq-deadline", "kyber"] {
        for seed in 0..20 {
            let [short, long] =
                [true, false].map(|short| life_of_lone_requests(scheduler, seed, short));
            assert_eq!(short, long, "{scheduler}, seed {seed}");
        }
    }
}
