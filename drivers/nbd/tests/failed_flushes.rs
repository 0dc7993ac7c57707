//! A flush that the server has failed: a server that stands on a file is told once of a write that
//! was lost, so no later answer of it is believed.

mod support;

use std::thread;

use support::peer::{Peer, Session};
use support::{Lane, flush, hasty, read, write};
use weir_bio::{Bio, Flags, Status};
use weir_driver_nbd::{Nbd, Options};
use weir_proto_nbd::NbdError;
use weir_proto_nbd::wire::{Command, Mode, Request};

/// A device and the server it has found. The server says nothing on its own.
fn meet(peer: &Peer, options: Options) -> (Nbd, Session) {
    thread::scope(|scope| {
        let session = scope.spawn(|| peer.session_in(Mode::Structured));
        let nbd = Nbd::connect(peer.address(), "", options).expect("a device");
        (nbd, session.join().expect("a client"))
    })
}

/// The queue connects anew, in no time; the server's end of it.
#[track_caller]
fn meet_again(peer: &Peer, nbd: &Nbd, lane: &mut Lane) -> Session {
    thread::scope(|scope| {
        let session = scope.spawn(|| peer.session_in(Mode::Structured));
        lane.pass_until(|| nbd.notices().iter().any(|notice| notice.ends_with("is back")));
        session.join().expect("a client")
    })
}

fn hears(session: &mut Session, command: Command) -> Request {
    let (request, _) = session.request().expect("a request");
    assert_eq!(request.command, command);
    request
}

fn says(session: &mut Session, request: &Request, result: Result<(), NbdError>) {
    let to = request.reply_to();
    session.say(|replies, out| match result {
        Ok(()) => replies.done(to, out),
        Err(error) => replies.error(to, error, "", out),
    });
}

/// How a bio ends that the server answers so.
#[track_caller]
fn asks(lane: &mut Lane, bio: Bio, server: (&mut Session, Result<(), NbdError>)) -> Status {
    let (session, result) = server;
    lane.submit(vec![bio]);
    let (request, _) = session.request().expect("a request");
    says(session, &request, result);
    lane.all().remove(0).status
}

/// How often it was told that a flush has failed.
fn told(nbd: &Nbd) -> usize {
    nbd.notices().iter().filter(|notice| notice.contains("failed a flush with")).count()
}

#[test]
fn a_failed_flush_is_not_forgotten_by_the_next_flush_nor_by_the_next_connection() {
    for error in [NbdError::Io, NbdError::NoSpc] {
        let peer = Peer::new();
        let (nbd, mut server) = meet(&peer, hasty());
        let mut lane = Lane::open(&nbd, 0);
        assert_eq!(asks(&mut lane, write(0, 8, 1), (&mut server, Ok(()))), Status::Ok);
        assert!(!asks(&mut lane, flush(), (&mut server, Err(error))).is_ok());
        assert_eq!(lane.status(flush()), Status::IoErr, "{error}: the server would be content");
        drop(server);
        let mut server = meet_again(&peer, &nbd, &mut lane);
        assert_eq!(lane.status(flush()), Status::IoErr, "{error}: the next connection");
        assert_eq!(asks(&mut lane, write(0, 8, 1), (&mut server, Ok(()))), Status::Ok);
        assert_eq!(told(&nbd), 1, "{:?}", nbd.notices());
    }
}

#[test]
fn a_flush_under_way_elsewhere_is_not_answered_well_after_one_has_failed() {
    let peer = Peer::new();
    let (nbd, mut one) = meet(&peer, Options { connections: 2, ..hasty() });
    let mut first = Lane::open(&nbd, 0);
    let (mut second, mut other) = thread::scope(|scope| {
        let session = scope.spawn(|| peer.session_in(Mode::Structured));
        (Lane::open(&nbd, 1), session.join().expect("a client"))
    });
    first.submit(vec![flush()]);
    second.submit(vec![flush()]);
    let failing = hears(&mut one, Command::FLUSH);
    let content = hears(&mut other, Command::FLUSH);
    says(&mut one, &failing, Err(NbdError::Io));
    assert_eq!(first.all().remove(0).status, Status::IoErr);
    says(&mut other, &content, Ok(()));
    assert_eq!(second.all().remove(0).status, Status::IoErr, "the error was told to the first");
}

#[test]
fn a_durable_write_with_an_io_error_may_have_met_another_writes_error() {
    for (error, fails) in [(NbdError::Io, true), (NbdError::NoSpc, false)] {
        let peer = Peer::new();
        let (nbd, mut server) = meet(&peer, hasty());
        let mut lane = Lane::open(&nbd, 0);
        let durable = write(0, 8, 1).with(Flags::FUA);
        assert!(!asks(&mut lane, durable, (&mut server, Err(error))).is_ok());
        if fails {
            assert_eq!(lane.status(flush()), Status::IoErr);
        } else {
            assert_eq!(asks(&mut lane, flush(), (&mut server, Ok(()))), Status::Ok);
        }
        assert_eq!(told(&nbd), usize::from(fails));
        // One that was to be durable by a flush behind it says nothing of others.
        let plain = asks(&mut lane, write(0, 8, 1), (&mut server, Err(NbdError::Io)));
        assert_eq!((plain, told(&nbd)), (Status::IoErr, usize::from(fails)));
    }
}

#[test]
fn a_server_that_was_given_up_and_then_fails_a_flush_is_heard() {
    let peer = Peer::new();
    let (nbd, mut silent) = meet(&peer, Options::default());
    let mut lane = Lane::open(&nbd, 0);
    assert_eq!(asks(&mut lane, write(0, 8, 1), (&mut silent, Ok(()))), Status::Ok);
    lane.submit(vec![read(0, 8).cookie(1), flush().cookie(2)]);
    lane.now = lane.now + 1_000;
    assert!(lane.reap().is_empty());
    // The read and the flush are overdue, so the server is given up.
    lane.cancel(lane.now - 1);
    let mut reborn = meet_again(&peer, &nbd, &mut lane);
    let asked = hears(&mut silent, Command::READ);
    says(&mut silent, &asked, Err(NbdError::Io));
    let failing = hears(&mut silent, Command::FLUSH);
    says(&mut silent, &failing, Err(NbdError::Io));
    let last = hears(&mut silent, Command::FLUSH);
    says(&mut silent, &last, Ok(()));
    lane.step_until(|| told(&nbd) > 0);
    lane.submit(vec![flush()]);
    assert_eq!(lane.all().last().map(|answer| answer.status), Some(Status::IoErr));
    assert_eq!(asks(&mut lane, write(0, 8, 1), (&mut reborn, Ok(()))), Status::Ok);
}
