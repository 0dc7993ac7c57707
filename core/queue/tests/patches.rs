//! Patches: writes inside a block, beside other I/O to the same blocks, one thread.

use std::sync::Arc;

use weir_bio::{Bio, Buf, Data, Flags, Limits, Nanos, Op, Prng, SECTOR, Status};
use weir_laws::bytes::{Bytes, patch};
use weir_laws::path::{Order, Path};
use weir_queue::driver::Affinity;
use weir_queue::{
    Bell, Completion, Config, Device, Kept, Lane, NoWake, Progress, Refused, Step, Submitter, Then,
    Watch,
};

const TIMEOUT_NS: u64 = 2_000_000_000;

const SECOND: u64 = 1_000_000_000;

/// Lanes, and submitters on them in turn, turned by hand.
struct Scene {
    disk: Arc<Bytes>,
    device: Device,
    bell: Arc<Bell>,
    lanes: Vec<Lane>,
    submitters: Vec<Submitter>,
    now: Nanos,
    block: u32,
}

const PATHS: [Path; 8] = [
    Path::mq(1),
    Path::mq(3),
    Path::mq(2).scheduled(),
    Path::mq(2).by(Order::Deadline),
    Path::mq(2).by(Order::Bfq),
    Path::mq(2).in_turn(),
    Path::sq(Affinity::Any),
    Path::sq(Affinity::Fixed),
];

fn limits(block: u32) -> Limits {
    Limits { capacity: 256, logical_block_size: block, max_hw_sectors: 16, ..Limits::default() }
}

impl Scene {
    fn new(path: Path, submitters: usize) -> Scene {
        Scene::of(path, submitters, limits(512), Config::default())
    }

    fn of(path: Path, submitters: usize, limits: Limits, config: Config) -> Scene {
        let block = limits.logical_block_size;
        let disk = Bytes::new(limits, 16, path.home);
        let config = Config { timeout_ns: TIMEOUT_NS, ..config };
        let device = path.device(config, Arc::clone(&disk) as Arc<_>);
        let bell = Bell::new(Box::new(NoWake), 64);
        let lanes = (0..usize::from(path.lanes)).map(|at| device.open_lane(at, &bell).unwrap());
        let lanes = lanes.collect();
        let submitters = (0..submitters).map(|at| device.submitter(&bell, at, at).unwrap());
        let submitters = submitters.collect();
        Scene { disk, device, bell, lanes, submitters, now: Nanos::ZERO, block }
    }

    fn submit(&mut self, by: usize, bio: Bio) {
        self.submitters[by].submit(bio, self.now).expect("room for a bio");
        self.submitters[by].flush_plug(self.now);
    }

    fn try_patch(&mut self, by: usize, offset: u64, bytes: &[u8]) -> Result<(), Refused> {
        self.patch_with(by, offset, bytes, Flags::NONE)
    }

    fn patch_with(&mut self, by: usize, at: u64, bytes: &[u8], f: Flags) -> Result<(), Refused> {
        let (sector, data, kept) = patch(at, bytes, self.block);
        let bio = Bio::new(Op::Write, sector, (data.len() as u64 / SECTOR) as u32, data);
        let bio = bio.with(Flags::SYNC | f).cookie(at);
        self.submitters[by].submit_patch(bio, kept, self.now)
    }

    fn patch(&mut self, by: usize, offset: u64, bytes: &[u8]) {
        self.try_patch(by, offset, bytes).expect("room for a patch");
    }

    /// Turns lanes and lets submitters take what has ended, until nothing moves.
    fn run(&mut self) -> Vec<(usize, Completion)> {
        let mut ended = Vec::new();
        for _ in 0..40 {
            self.lanes.iter_mut().for_each(|lane| lane.run(self.now));
            for (by, submitter) in self.submitters.iter_mut().enumerate() {
                submitter.complete(self.now, |completion| ended.push((by, completion)));
                submitter.flush_plug(self.now);
            }
        }
        ended
    }

    fn statuses(&mut self) -> Vec<(usize, Status)> {
        self.run().into_iter().map(|(by, completion)| (by, completion.status)).collect()
    }

    fn pass(&mut self, ns: u64) -> Vec<(usize, Status)> {
        let until = self.now + ns;
        let mut ended = Vec::new();
        while self.now < until {
            self.now = self.now + SECOND / 4;
            ended.extend(self.statuses());
        }
        ended
    }

    fn withhold(&self, ops: &[Op]) {
        self.disk.world().withheld = ops.to_vec();
    }

    fn bytes(&self, at: usize, len: usize) -> Vec<u8> {
        self.disk.world().bytes[at..at + len].to_vec()
    }

    /// No hold is left: aligned I/O to every block ends at once.
    fn is_free(&mut self) {
        self.withhold(&[]);
        self.run();
        self.submit(0, Bio::read(0, Buf::zeroed(256 * 512)));
        assert_eq!(self.statuses(), [(0, Status::Ok)], "a hold was left behind");
        let stats = self.device.stats();
        assert_eq!((stats.in_flight, stats.in_driver), (0, [0, 0]));
    }
}

