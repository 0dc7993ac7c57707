//! The promises to a device at admission: no request beyond its limits, no flag that a bio of it
//! did not ask for, and memory that its driver can reach.

use std::sync::{Arc, Mutex};

use weir_bio::{Bio, Buf, Data, Flags, Limits, Nanos, Op, Prng, Segments, Status};
use weir_queue::driver::Affinity;
use weir_queue::{
    Batch, Bell, Completion, Config, Device, Done, Driver, DriverError, DriverQueue, Lane, NoWake,
    QueueMode, Queues, Submitter, Tag,
};

/// A request as it came to the driver.
#[derive(Debug)]
struct Seen {
    sectors: u32,
    flags: Flags,
    bios: usize,
    at: Nanos,
    /// Address and length of each piece of memory.
    pieces: Vec<(u64, u64)>,
}

/// A disk that notes what comes, and answers at the next reap unless it is held.
#[derive(Default)]
struct World {
    bytes: Vec<u8>,
    seen: Vec<Seen>,
    held: bool,
    /// How everything ends.
    fails: Option<Status>,
    taken: Vec<Tag>,
}

#[derive(Clone)]
struct Recorder {
    limits: Limits,
    depth: u16,
    world: Arc<Mutex<World>>,
}

impl Driver for Recorder {
    fn limits(&self) -> Limits {
        self.limits.clone()
    }

    fn queues(&self) -> Queues {
        Queues { max: 1, depth: self.depth, reserved: 0, shared_tags: false, home: Affinity::Any }
    }

    fn open(&self, _index: u16, _depth: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
        Ok(Box::new(self.clone()))
    }
}

impl DriverQueue for Recorder {
    fn submit(&mut self, batch: &mut Batch<'_>, now: Nanos) {
        let mut world = self.world.lock().unwrap();
        let World { bytes, seen, taken, .. } = &mut *world;
        batch.take_all(|tag, request| {
            let (rq, bios) = (*request.rq(), request.bios());
            let (mut at, mut pieces) = (request.offset() as usize, Vec::new());
            request.for_each_data(|data| {
                assert!(self.limits.takes_segments || data.bufs().is_some(), "{data:?}");
                let each = data.segments();
                pieces.extend(each.map(|each| (each.start.as_ptr() as u64, u64::from(each.len))));
                let place = &mut bytes[at..at + data.len()];
                match rq.op {
                    Op::Read => data.copy_from_at(0, place),
                    _ => data.copy_to(place),
                }
                at += data.len();
            });
            seen.push(Seen { sectors: rq.sectors, flags: rq.flags, bios, at: now, pieces });
            taken.push(tag);
        });
    }

    fn commit(&mut self, _now: Nanos) {}

    fn reap(&mut self, _now: Nanos, done: &mut Done) {
        let mut world = self.world.lock().unwrap();
        if !world.held {
            let status = world.fails.unwrap_or(Status::Ok);
            world.taken.drain(..).for_each(|tag| done.push(tag, status));
        }
    }

    fn in_flight(&self) -> usize {
        self.world.lock().unwrap().taken.len()
    }
}

struct Scene {
    world: Arc<Mutex<World>>,
    lane: Lane,
    submitter: Submitter,
    device: Device,
    now: Nanos,
}

fn limits() -> Limits {
    Limits { capacity: 2048, max_hw_sectors: 256, seg_boundary_mask: u64::MAX, ..Limits::default() }
}

impl Scene {
    fn new(limits: Limits) -> Scene {
        Scene::of(limits, 64, Config { scheduler: Some("none".into()), ..Config::default() })
    }

    fn of(limits: Limits, depth: u16, config: Config) -> Scene {
        let bytes = vec![0; (limits.capacity * 512) as usize];
        let world = Arc::new(Mutex::new(World { bytes, ..World::default() }));
        let driver = Recorder { limits, depth, world: Arc::clone(&world) };
        let device = Device::new(config, Arc::new(driver)).unwrap();
        let bell = Bell::new(Box::new(NoWake), 8);
        let lane = device.open_lane(0, &bell).unwrap();
        let submitter = device.submitter(&bell, 0, 0).unwrap();
        Scene { world, lane, submitter, device, now: Nanos(1_000_000_000) }
    }

