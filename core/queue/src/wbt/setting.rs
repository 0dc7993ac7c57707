//! The setting of the write-back throttle: `wbt_lat_usec` of the tree.

use crate::error::{Error, invalid};

const NS_PER_US: u64 = 1000;

/// Whether writes are throttled, and whether a user said so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WbtState {
    /// As every disk begins.
    OnDefault,
    /// A user set the target.
    OnManual,
    /// The scheduler does without, and it comes back with another.
    OffDefault,
    /// A user switched it off.
    OffManual,
}

/// The latency that the write-back throttle keeps reads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WbtTarget {
    us: u64,
    state: WbtState,
}

impl WbtTarget {
    /// The highest target, us.
    pub const US_MAX: u64 = u64::MAX / NS_PER_US;

    /// Of a disk that throttles no writes.
    pub const OFF: WbtTarget = WbtTarget { us: 0, state: WbtState::OffManual };

    /// The default of a disk, us: 2 ms, and 75 ms where seeks cost time.
    #[must_use]
    pub const fn default_us(rotational: bool) -> u64 {
        if rotational { 75_000 } else { 2_000 }
    }

    /// Of a disk that begins: as stated, or by default.
    ///
    /// # Errors
    /// A target above [`US_MAX`](WbtTarget::US_MAX).
    pub fn first(stated_us: Option<u64>, rotational: bool) -> Result<WbtTarget, Error> {
        let us = WbtTarget::default_us(rotational);
        let mut target = WbtTarget { us, state: WbtState::OnDefault };
        if let Some(us) = stated_us {
            target.check(us)?;
            target.take(us);
        }
        Ok(target)
    }

    /// As a user says, us; 0 is off. The target that there is already changes nothing, also while
    /// a scheduler has it switched off.
    ///
    /// # Errors
    /// A target above [`US_MAX`](WbtTarget::US_MAX).
    pub fn write(&mut self, us: u64) -> Result<(), Error> {
        self.check(us)?;
        if us != self.us {
            self.take(us);
        }
        Ok(())
    }

    fn check(self, us: u64) -> Result<(), Error> {
        if us > WbtTarget::US_MAX {
            return invalid(format!("wbt_lat_usec={us} is outside 0..={}", WbtTarget::US_MAX));
        }
        Ok(())
    }

    fn take(&mut self, us: u64) {
        self.us = us;
        self.state = if us == 0 { WbtState::OffManual } else { WbtState::OnManual };
    }

    /// Whether writes are throttled.
    #[must_use]
    pub fn is_on(&self) -> bool {
        matches!(self.state, WbtState::OnDefault | WbtState::OnManual)
    }

    /// Whether it is on, and why.
    #[must_use]
    pub fn state(&self) -> WbtState {
        self.state
    }

    /// The target as the tree shows it, us: 0 while it is off.
    #[must_use]
    pub fn us(&self) -> u64 {
        if self.is_on() { self.us } else { 0 }
    }

    pub(crate) fn ns(&self) -> u64 {
        self.us() * NS_PER_US
    }

    /// The same beside this scheduler.
    #[must_use]
    pub fn beside(self, scheduler: &str) -> WbtTarget {
        // bfq throttles writes itself, by the shares of their queues.
        let state = match (self.state, scheduler == "bfq") {
            (WbtState::OnDefault, true) => WbtState::OffDefault,
            (WbtState::OffDefault, false) => WbtState::OnDefault,
            (state, _) => state,
        };
        WbtTarget { state, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use WbtState::{OffDefault, OffManual, OnDefault, OnManual};

    /// As Linux 6.18 shows it of a loop device: `enabled` of its debugfs, and `wbt_lat_usec`.
    #[test]
    fn bfq_takes_a_default_throttle_away_and_gives_it_back_and_a_manual_one_stays() {
        enum Do {
            Write(u64),
            Scheduler(&'static str),
        }
        use Do::{Scheduler, Write};
        type Steps = [(Do, WbtState, u64)];
        let table: &[(&Steps, &str)] = &[
            (
                &[
                    (Scheduler("bfq"), OffDefault, 0),
                    (Scheduler("kyber"), OnDefault, 2000),
                    (Write(2000), OnDefault, 2000),
                    (Scheduler("bfq"), OffDefault, 0),
                    (Write(2000), OffDefault, 0),
                    (Scheduler("none"), OnDefault, 2000),
                ],
                "the same target changes nothing",
            ),
            (
                &[
                    (Scheduler("bfq"), OffDefault, 0),
                    (Write(0), OffManual, 0),
                    (Scheduler("none"), OffManual, 0),
                    (Write(75_000), OnManual, 75_000),
                    (Scheduler("bfq"), OnManual, 75_000),
                    (Scheduler("none"), OnManual, 75_000),
                ],
                "manual ones stick",
            ),
            (
                &[(Write(0), OffManual, 0), (Write(0), OffManual, 0), (Write(7), OnManual, 7)],
                "off and on",
            ),
        ];
        for (steps, what) in table {
            let mut target = WbtTarget::first(None, false).unwrap();
            for (place, (step, state, us)) in steps.iter().enumerate() {
                match step {
                    Write(us) => target.write(*us).unwrap(),
                    Scheduler(name) => target = target.beside(name),
                }
                assert_eq!((target.state(), target.us()), (*state, *us), "{what}, step {place}");
            }
        }
    }

    #[test]
    fn a_target_beyond_the_clock_is_refused_and_changes_nothing() {
        let mut target = WbtTarget::first(Some(5), true).unwrap();
        assert_eq!((target.state(), target.us()), (OnManual, 5));
        let beyond = WbtTarget::US_MAX + 1;
        let refused = target.write(beyond).unwrap_err().to_string();
        assert!(refused.contains("outside 0..=18446744073709551"), "{refused}");
        assert_eq!(target.us(), 5);
        target.write(WbtTarget::US_MAX).unwrap();
        assert_eq!(target.ns(), u64::MAX / 1000 * 1000);
        WbtTarget::first(Some(beyond), true).unwrap_err();
        assert_eq!(WbtTarget::first(None, true).unwrap().us(), 75_000);
    }
}
