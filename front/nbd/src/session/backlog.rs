//! How long caps hold a client's requests back, for the figures of the client.
//!
//! While a cap holds a session back, its requests lie in the socket and are not decoded, so their
//! number is taken from their bytes: as if each were as long as the first. A request is taken to
//! have come when that number first covered it. Only sessions of capped groups pass here; no time
//! is counted for what the client could not send because its socket was full.

use std::collections::VecDeque;
use std::sync::Arc;

use weir_bio::Nanos;
use weir_queue::{CAPS_AGAIN_NS, Histogram};

use super::Session;

/// Arrivals that are told apart; further ones count with the last.
const ARRIVALS_MAX: usize = 1024;

/// The requests of one session that a cap holds back.
#[derive(Default)]
pub(crate) struct Backlog {
    /// The times for which requests were held.
    pub(crate) held: Arc<Histogram>,
    /// Requests let in since the first arrival was noted.
    let_in: u64,
    /// How many had come by when, let in or not; both ascend.
    arrivals: VecDeque<(u64, Nanos)>,
    /// Bytes of the first request that waits, on the wire.
    first: u64,
}

impl Backlog {
    /// A cap holds the next request back, which has so many bytes on the wire.
    #[cold]
    pub(crate) fn refused(&mut self, bytes: u64) {
        self.first = bytes.max(1);
    }

    /// So many bytes of requests wait.
    #[cold]
    pub(crate) fn note(&mut self, bytes: u64, now: Nanos) {
        let come = self.let_in + (bytes / self.first.max(1)).max(1);
        // An estimate that was too high must not be charged to requests that come later.
        while self.arrivals.back().is_some_and(|(known, _)| *known > come) {
            let (_, at) = self.arrivals.pop_back().unwrap_or_default();
            let before = self.arrivals.back().map_or(self.let_in, |(known, _)| *known);
            if before < come {
                self.arrivals.push_back((come, at));
                return;
            }
        }
        let is_full = self.arrivals.len() >= ARRIVALS_MAX;
        match self.arrivals.back_mut() {
            Some((known, _)) if *known >= come => {}
            Some((known, _)) if is_full => *known = come,
            _ => self.arrivals.push_back((come, now)),
        }
    }

    /// One request is let in.
    #[inline]
    pub(crate) fn let_in(&mut self, now: Nanos) {
        if self.arrivals.is_empty() {
            return;
        }
        self.let_in += 1;
        while self.arrivals.front().is_some_and(|(come, _)| *come < self.let_in) {
            self.arrivals.pop_front();
        }
        if let Some((_, at)) = self.arrivals.front() {
            self.held.record(now.since(*at));
        }
    }

    /// Nothing waits for a cap any more.
    #[inline]
    pub(crate) fn is_over(&mut self) {
        if !self.arrivals.is_empty() {
            self.clear();
        }
    }

    #[cold]
    fn clear(&mut self) {
        self.arrivals.clear();
        self.let_in = 0;
    }
}

impl Session {
    /// Whether the caps of its group accept a request now.
    #[cold]
    pub(super) fn admit_capped(&mut self, write: bool, bytes: u64, now: Nanos) -> bool {
        match self.member.admit(write, bytes, now) {
            Ok(()) => {
                self.backlog.let_in(now);
                self.pieces_first = true;
                true
            }
            Err(until) => {
                let header = self.geometry.mode.request_len() as u64;
                self.backlog.refused(header + if write { bytes } else { 0 });
                self.throttled_until = Some(until.min(now + CAPS_AGAIN_NS));
                false
            }
        }
    }

    /// No cap holds it back.
    pub(crate) fn end_backlog(&mut self) {
        self.backlog.is_over();
    }

    /// Takes a note of what waits for the caps of its group: so many bytes.
    pub(crate) fn note_backlog(&mut self, bytes: u64, now: Nanos) {
        match self.throttled_until {
            Some(_) => self.backlog.note(bytes, now),
            None => self.backlog.is_over(),
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_queue::Latencies;

    use super::*;

    const MS: u64 = 1_000_000;
    const READ: u64 = 28;

    fn held(backlog: &Backlog) -> Latencies {
        let mut read = Latencies::default();
        backlog.held.add_to(&mut read);
        read
    }

    #[test]
    fn a_closed_loop_of_32_requests_at_200_a_second_is_held_for_160_ms() {
        let mut backlog = Backlog::default();
        backlog.refused(READ);
        for round in 0..1000 {
            let now = Nanos(round * 5 * MS);
            // One is let in, and its reply brings the next.
            backlog.let_in(now);
            backlog.note(32 * READ, now);
        }
        let held = held(&backlog);
        assert_eq!(held.count(), 999);
        for per_mille in [100, 500, 990] {
            let ns = held.quantile_ns(per_mille);
            assert!((155 * MS..=180 * MS).contains(&ns), "{per_mille}: {ns}");
        }
        assert!(backlog.arrivals.len() <= 33, "{}", backlog.arrivals.len());
    }

    #[test]
    fn an_estimate_that_was_too_high_is_not_charged_to_later_requests() {
        let mut backlog = Backlog::default();
        backlog.refused(READ);
        backlog.note(100 * READ, Nanos(0));
        backlog.note(3 * READ, Nanos(10 * MS));
        assert_eq!(backlog.arrivals, [(3, Nanos(0))]);
        for _ in 0..3 {
            backlog.let_in(Nanos(20 * MS));
        }
        backlog.let_in(Nanos(900 * MS));
        assert_eq!((held(&backlog).count(), held(&backlog).max_ns()), (3, 20 * MS));
        backlog.note(7 * READ, Nanos(1000 * MS));
        backlog.is_over();
        backlog.let_in(Nanos(2000 * MS));
        assert_eq!(held(&backlog).count(), 3);
    }

    #[test]
    fn however_often_it_is_noted_its_memory_is_bounded() {
        let mut backlog = Backlog::default();
        backlog.refused(READ);
        for count in 1..10_000 {
            backlog.note(count * READ, Nanos(count));
        }
        assert_eq!(backlog.arrivals.len(), ARRIVALS_MAX);
        assert_eq!(backlog.arrivals.back().map(|(come, _)| *come), Some(9_999));
    }
}
