//! A router between two sockets, in the places of the kernel and of the library.

use std::os::fd::AsFd;
use std::sync::mpsc::Sender;
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::*;

const SECOND: u64 = 1_000_000_000;
const PATIENCE: Duration = Duration::from_secs(60);

/// Opcodes, as in `wire.rs`: one that goes to the library, and two that are dealt with here.
const SETXATTR: u32 = 21;
const FORGET: u32 = 2;
const READ: u32 = 15;

/// Memory that is enough for all that is read here at once.
const MEMORY: usize = 64 << 20;

struct Bed {
    host: Arc<Host>,
    calls: Handle<Calls>,
    /// The other end of the router's.
    kernel: OwnedFd,
    library: OwnedFd,
    /// The router's own, to look at what it has not read.
    inside: OwnedFd,
}

/// What the reactor has of calls that wait for the library.
#[derive(Clone, Copy, Debug)]
struct Seen {
    waiting: usize,
    bytes: usize,
    asked: usize,
    takes_more: bool,
}

fn pair() -> (OwnedFd, OwnedFd) {
    let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
    let (ours, theirs) = socketpair(AddressFamily::UNIX, kind, flags, None).unwrap();
    set_socket_timeout(&ours, Timeout::Recv, Some(PATIENCE)).unwrap();
    (ours, theirs)
}

impl Bed {
    fn new() -> Bed {
        let host = Arc::new(Host::new(1).unwrap());
        let disks = Disks::new(Arc::clone(&host), Vec::new(), Arc::default(), MEMORY);
        let ((kernel, inside), (library, theirs)) = (pair(), pair());
        fcntl_setfl(&inside, OFlags::NONBLOCK).unwrap();
        let link = Arc::new(Link::new(inside.try_clone().unwrap()));
        let router = CallRouter::new(Arc::new(disks), link, theirs, Arc::new(|| ()));
        let calls = Calls::install(&host, 0, router).unwrap();
        Bed { host, calls, kernel, library, inside }
    }

    /// Sends a call, unless there is no room for it now.
    fn send(&self, call: &[u8]) -> bool {
        match send(&self.kernel, call, SendFlags::DONTWAIT) {
            Ok(_) => true,
            Err(Errno::AGAIN) => false,
            Err(error) => panic!("{error}"),
        }
    }

    /// Keeps the reactor from everything until the sender is dropped.
    fn hold(&self) -> Sender<()> {
        let ((held, holds), (sender, receiver)) = (channel(), channel::<()>());
        self.calls.post(move |_, _| {
            held.send(()).unwrap();
            // It ends with the sender.
            let _ = receiver.recv();
        });
        holds.recv().unwrap();
        sender
    }

    fn look(&self) -> Seen {
        let (sender, receiver) = channel();
        self.calls.post(move |calls, _| {
            let router = calls.0.as_ref().unwrap();
            let (waiting, bytes) = (router.waiting.len(), router.waiting_bytes);
            let (asked, takes_more) = (router.asked.len(), router.takes_more());
            sender.send(Seen { waiting, bytes, asked, takes_more }).unwrap();
        });
        receiver.recv_timeout(PATIENCE).unwrap()
    }

    /// How many of `count` calls of one length the router has not read, each time that the reactor
    /// has waited for descriptors, another of which is ready.
    fn left_by_round(&self, count: usize, call: impl Fn(u64) -> Vec<u8>) -> Vec<usize> {
        let (sender, receiver) = channel();
        let (inside, each) = (self.inside.try_clone().unwrap(), call(1).len());
        let (ready, other) = pair();
        let make = move |turn: &mut Turn<'_>| {
            turn.watch(&ready, 0, Interest { read: true, write: false }).unwrap();
            Neighbour { ready, inside, each, left: vec![count], told: sender }
        };
        let neighbour = self.host.install(0, make).unwrap();
        // Both are ready when the reactor waits next.
        let held = self.hold();
        (0..count).for_each(|n| assert!(self.send(&call(n as u64 + 1)), "room for {count}"));
        send(&other, b"ready", SendFlags::empty()).unwrap();
        drop(held);
        let left = receiver.recv_timeout(PATIENCE).expect("all calls are read");
        neighbour.remove();
        left
    }

    fn stop(self) {
        self.calls.remove();
        self.host.stop(10 * SECOND).unwrap();
    }
}

/// A service whose descriptor is always ready, until the router has read everything.
struct Neighbour {
    ready: OwnedFd,
    inside: OwnedFd,
    /// Bytes of a call.
    each: usize,
    left: Vec<usize>,
    told: Sender<Vec<usize>>,
}

impl Service for Neighbour {
    fn ready(&mut self, turn: &mut Turn<'_>, _: u32, _: Readiness) {
        let bytes = rustix::io::ioctl_fionread(self.inside.as_fd()).unwrap() as usize;
        self.left.push(bytes / self.each);
        if bytes == 0 {
            turn.unwatch(&self.ready);
            self.told.send(self.left.clone()).unwrap();
        }
    }

