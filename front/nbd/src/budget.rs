//! The memory that all clients of a server may hold together: replies owed, data of requests under
//! way, payloads that arrive, and the extents that are looked for.
//!
//! # The rule
//!
//! - A connection holds [`OWN`] bytes without asking: one request of 64 KiB always gets on.
//! - What it needs above that it draws from the budget, in chunks of [`CHUNK`], so that an I/O
//!   finds its memory paid for already: the budget's lock is taken once per chunk. It gives back
//!   what it did not need for a second, and at once when a request of another waits.
//! - A draw is granted if no more than the rest of the budget is the connection's then. So the
//!   budget is never all gone: the more it holds already, the less one more greedy client gets, and
//!   a small one finds something left.
//! - A request that is refused stays in its socket, and its client is not listened to. It is looked
//!   at again when that client's own memory comes back, or another's.
//! - A request larger than a draw could be waits for the *turn*: [`TURN`] bytes of the budget that
//!   are lent to one connection at a time, first come, first served, for one request, and only to a
//!   connection that holds nothing else. So connections that each hold a part never wait for one
//!   another. A connection that has the turn while others wait for it and neither sends what it
//!   announced nor reads what it asked for is closed after 2 s (`service/memory.rs`).
//! - I/O that is under way when its client leaves is paid for until the device has ended it, the
//!   client's own bytes included. When such I/O alone exceeds the budget, no client is let in.
//!
//! Not counted, beside [`OWN`]: the bytes of one receive that were not looked at (256 KiB), a TLS
//! session's (128 KiB of records, 64 KiB of a handshake), and what each reactor keeps for the next
//! burst (`pool.rs`): until a pause that may be as much again as is in use, where pieces in use
//! keep their slabs. The system's own socket buffers are the system's.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use weir_bio::Nanos;
use weir_proto_nbd::wire::PAYLOAD_MAX_DEFAULT;

use crate::arena::ROOM;

/// Bytes that a connection holds without asking: a reply block, and a request of 64 KiB.
pub(crate) const OWN: usize = 256 << 10;

/// Bytes drawn at once.
const CHUNK: usize = 256 << 10;

/// Bytes that the largest request takes: its data, a reply block, and its description.
const TURN: usize = PAYLOAD_MAX_DEFAULT as usize + (1 << 20);

/// The least that a budget can be, bytes.
pub(crate) const LEAST: usize = 64 << 20;

/// While requests wait, unused memory is asked back at most this often, ns.
const RECLAIM_NS: u64 = 100_000_000;

const _: () = assert!(ROOM + (64 << 10) + (1 << 10) <= OWN && LEAST >= TURN + (TURN / 2));

/// Has a reactor look at its connections: at those that hold too much, and those that wait.
type Ease = Box<dyn Fn(usize) + Send + Sync>;

/// The memory that all connections share.
pub(crate) struct Budget {
    bound: usize,
    ledger: Mutex<Ledger>,
    ease: OnceLock<Ease>,
}

#[derive(Default)]
struct Ledger {
    drawn: usize,
    /// Quotas made so far.
    made: u64,
    /// The quota that has the turn.
    turn: Option<u64>,
    /// The quotas that wait for the turn, first come first.
    line: VecDeque<u64>,
    /// The reactors on which a request waits.
    short: Vec<bool>,
    /// When reactors were last asked for unused memory.
    reclaimed: Option<Nanos>,
}

impl Budget {
    /// A budget of so many bytes, [`LEAST`] at least, for connections on so many reactors.
    pub(crate) fn new(bound: usize, reactors: usize) -> Arc<Budget> {
        let ledger = Ledger { short: vec![false; reactors], ..Ledger::default() };
        let (bound, ledger) = (bound.max(LEAST), Mutex::new(ledger));
        Arc::new(Budget { bound, ledger, ease: OnceLock::new() })
    }

