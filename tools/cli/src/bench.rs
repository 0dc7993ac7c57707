//! `weir bench`: a workload on a target; `weir bench core`: the layer's own cost.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;
use weir::units::parse_size;
use weir::{QueueMode, Spread, Target};
use weir_bench::{compare, core, job, outcome, shared};
use weir_load::{Access, Direction, Job};
use weir_report::document::{BenchDocument, Environment};

use crate::values::{RAMP_TIME, RUNTIME, time, whole};
use crate::{Failure, completion};

/// Runs a workload on a target and reports what it got: IOPS, latencies, CPU per I/O.
///
/// Example: weir bench --target ram:1GiB --rw randrw --rwmixread 70 --bs 4k --iodepth 32
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, verbatim_doc_comment)]
pub(crate) struct Bench {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    workload: Workload,
}

#[derive(Debug, Subcommand)]
enum What {
    Core(Core),
}

#[derive(Debug, Args)]
struct Workload {
    /// The target: KIND:REST[,OPTION=VALUE]...
    #[arg(long, required = true)]
    target: Option<String>,
    /// Direction and pattern.
    #[arg(long, value_enum, default_value = "randread")]
    rw: Rw,
    /// Reads in 100 I/Os, for randrw and rw.
    #[arg(long, default_value_t = 50, value_parser = whole::<u8>(0..=100))]
    rwmixread: u8,
    /// Size of one I/O.
    #[arg(long, default_value = "4k", value_parser = parse_size)]
    bs: u64,
    /// I/Os each job keeps under way.
    #[arg(long, default_value_t = 1, value_parser = whole::<u16>(1..=4096))]
    iodepth: u16,
    /// Threads that do the same, with different seeds.
    #[arg(long, default_value_t = 1, value_parser = whole::<u16>(1..=256))]
    numjobs: u16,
    /// Length of the range; the rest of the target if not given.
    #[arg(long, value_parser = parse_size)]
    size: Option<u64>,
    /// Start of the range.
    #[arg(long, default_value = "0", value_parser = parse_size)]
    offset: u64,
    /// How long to measure.
    #[arg(long, default_value = "10s", value_parser = time(RUNTIME))]
    runtime: Duration,
    /// How long to run before measuring.
    #[arg(long, default_value = "1s", value_parser = time(RAMP_TIME))]
    ramp_time: Duration,
    /// A flush after so many writes of a job; 0 = never.
    #[arg(long, default_value_t = 0, value_parser = whole::<u32>(0..=4_294_967_295))]
    fsync: u32,
    /// Seed of everything random.
    #[arg(long, default_value_t = 1, value_parser = whole::<u64>(0..=u64::MAX))]
    randseed: u64,
    /// One JSON document on standard output and nothing else.
    #[arg(long)]
    json: bool,
    /// Where the result is saved, with the circumstances, for `weir compare` and reports.
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// No progress on standard error.
    #[arg(long)]
    quiet: bool,
}

/// What the layer itself costs, on a null device.
///
/// Uniformly random 4 KiB over 64 GiB, 70 % reads. The device never answers inside submit but at
/// the next reap, at most one batch.
///
/// Example: weir bench core --scheduler none --threads 2
/// Example: weir bench core --scheduler mq-deadline --threads 2 --rounds 20 --runtime 50ms
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
struct Core {
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
enum Rw {
    Read,
    Write,
    Randread,
    Randwrite,
    #[value(name = "rw")]
    Mixed,
    #[value(name = "randrw")]
    Randmixed,
    Trim,
    Randtrim,
}

impl Rw {
    fn pattern(self, rwmixread: u8) -> (Access, Direction) {
        match self {
            Rw::Read => (Access::Sequential, Direction::Read),
            Rw::Write => (Access::Sequential, Direction::Write),
            Rw::Randread => (Access::Random, Direction::Read),
            Rw::Randwrite => (Access::Random, Direction::Write),
            Rw::Mixed => (Access::Sequential, Direction::Mixed(rwmixread)),
            Rw::Randmixed => (Access::Random, Direction::Mixed(rwmixread)),
            Rw::Trim => (Access::Sequential, Direction::Trim),
            Rw::Randtrim => (Access::Random, Direction::Trim),
        }
    }

    fn name(self) -> String {
        let value = self.to_possible_value().expect("no variant is hidden");
        String::from(value.get_name())
    }
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

impl Bench {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        match &self.what {
            Some(What::Core(core)) => core.run(),
            None => self.workload.run(),
        }
    }
}

impl Workload {
    fn run(&self) -> Result<(), Failure> {
        let text = self.target.as_deref().unwrap_or_default();
        let target = Target::parse(text)?;
        self.check_buffers()?;
        let opened = weir::open("bench", &target, usize::from(self.numjobs))?;
        if !self.quiet {
            opened.notices.iter().for_each(|notice| eprintln!("weir: {notice}"));
        }
        let device = opened.device;
        let limits = device.limits();
        self.check_blocks(limits.logical_block_size)?;
        let capacity = limits.capacity * 512;
        let rest = capacity.checked_sub(self.offset).filter(|rest| *rest > 0).ok_or_else(|| {
            format!("offset={} is not below the target's {capacity} bytes", self.offset)
        })?;
        let range = self.size.unwrap_or(rest);
        if range > rest {
            return Err(Failure::Bad(format!(
                "size={range} from offset={} is beyond the target's {capacity} bytes",
                self.offset
            )));
        }
        let (access, direction) = self.rw.pattern(self.rwmixread);
        if limits.read_only && direction != Direction::Read {
            return Err(Failure::Bad(format!("rw={} on a read-only target", self.rw.name())));
        }
        let options = job::Options {
            job: Job {
                access,
                direction,
                block_bytes: self.bs,
                offset_bytes: self.offset,
                range_bytes: range,
                flush_every: self.fsync,
                seed: self.randseed,
            },
            depth: self.iodepth,
            jobs: usize::from(self.numjobs),
            runtime: self.runtime,
            ramp: self.ramp_time,
        };
        let total = self.runtime + self.ramp_time;
        if !self.quiet && total > Duration::from_secs(2) && std::io::stderr().is_terminal() {
            eprintln!("weir: measuring for {total:?} ...");
        }
        let measured = job::run(&options, &device)?;
        self.report(text, range, &device, &options, &measured)
    }

