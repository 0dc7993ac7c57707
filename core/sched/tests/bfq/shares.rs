//! The shares of the device: properties 1 to 8, 11 and 16 of docs/behaviour/bfq.md, section 17.

use weir_bio::{Class, GroupId, Nanos};
use weir_sched::mq::bfq::{Bfq, Features};
use weir_sched::{Scheduler, Setup};

use super::bed::{Bed, Client, ClientId, Device, SECOND, setup, wide};

const FROM: Nanos = Nanos(2 * SECOND);
const TO: Nanos = Nanos(20 * SECOND);
/// Clients apart by this never meet, sectors.
const APART: u64 = 1 << 26;

fn bed(device: Device, tunables: &[(&str, &str)]) -> Bed {
    bed_with(device, tunables, 0, |_| {})
}

/// With the `nomerges` attribute, and what else is to be said to the scheduler beforehand.
fn bed_with(
    device: Device,
    tunables: &[(&str, &str)],
    nomerges: u8,
    prepare: impl FnOnce(&mut Bfq),
) -> Bed {
    let setup = Setup { nomerges, ..setup(wide(device.is_rotational()), 256, "6.18") };
    let mut bfq = Bfq::with_features(&setup, Features::UNSHARED);
    bfq.tunables().set("low_latency", "0").unwrap();
    for (name, value) in tunables {
        bfq.tunables().set(name, value).unwrap();
    }
    prepare(&mut bfq);
    Bed::before(Box::new(bfq), setup, device)
}

/// The reader of docs/behaviour/bfq.md, section 17: 128 KiB, the next 0.1 ms after the last.
fn reader(place: u64) -> Client {
    Client::reader(place * APART, 256).think(100_000)
}

/// Bytes of each after the beginning.
fn bytes(bed: &mut Bed, clients: &[ClientId]) -> Vec<f64> {
    bed.run_until(TO);
    clients.iter().map(|client| bed.record(*client).bytes_between(FROM, TO) as f64).collect()
}

#[track_caller]
fn expect_shares(got: &[f64], want: &[f64], percent: f64) {
    let (sum, whole): (f64, f64) = (got.iter().sum(), want.iter().sum());
    for (got, want) in got.iter().zip(want) {
        let (part, due) = (got / sum * 100.0, want / whole * 100.0);
        let off = (part / due - 1.0) * 100.0;
        assert!(off.abs() <= percent, "{part:.2} % instead of {due:.2} % ({off:+.1} %)");
    }
}

#[test]
fn p1_groups_of_weight_100_and_200_share_one_to_two() {
    let mut bed = bed(Device::f(), &[]);
    bed.weigh(1, 100);
    bed.weigh(2, 200);
    let clients = [bed.client(reader(1).group(1)), bed.client(reader(2).group(2))];
    let got = bytes(&mut bed, &clients);
    expect_shares(&got, &[1.0, 2.0], 5.0);
}

#[test]
fn p2_levels_0_and_7_share_eight_to_one() {
    let mut bed = bed(Device::f(), &[]);
    let clients = [
        bed.client(reader(1).prio(Class::BestEffort, 0)),
        bed.client(reader(2).prio(Class::BestEffort, 7)),
    ];
    let got = bytes(&mut bed, &clients);
    let ratio = got[0] / got[1];
    assert!((ratio / 8.0 - 1.0).abs() <= 0.08, "{ratio:.2} : 1");
}

#[test]
fn p3_four_equals_have_a_quarter_each() {
    let mut bed = bed(Device::f(), &[]);
    let clients = [1, 2, 3, 4].map(|place| bed.client(reader(place)));
    let got = bytes(&mut bed, &clients);
    expect_shares(&got, &[1.0; 4], 3.0);
}

/// With a budget that 4 KiB requests use up in time: the small reader gets 29 MB/s of the device
/// while it has it, and would be charged for time with the default budget.
#[test]
fn p4_small_and_large_requests_share_bytes_evenly_with_strict_guarantees() {
    let tunables = [("strict_guarantees", "1"), ("max_budget", "4096")];
    let mut bed = bed(Device::f(), &tunables);
    let clients = [
        bed.client(Client::reader(APART, 8).think(100_000)),
        bed.client(Client::reader(2 * APART, 2048).think(100_000)),
    ];
    let got = bytes(&mut bed, &clients);
    expect_shares(&got, &[1.0, 1.0], 5.0);
}

#[test]
fn p5_before_queueing_flash_requests_and_not_bytes_are_shared() {
    let mut bed = bed(Device::ssd().with_depth(1), &[]);
    let small = bed.client(Client::reader(APART, 8).think(100_000));
    let large = Client::reader(2 * APART, 2048).think(100_000).start(700_000_000);
    let large = bed.client(large);
    bed.run_until(TO);
    let ios = |client| bed.record(client).ios_between(FROM, TO) as f64;
    let ratio = ios(small) / ios(large);
    assert!((ratio - 1.0).abs() <= 0.10, "{ratio:.3} : 1");
}

