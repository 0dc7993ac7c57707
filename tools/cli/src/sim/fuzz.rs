//! `weir sim fuzz`: lives of the core from one seed after the other, held to the laws.
//!
//! A broken law is a panic. It is told with its seed, and where the program unwinds the next life
//! begins; in a program that does not, the hook tells it and ends the process.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, PanicHookInfo};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Value, json};
use weir_laws::life::{Life, Lived};

use crate::bench::interrupted;
use crate::output::{print, print_line};
use crate::sim::turn;
use crate::{Failure, log};

/// A life that lasts longer hangs: the longest takes some 20 s in a build with checks.
const LIFE_MAX: Duration = Duration::from_secs(600);

/// How often the time is looked at, and how often it is said how far it has come.
const LOOK: Duration = Duration::from_millis(50);
const TOLD: Duration = Duration::from_secs(10);

/// Lives of queues, schedulers and mappers in virtual time, with faults: errors, stalls, lost
/// paths, power cuts, and changes under load. Each is made of a seed, and held to the laws: every
/// request ends once; a read sees the last write; what was flushed survives; no I/O starves; at the
/// end nothing is left. Exit status 1: a law is broken, by the seed that is printed.
///
/// Example: weir sim fuzz --seconds 600
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Fuzz {
    /// No life begins after so long.
    #[arg(long, value_name = "N", default_value_t = 60)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    seconds: u64,
    /// The first seed; the others follow it. The same seed is the same life on every machine.
    #[arg(long = "randseed", alias = "seed", value_name = "SEED", default_value_t = 1)]
    seed: u64,
    /// So many lives, if there is time; as many as there is time for if not given.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    lives: Option<u64>,
    /// Lives at once; as many as there are processors if not given. It changes no life.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
    /// Do not say how far it has come.
    #[arg(long)]
    quiet: bool,
}

/// A law that a seed breaks.
#[derive(Clone, Debug)]
struct Finding {
    seed: u64,
    life: String,
    /// The words of the panic: what is broken, with the values.
    what: String,
    /// Where it was noticed.
    at: String,
}

/// What all threads have seen.
#[derive(Debug, Default)]
struct Seen {
    /// Lives and bios of each kind.
    kinds: BTreeMap<&'static str, (u64, u64)>,
    findings: Vec<Finding>,
    /// By thread: the life that it is in, and since when.
    under_way: Vec<Option<(u64, Instant)>>,
    /// The seed of the next life.
    next: u64,
    /// A signal ended it.
    broken_off: bool,
}

#[derive(Debug)]
struct Shared {
    seen: Mutex<Seen>,
    over: AtomicBool,
}

impl Shared {
    /// A thread that finds something holds no lock, so that what is seen is whole.
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

thread_local! {
    /// The seed whose life this thread is in, and what was found of it.
    static AT: RefCell<(Option<u64>, Option<Finding>)> = const { RefCell::new((None, None)) };
}

/// Lives the life of a seed, or panics.
type Live = fn(u64) -> Lived;

impl Fuzz {
    pub(super) fn run(self) -> Result<(), Failure> {
        let fuzz = Arc::new(self);
        let begun = Instant::now();
        let interrupted = interrupted()?;
        let live = |seed| {
            let (life, chance) = Life::of(seed);
            life.live(chance)
        };
        let seen = fuzz.hunt(begun, live, &interrupted)?;
        fuzz.print(&seen, begun.elapsed())?;
        seen.verdict()
    }

