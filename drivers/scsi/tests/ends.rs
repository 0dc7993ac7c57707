//! What becomes of a request by how its command ends: every row of the tables of `decide`, at a
//! device.

mod bed;

use bed::disk::{Disk, sense};
use bed::port::{Reply, Script, adapter, bytes_of};
use bed::{Bench, MS, SECOND, discard, read, write, zeroes};
use weir_bio::{Bio, Buf, Flags, Status};
use weir_proto_scsi::decide::tables::{Codes, DELIVERIES, SENSES, STATUSES};
use weir_proto_scsi::decide::{
    Attempt, Delivery, Disposition, Purpose, Recovery, ScsiEnd, UnitTraits, decide,
};
use weir_proto_scsi::sense::SenseFormat;
use weir_proto_scsi::{AdditionalSense, Lun, ScsiStatus, Sense, SenseKey};

/// Every end that a row of the tables is for, one of each code.
fn every_end() -> Vec<(Delivery, ScsiStatus, Option<Sense>)> {
    let mut ends = Vec::new();
    for row in DELIVERIES {
        ends.extend(row.of.iter().map(|delivery| (*delivery, ScsiStatus::GOOD, None)));
    }
    for row in STATUSES {
        ends.extend(row.of.iter().map(|status| (Delivery::Delivered, *status, None)));
    }
    ends.push((Delivery::Delivered, ScsiStatus(0x22), None));
    for row in SENSES {
        let codes: Vec<AdditionalSense> = match row.codes {
            Codes::Any => vec![AdditionalSense::new(0x77, 1)],
            Codes::Asc(codes) => codes.iter().map(|asc| AdditionalSense::new(*asc, 0)).collect(),
            Codes::Pairs(pairs) => pairs.to_vec(),
        };
        let keys = if row.of.is_empty() { &[SenseKey::Completed][..] } else { row.of };
        for key in keys {
            for code in &codes {
                for deferred in [false, true] {
                    let sense = Sense { deferred, ..Sense::new(*key, *code) };
                    ends.push((Delivery::Delivered, ScsiStatus::CHECK_CONDITION, Some(sense)));
                }
            }
        }
    }
    ends
}

fn reply(end: &(Delivery, ScsiStatus, Option<Sense>)) -> Reply {
    let mut bytes = Vec::new();
    if let Some(sense) = end.2 {
        sense.put(SenseFormat::Descriptors, &mut bytes);
    }
    // Success is success of all of it, unlike an error.
    let moved = (end.1 != ScsiStatus::GOOD).then_some(0);
    Reply::End { delivery: end.0, status: end.1, sense: bytes, moved, data: vec![] }
}

/// What the tables say of a command that was sent for the first time.
fn verdict(
    end: &(Delivery, ScsiStatus, Option<Sense>),
    purpose: Purpose,
    flags: Flags,
) -> Disposition {
    let attempt = Attempt {
        purpose,
        flags,
        retries: 0,
        retries_allowed: 5,
        out_of_time: false,
        unit: UnitTraits { allow_restart: true, ..UnitTraits::default() },
    };
    // What a port aborted on no account of the command's own was reset.
    let delivery = if end.0 == Delivery::Aborted { Delivery::Reset } else { end.0 };
    decide(&ScsiEnd { delivery, status: end.1, sense: end.2 }, &attempt).disposition
}

/// The requests that are tried, with the operation code that says which command is theirs.
fn requests() -> Vec<(Bio, Purpose, u8, Flags)> {
    vec![
        (read(8), Purpose::Transfer, 0x28, Flags::NONE),
        (write(8), Purpose::Transfer, 0x2a, Flags::NONE),
        (read(8).with(Flags::FAILFAST), Purpose::Transfer, 0x28, Flags::FAILFAST),
        (Bio::flush(), Purpose::Flush, 0x35, Flags::NONE),
        (discard(64), Purpose::Unmap, 0x42, Flags::NONE),
        (zeroes(64).with(Flags::NOUNMAP), Purpose::WriteSame, 0x93, Flags::NONE),
    ]
}

