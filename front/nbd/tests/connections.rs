//! Names, limits, order and ends of connections.

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use support::*;
use weir_bio::{Op, Status};
use weir_control::Classing;
use weir_front_nbd::{
    Address, Allow, Clients, Export, ExportError, Listen, ListenError, Scope, Server, Settings,
};
use weir_live::Host;
use weir_proto_nbd::NbdError;
use weir_proto_nbd::client::Wanted;
use weir_proto_nbd::wire::{Command, CommandFlags as F, Request, TransmissionFlags as T};
use weir_queue::{Config, Device};

const MIB: u64 = 1 << 20;

fn named(name: &str, bytes: u64) -> Device {
    device(Config { name: name.into(), ..Config::default() }, ram(bytes))
}

#[test]
fn several_exports_are_told_apart_and_the_first_has_the_empty_name() {
    let (sda, sdb) = (named("sda", MIB), named("sdb", 2 * MIB));
    let read_only = Export { read_only: true, ..Export::new("sda-ro", sda.clone()) };
    let exports = vec![Export::new("sda", sda), read_only, Export::new("sdb", sdb)];
    let fixture = Fixture::new(2, exports, Settings::default());
    let sizes = [("", MIB), ("sda", MIB), ("sda-ro", MIB), ("sdb", 2 * MIB)];
    for (name, size) in sizes {
        let client = fixture.client(Wanted::everything(name));
        assert_eq!(client.info.size, size, "{name:?}");
        client.disconnect();
    }
    let error = Client::try_over(fixture.socket(), Wanted::everything("sdc")).err().unwrap();
    assert!(error.contains("no export of that name"), "{error}");
    let mut writer = fixture.client(Wanted::everything("sda"));
    let mut reader = fixture.client(Wanted::everything("sda-ro"));
    writer.write(0, &[3; 512]).ok();
    assert_eq!(reader.read(0, 512), [3; 512], "both are the same disk");
    assert!(reader.info.flags.contains(T::READ_ONLY | T::CAN_MULTI_CONN));
    for (command, payload) in
        [(Command::WRITE, 512), (Command::TRIM, 0), (Command::WRITE_ZEROES, 0)]
    {
        let reply = reader.call(Request::new(command, 0, 0, 512), &vec![4; payload]);
        // A command that a read-only export does not offer is not valid there.
        let error = if command == Command::WRITE { NbdError::Perm } else { reply.error.unwrap() };
        assert_eq!(reply.error, Some(error));
        assert!(matches!(error, NbdError::Perm | NbdError::Inval), "{command}: {error}");
    }
    assert_eq!(writer.read(0, 512), [3; 512]);
    reader.flush().ok();
    writer.disconnect();
    reader.disconnect();
    fixture.stop();
}

#[test]
fn exports_that_cannot_be_told_apart_are_refused() {
    let host = Host::new(1).unwrap();
    let sda = named("sda", MIB);
    let serve = |exports| Server::new(&host, exports, Settings::default()).err();
    assert_eq!(serve(vec![]), Some(ExportError::None));
    let twice = vec![Export::new("a", sda.clone()), Export::new("a", sda.clone())];
    assert_eq!(serve(twice).unwrap().to_string(), "two exports are named \"a\"");
    let long = serve(vec![Export::new("x".repeat(5000), sda)]).unwrap();
    assert!(long.to_string().contains("5000 bytes exceeds 4096"), "{long}");
}

#[test]
fn what_the_device_cannot_do_is_not_offered() {
    let all = T::SEND_TRIM | T::SEND_WRITE_ZEROES | T::SEND_FAST_ZERO | T::SEND_FLUSH | T::SEND_FUA;
    let (able, _) = Recorder::new(MIB, |limits| limits.rotational = true);
    let (unable, _) = Recorder::new(MIB, |limits| {
        limits.max_hw_discard_sectors = 0;
        limits.max_write_zeroes_sectors = 0;
        limits.logical_block_size = 4096;
    });
    let config = |name: &str, barriers| Config { name: name.into(), barriers, ..Config::default() };
    let able = device(config("able", true), able);
    let unable = device(config("unable", false), unable);
    let exports = vec![Export::new("able", able), Export::new("unable", unable)];
    let fixture = Fixture::new(1, exports, Settings::default());
    let client = fixture.client(Wanted::everything("able"));
    assert!(client.info.flags.contains(all | T::ROTATIONAL | T::SEND_CACHE | T::SEND_DF));
    client.disconnect();
    let mut client = fixture.client(Wanted::everything("unable"));
    assert_eq!(client.info.flags, client.info.flags.without(all | T::ROTATIONAL | T::READ_ONLY));
    assert_eq!((client.info.block.minimum, client.info.block.preferred), (1, 4096));
    for (command, length) in [(Command::FLUSH, 0), (Command::TRIM, 4096), (Command::READ, 0)] {
        let reply = client.ask(command, F::EMPTY, 0, length);
        assert_eq!(reply.error, Some(NbdError::Inval), "{command}");
    }
    client.disconnect();
    fixture.stop();
}

