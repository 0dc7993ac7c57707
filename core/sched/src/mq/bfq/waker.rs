//! Whose completions make a process ask for more: its waker. Source: docs/behaviour/bfq.md, section
//! 10. Times in ns.
//!
//! While the device is kept for a queue, serving its waker is no loss, for the queue has nothing
//! to ask before.

use weir_bio::Nanos;

use super::Bfq;
use super::entity::QueueId;
use super::queue::Handle;

/// A request this soon after another queue's completion may have been caused by it.
const SOON_NS: u64 = 4_000_000;
/// So many times in a row, and it was.
const TIMES: u8 = 3;
/// The times must fall within so many idle slices.
const WITHIN_SLICES: u64 = 128;

/// The queue whose completions wake this queue's process, and those that this queue wakes.
#[derive(Clone, Debug, Default)]
pub(super) struct Waker {
    confirmed: Option<QueueId>,
    /// The queue that may be it, how many times in a row, and since when. Its birth tells it from
    /// one that took its place.
    tentative: Option<Handle>,
    times: u8,
    since: u64,
    /// Queues that name this one as their waker; the one that became busy last is the last.
    wakes: Vec<QueueId>,
}

/// A request that arrives at an empty sync queue.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    /// The process thinks for long: it may sleep until it is woken.
    thinks_long: bool,
    /// Requests of the process, this one included.
    outstanding: u32,
    /// Another queue's request was the last that ended, this long ago.
    after_ns: u64,
    other: Handle,
    /// Processes share that queue: which of them wakes is not known.
    shared: bool,
    slice_idle_ns: u64,
}

impl Waker {
    /// The queue that wakes the process.
    pub(super) fn waker(&self) -> Option<QueueId> {
        self.confirmed
    }

    /// Of the queues whose processes this one wakes, the one that became busy last.
    pub(super) fn woken_last(&self) -> Option<QueueId> {
        self.wakes.last().copied()
    }

    /// Takes note of an arrival; true if the other queue is the waker from now on.
    fn observe(&mut self, arrival: Arrival, now: Nanos) -> bool {
        let Arrival { other, outstanding, .. } = arrival;
        let woken = arrival.thinks_long && outstanding <= 1 && arrival.after_ns < SOON_NS;
        if !woken || arrival.shared || self.confirmed == Some(other.queue) {
            return false;
        }
        let until = self.since + WITHIN_SLICES * arrival.slice_idle_ns;
        if self.tentative != Some(other) || now.0 >= until {
            (self.tentative, self.times, self.since) = (Some(other), 1, now.0);
            return false;
        }
        self.times += 1;
        self.times >= TIMES
    }
}

impl Bfq {
    /// A request arrives at the empty sync queue `id`, whose process has `outstanding` ones.
    pub(super) fn look_for_waker(&mut self, id: QueueId, outstanding: u32, now: Nanos) {
        if !self.features.wakers {
            return;
        }
        let last = self.last_completed.and_then(|handle| self.resolve(handle));
        let Some(candidate) = last.filter(|candidate| *candidate != id) else { return };
        let (queue, other) = (self.queue(id), self.queue(candidate));
        let arrival = Arrival {
            thinks_long: !queue.think.is_short(),
            outstanding,
            after_ns: now.since(self.last_completion),
            other: other.handle(candidate),
            shared: other.sharing.is_shared(),
            slice_idle_ns: self.set.slice_idle_ns,
        };
        if self.queue_mut(id).waker.observe(arrival, now) {
            self.set_waker(id, candidate);
        }
    }

    /// `waker` wakes the process of queue `id`, and no other does.
    fn set_waker(&mut self, id: QueueId, waker: QueueId) {
        self.forget_waker(id);
        self.queue_mut(id).waker.confirmed = Some(waker);
        self.queue_mut(waker).waker.wakes.push(id);
    }

    /// Queue `id` becomes busy: of the queues that its waker wakes, it is now the last that did.
    #[inline]
    pub(super) fn head_woken(&mut self, id: QueueId) {
        if let Some(waker) = self.queue(id).waker.confirmed {
            let wakes = &mut self.queue_mut(waker).waker.wakes;
            wakes.retain(|woken| *woken != id);
            wakes.push(id);
        }
    }

