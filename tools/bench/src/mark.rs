//! A mark on a disk: bytes of this run, written to see whether another disk shows them, and put
//! back whatever happens meanwhile.

use std::sync::{Mutex, MutexGuard, PoisonError};

use weir::Session;
use weir_bio::Prng;

/// Bytes of a mark, and what its place is a multiple of.
pub(crate) const BYTES: u64 = 4096;

/// What is marked now, in words. One run has one mark at a time.
static STANDING: Mutex<Option<String>> = Mutex::new(None);

/// Where a mark stands that was not put back yet: what is left on a disk if this process ends now.
#[must_use]
pub fn standing() -> Option<String> {
    standing_mark().clone()
}

fn standing_mark() -> MutexGuard<'static, Option<String>> {
    STANDING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A disk as a mark uses it.
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

/// A mark that stands. Dropping it puts back what it stands on.
pub(crate) struct Mark<'a, B: Bytes> {
    disk: B,
    name: &'a str,
    at: u64,
    before: Vec<u8>,
    stands: bool,
}

impl<'a, B: Bytes> Mark<'a, B> {
    /// Writes the mark of a run.
    ///
    /// # Errors
    /// The disk, the place and why; what is left there, if what stood there could not be put back.
    pub(crate) fn write(disk: B, name: &'a str, at: u64, run: u64) -> Result<Mark<'a, B>, String> {
        let mut mark = Mark { disk, name, at, before: vec![0; BYTES as usize], stands: false };
        let why = |error: String| format!("{name}: a mark at byte {at}: {error}");
        mark.disk.read(at, &mut mark.before).map_err(why)?;
        mark.stands = true;
        let left = format!("bytes {at}..{} of {name} hold a mark of this run", at + BYTES);
        *standing_mark() = Some(left);
        let Err(error) = mark.disk.write(at, &bytes(run)) else { return Ok(mark) };
        // Any part of it may be there.
        match mark.put_back() {
            Ok(()) => Err(why(error)),
            Err(left) => Err(format!("{}; {left}", why(error))),
        }
    }

    /// Puts back what it stands on.
    ///
    /// # Errors
    /// What is left.
    pub(crate) fn put_back(&mut self) -> Result<(), String> {
        if !std::mem::take(&mut self.stands) {
            return Ok(());
        }
        let Mark { disk, name, at, before, .. } = self;
        let mut written = disk.write(*at, before);
        if written.is_err() {
            // A server that was lost may be back.
            written = disk.write(*at, before);
        }
        let left = standing_mark().take();
        written.map_err(|error| {
            let left = left.unwrap_or_else(|| format!("{name} holds a mark of this run"));
            let what = match before.iter().all(|byte| *byte == 0) {
                true => "zeros",
                false => "what stood there",
            };
            format!("{left}, and {what} could not be put back: {error}")
        })
    }
}

impl<B: Bytes> Drop for Mark<'_, B> {
    fn drop(&mut self) {
        if let Err(left) = self.put_back() {
            // Whoever unwinds tells nobody else.
            eprintln!("weir: {left}");
        }
    }
}

/// What the mark of a run looks like.
pub(crate) fn bytes(run: u64) -> Vec<u8> {
    let mut mark = vec![0; BYTES as usize];
    Prng::new(run).fill(&mut mark);
    mark
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    /// There is one word about what stands for the whole process.
    static ALONE: Mutex<()> = Mutex::new(());

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

    fn is_as_before(disk: &RefCell<Disk>) -> bool {
        disk.borrow().bytes.iter().all(|byte| *byte == 7)
    }

    #[test]
    fn a_mark_stands_until_it_is_put_back() {
        let _alone = ALONE.lock();
        let disk = disk(&[]);
        let mut mark = Mark::write(&disk, "sda", 4096, 1).expect("a mark");
        assert_eq!(disk.borrow().bytes[4096..], bytes(1));
        assert!(standing().is_some_and(|left| left.starts_with("bytes 4096..8192 of sda")));
        mark.put_back().expect("it can be written");
        assert!(is_as_before(&disk));
        assert_eq!(standing(), None);
    }

    #[test]
    fn a_mark_that_is_half_written_is_put_back_and_so_is_one_in_a_panic() {
        let _alone = ALONE.lock();
        let half = disk(&[true, false]);
        let why = Mark::write(&half, "sda", 0, 1).err().expect("it fails");
        assert_eq!(why, "sda: a mark at byte 0: gone");
        assert!(is_as_before(&half));
        let again = disk(&[false, true, false]);
        Mark::write(&again, "sda", 0, 1).expect("a mark").put_back().expect("the second time");
        assert!(is_as_before(&again));
        let unwound = disk(&[]);
        let panics = AssertUnwindSafe(|| {
            let _mark = Mark::write(&unwound, "sda", 0, 1).expect("a mark");
            panic!("on purpose");
        });
        assert!(catch_unwind(panics).is_err() && is_as_before(&unwound));
    }

    #[test]
    fn what_cannot_be_put_back_is_named_with_its_place() {
        let _alone = ALONE.lock();
        let disk = disk(&[true, true, true]);
        let why = Mark::write(&disk, "sda", 4096, 1).err().expect("it fails");
        let left = "bytes 4096..8192 of sda hold a mark of this run, and what stood there could \
                    not be put back: gone";
        assert_eq!(why, format!("sda: a mark at byte 4096: gone; {left}"));
        disk.borrow_mut().fails = vec![false, true, true];
        let mut mark = Mark::write(&disk, "sda", 4096, 1).expect("a mark");
        assert_eq!(mark.put_back(), Err(String::from(left)));
        assert_eq!(standing(), None);
    }
}
