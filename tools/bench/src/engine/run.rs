//! `weir bench`: workloads on devices, driven by as many threads as the host has CPUs, or fewer.
//!
//! Many jobs run at once, each on its own device or on one they share. A job's clones are contexts
//! of their own; threads are only who turns them.

use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use weir::{Clock, Device, Stats};
use weir_bio::{Nanos, SECTOR};
use weir_live::EventWake;
use weir_load::oltp::format::{BLOCK_BYTES, REDO_BYTES};
use weir_load::oltp::{Instance, Profile};
use weir_load::{Access, Flows, Ground, Job, Range, Sizes, Stream};
use weir_queue::QueueUse;

use crate::cpu::{CpuTime, PerCpu};
use crate::engine::client::{Failed, OLTP_KINDS, Plan, STREAM_KINDS, Work};
use crate::engine::commits;
use crate::engine::tally::Tally;
use crate::engine::used::{Ticks, Used};
use crate::engine::worker::{self, End, Left, News, Shared, Window};
use crate::engine::written;

/// One workload of a run.
#[derive(Clone, Debug)]
pub enum Load {
    /// A job, on one of the devices.
    Stream {
        /// Its job.
        job: Box<Job>,
        /// Which device.
        disk: usize,
    },
    /// Databases at work.
    Oltp {
        /// The name of the group.
        name: String,
        /// The instances.
        profiles: Vec<Profile>,
        /// The device of the data.
        data: usize,
        /// That of the redo, which may be the same.
        redo: usize,
    },
}

impl Load {
    /// Its contexts: what could use a thread of its own.
    #[must_use]
    pub fn clients(&self) -> usize {
        match self {
            Load::Stream { job, .. } => usize::from(job.clones),
            Load::Oltp { profiles, .. } => profiles.len(),
        }
    }

    fn kinds(&self) -> &'static [(&'static str, &'static str, bool)] {
        match self {
            Load::Stream { .. } => &STREAM_KINDS,
            Load::Oltp { .. } => &OLTP_KINDS,
        }
    }
}

/// The jobs to run.
pub struct Options<'a> {
    /// Everything that runs at once.
    pub loads: &'a [Load],
    /// The devices. No lane of them is open.
    pub devices: Vec<&'a Device>,
    /// Devices that these lie on, of which no lane is open either: each after those that it lies on
    /// itself.
    pub below: &'a [Device],
    /// The names of `devices`, for messages.
    pub names: &'a [String],
    /// Threads, at least 1.
    pub threads: usize,
    /// How long to run before measuring.
    pub ramp: Duration,
    /// How long to measure; `None`: until every load has done, or has reached its own runtime.
    pub runtime: Option<Duration>,
    /// Set to end the run early.
    pub interrupted: &'a AtomicBool,
    /// Where acknowledged commits are told, a line each.
    pub commits: Option<&'a File>,
    /// The heading before them, once nothing can refuse the run any more: another run's commits are
    /// looked for until then.
    pub heading: &'a str,
    /// Called every tenth of a second.
    pub progress: &'a dyn Fn(&Progress),
}

/// Runs one job alone on one device, for so long after a ramp.
///
/// # Errors
/// As [`run`].
pub fn one(
    job: &Job,
    device: &Device,
    ramp: Duration,
    runtime: Duration,
) -> Result<Measured, String> {
    let threads = usize::from(job.clones);
    run(&Options {
        loads: &[Load::Stream { job: Box::new(job.clone()), disk: 0 }],
        devices: vec![device],
        below: &[],
        names: &[device.config().name.clone()],
        threads,
        ramp,
        runtime: Some(runtime),
        interrupted: &AtomicBool::new(false),
        commits: None,
        heading: "",
        progress: &|_| (),
    })
}

/// How far a run is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Measured so far.
    pub measured: Duration,
    /// Of so much, if that is known.
    pub of: Option<Duration>,
    /// I/Os of all devices since they were opened.
    pub ios: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// One group of the outcome.
