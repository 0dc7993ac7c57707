//! Domains: what kinds of requests there are, and how much of each may be in the device.
//!
//! Numbers: docs/behaviour/kyber.md, sections 1 and 8.

use weir_bio::{Op, Rq};

/// Most domains of a level.
pub(super) const DOMAINS_MAX: usize = 4;

/// Domains whose latency is watched: they come first.
pub(super) const WATCHED: usize = 3;

/// Indices of the watched domains; level 4.12 watches `OTHER` in the place of discards.
pub(super) const READ: usize = 0;
pub(super) const WRITE: usize = 1;
pub(super) const DISCARD: usize = 2;

/// The Linux version whose behaviour the scheduler has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    /// Linux 4.20 and later: percentiles.
    K6,
    /// Linux 4.12: means.
    K4,
}

/// A domain: one kind of requests, with its depth and its batch.
#[derive(Debug)]
pub(super) struct Domain {
    pub(super) name: &'static str,
    /// Most requests in the device, over all hard queues.
    pub(super) depth_max: u32,
    /// Most requests in a row from one hard queue while others wait.
    pub(super) batch: u32,
}

const fn domain(name: &'static str, depth_max: u32, batch: u32) -> Domain {
    Domain { name, depth_max, batch }
}

const K6: [Domain; 4] = [
    domain("READ", 256, 16),
    domain("WRITE", 128, 8),
    domain("DISCARD", 64, 1),
    domain("OTHER", 16, 1),
];

const K4: [Domain; 3] =
    [domain("READ", 256, 16), domain("SYNC_WRITE", 128, 8), domain("OTHER", 64, 8)];

/// The domain of each op, by its number: a look-up where a branch could not be predicted.
const OF_K6: [u8; 36] = {
    let mut domains = [3; 36];
    domains[Op::Read as usize] = 0;
    domains[Op::Write as usize] = 1;
    domains[Op::Discard as usize] = 2;
    domains
};

impl Level {
    /// Its domains, in the order they are served in turn.
    #[inline]
    pub(super) fn domains(self) -> &'static [Domain] {
        match self {
            Level::K6 => &K6,
            Level::K4 => &K4,
        }
    }

    /// Which domain a request is of.
    #[inline]
    pub(super) fn domain_of(self, rq: &Rq) -> usize {
        match self {
            Level::K6 => usize::from(OF_K6[rq.op as usize]),
            Level::K4 => match rq.op {
                Op::Read => 0,
                Op::Write if rq.is_sync() => 1,
                _ => 2,
            },
        }
    }
}
