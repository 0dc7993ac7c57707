//! `weir bench`: one workload on one target, driven by as many threads as the job has.
//!
//! Each thread is a home: it owns its share of the target's lanes, submits to them and sleeps in
//! one call when there is nothing to do, as a reactor does.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use weir::{Bell, Bio, Buf, Clock, Device, Flags, Lane, Op, Stats, Submitter};
use weir_bio::{Nanos, Prng};
use weir_live::EventWake;
use weir_load::{Generator, Job, Step};

use crate::cpu::{CpuTime, process_time};

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The stream of I/Os; each thread has its own seed.
    pub job: Job,
    /// I/Os each thread keeps under way.
    pub depth: u16,
    /// Threads.
    pub jobs: usize,
    /// How long to measure.
    pub runtime: Duration,
    /// How long to run before that.
    pub ramp: Duration,
}

/// What came out: the device's statistics over the measured time.
#[derive(Debug)]
pub struct Measured {
    /// At the start of the measured time.
    pub before: Stats,
    /// At its end.
    pub after: Stats,
    /// Its length.
    pub wall: Duration,
    /// CPU time of this process in it, by mode, in ticks of the kernel.
    pub cpu: CpuTime,
    /// The same altogether, to the nanosecond.
    pub cpu_total: Duration,
    /// The first error seen, if any: what and how.
    pub first_error: Option<String>,
}

struct Shared<'a> {
    options: &'a Options,
    device: &'a Device,
    clock: Clock,
    /// 0: run; 1: stop submitting.
    stop: AtomicUsize,
    /// Threads that still have I/O under way.
    busy: AtomicUsize,
    wakes: Vec<Arc<EventWake>>,
}

/// Runs the job on a device whose lanes nobody has opened.
///
/// # Errors
/// What the device or the system refused, before anything ran.
pub fn run(options: &Options, device: &Device) -> Result<Measured, String> {
    Generator::new(&options.job).map_err(|e| e.to_string())?;
    if options.jobs == 0 || options.depth == 0 {
        return Err(String::from("numjobs and iodepth must be at least 1"));
    }
    let wakes = (0..options.jobs)
        .map(|_| EventWake::new().map(Arc::new).map_err(|e| format!("eventfd: {e}")))
        .collect::<Result<Vec<_>, _>>()?;
    let shared = Shared {
        options,
        device,
        clock: Clock,
        stop: AtomicUsize::new(0),
        busy: AtomicUsize::new(options.jobs),
        wakes,
    };
    let (ready_tx, ready_rx) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..options.jobs)
            .map(|index| {
                let (shared, ready) = (&shared, ready_tx.clone());
                scope.spawn(move || thread(shared, index, &ready))
            })
            .collect();
        drop(ready_tx);
        let started: Result<Vec<()>, String> = (0..options.jobs)
            .map(|_| ready_rx.recv().map_err(|_| String::from("a bench thread ended early"))?)
            .collect();
        let measured = started.map(|_| measure(&shared));
        shared.stop.store(1, Ordering::Release);
        shared.wakes.iter().for_each(|wake| weir_ring::Wake::wake(wake.as_ref()));
        let errors: Vec<String> =
            threads.into_iter().filter_map(|t| t.join().expect("a bench thread")).collect();
        let mut measured = measured?;
        measured.first_error = errors.into_iter().next();
        Ok(measured)
    })
}

fn measure(shared: &Shared<'_>) -> Measured {
    std::thread::sleep(shared.options.ramp);
    let before = shared.device.stats();
    let (cpu, cpu_total, wall) = (CpuTime::of_process(), process_time(), Instant::now());
    std::thread::sleep(shared.options.runtime);
    Measured {
        wall: wall.elapsed(),
        cpu: CpuTime::of_process().since(&cpu),
        cpu_total: process_time() - cpu_total,
        after: shared.device.stats(),
        before,
        first_error: None,
    }
}

type Ready = std::sync::mpsc::Sender<Result<(), String>>;

/// One thread's whole life; the first error it saw.
fn thread(shared: &Shared<'_>, index: usize, ready: &Ready) -> Option<String> {
    let mut worker = match Worker::new(shared, index) {
        Ok(worker) => worker,
        Err(error) => {
            shared.busy.fetch_sub(1, Ordering::AcqRel);
            // The receiver waits for one answer from each thread.
            let _ = ready.send(Err(error));
            return None;
        }
    };
    let _ = ready.send(Ok(()));
    worker.run();
    worker.first_error
}

