//! The document of a run: everything another program needs to draw it, or to compare it.

use std::time::SystemTime;

use weir_trace::document::{BenchDocument, Environment, Histogram, Sample};

use crate::engine::run::Measured;
use crate::engine::tally::{INTERVAL_NS, Slot};
use crate::results::outcome::cores;
use crate::workload::conduct::Conducted;
use weir_load::times::{Row, Times};

/// The document of a run.
#[must_use]
pub fn document(conducted: &Conducted, command: &[String], started: SystemTime) -> BenchDocument {
    let Conducted { bench, measured, failure } = conducted;
    BenchDocument {
        bench: bench.clone(),
        command: command.to_vec(),
        series: series(measured),
        histograms: histograms(measured),
        environment: environment(started),
        cores: cores(measured),
        partial: failure.is_some(),
        failure: failure.clone(),
        ..BenchDocument::default()
    }
}

/// One entry for each tenth of a second, at its end.
fn series(measured: &[(Option<String>, Measured)]) -> Vec<Sample> {
    let (mut entries, mut base) = (Vec::new(), 0.0);
    for (_, part) in measured {
        let wall = part.wall.as_secs_f64();
        let slots = part.tally.series().iter().enumerate();
        for (index, Slot { ios, bytes, ns }) in slots {
            let end = ((index as u64 + 1) * INTERVAL_NS) as f64 / 1e9;
            let begin = end - INTERVAL_NS as f64 / 1e9;
            if begin >= wall {
                break;
            }
            entries.push(Sample {
                at_s: base + end.min(wall),
                ios: *ios,
                bytes: *bytes,
                latency_mean_ns: *ns as f64 / (*ios).max(1) as f64,
            });
        }
        base += wall;
    }
    entries
}

fn histograms(measured: &[(Option<String>, Measured)]) -> Vec<Histogram> {
    let mut told = Vec::new();
    let mut all = Row::default();
    for (name, part) in measured {
        all.add(&part.tally.all());
        for group in &part.groups {
            let Some(row) = part.tally.row(group.row) else { continue };
            let name = name.as_deref().unwrap_or(&group.name);
            told.extend(of_row(name, group.op, row));
        }
    }
    let mut first = of_row("all", "all", &all).to_vec();
    first.append(&mut told);
    first
}

/// The histograms of a row.
#[must_use]
pub fn of_row(name: &str, op: &str, row: &Row) -> [Histogram; 3] {
    let one = |what: &str, times: &Times| Histogram {
        name: String::from(name),
        op: String::from(op),
        what: String::from(what),
        buckets: times.buckets().collect(),
    };
    [one("latency", &row.total), one("queue_wait", &row.wait), one("device", &row.device)]
}

/// The model as the kernel tells it in `/proc/cpuinfo`; some architectures tell none.
fn cpu_model(info: &str) -> &str {
    let model = info.lines().find_map(|line| line.strip_prefix("model name"));
    model.and_then(|rest| rest.split_once(':')).map_or("unknown model", |(_, model)| model.trim())
}

/// The release of the running kernel.
#[must_use]
pub fn kernel() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// This machine.
#[must_use]
pub fn environment(started: SystemTime) -> Environment {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    Environment {
        cpus: cpus as u32,
        cpu_model: String::from(cpu_model(&info)),
        kernel: kernel(),
        weir: String::from(env!("CARGO_PKG_VERSION")),
        started_at: utc(started),
    }
}

/// A moment as RFC 3339 writes it, in UTC, to the second.
#[must_use]
pub fn utc(moment: SystemTime) -> String {
    humantime::format_rfc3339_seconds(moment.max(SystemTime::UNIX_EPOCH)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_cpu_has_a_model_also_where_the_kernel_tells_none() {
        assert_eq!(cpu_model("processor: 0\nmodel name\t: Some CPU @ 2 GHz\n"), "Some CPU @ 2 GHz");
        assert_eq!(cpu_model("processor\t: 0\nBogoMIPS\t: 50.00\n"), "unknown model");
    }

    #[test]
    fn moments_are_written_as_the_calendar_has_them() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
    }
}
