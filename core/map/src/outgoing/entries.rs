//! The requests of a driver queue whose bios are under way below, by tag.

use weir_bio::{Bio, Data, Flags, Op, Rq, Status};
use weir_queue::{Done, Tag};

/// By tag number.
pub(super) struct EntryTable {
    pub(super) entries: Box<[Entry]>,
    /// Requests of which nothing is under way and that were not answered.
    pub(super) ended: Vec<u16>,
    pub(super) in_flight: usize,
    /// Memory on its way back.
    pub(super) lent: Vec<Data>,
}

/// A request under way below.
pub(super) struct Entry {
    pub(super) tag: Tag,
    /// Bios under way. None ends while others are being sent.
    pub(super) left: u32,
    /// Bios sent.
    pub(super) bios: u32,
    pub(super) status: Status,
    pub(super) is_out: bool,
    pub(super) rq: Rq,
    /// All that a request of one bio needs not, out of the way of those. Kept for the next.
    pub(super) more: Box<More>,
}

const _: () = assert!(size_of::<Entry>() <= 64, "requests of one bio are a line of memory each");

/// What has to be known where there are several bios, or the one is kept.
#[derive(Default)]
pub(super) struct More {
    /// The memory of the first, once that has ended.
    pub(super) first: Data,
    /// Those behind it, in their order.
    pub(super) bios: Vec<Later>,
    /// How many bios each piece of lent memory became; empty where each became one.
    pub(super) cuts: Vec<u32>,
}

pub(super) struct Later {
    /// Its first sector, counted from the request's.
    pub(super) at: u32,
    /// Its memory, once it has ended.
    pub(super) data: Data,
}

/// The name of a bio: its request's tag, and its number in that.
pub(super) fn cookie(tag: Tag, number: u32) -> u64 {
    u64::from(tag.0) << 32 | u64::from(number)
}

pub(crate) fn tag_of(cookie: u64) -> usize {
    (cookie >> 32) as usize
}

impl EntryTable {
    pub(super) fn new(depth: u16) -> EntryTable {
        let entry = |number| Entry {
            tag: Tag::first(number),
            left: 0,
            bios: 0,
            status: Status::Ok,
            is_out: false,
            rq: NOTHING,
            more: Box::default(),
        };
        let entries = (0..depth).map(entry).collect();
        EntryTable { entries, ended: Vec::new(), in_flight: 0, lent: Vec::new() }
    }

    #[inline]
    pub(super) fn begin(&mut self, tag: Tag, rq: Rq) -> &mut Entry {
        let entry = &mut self.entries[usize::from(tag.0)];
        assert!(!entry.is_out, "tag {} is out and is given out again", tag.0);
        (entry.tag, entry.rq, entry.status) = (tag, rq, Status::Ok);
        (entry.is_out, entry.left, entry.bios) = (true, 0, 0);
        self.in_flight += 1;
        entry
    }

    /// Ends a bio, and answers a request that had no other.
    #[inline(always)]
    pub(super) fn end_or_answer(
        &mut self,
        cookie: u64,
        status: Status,
        data: Data,
        done: &mut Done,
    ) {
        let entry = &mut self.entries[tag_of(cookie)];
        if entry.bios != 1 {
            return self.end(cookie, status, data);
        }
        debug_assert!(entry.is_out && entry.left == 1, "a request ends twice");
        entry.is_out = false;
        self.in_flight -= 1;
        match entry.rq.op.has_data() {
            // Some of it may be with a driver below, and the rest alone is no use.
            true if status == Status::Timeout => done.push_one(entry.tag, status, Data::None),
            true => done.push_one(entry.tag, status, data),
            false => done.push(entry.tag, status),
        }
    }

    #[inline(never)]
    pub(super) fn end(&mut self, cookie: u64, status: Status, data: Data) {
        let number = tag_of(cookie);
        let entry = &mut self.entries[number];
        // The first error is the request's, but a time-out above all: part of its memory may still
        // be with the driver below.
        if entry.status.is_ok() || status == Status::Timeout {
            entry.status = status;
        }
        match (cookie as u32).checked_sub(1) {
            None => entry.more.first.put(data),
            Some(later) => entry.more.bios[later as usize].data = data,
        }
        entry.left -= 1;
        if entry.left == 0 {
            self.ended.push(number as u16);
        }
    }

