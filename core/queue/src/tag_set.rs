//! Tags that several lanes share: the lanes of one device, or of all devices behind one adapter.
//!
//! Each lane has a seat in the set, with the call that has it turned. A lane that finds no tag
//! marks itself as waiting and looks once more; the lane that frees one orders that and looks at
//! the marks. As many lanes are told as there are tags, in turn from the seat behind the last one
//! told. A lane that was told has the promise of a tag until its next pass, and the tag is promised
//! to no other.
//!
//! | a lane may have | when |
//! |---|---|
//! | its fair share: ceil(tags / active lanes), at least 4 | no lane waits or has a promise |
//! | its part: floor(tags / active lanes) | lanes wait or have promises |
//! | one in any case | its turn has come |
//!
//! So a lane with more than its part does not take the tag that it has just freed while others
//! wait, and none starves: either all others keep to their parts, which leaves a tag, or what they
//! free goes to lanes in turn. A lane whose turn has come and that leaves tags tells the next.
//!
//! A lane that holds all it may take waits for nothing that others free: its own answers turn it.
//! It is also told when the number of active lanes falls.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_ring::sync::{Ordering, fence};
use weir_ring::{Counter, PendingBits, SharedCounter, TagWords, Wake};

use crate::grown::Grown;

/// The least share a lane of a shared set is always allowed (docs/behaviour/block-layer.md, section
/// 7.5).
const FAIR_SHARE_FLOOR: u16 = 4;

/// Lanes of a set.
pub(crate) const SEATS_MAX: usize = PendingBits::SOURCES_MAX;

/// Seats that are made with the set.
const SEATS_FIRST: u16 = 64;

/// Lanes at their fair share that are told when a lane becomes inactive: each of them is allowed
/// little more, and each lane that becomes inactive tells some.
const TOLD_OF_SHARE: usize = 8;

/// Tags several lanes share: the lanes of one device, or of several disks behind one adapter. A
/// driver names it in [`Driver::tag_set`](crate::Driver::tag_set).
pub struct TagSet {
    words: TagWords,
    reserved: u16,
    /// Lanes that hold a tag or wait for one.
    active: SharedCounter,
    /// Tags that drivers keep beyond their requests' time.
    lost: SharedCounter,
    /// Lanes that found no tag, by seat.
    waiting: Turns,
    /// Lanes that have all they may and want more, by seat.
    sated: Turns,
    /// Lanes that found no reserved tag, by seat.
    waiting_reserved: Turns,
    /// Lanes that were told of a tag and have not had their pass since, by seat. Written under the
    /// seat's lock, but for the lane's own taking.
    promised: PendingBits,
    /// How many they are.
    promises: SharedCounter,
    seats: Grown<Mutex<Option<Arc<dyn Wake>>>>,
    places: Mutex<Places>,
}

/// Lanes that are to be told in turn.
struct Turns {
    marks: PendingBits,
    /// The seat behind the last one told. Two lanes that tell at once may both write it: then a
    /// turn begins at either.
    next: Counter,
}

/// Which seats are taken.
#[derive(Default)]
struct Places {
    used: u16,
    free: Vec<u16>,
}

impl std::fmt::Debug for TagSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (depth, reserved, out) = (self.depth(), self.reserved, self.out());
        write!(f, "TagSet({depth} tags, {reserved} reserved, {out} out)")
    }
}

impl TagSet {
    /// `depth` tags, the first `reserved` of them for reserved requests.
    ///
    /// # Panics
    /// When no ordinary tag would be left.
    #[must_use]
    pub fn new(depth: u16, reserved: u16) -> Arc<TagSet> {
        assert!(reserved < depth, "{reserved} reserved tags leave none of {depth}");
        Arc::new(TagSet {
            words: TagWords::new(depth),
            reserved,
            active: SharedCounter::default(),
            lost: SharedCounter::default(),
            waiting: Turns::new(),
            sated: Turns::new(),
            waiting_reserved: Turns::new(),
            promised: PendingBits::new(SEATS_MAX),
            promises: SharedCounter::default(),
            seats: Grown::new(SEATS_FIRST, SEATS_MAX as u16),
            places: Mutex::default(),
        })
    }