/// A device whose first command of this code ends so; says how often it was sent, and the ends.
fn end_once(
    bio: Bio,
    opcode: u8,
    end: &(Delivery, ScsiStatus, Option<Sense>),
) -> (usize, Vec<(u64, Status)>, Bench) {
    let script = Script::new(adapter());
    let mut first = Some(reply(end));
    script.reply(move |arrived| {
        let is = arrived.cdb[0] == opcode;
        if is && let Some(first) = first.take() { first } else { Reply::good() }
    });
    let mut bench = Bench::new(&script);
    // A flush is sent only if there is something to flush.
    bench.submit(0, write(4096));
    bench.settle();
    bench.ended(0);
    let first_write = opcode == 0x2a;
    if first_write {
        // That one took the end, and the request under test takes the next.
        let mut first = Some(reply(end));
        script.reply(move |arrived| {
            let is = arrived.cdb[0] == opcode;
            if is && let Some(first) = first.take() { first } else { Reply::good() }
        });
        bench.pass(SECOND);
        bench.ended(0);
        script.take_arrived();
    }
    bench.submit(0, bio.cookie(7));
    bench.settle();
    let ended = bench.ended(0);
    let sent = script.state().opcodes().iter().filter(|code| **code == opcode).count();
    (sent, ended, bench)
}

#[test]
fn every_row_of_the_tables_does_at_a_device_what_it_says() {
    let mut rows = 0;
    for end in every_end() {
        for (bio, purpose, opcode, flags) in requests() {
            let what = format!("{purpose:?} {flags:?} {end:?}");
            let verdict = verdict(&end, purpose, flags);
            let (sent, ended, mut bench) = end_once(bio, opcode, &end);
            let status = ended.first().map(|(_, status)| *status);
            match verdict {
                Disposition::Complete => {
                    assert_eq!((sent, status), (1, Some(Status::Ok)), "{what}");
                }
                Disposition::Fail(failed) => {
                    assert_eq!((sent, status), (1, Some(failed)), "{what}");
                }
                Disposition::Retry | Disposition::RetryUncounted | Disposition::Requeue => {
                    bench.pass(SECOND);
                    let more = bench.ended(0);
                    let all = [ended, more].concat();
                    assert_eq!(all.len(), 1, "{what}");
                    assert_eq!(all[0].1, Status::Ok, "{what}");
                    let now = bench.script.state().opcodes();
                    let sent = now.iter().filter(|code| **code == opcode).count();
                    assert_eq!(sent, 2, "{what}");
                }
                Disposition::UseSix => panic!("a modern disk needs no 6 bytes: {what}"),
                Disposition::Recover(recovery) => {
                    let helper = match recovery {
                        Recovery::FetchSense => Some(0x03),
                        Recovery::StartUnit => Some(0x1b),
                        Recovery::Abort => None,
                    };
                    bench.pass(SECOND);
                    let codes = bench.script.state().opcodes();
                    if let Some(helper) = helper {
                        assert!(codes.contains(&helper), "{what}: {codes:x?}");
                    }
                }
            }
            bench.end();
            rows += 1;
        }
    }
    assert!(rows > 600, "{rows} ends were tried");
}

/// Every command of reads ends so.
fn always(reply: Reply) -> (Script, Bench) {
    let script = Script::new(adapter());
    script.reply(move |arrived| if arrived.cdb[0] == 0x28 { reply.clone() } else { Reply::good() });
    let bench = Bench::new(&script);
    (script, bench)
}

#[test]
fn a_command_is_retried_five_times_and_then_fails() {
    for (reply, status) in [
        (Reply::delivery(Delivery::Disrupted), Status::Transport),
        (Reply::delivery(Delivery::SoftError), Status::IoErr),
        (Reply::status(ScsiStatus::TASK_ABORTED), Status::IoErr),
        (Reply::sense(sense(SenseKey::MediumError, AdditionalSense::new(0x10, 0))), Status::Medium),
        (Reply::sense(sense(SenseKey::AbortedCommand, AdditionalSense::NONE)), Status::IoErr),
    ] {
        let (script, mut bench) = always(reply);
        assert_eq!(bench.read_once(), [(1, status)]);
        assert_eq!(script.state().arrived.len(), 6);
        let counts = bench.units[0].unit.counts();
        assert_eq!((counts.errors, counts.retries, counts.requests), (1, 5, 6));
        bench.end();
    }
}

