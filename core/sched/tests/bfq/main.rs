//! The numbered properties of `bfq` (docs/behaviour/bfq.md, section 17) in virtual time.
//!
//! Devices: F is one request at a time at 100 MB/s without seeks; the disk and the flash disk are
//! those of the document. Runs are 20 s of which the first 2 are dropped, with `low_latency=0` and
//! a queue for each process, unless a test says otherwise.
//!
//! Property n of the document is held by the tests named `pn_...`:
//!
//! | file | properties |
//! |---|---|
//! | `shares` | 1 to 3 weights; 4, 5 bytes or requests; 6 trees; 7, 8 classes; 11 time; 16 async |
//! | `slots` | 9 and 10 budgets; 12, 13 and 14 idling; 15 returning in time |
//! | `raising` | 17 latency; 18 and 19 its end and length; 20 and 21 soft real time; 22 bursts |
//! | `sharing` | 23 and 24 queues of one stream |
//! | `control` | 25 peak rate; 26 tags; 27 strict guarantees; 28 tunables; 29 order in a queue |
//! | `fuzz` | 30 a million events |
//! | `runs` | batches against their parts |

#![forbid(unsafe_code)]

#[path = "../bed/mod.rs"]
mod bed;
mod control;
mod device;
mod fuzz;
mod injection;
mod raising;
mod rig;
mod runs;
mod shares;
mod sharing;
mod slots;
