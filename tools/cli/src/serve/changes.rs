//! Disks that change while they are served: a target says that a disk has changed, and the disk is
//! asked for its size and its write cache, on a thread of its own because asking may wait.
//!
//! A disk over others takes on what they did, so it is asked after them. One that cannot be asked,
//! or does not come to rest, is tried again.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::mpsc::{Receiver, RecvError, RecvTimeoutError};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

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
        let mut followed = Followed { disks, behind: BTreeMap::new() };
        while let Ok(news) = wait(&told, followed.due()) {
            followed.sweep(news);
        }
    };
    std::thread::Builder::new().name(String::from("weir-changes")).spawn(listen).map(drop)
}

/// Waits for changes, or until something is to be tried again.
fn wait(told: &Receiver<usize>, due: Option<Instant>) -> Result<BTreeSet<usize>, RecvError> {
    let first = match due {
        None => Some(told.recv()?),
        Some(due) => match told.recv_timeout(due.saturating_duration_since(Instant::now())) {
            Ok(number) => Some(number),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return Err(RecvError),
        },
    };
    // One change of a target is told for each of its disks.
    Ok(first.into_iter().chain(told.try_iter()).collect())
}

/// After how long a disk is asked again that could not be asked: at first, and at most. It doubles
/// each time.
const AGAIN: Duration = Duration::from_secs(5);
const AGAIN_MOST: Duration = Duration::from_secs(300);

/// A disk that did not take on what has changed below it.
struct Behind {
    /// Why: told once.
    why: String,
    due: Instant,
    pause: Duration,
}

/// What the disks have taken on.
struct Followed {
    disks: Vec<Device>,
    /// By number.
    behind: BTreeMap<usize, Behind>,
}

impl Followed {
    /// When a disk is to be asked again.
    fn due(&self) -> Option<Instant> {
        self.behind.values().map(|behind| behind.due).min()
    }

    /// Has these disks, those that are to be asked again now, and those that lie on any of them
    /// take on what has changed below.
    fn sweep(&mut self, news: BTreeSet<usize>) {
        let now = Instant::now();
        let again = self.behind.iter().filter(|(_, behind)| behind.due <= now);
        let asked = self.with_those_above(news.into_iter().chain(again.map(|(disk, _)| *disk)));
        asked.into_iter().for_each(|disk| self.take_on(disk));
    }

    /// These disks and all that lie on them, with the other disks that those lie on, as another leg
    /// may have changed and not said so yet: each once, and after the disks that it lies on.
    fn with_those_above(&self, disks: impl Iterator<Item = usize>) -> Vec<usize> {
        let legs: Vec<Vec<usize>> = self.disks.iter().map(|disk| self.legs_of(disk)).collect();
        let mut found: BTreeSet<usize> = disks.collect();
        let mut changed = found.clone();
        while !changed.is_empty() {
            let lies_on_one = |above: &usize| legs[*above].iter().any(|leg| changed.contains(leg));
            let above: BTreeSet<usize> = (0..legs.len()).filter(lies_on_one).collect();
            found.extend(above.iter().flat_map(|disk| &legs[*disk]));
            found.extend(&above);
            changed = above;
        }
        let mut ordered: Vec<usize> = found.into_iter().collect();
        ordered.sort_by_key(|disk| height(*disk, &legs));
        ordered
    }

    fn legs_of(&self, disk: &Device) -> Vec<usize> {
        let number = |leg: &Device| self.disks.iter().position(|disk| disk.is(leg));
        disk.legs().iter().filter_map(number).collect()
    }

    fn take_on(&mut self, disk: usize) {
        let taken = take_on(&self.disks[disk]);
        let before = self.behind.remove(&disk);
        if let Some(why) = taken.failed.clone() {
            let twice = |before: &Behind| (before.pause * 2).min(AGAIN_MOST);
            let pause = before.as_ref().map_or(AGAIN, twice);
            self.behind.insert(disk, Behind { why, due: Instant::now() + pause, pause });
        }
        let told = before.map(|before| before.why);
        for line in taken.lines().filter(|line| Some(line) != told.as_ref()) {
            tracing::info!("{line}");
        }
    }
}

/// On how many disks, one on the other, a disk lies.
fn height(disk: usize, legs: &[Vec<usize>]) -> usize {
    legs[disk].iter().map(|leg| height(*leg, legs) + 1).max().unwrap_or(0)
}