    /// Ends a bio that went to no leg. One that is read is zeros.
    pub(super) fn end_own(&mut self, cookie: u64, status: Status, mut data: Data) {
        let entry = &self.entries[tag_of(cookie)];
        if status.is_ok() && entry.rq.op == Op::Read {
            // Beside pieces of legs in one buffer it stays memory, to be one piece with them.
            match entry.more.cuts.is_empty() {
                true => data.become_zeros(),
                false => data.fill_zeros(),
            }
        }
        self.end(cookie, status, data);
    }

    #[inline]
    pub(super) fn answer(&mut self, done: &mut Done) {
        let EntryTable { entries, ended, in_flight, lent } = self;
        for number in ended.drain(..) {
            let entry = &mut entries[usize::from(number)];
            entry.is_out = false;
            *in_flight -= 1;
            match entry.more.bios.is_empty() && entry.status != Status::Timeout {
                true if entry.rq.op.has_data() => {
                    done.push_one(entry.tag, entry.status, std::mem::take(&mut entry.more.first));
                }
                true => done.push(entry.tag, entry.status),
                false => {
                    entry.give_back(lent);
                    done.push_lent(entry.tag, entry.status, lent);
                }
            }
        }
    }
}

impl Entry {
    /// The first sector of a bio, counted from the request's.
    pub(super) fn at(&self, cookie: u64) -> u32 {
        match (cookie as u32).checked_sub(1) {
            None => 0,
            Some(later) => self.more.bios[later as usize].at,
        }
    }

    /// Flags, priority and group of the request for a bio of it.
    #[inline]
    pub(super) fn dress(&self, bio: &mut Bio) {
        let rq = &self.rq;
        bio.flags |= rq.flags;
        (bio.group, bio.ioprio, bio.hint) = (rq.group, rq.ioprio, rq.hint);
    }

    /// Its memory in the pieces in which it was lent.
    #[inline(never)]
    pub(super) fn give_back(&mut self, lent: &mut Vec<Data>) {
        let More { first, bios, cuts } = &mut *self.more;
        if !self.rq.op.has_data() {
            return bios.clear();
        }
        let mut data =
            std::iter::once(std::mem::take(first)).chain(bios.drain(..).map(|later| later.data));
        if cuts.is_empty() {
            lent.extend(data.by_ref());
        }
        for count in cuts.drain(..) {
            let mut whole = Data::None;
            data.by_ref().take(count as usize).for_each(|piece| whole.append(piece));
            lent.push(whole);
        }
        drop(data);
        if self.status == Status::Timeout {
            // Some of it is with a driver below, and the rest alone is no use.
            lent.iter_mut().for_each(|piece| *piece = Data::None);
        }
    }
}

const NOTHING: Rq = Rq {
    sector: 0,
    sectors: 0,
    id: weir_bio::RqId(0),
    flags: Flags::NONE,
    group: weir_bio::GroupId(0),
    ioprio: weir_bio::IoPrio::NONE,
    hint: 0,
    tag: weir_bio::SchedTag::NONE,
    op: Op::Flush,
    segments: 0,
};

#[cfg(test)]
mod tests {
    use weir_bio::Buf;

    use super::*;

    #[test]
    fn what_is_left_of_the_memory_of_a_request_that_timed_out_does_not_come_back() {
        let mut table = EntryTable::new(4);
        let mut done = Done::default();
        for (status, left) in [(Status::Ok, 512), (Status::IoErr, 512), (Status::Timeout, 0)] {
            for bios in [1, 2] {
                let tag = Tag::first(3);
                let entry = table.begin(tag, Rq { op: Op::Read, ..NOTHING });
                (entry.left, entry.bios) = (bios, bios);
                let later = (1..bios).map(|at| Later { at, data: Data::None });
                entry.more.bios.extend(later);
                for number in 1..bios {
                    table.end(cookie(tag, number), Status::Ok, Data::One(Buf::zeroed(512)));
                }
                let data = Data::One(Buf::zeroed(512));
                table.end_or_answer(cookie(tag, 0), status, data, &mut done);
                table.answer(&mut done);
                let answers: Vec<_> = done.drain().collect();
                let [(answered, with, lent)] = &answers[..] else { panic!("one answer") };
                assert_eq!((answered.0, *with, lent.len()), (3, status, bios as usize));
                assert!(lent.iter().all(|data| data.len() == left), "{status}: {bios} bios");
                assert_eq!(table.in_flight, 0);
            }
        }
    }
}
