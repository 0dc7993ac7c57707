//! The requests of each hard queue in the measured time.

use crate::numbers::{NONE, count};
use crate::page::Table;
use weir_trace::document::{BenchDocument, HardQueue};

/// Hard queues that have a row each; of more than these one row tells the sum of the others.
const ROWS: usize = 64;

/// A row for each hard queue of the disks with several, and a column for each set of runs: the
/// requests of that queue in all of them, and their share of the disk's.
pub(crate) fn table(columns: &[(String, Vec<&BenchDocument>)]) -> Table {
    let caption =
        "Requests of each hard queue that the driver ended, and their share of the disk's";
    let mut table = Table::new(caption, ["disk", "queue"]);
    table.head.extend(columns.iter().map(|(label, _)| label.clone()));
    let sums: Vec<Vec<HardQueue>> = columns.iter().map(|(_, runs)| sum(runs)).collect();
    let mut rows: Vec<(&str, u16)> = Vec::new();
    for queue in sums.iter().flatten() {
        let several = |sum: &Vec<HardQueue>| of_disk(sum, &queue.disk).count() > 1;
        let row = (queue.disk.as_str(), queue.queue);
        if sums.iter().any(several) && !rows.contains(&row) {
            rows.push(row);
        }
    }
    let rest = rows.split_off(rows.len().min(ROWS));
    for (disk, queue) in rows {
        let cells = sums.iter().map(|sum| cell(sum, disk, queue));
        let names = [String::from(disk), queue.to_string()];
        table.rows.push(names.into_iter().chain(cells).collect());
    }
    if !rest.is_empty() {
        let names = [format!("{} more", rest.len()), String::new()];
        let cells = sums.iter().map(|_| String::from(NONE));
        table.rows.push(names.into_iter().chain(cells).collect());
    }
    table
}

fn of_disk<'a>(sum: &'a [HardQueue], disk: &'a str) -> impl Iterator<Item = &'a HardQueue> {
    sum.iter().filter(move |queue| queue.disk == disk)
}

/// The hard queues of all runs, each once.
fn sum(runs: &[&BenchDocument]) -> Vec<HardQueue> {
    let mut sum: Vec<HardQueue> = Vec::new();
    for more in runs.iter().flat_map(|run| &run.bench.hard_queues) {
        let is_it = |known: &&mut HardQueue| known.disk == more.disk && known.queue == more.queue;
        match sum.iter_mut().find(is_it) {
            None => sum.push(more.clone()),
            Some(known) => known.completed = known.completed.saturating_add(more.completed),
        }
    }
    sum
}

fn cell(sum: &[HardQueue], disk: &str, number: u16) -> String {
    let Some(queue) = of_disk(sum, disk).find(|queue| queue.queue == number) else {
        return String::from(NONE);
    };
    let all: f64 = of_disk(sum, disk).map(|queue| queue.completed as f64).sum();
    let share = queue.completed as f64 / all * 100.0;
    match share.is_finite() {
        true => format!("{} ({share:.1} %)", count(queue.completed as f64)),
        false => count(queue.completed as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_trace::document::Bench;

    fn run(queues: &[(&str, u16, u64)]) -> BenchDocument {
        let one = |(disk, queue, completed): &(&str, u16, u64)| HardQueue {
            disk: String::from(*disk),
            queue: *queue,
            dispatched: completed + 1,
            completed: *completed,
        };
        let hard_queues = queues.iter().map(one).collect();
        BenchDocument {
            bench: Bench { hard_queues, ..Bench::default() },
            ..BenchDocument::default()
        }
    }

    #[test]
    fn each_hard_queue_has_its_share_of_all_runs() {
        let (a, b) = (run(&[("x", 0, 10), ("x", 1, 20)]), run(&[("x", 0, 50), ("x", 1, 20)]));
        let (c, d) = (run(&[("x", 0, 7)]), run(&[]));
        let columns =
            [("two".into(), vec![&a, &b]), ("one".into(), vec![&c]), ("none".into(), vec![&d])];
        let found = table(&columns);
        assert_eq!(found.head, ["disk", "queue", "two", "one", "none"]);
        let rows =
            [["x", "0", "60 (60.0 %)", "7 (100.0 %)", NONE], ["x", "1", "40 (40.0 %)", NONE, NONE]];
        assert_eq!(found.rows, rows);
    }

    #[test]
    fn disks_with_one_hard_queue_are_left_out_and_many_are_told_as_one() {
        let single = run(&[("x", 0, 7), ("y", 0, 7)]);
        assert!(table(&[("a".into(), vec![&single])]).rows.is_empty());
        let many: Vec<_> = (0..70).map(|queue| ("x", queue, 0)).collect();
        let rows = table(&[("a".into(), vec![&run(&many)])]).rows;
        assert_eq!((rows.len(), &rows[0][2], &rows[64][0]), (65, &"0".into(), &"6 more".into()));
    }
}
