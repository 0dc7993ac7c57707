//! Schedulers of the single-queue path.

pub mod cfq;
pub mod noop;
