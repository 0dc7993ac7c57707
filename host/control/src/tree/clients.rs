//! The files of `<front>/<export>/<client>`, as in `nbd/sda/0`: how a client is classed, live.

use std::sync::Arc;

use weir_bio::{Class, IoPrio};
use weir_queue::{ClientTimes, Groups, Latencies};

use super::entry;
use crate::clients::{CLASSES, Classing, Client, Clients, LEVEL_DEFAULT, Memory};
use crate::errno::{Errno, Failure};
use crate::number::{shown, unsigned};

type Attribute = entry::Attribute<Connection>;

/// A client in the tree.
pub struct Connection {
    pub(crate) clients: Arc<dyn Clients>,
    pub(crate) groups: Option<Arc<Groups>>,
    pub(crate) as_seen: Client,
}

/// Every file of a front whose clients share memory.
pub const FRONT: &[entry::Attribute<Memory>] = &[
    entry::Attribute::tells(
        "memory.current",
        "bytes",
        "0",
        "What all clients together hold now of `memory.max`.",
        |here| here.held.to_string(),
    ),
    entry::Attribute::tells(
        "memory.max",
        "bytes",
        "a quarter of the machine's memory",
        "What all clients together may hold: `memory` of the front's section.",
        |here| here.bound.to_string(),
    ),
];

/// Every file of a client.
pub const ATTRIBUTES: &[Attribute] = &[
    Attribute::tells(
        "address",
        "",
        "the client's",
        "Where it comes from: host and port, or user, group and process of a local one.",
        |here| here.as_seen.peer.clone(),
    ),
    Attribute::tells(
        "background",
        "",
        "the export's",
        "Whether its writes are background writes, as write-back is: others go before them.",
        |here| u8::from(here.as_seen.background).to_string(),
    )
    .takes("0 or 1", store_background),
    Attribute::tells("bytes", "bytes", "0", "What its I/O moved.", |here| {
        here.as_seen.bytes.to_string()
    }),
    Attribute::tells(
        "cap_wait",
        "ns",
        "`sum=0`",
        "How long caps held its I/O back: the sum, and each bucket's highest value with its count.",
        |here| histogram(&here.times().held),
    ),
    Attribute::tells(
        "class",
        "",
        "the export's",
        "Class of its I/O; `none`: its process's.",
        |here| String::from(name_of(here.as_seen.ioprio.class())),
    )
    .takes("`none`, `real-time`, `best-effort` or `idle`", store_class),
    Attribute::tells("delete", "", "0", "Whether the client is to end.", |_| String::from("0"))
        .takes("1: it is ended at once; I/O that was accepted is finished", store_delete),
    Attribute::tells("disk", "", "the export's", "The disk behind the export.", |here| {
        here.as_seen.disk.clone()
    }),
    Attribute::tells(
        "group",
        "",
        "the export's",
        "Where its I/O counts; empty is the root.",
        group,
    )
    .takes("the path of a group, as below `cgroup`; `/` or nothing is the root", store_group),
    Attribute::tells(
        "hard_queue",
        "",
        "the disk's",
        "The hard queue it feeds, or `all`: the one of the legacy path, or each in turn.",
        |here| {
            here.as_seen.hard_queue.map_or_else(|| String::from("all"), |queue| queue.to_string())
        },
    ),
    Attribute::tells(
        "held_ns",
        "ns",
        "0",
        "How long its I/O was held before the driver had it and by the device, summed over I/Os.",
        |here| {
            let times = here.times();
            format!("queue={} device={}", times.queue_ns, times.device_ns)
        },
    ),
    Attribute::tells(
        "inflight",
        "",
        "0",
        "I/Os that its disk has accepted and that have not ended.",
        |here| here.as_seen.in_flight.to_string(),
    ),
    Attribute::tells(
        "ioprio",
        "",
        "`none`",
        "Class and level of its I/O, as `ionice -p` prints them: its own, or those of its process.",
        |here| told(here.as_seen.in_effect()),
    ),
    Attribute::tells(
        "ios",
        "",
        "0",
        "I/Os that ended; what was cut counts as its parts.",
        |here| here.as_seen.ios.to_string(),
    ),
    Attribute::tells(
        "latency",
        "ns",
        "`sum=0`",
        "The times of its I/O from acceptance to end, as those of `cap_wait`.",
        |here| histogram(&here.times().total),
    ),
    Attribute::tells("level", "", "the export's", "Level in its class, 0 is best.", |here| {
        level(here.as_seen.ioprio).to_string()
    })
    .takes("0 to 7; without a class the client becomes `best-effort`", store_level),
    Attribute::tells(
        "poll",
        "",
        "`host`",
        "What its export states of polling: `off`, `adaptive`, `always`; `host`: `[host]` holds.",
        |here| stated(here.as_seen.polling.poll),
    ),
    Attribute::tells(
        "poll_share",
        "%",
        "`host`",
        "What its export states of the time that may be polled; `host`: `[host]` holds.",
        |here| stated(here.as_seen.polling.poll_share),
    ),
];

