//! The effect of each command, in every mode of the protocol, on both queue paths.

mod support;

use std::io::Write;
use std::sync::Arc;

use support::*;
use weir_bio::{Flags, Op, Prng, Status};
use weir_control::{Classing, Clients};
use weir_front_nbd::{Export, Settings};
use weir_proto_nbd::NbdError;
use weir_proto_nbd::client::Wanted;
use weir_proto_nbd::wire::{Command, CommandFlags as F, Mode, Request, StatusFlags};
use weir_queue::{Config, QueueMode, Spread};

const MIB: u64 = 1 << 20;

/// Every path through the queue core.
fn every_path() -> [Config; 4] {
    let config = Config { name: "sda".into(), queues: 2, ..Config::default() };
    let single = Config { mode: QueueMode::Sq, queues: 1, ..config.clone() };
    let in_turn = Config { spread: Spread::RoundRobin, ..config.clone() };
    let one_lane = Config { queues: 1, ..config.clone() };
    [config, single, in_turn, one_lane]
}

#[test]
fn what_is_written_is_read_back_whatever_its_size_on_every_path_and_in_every_mode() {
    for config in every_path() {
        let device = device(config.clone(), ram(128 * MIB));
        let fixture = Fixture::new(2, vec![Export::new("sda", device)], Settings::default());
        for (mode, wanted) in every_mode() {
            let mut client = fixture.client(wanted);
            assert_eq!((client.info.mode, client.info.size), (mode, 128 * MIB));
            let sizes = [512, 4096, 8192, 16 << 10, 65536, 65536 + 512, 1 << 20, (3 << 20) + 512];
            for (index, size) in sizes.into_iter().enumerate() {
                let at = 4 * MIB * index as u64 + 512;
                let bytes = pattern(size as u64 ^ mode as u64, size);
                client.write(at, &bytes).ok();
                assert!(client.read(at, size as u64) == bytes, "{size} bytes, {config:?}");
            }
            let bytes = pattern(3, 32 << 20);
            client.write(64 * MIB, &bytes).ok();
            assert!(client.read(64 * MIB, 32 * MIB) == bytes, "32 MiB, {config:?}");
            client.flush().ok();
            client.disconnect();
        }
        fixture.stop();
    }
}

#[test]
fn a_write_that_arrives_byte_by_byte_is_whole() {
    let fixture = Fixture::on(ram(MIB));
    for (_, wanted) in every_mode() {
        let mut client = fixture.client(wanted);
        let bytes = pattern(1, 1024);
        let mut out = Vec::new();
        let first = client.encode(Request::new(Command::WRITE, 0, 512, 1024), &bytes, &mut out);
        let second = client.encode(Request::new(Command::READ, 0, 4096, 512), &[], &mut out);
        for byte in out {
            client.stream.write_all(&[byte]).unwrap();
        }
        client.wait(first).ok();
        client.wait(second).ok();
        assert!(client.read(512, 1024) == bytes);
        client.disconnect();
    }
    fixture.stop();
}

#[test]
fn many_requests_in_one_send_are_all_answered_with_their_own_data() {
    for config in every_path() {
        let device = device(config, ram(16 * MIB));
        let fixture = Fixture::new(2, vec![Export::new("sda", device)], Settings::default());
        let mut client = fixture.client(Wanted::everything("sda"));
        let mut out = Vec::new();
        // More than there are slots in a submitter, so that some have to wait.
        let writes: Vec<u64> = (0..1500)
            .map(|i| {
                let request = Request::new(Command::WRITE, 0, i * 4096, 4096);
                client.encode(request, &pattern(i, 4096), &mut out)
            })
            .collect();
        let stream = client.stream.try_clone().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || (&stream).write_all(&out).unwrap());
            writes.iter().for_each(|&cookie| drop(client.wait(cookie).ok()));
        });
        let mut out = Vec::new();
        let reads: Vec<u64> = (0..1500)
            .map(|i| client.encode(Request::new(Command::READ, 0, i * 4096, 4096), &[], &mut out))
            .collect();
        client.stream.write_all(&out).unwrap();
        for (i, &cookie) in reads.iter().enumerate() {
            assert!(client.wait(cookie).ok().data == pattern(i as u64, 4096), "block {i}");
        }
        client.disconnect();
        fixture.stop();
    }
}

