//! How sectors that a load has written are told from what others keep on a disk: each begins with a
//! number that says so.

use weir_bio::{Prng, SECTOR};

/// Of blocks that are random otherwise: "weirload" on the medium.
const RANDOM: u64 = 0x6461_6f6c_7269_6577;
/// Of blocks that are [verified](crate::verify): "werblock" on the medium.
pub(crate) const VERIFIED: u64 = 0x6b63_6f6c_6272_6577;
/// Of the [redo](crate::oltp::format) of a database: "weirredo" on the medium.
pub(crate) const REDO: u64 = 0x6f64_6572_7269_6577;
/// Of its data: "weirdata" on the medium.
pub(crate) const DATA: u64 = 0x6174_6164_7269_6577;

const BYTES: usize = 8;

/// Fills memory with random bytes, a mark at the start of each sector.
pub fn fill(prng: &mut Prng, bytes: &mut [u8]) {
    prng.fill(bytes);
    put(RANDOM, bytes);
}

/// Marks the start of each sector.
pub(crate) fn put(mark: u64, bytes: &mut [u8]) {
    for sector in bytes.chunks_mut(SECTOR as usize) {
        let count = sector.len().min(BYTES);
        sector[..count].copy_from_slice(&mark.to_le_bytes()[..count]);
    }
}

/// Whether a mark stands at this byte of a block.
pub(crate) fn stands_at(byte: usize) -> bool {
    byte.is_multiple_of(SECTOR as usize)
}

/// Whether this is a sector that a load has written.
#[must_use]
pub fn is_marked(sector: &[u8]) -> bool {
    let number = sector.first_chunk::<BYTES>().map(|bytes| u64::from_le_bytes(*bytes));
    number.is_some_and(|number| [RANDOM, VERIFIED, REDO, DATA].contains(&number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Verify;
    use crate::oltp::format::{LogBlock, REDO_BYTES, encode_data};
    use crate::verify::{Format, Stamp, write};

    #[test]
    fn what_loads_write_is_marked_and_nothing_else_is() {
        let mut random = vec![0; 1500];
        fill(&mut Prng::new(1), &mut random);
        assert!(random.chunks(512).all(is_marked));
        assert!(random[8..512].iter().any(|byte| *byte != 0));
        let mut verified = [0; 4096];
        let format = Format { how: Verify::Crc32c, seed: 1, pattern: &[] };
        write(format, Stamp { offset: 512, generation: 3 }, &mut verified);
        let mut redo = [0; REDO_BYTES as usize];
        let (run, instance, number) = (1, 2, 3);
        LogBlock { run, instance, number, checkpoint: 0, records: Vec::new() }.encode(&mut redo);
        let mut data = [0; 8192];
        encode_data(1, 2, 3, 4, &mut data);
        let all = [&verified[..], &redo, &data];
        assert!(all.iter().all(|block| block.chunks(512).all(is_marked)));
        for other in [&[][..], b"weirloa", b"\0weirload", &[0; 512], &[0xff; 512]] {
            assert!(!is_marked(other), "{other:?}");
        }
    }
}
