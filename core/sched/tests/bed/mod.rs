//! The bed of the schedulers' suites: an engine in virtual time, modelled devices, clients that
//! wait for their answers, and a ledger that holds every call against the contract.
//!
//! It owns no clock and no thread; the same scene gives the same trace on every machine.
//!
//! ```ignore
//! let mut bed = Bed::of("noop", Device::disk(100_000_000, 8_700_000));
//! let reader = bed.client(Client::reader(0, 256).depth(4));
//! bed.run_for(20 * SECOND);
//! assert!(bed.record(reader).bytes_between(Nanos(2 * SECOND), bed.now()) > 0);
//! ```

#![allow(dead_code, unused_imports)] // Each suite uses its part.

pub mod client;
pub mod device;
pub mod dice;
pub mod engine;
pub mod ledger;
pub mod life;

pub use client::{Access, Ask, Client, Latencies, Record};
pub use device::Device;
pub use engine::{Bed, ClientId, Setting};
pub use ledger::{Bio, Ledger, Offered};

use weir_bio::Limits;
use weir_sched::{Entry, Family, SCHEDULERS, Setup};

/// Nanoseconds in a microsecond.
pub const MICROSECOND: u64 = 1_000;
/// Nanoseconds in a millisecond.
pub const MILLISECOND: u64 = 1_000_000;
/// Nanoseconds in a second.
pub const SECOND: u64 = 1_000_000_000;

/// The entry of this name, on whichever path it serves.
pub fn entry(name: &str) -> &'static Entry {
    let found = SCHEDULERS.iter().find(|entry| entry.name == name);
    found.unwrap_or_else(|| panic!("no scheduler {name}"))
}

/// Whether a scheduler of this name can be made.
pub fn exists(name: &str) -> bool {
    SCHEDULERS.iter().any(|entry| entry.name == name && entry.make.is_some())
}

/// Limits that let whatever a test asks for through: a disk of 1 TiB, 64 MiB a request.
pub fn wide(rotational: bool) -> Limits {
    Limits {
        capacity: 1 << 31,
        rotational,
        max_hw_sectors: 1 << 17,
        max_user_sectors: 1 << 17,
        max_segments: u16::MAX,
        max_hw_discard_sectors: 1 << 17,
        discard_granularity: 512,
        ..Limits::default()
    }
}

/// A setup with one hard queue for a disk of these limits.
pub fn setup(limits: Limits, nr_requests: u16, compat: &'static str) -> Setup {
    Setup { limits, nr_requests, hard_queues: 1, nomerges: 0, compat }
}

/// Every scheduler that can be made, once for each behaviour it can have.
pub fn every() -> impl Iterator<Item = (&'static Entry, &'static str)> {
    let made = SCHEDULERS.iter().filter(|entry| entry.make.is_some());
    made.flat_map(|entry| entry.compat.iter().map(move |compat| (entry, *compat)))
}

/// Whether it is made for several hard queues.
pub fn is_multi(entry: &Entry) -> bool {
    entry.family == Family::Multi
}

/// A number from the environment, or else `default`.
pub fn asked(variable: &str, default: u64) -> u64 {
    let text = std::env::var(variable).ok();
    text.map_or(default, |text| text.parse().expect("a whole number"))
}

/// Says what a check was about when it fails.
pub struct Tell(pub String);

impl Drop for Tell {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.0);
        }
    }
}
