//! Connections that were given up while their server may still carry out what it was sent: how long
//! they are kept, how many, and what late answers on them do to newer requests.

mod support;

use std::net::Shutdown;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use support::peer::{Disk, Peer, Session};
use support::{HANDED_BACK, Lane, bytes, flush, read, write};
use weir_bio::{Bio, Buf, Nanos, Op, Status};
use weir_driver_nbd::{Nbd, Options};
use weir_proto_nbd::NbdError;
use weir_proto_nbd::wire::{Command, Mode, Request};
use weir_queue::rig::Answered;
use weir_queue::{Bell, Config, Device, Lane as CoreLane, Submitter};
use weir_ring::NoWake;

const SECOND: u64 = 1_000_000_000;

/// How long a half-closed connection has been silent when its server is asked to end it.
const GRACE_NS: u64 = 10 * SECOND;

/// Connections given up that a queue keeps.
const PARTING_MAX: usize = 8;

/// A device and the server it has found. The server says nothing on its own.
fn meet(peer: &Peer, options: Options) -> (Nbd, Session) {
    thread::scope(|scope| {
        let session = scope.spawn(|| peer.session_in(Mode::Structured));
        let nbd = Nbd::connect(peer.address(), "", options).expect("a device");
        (nbd, session.join().expect("a client"))
    })
}

/// How often the device has found its server again.
fn returns(nbd: &Nbd) -> usize {
    nbd.notices().iter().filter(|notice| notice.ends_with("is back")).count()
}

/// The queue connects anew, in no time; the server's end of it.
#[track_caller]
fn meet_again(peer: &Peer, nbd: &Nbd, lane: &mut Lane) -> Session {
    let before = returns(nbd);
    thread::scope(|scope| {
        let session = scope.spawn(|| peer.session_in(Mode::Structured));
        lane.step_until(|| returns(nbd) > before);
        session.join().expect("a client")
    })
}

/// Everything submitted before now is given up, and the connection with it.
fn give_up(lane: &mut Lane, count: usize) {
    lane.now = lane.now + 1_000;
    assert!(lane.reap().is_empty());
    assert_eq!(lane.cancel(lane.now - 1), (0, count));
}

fn hears(session: &mut Session, command: Command) -> Request {
    let (request, _) = session.request().expect("a request");
    assert_eq!(request.command, command);
    request
}

fn grants(session: &mut Session, request: &Request) {
    let (to, read) = (request.reply_to(), request.command == Command::READ);
    session.say(|replies, out| match read {
        true => {
            replies.read_header(to, request.length as u32, out);
            out.resize(out.len() + request.length as usize, 6);
        }
        false => replies.done(to, out),
    });
}

fn ends(answers: &[Answered]) -> Vec<(u64, Status)> {
    let mut ends: Vec<_> = answers.iter().map(|answer| (answer.cookie, answer.status)).collect();
    ends.sort_by_key(|end| end.0);
    ends
}

#[test]
fn a_server_that_works_elsewhere_is_asked_to_end_once_it_was_silent_for_the_grace() {
    let peer = Peer::new();
    let long = Duration::from_secs(1000);
    let (nbd, mut old) =
        meet(&peer, Options { connect_timeout: long, reconnect: long, ..Options::default() });
    let mut lane = Lane::open(&nbd, 0);
    lane.submit(vec![read(0, 8).cookie(1), write(8, 8, 2).cookie(2)]);
    let (asked, wrote) = (hears(&mut old, Command::READ), hears(&mut old, Command::WRITE));
    give_up(&mut lane, 2);
    lane.reap();
    // It works nowhere: it may just be stopped, and would take the end for a reason to drop both.
    lane.now = lane.now + 5 * GRACE_NS;
    lane.reap();
    assert!(!old.has_end(), "no server has been found yet");
    let _new = meet_again(&peer, &nbd, &mut lane);
    let found_at = lane.now;
    lane.now = found_at + GRACE_NS - 1;
    lane.reap();
    assert!(!old.has_end(), "the grace is not over");
    grants(&mut old, &asked);
    lane.reap();
    lane.now = lane.now + GRACE_NS - 1;
    lane.reap();
    assert!(!old.has_end(), "the grace counts from the last sign of life");
    let wakes = lane.rig.queue().wake_at().expect("a look at the old connection");
    assert!(wakes <= lane.now + SECOND, "no event says that the grace is over");
    lane.now = wakes;
    lane.reap();
    assert!(old.has_end());
    assert_eq!(lane.kept, 1, "an end that was asked for is no answer");
    grants(&mut old, &wrote);
    lane.reap();
    assert_eq!((lane.kept, lane.in_flight), (0, 0));
    assert_eq!(returns(&nbd), 1, "the new connection stands");
}

