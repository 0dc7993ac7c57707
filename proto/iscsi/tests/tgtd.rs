//! The initiator against a real target: Debian's tgtd, on loopback.

#[path = "../../../tests/daemon/outside.rs"]
mod outside;
mod support;
#[path = "../../../tests/daemon/tgtd.rs"]
mod tgtd;

use std::io::{Read, Write};
use std::net::TcpStream;

use support::Initiator;
use weir_proto_iscsi::chap::{Algorithm, Credentials};
use weir_proto_iscsi::discovery::{self, Discovery};
use weir_proto_iscsi::login::{
    Auth, DigestOffer, Isid, LoggedIn, Login, LoginError, LoginStatus, Nonce, Offer, SessionKind,
    Settings, Step,
};
use weir_proto_iscsi::session::{Ask, Completion, Direction, Outcome};
use weir_proto_iscsi::wire::Residual;
use weir_proto_iscsi::{IscsiName, Portal, Secret};

const PLAIN: &str = "iqn.2024-01.test:plain";
const PROVED: &str = "iqn.2024-01.test:proved";
const DIGESTS: &str = "iqn.2024-01.test:digests";
const LUN_1: u64 = 1 << 48;
const MIB: u32 = 1 << 20;

/// A tgtd with three targets, each with a LUN of 64 MiB: one that asks for nothing, one that asks
/// for CHAP, one with digests.
struct Tgtd(tgtd::Tgtd);

impl Tgtd {
    /// `None` where it is not installed.
    fn start(name: &str) -> Option<Tgtd> {
        let tgtd = tgtd::Tgtd::start(env!("CARGO_TARGET_TMPDIR"), name)?;
        for (tid, target) in [(1, PLAIN), (2, PROVED), (3, DIGESTS)] {
            tgtd.target(tid, target);
            tgtd.unit(tid, 1, &tgtd.image(&format!("lun-{tid}"), 64 << 20), &[]);
        }
        tgtd.account(2, "weir", "weirsecret123", false);
        tgtd.account(2, "out", "outsecret4567", true);
        for digest in ["HeaderDigest", "DataDigest"] {
            tgtd.parameter("3", digest, "CRC32C");
        }
        Some(Tgtd(tgtd))
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.0.port)).expect("tgtd listens");
        stream.set_nodelay(true).expect("a socket");
        stream
    }

    /// Logs in. What was received behind the login is left to the session.
    fn login(&self, settings: Settings) -> Result<(TcpStream, LoggedIn), LoginError> {
        let (mut stream, mut out) = (self.connect(), Vec::new());
        let mut login = Login::new(settings, &mut out).expect("settings");
        loop {
            stream.write_all(&std::mem::take(&mut out)).expect("tgtd listens");
            let received = receive(&mut stream);
            let mut input = &received[..];
            match login.input(&mut input, &mut out) {
                Step::NeedMore => {}
                Step::Ready(start) => {
                    assert!(input.is_empty(), "tgtd speaks when it is spoken to");
                    return Ok((stream, *start));
                }
                Step::Failed(why) => return Err(why),
                Step::Moved { portal, .. } => panic!("moved to {portal}"),
            }
        }
    }

    fn client(&self, settings: Settings) -> Client {
        let (stream, start) = self.login(settings).expect("a session");
        let mut client = Client { stream, initiator: Initiator::new(&start, 64), start };
        // The first command of a session may be told of a power-on.
        for _ in 0..3 {
            if client.run(&[0; 6], Direction::None).0.completion == GOOD {
                break;
            }
        }
        client
    }
}

#[track_caller]
fn receive(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = vec![0; 64 << 10];
    let got = stream.read(&mut bytes).expect("tgtd answers");
    assert!(got > 0, "tgtd closed the connection");
    bytes.truncate(got);
    bytes
}

const GOOD: Completion = Completion::Status(0);

/// A session with tgtd.
struct Client {
    stream: TcpStream,
    initiator: Initiator,
    start: LoggedIn,
}

impl Client {
    /// Moves bytes until so many commands have ended and so many events were told.
    fn until(&mut self, done: usize, told: usize) {
        loop {
            let out = self.initiator.send();
            self.stream.write_all(&out).expect("tgtd listens");
            if self.initiator.done.len() >= done && self.initiator.told.len() >= told {
                return;
            }
            let received = receive(&mut self.stream);
            self.initiator.hear(&received).expect("tgtd keeps to the protocol");
        }
    }