fn write(sector: u64, sectors: u32, byte: u8) -> Bio {
    let buf = Buf::filled(sectors as usize * 512, |memory| memory.fill(byte));
    Bio::write(sector, buf).cookie(u64::from(byte))
}

fn read(sector: u64, sectors: u32) -> Bio {
    Bio::read(sector, Buf::zeroed(sectors as usize * 512))
}

#[test]
fn a_patch_writes_its_bytes_and_keeps_those_around_them() {
    for path in PATHS {
        for block in [512, 4096] {
            let mut scene = Scene::of(path, 1, limits(block), Config::default());
            let pattern: Vec<u8> = (0..256 * 512).map(|at: u32| (at % 241) as u8).collect();
            scene.disk.world().bytes.clone_from(&pattern);
            let mut shadow = pattern;
            for (offset, len) in
                [(1, 1), (511, 2), (513, 1023), (4095, 2), (5000, 65537), (0, 1), (512, 513)]
            {
                let bytes: Vec<u8> = (0..len).map(|at: usize| (at % 7 + 1) as u8).collect();
                shadow[offset..offset + len].copy_from_slice(&bytes);
                scene.patch(0, offset as u64, &bytes);
                let ended = scene.run();
                let whole = ended.iter().map(|(_, end)| (end.status, end.cookie, end.op));
                assert_eq!(
                    whole.collect::<Vec<_>>(),
                    [(Status::Ok, offset as u64, Op::Write)],
                    "{path:?}: {len} bytes at {offset}"
                );
                let same = scene.disk.world().bytes == shadow;
                assert!(same, "{path:?}: {len} bytes at {offset} of {block}-byte blocks");
            }
            scene.is_free();
        }
    }
}

#[test]
fn a_patch_does_not_read_before_an_older_write_to_its_block_has_landed() {
    for path in PATHS {
        let mut scene = Scene::new(path, 3);
        scene.withhold(&[Op::Write]);
        // The last submitter's lane is the last one.
        scene.submit(2, write(8, 1, 7));
        assert!(scene.run().is_empty());
        scene.patch(0, 8 * 512 + 3, &[1]);
        assert!(scene.run().is_empty());
        let log = scene.disk.arrived();
        assert_eq!(log, [(Op::Write, 8, 1)], "{path:?}: nothing of the patch");
        scene.withhold(&[]);
        assert_eq!(scene.statuses().len(), 2, "{path:?}");
        assert_eq!(
            scene.bytes(8 * 512, 6),
            [7, 7, 7, 1, 7, 7],
            "{path:?}: the older write is kept"
        );
        scene.is_free();
    }
}

#[test]
fn an_older_read_and_a_write_beside_its_blocks_do_not_keep_a_patch_waiting() {
    for path in PATHS {
        let mut scene = Scene::new(path, 2);
        scene.withhold(&[Op::Read, Op::Write]);
        scene.submit(1, read(8, 1));
        scene.submit(1, write(9, 1, 7));
        scene.submit(1, write(7, 1, 7));
        scene.run();
        assert_eq!(scene.disk.arrived().len(), 3, "{path:?}: all are with the driver");
        scene.patch(0, 8 * 512 + 3, &[1]);
        assert!(scene.run().is_empty());
        assert_eq!(scene.disk.arrived(), [(Op::Read, 8, 1)], "{path:?}: the patch reads");
        scene.withhold(&[]);
        assert_eq!(scene.statuses().len(), 4);
        scene.is_free();
    }
}

#[test]
fn aligned_io_waits_for_a_hold_if_its_blocks_overlap_and_only_then() {
    for path in PATHS {
        for other in [read(9, 1), write(9, 1, 7), write(4, 5, 7), write(10, 4, 7)] {
            let mut scene = Scene::new(path, 2);
            scene.withhold(&[Op::Read]);
            // Sectors 8 to 10.
            scene.patch(0, 8 * 512 + 3, &[1; 1024]);
            assert!(scene.run().is_empty());
            scene.withhold(&[]);
            scene.disk.world().withheld = vec![Op::Read, Op::Write];
            let arrived = scene.disk.arrived();
            assert_eq!(arrived, [(Op::Read, 8, 1), (Op::Read, 10, 1)], "{path:?}: both edges");
            let (sector, sectors, op) = (other.sector, other.sectors, other.op);
            scene.submit(1, other);
            scene.submit(1, write(7, 1, 9));
            scene.submit(1, write(14, 1, 9));
            assert!(scene.run().is_empty());
            let mut arrived = scene.disk.arrived();
            arrived.sort_unstable();
            let beside = [(Op::Write, 7, 1), (Op::Write, 14, 1)];
            let merges = sector == 4 || sector == 10;
            assert!(merges || arrived == beside, "{path:?}: {arrived:?} while {sector} waits");
            assert!(!arrived.contains(&(op, sector, sectors)), "{path:?}: {arrived:?}");
            scene.withhold(&[]);
            let mut ended = scene.statuses();
            ended.sort_unstable_by_key(|(by, _)| *by);
            assert_eq!(ended, [(0, Status::Ok), (1, Status::Ok), (1, Status::Ok), (1, Status::Ok)]);
            // The write that waited came behind the patch.
            if op == Op::Write && sector == 9 {
                assert_eq!(scene.bytes(9 * 512, 2), [7, 7], "{path:?}");
                assert_eq!(scene.bytes(10 * 512, 4), [1, 1, 1, 0], "{path:?}");
            }
            scene.is_free();
        }
    }
}

