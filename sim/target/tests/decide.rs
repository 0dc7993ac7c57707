//! The target gives each status and sense that the mid-layer's tables decide on, and they decide
//! as docs/behaviour and the tables say: each row by status and by sense is reached by an end that
//! came from the target.

mod bed;

use std::collections::BTreeSet;

use bed::{Bed, disk, flush, read, spec, write};
use weir_bio::{Flags, Status};
use weir_proto_scsi::command::StartStopUnit;
use weir_proto_scsi::decide::tables::{DEFERRED, NO_SENSE_DATA, RuleRow, SENSES, STATUSES};
use weir_proto_scsi::decide::{
    Attempt, Decision, Delivery, Disposition, Purpose, Recovery, ScsiEnd, UnitTraits, decide,
};
use weir_proto_scsi::{AdditionalSense, Lun, ScsiCommand, ScsiStatus, SenseKey};
use weir_sim_target::{Action, Effect, Fault, LunChange, LunSpec, Management, Spec};

const TUR: ScsiCommand = ScsiCommand::TestUnitReady;

/// What a scene makes of the target, and what it sends.
struct Scene {
    effect: Option<Effect>,
    command: ScsiCommand,
    unit: UnitTraits,
    must: Disposition,
}

fn scene(effect: Effect, must: Disposition) -> Scene {
    Scene { effect: Some(effect), command: read(0, 1), unit: UnitTraits::default(), must }
}

fn sense(key: u8, code: u16, must: Disposition) -> Scene {
    scene(Effect::Sense { key, code, done: false }, must)
}

impl Scene {
    fn at(self, command: ScsiCommand) -> Self {
        Self { command, ..self }
    }

    fn of(mut self, is: impl FnOnce(&mut UnitTraits)) -> Self {
        is(&mut self.unit);
        self
    }

    fn decision(&self) -> Decision {
        let (mut bed, nexus) = Bed::ready(spec());
        if let Some(effect) = self.effect {
            bed.fault(Fault { times: Some(1), effect, ..Fault::default() });
        }
        let data = [1; 512];
        let out = matches!(self.command, ScsiCommand::Write(_));
        let mut ended = bed.to(nexus, 0, self.command, if out { &data } else { &[] });
        if matches!(self.effect, Some(Effect::Deferred { .. })) {
            assert!(ended.is_good(), "a deferred error comes with the next command");
            ended = bed.to(nexus, 0, self.command, &[]);
        }
        decision(&ended, self.command, self.unit)
    }
}

fn decision(ended: &bed::Ended, command: ScsiCommand, unit: UnitTraits) -> Decision {
    let end =
        ScsiEnd { delivery: Delivery::Delivered, status: ended.end.status, sense: ended.sense() };
    let attempt = Attempt {
        purpose: Purpose::of(&command),
        flags: Flags::NONE,
        retries: 0,
        retries_allowed: 5,
        out_of_time: false,
        unit,
    };
    decide(&end, &attempt)
}

fn unmap() -> ScsiCommand {
    ScsiCommand::Unmap { anchor: false, length: 0 }
}

