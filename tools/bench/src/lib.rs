//! Measuring: what the core itself costs, and what a workload gets from a target.
//!
//! CPU time per I/O comes first, because it survives a noisy machine. `unsafe` lives in [`alloc`]
//! alone, which counts heap allocations.

#![deny(unsafe_code)]

pub mod alloc;
pub mod compare;
pub mod core;
pub mod cpu;
pub mod job;
pub mod outcome;
pub mod rounds;
pub mod shared;
