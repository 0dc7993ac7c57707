//! How many writes the write-back throttle lets through: the scale of its limits, and the verdict
//! of each window (docs/behaviour/block-layer.md, section 16). Pure: it owns no clock, counter or
//! lock.

use weir_bio::{Bio, Flags, Op};

/// A window while nothing is throttled beyond the first step, ns.
const WINDOW_NS: u64 = 100_000_000;

/// Writes under way at step 0, if the device takes so many.
const DEPTH: u32 = 16;

/// Reads and writes that have to end in a window for a verdict on the reads' latency.
const READS_MIN: u64 = 1;
const WRITES_MIN: u64 = 3;

/// Windows without a verdict after which the scale goes a step towards 0.
const UNKNOWN_MAX: u32 = 5;

/// The kinds of writes that are counted apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Write = 0,
    Discard = 1,
}

impl Kind {
    pub(crate) const ALL: [Kind; 2] = [Kind::Write, Kind::Discard];

    /// The kind of a bio; `None` for one that is not throttled. A direct write is not: its
    /// submitter waits for it. Nor is a flush, which has no data.
    pub(crate) fn of(bio: &Bio) -> Option<Kind> {
        match bio.op {
            Op::Write if bio.sectors > 0 && !bio.flags.has(DIRECT) => Some(Kind::Write),
            Op::Discard => Some(Kind::Discard),
            _ => None,
        }
    }
}

/// The flags that direct writes have.
pub(crate) const DIRECT: Flags = Flags::SYNC.with(Flags::IDLE);

/// The limit that holds for a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Its submitter waits, or it is metadata: all there is.
    Most,
    /// As much as other I/O leaves: less while there is any.
    Normal,
    Background,
}

impl Class {
    pub(crate) fn of(bio: &Bio) -> Class {
        if bio.op == Op::Discard {
            Class::Background
        } else if bio.flags.any(Flags::SYNC | Flags::META | Flags::PRIO) {
            Class::Most
        } else if bio.flags.has(Flags::BACKGROUND) {
            Class::Background
        } else {
            Class::Normal
        }
    }
}

/// What was seen in a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Window {
    /// Reads that ended, and the shortest time that one of them was with the driver, ns.
    pub(crate) reads: u64,
    pub(crate) read_min_ns: u64,
    /// Writes that ended, throttled or not.
    pub(crate) writes: u64,
    /// How long the oldest read that has not ended has been with the driver, ns; 0 without one.
    pub(crate) read_oldest_ns: u64,
    /// Throttled writes are under way.
    pub(crate) writes_on: bool,
}

/// What a window says of the reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// They take too long.
    Exceeded,
    /// They do not.
    Met,
    /// There are too few for a word, but writes.
    OnlyWrites,
    Unknown,
}

/// The scale of the limits.
#[derive(Clone, Debug)]
pub(crate) struct Throttle {
    /// The latency that reads are to have at most, ns; 0: nothing is throttled.
    target_ns: u64,
    /// Tags of the device.
    depth: u32,
    /// Above 0 fewer writes than at first are let through, below it more.
    step: i32,
    /// Writes let through at most.
    most: u32,
    /// There cannot be more.
    capped: bool,
    unknown: u32,
}

impl Throttle {
    /// Of a device with so many tags, before its first window.
    pub(crate) fn new(target_ns: u64, depth: u16) -> Throttle {
        let depth = u32::from(depth);
        let (most, capped) = depth_at(0, depth);
        Throttle { target_ns, depth, step: 0, most, capped, unknown: 0 }
    }

    pub(crate) fn target_ns(&self) -> u64 {
        self.target_ns
    }

    /// Whether it goes on although no write is under way.
    pub(crate) fn is_scaled(&self) -> bool {
        self.step != 0
    }

    /// How long the next window lasts, ns.
    pub(crate) fn window_ns(&self) -> u64 {
        match u64::try_from(self.step) {
            Ok(step) => (WINDOW_NS * WINDOW_NS / (step + 1)).isqrt(),
            Err(_) => WINDOW_NS,
        }
    }