    /// Every I/O under way has a buffer, and a machine out of memory ends programs at will.
    fn check_buffers(&self) -> Result<(), Failure> {
        let Workload { numjobs, iodepth, bs, .. } = self;
        let bytes = u128::from(*numjobs) * u128::from(*iodepth) * u128::from(*bs);
        let memory = rustix::system::sysinfo();
        let most = u128::from(memory.totalram) * u128::from(memory.mem_unit) / 2;
        if bytes <= most {
            return Ok(());
        }
        Err(Failure::Bad(format!(
            "numjobs={numjobs} times iodepth={iodepth} times bs={bs} are {bytes} bytes of buffers, \
             above {most}, half of this machine's memory"
        )))
    }

    fn check_blocks(&self, block: u32) -> Result<(), Failure> {
        for (name, value) in [("bs", self.bs), ("offset", self.offset)] {
            if !value.is_multiple_of(u64::from(block)) {
                return Err(Failure::Bad(format!(
                    "{name}={value} is not a multiple of {block}, the target's logical block"
                )));
            }
        }
        Ok(())
    }

    fn report(
        &self,
        text: &str,
        range: u64,
        device: &weir::Device,
        options: &job::Options,
        measured: &job::Measured,
    ) -> Result<(), Failure> {
        let config = device.config();
        let device_options = json!({
            "queue_mode": if config.mode == QueueMode::Sq { "sq" } else { "mq" },
            "queues": config.queues,
            "spread": if config.spread == Spread::RoundRobin { "round-robin" } else { "submitter" },
            "scheduler": device.scheduler(),
            "nr_requests": device.nr_requests(),
            "nomerges": config.nomerges,
            "barriers": if config.barriers { "on" } else { "off" },
        });
        let job = json!({
            "rw": self.rw.name(), "rwmixread": self.rwmixread, "bs": self.bs,
            "iodepth": self.iodepth, "numjobs": self.numjobs, "size": range,
            "offset": self.offset, "fsync": self.fsync,
        });
        let outcome = outcome::Outcome::new(text, device_options, job, options, measured);
        if let Some(path) = &self.save {
            save(path, &outcome, measured)?;
        }
        if self.json {
            print_json(&outcome)?;
        } else {
            print!("{}", outcome.table());
        }
        match &measured.first_error {
            Some(error) => Err(Failure::No(format!("{} I/Os failed: {error}", outcome.errors))),
            None => Ok(()),
        }
    }
}

/// Writes the bench document.
fn save(path: &Path, outcome: &outcome::Outcome, measured: &job::Measured) -> Result<(), Failure> {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let bench = serde_json::to_value(outcome).and_then(serde_json::from_value);
    let document = BenchDocument {
        bench: bench.map_err(|error| format!("{}: {error}", path.display()))?,
        command: std::env::args().collect(),
        environment: Environment {
            cpus: std::thread::available_parallelism().map_or(0, |cpus| cpus.get() as u32),
            kernel: String::from(kernel.trim()),
            weir: String::from(outcome.weir),
            started_at: compare::now_utc(),
            ..Environment::default()
        },
        partial: measured.first_error.is_some(),
        failure: measured.first_error.clone(),
        ..BenchDocument::default()
    };
    let text = serde_json::to_vec(&document).map_err(|error| error.to_string())?;
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(())
}

/// I/Os that `weir bench core` submits together if nobody says otherwise.
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

    fn run(&self) -> Result<(), Failure> {
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
            print!("{}", shared::compare(&options, rounds)?);
            return Ok(());
        }
        let outcome = core::run(&options)?;
        if self.json {
            return print_json(&outcome);
        }
        let count = |per_io: Option<f64>| match per_io {
            Some(count) => format!("{count:.4}"),
            None => String::from("not measurable here"),
        };
        println!(
            "{} {}: {} threads, {} hard queues, depth {}, batch {}",
            outcome.queue_mode,
            outcome.scheduler,
            outcome.threads,
            outcome.queues,
            outcome.depth,
            outcome.batch
        );
        println!("CPU per I/O    {:>12.1} ns", outcome.ns_per_io);
        println!("  of which the generator {:.1} ns", outcome.generator_ns_per_io);
        println!("I/Os a second  {:>12.0}", outcome.iops);
        println!("merges per I/O {:>12.6}", outcome.merges_per_io);
        println!("allocations per I/O  {}", count(outcome.allocations_per_io));
        println!("system calls per I/O {}", count(outcome.syscalls_per_io));
        println!("checksum {:016x}", outcome.checksum);
        Ok(())
    }
}

fn print_json(outcome: &impl serde::Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(outcome).map_err(|e| Failure::Bad(e.to_string()))?;
    println!("{text}");
    Ok(())
}
