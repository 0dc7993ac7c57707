//! Measuring: what the core itself costs, and what a workload gets from a target.
//!
//! [`workload`] says which jobs run on which devices, [`engine`] runs them on threads and counts,
//! [`results`] puts the counts into the documents that tools read, [`compare`] runs variants in
//! turn. [`core`](mod@core) measures the queue core alone. CPU time per I/O comes first, because it
//! survives a noisy machine. `unsafe` lives in `core/alloc.rs`, which counts heap allocations.

#![deny(unsafe_code)]

pub mod arguments;
pub mod compare;
pub mod core;
pub mod cpu;
pub mod engine;
pub mod results;
pub mod rounds;
pub mod workload;