    /// How many writes of its class may be under way before another is let through.
    pub(crate) fn limit(&self, class: Class) -> u32 {
        match class {
            _ if self.target_ns == 0 => 0,
            Class::Most => self.most,
            Class::Normal if self.most <= 2 => self.most,
            Class::Normal => self.most.div_ceil(2),
            Class::Background if self.most <= 2 => 1,
            Class::Background => self.most.div_ceil(4),
        }
    }

    /// Whether those that wait are let go on when so many of their kind are under way: not for
    /// each that ends, but for some at once, and on a device with a volatile cache when it has
    /// taken all.
    pub(crate) fn wakes(&self, kind: Kind, under_way: u32, volatile: bool) -> bool {
        let background = self.limit(Class::Background);
        let limit = match kind {
            Kind::Discard => background,
            Kind::Write if volatile => 0,
            Kind::Write => self.limit(Class::Normal),
        };
        under_way == 0 || under_way < limit && limit - under_way >= background / 2
    }

    /// Judges a window that ends.
    pub(crate) fn judge(&self, window: &Window) -> Verdict {
        let oldest = window.read_oldest_ns;
        let stands_still = window.reads == 0 && oldest > self.target_ns;
        if oldest > self.window_ns() || stands_still {
            Verdict::Exceeded
        } else if window.reads >= READS_MIN && window.writes >= WRITES_MIN {
            let exceeds = window.read_min_ns > self.target_ns;
            if exceeds { Verdict::Exceeded } else { Verdict::Met }
        } else if window.writes > 0 || window.writes_on {
            Verdict::OnlyWrites
        } else {
            Verdict::Unknown
        }
    }

    /// Changes the limits as a verdict says; whether more is let through than before.
    pub(crate) fn apply(&mut self, verdict: Verdict) -> bool {
        let before = self.most;
        match verdict {
            Verdict::Exceeded if self.step < 0 => self.scale(0),
            Verdict::Exceeded if self.most > 1 => self.scale(self.step + 1),
            Verdict::Exceeded => self.unknown = 0,
            Verdict::Met | Verdict::OnlyWrites if self.capped => self.unknown = 0,
            Verdict::Met | Verdict::OnlyWrites => self.scale(self.step - 1),
            Verdict::Unknown => {
                self.unknown += 1;
                if self.unknown >= UNKNOWN_MAX {
                    self.scale(self.step - self.step.signum());
                }
            }
        }
        self.most > before
    }

    fn scale(&mut self, step: i32) {
        (self.step, self.unknown) = (step, 0);
        (self.most, self.capped) = depth_at(step, self.depth);
    }
}

