//! A connection on its way: from the connect to the end of the handshake.
//!
//! [`Dial`] never blocks, so that a queue can turn it between its requests; [`connect`] waits for
//! one, for control calls.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv, sockopt};
use weir_proto_nbd::client::{self, Handshake, ServerInfo, Wanted};
use weir_queue::DriverError;
use weir_tls::{ClientTls, TlsError};

use crate::address::Place;
use crate::channel::Channel;

/// Bytes received at a time; a handshake is a few hundred.
const PIECE: usize = 4096;

/// A connection that is not ready for requests yet.
pub(crate) struct Dial {
    channel: Channel,
    connected: bool,
    handshake: Handshake,
    /// How TLS is begun, where it is wanted, until the handshake knows that it has come to be.
    tls: Option<ClientTls>,
    /// The bytes to send, from `sent` on.
    out: Vec<u8>,
    sent: usize,
}

/// A connection that is ready for requests.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) channel: Channel,
    /// The server's description of the export.
    pub(crate) info: ServerInfo,
    /// Bytes the server sent behind the handshake: none, if it keeps to the protocol.
    pub(crate) behind: Vec<u8>,
}

/// How far a connection has come.
#[derive(Debug)]
pub(crate) enum Progress {
    /// The socket is not ready.
    Waiting(Dial),
    Ready(Opened),
}

impl std::fmt::Debug for Dial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Dial(due: {})", self.due())
    }
}

impl Dial {
    /// Starts to connect without blocking.
    pub(crate) fn start(place: &Place, errand: Errand<'_>) -> Result<Dial, DriverError> {
        let (socket, connected) = place.connect().map_err(|errno| failed("connect", errno))?;
        Dial::with(socket, connected, errand)
    }

    fn with(socket: OwnedFd, connected: bool, errand: Errand<'_>) -> Result<Dial, DriverError> {
        let wanted = Wanted { tls: errand.tls.is_some(), ..errand.wanted.clone() };
        let export = wanted.export.clone();
        let handshake = Handshake::new(wanted).map_err(|why| DriverError {
            what: format!("export name {export:?}: {why}"),
            source: None,
        })?;
        let (channel, tls) = (Channel::new(socket), errand.tls.cloned());
        Ok(Dial { channel, connected, handshake, tls, out: Vec::new(), sent: 0 })
    }

