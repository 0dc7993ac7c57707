//! The calls that a request still needs from the kernel: the state machine shared by both back
//! ends.
//!
//! A transfer that was cut short goes on with the rest, an interrupted call is made again, zeroing
//! the file system cannot do becomes a write of zeros. A request succeeds only as a whole.

use std::ptr::NonNull;
use std::sync::LazyLock;

use rustix::io::Errno;
use weir_bio::{Buf, Data, Flags, Op, Segment, Status};
use weir_queue::{Done, Request, Tag};

use super::ioprio;
use super::target::Target;

/// Most pieces of memory in one call: the kernel's bound, UIO_MAXIOV in readv(2).
pub(super) const PIECES_MAX: usize = 1024;

/// How often a call is made again when the kernel was short of something or interrupted. It never
/// takes more than a few; the bound keeps a broken file system from spinning a queue for ever.
const REPEATS_MAX: u16 = 1000;

/// The source of writes of zeros that bring no memory.
static ZEROS: LazyLock<Buf> = LazyLock::new(|| Buf::zeroed(256 << 10));

/// One call to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Read,
    Write,
    /// A write that is durable when it returns.
    WriteDurably,
    /// Makes everything written before durable.
    Flush,
    /// Frees the range, which reads as zeros afterwards.
    PunchHole,
    /// Makes the range zeros and leaves it allocated.
    ZeroRange,
    /// Says that the range will be read.
    WillNeed,
    /// None: the answer is known.
    Nothing(Status),
}

/// A request in the driver's hands.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) call: Call,
    /// The first byte on the device that is still to be done.
    pub(super) at: u64,
    /// Bytes still to be done.
    pub(super) left: u64,
    /// Bytes of `memory` already transferred.
    moved: u64,
    memory: Vec<Data>,
    /// The end of the request's memory, which stands for what lies behind the end of the file.
    beyond: Option<Box<Data>>,
    /// `memory` is the request's and goes back to it.
    lent: bool,
    /// Zeros may be written if the kernel cannot make them.
    may_write_zeros: bool,
    /// The change must be flushed before the request is answered.
    then_flush: bool,
    /// The core has given the request up: no further call is made for it.
    given_up: bool,
    repeats: u16,
    /// The priority of its transfers, as the kernel takes it.
    pub(super) ioprio: u16,
}

/// How a call left a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// The job's call is to be made (again).
    Call,
    /// The answer.
    Ended(Status),
}

impl Job {
    /// The job that serves `request`. `memory` is empty and only lends its capacity.
    pub(super) fn new(request: &mut Request, target: &Target, memory: Vec<Data>) -> Job {
        let flags = request.flags();
        let fua = flags.has(Flags::FUA);
        let mut job = Job {
            call: Call::Nothing(Status::NotSupp),
            at: request.offset(),
            left: request.len(),
            moved: 0,
            memory,
            beyond: None,
            lent: false,
            may_write_zeros: false,
            then_flush: false,
            given_up: false,
            repeats: 0,
            ioprio: ioprio::of(request.rq().ioprio),
        };
        match request.op() {
            Op::Read => {
                job.call = Call::Read;
                job.borrow_memory(request);
                job.memory.iter_mut().for_each(Data::materialise);
            }
            Op::Write => {
                job.write(fua, target);
                job.borrow_memory(request);
            }
            Op::Flush => job.call = Call::Flush,
            Op::Discard if target.zeroing.punch => {
                job.call = Call::PunchHole;
                job.then_flush = fua;
            }
            Op::WriteZeroes => {
                job.then_flush = fua;
                job.choose_zeroing(flags, target);
            }
            Op::Prefetch if target.direct => job.call = Call::Nothing(Status::Ok),
            Op::Prefetch => job.call = Call::WillNeed,
            Op::Discard | Op::SecureErase | Op::DrvIn | Op::DrvOut => {}
        }
        if job.at + job.left > target.bytes() {
            job.end_with_file(target.bytes());
        }
        job.refuse_after_failed_flush(target);
        job
    }

    /// Leaves out what lies behind the end of the file, which is inside the last block: it reads as
    /// zeros, and what is written there is dropped.
    #[cold]
    fn end_with_file(&mut self, bytes: u64) {
        let beyond = (self.at + self.left).saturating_sub(bytes).min(self.left);
        self.left -= beyond;
        let Some(last) = self.memory.last_mut() else { return };
        let mut cut = last.split_off(last.len().saturating_sub(beyond as usize));
        if self.call == Call::Read {
            cut.fill_zeros();
        }
        self.beyond = Some(Box::new(cut));
    }

