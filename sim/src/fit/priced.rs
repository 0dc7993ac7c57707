//! A model from jobs that were measured on a disk: its times, and what an I/O costs the processor.
//!
//! A job's I/O takes the time of the disk and that of the thread that hands it in and takes its
//! end, and a stamp tells the two apart only where the thread sleeps meanwhile. So both are found
//! by simulating the very jobs: prices are changed until the CPU time of an I/O comes out as it was
//! measured, times until the quantiles of the latency do. Nothing of what is held back is used, nor
//! of the jobs under schedulers that are predicted.
//!
//! A shared processor is at one speed now and at another in a moment, as the other thread of its
//! core has work or has none. That is a property of the host and not of the disk: it is taken from
//! a null device, and all prices are of the mean speed.

use std::collections::BTreeMap;

use weir_load::times::Row;
use weir_load::{Access as Places, Job, Sizes, Times};
use weir_queue::Config;
use weir_sim_disk::measured::{Access, Level};
use weir_sim_disk::{Kind, Measured, Spec};

use super::{FitError, Held, LEAST, Model, Pair, Predicted, shares};
use crate::figures::Figures;
use crate::host::simulate;
use crate::process::{Habit, Processes};
use crate::profile::{
    LockPrice, Machine, PACE_NS, Paces, Path, Profile, SchedulerPrice, SharedQueue,
};
use crate::spec::HostSpec;

/// A job of random reads that was measured.
#[derive(Clone, Debug, Default)]
pub struct Ran {
    /// The scheduler it ran under.
    pub scheduler: String,
    /// I/Os under way.
    pub depth: u16,
    /// How long it was measured, ns.
    pub wall_ns: u64,
    /// CPU time of the whole process meanwhile, ns.
    pub cpu_ns: u64,
    /// Its I/Os.
    pub row: Row,
}

/// What is known of the disk and its host besides.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Bytes of the disk.
    pub size: u64,
    /// Commands that it takes at once.
    pub tags: u16,
    /// Whether it says that it turns.
    pub rotational: bool,
    /// Bytes of an I/O.
    pub block: u64,
    /// Processors of the host.
    pub cpus: usize,
    /// What schedulers add.
    pub schedulers: Vec<Added>,
    /// How fast its processors are.
    pub paces: Option<Paces>,
}

/// How fast processors are, from the times of one I/O at a time that costs nothing but work: those
/// at the middle of each eighth of the time beside their mean, so that what was priced by its mean
/// is right. `None`: there are too few to tell. What takes several times as long as most is no
/// slower work: something else has run.
#[must_use]
pub fn paces(alone: &Times) -> Option<Paces> {
    if alone.count() < LEAST as u64 {
        return None;
    }
    let stalls_from = alone.quantile_ns(0.5).saturating_mul(STALL);
    let at_work = || alone.buckets().take_while(|(ns, _)| *ns < stalls_from);
    let whole: u128 = at_work().map(|(ns, times)| u128::from(ns) * u128::from(times)).sum();
    let of_time = |sixteenths: u128| {
        let mut passed = 0;
        let is_there = |(ns, times): &(u64, u64)| {
            passed += u128::from(*ns) * u128::from(*times);
            passed * 16 >= whole * sixteenths
        };
        at_work().find(is_there).map_or(1, |(ns, _)| ns.max(1)) as f64
    };
    let times = [1, 3, 5, 7, 9, 11, 13, 15].map(of_time);
    let rate = times.iter().map(|ns| 1.0 / ns).sum::<f64>() / 8.0;
    Some(times.map(|ns| (ns * rate * 100.0).round().clamp(10.0, 10_000.0) as u16))
}

/// How many times as long as the median I/O one takes that was interrupted.
const STALL: u64 = 6;

/// What a scheduler adds to CPU time, ns.
#[derive(Clone, Debug)]
pub struct Added {
    /// Its name.
    pub name: String,
    /// To that of each I/O.
    pub each: u64,
    /// Once to that of all which are inserted together.
    pub turn: u64,
}

