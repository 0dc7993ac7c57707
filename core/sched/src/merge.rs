//! Whether two requests may become one (docs/behaviour/block-layer.md, section 4.2): the rules
//! every merger shares, the submitter's plug and soft queue as well as the schedulers.

use weir_bio::{Flags, Limits, Op, Rq};

/// Which way `bio` would join `rq`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The bio starts where the request ends.
    Back,
    /// The bio ends where the request starts.
    Front,
}

/// How two requests stand to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// Not adjacent, or of different kinds: look further.
    Apart,
    /// Adjacent, but the result would be too large: stop looking, and mark the request NOMERGE.
    TooLarge,
    /// They may join.
    Joins(Side),
}

/// Judges `bio` against `rq`: back before front, then kind, then size.
#[must_use]
#[inline(always)]
pub fn fit(rq: &Rq, bio: &Rq, limits: &Limits) -> Fit {
    let side = if rq.end() == bio.sector {
        Side::Back
    } else if bio.end() == rq.sector {
        Side::Front
    } else {
        return Fit::Apart;
    };
    fit_at(rq, bio, side, limits)
}

/// Judges two that touch at this side: few do, while every pair is asked whether it does.
#[inline(never)]
fn fit_at(rq: &Rq, bio: &Rq, side: Side, limits: &Limits) -> Fit {
    if !rq.is_mergeable() || !bio.is_mergeable() || !rq.is_like(bio) {
        return Fit::Apart;
    }
    if within_limits(rq, bio, side, limits) { Fit::Joins(side) } else { Fit::TooLarge }
}

fn within_limits(rq: &Rq, bio: &Rq, side: Side, limits: &Limits) -> bool {
    let sectors = u64::from(rq.sectors) + u64::from(bio.sectors);
    let start = if side == Side::Back { rq.sector } else { bio.sector };
    let most = match rq.op {
        Op::Discard => limits.max_discard_sectors(),
        Op::SecureErase => limits.max_secure_erase_sectors,
        _ => limits.max_sectors(),
    };
    if sectors > u64::from(most) {
        return false;
    }
    if limits.chunk_sectors != 0 {
        let chunk = u64::from(limits.chunk_sectors);
        if start % chunk + sectors > chunk {
            return false;
        }
    }
    if !rq.op.has_data() {
        return true;
    }
    // Both are atomic, or neither.
    if rq.flags.has(Flags::ATOMIC) {
        let most = u64::from(limits.atomic_write_unit_max_sectors);
        if sectors > most || !limits.within_atomic_boundary(start, sectors) {
            return false;
        }
    }
    let segments = u16::from(rq.segments) + u16::from(bio.segments);
    // A count of 255 means "that many or more", so nothing may be added to it.
    segments < 255 && segments <= limits.max_segments && joint_is_aligned(rq, bio, side, limits)
}

fn joint_is_aligned(rq: &Rq, bio: &Rq, side: Side, limits: &Limits) -> bool {
    // Buffers start on a page, so a joint is free of gaps when the front part's length is.
    let front = if side == Side::Back { rq } else { bio };
    (u64::from(front.sectors) * weir_bio::SECTOR) & limits.virt_boundary_mask == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_bio::{GroupId, IoPrio, RqId, SchedTag};

    fn rq(sector: u64, sectors: u32) -> Rq {
        Rq {
            sector,
            sectors,
            id: RqId(0),
            flags: Flags::NONE,
            group: GroupId(0),
            ioprio: IoPrio::NONE,
            hint: 0,
            tag: SchedTag::NONE,
            op: Op::Write,
            segments: 1,
        }
    }

    #[test]
    fn neighbours_join_at_the_back_or_the_front() {
        let limits = Limits { max_hw_sectors: 4096, ..Limits::default() };
        assert_eq!(fit(&rq(8, 8), &rq(16, 8), &limits), Fit::Joins(Side::Back));
        assert_eq!(fit(&rq(8, 8), &rq(0, 8), &limits), Fit::Joins(Side::Front));
        assert_eq!(fit(&rq(8, 8), &rq(24, 8), &limits), Fit::Apart);
    }

    #[test]
    fn what_differs_in_kind_stays_apart() {
        let limits = Limits { max_hw_sectors: 4096, ..Limits::default() };
        let differing: [fn(&mut Rq); 6] = [
            |rq| rq.op = Op::Read,
            |rq| rq.ioprio = IoPrio(2 << 13),
            |rq| rq.group = GroupId(1),
            |rq| rq.hint = 1,
            |rq| rq.flags |= Flags::FUA,
            |rq| rq.flags |= Flags::ATOMIC,
        ];
        for change in differing {
            let mut other = rq(16, 8);
            change(&mut other);
            assert_eq!(fit(&rq(8, 8), &other, &limits), Fit::Apart, "{other:?}");
        }
    }

    #[test]
    fn atomic_writes_merge_up_to_their_unit_and_not_across_the_boundary() {
        let limits = Limits {
            max_hw_sectors: 4096,
            atomic_write_unit_max_sectors: 32,
            atomic_write_boundary_sectors: 64,
            ..Limits::default()
        };
        let atomic = |sector, sectors| Rq { flags: Flags::ATOMIC, ..rq(sector, sectors) };
        let back = Fit::Joins(Side::Back);
        assert_eq!(fit(&atomic(0, 16), &atomic(16, 16), &limits), back);
        assert_eq!(fit(&atomic(0, 32), &atomic(32, 8), &limits), Fit::TooLarge);
        assert_eq!(fit(&atomic(56, 8), &atomic(64, 8), &limits), Fit::TooLarge);
        assert_eq!(fit(&rq(56, 8), &rq(64, 8), &limits), back, "other writes may");
    }

    #[test]
    fn size_segments_chunk_and_boundary_are_held() {
        let wide = Limits { max_hw_sectors: 4096, ..Limits::default() };
        let cases = [
            Limits { max_hw_sectors: 15, ..wide.clone() },
            Limits { max_segments: 1, ..wide.clone() },
            Limits { chunk_sectors: 16, ..wide.clone() },
            Limits { virt_boundary_mask: 8191, ..wide.clone() },
        ];
        for limits in cases {
            assert_eq!(fit(&rq(8, 8), &rq(16, 8), &limits), Fit::TooLarge, "{limits:?}");
        }
        let two_chunks = Limits { chunk_sectors: 32, ..wide };
        assert_eq!(fit(&rq(8, 8), &rq(16, 8), &two_chunks), Fit::Joins(Side::Back));
    }
}
