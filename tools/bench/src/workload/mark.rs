//! Marks on disks: bytes of this run, written to see whether other disks show them, and put back
//! whatever happens meanwhile.

use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};

use weir::Session;
use weir_bio::Prng;

/// Bytes of a mark, and what its place is a multiple of.
pub(crate) const BYTES: u64 = 4096;

/// Bytes at the start of a mark that have its number in them.
const NUMBER: usize = 8;

/// The marks that stand now, in words, oldest first.
static STANDING: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Where marks stand that were not put back yet: what is left on disks if this process ends now.
#[must_use]
pub fn standing() -> Option<String> {
    let standing = standing_marks();
    (!standing.is_empty()).then(|| standing.join(", "))
}

fn standing_marks() -> MutexGuard<'static, Vec<String>> {
    STANDING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A way to the bytes of a disk.
pub(crate) trait Bytes {
    fn read(&mut self, at: u64, bytes: &mut [u8]) -> Result<(), String>;

    /// Writes them; they are durable when it returns.
    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), String>;
}

impl Bytes for Session {
    fn read(&mut self, at: u64, bytes: &mut [u8]) -> Result<(), String> {
        self.read_at(at, bytes).map_err(|error| error.to_string())
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), String> {
        self.write_at_durable(at, bytes).map_err(|error| error.to_string())
    }
}

/// A disk that is open to be marked and looked at.
pub(crate) struct Open<'a, B> {
    pub(crate) name: &'a str,
    /// Its size, bytes.
    pub(crate) size: u64,
    pub(crate) read_only: bool,
    pub(crate) disk: B,
}

/// One mark that stands.
struct Mark {
    /// Its disk, by number.
    disk: usize,
    at: u64,
    before: Vec<u8>,
    /// The sentence on what is left if it is not put back.
    left: String,
}

/// Marks that stand on some disks, each with a number. Dropping them puts back what they stand on.
pub(crate) struct Marks<'a, 'b, B: Bytes> {
    disks: &'a mut [Open<'b, B>],
    run: u64,
    standing: Vec<Mark>,
}

impl<'a, 'b, B: Bytes> Marks<'a, 'b, B> {
    /// None yet, of such a run.
    pub(crate) fn on(disks: &'a mut [Open<'b, B>], run: u64) -> Marks<'a, 'b, B> {
        Marks { disks, run, standing: Vec::new() }
    }

    /// Writes one; its number is how many there were before.
    ///
    /// # Errors
    /// The disk, the place and why; any part of it may stand then.
    pub(crate) fn write(&mut self, disk: usize, at: u64) -> Result<(), String> {
        let Open { name, disk: bytes_of, .. } = &mut self.disks[disk];
        let why = |error: String| format!("{name}: a mark at byte {at}: {error}");
        let mut before = vec![0; BYTES as usize];
        bytes_of.read(at, &mut before).map_err(why)?;
        let left = format!("bytes {at}..{} of {name} hold a mark of this run", at + BYTES);
        standing_marks().push(left.clone());
        let number = self.standing.len() as u64;
        self.standing.push(Mark { disk, at, before, left });
        bytes_of.write(at, &bytes(self.run, number)).map_err(why)
    }

    /// The places of all that stand, each once.
    pub(crate) fn places(&self) -> Vec<u64> {
        let mut places: Vec<u64> = self.standing.iter().map(|mark| mark.at).collect();
        places.sort_unstable();
        places.dedup();
        places
    }

    /// The disk that was written where this one shows the mark of another.
    pub(crate) fn shown_by(&mut self, disk: usize, at: u64) -> Option<usize> {
        let open = &mut self.disks[disk];
        let mut found = vec![0; BYTES as usize];
        if at + BYTES > open.size || open.disk.read(at, &mut found).is_err() {
            // One that cannot be read there is not the one that was written.
            return None;
        }
        let mark = self.standing.get(usize::try_from(number_of(self.run, &found)?).ok()?)?;
        Some(mark.disk).filter(|written| *written != disk)
    }

    /// Puts back what they stand on, the last first: of two on one place the first knows what was
    /// there.
    ///
    /// # Errors
    /// The sentence on what is left.
    pub(crate) fn put_back(&mut self) -> Result<(), String> {
        let mut all_left = Vec::new();
        while let Some(Mark { disk, at, before, left }) = self.standing.pop() {
            let disk = &mut self.disks[disk].disk;
            let mut written = disk.write(at, &before);
            if written.is_err() {
                // A server that was lost may be back.
                written = disk.write(at, &before);
            }
            standing_marks().retain(|standing| *standing != left);
            if let Err(error) = written {
                let what = match before.iter().all(|byte| *byte == 0) {
                    true => "zeros",
                    false => "what stood there",
                };
                all_left.push(format!("{left}, and {what} could not be put back: {error}"));
            }
        }
        if all_left.is_empty() { Ok(()) } else { Err(all_left.join("; ")) }
    }
}

impl<B: Bytes> Drop for Marks<'_, '_, B> {
    fn drop(&mut self) {
        if let Err(left) = self.put_back() {
            // While a panic unwinds, no error can be returned.
            let _ = writeln!(std::io::stderr(), "weir: {left}");
        }
    }
}

