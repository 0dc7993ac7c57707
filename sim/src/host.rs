//! A simulated host: processors, processes, devices of the real core, and modelled disks.

use std::fmt;
use std::sync::Arc;

use weir_bio::{Nanos, Prng};
use weir_load::{Ground, Job, Stream};
use weir_queue::{Bell, Config, Device, Lane, QueueMode, Spread, Wake};
use weir_sim_disk::{Disk, Spec};

use crate::agenda::{Agenda, Alarm};
use crate::cpu::{Cpu, CpuTime};
use crate::driver::{SharedPort, SimDriver, lock, split_name};
use crate::lock::Lock;
use crate::process::{Habit, Process};
use crate::profile::{CPUS_MAX, Profile, SchedulerPrice};

/// A host that is to be simulated.
#[derive(Clone, Debug)]
pub struct HostSpec {
    /// What work costs on it, and its processors.
    pub profile: Profile,
    /// How the queues of each device are built.
    pub config: Config,
    /// Its disks, all of one kind.
    pub disk: Spec,
    /// How many.
    pub disks: usize,
    /// How many processes, each bound to a processor, in turn.
    pub processes: usize,
    /// How each goes about its work.
    pub habit: Habit,
    /// What each asks for; its depth is the habit's.
    pub job: Job,
    /// What chance begins with.
    pub seed: u64,
}

/// Disks at most: a process remembers in a word which it has handed something to.
const DISKS_MAX: usize = 64;

/// Pairs of a process and a disk at most: as many as the bell tells apart.
const PAIRS_MAX: usize = 4096;

impl HostSpec {
    fn check(&self) -> Result<(), HostError> {
        let machine = self.profile.machine;
        let cpus = machine.sockets.saturating_mul(machine.cores);
        let pairs = self.processes.saturating_mul(self.disks);
        for (name, value, most) in [
            ("sockets * cores", cpus, CPUS_MAX),
            ("vectors", self.profile.path.vectors, CPUS_MAX),
            ("disks", self.disks, DISKS_MAX),
            ("processes", self.processes, PAIRS_MAX),
            ("processes * disks", pairs, PAIRS_MAX),
            ("depth", self.habit.depth.into(), usize::from(u16::MAX)),
            ("batch", self.habit.batch as usize, usize::from(u16::MAX)),
        ] {
            if !(1..=most).contains(&value) {
                return Err(HostError(format!("{name}={value} is outside 1..={most}")));
            }
        }
        match self.config.mode {
            QueueMode::Sq => Err(HostError("queue_mode=sq is not simulated".into())),
            QueueMode::Mq => Ok(()),
        }
    }
}

/// Why a host cannot be simulated.
#[derive(Debug)]
pub struct HostError(pub(crate) String);

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for HostError {}

/// The figures of a stretch of simulated time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// How long it was, ns.
    pub ns: u64,
    /// I/Os that ended.
    pub ios: u64,
    /// Their latencies, in all, ns.
    pub latency: u64,
    /// The processors.
    pub cpus: u64,
    /// Their time.
    pub time: CpuTime,
}

impl Figures {
    /// I/Os a second.
    #[must_use]
    pub fn iops(&self) -> f64 {
        self.ios as f64 * 1e9 / self.ns as f64
    }

    /// The mean latency, ns.
    #[must_use]
    pub fn latency_ns(&self) -> f64 {
        self.latency as f64 / self.ios as f64
    }

    /// The share of the time in which processors did something that they spent waiting for locks,
    /// percent.
    #[must_use]
    pub fn spin_percent(&self) -> f64 {
        let busy = self.time.user + self.time.system + self.time.spin;
        self.time.spin as f64 * 100.0 / busy as f64
    }

    /// The share of all processors' time that was spent in the system, percent.
    #[must_use]
    pub fn system_percent(&self) -> f64 {
        let system = self.time.system + self.time.spin;
        system as f64 * 100.0 / (self.ns * self.cpus) as f64
    }
}

/// Its one home is turned by the engine, which looks by itself.
struct NoWake;

impl Wake for NoWake {
    fn wake(&self) {}
}

/// In which all that is under way has ended, ns.
const FINISH: u64 = 60_000_000_000;

pub(crate) struct DiskSide {
    disk: Disk,
    alarm: Option<Nanos>,
}

pub(crate) struct DeviceSide {
    pub(crate) device: Device,
    pub(crate) lanes_from: usize,
    pub(crate) price: SchedulerPrice,
    /// The lock of its scheduler, where that has one for all lanes.
    pub(crate) right: usize,
}

pub(crate) struct LaneSide {
    pub(crate) lane: Lane,
    pub(crate) device: usize,
    /// The processor that its interrupts go to.
    pub(crate) cpu: usize,
    pub(crate) port: SharedPort,
    /// It has interrupted, and was not turned since.
    pub(crate) raised: bool,
    pub(crate) timer: Option<Nanos>,
    /// The lock of its queue.
    pub(crate) mutex: usize,
}

