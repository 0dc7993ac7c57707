//! The difference of two readings, as the page shows it: rates, latencies, shares.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Value, json};
use weir_control::{Census, ClientSeen, DiskSeen};
use weir_queue::{TICK_NS, quantile_with_held};

/// Disks and clients of one event: those with the most I/Os. The others are counted.
const DISKS: usize = 100;
const CLIENTS: usize = 100;

/// The event of the time between two readings.
pub(super) fn between(before: &Census, after: &Census, seconds: f64) -> Value {
    let seconds = seconds.max(1e-3);
    let known: HashMap<&str, &DiskSeen> =
        before.disks.iter().map(|disk| (disk.name.as_str(), disk)).collect();
    let mut disks: Vec<Value> = after
        .disks
        .iter()
        .map(|now| disk(known.get(now.name.as_str()).copied(), now, seconds))
        .collect();
    // Whole disks by how busy they are; partitions follow their pool on the page.
    disks.sort_by(|a, b| number(b, "busy_pct").total_cmp(&number(a, "busy_pct")));
    let known: HashMap<(&str, u64), &ClientSeen> =
        before.clients.iter().map(|seen| ((seen.front, seen.client.number), seen)).collect();
    let of = |seen: &ClientSeen| known.get(&(seen.front, seen.client.number)).copied();
    let pools: HashMap<&str, &str> = after
        .disks
        .iter()
        .filter_map(|disk| Some((disk.name.as_str(), disk.pool.as_deref()?)))
        .collect();
    // Weights act among the clients of one queue: a disk's, or that of its pool.
    let queue = |seen: &ClientSeen| {
        let disk = seen.client.disk.as_str();
        String::from(pools.get(disk).copied().unwrap_or(disk))
    };
    let mut by_queue: BTreeMap<String, Vec<&ClientSeen>> = BTreeMap::new();
    for seen in &after.clients {
        by_queue.entry(queue(seen)).or_default().push(seen);
    }
    let shares: BTreeMap<String, Shares<'_>> = by_queue
        .into_iter()
        .map(|(queue, clients)| (queue, Shares::of(after, &clients, of)))
        .collect();
    let mut clients: Vec<Value> = after
        .clients
        .iter()
        .map(|now| client(of(now), now, seconds, &shares[&queue(now)]))
        .collect();
    clients.sort_by(|a, b| number(b, "iops").total_cmp(&number(a, "iops")));
    let (all_disks, all_clients) = (disks.len(), clients.len());
    disks.truncate(DISKS);
    clients.truncate(CLIENTS);
    json!({
        "seconds": seconds,
        "disks": disks,
        "disks_count": all_disks,
        "clients": clients,
        "clients_count": all_clients,
    })
}

fn number(of: &Value, name: &str) -> f64 {
    of[name].as_f64().unwrap_or(0.0)
}

fn disk(before: Option<&DiskSeen>, now: &DiskSeen, seconds: f64) -> Value {
    let grown = |of: fn(&DiskSeen) -> u64| {
        // A disk that came in between began at 0.
        of(now).saturating_sub(before.map_or(0, of)) as f64
    };
    let reads = grown(|disk| disk.stats.directions[0].ios);
    let writes = grown(|disk| disk.stats.directions[1].ios);
    let sectors = grown(|disk| disk.stats.directions.iter().map(|of| of.sectors).sum());
    let (ns, ios) = (
        grown(|disk| disk.stats.directions.iter().map(|of| of.ns).sum()),
        grown(|disk| disk.stats.directions.iter().map(|of| of.ios).sum()),
    );
    let busy_ns = grown(|disk| disk.stats.busy_ticks) * TICK_NS as f64;
    json!({
        "name": now.name,
        "pool": now.pool,
        "scheduler": now.scheduler,
        "mode": now.mode,
        "bytes": now.bytes,
        "reads": reads / seconds,
        "writes": writes / seconds,
        "bytes_per_s": sectors * 512.0 / seconds,
        "wait_ms": if ios > 0.0 { Some(ns / ios / 1e6) } else { None },
        "in_flight": now.stats.in_flight,
        "busy_pct": (busy_ns / seconds / 1e7).min(100.0),
        "errors": now.stats.errors,
        "flush_failed": now.flush_failed,
        "paths_down": now.paths.iter().filter(|path| !path.is_valid).count(),
    })
}