/// The content of a mark of a run.
fn bytes(run: u64, number: u64) -> Vec<u8> {
    let mut mark = vec![0; BYTES as usize];
    Prng::new(run).fill(&mut mark);
    mark[..NUMBER].copy_from_slice(&number.to_le_bytes());
    mark
}

/// The number of a mark of this run; `None` if these bytes are none.
fn number_of(run: u64, found: &[u8]) -> Option<u64> {
    let (number, rest) = found.split_first_chunk::<NUMBER>()?;
    (*rest == bytes(run, 0)[NUMBER..]).then(|| u64::from_le_bytes(*number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    /// Whether a mark stands on a disk of this name. Marks are listed for the whole process, so
    /// each test has names of its own.
    fn stands(name: &str) -> bool {
        let left = format!("bytes 4096..8192 of {name} hold a mark of this run");
        standing().is_some_and(|told| told.contains(&left))
    }

    /// A disk of two marks' size whose next writes fail, half written, where this says so.
    struct Disk {
        bytes: Vec<u8>,
        fails: Vec<bool>,
    }

    impl Bytes for &RefCell<Disk> {
        fn read(&mut self, at: u64, bytes: &mut [u8]) -> Result<(), String> {
            bytes.copy_from_slice(&self.borrow().bytes[at as usize..][..bytes.len()]);
            Ok(())
        }

        fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), String> {
            let mut disk = self.borrow_mut();
            let fails = !disk.fails.is_empty() && disk.fails.remove(0);
            let length = if fails { bytes.len() / 2 } else { bytes.len() };
            disk.bytes[at as usize..][..length].copy_from_slice(&bytes[..length]);
            if fails { Err(String::from("gone")) } else { Ok(()) }
        }
    }

    fn disk(fails: &[bool]) -> RefCell<Disk> {
        RefCell::new(Disk { bytes: vec![7; 2 * BYTES as usize], fails: fails.to_vec() })
    }

    fn open<'a>(disks: &[(&'a str, &'a RefCell<Disk>)]) -> Vec<Open<'a, &'a RefCell<Disk>>> {
        let open = |(name, disk): &(&'a str, _)| Open {
            name,
            size: 2 * BYTES,
            read_only: false,
            disk: *disk,
        };
        disks.iter().map(open).collect()
    }

    fn is_as_before(disk: &RefCell<Disk>) -> bool {
        disk.borrow().bytes.iter().all(|byte| *byte == 7)
    }

    #[test]
    fn marks_stand_until_they_are_put_back_also_two_on_one_place() {
        let disk = disk(&[]);
        let mut disks = open(&[("sda", &disk), ("also", &disk)]);
        let mut marks = Marks::on(&mut disks, 1);
        (0..2).for_each(|number| marks.write(number, 4096).expect("a mark"));
        assert_eq!(disk.borrow().bytes[4096..], bytes(1, 1));
        assert_eq!((marks.shown_by(0, 4096), marks.shown_by(1, 4096)), (Some(1), None));
        assert_eq!((marks.shown_by(0, 0), marks.shown_by(0, 8192)), (None, None));
        assert_eq!(marks.places(), [4096]);
        assert!(stands("sda") && stands("also"));
        marks.put_back().expect("it can be written");
        assert!(is_as_before(&disk) && !stands("sda") && !stands("also"));
    }

    #[test]
    fn a_mark_that_is_half_written_is_put_back_and_so_are_those_of_a_panic() {
        let half = disk(&[true, false]);
        let mut disks = open(&[("half", &half)]);
        let mut marks = Marks::on(&mut disks, 1);
        assert_eq!(marks.write(0, 0), Err(String::from("half: a mark at byte 0: gone")));
        drop(marks);
        assert!(is_as_before(&half));
        let again = disk(&[false, true, false]);
        let mut disks = open(&[("again", &again)]);
        let mut marks = Marks::on(&mut disks, 1);
        marks.write(0, 0).expect("a mark");
        marks.put_back().expect("the second time");
        assert!(is_as_before(&again));
        let (one, two) = (disk(&[]), disk(&[]));
        let panics = AssertUnwindSafe(|| {
            let mut disks = open(&[("sdc", &one), ("sdd", &two)]);
            let mut marks = Marks::on(&mut disks, 1);
            (0..2).for_each(|disk| marks.write(disk, 4096).expect("a mark"));
            panic!("on purpose");
        });
        assert!(catch_unwind(panics).is_err() && is_as_before(&one) && is_as_before(&two));
        assert!(!stands("sdc"));
    }

    #[test]
    fn what_cannot_be_put_back_is_named_with_its_place_and_the_others_are_put_back() {
        let (sound, lost) = (disk(&[]), disk(&[false, true, true]));
        let mut disks = open(&[("sound", &sound), ("lost", &lost)]);
        let mut marks = Marks::on(&mut disks, 1);
        (0..2).for_each(|disk| marks.write(disk, 4096).expect("a mark"));
        let left = "bytes 4096..8192 of lost hold a mark of this run, and what stood there could \
                    not be put back: gone";
        assert_eq!(marks.put_back(), Err(String::from(left)));
        assert!(is_as_before(&sound) && !stands("sound") && !stands("lost"));
    }
}
