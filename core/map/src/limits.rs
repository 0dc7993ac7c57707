//! The limits of a mapped device, from those of its legs (docs/behaviour/mapped.md, section 3).

use weir_bio::{Limits, SECTOR};

use crate::layout::{Layout, Shape};

/// The limits of a device with this layout over legs with these limits. An area on no leg asks for
/// nothing.
#[must_use]
pub fn stacked(layout: &Layout, legs: &[Limits]) -> Limits {
    let mut limits = match legs.split_first() {
        Some((first, others)) => others.iter().fold(first.clone(), |all, leg| all.stack(leg)),
        None => Limits::of_memory(layout.sectors()),
    };
    (limits.capacity, limits.padding) = (layout.sectors(), 0);
    for area in layout.areas() {
        if let Shape::Striped { chunk, stripes } = &area.shape {
            // A row, or a chunk, of 4 GiB and more is no size of an I/O.
            let row = u64::from(*chunk) * SECTOR * stripes.len() as u64;
            let chunk = u32::try_from(u64::from(*chunk) * SECTOR).unwrap_or(limits.io_min);
            let io_opt = u32::try_from(row).unwrap_or(0);
            let hint = Limits { io_min: chunk, io_opt, ..limits.clone() };
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
        if let Shape::Striped { chunk, .. } = area.shape {
            bits |= u64::from(chunk);
        }
        area.shape.places().iter().for_each(|place| bits |= place.offset);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Area, Place};

    fn striped(chunk: u32, stripes: usize, offset: u64) -> Layout {
        let stripes: Vec<Place> = (0..stripes).map(|leg| Place { leg, offset }).collect();
        let sectors = u64::from(chunk) * stripes.len() as u64;
        Layout::new(vec![Area { start: 0, sectors, shape: Shape::Striped { chunk, stripes } }])
    }

    fn leg() -> Limits {
        Limits {
            atomic_write_max_sectors: 256,
            atomic_write_unit_min_sectors: 8,
            atomic_write_unit_max_sectors: 256,
            ..Limits::default()
        }
    }

    fn atomic(layout: &Layout) -> Limits {
        stacked(layout, &[leg(), leg(), leg()]).validate().unwrap()
    }

    #[test]
    fn a_stripe_prefers_chunks_and_rows_of_them() {
        let limits = stacked(&striped(128, 3, 0), &[leg(), leg(), leg()]);
        assert_eq!((limits.io_min, limits.io_opt), (128 * 512, 3 * 128 * 512));
        assert_eq!((limits.capacity, limits.chunk_sectors), (3 * 128, 0));
    }

    #[test]
    fn a_row_or_a_chunk_of_4_gib_is_no_preferred_size() {
        let io = |chunk, count| {
            let limits = stacked(&striped(chunk, count, 0), &vec![leg(); count]);
            limits.validate().map(|limits| (limits.io_min, limits.io_opt)).unwrap()
        };
        assert_eq!(io(1 << 13, 1023), (4 << 20, 1023 << 22));
        assert_eq!(io(1 << 13, 1024), (4 << 20, 0), "a row");
        assert_eq!(io(1 << 23, 2), (512, 0), "a chunk");
        assert_eq!(io((1 << 23) - 8, 1), (u32::MAX - 4095, u32::MAX - 4095));
    }

    #[test]
    fn an_atomic_write_lies_within_a_chunk_and_on_its_own_multiple_of_the_leg() {
        let units = |layout: &Layout| {
            let limits = atomic(layout);
            (limits.atomic_write_unit_max_sectors, limits.atomic_write_boundary_sectors)
        };
        assert_eq!(units(&striped(128, 3, 0)), (128, 128));
        for (boundary, held) in [(32, 32), (256, 128)] {
            let leg = Limits { atomic_write_boundary_sectors: boundary, ..leg() };
            let limits = stacked(&striped(128, 1, 0), &[leg]);
            assert_eq!(limits.atomic_write_boundary_sectors, held, "the lesser of the two");
        }
        assert_eq!(units(&striped(48, 3, 0)), (16, 16), "16 divides 48");
        assert_eq!(units(&striped(128, 3, 2048 + 8)), (8, 8), "the offset");
        assert_eq!(units(&striped(128, 3, 2048 + 4)), (0, 0), "below the least unit");
        assert_eq!(units(&Layout::linear(&[1 << 20])), (256, 0));
        assert_eq!(units(&Layout::linear(&[1 << 20, 64])), (256, 1 << 20));
        assert_eq!(units(&Layout::linear(&[(1 << 20) + 64, 64])), (64, 64), "where a leg begins");
    }
}
