//! Ports against a real target: Debian's tgtd, on loopback.

#[path = "../../../tests/daemon/outside.rs"]
mod outside;
mod support;
#[path = "../../../tests/daemon/tgtd.rs"]
mod tgtd;

use std::time::Duration;

use support::{Bed, Transferred, flush, lun, name, options, pattern, transfer, user};
use tgtd::Tgtd;
use weir_bio::Prng;
use weir_driver_iscsi::{DigestOffer, Iscsi, Options, discover, units};
use weir_driver_scsi::{Management, ManagementAnswer, Refusal, Transport};
use weir_proto_scsi::ScsiStatus;
use weir_proto_scsi::command::ScsiCommand;
use weir_proto_scsi::decide::Delivery;

const PLAIN: &str = "iqn.2024-01.test:plain";
const PROVED: &str = "iqn.2024-01.test:proved";
const MIB: usize = 1 << 20;

fn start(name: &str) -> Option<Tgtd> {
    let tgtd = Tgtd::start(env!("CARGO_TARGET_TMPDIR"), &format!("driver-{name}"))?;
    configure(&tgtd);
    Some(tgtd)
}

/// One target without proof and one with, each with LUN 1 of 64 MiB.
fn configure(tgtd: &Tgtd) {
    for (tid, target) in [(1, PLAIN), (2, PROVED)] {
        tgtd.target(tid, target);
        tgtd.unit(tid, 1, &tgtd.image(&format!("lun-{tid}"), 64 << 20), &[]);
    }
    tgtd.account(2, "weir", "weirsecret123", false);
    tgtd.account(2, "out", "outsecret4567", true);
}

#[test]
fn each_login_that_should_be_taken_is_taken_and_the_others_say_why_not() {
    let Some(tgtd) = start("logins") else { return };
    for digest in [DigestOffer::Never, DigestOffer::Require] {
        let value = if digest == DigestOffer::Never { "None" } else { "CRC32C" };
        for (tid, key) in [("1", "HeaderDigest"), ("1", "DataDigest"), ("2", "HeaderDigest")] {
            tgtd.parameter(tid, key, value);
        }
        tgtd.parameter("2", "DataDigest", value);
        let plain = Options { header_digest: digest, data_digest: digest, ..options(tgtd.port) };
        let chap =
            |name, secret| Options { initiator_secret: Some(user(name, secret)), ..plain.clone() };
        let mutual = |secret| Options {
            target_secret: Some(user("out", secret)),
            ..chap("weir", "weirsecret123")
        };
        for (target, options) in [
            (PLAIN, plain.clone()),
            (PLAIN, chap("weir", "weirsecret123")),
            (PROVED, chap("weir", "weirsecret123")),
            (PROVED, mutual("outsecret4567")),
        ] {
            let mut bed = Bed::open(target, options);
            let data = pattern(MIB, 3);
            bed.write(7, &data);
            assert!(bed.read(7, MIB) == data, "what was read is not what was written");
        }
        for (target, options, words) in [
            (PROVED, plain.clone(), "authentication failure"),
            (PROVED, chap("weir", "weirsecret124"), "authentication failure"),
            (PROVED, chap("wier", "weirsecret123"), "authentication failure"),
            (PROVED, mutual("outsecret4568"), "does not have the secret"),
            ("iqn.2024-01.test:none", plain.clone(), "no such target"),
        ] {
            let why = Bed::try_open(target, options).err().expect("refused");
            assert!(why.contains(words) && why.contains(&tgtd.port.to_string()), "{why}");
            assert!(!why.contains("secret12") && !why.contains("secret45"), "{why}");
        }
    }
}