#[test]
fn what_may_not_wait_ends_at_a_hold() {
    let mut scene = Scene::new(Path::mq(1), 2);
    scene.withhold(&[Op::Read]);
    scene.patch(0, 8 * 512 + 3, &[1]);
    scene.run();
    scene.submit(1, write(8, 1, 7).with(Flags::NOWAIT));
    let mut ended = Vec::new();
    scene.submitters[1].complete(scene.now, |completion| ended.push(completion.status));
    assert_eq!(ended, [Status::Again], "at once: it might be merged with one that waits");
    // One that was accepted before ends at the lane.
    let mut other = Scene::new(Path::mq(1), 2);
    other.withhold(&[Op::Read]);
    other.submit(1, write(8, 1, 7).with(Flags::NOWAIT));
    other.patch(0, 8 * 512 + 3, &[1]);
    assert_eq!(other.statuses(), [(1, Status::Again)]);
    other.is_free();
    // Neither can a patch do without waiting.
    scene.patch_with(1, 700, &[1], Flags::NOWAIT).unwrap();
    assert_eq!(scene.statuses(), [(1, Status::Again)]);
    scene.is_free();
}

#[test]
fn two_patches_of_one_block_keep_each_others_bytes() {
    for path in PATHS {
        let mut scene = Scene::new(path, 2);
        scene.patch(0, 8 * 512 + 3, &[1, 1]);
        scene.patch(1, 8 * 512 + 5, &[2, 2]);
        scene.patch(0, 8 * 512 + 6, &[3]);
        assert_eq!(scene.statuses().len(), 3, "{path:?}");
        assert_eq!(scene.bytes(8 * 512, 8), [0, 0, 0, 1, 1, 2, 3, 0], "{path:?}: in order");
        scene.is_free();
    }
}

#[test]
fn patches_whose_ends_are_each_others_middles_do_not_wait_for_each_other() {
    for path in PATHS {
        let mut scene = Scene::new(path, 3);
        // Each has an end in the middle of the next, and the last in that of the first.
        scene.patch(0, 3, &[1; 20 * 512]);
        scene.patch(1, 10 * 512 + 3, &[2; 20 * 512]);
        scene.patch(2, 5 * 512 + 3, &[3; 20 * 512]);
        scene.patch(0, 3, &[4; 30 * 512]);
        assert_eq!(scene.statuses().len(), 4, "{path:?}");
        assert_eq!(scene.bytes(0, 4), [0, 0, 0, 4]);
        scene.is_free();
    }
}

#[test]
fn what_a_hold_stops_has_its_turn_before_the_next_patch_of_the_block() {
    for path in PATHS {
        let mut scene = Scene::new(path, 3);
        scene.withhold(&[Op::Write]);
        scene.patch(0, 8 * 512 + 3, &[1]);
        scene.run();
        scene.submit(1, write(8, 1, 7));
        scene.run();
        scene.patch(2, 8 * 512 + 5, &[2]);
        scene.patch(0, 8 * 512 + 6, &[2]);
        assert!(scene.run().is_empty());
        scene.disk.arrived();
        scene.withhold(&[]);
        let ended: Vec<usize> = scene.statuses().into_iter().map(|(by, _)| by).collect();
        assert_eq!(ended.len(), 4, "{path:?}");
        let arrived = scene.disk.arrived();
        assert_eq!(arrived[0], (Op::Write, 8, 1), "{path:?}: the one that waited: {arrived:?}");
        assert_eq!(arrived[1], (Op::Read, 8, 1), "{path:?}: {arrived:?}");
        assert_eq!(scene.bytes(8 * 512, 8), [7, 7, 7, 7, 7, 2, 2, 7], "{path:?}");
        scene.is_free();
    }
}

