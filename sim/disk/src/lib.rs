//! Models of disks: when a command ends, from what is known of a device.
//!
//! [`Disk`] takes commands and hands out their ends; time is passed in, and data stay outside. The
//! same [`Spec`], seed and calls give the same ends on every machine: all times are whole
//! nanoseconds, chance is [`Prng`](weir_bio::Prng), and no function of a platform's mathematics
//! library is used but the square root, which IEEE 754 defines exactly.
//!
//! | kind | what bounds it |
//! |---|---|
//! | [`Fixed`] | commands at once, and the time of each; a link; a jump to another place |
//! | [`Measured`] | times that were measured, by commands at once |
//! | [`Ssd`] | controller, channels, dies; a write cache; blocks that are collected |
//! | [`Hdd`] | one set of heads: seeks, turns, zones, skew; read-ahead, a write cache |
//! | [`Array`] | front ports, an engine, a cache with a hit ratio, disks behind |
//!
//! Absent on purpose: data, errors, clocks, files, and the path to the disk.

#![forbid(unsafe_code)]

mod array;
mod disk;
mod ends;
mod fixed;
mod hdd;
mod machine;
pub mod measured;
mod presets;
mod read;
mod servers;
mod spec;
mod ssd;

pub use array::Array;
pub use disk::Disk;
pub use fixed::Fixed;
pub use hdd::{Hdd, Zone};
pub use machine::{End, Job};
pub use measured::Measured;
pub use presets::{PRESETS, Preset};
pub use spec::{Kind, Spec, SpecError};
pub use ssd::Ssd;