    fn borrow_memory(&mut self, request: &mut Request) {
        request.lend(&mut self.memory);
        self.lent = true;
    }

    /// Makes it a write, of which nothing may be answered before it is `durable`. In the page cache
    /// it would be durable together with others, whose errors it would report as its own: "no
    /// space" could be either. So there it is flushed by a call of its own, which can fail only one
    /// way. Neither may it take an error with it from the description that others flush through.
    fn write(&mut self, durable: bool, target: &Target) {
        let at_once = durable && target.direct && !target.fuse;
        self.call = if at_once { Call::WriteDurably } else { Call::Write };
        self.then_flush = durable && !at_once;
    }

    /// The cheapest call that keeps the flags' promises.
    fn choose_zeroing(&mut self, flags: Flags, target: &Target) {
        let zeroing = target.zeroing;
        let must_be_fast = flags.has(Flags::NOFALLBACK);
        self.may_write_zeros = !must_be_fast;
        if !zeroing.fast && must_be_fast {
            return;
        }
        if zeroing.punch && !flags.has(Flags::NOUNMAP) {
            self.call = Call::PunchHole;
        } else if zeroing.range {
            self.call = Call::ZeroRange;
        } else if self.may_write_zeros {
            self.write_zeros(target);
        }
    }

    /// Turns the job into a write of zeros of what is left.
    fn write_zeros(&mut self, target: &Target) {
        let mut left = self.left;
        while left > 0 {
            let len = left.min(1 << 30) as u32;
            self.memory.push(Data::Zero { len, spare: None });
            left -= u64::from(len);
        }
        self.write(self.then_flush, target);
        (self.moved, self.may_write_zeros) = (0, false);
    }

    /// After a failed flush the kernel may have dropped what it could not write and say so only
    /// once; so nothing may be called durable any more.
    fn refuse_after_failed_flush(&mut self, target: &Target) {
        let promises = matches!(self.call, Call::Flush | Call::WriteDurably) || self.then_flush;
        if let Some(status) = target.failed_flush().filter(|_| promises) {
            self.call = Call::Nothing(status);
        }
    }

    /// The request has been given up: the call that is under way is its last.
    #[cold]
    pub(super) fn give_up(&mut self) {
        self.given_up = true;
    }

    pub(super) fn is_given_up(&self) -> bool {
        self.given_up
    }

    /// Bytes of the memory it holds.
    pub(super) fn bytes(&self) -> u64 {
        self.memory.iter().map(|data| data.len() as u64).sum()
    }

    /// Takes a call's result: bytes transferred (0 for calls that transfer none) or the error. A
    /// job that was given up has ended with its call.
    pub(super) fn advance(&mut self, result: Result<u32, Errno>, target: &Target) -> Next {
        match self.after(result, target) {
            Next::Call if self.given_up => Next::Ended(Status::Timeout),
            next => next,
        }
    }

    fn after(&mut self, result: Result<u32, Errno>, target: &Target) -> Next {
        match result {
            Ok(bytes) => self.succeeded(u64::from(bytes), target),
            Err(Errno::INTR | Errno::AGAIN) if self.repeats < REPEATS_MAX => {
                self.repeats += 1;
                Next::Call
            }
            Err(Errno::OPNOTSUPP | Errno::NOSYS) if self.may_write_zeros => {
                self.write_zeros(target);
                Next::Call
            }
            // A call that a cancel found before it ran: a flush among these has lost nothing.
            Err(Errno::CANCELED) if self.given_up => Next::Ended(Status::Timeout),
            Err(errno) => {
                // A durable write that failed may have taken another write's error with it.
                let lost = errno == Errno::IO && self.call == Call::WriteDurably;
                if lost || self.call == Call::Flush {
                    target.flush_has_failed(errno);
                }
                Next::Ended(Status::from_errno(errno.raw_os_error()))
            }
        }
    }

    fn succeeded(&mut self, bytes: u64, target: &Target) -> Next {
        match self.call {
            Call::Read | Call::Write | Call::WriteDurably => {
                // Nothing moved: the file ends here, though it did not when it was opened.
                if (bytes == 0 && self.left > 0) || bytes > self.left {
                    return Next::Ended(Status::IoErr);
                }
                self.at += bytes;
                self.moved += bytes;
                self.left -= bytes;
                if self.left > 0 {
                    return Next::Call;
                }
            }
            Call::Nothing(status) => return Next::Ended(status),
            Call::Flush | Call::PunchHole | Call::ZeroRange | Call::WillNeed => {}
        }
        if std::mem::take(&mut self.then_flush) {
            self.call = Call::Flush;
            return Next::Call;
        }
        let promises = matches!(self.call, Call::Flush | Call::WriteDurably);
        match target.failed_flush().filter(|_| promises) {
            Some(status) => Next::Ended(status),
            None => Next::Ended(Status::Ok),
        }
    }