/// The rows of the specification's tables by status and sense.
fn scenes() -> Vec<Scene> {
    use Disposition::{Complete, Fail, Recover, Requeue, Retry, RetryUncounted, UseSix};
    let status = |status: u8, must| scene(Effect::Status(status), must);
    let alua = |unit: &mut UnitTraits| unit.alua = true;
    let mut all = vec![
        status(0x00, Complete),
        status(0x08, Requeue),
        status(0x28, Requeue),
        status(0x40, Retry),
        status(0x18, Fail(Status::ResvConflict)),
        status(0x18, Complete).at(TUR),
        status(0x30, Fail(Status::IoErr)),
        status(0x22, Recover(Recovery::Abort)),
        scene(Effect::Senseless, Recover(Recovery::FetchSense)),
        scene(Effect::Deferred { key: 1, code: 0x1700 }, Retry),
        scene(Effect::Deferred { key: 3, code: 0x0c00 }, Retry),
        scene(Effect::Deferred { key: 3, code: 0x0c00 }, Fail(Status::Medium)).at(flush()),
        scene(Effect::Deferred { key: 4, code: 0x4400 }, Fail(Status::Target)).at(flush()),
        sense(0, 0x0000, Complete),
        scene(Effect::Sense { key: 1, code: 0x1700, done: true }, Complete),
        sense(2, 0x040a, Requeue).of(alua),
        sense(2, 0x0401, Retry),
        sense(2, 0x0402, Recover(Recovery::StartUnit)).of(|unit| unit.allow_restart = true),
        sense(2, 0x0402, Fail(Status::IoErr)),
        sense(2, 0x0403, Fail(Status::IoErr)),
        sense(2, 0x040b, Fail(Status::IoErr)),
        sense(2, 0x040c, Fail(Status::IoErr)),
        sense(2, 0x3a00, Fail(Status::IoErr)),
        sense(3, 0x1100, Fail(Status::Medium)),
        sense(3, 0x1300, Fail(Status::Medium)),
        sense(3, 0x1400, Fail(Status::Medium)),
        sense(3, 0x0c00, Retry),
        sense(4, 0x4400, Fail(Status::Target)),
        sense(4, 0x4400, Requeue).of(|unit| unit.retry_hardware_errors = true),
        sense(5, 0x2000, UseSix).of(|unit| unit.may_need_six = true),
        sense(5, 0x2000, Fail(Status::Target)),
        sense(5, 0x2400, Fail(Status::NotSupp)).at(unmap()),
        sense(5, 0x2100, Fail(Status::Target)),
        sense(5, 0x2600, Fail(Status::Target)),
        sense(5, 0x1001, Fail(Status::Protection)),
        sense(5, 0x2500, Fail(Status::IoErr)),
        sense(5, 0x3900, Fail(Status::IoErr)),
        sense(6, 0x2900, RetryUncounted),
        sense(6, 0x2900, Retry).of(|unit| unit.expecting_attention = true),
        sense(6, 0x2800, Fail(Status::IoErr)).of(|unit| unit.removable = true),
        sense(7, 0x2707, Fail(Status::NoSpc)),
        sense(7, 0x2700, Fail(Status::Target)),
        sense(8, 0x0000, Fail(Status::Target)),
        sense(9, 0x0000, Fail(Status::IoErr)),
        sense(0xa, 0x0000, Fail(Status::Target)),
        sense(0xb, 0x1001, Fail(Status::Protection)),
        sense(0xb, 0x4400, Retry),
        sense(0xd, 0x0000, Fail(Status::Target)),
        sense(0xe, 0x1d00, Fail(Status::Target)),
    ];
    // What ends by itself.
    for code in [0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x11, 0x14, 0x1a, 0x1b, 0x1d, 0x24] {
        all.push(sense(2, 0x0400 | code, Requeue));
    }
    // What is put back until the states of port groups are known.
    for code in [0x2900, 0x2904, 0x2a01, 0x2a06, 0x2a07, 0x3f03, 0x3f0e] {
        all.push(sense(6, code, Requeue).of(alua));
    }
    all
}

#[test]
fn each_status_and_sense_of_the_target_is_decided_as_the_specification_has_it() {
    for scene in scenes() {
        let is = scene.decision();
        let (effect, command) = (scene.effect, scene.command);
        assert_eq!(is.disposition, scene.must, "{effect:?} at {command:?}: {}", is.reason);
    }
}

