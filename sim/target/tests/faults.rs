//! Faults: each does what it says, to the commands it is for, and to no other.

mod bed;

use bed::{Bed, MS, S, disk, flush, read, spec, write, write_fua};
use weir_bio::Nanos;
use weir_proto_scsi::{AdditionalSense, Opcode, ScsiCommand, ScsiStatus, SenseKey};
use weir_sim_target::{
    Action, CommandClass, ConnectError, Deed, Effect, Event, Fault, InitiatorId, LunChange,
    LunSpec, Managed, Management, PortHealth, PortId, PortSpec, Spec, Speed, TaskTag,
};

const TUR: ScsiCommand = ScsiCommand::TestUnitReady;

fn two_ports() -> Spec {
    let ports = [1, 2].map(|id| PortSpec { id, ..PortSpec::default() }).to_vec();
    Spec { ports, ..spec() }
}

fn dead(arrive: u32, after_ns: u64) -> Action {
    Action::Port { id: 1, health: PortHealth::Dead { arrive, after_ns } }
}

fn only(effect: Effect) -> Fault {
    Fault { effect, times: Some(1), ..Fault::default() }
}

#[test]
fn a_rule_counts_for_its_port_initiator_lun_class_opcode_range_and_time_alone() {
    let luns = vec![disk(), LunSpec { number: 1, ..disk() }];
    let busy = Effect::status(ScsiStatus::BUSY);
    let rule = Fault { effect: busy, ..Fault::default() };
    let (reads, at) = (Some(CommandClass::Read), Some(Opcode::READ_16.0));
    // Of each rule a command that meets it is the read of block 8 of LUN 0 by port 1; the others
    // are told by number: 0 another port, 1 another initiator, 2 LUN, 3 class, 4 opcode, 5 below,
    // 6 behind, 7 later.
    let rules: [(Fault, &[usize]); 8] = [
        (Fault { port: Some(1), ..rule.clone() }, &[0]),
        (Fault { initiator: Some(1), ..rule.clone() }, &[1]),
        (Fault { lun: Some(0), ..rule.clone() }, &[2]),
        (Fault { class: reads, ..rule.clone() }, &[3]),
        (Fault { opcode: at, ..rule.clone() }, &[3, 4]),
        (Fault { first_block: Some(8), ..rule.clone() }, &[5, 6]),
        (Fault { last_block: Some(8), ..rule.clone() }, &[6]),
        (Fault { until_ns: Some(S), ..rule.clone() }, &[7]),
    ];
    for (rule, spared) in rules {
        let mut bed = Bed::new(Spec { luns: luns.clone(), ..two_ports() });
        let [a, b, c] = [(1, 1), (2, 1), (1, 2)].map(|(port, who)| bed.login(port, who));
        bed.fault(rule.clone());
        let ten = |lba| {
            let size = weir_proto_scsi::CdbSize::Ten;
            let fua = false;
            ScsiCommand::Read(weir_proto_scsi::command::Transfer {
                size,
                lba,
                blocks: 1,
                dpo: false,
                fua,
            })
        };
        assert!(!bed.to(a, 0, read(8, 1), &[]).is_good(), "{rule:?}");
        let others = [
            (b, 0, read(8, 1)),
            (c, 0, read(8, 1)),
            (a, 1, read(8, 1)),
            (a, 0, write(8, 1)),
            (a, 0, ten(8)),
            (a, 0, read(7, 1)),
            (a, 0, read(9, 1)),
        ];
        for (number, (nexus, lun, command)) in others.into_iter().enumerate() {
            let data: &[u8] =
                if matches!(command, ScsiCommand::Write(_)) { &[1; 512] } else { &[] };
            let good = bed.to(nexus, lun, command, data).is_good();
            assert_eq!(good, spared.contains(&number), "{rule:?}: {number}");
        }
        bed.now = Nanos(S);
        assert_eq!(bed.to(a, 0, read(8, 1), &[]).is_good(), spared.contains(&7), "{rule:?}");
    }
}

