//! A ring in front of a pipe: its reads end when the test writes, and all at once, so that at every
//! step it is known what the kernel has and what it keeps.

#[path = "../../../../../tests/daemon/outside.rs"]
mod outside;

#[path = "../../../tests/bed/fuse.rs"]
mod fuse;

use std::io::{PipeWriter, Write};
use std::os::fd::FromRawFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::super::FileOptions;
use super::super::crew::Crew;
use super::*;
use fuse::{StallingFile, is_locked, wait_until};
use io_uring::types::Fixed;
use outside::leave_out;
use rustix::event::{PollFd, PollFlags, eventfd};
use weir_bio::{Bio, Buf, SECTOR};
use weir_queue::rig::Rig;

const NOW: Nanos = Nanos(1);

/// As many reads of a sector as a pipe of 64 KiB can serve.
const DEPTH: u16 = 128;

const INSTEAD: Make = Make { index: 0, threads: 2 };

/// A queue of so many tags whose file is a pipe, and the pipe's other end; where the kernel keeps
/// completions until they are asked for.
fn queue(depth: u16) -> Option<(UringQueue, PipeWriter)> {
    let mut target = Target::nameless(1 << 20);
    let (reader, writer) = std::io::pipe().expect("a pipe");
    // Too small a pipe is to fail a test, not to stop it.
    rustix::io::ioctl_fionbio(&writer, true).expect("a pipe that nobody waits for");
    target.file = OwnedFd::from(reader).into();
    let why = match UringQueue::new(Arc::new(target), nothing(), depth, INSTEAD) {
        Ok(queue) if queue.rung.is_some() => return Some((queue, writer)),
        Ok(_) => "the kernel keeps no completions until they are asked for".to_owned(),
        Err(error) => error.to_string(),
    };
    leave_out(&why);
    None
}

/// The file to flush in tests that ask for no flush.
fn nothing() -> std::fs::File {
    std::fs::File::open("/dev/null").expect("a device")
}

fn rig(depth: u16) -> Option<(Rig, PipeWriter)> {
    queue(depth).map(|(queue, pipe)| (Rig::new(Box::new(queue), depth), pipe))
}

fn an_event() -> OwnedFd {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd")
}

fn ring_it(event: impl AsFd) {
    rustix::io::write(event, &1_u64.to_ne_bytes()).expect("room in an eventfd");
}

fn is_readable(fd: impl AsFd) -> bool {
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&now)).expect("a poll") > 0
}

/// Reads that wait for what is written to the pipe.
fn read(rig: &mut Rig, count: u16) {
    let reads = (0..u64::from(count)).map(|n| Bio::read(n, Buf::zeroed(SECTOR as usize)));
    assert!(rig.submit(reads.collect(), NOW).is_none());
    assert!(rig.reap(NOW).is_empty(), "nothing was written yet");
}

/// All reads end, as far as the kernel is concerned.
fn serve(pipe: &mut PipeWriter, count: u16) {
    pipe.write_all(&vec![1; usize::from(count) * SECTOR as usize]).expect("room in the pipe");
}

/// Makes the event readable although all it could tell of was found. Whether it still is after a
/// reap.
fn tells_after_a_reap(rig: &mut Rig) -> bool {
    ring_it(rig.queue().event_fd().expect("an event"));
    still_tells(rig)
}

fn still_tells(rig: &mut Rig) -> bool {
    assert!(rig.reap(NOW).is_empty());
    is_readable(rig.queue().event_fd().expect("an event"))
}

#[test]
fn one_reap_hands_over_all_that_has_ended_however_few_the_kernel_brings_at_a_time() {
    for waited_in in [false, true] {
        let Some((mut rig, mut pipe)) = rig(DEPTH) else { return };
        let beside = an_event();
        let waiter = waited_in.then(|| rig.queue().waiter(beside.as_fd()));
        assert!(waiter.is_none_or(|waiter| waiter.is_some()));
        read(&mut rig, DEPTH);
        serve(&mut pipe, DEPTH);
        assert_eq!(rig.reap(NOW).len(), usize::from(DEPTH), "waited in: {waited_in}");
    }
}

