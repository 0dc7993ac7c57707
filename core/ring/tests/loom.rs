//! The protocols between threads, under every interleaving and every stale read that loom finds.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p weir-ring --release --test loom
//! ```
//!
//! Each model has at most three threads and room for two, as its state space grows with the
//! factorial of its steps. A sleeping owner waits until it is woken, so a lost wake-up is a
//! deadlock, which loom reports; data behind a protocol lies in loom's cells, so a missing ordering
//! is two threads at one cell, which loom reports too. Loom runs each thread's steps in program
//! order, so it sees neither a load that moves behind a later store nor two exchanges that change
//! places: `tests/stress.rs` runs the same protocols on real processors.

#![cfg(loom)]

use std::sync::atomic::AtomicUsize as Tally;

use loom::cell::UnsafeCell;
use loom::sync::{Arc, Notify};
use loom::thread;
use weir_ring::combiner::TENURE;
use weir_ring::sync::{AtomicUsize, Ordering, fence};
use weir_ring::{
    Asked, Asking, Claim, Combiner, Consumer, Doorbell, Gate, Inbox, Outgoing, PendingBits,
    Producer, Right, Roster, TagWords, Wake, Work, ring,
};

/// Preemptions per execution unless `LOOM_MAX_PREEMPTIONS` says otherwise; loom's guide
/// recommends 2 or 3.
const PREEMPTIONS_MAX: usize = 3;

fn model(body: impl Fn() + Send + Sync + 'static) {
    explore(0, body);
}

/// For three threads with several steps each: one preemption less, which keeps it to seconds.
fn large_model(body: impl Fn() + Send + Sync + 'static) {
    explore(1, body);
}

fn explore(fewer: usize, body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    let preemptions = builder.preemption_bound.unwrap_or(PREEMPTIONS_MAX).saturating_sub(fewer);
    builder.preemption_bound = Some(preemptions);
    let executions = std::sync::Arc::new(Tally::new(0));
    let counted = std::sync::Arc::clone(&executions);
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        body();
    });
    let executions = executions.load(Ordering::Relaxed);
    println!("{executions} executions with at most {preemptions} preemptions");
    assert!(executions > 10, "{executions} executions: nothing was interleaved");
}

/// Data without an order of its own: two threads at it at once fail the model.
struct Watched(UnsafeCell<u32>);

impl Watched {
    fn new(value: u32) -> Watched {
        Watched(UnsafeCell::new(value))
    }

    fn add(&self, n: u32) {
        // SAFETY: the model fails if another thread is here.
        self.0.with_mut(|value| unsafe { *value += n });
    }

    fn read(&self) -> u32 {
        // SAFETY: the model fails if another thread writes meanwhile.
        self.0.with(|value| unsafe { *value })
    }
}

// SAFETY: loom holds the accesses apart, or fails.
unsafe impl Sync for Watched {}

/// Where an owner sleeps. Loom wakes it once for no reason, too.
#[derive(Default)]
struct Bed {
    notify: Notify,
    /// A tally of the test's own and no part of the protocol, so loom need not know it.
    wakes: Tally,
}

struct Waker(Arc<Bed>);

impl Wake for Waker {
    fn wake(&self) {
        self.0.wakes.fetch_add(1, Ordering::Relaxed);
        self.0.notify.notify();
    }
}

fn bell() -> (Doorbell, Arc<Bed>) {
    let bed = Arc::new(Bed::default());
    (Doorbell::new(Box::new(Waker(Arc::clone(&bed)))), bed)
}

// ---- the ring ----

#[test]
fn a_ring_hands_items_over_in_order_round_its_end() {
    model(|| {
        let (mut tx, mut rx) = ring(2);
        // One item on, so that what follows goes round the end.
        assert!(tx.push(Watched::new(0)).is_ok() && tx.publish());
        assert!(rx.pop().is_some());
        rx.release();

        let producer = thread::spawn(move || {
            let mut pushed = 0;
            while pushed < 4 && tx.push(Watched::new(pushed + 1)).is_ok() {
                pushed += 1;
                // The first two go in one publication.
                assert!(pushed == 1 || tx.publish());
            }
            pushed
        });
        let mut popped = 0;
        let mut pop = |rx: &mut weir_ring::Consumer<Watched>| {
            while let Some(item) = rx.pop() {
                popped += 1;
                assert_eq!(item.read(), popped);
            }
            rx.release();
            popped
        };
        pop(&mut rx);
        pop(&mut rx);
        let pushed = producer.join().unwrap();
        assert!(pushed >= 2);
        assert_eq!(pop(&mut rx), pushed);
    });
}

#[test]
fn a_ring_whose_ends_go_away_at_once_drops_each_item_once() {
    model(|| {
        let counted = Arc::new(());
        let (mut tx, mut rx) = ring(2);
        let items = [Arc::clone(&counted), Arc::clone(&counted)];
        let producer = thread::spawn(move || {
            let [first, second] = items;
            assert!(tx.push(first).is_ok() && tx.publish());
            assert!(tx.push(second).is_ok(), "room for two, and this one stays unpublished");
        });
        drop(rx.pop());
        drop(rx);
        producer.join().unwrap();
        assert_eq!(Arc::strong_count(&counted), 1);
    });
}

// ---- the inbox ----

