//! Threads with a hard queue each, some of which never come back: the throttle keeps no other
//! waiting for them.

use super::*;

/// Two hard queues of a device, each with the submitter of its thread.
struct Threads {
    disk: Disk,
    device: Device,
    bells: [Arc<Bell>; 2],
    lanes: [Option<Lane>; 2],
    submitters: [Option<Submitter>; 2],
    ended: [Vec<Completion>; 2],
    now: Nanos,
}

/// A thread that comes back in no time at all counts as one that never does.
const EVER: u64 = 600_000 * MS;

impl Threads {
    /// With so few tags that windows without reads let no more through than at first.
    fn few_tags() -> Threads {
        Threads::new(disk(16))
    }

    fn new(disk: Disk) -> Threads {
        let config = Config { queues: 2, ..config((QueueMode::Mq, "none"), None) };
        let device = Device::new(config, Arc::new(disk.clone())).unwrap();
        let bells = [0; 2].map(|_| Bell::new(Box::new(NoWake), 2));
        let lanes = [0, 1].map(|lane| Some(device.open_lane(lane, &bells[lane]).unwrap()));
        let submitters = [0, 1].map(|lane| Some(device.submitter(&bells[lane], 0, lane).unwrap()));
        let ended = Default::default();
        Threads { disk, device, bells, lanes, submitters, ended, now: Nanos(MS) }
    }

    fn submit(&mut self, thread: usize, bio: Bio) {
        let submitter = self.submitters[thread].as_mut().expect("a submitter");
        submitter.submit(bio, self.now).unwrap();
        submitter.flush_plug(self.now);
    }

    /// One thread comes round.
    fn turn(&mut self, thread: usize) {
        let lane = self.lanes[thread].as_mut().expect("a lane");
        let submitter = self.submitters[thread].as_mut().expect("a submitter");
        loop {
            lane.run(self.now);
            submitter.complete(self.now, |completion| self.ended[thread].push(completion));
            if !lane.has_work() {
                return;
            }
        }
    }

    /// Time goes on to what this thread waits for, and it alone comes round.
    fn step(&mut self, thread: usize) {
        self.turn(thread);
        let at = self.lanes[thread].as_ref().and_then(Lane::wake_at);
        self.now = at.expect("what it waits for does not come").max(self.now + 1);
        self.turn(thread);
    }

    /// All that this thread was given ends, though it alone comes round.
    fn settle(&mut self, thread: usize) {
        let began = self.now;
        while self.submitters[thread].as_ref().unwrap().in_flight() > 0 {
            self.step(thread);
            assert!(self.now.since(began) < EVER, "after {} ns", self.now.since(began));
        }
    }

    fn arrived(&self) -> usize {
        self.disk.state.lock().unwrap().arrivals.len()
    }

    /// Where those writes went, in the order in which they came to the device.
    fn sectors(&self, which: impl Fn(u64) -> bool) -> Vec<u64> {
        let state = self.disk.state.lock().unwrap();
        let sectors = state.arrivals.iter().filter(|it| it.op == Op::Write).map(|it| it.sector);
        sectors
            .filter(|sector| (0..1_000).any(|it| which(it) && write(it).sector == *sector))
            .collect()
    }

    /// Both threads come round, until all has ended and no window is open any more.
    fn end(&mut self) {
        let began = self.now;
        loop {
            for thread in [0, 1] {
                if self.lanes[thread].is_some() {
                    self.turn(thread);
                }
            }
            let wakes = self.lanes.iter().flatten().filter_map(Lane::wake_at);
            let inside = self.submitters.iter().flatten().map(Submitter::in_flight).sum::<u64>();
            let Some(at) = wakes.min() else {
                assert_eq!(inside, 0, "they wait for ever");
                return;
            };
            self.now = at.max(self.now + 1);
            assert!(self.now.since(began) < EVER, "{inside} are in flight");
        }
    }

    /// How many of 40 writes a thread may have with the device at once.
    fn most(&mut self, thread: usize) -> usize {
        let before = self.arrived();
        (0..40).for_each(|number| self.submit(thread, write(1_000 + number)));
        self.turn(thread);
        let most = self.arrived() - before;
        self.end();
        most
    }
}

