//! One thread's own way into a disk: a queue of its own, and blocking calls. Who turns the disk's
//! lanes is the session's [`Turner`].

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use weir_bio::{Bio, Buf, Nanos, SECTOR, Status};
use weir_live::Clock;
use weir_queue::{Bell, CAPS_AGAIN_NS, Completion, Device, Refused, Submitter};

use crate::error::{Bounds, explained};

mod blocking;
mod hosted;
mod inline;
mod lanes;
mod parts;

pub use hosted::Hosted;
pub use inline::{Inline, InlineSession};
pub use lanes::LaneDisk;
pub(crate) use parts::Parts;

/// Marks the cookies of pieces of a blocking call; the session's own, callers never see them.
const OWN: u64 = 1 << 63;

/// Marks, beside [`OWN`], a caller's cookie that was put away because it bears that mark.
const PUT_AWAY: u64 = 1 << 62;

/// Who turns the lanes that a session's I/O goes to: the disk's reactors ([`Hosted`]), or the
/// session itself ([`Inline`]). There are these two.
pub trait Turner: sealed::Turner {}

mod sealed {
    use weir_bio::Nanos;
    use weir_queue::{Completion, Submitter};

    pub trait Turner {
        /// Flushes the plug, turns the lanes that are the session's to turn, and hands over what
        /// has ended. The bell's tokens are taken before the look for that.
        fn pass(&mut self, submitter: &mut Submitter, now: Nanos, each: impl FnMut(Completion));

        /// Blocks until there may be something new, or until then.
        fn sleep(&mut self, until: Option<Nanos>);

        /// The session ends: this is its submitter, which is dropped next.
        fn end(&mut self, submitter: &mut Submitter) {
            let _ = submitter;
        }
    }
}

/// One thread's way into a disk. It can be moved to another thread between calls; several threads
/// have a session each. It keeps the disk open.
///
/// There are two ways to use it, side by side:
/// - [`submit`](Session::submit) as many I/Os as fit, then [`wait`](Session::wait) or
///   [`poll`](Session::poll) for those that have ended. Neighbours merge in the session's plug,
///   which `wait` and `poll` flush;
/// - the blocking calls, which take byte offsets and the caller's memory.
///
/// The blocking calls copy the caller's bytes in and out of buffers of the session: a device may
/// write to the memory of an I/O after its caller has given up on it (a timeout, a thread that
/// unwinds), so that memory is never the caller's. A caller that wants no copy uses `submit`, whose
/// [`Buf`]s travel with the I/O and come back.
///
/// Completions that are not taken count as unfinished: a session that has submitted and then
/// neither polls nor is dropped holds up a reconfiguration, a freeze and the closing of its disk.
///
/// Dropping it with I/O under way is allowed: that is finished, and its completions are dropped.
///
/// An [`InlineSession`] has the same calls and turns the disk on its own thread.
pub struct Session<T: Turner = Hosted> {
    submitter: Submitter,
    bell: Arc<Bell>,
    cookies: Cookies,
    /// Completions that came while a call waited for something else.
    ended: VecDeque<Completion>,
    /// Pieces of the blocking call that have ended.
    pieces: Vec<Completion>,
    spare: Vec<Buf>,
    device: Device,
    /// The logical block, bytes.
    block: u32,
    /// Bytes.
    size: u64,
    spins: bool,
    // After the submitter: dropping it may close the disk.
    turner: T,
    one_thread: PhantomData<Cell<()>>,
}

impl<T: Turner> Drop for Session<T> {
    fn drop(&mut self) {
        self.turner.end(&mut self.submitter);
    }
}

impl<T: Turner> Session<T> {
    fn of(device: &Device, submitter: Submitter, bell: Arc<Bell>, turner: T) -> Session<T> {
        let limits = device.limits();
        Session {
            submitter,
            bell,
            cookies: Cookies::default(),
            ended: VecDeque::new(),
            pieces: Vec::new(),
            spare: Vec::new(),
            device: device.clone(),
            block: limits.logical_block_size,
            size: limits.capacity * SECTOR,
            spins: false,
            turner,
            one_thread: PhantomData,
        }
    }

