//! Passthrough: commands that go down as they are, and come back with the target's own words.

mod bed;

use bed::disk::{Disk, sense};
use bed::port::{Reply, Script, adapter};
use bed::{Bench, SECOND, read};
use weir_bio::{Buf, Data, Status};
use weir_driver_scsi::Adapter;
use weir_proto_scsi::alua::{AccessState, put_port_groups};
use weir_proto_scsi::inquiry::Tpgs;
use weir_proto_scsi::{AdditionalSense, Lun, ScsiStatus, SenseKey};
use weir_queue::Command;

fn send(bench: &mut Bench, command: Command) {
    let now = bench.now;
    bench.units[0].clients[0].submit_command(command, now).expect("room");
    bench.settle();
}

#[test]
fn a_command_goes_down_as_it_is_and_brings_its_data_status_and_residue() {
    let script = Script::new(adapter());
    script.reply(|_| Reply::data(b"what the target is".to_vec()));
    let mut bench = Bench::new(&script);
    let cdb = [0x12, 0, 0, 0, 96, 0];
    send(&mut bench, Command::new(&cdb).reading(Data::One(Buf::zeroed(96))).cookie(3));
    let end = bench.units[0].commands.pop().expect("an end");
    assert_eq!((end.cookie, end.status, end.detail.residue), (3, Status::Ok, 96 - 18));
    assert_eq!(bed::port::bytes_of(&[end.data])[..18], *b"what the target is");
    assert_eq!(script.state().arrived[0].cdb, cdb);
    bench.end();
}

#[test]
fn a_failed_command_is_not_retried_and_has_its_sense() {
    let script = Script::new(adapter());
    let attention = sense(SenseKey::UnitAttention, AdditionalSense::POWER_ON_OR_RESET_OCCURRED);
    let told = attention.clone();
    script.reply(move |_| Reply::sense(told.clone()));
    let mut bench = Bench::new(&script);
    send(&mut bench, Command::new(&[0; 6]));
    let end = bench.units[0].commands.pop().expect("an end");
    assert_eq!((end.status, end.detail.driver_status), (Status::IoErr, 2));
    assert_eq!(end.detail.sense.as_deref(), Some(&attention[..]));
    assert_eq!(script.state().arrived.len(), 1);
    script.reply(|_| Reply::status(ScsiStatus::RESERVATION_CONFLICT));
    send(&mut bench, Command::new(&[0x5f, 0, 0, 0, 0, 0, 0, 0, 0, 0]));
    let end = bench.units[0].commands.pop().expect("an end");
    assert_eq!((end.status, end.detail.driver_status), (Status::ResvConflict, 0x18));
    bench.end();
}

#[test]
fn a_command_that_the_target_has_no_room_for_is_sent_again_for_a_bounded_time() {
    for status in [ScsiStatus::BUSY, ScsiStatus::TASK_SET_FULL] {
        let script = Script::new(adapter());
        let mut refusals = 3;
        script.reply(move |_| {
            refusals -= 1;
            if refusals >= 0 { Reply::status(status) } else { Reply::good() }
        });
        let mut bench = Bench::new(&script);
        let command = || Command::new(&[0x12, 0, 0, 0, 36, 0]).reading(Data::One(Buf::zeroed(36)));
        for command in [command(), command().reserved()] {
            send(&mut bench, command);
            bench.pass(SECOND);
            let end = bench.units[0].commands.pop().expect("an end");
            assert_eq!((end.status, end.data.len()), (Status::Ok, 36), "{status:?}");
        }
        assert_eq!(script.state().arrived.len(), 3 + 2, "{status:?}");
        // In vain: it has the time of any request.
        script.reply(move |_| Reply::status(status));
        send(&mut bench, command());
        bench.pass(29 * SECOND);
        assert!(bench.units[0].commands.is_empty(), "{status:?}: it was given up");
        bench.pass(2 * SECOND);
        let end = bench.units[0].commands.pop().expect("an end");
        assert_eq!((end.status, end.data.len()), (Status::Timeout, 36), "{status:?}");
        bench.end();
    }
}

