//! What a target is made of: its ports and their groups, its logical units, and its script.
//!
//! A [`Spec`] is made by hand or read from TOML ([`Spec::parse`]). In TOML the names are those of
//! the fields without their unit: a time is text such as `"50us"`, a size such as `"64MiB"`.

mod misfit;

use std::fmt;

use serde::Deserialize;
use weir_proto_scsi::alua::AccessState;

use crate::fault::Fault;
use crate::read;
use crate::script::Event;

/// A target.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Spec {
    /// The seed of all its dice. Default 1.
    pub seed: u64,
    /// T10 VENDOR IDENTIFICATION, at most 8 printable characters. Default `weir`.
    pub vendor: String,
    /// PRODUCT IDENTIFICATION, at most 16 printable characters. Default `simulated disk`.
    pub product: String,
    /// Commands that the whole target has room for, 1 to 65,536. Default 1024.
    #[serde(deserialize_with = "read::depth")]
    pub queue_depth: u32,
    /// SET TARGET PORT GROUPS is spoken. Default true.
    pub explicit_alua: bool,
    /// How long a group that is told to change its state is in transition. Default 0.
    #[serde(rename = "transition", deserialize_with = "read::time")]
    pub transition_ns: u64,
    /// Entries that the journal keeps; 0 keeps none, and stale landings are not found then.
    /// Default 0.
    pub journal: u32,
    /// `[[group]]`: target port groups, at least one. Default: group 1.
    #[serde(rename = "group")]
    pub groups: Vec<GroupSpec>,
    /// `[[port]]`: target ports, at least one. Default: port 1, in group 1.
    #[serde(rename = "port")]
    pub ports: Vec<PortSpec>,
    /// `[[lun]]`: logical units. Default: number 0, of 64 MiB.
    #[serde(rename = "lun")]
    pub luns: Vec<LunSpec>,
    /// `[[fault]]`: rules for commands; of those that fit a command the first counts.
    #[serde(rename = "fault")]
    pub faults: Vec<Fault>,
    /// `[[event]]`: what happens when.
    #[serde(rename = "event")]
    pub events: Vec<Event>,
}

/// A target port group.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GroupSpec {
    /// TARGET PORT GROUP, 1 to 65,535. Default 1.
    pub id: u16,
    /// Its state at first, by the standard's name, as `active/non-optimized`. Default
    /// `active/optimized`.
    #[serde(deserialize_with = "read::state")]
    pub state: AccessState,
    /// PREF. Default false.
    pub preferred: bool,
}

/// A target port.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PortSpec {
    /// RELATIVE TARGET PORT IDENTIFIER, 1 to 65,535. Default 1.
    pub id: u16,
    /// The group it belongs to. Default 1.
    pub group: u16,
    /// How fast commands and data pass it. Default: at once.
    pub speed: Speed,
}

/// How long commands take. All of it adds up over the port and the logical unit, except for the
/// bandwidths, which are passed at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Speed {
    /// What each command takes. Default 0.
    #[serde(rename = "latency", deserialize_with = "read::time")]
    pub latency_ns: u64,
    /// The most that the dice add to it. Default 0.
    #[serde(rename = "spread", deserialize_with = "read::time")]
    pub spread_ns: u64,
    /// Bytes a second, one command behind the other; 0 is no bound. Default 0.
    #[serde(deserialize_with = "read::size")]
    pub bandwidth: u64,
}

/// A logical unit.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LunSpec {
    /// Its number, 0 to 16,383. Default 0.
    pub number: u32,
    /// Bytes, a multiple of the block, at least one block. Default 64 MiB.
    #[serde(deserialize_with = "read::size")]
    pub size: u64,
    /// Logical block, bytes: 512 or 4096. Default 512.
    #[serde(deserialize_with = "read::block")]
    pub block: u32,
    /// Commands that it has room for, 1 to 65,536. Default 128.
    #[serde(deserialize_with = "read::depth")]
    pub queue_depth: u32,
    /// Written data waits in a volatile cache (WCE). MODE SELECT toggles it. Default true.
    pub write_cache: bool,
    /// Writes are refused. Default false.
    pub readonly: bool,
    /// Its blocks can be deallocated, and take room of a store of so many bytes, counted in pages
    /// of 4096; 0 is a disk that is fully provisioned. Default 0.
    #[serde(deserialize_with = "read::size")]
    pub thin: u64,
    /// MEDIUM ROTATION RATE: 1 does not rotate, 0 is not reported. Default 1.
    pub rotation: u16,
    /// The most blocks of one READ or WRITE; 0 is no limit. Default 0.
    pub transfer_blocks_max: u32,
    /// The most blocks of one WRITE SAME, at least 1. Default 65,535.
    pub write_same_blocks_max: u32,
    /// How long its commands take. Default: no time.
    pub speed: Speed,
}

impl Default for Spec {
    fn default() -> Self {
        Self {
            seed: 1,
            vendor: "weir".into(),
            product: "simulated disk".into(),
            queue_depth: 1024,
            explicit_alua: true,
            transition_ns: 0,
            journal: 0,
            groups: vec![GroupSpec::default()],
            ports: vec![PortSpec::default()],
            luns: vec![LunSpec::default()],
            faults: Vec::new(),
            events: Vec::new(),
        }
    }
}

impl Default for GroupSpec {
    fn default() -> Self {
        Self { id: 1, state: AccessState::ActiveOptimized, preferred: false }
    }
}

impl Default for PortSpec {
    fn default() -> Self {
        Self { id: 1, group: 1, speed: Speed::default() }
    }
}

impl Default for LunSpec {
    fn default() -> Self {
        Self {
            number: 0,
            size: 64 << 20,
            block: 512,
            queue_depth: 128,
            write_cache: true,
            readonly: false,
            thin: 0,
            rotation: 1,
            transfer_blocks_max: 0,
            write_same_blocks_max: 65_535,
            speed: Speed::default(),
        }
    }
}

/// Why a [`Spec`] is none: the table, its number in the file from 1, and what of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError {
    /// Line of the text, if it came from one.
    pub line: Option<usize>,
    /// The field with its value and the bound.
    pub what: String,
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

impl std::error::Error for SpecError {}

impl Spec {
    /// Reads a spec.
    ///
    /// # Errors
    /// [`SpecError`] with line, value and bound.
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        let spec: Self = toml::from_str(text).map_err(|error| SpecError {
            line: error.span().map(|span| read::line_at(text, span.start)),
            what: error.message().to_owned(),
        })?;
        match spec.misfit() {
            None => Ok(spec),
            Some(misfit) => Err(SpecError {
                line: read::line_of(text, misfit.table, misfit.index, misfit.field),
                what: misfit.what,
            }),
        }
    }

    /// Checks a spec that was made by hand.
    ///
    /// # Errors
    /// [`SpecError`] without a line.
    pub fn check(&self) -> Result<(), SpecError> {
        match self.misfit() {
            None => Ok(()),
            Some(misfit) => Err(SpecError { line: None, what: misfit.what }),
        }
    }
}
