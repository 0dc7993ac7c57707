//! The SCSI mid-layer: logical units of a target as devices, over any [transport].
//!
//! It has no clock, no socket and no thread: time comes from its caller, commands go to a
//! [`Transport`], and so the simulator can turn it.

#![forbid(unsafe_code)]

pub mod transport;

pub use transport::{
    Adapter, Asked, Asker, Command, Delivered, Direction, Ends, Management, ManagementAnswer, Port,
    Refusal, Transport,
};
