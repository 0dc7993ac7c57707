//! Power loss below the whole queue core: what was promised to be durable is there afterwards. The
//! rule stands in `core/laws/src/life/cut.rs`.
//!
//! `CRASH_SEED=n` runs one seed, `CRASH_SEEDS=n` so many.

use std::collections::BTreeMap;

use weir_laws::life::cut::{self, CACHE, CACHE_WITH_FUA, NO_CACHE, Way};
use weir_laws::outage::Cache;
use weir_laws::promises::{Loss, Promise};
use weir_laws::{Tell, seeds};

/// Seeds of each path and cache.
const SEEDS: u64 = 1_000;

/// Seeds of each path and cache without barriers.
const SEEDS_WITHOUT: u64 = 200;

/// The joint result of all seeds of a row.
#[derive(Debug, Default)]
struct Tally {
    /// Power was cut while writers were still at it.
    cut: u64,
    /// Writes that had to be there in the end.
    promised: u64,
    /// Sectors of the torn image that are not what the disk had been given.
    gone: u64,
    flushes: u64,
    fua: u64,
    /// Seeds that lost something promised in such a way.
    losses: BTreeMap<Promise, u64>,
}

impl Tally {
    /// Plays a life, whose losses are returned.
    fn add(&mut self, way: Way, cache: Cache, barriers: bool, seed: u64) -> Vec<Loss> {
        let found = cut::play(way, cache, barriers, seed);
        self.cut += u64::from(found.is_cut);
        self.promised += found.promised;
        self.gone += found.gone;
        self.flushes += found.flushes;
        self.fua += found.fua;
        let losses = found.losses;
        let mut ways: Vec<Promise> = losses.iter().map(|loss| loss.why).collect();
        ways.sort_unstable();
        ways.dedup();
        ways.into_iter().for_each(|why| *self.losses.entry(why).or_default() += 1);
        losses
    }
}

fn tell(way: Way, cache: Cache, seed: u64) -> Tell {
    Tell(format!("path {way:?}, {cache:?}\nCRASH_SEED={seed}"))
}

fn keep_the_promises(way: Way, cache: Cache) {
    let (mut tally, mut count) = (Tally::default(), 0);
    for seed in seeds("CRASH", SEEDS) {
        let _tell = tell(way, cache, seed);
        let losses = tally.add(way, cache, true, seed);
        assert!(losses.is_empty(), "lost what was promised: {losses:#?}");
        count += 1;
    }
    println!("{way:?}, {cache:?}: {count} seeds, {tally:?}");
    if count < SEEDS {
        return;
    }
    // The seeds try what they are meant to.
    assert!(tally.cut > count / 2, "{} of {count} scenes lost their power", tally.cut);
    assert!(tally.promised > count, "{} writes were promised", tally.promised);
    assert_eq!(tally.flushes > count, cache.volatile, "{} flushes", tally.flushes);
    assert_eq!(tally.fua > count / 4, cache.fua, "{} FUA writes", tally.fua);
    assert!(tally.gone > count / 4, "{} sectors were torn away", tally.gone);
}

macro_rules! rows {
    ($($name:ident: $way:ident, $cache:ident;)*) => {
        $(#[test]
        fn $name() {
            keep_the_promises(Way::$way, $cache);
        })*
    };
}

rows! {
    sq_without_a_cache_keeps_what_it_acknowledged: Sq, NO_CACHE;
    sq_with_a_cache_keeps_what_it_flushed: Sq, CACHE;
    sq_with_a_cache_and_fua_keeps_what_it_flushed: Sq, CACHE_WITH_FUA;
    mq_without_a_cache_keeps_what_it_acknowledged: Mq, NO_CACHE;
    mq_with_a_cache_keeps_what_it_flushed: Mq, CACHE;
    mq_with_a_cache_and_fua_keeps_what_it_flushed: Mq, CACHE_WITH_FUA;
    mq_scheduled_without_a_cache_keeps_what_it_acknowledged: MqScheduled, NO_CACHE;
    mq_scheduled_with_a_cache_keeps_what_it_flushed: MqScheduled, CACHE;
    mq_scheduled_with_a_cache_and_fua_keeps_what_it_flushed: MqScheduled, CACHE_WITH_FUA;
    round_robin_without_a_cache_keeps_what_it_acknowledged: RoundRobin, NO_CACHE;
    round_robin_with_a_cache_keeps_what_it_flushed: RoundRobin, CACHE;
    round_robin_with_a_cache_and_fua_keeps_what_it_flushed: RoundRobin, CACHE_WITH_FUA;
}

#[test]
fn with_barriers_off_a_cache_loses_what_was_flushed_and_the_test_sees_it() {
    for way in [Way::Sq, Way::Mq, Way::MqScheduled, Way::RoundRobin] {
        for cache in [CACHE, CACHE_WITH_FUA] {
            let (mut tally, mut count) = (Tally::default(), 0);
            for seed in seeds("CRASH", SEEDS_WITHOUT) {
                let _tell = tell(way, cache, seed);
                tally.add(way, cache, false, seed);
                count += 1;
            }
            println!("{way:?}, {cache:?}, barriers off: {tally:?}");
            assert_eq!((tally.flushes, tally.fua), (0, 0), "{way:?}: barriers reach the disk");
            for why in [Promise::Fua, Promise::Flush, Promise::Preflush] {
                let losses = tally.losses.get(&why).copied().unwrap_or(0);
                assert!(count < SEEDS_WITHOUT || losses > 0, "{way:?}: no loss of {why:?}");
            }
        }
    }
}

#[test]
fn with_barriers_off_a_disk_without_a_cache_loses_nothing() {
    for way in [Way::Sq, Way::Mq, Way::MqScheduled, Way::RoundRobin] {
        for seed in seeds("CRASH", SEEDS_WITHOUT) {
            let _tell = tell(way, NO_CACHE, seed);
            let losses = Tally::default().add(way, NO_CACHE, false, seed);
            assert!(losses.is_empty(), "{losses:#?}");
        }
    }
}
