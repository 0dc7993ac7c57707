//! Commands without an answer: abort, logical unit reset, target reset, session reset, offline.

mod bed;

use std::sync::{Arc, Mutex};

use bed::disk::sense;
use bed::port::{Managed, Reply, Script, adapter};
use bed::{Bench, SECOND, read, write};
use weir_bio::{Bio, Flags, Status};
use weir_driver_scsi::{Adapter, HostOptions, Management, ManagementAnswer, Refusal, UnitState};
use weir_proto_scsi::decide::Delivery;
use weir_proto_scsi::inquiry::Tpgs;
use weir_proto_scsi::{AdditionalSense, Lun, SenseKey};

/// The first `silent` reads and writes get no answer.
fn silent(silent: usize) -> (Script, Bench) {
    silent_host(silent, adapter(), HostOptions::default())
}

fn silent_host(silent: usize, adapter: Adapter, options: HostOptions) -> (Script, Bench) {
    let script = Script::new(adapter);
    let mut left = silent;
    script.reply(move |arrived| {
        let transfers = matches!(arrived.cdb[0], 0x28 | 0x2a);
        if transfers && left > 0 {
            left -= 1;
            return Reply::Never;
        }
        Reply::good()
    });
    let mut bench = Bench::empty(&script, options);
    bench.add(Lun::ZERO, "none");
    (script, bench)
}

/// What the target was asked to end, with the seconds since the test began.
fn asked(script: &Script) -> Vec<(Management, u64)> {
    let state = script.state();
    state.managed.iter().map(|(_, what, at)| (*what, (at.0 - SECOND) / SECOND)).collect()
}

fn kinds(script: &Script) -> String {
    let letter = |what: &Management| match what {
        Management::Abort { .. } => 'a',
        Management::LunReset(_) => 'u',
        Management::TargetReset => 't',
        Management::SessionReset => 's',
    };
    script.state().managed.iter().map(|(_, what, _)| letter(what)).collect()
}

/// Tests of the error handler that arrived.
fn tests(script: &Script) -> usize {
    script.state().opcodes().iter().filter(|code| **code == 0).count()
}

#[test]
fn a_command_without_an_answer_is_aborted_after_30_s_and_sent_again() {
    let (script, mut bench) = silent(1);
    bench.submit(0, write(8).cookie(1));
    bench.pass(29 * SECOND);
    assert_eq!((asked(&script).len(), bench.ended(0)), (0, vec![]));
    bench.pass(4 * SECOND);
    assert_eq!(bench.ended(0), [(1, Status::Ok)]);
    let asked = asked(&script);
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert!(matches!(asked[0], (Management::Abort { .. }, 30..=32)), "{asked:?}");
    let counts = bench.units[0].unit.counts();
    assert_eq!((counts.timeouts, counts.retries), (1, 1));
    assert_eq!(bench.units[0].unit.state(), UnitState::Running);
    bench.end();
}

#[test]
fn an_abort_holds_nothing_else_up() {
    let (script, mut bench) = silent(1);
    script.manage(|_| Managed::never());
    bench.submit(0, read(8).cookie(1));
    bench.pass(33 * SECOND);
    assert_eq!(kinds(&script), "a");
    bench.submit(0, read(800).cookie(2));
    bench.settle();
    assert_eq!(bench.ended(0), [(2, Status::Ok)]);
    script.manage(|_| Managed::done());
    bench.pass(60 * SECOND);
    assert_eq!(bench.ended(0), [(1, Status::Ok)]);
    bench.end();
}

#[test]
fn a_command_that_times_out_a_second_time_goes_to_the_error_handler() {
    let (script, mut bench) = silent(2);
    bench.submit(0, read(8).cookie(1));
    bench.pass(75 * SECOND);
    // The handler's own abort is followed by a test.
    assert_eq!((kinds(&script).as_str(), tests(&script)), ("aa", 1));
    assert_eq!(bench.ended(0), [(1, Status::Ok)]);
    bench.end();
}