    fn submit(&mut self, bio: Bio) {
        self.submitter.submit(bio, self.now).expect("room for a bio");
    }

    fn step(&mut self) -> Vec<Completion> {
        self.now = self.now + 1_000_000;
        self.submitter.flush_plug(self.now);
        self.lane.run(self.now);
        let mut ended = Vec::new();
        self.submitter.complete(self.now, |completion| ended.push(completion));
        ended
    }

    /// Turns until so many have ended.
    fn ended(&mut self, count: usize) -> Vec<Completion> {
        let mut ended = Vec::new();
        for _ in 0..100 {
            ended.extend(self.step());
        }
        assert_eq!(ended.len(), count, "{ended:?}");
        ended.sort_by_key(|completion| completion.cookie);
        ended
    }

    fn status_of(&mut self, bio: Bio) -> Status {
        self.submit(bio);
        self.ended(1)[0].status
    }

    fn seen(&self) -> Vec<Seen> {
        std::mem::take(&mut self.world.lock().unwrap().seen)
    }
}

/// Memory in pieces of these lengths in bytes, each starting on a page.
fn pieces(lengths: &[usize]) -> Data {
    Data::Many(lengths.iter().map(|len| Buf::zeroed(*len)).collect())
}

/// Memory that starts so many bytes behind a page, each byte another than the one before.
fn off_the_page(offset: usize, len: usize) -> Buf {
    let buf = &mut Buf::filled(offset + len, |bytes| {
        bytes.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at % 251) as u8);
    });
    buf.split_off(offset)
}

fn write(sector: u64, data: Data) -> Bio {
    Bio::new(Op::Write, sector, (data.len() / 512) as u32, data).with(Flags::SYNC)
}

fn plain(cookie: u64, sector: u64) -> Bio {
    Bio::write(sector, Buf::zeroed(4096)).cookie(cookie)
}

#[test]
fn a_device_without_atomic_writes_refuses_them() {
    let mut scene = Scene::new(limits());
    assert_eq!(scene.status_of(plain(1, 0).with(Flags::ATOMIC)), Status::Inval);
    assert!(scene.seen().is_empty(), "and its driver sees none");
}

#[test]
fn a_block_in_more_pieces_than_a_request_may_have_is_refused() {
    let limits = Limits { logical_block_size: 4096, max_segments: 2, ..limits() };
    let mut scene = Scene::new(limits);
    assert_eq!(scene.status_of(write(0, pieces(&[1024; 4]))), Status::Inval);
    assert_eq!(scene.status_of(write(0, pieces(&[2048; 2]))), Status::Ok);
    scene.seen();
    // The third block is at fault: the two before it are not written either.
    let late = [4096, 4096, 1024, 1024, 2048];
    assert_eq!(scene.status_of(write(0, pieces(&late))), Status::Inval);
    assert!(scene.seen().is_empty());
}

#[test]
fn a_gap_inside_a_block_is_refused() {
    let limits = Limits { logical_block_size: 4096, virt_boundary_mask: 4095, ..limits() };
    let mut scene = Scene::new(limits);
    assert_eq!(scene.status_of(write(0, pieces(&[512, 3584]))), Status::Inval);
    assert_eq!(scene.status_of(write(0, pieces(&[4096, 4096, 512, 3584]))), Status::Inval);
    assert!(scene.seen().is_empty());
    assert_eq!(scene.status_of(write(0, pieces(&[4096, 8192]))), Status::Ok);
}

