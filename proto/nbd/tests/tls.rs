//! STARTTLS in both machines. The stand-in for TLS changes no byte: the machines never see one of
//! its own.

mod peer;

use peer::{Server, exports};
use weir_proto_nbd::client::{self, HandshakeError, ServerInfo, Wanted};
use weir_proto_nbd::server::{CloseReason, Export, Handshake, Settings, Step, Tls};
use weir_proto_nbd::wire::{
    Greeting, HandshakeFlags, Mode, OPTION_DATA_MAX, OptionCode, OptionReplyCode,
    OptionReplyHeader, put_info_query, put_option, put_option_reply,
};

fn with(tls: Tls) -> Settings {
    Settings { tls, ..Settings::default() }
}

/// A server's handshake behind the greeting and the client's flags.
fn begun(settings: Settings) -> Handshake<Vec<Export>> {
    let mut handshake = Handshake::new(exports(), settings, &mut Vec::new());
    let input = handshake.input(&[0, 0, 0, 3], &mut Vec::new());
    assert_eq!((input.consumed, input.step), (4, Step::NeedMore));
    handshake
}

fn option(code: OptionCode, data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_option(&mut bytes, code, |out| out.extend_from_slice(data));
    bytes
}

fn go(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_option(&mut bytes, OptionCode::GO, |out| put_info_query(out, name, &[]));
    bytes
}

/// The outcome of one option, and the code of the first reply.
fn ask(handshake: &mut Handshake<Vec<Export>>, bytes: &[u8]) -> (Step, Option<OptionReplyCode>) {
    let mut out = Vec::new();
    let mut rest = bytes;
    loop {
        let input = handshake.input(rest, &mut out);
        rest = &rest[input.consumed..];
        if input.step != Step::NeedMore {
            let reply = OptionReplyHeader::decode(&out);
            return (input.step, reply.map(|reply| reply.code));
        }
        assert!(!rest.is_empty(), "a whole option is answered");
    }
}

/// Runs weir's client against weir's server until the client is ready.
fn negotiate(tls: Tls, wants: bool) -> (Result<ServerInfo, HandshakeError>, Server) {
    let (mut to_client, mut to_server) = (Vec::new(), Vec::new());
    let mut server = Server::new(with(tls), &mut to_client);
    let wanted = Wanted { tls: wants, ..Wanted::everything("disk") };
    let mut handshake = client::Handshake::new(wanted).expect("a name");
    for _ in 0..100 {
        let input = handshake.input(&to_client, &mut to_server);
        to_client.drain(..input.consumed);
        if input.step == client::Step::StartTls {
            handshake.secured(&mut to_server);
        }
        server.input(&to_server, &mut to_client);
        to_server.clear();
        match input.step {
            client::Step::NeedMore | client::Step::StartTls => {}
            client::Step::Ready(info) => return (Ok(info), server),
            client::Step::Failed(why) => return (Err(why), server),
        }
    }
    panic!("the handshake waits for {}", handshake.waiting_for());
}

#[test]
fn a_client_gets_in_where_its_wish_and_the_server_s_rule_agree() {
    for (tls, wants, expected) in [
        (Tls::Off, false, Ok(())),
        (Tls::On, false, Ok(())),
        (Tls::On, true, Ok(())),
        (Tls::Require, true, Ok(())),
        (Tls::Off, true, Err("server does not offer TLS, which is required here")),
        (Tls::Require, false, Err("server requires TLS")),
    ] {
        let (info, server) = negotiate(tls, wants);
        match (info, expected) {
            (Ok(info), Ok(())) => {
                assert_eq!(info.mode, Mode::Extended);
                assert!(server.negotiated().is_some(), "{tls:?} {wants}");
            }
            (Err(why), Err(words)) => assert!(why.to_string().contains(words), "{why}"),
            (got, _) => panic!("{tls:?}, TLS wanted {wants}: {got:?}"),
        }
    }
}

#[test]
fn a_server_that_requires_tls_answers_everything_else_by_saying_so() {
    for code in (0..=20).map(OptionCode).filter(|code| {
        !matches!(*code, OptionCode::EXPORT_NAME | OptionCode::ABORT | OptionCode::STARTTLS)
    }) {
        for data in [&b""[..], b"data", &[0; OPTION_DATA_MAX as usize + 1]] {
            let answer = ask(&mut begun(with(Tls::Require)), &option(code, data));
            assert_eq!(answer, (Step::Answered, Some(OptionReplyCode::ERR_TLS_REQD)), "{code}");
        }
    }
    let mut handshake = begun(with(Tls::Require));
    let answer = ask(&mut handshake, &option(OptionCode::EXPORT_NAME, b"disk"));
    assert_eq!(answer, (Step::Close(CloseReason::TlsRequired), None));
    let answer = ask(&mut begun(with(Tls::Require)), &option(OptionCode::ABORT, &[]));
    assert_eq!(answer, (Step::Close(CloseReason::Aborted), Some(OptionReplyCode::ACK)));
}

