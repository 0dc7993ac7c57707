//! How a port comes back to a target that was lost: under which name, when, where, and what becomes
//! of commands if it does not. The time is the test's own.

#[path = "../../../tests/daemon/outside.rs"]
mod outside;
mod support;

use std::net::TcpListener;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use support::fake::{Conduct, NAME, does, honest, profile, target, treat};
use support::{Bed, Transferred, ask_for_identity, name, options, portals, transfer};
use weir_driver_iscsi::{Iscsi, Options, Portal};
use weir_driver_scsi::{Refusal, Transport};
use weir_proto_iscsi::target::{Profile, Target};
use weir_proto_iscsi::wire::{AsyncMessage, Bhs, NO_TAG, Opcode, Residual, ScsiCommand};
use weir_proto_scsi::decide::Delivery;

const SECOND: u64 = 1_000_000_000;

/// It says this of itself when it has a command.
fn says(event: u8, parameters: [u16; 3]) -> Conduct {
    does(move |target, _, out| {
        let message = AsyncMessage { lun: 0, event, code: 0, parameters, numbers: target.count() };
        out.extend_from_slice(message.encode().bytes());
        false
    })
}

/// It drops the connection at the first command.
fn drops() -> Conduct {
    says(2, [0, 0, 0])
}

/// It answers each login with this status.
fn refuses(status: u16) -> Conduct {
    Conduct::Says(Bhs::new(Opcode::LOGIN_RESPONSE).with_half(36, status).bytes().to_vec())
}

fn moved_to(port: u16) -> Conduct {
    let portal = Portal::new(&format!("127.0.0.1:{port}")).expect("a portal");
    let profile = Profile { moved: Some(portal), ..profile() };
    Conduct::Target(Box::new(profile), Box::new(|_, _, _| false))
}

/// Treats each connection as it says, and tells the ISID and TSIH of each login before.
fn recording(conducts: Vec<Conduct>, logins: Sender<[u8; 8]>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("a port").port();
    std::thread::spawn(move || {
        let conducts = conducts.into_iter().chain(std::iter::repeat_with(honest));
        for (stream, conduct) in listener.incoming().flatten().zip(conducts) {
            let mut head = [0; 16];
            while stream.peek(&mut head).is_ok_and(|got| (1..16).contains(&got)) {}
            if logins.send(*head[8..].first_chunk().expect("8 bytes")).is_err() {
                return;
            }
            std::thread::spawn(move || treat(stream, conduct));
        }
    });
    port
}

/// A port at these whose session has just been lost with a read and a write in flight.
fn lost(options: Options) -> Bed {
    let mut bed = Bed::open(NAME, options);
    bed.push(3, &transfer(false, 0, 4096, false), Transferred::In(4096), 4096);
    bed.push(4, &transfer(true, 8, 512, false), Transferred::Out(&[7; 512]), 4096);
    bed.commit();
    bed.until_told("lost with");
    bed
}

/// Lets the time pass until this is told.
#[track_caller]
fn in_time(bed: &mut Bed, words: &str) {
    bed.until(|bed| {
        let told = bed.told.iter().any(|notice| notice.contains(words));
        if !told {
            bed.ahead += SECOND / 10;
        }
        told
    });
}

fn logins(of: &Receiver<[u8; 8]>) -> Vec<[u8; 8]> {
    of.try_iter().collect()
}

#[test]
fn a_session_is_reinstated_by_its_isid_which_no_other_session_has() {
    let (sender, seen) = channel();
    let port = recording(vec![drops()], sender);
    let mut bed = lost(options(port));
    in_time(&mut bed, "is back");
    bed.until(|bed| bed.ended.len() == 2);
    assert!(bed.ended.values().all(|ended| ended.end.delivery == Delivery::Disrupted));
    ask_for_identity_of_none(&bed.transport);
    let second = Iscsi::new(name(NAME), Options { sessions: 3, ..options(port) }).expect("names");
    (0..3).for_each(|index| second.prepare(index).expect("a session"));
    let seen = logins(&seen);
    assert_eq!(seen[0], seen[1], "the same session");
    let mut all = seen[1..].to_vec();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 5, "{seen:02x?}");
    assert!(seen.iter().all(|login| login[6..] == [0, 0]), "a session that is new to its target");
}

