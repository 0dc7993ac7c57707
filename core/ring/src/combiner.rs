//! Flat combining with delegation: one thread at a time does the work of all its members.
//!
//! A member with work takes the right and becomes the *combiner*: it does its own work, then that
//! of those who have left theirs meanwhile. A member that finds the right taken *delegates*: it
//! leaves its work where a combiner finds it, marks that it asks, and goes on. Nothing is lost in
//! between, because who marks tries the right once more, and who lets go of the right looks for
//! marks once more.
//!
//! Where members get in each other's way, what the right protects would travel from CPU to CPU with
//! each batch, which takes longer than the batch. So a combiner that finds others' work *stands*
//! from then on: the others delegate to it although the right may be free, until it has found
//! nothing of theirs for some time. Whether it does come round is for them to watch.

use crate::counter::Counter;
use crate::pending::PendingBits;
use crate::right::{Held, Right};
use crate::sync::Alone;

/// A combiner looks again for what others have left until it has taken over so much. The longer it
/// stays, the less often what the right protects goes from one CPU's cache to the other's; and the
/// longer its own work waits.
pub const TENURE: usize = 512;

/// Turns without foreign work after which a combiner stands no more.
const QUIET: u32 = 64;

/// No member stands.
const NOBODY: u64 = u64::MAX;

/// Members there can be: a bit each.
pub const MEMBERS_MAX: usize = 64;

/// A right with delegation: members that do not get the right leave their work to its holder.
#[derive(Debug)]
pub struct Combiner<T> {
    right: Right<Served<T>>,
    /// Members that found the right taken and have left something.
    asks: PendingBits,
    /// The member that stands, or [`NOBODY`]; written with the right.
    standing: Alone<Counter>,
}

/// The state that the right protects.
#[derive(Debug)]
pub struct Served<T> {
    state: T,
    /// Turns since a member had left work.
    quiet: u32,
}

/// The work of one member.
pub trait Work<T> {
    /// Leaves it where a combiner finds it. `false`: there is no room for it.
    fn leave(&mut self) -> bool;

    /// Does it, and the work of those who ask.
    fn combine(&mut self, state: &mut T, asking: &mut Asking<'_>);

    /// The right was let go of, which was a fence: tells whom there is to tell.
    fn combined(&mut self);
}

/// The outcome of `ask`: what happened to a member's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// It is done, or left for one who holds the right.
    Done,
    /// It is left for this member, which stands and is to be woken.
    Delegated(usize),
    /// It is done, and others have left work that only this member sees to: it is to ask again.
    Again,
}

impl<T> Combiner<T> {
    /// Of so many members.
    ///
    /// # Panics
    /// With more than [`MEMBERS_MAX`].
    pub fn new(state: T, members: usize) -> Combiner<T> {
        assert!(members <= MEMBERS_MAX, "members={members} of a combiner: at most {MEMBERS_MAX}");
        Combiner {
            right: Right::new(Served { state, quiet: 0 }),
            asks: PendingBits::new(members),
            standing: Alone(Counter::new(NOBODY)),
        }
    }

    /// The member that stands: to it others delegate without trying the right.
    #[inline]
    pub fn standing(&self) -> Option<usize> {
        usize::try_from(self.standing.read()).ok().filter(|member| *member < MEMBERS_MAX)
    }

    /// Whether others count on this member: it stands, and something is left.
    #[inline]
    pub fn is_awaited(&self, member: usize) -> bool {
        self.asks.any() && self.standing.read() == member as u64
    }

    /// Whether what this member left last was not looked at yet.
    #[inline]
    pub fn has_asked(&self, member: usize) -> bool {
        self.asks.has(member)
    }

    /// Gets this work done: by this member, or by one that holds the right, or by the one that
    /// stands, if it is named in `to`.
    #[inline]
    pub fn ask(&self, member: usize, to: Option<usize>, work: &mut impl Work<T>) -> Asked {
        if let Some(to) = to
            && self.delegate(member, work)
        {
            return Asked::Delegated(to);
        }
        let mut next = self.right.try_take();
        if next.is_none() {
            next = match self.delegate(member, work) {
                // Its holder may have looked for marks before this one was there.
                true => self.right.try_take(),
                false => Some(self.right.take()),
            };
        }
        let mut turns = 0;
        while let Some(mut held) = next {
            turns += 1;
            let more = self.combine(member, &mut held, work);
            Right::let_go(held);
            work.combined();
            next = None;
            // Members that were turned away meanwhile count on this one.
            if self.asks.any() {
                if more || turns > 1 {
                    return Asked::Again;
                }
                next = self.right.try_take();
            }
        }
        Asked::Done
    }

    /// Leaves this work for others, if there is room for it.
    #[inline]
    fn delegate(&self, member: usize, work: &mut impl Work<T>) -> bool {
        let left = work.leave();
        if left {
            self.asks.mark(member);
        }
        left
    }

