//! The target port group of a unit: when its state is asked for, what is told of it, how a group is
//! activated, and how long one may be between two states.

mod bed;

use std::sync::{Arc, Mutex};

use bed::disk::{Answer, Disk, sense};
use bed::port::{Arrived, Reply, Script, adapter};
use bed::{Bench, SECOND, read, write};
use weir_bio::{Nanos, Status};
use weir_proto_scsi::alua::{AccessState, PortGroupReport, put_port_groups, state_wishes};
use weir_proto_scsi::capacity::Capacity;
use weir_proto_scsi::inquiry::Tpgs;
use weir_proto_scsi::{AdditionalSense, Lun, ScsiStatus, SenseKey};
use weir_queue::{Activation, PortAccess, PortListener, TargetPort};

const REPORT: u8 = 0xa3;
const SET: u8 = 0xa4;

/// What the device above hears.
#[derive(Default)]
struct Ear {
    changes: Mutex<Vec<Option<PortAccess>>>,
    ends: Mutex<Vec<(Activation, Nanos)>>,
    port: Mutex<Option<Arc<dyn TargetPort>>>,
}

impl PortListener for Ear {
    fn changed(&self, _: Nanos) {
        let port = self.port.lock().unwrap();
        let state = port.as_ref().expect("it listens to one").state();
        self.changes.lock().unwrap().push(state.map(|state| state.access));
    }

    fn activated(&self, how: Activation, now: Nanos) {
        self.ends.lock().unwrap().push((how, now));
    }
}

/// The target as the script plays it.
#[derive(Clone)]
struct Group {
    state: AccessState,
    /// What SET TARGET PORT GROUPS makes of it.
    when_set: AccessState,
    transition_s: Option<u8>,
    /// Ends of commands about port groups that come first.
    first: Vec<(u8, Reply)>,
    /// The answer to reads and writes, while there is one.
    io: Option<Vec<u8>>,
    /// Other groups, which are told of first.
    others: Vec<PortGroupReport>,
}

struct Rig {
    bench: Bench,
    script: Script,
    port: Arc<dyn TargetPort>,
    ear: Arc<Ear>,
    group: Arc<Mutex<Group>>,
}

impl Rig {
    fn new(tpgs: Tpgs, state: AccessState) -> Rig {
        let access = AccessState::ActiveOptimized;
        Rig::of(Disk { tpgs, access, ..Disk::default() }, state)
    }

    /// A disk that was found so, and its group as it is now.
    fn of(disk: Disk, state: AccessState) -> Rig {
        let script = Script::new(adapter());
        let report = disk.port_group();
        script.state().disks.insert(Lun::ZERO, disk);
        let group = Arc::new(Mutex::new(Group {
            state,
            when_set: AccessState::ActiveOptimized,
            transition_s: Some(0),
            first: Vec::new(),
            io: None,
            others: Vec::new(),
        }));
        let played = Arc::clone(&group);
        script.reply(move |arrived| play(&mut played.lock().unwrap(), &report, arrived));
        let mut bench = Bench::empty(&script, weir_driver_scsi::HostOptions::default());
        bench.add(Lun::ZERO, "none");
        let port = bench.units[0].device.target_port().expect("it has port groups");
        let ear = Arc::new(Ear::default());
        *ear.port.lock().unwrap() = Some(Arc::clone(&port));
        port.listen(Arc::clone(&ear) as Arc<_>);
        script.take_arrived();
        Rig { bench, script, port, ear, group }
    }

    fn group(&self) -> std::sync::MutexGuard<'_, Group> {
        self.group.lock().unwrap()
    }

    fn becomes(&self, state: AccessState, io: Option<Vec<u8>>) {
        let mut group = self.group();
        (group.state, group.io) = (state, io);
    }

    fn stands_by(&self, first: Vec<(u8, Reply)>) {
        let mut group = self.group();
        (group.state, group.first) = (AccessState::Standby, first);
    }

    fn activate(&mut self) {
        self.port.activate(self.bench.now);
        self.bench.turn_for_reasons();
        self.bench.settle();
    }

    fn refresh(&mut self) {
        self.port.refresh(self.bench.now);
        self.bench.turn_for_reasons();
        self.bench.settle();
    }

    /// Commands about port groups that arrived: the first byte, and the second since the start.
    fn asked(&self) -> Vec<(u8, u64)> {
        let about = |arrived: Arrived| {
            let is_about = matches!(arrived.cdb[0], REPORT | SET);
            is_about.then_some((arrived.cdb[0], arrived.at.0 / SECOND - 1))
        };
        self.script.take_arrived().into_iter().filter_map(about).collect()
    }

    fn ends(&self) -> Vec<Activation> {
        std::mem::take(&mut *self.ear.ends.lock().unwrap()).into_iter().map(|end| end.0).collect()
    }

    fn changes(&self) -> Vec<Option<PortAccess>> {
        std::mem::take(&mut *self.ear.changes.lock().unwrap())
    }
}

