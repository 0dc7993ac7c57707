//! The tree: disks and parameters as files, with Linux's names, units, permissions and errors
//! (docs/behaviour/block-layer.md, section 15).
//!
//! It is asked by path and answers with text: no file system, no socket and no clock. The control
//! socket and the FUSE mount are two ways in. Directories are made when they are looked at, so
//! `iosched/` is there exactly as long as a scheduler is attached.

mod block;
pub(crate) mod clients;
mod daemon;
pub(crate) mod entry;
mod folder;
mod groups;
mod history;
mod queue;

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use weir_queue::{Groups, LiveRecording};
use weir_sched::nearest;

use crate::about::About;
use crate::clients::Clients;
use crate::disk::Disk;
use crate::errno::{Errno, Failure};
use crate::number::text_of;

pub use block::{
    ATTRIBUTES as BLOCK_ATTRIBUTES, DEVICE as DEVICE_ATTRIBUTES, DM as DM_ATTRIBUTES,
    MAP as MAP_ATTRIBUTES, PARTITION as PARTITION_ATTRIBUTES,
    PARTITION_WEIR as PARTITION_WEIR_ATTRIBUTES, WEIR as WEIR_ATTRIBUTES,
};
pub use clients::{ATTRIBUTES as CLIENT_ATTRIBUTES, Connection, FRONT as FRONT_ATTRIBUTES};
pub use daemon::ATTRIBUTES as DAEMON_ATTRIBUTES;
pub use entry::Attribute;
pub use groups::{ATTRIBUTES as GROUP_ATTRIBUTES, Group};
pub use queue::ATTRIBUTES as QUEUE_ATTRIBUTES;

use entry::Entry;

use folder::{Child, Folder};
use history::History;

/// The part of one write that a store gets, bytes: a page, as in sysfs. Bytes beyond it are not
/// looked at.
pub const VALUE_MAX: usize = 4096;

/// Longest path, bytes (PATH_MAX).
pub const PATH_MAX: usize = 4096;

/// The folders of the root that are Linux's, and the daemon's own, `weir`; every other one is a
/// front's, named after its kind.
pub const FIXED: [&str; 6] = ["block", "cgroup", "class", "module", "proc", "weir"];

/// The kind of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    /// Other names.
    Directory,
    /// A value.
    File {
        /// Whether it may be written.
        writable: bool,
    },
}

impl Node {
    /// Its permissions, as of a file: 0555, 0444 or 0644.
    #[must_use]
    pub fn mode(self) -> u16 {
        match self {
            Node::Directory => 0o555,
            Node::File { writable: false } => 0o444,
            Node::File { writable: true } => 0o644,
        }
    }
}

/// The values of `module/*/parameters`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// `scsi_mod.use_blk_mq`: disks named `sd*` that state no queue mode are multi-queue.
    pub scsi_mod_use_blk_mq: bool,
    /// `dm_mod.use_blk_mq`: the same for mapped disks.
    pub dm_mod_use_blk_mq: bool,
}

impl Default for Parameters {
    /// Multi-queue, as weir's disks are by default.
    fn default() -> Parameters {
        Parameters { scsi_mod_use_blk_mq: true, dm_mod_use_blk_mq: true }
    }
}

/// Reads a daemon's rules and configuration again, and reports the outcome.
type Reload = Box<dyn Fn(&Tree) -> Result<String, Failure> + Send + Sync>;

/// What is to be said of settings that act on nothing: the disk, and a sentence.
type Remarks = Box<dyn Fn() -> Vec<(String, String)> + Send + Sync>;

/// A daemon that wants to take the place of this one.
pub struct Applicant {
    /// What it says of itself.
    pub says: Vec<u8>,
    /// The connection to it, which is the hook's from now on.
    pub stream: UnixStream,
    /// The socket that the control clients come in by.
    pub control: OwnedFd,
}

/// Talks with a daemon that wants to take the place of this one; a refusal is its answer.
type Replace = Box<dyn Fn(Applicant) -> Result<(), Failure> + Send + Sync>;

