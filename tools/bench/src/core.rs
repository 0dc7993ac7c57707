//! `weir bench core`: what the layer itself costs on a null device, I/O by I/O.
//!
//! Every thread owns a lane and a submitter and turns them by hand, as a reactor would. The queue
//! is filled before, and the device answers at most one batch at each reap, so it stays as deep as
//! asked. There is a scheduler tag for each I/O, so that all that the driver does not take waits
//! inside the scheduler.

pub mod alloc;
pub mod shared;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use serde::Serialize;
use weir_bio::{Bio, Buf, Nanos};
use weir_load::{Access, Amount, Ask, Direction, Ground, Job, Stream, Workload};
use weir_local::Null;
use weir_queue::{Bell, Completion, Config, Device, Lane, QueueMode, Spread, Submitter};
use weir_ring::NoWake;

use crate::cpu::{Syscalls, pin, thread_time};

/// The device's size: random I/O over it merges practically never.
const DEVICE_BYTES: u64 = 64 << 30;
const BLOCK_BYTES: usize = 4096;
/// With a scheduler the driver takes so many, and the rest waits inside the scheduler.
const SCHEDULED_DEPTH: u16 = 32;
/// Bounds of `nr_requests`.
const LEAST_REQUESTS: usize = 64;
const MOST_REQUESTS: usize = 2048;
/// Batches between two looks at the stop time.
const PASSES: u64 = 1024;

/// The bench to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The scheduler's name; `None`: the default of the queue mode.
    pub scheduler: Option<String>,
    /// Which path.
    pub mode: QueueMode,
    /// How requests are spread.
    pub spread: Spread,
    /// Submitting threads.
    pub threads: usize,
    /// Hard queues; `None`: one for each thread, 1 in `sq` mode.
    pub queues: Option<u16>,
    /// I/Os each thread keeps under way.
    pub depth: u16,
    /// I/Os submitted together.
    pub batch: u16,
    /// How long.
    pub duration: Duration,
    /// Seed of the offsets.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            scheduler: None,
            mode: QueueMode::Mq,
            spread: Spread::Submitter,
            threads: 1,
            queues: None,
            depth: 128,
            batch: 32,
            duration: Duration::from_secs(2),
            seed: 1,
        }
    }
}

/// The outcome.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The scheduler that was attached.
    pub scheduler: String,
    /// `sq` or `mq`.
    pub queue_mode: &'static str,
    /// Submitting threads.
    pub threads: usize,
    /// Hard queues.
    pub queues: u16,
    /// I/Os each thread kept under way.
    pub depth: u16,
    /// I/Os submitted together.
    pub batch: u16,
    /// I/Os that ended.
    pub ios: u64,
    /// I/Os a second of wall time.
    pub iops: f64,
    /// CPU time of all threads divided by I/Os, generator included.
    pub ns_per_io: f64,
    /// The generator's part of that, measured alone.
    pub generator_ns_per_io: f64,
    /// Bios merged for each that ended.
    pub merges_per_io: f64,
    /// Heap allocations for each I/O; `None` where they are not counted.
    pub allocations_per_io: Option<f64>,
    /// System calls for each I/O; `None` where they cannot be counted.
    pub syscalls_per_io: Option<f64>,
    /// A number that depends on every I/O, so that none can be optimised away. It is for people:
    /// the document for tools has exactly the fields that were promised.
    #[serde(skip)]
    pub checksum: u64,
}

/// One thread's part.
#[derive(Default)]
struct Part {
    ios: u64,
    cpu: Duration,
    wall: Duration,
    allocations: u64,
    syscalls: Option<u64>,
    checksum: u64,
}

/// Runs the bench.
///
/// # Errors
/// A refusal of the device: an unknown scheduler, a bad number of queues.
pub fn run(options: &Options) -> Result<Outcome, String> {
    if options.threads == 0 || options.batch == 0 || options.depth == 0 {
        return Err(String::from("threads, depth and batch must be at least 1"));
    }
    let device = build(options)?;
    let (start, drained) = (Barrier::new(options.threads), AtomicUsize::new(0));
    let (device_ref, meet) = (&device, (&start, &drained));
    let parts: Vec<Result<Part, String>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..options.threads)
            .map(|index| scope.spawn(move || one_thread(options, device_ref, index, meet)))
            .collect();
        threads.into_iter().map(|t| t.join().expect("a bench thread")).collect()
    });
    let parts = parts.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(sum_up(options, &device, &parts))
}

