//! Whether a device keeps several requests at once, found out by watching it under load. Source:
//! docs/behaviour/bfq.md, section 16.5; bfq and cfq have a rule each.

/// From when on a device is watched, and what it must do to count as queueing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueingRule {
    /// The least load that can tell.
    pub load: LeastLoad,
    /// A queue in service with fewer requests than this, for which the device is going to be kept,
    /// may be what leaves the device empty.
    pub busy: usize,
    /// Samples before there is a verdict.
    pub samples: u32,
    /// So many at once in the device, and it queues.
    pub depth: usize,
    /// Each verdict begins the count of samples, and the search for the deepest, anew.
    pub forgets: bool,
}

/// More requests than this are a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeastLoad {
    /// Staged and in flight together.
    Together(usize),
    /// Staged, or in flight.
    Either(usize),
}

/// The load that one completion shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceLoad {
    /// Requests in the scheduler.
    pub staged: usize,
    /// Requests in the device, the one that ends included.
    pub in_flight: usize,
    /// Requests, staged and in flight, of the queue in service if the device is going to be kept
    /// for it once it has none. The timer does not count: at its completion it does not run yet.
    pub idler: Option<usize>,
}

/// The verdict so far: unknown counts as queueing, queueing is final, and not queueing is not.
#[derive(Clone, Copy, Debug)]
pub struct QueueingDetector {
    rule: QueueingRule,
    verdict: Option<bool>,
    deepest: usize,
    samples: u32,
}

impl QueueingDetector {
    /// Knows nothing yet.
    #[must_use]
    pub const fn new(rule: QueueingRule) -> QueueingDetector {
        QueueingDetector { rule, verdict: None, deepest: 0, samples: 0 }
    }

    /// Whether the device is taken to queue.
    #[must_use]
    pub fn is_queueing(&self) -> bool {
        self.verdict != Some(false)
    }

    /// Whether more can be learnt.
    #[must_use]
    #[inline]
    pub fn is_open(&self) -> bool {
        self.verdict != Some(true)
    }

    /// The most requests that were seen in the device.
    #[must_use]
    pub fn deepest(&self) -> usize {
        self.deepest
    }

    /// Sets the verdict, or leaves it to observation.
    pub fn decide(&mut self, queueing: Option<bool>) {
        self.verdict = queueing;
    }

    /// A request ended, with so many in the device before.
    #[inline]
    pub fn note_depth(&mut self, in_flight: usize) {
        self.deepest = self.deepest.max(in_flight);
    }

    /// A request ended under this load, whose depth was noted.
    pub fn sample(&mut self, load: DeviceLoad) {
        let DeviceLoad { staged, in_flight, idler } = load;
        let loaded = match self.rule.load {
            LeastLoad::Together(least) => staged + in_flight > least,
            LeastLoad::Either(least) => staged > least || in_flight > least,
        };
        let few = |requests| requests < self.rule.busy;
        if !self.is_open() || !loaded || idler.is_some_and(few) && few(in_flight) {
            return;
        }
        self.samples = self.samples.saturating_add(1);
        if self.samples < self.rule.samples {
            return;
        }
        self.verdict = Some(self.deepest >= self.rule.depth);
        if self.rule.forgets {
            (self.samples, self.deepest) = (0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BFQ: QueueingRule = QueueingRule {
        load: LeastLoad::Together(3),
        busy: 3,
        samples: 32,
        depth: 4,
        forgets: true,
    };
    const CFQ: QueueingRule =
        QueueingRule { load: LeastLoad::Either(5), busy: 5, samples: 50, depth: 5, forgets: false };

    fn watch(detector: &mut QueueingDetector, load: DeviceLoad, times: u32) -> bool {
        for _ in 0..times {
            detector.note_depth(load.in_flight);
            detector.sample(load);
        }
        detector.is_queueing()
    }

    /// Whether a device counts as queueing after so many samples of one load and one more.
    #[test]
    fn a_verdict_needs_load_samples_and_no_queue_that_keeps_the_device_empty() {
        let table: &[(QueueingRule, usize, usize, Option<usize>, bool)] = &[
            // rule, staged, in flight, requests of a queue to be idled for; counts as a sample.
            (BFQ, 3, 1, None, true),
            (BFQ, 2, 1, None, false),
            (BFQ, 1, 3, None, true),
            (BFQ, 9, 1, Some(2), false),
            (BFQ, 9, 2, Some(2), false),
            (BFQ, 9, 1, Some(3), true),
            (BFQ, 9, 3, Some(2), true),
            (CFQ, 6, 1, None, true),
            (CFQ, 5, 4, None, false),
            (CFQ, 9, 4, Some(4), false),
            (CFQ, 9, 1, Some(5), true),
        ];
        for (rule, staged, in_flight, idler, counts) in table.iter().copied() {
            let load = DeviceLoad { staged, in_flight, idler };
            let mut detector = QueueingDetector::new(rule);
            assert!(
                watch(&mut detector, load, rule.samples - 1),
                "unknown counts as yes: {load:?}"
            );
            assert_eq!(watch(&mut detector, load, 1), !counts, "{rule:?}, {load:?}");
        }
    }

    #[test]
    fn no_is_looked_at_again_and_yes_is_final() {
        for rule in [BFQ, CFQ] {
            let mut detector = QueueingDetector::new(rule);
            let shallow = DeviceLoad { staged: 9, in_flight: 1, idler: None };
            assert!(!watch(&mut detector, shallow, rule.samples));
            let deep = DeviceLoad { in_flight: rule.depth, ..shallow };
            let again = if rule.forgets { rule.samples } else { 1 };
            assert!(!watch(&mut detector, deep, again - 1), "{rule:?}");
            assert!(watch(&mut detector, deep, 1), "{rule:?}");
            assert!(watch(&mut detector, shallow, 3 * rule.samples), "{rule:?}");
        }
    }

    #[test]
    fn the_deepest_load_that_was_seen_is_known_until_a_verdict_begins_anew() {
        for (rule, left) in [(BFQ, 0), (CFQ, 7)] {
            let mut detector = QueueingDetector::new(rule);
            for (in_flight, deepest) in [(2, 2), (7, 7), (3, 7)] {
                detector.note_depth(in_flight);
                assert_eq!(detector.deepest(), deepest);
            }
            let load = DeviceLoad { staged: 9, in_flight: 1, idler: None };
            (0..rule.samples).for_each(|_| detector.sample(load));
            assert_eq!(detector.deepest(), left, "{rule:?}");
        }
    }

    #[test]
    fn one_less_than_the_depth_of_the_rule_is_no_queue() {
        for rule in [BFQ, CFQ] {
            for (in_flight, queues) in [(rule.depth - 1, false), (rule.depth, true)] {
                let load = DeviceLoad { staged: 9, in_flight, idler: None };
                let mut detector = QueueingDetector::new(rule);
                assert_eq!(watch(&mut detector, load, rule.samples), queues, "{rule:?}");
            }
        }
    }
}
