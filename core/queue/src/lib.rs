//! The queue core: everything between a bio and a driver.
//!
//! A [`Device`] is the control side. Each thread that submits has a [`Submitter`]; each hard queue
//! is a [`Lane`], turned by its home thread. Neither blocks, owns a clock or knows a thread: they
//! are given `now` and a [`Bell`] to ring.
//!
//! - multi-queue path: plug, soft queue (a ring to the lane), elevator if one is attached, hard
//!   queue; completions go to the submitter's inbox;
//! - single-queue path: plug, then one list under one lock.

#![forbid(unsafe_code)]

mod admit;
mod arrivals;
mod bell;
mod completion;
mod config;
mod device;
mod dispatcher;
pub mod driver;
mod elevator;
mod fence;
mod flush;
mod freeze;
mod group;
mod hard;
mod held;
mod lane;
mod magazines;
mod notices;
mod offline;
mod parked;
mod parts;
mod payer;
mod plug;
mod queues;
mod reconfigure;
mod reply;
mod request;
pub mod rig;
mod shared;
mod single;
mod soft;
mod split;
mod stats;
mod submitter;
mod switch;
mod tags;

pub use bell::Bell;
pub use completion::{Completion, Refused};
pub use config::{Config, Error, Late, QueueMode, Spread};
pub use device::Device;
pub use driver::{
    Batch, Cancel, Done, Driver, DriverError, DriverQueue, EXTENTS_MAX, Extent, Home, Queues, Tag,
    Waiter,
};
pub use freeze::{Freezing, Frozen, Progress, Quiesced, Quiescing, Step, Wait, Watch};
pub use group::{
    CAPS_AGAIN_NS, Caps, GROUPS_MAX, GroupEntry, Groups, Member, Used, WEIGHT_DEFAULT, WEIGHT_MAX,
    WEIGHT_MIN,
};
pub use held::HeldBack;
pub use lane::Lane;
pub use notices::Notices;
pub use offline::{Closing, Then};
pub use queues::{LaneAnswer, LaneChange, LaneHomes, Prepared, SettingQueues};
pub use reconfigure::{Parts, Reconfiguring};
pub use request::Request;
pub use shared::SUBMITTERS_MAX;
pub use stats::{Direction, Group, Histogram, LaneGauges, Latencies, Stats, TICK_NS, Tally};
pub use submitter::Submitter;
pub use switch::Switching;
pub use tags::TagSet;
