//! Changes of a target while its units are used: a size that grows, units that come and go.

mod bed;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use bed::disk::{Answer, Disk, sense};
use bed::port::{Reply, Script, adapter};
use bed::{Bench, SECOND, read, write};
use weir_bio::{Bio, Status, WriteCache};
use weir_proto_scsi::alua::AccessState;
use weir_proto_scsi::inquiry::Tpgs;
use weir_proto_scsi::{AdditionalSense, Lun, SenseKey};
use weir_queue::Driver;

const SYNCHRONIZE_CACHE_10: u8 = 0x35;

fn lun(number: u32) -> Lun {
    Lun::new(number).expect("a number that fits")
}

/// Has the next command end with this attention; the ones behind it end well.
fn attention(script: &Script, code: AdditionalSense) {
    let mut first = Some(sense(SenseKey::UnitAttention, code));
    script.reply(move |_| first.take().map_or_else(Reply::good, Reply::sense));
}

fn heard(bench: &Bench) -> Arc<AtomicU32> {
    let heard = Arc::new(AtomicU32::new(0));
    let counts = Arc::clone(&heard);
    let listener = Arc::new(move || _ = counts.fetch_add(1, Ordering::SeqCst));
    bench.units[0].device.on_change(listener);
    heard
}

#[test]
fn a_unit_that_has_grown_says_so_once_and_is_larger_when_it_is_asked() {
    let script = Script::new(adapter());
    let mut bench = Bench::new(&script);
    let heard = heard(&bench);
    for _ in 0..3 {
        attention(&script, AdditionalSense::CAPACITY_DATA_HAS_CHANGED);
        assert_eq!(bench.read_once(), [(1, Status::Ok)]);
    }
    assert_eq!(heard.load(Ordering::SeqCst), 1, "until it is asked");
    script.state().disks.get_mut(&Lun::ZERO).expect("a disk").blocks = 3 << 20;
    let device = bench.units[0].device.clone();
    assert_eq!(device.enlarge(0).expect("a size").sectors, 3 << 20);
    let told = bench.host.notices().all().join("\n");
    assert!(told.contains("LUN 0: its capacity has changed"), "{told}");
    assert!(told.contains("it has 3145728 sectors, before 2097152"), "{told}");
    // I/O behind the old end goes once the device is as large.
    let grow = |parts: &mut weir_queue::Settings| {
        parts.limits.grow_to(weir_bio::Size { sectors: 3 << 20, padding: 0 });
    };
    device.reconfigure(grow).expect("a size");
    bench.submit(0, write((3 << 20) - 8).cookie(2));
    bench.settle();
    assert_eq!(bench.ended(0), [(2, Status::Ok)]);
    attention(&script, AdditionalSense::CAPACITY_DATA_HAS_CHANGED);
    bench.read_once();
    assert_eq!(heard.load(Ordering::SeqCst), 2, "the next change is another");
    bench.end();
}

#[test]
fn a_unit_whose_cache_was_turned_on_says_so_and_is_flushed_once_it_was_asked() {
    let script = Script::new(adapter());
    script.state().disks.insert(Lun::ZERO, Disk { write_cache: false, ..Disk::default() });
    let mut bench = Bench::new(&script);
    let heard = heard(&bench);
    let device = bench.units[0].device.clone();
    let flushes = |bench: &mut Bench| {
        script.take_arrived();
        bench.submit(0, Bio::flush().cookie(2));
        bench.settle();
        assert_eq!(bench.ended(0), [(2, Status::Ok)]);
        let arrived = script.take_arrived();
        arrived.iter().filter(|command| command.cdb[0] == SYNCHRONIZE_CACHE_10).count()
    };
    assert_eq!((flushes(&mut bench), device.write_cache()), (0, WriteCache::default()));
    script.state().disks.get_mut(&Lun::ZERO).expect("a disk").write_cache = true;
    attention(&script, AdditionalSense::MODE_PARAMETERS_CHANGED);
    assert_eq!(bench.read_once(), [(1, Status::Ok)]);
    assert_eq!(
        (heard.load(Ordering::SeqCst), device.new_write_cache()),
        (1, None),
        "not asked yet"
    );
    device.enlarge(0).expect("a size");
    let on = WriteCache { volatile: true, fua: true };
    assert_eq!(device.new_write_cache(), Some(on));
    device.reconfigure(|_| ()).expect("a cache");
    assert_eq!((flushes(&mut bench), device.limits().write_cache()), (1, on));
    // One that cannot be asked may have it again.
    let refuses = |script: &Script, refuses: bool| {
        let answer =
            Answer::check(SenseKey::HardwareError, AdditionalSense::INTERNAL_TARGET_FAILURE);
        let answers = if refuses { vec![answer; 100] } else { Vec::new() };
        script.state().disks.get_mut(&Lun::ZERO).expect("a disk").first = [(0x12, answers)].into();
    };
    // Off again: the unit is asked for nothing.
    script.state().disks.get_mut(&Lun::ZERO).expect("a disk").write_cache = false;
    device.enlarge(0).expect("a size");
    assert_eq!((flushes(&mut bench), device.new_write_cache()), (0, None));
    refuses(&script, true);
    device.enlarge(0).expect_err("it does not say what it is");
    assert_eq!(flushes(&mut bench), 1);
    refuses(&script, false);
    device.enlarge(0).expect("a size");
    assert_eq!(flushes(&mut bench), 0);
    bench.end();
}