fn build(options: &Options) -> Result<Device, String> {
    let queues = options.queues.unwrap_or(match options.mode {
        QueueMode::Sq => 1,
        QueueMode::Mq => options.threads as u16,
    });
    let scheduled = options.mode == QueueMode::Sq
        || options.scheduler.as_deref().is_some_and(|name| name != "none");
    let depth = if scheduled { SCHEDULED_DEPTH } else { options.depth };
    let all = usize::from(options.depth) * options.threads;
    let null = Null::new(DEVICE_BYTES).map_err(|e| e.to_string())?;
    let null = null.depth(depth).answers_per_reap(usize::from(options.batch));
    let config = Config {
        name: String::from("bench"),
        mode: options.mode,
        spread: options.spread,
        queues,
        scheduler: options.scheduler.clone(),
        nr_requests: scheduled.then(|| all.clamp(LEAST_REQUESTS, MOST_REQUESTS) as u16),
        depth: Some(depth),
        timeout_ns: 0,
        ..Config::default()
    };
    Device::new(config, Arc::new(null)).map_err(|e| e.to_string())
}

fn stream(options: &Options, thread: usize) -> Stream {
    let job = Job {
        access: Access::Random,
        direction: Direction::Mixed,
        read_percent: 70,
        size: Some(Amount::Bytes(DEVICE_BYTES)),
        depth: u16::MAX,
        time_based: true,
        seed: options.seed.wrapping_add(thread as u64),
        ..Job::default()
    };
    let ground = Ground { bytes: DEVICE_BYTES, block: 512, read_only: false };
    Stream::new(&job, ground, 0).expect("a fixed job is valid")
}

struct Bench<'a> {
    options: &'a Options,
    epoch: Instant,
    stream: Stream,
    lane: Option<Lane>,
    submitter: Submitter,
    buffers: Vec<Buf>,
    checksum: u64,
}

impl Bench<'_> {
    fn now(&self) -> Nanos {
        Nanos(self.epoch.elapsed().as_nanos() as u64)
    }

    /// As many under way as asked.
    fn fill(&mut self) {
        let now = self.now();
        self.submit(self.buffers.len(), now);
        self.submitter.flush_plug(now);
    }

    /// One batch in, one batch out, under one stamp as in a reactor. Returns how many ended.
    #[inline]
    fn pass(&mut self) -> usize {
        let now = self.now();
        self.submit(usize::from(self.options.batch).min(self.buffers.len()), now);
        let Bench { lane, submitter, buffers, checksum, stream, .. } = self;
        let each = |completion: Completion| {
            stream.ended(0, true, now);
            *checksum = checksum.wrapping_mul(31).wrapping_add(completion.status as u64 + 1);
            buffers.extend(completion.data.into_spare());
        };
        submitter.pass(lane.as_mut(), now, || now, each)
    }

    #[inline(always)]
    fn submit(&mut self, count: usize, now: Nanos) {
        for _ in 0..count {
            let Some(buf) = self.buffers.pop() else { break };
            let Ask::Io(io) = self.stream.ask(now) else { unreachable!("it is never full") };
            let mut bio = Bio::new(io.op, io.sector, io.sectors, buf.into());
            bio.flags = io.flags;
            if let Err(refused) = self.submitter.submit(bio, now) {
                self.buffers.extend(refused.into_bio().data.into_spare());
                break;
            }
        }
    }
}

fn one_thread(
    options: &Options,
    device: &Device,
    index: usize,
    (start, drained): (&Barrier, &AtomicUsize),
) -> Result<Part, String> {
    // A bench that cannot be pinned still measures, only less steadily.
    let _ = pin(index % std::thread::available_parallelism().map_or(1, usize::from));
    let bell = Bell::new(Box::new(NoWake), 1);
    let lanes = usize::from(device.config().queues);
    let owns_lane = index < lanes || (options.mode == QueueMode::Sq && device.any_home());
    let lane = if owns_lane {
        let hard_queue = if options.mode == QueueMode::Sq { 0 } else { index };
        Some(device.open_lane(hard_queue, &bell).map_err(|e| e.to_string())?)
    } else {
        None
    };
    let submitter = device.submitter(&bell, 0, index).map_err(|e| e.to_string())?;
    let mut bench = Bench {
        options,
        epoch: Instant::now(),
        stream: stream(options, index),
        lane,
        submitter,
        buffers: (0..options.depth).map(|_| Buf::zeroed(BLOCK_BYTES)).collect(),
        checksum: 0,
    };
    bench.fill();
    start.wait();
    let warm = Instant::now();
    while warm.elapsed() < options.duration / 10 {
        for _ in 0..PASSES {
            bench.pass();
        }
    }
    start.wait();
    let part = measure(&mut bench);
    // The others may still need this thread's lane.
    start.wait();
    drain(&mut bench, drained);
    Ok(part)
}