    /// Lives one seed after the other; what was seen.
    fn hunt(
        self: &Arc<Fuzz>,
        begun: Instant,
        live: Live,
        interrupted: &AtomicBool,
    ) -> Result<Seen, Failure> {
        let threads = turn::threads(self.threads, usize::MAX);
        let last = match self.lives {
            None => u64::MAX,
            Some(lives) => self.seed.checked_add(lives).ok_or_else(|| {
                let seed = self.seed;
                Failure::Bad(format!("--randseed {seed} and {lives} lives: past the last seed"))
            })?,
        };
        let (under_way, next) = (vec![None; threads], self.seed);
        let seen = Mutex::new(Seen { under_way, next, ..Seen::default() });
        let shared = Arc::new(Shared { seen, over: AtomicBool::new(false) });
        self.hear_of_panics(&shared, begun);
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let shared = &*shared;
                let work = move || live_on(shared, thread, last, live);
                // Where the system has no more threads, fewer do the same.
                match std::thread::Builder::new().spawn_scoped(scope, work) {
                    Err(error) if thread == 0 => {
                        return Err(Failure::Bad(format!("a thread: {error}")));
                    }
                    Err(_) => break,
                    Ok(_) => {}
                }
            }
            self.watch(&shared, (begun, last), interrupted);
            Ok(())
        })?;
        let seen = std::mem::take(&mut *shared.seen());
        Ok(seen)
    }

    /// The usual hook would tell each finding without its seed.
    fn hear_of_panics(self: &Arc<Fuzz>, shared: &Arc<Shared>, begun: Instant) {
        let (fuzz, shared) = (Arc::clone(self), Arc::clone(shared));
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| match finding(panic) {
            None => before(panic),
            Some(found) if cfg!(panic = "abort") => fuzz.end(&shared, begun, found),
            Some(found) => AT.with_borrow_mut(|(_, at)| *at = Some(found)),
        }));
    }

    /// Until all have ended; a life that does not is a finding, and the end.
    fn watch(&self, shared: &Shared, (begun, last): (Instant, u64), interrupted: &AtomicBool) {
        let (mut told, mut found) = (begun, 0);
        loop {
            std::thread::sleep(LOOK);
            if begun.elapsed().as_secs() >= self.seconds {
                shared.over.store(true, Ordering::Relaxed);
            }
            let seen = shared.seen();
            let mut under_way = seen.under_way.iter().flatten();
            if let Some((seed, _)) = under_way.clone().find(|(_, since)| since.elapsed() > LIFE_MAX)
            {
                let what = format!("it has not ended after {} s", LIFE_MAX.as_secs());
                let found = Finding::of(*seed, what, String::new());
                drop(seen);
                self.end(shared, begun, found);
            }
            if interrupted.load(Ordering::Acquire) {
                drop(under_way);
                self.break_off(seen, begun);
            }
            if !self.quiet {
                let new = seen.findings[found..].iter().map(Finding::again);
                new.for_each(|again| log::say(&format!("found: {again}")));
                found = seen.findings.len();
            }
            let over = shared.over.load(Ordering::Relaxed);
            let begins = !over && seen.next < last;
            if under_way.next().is_none() && !begins {
                return;
            }
            if !self.quiet && told.elapsed() >= TOLD {
                told = Instant::now();
                log::say(&seen.line(begun.elapsed()));
            }
        }
    }

    /// The end at something found, where no other life can go on.
    fn end(&self, shared: &Shared, begun: Instant, found: Finding) -> ! {
        let mut seen = shared.seen();
        seen.findings.push(found);
        self.exit(&seen, begun)
    }

    /// The end at a signal; lives that are under way are not waited for.
    fn break_off(&self, mut seen: MutexGuard<'_, Seen>, begun: Instant) -> ! {
        seen.broken_off = true;
        self.exit(&seen, begun)
    }

    fn exit(&self, seen: &Seen, begun: Instant) -> ! {
        let printed = self.print(seen, begun.elapsed());
        let verdict = printed.and_then(|()| seen.verdict());
        let code = match verdict {
            Ok(()) => 0,
            Err(Failure::No(why)) => {
                log::say(&format!("weir: {why}"));
                1
            }
            Err(Failure::Bad(why)) => {
                log::say(&format!("weir: {why}"));
                2
            }
        };
        std::process::exit(code)
    }

    fn print(&self, seen: &Seen, took: Duration) -> Result<(), Failure> {
        if self.json {
            return print_line(&self.document(seen, took).to_string());
        }
        let findings = seen.findings.iter().map(|found| {
            let Finding { seed, life, what, at } = found;
            let again = found.again();
            format!("seed {seed}: {life}\n  {}\n  at {at}\n  again: {again}\n", what.trim_end())
        });
        print(&(findings.collect::<String>() + &seen.line(took) + "\n"))
    }

    fn document(&self, seen: &Seen, took: Duration) -> Value {
        let findings: Vec<Value> = seen
            .findings
            .iter()
            .map(|found| {
                let Finding { seed, life, what, at } = found;
                json!({"seed": seed, "life": life, "what": what, "at": at, "again": found.again()})
            })
            .collect();
        let kinds = seen.kinds.iter().map(|(kind, (lives, bios))| {
            (String::from(*kind), json!({"lives": lives, "bios": bios}))
        });
        let kinds: serde_json::Map<String, Value> = kinds.collect();
        json!({"seed": self.seed, "lives": seen.lives(), "kinds": kinds, "findings": findings,
               "partial": seen.broken_off, "wall_s": took.as_secs_f64()})
    }
}

impl Finding {
    fn of(seed: u64, what: String, at: String) -> Finding {
        Finding { seed, life: Life::of(seed).0.to_string(), what, at }
    }

    fn again(&self) -> String {
        format!("weir sim fuzz --randseed {} --lives 1", self.seed)
    }
}