#[test]
fn with_eight_connections_given_up_no_ninth_is_made_until_a_server_lets_go() {
    let peer = Peer::new();
    let (nbd, first) = meet(&peer, Options::default());
    let mut lane = Lane::open(&nbd, 0);
    let mut silent = vec![first];
    let lost_at = lane.now + 1_000;
    loop {
        lane.submit(vec![write(silent.len() as u64 * 8, 8, 1)]);
        hears(silent.last_mut().expect("a connection"), Command::WRITE);
        give_up(&mut lane, 1);
        if silent.len() == PARTING_MAX {
            break;
        }
        silent.push(meet_again(&peer, &nbd, &mut lane));
        // It works at first, so there is no back-off.
        lane.submit(vec![read(0, 8)]);
        let new = silent.last_mut().expect("a connection");
        let asked = hears(new, Command::READ);
        grants(new, &asked);
        assert_eq!(lane.all()[0].status, Status::Ok);
    }
    lane.reap();
    assert_eq!((lane.kept, returns(&nbd)), (PARTING_MAX, PARTING_MAX - 1));
    // A request that comes now waits for as long as for any lost server, and then ends.
    let over = lost_at + 30 * SECOND;
    assert_eq!(lane.rig.queue().outage_until(), Some(over));
    assert!(lane.rig.submit(vec![read(0, 8)], lane.now).is_some_and(|it| it.0 == Status::Resource));
    lane.now = over;
    lane.reap();
    assert_eq!(lane.status(read(0, 8)), Status::Transport);
    lane.now = lane.now + 3600 * SECOND;
    lane.reap();
    assert!(!peer.has_client(), "a ninth connection");
    let wakes = lane.rig.queue().wake_at();
    assert!(wakes.is_some_and(|at| at > lane.now), "nothing is tried: {wakes:?}");
    drop(silent.remove(3));
    let mut new = meet_again(&peer, &nbd, &mut lane);
    assert_eq!(lane.kept, PARTING_MAX - 1);
    lane.submit(vec![read(0, 8)]);
    let asked = hears(&mut new, Command::READ);
    grants(&mut new, &asked);
    assert_eq!(lane.all()[0].status, Status::Ok);
    // The others let go as well, each in its way.
    for mut session in silent {
        let _ = session.stream.shutdown(Shutdown::Both);
        session.send(b"?");
    }
    lane.reap();
    assert_eq!(lane.kept, 0);
}

#[test]
fn a_server_that_never_stops_talking_nonsense_does_not_keep_the_thread() {
    let peer = Peer::new();
    let (nbd, mut old) = meet(&peer, Options::default());
    let mut lane = Lane::open(&nbd, 0);
    lane.submit(vec![write(8, 8, 2).cookie(1)]);
    hears(&mut old, Command::WRITE);
    old.send(&[0xab; 1 << 16]);
    lane.step_until(|| !nbd.notices().is_empty());
    let _new = meet_again(&peer, &nbd, &mut lane);
    old.send(&[0xab; 1 << 16]);
    let queue = lane.rig.queue();
    let event = queue.event_fd().expect("an event descriptor");
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    assert_eq!(poll(&mut [PollFd::new(&event, PollFlags::IN)], Some(&at_once)), Ok(0));
    let look = queue.wake_at().expect("a look at the old connection");
    assert!(look > lane.now && look <= lane.now + SECOND);
    drop(old);
    lane.now = look;
    assert_eq!(ends(&lane.reap()), [(1, HANDED_BACK)]);
}