#[test]
fn a_command_that_may_not_be_tried_again_ends_with_its_abort() {
    for bio in [read(8).with(Flags::FAILFAST_DEV), write(8).with(Flags::FAILFAST_TRANSPORT)] {
        let (script, mut bench) = silent(1);
        bench.submit(0, bio.cookie(1));
        bench.pass(33 * SECOND);
        assert_eq!(bench.ended(0), [(1, Status::Timeout)]);
        assert_eq!(kinds(&script), "a");
        bench.end();
    }
}

#[test]
fn a_command_that_never_succeeds_ends_within_its_lifetime() {
    let (script, mut bench) = silent(usize::MAX);
    bench.submit(0, read(8).cookie(1));
    bench.pass(300 * SECOND);
    assert_eq!(bench.ended(0), [(1, Status::Timeout)]);
    let sent = script.state().opcodes().iter().filter(|code| **code == 0x28).count();
    assert!((5..=6).contains(&sent), "{sent} times");
    bench.end();
}

#[test]
fn a_late_answer_after_the_abort_was_asked_for_is_the_answer() {
    let (script, mut bench) = silent(1);
    script.manage(|_| Managed::answer(ManagementAnswer::NoTask));
    bench.submit(0, read(8).cookie(1));
    bench.pass(31 * SECOND);
    script
        .state()
        .release(&Reply::sense(sense(SenseKey::MediumError, AdditionalSense::new(0x11, 0))));
    bench.pass(2 * SECOND);
    assert_eq!(bench.ended(0), [(1, Status::Medium)]);
    bench.end();
}

/// How the target answers each level: the first that helps is the given one.
fn helped_by(helps: char) -> impl FnMut(Management) -> Managed + Send {
    move |what| {
        let level = match what {
            Management::Abort { .. } => 'a',
            Management::LunReset(_) => 'u',
            Management::TargetReset => 't',
            Management::SessionReset => 's',
        };
        match level == helps {
            true => Managed { with: Delivery::Reset, ..Managed::done() },
            false => Managed::answer(ManagementAnswer::Failed),
        }
    }
}

#[test]
fn the_ladder_is_climbed_until_a_level_helps() {
    for (helps, climbed) in [('u', "au"), ('t', "aut"), ('s', "auts")] {
        let (script, mut bench) = silent(1);
        script.manage(helped_by(helps));
        bench.submit(0, write(8).cookie(1));
        bench.pass(40 * SECOND);
        assert_eq!(kinds(&script), climbed);
        assert_eq!(tests(&script), 1, "after the level that helped");
        assert_eq!(bench.ended(0), [(1, Status::Ok)], "{helps}");
        assert_eq!(bench.units[0].unit.state(), UnitState::Running);
        let told = bench.host.notices().all();
        assert!(told.last().expect("lines").ends_with("answers again"), "{told:?}");
        bench.end();
    }
}

#[test]
fn a_unit_that_nothing_helps_is_offline_and_its_command_is_fenced() {
    let (script, mut bench) = silent(1);
    script.manage(|_| Managed::answer(ManagementAnswer::Failed));
    bench.submit(0, write(8).cookie(1));
    bench.pass(40 * SECOND);
    assert_eq!(kinds(&script), "auts");
    assert_eq!(bench.units[0].unit.state(), UnitState::Offline);
    assert_eq!(bench.ended(0), [(1, Status::Timeout)], "its submitter is told");
    bench.submit(0, read(800).cookie(2));
    bench.settle();
    assert_eq!(bench.ended(0), [(2, Status::Offline)]);
    // The administrator uses it again; what may still land is waited for.
    bench.units[0].unit.set_state(UnitState::Running);
    bench.submit(0, write(800).cookie(3));
    bench.submit(0, write(8).cookie(4));
    bench.settle();
    assert_eq!(bench.ended(0), [(3, Status::Ok)], "the fence holds the other");
    script.state().release(&Reply::good());
    bench.settle();
    assert_eq!(bench.ended(0), [(4, Status::Ok)]);
    bench.end();
}

#[test]
fn levels_that_are_not_answered_take_their_time_and_no_more() {
    let (script, mut bench) = silent(1);
    script.manage(|_| Managed::never());
    bench.submit(0, read(8).cookie(1));
    bench.pass(200 * SECOND);
    let asked = asked(&script);
    let at: Vec<u64> = asked.iter().map(|(_, at)| *at).collect();
    // Aborted at 30, then after 15, 30, 30 and 60 s.
    let wanted = [30, 45, 75, 105];
    assert_eq!(at.len(), 4, "{asked:?}");
    for (at, wanted) in at.iter().zip(wanted) {
        assert!((wanted..=wanted + 3).contains(at), "{asked:?}");
    }
    assert_eq!(bench.units[0].unit.state(), UnitState::Offline);
    assert_eq!(bench.ended(0), [(1, Status::Timeout)]);
    bench.end();
}