#[test]
fn a_patch_ends_although_what_waits_for_it_has_every_slot_and_tag() {
    for path in PATHS {
        let nr_requests = Some(4);
        let mut scene =
            Scene::of(path, 2, limits(512), Config { nr_requests, ..Config::default() });
        scene.withhold(&[Op::Read]);
        scene.patch(0, 8 * 512 + 3, &[1]);
        assert!(scene.run().is_empty());
        // Its own submitter has no slot left, and no scheduler a tag.
        for by in [0, 1] {
            for n in 0..40 {
                let bio = write(8, 1, n).with(Flags::NOMERGE | Flags::SYNC);
                if scene.submitters[by].submit(bio, scene.now).is_err() {
                    break;
                }
            }
            scene.submitters[by].flush_plug(scene.now);
        }
        assert!(scene.run().is_empty());
        scene.withhold(&[]);
        let ended = scene.statuses();
        assert!(ended.len() > 4 && ended.iter().all(|(_, status)| status.is_ok()), "{ended:?}");
        scene.is_free();
    }
}

#[test]
fn a_patch_whose_read_fails_writes_nothing_and_lets_go_of_its_block() {
    for path in PATHS {
        let mut scene = Scene::new(path, 2);
        scene.disk.world().failing = vec![(Op::Read, Status::Medium)];
        scene.patch(0, 8 * 512 + 3, &[1; 2000]);
        scene.submit(1, write(8, 1, 7));
        let mut ended = scene.statuses();
        ended.sort_unstable_by_key(|(by, _)| *by);
        assert_eq!(ended, [(0, Status::Medium), (1, Status::Ok)], "{path:?}");
        assert_eq!(scene.bytes(8 * 512, 5), [7; 5], "{path:?}");
        assert_eq!(scene.device.stats().errors, 1, "{path:?}");
        scene.disk.world().failing.clear();
        scene.is_free();
    }
}

#[test]
fn a_patch_whose_write_fails_lets_go_of_its_block() {
    for path in PATHS {
        let cached = Limits { volatile_cache: true, ..limits(512) };
        let mut scene = Scene::of(path, 2, cached, Config::default());
        scene.disk.world().failing = vec![(Op::Write, Status::NoSpc)];
        // More than one request.
        scene.patch_with(0, 8 * 512 + 3, &[1; 200 * 512], Flags::FUA).unwrap();
        assert_eq!(scene.statuses(), [(0, Status::NoSpc)], "{path:?}");
        let flushed = scene.disk.arrived().iter().any(|(op, _, _)| *op == Op::Flush);
        assert!(!flushed, "{path:?}: there is nothing to be made durable");
        assert_eq!(scene.device.stats().errors, 1, "{path:?}");
        scene.disk.world().failing.clear();
        scene.is_free();
    }
}

#[test]
fn a_patch_whose_read_runs_out_of_time_lets_go_of_its_block_at_once() {
    for path in PATHS {
        let mut scene = Scene::new(path, 2);
        scene.withhold(&[Op::Read]);
        scene.patch(0, 8 * 512 + 3, &[1]);
        assert_eq!(scene.pass(TIMEOUT_NS + 2 * SECOND), [(0, Status::Timeout)], "{path:?}");
        scene.submit(1, write(8, 1, 7));
        assert_eq!(scene.statuses(), [(1, Status::Ok)], "{path:?}: a read fences nothing");
        scene.is_free();
        assert_eq!(scene.bytes(8 * 512, 5), [7; 5], "{path:?}");
    }
}

#[test]
fn a_patch_whose_write_runs_out_of_time_leaves_the_fence_of_that_write() {
    for path in PATHS {
        let mut scene = Scene::new(path, 2);
        scene.withhold(&[Op::Write]);
        scene.patch(0, 8 * 512 + 3, &[1]);
        assert_eq!(scene.pass(TIMEOUT_NS + 2 * SECOND), [(0, Status::Timeout)], "{path:?}");
        scene.disk.arrived();
        scene.submit(1, read(8, 1));
        // The next patch holds the block, and its read waits for the write as well.
        scene.patch(0, 8 * 512 + 4, &[2]);
        assert!(scene.run().is_empty(), "{path:?}: the write may land yet");
        assert!(scene.disk.arrived().is_empty(), "{path:?}");
        scene.withhold(&[]);
        let ended = scene.statuses();
        assert!(ended.len() == 2 && ended.iter().all(|(_, status)| status.is_ok()), "{ended:?}");
        assert_eq!(scene.bytes(8 * 512, 6), [0, 0, 0, 1, 2, 0], "{path:?}");
        scene.is_free();
    }
}

#[test]
fn a_patch_waits_for_the_fence_of_a_write_that_runs_out_of_time_while_it_settles() {
    for path in PATHS {
        let mut scene = Scene::new(path, 2);
        scene.withhold(&[Op::Write]);
        scene.submit(1, write(8, 1, 7));
        scene.run();
        scene.now = scene.now + TIMEOUT_NS;
        scene.patch(0, 8 * 512 + 3, &[1]);
        let ended = scene.pass(2 * SECOND);
        assert_eq!(ended, [(1, Status::Timeout)], "{path:?}");
        scene.withhold(&[]);
        assert_eq!(scene.statuses(), [(0, Status::Ok)], "{path:?}");
        assert_eq!(scene.bytes(8 * 512, 6), [7, 7, 7, 1, 7, 7], "{path:?}");
        scene.is_free();
    }
}