fn client(
    before: Option<&ClientSeen>,
    now: &ClientSeen,
    seconds: f64,
    shares: &Shares<'_>,
) -> Value {
    let rate = |now: u64, then: Option<u64>| now.saturating_sub(then.unwrap_or(0)) as f64 / seconds;
    let times = before.map(|before| &before.times);
    let total =
        times.map_or_else(|| now.times.total.clone(), |of| now.times.total.since(&of.total));
    let held = times.map_or_else(|| now.times.held.clone(), |of| now.times.held.since(&of.held));
    let quantile = |per_mille| {
        (total.count() > 0).then(|| quantile_with_held(&total, &held, per_mille) as f64 / 1e6)
    };
    let parts = [
        held.sum_ns(),
        now.times.queue_ns.saturating_sub(times.map_or(0, |of| of.queue_ns)),
        now.times.device_ns.saturating_sub(times.map_or(0, |of| of.device_ns)),
    ];
    let all = parts.iter().sum::<u64>() as f64;
    let held_pct = (all > 0.0).then(|| parts.map(|part| 100.0 * part as f64 / all));
    json!({
        "name": format!("{}/{}/{}", now.front, now.client.export, now.client.number),
        "disk": now.client.disk,
        "address": now.client.peer,
        "group": if now.group.is_empty() { "/" } else { &now.group },
        "iops": rate(now.client.ios, before.map(|of| of.client.ios)),
        "bytes_per_s": rate(now.client.bytes, before.map(|of| of.client.bytes)),
        "in_flight": now.client.in_flight,
        "p50_ms": quantile(500),
        "p99_ms": quantile(990),
        "held_pct": held_pct,
        "share_pct": shares.moved_pct(&now.group),
        "weight_pct": shares.weight_pct(&now.group),
    })
}

/// Parts of groups among their siblings with clients of the same queue: of the bytes moved, and of
/// the weights.
struct Shares<'a> {
    moved: BTreeMap<&'a str, u64>,
    weights: BTreeMap<&'a str, u64>,
}

/// The paths of a group and of all above it, the root left out.
fn lineage(group: &str) -> impl Iterator<Item = &str> {
    let ends = group.match_indices('/').map(|(at, _)| at).chain([group.len()]);
    ends.filter(|end| *end > 0).map(|end| &group[..end])
}

fn parent(path: &str) -> &str {
    &path[..path.rfind('/').unwrap_or(0)]
}

