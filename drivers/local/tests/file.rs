//! The file driver's own promises: what it opens, what it refuses, what the file system sees.

mod bed;

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Sender};
use std::time::Duration;

use bed::outside::leave_out;
use bed::{Bed, LoopDevice, TempFile, noise};
use weir_bio::{Bio, Buf, Class, Data, Flags, IoPrio, Op, Prng, Status};
use weir_local::file::{Backend, Io};
use weir_local::{File, FileOptions};
use weir_queue::Driver;

const MIB: u64 = 1 << 20;

fn sized(bytes: u64) -> FileOptions {
    FileOptions { size: Some(bytes), ..FileOptions::default() }
}

fn both_backends() -> [FileOptions; 2] {
    [Io::Auto, Io::Threads].map(|io| FileOptions { io, ..sized(4 * MIB) })
}

/// The error with its cause, which must name the file.
fn refusal(file: &TempFile, options: &FileOptions) -> String {
    let error = File::open(file.path(), options).expect_err("it is refused").to_string();
    assert!(error.contains(&file.path().display().to_string()), "{error}");
    error
}

#[test]
fn a_missing_file_is_made_sparse_when_a_size_is_given_and_else_refused() {
    let file = TempFile::on_disk();
    let error = refusal(&file, &FileOptions::default());
    assert!(error.contains("size=SIZE would make it"), "{error}");
    assert!(!file.path().exists());
    let driver = File::open(file.path(), &sized(1 << 30)).unwrap();
    assert_eq!(driver.limits().capacity, (1 << 30) / 512);
    let found = fs::metadata(file.path()).unwrap();
    assert_eq!(found.len(), 1 << 30);
    assert!(found.blocks() * 512 < MIB, "{} sectors allocated", found.blocks());
}

#[test]
fn a_link_is_followed_unless_that_is_switched_off() {
    let (file, link) = (TempFile::on_disk(), TempFile::on_disk());
    std::os::unix::fs::symlink(file.path(), link.path()).unwrap();
    let unfollowed = FileOptions { follow: false, ..sized(MIB) };
    // One that leads nowhere makes nothing there either.
    assert!(File::open(link.path(), &unfollowed).is_err());
    assert!(!file.path().exists());
    fs::write(file.path(), vec![0; MIB as usize]).unwrap();
    let error = refusal(&link, &unfollowed);
    assert!(error.contains("symbolic link"), "{error}");
    File::open(link.path(), &sized(MIB)).unwrap();
    File::open(file.path(), &unfollowed).unwrap();
}

#[test]
fn a_file_smaller_than_its_size_is_refused_and_a_larger_one_keeps_its_own() {
    let file = TempFile::on_disk();
    fs::write(file.path(), vec![0; 8192]).unwrap();
    let error = refusal(&file, &sized(16384));
    assert!(error.contains("8192") && error.contains("size=16384"), "{error}");
    assert_eq!(File::open(file.path(), &sized(4096)).unwrap().limits().capacity, 16);
    assert_eq!(File::open(file.path(), &FileOptions::default()).unwrap().limits().capacity, 16);
}