/// Reads and writes of many lengths, in memory of many pieces, as deep as the window lets them.
fn mixture(bed: &mut Bed, seed: u64) {
    println!("seed {seed}");
    const SPACE: usize = 4 << 20;
    let (mut prng, mut model) = (Prng::new(seed), vec![0; SPACE]);
    bed.write(0, &model);
    for round in 0..60 {
        // Ranges of a round do not meet, so their order does not matter.
        let mut commands = Vec::new();
        for slot in 0..16_u16 {
            let part = SPACE / 16;
            let length = (1 + prng.below(part as u64 / 512) as usize) * 512;
            let at = usize::from(slot) * part + (part - length) / 512 / 2 * 512;
            let piece = [512, 1536, 4096, 65536, usize::MAX][prng.below(5) as usize];
            let write = prng.percent(50);
            let command = transfer(write, at as u64 / 512, length, prng.percent(10));
            if write {
                let data = pattern(length, seed ^ round << 8 ^ u64::from(slot));
                model[at..at + length].copy_from_slice(&data);
                bed.push(slot, &command, Transferred::Out(&data), piece);
            } else {
                bed.push(slot, &command, Transferred::In(length), piece);
            }
            commands.push((slot, write, at, length));
        }
        bed.commit();
        bed.until(|bed| bed.ended.len() == 16);
        for (slot, write, at, length) in commands {
            let ended = bed.ended.remove(&slot).expect("it has ended");
            assert!(ended.is_good(), "round {round}: {ended:?}");
            assert_eq!(ended.end.moved as usize, length);
            let same = write || ended.data == model[at..at + length];
            assert!(same, "round {round}: slot {slot} read something else");
        }
    }
    assert!(bed.read(0, SPACE) == model, "the disk is not what the model is");
}

#[test]
fn reads_and_writes_of_all_lengths_arrive_with_and_without_digests() {
    let Some(tgtd) = start("mixture") else { return };
    mixture(&mut Bed::open(PLAIN, options(tgtd.port)), 1);
    for key in ["HeaderDigest", "DataDigest"] {
        tgtd.parameter("1", key, "CRC32C");
    }
    mixture(&mut Bed::open(PLAIN, options(tgtd.port)), 2);
    // Every byte of a write is asked for.
    for (key, value) in [("InitialR2T", "Yes"), ("ImmediateData", "No")] {
        tgtd.parameter("1", key, value);
    }
    mixture(&mut Bed::open(PLAIN, options(tgtd.port)), 3);
}

#[test]
fn a_window_of_two_commands_holds_the_others_back_and_ends_them_all() {
    let Some(tgtd) = start("window") else { return };
    tgtd.parameter("1", "MaxQueueCmd", "2");
    let mut bed = Bed::open(PLAIN, options(tgtd.port));
    let command = transfer(false, 0, 4096, false);
    let mut slot = 0;
    let refusal = loop {
        match bed.send(slot, &command, Transferred::In(4096), usize::MAX) {
            Ok(()) => slot += 1,
            Err(why) => break why,
        }
    };
    assert_eq!(refusal, Refusal::Busy);
    assert!((1..=3).contains(&slot), "{slot} commands in a window of 2");
    bed.commit();
    bed.until(|bed| bed.ended.len() == usize::from(slot));
    bed.ended.clear();
    mixture(&mut bed, 4);
}

#[test]
fn the_disks_of_a_target_are_listed_by_number() {
    let Some(tgtd) = start("blocks") else { return };
    tgtd.unit(1, 2, &tgtd.image("large", 16 << 20), &["--blocksize", "4096"]);
    let transport = Iscsi::new(name(PLAIN), options(tgtd.port)).expect("a target");
    let numbers: Vec<_> = units(&transport).expect("a list");
    assert_eq!(numbers, [lun(1), lun(2)]);
}

