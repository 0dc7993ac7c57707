//! Jobs that other threads have handed over and no reactor has accepted are bounded in number.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};

use weir::{Bio, Buf, Caps, Disk, GroupId, Groups, Status};

const BACKLOG: usize = 4;

/// A disk of one reactor that accepts nothing more: a cap of a byte a second is used up.
fn stuck() -> (Disk, Arc<Groups>) {
    let disk = Disk::builder("ram:1M").reactors(1).backlog(BACKLOG).open().unwrap();
    let groups = Arc::new(Groups::default());
    disk.device().attach_groups(&groups);
    let caps = Caps { rbps: NonZeroU64::new(1), ..Caps::default() };
    groups.set_caps(GroupId(0), caps).unwrap();
    assert_eq!(disk.start(read()).wait().status, Status::Ok);
    (disk, groups)
}

fn read() -> Bio {
    Bio::read(0, Buf::zeroed(4096))
}

#[test]
fn a_full_backlog_gives_the_bio_back_and_takes_it_when_there_is_room() {
    let (disk, groups) = stuck();
    let mut held: Vec<_> = (0..BACKLOG).map(|_| disk.try_start(read()).unwrap()).collect();
    let bio = disk.try_start(read().cookie(7)).unwrap_err();
    assert_eq!((bio.cookie, bio.data.len()), (7, 4096));
    let (sender, receiver) = channel();
    let ended = move |completion: weir::Completion| sender.send(completion.status).unwrap();
    let (_, ended) = disk.try_submit(bio, ended).unwrap_err();
    // A thread waits.
    let starter = std::thread::spawn({
        let disk = disk.clone();
        move || disk.start(read()).wait().status
    });
    groups.set_caps(GroupId(0), Caps::default()).unwrap();
    assert_eq!(starter.join().unwrap(), Status::Ok);
    assert!(held.drain(..).all(|held| held.wait().status == Status::Ok));
    disk.try_submit(read(), ended).unwrap_or_else(|_| panic!("there is room"));
    assert_eq!(receiver.recv(), Ok(Status::Ok));
    disk.close().unwrap();
}

#[test]
fn a_thread_that_waits_for_room_is_told_of_the_end_of_the_disk() {
    let (disk, _groups) = stuck();
    let held: Vec<_> = (0..BACKLOG).map(|_| disk.try_start(read()).unwrap()).collect();
    let starter = std::thread::spawn({
        let disk = disk.clone();
        move || disk.start(read()).wait().status
    });
    disk.close().unwrap();
    assert_eq!(starter.join().unwrap(), Status::Offline);
    assert!(held.into_iter().all(|held| held.wait().status == Status::Offline));
}

/// Submits again from its callback, so many times, for as long as that ends `again`.
fn insist(disk: &Disk, bio: Bio, left: u64, again: Status, told: Sender<(u64, Status)>) {
    let there = disk.clone();
    disk.submit(bio, move |completion| {
        if completion.status == again && left > 0 {
            insist(&there, read(), left - 1, again, told);
        } else {
            told.send((left, completion.status)).unwrap();
        }
    });
}

#[test]
fn a_reactor_is_refused_at_a_full_backlog_and_goes_on() {
    let (disk, groups) = stuck();
    let (sender, receiver) = channel();
    let (there, told) = (disk.clone(), sender.clone());
    // A flush is accepted at any cap; its callback fills the backlog and insists.
    disk.submit(Bio::flush(), move |_| {
        while there.try_submit(read(), |_| ()).is_ok() {}
        insist(&there, read(), 1000, Status::Again, told);
    });
    assert_eq!(receiver.recv(), Ok((0, Status::Again)), "each try is refused");
    groups.set_caps(GroupId(0), Caps::default()).unwrap();
    insist(&disk, read(), 0, Status::Again, sender);
    assert_eq!(receiver.recv(), Ok((0, Status::Ok)));
    disk.close().unwrap();
}

#[test]
fn a_callback_that_submits_again_on_a_closed_disk_needs_no_stack() {
    let disk = Disk::open("ram:1M").unwrap();
    disk.close().unwrap();
    let (sender, receiver) = channel();
    insist(&disk, read(), 100_000, Status::Offline, sender);
    assert_eq!(receiver.recv(), Ok((0, Status::Offline)));
}

/// Reads beyond the end, and again from each callback until it is told to stop; says when it has.
fn fail(disk: Disk, stop: Arc<AtomicBool>, stopped: Sender<()>) {
    let (again, end) = (disk.clone(), disk.size() / 512);
    disk.submit(Bio::read(end, Buf::zeroed(512)), move |completion| {
        assert_eq!(completion.status, Status::Inval);
        match stop.load(Ordering::Relaxed) {
            false => fail(again, stop, stopped),
            true => stopped.send(()).unwrap(),
        }
    });
}

#[test]
fn a_callback_that_submits_again_on_an_error_leaves_the_reactor_to_others() {
    let disk = Disk::builder("ram:1M").reactors(1).open().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let (sender, stopped) = channel();
    fail(disk.clone(), Arc::clone(&stop), sender);
    assert_eq!(disk.start(read()).wait().status, Status::Ok);
    stop.store(true, Ordering::Relaxed);
    stopped.recv().unwrap();
    disk.close().unwrap();
}
