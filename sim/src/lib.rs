//! The simulator: weir's own core in virtual time.
//!
//! A [`Host`] is processors, processes, devices and disks. Each process submits through a real
//! [`Submitter`](weir_queue::Submitter) of a real [`Device`](weir_queue::Device), each hard queue
//! is a real [`Lane`](weir_queue::Lane), and the disk is a model of `sim/disk`. Calls of the core
//! take no time by themselves: what they *told* is priced by a [`Profile`], and the processor that
//! made the call is busy for that long, or waits for a lock that another holds.
//!
//! Absent on purpose: any order of requests, which is the core's; clocks, threads, files.

#![forbid(unsafe_code)]

mod agenda;
mod build;
mod cpu;
mod drive;
mod driver;
mod figures;
pub mod fit;
mod heard;
mod host;
mod link;
mod lock;
mod midlayer;
mod nexus;
mod process;
pub mod profile;
mod san;
pub mod scene;
mod scsi;
mod single;
mod spec;
mod watch;

pub use cpu::CpuTime;
pub use figures::{Commands, Figures, KindFigures, Service};
pub use host::{Host, simulate, simulate_to_the_end};
pub use process::{Habit, Processes};
pub use profile::Profile;
pub use spec::{HostError, HostSpec, PortFault, PortFaultKind, Ports, San};
