//! The real clock, threads and reactors.
#![forbid(unsafe_code)]
