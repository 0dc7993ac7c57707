//! A mailbox for control messages: rare, ordered, and free to look at while empty.

use std::collections::VecDeque;

use crate::sync::{Alone, AtomicU64, Mutex, Ordering};

/// Messages for one owner from any thread. Looking costs one load while there are none.
#[derive(Debug)]
pub struct Mailbox<T> {
    waiting: Alone<AtomicU64>,
    /// `None` once its owner has gone.
    messages: Mutex<Option<VecDeque<T>>>,
}

impl<T> Default for Mailbox<T> {
    fn default() -> Mailbox<T> {
        Mailbox { waiting: Alone(AtomicU64::new(0)), messages: Mutex::new(Some(VecDeque::new())) }
    }
}

impl<T> Mailbox<T> {
    /// Puts a message behind the others. The owner's doorbell must be rung afterwards. One for an
    /// owner that has gone is dropped.
    ///
    /// # Panics
    /// When another thread panicked inside the mailbox's lock.
    pub fn post(&self, message: T) {
        // A message that comes back is dropped here, outside the lock.
        drop(self.offer(message));
    }

    /// As [`post`](Mailbox::post).
    ///
    /// # Errors
    /// The message, when the owner has gone.
    ///
    /// # Panics
    /// As [`post`](Mailbox::post).
    pub fn offer(&self, message: T) -> Result<(), T> {
        let mut held = self.messages.lock().expect("mailbox");
        let Some(messages) = held.as_mut() else { return Err(message) };
        messages.push_back(message);
        self.waiting.store(messages.len() as u64, Ordering::Release);
        Ok(())
    }

    /// Closes it for new messages. Returns those that were not taken.
    ///
    /// # Panics
    /// When another thread panicked inside the mailbox's lock.
    pub fn close(&self) -> VecDeque<T> {
        let mut held = self.messages.lock().expect("mailbox");
        self.waiting.store(0, Ordering::Release);
        held.take().unwrap_or_default()
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
        let mut held = self.messages.lock().expect("mailbox");
        let messages = held.as_mut()?;
        let message = messages.pop_front();
        self.waiting.store(messages.len() as u64, Ordering::Release);
        message
    }

    /// Takes the oldest message if it is of a kind: `Ok` of `kind` is what is taken of it, `Err` is
    /// put back.
    ///
    /// # Panics
    /// As [`take`](Mailbox::take).
    pub fn take_kind<K>(&self, kind: impl FnOnce(T) -> Result<K, T>) -> Option<K> {
        if !self.is_waiting() {
            return None;
        }
        let mut held = self.messages.lock().expect("mailbox");
        let messages = held.as_mut()?;
        let taken = match kind(messages.pop_front()?) {
            Ok(taken) => Some(taken),
            Err(message) => {
                messages.push_front(message);
                None
            }
        };
        self.waiting.store(messages.len() as u64, Ordering::Release);
        taken
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_closed_mailbox_gives_back_what_it_held_and_what_comes_later() {
        let mailbox = Mailbox::default();
        (0..3).for_each(|n| mailbox.post(n));
        assert_eq!(mailbox.take(), Some(0));
        let odd = |n: i32| if n % 2 == 1 { Ok(-n) } else { Err(n) };
        assert_eq!((mailbox.take_kind(odd), mailbox.take_kind(odd)), (Some(-1), None));
        assert!(mailbox.is_waiting());
        mailbox.post(5);
        assert_eq!(mailbox.close(), [2, 5]);
        assert_eq!((mailbox.offer(3), mailbox.take(), mailbox.is_waiting()), (Err(3), None, false));
        assert_eq!(mailbox.close(), []);
    }
}
