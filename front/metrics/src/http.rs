//! As much of HTTP/1.1 as a page and a scraper need: one request, one answer, and the end.
//!
//! A peer has a bounded head and bounded time for each step, however slowly it sends or reads.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

/// Bytes of a head.
pub(crate) const HEAD_MAX: usize = 8 << 10;
/// Header fields of a head.
const FIELDS_MAX: usize = 64;
/// Time in which a head has to be there.
const HEAD_LIMIT: Duration = Duration::from_secs(2);
/// Time in which an answer, or one event of a stream, has to be taken.
pub(crate) const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// How long, and how much, the rest of what a peer sends is read, so that it gets the answer before
/// its connection is reset.
const FAREWELL: Duration = Duration::from_millis(500);
const FAREWELL_BYTES: usize = 4 << 20;
/// Bytes of a stream that the kernel keeps until the peer takes them.
const STREAM_BYTES: usize = 64 << 10;

/// A request that has been understood.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// Without the query.
    pub(crate) path: String,
    /// HEAD: the body is not sent.
    pub(crate) head_only: bool,
}

/// The names by which an address may be asked, beside numbers and `localhost`: those that the
/// configuration has. A page of another site whose name is made to lead here would have a browser
/// read the figures otherwise.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hosts(Vec<String>);

impl Hosts {
    pub(crate) fn new(names: impl IntoIterator<Item = String>) -> Hosts {
        Hosts(names.into_iter().collect())
    }

    /// Whether the Host of a request is one of them, with or without a port.
    fn admit(&self, host: &[u8]) -> bool {
        let Ok(host) = std::str::from_utf8(host) else { return false };
        let is_port = |port: &str| port.bytes().all(|digit| digit.is_ascii_digit());
        let name = match host.rsplit_once(':') {
            Some((name, port)) if is_port(port) => name,
            _ => host,
        };
        let number = name.trim_start_matches('[').trim_end_matches(']');
        // A name may end with the dot of the root.
        let plain = name.strip_suffix('.').unwrap_or(name);
        name.is_empty()
            || plain.eq_ignore_ascii_case("localhost")
            || number.parse::<std::net::IpAddr>().is_ok()
            || self.0.iter().any(|known| known.eq_ignore_ascii_case(plain))
    }
}

/// A request that is not served: status and a sentence.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refusal(pub(crate) &'static str, pub(crate) String);

/// One peer.
pub(crate) struct Peer {
    socket: OwnedFd,
}

/// An answer without its body.
pub(crate) struct Head<'a> {
    pub(crate) status: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) fields: &'a [(&'a str, &'a str)],
    /// `None`: it ends with the connection.
    pub(crate) length: Option<usize>,
}

impl Head<'_> {
    fn text(&self) -> String {
        let mut text = format!(
            "HTTP/1.1 {}\r\nContent-Type: {}\r\nCache-Control: no-store\r\n\
             X-Content-Type-Options: nosniff\r\nConnection: close\r\n",
            self.status, self.kind
        );
        if let Some(length) = self.length {
            text.push_str(&format!("Content-Length: {length}\r\n"));
        }
        self.fields.iter().for_each(|(name, value)| text.push_str(&format!("{name}: {value}\r\n")));
        text.push_str("\r\n");
        text
    }
}

impl Peer {
    pub(crate) fn new(socket: OwnedFd) -> Peer {
        Peer { socket }
    }

    /// Receives the request. `None`: the peer went, or was too slow.
    pub(crate) fn request(&self, hosts: &Hosts) -> Option<Result<Request, Refusal>> {
        let until = Instant::now() + HEAD_LIMIT;
        let mut bytes = Vec::new();
        let mut piece = [0; 2048];
        loop {
            let count = self.receive(&mut piece, until).ok().filter(|count| *count > 0)?;
            bytes.extend_from_slice(&piece[..count]);
            match understand(&bytes, hosts) {
                Ok(Some(request)) => return Some(Ok(request)),
                Err(refusal) => return Some(Err(refusal)),
                Ok(None) if bytes.len() >= HEAD_MAX => {
                    let what = format!("a head of more than {HEAD_MAX} bytes");
                    return Some(Err(Refusal(TOO_LARGE, what)));
                }
                Ok(None) => {}
            }
        }
    }