#[test]
fn a_refused_request_gets_its_error_and_the_stream_goes_on() {
    let fixture = Fixture::on(ram(MIB));
    for (_, wanted) in every_mode() {
        let mut client = fixture.client(wanted);
        let page = pattern(9, 4096);
        client.write(0, &page).ok();
        let (inval, nospc) = (Some(NbdError::Inval), Some(NbdError::NoSpc));
        for (command, at, length, error) in [
            (Command::READ, 0, 0, inval),
            (Command::READ, MIB, 512, inval),
            (Command::READ, u64::MAX - 511, 512, inval),
            (Command::WRITE, 512, 0, inval),
            (Command::WRITE, MIB - 512, 1024, nospc),
            (Command::WRITE, u64::MAX - 511, 512, nospc),
            (Command::TRIM, 0, 0, inval),
            (Command::TRIM, MIB, 4096, inval),
            (Command::WRITE_ZEROES, 0, 0, inval),
            (Command::WRITE_ZEROES, MIB, 4096, nospc),
            (Command(77), 0, 512, inval),
        ] {
            let payload = if command == Command::WRITE { vec![1; length as usize] } else { vec![] };
            let reply = client.call(Request::new(command, 0, at, length), &payload);
            assert_eq!(reply.error, error, "{command} of {length} at {at}");
            assert!(client.read(0, 4096) == page, "behind {command} of {length} at {at}");
        }
        let reply = client.ask(Command::READ, F::FAST_ZERO, 0, 512);
        assert_eq!(reply.error, inval, "a flag of another command");
        client.disconnect();
    }
    fixture.stop();
}

#[test]
fn trim_and_zeroes_read_back_as_zeros_and_say_so_in_the_map() {
    let fixture = Fixture::on(ram(16 * MIB));
    for (mode, wanted) in every_mode() {
        let mut client = fixture.client(wanted);
        client.write(0, &pattern(1, 4 << 20)).ok();
        client.ask(Command::TRIM, F::EMPTY, MIB, MIB).ok();
        client.ask(Command::WRITE_ZEROES, F::NO_HOLE, 2 * MIB, MIB).ok();
        client.ask(Command::WRITE_ZEROES, F::FAST_ZERO, 3 * MIB, MIB).ok();
        client.ask(Command::CACHE, F::EMPTY, 0, 4 * MIB).ok();
        assert!(client.read(MIB, 3 * MIB).iter().all(|byte| *byte == 0));
        assert!(client.read(0, MIB) == pattern(1, 4 << 20)[..1 << 20]);
        if mode != Mode::Simple {
            let (data, hole) = (StatusFlags::EMPTY, StatusFlags::HOLE | StatusFlags::ZERO);
            let map = client.ask(Command::BLOCK_STATUS, F::EMPTY, 0, 4 * MIB).ok().extents;
            assert_eq!(map.iter().map(|(length, _)| length).sum::<u64>(), 4 * MIB);
            assert_eq!(map[..2], [(MIB, data), (MIB, hole)], "{map:?}");
            let one = client.ask(Command::BLOCK_STATUS, F::REQ_ONE, 512, 4 * MIB - 512).ok();
            assert_eq!(one.extents, [(MIB - 512, data)]);
            let part = client.ask(Command::BLOCK_STATUS, F::REQ_ONE, MIB, 512).ok();
            assert_eq!(part.extents, [(512, hole)]);
        }
        client.disconnect();
    }
    fixture.stop();
}

#[test]
fn a_map_of_a_vast_disk_is_found_in_steps_and_joined() {
    // 64-bit lengths need extended headers; without them an answer ends below 4 GiB.
    let fixture = Fixture::on(Arc::new(weir_local::Null::new(1 << 46).unwrap()));
    let hole = StatusFlags::HOLE | StatusFlags::ZERO;
    let mut client = fixture.client(Wanted::everything("sda"));
    let map = client.ask(Command::BLOCK_STATUS, F::EMPTY, 512, (1 << 46) - 512).ok();
    assert_eq!(map.extents, [((1 << 46) - 512, hole)]);
    client.ask(Command::WRITE_ZEROES, F::FUA, 0, 1 << 46).ok();
    client.ask(Command::TRIM, F::EMPTY, 512, (1 << 46) - 512).ok();
    client.disconnect();
    let mut client = fixture.client(Wanted { extended: false, ..Wanted::everything("sda") });
    let length = u64::from(u32::MAX) - 511;
    let map = client.ask(Command::BLOCK_STATUS, F::EMPTY, 0, length).ok();
    assert_eq!(map.extents.len(), 1);
    assert!(map.extents[0].0 > 1 << 31, "{map:?}");
    client.disconnect();
    fixture.stop();
}