#[derive(Clone, Debug)]
pub struct Group {
    /// Its name: the job's, or a kind of an instance's I/O.
    pub name: String,
    /// `read`, `write`, `trim` or `flush`; `execution` or `commit` of what is made of many I/Os.
    pub op: &'static str,
    /// Whether it is I/O, and so in the sum.
    pub is_io: bool,
    /// Its row in the tally.
    pub row: usize,
    /// How long it ran: until its time was up, or until it had done; `None` if it was cut short.
    pub ended_after: Option<Duration>,
}

/// The outcome.
#[derive(Debug)]
pub struct Measured {
    /// All figures, by row.
    pub tally: Tally,
    /// The rows.
    pub groups: Vec<Group>,
    /// When each clone had done, by load; `None` for one that had not.
    pub ends: Vec<Vec<Option<Duration>>>,
    /// Length of the measured time: what was asked for, or until everything had done, or until it
    /// was cut short.
    pub wall: Duration,
    /// CPU time of this process in it: altogether to the nanosecond, by mode as the kernel's ticks
    /// have it.
    pub cpu: CpuTime,
    /// The time of each CPU of the host in it, by the kernel's ticks.
    pub per_cpu: PerCpu,
    /// Statistics of each device over the measured time: at its start, and at its end.
    pub stats: Vec<(Stats, Stats)>,
    /// The same of the hard queues of each device, which has a name.
    pub queues: Vec<(String, [Vec<QueueUse>; 2])>,
    /// Why the run ended early, if it did.
    pub failure: Option<String>,
}

/// A device as a job must know it.
#[must_use]
pub fn ground(device: &Device) -> Ground {
    let limits = device.limits();
    Ground {
        bytes: limits.capacity * SECTOR,
        block: u64::from(limits.logical_block_size),
        read_only: limits.read_only,
    }
}

/// The name of each thread that turns clients.
const THREAD: &std::ffi::CStr = c"bench-clients";

/// Runs the loads.
///
/// # Errors
/// A refusal by a load, a device or the system, before anything ran. Later failures are in
/// [`Measured::failure`].
pub fn run(options: &Options<'_>) -> Result<Measured, String> {
    check_verified(options)?;
    let (plans, groups) = plan(options)?;
    let threads = options.threads.clamp(1, plans.len().max(1));
    let wakes = (0..threads)
        .map(|_| EventWake::new().map(Arc::new).map_err(|e| format!("eventfd: {e}")))
        .collect::<Result<Vec<_>, _>>()?;
    let shared = Shared {
        devices: options.devices.clone(),
        below: options.below,
        threads,
        window: OnceLock::new(),
        stop: AtomicBool::new(false),
        abandon: AtomicBool::new(false),
        busy: AtomicUsize::new(threads),
        used: Used::new(threads),
        wakes,
        commits: options.commits,
        is_io: groups.iter().map(|group| group.is_io).collect(),
    };
    let unlimited = plans.iter().any(|plan| plan.runtime_ns.is_none());
    let limit_ns = plans.iter().filter_map(|plan| plan.runtime_ns).max().filter(|_| !unlimited);
    let mut dealt: Vec<Vec<Plan>> = (0..threads).map(|_| Vec::new()).collect();
    plans.into_iter().enumerate().for_each(|(n, plan)| dealt[n % threads].push(plan));
    let (sender, receiver) = channel();
    std::thread::scope(|scope| {
        let mut started = Vec::new();
        for (index, plans) in dealt.into_iter().enumerate() {
            let (shared, of_thread) = (&shared, sender.clone());
            let thread = move || {
                // It tells them apart in lists of threads; without it nothing is lost.
                let _ = rustix::thread::set_name(THREAD);
                worker::thread(shared, index, plans, &of_thread)
            };
            match std::thread::Builder::new().spawn_scoped(scope, thread) {
                Ok(thread) => started.push(thread),
                Err(why) => {
                    let why = format!("thread {} of {threads} cannot be started: {why}", index + 1);
                    let _ = sender.send(News::Ready(Err(why)));
                }
            }
        }
        drop(sender);
        let watched = Watch { options, shared: &shared, news: &receiver, limit_ns }.watch();
        let left = started.into_iter().filter_map(|t| t.join().expect("a bench thread"));
        let left: Vec<Left> = left.collect();
        watched.map(|watched| sum_up(options, groups, watched, &left))
    })
}

