//! Families of groups and of the memory of fronts.

use std::fmt;

use weir_control::{Census, Memory};
use weir_queue::GroupEntry;

use super::{BaseUnit, Family, Kind};
use crate::label::{Labels, value};

pub(super) const FAMILIES: &[Family] = &[
    Family::new(
        "group_weight",
        Kind::Gauge,
        "group",
        "The weight of a group among its siblings",
        |census, sheet| each(census, |group| sheet.gauge(&of(group), group.weight.into())),
    ),
    Family::new(
        "group_ios",
        Kind::Counter,
        "group, op",
        "I/Os of a group that were accepted, groups below not included; `op` is read or write",
        |census, sheet| {
            each(census, |group| {
                ["read", "write"]
                    .iter()
                    .zip(group.used.ios)
                    .try_for_each(|(op, ios)| sheet.counter(&with_op(group, op), ios))
            })
        },
    ),
    Family::new(
        "group_io",
        Kind::Counter,
        "group, op",
        "Bytes of the I/Os of a group that were accepted, groups below not included",
        |census, sheet| {
            each(census, |group| {
                ["read", "write"]
                    .iter()
                    .zip(group.used.bytes)
                    .try_for_each(|(op, bytes)| sheet.counter(&with_op(group, op), bytes))
            })
        },
    )
    .in_unit(BaseUnit::Bytes),
    Family::new(
        "front_memory",
        Kind::Gauge,
        "front",
        "Memory that all clients of a front hold together",
        |census, sheet| fronts(census, |labels, memory| sheet.gauge(&labels, memory.held)),
    )
    .in_unit(BaseUnit::Bytes),
    Family::new(
        "front_memory_limit",
        Kind::Gauge,
        "front",
        "Memory that all clients of a front may hold together",
        |census, sheet| fronts(census, |labels, memory| sheet.gauge(&labels, memory.bound)),
    )
    .in_unit(BaseUnit::Bytes),
];

fn each(census: &Census, mut with: impl FnMut(&GroupEntry) -> fmt::Result) -> fmt::Result {
    census.groups.iter().try_for_each(&mut with)
}

/// The root is `/`.
fn of(group: &GroupEntry) -> Labels<'_> {
    vec![("group", value(if group.path.is_empty() { "/" } else { &group.path }))]
}

fn with_op<'a>(group: &'a GroupEntry, op: &'static str) -> Labels<'a> {
    let mut labels = of(group);
    labels.push(("op", value(op)));
    labels
}

fn fronts(
    census: &Census,
    mut with: impl FnMut(Labels<'_>, &Memory) -> fmt::Result,
) -> fmt::Result {
    let fronts = census.fronts.iter();
    let mut fronts = fronts.map(|(kind, memory)| (vec![("front", value(*kind))], memory));
    fronts.try_for_each(|(labels, memory)| with(labels, memory))
}
