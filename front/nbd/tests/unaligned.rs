//! Requests that begin or end inside a block: every command, in every mode, against a shadow; what
//! they cost; and exports that do not take them.

mod support;

use support::*;
use weir_bio::{Flags, Op, Prng};
use weir_front_nbd::Export;
use weir_proto_nbd::NbdError;
use weir_proto_nbd::client::Wanted;
use weir_proto_nbd::wire::{BlockSizes, Command, CommandFlags as F, Request, StatusFlags};
use weir_queue::Config;

const SIZE: u64 = 1 << 20;

/// Odd and even places: inside a block, across two, across many.
const PLACES: [(u64, u64); 9] = [
    (1, 1),
    (511, 2),
    (513, 1023),
    (0, 1),
    (512, 511),
    (700, 65537),
    (4095, 8194),
    (3, 300_001),
    (SIZE - 1, 1),
];

/// Disks of both blocks, in memory.
fn disks() -> Vec<(u32, Fixture)> {
    let disk = |block: u32| {
        let (driver, _) = Recorder::new(SIZE, |limits| limits.logical_block_size = block);
        (block, Fixture::on(driver))
    };
    vec![disk(512), disk(4096)]
}

#[test]
fn every_byte_can_be_read_written_and_zeroed_by_itself() {
    for (block, fixture) in disks() {
        for (mode, wanted) in every_mode() {
            let mut client = fixture.client(wanted);
            let mut shadow = pattern(1, SIZE as usize);
            client.write(0, &shadow).ok();
            for (seed, (at, length)) in PLACES.into_iter().enumerate() {
                let place = at as usize..(at + length) as usize;
                let told = format!("{length} bytes at {at} of {block}-byte blocks in {mode:?}");
                assert!(client.read(at, length) == shadow[place.clone()], "{told} are read");
                let bytes = pattern(seed as u64 + 2, length as usize);
                client.write(at, &bytes).ok();
                shadow[place.clone()].copy_from_slice(&bytes);
                assert!(client.read(0, SIZE) == shadow, "{told} are written");
                for flags in [F::EMPTY, F::NO_HOLE, F::FUA] {
                    client.write(at, &bytes).ok();
                    client.ask(Command::WRITE_ZEROES, flags, at, length).ok();
                    shadow[place.clone()].fill(0);
                    assert!(client.read(0, SIZE) == shadow, "{told} are zeroed");
                }
                client.ask(Command::CACHE, F::EMPTY, at, length).ok();
            }
            client.flush().ok();
            client.disconnect();
        }
        fixture.stop();
    }
}

#[test]
fn a_trim_takes_the_whole_blocks_alone() {
    for (block, fixture) in disks() {
        let mut client = fixture.client(Wanted::everything("sda"));
        for (at, length) in PLACES {
            let before = pattern(7, SIZE as usize);
            client.write(0, &before).ok();
            client.ask(Command::TRIM, F::FUA, at, length).ok();
            let block = u64::from(block);
            let (first, last) = (at.next_multiple_of(block), (at + length) / block * block);
            let after = client.read(0, SIZE);
            for (place, (was, is)) in before.iter().zip(&after).enumerate() {
                let inside = first <= place as u64 && (place as u64) < last;
                assert!(inside || was == is, "{length} bytes at {at} trim byte {place}");
            }
        }
        client.disconnect();
        fixture.stop();
    }
}

#[test]
fn a_fast_zero_without_a_whole_block_is_refused_and_changes_nothing() {
    for (block, fixture) in disks() {
        let mut client = fixture.client(Wanted::everything("sda"));
        let mut shadow = pattern(3, SIZE as usize);
        client.write(0, &shadow).ok();
        let (at, edge) = (u64::from(block) - 10, u64::from(block));
        for length in [5, 20, 10 + edge - 1] {
            let reply = client.ask(Command::WRITE_ZEROES, F::FAST_ZERO, at, length);
            assert_eq!(reply.error, Some(NbdError::NotSup), "{length} bytes");
            assert!(client.read(0, SIZE) == shadow);
        }
        client.ask(Command::WRITE_ZEROES, F::FAST_ZERO, at, 20 + edge).ok();
        shadow[at as usize..(at + 20 + edge) as usize].fill(0);
        assert!(client.read(0, SIZE) == shadow);
        client.disconnect();
        fixture.stop();
    }
}

#[test]
fn extents_of_a_part_of_a_block_are_cut_to_it() {
    for (block, fixture) in disks() {
        let mut client = fixture.client(Wanted::everything("sda"));
        for (at, length) in PLACES {
            for flags in [F::EMPTY, F::REQ_ONE] {
                let reply = client.ask(Command::BLOCK_STATUS, flags, at, length).ok();
                let sum: u64 = reply.extents.iter().map(|(length, _)| length).sum();
                assert_eq!(sum, length, "{length} bytes at {at} of {block}-byte blocks");
                let empty = StatusFlags::HOLE | StatusFlags::ZERO;
                assert!(reply.extents.iter().all(|(_, flags)| *flags == empty));
            }
        }
        client.disconnect();
        fixture.stop();
    }
}