impl Seen {
    fn lives(&self) -> u64 {
        self.kinds.values().map(|(lives, _)| lives).sum::<u64>() + self.findings.len() as u64
    }

    fn line(&self, took: Duration) -> String {
        let kinds = self.kinds.iter().map(|(kind, (lives, _))| format!("{kind} {lives}"));
        let kinds = kinds.collect::<Vec<_>>().join(", ");
        let bios: u64 = self.kinds.values().map(|(_, bios)| bios).sum();
        let (lives, found) = (self.lives(), self.findings.len());
        let took = took.as_secs_f64();
        format!("{lives} lives ({kinds}), {bios} bios in {took:.1} s: {found} found")
    }

    fn verdict(&self) -> Result<(), Failure> {
        match self.findings.len() {
            0 if self.broken_off => {
                let lives = self.lives();
                Err(Failure::Bad(format!(
                    "interrupted; {lives} lives were lived, and broke no law"
                )))
            }
            0 => Ok(()),
            1 => Err(Failure::No(String::from("1 life broke a law"))),
            found => Err(Failure::No(format!("{found} lives broke a law"))),
        }
    }
}

/// What a panic of this thread found, if it is in a life.
fn finding(panic: &PanicHookInfo<'_>) -> Option<Finding> {
    let (seed, known) = AT.with_borrow(|(seed, found)| (*seed, found.clone()));
    // Of two panics in one life the first is the reason.
    let payload = panic.payload();
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let what = text.unwrap_or("a panic without words").to_owned();
    let at = panic.location().map(ToString::to_string).unwrap_or_default();
    seed.map(|seed| known.unwrap_or_else(|| Finding::of(seed, what, at)))
}

/// One life after the other, until the time or the seeds are over.
fn live_on(shared: &Shared, thread: usize, last: u64, live: Live) {
    while !shared.over.load(Ordering::Relaxed) {
        let mut seen = shared.seen();
        let seed = seen.next;
        if seed >= last {
            return;
        }
        seen.next += 1;
        seen.under_way[thread] = Some((seed, Instant::now()));
        drop(seen);
        AT.set((Some(seed), None));
        let lived = std::panic::catch_unwind(AssertUnwindSafe(|| live(seed)));
        let (_, found) = AT.take();
        let mut seen = shared.seen();
        seen.under_way[thread] = None;
        match (lived, found) {
            (Ok(Lived { bios, .. }), _) => {
                let count = seen.kinds.entry(Life::of(seed).0.word()).or_default();
                *count = (count.0 + 1, count.1 + bios);
            }
            (Err(_), found) => {
                let unknown = || Finding::of(seed, "a panic".into(), String::new());
                seen.findings.push(found.unwrap_or_else(unknown));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fuzz(lives: u64) -> Arc<Fuzz> {
        let (seconds, threads) = (3600, Some(2));
        Arc::new(Fuzz { seconds, seed: 7, lives: Some(lives), threads, json: true, quiet: true })
    }

    #[test]
    fn each_life_that_breaks_a_law_is_told_with_its_seed_and_the_others_go_on() {
        let live: Live = |seed| {
            assert!(!seed.is_multiple_of(5), "sector {seed} is gone");
            Lived { bios: 2, ..Lived::default() }
        };
        let (fuzz, begun) = (fuzz(9), Instant::now());
        let mut seen = fuzz.hunt(begun, live, &AtomicBool::new(false)).expect("threads");
        seen.findings.sort_by_key(|found| found.seed);
        let told = seen.findings.iter().map(|found| (found.seed, found.what.as_str()));
        let expected = [(10, "sector 10 is gone"), (15, "sector 15 is gone")];
        assert_eq!(told.collect::<Vec<_>>(), expected);
        assert!(seen.findings[0].at.contains("fuzz.rs"), "{:?}", seen.findings);
        assert_eq!(seen.lives(), 9);
        assert!(matches!(seen.verdict(), Err(Failure::No(why)) if why == "2 lives broke a law"));
        let document = fuzz.document(&seen, begun.elapsed());
        assert_eq!(document["findings"][1]["again"], "weir sim fuzz --randseed 15 --lives 1");
        let bios: u64 = seen.kinds.values().map(|(_, bios)| bios).sum();
        assert_eq!(bios, 14);
    }

    #[test]
    fn lives_that_break_no_law_are_counted_and_well() {
        let seen = fuzz(3)
            .hunt(Instant::now(), |_| Lived::default(), &AtomicBool::new(false))
            .expect("threads");
        assert!(seen.lives() == 3 && seen.verdict().is_ok());
    }
}