impl Connection {
    fn times(&self) -> ClientTimes {
        self.clients.times(self.as_seen.number).unwrap_or_default()
    }

    fn reclassify(&self, to: Classing) -> Result<(), Failure> {
        let told = self.clients.reclassify(self.as_seen.number, to)?;
        self.found(told)
    }

    fn found(&self, found: bool) -> Result<(), Failure> {
        let gone =
            || Failure::new(Errno::NotFound, format!("client {} is gone", self.as_seen.number));
        found.then_some(()).ok_or_else(gone)
    }
}

/// The sum of a histogram, and each bucket's highest value with its count.
pub(crate) fn histogram(times: &Latencies) -> String {
    let buckets = times.buckets().map(|(top, count)| format!(" {top}:{count}"));
    format!("sum={}{}", times.sum_ns(), buckets.collect::<String>())
}

/// The name of a class in the files.
pub(crate) fn name_of(class: Class) -> &'static str {
    let known = CLASSES.iter().find(|(_, known)| *known == class);
    known.map_or("none", |(name, _)| *name)
}

/// A part of a rule of polling, or where that is stated.
fn stated(part: Option<impl ToString>) -> String {
    part.map_or_else(|| String::from("host"), |part| part.to_string())
}

/// As ionice(1) prints it.
fn told(ioprio: IoPrio) -> String {
    match ioprio.class() {
        class @ (Class::None | Class::Idle) => String::from(name_of(class)),
        Class::RealTime => format!("realtime: prio {}", ioprio.level()),
        class => format!("{}: prio {}", name_of(class), ioprio.level()),
    }
}

fn level(ioprio: IoPrio) -> u8 {
    if ioprio.class() == Class::None { LEVEL_DEFAULT } else { ioprio.level() }
}

fn group(here: &Connection) -> String {
    let id = here.as_seen.group;
    let all = here.groups.as_ref().map(|groups| groups.all()).unwrap_or_default();
    all.into_iter().find(|entry| entry.id == id).map_or_else(String::new, |entry| entry.path)
}

fn store_class(here: &Connection, text: &str) -> Result<(), Failure> {
    let name = text.strip_suffix('\n').unwrap_or(text);
    let Some((_, class)) = CLASSES.iter().find(|(known, _)| *known == name) else {
        let names = CLASSES.map(|(name, _)| name).join(", ");
        return Failure::invalid(format!("{} is none of {names}", shown("class", text)));
    };
    let ioprio = match class {
        Class::None => IoPrio::NONE,
        class => IoPrio::new(*class, level(here.as_seen.ioprio)),
    };
    here.reclassify(Classing { ioprio: Some(ioprio), ..Classing::default() })
}

fn store_level(here: &Connection, text: &str) -> Result<(), Failure> {
    let class = match here.as_seen.ioprio.class() {
        Class::None => Class::BestEffort,
        class => class,
    };
    match unsigned("level", text)? {
        level @ 0..=7 => {
            let ioprio = Some(IoPrio::new(class, level as u8));
            here.reclassify(Classing { ioprio, ..Classing::default() })
        }
        level => Failure::invalid(format!("level {level} is outside 0..=7")),
    }
}

fn store_background(here: &Connection, text: &str) -> Result<(), Failure> {
    match unsigned("background", text)? {
        on @ 0..=1 => {
            here.reclassify(Classing { background: Some(on == 1), ..Classing::default() })
        }
        other => Failure::invalid(format!("background {other} is outside 0..=1")),
    }
}

fn store_delete(here: &Connection, text: &str) -> Result<(), Failure> {
    match unsigned("delete", text)? {
        1 => here.found(here.clients.dismiss(here.as_seen.number)),
        other => Failure::invalid(format!("delete {other} is not 1")),
    }
}

fn store_group(here: &Connection, text: &str) -> Result<(), Failure> {
    let path = text.strip_suffix('\n').unwrap_or(text).trim_matches('/');
    let found = here.groups.as_ref().and_then(|groups| groups.find(path));
    match found {
        Some(id) => here.reclassify(Classing { group: Some(id), ..Classing::default() }),
        None => Failure::invalid(format!("{} does not exist", shown("group", path))),
    }
}
