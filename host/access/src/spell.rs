//! Failures that come again and again, told once.

use std::time::Duration;

/// A spell of failures is over when there was none for so long.
const QUIET: Duration = Duration::from_secs(60);

/// A spell of failures, as long as the system is short of something: asked again and again, it
/// fails each time.
#[derive(Debug, Default)]
pub struct Spell {
    last: Option<Duration>,
}

impl Spell {
    /// There is another failure, at a time that counts from anywhere; whether a spell begins with
    /// it.
    pub fn begins(&mut self, now: Duration) -> bool {
        let last = self.last.replace(now);
        last.is_none_or(|last| now.saturating_sub(last) >= QUIET)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spell_begins_once_and_again_after_a_minute_without_a_failure() {
        let mut spell = Spell::default();
        let mut at = |second| spell.begins(Duration::from_secs(second));
        assert!(at(0));
        assert!(!(1..500).any(&mut at), "as long as it lasts");
        assert!(!at(499 + 59) && at(558 + 60) && !at(619));
    }
}