fn play(group: &mut Group, report: &PortGroupReport, arrived: &Arrived) -> Reply {
    let opcode = arrived.cdb[0];
    if let Some(at) = group.first.iter().position(|(of, _)| *of == opcode) {
        return group.first.remove(at).1;
    }
    match opcode {
        REPORT => {
            let extended = (arrived.cdb[1] & 0x20 != 0).then_some(group.transition_s).flatten();
            let mut one = report.clone();
            one.state = group.state;
            let mut data = Vec::new();
            let groups: Vec<_> = group.others.iter().cloned().chain([one]).collect();
            put_port_groups(&mut data, extended, &groups);
            data.truncate(arrived.bytes as usize);
            Reply::data(data)
        }
        SET => {
            let wishes: Vec<_> = state_wishes(&arrived.out).expect("a list").collect();
            let wish = (wishes.len(), wishes[0].group, wishes[0].state);
            assert_eq!(wish, (1, report.group, AccessState::ActiveOptimized));
            assert_eq!(arrived.cdb[6..10], [0, 0, 0, 8]);
            group.state = group.when_set;
            Reply::good()
        }
        0x9e => {
            let mut data = Vec::new();
            let (last_lba, block_len) = ((1 << 21) - 1, 512);
            Capacity { last_lba, block_len, ..Capacity::default() }.put_16(&mut data);
            Reply::data(data)
        }
        0x28 | 0x2a => group.io.clone().map_or_else(Reply::good, Reply::sense),
        _ => Reply::good(),
    }
}

fn attention() -> Vec<u8> {
    sense(SenseKey::UnitAttention, AdditionalSense::ASYMMETRIC_ACCESS_STATE_CHANGED)
}

fn transition() -> Vec<u8> {
    sense(SenseKey::NotReady, AdditionalSense::ASYMMETRIC_ACCESS_STATE_TRANSITION)
}

#[test]
fn a_unit_without_port_groups_has_no_port() {
    let script = Script::new(adapter());
    let bench = Bench::new(&script);
    assert!(bench.units[0].device.target_port().is_none());
    bench.end();
}

#[test]
fn an_activation_sets_the_group_of_a_target_that_lets_it_be_set() {
    use AccessState::{ActiveNonOptimized, ActiveOptimized, LbaDependent, Offline, Standby};
    let (ask, all, late) =
        (vec![REPORT], vec![REPORT, SET, REPORT], vec![REPORT, SET, REPORT, REPORT]);
    let (done, failed) = (Activation::Done, Activation::Failed);
    let unavailable = AccessState::Unavailable;
    for (tpgs, state, set, commands, end) in [
        (Tpgs::Explicit, Standby, ActiveOptimized, &all, done),
        (Tpgs::Both, Standby, ActiveOptimized, &all, done),
        (Tpgs::Both, unavailable, ActiveOptimized, &all, done),
        (Tpgs::Both, ActiveNonOptimized, ActiveOptimized, &all, done),
        (Tpgs::Both, LbaDependent, ActiveOptimized, &all, done),
        // It carries I/O all the same.
        (Tpgs::Both, ActiveNonOptimized, ActiveNonOptimized, &all, done),
        // It does not two seconds later, and may then.
        (Tpgs::Explicit, Standby, Standby, &late, Activation::Retry),
        (Tpgs::Explicit, unavailable, unavailable, &late, Activation::Retry),
        (Tpgs::Explicit, ActiveOptimized, Standby, &ask, done),
        (Tpgs::Both, Offline, ActiveOptimized, &ask, failed),
        // The target changes states by itself.
        (Tpgs::Implicit, Standby, ActiveOptimized, &ask, done),
        (Tpgs::Implicit, ActiveNonOptimized, ActiveOptimized, &ask, done),
    ] {
        let mut rig = Rig::new(tpgs, state);
        rig.group().when_set = set;
        rig.activate();
        rig.bench.pass(2 * SECOND);
        let asked: Vec<u8> = rig.asked().into_iter().map(|(opcode, _)| opcode).collect();
        assert_eq!((&asked, rig.ends()), (commands, vec![end]), "{tpgs:?} {state:?} {set:?}");
        // Nothing goes on by itself.
        rig.bench.pass(100 * SECOND);
        assert_eq!((rig.asked(), rig.ends()), (vec![], vec![]));
        rig.bench.end();
    }
}