#[test]
fn a_disconnect_is_honoured_after_everything_before_it_and_nothing_behind_it() {
    for (_, wanted) in every_mode() {
        let (driver, record) = Recorder::new(MIB, |_| ());
        let fixture = Fixture::on(driver);
        let mut client = fixture.client(wanted);
        record.hold(true);
        let mut out = Vec::new();
        for i in 0..20 {
            client.encode(Request::new(Command::WRITE, 0, i * 4096, 4096), &[1; 4096], &mut out);
        }
        client.encode(Request::new(Command::FLUSH, 0, 0, 0), &[], &mut out);
        client.encode(Request::new(Command::DISC, 0, 0, 0), &[], &mut out);
        let before = out.len();
        client.encode(Request::new(Command::WRITE, 0, 0, 4096), &[9; 4096], &mut out);
        client.stream.write_all(&out).unwrap();
        assert!(before < out.len());
        wait_until("the writes", || !record.ops().is_empty());
        record.hold(false);
        while client.receive().is_ok() {}
        assert_eq!(client.order.len(), 21, "20 writes and a flush are answered");
        fixture.wait_for_connections(0);
        assert_eq!(fixture.client(Wanted::nothing("sda")).read(0, 4096), [1; 4096]);
        fixture.stop();
    }
}

#[test]
fn a_client_that_disconnects_and_does_not_wait_has_its_writes_done() {
    let (driver, record) = Recorder::new(16 * MIB, |_| ());
    let fixture = Fixture::on(driver);
    let mut client = fixture.client(Wanted::everything("sda"));
    record.hold(true);
    let mut out = Vec::new();
    // More than the queue takes at once, so that some are still undecoded when the client goes.
    for i in 0..600 {
        client.encode(Request::new(Command::WRITE, 0, i * 512, 512), &[1; 512], &mut out);
    }
    client.encode(Request::new(Command::DISC, 0, 0, 0), &[], &mut out);
    client.stream.write_all(&out).unwrap();
    drop(client);
    wait_until("the first writes", || !record.ops().is_empty());
    record.hold(false);
    fixture.wait_for_connections(0);
    let mut client = fixture.client(Wanted::everything("sda"));
    assert!(client.read(0, 600 * 512).iter().all(|byte| *byte == 1));
    client.disconnect();
    fixture.stop();
}

#[test]
fn a_client_that_only_closes_its_sending_side_gets_its_answers() {
    let (driver, record) = Recorder::new(MIB, |_| ());
    let fixture = Fixture::on(driver);
    let mut client = fixture.client(Wanted::everything("sda"));
    record.hold(true);
    let cookie = client.send(Request::new(Command::READ, 0, 0, 4096), &[]);
    client.stream.shutdown(std::net::Shutdown::Write).unwrap();
    wait_until("the read", || !record.ops().is_empty());
    record.hold(false);
    client.wait(cookie).ok();
    assert_eq!(client.receive(), Err("closed".into()));
    fixture.stop();
}

#[test]
fn connections_spread_over_the_reactors_and_each_gets_its_own_answers() {
    let fixture = Fixture::on(ram(64 * MIB));
    let mut clients: Vec<Client> =
        (0..16).map(|_| fixture.client(Wanted::everything("sda"))).collect();
    fixture.wait_for_connections(16);
    for (i, client) in clients.iter_mut().enumerate() {
        client.write(i as u64 * MIB, &pattern(i as u64, 4096)).ok();
    }
    for (i, client) in clients.iter_mut().enumerate() {
        let other = (i as u64 + 5) % 16;
        assert!(client.read(other * MIB, 4096) == pattern(other, 4096));
    }
    // Each reactor's lane has served its half.
    clients.into_iter().for_each(|client| drop(client.disconnect()));
    fixture.wait_for_connections(0);
    fixture.stop();
}