#[test]
fn the_deadline_of_the_error_handler_skips_to_the_session_reset() {
    let options = HostOptions { eh_deadline_ns: Some(10 * SECOND), ..HostOptions::default() };
    let (script, mut bench) = silent_host(1, adapter(), options);
    script.manage(|what| match what {
        Management::SessionReset => Managed { with: Delivery::Disrupted, ..Managed::done() },
        _ => Managed::never(),
    });
    bench.submit(0, read(8).cookie(1));
    bench.pass(120 * SECOND);
    assert_eq!(kinds(&script), "aus", "the target reset is left out");
    assert_eq!(bench.ended(0), [(1, Status::Ok)]);
    bench.end();
}

#[test]
fn a_test_that_fails_twice_takes_the_unit_one_level_up() {
    let script = Script::new(adapter());
    let (mut left, mut failing) = (1, 2);
    script.reply(move |arrived| match arrived.cdb[0] {
        0x28 if left > 0 => {
            left -= 1;
            Reply::Never
        }
        0 if failing > 0 => {
            failing -= 1;
            Reply::status(weir_proto_scsi::ScsiStatus::BUSY)
        }
        _ => Reply::good(),
    });
    script.manage(|what| match what {
        Management::Abort { .. } => Managed::answer(ManagementAnswer::Failed),
        _ => Managed::done(),
    });
    let mut bench = Bench::new(&script);
    bench.submit(0, read(8).cookie(1));
    bench.pass(40 * SECOND);
    assert_eq!((kinds(&script).as_str(), tests(&script)), ("aut", 3));
    assert_eq!(bench.ended(0), [(1, Status::Ok)]);
    bench.end();
}

#[test]
fn a_test_without_an_answer_has_ten_seconds() {
    let script = Script::new(adapter());
    script.reply(|_| Reply::Never);
    script.manage(|what| match what {
        Management::Abort { .. } => Managed::answer(ManagementAnswer::Failed),
        _ => Managed::done(),
    });
    let mut bench = Bench::new(&script);
    bench.submit(0, read(8).with(Flags::FAILFAST).cookie(1));
    bench.pass(31 * SECOND);
    assert_eq!(kinds(&script), "au");
    assert_eq!(bench.ended(0), [(1, Status::Timeout)], "the reset brought it back");
    bench.pass(9 * SECOND);
    assert_eq!(kinds(&script), "au");
    bench.pass(13 * SECOND);
    // Two tests of ten seconds. The first was aborted after its time, and again after ten more.
    assert_eq!(kinds(&script), "auaaat");
    bench.pass(60 * SECOND);
    assert_eq!(bench.units[0].unit.state(), UnitState::Offline);
    bench.end();
}

/// A target that says at every read that the states of its port groups have changed, and never
/// which they are; an abort is answered so.
fn forgetful(aborts: impl FnMut(Management) -> Managed + Send + 'static) -> (Script, Bench) {
    let script = Script::new(adapter());
    let mut tells = true;
    script.reply(move |arrived| match arrived.cdb[0] {
        0xa3 => Reply::Never,
        0x28 => {
            // The read is tried again, which succeeds.
            tells = !tells;
            let code = AdditionalSense::ASYMMETRIC_ACCESS_STATE_CHANGED;
            if tells { Reply::good() } else { Reply::sense(sense(SenseKey::UnitAttention, code)) }
        }
        _ => Reply::good(),
    });
    script.manage(aborts);
    script.state().disks.entry(Lun::ZERO).or_default().tpgs = Tpgs::Implicit;
    let bench = Bench::new(&script);
    (script, bench)
}

/// How often the states of port groups were asked for.
fn groups(script: &Script) -> usize {
    script.state().opcodes().iter().filter(|code| **code == 0xa3).count()
}

