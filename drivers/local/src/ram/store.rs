//! Sparse bytes shared between threads.
//!
//! Concurrency: every chunk of 64 KiB has a lock of its own, held while bytes are copied to or from
//! it and never while another is taken. So two requests that meet in one chunk happen one after the
//! other there, a sector is never seen half written, and a request over several chunks is not one
//! indivisible step: the same as a disk promises.

use std::alloc::{self, Layout};
use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use weir_bio::{Data, SECTOR};
use weir_queue::{DriverError, EXTENTS_MAX, Extent};

/// Bytes in a chunk, the unit of allocation.
const CHUNK: u64 = 64 << 10;

/// Chunks in a group: 256 MiB. A group's table is made when the first of its chunks is.
const GROUP: u64 = 4096;

/// Bytes that a store leaves to the rest of the process, whose small allocations cannot be refused:
/// where there is no more than that, a write fails. More than 32 MiB, so that the question is
/// answered by the system and not by what an allocator keeps: M_MMAP_THRESHOLD in mallopt(3).
const RESERVE: u64 = 64 << 20;

/// Bytes that may be allocated after the question was answered once.
const ALLOWANCE: u64 = 1 << 20;

type Chunk = RwLock<Option<Box<[u8]>>>;

/// There is no memory for the data to be written. Data written before stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoMemory;

/// Sparse bytes: sectors never written read as zeros and take no memory.
pub struct Store {
    capacity: u64,
    groups: Box<[OnceLock<Box<[Chunk]>>]>,
    /// Bytes that may be allocated before the system is asked again.
    allowance: AtomicU64,
}

impl Store {
    /// The largest store, bytes: 1 PiB, whose table of groups takes 64 MiB.
    pub const BYTES_MAX: u64 = 1 << 50;

    /// `bytes` bytes of zeros.
    ///
    /// # Errors
    /// When `bytes` is 0, not a whole number of sectors, or above [`Store::BYTES_MAX`].
    pub fn new(bytes: u64) -> Result<Store, DriverError> {
        let capacity = crate::whole_sectors("ram", bytes)?;
        if bytes > Store::BYTES_MAX {
            let what = format!("ram: size={bytes} is above {} bytes (1 PiB)", Store::BYTES_MAX);
            return Err(DriverError { what, source: None });
        }
        let groups = bytes.div_ceil(CHUNK * GROUP);
        let mut table = Vec::new();
        if table.try_reserve_exact(groups as usize).is_err() {
            let what = format!("ram: size={bytes}: no memory for a table of {groups} groups");
            return Err(DriverError { what, source: None });
        }
        table.extend((0..groups).map(|_| OnceLock::new()));
        let groups = table.into_boxed_slice();
        Ok(Store { capacity, groups, allowance: AtomicU64::new(0) })
    }

    /// Size in sectors.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Copies the bytes from byte `at` on into `out`.
    pub fn read(&self, at: u64, mut out: &mut [u8]) {
        for run in self.runs(at, out.len() as u64) {
            let (now, later) = out.split_at_mut(run.len as usize);
            let chunk = run.chunk.map(readable);
            match chunk.as_ref().and_then(|chunk| chunk.as_deref()) {
                Some(bytes) => now.copy_from_slice(&bytes[run.start..][..now.len()]),
                None => now.fill(0),
            }
            out = later;
        }
    }

    /// Copies `bytes` to byte `at` and on.
    ///
    /// # Errors
    /// No memory for a chunk.
    pub fn write(&self, at: u64, mut bytes: &[u8]) -> Result<(), NoMemory> {
        for piece in pieces(at, bytes.len() as u64) {
            let (now, later) = bytes.split_at(piece.len);
            self.with_chunk(&piece, |chunk| chunk.copy_from_slice(now))?;
            bytes = later;
        }
        Ok(())
    }

    /// Copies the bytes from byte `at` on into all of `data`.
    pub fn read_into(&self, mut at: u64, data: &mut Data) {
        data.materialise();
        if let Some(bufs) = data.bufs_mut() {
            for buf in bufs {
                self.read(at, buf);
                at += buf.len() as u64;
            }
            return;
        }
        let mut done = 0;
        for run in self.runs(at, data.len() as u64) {
            let len = run.len as usize;
            let chunk = run.chunk.map(readable);
            match chunk.as_ref().and_then(|chunk| chunk.as_deref()) {
                Some(bytes) => data.copy_from_at(done, &bytes[run.start..][..len]),
                None => data.fill_zeros_at(done, len),
            }
            done += len;
        }
    }

    /// Copies all of `data` to byte `at` and on.
    ///
    /// # Errors
    /// No memory for a chunk.
    pub fn write_from(&self, mut at: u64, data: &Data) -> Result<(), NoMemory> {
        if let Some(bufs) = data.bufs() {
            for buf in bufs {
                self.write(at, buf)?;
                at += buf.len() as u64;
            }
            return Ok(());
        }
        let mut done = 0;
        for piece in pieces(at, data.len() as u64) {
            self.with_chunk(&piece, |chunk| data.copy_to_at(done, chunk))?;
            done += piece.len;
        }
        Ok(())
    }