    /// Runs one command of LUN 1.
    fn run(&mut self, cdb: &[u8], direction: Direction) -> (Outcome, Vec<u8>) {
        if let Direction::Read(length) = direction {
            self.initiator.memory.slots.insert(63, vec![0; length as usize]);
        }
        self.initiator.command(63, LUN_1, cdb, direction).expect("room");
        let ended = self.initiator.done.len() + 1;
        self.until(ended, 0);
        let (_, outcome, sense) = self.initiator.done.last().expect("it has ended");
        (*outcome, sense.clone())
    }

    fn memory(&self, slot: u16) -> &[u8] {
        &self.initiator.memory.slots[&slot]
    }

    /// Writes in pieces of so many bytes, and reads all of it back at once.
    fn write_and_read_back(&mut self, bytes: u32, piece: u32, seed: u32) {
        let data: Vec<u8> = (0..bytes)
            .map(|at| ((at / 4).wrapping_mul(2_654_435_761).wrapping_add(seed) >> 11) as u8)
            .collect();
        let before = self.initiator.done.len();
        let pieces = data.chunks(piece as usize).enumerate();
        let count = pieces.len();
        for (slot, part) in pieces {
            let block = slot as u32 * piece / 512;
            self.initiator.write(slot as u16, block, part.to_vec()).expect("room");
        }
        self.until(before + count, 0);
        self.initiator.read(62, 0, bytes).expect("room");
        self.until(before + count + 1, 0);
        for (tag, outcome, sense) in &self.initiator.done[before..] {
            assert_eq!(outcome.completion, GOOD, "{tag:?} {sense:02x?}");
        }
        assert!(self.memory(62) == data, "what was read is not what was written");
    }

    fn leave(mut self) {
        self.initiator.session.logout(u64::MAX, &mut self.initiator.memory);
        let told = self.initiator.told.len() + 1;
        self.until(0, told);
        assert_eq!(self.initiator.told[told - 1], "LoggedOut { response: 0 }");
    }
}

fn settings(target: &str) -> Settings {
    let name = |text| IscsiName::new(text).expect("a name");
    let session = SessionKind::Normal(name(target));
    let isid = Isid::random([1, 2, 3], 4);
    let mut settings = Settings::new(name("iqn.2024-01.test:weir"), session, isid);
    settings.nonce = Nonce { id: 77, challenge: [0x5a; 32] };
    settings
}

fn proof(secret: &str, target: Option<&str>) -> Auth {
    let user = |name, secret: &str| {
        Credentials::new(name, Secret::new(secret.as_bytes().to_vec())).expect("a user")
    };
    Auth::Chap {
        initiator: user("weir", secret),
        target: target.map(|secret| user("out", secret)),
        algorithms: Algorithm::ALL.to_vec(),
    }
}

#[test]
fn tgtd_takes_each_login_that_it_should_and_refuses_the_others() {
    let Some(tgtd) = Tgtd::start("logins") else { return };
    let refused = |auth, target| {
        let why = tgtd.login(Settings { auth, ..settings(target) }).expect_err("refused");
        println!("{why}");
        why
    };
    let authentication = LoginError::Refused(LoginStatus::AUTHENTICATION);
    assert_eq!(refused(proof("weirsecret124", None), PROVED), authentication);
    assert_eq!(refused(Auth::None, PROVED), authentication);
    let unproven = refused(proof("weirsecret123", Some("outsecret4568")), PROVED);
    assert_eq!(unproven, LoginError::Unproven);
    let unknown = refused(Auth::None, "iqn.2024-01.test:none");
    assert_eq!(unknown, LoginError::Refused(LoginStatus::NOT_FOUND));
    for (auth, target, proved) in [
        (Auth::None, PLAIN, false),
        (proof("weirsecret123", None), PLAIN, false),
        (proof("weirsecret123", None), PROVED, true),
        (proof("weirsecret123", Some("outsecret4567")), PROVED, true),
    ] {
        let mut client = tgtd.client(Settings { auth, ..settings(target) });
        assert_eq!(client.start.chap.is_some(), proved, "{:?}", client.start.chap);
        println!("{:?}", client.start);
        client.write_and_read_back(MIB, MIB, 7);
        client.leave();
    }
}

#[test]
fn tgtd_takes_and_gives_data_with_and_without_digests_asked_for_and_unasked() {
    let Some(tgtd) = Tgtd::start("data") else { return };
    let mut seed = 0;
    for (target, digest) in [(PLAIN, DigestOffer::Never), (DIGESTS, DigestOffer::Require)] {
        for initial_r2t in [false, true] {
            for immediate_data in [false, true] {
                let offer = Offer {
                    header_digest: digest,
                    data_digest: digest,
                    initial_r2t,
                    immediate_data,
                    ..Offer::default()
                };
                let mut client = tgtd.client(Settings { offer, ..settings(target) });
                let agreed = client.start.agreed;
                assert_eq!(agreed.initial_r2t, initial_r2t);
                assert_eq!(agreed.immediate_data, immediate_data);
                assert_eq!(agreed.digests.data, digest == DigestOffer::Require);
                assert_eq!((agreed.segment_out, agreed.first_burst), (65_536, 131_072));
                seed += 1;
                client.write_and_read_back(MIB, MIB, seed);
                seed += 1;
                client.write_and_read_back(MIB, 32 << 10, seed);
                client.leave();
            }
        }
    }
}