#[test]
fn memory_off_the_alignment_goes_through_memory_that_is_aligned() {
    for mask in [511, 4095] {
        // Cut after 3 blocks, which is off a mask of 4095 wherever the memory starts.
        let limits = Limits { dma_alignment: mask, max_hw_sectors: 11, ..limits() };
        let mut scene = Scene::new(limits);
        let buf = off_the_page(100, 16 * 512);
        let (address, bytes) = (buf.as_ptr(), buf.to_vec());
        scene.submit(write(8, Data::One(buf)));
        let ended = scene.ended(1).remove(0);
        assert_eq!(ended.status, Status::Ok);
        assert_eq!(
            (ended.data.bufs().unwrap().len(), ended.data.bufs().unwrap()[0].as_ptr()),
            (1, address)
        );
        assert_eq!(scene.world.lock().unwrap().bytes[8 * 512..24 * 512], bytes);
        let mut buf = off_the_page(4, 16 * 512);
        buf.fill(0);
        let address = buf.as_ptr();
        scene.submit(Bio::new(Op::Read, 8, 16, Data::One(buf)));
        let ended = scene.ended(1).remove(0);
        assert_eq!(ended.data.bufs().unwrap()[0].as_ptr(), address, "it gets its own memory back");
        assert_eq!(ended.data.bufs().unwrap()[0][..], bytes, "with what was read");
        for (start, _) in scene.seen().iter().flat_map(|seen| &seen.pieces) {
            assert_eq!(start & u64::from(mask), 0);
        }
    }
}

#[test]
fn a_segment_ends_where_the_boundary_is() {
    let limits = Limits { seg_boundary_mask: 4095, max_segments: 2, ..limits() };
    let mut scene = Scene::new(limits);
    // From the middle of a page: 3 segments.
    assert_eq!(scene.status_of(write(0, Data::One(off_the_page(2048, 8192)))), Status::Ok);
    let sectors: Vec<u32> = scene.seen().iter().map(|seen| seen.sectors).collect();
    assert_eq!(sectors, [12, 4]);
    // Two segments each: they do not go into one.
    for sector in [0, 8] {
        scene.submit(write(sector, Data::One(off_the_page(2048, 4096))));
    }
    scene.ended(2);
    assert_eq!(scene.seen().len(), 2);
}

/// Every scheduler, by the path it is for.
const SCHEDULERS: [(QueueMode, &str); 7] = [
    (QueueMode::Mq, "none"),
    (QueueMode::Mq, "mq-deadline"),
    (QueueMode::Mq, "kyber"),
    (QueueMode::Mq, "bfq"),
    (QueueMode::Sq, "noop"),
    (QueueMode::Sq, "deadline"),
    (QueueMode::Sq, "cfq"),
];

fn scheduled(mode: QueueMode, name: &str) -> Scene {
    let config = Config { mode, scheduler: Some(name.into()), ..Config::default() };
    Scene::of(limits(), 1, config)
}

#[test]
fn bios_that_differ_in_failfast_are_not_merged_and_each_keeps_its_own() {
    let fast = Flags::FAILFAST_DEV | Flags::FAILFAST_TRANSPORT;
    let cases = [
        [fast, Flags::NONE, fast],
        [Flags::NONE, fast, fast],
        [fast, Flags::FAILFAST, Flags::FAILFAST_DEV],
        [fast, fast, fast],
    ];
    for (mode, name) in SCHEDULERS {
        for flags in cases {
            // Each on its own into the scheduler, or all in one plug.
            for plugged in [false, true] {
                let mut scene = scheduled(mode, name);
                scene.world.lock().unwrap().held = true;
                scene.submit(plain(9, 1024));
                scene.step();
                // Behind it, and before it.
                for (cookie, (flags, sector)) in (0..).zip(flags.into_iter().zip([8, 16, 0])) {
                    scene.submit(plain(cookie, sector).with(flags));
                    if !plugged {
                        scene.step();
                    }
                }
                scene.step();
                scene.world.lock().unwrap().held = false;
                scene.ended(4);
                let seen = scene.seen();
                let arrived = |wanted: Flags| {
                    let is_it = |seen: &&Seen| seen.flags.0 & Flags::FAILFAST.0 == wanted.0;
                    seen[1..].iter().filter(is_it).map(|seen| seen.sectors).sum::<u32>()
                };
                for wanted in flags {
                    let asked = flags.iter().filter(|flags| **flags == wanted).count() as u32 * 8;
                    assert_eq!(arrived(wanted), asked, "{name} {wanted:?}: {seen:?}");
                }
                let merged = seen.iter().map(|seen| seen.bios).max();
                assert!(flags != [fast; 3] || merged == Some(3), "{name}: {seen:?}");
            }
        }
    }
}