#[test]
fn a_file_of_any_size_is_read_and_written_to_its_last_byte_and_no_further() {
    for options in both_backends() {
        for bytes in [1_usize, 513, 1000, 5001, 70_000] {
            let file = TempFile::on_disk();
            fs::write(file.path(), vec![3; bytes]).unwrap();
            let driver = File::open(file.path(), &FileOptions { size: None, ..options.clone() });
            let driver = driver.unwrap();
            let size = driver.limits().validate().unwrap().size();
            assert_eq!((size.bytes(), size.sectors), (bytes as u64, bytes.div_ceil(512) as u64));
            let mut bed = Bed::new(&driver);
            let whole = size.sectors as usize * 512;
            let is = |expected: &[u8], what: &str| {
                let there = fs::read(file.path()).unwrap() == expected;
                assert!(there, "{bytes} bytes after {what}");
            };
            let read = |bed: &mut Bed| {
                let buf = Buf::filled(whole, |memory| memory.fill(0xee));
                let answered = bed.one(Bio::read(0, buf));
                assert_eq!(answered.status, Status::Ok);
                let mut copy = vec![0xdd; whole];
                answered.data.copy_to(&mut copy);
                copy
            };
            let mut shadow = vec![3; bytes];
            shadow.resize(whole, 0);
            assert!(read(&mut bed) == shadow, "{bytes} bytes and zeros behind them");
            for flags in [Flags::NONE, Flags::FUA] {
                let buf = Buf::filled(whole, |memory| memory.fill(7));
                let answered = bed.one(Bio::write(0, buf).with(flags));
                // All of the memory comes back.
                assert_eq!((answered.status, answered.data.len()), (Status::Ok, whole));
                shadow[..bytes].fill(7);
                is(&shadow[..bytes], "a write");
                assert!(read(&mut bed) == shadow, "{bytes} bytes and zeros behind them");
            }
            let last = size.sectors - 1;
            for op in [Op::WriteZeroes, Op::Discard] {
                bed.one(Bio::write(last, Buf::filled(512, |memory| memory.fill(9))));
                let answered = bed.one(Bio::new(op, last, 1, Data::None).with(Flags::FUA));
                assert_eq!(answered.status, Status::Ok, "{op:?}");
                shadow[last as usize * 512..].fill(0);
                is(&shadow[..bytes], "zeroes");
            }
            assert_eq!(bed.one(Bio::flush()).status, Status::Ok);
        }
    }
}

#[test]
fn an_empty_file_is_a_disk_of_no_bytes_and_one_that_grows_is_as_long_as_it_is() {
    let file = TempFile::on_disk();
    fs::write(file.path(), []).unwrap();
    let driver = File::open(file.path(), &FileOptions::default()).unwrap();
    assert_eq!(driver.limits().validate().unwrap().size().bytes(), 0);
    drop(driver);
    fs::write(file.path(), [1; 100]).unwrap();
    let driver = File::open(file.path(), &FileOptions::default()).unwrap();
    let found = fs::OpenOptions::new().write(true).open(file.path()).unwrap();
    found.set_len(700).unwrap();
    assert_eq!(driver.enlarge(0).unwrap().bytes(), 700);
    assert_eq!((driver.limits().capacity, driver.limits().padding), (2, 324));
    found.set_len(50).unwrap();
    assert_eq!(driver.enlarge(0).unwrap().bytes(), 700, "it never shrinks");
    assert_eq!(driver.enlarge(3).unwrap().bytes(), 1536);
    assert_eq!(fs::metadata(file.path()).unwrap().len(), 1536);
}

#[test]
fn what_is_no_disk_is_refused_by_name_and_reason() {
    let folder = TempFile::on_disk();
    fs::create_dir(folder.path()).unwrap();
    let error = refusal(&folder, &FileOptions::default());
    fs::remove_dir(folder.path()).unwrap();
    assert!(error.contains("neither a regular file nor a block device"), "{error}");
    let missing = TempFile::on_disk();
    let error = refusal(&missing, &sized(1000));
    assert!(error.contains("size=1000") && !missing.path().exists(), "{error}");
    let read_only = FileOptions { read_only: true, ..sized(4096) };
    assert!(refusal(&missing, &read_only).contains("read-only"));
    assert!(refusal(&missing, &FileOptions { depth: 0, ..sized(4096) }).contains("depth=0"));
}

