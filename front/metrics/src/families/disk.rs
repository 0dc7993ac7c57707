//! Families of the daemon, of disks, hard queues and paths.

use std::fmt;

use weir_control::{Census, DiskSeen};
use weir_queue::{Direction, PathSeen, QueueUse, TICK_NS};

use super::{BaseUnit, Family, Kind};
use crate::label::{Labels, value};

const DISK: &str = "disk, pool";
const DISK_OP: &str = "disk, pool, op";
const QUEUE: &str = "disk, queue, op";

pub(super) const FAMILIES: &[Family] = &[
    Family::new("build", Kind::Info, "version", "The version of the daemon", |_, sheet| {
        sheet.info(&vec![("version", value(env!("CARGO_PKG_VERSION")))])
    }),
    Family::new(
        "disk",
        Kind::Info,
        "disk, pool, scheduler, queue_mode",
        "A disk, its scheduler and its queue mode",
        |census, sheet| {
            each(census, |disk| {
                let mut labels = of(disk);
                labels.push(("scheduler", value(&*disk.scheduler)));
                labels.push(("queue_mode", value(disk.mode)));
                sheet.info(&labels)
            })
        },
    ),
    Family::new("disk_size", Kind::Gauge, DISK, "The size of a disk", |census, sheet| {
        each(census, |disk| sheet.gauge(&of(disk), disk.bytes))
    })
    .in_unit(BaseUnit::Bytes),
    Family::new(
        "disk_ios",
        Kind::Counter,
        DISK_OP,
        "I/Os that ended; `op` is read, write, discard or flush",
        |census, sheet| {
            each(census, |disk| {
                directions(disk, |labels, of| sheet.counter(&labels, of.ios + of.merges))?;
                sheet.counter(&with_op(disk, "flush"), disk.stats.flushes)
            })
        },
    ),
    Family::new(
        "disk_merges",
        Kind::Counter,
        DISK_OP,
        "I/Os that were merged into another; they are among `weir_disk_ios_total`",
        |census, sheet| {
            each(census, |disk| directions(disk, |labels, of| sheet.counter(&labels, of.merges)))
        },
    ),
    Family::new("disk_io", Kind::Counter, DISK_OP, "Bytes of I/Os that ended", |census, sheet| {
        each(census, |disk| {
            directions(disk, |labels, of| sheet.counter(&labels, of.sectors * SECTOR))
        })
    })
    .in_unit(BaseUnit::Bytes),
    Family::new(
        "disk_latency",
        Kind::Histogram,
        DISK_OP,
        "Time of an I/O from its acceptance to its end",
        |census, sheet| {
            each(census, |disk| directions(disk, |labels, of| sheet.histogram(&labels, &of.total)))
        },
    )
    .in_unit(BaseUnit::Seconds),
    Family::new(
        "disk_held",
        Kind::Counter,
        "disk, pool, op, reason",
        "Time for which I/Os were held, summed over I/Os; `reason` is queue or device",
        |census, sheet| {
            each(census, |disk| {
                directions(disk, |mut labels, of| {
                    labels.push(("reason", value("queue")));
                    sheet.seconds(&labels, of.wait.sum_ns())?;
                    labels.pop();
                    labels.push(("reason", value("device")));
                    sheet.seconds(&labels, of.device.sum_ns())
                })
            })
        },
    )
    .in_unit(BaseUnit::Seconds),
    Family::new(
        "disk_flush",
        Kind::Counter,
        DISK,
        "Time of flushes of the device, summed",
        |census, sheet| each(census, |disk| sheet.seconds(&of(disk), disk.stats.flush_ns)),
    )
    .in_unit(BaseUnit::Seconds),
    Family::new(
        "disk_busy",
        Kind::Counter,
        DISK,
        "Time with any I/O under way, in steps of 4 ms",
        |census, sheet| {
            each(census, |disk| sheet.seconds(&of(disk), disk.stats.busy_ticks * TICK_NS))
        },
    )
    .in_unit(BaseUnit::Seconds),
    Family::new(
        "disk_in_flight",
        Kind::Gauge,
        DISK,
        "I/Os that were accepted and have not ended",
        |census, sheet| each(census, |disk| sheet.gauge(&of(disk), disk.stats.in_flight)),
    ),
    Family::new(
        "disk_in_driver",
        Kind::Gauge,
        DISK_OP,
        "Requests with the driver; `op` is read or write",
        |census, sheet| {
            each(census, |disk| {
                let [reads, writes] = disk.stats.in_driver;
                sheet.gauge(&with_op(disk, "read"), reads)?;
                sheet.gauge(&with_op(disk, "write"), writes)
            })
        },
    ),
    Family::new(
        "disk_errors",
        Kind::Counter,
        DISK,
        "I/Os that ended with an error",
        |census, sheet| each(census, |disk| sheet.counter(&of(disk), disk.stats.errors)),
    ),
    Family::new(
        "disk_flush_failed",
        Kind::Gauge,
        DISK,
        "1 if a flush has failed: writes before it may be lost",
        |census, sheet| each(census, |disk| sheet.gauge(&of(disk), disk.flush_failed.into())),
    ),
    Family::new(
        "disk_timed_out_tags",
        Kind::Gauge,
        DISK,
        "Tags that the driver still has of requests that ran out of time",
        |census, sheet| each(census, |disk| sheet.gauge(&of(disk), disk.stats.quarantined)),
    ),
    Family::new(
        "queue_requests",
        Kind::Counter,
        QUEUE,
        "Requests of a hard queue that the driver ended; `op` is read or write",
        |census, sheet| {
            queues(census, |labels, [read, write], of| {
                sheet.counter(&labels(read), of.ended[0])?;
                sheet.counter(&labels(write), of.ended[1])
            })
        },
    ),
    Family::new(
        "queue_in_driver",
        Kind::Gauge,
        QUEUE,
        "Requests of a hard queue with the driver",
        |census, sheet| {
            queues(census, |labels, [read, write], of| {
                sheet.gauge(&labels(read), of.in_driver[0])?;
                sheet.gauge(&labels(write), of.in_driver[1])
            })
        },
    ),
    Family::new("queue_tags", Kind::Gauge, "disk", "Tags of each hard queue", |census, sheet| {
        let with = |disk: &&DiskSeen| !disk.queues.is_empty();
        census
            .disks
            .iter()
            .filter(with)
            .try_for_each(|disk| sheet.gauge(&vec![("disk", value(&*disk.name))], disk.tags.into()))
    }),
    Family::new(
        "path_up",
        Kind::Gauge,
        "disk, path",
        "1 if the path of a multipath disk takes I/O",
        |census, sheet| paths(census, |labels, path| sheet.gauge(&labels, path.is_valid.into())),
    ),
    Family::new(
        "path_failures",
        Kind::Counter,
        "disk, path",
        "How often the path has failed",
        |census, sheet| paths(census, |labels, path| sheet.counter(&labels, path.fails)),
    ),
];