fn post(inbox: &Inbox<Watched>, values: std::ops::Range<u32>) -> bool {
    let mut chain = Outgoing::default();
    for n in values {
        let claim = Claim::new(Watched::new(0));
        claim.add(n);
        chain.push(claim);
    }
    inbox.post(&mut chain)
}

#[test]
fn an_inbox_loses_nothing_and_one_poster_finds_it_empty_per_emptying() {
    model(|| {
        let inbox = Arc::new(Inbox::default());
        let posters = [10..12, 20..21].map(|values| {
            let inbox = Arc::clone(&inbox);
            thread::spawn(move || post(&inbox, values))
        });
        let (mut seen, mut emptied) = (Vec::new(), 0);
        let mut take = || {
            let before = seen.len();
            seen.extend(inbox.take().map(|claim| claim.read()));
            emptied += usize::from(seen.len() > before);
        };
        take();
        take();
        let found_empty = posters.map(|poster| usize::from(poster.join().unwrap()));
        take();
        assert_eq!(found_empty.iter().sum::<usize>(), emptied);
        let place = |n: u32| seen.iter().position(|seen| *seen == n).expect("it was posted");
        assert!(place(10) < place(11));
        assert_eq!((place(20) < 3, seen.len()), (true, 3));
    });
}

#[test]
fn an_owner_asleep_on_its_inbox_is_woken_by_the_post_that_found_it_empty() {
    large_model(|| {
        let (bell, bed) = bell();
        let shared = Arc::new((Inbox::default(), bell));
        let posters = [1, 2].map(|n| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                if post(&shared.0, n..n + 1) {
                    shared.1.ring();
                }
            })
        });
        let (inbox, bell) = &*shared;
        let (mut sum, mut sleeps) = (0, 0);
        while sum != 3 {
            sum += inbox.take().map(|claim| claim.read()).sum::<u32>();
            if sum != 3 {
                sleeps += 1;
                bell.prepare_sleep();
                if inbox.is_empty() {
                    bed.notify.wait();
                }
                bell.awake();
            }
        }
        posters.into_iter().for_each(|poster| poster.join().unwrap());
        assert!(bed.wakes.load(Ordering::Relaxed) <= sleeps, "more than one wake per sleep");
    });
}

#[test]
fn a_claim_that_goes_round_a_ring_and_an_inbox_is_held_by_one_thread_at_a_time() {
    model(|| {
        let (mut tx, mut rx) = ring(2);
        for _ in 0..2 {
            assert!(tx.push(Claim::new(Watched::new(0))).is_ok());
        }
        tx.publish();
        let inbox = Arc::new(Inbox::default());
        let other = {
            let inbox = Arc::clone(&inbox);
            thread::spawn(move || {
                let mut touched = 0;
                for _ in 0..2 {
                    let mut chain = Outgoing::default();
                    while let Some(claim) = rx.pop() {
                        claim.add(1);
                        touched += 1;
                        chain.push(claim);
                    }
                    rx.release();
                    inbox.post(&mut chain);
                }
                (touched, rx)
            })
        };
        let (mut touched, mut kept) = (0, Vec::new());
        for _ in 0..2 {
            for claim in inbox.take() {
                claim.add(1);
                touched += 1;
                kept.extend(tx.push(claim).err());
            }
            tx.publish();
        }
        let (others, mut rx) = other.join().unwrap();
        kept.extend(inbox.take());
        kept.extend(std::iter::from_fn(|| rx.pop()));
        assert_eq!(kept.len(), 2);
        assert_eq!(kept.iter().map(|claim| claim.read()).sum::<u32>(), touched + others);
    });
}

// ---- the combiner ----

/// The state under the right: the far end of each member's ring, and how much it has taken in.
struct Lines {
    left: Vec<Consumer<u32>>,
    taken: u32,
}

impl Lines {
    fn take_over(&mut self, member: usize) {
        while let Some(item) = self.left[member].pop() {
            self.taken += item;
        }
    }
}

/// A member's end of its ring, and what it has at hand.
struct Seat {
    index: usize,
    ring: Producer<u32>,
    brings: u32,
}

impl Work<Lines> for Seat {
    fn leave(&mut self) -> bool {
        if self.brings > 0 {
            if self.ring.room(1) == 0 {
                return false;
            }
            self.ring.push(std::mem::take(&mut self.brings)).unwrap();
            self.ring.publish();
        }
        true
    }

    fn combine(&mut self, lines: &mut Lines, asking: &mut Asking<'_>) {
        lines.take_over(self.index);
        lines.taken += std::mem::take(&mut self.brings);
        loop {
            let mut others = asking.take();
            while others != 0 {
                lines.take_over(others.trailing_zeros() as usize);
                others &= others - 1;
            }
            // One look is a turn, so that models are small.
            if !asking.goes_on(TENURE) {
                return;
            }
        }
    }

    fn combined(&mut self) {}
}

fn combiner() -> (Arc<Combiner<Lines>>, [Seat; 2]) {
    let (mut rings, left): (Vec<_>, Vec<_>) = (0..2).map(|_| ring(1)).unzip();
    let seats = [0, 1].map(|index| Seat { index, ring: rings.remove(0), brings: 0 });
    (Arc::new(Combiner::new(Lines { left, taken: 0 }, 2)), seats)
}

