//! What a reactor does with nothing to do: it sleeps at once, or polls for a while before.
//!
//! A thread that sleeps is woken by the kernel, which takes longer than most requests on a fast
//! device do. A thread that polls has no such way to go, and takes a CPU for it. So nothing is
//! polled unless that was asked for, and `adaptive` polls only for waits that are short as a rule,
//! and within its share of a CPU.
//!
//! This is not a loop and reads no clock: `reactor.rs` asks how long to poll and says how it went.

mod votes;

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_bio::Nanos;

pub use votes::{PollRule, PollVote};
pub(crate) use votes::{ShownRule, Votes};

/// Whether a reactor polls before it sleeps; the stronger mode is the greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum PollMode {
    /// It sleeps at once. An idle process uses no CPU.
    #[default]
    Off,
    /// It polls for about as long as the last waits took, if those were short.
    Adaptive,
    /// It never sleeps, so each reactor takes a whole CPU.
    Always,
}

/// The rule by which a reactor polls; the stronger one is the greater. All reactors of a host
/// follow that of the host, unless clients [vote](crate::Turn::vote) for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Polling {
    /// When.
    pub mode: PollMode,
    /// The part of its time, percent, that a reactor may poll in `Adaptive` mode: 1 to 100.
    pub share: u8,
}

impl Default for Polling {
    fn default() -> Polling {
        Polling { mode: PollMode::Off, share: 80 }
    }
}

/// The cost and the gain of polling on one reactor, since it was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PollCounts {
    /// Waits that were polled.
    pub polls: u64,
    /// Those that ended while it polled: sleeps and wake-ups that were saved.
    pub met: u64,
    /// Time it polled, ns.
    pub polled_ns: u64,
    /// That of it which was in vain: a sleep came after all, ns.
    pub vain_ns: u64,
}

/// The counts of one reactor, for other threads. The reactor alone writes them.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    polls: AtomicU64,
    met: AtomicU64,
    polled_ns: AtomicU64,
    vain_ns: AtomicU64,
}

impl Counters {
    pub(crate) fn read(&self) -> PollCounts {
        let read = |one: &AtomicU64| one.load(Ordering::Relaxed);
        PollCounts {
            polls: read(&self.polls),
            met: read(&self.met),
            polled_ns: read(&self.polled_ns),
            vain_ns: read(&self.vain_ns),
        }
    }
}

/// Waits up to so long are worth polling for, ns: a sleep and the way back from it cost up to some
/// 50 us on a virtual machine, and a flash disk answers within 100.
const WAIT_MAX_NS: u64 = 200_000;

/// A wait that is polled at all is polled for so long, ns: about what a sleep and the way back
/// cost, so that polling in vain at most doubles what the wait costs. Short waits come in runs: as
/// long as the answer comes before the client has gone to sleep, its next request does too.
const POLL_MIN_NS: u64 = 100_000;

/// A longer wait counts as one of so much, ns: after an hour without requests, a few short waits
/// are enough to poll again.
const WAIT_COUNTED_NS: u64 = 4 * WAIT_MAX_NS;

/// The newest wait counts for one part in so many of what is expected.
const WEIGHT: u64 = 4;

/// The share may be used up so far in one go, ns of time that passes: a reactor that was idle for
/// long has not saved up more.
const BURST_NS: u64 = 10_000_000;

/// The waits of one reactor.
pub(crate) struct Waits {
    votes: Rc<Votes>,
    /// How long a wait takes, as the last ones did, ns.
    expected_ns: u64,
    /// Time that may be polled, ns.
    allowance_ns: u64,
    /// When the allowance last grew.
    counted: Nanos,
    counters: Arc<Counters>,
}

impl Waits {
    pub(crate) fn new(votes: Rc<Votes>, now: Nanos, counters: Arc<Counters>) -> Waits {
        Waits { votes, expected_ns: WAIT_COUNTED_NS, allowance_ns: 0, counted: now, counters }
    }

    /// Whether any wait may be polled.
    #[inline]
    pub(crate) fn polls(&self) -> bool {
        self.votes.outcome().mode != PollMode::Off
    }

    /// A wait begins: until when it is to be polled, if at all.
    #[inline]
    pub(crate) fn begin(&mut self, now: Nanos) -> Option<Nanos> {
        match self.votes.outcome().mode {
            PollMode::Off => None,
            PollMode::Always => Some(Nanos(u64::MAX)),
            PollMode::Adaptive => self.begin_adaptive(now),
        }
    }

    fn begin_adaptive(&mut self, now: Nanos) -> Option<Nanos> {
        let share = u64::from(self.votes.outcome().share.clamp(1, 100));
        let passed = now.since(self.counted).min(BURST_NS);
        self.counted = now;
        self.allowance_ns = (self.allowance_ns + passed * share / 100).min(BURST_NS * share / 100);
        if self.expected_ns > WAIT_MAX_NS {
            return None;
        }
        // Twice what is expected: most waits of that kind end before.
        let most = (2 * self.expected_ns).max(POLL_MIN_NS).min(self.allowance_ns);
        // A part of a wait would nearly always be in vain.
        (most >= self.expected_ns).then(|| now + most)
    }

    /// A wait that began at `begun` was polled until `now`; whether that ended it.
    pub(crate) fn polled(&mut self, begun: Nanos, now: Nanos, met: bool) {
        let took = now.since(begun);
        self.allowance_ns = self.allowance_ns.saturating_sub(took);
        let add = |to: &AtomicU64, what: u64| {
            to.store(to.load(Ordering::Relaxed) + what, Ordering::Relaxed);
        };
        add(&self.counters.polls, 1);
        add(&self.counters.polled_ns, took);
        if met {
            add(&self.counters.met, 1);
            self.ended(begun, now);
        } else {
            add(&self.counters.vain_ns, took);
        }
    }

