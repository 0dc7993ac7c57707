//! The daemon's side of the control socket.

use std::collections::BTreeMap;
use std::io::{self, BufReader, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use weir_access::{Rights, SocketFile, Spell, listen_unix};

use super::recording;
use super::wire::{Answer, Ask, Verb, encode_answer, encode_names};
use crate::errno::{Errno, Failure};
use crate::tree::{Applicant, Tree};
use crate::trial::Trial;

/// Most clients at one time; a further one is told EBUSY.
pub const CLIENTS_MAX: usize = 64;

/// A client that asks nothing for so long, or does not read its answer, is let go.
const CLIENT_LIMIT: Duration = Duration::from_secs(60);

/// How long no client is accepted after the system was short of memory or descriptors.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(100);

/// The socket of a running daemon. Dropping it ends it: the file is removed, clients are cut off.
pub struct Server {
    clients: Arc<Clients>,
    accepting: Option<JoinHandle<()>>,
    /// A byte here ends the thread that accepts.
    wake: UnixStream,
    path: PathBuf,
    /// Removed behind the thread that accepts.
    file: Option<SocketFile>,
}

#[derive(Default)]
struct Clients {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    next: u64,
    streams: BTreeMap<u64, UnixStream>,
    /// No client is accepted any more.
    closed: bool,
}

/// Why a client does not come in.
enum NoRoom {
    /// The daemon is ending.
    Closed,
    Full(String),
}

impl Server {
    /// Opens the socket, for its owner alone (mode 0600), and answers from `tree`.
    ///
    /// A socket that a daemon left behind without removing it is replaced.
    ///
    /// # Errors
    /// The system's; `AddrInUse` when a process listens there.
    pub fn open(path: &Path, tree: Arc<Tree>) -> io::Result<Server> {
        let (socket, file) = listen_unix(path, Rights::default())?;
        Server::on(socket, file, path, tree)
    }

    /// Answers at the socket of a daemon whose place this one takes, and whose file is at `path`.
    ///
    /// # Errors
    /// The system's. Without that file the socket is made anew, as no client could find it.
    pub fn inherit(socket: OwnedFd, path: &Path, tree: Arc<Tree>) -> io::Result<Server> {
        match SocketFile::inherit(path, Rights::default()) {
            Ok(file) => Server::on(socket, file, path, tree),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Server::open(path, tree),
            Err(error) => Err(error),
        }
    }

    fn on(socket: OwnedFd, file: SocketFile, path: &Path, tree: Arc<Tree>) -> io::Result<Server> {
        let listener = Arc::new(UnixListener::from(socket));
        // Another daemon may be at the same socket, and take the client that this one was told of.
        listener.set_nonblocking(true)?;
        let (wake, woken) = UnixStream::pair()?;
        let clients = Arc::new(Clients::default());
        let theirs = Arc::clone(&clients);
        let accept = move || accept(&listener, &woken, &theirs, &tree);
        let accepting = std::thread::Builder::new().name("weir-control".into()).spawn(accept)?;
        let (accepting, path, file) = (Some(accepting), path.into(), Some(file));
        Ok(Server { clients, accepting, wake, path, file })
    }

    /// Ends it and leaves the file, because the socket goes on in another process.
    pub fn leave(mut self) {
        if let Some(file) = self.file.take() {
            file.keep();
        }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.clients.close();
        // A thread that is gone needs no waking.
        let _ = self.wake.write_all(b"e");
        if let Some(accepting) = self.accepting.take() {
            // A thread that panicked accepts no client any more either.
            let _ = accepting.join();
        }
    }
}

impl Clients {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a client in and gives it a number.
    fn enter(&self, stream: &UnixStream) -> Result<u64, NoRoom> {
        let mut table = self.lock();
        if table.closed {
            return Err(NoRoom::Closed);
        }
        if table.streams.len() >= CLIENTS_MAX {
            return Err(NoRoom::Full(format!("{CLIENTS_MAX} clients are served already")));
        }
        let short = |error| NoRoom::Full(format!("no descriptor for a further client: {error}"));
        let copy = stream.try_clone().map_err(short)?;
        table.next += 1;
        let number = table.next;
        table.streams.insert(number, copy);
        Ok(number)
    }

    fn leave(&self, number: u64) {
        self.lock().streams.remove(&number);
    }

    /// Cuts off all clients. A client whose store waits for a disk notices when that is done.
    fn close(&self) {
        let mut table = self.lock();
        table.closed = true;
        for stream in table.streams.values() {
            // It may have gone by itself.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// Accepts clients until it is woken.
fn accept(
    listener: &Arc<UnixListener>,
    woken: &UnixStream,
    clients: &Arc<Clients>,
    tree: &Arc<Tree>,
) {
    let (begun, mut spell) = (Instant::now(), Spell::default());
    loop {
        let mut waits =
            [PollFd::new(woken, PollFlags::IN), PollFd::new(&**listener, PollFlags::IN)];
        // Interrupted, or short of memory: the listener is asked, and says which.
        let _ = poll(&mut waits, None);
        if !waits[0].revents().is_empty() {
            return;
        }
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => {
                bear(&error, || spell.begins(begun.elapsed()));
                continue;
            }
        };
        let number = match clients.enter(&stream) {
            Ok(number) => number,
            // Cut off without a word, like the others.
            Err(NoRoom::Closed) => continue,
            Err(NoRoom::Full(why)) => {
                turn_away(&stream, &why);
                continue;
            }
        };
        let (here, tree) = (Arc::clone(clients), Arc::clone(tree));
        let control = Arc::clone(listener);
        let serve = move || {
            // The end of a client, orderly or not, concerns no other client.
            let _ = serve(&stream, &tree, &control, || here.leave(number));
            here.leave(number);
        };
        let thread = std::thread::Builder::new().name("weir-client".into());
        if let Err(error) = thread.spawn(serve) {
            tracing::warn!("a client of the control socket is turned away: no thread: {error}");
            clients.leave(number);
        }
    }
}

/// A client that went before it was there is nothing. Else the system is short of something, and
/// the client still waits: asked at once again, it would be refused at once again.
fn bear(error: &io::Error, is_news: impl FnOnce() -> bool) {
    if !matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted) {
        if is_news() {
            tracing::warn!(
                "control socket: a client cannot be accepted, and waits: {error}; this is told \
                 once as long as it lasts"
            );
        }
        std::thread::sleep(SHORTAGE_PAUSE);
    }
}

fn turn_away(mut stream: &UnixStream, why: &str) {
    let answer = encode_answer(&Err(Failure::new(Errno::Busy, why)));
    // It fits into the socket's buffer; a client that is gone needs no answer.
    let _ = stream.write_all(&answer);
}

/// Answers one client to its end.
fn serve(
    mut stream: &UnixStream,
    tree: &Tree,
    control: &UnixListener,
    leave: impl Fn(),
) -> io::Result<()> {
    stream.set_read_timeout(Some(CLIENT_LIMIT))?;
    stream.set_write_timeout(Some(CLIENT_LIMIT))?;
    let mut from = BufReader::new(stream);
    let mut trial = None;
    loop {
        let answer = match Ask::read(&mut from) {
            Ok(Some(Ask { verb: Verb::Record, path, .. })) => match tree.record(&path) {
                Ok(recording) => {
                    stream.write_all(&encode_answer(&Ok(Vec::new())))?;
                    return recording::send(recording, stream, CLIENT_LIMIT);
                }
                Err(failure) => Err(failure),
            },
            Ok(Some(Ask { verb: Verb::Replace, value, .. })) => {
                let (stream, control) =
                    (stream.try_clone()?, control.as_fd().try_clone_to_owned()?);
                // It is cut off with the others no more: it may be about to stand here itself.
                leave();
                match tree.replace(Applicant { says: value, stream, control }) {
                    Ok(()) => return Ok(()),
                    Err(failure) => Err(failure),
                }
            }
            Ok(Some(Ask { verb: Verb::Try, path, value })) => {
                attempt(&mut trial, tree, &path, &value).map(|()| Vec::new())
            }
            Ok(Some(ask)) => carry_out(&ask, tree),
            Ok(None) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                let failure = Failure::new(Errno::Invalid, error.to_string());
                stream.write_all(&encode_answer(&Err(failure)))?;
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        stream.write_all(&encode_answer(&answer))?;
    }
}

/// Tries a write: what was tried before on the same disk counts as made.
fn attempt(
    trial: &mut Option<Trial>,
    tree: &Tree,
    path: &str,
    value: &[u8],
) -> Result<(), Failure> {
    let mut names = path.split('/').filter(|name| !name.is_empty());
    let (Some("block"), Some(disk)) = (names.next(), names.next()) else {
        let what = format!("{path} is no file of a disk: block/DISK/...");
        return Err(Failure::new(Errno::Invalid, what));
    };
    if trial.as_ref().is_none_or(|known| known.disk() != disk) {
        *trial = Some(Trial::of(tree, disk)?);
    }
    trial.as_ref().map_or(Ok(()), |trial| trial.write(path, value))
}

fn carry_out(ask: &Ask, tree: &Tree) -> Answer {
    match ask.verb {
        Verb::List => tree.list(&ask.path).map(|names| encode_names(&names)),
        Verb::Read => tree.read(&ask.path).map(String::into_bytes),
        Verb::Write => tree.write(&ask.path, &ask.value).map(|()| Vec::new()),
        Verb::Reload => tree.reload().map(String::into_bytes),
        Verb::Try | Verb::Record | Verb::Replace => unreachable!("it is answered elsewhere"),
    }
}
