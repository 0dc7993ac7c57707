//! The state of a daemon in one document, `weir/status` of the tree: what `weir status` shows.
//!
//! One reading of it costs a sum over disks and clients, whatever their number, and no I/O.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Value, json};
use weir_bio::SECTOR;
use weir_queue::{Failure, PathSeen, QueueMode};

use crate::about::{Listener, Polled, ThreadPolled};
use crate::clients::{Client, Clients};
use crate::tree::Tree;
use crate::tree::entry::Entry;

/// Clients that are listed: those that moved most.
const BUSIEST: usize = 5;

impl Tree {
    /// The listeners, a line each.
    pub(crate) fn listeners(&self) -> String {
        let listeners = self.about().map(|about| (about.listeners)()).unwrap_or_default();
        let line = |listener: &Listener| format!("{} {}", listener.kind, listener.place);
        listeners.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    /// The exports that say how threads wait; what they leave out is null.
    fn polling_exports(&self) -> Vec<Value> {
        let of_front = |front: &Arc<dyn Clients>| {
            let kind = front.kind();
            let told = front.polling().into_iter().map(move |(export, polling)| {
                let poll = polling.poll.map(|poll| poll.to_string());
                let share_pct = polling.poll_share;
                json!({ "front": kind, "export": export, "poll": poll, "share_pct": share_pct })
            });
            told.collect::<Vec<_>>()
        };
        self.fronts().iter().flat_map(of_front).collect()
    }

    /// The whole state as one JSON document.
    pub(crate) fn status(&self) -> Value {
        let seen: Vec<(&'static str, Vec<Client>)> =
            self.fronts().iter().map(|front| (front.kind(), front.clients())).collect();
        let mut of_disk: HashMap<&str, u64> = HashMap::new();
        let clients =
            || seen.iter().flat_map(|(kind, all)| all.iter().map(move |one| (*kind, one)));
        clients().for_each(|(_, client)| *of_disk.entry(&client.disk).or_default() += 1);
        let partitions = self.partitions();
        let (mut disks, mut degraded, mut errors) = (Vec::new(), Vec::new(), 0);
        for entry in self.entries() {
            let here = partitions.iter().filter(|(pool, _)| pool == entry.name());
            let here: Vec<_> = here.map(|(pool, entry)| (entry, Some(pool))).collect();
            // The space of a pool is as wide as it can get, and its bytes are those of its disks.
            let bytes = |entry: &Entry| entry.limits().capacity.saturating_mul(SECTOR);
            let of_pool = here.iter().map(|(entry, _)| bytes(entry)).reduce(|sum, it| sum + it);
            // What was partitions' is among the pool's.
            errors += entry.disk.stats().errors;
            for (entry, pool) in [(&entry, None)].into_iter().chain(here) {
                let clients = of_disk.get(entry.name()).copied().unwrap_or(0);
                let faults = faults(entry);
                let told = faults.iter().map(|fault| format!("disk {}: {fault}", entry.name()));
                degraded.extend(told);
                let mut told = disk(entry, pool, clients, &faults);
                if let (None, Some(bytes)) = (pool, of_pool) {
                    told["bytes"] = json!(bytes);
                }
                disks.push(told);
            }
        }
        let count = clients().count();
        let mut busiest: Vec<(&str, &Client)> = clients().collect();
        busiest.sort_by_key(|(_, client)| std::cmp::Reverse((client.bytes, client.ios)));
        let busiest: Vec<Value> = busiest.into_iter().take(BUSIEST).map(client).collect();
        let about = self.about();
        let listeners = about.map(|about| (about.listeners)()).unwrap_or_default();
        let listener = |one: &Listener| json!({ "kind": one.kind, "place": one.place });
        json!({
            "version": about.map(|about| about.version),
            "pid": std::process::id(),
            "uptime_ms": about.map(|about| (about.uptime_ms)()),
            "listeners": listeners.iter().map(listener).collect::<Vec<_>>(),
            "disks": disks,
            "clients": { "count": count, "busiest": busiest },
            "polling": about.map(|about| polling(&(about.polling)(), self.polling_exports())),
            "errors": errors,
            "degraded": degraded,
        })
    }
}

/// The rule, those of exports and of each thread, and the cost and gain of all threads together.
fn polling(polled: &Polled, exports: Vec<Value>) -> Value {
    let sum = |of: fn(&ThreadPolled) -> u64| polled.threads.iter().map(of).sum::<u64>();
    json!({
        "poll": polled.rule.poll.to_string(),
        "share_pct": polled.rule.poll_share,
        "threads": polled.threads.len(),
        "polls": sum(|thread| thread.polls),
        "met": sum(|thread| thread.met),
        "polled_us": sum(|thread| thread.polled_us),
        "vain_us": sum(|thread| thread.vain_us),
        "reactors": polled.threads.iter().map(reactor).collect::<Vec<_>>(),
        "exports": exports,
    })
}

fn reactor(thread: &ThreadPolled) -> Value {
    json!({ "poll": thread.rule.poll.to_string(), "share_pct": thread.rule.poll_share })
}

fn client((front, client): (&str, &Client)) -> Value {
    json!({
        "front": front,
        "export": client.export,
        "number": client.number,
        "address": client.peer,
        "disk": client.disk,
        "ios": client.ios,
        "bytes": client.bytes,
        "in_flight": client.in_flight,
    })
}

fn disk(entry: &Entry, pool: Option<&String>, clients: u64, faults: &[String]) -> Value {
    let (disk, limits) = (&entry.disk, entry.limits());
    let (tags, _) = disk.tags();
    let paths = disk.map().map(|map| map.paths()).unwrap_or_default();
    let path = |path: &PathSeen| {
        let PathSeen { name, is_valid, fails } = path;
        json!({ "name": name, "is_valid": is_valid, "fails": fails })
    };
    let stats = disk.stats();
    json!({
        "name": entry.name(),
        "pool": pool,
        "target": disk.target(),
        "bytes": limits.capacity.saturating_mul(SECTOR),
        "read_only": limits.read_only,
        "mode": match disk.config().mode {
            QueueMode::Mq => "mq",
            QueueMode::Sq => "sq",
        },
        "scheduler": disk.scheduler(),
        "queues": disk.queues(),
        "depth": tags,
        "held": disk.is_held(),
        "write_cache": write_cache(entry),
        "flush_error": disk.flush_error().map(|status| status.to_string()),
        "flushes": stats.flushes,
        "errors": stats.errors,
        "failures": disk.failures().iter().map(failure).collect::<Vec<_>>(),
        "in_flight": stats.in_flight,
        "clients": clients,
        "paths": paths.iter().map(path).collect::<Vec<_>>(),
        "degraded": faults,
    })
}

fn write_cache(entry: &Entry) -> &'static str {
    match (entry.disk.is_durability_disabled(), entry.limits().volatile_cache) {
        (true, _) => "durability disabled",
        (false, true) => "write back",
        (false, false) => "write through",
    }
}

/// Why a disk is not as it should be, a sentence each.
fn faults(entry: &Entry) -> Vec<String> {
    let disk = &entry.disk;
    let mut faults = Vec::new();
    if disk.is_offline() {
        faults.push(String::from("it is closed"));
    }
    if disk.is_held() {
        faults.push(String::from(HELD));
    }
    if let Some(status) = disk.flush_error() {
        let what = "what was written before it may not be durable";
        faults.push(format!("a flush failed ({status}): {what}"));
    }
    let failures = disk.failures().into_iter();
    let lately = failures.filter(|(one, age_ns)| one.is_of_medium() && *age_ns < LATELY_NS);
    faults.extend(lately.map(|(failure, age_ns)| {
        let Failure { status, count, .. } = failure;
        let (ago, what) = (age_ns / 1_000_000_000, failure.what());
        let times = if count == 1 { "once" } else { &format!("{count} times") };
        format!("I/O failed {times}, the last {what} {ago} s ago: {status}")
    }));
    faults.extend(disk.faults());
    // As Linux names the states of a SCSI disk.
    if let Some(state) = disk.attribute("state").filter(|state| state != "running") {
        faults.push(format!("the state of its device is {state}"));
    }
    let paths = disk.map().map(|map| map.paths()).unwrap_or_default();
    let down = paths.iter().filter(|path| !path.is_valid);
    faults.extend(down.map(|path| format!("path {} is down", path.name)));
    let lost = disk.stats().quarantined;
    if lost > 0 {
        faults.push(format!("{lost} requests were timed out, and its driver still has them"));
    }
    faults
}

/// I/O that failed is a fault for so long: a monitor that asks every few minutes sees it.
const LATELY_NS: u64 = 300 * 1_000_000_000;

fn failure((failure, age_ns): &(Failure, u64)) -> Value {
    let Failure { status, count, sector, sectors, .. } = failure;
    let op = failure.what();
    json!({
        "status": status.to_string(),
        "count": count,
        "last": { "op": op, "sector": sector, "sectors": sectors, "ago_ns": age_ns },
    })
}

/// The fault of a disk that lets no I/O in now. A change of a setting makes it for a moment.
const HELD: &str = "its queue lets no I/O in: a change or a close waits, or has it stand";