#[test]
fn an_error_of_the_path_reaches_the_bio_as_it_is_and_nothing_is_sent_again() {
    for (mode, name) in SCHEDULERS {
        for status in [Status::Transport, Status::Target, Status::Medium, Status::ResvConflict] {
            let mut scene = scheduled(mode, name);
            scene.world.lock().unwrap().fails = Some(status);
            for (cookie, flags) in [(0, Flags::FAILFAST_TRANSPORT), (1, Flags::NONE)] {
                scene.submit(plain(cookie, 64 + cookie * 64).with(flags));
            }
            let mut ended = Vec::new();
            for _ in 0..4 {
                scene.submitter.flush_plug(scene.now);
                scene.lane.run(scene.now);
                scene.submitter.complete(scene.now, |ending| ended.push(ending.status));
            }
            assert_eq!((ended, scene.seen().len()), (vec![status; 2], 2), "{name}");
        }
    }
}

#[test]
fn read_ahead_fails_fast() {
    let mut scene = Scene::new(limits());
    scene.submit(Bio::read(0, Buf::zeroed(4096)).with(Flags::RAHEAD));
    scene.ended(1);
    assert!(scene.seen()[0].flags.has(Flags::FAILFAST));
}

fn four_tags() -> Scene {
    let scheduler = Some("mq-deadline".into());
    Scene::of(limits(), 1, Config { scheduler, nr_requests: Some(4), ..Config::default() })
}

#[test]
fn a_slot_that_bios_were_once_merged_into_does_not_make_the_next_one_wait() {
    let mut scene = four_tags();
    // In turn each slot takes another in.
    for round in 0..40_u64 {
        (0..round % 3).for_each(|n| scene.submit(plain(9, 1500 + n * 16)));
        (0..4).for_each(|n| scene.submit(plain(n, n / 2 * 100 + n % 2 * 8)));
        scene.ended(4 + (round % 3) as usize);
    }
    scene.world.lock().unwrap().held = true;
    let mut ended = Vec::new();
    for n in 0..8 {
        scene.submit(plain(n, 100 + n * 16).with(Flags::NOWAIT));
        ended.extend(scene.step());
    }
    assert_eq!(ended.len(), 4, "there are four tags");
    assert!(ended.iter().all(|ended| ended.status == Status::Again));
    scene.world.lock().unwrap().held = false;
    assert!(scene.ended(4).iter().all(|ended| ended.status == Status::Ok));
}

#[test]
fn a_merged_request_waits_if_one_of_its_bios_may() {
    let mut scene = four_tags();
    scene.world.lock().unwrap().held = true;
    (0..4).for_each(|n| scene.submit(plain(n, 1000 + n * 16)));
    assert!(scene.step().is_empty());
    // Merged in the plug: neither may wait; the second may; the first may.
    let both = [Flags::NOWAIT; 2];
    for (n, flags) in
        [both, [Flags::NOWAIT, Flags::NONE], [Flags::NONE, Flags::NOWAIT]].into_iter().enumerate()
    {
        let n = n as u64;
        for (half, flags) in (0..).zip(flags) {
            scene.submit(plain(10 + n * 2 + half, n * 100 + half * 8).with(flags));
        }
        let mut ended: Vec<_> = scene.step().iter().map(|e| (e.cookie, e.status)).collect();
        ended.sort_unstable_by_key(|(cookie, _)| *cookie);
        let refused = [(10, Status::Again), (11, Status::Again)];
        assert_eq!(ended, refused[..if n == 0 { 2 } else { 0 }]);
    }
    scene.world.lock().unwrap().held = false;
    assert!(scene.ended(8).iter().all(|ended| ended.status == Status::Ok));
    let stats = scene.device.stats();
    let writes = &stats.directions[1];
    assert_eq!((writes.ios, writes.merges), (6, 2), "what was refused never was a request");
}