/// The tree of a daemon.
#[derive(Default)]
pub struct Tree {
    parameters: Parameters,
    disks: RwLock<Vec<Arc<Entry>>>,
    /// Each with the name of its pool.
    partitions: RwLock<Vec<(String, Arc<Entry>)>>,
    /// Disks and partitions that were ever added: a number is never used again.
    added: AtomicUsize,
    pub(crate) groups: OnceLock<Arc<Groups>>,
    pub(crate) history: Arc<History>,
    fronts: RwLock<Vec<Arc<dyn Clients>>>,
    reload: OnceLock<Reload>,
    replace: OnceLock<Replace>,
    remarks: OnceLock<Remarks>,
    about: OnceLock<About>,
}

impl Tree {
    /// A tree without disks.
    #[must_use]
    pub fn new(parameters: Parameters) -> Tree {
        Tree { parameters, ..Tree::default() }
    }

    /// Adds a disk, under the name in its configuration. `slots` is how many threads submit to it:
    /// what Linux calls CPUs in `mq/`.
    ///
    /// # Panics
    /// When a disk of that name is here already.
    pub fn add(&self, disk: Arc<dyn Disk>, slots: usize) {
        let mut disks = self.disks.write().unwrap_or_else(PoisonError::into_inner);
        let name = &disk.config().name;
        assert!(disks.iter().all(|entry| entry.name() != name), "disk {name} is in the tree");
        let number = self.added.fetch_add(1, Ordering::Relaxed);
        disks.push(Arc::new(Entry::new(disk, slots, number)));
    }

    /// Adds a partition to the disk `pool`, under the name in its configuration.
    ///
    /// # Panics
    /// When a disk or a partition of that name is here already.
    pub fn add_partition(&self, pool: &str, partition: Arc<dyn Disk>, slots: usize) {
        let mut partitions = self.partitions.write().unwrap_or_else(PoisonError::into_inner);
        let name = &partition.config().name;
        let known = partitions.iter().any(|(_, entry)| entry.name() == name);
        assert!(!known, "partition {name} is in the tree");
        let number = self.added.fetch_add(1, Ordering::Relaxed);
        partitions.push((String::from(pool), Arc::new(Entry::new(partition, slots, number))));
    }

    /// Takes the partition of this name out.
    pub fn remove_partition(&self, name: &str) {
        let mut partitions = self.partitions.write().unwrap_or_else(PoisonError::into_inner);
        partitions.retain(|(_, entry)| entry.name() != name);
    }

    /// Shows these groups under `cgroup`, with weights and caps to be written; only the first that
    /// are given count.
    pub fn show_groups(&self, groups: Arc<Groups>) {
        // Others have no meaning: a daemon has one tree of groups.
        let _ = self.groups.set(groups);
    }

    /// Shows what a daemon tells of itself under `weir`; only the first that is given counts.
    pub fn show_daemon(&self, about: About) {
        let _ = self.about.set(about);
    }

    pub(crate) fn about(&self) -> Option<&About> {
        self.about.get()
    }

    /// Shows a front's exports and clients in a folder named after its kind. The clients' groups
    /// are those of [`show_groups`](Tree::show_groups).
    ///
    /// # Panics
    /// When a front of that kind is here already, or the name is one of [`FIXED`].
    pub fn show_front(&self, front: Arc<dyn Clients>) {
        let kind = front.kind();
        let mut fronts = self.fronts.write().unwrap_or_else(PoisonError::into_inner);
        let known = FIXED.contains(&kind) || fronts.iter().any(|other| other.kind() == kind);
        assert!(!known, "{kind} is in the tree");
        fronts.push(front);
    }

