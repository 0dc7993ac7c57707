//! The memory that the calls of all disks as files may hold together, each from when it is taken
//! until it is answered, and the part of it that each disk may have.
//!
//! # The rule
//!
//! A read or a write holds the bytes of its whole blocks, and [`CALL`] beside them. All together
//! hold no more than the bound, unless one large call holds more alone. A call gets its bytes
//!
//! - if its disk holds nothing: if so many are left;
//! - a further read: if the disk then holds no more than is left of three quarters;
//! - a further write: if so many are left of three quarters.
//!
//! So it follows:
//!
//! - `n` disks that give no answer leave the others a part of `n + 1`, however many read them, and
//!   the last quarter is for the first call of each other disk.
//! - A write brings its bytes along, so that to have it wait would spare nothing: its disk may go
//!   beyond what reads may have.
//! - A read that gets none waits here, behind those of its disk. Bytes that are given back go to
//!   the disks that hold nothing, in the order in which they came, and then to the one that holds
//!   least. While a disk that holds nothing waits, no other read gets any.
//! - A write that gets none waits in the buffer of the thread that takes calls, and none behind it
//!   is taken meanwhile, of whatever disk: these wait in the kernel. So what is given back goes to
//!   it before any disk gets more for reads.
//! - None is refused.
//!
//! Not counted: the buffers of the thread that takes calls, calls that wait for the library
//! (`calls.rs`), and reads that wait (their descriptions, as many as the kernel has under way).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes that a call holds beside its data: its description, its request and its answer.
pub(crate) const CALL: usize = 512;

/// One part in so many is kept for disks that hold nothing.
const KEPT: usize = 4;

/// The memory that all calls share.
pub(crate) struct Budget {
    bound: usize,
    ledger: Mutex<Ledger>,
}

/// A call for memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    /// A number for its disk.
    pub(crate) disk: u64,
    /// The open file that it comes by.
    pub(crate) handle: u64,
    /// Bytes of data.
    pub(crate) data: usize,
    pub(crate) writes: bool,
}

impl Need {
    fn bytes(self) -> usize {
        self.data + CALL
    }
}

#[derive(Default)]
struct Ledger {
    held: usize,
    /// Those of disks that hold bytes, or have reads that wait.
    accounts: BTreeMap<u64, Account>,
    /// The disks with reads that wait, the next to get bytes first.
    line: BTreeSet<Rank>,
    /// Writes that wait: one for each thread that takes calls.
    writes: Vec<Waiting>,
    /// Calls that have waited.
    arrivals: u64,
    /// A thread is granting.
    granting: bool,
}

/// The part of one disk.
#[derive(Default)]
struct Account {
    held: usize,
    reads: VecDeque<Waiting>,
}

/// One that waits for bytes.
struct Waiting {
    need: Need,
    /// Its number among those that have waited.
    arrival: u64,
    go: Go,
}

/// Called once: with the bytes, or with none if there is nothing to wait for any more.
type Go = Box<dyn FnOnce(Option<Share>) + Send>;

/// The place of a disk in the line: the bytes that it would hold, 0 for one that holds none now;
/// the arrival of its first read; the disk.
type Rank = (usize, u64, u64);

impl Account {
    fn rank(&self) -> Option<Rank> {
        let Waiting { need, arrival, .. } = self.reads.front()?;
        let would_hold = if self.held == 0 { 0 } else { self.held + need.bytes() };
        Some((would_hold, *arrival, need.disk))
    }
}

impl Ledger {
    /// Whether there are bytes for a call, those that wait aside.
    fn has_room(&self, need: Need, bound: usize) -> bool {
        let (bytes, left) = (need.bytes(), bound.saturating_sub(self.held));
        let of_disk = self.accounts.get(&need.disk).map_or(0, |account| account.held);
        if self.held == 0 || of_disk == 0 {
            return self.held == 0 || bytes <= left;
        }
        let left = left.saturating_sub(bound / KEPT);
        bytes + if need.writes { 0 } else { of_disk } <= left
    }

    /// Changes the account of a disk, and its place in the line with it.
    fn change<T>(&mut self, disk: u64, change: impl FnOnce(&mut Account) -> T) -> T {
        let account = self.accounts.entry(disk).or_default();
        if let Some(rank) = account.rank() {
            self.line.remove(&rank);
        }
        let told = change(account);
        match account.rank() {
            Some(rank) => _ = self.line.insert(rank),
            None if account.held == 0 => _ = self.accounts.remove(&disk),
            None => {}
        }
        told
    }

    /// Counts the bytes of a call as held.
    fn hold(&mut self, need: Need) {
        self.held += need.bytes();
        self.change(need.disk, |account| account.held += need.bytes());
    }