#[test]
fn an_event_that_tells_late_is_silent_at_once_after_work_and_else_in_time() {
    let Some((mut rig, mut pipe)) = rig(2) else { return };
    for _ in 0..2 {
        read(&mut rig, 1);
        serve(&mut pipe, 1);
        assert_eq!(rig.reap(NOW).len(), 1);
        assert!(!tells_after_a_reap(&mut rig), "the first reap that finds nothing");
        assert!(tells_after_a_reap(&mut rig), "the second has the next request handed over");
        assert!(!still_tells(&mut rig), "the third");
        // More often than the count of reaps has room for.
        for _ in 0..2 * (256 / u32::from(HUSH_EVERY)) {
            assert!(tells_after_a_reap(&mut rig), "each reap costs a call that finds nothing");
            let silenced = (2..=HUSH_EVERY).any(|_| !still_tells(&mut rig));
            assert!(silenced, "who waits for the event never sleeps");
        }
    }
}

#[test]
fn an_event_is_silent_at_once_after_a_cancel() {
    let Some((mut rig, _pipe)) = rig(2) else { return };
    read(&mut rig, 1);
    let reaps = (0..HUSH_EVERY).position(|_| tells_after_a_reap(&mut rig));
    assert!(reaps.is_some(), "it is not looked at again and again");
    assert_eq!(rig.cancel_all(NOW), [Cancel::Pending]);
    // No request waits for the answer any more.
    assert!(rig.reap(NOW).is_empty());
    assert_eq!(rig.queue().in_flight(), 0);
    assert!(!tells_after_a_reap(&mut rig));
}

#[test]
fn who_silences_the_event_finds_what_came_before_that() {
    let Some((mut queue, mut pipe)) = queue(2) else { return };
    let events = PollFlags::IN.bits().into();
    let entry = opcode::PollAdd::new(Fixed(0), events).build();
    assert!(queue.push(&entry.user_data(CANCEL)));
    queue.enter(NOW);
    assert!(queue.ring.completion().is_empty());
    // As between a reap's look at the ring and its second thought.
    serve(&mut pipe, 1);
    assert!(is_readable(queue.event_fd().expect("an event")));
    queue.hush(NOW);
    assert!(!queue.ring.completion().is_empty(), "nothing tells of it any more");
}

#[test]
fn what_stands_beside_the_ring_is_watched_again_before_anybody_sleeps() {
    let Some((mut queue, _pipe)) = queue(2) else { return };
    let beside = an_event();
    let mut waiter = queue.waiter(beside.as_fd()).expect("a way to wait");
    queue.enter(NOW);
    // The kernel ends a watch of which it has no room to tell.
    for _ in 0..=queue.ring.params().cq_entries() {
        ring_it(&beside);
        queue.enter(NOW);
    }
    rustix::io::read(&beside, &mut [0_u8; 8]).expect("it is readable");
    let mut done = Done::default();
    let mut found = true;
    while found {
        queue.reap(NOW, &mut done);
        found = !queue.ring.completion().is_empty() || queue.ring.submission().cq_overflow();
    }
    ring_it(&beside);
    waiter.wait(Some(10_000_000_000));
    assert!(!queue.ring.completion().is_empty(), "nothing has woken who waits in the ring");
}

#[test]
fn a_ring_says_so_that_is_used_by_another_thread_than_its_opener() {
    let Some((mut queue, _pipe)) = queue(2) else { return };
    let elsewhere = std::thread::spawn(move || {
        assert!(queue.push(&opcode::Nop::new().build().user_data(CANCEL)));
        queue.commit(NOW);
    });
    let panic = elsewhere.join().expect_err("it cannot be used there");
    let said = panic.downcast_ref::<String>().expect("a sentence");
    assert!(said.contains("is used by another thread than the one that opened it"), "{said}");
}

