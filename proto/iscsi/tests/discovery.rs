//! Discovery: against the target of this crate, and against portals of malice.

mod support;

use proptest::prelude::*;
use support::{AGREED, logged_in, session};
use weir_proto_iscsi::discovery::{Discovery, DiscoveryError, PDUS_MAX, Step, TEXT_MAX, Targets};
use weir_proto_iscsi::login::{DigestOffer, Isid, Offer, SessionKind, Settings};
use weir_proto_iscsi::target::{Asked, Profile};
use weir_proto_iscsi::text::put;
use weir_proto_iscsi::wire::{
    Bhs, Digests, NO_TAG, NopIn, NopOut, Numbers, Opcode, Reject, Serial, TextRequest,
    TextResponse, put_pdu,
};
use weir_proto_iscsi::{IscsiName, Portal};

fn name(text: &str) -> IscsiName {
    IscsiName::new(text).expect("a name")
}

/// What is found at a portal that answers with so many bytes at a time.
fn discover(targets: &[(String, Vec<String>)], text_max: usize, cut: usize) -> Targets {
    let digest = DigestOffer::Prefer;
    let offer = Offer { header_digest: digest, data_digest: digest, ..Offer::default() };
    let mut settings = Settings::new(
        name("iqn.2001-04.com.example:host"),
        SessionKind::Discovery,
        Isid::random([1, 2, 3], 4),
    );
    settings.offer = offer;
    let profile = Profile {
        offer,
        targets: targets.to_vec(),
        text_max,
        ..Profile::new(name("iqn.2001-04.com.example:disk"))
    };
    let (start, mut target) = session(settings, profile);
    assert!(start.agreed.digests.data);
    let (mut to_target, mut to_us) = (Vec::new(), Vec::new());
    let mut discovery = Discovery::new(&start, &mut to_target);
    loop {
        let sent = std::mem::take(&mut to_target);
        assert_eq!(target.next(&mut &sent[..], &mut to_us), Ok(Asked::NeedMore));
        for mut part in std::mem::take(&mut to_us).chunks(cut) {
            match discovery.input(&mut part, &mut to_target) {
                Step::NeedMore => {}
                Step::Found(found) => {
                    let end = target.next(&mut &to_target[..], &mut to_us);
                    assert_eq!(end, Ok(Asked::LoggedOut));
                    return found;
                }
                Step::Failed(why) => panic!("{why}"),
            }
        }
    }
}

#[test]
fn targets_are_found_with_all_their_addresses_in_any_number_of_pdus() {
    let targets: Vec<(String, Vec<String>)> = vec![
        ("iqn.2001-04.com.example:one".into(), vec!["10.0.0.1:3260,1".into(), "[::1],2".into()]),
        ("iqn.2001-04.com.example:two".into(), vec![]),
        ("disk three".into(), vec!["10.0.0.9,1".into()]),
        ("eui.02004567a425678d".into(), vec!["disk.example.com:1".into(), "a:b".into()]),
    ];
    let portal = |text| Portal::new(text).expect("a portal");
    for text_max in [1, 2, 17, 100, 8192] {
        for cut in [1, 13, 8192] {
            let Targets { targets: found, refused } = discover(&targets, text_max, cut);
            let names: Vec<_> = found.iter().map(|target| target.name.as_str()).collect();
            assert_eq!(names, [&*targets[0].0, &*targets[1].0, &*targets[3].0]);
            assert_eq!(found[0].portals, [portal("10.0.0.1,1"), portal("[::1]:3260,2")]);
            assert!(found[1].portals.is_empty());
            assert_eq!(found[2].portals, [portal("disk.example.com:1")]);
            assert!(refused[0].contains("disk three") && refused[1].contains("a:b"));
            assert_eq!(refused.len(), 2);
        }
    }
    assert_eq!(discover(&[], 8192, 8192), Targets::default());
}

fn response(stat: u32, (last, more, ttt): (bool, bool, u32), data: &[u8]) -> Vec<u8> {
    let numbers = Numbers { stat_sn: Serial(stat), exp_cmd_sn: Serial(1), max_cmd_sn: Serial(9) };
    let mut out = Vec::new();
    let response = TextResponse { last, more, itt: 1, ttt, numbers };
    put_pdu(&mut out, response.encode(), data, Digests::NONE);
    out
}

/// What a discovery makes of these PDUs, and its last request.
fn after(pdus: &[Vec<u8>]) -> (Step, Vec<u8>) {
    let mut out = Vec::new();
    let mut discovery = Discovery::new(&logged_in(AGREED, 1, 8), &mut out);
    let mut step = Step::NeedMore;
    for pdu in pdus {
        out.clear();
        step = discovery.input(&mut &pdu[..], &mut out);
    }
    (step, out)
}

