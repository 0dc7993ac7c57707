//! The kinds of target of this crate: disks over disks of the same daemon.

use std::sync::Arc;

use weir_bio::units::parse_size;
use weir_bio::{Limits, SECTOR};
use weir_queue::{Backing, Config, Device, DriverError, OpenedBacking, TargetKind};

pub use crate::fault::FAULT;
use crate::layout::{Area, Layout, Place, Shape};
use crate::mapped::Mapped;
use crate::multipath::MULTIPATH;
use crate::multipath::settings::OPTIONS;
use crate::multipath::target::MultipathTarget;
use crate::names::{names_of, target_of};
use crate::over::{alike_over_disks, failed, not_open, of_multipath};
use crate::table::{
    NamedAreas, Row, SECTORS_MAX, STRIPES_MAX, block_of, check_areas, parse_areas, parse_rows,
    usable,
};

/// All of them.
pub const KINDS: &[&TargetKind] = &[&LINEAR, &STRIPED, &MULTIPATH, &FAULT, &TABLE];

/// One disk behind the other.
pub const LINEAR: TargetKind = TargetKind {
    names: &["linear"],
    syntax: &["linear:DISK+DISK..."],
    example: "linear:sda+sdb",
    doc: "Disks of the same daemon, one behind the other.",
    options: &[],
    parse: |written| Ok(Box::new(LayoutTarget(How::Linear(names_of(written, written.rest)?)))),
};

/// Chunks in turn.
pub const STRIPED: TargetKind = TargetKind {
    names: &["striped"],
    syntax: &["striped:CHUNK:DISK+DISK..."],
    example: "striped:64KiB:sda+sdb",
    doc: "Disks of the same daemon, striped in chunks of so many bytes.",
    options: &[],
    parse: |written| {
        let (chunk, rest) = written.rest.split_once(':').ok_or_else(|| {
            format!("target {:?} has no chunk, as in striped:64KiB:sda+sdb", written.text)
        })?;
        let bytes = parse_size(chunk)?;
        let sectors = u32::try_from(bytes / SECTOR).unwrap_or(u32::MAX);
        if bytes == 0 || !bytes.is_multiple_of(SECTOR) || sectors > CHUNK_MAX {
            return Err(format!(
                "chunk {chunk:?} of {:?} is not a multiple of {SECTOR} bytes in 512..=1GiB",
                written.text
            ));
        }
        let names = names_of(written, rest)?;
        if names.len() as u64 > STRIPES_MAX {
            return Err(format!("a stripe over {} disks, at most {STRIPES_MAX}", names.len()));
        }
        Ok(Box::new(LayoutTarget(How::Striped { chunk: sectors, names })))
    },
};

/// A table in dm's words.
pub const TABLE: TargetKind = TargetKind {
    names: &["table"],
    syntax: &["table:START LENGTH TYPE ARGUMENTS[;...]"],
    example: "table:0 16384 linear sda 0",
    doc: "A table as dmsetup has it, in sectors, with disks of the same daemon as devices.",
    options: OPTIONS,
    parse: |written| {
        let named = |why: String| format!("target {:?}: {why}", written.text);
        let rows = parse_rows(written.rest).map_err(named)?;
        let whole = WHOLE.iter().find(|(kind, _)| rows.iter().any(|row| row.kind == *kind));
        match (whole, &rows[..]) {
            (None, _) => {}
            (Some((_, parse)), [row]) => return parse(row, &TABLE).map_err(named),
            (Some((kind, _)), _) => {
                return Err(named(format!("a {kind} line stands alone in its table")));
            }
        }
        let whole: Vec<&str> = WHOLE.iter().map(|(kind, _)| *kind).collect();
        Ok(Box::new(LayoutTarget(How::Table(parse_areas(&rows, &whole).map_err(named)?))))
    },
};

