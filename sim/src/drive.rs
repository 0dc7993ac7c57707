//! How processors work: the steps of processes and interrupts, one after the other, each for its
//! price.

use weir_bio::{Nanos, Prng};
use weir_queue::Silent;

use crate::agenda::Alarm;
use crate::cpu::{Running, Spent, Step};
use crate::heard::Heard;
use crate::host::{Host, Layer};
use crate::lock::Grant;
use crate::nexus::Moved;
use crate::profile::{PACE_NS, Path, SharedQueue};

/// What a request costs a driver.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LayerPrice {
    /// It is sent.
    pub(crate) issue: u64,
    /// The device is rung, once for a burst.
    pub(crate) doorbell: u64,
    /// It ends.
    pub(crate) end: u64,
}

/// What is shorter is not interrupted, ns.
const SHORT: u64 = 500;

impl Host {
    /// The processor works until it has to wait for time to pass or for a lock.
    pub(crate) fn drive(&mut self, cpu: usize) {
        let at = &self.cpus[cpu];
        if at.running.is_some() || at.waits {
            return;
        }
        while let Some((step, in_interrupt)) = self.next_step(cpu) {
            match step {
                Step::Run(price, spent) => {
                    let ns = if spent == Spent::Lost { price } else { self.at_pace(price) };
                    if !self.compute(cpu, ns, spent) {
                        return;
                    }
                }
                Step::Rest(ns, spent) => {
                    if !self.compute(cpu, ns, spent) {
                        return;
                    }
                }
                Step::Take(lock) => match self.try_take(cpu, lock) {
                    Some(grant) => {
                        let ns = self.hand_over(cpu, grant);
                        self.cpus[cpu].holds += 1;
                        if !self.compute(cpu, ns, Spent::System) {
                            return;
                        }
                    }
                    None => {
                        self.cpus[cpu].waits = true;
                        return;
                    }
                },
                Step::Hold { lock, ns } => {
                    let ns = self.held(lock, ns);
                    if !self.compute(cpu, ns, Spent::System) {
                        return;
                    }
                }
                Step::Fetch(lines) => {
                    let ns = lines * std::mem::take(&mut self.cpus[cpu].far);
                    self.cpus[cpu].put_first(in_interrupt, &[system(ns)]);
                }
                Step::Touch { lines, count } => {
                    let ns = self.touch(cpu, lines, count);
                    if !self.compute(cpu, ns, Spent::System) {
                        return;
                    }
                }
                Step::Free(lock) => self.free(cpu, lock),
                Step::Begin(process) => self.processes[process].begin(self.agenda.now()),
                Step::Return(process) => self.count(process),
                Step::HandIn(process) => self.hand_in(cpu, process),
                Step::Turn { lane, locked } => self.turn(cpu, lane, locked, in_interrupt),
                Step::Start(lane) => self.start(lane),
                Step::Tell(lane) => self.tell(cpu, lane, in_interrupt),
                Step::Sleep(process) => self.sleep(cpu, process),
            }
        }
    }

    /// The processor's next step, and whether it is one of an interrupt. `None`: it has nothing to
    /// do.
    #[inline]
    fn next_step(&mut self, cpu: usize) -> Option<(Step, bool)> {
        loop {
            let at = &mut self.cpus[cpu];
            if let Some(step) = at.taken.pop() {
                return Some((step, true));
            }
            if at.holds == 0 && !at.interrupts.is_empty() {
                self.take_interrupt(cpu);
            } else if let Some(step) = at.steps.pop() {
                return Some((step, false));
            } else if !self.choose(cpu) {
                self.cpus[cpu].rests = true;
                return None;
            }
        }
    }

    /// What work of this price takes now.
    fn at_pace(&self, price: u64) -> u64 {
        let Some(paces) = &self.profile.machine.paces else { return price };
        // Each stretch of time has one by its number, whatever else is drawn.
        let number = self.agenda.now().0 / PACE_NS;
        let drawn = Prng::new(self.seed.wrapping_add(number)).next() >> 61;
        price * u64::from(paces[drawn as usize]) / 100
    }

    /// Computes for so long; whether that time has passed at once.
    fn compute(&mut self, cpu: usize, ns: u64, spent: Spent) -> bool {
        if ns == 0 {
            return true;
        }
        if self.agenda.pass(ns) {
            *self.cpus[cpu].time.of(spent) += ns;
            return true;
        }
        self.run_on(cpu, ns, spent);
        false
    }