/// Brings so much, and comes back for others if it is to.
fn bring(combiner: &Combiner<Lines>, seat: &mut Seat, much: u32) {
    seat.brings = much;
    while combiner.ask(seat.index, None, seat) == Asked::Again {}
}

#[track_caller]
fn check(combiner: &Combiner<Lines>, all: u32) {
    let lines = combiner.try_take().expect("nobody holds it");
    assert_eq!(lines.taken, all, "something is left for ever");
}

#[test]
fn what_is_left_while_another_holds_the_right_is_taken() {
    model(|| {
        let (work, [mut own, mut other]) = combiner();
        let member = {
            let work = Arc::clone(&work);
            thread::spawn(move || bring(&work, &mut other, 1))
        };
        bring(&work, &mut own, 1);
        member.join().unwrap();
        check(&work, 2);
    });
}

#[test]
fn what_is_left_while_another_works_alone_is_taken() {
    model(|| {
        let (work, [mut own, mut other]) = combiner();
        let member = {
            let work = Arc::clone(&work);
            thread::spawn(move || bring(&work, &mut other, 1))
        };
        match work.try_take_alone() {
            Some(mut lines) => {
                lines.taken += 1;
                if work.let_go_alone(lines, false) {
                    bring(&work, &mut own, 0);
                }
            }
            None => bring(&work, &mut own, 1),
        }
        member.join().unwrap();
        check(&work, 2);
    });
}

#[test]
fn what_two_leave_round_after_round_is_taken() {
    large_model(|| {
        let (work, [mut own, mut other]) = combiner();
        let member = {
            let work = Arc::clone(&work);
            thread::spawn(move || {
                for much in [1, 10] {
                    bring(&work, &mut other, much);
                }
            })
        };
        for much in [100, 1000] {
            bring(&work, &mut own, much);
        }
        member.join().unwrap();
        check(&work, 1111);
    });
}

#[test]
fn what_is_left_to_one_who_stands_and_is_about_to_sleep_is_seen_or_wakes_it() {
    model(|| {
        let (bell, bed) = bell();
        let (work, [mut stands, mut other]) = combiner();
        let shared = Arc::new((work, bell, AtomicUsize::new(0)));
        let member = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let (work, bell, went_itself) = &*shared;
                if bell.is_asleep() {
                    bring(work, &mut other, 1);
                    went_itself.store(1, Ordering::Relaxed);
                    bell.ring();
                } else {
                    // Though the right is free.
                    other.brings = 1;
                    assert_eq!(work.ask(1, Some(0), &mut other), Asked::Delegated(0));
                    bell.ring_ordered();
                }
            })
        };
        let (work, bell, went_itself) = &*shared;
        let is_over = || work.has_asked(1) || went_itself.load(Ordering::Relaxed) == 1;
        bell.wait_until(is_over, || bed.notify.wait());
        bring(work, &mut stands, 0);
        member.join().unwrap();
        check(work, 1);
    });
}

/// A member with a result for an owner that sleeps until it is there.
struct Gives {
    seat: Seat,
    owner: Arc<(Doorbell, AtomicUsize)>,
}

impl Work<Lines> for Gives {
    fn leave(&mut self) -> bool {
        self.seat.leave()
    }

    fn combine(&mut self, lines: &mut Lines, asking: &mut Asking<'_>) {
        self.seat.combine(lines, asking);
        self.owner.1.store(1, Ordering::Relaxed);
    }

    fn combined(&mut self) {
        // Letting go of the right was the fence.
        self.owner.0.ring_ordered();
    }
}

#[test]
fn who_combines_tells_an_owner_about_to_sleep_after_the_fence_of_letting_go() {
    model(|| {
        let (bell, bed) = bell();
        let (work, [_, seat]) = combiner();
        let owner = Arc::new((bell, AtomicUsize::new(0)));
        let member = {
            let mut gives = Gives { seat, owner: Arc::clone(&owner) };
            thread::spawn(move || work.ask(1, None, &mut gives))
        };
        let (bell, result) = &*owner;
        bell.wait_until(|| result.load(Ordering::Relaxed) == 1, || bed.notify.wait());
        assert_eq!(member.join().unwrap(), Asked::Done);
    });
}

#[test]
fn who_waits_for_the_right_tells_those_who_were_turned_away() {
    model(|| {
        let (work, [mut seat, _]) = combiner();
        let member = {
            let work = Arc::clone(&work);
            thread::spawn(move || bring(&work, &mut seat, 1))
        };
        // A control call that changes the state, and does no member's work.
        let mut changing = work.take();
        changing.taken += 10;
        let mut told = false;
        work.let_go(changing, |_| told = true);
        member.join().unwrap();
        let mut lines = work.try_take().expect("nobody holds it");
        if told {
            lines.take_over(0);
        }
        assert_eq!(lines.taken, 11, "the member was forgotten");
    });
}

#[test]
fn three_threads_hold_the_right_one_at_a_time() {
    large_model(|| {
        let right = Arc::new(Right::new(0));
        let take = |right: &Right<u32>| {
            right.try_take().map_or(0, |mut held| {
                *held += 1;
                1
            })
        };
        let others = [(); 2].map(|()| {
            let right = Arc::clone(&right);
            thread::spawn(move || take(&right) + take(&right))
        });
        let mine = take(&right);
        let all = mine + others.map(|other| other.join().unwrap()).iter().sum::<u32>();
        assert_eq!(right.try_take().as_deref(), Some(&all));
    });
}

