//! Ports against targets that break the protocol, on loopback: each does one misdeed on its first
//! session and serves zeros on the next, so that the port has to come back.

mod support;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::mpsc;
use std::time::Duration;

use support::fake::{Conduct, NAME, does, profile, serve, target, treat};
use support::{Bed, Transferred, options, transfer};
use weir_driver_iscsi::{DigestOffer, Options, Portal};
use weir_driver_scsi::Refusal;
use weir_proto_iscsi::login::Offer;
use weir_proto_iscsi::target::{Asked, Profile, Target};
use weir_proto_iscsi::wire::{AsyncMessage, Bhs, NO_TAG, Opcode, R2t, Residual, ScsiCommand};
use weir_proto_scsi::decide::Delivery;

/// A port whose first session ends with these words when a read is sent, and which then serves it.
#[track_caller]
fn ends_the_session(conduct: Conduct, words: &str) {
    ends_the_session_of(options, conduct, words);
}

#[track_caller]
fn ends_the_session_of(options: impl Fn(u16) -> Options, conduct: Conduct, words: &str) {
    let port = target(vec![conduct]);
    let mut bed = Bed::open(NAME, options(port));
    bed.push(3, &transfer(false, 0, 4096, false), Transferred::In(4096), 4096);
    bed.commit();
    bed.until(|bed| bed.told.iter().any(|told| told.contains("lost with")));
    let told = bed.told.join("; ");
    assert!(told.contains(words), "{told}, not {words}");
    bed.until(|bed| bed.ended.contains_key(&3));
    let ended = bed.ended.remove(&3).expect("it has ended");
    assert_eq!(ended.end.delivery, Delivery::Disrupted, "{told}");
    assert_eq!(bed.read(0, 4096), [0; 4096], "{told}");
}

#[test]
fn bytes_that_are_no_login_are_refused_in_words() {
    for (words, bytes) in [
        ("during login", Bhs::new(Opcode::NOP_IN).bytes().to_vec()),
        ("data segment of", b"HTTP/1.1 400 Bad Request\r\n".repeat(30)),
        (
            "MaxRecvDataSegmentLength is 8192",
            Bhs::new(Opcode::LOGIN_RESPONSE).with_data_len(1 << 20).bytes().to_vec(),
        ),
    ] {
        let port = target(vec![Conduct::Says(bytes)]);
        let why = Bed::try_open(NAME, options(port)).err().expect("refused");
        assert!(why.contains(words), "{why}, not {words}");
    }
}

#[test]
fn a_target_that_is_silent_in_the_login_is_left() {
    let short = Duration::from_millis(300);
    // From the start, and in the middle of a PDU.
    for bytes in [Vec::new(), Bhs::new(Opcode::LOGIN_RESPONSE).bytes()[..20].to_vec()] {
        let port = target(vec![Conduct::Says(bytes)]);
        let quick = Options { login_timeout: short, ..options(port) };
        let why = Bed::try_open(NAME, quick).err().expect("refused");
        assert!(why.contains("does not answer in time"), "{why}");
    }
}

#[test]
fn text_without_an_end_is_not_listened_to_for_ever() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("a port").port();
    let (sender, sent) = mpsc::channel();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let (mut bytes, mut count) = (vec![0; 64 << 10], 0_u32);
        while stream.read(&mut bytes).is_ok_and(|got| got >= 48) {
            // The request's own ISID and stage, and more is to come.
            let isid: [u8; 6] = bytes[8..14].try_into().expect("6 bytes");
            let head = Bhs::new(Opcode::LOGIN_RESPONSE).with(1, [0x40 | bytes[1] & 0x0c]);
            let head = head.with(8, isid).with_word(24, count).with_data_len(8);
            count += 1;
            let text = [&head.bytes()[..], b"X-a=bcd\0"].concat();
            if stream.write_all(&text).is_err() {
                break;
            }
        }
        sender.send(count).expect("the test waits");
    });
    let why = Bed::try_open(NAME, options(port)).err().expect("refused");
    let count = sent.recv().expect("a count");
    assert!(count <= 65 && why.contains("no end"), "{count} PDUs: {why}");
}

#[test]
fn a_target_that_moves_in_a_circle_is_not_followed_for_ever() {
    let listeners = [0; 2].map(|_| TcpListener::bind("127.0.0.1:0").expect("a port"));
    let [one, two] = listeners.each_ref().map(|one| one.local_addr().expect("a port").port());
    let moved = |to: u16| {
        let portal = Portal::new(&format!("127.0.0.1:{to}")).expect("a portal");
        Profile { moved: Some(portal), ..profile() }
    };
    for (listener, to) in listeners.into_iter().zip([two, one]) {
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let conduct = Conduct::Target(Box::new(moved(to)), Box::new(|_, _, _| false));
                let stream = stream.expect("a connection");
                std::thread::spawn(move || treat(stream, conduct));
            }
        });
    }
    let why = Bed::try_open(NAME, options(one)).err().expect("refused");
    assert!(why.contains("moved more than"), "{why}");
    // One step is taken.
    let port = target(Vec::new());
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let first = listener.local_addr().expect("a port").port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let conduct = Conduct::Target(Box::new(moved(port)), Box::new(|_, _, _| false));
            treat(stream.expect("a connection"), conduct);
        }
    });
    assert_eq!(Bed::open(NAME, options(first)).read(0, 4096), [0; 4096]);
}

