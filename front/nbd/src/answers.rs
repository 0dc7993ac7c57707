//! Turns completions into replies.

use weir_bio::{Data, Status};
use weir_proto_nbd::NbdError;
use weir_proto_nbd::server::{Chunk, Replies};
use weir_proto_nbd::wire::{Mode, ReplyTo};
use weir_queue::Completion;

use crate::outbox::Outbox;
use crate::pool::Pool;
use crate::slots::{Slot, Slots, Work};

/// Zeros from so many bytes on are answered as a hole, where a client takes one. Below, the bytes
/// travel: a client that times its disk is shown what reading costs.
const HOLE: u32 = 64 << 10;

/// Up to so many bytes a part of what was read is copied.
const COPIED: usize = 16 << 10;

/// The parts of a session that completions need, borrowed for one batch.
pub(crate) struct Answers<'a> {
    pub(crate) slots: &'a mut Slots,
    pub(crate) lent: &'a mut usize,
    pub(crate) replies: Replies,
    pub(crate) mode: Mode,
    pub(crate) out: &'a mut Outbox,
    pub(crate) pool: &'a mut Pool,
    /// Slots of requests that are not at their end yet.
    pub(crate) onward: Vec<u32>,
    /// Pieces of effects that have ended.
    pub(crate) pieces: usize,
}

impl Answers<'_> {
    /// Deals with one ended bio.
    #[inline]
    pub(crate) fn take(&mut self, completion: Completion) {
        let index = completion.cookie as u32;
        let ok = completion.status.is_ok();
        let slot = self.slots.at(index);
        self.pieces += usize::from(matches!(slot.work, Work::Effect(_)));
        if let (true, Work::Effect(effect)) = (ok, &mut slot.work) {
            if effect.left > 0 || effect.edged {
                return self.onward.push(index);
            }
            if effect.fua {
                slot.work = Work::Plain;
                return self.onward.push(index);
            }
        }
        let Slot { to, bytes, work } = self.slots.remove(index);
        *self.lent -= bytes as usize;
        if !ok {
            self.pool.give_data(completion.data);
            return self.failed(to, completion.status, work);
        }
        match work {
            Work::Read { whole } => self.read(to, whole, completion.data),
            Work::Cut { whole, front, length } => {
                let data = self.cut(completion.data, front as usize, length as usize);
                self.read(to, whole, data);
            }
            _ => {
                self.pool.give_data(completion.data);
                let replies = self.replies;
                self.out.put(self.pool, |out| replies.done(to, out));
            }
        }
    }

    /// The part of what was read that was asked for.
    #[cold]
    fn cut(&mut self, mut data: Data, front: usize, length: usize) -> Data {
        if length <= COPIED {
            // Memory cut off a buffer is freed and cannot be used again.
            let mut bytes = vec![0; data.len()];
            data.copy_to(&mut bytes);
            self.pool.give_data(data);
            let mut part = self.pool.buf(length);
            part.copy_from_slice(&bytes[front..front + length]);
            return Data::One(part);
        }
        drop(data.split_off(front + length));
        data.split_off(front)
    }

    #[inline]
    fn read(&mut self, to: ReplyTo, whole: bool, data: Data) {
        let (replies, length) = (self.replies, data.len() as u32);
        if let Data::Zero { .. } = data
            && length >= HOLE
            && !whole
            && self.mode != Mode::Simple
        {
            let chunk = Chunk { offset: to.offset, length, last: true };
            self.out.put(self.pool, |out| replies.hole(to, chunk, out));
            return self.pool.give_data(data);
        }
        self.out.put(self.pool, |out| replies.read_header(to, length, out));
        self.out.put_data(self.pool, data);
    }

    #[cold]
    fn failed(&mut self, to: ReplyTo, status: Status, work: Work) {
        let fast = matches!(work, Work::Effect(effect) if effect.fast);
        let (replies, error, words) = (self.replies, error_of(status, fast), status.to_string());
        self.out.put(self.pool, |out| replies.error(to, error, &words, out));
    }
}

/// The protocol's word for how an I/O failed. ENOTSUP is for FAST_ZERO alone.
fn error_of(status: Status, fast: bool) -> NbdError {
    match status {
        Status::NoSpc => NbdError::NoSpc,
        Status::ReadOnly => NbdError::Perm,
        Status::NotSupp if fast => NbdError::NotSup,
        Status::NotSupp | Status::Inval => NbdError::Inval,
        Status::Ok
        | Status::Timeout
        | Status::Transport
        | Status::Target
        | Status::ResvConflict
        | Status::Medium
        | Status::Protection
        | Status::Resource
        | Status::DevResource
        | Status::Again
        | Status::Offline
        | Status::IoErr => NbdError::Io,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enotsup_is_said_for_fast_zeroes_only_and_never_success_for_a_failure() {
        for status in Status::ALL {
            for fast in [false, true] {
                let error = error_of(status, fast);
                let fast_refused = fast && status == Status::NotSupp;
                assert_eq!(error == NbdError::NotSup, fast_refused, "{status:?}");
            }
        }
    }
}
