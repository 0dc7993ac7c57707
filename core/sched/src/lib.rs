//! sched

#![forbid(unsafe_code)]
