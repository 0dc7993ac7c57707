//! A session on its way: from the connect to the end of the login.
//!
//! [`Dial`] never blocks, so that a port can turn it between its commands; [`connect`] waits for
//! one, for control calls.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use weir_proto_iscsi::Portal;
use weir_proto_iscsi::login::{LoggedIn, Login, LoginError, Settings, Step};
use weir_queue::DriverError;

use crate::socket;

const FLAGS: SendFlags = SendFlags::NOSIGNAL.union(SendFlags::DONTWAIT);

/// Bytes received at a time; a login is a few hundred.
const PIECE: usize = 8192;

/// A session that is not ready for commands yet.
pub(crate) struct Dial {
    socket: OwnedFd,
    connected: bool,
    login: Login,
    /// The bytes to send, from `sent` on.
    out: Vec<u8>,
    sent: usize,
}

/// A session that is ready for commands.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) socket: OwnedFd,
    pub(crate) start: Box<LoggedIn>,
    /// Bytes the target sent behind the login.
    pub(crate) behind: Vec<u8>,
}

/// How far a session has come.
pub(crate) enum Progress {
    /// The socket is not ready.
    Waiting(Box<Dial>),
    Ready(Opened),
    /// The target is to be found there.
    Moved(Portal),
}

/// Why a dial came to nothing.
#[derive(Debug)]
pub(crate) enum DialError {
    /// No connection, or it broke.
    Socket(&'static str, Errno),
    /// The target closed the connection.
    Closed,
    /// The target owed an answer for too long.
    Silent,
    /// The login failed.
    Login(LoginError),
    /// The settings make no login.
    Settings(String),
}

impl DialError {
    /// Whether the portal refuses for good, as far as its answer tells.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, DialError::Login(why) if !why.is_passing())
    }
}

impl fmt::Display for DialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DialError::Socket(what, errno) => {
                write!(f, "{what}: {}", std::io::Error::from(*errno))
            }
            DialError::Closed => f.write_str("the target closed the connection during the login"),
            DialError::Silent => f.write_str("the target does not answer in time"),
            DialError::Login(why) => why.fmt(f),
            DialError::Settings(why) => f.write_str(why),
        }
    }
}

impl From<LoginError> for DialError {
    fn from(why: LoginError) -> DialError {
        DialError::Login(why)
    }
}

impl Dial {
    /// Starts to connect without blocking.
    pub(crate) fn start(address: &SocketAddr, settings: Settings) -> Result<Box<Dial>, DialError> {
        let mut out = Vec::new();
        let login =
            Login::new(settings, &mut out).map_err(|why| DialError::Settings(why.to_string()))?;
        let (socket, connected) =
            socket::open(address).map_err(|errno| DialError::Socket("connect", errno))?;
        Ok(Box::new(Dial { socket, connected, login, out, sent: 0 }))
    }

    /// Whether it waits until the socket can be written to; else until it can be read.
    pub(crate) fn wants_write(&self) -> bool {
        !self.connected || self.sent < self.out.len()
    }

    /// Goes as far as the socket allows.
    ///
    /// # Errors
    /// Why this session comes to nothing.
    pub(crate) fn step(mut self: Box<Self>) -> Result<Progress, DialError> {
        if !self.connected {
            let connected = socket::is_connected(&self.socket);
            self.connected = connected.map_err(|errno| DialError::Socket("connect", errno))?;
            if !self.connected {
                return Ok(Progress::Waiting(self));
            }
        }
        let mut bytes = [0; PIECE];
        loop {
            self.send()?;
            let mut got = match recv(&self.socket, &mut bytes[..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Err(DialError::Closed),
                Ok((got, _)) => &bytes[..got],
                Err(Errno::AGAIN) => return Ok(Progress::Waiting(self)),
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(DialError::Socket("receive", errno)),
            };
            match self.login.input(&mut got, &mut self.out) {
                Step::NeedMore => {}
                Step::Ready(start) => {
                    let (socket, behind) = (self.socket, got.to_vec());
                    return Ok(Progress::Ready(Opened { socket, start, behind }));
                }
                Step::Moved { portal, .. } => return Ok(Progress::Moved(portal)),
                Step::Failed(why) => return Err(why.into()),
            }
        }
    }

    fn send(&mut self) -> Result<(), DialError> {
        while self.sent < self.out.len() {
            match send(&self.socket, &self.out[self.sent..], FLAGS) {
                Ok(sent) => self.sent += sent,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(DialError::Socket("send", errno)),
            }
        }
        self.out.clear();
        self.sent = 0;
        Ok(())
    }
}

impl AsFd for Dial {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// What a blocking dial ended in.
pub(crate) enum Dialled {
    Opened(Opened),
    Moved(Portal),
}

/// Logs in at one address, blocking until `end` at most.
///
/// # Errors
/// Why there is no session.
pub(crate) fn connect(
    address: &SocketAddr,
    settings: Settings,
    end: Instant,
) -> Result<Dialled, DialError> {
    let mut dial = Dial::start(address, settings)?;
    loop {
        dial = match dial.step()? {
            Progress::Ready(opened) => return Ok(Dialled::Opened(opened)),
            Progress::Moved(portal) => return Ok(Dialled::Moved(portal)),
            Progress::Waiting(dial) => dial,
        };
        let flags = if dial.wants_write() { PollFlags::OUT } else { PollFlags::IN };
        let ready = socket::wait(&dial, flags, end);
        if !ready.map_err(|errno| DialError::Socket("poll", errno))? {
            return Err(DialError::Silent);
        }
    }
}

/// An error of a control call about this site.
pub(crate) fn failed(site: &str, what: impl fmt::Display) -> DriverError {
    DriverError { what: format!("{site}: {what}"), source: None }
}

/// The end of a time that begins now.
pub(crate) fn from_now(time: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(time).unwrap_or(now + Duration::from_secs(86_400))
}
