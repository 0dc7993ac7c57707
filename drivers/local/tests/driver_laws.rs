//! The promises of every driver of this crate, checked over all drivers: a new driver, or a new way
//! to run one, is one more line in `subjects`.

mod bed;

use std::path::Path;
use std::sync::Arc;

use bed::outside::leave_out;
use bed::{Bed, LoopDevice, TempFile, noise, seed};
use weir_bio::{Bio, Buf, Data, Flags, Nanos, Op, Prng, SECTOR, Segments, Status};
use weir_local::file::Io;
use weir_local::ram::{Cache, CrashRam};
use weir_local::{File, FileOptions, Null, Ram};
use weir_map::{FaultPlan, Faulty};
use weir_queue::Driver;

const SIZE: u64 = 4 << 20;
const SECTORS: u64 = SIZE / SECTOR;

struct Subject {
    name: String,
    driver: Arc<dyn Driver>,
    keeps_data: bool,
    /// The thread is there for the queue alone.
    blocks: bool,
}

fn subjects() -> Vec<Subject> {
    let mut subjects = Vec::new();
    let mut add = |name: &str, driver: Arc<dyn Driver>| {
        let keeps_data = !name.starts_with("null");
        subjects.push(Subject { name: name.to_owned(), driver, keeps_data, blocks: false });
    };
    add("null", Arc::new(Null::new(SIZE).unwrap()));
    add("null with latency", Arc::new(Null::new(SIZE).unwrap().latency_ns(1000)));
    add("ram", Arc::new(Ram::new(SIZE).unwrap()));
    for (volatile, fua) in [(false, false), (false, true), (true, false), (true, true)] {
        let name = format!("crash ram, volatile={volatile} fua={fua}");
        add(&name, Arc::new(CrashRam::new(SIZE, Cache { volatile, fua }).unwrap()));
    }
    let plan = FaultPlan {
        refused: 20,
        delayed: 40,
        reaps_max: 3,
        reordered: true,
        ..FaultPlan::default()
    };
    add("faulty ram", Arc::new(Faulty::new(Arc::new(Ram::new(SIZE).unwrap()), plan.clone(), 1)));
    subjects.extend(files());
    subjects.extend(block_devices());
    let file = File::open(TempFile::on_disk().path(), &options()).unwrap();
    let driver = Arc::new(Faulty::new(Arc::new(file), plan, 2));
    subjects.push(Subject {
        name: "faulty file".to_owned(),
        driver,
        keeps_data: true,
        blocks: false,
    });
    subjects
}

fn options() -> FileOptions {
    FileOptions { size: Some(SIZE), ..FileOptions::default() }
}

/// The file driver on a disk and in memory, past and through the page cache, with each back end.
/// The files lose their names at once, so that nothing stays behind however the test ends.
fn files() -> Vec<Subject> {
    let memory = Path::new("/dev/shm");
    let mut subjects = Vec::new();
    let yes_no = [true, false];
    for (io, direct) in [Io::Uring, Io::Threads].map(|io| yes_no.map(|yes| (io, yes))).concat() {
        for (in_memory, blocks) in yes_no.map(|memory| yes_no.map(|yes| (memory, yes))).concat() {
            let folder = if in_memory { memory } else { Path::new(env!("CARGO_TARGET_TMPDIR")) };
            let name = format!(
                "file, {io:?}, direct={direct}, in memory={in_memory}, thread may block={blocks}"
            );
            let file = TempFile::within(folder);
            if in_memory && !memory.is_dir() {
                leave_out(&format!("{name}: there is no {}", memory.display()));
                continue;
            }
            match File::open(file.path(), &FileOptions { io, direct, ..options() }) {
                Ok(driver) => {
                    println!("{name}: {}", driver.notices().join("; "));
                    let driver = Arc::new(driver);
                    subjects.push(Subject { name, driver, keeps_data: true, blocks });
                }
                Err(error) if io == Io::Uring && error.to_string().contains("io_uring") => {
                    leave_out(&format!("{name}: {error}"));
                }
                Err(error) => panic!("{name}: {error}"),
            }
        }
    }
    subjects
}

