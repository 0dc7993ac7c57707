//! What a disk is, as text.

use std::fmt;

use serde::Deserialize;
use weir_bio::{Op, SECTOR};

use crate::array::Array;
use crate::fixed::Fixed;
use crate::hdd::Hdd;
use crate::measured::Measured;
use crate::presets;
use crate::read;
use crate::ssd::Ssd;

/// A disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Bytes, whole sectors.
    pub size: u64,
    /// Commands that it takes at once.
    pub depth: u16,
    /// Whether it says that it turns.
    pub rotational: bool,
    /// How its times come about.
    pub kind: Kind,
}

/// The kinds of model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Times alone.
    Fixed(Fixed),
    /// Times that were measured.
    Measured(Measured),
    /// A solid-state disk.
    Ssd(Ssd),
    /// A hard disk.
    Hdd(Hdd),
    /// A storage array.
    Array(Array),
}

impl Kind {
    fn check(&self) -> Result<(), String> {
        match self {
            Kind::Fixed(fixed) => fixed.check(),
            Kind::Measured(measured) => measured.check(),
            Kind::Ssd(ssd) => ssd.check(),
            Kind::Hdd(hdd) => hdd.check(),
            Kind::Array(array) => array.check(),
        }
    }
}

/// Why a text is no disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError(String);

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SpecError {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    #[serde(default, deserialize_with = "size")]
    size: Option<u64>,
    depth: Option<u16>,
    rotational: Option<bool>,
    fixed: Option<Fixed>,
    measured: Option<Measured>,
    ssd: Option<Ssd>,
    hdd: Option<Hdd>,
    array: Option<Array>,
    /// The prices of the host that it was measured on, which are the simulator's.
    #[serde(rename = "host")]
    _host: Option<toml::Table>,
}

fn size<'a, D: serde::Deserializer<'a>>(from: D) -> Result<Option<u64>, D::Error> {
    read::size(from).map(Some)
}

/// The size of a disk that states none and whose kind has none.
const SIZE: u64 = 64 << 30;

impl Spec {
    /// Reads a disk: `size`, `depth` and `rotational`, and one table `[fixed]`,
    /// `[measured]`, `[ssd]`, `[hdd]` or `[array]` with the fields of that type, times and sizes as
    /// text. A table `[host]` is not looked at.
    ///
    /// # Errors
    /// What is wrong, with line, value and bound.
    pub fn parse(text: &str) -> Result<Spec, SpecError> {
        let text: Text =
            toml::from_str(text).map_err(|error| SpecError(error.to_string().trim().into()))?;
        Spec::of(text)
    }

    /// Reads a disk from a table of a text that has more in it.
    ///
    /// # Errors
    /// What is wrong, with value and bound.
    pub fn read(table: toml::Value) -> Result<Spec, SpecError> {
        let text = Text::deserialize(table);
        Spec::of(text.map_err(|error| SpecError(error.to_string().trim().into()))?)
    }

    fn of(text: Text) -> Result<Spec, SpecError> {
        let kinds = [
            text.fixed.map(Kind::Fixed),
            text.measured.map(Kind::Measured),
            text.ssd.map(Kind::Ssd),
            text.hdd.map(Kind::Hdd),
            text.array.map(Kind::Array),
        ];
        let mut kinds = kinds.into_iter().flatten();
        let (Some(kind), None) = (kinds.next(), kinds.next()) else {
            return Err(SpecError(
                "a disk has one of [fixed], [measured], [ssd], [hdd] and [array]".into(),
            ));
        };
        // Before its sectors are counted, as the count of what is no disk may overflow.
        kind.check().map_err(SpecError)?;
        let is_hdd = matches!(kind, Kind::Hdd(_));
        let size = match (text.size, &kind) {
            (Some(size), _) => size,
            (None, Kind::Hdd(hdd)) => hdd.capacity() * SECTOR,
            (None, _) => SIZE,
        };
        let spec = Spec {
            size,
            depth: text.depth.unwrap_or(if is_hdd { 32 } else { 256 }),
            rotational: text.rotational.unwrap_or(is_hdd),
            kind,
        };
        spec.check().map_err(SpecError)?;
        Ok(spec)
    }

    /// A disk that is known by its name, one of [`PRESETS`](crate::PRESETS).
    ///
    /// # Errors
    /// There is none of this name; the names that there are.
    pub fn preset(name: &str) -> Result<Spec, SpecError> {
        let found = presets::PRESETS.iter().find(|preset| preset.name == name);
        let Some(preset) = found else {
            let names: Vec<&str> = presets::PRESETS.iter().map(|preset| preset.name).collect();
            return Err(SpecError(format!("no disk {name:?}; there are {}", names.join(", "))));
        };
        Spec::parse(preset.text)
    }

    /// The same with so many bytes.
    ///
    /// # Errors
    /// More than a hard disk has sectors, or no whole sectors.
    pub fn sized(mut self, bytes: u64) -> Result<Spec, SpecError> {
        self.size = bytes;
        self.check().map_err(SpecError)?;
        Ok(self)
    }

    /// The same, taking so many commands at once.
    ///
    /// # Errors
    /// None, or more than a disk may take.
    pub fn deep(mut self, depth: u16) -> Result<Spec, SpecError> {
        self.depth = depth;
        self.check().map_err(SpecError)?;
        Ok(self)
    }

    /// Whether a write may be answered before it is on the medium.
    #[must_use]
    pub fn has_volatile_cache(&self) -> bool {
        match &self.kind {
            Kind::Hdd(hdd) => hdd.write_cache > 0,
            Kind::Ssd(ssd) => ssd.write_cache > 0 && !ssd.protected,
            Kind::Fixed(fixed) => fixed.volatile,
            Kind::Measured(_) | Kind::Array(_) => false,
        }
    }

    /// Whether commands of this op have a time.
    #[must_use]
    pub fn takes(&self, op: Op) -> bool {
        match &self.kind {
            Kind::Measured(measured) => measured.has(op.is_write()),
            _ => true,
        }
    }

    /// The longest command that it takes, sectors; `None`: any. Of a longer one than was measured
    /// nothing is known.
    #[must_use]
    pub fn command_sectors(&self) -> Option<u32> {
        match &self.kind {
            Kind::Measured(measured) => Some((measured.most_size / SECTOR).max(1) as u32),
            _ => None,
        }
    }

    fn check(&self) -> Result<(), String> {
        self.kind.check()?;
        let most = match &self.kind {
            Kind::Hdd(hdd) => hdd.capacity() * SECTOR,
            _ => i64::MAX as u64,
        };
        read::between("size", self.size, SECTOR, most)?;
        if !self.size.is_multiple_of(SECTOR) {
            return Err(format!("size={} is not a multiple of {SECTOR} bytes", self.size));
        }
        read::between("depth", self.depth.into(), 1, 10_240)
    }
}
