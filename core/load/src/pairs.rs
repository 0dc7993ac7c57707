//! Trims that are each followed by a write of the same blocks.

use std::collections::VecDeque;

/// Blocks of a target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// What is being trimmed, and what was and is to be written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pairs {
    ready: VecDeque<Piece>,
    /// By token.
    trimming: Vec<Option<Piece>>,
    free: Vec<u16>,
}

impl Pairs {
    /// The token of a write.
    pub(crate) const WRITE: u16 = u16::MAX - 1;

    /// A trim has begun; its token.
    pub(crate) fn trimmed(&mut self, piece: Piece) -> u16 {
        let token = self.free.pop().unwrap_or_else(|| {
            self.trimming.push(None);
            (self.trimming.len() - 1) as u16
        });
        self.trimming[usize::from(token)] = Some(piece);
        token
    }

    /// An I/O has ended: after a trim its blocks can be written.
    pub(crate) fn ended(&mut self, token: u16) {
        if token == Pairs::WRITE {
            return;
        }
        let piece = self.trimming[usize::from(token)].take().expect("a trim ends once");
        self.ready.push_back(piece);
        self.free.push(token);
    }

    /// Whether the next I/O is a write.
    pub(crate) fn has_write(&self) -> bool {
        !self.ready.is_empty()
    }

    pub(crate) fn take_write(&mut self) -> Option<Piece> {
        self.ready.pop_front()
    }

    /// Whether a write will come once something has ended.
    pub(crate) fn are_trimming(&self) -> bool {
        self.trimming.len() > self.free.len()
    }
}
