//! The blocks of a logical unit: sparse pages in memory, with a volatile cache in front.
//!
//! What was written into the cache is kept twice: as it reads, and as the medium has it. When a
//! dirty block is written again, the dice say whether its former value had reached the medium. So
//! after a power cut a block has any of the values it had since it was last flushed.

use std::collections::BTreeMap;

use weir_bio::{PAGE, Prng, SECTOR};

type Bytes = Box<[u8; PAGE]>;

/// The bytes of a page that is not there.
const ZEROS: [u8; PAGE] = [0; PAGE];
const SECTOR_LEN: usize = SECTOR as usize;
const PAGE_LEN: u64 = PAGE as u64;

/// A page; each bit of a mask is one of its eight sectors.
#[derive(Debug)]
struct Page {
    /// As it reads.
    now: Bytes,
    /// As the medium has its dirty sectors.
    medium: Option<Bytes>,
    dirty: u8,
    /// It is in the list of dirty pages.
    listed: bool,
    mapped: u8,
    /// `mapped` as the medium has it, of dirty sectors.
    medium_mapped: u8,
}

/// Where bytes lie in a page.
#[derive(Clone, Copy)]
struct Spot {
    page: u64,
    at: usize,
    len: usize,
}

impl Spot {
    /// The sectors it covers.
    fn mask(self) -> u8 {
        let (first, count) = (self.at / SECTOR_LEN, self.len / SECTOR_LEN);
        (((1_u16 << count) - 1) << first) as u8
    }
}

/// What is common to all pages of an image.
#[derive(Debug, Default)]
struct Store {
    /// Pages with dirty sectors, each once.
    dirty: Vec<u64>,
    /// Memory for pages that has been used before.
    spare: Vec<Bytes>,
    /// Pages with a mapped sector.
    mapped: u64,
}

/// How a block is changed.
#[derive(Clone, Copy)]
pub(crate) enum Ink<'a> {
    /// To these bytes, as often as they fit.
    Bytes(&'a [u8]),
    /// To zeros, and it takes no room any more.
    Unmapped,
}

/// An image. Addresses and lengths are bytes, multiples of a sector.
#[derive(Debug, Default)]
pub(crate) struct Image {
    pages: BTreeMap<u64, Page>,
    store: Store,
}

/// Pieces of a range by pages.
fn spots(at: u64, len: u64) -> impl Iterator<Item = Spot> {
    let mut done = 0;
    std::iter::from_fn(move || {
        (done < len).then(|| {
            let here = at + done;
            let inside = here % PAGE_LEN;
            let piece = (PAGE_LEN - inside).min(len - done);
            done += piece;
            Spot { page: here / PAGE_LEN, at: inside as usize, len: piece as usize }
        })
    })
}

impl Image {
    /// Hands over the bytes of a range in order.
    pub(crate) fn read(&self, at: u64, len: u64, mut take: impl FnMut(&[u8])) {
        for spot in spots(at, len) {
            let bytes = self.pages.get(&spot.page).map_or(&ZEROS, |page| &*page.now);
            take(&bytes[spot.at..][..spot.len]);
        }
    }

    /// Pages that writing a range would map.
    pub(crate) fn unmapped_pages(&self, at: u64, len: u64) -> u64 {
        if len == 0 {
            return 0;
        }
        let (first, last) = (at / PAGE_LEN, (at + len - 1) / PAGE_LEN);
        let mapped = self.pages.range(first..=last).filter(|(_, page)| page.mapped != 0);
        last - first + 1 - mapped.count() as u64
    }

    /// Pages that are mapped.
    pub(crate) const fn mapped_pages(&self) -> u64 {
        self.store.mapped
    }

    /// Changes a range; `cached` says that it stays in the cache.
    pub(crate) fn write(&mut self, at: u64, len: u64, ink: Ink<'_>, cached: bool, dice: &mut Prng) {
        if matches!(ink, Ink::Unmapped) {
            return self.unmap(at, len, cached, dice);
        }
        let mut done = 0;
        for spot in spots(at, len) {
            let store = &mut self.store;
            let page = self.pages.entry(spot.page).or_insert_with(|| store.page());
            store.change(page, spot, cached, dice);
            if let Ink::Bytes(bytes) = ink {
                let to = &mut page.now[spot.at..][..spot.len];
                for (piece, at) in to.chunks_exact_mut(SECTOR_LEN).zip((done..).step_by(SECTOR_LEN))
                {
                    piece.copy_from_slice(&bytes[at % bytes.len()..][..SECTOR_LEN]);
                }
            }
            store.map(page, page.mapped | spot.mask());
            done += spot.len;
        }
    }

