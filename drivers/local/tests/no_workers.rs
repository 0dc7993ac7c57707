//! A file disk whose thread may have no further thread: a limit of processes is reached
//! (RLIMIT_NPROC here; pids.max and systemd's TasksMax do the same), so that io_uring has no worker
//! for calls that may sleep. Such a disk goes on with what needs none, and with all of it when the
//! limit has passed.
//!
//! One test, so that no other thread of this program is started meanwhile.

mod bed;

use std::time::{Duration, Instant};

use bed::outside::leave_out;
use bed::{Bed, TempFile};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{Uid, set_thread_res_uid};
use weir_bio::{Bio, Buf, Data, Flags, Op, Status};
use weir_local::{File, FileOptions, Io};
use weir_queue::rig::Answered;

const BLOCK: usize = 4096;

/// A user that has no other process.
const USER: u32 = 64_911;

/// How long a test may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// While it is there, this thread starts no other, and neither does the kernel for it.
struct Alone(Rlimit);

impl Alone {
    /// `None`, said aloud, where the system lets threads be started all the same.
    fn new() -> Option<Alone> {
        let before = getrlimit(Resource::Nproc);
        if rustix::process::geteuid().is_root() {
            // Of this thread only: root is under no such limit.
            let user = Uid::from_raw(USER);
            if let Err(errno) = set_thread_res_uid(user, user, user) {
                leave_out(&format!("this thread cannot be another user's: {errno}"));
                return None;
            }
        }
        let alone = Alone(before);
        alone.set(Some(1));
        if std::thread::Builder::new().spawn(|| {}).is_ok() {
            leave_out("threads can be started beyond RLIMIT_NPROC");
            return None;
        }
        Some(alone)
    }

    fn set(&self, current: Option<u64>) {
        let limit = Rlimit { current, ..self.0 };
        setrlimit(Resource::Nproc, limit).expect("a lower limit, or the one before");
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        self.set(self.0.current);
    }
}

fn flush() -> Bio {
    Bio::new(Op::Flush, 0, 0, Data::None)
}

fn write(block: u64) -> Bio {
    let byte = block as u8 + 1;
    Bio::write(block * (BLOCK / 512) as u64, Buf::filled(BLOCK, |bytes| bytes.fill(byte)))
}

fn discard(block: u64) -> Bio {
    Bio::new(Op::Discard, block * (BLOCK / 512) as u64, (BLOCK / 512) as u32, Data::None)
}

/// Reaps until `enough` of the answers so far.
fn reap_until(bed: &mut Bed, mut enough: impl FnMut(&[Answered]) -> bool) -> Vec<Answered> {
    let (begin, mut answers) = (Instant::now(), Vec::new());
    while !enough(&answers) {
        assert!(begin.elapsed() < PATIENCE, "never answered; so far {answers:?}");
        if let Some(fd) = bed.rig.queue().event_fd() {
            let mut polled = [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::IN)];
            let moment = rustix::event::Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
            _ = rustix::event::poll(&mut polled, Some(&moment));
        }
        answers.extend(bed.rig.reap(bed.now));
    }
    answers
}

fn told(driver: &File, what: &str) -> usize {
    driver.notices().iter().filter(|notice| notice.contains(what)).count()
}

/// A disk of holes, and its queue on this thread.
fn disk(depth: u16) -> Option<(TempFile, File, Bed)> {
    let file = TempFile::on_disk();
    let options =
        FileOptions { size: Some(4 << 20), io: Io::Uring, depth, ..FileOptions::default() };
    let driver = match File::open(file.path(), &options) {
        Ok(driver) => driver,
        Err(error) => {
            leave_out(&error.to_string());
            return None;
        }
    };
    let bed = Bed::new(&driver);
    Some((file, driver, bed))
}

