//! Opens the disks of the daemon, each after those that it lies on.
//!
//! A path that cannot be opened does not keep the daemon from starting, if every disk that lies on
//! it can do without it: what the other paths lead to is served. If its driver can, the path is
//! opened on the word of another path, and is there as soon as it answers; else it is left out
//! until the next start. A warning says which. Such paths are opened side by side, because each
//! that says nothing takes the whole of its time-out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use weir::{Device, Host, Identity, Opened, Target};
use weir_control::config::{Config, Pool};

use crate::served::listen;
use crate::{Failure, order, reload};

/// Paths that are opened at a time. Their threads do nothing but wait.
const PATHS_AT_A_TIME: usize = 256;

/// A disk that is open, or why it is not.
type Outcome = Result<Opened, String>;

/// The disks of a daemon.
pub(crate) struct Disks {
    /// Those that clients see, in the configuration's order.
    pub(crate) disks: Vec<Opened>,
    /// The queues of pools.
    pub(crate) pools: Vec<Opened>,
}

/// Opens them: all that can be had, in the configuration's order.
pub(crate) fn open(config: &Config, host: &Host) -> Result<Disks, Failure> {
    let mut targets = reload::targets(config)?;
    let to_be_made: Vec<String> =
        targets.iter().filter_map(|(name, target)| reload::to_be_made(name, target)).collect();
    let mut order = order::of_opening(config, &targets)?;
    order.retain(|place| config.disk[*place].pool.is_none());
    let mut paths = open_paths(config, &targets, host.reactors());
    let mut opened: BTreeMap<usize, Opened> = BTreeMap::new();
    let mut missing: BTreeSet<String> = BTreeSet::new();
    for place in order {
        let name = &config.disk[place].name;
        leave_out(targets.get_mut(name).expect("a disk has a target"), &missing);
        let by_name = |name: &str| {
            let mut devices = opened.values().map(|disk| &disk.device);
            devices.find(|device| device.config().name == name).cloned()
        };
        let ahead = paths.remove(name);
        let open = || open_one(name, &targets[name], host.reactors(), by_name);
        let disk = match ahead.unwrap_or_else(open).and_then(|disk| adopt(host, name, disk)) {
            Ok(disk) => disk,
            Err(error) => {
                let Some(above) = above_without(config, &targets, name, &missing) else {
                    return Err(error.into());
                };
                let others = targets[&above].backing.legs();
                let is_other = |disk: &&Opened| others.contains(&disk.device.config().name);
                let ahead = paths.values().filter_map(|path| path.as_ref().ok());
                let mut alike = opened.values().chain(ahead).filter(is_other);
                let later = alike.find_map(|other| unreached(name, &targets[name], host, other));
                let Some(disk) = later else {
                    tracing::warn!(
                        "{error}: disk {above} starts without this path, and takes it in at the \
                         next start"
                    );
                    missing.insert(name.clone());
                    continue;
                };
                tracing::warn!(
                    "{error}: disk {above} starts without this path, and uses it when it answers"
                );
                disk
            }
        };
        opened.insert(place, disk);
    }
    let mut pools = Vec::new();
    for pool in &config.pool {
        let (queue, disks) = open_one_pool(pool, config, &targets, host)?;
        pools.push(queue);
        opened.extend(disks);
    }
    for disk in opened.values() {
        let (name, empty) = (&disk.device.config().name, disk.device.limits().capacity == 0);
        let identity = targets.get(name).map(|target| target.backing.identity());
        if let (true, Some(Identity::File(..) | Identity::Block(_))) = (empty, identity) {
            tracing::warn!("disk {name} has no bytes: what is below it is empty");
        }
    }
    to_be_made.iter().for_each(|what| tracing::warn!("{what}"));
    Ok(Disks { disks: opened.into_values().collect(), pools })
}

