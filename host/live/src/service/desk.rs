//! The part of a reactor that its services reach, and the orders that other threads may give it.

use std::rc::Rc;
use std::sync::Arc;

use weir_bio::Nanos;
use weir_queue::{Bell, Device, Error, Home, Lane};
use weir_ring::Mailbox;

use super::{Service, Turn};
use crate::poll::Poller;
use crate::polling::{Counters, Polling, ShownRule, Votes};

/// Submitters of one reactor: as many as its bell has bits.
pub(crate) const SUBMITTERS: usize = weir_ring::PendingBits::SOURCES_MAX;

/// Makes a service on its reactor.
pub(crate) type MakeService<'a> = Box<dyn FnOnce(&mut Turn<'_>) -> Box<dyn Service> + 'a>;

/// The orders that a reactor takes.
pub(crate) trait Orders {
    /// Its lanes.
    fn home(&self) -> &Home;

    /// Opens a lane here.
    fn open_lane(&mut self, device: &Device, index: usize) -> Result<(), Error>;

    /// Closes lanes here. They have to be idle.
    fn close_lanes(&mut self, which: &dyn Fn(&Lane) -> bool);

    /// Adds the service that `make` makes, and returns its number.
    fn add_service(&mut self, make: MakeService<'_>) -> u32;

    /// Calls `call` with a service, if it is still there.
    fn with_service(&mut self, number: u32, call: &mut dyn FnMut(&mut dyn Service, &mut Turn<'_>));

    fn remove_service(&mut self, number: u32);

    /// This is the host's rule of polling from now on.
    fn set_polling(&mut self, polling: Polling);

    /// It ends after this pass.
    fn stop(&mut self);
}

/// Work for a reactor from another thread.
pub(crate) type Order = Box<dyn FnOnce(&mut dyn Orders) + Send>;

/// The part of a reactor that other threads reach.
pub(crate) struct Remote {
    pub(crate) orders: Mailbox<Order>,
    pub(crate) bell: Arc<Bell>,
    pub(crate) polls: Arc<Counters>,
    /// The rule of polling that it follows now.
    pub(crate) rule: Arc<ShownRule>,
}

impl Remote {
    /// Has the reactor run `order`. One for a reactor that has ended is dropped at once.
    pub(crate) fn post(&self, order: impl FnOnce(&mut dyn Orders) + Send + 'static) {
        self.orders.post(Box::new(order));
        self.bell.doorbell().ring();
    }
}

/// The part of a reactor that a service reaches through its [`Turn`].
pub(crate) struct Desk {
    pub(crate) index: usize,
    /// How many there are.
    pub(crate) reactors: usize,
    pub(crate) remote: Arc<Remote>,
    pub(crate) now: Nanos,
    pub(crate) poller: Poller,
    pub(crate) votes: Rc<Votes>,
    pub(crate) rotor: usize,
    /// Services may have submitted since the lanes were turned.
    pub(crate) again: bool,
    /// By bell token: the service and its own number for the submitter.
    pub(crate) submitters: Vec<Option<(u32, u32)>>,
    pub(crate) free: Vec<usize>,
}

impl Desk {
    pub(crate) fn take_token(&mut self, service: u32, token: u32) -> Result<usize, Error> {
        let free = self.free.pop().unwrap_or(self.submitters.len());
        if free >= SUBMITTERS {
            let what = format!("submitters={} of a reactor is above {SUBMITTERS}", free + 1);
            return Err(Error::Invalid(what));
        }
        if free == self.submitters.len() {
            self.submitters.push(None);
        }
        self.submitters[free] = Some((service, token));
        Ok(free)
    }

    pub(crate) fn free_token(&mut self, bell_token: usize) {
        self.submitters[bell_token] = None;
        self.free.push(bell_token);
    }
}