    /// The socket, to wait for.
    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.channel.socket()
    }

    /// Whether it waits until the socket can be written to; else until it can be read.
    pub(crate) fn wants_write(&self) -> bool {
        !self.connected || self.sent < self.out.len() || self.channel.has_unsent()
    }

    /// The step that the server owes, in words.
    pub(crate) fn due(&self) -> String {
        if self.connected {
            self.handshake.waiting_for()
        } else {
            "its answer to the connect".to_owned()
        }
    }

    /// Goes as far as the socket allows.
    ///
    /// # Errors
    /// Why this connection comes to nothing.
    pub(crate) fn step(mut self) -> Result<Progress, DriverError> {
        if !self.connected && !self.finish_connect()? {
            return Ok(Progress::Waiting(self));
        }
        let mut bytes = [0; PIECE];
        loop {
            self.send()?;
            let got = match recv(self.channel.socket(), &mut bytes[..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Err(self.broken_off()),
                Ok((got, _)) => &bytes[..got],
                Err(Errno::AGAIN) => return Ok(Progress::Waiting(self)),
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(failed(&format!("receive {}", self.due()), errno)),
            };
            if let Some((info, behind)) = self.take_in(got)? {
                return Ok(Progress::Ready(Opened { channel: self.channel, info, behind }));
            }
        }
    }

    /// Takes in what was received, in records or not; what was agreed on, and what stands behind
    /// it, once the handshake has ended.
    fn take_in(&mut self, got: &[u8]) -> Result<Option<(ServerInfo, Vec<u8>)>, DriverError> {
        let Some(mut session) = self.channel.take_session() else { return self.negotiate(got) };
        let mut plain = Vec::new();
        let opened = session.open(got, |piece| {
            plain.extend_from_slice(piece);
            Ok::<(), TlsError>(())
        });
        self.channel.put_session(session);
        if let Err(why) = opened {
            // The alert is a courtesy: the failure is what counts.
            let _ = self.send();
            return Err(broken(&why));
        }
        if !self.channel.is_handshaking() && self.tls.take().is_some() {
            self.handshake.secured(&mut self.out);
        }
        self.negotiate(&plain)
    }

    fn negotiate(&mut self, got: &[u8]) -> Result<Option<(ServerInfo, Vec<u8>)>, DriverError> {
        let input = self.handshake.input(got, &mut self.out);
        match input.step {
            client::Step::NeedMore => Ok(None),
            client::Step::StartTls => {
                let session = self.tls.as_ref().map(ClientTls::session);
                let session = session.expect("asked for where it is wanted only");
                self.channel.start_tls(session.map_err(|why| broken(&why))?);
                Ok(None)
            }
            client::Step::Ready(info) => Ok(Some((info, got[input.consumed..].to_vec()))),
            client::Step::Failed(why) => {
                // The farewell is a courtesy: the failure is what counts.
                let _ = self.send();
                self.channel.farewell();
                Err(DriverError { what: why.to_string(), source: None })
            }
        }
    }

    /// Whether the connect has ended well; an error if it has not.
    fn finish_connect(&mut self) -> Result<bool, DriverError> {
        let socket = self.channel.socket();
        let mut ready = [PollFd::new(&socket, PollFlags::OUT)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        match poll(&mut ready, Some(&at_once)) {
            Ok(0) | Err(Errno::INTR) => return Ok(false),
            Ok(_) => {}
            Err(errno) => return Err(failed("poll", errno)),
        }
        sockopt::socket_error(self.channel.socket())
            .unwrap_or_else(Err)
            .map_err(|errno| failed("connect", errno))?;
        self.connected = true;
        Ok(true)
    }

    fn send(&mut self) -> Result<(), DriverError> {
        loop {
            let sent = match self.channel.flush() {
                // Before TLS has come to be there is nothing to say in it.
                Ok(()) if self.sent == self.out.len() || self.channel.is_handshaking() => break,
                Ok(()) => self.channel.send(&self.out[self.sent..]),
                Err(errno) => Err(errno),
            };
            match sent {
                Ok(sent) => self.sent += sent,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(failed("send the handshake", errno)),
            }
        }
        self.out.clear();
        self.sent = 0;
        Ok(())
    }

    fn broken_off(&self) -> DriverError {
        let what = format!("the server closed the connection and still owed {}", self.due());
        DriverError { what, source: None }
    }
}

fn broken(why: &TlsError) -> DriverError {
    DriverError { what: why.to_string(), source: None }
}

fn failed(what: &str, errno: Errno) -> DriverError {
    DriverError { what: what.to_owned(), source: Some(errno.into()) }
}

/// The purpose of a new connection, and the options it is made with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Errand<'a> {
    pub(crate) wanted: &'a Wanted,
    /// `None`: without TLS.
    pub(crate) tls: Option<&'a ClientTls>,
}

/// Connects to the first place that answers, blocking for `timeout` at most altogether.
///
/// # Errors
/// Why the last place failed.
pub(crate) fn connect(
    places: &[Place],
    errand: Errand<'_>,
    timeout: Duration,
) -> Result<Opened, DriverError> {
    let end = Instant::now() + timeout;
    let mut last = DriverError { what: "no place to connect to".to_owned(), source: None };
    for place in places {
        match connect_to(place, errand, end, timeout) {
            Ok(opened) => return Ok(opened),
            Err(why) => last = why,
        }
    }
    Err(last)
}

fn connect_to(
    place: &Place,
    errand: Errand<'_>,
    end: Instant,
    timeout: Duration,
) -> Result<Opened, DriverError> {
    let left = end.saturating_duration_since(Instant::now());
    let (socket, connected) =
        place.connect_within(left).map_err(|errno| failed("connect", errno))?;
    let mut dial = Dial::with(socket, connected, errand)?;
    loop {
        dial = match dial.step()? {
            Progress::Ready(opened) => return Ok(opened),
            Progress::Waiting(dial) => dial,
        };
        let flags = if dial.wants_write() { PollFlags::OUT } else { PollFlags::IN };
        if !wait(dial.socket(), flags, end)? {
            let what = format!("the server owed {} for {timeout:?}", dial.due());
            return Err(DriverError { what, source: None });
        }
    }
}

/// Waits until the socket is ready; false when `end` comes first.
pub(crate) fn wait(
    socket: BorrowedFd<'_>,
    flags: PollFlags,
    end: Instant,
) -> Result<bool, DriverError> {
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        let left = Timespec {
            tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        match poll(&mut [PollFd::new(&socket, flags)], Some(&left)) {
            Ok(0) => return Ok(false),
            Ok(_) => return Ok(true),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(failed("poll", errno)),
        }
    }
}
