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

mod attributes;
mod bell;
mod budget;
mod command;
mod completion;
mod config;
mod device;
mod directory;
pub mod driver;
mod error;
pub mod event;
mod failures;
mod group;
mod grown;
mod hard;
mod home;
pub mod kind;
mod lane;
mod lanes;
mod legs;
mod mq;
mod notices;
mod order;
mod partition;
mod request;
pub mod rig;
mod schedulers;
mod settings;
mod shared;
mod snapshot;
mod split;
mod sq;
mod stats;
mod step;
mod submit;
mod tag_set;
mod tape;
mod target_port;
mod wbt;

pub use attributes::{DeviceAttribute, DeviceAttributes, RESCAN};
pub use bell::Bell;
pub use budget::Budget;
pub use command::{CDB_MAX, Command, CommandEnd, Detail, RefusedCommand, SENSE_MAX};
pub use completion::{Completion, Refused};
pub use config::{Config, QueueMode, Spread};
pub use device::Device;
pub use device::freeze::{Freezing, Frozen, Quiesced, Quiescing};
pub use device::offline::{Closing, Then};
pub use device::queues::{LaneAnswer, LaneChange, LaneHomes, Prepared, SettingQueues};
pub use device::reconfigure::Reconfiguring;
pub use device::recording::{BeginningRecording, LiveRecording, RecordingEnd};
pub use device::switch::Switching;
pub use driver::{
    Affinity, Batch, Cancel, ChangeListener, Done, Driver, DriverError, DriverQueue, EXTENTS_MAX,
    Extent, Partitions, Queues, Tag, UNTIL_KICKED, Unflushed, Waiter,
};
pub use error::{Error, Late, Wait};
pub use event::{Event, Listener, Place, Silent, Sink, What};
pub use failures::Failure;
pub use group::{
    CAPS_AGAIN_NS, Caps, GROUPS_MAX, GroupEntry, Groups, HeldBack, Member, Used, WEIGHT_DEFAULT,
    WEIGHT_MAX, WEIGHT_MIN,
};
pub use home::Home;
pub use home::alarms::Alarms;
pub use kind::{
    Backing, Identity, Keeps, MapControl, NoticeListener, OpenedBacking, PathSeen, Speaker,
    TargetKind, TargetOption, Written,
};
pub use lane::Lane;
pub use lanes::SUBMITTERS_MAX;
pub use legs::Legs;
pub use notices::Notices;
pub use partition::{
    PARTITION_SECTORS_MAX, PARTITIONS_MAX, POOL_SECTORS, PartitionGauge, PartitionGauges,
    partition_of, partition_start,
};
pub use request::Request;
pub use schedulers::Schedulers;
pub use settings::Settings;
pub use stats::{
    ClientTimes, Direction, Group, Histogram, LaneGauges, Latencies, QueueUse, Stats, TICK_NS,
    Tally, quantile_with_held,
};
pub use step::{Progress, Step, Watch};
pub use submit::payer::price;
pub use submit::submitter::Submitter;
pub use submit::submitter::patch::Kept;
pub use tag_set::TagSet;
pub use target_port::{Activation, PortAccess, PortListener, PortState, TargetPort};
pub use wbt::{WbtState, WbtTarget};
pub use weir_ring::{NoWake, Wake};
