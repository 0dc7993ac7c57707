//! Setters of the options about what is written, and how it is checked.

use super::Section;
use crate::job::{Job, Verify};
use crate::pattern;
use crate::quantity::size;

/// The patterns as they are read; empty where none is given.
#[derive(Clone, Debug, Default)]
pub(super) struct Patterns {
    verified: Vec<u8>,
    other: Vec<u8>,
}

impl Patterns {
    /// What the job writes.
    pub(super) fn set(self, job: &mut Job) -> Result<(), String> {
        let Patterns { verified, other } = self;
        if job.verify.is_some() && job.changes() && verified.is_empty() && !other.is_empty() {
            return Err(String::from(
                "buffer_pattern with verify: verify_pattern is what verified blocks hold",
            ));
        }
        let pattern = match job.verify {
            None if !other.is_empty() => other,
            _ => verified,
        };
        if !pattern.is_empty() {
            job.pattern = pattern;
        }
        Ok(())
    }
}

pub(super) fn verify(section: &mut Section, value: &str) -> Result<(), String> {
    section.job.verify = Some(match value {
        "crc32c" | "crc32c-intel" => Verify::Crc32c,
        "md5" => Verify::Md5,
        "sha256" => Verify::Sha256,
        "pattern" => Verify::Pattern,
        "meta" => Verify::Meta,
        _ => return Err(String::from("takes crc32c, md5, sha256, pattern or meta")),
    });
    Ok(())
}

pub(super) fn interval(section: &mut Section, value: &str) -> Result<(), String> {
    section.job.verify_interval = size(value)?;
    Ok(())
}

pub(super) fn backlog(section: &mut Section, which: usize, value: &str) -> Result<(), String> {
    let count = u32::try_from(size(value)?);
    let count = count.map_err(|_| format!("not a whole number in 0..={}", u32::MAX))?;
    section.job.verify_backlog[which] = count;
    Ok(())
}

pub(super) fn verify_pattern(section: &mut Section, value: &str) -> Result<(), String> {
    section.content.verified = pattern::parse(value)?;
    Ok(())
}

pub(super) fn buffer_pattern(section: &mut Section, value: &str) -> Result<(), String> {
    section.content.other = pattern::parse(value)?;
    Ok(())
}