#[test]
fn sense_is_handed_over_with_the_command_it_belongs_to() {
    let Some(tgtd) = start("sense") else { return };
    let mut bed = Bed::open(PLAIN, options(tgtd.port));
    bed.read(0, 4096);
    // Beyond the end, between two that are not.
    let (good, beyond) = (transfer(false, 0, 4096, false), transfer(false, 1 << 30, 4096, false));
    for (slot, command) in [(5, &good), (140, &beyond), (7, &good)] {
        bed.push(slot, command, Transferred::In(4096), usize::MAX);
    }
    bed.commit();
    bed.until(|bed| bed.ended.len() == 3);
    assert!(bed.ended[&5].is_good() && bed.ended[&7].is_good());
    let failed = &bed.ended[&140];
    assert_eq!(failed.end.status, ScsiStatus::CHECK_CONDITION);
    assert_eq!((failed.sense[2] & 0xf, failed.sense[12]), (5, 0x21), "{failed:?}");
    bed.ended.clear();
    // A write that fails while its data is under way.
    let data = vec![1; 4 * MIB];
    let command = transfer(true, 1 << 30, data.len(), false);
    bed.push(3, &command, Transferred::Out(&data), 8192);
    bed.commit();
    bed.until(|bed| bed.ended.len() == 1);
    assert_eq!(bed.ended[&3].sense[12], 0x21);
    assert!(bed.ended[&3].data == data, "its memory comes back");
    bed.ended.clear();
    bed.read(0, 4096);
}

#[test]
fn a_connection_that_the_target_ends_under_load_loses_nothing() {
    let Some(tgtd) = start("dropped") else { return };
    let mut bed = Bed::open(PLAIN, options(tgtd.port));
    let (part, rounds) = (256 << 10, 4);
    for round in 0..rounds {
        let data: Vec<_> = (0..32).map(|slot| pattern(part, slot << 8 | round)).collect();
        let place = |slot: usize| (slot * part / 512) as u64;
        let mut open: Vec<usize> = (0..32).collect();
        let mut dropped = false;
        while !open.is_empty() {
            for slot in &open {
                let command = transfer(true, place(*slot), part, false);
                bed.push(*slot as u16, &command, Transferred::Out(&data[*slot]), usize::MAX);
            }
            bed.commit();
            if !dropped {
                assert_eq!(tgtd.drop_connections(1), 1);
                dropped = true;
            }
            let count = open.len();
            bed.until(|bed| bed.ended.len() == count);
            open.retain(|slot| {
                let ended = bed.ended.remove(&(*slot as u16)).expect("it has ended");
                let attention = ended.end.status == ScsiStatus::CHECK_CONDITION;
                assert!(
                    ended.is_good() || ended.end.delivery == Delivery::Disrupted || attention,
                    "{ended:?}"
                );
                !ended.is_good()
            });
        }
        for (slot, data) in data.iter().enumerate() {
            assert!(bed.read(place(slot), part) == *data, "round {round}: slot {slot} is lost");
        }
    }
    let lost = bed.told.iter().filter(|notice| notice.contains(": lost with")).count();
    assert_eq!(lost, rounds as usize, "{:#?}", bed.told);
}

#[test]
fn a_target_that_is_killed_after_a_flush_has_what_was_flushed() {
    let Some(mut tgtd) = start("killed") else { return };
    let mut bed = Bed::open(PLAIN, options(tgtd.port));
    let data = pattern(4 * MIB, 9);
    bed.write(0, &data);
    assert!(bed.run(&flush(), Transferred::Nothing).is_good());
    tgtd.kill();
    // In flight while there is nothing at the other end.
    bed.until_told("lost with");
    assert_eq!(
        bed.send(1, &transfer(false, 0, 4096, false), Transferred::In(4096), 4096),
        Err(Refusal::Down)
    );
    assert!(bed.port.outage_until().is_some());
    tgtd.run();
    configure(&tgtd);
    bed.until_told("is back");
    assert!(bed.port.outage_until().is_none());
    assert!(bed.read(0, 4 * MIB) == data, "what was flushed is lost");
}

