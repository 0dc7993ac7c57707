//! The way of a scheduler's calls from its recorder to a reader: a ring of words, written under the
//! scheduler's right, so one bounded buffer has the order of all lanes. What finds it full is lost,
//! and all that follows: a recording with a hole could not be replayed beyond it.
//!
//! A call is a head and up to four further words: what the tape costs an I/O are the lines of
//! memory it fills. [`RingTape`] writes them and [`TapeReader`] knows them again. How a request
//! ended is not among them, as no recording states it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use weir_bio::{Flags, GroupId, IoPrio, Nanos, Op, Rq, RqId, SchedTag, Status, SubmitterId};
use weir_ring::{Consumer, Producer, ring};
use weir_sched::Ended;
use weir_sched::recorder::{Call, Cut, Noted, Tape};
use weir_sched::replay::{Kind, Range};

/// Words that wait for their reader at most: 2 MiB, some 90,000 calls.
pub(crate) const ROOM: usize = 1 << 18;

/// Calls that a reader takes at once, at most: it has to look up from work that does not end.
pub(crate) const AT_ONCE: usize = 1 << 15;

/// How often places are given back while a reader takes many.
const RELEASED: usize = 4096;

/// The state of a recording, which its two ends share.
#[derive(Default)]
pub(crate) struct TapeState {
    /// A [`Cut`] by its number; 0: none.
    cut: AtomicU8,
    /// Calls for which there was no room.
    lost: AtomicU64,
    /// The recorder is gone.
    closed: AtomicBool,
}

impl TapeState {
    pub(crate) fn cut(&self, why: Cut) {
        if self.cut.load(Ordering::Relaxed) == 0 {
            self.cut.store(why as u8, Ordering::Release);
        }
    }

    /// Calls for which there was no room.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Acquire)
    }

    /// Nothing more is kept. What was kept before is in the ring for one who has seen this.
    pub(crate) fn is_over(&self) -> bool {
        self.cut.load(Ordering::Acquire) != 0
            || self.lost.load(Ordering::Acquire) != 0
            || self.closed.load(Ordering::Acquire)
    }

    pub(crate) fn why_cut(&self) -> Option<Cut> {
        let number = self.cut.load(Ordering::Acquire);
        let all = [Cut::Tunable, Cut::Limits, Cut::Depth, Cut::Drained];
        all.into_iter().find(|cut| *cut as u8 == number)
    }
}

/// The kind of a call, by its number in a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Form {
    Inserted,
    MergedBack,
    MergedFront,
    Picked,
    Denied,
    Ended,
    EndedTimed,
    Fired,
    ContextBegun,
    ContextGone,
    GroupPlaced,
    GroupWeighed,
    /// No call: the time, where the head of the next call has no room for what has passed.
    Clock,
}

impl Form {
    const ALL: [Form; 13] = [
        Form::Inserted,
        Form::MergedBack,
        Form::MergedFront,
        Form::Picked,
        Form::Denied,
        Form::Ended,
        Form::EndedTimed,
        Form::Fired,
        Form::ContextBegun,
        Form::ContextGone,
        Form::GroupPlaced,
        Form::GroupWeighed,
        Form::Clock,
    ];
}

