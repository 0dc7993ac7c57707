//! Families of clients. A client's series end with it.

use std::fmt;

use weir_control::{Census, ClientSeen};

use super::{BaseUnit, Family, Kind};
use crate::label::{Labels, value};

const CLIENT: &str = "front, export, client";

pub(super) const FAMILIES: &[Family] = &[
    Family::new(
        "client",
        Kind::Info,
        "front, export, client, disk, group, address",
        "A client: its disk, its group and where it comes from",
        |census, sheet| {
            each(census, |seen| {
                let mut labels = of(seen);
                let group = if seen.group.is_empty() { "/" } else { &seen.group };
                labels.push(("disk", value(&*seen.client.disk)));
                labels.push(("group", value(group)));
                labels.push(("address", value(&*seen.client.peer)));
                sheet.info(&labels)
            })
        },
    ),
    Family::new(
        "client_ios",
        Kind::Counter,
        CLIENT,
        "I/Os of a client that ended",
        |census, sheet| each(census, |seen| sheet.counter(&of(seen), seen.client.ios)),
    ),
    Family::new(
        "client_io",
        Kind::Counter,
        CLIENT,
        "Bytes of a client's I/Os that ended",
        |census, sheet| each(census, |seen| sheet.counter(&of(seen), seen.client.bytes)),
    )
    .in_unit(BaseUnit::Bytes),
    Family::new(
        "client_errors",
        Kind::Counter,
        CLIENT,
        "I/Os of a client that ended with an error",
        |census, sheet| each(census, |seen| sheet.counter(&of(seen), seen.times.errors)),
    ),
    Family::new(
        "client_in_flight",
        Kind::Gauge,
        CLIENT,
        "I/Os of a client that its disk has accepted and that have not ended",
        |census, sheet| each(census, |seen| sheet.gauge(&of(seen), seen.client.in_flight)),
    ),
    Family::new(
        "client_latency",
        Kind::Histogram,
        CLIENT,
        "Time of a client's I/O from its acceptance to its end, without what a cap held before",
        |census, sheet| each(census, |seen| sheet.histogram(&of(seen), &seen.times.total)),
    )
    .in_unit(BaseUnit::Seconds),
    Family::new(
        "client_cap_wait",
        Kind::Histogram,
        CLIENT,
        "Time for which a cap held an I/O back, of those that one held back",
        |census, sheet| each(census, |seen| sheet.histogram(&of(seen), &seen.times.held)),
    )
    .in_unit(BaseUnit::Seconds),
    Family::new(
        "client_held",
        Kind::Counter,
        "front, export, client, reason",
        "Time for which I/Os were held, summed over I/Os; `reason` is cap, queue or device",
        |census, sheet| {
            each(census, |seen| {
                let times = &seen.times;
                let reasons = [
                    ("cap", times.held.sum_ns()),
                    ("queue", times.queue_ns),
                    ("device", times.device_ns),
                ];
                reasons.into_iter().try_for_each(|(reason, ns)| {
                    let mut labels = of(seen);
                    labels.push(("reason", value(reason)));
                    sheet.seconds(&labels, ns)
                })
            })
        },
    )
    .in_unit(BaseUnit::Seconds),
];

fn each(census: &Census, mut with: impl FnMut(&ClientSeen) -> fmt::Result) -> fmt::Result {
    census.clients.iter().try_for_each(&mut with)
}

fn of(seen: &ClientSeen) -> Labels<'_> {
    vec![
        ("front", value(seen.front)),
        ("export", value(&*seen.client.export)),
        ("client", value(seen.client.number.to_string())),
    ]
}
