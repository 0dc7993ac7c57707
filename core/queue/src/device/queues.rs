//! Another number of hard queues, under load.
//!
//! A lane beyond the number in use is closed and nothing is known of it: neither its mailbox nor
//! its marks gather anything. So a disk that uses two of 64 costs what two cost.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use weir_bio::Nanos;

use super::Device;
use super::freeze::{Freezing, Frozen, Quiesced, Quiescing, Ticket};
use crate::config::{QueueMode, nr_requests};
use crate::error::{Error, Wait, invalid};
use crate::mq::Mq;
use crate::mq::port::{Control, Introduction};
use crate::order::elevator::Elevator;
use crate::shared::{Path, Shared};
use crate::snapshot::Snapshot;
use crate::step::{Progress, Step, Watch, wait};

/// The homes of a device's lanes, asked to open and to close some of them.
///
/// # Contract
/// Lane `i` has the same home thread whenever it is open. No call waits for that thread: it answers
/// through `answer`, in the order in which it was asked.
pub trait LaneHomes: Send + Sync {
    /// Has lane `index` [opened](Device::open_lane) by its home.
    fn open(&self, device: &Device, index: usize, answer: LaneAnswer);

    /// Has lane `index`, which is idle, dropped by its home.
    fn close(&self, device: &Device, index: usize, answer: LaneAnswer);

    /// Whether the calling thread turns lanes: then it must not wait for any.
    fn is_here(&self) -> bool {
        false
    }
}

/// The way a home's answer takes. Dropped without one, it says that the home is gone.
#[derive(Debug)]
pub struct LaneAnswer {
    place: Arc<AnswerPlace>,
    watch: Watch,
    device: String,
}

type AnswerPlace = Mutex<Option<Result<(), Error>>>;

impl LaneAnswer {
    fn new(device: &Device, watch: &Watch) -> (LaneAnswer, Arc<AnswerPlace>) {
        let place = Arc::new(Mutex::default());
        let device = device.config().name.clone();
        (LaneAnswer { place: Arc::clone(&place), watch: watch.clone(), device }, place)
    }

    /// The home has done what it was asked, or the driver could not.
    pub fn give(self, result: Result<(), Error>) {
        *self.place.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
    }
}

impl Drop for LaneAnswer {
    fn drop(&mut self) {
        let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        if place.is_none() {
            *place = Some(Err(Error::Dying(self.device.clone())));
        }
        drop(place);
        self.watch.nudge();
    }
}

/// Hard queues that the driver has prepared, beside those in use.
#[derive(Clone, Copy, Debug)]
pub struct Prepared {
    queues: u16,
    layout: u64,
}

/// The end of a change of the number of hard queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneChange {
    /// It is in force.
    InForce,
    /// Another change came first, and what was prepared may have been used: to be prepared and
    /// begun again.
    Overtaken,
}

impl Device {
    /// Hard queues in use.
    #[must_use]
    pub fn queues(&self) -> u16 {
        self.shared.current.get().queues
    }

    /// The most it can have: what the driver can do, at most 64, and 1 on the single-queue path.
    #[must_use]
    pub fn queues_max(&self) -> u16 {
        self.shared.path.lanes().most() as u16
    }

    /// From now on these open and close lanes, when all in use are open.
    pub fn attach_homes(&self, homes: Weak<dyn LaneHomes>) {
        *self.control.lane_homes.lock().expect("the lock of the lanes' homes") = Some(homes);
    }

    /// The clock that every `now` of this device is read from. The single-queue path asks it once
    /// its lock was waited for, so that the wait is none of the driver's; without one it does not.
    pub fn attach_clock(&self, clock: fn() -> Nanos) {
        if let Path::Sq(sq) = &self.shared.path {
            sq.attach_clock(clock);
        }
    }

    /// No home opens or closes lanes from now on: their number stays.
    pub(crate) fn forget_homes(&self) {
        *self.control.lane_homes.lock().expect("the lock of the lanes' homes") = None;
    }

    /// Whether the calling thread is known to turn lanes of this device: then it must not wait for
    /// what they have to do.
    #[must_use]
    pub fn is_home(&self) -> bool {
        let homes = self.control.lane_homes.lock().expect("the lock of the lanes' homes").clone();
        homes.and_then(|homes| homes.upgrade()).is_some_and(|homes| homes.is_here())
    }