#[test]
fn an_own_command_without_an_answer_is_aborted_and_its_slot_is_free_again() {
    let (script, mut bench) = forgetful(|_| Managed::done());
    // More often than there are slots of its own.
    for round in 1..=20 {
        assert_eq!(bench.read_once(), [(1, Status::Ok)]);
        assert_eq!(groups(&script), round);
        bench.pass(59 * SECOND);
        assert_eq!(kinds(&script).len(), round - 1);
        bench.pass(2 * SECOND);
        assert_eq!(kinds(&script), "a".repeat(round), "it has 60 s");
        assert_eq!(script.state().held(), 0);
    }
    bench.end();
}

#[test]
fn an_own_command_that_no_abort_ends_is_aborted_again_and_others_get_on() {
    let (script, mut bench) = forgetful(|_| Managed::answer(ManagementAnswer::Failed));
    assert_eq!(bench.read_once(), [(1, Status::Ok)]);
    bench.pass(61 * SECOND);
    assert_eq!((kinds(&script).as_str(), script.state().held()), ("a", 1));
    assert_eq!(bench.read_once(), [(1, Status::Ok)]);
    assert_eq!(groups(&script), 2, "another is asked meanwhile");
    bench.pass(10 * SECOND);
    assert_eq!(kinds(&script), "aa");
    script.manage(|_| Managed::never());
    bench.pass(10 * SECOND);
    script.manage(|_| Managed::done());
    // That abort is waited for 15 s, and the next is asked 10 s later.
    bench.pass(22 * SECOND);
    assert_eq!((kinds(&script).as_str(), script.state().held()), ("aaa", 2));
    bench.pass(4 * SECOND);
    assert_eq!((kinds(&script).as_str(), script.state().held()), ("aaaa", 1));
    assert_eq!(bench.units[0].unit.state(), UnitState::Running);
    bench.end();
}

#[test]
fn an_own_command_of_a_lane_that_is_gone_is_aborted_for_the_others() {
    let (script, mut bench) = forgetful(|_| Managed::done());
    bench.add(Lun::new(1).expect("a LUN"), "none");
    assert_eq!(bench.read_once(), [(1, Status::Ok)]);
    assert_eq!(script.state().held(), 1);
    close_first(&mut bench);
    bench.settle();
    assert_eq!((kinds(&script).as_str(), script.state().held()), ("a", 0));
    bench.end();
}

/// Closes the lane of the first unit, and forgets the unit.
fn close_first(bench: &mut Bench) {
    let served = bench.units.remove(0);
    drop(served.clients);
    let device = served.device;
    bench.homes[0].extract(|lane| device.owns(lane), |_, lane| drop(lane));
}

#[test]
fn a_lane_takes_no_answer_to_what_was_asked_for_another_that_sat_in_its_seat() {
    let (script, mut bench) = silent(1);
    bench.add(Lun::new(1).expect("a LUN"), "none");
    script.manage(|what| match what {
        Management::Abort { .. } => Managed::answer(ManagementAnswer::Failed),
        _ => Managed::never(),
    });
    bench.submit(0, read(8).with(Flags::FAILFAST).cookie(1));
    bench.pass(32 * SECOND);
    assert_eq!(kinds(&script), "au");
    // The reset has ended the command, and its answer is on the way when the lane is closed.
    script.state().release(&Reply::delivery(Delivery::Reset));
    bench.settle();
    assert_eq!(bench.ended(0).len(), 1);
    close_first(&mut bench);
    script.reply(|_| Reply::Never);
    let next = bench.add(Lun::new(2).expect("a LUN"), "none");
    bench.units[next].device.reconfigure(|parts| parts.timeout_ns = 5 * SECOND).expect("a change");
    bench.submit(next, read(8).cookie(2));
    bench.pass(8 * SECOND);
    let unit_resets = [Lun::ZERO, Lun::new(2).expect("a LUN")].map(Management::LunReset);
    let at: Vec<u64> = asked(&script)
        .into_iter()
        .filter_map(|(what, at)| unit_resets.contains(&what).then_some(at))
        .collect();
    assert_eq!((kinds(&script).as_str(), at.len()), ("auau", 2));
    // A reset has 30 s: the first has had them, and the second has not.
    bench.pass((at[0] + 32) * SECOND - (bench.now.0 - SECOND));
    assert!((bench.now.0 - SECOND) / SECOND < at[1] + 30, "{at:?}");
    assert_eq!(kinds(&script), "auau", "the second reset is waited for");
    bench.pass(10 * SECOND);
    assert_eq!(kinds(&script), "auaut");
    script.manage(|_| Managed::done());
    bench.end();
}