    /// Tags in all.
    #[must_use]
    pub fn depth(&self) -> u16 {
        self.words.depth()
    }

    /// Those among them that are for reserved requests.
    #[must_use]
    pub fn reserved(&self) -> u16 {
        self.reserved
    }

    /// Tags that are out.
    #[must_use]
    pub fn out(&self) -> u32 {
        self.words.out()
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        // Nothing panics under the lock, so nothing is half done.
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn seat(&self, seat: u16) -> MutexGuard<'_, Option<Arc<dyn Wake>>> {
        self.seats[usize::from(seat)].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A seat for a lane that `wake` has turned.
    fn join(&self, wake: Arc<dyn Wake>) -> Option<u16> {
        let mut places = self.places();
        let seat = match places.free.pop() {
            Some(seat) => seat,
            None if usize::from(places.used) == SEATS_MAX => return None,
            None => {
                places.used += 1;
                places.used - 1
            }
        };
        *self.seat(seat) = Some(wake);
        Some(seat)
    }

    fn leave(&self, seat: u16) {
        drop(self.seat(seat).take());
        self.waiting.marks.clear(usize::from(seat));
        self.sated.marks.clear(usize::from(seat));
        self.waiting_reserved.marks.clear(usize::from(seat));
        self.take_promise(seat);
        self.places().free.push(seat);
    }

    /// Has the lane on this seat turned; false if there is none any more.
    fn ring(&self, seat: usize) -> bool {
        // Not under the lock: the call may drop the last of a device, whose lanes leave.
        let wake = self.seat(seat as u16).clone();
        wake.as_ref().inspect(|wake| wake.wake()).is_some()
    }

    /// Promises a tag to the lane on this seat and has it turned; false if there is none any more.
    fn promise(&self, seat: usize) -> bool {
        let lane = self.seat(seat as u16);
        // A lane that leaves empties its seat first, so that no promise stays behind.
        if lane.is_some() && !self.promised.has(seat) {
            self.promises.next();
            self.promised.mark(seat);
        }
        drop(lane);
        self.ring(seat)
    }

    /// The pass of the lane on this seat has come; whether a tag was promised to it.
    fn take_promise(&self, seat: u16) -> bool {
        let seat = usize::from(seat);
        let promised = self.promised.has(seat) && self.promised.clear(seat);
        if promised {
            self.promises.down();
        }
        promised
    }

    /// Whether lanes wait for tags, or for the pass in which they take what was promised.
    fn is_waited_for(&self) -> bool {
        self.waiting.marks.any() || self.promises.read() > 0
    }

    /// Tells lanes that wait of tags `within` a range that are promised to none.
    fn tell_of_tags(&self, within: &Range<u16>) {
        loop {
            // A lane that found no mark while this one took some relies on this second look.
            fence(Ordering::SeqCst);
            let promises = self.promises.read() as usize;
            let free = self.words.free_within(within) as usize;
            if self.waiting.take(free.saturating_sub(promises), |seat| self.promise(seat)) == 0 {
                return;
            }
        }
    }
}

impl Turns {
    fn new() -> Turns {
        Turns { marks: PendingBits::new(SEATS_MAX), next: Counter::new(0) }
    }