#[test]
fn a_target_that_is_stopped_is_found_silent_and_taken_again_when_it_goes_on() {
    let Some(tgtd) = start("stopped") else { return };
    let second = Duration::from_secs(1);
    let quick = Options { noop_interval: second, noop_timeout: second, ..options(tgtd.port) };
    let mut bed = Bed::open(PLAIN, quick);
    let old = pattern(MIB, 1);
    bed.write(0, &old);
    tgtd.stop(true);
    let new = pattern(MIB, 2);
    for slot in 0..8 {
        let command = transfer(true, u64::from(slot) * 256, 128 << 10, false);
        let data = &new[usize::from(slot) * (128 << 10)..][..128 << 10];
        bed.push(slot, &command, Transferred::Out(data), usize::MAX);
    }
    bed.commit();
    bed.until_told("the target does not answer");
    assert!(bed.ended.is_empty(), "a write may land: {:?}", bed.ended);
    tgtd.stop(false);
    bed.until_told("is back");
    bed.until(|bed| bed.ended.len() == 8);
    assert!(bed.ended.values().all(|ended| ended.end.delivery == Delivery::Disrupted));
    bed.ended.clear();
    // What is written now stays: nothing of the old session lands behind it.
    let newest = pattern(MIB, 3);
    bed.write(0, &newest);
    for _ in 0..20 {
        assert!(bed.read(0, MIB) == newest, "a write of the session before landed late");
    }
}

#[test]
fn without_a_target_reads_fail_at_the_replacement_timeout_and_writes_at_their_bound() {
    let Some(mut tgtd) = start("outage") else { return };
    let timeout = Duration::from_secs(20);
    let patient = Options { replacement_timeout: Some(timeout), ..options(tgtd.port) };
    let mut bed = Bed::open(PLAIN, patient);
    bed.read(0, 4096);
    tgtd.stop(true);
    let data = vec![7; 4096];
    bed.push(1, &transfer(false, 0, 4096, false), Transferred::In(4096), 4096);
    bed.push(2, &transfer(true, 0, 4096, false), Transferred::Out(&data), 4096);
    bed.push(3, &flush(), Transferred::Nothing, 1);
    bed.commit();
    tgtd.kill();
    bed.until_told("lost with 3 commands");
    let second = 1_000_000_000;
    bed.ahead += 19 * second;
    bed.turn(Duration::ZERO);
    assert!(bed.ended.is_empty(), "{:?}", bed.ended);
    bed.ahead += 2 * second;
    bed.turn(Duration::ZERO);
    bed.turn(Duration::ZERO);
    assert_eq!(bed.ended.keys().copied().collect::<Vec<_>>(), [1]);
    assert_eq!(bed.ended[&1].end.delivery, Delivery::FailFast);
    let read = transfer(false, 0, 4096, false);
    assert_eq!(bed.send(1, &read, Transferred::In(4096), 4096), Err(Refusal::Lost));
    assert_eq!(bed.port.outage_until(), None);
    bed.ahead += 18 * second;
    bed.turn(Duration::ZERO);
    assert_eq!(bed.ended.len(), 1, "{:?}", bed.ended);
    bed.ahead += 2 * second;
    bed.turn(Duration::ZERO);
    bed.turn(Duration::ZERO);
    assert_eq!(bed.ended.keys().copied().collect::<Vec<_>>(), [1, 2, 3]);
    assert!(bed.ended.values().all(|ended| ended.end.delivery == Delivery::FailFast));
    bed.ended.clear();
    tgtd.run();
    configure(&tgtd);
    bed.ahead += 60 * second;
    bed.until_told("is back");
    bed.read(0, 4096);
}

#[test]
fn a_portal_that_is_gone_is_left_for_another() {
    let Some(tgtd) = start("portals") else { return };
    let other = tgtd::free_port();
    tgtd.portal(other, true);
    let both = Options::new(support::portals(&[tgtd.port, other]));
    let mut bed = Bed::open(PLAIN, both);
    let data = pattern(MIB, 5);
    bed.write(0, &data);
    tgtd.portal(tgtd.port, false);
    assert_eq!(tgtd.drop_connections(1), 1);
    bed.until_told("is back");
    assert!(bed.read(0, MIB) == data);
    tgtd.portal(tgtd.port, true);
    tgtd.portal(other, false);
    assert_eq!(tgtd.drop_connections(1), 1);
    bed.until(|bed| bed.told.iter().filter(|notice| notice.contains("is back")).count() == 2);
    assert!(bed.read(0, MIB) == data);
}

