//! A simulated processor, and the steps of the work it does.

use std::collections::VecDeque;

use weir_bio::Nanos;

/// Which of its counters a processor's time goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spent {
    /// In processes.
    User,
    /// In the system.
    System,
    /// In nothing that is counted: the processor is taken away.
    Lost,
}

/// Processors' time by what it was spent on, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// In processes.
    pub user: u64,
    /// In the system, waiting for locks apart.
    pub system: u64,
    /// Waiting for locks.
    pub spin: u64,
    /// Taken away.
    pub lost: u64,
}

impl CpuTime {
    pub(crate) fn of(&mut self, spent: Spent) -> &mut u64 {
        match spent {
            Spent::User => &mut self.user,
            Spent::System => &mut self.system,
            Spent::Lost => &mut self.lost,
        }
    }
}

/// One step of a processor's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Computes what has this price.
    Run(u64, Spent),
    /// Computes for so long: what is left of what it was interrupted in.
    Rest(u64, Spent),
    /// Takes a lock, waiting if need be.
    Take(usize),
    /// Lets go of it.
    Free(usize),
    /// Changes so many cache lines that others change as well, without waiting for them.
    Touch { lines: usize, count: u64 },
    /// Fetches so many cache lines from where the lock was before, if not here.
    Fetch(u64),
    /// Works with a lock held, so long on average.
    Hold { lock: usize, ns: u64 },
    /// The process asks for what it has made up.
    Begin(usize),
    /// The process has back what has ended.
    Return(usize),
    /// The process hands in what it has made up.
    HandIn(usize),
    /// Turns a lane, under the lock of its queue or without.
    Turn { lane: usize, locked: bool },
    /// The commands that a lane has sent begin on the disk.
    Start(usize),
    /// Processes hear of what has ended in this lane.
    Tell(usize),
    /// The process has nothing to do until it is told.
    Sleep(usize),
}

/// What a processor computes at the moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Running {
    pub(crate) since: Nanos,
    pub(crate) until: Nanos,
    pub(crate) spent: Spent,
}

/// A processor.
#[derive(Debug, Default)]
pub(crate) struct Cpu {
    pub(crate) socket: usize,
    /// The process on it, and since when.
    pub(crate) process: Option<usize>,
    pub(crate) since: Nanos,
    /// Processes that wait for it.
    pub(crate) ready: VecDeque<usize>,
    /// The steps that lie before the process, the next one last.
    pub(crate) steps: Vec<Step>,
    /// Those of the interrupt that it takes, which go first.
    pub(crate) taken: Vec<Step>,
    /// Lanes that interrupt it.
    pub(crate) interrupts: VecDeque<usize>,
    pub(crate) running: Option<Running>,
    /// Changes when it is interrupted.
    pub(crate) epoch: u32,
    /// Locks it holds: it takes no interrupt meanwhile.
    pub(crate) holds: u32,
    /// What a cache line takes from where the lock was that it took last, if not here, ns.
    pub(crate) far: u64,
    /// It waits for a lock.
    pub(crate) waits: bool,
    pub(crate) rests: bool,
    pub(crate) time: CpuTime,
}

impl Cpu {
    /// Puts steps before all others of the work that is under way.
    pub(crate) fn put_first(&mut self, in_interrupt: bool, steps: &[Step]) {
        let work = if in_interrupt { &mut self.taken } else { &mut self.steps };
        work.extend(steps.iter().rev());
    }

    /// What it computes is put off, so that it can take an interrupt. `false`: not now.
    pub(crate) fn put_off(&mut self, now: Nanos, least: u64) -> bool {
        let Some(Running { since, until, spent }) = self.running else { return !self.waits };
        let rest = until.since(now);
        if self.holds > 0 || !self.taken.is_empty() || rest < least {
            return false;
        }
        self.running = None;
        self.epoch = self.epoch.wrapping_add(1);
        *self.time.of(spent) += now.since(since);
        self.steps.push(Step::Rest(rest, spent));
        true
    }

    /// What it computed until now is done, if it has ended.
    pub(crate) fn settle(&mut self, now: Nanos) {
        if let Some(Running { since, until, spent }) = self.running.take_if(|one| one.until <= now)
        {
            *self.time.of(spent) += until.since(since);
        }
    }

    /// Its time until now, with what has passed of that which it computes.
    pub(crate) fn time(&self, now: Nanos) -> CpuTime {
        let mut time = self.time;
        if let Some(Running { since, spent, .. }) = self.running {
            *time.of(spent) += now.since(since);
        }
        time
    }
}
