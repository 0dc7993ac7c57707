//! Designators: the names page 83h gives to a logical unit, its target and its port.

use std::fmt;

use crate::wire::{ascii, u16_at};

/// Bytes before the designator itself.
const HEADER_LEN: usize = 4;

/// ASSOCIATION: what a designator names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Association {
    /// The logical unit.
    LogicalUnit,
    /// The target port the page came through.
    TargetPort,
    /// The target.
    TargetDevice,
    /// Reserved.
    Reserved,
}

/// DESIGNATOR TYPE, 4 bits, an open set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DesignatorKind(pub u8);

impl DesignatorKind {
    /// The vendor's own.
    pub const VENDOR: Self = Self(0);
    /// T10 vendor identification and the vendor's own.
    pub const T10: Self = Self(1);
    /// EUI-64, of 8, 12 or 16 bytes.
    pub const EUI_64: Self = Self(2);
    /// NAA, of 8 or 16 bytes.
    pub const NAA: Self = Self(3);
    /// Relative target port identifier.
    pub const RELATIVE_TARGET_PORT: Self = Self(4);
    /// Target port group.
    pub const TARGET_PORT_GROUP: Self = Self(5);
    /// SCSI name string.
    pub const SCSI_NAME: Self = Self(8);
}

/// One designator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Designator<'a> {
    /// CODE SET, 4 bits: 1 binary, 2 ASCII, 3 UTF-8.
    pub code_set: u8,
    /// What is named.
    pub association: Association,
    /// What kind of name it is.
    pub kind: DesignatorKind,
    /// The name.
    pub bytes: &'a [u8],
}

impl<'a> Designator<'a> {
    /// The first designator and what follows it; `None` at the end, or if it is cut.
    pub(super) fn split(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (header, rest) = bytes.split_at_checked(HEADER_LEN)?;
        let (name, rest) = rest.split_at_checked(usize::from(header[3]))?;
        let association = match header[1] >> 4 & 3 {
            0 => Association::LogicalUnit,
            1 => Association::TargetPort,
            2 => Association::TargetDevice,
            _ => Association::Reserved,
        };
        let kind = DesignatorKind(header[1] & 0x0f);
        Some((Self { code_set: header[0] & 0x0f, association, kind, bytes: name }, rest))
    }

    /// Appends the designator. PROTOCOL IDENTIFIER is not said (PIV is zero).
    ///
    /// # Panics
    /// If the name has more than 255 bytes.
    pub fn put(&self, out: &mut Vec<u8>) {
        let len = u8::try_from(self.bytes.len()).expect("a name of at most 255 bytes");
        let kind = (self.association as u8) << 4 | self.kind.0 & 0x0f;
        out.extend_from_slice(&[self.code_set & 0x0f, kind, 0, len]);
        out.extend_from_slice(self.bytes);
    }

    /// RELATIVE TARGET PORT IDENTIFIER of the port the page came through.
    #[must_use]
    pub fn relative_target_port(&self) -> Option<u16> {
        self.of_port(DesignatorKind::RELATIVE_TARGET_PORT)
    }

    /// TARGET PORT GROUP of the port the page came through.
    #[must_use]
    pub fn target_port_group(&self) -> Option<u16> {
        self.of_port(DesignatorKind::TARGET_PORT_GROUP)
    }

    /// Both identifiers are four bytes, of which the last two count.
    fn of_port(&self, kind: DesignatorKind) -> Option<u16> {
        let named = self.association == Association::TargetPort && self.kind == kind;
        (named && self.bytes.len() >= 4).then(|| u16_at(self.bytes, 2))
    }

    /// How good a name of the logical unit this is, less is better; `None` if it is none.
    fn rank(&self) -> Option<u8> {
        if self.association != Association::LogicalUnit || self.bytes.is_empty() {
            return None;
        }
        match (self.kind, self.bytes.len()) {
            (DesignatorKind::NAA, 16) if is_naa(self.bytes) => Some(0),
            (DesignatorKind::NAA, 8) if is_naa(self.bytes) => Some(1),
            (DesignatorKind::EUI_64, 8 | 12 | 16) => Some(2),
            (DesignatorKind::T10, _) if !ascii(self.bytes).is_empty() => Some(3),
            _ => None,
        }
    }
}

/// Whether the first four bits are an NAA of a registered or extended name, or one given locally.
fn is_naa(bytes: &[u8]) -> bool {
    matches!(bytes[0] >> 4, 2 | 3 | 5 | 6)
}

/// The name of a logical unit: paths with one name lead to one disk.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Wwid {
    /// NAA, 8 or 16 bytes.
    Naa(Vec<u8>),
    /// EUI-64, 8, 12 or 16 bytes.
    Eui(Vec<u8>),
    /// T10 vendor identification and more, as text.
    T10(String),
    /// The serial number of page 80h. Unique for its vendor and product only.
    Serial(String),
}

impl Wwid {
    /// The best name: NAA of 16 bytes, NAA of 8, EUI-64, T10, the serial number. Of two of one
    /// rank the first counts.
    #[must_use]
    pub fn choose<'a>(
        designators: impl Iterator<Item = Designator<'a>>,
        serial: Option<&str>,
    ) -> Option<Self> {
        let ranked = designators.filter_map(|name| Some((name.rank()?, name)));
        match ranked.min_by_key(|(rank, _)| *rank) {
            Some((0 | 1, name)) => Some(Self::Naa(name.bytes.to_vec())),
            Some((2, name)) => Some(Self::Eui(name.bytes.to_vec())),
            Some((_, name)) => Some(Self::T10(ascii(name.bytes))),
            None => serial.filter(|text| !text.is_empty()).map(|text| Self::Serial(text.into())),
        }
    }
}

impl fmt::Display for Wwid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (prefix, bytes) = match self {
            Self::Naa(bytes) => ("naa", bytes),
            Self::Eui(bytes) => ("eui", bytes),
            Self::T10(text) => return write!(f, "t10.{text}"),
            Self::Serial(text) => return write!(f, "serial.{text}"),
        };
        write!(f, "{prefix}.")?;
        bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
