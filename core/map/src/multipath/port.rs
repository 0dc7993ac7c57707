//! The SCSI side of paths, as the state machine needs it: the port group's state of each path, and
//! the activation of a path. Implemented outside; without it every port is as good as another.

/// Asymmetric access states of a target port group (SPC-4, table 35 "ASYMMETRIC ACCESS STATE").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Active, optimized.
    Optimized,
    /// Active, not optimized.
    NonOptimized,
    /// Standby.
    Standby,
    /// Unavailable.
    Unavailable,
    /// Depends on the block.
    BlockDependent,
    /// Offline.
    Offline,
    /// Between two states.
    Transitioning,
}

impl Access {
    /// The letter of listings.
    #[must_use]
    pub fn letter(self) -> char {
        match self {
            Access::Optimized => 'A',
            Access::NonOptimized => 'N',
            Access::Standby => 'S',
            Access::Unavailable => 'U',
            Access::BlockDependent => 'L',
            Access::Offline => 'O',
            Access::Transitioning => 'T',
        }
    }
}

/// The port of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// The state of its group.
    pub access: Access,
    /// The target prefers it.
    pub preferred: bool,
}

impl Port {
    /// Its priority: 50, 10, 5 or 1 by state, 80 more where it is preferred and not optimized (or
    /// `exclusive`).
    #[must_use]
    pub fn priority(self, exclusive: bool) -> u32 {
        let base = match self.access {
            Access::Optimized => 50,
            Access::NonOptimized => 10,
            Access::BlockDependent => 5,
            Access::Standby => 1,
            Access::Unavailable | Access::Offline | Access::Transitioning => 0,
        };
        let counts = self.preferred && (exclusive || self.access != Access::Optimized);
        base + if counts { 80 } else { 0 }
    }
}

/// How the activation of a path ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// It carries I/O.
    Done,
    /// The target is busy: another group may do.
    Busy,
    /// To be tried again, after the delay of the table.
    Retry,
    /// To be tried again at once.
    RetryNow,
    /// It cannot be.
    Failed,
}

/// What is known of the ports of a device's paths.
pub trait Ports: Send + Sync {
    /// The port of a path, by number; `None`: nothing is known. It does not wait.
    fn port(&self, path: usize) -> Option<Port>;

    /// Begins to activate a path. The end comes by
    /// [`Control::activated`](super::control::Control::activated), and may come from inside.
    fn activate(&self, path: usize);
}
