//! Clients that break off, send garbage, ask for too much or never listen. Meanwhile another client
//! works, and afterwards descriptors and connections are where they were.

mod support;

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use support::*;
use weir_bio::{Limits, Op, Prng};
use weir_front_nbd::{Export, Settings};
use weir_proto_nbd::client::Wanted;
use weir_proto_nbd::wire::{Command, CommandFlags as F, OptionCode, Request, put_option};
use weir_queue::{
    Config, Driver, DriverError, DriverQueue, EXTENTS_MAX, Extent, QueueMode, Queues,
};

const MIB: u64 = 1 << 20;

/// One test at a time: they count the descriptors of the whole process.
static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// Runs `attack` beside a client that writes and reads, on both queue paths, and holds everything
/// against what it was before.
fn beside_a_worker(attack: impl Fn(&Fixture) + Sync) {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    for mode in [QueueMode::Mq, QueueMode::Sq] {
        let queues = if mode == QueueMode::Mq { 2 } else { 1 };
        let config = Config { name: "sda".into(), mode, queues, ..Config::default() };
        let device = device(config, ram(64 * MIB));
        let settings = Settings { handshake_timeout_ns: SECOND, ..Settings::default() };
        let fixture = Fixture::new(2, vec![Export::new("sda", device)], settings);
        let workers = [0, 1].map(|_| fixture.client(Wanted::everything("sda")));
        fixture.wait_for_connections(2);
        let before = descriptors();
        let (over, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for (number, mut worker) in workers.into_iter().enumerate() {
                let (over, rounds) = (&over, &rounds);
                scope.spawn(move || {
                    let base = (32 + number as u64) * MIB;
                    let mut round = 0;
                    while !over.load(Ordering::SeqCst) || round < 10 {
                        let bytes = pattern(round, 8192);
                        worker.write(base, &bytes).ok();
                        assert!(worker.read(base, 8192) == bytes);
                        round += 1;
                    }
                    rounds.fetch_add(round, Ordering::SeqCst);
                    worker.disconnect();
                });
            }
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                attack(&fixture);
                fixture.wait_for_connections(2);
            }));
            over.store(true, Ordering::SeqCst);
            outcome.unwrap();
        });
        assert!(rounds.into_inner() >= 20);
        fixture.wait_for_connections(0);
        wait_until("descriptors to be closed", || descriptors() <= before - 4);
        let requests = fixture.devices[0].stats().in_flight;
        assert_eq!(requests, 0, "requests are left over");
        fixture.stop();
    }
}

#[test]
fn a_client_that_vanishes_in_the_middle_of_a_request_leaves_nothing_behind() {
    beside_a_worker(|fixture| {
        for (_, wanted) in every_mode() {
            for keep in [1, 27, 28, 40, 4000, 100_000] {
                let mut client = fixture.client(wanted.clone());
                let mut out = Vec::new();
                let request = Request::new(Command::WRITE, 0, 0, 200_000 / 512 * 512);
                client.encode(request, &vec![1; 200_000 / 512 * 512], &mut out);
                client.stream.write_all(&out[..keep]).unwrap();
                drop(client);
            }
        }
    });
}

#[test]
fn a_client_that_vanishes_in_the_middle_of_a_reply_leaves_nothing_behind() {
    beside_a_worker(|fixture| {
        for (_, wanted) in every_mode() {
            for length in [4096, 256 << 10, 4 << 20] {
                let mut client = fixture.client(wanted.clone());
                client.write(0, &pattern(1, 4 << 20)).ok();
                for _ in 0..40 {
                    client.send(Request::new(Command::READ, 0, 0, length), &[]);
                }
                client.stream.read_exact(&mut [0; 1000]).unwrap();
                drop(client);
            }
        }
    });
}

#[test]
fn a_client_that_vanishes_while_the_device_works_has_its_writes_finished() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let (driver, record) = Recorder::new(MIB, |_| ());
    let fixture = Fixture::on(driver);
    let before = descriptors();
    record.hold(true);
    for i in 0..10 {
        let mut client = fixture.client(Wanted::everything("sda"));
        client.send(Request::new(Command::WRITE, 0, i * 4096, 4096), &[1; 4096]);
        client.send(Request::new(Command::TRIM, 0, MIB / 2, 4096).with(F::FUA), &[]);
        wait_until("both", || record.ops().len() == 2 * (i as usize + 1));
        drop(client);
    }
    fixture.wait_for_connections(0);
    wait_until("descriptors to be closed", || descriptors() <= before);
    assert_eq!(fixture.devices[0].stats().in_flight, 20);
    record.hold(false);
    wait_until("the orphans' I/O to end", || fixture.devices[0].stats().in_flight == 0);
    let mut client = fixture.client(Wanted::everything("sda"));
    assert!(client.read(0, 40960).iter().all(|byte| *byte == 1));
    client.disconnect();
    fixture.stop();
}

