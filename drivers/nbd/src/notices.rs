//! What a person should be told, kept until somebody asks.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Notices kept; a server that comes and goes all day must not fill the memory.
const KEPT: usize = 64;

/// The newest notices of a device.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    kept: Mutex<VecDeque<String>>,
}

impl Notices {
    /// Adds one; the oldest makes room.
    pub(crate) fn add(&self, notice: String) {
        let mut kept = self.lock();
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(notice);
    }

    /// Those kept, oldest first.
    pub(crate) fn all(&self) -> Vec<String> {
        self.lock().iter().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<String>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_notice_makes_room() {
        let notices = Notices::default();
        for count in 0..=KEPT {
            notices.add(count.to_string());
        }
        let all = notices.all();
        assert_eq!((all.len(), all[0].as_str()), (KEPT, "1"));
    }
}
