//! The effects of `low_latency`: properties 17 to 22 of docs/behaviour/bfq.md, section 17.

use weir_bio::Nanos;
use weir_sched::Scheduler;
use weir_sched::mq::bfq::{Bfq, Features};

use super::bed::{Bed, Client, Device, SECOND, setup, wide};
use super::rig::{MS, Process, Rig};

const APART: u64 = 1 << 26;

fn raising(device: Device) -> Rig {
    let mut rig = Rig::new(device);
    rig.set("low_latency", 1);
    rig
}

fn bed(device: Device, low_latency: &str) -> Bed {
    let setup = setup(wide(device.is_rotational()), 256, "6.18");
    let mut bfq = Bfq::with_features(&setup, Features::UNSHARED);
    bfq.tunables().set("low_latency", low_latency).unwrap();
    Bed::before(Box::new(bfq), setup, device)
}

/// How long a process takes to read 100 blocks one after the other beside ten greedy readers, and
/// the longest wait, ns.
fn start_an_application(low_latency: &str) -> (u64, u64) {
    let mut bed = bed(Device::hdd(), low_latency);
    for place in 1..=10 {
        bed.client(Client::reader(place * APART, 256).think(100_000).start(place * 200 * MS));
    }
    // By then their own raising is over.
    let start = 60 * SECOND;
    let new = Client::random_reader(0, APART / 2, 8, 17).ios(100).start(start);
    let new = bed.client(new);
    while bed.record(new).finished_at.is_none() {
        bed.run_for(SECOND);
    }
    let record = bed.record(new);
    (record.finished_at.unwrap().since(Nanos(start)), record.latencies().max())
}

#[test]
fn p17_a_new_application_waits_only_for_what_is_in_the_device() {
    let (raised, longest) = start_an_application("1");
    let (plain, _) = start_an_application("0");
    assert!(raised * 5 <= plain, "{} ms raised, {} ms not", raised / MS, plain / MS);
    // One request in the device, a seek and 128 KiB, and its own.
    let bound = 2 * 8_700_000 + 1_300_000 + 1_000_000;
    assert!(longest <= bound, "the longest wait is {} us", longest / 1000);
}

#[test]
fn a_backlog_of_many_terabytes_is_no_soft_real_time() {
    let mut rig = raising(Device::f());
    let huge = u32::MAX - 7;
    rig.read(0, 0, huge);
    for request in 1..=16 {
        rig.read(0, request * u64::from(u32::MAX), huge);
        rig.serve(0);
    }
    rig.serve(MS);
    rig.now += 400 * MS;
    rig.fire();
    rig.now += 1000 * MS;
    rig.read(0, 0, 8);
    assert_eq!(rig.queue(0).coefficient, 1);
}

#[test]
fn p18_raising_ends_with_the_period_or_the_first_dispatch_above_120000_sectors() {
    let mut rig = raising(Device::f());
    let first = rig.process(0, Process::reader(0));
    rig.process(0, Process { sectors: 8, think: 20 * MS, ..Process::reader(APART) });
    let mut service = [0_u64; 2];
    let mut ended = [None; 2];
    let mut seen = 0;
    rig.run(12_000 * MS, |rig| {
        for (_, rq) in &rig.dispatched[seen..] {
            let context = rq.id.submitter().0;
            service[usize::from(context)] += u64::from(rq.sectors);
            if rig.queue(context).coefficient == 1 {
                ended[usize::from(context)].get_or_insert((rig.now, service[usize::from(context)]));
            }
        }
        seen = rig.dispatched.len();
    });
    let (at, sectors) = ended[first].expect("the greedy reader is no longer raised");
    assert!((120_001..=120_000 + 256).contains(&sectors), "{sectors} sectors after {at} ns");
    let (at, sectors) = ended[1].expect("the slow reader is no longer raised");
    let period = rig.device().interactive_ns;
    assert!(sectors < 120_000 && at <= 10_600 * MS && at + 4000 * MS > period, "{at} ns");
}

#[test]
fn p19_the_period_is_that_of_the_first_estimate() {
    for (device, ms) in [(Device::f(), 10_500), (Device::ssd(), 3750)] {
        let mut rig = raising(device);
        rig.read(0, 0, 8);
        let period = rig.queue(0).raised_for;
        assert!(period.abs_diff(ms * MS) < ms * MS / 1000, "{period} ns");
    }
}

