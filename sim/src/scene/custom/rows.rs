//! The rows of a case: those of the host, and of each kind of processes.

use crate::figures::{Figures, KindFigures};
use crate::scene::{Row, rows_of};

fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

pub(super) fn rows(case: &str, figures: &Figures) -> Vec<Row> {
    let busy = figures.time.user + figures.time.system + figures.time.spin;
    let commands = figures.commands;
    let whole = [
        ("iops", figures.iops()),
        ("commands", (commands.reads + commands.changes + commands.flushes) as f64),
        ("cpu_busy_pct", busy as f64 * 100.0 / (figures.ns * figures.cpus) as f64),
        ("lock_wait_pct", if busy > 0 { figures.spin_percent() } else { 0.0 }),
    ];
    let mut rows = rows_of(case, whole);
    if figures.failed > 0 {
        rows.extend(rows_of(case, [("failed", figures.failed as f64)]));
    }
    figures.kinds.iter().for_each(|kind| rows.extend(of_kind(case, kind, figures.ns)));
    rows
}

fn of_kind(case: &str, kind: &KindFigures, ns: u64) -> Vec<Row> {
    let case = format!("{case} process={}", kind.name);
    let each = kind.each.iter().map(|one| one.iops(ns));
    let (least, most) =
        each.fold((f64::INFINITY, 0.0_f64), |(least, most), one| (least.min(one), most.max(one)));
    let all = kind.all;
    let mut rows = rows_of(
        &case,
        [
            ("iops", all.iops(ns)),
            ("mib_per_s", all.bytes as f64 / f64::from(1 << 20) * 1e9 / ns as f64),
            ("latency_us", all.latency_ns() / 1e3),
            ("p50_us", us(all.p50)),
            ("p99_us", us(all.p99)),
            ("max_us", us(all.max)),
        ],
    );
    if kind.each.len() > 1 {
        rows.extend(rows_of(&case, [("least_iops", least), ("most_iops", most)]));
    }
    if let Some(lasted) = all.lasted_s() {
        rows.extend(rows_of(&case, [("makespan_s", lasted)]));
    }
    rows
}
