//! The driver against servers played by the test: awkward ones, broken ones, hostile ones, and
//! ones that go away.

mod support;

use std::net::Shutdown;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use support::peer::{Disk, Peer, SIZE, Session, settings};
use support::{HANDED_BACK, Lane, bytes, exercise, flush, hasty, read, write};
use weir_bio::{Bio, Buf, Data, Flags, Op, Prng, Status};
use weir_driver_nbd::{Nbd, Options};
use weir_proto_nbd::NbdError;
use weir_proto_nbd::server::{Chunk, Export, Replies, Settings};
use weir_proto_nbd::wire::{
    ChunkType, Command, ExtendedHeader, Mode, ReplyFlags, ReplyTo, Request, StructuredHeader,
    TransmissionFlags,
};
use weir_queue::rig::Answered;
use weir_queue::{Driver, Extent};

const MODES: [Mode; 3] = [Mode::Simple, Mode::Structured, Mode::Extended];

fn connect(peer: &Peer, options: Options) -> Nbd {
    Nbd::connect(peer.address(), "", options).expect("a device")
}

fn is_back(nbd: &Nbd) -> bool {
    nbd.notices().last().is_some_and(|last| last.ends_with("is back"))
}

/// A queue whose connection was lost is turned until it is back.
#[track_caller]
fn reconnect(nbd: &Nbd, lane: &mut Lane) {
    lane.pass_until(|| is_back(nbd));
}

#[test]
fn an_orderly_server_is_served_in_every_mode() {
    for (mode, seed) in MODES.into_iter().zip(10..) {
        let (peer, disk) = (Peer::new(), Disk::new());
        thread::scope(|scope| {
            scope.spawn(|| peer.session_in(mode).serve(&disk));
            let nbd = connect(&peer, hasty());
            assert_eq!(nbd.server().mode, mode);
            exercise(&nbd, seed, 3000);
        });
    }
}

#[test]
fn an_awkward_server_is_served_in_every_mode() {
    for (mode, seed) in MODES.into_iter().zip(20..) {
        let (peer, disk) = (Peer::new(), Disk::new());
        thread::scope(|scope| {
            for connection in 0..3 {
                let (peer, disk) = (&peer, &disk);
                scope.spawn(move || {
                    peer.session_in(mode).serve_awkwardly(disk, seed * 10 + connection);
                });
            }
            let nbd = connect(&peer, Options { connections: 3, ..hasty() });
            exercise(&nbd, seed, 3000);
        });
    }
}

#[test]
fn extended_headers_are_only_asked_for_when_wanted() {
    let peer = Peer::new();
    thread::scope(|scope| {
        scope.spawn(|| peer.session_in(Mode::Extended).until_left());
        let plain = Options { extended: false, ..hasty() };
        assert_eq!(connect(&peer, plain).server().mode, Mode::Structured);
    });
}

#[test]
fn the_allocation_is_asked_for_over_a_connection_of_its_own() {
    for mode in [Mode::Structured, Mode::Extended] {
        let (peer, disk) = (Peer::new(), Disk::new());
        thread::scope(|scope| {
            let (peer, disk) = (&peer, &disk);
            for _ in 0..2 {
                scope.spawn(move || peer.session_in(mode).serve(disk));
            }
            let nbd = connect(peer, hasty());
            let _lane = Lane::open(&nbd, 0);
            let extent = |sectors, hole| Extent { sectors, hole, zero: false };
            for _ in 0..2 {
                let found = nbd.allocation(0, 400).unwrap();
                assert_eq!(
                    found,
                    [extent(128, false), extent(128, true), extent(128, false), extent(16, true)]
                );
            }
        });
    }
}

/// The requests every hostile server gets: a read of 4 KiB at 0 and a write of 4 KiB at 8 KiB.
struct Victims {
    read: ReplyTo,
    write: ReplyTo,
}

/// A server breaks the rules in its answer to [`Victims`]: both end with `Transport`, the notice
/// says why, and the next connection works.
#[track_caller]
fn hostile(mode: Mode, words: &str, script: impl FnOnce(&mut Session, &Victims) + Send) {
    let (peer, disk) = (Peer::new(), Disk::new());
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut session = peer.session_in(mode);
            let (read, _) = session.request().expect("the read");
            let (write, _) = session.request().expect("the write");
            assert_eq!((read.command, write.command), (Command::READ, Command::WRITE));
            let victims = Victims { read: read.reply_to(), write: write.reply_to() };
            script(&mut session, &victims);
            session.until_left();
            peer.session_in(mode).serve(&disk);
        });
        let nbd = connect(&peer, hasty());
        let mut lane = Lane::open(&nbd, 0);
        lane.submit(vec![read(0, 8).cookie(1), write(16, 8, 1).cookie(2)]);
        let mut ends: Vec<_> = lane.all().iter().map(|end| (end.cookie, end.status)).collect();
        ends.sort_by_key(|end| end.0);
        assert_eq!(ends, [(1, Status::Transport), (2, Status::Transport)], "{mode:?}: {words}");
        let notices = nbd.notices();
        assert!(notices[0].contains(words), "{mode:?}: {notices:?} lacks {words:?}");
        reconnect(&nbd, &mut lane);
        assert_eq!(lane.status(read(0, 8)), Status::Ok);
    });
}

