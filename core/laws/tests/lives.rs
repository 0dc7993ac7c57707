//! Lives from seeds: a few hundred here, and as many as there is time for in `weir sim fuzz`.
//!
//! `LIFE_SEED=n` lives one, `LIFE_SEEDS=n` so many.

use std::collections::BTreeMap;

use weir_laws::life::{Life, Lived};
use weir_laws::{Tell, seeds};

fn live(seed: u64) -> (&'static str, Lived) {
    let (life, chance) = Life::of(seed);
    let _tell = Tell(format!("LIFE_SEED={seed}: {life}"));
    (life.word(), life.live(chance))
}

#[test]
fn no_life_breaks_a_law() {
    let mut counts: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for seed in seeds("LIFE", 300) {
        let (word, lived) = live(seed);
        let count = counts.entry(word).or_default();
        *count = (count.0 + 1, count.1 + lived.bios);
    }
    println!("lives and bios of each kind: {counts:?}");
    let all: u64 = counts.values().map(|(lives, _)| lives).sum();
    assert!(all < 300 || counts.len() == 7, "kinds that no seed has: {counts:?}");
}

#[test]
fn a_seed_is_the_same_life_each_time() {
    for seed in seeds("LIFE", 60) {
        assert_eq!(live(seed), live(seed), "seed {seed}");
    }
}

#[test]
fn a_context_whose_requests_are_limited_alike_gets_a_tag_beside_others_that_never_stop() {
    // Beside a reader the one tag for discards was another's whenever it was free.
    live(836);
}

#[test]
fn a_queue_that_is_opened_anew_answers_nothing_of_what_the_one_before_was_given() {
    live(114_557);
}

#[test]
fn a_driver_is_silent_as_long_as_it_answers_nothing_whatever_it_was_sent_since() {
    // What was sent after the first requests had run out of time gave it another time-out.
    live(787_868);
    // Here nothing was left to be watched for a moment.
    live(27_081);
}

#[test]
fn a_lane_is_watched_while_the_scheduler_withholds_from_it_what_lanes_in_need_should_have_had() {
    // The clock of the last lane that was well began when it was sent something, 1.2 s later.
    live(779_929);
}

#[test]
fn a_lane_whose_requests_wait_for_tags_of_silent_lanes_is_watched() {
    live(192_967);
}

#[test]
fn what_has_ended_at_the_driver_is_the_schedulers_before_a_frozen_device_is_changed() {
    // The scheduler was exchanged between the answer and the lane's next turn.
    live(452_173);
}
