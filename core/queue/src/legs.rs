//! The lower devices of a stacked device, as one of its driver queues reaches them: the contract
//! between a mapper and the queue core, on [`Legs`], and the half of it that is easy to get wrong,
//! the wake-up. No mapper is here.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use weir_bio::{Bio, Flags, Nanos};
use weir_ring::Wake;

use crate::bell::Bell;
use crate::command::{Command, CommandEnd, RefusedCommand};
use crate::completion::Completion;
use crate::device::Device;
use crate::error::Error;
use crate::event::Listener;
use crate::submit::submitter::Submitter;

/// The lower devices of one driver queue of a stacked device, by number.
///
/// A mapper (linear, striped, multipath) is a [`Driver`](crate::Driver) whose queues submit to
/// other devices. What its [`DriverQueue`](crate::DriverQueue) does in each call:
///
/// | call | does | rule |
/// |---|---|---|
/// | `open` of the driver | [`Legs::open`] | a submitter on each leg |
/// | `at_home` | [`Legs::at_home`] | an end below has the lane above turned |
/// | `submit` | [`Legs::send`] | takes the memory, cuts it, copies name and flags |
/// | `commit` | [`Legs::commit`] | the plugs of the legs are flushed |
/// | `reap` | [`Legs::reap`] | a request is answered with the last of its bios |
/// | `cancel` | [`Legs::recall`] | says `Pending`; bios that wait are not sent |
///
/// # Contract
/// - **Announced.** The queue [announces](crate::DriverQueue::announces) its answers, and has no
///   event of its own; a time ([`wake_at`](crate::DriverQueue::wake_at)) only for what it decides
///   itself, never for its legs' answers. Lower lanes may be at home on any thread; a mapper turns
///   none of them and waits for none.
/// - **Copied down:** group, priority, hint and flags. FAILFAST goes down with every bio, because
///   the leg's driver is the one that would try again. A group pays once, above.
/// - **NOWAIT.** A bio that may not wait goes down as such. A leg without a free request, or a
///   frozen one, ends it with AGAIN, and so does the request above; of a request that is cut the
///   other parts may have been carried out, as with any write that failed.
/// - **A leg that is frozen or full** refuses nothing above: bios wait here, in order, until the
///   leg tells its submitter. So the request above stays with the driver, and its time goes on.
/// - **A leg that is gone** answers, with Offline. The status of the request is the first error of
///   its bios, but a time-out above all: part of its memory may still be with the driver below.
/// - **Time-outs** are the legs': there the driver is asked to cancel, and there the fence stands.
///   A stacked device has a time-out of 0, or one above those of its legs.
/// - **Flush.** One to each leg; the request ends with the last. PREFLUSH never arrives, FUA goes
///   down with its data.
/// - **Memory** is lent to the mapper, travels down as the memory of bios, and is given back once,
///   in the pieces in which it was lent. A bio that timed out brings none back; then the request
///   gives back [`Data::None`](weir_bio::Data) for its pieces.
/// - **Depth.** No call goes down more than one device: a submitter of a mapper dispatches nothing
///   inline, on the single-queue path either. Nor does an end call upwards; it marks the lane.
/// - **Closing** goes from above: the upper device is brought to rest while the legs are turned,
///   its lanes are dropped (I/O still under way below is finished there), then the legs are closed.
///   A leg that is taken offline first ends what comes later.
pub struct Legs {
    /// Its tokens are the numbers of the legs. It sleeps between two reaps.
    bell: Arc<Bell>,
    lane: Arc<LaneAbove>,
    legs: Vec<Leg>,
    /// Legs with a plug to flush.
    sent: Vec<usize>,
    told: Vec<usize>,
}

struct Leg {
    submitter: Submitter,
    /// Hears what the submitter does, if the device has one that does.
    listener: Option<Arc<dyn Listener>>,
    /// Bios that the device did not take yet, oldest first.
    waiting: VecDeque<Bio>,
    /// It is in the list of those with a plug to flush.
    is_sent: bool,
}

/// The wake-up of the lane above, once that has a home.
#[derive(Default)]
struct LaneAbove(OnceLock<Arc<dyn Wake>>);

struct WakeAbove(Arc<LaneAbove>);

impl Wake for WakeAbove {
    fn wake(&self) {
        if let Some(lane) = self.0.0.get() {
            lane.wake();
        }
    }
}

impl Legs {
    /// The legs of hard queue `index`: it feeds that lane of each device, modulo their number.
    ///
    /// # Errors
    /// As [`Device::submitter`].
    pub fn open(devices: &[Device], index: usize) -> Result<Legs, Error> {
        let lane = Arc::new(LaneAbove::default());
        let bell = Bell::new(Box::new(WakeAbove(Arc::clone(&lane))), devices.len());
        let open = |(token, device): (usize, &Device)| {
            let submitter = device.submitter_of_driver(&bell, token, index)?;
            let listener = device.shared.listener.get().cloned();
            Ok(Leg { submitter, listener, waiting: VecDeque::new(), is_sent: false })
        };
        let legs = devices.iter().enumerate().map(open).collect::<Result<_, Error>>()?;
        // What a leg tells between two reaps wakes the lane.
        bell.doorbell().prepare_sleep();
        Ok(Legs { bell, lane, legs, sent: Vec::new(), told: Vec::new() })
    }

