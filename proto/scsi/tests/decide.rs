//! Every row of the decision tables, written once more: what a command's end is, and what becomes
//! of it. A row of the tables that no line here reaches fails the last test.

use std::collections::BTreeSet;

use weir_bio::{Flags, Status};
use weir_proto_scsi::command::{SynchronizeCache, Transfer, WriteSame};
use weir_proto_scsi::decide::tables::{
    DEFERRED, DELIVERIES, NO_SENSE_DATA, RuleRow, SENSES, STATUSES,
};
use weir_proto_scsi::decide::{
    Attempt, Decision, Delivery, Disposition, Notice, Purpose, Recovery, Rule, ScsiEnd, UnitTraits,
    decide,
};
use weir_proto_scsi::{AdditionalSense, CdbSize, ScsiCommand, ScsiStatus, Sense, SenseKey};

use Disposition::{Complete, Fail, Recover, Requeue, Retry, RetryUncounted, UseSix};

const ATTEMPT: Attempt = Attempt {
    purpose: Purpose::Transfer,
    flags: Flags::NONE,
    retries: 0,
    retries_allowed: 5,
    out_of_time: false,
    unit: UnitTraits {
        allow_restart: false,
        retry_hardware_errors: false,
        removable: false,
        alua: false,
        expecting_attention: false,
        may_need_six: false,
    },
};

fn of(purpose: Purpose) -> Attempt {
    Attempt { purpose, ..ATTEMPT }
}

fn unit(is: impl FnOnce(&mut UnitTraits)) -> Attempt {
    let mut attempt = ATTEMPT;
    is(&mut attempt.unit);
    attempt
}

/// The last retry was made.
fn spent(attempt: Attempt) -> Attempt {
    Attempt { retries: 5, ..attempt }
}

fn delivered(delivery: Delivery) -> ScsiEnd {
    ScsiEnd { delivery, status: ScsiStatus::GOOD, sense: None }
}

fn ended(status: u8) -> ScsiEnd {
    ScsiEnd { delivery: Delivery::Delivered, status: ScsiStatus(status), sense: None }
}

/// CHECK CONDITION with a key, a code and a qualifier.
fn check(key: u8, code: u16) -> ScsiEnd {
    let sense = Sense::new(SenseKey::from_bits(key), AdditionalSense(code));
    ScsiEnd { sense: Some(sense), ..ended(0x02) }
}

fn deferred(key: u8, code: u16) -> ScsiEnd {
    let end = check(key, code);
    ScsiEnd { sense: end.sense.map(|sense| Sense { deferred: true, ..sense }), ..end }
}

/// An end, an attempt, what becomes of it, and what else is learnt.
type Line = (ScsiEnd, Attempt, Disposition, Option<Notice>);

fn line(end: ScsiEnd, attempt: Attempt, disposition: Disposition) -> Line {
    (end, attempt, disposition, None)
}

fn deliveries() -> Vec<Line> {
    let d = delivered;
    let mut lines = vec![
        line(d(Delivery::Delivered), ATTEMPT, Complete),
        line(d(Delivery::NoConnect), ATTEMPT, Fail(Status::IoErr)),
        line(d(Delivery::BadTarget), ATTEMPT, Fail(Status::IoErr)),
        line(d(Delivery::Aborted), ATTEMPT, Fail(Status::IoErr)),
        line(d(Delivery::TimedOut), of(Purpose::TestUnitReady), Fail(Status::Timeout)),
        line(d(Delivery::TimedOut), of(Purpose::Inquiry), Fail(Status::Timeout)),
        line(d(Delivery::RetryNow), ATTEMPT, RetryUncounted),
        line(d(Delivery::RetryNow), spent(ATTEMPT), RetryUncounted),
        line(d(Delivery::Requeue), spent(ATTEMPT), Requeue),
        line(d(Delivery::FailFast), ATTEMPT, Fail(Status::Transport)),
        line(d(Delivery::Reset), spent(ATTEMPT), RetryUncounted),
        line(d(Delivery::Other), ATTEMPT, Recover(Recovery::Abort)),
    ];
    for purpose in [Purpose::Transfer, Purpose::Unmap, Purpose::WriteSame, Purpose::Flush] {
        lines.push(line(d(Delivery::TimedOut), of(purpose), Recover(Recovery::Abort)));
    }
    lines.push(line(d(Delivery::TimedOut), of(Purpose::Other), Recover(Recovery::Abort)));
    // Each is tried again five times, and one fail-fast flag at most stops that.
    for (delivery, stop, status) in [
        (Delivery::BusBusy, Flags::FAILFAST_TRANSPORT, Status::IoErr),
        (Delivery::Parity, Flags::FAILFAST_DEV, Status::IoErr),
        (Delivery::Error, Flags::FAILFAST_DRIVER, Status::IoErr),
        (Delivery::SoftError, Flags::FAILFAST_DRIVER, Status::IoErr),
        (Delivery::Disrupted, Flags::NONE, Status::Transport),
    ] {
        lines.extend(retried(d(delivery), ATTEMPT, stop, Fail(status)));
    }
    // ERROR with a reservation conflict goes by the conflict.
    let conflict = ScsiEnd { status: ScsiStatus(0x18), ..d(Delivery::Error) };
    lines.push(line(conflict, ATTEMPT, Fail(Status::ResvConflict)));
    let other = ScsiEnd { status: ScsiStatus(0x18), ..d(Delivery::SoftError) };
    lines.push(line(other, ATTEMPT, Retry));
    let busy = ScsiEnd { status: ScsiStatus(0x08), ..d(Delivery::Error) };
    lines.push(line(busy, spent(ATTEMPT), Fail(Status::IoErr)));
    lines
}