#[test]
fn bytes_that_break_the_protocol_end_the_session_and_it_comes_back() {
    let head = |opcode, length| Bhs::new(opcode).with_data_len(length).bytes().to_vec();
    let says = |bytes: Vec<u8>| {
        does(move |_, _, out| {
            out.extend_from_slice(&bytes);
            false
        })
    };
    ends_the_session(says(head(Opcode::DATA_IN, 0xff_ffff)), "MaxRecvDataSegmentLength is");
    ends_the_session(says(vec![0xee; 4096]), "");
    ends_the_session(says(head(Opcode::LOGIN_RESPONSE, 0)), "StatSN 0");
    let read = |change: fn(&mut (u32, u32, u32))| {
        does(move |target, command, out| {
            let mut numbers = (command.itt, 0, 0);
            change(&mut numbers);
            target.data_in(numbers, &[0; 512], None, out);
            false
        })
    };
    ends_the_session(read(|numbers| numbers.0 = 0x7777_7777), "task 0x77777777");
    ends_the_session(read(|numbers| numbers.1 = 5), "number 5");
    ends_the_session(read(|numbers| numbers.2 = 512), "expected at 0");
    ends_the_session(
        does(|target, command, out| {
            target.data_in((command.itt, 0, 0), &[0; 8192], None, out);
            false
        }),
        "8192 bytes at 0",
    );
    ends_the_session(
        does(|target, command, out| {
            // A success, and nothing has moved.
            target.respond(command.itt, (0, 0), Residual::None, &[], out);
            false
        }),
        "0 of 4096 bytes moved",
    );
    ends_the_session(
        does(|target, command, out| {
            let (itt, numbers) = (command.itt, target.numbers());
            let r2t = R2t { lun: 0, itt, ttt: 1, numbers, r2t_sn: 0, offset: 0, length: 512 };
            out.extend_from_slice(r2t.encode().bytes());
            false
        }),
        "has no such data",
    );
    ends_the_session(
        does(|target, command, out| {
            target.count();
            serve(target, command, out);
            false
        }),
        "StatSN",
    );
    ends_the_session(
        does(|target, _, out| {
            (0..1000).for_each(|tag| target.ping(tag, out));
            false
        }),
        "more pings",
    );
}

#[test]
fn a_wrong_digest_ends_the_session() {
    let strict = |port| Options {
        header_digest: DigestOffer::Require,
        data_digest: DigestOffer::Require,
        ..options(port)
    };
    for (place, words) in [(20, "header"), (100, "data")] {
        let mut profile = profile();
        profile.offer = Offer {
            header_digest: DigestOffer::Require,
            data_digest: DigestOffer::Require,
            ..profile.offer
        };
        let deed = move |target: &mut Target, command: &ScsiCommand, out: &mut Vec<u8>| {
            let start = out.len();
            serve(target, command, out);
            out[start + place] ^= 1;
            false
        };
        let first = Conduct::Target(Box::new(profile.clone()), Box::new(deed));
        let next = Conduct::Target(Box::new(profile), Box::new(|_, _, _| true));
        let port = target(vec![first, next]);
        let mut bed = Bed::open(NAME, strict(port));
        bed.push(3, &transfer(false, 0, 4096, false), Transferred::In(4096), 4096);
        bed.commit();
        bed.until(|bed| bed.ended.contains_key(&3));
        assert_eq!(bed.ended[&3].end.delivery, Delivery::Disrupted);
        let told = bed.told.join("; ");
        assert!(told.contains("digest") && told.contains(words), "{told}, not {words}");
        bed.ended.clear();
        assert_eq!(bed.read(0, 4096), [0; 4096]);
    }
}

#[test]
fn silence_in_the_middle_of_data_is_found_by_a_ping_without_an_answer() {
    let second = Duration::from_secs(1);
    let quick = |port| Options { noop_interval: second, noop_timeout: second, ..options(port) };
    let conduct = does(|target, command, out| {
        // A header for 4096 bytes, and 100 of them.
        target.data_in_head((command.itt, 0, 0), 4096, Some((0, Residual::None)), out);
        out.extend_from_slice(&[0; 100]);
        false
    });
    ends_the_session_of(quick, conduct, "does not answer");
}