impl<'a> Shares<'a> {
    fn of<'b>(
        after: &'a Census,
        clients: &[&'a ClientSeen],
        before: impl Fn(&ClientSeen) -> Option<&'b ClientSeen>,
    ) -> Shares<'a> {
        let mut moved = BTreeMap::new();
        for seen in clients {
            let then = before(seen).map_or(0, |of| of.client.bytes);
            for path in lineage(&seen.group) {
                *moved.entry(path).or_insert(0) += seen.client.bytes.saturating_sub(then);
            }
        }
        let weights = after.groups.iter().filter(|group| moved.contains_key(group.path.as_str()));
        let weights = weights.map(|group| (group.path.as_str(), u64::from(group.weight))).collect();
        Shares { moved, weights }
    }

    fn part(of: &BTreeMap<&str, u64>, group: &str) -> Option<f64> {
        let mine = *of.get(group)? as f64;
        let all = of.iter().filter(|(path, _)| parent(path) == parent(group));
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
    use weir_bio::{GroupId, IoPrio};
    use weir_control::Client;
    use weir_control::config::ExportPolling;
    use weir_queue::{ClientTimes, Groups, Stats};

    fn disk_named(name: &str, reads: u64, ns: u64) -> DiskSeen {
        let mut stats = Stats::default();
        stats.directions[0].ios = reads;
        stats.directions[0].sectors = 8 * reads;
        stats.directions[0].ns = ns;
        DiskSeen {
            name: String::from(name),
            pool: None,
            scheduler: String::from("none"),
            mode: "mq",
            bytes: 1 << 20,
            uptime_ms: 1,
            flush_failed: false,
            stats,
            queues: Vec::new(),
            tags: 128,
            paths: Vec::new(),
        }
    }

    fn client_numbered(number: u64, bytes: u64) -> ClientSeen {
        let client = Client {
            number,
            export: String::from("<script>alert(1)</script>"),
            peer: String::from("127.0.0.1:1"),
            group: GroupId::default(),
            ioprio: IoPrio::NONE,
            process_priority: IoPrio::NONE,
            background: false,
            polling: ExportPolling::default(),
            disk: String::from("sda"),
            ios: bytes / 4096,
            bytes,
            in_flight: 0,
            hard_queue: None,
        };
        let (group, times) = (String::new(), ClientTimes::default());
        ClientSeen { front: "nbd", client, group, times }
    }

    #[test]
    fn rates_are_those_between_two_readings_and_what_is_new_began_at_nothing() {
        let before = Census {
            disks: vec![disk_named("sda", 100, 1_000_000)],
            clients: vec![client_numbered(0, 40_960)],
            ..Census::default()
        };
        let after = Census {
            disks: vec![disk_named("sda", 300, 401_000_000), disk_named("sdb", 10, 0)],
            clients: vec![client_numbered(0, 122_880), client_numbered(1, 4096)],
            ..Census::default()
        };
        let scene = between(&before, &after, 2.0);
        let (sda, sdb) = (&scene["disks"][0], &scene["disks"][1]);
        assert_eq!((&sda["reads"], &sda["wait_ms"]), (&json!(100.0), &json!(2.0)), "{scene}");
        assert_eq!((&sda["bytes_per_s"], &sdb["reads"]), (&json!(409_600.0), &json!(5.0)));
        assert_eq!(scene["clients"][0]["iops"], 10.0, "{scene}");
        assert_eq!(scene["clients"][1]["iops"], 0.5, "{scene}");
        let text = scene.to_string();
        assert!(!text.contains('\n'), "an event is one line: {text}");
    }

    #[test]
    fn a_share_is_that_of_all_disks_of_a_pool_and_of_no_other_disk() {
        let groups = Groups::default();
        for (path, weight) in [("light", 100), ("heavy", 300), ("far", 600)] {
            let id = groups.create(path).expect("a group");
            groups.set_weight(id, weight).expect("a weight");
        }
        let client = |number, disk: &str, group: &str, bytes| {
            let mut seen = client_numbered(number, bytes);
            (seen.client.disk, seen.group) = (String::from(disk), String::from(group));
            seen
        };
        let pooled = |name| DiskSeen { pool: Some(String::from("p")), ..disk_named(name, 0, 0) };
        let after = Census {
            disks: vec![disk_named("p", 0, 0), pooled("vm1"), pooled("vm2"), disk_named("x", 0, 0)],
            groups: groups.all(),
            // In the order of their I/Os, as the event has them.
            clients: vec![
                client(0, "x", "far", 96 << 20),
                client(1, "x", "light", 4 << 20),
                client(2, "vm2", "heavy", 3 << 20),
                client(3, "vm1", "light", 1 << 20),
            ],
            ..Census::default()
        };
        let scene = between(&Census::default(), &after, 1.0);
        let shown = |place: usize| {
            let client = &scene["clients"][place];
            [number(client, "share_pct"), number(client, "weight_pct")].map(f64::round)
        };
        assert_eq!(
            [0, 1, 2, 3].map(shown),
            [[96.0, 86.0], [4.0, 14.0], [75.0, 75.0], [25.0, 25.0]]
        );
    }

    #[test]
    fn of_very_many_the_busiest_are_sent_and_the_rest_is_counted() {
        let clients = (0..5000).map(|number| client_numbered(number, 4096 * number)).collect();
        let scene = between(&Census::default(), &Census { clients, ..Census::default() }, 1.0);
        assert_eq!(scene["clients_count"], 5000);
        let shown = scene["clients"].as_array().expect("a list");
        assert_eq!((shown.len(), &shown[0]["iops"]), (CLIENTS, &json!(4999.0)));
    }
}
