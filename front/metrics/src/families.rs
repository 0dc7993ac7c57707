//! The families of metrics: name, unit, kind, help and values, each declared once.
//!
//! Names and units are Prometheus': base units, `_total` behind counters. A family's `name` is the
//! one without unit and `_total`.

mod client;
mod disk;
mod group;

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode_eof;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::{Registry, Unit};
use weir_control::Census;
use weir_queue::Latencies;

use crate::label::Labels;

/// A family of metrics.
pub struct Family {
    /// Its name, without unit and `_total`.
    pub name: &'static str,
    /// `counter`, `gauge`, `histogram` or `info`.
    pub kind: Kind,
    /// Its unit.
    pub unit: Option<BaseUnit>,
    /// Its labels.
    pub labels: &'static str,
    /// One sentence without the point at its end.
    pub help: &'static str,
    fill: fn(&Census, &mut Sheet<'_>) -> fmt::Result,
}

/// The kinds of families.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
    /// Classic buckets.
    Histogram,
    /// Labels whose value is always 1.
    Info,
}

/// Prometheus' base units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BaseUnit {
    /// Of time.
    Seconds,
    /// Of data.
    Bytes,
}

impl Family {
    const fn new(
        name: &'static str,
        kind: Kind,
        labels: &'static str,
        help: &'static str,
        fill: fn(&Census, &mut Sheet<'_>) -> fmt::Result,
    ) -> Family {
        Family { name, kind, unit: None, labels, help, fill }
    }

    const fn in_unit(self, unit: BaseUnit) -> Family {
        Family { unit: Some(unit), ..self }
    }

    /// The name of its series, as a query has it; of a histogram without `_bucket`.
    #[must_use]
    pub fn full_name(&self) -> String {
        let unit = match self.unit {
            None => "",
            Some(BaseUnit::Seconds) => "_seconds",
            Some(BaseUnit::Bytes) => "_bytes",
        };
        let end = match self.kind {
            Kind::Counter => "_total",
            Kind::Info => "_info",
            Kind::Gauge | Kind::Histogram => "",
        };
        format!("weir_{}{unit}{end}", self.name)
    }
}

/// Every family, in the order of the text.
pub const FAMILIES: &[&[Family]] = &[disk::FAMILIES, group::FAMILIES, client::FAMILIES];

/// First and last power of two of the buckets, ns: 1.024 us to 17.2 s.
const FIRST: u32 = 10;
const LAST: u32 = 34;
const NS_PER_S: f64 = 1e9;

fn seconds(ns: u64) -> f64 {
    ns as f64 / NS_PER_S
}

/// Where the values of one family go.
struct Sheet<'a> {
    encoder: MetricEncoder<'a>,
}

impl Sheet<'_> {
    fn counter(&mut self, labels: &Labels<'_>, value: u64) -> fmt::Result {
        self.encoder.encode_family(labels)?.encode_counter(&value, NO_EXEMPLAR)
    }

    fn seconds(&mut self, labels: &Labels<'_>, ns: u64) -> fmt::Result {
        self.encoder.encode_family(labels)?.encode_counter(&seconds(ns), NO_EXEMPLAR)
    }

    fn gauge(&mut self, labels: &Labels<'_>, value: u64) -> fmt::Result {
        // The encoder refuses what no i64 holds, and with it the whole text.
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        self.encoder.encode_family(labels)?.encode_gauge(&value)
    }

    fn info(&mut self, labels: &Labels<'_>) -> fmt::Result {
        self.encoder.encode_info(labels)
    }

    /// A histogram without values is left out: of a thousand idle disks most of the text would be
    /// zeros.
    fn histogram(&mut self, labels: &Labels<'_>, times: &Latencies) -> fmt::Result {
        let counts = times.by_powers(FIRST, LAST);
        let count = counts.iter().sum();
        if count == 0 {
            return Ok(());
        }
        let bounds = (FIRST..=LAST).map(|power| seconds(1 << power)).chain([f64::MAX]);
        let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
        let sum = seconds(times.sum_ns());
        let mut encoder = self.encoder.encode_family(labels)?;
        encoder.encode_histogram::<[(&str, &str); 0]>(sum, count, &buckets, None)
    }
}

