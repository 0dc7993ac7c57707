//! A simulated host: processors, processes, devices of the real core, and modelled disks.

use std::fmt;
use std::sync::Arc;

use weir_bio::{GroupId, Nanos, Prng, SECTOR};
use weir_load::times::Row;
use weir_load::{Ground, Job, Stream};
use weir_queue::{Bell, Config, Device, Groups, Lane, QueueMode, Spread, Wake};
use weir_sim_disk::{Disk, Spec};

use crate::agenda::{Agenda, Alarm};
use crate::cpu::{Cpu, CpuTime, Step};
use crate::driver::{SharedPort, SimDriver, lock, split_name};
use crate::figures::{Commands, Figures, KindFigures, Parts, Worked, service};
use crate::lock::Lock;
use crate::process::{Process, Processes, Seat};
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
    /// Its processes, by kind. What is of one kind is named once.
    pub processes: Vec<Processes>,
    /// Weights of groups, by path; 100 for those that are not named.
    pub weights: Vec<(String, u16)>,
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
        let processes = self.processes.iter().map(|kind| kind.count).fold(0, usize::saturating_add);
        let pairs = processes.saturating_mul(self.disks);
        for (name, value, most) in [
            ("sockets * cores", cpus, CPUS_MAX),
            ("vectors", self.profile.path.vectors, CPUS_MAX),
            ("disks", self.disks, DISKS_MAX),
            ("processes", processes, PAIRS_MAX),
            ("processes * disks", pairs, PAIRS_MAX),
        ] {
            between(name, value as u64, 1, most as u64)?;
        }
        self.processes.iter().try_for_each(|kind| self.check_kind(kind))?;
        let memory = self.processes.iter().fold(0_u64, |sum, kind| {
            let each = u64::from(kind.habit.depth).saturating_mul(kind.job.buffer_bytes());
            sum.saturating_add(each.saturating_mul(kind.count as u64))
        });
        between("bytes of all I/Os under way", memory, 0, MEMORY_MAX)?;
        Ok(())
    }

    fn check_kind(&self, kind: &Processes) -> Result<(), HostError> {
        let Processes { habit, start, stagger, .. } = kind;
        between("count", kind.count as u64, 1, PAIRS_MAX as u64)?;
        between("depth", habit.depth.into(), 1, u16::MAX.into())?;
        between("batch", habit.batch.into(), 1, u16::MAX.into())?;
        between("spacing", kind.spacing, 1, 1 << 20)?;
        between("ios", kind.ios.unwrap_or(1), 1, u64::MAX)?;
        for (name, ns) in [
            ("think", habit.think),
            ("think_spread", habit.think_spread),
            ("pause", habit.pause),
            ("pause_spread", habit.pause_spread),
            ("start", *start),
            ("stagger", *stagger),
        ] {
            between(name, ns, 0, TIME_MAX)?;
        }
        let name = &kind.name;
        if self.processes.iter().filter(|other| other.name == *name).count() > 1 {
            return Err(HostError(format!("two kinds of processes are called {name:?}")));
        }
        if kind.job.flush_every > 0 && self.disks > 1 {
            let (every, disks) = (kind.job.flush_every, self.disks);
            let what = format!("flush_every={every} with disks={disks}: a flush is for one disk");
            return Err(HostError(what));
        }
        Ok(())
    }
}

/// What all I/Os under way have for memory at most, bytes.
const MEMORY_MAX: u64 = 2 << 30;

/// The longest time of a process, ns: a thousand seconds.
const TIME_MAX: u64 = 1_000_000_000_000;

