//! Changes of a device for a thread that may wait: each with a limit, after which it is given up.

use std::time::Duration;

use weir_bio::Nanos;
use weir_queue::{
    Bell, Device, Error, Frozen, Home, LaneChange, Late, LiveRecording, Progress, Quiesced,
    Settings, Step, Then, Watch,
};

use crate::clock::Clock;
use crate::wake::Unpark;

/// A change may take so much longer than an I/O before it is given up.
const MARGIN_NS: u64 = 5_000_000_000;

/// How long an I/O is taken to last at most on a device that times none out.
const UNTIMED_NS: u64 = 30_000_000_000;

/// The control side of a device, for threads that may wait. A call that does not get there within
/// the limit is given up: the gate opens, everything is as it was before, and the error says what
/// was waited for. A call by a thread that turns the device's lanes is an error.
#[derive(Clone, Copy)]
pub struct Limited<'a> {
    device: &'a Device,
    limit_ns: u64,
}

impl<'a> Limited<'a> {
    /// Of this device. The limit is its `io_timeout` and 5 s; one that times no I/O out counts as
    /// one with 30 s.
    #[must_use]
    pub fn of(device: &'a Device) -> Limited<'a> {
        let timeout_ns = match device.settings().timeout_ns {
            0 => UNTIMED_NS,
            timeout_ns => timeout_ns,
        };
        Limited { device, limit_ns: timeout_ns.saturating_add(MARGIN_NS) }
    }

    /// With this limit, ns.
    #[must_use]
    pub fn within(self, limit_ns: u64) -> Limited<'a> {
        Limited { limit_ns, ..self }
    }

    /// As [`Device::freeze`].
    ///
    /// # Errors
    /// [`Error::Late`], or a thread that turns lanes.
    pub fn freeze(&self) -> Result<Frozen, Error> {
        self.wait(|watch| self.device.begin_freeze(watch))
    }

    /// As [`Device::quiesce`].
    ///
    /// # Errors
    /// As [`freeze`](Limited::freeze).
    pub fn quiesce(&self) -> Result<Quiesced, Error> {
        self.wait(|watch| self.device.begin_quiesce(watch))
    }

    /// As [`Device::reconfigure`].
    ///
    /// # Errors
    /// As [`Device::reconfigure`] and [`freeze`](Limited::freeze).
    pub fn reconfigure(&self, change: impl FnOnce(&mut Settings)) -> Result<(), Error> {
        self.wait(|watch| self.device.begin_reconfigure(watch, change))?
    }

    /// As [`Device::set_scheduler`].
    ///
    /// # Errors
    /// As [`Device::set_scheduler`] and [`freeze`](Limited::freeze).
    pub fn set_scheduler(&self, name: &str) -> Result<Nanos, Error> {
        let began = self.wait(|watch| self.device.begin_switch(watch, name))??;
        Ok(began.map_or(Nanos::ZERO, |began| Nanos(Clock.now().since(began))))
    }

    /// Records the scheduler from now on, as [`Device::begin_recording`] has it.
    ///
    /// # Errors
    /// As there, and as [`freeze`](Limited::freeze).
    pub fn record(&self) -> Result<LiveRecording, Error> {
        self.wait(|watch| self.device.begin_recording(watch))?
    }

    /// As [`Device::set_queues`]. The driver's preparation is not counted: it has limits of its
    /// own.
    ///
    /// # Errors
    /// As [`Device::set_queues`] and [`freeze`](Limited::freeze).
    pub fn set_queues(&self, queues: u16) -> Result<(), Error> {
        loop {
            let prepared = self.device.prepare_lanes(queues)?;
            match self.wait(|watch| self.device.begin_queues(watch, prepared))?? {
                LaneChange::InForce => return Ok(()),
                LaneChange::Overtaken => {}
            }
        }
    }

    /// As [`Device::begin_close`] with [`Then::Ends`]: it is flushed and offline, for good.
    ///
    /// # Errors
    /// As [`freeze`](Limited::freeze), and a last flush that failed: then the device goes on.
    pub fn close(&self) -> Result<(), Error> {
        let closed = self.wait(|watch| self.device.begin_close(watch, Then::Ends))?;
        let name = &self.device.config().name;
        let failed = |status| Error::Invalid(format!("disk {name}: its last flush: {status}"));
        closed.map(drop).map_err(failed)
    }

    /// Polls a step until it ends, or gives it up.
    fn wait<S: Step>(&self, begin: impl FnOnce(&Watch) -> S) -> Result<S::Out, Error> {
        let device = self.device.config().name.clone();
        if self.device.is_home() {
            return Err(Error::Invalid(format!(
                "disk {device}: a reactor cannot change it, as it would wait for itself"
            )));
        }
        let bell = Bell::new(Box::new(Unpark::current()), 1);
        let mut step = begin(&Watch::new(&bell, 0));
        let (home, mut told) = (Home::new(bell), Vec::new());
        let began = Clock.now();
        let until = Nanos(began.0.saturating_add(self.limit_ns));
        loop {
            home.take_told(&mut told);
            told.clear();
            let now = Clock.now();
            if let Progress::Ended(out) = step.poll(now) {
                return Ok(out);
            }
            if now >= until {
                let late = Late { device, wait: step.waits_for(), waited_ns: now.since(began) };
                return step.give_up().ok_or(Error::Late(late));
            }
            sleep(&home, until);
        }
    }
}

/// Parks the calling thread, whose home this is, until that has a token to tell, or so long.
pub(crate) fn sleep(home: &Home, until: Nanos) {
    let now = Clock.now();
    if home.before_sleep(now, || false) {
        std::thread::park_timeout(Duration::from_nanos(until.since(now)));
        home.awake();
    }
}
