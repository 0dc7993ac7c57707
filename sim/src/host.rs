//! A simulated host: processors, processes, devices of the real core, and modelled disks.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use weir_bio::{GroupId, Nanos, Prng, SECTOR};
use weir_load::times::Row;
use weir_load::{Ground, Job, Stream};
use weir_queue::{Bell, Device, Groups, Lane, NoWake, QueueMode, Spread};
use weir_sim_disk::Disk;

use crate::agenda::{Agenda, Alarm};
use crate::cpu::{Cpu, CpuTime, Step};
use crate::driver::{lock, split_name};
use crate::figures::{Commands, Figures, KindFigures, Parts, Worked, service};
use crate::heard::{HeardBelow, Hold};
use crate::link::Link;
use crate::lock::Lock;
use crate::midlayer::Unit;
use crate::nexus::{self, Outlet, Sent};
use crate::process::{Process, Seat};
use crate::profile::{Profile, SchedulerPrice};
use crate::spec::{HostError, HostSpec, San};
use crate::watch::Watch;

pub(crate) struct DiskSide {
    pub(crate) disk: Disk,
    pub(crate) alarm: Option<Nanos>,
}

/// Processors of one host, and the devices that its processes use.
#[derive(Debug)]
pub(crate) struct HostSide {
    pub(crate) cpus: Range<usize>,
    pub(crate) devices: Vec<usize>,
}

/// What a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layer {
    /// In front of a disk.
    Disk(usize),
    /// A path to a disk, over an adapter.
    Path { disk: usize, adapter: usize },
    /// Over paths.
    Mapped,
}

pub(crate) struct DeviceSide {
    pub(crate) device: Device,
    pub(crate) layer: Layer,
    /// It has one queue with one lock.
    pub(crate) is_single: bool,
    pub(crate) lanes_from: usize,
    /// Devices with the same scheduler have it in common.
    pub(crate) price: Arc<SchedulerPrice>,
    /// The lock of its scheduler, where that has one for all lanes, or of its single queue.
    pub(crate) right: usize,
}

pub(crate) struct LaneSide {
    pub(crate) lane: Lane,
    pub(crate) device: usize,
    /// The processor that its interrupts go to.
    pub(crate) cpu: usize,
    pub(crate) outlet: Outlet,
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
    pub(crate) holds: Vec<(usize, Hold)>,
    pub(crate) sent: Vec<Sent>,
}

/// A host under way, or several before the same disks.
pub struct Host {
    pub(crate) profile: Profile,
    pub(crate) agenda: Agenda,
    pub(crate) cpus: Vec<Cpu>,
    pub(crate) hosts: Vec<HostSide>,
    pub(crate) locks: Vec<Lock>,
    /// Lines of counters that processors change without a lock, each with who did so last.
    pub(crate) lines: Vec<Option<usize>>,
    pub(crate) links: Vec<Link>,
    /// The lock of each adapter.
    pub(crate) adapters: Vec<usize>,
    pub(crate) disks: Vec<DiskSide>,
    pub(crate) devices: Vec<DeviceSide>,
    /// What schedulers cost, by name, as far as there are devices with them.
    pub(crate) prices: BTreeMap<String, Arc<SchedulerPrice>>,
    pub(crate) lanes: Vec<LaneSide>,
    /// The logical units of all paths.
    pub(crate) units: Vec<Arc<Unit>>,
    /// The lane at each place of the bell's roster.
    pub(crate) places: Vec<usize>,
    pub(crate) processes: Vec<Process>,
    pub(crate) bell: Arc<Bell>,
    /// Requests are dealt out over queues with a lock each.
    pub(crate) deals: bool,
    /// The devices that processes use have one queue with one lock.
    pub(crate) is_single: bool,
    /// There are paths with one queue with one lock.
    pub(crate) has_single_paths: bool,
    pub(crate) heard_below: Arc<HeardBelow>,
    /// What paces are drawn by.
    pub(crate) seed: u64,
    pub(crate) prng: Prng,
    pub(crate) groups: Arc<Groups>,
    pub(crate) spare: Spare,
    /// I/Os that ended, those that failed among them.
    ended: u64,
    ios: u64,
    latency: u64,
    pub(crate) commands: Commands,
    /// Its kinds of processes: their names, and what each gets.
    kinds: Vec<(String, Parts)>,
    /// Processes that finish by themselves and have not.
    unfinished: usize,
    watch: Watch,
}

/// Where a process is among all.
#[derive(Clone, Copy)]
struct Rank {
    host: usize,
    /// Its number within its host.
    within: usize,
    kind: usize,
    clone: usize,
}