#[test]
fn a_group_between_two_states_is_asked_about_with_waits_that_grow_by_2_s() {
    let mut rig = Rig::new(Tpgs::Both, AccessState::Transitioning);
    rig.activate();
    rig.bench.pass(13 * SECOND);
    assert_eq!(rig.asked(), [0, 2, 6, 12].map(|at| (REPORT, at)));
    assert_eq!(rig.changes(), [Some(PortAccess::Transitioning)]);
    rig.group().state = AccessState::Standby;
    rig.bench.pass(8 * SECOND);
    assert_eq!(rig.asked(), [(REPORT, 20), (SET, 20), (REPORT, 20)]);
    assert_eq!(rig.ends(), [Activation::Done]);
    assert_eq!(rig.changes(), [PortAccess::Standby, PortAccess::Optimized].map(Some));
    // The next transition begins with short waits.
    rig.group().state = AccessState::Transitioning;
    rig.refresh();
    rig.bench.pass(3 * SECOND);
    assert_eq!(rig.asked(), [(REPORT, 21), (REPORT, 23)]);
    rig.bench.end();
}

#[test]
fn a_group_is_between_two_states_for_a_minute_or_as_long_as_the_target_says() {
    for (transition_s, least) in [(Some(10), 10), (Some(0), 60), (None, 60)] {
        let mut rig = Rig::new(Tpgs::Both, AccessState::Transitioning);
        rig.group().transition_s = transition_s;
        // The time of a request goes on while it waits.
        let patient = |parts: &mut weir_queue::Settings| parts.timeout_ns = 200 * SECOND;
        rig.bench.units[0].device.reconfigure(patient).expect("a time");
        rig.group().io = Some(transition());
        rig.activate();
        rig.bench.submit(0, write(8).cookie(1));
        rig.bench.pass((least - 1) * SECOND);
        assert_eq!((rig.bench.ended(0), rig.ends()), (vec![], vec![]), "{transition_s:?}");
        rig.bench.pass(4 * SECOND);
        // A path error: another path may do.
        assert_eq!(rig.bench.ended(0), [(1, Status::IoErr)], "{transition_s:?}");
        assert_eq!(rig.ends(), [Activation::Failed]);
        let told = rig.bench.host.notices().all().join("\n");
        assert!(told.contains("the port group is between two states for too long"), "{told}");
        // One that has come to an end may begin again, and has its whole time.
        rig.group().state = AccessState::ActiveOptimized;
        rig.refresh();
        rig.group().state = AccessState::Transitioning;
        rig.bench.submit(0, write(8).cookie(2));
        rig.bench.pass((least - 2) * SECOND);
        assert_eq!(rig.bench.ended(0), []);
        rig.becomes(AccessState::ActiveOptimized, None);
        rig.bench.pass(4 * SECOND);
        assert_eq!(rig.bench.ended(0), [(2, Status::Ok)]);
        rig.bench.end();
    }
}

#[test]
fn requests_wait_out_a_transition_and_the_state_is_asked_for_at_its_pace() {
    let mut rig = Rig::new(Tpgs::Implicit, AccessState::Transitioning);
    rig.group().io = Some(transition());
    (0..4).for_each(|cookie| rig.bench.submit(0, read(8 * cookie).cookie(cookie)));
    rig.bench.pass(7 * SECOND);
    assert_eq!(rig.asked(), [0, 2, 6].map(|at| (REPORT, at)), "however often they are refused");
    rig.becomes(AccessState::ActiveNonOptimized, None);
    rig.bench.pass(6 * SECOND);
    assert_eq!(rig.bench.ended(0), [0, 1, 2, 3].map(|cookie| (cookie, Status::Ok)));
    let changes = [PortAccess::Transitioning, PortAccess::NonOptimized].map(Some);
    assert_eq!(rig.changes(), changes);
    rig.bench.end();
}