/// A chunk of any kind and payload in answer to `to`.
fn chunk(mode: Mode, to: ReplyTo, kind: ChunkType, done: bool, payload: &[u8]) -> Vec<u8> {
    let flags = if done { ReplyFlags::DONE } else { ReplyFlags::EMPTY };
    let (cookie, offset) = (to.cookie, to.offset);
    let head = if mode == Mode::Extended {
        let length = payload.len() as u64;
        ExtendedHeader { flags, chunk: kind, cookie, offset, length }.encode().to_vec()
    } else {
        let length = payload.len() as u32;
        StructuredHeader { flags, chunk: kind, cookie, length }.encode().to_vec()
    };
    [&head[..], payload].concat()
}

#[test]
fn garbage_instead_of_a_reply_loses_the_connection() {
    for mode in MODES {
        hostile(mode, "reply starts with 0xdeadbeef", |session, _| {
            session.send(&[0xde, 0xad, 0xbe, 0xef].repeat(1000));
        });
    }
}

#[test]
fn a_reply_to_nothing_loses_the_connection() {
    for mode in MODES {
        hostile(mode, "unknown cookie", |session, victims| {
            let stranger = ReplyTo { cookie: victims.read.cookie ^ 1 << 40, ..victims.read };
            session.say(|replies, out| replies.done(stranger, out));
        });
        hostile(mode, "unknown cookie 0xffffffffffffffff", |session, victims| {
            let stranger = ReplyTo { cookie: u64::MAX, ..victims.read };
            session.say(|replies, out| replies.error(stranger, NbdError::Io, "", out));
        });
    }
}

#[test]
fn a_reply_that_comes_twice_loses_the_connection() {
    for mode in MODES {
        let (peer, disk) = (Peer::new(), Disk::new());
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut session = peer.session_in(mode);
                let (request, _) = session.request().expect("a write");
                for _ in 0..2 {
                    session.say(|replies, out| replies.done(request.reply_to(), out));
                }
                session.until_left();
                peer.session_in(mode).serve(&disk);
            });
            let nbd = connect(&peer, hasty());
            let mut lane = Lane::open(&nbd, 0);
            assert_eq!(lane.status(write(0, 8, 1)), Status::Ok);
            lane.step_until(|| !nbd.notices().is_empty());
            assert!(nbd.notices()[0].contains("unknown cookie"), "{:?}", nbd.notices());
            reconnect(&nbd, &mut lane);
            assert_eq!(lane.status(read(0, 8)), Status::Ok);
        });
    }
}

#[test]
fn data_that_was_not_asked_for_loses_the_connection() {
    for mode in [Mode::Structured, Mode::Extended] {
        let part = |offset, length, last| Chunk { offset, length, last };
        let mut cases: Vec<(&str, Vec<Chunk>)> = vec![
            ("were not asked for", vec![part(4095, 512, true)]),
            ("were not asked for", vec![part(1 << 63, 512, true)]),
            ("payload of 4105 bytes", vec![part(0, 4097, true)]),
            ("came before", vec![part(0, 512, false), part(511, 512, false)]),
            ("done with 512 bytes missing", vec![part(512, 3584, true)]),
        ];
        let scattered = (0..9).map(|at| part(at * 16, 8, false)).collect();
        cases.push(("separate places", scattered));
        for (words, chunks) in cases {
            hostile(mode, words, |session, victims| {
                for chunk in chunks {
                    session.say(|replies, out| {
                        replies.data_header(victims.read, chunk, out);
                        out.resize(out.len() + chunk.length as usize, 7);
                    });
                }
            });
        }
        hostile(mode, "were not asked for", |session, victims| {
            let hole = part(0, u32::MAX, true);
            session.say(|replies, out| replies.hole(victims.read, hole, out));
        });
        hostile(mode, "4096 bytes missing", |session, victims| {
            session.say(|replies, out| replies.done(victims.read, out));
        });
    }
}

#[test]
fn a_chunk_that_makes_no_sense_loses_the_connection() {
    for mode in [Mode::Structured, Mode::Extended] {
        let send = |session: &mut Session, to, kind, payload: &[u8]| {
            session.send(&chunk(mode, to, kind, true, payload));
        };
        hostile(mode, "cannot answer WRITE", |session, victims| {
            send(session, victims.write, ChunkType::OFFSET_DATA, &[0; 16]);
        });
        hostile(mode, "cannot answer READ", |session, victims| {
            send(session, victims.read, ChunkType::BLOCK_STATUS, &[0; 16]);
        });
        hostile(mode, "error chunk", |session, victims| {
            send(session, victims.read, ChunkType::ERROR, &[0, 0, 0, 5, 1, 0]);
        });
        hostile(mode, "payload of 3 bytes", |session, victims| {
            send(session, victims.read, ChunkType::OFFSET_HOLE, &[0; 3]);
        });
    }
    hostile(Mode::Structured, "simple reply to READ", |session, victims| {
        let mut out = Vec::new();
        Replies::new(Mode::Simple).done(victims.read, &mut out);
        session.send(&out);
    });
    hostile(Mode::Extended, "repeats offset 512", |session, victims| {
        let to = ReplyTo { offset: 512, ..victims.read };
        session.say(|replies, out| replies.error(to, NbdError::Io, "", out));
    });
}

#[test]
fn an_end_in_the_middle_of_anything_loses_the_connection() {
    for mode in MODES {
        hostile(mode, "the server closed it", |session, _| {
            session.stream.shutdown(Shutdown::Both).expect("a socket");
        });
        let mut whole = Vec::new();
        Replies::new(mode).read_header(ReplyTo { cookie: 0, offset: 0 }, 4096, &mut whole);
        let header = whole.len();
        for cut in [1, 15, header - 1, header, header + 1, header + 4095] {
            hostile(mode, "the server closed it", |session, victims| {
                let mut out = Vec::new();
                session.replies().read_header(victims.read, 4096, &mut out);
                out.resize(header + 4096, 7);
                session.send(&out[..cut]);
                session.stream.shutdown(Shutdown::Write).expect("a socket");
            });
        }
    }
}