    /// Makes `len` bytes from byte `at` on zeros. Whole chunks are freed unless `keep`, which
    /// allocates instead.
    ///
    /// # Errors
    /// No memory for a chunk that is to be kept.
    pub fn zero(&self, at: u64, len: u64, keep: bool) -> Result<(), NoMemory> {
        if keep {
            return pieces(at, len)
                .try_for_each(|piece| self.with_chunk(&piece, |chunk| chunk.fill(0)));
        }
        for run in self.runs(at, len) {
            let Some(chunk) = run.chunk else { continue };
            let mut chunk = writable(chunk);
            if run.len == CHUNK {
                if chunk.take().is_some() {
                    self.allowance.fetch_add(CHUNK, Ordering::Relaxed);
                }
            } else if let Some(bytes) = chunk.as_deref_mut() {
                bytes[run.start..][..run.len as usize].fill(0);
            }
        }
        Ok(())
    }

    /// Whether nothing of `len` bytes from byte `at` on is allocated.
    #[must_use]
    pub fn is_hole(&self, at: u64, len: u64) -> bool {
        self.runs(at, len).all(|run| run.is_hole())
    }

    /// The extents of `sectors` sectors from `sector`, neighbours that are alike joined: the first
    /// [`EXTENTS_MAX`] if there are more.
    #[must_use]
    pub fn allocation(&self, sector: u64, sectors: u64) -> Vec<Extent> {
        let mut extents: Vec<Extent> = Vec::new();
        for run in self.runs(sector * SECTOR, sectors * SECTOR) {
            let many = extents.len() == EXTENTS_MAX;
            let (hole, sectors) = (run.is_hole(), run.len / SECTOR);
            match extents.last_mut() {
                Some(last) if last.hole == hole => last.sectors += sectors,
                _ if many => break,
                _ => extents.push(Extent { sectors, hole, zero: hole }),
            }
        }
        extents
    }

    /// The same bytes, independent from now on. Writers must pause meanwhile if the copy is to be
    /// of one moment.
    #[must_use]
    pub fn duplicate(&self) -> Store {
        let groups = self.groups.iter().map(|group| match group.get() {
            None => OnceLock::new(),
            Some(chunks) => {
                let copies = chunks.iter().map(|chunk| RwLock::new(readable(chunk).clone()));
                OnceLock::from(copies.collect::<Box<[Chunk]>>())
            }
        });
        let allowance = AtomicU64::new(0);
        Store { capacity: self.capacity, groups: groups.collect(), allowance }
    }

    /// The range as runs of one chunk, or of what is left of a group that has no table yet.
    fn runs(&self, at: u64, len: u64) -> impl Iterator<Item = Run<'_>> {
        let end = at + len;
        let mut at = at;
        std::iter::from_fn(move || {
            if at == end {
                return None;
            }
            let index = at / CHUNK;
            let group = self.groups[(index / GROUP) as usize].get();
            let unit = if group.is_some() { CHUNK } else { CHUNK * GROUP };
            let run = Run {
                chunk: group.map(|group| &group[(index % GROUP) as usize]),
                start: (at % CHUNK) as usize,
                len: (unit - at % unit).min(end - at),
            };
            at += run.len;
            Some(run)
        })
    }

    /// Calls `change` with the bytes of the piece, which are allocated now.
    fn with_chunk(&self, piece: &Piece, change: impl FnOnce(&mut [u8])) -> Result<(), NoMemory> {
        let mut chunk = writable(self.chunk_made(piece.chunk)?);
        let bytes = match &mut *chunk {
            Some(bytes) => bytes,
            none => none.insert(self.zeros()?),
        };
        change(&mut bytes[piece.start..piece.start + piece.len]);
        Ok(())
    }

    fn chunk_made(&self, index: u64) -> Result<&Chunk, NoMemory> {
        let slot = &self.groups[(index / GROUP) as usize];
        if slot.get().is_none() {
            self.allow(GROUP * size_of::<Chunk>() as u64)?;
            let mut group = Vec::new();
            group.try_reserve_exact(GROUP as usize).map_err(|_| NoMemory)?;
            group.extend((0..GROUP).map(|_| RwLock::new(None)));
            // Another thread may have been quicker; its table is as good.
            _ = slot.set(group.into_boxed_slice());
        }
        let group = slot.get().ok_or(NoMemory)?;
        Ok(&group[(index % GROUP) as usize])
    }

    fn zeros(&self) -> Result<Box<[u8]>, NoMemory> {
        self.allow(CHUNK)?;
        zeroed_chunk().ok_or(NoMemory)
    }

    /// Takes so many bytes from the allowance, which is renewed while the system has more than
    /// the reserve.
    fn allow(&self, bytes: u64) -> Result<(), NoMemory> {
        let take = |left: u64| left.checked_sub(bytes);
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        if self.allowance.fetch_update(set, fetch, take).is_ok() {
            return Ok(());
        }
        // Memory that is never touched costs a map and an unmap.
        let more = bytes + ALLOWANCE;
        Vec::<u8>::new().try_reserve_exact((RESERVE + more) as usize).map_err(|_| NoMemory)?;
        self.allowance.fetch_add(ALLOWANCE, Ordering::Relaxed);
        Ok(())
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Store({} sectors)", self.capacity)
    }
}

