//! The rule that one reactor follows: the strongest of those that its clients ask for.
//!
//! A client of a reactor holds a [`PollVote`] for as long as it is served. Votes are counted by
//! rule, so one that comes or goes costs the same whatever their number, and a wait reads the
//! outcome only.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use super::{PollMode, Polling};

/// A rule of polling as a client of a reactor asks for it. A part that is left out is that of the
/// host's rule, whatever it becomes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PollRule {
    /// When.
    pub mode: Option<PollMode>,
    /// The part of its time, percent, that the reactor may poll in `Adaptive` mode: 1 to 100.
    pub share: Option<u8>,
}

impl PollRule {
    /// The whole rule, beside that of the host.
    #[must_use]
    pub fn over(self, host: Polling) -> Polling {
        Polling { mode: self.mode.unwrap_or(host.mode), share: self.share.unwrap_or(host.share) }
    }
}

/// A client's say in the rule that its reactor follows, given back when it is dropped. It belongs
/// to the thread of the reactor.
#[derive(Debug)]
#[must_use]
pub struct PollVote {
    votes: Rc<Votes>,
    rule: PollRule,
}

impl Drop for PollVote {
    fn drop(&mut self) {
        self.votes.withdraw(self.rule);
    }
}

/// The votes of one reactor and their outcome.
#[derive(Debug)]
pub(crate) struct Votes {
    host: Cell<Polling>,
    /// How many ask for each rule; at least one does.
    counts: RefCell<BTreeMap<PollRule, usize>>,
    outcome: Cell<Polling>,
    shown: Arc<ShownRule>,
}

impl Votes {
    pub(crate) fn new(host: Polling, shown: Arc<ShownRule>) -> Votes {
        let votes = Votes {
            host: Cell::new(host),
            counts: RefCell::default(),
            outcome: Cell::new(host),
            shown,
        };
        votes.count();
        votes
    }

    /// The rule that holds now.
    #[inline]
    pub(crate) fn outcome(&self) -> Polling {
        self.outcome.get()
    }

    /// The host has another rule.
    pub(crate) fn set_host(&self, rule: Polling) {
        self.host.set(rule);
        self.count();
    }

    /// A client asks for this rule.
    pub(crate) fn vote(votes: &Rc<Votes>, rule: PollRule) -> PollVote {
        *votes.counts.borrow_mut().entry(rule).or_default() += 1;
        votes.count();
        PollVote { votes: Rc::clone(votes), rule }
    }

    fn withdraw(&self, rule: PollRule) {
        let mut counts = self.counts.borrow_mut();
        let count = counts.get_mut(&rule).expect("it was counted");
        *count -= 1;
        if *count == 0 {
            counts.remove(&rule);
        }
        drop(counts);
        self.count();
    }

    /// Rules there are few of, however many clients ask for them.
    fn count(&self) {
        let host = self.host.get();
        let rules = self.counts.borrow();
        let strongest = rules.keys().map(|rule| rule.over(host)).max();
        self.outcome.set(strongest.unwrap_or(host));
        self.shown.set(self.outcome.get());
    }
}

/// The rule that a reactor follows, for other threads. The reactor alone writes it.
#[derive(Debug, Default)]
pub(crate) struct ShownRule(AtomicU16);