#[test]
fn own_commands_of_a_port_that_closes_keep_no_slot() {
    let (script, mut bench) = forgetful(|_| Managed::never());
    for round in 1..=20 {
        assert_eq!(bench.read_once(), [(1, Status::Ok)]);
        assert_eq!(groups(&script), round);
        close_first(&mut bench);
        // The port of the script is another one then, and has nothing.
        script.state().drop_held();
        bench.add(Lun::ZERO, "none");
    }
    bench.end();
}

#[test]
fn other_units_go_on_while_one_is_reset_and_wait_while_the_target_is() {
    let (script, mut bench) = silent(1);
    bench.add(Lun::new(1).expect("a LUN"), "none");
    script.manage(|what| match what {
        Management::TargetReset => Managed::never(),
        Management::LunReset(_) => Managed::never(),
        _ => Managed::answer(ManagementAnswer::Failed),
    });
    bench.submit(0, read(8).cookie(1));
    bench.pass(33 * SECOND);
    assert_eq!(kinds(&script), "au");
    bench.submit(1, read(8).cookie(2));
    bench.settle();
    assert_eq!(bench.ended(1), [(2, Status::Ok)], "the logical unit reset is not its business");
    bench.submit(0, read(80).cookie(3));
    bench.settle();
    assert_eq!(bench.ended(0), [], "its own unit waits");
    bench.pass(30 * SECOND);
    assert_eq!(kinds(&script), "aut");
    bench.submit(1, read(8).cookie(4));
    bench.settle();
    assert_eq!(bench.ended(1), [], "the target is being reset");
    bench.script.manage(|_| Managed::done());
    bench.pass(60 * SECOND);
    assert_eq!(bench.ended(1), [(4, Status::Ok)]);
    bench.end();
}

#[test]
fn other_sessions_go_on_and_their_commands_of_a_unit_that_was_reset_are_aborted() {
    let adapter = Adapter { queues: 2, ..adapter() };
    let (script, mut bench) = silent_host(2, adapter, HostOptions::default());
    let aborts = Arc::new(Mutex::new(0));
    let count = Arc::clone(&aborts);
    script.manage(move |what| match what {
        Management::Abort { .. } => {
            let mut aborts = count.lock().expect("a lock");
            *aborts += 1;
            // The first one fails; the other session's succeeds.
            if *aborts == 1 { Managed::answer(ManagementAnswer::Failed) } else { Managed::done() }
        }
        _ => Managed::done(),
    });
    bench.submit_to(0, 0, read(8).cookie(1));
    bench.pass(20 * SECOND);
    // Ten seconds younger: its own time is not up when the reset is done.
    bench.submit_to(0, 1, write(800).cookie(2));
    bench.pass(13 * SECOND);
    let mut ended = bench.ended(0);
    ended.sort_unstable_by_key(|(cookie, _)| *cookie);
    assert_eq!(ended, [(1, Status::Ok), (2, Status::Ok)]);
    assert_eq!(kinds(&script), "aua");
    assert_eq!(script.state().managed[2].0, 1, "at the other port");
    bench.end();
}

#[test]
fn after_a_reset_the_first_unit_attention_is_no_retry_and_tells_nothing() {
    let script = Script::new(adapter());
    let (mut left, mut attention) = (1, true);
    let code = AdditionalSense::POWER_ON_OR_RESET_OCCURRED;
    script.reply(move |arrived| match arrived.cdb[0] {
        0x28 if left > 0 => {
            left -= 1;
            Reply::Never
        }
        0x28 if std::mem::take(&mut attention) => {
            Reply::sense(sense(SenseKey::UnitAttention, code))
        }
        _ => Reply::good(),
    });
    script.manage(helped_by('u'));
    let mut bench = Bench::new(&script);
    bench.submit(0, read(8).cookie(1));
    bench.pass(40 * SECOND);
    assert_eq!(bench.ended(0), [(1, Status::Ok)]);
    bench.end();
}

