//! I/O that a thread hands to a door, in front of a disk whose group has caps.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use weir_bio::{Bio, Buf, Flags, GroupId, IoPrio, Limits, Nanos, Status};
use weir_live::{
    Answer, Door, Host, Job, PollMode, PollRule, PollVote, Polling, Readiness, Service, Turn,
};
use weir_queue::driver::Affinity;
use weir_queue::{
    Batch, Caps, Completion, Config, Device, Done, Driver, DriverError, DriverQueue, Groups, Kept,
    Queues, Tag,
};

/// A disk that does nothing and answers at once.
#[derive(Default)]
struct Idle {
    taken: Vec<Tag>,
    /// Requests it was given.
    given: Arc<AtomicUsize>,
    /// Its flags of the last one.
    flags: Arc<AtomicU32>,
}

impl Driver for Idle {
    fn limits(&self) -> Limits {
        Limits { capacity: 2048, ..Limits::default() }
    }

    fn queues(&self) -> Queues {
        Queues { max: 1, depth: 8, reserved: 0, shared_tags: false, home: Affinity::Any }
    }

    fn open(&self, _: u16, _: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
        let (given, flags) = (Arc::clone(&self.given), Arc::clone(&self.flags));
        Ok(Box::new(Idle { taken: Vec::new(), given, flags }))
    }
}

impl DriverQueue for Idle {
    fn submit(&mut self, batch: &mut Batch<'_>, _: Nanos) {
        batch.take_all(|tag, request| {
            self.flags.store(request.flags().0, Ordering::Relaxed);
            self.given.fetch_add(1, Ordering::Relaxed);
            self.taken.push(tag);
        });
    }

    fn commit(&mut self, _: Nanos) {}

    fn reap(&mut self, _: Nanos, done: &mut Done) {
        self.taken.drain(..).for_each(|tag| done.push(tag, Status::Ok));
    }

    fn in_flight(&self) -> usize {
        self.taken.len()
    }
}

struct Told(Sender<Status>);

impl Answer for Told {
    fn end(self, completion: Completion) {
        // The test may have seen enough.
        let _ = self.0.send(completion.status);
    }
}

/// A disk with a door, whose second read or write is due in minutes.
struct Bed {
    host: Host,
    device: Device,
    groups: Arc<Groups>,
    door: Door<Told>,
    given: Arc<AtomicUsize>,
    flags: Arc<AtomicU32>,
    sender: Sender<Status>,
    answers: Receiver<Status>,
}

impl Bed {
    fn capped() -> Bed {
        let host = Host::new(1).unwrap();
        let config = Config { scheduler: Some("none".into()), ..Config::default() };
        let disk = Idle::default();
        let (given, flags) = (Arc::clone(&disk.given), Arc::clone(&disk.flags));
        let device = Device::new(config, Arc::new(disk)).unwrap();
        let groups = Arc::new(Groups::default());
        device.attach_groups(&groups);
        let root = groups.create("").unwrap();
        let slow = NonZeroU64::new(1);
        groups.set_caps(root, Caps { rbps: slow, wbps: slow, ..Caps::default() }).unwrap();
        host.adopt(&device).unwrap();
        let door = Door::open(&host, 0, &device, 16).unwrap();
        let (sender, answers) = channel();
        Bed { host, device, groups, door, given, flags, sender, answers }
    }

    fn enter(&self, bio: Bio, kept: Kept) {
        let job = Job::new(bio, Told(self.sender.clone())).keeping(kept);
        self.door.enter(job, || false);
    }

    /// So many have ended well, and no more.
    #[track_caller]
    fn expect(&self, ended: usize) {
        let told: Vec<_> = self.answers.iter().take(ended).collect();
        assert_eq!(told, vec![Status::Ok; ended]);
        assert!(self.answers.try_recv().is_err(), "others are held back");
    }

    fn lift_caps(&self) {
        self.groups.set_caps(self.groups.find("").unwrap(), Caps::default()).unwrap();
    }

    /// Reads and writes that were paid for.
    fn paid(&self) -> [u64; 2] {
        self.groups.all()[0].used.ios
    }

    fn end(self) {
        self.door.remove();
        self.host.retire(&self.device, 60_000_000_000).unwrap();
    }
}

