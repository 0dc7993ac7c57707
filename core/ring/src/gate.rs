//! The gate: stops new entries until everything inside has left.
//!
//! Each member counts what it has inside in a word of its own; only the freezer, which is rare,
//! looks at all of them.

use crate::sync::{Alone, Arc, AtomicU64, Mutex, Ordering, fence};

/// The gate: members enter while it is open; it is closed while any freezer holds it.
#[derive(Debug, Default)]
pub struct Gate {
    /// How many freezers hold it closed; read-mostly.
    closed: Alone<AtomicU64>,
    members: Mutex<Vec<Arc<Alone<AtomicU64>>>>,
}

/// One member's count of what it has inside. Owned by one thread.
///
/// It ends with [`Gate::leave`]. One that is dropped instead stays counted: with something inside,
/// for ever, because no handle is left that could leave.
#[derive(Debug)]
pub struct Member {
    inside: Arc<Alone<AtomicU64>>,
    count: u64,
    /// It may go in behind a gate that one freezer alone holds closed.
    passes: bool,
}

/// The count of one member, read by any thread.
#[derive(Clone, Debug)]
pub struct Inside(Arc<Alone<AtomicU64>>);

impl Inside {
    /// How much the member has inside; 0 once it has left.
    #[must_use]
    pub fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Gate {
    /// A new member with nothing inside.
    ///
    /// # Panics
    /// When another thread panicked inside the gate's lock.
    pub fn join(&self) -> Member {
        self.admit(false)
    }

    /// A new member that the freezer itself is: it may enter although the gate is closed, as long
    /// as no other freezer holds it closed as well. Its I/O inside keeps every other freezer
    /// waiting.
    ///
    /// # Panics
    /// When another thread panicked inside the gate's lock.
    pub fn join_past(&self) -> Member {
        self.admit(true)
    }

    fn admit(&self, passes: bool) -> Member {
        let inside = Arc::new(Alone(AtomicU64::new(0)));
        self.members.lock().expect("gate members").push(Arc::clone(&inside));
        Member { inside, count: 0, passes }
    }

    /// Forgets a member that has nothing inside.
    ///
    /// # Panics
    /// When it has.
    pub fn leave(&self, member: Member) {
        assert_eq!(member.count, 0, "a member leaves the gate with requests inside");
        let mut members = self.members.lock().expect("gate members");
        members.retain(|inside| !Arc::ptr_eq(inside, &member.inside));
    }

    /// Closes it; nests. I/O that is inside stays until it leaves: see
    /// [`is_empty`](Gate::is_empty).
    pub fn close(&self) {
        self.closed.fetch_add(1, Ordering::AcqRel);
        // Pairs with the fence in `enter`: a member that missed the closing is seen inside.
        fence(Ordering::SeqCst);
    }

    /// Opens it once; true when that was the last closing: then those who were turned away must be
    /// told. After any opening a [passing](Gate::join_past) member may be free to enter, and must
    /// be told. Freezers that overlap each see the gate empty, so what they change needs a lock of
    /// its own.
    ///
    /// # Panics
    /// When it is not closed.
    pub fn open(&self) -> bool {
        let before = self.closed.fetch_sub(1, Ordering::AcqRel);
        assert_ne!(before, 0, "the gate is opened more often than closed");
        before == 1
    }

    /// Whether it is closed.
    #[inline]
    #[must_use]
    pub fn is_closed(&self) -> bool {
        // Acquire: a member that finds it open again sees the changes made while it was closed.
        self.closed.load(Ordering::Acquire) != 0
    }

    /// How many freezers hold it closed.
    #[must_use]
    pub fn holders(&self) -> u64 {
        self.closed.load(Ordering::Acquire)
    }

    /// How many are inside, over all members.
    ///
    /// # Panics
    /// When another thread panicked inside the gate's lock.
    #[must_use]
    pub fn inside(&self) -> u64 {
        let members = self.members.lock().expect("gate members");
        members.iter().map(|inside| inside.load(Ordering::Acquire)).sum()
    }

    /// Whether no member is inside. Meaningful while the gate is closed.
    ///
    /// # Panics
    /// When another thread panicked inside the gate's lock.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let members = self.members.lock().expect("gate members");
        // Acquire: what the members did inside is visible to the freezer.
        members.iter().all(|inside| inside.load(Ordering::Acquire) == 0)
    }
}

impl Member {
    /// Enters with one more; false when the gate is closed.
    ///
    /// After a false the freezer must be told, as after a [`leave`](Member::leave) that says so: it
    /// may have looked during the attempt, and taken the attempt for a member inside.
    #[inline]
    #[must_use = "the freezer must be told when this is false"]
    pub fn enter(&mut self, gate: &Gate) -> bool {
        // Before the attempt, so that a member that keeps asking does not keep the freezer out.
        if gate.is_closed() {
            return self.passes && self.pass(gate);
        }
        if self.count == 0 {
            self.inside.store(1, Ordering::Relaxed);
            // Pairs with the fence in `close`. Only the first needs it: while something is
            // inside, the freezer waits anyway.
            fence(Ordering::SeqCst);
            if gate.is_closed() {
                self.inside.store(0, Ordering::Release);
                return false;
            }
        }
        self.count += 1;
        self.inside.store(self.count, Ordering::Relaxed);
        true
    }

    /// Enters behind a gate that one freezer alone holds closed: this member's own.
    #[cold]
    fn pass(&mut self, gate: &Gate) -> bool {
        if gate.holders() > 1 {
            return false;
        }
        if self.count == 0 {
            self.inside.store(1, Ordering::Relaxed);
            // Pairs with the fence in `close`, as in `enter`: a second freezer sees this one
            // inside, or is seen.
            fence(Ordering::SeqCst);
            if gate.holders() > 1 {
                self.inside.store(0, Ordering::Release);
                return false;
            }
        }
        self.count += 1;
        self.inside.store(self.count, Ordering::Relaxed);
        true
    }

    /// Enters with one more beside what is inside already; false when nothing is, or when the gate
    /// is closed. Then nothing has happened, and [`enter`](Member::enter) is to be asked.
    #[inline]
    pub fn enter_beside(&mut self, gate: &Gate) -> bool {
        if self.count == 0 || gate.is_closed() {
            return false;
        }
        self.count += 1;
        self.inside.store(self.count, Ordering::Relaxed);
        true
    }

    /// `n` have left. True when none is inside any more and the gate is closed: then the freezer
    /// must be told.
    #[inline]
    pub fn leave(&mut self, n: u64, gate: &Gate) -> bool {
        debug_assert!(n <= self.count, "{n} leave, {} are inside", self.count);
        self.count -= n;
        self.inside.store(self.count, Ordering::Release);
        if self.count != 0 || n == 0 {
            return false;
        }
        // Pairs with the fence in `close`: the freezer sees 0, or this sees the closing.
        fence(Ordering::SeqCst);
        gate.is_closed()
    }

    /// The same for other threads.
    #[must_use]
    pub fn seen(&self) -> Inside {
        Inside(Arc::clone(&self.inside))
    }

    /// How much this member has inside.
    #[inline]
    #[must_use]
    pub fn inside(&self) -> u64 {
        self.count
    }
}