#[test]
fn an_attention_has_the_state_asked_for_and_the_request_sent_again() {
    for code in [
        AdditionalSense::ASYMMETRIC_ACCESS_STATE_CHANGED,
        AdditionalSense::INQUIRY_DATA_HAS_CHANGED,
        AdditionalSense::REPORTED_LUNS_DATA_HAS_CHANGED,
        AdditionalSense::IMPLICIT_STATE_TRANSITION_FAILED,
        // A reset takes other attentions away.
        AdditionalSense::POWER_ON_OR_RESET_OCCURRED,
    ] {
        let mut rig = Rig::new(Tpgs::Implicit, AccessState::Standby);
        let end = Reply::sense(sense(SenseKey::UnitAttention, code));
        rig.group().first.push((0x2a, end));
        rig.bench.submit(0, write(8).cookie(1));
        rig.bench.pass(4 * SECOND);
        assert_eq!(rig.bench.ended(0), [(1, Status::Ok)]);
        assert_eq!(rig.asked().len(), 1);
        assert_eq!(rig.changes(), [Some(PortAccess::Standby)]);
        rig.bench.end();
    }
    // An attention that the target tells unasked, as iSCSI's asynchronous messages do.
    let mut rig = Rig::new(Tpgs::Implicit, AccessState::Standby);
    rig.script.state().events.push((Lun::ZERO, attention()));
    rig.bench.settle();
    assert_eq!((rig.asked().len(), rig.changes().len()), (1, 1));
    rig.bench.end();
}

#[test]
fn what_changed_while_the_answer_was_on_its_way_is_asked_again() {
    let mut rig = Rig::new(Tpgs::Implicit, AccessState::Standby);
    rig.script.state().ends_at_once = 0;
    rig.refresh();
    let mut arrived = rig.asked();
    // The attention comes while the state is asked for, and before the answer.
    rig.script.state().events.push((Lun::ZERO, attention()));
    rig.bench.settle();
    rig.group().state = AccessState::ActiveNonOptimized;
    rig.script.state().ends_at_once = usize::MAX;
    rig.bench.settle();
    arrived.extend(rig.asked());
    assert_eq!(arrived.len(), 2);
    assert_eq!(rig.changes(), [PortAccess::Standby, PortAccess::NonOptimized].map(Some));
    rig.bench.end();
}

#[test]
fn a_port_that_refuses_io_is_asked_and_fills_no_log() {
    for code in [
        AdditionalSense::TARGET_PORT_IN_STANDBY_STATE,
        AdditionalSense::TARGET_PORT_IN_UNAVAILABLE_STATE,
    ] {
        let mut rig = Rig::new(Tpgs::Implicit, AccessState::Standby);
        rig.group().io = Some(sense(SenseKey::NotReady, code));
        for cookie in 0..5 {
            rig.bench.submit(0, write(8).cookie(cookie));
            rig.bench.pass(2 * SECOND);
        }
        let ended: Vec<_> = (0..5).map(|cookie| (cookie, Status::IoErr)).collect();
        assert_eq!(rig.bench.ended(0), ended);
        assert_eq!(rig.asked().len(), 1, "once: then it is known");
        let told = rig.bench.host.notices().all();
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].ends_with("port group 257 is standby"), "{told:?}");
        rig.bench.end();
    }
}

