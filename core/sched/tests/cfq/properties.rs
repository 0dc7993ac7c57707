//! CFQ against the properties of docs/behaviour/cfq.md, section 12, on modelled disks.
//!
//! Effects seen only from inside (slices, timers, ramps) are in the scheduler's own tests.

use crate::bed::{Bed, Client, F, HDD, MS, SECOND, SSD, Sent, reader};
use weir_bio::{Class, Flags, GroupId, IoPrio, Nanos, Op};
use weir_sched::Scheduler;

const WARM_UP: u64 = 2 * SECOND;
const END: u64 = 22 * SECOND;

fn level(level: u8) -> IoPrio {
    IoPrio::new(Class::BestEffort, level)
}

fn run(mut bed: Bed) -> Bed {
    bed.run(WARM_UP);
    bed.forget();
    bed.run(END);
    bed
}

fn within(value: f64, expected: f64, percent: f64, what: &str) {
    let off = (value / expected - 1.0).abs() * 100.0;
    println!("{what}: {value:.3}, expected {expected:.3}, off by {off:.1} %");
    assert!(off <= percent, "{what}: {value:.3} is {off:.1} % off {expected:.3}");
}

fn ratio(bed: &Bed, a: usize, b: usize) -> f64 {
    bed.got[a].sectors as f64 / bed.got[b].sectors as f64
}

#[test]
fn levels_0_and_7_share_the_disk_180_to_40_and_levels_0_and_4_180_to_100() {
    for (other, expected) in [(7, 4.5), (4, 1.8)] {
        let clients = [0, other].map(|l| Client { ioprio: level(l), ..reader(u64::from(l)) });
        let bed = run(Bed::new(HDD, clients.to_vec()).with(&[("low_latency", "0")]));
        within(ratio(&bed, 0, 1), expected, 10.0, &format!("levels 0 and {other}"));
    }
}

#[test]
fn four_equal_readers_get_a_quarter_each() {
    let bed = run(Bed::new(HDD, (0..4).map(reader).collect()));
    let all: u64 = bed.got.iter().map(|got| got.sectors).sum();
    for got in &bed.got {
        within(got.sectors as f64 / all as f64, 0.25, 3.0, "a quarter");
    }
}

#[test]
fn groups_of_weight_1000_and_500_get_disk_time_two_to_one() {
    for disk in [F, HDD] {
        let clients = [1, 2].map(|group| Client { group, ..reader(u64::from(group)) });
        let mut bed = Bed::new(disk, clients.to_vec());
        bed.cfq.group_weight_changed(GroupId(1), 1000, Nanos::ZERO);
        bed.cfq.group_weight_changed(GroupId(2), 500, Nanos::ZERO);
        let bed = run(bed);
        let [a, b] = [1, 2].map(|group| bed.cfq.group_use(GroupId(group)).time_ns as f64);
        within(a / b, 2.0, 5.0, "blkio.time");
    }
}

#[test]
fn a_tree_of_groups_divides_the_disk_by_weights_and_leaf_weights() {
    let [root, a, b, aa, ab] = [0, 1, 2, 3, 4];
    let clients = [root, a, b, aa, ab].map(|group| Client { group, ..reader(u64::from(group)) });
    let mut bed = Bed::new(HDD, clients.to_vec());
    let now = Nanos::ZERO;
    bed.cfq.group_parent(GroupId(aa), GroupId(a));
    bed.cfq.group_parent(GroupId(ab), GroupId(a));
    for (group, weight) in [(root, 125), (a, 500), (b, 250), (aa, 500), (ab, 1000)] {
        bed.cfq.group_weight_changed(GroupId(group), weight, now);
    }
    bed.cfq.leaf_weight_changed(GroupId(a), 750);
    let bed = run(bed);
    let times = [root, b, a, aa, ab].map(|group| bed.cfq.group_use(GroupId(group)).time_ns as f64);
    let all: f64 = times.iter().sum();
    for (time, expected) in times.iter().zip([14.3, 28.6, 19.0, 12.7, 25.4]) {
        let percent = 100.0 * time / all;
        println!("{percent:.1} %, expected {expected} %");
        assert!((percent - expected).abs() <= 3.0, "{percent:.1} % is not {expected} %");
    }
}