    /// One turn under the right; whether others have left more.
    #[inline]
    fn combine(
        &self,
        member: usize,
        held: &mut Held<'_, Served<T>>,
        work: &mut impl Work<T>,
    ) -> bool {
        let Served { state, quiet } = &mut **held;
        let (asks, standing) = (&self.asks, &self.standing);
        let mut asking =
            Asking { member, asks, standing, quiet, looked: false, taken: 0, more: false };
        work.combine(state, &mut asking);
        asking.more
    }

    /// Takes the right for a change that is no member's work, and waits for it.
    ///
    /// # Panics
    /// When another thread panicked while it held the right.
    pub fn take(&self) -> Changing<'_, T> {
        Changing { held: self.right.take() }
    }

    /// The same; `None` when another thread panicked while it held the right.
    pub fn take_whole(&self) -> Option<Changing<'_, T>> {
        self.right.take_whole().map(|held| Changing { held })
    }

    /// As [`take`](Combiner::take), if the right is free.
    pub fn try_take(&self) -> Option<Changing<'_, T>> {
        self.right.try_take().map(|held| Changing { held })
    }

    /// The right for a member that would do its own work alone, as no other member asks or stands;
    /// `None` if one does, or if the right is not free. To be [let go of](Combiner::let_go_alone).
    #[inline]
    pub fn try_take_alone(&self) -> Option<Changing<'_, T>> {
        if self.asks.any() || self.standing.read() != NOBODY {
            return None;
        }
        self.try_take()
    }

    /// Lets go of the right after the work of one member. Whether others have left work meanwhile:
    /// then this member is to [ask](Combiner::ask), which sees to it. The only member there is
    /// turns none away, and need not look.
    #[inline]
    pub fn let_go_alone(&self, changing: Changing<'_, T>, is_only: bool) -> bool {
        if is_only {
            drop(changing);
            return false;
        }
        Right::let_go(changing.held);
        self.asks.any()
    }

    /// Lets go of the right after a change. Each member that was turned away meanwhile is named to
    /// `tell`, and is to ask again.
    pub fn let_go(&self, changing: Changing<'_, T>, tell: impl FnMut(usize)) {
        Right::let_go(changing.held);
        self.asks.take(tell);
    }

    /// No member stands any more.
    pub fn dismiss(&self, changing: &mut Changing<'_, T>) {
        changing.held.quiet = 0;
        self.standing.set(NOBODY);
    }

    /// This member is gone, and stands no more if it did.
    pub fn retire(&self, member: usize, changing: &mut Changing<'_, T>) {
        changing.held.quiet = 0;
        if self.standing.read() == member as u64 {
            self.standing.set(NOBODY);
        }
    }
}

/// The right, held for a change. To be [let go of](Combiner::let_go): dropping it names no member.
#[derive(Debug)]
pub struct Changing<'a, T> {
    held: Held<'a, Served<T>>,
}

impl<T> std::ops::Deref for Changing<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.held.state
    }
}

impl<T> std::ops::DerefMut for Changing<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.held.state
    }
}

/// Those who ask, for a member that combines.
#[derive(Debug)]
pub struct Asking<'a> {
    member: usize,
    asks: &'a PendingBits,
    standing: &'a Counter,
    quiet: &'a mut u32,
    /// It has looked for others once in this turn.
    looked: bool,
    taken: usize,
    more: bool,
}

impl Asking<'_> {
    /// The member that combines.
    #[inline]
    pub fn member(&self) -> usize {
        self.member
    }

    /// Brings the marks nearer, before they are looked at.
    #[inline]
    pub fn fetch(&self) {
        self.asks.fetch();
    }

    /// The other members that have left something, a bit each. Each is to be taken over now: its
    /// mark is gone.
    #[inline]
    pub fn take(&mut self) -> u64 {
        let mut asking = 0_u64;
        self.asks.take(|member| asking |= 1 << member);
        asking &= !(1 << self.member);
        if !std::mem::replace(&mut self.looked, true) {
            self.stand(asking != 0);
        }
        asking
    }

    /// So much was taken over. Whether to [look](Asking::take) again: others have left more, and
    /// this turn has not been long.
    #[inline]
    pub fn goes_on(&mut self, taken: usize) -> bool {
        self.taken += taken;
        self.asks.fetch();
        self.more = self.asks.any();
        self.more && self.taken < TENURE
    }

    /// Forgets all questions: there is nothing that a member could ask for.
    pub fn forget_all(&mut self) {
        self.asks.take(|_| {});
    }

    /// The member that stands does not come round: it stands no more.
    pub fn dismiss(&mut self) {
        self.standing.set(NOBODY);
    }

    /// The combiner stands if others have left something, and no more after some time in which they
    /// have not.
    #[inline]
    fn stand(&mut self, asked: bool) {
        *self.quiet = if asked { 0 } else { self.quiet.saturating_add(1) };
        let standing = if asked { self.member as u64 } else { NOBODY };
        if (asked || *self.quiet == QUIET) && self.standing.read() != standing {
            self.standing.set(standing);
        }
    }
}
