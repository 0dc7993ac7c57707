//! Consequences of the rules of the deadline family, one behaviour each.

use weir_sched::mq::deadline::MqDeadline;
use weir_sched::{Absorbed, Ended, Merge, Replay, SchedTag, Scheduler, Setup, TunableError};

use weir_bio::{Class, Flags, IoPrio, Limits, Nanos, Op, Rq, SubmitterId};

use super::bed::{ALL, Bed, D4, LEGACY, Level, MQ_4_12, MQ_6_18, MS, SLES12, make, rq, setup};

/// Which directions go, as `RRWW`, while both are always busy and nothing expires.
fn directions(level: Level, writes_starved: &str) -> String {
    let values = [("fifo_batch", "2"), ("writes_starved", writes_starved)];
    let mut bed = Bed::with(level, &values);
    for number in 0..20 {
        bed.insert(&format!("R{number}@{}r W{number}@{}w", 100 * number, 50_000 + 100 * number));
    }
    let mut taken = String::new();
    for _ in 0..14 {
        taken.push_str(&bed.next()[..1]);
    }
    taken
}

#[test]
fn writes_get_a_batch_after_so_many_of_reads() {
    for level in D4 {
        assert_eq!(directions(level, "0"), "WWWWWWWWWWWWWW", "{level:?}");
        assert_eq!(directions(level, "-7"), "WWWWWWWWWWWWWW", "{level:?}");
        assert_eq!(directions(level, "1"), "RRWWRRWWRRWWRR", "{level:?}");
        assert_eq!(directions(level, "3"), "RRRRRRWWRRRRRR", "{level:?}");
    }
    assert_eq!(directions(MQ_6_18, "1"), "WWRRWWRRWWRRWW", "the first batch is of writes");
    assert_eq!(directions(MQ_6_18, "2"), "WWRRRRWWRRRRWW");
    assert_eq!(directions(MQ_6_18, "-1"), "WWWWWWWWWWWWWW");
}

#[test]
fn only_the_oldest_of_the_direction_is_looked_at_for_expiry() {
    for level in ALL {
        let mut bed = Bed::with(level, &[("fifo_batch", "1"), ("read_expire", "1000")]);
        bed.insert("P@100r A@800r C@500r");
        bed.set("read_expire", "0");
        bed.insert("B@900r");
        assert_eq!(bed.at_ms(20).drain(), "P C A B", "{level:?}: B is expired, not oldest");
    }
}

#[test]
fn an_expiry_applies_to_what_is_inserted_after_it_was_set() {
    for level in ALL {
        let mut bed = Bed::with(level, &[("fifo_batch", "1")]);
        bed.insert("A@100r B@900r C@500r");
        bed.set("read_expire", "1");
        assert_eq!(bed.at_ms(499).drain(), "A C B", "{level:?}");
    }
}

#[test]
fn an_order_that_ran_out_ends_the_batch_and_a_late_arrival_does_not_extend_it() {
    for level in D4 {
        let mut bed = Bed::new(level);
        bed.insert("A@100r B@50r").at_ms(1);
        assert_eq!(bed.next(), "A", "{level:?}");
        bed.insert("C@200r");
        assert_eq!(bed.drain(), "B C", "{level:?}: next was none when C came");
    }
}

#[test]
fn the_position_is_the_start_of_the_last_and_the_same_start_goes_on() {
    let mut bed = Bed::new(MQ_6_18);
    bed.insert("A@100r B@500r");
    assert_eq!(bed.next(), "A");
    bed.insert("C@99r D@100r E@101r");
    assert_eq!(bed.drain(), "D E B C");
}

#[test]
fn a_batch_and_its_direction_last_over_classes_and_idle_times() {
    let mut bed = Bed::with(MQ_6_18, &[("fifo_batch", "3"), ("writes_starved", "0")]);
    bed.insert("A@100r/RT B@200r/RT");
    assert_eq!(bed.drain(), "A B");
    bed.finish("A");
    bed.finish("B");
    bed.at_ms(60_000).insert("w@10w c@20r d@30r");
    assert_eq!(bed.drain(), "c w d", "c is the third of a batch that began with A");
}