#[test]
fn real_time_that_always_wants_more_leaves_best_effort_nothing() {
    let real_time = IoPrio::new(Class::RealTime, 4);
    // More than may be in flight, so that something is always staged.
    let clients = vec![Client { ioprio: real_time, depth: 16, ..reader(0) }, reader(1)];
    let bed = run(Bed::new(HDD, clients));
    assert!(bed.got[0].requests > 1000, "{:?}", bed.got[0]);
    assert_eq!(bed.got[1].requests, 0);
}

#[test]
fn the_idle_class_is_served_one_by_one_and_only_in_pauses() {
    let idle = IoPrio::new(Class::Idle, 0);
    let with = |other| vec![other, Client { ioprio: idle, depth: 4, ..reader(1) }];
    // Something is always staged: never a pause.
    let bed = run(Bed::new(HDD, with(Client { depth: 16, ..reader(0) })));
    assert_eq!(bed.got[1].requests, 0);
    // A reader that thinks for a moment leaves a gap where its slice ends, and no other.
    let bed = run(Bed::new(HDD, with(reader(0))));
    let slices = (END - WARM_UP) / (100 * MS);
    println!("{} requests of the idle class in {slices} slices", bed.got[1].requests);
    assert!((1..=slices).contains(&bed.got[1].requests));
    // A pause of 30 ms is longer than the reader is waited for.
    let bed = run(Bed::new(HDD, with(Client { think_ns: 30 * MS, ..reader(0) })));
    let idle: Vec<&Sent> = bed.sent.iter().filter(|sent| sent.client == 1).collect();
    assert!(idle.len() > 300, "{} of the idle class", idle.len());
    assert!(idle.iter().all(|sent| sent.in_flight == 1));
}

#[test]
fn two_deep_readers_have_4_to_8_in_flight_and_a_lone_one_as_many_as_it_likes() {
    let deep = |area| Client { depth: 32, think_ns: 0, ..reader(area) };
    let bed = run(Bed::new(HDD, vec![deep(0), deep(1)]).with(&[("low_latency", "0")]));
    let most = bed.sent.iter().map(|sent| sent.in_flight).max();
    assert_eq!(most, Some(8));
    let mut turn_begins = 0;
    for pair in bed.sent.windows(2) {
        if pair[0].client == pair[1].client {
            continue;
        }
        // From here to its first answer, the newcomer has four.
        let (client, answered) = (pair[1].client, pair[1].answered);
        turn_begins += 1;
        let mut first = bed.sent.iter().filter(|s| s.at >= pair[1].at && s.client == client);
        assert!(first.all(|s| s.answered > answered || s.in_flight <= 4));
    }
    assert!(turn_begins > 50, "{turn_begins} turns");
    let bed = run(Bed::new(HDD, vec![deep(0)]));
    assert_eq!(bed.sent.iter().map(|sent| sent.in_flight).max(), Some(32));
}

#[test]
fn an_async_writer_gets_16_requests_a_turn_and_none_beside_sync_ones() {
    let writer = Client { op: Op::Write, depth: 64, think_ns: 0, ..reader(1) };
    for depth in [1, 16] {
        let bed = run(Bed::new(HDD, vec![Client { depth, ..reader(0) }, writer.clone()]));
        let mut turn = 0;
        let mut longest = 0;
        for sent in &bed.sent {
            turn = if sent.client == 1 { turn + 1 } else { 0 };
            longest = longest.max(turn);
            // But for one that is overdue, at the beginning of a turn.
            let overdue = turn == 1 && sent.waited_ns >= 250 * MS;
            let beside = sent.client == 1 && sent.sync_in_flight > 0;
            assert!(!beside || overdue, "at {} ns", sent.at);
        }
        println!("reader of depth {depth}: the longest async turn has {longest} requests");
        // A reader that has nothing staged is no other queue that is busy.
        assert!((1..=if depth == 1 { 32 } else { 16 }).contains(&longest), "{longest}");
    }
}

#[test]
fn a_write_that_is_not_waited_for_comes_after_a_round_or_within_the_target() {
    for (low_latency, least, most) in [("0", 800, 1200), ("1", 0, 450)] {
        let mut clients: Vec<Client> = (0..10).map(reader).collect();
        clients.push(Client {
            op: Op::Write,
            flags: Flags::SYNC,
            starts_at: 5 * SECOND,
            requests: 1,
            ..reader(10)
        });
        let mut bed = Bed::new(HDD, clients).with(&[("low_latency", low_latency)]);
        bed.run(10 * SECOND);
        let waited = bed.got[10].longest_wait_ns / MS;
        println!("low_latency={low_latency}: waited {waited} ms");
        assert!((least..=most).contains(&waited), "low_latency={low_latency}: {waited} ms");
    }
}