    /// Only pages that are there can have anything but zeros.
    fn unmap(&mut self, at: u64, len: u64, cached: bool, dice: &mut Prng) {
        if len == 0 {
            return;
        }
        let end = at + len;
        let store = &mut self.store;
        for (&number, page) in self.pages.range_mut(at / PAGE_LEN..=(end - 1) / PAGE_LEN) {
            let start = number * PAGE_LEN;
            let from = at.max(start) - start;
            let to = end.min(start + PAGE_LEN) - start;
            let spot = Spot { page: number, at: from as usize, len: (to - from) as usize };
            store.change(page, spot, cached, dice);
            page.now[spot.at..][..spot.len].fill(0);
            store.map(page, page.mapped & !spot.mask());
        }
    }

    /// Brings what the cache has of a range to the medium.
    pub(crate) fn flush(&mut self, at: u64, len: u64) {
        let mut list = std::mem::take(&mut self.store.dirty);
        let end = at.saturating_add(len);
        list.retain(|&number| {
            let start = number * PAGE_LEN;
            let (from, to) =
                (at.clamp(start, start + PAGE_LEN), end.clamp(start, start + PAGE_LEN));
            let spot =
                Spot { page: number, at: (from - start) as usize, len: (to - from) as usize };
            let page = self.pages.get_mut(&number).expect("a listed page is there");
            self.store.clean(page, spot.mask());
            page.listed = page.dirty != 0;
            if page.dirty == 0 && page.mapped == 0 {
                let page = self.pages.remove(&number).expect("it was there");
                self.store.spare.push(page.now);
                return false;
            }
            page.listed
        });
        self.store.dirty = list;
    }

    /// Brings all that the cache has to the medium.
    pub(crate) fn flush_all(&mut self) {
        self.flush(0, u64::MAX);
    }

    /// Loses the cache: each dirty block of `block` bytes keeps its value or has the medium's.
    pub(crate) fn cut_power(&mut self, block: u32, dice: &mut Prng) {
        let sectors = block as usize / SECTOR_LEN;
        let list = std::mem::take(&mut self.store.dirty);
        for number in list {
            let page = self.pages.get_mut(&number).expect("a listed page is there");
            page.listed = false;
            for first in (0..PAGE / SECTOR_LEN).step_by(sectors) {
                let at = first * SECTOR_LEN;
                let spot = Spot { page: number, at, len: block as usize };
                if page.dirty & spot.mask() == 0 || dice.percent(50) {
                    continue;
                }
                let medium = page.medium.as_ref().expect("a dirty page has its medium's bytes");
                page.now[at..][..spot.len].copy_from_slice(&medium[at..][..spot.len]);
                let mask = spot.mask();
                let mapped = (page.mapped & !mask) | (page.medium_mapped & mask);
                self.store.map(page, mapped);
            }
            self.store.clean(page, u8::MAX);
        }
    }

    /// Forgets what lies at or behind an address.
    pub(crate) fn truncate(&mut self, at: u64, dice: &mut Prng) {
        let Some((&last, _)) = self.pages.last_key_value() else { return };
        let end = (last + 1) * PAGE_LEN;
        if end > at {
            self.unmap(at, end - at, false, dice);
        }
    }
}

impl Store {
    fn page(&mut self) -> Page {
        let mut now = self.spare.pop().unwrap_or_else(|| Box::new(ZEROS));
        now.fill(0);
        Page { now, medium: None, dirty: 0, listed: false, mapped: 0, medium_mapped: 0 }
    }

    /// Keeps what the medium has of sectors that are about to change.
    fn change(&mut self, page: &mut Page, spot: Spot, cached: bool, dice: &mut Prng) {
        let mask = spot.mask();
        if !cached {
            self.clean(page, mask);
            return;
        }
        let spare = &mut self.spare;
        let medium =
            page.medium.get_or_insert_with(|| spare.pop().unwrap_or_else(|| Box::new(ZEROS)));
        // One throw for the whole piece: a block is in one piece.
        let reached = dice.percent(50);
        for sector in 0..PAGE / SECTOR_LEN {
            let bit = 1_u8 << sector;
            if mask & bit == 0 || (page.dirty & bit != 0 && !reached) {
                continue;
            }
            let at = sector * SECTOR_LEN;
            medium[at..][..SECTOR_LEN].copy_from_slice(&page.now[at..][..SECTOR_LEN]);
            page.medium_mapped = (page.medium_mapped & !bit) | (page.mapped & bit);
        }
        page.dirty |= mask;
        if !page.listed {
            page.listed = true;
            self.dirty.push(spot.page);
        }
    }

    /// The medium has these sectors as they read.
    fn clean(&mut self, page: &mut Page, mask: u8) {
        page.dirty &= !mask;
        if page.dirty == 0 {
            self.spare.extend(page.medium.take());
        }
    }

    fn map(&mut self, page: &mut Page, mapped: u8) {
        self.mapped += u64::from(mapped != 0);
        self.mapped -= u64::from(page.mapped != 0);
        page.mapped = mapped;
    }
}
