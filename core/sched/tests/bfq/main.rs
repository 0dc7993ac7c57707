//! The numbered properties of `bfq` (the BFQ spec, A18) in virtual time.
//!
//! Devices: F is one request at a time at 100 MB/s without seeks; the disk and the flash disk are
//! those of the spec. Runs are 20 s of which the first 2 are dropped, with `low_latency=0` and a
//! queue for each process, unless a test says otherwise.

#![forbid(unsafe_code)]

#[path = "../bed/mod.rs"]
mod bed;
mod control;
mod fuzz;
mod raising;
mod rig;
mod shares;
mod sharing;
mod slots;
