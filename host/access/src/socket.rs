//! Sockets that listen, and what they leave in the file system.
//!
//! A UNIX socket has its mode before a client can connect to it: connections are refused until
//! listen(2), and owner, group and mode are settled before that. The umask of the process, which
//! its threads share, is neither trusted nor changed.
//!
//! To look whether a socket's file is left over and to put another in its place are two steps. They
//! are made under a lock on the folder, so that of two daemons that start at once the second one
//! finds the first one listening.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FlockOperation, Gid, Mode, OFlags, Uid, flock};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::geteuid;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// How long the lock on a folder is tried for. Daemons hold it for milliseconds; any user who may
/// read the folder could hold it for ever.
const LOCK_LIMIT: Duration = Duration::from_secs(5);
const LOCK_PAUSE: Duration = Duration::from_millis(2);

/// Owner, group and mode of a socket's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    /// Its permission bits, whatever the umask; to write is to connect.
    pub mode: u32,
    /// Its owner, if not the one who makes it.
    pub owner: Option<u32>,
    /// Its group, if not that of its maker.
    pub group: Option<u32>,
}

impl Default for Rights {
    /// Its maker alone: 0600.
    fn default() -> Rights {
        Rights { mode: 0o600, owner: None, group: None }
    }
}

/// The file of a socket that was made here: removed with the value, unless another has taken its
/// place.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Keeps the file's number from being given to another as long as it is compared.
    file: File,
    /// It is not removed.
    stays: bool,
}

impl SocketFile {
    /// The file of a socket that another process made and passed on, with these rights from now on.
    ///
    /// # Errors
    /// The system's; `NotFound` where there is none any more, `AddrInUse` where another file is.
    pub fn inherit(path: &Path, rights: Rights) -> io::Result<SocketFile> {
        let _lock = lock(path)?;
        let file = open_path(path)?;
        let data = file.metadata()?;
        if !data.file_type().is_socket() {
            return Err(taken());
        }
        let differs = |wanted: Option<u32>, is: u32| wanted.filter(|wanted| *wanted != is);
        let (owner, group) = (differs(rights.owner, data.uid()), differs(rights.group, data.gid()));
        give(&file, &data, Rights { owner, group, ..rights })?;
        Ok(SocketFile { path: path.into(), file, stays: false })
    }

    /// Leaves the file where it is: the socket goes on in another process.
    pub fn keep(mut self) {
        self.stays = true;
    }