impl Added {
    /// By what it adds to the CPU time of an I/O with one under way and with so many, all of which
    /// go together.
    #[must_use]
    pub fn of(name: &str, depth: u16, more: [f64; 2]) -> Added {
        let [alone, deep] = more.map(|more| more.max(0.0));
        let turn = (alone - deep).max(0.0) / (1.0 - 1.0 / f64::from(depth.max(2)));
        let each = (alone - turn).max(0.0);
        Added { name: name.to_owned(), each: each as u64, turn: turn as u64 }
    }
}

/// How often the jobs are simulated; what differs shrinks to a third each time.
const ROUNDS: usize = 10;

/// I/Os that are simulated of each job.
const IOS: u64 = 20_000;

/// What an I/O costs: for itself, and for all that are handed in or have ended together.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Price {
    each: f64,
    burst: f64,
}

/// A scheduler and a depth.
type Under = (String, u16);

/// The measured jobs of one scheduler and depth, together.
#[derive(Clone, Debug, Default)]
struct AtDepth {
    ios: u64,
    wall_ns: u64,
    cpu_ns: u64,
    total: Times,
    device: Times,
}

impl AtDepth {
    fn cpu(&self) -> f64 {
        self.cpu_ns as f64 / self.ios.max(1) as f64
    }

    fn iops(&self) -> f64 {
        self.ios as f64 * 1e9 / self.wall_ns.max(1) as f64
    }

    /// Whether its thread never slept, so that no time is left for the disk to take by itself.
    fn is_at_work(&self) -> bool {
        self.cpu_ns as f64 >= self.wall_ns as f64 * AT_WORK
    }
}

/// The CPU time of a thread that never sleeps, as a share of the time that passes: the rest is for
/// what else the machine does.
const AT_WORK: f64 = 0.97;

fn by_depth<'a>(of: impl IntoIterator<Item = &'a Ran>) -> BTreeMap<Under, AtDepth> {
    let mut all: BTreeMap<Under, AtDepth> = BTreeMap::new();
    for Ran { scheduler, depth, wall_ns, cpu_ns, row } in of {
        let at = all.entry((scheduler.clone(), *depth)).or_default();
        at.ios += row.ios;
        at.wall_ns += wall_ns;
        at.cpu_ns += cpu_ns;
        at.total.add(&row.total);
        at.device.add(&row.device);
    }
    all
}

/// Fits a model to jobs, of which the second part is held back from a first fit that is compared
/// with it. The model is of both parts, and is what jobs under other schedulers or at other depths
/// are predicted by.
///
/// # Errors
/// Too few I/Os of a job, no job at all, or nothing that is held back.
pub fn fit(
    first: &[Ran],
    held: &[Ran],
    predicted: &[Ran],
    setting: &Setting,
) -> Result<Model, FitError> {
    let all = by_depth(first.iter().chain(held));
    let [first, held, predicted] = [first, held, predicted].map(by_depth);
    if first.is_empty() || held.is_empty() {
        return Err(FitError(String::from("there is no job to fit to, or none that is held back")));
    }
    for (part, of) in [("fitted to", &first), ("held back", &held), ("predicted", &predicted)] {
        if let Some(((_, depth), at)) = of.iter().find(|(_, at)| at.ios < LEAST as u64) {
            let what = format!(
                "too few I/Os: {} with a depth of {depth} in the part that is {part}, and {LEAST} \
                 are needed",
                at.ios
            );
            return Err(FitError(what));
        }
    }
    let held_back = Fitted::to(&first, setting)?.beside(&held, setting)?;
    let held_back = held_back.into_iter().map(|one| one.held).collect();
    let fitted = Fitted::to(&all, setting)?;
    let predicted = fitted.beside(&predicted, setting)?;
    let host = Some(profile(fitted.price, setting));
    let Setting { size, tags: depth, rotational, .. } = *setting;
    Ok(Model { disk: fitted.disk, size, depth, rotational, host, held_back, predicted })
}

/// Times of a disk and prices by which jobs come out as they were measured.
struct Fitted {
    disk: Measured,
    price: Price,
}