#[test]
fn a_file_has_one_writer_or_many_readers_and_is_free_once_closed() {
    for options in both_backends() {
        let file = TempFile::on_disk();
        let reader = FileOptions { read_only: true, size: None, ..options.clone() };
        let writer = File::open(file.path(), &options).unwrap();
        let mut bed = Bed::new(&writer);
        bed.one(Bio::write(0, Buf::zeroed(4096)));
        assert!(refusal(&file, &options).contains("is in use already"));
        assert!(refusal(&file, &reader).contains("is in use for writing"));
        drop(bed);
        drop(writer);
        let readers = [reader.clone(), reader].map(|how| File::open(file.path(), &how).unwrap());
        assert!(refusal(&file, &options).contains("is in use already"));
        drop(readers);
        assert!(File::open(file.path(), &options).is_ok());
    }
}

#[test]
fn a_read_only_file_says_so_and_still_takes_a_flush() {
    for options in both_backends() {
        let file = TempFile::on_disk();
        fs::write(file.path(), vec![5; 8192]).unwrap();
        let options = FileOptions { read_only: true, size: None, ..options };
        let driver = File::open(file.path(), &options).unwrap();
        let limits = driver.limits();
        assert!(limits.read_only);
        assert_eq!(driver.enlarge(32).unwrap(), limits.size(), "it does not grow");
        assert_eq!((limits.max_hw_discard_sectors, limits.max_write_zeroes_sectors), (0, 0));
        let mut bed = Bed::new(&driver);
        bed.one(Bio::new(Op::Flush, 0, 0, Data::None));
        let answer = bed.one(Bio::read(8, Buf::zeroed(4096)));
        assert!(answer.data.bufs().unwrap()[0].iter().all(|byte| *byte == 5));
    }
}

#[test]
fn a_file_cut_short_underneath_gives_errors_and_no_invented_data() {
    for options in both_backends() {
        let file = TempFile::on_disk();
        let driver = File::open(file.path(), &options).unwrap();
        let mut bed = Bed::new(&driver);
        bed.one(Bio::write(0, Buf::filled(64 << 10, |bytes| bytes.fill(1))));
        fs::OpenOptions::new().write(true).open(file.path()).unwrap().set_len(32 << 10).unwrap();
        for (sector, pages, status) in [
            (56, 1, Status::Ok),
            (64, 1, Status::IoErr),
            (128, 1, Status::IoErr),
            (56, 2, Status::IoErr),
        ] {
            let answer = bed.run(vec![Bio::read(sector, Buf::zeroed(pages * 4096))]).remove(0);
            assert_eq!(answer.status, status, "sector {sector}, {pages} pages");
        }
    }
}

#[test]
fn a_request_of_more_pieces_than_one_call_takes_is_whole() {
    for direct in [true, false] {
        for options in both_backends() {
            let file = TempFile::on_disk();
            let driver = File::open(file.path(), &FileOptions { direct, ..options }).unwrap();
            let mut bed = Bed::new(&driver);
            let mut prng = Prng::new(3);
            let pieces: Vec<Buf> = (0..2500).map(|_| noise(&mut prng, 512)).collect();
            let expected: Vec<u8> = pieces.iter().flat_map(|piece| piece.to_vec()).collect();
            bed.one(Bio::new(Op::Write, 3, 2500, Data::Many(pieces.into())));
            let pieces: Vec<Buf> = (0..2500).map(|_| Buf::zeroed(512)).collect();
            let answer = bed.one(Bio::new(Op::Read, 3, 2500, Data::Many(pieces.into())));
            let mut found = vec![0; expected.len()];
            answer.data.copy_to(&mut found);
            assert!(found == expected);
            let whole = fs::read(file.path()).unwrap();
            assert!(whole[3 * 512..2503 * 512] == expected);
        }
    }
}