#[test]
fn what_waits_for_a_hold_ends_in_its_own_time_and_gives_its_place_in_line_up() {
    for path in PATHS {
        let mut scene = Scene::new(path, 3);
        scene.withhold(&[Op::Read]);
        scene.submit(1, write(8, 1, 6));
        scene.run();
        scene.patch(0, 8 * 512 + 3, &[1]);
        scene.run();
        scene.submit(1, write(8, 1, 7));
        scene.pass(TIMEOUT_NS / 2);
        // It has more time than those.
        scene.patch(2, 8 * 512 + 4, &[2]);
        let mut ended = Vec::new();
        while ended.len() < 2 && scene.now < Nanos(2 * TIMEOUT_NS) {
            ended.extend(scene.pass(SECOND / 4));
        }
        ended.sort_unstable_by_key(|(by, _)| *by);
        assert_eq!(ended, [(0, Status::Timeout), (1, Status::Timeout)], "{path:?}");
        scene.withhold(&[]);
        let ended = scene.pass(SECOND / 2);
        assert!(ended.iter().all(|(by, status)| *by == 2 && status.is_ok()), "{path:?}: {ended:?}");
        assert_eq!(scene.bytes(8 * 512, 6), [6, 6, 6, 6, 2, 6], "{path:?}");
        scene.is_free();
    }
}

#[test]
fn patches_in_line_at_a_silent_device_end_in_their_own_time_and_not_one_after_another() {
    for path in PATHS {
        for older in [false, true] {
            let mut scene = Scene::new(path, 3);
            scene.withhold(&[Op::Read, Op::Write]);
            if older {
                scene.submit(2, write(8, 1, 7));
                scene.run();
            }
            for n in 0..10 {
                scene.patch(0, 8 * 512 + n, &[1]);
                // Stopped by those around it only.
                scene.patch(1, 8 * 512 + 3 + n, &[2; 700]);
                scene.patch(2, 9 * 512 + n, &[3]);
            }
            let ended = scene.pass(2 * TIMEOUT_NS + 3 * SECOND);
            assert_eq!(ended.len(), 30 + usize::from(older), "{path:?} {older}: all have ended");
            let timed_out = ended.iter().filter(|(_, status)| *status == Status::Timeout);
            assert_eq!(timed_out.count(), ended.len(), "{path:?} {older}");
            let errors = scene.device.stats().errors;
            assert_eq!(errors, ended.len() as u64, "{path:?}: each is one error");
            scene.withhold(&[]);
            scene.pass(SECOND);
            scene.patch(0, 8 * 512 + 3, &[4]);
            assert_eq!(scene.statuses(), [(0, Status::Ok)], "{path:?}");
            scene.is_free();
        }
    }
}

#[test]
fn a_patch_behind_one_that_is_given_up_in_line_has_its_turn() {
    for path in PATHS {
        let mut scene = Scene::new(path, 3);
        scene.withhold(&[Op::Read, Op::Write]);
        scene.submit(2, write(8, 1, 7));
        scene.run();
        scene.patch(0, 8 * 512 + 3, &[1]);
        // Waits for the first, and the third for this one alone.
        scene.patch(1, 8 * 512 + 3, &[2; 1000]);
        assert!(scene.pass(TIMEOUT_NS - SECOND / 4).is_empty(), "{path:?}");
        scene.withhold(&[Op::Read]);
        assert_eq!(scene.statuses(), [(2, Status::Ok)], "{path:?}: now the first one reads");
        scene.patch(2, 9 * 512 + 7, &[3]);
        let mut ended = Vec::new();
        while ended.is_empty() && scene.now < Nanos(2 * TIMEOUT_NS) {
            ended = scene.pass(SECOND / 4);
        }
        assert_eq!(ended, [(1, Status::Timeout)], "{path:?}");
        assert_eq!(scene.device.stats().errors, 1, "{path:?}");
        scene.withhold(&[]);
        let mut ended = scene.statuses();
        ended.sort_unstable_by_key(|(by, _)| *by);
        assert_eq!(ended, [(0, Status::Ok), (2, Status::Ok)], "{path:?}");
        assert_eq!(scene.bytes(8 * 512, 6), [7, 7, 7, 1, 7, 7], "{path:?}");
        assert_eq!(scene.bytes(9 * 512 + 6, 3), [0, 3, 0], "{path:?}");
        scene.is_free();
    }
}

#[test]
fn what_a_patch_waits_in_line_is_told_as_waiting() {
    for path in PATHS {
        let mut scene = Scene::new(path, 2);
        scene.withhold(&[Op::Read]);
        scene.patch(0, 8 * 512 + 3, &[1]);
        scene.patch(1, 8 * 512 + 4, &[2]);
        scene.run();
        assert!(scene.pass(SECOND).is_empty());
        scene.withhold(&[]);
        let ended = scene.run();
        let waited: Vec<_> = ended.iter().map(|(by, end)| (*by, end.wait_ns)).collect();
        assert_eq!(waited, [(0, 0), (1, SECOND)], "{path:?}");
    }
}

