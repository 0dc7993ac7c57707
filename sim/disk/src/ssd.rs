//! A solid-state disk: dies behind channels behind a controller.
//!
//! Pages lie on the dies in turn. Each resource is booked when a command comes: what it waits for
//! is known then. A channel and the link are booked by the time of arrival, not by that at which a
//! die is done, so that no transfer waits for one whose data are not there yet.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use serde::Deserialize;
use weir_bio::{Nanos, Op, Prng, SECTOR};

use crate::ends::Ends;
use crate::machine::{Job, Machine};
use crate::read;
use crate::servers::{Server, transfer_ns};

/// A solid-state disk.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Ssd {
    /// Channels.
    pub channels: u32,
    /// Dies of each channel.
    pub dies: u32,
    /// Planes of each die: pages that are programmed at once.
    pub planes: u32,
    /// Bytes of a page.
    #[serde(deserialize_with = "read::size")]
    pub page: u64,
    /// Pages of an erase block.
    pub pages: u64,
    /// To read a page into its die's register, ns.
    #[serde(deserialize_with = "read::time")]
    pub read: u64,
    /// At random between 0 and this, besides, ns.
    #[serde(deserialize_with = "read::time")]
    pub read_spread: u64,
    /// To program a page, ns.
    #[serde(deserialize_with = "read::time")]
    pub program: u64,
    /// To erase a block, ns.
    #[serde(deserialize_with = "read::time")]
    pub erase: u64,
    /// Until a program or an erase stands back for a read, ns. `None`: it does not.
    #[serde(deserialize_with = "read::time_if_any")]
    pub suspend: Option<u64>,
    /// Bytes a second of a channel.
    #[serde(deserialize_with = "read::size")]
    pub channel: u64,
    /// Bytes a second between its memory and the host.
    #[serde(deserialize_with = "read::size")]
    pub link: u64,
    /// What the controller does for each command, one after the other, ns.
    #[serde(deserialize_with = "read::time")]
    pub command: u64,
    /// What passes besides between a command and its end, whatever else is under way, ns.
    #[serde(deserialize_with = "read::time")]
    pub overhead: u64,
    /// Bytes of writes that are answered before they are programmed; 0: none.
    #[serde(deserialize_with = "read::size")]
    pub write_cache: u64,
    /// What is in the cache survives a power cut, so that a flush has nothing to do.
    pub protected: bool,
    /// Bytes that are written before blocks have to be collected.
    #[serde(deserialize_with = "read::size")]
    pub spare: u64,
    /// How many of 100 pages of a block that is collected are still valid and have to be moved.
    pub valid_percent: u64,
}

impl Default for Ssd {
    fn default() -> Ssd {
        Ssd {
            channels: 8,
            dies: 8,
            planes: 2,
            page: 16 << 10,
            pages: 256,
            read: 50_000,
            read_spread: 0,
            program: 500_000,
            erase: 3_000_000,
            suspend: None,
            channel: 800_000_000,
            link: 3_500_000_000,
            command: 1_000,
            overhead: 5_000,
            write_cache: 64 << 20,
            protected: false,
            spare: i64::MAX as u64,
            valid_percent: 0,
        }
    }
}