#[test]
fn discarding_frees_space_and_zeroing_keeps_it_when_told_to() {
    for options in both_backends() {
        let file = TempFile::on_disk();
        let driver = File::open(file.path(), &options).unwrap();
        let limits = driver.limits();
        if limits.max_hw_discard_sectors == 0 || !limits.fast_write_zeroes {
            return leave_out("the file system cannot punch holes");
        }
        let mut bed = Bed::new(&driver);
        let allocated = || fs::metadata(file.path()).unwrap().blocks();
        let flush = || Bio::new(Op::Flush, 0, 0, Data::None);
        bed.one(Bio::write(0, Buf::filled(MIB as usize, |bytes| bytes.fill(1))));
        bed.one(flush());
        let full = allocated();
        assert!(full >= 2048);
        bed.one(Bio::new(Op::WriteZeroes, 0, 1024, Data::None).with(Flags::NOUNMAP));
        bed.one(flush());
        assert!(allocated() >= full, "{} of {full} sectors", allocated());
        bed.one(Bio::new(Op::WriteZeroes, 0, 1024, Data::None));
        bed.one(flush());
        assert!(allocated() <= full - 1024, "{} of {full} sectors", allocated());
        bed.one(Bio::new(Op::Discard, 1024, 1024, Data::None));
        bed.one(flush());
        assert!(allocated() <= full - 2048, "{} of {full} sectors", allocated());
    }
}

#[test]
fn an_allocation_shows_the_holes_of_a_sparse_file() {
    let file = TempFile::on_disk();
    let driver = File::open(file.path(), &sized(4 * MIB)).unwrap();
    let mut bed = Bed::new(&driver);
    bed.one(Bio::write(2048, Buf::filled(64 << 10, |bytes| bytes.fill(1))));
    let shape = |sector, sectors| -> Vec<(u64, bool, bool)> {
        let extents = driver.allocation(sector, sectors).unwrap();
        extents.iter().map(|extent| (extent.sectors, extent.hole, extent.zero)).collect()
    };
    let (hole, data) = (true, false);
    assert_eq!(shape(0, 8192), [(2048, hole, true), (128, data, false), (6016, hole, true)]);
    assert_eq!(shape(2050, 10), [(10, data, false)]);
    assert_eq!(shape(2170, 16), [(6, data, false), (10, hole, true)]);
    assert_eq!(shape(8190, 2), [(2, hole, true)]);
}

#[test]
fn the_back_end_is_the_one_asked_for_and_is_named() {
    let file = TempFile::on_disk();
    let options = FileOptions { io: Io::Threads, threads: 3, ..sized(MIB) };
    let driver = File::open(file.path(), &options).unwrap();
    assert_eq!(driver.backend(), Backend::Threads(3));
    let last = driver.notices().pop().unwrap();
    assert!(last.contains("3 threads per queue"), "{last}");
    drop(driver);
    match File::open(file.path(), &FileOptions { io: Io::Uring, ..options }) {
        Ok(driver) => {
            assert_eq!(driver.backend(), Backend::Uring);
            assert!(driver.notices().pop().unwrap().contains("io_uring"));
        }
        Err(error) => leave_out(&format!("{error}")),
    }
}

#[test]
fn buffered_and_direct_drivers_see_the_same_bytes() {
    let file = TempFile::on_disk();
    for direct in [true, false, true] {
        let byte = u8::from(direct) + 1;
        let options = FileOptions { direct, ..sized(MIB) };
        let driver = File::open(file.path(), &options).unwrap();
        assert!(direct || !driver.is_direct());
        let mut bed = Bed::new(&driver);
        bed.one(Bio::write(0, Buf::filled(4096, |bytes| bytes.fill(byte))));
        let written = fs::read(file.path()).unwrap();
        assert!(written[..4096].iter().all(|found| *found == byte));
        let prefetch = Bio::new(Op::Prefetch, 0, 2048, Data::None);
        bed.one(prefetch);
    }
}

