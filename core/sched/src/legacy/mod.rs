//! Schedulers of the single-queue path, and the list they dispatch into.

pub mod cfq;
pub mod deadline;
pub mod drain;
pub mod noop;
