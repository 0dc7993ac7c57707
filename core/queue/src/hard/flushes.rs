//! The flush machines of one hard queue: one for the device, and in a pool one for each partition
//! with a flush under way, because a flush there is one of its own driver alone.

use std::sync::Arc;

use weir_bio::Nanos;

use super::flush::{FlushMachine, Order};
use super::flush_error::FlushError;
use crate::directory::Directory;
use crate::partition::partition_of;
use crate::request::RequestClaim;

/// All of them.
pub(crate) struct Flushes {
    whole: FlushMachine,
    /// By number, those that have something to do.
    of_partitions: Vec<(u16, FlushMachine)>,
    /// `None` of a device without partitions.
    partitions: Option<Arc<Directory>>,
}

impl Flushes {
    pub(crate) fn new(error: Arc<FlushError>, partitions: Option<Arc<Directory>>) -> Flushes {
        Flushes { whole: FlushMachine::new(error, 0), of_partitions: Vec::new(), partitions }
    }

    /// The machine of a request, which is made if it is not there.
    fn of(&mut self, claim: &RequestClaim) -> &mut FlushMachine {
        let Some(partitions) = &self.partitions else { return &mut self.whole };
        let number = partition_of(claim.rq.sector);
        if number == 0 {
            return &mut self.whole;
        }
        let known = self.of_partitions.iter().position(|(known, _)| *known == number);
        let place = known.unwrap_or_else(|| {
            // A partition that is gone has no request under way.
            let partition = partitions.find(number);
            let error = partition.map(|partition| Arc::clone(&partition.flush_error));
            let machine = FlushMachine::new(error.unwrap_or_default(), number);
            self.of_partitions.push((number, machine));
            self.of_partitions.len() - 1
        });
        &mut self.of_partitions[place].1
    }

    /// Lets go of the machines that have nothing to do.
    fn tidy(&mut self) {
        self.of_partitions.retain(|(_, machine)| !machine.is_idle());
    }

    fn all(&mut self) -> impl Iterator<Item = &mut FlushMachine> {
        let others = self.of_partitions.iter_mut().map(|(_, machine)| machine);
        std::iter::once(&mut self.whole).chain(others)
    }

    /// See [`FlushMachine::enter`].
    pub(crate) fn enter(&mut self, claim: RequestClaim, now: Nanos, orders: &mut Vec<Order>) {
        self.of(&claim).enter(claim, now, orders);
    }

    /// See [`FlushMachine::kick`].
    pub(crate) fn kick(&mut self, now: Nanos, orders: &mut Vec<Order>) {
        self.all().for_each(|machine| machine.kick(now, orders));
    }

    /// See [`FlushMachine::flush_ended`].
    pub(crate) fn flush_ended(&mut self, flush: RequestClaim, now: Nanos, orders: &mut Vec<Order>) {
        self.of(&flush).flush_ended(flush, now, orders);
        self.tidy();
    }

    /// See [`FlushMachine::data_ended`].
    pub(crate) fn data_ended(&mut self, claim: RequestClaim, now: Nanos, orders: &mut Vec<Order>) {
        self.of(&claim).data_ended(claim, now, orders);
        self.tidy();
    }

    /// See [`FlushMachine::expire`].
    #[cold]
    pub(crate) fn expire(&mut self, before: Nanos, now: Nanos, orders: &mut Vec<Order>) {
        self.all().for_each(|machine| machine.expire(before, now, orders));
        self.tidy();
    }

    /// See [`FlushMachine::wake_at`].
    #[inline]
    pub(crate) fn wake_at(&self) -> Option<Nanos> {
        let mut first = self.whole.wake_at();
        for (_, machine) in &self.of_partitions {
            first = Nanos::first_of(first, machine.wake_at());
        }
        first
    }

    /// Requests in any step.
    pub(crate) fn len(&self) -> usize {
        self.whole.len() + self.of_partitions.iter().map(|(_, m)| m.len()).sum::<usize>()
    }
}