// ---- the doorbell and the pending bits ----

#[test]
fn a_producer_that_rings_is_seen_or_wakes_the_owner() {
    large_model(|| {
        let (bell, bed) = bell();
        let shared = Arc::new(([0; 2].map(AtomicUsize::new), bell));
        let producers = [0, 1].map(|source| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                shared.0[source].store(1, Ordering::Relaxed);
                shared.1.ring();
            })
        });
        let (items, bell) = &*shared;
        let (mut seen, mut sleeps) = (0, 0);
        while seen != 2 {
            sleeps += 1;
            bell.prepare_sleep();
            let now = items.iter().map(|item| item.load(Ordering::Relaxed)).sum();
            if now == seen {
                bed.notify.wait();
            }
            bell.awake();
            seen = now;
        }
        producers.into_iter().for_each(|producer| producer.join().unwrap());
        assert!(bed.wakes.load(Ordering::Relaxed) <= sleeps, "more than one wake per sleep");
    });
}

/// Sources with a version each; a word of its own for each, or one word for both, with a summary
/// or without.
struct Sources {
    pending: PendingBits,
    names: [usize; 2],
    versions: [AtomicUsize; 2],
}

impl Sources {
    fn new(names: [usize; 2]) -> Sources {
        let pending = PendingBits::new(names[1] + 1);
        Sources { pending, names, versions: [0; 2].map(AtomicUsize::new) }
    }

    fn publish(&self, source: usize, version: usize) {
        self.versions[source].store(version, Ordering::Relaxed);
        self.pending.mark(self.names[source]);
    }

    fn look(&self, seen: &mut [usize; 2]) {
        self.pending.take(|name| {
            let source = usize::from(name == self.names[1]);
            seen[source] = self.versions[source].load(Ordering::Relaxed);
        });
    }
}

fn marks_are_never_lost(names: [usize; 2]) {
    model(move || {
        let sources = Arc::new(Sources::new(names));
        let twice = {
            let sources = Arc::clone(&sources);
            thread::spawn(move || {
                sources.publish(0, 1);
                sources.publish(0, 2);
            })
        };
        let once = {
            let sources = Arc::clone(&sources);
            thread::spawn(move || sources.publish(1, 1))
        };
        let mut seen = [0; 2];
        sources.look(&mut seen);
        twice.join().unwrap();
        once.join().unwrap();
        sources.look(&mut seen);
        assert_eq!(seen, [2, 1]);
    });
}

#[test]
fn marks_in_the_only_word_are_never_lost() {
    marks_are_never_lost([3, 5]);
}

#[test]
fn marks_in_one_word_are_never_lost() {
    marks_are_never_lost([67, 69]);
}

#[test]
fn marks_in_two_words_are_never_lost() {
    marks_are_never_lost([3, 64]);
}

#[test]
fn two_that_mark_one_source_lose_neither() {
    model(|| {
        let sources = Arc::new(Sources::new([3, 64]));
        let other = {
            let sources = Arc::clone(&sources);
            thread::spawn(move || {
                sources.versions[0].fetch_add(1, Ordering::Relaxed);
                sources.pending.mark(3);
            })
        };
        let taker = {
            let sources = Arc::clone(&sources);
            thread::spawn(move || {
                let mut seen = [0; 2];
                sources.look(&mut seen);
                seen
            })
        };
        sources.versions[0].fetch_add(1, Ordering::Relaxed);
        sources.pending.mark(3);
        other.join().unwrap();
        let mut seen = taker.join().unwrap();
        sources.look(&mut seen);
        assert_eq!(seen, [2, 0]);
    });
}

#[test]
fn a_mark_is_seen_by_an_owner_about_to_sleep_or_wakes_it() {
    model(|| {
        let (bell, bed) = bell();
        let shared = Arc::new((Sources::new([3, 64]), bell));
        let producer = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                for version in 1..=2 {
                    shared.0.publish(0, version);
                    shared.1.ring_ordered();
                }
            })
        };
        let (sources, bell) = &*shared;
        let mut seen = [0; 2];
        while seen != [2, 0] {
            sources.look(&mut seen);
            if seen != [2, 0] {
                bell.prepare_sleep();
                if !sources.pending.any() {
                    bed.notify.wait();
                }
                bell.awake();
            }
        }
        producer.join().unwrap();
    });
}

#[test]
fn two_who_mark_one_source_wake_an_owner_that_waits_for_the_mark() {
    large_model(|| {
        let (bell, bed) = bell();
        let shared = Arc::new((PendingBits::new(1), bell));
        let markers = [(); 2].map(|()| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                shared.0.mark(0);
                shared.1.ring_ordered();
            })
        });
        let (pending, bell) = &*shared;
        bell.wait_until(|| pending.any(), || bed.notify.wait());
        pending.take(|source| assert_eq!(source, 0));
        markers.into_iter().for_each(|marker| marker.join().unwrap());
    });
}

// ---- the roster ----

/// An owner's lanes: the roster, what was published at each place, and the owner's bell.
struct Reactor {
    roster: Roster,
    published: [AtomicUsize; 2],
    bell: Doorbell,
    bed: Arc<Bed>,
}

