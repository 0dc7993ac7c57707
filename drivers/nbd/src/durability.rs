//! Which answered writes a flush can still vouch for.
//!
//! A server holds answered writes in a cache until a FLUSH. When a connection is lost, the server
//! may have been restarted and its cache with it, and the flush that follows on a new connection
//! would succeed all the same. So a connection notes whether writes were answered on it since the
//! last flush; if it is lost then, the device is in doubt and its flushes fail, for as long as it
//! is open: the client that flushes next may not be the one whose write is gone, so one failed
//! flush would not do.
//!
//! A connection that is closed on purpose, because the device uses fewer, cannot be seen to be lost
//! any more. The writes it leaves unflushed depend on the connections that remain: they are in
//! doubt when one of these is lost, until a flush has succeeded.
//!
//! A connection that was given up because its server is silent counts as lost at once, and may yet
//! speak for its own writes: its last request is a flush, and a server that answers it has lost
//! nothing. Until that flush has ended, flushes of newer connections wait for it.
//!
//! A flush that the server has failed is told once by a server that stands on a file, and what it
//! could not write may be gone. So it counts for all flushes from then on, on every connection,
//! until the device is opened anew; so does a write with FUA that failed with an I/O error, because
//! servers make such a write durable by a flush that may have met another write's error.
//!
//! Only a connection that was there before the loss and survived it can end the doubt by a flush:
//! that server has not gone away, and CAN_MULTI_CONN says that it speaks for all its connections.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use weir_proto_nbd::NbdError;
use weir_queue::Unflushed;

/// The state all connections of a device share.
#[derive(Debug, Default)]
pub(crate) struct Durability {
    /// Flushes started so far; each is named by the count that includes it.
    started: AtomicU64,
    /// A flush has failed, and that has not been told.
    untold: AtomicBool,
    ledger: Mutex<Ledger>,
}

#[derive(Debug, Default)]
struct Ledger {
    /// The newest flush that succeeded.
    flushed: u64,
    /// Connections there are.
    living: u32,
    /// Flushes started when the last of the writes was answered that closed connections left.
    parted: Option<u64>,
    /// Connections lost so far; each loss is named by the count that includes it.
    losses: u64,
    /// The first and last loss of unflushed writes that no flush has answered for.
    doubt: Option<(u64, u64)>,
    /// Connections of before that first loss that are there: a flush of one may end the doubt.
    survivors: u32,
    /// Connections given up whose last flush has not ended.
    vouching: u32,
    /// How the server failed a flush first.
    failure: Option<NbdError>,
}

/// A connection's part: when it came to be, and since when it holds unflushed writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Life {
    born: u64,
    /// Flushes started when the last write was answered here.
    unflushed: Option<u64>,
}

/// A flush on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    number: u64,
    doubt: Option<(u64, u64)>,
}

/// The writes that a request was to make durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
    /// All writes answered before the request.
    Everything,
    /// The data of the request itself.
    Itself,
}

/// The decision on a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leave {
    /// It goes out.
    Go(Ticket),
    /// A silent server may yet answer for the writes in doubt.
    Wait,
    /// Writes answered earlier may be gone.
    Fail,
}

impl Durability {
    /// A connection begins.
    pub(crate) fn born(&self) -> Life {
        let mut ledger = self.ledger();
        ledger.living += 1;
        Life { born: ledger.losses, unflushed: None }
    }

    /// A write that did not ask for FUA has been answered on this connection.
    #[inline]
    pub(crate) fn written(&self, life: &mut Life) {
        life.unflushed = Some(self.started.load(Ordering::Acquire));
    }

    /// A flush is about to be sent on this connection.
    pub(crate) fn flush(&self, life: &Life) -> Leave {
        let ledger = self.ledger();
        if ledger.failure.is_some() {
            return Leave::Fail;
        }
        if ledger.doubt.is_some_and(|(first, _)| life.born >= first) {
            return if ledger.vouching > 0 { Leave::Wait } else { Leave::Fail };
        }
        Leave::Go(self.ticket(&ledger))
    }

    /// Whether flushes fail for good, asked for or not: no connection is left that could end the
    /// doubt.
    pub(crate) fn is_lost(&self) -> bool {
        let ledger = self.ledger();
        let doubt = ledger.doubt.is_some() && ledger.vouching == 0 && ledger.survivors == 0;
        ledger.failure.is_some() || doubt
    }