#[test]
fn a_ring_that_fails_for_good_is_told_once_and_every_request_ends_with_an_error() {
    let Some((queue, _pipe)) = queue(8) else { return };
    let (ring, target) = (queue.ring.as_raw_fd(), Arc::clone(&queue.target));
    let mut rig = Rig::new(Box::new(RingQueue::Turning(queue)), 8);
    read(&mut rig, 2);
    let null = std::fs::File::open("/dev/null").expect("the null device");
    // SAFETY: the ring goes on to own the descriptor, which is only made to mean something else.
    let mut ring = std::mem::ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(ring) });
    rustix::io::dup2(&null, &mut ring).expect("another file under the number");
    let reads = (0..3).map(|n| Bio::read(n, Buf::zeroed(SECTOR as usize)));
    assert!(rig.submit(reads.collect(), NOW).is_none());
    let mut answers = Vec::new();
    wait_until(|| {
        answers.extend(rig.reap(NOW));
        answers.len() == 5
    });
    assert!(answers.iter().all(|answer| answer.status == Status::IoErr), "{answers:?}");
    assert_eq!((rig.queue().in_flight(), rig.queue().wake_at()), (0, None), "it is at rest");
    // Those that come later end as well, and the disk has said so once.
    let late = vec![Bio::read(0, Buf::zeroed(SECTOR as usize)), Bio::flush()];
    assert!(rig.submit(late, NOW).is_none());
    assert_eq!(rig.queue().wake_at(), Some(Nanos(0)));
    let late = rig.reap(NOW);
    assert!(late.len() == 2 && late.iter().all(|answer| answer.status == Status::IoErr));
    assert_eq!(rig.queue().wake_at(), None);
    let told = target.notices.all();
    let told = told.iter().filter(|notice| notice.contains("fails for good")).count();
    assert_eq!(told, 1, "{:?}", target.notices.all());
}

/// A read of so many sectors of the pipe, as if it had been taken under `tag`.
fn take(queue: &mut UringQueue, tag: Tag, sectors: u64) {
    let memory = vec![Data::One(Buf::zeroed((sectors * SECTOR) as usize))];
    take_job(queue, tag, Job::of(Call::Read, memory));
}

fn take_job(queue: &mut UringQueue, tag: Tag, job: Job) {
    let slot = &mut queue.slots[usize::from(tag.0)];
    (slot.tag, slot.job) = (tag, Some(job));
    queue.in_flight += 1;
    queue.call(tag);
}

#[test]
fn a_request_under_a_tag_that_was_cancelled_before_is_answered() {
    let Some((mut rig, mut pipe)) = rig(1) else { return };
    read(&mut rig, 1);
    assert_eq!(rig.cancel_all(NOW), [Cancel::Pending]);
    assert!(rig.reap(NOW).is_empty());
    read(&mut rig, 1);
    serve(&mut pipe, 1);
    assert_eq!(rig.reap(NOW).len(), 1, "the answer names an older request");
}

#[test]
fn no_call_is_made_for_a_request_given_up_before_its_entry_found_room() {
    let Some((mut queue, mut pipe)) = queue(2) else { return };
    let tag = Tag::first(0);
    while queue.push(&opcode::Nop::new().build().user_data(CANCEL)) {}
    take(&mut queue, tag, 1);
    assert_eq!(queue.waiting, [tag]);
    assert_eq!(queue.cancel(tag), Cancel::Pending);
    assert_eq!(queue.wake_at(), Some(Nanos(0)), "the lane is to reap at once");
    serve(&mut pipe, 1);
    let mut done = Done::default();
    queue.reap(NOW, &mut done);
    let answers: Vec<_> = done.drain().map(|(tag, status, _)| (tag, status)).collect();
    assert_eq!((answers, queue.in_flight()), (vec![(tag, Status::Timeout)], 0));
    assert_eq!(queue.wake_at(), None);
    let unread = rustix::io::ioctl_fionread(&queue.target.file).expect("a pipe");
    assert_eq!(unread, SECTOR, "the sector was read for a request that had ended");
}

#[test]
fn a_request_given_up_whose_call_is_cut_short_makes_no_further_call() {
    let Some((mut queue, mut pipe)) = queue(2) else { return };
    take(&mut queue, Tag::first(0), 2);
    queue.enter(NOW);
    // The kernel has brought the first of two sectors when the cancel looks for the request.
    serve(&mut pipe, 1);
    queue.enter(NOW);
    assert_eq!(queue.ring.completion().len(), 1);
    assert_eq!(queue.cancel(Tag::first(0)), Cancel::Pending);
    let mut done = Done::default();
    queue.reap(NOW, &mut done);
    assert_eq!((done.len(), queue.in_flight()), (1, 0), "it goes on with the second sector");
}