#[test]
fn a_unit_without_a_cache_that_was_reset_is_asked_for_one() {
    for write_cache in [false, true] {
        let script = Script::new(adapter());
        script.state().disks.insert(Lun::ZERO, Disk { write_cache, ..Disk::default() });
        let mut bench = Bench::new(&script);
        let heard = heard(&bench);
        attention(&script, AdditionalSense::POWER_ON_OR_RESET_OCCURRED);
        assert_eq!(bench.read_once(), [(1, Status::Ok)]);
        assert_eq!(heard.load(Ordering::SeqCst), u32::from(!write_cache));
        // Who listens later hears of it, until it is asked.
        let later = self::heard(&bench);
        assert_eq!(later.load(Ordering::SeqCst), u32::from(!write_cache));
        bench.units[0].device.enlarge(0).expect("a size");
        assert_eq!(self::heard(&bench).load(Ordering::SeqCst), 0);
        bench.end();
    }
}

#[test]
fn a_unit_that_does_not_say_whether_it_has_a_cache_is_taken_for_one_that_has() {
    let refused = (SenseKey::IllegalRequest, AdditionalSense::INVALID_FIELD_IN_CDB);
    let failed = (SenseKey::HardwareError, AdditionalSense::INTERNAL_TARGET_FAILURE);
    let standby = (SenseKey::NotReady, AdditionalSense::TARGET_PORT_IN_STANDBY_STATE);
    for (answer, opcodes, cached) in [
        (refused, &[0x1a][..], false),
        (failed, &[0x1a], true),
        (standby, &[0x00, 0x1a, 0x25, 0x9e], true),
    ] {
        for write_cache in [false, true] {
            let script = Script::new(adapter());
            let disk = Disk { write_cache, tpgs: Tpgs::Implicit, ..Disk::default() };
            script.state().disks.insert(Lun::ZERO, disk);
            let bench = Bench::new(&script);
            let device = &bench.units[0].device;
            {
                let mut state = script.state();
                let disk = state.disks.get_mut(&Lun::ZERO).expect("a disk");
                let answers = vec![Answer::check(answer.0, answer.1); 20];
                disk.first = opcodes.iter().map(|opcode| (*opcode, answers.clone())).collect();
                disk.access = match answer.0 {
                    SenseKey::NotReady => AccessState::Standby,
                    _ => AccessState::ActiveOptimized,
                };
            }
            assert_eq!(device.enlarge(0).expect("a size").sectors, 1 << 21, "{answer:?}");
            assert_eq!(device.write_cache().volatile, cached, "{answer:?} {write_cache}");
            bench.end();
        }
    }
}

#[test]
fn a_list_of_units_that_was_not_told_is_asked_for_again() {
    let script = Script::new(adapter());
    let mut bench = Bench::new(&script);
    let device = bench.units[0].device.clone();
    attention(&script, AdditionalSense::REPORTED_LUNS_DATA_HAS_CHANGED);
    bench.read_once();
    // No conversation gets through.
    let disk = script.state().disks.remove(&Lun::ZERO).expect("a disk");
    device.enlarge(0).expect_err("the list is not told");
    script.state().disks.insert(Lun::ZERO, Disk { luns: vec![lun(0), lun(3)], ..disk });
    device.enlarge(0).expect("a size");
    let told = bench.host.notices().all().join("\n");
    assert!(told.contains("LUN 3 is there, and no disk here"), "{told}");
    bench.end();
}