#[test]
fn commands_about_port_groups_are_sent_five_times_more_before_an_activation_has_failed() {
    let failures = |opcode, count| {
        let busy = (opcode, Reply::status(ScsiStatus::BUSY));
        vec![busy; count]
    };
    let mut rig = Rig::new(Tpgs::Explicit, AccessState::Standby);
    rig.group().first = failures(REPORT, 5);
    rig.activate();
    rig.bench.pass(11 * SECOND);
    assert_eq!(rig.ends(), [Activation::Done]);
    rig.group().first = failures(REPORT, 6);
    rig.activate();
    rig.asked();
    rig.bench.pass(30 * SECOND);
    assert_eq!((rig.ends(), rig.asked().len()), (vec![Activation::Failed], 5));
    // After a state that could not be set it is asked for again.
    rig.stands_by(failures(SET, 1));
    rig.activate();
    rig.bench.pass(3 * SECOND);
    assert_eq!(rig.ends(), [Activation::Done]);
    let asked: Vec<u8> = rig.asked().into_iter().map(|(opcode, _)| opcode).collect();
    assert_eq!(asked, [REPORT, SET, REPORT, SET, REPORT]);
    rig.stands_by(failures(SET, 6));
    rig.activate();
    rig.bench.pass(30 * SECOND);
    assert_eq!((rig.ends(), rig.asked().len()), (vec![Activation::Failed], 12));
    // A target that refuses to set states is not asked a second time.
    let refused = sense(SenseKey::IllegalRequest, AdditionalSense::INVALID_COMMAND_OPERATION_CODE);
    rig.stands_by(vec![(SET, Reply::sense(refused))]);
    rig.activate();
    rig.bench.pass(30 * SECOND);
    assert_eq!((rig.ends(), rig.asked().len()), (vec![Activation::Failed], 2));
    // Of an attention the command learns nothing, so it is sent again at once.
    rig.group().first = vec![(REPORT, Reply::sense(attention()))];
    rig.activate();
    assert_eq!(rig.ends(), [Activation::Done]);
    rig.bench.end();
}

#[test]
fn a_command_about_port_groups_has_60_s() {
    let mut rig = Rig::new(Tpgs::Explicit, AccessState::Standby);
    rig.group().first = vec![(REPORT, Reply::Never)];
    rig.activate();
    rig.bench.pass(59 * SECOND);
    assert_eq!(rig.asked(), [(REPORT, 0)]);
    rig.bench.pass(4 * SECOND);
    assert_eq!(rig.asked(), [(REPORT, 62), (SET, 62), (REPORT, 62)]);
    assert_eq!(rig.ends(), [Activation::Done]);
    rig.bench.end();
}

#[test]
fn a_target_without_the_extended_header_is_asked_without_it_from_then_on() {
    let mut rig = Rig::new(Tpgs::Implicit, AccessState::Standby);
    let refused = sense(SenseKey::IllegalRequest, AdditionalSense::INVALID_FIELD_IN_CDB);
    rig.group().first = vec![(REPORT, Reply::sense(refused))];
    rig.refresh();
    rig.refresh();
    let arrived = rig.script.take_arrived();
    let forms: Vec<u8> = arrived.iter().map(|arrived| arrived.cdb[1]).collect();
    assert_eq!(forms, [0x2a, 0x0a, 0x0a]);
    assert_eq!(rig.changes(), [Some(PortAccess::Standby)], "it is told once");
    rig.bench.end();
}

#[test]
fn an_activation_without_a_lane_has_failed() {
    let script = Script::new(adapter());
    let disk = Disk { tpgs: Tpgs::Both, ..Disk::default() };
    script.state().disks.insert(Lun::ZERO, disk);
    let bench = Bench::empty(&script, weir_driver_scsi::HostOptions::default());
    let options = weir_driver_scsi::UnitOptions::default();
    let unit = weir_driver_scsi::Unit::open(&bench.host, Lun::ZERO, options).expect("a disk");
    let port = weir_queue::Driver::target_port(&unit).expect("it has port groups");
    let ear = Arc::new(Ear::default());
    port.listen(Arc::clone(&ear) as Arc<_>);
    port.activate(Nanos(5));
    port.refresh(Nanos(6));
    assert_eq!(*ear.ends.lock().unwrap(), [(Activation::Failed, Nanos(5))]);
    bench.end();
}

#[test]
fn an_activation_whose_lane_closes_has_failed() {
    let mut rig = Rig::new(Tpgs::Both, AccessState::Transitioning);
    rig.activate();
    assert_eq!(rig.ends(), []);
    let Rig { mut bench, ear, .. } = rig;
    bench.homes.clear();
    assert_eq!(ear.ends.lock().unwrap().len(), 1);
    assert_eq!(ear.ends.lock().unwrap()[0].0, Activation::Failed);
}