/// A process that reads in a rhythm beside five greedy ones.
fn beside_readers(bytes: u32) -> Rig {
    let mut rig = raising(Device::f());
    for place in 1..=5 {
        rig.process(0, Process::reader(place * APART));
    }
    // Answered, it asks again after what is left of 100 ms or so.
    let process = Process {
        sectors: bytes / 512,
        stride: Some(u64::from(bytes / 512)),
        think: 98 * MS,
        ..Process::reader(0)
    };
    rig.process(30_000 * MS, process);
    rig
}

#[test]
fn p20_an_isochronous_process_of_low_rate_is_soft_real_time() {
    let mut rig = beside_readers(128 << 10);
    let mut soft = 0;
    rig.run(60_000 * MS, |rig| {
        if rig.now > 50_000 * MS && rig.queue(5).queued > 0 {
            soft += u64::from(rig.queue(5).coefficient == 3000);
        }
    });
    assert!(soft > 0, "{:?}", rig.queue(5));
    let waits = &rig.processes[5].waits;
    let mut steady: Vec<u64> = waits[waits.len() / 2..].to_vec();
    steady.sort_unstable();
    let p99 = steady[steady.len() * 99 / 100];
    // 128 KiB take 1.31 ms here.
    assert!(p99 < 2 * (1_310_720 + 1_310_720), "{p99} ns");
}

#[test]
fn p21_at_forty_megabytes_a_second_it_is_not() {
    let mut rig = beside_readers(2 << 20);
    let mut soft = 0;
    rig.run(60_000 * MS, |rig| {
        if rig.now > 45_000 * MS {
            soft += u64::from(rig.queue(5).coefficient > 1);
        }
    });
    assert_eq!(soft, 0);
}

#[test]
fn p22_eight_queues_within_gaps_of_180_ms_are_a_large_burst_and_raising_ends() {
    for (gap, large) in [(100, true), (200, false)] {
        let mut rig = raising(Device::f());
        for context in 0..8 {
            rig.read(context, u64::from(context + 1) * APART, 8);
            while rig.bfq.staged() > 0 {
                rig.serve(MS);
            }
            // Idling ends, so that nothing is busy.
            rig.now += gap * MS - MS;
            rig.fire();
        }
        for context in 0..8 {
            let queue = rig.queue(context);
            assert_eq!(queue.in_large_burst, large, "gap {gap} ms, queue {context}");
            rig.read(context, u64::from(context + 10) * APART, 8);
            rig.serve(MS);
            let raised = rig.queue(context).coefficient > 1;
            assert_eq!(raised, !large, "gap {gap} ms, queue {context}");
            rig.now += 30 * MS;
            rig.fire();
        }
    }
}

#[test]
fn after_a_gap_no_burst_begins_while_queues_are_busy() {
    let mut rig = raising(Device::f());
    rig.read(0, 0, 8);
    rig.now += 200 * MS;
    for context in 1..=10 {
        rig.read(context, u64::from(context) * APART, 8);
        rig.now += 100 * MS;
    }
    for context in 0..=10 {
        assert!(!rig.queue(context).in_large_burst, "queue {context}");
    }
}

/// What an application reads while it starts is as much as the device gives; afterwards it plays.
#[test]
fn a_process_that_read_much_while_it_started_may_be_soft_real_time_soon_after() {
    let mut rig = raising(Device::f());
    for request in 0..125 {
        if request == 100 {
            // It is waited for in vain: 100,000 sectors would be isochronous after 14 s.
            rig.now += 50 * MS;
            rig.fire();
        }
        rig.read(0, request * 1000, 1000);
        rig.serve(5 * MS);
    }
    assert_eq!(rig.queue(0).coefficient, 1, "the start is over");
    rig.now += 1000 * MS;
    rig.fire();
    rig.read(0, APART, 8);
    assert_eq!(rig.queue(0).coefficient, 3000);
}

#[test]
fn switching_low_latency_off_ends_all_raising_at_once() {
    let mut rig = raising(Device::f());
    for context in 0..3 {
        rig.read(context, u64::from(context) * APART, 8);
        assert_eq!(rig.queue(context).coefficient, 30);
    }
    rig.set("low_latency", 0);
    for context in 0..3 {
        assert_eq!((rig.queue(context).coefficient, rig.queue(context).weight), (1, 40));
    }
}
