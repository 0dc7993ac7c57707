//! The login of an initiator: against the target of this crate, and against targets of malice.

use proptest::prelude::*;
use weir_proto_iscsi::chap::{Algorithm, Challenge, Credentials};
use weir_proto_iscsi::login::{
    Auth, DigestOffer, Isid, LoggedIn, Login, LoginError, LoginStatus, Nonce, Offer, ROUNDS_MAX,
    SessionKind, Settings, SettingsError, Step,
};
use weir_proto_iscsi::target::{Asked, ChapProfile, Profile, Target, TargetError};
use weir_proto_iscsi::text::{hex, put};
use weir_proto_iscsi::wire::{
    Bhs, Digests, LoginRequest, LoginResponse, Numbers, Opcode, Serial, put_pdu,
};
use weir_proto_iscsi::{IscsiName, Portal, Secret};

const TARGET: &str = "iqn.2001-04.com.example:disk";

fn name(text: &str) -> IscsiName {
    IscsiName::new(text).expect("a name")
}

fn settings() -> Settings {
    let session = SessionKind::Normal(name(TARGET));
    let mut settings =
        Settings::new(name("iqn.2001-04.com.example:host"), session, Isid::random([1, 2, 3], 4));
    settings.nonce = Nonce { id: 9, challenge: [0x55; 32] };
    settings
}

fn profile() -> Profile {
    Profile::new(name(TARGET))
}

fn user(name: &str, secret: &str) -> Credentials {
    Credentials::new(name, Secret::new(secret.as_bytes().to_vec())).expect("a user")
}

fn chap(mutual: bool, algorithms: &[Algorithm]) -> Auth {
    Auth::Chap {
        initiator: user("weir", "weirsecret123"),
        target: mutual.then(|| user("out", "outsecret4567")),
        algorithms: algorithms.to_vec(),
    }
}

fn asks_for_chap(algorithms: &[Algorithm]) -> Profile {
    let chap = ChapProfile {
        initiator: user("weir", "weirsecret123"),
        target: Some(user("out", "outsecret4567")),
        algorithms: algorithms.to_vec(),
        challenge: Challenge { id: 1, bytes: vec![0xaa; 16] },
    };
    Profile { chap: Some(chap), ..profile() }
}

/// Lets both sides talk in pieces of so many bytes, until the login has an end.
fn converse(settings: Settings, profile: Profile, cut: usize) -> (Step, Target) {
    let (mut to_target, mut to_us) = (Vec::new(), Vec::new());
    let mut login = Login::new(settings, &mut to_target).expect("settings");
    let mut target = Target::new(profile);
    for _ in 0..100 {
        let sent = std::mem::take(&mut to_target);
        for mut part in sent.chunks(cut) {
            match target.next(&mut part, &mut to_us) {
                Ok(Asked::NeedMore | Asked::LoggedIn) | Err(TargetError::Refused) => {}
                other => panic!("{other:?}"),
            }
        }
        let sent = std::mem::take(&mut to_us);
        assert!(!sent.is_empty(), "the target says nothing");
        for mut part in sent.chunks(cut) {
            match login.input(&mut part, &mut to_target) {
                Step::NeedMore => assert!(part.is_empty()),
                step => return (step, target),
            }
        }
    }
    panic!("no end of the login");
}