    /// Sends an answer whole.
    pub(crate) fn answer(&self, head: &Head<'_>, body: &[u8]) -> io::Result<()> {
        let until = Instant::now() + ANSWER_LIMIT;
        self.send_all(head.text().as_bytes(), until)?;
        self.send_all(body, until)
    }

    /// Sends more of an answer that ends with the connection.
    pub(crate) fn send_within(&self, bytes: &[u8]) -> io::Result<()> {
        self.send_all(bytes, Instant::now() + ANSWER_LIMIT)
    }

    /// Bounds what the kernel keeps of a stream that the peer does not read, so that it is cut off
    /// before long.
    pub(crate) fn keep_little(&self) -> io::Result<()> {
        Ok(set_socket_send_buffer_size(&self.socket, STREAM_BYTES)?)
    }

    /// Whether the peer has closed the connection, as far as is known without sending.
    pub(crate) fn is_gone(&self) -> bool {
        let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
        match recv(&self.socket, &mut [0; 1], flags) {
            Ok((count, _)) => count == 0,
            Err(error) => error != Errno::AGAIN && error != Errno::INTR,
        }
    }

    /// Ends the connection so that the peer gets what was sent.
    pub(crate) fn part(self) {
        if shutdown(&self.socket, Shutdown::Write).is_err() {
            return;
        }
        let until = Instant::now() + FAREWELL;
        let (mut piece, mut left) = ([0; 4096], FAREWELL_BYTES);
        while let Ok(count) = self.receive(&mut piece, until)
            && count > 0
            && left > count
        {
            left -= count;
        }
    }

    /// Cuts the connection off from another thread.
    pub(crate) fn twin(&self) -> io::Result<OwnedFd> {
        self.socket.try_clone()
    }