impl Fitted {
    fn to(jobs: &BTreeMap<Under, AtDepth>, setting: &Setting) -> Result<Fitted, FitError> {
        let mut price = first_price(jobs);
        let mut disk = Measured {
            of_size: setting.block,
            least_size: setting.block,
            most_size: setting.block,
            read_bandwidth: 0,
            write_bandwidth: 0,
            read_percent: [100, 100],
            access: Access::Random,
            jump: 0,
            at: jobs.iter().map(|((_, depth), at)| first_level(*depth, at)).collect(),
        };
        for _ in 0..ROUNDS {
            let simulated = simulate_all(jobs, &disk, price, setting)?;
            for ((at, ours), level) in jobs.values().zip(&simulated).zip(&mut disk.at) {
                // All of its time is the processor's: prices alone are to make it up.
                if !at.is_at_work() {
                    let [wanted, got] = [&at.total, &ours.all.total].map(shares::of_times);
                    level.read = shares::moved(&level.read, &wanted, &got);
                }
            }
            price = next_price(price, jobs, &simulated);
        }
        Ok(Fitted { disk, price })
    }

    fn beside(
        &self,
        jobs: &BTreeMap<Under, AtDepth>,
        setting: &Setting,
    ) -> Result<Vec<Predicted>, FitError> {
        let simulated = simulate_all(jobs, &self.disk, self.price, setting)?;
        let pairs = jobs.iter().zip(&simulated);
        Ok(pairs.map(|((under, theirs), ours)| side_by_side(under, theirs, ours)).collect())
    }
}

fn first_level(depth: u16, at: &AtDepth) -> Level {
    let mut read = shares::of_times(&at.device);
    if at.is_at_work() {
        read.fill(0);
    }
    Level { in_flight: u32::from(depth), read, write: Vec::new() }
}

fn side_by_side((scheduler, depth): &Under, theirs: &AtDepth, ours: &Figures) -> Predicted {
    let share = |share: f64| Pair {
        measured: theirs.total.quantile_ns(share) as f64 / 1e3,
        model: ours.all.total.quantile_ns(share) as f64 / 1e3,
    };
    let held = Held {
        in_flight: u32::from(*depth),
        op: "read",
        commands: theirs.ios,
        rate: Pair { measured: theirs.iops(), model: ours.iops() },
        p50_us: share(0.5),
        p99_us: share(0.99),
    };
    Predicted { scheduler: scheduler.clone(), held }
}

/// All that the deepest job's I/O costs is taken for its own, the rest of the others' for a burst.
fn first_price(of: &BTreeMap<Under, AtDepth>) -> Price {
    let costs: Vec<f64> = of.values().map(AtDepth::cpu).collect();
    let each = costs.last().copied().unwrap_or(0.0) * 0.8;
    Price { each, burst: (costs[0] - each).max(0.1 * each) }
}

/// The prices with which the jobs would have cost what they did, had they gone together as they
/// did in the simulation: of all prices those whose errors, each as a share of what was measured,
/// have the least sum of squares.
fn next_price(of: Price, jobs: &BTreeMap<Under, AtDepth>, simulated: &[Figures]) -> Price {
    let wanted: Vec<f64> = jobs.values().map(AtDepth::cpu).collect();
    let got: Vec<f64> = simulated.iter().map(cpu).collect();
    // How many bursts an I/O has.
    let bursts = got.iter().map(|cpu| ((cpu - of.each) / of.burst.max(1.0)).max(0.0));
    // Of a share's error, each / wanted + bursts * burst / wanted - 1, the two factors.
    let factors: Vec<(f64, f64)> =
        bursts.zip(&wanted).map(|(bursts, wanted)| (1.0 / wanted, bursts / wanted)).collect();
    let sum = |part: fn(&(f64, f64)) -> f64| factors.iter().map(part).sum::<f64>();
    let [ee, eb, bb] = [sum(|(e, _)| e * e), sum(|(e, b)| e * b), sum(|(_, b)| b * b)];
    let [e, b] = [sum(|(e, _)| *e), sum(|(_, b)| *b)];
    let apart = ee * bb - eb * eb;
    // Jobs that go together alike do not tell the two prices apart.
    if apart < 0.001 * ee * bb {
        let by = wanted.iter().sum::<f64>() / got.iter().sum::<f64>().max(1.0);
        return Price { each: of.each * by, burst: of.burst * by };
    }
    let most = wanted.iter().copied().fold(0.0, f64::max);
    let least = wanted.iter().copied().fold(most, f64::min);
    let each = ((e * bb - b * eb) / apart).max(0.05 * least);
    let burst = ((b * ee - e * eb) / apart).clamp(0.0, most);
    Price { each, burst }
}

