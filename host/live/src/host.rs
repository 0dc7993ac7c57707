//! The host: reactor threads, the devices they turn and the services on them.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use weir_bio::Nanos;
use weir_queue::{Device, Error, Frozen, LaneHomes, QueueMode, Then};

use crate::clock::Clock;
use crate::drain::{self, Obstacle, Unfinished, left};
use crate::homes::Homes;
use crate::polling::{PollCounts, Polling};
use crate::reactor::{Reactor, Seed};
use crate::service::desk::{Orders, Remote};
use crate::service::{Handle, Service, Turn};

/// How long a reactor may take to close lanes that are at rest, whatever the limit.
const CLOSE_LEAST: Duration = Duration::from_millis(500);

/// A number of reactors, for life.
///
/// Dropping it stops the reactors without waiting for their threads; [`stop`](Host::stop) is the
/// orderly way.
pub struct Host {
    reactors: Arc<Homes>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    devices: Mutex<Vec<Device>>,
    /// A stop has begun, and has not failed.
    stops: AtomicBool,
}

impl Host {
    /// Starts `reactors` reactors, at least 1, that sleep when they have nothing to do.
    ///
    /// # Errors
    /// The system's: no thread or descriptor is left.
    pub fn new(reactors: usize) -> io::Result<Host> {
        Host::with_polling(reactors, Polling::default())
    }

    /// Starts `reactors` reactors, at least 1, that poll by this rule before they sleep.
    ///
    /// # Errors
    /// As [`new`](Host::new).
    pub fn with_polling(reactors: usize, polling: Polling) -> io::Result<Host> {
        let (mut remotes, mut threads) = (Vec::new(), Vec::new());
        let count = reactors.max(1);
        for index in 0..count {
            let seed = Seed::new(index, count, polling)?;
            remotes.push(seed.remote());
            let name = format!("weir-reactor-{index}");
            threads.push(std::thread::Builder::new().name(name).spawn(move || {
                let loud = AbortOnPanic;
                Reactor::new(seed).run();
                drop(loud);
            })?);
        }
        let reactors = Arc::new(Homes::new(remotes));
        reactors.know(threads.iter().map(|thread| thread.thread().id()).collect());
        Ok(Host {
            reactors,
            threads: Mutex::new(threads),
            devices: Mutex::default(),
            stops: AtomicBool::new(false),
        })
    }

    /// How many reactors there are.
    #[must_use]
    pub fn reactors(&self) -> usize {
        self.reactors.remotes.len()
    }

