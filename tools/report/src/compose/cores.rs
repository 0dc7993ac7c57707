//! The time of each CPU of the machine in the measured time.

use crate::numbers::NONE;
use crate::page::Table;
use weir_trace::document::{BenchDocument, Core};

/// A row for each CPU and a column for each set of runs, its shares over all of them.
pub(crate) fn table(columns: &[(String, Vec<&BenchDocument>)]) -> Table {
    let caption = "Each CPU of the machine: user, system, idle and steal time, per cent";
    let mut table = Table::new(caption, ["CPU"]);
    table.head.extend(columns.iter().map(|(label, _)| label.clone()));
    let all = columns.iter().flat_map(|(_, runs)| runs).flat_map(|run| &run.cores);
    let mut numbers: Vec<u32> = all.map(|core| core.cpu).collect();
    numbers.sort_unstable();
    numbers.dedup();
    for number in numbers {
        let cells = columns.iter().map(|(_, runs)| {
            let cores = runs.iter().flat_map(|run| &run.cores);
            shares(cores.filter(|core| core.cpu == number))
        });
        table.rows.push(std::iter::once(number.to_string()).chain(cells).collect());
    }
    table
}

fn shares<'a>(cores: impl Iterator<Item = &'a Core>) -> String {
    let sum = cores.fold([0.0; 4], |sum, core| {
        let Core { user_s, sys_s, idle_s, steal_s, .. } = *core;
        let parts = [user_s, sys_s, idle_s, steal_s];
        std::array::from_fn(|part| sum[part] + parts[part])
    });
    let all: f64 = sum.iter().sum();
    if !(all.is_finite() && all > 0.0) {
        return String::from(NONE);
    }
    sum.map(|part| format!("{:.0}", part / all * 100.0)).join(" / ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(cores: &[(u32, [f64; 4])]) -> BenchDocument {
        let core = |(cpu, [user_s, sys_s, idle_s, steal_s]): &(u32, [f64; 4])| Core {
            cpu: *cpu,
            user_s: *user_s,
            sys_s: *sys_s,
            idle_s: *idle_s,
            steal_s: *steal_s,
        };
        let cores = cores.iter().map(core).collect();
        BenchDocument { cores, ..BenchDocument::default() }
    }

    #[test]
    fn a_cpu_has_its_shares_over_all_runs_and_none_where_it_is_not_known() {
        let runs = [
            run(&[(0, [1.0, 0.5, 0.5, 0.0]), (1, [0.0, 0.0, 2.0, 0.0])]),
            run(&[(0, [0.0, 0.5, 1.0, 0.5])]),
            run(&[]),
        ];
        let [a, b, c] = &runs;
        let found = table(&[("x".into(), vec![a, b]), ("y".into(), vec![c])]);
        assert_eq!(found.head, ["CPU", "x", "y"]);
        assert_eq!(found.rows, [["0", "25 / 25 / 38 / 12", NONE], ["1", "0 / 0 / 100 / 0", NONE]]);
        assert!(table(&[("x".into(), vec![c])]).rows.is_empty());
    }
}