    /// Computes for so long from now on; that counts as it passes.
    fn run_on(&mut self, cpu: usize, ns: u64, spent: Spent) {
        let since = self.agenda.now();
        let until = since + ns;
        let at = &mut self.cpus[cpu];
        at.running = Some(Running { since, until, spent });
        self.agenda.put(until, Alarm::Cpu { cpu, epoch: at.epoch });
    }

    fn try_take(&mut self, cpu: usize, lock: usize) -> Option<Grant> {
        let (now, spinners) = (self.agenda.now(), self.profile.lock.spinners);
        self.locks[lock].take(cpu, spinners, now)
    }

    /// What it takes until a processor has a lock and what that protects.
    fn hand_over(&mut self, cpu: usize, grant: Grant) -> u64 {
        let price = self.profile.lock;
        let line = self.line_from(cpu, grant.from);
        self.cpus[cpu].far = line;
        price.near + price.lines * line
    }

    /// What a cache line takes from the processor that had it last; nothing if that is this one.
    fn line_from(&self, cpu: usize, last: Option<usize>) -> u64 {
        let Some(from) = last.filter(|from| *from != cpu) else { return 0 };
        let machine = self.profile.machine;
        let near = self.cpus[from].socket == self.cpus[cpu].socket;
        if near { machine.line } else { machine.far_line }
    }

    /// Changes lines of counters; what it takes until they have come.
    fn touch(&mut self, cpu: usize, lines: usize, count: u64) -> u64 {
        let last = self.lines[lines].replace(cpu);
        self.line_from(cpu, last) * count
    }

    /// How long a section takes: at random up to twice its mean, and longer in a crowd.
    fn held(&mut self, lock: usize, mean: u64) -> u64 {
        let price = self.profile.lock;
        let crowd = self.locks[lock].waiting().saturating_sub(price.crowd_from);
        let ns = self.prng.below(2 * mean + 1);
        ns + ns * price.crowd * crowd / 100
    }

    fn free(&mut self, cpu: usize, lock: usize) {
        self.cpus[cpu].holds -= 1;
        let (now, spinners) = (self.agenda.now(), self.profile.lock.spinners);
        let Some((next, grant)) = self.locks[lock].free(cpu, spinners, now) else { return };
        let ns = self.hand_over(next, grant);
        let at = &mut self.cpus[next];
        at.waits = false;
        at.holds += 1;
        self.run_on(next, ns, Spent::System);
    }

    /// A lane has something for its processor.
    pub(crate) fn interrupt(&mut self, lane: usize) {
        let side = &mut self.lanes[lane];
        if std::mem::replace(&mut side.raised, true) {
            return;
        }
        let (cpu, now) = (side.cpu, self.agenda.now());
        let at = &mut self.cpus[cpu];
        at.interrupts.push_back(lane);
        if at.put_off(now, SHORT) {
            self.call(cpu);
        }
    }

    /// One interrupt for all lanes that have something.
    fn take_interrupt(&mut self, cpu: usize) {
        let idle_exit = self.profile.machine.idle_exit;
        let at = &mut self.cpus[cpu];
        let lanes = at.interrupts.drain(..).rev();
        at.taken.extend(lanes.map(|lane| Step::Turn { lane, locked: false }));
        at.taken.push(system(self.profile.path.interrupt));
        if std::mem::take(&mut at.rests) {
            at.taken.push(system(idle_exit));
        }
    }

    /// Turns a lane, under the lock of its queue if it has one.
    fn visit(&self, lane: usize, steps: &mut Vec<Step>) {
        // Requests are dealt out over the queues of what processes use, not over those of paths.
        let layer = self.devices[self.lanes[lane].device].layer;
        let locked = self.deals && !matches!(layer, Layer::Path { .. });
        if locked {
            steps.push(Step::Take(self.lanes[lane].mutex));
        }
        steps.push(Step::Turn { lane, locked });
    }

    /// The processor has no step left: what it does next. `false`: nothing.
    fn choose(&mut self, cpu: usize) -> bool {
        let now = self.agenda.now();
        let (slice, switch) = (self.profile.machine.slice, self.profile.machine.switch);
        let at = &mut self.cpus[cpu];
        if let Some(process) = at.process {
            if at.ready.is_empty() || now.since(at.since) < slice {
                self.go_on(cpu, process);
                return true;
            }
            at.ready.push_back(process);
            at.process = None;
        }
        let Some(process) = at.ready.pop_front() else { return false };
        (at.process, at.since) = (Some(process), now);
        at.steps.push(system(switch));
        if std::mem::take(&mut at.rests) {
            at.steps.push(system(self.profile.machine.idle_exit));
        }
        true
    }

