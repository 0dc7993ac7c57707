//! How many commands a unit has at once, and how units share a host.

mod bed;

use bed::port::{Reply, Script, adapter};
use bed::{Bench, SECOND, read};
use weir_bio::Status;
use weir_driver_scsi::{Adapter, HostOptions, Ramp};
use weir_proto_scsi::{Lun, ScsiStatus};

fn lun(n: usize) -> Lun {
    Lun::new(n as u32).expect("a LUN")
}

fn bench(adapter: Adapter, units: usize, scheduler: &str) -> (Script, Bench) {
    let script = Script::new(adapter);
    let mut bench = Bench::empty(&script, HostOptions::default());
    (0..units).for_each(|n| _ = bench.add(lun(n), scheduler));
    (script, bench)
}

fn submit_some(bench: &mut Bench, unit: usize, count: u64) {
    for n in 0..count {
        bench.submit(unit, read(n * 64).cookie(n));
    }
}

#[test]
fn a_unit_never_has_more_commands_than_its_depth() {
    for scheduler in ["none", "mq-deadline", "noop"] {
        let (script, mut bench) = bench(Adapter { cmd_per_lun: 3, ..adapter() }, 1, scheduler);
        script.reply(|_| Reply::Never);
        submit_some(&mut bench, 0, 12);
        bench.settle();
        assert_eq!(script.state().held(), 3, "{scheduler}");
        bench.units[0].unit.set_queue_depth(5).expect("a depth");
        bench.settle();
        assert_eq!(script.state().held(), 5, "{scheduler}");
        bench.units[0].unit.set_queue_depth(1).expect("a depth");
        script.state().release(&Reply::good());
        bench.turn(1);
        bench.settle();
        assert!(script.state().held() <= 1, "{scheduler}");
        bench.end();
    }
}

#[test]
fn a_depth_outside_its_bounds_is_refused_in_words() {
    let (_, bench) = bench(adapter(), 1, "none");
    let unit = &bench.units[0].unit;
    let why = unit.set_queue_depth(0).expect_err("none");
    assert_eq!(why, "queue_depth=0 is outside 1..=32");
    unit.set_queue_depth(33).expect_err("more than there are tags");
    unit.set_queue_depth(32).expect("all");
}

#[test]
fn a_full_task_set_lowers_the_depth_of_every_unit_of_the_target_by_one() {
    let (script, mut bench) = bench(adapter(), 2, "none");
    // Once at each moment, eleven times.
    let (mut left, mut last) = (11, weir_bio::Nanos::ZERO);
    script.reply(move |arrived| {
        if left == 0 || last == arrived.at {
            return Reply::good();
        }
        (left, last) = (left - 1, arrived.at);
        Reply::status(ScsiStatus::TASK_SET_FULL)
    });
    let depths = |bench: &Bench| [0, 1].map(|n: usize| bench.units[n].unit.queue_depth());
    for round in 0..11 {
        assert_eq!(depths(&bench), [32, 32], "round {round}");
        assert_eq!(bench.read_once(), [(1, Status::Ok)]);
        bench.pass(SECOND);
    }
    assert_eq!(depths(&bench), [31, 31]);
    // It rises again by one, two minutes later, when a command succeeds.
    bench.pass(118 * SECOND);
    bench.read_once();
    assert_eq!(depths(&bench)[0], 31);
    bench.pass(2 * SECOND);
    bench.read_once();
    assert_eq!(depths(&bench)[0], 32);
    bench.end();
}

#[test]
fn fast_halves_the_depth_and_raises_it_with_success() {
    let script = Script::new(adapter());
    let mut bench =
        Bench::empty(&script, HostOptions { ramp: Ramp::Fast, ..HostOptions::default() });
    bench.add(lun(0), "none");
    let mut full = 1;
    script.reply(move |_| {
        full -= 1;
        if full >= 0 { Reply::status(ScsiStatus::TASK_SET_FULL) } else { Reply::good() }
    });
    bench.read_once();
    bench.pass(SECOND);
    assert_eq!(bench.units[0].unit.queue_depth(), 16);
    for _ in 0..256 {
        bench.read_once();
    }
    assert_eq!(bench.units[0].unit.queue_depth(), 17);
    bench.end();
}

#[test]
fn a_flush_gets_through_at_a_depth_of_one() {
    for scheduler in ["none", "mq-deadline", "noop"] {
        let (_, mut bench) = bench(Adapter { cmd_per_lun: 1, ..adapter() }, 1, scheduler);
        for n in 0..8 {
            bench.submit(0, bed::write(n * 8).cookie(n));
            bench.submit(0, weir_bio::Bio::flush().cookie(100 + n));
        }
        bench.turn(100);
        let ended = bench.ended(0);
        assert_eq!(ended.len(), 16, "{scheduler}");
        assert!(ended.iter().all(|(_, status)| *status == Status::Ok), "{scheduler}");
        bench.end();
    }
}