/// Lines of what is tried again: the fifth retry is made, the sixth is not, and of the fail-fast
/// flags only `stop` stops it.
fn retried(end: ScsiEnd, attempt: Attempt, stop: Flags, finally: Disposition) -> Vec<Line> {
    let mut lines = vec![
        line(end, attempt, Retry),
        line(end, Attempt { retries: 4, ..attempt }, Retry),
        line(end, spent(attempt), finally),
        line(end, Attempt { retries: 6, ..attempt }, finally),
        line(end, Attempt { retries_allowed: 0, ..attempt }, finally),
    ];
    for flags in [Flags::FAILFAST_DEV, Flags::FAILFAST_TRANSPORT, Flags::FAILFAST_DRIVER] {
        let expected = if flags == stop { finally } else { Retry };
        lines.push(line(end, Attempt { flags, ..attempt }, expected));
    }
    lines
}

fn statuses() -> Vec<Line> {
    let fast = Attempt { flags: Flags::FAILFAST, ..spent(ATTEMPT) };
    let full = Some(Notice::TaskSetFull);
    let mut lines = vec![
        line(ended(0x00), ATTEMPT, Complete),
        line(ended(0x02), ATTEMPT, Recover(Recovery::FetchSense)),
        line(ended(0x08), ATTEMPT, Requeue),
        line(ended(0x08), fast, Requeue),
        (ended(0x28), ATTEMPT, Requeue, full),
        (ended(0x28), fast, Requeue, full),
        line(ended(0x18), ATTEMPT, Fail(Status::ResvConflict)),
        line(ended(0x18), of(Purpose::Inquiry), Fail(Status::ResvConflict)),
        line(ended(0x18), of(Purpose::TestUnitReady), Complete),
        line(ended(0x30), ATTEMPT, Fail(Status::IoErr)),
    ];
    for other in [0x04, 0x10, 0x14, 0x22, 0xff] {
        lines.push(line(ended(other), ATTEMPT, Recover(Recovery::Abort)));
    }
    lines.extend(retried(ended(0x40), ATTEMPT, Flags::NONE, Fail(Status::IoErr)));
    // Sense beside a status that is no CHECK CONDITION does not count.
    let good = ScsiEnd { status: ScsiStatus::GOOD, ..check(0x3, 0x1100) };
    lines.push(line(good, ATTEMPT, Complete));
    let busy = ScsiEnd { status: ScsiStatus::BUSY, ..check(0x6, 0x2a09) };
    lines.push(line(busy, ATTEMPT, Requeue));
    let lost = ScsiEnd { delivery: Delivery::FailFast, ..check(0x6, 0x2a09) };
    lines.push(line(lost, ATTEMPT, Fail(Status::Transport)));
    lines
}

const DEV: Flags = Flags::FAILFAST_DEV;

