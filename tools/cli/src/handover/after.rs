//! The new daemon's side.

use std::io::{self, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use weir_access::receive_descriptors;
use weir_control::wire::{Ask, Verb, read_answer};

use super::{Offer, PROTOCOL, SOCKETS_MAX, Sockets, hear, say, word};
use crate::Failure;

/// How long the old daemon may take for its first answer. It may be in the middle of another
/// replacement, and then it, or the daemon that took its place, answers afterwards.
const ANSWER_LIMIT: Duration = Duration::from_secs(180);

/// How much longer than it says the old one may take.
const MARGIN: Duration = Duration::from_secs(30);

/// A daemon whose place this one takes: its disks are closed.
pub(crate) struct Takeover {
    pub(crate) sockets: Sockets,
    stream: UnixStream,
    process: u32,
}

impl Takeover {
    /// Asks the daemon at a control socket for its place, for one that has these exports. `None`
    /// without a daemon there.
    ///
    /// # Errors
    /// Its refusal; then it goes on as before.
    pub(crate) fn ask(control: &Path, exports: &[String]) -> Result<Option<Takeover>, Failure> {
        let place = control.display();
        let stream = match UnixStream::connect(control) {
            Ok(stream) => stream,
            Err(error) if is_absent(&error) => {
                tracing::info!("no daemon at control socket {place} to be replaced: {error}");
                return Ok(None);
            }
            Err(error) => return Err(format!("control socket {place}: {error}").into()),
        };
        let lost = |error: io::Error| format!("the daemon at control socket {place}: {error}");
        let offer = apply(&stream).map_err(lost)?.map_err(|why| {
            Failure::No(format!("the daemon at control socket {place} is not replaced: {why}"))
        })?;
        let Offer { version, process, within_s, sockets, used } = offer;
        if sockets.len() >= SOCKETS_MAX {
            return Err(format!("{} sockets are more than {SOCKETS_MAX}", sockets.len()).into());
        }
        let gone: Vec<&String> = used.iter().filter(|name| !exports.contains(name)).collect();
        if !gone.is_empty() {
            return Err(Failure::No(format!(
                "the daemon of process {process} is not replaced: its exports {gone:?} have \
                 clients, and are not among those of this configuration, {exports:?}"
            )));
        }
        let number = process as i32;
        let old = Pid::from_raw(number).ok_or_else(|| format!("process {process} is none"))?;
        let old = pidfd_open(old, PidfdFlags::empty());
        let old = old.map_err(|error| format!("process {process} of the daemon: {error}"))?;
        say(&stream, word::SOCKETS).map_err(lost)?;
        let descriptors = receive_descriptors(&stream, sockets.len() + 1).map_err(lost)?;
        let sockets = Sockets::new(sockets, descriptors);
        say(&stream, word::GO).map_err(lost)?;
        tracing::info!("taking the place of weir {version}, process {process}");
        let limit = Duration::from_secs(within_s) + MARGIN;
        stream.set_read_timeout(Some(limit)).map_err(lost)?;
        match hear(&stream) {
            Ok(line) if line == word::CLOSED => {}
            Ok(line) => {
                let why = line.strip_prefix(word::REFUSED).unwrap_or(&line);
                return Err(Failure::No(format!(
                    "the daemon of process {process} is not replaced, and goes on: {why}"
                )));
            }
            Err(error) if is_end(&error) => {
                // What it had open is closed when it has ended, and not before.
                tracing::warn!("the daemon of process {process} ended before it said so: {error}");
                let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: 0 };
                if poll(&mut [PollFd::new(&old, PollFlags::IN)], Some(&limit)) != Ok(1) {
                    let what = format!("process {process} gave its place away and does not end");
                    return Err(what.into());
                }
            }
            Err(error) => {
                return Err(format!(
                    "the daemon of process {process} has not closed its disks within {limit:?}, \
                     and takes them back when it has: {error}"
                )
                .into());
            }
        }
        Ok(Some(Takeover { sockets, stream, process }))
    }

    /// Tells the old one that it is no longer needed.
    pub(crate) fn serving(self) {
        tracing::info!("this daemon serves in the place of process {}", self.process);
        // It may have been stopped meanwhile.
        let _ = say(&self.stream, word::SERVING);
    }
}

/// The first question and its answer.
fn apply(stream: &UnixStream) -> io::Result<Result<Offer, String>> {
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    let value = format!("{PROTOCOL} {}", env!("CARGO_PKG_VERSION")).into_bytes();
    let ask = Ask { verb: Verb::Replace, path: String::new(), value };
    let mut writer = stream;
    // A daemon that turns a client away answers before it is asked.
    let sent = writer.write_all(&ask.encode());
    let answer = read_answer(&mut BufReader::with_capacity(1, OneByOne(stream)));
    match (sent, answer) {
        (_, Ok(Ok(body))) => {
            let offer = serde_json::from_slice(&body);
            Ok(Ok(offer.map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why))?))
        }
        (_, Ok(Err(failure))) => Ok(Err(match failure.what.ends_with("is no request") {
            true => String::from("it is an older weir, which knows no --replace; stop it first"),
            false => failure.what,
        })),
        (Err(error), Err(_)) | (Ok(()), Err(error)) => Err(error),
    }
}

/// Reads no byte that is not asked for.
struct OneByOne<'a>(&'a UnixStream);

impl Read for OneByOne<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.0.read(to)
    }
}

/// No process listens there.
fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

/// The other side has closed the connection.
fn is_end(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset)
}
