//! Memory of whole pages for a pool, from the system itself where it is long.
//!
//! The memory of a read or write past the page cache is described to the disk run by run of what
//! is contiguous in the machine, and each run costs. Pages of 4 KiB lie anywhere: a read of 256 KiB
//! has some 64 runs there, and one in a huge page.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::{NonNull, null_mut};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use rustix::param::page_size;

use crate::PAGE;

/// Bytes of a huge page on most machines. Where they are others, memory has small pages.
pub(crate) const HUGE: usize = 2 << 20;

/// Pages of zeros, freed with the value.
pub(crate) struct Pages {
    start: NonNull<u8>,
    bytes: usize,
    /// They were mapped, and allocated otherwise.
    mapped: bool,
}

impl Pages {
    /// So many bytes, more than none, of whole pages. From [`HUGE`] on they begin where a huge page
    /// does, and the system is asked for huge ones: it gives them when they are first used, and
    /// small ones where it has none. `None`: there is no memory.
    pub(crate) fn zeroed(bytes: usize) -> Option<Pages> {
        let layout = Layout::from_size_align(bytes, PAGE).expect("a page-aligned layout");
        assert!(bytes > 0, "a region without bytes");
        // An interpreter has no pages.
        let mapped = bytes >= HUGE && !cfg!(miri);
        let start = match mapped {
            true => map(bytes),
            // SAFETY: the layout's size is not zero.
            false => NonNull::new(unsafe { alloc_zeroed(layout) }),
        };
        Some(Pages { start: start?, bytes, mapped })
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Gives the memory of `len` bytes from `offset` on back to the system, if they are whole pages
    /// of its and were mapped: they are zeros then, and take memory when they are next written.
    ///
    /// # Safety
    /// They lie in these pages, and have no user: no reference to them exists, and no device is
    /// about to read or write them.
    pub(crate) unsafe fn empty(&self, offset: usize, len: usize) {
        if self.mapped && offset.is_multiple_of(page_size()) && len.is_multiple_of(page_size()) {
            // SAFETY: the caller's promise. If it is refused, the memory stays.
            unsafe {
                let start = self.start.as_ptr().add(offset);
                let _ = madvise(start.cast(), len, Advice::LinuxDontNeed);
            }
        }
    }
}

/// Bytes of the mapping for so many: whole pages, however long those of the system are. What is
/// behind the last whole huge page has small ones.
fn mapped_len(bytes: usize) -> usize {
    bytes.next_multiple_of(page_size())
}

/// Maps so many bytes at least, from a multiple of [`HUGE`] on. `None`: there is no memory.
fn map(bytes: usize) -> Option<NonNull<u8>> {
    let bytes = mapped_len(bytes);
    let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // The system maps where it likes, so there is room for the beginning to be elsewhere.
    let room = bytes.checked_add(HUGE)?;
    // SAFETY: a new mapping, at no address that is in use.
    let mapping = unsafe { mmap_anonymous(null_mut(), room, access, flags) }.ok()?;
    let mapping = mapping.cast::<u8>();
    // The last place in it: the system maps from above to below, so the pages of several values lie
    // side by side, and are one mapping to it. A process may have some 65,000.
    let before = match mapping.align_offset(HUGE) {
        0 => HUGE,
        before => before,
    };
    // SAFETY: `before` is at most HUGE, so both lie in the mapping, as `bytes` behind `start` do.
    let (start, end) = unsafe { (mapping.add(before), mapping.add(before + bytes)) };
    // SAFETY: the parts in front of the pages and behind them are whole pages that have no user.
    // A part that cannot be unmapped stays, and takes no memory as it is never touched.
    unsafe {
        let _ = munmap(mapping.cast(), before);
        if before < HUGE {
            let _ = munmap(end.cast(), HUGE - before);
        }
        // Where it is refused, pages are small.
        let _ = madvise(start.cast(), bytes, Advice::LinuxHugepage);
    }
    NonNull::new(start)
}

impl Drop for Pages {
    fn drop(&mut self) {
        let start = self.start.as_ptr();
        if self.mapped {
            // SAFETY: `map` made this mapping, so long, and the value was the only way to it. If it
            // cannot be unmapped, it stays.
            let _ = unsafe { munmap(start.cast(), mapped_len(self.bytes)) };
        } else {
            // SAFETY: it came from an allocation of this layout in `zeroed`.
            unsafe { dealloc(start, Layout::from_size_align_unchecked(self.bytes, PAGE)) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use super::*;

    /// Some tests count the mappings of the whole process, or their bytes.
    static ALONE: Mutex<()> = Mutex::new(());

    fn alone() -> MutexGuard<'static, ()> {
        ALONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The bytes, which no other reference is to.
    fn bytes_of(pages: &mut Pages) -> &mut [u8] {
        // SAFETY: they are that long and initialised, and borrowed with the value.
        unsafe { std::slice::from_raw_parts_mut(pages.start().as_ptr(), pages.bytes()) }
    }

    #[test]
    fn pages_are_zeros_that_can_be_written_to_their_end() {
        for bytes in [PAGE, HUGE - PAGE, HUGE, HUGE + PAGE, 3 * HUGE] {
            let mut pages = Pages::zeroed(bytes).expect("memory");
            assert_eq!(pages.bytes(), bytes);
            let all = bytes_of(&mut pages);
            assert!(all.iter().all(|byte| *byte == 0), "{bytes}");
            all.fill(7);
            assert_eq!((all[0], all[bytes - 1]), (7, 7));
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "an interpreter has no bound")]
    fn memory_that_there_is_not_is_none() {
        assert!(Pages::zeroed(isize::MAX as usize / PAGE * PAGE).is_none());
        assert!(Pages::zeroed(1 << 62).is_none());
    }

    #[test]
    #[cfg_attr(miri, ignore = "an interpreter has no pages")]
    fn long_memory_begins_with_a_huge_page_and_is_the_systems_again_when_it_is_freed() {
        let _alone = alone();
        // A huge page each, and a little.
        let (before, bytes) = (mapped_bytes(), HUGE + PAGE);
        let all = (0..1024).map(|_| Pages::zeroed(bytes));
        let mut all: Vec<Pages> = all.map(|pages| pages.expect("memory")).collect();
        assert!(all.iter().all(|pages| pages.start().as_ptr().align_offset(HUGE) == 0));
        bytes_of(&mut all[7])[bytes - 1] = 1;
        assert!(mapped_bytes() > before + 512 * bytes);
        // They have no part of a huge page more, which would be all theirs once it is used.
        let most = before + 1024 * (HUGE + page_size()) + 512 * HUGE;
        assert!(mapped_bytes() < most, "{before} and now {}", mapped_bytes());
        drop(all);
        // Nor is there what lay around them. Other tests of the process have less.
        assert!(mapped_bytes() < before + 512 * HUGE, "{before} and now {}", mapped_bytes());
    }

    #[test]
    #[cfg_attr(miri, ignore = "an interpreter has no pages")]
    fn memory_of_many_pools_is_few_mappings_of_which_a_process_may_have_so_many() {
        let _alone = alone();
        let before = mappings();
        let all: Vec<Option<Pages>> = (0..1024).map(|_| Pages::zeroed(HUGE)).collect();
        assert!(all.iter().all(Option::is_some));
        // Other tests of the process map theirs in between.
        let now = mappings();
        assert!(now < before + 256, "{before} mappings and then {now}");
    }

    #[test]
    #[cfg_attr(miri, ignore = "an interpreter has no pages")]
    fn the_system_is_asked_for_huge_pages_for_all_of_it() {
        if !std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
            return println!("skipped: this kernel has no huge pages to ask for");
        }
        let pages = Pages::zeroed(3 * HUGE).expect("memory");
        let start = pages.start().as_ptr() as usize;
        let smaps = std::fs::read_to_string("/proc/self/smaps").expect("this system has one");
        for place in [start, start + 3 * HUGE - PAGE] {
            assert!(is_advised(&smaps, place), "{place:x} in {smaps}");
        }
    }

    /// Whether the mapping that this address is in is one for huge pages.
    fn is_advised(smaps: &str, place: usize) -> bool {
        let mut within = false;
        for line in smaps.lines() {
            let range = line.split(' ').next().and_then(|range| range.split_once('-'));
            let ends = range.and_then(|(start, end)| {
                let end = usize::from_str_radix(end, 16).ok()?;
                Some((usize::from_str_radix(start, 16).ok()?, end))
            });
            if let Some((start, end)) = ends {
                within = (start..end).contains(&place);
            } else if within && let Some(flags) = line.strip_prefix("VmFlags:") {
                return flags.split(' ').any(|flag| flag == "hg");
            }
        }
        false
    }

    fn mappings() -> usize {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("this system has one");
        maps.lines().count()
    }

    /// Bytes of the process's address space that are in use.
    fn mapped_bytes() -> usize {
        let statm = std::fs::read_to_string("/proc/self/statm").expect("this system has one");
        let pages = statm.split(' ').next().and_then(|pages| pages.parse::<usize>().ok());
        pages.expect("a number of pages") * page_size()
    }
}
