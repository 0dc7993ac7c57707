//! The reactors that the disks of a process share. One test: it counts threads of the process.

use std::collections::BTreeSet;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use weir::{Bio, Buf, Disk, Host};

/// How long anything may take on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(60);

/// Reactors of this process.
fn reactors() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| {
        // A thread may end meanwhile.
        std::fs::read_to_string(task.unwrap().path().join("comm")).ok()
    });
    names.filter(|name| name.starts_with("weir-reactor-")).count()
}

/// The reactor that answers a disk of one lane.
fn home(disk: &Disk) -> String {
    let (sender, receiver) = channel();
    disk.submit(Bio::read(0, Buf::zeroed(4096)), move |_| {
        sender.send(std::thread::current().name().map(String::from)).unwrap();
    });
    receiver.recv().unwrap().unwrap()
}

#[test]
fn disks_that_were_told_of_none_share_reactors_which_end_with_the_last_disk() {
    let shared = std::thread::available_parallelism().map_or(1, usize::from).min(8);
    for _ in 0..2 {
        let disks: Vec<Disk> = (0..11).map(|_| Disk::open("ram:1M,queues=1").unwrap()).collect();
        assert_eq!(reactors(), shared);
        let homes: BTreeSet<String> = disks.iter().map(home).collect();
        assert_eq!(homes.len(), shared, "each has disks: {homes:?}");
        let own = Disk::builder("ram:1M").reactors(3).open().unwrap();
        assert_eq!(reactors(), shared + 3);
        own.close().unwrap();
        let given = std::sync::Arc::new(Host::new(1).unwrap());
        let disk = Disk::builder("ram:1M").host(given.clone()).open().unwrap();
        disk.close().unwrap();
        given.stop(PATIENCE.as_nanos() as u64).unwrap();
        let [first, rest @ ..] = &disks[..] else { panic!("eleven disks") };
        rest.iter().for_each(|disk| disk.close().unwrap());
        // It is served although the others have left.
        home(first);
        drop(disks);
        // A thread that was joined may still be listed for a moment.
        let began = Instant::now();
        while reactors() > 0 {
            assert!(began.elapsed() < PATIENCE, "{} reactors are left", reactors());
            std::thread::yield_now();
        }
    }
}
