//! Places for connections: bounded for each peer, and made for a newcomer by those that do nothing.

mod support;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};

use rustix::net::{AddressFamily, SocketType};
use support::*;
use weir_front_nbd::{Address, Export, Scope, Settings};
use weir_proto_nbd::client::Wanted;
use weir_proto_nbd::wire::{Command, Request};
use weir_queue::Config;

const MIB: u64 = 1 << 20;

/// A server on a UNIX socket and a port of its own; the port.
fn fixture(settings: Settings) -> (Fixture, u16) {
    let device = device(Config { name: "sda".into(), ..Config::default() }, ram(MIB));
    let fixture = Fixture::new(2, vec![Export::new("sda", device)], settings);
    let local = Address::Tcp("127.0.0.1:0".into());
    let bound = fixture.server().listen(&local.into(), Scope::All).expect("a free port");
    let Address::Tcp(place) = bound else { panic!("no port") };
    (fixture, place.rsplit(':').next().unwrap().parse().unwrap())
}

/// A connection from one of the addresses of this machine.
fn from(last: u8, port: u16) -> TcpStream {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    let own = SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, last), 0);
    rustix::net::bind(&socket, &own).unwrap();
    rustix::net::connect(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Whether the server greets.
fn is_greeted(stream: &mut TcpStream) -> bool {
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting).is_ok()
}

/// Goes through the handshake in the oldest way.
fn open(stream: &mut TcpStream) {
    stream.write_all(&3_u32.to_be_bytes()).unwrap();
    let export_name = [&b"IHAVEOPT"[..], &1_u32.to_be_bytes(), &3_u32.to_be_bytes(), b"sda"];
    stream.write_all(&export_name.concat()).unwrap();
    stream.read_exact(&mut [0; 10]).unwrap();
}

fn is_closed(stream: &mut TcpStream) -> bool {
    !matches!(stream.read(&mut [0; 64]), Ok(1..))
}

#[test]
fn one_peer_has_a_part_of_the_places_and_others_find_some() {
    let settings = Settings { connections_per_peer: 3, ..Settings::default() };
    let (fixture, port) = fixture(settings);
    let mut ours: Vec<TcpStream> = (0..3).map(|_| from(1, port)).collect();
    assert!(ours.iter_mut().all(is_greeted));
    assert!(!is_greeted(&mut from(1, port)), "a fourth of one address");
    assert!(is_greeted(&mut from(2, port)), "another address");
    let local = fixture.client(Wanted::everything("sda"));
    ours.pop();
    fixture.wait_for_connections(3);
    let mut again = from(1, port);
    assert!(is_greeted(&mut again), "a place that fell free");
    local.disconnect();
    drop((ours, again));
    fixture.wait_for_connections(0);
    fixture.stop();
}

#[test]
fn the_oldest_half_open_connection_makes_room() {
    let settings =
        Settings { connections_max: 4, idle_least_ns: u64::MAX / 2, ..Settings::default() };
    let (fixture, port) = fixture(settings);
    let mut client = fixture.client(Wanted::everything("sda"));
    let mut half: Vec<TcpStream> = (0..3).map(|_| from(1, port)).collect();
    assert!(half.iter_mut().all(is_greeted));
    // A handshake that has just begun is let be, so the first tries may be in vain.
    let mut newcomer = from(2, port);
    while !is_greeted(&mut newcomer) {
        newcomer = from(2, port);
    }
    assert!(is_closed(&mut half[0]), "the oldest");
    open(&mut half[1]);
    open(&mut half[2]);
    open(&mut newcomer);
    client.write(0, &[1; 512]).ok();
    assert_eq!(fixture.server().connections(), 4);
    drop((half, newcomer));
    client.disconnect();
    fixture.wait_for_connections(0);
    fixture.stop();
}

#[test]
fn a_client_that_did_something_not_long_ago_keeps_its_place() {
    let settings =
        Settings { connections_max: 3, idle_least_ns: u64::MAX / 2, ..Settings::default() };
    let (fixture, port) = fixture(settings);
    let mut clients: Vec<TcpStream> = (0..3).map(|_| from(1, port)).collect();
    assert!(clients.iter_mut().all(is_greeted));
    clients.iter_mut().for_each(open);
    // One after the other: each is refused when all reactors have looked.
    assert!((0..3).all(|_| !is_greeted(&mut from(2, port))));
    assert_eq!(fixture.server().connections(), 3);
    drop(clients);
    fixture.wait_for_connections(0);
    fixture.stop();
}