#[test]
fn a_group_that_changes_a_while_after_it_was_set_is_activated() {
    let mut rig = Rig::new(Tpgs::Explicit, AccessState::Standby);
    rig.group().when_set = AccessState::Standby;
    rig.activate();
    rig.bench.pass(SECOND);
    rig.group().state = AccessState::ActiveOptimized;
    rig.bench.pass(2 * SECOND);
    assert_eq!(rig.ends(), [Activation::Done]);
    assert_eq!(rig.asked(), [(REPORT, 0), (SET, 0), (REPORT, 0), (REPORT, 2)]);
    rig.bench.end();
}

#[test]
fn a_group_that_takes_io_and_cannot_be_set_is_used_as_it_is() {
    let refused = sense(SenseKey::IllegalRequest, AdditionalSense::INVALID_COMMAND_OPERATION_CODE);
    let failed = sense(SenseKey::HardwareError, AdditionalSense(0x670a));
    // It says nothing of the header of the other command.
    let field = sense(SenseKey::IllegalRequest, AdditionalSense::INVALID_FIELD_IN_CDB);
    for (reply, times, wait) in [(refused, 1, 0), (field, 1, 0), (failed, 6, 11)] {
        let mut rig = Rig::new(Tpgs::Explicit, AccessState::ActiveNonOptimized);
        rig.group().first = vec![(SET, Reply::sense(reply)); times];
        rig.activate();
        rig.bench.pass(wait * SECOND);
        assert_eq!((rig.ends(), rig.asked().len()), (vec![Activation::Done], 2 * times));
        rig.bench.end();
    }
}

#[test]
fn a_target_that_refuses_to_tell_states_keeps_the_one_it_told() {
    let code = AdditionalSense::INVALID_COMMAND_OPERATION_CODE;
    let gone = AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED;
    for (state, code, end) in [
        (AccessState::ActiveOptimized, code, Activation::Done),
        (AccessState::Standby, code, Activation::Failed),
        (AccessState::ActiveOptimized, gone, Activation::Failed),
    ] {
        let mut rig = Rig::new(Tpgs::Explicit, state);
        rig.refresh();
        rig.asked();
        let refused = Reply::sense(sense(SenseKey::IllegalRequest, code));
        rig.group().first = vec![(REPORT, refused)];
        rig.activate();
        rig.bench.pass(30 * SECOND);
        assert_eq!((rig.ends(), rig.asked().len()), (vec![end], 1), "{state:?} {code:?}");
        rig.bench.end();
    }
}

#[test]
fn what_a_command_about_port_groups_tells_besides_is_heeded() {
    use weir_driver_scsi::Wish;
    for (code, wish) in [
        (AdditionalSense::CAPACITY_DATA_HAS_CHANGED, Wish::Capacity),
        (AdditionalSense::REPORTED_LUNS_DATA_HAS_CHANGED, Wish::Luns),
        (AdditionalSense::MODE_PARAMETERS_CHANGED, Wish::Pages),
    ] {
        let mut rig = Rig::new(Tpgs::Explicit, AccessState::Standby);
        let attention = Reply::sense(sense(SenseKey::UnitAttention, code));
        rig.group().first = vec![(REPORT, attention)];
        rig.refresh();
        let served = &rig.bench.units[0];
        assert!(served.unit.take_wish(wish), "the target tells it once");
        assert_eq!(rig.changes(), [Some(PortAccess::Standby)]);
        rig.bench.end();
    }
}

#[test]
fn a_transition_that_was_heard_of_long_ago_is_over() {
    let mut rig = Rig::new(Tpgs::Both, AccessState::ActiveOptimized);
    let patient = |parts: &mut weir_queue::Settings| parts.timeout_ns = 200 * SECOND;
    rig.bench.units[0].device.reconfigure(patient).expect("a time");
    // The state is never told.
    rig.group().first = vec![(REPORT, Reply::status(ScsiStatus::BUSY)); 1000];
    rig.group().io = Some(transition());
    rig.bench.submit(0, write(8).cookie(1));
    rig.bench.pass(63 * SECOND);
    assert_eq!(rig.bench.ended(0), [(1, Status::IoErr)]);
    rig.bench.submit(0, write(8).cookie(2));
    rig.bench.pass(SECOND);
    assert_eq!(rig.bench.ended(0), [(2, Status::IoErr)], "it is the same transition");
    rig.bench.pass(100 * SECOND);
    rig.bench.submit(0, write(8).cookie(3));
    rig.bench.pass(30 * SECOND);
    assert_eq!(rig.bench.ended(0), []);
    rig.group().io = None;
    rig.bench.pass(2 * SECOND);
    assert_eq!(rig.bench.ended(0), [(3, Status::Ok)]);
    rig.bench.end();
}