    /// Hands over the answer and the memory; what is returned is empty and keeps its capacity.
    pub(super) fn answer(mut self, tag: Tag, status: Status, done: &mut Done) -> Vec<Data> {
        if let (Some(beyond), Some(last)) = (self.beyond.take(), self.memory.last_mut()) {
            last.append(*beyond);
        }
        if self.lent {
            done.push_lent(tag, status, &mut self.memory);
        } else {
            done.push(tag, status);
            self.memory.clear();
        }
        self.memory
    }

    /// The memory of the next call, up to `PIECES_MAX` pieces: what is written, or where it reads
    /// to. Only the kernel may look into it, since it may be memory that others change.
    pub(super) fn pieces(&self) -> impl Iterator<Item = Segment> {
        let mut skip = self.moved;
        let all = self.memory.iter().flat_map(|data| {
            let zeros = match data {
                Data::Zero { len, .. } => u64::from(*len),
                _ => 0,
            };
            data.segments().chain(zeros_of(zeros))
        });
        all.filter_map(move |piece| {
            let skipped = skip.min(u64::from(piece.len)) as u32;
            skip -= u64::from(skipped);
            // Still inside, or at the end.
            let start = piece.start.as_ptr().wrapping_add(skipped as usize);
            let start = NonNull::new(start).unwrap_or(piece.start);
            Some(Segment { start, len: piece.len - skipped }).filter(|rest| rest.len > 0)
        })
        .take(PIECES_MAX)
    }
}

/// So many bytes of zeros, in pieces of one shared buffer.
fn zeros_of(mut left: u64) -> impl Iterator<Item = Segment> {
    std::iter::from_fn(move || {
        let len = left.min(ZEROS.len() as u64);
        left -= len;
        (len > 0).then(|| Segment { start: ZEROS.start(), len: len as u32 })
    })
}

#[cfg(test)]
impl Job {
    /// The same for so many bytes from another place.
    pub(super) fn placed(self, at: u64, left: u64) -> Job {
        Job { at, left, ..self }
    }