#[test]
fn clients_that_own_bytes_of_the_same_blocks_lose_none() {
    let seed = 1;
    for (block, fixture) in disks() {
        let mut prng = Prng::new(seed);
        let mut clients: Vec<Client> =
            (0..4).map(|_| fixture.client(Wanted::everything("sda"))).collect();
        let mut shadow = vec![0; SIZE as usize];
        for round in 0..30 {
            let mut sent = Vec::new();
            for (who, client) in clients.iter_mut().enumerate() {
                // A quarter of the bytes of every block is this client's, and one write of its is
                // in each place.
                for slice in 0..40 {
                    let at = slice * 100 + who as u64 * 25 + prng.below(10);
                    let bytes = pattern(prng.next(), 1 + prng.below(15) as usize);
                    shadow[at as usize..][..bytes.len()].copy_from_slice(&bytes);
                    let write = Request::new(Command::WRITE, 0, at, bytes.len() as u64);
                    let fua = if prng.percent(20) { F::FUA } else { F::EMPTY };
                    sent.push((who, client.send(write.with(fua), &bytes)));
                }
            }
            for (who, cookie) in sent {
                clients[who].wait(cookie).ok();
            }
            let read = clients[round % 4].read(0, SIZE);
            assert!(read == shadow, "round {round} of {block}-byte blocks, seed {seed}");
        }
        clients.into_iter().for_each(|client| drop(client.disconnect()));
        fixture.stop();
    }
}

#[test]
fn a_write_inside_a_block_is_paid_for_once_by_its_bytes() {
    let fixture = Fixture::on(ram(SIZE));
    let mut client = fixture.client(Wanted::everything("sda"));
    client.write(700, &[1; 100]).ok();
    client.read(700, 100);
    let used = fixture.server().groups().all()[0].used;
    assert_eq!((used.ios, used.bytes), ([1, 1], [100, 100]));
    client.disconnect();
    fixture.stop();
}

#[test]
fn fua_is_the_flag_of_the_one_write() {
    let (driver, record) = Recorder::new(SIZE, |limits| limits.fua = true);
    let fixture = Fixture::on(driver);
    let mut client = fixture.client(Wanted::everything("sda"));
    let write = Request::new(Command::WRITE, 0, 700, 2000).with(F::FUA);
    client.call(write, &[1; 2000]).ok();
    assert_eq!(record.ops(), [Op::Read, Op::Read, Op::Write]);
    let log = record.log.lock().unwrap().clone();
    assert!(log.last().is_some_and(|(_, flags, ..)| flags.has(Flags::FUA)));
    client.disconnect();
    fixture.stop();
}

#[test]
fn another_minimum_is_told_and_held() {
    for minimum in [512, 1024, 65536] {
        let config = Config { name: "sda".into(), ..Config::default() };
        let device = device(config, ram(SIZE));
        let export = Export { minimum_block: minimum, ..Export::new("sda", device) };
        let fixture = Fixture::new(1, vec![export], Default::default());
        for (mode, wanted) in every_mode() {
            let mut client = fixture.client(wanted);
            let told = client.info.block;
            let unasked = told == BlockSizes::UNADVERTISED;
            assert!(unasked || told.minimum == minimum, "{mode:?}: {told:?}");
            let minimum = u64::from(minimum);
            for (at, length) in [(1, minimum), (minimum / 2, minimum), (0, 1), (0, minimum + 256)] {
                let reply = client.ask(Command::READ, F::EMPTY, at, length);
                assert_eq!(reply.error, Some(NbdError::Inval), "{length} bytes at {at}");
                let reply = client.write(at, &vec![1; length as usize]);
                assert_eq!(reply.error, Some(NbdError::Inval), "{length} bytes at {at}");
            }
            assert_eq!(client.read(minimum, minimum).len() as u64, minimum);
            client.disconnect();
        }
        fixture.stop();
    }
}

#[test]
fn a_client_that_leaves_in_the_middle_leaves_no_block_behind() {
    let (driver, record) = Recorder::new(SIZE, |_| ());
    let fixture = Fixture::on(driver);
    record.hold(true);
    let mut leaver = fixture.client(Wanted::everything("sda"));
    for at in 0..40 {
        leaver.send(Request::new(Command::WRITE, 0, at * 10, 5), &[1; 5]);
    }
    wait_until("a read", || !record.ops().is_empty());
    drop(leaver);
    record.hold(false);
    fixture.wait_for_connections(0);
    let mut other = fixture.client(Wanted::everything("sda"));
    other.write(3, &[2; 1000]).ok();
    other.write(0, &[2; 512]).ok();
    other.disconnect();
    fixture.stop();
}