    /// What other ways to the same disk have to know.
    pub(crate) fn unflushed(&self) -> Unflushed {
        let ledger = self.ledger();
        match (ledger.failure, ledger.doubt, ledger.losses) {
            (Some(_), _, _) => Unflushed::Gone,
            (None, Some(_), _) => Unflushed::Doubtful,
            (None, None, 1..) => Unflushed::Renewed,
            (None, None, 0) => Unflushed::Kept,
        }
    }

    fn ticket(&self, ledger: &Ledger) -> Ticket {
        let number = self.started.fetch_add(1, Ordering::AcqRel) + 1;
        Ticket { number, doubt: ledger.doubt }
    }

    /// A connection that has just been counted as lost sends one more flush; `None` when that could
    /// not answer for its writes.
    pub(crate) fn vouch(&self, life: &Life) -> Option<Ticket> {
        let mut ledger = self.ledger();
        let (first, _) = ledger.doubt?;
        (life.born < first).then(|| {
            ledger.vouching += 1;
            self.ticket(&ledger)
        })
    }

    /// The last flush of a connection that was given up has ended.
    pub(crate) fn vouched(&self, ticket: Ticket, well: bool) {
        if well {
            _ = self.flushed(ticket);
        }
        self.ledger().vouching -= 1;
    }

