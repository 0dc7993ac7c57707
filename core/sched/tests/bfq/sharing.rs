//! Processes that share a queue: properties 23 and 24 of docs/behaviour/bfq.md, section 17, and
//! queues merged at creation.

use weir_bio::{Class, GroupId, IoPrio, Nanos, Rq, SchedTag, SubmitterId};
use weir_sched::Scheduler;
use weir_sched::mq::bfq::Features;

use super::bed::Device;
use super::rig::{MS, Process, Rig, read};

const APART: u64 = 1 << 26;

fn merging(device: Device) -> Rig {
    let mut rig = Rig::with(device, Features { stable_merging: false, ..Features::ALL });
    rig.set("low_latency", 0);
    rig
}

/// One of two that read one stream in chunks of 64 KiB by turns.
fn half(at: u64) -> Process {
    let think = 50_000;
    Process { sector: at * 128, stride: Some(256), sectors: 128, think, ..Process::reader(0) }
}

fn whole() -> Process {
    Process { stride: Some(128), ..half(0) }
}

#[test]
fn p23_two_that_read_one_stream_soon_share_a_queue_and_lose_little() {
    let mut alone = merging(Device::hdd());
    alone.process(0, whole());
    alone.run(5000 * MS, |_| {});
    let mut rig = merging(Device::hdd());
    rig.process(0, half(0));
    rig.process(0, half(1));
    rig.run(100 * MS, |_| {});
    assert_eq!(rig.queue(0).name, rig.queue(1).name, "within 100 ms");
    assert!(rig.queue(0).shared);
    rig.run(5000 * MS, |_| {});
    let together = rig.processes[0].answered + rig.processes[1].answered;
    let alone = alone.processes[0].answered;
    assert!(together * 100 >= alone * 85, "{together} of {alone} sectors");
}

#[test]
fn p24_when_one_jumps_about_they_have_queues_of_their_own_again() {
    let mut rig = merging(Device::hdd());
    rig.process(0, half(0));
    rig.process(0, half(1));
    rig.run(200 * MS, |_| {});
    assert_eq!(rig.queue(0).name, rig.queue(1).name);
    rig.processes[1].stride = None;
    rig.processes[1].sectors = 8;
    rig.run(5000 * MS, |_| {});
    assert_ne!(rig.queue(0).name, rig.queue(1).name);
    assert!(!rig.queue(0).shared && !rig.queue(1).shared);
}

#[test]
fn a_shared_queue_that_went_to_another_takes_its_last_process_there_and_is_gone() {
    let mut rig = merging(Device::f());
    let (far, farther) = (1 << 20, 1 << 21);
    rig.read(0, 0, 8);
    rig.read(1, 2000, 8);
    rig.read(0, 1000, 8);
    assert_eq!(rig.queue(0).name, rig.queue(1).name);
    rig.read(2, far, 8);
    rig.read(0, far + 100, 8);
    assert_eq!(rig.queue(0).name, rig.queue(2).name);
    // Process 1 asks close to a fourth, when its queue has long been redirected.
    rig.read(3, farther, 8);
    assert_eq!(rig.offer(1, farther + 100, 8), weir_sched::Merge::No);
    assert_eq!(rig.queue(1).name, rig.queue(2).name, "where process 0 is already");
    while rig.bfq.staged() > 0 {
        match rig.dispatch() {
            Some(rq) => drop(rig.complete(rq.tag)),
            None => rig.now += MS,
        }
        rig.fire();
    }
    for context in 0..4 {
        rig.bfq.context_ended(SubmitterId(context), Nanos(rig.now));
    }
    assert_eq!(rig.device().queues, 0);
}

/// Processes 0 and 1, both new, share the queue of the one that came second.
fn shared_queue(low_latency: u64) -> Rig {
    let mut rig = merging(Device::f());
    rig.set("low_latency", low_latency);
    rig.read(0, 0, 8);
    rig.read(1, 2000, 8);
    rig.read(0, 1000, 8);
    assert_eq!(rig.queue(0).name, rig.queue(1).name);
    rig
}

