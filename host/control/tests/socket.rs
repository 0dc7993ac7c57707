//! The control socket: who may come in, what a client can cost, and how it ends.

mod bed;

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bed::{Model, tree};
use weir_bio::Limits;
use weir_control::{CLIENTS_MAX, ClientError, ControlClient, Errno, Node, Server};

/// A folder that goes away with the value.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("weir-control-{}-{count}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).unwrap();
        Folder(folder)
    }

    fn socket(&self) -> PathBuf {
        self.0.join("control.sock")
    }

    fn serve(&self) -> Server {
        let limits = Limits { capacity: 1024, ..Limits::default() };
        Server::open(&self.socket(), Arc::new(tree(Model::new("sda", limits)))).unwrap()
    }

    fn client(&self) -> ControlClient {
        ControlClient::connect(&self.socket()).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[track_caller]
fn refused<T: std::fmt::Debug>(outcome: Result<T, ClientError>) -> Errno {
    match outcome.unwrap_err() {
        ClientError::Refused(failure) => failure.errno,
        lost @ ClientError::Lost { .. } => panic!("{lost}"),
    }
}

const SCHEDULER: &str = "block/sda/queue/scheduler";

#[test]
fn a_client_lists_reads_and_writes_in_turn() {
    let folder = Folder::new();
    let _server = folder.serve();
    let mut client = folder.client();
    let names = client.list("").unwrap();
    assert_eq!(names[0], (String::from("block"), Node::Directory));
    let queue = client.list("block/sda/queue").unwrap();
    assert!(queue.contains(&(String::from("nr_requests"), Node::File { writable: true })));
    client.write(SCHEDULER, b"bfq\n").unwrap();
    assert_eq!(client.read(SCHEDULER).unwrap(), "none mq-deadline kyber [bfq] \n");
    assert_eq!(refused(client.write(SCHEDULER, b"frob")), Errno::Invalid);
    assert_eq!(refused(client.write("block/sda/ro", b"1")), Errno::Access);
    assert_eq!(refused(client.read("block/sdb")), Errno::NotFound);
    assert_eq!(refused(client.list(SCHEDULER)), Errno::NotDirectory);
    assert_eq!(client.read(SCHEDULER).unwrap(), "none mq-deadline kyber [bfq] \n");
}

#[test]
fn its_owner_alone_may_connect() {
    let folder = Folder::new();
    let _server = folder.serve();
    let mode = std::fs::metadata(folder.socket()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "{mode:o}");
}

#[test]
fn a_megabyte_is_refused_and_the_connection_goes_on() {
    let folder = Folder::new();
    let _server = folder.serve();
    let mut client = folder.client();
    let long = vec![b'x'; 1 << 20];
    assert_eq!(refused(client.write(SCHEDULER, &long)), Errno::Invalid);
    let digits = vec![b'9'; 1 << 20];
    assert_eq!(refused(client.write("block/sda/queue/nr_requests", &digits)), Errno::Invalid);
    assert_eq!(client.read(SCHEDULER).unwrap(), "[none] mq-deadline kyber bfq \n");
}

#[test]
fn what_is_no_request_is_answered_and_ends_the_connection() {
    let folder = Folder::new();
    let _server = folder.serve();
    for bytes in [&b"frob 0 0\n"[..], b"GET / HTTP/1.1\r\n\r\n", &[b'a'; 100], b"get 5000 0\n"] {
        let mut stream = UnixStream::connect(folder.socket()).unwrap();
        stream.write_all(bytes).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("EINVAL "), "{answer:?}");
    }
    // A client that leaves in the middle disturbs no other.
    UnixStream::connect(folder.socket()).unwrap().write_all(b"set 10 10\nblock").unwrap();
    assert_eq!(folder.client().list("block").unwrap().len(), 1);
}

#[test]
fn many_clients_are_served_at_once_and_one_too_many_is_told() {
    let folder = Folder::new();
    let _server = folder.serve();
    let mut clients: Vec<ControlClient> = Vec::new();
    for _ in 0..CLIENTS_MAX {
        let mut client = folder.client();
        // It has been accepted once it has an answer.
        client.read(SCHEDULER).unwrap();
        clients.push(client);
    }
    assert_eq!(refused(folder.client().read(SCHEDULER)), Errno::Busy);
    for client in &mut clients {
        client.read(SCHEDULER).unwrap();
    }
    drop(clients);
    // Places come free when the daemon notices that their clients are gone.
    while folder.client().read(SCHEDULER).is_err() {
        std::thread::yield_now();
    }
}

#[test]
fn a_second_daemon_is_refused_and_a_socket_left_behind_is_replaced() {
    let folder = Folder::new();
    // A daemon that was killed leaves a socket file at which no process listens.
    drop(UnixListener::bind(folder.socket()).unwrap());
    let server = folder.serve();
    let again = Server::open(&folder.socket(), Arc::default());
    assert_eq!(again.err().unwrap().kind(), std::io::ErrorKind::AddrInUse);
    assert_eq!(folder.client().list("block").unwrap().len(), 1, "the first still answers");
    drop(server);
    assert!(!folder.socket().exists());
    std::fs::write(folder.socket(), "not a socket").unwrap();
    let over = Server::open(&folder.socket(), Arc::default());
    assert_eq!(over.err().unwrap().kind(), std::io::ErrorKind::AddrInUse);
}

#[test]
fn the_end_cuts_clients_off_and_leaves_another_daemons_socket_alone() {
    let folder = Folder::new();
    let server = folder.serve();
    let mut client = folder.client();
    client.read(SCHEDULER).unwrap();
    std::fs::remove_file(folder.socket()).unwrap();
    let _other = folder.serve();
    drop(server);
    assert!(matches!(client.read(SCHEDULER), Err(ClientError::Lost { .. })));
    assert_eq!(folder.client().list("block").unwrap().len(), 1);
}