/// Turns until `rounds` are over, with so many ends each; how much each unit got.
fn shares(script: &Script, bench: &mut Bench, rounds: usize, ends: usize) -> Vec<usize> {
    let mut got = vec![0; bench.units.len()];
    let mut prng = weir_bio::Prng::new(1);
    script.state().ends_at_once = ends;
    for _ in 0..rounds {
        let (all, from) = (bench.units.len(), prng.below(bench.units.len() as u64) as usize);
        for unit in (from..all).chain(0..from) {
            let wanted = 8 - bench.units[unit].clients[0].in_flight().min(8);
            submit_some(bench, unit, wanted);
        }
        bench.turn(1);
        for (unit, got) in got.iter_mut().enumerate() {
            *got += bench.ended(unit).len();
        }
    }
    script.state().ends_at_once = usize::MAX;
    got
}

#[test]
fn eight_units_of_a_host_that_carries_four_commands_get_the_same_each() {
    for scheduler in ["none", "mq-deadline", "noop", "cfq"] {
        let (script, mut bench) = bench(Adapter { can_queue: 4, ..adapter() }, 8, scheduler);
        let got = shares(&script, &mut bench, 800, 1);
        let (least, most) = (got.iter().min().expect("8"), got.iter().max().expect("8"));
        assert!(*least * 2 > *most, "{scheduler}: {got:?}");
        assert!(got.iter().sum::<usize>() > 700, "{scheduler}: {got:?}");
        assert_eq!(script.state().peak, 4, "{scheduler}");
        bench.end();
    }
}

#[test]
fn units_that_find_a_port_busy_are_let_in_in_turn() {
    for scheduler in ["none", "mq-deadline", "noop"] {
        let (script, mut bench) = bench(adapter(), 8, scheduler);
        script.state().room = 2;
        let got = shares(&script, &mut bench, 800, 1);
        let (least, most) = (got.iter().min().expect("8"), got.iter().max().expect("8"));
        assert!(*least * 3 > *most, "{scheduler}: {got:?}");
        assert!(script.state().peak <= 2, "{scheduler}");
        bench.end();
    }
}

#[test]
fn a_lane_that_finds_a_busy_port_is_woken_by_an_end_of_another_unit() {
    let script = Script::new(adapter());
    script.state().announced = true;
    let mut bench = Bench::empty(&script, HostOptions::default());
    (0..2).for_each(|n| _ = bench.add(lun(n), "none"));
    script.state().room = 1;
    script.reply(|_| Reply::Never);
    bench.submit(0, read(0));
    bench.turn_for_reasons();
    bench.submit(1, read(0).cookie(5));
    bench.turn_for_reasons();
    assert_eq!(script.state().arrived.len(), 1);
    script.reply(|_| Reply::good());
    script.state().release(&Reply::good());
    // The event is heard for the first unit's lane. No time passes, so no retry timer has a part.
    let place = bench.homes[0].lanes().next().expect("a lane").place();
    bench.homes[0].hear(place);
    bench.turn_for_reasons();
    assert_eq!(script.state().arrived.len(), 2, "the second unit's lane was told");
    bench.homes[0].hear(place);
    bench.turn_for_reasons();
    assert_eq!(bench.ended(1), [(5, Status::Ok)], "and told again of its end");
    bench.end();
}

#[test]
fn a_thousand_units_share_one_port_and_each_gets_on() {
    let (script, mut bench) = bench(Adapter { can_queue: 64, ..adapter() }, 1000, "none");
    script.state().ends_at_once = 32;
    for unit in 0..1000 {
        bench.submit(unit, read(8).cookie(1));
        bench.submit(unit, read(80).cookie(2));
    }
    for _ in 0..200 {
        bench.turn(1);
    }
    script.state().ends_at_once = usize::MAX;
    bench.turn(20);
    for unit in 0..1000 {
        assert_eq!(bench.ended(unit).len(), 2, "unit {unit}");
    }
    assert!(script.state().peak <= 64);
    bench.end();
}

#[test]
fn a_unit_that_the_target_drops_under_load_ends_and_the_others_go_on() {
    let (script, mut bench) = bench(adapter(), 3, "none");
    let gone = lun(1);
    script.reply(move |arrived| match arrived.lun == gone {
        true => Reply::sense(bed::disk::sense(
            weir_proto_scsi::SenseKey::IllegalRequest,
            weir_proto_scsi::AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED,
        )),
        false => Reply::good(),
    });
    for unit in 0..3 {
        submit_some(&mut bench, unit, 20);
    }
    bench.turn(40);
    for unit in [0, 2] {
        let ended = bench.ended(unit);
        assert_eq!(ended.len(), 20);
        assert!(ended.iter().all(|(_, status)| *status == Status::Ok));
    }
    let ended = bench.ended(1);
    assert_eq!(ended.len(), 20);
    assert!(ended.iter().all(|(_, status)| *status == Status::IoErr), "{ended:?}");
    assert!(bench.units[1].unit.take_wish(weir_driver_scsi::Wish::Luns));
    bench.end();
}

#[test]
fn a_unit_of_several_queues_keeps_its_depth_over_all_of_them() {
    let (script, mut bench) = bench(Adapter { queues: 4, cmd_per_lun: 6, ..adapter() }, 1, "none");
    script.reply(|_| Reply::Never);
    for client in 0..4 {
        for n in 0..8 {
            bench.submit_to(0, client, read(n * 64 + client as u64 * 1024).cookie(n));
        }
    }
    bench.settle();
    assert_eq!(script.state().held(), 6);
    script.reply(|_| Reply::good());
    script.state().release(&Reply::good());
    bench.turn(60);
    assert_eq!(bench.ended(0).len(), 32);
    bench.end();
}
