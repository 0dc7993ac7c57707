//! What the daemon is told: the configuration file and its checks.

#![forbid(unsafe_code)]

pub mod config;

pub use config::{Config, ConfigError, Disk, Export, Nbd};
