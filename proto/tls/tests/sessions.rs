//! Both ends of a session, joined without a socket.

mod authority;

use std::io::IoSlice;

use authority::{Authority, Folder};
use weir_tls::{ClientTls, SEALED_MAX, ServerTls, Session, TlsError};

/// A pair of sessions and the bytes between them.
struct Pair {
    client: Session,
    server: Session,
}

/// All records a session wants to send.
fn sent(session: &mut Session) -> Vec<u8> {
    let mut bytes = Vec::new();
    let put = |pieces: &[IoSlice<'_>]| {
        pieces.iter().for_each(|piece| bytes.extend_from_slice(piece));
        Ok(pieces.iter().map(|piece| piece.len()).sum())
    };
    session.send(put).expect("nothing fails here");
    bytes
}

fn opened(session: &mut Session, bytes: &[u8]) -> Result<Vec<u8>, TlsError> {
    let mut plain = Vec::new();
    session.open(bytes, |piece| {
        plain.extend_from_slice(piece);
        Ok::<(), TlsError>(())
    })?;
    Ok(plain)
}

/// Joins two sessions; which side failed, and why.
fn join(server: &ServerTls, client: &ClientTls) -> Result<Pair, (&'static str, String)> {
    let mut server = server.session().expect("a session");
    let mut client = client.session().expect("a session");
    loop {
        let bytes = sent(&mut client);
        let idle = bytes.is_empty();
        opened(&mut server, &bytes).map_err(|why| ("server", why.to_string()))?;
        let bytes = sent(&mut server);
        opened(&mut client, &bytes).map_err(|why| ("client", why.to_string()))?;
        if bytes.is_empty() && idle {
            assert!(!client.is_handshaking() && !server.is_handshaking());
            return Ok(Pair { client, server });
        }
    }
}

fn server(folder: &Folder) -> ServerTls {
    ServerTls::read(folder.path(), true, &[]).expect("a good folder")
}

fn client(folder: &Folder) -> ClientTls {
    ClientTls::read(folder.path(), "localhost").expect("a good folder")
}

