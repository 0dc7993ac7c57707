//! What is found out about the device (docs/behaviour/bfq.md, section 16.5).

use weir_bio::Nanos;
use weir_sched::Scheduler;
use weir_sched::mq::bfq::{Bfq, Features};

use super::bed::{Bed, Client, Device, SECOND, setup, wide};
use super::rig::MS;

/// Clients apart by this never meet, sectors.
const APART: u64 = 1 << 26;

/// Sequential readers of depth 1 are each waited for, so one command at a time is in the device:
/// that says nothing of what the device can take.
#[test]
fn an_array_whose_readers_were_waited_for_still_takes_all_its_commands_at_once() {
    let array = Device::slots(8, 8_800_000).says_rotational(true);
    let setup = setup(wide(true), 256, "6.18");
    let mut bfq = Bfq::with_features(&setup, Features::UNSHARED);
    bfq.tunables().set("low_latency", "0").unwrap();
    let mut bed = Bed::before(Box::new(bfq), setup, array);
    let first =
        [1, 2, 3, 4, 5].map(|at| bed.client(Client::reader(at * APART, 256).think(MS / 10)));
    bed.run_until(Nanos(5 * SECOND));
    first.into_iter().for_each(|client| bed.stop(client));
    let random = |seed: u64| Client::random_reader(0, APART, 8, seed).think(MS / 10);
    let readers: Vec<_> = (1..=16).map(|seed| bed.client(random(seed))).collect();
    let (from, to) = (Nanos(10 * SECOND), Nanos(20 * SECOND));
    bed.run_until(to);
    let ios: u64 = readers.iter().map(|reader| bed.record(*reader).ios_between(from, to)).sum();
    println!("{} a second", ios / 10);
    // Eight at once, 8.8 ms each, are 909 a second; one at a time, 113.
    assert!(ios / 10 > 800, "{} a second", ios / 10);
}
