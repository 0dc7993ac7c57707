//! The worked examples of docs/behaviour/deadline.md, section 7, and of
//! docs/behaviour/mq-deadline.md, section 6, under their numbers there.

use weir_sched::Scheduler;
use weir_sched::mq::deadline::MqDeadline;

use weir_bio::{IoPrio, Nanos, Op};

use super::bed::{ALL, Bed, D4, MQ_4_12, MQ_6_18, rq, setup};

#[test]
fn e1_at_the_end_of_the_order_d4_takes_the_oldest_and_d6_began_at_the_lowest_sector() {
    let insert = "A@100r B@50r C@200r D@75r";
    for level in D4 {
        assert_eq!(Bed::new(level).insert(insert).drain(), "A C B D", "{level:?}");
    }
    assert_eq!(Bed::new(MQ_6_18).insert(insert).drain(), "B D A C");
}

#[test]
fn e2_reads_get_their_batches_and_writes_are_not_starved() {
    let reads = "R1@100r R2@200r R3@300r R4@400r R5@500r R6@600r R7@700r R8@800r";
    let writes = "W1@150w W2@250w W3@350w W4@450w";
    let drain = |level| {
        let mut bed = Bed::with(level, &[("fifo_batch", "2")]);
        bed.insert(reads).insert(writes).drain()
    };
    for level in D4 {
        assert_eq!(drain(level), "R1 R2 R3 R4 W1 W2 R5 R6 R7 R8 W3 W4", "{level:?}");
    }
    // A fresh scheduler is in the midst of a write batch (docs/behaviour/mq-deadline.md, section 4,
    // quirk Q5).
    assert_eq!(drain(MQ_6_18), "W1 W2 R1 R2 R3 R4 W3 W4 R5 R6 R7 R8");
}

#[test]
fn e3_expiry_is_looked_at_between_batches_and_the_moment_itself_counts() {
    for level in ALL {
        for (at, order) in [(499, "Z B C D E A"), (500, "Z B A C D E")] {
            let mut bed = Bed::with(level, &[("fifo_batch", "2"), ("read_expire", "500")]);
            bed.insert("Z@50r A@1000r B@100r C@200r D@300r E@400r");
            let first = [bed.at_ms(1).next(), bed.next()].join(" ");
            let rest = bed.at_ms(at).drain();
            assert_eq!(format!("{first} {rest}"), order, "{level:?} at {at}");
        }
    }
}

#[test]
fn e4_after_a_change_of_direction_d4_takes_the_oldest_and_d6_goes_on() {
    let drain = |level| {
        let mut bed = Bed::with(level, &[("fifo_batch", "2"), ("writes_starved", "0")]);
        let first = bed.insert("R1@100r R2@400r R3@50r R4@300r R5@200r").next();
        format!("{first} {}", bed.insert("W1@1000w W2@1100w").drain())
    };
    for level in D4 {
        assert_eq!(drain(level), "R1 R5 W1 W2 R2 R3 R4", "{level:?}");
    }
    assert_eq!(drain(MQ_6_18), "R3 R1 W1 W2 R5 R4 R2");
}

#[test]
fn e5_a_late_arrival_is_seen_by_d6_and_waits_for_the_next_sweep_in_d4() {
    let drain = |level| {
        let mut bed = Bed::new(level);
        bed.sectors = 1;
        let first = bed.insert("A@100r B@300r").next();
        format!("{first} {}", bed.insert("C@200r X@200r A2@100r").drain())
    };
    for level in D4 {
        assert_eq!(drain(level), "A B C X A2", "{level:?}");
    }
    assert_eq!(drain(MQ_6_18), "A A2 C X B");
}

#[test]
fn e6_who_takes_in_an_older_request_takes_its_deadline_and_place_as_well() {
    for level in ALL {
        for front_merges in ["1", "0"] {
            let mut bed = Bed::with(level, &[("front_merges", front_merges)]);
            bed.insert("B@116r").at_ms(5).insert("C@50r").at_ms(10).insert("A@100r");
            assert_eq!(bed.at_ms(20).bio("b@108r"), "A<B", "{level:?}");
            let first = bed.at_ms(500).take().expect("A is expired");
            assert_eq!((first.sector, first.end()), (100, 124), "{level:?}");
            assert_eq!(bed.drain(), "C", "{level:?}");
        }
    }
}

