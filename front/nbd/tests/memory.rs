//! The memory of all clients of a server together is bounded, and small clients get on beside those
//! that take all they can get.

mod support;

use std::io::{Read, Write};

use support::*;
use weir_bio::Op;
use weir_front_nbd::{Clients, Export, Settings};
use weir_proto_nbd::client::Wanted;
use weir_proto_nbd::wire::{Command, CommandFlags as F, Request};
use weir_queue::{Config, QueueMode};

const MIB: u64 = 1 << 20;

/// The tests count the memory of the whole process.
static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// Bytes of a connection beside the bound: those it holds without asking, and one receive.
const EACH: u64 = 512 << 10;

/// Bytes that a reactor keeps for the next burst, and its buffers.
const REACTOR: u64 = 24 * MIB;

/// The same of one that has had pieces of all lengths: as much again in slabs.
const REACTOR_WITH_SLABS: u64 = 40 * MIB;

/// Memory that allocators and the test itself add.
const SLACK: u64 = 48 * MIB;

fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap() * 4096
}

/// A disk of 64 MiB whose first half has data, behind a server with this bound.
fn fixture(mode: QueueMode, memory: u64, seconds: u64) -> Fixture {
    let queues = if mode == QueueMode::Mq { 2 } else { 1 };
    let config = Config { name: "sda".into(), mode, queues, ..Config::default() };
    let device = device(config, ram(64 * MIB));
    let settings = Settings {
        memory: memory as usize,
        handshake_timeout_ns: seconds * SECOND,
        ..Settings::default()
    };
    let fixture = Fixture::new(2, vec![Export::new("sda", device)], settings);
    let mut client = fixture.client(Wanted::everything("sda"));
    client.write(0, &pattern(1, 32 << 20)).ok();
    client.disconnect();
    fixture.wait_for_connections(0);
    fixture
}

/// A client that asks for much at once and reads nothing.
fn greedy(fixture: &Fixture, lengths: &[u64]) -> Client {
    let mut client = fixture.client(Wanted::everything("sda"));
    let mut out = Vec::new();
    for length in lengths.iter().cycle().take(100) {
        client.encode(Request::new(Command::READ, 0, 0, *length), &[], &mut out);
    }
    client.stream.write_all(&out).expect("room for headers");
    client
}

fn held(fixture: &Fixture) -> u64 {
    fixture.server().memory().expect("a bound").held
}

#[test]
fn two_hundred_clients_that_ask_for_the_most_and_read_nothing_stay_within_the_bound() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    for (mode, lengths) in [
        (QueueMode::Mq, &[32 * MIB][..]),
        (QueueMode::Mq, &[16 << 10, 40 << 10, MIB]),
        (QueueMode::Sq, &[512, 32 * MIB]),
    ] {
        let bound = 128 * MIB;
        let fixture = fixture(mode, bound, 10);
        let mut worker = fixture.client(Wanted::everything("sda"));
        let before = resident();
        let crowd: Vec<Client> = (0..200).map(|_| greedy(&fixture, lengths)).collect();
        wait_until("much to be held", || held(&fixture) > bound / 2);
        let mut most = 0;
        for round in 0..200 {
            let bytes = pattern(round, 64 << 10);
            worker.write(48 * MIB, &bytes).ok();
            assert!(worker.read(48 * MIB, bytes.len() as u64) == bytes);
            assert!(held(&fixture) <= bound, "{} bytes are drawn", held(&fixture));
            most = most.max(resident().saturating_sub(before));
        }
        let allowed = bound + 201 * EACH + 2 * REACTOR + SLACK;
        println!("{mode:?} {lengths:?}: {} MiB of {} MiB", most / MIB, allowed / MIB);
        assert!(most <= allowed, "{most} bytes are resident for a bound of {bound}");
        drop(crowd);
        fixture.wait_for_connections(1);
        wait_until("everything to be given back", || held(&fixture) == 0);
        assert!(worker.read(0, 32 * MIB) == pattern(1, 32 << 20));
        wait_until("the rest to be given back", || held(&fixture) == 0);
        worker.disconnect();
        fixture.stop();
    }
}