#[test]
fn skip_times_and_from_say_which_of_the_commands_meet_a_rule() {
    let (mut bed, nexus) = Bed::ready(spec());
    let effect = Effect::status(ScsiStatus::BUSY);
    bed.fault(Fault { effect, skip: 2, times: Some(3), from_ns: S, ..Fault::default() });
    assert!(bed.to(nexus, 0, TUR, &[]).is_good(), "too early, and not counted");
    bed.now = Nanos(S);
    let good: Vec<bool> = (0..8).map(|_| bed.to(nexus, 0, TUR, &[]).is_good()).collect();
    assert_eq!(good, [true, true, false, false, false, true, true, true]);
}

#[test]
fn the_first_rule_that_fits_counts_and_a_chance_is_met_about_as_often() {
    let (mut bed, nexus) = Bed::ready(spec());
    let busy = Effect::status(ScsiStatus::BUSY);
    bed.fault(Fault { effect: busy, chance: 25, ..Fault::default() });
    bed.fault(Fault { effect: Effect::status(ScsiStatus::TASK_ABORTED), ..Fault::default() });
    let ends: Vec<_> = (0..1000).map(|_| bed.to(nexus, 0, TUR, &[]).end.status).collect();
    let busy = ends.iter().filter(|status| **status == ScsiStatus::BUSY).count();
    assert!((200..300).contains(&busy), "{busy} of 1000, seed 1");
    assert!(ends.iter().all(|status| *status != ScsiStatus::GOOD), "the second takes the rest");
}

#[test]
fn a_stuck_command_keeps_its_place_until_it_is_aborted() {
    let luns = vec![LunSpec { queue_depth: 1, ..disk() }];
    let (mut bed, nexus) = Bed::ready(Spec { luns, ..spec() });
    bed.fault(only(Effect::Stuck));
    let tag = bed.start(nexus, 0, write(0, 1), &[7; 512]);
    assert!(bed.next().is_none());
    assert_eq!(bed.to(nexus, 0, TUR, &[]).end.status, ScsiStatus::TASK_SET_FULL);
    let abort = Management::AbortTask(tag);
    assert_eq!(bed.target.manage(nexus, abort, bed.now), Managed::Complete);
    assert_eq!(bed.target.manage(nexus, abort, bed.now), Managed::NoTask);
    assert!(bed.to(nexus, 0, TUR, &[]).is_good());
    assert_eq!(bed.byte(0, 0), 0);
}

#[test]
fn a_dropped_command_was_never_there() {
    let (mut bed, nexus) = Bed::ready(spec());
    bed.fault(only(Effect::Dropped));
    let tag = bed.start(nexus, 0, write(0, 1), &[7; 512]);
    assert_eq!(bed.target.tasks(), 0);
    assert_eq!(bed.target.manage(nexus, Management::AbortTask(tag), bed.now), Managed::NoTask);
    assert!(bed.next().is_none());
    assert_eq!(bed.byte(0, 0), 0);
}

#[test]
fn an_unanswered_write_lands_late_and_an_abort_before_that_keeps_it_from_landing() {
    for aborted in [false, true] {
        let (mut bed, nexus) = Bed::ready(spec());
        bed.fault(only(Effect::Unanswered { after_ns: 5 * S }));
        let tag = bed.start(nexus, 0, write(0, 1), &[7; 512]);
        assert!(bed.until(Nanos(4 * S)).is_empty());
        assert_eq!(bed.byte(0, 0), 0, "not yet");
        if aborted {
            let abort = Management::AbortTask(tag);
            assert_eq!(bed.target.manage(nexus, abort, bed.now), Managed::Complete);
        }
        assert!(bed.until(Nanos(6 * S)).is_empty(), "no answer ever");
        assert_eq!(bed.byte(0, 0), if aborted { 0 } else { 7 });
    }
}