/// Segments of a piece of memory, as a device counts them.
fn segments(limits: &Limits, mut start: u64, mut len: u64) -> u64 {
    let mut count = 0;
    while len > 0 {
        let to_boundary =
            (limits.seg_boundary_mask - (start & limits.seg_boundary_mask)).saturating_add(1);
        let piece = len.min(u64::from(limits.max_segment_size)).min(to_boundary);
        (start, len, count) = (start + piece, len - piece, count + 1);
    }
    count
}

fn check(limits: &Limits, seen: &Seen) {
    let Seen { sectors, pieces, .. } = seen;
    assert!(*sectors <= limits.max_sectors(), "{seen:?}");
    let count: u64 = pieces.iter().map(|(start, len)| segments(limits, *start, *len)).sum();
    assert!(count <= u64::from(limits.max_segments), "{count} segments: {seen:?}");
    let mask = u64::from(limits.dma_alignment);
    assert!(pieces.iter().all(|(start, _)| start & mask == 0), "alignment: {seen:?}");
    for pair in pieces.windows(2) {
        let joint = (pair[0].0 + pair[0].1) | pair[1].0;
        assert_eq!(joint & limits.virt_boundary_mask, 0, "a gap: {seen:?}");
        let block = u64::from(limits.logical_block_size);
        assert!(mask == 0 || pair[0].1.is_multiple_of(block), "alignment: {seen:?}");
    }
}

#[test]
fn no_request_breaks_a_limit_of_memory_wherever_its_pieces_lie() {
    for seed in 0..200 {
        let _tell = weir_laws::Tell(format!("seed {seed}"));
        let mut prng = Prng::new(seed);
        let mut pick = |of: &[u32]| of[prng.below(of.len() as u64) as usize];
        let limits = Limits {
            logical_block_size: pick(&[512, 4096]),
            max_hw_sectors: pick(&[8, 17, 64]),
            max_segments: pick(&[1, 2, 5, 300]) as u16,
            max_segment_size: pick(&[4096, 65536]),
            seg_boundary_mask: [u64::MAX, 4095, 65535][pick(&[0, 1, 2]) as usize],
            virt_boundary_mask: u64::from(pick(&[0, 0, 511, 4095])),
            dma_alignment: pick(&[0, 3, 511, 4095]),
            takes_segments: pick(&[0, 1]) == 1,
            ..limits()
        };
        let name = ["none", "mq-deadline", "kyber", "bfq"][pick(&[0, 1, 2, 3]) as usize];
        let config = Config { scheduler: Some(name.into()), ..Config::default() };
        let mut scene = Scene::of(limits.clone(), 64, config);
        let block = u64::from(limits.logical_block_size);
        let mut model = scene.world.lock().unwrap().bytes.clone();
        for _ in 0..12 {
            let (count, mut sector) = (1 + prng.below(4), prng.below(100) * block / 512);
            for cookie in 0..count {
                let len = (1 + prng.below(12)) * block;
                let mut data = cut_anywhere(&mut prng, len as usize);
                let lengths: Vec<usize> = data.segments().map(|each| each.len as usize).collect();
                if prng.percent(30) {
                    // The same lengths in one run of memory, at any alignment.
                    let offset = [0, 0, 512, 100][prng.below(4) as usize];
                    data = Segments::of_buf(off_the_page(offset, len as usize), lengths.clone())
                        .into();
                }
                let bytes: Vec<u8> =
                    lengths.iter().flat_map(|len| vec![prng.next() as u8; *len]).collect();
                data.copy_from_at(0, &bytes);
                scene.submit(write(sector, data).cookie(cookie));
                model[sector as usize * 512..][..bytes.len()].copy_from_slice(&bytes);
                sector += len / 512;
            }
            let before = scene.world.lock().unwrap().bytes.clone();
            // In order of cookie, which is that of the sectors.
            for ended in scene.ended(count as usize) {
                if ended.status != Status::Ok {
                    assert_eq!(ended.status, Status::Inval);
                }
            }
            let seen = scene.seen();
            seen.iter().for_each(|seen| check(&limits, seen));
            // Refused writes changed nothing, and the rest arrived: by the model where it did.
            let mut world = scene.world.lock().unwrap();
            for (at, byte) in world.bytes.iter().enumerate() {
                assert!(*byte == model[at] || *byte == before[at], "byte {at}");
            }
            model.copy_from_slice(&world.bytes);
            world.seen.clear();
        }
    }
}