#[test]
fn a_cancel_that_finds_the_submission_queue_full_is_made_all_the_same() {
    let Some((mut queue, _pipe)) = queue(2) else { return };
    take(&mut queue, Tag::first(0), 1);
    queue.enter(NOW);
    while queue.push(&opcode::Nop::new().build().user_data(CANCEL)) {}
    assert_eq!(queue.cancel(Tag::first(0)), Cancel::Pending);
    let mut done = Done::default();
    queue.reap(NOW, &mut done);
    assert_eq!((done.len(), queue.in_flight()), (1, 0));
}

/// Whether the file of a queue is closed by all: its pipe has no reader any more.
fn is_free(pipe: &PipeWriter, patience_s: i64) -> bool {
    let patience = rustix::event::Timespec { tv_sec: patience_s, tv_nsec: 0 };
    let mut polled = [PollFd::new(pipe, PollFlags::empty())];
    rustix::event::poll(&mut polled, Some(&patience)).expect("a poll");
    polled[0].revents().contains(PollFlags::ERR)
}

#[test]
fn a_queue_dropped_with_requests_in_flight_keeps_the_file_until_the_kernel_has_ended_them() {
    let Some((mut queue, pipe)) = queue(2) else { return };
    take(&mut queue, Tag::first(0), 1);
    queue.enter(NOW);
    let target = Arc::clone(&queue.target);
    drop(queue);
    let told = target.notices.all();
    assert!(told.last().is_some_and(|notice| notice.contains("1 requests in flight")), "{told:?}");
    drop(target);
    assert!(is_free(&pipe, 60), "the file is never closed");
}

#[test]
fn a_waiter_that_is_left_over_keeps_no_closed_ring() {
    let Some((mut queue, pipe)) = queue(2) else { return };
    let beside = an_event();
    let mut waiter = queue.waiter(beside.as_fd()).expect("a way to wait");
    take(&mut queue, Tag::first(0), 1);
    queue.enter(NOW);
    drop(queue);
    assert!(is_free(&pipe, 20), "the waiter holds the ring, and the ring the file");
    waiter.wait(None);
}

#[test]
fn a_queue_dropped_with_nothing_in_flight_frees_its_file_at_once() {
    let Some((queue, pipe)) = queue(2) else { return };
    let target = Arc::downgrade(&queue.target);
    drop(queue);
    assert!(target.upgrade().is_none() && is_free(&pipe, 0));
}

#[test]
fn a_queue_dropped_by_another_thread_frees_its_file_and_says_so() {
    for in_flight in [0, 2] {
        let Some((mut queue, pipe)) = queue(2) else { return };
        for number in 0..in_flight {
            take(&mut queue, Tag::first(number), 1);
        }
        queue.enter(NOW);
        let target = Arc::clone(&queue.target);
        std::thread::spawn(move || drop(queue)).join().expect("it can be dropped there");
        let told = target.notices.all();
        assert!(told.iter().any(|notice| notice.contains("by another thread")), "{told:?}");
        drop(target);
        assert!(is_free(&pipe, 60), "{in_flight} in flight: the file is never closed");
    }
}

#[test]
fn what_a_closed_ring_uses_is_kept_until_the_kernel_has_taken_it_down() {
    let Some((mut queue, _pipe)) = queue(2) else { return };
    let (taken_down, held) = io::pipe().expect("a pipe");
    queue.taken_down = Some(taken_down);
    take(&mut queue, Tag::first(0), 1);
    let target = Arc::downgrade(&queue.target);
    let mut keeper = None;
    queue.abandon(|keep| {
        keeper = Some(keep);
        Ok(())
    });
    drop(queue);
    let keeper = std::thread::spawn(keeper.expect("a keeper"));
    assert!(target.upgrade().is_some() && !keeper.is_finished(), "the ring may be in use");
    drop(held);
    keeper.join().expect("it ends");
    assert!(target.upgrade().is_none());
}