#[test]
fn bytes_behind_the_handshake_that_nobody_asked_for_are_an_error() {
    let peer = Peer::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut session = peer.session_in(Mode::Structured);
            session.send(&[0; 64]);
            session.until_left();
            peer.session_in(Mode::Structured).until_left();
        });
        let nbd = connect(&peer, hasty());
        // The bytes may come with the handshake or after it; both are found out.
        match nbd.open(0, 4) {
            Err(why) => {
                assert!(why.to_string().contains("reply starts with"), "{why}");
                nbd.open(0, 4).map(drop).expect("a second connection");
            }
            Ok(queue) => {
                let mut lane = Lane::of(queue, 4);
                lane.step_until(|| !nbd.notices().is_empty());
                assert!(nbd.notices()[0].contains("reply starts with"), "{:?}", nbd.notices());
                reconnect(&nbd, &mut lane);
            }
        }
    });
}

#[test]
fn a_connection_lost_in_flight_ends_each_request_exactly_once() {
    for seed in 30..60 {
        println!("seed {seed}");
        let mut prng = Prng::new(seed);
        let mode = MODES[prng.below(3) as usize];
        let answered = 1 + prng.below(63) as usize;
        let (peer, disk) = (Peer::new(), Disk::new());
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut session = peer.session_in(mode);
                for _ in 0..answered {
                    let (request, _) = session.request().expect("a request");
                    let length = request.length as usize;
                    session.say(|replies, out| {
                        if request.command == Command::READ {
                            replies.read_header(request.reply_to(), length as u32, out);
                            out.resize(out.len() + length, 5);
                        } else {
                            replies.done(request.reply_to(), out);
                        }
                    });
                }
                drop(session);
                peer.session_in(mode).serve(&disk);
            });
            let nbd = connect(&peer, hasty());
            let mut lane = Lane::open(&nbd, 0);
            let bio = |at: u64, large| match (at.is_multiple_of(2), large) {
                (true, false) => read(at * 8, 8),
                (true, true) => read(at * 8, 200),
                (false, false) => write(at * 8, 8, 1),
                (false, true) => write(at * 8, 200, 1),
            };
            let bios = (0..64).map(|at| bio(at, prng.percent(30)).cookie(at)).collect();
            lane.submit(bios);
            let mut ends = [None; 64];
            for answer in lane.all() {
                let slot = &mut ends[answer.cookie as usize];
                assert_eq!(*slot, None, "request {} ended twice", answer.cookie);
                assert!(answer.data.len() == 4096 || answer.data.len() == 102_400);
                *slot = Some(answer.status);
            }
            // A server that closes with requests unread may take its last replies with it.
            let well = ends.iter().filter(|end| **end == Some(Status::Ok)).count();
            let badly = ends.iter().filter(|end| **end == Some(Status::Transport)).count();
            assert!(well <= answered && well + badly == 64, "{well} of {answered}, {badly}");
            lane.step_until(|| !nbd.notices().is_empty());
            reconnect(&nbd, &mut lane);
            let back = lane.one(read(0, 8));
            assert_eq!((back.status, bytes(&back.data)), (Status::Ok, vec![0; 4096]));
        });
    }
}

#[test]
fn attempts_to_reconnect_come_ever_more_slowly() {
    let peer = Peer::new();
    let (nbd, mut lane) = thread::scope(|scope| {
        scope.spawn(|| peer.session_in(Mode::Simple).vanish());
        let nbd = connect(&peer, hasty());
        let mut lane = Lane::open(&nbd, 0);
        assert_eq!(lane.status(read(0, 8)), Status::Transport);
        (nbd, lane)
    });
    drop(peer);
    let mut waits = Vec::new();
    for _ in 0..9 {
        let before = lane.now;
        lane.pass_time();
        waits.push(lane.now.since(before) / 1_000_000);
        assert_eq!(lane.status(read(0, 8)), Status::Transport);
    }
    assert_eq!(waits, [0, 100, 200, 400, 800, 1600, 3200, 5000, 5000]);
    let notices = nbd.notices();
    assert_eq!(notices.len(), 2, "one for the loss, one for all attempts: {notices:?}");
    assert!(notices[1].contains("goes on trying: connect"), "{notices:?}");
}

#[test]
fn new_requests_are_held_back_for_the_reconnect_and_no_longer() {
    let (peer, disk) = (Peer::new(), Disk::new());
    thread::scope(|scope| {
        scope.spawn(|| {
            peer.session_in(Mode::Simple).vanish();
            peer.session_in(Mode::Simple).serve(&disk);
        });
        let patient = Options { reconnect: Duration::from_millis(500), ..hasty() };
        let nbd = connect(&peer, patient);
        let mut lane = Lane::open(&nbd, 0);
        assert_eq!(lane.status(read(0, 8)), HANDED_BACK);
        assert_eq!(lane.rig.queue().outage_until(), Some(lane.now + 500_000_000));
        let (why, rest) = lane.rig.submit(vec![read(0, 8)], lane.now).expect("a refusal");
        assert_eq!((why, rest.len()), (Status::Resource, 1));
        lane.now = lane.now + 499_999_999;
        assert!(lane.rig.submit(vec![read(0, 8)], lane.now).is_some());
        lane.now = lane.now + 1;
        assert_eq!(lane.status(read(0, 8)), Status::Transport);
        reconnect(&nbd, &mut lane);
        assert_eq!(lane.status(read(0, 8)), Status::Ok);
    });
}