#[test]
fn one_connection_too_many_is_closed_at_once_and_a_place_that_falls_free_is_given_away() {
    let settings = Settings { connections_max: 3, ..Settings::default() };
    let fixture = Fixture::new(2, vec![Export::new("sda", named("sda", MIB))], settings);
    let mut clients: Vec<Client> = (0..3).map(|_| fixture.client(Wanted::nothing("sda"))).collect();
    let mut fourth = fixture.socket();
    assert_eq!(fourth.read(&mut [0; 64]).unwrap(), 0, "closed without a greeting");
    clients.pop().unwrap().disconnect();
    fixture.wait_for_connections(2);
    let client = fixture.client(Wanted::nothing("sda"));
    client.disconnect();
    clients.into_iter().for_each(|client| drop(client.disconnect()));
    fixture.stop();
}

#[test]
fn half_a_handshake_is_cut_off_when_its_time_is_up_and_others_go_on() {
    let settings = Settings { handshake_timeout_ns: SECOND, ..Settings::default() };
    let fixture = Fixture::new(1, vec![Export::new("sda", named("sda", MIB))], settings);
    let mut worker = fixture.client(Wanted::everything("sda"));
    let mut silent = fixture.socket();
    let mut half = fixture.socket();
    half.write_all(&[0, 0, 0, 3, b'I', b'H', b'A', b'V', b'E']).unwrap();
    fixture.wait_for_connections(3);
    for stream in [&mut silent, &mut half] {
        let mut greeting = [0; 64];
        assert_eq!(stream.read(&mut greeting).unwrap(), 18);
        // The end may come as a reset, as something sent was never looked at.
        assert!(matches!(stream.read(&mut greeting), Ok(0) | Err(_)));
    }
    worker.write(0, &[1; 512]).ok();
    assert_eq!(fixture.server().connections(), 1, "a session has no such limit");
    worker.disconnect();
    fixture.stop();
}

#[test]
fn a_stop_finishes_what_was_received_and_refuses_the_rest() {
    let (driver, record) = Recorder::new(MIB, |_| ());
    let fixture = Fixture::on(driver);
    let mut client = fixture.client(Wanted::everything("sda"));
    let idle = fixture.client(Wanted::everything("sda"));
    let mut half = fixture.socket();
    half.read_exact(&mut [0; 18]).unwrap();
    record.hold(true);
    let before = client.send(Request::new(Command::WRITE, 0, 0, 4096), &[1; 4096]);
    wait_until("the write", || record.ops() == [Op::Write]);
    std::thread::scope(|scope| {
        let stop = scope.spawn(|| fixture.server().stop(20 * SECOND));
        // The idle and the half-shaken are closed first; the busy one is waited for.
        fixture.wait_for_connections(1);
        let after = client.send(Request::new(Command::WRITE, 0, 0, 4096), &[2; 4096]);
        let again = client.send(Request::new(Command::READ, 0, 0, 4096), &[]);
        assert_eq!(client.wait(after).error, Some(NbdError::Shutdown));
        assert_eq!(client.wait(again).error, Some(NbdError::Shutdown));
        record.hold(false);
        client.wait(before).ok();
        assert_eq!(client.receive(), Err("closed".into()));
        assert_eq!(stop.join().unwrap(), 0);
    });
    assert!(UnixStream::connect(&fixture.path).is_err(), "nobody listens any more");
    let mut idle = idle;
    assert_eq!(idle.receive(), Err("closed".into()));
    fixture.stop();
}