    /// Changes the number of hard queues: has the driver prepare those to be opened, waits until
    /// every request has ended, opens or closes lanes at their homes, and begins anew with the
    /// scheduler, whose tunables and `nr_requests` become its defaults, as in Linux
    /// (docs/behaviour/block-layer.md, section 10.2). The number there is already changes nothing.
    /// Not for a thread that turns lanes or has I/O under way.
    ///
    /// # Errors
    /// A number outside `1..=`[`queues_max`](Device::queues_max), a device that no host turns or
    /// that is offline, a queue to close that has requests which timed out and were not answered,
    /// or what the driver says to another queue. Nothing changes then.
    pub fn set_queues(&self, queues: u16) -> Result<(), Error> {
        loop {
            let prepared = self.prepare_lanes(queues)?;
            match wait(|watch| self.begin_queues(watch, prepared), || Nanos::ZERO)? {
                LaneChange::InForce => return Ok(()),
                LaneChange::Overtaken => {}
            }
        }
    }

    /// Has the driver prepare what it takes to have so many hard queues. May block, as
    /// [`prepare_lane`](Device::prepare_lane) does: I/O goes on meanwhile, and other changes do.
    ///
    /// # Errors
    /// As [`set_queues`](Device::set_queues).
    pub fn prepare_lanes(&self, queues: u16) -> Result<Prepared, Error> {
        let (name, most) = (&self.shared.config.name, self.queues_max());
        if queues == 0 || queues > most {
            let why = match self.shared.config.mode {
                QueueMode::Sq => ": queue_mode=sq has exactly 1",
                QueueMode::Mq => "",
            };
            return invalid(format!("queues={queues} of {name} is outside 1..={most}{why}"));
        }
        let seen = self.shared.current.get();
        if seen.queues < queues {
            self.driver()?;
            self.homes_for(queues)?;
        }
        for index in seen.queues..queues {
            self.prepare_lane(usize::from(index))?;
        }
        Ok(Prepared { queues, layout: seen.layout })
    }

    /// Begins to [change](Device::set_queues) the number of hard queues to what was prepared, when
    /// the changes begun before have ended.
    #[must_use = "a step that is dropped is given up"]
    pub fn begin_queues(&self, watch: &Watch, prepared: Prepared) -> SettingQueues {
        SettingQueues {
            stage: Stage::Begins,
            freezing: None,
            frozen: None,
            ticket: Some(Ticket::draw(self, watch)),
            device: self.clone(),
            watch: watch.clone(),
            prepared,
        }
    }

    /// Those who turn the lanes, for so many queues.
    fn homes_for(&self, queues: u16) -> Result<Arc<dyn LaneHomes>, Error> {
        let homes = self.control.lane_homes.lock().expect("the lock of the lanes' homes").clone();
        let Some(homes) = homes.and_then(|homes| homes.upgrade()) else {
            let name = &self.shared.config.name;
            return invalid(format!("queues={queues} of {name}: no host turns its queues"));
        };
        Ok(homes)
    }

    /// Builds beforehand all that another number of queues needs.
    fn plan_queues(&self, before: &Snapshot, after: u16) -> Result<Plan, Error> {
        let shared = &self.shared;
        // It cannot go offline, or lose its homes, while this change has its turn.
        self.driver()?;
        let homes = self.homes_for(after)?;
        let mut config = shared.config.clone();
        (config.queues, config.nr_requests) = (after, None);
        let attached = self.control.attached();
        let elevator = match attached.make {
            None => None,
            Some(_) => {
                let tags = nr_requests(&config, shared.depth, shared.queues.reserved, true)?;
                let setup = config.setup(&before.limits, tags, before.nomerges, attached.compat);
                attached.made(&setup)?.map(|made| (Elevator::new(made, tags), tags))
            }
        };
        Ok(Plan { homes, elevator, before: before.queues, after })
    }

