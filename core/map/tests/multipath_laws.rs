//! The law of multipath: what was acknowledged is read back whichever path answers, and nothing
//! lands over newer data. The life stands in `core/laws/src/life/paths.rs`.
//!
//! `MULTIPATH_SEED=n` plays one seed, `MULTIPATH_SEEDS=n` so many.

use weir_laws::life::paths::{self, Figures, Kind, LOSES};
use weir_laws::{Tell, seeds};

fn play(kind: Kind, seed: u64) -> Figures {
    let _tell = Tell(format!("{kind:?} MULTIPATH_SEED={seed}"));
    paths::live(kind, seed)
}

#[test]
fn what_was_acknowledged_is_read_back_whichever_path_answers() {
    let mut all = Figures::default();
    for seed in seeds("MULTIPATH", 150) {
        let figures = play(LOSES, seed);
        all.well += figures.well;
        all.changes += figures.changes;
        all.mischief += figures.mischief;
    }
    println!("{all:?}");
    assert!(all.well > 0);
}

#[test]
fn after_the_bound_of_the_transport_a_write_in_doubt_goes_down_another_path() {
    let mut all = Figures::default();
    for seed in seeds("MULTIPATH", 150) {
        let figures = play(Kind { bound_s: Some(8), ..LOSES }, seed);
        all.well += figures.well;
        all.changes += figures.changes;
        all.mischief += figures.mischief;
    }
    println!("{all:?}");
    assert!(all.well > 0);
}

#[test]
fn with_queueing_no_bio_fails_whatever_becomes_of_the_paths() {
    let mut all = Figures::default();
    for seed in seeds("MULTIPATH", 100) {
        let figures = play(Kind { queues: true, ..LOSES }, seed);
        all.well += figures.well;
        all.changes += figures.changes;
        all.mischief += figures.mischief;
    }
    println!("{all:?}");
}

#[test]
fn without_the_fence_the_law_is_broken_and_found() {
    // The first seed that shows it; the limit is generous.
    let found = (0..60).find(|seed| {
        let run =
            std::panic::catch_unwind(|| paths::live(Kind { immediate: true, ..LOSES }, *seed));
        run.is_err_and(|panic| {
            let text = panic.downcast_ref::<String>().cloned().unwrap_or_default();
            assert!(text.contains("held what bio"), "another reason: {text}");
            true
        })
    });
    println!("found with seed {found:?}");
    assert!(found.is_some(), "retry=immediate never left older data over newer");
}
