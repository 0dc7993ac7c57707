//! The memory of a disk with hard queues for many threads, of which only some come: it does not
//! grow with those that come and go.

use weir::{Disk, LaneDisk};
use weir_bench::core::alloc::{Counting, bytes_of_this_thread, is_counting};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn come_and_go(disk: &LaneDisk, sessions: usize) {
    for _ in 0..sessions {
        let mut session = disk.session().expect("a hard queue");
        session.write_at(0, &[7; 4096]).expect("it is written");
        session.close().expect("all has ended");
    }
}

#[test]
fn a_thousand_sessions_that_came_and_went_leave_nothing_with_hard_queues_that_none_has() {
    assert!(is_counting());
    for scheduler in ["none", "mq-deadline"] {
        let target = format!("null:1MiB,queues=64,scheduler={scheduler}");
        let disk = Disk::builder(target).open_lanes(64).expect("a disk");
        come_and_go(&disk, 10);
        let before = bytes_of_this_thread();
        come_and_go(&disk, 1000);
        let left = bytes_of_this_thread() - before;
        println!("{scheduler}: {left} bytes");
        // 8 bytes a session; a message to each hard queue would be 8 KiB.
        assert!(left < 8_000, "scheduler {scheduler}: {left} bytes");
        disk.close().expect("it is flushed");
    }
}