/// Reads a line of a table that is the whole disk.
type ParseRow = fn(&Row, &'static TargetKind) -> Result<Box<dyn Backing>, String>;

/// The types of line that are the whole disk: they stand alone in a table.
const WHOLE: &[(&str, ParseRow)] = &[
    ("delay", crate::delay::parse),
    ("flakey", crate::flakey::parse),
    ("fault", crate::fault::parse),
    ("multipath", parse_multipath),
];

fn parse_multipath(row: &Row, kind: &'static TargetKind) -> Result<Box<dyn Backing>, String> {
    Ok(Box::new(MultipathTarget::of_line(kind, row.sectors, &row.arguments)?))
}

/// Sectors of the largest chunk of a target: 1 GiB.
const CHUNK_MAX: u32 = 1 << 21;

/// A disk of areas.
#[derive(Clone, Debug)]
struct LayoutTarget(How);

#[derive(Clone, Debug)]
enum How {
    Linear(Vec<String>),
    Striped {
        /// Sectors.
        chunk: u32,
        names: Vec<String>,
    },
    Table(NamedAreas),
}

impl Backing for LayoutTarget {
    fn kind(&self) -> &'static TargetKind {
        match self.0 {
            How::Linear(_) => &LINEAR,
            How::Striped { .. } => &STRIPED,
            How::Table(_) => &TABLE,
        }
    }

    fn set(&mut self, option: &str, value: &str) -> Result<(), String> {
        Err(of_multipath(option, value))
    }

    fn open(&self, config: &Config) -> Result<OpenedBacking, DriverError> {
        match self.legs() {
            legs if legs.is_empty() => self.open_over(config, &[]),
            legs => Err(not_open(&legs)),
        }
    }

    fn is_mapped(&self) -> bool {
        true
    }

    fn legs(&self) -> Vec<String> {
        match &self.0 {
            How::Linear(names) | How::Striped { names, .. } => names.clone(),
            How::Table(named) => named.names.clone(),
        }
    }

    fn leg_target(&self, leg: &str) -> Option<&str> {
        match &self.0 {
            How::Linear(names) | How::Striped { names, .. } => target_of(names, leg),
            How::Table(_) => None,
        }
    }

    fn open_over(&self, _config: &Config, legs: &[Device]) -> Result<OpenedBacking, DriverError> {
        let limits: Vec<Limits> = legs.iter().map(Device::limits).collect();
        let names: Vec<&str> = legs.iter().map(|leg| leg.config().name.as_str()).collect();
        let mut notices = Vec::new();
        let layout = match &self.0 {
            How::Linear(_) => {
                let lengths: Vec<u64> = usable(&limits);
                say_unused(&limits, &names, &lengths, &mut notices);
                let sum = lengths.iter().map(|sectors| u128::from(*sectors)).sum();
                check_length(sum).map_err(failed)?;
                Layout::linear(&lengths)
            }
            How::Striped { chunk, .. } => {
                let layout = stripes(&limits, *chunk).map_err(failed)?;
                let length = layout.sectors() / legs.len() as u64;
                say_unused(&limits, &names, &vec![length; legs.len()], &mut notices);
                layout
            }
            How::Table(named) => {
                check_areas(&named.areas, &limits, &names).map_err(failed)?;
                Layout::new(named.areas.clone())
            }
        };
        if layout.sectors() == 0 {
            return Err(failed(format!("{} have no whole block", names.join(", "))));
        }
        let read_only = names.iter().zip(&limits).filter(|(_, limits)| limits.read_only);
        notices.extend(read_only.map(|(name, _)| format!("read-only, as its disk {name} is")));
        let mapped = Mapped::new(layout, legs.to_vec());
        let (speaker, map) = (Some(mapped.speaker()), Some(mapped.control()));
        Ok(OpenedBacking { driver: Arc::new(mapped), notices, speaker, map })
    }

    alike_over_disks!();
}

fn check_length(sectors: u128) -> Result<(), String> {
    match sectors <= u128::from(SECTORS_MAX) {
        true => Ok(()),
        false => Err(format!("its disks have {sectors} sectors, at most {SECTORS_MAX}")),
    }
}

fn say_unused(limits: &[Limits], names: &[&str], used: &[u64], notices: &mut Vec<String>) {
    for ((limits, name), used) in limits.iter().zip(names).zip(used) {
        if *used < limits.capacity {
            let left = limits.capacity - used;
            notices.push(format!("the last {left} sectors of its disk {name} are not used"));
        }
    }
}

/// As many rows of chunks as the smallest leg has.
fn stripes(limits: &[Limits], chunk: u32) -> Result<Layout, String> {
    let block = block_of(limits);
    if !u64::from(chunk).is_multiple_of(block) {
        return Err(format!("a chunk of {chunk} sectors is no multiple of a block of {block}"));
    }
    let least = usable(limits).into_iter().min().unwrap_or(0);
    let length = least - least % u64::from(chunk);
    if length == 0 {
        return Err(format!("its smallest disk has {least} sectors, less than a chunk of {chunk}"));
    }
    let stripes = (0..limits.len()).map(|leg| Place { leg, offset: 0 }).collect();
    check_length(u128::from(length) * limits.len() as u128)?;
    let sectors = length * limits.len() as u64;
    Ok(Layout::new(vec![Area { start: 0, sectors, shape: Shape::Striped { chunk, stripes } }]))
}
