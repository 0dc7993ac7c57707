//! Asymmetric logical unit access: which ports of a target a logical unit is reached through, and
//! how well.
//!
//! Layouts: SPC-4, "REPORT TARGET PORT GROUPS command" and "SET TARGET PORT GROUPS command".
//! Priorities: those that Linux' multipath documents for its `alua` prioritizer.

use crate::wire::{WireError, at_least, bit_at, claimed, flag, u8_at, u16_at, u32_at};

/// ASYMMETRIC ACCESS STATE of a target port group, 4 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AccessState {
    /// 0h: the best way.
    ActiveOptimized,
    /// 1h: a way that costs more.
    ActiveNonOptimized,
    /// 2h: few commands are taken, no I/O.
    Standby,
    /// 3h: fewer still.
    Unavailable,
    /// 4h: it depends on the block.
    LbaDependent,
    /// Eh: the ports are off.
    Offline,
    /// Fh: between two states.
    Transitioning,
    /// Any other value.
    Reserved(u8),
}

/// Whether a path in a state takes I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathIo {
    /// It does.
    Allowed,
    /// It does not, and the path counts as failed.
    Refused,
    /// It will; I/O is sent again until the transition ends or takes too long.
    Later,
}

impl AccessState {
    /// The state in the low four bits of a byte.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        match bits & 0x0f {
            0x0 => Self::ActiveOptimized,
            0x1 => Self::ActiveNonOptimized,
            0x2 => Self::Standby,
            0x3 => Self::Unavailable,
            0x4 => Self::LbaDependent,
            0xe => Self::Offline,
            0xf => Self::Transitioning,
            other => Self::Reserved(other),
        }
    }

    /// Its four bits.
    #[must_use]
    pub const fn bits(self) -> u8 {
        match self {
            Self::ActiveOptimized => 0x0,
            Self::ActiveNonOptimized => 0x1,
            Self::Standby => 0x2,
            Self::Unavailable => 0x3,
            Self::LbaDependent => 0x4,
            Self::Offline => 0xe,
            Self::Transitioning => 0xf,
            Self::Reserved(bits) => bits & 0x0f,
        }
    }

    /// The standard's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ActiveOptimized => "active/optimized",
            Self::ActiveNonOptimized => "active/non-optimized",
            Self::Standby => "standby",
            Self::Unavailable => "unavailable",
            Self::LbaDependent => "LBA dependent",
            Self::Offline => "offline",
            Self::Transitioning => "transitioning",
            Self::Reserved(_) => "reserved",
        }
    }

    /// Whether I/O may go there.
    #[must_use]
    pub const fn io(self) -> PathIo {
        match self {
            Self::ActiveOptimized | Self::ActiveNonOptimized | Self::LbaDependent => {
                PathIo::Allowed
            }
            Self::Transitioning => PathIo::Later,
            Self::Standby | Self::Unavailable | Self::Offline | Self::Reserved(_) => {
                PathIo::Refused
            }
        }
    }

    /// The priority of a path in this state. A preferred group has 80 more, but not if it is
    /// active/optimized anyway, unless `exclusive_pref_bit` sets it apart there too.
    #[must_use]
    pub const fn priority(self, preferred: bool, exclusive_pref_bit: bool) -> u32 {
        let own = match self {
            Self::ActiveOptimized => 50,
            Self::ActiveNonOptimized => 10,
            Self::LbaDependent => 5,
            Self::Standby => 1,
            Self::Unavailable | Self::Offline | Self::Transitioning | Self::Reserved(_) => 0,
        };
        let counts = exclusive_pref_bit || !matches!(self, Self::ActiveOptimized);
        if preferred && counts { own + 80 } else { own }
    }
}

/// STATUS CODE: what changed the state last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateCause(pub u8);

impl StateCause {
    /// Nothing is known.
    pub const NONE: Self = Self(0);
    /// SET TARGET PORT GROUPS.
    pub const EXPLICIT: Self = Self(1);
    /// The target.
    pub const IMPLICIT: Self = Self(2);
}

/// The states a group can have: T_SUP, O_SUP, LBD_SUP, U_SUP, S_SUP, AN_SUP, AO_SUP as they stand
/// in their byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SupportedStates(pub u8);

impl SupportedStates {
    /// Whether a state is among them.
    #[must_use]
    pub const fn has(self, state: AccessState) -> bool {
        let mask = match state {
            AccessState::Transitioning => 0x80,
            AccessState::Offline => 0x40,
            AccessState::LbaDependent => 0x10,
            AccessState::Unavailable => 0x08,
            AccessState::Standby => 0x04,
            AccessState::ActiveNonOptimized => 0x02,
            AccessState::ActiveOptimized => 0x01,
            AccessState::Reserved(_) => 0,
        };
        self.0 & mask != 0
    }
}

/// One target port group with its ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetPortGroup<'a> {
    /// PREF: the group is preferred.
    pub preferred: bool,
    /// The state.
    pub state: AccessState,
    /// The states it can have.
    pub supported: SupportedStates,
    /// TARGET PORT GROUP, the name that page 83h has for a path's group.
    pub group: u16,
    /// What changed the state.
    pub cause: StateCause,
    /// The port descriptors, four bytes each.
    ports: &'a [u8],
}

/// Bytes of a group without its ports.
const GROUP_LEN: usize = 8;
/// Bytes of a port.
const PORT_LEN: usize = 4;

