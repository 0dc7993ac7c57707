//! How many bytes of long reads a client may have under way: as many as keep the disk busy.
//!
//! More gain nothing and cost time. Each read holds its memory from when it is taken in until its
//! answer is sent, so what is under way is what the CPU's caches have to hold: with 16 MiB of each
//! of four clients a byte took 1.35 times the CPU time that it takes with 4 MiB. What is beyond the
//! bound waits in the client's socket. Writes have no such bound: their data comes from a socket,
//! and a disk may do more with many of them.
//!
//! A disk is kept busy by what it does in the time that one read takes it. That time is the
//! shortest of reads taken in while little else of the client was under way, and what the disk does
//! in it is known from the bytes that ended while a read was timed. One read at a time is timed,
//! and the bound is twice their product: where the bound is what holds the client back, as with a
//! disk at the other end of a long line, it doubles with each such read. All clients look for that
//! time anew at the same moments and with little under way, so that none takes it from a disk that
//! is busy with the others.

use weir_bio::Nanos;

/// A read of at least so many bytes is a long one.
const LONG: usize = 64 << 10;

/// Bytes under way while the shortest time is looked for.
const FIRST: usize = 1 << 20;

/// The least bound afterwards: what a local disk needs, while the thread does other things too.
const LEAST: usize = 4 << 20;

/// All look for the shortest time anew so often, ns.
const ANEW_NS: u64 = 10_000_000_000;

/// For so long, ns: until what all of them had under way has ended. With more than some 20 long
/// readers it has not, and they may come to the highest bound.
const TOGETHER_NS: u64 = 50_000_000;

/// The bound of one client.
#[derive(Debug)]
pub(crate) struct Window {
    bound: usize,
    /// The highest bound.
    most: usize,
    /// The newest request is a long read.
    long: bool,
    /// The period of [`ANEW_NS`] that it belongs to.
    period: u64,
    /// The shortest time that a long read took in this period, ns.
    shortest: Option<u64>,
    /// Bytes of long reads, and of writes as long, that have ended.
    ended: u64,
    timed: Option<Timed>,
}

/// A read that is timed.
#[derive(Debug)]
struct Timed {
    slot: u32,
    began: Nanos,
    /// Bytes that had ended then.
    ended: u64,
}

impl Window {
    /// Without long reads so far, and never with a higher bound than so many bytes.
    pub(crate) fn new(most: usize) -> Window {
        let (long, period, shortest, ended, timed) = (false, 0, None, 0, None);
        Window { bound: FIRST, most, long, period, shortest, ended, timed }
    }

    /// Whether a client with so many bytes under way has to wait.
    #[inline]
    pub(crate) fn is_full(&self, under_way: usize) -> bool {
        self.long && under_way >= self.bound
    }

    /// A read of so many bytes, 0 for another request, is taken in at this slot, beside so many
    /// bytes under way.
    #[inline]
    pub(crate) fn begin(&mut self, slot: u32, bytes: usize, beside: usize, now: Nanos) {
        self.long = bytes >= LONG;
        if self.long {
            self.begin_long(slot, beside, now);
        }
    }

    fn begin_long(&mut self, slot: u32, beside: usize, now: Nanos) {
        let period = now.0 / ANEW_NS;
        if period != self.period {
            (self.period, self.shortest, self.timed) = (period, None, None);
            self.bound = FIRST.min(self.most);
        }
        // What is taken in beside more is no measure of the disk's own time.
        let tells = self.shortest.is_some() || beside < FIRST;
        if self.timed.is_none() && tells {
            self.timed = Some(Timed { slot, began: now, ended: self.ended });
        }
    }

