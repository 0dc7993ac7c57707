//! Disks that change while they are served: a target says that a disk has changed, and the disk is
//! asked for its size and its write cache, on a thread of its own because asking may wait.
//!
//! A disk over others takes on what they did, so it is asked after them. One that cannot be asked,
//! or does not come to rest, is tried again.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::mpsc::{Receiver, RecvError, RecvTimeoutError};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use weir::Device;

use crate::reload::take_on;

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
        let mut followed = Followed::new(disks);
        while let Ok(numbers) = wait(&told, followed.is_behind()) {
            followed.look_at(numbers);
        }
    };
    std::thread::Builder::new().name(String::from("weir-changes")).spawn(listen).map(drop)
}

/// Waits for changes; for so long at most if there is something to try again.
fn wait(told: &Receiver<usize>, is_behind: bool) -> Result<BTreeSet<usize>, RecvError> {
    let first = match is_behind {
        false => Some(told.recv()?),
        true => match told.recv_timeout(AGAIN) {
            Ok(number) => Some(number),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return Err(RecvError),
        },
    };
    // One change of a target is told for each of its disks.
    Ok(first.into_iter().chain(told.try_iter()).collect())
}

/// After how long a disk is asked again that could not be asked.
const AGAIN: Duration = Duration::from_secs(5);

/// What the disks have taken on.
struct Followed {
    disks: Vec<Device>,
    /// Why disks did not take on a change, by number: told once.
    behind: BTreeMap<usize, String>,
}

impl Followed {
    fn new(disks: Vec<Device>) -> Followed {
        Followed { disks, behind: BTreeMap::new() }
    }

    /// Whether a disk is to be asked again.
    fn is_behind(&self) -> bool {
        !self.behind.is_empty()
    }

    /// Has these disks, and those that are to be asked again, take on what has changed below them.
    fn look_at(&mut self, numbers: BTreeSet<usize>) {
        let all: BTreeSet<usize> = numbers.into_iter().chain(self.behind.keys().copied()).collect();
        all.into_iter().for_each(|number| self.look(number));
    }

    /// Puts in force what has changed below a disk, and below those that lie on it.
    fn look(&mut self, number: usize) {
        self.take_on(number);
        let disk = self.disks[number].clone();
        for above in 0..self.disks.len() {
            let legs = self.disks[above].legs();
            if !legs.iter().any(|leg| leg.is(&disk)) {
                continue;
            }
            // Another leg may have changed and not said so yet.
            let others = legs.iter().filter(|leg| !leg.is(&disk));
            let others: Vec<usize> = others.filter_map(|leg| self.number_of(leg)).collect();
            others.into_iter().for_each(|leg| self.take_on(leg));
            self.look(above);
        }
    }

    fn number_of(&self, device: &Device) -> Option<usize> {
        self.disks.iter().position(|disk| disk.is(device))
    }

    fn take_on(&mut self, number: usize) {
        let taken = take_on(&self.disks[number]);
        let told = self.behind.remove(&number);
        if let Some(why) = &taken.failed {
            self.behind.insert(number, why.clone());
        }
        for line in taken.lines().filter(|line| Some(line) != told.as_ref()) {
            tracing::info!("{line}");
        }
    }
}
