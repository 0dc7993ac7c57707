//! What a lane notes for the write-back throttle: the times of reads, and how many writes end. One
//! writer: the lane's home.

use weir_bio::{Nanos, RqId};
use weir_ring::Counter;

use super::throttle::Window;

/// The notes of a hard queue, of one window.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    /// The window.
    window: Counter,
    reads: Counter,
    read_min_ns: Counter,
    writes: Counter,
    /// When the read was issued that is watched; 0 while none is.
    watched: Counter,
    /// When a read was issued last, or anything ended that is not throttled; 0: never.
    touched: Counter,
}

/// The lane's own side.
#[derive(Debug, Default)]
pub(crate) struct Observer {
    /// The open window; 0 without one, and then nothing is noted but that there was I/O.
    pub(crate) window: u64,
    /// The read that is watched: the oldest when the window was opened, else the first since.
    watched: Option<RqId>,
    /// Reads issued and requests ended when that was noted last.
    seen: u64,
}

impl Observed {
    /// When there was other I/O than throttled writes; 0: never.
    pub(crate) fn touched(&self) -> u64 {
        self.touched.read()
    }

    /// Adds what was seen in window `number`.
    pub(crate) fn add_to(&self, window: &mut Window, number: u64, now: Nanos) {
        if self.window.read() != number {
            return;
        }
        let reads = self.reads.read();
        if reads > 0 {
            let least = self.read_min_ns.read();
            let is_first = window.reads == 0;
            window.read_min_ns = if is_first { least } else { window.read_min_ns.min(least) };
        }
        window.reads += reads;
        window.writes += self.writes.read();
        let watched = self.watched.read();
        if watched != 0 {
            window.read_oldest_ns = window.read_oldest_ns.max(now.since(Nanos(watched)));
        }
    }

    fn begin(&self, window: u64) {
        self.reads.set(0);
        self.writes.set(0);
        self.watched.set(0);
        self.window.set(window);
    }
}

impl Observer {
    /// A pass without an open window is over: whether there was I/O since the last, by the figures
    /// of the lane.
    #[inline]
    pub(crate) fn look(&mut self, figures: u64, now: Nanos, notes: &Observed) {
        if figures != self.seen {
            self.seen = figures;
            notes.touched.set(now.0);
        }
    }

    /// Another window is open, or none; `oldest` finds the oldest read that the driver has.
    #[cold]
    pub(crate) fn turn_to(
        &mut self,
        window: u64,
        notes: &Observed,
        oldest: impl FnOnce() -> Option<(Nanos, RqId)>,
    ) {
        (self.window, self.watched) = (window, None);
        notes.begin(window);
        if window != 0
            && let Some((issued_at, id)) = oldest()
        {
            self.watch(id, issued_at, notes);
        }
    }

    fn watch(&mut self, id: RqId, issued_at: Nanos, notes: &Observed) {
        self.watched = Some(id);
        notes.watched.set(issued_at.0);
    }

    /// A read was issued.
    pub(crate) fn read_issued(&mut self, id: RqId, now: Nanos, notes: &Observed) {
        notes.touched.set(now.0);
        if self.watched.is_none() {
            self.watch(id, now, notes);
        }
    }

    /// A read has ended.
    pub(crate) fn read_ended(&mut self, id: RqId, device_ns: u64, notes: &Observed) {
        if self.watched == Some(id) {
            self.watched = None;
            notes.watched.set(0);
        }
        if notes.reads.read() == 0 || device_ns < notes.read_min_ns.read() {
            notes.read_min_ns.set(device_ns);
        }
        notes.reads.add(1);
    }

    /// A write has ended.
    pub(crate) fn write_ended(&mut self, notes: &Observed) {
        notes.writes.add(1);
    }

    /// Something has ended that is not throttled.
    pub(crate) fn other_ended(&mut self, now: Nanos, notes: &Observed) {
        notes.touched.set(now.0);
    }
}