/// Block devices with small and large blocks, where the system lets us make some. They are
/// detached at once, which takes effect when the driver lets go of them.
fn block_devices() -> Vec<Subject> {
    let mut subjects = Vec::new();
    for (block, io) in [(512, Io::Auto), (4096, Io::Auto), (4096, Io::Threads)] {
        let name = format!("block device, {block}-byte blocks, {io:?}");
        match LoopDevice::new(SIZE, block) {
            Ok(device) => {
                let driver = File::open(device.path(), &FileOptions { io, ..options() }).unwrap();
                assert_eq!(driver.limits().logical_block_size, block);
                let driver = Arc::new(driver);
                subjects.push(Subject { name, driver, keeps_data: true, blocks: false });
            }
            Err(error) => leave_out(&format!("{name}: {error}")),
        }
    }
    subjects
}

/// A queue of the subject's.
fn bed_of(subject: &Subject) -> Bed {
    let mut bed = Bed::new(&*subject.driver);
    assert_eq!(subject.blocks && bed.rig.queue().may_block(), subject.blocks);
    bed
}

/// Runs a law over all subjects, naming the one it fails on.
fn each(law: impl Fn(&Subject, &mut Bed)) {
    for subject in subjects() {
        println!("-- {}", subject.name);
        law(&subject, &mut bed_of(&subject));
    }
}

#[test]
fn the_limits_hold_together() {
    each(|subject, _| {
        let limits = subject.driver.limits();
        assert_eq!(limits.capacity, SECTORS);
        assert!(limits.clone().validate().is_ok(), "{limits:?}");
        assert!(subject.driver.queues().depth > 0);
    });
}

#[test]
fn as_many_requests_as_there_are_tags_are_each_answered_once() {
    each(|subject, bed| {
        let depth = u64::from(subject.driver.queues().depth);
        for round in 0..3 {
            let bios = (0..depth).map(|i| match (i + round) % 3 {
                0 => Bio::read(i * 8, Buf::zeroed(4096)).cookie(i),
                _ => Bio::write(i * 8, Buf::zeroed(4096)).cookie(i),
            });
            let answers = bed.run(bios.collect());
            assert!(answers.iter().all(|answer| answer.status.is_ok()));
            let mut cookies: Vec<u64> = answers.iter().map(|answer| answer.cookie).collect();
            cookies.sort_unstable();
            assert_eq!(cookies, (0..depth).collect::<Vec<u64>>());
            assert_eq!(bed.rig.queue().in_flight(), 0);
        }
    });
}

#[test]
fn nothing_is_answered_inside_submit_and_the_count_in_flight_is_right() {
    each(|subject, bed| {
        if subject.name.starts_with("faulty") {
            return;
        }
        let bios = (0..8).map(|i| Bio::write(i * 8, Buf::zeroed(4096))).collect();
        assert!(bed.rig.submit(bios, bed.now).is_none());
        assert_eq!(bed.rig.queue().in_flight(), 8);
        let mut answered = 0;
        while answered < 8 {
            bed.wait();
            answered += bed.rig.reap(bed.now).len();
            assert_eq!(bed.rig.queue().in_flight(), 8 - answered);
        }
    });
}

#[test]
fn a_refused_rest_comes_back_whole_and_in_order() {
    let plan = FaultPlan { refused: 20, ..FaultPlan::default() };
    for seed in 0..100 {
        let driver = Faulty::new(Arc::new(Ram::new(SIZE).unwrap()), plan.clone(), seed);
        let mut bed = Bed::new(&driver);
        let buf = |byte| Buf::filled(4096, |bytes| bytes.fill(byte));
        let bios = (0..32).map(|i| Bio::write(i * 8, buf(i as u8)).cookie(i)).collect();
        let rest = bed.rig.submit(bios, bed.now).map_or_else(Vec::new, |(_, rest)| rest);
        let taken = 32 - rest.len() as u64;
        for (i, bio) in (taken..).zip(rest) {
            assert_eq!((bio.cookie, bio.sector), (i, i * 8), "seed {seed}");
            assert!(bio.data.bufs().unwrap()[0].iter().all(|byte| *byte == i as u8), "seed {seed}");
        }
        assert_eq!(bed.rig.reap(bed.now).len() as u64, taken, "seed {seed}");
    }
}