/// The core above one queue of the driver, turned by hand.
struct Core {
    device: Device,
    lane: CoreLane,
    submitter: Submitter,
    now: Nanos,
}

impl Core {
    fn over(nbd: Arc<Nbd>, timeout_ns: u64) -> Core {
        let config = Config { scheduler: Some("none".to_owned()), timeout_ns, ..Config::default() };
        let device = Device::new(config, nbd).expect("a device");
        let bell = Bell::new(Box::new(NoWake), 1);
        let submitter = device.submitter(&bell, 0, 0).expect("a submitter");
        let lane = device.open_lane(0, &bell).expect("a lane");
        Core { device, lane, submitter, now: Nanos(SECOND) }
    }

    fn submit(&mut self, bio: Bio) {
        self.submitter.submit(bio, self.now).expect("room for a bio");
        self.submitter.flush_plug(self.now);
        self.step();
    }

    fn step(&mut self) -> Vec<(u64, Status)> {
        self.lane.run(self.now);
        while self.lane.has_work() {
            self.lane.run(self.now);
        }
        let mut ended = Vec::new();
        self.submitter.complete(self.now, |done| ended.push((done.cookie, done.status)));
        ended
    }

    /// Lets time pass in steps.
    fn pass(&mut self, ns: u64) -> Vec<(u64, Status)> {
        let mut ended = Vec::new();
        for _ in 0..ns.div_ceil(SECOND / 4) {
            self.now = self.now + SECOND / 4;
            ended.extend(self.step());
        }
        ended
    }

    /// Turns, in no time, until something has ended.
    #[track_caller]
    fn some(&mut self) -> Vec<(u64, Status)> {
        self.step_until(|ended| !ended.is_empty())
    }

    /// Turns, in no time, until `when` holds of what has ended.
    #[track_caller]
    fn step_until(&mut self, mut when: impl FnMut(&[(u64, Status)]) -> bool) -> Vec<(u64, Status)> {
        let mut ended = self.step();
        while !when(&ended) {
            if self.lane.wake_at().is_none_or(|at| at > self.now) {
                let event = self.lane.event().unwrap().expect("an event descriptor");
                let patience = Timespec { tv_sec: 60, tv_nsec: 0 };
                let ready = poll(&mut [PollFd::new(&event, PollFlags::IN)], Some(&patience));
                assert_eq!(ready, Ok(1), "nothing happened in a minute");
            }
            ended.extend(self.step());
        }
        ended
    }
}

#[test]
fn a_late_write_of_an_old_connection_never_lands_on_a_newer_one() {
    for answers in [true, false] {
        let (peer, disk) = (Peer::new(), Disk::new());
        let (nbd, mut old) = meet(&peer, Options::default());
        let nbd = Arc::new(nbd);
        let mut core = Core::over(Arc::clone(&nbd), 2 * SECOND);
        core.submit(write(8, 8, 1).cookie(1));
        let (late, payload) = old.request().expect("a write");
        assert_eq!(core.pass(4 * SECOND), [(1, Status::Timeout)]);
        thread::scope(|scope| {
            let served = scope.spawn(|| peer.session_in(Mode::Structured).serve(&disk));
            core.step_until(|_| returns(&nbd) == 1);
            core.submit(write(12, 8, 2).cookie(2));
            core.submit(write(20, 4, 3).cookie(3));
            assert_eq!(core.some(), [(3, Status::Ok)], "nothing overlaps this one");
            assert!(core.pass(SECOND).is_empty(), "the older write may still land");
            // Now it lands. The server says so, or it ends the connection.
            let range = late.offset as usize..(late.offset + late.length) as usize;
            disk.0.lock().unwrap()[range].copy_from_slice(&payload);
            if answers {
                grants(&mut old, &late);
            } else {
                drop(old);
            }
            assert_eq!(core.some(), [(2, Status::Ok)]);
            assert_eq!(core.device.stats().quarantined, 0);
            {
                let disk = disk.0.lock().unwrap();
                assert!(disk[8 * 512..12 * 512].iter().all(|byte| *byte == 1));
                assert!(disk[12 * 512..20 * 512].iter().all(|byte| *byte == 2), "stale");
            }
            drop(core);
            served.join().expect("a server");
        });
    }
}