    /// Sets the call made for a reactor when there is memory again or too little. Set once.
    pub(crate) fn on_ease(&self, ease: impl Fn(usize) + Send + Sync + 'static) {
        assert!(self.ease.set(Box::new(ease)).is_ok(), "said once");
    }

    /// The bound, bytes.
    pub(crate) fn bound(&self) -> usize {
        self.bound
    }

    /// Bytes that are drawn now.
    pub(crate) fn held(&self) -> usize {
        let ledger = self.ledger();
        ledger.drawn + ledger.turn.map_or(0, |_| TURN)
    }

    /// Whether connections wait for the turn.
    pub(crate) fn has_line(&self) -> bool {
        !self.ledger().line.is_empty()
    }

    /// Whether more is drawn than there is: by what clients left under way.
    pub(crate) fn is_overdrawn(&self) -> bool {
        self.ledger().drawn > self.bound - TURN
    }

    /// The share of a new connection on this reactor.
    pub(crate) fn quota(self: &Arc<Budget>, reactor: usize) -> Quota {
        let mut ledger = self.ledger();
        ledger.made += 1;
        let number = ledger.made;
        let budget = Arc::clone(self);
        Quota { budget, number, reactor, granted: OWN, has_turn: false, in_line: false }
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ease(&self, reactor: usize) {
        if let Some(ease) = self.ease.get() {
            ease(reactor);
        }
    }

    /// Lets the requests that wait be looked at again.
    fn ease_short(&self, mut ledger: MutexGuard<'_, Ledger>) {
        let short = ledger.short.iter_mut().map(std::mem::take);
        let short: Vec<bool> = short.collect();
        drop(ledger);
        let waiting = short.iter().enumerate().filter(|(_, short)| **short);
        waiting.for_each(|(reactor, _)| self.ease(reactor));
    }
}

/// Whether a quota keeps the turn, or its place in the line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    Stays,
    Ends,
}

/// The share of one connection. Dropping it gives everything back.
pub(crate) struct Quota {
    budget: Arc<Budget>,
    number: u64,
    reactor: usize,
    /// Bytes it may hold: [`OWN`], and what is drawn.
    granted: usize,
    has_turn: bool,
    in_line: bool,
}

impl Quota {
    /// Whether so many bytes may be held.
    #[inline]
    pub(crate) fn covers(&self, bytes: usize) -> bool {
        bytes <= self.granted
    }

    /// Whether anything is drawn.
    #[inline]
    pub(crate) fn has_drawn(&self) -> bool {
        self.granted > OWN || self.has_turn
    }

    /// Whether it has the turn of a large request.
    #[inline]
    pub(crate) fn has_turn(&self) -> bool {
        self.has_turn
    }

    /// Asks to hold so many bytes, which it does not [cover](Quota::covers), for the next request.
    /// The connection holds nothing else if it is `alone`, and may then be given the turn. After a
    /// refusal its reactor is eased when it is worth asking again.
    #[cold]
    pub(crate) fn ask(&mut self, bytes: usize, alone: bool, now: Nanos) -> bool {
        let budget = Arc::clone(&self.budget);
        let mut ledger = budget.ledger();
        let missing = bytes.saturating_sub(self.granted).next_multiple_of(CHUNK);
        let rest = (budget.bound - TURN).checked_sub(ledger.drawn + missing);
        if rest.is_some_and(|rest| self.granted - OWN + missing <= rest) {
            ledger.drawn += missing;
            self.granted += missing;
            let was_in_line = self.in_line;
            self.leave_line(&mut ledger);
            if was_in_line && ledger.turn.is_none() {
                // The turn was free for it, and is for the next one now.
                budget.ease_short(ledger);
            }
            return true;
        }
        if alone && !self.in_line {
            ledger.line.push_back(self.number);
            self.in_line = true;
        }
        if ledger.turn.is_none() && ledger.line.front() == Some(&self.number) {
            ledger.turn = Some(self.number);
            self.has_turn = true;
            self.leave_line(&mut ledger);
            return true;
        }
        ledger.short[self.reactor] = true;
        if ledger.reclaimed.is_none_or(|at| at + RECLAIM_NS <= now) {
            ledger.reclaimed = Some(now);
            let reactors = ledger.short.len();
            drop(ledger);
            (0..reactors).for_each(|reactor| budget.ease(reactor));
        }
        false
    }

