//! A disk by its model: commands in, ends out.

use weir_bio::Nanos;

use crate::array::ArrayDisk;
use crate::ends::Ends;
use crate::fixed::FixedDisk;
use crate::hdd::HddDisk;
use crate::machine::{End, Job, Machine};
use crate::measured::MeasuredDisk;
use crate::spec::{Kind, Spec};
use crate::ssd::SsdDisk;

/// A disk that a [`Spec`] describes.
#[derive(Debug)]
pub struct Disk {
    machine: Box<dyn Machine>,
    ends: Ends,
}

impl Disk {
    /// A disk at rest. The seed decides all that is left to chance.
    #[must_use]
    pub fn new(spec: &Spec, seed: u64) -> Disk {
        let machine: Box<dyn Machine> = match spec.kind.clone() {
            Kind::Fixed(fixed) => Box::new(FixedDisk::new(fixed, seed)),
            Kind::Ssd(ssd) => Box::new(SsdDisk::new(ssd, seed)),
            Kind::Hdd(hdd) => Box::new(HddDisk::new(hdd)),
            Kind::Measured(measured) => Box::new(MeasuredDisk::new(measured, seed)),
            Kind::Array(array) => Box::new(ArrayDisk::new(array, seed)),
        };
        Disk { machine, ends: Ends::default() }
    }

    /// Takes a command at `now`, which does not go back from call to call.
    pub fn start(&mut self, job: Job, now: Nanos) {
        // What was to be decided before is decided without it.
        self.decide(now);
        self.machine.start(job, now, &mut self.ends);
    }

    /// When [`take_end`](Disk::take_end) is to be called: an end is due then, or something is to be
    /// decided. `None`: nothing is under way.
    #[must_use]
    pub fn wake_at(&self) -> Option<Nanos> {
        [self.machine.wake_at(), self.ends.first()].into_iter().flatten().min()
    }

    /// The next end that is due, in the order of time.
    pub fn take_end(&mut self, now: Nanos) -> Option<End> {
        self.decide(now);
        self.ends.take(now).map(|(id, at)| End { id, at })
    }

    /// Commands that have not been handed out.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.ends.len() + self.machine.undecided()
    }

    fn decide(&mut self, now: Nanos) {
        while let Some(at) = self.machine.wake_at()
            && at <= now
        {
            self.machine.wake(at, &mut self.ends);
        }
    }
}