impl<'a> TargetPortGroup<'a> {
    /// RELATIVE TARGET PORT IDENTIFIER of each port that is there.
    pub fn ports(&self) -> impl Iterator<Item = u16> + 'a {
        self.ports.chunks_exact(PORT_LEN).map(|port| u16_at(port, 2))
    }
}

/// The data of REPORT TARGET PORT GROUPS as it was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortGroups<'a> {
    /// IMPLICIT TRANSITION TIME, seconds, of the extended header; zero is not said.
    pub transition_s: u8,
    /// RETURN DATA LENGTH: bytes behind itself, as the target claims.
    pub length: u32,
    groups: &'a [u8],
    cut: bool,
}

impl<'a> PortGroups<'a> {
    /// Reads the header, plain or extended; which one it is stands in its FORMAT TYPE.
    ///
    /// # Errors
    /// [`WireError::Short`] with fewer bytes than the length has.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, WireError> {
        at_least("REPORT TARGET PORT GROUPS data", bytes, 4)?;
        let length = u32_at(bytes, 0);
        let whole = usize::try_from(length).unwrap_or(usize::MAX).saturating_add(4);
        let data = claimed(bytes, whole);
        let extended = u8_at(data, 4) & 0x70 == 0x10;
        let (transition_s, at) = if extended { (u8_at(data, 5), 8) } else { (0, 4) };
        let groups = data.get(at..).unwrap_or_default();
        Ok(Self { transition_s, length, groups, cut: data.len() < whole })
    }

    /// The groups, up to the first that is cut. Of a group whose ports are cut nothing is told.
    #[must_use]
    pub const fn groups(&self) -> GroupWalk<'a> {
        GroupWalk(self.groups)
    }

    /// The ALLOCATION LENGTH that takes the whole data, by the target's claim.
    #[must_use]
    pub const fn whole_len(&self) -> u32 {
        self.length.saturating_add(4)
    }

    /// Whether the data ends before the list does.
    #[must_use]
    pub const fn is_cut(&self) -> bool {
        self.cut
    }
}

/// Walks target port groups.
#[derive(Clone, Debug)]
pub struct GroupWalk<'a>(&'a [u8]);

impl<'a> Iterator for GroupWalk<'a> {
    type Item = TargetPortGroup<'a>;

    fn next(&mut self) -> Option<TargetPortGroup<'a>> {
        let (head, rest) = self.0.split_at_checked(GROUP_LEN)?;
        let (ports, rest) = rest.split_at_checked(PORT_LEN * usize::from(head[7]))?;
        self.0 = rest;
        Some(TargetPortGroup {
            preferred: bit_at(head, 0, 0x80),
            state: AccessState::from_bits(head[0]),
            supported: SupportedStates(head[1]),
            group: u16_at(head, 2),
            cause: StateCause(head[5]),
            ports,
        })
    }
}

/// One group as a target reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortGroupReport {
    /// PREF.
    pub preferred: bool,
    /// The state.
    pub state: AccessState,
    /// The states it can have.
    pub supported: SupportedStates,
    /// TARGET PORT GROUP.
    pub group: u16,
    /// What changed the state.
    pub cause: StateCause,
    /// RELATIVE TARGET PORT IDENTIFIER of each port; at most 255.
    pub ports: Vec<u16>,
}

/// Appends the data of REPORT TARGET PORT GROUPS, with the extended header if there is a
/// transition time.
///
/// # Panics
/// If a group has more than 255 ports.
pub fn put_port_groups(out: &mut Vec<u8>, transition_s: Option<u8>, groups: &[PortGroupReport]) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    if let Some(seconds) = transition_s {
        out.extend_from_slice(&[0x10, seconds, 0, 0]);
    }
    for report in groups {
        let count = u8::try_from(report.ports.len()).expect("at most 255 ports");
        let [high, low] = report.group.to_be_bytes();
        let state = report.state.bits() | flag(report.preferred, 0x80);
        out.extend_from_slice(&[state, report.supported.0, high, low, 0, report.cause.0, 0, count]);
        for port in &report.ports {
            out.extend_from_slice(&[0, 0]);
            out.extend_from_slice(&port.to_be_bytes());
        }
    }
    let length = u32::try_from(out.len() - start - 4).expect("groups below 4 GiB");
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

/// One wish of SET TARGET PORT GROUPS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateWish {
    /// The state wanted.
    pub state: AccessState,
    /// The group.
    pub group: u16,
}

/// Appends the parameter list of SET TARGET PORT GROUPS.
pub fn put_state_wishes(out: &mut Vec<u8>, wishes: &[StateWish]) {
    out.extend_from_slice(&[0; 4]);
    for wish in wishes {
        out.extend_from_slice(&[wish.state.bits(), 0]);
        out.extend_from_slice(&wish.group.to_be_bytes());
    }
}

/// Reads the parameter list of SET TARGET PORT GROUPS; a wish that is cut is left out.
///
/// # Errors
/// [`WireError::Short`] if its header is cut.
pub fn state_wishes(bytes: &[u8]) -> Result<impl Iterator<Item = StateWish>, WireError> {
    at_least("SET TARGET PORT GROUPS parameter list", bytes, 4)?;
    Ok(bytes[4..]
        .chunks_exact(4)
        .map(|wish| StateWish { state: AccessState::from_bits(wish[0]), group: u16_at(wish, 2) }))
}
