//! A storage array: front ports, an engine, a cache, and disks behind it.

use serde::Deserialize;
use weir_bio::{Nanos, Op, Prng};

use crate::ends::Ends;
use crate::machine::{Job, Machine};
use crate::read;
use crate::servers::{Pool, Server, transfer_ns};

/// A storage array as its hosts see it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Array {
    /// Front ports; commands go round them.
    pub ports: u32,
    /// Bytes a second of a port.
    #[serde(deserialize_with = "read::size")]
    pub port: u64,
    /// How many of 100 reads find their data in the cache.
    pub hit_percent: u32,
    /// What the engine does for a read that does, one after the other, ns.
    #[serde(deserialize_with = "read::time")]
    pub hit_engine: u64,
    /// The same for a read that does not, ns.
    #[serde(deserialize_with = "read::time")]
    pub miss_engine: u64,
    /// The same for a write, which goes to the cache; `None`: as a read that hits, ns.
    #[serde(deserialize_with = "read::time_if_any")]
    pub write_engine: Option<u64>,
    /// What passes besides until the end of a read that hits, or a write, ns.
    #[serde(deserialize_with = "read::time")]
    pub hit_latency: u64,
    /// The same where the data come from the disks behind, ns: their time without a queue.
    #[serde(deserialize_with = "read::time")]
    pub miss_latency: u64,
    /// Reads that the disks behind serve at once.
    pub behind: u32,
}

impl Default for Array {
    fn default() -> Array {
        Array {
            ports: 4,
            port: 1_600_000_000,
            hit_percent: 50,
            hit_engine: 1_000,
            miss_engine: 3_000,
            write_engine: None,
            hit_latency: 150_000,
            miss_latency: 450_000,
            behind: 1_024,
        }
    }
}

impl Array {
    pub(crate) fn check(&self) -> Result<(), String> {
        read::between("ports", self.ports.into(), 1, 1_024)?;
        read::between("hit_percent", self.hit_percent.into(), 0, 100)?;
        read::between("behind", self.behind.into(), 1, 65_536)?;
        read::times([
            ("hit_engine", self.hit_engine),
            ("miss_engine", self.miss_engine),
            ("write_engine", self.write_engine.unwrap_or(0)),
            ("hit_latency", self.hit_latency),
            ("miss_latency", self.miss_latency),
        ])
    }
}

#[derive(Debug)]
pub(crate) struct ArrayDisk {
    spec: Array,
    ports: Vec<Server>,
    next_port: usize,
    engine: Server,
    behind: Pool,
    prng: Prng,
}

impl ArrayDisk {
    pub(crate) fn new(spec: Array, seed: u64) -> ArrayDisk {
        ArrayDisk {
            ports: vec![Server::default(); spec.ports as usize],
            next_port: 0,
            engine: Server::default(),
            behind: Pool::new(spec.behind),
            prng: Prng::new(seed),
            spec,
        }
    }
}

impl Machine for ArrayDisk {
    fn start(&mut self, job: Job, now: Nanos, ends: &mut Ends) {
        let spec = &self.spec;
        let port = self.next_port;
        self.next_port = (port + 1) % self.ports.len();
        let pass = transfer_ns(job.moved_bytes(), spec.port);
        let passed = self.ports[port].serve(now, pass);
        let is_miss = job.op == Op::Read && !self.prng.percent(spec.hit_percent);
        let costs = match job.op {
            Op::Read if is_miss => spec.miss_engine,
            Op::Read => spec.hit_engine,
            _ => spec.write_engine.unwrap_or(spec.hit_engine),
        };
        let looked_at = self.engine.serve(now, costs);
        let there = match is_miss {
            true => self.behind.serve(looked_at, spec.miss_latency).1,
            false => looked_at + spec.hit_latency,
        };
        ends.add(job.id, passed.max(there + pass));
    }
}
