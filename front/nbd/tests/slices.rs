//! Exports that are parts of a disk: no request of theirs reaches a byte outside.

mod support;

use support::*;
use weir_bio::Prng;
use weir_front_nbd::{Export, Settings, Slice};
use weir_proto_nbd::NbdError;
use weir_proto_nbd::client::Wanted;
use weir_proto_nbd::wire::{Command, CommandFlags as F};
use weir_queue::Config;

const DISK: u64 = 1 << 20;

/// A disk of blocks of so many bytes, whole and in parts: in the middle, beside that, over both,
/// and to the end.
fn fixture(block: u32) -> Fixture {
    let (driver, _) = Recorder::new(DISK, |limits| limits.logical_block_size = block);
    let disk = device(Config { name: "sda".into(), queues: 2, ..Config::default() }, driver);
    let part = |name: &str, offset, size| {
        let mut export = Export::new(name, disk.clone());
        export.slice = Slice { offset, size };
        export
    };
    let exports = vec![
        part("whole", 0, None),
        part("middle", 256 << 10, Some(256 << 10)),
        part("beside", 512 << 10, Some(128 << 10)),
        part("over", 384 << 10, Some(192 << 10)),
        part("end", DISK - 64 * 1024, None),
    ];
    Fixture::new(2, exports, Settings::default())
}

#[test]
fn a_slice_has_its_own_size_and_its_bytes_are_those_of_the_disk_there() {
    for block in [512, 4096] {
        let fixture = fixture(block);
        let mut whole = fixture.client(Wanted::everything("whole"));
        let shadow = pattern(1, DISK as usize);
        whole.write(0, &shadow).ok();
        for (name, offset, size) in [
            ("middle", 256 << 10, 256 << 10),
            ("beside", 512 << 10, 128 << 10),
            ("over", 384 << 10, 192 << 10),
            ("end", DISK - 64 * 1024, 64 << 10),
        ] {
            let mut client = fixture.client(Wanted::everything(name));
            assert_eq!(client.info.size, size, "{name}");
            let there = &shadow[offset as usize..(offset + size) as usize];
            assert!(client.read(0, size) == there, "{name}");
            assert!(client.read(777, 4001) == there[777..777 + 4001], "{name}, inside blocks");
            client.disconnect();
        }
        // What is written by one way is read by the other.
        let mut over = fixture.client(Wanted::everything("over"));
        over.write(127 << 10, &[7; 2048]).ok();
        assert!(whole.read(511 << 10, 2048) == [7; 2048]);
        over.disconnect();
        whole.disconnect();
        fixture.stop();
    }
}

/// One random request of a slice, also beyond its end, and the bytes that it may change.
fn ask(client: &mut Client, dice: &mut Prng, size: u64, shadow: &mut [u8]) {
    let near = [0, size, size - 1, u64::MAX - 70_000, u64::MAX];
    let at = match dice.below(3) {
        0 => {
            let end = near[dice.below(5) as usize];
            end.saturating_sub(dice.below(9000))
        }
        _ => dice.below(size),
    };
    let most = [16, 600, 70_000][dice.below(3) as usize];
    let length = 1 + dice.below(most);
    let fits = at.checked_add(length).is_some_and(|end| end <= size);
    let place = || at as usize..(at + length) as usize;
    let command = [Command::WRITE, Command::READ, Command::WRITE_ZEROES, Command::TRIM]
        [dice.below(4) as usize];
    let told = format!("{command} of {length} bytes at {at} of {size}");
    match command {
        Command::WRITE => {
            let bytes = pattern(dice.below(1000), length as usize);
            let reply = client.write(at, &bytes);
            assert_eq!(reply.error, (!fits).then_some(NbdError::NoSpc), "{told}");
            if fits {
                shadow[place()].copy_from_slice(&bytes);
            }
        }
        Command::READ => {
            let reply = client.ask(command, F::EMPTY, at, length);
            assert_eq!(reply.error, (!fits).then_some(NbdError::Inval), "{told}");
            assert!(!fits || reply.data == shadow[place()], "{told}");
        }
        Command::WRITE_ZEROES => {
            let reply = client.ask(command, F::EMPTY, at, length);
            assert_eq!(reply.error, (!fits).then_some(NbdError::NoSpc), "{told}");
            if fits {
                shadow[place()].fill(0);
            }
        }
        _ => {
            let reply = client.ask(command, F::EMPTY, at, length);
            assert_eq!(reply.error, (!fits).then_some(NbdError::Inval), "{told}");
            if fits {
                // The driver may zero what is trimmed, and need not: it is written anew.
                let bytes = pattern(dice.below(1000), length as usize);
                client.write(at, &bytes).ok();
                shadow[place()].copy_from_slice(&bytes);
            }
        }
    }
}

#[test]
fn requests_at_random_stay_inside_their_slice() {
    let seed = std::env::var("SLICE_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7);
    println!("SLICE_SEED={seed}");
    for block in [512, 4096] {
        let fixture = fixture(block);
        let mut dice = Prng::new(seed);
        let mut whole = fixture.client(Wanted::everything("whole"));
        let mut shadow = pattern(3, DISK as usize);
        whole.write(0, &shadow).ok();
        for (name, offset) in
            [("middle", 256 << 10), ("beside", 512 << 10), ("end", DISK - 64 * 1024)]
        {
            let mut client = fixture.client(Wanted::everything(name));
            let size = client.info.size;
            for _ in 0..150 {
                let part = offset as usize..(offset + size) as usize;
                ask(&mut client, &mut dice, size, &mut shadow[part]);
            }
            let status = client.ask(Command::BLOCK_STATUS, F::EMPTY, 0, size).ok();
            let sum: u64 = status.extents.iter().map(|(length, _)| length).sum();
            assert_eq!(sum, size, "{name}: extents end with the slice");
            client.flush().ok();
            client.disconnect();
            // Nothing beside it has changed either.
            assert!(whole.read(0, DISK) == shadow, "{name} of {block}-byte blocks");
        }
        whole.disconnect();
        fixture.stop();
    }
}