/// A pool, and its disks by their places in the configuration.
fn open_one_pool(
    pool: &Pool,
    config: &Config,
    targets: &BTreeMap<String, Target>,
    host: &Host,
) -> Result<(Opened, Vec<(usize, Opened)>), Failure> {
    let disks = config.disk.iter().enumerate();
    let disks: Vec<_> = disks.filter(|(_, disk)| disk.pool.as_ref() == Some(&pool.name)).collect();
    let named: Vec<(&str, &Target)> =
        disks.iter().map(|(_, disk)| (disk.name.as_str(), &targets[&disk.name])).collect();
    let fault = |what: String| config.fault_of_pool(&pool.name, &what).to_string();
    let opened = weir::open_pool(&pool.name, &targets[&pool.name], &named, host.reactors());
    let opened = opened.map_err(|error| {
        let what = error.to_string();
        // The place names the disk, or the pool.
        let of_disk = named.iter().find_map(|(disk, _)| {
            Some(config.fault_of_disk(disk, what.strip_prefix(&format!("{disk}: "))?))
        });
        of_disk.map(|error| error.to_string()).unwrap_or_else(|| {
            fault(String::from(what.strip_prefix(&format!("{}: ", pool.name)).unwrap_or(&what)))
        })
    })?;
    let queue = adopt(host, &pool.name, opened.pool)?;
    let parts: Vec<(usize, Opened)> =
        disks.iter().map(|(place, _)| *place).zip(opened.disks).collect();
    for (_, disk) in &parts {
        listen(&disk.device.config().name, disk);
    }
    Ok((queue, parts))
}

fn open_one(
    name: &str,
    target: &Target,
    homes: usize,
    find: impl Fn(&str) -> Option<Device>,
) -> Outcome {
    weir::open_over(name, target, homes, find).map_err(|error| error.to_string())
}

/// A path to the device of another path, to be reached later. `None`: its driver cannot do that.
fn unreached(name: &str, target: &Target, host: &Host, other: &Opened) -> Option<Opened> {
    let disk = weir::open_unreached(name, target, host.reactors(), &other.device)?;
    disk.ok().and_then(|disk| adopt(host, name, disk).ok())
}

fn adopt(host: &Host, name: &str, disk: Opened) -> Outcome {
    listen(name, &disk);
    host.adopt(&disk.device).map_err(|error| format!("disk {name}: {error}"))?;
    Ok(disk)
}

/// Opens, side by side, the disks that others can do without: as far as it may take long.
fn open_paths(
    config: &Config,
    targets: &BTreeMap<String, Target>,
    homes: usize,
) -> BTreeMap<String, Outcome> {
    let is_path = |name: &&String| {
        let in_pool = config.disk.iter().any(|disk| disk.name == **name && disk.pool.is_some());
        let lies_on_none = targets[*name].backing.legs().is_empty() && !in_pool;
        lies_on_none && above_without(config, targets, name, &BTreeSet::new()).is_some()
    };
    let names: Vec<&String> = config.disk.iter().map(|disk| &disk.name).filter(is_path).collect();
    let (left, outcomes) = (Mutex::new(names.iter()), Mutex::new(BTreeMap::new()));
    // Nothing panics under these locks, so nothing is half done.
    let next = || left.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || {
        while let Some(name) = next() {
            let outcome = open_path(name, &targets[*name], homes);
            let mut outcomes = outcomes.lock().unwrap_or_else(PoisonError::into_inner);
            outcomes.insert(String::clone(name), outcome);
        }
    };
    std::thread::scope(|scope| {
        // One path alone needs no thread.
        (1..names.len().min(PATHS_AT_A_TIME)).for_each(|_| _ = scope.spawn(work));
        work();
    });
    outcomes.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// With what its lanes would have to wait for when they are opened.
fn open_path(name: &str, target: &Target, homes: usize) -> Outcome {
    let disk = open_one(name, target, homes, |_| None)?;
    let lanes = 0..usize::from(disk.device.queues());
    let prepared = lanes.map(|lane| disk.device.prepare_lane(lane));
    prepared.collect::<Result<(), _>>().map_err(|error| format!("disk {name}: {error}"))?;
    Ok(disk)
}

/// The target without legs that are missing. One that needs them finds out when it is opened.
fn leave_out(target: &mut Target, missing: &BTreeSet<String>) {
    let is_missing = |leg: &str| missing.contains(leg);
    if target.backing.legs().iter().any(|leg| is_missing(leg))
        && let Some(without) = target.backing.without(&is_missing)
    {
        target.backing = without;
    }
}

/// A disk that lies on `leg`, if there is one, if all such can do without what is missing and
/// `leg`, and if no client is promised the leg itself.
fn above_without(
    config: &Config,
    targets: &BTreeMap<String, Target>,
    leg: &str,
    missing: &BTreeSet<String>,
) -> Option<String> {
    if config.exports().iter().any(|export| export.disk == leg) {
        return None;
    }
    let is_missing = |name: &str| name == leg || missing.contains(name);
    let above = targets.iter().filter(|(_, target)| target.backing.legs().iter().any(|l| l == leg));
    let mut first = None;
    for (name, target) in above {
        target.backing.without(&is_missing)?;
        first.get_or_insert_with(|| name.clone());
    }
    first
}
