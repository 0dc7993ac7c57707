//! Growth of disks while they are served: a target says that a disk has changed, and the disk is
//! asked for its size, on a thread of its own because asking may wait.
//!
//! A disk over others has grown when they have, so it is asked after them.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, mpsc};

use weir::Device;

use crate::reload::growth;

/// Follows what the targets of the disks tell, as long as the daemon runs.
pub(super) fn follow(disks: &[Device]) -> io::Result<()> {
    let (tell, told) = mpsc::channel();
    for (number, disk) in disks.iter().enumerate() {
        let tell = tell.clone();
        disk.on_change(Arc::new(move || {
            // The thread is gone only with the process.
            let _ = tell.send(number);
        }));
    }
    let disks = disks.to_vec();
    let listen = move || {
        while let Ok(first) = told.recv() {
            // One change of a target is told for each of its disks.
            let changed: BTreeSet<usize> = std::iter::once(first).chain(told.try_iter()).collect();
            changed.into_iter().for_each(|number| look(&disks[number], &disks));
        }
    };
    std::thread::Builder::new().name(String::from("weir-changes")).spawn(listen).map(drop)
}

/// Puts in force what has grown below a disk, and below those that lie on it.
fn look(disk: &Device, disks: &[Device]) {
    growth(disk).into_iter().for_each(|line| tracing::info!("{line}"));
    for above in disks.iter().filter(|above| above.legs().iter().any(|leg| leg.is(disk))) {
        // Another leg may have grown and not said so yet.
        let others = above.legs().iter().filter(|leg| !leg.is(disk));
        let lines = others.filter_map(growth);
        lines.for_each(|line| tracing::info!("{line}"));
        look(above, disks);
    }
}
