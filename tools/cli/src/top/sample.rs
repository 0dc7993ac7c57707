//! The figures shown, as read from the tree of a daemon, and the difference of two readings.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Instant;

use serde_json::Value;
use weir_control::{ClientError, ControlClient, Errno, Node};
use weir_queue::{ClientTimes, Latencies, quantile_with_held};
use weir_trace::iostat::{Change, EXTENDED};

use crate::Failure;
use crate::iostat::Reading;

/// A daemon at one time.
pub(super) struct Sample {
    reading: Reading,
    disks: Vec<DiskState>,
    clients: Vec<ClientState>,
    /// Of all groups.
    weights: Weights,
    polled: Option<Polled>,
}

/// How the threads of a daemon wait: the rule, and sums over them since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Polled {
    poll: String,
    met: u64,
    us: u64,
}

/// Weights of groups, by path.
type Weights = BTreeMap<String, u64>;

/// How a disk is set up.
#[derive(Clone, Debug, Default)]
struct DiskState {
    name: String,
    scheduler: String,
    mode: String,
    queues: Vec<Queue>,
    listing: Vec<String>,
    /// The pool that it is a partition of.
    pool: Option<String>,
}

/// A hard queue and the submitter slots that feed it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Queue {
    pub(super) index: String,
    pub(super) slots: String,
    pub(super) tags: String,
    /// Requests that the driver ever ended.
    pub(super) completed: u64,
    /// And a second, between two readings.
    pub(super) rate: f64,
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
    poll: String,
    hard_queue: String,
    in_flight: String,
    ios: u64,
    bytes: u64,
    times: ClientTimes,
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
            match there(disk(client, name.clone()))? {
                Some(disk) => disks.push(disk),
                // Partitions stand behind their pool, and have no queue of their own.
                None => disks.extend(there(partition(client, name, disks.last()))?.flatten()),
            }
        }
        let (clients, weights) = clients(client)?;
        let polled = polled(client)?;
        Ok(Sample { reading, disks, clients, weights, polled })
    }

    pub(super) fn at(&self) -> Instant {
        self.reading.at
    }

    fn disk(&self, name: &str) -> Option<&DiskState> {
        self.disks.iter().find(|disk| disk.name == name)
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
        // Reads and writes; a daemon of an older version has no such file.
        let told = there(line(client, &format!("{folder}/{index}/completed")))?.unwrap_or_default();
        let completed = told.split(' ').filter_map(|count| count.parse::<u64>().ok()).sum();
        queues.push(Queue { index, slots, tags, completed, rate: 0.0 });
    }
    // Mapped disks alone have one.
    let listed = there(client.read(&format!("block/{name}/weir/listing")))?.unwrap_or_default();
    let listing = listed.lines().map(String::from).collect();
    let scheduler = String::from(active);
    Ok(DiskState { name, scheduler, mode, queues, listing, pool: None })
}

/// How the threads wait, unless they sleep as ever; a daemon of an older version does.
fn polled(client: &mut ControlClient) -> Result<Option<Polled>, ClientError> {
    let poll = there(line(client, "weir/poll"))?.unwrap_or_default();
    let told = there(client.read("weir/poll_stat"))?.unwrap_or_default();
    Ok(polled_of(&poll, &told))
}

/// The same of the daemon's rule and the lines of its threads, each of which has a rule.
fn polled_of(poll: &str, told: &str) -> Option<Polled> {
    let words = |name: &'static str| {
        told.split_whitespace().filter_map(move |word| word.strip_prefix(name))
    };
    let sum = |name| words(name).filter_map(|count| count.parse::<u64>().ok()).sum();
    let (met, us) = (sum("met="), sum("polled_us="));
    let rules: Vec<&str> = words("poll=").collect();
    // A daemon of an older version has one for all.
    let poll = match rules.iter().all(|rule| *rule == poll) {
        true if matches!(poll, "" | "off") => return None,
        true => String::from(poll),
        false => {
            let polls = rules.iter().copied().filter(|rule| *rule != "off");
            let kinds: BTreeSet<&str> = polls.clone().collect();
            let kinds = Vec::from_iter(kinds).join(", ");
            match polls.count() {
                0 => return None,
                count => format!("on {count} of {} reactors ({kinds})", rules.len()),
            }
        }
    };
    Some(Polled { poll, met, us })
}