/// Two numbers of 32 bits in a word.
const fn pair(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

const fn low(word: u64) -> u32 {
    word as u32
}

const fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

/// The recorder's end.
pub(crate) struct RingTape {
    words: Producer<u64>,
    state: Arc<TapeState>,
    last_us: u64,
    /// Calls for which there was no room. Only this end counts them.
    lost: u64,
}

impl RingTape {
    /// Writes all of these words, or none.
    #[inline(always)]
    fn write<const N: usize>(&mut self, words: [u64; N]) -> bool {
        let has_room = self.words.room(N) >= N;
        if has_room {
            self.words.push_each(words.into_iter());
        }
        has_room
    }

    /// The time since the last call, where a head has room for it; else it is written apart.
    #[cold]
    fn put_clock(&mut self, at_us: u64) -> bool {
        self.last_us = at_us;
        self.write([Form::Clock as u64, at_us])
    }

    /// There was no room for a call, or it comes behind the end.
    #[cold]
    fn lose(&mut self) {
        if self.lost == 0 && self.state.cut.load(Ordering::Relaxed) != 0 {
            return;
        }
        self.words.publish();
        self.lost += 1;
        self.state.lost.store(self.lost, Ordering::Release);
    }

    /// Writes a call, or nothing of it. Inlined, as its caller knows which call it is.
    #[inline(always)]
    fn put(&mut self, Noted { at_us, call }: Noted) -> bool {
        if at_us - self.last_us > u64::from(u32::MAX) && !self.put_clock(at_us) {
            return false;
        }
        let passed = at_us - self.last_us;
        self.last_us = at_us;
        let head = |form: Form, small: u16, number: u16| {
            form as u64 | u64::from(small) << 8 | u64::from(number) << 16 | passed << 32
        };
        match call {
            Call::Arrived { rq, kind } => {
                let form = match kind {
                    Kind::MergedBack => Form::MergedBack,
                    Kind::MergedFront => Form::MergedFront,
                    _ => Form::Inserted,
                };
                let (ioprio, hint) = (u32::from(rq.ioprio.0), u32::from(rq.hint));
                self.write([
                    head(form, u16::from(rq.segments), rq.tag.0),
                    rq.sector,
                    pair(rq.sectors, rq.id.0),
                    pair(rq.flags.0, rq.group.0),
                    pair(ioprio | hint << 16, rq.op as u32),
                ])
            }
            Call::Picked { range: Range { op, sector, sectors }, context, tag, hard_queue } => {
                let who = u32::from(context.0) | (op as u32) << 16;
                self.write([head(Form::Picked, hard_queue, tag.0), sector, pair(sectors, who)])
            }
            Call::Denied { hard_queue } => self.write([head(Form::Denied, hard_queue, 0)]),
            Call::Ended(end) => {
                let small = u16::from(end.handed_back);
                let times = [end.accepted_at, end.issued_at, end.done_at];
                if times == [Nanos::ZERO; 3] {
                    return self.write([head(Form::Ended, small, end.tag.0)]);
                }
                let [accepted, issued, done] = times.map(|at| at.0);
                self.write([head(Form::EndedTimed, small, end.tag.0), accepted, issued, done])
            }
            Call::Fired => self.write([head(Form::Fired, 0, 0)]),
            Call::ContextBegun { context, hard_queue } => {
                self.write([head(Form::ContextBegun, hard_queue, context.0)])
            }
            Call::ContextGone { context } => self.write([head(Form::ContextGone, 0, context.0)]),
            Call::GroupPlaced { group, parent } => {
                self.write([head(Form::GroupPlaced, 0, 0), pair(group.0, parent.0)])
            }
            Call::GroupWeighed { group, weight } => {
                self.write([head(Form::GroupWeighed, 0, weight), pair(group.0, 0)])
            }
        }
    }
}

impl Tape for RingTape {
    #[inline(always)]
    fn keep(&mut self, noted: Noted) {
        let is_open = self.lost == 0 && self.state.cut.load(Ordering::Relaxed) == 0;
        if !is_open || !self.put(noted) {
            self.lose();
        }
    }

    #[inline]
    fn publish(&mut self) {
        self.words.publish();
    }

    fn cut(&mut self, why: Cut) {
        self.words.publish();
        self.state.cut(why);
    }
}

impl Drop for RingTape {
    fn drop(&mut self) {
        self.words.publish();
        self.state.closed.store(true, Ordering::Release);
    }
}

/// The reader's end.
pub(crate) struct TapeReader {
    words: Consumer<u64>,
    last_us: u64,
}

impl TapeReader {
    /// Takes calls that are published, whole ones, [`AT_ONCE`] at most; whether those were all.
    pub(crate) fn take(&mut self, mut each: impl FnMut(&Noted)) -> bool {
        let mut taken = 0_usize;
        while taken < AT_ONCE {
            let Some(head) = self.words.pop() else {
                self.words.release();
                return true;
            };
            if let Some(call) = self.call(head) {
                each(&Noted { at_us: self.last_us, call });
            }
            taken += 1;
            if taken.is_multiple_of(RELEASED) {
                self.words.release();
            }
        }
        self.words.release();
        false
    }

    fn word(&mut self) -> u64 {
        self.words.pop().expect("calls are published whole")
    }

    /// The call with this head; none that tells the time.
    fn call(&mut self, head: u64) -> Option<Call> {
        let form = Form::ALL[head as usize & 0xff];
        let (small, number) = ((head >> 8) as u16 & 0xff, (head >> 16) as u16);
        self.last_us += u64::from(high(head));
        let (context, tag) = (SubmitterId(number), SchedTag(number));
        Some(match form {
            Form::Clock => {
                self.last_us = self.word();
                return None;
            }
            Form::Inserted => self.arrived(Kind::Inserted, small, tag),
            Form::MergedBack => self.arrived(Kind::MergedBack, small, tag),
            Form::MergedFront => self.arrived(Kind::MergedFront, small, tag),
            Form::Picked => {
                let (sector, rest) = (self.word(), self.word());
                let (sectors, who) = (low(rest), high(rest));
                let range = Range { op: op_of(who >> 16), sector, sectors };
                Call::Picked { range, context: SubmitterId(who as u16), tag, hard_queue: small }
            }
            Form::Denied => Call::Denied { hard_queue: small },
            Form::Ended => Call::Ended(Ended { handed_back: small != 0, ..Ended::untimed(tag) }),
            Form::EndedTimed => {
                let mut at = || Nanos(self.word());
                let (accepted_at, issued_at, done_at) = (at(), at(), at());
                let (status, handed_back) = (Status::Ok, small != 0);
                Call::Ended(Ended { tag, status, handed_back, accepted_at, issued_at, done_at })
            }
            Form::Fired => Call::Fired,
            Form::ContextBegun => Call::ContextBegun { context, hard_queue: small },
            Form::ContextGone => Call::ContextGone { context },
            Form::GroupPlaced => {
                let word = self.word();
                Call::GroupPlaced { group: GroupId(low(word)), parent: GroupId(high(word)) }
            }
            Form::GroupWeighed => {
                Call::GroupWeighed { group: GroupId(low(self.word())), weight: number }
            }
        })
    }

    fn arrived(&mut self, kind: Kind, segments: u16, tag: SchedTag) -> Call {
        let sector = self.word();
        let [size, how, rest] = [self.word(), self.word(), self.word()];
        let rq = Rq {
            sector,
            sectors: low(size),
            id: RqId(high(size)),
            flags: Flags(low(how)),
            group: GroupId(high(how)),
            ioprio: IoPrio(low(rest) as u16),
            hint: (low(rest) >> 16) as u16,
            tag,
            op: op_of(high(rest)),
            segments: segments as u8,
        };
        Call::Arrived { rq, kind }
    }
}

/// The op with this number. A scheduler gets no other.
fn op_of(number: u32) -> Op {
    let all = [Op::Read, Op::Write, Op::Discard, Op::SecureErase, Op::WriteZeroes, Op::Prefetch];
    let found = all.into_iter().find(|op| *op as u32 == number);
    found.unwrap_or_else(|| panic!("op {number} in a scheduler"))
}

/// A tape for so many words, and its reader's end.
pub(crate) fn tape(room: usize) -> (RingTape, TapeReader, Arc<TapeState>) {
    let (written, read) = ring(room);
    let state = Arc::<TapeState>::default();
    let tape = RingTape { words: written, state: Arc::clone(&state), last_us: 0, lost: 0 };
    (tape, TapeReader { words: read, last_us: 0 }, state)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rq() -> Rq {
        Rq {
            sector: 1 << 40 | 7,
            sectors: 1 << 20,
            id: RqId::new(SubmitterId(0xabc), 77, 3),
            flags: Flags::BACKGROUND | Flags::FAILFAST,
            group: GroupId(9),
            ioprio: IoPrio(2 << 13 | 5),
            hint: 0x1234,
            tag: SchedTag(2047),
            op: Op::WriteZeroes,
            segments: 255,
        }
    }

    #[test]
    fn every_call_comes_out_as_it_went_in() {
        let (context, group) = (SubmitterId(0xfff), GroupId(1023));
        let range = Range { op: Op::Prefetch, sector: u64::MAX >> 10, sectors: u32::MAX };
        let at = |us: u64| Nanos(us * 1000);
        let timed = Ended {
            handed_back: true,
            accepted_at: at(5),
            issued_at: at(1 << 40),
            done_at: at(7),
            ..Ended::untimed(SchedTag(2047))
        };
        let calls = [
            Call::Arrived { rq: rq(), kind: Kind::Inserted },
            Call::Arrived { rq: rq(), kind: Kind::MergedBack },
            Call::Arrived { rq: Rq { op: Op::Read, ..rq() }, kind: Kind::MergedFront },
            Call::Picked { range, context, tag: SchedTag(300), hard_queue: 63 },
            Call::Denied { hard_queue: 63 },
            Call::Ended(Ended { handed_back: true, ..Ended::untimed(SchedTag(1)) }),
            Call::Ended(timed),
            Call::Fired,
            Call::ContextBegun { context, hard_queue: 63 },
            Call::ContextGone { context },
            Call::GroupPlaced { group, parent: GroupId(4) },
            Call::GroupWeighed { group, weight: 1000 },
        ];
        let (mut tape, mut reader, state) = tape(64);
        let mut told = Vec::new();
        let mut noted = Vec::new();
        for (at, call) in calls.into_iter().enumerate() {
            // Between two of them more time than a head has room for, or none.
            let at_us = [1 << 45, (1 << 45) + (1 << 32), (1 << 45) + (1 << 33)][at / 4];
            noted.push(Noted { at_us, call });
            tape.keep(Noted { at_us, call });
        }
        reader.take(|noted| told.push(*noted));
        assert!(told.is_empty(), "nothing is published");
        tape.publish();
        reader.take(|noted| told.push(*noted));
        assert_eq!(told, noted);
        assert!(!state.is_over());
        drop(tape);
        assert!(state.is_over() && state.lost() == 0);
    }

    #[test]
    fn a_call_without_room_is_lost_whole_and_so_are_all_behind_it() {
        let (mut tape, mut reader, state) = tape(8);
        let arrived = Noted { at_us: 1, call: Call::Arrived { rq: rq(), kind: Kind::Inserted } };
        let fired = Noted { at_us: 2, call: Call::Fired };
        tape.keep(arrived);
        tape.keep(arrived);
        assert_eq!(state.lost(), 1, "five words where there are three");
        tape.keep(fired);
        assert_eq!(state.lost(), 2, "one word, behind the hole");
        let mut told = Vec::new();
        reader.take(|noted| told.push(*noted));
        assert_eq!(told, [arrived]);
        tape.keep(fired);
        tape.publish();
        reader.take(|_| panic!("the tape is empty, and the recording over"));
        assert_eq!(state.lost(), 3);
    }

    #[test]
    fn behind_a_cut_nothing_is_kept_and_nothing_lost() {
        let (mut tape, mut reader, state) = tape(8);
        tape.keep(Noted { at_us: 1, call: Call::Fired });
        tape.cut(Cut::Depth);
        tape.cut(Cut::Limits);
        tape.keep(Noted { at_us: 2, call: Call::Fired });
        tape.publish();
        let mut told = 0;
        reader.take(|_| told += 1);
        assert_eq!((told, state.lost(), state.why_cut()), (1, 0, Some(Cut::Depth)));
    }
}
