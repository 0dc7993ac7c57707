//! Measuring: what the core itself costs, and what a workload gets from a target.
//!
//! CPU time per I/O comes first, because it survives a noisy machine. `unsafe` lives in [`alloc`]
//! alone, which counts heap allocations.

#![deny(unsafe_code)]

pub mod alloc;
pub mod alone;
pub mod check;
mod client;
pub mod compare;
pub mod conduct;
pub mod core;
pub mod cpu;
mod devices;
pub mod document;
pub mod outcome;
mod pace;
pub mod rounds;
pub mod run;
mod seat;
pub mod shared;
pub mod tables;
pub mod tally;
mod worker;