    /// Whether a [`stop`](Host::stop) ends it or has ended it: what is opened on it now ends too.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.stops.load(Ordering::Acquire)
    }

    /// How many devices it turns, with those that were given up.
    #[must_use]
    pub fn devices(&self) -> usize {
        self.devices.lock().expect("the devices' lock").len()
    }

    /// Gives the host another rule of polling, from the next wait of each reactor on. Reactors with
    /// clients that ask for another go on by that.
    pub fn set_polling(&self, polling: Polling) {
        let post = |remote: &Arc<Remote>| remote.post(move |reactor| reactor.set_polling(polling));
        self.reactors.remotes.iter().for_each(post);
    }

    /// The cost and the gain of polling, of each reactor.
    #[must_use]
    pub fn poll_counts(&self) -> Vec<PollCounts> {
        self.reactors.remotes.iter().map(|remote| remote.polls.read()).collect()
    }

    /// The rule of polling that each reactor follows now.
    #[must_use]
    pub fn poll_rules(&self) -> Vec<Polling> {
        self.reactors.remotes.iter().map(|remote| remote.rule.get()).collect()
    }

    /// Whether the calling thread is one of its reactors, which must not wait for any of them.
    #[must_use]
    pub fn is_here(&self) -> bool {
        self.reactors.is_here()
    }

    /// Opens the device's lanes: lane `i` on reactor `i` modulo their number. The one queue of a
    /// single-queue device is turned by every reactor, if its driver lets any thread call it.
    ///
    /// # Errors
    /// A device that is here already, or the error of the first lane that could not be opened; then
    /// none is left open. A call by a reactor, or of a host that has ended.
    pub fn adopt(&self, device: &Device) -> Result<(), Error> {
        self.adopt_at(device, 0)
    }

    /// The reactor that is the home of this lane of a device, or would be if the lane were in use.
    #[must_use]
    pub fn home_of(&self, device: &Device, lane: usize) -> usize {
        self.reactors.of_lane(device, lane)
    }

    /// As [`adopt`](Host::adopt), with lane 0 on reactor `first` modulo their number, and each
    /// further one on the next: so many devices of few lanes have all reactors.
    ///
    /// # Errors
    /// As [`adopt`](Host::adopt).
    pub fn adopt_at(&self, device: &Device, first: usize) -> Result<(), Error> {
        let name = &device.config().name;
        if self.is_here() {
            return Err(Error::Invalid(format!(
                "disk {name}: a reactor cannot open it, as it would wait for itself"
            )));
        }
        let refuse_known = |devices: &[Device]| {
            let known = devices.iter().any(|other| other.is(device));
            let what = || format!("disk {name} is on this host already");
            if known { Err(Error::Invalid(what())) } else { Ok(()) }
        };
        refuse_known(&self.devices.lock().expect("the devices' lock"))?;
        // A reactor must not wait for a driver: it has other disks.
        (0..usize::from(device.queues())).try_for_each(|lane| device.prepare_lane(lane))?;
        let mut devices = self.devices.lock().expect("the devices' lock");
        refuse_known(&devices)?;
        device.attach_clock(|| Clock.now());
        let reactors = self.reactors();
        self.reactors.begin_at(device, first % reactors);
        let everywhere = device.config().mode == QueueMode::Sq && device.any_home();
        let places: Vec<(usize, usize)> = if everywhere {
            (0..reactors).map(|reactor| (reactor, 0)).collect()
        } else {
            let lanes = 0..usize::from(device.queues());
            lanes.map(|lane| (self.reactors.of_lane(device, lane), lane)).collect()
        };
        for (reactor, lane) in places {
            let one = device.clone();
            let opened = self.ask(reactor, move |reactor| reactor.open_lane(&one, lane));
            let ended = |_| Err(Error::Invalid(format!("disk {name}: its host has ended")));
            if let Err(error) = opened.recv().unwrap_or_else(ended) {
                // They were asked after the opening and answer in turn.
                let _ = self.close_lanes(device, Nanos(u64::MAX));
                self.reactors.forget(device);
                return Err(error);
            }
        }
        let homes: Weak<dyn LaneHomes> = Arc::downgrade(&self.reactors) as _;
        device.attach_homes(homes);
        devices.push(device.clone());
        Ok(())
    }

    /// Closes the device's lanes, once everything is done and flushed. No thread may submit to it
    /// until it is adopted again: see [`retire`](Host::retire).
    ///
    /// # Errors
    /// [`Unfinished`] when that took longer than `limit_ns`, or the flush failed; then the lanes
    /// stay open and the device goes on. A call by a reactor. A device that is not here is none.
    pub fn release(&self, device: &Device, limit_ns: u64) -> Result<(), Unfinished> {
        self.let_go(device, limit_ns, Then::Rests)
    }

    /// As [`release`](Host::release), for good: submitters may go on submitting meanwhile, and what
    /// comes too late ends with [`Offline`](weir_bio::Status::Offline).
    ///
    /// # Errors
    /// As [`release`](Host::release).
    pub fn retire(&self, device: &Device, limit_ns: u64) -> Result<(), Unfinished> {
        self.let_go(device, limit_ns, Then::Ends)
    }

    fn let_go(&self, device: &Device, limit_ns: u64, then: Then) -> Result<(), Unfinished> {
        if self.is_here() {
            return Err(Unfinished::because(&device.config().name, Obstacle::OnReactor));
        }
        let until = Nanos(Clock.now().0.saturating_add(limit_ns));
        if !self.devices.lock().expect("the devices' lock").iter().any(|here| here.is(device)) {
            return Ok(());
        }
        let device_alone = std::slice::from_ref(device);
        let frozen = match drain::drain(&self.reactors, device_alone, limit_ns, |_| then).pop() {
            None => return Ok(()),
            Some(rest) => rest?,
        };
        // Of a device that ends, everything that waits at the gate is told so at once.
        let frozen = Some(frozen).filter(|_| then == Then::Rests);
        self.close_lanes(device, until)?;
        drop(frozen);
        // As long as it is among the devices no thread adopts it anew.
        self.reactors.forget(device);
        self.devices.lock().expect("the devices' lock").retain(|other| !other.is(device));
        Ok(())
    }

    /// Finishes and flushes what every device has been given, takes the devices offline, closes the
    /// lanes and ends the reactors: mapped devices first, then those that they lie on.
    ///
    /// A device that only devices above have used was flushed by them, as far as they need it: of
    /// the paths of a multipath device one is enough. It gets no flush of its own, which may fail,
    /// or wait for a path that is down.
    ///
    /// # Errors
    /// The I/O that had not ended after `limit_ns`, by device. Then the reactors are left running,
    /// as nothing can be taken from under a driver that may still answer: the process should end.
    /// Or a call by a reactor.
    pub fn stop(&self, limit_ns: u64) -> Result<(), Vec<Unfinished>> {
        if self.is_here() {
            return Err(vec![Unfinished::because("", Obstacle::OnReactor)]);
        }
        let until = Nanos(Clock.now().0.saturating_add(limit_ns));
        self.stops.store(true, Ordering::Release);
        let devices = std::mem::take(&mut *self.devices.lock().expect("the devices' lock"));
        let (mut late, mut closed, mut unfinished) = (Vec::new(), Vec::new(), Vec::new());
        let mut levels = drain::levels(devices).into_iter().peekable();
        while let Some(level) = levels.next() {
            // What lies under a device that goes on goes on as well.
            let (kept, level): (Vec<_>, Vec<_>) =
                level.into_iter().partition(|leg| late.iter().any(|above| lies_on(above, leg)));
            late.extend(kept);
            // A device that hangs leaves half of the time to those below the others.
            let limit_ns = until.since(Clock.now()) / if levels.peek().is_some() { 2 } else { 1 };
            let then = |device: &Device| match was_flushed_from_above(device, &closed) {
                true => Then::EndsBelow,
                false => Then::Ends,
            };
            let rests = drain::drain(&self.reactors, &level, limit_ns, then);
            for (device, rest) in level.into_iter().zip(rests) {
                let rest = rest.map(drop::<Frozen>);
                match rest.and_then(|()| self.close_lanes(&device, until)) {
                    Ok(()) => closed.push(device),
                    Err(why) => {
                        unfinished.push(why);
                        late.push(device);
                    }
                }
            }
        }
        if !unfinished.is_empty() {
            self.devices.lock().expect("the devices' lock").extend(late);
            self.stops.store(false, Ordering::Release);
            return Err(unfinished);
        }
        let threads = std::mem::take(&mut *self.threads.lock().expect("the threads' lock"));
        self.end_reactors();
        for thread in threads {
            // A reactor that panicked has ended the process.
            let _ = thread.join();
        }
        Ok(())
    }

    /// Puts a service on reactor `index` modulo their number. `make` runs there, and this waits
    /// until it has.
    ///
    /// # Errors
    /// A call by a reactor, which would wait for itself, or of a host that has ended.
    pub fn install<S: Service>(
        &self,
        index: usize,
        make: impl FnOnce(&mut Turn<'_>) -> S + Send + 'static,
    ) -> Result<Handle<S>, Error> {
        let index = index % self.reactors();
        if self.is_here() {
            let what = "a reactor cannot install a service, as it would wait for itself";
            return Err(Error::Invalid(String::from(what)));
        }
        let number = self
            .ask(index, move |reactor| reactor.add_service(Box::new(|turn| Box::new(make(turn)))));
        let ended = |_| Error::Invalid(format!("reactor {index} has ended"));
        let service = number.recv().map_err(ended)?;
        Ok(Handle::new(Arc::clone(&self.reactors.remotes[index]), service))
    }

    /// Has every reactor drop the device's lanes. One that has ended has dropped them.
    fn close_lanes(&self, device: &Device, until: Nanos) -> Result<(), Unfinished> {
        let closed: Vec<_> = (0..self.reactors())
            .map(|reactor| {
                let device = device.clone();
                self.ask(reactor, move |reactor| reactor.close_lanes(&|lane| device.owns(lane)))
            })
            .collect();
        for (reactor, closed) in closed.into_iter().enumerate() {
            // A reactor may be in the middle of a pass when the time is up.
            let patience = left(until).max(CLOSE_LEAST);
            if closed.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
                let name = &device.config().name;
                return Err(Unfinished::because(name, Obstacle::Silent(reactor)));
            }
        }
        Ok(())
    }

    /// Lets a reactor run `question`; the answer comes through the channel.
    fn ask<T: Send + 'static>(
        &self,
        reactor: usize,
        question: impl FnOnce(&mut dyn Orders) -> T + Send + 'static,
    ) -> Receiver<T> {
        self.reactors.ask(reactor, question)
    }

    fn end_reactors(&self) {
        self.reactors.end();
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.end_reactors();
    }
}

/// A reactor that unwinds leaves its disks and clients waiting for ever, and half of a process that
/// serves disks is worse than none.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The hook for panics has said why.
            std::process::abort();
        }
    }
}

fn lies_on(above: &Device, leg: &Device) -> bool {
    above.legs().iter().any(|of| of.is(leg))
}

/// Whether the last flushes of the devices that were closed above were enough for this leg.
fn was_flushed_from_above(leg: &Device, closed: &[Device]) -> bool {
    let mut above = closed.iter().filter(|above| lies_on(above, leg)).peekable();
    above.peek().is_some() && above.all(Device::sends_flushes)
}