    /// Refuses to close a lane whose requests' memory is the driver's until it answers: this lane
    /// would take it back.
    fn check_quarantine(&self, plan: &Plan) -> Result<(), Error> {
        for index in usize::from(plan.after)..usize::from(plan.before) {
            let lost = self.shared.path.gauges(index).quarantined.read();
            if lost > 0 {
                return invalid(format!(
                    "queues={} of {}: hard queue {index} waits for {lost} answers to requests that \
                     timed out",
                    plan.after, self.shared.config.name
                ));
            }
        }
        Ok(())
    }
}

/// All that another number of queues needs, built beforehand.
struct Plan {
    homes: Arc<dyn LaneHomes>,
    /// With its tags; `None` without a scheduler.
    elevator: Option<(Elevator, u16)>,
    before: u16,
    after: u16,
}

/// Another number of hard queues under way. Given up while lanes are opened, those that are open
/// are closed again; given up while lanes are closed, it is in force.
pub struct SettingQueues {
    stage: Stage,
    freezing: Option<Freezing>,
    frozen: Option<Frozen>,
    ticket: Option<Ticket>,
    device: Device,
    watch: Watch,
    prepared: Prepared,
}

/// How far it has come.
enum Stage {
    Begins,
    Freezes(Box<Plan>),
    /// A lane that is opened must not ask a scheduler that does not know it.
    Quiesces(Box<Plan>, Quiescing),
    /// The lanes of the new layout are those in use; this one is being opened.
    Opens(Box<Plan>, Quiesced, usize, Arc<AnswerPlace>),
    /// Lanes beyond the layout, from this one on, are being closed.
    Closes(Box<Plan>, Quiesced, usize, Vec<Arc<AnswerPlace>>),
    Ended,
}

/// The stage that follows, or the end.
enum Next {
    Waits(Stage),
    Goes(Stage),
    Ends(Result<LaneChange, Error>),
}

impl SettingQueues {
    fn go_on(&mut self, stage: Stage, now: Nanos) -> Next {
        match stage {
            Stage::Begins => self.begin(),
            Stage::Freezes(plan) => {
                let freezing = self.freezing.as_mut().expect("it has begun to freeze");
                let Progress::Ended(frozen) = freezing.poll(now) else {
                    return Next::Waits(Stage::Freezes(plan));
                };
                self.frozen = Some(frozen);
                let quiescing = self.device.begin_quiesce(&self.watch);
                Next::Goes(Stage::Quiesces(plan, quiescing))
            }
            Stage::Quiesces(plan, mut quiescing) => match quiescing.poll(now) {
                Progress::Waits => Next::Waits(Stage::Quiesces(plan, quiescing)),
                Progress::Ended(quiesced) => self.change_lanes(plan, quiesced),
            },
            Stage::Opens(plan, quiesced, index, answer) => {
                let result = answer.lock().unwrap_or_else(PoisonError::into_inner).take();
                match result {
                    None => Next::Waits(Stage::Opens(plan, quiesced, index, answer)),
                    Some(Ok(())) => Next::Goes(self.open_next(plan, quiesced, index + 1)),
                    Some(Err(error)) => {
                        self.put_back(&plan, index);
                        Next::Ends(Err(error))
                    }
                }
            }
            Stage::Closes(plan, quiesced, mut index, answers) => {
                let first = usize::from(plan.after);
                let is_closed = |answer: &AnswerPlace| {
                    answer.lock().unwrap_or_else(PoisonError::into_inner).is_some()
                };
                while answers.get(index - first).is_some_and(|answer| is_closed(answer)) {
                    index += 1;
                }
                if index - first < answers.len() {
                    return Next::Waits(Stage::Closes(plan, quiesced, index, answers));
                }
                self.put_in_force(*plan);
                Next::Ends(Ok(LaneChange::InForce))
            }
            Stage::Ended => unreachable!("a step that has ended is not polled again"),
        }
    }

    fn begin(&mut self) -> Next {
        let before = self.device.shared.current.get();
        if before.layout != self.prepared.layout {
            return Next::Ends(Ok(LaneChange::Overtaken));
        }
        if before.queues == self.prepared.queues {
            return Next::Ends(Ok(LaneChange::InForce));
        }
        match self.device.plan_queues(&before, self.prepared.queues) {
            Err(error) => Next::Ends(Err(error)),
            Ok(plan) => {
                self.freezing = Some(self.device.begin_freeze(&self.watch));
                Next::Goes(Stage::Freezes(Box::new(plan)))
            }
        }
    }