#[test]
fn a_target_that_drops_the_session_or_wants_to_be_left_is_logged_in_to_again() {
    let message = |event, parameters| {
        does(move |target, command, out| {
            let numbers = target.count();
            let message = AsyncMessage { lun: 0, event, code: 0, parameters, numbers };
            out.extend_from_slice(message.encode().bytes());
            // What is in flight is served before it is left.
            if event == 1 {
                serve(target, command, out);
            }
            false
        })
    };
    // Event 2: the connection is dropped, wait 0 s.
    ends_the_session(message(2, [0, 0, 0]), "drops it");
    let port = target(vec![message(1, [0, 0, 10])]);
    let mut bed = Bed::open(NAME, options(port));
    bed.push(3, &transfer(false, 0, 4096, false), Transferred::In(4096), 4096);
    bed.commit();
    bed.until(|bed| bed.ended.contains_key(&3));
    assert!(bed.ended[&3].is_good(), "what was in flight ends as it is");
    bed.until_told("asked for the session to be left");
    assert!(bed.told[0].contains("lost with 0 commands"), "{:?}", bed.told);
    bed.until_told("is back");
    bed.ended.clear();
    assert_eq!(bed.read(0, 4096), [0; 4096]);
}

#[test]
fn a_closed_window_holds_commands_back_until_any_pdu_opens_it() {
    let mut profile = profile();
    profile.window = 1;
    let mut held = None::<()>;
    let deed = move |target: &mut Target, command: &ScsiCommand, out: &mut Vec<u8>| {
        if held.take().is_some() {
            target.open(1);
            return true;
        }
        held = Some(());
        // It takes this one, and no other until it says so by a PDU of its own.
        target.open(0);
        serve(target, command, out);
        target.open(1);
        target.ping(NO_TAG, out);
        false
    };
    let conduct = Conduct::Target(Box::new(profile), Box::new(deed));
    let mut bed = Bed::open(NAME, options(target(vec![conduct])));
    let read = transfer(false, 0, 4096, false);
    bed.push(1, &read, Transferred::In(4096), 4096);
    assert_eq!(bed.send(2, &read, Transferred::In(4096), 4096), Err(Refusal::Busy));
    bed.commit();
    for slot in 2..40 {
        bed.push(slot, &read, Transferred::In(4096), 4096);
        bed.commit();
    }
    bed.until(|bed| bed.ended.len() == 39);
    assert!(bed.ended.values().all(|ended| ended.is_good()));
}

/// A target of one session that wants to be left at its first command, and serves that when it
/// hears of something else than a command. When the connection has ended: whether by a logout.
fn wants_to_be_left() -> (u16, mpsc::Receiver<bool>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("a port").port();
    let (sender, ended) = mpsc::channel();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let (mut target, mut bytes) = (Target::new(profile()), vec![0; 64 << 10]);
        let (mut held, mut left) = (None, false);
        while let Ok(got @ 1..) = stream.read(&mut bytes) {
            let (mut input, mut out, mut came) = (&bytes[..got], Vec::new(), false);
            while let Ok(asked) = target.next(&mut input, &mut out) {
                match asked {
                    Asked::NeedMore => break,
                    Asked::Command { command, .. } => {
                        let parameters = [0, 0, 60];
                        let numbers = target.count();
                        let message =
                            AsyncMessage { lun: 0, event: 1, code: 0, parameters, numbers };
                        out.extend_from_slice(message.encode().bytes());
                        (held, came) = (Some(command), true);
                    }
                    Asked::LoggedOut => left = true,
                    _ => {}
                }
            }
            if let Some(command) = held.take_if(|_| !came && !left) {
                serve(&mut target, &command, &mut out);
            }
            if stream.write_all(&out).is_err() {
                break;
            }
        }
        sender.send(left).expect("the test waits");
    });
    (port, ended)
}

#[test]
fn a_target_that_wants_to_be_left_is_left_once_what_is_in_flight_has_ended() {
    let (port, ended) = wants_to_be_left();
    // The ping is what the target serves the command at.
    let quick = Options { noop_interval: Duration::from_secs(1), ..options(port) };
    let mut bed = Bed::open(NAME, quick);
    bed.push(3, &transfer(false, 0, 4096, false), Transferred::In(4096), 4096);
    bed.commit();
    bed.until(|bed| bed.ended.contains_key(&3));
    assert!(bed.ended[&3].is_good(), "{:?} {:?}", bed.ended[&3].end, bed.told);
    bed.until_told("asked for the session to be left");
    assert!(ended.recv().expect("the connection ends"), "it was logged out of");
}

#[test]
fn a_port_that_is_closed_logs_out() {
    let (port, ended) = wants_to_be_left();
    drop(Bed::open(NAME, options(port)));
    assert!(ended.recv().expect("the connection ends"), "the port just went");
}