#[test]
fn a_large_request_gets_its_turn_though_clients_before_it_neither_read_nor_send() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let fixture = fixture(QueueMode::Mq, 64 * MIB, 1);
    let mut worker = fixture.client(Wanted::everything("sda"));
    // They take what can be drawn, in requests that are smaller, and then stand in the line.
    let small: Vec<Client> = (0..20).map(|_| greedy(&fixture, &[512 << 10])).collect();
    wait_until("much to be held", || held(&fixture) > 24 * MIB);
    let large: Vec<Client> = (0..3).map(|_| greedy(&fixture, &[32 * MIB])).collect();
    wait_until("the turn to be taken", || held(&fixture) > 48 * MIB);
    let senders: Vec<Client> = (0..3)
        .map(|_| {
            let mut client = fixture.client(Wanted::everything("sda"));
            client.send(Request::new(Command::WRITE, 0, 0, 32 * MIB), &[1; 1000]);
            client
        })
        .collect();
    for round in 0..3 {
        let bytes = pattern(round, 32 << 20);
        worker.write(32 * MIB, &bytes).ok();
        assert!(worker.read(32 * MIB, 32 * MIB) == bytes, "round {round}");
        assert!(held(&fixture) <= 64 * MIB);
    }
    // Those that hold only what they drew lose nothing.
    assert!(fixture.server().connections() > 6);
    drop((small, large, senders));
    fixture.wait_for_connections(1);
    wait_until("everything to be given back", || held(&fixture) == 0);
    worker.disconnect();
    fixture.stop();
}

#[test]
fn requests_behind_a_read_that_waits_for_memory_are_all_answered() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    // More than the server receives at once, and more than it keeps undecoded.
    const FLUSHES: usize = 40_000;
    let config = Config { name: "sda".into(), ..Config::default() };
    let device = device(config, ram(64 * MIB));
    let exports = vec![Export::new("sda", device)];
    // New memory comes in turns, a little in each: four reads of 24 MiB take many.
    let fixture = Fixture::new(1, exports, Settings::default());
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                let mut client = fixture.client(Wanted::everything("sda"));
                let mut out = Vec::new();
                let read = Request::new(Command::READ, 0, 0, 24 * MIB);
                client.encode(read, &[], &mut out);
                for _ in 0..FLUSHES {
                    client.encode(Request::new(Command::FLUSH, 0, 0, 0), &[], &mut out);
                }
                let mut stream = client.stream.try_clone().expect("a descriptor");
                let sender = std::thread::spawn(move || stream.write_all(&out));
                let answered = client.disconnect_behind(sender);
                assert_eq!(answered, FLUSHES + 1);
            });
        }
    });
    fixture.wait_for_connections(0);
    fixture.stop();
}

#[test]
fn the_turn_stays_with_a_client_whose_device_is_slow() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let (driver, record) = Recorder::new(64 * MIB, |_| ());
    let config = Config { name: "sda".into(), queues: 2, ..Config::default() };
    let settings =
        Settings { memory: 64 << 20, handshake_timeout_ns: SECOND / 10, ..Settings::default() };
    let fixture = Fixture::new(2, vec![Export::new("sda", device(config, driver))], settings);
    let mut clients = [0, 1].map(|_| fixture.client(Wanted::everything("sda")));
    record.hold(true);
    let read = Request::new(Command::READ, 0, 0, 32 * MIB);
    let cookies = clients.each_mut().map(|client| client.send(read, &[]));
    let reads = || record.ops().iter().filter(|op| **op == Op::Read).count();
    wait_until("the first", || reads() > 0);
    // Far longer than the turn may be kept by a client.
    let start = std::time::Instant::now();
    wait_until("half a second", || start.elapsed().as_millis() > 500);
    assert_eq!(fixture.server().connections(), 2);
    record.hold(false);
    for (client, cookie) in clients.iter_mut().zip(cookies) {
        assert_eq!(client.wait(cookie).ok().data.len(), 32 << 20);
    }
    clients.into_iter().for_each(|client| drop(client.disconnect()));
    fixture.wait_for_connections(0);
    assert_eq!(held(&fixture), 0);
    fixture.stop();
}

