//! Whether a device keeps several requests at once, found out by watching it under load. Source:
//! docs/behaviour/bfq.md, section 16.5.

/// From when on a device is watched, and what it must do to count as queueing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueingRule {
    /// More requests than this, staged or in flight, are a load.
    pub load: usize,
    /// An idling queue in service with fewer requests than this may be what keeps the device idle.
    pub busy: usize,
    /// Samples before there is a verdict.
    pub samples: u32,
    /// So many at once in the device, and it queues.
    pub depth: usize,
}

/// The load that one completion shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceLoad {
    /// Requests in the scheduler.
    pub staged: usize,
    /// Requests in the device, the one that ends included.
    pub in_flight: usize,
    /// Requests, staged and in flight, of the queue in service if it idles.
    pub idler: Option<usize>,
}

/// The verdict so far: unknown counts as queueing, queueing is final, and not queueing is not.
#[derive(Clone, Copy, Debug)]
pub struct QueueingDetector {
    rule: QueueingRule,
    verdict: Option<bool>,
    depth_seen: usize,
    samples: u32,
}

impl QueueingDetector {
    /// Knows nothing yet.
    #[must_use]
    pub fn new(rule: QueueingRule) -> QueueingDetector {
        QueueingDetector { rule, verdict: None, depth_seen: 0, samples: 0 }
    }

    /// Whether the device is taken to queue.
    #[must_use]
    pub fn is_queueing(&self) -> bool {
        self.verdict != Some(false)
    }

    /// A request ended.
    pub fn sample(&mut self, load: DeviceLoad) {
        self.depth_seen = self.depth_seen.max(load.in_flight);
        let QueueingRule { load: loaded, busy, samples, depth } = self.rule;
        if self.verdict == Some(true) || load.staged <= loaded && load.in_flight <= loaded {
            return;
        }
        if load.idler.is_some_and(|requests| requests < busy) && load.in_flight < busy {
            return;
        }
        self.samples = self.samples.saturating_add(1);
        if self.samples >= samples {
            self.verdict = Some(self.depth_seen >= depth);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: QueueingRule = QueueingRule { load: 5, busy: 5, samples: 50, depth: 5 };

    #[test]
    fn one_at_a_time_under_load_is_no_queueing_until_it_is() {
        let mut detector = QueueingDetector::new(RULE);
        let one = DeviceLoad { staged: 10, in_flight: 1, idler: None };
        for sample in 0..50 {
            assert!(detector.is_queueing(), "unknown counts as queueing, sample {sample}");
            detector.sample(one);
        }
        assert!(!detector.is_queueing());
        detector.sample(DeviceLoad { in_flight: 5, ..one });
        assert!(detector.is_queueing());
        for _ in 0..100 {
            detector.sample(one);
        }
        assert!(detector.is_queueing(), "which is final");
    }

    #[test]
    fn without_load_or_behind_an_idling_queue_nothing_is_learnt() {
        let mut detector = QueueingDetector::new(RULE);
        for _ in 0..200 {
            detector.sample(DeviceLoad { staged: 5, in_flight: 5, idler: None });
            detector.sample(DeviceLoad { staged: 9, in_flight: 4, idler: Some(4) });
        }
        assert!(detector.is_queueing());
    }
}