/// A host under way.
pub struct Host {
    pub(crate) profile: Profile,
    pub(crate) agenda: Agenda,
    pub(crate) cpus: Vec<Cpu>,
    pub(crate) locks: Vec<Lock>,
    pub(crate) disks: Vec<DiskSide>,
    pub(crate) devices: Vec<DeviceSide>,
    pub(crate) lanes: Vec<LaneSide>,
    /// The lane at each place of the bell's roster.
    pub(crate) places: Vec<usize>,
    pub(crate) processes: Vec<Process>,
    pub(crate) bell: Arc<Bell>,
    /// Requests are dealt out over queues with a lock each.
    pub(crate) deals: bool,
    pub(crate) devices_each: usize,
    pub(crate) prng: Prng,
    ios: u64,
    latency: u64,
}

impl Host {
    /// A host at rest.
    ///
    /// # Errors
    /// A figure outside its bound.
    pub fn new(spec: HostSpec) -> Result<Host, HostError> {
        spec.check()?;
        let machine = spec.profile.machine;
        let cpus = machine.sockets * machine.cores;
        let bell = Bell::with_lanes(Box::new(NoWake), spec.processes * spec.disks);
        let mut host = Host {
            agenda: Agenda::default(),
            cpus: (0..cpus)
                .map(|index| Cpu { socket: index / machine.cores, rests: true, ..Cpu::default() })
                .collect(),
            locks: Vec::new(),
            disks: Vec::new(),
            devices: Vec::new(),
            lanes: Vec::new(),
            places: Vec::new(),
            processes: Vec::new(),
            bell,
            deals: spec.config.spread == Spread::RoundRobin,
            devices_each: spec.disks,
            prng: Prng::new(spec.seed),
            profile: spec.profile.clone(),
            ios: 0,
            latency: 0,
        };
        for index in 0..spec.disks {
            host.add_disk(&spec, index)?;
        }
        for index in 0..spec.processes {
            host.add_process(&spec, index)?;
        }
        Ok(host)
    }

    fn add_disk(&mut self, spec: &HostSpec, index: usize) -> Result<(), HostError> {
        let refused = |why: &dyn fmt::Display| HostError(why.to_string());
        let driver = Arc::new(SimDriver::new(spec.disk.clone(), spec.config.queues));
        let config = Config { name: format!("disk{index}"), ..spec.config.clone() };
        let queues = usize::from(config.queues);
        let device = Device::new(config, Arc::clone(&driver) as _).map_err(|why| refused(&why))?;
        let price = spec.profile.scheduler.get(device.scheduler()).cloned().unwrap_or_default();
        let lanes_from = self.lanes.len();
        let vectors = spec.profile.path.vectors.clamp(1, queues);
        for queue in 0..queues {
            let lane = device.open_lane(queue, &self.bell).map_err(|why| refused(&why))?;
            let place = lane.place();
            if self.places.len() <= place {
                self.places.resize(place + 1, usize::MAX);
            }
            self.places[place] = self.lanes.len();
            let mutex = self.add_lock();
            self.lanes.push(LaneSide {
                lane,
                device: index,
                cpu: (queue % vectors) * self.cpus.len() / vectors,
                port: driver.port(queue),
                raised: false,
                timer: None,
                mutex,
            });
        }
        let right = self.add_lock();
        self.devices.push(DeviceSide { device, lanes_from, price, right });
        let disk = Disk::new(&spec.disk, spec.seed.wrapping_add(index as u64));
        self.disks.push(DiskSide { disk, alarm: None });
        Ok(())
    }

    fn add_lock(&mut self) -> usize {
        self.locks.push(Lock::default());
        self.locks.len() - 1
    }

    fn add_process(&mut self, spec: &HostSpec, index: usize) -> Result<(), HostError> {
        let cpu = index % self.cpus.len();
        let refused = |why: &dyn fmt::Display| HostError(why.to_string());
        let mut submitters = Vec::new();
        for (number, side) in self.devices.iter().enumerate() {
            let token = index * spec.disks + number;
            let queues = usize::from(spec.config.queues);
            let lane = cpu * queues / self.cpus.len();
            // One more would have to wait for a slot, and a process here does not.
            let (depth, most) = (spec.habit.depth, 2 * u32::from(side.device.nr_requests()));
            if u32::from(depth) > most {
                let what = format!("depth={depth} is above the {most} slots of a submitter");
                return Err(HostError(what));
            }
            let submitter =
                side.device.submitter(&self.bell, token, lane).map_err(|why| refused(&why))?;
            submitters.push(submitter);
        }
        let ground = Ground { bytes: spec.disk.size, block: 512, read_only: false };
        let job = Job { depth: spec.habit.depth, seed: spec.seed, ..spec.job.clone() };
        let stream = Stream::new(&job, ground, index as u16).map_err(|why| refused(&why))?;
        let bytes = job.sizes[0].most() as usize;
        let seed = spec.seed.wrapping_mul(0x9E37_79B9).wrapping_add(index as u64);
        self.processes.push(Process::new(cpu, spec.habit, submitters, stream, bytes, seed));
        self.cpus[cpu].ready.push_back(index);
        Ok(())
    }