    pub(crate) fn fronts(&self) -> Vec<Arc<dyn Clients>> {
        self.fronts.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The node at `path`: names with `/` between, from the root.
    ///
    /// # Errors
    /// ENOENT, or ENOTDIR where the path goes on behind a file.
    pub fn look_up(&self, path: &str) -> Result<Node, Failure> {
        self.find(path).map(|child| child.node())
    }

    /// The names in a directory, in the order they are shown.
    ///
    /// # Errors
    /// As [`look_up`](Tree::look_up), and ENOTDIR for a file.
    pub fn list(&self, path: &str) -> Result<Vec<(String, Node)>, Failure> {
        match self.find(path)? {
            Child::Folder(folder) => {
                let children = folder.children(self);
                Ok(children.into_iter().map(|(name, child)| (name, child.node())).collect())
            }
            Child::File(_) => {
                Err(Failure::new(Errno::NotDirectory, format!("{path} is a file, no directory")))
            }
        }
    }

    /// The text of a file, with the newline at its end.
    ///
    /// # Errors
    /// As [`look_up`](Tree::look_up), and EISDIR for a directory.
    pub fn read(&self, path: &str) -> Result<String, Failure> {
        match self.find(path)? {
            Child::File(file) => file.show(self).map_err(|failure| failure.at(path)),
            Child::Folder(_) => Err(is_directory(path)),
        }
    }

    /// Writes to a file, as one `write` call does. It may wait until the I/O under way on the disk
    /// has ended, so it is nothing for a thread that turns lanes. Of more than [`VALUE_MAX`] bytes
    /// the rest is not looked at.
    ///
    /// # Errors
    /// As [`look_up`](Tree::look_up); EISDIR for a directory, EACCES for a read-only file, and what
    /// the attribute says of the value (EINVAL, ERANGE, ENODEV). Then nothing has changed.
    pub fn write(&self, path: &str, value: &[u8]) -> Result<(), Failure> {
        let file = match self.find(path)? {
            Child::File(file) => file,
            Child::Folder(_) => return Err(is_directory(path)),
        };
        if !file.is_writable() {
            return Err(Failure::new(Errno::Access, format!("{path} is read-only")));
        }
        let text = text_of(&value[..value.len().min(VALUE_MAX)]);
        file.store(&text).map_err(|failure| failure.at(path))?;
        if let Some(disk) = file.rescheduled() {
            let remarks = self.remarks().into_iter().filter(|(of, _)| of == disk);
            remarks.for_each(|(_, remark)| tracing::warn!("{remark}"));
        }
        Ok(())
    }

    /// Sets what [`remarks`](Tree::remarks) asks; only the first that is given counts.
    pub fn on_remarks(&self, ask: impl Fn() -> Vec<(String, String)> + Send + Sync + 'static) {
        // A daemon looks at its settings in one way.
        let _ = self.remarks.set(Box::new(ask));
    }

    /// What is to be said of settings that act on nothing as things are: the disk or pool, and a
    /// sentence that names it. When the scheduler of a disk is changed they are logged.
    #[must_use]
    pub fn remarks(&self) -> Vec<(String, String)> {
        self.remarks.get().map_or_else(Vec::new, |ask| ask())
    }

    /// The disk of this name.
    pub(crate) fn entry(&self, disk: &str) -> Result<Arc<Entry>, Failure> {
        let entries = self.entries();
        if let Some(entry) = entries.iter().find(|entry| entry.name() == disk) {
            return Ok(Arc::clone(entry));
        }
        let names: Vec<_> = entries.iter().map(|entry| entry.name()).collect();
        let what = format!("no disk {disk:?}; there are {}", names.join(", "));
        Err(Failure::new(Errno::NotFound, what))
    }

    /// Sets the action of [`reload`](Tree::reload); only the first that is given counts.
    pub fn on_reload(
        &self,
        reload: impl Fn(&Tree) -> Result<String, Failure> + Send + Sync + 'static,
    ) {
        // A second one has no meaning: a daemon has one configuration.
        let _ = self.reload.set(Box::new(reload));
    }

    /// Reads rules and configuration again and applies what may change while disks run: a line for
    /// each thing that was changed, needs a restart or failed. It may wait for disks, as
    /// [`write`](Tree::write) does.
    ///
    /// # Errors
    /// EINVAL for what cannot be read or means nothing; then nothing has changed. EACCES where
    /// there is nothing to read again.
    pub fn reload(&self) -> Result<String, Failure> {
        match self.reload.get() {
            Some(reload) => reload(self),
            None => Err(Failure::new(Errno::Access, "there is no configuration to read again")),
        }
    }

    /// Sets the action of [`replace`](Tree::replace); only the first that is given counts.
    pub fn on_replace(
        &self,
        replace: impl Fn(Applicant) -> Result<(), Failure> + Send + Sync + 'static,
    ) {
        let _ = self.replace.set(Box::new(replace));
    }

    /// Talks with another daemon about taking the place of this one, until that is settled.
    ///
    /// # Errors
    /// The reason why it may not.
    pub fn replace(&self, applicant: Applicant) -> Result<(), Failure> {
        match self.replace.get() {
            Some(replace) => replace(applicant),
            None => Err(Failure::new(Errno::Access, "this daemon cannot be replaced")),
        }
    }

    /// Records the scheduler of a disk, by its name, until what it returns is dropped. It may wait
    /// for the disk, as [`write`](Tree::write) does.
    ///
    /// # Errors
    /// ENOENT without such a disk; EINVAL if it has no scheduler or is recorded already; EBUSY if
    /// it did not come to rest in time.
    pub fn record(&self, disk: &str) -> Result<LiveRecording, Failure> {
        Ok(self.entry(disk)?.disk.record()?)
    }

    fn find(&self, path: &str) -> Result<Child, Failure> {
        if path.len() > PATH_MAX {
            let what = format!("a path of {} bytes; the longest has {PATH_MAX}", path.len());
            return Err(Failure::new(Errno::NameTooLong, what));
        }
        let mut here = Child::Folder(Folder::Root);
        for name in path.split('/').filter(|name| !name.is_empty()) {
            let Child::Folder(folder) = here else {
                let what = format!("{path}: there is a file before {name:?}, no directory");
                return Err(Failure::new(Errno::NotDirectory, what));
            };
            let mut children = folder.children(self);
            let Some(at) = children.iter().position(|(known, _)| known == name) else {
                let names = children.iter().map(|(known, _)| known.as_str());
                let hint = self.hint(&folder, name, names);
                let what = format!("{path}: there is no {name:?}{hint}");
                return Err(Failure::new(Errno::NotFound, what));
            };
            here = children.swap_remove(at).1;
        }
        Ok(here)
    }

    /// Where what is not in a folder may be instead.
    fn hint<'a>(
        &self,
        folder: &Folder,
        name: &str,
        known: impl Iterator<Item = &'a str>,
    ) -> String {
        let partitions =
            if matches!(folder, Folder::Block) { self.partitions() } else { Vec::new() };
        if let Some((pool, _)) = partitions.iter().find(|(_, entry)| entry.name() == name) {
            return format!(": it is block/{pool}/{name}, and its queue is block/{pool}/queue");
        }
        let meant = nearest(name, known);
        meant.map(|meant| format!(" (is {meant:?} meant?)")).unwrap_or_default()
    }

    /// Partitions, each with the name of its pool.
    pub(crate) fn partitions(&self) -> Vec<(String, Arc<Entry>)> {
        self.partitions.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// All disks, each with its partitions behind it.
    fn with_partitions(&self) -> Vec<Arc<Entry>> {
        let partitions = self.partitions();
        let mut all = Vec::new();
        for disk in self.entries() {
            let here = partitions.iter().filter(|(pool, _)| pool == disk.name());
            let here: Vec<Arc<Entry>> = here.map(|(_, entry)| Arc::clone(entry)).collect();
            all.push(disk);
            all.extend(here);
        }
        all
    }

    pub(crate) fn entries(&self) -> Vec<Arc<Entry>> {
        self.disks.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn is_directory(path: &str) -> Failure {
    Failure::new(Errno::IsDirectory, format!("{path:?} is a directory"))
}