impl ShownRule {
    pub(crate) fn set(&self, rule: Polling) {
        let mode = match rule.mode {
            PollMode::Off => 0,
            PollMode::Adaptive => 1,
            PollMode::Always => 2,
        };
        self.0.store(mode << 8 | u16::from(rule.share), Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> Polling {
        let [mode, share] = self.0.load(Ordering::Relaxed).to_be_bytes();
        let mode = match mode {
            0 => PollMode::Off,
            1 => PollMode::Adaptive,
            _ => PollMode::Always,
        };
        Polling { mode, share }
    }
}

#[cfg(test)]
mod tests {
    use super::PollMode::{Adaptive, Always, Off};
    use super::*;

    const fn polling(mode: PollMode, share: u8) -> Polling {
        Polling { mode, share }
    }

    const fn rule(mode: Option<PollMode>, share: Option<u8>) -> PollRule {
        PollRule { mode, share }
    }

    fn votes(host: Polling) -> Rc<Votes> {
        Rc::new(Votes::new(host, Arc::default()))
    }

    #[test]
    fn the_strongest_rule_holds_and_goes_with_the_last_that_asked_for_it() {
        let votes = votes(polling(Off, 80));
        let vote = |mode, share| Votes::vote(&votes, rule(mode, share));
        let holds = || votes.outcome();
        assert_eq!(holds(), polling(Off, 80));
        let slow = vote(Some(Adaptive), Some(20));
        assert_eq!(holds(), polling(Adaptive, 20));
        let quiet = [vote(None, None), vote(Some(Off), Some(100))];
        assert_eq!(holds(), polling(Adaptive, 20), "a share counts among rules of its mode");
        let fast = [vote(Some(Adaptive), None), vote(Some(Adaptive), None)];
        assert_eq!(holds(), polling(Adaptive, 80), "the share of the host");
        let always = vote(Some(Always), Some(1));
        assert_eq!(holds(), polling(Always, 1));
        drop(always);
        assert_eq!(holds(), polling(Adaptive, 80));
        let [one, other] = fast;
        drop(one);
        assert_eq!(holds(), polling(Adaptive, 80), "another asks for it");
        drop(other);
        assert_eq!(holds(), polling(Adaptive, 20));
        drop(slow);
        assert_eq!(holds().mode, Off);
        drop(quiet);
        assert_eq!(holds(), polling(Off, 80));
        assert!(votes.counts.borrow().is_empty());
    }

    #[test]
    fn the_rule_of_the_host_holds_for_what_a_vote_leaves_out_and_where_there_is_none() {
        let votes = votes(polling(Always, 80));
        let quiet = Votes::vote(&votes, rule(Some(Off), None));
        assert_eq!(votes.outcome(), polling(Off, 80), "none asks for the host's rule");
        let any = Votes::vote(&votes, PollRule::default());
        assert_eq!(votes.outcome(), polling(Always, 80));
        drop(any);
        let part = Votes::vote(&votes, rule(None, Some(30)));
        assert_eq!(votes.outcome(), polling(Always, 30));
        for (mode, share) in [(Adaptive, 90), (Off, 10)] {
            votes.set_host(polling(mode, share));
            assert_eq!(votes.outcome(), polling(mode, 30));
        }
        drop(part);
        assert_eq!(votes.outcome(), polling(Off, 10));
        votes.set_host(polling(Always, 10));
        assert_eq!(votes.outcome(), polling(Off, 10));
        drop(quiet);
        assert_eq!(votes.outcome(), polling(Always, 10));
    }

    #[test]
    fn other_threads_see_the_rule_that_holds() {
        let shown = Arc::<ShownRule>::default();
        let votes = Rc::new(Votes::new(polling(Off, 7), Arc::clone(&shown)));
        assert_eq!(shown.get(), polling(Off, 7));
        for mode in [Off, Adaptive, Always] {
            let vote = Votes::vote(&votes, rule(Some(mode), Some(100)));
            assert_eq!(shown.get(), polling(mode, 100));
            drop(vote);
            assert_eq!(shown.get(), polling(Off, 7));
        }
    }

    #[test]
    fn a_thousand_clients_of_one_rule_are_counted_once() {
        let votes = votes(Polling::default());
        let of = |share| rule(Some(Adaptive), Some(share));
        let all: Vec<_> = (0..500).map(|_| [1, 2].map(|n| Votes::vote(&votes, of(n)))).collect();
        assert_eq!(votes.counts.borrow().len(), 2);
        assert_eq!(votes.outcome(), polling(Adaptive, 2));
        drop(all);
        assert_eq!(votes.outcome(), Polling::default());
    }
}