/// Memory of this length in some pieces, each anywhere in a page.
fn cut_anywhere(prng: &mut Prng, len: usize) -> Data {
    let mut left = len;
    let mut bufs = Vec::new();
    while left > 0 {
        let piece = match prng.below(4) {
            0 => left.min(4096),
            1 => left.min(512 * (1 + prng.below(8) as usize)),
            2 => left.min(1 + prng.below(5000) as usize),
            _ => left,
        };
        let offset = [0, 0, 512, 100][prng.below(4) as usize];
        bufs.push(if offset == 0 { Buf::zeroed(piece) } else { off_the_page(offset, piece) });
        left -= piece;
    }
    if bufs.len() == 1 { Data::One(bufs.remove(0)) } else { Data::Many(bufs.into()) }
}

/// Submitters that wait at a closed gate.
const WAITERS: usize = 1_000;

/// Submits what each waiter has; the tokens of those that were told to try again meanwhile.
fn try_all(waiters: &mut [(Submitter, Option<Bio>)], tokens: &[usize], now: Nanos) {
    for token in tokens {
        let (submitter, held) = &mut waiters[*token];
        let Some(bio) = held.take() else { continue };
        if let Err(refused) = submitter.submit(bio, now) {
            *held = Some(refused.into_bio());
        }
        submitter.flush_plug(now);
    }
}

#[test]
fn a_thousand_that_wait_at_the_gate_are_let_in_under_the_rules_of_that_moment() {
    for mode in [QueueMode::Mq, QueueMode::Sq] {
        let mut scene = scheduled(mode, if mode == QueueMode::Mq { "none" } else { "noop" });
        let bell = Bell::new(Box::new(NoWake), WAITERS);
        let waiter = |token: usize| {
            let submitter = scene.device.submitter(&bell, token, 0).unwrap();
            let sector = (token as u64 % 128) * 16;
            let bio = match token % 2 {
                0 => write(sector, Data::One(Buf::zeroed(16 * 512))),
                _ => Bio::read(sector, Buf::zeroed(16 * 512)),
            };
            (submitter, Some(bio.cookie(token as u64)))
        };
        let mut waiters: Vec<_> = (0..WAITERS).map(waiter).collect();
        let all: Vec<usize> = (0..WAITERS).collect();
        let outer = scene.device.freeze();
        try_all(&mut waiters, &all, scene.now);
        // No rule lets anything in, one after another, and each is another rule.
        for max in [8, 64, 4] {
            let change = |parts: &mut weir_queue::Settings| parts.limits.max_user_sectors = max;
            scene.device.reconfigure(change).unwrap();
            let mut told = Vec::new();
            bell.ready().take(|token| told.push(token));
            try_all(&mut waiters, &told, scene.now);
            assert!(waiters.iter().all(|(_, held)| held.is_some()), "{mode:?}: it is frozen");
        }
        scene.device.reconfigure(|parts| parts.limits.read_only = true).unwrap();
        bell.ready().take(|_| ());
        drop(outer);
        // All are told, once, and each is judged as the device is now.
        let (mut ended, mut failed) = (0, 0);
        for _ in 0..10 * WAITERS {
            if ended == WAITERS {
                break;
            }
            let mut told = Vec::new();
            bell.ready().take(|token| told.push(token));
            try_all(&mut waiters, &told, scene.now);
            scene.lane.run(scene.now);
            for token in told {
                waiters[token].0.complete(scene.now, |end| {
                    let writes = end.cookie % 2 == 0;
                    assert_eq!(end.status, if writes { Status::ReadOnly } else { Status::Ok });
                    (ended, failed) = (ended + 1, failed + usize::from(writes));
                });
            }
        }
        assert_eq!((ended, failed), (WAITERS, WAITERS / 2), "{mode:?}");
        let seen = scene.seen();
        assert_eq!(seen.iter().map(|seen| seen.sectors).sum::<u32>(), 500 * 16, "{mode:?}");
        assert!(seen.iter().all(|seen| seen.sectors <= 4), "{mode:?}: cut as it is now");
    }
}