#[test]
fn a_freeze_waits_for_a_patch_to_end_and_lets_no_other_in() {
    for path in PATHS {
        let mut scene = Scene::new(path, 2);
        scene.withhold(&[Op::Read]);
        scene.patch(0, 8 * 512 + 3, &[1]);
        scene.patch(0, 8 * 512 + 4, &[2]);
        scene.run();
        let watch = Watch::new(&scene.bell, 60);
        let mut freezing = scene.device.begin_freeze(&watch);
        assert!(freezing.poll(scene.now).is_waiting(), "{path:?}");
        assert!(matches!(scene.try_patch(1, 700, &[1]), Err(Refused::Frozen(_))), "{path:?}");
        scene.run();
        assert!(freezing.poll(scene.now).is_waiting(), "{path:?}: it reads");
        scene.withhold(&[]);
        assert_eq!(scene.statuses(), [(0, Status::Ok), (0, Status::Ok)], "{path:?}");
        let Progress::Ended(frozen) = freezing.poll(scene.now) else { panic!("{path:?}") };
        drop((freezing, frozen));
        scene.patch(1, 700, &[1]);
        assert_eq!(scene.statuses(), [(1, Status::Ok)], "{path:?}");
        scene.is_free();
    }
}

#[test]
fn a_patch_goes_on_without_its_submitter() {
    for path in PATHS {
        let mut scene = Scene::new(path, 2);
        scene.withhold(&[Op::Read]);
        scene.patch(1, 8 * 512 + 3, &[1]);
        scene.patch(1, 8 * 512 + 4, &[2]);
        scene.run();
        drop(scene.submitters.pop());
        scene.patch(0, 8 * 512 + 5, &[3]);
        assert!(scene.run().is_empty());
        scene.withhold(&[]);
        assert_eq!(scene.statuses(), [(0, Status::Ok)], "{path:?}");
        assert_eq!(scene.bytes(8 * 512, 7), [0, 0, 0, 1, 2, 3, 0], "{path:?}");
        scene.is_free();
    }
}

#[test]
fn a_lane_that_closes_sends_a_hold_on() {
    let mut scene = Scene::new(Path::mq(3), 3);
    scene.withhold(&[Op::Write]);
    scene.submit(2, write(8, 1, 7));
    scene.run();
    scene.patch(0, 8 * 512 + 3, &[1]);
    scene.lanes[0].run(scene.now);
    // It has not looked at what it was sent.
    drop(scene.lanes.remove(1));
    assert!(scene.run().is_empty(), "the older write is with the next lane");
    assert_eq!(scene.disk.arrived(), [(Op::Write, 8, 1)]);
    scene.withhold(&[]);
    assert_eq!(scene.statuses().len(), 2);
    assert_eq!(scene.bytes(8 * 512, 6), [7, 7, 7, 1, 7, 7]);
    // And once as the last one.
    scene.patch(0, 8 * 512 + 3, &[2]);
    scene.lanes[0].run(scene.now);
    scene.lanes.pop();
    assert_eq!(scene.statuses(), [(0, Status::Ok)]);
    scene.is_free();
}

#[test]
fn a_request_of_a_patch_that_a_closing_lane_was_sent_goes_to_another() {
    let mut scene = Scene::new(Path::mq(3), 3);
    scene.run();
    scene.patch(1, 8 * 512 + 3, &[1]);
    scene.lanes.iter_mut().for_each(|lane| lane.run(scene.now));
    // The hold goes through the lanes; then the patch sends its read to lane 1.
    loop {
        scene.lanes.iter_mut().for_each(|lane| lane.run(scene.now));
        assert!(!scene.lanes[1].has_work());
        scene.submitters[1].complete(scene.now, drop);
        if scene.lanes[1].has_work() {
            break;
        }
    }
    drop(scene.lanes.remove(1));
    assert_eq!(scene.statuses(), [(1, Status::Ok)]);
    assert_eq!(scene.bytes(8 * 512, 6), [0, 0, 0, 1, 0, 0]);
    // And while it is closed, the next one is sent elsewhere at once.
    scene.patch(1, 8 * 512 + 4, &[2]);
    assert_eq!(scene.statuses(), [(1, Status::Ok)]);
    assert_eq!(scene.bytes(8 * 512, 6), [0, 0, 0, 1, 2, 0]);
    scene.is_free();
}