    /// What a process does next: it takes what has ended, and asks for more.
    fn go_on(&mut self, cpu: usize, process: usize) {
        let now = self.agenda.now();
        let Path { complete, make, syscall, submit, .. } = self.profile.path;
        let told = std::mem::take(&mut self.processes[process].told);
        let ended = self.processes[process].take_ended(now) as u64;
        let asking = &mut self.processes[process];
        // What a device had no place for goes first; else it would wait behind its own.
        let held = asking.held() as u64;
        let again = if told || ended > 0 { held } else { 0 };
        let made = if held > 0 { 0 } else { asking.make(now) as u64 };
        let think = made * asking.think();
        let through = asking.through;
        let leaves = if self.deals { ended } else { 0 };
        let leave = self.profile.shared_queue.leave;
        let mut steps = std::mem::take(&mut self.spare.steps);
        for _ in 0..leaves {
            let (mutex, stalled) = (self.lanes[through].mutex, self.stalled(1));
            let stalled = Step::Run(stalled, Spent::Lost);
            steps.extend_from_slice(&[
                Step::Take(mutex),
                system(leave),
                stalled,
                Step::Free(mutex),
            ]);
        }
        if ended > 0 {
            steps.extend_from_slice(&[
                Step::Return(process),
                Step::Run(ended * complete, Spent::User),
            ]);
        }
        if again > 0 {
            steps.extend_from_slice(&[system(again * submit), Step::HandIn(process)]);
        } else if made > 0 {
            steps.extend_from_slice(&[
                Step::Run(made * make + think, Spent::User),
                Step::Begin(process),
                system(syscall + made * submit),
                Step::HandIn(process),
            ]);
        } else if ended == 0 {
            steps.extend_from_slice(&[system(syscall), Step::Sleep(process)]);
        }
        self.put_first(cpu, false, steps);
    }

    /// Puts steps before all others of the work that is under way.
    fn put_first(&mut self, cpu: usize, in_interrupt: bool, mut steps: Vec<Step>) {
        self.cpus[cpu].put_first(in_interrupt, &steps);
        steps.clear();
        self.spare.steps = steps;
    }

    fn hand_in(&mut self, cpu: usize, process: usize) {
        let mut steps = std::mem::take(&mut self.spare.steps);
        if self.is_single {
            self.hand_in_to_single(process, &mut steps);
        } else {
            self.processes[process].hand_in(self.agenda.now(), |_| Silent);
        }
        let enter = self.profile.shared_queue.enter;
        let mut lanes = std::mem::take(&mut self.spare.lanes);
        self.take_marked(&mut lanes);
        for lane in &lanes {
            let lane = *lane;
            if self.deals && enter > 0 {
                let mutex = self.lanes[lane].mutex;
                steps.extend_from_slice(&[Step::Take(mutex), system(enter), Step::Free(mutex)]);
            }
            self.visit(lane, &mut steps);
        }
        lanes.clear();
        self.spare.lanes = lanes;
        self.put_first(cpu, false, steps);
    }

    /// Lanes for which something was published.
    fn take_marked(&self, lanes: &mut Vec<usize>) {
        let roster = self.bell.roster().expect("the bell has a roster");
        roster.take(|place| lanes.push(self.places[place]));
        lanes.iter().for_each(|lane| roster.strike(self.lanes[*lane].lane.place()));
    }

    fn turn(&mut self, cpu: usize, lane: usize, locked: bool, in_interrupt: bool) {
        let now = self.agenda.now();
        let mut steps = std::mem::take(&mut self.spare.steps);
        self.lanes[lane].raised = false;
        if self.devices[self.lanes[lane].device].is_single {
            self.turn_single(lane, &mut steps);
        } else {
            let heard = Heard::default();
            self.begin_turn(lane);
            self.lanes[lane].lane.run_telling(now, &heard);
            let moved = self.end_turn(lane);
            self.price(lane, locked, (&heard, moved), &mut steps);
            self.price_below(&mut steps);
        }
        let side = &mut self.lanes[lane];
        if let Some(at) = side.lane.wake_at()
            && at != Nanos(u64::MAX)
            && side.timer.is_none_or(|timer| at < timer)
        {
            let at = at.max(now + 1);
            side.timer = Some(at);
            self.agenda.put(at, Alarm::Lane(lane));
        }
        let mut others = std::mem::take(&mut self.spare.lanes);
        self.take_marked(&mut others);
        for other in &others {
            // Its own mark stood from what it has just taken.
            if self.lanes[*other].lane.has_work() {
                self.visit(*other, &mut steps);
            }
        }
        others.clear();
        self.spare.lanes = others;
        self.put_first(cpu, in_interrupt, steps);
    }

