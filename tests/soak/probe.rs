//! How long a flush of a disk takes at each moment, for the table.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::daemon::client::{Client, FLUSH};
use super::{MIB, STALL, Soak};

/// Where it writes, so that there is something to be made durable: no other client checks it.
const AT: u64 = 20 * MIB;

/// The flushes that a client of one disk has seen.
#[derive(Default)]
pub struct Probe {
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    /// When the flush under way began.
    since: Option<Instant>,
    /// The longest that ended and was not asked for.
    longest: Duration,
}

impl Probe {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The longest flush since this was asked last, the one under way included.
    pub fn longest_ms(&self) -> u64 {
        let mut seen = self.seen();
        let under_way = seen.since.map(|since| since.elapsed()).unwrap_or_default();
        std::mem::take(&mut seen.longest).max(under_way).as_millis() as u64
    }

    /// Writes and flushes until the end.
    pub fn run(&self, soak: &Soak, disk: &str) {
        let mut client = Client::connect(&soak.folder.socket(), disk);
        client.stream.set_read_timeout(Some(STALL)).expect("a socket");
        while soak.goes_on() {
            assert_eq!(client.write(0, AT, &[1; 4096]).expect("an answer"), 0, "{disk}");
            let since = Instant::now();
            self.seen().since = Some(since);
            assert_eq!(client.one(0, FLUSH, 0, 0).expect("an answer"), 0, "{disk}");
            let mut seen = self.seen();
            seen.since = None;
            seen.longest = seen.longest.max(since.elapsed());
            drop(seen);
            soak.pause(Duration::from_millis(100));
        }
        client.disconnect().expect("a parting");
    }
}