/// Bytes of a write that no socket takes whole.
const LARGE: usize = 24 << 20;

/// Content in which no byte can be taken for another.
fn content() -> Vec<u8> {
    (0..LARGE as u32 / 4).flat_map(|word| word.wrapping_mul(0x9E37_79B1).to_le_bytes()).collect()
}

/// A large write, of which the server has seen the header and some bytes.
fn half_sent(peer: &Peer) -> (Nbd, Lane, Session, Request) {
    let (nbd, mut session) = meet(peer, Options::default());
    let mut lane = Lane::open(&nbd, 0);
    let large = Buf::filled(LARGE, |bytes| bytes.copy_from_slice(&content()));
    lane.submit(vec![Bio::write(0, large).cookie(1)]);
    let header = session.header().expect("a write");
    assert_eq!((header.command, header.length), (Command::WRITE, LARGE as u64));
    (nbd, lane, session, header)
}

/// A write that came back goes out again, and the server hears all of it.
#[track_caller]
fn goes_whole(peer: &Peer, nbd: &Nbd, lane: &mut Lane, answer: Answered) {
    assert_eq!(answer.status, HANDED_BACK);
    assert!(bytes(&answer.data) == content(), "its memory came back as it was");
    let mut session = meet_again(peer, nbd, lane);
    let again = Bio::new(Op::Write, 0, (LARGE / 512) as u32, answer.data);
    lane.submit(vec![again]);
    thread::scope(|scope| {
        let served = scope.spawn(|| {
            let (request, payload) = session.request().expect("the write");
            assert!(payload == content(), "another payload");
            grants(&mut session, &request);
        });
        assert_eq!(lane.all()[0].status, Status::Ok);
        served.join().expect("a server");
    });
}

#[test]
fn a_write_that_was_half_sent_when_the_server_ended_the_connection_is_sent_whole_again() {
    let peer = Peer::new();
    let (nbd, mut lane, session, _) = half_sent(&peer);
    drop(session);
    let answer = lane.all().remove(0);
    goes_whole(&peer, &nbd, &mut lane, answer);
}

#[test]
fn a_write_granted_before_it_was_sent_is_sent_whole_again_when_the_connection_is_lost() {
    let peer = Peer::new();
    let (nbd, mut lane, mut session, header) = half_sent(&peer);
    grants(&mut session, &header);
    lane.step_until(|| nbd.notices().iter().any(|notice| notice.contains("sent whole")));
    assert_eq!(lane.in_flight, 1, "the server may write whatever it takes for the payload");
    drop(session);
    let answer = lane.all().remove(0);
    goes_whole(&peer, &nbd, &mut lane, answer);
}