#[test]
fn zeros_travel_as_data_when_they_are_few_or_asked_for_and_as_a_hole_when_many() {
    let fixture = Fixture::on(Arc::new(weir_local::Null::new(1 << 30).unwrap()));
    for (mode, wanted) in every_mode() {
        let mut client = fixture.client(wanted);
        for (flags, length, hole) in [
            (F::EMPTY, 4096, false),
            (F::EMPTY, 65536 - 512, false),
            (F::EMPTY, 65536, true),
            (F::EMPTY, 32 * MIB, true),
        ] {
            let reply = client.ask(Command::READ, flags, 512, length).ok();
            assert!(reply.data == vec![0; length as usize], "{length}");
            assert_eq!(reply.holes, usize::from(hole && mode != Mode::Simple), "{length}");
        }
        if mode != Mode::Simple {
            let whole = client.ask(Command::READ, F::DF, 0, 2 * MIB).ok();
            assert_eq!((whole.chunks, whole.holes, whole.data.len()), (1, 0, 2 << 20));
        }
        client.disconnect();
    }
    fixture.stop();
}

#[test]
fn flush_and_fua_reach_the_device_and_nothing_is_answered_before() {
    let (driver, record) = Recorder::new(16 * MIB, |_| ());
    let fixture = Fixture::on(driver);
    let mut client = fixture.client(Wanted::everything("sda"));
    client.write(0, &[1; 4096]).ok();
    assert_eq!(record.ops(), [Op::Write], "a plain write is not flushed");
    for (request, payload, ops) in [
        (Request::new(Command::FLUSH, 0, 0, 0), 0, vec![Op::Flush]),
        (Request::new(Command::WRITE, 0, 0, 4096).with(F::FUA), 4096, vec![Op::Write, Op::Flush]),
        (Request::new(Command::TRIM, 0, 0, MIB).with(F::FUA), 0, vec![Op::Discard, Op::Flush]),
        (
            Request::new(Command::WRITE_ZEROES, 0, 0, MIB).with(F::FUA),
            0,
            vec![Op::WriteZeroes, Op::Flush],
        ),
        (Request::new(Command::TRIM, 0, 0, MIB), 0, vec![Op::Discard]),
    ] {
        record.log.lock().unwrap().clear();
        record.hold(true);
        let cookie = client.send(request, &vec![5; payload]);
        wait_until("the driver to be asked", || !record.ops().is_empty());
        // Others are served meanwhile, and none of their replies is this one's.
        let mut other = fixture.client(Wanted::everything("sda"));
        other.ask(Command::BLOCK_STATUS, F::EMPTY, 0, MIB).ok();
        assert!(client.order.last() != Some(&cookie));
        record.hold(false);
        client.wait(cookie).ok();
        assert_eq!(record.ops(), ops, "{request:?}");
        other.disconnect();
    }
    client.disconnect();
    fixture.stop();
}

#[test]
fn fua_goes_down_with_the_write_where_the_device_knows_it() {
    let (driver, record) = Recorder::new(MIB, |limits| limits.fua = true);
    let fixture = Fixture::on(driver);
    let mut client = fixture.client(Wanted::everything("sda"));
    client.call(Request::new(Command::WRITE, 0, 0, 4096).with(F::FUA), &[7; 4096]).ok();
    let log = record.log.lock().unwrap().clone();
    assert!(matches!(log[..], [(Op::Write, flags, 0, 4096)] if flags.has(Flags::FUA)), "{log:?}");
    client.disconnect();
    fixture.stop();
}

/// The flags of what a client writes, in whole blocks, in part of one, as a trim and as zeroes.
fn flags_of_writes(client: &mut Client, record: &Record) -> Vec<(Op, Flags)> {
    record.log.lock().unwrap().clear();
    client.write(0, &[1; 4096]).ok();
    client.write(8192 + 1, &[2; 10]).ok();
    client.ask(Command::TRIM, F::EMPTY, 0, 4096).ok();
    client.ask(Command::WRITE_ZEROES, F::EMPTY, 0, 4096).ok();
    client.ask(Command::FLUSH, F::EMPTY, 0, 0).ok();
    client.read(0, 512);
    record.log.lock().unwrap().iter().map(|(op, flags, ..)| (*op, *flags)).collect()
}

#[test]
fn writes_are_background_writes_where_the_export_says_so_until_the_client_is_told_otherwise() {
    for of_export in [true, false] {
        let (driver, record) = Recorder::new(MIB, |_| ());
        let device = device(Config { name: "sda".into(), ..Config::default() }, driver);
        let export = Export { background: of_export, ..Export::new("sda", device) };
        let fixture = Fixture::new(1, vec![export], Settings::default());
        let mut client = fixture.client(Wanted::everything("sda"));
        let number = fixture.server().clients()[0].number;
        for background in [of_export, !of_export] {
            let to = Classing { background: Some(background), ..Classing::default() };
            if background != of_export {
                assert!(fixture.server().reclassify(number, to).unwrap());
                // In force once its reactor has come to it.
                wait_until("the other class", || {
                    let found = flags_of_writes(&mut client, &record);
                    found[0].1.has(Flags::BACKGROUND) == background
                });
            }
            assert_eq!(fixture.server().clients()[0].background, background);
            let found = flags_of_writes(&mut client, &record);
            let ops: Vec<Op> = found.iter().map(|(op, _)| *op).collect();
            use Op::{Discard, Flush, Read, Write, WriteZeroes};
            assert_eq!(ops, [Write, Read, Write, Discard, WriteZeroes, Flush, Read]);
            for (op, flags) in found.into_iter().filter(|(op, _)| op.is_write()) {
                let is_so = (flags.has(Flags::BACKGROUND), flags.any(Flags::SYNC | Flags::IDLE));
                assert!(is_so == (background, !background) || op == Flush, "{op:?}: {flags:?}");
            }
        }
        client.disconnect();
        fixture.stop();
    }
}