#[test]
fn e6_the_counters_of_the_class_count_who_was_merged() {
    let mut deadline = MqDeadline::new(&setup(MQ_6_18));
    let mut insert = |tag, sector, ms| {
        let mut rq = rq(Op::Read, sector, 8, IoPrio::NONE);
        rq.tag = weir_sched::SchedTag(tag);
        deadline.insert(rq, Nanos::from_ms(ms), &mut Vec::new());
    };
    insert(0, 116, 0);
    insert(1, 50, 5);
    insert(2, 100, 10);
    deadline.merge(&rq(Op::Read, 108, 8, IoPrio::NONE), Nanos::from_ms(20));
    while deadline.dispatch(0, Nanos::from_ms(500)).is_some() {}
    let figures = deadline.figures();
    assert_eq!((figures.inserted, figures.merged), ([0, 3, 0], [0, 1, 0]));
    assert_eq!((figures.dispatched, figures.completed), ([0, 2, 0], [0, 1, 0]));
    assert_eq!((figures.queued, figures.owned_by_driver), ([0, 2, 0], [0, 2, 0]));
}

#[test]
fn e7_front_merges_off_leaves_the_cache_and_the_hash() {
    for level in ALL {
        let mut bed = Bed::new(level);
        bed.insert("A@100r B@300r");
        assert_eq!(bed.bio("p@292r"), "B", "{level:?}: by its first sector");
        bed.set("front_merges", "0");
        assert_eq!(bed.bio("q@284r"), "B", "{level:?}: by the cache");
        assert_eq!(bed.bio("u@92r"), "-", "{level:?}");
        assert_eq!(bed.bio("v@108r"), "A", "{level:?}: by its last sector");
        assert_eq!(bed.bio("x@116w"), "-", "{level:?}: another op");
        let ends = [bed.take(), bed.take()].map(|rq| rq.map(|rq| (rq.sector, rq.end())));
        assert_eq!(ends, [Some((100, 116)), Some((284, 308))], "{level:?}");
    }
}

#[test]
fn e8_a_class_waits_for_what_a_higher_one_has_in_flight() {
    let mut bed = Bed::new(MQ_6_18);
    bed.insert("BE1@10r/BE IDLE1@20r/IDLE RT1@500r/RT RT2@400r/RT");
    assert_eq!([bed.next(), bed.next(), bed.next()], ["RT2", "RT1", "-"]);
    bed.finish("RT2");
    assert_eq!(bed.next(), "-");
    bed.finish("RT1");
    assert_eq!([bed.next(), bed.next()], ["BE1", "-"]);
    bed.finish("BE1");
    assert_eq!(bed.next(), "IDLE1");
}

#[test]
fn e9_a_request_ages_at_exactly_the_limit() {
    let mut bed = Bed::new(MQ_6_18);
    bed.insert("BE1@10r/BE RT1@100r/RT");
    assert_eq!(bed.at_ms(9999).next(), "RT1");
    assert_eq!(bed.insert("RT2@200r/RT").next(), "RT2");
    bed.at_ms(10_000).insert("RT3@300r/RT");
    assert_eq!([bed.next(), bed.next(), bed.next()], ["BE1", "RT3", "-"]);
}

#[test]
fn e10_an_ageing_pass_that_serves_nobody_lets_a_batch_run_on() {
    let drain = |others: &str| {
        let values = [("fifo_batch", "2"), ("writes_starved", "0")];
        let mut bed = Bed::with(MQ_6_18, &values);
        let first = bed.insert(others).insert("a@100r/RT b@200r/RT c@300r/RT d@400r/RT").next();
        format!("{first} {}", bed.insert("w@50w/RT").drain())
    };
    assert_eq!(drain(""), "a b w c d");
    assert_eq!(drain("z@10r/BE"), "a b c d w", "and z waits for them to finish");
}

#[test]
fn e16_a_batch_of_one_still_sweeps_and_only_expiry_makes_it_first_come_first_served() {
    for level in ALL {
        for (batch, expire, order) in
            [("1", "500", "A D C B"), ("1", "0", "A B C D"), ("0", "500", "A D C B")]
        {
            let mut bed = Bed::with(level, &[("fifo_batch", batch), ("read_expire", expire)]);
            let drained = bed.insert("A@100r B@500r C@300r D@200r").drain();
            assert_eq!(drained, order, "{level:?}, batch {batch}, expiry {expire}");
        }
    }
}

#[test]
fn the_4_12_level_knows_no_classes() {
    let mut bed = Bed::new(MQ_4_12);
    bed.insert("A@10r/IDLE B@20r/BE C@30r/RT");
    assert_eq!(bed.drain(), "A B C");
}