/// A part of a range that is alike: in one chunk, or in none.
struct Run<'a> {
    chunk: Option<&'a Chunk>,
    start: usize,
    len: u64,
}

impl Run<'_> {
    fn is_hole(&self) -> bool {
        self.chunk.is_none_or(|chunk| readable(chunk).is_none())
    }
}

/// The part of a range that lies in one chunk.
struct Piece {
    chunk: u64,
    start: usize,
    len: usize,
}

fn pieces(at: u64, len: u64) -> impl Iterator<Item = Piece> {
    let end = at + len;
    let mut at = at;
    std::iter::from_fn(move || {
        if at == end {
            return None;
        }
        let (chunk, start) = (at / CHUNK, at % CHUNK);
        let len = (CHUNK - start).min(end - at);
        at += len;
        Some(Piece { chunk, start: start as usize, len: len as usize })
    })
}

/// A chunk of zeros, of which no page is touched yet: a vector that is reserved and then filled
/// would touch all.
#[expect(unsafe_code)]
fn zeroed_chunk() -> Option<Box<[u8]>> {
    let layout = Layout::array::<u8>(CHUNK as usize).ok()?;
    // SAFETY: the layout is not of size 0.
    let bytes = unsafe { alloc::alloc_zeroed(layout) };
    let bytes = (!bytes.is_null()).then(|| ptr::slice_from_raw_parts_mut(bytes, CHUNK as usize));
    // SAFETY: the global allocator gave CHUNK bytes, all zero, with the layout of such a slice, and
    // nothing else knows them.
    bytes.map(|bytes| unsafe { Box::from_raw(bytes) })
}

// A panic while a chunk is locked leaves bytes half copied at worst, as a failed write does.
fn readable(chunk: &Chunk) -> RwLockReadGuard<'_, Option<Box<[u8]>>> {
    chunk.read().unwrap_or_else(PoisonError::into_inner)
}

fn writable(chunk: &Chunk) -> RwLockWriteGuard<'_, Option<Box<[u8]>>> {
    chunk.write().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_across_chunks_and_groups_read_back_and_the_rest_is_zeros() {
        let store = Store::new(2 * CHUNK * GROUP).unwrap();
        for at in [0, CHUNK - 512, CHUNK * GROUP - 700, 2 * CHUNK * GROUP - 1536] {
            let bytes: Vec<u8> = (0..1536).map(|i| (i % 251 + 1) as u8).collect();
            store.write(at, &bytes).unwrap();
            let mut back = vec![0xAA; 1536];
            store.read(at, &mut back);
            assert_eq!(back, bytes, "at {at}");
        }
        let mut back = vec![0xAA; 4096];
        store.read(3 * CHUNK + 100, &mut back);
        assert!(back.iter().all(|byte| *byte == 0));
    }

    #[test]
    fn zeroing_frees_whole_chunks_only_and_keeping_frees_none() {
        let store = Store::new(4 * CHUNK).unwrap();
        store.write(0, &vec![7; 3 * CHUNK as usize]).unwrap();
        store.zero(512, 2 * CHUNK, false).unwrap();
        let holes: Vec<bool> =
            store.allocation(0, 4 * CHUNK / SECTOR).iter().map(|extent| extent.hole).collect();
        assert_eq!(holes, [false, true, false, true]);
        let mut back = vec![0; 3 * CHUNK as usize];
        store.read(0, &mut back);
        assert!(back[..512].iter().all(|byte| *byte == 7));
        assert!(back[512..512 + 2 * CHUNK as usize].iter().all(|byte| *byte == 0));
        assert!(back[512 + 2 * CHUNK as usize..].iter().all(|byte| *byte == 7));
        store.zero(0, 4 * CHUNK, true).unwrap();
        assert!(!store.is_hole(3 * CHUNK, 1));
    }

    #[test]
    fn a_duplicate_does_not_see_later_writes() {
        let store = Store::new(CHUNK).unwrap();
        store.write(0, &[1; 512]).unwrap();
        let copy = store.duplicate();
        store.write(0, &[2; 512]).unwrap();
        let mut back = [0; 512];
        copy.read(0, &mut back);
        assert_eq!(back, [1; 512]);
    }

    #[test]
    fn a_size_out_of_bounds_is_refused_by_value_and_bound() {
        let message = |bytes| Store::new(bytes).unwrap_err().to_string();
        assert_eq!(message(1000), "ram: size=1000 is not a positive multiple of 512 bytes");
        assert_eq!(
            message(Store::BYTES_MAX + 512),
            "ram: size=1125899906843136 is above 1125899906842624 bytes (1 PiB)"
        );
    }
}
