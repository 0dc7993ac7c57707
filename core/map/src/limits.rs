//! The limits of a mapped device, from those of its legs (docs/behaviour/mapped.md, section 2).

use weir_bio::{Limits, SECTOR};

use crate::layout::{Layout, Shape};

/// The limits of a device with this layout over legs with these limits, of which there is at least
/// one.
#[must_use]
pub fn stacked(layout: &Layout, legs: &[Limits]) -> Limits {
    let (first, others) = legs.split_first().expect("a mapped device has a leg");
    let mut limits = others.iter().fold(first.clone(), |all, leg| all.stack(leg));
    (limits.capacity, limits.padding) = (layout.sectors(), 0);
    for area in layout.areas() {
        if let Shape::Striped { chunk, stripes } = &area.shape {
            let bytes = chunk.saturating_mul(SECTOR as u32);
            let hint = Limits {
                io_min: bytes,
                io_opt: bytes.saturating_mul(stripes.len() as u32),
                ..limits.clone()
            };
            limits = limits.stack(&hint);
        }
    }
    hold_atomic_writes(&mut limits, layout);
    limits
}

/// An atomic write must lie on one leg, and there at a multiple of its own length. So no unit and
/// no boundary is larger than the largest power of two that divides all places and lengths.
fn hold_atomic_writes(limits: &mut Limits, layout: &Layout) {
    let mut bits = 0;
    for area in layout.areas() {
        bits |= area.start;
        match &area.shape {
            Shape::Linear(place) => bits |= place.offset,
            Shape::Striped { chunk, stripes } => {
                bits |= u64::from(*chunk);
                stripes.iter().for_each(|place| bits |= place.offset);
            }
        }
    }
    if bits == 0 {
        return;
    }
    let most = 1 << bits.trailing_zeros().min(31);
    limits.atomic_write_unit_max_sectors = limits.atomic_write_unit_max_sectors.min(most);
    limits.atomic_write_boundary_sectors = match limits.atomic_write_boundary_sectors {
        0 => most,
        boundary => boundary.min(most),
    };
    if limits.atomic_write_unit_max_sectors < limits.atomic_write_unit_min_sectors {
        limits.atomic_write_max_sectors = 0;
    }
}