    /// Queue `id` has no waker, confirmed or tentative.
    fn forget_waker(&mut self, id: QueueId) {
        let waker = &mut self.queue_mut(id).waker;
        waker.tentative = None;
        waker.times = 0;
        if let Some(old) = waker.confirmed.take() {
            self.queue_mut(old).waker.wakes.retain(|woken| *woken != id);
        }
    }

    /// The waker of queue `from` wakes `to` as well, if that has none: a process of the one goes to
    /// the other.
    pub(super) fn hand_on_waker(&mut self, from: QueueId, to: QueueId) {
        let waker = self.queue(from).waker.confirmed.filter(|waker| *waker != to);
        if let Some(waker) = waker.filter(|_| self.queue(to).waker.confirmed.is_none()) {
            self.set_waker(to, waker);
        }
    }

    /// Queue `id` wakes no other: of several processes it is not known which does.
    pub(super) fn stop_waking(&mut self, id: QueueId) {
        for woken in std::mem::take(&mut self.queue_mut(id).waker.wakes) {
            self.queue_mut(woken).waker.confirmed = None;
        }
    }

    /// Removes queue `id` as a waker and as a woken queue: it dies or merges.
    pub(super) fn leave_wakers(&mut self, id: QueueId) {
        self.forget_waker(id);
        self.stop_waking(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_bio::SubmitterId;

    const MS: u64 = 1_000_000;

    fn queue(birth: u64) -> Handle {
        Handle { queue: QueueId(birth as u32), birth }
    }

    fn arrival(birth: u64) -> Arrival {
        Arrival {
            thinks_long: true,
            outstanding: 1,
            after_ns: SOON_NS - 1,
            other: queue(birth),
            shared: false,
            slice_idle_ns: 8 * MS,
        }
    }

    /// At which of these arrivals, each at so many ms, a waker is found.
    fn found(arrivals: &[(u64, Arrival)]) -> Vec<usize> {
        let mut waker = Waker::default();
        let found = arrivals.iter().map(|(ms, arrival)| waker.observe(*arrival, Nanos(ms * MS)));
        let found = found.enumerate().filter(|(_, found)| *found).map(|(n, _)| n);
        found.collect()
    }

    #[test]
    fn the_third_arrival_in_a_row_soon_after_the_same_queue_within_a_second_finds_its_waker() {
        let one = arrival(1);
        let reborn = Arrival { other: Handle { birth: 9, ..one.other }, ..one };
        /// Arrivals, and the places among them at which the waker is confirmed.
        type Row<'a> = (&'a [(u64, Arrival)], &'a [usize]);
        let table: &[Row<'_>] = &[
            (&[(0, one), (10, one), (20, one)], &[2]),
            (&[(0, one), (10, one), (1023, one)], &[2]),
            (&[(0, one), (10, one), (1024, one)], &[]),
            (&[(0, one), (10, arrival(2)), (20, one), (30, one)], &[]),
            (&[(0, one), (10, one), (20, reborn)], &[]),
        ];
        for (n, (arrivals, at)) in table.iter().enumerate() {
            assert_eq!(found(arrivals), *at, "row {n}");
        }
        // Arrivals that say nothing of a waker, and do not break the row.
        for silent in [
            Arrival { thinks_long: false, ..one },
            Arrival { outstanding: 2, ..one },
            Arrival { after_ns: SOON_NS, ..one },
            Arrival { shared: true, ..one },
        ] {
            assert_eq!(found(&[(0, silent), (1, silent), (2, silent), (3, silent)]), [0; 0]);
            assert_eq!(found(&[(0, one), (1, silent), (2, one), (3, one)]), [3], "{silent:?}");
        }
        let mut known = Waker { confirmed: Some(one.other.queue), ..Waker::default() };
        assert!((0..9).all(|ms| !known.observe(one, Nanos(ms * MS))), "it is known");
    }

    fn awake(queues: usize) -> (Bfq, Vec<QueueId>) {
        let limits = weir_bio::Limits::default();
        let setup =
            crate::Setup { limits, nr_requests: 64, hard_queues: 1, nomerges: 0, compat: "" };
        let mut bfq = Bfq::new(&setup);
        let new = |bfq: &mut Bfq| {
            bfq.new_queue(
                super::super::entity::LevelId::ROOT,
                super::super::entity::BE,
                4,
                true,
                Nanos(0),
            )
        };
        let ids = (0..queues).map(|_| new(&mut bfq)).collect();
        (bfq, ids)
    }

    #[test]
    fn a_waker_and_the_queues_it_wakes_know_each_other_until_one_of_them_leaves() {
        let (mut bfq, ids) = awake(4);
        let [waker, a, b, other] = ids[..] else { unreachable!("four queues") };
        let of = |bfq: &Bfq, id| bfq.queue(id).waker.waker();
        let wakes = |bfq: &Bfq, id| bfq.queue(id).waker.wakes.clone();
        bfq.set_waker(a, waker);
        bfq.set_waker(b, waker);
        assert_eq!((of(&bfq, a), of(&bfq, b)), (Some(waker), Some(waker)));
        assert_eq!(wakes(&bfq, waker), [a, b]);
        bfq.head_woken(a);
        assert_eq!(wakes(&bfq, waker), [b, a], "the one that became busy last is the last");
        assert_eq!(bfq.queue(waker).waker.woken_last(), Some(a));
        bfq.head_woken(other);
        assert_eq!(wakes(&bfq, waker), [b, a], "nobody wakes that one");
        // Another waker takes the place of the first.
        bfq.set_waker(a, other);
        assert_eq!(
            (of(&bfq, a), wakes(&bfq, waker), wakes(&bfq, other)),
            (Some(other), vec![b], vec![a])
        );
        bfq.hand_on_waker(a, b);
        assert_eq!(of(&bfq, b), Some(waker), "it has one");
        bfq.stop_waking(waker);
        assert_eq!((of(&bfq, b), wakes(&bfq, waker)), (None, vec![]));
        bfq.hand_on_waker(a, b);
        assert_eq!((of(&bfq, b), wakes(&bfq, other)), (Some(other), vec![a, b]));
        bfq.hand_on_waker(a, other);
        assert_eq!(of(&bfq, other), None, "none wakes itself");
        bfq.queue_mut(other).waker.tentative = Some(queue(7));
        bfq.queue_mut(other).waker.times = 2;
        bfq.leave_wakers(other);
        assert_eq!((of(&bfq, a), of(&bfq, b), wakes(&bfq, other)), (None, None, vec![]));
        let left = &bfq.queue(other).waker;
        assert_eq!((left.tentative, left.times), (None, 0));
    }

    #[test]
    fn a_queue_that_is_gone_wakes_none_and_is_woken_by_none() {
        let (mut bfq, ids) = awake(3);
        let [waker, gone, woken] = ids[..] else { unreachable!("three queues") };
        bfq.set_waker(gone, waker);
        bfq.set_waker(woken, gone);
        bfq.release(gone, Nanos(0));
        assert!(!bfq.queue(gone).alive);
        assert_eq!(bfq.queue(waker).waker.woken_last(), None);
        assert_eq!(bfq.queue(woken).waker.waker(), None);
    }

    #[test]
    fn a_queue_given_up_for_another_has_no_waker_any_more_and_wakes_none() {
        let (mut bfq, ids) = awake(4);
        let [waker, woken, from, to] = ids[..] else { unreachable!("four queues") };
        bfq.set_waker(from, waker);
        bfq.set_waker(woken, from);
        for id in [from, to] {
            bfq.queue_mut(id).processes = 1;
            bfq.queue_mut(id).references = 2;
        }
        bfq.queue_mut(from).sharing.redirect(to);
        assert_eq!(bfq.follow(SubmitterId(0), from, Nanos(0)), to);
        assert_eq!((bfq.queue(from).waker.waker(), bfq.queue(woken).waker.waker()), (None, None));
        assert_eq!(bfq.queue(waker).waker.wakes, [to], "it wakes the process there");
    }
}