#[test]
fn a_stop_is_bounded_whatever_clients_do_and_their_writes_are_finished() {
    let (driver, record) = Recorder::new(MIB, |_| ());
    let fixture = Fixture::on(driver);
    let mut client = fixture.client(Wanted::everything("sda"));
    record.hold(true);
    client.send(Request::new(Command::WRITE, 0, 0, 4096), &[1; 4096]);
    wait_until("the write", || record.ops() == [Op::Write]);
    assert_eq!(fixture.server().stop(SECOND / 10), 1, "one client was cut off");
    fixture.wait_for_connections(0);
    let late = fixture.host.stop(SECOND / 10).unwrap_err();
    assert_eq!((late[0].device.as_str(), late[0].requests), ("sda", 1));
    record.hold(false);
    let start = weir_live::Clock.now();
    wait_until("the end of the write", || fixture.devices[0].stats().in_flight == 0);
    assert!(weir_live::Clock.now().since(start) < 20 * SECOND);
}

#[test]
fn a_stop_flushes_what_was_written() {
    let (driver, record) = Recorder::new(MIB, |_| ());
    let fixture = Fixture::on(driver);
    let mut client = fixture.client(Wanted::everything("sda"));
    client.write(0, &[1; 4096]).ok();
    client.disconnect();
    fixture.stop();
    assert_eq!(record.ops(), [Op::Write, Op::Flush]);
    let (driver, record) = Recorder::new(MIB, |_| ());
    let fixture = Fixture::on(driver);
    *record.status.lock().unwrap() = Some(Status::Medium);
    assert_eq!(fixture.server().stop(SECOND), 0);
    let late = fixture.host.stop(20 * SECOND).unwrap_err();
    assert_eq!(late[0].to_string(), "disk sda: the last flush failed: medium error");
}

#[test]
fn a_map_that_takes_its_time_holds_up_nobody() {
    let (driver, record) = Recorder::new(MIB, |_| ());
    let config = Config { name: "sda".into(), ..Config::default() };
    let exports = vec![Export::new("sda", device(config, driver))];
    let fixture = Fixture::new(1, exports, Settings::default());
    let mut client = fixture.client(Wanted::everything("sda"));
    let mut leaver = fixture.client(Wanted::everything("sda"));
    record.map_held.store(true, std::sync::atomic::Ordering::SeqCst);
    let map = client.send(Request::new(Command::BLOCK_STATUS, 0, 0, MIB), &[]);
    leaver.send(Request::new(Command::BLOCK_STATUS, 0, 0, MIB), &[]);
    client.write(0, &[1; 512]).ok();
    leaver.write(512, &[1; 512]).ok();
    drop(leaver);
    fixture.wait_for_connections(1);
    // A newcomer takes the place of the one who left, and must not get its answer.
    let mut newcomer = fixture.client(Wanted::everything("sda"));
    newcomer.write(0, &[2; 512]).ok();
    record.map_held.store(false, std::sync::atomic::Ordering::SeqCst);
    assert!(!client.wait(map).ok().extents.is_empty());
    newcomer.ask(Command::BLOCK_STATUS, F::EMPTY, 0, MIB).ok();
    client.disconnect();
    newcomer.disconnect();
    fixture.stop();
}

fn listen(server: &Server, text: &str) -> Result<Address, ListenError> {
    server.listen(&text.parse::<Listen>().unwrap(), Scope::All)
}

/// A UNIX address as text.
fn at(path: &Path) -> String {
    format!("unix:{}", path.display())
}

/// The first answer to INFO for each of these exports: the number of its type.
fn answers(path: &Path, names: &[&str]) -> Vec<u32> {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.read_exact(&mut [0; 18]).unwrap();
    stream.write_all(&[0, 0, 0, 3]).unwrap();
    let ask = |name: &&str| {
        let mut bytes = b"IHAVEOPT\0\0\0\x06".to_vec();
        bytes.extend((name.len() as u32 + 6).to_be_bytes());
        bytes.extend((name.len() as u32).to_be_bytes());
        bytes.extend(name.as_bytes());
        bytes.extend([0, 0]);
        stream.write_all(&bytes).unwrap();
        let mut first = None;
        loop {
            let mut header = [0; 20];
            stream.read_exact(&mut header).unwrap();
            let word = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().unwrap());
            stream.read_exact(&mut vec![0; word(16) as usize]).unwrap();
            let first = *first.get_or_insert(word(12));
            // ACK, or an error.
            if word(12) == 1 || word(12) >= 1 << 31 {
                return first;
            }
        }
    };
    names.iter().map(ask).collect()
}

