//! Commands whose length a client chooses without sending bytes (trim, zeroes, prefetch): it is
//! cut, pays caps piece by piece for what it costs, and leaves others their turns.

mod support;

use std::num::NonZeroU64;
use std::sync::Arc;

use support::*;
use weir_bio::{GroupId, Op};
use weir_proto_nbd::client::Wanted;
use weir_proto_nbd::wire::{Command, CommandFlags as F, Request};
use weir_queue::Caps;

const MIB: u64 = 1 << 20;

/// The counts of the root group: I/Os and bytes, of reads and of writes.
fn used(fixture: &Fixture) -> ([u64; 2], [u64; 2]) {
    let used = fixture.server().groups().all()[0].used;
    (used.ios, used.bytes)
}

#[test]
fn a_long_prefetch_in_a_capped_group_holds_the_others_of_it_back_for_a_piece_only() {
    let (driver, _) = Recorder::new(1 << 30, |limits| limits.prefetch = true);
    let fixture = Fixture::on(driver);
    // At this rate all of it takes two minutes.
    let caps = Caps { rbps: NonZeroU64::new(8 * MIB), ..Caps::default() };
    fixture.server().groups().set_caps(GroupId(0), caps).unwrap();
    let mut glutton = fixture.client(Wanted::everything("sda"));
    let mut other = fixture.client(Wanted::everything("sda"));
    glutton.send(Request::new(Command::CACHE, 0, 0, 1 << 30), &[]);
    wait_until("a piece", || used(&fixture).0[0] > 0);
    for _ in 0..3 {
        assert_eq!(other.read(0, 4096).len(), 4096);
    }
    // The connection that asked for it is not held up either.
    assert_eq!(glutton.read(0, 4096).len(), 4096);
    drop(glutton);
    fixture.wait_for_connections(1);
    other.disconnect();
    fixture.stop();
}

#[test]
fn an_effect_costs_what_it_costs_the_device() {
    for (command, flags, reads, expected) in [
        // A prefetch that the device ignores moves nothing.
        (Command::CACHE, F::EMPTY, false, (0, 0)),
        (Command::CACHE, F::EMPTY, true, (0, 64 * MIB)),
        // Each piece that is only marked costs a block of metadata.
        (Command::TRIM, F::EMPTY, false, (16, 16 * 4096)),
        (Command::WRITE_ZEROES, F::EMPTY, false, (16, 16 * 4096)),
        (Command::WRITE_ZEROES, F::NO_HOLE, false, (16, 64 * MIB)),
    ] {
        let (driver, record) = Recorder::new(64 * MIB, |limits| limits.prefetch = reads);
        let fixture = Fixture::on(driver);
        let mut client = fixture.client(Wanted::everything("sda"));
        client.ask(command, flags, 0, 64 * MIB).ok();
        let (ios, bytes) = used(&fixture);
        let pieces = record.ops().len() as u64;
        assert_eq!(ios[0] + ios[1], pieces, "{command}: each piece counts");
        let direction = usize::from(command != Command::CACHE);
        assert_eq!(bytes[direction], expected.1, "{command} {flags:?}");
        assert_eq!(ios[1], expected.0, "{command} {flags:?}");
        client.disconnect();
        fixture.stop();
    }
}

#[test]
fn many_effects_of_one_client_come_to_the_device_in_short_pieces_two_at_a_time() {
    let (driver, record) = Recorder::new(1 << 30, |_| ());
    let fixture = Fixture::on(driver);
    let mut glutton = fixture.client(Wanted::everything("sda"));
    let mut other = fixture.client(Wanted::everything("sda"));
    record.hold(true);
    for _ in 0..20 {
        let request = Request::new(Command::WRITE_ZEROES, 0, 0, 1 << 30).with(F::NO_HOLE);
        glutton.send(request, &[]);
    }
    // An answer to a request behind them shows that they have been looked at.
    let own = glutton.send(Request::new(Command::READ, 0, 0, 512), &[]);
    let neighbours = other.send(Request::new(Command::READ, 0, 0, 512), &[]);
    wait_until("both reads", || record.ops().iter().filter(|op| **op == Op::Read).count() == 2);
    let log = record.log.lock().unwrap().clone();
    let pieces: Vec<_> = log.iter().filter(|(op, ..)| *op == Op::WriteZeroes).collect();
    assert_eq!(pieces.len(), 2, "{log:?}");
    assert!(pieces.iter().all(|(.., bytes)| *bytes <= 8 * MIB), "{log:?}");
    record.hold(false);
    glutton.wait(own).ok();
    other.wait(neighbours).ok();
    drop(glutton);
    fixture.wait_for_connections(1);
    other.disconnect();
    fixture.stop();
}

#[test]
fn pieces_cover_a_range_exactly_and_the_answer_comes_behind_the_last() {
    let (driver, record) = Recorder::new(64 * MIB, |_| ());
    let fixture = Fixture::on(driver);
    let mut client = fixture.client(Wanted::everything("sda"));
    client.write(0, &pattern(1, 32 << 20)).ok();
    record.log.lock().unwrap().clear();
    let (from, length) = (MIB + 512, 21 * MIB + 1024);
    client.ask(Command::WRITE_ZEROES, F::FUA, from, length).ok();
    let log = record.log.lock().unwrap().clone();
    let flush = log.iter().position(|(op, ..)| *op == Op::Flush);
    assert_eq!(flush, Some(log.len() - 1), "durable when all of it is done: {log:?}");
    let mut pieces: Vec<_> =
        log[..log.len() - 1].iter().map(|&(_, _, at, len)| (at, len)).collect();
    pieces.sort_unstable();
    let end = pieces.iter().fold(from, |at, &(start, len)| {
        assert_eq!(start, at, "{pieces:?}");
        at + len
    });
    assert_eq!(end, from + length);
    let mut expected = pattern(1, 32 << 20);
    expected[from as usize..end as usize].fill(0);
    assert!(client.read(0, 32 * MIB) == expected);
    client.disconnect();
    fixture.stop();
}

#[test]
fn an_effect_that_a_cap_holds_back_ends_with_its_client_and_with_the_server() {
    let fixture = Fixture::on(ram(64 * MIB));
    let groups = Arc::clone(fixture.server().groups());
    let caps = Caps { wbps: NonZeroU64::new(1), ..Caps::default() };
    groups.set_caps(GroupId(0), caps).unwrap();
    for farewell in [false, true] {
        let mut client = fixture.client(Wanted::everything("sda"));
        client.send(Request::new(Command::TRIM, 0, 0, 64 * MIB), &[]);
        if farewell {
            client.send(Request::new(Command::DISC, 0, 0, 0), &[]);
        }
        drop(client);
        fixture.wait_for_connections(0);
    }
    let mut client = fixture.client(Wanted::everything("sda"));
    client.send(Request::new(Command::TRIM, 0, 0, 64 * MIB), &[]);
    client.read(0, 512);
    fixture.stop();
}