#[test]
fn a_client_with_something_under_way_is_not_idle() {
    let (driver, record) = Recorder::new(MIB, |_| ());
    let device = device(Config { name: "sda".into(), ..Config::default() }, driver);
    let settings = Settings { connections_max: 4, idle_least_ns: 1, ..Settings::default() };
    let fixture = Fixture::new(2, vec![Export::new("sda", device)], settings);
    let local = Address::Tcp("127.0.0.1:0".into());
    let bound = fixture.server().listen(&local.into(), Scope::All).expect("a free port");
    let port: u16 = bound.to_string().rsplit(':').next().unwrap().parse().unwrap();
    let client = || fixture.client(Wanted::nothing("sda"));
    // Each did something before the next one came: the last is the least idle.
    let mut unread = client();
    let read = Request::new(Command::READ, 0, 0, MIB);
    let replies: Vec<u64> = (0..16).map(|_| unread.send(read, &[])).collect();
    let is_answered = || fixture.devices[0].stats().in_flight == 0;
    wait_until("the replies", || record.ops().len() >= replies.len() && is_answered());
    record.hold(true);
    let mut waits = client();
    let before = record.ops().len();
    let read = waits.send(Request::new(Command::READ, 0, 0, 512), &[]);
    wait_until("the read", || record.ops().len() > before);
    let mut sends = client();
    let write = sends.send(Request::new(Command::WRITE, 0, 0, 4096), &[1; 1000]);
    let mut idle = client();
    let mut newcomer = from(2, port);
    assert!(is_greeted(&mut newcomer), "room was made");
    idle.read_to_end();
    record.hold(false);
    assert_eq!(waits.wait(read).ok().data.len(), 512);
    sends.stream.write_all(&[1; 3096]).expect("the rest of the payload");
    sends.wait(write).ok();
    for reply in replies {
        assert_eq!(unread.wait(reply).ok().data.len(), MIB as usize);
    }
    drop((unread, waits, sends, idle, newcomer));
    fixture.wait_for_connections(0);
    fixture.stop();
}

#[test]
fn of_the_peer_with_the_most_places_the_idlest_client_makes_room() {
    let (driver, record) = Recorder::new(MIB, |_| ());
    let device = device(Config { name: "sda".into(), ..Config::default() }, driver);
    let settings = Settings { connections_max: 5, idle_least_ns: 1, ..Settings::default() };
    let fixture = Fixture::new(2, vec![Export::new("sda", device)], settings);
    let local = Address::Tcp("127.0.0.1:0".into());
    let bound = fixture.server().listen(&local.into(), Scope::All).expect("a free port");
    let port: u16 = bound.to_string().rsplit(':').next().unwrap().parse().unwrap();
    // One that has a single connection, and is the idlest of all.
    let mut single = from(9, port);
    assert!(is_greeted(&mut single));
    open(&mut single);
    let mut many: Vec<Client> = (0..4).map(|_| fixture.client(Wanted::nothing("sda"))).collect();
    fixture.wait_for_connections(5);
    // The first has a request under way, and the second did something last: it was refused.
    record.hold(true);
    let cookie = many[0].send(Request::new(Command::READ, 0, 0, 512), &[]);
    wait_until("the read", || !record.ops().is_empty());
    many[1].call(Request::new(Command::READ, 0, MIB, 1), &[]);
    let mut newcomer = from(2, port);
    assert!(is_greeted(&mut newcomer), "room was made");
    open(&mut newcomer);
    many[2].read_to_end();
    record.hold(false);
    assert_eq!(many[0].wait(cookie).ok().data.len(), 512);
    // Three of one peer, one each of two others: the next of those gets the fourth's place too.
    let mut next = from(2, port);
    assert!(is_greeted(&mut next));
    open(&mut next);
    many[3].read_to_end();
    // Two, two and one: none has more than a newcomer would.
    assert!(!is_greeted(&mut from(2, port)));
    assert_eq!(fixture.server().connections(), 5);
    drop((single, newcomer, next, many));
    fixture.wait_for_connections(0);
    fixture.stop();
}
