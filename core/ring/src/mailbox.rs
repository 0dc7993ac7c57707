//! A mailbox for control messages: rare, ordered, and free to look at while empty.

use std::collections::VecDeque;

use crate::sync::{Alone, AtomicU64, Mutex, Ordering};

/// Messages for one owner from anybody. Looking costs one load while there are none.
#[derive(Debug)]
pub struct Mailbox<T> {
    waiting: Alone<AtomicU64>,
    messages: Mutex<VecDeque<T>>,
}

impl<T> Default for Mailbox<T> {
    fn default() -> Mailbox<T> {
        Mailbox { waiting: Alone(AtomicU64::new(0)), messages: Mutex::new(VecDeque::new()) }
    }
}

impl<T> Mailbox<T> {
    /// Puts a message behind the others. The owner's doorbell must be rung afterwards.
    ///
    /// # Panics
    /// When another thread panicked inside the mailbox's lock.
    pub fn post(&self, message: T) {
        let mut messages = self.messages.lock().expect("mailbox");
        messages.push_back(message);
        self.waiting.store(messages.len() as u64, Ordering::Release);
    }

    /// Whether a message is waiting.
    #[inline]
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Acquire) != 0
    }

    /// Takes the oldest message.
    ///
    /// # Panics
    /// When another thread panicked inside the mailbox's lock.
    pub fn take(&self) -> Option<T> {
        if !self.is_waiting() {
            return None;
        }
        let mut messages = self.messages.lock().expect("mailbox");
        let message = messages.pop_front();
        self.waiting.store(messages.len() as u64, Ordering::Release);
        message
    }
}