impl Reactor {
    fn new() -> Arc<Reactor> {
        let (bell, bed) = bell();
        let published = [0; 2].map(AtomicUsize::new);
        Arc::new(Reactor { roster: Roster::new(2), published, bell, bed })
    }

    fn publish(&self, place: usize) {
        self.published[place].fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.roster.mark_ordered(place);
        self.bell.ring_ordered();
    }

    /// Looks at what is listed alone, strikes off what it finds quiet, and sleeps, until it has
    /// seen all of this.
    fn run(&self, all: [usize; 2]) {
        let (mut listed, mut seen) = ([false; 2], [0; 2]);
        let look = |place: usize| self.published[place].load(Ordering::Relaxed);
        while seen != all {
            self.roster.take(|place| listed[place] = true);
            for place in (0..2).filter(|place| listed[*place]).collect::<Vec<_>>() {
                let before = std::mem::replace(&mut seen[place], look(place));
                if before == seen[place] {
                    listed[place] = false;
                    self.roster.strike(place);
                    if look(place) != seen[place] {
                        self.roster.mark_ordered(place);
                    }
                }
            }
            if seen != all {
                self.bell.prepare_sleep();
                let works = |place: usize| listed[place] && look(place) != seen[place];
                if !(self.roster.any() || works(0) || works(1)) {
                    self.bed.notify.wait();
                }
                self.bell.awake();
            }
        }
    }
}

#[test]
fn a_lane_that_is_struck_off_is_seen_or_marked_again_and_wakes_its_home() {
    model(|| {
        let home = Reactor::new();
        let worker = {
            let home = Arc::clone(&home);
            thread::spawn(move || (0..2).for_each(|_| home.publish(0)))
        };
        home.run([2, 0]);
        worker.join().unwrap();
    });
}