#[test]
fn a_bio_that_would_make_a_request_too_large_marks_it_and_goes_no_further() {
    for level in ALL {
        let limits = Limits { max_hw_sectors: 20, ..setup(level).limits };
        let mut scheduler = make(level, &weir_sched::Setup { limits, ..setup(level) });
        let mut insert = |tag, sector, sectors| {
            let mut rq = rq(Op::Read, sector, sectors, IoPrio::NONE);
            rq.tag = SchedTag(tag);
            scheduler.insert(rq, Nanos::ZERO, &mut Absorbed::new());
        };
        insert(0, 900, 8);
        insert(1, 100, 16);
        insert(2, 124, 8);
        let offer = |scheduler: &mut dyn Scheduler, sector, sectors| {
            scheduler.merge(&rq(Op::Read, sector, sectors, IoPrio::NONE), Nanos::ZERO)
        };
        assert_eq!(offer(&mut *scheduler, 116, 8), Merge::No, "{level:?}: it could precede tag 2");
        assert_eq!(offer(&mut *scheduler, 116, 4), Merge::No, "{level:?}: tag 1 is marked");
        assert_eq!(offer(&mut *scheduler, 116, 8), Merge::Front(SchedTag(2)), "{level:?}");
        let taken = scheduler.dispatch(0, Nanos::ZERO);
        let flags = taken.map(|rq| rq.flags.has(Flags::NOMERGE));
        let expected = if level == MQ_6_18 { Some(true) } else { Some(false) };
        assert_eq!(flags, expected, "{level:?}: the mark leaves with the request");
    }
}

#[test]
fn it_wakes_when_the_next_request_of_a_lower_class_ages() {
    let mut bed = Bed::new(MQ_6_18);
    bed.at_ms(100).insert("RT1@0r/RT BE1@10r/BE").at_ms(300).insert("IDLE1@20r/IDLE");
    assert_eq!(bed.next(), "RT1");
    assert_eq!(bed.scheduler.wake_at(), None, "the answer was a request");
    assert_eq!(bed.next(), "-");
    assert_eq!(bed.scheduler.wake_at(), Some(Nanos::from_ms(10_100)));
    assert_eq!(bed.at_ms(10_100).next(), "BE1");
    assert_eq!(bed.next(), "-");
    assert_eq!(bed.scheduler.wake_at(), Some(Nanos::from_ms(10_300)));
    bed.finish("RT1");
    bed.finish("BE1");
    assert_eq!(bed.scheduler.wake_at(), None, "one class alone waits for nothing");
    assert_eq!(bed.next(), "IDLE1");
}

#[test]
fn without_a_time_to_age_the_lower_classes_go_first_as_in_linux() {
    for text in ["0", "-5", "-2147483648"] {
        let mut bed = Bed::with(MQ_6_18, &[("prio_aging_expire", text)]);
        assert_eq!(bed.scheduler.tunables().show("prio_aging_expire").unwrap(), "0");
        bed.insert("RT1@0r/RT RT2@10r/RT IDLE1@20r/IDLE BE1@30r/BE");
        assert_eq!(bed.drain(), "BE1 IDLE1 RT1 RT2", "{text}");
    }
}

#[test]
fn it_never_wakes_for_a_moment_that_has_passed() {
    let mut bed = Bed::with(MQ_6_18, &[("prio_aging_expire", "10")]);
    bed.insert("RT1@0r/RT").insert("A@500r");
    assert_eq!(bed.next(), "RT1");
    bed.at_ms(5).insert("B@10r");
    // The oldest has aged at 10 ms, yet the choice is B, which has not.
    assert_eq!(bed.at_ms(12).next(), "-");
    assert_eq!(bed.scheduler.wake_at(), Some(Nanos::from_ms(15)));
    bed.scheduler.on_timer(Nanos::from_ms(15));
    assert_eq!(bed.scheduler.wake_at(), None);
    assert_eq!(bed.at_ms(15).drain(), "B A");
}

#[test]
fn async_depth_holds_back_all_but_reads_and_follows_nr_requests() {
    let mut deadline = MqDeadline::new(&setup(MQ_6_18));
    let limit = |deadline: &MqDeadline, op, sync| deadline.depth_limit(op, sync, SubmitterId(0));
    assert_eq!(deadline.tunables().show("async_depth").unwrap(), "64");
    assert_eq!(limit(&deadline, Op::Write, false), None, "all tags are no limit");
    deadline.tunables().set("async_depth", "48").unwrap();
    assert_eq!(limit(&deadline, Op::Read, true), None);
    assert_eq!(limit(&deadline, Op::Prefetch, true), None);
    for (op, sync) in [(Op::Write, false), (Op::Write, true), (Op::Discard, true)] {
        assert_eq!(limit(&deadline, op, sync), Some(48), "{op:?}");
    }
    deadline.tunables().set("async_depth", "0").unwrap();
    assert_eq!(deadline.tunables().show("async_depth").unwrap(), "1", "clamped");
    deadline.depth_changed(128);
    assert_eq!(deadline.tunables().show("async_depth").unwrap(), "128");
    deadline.tunables().set("async_depth", "2147483647").unwrap();
    assert_eq!(limit(&deadline, Op::Write, false), None, "more than there are is no limit");
}

