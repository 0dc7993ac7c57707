//! Simulated SCSI targets as disks: [`weir_sim_target`] below the SCSI mid-layer.
//!
//! A [`SharedTarget`] is one target behind a lock. Its [`SimTransport`]s are the initiator's side:
//! each leads to one target port, and has a nexus of its own for each hardware queue. So several
//! disks can be several logical units of a target, or several paths to one.
//!
//! | file | what it has |
//! |---|---|
//! | `shared` | the target, its time, and the commands of all nexuses |
//! | `link` | the way to a port, the connection of one nexus, and how long they wait |
//! | `session` | a connection is lost, reinstated, given up |
//! | `port` | one hardware queue: commands on their way to a nexus and back |
//! | `transport` | the control side |
//! | `kind` | the target string, and the targets that this process has open |

mod kind;
mod link;
mod port;
mod session;
mod shared;
mod transport;

pub use kind::KIND;
pub use link::{Patience, Route};
pub use shared::{SharedTarget, TargetTime};
pub use transport::SimTransport;
pub use weir_sim_target::{PortId, Spec, SpecError, Target as SimTarget};
