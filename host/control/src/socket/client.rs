//! A command's side of the control socket.

use std::fmt;
use std::io::{self, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use super::wire::{Answer, Ask, Verb, decode_names, read_answer};
use crate::errno::Failure;
use crate::tree::Node;

/// A connection to a running daemon.
pub struct ControlClient {
    path: PathBuf,
    stream: BufReader<UnixStream>,
}

/// Why a call came to nothing.
#[derive(Debug)]
pub enum ClientError {
    /// The tree says no.
    Refused(Failure),
    /// The daemon cannot be reached or understood.
    Lost {
        /// Its socket.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientError::Refused(failure) => failure.fmt(f),
            ClientError::Lost { path, source } => {
                write!(f, "no daemon at control socket {}: {source}", path.display())
            }
        }
    }
}

impl std::error::Error for ClientError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ClientError::Refused(failure) => Some(failure),
            ClientError::Lost { source, .. } => Some(source),
        }
    }
}

/// How long a daemon may take to accept a connection. One that does not run accepts none, and its
/// line of those that wait is full after a while.
const ACCEPT_LIMIT: Duration = Duration::from_secs(5);

fn reach(path: &Path) -> io::Result<UnixStream> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // connect(2) waits as long as a message does.
    set_socket_timeout(&socket, Timeout::Send, Some(ACCEPT_LIMIT))?;
    connect(&socket, &address).map_err(|error| match error {
        Errno::AGAIN => {
            let seconds = ACCEPT_LIMIT.as_secs();
            let what = format!("it accepts no connection within {seconds} s");
            io::Error::new(io::ErrorKind::TimedOut, what)
        }
        error => error.into(),
    })?;
    set_socket_timeout(&socket, Timeout::Send, None)?;
    Ok(socket.into())
}

impl ControlClient {
    /// Connects to the daemon whose control socket is at `path`.
    ///
    /// # Errors
    /// [`ClientError::Lost`].
    pub fn connect(path: &Path) -> Result<ControlClient, ClientError> {
        match reach(path) {
            Ok(stream) => Ok(ControlClient { path: path.into(), stream: BufReader::new(stream) }),
            Err(source) => Err(ClientError::Lost { path: path.into(), source }),
        }
    }

    /// Waits for each answer so long at most from now on; without this, for ever.
    ///
    /// # Errors
    /// A limit of zero.
    pub fn wait_at_most(&mut self, limit: Duration) -> Result<(), ClientError> {
        let stream = self.stream.get_ref();
        let set = stream.set_read_timeout(Some(limit));
        set.and_then(|()| stream.set_write_timeout(Some(limit))).map_err(|error| self.lost(error))
    }

    /// The names in a directory.
    ///
    /// # Errors
    /// As [`Tree::list`](crate::Tree::list), or a daemon that is gone.
    pub fn list(&mut self, path: &str) -> Result<Vec<(String, Node)>, ClientError> {
        let body = self.ask(Verb::List, path, b"")?;
        decode_names(&body).ok_or_else(|| self.lost(io::ErrorKind::InvalidData.into()))
    }

    /// The text of a file.
    ///
    /// # Errors
    /// As [`Tree::read`](crate::Tree::read), or a daemon that is gone.
    pub fn read(&mut self, path: &str) -> Result<String, ClientError> {
        let body = self.ask(Verb::Read, path, b"")?;
        String::from_utf8(body).map_err(|_| self.lost(io::ErrorKind::InvalidData.into()))
    }

    /// Writes to a file.
    ///
    /// # Errors
    /// As [`Tree::write`](crate::Tree::write), or a daemon that is gone.
    pub fn write(&mut self, path: &str, value: &[u8]) -> Result<(), ClientError> {
        self.ask(Verb::Write, path, value).map(drop)
    }

    /// The answer that a write to a file of a disk would get, if those tried before it on this
    /// connection had been made; none is made.
    ///
    /// # Errors
    /// As [`write`](ControlClient::write).
    pub fn attempt(&mut self, path: &str, value: &[u8]) -> Result<(), ClientError> {
        self.ask(Verb::Try, path, value).map(drop)
    }

    /// Has the daemon read its rules and its configuration again: a line for each thing that was
    /// changed, needs a restart or failed.
    ///
    /// # Errors
    /// As [`Tree::reload`](crate::Tree::reload), or a daemon that is gone.
    pub fn reload(&mut self) -> Result<String, ClientError> {
        let body = self.ask(Verb::Reload, "", b"")?;
        String::from_utf8(body).map_err(|_| self.lost(io::ErrorKind::InvalidData.into()))
    }

    /// Has the scheduler of a disk recorded: what is read of the stream is the recording, whose
    /// last line begins with [`END`](super::END). Shutting down its writing side ends it.
    ///
    /// # Errors
    /// As [`Tree::record`](crate::Tree::record), or a daemon that is gone.
    pub fn record(mut self, disk: &str) -> Result<BufReader<UnixStream>, ClientError> {
        self.ask(Verb::Record, disk, b"")?;
        Ok(self.stream)
    }

    fn ask(&mut self, verb: Verb, path: &str, value: &[u8]) -> Result<Vec<u8>, ClientError> {
        let ask = Ask { verb, path: String::from(path), value: value.into() };
        // A daemon that turns a client away answers before it is asked.
        let sent = self.stream.get_mut().write_all(&ask.encode());
        let answer: io::Result<Answer> = read_answer(&mut self.stream);
        match (sent, answer) {
            (_, Ok(Ok(body))) => Ok(body),
            (_, Ok(Err(failure))) => Err(ClientError::Refused(failure)),
            (Err(source), Err(_)) | (Ok(()), Err(source)) => Err(self.lost(source)),
        }
    }

    fn lost(&self, source: io::Error) -> ClientError {
        let source = match source.kind() {
            // The system's words are that the resource is temporarily unavailable.
            io::ErrorKind::WouldBlock => {
                io::Error::new(io::ErrorKind::TimedOut, "it does not answer")
            }
            _ => source,
        };
        ClientError::Lost { path: self.path.clone(), source }
    }
}
