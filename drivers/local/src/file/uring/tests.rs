//! A ring in front of a pipe: its reads end when the test writes, and all at once, so that at every
//! step it is known what the kernel has and what it keeps.

#[path = "../../../../../tests/daemon/outside.rs"]
mod outside;

use std::io::{PipeWriter, Write};
use std::sync::atomic::{AtomicU32, Ordering};

use super::super::FileOptions;
use super::*;
use outside::leave_out;
use rustix::event::{PollFd, PollFlags, eventfd};
use weir_bio::{Bio, Buf, SECTOR};
use weir_queue::rig::Rig;

const NOW: Nanos = Nanos(1);

/// As many reads of a sector as a pipe of 64 KiB can serve.
const DEPTH: u16 = 128;

/// A queue of so many tags whose file is a pipe, and the pipe's other end; where the kernel keeps
/// completions until they are asked for.
fn queue(depth: u16) -> Option<(UringQueue, PipeWriter)> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("weir-ring-{}-{count}.img", std::process::id());
    let path = std::env::temp_dir().join(name);
    let options = FileOptions { size: Some(4096), ..FileOptions::default() };
    let target = Target::open(&path, &options);
    _ = std::fs::remove_file(&path);
    let mut target = target.expect("a file");
    let (reader, writer) = std::io::pipe().expect("a pipe");
    // Too small a pipe is to fail a test, not to stop it.
    rustix::io::ioctl_fionbio(&writer, true).expect("a pipe that nobody waits for");
    target.file = OwnedFd::from(reader).into();
    let why = match UringQueue::new(Arc::new(target), depth) {
        Ok(queue) if queue.rung.is_some() => return Some((queue, writer)),
        Ok(_) => "the kernel keeps no completions until they are asked for".to_owned(),
        Err(error) => error.to_string(),
    };
    leave_out(&why);
    None
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
        assert!(!tells_after_a_reap(&mut rig), "the second");
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
    // Nobody waits for the answer any more.
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