    /// Whether writes may be gone.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.ledger().doubt.is_some()
    }

    /// Whether a flush of this connection would have to wait.
    pub(crate) fn waits(&self, life: &Life) -> bool {
        let ledger = self.ledger();
        ledger.failure.is_none()
            && ledger.vouching > 0
            && ledger.doubt.is_some_and(|(first, _)| life.born >= first)
    }

    /// The server says that the flush has succeeded; whether it is to be believed.
    pub(crate) fn flushed(&self, ticket: Ticket) -> bool {
        let mut ledger = self.ledger();
        if ledger.failure.is_some() {
            return false;
        }
        ledger.flushed = ledger.flushed.max(ticket.number);
        // A loss since it was sent is not its business.
        if ledger.doubt == ticket.doubt {
            ledger.doubt = None;
        }
        true
    }

    /// The server has answered a flush, or a write with FUA, with this error.
    #[cold]
    pub(crate) fn failed(&self, promise: Promise, error: NbdError) {
        let tells_of_others = match promise {
            // A server that goes away has not tried; what it holds is a matter of its loss.
            Promise::Everything => error != NbdError::Shutdown,
            Promise::Itself => error == NbdError::Io,
        };
        if tells_of_others {
            let mut ledger = self.ledger();
            if ledger.failure.is_none() {
                ledger.failure = Some(error);
                self.untold.store(true, Ordering::Release);
            }
        }
    }

    /// The first failure, once.
    #[inline]
    pub(crate) fn news(&self) -> Option<NbdError> {
        if !self.untold.load(Ordering::Relaxed) || !self.untold.swap(false, Ordering::AcqRel) {
            return None;
        }
        self.ledger().failure
    }

    /// The connection is lost; whether writes may be lost with it, its own or those of connections
    /// closed before.
    pub(crate) fn lost(&self, life: &Life) -> bool {
        let mut ledger = self.ledger();
        ledger.end(life);
        let unflushed = life.unflushed.max(ledger.parted.take());
        ledger.lose(unflushed)
    }

    /// The connection is closed and the device goes on without it; whether writes may be lost
    /// unnoticed, because no other connection is there to see it.
    pub(crate) fn parted(&self, life: &Life) -> bool {
        let mut ledger = self.ledger();
        ledger.end(life);
        let unflushed = life.unflushed.max(ledger.parted.take());
        if ledger.living == 0 {
            return ledger.lose(unflushed);
        }
        ledger.parted = unflushed;
        false
    }

    fn ledger(&self) -> std::sync::MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Ledger {
    /// A connection is there no more.
    fn end(&mut self, life: &Life) {
        self.living -= 1;
        if self.doubt.is_some_and(|(first, _)| life.born < first) {
            self.survivors -= 1;
        }
    }

    /// Counts a loss of what was unflushed when so many flushes had been started; whether that puts
    /// writes in doubt.
    fn lose(&mut self, unflushed: Option<u64>) -> bool {
        self.losses += 1;
        let loss = self.losses;
        let doubtful = unflushed.is_some_and(|started| self.flushed <= started);
        if doubtful {
            if self.doubt.is_none() {
                self.survivors = self.living;
            }
            let first = self.doubt.map_or(loss, |(first, _)| first);
            self.doubt = Some((first, loss));
        }
        doubtful
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn go(device: &Durability, life: &Life) -> Ticket {
        match device.flush(life) {
            Leave::Go(ticket) => ticket,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn flushes_after_lost_writes_fail_whoever_asks() {
        let device = Durability::default();
        let mut first = device.born();
        device.written(&mut first);
        assert!(device.lost(&first));
        let second = device.born();
        assert_eq!(device.flush(&second), Leave::Fail);
        assert_eq!(device.flush(&second), Leave::Fail);
        assert_eq!(device.flush(&device.born()), Leave::Fail);
        assert!(device.is_lost());
    }

    #[test]
    fn other_ways_to_the_disk_are_told_what_has_become_of_unflushed_writes() {
        let device = Durability::default();
        let idle = device.born();
        assert_eq!(device.unflushed(), Unflushed::Kept);
        assert!(!device.lost(&idle));
        assert_eq!(device.unflushed(), Unflushed::Renewed);
        let mut busy = device.born();
        device.written(&mut busy);
        assert_eq!(device.unflushed(), Unflushed::Renewed);
        assert!(device.lost(&busy));
        assert_eq!(device.unflushed(), Unflushed::Doubtful);
        device.failed(Promise::Everything, NbdError::Io);
        assert_eq!(device.unflushed(), Unflushed::Gone);
    }

    #[test]
    fn flushed_writes_are_not_in_doubt() {
        let device = Durability::default();
        let mut life = device.born();
        device.written(&mut life);
        let ticket = go(&device, &life);
        _ = device.flushed(ticket);
        assert!(!device.lost(&life) && !device.is_lost());
        go(&device, &device.born());
    }

    #[test]
    fn a_write_answered_while_a_flush_is_under_way_is_not_covered_by_it() {
        let device = Durability::default();
        let mut life = device.born();
        let ticket = go(&device, &life);
        device.written(&mut life);
        _ = device.flushed(ticket);
        assert!(device.lost(&life));
    }

    #[test]
    fn a_connection_that_survived_vouches_for_the_lost_one() {
        let device = Durability::default();
        let (mut lost, survivor) = (device.born(), device.born());
        device.written(&mut lost);
        assert!(device.lost(&lost));
        let reborn = device.born();
        assert!(!device.is_lost(), "the survivor may vouch");
        let ticket = go(&device, &survivor);
        _ = device.flushed(ticket);
        go(&device, &reborn);
        assert!(!device.is_lost());
    }

    #[test]
    fn writes_are_lost_for_good_once_no_connection_of_before_is_left() {
        let device = Durability::default();
        let (mut lost, survivor) = (device.born(), device.born());
        device.written(&mut lost);
        assert!(device.lost(&lost));
        let reborn = device.born();
        assert!(!device.is_lost());
        assert!(!device.lost(&survivor));
        assert!(device.is_lost());
        assert!(!device.lost(&reborn) && device.is_lost());
    }

    #[test]
    fn a_flush_on_one_connection_covers_the_writes_answered_on_another() {
        let device = Durability::default();
        let (mut writer, flusher) = (device.born(), device.born());
        device.written(&mut writer);
        _ = device.flushed(go(&device, &flusher));
        assert!(!device.lost(&writer));
    }

    #[test]
    fn what_a_closed_connection_left_unflushed_is_in_doubt_when_another_is_lost() {
        let device = Durability::default();
        let (witness, mut closed) = (device.born(), device.born());
        device.written(&mut closed);
        assert!(!device.parted(&closed));
        go(&device, &witness);
        assert!(device.lost(&witness), "that flush has not succeeded");
        assert_eq!(device.flush(&device.born()), Leave::Fail);
    }

    #[test]
    fn a_flush_covers_what_a_closed_connection_left() {
        let device = Durability::default();
        let (witness, mut closed) = (device.born(), device.born());
        device.written(&mut closed);
        assert!(!device.parted(&closed));
        _ = device.flushed(go(&device, &witness));
        assert!(!device.lost(&witness));
        go(&device, &device.born());
    }

    #[test]
    fn a_flush_sent_before_the_last_write_of_a_closed_connection_does_not_cover_it() {
        let device = Durability::default();
        let (witness, mut one, mut other) = (device.born(), device.born(), device.born());
        device.written(&mut one);
        let ticket = go(&device, &witness);
        device.written(&mut other);
        // The one with the older write goes last.
        assert!(!device.parted(&other));
        assert!(!device.parted(&one));
        _ = device.flushed(ticket);
        assert!(device.lost(&witness));
    }

    #[test]
    fn a_survivor_of_the_loss_vouches_for_a_closed_connection() {
        let device = Durability::default();
        let (witness, survivor, mut closed) = (device.born(), device.born(), device.born());
        device.written(&mut closed);
        assert!(!device.parted(&closed));
        assert!(device.lost(&witness));
        let reborn = device.born();
        assert_eq!(device.flush(&reborn), Leave::Fail);
        _ = device.flushed(go(&device, &survivor));
        go(&device, &reborn);
        assert!(!device.lost(&survivor) && !device.lost(&reborn));
    }

    #[test]
    fn what_the_last_connection_leaves_unflushed_is_in_doubt_at_once() {
        let device = Durability::default();
        let (mut first, mut second) = (device.born(), device.born());
        device.written(&mut first);
        assert!(!device.parted(&first));
        device.written(&mut second);
        _ = device.flushed(go(&device, &second));
        assert!(!device.parted(&second), "all of it was flushed");
        let mut third = device.born();
        go(&device, &third);
        device.written(&mut third);
        assert!(device.parted(&third));
        assert_eq!(device.flush(&device.born()), Leave::Fail);
    }

    #[test]
    fn a_loss_during_a_survivor_s_flush_stays_in_doubt() {
        let device = Durability::default();
        let (mut one, mut two, survivor) = (device.born(), device.born(), device.born());
        device.written(&mut one);
        assert!(device.lost(&one));
        let ticket = go(&device, &survivor);
        device.written(&mut two);
        assert!(device.lost(&two));
        _ = device.flushed(ticket);
        assert_eq!(device.flush(&device.born()), Leave::Fail);
    }

    #[test]
    fn a_flush_that_failed_fails_all_others_whoever_asks() {
        let device = Durability::default();
        let (one, other) = (device.born(), device.born());
        let beside = go(&device, &other);
        device.failed(Promise::Everything, NbdError::NoSpc);
        assert!(!device.flushed(beside), "the error was told to the other");
        for life in [one, other, device.born()] {
            assert_eq!(device.flush(&life), Leave::Fail);
        }
        assert_eq!((device.news(), device.news()), (Some(NbdError::NoSpc), None));
        device.failed(Promise::Everything, NbdError::Io);
        assert_eq!(device.news(), None, "it is told once");
    }

    #[test]
    fn what_a_failure_says_of_other_writes_is_what_counts() {
        for (promise, error, fails) in [
            (Promise::Everything, NbdError::Io, true),
            (Promise::Everything, NbdError::Inval, true),
            (Promise::Everything, NbdError::Shutdown, false),
            (Promise::Itself, NbdError::Io, true),
            (Promise::Itself, NbdError::NoSpc, false),
        ] {
            let device = Durability::default();
            device.failed(promise, error);
            let life = device.born();
            assert_eq!(device.flush(&life) == Leave::Fail, fails, "{promise:?} {error}");
        }
    }

    #[test]
    fn flushes_wait_for_the_last_flush_of_a_connection_given_up() {
        for well in [true, false] {
            let device = Durability::default();
            let mut silent = device.born();
            device.written(&mut silent);
            assert!(device.lost(&silent));
            let last = device.vouch(&silent).unwrap();
            let reborn = device.born();
            assert_eq!(device.flush(&reborn), Leave::Wait);
            assert!(device.waits(&reborn));
            device.vouched(last, well);
            assert_eq!(device.is_in_doubt(), !well);
            assert!(!device.waits(&reborn));
            assert_eq!(device.flush(&reborn) == Leave::Fail, !well);
        }
    }

    #[test]
    fn a_connection_given_up_cannot_answer_for_an_older_loss() {
        let device = Durability::default();
        let mut first = device.born();
        device.written(&mut first);
        assert!(device.lost(&first));
        let mut second = device.born();
        device.written(&mut second);
        assert!(device.lost(&second));
        assert_eq!(device.vouch(&second), None);
    }

    #[test]
    fn of_two_connections_given_up_the_later_one_answers_for_both() {
        let device = Durability::default();
        let (mut one, mut other) = (device.born(), device.born());
        device.written(&mut one);
        device.written(&mut other);
        assert!(device.lost(&one));
        let earlier = device.vouch(&one).unwrap();
        assert!(device.lost(&other));
        let later = device.vouch(&other).unwrap();
        let reborn = device.born();
        device.vouched(earlier, true);
        assert_eq!(device.flush(&reborn), Leave::Wait);
        device.vouched(later, true);
        go(&device, &reborn);
    }
}
