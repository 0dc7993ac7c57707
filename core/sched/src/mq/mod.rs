//! Schedulers of the multi-queue path. `none` is the absence of one and has no module.

pub mod bfq;
pub mod deadline;
pub mod kyber;