    /// Nothing is inside, and every lane is quiesced.
    fn change_lanes(&self, plan: Box<Plan>, quiesced: Quiesced) -> Next {
        if let Err(error) = self.device.check_quarantine(&plan) {
            return Next::Ends(Err(error));
        }
        // Closed lanes were told of a change that was given up.
        self.device.shared.forget_lanes(plan.before);
        self.device.shared.use_lanes(plan.after);
        let first = usize::from(plan.before);
        Next::Goes(self.open_next(plan, quiesced, first))
    }

    /// Has the next lane opened, or those beyond the layout closed.
    fn open_next(&self, plan: Box<Plan>, quiesced: Quiesced, index: usize) -> Stage {
        let device = &self.device;
        if index < usize::from(plan.after) {
            let (answer, place) = LaneAnswer::new(device, &self.watch);
            plan.homes.open(device, index, answer);
            return Stage::Opens(plan, quiesced, index, place);
        }
        let beyond = usize::from(plan.after)..usize::from(plan.before);
        let closed = beyond.map(|index| {
            let (answer, place) = LaneAnswer::new(device, &self.watch);
            plan.homes.close(device, index, answer);
            place
        });
        let (closed, first) = (closed.collect(), usize::from(plan.after));
        Stage::Closes(plan, quiesced, first, closed)
    }

    /// The lanes before are those in use again; those opened up to this one are closed.
    fn put_back(&self, plan: &Plan, opened: usize) {
        self.device.shared.use_lanes(plan.before);
        for index in usize::from(plan.before)..=opened {
            let (answer, _) = LaneAnswer::new(&self.device, &self.watch);
            plan.homes.close(&self.device, index, answer);
        }
        self.device.shared.forget_lanes(plan.before);
    }

    fn put_in_force(&self, plan: Plan) {
        self.device.shared.forget_lanes(plan.after);
        if let Some((elevator, nr_requests)) = plan.elevator {
            self.device.replace(Some(elevator), nr_requests);
        }
    }

    /// Undoes what was begun, or puts in force what cannot be undone: true then.
    fn undo(&mut self) -> bool {
        match std::mem::replace(&mut self.stage, Stage::Ended) {
            Stage::Opens(plan, _quiesced, index, _) => {
                self.put_back(&plan, index);
                false
            }
            Stage::Closes(plan, _quiesced, ..) => {
                self.put_in_force(*plan);
                true
            }
            _ => false,
        }
    }
}

impl Drop for SettingQueues {
    fn drop(&mut self) {
        self.undo();
    }
}

impl Step for SettingQueues {
    type Out = Result<LaneChange, Error>;

    fn poll(&mut self, now: Nanos) -> Progress<Self::Out> {
        if !self.ticket.as_ref().is_some_and(Ticket::is_first) {
            return Progress::Waits;
        }
        let mut stage = std::mem::replace(&mut self.stage, Stage::Ended);
        loop {
            match self.go_on(stage, now) {
                Next::Goes(next) => stage = next,
                Next::Waits(stage) => {
                    self.stage = stage;
                    return Progress::Waits;
                }
                Next::Ends(out) => {
                    // In this order: the gate opens before the next change may begin.
                    (self.freezing, self.frozen, self.ticket) = (None, None, None);
                    return Progress::Ended(out);
                }
            }
        }
    }

    fn waits_for(&self) -> Wait {
        match (&self.stage, &self.freezing) {
            (Stage::Opens(_, _, index, _), _) => Wait::Opening(*index),
            (Stage::Closes(_, _, index, _), _) => Wait::Closing(*index),
            (Stage::Quiesces(..), _) => Wait::Lanes,
            (Stage::Freezes(_), Some(freezing)) => freezing.waits_for(),
            _ => Wait::Change,
        }
    }

    fn give_up(mut self) -> Option<Self::Out> {
        self.undo().then_some(Ok(LaneChange::InForce))
    }
}