/// The thread that is gone, and the one that is here.
const SIDES: [(usize, usize); 2] = [(0, 1), (1, 0)];

#[test]
fn writes_that_are_granted_to_a_thread_that_is_gone_keep_no_other_waiting() {
    for (gone, here) in SIDES {
        let mut threads = Threads::few_tags();
        (0..4).for_each(|number| threads.submit(here, write(number)));
        (4..34).for_each(|number| threads.submit(gone, write(number)));
        (34..84).for_each(|number| threads.submit(here, write(number)));
        let began = threads.now;
        threads.settle(here);
        // And one by one.
        for number in 84..104 {
            threads.submit(here, write(number));
            threads.settle(here);
        }
        assert_eq!(threads.ended[here].len(), 74, "{gone} is gone");
        assert!(threads.now.since(began) < 1_000 * MS, "{gone} is gone: {:?}", threads.now);
        threads.end();
        assert_eq!(threads.ended[gone].len(), 30, "{gone} is back");
        assert_eq!([0, 1].map(|thread| threads.most(thread)), [4; 2], "{gone} is back");
    }
}

#[test]
fn writes_that_a_thread_does_not_go_on_with_keep_no_other_waiting() {
    for (gone, here) in SIDES {
        for turned in [false, true] {
            for volatile_cache in [false, true] {
                let mut disk = disk(16);
                disk.limits.volatile_cache = volatile_cache;
                let mut threads = Threads::new(disk);
                (0..30).for_each(|number| threads.submit(gone, write(number)));
                if turned {
                    // With the device, which answers soon.
                    threads.turn(gone);
                }
                (30..80).for_each(|number| threads.submit(here, write(number)));
                for number in 0..9 {
                    let none = weir_bio::Data::None;
                    threads.submit(here, Bio::new(Op::Discard, number * 4096, 8, none));
                }
                let began = threads.now;
                threads.settle(here);
                let what = format!("{gone} is gone: turned {turned}, cache {volatile_cache}");
                threads.submit(here, write(80));
                threads.settle(here);
                // Behind those of its own that wait.
                threads.submit(gone, write(300));
                assert_eq!(threads.ended[here].len(), 60, "{what}");
                assert!(threads.now.since(began) < 1_000 * MS, "{what}: {:?}", threads.now);
                threads.end();
                assert_eq!(threads.ended[gone].len(), 31, "{what}");
                assert!(threads.sectors(|it| it < 30 || it == 300).is_sorted(), "{what}");
                assert_eq!([0, 1].map(|thread| threads.most(thread)), [4; 2], "{what}");
            }
        }
    }
}

/// A device that takes a second for a write.
fn slow() -> Threads {
    let threads = Threads::few_tags();
    threads.disk.state.lock().unwrap().service_ns = 1_000 * MS;
    threads
}

#[test]
fn a_thread_that_is_asked_and_turns_keeps_its_places() {
    for (other, here) in SIDES {
        let mut threads = slow();
        (0..4).for_each(|number| threads.submit(other, write(number)));
        threads.turn(other);
        threads.submit(here, write(4));
        for _ in 0..8 {
            threads.turn(here);
            // As a thread that sleeps until its bell rings.
            if threads.lanes[other].as_ref().unwrap().has_work() {
                threads.turn(other);
            }
            threads.now = threads.now + 101 * MS;
        }
        assert_eq!(threads.arrived(), 4, "the device is slow, and {other} is there");
        threads.end();
    }
}

#[test]
fn a_closed_hard_queue_has_no_writes_that_would_keep_others_waiting() {
    // Nor is it what makes the device slow.
    let mut threads = slow();
    (threads.lanes[0], threads.submitters[0]) = (None, None);
    (0..8).for_each(|number| threads.submit(1, write(number)));
    let began = threads.now;
    while threads.now.since(began) < 900 * MS {
        threads.step(1);
        assert!(threads.arrived() <= 4);
    }
    threads.settle(1);
    assert_eq!(threads.ended[1].len(), 8);
}