#[test]
fn what_lies_beyond_the_end_comes_in_when_growth_is_in_force_and_not_before() {
    let mut scene = Scene::new(limits());
    let size = scene.device.limits().size();
    let beyond = || Bio::read(size.sectors, Buf::zeroed(4096));
    assert_eq!(scene.status_of(beyond()), Status::IoErr);
    // The driver is larger. Until the limits say so under a freeze, nothing goes there.
    scene.world.lock().unwrap().bytes.resize(4096 * 512, 0);
    assert_eq!(scene.status_of(beyond()), Status::IoErr);
    scene.world.lock().unwrap().held = true;
    scene.submit(Bio::read(0, Buf::zeroed(4096)));
    scene.step();
    let bell = Bell::new(Box::new(NoWake), 1);
    let larger = weir_bio::Size { sectors: 4096, padding: 0 };
    let grow = move |parts: &mut weir_queue::Settings| parts.limits.grow_to(larger);
    let mut growing = scene.device.begin_reconfigure(&weir_queue::Watch::new(&bell, 0), grow);
    use weir_queue::Step;
    assert!(growing.poll(scene.now).is_waiting(), "an older request is under way");
    let refused = scene.submitter.submit(beyond(), scene.now).expect_err("it is being changed");
    scene.world.lock().unwrap().held = false;
    assert_eq!(scene.ended(1)[0].status, Status::Ok);
    assert!(!growing.poll(scene.now).is_waiting());
    assert_eq!(scene.status_of(refused.into_bio()), Status::Ok);
}

#[test]
fn the_plug_of_a_dropped_submitter_is_issued_at_the_time_of_its_home() {
    let second = 1_000_000_000;
    for (mode, scheduler) in [(QueueMode::Mq, "none"), (QueueMode::Sq, "noop")] {
        let scene = scheduled(mode, scheduler);
        let Scene { world, mut lane, mut submitter, device, now } = scene;
        // The last time it saw is long ago when it submits again.
        submitter.complete(now, drop);
        let (mut now, since) = (now + 100 * second, now + 100 * second);
        submitter.submit(plain(1, 0), now).unwrap();
        assert!(world.lock().unwrap().seen.is_empty(), "{mode:?}: it waits in the plug");
        drop(submitter);
        assert!(lane.has_work(), "{mode:?}: its home is told");
        for _ in 0..10 {
            now = now + 1_000_000;
            lane.run(now);
        }
        let seen = std::mem::take(&mut world.lock().unwrap().seen);
        let at: Vec<_> = seen.iter().map(|seen| seen.at).collect();
        assert!(matches!(at[..], [at] if at > since), "{mode:?}: issued at {at:?}");
        assert_eq!(device.stats().in_flight, 0, "{mode:?}: and it ended");
        assert!(!lane.has_work(), "{mode:?}");
    }
}

#[test]
fn a_tally_tells_the_bios_that_were_accepted_and_have_not_ended() {
    for (mode, scheduler) in [(QueueMode::Mq, "none"), (QueueMode::Sq, "noop")] {
        let Scene { mut lane, mut submitter, mut now, .. } = scheduled(mode, scheduler);
        let tally = submitter.tally();
        for n in 0..3 {
            submitter.submit(plain(n, 64 * n), now).unwrap();
            assert_eq!(tally.in_flight(), n + 1, "{mode:?}: in the plug already");
        }
        let mut ended = 0;
        for _ in 0..20 {
            now = now + 1_000_000;
            submitter.flush_plug(now);
            lane.run(now);
            // What is handed back has ended.
            ended += submitter.complete(now, |_| assert!(tally.in_flight() < 3, "{mode:?}"));
            assert_eq!(tally.in_flight(), submitter.in_flight(), "{mode:?}");
        }
        assert_eq!((ended, tally.ios(), tally.in_flight()), (3, 3, 0), "{mode:?}");
    }
}
