//! How a submitter counts what has come back to it.

use weir_bio::Nanos;
use weir_ring::Incoming;

use super::{Core, failing};
use crate::request::{Request, State};
use crate::stats::Streak;

impl Core {
    /// Puts what came into the statistics and says how many there are.
    #[inline]
    pub(super) fn count_arrived(&mut self, arrived: &Incoming<Request>, now: Nanos) -> usize {
        if arrived.is_empty() {
            return 0;
        }
        if !self.snapshot.iostats {
            return self.count_uncounted(arrived);
        }
        self.stats.account_busy(&self.shared.stamp, now, || true);
        if let Some(partition) = &self.partition {
            self.stats.account_partition(&partition.stamp, now, || true);
        }
        if let Some(request) = arrived.only().filter(|request| request.status.is_ok()) {
            let stamps = (request.accepted_at, request.issued_at, request.done_at);
            self.stats.account_one(request.rq.op, request.absorbed, request.rq.sectors, stamps);
            return 1;
        }
        let (mut count, mut streak) = (0, Streak::default());
        arrived.for_each_ref(|request| {
            debug_assert_eq!(request.state, State::Complete, "a request comes back unfinished");
            count += 1;
            let stamps = (request.accepted_at, request.issued_at, request.done_at);
            if streak.stamps != stamps {
                self.stats.account(&mut streak);
                streak.stamps = stamps;
            }
            let ok = request.status.is_ok();
            if !ok {
                // A bio in parts is one error, however many of them failed.
                self.stats.errors.add(u64::from(request.split == Request::WHOLE));
                if request.refused {
                    self.payer.give_back_refused(request, &self.snapshot.limits);
                    return;
                }
                failing::note(&self.shared, self.partition.as_deref(), request);
            }
            let sectors = if ok { request.rq.sectors } else { 0 };
            streak.count(request.rq.op, request.absorbed, sectors);
        });
        self.stats.account(&mut streak);
        count
    }

    /// Says how many came, and writes nothing that `iostats` covers. The switch is thrown while the
    /// device is frozen, so a request is counted whole or not at all.
    #[cold]
    fn count_uncounted(&self, arrived: &Incoming<Request>) -> usize {
        let mut count = 0;
        arrived.for_each_ref(|request| {
            count += 1;
            let failed = !request.status.is_ok();
            let whole = failed && request.split == Request::WHOLE;
            self.stats.errors.add(u64::from(whole));
            if whole && request.refused {
                self.payer.give_back_refused(request, &self.snapshot.limits);
            } else if failed && !request.refused {
                failing::note(&self.shared, self.partition.as_deref(), request);
            }
        });
        count
    }
}
