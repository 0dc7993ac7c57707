//! `weir record`: what a live disk's scheduler is given and what it chooses, as a file to replay.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Seek, Write};
use std::net::Shutdown;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use weir_access::save;
use weir_control::RECORDING_END;

use crate::Failure;
use crate::completion::disks;
use crate::control::Control;
use crate::output::print_line;

/// Records what the scheduler of a running daemon's disk is given and what it chooses.
///
/// The recording is for `weir replay`. It begins with a scheduler that is made anew, with the
/// tunables it has, while the disk is frozen for a moment; it ends after --seconds, with a signal
/// (Ctrl-C), or in front of a change that it cannot state: another scheduler, a tunable, a limit.
/// Exit status 1 if it ended before it was to, or lost events because it was not written fast
/// enough; what the file holds is whole and can be replayed up to there.
///
/// Example: weir record sda -o sda.replay --seconds 10
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Record {
    /// The disk.
    #[arg(add = disks())]
    disk: String,
    /// The file to write.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// How long; without it until a signal comes.
    #[arg(long, value_name = "N", value_parser = seconds)]
    seconds: Option<Duration>,
    /// Writes over a file that holds something else than a recording.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    control: Control,
}

/// Shortest and longest recording, seconds.
const SECONDS: std::ops::RangeInclusive<f64> = 0.1..=86_400.0;

/// Between two looks at the clock and at signals.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// How long a daemon may take to send the rest.
const REST_LIMIT: Duration = Duration::from_secs(10);

/// So much of a file tells whether it is a recording.
const HEAD: u64 = 4096;

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| SECONDS.contains(seconds));
    let (least, most) = (SECONDS.start(), SECONDS.end());
    let why = || format!("not a number of seconds in {least}..={most}");
    seconds.map(Duration::from_secs_f64).ok_or_else(why)
}

impl Record {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let name = self.output.display().to_string();
        let bad = |error: io::Error| Failure::Bad(format!("{name}: {error}"));
        // Before anything of the daemon's changes, and while a signal still ends the command: a
        // pipe without a reader is waited for here.
        let refused = |why: String| Failure::Bad(format!("{name}: {why}"));
        let known = self.open().map_err(refused)?;
        let stop = stop_signal()?;
        let stream = self.ask()?;
        // What was there is written over from here on. Only a file can be cut.
        let file = match known {
            Some(file) => file,
            None => self.create().map_err(refused)?,
        };
        if file.metadata().map_err(bad)?.is_file() {
            file.set_len(0).map_err(bad)?;
        }
        let mut sheet = Sheet::new(file);
        let began = Instant::now();
        let gone = match self.copy(stream, &stop, began, &mut sheet) {
            Ok(()) => String::from("the daemon went away"),
            Err(Stop::Daemon(error)) => format!("the daemon is gone: {error}"),
            Err(Stop::File(error)) => {
                let events = sheet.events;
                let why = format!("{name}: {error}; it holds the {events} events before that");
                return Err(Failure::Bad(why));
            }
        };
        let (events, dispatches) = (sheet.events, sheet.dispatches);
        let why = match sheet.end.take() {
            Some(why) if why == STOPPED => {
                return print_line(&format!(
                    "{}: {events} events, {dispatches} dispatches in {:.1} s in {name}",
                    self.disk,
                    began.elapsed().as_secs_f64()
                ));
            }
            Some(why) => why,
            None => {
                sheet.put(format!("{RECORDING_END}{gone}\n").as_bytes()).map_err(bad)?;
                gone
            }
        };
        let early = format!("{name}: the recording ends early, after {events} events: {why}");
        Err(Failure::No(early))
    }

    /// Has the daemon begin.
    fn ask(&self) -> Result<BufReader<UnixStream>, Failure> {
        Ok(self.control.connect()?.record(&self.disk)?)
    }

    /// The file, which may be written over and is no other command's, as it is. `None`: there is
    /// none, and one can be made.
    fn open(&self) -> Result<Option<File>, String> {
        let kind = match std::fs::metadata(&self.output) {
            Ok(about) => about.file_type(),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                save::probe(&self.output).map_err(said)?;
                return Ok(None);
            }
            Err(error) => return Err(said(error)),
        };
        if kind.is_block_device() {
            return Err(String::from("a block device is no place for a recording"));
        }
        let mut options = OpenOptions::new();
        options.write(true);
        if !kind.is_file() {
            // A pipe or a terminal keeps nothing; a directory is refused.
            return options.open(&self.output).map(Some).map_err(said);
        }
        let mut file = options.read(true).open(&self.output).map_err(said)?;
        if !file.metadata().map_err(said)?.is_file() {
            return Err(String::from("it was replaced by something that is no file"));
        }
        lock(&file)?;
        if !self.force && !is_free(&mut file).map_err(said)? {
            return Err(String::from("it is there and is no recording; --force writes over it"));
        }
        Ok(Some(file))
    }

    /// Makes the file; one that has come since is not touched.
    fn create(&self) -> Result<File, String> {
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).open(&self.output).map_err(said)?;
        lock(&file)?;
        Ok(file)
    }

    /// Writes what comes until the daemon sends no more.
    fn copy(
        &self,
        mut stream: BufReader<UnixStream>,
        stop: &AtomicBool,
        began: Instant,
        sheet: &mut Sheet,
    ) -> Result<(), Stop> {
        stream.get_ref().set_read_timeout(Some(LOOK_AGAIN)).map_err(Stop::Daemon)?;
        let mut stopped: Option<Instant> = None;
        loop {
            let due = self.seconds.is_some_and(|seconds| began.elapsed() >= seconds);
            if stopped.is_none() && (due || stop.load(Ordering::Acquire)) {
                // A daemon that is gone is found out by reading.
                let _ = stream.get_ref().shutdown(Shutdown::Write);
                stopped = Some(Instant::now());
            }
            let taken = match stream.fill_buf() {
                Ok([]) => return Ok(()),
                Ok(bytes) => {
                    sheet.take(bytes).map_err(Stop::File)?;
                    bytes.len()
                }
                Err(error) if is_no_news(&error) => 0,
                Err(error) => return Err(Stop::Daemon(error)),
            };
            stream.consume(taken);
            if stopped.is_some_and(|stopped| stopped.elapsed() > REST_LIMIT) {
                return Err(Stop::Daemon(ErrorKind::TimedOut.into()));
            }
        }
    }
}

