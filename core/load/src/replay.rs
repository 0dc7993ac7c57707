//! I/Os from a trace in fio's format, version 2 ("Trace file format v2" in its HOWTO).

use std::io::{BufRead, BufReader, Read};

use weir_bio::{Nanos, SECTOR};

use crate::ask::Ask;
use crate::job::{Direction, Job, JobError, Range};
use crate::quantity::Amount;
use crate::sizes::Sizes;

/// The longest trace, I/Os: 32 bytes of memory each.
const IOS_MAX: usize = 1 << 24;
/// Waits below this are not made, us.
const WAIT_MIN_US: u64 = 100;

/// One line of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Direction, first byte, bytes.
    Io(u8, u64, u64),
    Flush,
    /// Nothing before so long after the start.
    Wait(u64),
}

/// A trace, and how far it is.
#[derive(Clone, Debug)]
pub(crate) struct Replay {
    steps: Vec<Step>,
    next: usize,
    /// When it was begun.
    start: Option<Nanos>,
}

impl Replay {
    /// That of a job, whose range has all of it.
    pub(crate) fn of(job: &Job, range: Range) -> Result<Option<Replay>, JobError> {
        let Some(name) = &job.replay else { return Ok(None) };
        let steps = read(name).map_err(JobError)?;
        for step in &steps {
            let Step::Io(_, offset, bytes) = *step else { continue };
            if offset.saturating_add(bytes) > range.bytes {
                return Err(JobError(format!(
                    "read_iolog={name}: {bytes} bytes at {offset} are beyond size={}",
                    range.bytes
                )));
            }
        }
        Ok(Some(Replay { steps, next: 0, start: None }))
    }

    /// Begins again.
    pub(crate) fn rewind(&mut self) {
        (self.next, self.start) = (0, None);
    }

    /// A flush or a wait, if one is next.
    pub(crate) fn ask(&mut self, now: Nanos, flush: Ask) -> Option<Ask> {
        let start = *self.start.get_or_insert(now);
        while let Some(Step::Wait(ns)) = self.steps.get(self.next) {
            let until = start + *ns;
            if until > now {
                return Some(Ask::Wait(until));
            }
            self.next += 1;
        }
        let is_flush = self.steps.get(self.next) == Some(&Step::Flush);
        self.next += usize::from(is_flush);
        is_flush.then_some(flush)
    }

    /// The next I/O: its direction, first byte and bytes; `None` at the end.
    pub(crate) fn next(&mut self) -> Option<(usize, u64, u64)> {
        let Some(Step::Io(direction, offset, bytes)) = self.steps.get(self.next) else {
            return None;
        };
        self.next += 1;
        Some((usize::from(*direction), *offset, *bytes))
    }
}

/// Makes a job that of a trace: its direction, sizes and, if none is said, its range.
pub(crate) fn set(job: &mut Job) -> Result<(), String> {
    let Some(name) = &job.replay else { return Ok(()) };
    if job.verify.is_some() {
        return Err(format!("read_iolog={name} with verify: a trace has no content"));
    }
    if job.rate != [0; 3] || job.io_size.is_some() {
        return Err(format!("read_iolog={name} with a rate or io_size: it has its own"));
    }
    let steps = read(name)?;
    let (mut has, mut end, mut most, mut least) = ([false; 3], 0, 0, u64::MAX);
    for step in &steps {
        let Step::Io(direction, offset, bytes) = *step else { continue };
        has[usize::from(direction)] = true;
        end = end.max(offset.saturating_add(bytes));
        (most, least) = (most.max(bytes), least.min(bytes));
    }
    job.direction = match has {
        [true, false, false] => Direction::Read,
        [false, true, false] => Direction::Write,
        [true, true, false] => Direction::Mixed,
        [false, false, true] => Direction::Trim,
        [false, false, false] => return Err(format!("read_iolog={name}: it has no I/O")),
        _ => return Err(format!("read_iolog={name}: trims beside other I/O are not replayed")),
    };
    // Each as it is in the trace: none of them is as long as its memory for sure.
    let most = most.max(least.saturating_mul(2));
    let sizes = Sizes::Range { least, most };
    job.sizes = [sizes.clone(), sizes.clone(), sizes];
    job.size = job.size.or(Some(Amount::Bytes(end.max(most))));
    Ok(())
}