/// A question on a session of its own, whose answer is no identity.
fn ask_for_identity_of_none(transport: &Iscsi) {
    let asked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        ask_for_identity(transport);
    }));
    assert!(asked.is_err(), "zeros are no page 83h");
}

#[test]
fn the_first_login_comes_when_the_target_has_had_its_time() {
    let waits_3_s = || {
        let mut profile = profile();
        profile.offer.time2wait_s = 3;
        profile
    };
    let hangs_up: fn(&mut Target, &ScsiCommand, &mut Vec<u8>) -> bool = |_, _, out| {
        // A PDU that has no place here: the initiator leaves.
        out.extend_from_slice(Bhs::new(Opcode::LOGIN_RESPONSE).bytes());
        false
    };
    for (conduct, seconds) in [
        // What both have agreed on, and what the target says at last: of its connection, and of its
        // session.
        (Conduct::Target(Box::new(waits_3_s()), Box::new(hangs_up)), 3),
        (says(2, [0, 9, 0]), 9),
        (says(3, [0, 5, 0]), 5),
        (says(3, [0, 0, 0]), 0),
    ] {
        let mut bed = Bed::open(NAME, options(target(vec![conduct])));
        bed.push(3, &transfer(false, 0, 4096, false), Transferred::In(4096), 4096);
        bed.commit();
        let (mut before, mut after) = (bed.now(), bed.now());
        bed.until(|bed| {
            if bed.told.is_empty() {
                (before, after) = (after, bed.now());
            }
            !bed.told.is_empty()
        });
        let retry = bed.port.wake_at().expect("it tries again").0;
        let (least, most) = (before.0 + seconds * SECOND, bed.now().0 + seconds * SECOND);
        assert!((least..=most).contains(&retry), "{seconds} s: {retry}, not {least}..={most}");
        in_time(&mut bed, "is back");
    }
}

#[test]
fn a_target_that_wants_to_negotiate_anew_is_left_and_logged_in_to() {
    let conduct = does(|target, command, out| {
        let (event, parameters) = (4, [0, 0, 30]);
        let message = AsyncMessage { lun: 0, event, code: 0, parameters, numbers: target.count() };
        out.extend_from_slice(message.encode().bytes());
        support::fake::serve(target, command, out);
        false
    });
    let mut bed = Bed::open(NAME, options(target(vec![conduct])));
    bed.push(3, &transfer(false, 0, 4096, false), Transferred::In(4096), 4096);
    bed.commit();
    bed.until(|bed| bed.ended.contains_key(&3));
    assert!(bed.ended[&3].is_good());
    in_time(&mut bed, "asked for the session to be left");
    in_time(&mut bed, "is back");
}

#[test]
fn a_portal_that_refuses_for_good_is_left_for_another_and_tried_again_as_the_last() {
    for status in [0x0200, 0x0201, 0x0202, 0x0203, 0x0204, 0x0207, 0x020a] {
        let (sender, seen) = channel();
        let first = recording(vec![drops(), refuses(status), refuses(status)], sender);
        let second = target(vec![drops()]);
        let mut bed = lost(Options::new(portals(&[first, second])));
        in_time(&mut bed, "is back");
        assert_eq!(logins(&seen).len(), 2, "{status:04x}: the first portal is asked once more");
        // Alone it is asked again and again.
        let mut bed = lost(options(target(vec![drops(), refuses(status), refuses(status)])));
        in_time(&mut bed, "is back");
        let complaints = bed.told.iter().filter(|told| told.contains("goes on trying")).count();
        assert_eq!(complaints, 1, "{:?}", bed.told);
        assert!(bed.told[1].contains(&format!("(status {status:04x})")), "{:?}", bed.told);
    }
}

#[test]
fn a_portal_that_has_trouble_of_its_own_is_not_given_up() {
    for status in [0x0300, 0x0301, 0x0302] {
        let (sender, seen) = channel();
        let troubled = vec![drops(), refuses(status), refuses(status)];
        let first = recording(troubled, sender);
        let second = target(vec![refuses(0x0202), refuses(0x0202), refuses(0x0202)]);
        let mut bed = lost(Options::new(portals(&[first, second])));
        in_time(&mut bed, "is back");
        assert_eq!(logins(&seen).len(), 4, "{status:04x}");
    }
}