/// The whole depth at once, of everything that needs a worker; then the limit passes.
fn all_is_answered_when_the_limit_has_passed() {
    let Some((_file, driver, mut bed)) = disk(64) else { return };
    let Some(alone) = Alone::new() else { return };
    let mut bios: Vec<Bio> = (0..56).map(write).collect();
    bios.extend([write(60).with(Flags::FUA), discard(100), discard(101)]);
    bios.extend([flush(), flush(), flush()]);
    let reads = [200, 201].map(|block| Bio::read(block * 8, Buf::filled(BLOCK, |b| b.fill(9))));
    bios.extend(reads);
    let wanted = bios.len();
    bios.iter_mut().zip(0..).for_each(|(bio, cookie)| bio.cookie = cookie);
    assert!(bed.rig.submit(bios, bed.now).is_none());
    let short = |_: &[Answered]| told(&driver, "no thread can be started") > 0;
    let mut answers = reap_until(&mut bed, short);
    assert!(answers.iter().all(|answer| answer.status.is_ok()), "{answers:?}");
    assert!(answers.len() < wanted, "nothing needs a worker here");
    drop(alone);
    let left = wanted - answers.len();
    answers.extend(reap_until(&mut bed, |answers| answers.len() >= left));
    assert!(answers.iter().all(|answer| answer.status.is_ok()), "{answers:?}");
    let mut cookies: Vec<u64> = answers.iter().map(|answer| answer.cookie).collect();
    cookies.sort_unstable();
    assert_eq!(cookies, (0..wanted as u64).collect::<Vec<_>>(), "each once");
    assert_eq!(bed.rig.queue().in_flight(), 0);
    assert_eq!(told(&driver, "io_uring's workers"), 1, "{:?}", driver.notices());
    for block in 0..56 {
        let read = Bio::read(block * 8, Buf::zeroed(BLOCK));
        assert!(bed.rig.submit(vec![read], bed.now).is_none());
        let read = reap_until(&mut bed, |answers| !answers.is_empty()).remove(0);
        assert!(
            read.data.bufs().unwrap()[0].iter().all(|byte| *byte == block as u8 + 1),
            "block {block}"
        );
    }
    // Nothing was taken for a flush that failed.
    assert!(bed.rig.submit(vec![flush()], bed.now).is_none());
    let flushed = reap_until(&mut bed, |answers| !answers.is_empty()).remove(0);
    assert_eq!(flushed.status, Status::Ok);
}

/// The core gives up all that waits, and then the limit passes.
fn what_is_given_up_meanwhile_ends_without_a_thread_and_fails_no_later_flush() {
    let Some((_file, driver, mut bed)) = disk(8) else { return };
    let Some(alone) = Alone::new() else { return };
    assert!(bed.rig.submit(vec![write(0), flush(), discard(1)], bed.now).is_none());
    let short = |_: &[Answered]| told(&driver, "no thread can be started") > 0;
    assert!(reap_until(&mut bed, short).is_empty());
    bed.rig.cancel_all(bed.now);
    let begin = Instant::now();
    while bed.rig.queue().in_flight() > 0 {
        assert!(begin.elapsed() < PATIENCE, "a request given up is kept");
        assert!(bed.rig.reap(bed.now).is_empty(), "its submitter was told");
    }
    drop(alone);
    assert!(bed.rig.submit(vec![write(2), flush()], bed.now).is_none());
    let answers = reap_until(&mut bed, |answers| answers.len() == 2);
    assert!(answers.iter().all(|answer| answer.status.is_ok()), "{answers:?}");
}

#[test]
fn a_disk_whose_thread_gets_no_worker_answers_what_needs_none_and_the_rest_when_it_can() {
    for scenario in [
        all_is_answered_when_the_limit_has_passed,
        what_is_given_up_meanwhile_ends_without_a_thread_and_fails_no_later_flush,
    ] {
        // The kernel's workers belong to a thread, and so does a user.
        let name = "a_disk_whose_thread_gets_no_worker".to_owned();
        let scenario = std::thread::Builder::new().name(name).spawn(scenario).expect("a thread");
        scenario.join().expect("it goes well");
    }
}
