//! Nexuses and what they are told: attentions, target port groups, task management, reservations.

mod bed;

use bed::{Bed, S, disk, read, spec, write};
use weir_bio::Nanos;
use weir_proto_scsi::alua::{AccessState, PortGroups, StateCause, StateWish, put_state_wishes};
use weir_proto_scsi::command::{ModeSense, PageControl, ReserveOut};
use weir_proto_scsi::reservation::{
    ReservationKey, ReservationType, ReserveCapabilities, ReserveInAction, ReserveInList,
    ReserveOutAction, ReserveOutList,
};
use weir_proto_scsi::{AdditionalSense, Lun, ScsiCommand, ScsiStatus, SenseKey};
use weir_sim_target::{
    Action, Effect, Fault, GroupSpec, LunChange, LunSpec, Managed, Management, NexusId, PortSpec,
    Spec,
};

const TUR: ScsiCommand = ScsiCommand::TestUnitReady;
const POWER_ON: AdditionalSense = AdditionalSense::POWER_ON_OR_RESET_OCCURRED;
const CHANGED: AdditionalSense = AdditionalSense::ASYMMETRIC_ACCESS_STATE_CHANGED;

/// Ports 1 and 2 in group 1, port 3 in group 2, which is in standby.
fn array() -> Spec {
    let ports =
        [(1, 1), (2, 1), (3, 2)].map(|(id, group)| PortSpec { id, group, ..PortSpec::default() });
    let standby = GroupSpec { id: 2, state: AccessState::Standby, preferred: true };
    Spec { ports: ports.to_vec(), groups: vec![GroupSpec::default(), standby], ..spec() }
}

fn report() -> ScsiCommand {
    ScsiCommand::ReportTargetPortGroups { extended: true, allocation: 1024 }
}

fn states(bed: &mut Bed, nexus: NexusId) -> Vec<(u16, AccessState, StateCause, Vec<u16>)> {
    let bytes = bed.to(nexus, 0, report(), &[]).good();
    let groups = PortGroups::decode(&bytes).unwrap();
    groups.groups().map(|it| (it.group, it.state, it.cause, it.ports().collect())).collect()
}

fn set(bed: &mut Bed, nexus: NexusId, group: u16, state: AccessState) -> bed::Ended {
    let mut list = Vec::new();
    put_state_wishes(&mut list, &[StateWish { state, group }]);
    let length = list.len() as u32;
    bed.to(nexus, 0, ScsiCommand::SetTargetPortGroups { length }, &list)
}

#[test]
fn a_new_nexus_hears_of_power_on_once_for_each_unit() {
    let luns = vec![disk(), LunSpec { number: 1, ..disk() }];
    let mut bed = Bed::new(Spec { luns, ..spec() });
    let nexus = bed.connect(1, 1);
    for lun in [0, 1] {
        bed.to(nexus, lun, read(0, 1), &[]).fails(SenseKey::UnitAttention, POWER_ON);
        bed.to(nexus, lun, read(0, 1), &[]).good();
    }
}

#[test]
fn attentions_are_told_in_their_order_each_once_and_a_reset_replaces_them() {
    let (mut bed, nexus) = Bed::ready(array());
    let resize = |size| Action::Lun { number: 0, change: LunChange::Resize(size) };
    let group = |state| Action::Group { id: 2, state };
    let change = |bed: &mut Bed| {
        for action in [resize(4096), group(AccessState::ActiveOptimized), resize(8192)] {
            bed.target.apply(action, bed.now).unwrap();
        }
    };
    change(&mut bed);
    for code in [AdditionalSense::CAPACITY_DATA_HAS_CHANGED, CHANGED] {
        bed.to(nexus, 0, TUR, &[]).fails(SenseKey::UnitAttention, code);
    }
    bed.to(nexus, 0, TUR, &[]).good();
    change(&mut bed);
    bed.target.manage(nexus, Management::LunReset(Lun::ZERO), bed.now);
    bed.to(nexus, 0, TUR, &[]).fails(SenseKey::UnitAttention, POWER_ON);
    bed.to(nexus, 0, TUR, &[]).good();
}