impl Ssd {
    pub(crate) fn check(&self) -> Result<(), String> {
        read::between("channels", self.channels.into(), 1, 256)?;
        read::between("dies", self.dies.into(), 1, 256)?;
        read::between("planes", self.planes.into(), 1, 16)?;
        read::between("page", self.page, SECTOR, 1 << 20)?;
        read::between("pages", self.pages, 1, 1 << 20)?;
        read::between("valid_percent", self.valid_percent, 0, 95)?;
        read::times([
            ("read", self.read),
            ("read_spread", self.read_spread),
            ("program", self.program),
            ("erase", self.erase),
            ("suspend", self.suspend.unwrap_or(0)),
            ("command", self.command),
            ("overhead", self.overhead),
        ])
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Die {
    reads: Server,
    /// Programs and erases.
    writes: Server,
    /// Pages that have to be moved, in hundredths, and blocks to be erased, in pages.
    moves_owed: u64,
    erases_owed: u64,
}

impl Die {
    /// A read of a page; when its data are in the register.
    fn read(&mut self, ready: Nanos, ns: u64, suspend: Option<u64>) -> Nanos {
        let free = ready.max(self.reads.free_at());
        let held = self.writes.free_at();
        if held <= free {
            return self.reads.serve(free, ns);
        }
        match suspend {
            None => self.reads.serve(held, ns),
            Some(suspend) => {
                let begins = held.min(free + suspend);
                // What stood back goes on that much later.
                self.writes.serve(held, begins.since(free) + ns);
                self.reads.serve(begins, ns)
            }
        }
    }
}

#[derive(Debug)]
pub(crate) struct SsdDisk {
    spec: Ssd,
    controller: Server,
    link: Server,
    channels: Vec<Server>,
    dies: Vec<Die>,
    /// The die that is written next.
    next_die: usize,
    /// Bytes of the open pages, which the cache holds.
    open: u64,
    /// When programs end, and what each takes out of the cache.
    programs: BinaryHeap<Reverse<(Nanos, u64)>>,
    cached: u64,
    /// When the last program ends.
    programmed_at: Nanos,
    written: u64,
    prng: Prng,
}

impl SsdDisk {
    pub(crate) fn new(spec: Ssd, seed: u64) -> SsdDisk {
        let dies = spec.channels * spec.dies;
        SsdDisk {
            controller: Server::default(),
            link: Server::default(),
            channels: vec![Server::default(); spec.channels as usize],
            dies: vec![Die::default(); dies as usize],
            next_die: 0,
            open: 0,
            programs: BinaryHeap::new(),
            cached: 0,
            programmed_at: Nanos::ZERO,
            written: 0,
            prng: Prng::new(seed),
            spec,
        }
    }

    /// When all of a read has passed its channels.
    fn read(&mut self, job: Job, ready: Nanos) -> Nanos {
        let page = self.spec.page;
        let (first, end) = (job.sector * SECTOR, (job.sector + u64::from(job.sectors)) * SECTOR);
        let (mut at, mut last) = (first, ready);
        while at < end {
            let number = at / page;
            let bytes = end.min((number + 1) * page) - at;
            let die = (number % self.dies.len() as u64) as usize;
            let channel = die % self.channels.len();
            let spread = match self.spec.read_spread {
                0 => 0,
                spread => self.prng.below(spread + 1),
            };
            let there = self.dies[die].read(ready, self.spec.read + spread, self.spec.suspend);
            let pass = transfer_ns(bytes, self.spec.channel);
            let passed = self.channels[channel].serve(ready, pass);
            last = last.max(passed).max(there + pass);
            at += bytes;
        }
        last
    }

    /// Programs pages as they fill up; when the last program that this began ends.
    fn write(&mut self, bytes: u64, ready: Nanos, whole: bool) {
        let stripe = self.spec.page * u64::from(self.spec.planes);
        self.open += bytes;
        self.cached += bytes;
        self.written += bytes;
        while self.open >= stripe {
            self.open -= stripe;
            self.program(stripe, ready);
        }
        if whole && self.open > 0 {
            let rest = std::mem::take(&mut self.open);
            self.program(rest, ready);
        }
    }

    fn program(&mut self, bytes: u64, ready: Nanos) {
        let at = self.next_die;
        self.next_die = (at + 1) % self.dies.len();
        let channel = at % self.channels.len();
        let passed = self.channels[channel].serve(ready, transfer_ns(bytes, self.spec.channel));
        let collects = self.collect_ns(at);
        let ends = self.dies[at].writes.serve(passed, collects + self.spec.program);
        self.programs.push(Reverse((ends, bytes)));
        self.programmed_at = self.programmed_at.max(ends);
    }

    /// What collecting blocks costs a die for one program: the pages to be moved come evenly, an
    /// erase for each block.
    fn collect_ns(&mut self, at: usize) -> u64 {
        if self.written <= self.spec.spare || self.spec.valid_percent == 0 {
            return 0;
        }
        let (valid, planes) = (self.spec.valid_percent, u64::from(self.spec.planes));
        let die = &mut self.dies[at];
        // A block that is collected has room for its pages less the valid ones.
        die.moves_owed += valid * 100 / (100 - valid);
        let moves = die.moves_owed / 100;
        die.moves_owed %= 100;
        die.erases_owed += (1 + moves) * planes;
        let erases = die.erases_owed / (self.spec.pages * planes);
        die.erases_owed %= self.spec.pages * planes;
        moves * (self.spec.read + self.spec.program) + erases * self.spec.erase
    }

    /// When the cache has room again for what it holds too much.
    fn room_at(&mut self, now: Nanos) -> Nanos {
        let mut at = now;
        while let Some(Reverse((ends, bytes))) = self.programs.peek().copied()
            && (ends <= now || self.cached > self.spec.write_cache)
        {
            self.programs.pop();
            self.cached -= bytes;
            at = at.max(ends);
        }
        at
    }
}

impl Machine for SsdDisk {
    fn start(&mut self, job: Job, now: Nanos, ends: &mut Ends) {
        let ready = self.controller.serve(now, self.spec.command);
        let pass = transfer_ns(job.moved_bytes(), self.spec.link);
        let end = match job.op {
            Op::Read => {
                let read = self.read(job, ready);
                self.link.serve(ready, pass).max(read + pass)
            }
            Op::Write => {
                let taken = self.link.serve(ready, pass);
                let is_durable = job.fua && !self.spec.protected || self.spec.write_cache == 0;
                self.write(job.moved_bytes(), taken, is_durable);
                let room = self.room_at(taken);
                if is_durable { self.programmed_at.max(taken) } else { room }
            }
            Op::Flush if !self.spec.protected => {
                self.write(0, ready, true);
                self.programmed_at.max(ready)
            }
            _ => ready,
        };
        ends.add(job.id, end + self.spec.overhead);
    }
}