#[test]
fn a_resized_scheduler_has_room_for_as_many() {
    for level in ALL {
        let mut scheduler = make(level, &setup(level));
        for tags in [200, 4] {
            scheduler.depth_changed(tags);
            for tag in 0..tags {
                let mut rq = rq(Op::Read, u64::from(tag) * 100, 8, IoPrio::NONE);
                rq.tag = SchedTag(tag);
                scheduler.insert(rq, Nanos::ZERO, &mut Absorbed::new());
            }
            let drained = std::iter::from_fn(|| scheduler.dispatch(0, Nanos::ZERO));
            let drained: Vec<_> = drained.map(|rq| rq.tag.0).collect();
            assert!(drained.into_iter().eq(0..tags), "{level:?}, {tags} tags");
            for tag in 0..tags {
                scheduler.ended(&Ended::untimed(SchedTag(tag)), Nanos::ZERO);
            }
        }
    }
}

#[test]
fn the_tunables_have_their_defaults_ranges_and_errors() {
    let shown = |level| {
        let mut scheduler = make(level, &setup(level));
        let tunables = scheduler.tunables();
        let show = |row: &weir_sched::Tunable| tunables.show(row.name).unwrap();
        tunables.table().iter().map(show).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(shown(LEGACY), "500 5000 2 1 16");
    assert_eq!(shown(SLES12), "500 5000 3 1 16");
    assert_eq!(shown(MQ_4_12), "500 5000 2 1 16");
    assert_eq!(shown(MQ_6_18), "500 5000 2 1 16 64 10000");
    for level in ALL {
        let mut bed = Bed::new(level);
        for (name, text, reads) in [
            ("fifo_batch", "-1", "0"),
            ("front_merges", "7\n", "1"),
            ("writes_starved", "-2147483648", "-2147483648"),
            ("read_expire", "0x10", "16"),
            ("write_expire", "2147483647", "2147483647"),
        ] {
            bed.set(name, text);
            assert_eq!(bed.scheduler.tunables().show(name).unwrap(), reads, "{level:?} {name}");
        }
        let tunables = bed.scheduler.tunables();
        assert!(matches!(tunables.set("fifo_batch", "x"), Err(TunableError::Invalid(_))));
        assert!(matches!(tunables.set("fifo", "1"), Err(TunableError::Unknown(_))));
        let beyond = tunables.set("fifo_batch", "2147483648");
        assert!(matches!(beyond, Err(TunableError::OutOfRange(_))), "{beyond:?}");
    }
}

#[test]
fn following_a_recording_goes_on_as_if_the_recorded_request_had_been_chosen() {
    for level in ALL {
        // The recorded request is the one that would be chosen: taking it out is choosing it.
        let mut chooses = Bed::new(level);
        chooses.insert("A@100r B@50w C@200r D@75r E@10w F@300r");
        let mut follows = chooses.scheduler.boxed_clone();
        while let Some(rq) = chooses.take() {
            assert_eq!(follows.take_out(rq.tag, chooses.now), rq, "{level:?}");
        }
        assert_eq!(follows.staged(), 0);
        // The recorded request is another one: the batch goes on from there.
        let mut bed = Bed::new(level);
        bed.insert("A@100r B@200r C@300r D@400r");
        let now = bed.now;
        assert_eq!(bed.scheduler.take_out(SchedTag(1), now).sector, 200);
        assert_eq!(bed.drain(), "C D A", "{level:?}");
    }
}

#[test]
fn a_forced_merge_joins_what_the_rules_would_not() {
    for level in ALL {
        let mut bed = Bed::with(level, &[("front_merges", "0"), ("fifo_batch", "1")]);
        bed.insert("X@900r A@100r B@116r");
        let bio = rq(Op::Read, 108, 8, IoPrio::new(Class::BestEffort, 4));
        bed.scheduler.force_merge(SchedTag(2), &bio, weir_sched::merge::Side::Front);
        let taken: Vec<_> = std::iter::from_fn(|| bed.take()).map(|rq| rq.sector).collect();
        let mut sorted = taken.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, [100, 108, 900], "{level:?}: no further joins");
    }
}