#[test]
fn a_write_that_was_half_sent_to_a_silent_server_is_never_completed_there() {
    let peer = Peer::new();
    let (nbd, mut lane, old, _) = half_sent(&peer);
    let late = lane.now + 1_000;
    lane.now = late + 1_000;
    lane.submit(vec![write(8, 8, 9).cookie(2)]);
    assert_eq!(lane.cancel(late), (0, 1));
    let back = lane.some();
    assert_eq!(ends(&back), [(2, HANDED_BACK)], "of this one nothing went out");
    assert_eq!(lane.kept, 1, "the server has some of the other");
    let mut new = meet_again(&peer, &nbd, &mut lane);
    lane.submit(vec![write(8, 8, 9).cookie(2)]);
    let request = hears(&mut new, Command::WRITE);
    assert_eq!(request.length, 4096);
    grants(&mut new, &request);
    assert_eq!(ends(&lane.all()), [(2, Status::Ok)]);
    lane.now = lane.now + GRACE_NS;
    lane.reap();
    // It finds the end in the middle of the payload, and has to let go.
    let rest = old.rest();
    assert!(rest.len() < LARGE, "{} bytes of {LARGE}", rest.len());
    assert!(content().starts_with(&rest), "and those as they should be");
    lane.reap();
    assert_eq!((lane.kept, lane.in_flight), (0, 0));
}

/// A server that has granted a write and is silent then, with this under way; and its successor.
fn silent_after_a_write(peer: &Peer, under_way: Bio) -> (Nbd, Lane, Session, Session) {
    let (nbd, mut old) = meet(peer, Options::default());
    let mut lane = Lane::open(&nbd, 0);
    lane.submit(vec![write(0, 8, 1)]);
    let written = hears(&mut old, Command::WRITE);
    grants(&mut old, &written);
    assert_eq!(lane.all()[0].status, Status::Ok);
    lane.submit(vec![read(0, 8).cookie(1)]);
    let late = lane.now;
    lane.now = lane.now + 1_000;
    let flushes = under_way.op == Op::Flush;
    lane.submit(vec![under_way.cookie(2)]);
    assert_eq!(lane.cancel(late), (0, 1));
    assert_eq!(ends(&lane.some()), [(2, HANDED_BACK)]);
    hears(&mut old, Command::READ);
    hears(&mut old, if flushes { Command::FLUSH } else { Command::READ });
    let new = meet_again(peer, &nbd, &mut lane);
    (nbd, lane, old, new)
}

#[test]
fn a_flush_that_waits_for_a_server_given_up_fails_when_that_server_ends() {
    for under_way in [read(8, 8), flush()] {
        let peer = Peer::new();
        let (_nbd, mut lane, mut old, new) = silent_after_a_write(&peer, under_way);
        lane.submit(vec![flush().cookie(3)]);
        assert!(lane.reap().is_empty(), "the old server may yet answer for the write");
        hears(&mut old, Command::FLUSH);
        drop(old);
        assert_eq!(ends(&lane.all()), [(3, HANDED_BACK)]);
        for _ in 0..2 {
            assert_eq!(lane.status(flush()), Status::IoErr, "the write may be gone");
        }
        assert!(!new.has_end(), "no flush has reached the new server");
    }
}

#[test]
fn a_flush_that_waits_for_a_server_given_up_goes_out_when_that_server_has_flushed() {
    for well in [true, false] {
        let peer = Peer::new();
        let (_nbd, mut lane, mut old, mut new) = silent_after_a_write(&peer, flush());
        lane.submit(vec![flush().cookie(3)]);
        let last = hears(&mut old, Command::FLUSH);
        if well {
            grants(&mut old, &last);
        } else {
            let to = last.reply_to();
            old.say(|replies, out| replies.error(to, NbdError::Io, "a bad disk", out));
        }
        assert_eq!(ends(&lane.all()), [(3, HANDED_BACK)]);
        lane.submit(vec![flush()]);
        if well {
            assert!(lane.reap().is_empty(), "the new server has to flush as well");
            let request = hears(&mut new, Command::FLUSH);
            grants(&mut new, &request);
        }
        let end = if well { Status::Ok } else { Status::IoErr };
        assert_eq!(lane.all()[0].status, end);
        assert!(!new.has_end(), "nothing else was sent");
    }
}
