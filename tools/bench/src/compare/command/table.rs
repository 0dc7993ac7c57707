//! What the device and the CPUs did beside a command, as a table: variants side by side.

use std::fmt::Write;

use weir_trace::document::{Bench, Compare, DeviceUse};

/// A row: its name, its value in a run, and how it is shown.
struct Row {
    title: &'static str,
    of: fn(&Bench) -> Option<f64>,
    show: fn(f64) -> String,
}

const ROWS: [Row; 12] = [
    Row { title: "reads a second", of: |run| Some(device(run)?.reads_per_s), show: whole },
    Row { title: "writes a second", of: |run| Some(device(run)?.writes_per_s), show: whole },
    Row { title: "flushes a second", of: |run| Some(device(run)?.flushes_per_s), show: whole },
    Row { title: "MiB/s read", of: |run| Some(device(run)?.read_bytes_per_s), show: mib },
    Row { title: "MiB/s written", of: |run| Some(device(run)?.write_bytes_per_s), show: mib },
    Row { title: "read latency", of: |run| device(run)?.read_latency_ns, show: time },
    Row { title: "write latency", of: |run| device(run)?.write_latency_ns, show: time },
    Row { title: "flush latency", of: |run| device(run)?.flush_latency_ns, show: time },
    Row { title: "utilisation", of: |run| Some(device(run)?.utilisation), show: percent },
    Row { title: "I/Os at a time", of: |run| Some(device(run)?.depth_mean), show: tenths },
    Row { title: "CPU, command", of: |run| Some(run.cpu.user_s + run.cpu.sys_s), show: seconds },
    Row { title: "CPU, machine", of: |run| run.cpu.machine_s, show: seconds },
];

fn device(run: &Bench) -> Option<&DeviceUse> {
    run.command_run.as_ref()?.device.as_ref()
}

fn whole(value: f64) -> String {
    format!("{value:.0}")
}

fn tenths(value: f64) -> String {
    format!("{value:.1}")
}

fn mib(bytes: f64) -> String {
    tenths(bytes / 1_048_576.0)
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn seconds(seconds: f64) -> String {
    format!("{seconds:.2} s")
}

fn time(ns: f64) -> String {
    if ns >= 1e6 { format!("{:.2} ms", ns / 1e6) } else { format!("{:.0} us", ns / 1e3) }
}

/// Means over the rounds that count; none where no command was run, or no round counts. Latencies
/// are means over I/Os.
#[must_use]
pub fn table(compare: &Compare) -> Option<String> {
    let variants = &compare.variants;
    let mut rounds = variants.iter().flat_map(|variant| &variant.rounds);
    let run = rounds.find_map(|bench| bench.command_run.as_ref())?;
    let name = run.device.as_ref().map_or("the device", |device| device.name.as_str());
    let head = std::iter::once(format!("{name}, in /proc/diskstats"));
    let mut rows: Vec<Vec<String>> =
        vec![head.chain(variants.iter().map(|variant| variant.name.clone())).collect()];
    for Row { title, of, show } in &ROWS {
        let cells = variants.iter().map(|variant| {
            let values: Vec<f64> = variant.rounds.iter().filter_map(of).collect();
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            if values.is_empty() { String::from("-") } else { show(mean) }
        });
        rows.push(std::iter::once(String::from(*title)).chain(cells).collect());
    }
    // Rows that no variant has are of a kernel that does not count them.
    rows.retain(|row| row[1..].iter().any(|cell| cell != "-"));
    let mut text = String::new();
    let columns = variants.len() + 1;
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or_default()).collect();
    for row in &rows {
        let first = widths[0];
        let mut line = format!("{:<first$}", row[0]);
        for (cell, width) in row.iter().zip(&widths).skip(1) {
            line += &format!("  {cell:>width$}");
        }
        // Writing to a string does not fail.
        let _ = writeln!(text, "{line}");
    }
    text += CPU_TOLD;
    Some(text)
}

const CPU_TOLD: &str = "\"CPU, command\" is the time of the processes it started and waited for; \
                        servers that it\nasks, kernel workers and interrupts are in \"CPU, \
                        machine\" alone, as is all else that ran.\n";

#[cfg(test)]
mod tests {
    use super::*;
    use weir_trace::document::{CommandRun, Cpu, Variant};

    #[test]
    fn variants_stand_side_by_side_with_means_of_the_rounds_that_have_a_value() {
        let run = |reads_per_s: f64, read_latency_ns: Option<f64>| Bench {
            cpu: Cpu { user_s: 0.5, sys_s: 0.25, machine_s: Some(1.5), ..Cpu::default() },
            command_run: Some(CommandRun {
                device: Some(DeviceUse {
                    name: String::from("sdb"),
                    reads_per_s,
                    read_latency_ns,
                    utilisation: 0.5,
                    ..DeviceUse::default()
                }),
                ..CommandRun::default()
            }),
            ..Bench::default()
        };
        let variant = |name: &str, rounds: Vec<Bench>| Variant {
            name: String::from(name),
            rounds,
            ..Variant::default()
        };
        let rounds = vec![run(100.0, Some(2e6)), run(300.0, Some(4e6)), run(0.0, None)];
        let variants = vec![variant("none", rounds), variant("bfq", Vec::new())];
        let text = table(&Compare { variants, ..Compare::default() }).expect("a table");
        let line = |title: &str| {
            let found = text.lines().find(|line| line.starts_with(title)).expect(title);
            found[title.len()..].split_whitespace().map(String::from).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(line("sdb, in /proc/diskstats"), "none bfq");
        assert_eq!(line("reads a second"), "133 -");
        assert_eq!(line("read latency"), "3.00 ms -");
        assert_eq!(
            (line("utilisation"), line("CPU, command")),
            ("50 % -".into(), "0.75 s -".into())
        );
        assert_eq!(line("CPU, machine"), "1.50 s -");
        assert!(!text.contains("flush latency"), "no round has any: {text}");
        let plain =
            Compare { variants: vec![variant("a", vec![Bench::default()])], ..Compare::default() };
        assert_eq!(table(&plain), None);
    }
}