/// How many writes are let through at a step, on a device of so many tags, and whether that is all
/// there can be.
fn depth_at(step: i32, depth: u32) -> (u32, bool) {
    if depth <= 1 {
        // One in the device, and one that is there when it ends.
        return if step > 0 { (1, false) } else { (2, true) };
    }
    let base = DEPTH.min(depth);
    if step >= 0 {
        return (1 + ((base - 1) >> step.min(31)), false);
    }
    let most = 1 + ((base - 1) << step.unsigned_abs().min(16));
    let cap = (depth * 3 / 4).max(1);
    (most.min(cap), most >= cap)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const TARGET: u64 = 2 * MS;

    fn limits(throttle: &Throttle) -> [u32; 3] {
        [Class::Most, Class::Normal, Class::Background].map(|class| throttle.limit(class))
    }

    #[test]
    fn the_limits_of_each_step_follow_from_the_tags() {
        // Tags; step; most, normal, background; capped.
        let table: &[(u16, i32, [u32; 3], bool)] = &[
            (128, 0, [16, 8, 4], false), // As Linux 6.18 shows of a loop device.
            (128, 1, [8, 4, 2], false),
            (128, 2, [4, 2, 1], false),
            (128, 3, [2, 2, 1], false),
            (128, 4, [1, 1, 1], false),
            (128, 40, [1, 1, 1], false),
            (128, -1, [31, 16, 8], false),
            (128, -2, [61, 31, 16], false),
            (128, -3, [96, 48, 24], true),
            (128, -30, [96, 48, 24], true),
            (10_000, -9, [7_500, 3_750, 1_875], true),
            (64, -2, [48, 24, 12], true),
            (16, -1, [12, 6, 3], true),
            (4, 0, [4, 2, 1], false),
            (4, 1, [2, 2, 1], false),
            (4, -1, [3, 2, 1], true),
            (2, 0, [2, 2, 1], false),
            (2, -1, [1, 1, 1], true),
            (1, 0, [2, 2, 1], true),
            (1, 1, [1, 1, 1], false),
            (1, -1, [2, 2, 1], true),
        ];
        for (depth, step, expected, capped) in table {
            let mut throttle = Throttle::new(TARGET, *depth);
            throttle.scale(*step);
            assert_eq!(limits(&throttle), *expected, "{depth} tags, step {step}");
            assert_eq!(throttle.capped, *capped, "{depth} tags, step {step}");
        }
        assert_eq!(limits(&Throttle::new(0, 128)), [0; 3], "no target, no limit");
    }

    #[test]
    fn a_window_is_judged_by_its_oldest_read_then_by_its_shortest() {
        use Verdict::{Exceeded, Met, OnlyWrites, Unknown};
        // Reads and the shortest; writes; the oldest read under way; writes under way.
        let table: &[(u64, u64, u64, u64, bool, Verdict)] = &[
            (0, 0, 0, 0, false, Unknown),
            (9, 9 * TARGET, 0, 0, false, Unknown),
            (9, 9 * TARGET, 2, 0, true, OnlyWrites),
            (9, 9 * TARGET, 3, 0, true, Exceeded),
            (1, TARGET + 1, 3, 0, true, Exceeded),
            (1, TARGET, 3, 0, true, Met),
            (0, 0, 3, 0, false, OnlyWrites),
            (0, 0, 0, 0, true, OnlyWrites),
            (0, 0, 1, 0, false, OnlyWrites),
            (0, 0, 0, TARGET + 1, false, Exceeded),
            (0, 0, 9, TARGET, true, OnlyWrites),
            (1, TARGET, 3, TARGET + 1, true, Met),
            (1, TARGET, 3, WINDOW_NS, true, Met),
            (1, TARGET, 3, WINDOW_NS + 1, true, Exceeded),
        ];
        let throttle = Throttle::new(TARGET, 128);
        for (reads, read_min_ns, writes, read_oldest_ns, writes_on, expected) in table {
            let window = Window {
                reads: *reads,
                read_min_ns: *read_min_ns,
                writes: *writes,
                read_oldest_ns: *read_oldest_ns,
                writes_on: *writes_on,
            };
            assert_eq!(throttle.judge(&window), *expected, "{window:?}");
        }
        let mut shorter = throttle;
        shorter.scale(3);
        let window = Window { reads: 1, writes: 3, read_oldest_ns: 50 * MS, ..Window::default() };
        assert_eq!(shorter.judge(&window), Met, "as old as the window");
        let older = Window { read_oldest_ns: 50 * MS + 1, ..window };
        assert_eq!(shorter.judge(&older), Exceeded, "the window is that of the step");
    }

    #[test]
    fn the_scale_goes_step_by_step_and_stops_at_both_ends() {
        use Verdict::{Exceeded, Met, OnlyWrites, Unknown};
        // What came, how often; the step and the limit afterwards; whether it grew at last.
        let table: &[(Verdict, u32, i32, u32, bool)] = &[
            (Exceeded, 1, 1, 8, false),
            (Exceeded, 3, 4, 1, false),
            (Exceeded, 5, 4, 1, false),
            (Met, 1, 3, 2, true),
            (OnlyWrites, 1, 2, 4, true),
            (Unknown, 4, 2, 4, false),
            (Unknown, 1, 1, 8, true),
            (Unknown, 4, 1, 8, false),
            (Exceeded, 1, 2, 4, false),
            (Unknown, 4, 2, 4, false),
            (Unknown, 6, 0, 16, true),
            (Unknown, 20, 0, 16, false),
            (Met, 2, -2, 61, true),
            (Unknown, 5, -1, 31, false),
            (OnlyWrites, 2, -3, 96, true),
            (OnlyWrites, 5, -3, 96, false),
            (Exceeded, 1, 0, 16, false),
        ];
        let mut throttle = Throttle::new(TARGET, 128);
        for (place, (verdict, times, step, most, grew)) in table.iter().enumerate() {
            let last = (0..*times).map(|_| throttle.apply(*verdict)).last();
            let found = (throttle.step, throttle.most, last);
            assert_eq!(found, (*step, *most, Some(*grew)), "row {place}: {verdict:?}");
        }
    }

    #[test]
    fn a_verdict_at_the_end_of_the_scale_begins_the_count_of_unknown_windows_anew() {
        let mut throttle = Throttle::new(TARGET, 128);
        (0..4).for_each(|_| _ = throttle.apply(Verdict::Exceeded));
        for between in [Verdict::Exceeded, Verdict::Exceeded] {
            (0..4).for_each(|_| _ = throttle.apply(Verdict::Unknown));
            throttle.apply(between);
            assert_eq!(throttle.step, 4);
        }
    }

    #[test]
    fn a_window_becomes_shorter_the_less_is_let_through() {
        let mut throttle = Throttle::new(TARGET, 128);
        for (step, window_ns) in
            [(-3, WINDOW_NS), (0, WINDOW_NS), (1, 70_710_678), (2, 57_735_026), (3, 50 * MS)]
        {
            throttle.scale(step);
            assert_eq!(throttle.window_ns(), window_ns, "step {step}");
        }
    }

    #[test]
    fn those_that_wait_go_on_in_batches() {
        let throttle = Throttle::new(TARGET, 128);
        // Writes up to 8, by half of 4; discards up to 4.
        for (under_way, writes, discards) in [
            (0, true, true),
            (1, true, true),
            (2, true, true),
            (3, true, false),
            (6, true, false),
            (7, false, false),
            (8, false, false),
            (20, false, false),
        ] {
            assert_eq!(throttle.wakes(Kind::Write, under_way, false), writes, "{under_way}");
            assert_eq!(throttle.wakes(Kind::Discard, under_way, false), discards, "{under_way}");
            let drained = under_way == 0;
            assert_eq!(throttle.wakes(Kind::Write, under_way, true), drained, "{under_way}");
            assert_eq!(throttle.wakes(Kind::Discard, under_way, true), discards, "{under_way}");
        }
    }

    #[test]
    fn direct_writes_reads_and_flushes_are_not_throttled() {
        use Class::{Background, Most, Normal};
        let write = |flags| Bio { flags, ..Bio::new(Op::Write, 0, 8, weir_bio::Data::None) };
        let op = |op| Bio::new(op, 0, 8, weir_bio::Data::None);
        let none = |bio: &Bio| assert_eq!(Kind::of(bio), None, "{bio:?}");
        none(&write(DIRECT));
        none(&write(DIRECT | Flags::FUA));
        none(&Bio::flush());
        for other in [Op::Read, Op::Prefetch, Op::WriteZeroes, Op::SecureErase] {
            none(&op(other));
        }
        for (bio, kind, class) in [
            (write(Flags::NONE), Kind::Write, Normal),
            (write(Flags::IDLE), Kind::Write, Normal),
            (write(Flags::SYNC), Kind::Write, Most),
            (write(Flags::META), Kind::Write, Most),
            (write(Flags::PRIO | Flags::BACKGROUND), Kind::Write, Most),
            (write(Flags::BACKGROUND), Kind::Write, Background),
            (op(Op::Discard).with(DIRECT), Kind::Discard, Background),
        ] {
            assert_eq!((Kind::of(&bio), Class::of(&bio)), (Some(kind), class), "{bio:?}");
        }
    }
}
