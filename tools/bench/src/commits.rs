//! The file of commits: where a run of `oltp` had its data and its redo, and what it acknowledged.
//! A line for each:
//!
//! ```text
//! run RUN data disk 1 of 2 at TARGET
//! run RUN redo disk 1 of 1 at TARGET
//! run RUN instance N data OFFSET+BYTES redo OFFSET+BYTES
//! commit N ID BLOCK,BLOCK,...
//! ```
//!
//! Offsets and bytes are those of the group. There is no redo disk where redo is at the end of the
//! data's.

use std::collections::BTreeMap;
use std::fmt::Write;

use weir_load::Range;
use weir_load::oltp::format::{BLOCK_BYTES, CHANGES};

use crate::groups::Part;

/// One instance as the file has it.
pub(crate) struct Acknowledged {
    pub(crate) part: Part,
    /// With the data blocks each changed.
    pub(crate) commits: BTreeMap<u64, [u64; CHANGES]>,
}

/// The last run in a file.
#[derive(Default)]
pub(crate) struct Run {
    pub(crate) number: u64,
    /// The targets of the data, and those of the redo.
    pub(crate) data: Vec<String>,
    pub(crate) redo: Vec<String>,
    pub(crate) instances: BTreeMap<u16, Acknowledged>,
}

/// What the file says of a run before any of its commits; `redo` has no targets where it is on the
/// data's.
pub(crate) fn heading(run: u64, [data, redo]: [&[String]; 2], parts: &[Part]) -> String {
    let mut text = String::new();
    for (what, targets) in [("data", data), ("redo", redo)] {
        for (number, target) in (1..).zip(targets) {
            let of = targets.len();
            let line = writeln!(text, "run {run} {what} disk {number} of {of} at {target}");
            line.expect("a string takes text");
        }
    }
    for (instance, Part { data, redo }) in parts.iter().enumerate() {
        let [data, redo] = [data, redo].map(|range| format!("{}+{}", range.offset, range.bytes));
        writeln!(text, "run {run} instance {instance} data {data} redo {redo}")
            .expect("a string takes text");
    }
    text
}

/// The last run in the file. A last line without its end was being written when the power went:
/// nobody has read it.
///
/// # Errors
/// The line that is none of such a file; that there is no run in it, or only a part of one.
pub(crate) fn read(text: &str) -> Result<Run, String> {
    let mut run = Run::default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    for (line, text) in (1..).zip(whole.lines()) {
        let read = run.take(text);
        read.ok_or_else(|| format!("line {line}: {text:?} is none of a run of oltp"))?;
    }
    if run.instances.is_empty() || run.data.is_empty() {
        return Err(String::from("there is no run of oltp in it"));
    }
    Ok(run)
}

impl Run {
    fn take(&mut self, text: &str) -> Option<()> {
        let (text, target) = match text.split_once(" at ") {
            Some((text, target)) => (text, Some(target)),
            None => (text, None),
        };
        let words: Vec<_> = text.split(' ').collect();
        match (&words[..], target) {
            (["commit", instance, id, blocks], None) => self.take_commit(instance, id, blocks),
            (["run", run, what, "disk", number, "of", of], Some(target)) => {
                self.begin(run)?;
                let targets = match *what {
                    "data" => &mut self.data,
                    "redo" => &mut self.redo,
                    _ => return None,
                };
                targets.push(String::from(target));
                let (number, of): (usize, usize) = (number.parse().ok()?, of.parse().ok()?);
                (targets.len() == number && number <= of).then_some(())
            }
            (["run", run, "instance", instance, "data", data, "redo", redo], None) => {
                self.begin(run)?;
                let part = Part { data: range(data)?, redo: range(redo)? };
                let acknowledged = Acknowledged { part, commits: BTreeMap::new() };
                self.instances.insert(instance.parse().ok()?, acknowledged);
                Some(())
            }
            _ => None,
        }
    }

    /// Another run overwrites what those before it left.
    fn begin(&mut self, run: &str) -> Option<()> {
        let number = run.parse().ok()?;
        if number != self.number {
            *self = Run { number, ..Run::default() };
        }
        Some(())
    }

    fn take_commit(&mut self, instance: &str, id: &str, blocks: &str) -> Option<()> {
        let known = self.instances.get_mut(&instance.parse().ok()?)?;
        let blocks: Option<Vec<u64>> = blocks.split(',').map(|block| block.parse().ok()).collect();
        let blocks: [u64; CHANGES] = blocks?.try_into().ok()?;
        // A block beyond the data is none of this instance.
        let within = blocks.iter().all(|block| *block < known.part.data.bytes / BLOCK_BYTES);
        known.commits.insert(id.parse().ok()?, within.then_some(blocks)?);
        Some(())
    }
}

fn range(text: &str) -> Option<Range> {
    let (offset, bytes) = text.split_once('+')?;
    Some(Range { offset: offset.parse().ok()?, bytes: bytes.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCKS: &str = "0,0,0,0,0,0,0,0";
    const HEAD: &str = "run 7 data disk 1 of 1 at file:x\n\
                        run 7 instance 0 data 0+8192 redo 8192+4096\n";

    #[test]
    fn the_last_run_counts_and_a_line_without_its_end_does_not() {
        let earlier = format!("{}commit 0 9 {BLOCKS}\n", HEAD.replace("run 7", "run 6"));
        let text = format!("{earlier}{HEAD}commit 0 1 {BLOCKS}\nco");
        let run = read(&text).expect("a file of commits");
        assert_eq!(run.instances[&0].commits, BTreeMap::from([(1, [0; CHANGES])]));
        assert_eq!((run.number, run.data.len()), (7, 1));
    }

    #[test]
    fn what_was_said_of_a_run_is_read_back() {
        let names = |names: &[&str]| names.iter().map(|n| String::from(*n)).collect::<Vec<_>>();
        let (data, redo) = (names(&["file:a b,queues=1", "file:c at d"]), names(&["ram:1M"]));
        let range = |offset, bytes| Range { offset, bytes };
        let parts = [0, 1].map(|n| Part { data: range(n, 8), redo: range(9 + n, 10) });
        let run = read(&heading(3, [&data, &redo], &parts)).expect("a file of commits");
        assert_eq!((run.number, run.data, run.redo), (3, data.clone(), redo));
        assert_eq!([0, 1].map(|instance| run.instances[&instance].part), parts);
        let shared = read(&heading(3, [&data, &[]], &parts)).expect("a file of commits");
        assert!(shared.redo.is_empty());
    }

    #[test]
    fn what_is_no_file_of_commits_is_refused_with_its_line() {
        let behind = |line: &str| format!("{HEAD}{line}\n");
        for (text, part) in [
            (String::new(), "no run"),
            (String::from("run 7 instance 0 data 0+8192 redo 8192+4096\n"), "no run"),
            (String::from("commit 0 1\n"), "line 1"),
            (behind(&format!("commit 0 x {BLOCKS}")), "line 3"),
            (behind("commit 0 1"), "line 3"),
            (behind("commit 0 1 0,0"), "line 3"),
            // Its data are one block.
            (behind("commit 0 1 0,0,0,1,0,0,0,0"), "line 3"),
            // The second of two, of which the first is not there.
            (behind("run 7 redo disk 2 of 2 at file:y"), "line 3"),
        ] {
            assert!(read(&text).is_err_and(|why| why.contains(part)), "{text}");
        }
    }
}