const NO_EXEMPLAR: Option<&Exemplar<[(&str, &str); 0], f64>> = None;

/// A census on its way into a registry, which takes what lasts.
#[derive(Debug)]
struct Reading(Census);

impl Collector for Reading {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for family in FAMILIES.iter().copied().flatten() {
            let kind = match family.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
                Kind::Histogram => MetricType::Histogram,
                Kind::Info => MetricType::Info,
            };
            let unit = family.unit.map(|unit| match unit {
                BaseUnit::Seconds => Unit::Seconds,
                BaseUnit::Bytes => Unit::Bytes,
            });
            let help = format!("{}.", family.help);
            let encoder = encoder.encode_descriptor(family.name, &help, unit.as_ref(), kind)?;
            (family.fill)(&self.0, &mut Sheet { encoder })?;
        }
        Ok(())
    }
}

/// The text of `/metrics`.
#[must_use]
pub fn metrics(census: Census) -> String {
    let mut registry = Registry::with_prefix("weir");
    registry.register_collector(Box::new(Reading(census)));
    let mut text = String::new();
    let written = prometheus_client::encoding::text::encode_registry(&mut text, &registry)
        .and_then(|()| encode_eof(&mut text));
    written.expect("a string takes everything");
    text
}

#[cfg(test)]
mod tests {
    use weir_control::ClientSeen;

    use super::*;

    #[test]
    fn the_table_of_the_documentation_is_that_of_the_code() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
        let page = std::fs::read_to_string(path).expect("docs/metrics.md");
        let row = |family: &Family| {
            let kind = format!("{:?}", family.kind).to_lowercase();
            format!("| `{}` | {kind} | {} | {} |", family.full_name(), family.labels, family.help)
        };
        let wanted: Vec<String> = FAMILIES.iter().copied().flatten().map(row).collect();
        let found: Vec<&str> = page.lines().filter(|line| line.starts_with("| `weir_")).collect();
        assert!(found == wanted, "docs/metrics.md is to have\n{}", wanted.join("\n"));
    }

    #[test]
    fn names_are_escaped_whatever_is_in_them() {
        let client = weir_control::Client {
            number: 7,
            export: String::from("a\"b\\c\nd\r\u{1b}\u{85}"),
            peer: String::from("unix"),
            group: weir_bio::GroupId(0),
            ioprio: weir_bio::IoPrio::NONE,
            process_priority: weir_bio::IoPrio::NONE,
            background: false,
            polling: weir_control::config::ExportPolling::default(),
            disk: String::from("sda"),
            ios: 3,
            bytes: 512,
            in_flight: 0,
            hard_queue: None,
        };
        let times = weir_queue::ClientTimes::default();
        let seen = ClientSeen { front: "nbd", client, group: String::from("x\"y"), times };
        let text = metrics(Census { clients: vec![seen], ..Census::default() });
        let series = r#"weir_client_ios_total{front="nbd",export="a\"b\\c\nd???",client="7"} 3"#;
        assert!(text.lines().any(|line| line == series), "{text}");
        assert!(text.contains(r#"group="x\"y""#), "{text}");
        assert!(text.lines().all(|line| !line.contains(char::is_control)), "{text:?}");
    }

    #[test]
    fn a_text_without_any_disk_has_every_family_and_an_end() {
        let text = metrics(Census::default());
        for family in FAMILIES.iter().copied().flatten() {
            let name = family.full_name();
            let name = name.trim_end_matches("_total").trim_end_matches("_info");
            assert!(text.contains(&format!("# TYPE {name} ")), "{name}: {text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }
}
