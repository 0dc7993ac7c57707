//! Jobs on threads: I/Os are made up, handed to devices, waited for and counted.
//!
//! [`run`] gives each `worker` its clients and lanes; a `client` turns a workload into bios and
//! takes their ends; a [`tally`] has the counts of one thread. The choice of workloads and devices
//! is made in `workload`, and figures are derived in `results`.

mod alarm;
pub mod alone;
mod client;
pub(crate) mod commits;
mod log;
mod pace;
mod pool;
pub mod run;
pub(crate) mod seat;
pub mod tally;
mod trace;
mod used;
mod worker;
mod written;