#[test]
fn a_request_that_fails_fast_is_not_retried() {
    let (script, mut bench) = always(Reply::delivery(Delivery::BusBusy));
    bench.submit(0, read(0).with(Flags::FAILFAST_TRANSPORT).cookie(1));
    bench.settle();
    assert_eq!(bench.ended(0), [(1, Status::IoErr)]);
    assert_eq!(script.state().arrived.len(), 1);
    bench.end();
}

#[test]
fn a_busy_unit_is_tried_again_after_seven_times_three_milliseconds_without_a_retry() {
    let script = Script::new(adapter());
    let mut busy = 2;
    script.reply(move |_| {
        busy -= 1;
        if busy >= 0 { Reply::status(ScsiStatus::BUSY) } else { Reply::good() }
    });
    let mut bench = Bench::new(&script);
    bench.submit(0, read(8).cookie(1));
    bench.homes[0].turn(bench.now);
    let mut sent_at = Vec::new();
    for _ in 0..200 {
        // Turned only for a reason, so that the retries are those that the lane asks for.
        let home = &mut bench.homes[0];
        home.bell().ready().take(|_| {});
        match home.wake_at() {
            _ if home.wants_turn(bench.now) => home.turn(bench.now),
            Some(at) if at > bench.now && at.since(bench.now) < 100 * MS => bench.now = at,
            _ => break,
        }
        for arrived in script.take_arrived() {
            sent_at.push(arrived.at);
        }
    }
    bench.settle();
    assert_eq!(bench.ended(0), [(1, Status::Ok)]);
    assert_eq!(sent_at.len(), 3, "{sent_at:?}");
    for pair in sent_at.windows(2) {
        let waited = pair[1].since(pair[0]);
        assert!((15 * MS..=24 * MS).contains(&waited), "{waited} ns between two attempts");
    }
    assert_eq!(bench.units[0].unit.counts().errors, 0);
    bench.end();
}

#[test]
fn a_unit_that_stays_busy_ends_its_requests_in_their_time() {
    let (_, mut bench) = always(Reply::status(ScsiStatus::BUSY));
    bench.submit(0, read(8).cookie(1));
    bench.pass(29 * SECOND);
    assert_eq!(bench.ended(0), []);
    bench.pass(160 * SECOND);
    let ended = bench.ended(0);
    assert_eq!(ended.len(), 1);
    assert!(matches!(ended[0].1, Status::Timeout | Status::IoErr), "{ended:?}");
    bench.end();
}

#[test]
fn sense_that_did_not_come_is_fetched_once_and_decides() {
    let medium = sense(SenseKey::MediumError, AdditionalSense::new(0x11, 0));
    let script = Script::new(adapter());
    let fetched = medium.clone();
    script.reply(move |arrived| match arrived.cdb[0] {
        0x03 => Reply::data(fetched.clone()),
        _ => Reply::status(ScsiStatus::CHECK_CONDITION),
    });
    let mut bench = Bench::new(&script);
    assert_eq!(bench.read_once(), [(1, Status::Medium)]);
    assert_eq!(script.state().opcodes(), [0x28, 0x03]);
    assert_eq!(bench.units[0].unit.counts().keys[3], 1);
    // A target that has forgotten it by then: the command has not succeeded.
    script.reply(|arrived| match arrived.cdb[0] {
        0x03 => Reply::data(sense(SenseKey::NoSense, AdditionalSense::NONE)),
        _ => Reply::status(ScsiStatus::CHECK_CONDITION),
    });
    assert_eq!(bench.read_once(), [(1, Status::IoErr)]);
    // A target that has none fails the command.
    script.reply(|_| Reply::status(ScsiStatus::CHECK_CONDITION));
    assert_eq!(bench.read_once(), [(1, Status::IoErr)]);
    // One that does not answer has ten seconds.
    script.reply(|arrived| match arrived.cdb[0] {
        0x03 => Reply::Never,
        _ => Reply::status(ScsiStatus::CHECK_CONDITION),
    });
    assert_eq!(bench.read_once(), []);
    bench.pass(9 * SECOND);
    assert_eq!(bench.ended(0), []);
    bench.pass(2 * SECOND);
    assert_eq!(bench.ended(0), [(1, Status::IoErr)]);
    bench.end();
}