#[test]
fn a_block_device_has_one_user_and_reports_its_blocks() {
    for block in [512, 4096] {
        let device = match LoopDevice::new(4 * MIB, block) {
            Ok(device) => device,
            Err(error) => return leave_out(&format!("no loop device: {error}")),
        };
        let driver = File::open(device.path(), &FileOptions::default()).unwrap();
        let limits = driver.limits();
        assert_eq!((limits.capacity, limits.logical_block_size), (8192, block));
        let extents = driver.allocation(0, 8192).unwrap();
        assert!(extents.len() == 1 && !extents[0].hole && extents[0].sectors == 8192);
        let error = File::open(device.path(), &FileOptions::default()).unwrap_err().to_string();
        assert!(error.contains("in use"), "{error}");
        let error = File::open(device.path(), &sized(8 * MIB)).unwrap_err().to_string();
        assert!(error.contains("in use") || error.contains("size=8388608"), "{error}");
    }
}

/// A write of 4 KiB of this byte, at the block of that number.
fn block_of(byte: u8) -> Bio {
    let at = u64::from(byte) * 8;
    Bio::write(at, Buf::filled(4096, |memory| memory.fill(byte))).cookie(u64::from(byte))
}

/// Has a burst answered; whether its call was made within it: then there is something to reap.
fn is_made(bed: &mut Bed, bios: Vec<Bio>, what: &str) -> bool {
    let mut left = bios.len();
    assert!(bed.rig.submit(bios, bed.now).is_none(), "{what}");
    assert_eq!(bed.rig.queue().in_flight(), left, "{what}");
    let made = bed.rig.queue().wake_at().is_some();
    for reap in 0.. {
        if left == 0 {
            break;
        }
        assert!(reap < 100, "{what}: {left} without an answer");
        bed.wait();
        for answer in bed.rig.reap(bed.now) {
            assert_eq!(answer.status, Status::Ok, "{what}");
            left -= 1;
        }
    }
    assert_eq!((bed.rig.queue().in_flight(), bed.rig.queue().wake_at()), (0, None), "{what}");
    made
}

#[test]
fn a_thread_that_may_block_makes_a_durable_write_or_a_flush_itself_if_nothing_is_beside_it() {
    for options in both_backends() {
        let file = TempFile::on_disk();
        let driver = File::open(file.path(), &options).unwrap();
        let (uring, direct) = (driver.backend() == Backend::Uring, driver.is_direct());
        let mut bed = Bed::new(&driver);
        let flush = || Bio::new(Op::Flush, 0, 0, Data::None);
        let durable = |byte| block_of(byte).with(Flags::FUA);
        let with_priority = |byte| {
            let mut bio = durable(byte);
            bio.ioprio = IoPrio::new(Class::BestEffort, 3);
            bio
        };
        assert!(!is_made(&mut bed, vec![durable(1)], "a thread that may not block"));
        assert!(!is_made(&mut bed, vec![flush()], "a flush of one that may not block"));
        assert!(bed.rig.queue().may_block());
        // In the page cache a durable write is a write, and then a flush.
        assert_eq!(is_made(&mut bed, vec![durable(2)], "a durable write"), direct);
        assert!(is_made(&mut bed, vec![flush()], "a flush"));
        assert!(!is_made(&mut bed, vec![block_of(3)], "a write"));
        assert!(!is_made(&mut bed, vec![Bio::read(8, Buf::zeroed(4096))], "a read"));
        assert!(!is_made(&mut bed, vec![durable(4), durable(5)], "two"));
        assert!(!is_made(&mut bed, vec![flush(), flush()], "two flushes"));
        assert!(!is_made(&mut bed, vec![durable(6), flush()], "a durable write and a flush"));
        assert_eq!(
            is_made(&mut bed, vec![with_priority(7)], "one with a priority"),
            direct && !uring
        );
        // What is answered and not reaped is beside it too.
        assert!(bed.rig.submit(vec![Bio::read(0, Buf::zeroed(4096))], bed.now).is_none());
        assert!(bed.rig.submit(vec![durable(8)], bed.now).is_none());
        assert_eq!(bed.rig.queue().wake_at(), None, "a durable write beside a read");
        let mut left = 2;
        while left > 0 {
            bed.wait();
            left -= bed.rig.reap(bed.now).len();
        }
        let contents = fs::read(file.path()).unwrap();
        for byte in 1..=8_u8 {
            let block = &contents[usize::from(byte) * 4096..][..4096];
            assert!(block.iter().all(|is| *is == byte), "block {byte}");
        }
    }
}

