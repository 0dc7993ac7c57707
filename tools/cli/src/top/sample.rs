//! The figures shown, as read from the tree of a daemon, and the difference of two readings.

use std::collections::HashMap;
use std::time::Instant;

use weir_control::tree::FIXED;
use weir_control::{ClientError, ControlClient, Errno, Node};
use weir_trace::iostat::{Change, EXTENDED};

use crate::Failure;
use crate::iostat::Reading;

/// A daemon at one time.
pub(super) struct Sample {
    reading: Reading,
    disks: Vec<DiskState>,
    clients: Vec<ClientState>,
}

/// How a disk is set up.
#[derive(Clone, Debug, Default)]
struct DiskState {
    name: String,
    scheduler: String,
    mode: String,
    queues: Vec<Queue>,
    listing: Vec<String>,
}

/// A hard queue and the submitter slots that feed it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Queue {
    pub(super) index: String,
    pub(super) slots: String,
    pub(super) tags: String,
}

/// A client and its counters.
#[derive(Clone, Debug, Default)]
struct ClientState {
    front: String,
    export: String,
    number: String,
    disk: String,
    address: String,
    group: String,
    class: String,
    hard_queue: String,
    in_flight: String,
    ios: u64,
    bytes: u64,
}

impl ClientState {
    /// Its folder in the tree.
    fn path(&self) -> String {
        format!("{}/{}/{}", self.front, self.export, self.number)
    }
}

impl Sample {
    /// Reads everything. Disks and clients that go away in between are left out.
    pub(super) fn take(client: &mut ControlClient) -> Result<Sample, Failure> {
        let reading = Reading::take(client)?;
        let names = reading.disks.iter().map(|(name, _)| name.clone());
        let mut disks = Vec::new();
        for name in names.collect::<Vec<_>>() {
            disks.extend(there(disk(client, name))?);
        }
        let mut clients = Vec::new();
        let root = directories(client, "")?.into_iter();
        for front in root.filter(|name| !FIXED.contains(&name.as_str())) {
            for export in there(directories(client, &front))?.unwrap_or_default() {
                let numbers = there(directories(client, &format!("{front}/{export}")))?;
                for number in numbers.unwrap_or_default() {
                    clients.extend(there(connection(client, (&front, &export), number))?);
                }
            }
        }
        Ok(Sample { reading, disks, clients })
    }

    pub(super) fn at(&self) -> Instant {
        self.reading.at
    }
}

/// An entry that is not there any more is `None`; a daemon that is gone is an error.
fn there<T>(found: Result<T, ClientError>) -> Result<Option<T>, ClientError> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(ClientError::Refused(failure))
            if matches!(failure.errno, Errno::NotFound | Errno::NoDevice) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn directories(client: &mut ControlClient, path: &str) -> Result<Vec<String>, ClientError> {
    let names = client.list(path)?.into_iter();
    Ok(names.filter(|(_, node)| *node == Node::Directory).map(|(name, _)| name).collect())
}

fn line(client: &mut ControlClient, path: &str) -> Result<String, ClientError> {
    Ok(String::from(client.read(path)?.trim()))
}

fn disk(client: &mut ControlClient, name: String) -> Result<DiskState, ClientError> {
    let listed = line(client, &format!("block/{name}/queue/scheduler"))?;
    let active = listed.split(['[', ']']).nth(1).unwrap_or("none");
    let mode = line(client, &format!("block/{name}/weir/queue_mode"))?;
    let folder = format!("block/{name}/mq");
    let mut queues = Vec::new();
    // The legacy path has one queue and no folder for it.
    for index in there(directories(client, &folder))?.unwrap_or_default() {
        let slots = line(client, &format!("{folder}/{index}/cpu_list"))?;
        let tags = line(client, &format!("{folder}/{index}/nr_tags"))?;
        queues.push(Queue { index, slots, tags });
    }
    // Mapped disks alone have one.
    let listed = there(client.read(&format!("block/{name}/weir/listing")))?.unwrap_or_default();
    let listing = listed.lines().map(String::from).collect();
    Ok(DiskState { name, scheduler: String::from(active), mode, queues, listing })
}

fn connection(
    client: &mut ControlClient,
    (front, export): (&str, &str),
    number: String,
) -> Result<ClientState, ClientError> {
    let mut file = |name: &str| line(client, &format!("{front}/{export}/{number}/{name}"));
    let class = file("class")?;
    let class = if class == "none" { class } else { format!("{class} {}", file("level")?) };
    let group = file("group")?;
    Ok(ClientState {
        front: String::from(front),
        export: String::from(export),
        disk: file("disk")?,
        address: file("address")?,
        group: if group.is_empty() { String::from("/") } else { group },
        class,
        hard_queue: file("hard_queue")?,
        in_flight: file("inflight")?,
        ios: file("ios")?.parse().unwrap_or(0),
        bytes: file("bytes")?.parse().unwrap_or(0),
        number,
    })
}

