//! SCSI, sans-IO: bytes in, values out, and back.
//!
//! Every structure is encoded and decoded, so that the initiator and a simulated target use one
//! declaration. There is no socket, no clock and no thread, and no rule about when a command is
//! sent: that is the mid-layer's business.
//!
//! | module | what it has | source |
//! |---|---|---|
//! | [`command`], [`cdb`] | the commands and their CDBs | SPC-4, SBC-3 |
//! | [`codes`] | status, operation codes, additional sense codes | SAM-5, SPC-4 |
//! | [`sense`] | fixed and descriptor sense | SPC-4 |
//! | [`lun`], [`report_luns`] | addresses of logical units, and their list | SAM-5, SPC-4 |
//! | [`inquiry`], [`vpd`] | identity and VPD pages | SPC-4, SBC-3 |
//! | [`capacity`], [`mode`], [`unmap`] | size, caching page, ranges to deallocate | SBC-3, SPC-4 |
//! | [`alua`], [`reservation`], [`supported`] | port groups, reservations, commands | SPC-4 |
//! | [`limits`] | what a disk's pages mean, and the CDB for a range | rules of Linux' disk driver |
//! | [`decide`] | what becomes of a command by its status and sense | rules of Linux' mid-layer |
//!
//! # What a hostile target can do
//!
//! Get its answer refused. A length in the data is a claim: the smaller of the claim and of what
//! is there counts. Lists are walked where they lie and nothing is allocated by a length. A field
//! that the data ends before reads as zero, which in SCSI is "not reported"; where that would
//! decide something, as a sense key would, the decoder says [`WireError`].

#![forbid(unsafe_code)]

#[macro_use]
pub mod codes;
pub mod alua;
pub mod capacity;
pub mod cdb;
pub mod command;
pub mod decide;
pub mod inquiry;
pub mod limits;
pub mod lun;
pub mod mode;
pub mod report_luns;
pub mod reservation;
pub mod sense;
pub mod supported;
pub mod unmap;
pub mod vpd;
mod wire;

pub use cdb::{Cdb, InvalidCdb};
pub use codes::{AdditionalSense, Opcode, ScsiStatus};
pub use command::{CdbSize, ScsiCommand};
pub use lun::Lun;
pub use sense::{Sense, SenseKey};
pub use wire::WireError;