#[test]
fn a_target_that_comes_back_with_another_disk_is_not_taken_for_the_same() {
    let Some(mut tgtd) = start("another") else { return };
    let mut bed = Bed::open(PLAIN, options(tgtd.port));
    bed.read(0, 4096);
    // Asking for the page that names the unit makes it known.
    assert_eq!(support::ask_for_identity(&bed.transport), ScsiStatus::GOOD);
    tgtd.kill();
    bed.until_told("lost with");
    tgtd.run();
    tgtd.target(1, PLAIN);
    tgtd.unit(1, 1, &tgtd.image("other", 64 << 20), &[]);
    tgtd.unit_parameters(1, 1, "scsi_id=IET another");
    bed.ahead += 60_000_000_000;
    bed.until_told("another logical unit 1");
    let read = transfer(false, 0, 4096, false);
    assert_eq!(bed.send(1, &read, Transferred::In(4096), 4096), Err(Refusal::Gone));
}

#[test]
fn task_management_is_answered_after_the_ends_it_brings() {
    let Some(tgtd) = start("manage") else { return };
    let mut bed = Bed::open(PLAIN, options(tgtd.port));
    bed.read(0, 4096);
    let soon = Duration::from_secs(30);
    // Nothing is in the slot.
    assert_eq!(bed.manage(Management::Abort { slot: 9 }, soon), ManagementAnswer::NoTask);
    assert_eq!(bed.manage(Management::LunReset(lun(1)), soon), ManagementAnswer::Complete);
    let reset = bed.run(&ScsiCommand::TestUnitReady, Transferred::Nothing);
    assert!(reset.is_good());
    // A stopped target gives no answer in time.
    tgtd.stop(true);
    bed.push(4, &transfer(false, 0, 4096, false), Transferred::In(4096), 4096);
    bed.commit();
    let late = bed.manage(Management::Abort { slot: 4 }, Duration::from_millis(200));
    assert_eq!(late, ManagementAnswer::Late);
    assert!(bed.ended.is_empty());
    tgtd.stop(false);
    bed.until(|bed| bed.ended.contains_key(&4));
    bed.ended.clear();
    // The connection is ended and made anew.
    let data = vec![3; MIB];
    bed.push(5, &transfer(true, 0, MIB, false), Transferred::Out(&data), MIB);
    bed.commit();
    assert_eq!(bed.manage(Management::SessionReset, soon), ManagementAnswer::Complete);
    assert_eq!(bed.ended[&5].end.delivery, Delivery::Disrupted);
    bed.ended.clear();
    bed.read(0, 4096);
}

#[test]
fn preparing_a_port_that_is_open_leaves_its_session_alone() {
    let Some(tgtd) = start("prepared") else { return };
    let mut bed = Bed::open(PLAIN, options(tgtd.port));
    let old = bed.read(0, 4096);
    bed.transport.prepare(0).expect("nothing to do");
    assert!(bed.transport.open(0).is_err(), "one port has one session");
    assert_eq!(bed.read(0, 4096), old);
    assert!(bed.told.is_empty(), "{:?}", bed.told);
    // One that was closed is opened anew, and what it had is left.
    let Bed { transport, port, .. } = bed;
    drop(port);
    assert_eq!(tgtd.drop_connections(1), 0, "the session was left");
    transport.prepare(0).expect("a session");
    assert!(transport.open(0).is_ok());
}

#[test]
fn discovery_finds_the_targets_and_their_disks_with_and_without_proof() {
    let Some(tgtd) = start("discovery") else { return };
    let options = options(tgtd.port);
    let found = discover(&options).expect("an answer");
    let names: Vec<_> = found.targets.iter().map(|target| target.name.to_string()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(names.contains(&PLAIN.to_owned()) && names.contains(&PROVED.to_owned()), "{names:?}");
    let why = units(&Iscsi::new(name(PROVED), options).expect("a target")).expect_err("refused");
    assert!(why.to_string().contains("authentication failure"), "{why}");
    let nothing = Options::new(support::portals(&[tgtd::free_port()]));
    let why = discover(&nothing).expect_err("nothing listens there");
    assert!(why.to_string().contains("refused"), "{why}");
}