    fn take(&self, max: usize, mut visit: impl FnMut(usize) -> bool) -> usize {
        if max == 0 || !self.marks.any() {
            return 0;
        }
        self.marks.take_some(self.next.read() as usize, max, |seat| {
            self.next.set((seat as u64 + 1) % SEATS_MAX as u64);
            visit(seat)
        })
    }
}

/// A lane's part in a shared set.
#[derive(Debug)]
pub(crate) struct Share {
    set: Arc<TagSet>,
    seat: u16,
    /// The set is one device's: its lanes take tags below `end`, and one more for each that is
    /// lost. Of a set of several devices a lane takes any, but so many at most.
    alone: bool,
    end: u16,
    /// Taken for this pass and not handed out yet.
    spare: Vec<u16>,
    /// Without those that were lost.
    out: u16,
    lost: Vec<u16>,
    active: bool,
    /// Marked among those that wait, and not seen to be told since.
    waits: bool,
    /// It was told: its turn lasts until the end of the pass.
    told: bool,
    /// As many tags as it had then, and one.
    turn_end: u16,
    /// It asked for tags in this pass.
    asked: bool,
    /// Tags came or went in this pass, so that others may find what they missed before.
    moved: bool,
    /// A lane became inactive.
    rests: bool,
    /// A tag was lost: if it was the last, lanes that wait have to see to their requests' time.
    alarms: bool,
    /// A reserved tag came back.
    freed_reserved: bool,
}

impl Share {
    /// The part of a lane that `wake` has turned; `alone`: all lanes of the set are one device's.
    /// `None`: no seat is left.
    pub(crate) fn new(set: Arc<TagSet>, alone: bool, wake: Arc<dyn Wake>) -> Option<Share> {
        Some(Share {
            seat: set.join(wake)?,
            end: set.depth(),
            set,
            alone,
            spare: Vec::new(),
            out: 0,
            lost: Vec::new(),
            active: false,
            waits: false,
            told: false,
            turn_end: 0,
            asked: false,
            moved: false,
            rests: false,
            alarms: false,
            freed_reserved: false,
        })
    }

    pub(crate) fn bound(&mut self, end: u16) {
        self.end = end.min(self.set.depth());
    }

    /// Tags that ordinary requests may have.
    fn usable(&self) -> u16 {
        self.end.saturating_sub(self.set.reserved)
    }

    /// The tags it may take now.
    fn within(&self) -> Range<u16> {
        let depth = self.set.depth();
        let end = match self.alone {
            true => u64::from(self.end) + self.set.lost.read(),
            false => u64::from(depth),
        };
        self.set.reserved..end.min(u64::from(depth)) as u16
    }

    /// Most tags that it may hold now.
    fn most(&self) -> u16 {
        let all = self.set.depth() - self.set.reserved;
        let of = if self.alone { self.usable() } else { all };
        let share = match self.set.active.read().min(u64::from(u16::MAX)) as u16 {
            0 | 1 => of,
            users if self.told || self.set.is_waited_for() => {
                let turn = if self.told { self.turn_end } else { 0 };
                turn.max(of / users)
            }
            users => of.div_ceil(users).max(FAIR_SHARE_FLOOR),
        };
        share.min(self.usable())
    }

    fn allowed(&self) -> usize {
        usize::from(self.most().saturating_sub(self.out))
    }

    /// How many requests a scheduler is to pick at most. One is picked although there is no tag for
    /// it: it marks the lane as waiting.
    pub(crate) fn room(&self) -> usize {
        if usize::from(self.usable()) <= usize::from(self.out) {
            return 0;
        }
        let free = self.set.words.free_within(&self.within()) as usize + self.spare.len();
        self.allowed().min(free).max(1)
    }

    pub(crate) fn are_lost(&self) -> bool {
        let usable = self.set.depth() - self.set.reserved;
        self.set.lost.read() >= u64::from(usable)
    }

    /// Whether drivers keep tags beyond their time, of this lane or of others.
    pub(crate) fn are_short(&self) -> bool {
        self.set.lost.read() > 0
    }

    pub(crate) fn take(&mut self) -> Option<u16> {
        if self.spare.is_empty() && self.secure(1) == 0 {
            return None;
        }
        let tag = self.spare.pop()?;
        self.out += 1;
        Some(tag)
    }

    /// Holds up to `wanted` tags ready. Those not taken are to be released before the pass ends:
    /// another lane may want them.
    pub(crate) fn secure(&mut self, wanted: usize) -> usize {
        if wanted == 0 {
            return 0;
        }
        self.asked = true;
        if !self.active {
            self.active = true;
            self.set.active.next();
        }
        self.look_whether_told();
        if self.fill(wanted) == 0 {
            self.wait(wanted);
        }
        self.spare.len().min(wanted)
    }