struct Worker<'a> {
    shared: &'a Shared<'a>,
    wake: &'a EventWake,
    bell: Arc<Bell>,
    lanes: Vec<Lane>,
    submitters: Vec<Submitter>,
    next: usize,
    generator: Generator,
    buffers: Vec<Buf>,
    /// I/Os that may still be started.
    room: usize,
    pace: Pace,
    first_error: Option<String>,
}

struct SharedWake(Arc<EventWake>);

impl weir_ring::Wake for SharedWake {
    fn wake(&self) {
        self.0.wake();
    }
}

impl<'a> Worker<'a> {
    fn new(shared: &'a Shared<'a>, index: usize) -> Result<Worker<'a>, String> {
        let (options, device) = (shared.options, shared.device);
        let wake = &shared.wakes[index];
        let queues = usize::from(device.config().queues);
        let own: Vec<usize> = (index..queues).step_by(options.jobs).collect();
        let bell = Bell::new(Box::new(SharedWake(Arc::clone(wake))), own.len().max(1));
        let mut lanes = Vec::new();
        for lane in &own {
            lanes.push(device.open_lane(*lane, &bell).map_err(|e| e.to_string())?);
        }
        let places = if own.is_empty() { vec![index % queues] } else { own };
        let submitters = places
            .iter()
            .enumerate()
            .map(|(token, lane)| device.submitter(&bell, token, *lane).map_err(|e| e.to_string()))
            .collect::<Result<Vec<_>, _>>()?;
        let mut prng = Prng::new(options.job.seed ^ 0x5eed);
        let bytes = options.job.block_bytes as usize;
        let buffers = (0..options.depth).map(|_| Buf::filled(bytes, |buf| prng.fill(buf)));
        let mut job = options.job.clone();
        job.seed = job.seed.wrapping_add(index as u64);
        Ok(Worker {
            shared,
            wake,
            bell,
            lanes,
            submitters,
            next: 0,
            generator: Generator::new(&job).map_err(|e| e.to_string())?,
            buffers: buffers.collect(),
            room: usize::from(options.depth),
            pace: Pace::new(options.depth),
            first_error: None,
        })
    }

    fn run(&mut self) {
        let depth = usize::from(self.shared.options.depth);
        let mut stopped = false;
        loop {
            let now = self.shared.clock.now();
            let stopping = self.shared.stop.load(Ordering::Acquire) != 0;
            if !stopping && self.room >= self.pace.refill() {
                self.submit(now);
            }
            let ended = self.turn(now);
            self.pace.ended(ended, now);
            if stopping && self.room == depth && !stopped {
                stopped = true;
                if self.shared.busy.fetch_sub(1, Ordering::AcqRel) == 1 {
                    let wakes = &self.shared.wakes;
                    wakes.iter().for_each(|wake| weir_ring::Wake::wake(wake.as_ref()));
                }
            }
            if stopped && self.shared.busy.load(Ordering::Acquire) == 0 {
                return;
            }
            if ended == 0 {
                self.sleep();
            }
        }
    }

    fn submit(&mut self, now: Nanos) {
        let count = self.submitters.len();
        let submitter = &mut self.submitters[self.next];
        self.next = (self.next + 1) % count;
        while self.room > 0 {
            let bio = match self.generator.next() {
                Step::Flush => Bio::flush(),
                Step::Io { op: op @ (Op::Read | Op::Write), sector, sectors } => {
                    let buf = self.buffers.pop().expect("a buffer for each I/O");
                    let mut bio = Bio::new(op, sector, sectors, buf.into());
                    bio.flags =
                        if op == Op::Write { Flags::SYNC | Flags::IDLE } else { Flags::NONE };
                    bio
                }
                Step::Io { op, sector, sectors } => Bio::new(op, sector, sectors, weir::Data::None),
            };
            if let Err(refused) = submitter.submit(bio, now) {
                self.buffers.extend(refused.into_bio().data.into_spare());
                break;
            }
            self.room -= 1;
        }
        submitter.flush_plug(now);
    }

    fn turn(&mut self, now: Nanos) -> usize {
        for lane in &mut self.lanes {
            lane.turn(now);
        }
        let (buffers, first_error) = (&mut self.buffers, &mut self.first_error);
        let block = self.shared.options.job.block_bytes as usize;
        let mut ended = 0;
        for submitter in &mut self.submitters {
            ended += submitter.complete(now, |completion| {
                let (op, status) = (completion.op, completion.status);
                if !status.is_ok() {
                    first_error.get_or_insert_with(|| format!("{op:?}: {status}"));
                }
                if matches!(op, Op::Read | Op::Write) && completion.sectors > 0 {
                    // After a timeout the device keeps the memory.
                    let spare = completion.data.into_spare();
                    buffers.push(spare.unwrap_or_else(|| Buf::zeroed(block)));
                }
            });
        }
        self.room += ended;
        ended
    }

    /// Sleeps until the bell rings, a driver has answers or a lane's time has come.
    fn sleep(&mut self) {
        let now = self.shared.clock.now();
        let wake_at = self.lanes.iter().filter_map(Lane::wake_at).min();
        if wake_at.is_some_and(|at| at <= now) {
            return;
        }
        let doorbell = self.bell.doorbell();
        doorbell.prepare_sleep();
        let pending = self.bell.ready().any()
            || self.lanes.iter().any(Lane::has_work)
            || self.submitters.iter().any(Submitter::has_completions);
        let mut woken = false;
        if !pending {
            let mut fds = vec![PollFd::from_borrowed_fd(self.wake.as_fd(), PollFlags::IN)];
            let events = self.lanes.iter().filter_map(Lane::event_fd);
            fds.extend(events.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
            let timeout = wake_at.map(|at| {
                let ns = at.since(now);
                Timespec {
                    tv_sec: (ns / 1_000_000_000) as i64,
                    tv_nsec: (ns % 1_000_000_000) as i64,
                }
            });
            // An interrupted sleep is a short sleep.
            let _ = poll(&mut fds, timeout.as_ref());
            woken = !fds[0].revents().is_empty();
        }
        doorbell.awake();
        if woken {
            self.wake.clear();
        }
        self.bell.ready().take(|_| ());
    }
}

