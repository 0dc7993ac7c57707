//! The queue core.
#![forbid(unsafe_code)]
pub mod driver;
pub mod request;

pub use driver::{
    Batch, Cancel, Done, Driver, DriverError, DriverQueue, Extent, Home, Queues, Tag,
};
pub use request::Request;