fn between(name: &str, value: u64, least: u64, most: u64) -> Result<(), HostError> {
    match value {
        value if (least..=most).contains(&value) => Ok(()),
        value => Err(HostError(format!("{name}={value} is outside {least}..={most}"))),
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

/// Its one home is turned by the engine, which looks by itself.
struct NoWake;

impl Wake for NoWake {
    fn wake(&self) {}
}

pub(crate) struct DiskSide {
    disk: Disk,
    alarm: Option<Nanos>,
}

pub(crate) struct DeviceSide {
    pub(crate) device: Device,
    pub(crate) lanes_from: usize,
    pub(crate) price: SchedulerPrice,
    /// The lock of its scheduler, where that has one for all lanes, or of its single queue.
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

/// Lists that are empty between two steps, kept for their memory.
#[derive(Default)]
pub(crate) struct Spare {
    pub(crate) steps: Vec<Step>,
    pub(crate) lanes: Vec<usize>,
    pub(crate) tokens: Vec<usize>,
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
    /// Devices have one queue with one lock.
    pub(crate) is_single: bool,
    pub(crate) devices_each: usize,
    pub(crate) prng: Prng,
    groups: Arc<Groups>,
    pub(crate) spare: Spare,
    ios: u64,
    latency: u64,
    commands: Commands,
    /// Its kinds of processes: their names, and what each gets.
    kinds: Vec<(String, Parts)>,
    /// Processes that finish by themselves and have not.
    unfinished: usize,
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
        let processes: usize = spec.processes.iter().map(|kind| kind.count).sum();
        let bell = Bell::with_lanes(Box::new(NoWake), processes * spec.disks);
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
            is_single: spec.config.mode == QueueMode::Sq,
            deals: spec.config.spread == Spread::RoundRobin,
            devices_each: spec.disks,
            prng: Prng::new(spec.seed),
            spare: Spare::default(),
            profile: spec.profile.clone(),
            groups: groups(&spec)?,
            ios: 0,
            latency: 0,
            commands: Commands::default(),
            kinds: spec
                .processes
                .iter()
                .map(|kind| (kind.name.clone(), Parts::default()))
                .collect(),
            unfinished: 0,
        };
        for index in 0..spec.disks {
            host.add_disk(&spec, index)?;
        }
        for kind in 0..spec.processes.len() {
            for clone in 0..spec.processes[kind].count {
                host.add_process(&spec, kind, clone as u16)?;
            }
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
        device.attach_groups(&self.groups);
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

    fn add_process(&mut self, spec: &HostSpec, kind: usize, clone: u16) -> Result<(), HostError> {
        let alike = &spec.processes[kind];
        let index = self.processes.len();
        let cpu = index % self.cpus.len();
        let refused = |why: &dyn fmt::Display| HostError(why.to_string());
        let mut submitters = Vec::new();
        for (number, side) in self.devices.iter().enumerate() {
            let token = index * spec.disks + number;
            let queues = usize::from(spec.config.queues);
            let lane = cpu * queues / self.cpus.len();
            let submitter =
                side.device.submitter(&self.bell, token, lane).map_err(|why| refused(&why))?;
            submitters.push(submitter);
        }
        let bytes = spec.disk.size / alike.spacing / SECTOR * SECTOR;
        let ground = Ground { bytes, block: 512, read_only: false };
        let clones = alike.count as u16;
        let job = Job { depth: alike.habit.depth, seed: spec.seed, clones, ..alike.job.clone() };
        let stream = Stream::new(&job, ground, clone).map_err(|why| refused(&why))?;
        let begins_at = Nanos(alike.start + alike.stagger * u64::from(clone));
        let seat = Seat {
            cpu,
            kind,
            submitters,
            stream,
            group: self.groups.find(&alike.group).expect("it was made before"),
            begins_at,
            seed: spec.seed.wrapping_mul(0x9E37_79B9).wrapping_add(index as u64),
        };
        self.processes.push(Process::new(seat, alike));
        self.unfinished += usize::from(alike.are_finite());
        match begins_at {
            Nanos::ZERO => self.cpus[cpu].ready.push_back(index),
            at => {
                self.processes[index].asleep = true;
                self.processes[index].waits_until = Some(at);
                self.agenda.put(at, Alarm::Process(index));
            }
        }
        Ok(())
    }

    /// Brings it to rest: nothing new begins, and all that is under way ends; how many I/Os there
    /// were.
    ///
    /// # Panics
    /// If something is under way and nothing is to happen any more, or an I/O ended more than once.
    pub fn finish(mut self) -> u64 {
        self.processes.iter_mut().for_each(Process::stop);
        while self.processes.iter().any(Process::is_busy) {
            // No bound of time: how long it takes is the spec's affair, and simulated time is free.
            let alarm = self.agenda.take(Nanos(u64::MAX));
            self.hear(alarm.expect("what is under way has an alarm"));
        }
        let begun: u64 = self.processes.iter().map(|process| process.handed_in).sum();
        assert_eq!(begun, self.ios, "each I/O ends once");
        begun
    }

    /// Lets so much time pass; the figures of it.
    pub fn run(&mut self, ns: u64) -> Figures {
        let until = self.agenda.now() + ns;
        let figures = self.figures(|host| {
            while let Some(alarm) = host.agenda.take(until) {
                host.hear(alarm);
            }
        });
        debug_assert_eq!(figures.ns, ns, "the clock stops at the bound");
        figures
    }

    /// Lets time pass until the processes that finish by themselves have; the figures of it.
    ///
    /// # Errors
    /// One has not within so much time.
    pub fn run_out(&mut self, most: u64) -> Result<Figures, HostError> {
        let until = self.agenda.now() + most;
        let figures = self.figures(|host| {
            while host.unfinished > 0
                && let Some(alarm) = host.agenda.take(until)
            {
                host.hear(alarm);
            }
        });
        match self.unfinished {
            0 => Ok(figures),
            left => {
                let what = format!("{left} processes have not finished after {most} ns");
                Err(HostError(what))
            }
        }
    }

    /// The figures of the time that passes in a call.
    fn figures(&mut self, pass: impl FnOnce(&mut Host)) -> Figures {
        let begun = self.agenda.now();
        if begun == Nanos::ZERO {
            (0..self.cpus.len()).for_each(|cpu| self.call(cpu));
        }
        self.processes.iter_mut().for_each(|process| process.tally = Default::default());
        self.kinds.iter_mut().for_each(|(_, parts)| *parts = Parts::default());
        let before = (self.ios, self.latency, self.time());
        self.commands = Commands::default();
        pass(self);
        let (ios, latency, time) = before;
        let after = self.time();
        let kinds: Vec<_> = (0..self.kinds.len()).map(|kind| self.kind_figures(kind)).collect();
        let mut all = Row::default();
        kinds.iter().flat_map(|kind| &kind.parts).for_each(|(_, part)| all.add(part));
        Figures {
            ns: self.agenda.now().since(begun),
            ios: self.ios - ios,
            latency: self.latency - latency,
            cpus: self.cpus.len() as u64,
            time: CpuTime {
                user: after.user - time.user,
                system: after.system - time.system,
                spin: after.spin - time.spin,
                lost: after.lost - time.lost,
            },
            commands: self.commands,
            all,
            kinds,
        }
    }

    fn kind_figures(&self, kind: usize) -> KindFigures {
        let of_kind = self.processes.iter().filter(|process| process.kind == kind);
        let worked: Vec<Worked<'_>> = of_kind.map(Process::worked).collect();
        KindFigures {
            name: self.kinds[kind].0.clone(),
            all: service(&worked),
            parts: self.kinds[kind].1.told(),
            each: worked.iter().map(|one| service(std::slice::from_ref(one))).collect(),
        }
    }

    fn time(&self) -> CpuTime {
        let (now, spin) = (self.agenda.now(), self.locks.iter().map(|lock| lock.spun).sum());
        let each = self.cpus.iter().map(|cpu| cpu.time(now));
        each.fold(CpuTime { spin, ..CpuTime::default() }, |sum, time| CpuTime {
            user: sum.user + time.user,
            system: sum.system + time.system,
            lost: sum.lost + time.lost,
            ..sum
        })
    }

    fn hear(&mut self, alarm: Alarm) {
        match alarm {
            Alarm::Cpu { cpu, epoch } => {
                let at = &mut self.cpus[cpu];
                if at.epoch == epoch {
                    at.settle(self.agenda.now());
                    self.drive(cpu);
                }
            }
            Alarm::Disk(disk) => self.take_ends(disk),
            Alarm::Process(process) => self.rouse(process),
            Alarm::Lane(lane) => {
                let now = self.agenda.now();
                if self.lanes[lane].timer.take_if(|at| *at <= now).is_some() {
                    self.interrupt(lane);
                }
            }
        }
    }

    /// A process that sleeps until now wakes up.
    fn rouse(&mut self, index: usize) {
        let now = self.agenda.now();
        let process = &mut self.processes[index];
        if process.asleep && process.waits_until.is_some_and(|at| at <= now) {
            (process.asleep, process.waits_until) = (false, None);
            let cpu = process.cpu;
            self.cpus[cpu].ready.push_back(index);
            self.call(cpu);
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
        for job in lock(port).sent.drain(..) {
            self.commands.count(job.op);
            side.disk.start(job, now);
        }
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
        let Process { returned, tally, kind, .. } = &mut self.processes[process];
        let parts = &mut self.kinds[*kind].1;
        for one in returned.drain(..) {
            let latency = now.since(one.begun);
            self.ios += 1;
            self.latency += latency;
            tally.count(&one, latency);
            parts.count(&one, latency);
        }
        self.processes[process].back_at = now;
        self.look_for_end(process);
    }

    /// A process may have finished.
    pub(crate) fn look_for_end(&mut self, process: usize) {
        self.unfinished -= usize::from(self.processes[process].finish());
    }
}

/// The groups of a host's processes, with their weights.
fn groups(spec: &HostSpec) -> Result<Arc<Groups>, HostError> {
    let groups = Arc::new(Groups::default());
    let make = |path: &str| groups.create(path).map_err(|why| HostError(why.to_string()));
    for kind in &spec.processes {
        make(&kind.group)?;
    }
    for (path, weight) in &spec.weights {
        let group: GroupId = make(path)?;
        groups.set_weight(group, *weight).map_err(|why| HostError(why.to_string()))?;
    }
    Ok(groups)
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

/// Simulates a host until the processes that finish by themselves have; the figures of that time,
/// and how many I/Os there were in all.
///
/// # Errors
/// As [`Host::new`], and if one has not finished after `most`.
pub fn simulate_to_the_end(spec: HostSpec, most: u64) -> Result<(Figures, u64), HostError> {
    let mut host = Host::new(spec)?;
    let figures = host.run_out(most);
    let ios = host.finish();
    Ok((figures?, ios))
}
