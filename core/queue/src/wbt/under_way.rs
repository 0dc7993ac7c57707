//! The throttled writes that are under way, and those of them that count no more because the lane
//! that has them does not turn: a thread that turns its lane itself may be elsewhere for long.
//! Pure: it owns no clock or lock.

use super::TrackedEnds;
use super::throttle::Kind;

/// Throttled writes under way, by kind.
///
/// Nothing says which lane has how many, as a scheduler may hand a write to another. So a lane is
/// *absent* only when writes wait, in a whole window none of their kind has ended, the lane was
/// asked to turn, and it has not in the next window either. Then nothing that was sent counts any
/// more, until each absent lane has turned.
#[derive(Debug, Default)]
pub(super) struct UnderWay {
    /// Those that wait no more and that their submitters have not taken yet.
    granted: [u32; 2],
    sent: [u32; 2],
    /// They were sent, and count no more.
    overdue: [u32; 2],
    /// Kinds of which one has ended in the open window.
    ended: [bool; 2],
    /// Lanes that were asked to turn when the last window ended, a bit each.
    asked: u64,
    absent: u64,
}

/// What the end of a window means for writes that wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Absence {
    /// Other writes count than before.
    pub(super) changed: bool,
    /// Lanes that are to turn, a bit each.
    pub(super) asked: u64,
}

impl UnderWay {
    /// How many of a kind count.
    #[inline]
    pub(super) fn of(&self, kind: Kind) -> u32 {
        self.granted[kind as usize] + self.sent[kind as usize]
    }

    /// How many count for one more of a submitter that feeds this lane: no absent lane has more
    /// than its class may have.
    #[inline]
    pub(super) fn beside(&self, kind: Kind, lane: usize) -> u32 {
        let overdue = if self.is_absent(lane) { self.overdue[kind as usize] } else { 0 };
        self.of(kind) + overdue
    }

    /// Whether any counts.
    pub(super) fn any(&self) -> bool {
        self.granted != [0; 2] || self.sent != [0; 2]
    }

    /// Whether there is none, counted or not.
    pub(super) fn is_empty(&self) -> bool {
        !self.any() && self.overdue == [0; 2]
    }

    #[inline]
    pub(super) fn is_absent(&self, lane: usize) -> bool {
        self.absent >> lane & 1 != 0
    }

    pub(super) fn any_absent(&self) -> bool {
        self.absent != 0
    }

    /// One of a submitter that feeds this lane is sent.
    pub(super) fn send(&mut self, kind: Kind, lane: usize) {
        let counts = if self.is_absent(lane) { &mut self.overdue } else { &mut self.sent };
        counts[kind as usize] += 1;
    }

    /// A submitter is granted one.
    pub(super) fn grant(&mut self, kind: Kind) {
        self.granted[kind as usize] += 1;
    }

    /// So many that were granted are taken, or count no more.
    pub(super) fn take_granted(&mut self, kind: Kind, count: u32) {
        self.granted[kind as usize] -= count;
    }

    pub(super) fn end(&mut self, ends: TrackedEnds) {
        for kind in Kind::ALL {
            let (at, ended) = (kind as usize, ends.ended[kind as usize]);
            let counted = ended.min(self.sent[at]);
            self.sent[at] -= counted;
            let overdue = self.overdue[at].checked_sub(ended - counted);
            self.overdue[at] = overdue.expect("a write ends once");
            self.ended[at] |= ended > 0;
        }
    }

    /// No write waits. If none is under way either, no lane has any.
    pub(super) fn none_waits(&mut self) {
        if self.sent == [0; 2] && self.overdue == [0; 2] {
            self.absent = 0;
        }
    }

    /// A window ends: `waits` says of which kinds writes wait, and `idle` which lanes have not
    /// turned in it.
    pub(super) fn end_window(&mut self, waits: [bool; 2], idle: u64) -> Absence {
        let was_absent = self.absent;
        self.absent &= idle;
        let is_back = was_absent != 0 && self.absent == 0;
        if is_back {
            self.count_again();
        }
        let ended = std::mem::take(&mut self.ended);
        let asked = std::mem::take(&mut self.asked);
        let stalls = waits.into_iter().zip(ended).any(|(waits, ended)| waits && !ended);
        // What absent lanes have does not count: without others it is the device that is slow.
        let candidates = if stalls { idle & !self.absent } else { 0 };
        let gone = candidates & asked;
        if gone == 0 {
            self.asked = candidates;
        } else {
            for (overdue, sent) in self.overdue.iter_mut().zip(&mut self.sent) {
                *overdue += std::mem::take(sent);
            }
            self.absent |= gone;
        }
        // Absent ones again and again: one that turned just when a window ended seems not to have.
        Absence { changed: is_back || gone != 0, asked: self.asked | self.absent }
    }