#[test]
fn a_door_keeps_to_the_caps_of_its_group_until_they_are_lifted() {
    let bed = Bed::capped();
    for number in 0..3 {
        bed.enter(Bio::read(8 * number, Buf::zeroed(4096)), Kept::default());
    }
    // A flush behind the reads is answered with the first of them alone.
    bed.enter(Bio::flush(), Kept::default());
    bed.expect(2);
    assert_eq!(bed.paid(), [1, 0]);
    bed.lift_caps();
    bed.expect(2);
    assert_eq!(bed.paid(), [3, 0]);
    bed.end();
}

#[test]
fn a_write_that_ends_within_a_block_is_paid_for_once_and_kept_to_the_caps() {
    let bed = Bed::capped();
    for number in 0..3 {
        let kept = Kept { lead: 1, trail: 2 };
        bed.enter(Bio::write(8 * number, Buf::zeroed(4096)), kept);
    }
    bed.expect(1);
    assert_eq!(bed.paid(), [0, 1]);
    assert!(bed.given.load(Ordering::Relaxed) > 1, "its first and last block are read before");
    bed.lift_caps();
    bed.expect(2);
    // The write's reads of its own blocks are part of the write.
    assert_eq!(bed.paid(), [0, 3]);
    bed.end();
}

#[test]
fn io_counts_in_the_group_that_the_door_was_given_last() {
    let bed = Bed::capped();
    bed.lift_caps();
    let group = bed.groups.create("a").unwrap();
    let used = || bed.groups.all().into_iter().find(|it| it.id == group).unwrap().used.ios;
    bed.enter(Bio::read(0, Buf::zeroed(4096)), Kept::default());
    bed.expect(1);
    assert_eq!(used(), [0, 0]);
    bed.door.reclassify(group, IoPrio::NONE, false);
    bed.enter(Bio::read(8, Buf::zeroed(4096)), Kept::default());
    bed.expect(1);
    assert_eq!(used(), [1, 0]);
    assert_eq!((bed.door.tally().ios(), bed.door.tally().sectors()), (2, 16));
    bed.end();
}

#[test]
fn writes_are_background_writes_from_when_the_door_is_told_so() {
    let bed = Bed::capped();
    bed.lift_caps();
    for background in [false, true, false] {
        bed.door.reclassify(GroupId(0), IoPrio::NONE, background);
        for bio in [Bio::write(0, Buf::zeroed(4096)), Bio::read(0, Buf::zeroed(4096))] {
            let before = bio.flags;
            let after = if background { before.in_background() } else { before };
            let due = if bio.op.is_write() { after } else { before };
            bed.enter(bio, Kept::default());
            bed.expect(1);
            assert_eq!(Flags(bed.flags.load(Ordering::Relaxed)), due);
        }
    }
    bed.end();
}

/// A service that asks for a rule of polling and does nothing.
struct Asks {
    _vote: PollVote,
}

impl Service for Asks {
    fn ready(&mut self, _: &mut Turn<'_>, _: u32, _: Readiness) {}
    fn completed(&mut self, _: &mut Turn<'_>, _: u32) {}
    fn settle(&mut self, _: &mut Turn<'_>) {}
}

#[test]
fn a_door_counts_with_the_hosts_rule_of_polling_or_others_as_long_as_it_is_there() {
    let host = Host::with_polling(1, Polling { mode: PollMode::Adaptive, share: 40 }).unwrap();
    let device = Device::new(Config::default(), Arc::new(Idle::default())).unwrap();
    host.adopt(&device).unwrap();
    let rule = PollRule { mode: Some(PollMode::Off), share: None };
    let quiet = host.install(0, move |turn| Asks { _vote: turn.vote(rule) }).unwrap();
    assert_eq!(host.poll_rules()[0].mode, PollMode::Off);
    let door: Door<Told> = Door::open(&host, 0, &device, 16).unwrap();
    assert_eq!(host.poll_rules()[0].mode, PollMode::Adaptive);
    let always = PollRule { mode: Some(PollMode::Always), share: Some(7) };
    for (rules, expected) in [
        (vec![rule, always], PollMode::Always),
        (vec![rule], PollMode::Off),
        (vec![always], PollMode::Always),
    ] {
        door.vote(rules);
        let behind = host.install(0, move |turn| Asks { _vote: turn.vote(rule) }).unwrap();
        assert_eq!(host.poll_rules()[0].mode, expected);
        behind.remove();
    }
    door.remove();
    // Orders are taken in turn: behind another service it is gone.
    let other = host.install(0, move |turn| Asks { _vote: turn.vote(rule) }).unwrap();
    assert_eq!(host.poll_rules()[0].mode, PollMode::Off);
    [quiet, other].iter().for_each(weir_live::Handle::remove);
    host.retire(&device, 60_000_000_000).unwrap();
}
