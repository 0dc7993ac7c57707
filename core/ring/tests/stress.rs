//! The protocols of `tests/loom.rs` on real processors, which reorder what loom does not.
//!
//! Four threads and a counted number of rounds each; no clock and no chance. A lost wake-up leaves
//! a test hanging, anything else fails an assertion.

#![cfg(not(loom))]

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Barrier, OnceLock};
use std::thread::{self, Thread};

use weir_ring::{
    Claim, Consumer, Doorbell, Gate, Inbox, Outgoing, PendingBits, Producer, Right, TagWords, Wake,
    ring,
};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(&self) {
        self.0.unpark();
    }
}

/// Threads that are joined one by one: the thread sanitizer hears of a join, but not of the end of
/// a scope, for the standard library it is linked with is not instrumented.
struct Crew<'scope, 'env> {
    scope: &'scope thread::Scope<'scope, 'env>,
    members: RefCell<Vec<thread::ScopedJoinHandle<'scope, ()>>>,
}

impl<'scope> Crew<'scope, '_> {
    fn spawn(&self, work: impl FnOnce() + Send + 'scope) {
        self.members.borrow_mut().push(self.scope.spawn(work));
    }
}

/// Runs a crew to its end.
fn crew<'env>(begin: impl for<'scope> FnOnce(&Crew<'scope, 'env>)) {
    thread::scope(|scope| {
        let crew = Crew { scope, members: RefCell::default() };
        begin(&crew);
        for member in crew.members.into_inner() {
            member.join().expect("a thread that does not panic");
        }
    });
}

/// Where one thread sleeps; the bell comes into being on that thread.
#[derive(Default)]
struct Bed {
    bell: OnceLock<Doorbell>,
    /// Says so a second time, where the thread sanitizer hears it: the cell's own word is written
    /// in the standard library, which may not be instrumented.
    made: AtomicBool,
}

impl Bed {
    fn make(&self) -> &Doorbell {
        let bell = self.bell.get_or_init(|| Doorbell::new(Box::new(Unpark(thread::current()))));
        self.made.store(true, Ordering::Release);
        bell
    }

    /// Rings; a thread that has not made its bell yet is awake and has not looked yet.
    fn ring(&self) {
        fence(Ordering::SeqCst);
        if self.made.load(Ordering::Acquire) {
            self.bell.get().expect("a bell that was made").ring();
        }
    }

    /// Sleeps unless `look` finds something.
    fn sleep_unless(&self, look: impl FnOnce() -> bool) {
        let bell = self.make();
        bell.prepare_sleep();
        if !look() {
            thread::park();
        }
        bell.awake();
    }
}

#[test]
fn a_line_of_rings_keeps_every_item_in_order() {
    const ITEMS: u64 = 5_000;
    fn pass_on(mut rx: Consumer<Box<u64>>, mut tx: Producer<Box<u64>>) {
        let mut held = None;
        for _ in 0..ITEMS {
            while held.is_none() {
                held = rx.pop();
                if held.is_none() {
                    rx.release();
                    tx.publish();
                    thread::yield_now();
                }
            }
            while let Some(item) = held.take() {
                held = tx.push(item).err();
                if held.is_some() {
                    rx.release();
                    tx.publish();
                    thread::yield_now();
                }
            }
        }
    }
    let (mut first, rx1) = ring(64);
    let (tx1, rx2) = ring(16);
    let (tx2, mut last) = ring(32);
    crew(|scope| {
        scope.spawn(move || pass_on(rx1, tx1));
        scope.spawn(move || pass_on(rx2, tx2));
        scope.spawn(move || {
            for n in 0..ITEMS {
                let mut item = Box::new(n);
                while let Err(back) = first.push(item) {
                    item = back;
                    first.publish();
                    thread::yield_now();
                }
                if n % 3 == 0 {
                    first.publish();
                }
            }
        });
        let mut expected = 0;
        while expected != ITEMS {
            match last.pop() {
                Some(item) => {
                    assert_eq!(*item, expected);
                    expected += 1;
                }
                None => {
                    last.release();
                    thread::yield_now();
                }
            }
        }
        assert!(last.pop().is_none());
    });
}