#[test]
fn without_a_thread_to_keep_it_the_memory_of_a_closed_ring_is_leaked_and_this_is_told() {
    let Some((mut queue, _pipe)) = queue(2) else { return };
    take(&mut queue, Tag::first(0), 1);
    queue.enter(NOW);
    let target = Arc::clone(&queue.target);
    queue.abandon(|_| Err(io::Error::from(Errno::AGAIN)));
    drop(queue);
    assert_eq!(Arc::strong_count(&target), 2, "the lock is let go of");
    let told = target.notices.all().pop().expect("a notice");
    assert!(told.contains("512 bytes of memory are leaked"), "{told}");
}

/// Whether the kernel is inside the call of a tag's entry, which it then cannot cancel; else the
/// entry is cancelled.
fn is_under_way(queue: &mut UringQueue, tag: Tag) -> bool {
    assert!(queue.cancel_entry(tag));
    queue.hand_over(1).expect("it is handed over");
    let cancel = queue.ring.completion().find(|entry| entry.user_data() & CANCEL != 0);
    let result = cancel.expect("a cancel ends at once").result();
    outcome(result) == Err(Errno::ALREADY)
}

#[test]
fn a_ring_closed_during_a_call_that_stalls_keeps_the_lock_until_the_call_has_ended() {
    let Some(file) = StallingFile::new() else { return };
    let other = std::fs::File::open(file.path()).expect("the file opens");
    let target = Target::open(&file.path(), &FileOptions::default()).expect("a target");
    let flushed = target.file.try_clone().expect("a descriptor");
    let Ok(mut queue) = UringQueue::new(Arc::new(target), flushed, 1, INSTEAD) else {
        return leave_out("there is no io_uring");
    };
    let target = Arc::downgrade(&queue.target);
    file.stall();
    let tag = Tag::first(0);
    wait_until(|| {
        take_job(&mut queue, tag, Job::of(Call::Flush, Vec::new()));
        queue.enter(NOW);
        let under_way = is_under_way(&mut queue, tag);
        if !under_way {
            queue.slots[0].job = None;
            queue.turns.served.clear();
            queue.in_flight = 0;
        }
        under_way
    });
    drop(queue);
    assert!(target.upgrade().is_some() && is_locked(&other), "a call may still change the file");
    file.go_on();
    wait_until(|| target.upgrade().is_none() && !is_locked(&other));
}

/// A queue of a real file, for flushes.
fn flushing(depth: u16) -> Option<UringQueue> {
    let target = Target::nameless(4096);
    let flushed = target.describe().expect("a description");
    match UringQueue::new(Arc::new(target), flushed, depth, INSTEAD) {
        Ok(queue) => Some(queue),
        Err(error) => {
            leave_out(&error.to_string());
            None
        }
    }
}

fn flush(queue: &mut UringQueue, number: u16) -> Tag {
    let tag = Tag::first(number);
    take_job(queue, tag, Job::of(Call::Flush, Vec::new()));
    tag
}

/// Reaps until so many are answered.
fn answers(queue: &mut UringQueue, wanted: usize) -> Vec<(Tag, Status)> {
    let mut ended = Vec::new();
    wait_until(|| {
        let mut done = Done::default();
        queue.reap(NOW, &mut done);
        ended.extend(done.drain().map(|(tag, status, _)| (tag, status)));
        ended.len() >= wanted
    });
    ended
}

#[test]
fn flushes_of_one_ring_go_in_turn_and_those_that_wait_share_a_call() {
    let Some(mut queue) = flushing(4) else { return };
    let tags = [0, 1, 2].map(|number| flush(&mut queue, number));
    assert_eq!((&queue.turns.served[..], &queue.turns.gathered[..]), (&tags[..1], &tags[1..]));
    assert_eq!(queue.ring.submission().len(), 1, "the others have no call of their own");
    let ended = answers(&mut queue, 3);
    assert_eq!(ended, tags.map(|tag| (tag, Status::Ok)));
    assert_eq!(queue.in_flight(), 0);
}