#[test]
fn each_address_has_its_exports_and_each_export_its_clients() {
    let (info, policy, unknown) = (3, 0x8000_0002, 0x8000_0006);
    let own = socket_path();
    let of = |uid: u32| {
        let mut allow = Allow::default();
        allow.push(&format!("uid:{uid}")).unwrap();
        allow
    };
    let me = rustix::process::geteuid().as_raw();
    let export = |name: &str| Export::new(name, named(name, MIB));
    let exports = vec![
        Export { listen: vec![Address::Unix(own.clone())], ..export("own") },
        Export { allow: of(me), ..export("mine") },
        Export { allow: of(me + 1), ..export("others") },
        export("all"),
    ];
    let fixture = Fixture::new(2, exports, Settings::default());
    let named_only = at(&own).parse::<Listen>().unwrap();
    fixture.server().listen(&named_only, Scope::Named).unwrap();
    let names = ["own", "mine", "others", "all", ""];
    // The default is the first that is served there.
    assert_eq!(answers(&fixture.path, &names), [unknown, info, policy, info, info]);
    assert_eq!(answers(&own, &names), [info, unknown, unknown, unknown, info]);
    let mut client = Client::over(UnixStream::connect(&own).unwrap(), Wanted::everything(""));
    client.write(0, &[1; 512]).ok();
    let seen = fixture.server().clients();
    assert_eq!(seen[0].export, "own");
    let pid = std::process::id();
    assert!(seen[0].peer.starts_with(&format!("uid={me} gid=")), "{}", seen[0].peer);
    assert!(seen[0].peer.ends_with(&format!(" pid={pid}")), "{}", seen[0].peer);
    client.disconnect();
    fixture.stop();
}

#[test]
fn a_client_that_an_address_does_not_allow_is_closed_before_a_word() {
    let fixture = Fixture::on(ram(MIB));
    let me = rustix::process::geteuid().as_raw();
    for (allow, expected) in [(format!("uid:{me}"), 18), (format!("uid:{}", me + 1), 0)] {
        let path = socket_path();
        listen(fixture.server(), &format!("{},allow={allow}", at(&path))).unwrap();
        let mut stream = UnixStream::connect(&path).unwrap();
        let read = stream.read(&mut [0; 18]).unwrap();
        assert_eq!(read, expected, "{allow}");
    }
    for (allow, expected) in [("127.0.0.0/8", 18), ("10.0.0.0/8", 0)] {
        let address = listen(fixture.server(), &format!("127.0.0.1:0,allow={allow}")).unwrap();
        let mut stream = TcpStream::connect(address.to_string()).unwrap();
        assert_eq!(stream.read(&mut [0; 18]).unwrap(), expected, "{allow}");
    }
    assert!(fixture.server().wait_until_empty(20 * SECOND));
    fixture.stop();
}

#[test]
fn tcp_addresses_and_sockets_from_elsewhere_are_served_alike() {
    let fixture = Fixture::on(ram(MIB));
    let address = listen(fixture.server(), "127.0.0.1:0").unwrap();
    let Address::Tcp(place) = &address else { panic!("{address}") };
    let error = listen(fixture.server(), &address.to_string()).unwrap_err();
    assert_eq!(error.to_string(), format!("address {address} is in use"));
    let error = listen(fixture.server(), &at(&fixture.path)).unwrap_err();
    assert!(error.to_string().ends_with(".sock is in use"), "{error}");
    // The client speaks over a UNIX socket, so a thread carries bytes for it.
    let tcp = TcpStream::connect(place).unwrap();
    let mut greeting = [0; 18];
    (&tcp).read_exact(&mut greeting).unwrap();
    assert_eq!(&greeting[..8], b"NBDMAGIC");
    drop(tcp);
    let (ours, theirs) = UnixStream::pair().unwrap();
    assert!(fixture.server().adopt(theirs.into(), "a socket pair"));
    let mut client = Client::over(ours, Wanted::everything("sda"));
    client.write(0, &[1; 512]).ok();
    client.disconnect();
    assert!(fixture.server().wait_until_empty(20 * SECOND));
    fixture.stop();
}