#[test]
fn a_call_that_was_made_and_not_answered_leaves_nothing_under_way_when_the_queue_is_closed() {
    for options in both_backends() {
        let file = TempFile::on_disk();
        let driver = File::open(file.path(), &options).unwrap();
        if !driver.is_direct() {
            return leave_out("direct I/O");
        }
        for bio in [block_of(1).with(Flags::FUA), Bio::new(Op::Flush, 0, 0, Data::None)] {
            let mut bed = Bed::new(&driver);
            assert!(bed.rig.queue().may_block());
            assert!(bed.rig.submit(vec![bio], bed.now).is_none());
            assert!(bed.rig.queue().wake_at().is_some());
            // The core gives it up, as when a disk is closed that does not come to rest.
            bed.rig.cancel_all(bed.now);
            drop(bed);
        }
        let told = driver.notices().join("; ");
        assert!(!told.contains("in flight"), "{told}");
        assert!(fs::read(file.path()).unwrap()[4096..8192].iter().all(|byte| *byte == 1));
    }
}

/// Waits in a queue's ring: for answers, for `beside` and for a time. `told` counts how often
/// `beside` was made readable.
fn wait_in_the_ring(driver: &File, beside: impl AsFd, told: &AtomicU32, say: &Sender<&str>) {
    let mut bed = Bed::new(driver);
    let Some(mut waiter) = bed.rig.queue().waiter(beside.as_fd()) else {
        return say.send("none").unwrap();
    };
    for round in 1..=3 {
        let reads = (0..8).map(|n| Bio::read(n * 8, Buf::zeroed(4096)));
        assert!(bed.rig.submit(reads.collect(), bed.now).is_none());
        let mut answers = 0;
        while answers < 8 {
            waiter.wait(None);
            while let count @ 1.. = bed.rig.reap(bed.now).len() {
                answers += count;
            }
        }
        let event = bed.rig.queue().event_fd().expect("an event");
        assert!(!bed::is_readable(event), "nobody looks at it any more");
        say.send("answered").unwrap();
        while told.load(Ordering::Acquire) < round {
            waiter.wait(None);
            assert!(bed.rig.reap(bed.now).is_empty());
        }
        say.send("woken").unwrap();
        waiter.wait(Some(1_000_000));
        say.send("over").unwrap();
    }
}

#[test]
fn who_waits_in_the_ring_is_woken_by_answers_by_what_stands_beside_and_by_time() {
    let file = TempFile::on_disk();
    let driver = File::open(file.path(), &sized(4 * MIB)).unwrap();
    let flags = rustix::event::EventfdFlags::NONBLOCK;
    let beside = rustix::event::eventfd(0, flags).unwrap();
    let told = Arc::new(AtomicU32::new(0));
    let (say, said) = mpsc::channel();
    let hear = || said.recv_timeout(Duration::from_secs(60)).expect("it goes on");
    let (theirs, heeded) = (beside.try_clone().unwrap(), Arc::clone(&told));
    // Not waited for: a thread that is never woken must not keep the test from failing.
    std::thread::spawn(move || wait_in_the_ring(&driver, &theirs, &heeded, &say));
    for _ in 0..3 {
        match hear() {
            "none" => return leave_out("a ring that can be waited in"),
            said => assert_eq!(said, "answered"),
        }
        told.fetch_add(1, Ordering::Release);
        rustix::io::write(&beside, &1_u64.to_ne_bytes()).unwrap();
        assert_eq!((hear(), hear()), ("woken", "over"));
    }
}