#[test]
fn tgtd_tells_of_its_disk_and_ends_what_it_is_asked_to() {
    let Some(tgtd) = Tgtd::start("commands") else { return };
    let mut client = tgtd.client(settings(PLAIN));
    let (inquiry, _) = client.run(&[0x12, 0, 0, 0, 255, 0], Direction::Read(255));
    let Residual::Under(residual) = inquiry.residual else { panic!("{inquiry:?}") };
    assert_eq!((inquiry.completion, inquiry.moved), (GOOD, 255 - residual));
    let vendor = &client.memory(63)[8..16];
    assert_eq!(vendor, b"IET     ", "{}", String::from_utf8_lossy(vendor));
    let mut capacity = [0; 16];
    (capacity[0], capacity[1], capacity[13]) = (0x9e, 0x10, 32);
    let (outcome, _) = client.run(&capacity, Direction::Read(32));
    assert_eq!(outcome.completion, GOOD);
    let last = u64::from_be_bytes(client.memory(63)[..8].try_into().expect("8 bytes"));
    assert_eq!(last, (64 << 20) / 512 - 1);
    // A block beyond the end.
    let beyond = support::cdb(false, (64 << 20) / 512, 1);
    let (outcome, sense) = client.run(&beyond, Direction::Read(512));
    assert_eq!(outcome.completion, Completion::Status(2));
    assert_eq!((sense[2] & 0xf, sense[12]), (5, 0x21), "{sense:02x?}");
    // A reset, and then the unit tells of it once.
    let memory = &mut client.initiator.memory;
    client.initiator.session.manage(Ask::LunReset(LUN_1), u64::MAX, memory).expect("room");
    client.until(0, 1);
    assert!(client.initiator.told[0].contains("Complete"), "{:?}", client.initiator.told);
    let (outcome, sense) = client.run(&[0; 6], Direction::None);
    assert_eq!(outcome.completion, Completion::Status(2));
    assert_eq!((sense[2] & 0xf, sense[12]), (6, 0x29), "{sense:02x?}");
    assert_eq!(client.run(&[0; 6], Direction::None).0.completion, GOOD);
    // A ping.
    let memory = &mut client.initiator.memory;
    client.initiator.session.tick(5_000_000_000, memory).expect("a session");
    client.until(0, 2);
    assert_eq!(client.initiator.told[1], "Pong");
    client.leave();
}

#[test]
fn a_second_login_of_the_same_name_reinstates_the_session() {
    let Some(tgtd) = Tgtd::start("again") else { return };
    let mut first = tgtd.client(settings(PLAIN));
    let mut second = tgtd.client(settings(PLAIN));
    second.write_and_read_back(MIB, 64 << 10, 3);
    // The connection of the first has ended.
    assert_eq!(first.stream.read(&mut [0; 48]).unwrap_or(0), 0);
    second.leave();
}

#[test]
fn tgtd_tells_a_discovery_session_of_its_targets() {
    let Some(tgtd) = Tgtd::start("discovery") else { return };
    let settings = Settings { session: SessionKind::Discovery, ..settings(PLAIN) };
    let (mut stream, start) = tgtd.login(settings).expect("a session");
    let mut out = Vec::new();
    let mut discovery = Discovery::new(&start, &mut out);
    let found = loop {
        stream.write_all(&std::mem::take(&mut out)).expect("tgtd listens");
        let received = receive(&mut stream);
        match discovery.input(&mut &received[..], &mut out) {
            discovery::Step::NeedMore => {}
            discovery::Step::Found(found) => break found,
            discovery::Step::Failed(why) => panic!("{why}"),
        }
    };
    let portal = Portal::new(&format!("127.0.0.1:{},1", tgtd.0.port)).expect("a portal");
    let names: Vec<_> = found.targets.iter().map(|target| target.name.as_str()).collect();
    assert_eq!(names.len(), 3, "{names:?}");
    for name in [PLAIN, PROVED, DIGESTS] {
        assert!(names.contains(&name), "{names:?}");
    }
    assert!(found.targets.iter().all(|target| target.portals == [portal.clone()]), "{found:?}");
    assert!(found.refused.is_empty());
}