    /// No tag was found: this lane is told when there is one. It says that it waits, then looks
    /// once more: either the lane that frees one sees the mark, or this one sees the tag.
    fn wait(&mut self, wanted: usize) {
        let seat = usize::from(self.seat);
        let turn = self.told;
        if self.out > 0 && self.allowed() == 0 {
            // Its own answers turn it, and a lane that becomes inactive.
            self.set.sated.marks.mark(seat);
            self.fill(wanted);
            return;
        }
        let first = turn || !self.set.is_waited_for();
        self.set.waiting.marks.mark(seat);
        self.waits = true;
        if !first {
            // Others come first. If there are tags for all, they are told at the end of the pass.
            self.moved = true;
            return;
        }
        self.begin_turn();
        if self.fill(wanted) > 0 {
            // If the mark has gone, the lane that took it told this one instead of another.
            self.waits = false;
            self.moved |= !self.set.waiting.marks.clear(seat);
        }
        self.told = turn;
    }

    fn fill(&mut self, wanted: usize) -> usize {
        let wanted = wanted.min(self.allowed());
        if self.spare.len() < wanted {
            let missing = wanted - self.spare.len();
            let hint = usize::from(self.seat) % self.set.words.words();
            let taken = self.set.words.take(hint, missing, &self.within(), &mut self.spare);
            self.moved |= taken > 0;
        }
        self.spare.len().min(wanted)
    }

    fn look_whether_told(&mut self) {
        let promised = self.set.take_promise(self.seat);
        if self.waits && (promised || !self.set.waiting.marks.has(usize::from(self.seat))) {
            if promised {
                // It may have marked itself again since.
                self.set.waiting.marks.clear(usize::from(self.seat));
            }
            self.waits = false;
            self.begin_turn();
        } else if promised {
            // It waits no longer: what was promised is the next lane's.
            self.moved = true;
        }
    }

    fn begin_turn(&mut self) {
        (self.told, self.turn_end) = (true, self.out + 1);
    }

    /// A reserved tag. Without one the lane is told when one comes back.
    pub(crate) fn take_reserved(&mut self) -> Option<u16> {
        let Share { set, seat, .. } = self;
        set.words.take_reserved(set.reserved).or_else(|| {
            set.waiting_reserved.marks.mark(usize::from(*seat));
            set.words.take_reserved(set.reserved)
        })
    }

    pub(crate) fn give(&mut self, tag: u16) {
        if tag < self.set.reserved {
            self.set.words.free(tag);
            self.freed_reserved = true;
            return;
        }
        self.out -= 1;
        self.moved = true;
        self.set.words.free(tag);
    }

    pub(crate) fn lose(&mut self, tag: u16) {
        if tag < self.set.reserved {
            return self.lost.push(tag);
        }
        self.out -= 1;
        self.lost.push(tag);
        self.set.lost.next();
        // Another tag takes its place.
        (self.moved, self.alarms) = (true, true);
    }

    pub(crate) fn give_lost(&mut self, tag: u16) {
        self.lost.retain(|lost| *lost != tag);
        if tag < self.set.reserved {
            return self.give(tag);
        }
        self.out += 1;
        self.set.lost.down();
        self.give(tag);
    }

    /// What was secured and not taken goes back, and a lane that holds nothing and waits for
    /// nothing counts no longer against the others' share. True when others are to be
    /// [told](Share::tell). (A lane that only missed tags itself has nothing to tell: two such
    /// would wake each other for ever.)
    pub(crate) fn end_pass(&mut self) -> bool {
        self.release();
        self.look_whether_told();
        if self.waits && !std::mem::take(&mut self.asked) {
            // It wants none any more. If its mark has gone just now, its turn goes to the next.
            self.moved |= !self.set.waiting.marks.clear(usize::from(self.seat));
            self.waits = false;
        }
        self.asked = false;
        self.rest();
        let passes_on = std::mem::take(&mut self.told);
        self.moved |= passes_on;
        if !self.moved && !self.rests && !self.freed_reserved {
            return false;
        }
        // Pairs with the memory fence of a lane that marks itself: it finds what came back, or this
        // sees its mark.
        fence(Ordering::SeqCst);
        self.freed_reserved
            || self.set.waiting.marks.any()
            || self.rests && self.set.sated.marks.any()
            || self.forget()
    }