    /// A wait has ended.
    #[inline]
    pub(crate) fn ended(&mut self, begun: Nanos, now: Nanos) {
        let took = now.since(begun).min(WAIT_COUNTED_NS);
        self.expected_ns = (self.expected_ns * (WEIGHT - 1) + took) / WEIGHT;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000;
    const MS: u64 = 1_000_000;

    /// A reactor's waits in virtual time, each behind a moment of work.
    struct Scene {
        waits: Waits,
        counters: Arc<Counters>,
        now: Nanos,
    }

    impl Scene {
        fn new(mode: PollMode, share: u8) -> Scene {
            let counters = Arc::new(Counters::default());
            // A clock does not begin at 0.
            let now = Nanos(1 << 40);
            let votes = Rc::new(Votes::new(Polling { mode, share }, Arc::default()));
            let waits = Waits::new(votes, now, Arc::clone(&counters));
            Scene { waits, counters, now }
        }

        /// Work of 2 us, and a wait that something ends after `ns`; how long it was polled.
        fn wait(&mut self, ns: u64) -> u64 {
            self.now = self.now + 2 * US;
            let (begun, event) = (self.now, self.now + ns);
            let Some(until) = self.waits.begin(begun) else {
                self.now = event;
                self.waits.ended(begun, event);
                return 0;
            };
            self.now = until.min(event);
            let met = event <= until;
            self.waits.polled(begun, self.now, met);
            let took = self.now.since(begun);
            if !met {
                self.now = event;
                self.waits.ended(begun, event);
            }
            took
        }

        fn counts(&self) -> PollCounts {
            self.counters.read()
        }
    }

    #[test]
    fn nothing_is_polled_unless_that_is_asked_for_and_always_means_always() {
        let mut off = Scene::new(PollMode::Off, 100);
        assert_eq!((0..1000).map(|_| off.wait(5 * US)).sum::<u64>(), 0);
        assert_eq!(off.counts(), PollCounts::default());
        let mut always = Scene::new(PollMode::Always, 1);
        for ns in [US, MS, 5_000 * MS] {
            assert_eq!(always.wait(ns), ns);
        }
        assert_eq!((always.counts().met, always.counts().vain_ns), (3, 0));
    }

    #[test]
    fn short_waits_are_polled_and_long_ones_are_not() {
        let mut scene = Scene::new(PollMode::Adaptive, 100);
        // As long as it takes to learn that they are short.
        (0..20).for_each(|_| _ = scene.wait(30 * US));
        let before = scene.counts();
        assert!((0..1000).all(|_| scene.wait(30 * US) == 30 * US));
        let after = scene.counts();
        assert_eq!((after.met - before.met, after.vain_ns), (1000, 0));
        // Longer ones for twice what is expected.
        let mut scene = Scene::new(PollMode::Adaptive, 100);
        (0..50).for_each(|_| _ = scene.wait(150 * US));
        assert_eq!(scene.wait(MS), 300 * US);
        let mut scene = Scene::new(PollMode::Adaptive, 100);
        assert_eq!((0..1000).map(|_| scene.wait(900 * US)).sum::<u64>(), 0);
    }

    #[test]
    fn polling_stops_soon_when_it_does_not_pay_and_begins_again_when_it_does() {
        let mut scene = Scene::new(PollMode::Adaptive, 100);
        (0..50).for_each(|_| _ = scene.wait(20 * US));
        assert_eq!(scene.wait(1000 * MS), POLL_MIN_NS);
        let vain = scene.counts().vain_ns;
        (0..50).for_each(|_| _ = scene.wait(1000 * MS));
        assert!(scene.counts().vain_ns - vain <= 2 * WAIT_MAX_NS, "{:?}", scene.counts());
        let again = (0..100).position(|_| scene.wait(20 * US) > 0).expect("polled again");
        assert!(again <= 10, "{again} short waits before one is polled");
    }

    #[test]
    fn no_more_than_its_share_of_a_reactors_time_is_polled() {
        for share in [1, 10, 50, 80] {
            let mut scene = Scene::new(PollMode::Adaptive, share);
            let begun = scene.now;
            let polled: u64 = (0..100_000).map(|_| scene.wait(30 * US)).sum();
            let part = |of_ns: u64| of_ns * u64::from(share) / 100;
            let (fair, burst) = (part(scene.now.since(begun)), part(BURST_NS));
            assert!(polled <= fair + burst, "{share} %: {polled}, {fair}");
            assert!(polled >= fair * 9 / 10, "{share} %: {polled}, {fair}");
            assert_eq!(scene.counts().polled_ns, polled);
        }
    }

    #[test]
    fn a_long_sleep_saves_nothing_up() {
        let mut scene = Scene::new(PollMode::Adaptive, 10);
        scene.wait(3600 * 1000 * MS);
        // The allowance grows when the next wait begins.
        scene.wait(30 * US);
        assert!(scene.waits.allowance_ns <= BURST_NS / 10, "{} ns", scene.waits.allowance_ns);
        (0..20).for_each(|_| _ = scene.wait(30 * US));
        assert!(scene.counts().polled_ns <= BURST_NS / 10 + MS);
    }

    #[test]
    fn another_rule_holds_from_the_next_wait_on() {
        let mut scene = Scene::new(PollMode::Always, 100);
        assert_eq!(scene.wait(5 * MS), 5 * MS);
        scene.waits.votes.set_host(Polling::default());
        assert_eq!(scene.wait(5 * MS), 0);
    }
}