    fn completed(&mut self, _: &mut Turn<'_>, _: u32) {}

    fn settle(&mut self, _: &mut Turn<'_>) {}
}

fn call(opcode: u32, unique: u64, arguments: &[u8]) -> Vec<u8> {
    let len = (40 + arguments.len()) as u32;
    let head: [&[u8]; 5] =
        [&len.to_ne_bytes(), &opcode.to_ne_bytes(), &unique.to_ne_bytes(), &[0; 24], arguments];
    head.concat()
}

/// The call that a message names, and its error if it is an answer.
fn unique_and_error(message: &[u8]) -> (u64, i32) {
    let unique = message[8..16].try_into().map(u64::from_ne_bytes).unwrap();
    (unique, message[4..8].try_into().map(i32::from_ne_bytes).unwrap())
}

fn received(socket: &OwnedFd) -> Vec<u8> {
    let mut bytes = vec![0; 1 << 20];
    let (len, _) = recv(socket, &mut bytes[..], RecvFlags::empty()).expect("a message");
    bytes.truncate(len);
    bytes
}

/// The most calls that were read between two looks.
fn most(left: &[usize]) -> usize {
    left.windows(2).map(|pair| pair[0] - pair[1]).max().unwrap()
}

#[test]
fn others_have_their_turn_after_so_many_calls() {
    let bed = Bed::new();
    let left = bed.left_by_round(200, |n| call(FORGET, n, &[0; 8]));
    assert!(most(&left) <= CALLS, "{left:?}");
    bed.stop();
}

#[test]
fn others_have_their_turn_after_calls_that_ask_for_so_many_bytes() {
    let bed = Bed::new();
    // Of a file that is not open, so each is answered at once.
    let (handle, offset, len) = ([9; 8], [0; 8], (BYTES as u32 / 2).to_ne_bytes());
    let arguments = [&handle[..], &offset, &len, &[0; 20]].concat();
    let left = bed.left_by_round(12, |n| call(READ, n, &arguments));
    assert!(most(&left) <= 2, "{left:?}");
    for n in 1..=12 {
        assert_eq!(unique_and_error(&received(&bed.kernel)), (n, -Errno::BADF.raw_os_error()));
    }
    bed.stop();
}

/// Has so many calls with so many bytes beside the head wait for a library that takes none until no
/// more are taken; what the reactor has then. All of them arrive at last, in their order.
fn fill(many: u64, beside: usize) -> Seen {
    let bed = Bed::new();
    let message = |n| call(SETXATTR, n, &vec![0; beside]);
    let mut sent = 0;
    let mut send_on = || {
        while sent < many && bed.send(&message(sent + 1)) {
            sent += 1;
        }
        sent
    };
    let full = loop {
        let sent = send_on();
        let seen = bed.look();
        if !seen.takes_more {
            break seen;
        }
        assert!(sent < many, "all are taken: {seen:?}");
    };
    // What comes now waits in the kernel.
    send_on();
    let sent = send_on();
    let later = [(); 3].map(|()| bed.look());
    assert!(later.iter().all(|seen| seen.waiting == full.waiting), "{full:?}, {later:?}");
    for n in 1..=sent {
        assert_eq!(unique_and_error(&received(&bed.library)).0, n);
    }
    assert!(bed.look().takes_more);
    bed.stop();
    full
}

#[test]
fn no_more_calls_are_taken_while_so_many_wait_for_the_library() {
    let full = fill(WAITING as u64 + 2000, 0);
    assert_eq!(full.waiting, WAITING);
}

#[test]
fn no_more_calls_are_taken_while_so_many_bytes_wait_for_the_library() {
    let beside = 60 << 10;
    let full = fill(200, beside);
    assert!((WAITING_BYTES..=WAITING_BYTES + beside + 40).contains(&full.bytes), "{full:?}");
}

#[test]
fn what_a_library_answered_before_it_ended_with_calls_unread_is_brought_to_the_kernel() {
    let Bed { host, calls, kernel, library, inside } = Bed::new();
    let bed = Bed { host, calls, kernel, library: library.try_clone().unwrap(), inside };
    (1..=2).for_each(|n| assert!(bed.send(&call(SETXATTR, n, &[]))));
    while bed.look().asked < 2 {}
    let held = bed.hold();
    assert_eq!(unique_and_error(&received(&library)).0, 1);
    let answer = [&16_u32.to_ne_bytes()[..], &[0; 4], &1_u64.to_ne_bytes()].concat();
    send(&library, &answer, SendFlags::empty()).unwrap();
    // The second call is not read.
    let Bed { host, calls, kernel, library: clone, inside } = bed;
    drop((library, clone));
    drop(held);
    let mut answers = [(); 2].map(|()| unique_and_error(&received(&kernel)));
    answers.sort_unstable();
    assert_eq!(answers, [(1, 0), (2, -Errno::IO.raw_os_error())]);
    Bed { host, calls, kernel, library: inside.try_clone().unwrap(), inside }.stop();
}
