//! weir: the multi-queue block layer for user space, as a library.

#![forbid(unsafe_code)]

pub mod open;
pub mod target;
pub mod units;

pub use open::{Error, Opened, open};
pub use target::{Backing, Target};
pub use weir_bio::{Bio, Buf, Data, Flags, GroupId, IoPrio, Limits, Nanos, Op, Status};
pub use weir_live::{Clock, Host, Unpark};
pub use weir_queue::{
    Bell, Completion, Config, Device, Lane, Latencies, QueueMode, Refused, Spread, Stats, Submitter,
};