    /// For how long so many sections are held up.
    fn stalled(&mut self, sections: u64) -> u64 {
        let SharedQueue { stall_every, stall, .. } = self.profile.shared_queue;
        if stall_every == 0 {
            return 0;
        }
        (0..sections).filter(|_| self.prng.below(stall_every) == 0).count() as u64 * stall
    }

    /// What a turn of a lane costs, and what comes of it.
    fn price(
        &mut self,
        lane: usize,
        locked: bool,
        (heard, moved): (&Heard, Moved),
        steps: &mut Vec<Step>,
    ) {
        let stalled = self.stalled(heard.issued.get());
        let side = &self.lanes[lane];
        let device = &self.devices[side.device];
        let layer = self.layer_price(device.layer);
        let (answered, issued) = (heard.answered.get(), heard.issued.get());
        if locked {
            let queue = &self.profile.shared_queue;
            let held = queue.look + issued * queue.start;
            let stalled = Step::Run(stalled, Spent::Lost);
            steps.extend_from_slice(&[system(held), stalled, Step::Free(side.mutex)]);
        }
        let price = &device.price;
        let right = if price.lane { side.mutex } else { device.right };
        let mut section = |count: u64, sections: &[u64]| {
            for hold in (0..count).flat_map(|_| sections) {
                let held = Step::Hold { lock: right, ns: *hold };
                steps.extend_from_slice(&[Step::Take(right), held, Step::Free(right)]);
                if price.after > 0 {
                    steps.push(Step::Fetch(price.after));
                }
            }
        };
        section(answered, &price.end);
        section(heard.inserted.get(), &price.insert);
        section(heard.picked.get(), &price.pick);
        let inserted = heard.inserted.get();
        let own = inserted * price.own + if inserted > 0 { price.turn } else { 0 };
        let rung = if issued > 0 { layer.doorbell } else { 0 };
        steps.push(system(answered * layer.end + own + issued * layer.issue + rung));
        if let Layer::Path { adapter, .. } = device.layer {
            let price = self.profile.scsi;
            let count = (moved.ended + moved.sent) * price.counters;
            steps.push(Step::Touch { lines: adapter, count });
            steps.push(system(moved.ended * price.done + moved.sent * price.send));
        }
        let is_disk = matches!(device.layer, Layer::Disk(_));
        if moved.sent > 0 || (issued > 0 && is_disk) {
            steps.push(Step::Start(lane));
        }
        if heard.ended.get() > 0 {
            steps.push(Step::Tell(lane));
        }
    }

    /// What a request costs a driver of this layer.
    pub(crate) fn layer_price(&self, layer: Layer) -> LayerPrice {
        let (path, mapper) = (&self.profile.path, self.profile.mapper);
        match layer {
            Layer::Disk(_) | Layer::Path { .. } => {
                LayerPrice { issue: path.issue, doorbell: path.doorbell, end: path.end }
            }
            Layer::Mapped => LayerPrice { issue: mapper.map, doorbell: 0, end: mapper.end },
        }
    }

    /// Processes that have been told wake up if they sleep.
    fn tell(&mut self, cpu: usize, lane: usize, in_interrupt: bool) {
        let mut steps = std::mem::take(&mut self.spare.steps);
        let mut tokens = std::mem::take(&mut self.spare.tokens);
        self.bell.ready().take(|token| tokens.push(token));
        for process in &tokens {
            let process = *process;
            let told = &mut self.processes[process];
            (told.told, told.through) = (true, lane);
            if std::mem::take(&mut told.asleep) {
                let home = told.cpu;
                self.cpus[home].ready.push_back(process);
                steps.push(system(self.profile.path.wake));
                if home != cpu {
                    self.call(home);
                }
            }
        }
        tokens.clear();
        self.spare.tokens = tokens;
        self.put_first(cpu, in_interrupt, steps);
    }

    fn sleep(&mut self, cpu: usize, process: usize) {
        self.look_for_end(process);
        if self.processes[process].told {
            return;
        }
        self.processes[process].asleep = true;
        self.cpus[cpu].process = None;
        if let Some(at) = self.processes[process].waits_until {
            self.agenda.put(at.max(self.agenda.now()), Alarm::Process(process));
        }
    }
}

pub(crate) fn system(ns: u64) -> Step {
    Step::Run(ns, Spent::System)
}
