//! `weir bench core`: the layer's own cost.

use std::time::Duration;

use clap::{Args, ValueEnum};
use weir::{QueueMode, Spread};
use weir_bench::core::{self, shared};

use super::print_json;
use crate::output::print;
use crate::values::{RUNTIME, time, whole};
use crate::{Failure, completion};

/// What the layer itself costs, on a null device.
///
/// Uniformly random 4 KiB over 64 GiB, 70 % reads. The device never answers inside submit but at
/// the next reap, at most one batch.
///
/// Example: weir bench core --scheduler none --threads 2
/// Example: weir bench core --scheduler mq-deadline --threads 2 --rounds 20 --runtime 50ms
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Core {
    /// The scheduler; the default of the queue mode if not given.
    #[arg(long, add = completion::schedulers())]
    scheduler: Option<String>,
    /// Submitting threads.
    #[arg(long, default_value_t = 1, value_parser = whole::<u16>(1..=64))]
    threads: u16,
    /// Hard queues; as many as threads if not given, 1 in sq mode.
    #[arg(long, value_parser = whole::<u16>(1..=64))]
    queues: Option<u16>,
    /// Which path.
    #[arg(long, value_enum, default_value = "mq")]
    queue_mode: Mode,
    /// How requests are spread over hard queues.
    #[arg(long, value_enum, default_value = "submitter")]
    spread: SpreadArg,
    /// I/Os each thread keeps under way.
    #[arg(long, default_value_t = 128, value_parser = whole::<u16>(1..=2048))]
    depth: u16,
    /// I/Os submitted together, at most the depth; 32 if not given, or the depth below that.
    #[arg(long, value_parser = whole::<u16>(1..=2048))]
    batch: Option<u16>,
    /// Compare with 1 thread, and with no scheduler, in so many rounds in turn.
    #[arg(long, conflicts_with = "json", value_parser = whole::<u16>(1..=1000))]
    rounds: Option<u16>,
    /// How long to measure; in each round, each of four.
    #[arg(long, default_value = "2s", value_parser = time(RUNTIME))]
    runtime: Duration,
    /// Seed of the offsets.
    #[arg(long, default_value_t = 1, value_parser = whole::<u64>(0..=u64::MAX))]
    randseed: u64,
    /// One JSON document on standard output and nothing else.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Mode {
    Sq,
    Mq,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum SpreadArg {
    Submitter,
    RoundRobin,
}

/// I/Os that `weir bench core` submits together by default.
const BATCH: u16 = 32;

impl Core {
    fn batch(&self) -> Result<u16, Failure> {
        match self.batch {
            None => Ok(BATCH.min(self.depth)),
            Some(batch) if batch <= self.depth => Ok(batch),
            Some(batch) => {
                let depth = self.depth;
                Err(Failure::Bad(format!("batch={batch} is outside 1..={depth}, the depth")))
            }
        }
    }

    pub(crate) fn run(&self) -> Result<(), Failure> {
        if let (Mode::Sq, SpreadArg::RoundRobin) = (self.queue_mode, self.spread) {
            let why = "spread=round-robin: queue_mode=sq has one list and nothing to spread";
            return Err(Failure::Bad(String::from(why)));
        }
        let options = core::Options {
            scheduler: self.scheduler.clone(),
            mode: match self.queue_mode {
                Mode::Sq => QueueMode::Sq,
                Mode::Mq => QueueMode::Mq,
            },
            spread: match self.spread {
                SpreadArg::Submitter => Spread::Submitter,
                SpreadArg::RoundRobin => Spread::RoundRobin,
            },
            threads: usize::from(self.threads),
            queues: self.queues,
            depth: self.depth,
            batch: self.batch()?,
            duration: self.runtime,
            seed: self.randseed,
        };
        if let Some(rounds) = self.rounds {
            return print(&shared::compare(&options, rounds)?.to_string());
        }
        let outcome = core::run(&options)?;
        if self.json {
            return print_json(&outcome);
        }
        let count = |per_io: Option<f64>| match per_io {
            Some(count) => format!("{count:.4}"),
            None => String::from("not measurable here"),
        };
        let text = format!(
            "{} {}: {} threads, {} hard queues, depth {}, batch {}\n\
             CPU per I/O    {:>12.1} ns\n  of which the generator {:.1} ns\n\
             I/Os a second  {:>12.0}\nmerges per I/O {:>12.6}\n\
             allocations per I/O  {}\nsystem calls per I/O {}\nchecksum {:016x}\n",
            outcome.queue_mode,
            outcome.scheduler,
            outcome.threads,
            outcome.queues,
            outcome.depth,
            outcome.batch,
            outcome.ns_per_io,
            outcome.generator_ns_per_io,
            outcome.iops,
            outcome.merges_per_io,
            count(outcome.allocations_per_io),
            count(outcome.syscalls_per_io),
            outcome.checksum,
        );
        print(&text)
    }
}
