//! An iSCSI session in steady state allocates nothing for a command.

use weir_bench::core::alloc::{Counting, is_counting, of_this_thread};
use weir_proto_iscsi::IscsiName;
use weir_proto_iscsi::login::{DigestOffer, Isid, Login, Offer, SessionKind, Settings, Step};
use weir_proto_iscsi::session::{Command, Direction, Event, Keeping, Outgoing, Payload, Session};
use weir_proto_iscsi::target::{Asked, Profile, Target};
use weir_proto_iscsi::wire::{Attribute, Crc, NO_TAG, Residual, ScsiCommand};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Commands at a time: reads of 4 KiB, writes of 4 KiB, writes that the target asks for, commands
/// that end with sense data.
const DEPTH: u16 = 32;
const SMALL: u32 = 4 << 10;
const LARGE: u32 = 96 << 10;

struct Stream {
    arena: Vec<u8>,
    memory: Vec<u8>,
}

impl Outgoing for Stream {
    fn arena(&mut self) -> &mut Vec<u8> {
        &mut self.arena
    }

    fn payload(&mut self, payload: Payload, digest: Option<&mut Crc>) {
        let bytes = &self.memory[payload.offset as usize..][..payload.length as usize];
        if let Some(crc) = digest {
            crc.update(bytes);
        }
        self.arena.extend_from_slice(bytes);
    }
}

fn session(digest: DigestOffer) -> (Session, Target) {
    let name = |text| IscsiName::new(text).expect("a name");
    let target = "iqn.2001-04.com.example:disk";
    let offer = Offer {
        header_digest: digest,
        data_digest: digest,
        initial_r2t: true,
        first_burst: 8 << 10,
        segment_max: 8 << 10,
        ..Offer::default()
    };
    let kind = SessionKind::Normal(name(target));
    let host = name("iqn.2001-04.com.example:host");
    let settings = Settings { offer, ..Settings::new(host, kind, Isid::random([1, 2, 3], 4)) };
    let mut target = Target::new(Profile { offer, ..Profile::new(name(target)) });
    let (mut there, mut back) = (Vec::new(), Vec::new());
    let mut login = Login::new(settings, &mut there).expect("settings");
    loop {
        target.next(&mut &std::mem::take(&mut there)[..], &mut back).expect("a login");
        match login.input(&mut &std::mem::take(&mut back)[..], &mut there) {
            Step::NeedMore => {}
            Step::Ready(start) => {
                return (Session::new(&start, Keeping::with_depth(DEPTH), 0), target);
            }
            step => panic!("{step:?}"),
        }
    }
}

/// Answers what has come.
fn answer(target: &mut Target, mut input: &[u8], out: &mut Vec<u8>) {
    let zeros = [0; SMALL as usize];
    let mut last: Option<ScsiCommand> = None;
    target.open(64);
    loop {
        match target.next(&mut input, out).expect("a sound initiator") {
            Asked::NeedMore => return,
            Asked::Command { command, .. } if command.write => last = Some(command),
            Asked::Command { command, .. } if command.read => {
                let status = Some((0, Residual::None));
                target.data_in((command.itt, 0, 0), &zeros, status, out);
            }
            Asked::Command { command, .. } => {
                target.respond(command.itt, (0, 2), Residual::None, &[0x70; 18], out);
            }
            Asked::DataEnd { itt, data_sn: None, .. } => {
                let command = last.take().expect("its write");
                if command.expected > SMALL {
                    let range = (8 << 10, command.expected - (8 << 10));
                    target.ask((itt, 1, 0), command.lun, range, out);
                } else {
                    target.respond(itt, (0, 0), Residual::None, &[], out);
                }
            }
            Asked::DataEnd { itt, ttt, last: true, .. } if ttt != NO_TAG => {
                target.respond(itt, (0, 0), Residual::None, &[], out);
            }
            _ => {}
        }
    }
}

/// One round of commands, to their ends: allocations in calls of the session.
fn round(session: &mut Session, target: &mut Target, stream: &mut Stream) -> u64 {
    let mut done = 0;
    let before = of_this_thread();
    for slot in 0..DEPTH {
        let direction = match slot % 4 {
            0 => Direction::Read(SMALL),
            1 => Direction::Write(SMALL),
            2 => Direction::Write(LARGE),
            _ => Direction::None,
        };
        let attribute = Attribute::Simple;
        let command = Command { slot, lun: 0, cdb: &[0; 10], direction, attribute };
        session.command(&command, stream).expect("room");
    }
    let mut allocations = of_this_thread() - before;
    while done < DEPTH {
        let before = of_this_thread();
        while session.send(u64::MAX, stream) {}
        allocations += of_this_thread() - before;
        let mut answers = Vec::new();
        answer(target, &stream.arena, &mut answers);
        stream.arena.clear();
        let before = of_this_thread();
        // Pieces that no PDU ends with.
        for mut input in answers.chunks(1000) {
            loop {
                match session.next(&mut input, 0).expect("a sound target") {
                    Event::NeedMore => break,
                    Event::Done { .. } => done += 1,
                    _ => {}
                }
            }
        }
        allocations += of_this_thread() - before;
    }
    allocations
}

#[test]
fn an_iscsi_session_allocates_nothing_for_a_command() {
    assert!(is_counting());
    for digest in [DigestOffer::Never, DigestOffer::Require] {
        let (mut session, mut target) = session(digest);
        let mut stream = Stream { arena: Vec::new(), memory: vec![7; LARGE as usize] };
        let first = round(&mut session, &mut target, &mut stream);
        assert!(first > 0, "the first round makes room");
        let later: u64 = (0..100).map(|_| round(&mut session, &mut target, &mut stream)).sum();
        assert_eq!(later, 0, "digests {digest:?}");
    }
}