#[test]
fn a_stopped_unit_is_started_and_the_command_sent_again() {
    let stopped = sense(SenseKey::NotReady, AdditionalSense::INITIALIZING_COMMAND_REQUIRED);
    let script = Script::new(adapter());
    let mut first = true;
    script.reply(move |arrived| match arrived.cdb[0] {
        0x28 if std::mem::take(&mut first) => Reply::sense(stopped.clone()),
        _ => Reply::good(),
    });
    let mut bench = Bench::new(&script);
    assert_eq!(bench.read_once(), [(1, Status::Ok)]);
    assert_eq!(script.state().opcodes(), [0x28, 0x1b, 0x28]);
    bench.end();
}

#[test]
fn a_transfer_that_moved_too_little_is_sent_again_whole() {
    let script = Script::new(adapter());
    let mut first = true;
    script.reply(move |_| match std::mem::take(&mut first) {
        true => Reply::data(vec![1; 512]),
        false => Reply::data(vec![2; 4096]),
    });
    let mut bench = Bench::new(&script);
    bench.submit(0, read(8));
    bench.settle();
    let (_, status, data) = bench.units[0].ended.pop().expect("an end");
    assert_eq!((status, bytes_of(&[data])), (Status::Ok, vec![2; 4096]));
    script.reply(|_| Reply::data(vec![1; 512]));
    assert_eq!(bench.read_once(), [(1, Status::IoErr)], "not for ever");
    bench.end();
}

#[test]
fn an_old_disk_that_knows_no_ten_bytes_is_used_with_six() {
    let script = Script::new(adapter());
    let old = Disk { version: 2, write_cache: false, ..Disk::default() };
    script.state().disks.insert(Lun::ZERO, old);
    let refused = sense(SenseKey::IllegalRequest, AdditionalSense::INVALID_COMMAND_OPERATION_CODE);
    script.reply(move |arrived| match arrived.cdb.len() {
        6 => Reply::good(),
        _ => Reply::sense(refused.clone()),
    });
    let mut bench = Bench::new(&script);
    assert_eq!(bench.read_once(), [(1, Status::Ok)]);
    assert_eq!(bench.read_once(), [(1, Status::Ok)]);
    assert_eq!(script.state().opcodes(), [0x28, 0x08, 0x08]);
    // What six bytes cannot reach fails.
    bench.submit(0, read((1 << 21) - 8).cookie(2));
    bench.settle();
    assert_eq!(bench.ended(0), [(2, Status::Ok)], "the last address of 21 bits");
    bench.submit(0, Bio::read(0, Buf::zeroed(512 * 257)).cookie(3));
    bench.settle();
    assert_eq!(bench.ended(0), [(3, Status::IoErr)], "more than 256 blocks");
    bench.end();
}

#[test]
fn a_refused_unmap_or_write_same_is_not_tried_again() {
    for (bio, opcode) in [(discard as fn(u64) -> Bio, 0x42), (zeroes, 0x93)] {
        let script = Script::new(adapter());
        let refused =
            sense(SenseKey::IllegalRequest, AdditionalSense::INVALID_COMMAND_OPERATION_CODE);
        script.reply(move |arrived| match arrived.cdb[0] == opcode {
            true => Reply::sense(refused.clone()),
            false => Reply::good(),
        });
        let mut bench = Bench::new(&script);
        for round in 0..3 {
            bench.submit(0, bio(64).with(Flags::NOUNMAP).cookie(round));
            bench.settle();
            assert_eq!(bench.ended(0), [(round, Status::NotSupp)]);
        }
        let sent = script.state().opcodes().iter().filter(|code| **code == opcode).count();
        assert_eq!(sent, 1, "opcode {opcode:x}");
        let told = bench.host.notices().all();
        assert_eq!(told.iter().filter(|line| line.contains("refuses")).count(), 1, "{told:?}");
        bench.end();
    }
}