/// Serves all that is staged, and lets the time go by for which the device is kept.
fn serve_all(rig: &mut Rig) {
    while rig.bfq.staged() > 0 {
        match rig.dispatch() {
            Some(rq) => {
                rig.now += MS;
                rig.complete(rq.tag);
            }
            None => rig.now += MS,
        }
        rig.fire();
    }
    rig.now += 30 * MS;
    rig.fire();
}

#[test]
fn the_process_that_a_shared_queue_is_left_with_has_it_for_its_own() {
    let mut rig = shared_queue(0);
    serve_all(&mut rig);
    rig.bfq.context_ended(SubmitterId(1), Nanos(rig.now));
    rig.set("low_latency", 1);
    rig.now += 3000 * MS;
    rig.read(0, 3000, 8);
    assert_eq!(rig.queue(0).coefficient, 30, "a queue without an owner is not raised");
}

/// Has a shared queue serve seeks until it is to be split, more than an interactive queue may have
/// and be raised.
fn make_seeky(rig: &mut Rig) {
    for jump in 0..32 {
        rig.read((jump % 2) as u16, (jump + 10) * APART, 4096);
    }
    serve_all(rig);
    assert!(rig.queue(0).seeky);
}

/// Splits the queue of processes 0 and 1; 1 asks first. Their raising then.
fn split(rig: &mut Rig) -> [u32; 2] {
    for context in [1, 0] {
        rig.read(context, u64::from(context + 1) * APART, 8);
    }
    assert_ne!(rig.queue(0).name, rig.queue(1).name);
    assert!(!rig.queue(0).shared && !rig.queue(1).shared);
    [0, 1].map(|context| rig.queue(context).coefficient)
}

#[test]
fn at_a_split_each_process_also_the_last_is_raised_for_what_is_left_of_its_period() {
    for (pause_ms, coefficient) in [(0, 30), (11_000, 1)] {
        let mut rig = shared_queue(1);
        make_seeky(&mut rig);
        assert_eq!(rig.queue(0).coefficient, 1, "too much was served");
        rig.now += pause_ms * MS;
        assert_eq!(split(&mut rig), [coefficient; 2], "after {pause_ms} ms");
    }
}

#[test]
fn a_new_queue_that_is_merged_at_once_is_raised_when_it_is_split() {
    let mut rig = merging(Device::f());
    rig.set("low_latency", 1);
    rig.read(0, 0, 8);
    rig.read(2, 2 * APART, 8);
    rig.read(1, 1000, 8);
    assert_eq!(rig.queue(0).name, rig.queue(1).name, "with its first request");
    make_seeky(&mut rig);
    assert_eq!(split(&mut rig), [30, 30]);
}

#[test]
fn a_priority_that_was_set_while_a_queue_was_shared_outlives_the_split() {
    let mut rig = shared_queue(0);
    let ioprio = IoPrio::new(Class::BestEffort, 0);
    for context in [1, 0] {
        let near = read(context, 1500 + u64::from(context) * 100, SchedTag::NONE);
        rig.insert(Rq { ioprio, ..near });
    }
    for jump in 0..32 {
        let far = read((jump % 2) as u16, (jump + 10) * APART, SchedTag::NONE);
        rig.insert(Rq { ioprio, ..far });
    }
    serve_all(&mut rig);
    for context in [1, 0] {
        let far = read(context, u64::from(context + 1) * APART, SchedTag::NONE);
        rig.insert(Rq { ioprio, ..far });
    }
    assert_ne!(rig.queue(0).name, rig.queue(1).name);
    assert_eq!([0, 1].map(|context| rig.queue(context).weight), [80, 80]);
}

#[test]
fn queues_do_not_merge_where_merging_is_switched_off() {
    let mut rig = Rig::new(Device::hdd());
    rig.process(0, half(0));
    rig.process(0, half(1));
    rig.run(1000 * MS, |_| {});
    assert_ne!(rig.queue(0).name, rig.queue(1).name);
}

#[test]
fn before_queueing_flash_two_that_start_together_share_a_queue_for_good() {
    let mut rig = Rig::with(Device::ssd(), Features::ALL);
    rig.read(0, 0, 8);
    rig.now += 180 * MS;
    rig.read(1, APART, 8);
    assert_eq!(rig.queue(0).name, rig.queue(1).name);
    rig.now += 181 * MS;
    rig.read(2, 2 * APART, 8);
    assert_ne!(rig.queue(0).name, rig.queue(2).name);
}