    /// The lane above, as the driver queue was told of it. Later calls change nothing.
    pub fn at_home(&self, lane: Arc<dyn Wake>) {
        if self.lane.0.set(lane).is_ok() && self.bell.ready().any() {
            WakeAbove(Arc::clone(&self.lane)).wake();
        }
    }

    /// Sends a bio to a leg, or keeps it until that takes it. It ends in a later
    /// [`reap`](Legs::reap), never here.
    #[inline(always)] // The bio stays in registers.
    pub fn send(&mut self, leg: usize, bio: Bio, now: Nanos) {
        let to = &mut self.legs[leg];
        // A bio that may not wait is not put behind those that do: the leg ends it.
        if !to.waiting.is_empty() && !bio.flags.has(Flags::NOWAIT) {
            to.waiting.push_back(bio);
            return;
        }
        to.submit(bio, now);
        if !std::mem::replace(&mut to.is_sent, true) {
            self.sent.push(leg);
        }
    }

    /// Sends a command to a leg. Its end follows a later [`reap`](Legs::reap), in
    /// [`take_command_end`](Legs::take_command_end).
    ///
    /// # Errors
    /// [`RefusedCommand`], with the command: the leg is frozen, or has too many.
    pub fn send_command(
        &mut self,
        leg: usize,
        command: Command,
        now: Nanos,
    ) -> Result<(), RefusedCommand> {
        self.legs[leg].submitter.submit_command(command, now)
    }

    /// The next command of a leg that the last [`reap`](Legs::reap) found to have ended.
    pub fn take_command_end(&mut self, leg: usize) -> Option<CommandEnd> {
        self.legs[leg].submitter.take_command_end()
    }

    /// The burst is over.
    pub fn commit(&mut self, now: Nanos) {
        for leg in self.sent.drain(..) {
            self.legs[leg].is_sent = false;
            self.legs[leg].flush_plug(now);
        }
    }

    /// Hands over every bio that has ended, with the number of its leg, and sends those that waited
    /// and can go on.
    #[inline(always)] // An end stays in registers.
    pub fn reap(&mut self, now: Nanos, mut each: impl FnMut(usize, Completion)) {
        self.bell.doorbell().awake();
        // It ends: each round takes bios that were under way before.
        loop {
            let Legs { bell, told, legs, .. } = self;
            bell.ready().take(|leg| told.push(leg));
            for leg in told.drain(..) {
                legs[leg].complete(now, |ended| each(leg, ended));
                legs[leg].send_waiting(now);
            }
            // Announced before the last look: what is told from now on wakes the lane.
            bell.doorbell().prepare_sleep();
            if !bell.ready().any() {
                return;
            }
        }
    }

    /// Takes back the bios with such cookies that wait and were not sent.
    pub fn recall(&mut self, is_meant: impl Fn(u64) -> bool, mut each: impl FnMut(usize, Bio)) {
        for (number, leg) in self.legs.iter_mut().enumerate() {
            let waiting = std::mem::take(&mut leg.waiting);
            let split = waiting.into_iter().partition(|bio| is_meant(bio.cookie));
            let (recalled, left): (VecDeque<Bio>, VecDeque<Bio>) = split;
            leg.waiting = left;
            recalled.into_iter().for_each(|bio| each(number, bio));
        }
    }

    /// Bios that wait here because their leg is frozen or full.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.legs.iter().map(|leg| leg.waiting.len()).sum()
    }
}

impl Leg {
    #[inline(always)] // The bio stays in registers.
    fn submit(&mut self, bio: Bio, now: Nanos) -> bool {
        // The group has paid above.
        let submitted = match &self.listener {
            None => self.submitter.submit_paid(bio, now),
            Some(listener) => self.submitter.submit_paid_telling(bio, now, &**listener),
        };
        match submitted {
            Ok(()) => true,
            Err(refused) => {
                self.waiting.push_front(refused.into_bio());
                false
            }
        }
    }

    #[inline]
    fn flush_plug(&mut self, now: Nanos) {
        match &self.listener {
            None => self.submitter.flush_plug(now),
            Some(listener) => self.submitter.flush_plug_telling(now, &**listener),
        }
    }

    #[inline(always)] // An end stays in registers.
    fn complete(&mut self, now: Nanos, each: impl FnMut(Completion)) {
        match &self.listener {
            None => self.submitter.complete(now, each),
            Some(listener) => self.submitter.complete_telling(now, each, &**listener),
        };
    }

    #[inline]
    fn send_waiting(&mut self, now: Nanos) {
        if !self.waiting.is_empty() {
            self.send_all_waiting(now);
        }
        self.flush_plug(now);
    }

    #[cold]
    fn send_all_waiting(&mut self, now: Nanos) {
        while let Some(bio) = self.waiting.pop_front() {
            if !self.submit(bio, now) {
                break;
            }
        }
    }
}