#[test]
fn more_port_groups_than_were_asked_for_are_asked_for_again() {
    let mut rig = Rig::new(Tpgs::Implicit, AccessState::Standby);
    let one = Disk::default().port_group();
    let other = |group| PortGroupReport { group, ports: (1..=250).collect(), ..one.clone() };
    rig.group().others = (1..=5).map(other).collect();
    rig.refresh();
    assert_eq!(rig.changes(), [Some(PortAccess::Standby)]);
    rig.group().state = AccessState::ActiveOptimized;
    rig.refresh();
    let lengths: Vec<u32> = rig.script.take_arrived().iter().map(|one| one.bytes).collect();
    let whole = 8 + 5 * (8 + 4 * 250) + 8 + 4;
    assert_eq!(lengths, [4096, whole, whole]);
    assert_eq!(rig.changes(), [Some(PortAccess::Optimized)]);
    rig.bench.end();
}

/// Units of one host in groups that answer commands about them so.
fn crowd(count: u32, answers: bool) -> (Bench, Script, Vec<Arc<Ear>>) {
    let script = Script::new(adapter());
    let report = Disk::default().port_group();
    script.reply(move |arrived| match arrived.cdb[0] {
        REPORT if !answers => Reply::Never,
        REPORT => {
            let mut data = Vec::new();
            put_port_groups(&mut data, Some(0), std::slice::from_ref(&report));
            Reply::data(data)
        }
        _ => Reply::good(),
    });
    let mut bench = Bench::empty(&script, weir_driver_scsi::HostOptions::default());
    let mut ears = Vec::new();
    for number in 0..count {
        let lun = Lun::new(number).expect("a number that fits");
        let disk = Disk { tpgs: Tpgs::Both, ..Disk::default() };
        script.state().disks.insert(lun, disk);
        let unit = bench.add(lun, "none");
        let port = bench.units[unit].device.target_port().expect("it has port groups");
        let ear = Arc::new(Ear::default());
        *ear.port.lock().unwrap() = Some(Arc::clone(&port));
        port.listen(Arc::clone(&ear) as Arc<_>);
        ears.push(ear);
    }
    script.take_arrived();
    (bench, script, ears)
}

fn activate_all(bench: &mut Bench) {
    for unit in 0..bench.units.len() {
        bench.units[unit].device.target_port().expect("a port").activate(bench.now);
    }
    bench.turn_for_reasons();
    bench.turn(100);
}

#[test]
fn the_groups_of_many_units_are_activated_at_once_with_few_slots() {
    let (mut bench, script, ears) = crowd(60, true);
    // All are asked about before the first answer is there.
    script.state().ends_at_once = 0;
    activate_all(&mut bench);
    assert_eq!(script.state().held(), 4);
    script.state().ends_at_once = 1;
    bench.turn(100);
    let done = vec![(Activation::Done, bench.now)];
    assert!(ears.iter().all(|ear| *ear.ends.lock().unwrap() == done), "time stands still");
    assert_eq!(script.take_arrived().len(), 60);
    bench.end();
}

#[test]
fn a_target_that_tells_no_states_leaves_slots_to_the_error_handler() {
    let (mut bench, script, ears) = crowd(12, false);
    activate_all(&mut bench);
    // Eight slots of the host's own: two are reserved tags, two are for tests.
    assert_eq!(script.take_arrived().len(), 4);
    // One that has no slot in the time of a command has failed as if it had had one.
    bench.pass(400 * SECOND);
    for ear in &ears {
        let ends: Vec<_> = ear.ends.lock().unwrap().iter().map(|end| end.0).collect();
        assert_eq!(ends, [Activation::Failed]);
    }
    bench.end();
}