#[test]
fn time_is_kept_in_nanoseconds() {
    for level in ALL {
        for (before, order) in [(1, "A C B"), (0, "A B C")] {
            let mut bed = Bed::with(level, &[("fifo_batch", "1")]);
            bed.insert("A@100r B@900r C@500r");
            bed.now = Nanos(500 * MS - before);
            let first = Bed::next(&mut bed);
            assert_eq!(format!("{first} {}", bed.drain()), order, "{level:?}");
        }
    }
}

#[test]
fn a_recorded_choice_of_reads_over_writes_is_counted_as_one() {
    for level in ALL {
        // Reads are taken against the order, so each is a batch of its own, chosen over a write.
        let writes_come_after = |reads: usize, and_a_write: bool| {
            let mut bed = Bed::with(level, &[("fifo_batch", "1"), ("writes_starved", "3")]);
            bed.insert("W@9000w V@9100w X@9200w A@500r B@400r C@300r D@200r E@100r F@600r");
            let now = bed.now;
            if and_a_write {
                bed.scheduler.take_out(SchedTag(2), now);
            }
            for tag in 0..reads as u16 {
                bed.scheduler.take_out(SchedTag(4 + tag), now);
            }
            let next = bed.next();
            "WVX".contains(&next)
        };
        assert!(!writes_come_after(2, true), "{level:?}");
        assert!(writes_come_after(3, true), "{level:?}");
    }
}

#[test]
fn new_limits_count_from_the_next_merge() {
    for level in ALL {
        let mut bed = Bed::new(level);
        bed.insert("A@100r");
        let limits = Limits { max_hw_sectors: 16, ..setup(level).limits };
        bed.scheduler.limits_changed(&limits, 0);
        let bio = |sector| rq(Op::Read, sector, 8, IoPrio::new(Class::BestEffort, 4));
        let now = bed.now;
        assert_eq!(bed.scheduler.merge(&bio(108), now), Merge::Back(SchedTag(0)), "{level:?}");
        assert_eq!(bed.scheduler.merge(&bio(116), now), Merge::No, "{level:?}");
        bed.scheduler.limits_changed(&setup(level).limits, 2);
        assert_eq!(bed.scheduler.merge(&bio(92), now), Merge::No, "{level:?}: nomerges");
    }
}

#[test]
fn a_wait_for_a_lower_class_begins_with_the_answer_that_none_may_go_and_ends_with_another() {
    let mut bed = Bed::with(MQ_6_18, &[("prio_aging_expire", "0")]);
    bed.insert("BE1@10r/BE RT1@100r/RT");
    assert_eq!([bed.next(), bed.next(), bed.next()], ["BE1", "RT1", "-"]);
    bed.set("prio_aging_expire", "10000");
    bed.insert("BE2@20r/BE");
    assert_eq!(bed.scheduler.wake_at(), None, "it was not asked since");
    assert_eq!(bed.next(), "-");
    assert_eq!(bed.scheduler.wake_at(), Some(Nanos::from_ms(10_000)));
    bed.insert("RT2@300r/RT");
    assert_eq!(bed.next(), "RT2");
    assert_eq!(bed.scheduler.wake_at(), None);
}

