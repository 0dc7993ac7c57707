//! All figures of a daemon at one time, for those who show all of them: metrics and the live page.
//!
//! Everything is summed when it is asked for, on the thread that asks.

use std::collections::HashMap;

use serde_json::{Value, json};
use weir_bio::{Class, GroupId, SECTOR};
use weir_queue::{ClientTimes, GroupEntry, PathSeen, QueueMode, QueueUse, Stats};

use crate::clients::{Client, Memory};
use crate::tree::Tree;
use crate::tree::clients::{histogram, name_of};
use crate::tree::entry::Entry;

/// A daemon at one time.
#[derive(Clone, Debug, Default)]
pub struct Census {
    /// Disks in the order of the tree, each pool before its partitions.
    pub disks: Vec<DiskSeen>,
    /// Groups, the root first.
    pub groups: Vec<GroupEntry>,
    /// Clients of all fronts.
    pub clients: Vec<ClientSeen>,
    /// Fronts whose clients share memory, by kind.
    pub fronts: Vec<(&'static str, Memory)>,
}

/// A disk.
#[derive(Clone, Debug)]
pub struct DiskSeen {
    /// Its name.
    pub name: String,
    /// The pool that it is a partition of.
    pub pool: Option<String>,
    /// Its scheduler; a partition has its pool's.
    pub scheduler: String,
    /// `mq` or `sq`.
    pub mode: &'static str,
    /// Its size, bytes.
    pub bytes: u64,
    /// How long it has been there, ms.
    pub uptime_ms: u64,
    /// A flush has failed, and what was written before may be lost.
    pub flush_failed: bool,
    /// Its statistics.
    pub stats: Stats,
    /// Its hard queues; a partition has none of its own.
    pub queues: Vec<QueueUse>,
    /// Tags of each.
    pub tags: u16,
    /// Its paths, if it has several.
    pub paths: Vec<PathSeen>,
}

/// A client.
#[derive(Clone, Debug)]
pub struct ClientSeen {
    /// The kind of its front.
    pub front: &'static str,
    /// Its name and counters.
    pub client: Client,
    /// The path of its group; empty is the root.
    pub group: String,
    /// The times of its I/O.
    pub times: ClientTimes,
}

impl Tree {
    /// All figures, read now. Clients that go meanwhile are left out.
    #[must_use]
    pub fn census(&self) -> Census {
        let partitions = self.partitions();
        let mut disks = Vec::new();
        for entry in self.entries() {
            let here = partitions.iter().filter(|(pool, _)| pool == entry.name());
            let here: Vec<_> = here.map(|(pool, entry)| disk(entry, Some(pool))).collect();
            let mut whole = disk(&entry, None);
            if !here.is_empty() {
                // The sectors between partitions are nowhere.
                whole.bytes = here.iter().map(|partition| partition.bytes).sum();
            }
            disks.push(whole);
            disks.extend(here);
        }
        let groups = self.groups.get().map(|groups| groups.all()).unwrap_or_default();
        let fronts = self.fronts();
        let memory = fronts.iter().filter_map(|front| Some((front.kind(), front.memory()?)));
        let fronts = memory.collect();
        let clients = self.clients_seen(&groups);
        Census { disks, groups, clients, fronts }
    }

    /// Every client of every front, in groups that are among `groups`.
    fn clients_seen(&self, groups: &[GroupEntry]) -> Vec<ClientSeen> {
        let paths: HashMap<GroupId, &str> =
            groups.iter().map(|group| (group.id, group.path.as_str())).collect();
        let mut clients = Vec::new();
        for front in self.fronts() {
            for client in front.clients() {
                let Some(times) = front.times(client.number) else { continue };
                let group = paths.get(&client.group).copied().unwrap_or_default();
                let group = String::from(group);
                clients.push(ClientSeen { front: front.kind(), client, group, times });
            }
        }
        clients
    }

    /// All clients as one JSON document, with the texts of their files: what `weir top` looks at,
    /// in one request.
    pub(crate) fn clients_document(&self) -> Value {
        let groups = self.groups.get().map(|groups| groups.all()).unwrap_or_default();
        let client = |ClientSeen { front, client, group, times }: &ClientSeen| {
            json!({
                "front": front,
                "export": client.export,
                "number": client.number,
                "disk": client.disk,
                "address": client.peer,
                "group": group,
                "class": class_of(client),
                "poll": client.polling.poll.map(|poll| poll.to_string()),
                "poll_share": client.polling.poll_share,
                "hard_queue": client.hard_queue,
                "in_flight": client.in_flight,
                "ios": client.ios,
                "bytes": client.bytes,
                "latency": histogram(&times.total),
                "cap_wait": histogram(&times.held),
                "queue_ns": times.queue_ns,
                "device_ns": times.device_ns,
            })
        };
        let clients = self.clients_seen(&groups);
        let weight = |group: &GroupEntry| (group.path.clone(), Value::from(group.weight));
        json!({
            "clients": clients.iter().map(client).collect::<Vec<_>>(),
            "weights": groups.iter().map(weight).collect::<serde_json::Map<_, _>>(),
        })
    }
}

/// Its own class and level; `none` without.
fn class_of(client: &Client) -> String {
    match client.ioprio.class() {
        Class::None => String::from("none"),
        class => format!("{} {}", name_of(class), client.ioprio.level()),
    }
}

fn disk(entry: &Entry, pool: Option<&String>) -> DiskSeen {
    let disk = &entry.disk;
    DiskSeen {
        name: String::from(entry.name()),
        pool: pool.cloned(),
        scheduler: disk.scheduler(),
        mode: match disk.config().mode {
            QueueMode::Mq => "mq",
            QueueMode::Sq => "sq",
        },
        bytes: disk.limits().capacity.saturating_mul(SECTOR),
        uptime_ms: disk.uptime_ms(),
        flush_failed: disk.flush_error().is_some(),
        stats: disk.stats(),
        queues: if pool.is_some() { Vec::new() } else { disk.queue_uses() },
        tags: disk.tags().0,
        paths: disk.map().map(|map| map.paths()).unwrap_or_default(),
    }
}
