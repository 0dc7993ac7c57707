//! The requests of each hard queue in the measured time.

use crate::numbers::{NONE, count};
use crate::page::Table;
use weir_trace::document::BenchDocument;

/// Hard queues that have a row each; of more than these one row says how many there are.
const ROWS: usize = 64;

/// The hard queues of one disk over several runs: its targets, which variants have with options of
/// their own, and the requests of each queue.
#[derive(Default)]
struct Disk {
    targets: Vec<String>,
    completed: Vec<u64>,
}

/// A row for each hard queue of the disks with several, and a column for each set of runs: the
/// requests of that queue in all of them, and their share of the disk's. The disks of runs are one
/// by their place among the run's.
pub(crate) fn table(columns: &[(String, Vec<&BenchDocument>)]) -> Table {
    let caption =
        "Requests of each hard queue that the driver ended, and their share of the disk's";
    let mut table = Table::new(caption, ["disk", "queue"]);
    table.head.extend(columns.iter().map(|(label, _)| label.clone()));
    let sums: Vec<Vec<Disk>> = columns.iter().map(|(_, runs)| sum(runs)).collect();
    let mut rows = Vec::new();
    for place in 0..sums.iter().map(Vec::len).max().unwrap_or(0) {
        let here = || sums.iter().filter_map(|disks| disks.get(place));
        let queues = here().map(|disk| disk.completed.len()).max().unwrap_or(0);
        if queues < 2 {
            continue;
        }
        let name = common(&here().flat_map(|disk| &disk.targets).collect::<Vec<_>>());
        for queue in 0..queues {
            let cells = sums.iter().map(|disks| cell(disks.get(place), queue));
            rows.push([name.clone(), queue.to_string()].into_iter().chain(cells).collect());
        }
    }
    let more = rows.len().saturating_sub(ROWS);
    table.rows.extend(rows.into_iter().take(ROWS));
    if more > 0 {
        let names = [format!("{more} more"), String::new()];
        let cells = sums.iter().map(|_| String::from(NONE));
        table.rows.push(names.into_iter().chain(cells).collect());
    }
    table
}

/// What all targets of a disk begin with, up to an option; the first if they have nothing in
/// common.
fn common(targets: &[&String]) -> String {
    let Some((first, others)) = targets.split_first() else { return String::new() };
    if others.iter().all(|other| other == first) {
        return String::from(*first);
    }
    let begins = |end: usize| others.iter().all(|other| starts(other, &first[..end]));
    let mut ends = first.match_indices(',').map(|(end, _)| end).chain([first.len()]);
    let end = ends.rfind(|end| *end > 0 && begins(*end));
    String::from(&first[..end.unwrap_or(first.len())])
}

/// Whether a target begins with this one, and nothing but options follows.
fn starts(target: &str, with: &str) -> bool {
    target.strip_prefix(with).is_some_and(|rest| rest.is_empty() || rest.starts_with(','))
}

/// The disks of all runs, by their place.
fn sum(runs: &[&BenchDocument]) -> Vec<Disk> {
    let mut sum: Vec<Disk> = Vec::new();
    for run in runs {
        let of_disks = run.bench.hard_queues.chunk_by(|one, next| one.disk == next.disk);
        for (place, queues) in of_disks.enumerate() {
            if sum.len() <= place {
                sum.push(Disk::default());
            }
            let disk = &mut sum[place];
            disk.targets.extend(queues.first().map(|queue| queue.disk.clone()));
            for (number, queue) in queues.iter().enumerate() {
                match disk.completed.get_mut(number) {
                    None => disk.completed.push(queue.completed),
                    Some(known) => *known = known.saturating_add(queue.completed),
                }
            }
        }
    }
    sum
}

fn cell(disk: Option<&Disk>, number: usize) -> String {
    let Some((completed, disk)) = disk.and_then(|disk| Some((disk.completed.get(number)?, disk)))
    else {
        return String::from(NONE);
    };
    let all: f64 = disk.completed.iter().map(|completed| *completed as f64).sum();
    let share = *completed as f64 / all * 100.0;
    match share.is_finite() {
        true => format!("{} ({share:.1} %)", count(*completed as f64)),
        false => count(*completed as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_trace::document::{Bench, HardQueue};

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
    fn a_disk_is_one_whatever_options_its_variants_have() {
        let a = run(&[
            ("ram:1MiB,queues=2,spread=submitter", 0, 10),
            ("ram:1MiB,queues=2,spread=submitter", 1, 30),
        ]);
        let b = run(&[("ram:1MiB,queues=2", 0, 5), ("ram:1MiB,queues=2", 1, 5)]);
        let c = run(&[("file:x", 0, 5), ("file:x", 1, 5)]);
        let found = |two| table(&[("a".into(), vec![&a]), ("b".into(), vec![two])]).rows;
        let rows = |name: &str| {
            [["0", "10 (25.0 %)"], ["1", "30 (75.0 %)"]].map(|[queue, first]| {
                [name.into(), queue.into(), first.into(), String::from("5 (50.0 %)")]
            })
        };
        assert_eq!(found(&b), rows("ram:1MiB,queues=2"));
        assert_eq!(found(&c), rows("ram:1MiB,queues=2,spread=submitter"));
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