const SECTOR: u64 = 512;
const OPS: [&str; 3] = ["read", "write", "discard"];

fn each(census: &Census, mut with: impl FnMut(&DiskSeen) -> fmt::Result) -> fmt::Result {
    census.disks.iter().try_for_each(&mut with)
}

/// A disk that is in no pool has no label `pool`, which queries see as an empty one.
fn of(disk: &DiskSeen) -> Labels<'_> {
    let mut labels = vec![("disk", value(&*disk.name))];
    labels.extend(disk.pool.as_deref().map(|pool| ("pool", value(pool))));
    labels
}

fn with_op<'a>(disk: &'a DiskSeen, op: &'static str) -> Labels<'a> {
    let mut labels = of(disk);
    labels.push(("op", value(op)));
    labels
}

fn directions<'a>(
    disk: &'a DiskSeen,
    mut with: impl FnMut(Labels<'a>, &Direction) -> fmt::Result,
) -> fmt::Result {
    let ops = OPS.iter().zip(&disk.stats.directions);
    ops.into_iter().try_for_each(|(op, direction)| with(with_op(disk, op), direction))
}

fn queues(
    census: &Census,
    mut with: impl FnMut(
        &dyn Fn(&'static str) -> Labels<'static>,
        [&'static str; 2],
        &QueueUse,
    ) -> fmt::Result,
) -> fmt::Result {
    each(census, |disk| {
        disk.queues.iter().enumerate().try_for_each(|(index, queue)| {
            let labels = |op| {
                let (name, index) = (value(disk.name.clone()), value(index.to_string()));
                vec![("disk", name), ("queue", index), ("op", value(op))]
            };
            with(&labels, ["read", "write"], queue)
        })
    })
}

fn paths(
    census: &Census,
    mut with: impl FnMut(Labels<'_>, &PathSeen) -> fmt::Result,
) -> fmt::Result {
    each(census, |disk| {
        disk.paths.iter().try_for_each(|path| {
            with(vec![("disk", value(&*disk.name)), ("path", value(&*path.name))], path)
        })
    })
}