#[test]
fn a_lane_that_closes_while_it_waits_for_a_slot_is_given_none() {
    let (mut bench, script, ears) = crowd(12, false);
    activate_all(&mut bench);
    let asked = script.take_arrived().len();
    let number = std::cell::Cell::new(0);
    let is_waiting = |_: &weir_queue::Lane| number.replace(number.get() + 1) == 4;
    bench.homes[0].extract(is_waiting, |_, lane| drop(lane));
    assert_eq!(ears[4].ends.lock().unwrap().len(), 1);
    script.state().release(&Reply::status(ScsiStatus::BUSY));
    bench.turn(100);
    assert_eq!(script.take_arrived().len(), asked, "the next ones");
    bench.end();
}

/// A disk that was found in standby.
fn standby() -> Disk {
    let code = AdditionalSense::TARGET_PORT_IN_STANDBY_STATE;
    let answer = vec![Answer::check(SenseKey::NotReady, code); 9];
    let first = [0x00, 0x1a, 0x25, 0x9e].map(|opcode| (opcode, answer.clone())).into();
    Disk { tpgs: Tpgs::Both, access: AccessState::Standby, first, ..Disk::default() }
}

#[test]
fn a_unit_without_a_size_asks_for_it_before_its_activation_has_ended() {
    const CAPACITY: u8 = 0x9e;
    let code = AdditionalSense::INVALID_COMMAND_OPERATION_CODE;
    let refused = Reply::sense(sense(SenseKey::IllegalRequest, code));
    let busy = Reply::status(ScsiStatus::BUSY);
    let asked = [REPORT, SET, REPORT, CAPACITY];
    for (first, end, status, commands) in [
        (vec![], Activation::Done, Status::Ok, &asked[..]),
        (vec![(CAPACITY, refused)], Activation::Failed, Status::IoErr, &asked),
        (
            vec![(CAPACITY, busy)],
            Activation::Done,
            Status::Ok,
            &[REPORT, SET, REPORT, CAPACITY, REPORT, CAPACITY],
        ),
    ] {
        let mut rig = Rig::of(standby(), AccessState::Standby);
        let size = weir_bio::Size { sectors: 1 << 21, padding: 0 };
        let promise = |parts: &mut weir_queue::Settings| parts.limits.grow_to(size);
        rig.bench.units[0].device.reconfigure(promise).expect("a size");
        rig.group().first = first;
        rig.activate();
        rig.bench.pass(2 * SECOND);
        let opcodes: Vec<u8> = rig.script.take_arrived().iter().map(|one| one.cdb[0]).collect();
        assert_eq!((&opcodes[..], rig.ends()), (commands, vec![end]));
        rig.bench.submit(0, write(8).cookie(1));
        rig.bench.settle();
        assert_eq!(rig.bench.ended(0), [(1, status)]);
        rig.bench.end();
    }
}

#[test]
fn a_lane_that_closes_leaves_its_questions_to_another() {
    let script = Script::new(weir_driver_scsi::Adapter { queues: 2, ..adapter() });
    let disk = Disk { tpgs: Tpgs::Both, ..Disk::default() };
    let mut report = disk.port_group();
    script.state().disks.insert(Lun::ZERO, disk);
    report.state = AccessState::Transitioning;
    let state = Arc::new(Mutex::new(report));
    let told = Arc::clone(&state);
    script.reply(move |arrived| match arrived.cdb[0] {
        REPORT => {
            let mut data = Vec::new();
            put_port_groups(&mut data, Some(0), std::slice::from_ref(&told.lock().unwrap()));
            Reply::data(data)
        }
        _ => Reply::good(),
    });
    let mut bench = Bench::empty(&script, weir_driver_scsi::HostOptions::default());
    bench.add(Lun::ZERO, "none");
    let port = bench.units[0].device.target_port().expect("it has port groups");
    port.refresh(bench.now);
    bench.turn_for_reasons();
    bench.settle();
    assert_eq!(port.state().map(|state| state.access), Some(PortAccess::Transitioning));
    bench.homes.remove(0);
    state.lock().unwrap().state = AccessState::ActiveOptimized;
    bench.pass(3 * SECOND);
    assert_eq!(port.state().map(|state| state.access), Some(PortAccess::Optimized));
}