#[test]
fn a_reset_while_a_unit_is_asked_has_it_asked_again() {
    // It has a cache, so that a reset is no news of one but for the answer that is under way.
    let script = Script::new(adapter());
    let mut bench = Bench::new(&script);
    let heard = heard(&bench);
    let reset = |bench: &mut Bench| {
        attention(&script, AdditionalSense::POWER_ON_OR_RESET_OCCURRED);
        bench.read_once();
    };
    reset(&mut bench);
    assert_eq!(heard.load(Ordering::SeqCst), 0);
    let unit = Arc::clone(&bench.units[0].unit);
    std::thread::scope(|scope| {
        let (asked, answers) = script.hold_asking();
        let rescan = scope.spawn(|| unit.enlarge(0));
        asked.recv().expect("it is asked");
        reset(&mut bench);
        answers.send(()).expect("it waits for its answer");
        rescan.join().expect("no panic").expect("a size");
    });
    assert_eq!(heard.load(Ordering::SeqCst), 1);
    bench.end();
}

#[test]
fn a_unit_that_is_smaller_or_another_is_refused_and_stays_as_it_was() {
    let script = Script::new(adapter());
    let bench = Bench::new(&script);
    for (change, why) in [
        (Disk { blocks: 1 << 20, ..Disk::default() }, "size 1048576 sectors, before 2097152"),
        (Disk { name: [0x60, 9, 9, 9, 9, 9, 9, 9], ..Disk::default() }, "another disk now: name"),
    ] {
        script.state().disks.insert(Lun::ZERO, change);
        let error = bench.units[0].unit.enlarge(0).expect_err(why).to_string();
        assert!(error.contains(why), "{error}");
        assert_eq!(bench.units[0].unit.facts().disk.capacity.sectors(), 1 << 21);
    }
    bench.end();
}

#[test]
fn new_units_of_the_target_are_told_once_with_the_target_to_write() {
    let script = Script::new(adapter());
    let mut bench = Bench::new(&script);
    let heard = heard(&bench);
    let told = |bench: &Bench| {
        let all = bench.host.notices().all();
        all.into_iter().filter(|line| line.contains("is there, and no disk here")).count()
    };
    let look = |bench: &mut Bench, luns: &[u32]| {
        let list = luns.iter().map(|number| lun(*number)).collect();
        script.state().disks.get_mut(&Lun::ZERO).expect("a disk").luns = list;
        attention(&script, AdditionalSense::REPORTED_LUNS_DATA_HAS_CHANGED);
        bench.read_once();
        bench.units[0].device.enlarge(0).expect("a size");
    };
    look(&mut bench, &[0, 3, 300]);
    assert_eq!((told(&bench), heard.load(Ordering::SeqCst)), (2, 1));
    let all = bench.host.notices().all();
    let line = "script: LUN 3 is there, and no disk here: script:3";
    assert!(all.iter().any(|told| told == line), "{all:?}");
    look(&mut bench, &[0, 3, 300]);
    assert_eq!(told(&bench), 2, "they are known");
    look(&mut bench, &[0, 300]);
    look(&mut bench, &[0, 3, 300]);
    assert_eq!(told(&bench), 3, "one that was gone is new");
    // A rescan without such an attention asks for no list.
    script.state().disks.get_mut(&Lun::ZERO).expect("a disk").luns = vec![lun(0), lun(9)];
    bench.units[0].device.enlarge(0).expect("a size");
    assert_eq!(told(&bench), 3);
    bench.end();
}

#[test]
fn io_of_a_unit_that_is_gone_fails_and_the_log_says_why() {
    let script = Script::new(adapter());
    let mut bench = Bench::new(&script);
    let heard = heard(&bench);
    let gone = sense(SenseKey::IllegalRequest, AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED);
    script.reply(move |_| Reply::sense(gone.clone()));
    bench.submit(0, read(8).cookie(1));
    bench.pass(SECOND);
    assert_eq!((bench.ended(0), heard.load(Ordering::SeqCst)), (vec![(1, Status::IoErr)], 1));
    let told = bench.host.notices().all().join("\n");
    assert!(told.contains("LUN 0: the target has no such logical unit now"), "{told}");
    assert!(told.contains("failed: no such logical unit"), "{told}");
    bench.end();
}

