//! Notices of a driver for its user: each is told to the listener when it comes, and kept.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Notices kept: a server that comes and goes all day must not fill the memory.
const KEPT: usize = 64;

/// Called with each notice.
type Listener = Arc<dyn Fn(&str) + Send + Sync>;

/// The newest notices of a device.
#[derive(Debug, Default)]
pub struct Notices {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    kept: VecDeque<String>,
    listener: Option<Listener>,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.kept).finish()
    }
}

impl Notices {
    /// Adds one and tells the listener; the oldest makes room.
    pub fn add(&self, notice: String) {
        let mut state = self.lock();
        if state.kept.len() == KEPT {
            state.kept.pop_front();
        }
        state.kept.push_back(notice.clone());
        let listener = state.listener.clone();
        // The listener may take its time, or ask for the notices.
        drop(state);
        if let Some(tell) = listener {
            tell(&notice);
        }
    }

    /// Those kept, oldest first.
    #[must_use]
    pub fn all(&self) -> Vec<String> {
        self.lock().kept.iter().cloned().collect()
    }

    /// Tells `listener` each one from now on, in place of an earlier listener.
    pub fn listen(&self, listener: Listener) {
        self.lock().listener = Some(listener);
    }

    /// The same if there is no listener yet.
    pub fn listen_by_default(&self, listener: Listener) {
        self.lock().listener.get_or_insert(listener);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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

    #[test]
    fn a_listener_is_told_once_of_each_that_comes_after_it() {
        let notices = Arc::new(Notices::default());
        notices.add("early".to_owned());
        let heard = Arc::new(Mutex::new(Vec::new()));
        let (told, asked) = (Arc::clone(&heard), Arc::clone(&notices));
        notices.listen(Arc::new(move |notice| {
            told.lock().unwrap().push((notice.to_owned(), asked.all().len()));
        }));
        notices.add("late".to_owned());
        notices.add("later".to_owned());
        let expected = [("late".to_owned(), 2), ("later".to_owned(), 3)];
        assert_eq!(*heard.lock().unwrap(), expected);
    }
}
