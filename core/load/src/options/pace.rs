//! Setters of the options about when I/Os begin, and how many together.

use super::{SECOND, Section, bounded};
use crate::job::{DEPTH, LOOPS, RUNTIME_MAX};
use crate::order::WEIGHT_MAX;
use crate::quantity::{amount, time, whole};

const MICROSECOND: u64 = 1000;

pub(super) fn io_size(section: &mut Section, value: &str) -> Result<(), String> {
    let moved = amount(value)?;
    if moved == crate::Amount::Bytes(0) {
        return Err(String::from("moves nothing"));
    }
    section.job.io_size = Some(moved);
    Ok(())
}

pub(super) fn loops(section: &mut Section, value: &str) -> Result<(), String> {
    section.job.loops = whole(value, LOOPS)? as u32;
    Ok(())
}

pub(super) fn start_delay(section: &mut Section, value: &str) -> Result<(), String> {
    let (least, most) = value.split_once('-').unwrap_or((value, value));
    let [least, most] = [bounded(least, SECOND, RUNTIME_MAX)?, bounded(most, SECOND, RUNTIME_MAX)?];
    if least > most {
        return Err(String::from("begins above its end"));
    }
    section.job.start_delay_ns = [least, most];
    Ok(())
}

pub(super) fn think_time(section: &mut Section, value: &str) -> Result<(), String> {
    section.job.thinking.ns = bounded(value, MICROSECOND, RUNTIME_MAX)?;
    Ok(())
}

pub(super) fn think_blocks(section: &mut Section, value: &str) -> Result<(), String> {
    section.job.thinking.ios = whole(value, 1..=4_294_967_295)? as u32;
    Ok(())
}

pub(super) fn think_blocks_type(section: &mut Section, value: &str) -> Result<(), String> {
    section.job.thinking.from_issue = match value {
        "complete" => false,
        "issue" => true,
        _ => return Err(String::from("takes complete or issue")),
    };
    Ok(())
}

pub(super) fn think_io_time(section: &mut Section, value: &str) -> Result<(), String> {
    section.job.thinking.io_ns = bounded(value, SECOND, RUNTIME_MAX)?;
    Ok(())
}

pub(super) fn think_spin(_: &mut Section, value: &str) -> Result<(), String> {
    match time(value, MICROSECOND)? {
        0 => Ok(()),
        _ => Err(String::from("takes 0: a thread of weir has other clones to serve meanwhile")),
    }
}

pub(super) fn batch(section: &mut Section, value: &str) -> Result<(), String> {
    // As in fio, 0 is the whole depth.
    section.job.batching.submit = match whole(value, 0..=*DEPTH.end())? {
        0 => u16::MAX,
        count => count as u16,
    };
    Ok(())
}

pub(super) fn batch_complete(section: &mut Section, value: &str) -> Result<(), String> {
    section.job.batching.complete = whole(value, 0..=*DEPTH.end())?.max(1) as u16;
    Ok(())
}

pub(super) fn batch_complete_max(section: &mut Section, value: &str) -> Result<(), String> {
    whole(value, 0..=*DEPTH.end())?;
    section.notes.push(format!(
        "iodepth_batch_complete_max={value}: weir takes all that has ended, and begins as many"
    ));
    Ok(())
}

pub(super) fn depth_low(section: &mut Section, value: &str) -> Result<(), String> {
    section.job.batching.low = whole(value, DEPTH)? as u16;
    Ok(())
}

pub(super) fn flow(section: &mut Section, value: &str) -> Result<(), String> {
    section.job.flow.weight = whole(value, 0..=WEIGHT_MAX)? as u32;
    Ok(())
}

pub(super) fn flow_sleep(section: &mut Section, value: &str) -> Result<(), String> {
    section.job.flow.sleep_ns = bounded(value, MICROSECOND, RUNTIME_MAX)?;
    Ok(())
}