#[test]
fn starts_at_a_steady_pace_share_a_queue_only_with_the_first_of_600_ms() {
    let mut rig = Rig::with(Device::ssd(), Features::ALL);
    let names: Vec<u64> = (0..6)
        .map(|context| {
            rig.read(context, u64::from(context) * APART, 8);
            rig.now += 170 * MS;
            rig.queue(context).name
        })
        .collect();
    let shared: Vec<bool> = names.windows(2).map(|pair| pair[0] == pair[1]).collect();
    // At 0 ms and 170 ms; at 340 and 510 neither with them nor with each other; at 680 and 850.
    assert_eq!(shared, [true, false, false, false, true]);
}

#[test]
fn a_start_in_another_group_does_not_part_two_that_start_together() {
    let mut rig = Rig::with(Device::ssd(), Features::ALL);
    for (context, group) in [(0, 0), (1, 5), (2, 0), (3, 5)] {
        let place = u64::from(context) * APART;
        rig.insert(Rq { group: GroupId(group), ..read(context, place, SchedTag::NONE) });
        rig.now += 50 * MS;
    }
    let name = |context| rig.queue(context).name;
    assert_eq!((name(0), name(1)), (name(2), name(3)));
    assert_ne!(name(0), name(1));
}

#[test]
fn on_a_disk_that_is_decided_later_and_not_for_a_sequential_reader() {
    for sequential in [true, false] {
        let features = Features { queue_merging: false, ..Features::ALL };
        let mut rig = Rig::with(Device::hdd(), features);
        rig.set("low_latency", 0);
        for place in 0..2 {
            let stride = sequential.then_some(256);
            rig.process(0, Process { stride, ..Process::reader(place * APART) });
        }
        rig.run(500 * MS, |_| {});
        assert_ne!(rig.queue(0).name, rig.queue(1).name);
        rig.run(3000 * MS, |_| {});
        let same = rig.queue(0).name == rig.queue(1).name;
        assert_eq!(same, !sequential);
    }
}

#[test]
fn a_request_merges_within_its_queue_alone() {
    let mut rig = Rig::new(Device::f());
    rig.read(0, 0, 8);
    assert_eq!(rig.offer(1, 8, 8), weir_sched::Merge::No, "another process's");
    rig.read(1, APART, 8);
    assert_eq!(rig.offer(1, 8, 8), weir_sched::Merge::No);
    assert!(matches!(rig.offer(0, 8, 8), weir_sched::Merge::Back(_)));
    assert_eq!(rig.serve(MS).sectors, 16);
}

/// Process 1 thinks long, and each of its requests follows one of process 0 by 1 ms.
fn woken(mut rig: Rig) -> Rig {
    for round in 0..12_u64 {
        rig.read(0, round * APART, 8);
        rig.serve(MS);
        rig.now += MS;
        rig.fire();
        rig.read(1, (round + 20) * APART, 8);
        serve_all(&mut rig);
        rig.now += 10 * MS;
    }
    assert!(rig.queue(1).has_waker);
    assert!(!rig.queue(0).has_waker);
    rig
}

#[test]
fn a_process_that_wakes_another_is_found_and_served_while_the_device_is_kept() {
    woken(Rig::new(Device::f()));
}

#[test]
fn the_waker_of_a_process_goes_with_it_to_a_shared_queue_and_back() {
    let mut rig = woken(merging(Device::f()));
    let near = 40 * APART;
    rig.read(3, 80 * APART, 8);
    rig.read(2, near, 8);
    rig.read(1, near + 1000, 8);
    assert_eq!(rig.queue(1).name, rig.queue(2).name);
    assert!(rig.queue(2).has_waker, "of the shared queue");
    for jump in 0..32 {
        rig.read((jump % 2 + 1) as u16, (jump + 50) * APART, 8);
    }
    serve_all(&mut rig);
    rig.read(1, 90 * APART, 8);
    assert_ne!(rig.queue(1).name, rig.queue(2).name);
    assert!(rig.queue(1).has_waker, "of the queue of its own");
}