#[track_caller]
fn refused(joined: Result<Pair, (&'static str, String)>, side: &str, words: &str) {
    let Err((failed, why)) = joined else { panic!("they have come together") };
    assert!(failed == side && why.contains(words), "{failed}: {why}");
}

#[test]
fn both_ends_of_one_authority_come_together_and_know_each_other() {
    let folder = Authority::new().folder();
    let pair = join(&server(&folder), &client(&folder)).expect("all is well");
    assert_eq!(pair.server.peer_names(), ["alice"]);
    assert_eq!(pair.client.peer_names(), ["localhost"]);
    let numeric = ClientTls::read(folder.path(), "127.0.0.1").expect("an address");
    join(&server(&folder), &numeric).expect("the certificate bears the address too");
}

#[test]
fn a_server_lets_in_who_shows_a_good_certificate() {
    let authority = Authority::new();
    let folder = authority.folder();
    let other = Authority::new().folder();
    // Trusts this authority, and shows another one's certificate.
    let stranger = authority.trust();
    for file in ["client-cert.pem", "client-key.pem"] {
        std::fs::copy(other.path().join(file), stranger.path().join(file)).expect("a copy");
    }
    refused(join(&server(&folder), &client(&stranger)), "server", "UnknownIssuer");
    let late = authority.folder();
    authority.sign_until(&late, "client", "alice", &[], 2020);
    refused(join(&server(&folder), &client(&late)), "server", "expired");
    let bare = authority.trust();
    refused(join(&server(&folder), &client(&bare)), "server", "peer sent no certificates");
    let open = ServerTls::read(folder.path(), false, &[]).expect("a good folder");
    let pair = join(&open, &client(&bare)).expect("nobody asks for a certificate");
    assert_eq!(pair.server.peer_names(), [""; 0]);
    authority.take_back(&folder, "client");
    refused(join(&server(&folder), &client(&folder)), "server", "Revoked");
}

#[test]
fn a_list_of_names_is_held_against_common_and_dns_names() {
    let authority = Authority::new();
    let folder = authority.folder();
    let listed = |names: &[&str]| {
        let names: Vec<String> = names.iter().copied().map(String::from).collect();
        ServerTls::read(folder.path(), true, &names).expect("a good folder")
    };
    join(&listed(&["bob", "alice"]), &client(&folder)).expect("alice is listed");
    refused(join(&listed(&["bob"]), &client(&folder)), "server", "\"alice\"");
    refused(join(&listed(&["ali", "alice2"]), &client(&folder)), "server", "not in the list");
    authority.sign(&folder, "client", "carol", &["backup.example"]);
    join(&listed(&["backup.example"]), &client(&folder)).expect("by its DNS name");
    let why = ServerTls::read(folder.path(), false, &["bob".into()]).expect_err("names of nobody");
    assert!(why.to_string().contains("bob"), "{why}");
}

#[test]
fn a_client_talks_to_the_server_it_means_and_to_no_other() {
    let authority = Authority::new();
    let folder = authority.folder();
    let other = Authority::new().folder();
    refused(join(&server(&other), &client(&folder)), "client", "UnknownIssuer");
    let elsewhere = ClientTls::read(folder.path(), "disks.example").expect("a name");
    refused(join(&server(&folder), &elsewhere), "client", "disks.example");
    let late = authority.folder();
    authority.sign_until(&late, "server", "localhost", &["localhost"], 2020);
    refused(join(&server(&late), &client(&folder)), "client", "expired");
    authority.take_back(&folder, "server");
    refused(join(&server(&folder), &client(&folder)), "client", "Revoked");
    // A client's certificate is no server's.
    let posing = authority.folder();
    authority.sign(&posing, "client", "localhost", &["localhost"]);
    for end in ["cert", "key"] {
        let [from, to] = ["client", "server"].map(|who| format!("{who}-{end}.pem"));
        std::fs::copy(posing.path().join(from), posing.path().join(to)).expect("a copy");
    }
    let trusting = authority.trust();
    refused(join(&server(&posing), &client(&trusting)), "client", "extended key usage");
}

#[test]
fn a_folder_that_is_not_as_it_must_be_is_refused_by_file_and_reason() {
    let authority = Authority::new();
    let both = |folder: &Folder| {
        let server = ServerTls::read(folder.path(), true, &[]).map(drop);
        let client = ClientTls::read(folder.path(), "localhost").map(drop);
        (server.map_err(|why| why.to_string()), client.map_err(|why| why.to_string()))
    };
    let says = |answer: Result<(), String>, file: &str, words: &str| {
        let why = answer.expect_err(file);
        assert!(why.contains(file) && why.contains(words), "{why}");
    };
    let folder = authority.folder();
    folder.remove("ca-cert.pem");
    let (server, client) = both(&folder);
    says(server, "/ca-cert.pem", "No such file");
    says(client, "/ca-cert.pem", "No such file");
    let folder = authority.folder();
    folder.remove("server-key.pem");
    folder.remove("client-cert.pem");
    let (server, client) = both(&folder);
    says(server, "/server-key.pem", "No such file");
    says(client, "/client-cert.pem", "No such file");
    let folder = authority.folder();
    folder.write("server-cert.pem", 0o644, "nothing\n");
    authority.sign(&folder, "server", "localhost", &["localhost"]);
    let key = std::fs::read_to_string(folder.path().join("server-key.pem")).expect("a key");
    folder.write("client-key.pem", 0o600, &key);
    says(both(&folder).1, "/client-cert.pem", "client-key.pem");
    folder.write("server-key.pem", 0o600, "nothing\n");
    folder.write("client-cert.pem", 0o644, "nothing\n");
    let (server, client) = both(&folder);
    says(server, "/server-key.pem", "no private key");
    says(client, "/client-cert.pem", "no certificate");
}

#[test]
fn a_key_that_every_user_can_read_or_write_is_refused_and_never_shown() {
    let authority = Authority::new();
    for (mode, good) in [(0o600, true), (0o640, true), (0o644, false), (0o602, false)] {
        let folder = authority.folder();
        let key = std::fs::read_to_string(folder.path().join("server-key.pem")).expect("a key");
        folder.remove("server-key.pem");
        folder.write("server-key.pem", 0o600, &key);
        use std::os::unix::fs::PermissionsExt;
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(folder.path().join("server-key.pem"), permissions).expect("ours");
        let read = ServerTls::read(folder.path(), true, &[]);
        assert_eq!(read.is_ok(), good, "{mode:o}: {read:?}");
        if let Err(why) = &read {
            assert!(why.to_string().contains(&format!("mode {mode:04o}")), "{why}");
        }
        let shown = format!("{read:?} {:?}", read.as_ref().map(ServerTls::session));
        let secret = key.lines().nth(1).expect("a line of the key");
        assert!(!shown.contains(secret) && shown.len() < 300, "{shown}");
    }
}

#[test]
fn many_small_replies_share_records_and_arrive_in_order() {
    let folder = Authority::new().folder();
    let Pair { mut client, mut server } =
        join(&server(&folder), &client(&folder)).expect("all is well");
    let replies: Vec<Vec<u8>> = (0..2000_u32).map(|i| i.to_be_bytes().repeat(9)).collect();
    let pieces: Vec<IoSlice<'_>> = replies.iter().map(|reply| IoSlice::new(reply)).collect();
    let whole = replies.concat();
    assert_eq!(server.seal(&pieces).expect("sound"), whole.len());
    let bytes = sent(&mut server);
    // 72,000 bytes are five records, each with some 22 bytes around it.
    assert!(bytes.len() < whole.len() + 5 * 40, "{} bytes for {}", bytes.len(), whole.len());
    // In whatever portions they come.
    let mut plain = Vec::new();
    for portion in bytes.chunks(1999) {
        plain.extend(opened(&mut client, portion).expect("sound"));
    }
    assert!(plain == whole, "{} of {} bytes", plain.len(), whole.len());
}

#[test]
fn what_is_sealed_and_not_sent_is_bounded() {
    let folder = Authority::new().folder();
    let Pair { mut server, .. } = join(&server(&folder), &client(&folder)).expect("all is well");
    let much = vec![7; 4 * SEALED_MAX];
    assert_eq!(server.seal(&[IoSlice::new(&much)]).expect("sound"), SEALED_MAX);
    assert_eq!(server.seal(&[IoSlice::new(&much)]).expect("sound"), 0);
    assert!(server.wants_write() && sent(&mut server).len() > SEALED_MAX);
    assert_eq!(server.seal(&[IoSlice::new(&much)]).expect("sound"), SEALED_MAX);
}

#[test]
fn an_end_is_told_from_a_cut_and_a_changed_byte_from_data() {
    let folder = Authority::new().folder();
    let Pair { mut client, mut server } =
        join(&server(&folder), &client(&folder)).expect("all is well");
    server.seal(&[IoSlice::new(b"last words")]).expect("sound");
    let mut bytes = sent(&mut server);
    assert_eq!(opened(&mut client, &bytes).expect("sound"), b"last words");
    assert!(!client.has_ended(), "nobody has said so");
    server.end();
    bytes = sent(&mut server);
    assert_eq!(opened(&mut client, &bytes).expect("sound"), b"");
    assert!(client.has_ended());
    client.seal(&[IoSlice::new(b"one more")]).expect("its own direction is open");
    let mut bytes = sent(&mut client);
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let why = opened(&mut server, &bytes).expect_err("a record that was changed");
    assert!(why.to_string().contains("decrypt"), "{why}");
    assert!(!sent(&mut server).is_empty(), "an alert tells the peer");
    // Plaintext in place of a handshake is none.
    let mut fresh =
        ServerTls::read(folder.path(), true, &[]).expect("good").session().expect("one");
    opened(&mut fresh, b"IHAVEOPT\0\0\0\x07\0\0\0\x06").expect_err("an option is no record");
}