#[test]
fn the_flags_of_zeroes_reach_the_device_and_a_slow_fast_zero_is_enotsup() {
    let (driver, record) = Recorder::new(MIB, |limits| limits.fast_write_zeroes = false);
    let fixture = Fixture::on(driver);
    let mut client = fixture.client(Wanted::everything("sda"));
    client.ask(Command::WRITE_ZEROES, F::NO_HOLE, 0, 4096).ok();
    let (_, flags, ..) = record.log.lock().unwrap()[0];
    assert!(flags.has(Flags::NOUNMAP) && !flags.has(Flags::NOFALLBACK));
    let reply = client.ask(Command::WRITE_ZEROES, F::FAST_ZERO, 0, 4096);
    assert_eq!(reply.error, Some(NbdError::Inval), "FAST_ZERO was not offered");
    client.disconnect();
    fixture.stop();
    let (driver, record) = Recorder::new(MIB, |_| ());
    let fixture = Fixture::on(driver);
    let mut client = fixture.client(Wanted::everything("sda"));
    *record.status.lock().unwrap() = Some(Status::NotSupp);
    let fast = client.ask(Command::WRITE_ZEROES, F::FAST_ZERO, 0, 4096);
    let slow = client.ask(Command::WRITE_ZEROES, F::EMPTY, 0, 4096);
    assert_eq!((fast.error, slow.error), (Some(NbdError::NotSup), Some(NbdError::Inval)));
    *record.status.lock().unwrap() = None;
    client.disconnect();
    fixture.stop();
}

#[test]
fn an_error_of_the_device_reaches_the_client_by_its_name_and_the_stream_goes_on() {
    let (driver, record) = Recorder::new(MIB, |_| ());
    let fixture = Fixture::on(driver);
    for (mode, wanted) in every_mode() {
        let mut client = fixture.client(wanted);
        for (status, error) in [
            (Status::NoSpc, NbdError::NoSpc),
            (Status::Medium, NbdError::Io),
            (Status::Transport, NbdError::Io),
            (Status::Offline, NbdError::Io),
        ] {
            *record.status.lock().unwrap() = Some(status);
            let write = client.write(0, &[1; 4096]);
            let read = client.ask(Command::READ, F::EMPTY, 0, 65536);
            assert_eq!((write.error, read.error), (Some(error), Some(error)));
            if mode != Mode::Simple {
                assert_eq!(read.words, status.to_string());
            }
        }
        *record.status.lock().unwrap() = None;
        client.write(0, &[1; 4096]).ok();
        client.disconnect();
    }
    fixture.stop();
}

#[test]
fn eight_clients_that_write_at_random_each_read_what_they_wrote() {
    let seed = 20240607;
    println!("seed {seed}");
    for config in every_path() {
        let device = device(config, ram(64 * MIB));
        let fixture = Fixture::new(2, vec![Export::new("sda", device)], Settings::default());
        std::thread::scope(|scope| {
            for number in 0..8_u64 {
                let fixture = &fixture;
                scope.spawn(move || {
                    let mut client = fixture.client(Wanted::everything("sda"));
                    let mut prng = Prng::new(seed + number);
                    let base = number * 8 * MIB;
                    let mut mirror = vec![0_u8; 8 << 20];
                    for _ in 0..500 {
                        let length = (1 + prng.below(64)) as usize * 512;
                        let at = prng.below(((8 << 20) - length) as u64 / 512) as usize * 512;
                        let bytes = pattern(prng.next(), length);
                        mirror[at..at + length].copy_from_slice(&bytes);
                        client.write(base + at as u64, &bytes).ok();
                    }
                    client.flush().ok();
                    for at in (0..8 << 20).step_by(1 << 20) {
                        let got = client.read(base + at as u64, MIB);
                        assert!(got == mirror[at..at + (1 << 20)], "client {number} at {at}");
                    }
                    client.disconnect();
                });
            }
        });
        fixture.stop();
    }
}