    /// The request at this slot, of so many bytes, has ended.
    #[inline]
    pub(crate) fn end(&mut self, slot: u32, bytes: usize, now: Nanos) {
        if bytes < LONG {
            return;
        }
        self.ended += bytes as u64;
        if let Some(Timed { began, ended, .. }) = self.timed.take_if(|timed| timed.slot == slot) {
            let took = now.since(began).max(1);
            let shortest = *self.shortest.insert(self.shortest.unwrap_or(took).min(took));
            let meanwhile =
                u128::from(self.ended - ended) * u128::from(shortest) / u128::from(took);
            if now.0 % ANEW_NS >= TOGETHER_NS {
                let twice = usize::try_from(2 * meanwhile).unwrap_or(usize::MAX);
                self.bound = twice.max(LEAST).min(self.most);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use weir_bio::Prng;

    use super::*;

    const MOST: usize = 32 << 20;
    const BYTES: usize = 256 << 10;
    const MS: u64 = 1_000_000;

    /// A disk that takes so long for a request, and beside others so long for each byte, with
    /// clients that always have a further request. Their most bytes under way at the end of a time.
    fn under_way(
        clients: usize,
        bytes: usize,
        alone_ns: u64,
        ns_per_mib: u64,
        until: u64,
    ) -> usize {
        let mut windows: Vec<Window> = (0..clients).map(|_| Window::new(MOST)).collect();
        let mut held = vec![0; clients];
        let (mut now, mut free_at, mut slot) = (0, 0, 0);
        let mut prng = Prng::new(7);
        let mut queue = VecDeque::new();
        while now < until {
            for (client, window) in windows.iter_mut().enumerate() {
                while !window.is_full(held[client]) {
                    window.begin(slot, bytes, held[client], Nanos(now));
                    held[client] += bytes;
                    let alike = bytes as u64 * ns_per_mib / (1 << 20);
                    free_at = free_at.max(now) + alike * (70 + prng.below(61)) / 100;
                    queue.push_back((free_at + alone_ns, client, slot));
                    slot += 1;
                }
            }
            let (at, client, slot) = queue.pop_front().expect("a request is under way");
            now = at;
            windows[client].end(slot, bytes, Nanos(now));
            held[client] -= bytes;
        }
        held.into_iter().max().unwrap_or(0)
    }

    #[test]
    fn a_disk_nearby_is_given_little_and_one_far_away_what_the_line_holds() {
        // 1.6 GB/s and 0.3 ms: it needs half a MiB.
        assert_eq!(under_way(1, BYTES, 300_000, 600_000, 900 * MS), LEAST - BYTES);
        // 10 GB/s after 20 ms: 200 MB, of which a client has 32 at most.
        assert_eq!(under_way(1, BYTES, 20 * MS, 100_000, 900 * MS), MOST - BYTES);
        // 400 MB/s after 20 ms: 8 MB, and as much again.
        let far = under_way(1, BYTES, 20 * MS, 2_600_000, 900 * MS);
        assert!((12 << 20..24 << 20).contains(&far), "{far}");
    }

    #[test]
    fn clients_of_one_disk_do_not_drive_each_other_up() {
        for clients in [2, 4, 16] {
            let most = under_way(clients, BYTES, 300_000, 600_000, 65_000 * MS);
            assert!(most <= LEAST, "{clients} clients: {most}");
        }
    }

    #[test]
    fn short_requests_have_no_bound_here() {
        let mut window = Window::new(MOST);
        window.begin(0, LONG - 1, 0, Nanos(0));
        assert!(!window.is_full(MOST));
        window.begin(1, LONG, 0, Nanos(0));
        assert!(!window.is_full(FIRST - 1) && window.is_full(FIRST));
        window.begin(2, LONG - 1, 0, Nanos(0));
        assert!(!window.is_full(MOST));
    }

    #[test]
    fn a_disk_that_comes_nearer_is_given_less_from_the_next_period_on() {
        let mut window = Window::new(MOST);
        let mut now = 0;
        let mut last = |window: &mut Window, took: u64, rounds: usize| {
            for slot in 0..rounds as u32 {
                window.begin(slot, BYTES, 0, Nanos(now));
                now += took;
                // All that was under way has ended meanwhile.
                (0..window.bound / BYTES).for_each(|_| window.end(u32::MAX, BYTES, Nanos(now)));
                window.end(slot, BYTES, Nanos(now));
            }
        };
        last(&mut window, 20 * MS, 20);
        assert_eq!(window.bound, MOST);
        last(&mut window, 200 * MS, 50);
        let period = window.period;
        assert_eq!((period, window.bound < MOST), (1, true));
    }
}