#[test]
fn what_a_shared_flush_is_told_counts_for_all_that_share_it() {
    let Some(mut queue) = flushing(4) else { return };
    let tags = [0, 1, 2].map(|number| flush(&mut queue, number));
    let mut done = Done::default();
    // The first call is content; the next is told of a lost write.
    assert!(queue.end_flush(Ok(0), &mut done), "the next begins");
    assert_eq!(queue.turns.served, tags[1..]);
    assert!(!queue.end_flush(Err(Errno::IO), &mut done));
    let statuses: Vec<_> = done.drain().map(|(tag, status, _)| (tag, status)).collect();
    let [one, two, three] = tags;
    assert_eq!(statuses, [(one, Status::Ok), (two, Status::IoErr), (three, Status::IoErr)]);
    // The kernel's completions of their entries belong to no request now.
    queue.enter(NOW);
}

#[test]
fn a_flush_given_up_leaves_those_it_shares_a_call_with_alone() {
    let Some(mut queue) = flushing(4) else { return };
    let tags = [0, 1, 2, 3].map(|number| flush(&mut queue, number));
    // It waits for its turn.
    assert_eq!(queue.cancel(tags[3]), Cancel::Pending);
    let mut done = Done::default();
    assert!(queue.end_flush(Ok(0), &mut done));
    let entries = queue.ring.submission().len();
    // It lends its name to a call that speaks for another too.
    assert_eq!(queue.cancel(tags[1]), Cancel::Pending);
    assert_eq!(queue.ring.submission().len(), entries, "the call is cancelled for all");
    let ended = answers(&mut queue, 3);
    assert!(ended.contains(&(tags[2], Status::Ok)), "{ended:?}");
    assert!(ended.contains(&(tags[3], Status::Timeout)), "{ended:?}");
    assert_eq!(queue.in_flight(), 0);
}

#[test]
fn a_flush_given_up_before_its_entry_found_room_makes_way_for_the_next() {
    let Some(mut queue) = flushing(2) else { return };
    while queue.push(&opcode::Nop::new().build().user_data(CANCEL)) {}
    let tags = [0, 1].map(|number| flush(&mut queue, number));
    assert_eq!(queue.waiting, &tags[..1]);
    assert_eq!(queue.cancel(tags[0]), Cancel::Pending);
    let ended = answers(&mut queue, 2);
    assert_eq!(ended, [(tags[0], Status::Timeout), (tags[1], Status::Ok)]);
}

/// The only worker of this thread, which waits until this is dropped.
struct OccupiedWorker(std::path::PathBuf);

impl OccupiedWorker {
    fn new(queue: &mut UringQueue) -> OccupiedWorker {
        use rustix::fs::{CWD, FileType, OFlags, mknodat};
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("weir-fifo-{}-{count}", std::process::id()));
        mknodat(CWD, &path, FileType::Fifo, 0o600.into(), 0).expect("a pipe with a name");
        queue.ring.submitter().register_iowq_max_workers(&mut [1, 1]).expect("a bound of workers");
        let name = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).expect("no zero");
        // Opening it for reading takes until it is opened for writing.
        let open = opcode::OpenAt::new(Fd(CWD.as_raw_fd()), name.as_ptr())
            .flags(OFlags::RDONLY.bits() as i32)
            .build()
            .flags(squeue::Flags::ASYNC)
            .user_data(CANCEL);
        assert!(queue.push(&open));
        // The kernel copies the name here.
        queue.enter(NOW);
        OccupiedWorker(path)
    }
}

impl Drop for OccupiedWorker {
    fn drop(&mut self) {
        _ = std::fs::OpenOptions::new().read(true).write(true).open(&self.0);
        _ = std::fs::remove_file(&self.0);
    }
}

/// What was told of the workers.
fn told_of_workers(queue: &UringQueue) -> usize {
    queue.target.notices.all().iter().filter(|told| told.contains("io_uring's workers")).count()
}

fn a_write(number: u16) -> Job {
    let memory = vec![Data::One(Buf::filled(4096, |bytes| bytes.fill(7)))];
    Job::of(Call::Write, memory).placed(4096 * u64::from(number), 4096)
}

fn a_discard() -> Job {
    Job::of(Call::PunchHole, Vec::new()).placed(4096, 4096)
}