/// Every client of every load, and the groups of the outcome.
fn plan(options: &Options<'_>) -> Result<(Vec<Plan>, Vec<Group>), String> {
    let (mut plans, mut groups) = (Vec::new(), Vec::new());
    let jobs = options.loads.iter().filter_map(|load| match load {
        Load::Stream { job, .. } => Some(job.as_ref()),
        Load::Oltp { .. } => None,
    });
    let (mut flows, mut written) = (Flows::of(jobs), Vec::new());
    for load in options.loads {
        let row = groups.len();
        let of_run = options.runtime.map(|runtime| runtime.as_nanos() as u64);
        match load {
            Load::Stream { job, disk } => {
                let ground = ground(options.devices[*disk]);
                for clone in 0..job.clones {
                    let stream = Stream::new(job, ground, clone);
                    let mut stream = stream.map_err(|e| format!("job {}: {e}", job.name))?;
                    stream.join(job, &mut flows);
                    let plan = stream_plan(job, stream, (*disk, row, clone), of_run);
                    written.push((plans.len(), job.as_ref(), clone, &options.names[*disk]));
                    plans.push(plan);
                }
            }
            Load::Oltp { profiles, data, redo, .. } => {
                for profile in profiles {
                    let instance = Instance::new(profile.clone()).map_err(|e| e.to_string())?;
                    plans.push(oltp_plan(profile, instance, [*data, *redo], row, of_run));
                }
            }
        }
        for (name, op, is_io) in load.kinds() {
            let name = match load {
                Load::Stream { job, .. } => job.name.clone(),
                Load::Oltp { .. } => String::from(*name),
            };
            let row = groups.len();
            groups.push(Group { name, op, is_io: *is_io, row, ended_after: None });
        }
    }
    written::open(&mut plans, &written)?;
    Ok((plans, groups))
}

/// A job that verifies has its blocks to itself: a block that another job writes would be a fault.
fn check_verified(options: &Options<'_>) -> Result<(), String> {
    let mut known: Vec<(&Job, usize, Range)> = Vec::new();
    for load in options.loads {
        let Load::Stream { job, disk } = load else { continue };
        let range = job.span(ground(options.devices[*disk]));
        let range = range.map_err(|e| {
            let disk = options.names.get(*disk).map_or("its target", String::as_str);
            format!("job {} on {disk}: {e}", job.name)
        })?;
        for (other, place, taken) in &known {
            let apart = range.offset >= taken.offset + taken.bytes
                || taken.offset >= range.offset + range.bytes;
            let spoils = |one: &Job, two: &Job| one.verify.is_some() && two.changes();
            if place == disk && !apart && (spoils(job, other) || spoils(other, job)) {
                return Err(format!(
                    "jobs {} and {} share bytes of {} and one verifies what the other may \
                     overwrite: give each an offset and a size of its own",
                    other.name, job.name, options.names[*disk]
                ));
            }
        }
        known.push((job, *disk, range));
    }
    Ok(())
}

