//! The reactors as the homes of lanes: asked by other threads to open and to close some.

use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, OnceLock};
use std::thread::ThreadId;

use weir_queue::{Device, LaneAnswer, LaneHomes};

use crate::service::desk::{Orders, Remote};

/// The ways to a host's reactors.
pub(crate) struct Homes {
    pub(crate) remotes: Vec<Arc<Remote>>,
    threads: OnceLock<Vec<ThreadId>>,
}

impl Homes {
    pub(crate) fn new(remotes: Vec<Arc<Remote>>) -> Homes {
        Homes { remotes, threads: OnceLock::new() }
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

    /// The reactor that is the home of this lane, of whichever device.
    pub(crate) fn of_lane(&self, index: usize) -> usize {
        index % self.remotes.len()
    }
}

impl LaneHomes for Homes {
    fn open(&self, device: &Device, index: usize, answer: LaneAnswer) {
        let device = device.clone();
        self.remotes[self.of_lane(index)]
            .post(move |reactor| answer.give(reactor.open_lane(&device, index)));
    }

    fn close(&self, device: &Device, index: usize, answer: LaneAnswer) {
        let device = device.clone();
        self.remotes[self.of_lane(index)].post(move |reactor| {
            reactor.close_lanes(&|lane| device.owns(lane) && lane.index() == index);
            answer.give(Ok(()));
        });
    }

    fn is_here(&self) -> bool {
        let here = std::thread::current().id();
        self.threads.get().is_some_and(|threads| threads.contains(&here))
    }
}
