//! Jobs whose I/Os keep to shares of each other's, wherever their threads are.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_bio::Nanos;

use crate::ask::Ask;
use crate::job::Job;

/// What a clone of weight 1 comes further by with each I/O.
const STEP: u64 = 1 << 24;
/// How long one that is ahead waits at least.
const SLEEP_NS: u64 = 20_000;
/// Of a clone that has not begun or has done: nothing waits for it.
const AWAY: u64 = u64::MAX;

/// The flows of jobs that run at once.
#[derive(Debug, Default)]
pub struct Flows {
    /// By number: how far each clone has come, and how many have joined.
    of: BTreeMap<u64, (Arc<[AtomicU64]>, usize)>,
}

impl Flows {
    /// Those of these jobs.
    pub fn of<'a>(jobs: impl Iterator<Item = &'a Job>) -> Flows {
        let mut clones: BTreeMap<u64, Vec<AtomicU64>> = BTreeMap::new();
        for job in jobs.filter(|job| job.flow.weight > 0) {
            // Threads begin one after the other; the first of them waits for the others.
            let at = if job.start_delay_ns == [0; 2] { 0 } else { AWAY };
            let own = (0..job.clones).map(|_| AtomicU64::new(at));
            clones.entry(job.flow.id).or_default().extend(own);
        }
        Flows { of: clones.into_iter().map(|(id, all)| (id, (all.into(), 0))).collect() }
    }

    /// The next clone of a job that was among them; `None` if it has no flow.
    pub(crate) fn join(&mut self, job: &Job) -> Option<Member> {
        let (all, joined) = self.of.get_mut(&job.flow.id).filter(|_| job.flow.weight > 0)?;
        let own = *joined;
        *joined += 1;
        (own < all.len()).then(|| Member {
            all: Arc::clone(all),
            own,
            step: STEP / u64::from(job.flow.weight).max(1),
            sleep_ns: job.flow.sleep_ns.max(SLEEP_NS),
        })
    }
}

/// A clone in its flow.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    all: Arc<[AtomicU64]>,
    own: usize,
    step: u64,
    sleep_ns: u64,
}

impl Member {
    /// Why nothing may begin now, if that is so: others are behind.
    pub(crate) fn ask(&mut self, now: Nanos) -> Option<Ask> {
        let others = self.all.iter().enumerate().filter(|(number, _)| *number != self.own);
        let least = others.map(|(_, at)| at.load(Ordering::Relaxed)).min().unwrap_or(AWAY);
        let own = &self.all[self.own];
        let at = match own.load(Ordering::Relaxed) {
            // What others had before it has begun is not made up for.
            AWAY => {
                let at = if least == AWAY { 0 } else { least };
                own.store(at, Ordering::Relaxed);
                at
            }
            at => at,
        };
        (at > least.saturating_add(STEP)).then(|| Ask::Wait(now + self.sleep_ns))
    }

    /// It has begun an I/O.
    pub(crate) fn begun(&mut self) {
        self.all[self.own].fetch_add(self.step, Ordering::Relaxed);
    }

    /// It begins nothing any more.
    pub(crate) fn leave(&self) {
        self.all[self.own].store(AWAY, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::Flow;

    fn members(weights: &[(u32, u64)]) -> Vec<Member> {
        delayed(weights, 0)
    }

    fn delayed(weights: &[(u32, u64)], delay: u64) -> Vec<Member> {
        let flow = |(weight, id)| Flow { weight, id, sleep_ns: 0 };
        let start_delay_ns = [delay; 2];
        let jobs =
            weights.iter().map(|of| Job { flow: flow(*of), start_delay_ns, ..Job::default() });
        let jobs: Vec<Job> = jobs.collect();
        let mut flows = Flows::of(jobs.iter());
        jobs.iter().filter_map(|job| flows.join(job)).collect()
    }

    /// Each begins whenever it may; how many I/Os each then has.
    fn run(members: &mut [Member], turns: u32) -> Vec<u32> {
        let mut counts = vec![0; members.len()];
        for _ in 0..turns {
            for (member, count) in members.iter_mut().zip(&mut counts) {
                if member.ask(Nanos(7)).is_none() {
                    member.begun();
                    *count += 1;
                }
            }
        }
        counts
    }

    #[test]
    fn ios_are_in_the_ratio_of_the_weights_and_flows_do_not_know_of_each_other() {
        let counts = run(&mut members(&[(1, 0), (8, 0), (3, 0)]), 8000);
        // The one of most weight begins in each turn, ahead or behind by its weight at most.
        assert_eq!(counts[1], 8000, "{counts:?}");
        assert!(counts[0].abs_diff(1000) <= 3 && counts[2].abs_diff(3000) <= 5, "{counts:?}");
        let counts = run(&mut members(&[(1, 0), (8, 1)]), 100);
        assert_eq!(counts, [100, 100]);
    }

    #[test]
    fn one_that_is_ahead_waits_until_the_other_has_begun_more_or_is_gone() {
        let mut two = members(&[(1, 0), (1, 0)]);
        assert_eq!(run(&mut two[..1], 100), [2], "the other is about to begin");
        let mut two = delayed(&[(1, 0), (1, 0)], 1);
        assert_eq!(run(&mut two[..1], 100), [100], "the other is delayed");
        assert_eq!(two[1].ask(Nanos(7)), None);
        assert_eq!(run(&mut two[..1], 100), [2]);
        assert_eq!(two[0].ask(Nanos(7)), Some(Ask::Wait(Nanos(7 + SLEEP_NS))));
        two[1].begun();
        assert_eq!(run(&mut two[..1], 100), [1]);
        two[1].leave();
        assert_eq!(run(&mut two[..1], 100), [100]);
    }
}