pub(crate) fn stream_plan(
    job: &Job,
    stream: Stream,
    (disk, row, clone): (usize, usize, u16),
    of_run: Option<u64>,
) -> Plan {
    let bytes = job.buffer_bytes() as usize;
    let of_bytes = |sizes: &Sizes| matches!(sizes, Sizes::Fixed(b) if *b as usize == bytes);
    let uniform = job.sizes_with_data().all(of_bytes);
    let count = if bytes > 0 { usize::from(job.depth) } else { 0 };
    // A job that has nothing to end it would never end. Its own time begins with its first I/O.
    let of_job = job.runtime_ns.map(|ns| ns.saturating_add(stream.start_delay_ns()));
    let runtime_ns = of_run.or(of_job);
    Plan {
        work: Work::Stream(Box::new(stream)),
        disks: vec![disk],
        row,
        buffers: [(bytes.max(1), count), (bytes.max(1), 0)],
        uniform,
        depth: job.depth_in_use(),
        batched: !job.batching.may_collect(),
        // Neighbours that are handed over together become one request, end together and are made
        // together again: a depth of four would be one of one. fio hands over each by itself
        // (`iodepth_batch`, 1). Write-back of a page cache does come in company.
        apart: job.access == Access::Sequential && !job.background && job.batching.submit <= 1,
        runtime_ns,
        seed: job.seed_of(clone),
        log: None,
        trace: None,
    }
}

fn oltp_plan(
    profile: &Profile,
    instance: Instance,
    disks: [usize; 2],
    row: usize,
    of_run: Option<u64>,
) -> Plan {
    Plan {
        work: Work::Oltp(Box::new(instance)),
        disks: disks.to_vec(),
        row,
        buffers: [
            (BLOCK_BYTES as usize, usize::from(profile.sessions) + 32),
            (32 * REDO_BYTES as usize, 1),
        ],
        uniform: false,
        depth: 0,
        batched: false,
        apart: false,
        runtime_ns: of_run,
        seed: profile.seed,
        log: None,
        trace: None,
    }
}

/// The thread that watches the others.
struct Watch<'a> {
    options: &'a Options<'a>,
    shared: &'a Shared<'a>,
    news: &'a Receiver<News>,
    /// When the time of all threads is up, from the start of the measured time.
    limit_ns: Option<u64>,
}

/// The news it has heard.
#[derive(Default)]
struct Heard {
    /// Threads that have done.
    done: usize,
    /// No client has a measured I/O to do any more.
    over: bool,
    failure: Option<String>,
}

/// The watcher's readings.
struct Watched {
    window: Window,
    /// From the start of the measured time until it looked again, late as that may have been.
    wall: Duration,
    /// To the nanosecond, and in ticks.
    cpu: (Duration, CpuTime),
    per_cpu: PerCpu,
    stats: Vec<(Stats, Stats)>,
    queues: Vec<(String, [Vec<QueueUse>; 2])>,
    failure: Option<String>,
}

/// How often it looks up.
const LOOK: Duration = Duration::from_millis(100);
/// Reading what the kernel has ticked takes a moment, which is not to be in the measured time.
const EARLY_NS: u64 = 2_000_000;

