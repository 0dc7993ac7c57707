//! The multi-queue block layer for user space.
#![forbid(unsafe_code)]