    fn leave_line(&mut self, ledger: &mut Ledger) {
        if std::mem::take(&mut self.in_line) {
            ledger.line.retain(|number| *number != self.number);
        }
    }

    /// Gives back what a connection that holds so many bytes does not need.
    pub(crate) fn shrink(&mut self, held: usize) {
        let needed = OWN + held.saturating_sub(OWN).next_multiple_of(CHUNK);
        let turn = if self.has_turn && held <= self.granted { Turn::Ends } else { Turn::Stays };
        if turn == Turn::Ends || needed < self.granted {
            self.settle(needed.min(self.granted), turn);
        }
    }

    /// From now on it pays for I/O whose client has left, all of it.
    pub(crate) fn outlive(&mut self, held: usize) {
        self.settle(OWN + held.next_multiple_of(CHUNK), Turn::Ends);
    }

    /// Makes so many bytes granted.
    fn settle(&mut self, granted: usize, turn: Turn) {
        let budget = Arc::clone(&self.budget);
        let mut ledger = budget.ledger();
        ledger.drawn = ledger.drawn + granted - self.granted;
        self.granted = granted;
        if turn == Turn::Ends {
            self.leave_line(&mut ledger);
            if std::mem::take(&mut self.has_turn) {
                ledger.turn = None;
            }
        }
        budget.ease_short(ledger);
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        if self.has_drawn() || self.in_line {
            self.settle(OWN, Turn::Ends);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    /// Grants as much as there is, chunk by chunk; how much that came to.
    fn take_all(quota: &mut Quota) -> usize {
        while quota.ask(quota.granted + 1, false, Nanos::ZERO) {}
        quota.granted - OWN
    }

    #[test]
    fn greedy_connections_leave_something_for_the_next() {
        let budget = Budget::new(1 << 30, 1);
        let shares: Vec<Quota> = (0..20)
            .map(|_| {
                let mut quota = budget.quota(0);
                take_all(&mut quota);
                quota
            })
            .collect();
        let total = (1 << 30) - TURN;
        assert!(shares[0].granted <= OWN + total / 2);
        assert!(budget.held() < total, "the budget is never all gone");
        for (index, one) in shares.iter().enumerate().take(8) {
            assert!(one.granted - OWN >= total >> (index + 2), "{index}: {}", one.granted);
        }
        drop(shares);
        assert_eq!(budget.held(), 0);
    }

    #[test]
    fn the_turn_is_one_connections_for_one_request_and_goes_on_in_the_order_of_asking() {
        let budget = Budget::new(LEAST, 1);
        let eased = Arc::new(Mutex::new(0));
        let count = Arc::clone(&eased);
        budget.on_ease(move |_| *count.lock().unwrap() += 1);
        let now = Nanos::ZERO;
        let mut quotas: Vec<Quota> = (0..3).map(|_| budget.quota(0)).collect();
        let large = 32 * MIB + ROOM;
        assert!(!quotas[0].ask(large, false, now), "it holds something else");
        assert!(quotas[0].ask(large, true, now));
        assert!(!quotas[0].covers(large), "for one request only");
        assert!(!quotas[1].ask(large, true, now) && !quotas[2].ask(large, true, now));
        assert!(budget.has_line());
        quotas[0].shrink(large);
        assert!(quotas[0].has_turn(), "it is not over");
        let before = *eased.lock().unwrap();
        quotas[0].shrink(OWN);
        assert!(!quotas[0].has_turn() && *eased.lock().unwrap() == before + 1);
        assert!(!quotas[2].ask(large, true, now), "it came after another");
        assert!(!quotas[0].ask(large, true, now), "it had the turn last");
        assert!(quotas[1].ask(large, true, now));
        assert_eq!(budget.held(), TURN);
        quotas.remove(1);
        assert!(quotas[1].ask(large, true, now), "a connection that ends leaves the turn");
        quotas.clear();
        assert!(budget.held() == 0 && !budget.has_line());
    }

    #[test]
    fn a_connection_that_leaves_the_line_lets_the_next_one_on() {
        let budget = Budget::new(LEAST, 1);
        let now = Nanos::ZERO;
        let mut quotas: Vec<Quota> = (0..3).map(|_| budget.quota(0)).collect();
        let large = 32 * MIB + ROOM;
        assert!(quotas[0].ask(large, true, now));
        assert!(!quotas[1].ask(large, true, now) && !quotas[2].ask(large, true, now));
        drop(quotas.remove(1));
        quotas[0].shrink(0);
        assert!(quotas[1].ask(large, true, now));
    }

    #[test]
    fn one_that_had_the_turn_for_the_taking_and_draws_instead_leaves_it_to_the_next() {
        let budget = Budget::new(LEAST, 1);
        let eased = Arc::new(Mutex::new(0));
        let count = Arc::clone(&eased);
        budget.on_ease(move |_| *count.lock().unwrap() += 1);
        let now = Nanos::ZERO;
        let mut quotas: Vec<Quota> = (0..3).map(|_| budget.quota(0)).collect();
        let large = 32 * MIB + ROOM;
        assert!(quotas[0].ask(large, true, now));
        assert!(!quotas[1].ask(large, true, now) && !quotas[2].ask(large, true, now));
        quotas.remove(0);
        // The third asks while the turn is the second's, and is not asked again by that.
        assert!(!quotas[1].ask(large, true, now));
        let before = *eased.lock().unwrap();
        assert!(quotas[0].ask(OWN + 1, true, now) && !quotas[0].has_turn());
        assert_eq!(*eased.lock().unwrap(), before + 1);
        assert!(quotas[1].ask(large, true, now) && quotas[1].has_turn());
    }

    #[test]
    fn a_bound_below_the_least_is_the_least() {
        assert_eq!([0, LEAST + 1].map(|bound| Budget::new(bound, 1).bound()), [LEAST, LEAST + 1]);
    }

    #[test]
    fn what_is_not_used_is_given_back_and_those_that_wait_are_told() {
        let budget = Budget::new(LEAST, 2);
        let eased = Arc::new(Mutex::new(Vec::new()));
        let list = Arc::clone(&eased);
        budget.on_ease(move |reactor| list.lock().unwrap().push(reactor));
        let (mut one, mut other) = (budget.quota(0), budget.quota(1));
        let most = take_all(&mut one);
        assert_eq!(std::mem::take(&mut *eased.lock().unwrap()), [0, 1], "all are asked for more");
        assert!(!other.ask(OWN + most, false, Nanos::ZERO));
        assert!(eased.lock().unwrap().is_empty(), "not so soon again");
        one.shrink(OWN + CHUNK + 1);
        assert_eq!(budget.held(), 2 * CHUNK);
        assert_eq!(std::mem::take(&mut *eased.lock().unwrap()), [0, 1]);
        one.shrink(OWN);
        assert!(eased.lock().unwrap().is_empty(), "none waits");
        assert!(other.ask(OWN + most, false, Nanos::ZERO));
    }

    #[test]
    fn io_that_outlives_its_client_is_paid_for_in_full() {
        let budget = Budget::new(LEAST, 1);
        let mut quotas: Vec<Quota> = (0..200).map(|_| budget.quota(0)).collect();
        assert_eq!(budget.held(), 0);
        quotas.iter_mut().for_each(|quota| quota.outlive(OWN));
        assert!(budget.is_overdrawn());
        assert_eq!(budget.held(), 200 * OWN);
        assert!(!budget.quota(0).ask(OWN + 1, false, Nanos::ZERO));
        quotas.clear();
        assert!(!budget.is_overdrawn() && budget.held() == 0);
    }
}
