//! The error handler's ladder: what is asked of a target whose command does not end, and what
//! follows from the answers. Pure: time and answers go in, the next act comes out.
//!
//! | level | asks | at most |
//! |---|---|---|
//! | abort | ABORT TASK for each command whose time is up | 15 s |
//! | logical unit reset | LOGICAL UNIT RESET | 30 s |
//! | target reset | TARGET WARM RESET | 30 s |
//! | session reset | the connection is ended and made anew | 60 s |
//!
//! After each level the logical unit is tested with TEST UNIT READY, twice if the first fails. It
//! is well if the test succeeds and every command whose time was up has been handed over; else the
//! next level follows, and behind the last one the unit is taken offline. A deadline of the error
//! handler, if there is one, skips to the session reset.

use weir_bio::Nanos;

use crate::transport::ManagementAnswer;

/// Tests after a level.
const TESTS: u8 = 2;

/// A level of the ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The commands.
    Abort,
    /// The logical unit.
    Unit,
    /// The target.
    Target,
    /// The session.
    Session,
}

impl Level {
    /// How long it may take, nanoseconds. Open-iSCSI's time-outs.
    #[must_use]
    pub const fn time_ns(self) -> u64 {
        const SECOND: u64 = 1_000_000_000;
        match self {
            Level::Abort => 15 * SECOND,
            Level::Unit | Level::Target => 30 * SECOND,
            Level::Session => 60 * SECOND,
        }
    }

    /// It as a log line names it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Level::Abort => "abort",
            Level::Unit => "logical unit reset",
            Level::Target => "target reset",
            Level::Session => "session reset",
        }
    }

    const fn above(self) -> Option<Level> {
        match self {
            Level::Abort => Some(Level::Unit),
            Level::Unit => Some(Level::Target),
            Level::Target => Some(Level::Session),
            Level::Session => None,
        }
    }
}

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Ask for this.
    Ask(Level),
    /// Test the unit.
    Test,
    /// It is well.
    Finish,
    /// Nothing helped.
    GiveUp,
}

/// One climb of the ladder.
#[derive(Clone, Copy, Debug)]
pub struct Escalation {
    level: Level,
    tests: u8,
    /// From then on the session reset is next.
    hurry_at: Option<Nanos>,
}

impl Escalation {
    /// One that begins at `level`. `deadline_ns`: how long the levels below the session reset may
    /// take together.
    #[must_use]
    pub fn new(level: Level, deadline_ns: Option<u64>, now: Nanos) -> Escalation {
        Escalation { level, tests: 0, hurry_at: deadline_ns.map(|ns| now + ns) }
    }

    /// Where it is.
    #[must_use]
    pub fn level(&self) -> Level {
        self.level
    }

    /// The first act.
    #[must_use]
    pub fn begin(&self) -> Act {
        Act::Ask(self.level)
    }

    /// The target has answered.
    pub fn answered(&mut self, answer: ManagementAnswer, now: Nanos) -> Act {
        use ManagementAnswer as Answer;
        match (answer, self.level) {
            (Answer::Complete, _) | (Answer::NoTask, Level::Abort) => {
                self.tests = 0;
                Act::Test
            }
            _ => self.climb(now),
        }
    }

    /// The unit was tested; `stuck`: commands whose time was up are still with the transport, which
    /// no further test changes.
    pub fn tested(&mut self, ready: bool, stuck: bool, now: Nanos) -> Act {
        self.tests += 1;
        match (ready, stuck) {
            (true, false) => Act::Finish,
            (false, false) if self.tests < TESTS => Act::Test,
            _ => self.climb(now),
        }
    }

    fn climb(&mut self, now: Nanos) -> Act {
        let Some(above) = self.level.above() else { return Act::GiveUp };
        let hurries = self.hurry_at.is_some_and(|at| at <= now);
        self.level = if hurries { Level::Session } else { above };
        Act::Ask(self.level)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ManagementAnswer as Answer;

    const NOW: Nanos = Nanos(7);
    const LEVELS: [Level; 4] = [Level::Abort, Level::Unit, Level::Target, Level::Session];

    fn at(level: Level) -> Escalation {
        Escalation::new(level, None, NOW)
    }

    #[test]
    fn every_answer_at_every_level_leads_where_the_table_says() {
        let answers = [
            Answer::Complete,
            Answer::NoTask,
            Answer::NoLun,
            Answer::Unsupported,
            Answer::Failed,
            Answer::Late,
        ];
        for level in LEVELS {
            for answer in answers {
                let well =
                    answer == Answer::Complete || answer == Answer::NoTask && level == Level::Abort;
                let up = level.above().map_or(Act::GiveUp, Act::Ask);
                let wanted = if well { Act::Test } else { up };
                assert_eq!(at(level).answered(answer, NOW), wanted, "{answer:?} at {level:?}");
            }
        }
    }

    #[test]
    fn a_unit_that_fails_its_test_twice_is_taken_one_level_up() {
        for level in LEVELS {
            let mut climb = at(level);
            assert_eq!(climb.tested(false, false, NOW), Act::Test, "{level:?}");
            let up = level.above().map_or(Act::GiveUp, Act::Ask);
            assert_eq!(climb.tested(false, false, NOW), up, "{level:?}");
            // The next level has two tests again.
            if level != Level::Session {
                assert_eq!(climb.answered(Answer::Complete, NOW), Act::Test);
                assert_eq!(climb.tested(false, false, NOW), Act::Test);
            }
        }
    }

    #[test]
    fn a_command_that_stays_with_the_transport_takes_a_unit_that_is_ready_one_level_up() {
        assert_eq!(at(Level::Unit).tested(true, true, NOW), Act::Ask(Level::Target));
        assert_eq!(at(Level::Session).tested(true, true, NOW), Act::GiveUp);
        assert_eq!(at(Level::Unit).tested(true, false, NOW), Act::Finish);
    }

    #[test]
    fn past_the_deadline_the_session_reset_is_next() {
        let mut climb = Escalation::new(Level::Abort, Some(100), Nanos(0));
        assert_eq!(climb.answered(Answer::Late, Nanos(99)), Act::Ask(Level::Unit));
        assert_eq!(climb.answered(Answer::Late, Nanos(100)), Act::Ask(Level::Session));
        assert_eq!(climb.answered(Answer::Late, Nanos(200)), Act::GiveUp);
    }
}
