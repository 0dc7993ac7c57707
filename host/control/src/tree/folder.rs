//! The content of each directory.

use std::sync::Arc;

use weir_queue::{DeviceAttribute, QueueMode, QueueUse};
use weir_sched::Tunable;

use super::block::{self, diskstats};
use super::clients::{self, Connection};
use super::daemon;
use super::entry::{Attribute, Entry};
use super::groups::{self, Group};
use super::queue;
use super::{Node, Tree};
use crate::clients::{Client, Clients, Memory};
use crate::errno::{Errno, Failure};

/// A directory.
pub(crate) enum Folder {
    Root,
    Block,
    /// Disks by class, as `/sys/class` has them.
    Class,
    Disk(Arc<Entry>),
    /// `class/block`: disks and partitions side by side, as Linux has them there.
    ClassBlock,
    /// A disk of a pool, and its own files of weir's.
    Partition(Arc<Entry>),
    PartitionWeir(Arc<Entry>),
    /// `cpu<k>` and a disk in `holders` or `slaves`: nothing stands in them.
    Empty,
    /// What a disk's driver shows of itself.
    Device(Arc<Entry>),
    /// `holders` and `slaves`: disks by name.
    Names(Vec<String>),
    Dm(Arc<Entry>),
    Queue(Arc<Entry>),
    Iosched(Arc<Entry>),
    Mq(Arc<Entry>),
    HardQueue(Arc<Entry>, u16),
    Weir(Arc<Entry>),
    Modules,
    Module(bool),
    Parameters(bool),
    Proc,
    /// What the daemon tells of itself.
    Daemon,
    /// A group and what is below it.
    Group(Arc<Group>),
    Front(Arc<dyn Clients>),
    Export(Arc<dyn Clients>, String),
    Client(Arc<Connection>),
}

