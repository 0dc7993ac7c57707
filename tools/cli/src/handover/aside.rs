//! The old daemon after it has closed its disks: begun anew, it waits for the new one's word, and
//! serves again if that does not come.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::{SIGHUP, SIGINT, SIGTERM, SigSet};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Signal, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use weir_access::{receive_descriptors, send_descriptors};

use super::before::Handed;
use super::{Sockets, Spot, hear, say, word};
use crate::activation;

/// Names the process that it is meant for and how many descriptors wait at its standard input, with
/// a comma between.
const VARIABLE: &str = "WEIR_HANDED_OVER";

/// How long the new daemon may take to open its disks and its addresses.
const SERVE_LIMIT: Duration = Duration::from_secs(120);

/// How long the new daemon may take to end when it has failed.
const ENDING: Duration = Duration::from_secs(5);

/// What the daemon is to know of itself when it is begun anew, beside its words.
#[derive(Serialize, Deserialize)]
struct Memory {
    /// The text of its configuration file, if it has one: as it was read last, and at the start.
    configuration: Option<[String; 2]>,
    spots: Vec<Spot>,
    /// The process of the new one.
    number: i32,
}

/// Begins this process anew, which closes whatever it has open but what it needs to go on. `heard`
/// has a byte for each signal that came before.
///
/// # Errors
/// Returns only if that failed.
pub(crate) fn step_aside(
    given: &Handed,
    heard: BorrowedFd<'_>,
    configuration: Option<[String; 2]>,
) -> io::Error {
    let became = || -> io::Result<io::Error> {
        let Handed { stream, sockets, process, number } = given;
        let memory = Memory { configuration, spots: sockets.spots(), number: *number };
        let mut file = File::from(memfd_create(c"weir", MemfdFlags::CLOEXEC)?);
        file.write_all(&serde_json::to_vec(&memory)?)?;
        // On their way to this process itself: descriptors that stayed open by their numbers could
        // not be closed there any more, and would keep the sockets listening for ever.
        let (keep, end) = UnixStream::pair()?;
        let input = rustix::stdio::stdin();
        let mut all = vec![file.as_fd(), stream.as_fd(), process.as_fd(), input, heard];
        all.extend(sockets.descriptors());
        send_descriptors(&end, &all)?;
        let meant = format!("{},{}", std::process::id(), all.len());
        // A signal that comes without handlers would end the process. It waits, until they are
        // there again, from the moment at which no other thread is left to take it; what a handler
        // of before has taken is among what was heard.
        signals().thread_block()?;
        rustix::stdio::dup2_stdin(&keep)?;
        // The program as it was started, whatever stands in its place now.
        let mut program = Command::new("/proc/self/exe");
        let mut words = std::env::args_os();
        if let Some(name) = words.next() {
            program.arg0(name);
        }
        let error = program.args(words).env(VARIABLE, meant).exec();
        signals().thread_unblock()?;
        Ok(error)
    };
    became().unwrap_or_else(|error| error)
}

/// Signals that a daemon has handlers of.
fn signals() -> SigSet {
    SigSet::from_iter([SIGHUP, SIGINT, SIGTERM])
}

/// This process has its handlers: if it was begun anew, signals that waited for them come now.
///
/// # Errors
/// The system's refusal.
pub(crate) fn hear_signals() -> io::Result<()> {
    match std::env::var_os(VARIABLE) {
        Some(_) => Ok(signals().thread_unblock()?),
        None => Ok(()),
    }
}

/// A daemon that has closed its disks.
pub(crate) struct Aside {
    memory: Memory,
    stream: UnixStream,
    process: OwnedFd,
    /// A signal came before it was begun anew.
    is_stopped: bool,
    sockets: Vec<OwnedFd>,
}

/// What it does next.
pub(crate) enum Next {
    /// It ends: the new one serves.
    End,
    /// It ends, as a signal has asked for.
    Stop,
    /// It serves again, with its configuration as it was: as read last, and at the start.
    Serve(Option<[String; 2]>, Sockets),
}

