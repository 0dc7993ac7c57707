//! What bfq and cfq share, the two that give each submitter its part of the device: how far apart
//! requests are, how long a submitter thinks, whether the device queues by itself. Nothing here
//! knows either of them.

pub mod nearest;
pub mod queueing;
pub mod seek_history;
pub mod sorted;
pub mod think_time;
