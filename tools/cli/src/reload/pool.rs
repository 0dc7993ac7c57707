//! Disks of pools come and go with a reload: the queue, which is the pool's, stays.
//!
//! A disk that goes is flushed first, while the pool is frozen. If that fails, or does not end in
//! time, everything is as it was. Only then are its clients ended. A disk that comes is there for
//! clients when everything else is.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use weir::units::show_size;
use weir::{Device, Limited, Target};
use weir_control::Tree;
use weir_control::config::{self, Config};
use weir_front::Export;

use super::same::{BLOCK_DEVICES, Places};
use super::{Applied, CHANGED, FAILED, Reload};
use crate::served::listen;

impl Reload {
    /// Has the disks of pools be those of the configuration, as far as the pools are there.
    pub(super) fn follow_pools(
        &self,
        tree: &Tree,
        config: &Config,
        targets: &BTreeMap<String, Target>,
        applied: &mut Applied,
        lines: &mut Vec<String>,
    ) {
        let is_named = |disk: &config::Disk| config.disk.iter().any(|now| now.name == disk.name);
        let is_there = |disk: &config::Disk| {
            let pool = disk.pool.as_ref()?;
            config.pool.iter().any(|known| known.name == *pool).then_some(())?;
            self.parts.served.pool(pool)
        };
        let there = applied.there.clone();
        for disk in there.iter().filter(|disk| !is_named(disk)) {
            let Some(pool) = is_there(disk) else { continue };
            lines.push(match self.remove(tree, &disk.name, applied) {
                Ok(clients) => format!(
                    "{CHANGED}disk {} is gone from pool {}{clients}",
                    disk.name,
                    pool.config().name
                ),
                Err(why) => {
                    format!(
                        "{FAILED}disk {} stays in pool {}: {why}",
                        disk.name,
                        pool.config().name
                    )
                }
            });
        }
        for disk in &config.disk {
            let is_known = self.parts.served.queues().iter().any(|known| {
                known.config().name == disk.name
                    || applied.there.iter().any(|d| d.name == disk.name)
            });
            let Some(pool) = is_there(disk).filter(|_| !is_known) else { continue };
            let target = &targets[&disk.name];
            lines.push(match self.add(tree, pool, (disk, target), config, applied) {
                Ok(size) => {
                    format!(
                        "{CHANGED}disk {} is new in pool {}: {size}",
                        disk.name,
                        pool.config().name
                    )
                }
                Err(why) => {
                    format!("{FAILED}disk {} of pool {}: {why}", disk.name, pool.config().name)
                }
            });
        }
    }

    /// Closes a disk of a pool; what became of its clients.
    fn remove(&self, tree: &Tree, name: &str, applied: &mut Applied) -> Result<String, String> {
        let Some(disk) = self.parts.served.disk(name) else {
            return Err(String::from("it is not served"));
        };
        Limited::of(&disk).close().map_err(|error| error.to_string())?;
        let ended: usize = self.parts.fronts.iter().map(|front| front.remove_disk(&disk)).sum();
        self.parts.served.remove(&disk);
        tree.remove_partition(name);
        applied.there.retain(|known| known.name != name);
        applied.targets.remove(name);
        applied.disks.remove(name);
        Ok(match ended {
            0 => String::new(),
            1 => String::from(", and its client was ended"),
            many => format!(", and its {many} clients were ended"),
        })
    }

    /// Opens a disk of a pool; its size.
    fn add(
        &self,
        tree: &Tree,
        pool: &Device,
        (disk, target): (&config::Disk, &Target),
        config: &Config,
        applied: &mut Applied,
    ) -> Result<String, String> {
        let name = &disk.name;
        check_served((disk, target), &applied.there, &applied.targets)?;
        let opened = weir::open_in_pool(pool, name, target).map_err(|error| {
            let what = error.to_string();
            String::from(what.strip_prefix(&format!("{name}: ")).unwrap_or(&what))
        })?;
        listen(name, &opened);
        let device = opened.device;
        device.attach_groups(&self.parts.groups);
        let size = device.enlarge(0).map_err(|error| error.to_string())?;
        let grow = Limited::of(&device).reconfigure(|parts| parts.limits.grow_to(size));
        grow.map_err(|error| error.to_string())?;
        let shown = (self.parts.shown)(&device).of_target(weir::target::shown(&disk.target));
        let shown = Arc::new(shown);
        tree.add_partition(&pool.config().name, shown, self.parts.reactors);
        let exports = self.exports_of(&device, config);
        for (place, front) in self.parts.fronts.iter().enumerate() {
            if let Err(why) = front.add_disk(&device, &exports) {
                self.parts.fronts[..place].iter().for_each(|front| _ = front.remove_disk(&device));
                tree.remove_partition(name);
                // Clients of another front may have it for a moment.
                let closed = Limited::of(&device).close();
                return Err(closed.err().map_or(why.clone(), |error| format!("{why}; {error}")));
            }
        }
        self.parts.served.add(&device);
        applied.there.push(disk.clone());
        applied.targets.insert(name.clone(), target.clone());
        Ok(show_size(size.bytes()))
    }

    /// The exports that the configuration states of a disk.
    fn exports_of(&self, device: &Device, config: &Config) -> Vec<Export> {
        let exports = config.exports().into_iter();
        let of_disk = exports.filter(|export| export.disk == device.config().name);
        let export = |stated: config::Export| {
            let group =
                stated.group.as_deref().and_then(|path| self.parts.groups.create(path).ok());
            Export { stated, device: device.clone(), group: group.unwrap_or_default() }
        };
        of_disk.map(export).collect()
    }
}

/// Refuses a new disk whose bytes a served disk has: one that the configuration names no longer, or
/// with another target, which is served with the old one until the next start.
fn check_served(
    (disk, target): (&config::Disk, &Target),
    there: &[config::Disk],
    targets: &BTreeMap<String, Target>,
) -> Result<(), String> {
    let devices = Path::new(BLOCK_DEVICES);
    let own = Places::of(target, devices);
    let has_it = |known: &&config::Disk| {
        targets.get(&known.name).is_some_and(|of| Places::of(of, devices).overlap(&own))
    };
    match there.iter().find(has_it) {
        None => Ok(()),
        Some(known) => Err(format!(
            "target={:?} is that of disk {:?}, which is served until the next start",
            disk.target(),
            known.name
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_disk_is_refused_whose_bytes_a_served_one_has_whatever_its_target_is_now() {
        let parse = |text: &str| Config::parse(text, &["nbd"]).expect("a configuration");
        let then = parse("[[disk]]\nname = \"a\"\ntarget = \"nbd://h:20001/x\"\n");
        let target = |text: &str| Target::parse(text).expect("a target");
        let targets = BTreeMap::from([(String::from("a"), target("nbd://h:20001/x"))]);
        // By now `a` is stated with another target.
        let now = parse(
            "[[pool]]\nname = \"p\"\n[[disk]]\nname = \"a\"\ntarget = \"nbd://h:20001/y\"\n\
             [[disk]]\nname = \"b\"\npool = \"p\"\ntarget = \"nbd://h:20001/x\"\n",
        );
        let check = |text: &str| check_served((&now.disk[1], &target(text)), &then.disk, &targets);
        let why = check("nbd://h:20001/x").expect_err("it is served");
        assert!(
            why.ends_with("is that of disk \"a\", which is served until the next start"),
            "{why}"
        );
        assert_eq!(check("nbd://h:20001/z"), Ok(()));
    }
}