#[test]
fn a_socket_file_left_behind_is_replaced_and_one_that_is_used_is_not() {
    let path = socket_path();
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let host = Host::new(1).unwrap();
    let sda = named("sda", MIB);
    host.adopt(&sda).unwrap();
    let server = Server::new(&host, vec![Export::new("sda", sda)], Settings::default()).unwrap();
    listen(&server, &at(&path)).unwrap();
    Client::over(UnixStream::connect(&path).unwrap(), Wanted::nothing("sda")).disconnect();
    drop(server);
    let file = path.with_extension("txt");
    std::fs::write(&file, "not a socket").unwrap();
    let other = Server::new(&host, vec![Export::new("b", named("b", MIB))], Settings::default());
    assert!(listen(&other.unwrap(), &at(&file)).is_err());
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "not a socket");
    std::fs::remove_file(&file).unwrap();
    host.stop(20 * SECOND).unwrap();
    assert!(!path.exists());
}

#[test]
fn a_frozen_device_lets_clients_wait_and_go_on() {
    let fixture = Fixture::on(ram(MIB));
    let mut client = fixture.client(Wanted::everything("sda"));
    client.write(0, &[1; 512]).ok();
    let device = fixture.devices[0].clone();
    for round in 0..20 {
        let frozen = device.freeze();
        let cookies: Vec<u64> = (0..40)
            .map(|i| client.send(Request::new(Command::WRITE, 0, i * 512, 512), &[round; 512]))
            .collect();
        assert_eq!(device.stats().in_flight, 0, "nothing gets in");
        drop(frozen);
        cookies.into_iter().for_each(|cookie| drop(client.wait(cookie).ok()));
    }
    device.reconfigure(|parts| parts.nomerges = 2).unwrap();
    assert_eq!(client.read(0, 512), [19; 512]);
    client.disconnect();
    fixture.stop();
}

/// One byte a second: nothing of a session's length gets by twice.
fn in_group(group: weir_bio::GroupId) -> Classing {
    Classing { group: Some(group), ..Classing::default() }
}

fn one_byte_a_second() -> weir_queue::Caps {
    let rbps = std::num::NonZeroU64::new(1);
    weir_queue::Caps { rbps, ..weir_queue::Caps::default() }
}

#[test]
fn a_cap_holds_back_its_group_alone_and_lets_go_when_it_is_lifted() {
    let fixture = Fixture::on(ram(MIB));
    let groups = Arc::clone(fixture.server().groups());
    let capped = groups.create("tenants/a").unwrap();
    groups.set_caps(capped, one_byte_a_second()).unwrap();
    let mut held = fixture.client(Wanted::everything("sda"));
    let mut free = fixture.client(Wanted::everything("sda"));
    free.read(0, 512);
    let number = fixture.server().clients()[0].number;
    assert_eq!(fixture.server().clients().len(), 2);
    assert!(fixture.server().reclassify(number, in_group(capped)).unwrap());
    wait_until("the client's I/O to count in its group", || {
        held.write(0, &[1; 512]).ok();
        groups.all()[capped.0 as usize].used.ios[1] > 0
    });
    held.read(0, 512);
    let late = held.send(Request::new(Command::READ, 0, 0, 512), &[]);
    for _ in 0..200 {
        free.read(0, 512);
    }
    let used = || groups.all()[capped.0 as usize].used;
    assert_eq!((used().ios[0], used().bytes[0]), (1, 512), "the second one waits");
    groups.set_caps(capped, weir_queue::Caps::default()).unwrap();
    held.wait(late).ok();
    assert_eq!(used().ios[0], 2);
    held.disconnect();
    free.disconnect();
    fixture.stop();
}

#[test]
fn a_stop_waits_for_no_cap() {
    let fixture = Fixture::on(ram(MIB));
    let groups = fixture.server().groups();
    groups.set_caps(weir_bio::GroupId(0), one_byte_a_second()).unwrap();
    let mut client = fixture.client(Wanted::everything("sda"));
    client.read(0, 512);
    client.send(Request::new(Command::READ, 0, 0, 512), &[]);
    fixture.stop();
}