#[test]
fn io_that_outlives_its_client_is_paid_for_until_the_device_has_ended_it() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let (driver, record) = Recorder::new(64 * MIB, |_| ());
    let fixture = Fixture::on(driver);
    record.hold(true);
    for count in 1..=20 {
        let mut client = fixture.client(Wanted::everything("sda"));
        client.send(Request::new(Command::WRITE, 0, 0, 4 << 20), &vec![1; 4 << 20]);
        wait_until("the write", || fixture.devices[0].stats().in_flight > count - 1);
        drop(client);
        fixture.wait_for_connections(0);
        wait_until("the client to be gone", || held(&fixture) == count * 4 * MIB);
    }
    record.hold(false);
    wait_until("the device to be done", || held(&fixture) == 0);
    fixture.stop();
}

#[test]
fn no_client_is_let_in_while_orphaned_io_takes_all_memory() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let (driver, record) = Recorder::new(64 * MIB, |_| ());
    let settings = Settings { memory: 64 << 20, ..Settings::default() };
    let device = device(Config { name: "sda".into(), ..Config::default() }, driver);
    let fixture = Fixture::new(2, vec![Export::new("sda", device)], settings);
    record.hold(true);
    // The turn of one large request is not theirs: 31 MiB are.
    for count in 1..=8 {
        let mut client = fixture.client(Wanted::everything("sda"));
        client.send(Request::new(Command::WRITE, 0, 0, 4 << 20), &vec![1; 4 << 20]);
        wait_until("the write", || fixture.devices[0].stats().in_flight > count - 1);
        drop(client);
        fixture.wait_for_connections(0);
        wait_until("the client to be gone", || held(&fixture) == count * 4 * MIB);
    }
    assert_eq!(fixture.socket().read(&mut [0; 1]).expect("an end"), 0, "a newcomer is refused");
    record.hold(false);
    wait_until("the device to be done", || held(&fixture) == 0);
    fixture.client(Wanted::everything("sda")).disconnect();
    fixture.stop();
}

#[test]
fn a_client_that_leaves_at_any_point_leaves_the_memory() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let fixture = fixture(QueueMode::Mq, 64 * MIB, 10);
    let large = Request::new(Command::WRITE, 0, 0, 8 * MIB);
    for (_, wanted) in every_mode() {
        // In a payload, with replies unread, with a request that waits, with questions open.
        let mut sends = fixture.client(wanted.clone());
        sends.send(large, &vec![1; 3 << 20]);
        let unread: Vec<Client> = (0..8).map(|_| greedy(&fixture, &[4 * MIB])).collect();
        let mut asks = fixture.client(wanted.clone());
        (0..200).for_each(|_| _ = asks.send(Request::new(Command::READ, 0, 1, 1), &[]));
        let mut half = fixture.client(wanted);
        half.send(Request::new(Command::READ, 0, 0, 32 * MIB), &[]);
        half.stream.shutdown(std::net::Shutdown::Write).unwrap();
        wait_until("much to be held", || held(&fixture) > 16 * MIB);
        drop((sends, unread, asks, half));
        fixture.wait_for_connections(0);
        wait_until("everything to be given back", || held(&fixture) == 0);
    }
    let mut client = fixture.client(Wanted::everything("sda"));
    assert_eq!(client.ask(Command::READ, F::EMPTY, 0, 32 * MIB).ok().data.len(), 32 << 20);
    client.disconnect();
    fixture.stop();
}

#[test]
fn clients_that_keep_one_piece_of_each_slab_keep_no_more_than_they_hold() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    const REACTORS: usize = 4;
    const PIECE: u64 = 256 << 10;
    const OWED: u64 = 24 * MIB;
    let config = Config { name: "sda".into(), queues: 4, ..Config::default() };
    let device = device(config, ram(64 * MIB));
    let settings = Settings { memory: 512 << 20, ..Settings::default() };
    let fixture = Fixture::new(REACTORS, vec![Export::new("sda", device)], settings);
    let mut client = fixture.client(Wanted::everything("sda"));
    client.write(0, &pattern(1, 32 << 20)).ok();
    client.disconnect();
    fixture.wait_for_connections(0);
    let before = resident();
    // Each goes to the reactor with the fewest, so the eight of one follow each other by fours.
    let mut clients: Vec<Option<Client>> =
        (0..8 * REACTORS).map(|_| Some(fixture.client(Wanted::everything("sda")))).collect();
    let reads = || fixture.devices[0].stats().directions[0].ios;
    for reactor in 0..REACTORS {
        let of_reactor = || (reactor..8 * REACTORS).step_by(REACTORS);
        // One piece for each of them in turn, so that a slab has one of each.
        for _ in 0..OWED / PIECE {
            for number in of_reactor() {
                let count = reads();
                let client = clients[number].as_mut().expect("it is there");
                client.send(Request::new(Command::READ, 0, 0, PIECE), &[]);
                wait_until("the read", || reads() > count);
            }
        }
        assert!(resident().saturating_sub(before) > 7 * OWED, "what it is all about");
        of_reactor().skip(1).for_each(|number| clients[number] = None);
        fixture.wait_for_connections(clients.iter().flatten().count());
    }
    let allowed = held(&fixture) + REACTORS as u64 * REACTOR_WITH_SLABS / 4 + SLACK;
    wait_until("the rest to be the system's", || resident().saturating_sub(before) <= allowed);
    assert!(held(&fixture) > REACTORS as u64 * (OWED - MIB), "{} bytes", held(&fixture));
    drop(clients);
    fixture.wait_for_connections(0);
    fixture.stop();
}

