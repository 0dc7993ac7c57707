//! Services, which run on a reactor beside lanes: services, and what they may ask of it.

use std::any::Any;
use std::marker::PhantomData;
use std::os::fd::AsFd;
use std::sync::Arc;

use weir_bio::Nanos;
use weir_queue::{Device, Error, Home, Lane, Submitter};

use crate::poll::{Interest, Readiness};
use crate::polling::{PollRule, PollVote, Votes};

pub(crate) mod desk;

use desk::{Desk, Remote};

/// Something with descriptors of its own that submits I/O: a front. It lives and dies on one
/// reactor, so nothing in it is shared.
///
/// # Contract
/// No call blocks. Every submitter it submits to has its plug flushed before the call returns; one
/// that submits in `settle` says so with [`Turn::again`]. Numbers (`token`) are the service's own;
/// a call with one it has given up is possible (an event of the same pass, a completion that is not
/// waited for) and must do nothing.
pub trait Service: Any {
    /// A watched descriptor is ready.
    fn ready(&mut self, turn: &mut Turn<'_>, token: u32, readiness: Readiness);

    /// A submitter has completions, or may try again what it was refused.
    fn completed(&mut self, turn: &mut Turn<'_>, token: u32);

    /// Everything that was ready has been looked at: send what has gathered. It comes at the end of
    /// a round in which the service was called.
    fn settle(&mut self, turn: &mut Turn<'_>);

    /// When to call [`timer`](Service::timer) although nothing happens. Asked when the service has
    /// settled, and when the time has come that was said then.
    fn wake_at(&self) -> Option<Nanos> {
        None
    }

    /// Its time has come.
    fn timer(&mut self, turn: &mut Turn<'_>) {
        let _ = turn;
    }
}

/// A submitter with its place on the reactor's bell. Given back with [`Turn::leave`].
pub struct Seat {
    /// The way into the device.
    pub submitter: Submitter,
    pub(crate) bell_token: usize,
}

/// One call of a service: the time, and what the reactor does for it.
pub struct Turn<'a> {
    pub(crate) service: u32,
    pub(crate) desk: &'a mut Desk,
    pub(crate) home: &'a Home,
}

impl Turn<'_> {
    /// The time of this pass.
    #[must_use]
    #[inline]
    pub fn now(&self) -> Nanos {
        self.desk.now
    }

    /// Which reactor this is.
    #[must_use]
    pub fn reactor(&self) -> usize {
        self.desk.index
    }

    /// The way back to the calling service from other threads. `S` is the service's own type: what
    /// is posted through a handle of another type is dropped.
    #[must_use]
    pub fn handle<S: Service>(&self) -> Handle<S> {
        Handle::new(Arc::clone(&self.desk.remote), self.service)
    }

    /// Asks for another round of this pass: the service has submitted in
    /// [`settle`](Service::settle).
    #[inline]
    pub fn again(&mut self) {
        self.desk.again = true;
    }

    /// Has the reactor poll before it sleeps by this rule at least, as long as the vote is kept. It
    /// follows the strongest rule that there is a vote for, and without any that of the host, which
    /// is what the default rule asks for.
    pub fn vote(&self, rule: PollRule) -> PollVote {
        Votes::vote(&self.desk.votes, rule)
    }

    /// Watches a descriptor, to be named by `token`. It stays the service's; it has to stop
    /// watching before it closes a descriptor that has duplicates.
    ///
    /// # Errors
    /// The system's: it cannot be watched, or nothing more can.
    pub fn watch(&self, fd: impl AsFd, token: u32, interest: Interest) -> std::io::Result<()> {
        self.desk.poller.add(fd.as_fd(), key(self.service, token), interest)
    }

    /// Changes what is heard of a watched descriptor.
    ///
    /// # Errors
    /// The system's: it is not watched.
    pub fn rewatch(&self, fd: impl AsFd, token: u32, interest: Interest) -> std::io::Result<()> {
        self.desk.poller.change(fd.as_fd(), key(self.service, token), interest)
    }

    /// Stops watching a descriptor; one that is not watched is no error.
    pub fn unwatch(&self, fd: impl AsFd) {
        let _ = self.desk.poller.remove(fd.as_fd());
    }

    /// A submitter into `device`, on a lane of this reactor if it has one, whose completions come
    /// as [`Service::completed`] with `token`.
    ///
    /// # Errors
    /// Too many submitters, in the device or on this reactor.
    pub fn submitter(&mut self, device: &Device, token: u32) -> Result<Seat, Error> {
        let bell_token = self.desk.take_token(self.service, token)?;
        let lane = self.lane_for(device);
        match device.submitter(self.home.bell(), bell_token, lane) {
            Ok(submitter) => Ok(Seat { submitter, bell_token }),
            Err(error) => {
                self.desk.free_token(bell_token);
                Err(error)
            }
        }
    }

    /// Gives a submitter back. I/O it has under way is finished, and its answers are dropped.
    pub fn leave(&mut self, seat: Seat) {
        let Seat { submitter, bell_token } = seat;
        drop(submitter);
        self.desk.free_token(bell_token);
    }

    /// The device's lanes on this reactor in turn; without one, any that others turn. It is a
    /// number that leads there with as many lanes as there are, and with another number of them to
    /// a lane of this reactor again, in turn, if each reactor has as many.
    fn lane_for(&mut self, device: &Device) -> usize {
        let own = self.home.lanes().filter(|lane| device.owns(lane)).map(Lane::index);
        let own: Vec<usize> = own.collect();
        let (queues, reactors) = (usize::from(device.queues()), self.desk.reactors);
        let turn = self.desk.rotor;
        self.desk.rotor = turn.wrapping_add(1);
        let (first, round) = match own.len() {
            0 => (self.desk.index, turn),
            len => (own[turn % len], turn / len),
        };
        // A multiple of both changes neither the lane nor its home.
        first + round % ROUNDS * common_multiple(queues, reactors)
    }
}

/// The way to a service from any thread.
pub struct Handle<S> {
    remote: Arc<Remote>,
    service: u32,
    of: PhantomData<fn(S)>,
}

impl<S> Clone for Handle<S> {
    fn clone(&self) -> Handle<S> {
        Handle { remote: Arc::clone(&self.remote), service: self.service, of: PhantomData }
    }
}

impl<S: Service> Handle<S> {
    pub(crate) fn new(remote: Arc<Remote>, service: u32) -> Handle<S> {
        Handle { remote, service, of: PhantomData }
    }

    /// Calls `call` with the service, on its reactor. Dropped if the service is gone, or its
    /// reactor has ended.
    pub fn post(&self, call: impl FnOnce(&mut S, &mut Turn<'_>) + Send + 'static) {
        let service = self.service;
        let mut call = Some(call);
        self.remote.post(move |reactor| {
            reactor.with_service(service, &mut |service, turn| {
                let service: &mut dyn Any = service;
                if let (Some(service), Some(call)) = (service.downcast_mut(), call.take()) {
                    call(service, turn);
                }
            });
        });
    }

    /// Drops the service. Messages posted to it afterwards are dropped as well.
    pub fn remove(&self) {
        let service = self.service;
        self.remote.post(move |reactor| reactor.remove_service(service));
    }
}

/// Rounds over a reactor's own lanes before the numbers of its submitters begin anew.
const ROUNDS: usize = 64;

/// The least one of two numbers that are not 0.
fn common_multiple(one: usize, other: usize) -> usize {
    let (mut divisor, mut rest) = (one, other);
    while rest > 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    one / divisor * other
}

/// The poller's key for a service's descriptor.
pub(crate) fn key(service: u32, token: u32) -> u64 {
    u64::from(service) << 32 | u64::from(token)
}
