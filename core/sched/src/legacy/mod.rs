//! Schedulers of the single-queue path.

pub mod noop;