#[test]
fn a_write_that_lands_on_a_newer_acknowledged_one_is_found() {
    for fenced in [false, true] {
        let (mut bed, nexus) = Bed::ready(two_ports());
        let other = bed.login(2, 1);
        bed.target.apply(dead(100, 5 * S), bed.now).unwrap();
        bed.start(nexus, 0, write(8, 8), &[1; 4096]);
        if fenced {
            bed.target.disconnect(nexus, bed.now);
        }
        bed.to(other, 0, write(8, 8), &[1; 4096]).good();
        bed.to(other, 0, write(12, 1), &[2; 512]).good();
        bed.until(Nanos(10 * S));
        assert_eq!(bed.byte(0, 12), if fenced { 2 } else { 1 });
        let stale = bed.target.stale_landings();
        assert_eq!(stale.len(), usize::from(!fenced));
        assert!(stale.iter().all(|stale| stale.older < stale.newer && stale.range.lba == 8));
    }
}

#[test]
fn a_write_that_was_never_acknowledged_makes_no_older_one_stale() {
    let (mut bed, nexus) = Bed::ready(spec());
    bed.fault(only(Effect::Unanswered { after_ns: 5 * S }));
    bed.fault(only(Effect::Unanswered { after_ns: S }));
    bed.start(nexus, 0, write(0, 1), &[1; 512]);
    bed.start(nexus, 0, write(0, 1), &[2; 512]);
    bed.until(Nanos(2 * S));
    assert_eq!(bed.byte(0, 0), 2);
    bed.until(Nanos(6 * S));
    assert_eq!(bed.byte(0, 0), 1);
    assert_eq!(bed.target.stale_landings(), []);
}

#[test]
fn a_dead_port_answers_nothing_manages_nothing_and_takes_no_initiator() {
    let (mut bed, nexus) = Bed::ready(two_ports());
    let under_way = bed.start(nexus, 0, write(0, 1), &[1; 512]);
    bed.target.apply(dead(0, 0), bed.now).unwrap();
    let lost = bed.start(nexus, 0, write(1, 1), &[2; 512]);
    assert!(bed.next().is_none());
    assert_eq!((bed.byte(0, 0), bed.byte(0, 1)), (1, 0), "what was there is carried out");
    let abort = Management::AbortTask(lost);
    assert_eq!(bed.target.manage(nexus, abort, bed.now), Managed::Lost);
    let refused = bed.target.connect(PortId(1), InitiatorId(9), bed.now);
    assert_eq!(refused, Err(ConnectError::Dead));
    let deeds: Vec<_> =
        bed.target.journal().filter(|entry| entry.tag == under_way).map(|e| e.deed).collect();
    assert!(matches!(deeds[..], [Deed::Landed(_), Deed::Unanswered]), "{deeds:?}");
    let up = Action::Port { id: 1, health: PortHealth::Up };
    bed.target.apply(up, bed.now).unwrap();
    bed.to(nexus, 0, TUR, &[]).good();
    assert_eq!(bed.byte(0, 1), 0, "it does not come back");
}

#[test]
fn of_the_commands_to_a_dead_port_the_seed_chooses_those_that_arrive() {
    let landed = |seed| {
        let (mut bed, nexus) = Bed::ready(Spec { seed, ..spec() });
        bed.target.apply(dead(50, S), bed.now).unwrap();
        for lba in 0..100 {
            bed.start(nexus, 0, write(lba, 1), &[1; 512]);
        }
        bed.until(Nanos(2 * S));
        (0..100).filter(|lba| bed.byte(0, *lba) == 1).collect::<Vec<_>>()
    };
    assert!((30..70).contains(&landed(1).len()));
    assert_eq!(landed(1), landed(1));
    assert_ne!(landed(1), landed(2));
}