#[test]
fn a_request_of_a_patch_whose_only_lane_closes_waits_until_it_is_opened() {
    let mut scene = Scene::new(Path::mq(1), 1);
    scene.patch(0, 8 * 512 + 3, &[1]);
    scene.lanes[0].run(scene.now);
    scene.submitters[0].complete(scene.now, drop);
    assert!(scene.lanes[0].has_work(), "the read was sent");
    scene.lanes.clear();
    assert_eq!(scene.run().len(), 0);
    scene.lanes.push(scene.device.open_lane(0, &scene.bell).unwrap());
    assert_eq!(scene.statuses(), [(0, Status::Ok)]);
    assert_eq!(scene.bytes(8 * 512, 6), [0, 0, 0, 1, 0, 0]);
    scene.is_free();
}

#[test]
fn a_patch_waits_for_an_older_write_for_as_long_as_that_takes() {
    for path in PATHS {
        let mut scene = Scene::new(path, 2);
        scene.withhold(&[Op::Write]);
        scene.submit(1, write(8, 1, 7));
        scene.run();
        scene.patch(0, 8 * 512 + 3, &[1]);
        assert!(scene.pass(TIMEOUT_NS - SECOND / 4).is_empty(), "{path:?}");
        scene.withhold(&[]);
        assert_eq!(scene.statuses().len(), 2, "{path:?}");
        scene.is_free();
    }
}

#[test]
fn lanes_that_wait_for_a_hold_are_told_when_it_is_lifted() {
    for path in PATHS.into_iter().filter(|path| path.lanes > 1) {
        let mut scene = Scene::new(path, 2);
        scene.withhold(&[Op::Write]);
        scene.patch(0, 8 * 512 + 3, &[1]);
        scene.run();
        scene.submit(1, write(8, 1, 7));
        scene.run();
        scene.withhold(&[]);
        let mut ended = 0;
        // Lanes are turned only when they were told to, or their driver has answers.
        scene.lanes[0].run(scene.now);
        for _ in 0..20 {
            for (by, submitter) in scene.submitters.iter_mut().enumerate() {
                ended += submitter.complete(scene.now, |_| ()) * (by + 1);
            }
            let told = scene.lanes.iter_mut().filter(|lane| lane.has_work());
            told.for_each(|lane| lane.run(scene.now));
            let answers = scene.disk.world().has_answers();
            answers.into_iter().for_each(|lane| scene.lanes[lane].run(scene.now));
        }
        assert_eq!(ended, 3, "{path:?}: one of each");
        scene.is_free();
    }
}

#[test]
fn a_device_that_is_offline_takes_no_patch() {
    let mut scene = Scene::new(Path::mq(1), 1);
    let watch = Watch::new(&scene.bell, 60);
    let mut closing = scene.device.begin_close(&watch, Then::EndsUnflushed);
    assert!(matches!(closing.poll(scene.now), Progress::Ended(Ok(_))));
    scene.patch(0, 3, &[1]);
    assert_eq!(scene.statuses(), [(0, Status::Offline)]);
}

#[test]
fn fua_is_carried_by_the_write_or_followed_by_a_flush_that_holds_nothing() {
    for path in PATHS {
        for fua in [false, true] {
            let cached = Limits { volatile_cache: true, fua, ..limits(512) };
            let mut scene = Scene::of(path, 2, cached, Config::default());
            scene.withhold(&[Op::Flush]);
            scene.patch_with(0, 8 * 512 + 3, &[1], Flags::FUA).unwrap();
            let ended = scene.statuses();
            assert_eq!(ended.is_empty(), !fua, "{path:?}: not before it is durable");
            let log = std::mem::take(&mut scene.disk.world().log);
            let ops: Vec<(Op, bool)> =
                log.iter().map(|(op, _, _, flags)| (*op, flags.has(Flags::FUA))).collect();
            let (read, write) = ((Op::Read, false), (Op::Write, fua));
            let flush = (Op::Flush, false);
            let expected = if fua { vec![read, write] } else { vec![read, write, flush] };
            assert_eq!(ops, expected, "{path:?}");
            scene.submit(1, write_of(8));
            assert_eq!(scene.statuses(), [(1, Status::Ok)], "{path:?}: the hold is lifted");
            scene.withhold(&[]);
            assert_eq!(scene.run().is_empty(), fua, "{path:?}");
            scene.is_free();
        }
    }
}

fn write_of(sector: u64) -> Bio {
    write(sector, 1, 7)
}

#[test]
fn a_failed_flush_of_a_patch_is_told() {
    let cached = Limits { volatile_cache: true, ..limits(512) };
    let mut scene = Scene::of(Path::mq(1), 1, cached, Config::default());
    scene.disk.world().failing = vec![(Op::Flush, Status::IoErr)];
    scene.patch_with(0, 8 * 512 + 3, &[1], Flags::FUA).unwrap();
    assert_eq!(scene.statuses(), [(0, Status::IoErr)]);
    scene.disk.world().failing.clear();
    scene.is_free();
}

