//! The memory that a session holds, and whether the next request may be added to it, by the rule in
//! `budget.rs`.

use weir_bio::Nanos;
use weir_proto_nbd::server::{Checked, Reject};

use super::Session;
use crate::arena::ROOM;
use crate::outbox::Outbox;
use crate::payload::Payload;
use crate::pool::{Pool, room};
use crate::survey;

/// Bytes that a request takes beside its data: its place here and in the device.
const REQUEST: usize = 512;

impl Session {
    /// Whether a request may be taken in now: whether its share of this round is not used up, and
    /// whether the memory that the request takes may be held; if not, nothing is taken in until it
    /// may. A request that will not be carried out takes none.
    #[inline]
    pub(super) fn affords(
        &mut self,
        checked: &Result<Checked, Reject>,
        out: &Outbox,
        pool: &Pool,
        now: Nanos,
    ) -> bool {
        let needed = match checked {
            Ok(Checked::Read { range, .. }) if !self.deaf => room(range.length as usize),
            Ok(Checked::Write { range, .. }) => room(range.length as usize),
            Ok(Checked::Unaligned { range, act }) => self.unaligned_needs(*range, *act),
            Ok(Checked::BlockStatus { range, one }) if !self.deaf => {
                survey::price(*range, *one) as usize
            }
            _ => 0,
        };
        if !self.stopping && !(self.share.has_room(now) && (needed == 0 || pool.serves(needed))) {
            self.paused = true;
            return false;
        }
        let held = self.memory(out) + needed + REQUEST;
        let granted = self.quota.covers(held) || self.ask(held, out, now);
        if granted {
            self.share.take(needed);
        }
        granted
    }

    #[cold]
    fn ask(&mut self, held: usize, out: &Outbox, now: Nanos) -> bool {
        let alone = self.is_idle() && self.payload.is_none() && out.is_empty();
        let granted = self.stopping || self.quota.ask(held, alone, now);
        self.short = !granted;
        granted
    }

    /// Bytes it holds, a reply block included.
    #[inline]
    pub(crate) fn memory(&self, out: &Outbox) -> usize {
        let arriving = self.payload.as_ref().map_or(0, Payload::memory);
        self.lent + arriving + self.slots.len() * REQUEST + out.memory().max(ROOM)
    }

    /// Bytes that its client is to send or to read before anything else can happen; none while the
    /// device works for it.
    pub(crate) fn owed(&self, out: &Outbox) -> usize {
        let arriving = self.payload.as_ref().map_or(0, Payload::missing);
        if arriving > 0 || self.slots.len() == 0 { arriving + out.bytes() } else { 0 }
    }
}
