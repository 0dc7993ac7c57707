//! The SCSI mid-layer: logical units of a target as devices, over any [transport].
//!
//! It has no clock, no socket and no thread: time comes from its caller, commands go to a
//! [`Transport`], and so the simulator can turn it.
//!
//! | part | does |
//! |---|---|
//! | [`Host`] | one transport: its tags, ports and slots, and the units behind it |
//! | [`Unit`] | a logical unit as a driver: limits, depth, state, counters |
//! | [`Probe`] | identifies a unit |
//! | carrier | a port with what it carries: sends, reaps, judges, recovers |
//! | places, depth | how many commands a unit may have, and how that follows the target |
//! | escalation | the error handler's ladder |
//!
//! # Life of a command
//!
//! A request becomes a CDB in the lane of its unit and takes the slot of its driver tag, which no
//! other command of the host has. A plain success is answered in the reap that finds it. Every
//! other end is judged by the tables of [`weir_proto_scsi::decide`]: the request ends, or the
//! mid-layer sends it again with the same tag and memory, or it is handed back to the core because
//! the unit is busy, which frees its tag and its place. One that gets no answer is aborted; see
//! [`escalation`] for what follows if that does not help. A request is answered only when its
//! command can change no block any more.

#![forbid(unsafe_code)]

mod attributes;
mod carrier;
mod counters;
pub mod depth;
mod disk;
pub mod escalation;
mod host;
mod inbox;
mod lane;
mod limits;
mod places;
mod port_view;
pub mod probe;
mod shared;
mod slot;
mod translate;
pub mod transport;
mod unit;
mod unit_port;
mod units;

pub use attributes::attributes;
pub use counters::Counts;
pub use depth::Ramp;
pub use disk::{Unit, UnitOptions};
pub use host::Host;
pub use probe::{Access, Facts, LunProbe, Probe};
pub use shared::HostOptions;
pub use transport::{
    Adapter, Asked, Asker, Command, Delivered, Direction, Ends, Management, ManagementAnswer, Port,
    Refusal, Transport,
};
pub use unit::{UnitState, Wish};