#[test]
fn requests_that_no_worker_takes_up_are_carried_out_by_threads_and_so_are_later_ones() {
    const WRITES: u16 = 24;
    let target = Target::nameless(1 << 20);
    let flushed = target.describe().expect("a description");
    let mut queue = match UringQueue::new(Arc::new(target), flushed, 32, INSTEAD) {
        Ok(queue) => queue,
        Err(error) => return leave_out(&error.to_string()),
    };
    let lane = Arc::new(Woken::default());
    queue.at_home(Arc::clone(&lane) as Arc<dyn Wake>);
    let _worker = OccupiedWorker::new(&mut queue);
    for number in 0..WRITES {
        take_job(&mut queue, Tag::first(number), a_write(number));
    }
    let flushes = [24, 25, 26].map(|number| flush(&mut queue, number));
    take_job(&mut queue, Tag::first(27), a_discard());
    // The timer of the ring looks twice; the only worker is busy all the while.
    let ended = answers(&mut queue, 28);
    assert_eq!((ended.len(), queue.in_flight()), (28, 0), "each is answered once");
    assert!(ended.iter().all(|(_, status)| status.is_ok()), "{ended:?}");
    assert!(flushes.iter().all(|tag| ended.contains(&(*tag, Status::Ok))));
    assert!(lane.0.load(Ordering::Relaxed), "a lane that sleeps never hears of them");
    let mut bytes = Buf::zeroed(4096 * usize::from(WRITES));
    rustix::io::pread(&queue.target.file, &mut bytes[..], 0).expect("it can be read");
    assert!(bytes[4096 * 2..].iter().all(|byte| *byte == 7));
    // What comes later does not wait for a look.
    take_job(&mut queue, Tag::first(0), a_write(100));
    take_job(&mut queue, Tag::first(1), a_discard());
    flush(&mut queue, 2);
    let mut done = Done::default();
    queue.reap(NOW, &mut done);
    assert_eq!(queue.in_flight, 0, "the ring has one that needs a worker");
    let mut ended: Vec<_> = done.drain().map(|(tag, status, _)| (tag, status)).collect();
    ended.extend(answers(&mut queue, 3 - ended.len()));
    assert!(ended.iter().all(|(_, status)| status.is_ok()), "{ended:?}");
    assert_eq!((told_of_workers(&queue), queue.target.failed_flush()), (1, None));
}

#[test]
fn the_timer_runs_while_threads_have_a_request_and_not_when_all_is_answered() {
    let Some(mut queue) = flushing(2) else { return };
    queue.tick();
    assert!(!queue.workers.ticking, "nothing is in flight");
    take_job(&mut queue, Tag::first(0), a_discard());
    queue.pass_on(Tag::first(0));
    assert_eq!(queue.workers.crew.as_ref().map(Crew::len), Some(1), "a thread is started at once");
    // Its answer, if it is there by now, is not taken.
    queue.tick();
    assert!(queue.workers.ticking);
}

#[test]
fn of_a_flush_that_is_given_up_it_is_told_whether_a_worker_is_at_it() {
    for (wait, told) in [
        (Wait::Running, "hard queue 0 is given up: a worker of io_uring is at it"),
        (Wait::Old, "hard queue 0 is given up: io_uring names no worker that is at it"),
    ] {
        let Some(mut queue) = flushing(3) else { return };
        let _worker = OccupiedWorker::new(&mut queue);
        let tags = [0, 1].map(|number| flush(&mut queue, number));
        queue.enter(NOW);
        queue.slots[0].wait = wait;
        // The other waits for its turn: of that there is nothing to tell.
        tags.iter().rev().for_each(|tag| _ = queue.cancel(*tag));
        let notices = queue.target.notices.all();
        let of_flushes: Vec<_> = notices.iter().filter(|notice| notice.contains("flush")).collect();
        assert!(of_flushes.len() == 1 && of_flushes[0].ends_with(told), "{notices:?}");
        assert_eq!(answers(&mut queue, 2).len(), 2);
    }
}

#[test]
fn a_tag_given_anew_has_its_call_looked_at_from_the_beginning() {
    let Some(mut queue) = flushing(2) else { return };
    let tag = flush(&mut queue, 0);
    queue.slots[0].wait = Wait::Running;
    assert_eq!(answers(&mut queue, 1), [(tag, Status::Ok)]);
    flush(&mut queue, 0);
    assert_eq!(queue.slots[0].wait, Wait::New, "a worker is taken to be at it");
    assert_eq!(answers(&mut queue, 1), [(tag, Status::Ok)]);
}

