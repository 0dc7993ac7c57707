//! Whose the device's time is while it has requests of several queues. Source:
//! docs/behaviour/bfq.md, section 5. Times in ns.
//!
//! A slot holds the device from its beginning to its end, and a device that takes several requests
//! is still at work on those of the slot before, or on injected ones. That time is another queue's.
//! The time from one end of a request to the next is taken for that of the request that ended,
//! whatever the device did at once: so the parts add up to the time it was busy.

use weir_bio::Nanos;

/// The account of the slot that runs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DeviceTime {
    /// Up to here the time has its queue: a request ended, the device was idle, or a slot began.
    settled: Nanos,
    /// What requests of other queues took of this slot.
    of_others: u64,
    /// As [`of_others`](DeviceTime::of_others), up to the idling for the queue in service.
    before_idling: u64,
}

impl DeviceTime {
    /// A slot begins or ends.
    pub(super) fn turn(&mut self, now: Nanos) {
        *self = DeviceTime { settled: now, ..DeviceTime::default() };
    }

    /// The device gets a request and had none.
    pub(super) fn begin(&mut self, now: Nanos) {
        self.settled = now;
    }

    /// The queue in service is idled for.
    pub(super) fn begin_idling(&mut self) {
        self.before_idling = self.of_others;
    }

    /// A request ended that is not of the queue in service; what it took of the slot.
    pub(super) fn foreign_end(&mut self, now: Nanos) -> u64 {
        let ns = now.since(self.settled);
        self.of_others += ns;
        self.settled = now;
        ns
    }

    /// A request of the queue in service ended.
    pub(super) fn own_end(&mut self, now: Nanos) {
        self.settled = now;
    }

    /// What other queues had of the slot; up to its idling if that came to nothing.
    pub(super) fn of_others(&self, idled_in_vain: bool) -> u64 {
        if idled_in_vain { self.before_idling } else { self.of_others }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn the_time_since_the_last_end_is_that_of_the_request_that_ended() {
        let at = Nanos::from_ms;
        let mut time = DeviceTime::default();
        time.turn(at(100));
        assert_eq!(time.foreign_end(at(108)), 8 * MS);
        time.own_end(at(117));
        assert_eq!(time.foreign_end(at(120)), 3 * MS);
        assert_eq!(time.of_others(false), 11 * MS);
        time.begin(at(150));
        assert_eq!(time.foreign_end(at(152)), 2 * MS, "the device was idle before");
        time.begin_idling();
        assert_eq!(time.foreign_end(at(160)), 8 * MS);
        assert_eq!((time.of_others(true), time.of_others(false)), (13 * MS, 21 * MS));
        time.turn(at(170));
        assert_eq!((time.of_others(true), time.of_others(false)), (0, 0));
        assert_eq!(time.foreign_end(at(172)), 2 * MS, "what was before is the last slot's");
    }
}
