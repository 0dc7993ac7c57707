//! How much of a bio fits into one request (docs/behaviour/block-layer.md, section 2). Pure.

use weir_bio::{Bio, Data, Flags, Limits, Op, SECTOR, Status};

/// Sectors of the front part; the whole length when nothing must be split.
///
/// # Errors
/// [`Status::Inval`] for an atomic write that does not fit, and for memory of which not even a
/// block fits; [`Status::Again`] for a NOWAIT bio that does not fit.
pub(crate) fn front(bio: &Bio, limits: &Limits) -> Result<u32, Status> {
    let sectors = match bio.op {
        Op::Read | Op::Write => front_of_data(bio, limits)?,
        Op::Discard => front_of_discard(bio, limits),
        Op::SecureErase => bio.sectors.min(limits.max_secure_erase_sectors),
        Op::WriteZeroes => bio.sectors.min(limits.max_write_zeroes_sectors),
        Op::Flush | Op::Prefetch | Op::DrvIn | Op::DrvOut => bio.sectors,
    };
    if sectors == bio.sectors {
        Ok(sectors)
    } else if bio.flags.has(Flags::ATOMIC) {
        Err(Status::Inval)
    } else if bio.flags.has(Flags::NOWAIT) {
        Err(Status::Again)
    } else {
        Ok(sectors)
    }
}

/// Cuts `bio` after its front part and returns the rest. The front is not to be merged again.
pub(crate) fn cut(bio: &mut Bio, sectors: u32) -> Bio {
    let at = if bio.data.is_empty() { 0 } else { (u64::from(sectors) * SECTOR) as usize };
    let rest = Bio {
        sector: bio.sector + u64::from(sectors),
        sectors: bio.sectors - sectors,
        data: if at == 0 { Data::None } else { bio.data.split_off(at) },
        ..*bio
    };
    bio.sectors = sectors;
    bio.flags |= Flags::NOMERGE;
    rest
}

fn front_of_data(bio: &Bio, limits: &Limits) -> Result<u32, Status> {
    let mut max = limits.max_sectors();
    if limits.chunk_sectors != 0 {
        let chunk = u64::from(limits.chunk_sectors);
        max = max.min((chunk - bio.sector % chunk) as u32);
    }
    let by_memory = sectors_by_segments(bio, limits, max);
    if by_memory >= bio.sectors {
        return Ok(bio.sectors);
    }
    let block = limits.block_sectors();
    if by_memory < max {
        // The memory decides, and a stop inside a block goes back to its start.
        let whole = by_memory - by_memory % block;
        return if whole > 0 { Ok(whole) } else { Err(Status::Inval) };
    }
    // Prefer an end on a physical block, so that the rest starts on one.
    let physical = u64::from(limits.physical_block_size) / SECTOR;
    let end = (bio.sector + u64::from(max)) / physical * physical;
    if end > bio.sector {
        return Ok((end - bio.sector) as u32);
    }
    Ok((max - max % block).max(block))
}

/// Address and length of each piece of memory. Zeros that no memory holds count as one, and so do
/// segments that the driver does not take: they travel in a buffer.
fn pieces(data: &Data, limits: &Limits) -> impl Iterator<Item = (u64, u64)> {
    let one = matches!(data, Data::Zero { .. }) || !takes(data, limits);
    let whole = one.then(|| (0, data.len() as u64));
    let each = data.segments().map(|piece| (piece.start.as_ptr() as u64, u64::from(piece.len)));
    whole.into_iter().chain(each.skip(if one { usize::MAX } else { 0 }))
}

/// Whether the driver can be given memory of this kind.
pub(crate) fn takes(data: &Data, limits: &Limits) -> bool {
    limits.takes_segments || !matches!(data, Data::Segments(_))
}