fn not_ready() -> Vec<Line> {
    let transition = Some(Notice::AccessStateChanged);
    let alua = unit(|unit| unit.alua = true);
    let restart = unit(|unit| unit.allow_restart = true);
    let path_error = Fail(Status::IoErr);
    let mut lines = vec![
        (check(0x2, 0x040a), alua, Requeue, transition),
        (check(0x2, 0x040a), ATTEMPT, Requeue, transition),
        line(check(0x2, 0x0402), restart, Recover(Recovery::StartUnit)),
        line(check(0x2, 0x0402), ATTEMPT, path_error),
        line(check(0x2, 0x0403), restart, path_error),
        line(check(0x2, 0x0400), restart, path_error),
        line(check(0x2, 0x3a00), ATTEMPT, path_error),
        line(check(0x2, 0x3a01), ATTEMPT, path_error),
        // Standby and unavailable: another path may do.
        line(check(0x2, 0x040b), alua, path_error),
        line(check(0x2, 0x040c), alua, path_error),
    ];
    for qualifier in [0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x11, 0x14, 0x1a, 0x1b, 0x1d, 0x24] {
        lines.push(line(check(0x2, 0x0400 | qualifier), spent(ATTEMPT), Requeue));
    }
    for qualifier in [0x0d, 0x10, 0x12, 0x13, 0x15, 0x1c, 0x23, 0x25] {
        lines.push(line(check(0x2, 0x0400 | qualifier), ATTEMPT, path_error));
    }
    lines.extend(retried(check(0x2, 0x0401), ATTEMPT, DEV, Requeue));
    lines
}

fn errors() -> Vec<Line> {
    let target = Fail(Status::Target);
    let hard = unit(|unit| unit.retry_hardware_errors = true);
    let mut lines = vec![
        line(check(0x0, 0x0000), ATTEMPT, Complete),
        line(check(0x0, 0x1100), ATTEMPT, Complete),
        line(check(0x1, 0x1701), ATTEMPT, Complete),
        line(check(0x3, 0x1100), ATTEMPT, Fail(Status::Medium)),
        line(check(0x3, 0x110b), ATTEMPT, Fail(Status::Medium)),
        line(check(0x3, 0x1300), ATTEMPT, Fail(Status::Medium)),
        line(check(0x3, 0x1401), ATTEMPT, Fail(Status::Medium)),
        line(check(0x4, 0x4400), hard, Requeue),
        line(check(0x4, 0x4400), ATTEMPT, target),
        line(check(0x7, 0x2707), ATTEMPT, Fail(Status::NoSpc)),
        (check(0x7, 0x2700), ATTEMPT, target, Some(Notice::WriteProtected)),
        (check(0x7, 0x2702), ATTEMPT, target, Some(Notice::WriteProtected)),
        line(check(0x7, 0x7401), ATTEMPT, target),
        line(check(0x8, 0x0000), ATTEMPT, target),
        line(check(0xa, 0x0000), ATTEMPT, target),
        line(check(0xd, 0x0000), ATTEMPT, target),
        line(check(0xe, 0x1d00), ATTEMPT, target),
        line(check(0xb, 0x1001), ATTEMPT, Fail(Status::Protection)),
        line(check(0xb, 0x1000), spent(ATTEMPT), Fail(Status::Protection)),
    ];
    for key in [0x9, 0xc, 0xf] {
        lines.push(line(check(key, 0x0000), ATTEMPT, Fail(Status::IoErr)));
    }
    lines.extend(retried(check(0x3, 0x0c00), ATTEMPT, DEV, Fail(Status::Medium)));
    lines.extend(retried(check(0x3, 0x1200), ATTEMPT, DEV, Fail(Status::Medium)));
    lines.extend(retried(check(0xb, 0x4b00), ATTEMPT, DEV, Fail(Status::IoErr)));
    lines
}

fn illegal_requests() -> Vec<Line> {
    let target = Fail(Status::Target);
    let six = unit(|unit| unit.may_need_six = true);
    let six_flush = Attempt { purpose: Purpose::Flush, ..six };
    let unmap = Some(Notice::UnmapRefused);
    let same = Some(Notice::WriteSameRefused);
    let gone = Some(Notice::LunGone);
    let mut lines = vec![
        line(check(0x5, 0x2000), six, UseSix),
        line(check(0x5, 0x2001), six, target),
        line(check(0x5, 0x2400), six, target),
        line(check(0x5, 0x2000), six_flush, target),
        (check(0x5, 0x2000), of(Purpose::Unmap), Fail(Status::NotSupp), unmap),
        (check(0x5, 0x2400), of(Purpose::Unmap), Fail(Status::NotSupp), unmap),
        (check(0x5, 0x2000), of(Purpose::WriteSame), Fail(Status::NotSupp), same),
        (check(0x5, 0x2400), of(Purpose::WriteSame), Fail(Status::NotSupp), same),
        line(check(0x5, 0x2100), of(Purpose::Unmap), target),
        line(check(0x5, 0x2600), of(Purpose::WriteSame), target),
        line(check(0x5, 0x1001), ATTEMPT, Fail(Status::Protection)),
        (check(0x5, 0x2500), ATTEMPT, Fail(Status::IoErr), gone),
        (check(0x5, 0x2500), of(Purpose::TestUnitReady), Fail(Status::IoErr), gone),
        line(check(0x5, 0x2501), ATTEMPT, Fail(Status::IoErr)),
        line(check(0x5, 0x1a00), ATTEMPT, Fail(Status::IoErr)),
        line(check(0x5, 0x9401), ATTEMPT, Fail(Status::IoErr)),
    ];
    for code in [0x2000, 0x2100, 0x2101, 0x2400, 0x2600, 0x2700] {
        lines.push(line(check(0x5, code), ATTEMPT, target));
        lines.push(line(check(0x5, code), of(Purpose::Flush), target));
    }
    lines
}

