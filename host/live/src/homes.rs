//! The reactors as the homes of lanes: asked by other threads to open and to close some.

use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_queue::{Device, Error, LaneHomes};

use crate::reactor::{Reactor, Remote};

/// The ways to a host's reactors.
pub(crate) struct Homes {
    pub(crate) remotes: Vec<Arc<Remote>>,
    /// They were told to stop. Held while one that must still be there is waited for.
    ended: Mutex<bool>,
}

impl Homes {
    pub(crate) fn new(remotes: Vec<Arc<Remote>>) -> Homes {
        Homes { remotes, ended: Mutex::new(false) }
    }

    /// Lets a reactor run `question`; the answer comes through the channel.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        reactor: usize,
        question: impl FnOnce(&mut Reactor) -> T + Send + 'static,
    ) -> Receiver<T> {
        let (sender, receiver) = channel();
        self.remotes[reactor].post(move |reactor| {
            // Whoever asked may have stopped waiting.
            let _ = sender.send(question(reactor));
        });
        receiver
    }

    /// Ends the reactors, when they have done what they were told before.
    pub(crate) fn end(&self) {
        *self.ended() = true;
        self.remotes.iter().for_each(|remote| remote.post(|reactor| reactor.stopping = true));
    }

    /// The reactor that is the home of this lane, of whichever device.
    pub(crate) fn of_lane(&self, index: usize) -> usize {
        index % self.remotes.len()
    }

    fn ended(&self) -> MutexGuard<'_, bool> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LaneHomes for Homes {
    fn open(&self, device: &Device, index: usize) -> Result<(), Error> {
        let ended = self.ended();
        if *ended {
            return Err(Error::Dying(device.config().name.clone()));
        }
        let device = device.clone();
        let opened =
            self.ask(self.of_lane(index), move |reactor| reactor.open_lane(&device, index));
        opened.recv().expect("a reactor answers")
    }

    fn close(&self, device: &Device, index: usize) {
        let ended = self.ended();
        if *ended {
            // A reactor closes its lanes when it ends.
            return;
        }
        let device = device.clone();
        let closed = self.ask(self.of_lane(index), move |reactor| {
            reactor.close_lanes(|home| home.device.is(&device) && home.lane.index() == index);
        });
        closed.recv().expect("a reactor answers");
    }
}