#[test]
fn memory_of_io_that_outlived_its_client_goes_back_though_others_never_pause() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let (driver, record) = Recorder::new(64 * MIB, |_| ());
    let slow = device(Config { name: "slow".into(), ..Config::default() }, driver);
    let sda = device(Config { name: "sda".into(), ..Config::default() }, ram(64 * MIB));
    let settings = Settings { memory: 256 << 20, ..Settings::default() };
    let exports = vec![Export::new("slow", slow), Export::new("sda", sda)];
    let fixture = Fixture::new(1, exports, settings);
    let mut worker = fixture.client(Wanted::everything("sda"));
    worker.write(0, &pattern(1, 64 << 10)).ok();
    let before = resident();
    record.hold(true);
    for count in 1..=32 {
        let mut client = fixture.client(Wanted::everything("slow"));
        client.send(Request::new(Command::WRITE, 0, 0, 4 << 20), &vec![1; 4 << 20]);
        wait_until("the write", || fixture.devices[0].stats().in_flight > count - 1);
        drop(client);
        fixture.wait_for_connections(1);
    }
    assert!(resident().saturating_sub(before) > 128 * MIB, "what it is all about");
    record.hold(false);
    wait_until("the device to be done", || held(&fixture) == 0);
    // The rest is what is kept for the next burst.
    wait_until("the rest to be the system's", || {
        worker.read(0, 4096);
        resident().saturating_sub(before) < REACTOR_WITH_SLABS
    });
    worker.disconnect();
    fixture.stop();
}

#[test]
fn messages_around_the_length_of_a_piece_and_of_a_slab_are_whole() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let fixture = fixture(QueueMode::Mq, 64 * MIB, 10);
    let mut client = fixture.client(Wanted::everything("sda"));
    for around in [128 << 10, 256 << 10, 512 << 10, 2 * MIB] {
        for by in [-4096, -512, -1, 0, 1, 512, 4096] {
            let length = around.wrapping_add_signed(by);
            for at in [0, 1, 511, 4096] {
                let bytes = pattern(length + at, length as usize);
                client.write(at, &bytes).ok();
                assert!(client.read(at, length) == bytes, "{length} at {at}");
            }
        }
    }
    client.disconnect();
    fixture.wait_for_connections(0);
    wait_until("everything to be given back", || held(&fixture) == 0);
    fixture.stop();
}

#[test]
fn long_requests_that_fail_leave_the_memory() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let (driver, record) = Recorder::new(64 * MIB, |_| ());
    let fixture = Fixture::on(driver);
    let mut client = fixture.client(Wanted::everything("sda"));
    let before = resident();
    *record.status.lock().unwrap() = Some(weir_bio::Status::Medium);
    let bytes = pattern(1, 8 << 20);
    for _ in 0..32 {
        assert!(client.write(0, &bytes).error.is_some());
        let read = client.ask(Command::READ, F::EMPTY, 1, 8 * MIB - 1);
        assert!(read.error.is_some() && read.data.is_empty());
    }
    *record.status.lock().unwrap() = None;
    client.write(0, &bytes).ok();
    assert!(client.read(0, 8 * MIB) == bytes);
    wait_until("everything to be given back", || held(&fixture) == 0);
    assert!(resident().saturating_sub(before) <= 2 * REACTOR + SLACK);
    client.disconnect();
    fixture.stop();
}