fn two_workers_and_their_home(places: [usize; 2], all: [usize; 2]) {
    large_model(move || {
        let home = Reactor::new();
        let workers = places.map(|place| {
            let home = Arc::clone(&home);
            thread::spawn(move || home.publish(place))
        });
        home.run(all);
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
}

#[test]
fn two_who_give_one_lane_work_wake_its_home() {
    two_workers_and_their_home([0, 0], [2, 0]);
}

#[test]
fn two_who_give_two_lanes_work_wake_their_home() {
    two_workers_and_their_home([0, 1], [1, 1]);
}

/// Places of the first word and of one that is looked at only from when it was used first.
fn marks_are_taken(places: [usize; 2]) {
    model(move || {
        let roster = Arc::new(Roster::new(places[1] + 1));
        let workers = places.map(|place| {
            let roster = Arc::clone(&roster);
            thread::spawn(move || roster.mark_ordered(place))
        });
        let mut taken = [false; 2];
        let mut take = || {
            roster.take(|taking| {
                places.iter().zip(&mut taken).for_each(|(place, taken)| *taken |= *place == taking);
            });
        };
        take();
        take();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        take();
        assert_eq!(taken, [true; 2], "{places:?}");
    });
}

#[test]
fn a_mark_in_a_word_that_none_was_in_before_is_taken() {
    marks_are_taken([0, 4096]);
}

#[test]
fn a_mark_beside_the_first_in_its_word_is_taken() {
    marks_are_taken([4096, 4097]);
}

// ---- the gate ----

struct Guarded {
    gate: Gate,
    bell: Doorbell,
    bed: Arc<Bed>,
    config: Watched,
}

impl Guarded {
    fn new() -> Arc<Guarded> {
        let (bell, bed) = bell();
        Arc::new(Guarded { gate: Gate::default(), bell, bed, config: Watched::new(0) })
    }

    /// Goes in `rounds` times if the gate lets it, and tells the freezer whenever it must.
    fn visit(&self, member: &mut weir_ring::Member, rounds: usize) {
        for _ in 0..rounds {
            if !member.enter(&self.gate) {
                self.bell.ring();
                continue;
            }
            self.config.read();
            let nested = member.enter(&self.gate);
            self.config.read();
            if member.leave(member.inside(), &self.gate) {
                self.bell.ring();
            }
            assert_eq!(member.inside(), 0, "entered again: {nested}");
        }
    }

    fn freeze(&self) {
        self.gate.close();
        // Once without the bell's fence, which would stand in for the gate's.
        while !self.gate.is_empty() {
            self.bell.prepare_sleep();
            if !self.gate.is_empty() {
                self.bed.notify.wait();
            }
            self.bell.awake();
        }
        self.config.add(1);
        assert!(self.gate.open());
    }
}

#[test]
fn a_freezer_has_the_config_alone_and_is_told_when_the_last_member_left() {
    model(|| {
        let guarded = Guarded::new();
        let mut member = guarded.gate.join();
        let visitor = {
            let guarded = Arc::clone(&guarded);
            thread::spawn(move || {
                guarded.visit(&mut member, 2);
                guarded.gate.leave(member);
            })
        };
        guarded.freeze();
        visitor.join().unwrap();
        assert!(guarded.gate.is_empty() && !guarded.gate.is_closed());
    });
}

#[test]
fn a_freezer_waits_for_every_member() {
    large_model(|| {
        let guarded = Guarded::new();
        let visitors = [(); 2].map(|()| {
            let guarded = Arc::clone(&guarded);
            let mut member = guarded.gate.join();
            thread::spawn(move || {
                if member.enter(&guarded.gate) {
                    guarded.config.read();
                    if member.leave(1, &guarded.gate) {
                        guarded.bell.ring();
                    }
                } else {
                    guarded.bell.ring();
                }
            })
        });
        guarded.freeze();
        visitors.into_iter().for_each(|visitor| visitor.join().unwrap());
    });
}

#[test]
fn a_member_that_joins_a_closing_gate_is_kept_out_or_waited_for() {
    model(|| {
        let guarded = Guarded::new();
        let visitor = {
            let guarded = Arc::clone(&guarded);
            thread::spawn(move || {
                let mut member = guarded.gate.join();
                guarded.visit(&mut member, 1);
            })
        };
        guarded.freeze();
        visitor.join().unwrap();
    });
}

#[test]
fn a_member_that_passes_a_closed_gate_never_meets_another_freezer() {
    model(|| {
        let guarded = Guarded::new();
        let closer = {
            let guarded = Arc::clone(&guarded);
            let mut member = guarded.gate.join_past();
            thread::spawn(move || {
                guarded.gate.close();
                // Others are kept out or waited for, so an attempt that fails need not be repeated.
                let entered = member.enter(&guarded.gate);
                if entered {
                    guarded.config.read();
                    assert!(member.leave(1, &guarded.gate), "its own closing");
                }
                guarded.bell.ring();
                guarded.gate.open();
                guarded.gate.leave(member);
                entered
            })
        };
        guarded.gate.close();
        while !guarded.gate.is_empty() {
            guarded.bell.prepare_sleep();
            if !guarded.gate.is_empty() {
                guarded.bed.notify.wait();
            }
            guarded.bell.awake();
        }
        guarded.config.add(1);
        guarded.gate.open();
        closer.join().unwrap();
        assert!(guarded.gate.is_empty() && !guarded.gate.is_closed());
    });
}

// ---- the tag words ----

/// Tags with a row of data each, which only the tag's holder touches.
struct Table {
    tags: TagWords,
    rows: Vec<Watched>,
}

impl Table {
    fn new(depth: u16) -> Table {
        let rows = (0..depth).map(|_| Watched::new(0)).collect();
        Table { tags: TagWords::new(depth), rows }
    }

    fn take(&self) -> Option<u16> {
        let mut out = Vec::new();
        self.tags.take(0, 1, &(0..u16::MAX), &mut out);
        let tag = out.pop()?;
        self.rows[usize::from(tag)].add(1);
        Some(tag)
    }

    fn free(&self, tag: u16) {
        self.rows[usize::from(tag)].add(1);
        self.tags.free(tag);
    }

    /// Fails unless all can be taken, once `held` came back.
    fn check(&self, held: impl IntoIterator<Item = u16>) {
        let mut held: Vec<u16> = held.into_iter().collect();
        held.iter().for_each(|tag| self.free(*tag));
        held.sort_unstable();
        held.dedup();
        assert_eq!(self.tags.out(), 0, "{held:?} were given back last");
        let mut all: Vec<u16> = std::iter::from_fn(|| self.take()).collect();
        all.sort_unstable();
        assert_eq!(all, (0..self.tags.depth()).collect::<Vec<_>>());
    }
}

#[test]
fn two_takers_and_a_freer_neither_share_a_tag_nor_lose_one() {
    model(|| {
        let table = Arc::new(Table::new(2));
        let tags = [(); 2].map(|()| table.take().expect("both are free"));
        let takers = [(); 2].map(|()| {
            let table = Arc::clone(&table);
            thread::spawn(move || table.take())
        });
        tags.into_iter().for_each(|tag| table.free(tag));
        let held = takers.map(|taker| taker.join().unwrap());
        table.check(held.into_iter().flatten());
    });
}

#[test]
fn a_tag_that_comes_back_goes_to_the_next_one_whole() {
    model(|| {
        let table = Arc::new(Table::new(2));
        let kept = table.take().expect("both are free");
        let other = {
            let table = Arc::clone(&table);
            thread::spawn(move || {
                let held = table.take();
                held.into_iter().for_each(|tag| table.free(tag));
                table.take()
            })
        };
        let mine = table.take();
        table.free(kept);
        let again = table.take();
        let theirs = other.join().unwrap();
        table.check([mine, again, theirs].into_iter().flatten());
    });
}

/// Lanes that share tags. Lane 0 is the only one that waits.
struct Shared {
    table: Table,
    waiting: PendingBits,
    bell: Doorbell,
    bed: Arc<Bed>,
}

impl Shared {
    fn new(depth: u16) -> Arc<Shared> {
        let (bell, bed) = bell();
        Arc::new(Shared { table: Table::new(depth), waiting: PendingBits::new(2), bell, bed })
    }

    fn kick(&self) {
        self.waiting.take(|lane| {
            assert_eq!(lane, 0);
            self.bell.ring();
        });
    }

    /// Free, fence, look who waits, ring.
    fn give_back(&self, tag: u16) {
        self.table.free(tag);
        fence(Ordering::SeqCst);
        self.kick();
    }

    /// Take, and look who waits: what came back with it and was not taken may be what lane 0
    /// missed.
    fn take(&self) -> Option<u16> {
        let tag = self.table.take();
        self.kick();
        tag
    }

    /// Lane 0: say that it sleeps and waits, fence, try again, sleep. It says so in this order: the
    /// lane that takes the mark then finds it asleep. The other way round the mark may be spent on
    /// a tag that a third takes, with no ring as lane 0 is still awake, and the third, who frees it
    /// last, finds no mark.
    fn wait_for_tag(&self) -> u16 {
        loop {
            if let Some(tag) = self.table.take() {
                return tag;
            }
            self.bell.prepare_sleep();
            self.waiting.mark(0);
            let tag = self.table.take();
            if tag.is_none() {
                self.bed.notify.wait();
            }
            self.bell.awake();
            if let Some(tag) = tag {
                return tag;
            }
        }
    }
}

/// Lanes that are told in turn, no more of them than there are tags. Lane 0 waits; lane 1 is marked
/// as well, and does nothing when it is told.
struct InTurn {
    lanes: Shared,
    told: AtomicUsize,
}

impl InTurn {
    fn give_back(&self, tag: u16) {
        self.lanes.table.free(tag);
        self.tell();
    }

    /// For a lane that has given tags back, or taken some: those may have been in neither word for
    /// a moment.
    fn tell(&self) {
        let mut told = 0;
        loop {
            fence(Ordering::SeqCst);
            let free = self.lanes.table.tags.free_within(&(0..2)) as usize;
            let more = self.lanes.waiting.take_some(1, free.saturating_sub(told), |lane| {
                if lane == 0 {
                    self.lanes.bell.ring();
                } else {
                    self.told.fetch_add(1, Ordering::Relaxed);
                }
                true
            });
            if more == 0 {
                return;
            }
            told += more;
        }
    }
}

#[test]
fn of_two_lanes_that_wait_each_is_told_when_two_tags_come_back() {
    large_model(|| {
        let (bell, bed) = bell();
        // More than one word of marks, so that there is a summary to go wrong.
        let lanes = Shared { table: Table::new(2), waiting: PendingBits::new(65), bell, bed };
        let shared = Arc::new(InTurn { lanes, told: AtomicUsize::new(0) });
        let tags = [(); 2].map(|()| shared.lanes.table.take().expect("both are free"));
        shared.lanes.waiting.mark(1);
        let freers = tags.map(|tag| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.give_back(tag))
        });
        let mine = shared.lanes.wait_for_tag();
        shared.tell();
        freers.into_iter().for_each(|freer| freer.join().unwrap());
        shared.lanes.table.check([mine]);
        assert_eq!(shared.told.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn a_lane_without_a_tag_is_rung_by_the_lane_that_frees_one() {
    model(|| {
        let shared = Shared::new(1);
        let tag = shared.table.take().expect("it is free");
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.give_back(tag))
        };
        let mine = shared.wait_for_tag();
        other.join().unwrap();
        shared.table.check([mine]);
    });
}

#[test]
fn a_lane_without_a_tag_is_rung_though_a_third_takes_and_frees_between() {
    large_model(|| {
        let shared = Shared::new(1);
        let tag = shared.table.take().expect("it is free");
        let freer = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.give_back(tag))
        };
        let third = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.take().into_iter().for_each(|tag| shared.give_back(tag)))
        };
        let mine = shared.wait_for_tag();
        freer.join().unwrap();
        third.join().unwrap();
        shared.table.check([mine]);
    });
}