#[test]
fn a_reserved_command_gets_through_when_every_tag_and_place_is_taken() {
    for scheduler in ["none", "mq-deadline", "noop"] {
        let script = Script::new(Adapter { can_queue: 4, cmd_per_lun: 4, ..adapter() });
        script.reply(|arrived| match arrived.cdb[0] {
            0x28 => Reply::Never,
            _ => Reply::good(),
        });
        let mut bench = Bench::empty(&script, weir_driver_scsi::HostOptions::default());
        bench.add(Lun::ZERO, scheduler);
        (0..8).for_each(|n| bench.submit(0, read(n * 64)));
        bench.settle();
        assert_eq!(script.state().held(), 4, "{scheduler}");
        send(&mut bench, Command::new(&[0; 6]).reserved());
        let end = bench.units[0].commands.pop().expect("an end");
        assert_eq!(end.status, Status::Ok, "{scheduler}");
        let slot = script.state().arrived.last().expect("it").slot;
        assert!(slot >= 4, "{scheduler}: slot {slot} is of an ordinary command");
        bench.end();
    }
}

#[test]
fn a_command_longer_than_the_adapter_carries_ends_before_it_is_sent() {
    let script = Script::new(Adapter { cdb_max: 12, ..adapter() });
    let mut bench = Bench::new(&script);
    for cdb in [&[0x9e; 16][..], &[0x7f; 32][..]] {
        send(&mut bench, Command::new(cdb));
        assert_eq!(bench.units[0].commands.pop().expect("an end").status, Status::IoErr);
    }
    assert_eq!(script.state().arrived.len(), 0);
    bench.end();
}

#[test]
fn a_command_without_an_answer_is_aborted_and_ends() {
    let script = Script::new(adapter());
    script.reply(|_| Reply::Never);
    let mut bench = Bench::new(&script);
    send(&mut bench, Command::new(&[0x12, 0, 0, 0, 36, 0]).reading(Data::One(Buf::zeroed(36))));
    bench.pass(33 * SECOND);
    let end = bench.units[0].commands.pop().expect("an end");
    assert_eq!((end.status, end.data.len()), (Status::Timeout, 36), "its memory is back");
    bench.end();
}

#[test]
fn a_change_of_the_access_state_is_read_anew() {
    let script = Script::new(adapter());
    let disk = Disk { tpgs: Tpgs::Implicit, ..Disk::default() };
    let mut group = disk.port_group();
    script.state().disks.insert(Lun::ZERO, disk);
    let transition = AdditionalSense::ASYMMETRIC_ACCESS_STATE_TRANSITION;
    let changed = AdditionalSense::ASYMMETRIC_ACCESS_STATE_CHANGED;
    let ends = [sense(SenseKey::NotReady, transition), sense(SenseKey::UnitAttention, changed)];
    for (end, state) in
        ends.into_iter().zip([AccessState::ActiveNonOptimized, AccessState::Standby])
    {
        let mut bench = Bench::new(&script);
        let access = bench.units[0].unit.access().expect("a state");
        assert_eq!(access.state, AccessState::ActiveOptimized);
        group.state = state;
        let mut data = Vec::new();
        put_port_groups(&mut data, None, std::slice::from_ref(&group));
        let mut first = Some(end);
        script.reply(move |arrived| match (arrived.cdb[0], first.take()) {
            (0xa3, _) => Reply::data(data.clone()),
            (_, Some(first)) => Reply::sense(first),
            _ => Reply::good(),
        });
        bench.submit(0, read(8).cookie(1));
        bench.pass(4 * SECOND);
        assert_eq!(bench.ended(0), [(1, Status::Ok)], "it was handed back meanwhile");
        assert_eq!(bench.units[0].unit.access().expect("a state").state, state);
        let told = bench.host.notices().all();
        assert!(told[0].starts_with("script: LUN 0: port group 257 is"), "{told:?}");
        bench.end();
    }
}
