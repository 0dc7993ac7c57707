//! The host that disks share which were told of none: stopped by the program, and left behind by a
//! disk that was given up. One test: there is one such host in a process.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use weir::{Bio, Buf, Config, Device, Disk, Status};
use weir_local::Ram;
use weir_map::{FaultPlan, Faulty};

/// How long anything may take on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(60);

fn read() -> Bio {
    Bio::read(0, Buf::zeroed(4096))
}

/// A disk that answers nothing and whose I/O has no time-out.
fn stuck() -> Disk {
    let plan = FaultPlan { lost: 100, ..FaultPlan::default() };
    let faulty = Faulty::new(Arc::new(Ram::new(1 << 20).unwrap()), plan, 1);
    let config = Config { name: "stuck".into(), timeout_ns: 0, ..Config::default() };
    let device = Device::new(config, Arc::new(faulty)).unwrap();
    Disk::builder(device).close_limit(Duration::from_millis(100)).open().unwrap()
}

#[test]
fn disks_share_a_new_host_after_a_stop_and_wait_for_no_disk_that_was_given_up() {
    // Stopped by the program, with a disk on it.
    let first = Disk::open("ram:1M").unwrap();
    first.host().stop(PATIENCE.as_nanos() as u64).unwrap();
    assert_eq!(first.start(read()).wait().status, Status::Offline);
    let second = Disk::open("ram:1M").unwrap();
    assert!(!Arc::ptr_eq(first.host(), second.host()), "the one that has ended");
    assert_eq!(second.start(read()).wait().status, Status::Ok);
    let third = Disk::open("ram:1M").unwrap();
    assert!(Arc::ptr_eq(second.host(), third.host()), "one for all again");
    // The share of the first is in the old host: the new one stays.
    drop(first);
    assert_eq!(third.start(read()).wait().status, Status::Ok);
    second.close().unwrap();
    third.close().unwrap();
    drop((second, third));

    // Given up, with another disk on the host, whose close would wait for an hour.
    let last = Disk::builder("ram:1M").close_limit(Duration::from_secs(3600)).open().unwrap();
    let disk = stuck();
    assert!(Arc::ptr_eq(disk.host(), last.host()));
    let pending = disk.start(read());
    disk.close().unwrap_err();
    drop(disk);
    assert_eq!(pending.wait().status, Status::Offline);
    assert_eq!(last.start(read()).wait().status, Status::Ok);
    let (sender, closed) = channel();
    let thread = std::thread::spawn(move || sender.send(last.close()).unwrap());
    let told = closed.recv_timeout(PATIENCE).expect("it waits for the disk that was given up");
    told.unwrap();
    thread.join().unwrap();
    Disk::open("ram:1M").unwrap().close().unwrap();
}
