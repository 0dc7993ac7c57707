//! Requests of others while the device is kept for a queue (docs/behaviour/bfq.md, section 9).

use weir_bio::{Op, Rq, SchedTag};

use super::bed::{Bed, Client, Device, SECOND, setup, wide};
use super::rig::{MS, Rig, read};

/// Sectors apart at which queues never merge.
const APART: u64 = 1 << 26;

/// A background write of a process.
fn write(context: u16, sector: u64) -> Rq {
    Rq { op: Op::Write, ..read(context, sector, SchedTag::NONE) }
}

/// Process 0 holds the device, which is kept for its next read.
fn kept_for_a_reader() -> Rig {
    let mut rig = Rig::new(Device::f());
    rig.read(0, 0, 8);
    rig.serve(MS);
    assert!(rig.device().idle_until.is_some());
    rig
}

#[test]
fn a_hole_is_filled_with_writes_of_the_process_waited_for_and_not_with_those_of_another() {
    for (writer, fills) in [(0, true), (1, false)] {
        let mut rig = kept_for_a_reader();
        rig.insert(write(writer, APART));
        assert!(rig.queue(0).in_service, "the device is still kept");
        let filled = rig.dispatch().map(|rq| rq.sector) == Some(APART);
        assert_eq!(filled, fills, "a write of process {writer}");
    }
}

#[test]
fn a_reader_of_depth_one_beside_a_background_writer_does_not_wait_for_a_full_device() {
    let setup = setup(wide(true), 256, "6.18");
    let mut bfq = weir_sched::mq::bfq::Bfq::new(&setup);
    weir_sched::Scheduler::tunables(&mut bfq).set("low_latency", "0").unwrap();
    let mut bed = Bed::before(Box::new(bfq), setup, Device::f().with_depth(32));
    let reader = bed.client(Client::reader(0, 256).think(100_000));
    bed.client(Client::writer(APART, 256).background().depth(64).start(10 * MS));
    bed.run_for(10 * SECOND);
    let latencies = bed.record(reader).latencies();
    println!("mean {} us, p99 {} us", latencies.mean() / 1000, latencies.percentile(99) / 1000);
    // A write is 1.3 ms of the device, and 32 of them are 42 ms.
    assert!(latencies.mean() < 5 * MS, "mean {} us", latencies.mean() / 1000);
}