#[test]
fn a_target_that_has_moved_meanwhile_is_followed_and_one_in_a_circle_is_not() {
    let there = target(Vec::new());
    let mut bed = lost(options(target(vec![drops(), moved_to(there)])));
    in_time(&mut bed, "is back");
    assert_eq!(bed.told.len(), 2, "{:?}", bed.told);
    // To itself, more often than is followed at a time; then it stands still.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("a port").port();
    std::thread::spawn(move || {
        let circle = (0..5).map(|_| moved_to(port));
        let conducts = std::iter::once(drops()).chain(circle);
        let conducts = conducts.chain(std::iter::repeat_with(honest));
        for (stream, conduct) in listener.incoming().flatten().zip(conducts) {
            std::thread::spawn(move || treat(stream, conduct));
        }
    });
    let mut bed = lost(options(port));
    in_time(&mut bed, "is back");
    assert!(bed.told[1].contains("moved too many times"), "{:?}", bed.told);
    // To a name: nothing is looked up while a port is turned.
    let named = Portal::new("disk.example:1").expect("a portal");
    let profile = Profile { moved: Some(named), ..profile() };
    let to_a_name = Conduct::Target(Box::new(profile), Box::new(|_, _, _| false));
    let mut bed = lost(options(target(vec![drops(), to_a_name])));
    in_time(&mut bed, "is back");
    assert!(bed.told[1].contains("disk.example:1, whose address is not known"), "{:?}", bed.told);
}

#[test]
fn a_portal_that_accepts_and_never_answers_is_left_after_the_login_timeout() {
    let half = Bhs::new(Opcode::LOGIN_RESPONSE).bytes()[..47].to_vec();
    for words in [Vec::new(), half] {
        let conducts = vec![drops(), Conduct::Says(words)];
        let login_timeout = Duration::from_secs(40);
        let mut bed = lost(Options { login_timeout, ..options(target(conducts)) });
        let start = bed.now();
        in_time(&mut bed, "does not answer in time");
        assert!(bed.now().0 - start.0 >= 40 * SECOND);
        in_time(&mut bed, "is back");
    }
}

/// What a port is lost to that never comes back: nothing listens any more.
fn gone(replacement_timeout: Option<Duration>) -> Bed {
    // No connection can take it, not even one to itself.
    let port = outside::free_port();
    let listener = TcpListener::bind(("127.0.0.1", port)).expect("a port");
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().expect("a connection");
        drop(listener);
        treat(stream, drops());
    });
    lost(Options { replacement_timeout, ..options(port) })
}

#[test]
fn without_patience_reads_and_new_commands_fail_at_once_and_writes_at_their_bound() {
    let mut bed = gone(Some(Duration::ZERO));
    bed.until(|bed| bed.ended.contains_key(&3));
    assert_eq!(bed.ended[&3].end.delivery, Delivery::FailFast);
    let read = transfer(false, 0, 4096, false);
    assert_eq!(bed.send(5, &read, Transferred::In(4096), 4096), Err(Refusal::Lost));
    assert_eq!(bed.port.outage_until(), None);
    bed.ahead += 9 * SECOND;
    bed.turn(Duration::ZERO);
    assert!(!bed.ended.contains_key(&4), "it may still land");
    bed.ahead += SECOND;
    bed.turn(Duration::ZERO);
    assert_eq!(bed.ended[&4].end.delivery, Delivery::FailFast);
}

#[test]
fn with_endless_patience_commands_wait_for_ever() {
    let mut bed = gone(None);
    for _ in 0..50 {
        bed.ahead += 86_400 * SECOND;
        bed.turn(Duration::ZERO);
    }
    assert!(bed.ended.is_empty(), "{:?}", bed.ended);
    let read = transfer(false, 0, 4096, false);
    assert_eq!(bed.send(5, &read, Transferred::In(4096), 4096), Err(Refusal::Down));
    assert!(bed.port.outage_until().is_some());
}