#[test]
fn on_flash_a_queue_is_not_waited_for_but_a_group_is() {
    let mut bed = Bed::new(SSD, vec![]);
    assert_eq!(bed.cfq.tunables().value("slice_idle"), 0);
    assert_eq!(bed.cfq.tunables().value("group_idle"), 8);
}

fn two_groups_on_flash(clients: [Client; 2], tunables: &[(&str, &str)], until: u64) -> Bed {
    let mut bed = Bed::new(SSD, clients.to_vec()).with(tunables);
    bed.cfq.group_weight_changed(GroupId(1), 1000, Nanos::ZERO);
    bed.cfq.group_weight_changed(GroupId(2), 500, Nanos::ZERO);
    bed.records = false;
    bed.run(WARM_UP);
    bed.forget();
    bed.run(until);
    bed
}

fn requests(bed: &Bed) -> u64 {
    bed.got.iter().map(|got| got.requests).sum()
}

#[test]
fn without_idling_groups_share_requests_and_not_bytes() {
    let deep = |group, sectors| Client {
        group,
        sectors,
        depth: 16,
        think_ns: 0,
        stride: 0,
        ..reader(u64::from(group))
    };
    let bed = two_groups_on_flash([deep(1, 8), deep(2, 128)], &[], END);
    let ratio = bed.got[0].requests as f64 / bed.got[1].requests as f64;
    within(ratio, 2.0, 5.0, "requests");
}

#[test]
fn group_idle_keeps_the_share_of_a_thinking_group_and_costs_throughput() {
    let thinking = Client { group: 1, sectors: 8, think_ns: MS, stride: 0, ..reader(1) };
    let other = Client { group: 2, sectors: 128, depth: 16, think_ns: 0, stride: 0, ..reader(2) };
    // In one slice the other group has as many requests as this one in half a minute; shorter
    // slices show the same shares in less time.
    let [kept, lost] = [("8", 80), ("0", 6)].map(|(group_idle, until)| {
        let tunables = [("group_idle", group_idle), ("slice_sync", "10")];
        let clients = [thinking.clone(), other.clone()];
        two_groups_on_flash(clients, &tunables, until * SECOND)
    });
    let [kept_ratio, lost_ratio] =
        [&kept, &lost].map(|bed| bed.got[0].requests as f64 / bed.got[1].requests as f64);
    println!("kept {kept_ratio:.3}, lost {lost_ratio:.3}");
    within(kept_ratio, 2.0, 15.0, "requests with group_idle");
    assert!(lost_ratio < 1.0, "{lost_ratio:.3}");
    assert!(requests(&lost) / 4 > requests(&kept) / 78);
}

#[test]
fn readers_of_interleaved_chunks_end_up_in_one_queue_and_the_head_moves_on() {
    let chunk = |at: u64| Client { from: 1_000_000 + at * 256, stride: 512, ..reader(0) };
    let mut bed = Bed::new(HDD, vec![chunk(0), chunk(1)]);
    bed.run(WARM_UP);
    bed.forget();
    bed.run(WARM_UP + 5 * SECOND);
    let back = bed.sent.windows(2).filter(|pair| pair[1].sector < pair[0].sector).count();
    let both: u64 = bed.got.iter().map(|got| got.sectors).sum();
    let mut alone = Bed::new(HDD, vec![reader(0)]);
    alone.run(WARM_UP);
    alone.forget();
    alone.run(WARM_UP + 5 * SECOND);
    println!("{back} steps back of {}; {both} sectors together", bed.sent.len());
    assert_eq!(back, 0, "steps back of {}", bed.sent.len());
    assert!(both * 100 >= alone.got[0].sectors * 85, "{both} against {}", alone.got[0].sectors);
}

#[test]
fn without_waiting_two_readers_lose_half_of_a_disk() {
    let both = |idle| {
        let bed = run(Bed::new(HDD, vec![reader(0), reader(1)]).with(&[("slice_idle", idle)]));
        bed.got.iter().map(|got| got.sectors).sum::<u64>()
    };
    let [with, without] = ["8", "0"].map(both);
    println!("{with} sectors with, {without} without");
    assert!(without * 2 <= with);
}