#[test]
fn a_lane_does_not_sleep_beside_a_tag_that_another_brought_back_and_left() {
    model(|| {
        let shared = Shared::new(2);
        for tag in [(); 2].map(|()| shared.table.take().expect("both are free")) {
            shared.table.free(tag);
        }
        // Both are in the cleared mask now: the other takes them in, takes one and keeps it.
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.take())
        };
        let mine = shared.wait_for_tag();
        let theirs = other.join().unwrap();
        shared.table.check(theirs.into_iter().chain([mine]));
    });
}

/// A lane whose home serves more than it: who takes the lane's mark marks the lane at its home.
struct Home {
    table: Table,
    waiting: PendingBits,
    lanes: PendingBits,
    bell: Doorbell,
    bed: Arc<Bed>,
}

impl Home {
    fn give_back(&self, tag: u16) {
        self.table.free(tag);
        fence(Ordering::SeqCst);
        self.kick();
    }

    fn kick(&self) {
        self.waiting.take(|lane| {
            self.lanes.mark(lane);
            self.bell.ring_ordered();
        });
    }

    /// The lane's turn: take, or mark and try again.
    fn turn(&self) -> Option<u16> {
        self.table.take().or_else(|| {
            self.waiting.mark(0);
            self.table.take()
        })
    }

    fn run(&self) -> u16 {
        let mut tag = self.turn();
        while tag.is_none() {
            self.bell.prepare_sleep();
            if !self.lanes.any() {
                self.bed.notify.wait();
            }
            self.bell.awake();
            self.lanes.take(|lane| {
                assert_eq!(lane, 0);
                tag = self.turn();
            });
        }
        tag.expect("just looked")
    }
}