    /// The next of those that wait for which there are bytes, which it holds then.
    fn next(&mut self, bound: usize) -> Option<Waiting> {
        let room = |waiting: &Waiting| self.has_room(waiting.need, bound);
        let next = match self.writes.iter().position(room) {
            Some(at) => self.writes.swap_remove(at),
            None => {
                let (holds, _, disk) = self.line.first()?;
                let first = self.accounts.get(disk)?.reads.front()?;
                // Behind a write all calls wait, so no disk's next read goes before it.
                let passes = self.writes.is_empty() || *holds == 0;
                if !passes || !self.has_room(first.need, bound) {
                    return None;
                }
                self.change(*disk, |account| account.reads.pop_front())?
            }
        };
        self.hold(next.need);
        Some(next)
    }
}

impl Budget {
    /// A budget of so many bytes.
    pub(crate) fn new(bound: usize) -> Arc<Budget> {
        Arc::new(Budget { bound, ledger: Mutex::default() })
    }

    /// The bound, bytes.
    pub(crate) fn bound(&self) -> usize {
        self.bound
    }

    /// Bytes that are held now.
    pub(crate) fn held(&self) -> usize {
        self.ledger().held
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Memory for a call, if there is as much and no other is to have it first.
    pub(crate) fn take(self: &Arc<Budget>, need: Need) -> Option<Share> {
        let mut ledger = self.ledger();
        let waits = match ledger.line.first() {
            Some((0, ..)) => !need.writes,
            _ if !need.writes && !ledger.writes.is_empty() => {
                ledger.accounts.get(&need.disk).is_some_and(|account| account.held > 0)
            }
            Some(_) if !need.writes => {
                ledger.accounts.get(&need.disk).is_some_and(|account| !account.reads.is_empty())
            }
            Some(_) | None => false,
        };
        if waits {
            return None;
        }
        ledger.has_room(need, self.bound).then(|| {
            ledger.hold(need);
            self.share(need)
        })
    }

    fn share(self: &Arc<Budget>, need: Need) -> Share {
        Share { budget: Arc::clone(self), disk: need.disk, bytes: need.bytes() }
    }

    /// Calls `go`, once, with memory for a call when there is as much, which may be now; with none
    /// if its file is [withdrawn](Budget::withdraw).
    pub(crate) fn wait(
        self: &Arc<Budget>,
        need: Need,
        go: impl FnOnce(Option<Share>) + Send + 'static,
    ) {
        let mut ledger = self.ledger();
        ledger.arrivals += 1;
        let waiting = Waiting { need, arrival: ledger.arrivals, go: Box::new(go) };
        match need.writes {
            true => ledger.writes.push(waiting),
            false => ledger.change(need.disk, |account| account.reads.push_back(waiting)),
        }
        self.grant(ledger);
    }

    /// Has calls that wait go on without memory, if they come by a file that is meant.
    pub(crate) fn withdraw(self: &Arc<Budget>, is_meant: impl Fn(u64) -> bool) {
        let mut ledger = self.ledger();
        let meant = |waiting: &mut Waiting| is_meant(waiting.need.handle);
        let mut gone: Vec<Waiting> = ledger.writes.extract_if(.., meant).collect();
        let disks: Vec<u64> = ledger.line.iter().map(|(_, _, disk)| *disk).collect();
        for disk in disks {
            ledger.change(disk, |account| {
                let reads = std::mem::take(&mut account.reads);
                let is_gone = |waiting: &Waiting| is_meant(waiting.need.handle);
                let (of_these, others): (VecDeque<_>, _) = reads.into_iter().partition(is_gone);
                account.reads = others;
                gone.extend(of_these);
            });
        }
        // Those behind them may be next.
        self.grant(ledger);
        gone.into_iter().for_each(|Waiting { go, .. }| go(None));
    }

    /// Gives bytes to those that wait, unless a thread does so already: it finds these as well.
    fn grant<'a>(self: &'a Arc<Budget>, mut ledger: MutexGuard<'a, Ledger>) {
        if std::mem::replace(&mut ledger.granting, true) {
            return;
        }
        while let Some(Waiting { need, go, .. }) = ledger.next(self.bound) {
            drop(ledger);
            // Outside the lock: it may give its bytes back at once.
            go(Some(self.share(need)));
            ledger = self.ledger();
        }
        ledger.granting = false;
    }
}

/// The memory of one call. Dropping it gives it back.
pub(crate) struct Share {
    budget: Arc<Budget>,
    disk: u64,
    bytes: usize,
}

