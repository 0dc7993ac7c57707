//! Disks of pools come and go with a reload: the queue, which is the pool's, stays.
//!
//! A disk that goes is flushed first, while the pool is frozen. If that fails, or does not end in
//! time, everything is as it was. Only then are its clients ended. A disk that comes is there for
//! clients when everything else is.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use weir::units::show_size;
use weir::{Device, Limited, Target};
use weir_control::Tree;
use weir_control::config::{self, Config};
use weir_front::Export;

use super::same::{BLOCK_DEVICES, Index, Places, to_be_made};
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
        let named: BTreeSet<&str> = config.disk.iter().map(|disk| disk.name.as_str()).collect();
        let is_there = |disk: &config::Disk| {
            let pool = disk.pool.as_ref()?;
            config.pool.iter().any(|known| known.name == *pool).then_some(())?;
            self.parts.served.pool(pool)
        };
        let there = applied.there.clone();
        for disk in there.iter().filter(|disk| !named.contains(disk.name.as_str())) {
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
        let queues = self.parts.served.queues();
        let known = queues.iter().map(|known| known.config().name.clone());
        let known: BTreeSet<String> =
            known.chain(applied.there.iter().map(|disk| disk.name.clone())).collect();
        let is_new = |disk: &&config::Disk| !known.contains(&disk.name);
        let mut new = config.disk.iter().filter(is_new).peekable();
        if new.peek().is_none() {
            return;
        }
        let mut neighbours = Neighbours::of(config, &applied.there, &applied.targets);
        for disk in new {
            let Some(pool) = is_there(disk) else { continue };
            let target = &targets[&disk.name];
            lines.push(match self.add(tree, pool, (disk, target), &mut neighbours, applied) {
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
        neighbours: &mut Neighbours,
        applied: &mut Applied,
    ) -> Result<String, String> {
        let name = &disk.name;
        neighbours.check(disk, target)?;
        let made = to_be_made(name, target);
        let opened = weir::open_in_pool(pool, name, target).map_err(|error| {
            let what = error.to_string();
            String::from(what.strip_prefix(&format!("{name}: ")).unwrap_or(&what))
        })?;
        if let Some(what) = made {
            tracing::warn!("{what}");
        }
        listen(name, &opened);
        let device = opened.device;
        device.attach_groups(&self.parts.groups);
        let size = device.enlarge(0).map_err(|error| error.to_string())?;
        let grow = Limited::of(&device).reconfigure(|parts| parts.limits.grow_to(size));
        grow.map_err(|error| error.to_string())?;
        let shown = (self.parts.shown)(&device).of_target(weir::target::shown(&disk.target));
        let shown = Arc::new(shown);
        tree.add_partition(&pool.config().name, shown, self.parts.host.reactors());
        let exports = self.exports_of(&device, neighbours.exports_of(name));
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
        neighbours.add(disk, target);
        applied.there.push(disk.clone());
        applied.targets.insert(name.clone(), target.clone());
        Ok(show_size(size.bytes()))
    }

    /// The exports that the configuration states of a disk.
    fn exports_of(&self, device: &Device, stated: Vec<config::Export>) -> Vec<Export> {
        let export = |stated: config::Export| {
            let group =
                stated.group.as_deref().and_then(|path| self.parts.groups.create(path).ok());
            Export { stated, device: device.clone(), group: group.unwrap_or_default() }
        };
        stated.into_iter().map(export).collect()
    }
}

/// What new disks of one reload are held against and given, looked up once for all of them.
struct Neighbours {
    /// By disk.
    exports: BTreeMap<String, Vec<config::Export>>,
    /// The places of those that are served, by their numbers in `names`.
    places: Index,
    names: Vec<String>,
}

impl Neighbours {
    fn of(
        config: &Config,
        there: &[config::Disk],
        targets: &BTreeMap<String, Target>,
    ) -> Neighbours {
        let mut exports: BTreeMap<String, Vec<config::Export>> = BTreeMap::new();
        for export in config.exports() {
            exports.entry(export.disk.clone()).or_default().push(export);
        }
        let mut neighbours = Neighbours { exports, places: Index::default(), names: Vec::new() };
        for disk in there {
            if let Some(target) = targets.get(&disk.name) {
                neighbours.add(disk, target);
            }
        }
        neighbours
    }

    /// A disk is served from now on.
    fn add(&mut self, disk: &config::Disk, target: &Target) {
        let places = Places::of(target, Path::new(BLOCK_DEVICES));
        self.places.add(self.names.len(), &places, disk.pool.is_some());
        self.names.push(disk.name.clone());
    }

    fn exports_of(&mut self, disk: &str) -> Vec<config::Export> {
        self.exports.remove(disk).unwrap_or_default()
    }

    /// Refuses a new disk whose bytes a served disk has: one that the configuration names no
    /// longer, or with another target, which is served with the old one until the next start.
    fn check(&self, disk: &config::Disk, target: &Target) -> Result<(), String> {
        let own = Places::of(target, Path::new(BLOCK_DEVICES));
        match self.places.find(&own, false) {
            None => Ok(()),
            Some(known) => Err(format!(
                "target={:?} is that of disk {:?}, which is served until the next start",
                disk.target(),
                self.names[known]
            )),
        }
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
        let neighbours = Neighbours::of(&now, &then.disk, &targets);
        let check = |text: &str| neighbours.check(&now.disk[1], &target(text));
        let why = check("nbd://h:20001/x").expect_err("it is served");
        assert!(
            why.ends_with("is that of disk \"a\", which is served until the next start"),
            "{why}"
        );
        assert_eq!(check("nbd://h:20001/z"), Ok(()));
    }
}
