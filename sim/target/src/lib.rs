//! A simulated SCSI target, for what real ones do rarely, or never on demand: states of target
//! port groups, full task sets, unit attentions, slow and dead ports, answers that are lost,
//! writes that land late, medium errors, full thin stores, power cuts.
//!
//! [`Target`] is a state machine: commands go in, ends come out, and `now` comes with every call.
//! Its dice are seeded, so the same spec and the same calls give the same ends on every machine.
//! Commands are carried out when they end, in the order of their times; all of them are SIMPLE
//! tasks. A read, write or flush allocates nothing once memory was used before; the first write to
//! a page does, and so does the index of the journal.
//!
//! ```
//! use weir_bio::Nanos;
//! use weir_proto_scsi::{Lun, ScsiCommand, ScsiStatus};
//! use weir_sim_target::{Command, DataPlace, InitiatorId, PortId, Spec, Target, TaskTag};
//!
//! let spec = Spec::parse(
//!     r#"
//!     seed = 7
//!     [[lun]]
//!     number = 0
//!     size = "1GiB"
//!     speed = { latency = "80us", spread = "20us", bandwidth = "500MiB" }
//!     [[fault]]
//!     class = "write"
//!     skip = 100
//!     times = 1
//!     effect = { unanswered = { after = "5s" } }
//!     [[event]]
//!     at = "10s"
//!     action = { port = { id = 1, health = "up" } }
//!     "#,
//! )?;
//! let mut target = Target::new(spec)?;
//! let nexus = target.connect(PortId(1), InitiatorId(1), Nanos::ZERO).unwrap();
//! let cdb = ScsiCommand::TestUnitReady.encode().unwrap();
//! let (tag, cdb) = (TaskTag(0), cdb.bytes());
//! let command = Command { tag, lun: Lun::ZERO, cdb, data_out: &[], expected_in: 0 };
//! target.command(nexus, command, Nanos::ZERO).unwrap();
//! let now = target.wake_at().unwrap();
//! let end = target.next_end(now, &mut |_: DataPlace, _: &[u8]| {}).unwrap();
//! // The first command hears of the unit attention that a new nexus has.
//! assert_eq!(end.status, ScsiStatus::CHECK_CONDITION);
//! # Ok::<(), weir_sim_target::SpecError>(())
//! ```
//!
//! | file | what it has |
//! |---|---|
//! | `spec`, `fault`, `script` | what a target is made of, and what goes wrong when |
//! | `target`, `state` | commands in and ends out; task management; what happens from outside |
//! | `execute`, `access` | what keeps a command from being carried out, and the commands |
//! | `image` | blocks, the volatile cache, power cuts |
//! | `nexus`, `task`, `unit`, `reserve` | state of nexuses, commands, logical units |
//! | `journal` | what was done, and writes that landed too late |

#![forbid(unsafe_code)]

mod access;
mod execute;
mod fault;
mod image;
mod journal;
mod nexus;
mod read;
mod reserve;
mod script;
mod spec;
mod state;
mod target;
mod task;
mod unit;

pub use fault::{CommandClass, Effect, Fault};
pub use journal::{Deed, Entry, LunRange, StaleLanding};
pub use nexus::{InitiatorId, NexusId, PortId};
pub use script::{Action, Event, LunChange, PortHealth};
pub use spec::{GroupSpec, LunSpec, PortSpec, Spec, SpecError, Speed};
pub use state::Target;
pub use target::{
    Command, ConnectError, DataPlace, End, Managed, Management, NexusEnded, Residual, SenseBytes,
    Sink,
};
pub use task::{CommandNumber, TaskTag};