#[test]
fn p6_a_tree_of_groups_shares_at_every_level() {
    let mut bed = bed(Device::f(), &[]);
    for (group, weight) in [(1, 500), (11, 100), (12, 300), (2, 250)] {
        bed.weigh(group, weight);
    }
    for child in [11, 12] {
        bed.scheduler_mut().group_parent(GroupId(child), GroupId(1));
    }
    let clients = [(1, 11), (2, 12), (3, 2)].map(|(at, group)| bed.client(reader(at).group(group)));
    let got = bytes(&mut bed, &clients);
    expect_shares(&got, &[16.7, 50.0, 33.3], 5.0);
}

#[test]
fn p7_beside_a_real_time_reader_that_never_pauses_best_effort_gets_nothing() {
    let mut bed = bed(Device::f(), &[]);
    let rt = bed.client(reader(1).depth(2).prio(Class::RealTime, 4));
    let be = bed.client(reader(2));
    let got = bytes(&mut bed, &[rt, be]);
    assert!(got[0] > 1.5e9 && got[1] == 0.0, "{got:?}");
}

#[test]
fn p8_the_idle_class_has_three_to_five_requests_a_second_beside_others() {
    let mut bed = bed(Device::f(), &[]);
    bed.client(reader(1));
    let idle = bed.client(reader(2).prio(Class::Idle, 0));
    bed.run_until(TO);
    for second in 2..19 {
        let (from, to) = (Nanos(second * SECOND), Nanos((second + 1) * SECOND));
        let ios = bed.record(idle).ios_between(from, to);
        assert!((1..=5).contains(&ios), "{ios} requests in second {second}");
    }
    let all = bed.record(idle).ios_between(FROM, TO);
    assert!((18 * 3..=18 * 5).contains(&all), "{all} requests in 18 s");
}

#[test]
fn the_idle_class_has_everything_when_the_others_stop() {
    let mut bed = bed(Device::f(), &[]);
    let other = bed.client(reader(1));
    let idle = bed.client(reader(2).prio(Class::Idle, 0));
    bed.run_until(Nanos(5 * SECOND));
    bed.stop(other);
    bed.run_until(TO);
    let bytes = bed.record(idle).bytes_between(Nanos(6 * SECOND), TO);
    assert!(bytes > 14 * 90_000_000, "{bytes} bytes in 14 s");
}

/// Two requests at once are too few to tell whether the disk has a queue of its own, and until that
/// is known it counts as having one; then only sequential readers are waited for, and the random
/// one would have a slot of one request. So the disk is declared to have none. And the random
/// reader comes when the rate of the disk is known: what the estimate begins with is two thirds of
/// it, and the mix never corrects that, so a full budget would be 86 ms of reading beside 124 ms.
#[test]
fn p11_a_sequential_and_a_random_reader_share_a_disks_time() {
    let (from, to) = (Nanos(12 * SECOND), Nanos(30 * SECOND));
    let run = |beside: bool| {
        let mut bed = bed_with(Device::hdd(), &[], 0, |bfq| bfq.decide_queueing(Some(false)));
        let sequential = bed.client(reader(1));
        let random = Client::random_reader(0, APART / 2, 8, 11).think(100_000);
        let random = beside.then(|| bed.client(random.start(10 * SECOND)));
        bed.run_until(to);
        let held = |client| {
            let done = bed.record(client).done.iter().filter(|done| done.completed >= from);
            done.map(|done| done.completed.since(done.issued)).sum::<u64>() as f64
        };
        let times = (held(sequential), random.map_or(0.0, held));
        (bed.record(sequential).bytes_between(from, to) as f64, times)
    };
    let (alone, _) = run(false);
    let (beside, (sequential, random)) = run(true);
    let part = sequential / (sequential + random);
    assert!((part - 0.5).abs() <= 0.15 * 0.5, "the sequential reader has {part:.2} of the time");
    assert!(beside >= 0.4 * alone, "{beside:.0} of {alone:.0} bytes alone");
}

/// Without merges: what merges into a staged request is no step of its own for the seek history,
/// and a reader whose requests grow in the queue would pass for one that jumps about.
#[test]
fn p16_an_async_writer_counts_three_times_unless_it_is_the_heavier() {
    for (level, reader_due, writer_due) in [(4, 3.0, 1.0), (3, 40.0, 50.0), (5, 40.0, 10.0)] {
        let mut bed = bed_with(Device::f(), &[], 2, |_| {});
        let writer = Client::writer(2 * APART, 256).background().depth(8);
        let clients =
            [bed.client(reader(1).depth(8)), bed.client(writer.prio(Class::BestEffort, level))];
        let got = bytes(&mut bed, &clients);
        let ratio = got[0] / got[1];
        let due = reader_due / writer_due;
        assert!((ratio / due - 1.0).abs() <= 0.10, "level {level}: {ratio:.2}, due {due:.2}");
    }
}
