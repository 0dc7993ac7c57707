//! Disks that change while they are served: a target says that a disk has changed, and the disk is
//! asked for its size and its write cache, on a thread of its own because asking may wait.
//!
//! A disk over others takes on what they did, so it is asked after them. One that cannot be asked,
//! or does not come to rest, is tried again.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::mpsc::{Receiver, RecvError, RecvTimeoutError, Sender};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use weir::Device;

use crate::reload::take_on;
use crate::served::{Change, Served};

/// What the thread is told.
enum News {
    /// Something may have changed below the disk of this number.
    Below(usize),
    /// A disk has come or gone.
    Disk(Device, Change),
}

/// Follows what the targets of the disks tell, as long as the daemon runs.
pub(super) fn follow(served: &Served) -> io::Result<()> {
    let (tell, told) = mpsc::channel();
    let mut followed = Followed::default();
    served.disks().into_iter().for_each(|disk| _ = followed.add(disk, &tell));
    let of_disks = tell.clone();
    served.on_change(Box::new(move |disk, change| {
        // The thread is gone only with the process.
        let _ = of_disks.send(News::Disk(disk.clone(), change));
    }));
    let listen = move || {
        while let Ok(news) = wait(&told, followed.due()) {
            let mut below = BTreeSet::new();
            for one in news {
                match one {
                    News::Below(number) => _ = below.insert(number),
                    // It may have changed before it was heard.
                    News::Disk(disk, Change::Came) => _ = below.insert(followed.add(disk, &tell)),
                    News::Disk(disk, Change::Went) => followed.remove(&disk),
                }
            }
            followed.sweep(below);
        }
    };
    std::thread::Builder::new().name(String::from("weir-changes")).spawn(listen).map(drop)
}

/// Waits for changes, or until something is to be tried again.
fn wait(told: &Receiver<News>, due: Option<Instant>) -> Result<Vec<News>, RecvError> {
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
#[derive(Default)]
struct Followed {
    /// By number, which none has again.
    disks: BTreeMap<usize, Device>,
    next: usize,
    /// By number.
    behind: BTreeMap<usize, Behind>,
}

impl Followed {
    /// Follows a disk; its number.
    fn add(&mut self, disk: Device, tell: &Sender<News>) -> usize {
        let (number, tell) = (self.next, tell.clone());
        disk.on_change(Arc::new(move || {
            // The thread is gone only with the process.
            let _ = tell.send(News::Below(number));
        }));
        self.next += 1;
        self.disks.insert(number, disk);
        number
    }

    fn remove(&mut self, disk: &Device) {
        let is_gone = |number: &usize| self.disks.get(number).is_some_and(|known| known.is(disk));
        let gone: Vec<usize> = self.disks.keys().copied().filter(is_gone).collect();
        for number in gone {
            self.disks.remove(&number);
            self.behind.remove(&number);
        }
    }

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
        let legs: BTreeMap<usize, Vec<usize>> =
            self.disks.iter().map(|(number, disk)| (*number, self.legs_of(disk))).collect();
        let mut found: BTreeSet<usize> = disks.filter(|disk| legs.contains_key(disk)).collect();
        let mut changed = found.clone();
        while !changed.is_empty() {
            let lies_on_one = |above: &usize| legs[above].iter().any(|leg| changed.contains(leg));
            let above: BTreeSet<usize> = legs.keys().copied().filter(lies_on_one).collect();
            found.extend(above.iter().flat_map(|disk| &legs[disk]));
            found.extend(&above);
            changed = above;
        }
        let mut ordered: Vec<usize> = found.into_iter().collect();
        ordered.sort_by_key(|disk| height(*disk, &legs));
        ordered
    }

    fn legs_of(&self, disk: &Device) -> Vec<usize> {
        let number = |leg: &Device| {
            let known = self.disks.iter().find(|(_, disk)| disk.is(leg));
            known.map(|(number, _)| *number)
        };
        disk.legs().iter().filter_map(number).collect()
    }

    fn take_on(&mut self, disk: usize) {
        let taken = take_on(&self.disks[&disk]);
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
fn height(disk: usize, legs: &BTreeMap<usize, Vec<usize>>) -> usize {
    legs[&disk].iter().map(|leg| height(*leg, legs) + 1).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir::Target;

    /// Disks under these names and targets, each after those that it lies on.
    fn disks(of: &[(&str, &str)]) -> Vec<Device> {
        let mut open: Vec<Device> = Vec::new();
        for (name, target) in of {
            let target = Target::parse(target).expect("a target");
            let known = |leg: &str| open.iter().find(|disk| disk.config().name == leg).cloned();
            let opened = weir::open_over(name, &target, 1, known).expect("a disk");
            open.push(opened.device);
        }
        open
    }

    fn following(disks: Vec<Device>) -> Followed {
        let (tell, _) = mpsc::channel();
        let mut followed = Followed::default();
        disks.into_iter().for_each(|disk| _ = followed.add(disk, &tell));
        followed
    }

    #[test]
    fn each_disk_above_a_change_is_asked_once_after_all_that_it_lies_on() {
        let mut disks = disks(&[
            ("a", "ram:1MiB"),
            ("b", "ram:1MiB"),
            ("c", "ram:1MiB"),
            ("m", "linear:a+b"),
            ("n", "linear:b+c"),
            ("top", "linear:m+n+a"),
        ]);
        disks.reverse();
        let followed = following(disks);
        let asked = |names: &[&str]| -> Vec<String> {
            let name = |disk: usize| followed.disks[&disk].config().name.clone();
            let number = |wanted: &&str| (0..6).find(|disk| name(*disk) == **wanted).unwrap();
            followed.with_those_above(names.iter().map(number)).into_iter().map(name).collect()
        };
        let place = |order: &[String], name: &str| order.iter().position(|known| known == name);
        for changed in [&["a"][..], &["b", "a"], &["c"]] {
            let order = asked(changed);
            let unique: BTreeSet<&String> = order.iter().collect();
            assert_eq!(unique.len(), order.len(), "{order:?}");
            assert_eq!(order.last().map(String::as_str), Some("top"), "{order:?}");
            for (leg, above) in [("a", "m"), ("b", "m"), ("b", "n"), ("c", "n")] {
                let (leg, above) = (place(&order, leg), place(&order, above));
                assert!(above.is_none() || leg < above, "{order:?}");
            }
        }
        assert_eq!(asked(&["top"]), ["top"]);
        // Of `n`, which did not change below, nothing is to be taken on but what `top` lies on.
        assert!(place(&asked(&["a"]), "n").is_some() && place(&asked(&["c"]), "m").is_some());
        assert!(place(&asked(&["a"]), "c").is_none(), "it lies under no disk above `a` alone");
    }

    #[test]
    fn a_disk_that_cannot_be_asked_is_asked_again_after_longer_and_longer() {
        let disks = disks(&[("a", "ram:1MiB")]);
        // Closed, it cannot be asked.
        disks[0].take_offline();
        let mut followed = following(disks);
        let mut pauses = Vec::new();
        for _ in 0..9 {
            followed.take_on(0);
            pauses.push(followed.behind[&0].pause.as_secs());
        }
        assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 300, 300, 300]);
        assert!(followed.due().expect("a time") > Instant::now());
        // Not before it is due, and at once if it says that it has changed.
        followed.sweep(BTreeSet::new());
        assert_eq!(followed.behind.len(), 1);
        followed.behind.clear();
        followed.sweep(BTreeSet::from([0]));
        assert_eq!(followed.behind[&0].pause, AGAIN);
    }
}
