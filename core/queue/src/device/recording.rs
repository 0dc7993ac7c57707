//! Recording a device's scheduler while it works: it begins anew, worn by a recorder, in a device
//! that is frozen for a moment; its calls go over a tape (`tape.rs`) to a reader, who may be slow.

use std::sync::Arc;

use weir_bio::Nanos;
use weir_sched::Scheduler;
use weir_sched::recorder::{Cut, Heading, Noted, Recorder};

use super::Device;
use super::freeze::{Freezing, Ticket};
use crate::config::Attached;
use crate::error::{Error, Wait, invalid};
use crate::order::elevator::Elevator;
use crate::shared::Path;
use crate::step::{Progress, Step, Watch, wait};
use crate::tape::{ROOM, TapeReader, TapeState, tape};

/// How often tunables are compared when a scheduler takes over another's: one may change another,
/// as slice_idle does slice_idle_us.
const ROUNDS: usize = 2;

/// Why a recording has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordingEnd {
    /// It was [stopped](LiveRecording::stop).
    Stopped,
    /// Its reader was too slow: the calls after the last one taken, so many, are lost.
    Lost(u64),
    /// Something changed that it cannot state.
    Cut(Cut),
    /// The scheduler was replaced.
    Replaced,
}

impl std::fmt::Display for RecordingEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            RecordingEnd::Stopped => "it was stopped",
            RecordingEnd::Lost(events) => {
                return write!(f, "the {events} events that follow were lost: its reader is slow");
            }
            RecordingEnd::Cut(Cut::Tunable) => "a tunable of the scheduler was set",
            RecordingEnd::Cut(Cut::Limits) => "a limit of the disk or its nomerges changed",
            RecordingEnd::Cut(Cut::Depth) => "nr_requests changed",
            RecordingEnd::Cut(Cut::Drained) => "the disk is gone, or took nothing for long",
            RecordingEnd::Replaced => {
                "the scheduler was replaced: it was switched, or the number of hard queues changed"
            }
        })
    }
}

/// A device's scheduler under record, at the reader's end. Dropping it ends the recording.
pub struct LiveRecording {
    device: Device,
    heading: Heading,
    calls: TapeReader,
    state: Arc<TapeState>,
    stopped: bool,
}

impl LiveRecording {
    /// The state from which it begins.
    #[must_use]
    pub fn heading(&self) -> &Heading {
        &self.heading
    }

    /// Takes the calls that came since the last time, in order; no more than some ten thousand at
    /// once, for they may come as fast as they are taken. Some when there are no more: then the
    /// scheduler is worn no longer.
    pub fn take(&mut self, mut each: impl FnMut(&Noted)) -> Option<RecordingEnd> {
        let is_over = self.let_go_if_over();
        // Behind the look: what was kept before the end is in the ring by then.
        let were_all = self.calls.take(&mut each);
        let lost = self.state.lost();
        match self.state.why_cut() {
            _ if !is_over || !were_all => None,
            _ if lost > 0 => Some(RecordingEnd::Lost(lost)),
            Some(cut) => Some(RecordingEnd::Cut(cut)),
            None if self.stopped => Some(RecordingEnd::Stopped),
            None => Some(RecordingEnd::Replaced),
        }
    }

    /// Gives the scheduler back if nothing more is kept, and says whether that is so: for a reader
    /// that can take nothing now, so that the device does not wait for it.
    pub fn let_go_if_over(&self) -> bool {
        let is_over = self.state.is_over();
        if is_over {
            self.let_go();
        }
        is_over
    }

    /// Ends it. What was kept can still be taken.
    pub fn stop(&mut self) {
        self.stopped |= !self.state.is_over();
        self.let_go();
    }

    fn let_go(&self) {
        self.device.shared.path.with_elevator(|elevator| elevator.unrecord(&self.state));
    }
}

impl Drop for LiveRecording {
    fn drop(&mut self) {
        self.let_go();
    }
}

impl Device {
    /// Records the scheduler from now on: it is made anew, with the tunables it has, while the
    /// device is frozen for a moment. Not for a thread that turns lanes or has I/O under way.
    ///
    /// # Errors
    /// There is no scheduler, or it is recorded already.
    pub fn record(&self, clock: &dyn Fn() -> Nanos) -> Result<LiveRecording, Error> {
        wait(|watch| self.begin_recording(watch), clock)
    }

