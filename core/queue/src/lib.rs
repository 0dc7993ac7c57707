//! The queue core.
#![forbid(unsafe_code)]
pub mod driver;
pub mod request;
pub mod rig;

pub use driver::{
    Batch, Cancel, Done, Driver, DriverError, DriverQueue, Extent, Home, Queues, Tag,
};
pub use request::Request;