/// Bytes of the segment that starts at `address`, of so many.
fn segment_len(limits: &Limits, address: u64, bytes: u64) -> u64 {
    let to_boundary = limits.seg_boundary_mask - (address & limits.seg_boundary_mask);
    bytes.min(u64::from(limits.max_segment_size)).min(to_boundary.saturating_add(1))
}

/// Segments that `data` takes, 255 for that many or more.
pub(crate) fn segments(data: &Data, limits: &Limits) -> u8 {
    let mut count = 0;
    for (mut start, mut left) in pieces(data, limits) {
        while left > 0 && count < u8::MAX {
            let piece = segment_len(limits, start, left);
            (start, left, count) = (start + piece, left - piece, count + 1);
        }
    }
    count
}

/// Whether memory of at most the longest segment is one, and where the driver can reach it.
pub(crate) fn is_one_segment(data: &Data, limits: &Limits) -> bool {
    let mut pieces = data.segments();
    let Some(piece) = pieces.next() else { return !matches!(data, Data::Many(_)) };
    let (start, len) = (piece.start.as_ptr() as u64, u64::from(piece.len));
    pieces.len() == 0 && is_reachable(data, limits) && segment_len(limits, start, len) == len
}

/// Whether the driver can reach memory where it lies: it takes that kind of memory, each piece
/// starts on the alignment, and all but the last are whole blocks, as O_DIRECT asks of every piece.
pub(crate) fn is_reachable(data: &Data, limits: &Limits) -> bool {
    let mask = u64::from(limits.dma_alignment);
    if mask == 0 || !takes(data, limits) {
        return takes(data, limits);
    }
    let block_mask = u64::from(limits.logical_block_size) - 1;
    let pieces = data.segments();
    let last = pieces.len().saturating_sub(1);
    pieces.enumerate().all(|(index, piece)| {
        let len = if index < last { u64::from(piece.len) } else { 0 };
        (piece.start.as_ptr() as u64 & mask) | (len & block_mask) == 0
    })
}

/// Whether memory starts where a device with a virtual boundary can take it behind other memory.
pub(crate) fn starts_on_boundary(data: &Data, limits: &Limits) -> bool {
    let start = data.segments().next().map_or(0, |piece| piece.start.as_ptr() as u64);
    start & limits.virt_boundary_mask == 0
}

/// How many sectors the segment limits allow, at most `max`.
fn sectors_by_segments(bio: &Bio, limits: &Limits, max: u32) -> u32 {
    let most = (u64::from(max) * SECTOR).min(u64::from(bio.sectors) * SECTOR);
    let (mut bytes, mut segments) = (0, 0);
    let mut last_end = None;
    for (start, len) in pieces(&bio.data, limits) {
        // A gap: the last one ends, or this one starts, off the boundary. (Buffers start on pages,
        // but what was cut from one may start anywhere.)
        if last_end.is_some_and(|end: u64| (end | start) & limits.virt_boundary_mask != 0) {
            break;
        }
        last_end = Some(start + len);
        let (mut at, mut left) = (start, len);
        while left > 0 && segments < u64::from(limits.max_segments) && bytes < most {
            let piece = segment_len(limits, at, left);
            (bytes, at, left) = (bytes + piece, at + piece, left - piece);
            segments += 1;
        }
        if left > 0 {
            break;
        }
    }
    (bytes.min(most) / SECTOR) as u32
}

/// Whether each logical block can be a request: a cut comes between blocks, so one with more
/// segments than a request may have, or with a gap inside, cannot be carried out.
pub(crate) fn blocks_fit(bio: &Bio, limits: &Limits) -> bool {
    let block = u64::from(limits.logical_block_size);
    let segment_max = u64::from(limits.max_segments) * u64::from(limits.max_segment_size);
    if limits.seg_boundary_mask == u64::MAX
        && segment_max >= block
        && pieces(&bio.data, limits).all(|(_, len)| len.is_multiple_of(block))
    {
        return true;
    }
    let (mut room, mut segments, mut last_end) = (block, 0, 0);
    for (start, len) in pieces(&bio.data, limits) {
        if room < block && (last_end | start) & limits.virt_boundary_mask != 0 {
            return false;
        }
        let (mut at, mut left) = (start, len);
        while left > 0 {
            let piece = segment_len(limits, at, left.min(room));
            (at, left, room) = (at + piece, left - piece, room - piece);
            segments += 1;
            if segments > limits.max_segments {
                return false;
            }
            if room == 0 {
                (room, segments) = (block, 0);
            }
        }
        last_end = start + len;
    }
    true
}