impl Host {
    /// A host at rest.
    ///
    /// # Errors
    /// A figure outside its bound.
    pub fn new(spec: HostSpec) -> Result<Host, HostError> {
        spec.check()?;
        let processes: usize = spec.processes.iter().map(|kind| kind.count).sum();
        let bell = Bell::with_lanes(Box::new(NoWake), processes * spec.hosts().len());
        let mut host = Host {
            agenda: Agenda::default(),
            cpus: Vec::new(),
            hosts: Vec::new(),
            locks: Vec::new(),
            lines: Vec::new(),
            links: Vec::new(),
            adapters: Vec::new(),
            disks: Vec::new(),
            devices: Vec::new(),
            prices: BTreeMap::new(),
            lanes: Vec::new(),
            units: Vec::new(),
            places: Vec::new(),
            processes: Vec::new(),
            bell,
            is_single: spec.config.mode == QueueMode::Sq,
            deals: spec.config.spread == Spread::RoundRobin,
            has_single_paths: false,
            heard_below: Arc::default(),
            prng: Prng::new(spec.seed),
            seed: spec.seed,
            spare: Spare::default(),
            profile: spec.profile.clone(),
            groups: groups(&spec)?,
            ended: 0,
            ios: 0,
            latency: 0,
            commands: Commands::default(),
            kinds: spec
                .processes
                .iter()
                .map(|kind| (kind.name.clone(), Parts::default()))
                .collect(),
            unfinished: 0,
            watch: Watch::default(),
        };
        host.add_hosts(&spec);
        host.add_disks(&spec)?;
        for side in 0..host.hosts.len() {
            let mut within = 0;
            for (kind, alike) in spec.processes.iter().enumerate() {
                for clone in 0..alike.count {
                    host.add_process(&spec, Rank { host: side, within, kind, clone })?;
                    within += 1;
                }
            }
        }
        Ok(host)
    }

    pub(crate) fn add_lock(&mut self) -> usize {
        self.locks.push(Lock::default());
        self.locks.len() - 1
    }

    fn add_process(&mut self, spec: &HostSpec, rank: Rank) -> Result<(), HostError> {
        let Rank { host, within, kind, clone } = rank;
        let alike = &spec.processes[kind];
        let index = self.processes.len();
        let side = &self.hosts[host];
        let place = within % side.cpus.len();
        let cpu = side.cpus.start + place;
        let clone = (host * alike.count + clone) as u16;
        let refused = |why: &dyn fmt::Display| HostError(why.to_string());
        let mut submitters = Vec::new();
        for device in &side.devices {
            let queues = usize::from(spec.config.queues);
            let lane = place * queues / side.cpus.len();
            let device = &self.devices[*device].device;
            let submitter =
                device.submitter(&self.bell, index, lane).map_err(|why| refused(&why))?;
            submitters.push(submitter);
        }
        let bytes = spec.disk.size / alike.spacing / SECTOR * SECTOR;
        let ground = Ground { bytes, block: 512, read_only: false };
        let clones = (alike.count * self.hosts.len()) as u16;
        let job = Job { depth: alike.habit.depth, seed: spec.seed, clones, ..alike.job.clone() };
        let stream = Stream::new(&job, ground, clone).map_err(|why| refused(&why))?;
        let begins_at = Nanos(alike.start + alike.stagger * u64::from(clone));
        let seat = Seat {
            host,
            cpu,
            kind,
            submitters,
            stream,
            group: self.groups.find(&alike.group).expect("it was made before"),
            begins_at,
            seed: spec.seed.wrapping_mul(0x9E37_79B9).wrapping_add(index as u64),
            may_fail: spec.san.as_ref().is_some_and(San::may_fail),
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
        assert_eq!(begun, self.ended, "each I/O ends once");
        begun
    }

    /// The logical units of its paths as the SCSI mid-layer has them: of each host, of each disk,
    /// one for each path.
    #[must_use]
    pub fn units(&self) -> &[Arc<Unit>] {
        &self.units
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
            failed: self.processes.iter().map(|process| process.tally.failed).sum(),
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
        self.watch.look(self.agenda.now());
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
            Alarm::Link(link) => self.take_from_link(link),
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
            let (lane, tag) = split_name(end.id);
            match &self.lanes[lane].outlet {
                Outlet::Nexus(nexus, _) => {
                    let bytes = nexus::lock(nexus).leaves(tag);
                    self.answer_over_link(lane, tag, bytes);
                }
                Outlet::Disk(port) => {
                    lock(port).ended.push(tag);
                    self.interrupt(lane);
                }
                Outlet::Legs => unreachable!("a mapper sends nothing to a disk"),
            }
        }
        self.set_disk_alarm(index);
    }

    /// The commands that a lane has sent begin.
    pub(crate) fn start(&mut self, lane: usize) {
        let now = self.agenda.now();
        let LaneSide { device, outlet, .. } = &self.lanes[lane];
        let port = match outlet {
            Outlet::Disk(port) => Arc::clone(port),
            Outlet::Nexus(nexus, unit) => {
                let (nexus, unit) = (Arc::clone(nexus), *unit);
                return self.send(lane, &nexus, unit);
            }
            Outlet::Legs => unreachable!("a mapper sends nothing to a disk"),
        };
        let Layer::Disk(disk) = self.devices[*device].layer else {
            unreachable!("a disk that is reached directly")
        };
        let mut sent = std::mem::take(&mut lock(&port).sent);
        for job in sent.drain(..) {
            self.commands.count(job.op);
            self.disks[disk].disk.start(job, now);
        }
        self.set_disk_alarm(disk);
        // Kept for its memory.
        lock(&port).sent = sent;
    }

    pub(crate) fn set_disk_alarm(&mut self, index: usize) {
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
        for one in &*returned {
            self.ended += 1;
            if !one.status.is_ok() {
                tally.failed += 1;
                continue;
            }
            let latency = now.since(one.begun);
            self.ios += 1;
            self.latency += latency;
            tally.count(one, latency);
            parts.count(one, latency);
        }
        returned.clear();
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
    simulate_watched(spec, warm_up, ns, Watch::default())
}

pub(crate) fn simulate_watched(
    spec: HostSpec,
    warm_up: u64,
    ns: u64,
    watch: Watch,
) -> Result<(Figures, u64), HostError> {
    let mut host = Host { watch, ..Host::new(spec)? };
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