#[test]
fn the_same_initiator_at_the_same_port_ends_its_former_nexus_and_its_commands() {
    let (mut bed, old) = Bed::ready(array());
    bed.fault(Fault { effect: Effect::Unanswered { after_ns: S }, ..Fault::default() });
    bed.start(old, 0, write(0, 1), &[1; 512]);
    bed.target.clear_faults();
    let other = bed.connect(2, 1);
    assert!(bed.target.is_connected(old));
    let new = bed.connect(1, 1);
    assert!(!bed.target.is_connected(old) && bed.target.is_connected(other));
    assert_ne!(old, new);
    bed.until(Nanos(2 * S));
    assert_eq!(bed.byte(0, 0), 0, "a write of a nexus that has ended never lands");
    assert_eq!(bed.target.manage(old, Management::TargetWarmReset, bed.now), Managed::Lost);
}

#[test]
fn each_state_of_a_group_refuses_what_the_standard_has_it_refuse() {
    let mode = ScsiCommand::ModeSense(ModeSense {
        ten: false,
        no_descriptors: true,
        control: PageControl::Current,
        page: 0x08,
        subpage: 0,
        allocation: 64,
    });
    let inquiry = ScsiCommand::Inquiry { page: None, allocation: 36 };
    let commands = [TUR, read(0, 1), mode, report(), inquiry];
    let cases = [
        (AccessState::ActiveOptimized, 0, [true, true, true, true, true]),
        (AccessState::ActiveNonOptimized, 0, [true, true, true, true, true]),
        (AccessState::LbaDependent, 0, [true, true, true, true, true]),
        (AccessState::Standby, 0x040b, [false, false, true, true, true]),
        (AccessState::Unavailable, 0x040c, [false, false, false, true, true]),
        (AccessState::Offline, 0x0412, [false, false, false, true, true]),
    ];
    for (state, code, must) in cases {
        let (mut bed, nexus) = Bed::ready(array());
        bed.target.apply(Action::Group { id: 1, state }, bed.now).unwrap();
        bed.to(nexus, 0, TUR, &[]).fails(SenseKey::UnitAttention, CHANGED);
        for (command, good) in commands.iter().zip(must) {
            let ended = bed.to(nexus, 0, *command, &[]);
            assert_eq!(ended.is_good(), good, "{command:?} in {state:?}");
            if !good {
                assert_eq!(ended.why(), (SenseKey::NotReady, code));
            }
        }
    }
}

#[test]
fn a_transition_lasts_its_time_and_then_every_nexus_hears_of_the_change() {
    let (mut bed, first) = Bed::ready(Spec { transition_ns: 3 * S, ..array() });
    let second = bed.login(3, 1);
    bed.target.apply(Action::Group { id: 1, state: AccessState::Unavailable }, bed.now).unwrap();
    let code = AdditionalSense::ASYMMETRIC_ACCESS_STATE_TRANSITION;
    bed.start(first, 0, read(0, 1), &[]);
    let ended = bed.until(Nanos(S));
    ended[0].fails(SenseKey::NotReady, code);
    let state = states(&mut bed, first);
    assert_eq!(state[0].1, AccessState::Transitioning);
    let bytes = bed.to(first, 0, report(), &[]).good();
    assert_eq!(PortGroups::decode(&bytes).unwrap().transition_s, 3);
    bed.until(Nanos(3 * S));
    for nexus in [first, second] {
        bed.to(nexus, 0, TUR, &[]).fails(SenseKey::UnitAttention, CHANGED);
    }
    let groups = [
        (1, AccessState::Unavailable, StateCause::IMPLICIT, vec![1, 2]),
        (2, AccessState::Standby, StateCause::NONE, vec![3]),
    ];
    assert_eq!(states(&mut bed, first), groups);
}

#[test]
fn set_target_port_groups_changes_the_state_and_tells_all_but_the_asker() {
    let (mut bed, first) = Bed::ready(array());
    let second = bed.login(3, 1);
    set(&mut bed, second, 2, AccessState::ActiveOptimized).good();
    bed.to(second, 0, read(0, 1), &[]).good();
    bed.to(first, 0, TUR, &[]).fails(SenseKey::UnitAttention, CHANGED);
    let states = states(&mut bed, first);
    assert_eq!((states[1].1, states[1].2), (AccessState::ActiveOptimized, StateCause::EXPLICIT));
    let list = AdditionalSense::INVALID_FIELD_IN_PARAMETER_LIST;
    let illegal = SenseKey::IllegalRequest;
    set(&mut bed, first, 9, AccessState::Standby).fails(illegal, list);
    set(&mut bed, first, 1, AccessState::Transitioning).fails(illegal, list);
    let (mut bed, nexus) = Bed::ready(Spec { explicit_alua: false, ..array() });
    let code = AdditionalSense::INVALID_COMMAND_OPERATION_CODE;
    set(&mut bed, nexus, 2, AccessState::ActiveOptimized).fails(illegal, code);
}