    fn receive(&self, piece: &mut [u8], until: Instant) -> io::Result<usize> {
        loop {
            self.wait(PollFlags::IN, until)?;
            match recv(&self.socket, &mut *piece, RecvFlags::DONTWAIT) {
                Ok((count, _)) => return Ok(count),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn send_all(&self, mut bytes: &[u8], until: Instant) -> io::Result<()> {
        while !bytes.is_empty() {
            match send(&self.socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(count) => bytes = &bytes[count..],
                Err(Errno::AGAIN) => self.wait(PollFlags::OUT, until)?,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            if Instant::now() >= until {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        Ok(())
    }

    fn wait(&self, flags: PollFlags, until: Instant) -> io::Result<()> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let limit =
                Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
            match poll(&mut [PollFd::from_borrowed_fd(self.socket.as_fd(), flags)], Some(&limit)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

pub(crate) const BAD: &str = "400 Bad Request";
const FORBIDDEN: &str = "403 Forbidden";
pub(crate) const NOT_ALLOWED: &str = "405 Method Not Allowed";
const TOO_LARGE: &str = "431 Request Header Fields Too Large";
const MISDIRECTED: &str = "421 Misdirected Request";

/// Reads a head. `None`: it goes on.
fn understand(bytes: &[u8], hosts: &Hosts) -> Result<Option<Request>, Refusal> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut fields);
    let parsed = request.parse(bytes).map_err(|error| match error {
        httparse::Error::TooManyHeaders => {
            Refusal(TOO_LARGE, format!("more than {FIELDS_MAX} header fields"))
        }
        error => Refusal(BAD, format!("no HTTP request: {error}")),
    })?;
    if parsed.is_partial() {
        return Ok(None);
    }
    let method = request.method.unwrap_or_default();
    let head_only = match method {
        "GET" => false,
        "HEAD" => true,
        _ => return Err(Refusal(NOT_ALLOWED, format!("{method}: only GET and HEAD are served"))),
    };
    let host = request.headers.iter().find(|field| field.name.eq_ignore_ascii_case("host"));
    if let Some(host) = host
        && !hosts.admit(host.value)
    {
        let what = "the Host of the request is neither a number nor localhost, nor a name of \
                    `listen` or `hosts` in [metrics]";
        return Err(Refusal(MISDIRECTED, String::from(what)));
    }
    let from = request.headers.iter();
    let mut from = from.filter(|field| field.name.eq_ignore_ascii_case("sec-fetch-site"));
    if from.any(|field| !matches!(field.value, b"same-origin" | b"none")) {
        let what = "a page of another site may not ask, which could take the places of others";
        return Err(Refusal(FORBIDDEN, String::from(what)));
    }
    let path = request.path.unwrap_or_default();
    let path = path.split(['?', '#']).next().unwrap_or_default();
    Ok(Some(Request { path: String::from(path), head_only }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn understand(bytes: &[u8]) -> Result<Option<Request>, Refusal> {
        super::understand(bytes, &Hosts::default())
    }

    #[test]
    fn a_request_is_understood_once_it_is_whole() {
        let whole = b"GET /metrics?x=1 HTTP/1.1\r\nHost: 127.0.0.1:9095\r\n\r\n";
        for length in 0..whole.len() {
            assert_eq!(understand(&whole[..length]), Ok(None), "{length}");
        }
        let request = Request { path: String::from("/metrics"), head_only: false };
        assert_eq!(understand(whole), Ok(Some(request)));
        let head = understand(b"HEAD / HTTP/1.0\r\n\r\n");
        assert!(head.unwrap().unwrap().head_only);
    }

    #[test]
    fn what_is_no_request_is_refused_with_its_reason() {
        let status = |text: &[u8]| understand(text).unwrap_err().0;
        assert_eq!(status(b"\x16\x03\x01\x02\x00 garbage\r\n\r\n"), BAD);
        assert_eq!(status(b"POST / HTTP/1.1\r\n\r\n"), NOT_ALLOWED);
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(65));
        assert_eq!(status(many.as_bytes()), TOO_LARGE);
    }

    #[test]
    fn a_page_of_another_site_is_not_served() {
        let asked = |site: &str| {
            let head = format!("GET /events HTTP/1.1\r\nSec-Fetch-Site: {site}\r\n\r\n");
            understand(head.as_bytes()).map(|request| request.is_some()).map_err(|why| why.0)
        };
        assert_eq!((asked("same-origin"), asked("none")), (Ok(true), Ok(true)));
        for site in ["cross-site", "same-site", ""] {
            assert_eq!(asked(site), Err(FORBIDDEN), "{site}");
        }
    }

    #[test]
    fn a_name_that_may_be_another_sites_is_no_host_of_the_page() {
        let hosts = Hosts::default();
        for host in ["localhost:1", "127.0.0.1", "[::1]:80", "10.1.2.3:9095", "LOCALHOST", ""] {
            assert!(hosts.admit(host.as_bytes()), "{host}");
        }
        for host in ["evil.example", "evil.example:9095", "127.0.0.1.evil.example", "\u{fc}"] {
            assert!(!hosts.admit(host.as_bytes()), "{host}");
        }
    }

    #[test]
    fn names_of_the_configuration_are_hosts_and_no_others_that_look_like_them() {
        let hosts = Hosts::new([String::from("weir.example")]);
        for host in ["weir.example", "WEIR.example:9095", "weir.example.", "localhost", "[::1]"] {
            assert!(hosts.admit(host.as_bytes()), "{host}");
        }
        for host in
            ["a.weir.example", "weir.example.evil", "weir.example:x", "xweir.example", "weir", "."]
        {
            assert!(!hosts.admit(host.as_bytes()), "{host}");
        }
    }
}
