//! Workloads as pure, seeded generators: what a job asks next, never when it is told.
//!
//! The same generator feeds a live run and a simulated one.

#![forbid(unsafe_code)]

pub mod job;

pub use job::{Access, Direction, Generator, Job, JobError, Step};