fn measure(bench: &mut Bench<'_>) -> Part {
    let mut syscalls = Syscalls::count();
    let allocations = alloc::of_this_thread();
    let (cpu, wall) = (thread_time(), Instant::now());
    let mut ios = 0;
    // Three calls of our own lie between starting and reading the counters: the two clocks and
    // the check of the end; they are below one in a million I/Os.
    while wall.elapsed() < bench.options.duration {
        for _ in 0..PASSES {
            ios += bench.pass() as u64;
        }
    }
    Part {
        ios,
        wall: wall.elapsed(),
        cpu: thread_time() - cpu,
        syscalls: syscalls.read(),
        allocations: alloc::of_this_thread() - allocations,
        checksum: bench.checksum,
    }
}

/// Lets everything end. A thread whose own I/O has ended goes on turning its lane, which may hold
/// I/O of others, until all have said so.
fn drain(bench: &mut Bench<'_>, drained: &AtomicUsize) {
    let (depth, mut own) = (usize::from(bench.options.depth), true);
    while drained.load(Ordering::Acquire) < bench.options.threads {
        let now = bench.now();
        bench.submitter.flush_plug(now);
        if let Some(lane) = &mut bench.lane {
            lane.run(now);
        }
        let buffers = &mut bench.buffers;
        bench.submitter.complete(now, |c| buffers.extend(c.data.into_spare()));
        if bench.buffers.len() == depth && std::mem::take(&mut own) {
            drained.fetch_add(1, Ordering::AcqRel);
        }
        std::thread::yield_now();
    }
}

fn sum_up(options: &Options, device: &Device, parts: &[Part]) -> Outcome {
    let ios: u64 = parts.iter().map(|part| part.ios).sum();
    let cpu: Duration = parts.iter().map(|part| part.cpu).sum();
    let wall = parts.iter().map(|part| part.wall).max().unwrap_or_default();
    let stats = device.stats();
    let merges: u64 = stats.directions.iter().map(|direction| direction.merges).sum();
    let ended: u64 = stats.directions.iter().map(|direction| direction.ios).sum();
    let per_io = |count: u64| count as f64 / ios.max(1) as f64;
    let syscalls: Option<u64> = parts.iter().map(|part| part.syscalls).sum();
    Outcome {
        scheduler: String::from(device.scheduler()),
        queue_mode: match options.mode {
            QueueMode::Sq => "sq",
            QueueMode::Mq => "mq",
        },
        threads: options.threads,
        queues: device.config().queues,
        depth: options.depth,
        batch: options.batch,
        ios,
        iops: ios as f64 / wall.as_secs_f64(),
        ns_per_io: cpu.as_nanos() as f64 / ios.max(1) as f64,
        generator_ns_per_io: generator_alone(options),
        merges_per_io: merges as f64 / (merges + ended).max(1) as f64,
        allocations_per_io: alloc::is_counting()
            .then(|| per_io(parts.iter().map(|part| part.allocations).sum())),
        syscalls_per_io: syscalls.map(per_io),
        checksum: parts.iter().fold(0, |sum, part| sum ^ part.checksum),
    }
}

/// The cost of the generator by itself, ns of CPU time for each I/O, in batches as in a pass.
fn generator_alone(options: &Options) -> f64 {
    const IOS: u64 = 4_000_000;
    let mut stream = stream(options, 0);
    let batch = u64::from(options.batch);
    let before = thread_time();
    for _ in 0..IOS / batch {
        for _ in 0..batch {
            std::hint::black_box(stream.ask(Nanos::ZERO));
        }
        for _ in 0..batch {
            stream.ended(0, true, Nanos::ZERO);
        }
    }
    (thread_time() - before).as_nanos() as f64 / (IOS / batch * batch) as f64
}