/// Notes that the lane was woken.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_request_given_up_that_no_worker_took_up_ends_and_changes_nothing() {
    let Some(mut queue) = flushing(4) else { return };
    let _worker = OccupiedWorker::new(&mut queue);
    let tags = [flush(&mut queue, 0), Tag::first(1)];
    take_job(&mut queue, tags[1], a_discard());
    queue.enter(NOW);
    for tag in tags {
        assert_eq!(queue.cancel(tag), Cancel::Pending);
    }
    let ended = answers(&mut queue, 2);
    assert!(tags.iter().all(|tag| ended.contains(&(*tag, Status::Timeout))), "{ended:?}");
    assert_eq!((told_of_workers(&queue), queue.target.failed_flush()), (0, None));
}

#[test]
fn a_flush_waits_for_one_that_a_worker_is_at_though_threads_make_the_calls_by_now() {
    let Some(mut queue) = flushing(4) else { return };
    let first = flush(&mut queue, 0);
    // As if the kernel were inside the call.
    queue.enter(NOW);
    take_job(&mut queue, Tag::first(1), a_discard());
    queue.pass_on(Tag::first(1));
    let second = flush(&mut queue, 2);
    assert_eq!((&queue.turns.served[..], &queue.turns.gathered[..]), (&[first][..], &[second][..]));
    let ended = answers(&mut queue, 3);
    assert!(ended.iter().all(|(_, status)| status.is_ok()), "{ended:?}");
    assert!(queue.turns.served.is_empty() && queue.turns.gathered.is_empty());
    assert_eq!(queue.in_flight(), 0);
}

#[test]
fn a_flush_that_threads_make_and_that_fails_spoils_all_later_ones() {
    let Some(mut queue) = flushing(4) else { return };
    let tags = [0, 1].map(|number| flush(&mut queue, number));
    queue.enter(NOW);
    queue.target.flush_has_failed(Errno::IO);
    let mut done = Done::default();
    // The kernel took up neither, and one that failed elsewhere counts for both.
    assert!(!queue.end_flush(Err(Errno::CANCELED), &mut done));
    let ended = answers(&mut queue, 2);
    assert!(tags.iter().all(|tag| ended.contains(&(*tag, Status::IoErr))), "{ended:?}");
}

#[test]
fn a_call_that_a_worker_is_at_is_left_alone() {
    let Some(file) = StallingFile::new() else { return };
    let target = Target::open(&file.path(), &FileOptions::default()).expect("a target");
    let flushed = target.file.try_clone().expect("a descriptor");
    let Ok(mut queue) = UringQueue::new(Arc::new(target), flushed, 1, INSTEAD) else {
        return leave_out("there is no io_uring");
    };
    file.stall();
    let tag = Tag::first(0);
    take_job(&mut queue, tag, Job::of(Call::Flush, Vec::new()));
    let mut done = Done::default();
    // The ring's own looks: at the second it is asked for.
    wait_until(|| {
        queue.reap(NOW, &mut done);
        queue.slots[0].wait == Wait::Running || queue.workers.crew.is_some()
    });
    assert_eq!((told_of_workers(&queue), queue.in_flight), (0, 1), "it is made twice");
    file.go_on();
    assert_eq!(answers(&mut queue, 1), [(tag, Status::Ok)]);
}

#[test]
fn a_ring_that_fails_for_good_loses_no_request_that_threads_have() {
    let Some(mut queue) = flushing(4) else { return };
    queue.failure = Some(io::Error::from(Errno::BADF));
    let (tag, mut done) = (flush(&mut queue, 0), Done::default());
    queue.pass_on(tag);
    let mut queue = RingQueue::Turning(queue);
    let mut ended = Vec::new();
    wait_until(|| {
        queue.reap(NOW, &mut done);
        ended.extend(done.drain().map(|(tag, status, _)| (tag, status)));
        !ended.is_empty()
    });
    assert!(matches!(queue, RingQueue::Ended(_)));
    assert_eq!((ended, queue.in_flight()), (vec![(tag, Status::Ok)], 0));
}