#[test]
fn a_unit_whose_port_takes_no_io_keeps_its_size_and_is_asked_once_it_does() {
    let script = Script::new(adapter());
    let disk = Disk { tpgs: Tpgs::Implicit, ..Disk::default() };
    script.state().disks.insert(Lun::ZERO, disk);
    let mut bench = Bench::new(&script);
    let heard = heard(&bench);
    let unit = Arc::clone(&bench.units[0].unit);
    let stands_by = |script: &Script, name: [u8; 8]| {
        let mut state = script.state();
        let disk = state.disks.get_mut(&Lun::ZERO).expect("a disk");
        let code = AdditionalSense::TARGET_PORT_IN_STANDBY_STATE;
        let answer = vec![Answer::check(SenseKey::NotReady, code); 3];
        disk.first = [0x00, 0x1a, 0x25, 0x9e].map(|opcode| (opcode, answer.clone())).into();
        (disk.access, disk.name) = (AccessState::Standby, name);
    };
    let name = Disk::default().name;
    stands_by(&script, name);
    assert_eq!(unit.enlarge(0).expect("the size it had").sectors, 1 << 21);
    assert_eq!(unit.access().map(|access| access.state), Some(AccessState::Standby));
    assert!(unit.facts().disk.caching.is_some(), "what was known stands");
    // Another disk is one, whatever its size.
    stands_by(&script, [0x60; 8]);
    let why = unit.enlarge(0).expect_err("another disk").to_string();
    assert!(why.contains("another disk"), "{why}");
    assert_eq!(heard.load(Ordering::SeqCst), 0);
    let grown = Disk { tpgs: Tpgs::Implicit, blocks: 3 << 20, ..Disk::default() };
    script.state().disks.insert(Lun::ZERO, grown);
    let told = Arc::new(Mutex::new(Disk::default().port_group()));
    let report = Arc::clone(&told);
    script.reply(move |_| {
        let mut data = Vec::new();
        let one = std::slice::from_ref(&*report.lock().unwrap()).to_vec();
        weir_proto_scsi::alua::put_port_groups(&mut data, None, &one);
        Reply::data(data)
    });
    bench.units[0].device.target_port().expect("a port").refresh(bench.now);
    bench.settle();
    assert_eq!(heard.load(Ordering::SeqCst), 1, "it may be asked now");
    assert_eq!(unit.enlarge(0).expect("a size").sectors, 3 << 20);
    // The next time that the port takes I/O again it is not to be asked.
    for state in [AccessState::Standby, AccessState::ActiveOptimized] {
        told.lock().unwrap().state = state;
        bench.units[0].device.target_port().expect("a port").refresh(bench.now);
        bench.settle();
        assert_eq!(unit.access().map(|access| access.state), Some(state));
    }
    assert_eq!(heard.load(Ordering::SeqCst), 1);
    bench.end();
}

#[test]
fn a_unit_that_tells_its_size_in_standby_has_it_and_one_that_takes_io_has_to_tell() {
    let script = Script::new(adapter());
    script.state().disks.insert(Lun::ZERO, Disk { tpgs: Tpgs::Implicit, ..Disk::default() });
    let bench = Bench::new(&script);
    let unit = Arc::clone(&bench.units[0].unit);
    let becomes = |access, blocks, first| {
        let disk = Disk { tpgs: Tpgs::Implicit, access, blocks, first, ..Disk::default() };
        script.state().disks.insert(Lun::ZERO, disk);
    };
    becomes(AccessState::Standby, 3 << 20, [].into());
    assert_eq!(unit.enlarge(0).expect("a size").sectors, 3 << 20);
    let code = AdditionalSense::MEDIUM_NOT_PRESENT;
    let answer = vec![Answer::check(SenseKey::NotReady, code); 3];
    let first = [0x25, 0x9e].map(|opcode| (opcode, answer.clone())).into();
    becomes(AccessState::ActiveOptimized, 3 << 20, first);
    let why = unit.enlarge(0).expect_err("no size").to_string();
    assert!(why.contains("another disk"), "{why}");
    bench.end();
}
