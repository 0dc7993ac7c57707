//! weir: the multi-queue block layer for user space, as a library.
#![forbid(unsafe_code)]
pub mod target;
pub mod units;