/// The rule of polling that an export states; what it leaves out is the daemon's.
fn rule(poll: &Value, share: &Value) -> String {
    match (poll.as_str(), share.as_u64()) {
        (None, None) => String::from("-"),
        (Some(poll), None) => String::from(poll),
        (poll, Some(share)) => format!("{} {share}%", poll.unwrap_or("-")),
    }
}

/// A partition of the pool that stands before it, or behind other partitions of it.
fn partition(
    client: &mut ControlClient,
    name: String,
    before: Option<&DiskState>,
) -> Result<Option<DiskState>, ClientError> {
    let Some(before) = before else { return Ok(None) };
    let pool = before.pool.as_ref().unwrap_or(&before.name);
    client.read(&format!("block/{pool}/{name}/partition"))?;
    let (scheduler, mode) = (before.scheduler.clone(), before.mode.clone());
    let pool = Some(pool.clone());
    Ok(Some(DiskState { name, scheduler, mode, pool, ..DiskState::default() }))
}

/// The paths of a group and of all above it, the root left out.
fn lineage(group: &str) -> impl Iterator<Item = &str> {
    let group = group.trim_matches('/');
    let ends = group.match_indices('/').map(|(at, _)| at).chain([group.len()]);
    ends.filter(|end| *end > 0).map(|end| &group[..end])
}

/// A histogram as the tree tells it.
fn histogram(text: &str) -> Latencies {
    let mut words = text.split(' ');
    let sum = words.next().and_then(|word| word.strip_prefix("sum=")?.parse().ok());
    let bucket = |word: &str| {
        let (top, count) = word.split_once(':')?;
        Some((top.parse().ok()?, count.parse().ok()?))
    };
    Latencies::of_buckets(words.filter_map(bucket), sum.unwrap_or(0))
}

/// All clients, and the weights of groups by path, in one request.
fn clients(client: &mut ControlClient) -> Result<(Vec<ClientState>, Weights), Failure> {
    let told = match client.read("weir/clients") {
        Err(ClientError::Refused(why)) if why.errno == Errno::NotFound => {
            return Err(Failure::from("the daemon is of an older version: it has no weir/clients"));
        }
        told => told?,
    };
    let told: Value = serde_json::from_str(&told)
        .map_err(|error| Failure::Bad(format!("weir/clients of the daemon: {error}")))?;
    let weight = |(path, weight): (&String, &Value)| Some((path.clone(), weight.as_u64()?));
    let weights = told["weights"].as_object().into_iter().flatten().filter_map(weight).collect();
    let clients = told["clients"].as_array().into_iter().flatten().map(connection).collect();
    Ok((clients, weights))
}

fn connection(told: &Value) -> ClientState {
    let text = |name: &str| told[name].as_str().map(String::from).unwrap_or_default();
    let number = |name: &str| told[name].as_u64().unwrap_or(0);
    let times = ClientTimes {
        total: histogram(&text("latency")),
        held: histogram(&text("cap_wait")),
        queue_ns: number("queue_ns"),
        device_ns: number("device_ns"),
        errors: 0,
    };
    let group = text("group");
    ClientState {
        times,
        front: text("front"),
        export: text("export"),
        number: number("number").to_string(),
        disk: text("disk"),
        address: text("address"),
        group: if group.is_empty() { String::from("/") } else { group },
        class: text("class"),
        poll: rule(&told["poll"], &told["poll_share"]),
        hard_queue: told["hard_queue"].as_u64().map_or("all".into(), |queue| queue.to_string()),
        in_flight: number("in_flight").to_string(),
        ios: number("ios"),
        bytes: number("bytes"),
    }
}

/// The difference of two samples.
#[derive(Default)]
pub(super) struct Scene {
    pub(super) disks: Vec<DiskLine>,
    pub(super) clients: Vec<ClientLine>,
    pub(super) polling: Option<PollingLine>,
}