fn a_lane_is_marked_at_its_home(once_more: bool) {
    model(move || {
        let (bell, bed) = bell();
        let home = Arc::new(Home {
            table: Table::new(1),
            waiting: PendingBits::new(1),
            lanes: PendingBits::new(1),
            bell,
            bed,
        });
        let tag = home.table.take().expect("it is free");
        let freer = {
            let home = Arc::clone(&home);
            thread::spawn(move || {
                home.give_back(tag);
                if once_more {
                    // As a third would.
                    let again = home.table.take();
                    home.kick();
                    again.into_iter().for_each(|tag| home.give_back(tag));
                }
            })
        };
        let mine = home.run();
        freer.join().unwrap();
        home.table.check([mine]);
    });
}

#[test]
fn a_lane_that_marked_itself_awake_is_marked_at_its_home() {
    a_lane_is_marked_at_its_home(false);
}

#[test]
fn a_lane_that_marked_itself_awake_is_marked_at_its_home_by_who_frees_last() {
    a_lane_is_marked_at_its_home(true);
}

/// A lane's ways to hear of its submitters: its roster of them, its home's roster of lanes, and the
/// bell of that home. A submitter tells all three behind one fence.
struct Levels {
    feeders: Roster,
    lanes: Roster,
    bell: Doorbell,
    bed: Arc<Bed>,
}

/// One submitter's ring, as its lane keeps it.
struct Way {
    ring: Consumer<Watched>,
    /// It is looked at in every turn.
    listed: bool,
    /// Up to here the lane has seen it.
    seen: usize,
}

impl Way {
    fn new(ring: Consumer<Watched>) -> Way {
        Way { ring, listed: false, seen: 0 }
    }

    fn has_news(&self) -> bool {
        self.listed && self.ring.end() != self.seen
    }

    /// Takes what is there; one that has nothing is struck off, and looked at once again.
    fn look(&mut self, strike: impl FnOnce()) -> u32 {
        if !self.listed {
            return 0;
        }
        let mut end = self.ring.see();
        if end == self.seen {
            self.listed = false;
            strike();
            end = self.ring.see();
            if end == self.seen {
                return 0;
            }
            self.listed = true;
        }
        // Read where it lies first, as requests are that wait there.
        self.ring.look(self.seen, |item| {
            item.read();
            true
        });
        self.seen = end;
        let mut taken = 0;
        while let Some(item) = self.ring.pop() {
            item.add(0);
            taken += 1;
        }
        self.ring.release();
        taken
    }
}

impl Levels {
    fn new() -> Arc<Levels> {
        let (bell, bed) = bell();
        Arc::new(Levels { feeders: Roster::new(2), lanes: Roster::new(1), bell, bed })
    }

    /// A submitter has published something.
    fn feed(&self, submitter: usize) {
        fence(Ordering::SeqCst);
        self.feeders.mark_ordered(submitter);
        self.lanes.mark_ordered(0);
        self.bell.ring_ordered();
    }

    fn has_work(&self, ways: &[Way]) -> bool {
        self.feeders.any() || ways.iter().any(Way::has_news)
    }

    /// Turns the lane until it has had so many; a lane without work is struck off where `strikes`.
    fn run(&self, ways: &mut [Way], all: u32, strikes: bool) {
        let (mut listed, mut taken) = (false, 0);
        while taken != all {
            self.lanes.take(|_| listed = true);
            if listed && strikes && !self.has_work(ways) {
                listed = false;
                self.lanes.strike(0);
                if self.has_work(ways) {
                    self.lanes.mark_ordered(0);
                }
            } else if listed {
                self.feeders.take(|submitter| {
                    ways.get_mut(submitter).into_iter().for_each(|way| way.listed = true);
                });
                for (submitter, way) in ways.iter_mut().enumerate() {
                    taken += way.look(|| self.feeders.strike(submitter));
                }
            }
            if taken != all {
                self.bell.prepare_sleep();
                if !(self.lanes.any() || listed && self.has_work(ways)) {
                    self.bed.notify.wait();
                }
                self.bell.awake();
            }
        }
    }
}

#[test]
fn what_a_submitter_hands_over_is_seen_by_a_lane_that_strikes_it_off_or_wakes_its_home() {
    for strikes in [false, true] {
        model(move || {
            let levels = Levels::new();
            let (mut tx, rx) = ring(2);
            let submitter = {
                let levels = Arc::clone(&levels);
                thread::spawn(move || {
                    for n in 0..2 {
                        assert!(tx.push(Watched::new(n)).is_ok() && tx.publish());
                        levels.feed(0);
                    }
                })
            };
            levels.run(&mut [Way::new(rx)], 2, strikes);
            submitter.join().unwrap();
        });
    }
}

#[test]
fn what_two_submitters_hand_over_is_seen_while_each_may_be_struck_off() {
    large_model(|| {
        let levels = Levels::new();
        let mut ways = Vec::new();
        let submitters = [0, 1].map(|submitter| {
            let (mut tx, rx) = ring(2);
            ways.push(Way { listed: true, ..Way::new(rx) });
            levels.feeders.mark_ordered(submitter);
            let levels = Arc::clone(&levels);
            thread::spawn(move || {
                assert!(tx.push(Watched::new(1)).is_ok() && tx.publish());
                levels.feed(submitter);
            })
        });
        levels.run(&mut ways, 2, true);
        submitters.into_iter().for_each(|submitter| submitter.join().unwrap());
    });
}