#[test]
fn sixteen_patches_of_a_submitter_are_under_way_and_no_more() {
    let mut scene = Scene::new(Path::mq(1), 2);
    scene.withhold(&[Op::Read]);
    for n in 0..16 {
        scene.patch(0, n * 700 + 3, &[1]);
    }
    assert!(matches!(scene.try_patch(0, 3, &[1]), Err(Refused::Full(_))));
    scene.patch(1, 3, &[1]);
    scene.withhold(&[]);
    assert_eq!(scene.statuses().len(), 17);
    scene.patch(0, 3, &[1]);
    assert_eq!(scene.statuses().len(), 1);
    scene.is_free();
}

#[test]
fn a_patch_of_what_may_not_be_written_ends_at_once() {
    let read_only = Limits { read_only: true, ..limits(512) };
    let mut scene = Scene::of(Path::mq(1), 1, read_only, Config::default());
    scene.patch(0, 3, &[1]);
    assert_eq!(scene.statuses(), [(0, Status::ReadOnly)]);
    let mut scene = Scene::new(Path::mq(1), 1);
    let past = Bio::new(Op::Write, 255, 2, Data::One(Buf::zeroed(1024)));
    scene.submitters[0].submit_patch(past, Kept { lead: 1, trail: 0 }, scene.now).unwrap();
    assert_eq!(scene.statuses(), [(0, Status::IoErr)]);
    assert!(scene.disk.arrived().is_empty());
    scene.is_free();
}

/// Three clients patch bytes that lie in one another's blocks, and a fourth writes whole blocks,
/// while none of their bytes in these is under way. Each byte holds what was written to it last.
struct Law {
    scene: Scene,
    prng: Prng,
    shadow: Vec<u8>,
    /// Bytes that are being written.
    busy: Vec<std::ops::Range<u64>>,
    next: u8,
    sent: usize,
    ended: usize,
}

impl Law {
    /// Sends something if its bytes are free and there is room.
    fn send(&mut self) {
        let block = u64::from(self.scene.block);
        let by = self.prng.below(4) as usize;
        self.next = self.next % 250 + 1;
        let (from, len) = if by < 3 {
            // A hundred bytes in each 300 are this client's.
            let slice = self.prng.below(256 * 512 / 300) * 300 + by as u64 * 100;
            (slice + self.prng.below(50), 1 + self.prng.below(50))
        } else {
            (self.prng.below(256 * 512 / block) * block, block)
        };
        let range = from..from + len;
        let overlaps =
            |other: &std::ops::Range<u64>| other.start < range.end && range.start < other.end;
        if self.busy.iter().any(overlaps) {
            return;
        }
        let bytes = vec![self.next; len as usize];
        let taken = if by < 3 {
            self.scene.try_patch(by, from, &bytes).is_ok()
        } else {
            let bio = write(from / 512, (len / 512) as u32, self.next);
            self.scene.submitters[3].submit(bio, self.scene.now).is_ok()
        };
        if taken {
            self.shadow[from as usize..range.end as usize].copy_from_slice(&bytes);
            self.busy.push(range);
            self.sent += 1;
        }
    }

    /// Turns anything, in any order, with answers that come late.
    fn step(&mut self) {
        let withheld: &[Op] = match self.prng.below(4) {
            0 => &[Op::Read],
            1 => &[Op::Write],
            2 => &[Op::Read, Op::Write],
            _ => &[],
        };
        self.scene.withhold(withheld);
        let now = self.scene.now;
        for _ in 0..self.prng.below(6) {
            let lane = self.prng.below(self.scene.lanes.len() as u64) as usize;
            self.scene.lanes[lane].run(now);
            let submitter = &mut self.scene.submitters[self.prng.below(4) as usize];
            submitter.flush_plug(now);
            submitter.complete(now, |completion| {
                assert_eq!(completion.status, Status::Ok);
                self.ended += 1;
            });
        }
    }

    fn finish(&mut self) {
        self.scene.withhold(&[]);
        self.ended += self.scene.run().len();
        assert_eq!(self.sent, self.ended, "all have ended, each once");
        assert!(self.scene.disk.world().bytes == self.shadow, "a byte was lost");
        self.busy.clear();
    }
}

#[test]
fn no_byte_is_lost_among_patches_and_aligned_writes() {
    for seed in weir_laws::seeds("PATCHES", 60) {
        let mut prng = Prng::new(seed);
        let path = PATHS[prng.below(PATHS.len() as u64) as usize];
        let _tell = weir_laws::Tell(format!("PATCHES_SEED={seed} {path:?}"));
        let block = [512, 4096][prng.below(2) as usize];
        let nr_requests = [None, Some(4)][prng.below(2) as usize];
        let config = Config { nr_requests, ..Config::default() };
        let scene = Scene::of(path, 4, limits(block), config);
        let (shadow, busy) = (vec![0; 256 * 512], Vec::new());
        let mut law = Law { scene, prng, shadow, busy, next: 0, sent: 0, ended: 0 };
        for step in 0..400 {
            law.send();
            law.step();
            if step % 10 == 9 {
                law.finish();
            }
        }
        law.finish();
        law.scene.is_free();
    }
}
