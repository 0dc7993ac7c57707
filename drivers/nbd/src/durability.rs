//! Which answered writes a flush can still vouch for.
//!
//! A server holds answered writes in a cache until a FLUSH. When a connection is lost, the server
//! may have been restarted and its cache with it, and the flush that follows on a new connection
//! would succeed all the same. So a connection notes whether writes were answered on it since the
//! last flush; if it is lost then, the device is in doubt and its flushes fail, for as long as it
//! is open: whoever flushes next may not be the one whose write is gone, so saying it once would
//! not do.
//!
//! A connection that is closed on purpose, because the device uses fewer, cannot be seen to be lost
//! any more. What it leaves unflushed is in the hands of those that remain: it is in doubt when one
//! of them is lost, until a flush has succeeded.
//!
//! Only a connection that was there before the loss and survived it can end the doubt by a flush:
//! that server has not gone away, and CAN_MULTI_CONN says that it speaks for all its connections.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// The state all connections of a device share.
#[derive(Debug, Default)]
pub(crate) struct Durability {
    /// Flushes started so far; each is named by the count that includes it.
    started: AtomicU64,
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

    /// A flush is about to be sent on this connection. `None`: it has to fail, because writes
    /// answered earlier may be gone.
    pub(crate) fn flush(&self, life: &Life) -> Option<Ticket> {
        let ledger = self.ledger();
        if ledger.doubt.is_some_and(|(first, _)| life.born >= first) {
            return None;
        }
        let number = self.started.fetch_add(1, Ordering::AcqRel) + 1;
        Some(Ticket { number, doubt: ledger.doubt })
    }

    /// The flush has succeeded.
    pub(crate) fn flushed(&self, ticket: Ticket) {
        let mut ledger = self.ledger();
        ledger.flushed = ledger.flushed.max(ticket.number);
        // A loss since it was sent is not its business.
        if ledger.doubt == ticket.doubt {
            ledger.doubt = None;
        }
    }

    /// The connection is lost; whether writes may be lost with it, its own or those of connections
    /// closed before.
    pub(crate) fn lost(&self, life: &Life) -> bool {
        let mut ledger = self.ledger();
        ledger.living -= 1;
        let unflushed = life.unflushed.max(ledger.parted.take());
        ledger.lose(unflushed)
    }

    /// The connection is closed and the device goes on without it; whether writes may be lost
    /// unnoticed, because no other connection is there to see it.
    pub(crate) fn parted(&self, life: &Life) -> bool {
        let mut ledger = self.ledger();
        ledger.living -= 1;
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
    /// Counts a loss of what was unflushed when so many flushes had been started; whether that puts
    /// writes in doubt.
    fn lose(&mut self, unflushed: Option<u64>) -> bool {
        self.losses += 1;
        let loss = self.losses;
        let doubtful = unflushed.is_some_and(|started| self.flushed <= started);
        if doubtful {
            let first = self.doubt.map_or(loss, |(first, _)| first);
            self.doubt = Some((first, loss));
        }
        doubtful
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flushes_after_lost_writes_fail_whoever_asks() {
        let device = Durability::default();
        let mut first = device.born();
        device.written(&mut first);
        assert!(device.lost(&first));
        let second = device.born();
        assert_eq!(device.flush(&second), None);
        assert_eq!(device.flush(&second), None);
        assert_eq!(device.flush(&device.born()), None);
    }

    #[test]
    fn flushed_writes_are_not_in_doubt() {
        let device = Durability::default();
        let mut life = device.born();
        device.written(&mut life);
        let ticket = device.flush(&life).unwrap();
        device.flushed(ticket);
        assert!(!device.lost(&life));
        assert!(device.flush(&device.born()).is_some());
    }

    #[test]
    fn a_write_answered_while_a_flush_is_under_way_is_not_covered_by_it() {
        let device = Durability::default();
        let mut life = device.born();
        let ticket = device.flush(&life).unwrap();
        device.written(&mut life);
        device.flushed(ticket);
        assert!(device.lost(&life));
    }

    #[test]
    fn a_connection_that_survived_vouches_for_the_lost_one() {
        let device = Durability::default();
        let (mut lost, survivor) = (device.born(), device.born());
        device.written(&mut lost);
        assert!(device.lost(&lost));
        let reborn = device.born();
        let ticket = device.flush(&survivor).unwrap();
        device.flushed(ticket);
        assert!(device.flush(&reborn).is_some());
    }

    #[test]
    fn a_flush_on_one_connection_covers_the_writes_answered_on_another() {
        let device = Durability::default();
        let (mut writer, flusher) = (device.born(), device.born());
        device.written(&mut writer);
        device.flushed(device.flush(&flusher).unwrap());
        assert!(!device.lost(&writer));
    }

    #[test]
    fn what_a_closed_connection_left_unflushed_is_in_doubt_when_another_is_lost() {
        let device = Durability::default();
        let (witness, mut closed) = (device.born(), device.born());
        device.written(&mut closed);
        assert!(!device.parted(&closed));
        assert!(device.flush(&witness).is_some(), "nothing has been lost yet");
        assert!(device.lost(&witness), "that flush has not succeeded");
        assert_eq!(device.flush(&device.born()), None);
    }

    #[test]
    fn a_flush_covers_what_a_closed_connection_left() {
        let device = Durability::default();
        let (witness, mut closed) = (device.born(), device.born());
        device.written(&mut closed);
        assert!(!device.parted(&closed));
        device.flushed(device.flush(&witness).unwrap());
        assert!(!device.lost(&witness));
        assert!(device.flush(&device.born()).is_some());
    }

    #[test]
    fn a_flush_sent_before_the_last_write_of_a_closed_connection_does_not_cover_it() {
        let device = Durability::default();
        let (witness, mut one, mut other) = (device.born(), device.born(), device.born());
        device.written(&mut one);
        let ticket = device.flush(&witness).unwrap();
        device.written(&mut other);
        // The one with the older write goes last.
        assert!(!device.parted(&other));
        assert!(!device.parted(&one));
        device.flushed(ticket);
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
        assert_eq!(device.flush(&reborn), None);
        device.flushed(device.flush(&survivor).unwrap());
        assert!(device.flush(&reborn).is_some());
        assert!(!device.lost(&survivor) && !device.lost(&reborn));
    }

    #[test]
    fn what_the_last_connection_leaves_unflushed_is_in_doubt_at_once() {
        let device = Durability::default();
        let (mut first, mut second) = (device.born(), device.born());
        device.written(&mut first);
        assert!(!device.parted(&first));
        device.written(&mut second);
        device.flushed(device.flush(&second).unwrap());
        assert!(!device.parted(&second), "all of it was flushed");
        let mut third = device.born();
        assert!(device.flush(&third).is_some());
        device.written(&mut third);
        assert!(device.parted(&third));
        assert_eq!(device.flush(&device.born()), None);
    }

    #[test]
    fn a_loss_during_a_survivor_s_flush_stays_in_doubt() {
        let device = Durability::default();
        let (mut one, mut two, survivor) = (device.born(), device.born(), device.born());
        device.written(&mut one);
        assert!(device.lost(&one));
        let ticket = device.flush(&survivor).unwrap();
        device.written(&mut two);
        assert!(device.lost(&two));
        device.flushed(ticket);
        assert_eq!(device.flush(&device.born()), None);
    }
}
