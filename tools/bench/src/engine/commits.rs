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
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt;

use weir_load::Range;
use weir_load::oltp::format::{BLOCK_BYTES, CHANGES};

use crate::workload::groups::Part;

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
    /// The last that had begun before it.
    pub(crate) before: Option<Box<Run>>,
}

/// The heading of a run, before any of its commits; `redo` has no targets where it is on the
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

/// Bytes of a line at most: a path of the kernel's, with room for options.
const LINE_MAX: u64 = 16 << 10;

/// Begins a run in the file: behind whole lines, and with all of its heading or nothing.
///
/// # Errors
/// A failure of the file; that its last line is none of such a file, and not for us to cut.
pub(crate) fn begin(mut file: &File, heading: &str) -> Result<(), String> {
    let why = |error: io::Error| format!("the file of commits: {error}");
    let data = file.metadata().map_err(why)?;
    let whole = if data.is_file() { Some(whole_lines(file, data.len())?) } else { None };
    if let Some(whole) = whole.filter(|whole| *whole < data.len()) {
        file.set_len(whole).map_err(why)?;
    }
    // In one piece: a reader meanwhile finds whole lines.
    file.write_all(heading.as_bytes()).map_err(|error| {
        // Half a heading would stand before the commits of the run before.
        let cut = whole.map(|whole| file.set_len(whole));
        match cut {
            Some(Err(again)) => format!("{}; to take that back: {again}", why(error)),
            _ => why(error),
        }
    })
}

/// How many of the file's bytes are whole lines. Bytes behind them were being written when a run
/// was killed or its disk was full.
fn whole_lines(file: &File, bytes: u64) -> Result<u64, String> {
    let why = |error: io::Error| format!("the file of commits: {error}");
    let mut end = vec![0; bytes.min(LINE_MAX) as usize];
    let from = bytes - end.len() as u64;
    file.read_exact_at(&mut end, from).map_err(why)?;
    let lines = end.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
    let torn = &end[lines..];
    let is_ours = |begins: &[u8]| torn.starts_with(begins) || begins.starts_with(torn);
    if (lines == 0 && from > 0) || !(is_ours(b"commit ") || is_ours(b"run ")) {
        return Err(format!(
            "the file of commits: its last line, from byte {}, is none of a run of oltp",
            from + lines as u64
        ));
    }
    Ok(from + lines as u64)
}

/// The last run in the file. A last line without its end was being written when the power went, so
/// it was not acknowledged. Nor was a line inside which another one begins; and a run whose heading
/// is not whole had not begun.
///
/// # Errors
/// The line that is none of such a file; that there is no run in it, or only a part of one.
pub(crate) fn read(text: &str) -> Result<Run, String> {
    let mut run = Run::default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    for (line, text) in (1..).zip(whole.lines()) {
        let read = run.take(behind_torn(text));
        read.ok_or_else(|| format!("line {line}: {text:?} is none of a run of oltp"))?;
    }
    if run.has_begun() {
        return Ok(run);
    }
    let before = run.before.map(|before| *before);
    before.ok_or_else(|| String::from("there is no run of oltp in it"))
}

/// The line that stands behind one without an end, or all of it.
fn behind_torn(text: &str) -> &str {
    let begins_run = |at: usize| {
        let words: Vec<&str> = text[at..].splitn(9, ' ').collect();
        let [_, run, "data", "disk", "1", "of", of, "at", _] = words[..] else { return false };
        run.parse::<u64>().is_ok() && of.parse::<u64>().is_ok()
    };
    // The name of a target may hold any word, a commit holds none.
    let run = text.rmatch_indices("run ").find(|(at, _)| begins_run(*at));
    let commit = || text.rmatch_indices("commit ").next().filter(|_| text.starts_with("commit "));
    run.or_else(commit).map_or(text, |(at, _)| &text[at..])
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
            let mut earlier = std::mem::replace(self, Run { number, ..Run::default() });
            let before = earlier.before.take();
            self.before = if earlier.has_begun() { Some(Box::new(earlier)) } else { before };
        }
        Some(())
    }

    /// Whether its heading is there.
    fn has_begun(&self) -> bool {
        !self.instances.is_empty() && !self.data.is_empty()
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
    fn a_line_without_its_end_is_skipped_also_where_another_run_went_on_behind_it() {
        let commit = |id: u64| format!("commit 0 {id} {BLOCKS}\n");
        let later = HEAD.replace("run 7", "run 8");
        for torn in
            ["", "c", "commit 0 2 0,0", "run 7 instance 0 da", "run 7 data disk 1 of 1 at f"]
        {
            let text = format!("{HEAD}{}{torn}{later}{}", commit(1), commit(3));
            let run = read(&text).unwrap_or_else(|why| panic!("{torn:?}: {why}"));
            assert_eq!((run.number, run.data), (8, vec![String::from("file:x")]), "{torn:?}");
            assert!(run.instances[&0].commits.keys().eq(&[3]), "{torn:?}");
        }
        // One thread had no room for all of its line, and another still had.
        let text = format!("{HEAD}{}commit 0 2 0,{}", commit(1), commit(3));
        let run = read(&text).expect("a file of commits");
        assert!(run.instances[&0].commits.keys().eq(&[1, 3]));
        // A run whose heading is not whole had not begun.
        let text = format!("{HEAD}{}run 8 data disk 1 of 2 at file:y\nrun 8 da", commit(1));
        let run = read(&text).expect("a file of commits");
        assert_eq!((run.number, run.instances[&0].commits.len()), (7, 1));
    }

    #[test]
    fn a_run_begins_behind_whole_lines_and_cuts_nothing_but_its_own() {
        let path = std::env::temp_dir().join(format!("weir-commits-{}", std::process::id()));
        let begun = |before: &str| {
            std::fs::write(&path, before).expect("a file");
            let file = File::options().read(true).append(true).open(&path).expect("it opens");
            let begun = begin(&file, "run 9\n");
            (begun, std::fs::read_to_string(&path).expect("a file"))
        };
        for (before, whole) in [
            (String::new(), ""),
            (String::from(HEAD), HEAD),
            (String::from("ru"), ""),
            (format!("{HEAD}commit 0 1 0,"), HEAD),
            (format!("{HEAD}run 8 data disk 1 of"), HEAD),
        ] {
            let (ended, text) = begun(&before);
            assert_eq!((ended, text), (Ok(()), format!("{whole}run 9\n")), "{before:?}");
        }
        let long = "x".repeat(40_000);
        for (before, at) in [("a diary\nwithout an end", 8), (long.as_str(), 40_000 - LINE_MAX)] {
            let (ended, text) = begun(before);
            let why = ended.expect_err("none of ours");
            assert!(why.contains(&format!("last line, from byte {at}, is none")), "{why}");
            assert_eq!(text, before);
        }
        std::fs::remove_file(&path).expect("a file of ours");
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