impl Watch<'_> {
    fn watch(&self) -> Result<Watched, String> {
        let threads = self.shared.threads;
        let ready: Result<Vec<()>, String> = (0..threads)
            .map(|_| match self.news.recv() {
                Ok(News::Ready(ready)) => ready,
                Ok(_) | Err(_) => Err(String::from("a bench thread ended early")),
            })
            .collect();
        let begun = ready.and_then(|_| match self.options.commits {
            Some(file) => commits::begin(file, self.options.heading),
            None => Ok(()),
        });
        if let Err(why) = begun {
            let _ = self.shared.window.set(None);
            return Err(why);
        }
        let (ramp, mut before) = (self.options.ramp.as_nanos() as u64, Ticks::now());
        let from = Clock.now() + ramp;
        let window = Window { from, until: self.limit_ns.map(|limit| from + limit) };
        let _ = self.shared.window.set(Some(window));
        let mut heard = Heard::default();
        if ramp > EARLY_NS {
            self.until(from, Some(Nanos(from.0 - EARLY_NS)), &mut heard);
            before = Ticks::now();
        }
        self.until(from, Some(from), &mut heard);
        let stats: Vec<_> = self.options.devices.iter().map(|device| device.stats()).collect();
        let queues = self.queue_uses();
        let began = self.shared.used.begin();
        let runtime = self.options.runtime.map(|runtime| runtime.as_nanos() as u64);
        self.until(from, runtime.map(|ns| from + ns), &mut heard);
        let used = self.shared.used.end().saturating_sub(began);
        let wall = Duration::from_nanos(Clock.now().since(from));
        let ticked = Ticks::now();
        let mut watched = Watched {
            window,
            wall,
            cpu: (used, ticked.process.since(&before.process)),
            per_cpu: ticked.per_cpu.since(&before.per_cpu),
            stats: stats
                .into_iter()
                .zip(&self.options.devices)
                .map(|(before, device)| (before, device.stats()))
                .collect(),
            queues: std::iter::zip(self.options.names, std::iter::zip(queues, self.queue_uses()))
                .map(|(name, (before, after))| (name.clone(), [before, after]))
                .collect(),
            failure: None,
        };
        self.finish(&mut heard);
        watched.failure = heard.failure;
        Ok(watched)
    }

    /// Of each hard queue of each device.
    fn queue_uses(&self) -> Vec<Vec<QueueUse>> {
        self.options.devices.iter().map(|device| device.queue_uses()).collect()
    }

    /// Has everything end. Jobs that verify read their blocks back, unless something went wrong.
    fn finish(&self, heard: &mut Heard) {
        let Heard { done, failure, .. } = heard;
        let mut told = false;
        while *done < self.shared.threads {
            if failure.is_some() {
                self.shared.abandon.store(true, Ordering::Release);
            }
            self.shared.stop.store(true, Ordering::Release);
            if failure.is_some() || !std::mem::replace(&mut told, true) {
                self.shared.wake_all();
            }
            match self.news.recv_timeout(LOOK) {
                Ok(News::Done) => *done += 1,
                Ok(News::Failed(failed)) => {
                    failure.get_or_insert_with(|| self.name(&failed));
                }
                Ok(News::Ready(_) | News::Over) | Err(RecvTimeoutError::Timeout) => (),
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let goes_on = *done < self.shared.threads;
            if goes_on && self.options.interrupted.load(Ordering::Acquire) {
                failure.get_or_insert_with(|| String::from("interrupted"));
            }
        }
    }

    fn name(&self, failed: &Failed) -> String {
        match self.options.names.get(failed.disk) {
            Some(name) => format!("{name}: {}", failed.what),
            None => failed.what.clone(),
        }
    }

    fn tell(&self, from: Nanos, until: Option<Nanos>) {
        let (mut ios, mut bytes) = (0, 0);
        for device in &self.options.devices {
            for direction in device.stats().directions {
                ios += direction.total.count();
                bytes += direction.sectors * SECTOR;
            }
        }
        (self.options.progress)(&Progress {
            measured: Duration::from_nanos(Clock.now().since(from)),
            of: until.map(|until| Duration::from_nanos(until.since(from))),
            ios,
            bytes,
        });
    }

    /// Waits for a time, or until nothing more is measured; a failure or an interruption ends the
    /// wait.
    fn until(&self, from: Nanos, at: Option<Nanos>, heard: &mut Heard) {
        while !heard.over && heard.done < self.shared.threads && heard.failure.is_none() {
            let now = Clock.now();
            let left = at.map_or(LOOK, |at| Duration::from_nanos(at.since(now)));
            if left.is_zero() {
                return;
            }
            match self.news.recv_timeout(left.min(LOOK)) {
                Ok(News::Done) => heard.done += 1,
                Ok(News::Over) => heard.over = true,
                Ok(News::Failed(failed)) => heard.failure = Some(self.name(&failed)),
                Ok(News::Ready(_)) | Err(RecvTimeoutError::Timeout) => (),
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if self.options.interrupted.load(Ordering::Acquire) {
                heard.failure.get_or_insert_with(|| String::from("interrupted"));
            }
            self.tell(from, at);
        }
    }
}

fn sum_up(
    options: &Options<'_>,
    mut groups: Vec<Group>,
    watched: Watched,
    left: &[Left],
) -> Measured {
    let Watched { window, cpu: (used, ticks), per_cpu, stats, queues, mut failure, .. } = watched;
    let is_io = groups.iter().map(|group| group.is_io).collect();
    let mut tally = Tally::new(is_io, window.from);
    left.iter().for_each(|left| tally.add(&left.tally));
    failure = failure.or_else(|| left.iter().find_map(|left| left.failure.clone()));
    let mut ends = Vec::new();
    let mut row = 0;
    for load in options.loads {
        let of_load = left.iter().flat_map(|left| &left.ends).filter(|end| end.0 == row);
        let of_load: Vec<_> = of_load.map(|(_, end)| *end).collect();
        let cut_after = failure.is_some().then_some(watched.wall);
        let last = ran_for(&of_load, window.from, cut_after);
        let kinds = load.kinds().len();
        groups[row..row + kinds].iter_mut().for_each(|group| group.ended_after = last);
        row += kinds;
        if let Load::Stream { job, .. } = load
            && of_load.iter().all(|end| matches!(end, End::Work(last) if *last <= window.from))
            && !of_load.is_empty()
        {
            failure.get_or_insert_with(|| {
                let name = &job.name;
                format!("job {name} had moved all its size before the ramp was over")
            });
        }
        let done = of_load.iter().map(|end| match end {
            End::Work(last) => Some(Duration::from_nanos(last.since(window.from))),
            End::Time(_) | End::Cut => None,
        });
        ends.push(done.collect());
    }
    // I/Os are counted to the nanosecond at which a client's time is up, and the watcher wakes
    // later: its own time would be another than theirs.
    let all: Option<Vec<_>> = groups.iter().map(|group| group.ended_after).collect();
    let wall = all.and_then(|ends| ends.into_iter().max()).filter(|end| !end.is_zero());
    let wall = wall.unwrap_or(watched.wall);
    let (cpu, per_cpu) = (ticks.divide(used), per_cpu.within(wall));
    Measured { tally, groups, ends, wall, cpu, per_cpu, stats, queues, failure }
}

/// How long a load ran: as its longest clone; `None` if one was cut short, which is known from
/// when the run was, after `cut_after`.
fn ran_for(ends: &[End], from: Nanos, cut_after: Option<Duration>) -> Option<Duration> {
    let ran = ends.iter().map(|end| match end {
        End::Work(at) => Some(Duration::from_nanos(at.since(from))),
        End::Time(at) => Some(Duration::from_nanos(at.since(from)))
            .filter(|ran| cut_after.is_none_or(|cut| *ran <= cut)),
        End::Cut => None,
    });
    ran.collect::<Option<Vec<_>>>()?.into_iter().max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir::Target;
    use weir_load::{Amount, Direction, Verify};

    const LARGE: Sizes = Sizes::Fixed(1 << 20);

    fn device(target: &str) -> Device {
        let target = Target::parse(target).expect("a target");
        weir::open("bench", &target, 1).expect("it opens").device
    }

    fn measure(jobs: &[Job], runtime: Option<Duration>) -> Measured {
        try_on("null:1MiB", jobs, runtime).expect("it runs")
    }

    fn try_on(target: &str, jobs: &[Job], runtime: Option<Duration>) -> Result<Measured, String> {
        try_with(target, jobs, runtime, 1)
    }

    fn try_with(
        target: &str,
        jobs: &[Job],
        runtime: Option<Duration>,
        threads: usize,
    ) -> Result<Measured, String> {
        let device = device(target);
        let loads: Vec<_> =
            jobs.iter().map(|job| Load::Stream { job: Box::new(job.clone()), disk: 0 }).collect();
        run(&Options {
            loads: &loads,
            devices: vec![&device],
            below: &[],
            names: &[String::from("null")],
            threads,
            ramp: Duration::ZERO,
            runtime,
            interrupted: &AtomicBool::new(false),
            commits: None,
            heading: "",
            progress: &|_| (),
        })
    }

    fn timed(ms: u64) -> Job {
        let runtime_ns = Some(ms * 1_000_000);
        Job { access: Access::Random, time_based: true, runtime_ns, ..Job::default() }
    }

    fn ended_after(measured: &Measured, row: usize) -> Option<Duration> {
        measured.groups[row].ended_after
    }

    #[test]
    fn a_job_is_divided_by_its_own_time_when_its_neighbour_runs_longer() {
        let measured = measure(&[timed(20), timed(60)], None);
        assert_eq!(ended_after(&measured, 0), Some(Duration::from_millis(20)));
        assert_eq!(ended_after(&measured, 4), Some(Duration::from_millis(60)));
        assert_eq!(measured.wall, Duration::from_millis(60));
        assert_eq!(measured.ends, [[None], [None]]);
    }

    #[test]
    fn a_paced_job_is_divided_by_the_time_it_was_given_and_not_by_its_last_io() {
        // Due at once and never again within its time.
        let measured =
            measure(&[Job { rate: [1; 3], ..timed(1000) }], Some(Duration::from_millis(30)));
        assert_eq!(ended_after(&measured, 0), Some(Duration::from_millis(30)));
        assert_eq!(measured.wall, Duration::from_millis(30));
    }

    #[test]
    fn sequential_ios_are_no_neighbours_of_one_pass_unless_nobody_waits_for_them() {
        let job = |background| Job {
            direction: Direction::Write,
            depth: 8,
            size: Some(Amount::Bytes(64 * 4096)),
            background,
            ..Job::default()
        };
        let merges = |background| {
            let target = "null:1MiB,latency_us=1000,scheduler=none";
            let measured = try_on(target, &[job(background)], None).expect("it runs");
            let (before, after) = &measured.stats[0];
            assert_eq!(measured.tally.all().ios, 64);
            let of = |stats: &Stats| stats.directions.iter().map(|way| way.merges).sum::<u64>();
            of(after) - of(before)
        };
        assert_eq!(merges(false), 0);
        assert!(merges(true) > 0, "what is handed over together merges");
    }

    #[test]
    fn a_round_robin_spread_gives_hard_queues_the_same_to_within_one() {
        let size = Some(Amount::Bytes(64 * 4096));
        let jobs = [Job { size, depth: 8, ..Job::default() }, Job { size, ..Job::default() }];
        for (queues, threads) in [(3, 1), (3, 2), (5, 2)] {
            let target = format!("null:1MiB,queues={queues},spread=round-robin");
            let measured = try_with(&target, &jobs, None, threads).expect("it runs");
            let (_, [before, after]) = &measured.queues[0];
            assert_eq!((before.len(), after.len()), (queues, queues));
            let ended: Vec<u64> = after.iter().map(|queue| queue.ended.iter().sum()).collect();
            let (least, most) = (ended.iter().min(), ended.iter().max());
            assert_eq!(ended.iter().sum::<u64>(), 128, "{ended:?}");
            assert!(most.unwrap() - least.unwrap() <= 1, "{ended:?}");
            assert!(after.iter().all(|queue| queue.in_driver == [0, 0]));
        }
    }

    #[test]
    fn a_job_that_has_done_is_divided_by_the_time_it_took() {
        let done = Job { size: Some(Amount::Bytes(65536)), ..Job::default() };
        let measured = measure(&[done], Some(Duration::from_secs(3600)));
        let took = measured.ends[0][0].expect("it had done");
        assert_eq!((ended_after(&measured, 0), measured.wall), (Some(took), took));
        assert!(took < Duration::from_secs(3600));
    }

    #[test]
    fn a_job_that_ends_within_the_ramp_was_not_measured() {
        let device = device("null:1MiB");
        let job = Job { size: Some(Amount::Bytes(65536)), ..Job::default() };
        let hour = Duration::from_secs(3600);
        let measured = one(&job, &device, Duration::from_millis(20), hour).expect("it runs");
        assert_eq!(measured.tally.all().ios, 0);
        let why = measured.failure.expect("nothing was measured");
        assert!(why.contains("before the ramp was over"), "{why}");
    }

    #[test]
    fn what_memory_answers_at_once_has_taken_device_time_on_either_path() {
        for mode in ["sq", "mq"] {
            let size = Some(Amount::Bytes(64 << 20));
            let job = Job {
                direction: Direction::Write,
                sizes: [1, 1, 1].map(|_| LARGE),
                size,
                ..Job::default()
            };
            let target = format!("ram:64MiB,queue_mode={mode}");
            let measured = try_on(&target, &[job], None).expect("it runs");
            let row = measured.tally.row(1).expect("writes");
            let least = row.device.buckets().next().expect("64 writes").0;
            assert!(row.ios == 64 && least > 0, "{mode}: one is said to have taken no time");
        }
    }

    #[test]
    fn blocks_that_are_read_back_are_counted_apart() {
        let job = Job { clones: 2, access: Access::Sequential, ..verifies("a", 0) };
        let measured = try_on("ram:1MiB", &[job], None).expect("it runs");
        assert_eq!((measured.tally.verified, measured.tally.faults), (128, 0));
        assert_eq!(measured.tally.all().ios, 128);
        let lost = try_on("null:1MiB", &[verifies("a", 0)], None).expect("it runs");
        assert!(lost.tally.faults > 0 && lost.failure.is_some());
    }

    fn verifies(name: &str, offset: u64) -> Job {
        Job {
            name: String::from(name),
            direction: Direction::Write,
            verify: Some(Verify::Crc32c),
            offset: Amount::Bytes(offset),
            size: Some(Amount::Bytes(1 << 19)),
            access: Access::Random,
            ..Job::default()
        }
    }

    #[test]
    fn clones_that_verify_find_no_fault_on_a_sound_disk() {
        let measured = try_on("ram:1MiB", &[Job { clones: 2, ..verifies("a", 0) }], None);
        let measured = measured.expect("it runs");
        assert_eq!((measured.failure, measured.tally.errors), (None, 0));
    }

    #[test]
    fn jobs_that_would_spoil_each_others_verified_blocks_are_refused() {
        let writes = Job { verify: None, ..verifies("b", 4096) };
        let reads = Job { direction: Direction::Read, ..writes.clone() };
        let run = |two: Job| try_on("ram:1MiB", &[verifies("a", 0), two], None);
        for two in [verifies("b", 0), writes] {
            let why = run(two).expect_err("they share blocks");
            assert!(why.starts_with("jobs a and b share bytes of null"), "{why}");
        }
        assert!(run(verifies("b", 1 << 19)).is_ok_and(|measured| measured.failure.is_none()));
        assert!(run(reads).is_ok());
    }

    #[test]
    fn what_a_failure_cut_short_has_the_time_until_then() {
        let (from, cut) = (Nanos(1000), Some(Duration::from_nanos(500)));
        let ran = |ends: &[End]| ran_for(ends, from, cut).map(|ran| ran.as_nanos());
        assert_eq!(ran(&[End::Time(Nanos(1300)), End::Work(Nanos(1400))]), Some(400));
        assert_eq!(ran(&[End::Time(Nanos(1600)), End::Work(Nanos(1400))]), None);
        assert_eq!(ran(&[End::Cut]), None);
    }
}