#[test]
fn claims_go_to_a_sleeping_server_and_back_to_sleeping_clients() {
    const CLIENTS: usize = 3;
    const ROUNDS: u64 = 5_000;
    const CLAIMS: u64 = 4;
    #[derive(Default)]
    struct Party {
        inbox: Inbox<(usize, u64)>,
        bed: Bed,
    }
    impl Party {
        fn post(&self, chain: &mut Outgoing<(usize, u64)>) {
            if self.inbox.post(chain) {
                self.bed.ring();
            }
        }
    }
    let server = Party::default();
    let clients: [Party; CLIENTS] = Default::default();
    crew(|scope| {
        for (index, client) in clients.iter().enumerate() {
            let server = &server;
            scope.spawn(move || {
                client.bed.make();
                let mut chain = Outgoing::default();
                (0..CLAIMS).for_each(|_| chain.push(Claim::new((index, 0))));
                let mut home = Vec::new();
                while home.len() != CLAIMS as usize {
                    server.post(&mut chain);
                    client.bed.sleep_unless(|| !client.inbox.is_empty());
                    for mut claim in client.inbox.take() {
                        assert_eq!((claim.0, claim.1 % 2), (index, 1));
                        claim.1 += 1;
                        if claim.1 == 2 * ROUNDS { home.push(claim) } else { chain.push(claim) }
                    }
                }
            });
        }
        server.bed.make();
        let (mut served, all) = (0, CLIENTS as u64 * CLAIMS * ROUNDS);
        while served != all {
            server.bed.sleep_unless(|| !server.inbox.is_empty());
            let mut replies: [Outgoing<_>; CLIENTS] = Default::default();
            for mut claim in server.inbox.take() {
                assert_eq!(claim.1 % 2, 0);
                claim.1 += 1;
                served += 1;
                replies[claim.0].push(claim);
            }
            for (client, replies) in clients.iter().zip(&mut replies) {
                client.post(replies);
            }
        }
    });
}

#[test]
fn whoever_holds_the_right_does_the_work_of_all() {
    const SUBMITTERS: usize = 4;
    const WAVES: u64 = 3_000;
    const ITEMS: u64 = 5;
    let (producers, consumers): (Vec<_>, Vec<_>) = (0..SUBMITTERS).map(|_| ring(8)).unzip();
    let pending = PendingBits::new(SUBMITTERS * 64);
    let right = Right::new((consumers, [0u64; SUBMITTERS]));
    let kick = || {
        while pending.any() {
            let Some(mut held) = right.try_take() else { return };
            let (consumers, done) = &mut *held;
            pending.take(|source| {
                // A word of pending bits for each.
                let source = source / 64;
                while let Some(item) = consumers[source].pop() {
                    assert_eq!(item, done[source]);
                    done[source] += 1;
                }
                consumers[source].release();
            });
            Right::let_go(held);
        }
    };
    let wave = Barrier::new(SUBMITTERS);
    crew(|scope| {
        for (source, mut tx) in producers.into_iter().enumerate() {
            let (pending, right, kick, wave) = (&pending, &right, &kick, &wave);
            scope.spawn(move || {
                for end in (1..=WAVES).map(|wave| wave * ITEMS) {
                    wave.wait();
                    for n in end - ITEMS..end {
                        tx.push(n).expect("the wave before is done");
                        tx.publish();
                        pending.mark(source * 64);
                        kick();
                    }
                    // No thread kicks once more: when all are here, all is done.
                    if wave.wait().is_leader() {
                        let done = right.try_take().expect("nobody is at it").1;
                        assert_eq!(done, [end; SUBMITTERS]);
                    }
                }
            });
        }
    });
}

/// Tags with the lane that has each, counted from 1.
struct Table {
    tags: TagWords,
    holders: Vec<AtomicU32>,
}

impl Table {
    fn new(depth: u16) -> Table {
        let holders = (0..depth).map(|_| AtomicU32::new(0)).collect();
        Table { tags: TagWords::new(depth), holders }
    }

    fn take(&self, lane: usize, max: usize, out: &mut Vec<u16>) {
        let before = out.len();
        self.tags.take(lane, max, &(0..u16::MAX), out);
        for tag in &out[before..] {
            let holder = self.holders[usize::from(*tag)].swap(lane as u32 + 1, Ordering::Relaxed);
            assert_eq!(holder, 0, "tag {tag} has two holders");
        }
    }

    fn free(&self, lane: usize, tag: u16) {
        let holder = self.holders[usize::from(tag)].swap(0, Ordering::Relaxed);
        assert_eq!(holder, lane as u32 + 1, "tag {tag} changed hands");
        self.tags.free(tag);
    }