fn attentions() -> Vec<Line> {
    let alua = unit(|unit| unit.alua = true);
    let removable = unit(|unit| unit.removable = true);
    let expecting = unit(|unit| unit.expecting_attention = true);
    let both = unit(|unit| {
        unit.removable = true;
        unit.expecting_attention = true;
    });
    let mut lines = Vec::new();
    for (code, notice, followed) in [
        (0x2900, Notice::WasReset, true),
        (0x2901, Notice::WasReset, false),
        (0x2904, Notice::WasReset, true),
        (0x2907, Notice::WasReset, false),
        (0x2a01, Notice::ModeChanged, true),
        (0x2a02, Notice::OtherAttention, false),
        (0x2a03, Notice::OtherAttention, false),
        (0x2a06, Notice::AccessStateChanged, true),
        (0x2a07, Notice::AccessStateChanged, true),
        (0x2a09, Notice::CapacityChanged, false),
        (0x2f00, Notice::OtherAttention, false),
        (0x3807, Notice::ThinThreshold, false),
        (0x3f01, Notice::OtherAttention, false),
        (0x3f03, Notice::InquiryChanged, true),
        (0x3f0e, Notice::LunsChanged, true),
        (0x2800, Notice::MediumChanged, false),
        (0x2801, Notice::MediumChanged, false),
    ] {
        let end = check(0x6, code);
        let notice = Some(notice);
        lines.push((end, spent(ATTEMPT), RetryUncounted, notice));
        let with_groups = if followed { Requeue } else { RetryUncounted };
        lines.push((end, alua, with_groups, notice));
        lines.push((end, removable, Fail(Status::IoErr), notice));
        for (attempt, expected) in [
            (expecting, Retry),
            (both, Retry),
            (spent(expecting), RetryUncounted),
            (Attempt { flags: DEV, ..expecting }, RetryUncounted),
            (Attempt { flags: Flags::FAILFAST_TRANSPORT, ..expecting }, Retry),
        ] {
            lines.push((end, attempt, expected, notice));
        }
    }
    lines
}

fn deferred_errors() -> Vec<Line> {
    let flush = of(Purpose::Flush);
    let lost = Some(Notice::DeferredError);
    let mut lines = vec![
        (deferred(0x3, 0x0c00), flush, Fail(Status::Medium), lost),
        (deferred(0x3, 0x1100), flush, Fail(Status::Medium), lost),
        (deferred(0x4, 0x4400), flush, Fail(Status::Target), lost),
        (deferred(0xb, 0x0000), flush, Fail(Status::Target), lost),
        // No earlier command failed: the flush is made again, and is not carried out yet.
        line(deferred(0x1, 0x1701), flush, Retry),
        line(deferred(0x0, 0x0000), spent(flush), Fail(Status::IoErr)),
    ];
    for (end, notice) in [
        (deferred(0x1, 0x1701), None),
        (deferred(0x3, 0x1100), lost),
        (deferred(0x4, 0x4400), lost),
        (deferred(0x6, 0x2900), lost),
    ] {
        let told = retried(end, ATTEMPT, DEV, Fail(Status::IoErr));
        lines.extend(told.into_iter().map(|line| (line.0, line.1, line.2, notice)));
    }
    lines
}

fn all() -> Vec<Line> {
    [
        deliveries(),
        statuses(),
        not_ready(),
        errors(),
        illegal_requests(),
        attentions(),
        deferred_errors(),
    ]
    .concat()
}

