//! What a probe finds, and what it makes of targets that are old, busy, or no disks.

mod bed;

use bed::disk::{Answer, Disk};
use bed::port::{Script, adapter};
use weir_driver_scsi::{Facts, Host, HostOptions, LunProbe, Probe, Unit, UnitOptions};
use weir_proto_scsi::alua::AccessState;
use weir_proto_scsi::decide::Delivery;
use weir_proto_scsi::inquiry::{Peripheral, Tpgs};
use weir_proto_scsi::limits::DiscardBy;
use weir_proto_scsi::{AdditionalSense, Lun, ScsiStatus, SenseKey};
use weir_queue::Driver;

fn probe(disk: &mut Disk) -> Result<Facts, String> {
    let mut probe = Probe::new(Lun::ZERO);
    disk.ask(&mut probe);
    probe.finish().map_err(|why| why.to_string())
}

fn opcodes(disk: &Disk) -> Vec<u8> {
    disk.log.iter().map(|cdb| cdb[0]).collect()
}

#[test]
fn a_modern_disk_is_known_by_name_size_cache_and_what_it_takes() {
    let mut disk = Disk::default();
    let facts = probe(&mut disk).expect("a disk");
    assert_eq!(facts.inquiry.vendor_text(), "WEIR");
    assert_eq!(facts.wwid.as_ref().expect("a name").to_string(), "naa.6001020304050607");
    assert_eq!(facts.serial.as_deref(), Some("serial-1"));
    assert_eq!((facts.port, facts.group, facts.access), (Some(7), Some(0x101), None));
    let limits = facts.disk_limits();
    assert_eq!((limits.capacity, limits.volatile_cache, limits.fua), (1 << 21, true, true));
    assert_eq!(limits.discard, DiscardBy::Unmap);
    assert!(limits.max_write_zeroes_sectors > 0 && !limits.rotational);
    let codes: Vec<u8> = facts.pages.iter().map(|(code, _)| *code).collect();
    assert_eq!(codes, [0, 0x80, 0x83, 0xb0, 0xb1, 0xb2]);
    assert_eq!(facts.inquiry_bytes.len(), 74, "the long form was asked for");
    // INQUIRY twice, TUR, capacity, six pages, modes, two reports.
    let asked = [0x12, 0x12, 0, 0x9e, 0x12, 0x12, 0x12, 0x12, 0x12, 0x12, 0x1a, 0x1a, 0xa3, 0xa3];
    assert_eq!(opcodes(&disk), asked);
}

#[test]
fn an_old_disk_is_asked_for_no_page_and_by_the_short_capacity() {
    let mut disk = Disk { version: 4, write_cache: false, ..Disk::default() };
    let facts = probe(&mut disk).expect("a disk");
    assert_eq!((facts.wwid.clone(), facts.pages.len()), (None, 0));
    assert_eq!(facts.disk_limits().capacity, 1 << 21);
    assert!(!opcodes(&disk).contains(&0x9e));
    assert_eq!(disk.log.iter().filter(|cdb| cdb[0] == 0x12 && cdb[1] == 1).count(), 0);
}

#[test]
fn an_old_disk_too_large_for_the_short_capacity_is_asked_by_the_long_one() {
    let mut disk = Disk { version: 4, blocks: 1 << 33, ..Disk::default() };
    disk.first.insert(0x9e, vec![]);
    let facts = probe(&mut disk).expect("a disk");
    // This one refuses the long form as well, so its size is not known.
    assert_eq!(facts.disk_limits().capacity, 0);
    assert!(opcodes(&disk).contains(&0x9e));
}

#[test]
fn a_unit_attention_or_a_busy_target_has_the_command_sent_again() {
    let attention =
        || Answer::check(SenseKey::UnitAttention, AdditionalSense::POWER_ON_OR_RESET_OCCURRED);
    let busy = || Answer { status: ScsiStatus::BUSY, ..Answer::good(vec![]) };
    let mut disk = Disk::default();
    disk.first.insert(0x12, vec![attention(), busy()]);
    disk.first.insert(0, vec![attention(), attention(), attention()]);
    disk.first.insert(0x9e, vec![busy()]);
    let facts = probe(&mut disk).expect("a disk");
    assert_eq!(facts.disk_limits().capacity, 1 << 21);
    assert_eq!(opcodes(&disk).iter().filter(|code| **code == 0).count(), 4);
}

#[test]
fn a_command_that_never_succeeds_is_not_sent_for_ever() {
    let busy = Answer { status: ScsiStatus::BUSY, ..Answer::good(vec![]) };
    let mut disk = Disk::default();
    disk.first.insert(0x12, vec![busy; 100]);
    let why = probe(&mut disk).expect_err("it stays busy");
    assert_eq!((disk.log.len(), why.as_str()), (5, "INQUIRY: status BUSY"));
}

#[test]
fn a_stopped_disk_is_started_once() {
    let stopped =
        || Answer::check(SenseKey::NotReady, AdditionalSense::INITIALIZING_COMMAND_REQUIRED);
    let mut disk = Disk::default();
    disk.first.insert(0, vec![stopped()]);
    probe(&mut disk).expect("a disk");
    assert_eq!(opcodes(&disk).iter().filter(|code| **code == 0x1b).count(), 1);
    let mut disk = Disk::default();
    disk.first.insert(0, vec![stopped(), stopped(), stopped()]);
    probe(&mut disk).expect("a disk all the same");
    assert_eq!(opcodes(&disk).iter().filter(|code| **code == 0x1b).count(), 1);
}