#[test]
fn a_server_that_comes_back_with_less_is_not_the_same_device() {
    let poorer = || Export {
        flags: TransmissionFlags::SEND_FLUSH | TransmissionFlags::SEND_FUA,
        ..Export::new("", SIZE)
    };
    let cases = [
        (Export::new("", SIZE * 2), "its size is 8388608 and was 4194304"),
        (poorer(), "it no longer offers"),
    ];
    for (second, words) in cases {
        let peer = Peer::new();
        thread::scope(|scope| {
            scope.spawn(|| {
                peer.session_in(Mode::Structured).vanish();
                peer.session(second, Settings::default()).until_left();
            });
            let nbd = connect(&peer, hasty());
            let mut lane = Lane::open(&nbd, 0);
            assert_eq!(lane.status(read(0, 8)), Status::Transport);
            lane.pass_time();
            lane.step_until(|| nbd.notices().last().is_some_and(|last| last.contains(words)));
            assert_eq!(lane.status(read(0, 8)), Status::Offline);
            assert_eq!(lane.rig.queue().wake_at(), None, "it is not tried again");
            let faults = nbd.faults();
            let told = faults.iter().any(|fault| {
                fault.contains("connection 0 is lost, as the server is back with another export")
                    && fault.contains(words)
            });
            assert!(told, "{faults:?}");
        });
    }
}

#[test]
fn a_handshake_that_stalls_in_the_background_is_given_up_and_begun_again() {
    let (peer, disk) = (Peer::new(), Disk::new());
    thread::scope(|scope| {
        let (stalled, stall) = channel();
        let (peer, disk) = (&peer, &disk);
        scope.spawn(move || {
            peer.session_in(Mode::Structured).vanish();
            let silent = peer.connection();
            stalled.send(()).expect("somebody waits");
            peer.session_in(Mode::Structured).serve(disk);
            drop(silent);
        });
        let nbd = connect(peer, hasty());
        let mut lane = Lane::open(&nbd, 0);
        assert_eq!(lane.status(read(0, 8)), Status::Transport);
        lane.pass_time();
        assert_eq!(lane.status(read(0, 8)), Status::Transport);
        stall.recv().expect("a client that is kept waiting");
        let before = lane.now;
        lane.pass_time();
        assert_eq!(lane.now.since(before), 10_000_000_000, "the time limit of the handshake");
        assert!(nbd.notices().last().unwrap().contains("the greeting"), "{:?}", nbd.notices());
        reconnect(&nbd, &mut lane);
        assert_eq!(lane.status(read(0, 8)), Status::Ok);
    });
}

#[test]
fn flushes_fail_after_lost_writes_and_flushed_writes_are_safe() {
    let (peer, disk) = (Peer::new(), Disk::new());
    thread::scope(|scope| {
        scope.spawn(|| {
            // Each client is served so many requests and left.
            for count in [2, 2, 1] {
                let mut session = peer.session_in(Mode::Structured);
                for _ in 0..count {
                    let (request, _) = session.request().expect("a request");
                    session.say(|replies, out| replies.done(request.reply_to(), out));
                }
            }
            peer.session_in(Mode::Structured).serve(&disk);
        });
        let nbd = connect(&peer, hasty());
        let mut lane = Lane::open(&nbd, 0);
        let lost = |lane: &mut Lane, count: usize| {
            let losses =
                || nbd.notices().iter().filter(|notice| notice.contains("lost with")).count();
            lane.step_until(|| losses() == count);
            reconnect(&nbd, lane);
        };
        assert_eq!(lane.status(write(0, 8, 1)), Status::Ok);
        assert_eq!(lane.status(flush()), Status::Ok);
        lost(&mut lane, 1);
        assert_eq!(lane.status(flush()), Status::Ok, "everything was flushed");
        assert_eq!(lane.status(write(0, 8, 1).with(Flags::FUA)), Status::Ok);
        lost(&mut lane, 2);
        assert_eq!(lane.status(write(0, 8, 1)), Status::Ok);
        lost(&mut lane, 3);
        for _ in 0..3 {
            assert_eq!(lane.status(flush()), Status::IoErr, "the last write may be gone");
            assert_eq!(lane.status(write(0, 8, 1).with(Flags::FUA)), Status::Ok);
        }
        assert!(nbd.notices().iter().any(|notice| notice.contains("may be gone")));
    });
}

#[test]
fn a_connection_that_survived_vouches_for_one_that_was_lost() {
    let (peer, disk) = (Peer::new(), Disk::new());
    thread::scope(|scope| {
        let (peer, disk) = (&peer, &disk);
        scope.spawn(move || {
            let first = peer.session_in(Mode::Structured);
            let mut second = peer.session_in(Mode::Structured);
            scope.spawn(move || first.serve(disk));
            let (request, _) = second.request().expect("a write");
            second.say(|replies, out| replies.done(request.reply_to(), out));
            drop(second);
            peer.session_in(Mode::Structured).serve(disk);
        });
        let nbd = connect(peer, Options { connections: 2, ..hasty() });
        let (mut first, mut second) = (Lane::open(&nbd, 0), Lane::open(&nbd, 1));
        assert_eq!(second.status(write(0, 8, 1)), Status::Ok);
        second.step_until(|| !nbd.notices().is_empty());
        reconnect(&nbd, &mut second);
        assert_eq!(second.status(flush()), Status::IoErr, "it may be another server");
        assert_eq!(first.status(flush()), Status::Ok, "it is the same server");
        assert_eq!(second.status(flush()), Status::Ok);
    });
}

