//! The contract of schedulers: weir's keep it, and each way to break it is found.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

use weir_bio::{Nanos, Rq};
use weir_laws::scheduler::hold;
use weir_laws::seeds;
use weir_sched::{Absorbed, Merge, SCHEDULERS, Scheduler};

#[test]
fn the_schedulers_of_the_list_keep_the_contract() {
    for make in SCHEDULERS.iter().filter_map(|entry| entry.make) {
        hold(make, seeds("SCHEDULER", 100));
    }
}

/// How a scheduler breaks its contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    Strands,
    Doubles,
    Miscounts,
    Invents,
    MergesStrangers,
}

/// First in, first out, with a fault.
struct Fifo {
    staged: VecDeque<Rq>,
    fault: Fault,
    given: u32,
}

impl Scheduler for Fifo {
    fn name(&self) -> &'static str {
        "fifo"
    }

    fn merge(&mut self, _: &Rq, _: Nanos) -> Merge {
        match (self.fault, self.staged.back()) {
            (Fault::MergesStrangers, Some(rq)) => Merge::Back(rq.tag),
            _ => Merge::No,
        }
    }

    fn insert(&mut self, rq: Rq, _: Nanos, _: &mut Absorbed) {
        self.staged.push_back(rq);
    }

    fn dispatch(&mut self, _: u16, _: Nanos) -> Option<Rq> {
        self.given += 1;
        match self.fault {
            Fault::Strands if self.staged.len() == 1 => None,
            Fault::Doubles if self.given == 10 => self.staged.front().copied(),
            Fault::Invents => self.staged.pop_front().map(|rq| Rq { sectors: 8, sector: 9, ..rq }),
            _ => self.staged.pop_front(),
        }
    }

    fn staged(&self) -> usize {
        self.staged.len() + usize::from(self.fault == Fault::Miscounts)
    }
}

#[test]
fn each_way_to_break_the_contract_is_found_and_named() {
    for (fault, told) in [
        (Fault::None, ""),
        (Fault::Strands, "are stranded"),
        (Fault::Doubles, "what `staged` counts"),
        (Fault::Miscounts, "what `staged` counts"),
        (Fault::Invents, "left as"),
        (Fault::MergesStrangers, "became the tail of"),
    ] {
        let make = |_: &_| {
            Box::new(Fifo { staged: VecDeque::new(), fault, given: 0 }) as Box<dyn Scheduler>
        };
        let held = catch_unwind(AssertUnwindSafe(|| hold(make, 0..20)));
        let why = match held {
            Ok(()) => String::new(),
            Err(why) => why.downcast_ref::<String>().cloned().unwrap_or_default(),
        };
        assert!(why.contains(told) && why.is_empty() == told.is_empty(), "{fault:?}: {why}");
    }
}