    /// There is nothing to tell.
    fn forget(&mut self) -> bool {
        (self.moved, self.rests, self.alarms) = (false, false, false);
        false
    }

    fn release(&mut self) {
        for tag in self.spare.drain(..) {
            self.set.words.free(tag);
        }
    }

    fn rest(&mut self) {
        if self.active && self.out == 0 && !self.waits {
            self.active = false;
            self.set.active.down();
            self.rests = true;
        }
    }

    /// Has lanes look again that may find what they missed.
    #[cold]
    pub(crate) fn tell(&mut self) {
        if std::mem::take(&mut self.rests) {
            let Share { set, .. } = self;
            set.sated.take(TOLD_OF_SHARE, |seat| set.ring(seat));
        }
        if std::mem::take(&mut self.freed_reserved) {
            self.set.waiting_reserved.take(usize::MAX, |seat| self.set.ring(seat));
        }
        if std::mem::take(&mut self.alarms) {
            self.set.waiting.take(usize::MAX, |seat| self.set.ring(seat));
        }
        if std::mem::take(&mut self.moved) {
            self.set.tell_of_tags(&self.within());
        }
    }
}

/// The lane closes. What its driver had comes back with the driver, which is gone.
impl Drop for Share {
    fn drop(&mut self) {
        self.release();
        for tag in std::mem::take(&mut self.lost) {
            if tag >= self.set.reserved {
                self.set.lost.down();
            }
            self.set.words.free(tag);
        }
        if self.active {
            self.set.active.down();
        }
        self.set.leave(self.seat);
        // Its turn may have come, and others may be allowed more.
        (self.moved, self.rests, self.freed_reserved) = (true, true, true);
        self.tell();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    /// Counts how often a lane is turned for tags.
    #[derive(Default)]
    struct Noted(AtomicUsize);

    impl Wake for Noted {
        fn wake(&self) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    /// A lane of the set, and the tags it holds.
    struct Seated {
        share: Share,
        noted: Arc<Noted>,
        held: Vec<u16>,
    }

    impl Seated {
        fn of(set: &Arc<TagSet>, alone: bool) -> Seated {
            let noted = Arc::new(Noted::default());
            let share = Share::new(Arc::clone(set), alone, Arc::clone(&noted) as Arc<dyn Wake>);
            Seated { share: share.expect("a seat"), noted, held: Vec::new() }
        }

        /// One pass that wants so many; how many it got.
        fn pass(&mut self, wanted: usize) -> usize {
            let mut got = 0;
            while got < wanted {
                let secured = self.share.secure(wanted - got);
                if secured == 0 {
                    break;
                }
                self.held.extend((0..secured).map(|_| self.share.take().expect("secured")));
                got += secured;
            }
            self.rest();
            got
        }

        fn rest(&mut self) {
            if self.share.end_pass() {
                self.share.tell();
            }
        }

        /// A pass that gives so many back and wants so many.
        fn step(&mut self, back: usize, wanted: usize) -> usize {
            self.held.drain(..back).for_each(|tag| self.share.give(tag));
            self.pass(wanted)
        }

        fn told(&self) -> usize {
            self.noted.0.swap(0, SeqCst)
        }
    }

    fn lanes<const N: usize>(set: &Arc<TagSet>) -> [Seated; N] {
        std::array::from_fn(|_| Seated::of(set, false))
    }

    #[test]
    fn a_lane_of_a_set_gets_its_fair_share_while_another_is_active() {
        let set = TagSet::new(16, 0);
        let [mut a, mut b] = lanes(&set);
        b.pass(1);
        assert_eq!((a.pass(99), a.told()), (8, 0), "at its share it waits for none");
        b.step(1, 0);
        assert_eq!(a.told(), 1, "no other lane is active any more");
        assert_eq!(a.pass(99), 8);
    }

    #[test]
    fn the_lane_that_frees_a_tag_tells_the_one_that_waits_and_does_not_take_it_again() {
        let set = TagSet::new(4, 0);
        let [mut a, mut b] = lanes(&set);
        assert_eq!((a.pass(9), b.pass(9)), (4, 0));
        assert_eq!(a.step(1, 9), 0, "b waits, and this one has more than its part");
        assert_eq!((a.told(), b.told()), (0, 1));
        assert_eq!(b.pass(9), 1);
        assert_eq!(a.step(2, 9), 1, "below its part, which is two of four, it need not wait");
        assert_eq!((b.told(), b.pass(9)), (1, 1));
    }

    #[test]
    fn more_lanes_than_tags_get_one_after_the_other() {
        let set = TagSet::new(2, 0);
        let mut lanes: [Seated; 7] = lanes(&set);
        let mut served = [0; 7];
        for lane in &mut lanes {
            lane.pass(2);
        }
        for _ in 0..700 {
            // In the order of a home's list, which must not decide.
            for (n, lane) in lanes.iter_mut().enumerate() {
                if lane.told() > 0 || !lane.held.is_empty() {
                    served[n] += lane.step(lane.held.len(), 2);
                }
            }
        }
        let mean = served.iter().sum::<usize>() / 7;
        assert!(mean >= 100 && served.iter().all(|count| count.abs_diff(mean) <= 5), "{served:?}");
    }

    #[test]
    fn a_tag_that_is_promised_goes_to_no_lane_that_asks_before() {
        let set = TagSet::new(1, 0);
        let [mut a, mut b, mut c] = lanes(&set);
        assert_eq!((a.pass(1), b.pass(1), c.pass(1)), (1, 0, 0));
        a.step(1, 0);
        // As submitters turn a single queue: many passes before the one that was ordered.
        for _ in 0..5 {
            assert_eq!((c.pass(1), a.pass(1)), (0, 0));
            assert_eq!((a.told(), c.told()), (0, 0), "there is one tag, and it is promised");
        }
        assert_eq!((b.told(), b.pass(1)), (1, 1));
        assert_eq!((b.step(1, 1), c.told(), c.pass(1)), (0, 1, 1));
    }

    #[test]
    fn a_promise_that_comes_too_late_or_to_a_lane_that_goes_is_the_next_lanes() {
        let set = TagSet::new(1, 0);
        let [mut a, mut b, mut c] = lanes(&set);
        assert_eq!((a.pass(1), b.pass(1), c.pass(1)), (1, 0, 0));
        a.step(1, 0);
        assert_eq!((b.told(), c.told()), (1, 0));
        drop(b);
        assert_eq!((c.told(), c.pass(1)), (1, 1));
        // One that gave up waiting in the moment in which it was told.
        assert_eq!(a.pass(1), 0);
        c.step(1, 0);
        a.share.waits = false;
        assert_eq!(c.pass(1), 0, "it is promised to the other");
        a.rest();
        assert_eq!((a.told(), c.told(), c.pass(1)), (1, 1, 1));
        assert_eq!(set.promises.read(), 0);
    }

    #[test]
    fn a_lane_that_is_told_and_wants_none_any_more_tells_the_next() {
        let set = TagSet::new(1, 0);
        let [mut a, mut b, mut c] = lanes(&set);
        assert_eq!((a.pass(1), b.pass(1), c.pass(1)), (1, 0, 0));
        a.step(1, 0);
        assert_eq!((b.told(), c.told()), (1, 0), "one tag, one lane");
        b.rest();
        assert_eq!((c.told(), c.pass(1)), (1, 1));
    }

    #[test]
    fn a_lane_that_gave_up_waiting_is_not_told() {
        let set = TagSet::new(1, 0);
        let [mut a, mut b, mut c] = lanes(&set);
        assert_eq!((a.pass(1), b.pass(1)), (1, 0));
        b.rest();
        assert_eq!(c.pass(1), 0);
        a.step(1, 0);
        assert_eq!((b.told(), c.told()), (0, 1));
    }

    #[test]
    fn lanes_that_wait_and_find_nothing_do_not_tell_each_other() {
        let set = TagSet::new(1, 0);
        let [mut a, mut b, mut c] = lanes(&set);
        a.pass(1);
        for _ in 0..5 {
            assert_eq!((b.pass(1), c.pass(1)), (0, 0));
            assert_eq!((a.told(), b.told(), c.told()), (0, 0, 0));
        }
    }

    #[test]
    fn a_lane_that_closes_passes_its_turn_on_and_takes_its_lost_tags_with_it() {
        let set = TagSet::new(2, 0);
        let [mut a, mut b, mut c] = lanes(&set);
        assert_eq!((a.pass(2), b.pass(1), c.pass(1)), (2, 0, 0));
        let lost = a.held.pop().expect("two");
        a.share.lose(lost);
        a.rest();
        assert_eq!((b.told(), c.told(), set.out()), (1, 1, 2), "the driver has it still");
        assert_eq!((b.pass(1), c.pass(1)), (0, 0));
        a.step(1, 0);
        assert_eq!((b.told(), c.told()), (1, 0));
        drop(b);
        assert_eq!(c.told(), 1, "its turn is the next one's");
        drop(a);
        assert_eq!((set.out(), set.active.read(), set.lost.read()), (0, 1, 0));
        assert_eq!(c.pass(2), 2);
        let mut again = Seated::of(&set, false);
        assert_eq!((again.share.seat, again.pass(1)), (0, 0), "a seat is used again");
    }

    #[test]
    fn every_lane_that_waits_hears_of_a_tag_that_is_lost() {
        let set = TagSet::new(1, 0);
        let [mut a, mut b, mut c] = lanes(&set);
        assert_eq!((a.pass(1), b.pass(1), c.pass(1)), (1, 0, 0));
        let lost = a.held.pop().expect("one");
        a.share.lose(lost);
        a.rest();
        assert_eq!((b.told(), c.told(), b.share.are_lost()), (1, 1, true));
    }

    #[test]
    fn a_set_has_so_many_seats_and_says_so() {
        let set = TagSet::new(8, 0);
        let seated: Vec<_> = (0..SEATS_MAX).map(|_| Seated::of(&set, false)).collect();
        assert!(Share::new(Arc::clone(&set), false, Arc::new(Noted::default())).is_none());
        drop(seated);
        assert_eq!(Seated::of(&set, false).pass(8), 8);
    }

    #[test]
    fn lanes_of_one_device_stay_below_its_bound_together() {
        let set = TagSet::new(16, 2);
        let [mut a, mut b] = [0, 1].map(|_| Seated::of(&set, true));
        [&mut a, &mut b].into_iter().for_each(|lane| lane.share.bound(6));
        a.pass(9);
        b.pass(9);
        let mut held = [a.held.clone(), b.held.clone()].concat();
        held.sort_unstable();
        assert_eq!(held, [2, 3, 4, 5]);
        let lost = a.held.pop().expect("one");
        a.share.lose(lost);
        a.rest();
        assert_eq!(a.pass(9) + b.pass(9), 1, "another in its place");
    }

    #[test]
    fn a_bound_of_one_device_among_several_is_a_number_of_tags_whichever_they_are() {
        let set = TagSet::new(16, 2);
        let [mut a, mut b] = lanes(&set);
        b.share.bound(6);
        assert_eq!((a.pass(5), b.pass(99)), (5, 4), "the low ones are taken");
        b.step(4, 0);
        b.share.bound(u16::MAX);
        assert_eq!(b.pass(99), 7);
    }

    #[test]
    fn a_scheduler_is_asked_for_as_many_as_there_are_tags_and_for_one_beside() {
        let set = TagSet::new(8, 0);
        let [mut a, b] = lanes(&set);
        a.pass(6);
        assert_eq!((a.share.room(), b.share.room()), (2, 2));
        a.pass(2);
        assert_eq!((a.share.room(), b.share.room()), (0, 1), "one shows that the lane waits");
    }
}