#[test]
fn a_write_of_a_queue_that_was_closed_is_in_doubt_once_the_others_are_lost() {
    for (noticed, flushed) in [(false, false), (false, true), (true, false)] {
        let (peer, disk) = (Peer::new(), Disk::new());
        thread::scope(|scope| {
            let (peer, disk) = (&peer, &disk);
            let (parted, part) = channel();
            scope.spawn(move || {
                let mut first = peer.session_in(Mode::Structured);
                let mut second = peer.session_in(Mode::Structured);
                let (request, _) = second.request().expect("a write");
                second.say(|replies, out| replies.done(request.reply_to(), out));
                if noticed {
                    drop(second);
                } else {
                    second.until_left();
                }
                if flushed {
                    let (request, _) = first.request().expect("a flush");
                    first.say(|replies, out| replies.done(request.reply_to(), out));
                }
                part.recv().expect("a queue that was closed");
                drop(first);
                peer.session_in(Mode::Structured).serve(disk);
            });
            let nbd = connect(peer, Options { connections: 2, ..hasty() });
            let (mut first, mut second) = (Lane::open(&nbd, 0), Lane::open(&nbd, 1));
            assert_eq!(second.status(write(0, 8, 1)), Status::Ok);
            if noticed {
                // Its server is gone, and the queue is closed before it has looked.
                second.sleep();
            }
            drop(second);
            if flushed {
                assert_eq!(first.status(flush()), Status::Ok);
            }
            parted.send(()).expect("a server that waits");
            first.step_until(|| nbd.notices().iter().any(|notice| notice.contains("lost with")));
            reconnect(&nbd, &mut first);
            let end = if flushed { Status::Ok } else { Status::IoErr };
            assert_eq!(first.status(flush()), end, "noticed {noticed}, flushed {flushed}");
            assert_eq!(nbd.notices().iter().any(|it| it.contains("may be gone")), !flushed);
        });
    }
}

#[test]
fn a_queue_that_was_prepared_opens_without_the_server() {
    let disk = Disk::new();
    thread::scope(|scope| {
        let disk = &disk;
        let (leave, left) = channel();
        let peer = Peer::new();
        let address = peer.address();
        scope.spawn(move || {
            let first = peer.session_in(Mode::Structured);
            scope.spawn(move || first.serve(disk));
            let second = peer.session_in(Mode::Structured);
            scope.spawn(move || second.serve(disk));
            // This one is gone before its queue is opened.
            drop(peer.session_in(Mode::Structured));
            drop(peer);
            leave.send(()).expect("a client that waits");
        });
        let options = Options { connections: 3, ..hasty() };
        let nbd = Nbd::connect(address, "", options).expect("a device");
        for index in [0, 1, 1, 2] {
            nbd.prepare(index).expect("a server");
        }
        left.recv().expect("a server that leaves");
        let error = nbd.prepare(3).unwrap_err().to_string();
        assert!(error.contains("connection 3"), "{error}");
        let mut second = Lane::open(&nbd, 1);
        assert_eq!(second.status(read(0, 8)), Status::Ok);
        let mut third = Lane::open(&nbd, 2);
        third.step_until(|| nbd.notices().iter().any(|notice| notice.contains("lost with 0")));
    });
}

#[test]
fn a_server_that_does_not_read_blocks_nobody_and_gets_everything_later() {
    for mode in MODES {
        let (peer, disk) = (Peer::new(), Disk::new());
        thread::scope(|scope| {
            let (begin, begun) = channel();
            let (peer, disk) = (&peer, &disk);
            scope.spawn(move || {
                let session = peer.session_in(mode);
                begun.recv().expect("the signal to begin");
                session.serve(disk);
            });
            let nbd = connect(peer, hasty());
            let mut lane = Lane::open(&nbd, 0);
            // Far more than any socket holds, in small pieces and large ones.
            let large = |at: u64| {
                let buf = Buf::filled(1 << 20, |bytes| bytes.fill(at as u8 + 1));
                Bio::write((at % 4) * 2048, buf)
            };
            lane.submit((0..40).map(large).collect());
            lane.submit((0..80).map(|at| write(at * 32, 31, 0xEE)).collect());
            assert!(lane.reap().is_empty());
            begin.send(()).expect("a server that waits");
            assert!(lane.all().iter().all(|answer| answer.status == Status::Ok));
            let disk = disk.0.lock().unwrap();
            for at in 0..80 {
                let small = &disk[at * 16384..][..31 * 512];
                assert!(small.iter().all(|byte| *byte == 0xEE), "write {at}");
            }
            assert!(disk[3 << 20..].iter().all(|byte| *byte == 40), "the last large write");
        });
    }
}

