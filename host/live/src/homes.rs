//! The reactors as the homes of lanes: asked by other threads to open and to close some.

use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::ThreadId;

use weir_queue::{Device, LaneAnswer, LaneHomes};

use crate::service::desk::{Orders, Remote};

/// The ways to a host's reactors.
pub(crate) struct Homes {
    pub(crate) remotes: Vec<Arc<Remote>>,
    threads: OnceLock<Vec<ThreadId>>,
    /// The reactor of a device's first lane, where that is not the first one.
    firsts: Mutex<Vec<(Device, usize)>>,
}

impl Homes {
    pub(crate) fn new(remotes: Vec<Arc<Remote>>) -> Homes {
        Homes { remotes, threads: OnceLock::new(), firsts: Mutex::default() }
    }

    /// These are the reactors' threads.
    pub(crate) fn know(&self, threads: Vec<ThreadId>) {
        // They are known once, when they have been started.
        let _ = self.threads.set(threads);
    }

    /// Lets a reactor run `question`; the answer comes through the channel, which closes without
    /// one if the reactor has ended.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        reactor: usize,
        question: impl FnOnce(&mut dyn Orders) -> T + Send + 'static,
    ) -> Receiver<T> {
        let (sender, receiver) = channel();
        self.remotes[reactor].post(move |reactor| {
            // The asker may have stopped waiting.
            let _ = sender.send(question(reactor));
        });
        receiver
    }

    /// Ends the reactors, when they have done what they were told before.
    pub(crate) fn end(&self) {
        self.remotes.iter().for_each(|remote| remote.post(|reactor| reactor.stop()));
    }

    /// The reactor that is the home of this lane.
    pub(crate) fn of_lane(&self, device: &Device, index: usize) -> usize {
        let firsts = self.firsts.lock().unwrap_or_else(PoisonError::into_inner);
        let first =
            firsts.iter().find(|(other, _)| other.is(device)).map_or(0, |(_, first)| *first);
        (first + index) % self.remotes.len()
    }

    /// The device's first lane is at home on this reactor; each further one, on the next.
    pub(crate) fn begin_at(&self, device: &Device, first: usize) {
        if first != 0 {
            let mut firsts = self.firsts.lock().unwrap_or_else(PoisonError::into_inner);
            firsts.push((device.clone(), first));
        }
    }

    /// The device is here no more.
    pub(crate) fn forget(&self, device: &Device) {
        let mut firsts = self.firsts.lock().unwrap_or_else(PoisonError::into_inner);
        firsts.retain(|(other, _)| !other.is(device));
    }
}

impl LaneHomes for Homes {
    fn open(&self, device: &Device, index: usize, answer: LaneAnswer) {
        let device = device.clone();
        let home = self.of_lane(&device, index);
        self.remotes[home].post(move |reactor| answer.give(reactor.open_lane(&device, index)));
    }

    fn close(&self, device: &Device, index: usize, answer: LaneAnswer) {
        let device = device.clone();
        let home = self.of_lane(&device, index);
        self.remotes[home].post(move |reactor| {
            reactor.close_lanes(&|lane| device.owns(lane) && lane.index() == index);
            answer.give(Ok(()));
        });
    }

    fn is_here(&self) -> bool {
        let here = std::thread::current().id();
        self.threads.get().is_some_and(|threads| threads.contains(&here))
    }
}
