//! Schedulers of the multi-queue path.

pub mod bfq;
