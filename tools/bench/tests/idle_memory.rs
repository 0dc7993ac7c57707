//! The memory an idle disk takes: its queues, its lane and its driver, and nothing for each request
//! it might have.

use std::sync::Arc;

use weir_bench::core::alloc::{Counting, bytes_of_this_thread, is_counting};
use weir_live::Unpark;
use weir_local::Null;
use weir_queue::{Bell, Config, Device};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Most for one `null` disk with one hard queue.
const MOST: i64 = 64 << 10;

#[test]
fn an_idle_null_disk_with_one_queue_takes_at_most_64_kib() {
    assert!(is_counting());
    let bell = Bell::with_lanes(Box::new(Unpark::current()), 1);
    for scheduler in ["none", "mq-deadline", "kyber", "bfq"] {
        let before = bytes_of_this_thread();
        let config = Config { scheduler: Some(scheduler.into()), ..Config::default() };
        let device = Device::new(config, Arc::new(Null::new(1 << 30).expect("whole sectors")))
            .expect("a disk");
        let made = bytes_of_this_thread();
        let mut lane = device.open_lane(0, &bell).expect("its lane");
        lane.run(weir_bio::Nanos(1));
        let taken = bytes_of_this_thread() - before;
        println!("{scheduler}: {taken} bytes, {} of the lane", bytes_of_this_thread() - made);
        assert!(taken <= MOST, "scheduler {scheduler}: {taken} bytes, at most {MOST}");
        drop((lane, device));
        // Memory that a thread keeps for itself is no disk's.
        assert!(bytes_of_this_thread() - before < 1024, "a disk that has gone keeps memory");
    }
}