/// The reason of a recording that ended as it was to.
const STOPPED: &str = "it was stopped";

fn is_no_news(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// Becomes true with a signal that asks for an end; a second one ends the command at once.
fn stop_signal() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        let again = signal_hook::flag::register_conditional_default(signal, Arc::clone(&stop));
        again.map_err(|error| Failure::Bad(format!("signals: {error}")))?;
        let heard = signal_hook::flag::register(signal, Arc::clone(&stop));
        heard.map_err(|error| Failure::Bad(format!("signals: {error}")))?;
    }
    Ok(stop)
}

fn said(error: io::Error) -> String {
    error.to_string()
}

/// Keeps other recordings out of the file.
fn lock(file: &File) -> Result<(), String> {
    flock(file, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
        Errno::WOULDBLOCK => String::from("another command writes to it"),
        error => error.to_string(),
    })
}

/// Whether nothing but a recording is lost if this file, just opened, is written over.
fn is_free(file: &mut File) -> io::Result<bool> {
    let mut head = Vec::new();
    Read::by_ref(file).take(HEAD).read_to_end(&mut head)?;
    file.rewind()?;
    Ok(head.is_empty() || is_recording(&head))
}

/// Whether a file that begins like this is a recording.
fn is_recording(head: &[u8]) -> bool {
    let text = String::from_utf8_lossy(head);
    let mut lines = text.lines().map(str::trim);
    let first = lines.find(|line| !line.is_empty() && !line.starts_with('#'));
    first.is_some_and(|line| line.starts_with("scheduler "))
}

/// Why nothing more is written.
enum Stop {
    /// The file takes no more.
    File(io::Error),
    /// The daemon cannot be read.
    Daemon(io::Error),
}

/// The file, which gets whole lines only.
struct Sheet {
    file: File,
    /// The beginning of a line whose end has not come.
    rest: Vec<u8>,
    /// Bytes of the whole lines written.
    written: u64,
    events: u64,
    dispatches: u64,
    /// The reason in the last line.
    end: Option<String>,
}

impl Sheet {
    fn new(file: File) -> Sheet {
        Sheet { file, rest: Vec::new(), written: 0, events: 0, dispatches: 0, end: None }
    }

    fn take(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(last) = bytes.iter().rposition(|byte| *byte == b'\n') else {
            self.rest.extend_from_slice(bytes);
            return Ok(());
        };
        let mut lines = std::mem::take(&mut self.rest);
        lines.extend_from_slice(&bytes[..=last]);
        self.rest.extend_from_slice(&bytes[last + 1..]);
        self.put(&lines)?;
        for line in lines.split(|byte| *byte == b'\n') {
            self.count(line);
        }
        Ok(())
    }

    /// Writes whole lines: all of these or, where that fails, none.
    fn put(&mut self, lines: &[u8]) -> io::Result<()> {
        if let Err(error) = self.file.write_all(lines) {
            // Only a file can be cut; the first error is the one to tell.
            let _ = self.file.set_len(self.written);
            return Err(error);
        }
        self.written += lines.len() as u64;
        Ok(())
    }

    fn count(&mut self, line: &[u8]) {
        if line.first().is_some_and(u8::is_ascii_digit) {
            self.events += 1;
            self.dispatches += u64::from(line.split(|byte| *byte == b' ').nth(1) == Some(b"D"));
        } else if let Some(why) = line.strip_prefix(RECORDING_END.as_bytes()) {
            self.end = Some(String::from_utf8_lossy(why).into_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_is_told_from_other_files_by_its_first_line() {
        for (text, expected) in [
            ("scheduler noop\n", true),
            ("# of last night\n\nscheduler noop\n", true),
            ("scheduler", false),
            ("# only remarks\n", false),
            ("#!/bin/sh\nrm -r x\n", false),
        ] {
            assert_eq!(is_recording(text.as_bytes()), expected, "{text:?}");
        }
        assert!(!is_recording(b"\xff\xfe"));
    }

    #[test]
    fn how_long_is_a_number_within_its_bounds() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(seconds("86400"), Ok(Duration::from_secs(86400)));
        for text in ["0", "-1", "86401", "NaN", "inf", "x", ""] {
            let why = seconds(text).unwrap_err();
            assert_eq!(why, "not a number of seconds in 0.1..=86400", "{text:?}");
        }
    }
}