impl Shared {
    /// Makes the first `queues` lanes those in use. Each knows all submitters from now on, and
    /// feeds on none until that one finds its lane again, before its next I/O.
    fn use_lanes(&self, queues: u16) {
        let Path::Mq(mq) = &self.path else { return };
        let submitters = self.submitters();
        let before = self.current.get();
        let kept = before.queues.min(queues);
        let (kept, queues) = (usize::from(kept), usize::from(queues));
        (0..kept).for_each(|lane| mq.post(lane, Control::Introduce(Introduction::Unfeed)));
        for lane in kept..queues {
            for (submitter, port) in submitters.ports() {
                let port = Arc::clone(port);
                let attach = Introduction::Attach { submitter, port, ring: None };
                mq.post(lane, Control::Introduce(attach));
            }
        }
        self.put_in_force(Snapshot {
            version: before.version + 1,
            layout: before.layout + 1,
            queues: queues as u16,
            ..Snapshot::clone(&before)
        });
    }

    /// Lets go of what closed lanes beyond the first `queues` knew. One whose home has not dropped
    /// it yet, because it is about to end, takes what is for it itself.
    fn forget_lanes(&self, queues: u16) {
        if let Path::Mq(mq) = &self.path {
            mq.forget(queues);
        }
    }
}

impl Mq {
    fn forget(&self, queues: u16) {
        for (lane, port) in self.ports.iter().enumerate().skip(usize::from(queues)) {
            let mut state = port.state();
            if state.open {
                continue;
            }
            while port.control.take().is_some() {}
            let marks = &self.lanes[lane];
            marks.pending.take(|_| {});
            marks.feeders.take(|submitter| marks.feeders.strike(submitter));
            state.kept = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_bio::{Limits, Nanos};
    use weir_ring::NoWake;

    use super::*;
    use crate::bell::Bell;
    use crate::config::Config;
    use crate::driver::{Affinity, Batch, Done, Driver, DriverError, DriverQueue, Queues};

    struct Idle;

    impl Driver for Idle {
        fn limits(&self) -> Limits {
            Limits { capacity: 1024, ..Limits::default() }
        }

        fn queues(&self) -> Queues {
            Queues { max: 2, depth: 8, reserved: 0, shared_tags: false, home: Affinity::Any }
        }

        fn open(&self, _: u16, _: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
            Ok(Box::new(Idle))
        }
    }

    impl DriverQueue for Idle {
        fn submit(&mut self, _: &mut Batch<'_>, _: Nanos) {}
        fn commit(&mut self, _: Nanos) {}
        fn reap(&mut self, _: Nanos, _: &mut Done) {}
        fn in_flight(&self) -> usize {
            0
        }
    }

    #[test]
    fn what_waits_for_a_lane_that_is_still_open_is_left_to_it() {
        let config = Config { queues: 2, scheduler: Some("none".into()), ..Config::default() };
        let device = Device::new(config, Arc::new(Idle)).unwrap();
        let bell = Bell::new(Box::new(NoWake), 1);
        let lane = device.open_lane(1, &bell).unwrap();
        let Path::Mq(mq) = &device.shared.path else { panic!("it is multi-queue") };
        mq.lanes.nudge(1);
        device.shared.forget_lanes(1);
        assert!(lane.has_work(), "its home takes it");
        drop(lane);
        device.shared.forget_lanes(1);
        assert!(!mq.lanes[1].pending.any(), "nobody does any more");
        assert!(mq.ports[1].state().kept.is_none());
    }

    #[test]
    fn an_open_lane_reads_itself_which_submitters_came_while_another_goes() {
        let config = Config { queues: 2, scheduler: Some("none".into()), ..Config::default() };
        let device = Device::new(config, Arc::new(Idle)).unwrap();
        let bell = Bell::new(Box::new(NoWake), 2);
        let _lane = device.open_lane(1, &bell).unwrap();
        let _stays = device.submitter(&bell, 0, 1).unwrap();
        drop(device.submitter(&bell, 1, 1).unwrap());
        let Path::Mq(mq) = &device.shared.path else { panic!("it is multi-queue") };
        // The first one is closed.
        assert!(!mq.ports[0].control.is_waiting() && mq.ports[0].state().kept.is_some());
        assert!(mq.ports[1].control.is_waiting() && mq.ports[1].state().kept.is_none());
    }
}
