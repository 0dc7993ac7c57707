//! The services of a reactor, each with a number of its own.

use crate::service::Service;

/// Places for them. A place is used again, a number is not: its upper half counts who had the place
/// before, so that a handle, an event or a token of one that is gone does not reach its successor.
#[derive(Default)]
pub(crate) struct Services {
    places: Vec<Place>,
    free: Vec<u16>,
}

struct Place {
    number: u32,
    service: Option<Box<dyn Service>>,
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
        self.places.push(Place { number: number as u32, service: None });
        number as u32
    }

    pub(crate) fn put(&mut self, number: u32, service: Box<dyn Service>) {
        self.places[index(number)].service = Some(service);
    }

    #[inline]
    pub(crate) fn find(&mut self, number: u32) -> Option<&mut (dyn Service + 'static)> {
        let place = self.places.get_mut(index(number))?;
        if place.number == number { place.service.as_deref_mut() } else { None }
    }

    pub(crate) fn remove(&mut self, number: u32) {
        if self.find(number).is_some() {
            let place = &mut self.places[index(number)];
            place.service = None;
            place.number = place.number.wrapping_add(1 << 16);
            self.free.push(index(number) as u16);
        }
    }

    /// The number of the service in each place, in turn; `None` behind the last.
    pub(crate) fn number_at(&self, place: usize) -> Option<u32> {
        self.places.get(place).map(|place| place.number)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &dyn Service> {
        self.places.iter().filter_map(|place| place.service.as_deref())
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
                assert!(services.find(number).is_some());
                services.remove(number);
                services.remove(number);
                assert!(services.find(number).is_none());
                seen.insert(number);
            }
        }
        assert_eq!(services.places.len(), 3);
        assert_eq!(seen.len(), 3 << 16, "until the upper half has gone round");
    }
}