#[test]
fn slow_ports_delayed_commands_and_bandwidths_take_their_time() {
    let speed = |latency_ns, bandwidth| Speed { latency_ns, bandwidth, ..Speed::default() };
    let ports = vec![PortSpec { speed: speed(3 * MS, 512_000), ..PortSpec::default() }];
    let luns = vec![LunSpec { speed: speed(2 * MS, 0), ..disk() }];
    let (mut bed, nexus) = Bed::ready(Spec { ports, luns, ..spec() });
    let took = |bed: &mut Bed| {
        let start = bed.now;
        bed.send(nexus, 0, read(0, 1).encode().unwrap().bytes(), &[], 512);
        bed.next().unwrap().good();
        bed.now.since(start)
    };
    bed.now = Nanos(100 * S);
    assert_eq!(took(&mut bed), 6 * MS, "3 at the port, 2 at the unit, 1 for 512 bytes");
    let slow = Action::Port { id: 1, health: PortHealth::Slow { by_ns: 10 * MS } };
    bed.target.apply(slow, bed.now).unwrap();
    assert_eq!(took(&mut bed), 16 * MS);
    bed.fault(only(Effect::Delayed { by_ns: 100 * MS }));
    assert_eq!(took(&mut bed), 116 * MS);
    let start = bed.now;
    for _ in 0..4 {
        bed.send(nexus, 0, read(0, 1).encode().unwrap().bytes(), &[], 512);
    }
    let ends: Vec<u64> =
        std::iter::from_fn(|| bed.next().map(|_| bed.now.since(start) / MS)).collect();
    assert_eq!(ends, [16, 17, 18, 19], "one behind the other");
}

#[test]
fn a_spread_makes_commands_overtake_each_other() {
    let speed = Speed { latency_ns: MS, spread_ns: MS, bandwidth: 0 };
    let luns = vec![LunSpec { speed, ..disk() }];
    let (mut bed, nexus) = Bed::ready(Spec { luns, ..spec() });
    let tags: Vec<TaskTag> = (0..50).map(|_| bed.start(nexus, 0, TUR, &[])).collect();
    let ends: Vec<TaskTag> = std::iter::from_fn(|| bed.next().map(|e| e.end.tag)).collect();
    assert_ne!(tags, ends);
    let sorted = {
        let mut ends = ends;
        ends.sort();
        ends
    };
    assert_eq!(tags, sorted, "each ends once");
}

#[test]
fn a_medium_error_names_the_first_block_and_gives_those_before() {
    let (mut bed, nexus) = Bed::ready(spec());
    bed.to(nexus, 0, write(0, 8), &[9; 4096]).good();
    let (first_block, last_block) = (Some(5), Some(100));
    bed.fault(Fault { first_block, last_block, effect: Effect::Medium, ..Fault::default() });
    let ended = bed.to(nexus, 0, read(2, 8), &[]);
    ended.fails(SenseKey::MediumError, AdditionalSense::UNRECOVERED_READ_ERROR);
    assert_eq!(ended.sense().unwrap().information, Some(5));
    assert_eq!(ended.data, [9; 3 * 512]);
    let ended = bed.to(nexus, 0, read(50, 1), &[]);
    assert_eq!((ended.sense().unwrap().information, ended.data.len()), (Some(50), 0));
    let ended = bed.to(nexus, 0, write(4, 4), &[8; 2048]);
    ended.fails(SenseKey::MediumError, AdditionalSense::WRITE_ERROR);
    assert_eq!(ended.end.moved_out, 512);
    assert_eq!([4, 5].map(|lba| bed.byte(0, lba)), [8, 9]);
    bed.to(nexus, 0, read(0, 5), &[]).good();
}

#[test]
fn a_deferred_error_comes_with_the_next_command_of_its_nexus_which_is_not_carried_out() {
    let (mut bed, nexus) = Bed::ready(spec());
    let other = bed.login(1, 2);
    bed.fault(only(Effect::Deferred { key: 3, code: 0x0c00 }));
    bed.to(nexus, 0, write(0, 1), &[1; 512]).good();
    bed.to(other, 0, TUR, &[]).good();
    let ended = bed.to(nexus, 0, write(1, 1), &[2; 512]);
    ended.fails(SenseKey::MediumError, AdditionalSense::WRITE_ERROR);
    assert!(ended.sense().unwrap().deferred);
    assert_eq!([0, 1].map(|lba| bed.byte(0, lba)), [1, 0]);
    bed.to(nexus, 0, flush(), &[]).good();
}