#[test]
fn task_management_ends_the_commands_it_names_and_tells_those_who_lost_one() {
    let luns = vec![disk(), LunSpec { number: 1, ..disk() }];
    // Which of four stuck commands are left: of a to 0 and 1, of b to 0 and 1.
    let lun = Lun::ZERO;
    let cleared = AdditionalSense::COMMANDS_CLEARED_BY_ANOTHER_INITIATOR;
    let cases = [
        (Management::AbortTaskSet(lun), 3, None, None),
        (Management::ClearTaskSet(lun), 2, None, Some(cleared)),
        (Management::LunReset(lun), 2, Some(POWER_ON), Some(POWER_ON)),
        (Management::TargetWarmReset, 0, Some(POWER_ON), Some(POWER_ON)),
    ];
    for (function, left, own, others) in cases {
        let (mut bed, a) = Bed::ready(Spec { luns: luns.clone(), ..spec() });
        let b = bed.login(1, 2);
        bed.fault(Fault { effect: Effect::Stuck, times: Some(4), ..Fault::default() });
        for (nexus, lun) in [(a, 0), (a, 1), (b, 0), (b, 1)] {
            bed.start(nexus, lun, write(0, 1), &[1; 512]);
        }
        assert_eq!(bed.target.manage(a, function, bed.now), Managed::Complete);
        assert_eq!(bed.target.tasks(), left, "{function:?}");
        for (nexus, code) in [(a, own), (b, others)] {
            let ended = bed.to(nexus, 0, TUR, &[]);
            match code {
                Some(code) => ended.fails(SenseKey::UnitAttention, code),
                None => assert!(ended.is_good(), "{function:?}"),
            }
        }
    }
    let (mut bed, nexus) = Bed::ready(spec());
    let reset = Management::LunReset(Lun::new(5).unwrap());
    assert_eq!(bed.target.manage(nexus, reset, bed.now), Managed::NoLun);
    assert_eq!(bed.target.manage(nexus, Management::TargetColdReset, bed.now), Managed::Complete);
    assert!(!bed.target.is_connected(nexus));
}

fn reserve(
    bed: &mut Bed,
    nexus: NexusId,
    action: ReserveOutAction,
    kind: u8,
    (key, action_key): (u64, u64),
) -> bed::Ended {
    let mut list = Vec::new();
    let (key, action_key) = (ReservationKey(key), ReservationKey(action_key));
    ReserveOutList { key, action_key, ..ReserveOutList::default() }.put(&mut list);
    let length = list.len() as u32;
    let out = ReserveOut { action, scope: 0, kind: ReservationType(kind), length };
    bed.to(nexus, 0, ScsiCommand::ReserveOut(out), &list)
}

/// Registers three initiators with the keys 1 to 3; the first reserves.
fn reserved(kind: u8) -> (Bed, [NexusId; 4]) {
    let mut bed = Bed::new(array());
    let nexuses = [1, 2, 3, 4].map(|initiator| bed.login(1, initiator));
    for (nexus, key) in nexuses.into_iter().zip(1..=3) {
        reserve(&mut bed, nexus, ReserveOutAction::REGISTER, 0, (0, key)).good();
    }
    reserve(&mut bed, nexuses[0], ReserveOutAction::RESERVE, kind, (1, 0)).good();
    (bed, nexuses)
}

#[test]
fn each_type_of_reservation_leaves_to_others_what_the_standard_has_it_leave() {
    // Holder, registered, stranger: who reads, and who writes.
    let cases = [
        (1, [true, true, true], [true, false, false]),
        (3, [true, false, false], [true, false, false]),
        (5, [true, true, true], [true, true, false]),
        (6, [true, true, false], [true, true, false]),
        (7, [true, true, true], [true, true, false]),
        (8, [true, true, false], [true, true, false]),
    ];
    for (kind, reads, writes) in cases {
        let (mut bed, [holder, registered, _, stranger]) = reserved(kind);
        for (at, nexus) in [holder, registered, stranger].into_iter().enumerate() {
            let status =
                |good| if good { ScsiStatus::GOOD } else { ScsiStatus::RESERVATION_CONFLICT };
            let ended = bed.to(nexus, 0, read(0, 1), &[]);
            assert_eq!(ended.end.status, status(reads[at]), "read of {at} under {kind}");
            let ended = bed.to(nexus, 0, write(0, 1), &[1; 512]);
            assert_eq!(ended.end.status, status(writes[at]), "write of {at} under {kind}");
            bed.to(nexus, 0, TUR, &[]).good();
        }
    }
}