    /// Brings it to rest: nothing new begins, and all that is under way ends; how many I/Os there
    /// were.
    ///
    /// # Panics
    /// If something does not end, or ended more than once.
    pub fn finish(mut self) -> u64 {
        self.processes.iter_mut().for_each(Process::stop);
        let until = self.agenda.now() + FINISH;
        while self.processes.iter().any(Process::is_busy) {
            let alarm = self.agenda.take(until);
            self.hear(alarm.expect("all that is under way ends"));
        }
        let begun: u64 = self.processes.iter().map(|process| process.handed_in).sum();
        assert_eq!(begun, self.ios, "each I/O ends once");
        begun
    }

    /// Lets so much time pass; the figures of it.
    pub fn run(&mut self, ns: u64) -> Figures {
        let begun = self.agenda.now();
        let until = begun + ns;
        if begun == Nanos::ZERO {
            (0..self.cpus.len()).for_each(|cpu| self.call(cpu));
        }
        let before = (self.ios, self.latency, self.time());
        while let Some(alarm) = self.agenda.take(until) {
            self.hear(alarm);
        }
        let (ios, latency, time) = before;
        let after = self.time();
        Figures {
            ns,
            ios: self.ios - ios,
            latency: self.latency - latency,
            cpus: self.cpus.len() as u64,
            time: CpuTime {
                user: after.user - time.user,
                system: after.system - time.system,
                spin: after.spin - time.spin,
                lost: after.lost - time.lost,
            },
        }
    }

    fn time(&self) -> CpuTime {
        let spin = self.locks.iter().map(|lock| lock.spun).sum();
        self.cpus.iter().fold(CpuTime { spin, ..CpuTime::default() }, |sum, cpu| CpuTime {
            user: sum.user + cpu.time.user,
            system: sum.system + cpu.time.system,
            lost: sum.lost + cpu.time.lost,
            ..sum
        })
    }

    fn hear(&mut self, alarm: Alarm) {
        match alarm {
            Alarm::Cpu { cpu, epoch } => {
                let at = &mut self.cpus[cpu];
                if at.epoch == epoch {
                    at.running = at.running.filter(|running| running.until > self.agenda.now());
                    self.drive(cpu);
                }
            }
            Alarm::Disk(disk) => self.take_ends(disk),
            Alarm::Lane(lane) => {
                let now = self.agenda.now();
                if self.lanes[lane].timer.take_if(|at| *at <= now).is_some() {
                    self.interrupt(lane);
                }
            }
        }
    }

    /// A processor looks whether it has something to do.
    pub(crate) fn call(&mut self, cpu: usize) {
        let epoch = self.cpus[cpu].epoch;
        self.agenda.put(self.agenda.now(), Alarm::Cpu { cpu, epoch });
    }

    fn take_ends(&mut self, index: usize) {
        let now = self.agenda.now();
        let side = &mut self.disks[index];
        if side.alarm == Some(now) {
            side.alarm = None;
        }
        while let Some(end) = self.disks[index].disk.take_end(now) {
            let (queue, tag) = split_name(end.id);
            let lane = self.devices[index].lanes_from + queue;
            lock(&self.lanes[lane].port).ended.push(tag);
            self.interrupt(lane);
        }
        self.set_disk_alarm(index);
    }

    /// The commands that a lane has sent begin.
    pub(crate) fn start(&mut self, lane: usize) {
        let now = self.agenda.now();
        let LaneSide { device, port, .. } = &self.lanes[lane];
        let side = &mut self.disks[*device];
        lock(port).sent.drain(..).for_each(|job| side.disk.start(job, now));
        let device = *device;
        self.set_disk_alarm(device);
    }

    fn set_disk_alarm(&mut self, index: usize) {
        let side = &mut self.disks[index];
        let Some(at) = side.disk.wake_at() else { return };
        let at = at.max(self.agenda.now());
        if side.alarm.is_none_or(|alarm| at < alarm) {
            side.alarm = Some(at);
            self.agenda.put(at, Alarm::Disk(index));
        }
    }

    /// A process has back what has ended.
    pub(crate) fn count(&mut self, process: usize) {
        let now = self.agenda.now();
        for begun in self.processes[process].returned.drain(..) {
            self.ios += 1;
            self.latency += now.since(begun);
        }
    }
}

/// Simulates a host for `ns` after it has run for `warm_up`; the figures of that time, and how many
/// I/Os there were in all.
///
/// # Errors
/// As [`Host::new`].
pub fn simulate(spec: HostSpec, warm_up: u64, ns: u64) -> Result<(Figures, u64), HostError> {
    let mut host = Host::new(spec)?;
    host.run(warm_up);
    let figures = host.run(ns);
    Ok((figures, host.finish()))
}