#[test]
fn garbled_and_missing_sense_come_with_check_condition() {
    let (mut bed, nexus) = Bed::ready(spec());
    bed.fault(Fault { effect: Effect::Garbled, times: Some(200), ..Fault::default() });
    bed.fault(only(Effect::Senseless));
    let mut lengths = std::collections::BTreeSet::new();
    for _ in 0..200 {
        let ended = bed.to(nexus, 0, read(0, 1), &[]);
        assert_eq!(ended.end.status, ScsiStatus::CHECK_CONDITION);
        lengths.insert(ended.end.sense.len());
    }
    assert!(lengths.len() > 30 && !lengths.contains(&0), "{lengths:?}");
    let ended = bed.to(nexus, 0, read(0, 1), &[]);
    assert_eq!((ended.end.status, ended.end.sense.len()), (ScsiStatus::CHECK_CONDITION, 0));
}

#[test]
fn a_full_task_set_says_busy_to_a_nexus_that_has_no_command_in_it() {
    let luns = vec![LunSpec { queue_depth: 2, ..disk() }, LunSpec { number: 1, ..disk() }];
    let (mut bed, nexus) = Bed::ready(Spec { luns, queue_depth: 3, ..spec() });
    let other = bed.login(1, 2);
    bed.fault(Fault { effect: Effect::Stuck, times: Some(3), ..Fault::default() });
    bed.start(nexus, 0, TUR, &[]);
    bed.start(nexus, 0, TUR, &[]);
    assert_eq!(bed.to(nexus, 0, TUR, &[]).end.status, ScsiStatus::TASK_SET_FULL);
    assert_eq!(bed.to(other, 0, TUR, &[]).end.status, ScsiStatus::BUSY);
    bed.start(nexus, 1, TUR, &[]);
    assert_eq!(bed.to(nexus, 1, TUR, &[]).end.status, ScsiStatus::TASK_SET_FULL, "the target is");
    bed.target.disconnect(nexus, bed.now);
    bed.to(other, 0, TUR, &[]).good();
}

#[test]
fn a_full_thin_store_refuses_new_pages_until_some_are_freed() {
    let luns = vec![LunSpec { thin: 2 * 4096, ..disk() }];
    let (mut bed, nexus) = Bed::ready(Spec { luns, ..spec() });
    bed.to(nexus, 0, write(0, 16), &[1; 8192]).good();
    bed.to(nexus, 0, write(3, 4), &[2; 2048]).good();
    let code = AdditionalSense::SPACE_ALLOCATION_FAILED_WRITE_PROTECT;
    bed.to(nexus, 0, write(15, 2), &[3; 1024]).fails(SenseKey::DataProtect, code);
    assert_eq!(bed.byte(0, 15), 1, "none of it is written");
    let mut list = Vec::new();
    let range = weir_proto_scsi::unmap::UnmapRange { lba: 0, blocks: 8 };
    weir_proto_scsi::unmap::put_unmap_list(&mut list, &[range]).unwrap();
    let unmap = ScsiCommand::Unmap { anchor: false, length: list.len() as u16 };
    bed.to(nexus, 0, unmap, &list).good();
    bed.to(nexus, 0, write(15, 2), &[3; 1024]).good();
    assert_eq!([0, 7, 14, 16].map(|lba| bed.byte(0, lba)), [0, 0, 1, 3]);
}

#[test]
fn events_of_the_script_happen_at_their_times_whether_or_not_there_are_commands() {
    let at = |at_ns, action| Event { at_ns, action };
    let offline = Action::Lun { number: 0, change: LunChange::Offline };
    let online = Action::Lun { number: 0, change: LunChange::Online };
    let events = vec![at(2 * S, online), at(S, offline)];
    let (mut bed, nexus) = Bed::ready(Spec { events, ..spec() });
    assert_eq!(bed.target.wake_at(), Some(Nanos(S)));
    bed.until(Nanos(S));
    let becoming = AdditionalSense::BECOMING_READY;
    bed.to(nexus, 0, TUR, &[]).fails(SenseKey::NotReady, becoming);
    bed.until(Nanos(2 * S));
    let ready = AdditionalSense::MEDIUM_MAY_HAVE_CHANGED;
    bed.to(nexus, 0, TUR, &[]).fails(SenseKey::UnitAttention, ready);
    bed.to(nexus, 0, write_fua(0, 1), &[1; 512]).good();
    assert_eq!(bed.target.wake_at(), None);
}