/// What polling costs and gains, of a daemon that does.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PollingLine {
    /// The rule.
    pub(super) poll: String,
    /// CPU time for it, percent of one CPU.
    pub(super) cpu_pct: f64,
    /// Sleeps that it saved, a second.
    pub(super) met: f64,
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
    /// The pool that it is a partition of.
    pub(super) pool: Option<String>,
}

impl DiskLine {
    pub(super) fn ios(&self) -> f64 {
        self.reads + self.writes
    }
}

/// A client's line.
#[derive(Clone, Debug, Default)]
pub(super) struct ClientLine {
    pub(super) name: String,
    pub(super) disk: String,
    pub(super) address: String,
    pub(super) group: String,
    pub(super) class: String,
    pub(super) poll: String,
    pub(super) hard_queue: String,
    pub(super) in_flight: String,
    pub(super) ios: f64,
    pub(super) kilobytes: f64,
    /// Half of its I/Os, and 99 of 100, took at most so long, ms, what caps held included; `None`
    /// if none ended.
    pub(super) p50_ms: Option<f64>,
    pub(super) p99_ms: Option<f64>,
    /// Per cent of its I/Os' time that a cap, the queue and the device held them.
    pub(super) held_pct: Option<[f64; 3]>,
    /// Per cent of the bytes that its group and that group's siblings moved on its disk, or on all
    /// disks of its pool; the root has none.
    pub(super) share_pct: Option<f64>,
    /// Per cent of their weights.
    pub(super) weight_pct: Option<f64>,
}

fn column(change: &Change, name: &str) -> f64 {
    let found = EXTENDED.iter().find(|column| column.name == name);
    found.map_or(0.0, |column| column.value(change))
}

/// The hard queues of a disk with what they did since it was in the state `before`.
fn queues_between(
    before: Option<&DiskState>,
    now: &DiskState,
    rate: impl Fn(u64, u64) -> f64,
) -> Vec<Queue> {
    let then = |index: &str| {
        let queue = before.and_then(|disk| disk.queues.iter().find(|queue| queue.index == index));
        queue.map_or(0, |queue| queue.completed)
    };
    let between =
        |queue: &Queue| Queue { rate: rate(queue.completed, then(&queue.index)), ..queue.clone() };
    now.queues.iter().map(between).collect()
}

impl Scene {
    /// Between an earlier sample and a later one.
    pub(super) fn between(before: &Sample, after: &Sample) -> Scene {
        let changes = after.reading.since(&before.reading);
        let seconds = after.at().duration_since(before.at()).as_secs_f64();
        let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds.max(1e-9);
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
                queues: queues_between(before.disk(&state.name), state, rate),
                pool: state.pool.clone(),
                listing: state.listing.clone(),
                reads,
                writes,
                kilobytes: of("rkB/s") + of("wkB/s"),
                wait_ms: if ended > 0.0 { waited / ended } else { 0.0 },
                queued: of("aqu-sz"),
                busy_pct: of("%util"),
            }
        };
        let known = before.clients.iter().map(|state| (state.path(), state));
        let known: HashMap<String, &ClientState> = known.collect();
        let none = ClientState::default();
        let moved = |state: &ClientState| {
            let before = known.get(&state.path()).map_or(0, |before| before.bytes);
            state.bytes.saturating_sub(before)
        };
        let shares = SharesByQueue::of(after, moved);
        let client = |state: &ClientState| {
            let name = state.path();
            // A client that came in between began at 0.
            let before = known.get(&name).copied().unwrap_or(&none);
            let times = TimesBetween::of(&before.times, &state.times);
            ClientLine {
                // As in the tree, so that what is done about it is `weir set` and this name.
                name,
                disk: state.disk.clone(),
                address: state.address.clone(),
                group: state.group.clone(),
                class: state.class.clone(),
                poll: state.poll.clone(),
                hard_queue: state.hard_queue.clone(),
                in_flight: state.in_flight.clone(),
                p50_ms: times.quantile_ms(500),
                p99_ms: times.quantile_ms(990),
                held_pct: times.held_pct(),
                share_pct: shares.of_client(state).moved_pct(&state.group),
                weight_pct: shares.of_client(state).weight_pct(&state.group),
                ios: rate(state.ios, before.ios),
                kilobytes: rate(state.bytes, before.bytes) / 1024.0,
            }
        };
        let polling = after.polled.as_ref().map(|now| {
            let before = before.polled.clone().unwrap_or_else(|| now.clone());
            let cpu_pct = rate(now.us, before.us) / 1e4;
            PollingLine { poll: now.poll.clone(), cpu_pct, met: rate(now.met, before.met) }
        });
        Scene {
            disks: after.disks.iter().map(disk).collect(),
            clients: after.clients.iter().map(client).collect(),
            polling,
        }
    }
}