#[test]
fn the_scenes_reach_every_row_of_the_tables_by_status_and_by_sense() {
    fn reasons<K>(table: &[RuleRow<K>]) -> Vec<&'static str> {
        table.iter().map(|row| row.reason).collect()
    }
    let rows = [reasons(STATUSES), reasons(DEFERRED), reasons(SENSES), vec![NO_SENSE_DATA]];
    let rows: BTreeSet<_> = rows.concat().into_iter().collect();
    let reached: BTreeSet<_> = scenes().iter().map(|scene| scene.decision().reason).collect();
    // CHECK CONDITION leads on to the tables by sense.
    let left: Vec<_> = rows.difference(&reached).filter(|why| **why != "check condition").collect();
    assert_eq!(left, Vec::<&&str>::new());
}

/// The end of a command, and what is decided, where the target comes to it by its own state.
fn by_state(spec: Spec, change: impl FnOnce(&mut Bed), command: ScsiCommand) -> Disposition {
    let (mut bed, nexus) = Bed::ready(spec);
    change(&mut bed);
    let ended = bed.to(nexus, 0, command, &[1; 512]);
    decision(&ended, command, UnitTraits::default()).disposition
}

#[test]
fn states_of_the_target_lead_to_the_same_decisions_as_scripted_sense() {
    use Disposition::{Fail, Retry, RetryUncounted};
    let apply = |action: Action| move |bed: &mut Bed| bed.target.apply(action, bed.now).unwrap();
    let lun = |change| apply(Action::Lun { number: 0, change });
    assert_eq!(by_state(spec(), lun(LunChange::Offline), TUR), Retry);
    assert_eq!(by_state(spec(), lun(LunChange::Remove), TUR), Fail(Status::IoErr));
    assert_eq!(by_state(spec(), lun(LunChange::Resize(512)), TUR), RetryUncounted);
    let thin = Spec { luns: vec![LunSpec { thin: 4096, ..disk() }], ..spec() };
    assert_eq!(by_state(thin, |_| (), write(7, 1)), Disposition::Complete, "one page has room");
    let thin = Spec { luns: vec![LunSpec { thin: 4096, ..disk() }], ..spec() };
    let first = |bed: &mut Bed| {
        let nexus = bed.login(1, 2);
        bed.to(nexus, 0, write(100, 1), &[1; 512]).good();
    };
    assert_eq!(by_state(thin, first, write(7, 1)), Fail(Status::NoSpc));
    let readonly = Spec { luns: vec![LunSpec { readonly: true, ..disk() }], ..spec() };
    assert_eq!(by_state(readonly, |_| (), write(7, 1)), Fail(Status::Target));
    assert_eq!(by_state(spec(), |_| (), write(1 << 30, 1)), Fail(Status::Target));
}

#[test]
fn a_stopped_unit_says_so_until_it_is_started() {
    let (mut bed, nexus) = Bed::ready(spec());
    let start =
        |start| ScsiCommand::StartStopUnit(StartStopUnit { start, ..StartStopUnit::default() });
    bed.to(nexus, 0, start(false), &[]).good();
    let code = AdditionalSense::INITIALIZING_COMMAND_REQUIRED;
    bed.to(nexus, 0, TUR, &[]).fails(SenseKey::NotReady, code);
    bed.to(nexus, 0, start(true), &[]).good();
    bed.to(nexus, 0, TUR, &[]).good();
}

#[test]
fn after_a_lun_reset_the_next_command_hears_of_it_once() {
    let (mut bed, nexus) = Bed::ready(spec());
    bed.target.manage(nexus, Management::LunReset(Lun::ZERO), bed.now);
    let ended = bed.to(nexus, 0, TUR, &[]);
    let code = AdditionalSense::POWER_ON_OR_RESET_OCCURRED;
    ended.fails(SenseKey::UnitAttention, code);
    let expecting = UnitTraits { expecting_attention: true, ..UnitTraits::default() };
    assert_eq!(decision(&ended, TUR, expecting).disposition, Disposition::Retry);
    assert_eq!(bed.to(nexus, 0, TUR, &[]).end.status, ScsiStatus::GOOD);
}