fn read(name: &str) -> Result<Vec<Step>, String> {
    let failed = |why: String| format!("read_iolog={name}: {why}");
    let about = std::fs::metadata(name).map_err(|error| failed(error.to_string()))?;
    if !about.is_file() {
        return Err(failed(String::from("it is no regular file")));
    }
    let file = std::fs::File::open(name).map_err(|error| failed(error.to_string()))?;
    parse(file).map_err(failed)
}

fn parse(from: impl Read) -> Result<Vec<Step>, String> {
    let (mut steps, mut waited) = (Vec::new(), 0_u64);
    for (number, line) in (1..).zip(BufReader::new(from).lines()) {
        let line = line.map_err(|error| format!("line {number}: {error}"))?;
        let line = line.trim();
        if number == 1 {
            match line {
                "fio version 2 iolog" => continue,
                "fio version 3 iolog" => {
                    return Err(String::from(
                        "version 3 does not say what its times are: 2 is read",
                    ));
                }
                _ => return Err(String::from("line 1: it is no \"fio version 2 iolog\"")),
            }
        }
        let wrong = || format!("line {number}: {line:?} is no action of a file");
        // A name may have blanks in it.
        let words: Vec<&str> = line.rsplitn(4, ' ').collect();
        let step = match words[..] {
            [] | [""] => None,
            [bytes, offset, action, _] if bytes.parse::<u64>().is_ok() => {
                let number = |text: &str| text.parse::<u64>().map_err(|_| wrong());
                let (offset, bytes) = (number(offset)?, number(bytes)?);
                let io = |direction| Some(Step::Io(direction, offset, bytes));
                match action {
                    "wait" if offset < WAIT_MIN_US => None,
                    "wait" => {
                        waited = waited.saturating_add(offset.saturating_mul(1000));
                        Some(Step::Wait(waited))
                    }
                    "sync" | "datasync" => Some(Step::Flush),
                    "read" => io(0),
                    "write" => io(1),
                    "trim" => io(2),
                    _ => return Err(wrong()),
                }
            }
            ["add" | "open" | "close", ..] if words.len() > 1 => None,
            ["sync" | "datasync", ..] if words.len() > 1 => Some(Step::Flush),
            _ => return Err(wrong()),
        };
        if let Some(Step::Io(_, offset, bytes)) = step
            && (bytes == 0 || !bytes.is_multiple_of(SECTOR) || !offset.is_multiple_of(SECTOR))
        {
            return Err(format!("line {number}: {bytes} bytes at {offset} are no sectors of 512"));
        }
        if steps.len() >= IOS_MAX {
            return Err(format!("it has more than {IOS_MAX} I/Os"));
        }
        steps.extend(step);
    }
    match steps.is_empty() {
        true => Err(String::from("it has no I/O")),
        false => Ok(steps),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_what_it_says_or_is_refused_with_its_number() {
        let text = "fio version 2 iolog\n/a b add\n/a b open\n/a b read 0 4096\n/a b wait 99 0\n\
                    /a b wait 100 0\n/a b write 4096 512\n/a b sync 0 0\n/a b trim 512 512\n\
                    /a b datasync\n/a b wait 300 0\n/a b close\n";
        let steps = parse(text.as_bytes()).expect("a trace");
        let wait = |us: u64| Step::Wait(us * 1000);
        let io = Step::Io;
        assert_eq!(
            steps,
            [
                io(0, 0, 4096),
                wait(100),
                io(1, 4096, 512),
                Step::Flush,
                io(2, 512, 512),
                Step::Flush,
                wait(400)
            ]
        );
        for (text, why) in [
            ("", "no I/O"),
            ("x\n", "line 1: it is no"),
            ("fio version 3 iolog\n", "version 3"),
            ("fio version 2 iolog\n", "no I/O"),
            ("fio version 2 iolog\n/a jump 0 1\n", "line 2: \"/a jump 0 1\" is no action"),
            ("fio version 2 iolog\n/a read x 1\n", "line 2:"),
            ("fio version 2 iolog\nread\n", "line 2:"),
            ("fio version 2 iolog\n/a read 0 100\n", "line 2: 100 bytes at 0 are no sectors"),
            ("fio version 2 iolog\n/a read 0 0\n", "line 2: 0 bytes"),
        ] {
            let told = parse(text.as_bytes()).expect_err(text);
            assert!(told.contains(why), "{text:?}: {told}");
        }
    }
}
