//! Setters of the options about where I/O goes.

use super::Section;
use crate::Amount;
use crate::engine::Engine;
use crate::job::{Access, Direction, Job};
use crate::order::Strides;
use crate::quantity::{amount, size, yes};
use crate::sizes::Sizes;

/// A pattern, and behind it what is left out between two I/Os.
pub(super) fn rw(section: &mut Section, value: &str) -> Result<(), String> {
    use Access::{Random, Sequential};
    use Direction::{Mixed, Read, Trim, TrimWrite, Write};
    let job = &mut section.job;
    let (pattern, step) = value.split_once(':').map_or((value, None), |(p, s)| (p, Some(s)));
    (job.access, job.direction) = match pattern {
        "read" => (Sequential, Read),
        "write" => (Sequential, Write),
        "randread" => (Random, Read),
        "randwrite" => (Random, Write),
        "rw" | "readwrite" => (Sequential, Mixed),
        "randrw" => (Random, Mixed),
        "trim" => (Sequential, Trim),
        "randtrim" => (Random, Trim),
        "trimwrite" => (Sequential, TrimWrite),
        "randtrimwrite" => (Random, TrimWrite),
        _ => {
            return Err(String::from(
                "takes read, write, randread, randwrite, rw, randrw, trim, randtrim, trimwrite or \
                 randtrimwrite",
            ));
        }
    };
    job.step = match (step, job.access) {
        (None, _) => 0,
        (Some(_), Random) => {
            return Err(String::from("what is behind the colon is for sequential I/O"));
        }
        (Some(step), Sequential) => match step.strip_prefix('-') {
            Some(back) => -(size(back)? as i64),
            None => size(step)? as i64,
        },
    };
    Ok(())
}

pub(super) fn offset_increment(section: &mut Section, value: &str) -> Result<(), String> {
    section.job.offset_increment = amount(value)?;
    Ok(())
}

pub(super) fn align(section: &mut Section, value: &str) -> Result<(), String> {
    section.job.align = match size(value)? {
        0 => None,
        bytes => Some(bytes),
    };
    Ok(())
}

pub(super) fn no_map(section: &mut Section, value: &str) -> Result<(), String> {
    section.job.map = !yes(value)?;
    Ok(())
}

pub(super) fn generator(section: &mut Section, value: &str) -> Result<(), String> {
    match value {
        // An LFSR comes to no place twice, whether or not a map is kept.
        "lfsr" => section.covers = true,
        "tausworthe" | "tausworthe64" => section.covers = false,
        _ => return Err(String::from("takes tausworthe, lfsr or tausworthe64")),
    }
    section.notes.push(format!("random_generator={value}: weir's own generator draws"));
    Ok(())
}

pub(super) fn zone_mode(section: &mut Section, value: &str) -> Result<(), String> {
    section.zones.mode = match value {
        "none" => Some(false),
        "strided" => Some(true),
        "zbd" => Some(false),
        _ => return Err(String::from("takes none, strided or zbd")),
    };
    section.zones.of_device = value == "zbd";
    Ok(())
}

pub(super) fn zone_bytes(section: &mut Section, value: &str) -> Result<(), String> {
    section.zones.bytes = Some(size(value)?);
    Ok(())
}

pub(super) fn zone_range(section: &mut Section, value: &str) -> Result<(), String> {
    section.zones.range = Some(size(value)?);
    Ok(())
}

pub(super) fn zone_skip(section: &mut Section, value: &str) -> Result<(), String> {
    section.zones.skip = Some(size(value)?);
    Ok(())
}

pub(super) fn engine(section: &mut Section, value: &str) -> Result<(), String> {
    let engine = Engine::of(value)?;
    section.notes.push(engine.note(value));
    section.engine = Some(engine);
    Ok(())
}

pub(super) fn file_size(section: &mut Section, value: &str) -> Result<(), String> {
    if value.contains('-') {
        return Err(String::from("takes one size: files of random sizes are none of a device"));
    }
    section.file_size = Some(size(value)?);
    Ok(())
}

/// The zones as they are read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Zones {
    /// Whether they are strided, if that is said.
    mode: Option<bool>,
    /// Whether they are those of a device, which are conventional here.
    of_device: bool,
    bytes: Option<u64>,
    range: Option<u64>,
    skip: Option<u64>,
}

impl Zones {
    /// That the I/O is the same on a device of conventional zones as on one without: it is
    /// sequential and comes to its place whatever was written, and none of it crosses a boundary.
    pub(super) fn check_device(self, job: &Job) -> Result<(), String> {
        if !self.of_device {
            return Ok(());
        }
        let refused = |why: &str| Err(format!("zonemode=zbd: {why}"));
        let Some(zone) = self.bytes.filter(|bytes| *bytes > 0) else {
            return refused("no target here has zones of its own: it needs a zonesize");
        };
        if (job.access, job.direction, job.step) != (Access::Sequential, Direction::Read, 0) {
            return refused("takes sequential reads: no target here has a write pointer");
        }
        if self.skip.is_some_and(|skip| skip > 0) {
            return refused("takes zoneskip=0");
        }
        let offset = match job.offset {
            Amount::Bytes(bytes) => bytes,
            Amount::Percent(_) => 0,
        };
        match job.sizes[0] {
            Sizes::Fixed(bs) if zone.is_multiple_of(bs) && offset.is_multiple_of(bs) => Ok(()),
            _ => refused("takes one bs, of which zonesize and offset are multiples"),
        }
    }

    /// The parts of a job's range; what is not said is as it was `before`.
    pub(super) fn strides(self, before: Option<Strides>) -> Result<Option<Strides>, String> {
        let Zones { mode, bytes, range, skip, .. } = self;
        if !mode.unwrap_or(before.is_some()) {
            // fio documents that zonemode=none makes nothing of them; left out, it is an error.
            let all = [("zonesize", bytes), ("zonerange", range), ("zoneskip", skip)];
            let alone = all.into_iter().find(|(_, bytes)| bytes.is_some_and(|bytes| bytes > 0));
            return match alone.filter(|_| mode.is_none()) {
                Some((name, _)) => Err(format!("{name} needs zonemode=strided")),
                None => Ok(None),
            };
        }
        let bytes = bytes.or(before.map(|strides| strides.bytes));
        let bytes = bytes.ok_or("zonemode=strided needs a zonesize")?;
        // A part that was as long as its zonesize still is.
        let own = before.filter(|strides| strides.range != strides.bytes);
        let range = range.or(own.map(|strides| strides.range)).unwrap_or(bytes);
        let skip = skip.or(before.map(|strides| strides.skip)).unwrap_or(0);
        Ok(Some(Strides { bytes, range, skip }))
    }
}

/// What is worked on and how much is moved, where the length of the file is given too.
pub(super) fn bound_by_file(section: &mut Section) {
    let Some(bytes) = section.file_size else { return };
    let job = &mut section.job;
    match job.size {
        None => job.size = Some(Amount::Bytes(bytes)),
        Some(Amount::Bytes(size)) if size > bytes => {
            job.io_size = job.io_size.or(Some(Amount::Bytes(size)));
            job.size = Some(Amount::Bytes(bytes));
        }
        Some(_) => (),
    }
}