    /// I/Os submitted whose completions were not handed over yet.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.submitter.in_flight() + self.ended.len() as u64
    }

    /// Hands in one I/O; blocks while the session is full, the disk frozen, or a cap of the I/O's
    /// group holds it back. It waits in the plug,
    /// where neighbours merge, until a call flushes that. A malformed one is accepted and ends with
    /// its status.
    pub fn submit(&mut self, mut bio: Bio) {
        while let Err(refused) = self.try_submit(bio) {
            bio = self.wait_to_submit(refused);
        }
    }

    /// As [`submit`](Session::submit) of each, with one look at the clock: their times count from
    /// this call, or from the last wait for a place in it. So the I/Os are at hand when it is made;
    /// it takes some 20 ns less for each.
    pub fn submit_all(&mut self, bios: impl IntoIterator<Item = Bio>) {
        let mut now = Clock.now();
        for mut bio in bios {
            while let Err(refused) = self.try_submit_at(bio, now) {
                bio = self.wait_to_submit(refused);
                now = Clock.now();
            }
        }
    }

    /// As [`submit`](Session::submit), without blocking.
    ///
    /// # Errors
    /// [`Refused`], with the bio: the session is full, or the disk is frozen. Then
    /// [`poll`](Session::poll) or [`wait`](Session::wait), and try again. Or a cap of its group
    /// holds it back, for which nothing rings: try again at the time it says, by the clock of
    /// [`Clock`].
    pub fn try_submit(&mut self, bio: Bio) -> Result<(), Refused> {
        self.try_submit_at(bio, Clock.now())
    }

    #[inline]
    fn try_submit_at(&mut self, mut bio: Bio, now: Nanos) -> Result<(), Refused> {
        let cookie = bio.cookie;
        let bounds = Bounds { block: self.block, size: self.size };
        bio.cookie = self.cookies.put(cookie, bounds.refusal(&self.device, &bio));
        let index = bio.cookie;
        let refused = match self.submitter.submit(bio, now) {
            Ok(()) => return Ok(()),
            Err(refused) => refused,
        };
        self.cookies.take(index);
        Err(refused.map_bio(|bio| bio.cookie(cookie)))
    }

    /// Sends on what the plug holds.
    pub fn flush_plug(&mut self) {
        self.submitter.flush_plug(Clock.now());
    }

    /// Sends on what the plug holds, hands each I/O that has ended to `each`, and says how many
    /// there were. Does not block, unless an inline session [may](InlineSession::may_block).
    #[inline]
    pub fn poll(&mut self, mut each: impl FnMut(Completion)) -> usize {
        self.look();
        let count = self.ended.len();
        self.ended.drain(..).for_each(&mut each);
        count
    }

    /// As [`poll`](Session::poll), but blocks until at least one has ended. Returns 0 at once when
    /// none is in flight.
    #[inline]
    pub fn wait(&mut self, mut each: impl FnMut(Completion)) -> usize {
        loop {
            let count = self.poll(&mut each);
            if count > 0 || self.in_flight() == 0 {
                return count;
            }
            self.rest(None);
        }
    }

    /// As [`wait`](Session::wait), until `least` have ended, none is in flight any more, or the
    /// time is over: how many had ended by then, which may be 0. With a `least` of 0 it is a
    /// [`poll`](Session::poll).
    pub fn wait_for(
        &mut self,
        least: usize,
        timeout: Duration,
        mut each: impl FnMut(Completion),
    ) -> usize {
        let ns = timeout.as_nanos().min(u128::from(u64::MAX)) as u64;
        let until = Clock.now() + ns;
        let mut count = 0;
        loop {
            count += self.poll(&mut each);
            if count >= least || self.in_flight() == 0 || Clock.now() >= until {
                return count;
            }
            self.rest(Some(until));
        }
    }

    /// Whether [`wait`](Session::wait) and the blocking calls look again and again instead of
    /// sleeping. They then take all of a processor; without one to spare it makes everything
    /// slower. Not so at first.
    pub fn spin(&mut self, spins: bool) {
        self.spins = spins;
    }

    fn submit_own(&mut self, mut bio: Bio) {
        while let Err(refused) = self.submitter.submit(bio, Clock.now()) {
            bio = self.wait_to_submit(refused);
        }
    }

    fn wait_for_piece(&mut self) {
        loop {
            self.look();
            if !self.pieces.is_empty() {
                return;
            }
            self.rest(None);
        }
    }

    /// After a refusal: waits until it may have become different. The bell is cleared only
    /// afterwards, so nothing between the refusal and now is missed.
    #[cold]
    fn wait_to_submit(&mut self, refused: Refused) -> Bio {
        self.flush_plug();
        let until = match &refused {
            Refused::Capped { until, .. } => Some((*until).min(Clock.now() + CAPS_AGAIN_NS)),
            _ => None,
        };
        self.rest(until);
        self.look();
        refused.into_bio()
    }

    /// Flushes the plug, has the lanes turned, and takes what has ended. It is handed over from
    /// here: a panic of its receiver then leaves nothing half done.
    #[inline]
    fn look(&mut self) {
        let Session { turner, submitter, cookies, ended, pieces, .. } = self;
        turner.pass(submitter, Clock.now(), |mut completion| {
            if completion.cookie & (OWN | PUT_AWAY) == OWN {
                pieces.push(completion);
            } else {
                let (cookie, refusal) = cookies.take(completion.cookie);
                completion.cookie = cookie;
                completion.status = explained(completion.status, refusal);
                ended.push_back(completion);
            }
        });
    }

    /// Lets the thread rest until there may be something new, or until then.
    fn rest(&mut self, until: Option<Nanos>) {
        if self.spins {
            std::hint::spin_loop();
        } else {
            self.turner.sleep(until);
        }
    }
}

impl<T: Turner> fmt::Debug for Session<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.device.config().name;
        write!(f, "Session({name}, {} in flight)", self.in_flight())
    }
}

/// The callers' cookies that look like the session's own, and those of I/Os that the disk refuses
/// for their place, with how they end then: by those their I/O travels with. Any other travels as
/// it is.
#[derive(Default)]
struct Cookies {
    theirs: Vec<(u64, Option<Status>)>,
    free: Vec<u64>,
}

impl Cookies {
    #[inline]
    fn put(&mut self, theirs: u64, refusal: Option<Status>) -> u64 {
        let plain = theirs & OWN == 0 && refusal.is_none();
        if plain { theirs } else { self.put_away(theirs, refusal) }
    }

    #[cold]
    fn put_away(&mut self, theirs: u64, refusal: Option<Status>) -> u64 {
        let index = self.free.pop().unwrap_or(self.theirs.len() as u64);
        if index == self.theirs.len() as u64 {
            self.theirs.push((theirs, refusal));
        }
        self.theirs[index as usize] = (theirs, refusal);
        OWN | PUT_AWAY | index
    }

    #[inline]
    fn take(&mut self, cookie: u64) -> (u64, Option<Status>) {
        if cookie & OWN == 0 { (cookie, None) } else { self.take_out(cookie) }
    }

    #[cold]
    fn take_out(&mut self, cookie: u64) -> (u64, Option<Status>) {
        let index = cookie & !(OWN | PUT_AWAY);
        self.free.push(index);
        self.theirs[index as usize]
    }
}
