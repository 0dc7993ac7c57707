//! A channel: one hardware queue of a host. Its port is opened with the first lane that comes, and
//! closed with the last one that goes.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_queue::DriverError;

use super::{Carrier, Wakes};
use crate::counters::Counters;
use crate::shared::HostShared;
use crate::unit::UnitShared;
use crate::units::Units;

/// One hardware queue of a host.
pub(crate) struct Channel {
    host: Arc<HostShared>,
    units: Arc<Units>,
    index: u16,
    carrier: Mutex<Option<Box<Carrier>>>,
}

/// How a lane learns that its port has something for it.
pub(crate) enum Announced {
    /// By this event.
    Event(OwnedFd),
    /// The port's owner has the lane turned.
    Turned,
    /// Not at all: it looks in every round.
    Nothing,
}

/// What a lane has of its port.
pub(crate) struct Entered {
    pub(crate) seat: u16,
    pub(crate) announced: Announced,
}

/// The port's lock, held.
pub(crate) struct Turn<'a> {
    carrier: MutexGuard<'a, Option<Box<Carrier>>>,
}

impl std::ops::Deref for Turn<'_> {
    type Target = Carrier;
    fn deref(&self) -> &Carrier {
        self.carrier.as_ref().expect("a lane keeps its port open")
    }
}

impl std::ops::DerefMut for Turn<'_> {
    fn deref_mut(&mut self) -> &mut Carrier {
        self.carrier.as_mut().expect("a lane keeps its port open")
    }
}

impl Channel {
    pub(crate) fn new(host: &Arc<HostShared>, units: &Arc<Units>, index: u16) -> Channel {
        let (host, units) = (Arc::clone(host), Arc::clone(units));
        Channel { host, units, index, carrier: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Box<Carrier>>> {
        self.carrier.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The port, for a lane that has a seat.
    #[inline]
    pub(crate) fn turn(&self) -> Turn<'_> {
        let mut turn = Turn { carrier: self.lock() };
        if let Some(suspects) = self.host.suspects(self.index) {
            suspects.into_iter().for_each(|lun| turn.doubt(lun));
        }
        turn
    }

    /// A seat for a lane of `unit`, and how it learns of ends.
    pub(crate) fn enter(
        &self,
        unit: &Arc<UnitShared>,
        counters: Arc<Counters>,
    ) -> Result<Entered, DriverError> {
        let mut carrier = self.lock();
        if carrier.is_none() {
            let port = self.host.transport.open(self.index)?;
            let (host, units) = (Arc::clone(&self.host), Arc::clone(&self.units));
            *carrier = Some(Box::new(Carrier::new(host, units, self.index, port)));
        }
        let open = carrier.as_mut().expect("it was opened");
        let event = open.port().event_fd().map(|event| event.try_clone_to_owned()).transpose();
        match event {
            Ok(event) => {
                let announced = match event {
                    Some(event) => Announced::Event(event),
                    None if open.port().announces() => Announced::Turned,
                    None => Announced::Nothing,
                };
                Ok(Entered { seat: open.seat(unit, counters), announced })
            }
            Err(source) => {
                if !open.is_used() {
                    *carrier = None;
                }
                let what = format!("{}: port {}: its event", self.host.name, self.index);
                Err(DriverError { what, source: Some(source) })
            }
        }
    }

    /// The lane is gone; the port with the last one.
    pub(crate) fn leave(&self, seat: u16) {
        let mut wakes = Wakes::default();
        let closed = {
            let mut carrier = self.lock();
            let open = carrier.as_mut().expect("a lane keeps its port open");
            open.leave(seat, &mut wakes);
            if open.is_used() { None } else { carrier.take() }
        };
        // Ending a connection may take a while.
        drop(closed);
        wakes.ring();
    }
}