#[test]
fn writes_that_wait_for_a_hard_queue_that_is_not_open_keep_no_others_waiting() {
    let mut threads = Threads::few_tags();
    threads.lanes[0] = None;
    (0..4).for_each(|number| threads.submit(0, write(number)));
    (30..80).for_each(|number| threads.submit(1, write(number)));
    threads.settle(1);
    assert_eq!(threads.ended[1].len(), 50);
    // It has as many as its class may have, however long that goes on.
    (100..140).for_each(|number| threads.submit(0, write(number)));
    threads.lanes[0] = Some(threads.device.open_lane(0, &threads.bells[0]).unwrap());
    let before = threads.arrived();
    threads.turn(0);
    assert_eq!(threads.arrived() - before, 4);
    threads.end();
    assert_eq!(threads.ended[0].len(), 44);
}

#[test]
fn a_thread_that_comes_back_goes_on_with_writes_that_wait_though_the_others_are_gone() {
    for (gone, here) in SIDES {
        let mut threads = Threads::few_tags();
        threads.disk.state.lock().unwrap().dead = true;
        (0..4).for_each(|number| threads.submit(here, write(number)));
        (4..14).for_each(|number| threads.submit(gone, write(number)));
        threads.submit(here, write(14));
        for _ in 0..4 {
            threads.turn(here);
            threads.now = threads.now + 101 * MS;
        }
        assert_eq!(threads.arrived(), 5, "{gone} is gone");
        threads.disk.state.lock().unwrap().dead = false;
        threads.settle(here);
        for _ in 0..100 {
            threads.turn(here);
            threads.now = threads.now + 101 * MS;
        }
        threads.settle(gone);
        assert_eq!(threads.ended[gone].len(), 10, "{gone} is back");
        threads.end();
    }
}

#[test]
fn a_thread_without_writes_that_wait_is_no_longer_gone_when_it_comes_back() {
    let mut threads = Threads::few_tags();
    (0..4).for_each(|number| threads.submit(0, write(number)));
    (4..8).for_each(|number| threads.submit(1, write(number)));
    threads.settle(1);
    threads.turn(0);
    while threads.submitters[0].as_ref().unwrap().in_flight() > 0 {
        threads.now = threads.now + MS;
        threads.turn(0);
    }
    // In the same window.
    let before = threads.arrived();
    (10..30).for_each(|number| threads.submit(0, write(number)));
    (30..50).for_each(|number| threads.submit(1, write(number)));
    [0, 1].into_iter().for_each(|thread| threads.turn(thread));
    assert!(threads.arrived() - before <= 4, "{}", threads.arrived() - before);
    threads.end();
}

#[test]
fn reads_are_kept_to_their_latency_without_the_first_hard_queue() {
    let mut threads = Threads::new(disk(64));
    (threads.lanes[0], threads.submitters[0]) = (None, None);
    let (end, mut writes, mut begun, mut seen) = (threads.now + 2_000 * MS, 0, None, Vec::new());
    while threads.now < end {
        while threads.submitters[1].as_ref().unwrap().in_flight() < 64 {
            threads.submit(1, Bio { flags: Flags::SYNC, ..write(writes) });
            writes += 1;
        }
        if begun.is_none() {
            threads.submit(1, read(seen.len() as u64));
            begun = Some(threads.now);
        }
        threads.step(1);
        if threads.ended[1].drain(..).any(|ended| ended.op == Op::Read) {
            seen.push(threads.now.since(begun.take().unwrap()) / US);
        }
    }
    let late = &seen[seen.len() / 2..];
    let mean = late.iter().sum::<u64>() / late.len() as u64;
    // 16 writes at first, which take 8 ms.
    assert!(mean <= 4_000, "{mean} us");
    threads.end();
}

