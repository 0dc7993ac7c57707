//! `weir serve --replace`: one daemon takes the place of another.
//!
//! The two talk over a connection to the control socket, in turns. A line is a word; sizes of
//! messages are bounded.
//!
//! | the new one | the old one |
//! |---|---|
//! | `replace`, with [`PROTOCOL`] and its version | an [`Offer`], or why not |
//! | `sockets` | the listening sockets, as descriptors |
//! | `go` | `closed` when its disks are, or `refused WHY`, and then it goes on as before |
//! | `serving` | nothing: it ends |
//!
//! Two daemons never have the disks open: the new one opens them after `closed`, and the old one,
//! if it hears no `serving`, opens them again when the process of the new one has ended. In between
//! the old one is the same process with the same words, begun anew by exec(2): whatever it had open
//! is closed by then, and it needs no more to go on than its words, the text of its configuration
//! and the sockets. Clients that connect meanwhile wait in the queues of the sockets.

mod after;
mod aside;
mod before;

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use serde::{Deserialize, Serialize};
use weir_access::{Address, Inherited};

pub(crate) use after::Takeover;
pub(crate) use aside::{Aside, Next, hear_signals, step_aside};
pub(crate) use before::{Handed, Place, REPLACED, Waiting};

/// What the two say to each other. A daemon that says it otherwise is refused, whatever its version
/// is, and daemons that say it alike take each other's place in both directions.
const PROTOCOL: u32 = 1;

/// Longest line, bytes: a reason is a sentence for each disk.
const LINE_MAX: usize = 64 << 10;

/// Sockets at most.
const SOCKETS_MAX: usize = 4096;

/// The words of the two.
mod word {
    pub(super) const SOCKETS: &str = "sockets";
    pub(super) const GO: &str = "go";
    pub(super) const CLOSED: &str = "closed";
    pub(super) const REFUSED: &str = "refused ";
    pub(super) const SERVING: &str = "serving";
}

/// What the old one tells of itself.
#[derive(Debug, Serialize, Deserialize)]
struct Offer {
    version: String,
    /// Its process.
    process: u32,
    /// It closes its disks within this time, or says why not, seconds.
    within_s: u64,
    /// In the order in which they are sent; the control socket follows them.
    sockets: Vec<Spot>,
    /// Exports that have clients.
    used: Vec<String>,
}

/// A socket that listens, without the socket.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Spot {
    /// The kind of its front.
    front: String,
    address: String,
    passed: bool,
}

/// The sockets of a daemon on their way to another.
#[derive(Default)]
pub(crate) struct Sockets {
    fronts: Vec<(Spot, OwnedFd)>,
    pub(crate) control: Option<OwnedFd>,
}

impl Sockets {
    fn new(spots: Vec<Spot>, mut descriptors: Vec<OwnedFd>) -> Sockets {
        let control = descriptors.pop();
        Sockets { fronts: spots.into_iter().zip(descriptors).collect(), control }
    }

    fn spots(&self) -> Vec<Spot> {
        self.fronts.iter().map(|(spot, _)| spot.clone()).collect()
    }

    /// The control socket last.
    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let fronts = self.fronts.iter().map(|(_, fd)| fd.as_fd());
        fronts.chain(self.control.as_ref().map(OwnedFd::as_fd)).collect()
    }

    /// Those of a kind of front.
    ///
    /// # Errors
    /// An address that is none.
    pub(crate) fn take(&mut self, front: &str) -> Result<Vec<Inherited>, String> {
        let of_front = self.fronts.extract_if(.., |(spot, _)| spot.front == front);
        of_front
            .map(|(Spot { address, passed, .. }, fd)| {
                // The path of a supervisor's socket may be empty, and is not asked for.
                let address = match passed {
                    true => Address::Tcp(address),
                    false => address.parse()?,
                };
                Ok(Inherited { address, passed, fd })
            })
            .collect()
    }
}

/// Says a line.
fn say(mut stream: &UnixStream, line: &str) -> io::Result<()> {
    stream.write_all(format!("{}\n", line.replace('\n', "; ")).as_bytes())
}

/// The next line, without its end. It is read byte by byte, because a descriptor may come with the
/// byte behind it.
fn hear(mut stream: &UnixStream) -> io::Result<String> {
    let mut line = Vec::new();
    let mut byte = [0];
    loop {
        stream.read_exact(&mut byte)?;
        match byte {
            [b'\n'] => break,
            _ if line.len() == LINE_MAX => {
                let what = format!("a line does not end within {LINE_MAX} bytes");
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            }
            [byte] => line.push(byte),
        }
    }
    String::from_utf8(line).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "no UTF-8"))
}