#[test]
fn what_is_no_disk_or_not_there_is_refused_in_words() {
    let mut tape = Disk { peripheral: Peripheral(1), ..Disk::default() };
    let why = probe(&mut tape).expect_err("a tape");
    assert_eq!(why, "INQUIRY: LUN 0 is a device of type 01h, not a disk (00h)");
    let mut none = Disk { peripheral: Peripheral::ABSENT, ..Disk::default() };
    let why = probe(&mut none).expect_err("nothing");
    assert_eq!(why, "INQUIRY: there is no logical unit with LUN 0");
}

#[test]
fn a_lost_connection_ends_the_probe_at_once() {
    let lost = Answer { delivery: Delivery::NoConnect, ..Answer::good(vec![]) };
    let mut disk = Disk::default();
    disk.first.insert(0x1a, vec![lost]);
    let why = probe(&mut disk).expect_err("no connection");
    assert_eq!(why, "MODE SENSE 6: NoConnect");
}

#[test]
fn a_disk_behind_a_standby_port_is_known_by_name_and_state_and_has_no_size_yet() {
    let standby =
        || Answer::check(SenseKey::NotReady, AdditionalSense::TARGET_PORT_IN_STANDBY_STATE);
    let mut disk = Disk { tpgs: Tpgs::Implicit, access: AccessState::Standby, ..Disk::default() };
    disk.first.insert(0, vec![standby(); 9]);
    disk.first.insert(0x9e, vec![standby(); 9]);
    disk.first.insert(0x25, vec![standby(); 9]);
    let facts = probe(&mut disk).expect("a disk");
    let access = facts.access.expect("a state");
    assert_eq!((access.group, access.state), (0x101, AccessState::Standby));
    assert!(facts.wwid.is_some());
    assert_eq!(facts.disk_limits().capacity, 0);
}

#[test]
fn hostile_answers_end_the_probe_within_bounds() {
    let mut prng = weir_bio::Prng::new(1);
    for round in 0..2000 {
        let mut disk = Disk { tpgs: Tpgs::Both, ..Disk::default() };
        for code in [0x12, 0x9e, 0x25, 0x1a, 0xa3] {
            let mut answers = Vec::new();
            for _ in 0..prng.next() % 12 {
                let len = prng.next() % 300;
                let data = (0..len).map(|_| prng.next() as u8).collect();
                let status = ScsiStatus(prng.next() as u8 & 0x3a);
                let sense = (0..prng.next() % 20).map(|_| prng.next() as u8).collect();
                answers.push(Answer { status, sense, ..Answer::good(data) });
            }
            disk.first.insert(code, answers);
        }
        _ = probe(&mut disk);
        assert!(disk.log.len() < 200, "round {round}: {} commands", disk.log.len());
    }
}

fn luns(disk: &mut Disk) -> Vec<Lun> {
    let mut probe = LunProbe::default();
    disk.ask(&mut probe);
    probe.finish().expect("a list")
}

#[test]
fn a_thousand_luns_are_listed_in_order_and_once() {
    let list: Vec<Lun> = (0..1000).rev().map(|n| Lun::new(n).expect("a LUN")).collect();
    let mut disk = Disk { luns: [list.clone(), list].concat(), ..Disk::default() };
    let found = luns(&mut disk);
    assert_eq!((found.len(), found[0]), (1000, Lun::ZERO));
    assert!(found.is_sorted());
    assert_eq!(disk.log.len(), 2, "asked again with room for all");
}

#[test]
fn a_target_without_report_luns_has_lun_zero() {
    let refused =
        || Answer::check(SenseKey::IllegalRequest, AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED);
    let mut disk = Disk::default();
    disk.first.insert(0xa0, vec![refused(), refused()]);
    assert_eq!(luns(&mut disk), [Lun::ZERO]);
    let mut disk = Disk { luns: vec![Lun::new(3).expect("a LUN")], ..Disk::default() };
    disk.first.insert(0xa0, vec![refused()]);
    assert_eq!(luns(&mut disk).len(), 1, "the well-known logical unit has the list");
}

#[test]
fn a_disk_that_grew_is_found_by_asking_anew_and_another_disk_is_refused() {
    let script = Script::new(adapter());
    let host = Host::new(std::sync::Arc::new(script.clone()), HostOptions::default());
    let unit = Unit::open(&host, Lun::ZERO, UnitOptions::default()).expect("a disk");
    script.state().disks.get_mut(&Lun::ZERO).expect("it").blocks = 1 << 22;
    assert_eq!(unit.enlarge(0).expect("a size").sectors, 1 << 22);
    script.state().disks.get_mut(&Lun::ZERO).expect("it").blocks = 1 << 20;
    let why = unit.enlarge(0).expect_err("it shrank").to_string();
    let words = "it is another disk now: size 1048576 sectors, before 4194304";
    assert_eq!(why, format!("script: LUN 0: {words}"));
    script.state().disks.insert(Lun::ZERO, Disk { name: [0x61; 8], ..Disk::default() });
    let why = unit.enlarge(0).expect_err("another").to_string();
    assert!(why.contains("name naa.6161616161616161, before naa.6001020304050607"), "{why}");
    assert_eq!(unit.facts().disk_limits().capacity, 1 << 22, "as it was");
}