    fn is_there(&self) -> io::Result<bool> {
        let (there, ours) = (fs::symlink_metadata(&self.path)?, self.file.metadata()?);
        Ok((there.dev(), there.ino()) == (ours.dev(), ours.ino()))
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.stays {
            return;
        }
        // Without the lock another daemon could put its own here between the look and the removal.
        let Ok(_lock) = lock(&self.path) else { return };
        if self.is_there().unwrap_or(false) {
            // A folder that can no longer be written keeps it; the next daemon replaces it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Listens on a UNIX socket.
///
/// A file that a daemon left behind without removing it is replaced.
///
/// # Errors
/// The system's; `AddrInUse` when the path is in use.
pub fn listen_unix(path: &Path, rights: Rights) -> io::Result<(OwnedFd, SocketFile)> {
    let _lock = lock(path)?;
    let socket = stream(SocketFlags::empty())?;
    // The file gets the mode that the socket has before it is bound, less the umask. Its group may
    // still be another than is wanted, so only the owner can connect yet.
    rustix::fs::fchmod(&socket, Mode::from_raw_mode(rights.mode & 0o600))?;
    let address = SocketAddrUnix::new(path)?;
    match rustix::net::bind(&socket, &address) {
        Err(Errno::ADDRINUSE) if is_left_over(path) => {
            fs::remove_file(path)?;
            rustix::net::bind(&socket, &address)?;
        }
        bound => bound?,
    }
    let ready = settle(path, rights).and_then(|file| {
        rustix::net::listen(&socket, BACKLOG)?;
        Ok(file)
    });
    match ready {
        Ok(file) => Ok((socket, SocketFile { path: path.into(), file, stays: false })),
        Err(error) => {
            // It was made a moment ago, under the lock, unless that is what is wrong.
            if error.kind() != io::ErrorKind::AddrInUse {
                let _ = fs::remove_file(path);
            }
            Err(error)
        }
    }
}

fn stream(further: SocketFlags) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | further;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

/// Gives a new socket's file its owner, group and mode. No client can connect yet.
fn settle(path: &Path, rights: Rights) -> io::Result<File> {
    let file = open_path(path)?;
    let data = file.metadata()?;
    if !data.file_type().is_socket() || data.uid() != geteuid().as_raw() {
        return Err(taken());
    }
    give(&file, &data, rights)?;
    Ok(file)
}

/// Opens a file without reading it, and without following a link.
fn open_path(path: &Path) -> io::Result<File> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW;
    // With O_PATH the way of opening does not count.
    OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path)
}

fn taken() -> io::Error {
    io::Error::new(io::ErrorKind::AddrInUse, "another file has taken the socket's place")
}

/// Gives a file these rights, whose owner and group are to be changed if they are stated.
fn give(file: &File, data: &Metadata, rights: Rights) -> io::Result<()> {
    if rights.owner.is_some() || rights.group.is_some() {
        let (owner, group) = (rights.owner.map(Uid::from_raw), rights.group.map(Gid::from_raw));
        rustix::fs::chownat(file, "", owner, group, AtFlags::EMPTY_PATH)?;
    }
    if data.mode() & 0o777 != rights.mode {
        // Descriptors of paths alone have no fchmod(2); this is the way that open(2) names.
        let through = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
        fs::set_permissions(through, fs::Permissions::from_mode(rights.mode))?;
    }
    Ok(())
}

/// Locks the folder of a path against other daemons, as long as the value lives.
fn lock(path: &Path) -> io::Result<File> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = File::open(folder.unwrap_or(Path::new(".")))?;
    let until = Instant::now() + LOCK_LIMIT;
    loop {
        match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(folder),
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) if Instant::now() < until => std::thread::sleep(LOCK_PAUSE),
            Err(Errno::WOULDBLOCK) => {
                let why = format!("another program keeps its folder locked for {LOCK_LIMIT:?}");
                return Err(io::Error::new(io::ErrorKind::WouldBlock, why));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Whether a socket's file was left by a daemon that did not live to remove it: no process listens
/// there.
fn is_left_over(path: &Path) -> bool {
    let socket = fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    // A daemon whose queue of connections is full would have a blocking one wait for ever.
    let Ok(probe) = stream(SocketFlags::NONBLOCK) else { return false };
    let address = SocketAddrUnix::new(path);
    socket
        && address
            .is_ok_and(|address| rustix::net::connect(&probe, &address) == Err(Errno::CONNREFUSED))
}

/// Listens on a TCP port; its address has the port that the system chose, if it was to.
///
/// # Errors
/// The system's; `PermissionDenied` for an address that other hosts reach, unless it
/// `may_be_remote`.
pub fn listen_tcp(address: &str, may_be_remote: bool) -> io::Result<(OwnedFd, SocketAddr)> {
    // The places that were checked are those that are bound: the name is not resolved again.
    let places: Vec<SocketAddr> = address.to_socket_addrs()?.collect();
    if let Some(place) = places.iter().find(|place| !is_loopback(place) && !may_be_remote) {
        return Err(beyond_loopback(place));
    }
    // It sets SO_REUSEADDR, so a restart does not wait for old connections to be forgotten.
    let listener = TcpListener::bind(&places[..])?;
    let place = listener.local_addr()?;
    Ok((listener.into(), place))
}

pub(crate) fn is_loopback(place: &SocketAddr) -> bool {
    place.ip().to_canonical().is_loopback()
}

fn beyond_loopback(place: &SocketAddr) -> io::Error {
    let why = format!(
        "{place} is reached by other hosts, and everything on it is neither encrypted nor asked \
         for a name: name a loopback address, or say that this is meant with the option `insecure`"
    );
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::sync::Barrier;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("weir-{name}-{}", std::process::id()));
            fs::create_dir(&path).expect("a folder");
            Folder(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn of_many_that_want_a_socket_at_once_one_has_it_and_keeps_it() {
        let folder = Folder::new("race");
        let path = folder.0.join("nbd.sock");
        for round in 0..200 {
            // The socket file of a daemon that was killed.
            drop(UnixListener::bind(&path).expect("a free path"));
            let (start, end) = (Barrier::new(8), Barrier::new(8));
            let contend = || {
                start.wait();
                let got = listen_unix(&path, Rights::default());
                end.wait();
                if let Err(error) = &got {
                    assert_eq!(error.kind(), io::ErrorKind::AddrInUse, "{error}");
                }
                got.ok().is_some_and(|(_socket, file)| {
                    assert!(file.is_there().expect("a file"), "round {round}: it was taken away");
                    true
                })
            };
            let had = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..8).map(|_| scope.spawn(contend)).collect();
                let had = threads.into_iter().map(|thread| thread.join().expect("no panic"));
                had.filter(|had| *had).count()
            });
            assert_eq!(had, 1, "round {round}");
            assert!(!path.exists(), "the one that had it removes it");
        }
    }

    #[test]
    fn a_socket_is_removed_by_its_maker_unless_another_is_there() {
        let folder = Folder::new("removed");
        let path = folder.0.join("nbd.sock");
        let (first, first_file) = listen_unix(&path, Rights::default()).expect("a free path");
        let error = listen_unix(&path, Rights::default()).expect_err("it is in use");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        drop(first);
        let (_second, second_file) = listen_unix(&path, Rights::default()).expect("left over");
        drop(first_file);
        UnixStream::connect(&path).expect("the second one is still there");
        drop(second_file);
        assert!(!path.exists());
        fs::write(&path, "").expect("a file");
        let error = listen_unix(&path, Rights::default()).expect_err("no socket at all");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(path.exists());
    }

    #[test]
    fn a_socket_that_goes_on_in_another_process_keeps_its_file() {
        let folder = Folder::new("passed");
        let path = folder.0.join("nbd.sock");
        let (socket, file) = listen_unix(&path, Rights::default()).expect("a free path");
        file.keep();
        UnixStream::connect(&path).expect("it is still there");
        let wider = Rights { mode: 0o660, ..Rights::default() };
        let file = SocketFile::inherit(&path, wider).expect("it is there");
        let mode = fs::metadata(&path).expect("a file").mode() & 0o777;
        assert_eq!(mode, 0o660);
        drop(socket);
        drop(file);
        assert!(!path.exists(), "the one that inherits it removes it");
        let error = SocketFile::inherit(&path, wider).expect_err("it is gone");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        fs::write(&path, "").expect("a file");
        let error = SocketFile::inherit(&path, wider).expect_err("no socket");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn a_folder_that_is_kept_locked_is_named_instead_of_waited_for() {
        let folder = Folder::new("locked");
        let held = File::open(&folder.0).expect("a folder");
        flock(&held, FlockOperation::LockExclusive).expect("it is free");
        let path = folder.0.join("nbd.sock");
        let error = listen_unix(&path, Rights::default()).expect_err("it is locked");
        assert!(error.to_string().contains("keeps its folder locked"), "{error}");
        assert!(!path.exists());
    }

    #[test]
    fn an_address_beyond_loopback_is_refused_unless_it_may_be_remote() {
        for address in ["0.0.0.0:0", "[::]:0", "[::ffff:0.0.0.0]:0"] {
            let error = listen_tcp(address, false).expect_err(address);
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
            assert!(error.to_string().contains("insecure"), "{error}");
        }
        for address in ["127.0.0.1:0", "127.1.2.3:0"] {
            let (_socket, place) = listen_tcp(address, false).expect("a port");
            assert!(is_loopback(&place) && place.port() != 0);
        }
        listen_tcp("0.0.0.0:0", true).expect("it was said that this is meant");
    }
}