#[test]
fn a_client_is_known_by_its_number_until_it_leaves() {
    let fixture = Fixture::on(ram(MIB));
    let clients: Vec<_> = (0..3).map(|_| fixture.client(Wanted::nothing("sda"))).collect();
    wait_until("three clients", || fixture.server().clients().len() == 3);
    let numbers: Vec<_> = fixture.server().clients().iter().map(|it| it.number).collect();
    clients.into_iter().for_each(|client| drop(client.disconnect()));
    wait_until("nobody", || fixture.server().clients().is_empty());
    let server = fixture.server();
    assert!(!server.reclassify(numbers[0], Classing::default()).unwrap(), "it is gone");
    let unknown = weir_bio::GroupId(7);
    assert!(server.reclassify(numbers[0], in_group(unknown)).is_err());
    fixture.client(Wanted::nothing("sda")).disconnect();
    fixture.stop();
}

#[test]
fn a_client_that_is_dismissed_loses_its_connection_and_no_other_does() {
    let fixture = Fixture::on(ram(MIB));
    let mut dismissed = fixture.client(Wanted::nothing("sda"));
    dismissed.write(0, &[9; 512]).ok();
    let number = fixture.server().clients()[0].number;
    let mut other = fixture.client(Wanted::nothing("sda"));
    other.read(0, 512);
    assert!(fixture.server().dismiss(number));
    dismissed.read_to_end();
    wait_until("one client", || fixture.server().clients().len() == 1);
    assert!(!fixture.server().dismiss(number), "it is gone");
    assert_eq!(other.read(0, 512), [9; 512], "what was answered was done");
    other.disconnect();
    fixture.stop();
}

#[test]
fn a_refused_request_costs_no_allowance_and_a_client_that_hangs_up_gives_its_place_back() {
    let fixture = Fixture::on(ram(MIB));
    let groups = Arc::clone(fixture.server().groups());
    groups.set_caps(weir_bio::GroupId(0), one_byte_a_second()).unwrap();
    let mut client = fixture.client(Wanted::everything("sda"));
    let bad = client.send(Request::new(Command::READ, 0, 0, 0xffff_fe00), &[]);
    assert!(client.wait(bad).error.is_some());
    client.read(0, 512);
    assert_eq!(groups.all()[0].used.ios, [1, 0]);
    for _ in 0..3 {
        client.send(Request::new(Command::READ, 0, 0, 512), &[]);
    }
    drop(client);
    fixture.wait_for_connections(0);
    fixture.stop();
}

#[test]
fn a_client_that_hangs_up_behind_writes_gets_none_of_them_past_its_cap() {
    let fixture = Fixture::on(ram(MIB));
    let groups = Arc::clone(fixture.server().groups());
    let wbps = std::num::NonZeroU64::new(1);
    let caps = weir_queue::Caps { wbps, ..weir_queue::Caps::default() };
    groups.set_caps(weir_bio::GroupId(0), caps).unwrap();
    let mut first = fixture.client(Wanted::everything("sda"));
    first.write(0, &[1; 512]).ok();
    for round in 1..4 {
        let mut client = fixture.client(Wanted::everything("sda"));
        for at in 0..8 {
            client.send(Request::new(Command::WRITE, 0, at * 4096, 4096), &[2; 4096]);
        }
        client.send(Request::new(Command::WRITE_ZEROES, 0, 0, 4096), &[]);
        drop(client);
        fixture.wait_for_connections(1);
        assert_eq!(groups.all()[0].used.ios, [0, 1], "round {round}");
    }
    assert_eq!(first.read(0, 1024), [[1; 512], [0; 512]].concat());
    // A connection that waits in line is not behind those that left.
    groups.set_caps(weir_bio::GroupId(0), weir_queue::Caps::default()).unwrap();
    first.write(0, &[3; 512]).ok();
    fixture.stop();
}

#[test]
fn what_was_let_in_before_its_client_hung_up_is_done() {
    let fixture = Fixture::on(ram(MIB));
    let groups = Arc::clone(fixture.server().groups());
    let mut reader = fixture.client(Wanted::everything("sda"));
    let mut writer = fixture.client(Wanted::everything("sda"));
    for at in 0..64 {
        writer.send(Request::new(Command::WRITE, 0, at * 4096, 4096), &[2; 4096]);
    }
    drop(writer);
    fixture.wait_for_connections(1);
    assert_eq!(groups.all()[0].used.ios, [0, 64]);
    wait_until("the writes to be done", || reader.read(0, 64 * 4096) == [2; 64 * 4096]);
    fixture.stop();
}
