//! What one connection may do in one round of its reactor, before the others have their turn.
//!
//! A reactor that works for one client for a millisecond keeps all its clients waiting as long. A
//! client decides how much it asks for at once, so the reactor divides it: so many requests and so
//! many bytes of their data are taken in, so many bytes are sent, and all connections together take
//! so much new memory from the system ([`Pool::is_spent`]). What is left over stays where it is,
//! in the connection or in its socket, until the next round, which begins at once.
//!
//! [`Pool::is_spent`]: crate::pool::Pool::is_spent

use weir_bio::Nanos;

/// Requests that one connection has taken in per round. One costs some 100 ns.
const REQUESTS: usize = 1024;

/// Bytes of their data: a request that begins within them is taken in whole. The device begins what
/// was taken in within the same round, and pinning the pages of 1 MiB for direct I/O costs some
/// 60 us.
const BYTES: usize = 1 << 20;

/// Bytes sent to one connection per round. To copy 1 MiB into a socket costs some 100 us.
pub(crate) const SENT: usize = 640 << 10;

/// The same over TLS, where sealing costs as much again and more.
pub(crate) const SEALED: usize = 256 << 10;

/// What one connection has taken in at one time.
#[derive(Debug, Default)]
pub(crate) struct Share {
    /// The time of the round.
    at: Nanos,
    requests: usize,
    bytes: usize,
}

impl Share {
    /// Whether a further request may be taken in at this time.
    #[inline]
    pub(crate) fn has_room(&mut self, now: Nanos) -> bool {
        if self.at != now {
            *self = Share { at: now, requests: 0, bytes: 0 };
        }
        self.requests < REQUESTS && self.bytes < BYTES
    }

    /// A request with so much data is taken in.
    #[inline]
    pub(crate) fn take(&mut self, bytes: usize) {
        self.requests += 1;
        self.bytes += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests of this length that are taken in at one time.
    fn taken(share: &mut Share, bytes: usize, now: Nanos) -> usize {
        let mut count = 0;
        while share.has_room(now) {
            share.take(bytes);
            count += 1;
        }
        count
    }

    #[test]
    fn a_round_takes_in_so_many_requests_and_so_much_data_and_the_next_one_as_much() {
        let mut share = Share::default();
        for round in 0..3 {
            let now = Nanos(round);
            assert_eq!(taken(&mut share, 0, now), REQUESTS);
            assert!(!share.has_room(now));
        }
        assert_eq!(taken(&mut share, 64 << 10, Nanos(3)), BYTES / (64 << 10));
        assert_eq!(taken(&mut share, BYTES / 2 + 1, Nanos(4)), 2);
        assert_eq!(taken(&mut share, 32 << 20, Nanos(5)), 1, "however large, one is taken in");
    }
}