/// The contents that a test expects on the device; `None` where anything may be.
struct Model {
    sectors: Vec<Option<[u8; SECTOR as usize]>>,
}

impl Model {
    fn new() -> Model {
        Model { sectors: vec![Some([0; SECTOR as usize]); SECTORS as usize] }
    }

    fn apply(&mut self, bio: &Bio) {
        let range = bio.sector as usize..bio.end() as usize;
        match bio.op {
            Op::Write => {
                let mut bytes = vec![0; bio.data.len()];
                bio.data.copy_to(&mut bytes);
                for (sector, new) in self.sectors[range].iter_mut().zip(bytes.as_chunks().0) {
                    *sector = Some(*new);
                }
            }
            Op::WriteZeroes => self.sectors[range].fill(Some([0; SECTOR as usize])),
            Op::Discard => self.sectors[range].fill(None),
            _ => {}
        }
    }

    fn check(&self, first: u64, data: &Data) {
        let mut bytes = vec![0xEE; data.len()];
        data.copy_to(&mut bytes);
        for (sector, found) in (first..).zip(bytes.as_chunks::<{ SECTOR as usize }>().0) {
            if let Some(expected) = &self.sectors[sector as usize] {
                assert!(found == expected, "sector {sector} is not what was written");
            }
        }
    }
}

/// Memory of `len` bytes in one piece, in several, as segments, or (where `zero`) in none.
fn random_data(prng: &mut Prng, len: usize, block: usize, zero: bool) -> Data {
    let mut data = Data::One(noise(prng, len));
    match prng.below(5) {
        0 if zero => Data::Zero { len: len as u32, spare: None },
        2 => {
            let (mut lengths, mut left) = (Vec::new(), len / block);
            while left > 0 {
                let blocks = 1 + prng.below(left.min(5) as u64) as usize;
                lengths.push(blocks * block);
                left -= blocks;
            }
            let Data::One(buf) = data else { unreachable!("made above") };
            Segments::of_buf(buf, lengths).into()
        }
        1 => {
            let mut pieces = Vec::new();
            while data.len() > block {
                let most = (data.len() / block - 1) as u64;
                let rest = data.split_off(block * (1 + prng.below(most.min(4)) as usize));
                pieces.push(std::mem::replace(&mut data, rest));
            }
            pieces.push(data);
            Data::Many(
                pieces
                    .into_iter()
                    .flat_map(|piece| match piece {
                        Data::One(buf) => Some(buf),
                        _ => None,
                    })
                    .collect(),
            )
        }
        _ => data,
    }
}

fn random_bio(prng: &mut Prng, subject: &Subject, region: u64) -> Bio {
    let limits = subject.driver.limits();
    let block = u64::from(limits.block_sectors());
    // 64 KiB regions: two bios of one burst never meet.
    let blocks = 128 / block;
    let first = prng.below(blocks);
    let count = 1 + prng.below(blocks - first);
    let (sector, sectors) = (region * 128 + first * block, (count * block) as u32);
    let len = sectors as usize * SECTOR as usize;
    let block_bytes = limits.logical_block_size as usize;
    match prng.below(10) {
        0 if limits.max_discard_sectors() > 0 => Bio::new(Op::Discard, sector, sectors, Data::None),
        1 | 2 if limits.max_write_zeroes_sectors > 0 => {
            let bio = Bio::new(Op::WriteZeroes, sector, sectors, Data::None);
            if prng.percent(50) { bio.with(Flags::NOUNMAP) } else { bio }
        }
        3 => Bio::new(Op::Prefetch, sector, sectors, Data::None),
        4..=6 => {
            let bio =
                Bio::new(Op::Write, sector, sectors, random_data(prng, len, block_bytes, true));
            if prng.percent(20) && limits.fua { bio.with(Flags::FUA) } else { bio }
        }
        _ => Bio::new(Op::Read, sector, sectors, random_data(prng, len, block_bytes, true)),
    }
}