#[test]
fn a_batch_ends_behind_the_first_that_merges_or_is_absorbed_and_each_is_counted() {
    let request = |tag: u16, sector: u64, sectors: u32| Rq {
        tag: SchedTag(tag),
        ..rq(Op::Read, sector, sectors, IoPrio::NONE)
    };
    let first = request(0, 1000, 8);
    let other = request(1, 1016, 8);
    let far = request(9, 90_000, 8);
    // Two that end at 100, of which the first is as large as it may become.
    let (full, beside) = (request(0, 36, 64), request(1, 92, 8));
    let joined = Merge::BackJoined { kept: SchedTag(0), gone: SchedTag(1) };
    let absorbed = (SchedTag(1), SchedTag(2));
    // Staged before, the batch; how many were taken, what the last merge came to, what its insert
    // absorbed; requests inserted, merged and completed.
    type Row<'a> = (&'a [Rq], [Rq; 2], (usize, Merge), &'a [(SchedTag, SchedTag)], [u32; 3]);
    let table: &[Row<'_>] = &[
        (&[first], [request(2, 2000, 8), far], (2, Merge::No), &[], [3, 0, 0]),
        (&[first], [request(2, 1008, 8), far], (1, Merge::Back(SchedTag(0))), &[], [1, 0, 0]),
        (&[first], [far, request(2, 992, 8)], (2, Merge::Front(SchedTag(0))), &[], [2, 0, 0]),
        (&[first, other], [request(2, 1008, 8), far], (1, joined), &[], [2, 1, 1]),
        (&[full, beside], [request(2, 100, 8), far], (1, Merge::No), &[absorbed], [3, 1, 1]),
    ];
    for (n, (staged, batch, taken, gone, counts)) in table.iter().enumerate() {
        let limits = Limits { max_hw_sectors: 64, ..setup(MQ_6_18).limits };
        let mut deadline = MqDeadline::new(&Setup { limits, ..setup(MQ_6_18) });
        let mut absorbed = Absorbed::new();
        staged.iter().for_each(|rq| deadline.insert(*rq, Nanos::ZERO, &mut absorbed));
        assert_eq!(deadline.stage_batch(batch, Nanos::ZERO, &mut absorbed), *taken, "row {n}");
        assert_eq!(absorbed, *gone, "row {n}");
        let figures = deadline.figures();
        let counted = [figures.inserted, figures.merged, figures.completed].map(|of| of[1]);
        assert_eq!(counted, *counts, "row {n}");
    }
}

#[test]
fn requests_staged_together_expire_as_others_of_their_direction() {
    for level in ALL {
        for (op, expire_ms) in [(Op::Read, 500), (Op::Write, 5000)] {
            for (before, order) in [(1, [0, 2, 1]), (0, [0, 1, 2])] {
                let mut bed = Bed::with(level, &[("fifo_batch", "1")]);
                let batch = [(0, 100), (1, 900), (2, 500)].map(|(tag, sector)| Rq {
                    tag: SchedTag(tag),
                    ..rq(op, sector, 8, IoPrio::new(Class::BestEffort, 4))
                });
                let mut absorbed = Absorbed::new();
                let taken = bed.scheduler.stage_batch(&batch, Nanos::ZERO, &mut absorbed);
                assert_eq!(taken, (3, Merge::No));
                bed.now = Nanos(expire_ms * MS - before);
                let taken: Vec<u16> =
                    std::iter::from_fn(|| bed.take()).map(|rq| rq.tag.0).collect();
                assert_eq!(taken, order, "{level:?} {op:?}");
            }
        }
    }
}

#[test]
fn a_recorded_choice_against_the_order_is_the_first_of_a_batch() {
    let mut deadline = MqDeadline::new(&setup(MQ_6_18));
    deadline.tunables().set("fifo_batch", "3").expect("a tunable");
    for tag in 0..8 {
        let read = rq(Op::Read, 100 * u64::from(tag), 8, IoPrio::NONE);
        deadline.insert(Rq { tag: SchedTag(tag), ..read }, Nanos::ZERO, &mut Absorbed::new());
    }
    let next = |deadline: &mut MqDeadline| {
        let rq = deadline.dispatch(0, Nanos::ZERO).expect("a request");
        (rq.tag.0, deadline.figures().batching)
    };
    assert_eq!([next(&mut deadline), next(&mut deadline)], [(0, 1), (1, 2)]);
    deadline.take_out(SchedTag(4), Nanos::ZERO);
    assert_eq!(deadline.figures().batching, 1);
    assert_eq!(
        [next(&mut deadline), next(&mut deadline), next(&mut deadline)],
        [(5, 2), (6, 3), (7, 1)]
    );
}

#[test]
fn after_a_recorded_choice_the_oldest_is_looked_at_behind_a_whole_batch() {
    for level in ALL {
        let mut bed = Bed::with(level, &[("fifo_batch", "3"), ("read_expire", "0")]);
        bed.insert("A@100r B@200r C@300r D@400r E@500r F@600r G@700r H@800r");
        assert_eq!([bed.next(), bed.next()], ["A", "B"], "{level:?}");
        let now = bed.now;
        bed.scheduler.take_out(SchedTag(4), now);
        assert_eq!([bed.next(), bed.next(), bed.next()], ["F", "G", "C"], "{level:?}");
    }
}
