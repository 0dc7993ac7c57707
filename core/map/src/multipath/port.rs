//! Priorities of target ports, and their letters.

use weir_queue::{PortAccess, PortState};

/// Whether a port in this state takes I/O.
pub(super) fn takes_io(access: PortAccess) -> bool {
    match access {
        PortAccess::Optimized | PortAccess::NonOptimized | PortAccess::BlockDependent => true,
        PortAccess::Standby
        | PortAccess::Unavailable
        | PortAccess::Offline
        | PortAccess::Transitioning => false,
    }
}

/// The letter of listings.
pub(super) fn letter(access: PortAccess) -> char {
    match access {
        PortAccess::Optimized => 'A',
        PortAccess::NonOptimized => 'N',
        PortAccess::Standby => 'S',
        PortAccess::Unavailable => 'U',
        PortAccess::BlockDependent => 'L',
        PortAccess::Offline => 'O',
        PortAccess::Transitioning => 'T',
    }
}

/// The priority of a port: 50, 10, 5 or 1 by state, 80 more where it is preferred and not optimized
/// (or `exclusive`).
#[must_use]
pub fn priority(port: PortState, exclusive: bool) -> u32 {
    let base = match port.access {
        PortAccess::Optimized => 50,
        PortAccess::NonOptimized => 10,
        PortAccess::BlockDependent => 5,
        PortAccess::Standby => 1,
        PortAccess::Unavailable | PortAccess::Offline | PortAccess::Transitioning => 0,
    };
    let counts = port.preferred && (exclusive || port.access != PortAccess::Optimized);
    base + if counts { 80 } else { 0 }
}