/// The times of a client's I/O in an interval.
struct TimesBetween {
    total: Latencies,
    held: Latencies,
    queue_ns: u64,
    device_ns: u64,
}

impl TimesBetween {
    fn of(before: &ClientTimes, after: &ClientTimes) -> TimesBetween {
        TimesBetween {
            total: after.total.since(&before.total),
            held: after.held.since(&before.held),
            queue_ns: after.queue_ns.saturating_sub(before.queue_ns),
            device_ns: after.device_ns.saturating_sub(before.device_ns),
        }
    }

    fn quantile_ms(&self, per_mille: u32) -> Option<f64> {
        let any = self.total.count() > 0;
        any.then(|| quantile_with_held(&self.total, &self.held, per_mille) as f64 / 1e6)
    }

    /// By a cap, the queue and the device.
    fn held_pct(&self) -> Option<[f64; 3]> {
        let parts = [self.held.sum_ns(), self.queue_ns, self.device_ns];
        let all = parts.iter().sum::<u64>() as f64;
        (all > 0.0).then(|| parts.map(|part| 100.0 * part as f64 / all))
    }
}

/// Parts of groups on each queue: a disk's, or that of its pool. Weights act among the clients of
/// one.
struct SharesByQueue<'a> {
    /// The pool of each disk that is in one.
    pools: HashMap<&'a str, &'a str>,
    shares: BTreeMap<String, Shares>,
}