#[test]
fn reservations_are_read_released_cleared_and_preempted() {
    let (mut bed, [a, b, c, stranger]) = reserved(5);
    let ask = |bed: &mut Bed, action| {
        bed.to(b, 0, ScsiCommand::ReserveIn { action, allocation: 1024 }, &[]).good()
    };
    let bytes = ask(&mut bed, ReserveInAction::READ_KEYS);
    let keys: Vec<_> = ReserveInList::decode(&bytes).unwrap().keys().map(|key| key.0).collect();
    assert_eq!(keys, [1, 2, 3]);
    let bytes = ask(&mut bed, ReserveInAction::READ_RESERVATION);
    let held = ReserveInList::decode(&bytes).unwrap().reservation().unwrap();
    assert_eq!((held.key.0, held.kind.0), (1, 5));
    let bytes = ask(&mut bed, ReserveInAction::READ_FULL_STATUS);
    let list = ReserveInList::decode(&bytes).unwrap();
    let holders: Vec<_> =
        list.registrations().map(|one| (one.key.0, one.holds.is_some())).collect();
    assert_eq!(holders, [(1, true), (2, false), (3, false)]);
    let bytes = ask(&mut bed, ReserveInAction::REPORT_CAPABILITIES);
    assert!(ReserveCapabilities::decode(&bytes).unwrap().types.unwrap().has(ReservationType(8)));

    let conflict = ScsiStatus::RESERVATION_CONFLICT;
    let wrong = reserve(&mut bed, b, ReserveOutAction::RESERVE, 5, (2, 0));
    assert_eq!(wrong.end.status, conflict);
    let wrong = reserve(&mut bed, stranger, ReserveOutAction::RELEASE, 5, (0, 0));
    assert_eq!(wrong.end.status, conflict);
    let wrong = reserve(&mut bed, a, ReserveOutAction::RELEASE, 3, (1, 0));
    assert_eq!(wrong.why(), (SenseKey::IllegalRequest, 0x2604));

    bed.fault(Fault { effect: Effect::Stuck, times: Some(1), ..Fault::default() });
    bed.start(a, 0, write(0, 1), &[1; 512]);
    reserve(&mut bed, b, ReserveOutAction::PREEMPT_AND_ABORT, 3, (2, 1)).good();
    assert_eq!(bed.target.tasks(), 0);
    let preempted = AdditionalSense::REGISTRATIONS_PREEMPTED;
    bed.to(a, 0, TUR, &[]).fails(SenseKey::UnitAttention, preempted);
    assert_eq!(bed.to(a, 0, read(0, 1), &[]).end.status, conflict);
    reserve(&mut bed, b, ReserveOutAction::CLEAR, 0, (2, 0)).good();
    let code = AdditionalSense::RESERVATIONS_PREEMPTED;
    bed.to(c, 0, TUR, &[]).fails(SenseKey::UnitAttention, code);
    bed.to(a, 0, write(0, 1), &[1; 512]).good();
}

#[test]
fn a_released_reservation_of_registrants_is_told_to_them_and_the_last_of_all_ends_it() {
    let (mut bed, [a, b, _, stranger]) = reserved(6);
    reserve(&mut bed, a, ReserveOutAction::RELEASE, 6, (1, 0)).good();
    let released = AdditionalSense::RESERVATIONS_RELEASED;
    bed.to(b, 0, TUR, &[]).fails(SenseKey::UnitAttention, released);
    bed.to(stranger, 0, TUR, &[]).good();
    let (mut bed, nexuses) = reserved(8);
    for (nexus, key) in nexuses.into_iter().zip(1..=3) {
        let stranger = nexuses[3];
        assert!(!bed.to(stranger, 0, write(0, 1), &[1; 512]).is_good(), "{key} is left");
        reserve(&mut bed, nexus, ReserveOutAction::REGISTER, 0, (key, 0)).good();
    }
    bed.to(nexuses[3], 0, write(0, 1), &[1; 512]).good();
}