#[test]
fn starttls_is_granted_once_and_only_without_data() {
    for tls in [Tls::On, Tls::Require] {
        let mut handshake = begun(with(tls));
        let answer = ask(&mut handshake, &option(OptionCode::STARTTLS, b"!"));
        assert_eq!(answer, (Step::Answered, Some(OptionReplyCode::ERR_INVALID)));
        let answer = ask(&mut handshake, &option(OptionCode::STARTTLS, &[]));
        assert_eq!(answer, (Step::StartTls, Some(OptionReplyCode::ACK)));
        handshake.secured();
        let answer = ask(&mut handshake, &option(OptionCode::STARTTLS, &[]));
        assert_eq!(answer, (Step::Answered, Some(OptionReplyCode::ERR_INVALID)));
        let (step, _) = ask(&mut handshake, &go("disk"));
        assert!(matches!(step, Step::Transmission(_)), "{step:?}");
    }
    let answer = ask(&mut begun(with(Tls::Off)), &option(OptionCode::STARTTLS, &[]));
    assert_eq!(answer, (Step::Answered, Some(OptionReplyCode::ERR_POLICY)));
}

#[test]
fn what_was_negotiated_before_tls_is_forgotten() {
    let mut handshake = begun(with(Tls::On));
    for code in [OptionCode::STRUCTURED_REPLY, OptionCode::EXTENDED_HEADERS] {
        let answer = ask(&mut handshake, &option(code, &[]));
        assert_eq!(answer, (Step::Answered, Some(OptionReplyCode::ACK)));
    }
    assert_eq!(ask(&mut handshake, &option(OptionCode::STARTTLS, &[])).0, Step::StartTls);
    handshake.secured();
    let (step, _) = ask(&mut handshake, &go("disk"));
    let Step::Transmission(agreed) = step else { panic!("{step:?}") };
    assert_eq!((agreed.mode, agreed.allocation), (Mode::Simple, None));
    assert!(agreed.no_zeroes, "the client's flags are not sent twice");
}

#[test]
fn options_smuggled_in_behind_starttls_end_the_session() {
    let mut bytes = option(OptionCode::STARTTLS, &[]);
    bytes.extend(go("disk"));
    let behind = bytes.len() - 16;
    let (step, reply) = ask(&mut begun(with(Tls::On)), &bytes);
    assert_eq!((step, reply), (Step::Close(CloseReason::BehindStartTls(behind)), None));
    // In a segment of their own, before TLS has come to be, they are no better.
    let mut handshake = begun(with(Tls::On));
    assert_eq!(ask(&mut handshake, &bytes[..16]).0, Step::StartTls);
    let (step, reply) = ask(&mut handshake, &bytes[16..]);
    assert_eq!((step, reply), (Step::Close(CloseReason::NotSecured), None));
}

/// A client that has asked for TLS.
fn asked_for_tls() -> client::Handshake {
    let wanted = Wanted { tls: true, ..Wanted::everything("disk") };
    let mut handshake = client::Handshake::new(wanted).expect("a name");
    let (mut greeting, mut out) = (Vec::new(), Vec::new());
    let flags = HandshakeFlags::FIXED_NEWSTYLE.with(HandshakeFlags::NO_ZEROES);
    Greeting { flags }.put(&mut greeting);
    assert_eq!(handshake.input(&greeting, &mut out).step, client::Step::NeedMore);
    assert_eq!(out[4..], option(OptionCode::STARTTLS, &[]), "TLS is the first thing asked for");
    handshake
}

fn answer(code: OptionReplyCode, data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_option_reply(&mut bytes, OptionCode::STARTTLS, code, |out| out.extend_from_slice(data));
    bytes
}

#[test]
fn a_client_that_wants_tls_asks_a_server_without_it_for_nothing_else() {
    for code in [
        OptionReplyCode::ERR_UNSUP,
        OptionReplyCode::ERR_POLICY,
        OptionReplyCode::ERR_PLATFORM,
        OptionReplyCode::ERR_SHUTDOWN,
    ] {
        let mut out = Vec::new();
        let step = asked_for_tls().input(&answer(code, b"no"), &mut out).step;
        let client::Step::Failed(why) = step else { panic!("{step:?}") };
        assert!(why.to_string().contains("does not offer TLS"), "{why}");
        assert_eq!(out, option(OptionCode::ABORT, &[]), "and takes its leave");
    }
    // Nor one that knows no options.
    let wanted = Wanted { tls: true, ..Wanted::everything("disk") };
    let mut handshake = client::Handshake::new(wanted).expect("a name");
    let (mut greeting, mut out) = (Vec::new(), Vec::new());
    Greeting { flags: HandshakeFlags::EMPTY }.put(&mut greeting);
    let step = handshake.input(&greeting, &mut out).step;
    assert_eq!(step, client::Step::Failed(HandshakeError::NotFixed));
    assert!(!out.windows(8).any(|part| part == b"IHAVEOPT"), "it has asked for something");
}

#[test]
fn replies_smuggled_in_behind_the_grant_are_refused() {
    let mut bytes = answer(OptionReplyCode::ACK, &[]);
    let grant = bytes.len();
    put_option_reply(&mut bytes, OptionCode::GO, OptionReplyCode::ACK, |_| ());
    let behind = bytes.len() - grant;
    let step = asked_for_tls().input(&bytes, &mut Vec::new()).step;
    assert_eq!(step, client::Step::Failed(HandshakeError::BehindStartTls(behind)));
    let mut handshake = asked_for_tls();
    let step = handshake.input(&bytes[..grant], &mut Vec::new()).step;
    assert_eq!(step, client::Step::StartTls);
    let step = handshake.input(&bytes[grant..], &mut Vec::new()).step;
    assert_eq!(step, client::Step::Failed(HandshakeError::BehindStartTls(behind)));
}
