//! The laws every scheduler keeps, held against each one in the list, in each of its behaviours.
//!
//! Random sequences of calls go through a ledger (`bed/ledger.rs`) that panics when a request is
//! lost, doubled or invented, when a count is wrong, or when work is stranded. `LAWS_SEQUENCES`
//! says how many sequences each scheduler gets, `LAWS_SEED` runs one seed alone.

#![forbid(unsafe_code)]

mod bed;

use bed::dice::Dice;
use bed::life::{Did, Life};
use bed::{Bed, Client, Device, MILLISECOND, SECOND, Tell, asked, every};
use weir_bio::Nanos;

/// Calls of a sequence, before everything is let out.
const STEPS: usize = 120;

fn seeds(count: u64) -> std::ops::Range<u64> {
    let one = asked("LAWS_SEED", u64::MAX);
    if one == u64::MAX { 0..asked("LAWS_SEQUENCES", count) } else { one..one + 1 }
}

fn for_every_life(count: u64, law: impl Fn(Life)) {
    for (entry, compat) in every() {
        for seed in seeds(count) {
            let name = entry.name;
            let _tell = Tell(format!("{name} as in {compat}: again with LAWS_SEED={seed}"));
            law(Life::new(entry, compat, Dice::seeded(seed)));
        }
    }
}

#[test]
fn no_request_is_lost_doubled_or_stranded_whatever_happens_to_it() {
    for_every_life(10_000, |mut life| {
        life.steps(STEPS);
        life.end();
    });
}

#[test]
fn nothing_is_lost_when_another_scheduler_takes_over() {
    for (next, compat) in every() {
        for_every_life(30, |mut life| {
            life.steps(STEPS / 2);
            life.switch(next, compat);
            life.steps(STEPS / 2);
            life.end();
        });
    }
}

#[test]
fn a_copy_made_at_any_moment_goes_on_as_the_original_does() {
    for_every_life(1_000, |mut life| {
        let before = life.dice.below(STEPS as u64) as usize;
        life.steps(before);
        if !life.can_be_copied() {
            return;
        }
        let mut copy = life.clone();
        for life in [&mut life, &mut copy] {
            life.steps(STEPS - before);
            life.end();
        }
        assert_eq!(life.did, copy.did);
    });
}

#[test]
fn the_same_calls_have_the_same_answers() {
    for (entry, compat) in every() {
        for seed in seeds(500) {
            let _tell = Tell(format!("{} as in {compat}: LAWS_SEED={seed}", entry.name));
            let run = || {
                let mut life = Life::new(entry, compat, Dice::seeded(seed));
                life.steps(STEPS);
                life.end();
                life.did
            };
            assert_eq!(run(), run());
        }
    }
}

#[test]
fn what_is_done_depends_on_spans_of_time_and_not_on_the_time_of_day() {
    const SHIFT: u64 = 86_400 * SECOND;
    let timeless = ["noop", "deadline", "cfq", "mq-deadline", "kyber"];
    for (entry, compat) in every().filter(|(entry, _)| timeless.contains(&entry.name)) {
        for seed in seeds(500) {
            let _tell = Tell(format!("{} as in {compat}: LAWS_SEED={seed}", entry.name));
            let run = |shift: u64| {
                let mut life = Life::new(entry, compat, Dice::seeded(seed));
                life.now = life.now + shift;
                life.steps(STEPS);
                life.end();
                let back = |did: Did| match did {
                    Did::Issued(at, rq, bios) => Did::Issued(at - shift, rq, bios),
                    Did::Woke(at) => Did::Woke(at - shift),
                    other => other,
                };
                life.did.into_iter().map(back).collect::<Vec<_>>()
            };
            assert_eq!(run(0), run(SHIFT));
        }
    }
}

#[test]
fn nobody_starves_among_equals() {
    for (entry, compat) in every() {
        let victims = [
            Client::random_reader(0, 1 << 24, 8, 99),
            Client::random_writer(0, 1 << 24, 8, 99),
            Client::random_writer(0, 1 << 24, 8, 99).background(),
        ];
        for (index, victim) in victims.into_iter().enumerate() {
            let _tell = Tell(format!("{} as in {compat}: victim {index}", entry.name));
            let setting = bed::Setting { compat: Some(compat), ..bed::Setting::default() };
            let mut bed = Bed::with(entry.name, Device::serial(MILLISECOND), setting);
            for greedy in 0..4 {
                bed.client(Client::random_reader(0, 1 << 24, 8, greedy).depth(8));
                bed.client(Client::reader(greedy << 20, 64).depth(2).start(greedy * SECOND));
            }
            let victim = bed.client(victim.start(SECOND).ios(5));
            bed.run_until(Nanos(60 * SECOND));
            let longest = bed.record(victim).latencies().max();
            assert_eq!(bed.record(victim).done.len(), 5, "some of its I/Os were never served");
            // Twice the longest deadline any scheduler has by default, 5 s for writes.
            assert!(longest <= 10 * SECOND, "one waited {longest} ns");
        }
    }
}
