//! Workloads on targets, and the cost of the core.
#![forbid(unsafe_code)]