#[track_caller]
fn failed(pdus: &[Vec<u8>]) -> DiscoveryError {
    match after(pdus).0 {
        Step::Failed(why) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_rest_of_an_answer_is_asked_for_with_its_tag() {
    let (step, out) = after(&[response(100, (false, true, 77), b"TargetName=iqn.2001")]);
    assert!(matches!(step, Step::NeedMore));
    let head = Bhs::from_bytes(*out.first_chunk().expect("a request"));
    let request = TextRequest::decode(&head);
    assert_eq!((request.ttt, request.itt, request.cmd_sn), (77, 1, Serial(2)));
    assert_eq!((request.exp_stat_sn, head.data_len()), (Serial(101), 0));
}

#[test]
fn fields_that_contradict_each_other_are_refused() {
    let field = |pdu: Vec<u8>| match failed(&[pdu]) {
        DiscoveryError::Field { field, .. } => field,
        other => panic!("{other:?}"),
    };
    assert_eq!(field(response(101, (true, false, NO_TAG), b"")), "StatSN");
    for flags in [(true, true, NO_TAG), (true, false, 7), (false, false, NO_TAG)] {
        assert_eq!(field(response(100, flags, b"")), "target transfer tag");
    }
    let mut other = response(100, (true, false, NO_TAG), b"");
    other[19] = 2;
    assert_eq!(field(other), "task tag");
    let orphan = response(100, (true, false, NO_TAG), b"TargetAddress=10.0.0.1,1\0");
    assert_eq!(failed(&[orphan]), DiscoveryError::Orphan);
    let cut = response(100, (true, false, NO_TAG), b"TargetName=iqn.2001-04.a");
    assert!(matches!(failed(&[cut]), DiscoveryError::Text(_)));
    let mut rejected = Vec::new();
    let numbers = Numbers::default();
    put_pdu(&mut rejected, Reject { reason: 5, numbers }.encode(), &[], Digests::NONE);
    assert_eq!(failed(&[rejected]), DiscoveryError::Rejected(5));
    let mut other = Vec::new();
    put_pdu(&mut other, Bhs::new(Opcode::DATA_IN), &[], Digests::NONE);
    assert_eq!(failed(&[other]), DiscoveryError::Unexpected(Opcode::DATA_IN));
}

#[test]
fn a_ping_within_a_discovery_is_answered() {
    let numbers = Numbers { stat_sn: Serial(100), ..Numbers::default() };
    let mut ping = Vec::new();
    let nop = NopIn { lun: 0, itt: NO_TAG, ttt: 9, numbers };
    put_pdu(&mut ping, nop.encode(), &[], Digests::NONE);
    let (step, out) = after(&[ping]);
    assert!(matches!(step, Step::NeedMore));
    let answer = NopOut::decode(&Bhs::from_bytes(*out.first_chunk().expect("an answer")));
    assert_eq!((answer.itt, answer.ttt), (NO_TAG, 9));
}

#[test]
fn an_answer_without_end_is_left() {
    let mut out = Vec::new();
    for (text, most) in [(vec![], PDUS_MAX as usize), (b"X=1\0".repeat(2048), TEXT_MAX / 8192)] {
        let mut discovery = Discovery::new(&logged_in(AGREED, 1, 8), &mut out);
        let mut pdus = 0;
        let why = loop {
            out.clear();
            let pdu = response(100 + pdus, (false, true, 7), &text);
            match discovery.input(&mut &pdu[..], &mut out) {
                Step::NeedMore if pdus <= PDUS_MAX => pdus += 1,
                Step::NeedMore => panic!("no bound"),
                Step::Failed(why) => break why,
                Step::Found(_) => panic!("no end was told"),
            }
        };
        assert_eq!((why, pdus as usize), (DiscoveryError::TooMuch, most));
        assert!(matches!(discovery.input(&mut &[][..], &mut out), Step::Failed(_)));
    }
}

proptest! {
    #[test]
    fn a_portal_of_any_bytes_ends_a_discovery_without_a_panic(
        text in prop::collection::vec(prop_oneof![Just(0), Just(b'='), any::<u8>()], 0..200),
        bytes in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let mut first = Vec::new();
        put(&mut first, "TargetName", "iqn.2001-04.com.example");
        first.extend_from_slice(&text);
        let _ = after(&[response(100, (false, true, 7), &first), bytes]);
    }
}