fn front_of_discard(bio: &Bio, limits: &Limits) -> u32 {
    let max = limits.max_discard_sectors();
    if bio.sectors <= max {
        return bio.sectors;
    }
    let granule = (u64::from(limits.discard_granularity) / SECTOR).max(1);
    let offset = u64::from(limits.discard_alignment) / SECTOR % granule;
    // The next part should start on a granule: shorten the front until it does.
    let past = (bio.sector + u64::from(max) + granule - offset) % granule;
    if past < u64::from(max) { max - past as u32 } else { max }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_bio::Buf;

    fn wide() -> Limits {
        Limits { max_hw_sectors: 1 << 16, max_segment_size: u32::MAX, ..Limits::default() }
    }

    fn write(sector: u64, sectors: u32) -> Bio {
        Bio::write(sector, Buf::zeroed(sectors as usize * 512))
    }

    #[test]
    fn what_fits_is_not_split() {
        assert_eq!(front(&write(0, 2048), &wide()), Ok(2048));
    }

    #[test]
    fn parts_cover_the_bio_and_hold_every_limit() {
        let limits =
            Limits { max_hw_sectors: 100, chunk_sectors: 64, physical_block_size: 4096, ..wide() };
        let mut bio = write(13, 1000);
        let (mut at, mut end) = (13, false);
        while !end {
            let n = front(&bio, &limits).unwrap();
            end = n == bio.sectors;
            let rest = if end { None } else { Some(cut(&mut bio, n)) };
            assert_eq!((bio.sector, bio.sectors), (at, n));
            assert_eq!(bio.data.len(), n as usize * 512);
            assert!(n <= 64 && at / 64 == (at + u64::from(n) - 1) / 64, "{n} sectors at {at}");
            at += u64::from(n);
            bio = rest.unwrap_or(bio);
        }
        assert_eq!(at, 1013);
    }

    #[test]
    fn a_split_prefers_to_end_on_a_physical_block() {
        let limits = Limits { max_hw_sectors: 20, physical_block_size: 4096, ..wide() };
        assert_eq!(front(&write(3, 100), &limits), Ok(13), "3 + 13 = 16 = 2 x 8");
    }

    #[test]
    fn segments_are_counted_with_their_size() {
        let limits = Limits { max_segments: 3, max_segment_size: 4096, ..wide() };
        assert_eq!(front(&write(0, 64), &limits), Ok(24));
        let mut bio = write(0, 8);
        bio.data.append(write(0, 8).data);
        bio.sectors = 16;
        let limits = Limits { max_segments: 1, ..wide() };
        assert_eq!(front(&bio, &limits), Ok(8));
    }

    #[test]
    fn discards_end_on_a_granule() {
        let limits =
            Limits { max_hw_discard_sectors: 128, discard_granularity: 16 * 512, ..wide() };
        let bio = Bio::new(Op::Discard, 5, 1000, Data::None);
        assert_eq!(front(&bio, &limits), Ok(123));
    }

    #[test]
    fn atomic_and_nowait_bios_are_not_split() {
        let limits = Limits { max_hw_sectors: 16, ..wide() };
        assert_eq!(front(&write(0, 64).with(Flags::ATOMIC), &limits), Err(Status::Inval));
        assert_eq!(front(&write(0, 64).with(Flags::NOWAIT), &limits), Err(Status::Again));
    }
}