#[test]
fn a_write_answered_before_it_was_sent_keeps_its_memory_until_then() {
    let peer = Peer::new();
    thread::scope(|scope| {
        let (begin, begun) = channel();
        let peer = &peer;
        scope.spawn(move || {
            let mut session = peer.session_in(Mode::Structured);
            let request = session.header().expect("a write");
            let refusal = |replies: &Replies, out: &mut Vec<u8>| {
                replies.error(request.reply_to(), NbdError::NoSpc, "full", out);
            };
            session.say(refusal);
            begun.recv().expect("the signal to begin");
            let payload = session.payload(&request);
            assert!(payload.iter().all(|byte| *byte == 3));
            let (read, _) = session.request().expect("the stream is in step");
            session.say(|replies, out| {
                replies.read_header(read.reply_to(), 4096, out);
                out.resize(out.len() + 4096, 4);
            });
            session.until_left();
        });
        let nbd = connect(peer, hasty());
        let mut lane = Lane::open(&nbd, 0);
        let buf = Buf::filled(31 << 20, |bytes| bytes.fill(3));
        lane.submit(vec![Bio::write(0, buf)]);
        lane.sleep();
        assert!(lane.reap().is_empty(), "the memory is still being sent from");
        begin.send(()).expect("a server that waits");
        let answer = lane.all().remove(0);
        assert_eq!((answer.status, answer.data.len()), (Status::NoSpc, 31 << 20));
        assert_eq!(bytes(&lane.one(read(0, 8)).data), vec![4; 4096]);
    });
}

#[test]
fn a_write_refused_before_it_was_sent_by_a_server_that_goes_is_handed_back_once_it_is_sent() {
    for breaks_off in [false, true] {
        let peer = Peer::new();
        thread::scope(|scope| {
            let (begin, begun) = channel();
            let peer = &peer;
            scope.spawn(move || {
                let mut session = peer.session_in(Mode::Structured);
                let request = session.header().expect("a write");
                session.say(|replies, out| {
                    replies.error(request.reply_to(), NbdError::Shutdown, "going away", out);
                });
                begun.recv().expect("the signal to begin");
                if !breaks_off {
                    session.payload(&request);
                }
            });
            let nbd = connect(peer, Options::default());
            let mut lane = Lane::open(&nbd, 0);
            let buf = Buf::filled(31 << 20, |bytes| bytes.fill(3));
            lane.submit(vec![Bio::write(0, buf)]);
            lane.sleep();
            assert!(lane.reap().is_empty(), "the memory is still being sent from");
            begin.send(()).expect("a server that waits");
            let answer = lane.all().remove(0);
            assert_eq!((answer.status, answer.data.len()), (HANDED_BACK, 31 << 20));
        });
    }
}

#[test]
fn a_whole_hole_is_answered_as_zeros_without_touching_the_memory() {
    let peer = Peer::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut session = peer.session_in(Mode::Structured);
            let (request, _) = session.request().expect("a read");
            let hole = Chunk { offset: 0, length: 4096, last: true };
            session.say(|replies, out| replies.hole(request.reply_to(), hole, out));
            session.until_left();
        });
        let nbd = connect(&peer, hasty());
        let answer = Lane::open(&nbd, 0).one(read(0, 8));
        let Data::Zero { len, spare } = answer.data else { panic!("{:?}", answer.data) };
        assert_eq!((answer.status, len), (Status::Ok, 4096));
        assert_eq!(spare.expect("the buffer comes back")[0], 0xAA);
    });
}

#[test]
fn an_error_at_an_offset_ends_the_read_and_the_stream_goes_on() {
    for mode in [Mode::Structured, Mode::Extended] {
        let (peer, disk) = (Peer::new(), Disk::new());
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut session = peer.session_in(mode);
                let (request, _) = session.request().expect("a read");
                let to = request.reply_to();
                session.say(|replies, out| {
                    let part = Chunk { offset: 512, length: 512, last: false };
                    replies.data_header(to, part, out);
                    out.resize(out.len() + 512, 1);
                    replies.error_at(to, NbdError::Io, 1024, "a bad sector", out);
                });
                session.serve(&disk);
            });
            let nbd = connect(&peer, hasty());
            let mut lane = Lane::open(&nbd, 0);
            assert_eq!(lane.status(read(0, 8)), Status::IoErr);
            assert_eq!(lane.status(read(0, 8)), Status::Ok);
        });
    }
}

#[test]
fn a_server_that_shuts_down_is_left_once_it_has_answered_and_found_again() {
    for mode in MODES {
        let (peer, disk) = (Peer::new(), Disk::new());
        thread::scope(|scope| {
            let (asked, ask) = channel();
            let (peer, disk) = (&peer, &disk);
            scope.spawn(move || {
                let mut session = peer.session_in(mode);
                let requests: Vec<_> = (0..3).map(|_| session.request().unwrap().0).collect();
                let shutdown = |replies: &Replies, out: &mut Vec<u8>, request: &Request| {
                    replies.error(request.reply_to(), NbdError::Shutdown, "going away", out);
                };
                session.say(|replies, out| shutdown(replies, out, &requests[1]));
                ask.recv().expect("a client that was told");
                session.say(|replies, out| replies.done(requests[2].reply_to(), out));
                session.say(|replies, out| shutdown(replies, out, &requests[0]));
                let (farewell, _) = session.request().expect("a farewell");
                assert_eq!(farewell.command, Command::DISC);
                session.until_left();
                peer.session_in(mode).serve(disk);
            });
            let nbd = connect(peer, hasty());
            let mut lane = Lane::open(&nbd, 0);
            let end = |answer: &Answered| (answer.cookie, answer.status);
            lane.submit((0..3).map(|at| write(at * 8, 8, 1).cookie(at)).collect());
            assert_eq!(lane.some().iter().map(end).collect::<Vec<_>>(), [(1, Status::Transport)]);
            // Nothing new is asked of it.
            lane.submit(vec![read(0, 8).cookie(9)]);
            assert_eq!(lane.some().iter().map(end).collect::<Vec<_>>(), [(9, Status::Transport)]);
            asked.send(()).expect("a server that waits");
            let ends: Vec<_> = lane.all().iter().map(end).collect();
            assert_eq!(ends, [(2, Status::Ok), (0, Status::Transport)]);
            let notices = nbd.notices().join("\n");
            assert!(notices.contains("the server is shutting down"), "{notices}");
            reconnect(&nbd, &mut lane);
            assert_eq!(lane.status(read(0, 8)), Status::Ok);
        });
    }
}