impl Share {
    /// Whether it is enough for so many bytes of data.
    pub(crate) fn is_enough(&self, data: usize) -> bool {
        data + CALL <= self.bytes
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut ledger = self.budget.ledger();
        ledger.held -= self.bytes;
        ledger.change(self.disk, |account| account.held -= self.bytes);
        if !ledger.line.is_empty() || !ledger.writes.is_empty() {
            self.budget.grant(ledger);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// Calls in units of [`CALL`], of which each call has one beside its data.
    fn read(disk: u64, units: usize) -> Need {
        Need { disk, handle: disk, data: (units - 1) * CALL, writes: false }
    }

    fn write(disk: u64, units: usize) -> Need {
        Need { writes: true, ..read(disk, units) }
    }

    fn budget(units: usize) -> Arc<Budget> {
        Budget::new(units * CALL)
    }

    /// As many of these as there is memory for.
    fn take_all(budget: &Arc<Budget>, need: Need) -> Vec<Share> {
        std::iter::from_fn(|| budget.take(need)).collect()
    }

    /// The calls that went on, each with its mark, its memory and whether it had any.
    #[derive(Clone, Default)]
    struct Gone(Arc<Mutex<Vec<Told>>>);

    type Told = (u64, Option<Share>);

    impl Gone {
        fn wait(&self, budget: &Arc<Budget>, need: Need, mark: u64) {
            let gone = Arc::clone(&self.0);
            budget.wait(need, move |share| gone.lock().unwrap().push((mark, share)));
        }

        /// Those since it was asked last, with memory and without. The memory is given back with
        /// the answer.
        fn take(&self) -> Vec<Told> {
            std::mem::take(&mut self.0.lock().unwrap())
        }

        #[track_caller]
        fn expect(&self, marks: &[u64]) -> Vec<Share> {
            let gone = self.take();
            assert_eq!(gone.iter().map(|(mark, _)| *mark).collect::<Vec<_>>(), marks);
            gone.into_iter().map(|(_, share)| share.expect("memory")).collect()
        }
    }

    fn nothing_is_left(budget: &Budget) {
        let ledger = budget.ledger();
        assert!(ledger.held == 0 && ledger.accounts.is_empty() && !ledger.granting);
        assert!(ledger.line.is_empty() && ledger.writes.is_empty());
    }

    #[test]
    fn no_more_is_held_than_the_bound_but_by_one_alone() {
        let budget = budget(16);
        let large = budget.take(read(1, 100)).expect("alone it passes");
        assert!(budget.take(read(2, 1)).is_none());
        drop(large);
        // Each has a disk of its own.
        let shares: Vec<Share> = (0..100).filter_map(|n| budget.take(read(n, 2))).collect();
        assert_eq!((shares.len(), budget.held()), (8, budget.bound()));
        drop(shares);
        nothing_is_left(&budget);
    }

    #[test]
    fn disks_that_do_not_answer_have_equal_parts_and_leave_one_and_the_last_quarter() {
        let budget = budget(160);
        let mut shares = take_all(&budget, read(1, 1));
        assert_eq!(shares.len(), 60, "half of three quarters");
        let two = take_all(&budget, read(2, 1));
        assert_eq!(two.len(), 30, "half of what is left");
        shares.extend(two);
        // What they give back is for all: in the end each has as much as is left.
        let (gone, mut answered) = (Gone::default(), 0);
        for (disk, mark) in [(1, 1), (2, 2)] {
            (0..100).for_each(|_| gone.wait(&budget, read(disk, 1), mark));
        }
        while answered < 60 {
            drop(shares.remove(0));
            shares.extend(gone.take().into_iter().filter_map(|(_, share)| share));
            answered += 1;
        }
        let part = |disk| shares.iter().filter(|share| share.disk == disk).count();
        assert_eq!((part(1), part(2)), (40, 40));
        // A disk that holds nothing has its first call, however large, and a part.
        let first = budget.take(read(3, 40)).expect("a quarter is left");
        drop(first);
        assert_eq!(take_all(&budget, read(3, 1)).len(), 20);
        budget.withdraw(|_| true);
        assert!(gone.take().into_iter().all(|(_, share)| share.is_none()));
        drop(shares);
        nothing_is_left(&budget);
    }

    #[test]
    fn writes_of_a_disk_have_what_is_left_but_for_the_last_quarter() {
        let budget = budget(160);
        let mut writes = take_all(&budget, write(1, 1));
        assert_eq!(writes.len(), 120);
        assert!(budget.take(read(1, 1)).is_none());
        let others: Vec<Share> = (2..42).filter_map(|n| budget.take(write(n, 1))).collect();
        assert_eq!(others.len(), 40);
        drop(others);
        // One that waits is the first to have what comes back, before a read.
        let gone = Gone::default();
        gone.wait(&budget, read(1, 1), 2);
        gone.wait(&budget, write(1, 2), 1);
        gone.expect(&[]);
        writes.pop();
        gone.expect(&[]);
        writes.pop();
        let write = gone.expect(&[1]);
        writes.clear();
        drop((write, gone.expect(&[2])));
        nothing_is_left(&budget);
    }

    #[test]
    fn disks_that_hold_nothing_come_first_in_their_order_and_then_the_one_that_holds_least() {
        let budget = budget(40);
        let full = budget.take(read(9, 40)).expect("alone it passes");
        let gone = Gone::default();
        gone.wait(&budget, read(1, 20), 1);
        gone.wait(&budget, read(1, 1), 2);
        gone.wait(&budget, read(2, 1), 3);
        gone.expect(&[]);
        drop(full);
        // The second call of the first disk would hold more than is left then.
        let mut shares = gone.expect(&[1, 3]);
        gone.wait(&budget, read(3, 21), 4);
        assert!(budget.take(read(4, 1)).is_none(), "one that holds nothing waits");
        assert!(budget.take(write(4, 1)).is_some(), "a write would keep all waiting");
        gone.wait(&budget, read(2, 1), 5);
        gone.expect(&[]);
        // So much more is needed for what holds nothing.
        drop(shares.pop());
        gone.expect(&[]);
        drop(shares);
        drop(gone.expect(&[2, 4, 5]));
        // Disks that hold 20, 5 and 3, so that 2 are left of three quarters.
        let large = budget.take(read(3, 12)).expect("room");
        let answered = budget.take(write(3, 8)).expect("room");
        let [one, other] = [(1, 5), (2, 3)].map(|(disk, units)| budget.take(read(disk, units)));
        gone.wait(&budget, read(1, 1), 6);
        gone.wait(&budget, read(2, 1), 7);
        gone.expect(&[]);
        drop(answered);
        drop((gone.expect(&[7, 6]), one, other, large));
        nothing_is_left(&budget);
    }

    #[test]
    fn a_read_waits_behind_those_of_its_disk_and_not_behind_those_of_another() {
        let budget = budget(40);
        let one = take_all(&budget, read(1, 3));
        assert_eq!(one.len(), 5);
        let gone = Gone::default();
        gone.wait(&budget, read(1, 3), 1);
        assert!(budget.take(read(1, 1)).is_none(), "there is room, and one before it");
        let other = budget.take(read(2, 3)).expect("a disk that holds nothing");
        drop((other, budget.take(read(2, 1)).expect("room")));
        gone.expect(&[]);
        drop(one);
        drop(gone.expect(&[1]));
        nothing_is_left(&budget);
    }

    #[test]
    fn calls_of_a_file_that_is_withdrawn_go_on_without_memory_and_those_behind_them_with_it() {
        let budget = budget(40);
        let held = budget.take(read(1, 14)).expect("room");
        let gone = Gone::default();
        let need = |handle, units| Need { handle, ..read(1, units) };
        gone.wait(&budget, need(7, 10), 1);
        gone.wait(&budget, Need { writes: true, ..need(7, 20) }, 2);
        gone.wait(&budget, need(8, 1), 3);
        gone.expect(&[]);
        budget.withdraw(|handle| handle == 7);
        let told: Vec<_> = gone.take();
        let with = |mark| told.iter().find(|(told, _)| *told == mark).map(|(_, it)| it.is_some());
        assert_eq!([1, 2, 3].map(with), [Some(false), Some(false), Some(true)]);
        drop((told, held));
        nothing_is_left(&budget);
    }

    #[test]
    fn thousands_that_give_back_at_once_what_they_waited_for_are_told_one_after_the_other() {
        let budget = budget(40);
        let full = budget.take(read(1, 40)).expect("alone it passes");
        let told = Arc::new(AtomicU64::new(0));
        for disk in 0..20_000 {
            let told = Arc::clone(&told);
            budget.wait(read(disk % 7, 30), move |share| {
                told.fetch_add(1, Ordering::Relaxed);
                drop(share);
            });
        }
        drop(full);
        assert_eq!(told.load(Ordering::Relaxed), 20_000);
        nothing_is_left(&budget);
    }

    /// No call of any disk is taken while a write waits.
    #[test]
    fn a_write_that_waits_is_not_passed_by_reads() {
        let budget = budget(160);
        let silent = budget.take(write(1, 100)).expect("room");
        // A slow disk: what it gives back goes to its own reads, one by one.
        let mut slow: VecDeque<Share> = take_all(&budget, read(2, 1)).into();
        let first = budget.take(write(3, 1)).expect("it holds nothing");
        let gone = Gone::default();
        (0..1000).for_each(|_| gone.wait(&budget, read(2, 1), 2));
        gone.wait(&budget, write(3, 15), 3);
        assert!(gone.take().is_empty());
        let (mut answers, mut write) = (0, None);
        while write.is_none() {
            answers += 1;
            drop(slow.pop_front().expect("one that is under way"));
            for (mark, share) in gone.take() {
                match mark {
                    3 => write = Some(share),
                    _ => slow.extend(share),
                }
            }
        }
        drop((silent, first, write));
        assert!(answers < 20, "the write, and all calls behind it, waited for {answers} reads");
    }
}
