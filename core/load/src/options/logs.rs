//! Setters of the options about logs.

use super::{Section, bounded};
use crate::job::RUNTIME_MAX;
use crate::logs::{Logs, Told};

pub(super) fn window(section: &mut Section, value: &str) -> Result<(), String> {
    section.job.logs.window_ns = bounded(value, 1_000_000, RUNTIME_MAX)?;
    Ok(())
}

pub(super) fn told(section: &mut Section, value: &str) -> Result<(), String> {
    section.job.logs.told = match value {
        "avg" | "0" => Told::Average,
        "max" | "1" => Told::Most,
        "both" => Told::Both,
        _ => return Err(String::from("takes avg, max or both")),
    };
    Ok(())
}

/// Options of logs that need one another.
pub(super) fn check(logs: &Logs) -> Result<(), String> {
    if logs.issue_time && !(logs.latency.is_some() && logs.offset) {
        return Err(String::from("log_issue_time needs write_lat_log and log_offset"));
    }
    Ok(())
}