#[test]
fn a_server_that_shuts_down_and_never_answers_the_rest_is_left_in_time() {
    let peer = Peer::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut session = peer.session_in(Mode::Structured);
            session.request().expect("a request");
            let (second, _) = session.request().expect("another");
            session.say(|replies, out| {
                replies.error(second.reply_to(), NbdError::Shutdown, "", out);
            });
            session.until_left();
        });
        let nbd = connect(&peer, hasty());
        let mut lane = Lane::open(&nbd, 0);
        lane.submit(vec![read(0, 8).cookie(1), read(8, 8).cookie(2)]);
        assert_eq!(lane.some()[0].cookie, 2);
        assert_eq!(lane.rig.queue().wake_at(), Some(lane.now + 10_000_000_000));
        lane.now = lane.now + 10_000_000_000;
        let answer = lane.some().remove(0);
        assert_eq!((answer.cookie, answer.status), (1, Status::Transport));
    });
}

#[test]
fn an_idle_queue_takes_leave_and_so_does_a_device_nobody_opened() {
    for mode in MODES {
        let peer = Peer::new();
        thread::scope(|scope| {
            let last = scope.spawn(|| {
                let mut lasts = Vec::new();
                for _ in 0..2 {
                    let mut session = peer.session_in(mode);
                    let mut last = None;
                    while let Some((request, _)) = session.request() {
                        session.say(|replies, out| replies.done(request.reply_to(), out));
                        last = Some(request.command);
                    }
                    lasts.push(last);
                }
                lasts
            });
            drop(connect(&peer, hasty()));
            let nbd = connect(&peer, hasty());
            let mut lane = Lane::open(&nbd, 0);
            assert_eq!(lane.status(write(0, 8, 1)), Status::Ok);
            drop(lane);
            assert_eq!(last.join().unwrap(), [Some(Command::DISC); 2]);
        });
    }
}

#[test]
fn every_op_reaches_the_wire_as_it_should() {
    let peer = Peer::new();
    thread::scope(|scope| {
        let heard = scope.spawn(|| {
            let mut session = peer.session_in(Mode::Structured);
            let mut heard = Vec::new();
            while let Some((request, _)) = session.request() {
                let Request { flags, command, offset, length, .. } = request;
                heard.push(format!("{command} {offset}+{length} {:#x}", flags.bits()));
                session.say(|replies, out| replies.done(request.reply_to(), out));
            }
            heard
        });
        let nbd = connect(&peer, hasty());
        let mut lane = Lane::open(&nbd, 0);
        let op = |op| Bio::new(op, 8, 16, Data::None);
        let all = Flags::FUA | Flags::NOUNMAP | Flags::NOFALLBACK;
        let bios = [
            write(1, 2, 3),
            write(1, 2, 3).with(Flags::FUA),
            flush(),
            op(Op::Discard),
            op(Op::WriteZeroes),
            op(Op::WriteZeroes).with(all),
            op(Op::Prefetch),
        ];
        for bio in bios {
            assert_eq!(lane.status(bio), Status::Ok);
        }
        assert_eq!(lane.status(op(Op::SecureErase)), Status::NotSupp);
        drop(lane);
        let expected = [
            "WRITE 512+1024 0x0",
            "WRITE 512+1024 0x1",
            "FLUSH 0+0 0x0",
            "TRIM 4096+8192 0x0",
            "WRITE_ZEROES 4096+8192 0x0",
            "WRITE_ZEROES 4096+8192 0x13",
            "CACHE 4096+8192 0x0",
            "DISC 0+0 0x0",
        ];
        assert_eq!(heard.join().unwrap(), expected);
    });
}

#[test]
fn a_writable_export_without_flush_is_refused_and_can_be_forced() {
    let export = || Export { flags: TransmissionFlags::SEND_FUA, ..Export::new("", SIZE) };
    let (peer, disk) = (Peer::new(), Disk::new());
    thread::scope(|scope| {
        scope.spawn(|| {
            peer.session(export(), settings(Mode::Simple)).until_left();
            peer.session(export(), settings(Mode::Simple)).serve(&disk);
        });
        let why = Nbd::connect(peer.address(), "", hasty()).unwrap_err().to_string();
        assert!(why.contains("no FLUSH") && why.contains("barriers=off"), "{why}");
        let forced = Options { barriers_off: true, ..hasty() };
        let nbd = connect(&peer, forced);
        assert!(nbd.notices()[0].contains("barriers are off"), "{:?}", nbd.notices());
        let mut lane = Lane::open(&nbd, 0);
        assert_eq!(lane.status(write(0, 8, 1)), Status::Ok);
        assert_eq!(lane.status(flush()), Status::Ok);
    });
}

/// The server answers what is asked of it with success, in order, until the client leaves.
fn serve_on(session: &mut Session) -> Vec<(Command, u64)> {
    let mut served = Vec::new();
    while let Some((request, _)) = session.request() {
        served.push((request.command, request.offset));
        session.say(|replies, out| {
            if request.command == Command::READ {
                replies.read_header(request.reply_to(), request.length as u32, out);
                out.resize(out.len() + request.length as usize, 6);
            } else {
                replies.done(request.reply_to(), out);
            }
        });
    }
    served
}

