//! The mounted tree as a front of the daemon.

mod users;

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use weir_control::config::{memory_of, parse_memory};
use weir_control::{Clients, Tree};
use weir_front::{
    Export, Front, FrontKind, FrontOption, Grounds, Plan, Reloaded, Restated, Users, default_memory,
};
use weir_queue::Device;

use crate::disks::{Disks, NAME};
use crate::mount::{Mount, Others};
use crate::polling::Rules;

/// The mounted tree, with the disks in it as files.
pub const KIND: FrontKind = FrontKind {
    name: NAME,
    doc: "The tree as a folder, and in it the disks as files, by FUSE.",
    options: OPTIONS,
    fixed: "the mount of [fuse] and its memory",
    room: env!("CARGO_CRATE_NAME"),
    plan: |config| Ok(Box::new(config.section::<Fuse>(NAME)?)),
};

const OPTIONS: &[FrontOption] = &[
    FrontOption {
        name: "tree",
        values: "a folder",
        default: "nothing is mounted",
        flag: Some("--tree"),
        doc: "The folder to mount the tree at; it has to exist.",
    },
    FrontOption {
        name: "allow_other",
        values: "true, false",
        default: "false",
        flag: Some("--tree-allow-other"),
        doc: "Other users may look at that folder; the disks in it stay the daemon's user's.",
    },
    FrontOption {
        name: "memory",
        values: "a size, 64MiB or more",
        default: "a quarter of the machine's memory",
        flag: Some("--tree-memory"),
        doc: "What reads and writes of all disks as files together may hold.",
    },
];

/// `[fuse]`
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Fuse {
    tree: Option<PathBuf>,
    allow_other: bool,
    #[serde(deserialize_with = "memory_of")]
    memory: Option<u64>,
}

impl Fuse {
    /// The folder to mount at, if there is to be a mount.
    ///
    /// # Errors
    /// A sentence: an option for a mount is stated, and no folder.
    fn folder(&self) -> Result<Option<PathBuf>, String> {
        let options = [("allow_other", self.allow_other), ("memory", self.memory.is_some())];
        match (&self.tree, options.iter().find(|(_, stated)| *stated)) {
            (None, Some((option, _))) => Err(format!(
                "{option} of [fuse] is for a tree, and nothing is mounted: tree=DIR in [fuse], or \
                 --tree DIR, says where"
            )),
            (folder, _) => Ok(folder.clone()),
        }
    }
}

impl Plan for Fuse {
    fn kind(&self) -> &'static FrontKind {
        &KIND
    }

    fn set(&mut self, option: &str, values: &[String]) -> Result<(), String> {
        match option {
            "tree" => self.tree = values.last().map(PathBuf::from),
            "allow_other" => self.allow_other = true,
            "memory" => self.memory = Some(parse_memory(values.last().map_or("", String::as_str))?),
            _ => return Err(format!("{option} of [fuse] has no flag")),
        }
        Ok(())
    }

    fn start(&self, grounds: &Grounds<'_>) -> Result<Option<Arc<dyn Front>>, String> {
        let Some(folder) = self.folder()? else { return Ok(None) };
        let (host, groups) = (Arc::clone(grounds.host), Arc::clone(grounds.groups));
        let memory = self.memory.unwrap_or_else(default_memory);
        let memory = usize::try_from(memory).unwrap_or(usize::MAX / 2);
        let mut disks = Disks::new(host, grounds.disks.to_vec(), groups, memory);
        let stated = |export: &Export| export.stated.background.then(|| export.stated.disk.clone());
        *disks.background.get_mut().unwrap_or_else(PoisonError::into_inner) =
            grounds.exports.iter().filter_map(stated).collect();
        *disks.rules.get_mut().unwrap_or_else(PoisonError::into_inner) = Rules::of(grounds.exports);
        let disks = Arc::new(disks);
        let tree = Arc::clone(grounds.tree);
        let (plan, mount) = (self.clone(), Mutex::default());
        Ok(Some(Arc::new(FuseFront { plan, folder, tree, disks, mount })))
    }
}

/// A tree that is mounted, or about to be.
struct FuseFront {
    plan: Fuse,
    folder: PathBuf,
    tree: Arc<Tree>,
    disks: Arc<Disks>,
    mount: Mutex<Option<Mount>>,
}

impl FuseFront {
    fn mount(&self) -> MutexGuard<'_, Option<Mount>> {
        self.mount.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Front for FuseFront {
    fn kind(&self) -> &'static FrontKind {
        &KIND
    }

    fn clients(&self) -> Arc<dyn Clients> {
        Arc::clone(&self.disks) as Arc<dyn Clients>
    }

    /// A supervisor passes no mount.
    fn open(&self, _: Vec<OwnedFd>) -> Result<(), String> {
        let (tree, disks) = (Arc::clone(&self.tree), Arc::clone(&self.disks));
        let others = if self.plan.allow_other { Others::MayLook } else { Others::Out };
        let mount = Mount::open(&self.folder, tree, disks, others);
        *self.mount() = Some(mount.map_err(|error| error.to_string())?);
        Ok(())
    }

    /// Its files are of disks, not of exports, whose polling their own front tells of.
    fn reload(&self, now: &Restated<'_>) -> Reloaded {
        self.disks.restate(now.exports);
        Reloaded::of_fixed(&self.plan, now.plan)
    }

    fn add_disk(&self, disk: &Device, exports: &[Export]) -> Result<(), String> {
        self.disks.add(disk, exports);
        Ok(())
    }

    fn remove_disk(&self, disk: &Device) -> usize {
        self.disks.remove(disk)
    }

    fn adopt(&self, _: OwnedFd, name: &str) -> Result<Box<dyn FnOnce() + Send>, String> {
        Err(format!("{name}: a mounted tree serves no connection"))
    }

    fn introduce(&self) -> String {
        let mount = self.mount();
        let line = |mount: &Mount| format!("tree:\n  {}\n", mount.folder().display());
        mount.as_ref().map(line).unwrap_or_default()
    }

    fn places(&self) -> Vec<String> {
        let mount = self.mount();
        mount.iter().map(|mount| mount.folder().display().to_string()).collect()
    }

    fn example(&self, _: &Device) -> Option<String> {
        None
    }

    /// I/O on a file fails when the daemon has gone.
    fn users(&self, disk: &str) -> Users {
        match &*self.mount() {
            Some(mount) => users::of(disk, mount.folder(), &self.disks.open_disks()),
            None => Users::default(),
        }
    }

    /// Unmounts, also under a process that has a file open.
    fn stop(&self, _: Duration) -> Vec<String> {
        drop(self.mount().take());
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_a_mount_are_refused_where_nothing_is_mounted() {
        let folder = |plan: Fuse| plan.folder();
        let (tree, none) = (Some(PathBuf::from("a")), Fuse::default);
        assert_eq!(folder(none()), Ok(None));
        let memory = Some(1 << 30);
        assert_eq!(folder(Fuse { tree: tree.clone(), memory, allow_other: true }), Ok(tree));
        let allowed = Fuse { allow_other: true, ..none() };
        for (option, plan) in [("memory", Fuse { memory, ..none() }), ("allow_other", allowed)] {
            let why = folder(plan).expect_err(option);
            assert!(why.starts_with(&format!("{option} of [fuse]")), "{why}");
        }
    }
}