#[test]
fn a_client_that_hears_nothing_has_its_writes_done_beyond_what_one_round_takes_in() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let (driver, record) = Recorder::new(MIB, |_| ());
    let fixture = Fixture::on(driver);
    let mut client = fixture.client(Wanted::nothing("sda"));
    client.stream.shutdown(Shutdown::Read).expect("a socket");
    // One receive that takes three rounds. The first answers cannot be sent, so the server knows in
    // the second that the client is gone.
    let mut bytes = Vec::new();
    for _ in 0..3000 {
        client.encode(Request::new(Command::FLUSH, 0, 0, 0), &[], &mut bytes);
    }
    client.encode(Request::new(Command::WRITE, 0, 4096, 512), &[7; 512], &mut bytes);
    client.stream.write_all(&bytes).expect("the server takes it");
    drop(client);
    fixture.wait_for_connections(0);
    wait_until("the write", || record.ops().contains(&Op::Write));
    assert_eq!(fixture.client(Wanted::nothing("sda")).read(4096, 512), [7; 512]);
    fixture.stop();
}

#[test]
fn garbage_ends_the_connection_in_the_handshake_and_in_the_session() {
    let seed = 77;
    println!("seed {seed}");
    beside_a_worker(|fixture| {
        let mut prng = Prng::new(seed);
        for round in 0..60 {
            let garbage = pattern(prng.next(), 1 + prng.below(5000) as usize);
            let mut socket = fixture.socket();
            if round % 2 == 0 {
                // Right flags, and then nonsense.
                socket.write_all(&[0, 0, 0, 3]).unwrap();
            }
            // It may be closed before all of it is sent.
            let _ = socket.write_all(&garbage);
            let _ = socket.shutdown(Shutdown::Write);
            while matches!(socket.read(&mut [0; 4096]), Ok(1..)) {}
        }
        for (_, wanted) in every_mode() {
            for _ in 0..20 {
                let mut client = fixture.client(wanted.clone());
                let garbage = pattern(prng.next(), 32 + prng.below(5000) as usize);
                let _ = client.stream.write_all(&garbage);
                client.read_to_end();
            }
        }
    });
}

#[test]
fn a_length_of_four_gigabytes_is_answered_or_closed_and_costs_nothing() {
    beside_a_worker(|fixture| {
        for (mode, wanted) in every_mode() {
            for (command, flags, length) in [
                (Command::READ, F::EMPTY, u64::from(u32::MAX)),
                (Command::READ, F::EMPTY, 1 << 31),
                (Command::TRIM, F::EMPTY, u64::from(u32::MAX)),
                (Command::WRITE_ZEROES, F::FUA, 0xffff_fe00),
                (Command::CACHE, F::EMPTY, 0xffff_fe00),
                (Command(0xffff), F::FUA, u64::from(u32::MAX)),
            ] {
                let mut client = fixture.client(wanted.clone());
                let reply = client.ask(command, flags, 0, length);
                assert!(reply.error.is_some(), "{command} of {length} in {mode:?}");
                assert_eq!(client.read(0, 512).len(), 512, "the stream goes on");
                client.disconnect();
            }
            let mut client = fixture.client(wanted);
            let length = u64::from(u32::MAX);
            client.send(Request::new(Command::WRITE, 0, 0, length), &[]);
            // The error may come first, and then the end does.
            client.read_to_end();
        }
    });
}

#[test]
fn offsets_at_the_end_of_all_numbers_do_not_overflow() {
    beside_a_worker(|fixture| {
        for (_, wanted) in every_mode() {
            let mut client = fixture.client(wanted);
            for at in [u64::MAX, u64::MAX - 511, 1 << 63, (1 << 63) - 512] {
                for length in [512, 1 << 20] {
                    assert!(client.ask(Command::READ, F::EMPTY, at, length).error.is_some());
                    assert!(client.ask(Command::TRIM, F::EMPTY, at, length).error.is_some());
                    let request = Request::new(Command::WRITE, 0, at, length);
                    assert!(client.call(request, &vec![0; length as usize]).error.is_some());
                }
            }
            client.disconnect();
        }
    });
}