    fn count_again(&mut self) {
        for (overdue, sent) in self.overdue.iter_mut().zip(&mut self.sent) {
            *sent += std::mem::take(overdue);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITES: [bool; 2] = [true, false];

    fn ends(writes: u32) -> TrackedEnds {
        TrackedEnds { ended: [writes, 0], timed_out: false }
    }

    /// Four writes of lane 0 and one of lane 1.
    fn five() -> UnderWay {
        let mut under_way = UnderWay::default();
        (0..4).for_each(|_| under_way.send(Kind::Write, 0));
        under_way.send(Kind::Write, 1);
        under_way
    }

    /// Windows end in which these lanes do not turn: what was found, and what counts then.
    fn windows(under_way: &mut UnderWay, idle: &[u64]) -> Vec<(bool, u64, u32)> {
        let mut each = |idle: &u64| {
            let Absence { changed, asked } = under_way.end_window(WRITES, *idle);
            (changed, asked, under_way.of(Kind::Write))
        };
        idle.iter().map(&mut each).collect()
    }

    #[test]
    fn a_lane_that_was_asked_and_does_not_turn_in_a_whole_window_is_absent() {
        let mut under_way = five();
        assert_eq!(windows(&mut under_way, &[1, 1]), [(false, 1, 5), (true, 1, 0)]);
        assert!(under_way.is_absent(0) && !under_way.is_absent(1));
        // It is not told twice, and that the device is slow lets no more through.
        under_way.send(Kind::Write, 1);
        assert_eq!(windows(&mut under_way, &[1, 1, 1]), [(false, 1, 1); 3]);
        // Nor does what a submitter gives the absent lane, but for that lane itself.
        under_way.send(Kind::Write, 0);
        assert_eq!(under_way.of(Kind::Write), 1);
        assert_eq!([0, 1].map(|lane| under_way.beside(Kind::Write, lane)), [7, 1]);
        // It is back.
        assert_eq!(windows(&mut under_way, &[2]), [(true, 2, 7)]);
        assert!(!under_way.any_absent());
        under_way.end(ends(7));
        assert!(under_way.is_empty());
    }

    #[test]
    fn what_absent_lanes_have_counts_again_when_all_of_them_have_turned() {
        let mut under_way = five();
        assert_eq!(windows(&mut under_way, &[7, 7]), [(false, 7, 5), (true, 7, 0)]);
        // One after the other, in whichever window.
        assert_eq!(
            windows(&mut under_way, &[5, 3, 4]),
            [(false, 5, 0), (false, 3, 0), (true, 4, 5)]
        );
    }

    #[test]
    fn a_lane_that_turns_when_it_is_asked_is_not_absent() {
        let mut under_way = five();
        let seen = windows(&mut under_way, &[1, 0, 1, 2, 1, 0]);
        assert!(seen.iter().all(|(changed, _, counted)| !changed && *counted == 5), "{seen:?}");
    }

    #[test]
    fn while_writes_end_or_none_waits_no_lane_is_asked() {
        let mut under_way = five();
        for _ in 0..4 {
            under_way.end(ends(1));
            assert_eq!(under_way.end_window(WRITES, 1), Absence::default());
        }
        // An end before the lane was asked is none after.
        assert_eq!(windows(&mut under_way, &[1]), [(false, 1, 1)]);
        under_way.end(ends(1));
        assert_eq!(under_way.end_window(WRITES, 1), Absence::default());
        let mut under_way = five();
        assert_eq!(under_way.end_window([false; 2], 1), Absence::default());
        assert_eq!(under_way.end_window([false; 2], 1), Absence::default());
    }

    #[test]
    fn ends_are_those_of_writes_that_count_before_those_of_others() {
        let mut under_way = five();
        windows(&mut under_way, &[1, 1]);
        (0..2).for_each(|_| under_way.send(Kind::Write, 1));
        under_way.end(ends(3));
        assert_eq!((under_way.of(Kind::Write), under_way.is_empty()), (0, false));
        assert!(under_way.any_absent());
        under_way.none_waits();
        assert!(under_way.any_absent());
        under_way.end(ends(4));
        assert!(under_way.is_empty() && under_way.any_absent());
        under_way.none_waits();
        assert!(!under_way.any_absent());
    }
}