/// The CPU time of an I/O, ns.
fn cpu(of: &Figures) -> f64 {
    (of.time.user + of.time.system) as f64 / of.ios.max(1) as f64
}

fn simulate_all(
    of: &BTreeMap<Under, AtDepth>,
    disk: &Measured,
    price: Price,
    setting: &Setting,
) -> Result<Vec<Figures>, FitError> {
    let least = if setting.paces.is_some() { STRETCHES * PACE_NS } else { 1_000_000 };
    let one = |(under, at): (&Under, &AtDepth)| {
        let ns = (IOS as f64 * at.wall_ns as f64 / at.ios as f64) as u64;
        let ran = simulate(host(under, disk, price, setting), ns / 10, ns.max(least));
        ran.map(|(figures, _)| figures).map_err(|why| FitError(why.to_string()))
    };
    of.iter().map(one).collect()
}

/// Stretches of equal speed that are simulated at least, where speeds differ.
const STRETCHES: u64 = 400;

/// A host with one job of this depth under this scheduler.
fn host((scheduler, depth): &Under, disk: &Measured, price: Price, setting: &Setting) -> HostSpec {
    let depth = *depth;
    let job = Job {
        access: Places::Random,
        sizes: [0; 3].map(|_| Sizes::Fixed(setting.block)),
        time_based: true,
        ..Job::default()
    };
    let habit = Habit { depth, batch: u32::from(depth), ..Habit::default() };
    HostSpec {
        profile: profile(price, setting),
        config: Config {
            queues: 1,
            depth: Some(setting.tags.max(depth)),
            scheduler: Some(scheduler.clone()),
            timeout_ns: 0,
            wbt_lat_us: Some(0),
            ..Config::default()
        },
        disk: Spec {
            size: setting.size,
            depth: setting.tags,
            rotational: setting.rotational,
            kind: Kind::Measured(disk.clone()),
        },
        disks: 1,
        san: None,
        processes: vec![Processes::new("job", 1, habit, job)],
        weights: Vec::new(),
        seed: 1,
    }
}

/// The prices as a profile: of a burst, half is to hand it in and half to take its end.
fn profile(Price { each, burst }: Price, setting: &Setting) -> Profile {
    let (each, half) = (each as u64, (burst / 2.0) as u64);
    let scheduler = |added: &Added| {
        let Added { each: own, turn, .. } = *added;
        let price = SchedulerPrice { lane: true, own, turn, ..SchedulerPrice::default() };
        (added.name.clone(), price)
    };
    Profile {
        machine: Machine {
            sockets: 1,
            cores: setting.cpus,
            line: 65,
            far_line: 65,
            slice: 3_000_000,
            switch: 0,
            idle_exit: 0,
            paces: setting.paces,
        },
        path: Path {
            syscall: half,
            // An I/O begins for weir bench before it is made up, so nothing comes before that.
            make: 0,
            submit: each / 2,
            issue: 0,
            doorbell: 0,
            vectors: setting.cpus,
            interrupt: half,
            end: each - each / 2,
            wake: 0,
            complete: 0,
        },
        lock: LockPrice { near: 5, lines: 4, crowd_from: 0, crowd: 0, spinners: 256 },
        shared_queue: SharedQueue {
            enter: 0,
            start: 0,
            leave: 0,
            look: 0,
            stall_every: 0,
            stall: 0,
        },
        scsi: Default::default(),
        mapper: Default::default(),
        scheduler: setting.schedulers.iter().map(scheduler).collect(),
    }
}

#[cfg(test)]
mod tests;