fn ends(answers: &[Answered]) -> Vec<(u64, Status)> {
    let mut ends: Vec<_> = answers.iter().map(|answer| (answer.cookie, answer.status)).collect();
    ends.sort_by_key(|end| end.0);
    ends
}

#[test]
fn what_is_in_flight_when_the_server_ends_the_connection_is_handed_back_with_its_memory() {
    let (peer, disk) = (Peer::new(), Disk::new());
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut session = peer.session_in(Mode::Structured);
            (0..3).for_each(|_| drop(session.request()));
            drop(session);
            peer.session_in(Mode::Structured).serve(&disk);
        });
        let nbd = connect(&peer, Options::default());
        let mut lane = Lane::open(&nbd, 0);
        lane.submit(vec![read(0, 8).cookie(1), write(8, 64, 7).cookie(2), flush().cookie(3)]);
        let answers = lane.all();
        assert_eq!(ends(&answers), [(1, HANDED_BACK), (2, HANDED_BACK), (3, HANDED_BACK)]);
        let sent = answers.iter().find(|answer| answer.cookie == 2).expect("the write");
        assert_eq!(bytes(&sent.data), vec![7; 64 * 512]);
        reconnect(&nbd, &mut lane);
        assert_eq!(lane.rig.queue().outage_until(), None);
        assert_eq!(lane.status(flush()), Status::Ok, "no answered write was lost");
    });
}

#[test]
fn a_write_to_a_silent_server_keeps_its_tag_until_the_server_has_answered_it() {
    let peer = Peer::new();
    thread::scope(|scope| {
        let (go, gone) = channel();
        let peer = &peer;
        scope.spawn(move || {
            let mut silent = peer.session_in(Mode::Structured);
            let (first, _) = silent.request().expect("a write");
            silent.say(|replies, out| replies.done(first.reply_to(), out));
            let mut reborn = peer.session_in(Mode::Structured);
            scope.spawn(move || serve_on(&mut reborn));
            gone.recv().expect("the signal to go on");
            let last = serve_on(&mut silent);
            let expected = [(Command::READ, 0), (Command::WRITE, 4096), (Command::WRITE, 8192)];
            assert_eq!(last[..3], expected);
            assert_eq!(last[3..], [(Command::FLUSH, 0)], "it answers for the first write");
        });
        let nbd = connect(peer, Options::default());
        let mut lane = Lane::open(&nbd, 0);
        assert_eq!(lane.status(write(0, 8, 1)), Status::Ok);
        lane.submit(vec![read(0, 8).cookie(1), write(8, 8, 2).cookie(2)]);
        lane.now = lane.now + 1_000;
        lane.submit(vec![write(16, 8, 3).cookie(3)]);
        lane.now = lane.now + 1_000;
        assert!(lane.reap().is_empty());
        assert_eq!(lane.cancel(lane.now - 2_000), (0, 2));
        reconnect(&nbd, &mut lane);
        assert_eq!((lane.in_flight, lane.kept), (1, 1), "both writes, but not the read");
        // A flush waits for the word of the server that was given up.
        lane.submit(vec![flush().cookie(4)]);
        assert!(lane.reap().is_empty());
        go.send(()).expect("a server that waits");
        assert_eq!(ends(&lane.all()), [(3, HANDED_BACK), (4, HANDED_BACK)]);
        assert_eq!(lane.kept, 0);
        assert_eq!(lane.status(flush()), Status::Ok);
    });
}

#[test]
fn an_answer_that_is_in_the_socket_is_not_overdue() {
    let peer = Peer::new();
    thread::scope(|scope| {
        let (answer, answered) = channel();
        let peer = &peer;
        scope.spawn(move || {
            let mut session = peer.session_in(Mode::Structured);
            for at in 0..5 {
                let (request, _) = session.request().expect("a read");
                session.say(|replies, out| {
                    replies.read_header(request.reply_to(), request.length as u32, out);
                    out.resize(out.len() + request.length as usize, at);
                });
            }
            answer.send(()).expect("a client that waits");
            session.until_left();
        });
        let nbd = connect(peer, Options::default());
        let mut lane = Lane::open(&nbd, 0);
        lane.submit((0..5).map(|at| read(at * 64, 64).cookie(at)).collect());
        answered.recv().expect("a server that answers");
        lane.now = lane.now + 60_000_000_000;
        assert_eq!(lane.cancel(lane.now - 1), (0, 5));
        lane.reap();
        assert_eq!((lane.kept, nbd.notices()), (0, Vec::new()), "the connection stands");
    });
}

#[test]
fn without_patience_a_silent_server_ends_reads_at_once_and_keeps_writes() {
    let peer = Peer::new();
    thread::scope(|scope| {
        let (leave, left) = channel::<()>();
        let peer = &peer;
        scope.spawn(move || {
            let session = peer.session_in(Mode::Structured);
            let _ = left.recv();
            drop(session);
        });
        let nbd = connect(peer, hasty());
        let mut lane = Lane::open(&nbd, 0);
        lane.submit(vec![read(0, 8).cookie(1)]);
        lane.now = lane.now + 1_000;
        lane.submit(vec![read(8, 8).cookie(2), write(16, 8, 3).cookie(3)]);
        lane.cancel(lane.now - 1);
        assert_eq!(ends(&lane.reap()), [(2, Status::Transport)]);
        assert_eq!(lane.in_flight, 1);
        drop(leave);
        assert_eq!(ends(&lane.some()), [(3, Status::Transport)]);
    });
}
