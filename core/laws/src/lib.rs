//! The laws of the core, as code that holds any device, path and mapper to them.
//!
//! - A **bed**: a device that checks whatever reaches it ([`device`], [`fabric`], [`outage`]), a
//!   model of what a disk may hold ([`model`], [`promises`]), clients that judge every answer
//!   ([`client`]), and homes that sleep and wake by the rules real ones follow ([`sleepers`]).
//!
//! All time is virtual and all chance is seeded, so that a seed is a run that can be had again. A
//! broken law is a panic whose message names the values. The crate is no test: `core/queue` and
//! `core/map` hold themselves to the laws in their tests.
//!
//! # Drivers and schedulers from elsewhere
//! [`driver::hold`] holds any [`Driver`](weir_queue::Driver) to its contract, [`scheduler::hold`]
//! any [`Scheduler`](weir_sched::Scheduler). Each is a line in a test of its crate, with
//! `weir-laws` among the `dev-dependencies`.

#![forbid(unsafe_code)]

pub mod bytes;
pub mod client;
pub mod controller;
pub mod device;
pub mod driver;
pub mod fabric;
pub mod life;
pub mod linear;
pub mod log;
pub mod model;
pub mod outage;
pub mod path;
pub mod promises;
pub mod rest;
pub mod scheduler;
pub mod sender;
pub mod sleepers;
pub mod tokens;
pub mod watched;

use std::io::Write as _;

use weir_bio::{Buf, Data, SECTOR};

/// The contents of a sector that bio `cookie` wrote: it names the bio and the place, so that bytes
/// that end up elsewhere are seen.
pub fn value(cookie: u64, sector: u64) -> u64 {
    cookie << 24 | (sector + 1)
}

/// Puts a value into a sector: its first and its last bytes.
pub fn put(sector: &mut [u8], value: u64) {
    sector[..8].copy_from_slice(&value.to_le_bytes());
    sector[504..].copy_from_slice(&value.to_le_bytes());
}

/// The value of a sector.
pub fn get(sector: &[u8]) -> u64 {
    let word = |at: usize| u64::from_le_bytes(sector[at..at + 8].try_into().unwrap());
    assert_eq!(word(0), word(504), "a sector is torn");
    word(0)
}

/// Memory for `pieces` pieces of sectors, each filled for `cookie` from `sector` on.
pub fn filled(cookie: u64, sector: u64, pieces: &[u32]) -> Data {
    let mut at = sector;
    let bufs: Vec<Buf> = pieces
        .iter()
        .map(|sectors| {
            Buf::filled(*sectors as usize * SECTOR as usize, |bytes| {
                for chunk in bytes.chunks_mut(SECTOR as usize) {
                    put(chunk, value(cookie, at));
                    at += 1;
                }
            })
        })
        .collect();
    if bufs.len() == 1 {
        Data::One(bufs.into_iter().next().unwrap())
    } else {
        Data::Many(bufs.into())
    }
}

/// The values of all sectors of `data`.
pub fn values(data: &Data) -> Vec<u64> {
    let mut bytes = vec![0; data.len()];
    data.copy_to(&mut bytes);
    bytes.chunks(SECTOR as usize).map(get).collect()
}

/// Seeds to run of a suite called `name`: with `LAW`, `LAW_SEED` alone, or the first `LAW_SEEDS`,
/// or else `count`.
pub fn seeds(name: &str, count: u64) -> std::ops::Range<u64> {
    let read = |what: &str| {
        let text = std::env::var(format!("{name}_{what}")).ok();
        text.map(|text| text.parse().expect("a number"))
    };
    match (read("SEED"), read("SEEDS")) {
        (Some(seed), _) => seed..seed + 1,
        (None, many) => 0..many.unwrap_or(count),
    }
}

/// Says which seed it was when a check fails.
pub struct Tell(pub String);

impl Drop for Tell {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = writeln!(std::io::stderr(), "{}", self.0);
        }
    }
}