#[test]
fn ten_thousand_options_end_the_handshake() {
    beside_a_worker(|fixture| {
        for read in [true, false] {
            let mut socket = fixture.socket();
            let mut out = vec![0, 0, 0, 3];
            for _ in 0..10_000 {
                put_option(&mut out, OptionCode::LIST, |_| ());
            }
            let mut sender = socket.try_clone().unwrap();
            std::thread::scope(|scope| {
                // It is closed long before the last option, or never taken.
                scope.spawn(move || sender.write_all(&out).is_err());
                if read {
                    while matches!(socket.read(&mut [0; 4096]), Ok(1..)) {}
                } else {
                    // Nothing is read: the handshake's time is up some day.
                    fixture.wait_for_connections(2);
                }
            });
        }
    });
}

#[test]
fn a_client_that_never_reads_its_replies_is_held_back_and_holds_up_nobody() {
    beside_a_worker(|fixture| {
        let mut client = fixture.client(Wanted::nothing("sda"));
        client.write(0, &pattern(1, 4 << 20)).ok();
        let before = resident();
        let mut out = Vec::new();
        for _ in 0..100_000 {
            client.encode(Request::new(Command::READ, 0, 0, 1 << 20), &[], &mut out);
        }
        let sent = send_until_stuck(&mut client.stream, &out);
        assert!(sent < out.len(), "the server takes requests without end");
        let grown = resident().saturating_sub(before);
        assert!(grown < 160 << 20, "{grown} bytes are held for a client that does not read");
        // It is not lost: once it reads, it gets what it asked for.
        let mut header = [0; 16];
        client.stream.read_exact(&mut header).unwrap();
        assert_eq!(header[..8], [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0]);
        let mut block = vec![0; 1 << 20];
        client.stream.read_exact(&mut block).unwrap();
        assert!(block == pattern(1, 4 << 20)[..1 << 20]);
    });
}

#[test]
fn errors_are_not_hoarded_for_a_client_that_never_reads() {
    beside_a_worker(|fixture| {
        let mut client = fixture.client(Wanted::everything("sda"));
        let mut out = Vec::new();
        for _ in 0..1000 {
            client.encode(Request::new(Command::READ, 0, 1, 1), &[], &mut out);
        }
        client.stream.set_nonblocking(true).unwrap();
        let (mut sent, mut stuck) = (0_usize, 0);
        while stuck < 2000 && sent < 400 << 20 {
            match client.stream.write(&out[sent % out.len()..]) {
                Ok(count) => (sent, stuck) = (sent + count, 0),
                Err(_) => {
                    stuck += 1;
                    std::thread::yield_now();
                }
            }
        }
        assert!(sent < 400 << 20, "the server answers into the void");
    });
}

#[test]
fn a_hundred_connections_that_come_and_go_leave_nothing_behind() {
    beside_a_worker(|fixture| {
        for round in 0..100 {
            match round % 4 {
                0 => drop(fixture.socket()),
                1 => drop(fixture.client(Wanted::everything("sda"))),
                2 => drop(fixture.client(Wanted::everything("sda")).disconnect()),
                _ => {
                    let socket = fixture.socket();
                    socket.shutdown(Shutdown::Both).unwrap();
                }
            }
        }
    });
}

#[test]
fn a_device_that_holds_its_answers_does_not_hold_the_memory_of_those_who_left() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let (driver, record) = Recorder::new(16 * MIB, |_| ());
    let fixture = Fixture::on(driver);
    let mut client = fixture.client(Wanted::everything("sda"));
    record.hold(true);
    for _ in 0..64 {
        client.send(Request::new(Command::READ, 0, 0, 65536), &[]);
    }
    wait_until("the reads", || record.ops().iter().filter(|op| **op == Op::Read).count() >= 60);
    drop(client);
    fixture.wait_for_connections(0);
    record.hold(false);
    wait_until("the orphans' I/O to end", || fixture.devices[0].stats().in_flight == 0);
    fixture.stop();
}

/// A disk in tiny pieces, whose map is long. It counts the questions and answers as many as it may.
struct Shards {
    inner: std::sync::Arc<dyn Driver>,
    asked: AtomicU64,
    allowed: AtomicU64,
}

impl Shards {
    fn new(bytes: u64) -> std::sync::Arc<Shards> {
        let (asked, allowed) = (AtomicU64::new(0), AtomicU64::new(0));
        std::sync::Arc::new(Shards { inner: ram(bytes), asked, allowed })
    }