#[test]
fn a_flush_has_twice_the_time_and_zeroes_have_120_seconds() {
    for (bio, code, least) in [
        (Bio::flush(), 0x35, 60),
        (bed::zeroes(64).with(Flags::NOUNMAP), 0x93, 120),
        (bed::discard(64), 0x42, 30),
    ] {
        let script = Script::new(adapter());
        let mut first = true;
        script.reply(move |arrived| match arrived.cdb[0] == code {
            true if std::mem::take(&mut first) => Reply::Never,
            _ => Reply::good(),
        });
        let mut bench = Bench::new(&script);
        bench.submit(0, write(4096));
        bench.settle();
        bench.ended(0);
        bench.submit(0, bio.cookie(1));
        bench.pass((least - 1) * SECOND);
        assert_eq!((kinds(&script).as_str(), bench.ended(0)), ("", vec![]), "{code:x}");
        bench.pass(4 * SECOND);
        assert_eq!((kinds(&script).as_str(), bench.ended(0)), ("a", vec![(1, Status::Ok)]));
        bench.end();
    }
}

#[test]
fn the_devices_time_out_is_the_time_of_an_attempt() {
    let (script, mut bench) = silent(1);
    bench.units[0].device.reconfigure(|parts| parts.timeout_ns = 5 * SECOND).expect("a change");
    bench.submit(0, read(8).cookie(1));
    bench.pass(9 * SECOND);
    assert_eq!(bench.ended(0), [(1, Status::Ok)]);
    assert_eq!(kinds(&script), "a");
    bench.end();
}

#[test]
fn during_an_outage_commands_wait_and_nothing_is_asked_of_the_target() {
    let (script, mut bench) = silent(1);
    bench.submit(0, write(8).cookie(1));
    bench.pass(10 * SECOND);
    {
        let mut state = script.state();
        state.refusal = Some(Refusal::Down);
        state.outage = Some(bench.now + 120 * SECOND);
    }
    bench.submit(0, read(800).cookie(2));
    bench.pass(60 * SECOND);
    assert_eq!((kinds(&script).as_str(), bench.ended(0)), ("", vec![]));
    // The connection is back; what was on it is handed over.
    {
        let mut state = script.state();
        (state.refusal, state.outage) = (None, None);
        state.release(&Reply::delivery(Delivery::Disrupted));
    }
    bench.pass(SECOND);
    let mut ended = bench.ended(0);
    ended.sort_unstable_by_key(|(cookie, _)| *cookie);
    assert_eq!(ended, [(1, Status::Ok), (2, Status::Ok)]);
    bench.end();
}

#[test]
fn a_connection_that_stays_lost_ends_what_waits_as_a_path_error() {
    let (script, mut bench) = silent(1);
    bench.submit(0, write(8).cookie(1));
    bench.settle();
    {
        let mut state = script.state();
        state.refusal = Some(Refusal::Lost);
        state.release(&Reply::delivery(Delivery::FailFast));
    }
    bench.submit(0, read(800).cookie(2));
    bench.settle();
    let mut ended = bench.ended(0);
    ended.sort_unstable_by_key(|(cookie, _)| *cookie);
    assert_eq!(ended, [(1, Status::Transport), (2, Status::Transport)]);
    script.state().refusal = Some(Refusal::Gone);
    bench.submit(0, read(8).cookie(3));
    bench.settle();
    assert_eq!(bench.ended(0), [(3, Status::Offline)]);
    script.state().refusal = None;
    assert_eq!(bench.read_once(), [(1, Status::Ok)]);
    bench.end();
}

#[test]
fn many_commands_that_time_out_at_once_all_come_back() {
    for helps in ['a', 'u', 't', 's'] {
        let (script, mut bench) = silent(20);
        script.manage(helped_by(helps));
        for n in 0..20 {
            bench.submit(0, write(n * 64).cookie(n));
        }
        bench.pass(60 * SECOND);
        let ended = bench.ended(0);
        assert_eq!(ended.len(), 20, "{helps}: {ended:?}");
        assert!(ended.iter().all(|(_, status)| *status == Status::Ok), "{helps}: {ended:?}");
        bench.end();
    }
}
