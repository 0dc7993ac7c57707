//! Power loss under a striped device: what was promised to be durable is there afterwards, on
//! whichever legs it lies. The life stands in `core/laws/src/life/stripes.rs`.
//!
//! `CRASH_SEED=n` plays one seed, `CRASH_SEEDS=n` so many.

use weir_laws::life::stripes::play;
use weir_laws::{Tell, seeds};

const SEEDS: u64 = 1_000;

#[test]
fn what_was_flushed_through_a_stripe_is_there_after_the_power_was_cut() {
    let (mut promised, mut count) = (0, 0);
    for seed in seeds("CRASH", SEEDS) {
        let _tell = Tell(format!("CRASH_SEED={seed}"));
        let (losses, there) = play(seed, true);
        assert_eq!(losses, 0, "what was promised is lost");
        (promised, count) = (promised + there, count + 1);
    }
    println!("{count} seeds, {promised} writes promised");
    assert!(count < SEEDS || promised > 3 * count, "{promised} writes of {count} seeds");
}

#[test]
fn legs_without_barriers_lose_what_was_flushed_and_the_test_sees_it() {
    let losses: usize = (0..100).map(|seed| play(seed, false).0).sum();
    assert!(losses > 0);
}
