//! queue

#![forbid(unsafe_code)]