    /// Begins to [record](Device::record), when the changes begun before have ended.
    #[must_use = "a step that is dropped is given up"]
    pub fn begin_recording(&self, watch: &Watch) -> BeginningRecording {
        BeginningRecording {
            freezing: None,
            ticket: Some(Ticket::draw(self, watch)),
            device: self.clone(),
            watch: watch.clone(),
        }
    }

    /// The scheduler, if it can be recorded now.
    fn recordable(&self) -> Result<Attached, Error> {
        let name = &self.config().name;
        let attached = self.control.attached();
        if attached.make.is_none() {
            return invalid(format!(
                "disk {name}: scheduler none decides nothing that could be recorded"
            ));
        }
        match self.shared.path.with_elevator(|elevator| elevator.is_recorded()) {
            Some(true) => invalid(format!("disk {name} is being recorded already")),
            _ => Ok(attached),
        }
    }

    /// Puts a recorder in force; the device is frozen.
    fn wear_recorder(&self, now: Nanos) -> Result<LiveRecording, Error> {
        let attached = self.recordable()?;
        let before = self.shared.current.get();
        let mut config = self.shared.config.clone();
        config.queues = before.queues;
        let tags = match &self.shared.path {
            Path::Mq(_) => before.nr_requests,
            Path::Sq(_) => crate::sq::tags(before.nr_requests),
        };
        let setup = config.setup(&before.limits, tags, before.nomerges, attached.compat);
        let mut anew = attached.made(&setup)?.expect("a scheduler that can be recorded is one");
        let taken = self
            .shared
            .path
            .with_elevator(|elevator| take_over_tunables(anew.as_mut(), elevator.scheduler()));
        let settings = taken.unwrap_or_else(|| Ok(Vec::new()))?;
        let (tape, calls, state) = tape(ROOM);
        let recorder = Recorder::new(anew, &setup, tape, now);
        let elevator = Elevator::new(Box::new(recorder), tags).recorded(&state);
        self.replace(Some(elevator), before.nr_requests);
        let heading = Heading { scheduler: attached.name, setup, settings };
        Ok(LiveRecording { device: self.clone(), heading, calls, state, stopped: false })
    }
}

/// Gives a scheduler the tunables of another of its kind: those that were set for it, in order.
fn take_over_tunables(
    anew: &mut dyn Scheduler,
    from: &mut dyn Scheduler,
) -> Result<Vec<(&'static str, i128)>, Error> {
    let (anew, from) = (anew.tunables(), from.tunables());
    let mut settings = Vec::new();
    for _ in 0..ROUNDS {
        for row in from.table() {
            let value = from.value(row.name);
            if anew.value(row.name) != value {
                anew.put(row.name, value);
                settings.push((row.name, value));
            }
        }
    }
    match from.table().iter().find(|row| anew.value(row.name) != from.value(row.name)) {
        None => Ok(settings),
        Some(row) => invalid(format!(
            "tunable {}={} cannot be set together with the others",
            row.name,
            from.value(row.name)
        )),
    }
}

/// A recording about to begin.
pub struct BeginningRecording {
    // In this order: the gate opens before the next change may begin.
    freezing: Option<Freezing>,
    ticket: Option<Ticket>,
    device: Device,
    watch: Watch,
}

impl Step for BeginningRecording {
    type Out = Result<LiveRecording, Error>;

    fn poll(&mut self, now: Nanos) -> Progress<Self::Out> {
        if !self.ticket.as_ref().is_some_and(Ticket::is_first) {
            return Progress::Waits;
        }
        if self.freezing.is_none() {
            if let Err(error) = self.device.recordable() {
                self.ticket = None;
                return Progress::Ended(Err(error));
            }
            self.freezing = Some(self.device.begin_freeze(&self.watch));
        }
        let freezing = self.freezing.as_mut().expect("it was begun");
        let Progress::Ended(frozen) = freezing.poll(now) else { return Progress::Waits };
        let recording = self.device.wear_recorder(now);
        drop(frozen);
        (self.freezing, self.ticket) = (None, None);
        Progress::Ended(recording)
    }

    fn waits_for(&self) -> Wait {
        self.freezing.as_ref().map_or(Wait::Change, Step::waits_for)
    }
}
