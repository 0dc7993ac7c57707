//! The services of a reactor, each with a number of its own. A service that is not called costs a
//! round nothing: its next time changes only when it is called.

use weir_bio::Nanos;
use weir_queue::Alarms;

use crate::service::Service;

/// The table of a reactor's services. A place is used again, a number is not: its upper half counts
/// the services that had the place before, so that a handle, an event or a token of a service that
/// is gone does not reach its successor.
#[derive(Default)]
pub(crate) struct Services {
    places: Vec<Place>,
    free: Vec<u16>,
    /// Services called since they settled last.
    called: Vec<u32>,
    alarms: Alarms,
}

struct Place {
    number: u32,
    service: Option<Box<dyn Service>>,
    /// It is among those called.
    called: bool,
    /// When it is to be looked at, if that is set.
    alarm: Option<Nanos>,
}

/// Two less than the lower half could tell apart: the greatest numbers are the reactor's own.
const PLACES_MAX: usize = u16::MAX as usize - 1;

impl Services {
    /// The number of the service that is [put](Services::put) next.
    ///
    /// # Panics
    /// With 65,534 services: more than there can be submitters and connections.
    pub(crate) fn reserve(&mut self) -> u32 {
        if let Some(index) = self.free.pop() {
            return self.places[usize::from(index)].number;
        }
        let number = self.places.len();
        assert!(number < PLACES_MAX, "{number} services on one reactor");
        let number = number as u32;
        self.places.push(Place { number, service: None, called: false, alarm: None });
        number
    }

    /// It settles in the first round it is there.
    pub(crate) fn put(&mut self, number: u32, service: Box<dyn Service>) {
        self.places[index(number)].service = Some(service);
        self.call(number);
    }

    /// The service, to be called: it will have to settle.
    #[inline]
    pub(crate) fn call(&mut self, number: u32) -> Option<&mut (dyn Service + 'static)> {
        let place = self.places.get_mut(index(number))?;
        if place.number != number {
            return None;
        }
        let service = place.service.as_deref_mut()?;
        if !place.called {
            place.called = true;
            self.called.push(number);
        }
        Some(service)
    }

    /// Those that have to settle. The list, empty, comes [back](Services::keep) for its memory.
    pub(crate) fn take_called(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.called)
    }

    pub(crate) fn keep(&mut self, list: Vec<u32>) {
        if self.called.is_empty() {
            self.called = list;
        }
    }

    /// A service has settled; it has to do so `again`, or else nothing changes what it wants until
    /// it is called.
    pub(crate) fn settled(&mut self, number: u32, again: bool) {
        let Some(place) = self.places.get_mut(index(number)) else { return };
        let Some(service) = place.service.as_deref().filter(|_| place.number == number) else {
            return;
        };
        place.called = again;
        let at = service.wake_at();
        if again {
            self.called.push(number);
        }
        self.alarms.set(&mut place.alarm, number, at);
    }

    /// A service whose time has come.
    pub(crate) fn take_due(&mut self, now: Nanos) -> Option<u32> {
        while let Some(number) = self.alarms.take_due(now) {
            let Some(place) = self.places.get_mut(index(number)) else { continue };
            place.alarm = None;
            let at = place.service.as_deref().and_then(Service::wake_at);
            if at.is_some_and(|at| at <= now) {
                return Some(number);
            }
            self.alarms.set(&mut place.alarm, number, at);
        }
        None
    }

    /// When a service wants to be called.
    pub(crate) fn earliest(&self) -> Option<Nanos> {
        self.alarms.earliest()
    }

    pub(crate) fn remove(&mut self, number: u32) {
        let Services { places, free, alarms, .. } = self;
        let Some(place) = places.get_mut(index(number)).filter(|place| place.number == number)
        else {
            return;
        };
        if place.service.take().is_some() {
            alarms.clear(&mut place.alarm, number);
            place.called = false;
            place.number = place.number.wrapping_add(1 << 16);
            free.push(index(number) as u16);
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = Services::default();
    }
}

fn index(number: u32) -> usize {
    usize::from(number as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poll::Readiness;
    use crate::service::Turn;

    struct Nothing;

    impl Service for Nothing {
        fn ready(&mut self, _: &mut Turn<'_>, _: u32, _: Readiness) {}
        fn completed(&mut self, _: &mut Turn<'_>, _: u32) {}
        fn settle(&mut self, _: &mut Turn<'_>) {}
    }

    #[test]
    fn a_place_is_used_again_and_a_number_is_not() {
        let mut services = Services::default();
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..100_000 {
            let numbers = [(); 3].map(|()| services.reserve());
            numbers.iter().for_each(|number| services.put(*number, Box::new(Nothing)));
            for number in numbers {
                assert!(services.call(number).is_some());
                services.remove(number);
                services.remove(number);
                assert!(services.call(number).is_none());
                seen.insert(number);
            }
        }
        assert_eq!(services.places.len(), 3);
        assert_eq!(seen.len(), 3 << 16, "until the upper half has gone round");
    }
}
