//! The contents of a volatile cache: every version of every sector that is not durable yet.
//!
//! A real cache may write its sectors out at any time and in any order, so all versions are kept
//! until one of them is known to be on the medium; that one ends all older ones.

use std::collections::BTreeMap;

use weir_bio::{Prng, SECTOR};

use super::store::Store;

/// One write, in the order the device took them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WriteId(u64);

/// A point in the sequence of answers: everything answered up to it is covered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Horizon(u64);

/// The contents that a write gave one sector: bytes, or `None` for zeros.
type Content = Option<Box<[u8; SECTOR as usize]>>;

/// The cache above a durable medium.
pub(super) struct Ledger {
    /// Writes not durable: the sectors they touch and when they were answered.
    writes: BTreeMap<WriteId, Entry>,
    /// Versions of each sector, oldest first.
    versions: BTreeMap<u64, Vec<(WriteId, Content)>>,
    durable: Store,
    taken: u64,
    answers: u64,
}

struct Entry {
    sectors: std::ops::Range<u64>,
    answered: Option<Horizon>,
}

/// The part of one write that a power loss leaves.
#[derive(Clone, Copy)]
enum Fate {
    Lost,
    Whole,
    Torn,
}

impl Ledger {
    /// An empty cache above `durable`.
    pub(super) fn new(durable: Store) -> Ledger {
        let (writes, versions) = (BTreeMap::new(), BTreeMap::new());
        Ledger { writes, versions, durable, taken: 0, answers: 0 }
    }

    /// Takes a write of `sectors`; `content` says what each of them now holds.
    pub(super) fn record(
        &mut self,
        sectors: std::ops::Range<u64>,
        mut content: impl FnMut(u64) -> Content,
    ) -> WriteId {
        let id = WriteId(self.taken);
        self.taken += 1;
        for sector in sectors.clone() {
            self.versions.entry(sector).or_default().push((id, content(sector)));
        }
        self.writes.insert(id, Entry { sectors, answered: None });
        id
    }

    /// The submitter is told that the write is done.
    pub(super) fn answer(&mut self, id: WriteId) {
        self.answers += 1;
        if let Some(entry) = self.writes.get_mut(&id) {
            entry.answered = Some(Horizon(self.answers));
        }
    }

    /// The answers that a flush submitted now has to cover.
    pub(super) fn horizon(&self) -> Horizon {
        Horizon(self.answers)
    }

    /// A flush is answered: everything answered up to `horizon` is durable.
    pub(super) fn flush(&mut self, horizon: Horizon) {
        let covered = self
            .writes
            .iter()
            .filter(|(_, entry)| entry.answered.is_some_and(|answered| answered <= horizon));
        let covered: Vec<WriteId> = covered.map(|(id, _)| *id).collect();
        for id in covered {
            self.persist(id);
        }
    }

    /// One write reaches the medium, unless a newer one of the same sectors is there already.
    pub(super) fn persist(&mut self, id: WriteId) {
        let Some(entry) = self.writes.remove(&id) else { return };
        for sector in entry.sectors {
            let Some(versions) = self.versions.get_mut(&sector) else { continue };
            let Some(place) = versions.iter().position(|(write, _)| *write == id) else { continue };
            put(&self.durable, sector, &versions[place].1);
            versions.drain(..=place);
            if versions.is_empty() {
                self.versions.remove(&sector);
            }
        }
    }

    /// The image of the data promised to be on the medium.
    pub(super) fn durable(&self) -> Store {
        self.durable.duplicate()
    }

    /// An image that a power loss now may leave: all promised data, and of each other write all,
    /// nothing or any of its sectors.
    pub(super) fn torn(&self, prng: &mut Prng) -> Store {
        let image = self.durable.duplicate();
        let fates = self.writes.keys().map(|id| {
            let fate = match prng.below(3) {
                0 => Fate::Lost,
                1 => Fate::Whole,
                _ => Fate::Torn,
            };
            (*id, fate)
        });
        let fates: BTreeMap<WriteId, Fate> = fates.collect();
        for (sector, versions) in &self.versions {
            for (id, content) in versions {
                let written = match fates.get(id) {
                    Some(Fate::Whole) => true,
                    Some(Fate::Torn) => prng.percent(50),
                    Some(Fate::Lost) | None => false,
                };
                if written {
                    put(&image, *sector, content);
                }
            }
        }
        image
    }

    /// Writes that power loss may still take.
    pub(super) fn unflushed(&self) -> usize {
        self.writes.len()
    }
}

fn put(store: &Store, sector: u64, content: &Content) {
    let put = match content {
        Some(bytes) => store.write(sector * SECTOR, &bytes[..]),
        None => store.zero(sector * SECTOR, SECTOR, false),
    };
    put.expect("memory for what a test calls durable");
}
