//! Schedulers of the single-queue path.

pub mod deadline;
pub mod noop;