#[test]
fn a_lane_comes_back_for_a_window_only_while_a_write_of_its_own_waits() {
    let mut threads = Threads::new(disk(64));
    threads.disk.state.lock().unwrap().dead = true;
    (0..4).for_each(|number| threads.submit(1, write(number)));
    [0, 1].into_iter().for_each(|thread| threads.turn(thread));
    let within = |threads: &Threads, lane: usize| {
        let at = threads.lanes[lane].as_ref().unwrap().wake_at();
        at.is_some_and(|at| at <= threads.now + 100 * MS)
    };
    assert_eq!([0, 1].map(|lane| within(&threads, lane)), [true, false]);
    threads.submit(1, write(4));
    assert!(threads.lanes[1].as_ref().unwrap().has_work(), "it is told");
    [0, 1].into_iter().for_each(|thread| threads.turn(thread));
    assert_eq!([0, 1].map(|lane| within(&threads, lane)), [true, true]);
    threads.disk.state.lock().unwrap().dead = false;
    threads.now = threads.now + 10 * MS;
    threads.settle(1);
    threads.turn(1);
    assert_eq!([0, 1].map(|lane| within(&threads, lane)), [true, false]);
    threads.end();
}

impl Threads {
    /// This thread comes round again and again, with no writes, until no window is open any more.
    fn rest(&mut self, thread: usize) {
        for _ in 0..200 {
            self.turn(thread);
            self.now = self.now + 101 * MS;
        }
    }
}

#[test]
fn a_thread_that_comes_back_when_no_window_is_open_goes_on() {
    for (gone, here) in SIDES {
        for turned in [false, true] {
            let mut threads = Threads::few_tags();
            (0..4).for_each(|number| threads.submit(gone, write(number)));
            if turned {
                threads.turn(gone);
            }
            (4..8).for_each(|number| threads.submit(here, write(number)));
            threads.settle(here);
            threads.rest(here);
            // It is back, with one more.
            threads.submit(gone, write(8));
            threads.settle(gone);
            assert_eq!(threads.ended[gone].len(), 5, "{gone} is back");
        }
    }
}

#[test]
fn a_first_write_does_not_wait_for_one_who_is_gone_when_no_window_is_open() {
    // Lane 0: stays away with four writes. Lane 1: writes. Lane 2: open, its thread comes later.
    let disk = disk(16);
    let config = Config { queues: 3, ..config((QueueMode::Mq, "none"), None) };
    let device = Device::new(config, Arc::new(disk.clone())).unwrap();
    let bells = [0; 3].map(|_| Bell::new(Box::new(NoWake), 2));
    let mut lanes = [0, 1, 2].map(|lane| device.open_lane(lane, &bells[lane]).unwrap());
    let mut subs = [0, 1, 2].map(|lane| device.submitter(&bells[lane], 0, lane).unwrap());
    let mut now = Nanos(MS);
    for (thread, numbers) in [(0, 0..4), (1, 4..8)] {
        for number in numbers {
            subs[thread].submit(write(number), now).unwrap();
        }
        subs[thread].flush_plug(now);
    }
    for _ in 0..300 {
        lanes[1].run(now);
        subs[1].complete(now, drop);
        now = now + 51 * MS;
    }
    assert_eq!(subs[1].in_flight(), 0);
    subs[2].submit(write(8), now).unwrap();
    subs[2].flush_plug(now);
    // Those of lanes 1 and 2 come round again and again, then that of lane 0 as well.
    for first in [1, 0] {
        for _ in 0..300 {
            for thread in first..3 {
                lanes[thread].run(now);
                subs[thread].complete(now, drop);
            }
            now = now + 51 * MS;
        }
        println!("from lane {first}: {:?}", subs.each_ref().map(Submitter::in_flight));
    }
    assert_eq!(subs.each_ref().map(Submitter::in_flight), [0; 3], "it waits for ever");
}

#[test]
fn writes_that_are_taken_when_no_window_is_open_keep_no_other_waiting() {
    for (gone, here) in SIDES {
        let mut threads = Threads::few_tags();
        (0..4).for_each(|number| threads.submit(here, write(number)));
        (4..8).for_each(|number| threads.submit(gone, write(number)));
        threads.settle(here);
        threads.rest(here);
        // It takes what it was granted, and is gone again.
        threads.turn(gone);
        threads.submit(here, write(8));
        threads.settle(here);
        assert_eq!(threads.ended[here].len(), 5, "{gone} is gone");
        threads.end();
    }
}