    /// A job of one call, as long as its memory.
    pub(super) fn of(call: Call, memory: Vec<Data>) -> Job {
        Job {
            call,
            at: 4096,
            left: memory.iter().map(|data| data.len() as u64).sum(),
            moved: 0,
            memory,
            beyond: None,
            lent: true,
            may_write_zeros: false,
            then_flush: false,
            given_up: false,
            repeats: 0,
            ioprio: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::zeroing::Zeroing;
    use super::*;
    use std::sync::mpsc::{Sender, channel};
    use weir_bio::{Bio, Class, IoPrio, Nanos};
    use weir_queue::rig::Rig;
    use weir_queue::{Batch, DriverQueue};

    fn target() -> Target {
        Target::nameless(1 << 20)
    }

    fn job(call: Call, memory: Vec<Data>) -> Job {
        Job::of(call, memory)
    }

    fn pages(count: usize) -> Vec<Data> {
        (0..count).map(|_| Data::One(Buf::zeroed(4096))).collect()
    }

    fn lengths(job: &Job) -> Vec<usize> {
        job.pieces().map(|piece| piece.len as usize).collect()
    }

    /// Tells the priority of the job of the first request that it is offered, and refuses it.
    struct Teller(Sender<u16>);

    impl DriverQueue for Teller {
        fn submit(&mut self, batch: &mut Batch<'_>, _now: Nanos) {
            let (_, request) = batch.peek().expect("a request");
            let job = Job::new(request, &target(), Vec::new());
            self.0.send(job.ioprio).expect("it is listened to");
            batch.refuse(Status::Resource);
        }

        fn commit(&mut self, _now: Nanos) {}

        fn reap(&mut self, _now: Nanos, _done: &mut Done) {}

        fn in_flight(&self) -> usize {
            0
        }
    }

    #[test]
    fn a_job_has_the_priority_of_its_request() {
        let (told, listener) = channel();
        let mut rig = Rig::new(Box::new(Teller(told)), 1);
        let mut bio = Bio::read(0, Buf::zeroed(4096));
        bio.ioprio = IoPrio::new(Class::BestEffort, 3);
        assert!(rig.submit(vec![bio], Nanos(1)).is_some(), "it is refused");
        assert_eq!(listener.recv(), Ok(0x4003));
    }

    #[test]
    fn a_transfer_cut_short_goes_on_with_the_rest_and_succeeds_only_as_a_whole() {
        let target = target();
        let mut job = job(Call::Write, pages(3));
        assert_eq!(job.advance(Ok(4096 + 512), &target), Next::Call);
        assert_eq!((job.at, job.left), (4096 + 4608, 3 * 4096 - 4608));
        assert_eq!(lengths(&job), [3584, 4096]);
        assert_eq!(job.advance(Ok(7680), &target), Next::Ended(Status::Ok));
    }

    #[test]
    fn a_transfer_of_nothing_is_the_end_of_the_file_and_an_error() {
        for call in [Call::Read, Call::Write] {
            let mut job = job(call, pages(1));
            assert_eq!(job.advance(Ok(0), &target()), Next::Ended(Status::IoErr));
        }
    }

    #[test]
    fn an_interrupted_call_is_made_again_but_not_for_ever() {
        let target = target();
        let mut job = job(Call::Read, pages(1));
        for errno in [Errno::INTR, Errno::AGAIN] {
            assert_eq!(job.advance(Err(errno), &target), Next::Call);
        }
        let ended = (0..10_000).find_map(|_| match job.advance(Err(Errno::AGAIN), &target) {
            Next::Call => None,
            Next::Ended(status) => Some(status),
        });
        assert_eq!(ended, Some(Status::Again));
    }

    #[test]
    fn errors_keep_their_meaning() {
        for (errno, status) in [
            (Errno::NOSPC, Status::NoSpc),
            (Errno::IO, Status::IoErr),
            (Errno::OPNOTSUPP, Status::NotSupp),
        ] {
            let mut job = job(Call::Write, pages(1));
            assert_eq!(job.advance(Err(errno), &target()), Next::Ended(status));
        }
    }

    #[test]
    fn in_the_page_cache_no_space_for_a_durable_write_is_told_from_a_lost_write() {
        let mut target = target();
        target.direct = false;
        let durable = |target: &Target| {
            let mut job = job(Call::Nothing(Status::Ok), pages(1));
            job.write(true, target);
            job
        };
        let full = Next::Ended(Status::NoSpc);
        assert_eq!(durable(&target).advance(Err(Errno::NOSPC), &target), full);
        assert_eq!(target.failed_flush(), None, "nothing was written, and nothing is lost");
        let mut job = durable(&target);
        assert_eq!(job.advance(Ok(4096), &target), Next::Call);
        assert_eq!(job.call, Call::Flush);
        assert_eq!(job.advance(Ok(0), &target), Next::Ended(Status::Ok));
        let mut job = durable(&target);
        job.advance(Ok(4096), &target);
        assert_eq!(job.advance(Err(Errno::NOSPC), &target), full);
        assert_eq!(target.failed_flush(), Some(Status::NoSpc), "it may be another's");
        let mut later = durable(&target);
        later.refuse_after_failed_flush(&target);
        assert_eq!(later.call, Call::Nothing(Status::NoSpc));
    }

    #[test]
    fn zeroing_the_file_system_cannot_do_becomes_a_write_of_zeros_if_it_may() {
        let mut target = target();
        target.direct = true;
        for (may, then_flush, expected) in [
            (true, false, Some(Call::Write)),
            (true, true, Some(Call::WriteDurably)),
            (false, false, None),
        ] {
            let mut job = Job {
                left: 600 << 10,
                may_write_zeros: may,
                then_flush,
                lent: false,
                ..job(Call::PunchHole, Vec::new())
            };
            let next = job.advance(Err(Errno::OPNOTSUPP), &target);
            let Some(call) = expected else {
                assert_eq!(next, Next::Ended(Status::NotSupp));
                continue;
            };
            assert_eq!((next, job.call), (Next::Call, call));
            assert_eq!(lengths(&job), [256 << 10, 256 << 10, 88 << 10]);
            assert!(job.pieces().all(|piece| piece.start == ZEROS.start()));
            assert!(ZEROS.iter().all(|byte| *byte == 0));
            assert_eq!(job.advance(Ok(600 << 10), &target), Next::Ended(Status::Ok));
        }
    }

    #[test]
    fn the_cheapest_zeroing_that_keeps_the_promise_is_chosen() {
        const NOUNMAP: Flags = Flags::NOUNMAP;
        const FAST: Flags = Flags::NOFALLBACK;
        const BOTH: Flags = NOUNMAP.with(FAST);
        let refused = Call::Nothing(Status::NotSupp);
        for (punch, range, fast, flags, expected) in [
            (true, true, true, Flags::NONE, Call::PunchHole),
            (true, true, true, NOUNMAP, Call::ZeroRange),
            (true, true, true, BOTH, Call::ZeroRange),
            (true, false, true, NOUNMAP, Call::Write),
            (true, false, true, BOTH, refused),
            (false, true, true, Flags::NONE, Call::ZeroRange),
            (false, true, false, Flags::NONE, Call::ZeroRange),
            (false, true, false, FAST, refused),
            (false, false, false, Flags::NONE, Call::Write),
            (false, false, false, FAST, refused),
        ] {
            let mut target = target();
            target.zeroing = Zeroing { punch, range, fast };
            let mut job = Job { left: 4096, lent: false, ..job(refused, Vec::new()) };
            job.choose_zeroing(flags, &target);
            assert_eq!(job.call, expected, "{:?} {flags:?}", target.zeroing);
        }
    }

    #[test]
    fn after_a_failed_flush_nothing_is_called_durable_again() {
        let target = target();
        let mut failing = job(Call::Flush, Vec::new());
        assert_eq!(failing.advance(Err(Errno::NOSPC), &target), Next::Ended(Status::NoSpc));
        // One that was under way meanwhile, though the kernel was content with it.
        let mut beside = job(Call::Flush, Vec::new());
        assert_eq!(beside.advance(Ok(0), &target), Next::Ended(Status::NoSpc));
        for call in [Call::Flush, Call::WriteDurably] {
            let mut later = job(call, Vec::new());
            later.refuse_after_failed_flush(&target);
            assert_eq!(later.call, Call::Nothing(Status::NoSpc));
        }
        let mut plain = job(Call::Write, pages(1));
        plain.refuse_after_failed_flush(&target);
        assert_eq!(plain.advance(Ok(4096), &target), Next::Ended(Status::Ok));
    }

    #[test]
    fn a_durable_write_without_space_fails_alone_and_one_with_an_io_error_spoils_all() {
        let target = target();
        let mut full = job(Call::WriteDurably, pages(1));
        assert_eq!(full.advance(Err(Errno::NOSPC), &target), Next::Ended(Status::NoSpc));
        assert_eq!(target.failed_flush(), None);
        let mut broken = job(Call::WriteDurably, pages(1));
        assert_eq!(broken.advance(Err(Errno::IO), &target), Next::Ended(Status::IoErr));
        assert_eq!(target.failed_flush(), Some(Status::IoErr));
    }

    #[test]
    fn a_change_that_must_be_durable_is_flushed_before_it_is_answered() {
        let target = target();
        let mut job = Job { then_flush: true, left: 4096, ..job(Call::PunchHole, Vec::new()) };
        assert_eq!(job.advance(Ok(0), &target), Next::Call);
        assert_eq!(job.call, Call::Flush);
        assert_eq!(job.advance(Ok(0), &target), Next::Ended(Status::Ok));
    }

    #[test]
    fn a_job_that_was_given_up_makes_no_further_call() {
        let target = target();
        for (what, mut job, result) in [
            ("cut short", job(Call::Write, pages(2)), Ok(4096)),
            ("interrupted", job(Call::Write, pages(1)), Err(Errno::INTR)),
            ("short of memory", job(Call::Read, pages(1)), Err(Errno::AGAIN)),
            (
                "not supported",
                Job { may_write_zeros: true, left: 4096, ..job(Call::PunchHole, Vec::new()) },
                Err(Errno::OPNOTSUPP),
            ),
            (
                "then a flush",
                Job { then_flush: true, left: 4096, ..job(Call::PunchHole, Vec::new()) },
                Ok(0),
            ),
        ] {
            job.give_up();
            assert_eq!(job.advance(result, &target), Next::Ended(Status::Timeout), "{what}");
        }
    }

    #[test]
    fn a_flush_that_was_cancelled_before_it_ran_spoils_no_later_one() {
        let target = target();
        let mut cancelled = job(Call::Flush, Vec::new());
        cancelled.give_up();
        let next = cancelled.advance(Err(Errno::CANCELED), &target);
        assert_eq!((next, target.failed_flush()), (Next::Ended(Status::Timeout), None));
        let mut failed = job(Call::Flush, Vec::new());
        failed.give_up();
        assert_eq!(failed.advance(Err(Errno::IO), &target), Next::Ended(Status::IoErr));
        assert_eq!(target.failed_flush(), Some(Status::IoErr));
    }
}