    fn asked(&self) -> u64 {
        self.asked.load(Ordering::SeqCst)
    }

    /// Lets so many questions be answered, those included that were.
    fn allow(&self, count: u64) {
        self.allowed.store(count, Ordering::SeqCst);
    }
}

impl Driver for Shards {
    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    fn queues(&self) -> Queues {
        self.inner.queues()
    }

    fn open(&self, index: u16, depth: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
        self.inner.open(index, depth)
    }

    fn allocation(&self, sector: u64, sectors: u64) -> Result<Vec<Extent>, DriverError> {
        let number = self.asked.fetch_add(1, Ordering::SeqCst);
        wait_until("the map", || self.allowed.load(Ordering::SeqCst) > number);
        let alike = |at: u64| at.is_multiple_of(2);
        let shard = |at: u64| Extent { sectors: 1, hole: alike(at), zero: alike(at) };
        Ok((sector..sector + sectors.min(EXTENTS_MAX as u64)).map(shard).collect())
    }
}

/// Resident memory of this process, bytes.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap() * 4096
}

/// Sends what the server takes, until it has taken nothing for a while; how much that was.
fn send_until_stuck(stream: &mut UnixStream, bytes: &[u8]) -> usize {
    stream.set_nonblocking(true).unwrap();
    let (mut sent, mut stuck) = (0, 0);
    while stuck < 2000 && sent < bytes.len() {
        match stream.write(&bytes[sent..]) {
            Ok(count) => (sent, stuck) = (sent + count, 0),
            Err(_) => {
                stuck += 1;
                std::thread::yield_now();
            }
        }
    }
    stream.set_nonblocking(false).unwrap();
    sent
}

/// 64 KiB of questions about a whole disk.
fn questions(client: &mut Client, bytes: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while out.len() < 64 << 10 {
        client.encode(Request::new(Command::BLOCK_STATUS, 0, 0, bytes), &[], &mut out);
    }
    out
}

#[test]
fn questions_of_a_client_that_never_reads_cost_bounded_memory_and_take_turns_with_others() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let shards = Shards::new(64 * MIB);
    let disk = device(
        Config { name: "sda".into(), ..Config::default() },
        std::sync::Arc::clone(&shards) as _,
    );
    // One reactor for both: what came for the asker is seen to before the other's next question.
    let fixture = Fixture::new(1, vec![Export::new("sda", disk)], Settings::default());
    let mut asker = fixture.client(Wanted::everything("sda"));
    let mut other = fixture.client(Wanted::everything("sda"));
    let before = resident();
    let out = questions(&mut asker, 64 * MIB);
    send_until_stuck(&mut asker.stream, &out);
    // However many it has asked, another's question is answered within a few steps of its own.
    wait_until("a question", || shards.asked() == 1);
    let own = other.send(Request::new(Command::BLOCK_STATUS, 0, 0, 4096), &[]);
    // An answer to a request behind it shows that it has been asked.
    other.read(0, 512);
    shards.allow(3);
    other.wait(own).ok();
    shards.allow(u64::MAX);
    // It is asked until the asker is owed as much as a client may be, and no longer. Between two
    // questions of another, one after the other, the asker has its turn if it waits for one.
    wait_until("the asker to be held back", || {
        let asked = shards.asked();
        for _ in 0..2 {
            other.ask(Command::BLOCK_STATUS, F::EMPTY, 0, 4096).ok();
        }
        shards.asked() == asked + 2
    });
    let grown = resident().saturating_sub(before);
    assert!(grown < 96 << 20, "{grown} bytes are held for answers that nobody reads");
    // All are answered once it reads.
    let cookies = out.len() as u64 / 32;
    for cookie in 1..=cookies {
        assert!(asker.wait(cookie).ok().extents.len() > 100);
    }
    asker.disconnect();
    other.disconnect();
    fixture.stop();
}

#[test]
fn questions_of_a_client_that_has_left_are_not_answered() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let shards = Shards::new(64 * MIB);
    let fixture = Fixture::on(std::sync::Arc::clone(&shards) as _);
    for farewell in [false, true] {
        let mut asker = fixture.client(Wanted::everything("sda"));
        let mut out = questions(&mut asker, 64 * MIB);
        out.truncate(100 * 32);
        if farewell {
            asker.encode(Request::new(Command::DISC, 0, 0, 0), &[], &mut out);
        }
        asker.stream.write_all(&out).unwrap();
        wait_until("a question", || shards.asked() == 1);
        drop(asker);
        // The driver is still at its first question, and no connection waits for it.
        fixture.wait_for_connections(0);
    }
    shards.allow(u64::MAX);
    let mut other = fixture.client(Wanted::everything("sda"));
    other.ask(Command::BLOCK_STATUS, F::EMPTY, 0, 4096).ok();
    assert!(shards.asked() <= 3, "{} steps for clients that have left", shards.asked());
    other.disconnect();
    fixture.stop();
}

