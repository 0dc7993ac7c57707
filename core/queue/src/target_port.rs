//! The target port behind a driver: the access state of its group, as a multipath device above has
//! to know it, and its activation. SCSI's asymmetric logical unit access, in words that need no
//! SCSI.

use std::sync::Arc;

use weir_bio::Nanos;

/// Asymmetric access states of a target port group (SPC-4, table 35 "ASYMMETRIC ACCESS STATE").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortAccess {
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

/// The state of a target port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortState {
    /// The state of its group.
    pub access: PortAccess,
    /// The target prefers its group.
    pub preferred: bool,
}

/// How the activation of a port ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// It carries I/O.
    Done,
    /// The target is busy: another group may do.
    Busy,
    /// To be tried again, after a delay.
    Retry,
    /// To be tried again at once.
    RetryNow,
    /// It cannot be.
    Failed,
}

/// The target port that a driver's requests pass.
///
/// # Contract
/// No call waits, and each may be made by any thread. What they begin, a lane of the device goes on
/// with; a driver without a lane says [`Activation::Failed`]. Each [`activate`](Self::activate)
/// that is begun while none is under way ends with one [`PortListener::activated`].
pub trait TargetPort: Send + Sync {
    /// The state as it was heard of last; `None`: nothing is known.
    fn state(&self) -> Option<PortState>;

    /// Has the target asked for the state. A change is told.
    fn refresh(&self, now: Nanos);

    /// Begins to have the port carry I/O. The end is told, and may be told from inside.
    fn activate(&self, now: Nanos);

    /// Tells `listener` from now on, and no other.
    fn listen(&self, listener: Arc<dyn PortListener>);
}

/// Hears of a [`TargetPort`], on the thread that turns the lane which heard of it, or inside of the
/// call that it made. It holds no lock of the driver.
pub trait PortListener: Send + Sync {
    /// The state has changed: [`TargetPort::state`] has it.
    fn changed(&self, now: Nanos);

    /// An activation has ended.
    fn activated(&self, how: Activation, now: Nanos);
}