/// How long an I/O may wait for others to be started with, ns.
const REFILL_WAIT_NS: u64 = 24_000;

/// Fewer than so many are not worth waiting for.
const REFILL_LEAST: usize = 4;

/// How many I/Os are started together, from how fast they have been ending.
///
/// Handing over one I/O for each that ends keeps a queue full, and costs a system call and perhaps
/// a wake for each. A target that answers a million a second is better filled up by the dozen, as
/// fio's `iodepth_batch_complete_min` has it; a disk wants each at once. So an I/O waits for others
/// only while [`REFILL_LEAST`] of them end within [`REFILL_WAIT_NS`], and never for more than a
/// quarter of the depth.
struct Pace {
    most: usize,
    /// ns from one end to the next, on average; sixteenths.
    interval: u64,
    /// When I/Os last ended.
    last: Option<Nanos>,
}

impl Pace {
    fn new(depth: u16) -> Pace {
        let interval = 16 * REFILL_WAIT_NS;
        Pace { most: usize::from(depth / 4).max(1), interval, last: None }
    }

    /// Start I/Os when so many can be, at least 1 and at most a quarter of the depth.
    fn refill(&self) -> usize {
        let due = 16 * REFILL_WAIT_NS / self.interval.max(1);
        let due = usize::try_from(due).unwrap_or(self.most);
        if due < REFILL_LEAST { 1 } else { due.min(self.most) }
    }

    fn ended(&mut self, count: usize, now: Nanos) {
        if count == 0 {
            return;
        }
        if let Some(last) = self.last {
            // A moving average over some 16 I/Os.
            let weight = (count as u64).min(16);
            let interval = now.since(last) * 16 / count as u64;
            self.interval = (self.interval * (16 - weight) + interval * weight) / 16;
        }
        self.last = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After I/Os that ended `interval_ns` apart, `batch` at a time.
    fn refill_at(depth: u16, interval_ns: u64, batch: u64) -> usize {
        let mut pace = Pace::new(depth);
        for n in 0..100 {
            pace.ended(batch as usize, Nanos(n * batch * interval_ns));
        }
        pace.refill()
    }

    #[test]
    fn a_fast_target_is_refilled_by_the_dozen_and_a_disk_at_once() {
        for batch in [1, 8, 64] {
            assert!((23..=24).contains(&refill_at(128, 1_000, batch)));
            assert_eq!(refill_at(128, 100, batch), 32, "a quarter of the depth at most");
            assert_eq!(refill_at(128, 5_500, batch), 4);
            assert_eq!(refill_at(128, 7_000, batch), 1);
            assert_eq!(refill_at(1, 1_000, batch), 1);
            assert_eq!(refill_at(3, 10, batch), 1);
        }
    }

    #[test]
    fn the_refill_follows_a_target_that_slows_down() {
        let mut pace = Pace::new(128);
        assert_eq!(pace.refill(), 1, "nothing is known yet");
        let mut now = Nanos::ZERO;
        for (interval_ns, refill) in [(100, 32), (1_000_000, 1), (100, 32)] {
            for _ in 0..200 {
                now = now + interval_ns;
                pace.ended(1, now);
            }
            assert_eq!(pace.refill(), refill, "{interval_ns} ns apart");
        }
    }
}