#[test]
fn a_window_that_is_closed_for_ever_takes_nothing_and_costs_nothing() {
    let mut profile = profile();
    profile.window = 0;
    let conduct = Conduct::Target(Box::new(profile), Box::new(|_, _, _| true));
    let mut bed = Bed::open(NAME, options(target(vec![conduct])));
    let read = transfer(false, 0, 4096, false);
    for _ in 0..100 {
        assert_eq!(bed.send(1, &read, Transferred::In(4096), 4096), Err(Refusal::Busy));
        bed.commit();
        // Nothing but the next ping to wake for, each of which is answered.
        assert!(bed.port.wake_at().expect("a ping").0 > bed.now().0);
        bed.ahead += 5 * SECOND;
        bed.turn(Duration::ZERO);
        let asked = bed.now();
        bed.until(|bed| bed.port.wake_at().expect("a ping").0 >= asked.0 + 5 * SECOND);
    }
    assert!(bed.told.is_empty(), "{:?}", bed.told);
}

#[test]
fn a_free_port_is_none_that_a_connection_or_another_test_may_have() {
    let mut ports = [0; 8].map(|_| outside::free_port());
    ports.sort_unstable();
    assert!(ports.is_sorted_by(|one, next| one < next) && ports[0] > 20_000, "{ports:?}");
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").expect("proc");
    let lowest = range.split_whitespace().next().and_then(|port| port.parse().ok());
    // Where connections may have nearly all there is no other choice.
    assert!(lowest.is_some_and(|lowest: u16| ports[7] < lowest || lowest < 22_000), "{ports:?}");
}

#[test]
fn a_target_is_reached_by_ipv6_and_one_that_is_not_there_is_named() {
    let Ok(listener) = TcpListener::bind("[::1]:0") else {
        return eprintln!("LEFT OUT: no IPv6 on loopback");
    };
    let port = listener.local_addr().expect("a port").port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || treat(stream, honest()));
        }
    });
    let portal = |text: &str| Portal::new(text).expect("a portal");
    let v6 = portal(&format!("[::1]:{port}"));
    let mut bed = Bed::open(NAME, Options::new(vec![v6]));
    assert_eq!(bed.read(0, 4096), [0; 4096]);
    // A port on which nothing listens, and a name that none has.
    let free = outside::free_port();
    let at = |portals: &[&str]| {
        let portals = portals.iter().map(|text| portal(text)).collect();
        Bed::try_open(NAME, Options::new(portals)).err().expect("there is nothing")
    };
    let refused = at(&[&format!("127.0.0.1:{free}")]);
    assert!(refused.contains("connect: Connection refused"), "{refused}");
    let unknown = at(&["no..name"]);
    assert!(unknown.contains("look up \"no..name\""), "{unknown}");
    // One portal of several is enough.
    let there = target(Vec::new());
    let mixed = [portal("no..name"), portal(&format!("127.0.0.1:{free}"))];
    let mixed = [&mixed[..], &[portal(&format!("127.0.0.1:{there}"))]].concat();
    let mut bed = Bed::open(NAME, Options::new(mixed));
    assert_eq!(bed.read(0, 4096), [0; 4096]);
}

#[test]
fn a_target_that_never_stops_talking_does_not_keep_the_thread_that_looks_at_it() {
    // The session for the identity, the first of the port, and then one that talks and talks.
    let identity = |target: &mut Target, command: &ScsiCommand, out: &mut Vec<u8>| {
        let page = [0, 0x83, 0, 12, 1, 3, 0, 8, 0x50, 1, 2, 3, 4, 5, 6, 7];
        let under = Residual::Under(command.expected - page.len() as u32);
        target.data_in((command.itt, 0, 0), &page, Some((0, under)), out);
        false
    };
    let talks = |target: &mut Target, _: &ScsiCommand, out: &mut Vec<u8>| {
        (0..2_000_000).for_each(|_| target.ping(NO_TAG, out));
        false
    };
    let conducts = vec![does(identity), drops(), does(talks), does(identity)];
    let at = Options { login_timeout: Duration::from_secs(3), ..options(target(conducts)) };
    let transport = Iscsi::new(name(NAME), at.clone()).expect("a target");
    ask_for_identity(&transport);
    let mut bed = Bed::with(transport);
    bed.push(3, &transfer(false, 0, 4096, false), Transferred::In(4096), 4096);
    bed.commit();
    bed.until_told("lost with");
    bed.ahead += 5 * SECOND;
    // It is looked at, piece by piece, until it has had its time.
    let mut turns = 0;
    bed.until(|bed| {
        turns += 1;
        bed.ahead += SECOND / 100;
        bed.told.iter().any(|told| told.contains("does not answer in time"))
    });
    assert!(turns > 10, "{turns} turns");
    in_time(&mut bed, "is back");
}