/// A file.
pub(crate) enum File {
    Attribute(Arc<Entry>, &'static Attribute),
    Device(Arc<Entry>, &'static DeviceAttribute),
    Tunable(Arc<Entry>, &'static Tunable),
    /// A file of `mq/<n>`: what it says.
    Told(String),
    /// A file of `mq/<n>` that counts requests.
    Requests(Arc<Entry>, u16, Requests),
    Flag(bool),
    Diskstats,
    /// How long the daemon has run, as `/proc/uptime` of Linux says it.
    Uptime,
    Daemon(&'static Attribute<Tree>),
    Group(Arc<Group>, &'static Attribute<Group>),
    Front(Memory, &'static Attribute<Memory>),
    Client(Arc<Connection>, &'static Attribute<Connection>),
}

/// The requests that a file of `mq/<n>` counts, reads and then all that goes towards the device.
pub(crate) type Requests = fn(&QueueUse) -> [u64; 2];

/// The child of a name.
pub(crate) enum Child {
    Folder(Folder),
    File(File),
}

impl Child {
    pub(crate) fn node(&self) -> Node {
        match self {
            Child::Folder(_) => Node::Directory,
            Child::File(file) => Node::File { writable: file.is_writable() },
        }
    }
}

type Children = Vec<(String, Child)>;

impl Folder {
    pub(crate) fn children(&self, tree: &Tree) -> Children {
        match self {
            Folder::Root => root(tree),
            Folder::Block => {
                let disks = tree.entries().into_iter();
                let named = |entry: Arc<Entry>| (String::from(entry.name()), Folder::Disk(entry));
                disks.map(named).map(|(name, folder)| (name, Child::Folder(folder))).collect()
            }
            Folder::Class => folders([("block", Folder::ClassBlock)]),
            Folder::ClassBlock => {
                let mut children = Folder::Block.children(tree);
                children.extend(partitions(tree.partitions().iter().map(|(_, entry)| entry)));
                children
            }
            Folder::Disk(entry) => disk(tree, entry),
            Folder::Partition(entry) => {
                let mut children = attributes(entry, block::PARTITION);
                children.extend(folders([("weir", Folder::PartitionWeir(Arc::clone(entry)))]));
                children
            }
            Folder::PartitionWeir(entry) => attributes(entry, block::PARTITION_WEIR),
            Folder::Empty => Vec::new(),
            Folder::Device(entry) => device_folder(entry),
            Folder::Queue(entry) => queue_folder(entry),
            Folder::Iosched(entry) => {
                let rows = entry.disk.tunables().iter();
                rows.map(|row| file(row.name, File::Tunable(Arc::clone(entry), row))).collect()
            }
            Folder::Mq(entry) => {
                let numbered = |index: u16| {
                    let folder = Folder::HardQueue(Arc::clone(entry), index);
                    (index.to_string(), Child::Folder(folder))
                };
                (0..entry.disk.queues()).map(numbered).collect()
            }
            Folder::HardQueue(entry, index) => hard_queue(entry, *index),
            Folder::Weir(entry) => {
                let mut children = attributes(entry, block::WEIR);
                if entry.disk.map().is_some() {
                    children.extend(attributes(entry, block::MAP));
                    children.sort_by(|(a, _), (b, _)| a.cmp(b));
                }
                children
            }
            Folder::Dm(entry) => attributes(entry, block::DM),
            Folder::Names(names) => {
                let empty = |name: &String| (name.clone(), Child::Folder(Folder::Empty));
                names.iter().map(empty).collect()
            }
            Folder::Modules => folders([
                ("dm_mod", Folder::Module(tree.parameters.dm_mod_use_blk_mq)),
                ("scsi_mod", Folder::Module(tree.parameters.scsi_mod_use_blk_mq)),
            ]),
            Folder::Module(flag) => folders([("parameters", Folder::Parameters(*flag))]),
            Folder::Parameters(flag) => vec![file("use_blk_mq", File::Flag(*flag))],
            Folder::Proc => files([("diskstats", File::Diskstats), ("uptime", File::Uptime)]),
            Folder::Daemon => {
                daemon::ATTRIBUTES.iter().map(|row| file(row.name, File::Daemon(row))).collect()
            }
            Folder::Group(group) => group_folder(tree, group),
            Folder::Front(front) => exports(front),
            Folder::Export(front, name) => clients_of(tree, front, name),
            Folder::Client(here) => {
                let file_of = |row: &'static Attribute<Connection>| {
                    file(row.name, File::Client(Arc::clone(here), row))
                };
                clients::ATTRIBUTES.iter().map(file_of).collect()
            }
        }
    }
}

fn root(tree: &Tree) -> Children {
    let mut children = folders([
        ("block", Folder::Block),
        ("class", Folder::Class),
        ("module", Folder::Modules),
        ("proc", Folder::Proc),
    ]);
    if let Some(root) = groups_of(tree).into_iter().find(Group::is_root) {
        children.extend(folders([("cgroup", Folder::Group(Arc::new(root)))]));
    }
    if tree.about().is_some() {
        children.extend(folders([("weir", Folder::Daemon)]));
    }
    children.extend(tree.fronts().into_iter().flat_map(|front| {
        let kind = front.kind();
        folders([(kind, Folder::Front(front))])
    }));
    children.sort_by(|(a, _), (b, _)| a.cmp(b));
    children
}

/// Every group as it is now.
fn groups_of(tree: &Tree) -> Vec<Group> {
    let Some(groups) = tree.groups.get() else { return Vec::new() };
    let (disks, partitions) = (tree.entries(), Arc::new(tree.partitions()));
    let group = |entry| {
        let (groups, history) = (Arc::clone(groups), Arc::clone(&tree.history));
        let (disks, partitions) = (disks.clone(), Arc::clone(&partitions));
        Group { groups, entry, disks, partitions, history }
    };
    groups.all().into_iter().map(group).collect()
}

fn group_folder(tree: &Tree, here: &Arc<Group>) -> Children {
    let rows = groups::ATTRIBUTES.iter().filter(|row| !here.is_root() || row.name == "io.stat");
    let mut children: Children =
        rows.map(|row| file(row.name, File::Group(Arc::clone(here), row))).collect();
    let below =
        groups_of(tree).into_iter().filter(|group| group.entry.parent == Some(here.entry.id));
    let mut named: Children = below
        .map(|group| {
            let name = group.entry.path.rsplit('/').next().unwrap_or_default();
            (String::from(name), Child::Folder(Folder::Group(Arc::new(group))))
        })
        .collect();
    named.sort_by(|(a, _), (b, _)| a.cmp(b));
    children.extend(named);
    children
}

/// An export's name as the name of a directory: sysfs too has `!` for what may not be in one.
fn directory_name(export: &str) -> String {
    export.replace(|c: char| c == '/' || c.is_control(), "!")
}

fn exports(front: &Arc<dyn Clients>) -> Children {
    let memory = front.memory();
    let rows = clients::FRONT.iter();
    let row = |row: &'static Attribute<Memory>| {
        memory.map(|memory| file(row.name, File::Front(memory, row)))
    };
    // Before an export of the same name, as a path is found from the front.
    let mut children: Children = rows.filter_map(row).collect();
    let folder = |name: String| {
        (directory_name(&name), Child::Folder(Folder::Export(Arc::clone(front), name)))
    };
    children.extend(front.exports().into_iter().map(folder));
    children
}

fn clients_of(tree: &Tree, front: &Arc<dyn Clients>, export: &str) -> Children {
    let here = front.clients().into_iter().filter(|client| client.export == export);
    let folder = |as_seen: Client| {
        let (clients, groups) = (Arc::clone(front), tree.groups.get().cloned());
        let name = as_seen.number.to_string();
        let client = Connection { clients, groups, as_seen };
        (name, Child::Folder(Folder::Client(Arc::new(client))))
    };
    here.map(folder).collect()
}

fn folders<const N: usize>(named: [(&str, Folder); N]) -> Children {
    named.map(|(name, folder)| (String::from(name), Child::Folder(folder))).into()
}

fn files<const N: usize>(named: [(&str, File); N]) -> Children {
    named.map(|(name, of)| file(name, of)).into()
}

fn file(name: &str, file: File) -> (String, Child) {
    (String::from(name), Child::File(file))
}

fn attributes(entry: &Arc<Entry>, table: &'static [Attribute]) -> Children {
    let row = |row: &'static Attribute| file(row.name, File::Attribute(Arc::clone(entry), row));
    table.iter().map(row).collect()
}

fn disk(tree: &Tree, entry: &Arc<Entry>) -> Children {
    let mut children = attributes(entry, block::ATTRIBUTES);
    let name = entry.name();
    let lies_here = |other: &Arc<Entry>| other.disk.legs().iter().any(|leg| leg == name);
    let holders = tree.entries().into_iter().filter(lies_here);
    let holders = holders.map(|other| String::from(other.name())).collect();
    if entry.disk.map().is_some() {
        children.extend(folders([("dm", Folder::Dm(Arc::clone(entry)))]));
    }
    children.extend(folders([
        ("holders", Folder::Names(holders)),
        ("queue", Folder::Queue(Arc::clone(entry))),
        ("slaves", Folder::Names(entry.disk.legs())),
        ("weir", Folder::Weir(Arc::clone(entry))),
    ]));
    // The legacy path has no hard queues to show.
    if entry.disk.config().mode == QueueMode::Mq {
        children.extend(folders([("mq", Folder::Mq(Arc::clone(entry)))]));
    }
    if !entry.disk.attributes().is_empty() {
        children.extend(folders([("device", Folder::Device(Arc::clone(entry)))]));
    }
    children.sort_by(|(a, _), (b, _)| a.cmp(b));
    // Behind the files: a path is found from the front, and a disk may be called like one of them.
    let all = tree.partitions();
    let here = all.iter().filter(|(pool, _)| pool == name).map(|(_, entry)| entry);
    children.extend(partitions(here));
    children
}

fn partitions<'a>(entries: impl Iterator<Item = &'a Arc<Entry>>) -> Children {
    let named = entries.map(|entry| {
        let folder = Folder::Partition(Arc::clone(entry));
        (String::from(entry.name()), Child::Folder(folder))
    });
    named.collect()
}

/// The driver's own files, and those that the queue has a say in.
fn device_folder(entry: &Arc<Entry>) -> Children {
    let mut rows = entry.disk.attributes();
    let has = |name: &str| name == block::TIMEOUT || rows.iter().any(|row| row.name == name);
    let mut children = attributes(entry, block::DEVICE);
    children.retain(|(name, _)| has(name));
    rows.retain(|row| children.iter().all(|(name, _)| name != row.name));
    let of_driver =
        |row: &'static DeviceAttribute| file(row.name, File::Device(Arc::clone(entry), row));
    children.extend(rows.into_iter().map(of_driver));
    children.sort_by(|(a, _), (b, _)| a.cmp(b));
    children
}

fn queue_folder(entry: &Arc<Entry>) -> Children {
    let mut children = attributes(entry, queue::ATTRIBUTES);
    children.retain(|(name, _)| name != queue::WBT || entry.disk.has_wbt());
    if entry.disk.scheduler() != "none" {
        children.extend(folders([("iosched", Folder::Iosched(Arc::clone(entry)))]));
        children.sort_by(|(a, _), (b, _)| a.cmp(b));
    }
    children
}

fn hard_queue(entry: &Arc<Entry>, index: u16) -> Children {
    let (depth, reserved) = entry.disk.tags();
    let slots = entry.slots_of(index);
    let told = |name: &str, text: String| file(name, File::Told(text));
    let listed: Vec<String> = slots.iter().map(usize::to_string).collect();
    let counts = |name: &str, requests: Requests| {
        file(name, File::Requests(Arc::clone(entry), index, requests))
    };
    let mut children = vec![counts("completed", |queue| queue.ended)];
    let slot = |slot: &usize| (format!("cpu{slot}"), Child::Folder(Folder::Empty));
    children.extend(slots.iter().map(slot));
    children.push(told("cpu_list", listed.join(", ")));
    children.push(counts("dispatched", QueueUse::dispatched));
    children.push(told("nr_reserved_tags", reserved.to_string()));
    children.push(told("nr_tags", depth.to_string()));
    children
}

impl File {
    pub(crate) fn is_writable(&self) -> bool {
        match self {
            File::Attribute(_, attribute) => attribute.store.is_some(),
            File::Device(_, row) => !row.accepted.is_empty(),
            File::Tunable(..) => true,
            File::Group(_, attribute) => attribute.store.is_some(),
            File::Client(_, attribute) => attribute.store.is_some(),
            File::Front(_, attribute) => attribute.store.is_some(),
            File::Told(_)
            | File::Requests(..)
            | File::Flag(_)
            | File::Diskstats
            | File::Uptime
            | File::Daemon(_) => false,
        }
    }

    pub(crate) fn show(&self, tree: &Tree) -> Result<String, Failure> {
        let mut text = match self {
            File::Attribute(entry, attribute) => (attribute.show)(entry),
            File::Device(entry, row) => match entry.disk.attribute(row.name) {
                Some(text) => text,
                None => return Err(Failure::new(Errno::NoDevice, "its driver is gone")),
            },
            File::Tunable(entry, row) => entry.disk.tunable(row.name)?,
            File::Told(text) => text.clone(),
            File::Requests(entry, index, requests) => {
                // A queue that is gone meanwhile has none.
                let uses = entry.disk.queue_uses();
                let of = uses.get(usize::from(*index)).copied().unwrap_or_default();
                let [reads, writes] = requests(&of);
                format!("{reads} {writes}")
            }
            File::Flag(flag) => String::from(if *flag { "Y" } else { "N" }),
            File::Diskstats => return Ok(diskstats(&tree.with_partitions())),
            File::Uptime => daemon::uptime(tree),
            File::Daemon(attribute) => (attribute.show)(tree),
            File::Group(group, attribute) => (attribute.show)(group),
            File::Front(memory, attribute) => (attribute.show)(memory),
            File::Client(here, attribute) => (attribute.show)(here),
        };
        // A text without a line, as the caps of a group without any, has no newline either.
        if !(text.is_empty() && matches!(self, File::Group(..))) {
            text.push('\n');
        }
        Ok(text)
    }

    /// The disk, if this is what its scheduler is written to.
    pub(crate) fn rescheduled(&self) -> Option<&str> {
        match self {
            File::Attribute(entry, row) => (row.name == "scheduler").then(|| entry.name()),
            _ => None,
        }
    }

    pub(crate) fn store(&self, text: &str) -> Result<(), Failure> {
        match self {
            File::Attribute(entry, Attribute { store: Some(store), .. }) => store(entry, text),
            File::Device(entry, row) if !row.accepted.is_empty() => {
                match entry.disk.set_attribute(row.name, text) {
                    Some(Ok(())) => Ok(()),
                    Some(Err(why)) => Failure::invalid(why),
                    None => Err(Failure::new(Errno::NoDevice, "its driver is gone")),
                }
            }
            File::Tunable(entry, row) => Ok(entry.disk.set_tunable(row.name, text)?),
            File::Group(group, Attribute { store: Some(store), .. }) => store(group, text),
            File::Client(here, Attribute { store: Some(store), .. }) => store(here, text),
            File::Attribute(..)
            | File::Device(..)
            | File::Told(_)
            | File::Requests(..)
            | File::Flag(_)
            | File::Diskstats
            | File::Uptime
            | File::Daemon(_)
            | File::Group(..)
            | File::Front(..)
            | File::Client(..) => Err(Failure::new(Errno::Access, "it is read-only")),
        }
    }
}