#[test]
fn what_is_read_is_what_was_written_zeroed_or_never_touched() {
    let seed = seed();
    each(|subject, bed| {
        if !subject.keeps_data {
            return;
        }
        let mut prng = Prng::new(seed);
        let mut model = Model::new();
        for _ in 0..60 {
            let mut bios = Vec::new();
            let start = prng.below(64);
            for region in 0..prng.below(32) {
                let bio = random_bio(&mut prng, subject, (start + region) % 64);
                model.apply(&bio);
                let cookie = bio.sector;
                bios.push(bio.cookie(cookie));
            }
            let reads: Vec<u64> =
                bios.iter().filter(|bio| bio.op == Op::Read).map(|bio| bio.sector).collect();
            for answer in bed.run(bios) {
                assert_eq!(answer.status, Status::Ok);
                if reads.contains(&answer.cookie) {
                    model.check(answer.cookie, &answer.data);
                }
            }
        }
        for region in 0..64 {
            let answer = bed.one(Bio::read(region * 128, Buf::zeroed(64 << 10)));
            model.check(region * 128, &answer.data);
        }
    });
}

#[test]
fn memory_lent_for_a_write_comes_back_unchanged() {
    let seed = seed();
    each(|_, bed| {
        let mut prng = Prng::new(seed);
        let first = noise(&mut prng, 4096);
        let second = noise(&mut prng, 8192);
        let copy = [&first[..], &second[..]].concat();
        let addresses = [first.as_ptr(), second.as_ptr()];
        let answer = bed.one(Bio::new(Op::Write, 16, 24, Data::Many(vec![first, second].into())));
        let Some([first, second]) = answer.data.bufs() else { panic!("{:?}", answer.data) };
        assert_eq!([first.as_ptr(), second.as_ptr()], addresses);
        assert!([&first[..], &second[..]].concat() == copy);
    });
}

#[test]
fn a_flush_and_a_fua_write_succeed() {
    each(|subject, bed| {
        bed.one(Bio::write(0, Buf::zeroed(4096)));
        if subject.driver.limits().volatile_cache {
            bed.one(Bio::new(Op::Flush, 0, 0, Data::None));
        }
        if subject.driver.limits().fua {
            bed.one(Bio::write(0, Buf::zeroed(4096)).with(Flags::FUA));
        }
    });
}

#[test]
fn zeroing_reads_back_zeros_and_must_be_fast_means_fast_or_unchanged() {
    each(|subject, bed| {
        let limits = subject.driver.limits();
        if !subject.keeps_data || limits.max_write_zeroes_sectors == 0 {
            return;
        }
        for flags in [
            Flags::NONE,
            Flags::NOUNMAP,
            Flags::NOFALLBACK,
            Flags::NOFALLBACK | Flags::NOUNMAP,
            Flags::FUA,
        ] {
            bed.one(Bio::write(0, Buf::filled(64 << 10, |bytes| bytes.fill(7))));
            let zeroes = Bio::new(Op::WriteZeroes, 8, 112, Data::None).with(flags);
            let status = bed.run(vec![zeroes]).remove(0).status;
            let inside = match status {
                Status::Ok => 0,
                Status::NotSupp if flags.has(Flags::NOFALLBACK) => 7,
                other => panic!("{flags:?}: {other:?}"),
            };
            if flags == Flags::NOFALLBACK && limits.fast_write_zeroes {
                assert_eq!(status, Status::Ok, "it said that it is fast");
            }
            let mut bytes = vec![0xEE; 64 << 10];
            bed.one(Bio::read(0, Buf::zeroed(64 << 10))).data.copy_to(&mut bytes);
            let (edge, end) = (8 * 512, 120 * 512);
            assert!(bytes[..edge].iter().chain(&bytes[end..]).all(|byte| *byte == 7), "{flags:?}");
            assert!(bytes[edge..end].iter().all(|byte| *byte == inside), "{flags:?}");
        }
    });
}