#[track_caller]
fn ready(step: Step) -> LoggedIn {
    match step {
        Step::Ready(session) => *session,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn failed(step: Step) -> LoginError {
    match step {
        Step::Failed(why) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_login_cut_anywhere_ends_in_the_same_session() {
    for mutual in [false, true] {
        for cut in [1, 2, 3, 7, 47, 48, 49, 100, 8192] {
            let settings = Settings { auth: chap(mutual, &Algorithm::ALL), ..settings() };
            let (step, target) = converse(settings, asks_for_chap(&Algorithm::ALL), cut);
            let session = ready(step);
            assert_eq!(session.chap, Some(Algorithm::Sha3));
            assert_eq!((session.tsih, session.group), (1, Some(1)));
            assert_eq!(session.cmd_sn, Serial(1));
            assert_eq!(session.numbers.max_cmd_sn, Serial(64));
            let theirs = target.agreed().expect("a session");
            assert_eq!(theirs.segment_out, session.agreed.segment_in);
            assert_eq!(session.agreed.segment_out, 262_144);
            assert_eq!(theirs.digests, session.agreed.digests);
            assert_eq!(session.exp_stat_sn, target.numbers().stat_sn);
        }
    }
}

#[test]
fn sides_without_proof_need_two_requests() {
    let session = ready(converse(settings(), profile(), 8192).0);
    assert_eq!((session.chap, session.agreed.digests), (None, Digests::NONE));
    assert_eq!(session.exp_stat_sn, Serial(0x102));
}

#[test]
fn each_algorithm_is_used_where_it_is_all_that_both_have() {
    for algorithm in Algorithm::ALL {
        let one = Settings { auth: chap(true, &[algorithm]), ..settings() };
        let session = ready(converse(one, asks_for_chap(&Algorithm::ALL), 8192).0);
        assert_eq!(session.chap, Some(algorithm));
        let all = Settings { auth: chap(true, &Algorithm::ALL), ..settings() };
        let session = ready(converse(all, asks_for_chap(&[algorithm]), 8192).0);
        assert_eq!(session.chap, Some(algorithm));
    }
    let none = Settings { auth: chap(true, &[Algorithm::Sha1]), ..settings() };
    let why = failed(converse(none, asks_for_chap(&[Algorithm::Md5]), 8192).0);
    assert_eq!(why, LoginError::Refused(LoginStatus::AUTHENTICATION));
}

#[test]
fn digests_are_used_as_both_sides_say() {
    use DigestOffer::{Accept, Never, Prefer, Require};
    for (ours, theirs, used) in [
        (Never, Prefer, Some(false)),
        (Accept, Prefer, Some(false)),
        (Prefer, Accept, Some(true)),
        (Prefer, Never, Some(false)),
        (Require, Accept, Some(true)),
        (Accept, Require, Some(true)),
        (Never, Require, None),
        (Require, Never, None),
    ] {
        let offer = |digest| Offer { header_digest: digest, ..Offer::default() };
        let ours = Settings { offer: offer(ours), ..settings() };
        let mut target = Target::new(Profile { offer: offer(theirs), ..profile() });
        let (mut to_target, mut to_us) = (Vec::new(), Vec::new());
        let mut login = Login::new(ours, &mut to_target).expect("settings");
        let mut found = None;
        for _ in 0..3 {
            let sent = std::mem::take(&mut to_target);
            if target.next(&mut &sent[..], &mut to_us).is_err() {
                break;
            }
            let sent = std::mem::take(&mut to_us);
            if let Step::Ready(session) = login.input(&mut &sent[..], &mut to_target) {
                found = Some(session.agreed.digests.header);
            }
        }
        assert_eq!(found, used);
    }
}

#[test]
fn a_wrong_secret_user_or_name_is_refused_with_the_status() {
    let wrong = Auth::Chap {
        initiator: user("weir", "weirsecret124"),
        target: None,
        algorithms: Algorithm::ALL.to_vec(),
    };
    let refused = LoginError::Refused(LoginStatus::AUTHENTICATION);
    let other = Auth::Chap {
        initiator: user("wire", "weirsecret123"),
        target: None,
        algorithms: Algorithm::ALL.to_vec(),
    };
    for auth in [wrong, other, Auth::None] {
        let settings = Settings { auth, ..settings() };
        let why = failed(converse(settings, asks_for_chap(&Algorithm::ALL), 8192).0);
        assert_eq!(why, refused);
        assert!(why.to_string().contains("authentication failure (status 0201)"), "{why}");
        assert!(!why.is_passing());
    }
    let session = SessionKind::Normal(name("iqn.2001-04.com.example:none"));
    let why = failed(converse(Settings { session, ..settings() }, profile(), 8192).0);
    assert_eq!(why, LoginError::Refused(LoginStatus::NOT_FOUND));
    assert!(LoginError::Refused(LoginStatus(0x0302)).is_passing());
}

#[test]
fn a_target_that_does_not_prove_itself_is_refused() {
    let mut impostor = asks_for_chap(&Algorithm::ALL);
    let mutual = Settings { auth: chap(true, &Algorithm::ALL), ..settings() };
    for target in [user("out", "outsecret4568"), user("in", "outsecret4567")] {
        impostor.chap.as_mut().expect("CHAP").target = Some(target);
        let step = converse(mutual.clone(), impostor.clone(), 8192).0;
        assert_eq!(failed(step), LoginError::Unproven);
    }
    // One that asks for no proof gives none either.
    let step = converse(mutual.clone(), profile(), 8192).0;
    assert_eq!(failed(step), LoginError::Refused(LoginStatus::AUTHENTICATION));
    let one_way = Settings { auth: chap(false, &Algorithm::ALL), ..settings() };
    assert_eq!(ready(converse(one_way, profile(), 8192).0).chap, None);
}

#[test]
fn a_challenge_that_is_our_own_is_not_answered() {
    let mut mirror = asks_for_chap(&Algorithm::ALL);
    mirror.chap.as_mut().expect("CHAP").challenge = Challenge { id: 9, bytes: vec![0x55; 32] };
    let mutual = Settings { auth: chap(true, &Algorithm::ALL), ..settings() };
    assert_eq!(failed(converse(mutual, mirror, 8192).0), LoginError::Reflected);
}

#[test]
fn a_target_that_has_moved_says_where_to() {
    let portal = Portal::new("[2001:db8::1]:3261,1").expect("a portal");
    let moved = Profile { moved: Some(portal.clone()), ..profile() };
    match converse(settings(), moved, 1).0 {
        Step::Moved { portal: to, for_good } => assert_eq!((to, for_good), (portal, false)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn settings_that_make_no_session_are_refused() {
    let same = Auth::Chap {
        initiator: user("weir", "weirsecret123"),
        target: Some(user("out", "weirsecret123")),
        algorithms: Algorithm::ALL.to_vec(),
    };
    let refused = |settings: Settings| Login::new(settings, &mut Vec::new()).expect_err("refused");
    let with = |auth| Settings { auth, ..settings() };
    assert_eq!(refused(with(same)), SettingsError::SameSecret);
    assert_eq!(refused(with(chap(false, &[]))), SettingsError::NoAlgorithm);
    let changes: [fn(&mut Offer); 7] = [
        |offer| offer.segment_max = 511,
        |offer| offer.segment_max = 1 << 24,
        |offer| offer.burst_max = 1 << 24,
        |offer| offer.first_burst = offer.burst_max + 1,
        |offer| offer.r2ts = 0,
        |offer| offer.time2wait_s = 3601,
        |offer| offer.time2retain_s = 3601,
    ];
    for change in changes {
        let mut settings = settings();
        change(&mut settings.offer);
        let why = refused(settings);
        assert!(matches!(why, SettingsError::Range { .. }), "{why}");
    }
}

#[test]
fn no_secret_is_shown_by_anything_that_holds_one() {
    let settings = Settings { auth: chap(true, &Algorithm::ALL), ..settings() };
    let mut shown = format!("{settings:?}");
    let mut login = Login::new(settings, &mut Vec::new()).expect("settings");
    let mut script = Script::default();
    let _ =
        login.input(&mut &script.say(false, 0, None, &[("AuthMethod", "CHAP")])[..], &mut vec![]);
    shown += &format!("{login:?} {:?}", Target::new(asks_for_chap(&Algorithm::ALL)));
    let wrong =
        script.say(false, 0, None, &[("CHAP_A", "12"), ("CHAP_I", "1"), ("CHAP_C", "0x1234")]);
    let why = login.input(&mut &wrong[..], &mut vec![]);
    shown += &format!("{why:?} {login:?}");
    for secret in ["secret123", "secret4567", "1234\"", "85, 85", "119, 101, 105, 114, 115"] {
        assert!(!shown.contains(secret), "{secret} in {shown}");
    }
}

/// A target by hand.
#[derive(Default)]
struct Script {
    stat_sn: u32,
    more: bool,
    tsih: u16,
}

impl Script {
    /// A response: with transit to the next stage or without.
    fn say(&mut self, t: bool, stage: u8, next: Option<u8>, pairs: &[(&str, &str)]) -> Vec<u8> {
        let mut keys = Vec::new();
        pairs.iter().for_each(|(key, value)| put(&mut keys, key, value));
        self.bytes(t, stage, next, &keys)
    }

    fn bytes(&mut self, transit: bool, stage: u8, next: Option<u8>, data: &[u8]) -> Vec<u8> {
        let response = LoginResponse {
            transit,
            more: self.more,
            stage,
            next: next.unwrap_or(0),
            version_max: 0,
            version: 0,
            isid: Isid::random([1, 2, 3], 4).0,
            tsih: self.tsih,
            itt: 0,
            numbers: Numbers {
                stat_sn: Serial(self.stat_sn),
                exp_cmd_sn: Serial(1),
                max_cmd_sn: Serial(8),
            },
            status: 0,
        };
        self.stat_sn += 1;
        let mut out = Vec::new();
        put_pdu(&mut out, response.encode(), data, Digests::NONE);
        out
    }
}

fn begun(auth: Auth) -> (Login, Vec<u8>) {
    let mut out = Vec::new();
    let login = Login::new(Settings { auth, ..settings() }, &mut out).expect("settings");
    (login, out)
}

/// What a login makes of these responses: its last step, and its last request.
fn after(auth: Auth, responses: &[Vec<u8>]) -> (Step, Vec<u8>) {
    let (mut login, mut out) = begun(auth);
    let mut step = Step::NeedMore;
    for response in responses {
        out.clear();
        step = login.input(&mut &response[..], &mut out);
    }
    (step, out)
}

const NEXT: Option<u8> = Some(1);
const FULL: Option<u8> = Some(3);

#[test]
fn a_stage_begins_only_when_both_sides_want_it() {
    let one_way = || chap(false, &[Algorithm::Md5]);
    let none = &[("AuthMethod", "None")];
    let method = &[("AuthMethod", "CHAP")];
    let challenge = &[("CHAP_A", "5"), ("CHAP_I", "1"), ("CHAP_C", "0x0102")];
    let at = |n, t, stage, next, pairs: &[(&str, &str)]| {
        Script { stat_sn: n, tsih: 1, ..Script::default() }.say(t, stage, next, pairs)
    };
    let refused = |auth, responses: &[Vec<u8>]| match after(auth, responses).0 {
        Step::Failed(LoginError::Field { field, .. }) => field,
        other => panic!("{other:?}"),
    };
    // A target that goes on before the initiator has asked.
    let early = "a transit out of turn";
    assert_eq!(refused(one_way(), &[at(0, true, 0, NEXT, method)]), early);
    assert_eq!(
        refused(one_way(), &[at(0, false, 0, None, method), at(1, true, 0, NEXT, challenge)]),
        early
    );
    // One that leaves the proof of itself out.
    let mutual = [
        at(0, false, 0, None, method),
        at(1, false, 0, None, challenge),
        at(2, true, 0, NEXT, &[]),
    ];
    let why = failed(after(chap(true, &[Algorithm::Md5]), &mutual).0);
    assert_eq!(why, LoginError::Missing("CHAP_N"));
    // One that leaves a stage out.
    assert_eq!(refused(Auth::None, &[at(0, true, 0, FULL, none)]), early);
    // One that is in another stage.
    assert_eq!(refused(Auth::None, &[at(0, true, 1, FULL, none)]), "stage");
    // One that gives the session no name.
    let nameless = [
        at(0, true, 0, NEXT, none),
        Script { stat_sn: 1, ..Script::default() }.say(true, 1, FULL, &[]),
    ];
    assert_eq!(refused(Auth::None, &nameless), "TSIH");
    // And as it should be.
    let (step, _) = after(Auth::None, &[at(0, true, 0, NEXT, none), at(1, true, 1, FULL, &[])]);
    assert_eq!(ready(step).exp_stat_sn, Serial(2));
    let (step, _) = after(Auth::None, &[at(0, true, 0, NEXT, &[]), at(1, true, 1, FULL, &[])]);
    assert_eq!(ready(step).agreed.segment_out, 8192, "a target that says nothing");
    let sequence = [at(0, true, 0, NEXT, none), at(2, true, 1, FULL, &[])];
    assert_eq!(refused(Auth::None, &sequence), "StatSN");
    let both = Script { more: true, ..Script::default() }.say(true, 0, NEXT, none);
    assert_eq!(refused(Auth::None, &[both]), early);
}

#[test]
fn fields_of_another_login_are_refused() {
    let sound = Script { tsih: 1, ..Script::default() }.say(true, 0, NEXT, &[]);
    for (at, value, field) in
        [(3, 1, "version"), (8, 0x81, "another ISID, that ends in"), (19, 1, "task tag")]
    {
        let mut bytes = sound.clone();
        bytes[at] = value;
        match after(Auth::None, &[bytes]).0 {
            Step::Failed(LoginError::Field { field: found, .. }) => assert_eq!(found, field),
            other => panic!("{other:?}"),
        }
    }
    let opcode = |opcode| {
        let mut out = Vec::new();
        put_pdu(&mut out, Bhs::new(opcode).with_byte(2, 4), &[], Digests::NONE);
        failed(after(Auth::None, &[out]).0)
    };
    assert_eq!(opcode(Opcode::REJECT), LoginError::Rejected(4));
    assert_eq!(opcode(Opcode::NOP_IN), LoginError::Unexpected(Opcode::NOP_IN));
}

#[test]
fn keys_of_proof_are_heard_once_and_where_they_belong() {
    let one_way = || chap(false, &[Algorithm::Md5, Algorithm::Sha1]);
    let ask = Script::default().say(false, 0, None, &[("AuthMethod", "CHAP")]);
    let second = |pairs: &[(&str, &str)]| {
        let mut script = Script { stat_sn: 1, ..Script::default() };
        failed(after(one_way(), &[ask.clone(), script.say(false, 0, None, pairs)]).0).to_string()
    };
    let (a, i, c) = (("CHAP_A", "5"), ("CHAP_I", "1"), ("CHAP_C", "0x01"));
    for (pairs, words) in [
        (&[a, i][..], "answers without CHAP_C"),
        (&[i, c], "answers without CHAP_A"),
        (&[a, i, c, c], "CHAP_C: it comes twice"),
        (&[("CHAP_A", "8"), i, c], "CHAP_A: it was not offered"),
        (&[("CHAP_A", "x"), i, c], "CHAP_A: it was not offered"),
        (&[a, ("CHAP_I", "256"), c], "CHAP_C: no challenge"),
        (&[a, i, c, ("CHAP_R", "0x01")], "CHAP_R: it is out of place"),
        (&[a, i, c, ("AuthMethod", "CHAP")], "AuthMethod: it is out of place"),
    ] {
        assert!(second(pairs).contains(words), "{} and not {words}", second(pairs));
    }
    for (auth, method) in [(Auth::None, "CHAP"), (chap(true, &[Algorithm::Md5]), "None")] {
        let response = Script::default().say(false, 0, None, &[("AuthMethod", method)]);
        let why = failed(after(auth, &[response]).0).to_string();
        assert!(why.contains("it was not offered"), "{why}");
    }
    // As istgt answers where it wants CHAP and is offered none.
    let reject = Script::default().say(false, 0, None, &[("AuthMethod", "Reject")]);
    let why = failed(after(Auth::None, &[reject]).0).to_string();
    assert!(why.contains("the target wants another proof"), "{why}");
    let none = Script::default().say(true, 0, NEXT, &[]);
    let late = Script { stat_sn: 1, ..Script::default() }.say(false, 1, None, &[a]);
    let why = failed(after(Auth::None, &[none, late]).0).to_string();
    assert!(why.contains("out of place"), "{why}");
}

#[test]
fn text_that_goes_on_is_asked_for_and_read_as_one() {
    let mut script = Script { more: true, ..Script::default() };
    let first = script.bytes(false, 0, None, b"TargetAlias=a long");
    script.more = false;
    let rest = script.bytes(true, 0, NEXT, b" name\0AuthMethod=None\0");
    let (mut login, mut out) = begun(Auth::None);
    out.clear();
    assert!(matches!(login.input(&mut &first[..], &mut out), Step::NeedMore));
    let request = LoginRequest::decode(&Bhs::from_bytes(*out.first_chunk().expect("a request")));
    assert_eq!((request.transit, request.more, out.len()), (false, false, 48));
    assert_eq!(request.exp_stat_sn, Serial(1));
    // It has not asked again for the next stage, so the target may not go there yet.
    assert!(matches!(login.input(&mut &rest[..], &mut out), Step::Failed(_)));
    script.stat_sn = 1;
    let rest = script.bytes(false, 0, None, b" name\0AuthMethod=None\0");
    script.tsih = 1;
    let go = script.say(true, 0, NEXT, &[]);
    let end = script.say(true, 1, FULL, &[]);
    let (step, _) = after(Auth::None, &[first.clone(), rest, go, end]);
    assert_eq!(ready(step).alias.as_deref(), Some("a long name"));
    script.stat_sn = 1;
    let cut = script.bytes(false, 0, None, b"");
    let why = failed(after(Auth::None, &[first, cut]).0).to_string();
    assert!(why.contains("within a pair"), "{why}");
}

#[test]
fn offers_of_a_target_are_answered_before_the_end_is_asked_for() {
    let mut script = Script { tsih: 1, ..Script::default() };
    let go = script.say(true, 0, NEXT, &[]);
    let own = [("X-own", "1"), ("MaxRecvDataSegmentLength", "4096")];
    let offers = script.say(false, 1, None, &own);
    let (step, out) = after(Auth::None, &[go.clone(), offers]);
    assert!(matches!(step, Step::NeedMore));
    assert!(out.ends_with(b"X-own=NotUnderstood\0"), "{out:?}");
    let request = LoginRequest::decode(&Bhs::from_bytes(*out.first_chunk().expect("a request")));
    assert_eq!((request.transit, request.stage, request.next), (true, 1, 3));
    script.stat_sn = 1;
    let last = script.say(true, 1, FULL, &[("X-own", "1")]);
    assert!(matches!(failed(after(Auth::None, &[go, last]).0), LoginError::Field { .. }));
}

#[test]
fn a_negotiation_without_end_is_left_and_costs_bounded_memory() {
    for more in [false, true] {
        let (mut login, mut out) = begun(Auth::None);
        let mut script = Script { more, tsih: 1, ..Script::default() };
        let mut rounds = 0;
        let why = loop {
            let (t, stage) = if more { (false, 0) } else { (rounds == 0, u8::from(rounds > 0)) };
            let response = script.say(t, stage, t.then_some(1), &[("X-a", "b")]);
            out.clear();
            match login.input(&mut &response[..], &mut out) {
                Step::NeedMore if rounds <= ROUNDS_MAX => rounds += 1,
                step => break failed(step),
            }
        };
        assert_eq!((why, rounds), (LoginError::Rounds, ROUNDS_MAX));
        assert!(matches!(login.input(&mut &[][..], &mut out), Step::Failed(LoginError::Rounds)));
    }
    let mut script = Script { more: true, ..Script::default() };
    let keys: Vec<u8> = b"X=1\0".repeat(2048);
    let pdus: Vec<_> = (0..3).map(|_| script.bytes(false, 0, None, &keys)).collect();
    assert_eq!(failed(after(Auth::None, &pdus).0), LoginError::Keys);
    // Also where all of them come at once: the answers would not fit into a segment.
    let one = Script::default().bytes(false, 0, None, &keys);
    let (step, out) = after(Auth::None, &[one]);
    assert_eq!((failed(step), out.len()), (LoginError::Keys, 0));
    let endless: Vec<_> = (0..2).map(|_| script.bytes(false, 0, None, &[b'x'; 8192])).collect();
    assert!(matches!(failed(after(Auth::None, &endless).0), LoginError::Text(_)));
    let long = script.bytes(false, 0, None, &[b'x'; 8193]);
    assert!(matches!(failed(after(Auth::None, &[long]).0), LoginError::Wire(_)));
}

#[test]
fn a_refusal_is_told_whatever_stands_beside_it() {
    let mut bytes = Script::default().say(false, 0, None, &[("AuthMethod", "X"), ("CHAP_A", "?")]);
    for (status, words) in [
        (0x0201_u16, "authentication failure"),
        (0x0206, "too many connections"),
        (0x0301, "service unavailable"),
        (0x0399, "a target error"),
        (0x0999, "does not know"),
    ] {
        bytes[36..38].copy_from_slice(&status.to_be_bytes());
        let why = failed(after(Auth::None, &[bytes.clone()]).0);
        assert!(why.to_string().contains(words), "{why}");
        assert_eq!(why.is_passing(), status >> 8 == 3);
    }
    bytes[36..38].copy_from_slice(&0x0102_u16.to_be_bytes());
    assert_eq!(failed(after(Auth::None, &[bytes]).0), LoginError::Nowhere);
    let mut bytes = Script::default().say(false, 0, None, &[("TargetAddress", "a:b")]);
    bytes[36] = 1;
    bytes[37] = 2;
    assert!(matches!(failed(after(Auth::None, &[bytes]).0), LoginError::Portal(_)));
}

/// Transit, stage, next stage, and pairs by their places in a list.
fn any_response() -> impl Strategy<Value = (bool, u8, u8, Vec<(usize, usize)>)> {
    let pairs = prop::collection::vec((0..14_usize, 0..12_usize), 0..6);
    (any::<bool>(), 0..4_u8, 0..4_u8, pairs)
}

proptest! {
    #[test]
    fn a_target_of_any_bytes_ends_a_login_without_a_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..600),
        head in 0..4_usize,
    ) {
        // The first bytes right, so that what follows is reached.
        let mut script = Script { tsih: 1, ..Script::default() };
        let sound = [
            script.say(true, 0, NEXT, &[("AuthMethod", "None")]),
            script.say(false, 1, None, &[("MaxBurstLength", "512")]),
            script.say(false, 1, None, &[("X-a", "1")]),
        ];
        let (mut login, mut out) = begun(Auth::None);
        for bytes in sound.iter().take(head).chain([&bytes]) {
            let _ = login.input(&mut &bytes[..], &mut out);
        }
        prop_assert!(out.len() < 20_000);
    }

    #[test]
    fn a_target_of_any_pairs_ends_a_login_without_a_panic(
        pdus in prop::collection::vec(any_response(), 1..5),
    ) {
        let keys = ["AuthMethod", "CHAP_A", "CHAP_I", "CHAP_C", "CHAP_N", "CHAP_R", "HeaderDigest",
            "MaxBurstLength", "FirstBurstLength", "InitialR2T", "TargetAddress", "X-a",
            "MaxRecvDataSegmentLength", "TargetPortalGroupTag"];
        let long = hex(&[7; 1024]);
        let values = ["None", "CHAP", "5", "7,5", "1", "0x01", "Yes", "No", "CRC32C", "", "out",
            &long];
        let (mut login, mut out) = begun(chap(true, &Algorithm::ALL));
        let mut script = Script { tsih: 1, ..Script::default() };
        for (transit, stage, next, pairs) in pdus {
            let pairs: Vec<_> = pairs.iter().map(|&(k, v)| (keys[k], values[v])).collect();
            let bytes = script.say(transit, stage, Some(next), &pairs);
            // Without its proof there is no session.
            prop_assert!(!matches!(login.input(&mut &bytes[..], &mut out), Step::Ready(_)));
        }
    }
}