/// A client that has shut its reading side, and 256 KiB of requests of it or one longer.
fn half_shut(
    fixture: &Fixture,
    wanted: Wanted,
    command: Command,
    length: u64,
) -> (Client, Vec<u8>) {
    let mut client = fixture.client(wanted);
    client.stream.shutdown(Shutdown::Read).unwrap();
    let payload = match command {
        Command::WRITE => vec![1; length as usize],
        _ => Vec::new(),
    };
    let mut out = Vec::new();
    while out.len() < 256 << 10 {
        client.encode(Request::new(command, 0, 0, length), &payload, &mut out);
    }
    (client, out)
}

#[test]
fn a_client_that_shuts_its_reading_side_floods_and_closes_leaves_nothing_behind() {
    beside_a_worker(|fixture| {
        for (mode, wanted) in every_mode() {
            for (command, length) in [
                (Command::READ, 512),
                (Command::READ, 1 << 20),
                (Command::WRITE, 512),
                (Command::WRITE, 256 << 10),
                (Command::WRITE, 32 << 20),
                (Command::FLUSH, 0),
                (Command::WRITE_ZEROES, 64 << 10),
                (Command(77), 512),
            ] {
                println!("{command} of {length} in {mode:?}");
                let (mut client, out) = half_shut(fixture, wanted.clone(), command, length);
                // As long as it is listened to, but no more than replies of 32 MiB can come of.
                let mut left: usize = if command == Command(77) { 100 << 20 } else { 34 << 20 };
                while left > 0 && client.stream.write_all(&out).is_ok() {
                    left = left.saturating_sub(out.len());
                }
                let _ = client.stream.write_all(&out[..20]);
                drop(client);
                fixture.wait_for_connections(2);
            }
        }
    });
}

#[test]
fn a_sender_without_end_that_reads_nothing_leaves_others_their_turns() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let (driver, record) = Recorder::new(64 * MIB, |_| ());
    let config = Config { name: "sda".into(), ..Config::default() };
    let exports = vec![Export::new("sda", device(config, driver))];
    let fixture = Fixture::new(1, exports, Settings::default());
    let mut other = fixture.client(Wanted::everything("sda"));
    let mut client = fixture.client(Wanted::nothing("sda"));
    // It has as many requests under way as it may, so that no more are taken in for now.
    record.hold(true);
    let mut out = Vec::new();
    for _ in 0..2048 {
        client.encode(Request::new(Command::READ, 0, 0, 512), &[], &mut out);
    }
    client.stream.write_all(&out).unwrap();
    out.clear();
    // So many lie in the socket in one piece, and no request of another thread in between.
    for _ in 0..1000 {
        client.encode(Request::new(Command(77), 0, 0, 512), &[], &mut out);
    }
    // The socket is full before the first of those that send without end.
    client.stream.set_nonblocking(true).unwrap();
    loop {
        match client.stream.write(&out) {
            Ok(count) => assert_eq!(count, out.len(), "so many bytes go in one piece or not"),
            Err(full) => break assert_eq!(full.kind(), std::io::ErrorKind::WouldBlock),
        }
    }
    client.stream.set_nonblocking(false).unwrap();
    let (over, filled) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        // Several, so that there is always something to be received.
        for _ in 0..4 {
            let (over, filled, out) = (&over, &filled, &out);
            let mut stream = client.stream.try_clone().unwrap();
            scope.spawn(move || {
                while !over.load(Ordering::SeqCst) && stream.write_all(out).is_ok() {
                    filled.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        client.stream.shutdown(Shutdown::Read).unwrap();
        record.hold(false);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for round in 0..200 {
                let bytes = pattern(round, 4096);
                other.write(0, &bytes).ok();
                assert!(other.read(0, 4096) == bytes);
            }
            println!("{} pieces were sent meanwhile", filled.load(Ordering::SeqCst));
        }));
        over.store(true, Ordering::SeqCst);
        let _ = client.stream.shutdown(Shutdown::Both);
        outcome.unwrap();
    });
    drop(client);
    fixture.wait_for_connections(1);
    other.disconnect();
    fixture.stop();
}