#[test]
fn a_deferred_error_fails_every_flush_from_then_on() {
    let deferred = Sense {
        deferred: true,
        ..Sense::new(SenseKey::MediumError, AdditionalSense::new(0x0c, 0))
    };
    let mut bytes = Vec::new();
    deferred.put(SenseFormat::Fixed, &mut bytes);
    let script = Script::new(adapter());
    let mut first = Some(bytes);
    script.reply(move |_| first.take().map_or(Reply::good(), Reply::sense));
    let mut bench = Bench::new(&script);
    assert_eq!(bench.read_once(), [(1, Status::Ok)], "the read itself succeeds at last");
    for _ in 0..2 {
        bench.submit(0, Bio::flush().cookie(2));
        bench.settle();
        assert_ne!(bench.ended(0), [(2, Status::Ok)]);
    }
    assert!(!script.state().opcodes().contains(&0x35));
    bench.end();
}

#[test]
fn a_change_that_the_target_tells_is_told_once_and_leaves_a_wish() {
    use weir_driver_scsi::Wish;
    let attentions = [
        (AdditionalSense::CAPACITY_DATA_HAS_CHANGED, Wish::Capacity),
        (AdditionalSense::REPORTED_LUNS_DATA_HAS_CHANGED, Wish::Luns),
        (AdditionalSense::MODE_PARAMETERS_CHANGED, Wish::Pages),
    ];
    for (code, wish) in attentions {
        let script = Script::new(adapter());
        let mut left = 3;
        script.reply(move |_| {
            left -= 1;
            match left >= 0 {
                true => Reply::sense(sense(SenseKey::UnitAttention, code)),
                false => Reply::good(),
            }
        });
        let mut bench = Bench::new(&script);
        assert_eq!(bench.read_once(), [(1, Status::Ok)]);
        let told = bench.host.notices().all();
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(bench.units[0].unit.take_wish(wish) && !bench.units[0].unit.take_wish(wish));
        // The same in an asynchronous message.
        script.state().events.push((Lun::ZERO, sense(SenseKey::UnitAttention, code)));
        bench.settle();
        assert!(bench.units[0].unit.take_wish(wish));
        bench.end();
    }
}

#[test]
fn failures_are_told_once_a_second_with_the_number_of_the_others() {
    let (_, mut bench) =
        always(Reply::sense(sense(SenseKey::HardwareError, AdditionalSense::NONE)));
    for _ in 0..5 {
        bench.read_once();
    }
    bench.pass(2 * SECOND);
    bench.read_once();
    let told = bench.host.notices().all();
    let wanted = "script: LUN 0: Transfer failed: hardware error (HARDWARE ERROR, 00h/00h)";
    assert_eq!(told, [wanted.to_owned(), format!("{wanted}; and 4 more since")]);
    bench.end();
}

#[test]
fn a_unit_without_a_time_out_above_has_its_own_time() {
    let script = Script::new(adapter());
    let mut bench = Bench::new(&script);
    let untimed = |parts: &mut weir_queue::Settings| parts.timeout_ns = 0;
    bench.units[0].device.reconfigure(untimed).expect("no time");
    let mut first = Some(Reply::delivery(Delivery::SoftError));
    script.reply(move |_| first.take().unwrap_or_else(Reply::good));
    assert_eq!(bench.read_once(), [(1, Status::Ok)], "no retry is out of time");
    bench.end();
}

#[test]
fn a_command_that_is_refused_twice_is_told_once() {
    let script = Script::new(adapter());
    let mut bench = Bench::new(&script);
    let code = AdditionalSense::INVALID_COMMAND_OPERATION_CODE;
    script.reply(move |_| Reply::sense(sense(SenseKey::IllegalRequest, code)));
    script.state().ends_at_once = 0;
    for sector in [64, 4096] {
        bench.submit(0, discard(sector));
    }
    bench.settle();
    assert_eq!(script.state().held(), 2);
    script.state().ends_at_once = usize::MAX;
    bench.settle();
    let told = bench.host.notices().all();
    let lines = told.iter().filter(|line| line.contains("it refuses UNMAP")).count();
    assert_eq!(lines, 1, "{told:?}");
    bench.end();
}