impl Aside {
    /// `None` unless this process was begun anew to wait for a new daemon.
    ///
    /// # Errors
    /// What it was to find is not there.
    pub(crate) fn here() -> Result<Option<Aside>, String> {
        let Ok(text) = std::env::var(VARIABLE) else { return Ok(None) };
        let bad = |error: &dyn std::fmt::Display| format!("{VARIABLE}={text}: {error}");
        let numbers = text.split_once(',').and_then(|(meant, count)| {
            Some((meant.parse::<u32>().ok()?, count.parse::<usize>().ok()?))
        });
        let (meant, count) = numbers.ok_or_else(|| bad(&"not two numbers"))?;
        if meant != std::process::id() {
            return Ok(None);
        }
        let receive = || -> io::Result<Vec<OwnedFd>> {
            let from = rustix::stdio::stdin().try_clone_to_owned()?;
            receive_descriptors(&from, count)
        };
        let mut opened = receive().map_err(|error| bad(&error))?.into_iter();
        let mut next = || opened.next().ok_or_else(|| bad(&"too few descriptors"));
        let (file, stream, process, input, heard) = (next()?, next()?, next()?, next()?, next()?);
        rustix::stdio::dup2_stdin(&input).map_err(|error| bad(&error))?;
        let memory = read_memory(file.into()).map_err(|error| bad(&error))?;
        let heard = UnixStream::from(heard);
        heard.set_nonblocking(true).map_err(|error| bad(&error))?;
        // Its other end is closed: without a byte there is its end.
        let is_stopped = (&heard).read(&mut [0]).is_ok_and(|bytes| bytes > 0);
        let (stream, sockets) = (stream.into(), opened.collect());
        Ok(Some(Aside { memory, stream, process, is_stopped, sockets }))
    }

    /// Waits until the new one serves, a signal comes at `signals`, or the new one has ended.
    pub(crate) fn wait(self, signals: BorrowedFd<'_>) -> Next {
        let number = self.memory.number;
        if let Err(error) = say(&self.stream, word::CLOSED) {
            tracing::warn!("process {number}, which takes this place, does not listen: {error}");
        }
        if self.is_stopped {
            return Next::Stop;
        }
        let until = Instant::now() + SERVE_LIMIT;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let mut waits = [
                PollFd::new(&self.stream, PollFlags::IN),
                PollFd::new(&signals, PollFlags::IN),
                PollFd::new(&self.process, PollFlags::IN),
            ];
            let limit =
                Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            // An interrupted call is made again.
            let _ = poll(&mut waits, Some(&limit));
            let [said, signal, ended] = waits.map(|wait| !wait.revents().is_empty());
            if said && hear(&self.stream).is_ok_and(|line| line == word::SERVING) {
                activation::notify(&format!("MAINPID={number}\n"));
                return Next::End;
            }
            if signal {
                return Next::Stop;
            }
            if said || ended || Instant::now() >= until {
                break;
            }
        }
        self.back(signals)
    }

    /// Waits for the end of the new one, so that it has nothing open, and has it end.
    fn back(self, signals: BorrowedFd<'_>) -> Next {
        let Aside { memory, process, sockets, .. } = self;
        let number = memory.number;
        let mut waits =
            [PollFd::new(&process, PollFlags::IN), PollFd::new(&signals, PollFlags::IN)];
        let until = Instant::now() + ENDING;
        let is_over = |waits: &[PollFd<'_>]| waits.iter().any(|wait| !wait.revents().is_empty());
        while !is_over(&waits) && Instant::now() < until {
            let left = until.saturating_duration_since(Instant::now());
            let limit =
                Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            // An interrupted call is made again.
            let _ = poll(&mut waits, Some(&limit));
        }
        if !is_over(&waits) {
            tracing::warn!("process {number} does not serve and does not end: it is ended");
            if let Err(error) = pidfd_send_signal(&process, Signal::KILL) {
                tracing::error!("process {number} cannot be ended, so it is waited for: {error}");
            }
        }
        while waits[0].revents().is_empty() {
            if !waits[1].revents().is_empty() {
                return Next::Stop;
            }
            let _ = poll(&mut waits, None);
        }
        tracing::warn!("process {number} did not take this daemon's place: it serves again");
        Next::Serve(memory.configuration, Sockets::new(memory.spots, sockets))
    }
}

fn read_memory(mut file: File) -> io::Result<Memory> {
    let mut text = String::new();
    file.seek(SeekFrom::Start(0))?;
    file.read_to_string(&mut text)?;
    Ok(serde_json::from_str(&text)?)
}