impl<'a> SharesByQueue<'a> {
    fn of(after: &'a Sample, moved: impl Fn(&ClientState) -> u64) -> SharesByQueue<'a> {
        let pool = |disk: &'a DiskState| Some((&*disk.name, disk.pool.as_deref()?));
        let pools = after.disks.iter().filter_map(pool).collect();
        let mut all = SharesByQueue { pools, shares: BTreeMap::new() };
        let mut by_queue: BTreeMap<String, Vec<(&str, u64)>> = BTreeMap::new();
        for state in &after.clients {
            by_queue.entry(all.queue(state)).or_default().push((&state.group, moved(state)));
        }
        let shares = |(queue, groups): (String, Vec<(&str, u64)>)| {
            (queue, Shares::of(&after.weights, groups.into_iter()))
        };
        all.shares = by_queue.into_iter().map(shares).collect();
        all
    }

    fn queue(&self, state: &ClientState) -> String {
        let disk = state.disk.as_str();
        String::from(self.pools.get(disk).copied().unwrap_or(disk))
    }

    fn of_client(&self, state: &ClientState) -> &Shares {
        &self.shares[&self.queue(state)]
    }
}

/// What the groups with clients of one queue have moved in an interval, and what they weigh.
struct Shares {
    weights: Weights,
    /// With the groups below.
    moved: BTreeMap<String, u64>,
}

impl Shares {
    fn of<'b>(weights: &Weights, groups: impl Iterator<Item = (&'b str, u64)>) -> Shares {
        let mut moved = BTreeMap::new();
        for (group, bytes) in groups {
            for path in lineage(group) {
                *moved.entry(String::from(path)).or_insert(0) += bytes;
            }
        }
        let mut weights = weights.clone();
        weights.retain(|path, _| moved.contains_key(path));
        Shares { weights, moved }
    }

    /// Its part of what it and its siblings have of a figure; the root has no siblings.
    fn part(of: &BTreeMap<String, u64>, group: &str) -> Option<f64> {
        let group = group.trim_matches('/');
        let above = |path: &str| path.rfind('/').map_or(0, |at| at);
        let parent = &group[..above(group)];
        let mine = *of.get(group)? as f64;
        let all = of.iter().filter(|(path, _)| path[..above(path)] == *parent);
        let all = all.map(|(_, value)| *value).sum::<u64>() as f64;
        (all > 0.0).then(|| 100.0 * mine / all)
    }

    fn moved_pct(&self, group: &str) -> Option<f64> {
        Shares::part(&self.moved, group)
    }

    fn weight_pct(&self, group: &str) -> Option<f64> {
        Shares::part(&self.weights, group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn shares_are_those_among_siblings_with_what_is_below_them() {
        let weights = [("t", 100), ("t/a", 300), ("t/b", 100), ("u", 100)];
        let weights = weights.map(|(path, weight)| (String::from(path), weight)).into();
        let groups = [("t/a", 60), ("t/b", 20), ("u", 20), ("/", 1000)];
        let shares = Shares::of(&weights, groups.into_iter());
        assert_eq!((shares.moved_pct("t/a"), shares.weight_pct("t/a")), (Some(75.0), Some(75.0)));
        assert_eq!((shares.moved_pct("u"), shares.weight_pct("u")), (Some(20.0), Some(50.0)));
        assert_eq!((shares.moved_pct("/"), shares.weight_pct("/")), (None, None));
    }

    #[test]
    fn a_share_is_that_of_all_disks_of_a_pool_and_of_no_other_disk() {
        let disk = |name: &str, pool: Option<&str>| DiskState {
            name: String::from(name),
            pool: pool.map(String::from),
            ..DiskState::default()
        };
        let client = |export: &str, disk: &str, group: &str, bytes| ClientState {
            front: String::from("nbd"),
            export: String::from(export),
            number: String::from("0"),
            disk: String::from(disk),
            group: String::from(group),
            bytes,
            ..ClientState::default()
        };
        let disks = || {
            vec![disk("p", None), disk("vm1", Some("p")), disk("vm2", Some("p")), disk("x", None)]
        };
        let weights = [("light", 100), ("heavy", 300), ("far", 600)];
        let weights: Weights = weights.map(|(path, of)| (String::from(path), of)).into();
        let began = Instant::now();
        let sample = |seconds, clients| {
            let at = began + Duration::from_secs(seconds);
            let reading = Reading { disks: Vec::new(), at };
            Sample { reading, disks: disks(), clients, weights: weights.clone(), polled: None }
        };
        let after = vec![
            client("a", "vm1", "light", 10_000),
            client("b", "vm2", "heavy", 30_000),
            client("c", "x", "far", 960_000),
            client("d", "x", "light", 40_000),
        ];
        let scene = Scene::between(&sample(0, Vec::new()), &sample(1, after));
        let shown = |place: usize| {
            let client = &scene.clients[place];
            (client.share_pct.map(f64::round), client.weight_pct.map(f64::round))
        };
        assert_eq!((shown(0), shown(1)), ((Some(25.0), Some(25.0)), (Some(75.0), Some(75.0))));
        assert_eq!((shown(2), shown(3)), ((Some(96.0), Some(86.0)), (Some(4.0), Some(14.0))));
    }

    #[test]
    fn a_histogram_of_the_tree_is_read_back_and_time_held_by_a_cap_counts() {
        let times = |total: &str, held: &str| ClientTimes {
            total: histogram(total),
            held: histogram(held),
            device_ns: 40_000_000,
            ..ClientTimes::default()
        };
        let before = times("sum=1000000 1048575:1", "sum=0");
        let after = times("sum=41000000 1048575:41", "sum=6400000000 167772159:40");
        let times = TimesBetween::of(&before, &ClientTimes { device_ns: 80_000_000, ..after });
        let p50 = times.quantile_ms(500).expect("some ended");
        assert!((160.0..190.0).contains(&p50), "{p50}");
        let [cap, queue, device] = times.held_pct().expect("some time");
        assert!(cap > 99.0 && queue == 0.0 && (0.1..1.0).contains(&device), "{cap} {device}");
    }

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
            Sample { reading, disks: Vec::new(), clients, weights: BTreeMap::new(), polled: None }
        };
        let before = vec![client("nbd", "a", 100), client("nbd", "b", 1000), client("x", "a", 7)];
        let after = vec![client("x", "a", 9), client("nbd", "b", 1004), client("nbd", "c", 20)];
        let scene = Scene::between(&sample(0, before), &sample(2, after));
        let shown: Vec<_> =
            scene.clients.iter().map(|it| (&*it.name, it.ios, it.kilobytes)).collect();
        assert_eq!(shown, [("x/a/1", 1.0, 1.0), ("nbd/b/1", 2.0, 2.0), ("nbd/c/1", 10.0, 10.0)]);
    }

    #[test]
    fn a_hard_queue_has_the_rate_of_what_it_ended_between_two_readings() {
        let queue = |index: &str, completed| Queue {
            index: String::from(index),
            completed,
            ..Queue::default()
        };
        let disk = |name: &str, queues| DiskState {
            name: String::from(name),
            queues,
            ..DiskState::default()
        };
        let began = Instant::now();
        let sample = |seconds, disks| {
            let at = began + Duration::from_secs(seconds);
            let reading = Reading { disks: Vec::new(), at };
            Sample { reading, disks, clients: Vec::new(), weights: BTreeMap::new(), polled: None }
        };
        let before = vec![disk("a", vec![queue("0", 100)]), disk("b", vec![queue("0", 7)])];
        // Of `a` one more queue; `b` is another disk of that name, and `c` came in between.
        let after = vec![
            disk("c", vec![queue("0", 8)]),
            disk("b", vec![queue("0", 3)]),
            disk("a", vec![queue("0", 104), queue("1", 20)]),
        ];
        let scene = Scene::between(&sample(0, before), &sample(2, after));
        let rates = scene.disks.iter().flat_map(|disk| disk.queues.iter().map(|queue| queue.rate));
        assert_eq!(rates.collect::<Vec<_>>(), [4.0, 0.0, 2.0, 10.0]);
    }
    #[test]
    fn threads_that_poll_are_counted_where_they_follow_another_rule_than_the_daemon() {
        let of = |poll: &str, rules: &[&str]| {
            let line = |rule: &&str| format!("0 polls=9 met=3 polled_us=5 vain_us=1 poll={rule}\n");
            polled_of(poll, &rules.iter().map(line).collect::<String>()).map(|polled| polled.poll)
        };
        assert_eq!(of("off", &["off", "off"]), None);
        assert_eq!(of("always", &["off", "off"]), None);
        assert_eq!(of("adaptive", &["adaptive", "adaptive"]).as_deref(), Some("adaptive"));
        let mixed = of("off", &["off", "always", "adaptive", "always"]);
        assert_eq!(mixed.as_deref(), Some("on 3 of 4 reactors (adaptive, always)"));
        // That of an older version.
        let told = polled_of("always", "0 polls=9 met=3 polled_us=5 vain_us=1").expect("it polls");
        assert_eq!((told.poll.as_str(), told.met, told.us), ("always", 3, 5));
        assert_eq!(polled_of("", ""), None);
    }

    #[test]
    fn the_rule_of_an_export_is_told_as_far_as_it_states_one() {
        use serde_json::json;
        for (poll, share, told) in [
            (json!(null), json!(null), "-"),
            (json!("off"), json!(null), "off"),
            (json!(null), json!(30), "- 30%"),
            (json!("adaptive"), json!(30), "adaptive 30%"),
        ] {
            assert_eq!(rule(&poll, &share), told);
        }
    }

    #[test]
    fn polling_has_its_part_of_a_cpu_and_the_sleeps_it_saved_a_second() {
        let began = Instant::now();
        let sample = |seconds, met, us| {
            let at = began + Duration::from_secs(seconds);
            let reading = Reading { disks: Vec::new(), at };
            let polled = Some(Polled { poll: String::from("adaptive"), met, us });
            let (disks, clients, weights) = (Vec::new(), Vec::new(), BTreeMap::new());
            Sample { reading, disks, clients, weights, polled }
        };
        let scene = Scene::between(&sample(0, 100, 5_000_000), &sample(2, 300, 6_500_000));
        let expected = PollingLine { poll: String::from("adaptive"), cpu_pct: 75.0, met: 100.0 };
        assert_eq!(scene.polling, Some(expected));
    }
}
