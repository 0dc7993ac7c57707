//! Where a client hands in its I/Os and takes their answers: a device's submitter, or a sink that
//! has no device behind it.

use std::sync::Arc;

use weir::{Bell, Bio, Completion, Nanos, Refused, Status, Submitter};

/// A place to hand in I/Os, which belongs to one thread.
pub(crate) trait Seat {
    /// As [`Submitter::submit`].
    fn submit(&mut self, bio: Bio, now: Nanos) -> Result<(), Refused>;

    /// As [`Submitter::flush_plug`].
    fn flush_plug(&mut self, now: Nanos);

    /// As [`Submitter::complete`].
    fn complete(&mut self, now: Nanos, each: impl FnMut(Completion)) -> usize;
}

impl Seat for Submitter {
    #[inline]
    fn submit(&mut self, bio: Bio, now: Nanos) -> Result<(), Refused> {
        Submitter::submit(self, bio, now)
    }

    #[inline]
    fn flush_plug(&mut self, now: Nanos) {
        Submitter::flush_plug(self, now);
    }

    #[inline]
    fn complete(&mut self, now: Nanos, each: impl FnMut(Completion)) -> usize {
        Submitter::complete(self, now, each)
    }
}

/// Takes everything and answers it when it is next asked. There is no queue, no device and no other
/// thread: the cost of a run here is that of making I/Os up and counting them.
pub(crate) struct Sink {
    bell: Arc<Bell>,
    /// Its place on the bell.
    token: usize,
    taken: Vec<Completion>,
}

impl Sink {
    pub(crate) fn new(bell: &Arc<Bell>, token: usize) -> Sink {
        Sink { bell: Arc::clone(bell), token, taken: Vec::new() }
    }
}

impl Seat for Sink {
    #[inline]
    fn submit(&mut self, bio: Bio, _now: Nanos) -> Result<(), Refused> {
        self.taken.push(Completion::unsent(bio, Status::Ok));
        Ok(())
    }

    #[inline]
    fn flush_plug(&mut self, _now: Nanos) {
        self.bell.ready().mark(self.token);
    }

    #[inline]
    fn complete(&mut self, _now: Nanos, each: impl FnMut(Completion)) -> usize {
        let count = self.taken.len();
        self.taken.drain(..).for_each(each);
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sink_answers_once_what_it_took_and_says_so_at_its_bell() {
        let bell = Bell::new(Box::new(weir_ring::NoWake), 2);
        let mut sink = Sink::new(&bell, 1);
        for cookie in [7, 3] {
            sink.submit(Bio::flush().cookie(cookie), Nanos::ZERO).expect("it takes everything");
        }
        sink.flush_plug(Nanos::ZERO);
        let mut ready = Vec::new();
        bell.ready().take(|token| ready.push(token));
        assert_eq!(ready, [1]);
        let mut answered = Vec::new();
        let mut each = |completion: Completion| answered.push(completion.cookie);
        assert_eq!(sink.complete(Nanos::ZERO, &mut each), 2);
        assert_eq!(sink.complete(Nanos::ZERO, &mut each), 0);
        assert_eq!(answered, [7, 3]);
    }
}
