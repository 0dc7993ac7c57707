//! Priorities of a part of the I/Os.

use weir_bio::{Class, IoPrio};

use super::Section;
use crate::quantity::whole;

pub(super) fn class_of(value: &str) -> Result<Class, String> {
    Ok(match whole(value, 0..=3)? {
        1 => Class::RealTime,
        2 => Class::BestEffort,
        3 => Class::Idle,
        _ => Class::None,
    })
}

/// A value for reads and one for writes, or one for both.
fn of_both<T: Copy>(
    value: &str,
    read: impl Fn(&str) -> Result<T, String>,
) -> Result<[T; 2], String> {
    Ok(match value.split_once(',') {
        Some((reads, writes)) => [read(reads.trim())?, read(writes.trim())?],
        None => [read(value)?; 2],
    })
}

pub(super) fn percent(section: &mut Section, value: &str) -> Result<(), String> {
    let percent = of_both(value, |value| whole(value, 0..=100))?;
    for (part, percent) in section.job.urgent.iter_mut().zip(percent) {
        part.percent = percent as u8;
    }
    Ok(())
}

pub(super) fn class(section: &mut Section, value: &str) -> Result<(), String> {
    for (part, class) in section.job.urgent.iter_mut().zip(of_both(value, class_of)?) {
        part.ioprio = IoPrio::new(class, part.ioprio.level());
    }
    Ok(())
}

pub(super) fn level(section: &mut Section, value: &str) -> Result<(), String> {
    let level = of_both(value, |value| whole(value, 0..=7))?;
    for (part, level) in section.job.urgent.iter_mut().zip(level) {
        part.ioprio = IoPrio::new(part.ioprio.class(), level as u8);
    }
    Ok(())
}