#[test]
fn what_no_driver_here_does_is_answered_not_supported() {
    each(|_, bed| {
        for op in [Op::DrvIn, Op::DrvOut, Op::SecureErase] {
            let answer = bed.run(vec![Bio::new(op, 0, 8, Data::None)]).remove(0);
            assert_eq!(answer.status, Status::NotSupp, "{op:?}");
        }
    });
}

#[test]
fn an_allocation_covers_what_was_asked_for_and_its_zeros_are_zeros() {
    each(|subject, bed| {
        bed.one(Bio::write(256, Buf::filled(64 << 10, |bytes| bytes.fill(7))));
        for (sector, sectors) in [(0, SECTORS), (8, 8), (250, 20), (300, 1), (SECTORS - 8, 8)] {
            let extents = subject.driver.allocation(sector, sectors).unwrap();
            assert_eq!(extents.iter().map(|extent| extent.sectors).sum::<u64>(), sectors);
            assert!(extents.iter().all(|extent| extent.sectors > 0), "{extents:?}");
            let mut at = sector;
            for extent in extents {
                let wrong = extent.zero && at < 384 && at + extent.sectors > 256;
                assert!(!wrong || !subject.keeps_data, "data called zeros at {at}: {extent:?}");
                at += extent.sectors;
            }
        }
    });
}

#[test]
fn a_queue_dropped_with_requests_in_flight_leaves_the_device_whole() {
    each(|subject, bed| {
        let depth = u64::from(subject.driver.queues().depth);
        let bios = (0..depth).map(|i| match i % 2 {
            0 => Bio::read(i * 8, Buf::zeroed(4096)),
            _ => Bio::write(i * 8, Buf::filled(4096, |bytes| bytes.fill(3))),
        });
        _ = bed.rig.submit(bios.collect(), bed.now);
        bed.rig.cancel_all(bed.now);
        *bed = bed_of(subject);
        bed.one(Bio::write(0, Buf::filled(4096, |bytes| bytes.fill(9))));
        let answer = bed.one(Bio::read(0, Buf::zeroed(4096)));
        let mut bytes = [0xEE; 4096];
        answer.data.copy_to(&mut bytes);
        assert!(!subject.keeps_data || bytes == [9; 4096]);
    });
}

#[test]
fn a_cancelled_request_gives_its_tag_back_with_an_answer() {
    each(|subject, bed| {
        if subject.name.starts_with("faulty") {
            return;
        }
        let bios = (0..16).map(|i| Bio::write(i * 8, Buf::zeroed(4096))).collect();
        assert!(bed.rig.submit(bios, bed.now).is_none());
        bed.rig.cancel_all(bed.now);
        while bed.rig.queue().in_flight() > 0 {
            bed.wait();
            assert!(bed.rig.reap(bed.now).is_empty(), "the rig swallows cancelled answers");
        }
        assert_eq!(bed.run(vec![Bio::read(0, Buf::zeroed(4096))]).len(), 1);
    });
}

#[test]
fn an_idle_queue_asks_for_nothing() {
    each(|_, bed| {
        bed.one(Bio::read(0, Buf::zeroed(4096)));
        assert_eq!((bed.rig.queue().wake_at(), bed.rig.queue().in_flight()), (None, 0));
        assert!(bed.rig.reap(Nanos(u64::MAX)).is_empty());
        if let Some(fd) = bed.rig.queue().event_fd() {
            assert!(!bed::is_readable(fd), "it would wake its reactor for ever");
        }
    });
}