/// The difference of two samples.
#[derive(Default)]
pub(super) struct Scene {
    pub(super) disks: Vec<DiskLine>,
    pub(super) clients: Vec<ClientLine>,
}

/// A disk's line.
#[derive(Clone, Debug, Default)]
pub(super) struct DiskLine {
    pub(super) name: String,
    pub(super) scheduler: String,
    pub(super) mode: String,
    pub(super) queues: Vec<Queue>,
    /// Of a mapped disk: its groups and paths with their figures.
    pub(super) listing: Vec<String>,
    pub(super) reads: f64,
    pub(super) writes: f64,
    pub(super) kilobytes: f64,
    /// Mean time of an I/O, ms; 0 when none ended.
    pub(super) wait_ms: f64,
    pub(super) queued: f64,
    pub(super) busy_pct: f64,
}

/// A client's line.
#[derive(Clone, Debug, Default)]
pub(super) struct ClientLine {
    pub(super) name: String,
    pub(super) disk: String,
    pub(super) address: String,
    pub(super) group: String,
    pub(super) class: String,
    pub(super) hard_queue: String,
    pub(super) in_flight: String,
    pub(super) ios: f64,
    pub(super) kilobytes: f64,
}

fn column(change: &Change, name: &str) -> f64 {
    let found = EXTENDED.iter().find(|column| column.name == name);
    found.map_or(0.0, |column| column.value(change))
}

impl Scene {
    /// Between an earlier sample and a later one.
    pub(super) fn between(before: &Sample, after: &Sample) -> Scene {
        let changes = after.reading.since(&before.reading);
        let disk = |state: &DiskState| {
            let found = changes.iter().find(|(name, _)| *name == state.name);
            let of = |name| found.map_or(0.0, |(_, change)| column(change, name));
            let (reads, writes) = (of("r/s"), of("w/s"));
            let ended = reads + writes;
            let waited = reads * of("r_await") + writes * of("w_await");
            DiskLine {
                name: state.name.clone(),
                scheduler: state.scheduler.clone(),
                mode: state.mode.clone(),
                queues: state.queues.clone(),
                listing: state.listing.clone(),
                reads,
                writes,
                kilobytes: of("rkB/s") + of("wkB/s"),
                wait_ms: if ended > 0.0 { waited / ended } else { 0.0 },
                queued: of("aqu-sz"),
                busy_pct: of("%util"),
            }
        };
        let seconds = after.at().duration_since(before.at()).as_secs_f64();
        let known = before.clients.iter().map(|state| (state.path(), (state.ios, state.bytes)));
        let known: HashMap<String, (u64, u64)> = known.collect();
        let client = |state: &ClientState| {
            let name = state.path();
            // A client that came in between began at 0.
            let (ios, bytes) = known.get(&name).copied().unwrap_or_default();
            let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds.max(1e-9);
            ClientLine {
                // As in the tree, so that what is done about it is `weir set` and this name.
                name,
                disk: state.disk.clone(),
                address: state.address.clone(),
                group: state.group.clone(),
                class: state.class.clone(),
                hard_queue: state.hard_queue.clone(),
                in_flight: state.in_flight.clone(),
                ios: rate(state.ios, ios),
                kilobytes: rate(state.bytes, bytes) / 1024.0,
            }
        };
        Scene {
            disks: after.disks.iter().map(disk).collect(),
            clients: after.clients.iter().map(client).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn each_client_is_held_against_itself_and_a_new_one_against_nothing() {
        let client = |front: &str, export: &str, ios| ClientState {
            front: front.to_owned(),
            export: export.to_owned(),
            number: String::from("1"),
            ios,
            bytes: 1024 * ios,
            ..ClientState::default()
        };
        let began = Instant::now();
        let sample = |seconds, clients| {
            let at = began + Duration::from_secs(seconds);
            let reading = Reading { disks: Vec::new(), at };
            Sample { reading, disks: Vec::new(), clients }
        };
        let before = vec![client("nbd", "a", 100), client("nbd", "b", 1000), client("x", "a", 7)];
        let after = vec![client("x", "a", 9), client("nbd", "b", 1004), client("nbd", "c", 20)];
        let scene = Scene::between(&sample(0, before), &sample(2, after));
        let shown: Vec<_> =
            scene.clients.iter().map(|it| (&*it.name, it.ios, it.kilobytes)).collect();
        assert_eq!(shown, [("x/a/1", 1.0, 1.0), ("nbd/b/1", 2.0, 2.0), ("nbd/c/1", 10.0, 10.0)]);
    }
}