#[test]
fn every_end_has_the_disposition_and_the_notice_of_its_row() {
    for (end, attempt, disposition, notice) in all() {
        let decision = decide(&end, &attempt);
        assert_eq!(decision.disposition, disposition, "{end:?} {attempt:?}: {}", decision.reason);
        assert_eq!(decision.notice, notice, "{end:?} {attempt:?}");
    }
}

#[test]
fn a_command_out_of_time_fails_but_is_aborted_first() {
    for (end, attempt, disposition, _) in all() {
        let late = Attempt { out_of_time: true, ..attempt };
        let expected = match disposition {
            Complete | Fail(_) | Recover(Recovery::Abort) => disposition,
            // As if no retry was left, if that fails.
            Retry => match decide(&end, &spent(attempt)).disposition {
                Fail(status) => Fail(status),
                _ => Fail(Status::IoErr),
            },
            RetryUncounted | Requeue | UseSix | Recover(_) => Fail(Status::IoErr),
        };
        assert_eq!(decide(&end, &late).disposition, expected, "{end:?} {attempt:?}");
    }
    assert_eq!(Attempt::lifetime_ns(30_000_000_000, 5), 180_000_000_000);
    assert_eq!(Attempt::lifetime_ns(u64::MAX, 5), u64::MAX);
}

#[test]
fn a_path_error_is_told_from_what_every_path_would_say() {
    let path_errors = Status::ALL.into_iter().filter(|&status| status.is_path_error());
    assert!(path_errors.eq([
        Status::Timeout,
        Status::Transport,
        Status::Resource,
        Status::DevResource,
        Status::Again,
        Status::Offline,
        Status::Inval,
        Status::IoErr,
        Status::ReadOnly,
    ]));
    let blames = |end| decide(&end, &spent(ATTEMPT)).is_path_error();
    assert!(blames(delivered(Delivery::NoConnect)) && blames(delivered(Delivery::Disrupted)));
    assert!(blames(check(0x2, 0x040b)) && blames(check(0x5, 0x2500)));
    assert!(!blames(check(0x3, 0x0c00)) && !blames(check(0x4, 0x4400)) && !blames(ended(0x18)));
    let retried = Decision { disposition: Retry, notice: None, reason: "" };
    assert!(!retried.is_path_error());
}

#[test]
fn the_purpose_of_a_command_is_what_its_rules_differ_by() {
    let transfer = Transfer { size: CdbSize::Ten, lba: 0, blocks: 1, dpo: false, fua: false };
    let same = WriteSame {
        size: CdbSize::Sixteen,
        lba: 0,
        blocks: 1,
        unmap: false,
        anchor: false,
        ndob: false,
    };
    let flush = SynchronizeCache { size: CdbSize::Ten, lba: 0, blocks: 0, immediate: false };
    for (command, purpose) in [
        (ScsiCommand::Read(transfer), Purpose::Transfer),
        (ScsiCommand::Write(transfer), Purpose::Transfer),
        (ScsiCommand::WriteSame(same), Purpose::WriteSame),
        (ScsiCommand::WriteSame(WriteSame { unmap: true, ..same }), Purpose::Unmap),
        (ScsiCommand::Unmap { anchor: false, length: 24 }, Purpose::Unmap),
        (ScsiCommand::SynchronizeCache(flush), Purpose::Flush),
        (ScsiCommand::TestUnitReady, Purpose::TestUnitReady),
        (ScsiCommand::Inquiry { page: None, allocation: 36 }, Purpose::Inquiry),
        (ScsiCommand::ReadCapacity10, Purpose::Other),
    ] {
        assert_eq!(Purpose::of(&command), purpose, "{command:?}");
    }
}

fn reasons<K>(table: &[RuleRow<K>]) -> Vec<&'static str> {
    let leads_on = |rule| matches!(rule, Rule::ByStatus | Rule::BySense);
    table.iter().filter(|row| !leads_on(row.rule)).map(|row| row.reason).collect()
}

#[test]
fn every_row_of_the_tables_is_reached_by_a_line_here_and_has_words_of_its_own() {
    let rows = [
        reasons(DELIVERIES),
        reasons(STATUSES),
        reasons(DEFERRED),
        reasons(SENSES),
        vec![NO_SENSE_DATA],
    ]
    .concat();
    let named: BTreeSet<_> = rows.iter().copied().collect();
    assert_eq!(named.len(), rows.len(), "two rows with the same words");
    let reached: BTreeSet<_> =
        all().iter().map(|(end, attempt, ..)| decide(end, attempt).reason).collect();
    assert_eq!(named.difference(&reached).collect::<Vec<_>>(), Vec::<&&str>::new());
}
