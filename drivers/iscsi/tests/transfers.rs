//! Data of every size through a port, whatever a target negotiates; and a target that hangs up in
//! the middle of it.

mod support;

use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use support::fake::{Disk, NAME, profile};
use support::{Bed, Transferred, options, pattern, transfer};
use weir_bio::Prng;
use weir_driver_iscsi::{DigestOffer, Options};
use weir_proto_iscsi::login::Offer;
use weir_proto_iscsi::target::Profile;
use weir_proto_scsi::decide::Delivery;

const DISK: usize = 4 << 20;

/// A disk whose first session hangs up after so many bytes of writes; its port, and its bytes.
fn disk(profile: &Profile, hangs_up_after: usize) -> (u16, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("a port").port();
    let bytes = Arc::new(Mutex::new(vec![0; DISK]));
    let (profile, shared) = (profile.clone(), Arc::clone(&bytes));
    std::thread::spawn(move || {
        let bounds = std::iter::once(hangs_up_after).chain(std::iter::repeat(usize::MAX));
        for (stream, bound) in listener.incoming().flatten().zip(bounds) {
            let disk = Disk::new(profile.clone(), &shared, bound);
            std::thread::spawn(move || disk.serve(stream));
        }
    });
    (port, bytes)
}

fn offering(change: impl FnOnce(&mut Offer)) -> Profile {
    let mut profile = profile();
    change(&mut profile.offer);
    profile
}

/// Targets that negotiate: names for what is odd in them.
fn targets() -> Vec<(&'static str, Profile)> {
    let digests = |offer: &mut Offer| {
        (offer.header_digest, offer.data_digest) = (DigestOffer::Require, DigestOffer::Require);
    };
    vec![
        ("the default", profile()),
        ("InitialR2T=Yes", offering(|offer| offer.initial_r2t = true)),
        ("ImmediateData=No", offering(|offer| offer.immediate_data = false)),
        (
            "neither immediate nor unasked data",
            offering(|offer| (offer.initial_r2t, offer.immediate_data) = (true, false)),
        ),
        ("segments of 512 bytes", offering(|offer| offer.segment_max = 512)),
        (
            "a first burst shorter than a segment",
            offering(|offer| (offer.first_burst, offer.segment_max) = (1024, 65_536)),
        ),
        (
            "bursts of 512 bytes in segments of 512 bytes, one at a time, with digests",
            offering(|offer| {
                (offer.burst_max, offer.first_burst) = (512, 512);
                (offer.segment_max, offer.r2ts, offer.initial_r2t) = (512, 1, true);
                digests(offer);
            }),
        ),
        (
            "odd lengths and digests",
            offering(|offer| {
                (offer.segment_max, offer.first_burst, offer.burst_max) = (777, 1001, 5003);
                digests(offer);
            }),
        ),
    ]
}

#[test]
fn what_is_written_is_read_back_whatever_the_target_negotiates() {
    let seed = 0x6973_6373;
    println!("seed {seed}");
    for (what, profile) in targets() {
        println!("{what}");
        let (port, bytes) = disk(&profile, usize::MAX);
        let mut bed = Bed::open(NAME, options(port));
        let mut prng = Prng::new(seed);
        let mut expected = vec![0; DISK];
        for round in 0..6 {
            let mut ranges = Vec::new();
            for slot in 0..8_u16 {
                let blocks = [1, 2, 7, 8, 32, 33, 128, 301][prng.below(8) as usize];
                // One region for each slot: no two overlap.
                let block = u64::from(slot) * 1024 + prng.below(1024 - blocks);
                let data = pattern(blocks as usize * 512, prng.below(u64::MAX));
                let at = block as usize * 512;
                expected[at..at + data.len()].copy_from_slice(&data);
                let piece = [512, 1000, 4096, usize::MAX][prng.below(4) as usize];
                let command = transfer(true, block, data.len(), false);
                bed.push(slot, &command, Transferred::Out(&data), piece);
                ranges.push((slot, block, data.len(), piece));
            }
            bed.commit();
            bed.until(|bed| bed.ended.len() == ranges.len());
            let good = bed.ended.values().all(|ended| ended.is_good());
            assert!(good, "{what}, round {round}: {:?} {:?}", bed.ended, bed.told);
            bed.ended.clear();
            for &(slot, block, length, piece) in &ranges {
                let command = transfer(false, block, length, false);
                bed.push(slot, &command, Transferred::In(length), piece);
            }
            bed.commit();
            bed.until(|bed| bed.ended.len() == ranges.len());
            for (slot, block, length, _) in ranges {
                let ended = bed.ended.remove(&slot).expect("it has ended");
                let at = block as usize * 512;
                assert!(ended.is_good() && ended.data == expected[at..at + length], "{what}");
            }
        }
        assert!(*bytes.lock().expect("no panic") == expected, "{what}: what the disk has");
        assert!(bed.told.is_empty(), "{what}: {:?}", bed.told);
    }
}

#[test]
fn a_target_that_hangs_up_within_the_data_of_a_write_has_it_again() {
    let profile = offering(|offer| {
        (offer.segment_max, offer.first_burst, offer.burst_max) = (4096, 4096, 16_384);
        offer.initial_r2t = true;
    });
    let data = pattern(192 << 10, 5);
    // Within immediate data, within the first burst that was asked for, and within a later one.
    for after in [100, 9000, 100_000] {
        let (port, bytes) = disk(&profile, after);
        let mut bed = Bed::open(NAME, options(port));
        let write = transfer(true, 8, data.len(), false);
        bed.push(3, &write, Transferred::Out(&data), 50_000);
        bed.commit();
        bed.until_told("lost with 1 commands");
        // It may have been sent, so that it ends with the session that ends it at the target.
        assert!(bed.ended.is_empty(), "{:?}", bed.ended);
        bed.ahead += 5_000_000_000;
        bed.until(|bed| bed.ended.contains_key(&3));
        assert_eq!(bed.ended[&3].end.delivery, Delivery::Disrupted, "{:?}", bed.told);
        bed.ended.clear();
        bed.write(8, &data);
        assert!(bytes.lock().expect("no panic")[4096..4096 + data.len()] == data);
    }
}

#[test]
fn digests_are_had_where_they_are_asked_for_and_the_data_is_the_same() {
    let profile = offering(|offer| {
        (offer.header_digest, offer.data_digest) = (DigestOffer::Accept, DigestOffer::Accept);
    });
    let data = pattern(100 << 10, 6);
    for digest in [DigestOffer::Never, DigestOffer::Require] {
        let (port, _) = disk(&profile, usize::MAX);
        let wished = Options { header_digest: digest, data_digest: digest, ..options(port) };
        let mut bed = Bed::open(NAME, wished);
        bed.write(3, &data);
        assert!(bed.read(3, data.len()) == data);
    }
}