    fn assert_all_are_free(&self) {
        let mut all = Vec::new();
        while self.tags.take(0, usize::MAX, &(0..u16::MAX), &mut all) > 0 {}
        all.sort_unstable();
        assert_eq!(all, (0..self.tags.depth()).collect::<Vec<_>>());
    }
}

fn four_lanes_take_and_free(depth: u16, rounds: usize) {
    let table = Table::new(depth);
    crew(|scope| {
        for lane in 0..4 {
            let table = &table;
            scope.spawn(move || {
                let mut held = Vec::new();
                for round in 0..rounds {
                    table.take(lane, 1 + round % 7, &mut held);
                    let kept = if round % 3 == 0 { 0 } else { held.len() / 2 };
                    held.drain(kept..).for_each(|tag| table.free(lane, tag));
                }
                held.into_iter().for_each(|tag| table.free(lane, tag));
            });
        }
    });
    table.assert_all_are_free();
}

#[test]
fn four_lanes_neither_share_a_tag_nor_lose_one() {
    // One word of three tags, and ten of two.
    four_lanes_take_and_free(3, 300_000);
    four_lanes_take_and_free(21, 50_000);
}

#[test]
fn four_lanes_that_wait_for_three_tags_are_all_rung() {
    const ROUNDS: usize = 50_000;
    let table = Table::new(3);
    let waiting = PendingBits::new(4);
    let beds: [Bed; 4] = Default::default();
    let kick = || waiting.take(|lane| beds[lane].ring());
    let wait = |lane: usize, max: usize, held: &mut Vec<u16>| {
        table.take(lane, max, held);
        while held.is_empty() {
            beds[lane].sleep_unless(|| {
                waiting.mark(lane);
                table.take(lane, max, held);
                !held.is_empty()
            });
            table.take(lane, max - held.len(), held);
        }
        // A token that came back and was not taken may be the one another lane missed.
        kick();
    };
    crew(|scope| {
        for lane in 0..4 {
            let (table, beds, wait, kick) = (&table, &beds, &wait, &kick);
            scope.spawn(move || {
                beds[lane].make();
                let mut held = Vec::new();
                for round in 0..ROUNDS {
                    wait(lane, 1 + round % 2, &mut held);
                    held.drain(..).for_each(|tag| table.free(lane, tag));
                    fence(Ordering::SeqCst);
                    kick();
                }
            });
        }
    });
    table.assert_all_are_free();
}

#[test]
fn members_and_a_freezer_never_meet_behind_the_gate() {
    const FREEZES: u64 = 200;
    let gate = Gate::default();
    let bed = Bed::default();
    let config = [AtomicU64::new(0), AtomicU64::new(0)];
    let entries = AtomicU64::new(0);
    crew(|scope| {
        for _ in 0..3 {
            let (gate, bed, config, entries) = (&gate, &bed, &config, &entries);
            scope.spawn(move || {
                let mut member = gate.join();
                let read = || config.each_ref().map(|part| part.load(Ordering::Relaxed));
                let mut last = 0;
                while last != FREEZES {
                    if !member.enter(gate) {
                        bed.ring();
                        thread::yield_now();
                        continue;
                    }
                    let [first, second] = read();
                    assert_eq!(first, second, "a freezer is at work");
                    assert!(first >= last, "an older state than the last");
                    last = first;
                    if entries.fetch_add(1, Ordering::Relaxed) % 3 == 0 && member.enter(gate) {
                        assert_eq!(read(), [first; 2], "a freezer was at work");
                    }
                    if member.leave(member.inside(), gate) {
                        bed.ring();
                    }
                }
                gate.leave(member);
            });
        }
        bed.make();
        for freeze in 1..=FREEZES {
            // Each freeze meets members that are at it again.
            let before = entries.load(Ordering::Relaxed);
            while entries.load(Ordering::Relaxed) < before + 20 {
                thread::yield_now();
            }
            gate.close();
            while !gate.is_empty() {
                bed.sleep_unless(|| gate.is_empty());
            }
            config[0].store(freeze, Ordering::Relaxed);
            // Long enough for a member that slipped in to see it.
            (0..100).for_each(|_| std::hint::spin_loop());
            config[1].store(freeze, Ordering::Relaxed);
            assert!(gate.open());
        }
    });
}
