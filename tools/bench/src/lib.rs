//! Measuring: what the core itself costs, and what a workload gets from a target.
//!
//! CPU time per I/O comes first, because it survives a noisy machine. `unsafe` lives in [`alloc`]
//! alone, which counts heap allocations.

#![deny(unsafe_code)]

mod alarm;
pub mod alloc;
pub mod alone;
pub mod check;
mod client;
mod commits;
pub mod compare;
pub mod conduct;
pub mod core;
pub mod cpu;
pub mod devices;
pub mod document;
mod groups;
pub mod mark;
pub mod outcome;
mod pace;
pub mod rounds;
pub mod run;
mod seat;
pub mod shared;
pub mod tables;
pub mod tally;
mod used;
mod worker;
