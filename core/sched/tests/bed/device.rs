//! Modelled devices: when a request that is handed over now will be answered.

use weir_bio::{Nanos, Op, Prng, Rq, SECTOR};

/// How long a request takes.
#[derive(Clone, Copy, Debug)]
enum Model {
    /// One at a time, each this long whatever its size.
    Serial { service_ns: u64 },
    /// One at a time: its bytes at this rate, and before them this long unless it starts where the
    /// last one ended.
    Media { bytes_per_s: u64, seek_ns: u64 },
    /// So many at a time, each this long.
    Slots { service_ns: u64 },
}

/// A device: it takes up to `depth` requests and answers each at a time known when it is taken.
#[derive(Clone, Debug)]
pub struct Device {
    model: Model,
    depth: usize,
    rotational: bool,
    flush_ns: u64,
    overhead_ns: u64,
    /// How much shorter or longer than its mean a service may be, and what decides it.
    noise: Option<(u64, Prng)>,
    /// When each slot is free again; a single one but for slots.
    free_at: Vec<Nanos>,
    /// The sector behind the last request.
    head: u64,
}

impl Device {
    fn new(model: Model, slots: usize, rotational: bool) -> Device {
        let free_at = vec![Nanos::ZERO; slots];
        let (depth, flush_ns, overhead_ns, noise, head) = (slots, 0, 0, None, 0);
        Device { model, depth, rotational, flush_ns, overhead_ns, noise, free_at, head }
    }

    /// One request at a time, `service_ns` each.
    pub fn serial(service_ns: u64) -> Device {
        Device::new(Model::Serial { service_ns }, 1, false)
    }

    /// The device F of the BFQ properties: one request at a time, 100 MB/s, no seeks; it says that
    /// it is rotational.
    pub fn f() -> Device {
        Device::new(Model::Media { bytes_per_s: 100_000_000, seek_ns: 0 }, 1, true)
    }

    /// A rotating disk: one request at a time, and a fixed time for whatever does not start where
    /// the last one ended.
    pub fn disk(bytes_per_s: u64, seek_ns: u64) -> Device {
        Device::new(Model::Media { bytes_per_s, seek_ns }, 1, true)
    }

    /// The disk of the BFQ and CFQ properties: 104 MB/s and 8.7 ms.
    pub fn hdd() -> Device {
        Device::disk(104_000_000, 8_700_000)
    }

    /// `slots` requests at a time, `service_ns` each, whatever the order.
    pub fn slots(slots: usize, service_ns: u64) -> Device {
        Device::new(Model::Slots { service_ns }, slots, false)
    }

    /// The flash disk of the BFQ properties: 32 slots of 100 us.
    pub fn ssd() -> Device {
        Device::slots(32, 100_000)
    }

    /// How many requests it takes before it has answered one.
    pub fn with_depth(self, depth: usize) -> Device {
        assert!(depth > 0, "a device takes at least one request");
        Device { depth, ..self }
    }

    /// How long a flush takes; it begins when all that was taken before it has ended.
    pub fn with_flush(self, flush_ns: u64) -> Device {
        Device { flush_ns, ..self }
    }

    /// Time between one answer and the beginning of the next service.
    pub fn with_overhead(self, overhead_ns: u64) -> Device {
        Device { overhead_ns, ..self }
    }

    /// Each service is up to so much shorter or longer. A client that thinks for a fixed time
    /// falls into step with a device that has no noise, and sees one phase of it only.
    pub fn with_noise(self, noise_ns: u64, seed: u64) -> Device {
        Device { noise: Some((noise_ns, Prng::new(seed))), ..self }
    }

    /// Sets whether the device reports itself as rotational.
    pub fn says_rotational(self, rotational: bool) -> Device {
        Device { rotational, ..self }
    }

    /// Whether seeks cost time, as it says.
    pub fn is_rotational(&self) -> bool {
        self.rotational
    }

    /// Whether it takes one more.
    pub fn has_room(&self, in_flight: usize) -> bool {
        in_flight < self.depth
    }

    /// Takes a request now; when it will be answered.
    pub fn take(&mut self, rq: &Rq, now: Nanos) -> Nanos {
        if rq.op == Op::Flush {
            let begin = self.free_at.iter().copied().fold(now, Nanos::max);
            let end = begin + self.flush_ns;
            self.free_at.fill(end);
            return end;
        }
        let slots = self.free_at.iter_mut();
        let slot = slots.min_by_key(|free| **free).expect("a device has a slot");
        let begin = now.max(*slot) + self.overhead_ns;
        let service_ns = match self.model {
            Model::Serial { service_ns } | Model::Slots { service_ns } => service_ns,
            Model::Media { bytes_per_s, seek_ns } => {
                let bytes = u64::from(rq.sectors) * SECTOR;
                let media_ns = u128::from(bytes) * 1_000_000_000 / u128::from(bytes_per_s);
                let seek_ns = if rq.sector == self.head { 0 } else { seek_ns };
                seek_ns + media_ns as u64
            }
        };
        let service_ns = match &mut self.noise {
            None => service_ns,
            Some((noise_ns, prng)) => {
                (service_ns + prng.below(2 * *noise_ns + 1)).saturating_sub(*noise_ns)
            }
        };
        *slot = begin + service_ns;
        self.head = rq.end();
        *slot
    }
}
