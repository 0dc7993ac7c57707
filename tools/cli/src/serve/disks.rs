//! Opens the disks of the daemon, each after those that it lies on.
//!
//! A path that cannot be opened is left out, with a warning, if every disk that lies on it can do
//! without it: a daemon that is started while a path is down serves what the others lead to. The
//! next start takes the path in again.

use std::collections::{BTreeMap, BTreeSet};

use weir::{Host, Opened, Target};
use weir_control::config::Config;

use crate::{Failure, order, reload};

/// Opens them: all that can be had, in the configuration's order.
pub(crate) fn open(config: &Config, host: &Host) -> Result<Vec<Opened>, Failure> {
    let mut targets = reload::targets(config)?;
    let mut opened: BTreeMap<usize, Opened> = BTreeMap::new();
    let mut missing: BTreeSet<String> = BTreeSet::new();
    for place in order::of_opening(config, &targets)? {
        let name = &config.disk[place].name;
        leave_out(targets.get_mut(name).expect("a disk has a target"), &missing);
        let by_name = |name: &str| {
            let mut devices = opened.values().map(|disk| &disk.device);
            devices.find(|device| device.config().name == name).cloned()
        };
        let disk = match weir::open_over(name, &targets[name], host.reactors(), by_name) {
            Ok(disk) => disk,
            Err(error) => match above_without(config, &targets, name, &missing) {
                Some(above) => {
                    tracing::warn!(
                        "{error}: disk {above} starts without this path, and takes it \
                                    in at the next start"
                    );
                    missing.insert(name.clone());
                    continue;
                }
                None => return Err(error.into()),
            },
        };
        disk.notices.iter().for_each(|notice| tracing::info!("{notice}"));
        let told = name.clone();
        disk.on_notice(move |notice| tracing::warn!("disk {told}: {notice}"));
        host.adopt(&disk.device).map_err(|e| format!("disk {name}: {e}"))?;
        opened.insert(place, disk);
    }
    Ok(opened.into_values().collect())
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
