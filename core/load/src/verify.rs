//! Blocks that say what they are, so that a stale, misplaced or torn one is found when it is read.
//!
//! Layout, little-endian: magic (8 bytes), offset in bytes (8), generation (4), CRC-32C over the
//! rest of the block (4), then a digest over the rest of the block if there is one, then bytes that
//! follow from seed, offset and generation; each further sector begins with the magic too.

use serde::{Deserialize, Serialize};
use weir_bio::Prng;

use crate::ask::Fault;
use crate::digest::{md5, sha256};
use crate::mark::{self, VERIFIED as MAGIC};
use crate::pattern;

const HEADER: usize = 24;

/// The content of written blocks, by which a read can check them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verify {
    /// Its place, its generation, random bytes and a CRC-32C over all.
    Crc32c,
    /// Its place, its generation, and bytes that follow from the two: each is compared.
    Pattern,
    /// As the first, with an MD5 over all.
    Md5,
    /// With a SHA-256.
    Sha256,
    /// Its place and its generation alone: the rest is not looked at.
    Meta,
}

impl Verify {
    /// As its option has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Verify::Crc32c => "crc32c",
            Verify::Pattern => "pattern",
            Verify::Md5 => "md5",
            Verify::Sha256 => "sha256",
            Verify::Meta => "meta",
        }
    }
}

/// Which block this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Its place on the target, bytes.
    pub offset: u64,
    /// How often it has been written, from 1; 0 where that is not known.
    pub generation: u32,
}

/// The content of the blocks of a job.
#[derive(Clone, Copy, Debug)]
pub struct Format<'a> {
    /// How they are checked.
    pub how: Verify,
    /// What their random bytes follow from.
    pub seed: u64,
    /// What is in their place, from the start of each block; empty: there are random bytes.
    pub pattern: &'a [u8],
}

impl Format<'_> {
    /// Whether a block is the pattern and nothing else.
    fn is_bare(&self) -> bool {
        self.how == Verify::Pattern && !self.pattern.is_empty()
    }

    /// The first byte of a block that is not as the pattern has it, and that one.
    fn differs(&self, block: &[u8]) -> Option<(usize, u8)> {
        let wanted = |at: usize| self.pattern[at % self.pattern.len()];
        (0..block.len()).find(|at| block[*at] != wanted(*at)).map(|at| (at, wanted(at)))
    }
}

/// Makes `block` what `stamp` says.
pub fn write(format: Format<'_>, stamp: Stamp, block: &mut [u8]) {
    let Format { how, seed, pattern } = format;
    if !pattern.is_empty() {
        pattern::fill(pattern, block);
        if format.is_bare() {
            return;
        }
    }
    block[8..16].copy_from_slice(&stamp.offset.to_le_bytes());
    block[16..20].copy_from_slice(&stamp.generation.to_le_bytes());
    block[20..24].fill(0);
    if pattern.is_empty() {
        body(seed, stamp).fill(&mut block[HEADER..]);
    }
    mark::put(MAGIC, block);
    match how {
        Verify::Crc32c => {
            let crc = crc32c(block);
            block[20..24].copy_from_slice(&crc.to_le_bytes());
        }
        Verify::Md5 => {
            let digest = md5(&around(block, 16));
            block[HEADER..HEADER + 16].copy_from_slice(&digest);
        }
        Verify::Sha256 => {
            let digest = sha256(&around(block, 32));
            block[HEADER..HEADER + 32].copy_from_slice(&digest);
        }
        Verify::Pattern | Verify::Meta => (),
    }
}

/// A block without its digest of so many bytes.
fn around(block: &[u8], bytes: usize) -> [&[u8]; 2] {
    [&block[..HEADER], &block[HEADER + bytes..]]
}

/// The CRC-32C of a block without its own.
fn crc_of(block: &[u8]) -> u32 {
    let mut crc = Crc::default();
    crc.add(&block[..20]);
    crc.add(&[0; 4]);
    crc.add(&block[HEADER..]);
    crc.sum()
}

/// Whether the digest in a block is that of its other bytes.
///
/// # Errors
/// The bytes expected, and those found.
fn compare(how: Verify, block: &[u8]) -> Result<(), [String; 2]> {
    let (name, bytes, of_block) = match how {
        Verify::Sha256 => ("SHA-256", 32, sha256(&around(block, 32)).to_vec()),
        _ => ("MD5", 16, md5(&around(block, 16)).to_vec()),
    };
    let found = &block[HEADER..HEADER + bytes];
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    match found == of_block {
        true => Ok(()),
        false => Err([
            format!("bytes of {name} {}, as its header says", hex(found)),
            format!("bytes of {name} {}", hex(&of_block)),
        ]),
    }
}

fn body(seed: u64, stamp: Stamp) -> Prng {
    Prng::new(seed ^ stamp.offset.rotate_left(20) ^ u64::from(stamp.generation))
}

fn word<const N: usize>(block: &[u8], at: usize) -> [u8; N] {
    block[at..at + N].try_into().expect("a header is longer than its fields")
}

/// Looks whether `block` is what `stamp` says.
///
/// # Errors
/// The expected content, and the content found.
pub fn check(format: Format<'_>, stamp: Stamp, block: &[u8]) -> Result<(), Fault> {
    let Format { how, seed, .. } = format;
    let bytes = block.len() as u64;
    let fault = |expected: String, found: String| {
        let what = format!("expected {expected}, found {found}");
        Err(Fault { offset: stamp.offset, bytes, what })
    };
    if format.is_bare() {
        return match format.differs(block) {
            None => Ok(()),
            Some((at, wanted)) => fault(
                format!("{wanted:#04x} at its byte {at}, as the pattern has it"),
                format!("{:#04x}", block[at]),
            ),
        };
    }
    let magic = u64::from_le_bytes(word(block, 0));
    if magic != MAGIC {
        let expected = format!("a block as this job writes them, which begin with {MAGIC:#018x}");
        return fault(
            expected,
            match block.iter().all(|byte| *byte == 0) {
                true => String::from("zeros"),
                false => format!("{magic:#018x} at its start"),
            },
        );
    }
    let offset = u64::from_le_bytes(word(block, 8));
    if offset != stamp.offset {
        let expected = format!("the block of byte {}", stamp.offset);
        return fault(expected, format!("that of byte {offset}, which is misplaced"));
    }
    let generation = u32::from_le_bytes(word(block, 16));
    if stamp.generation != 0 && generation != stamp.generation {
        let wanted = stamp.generation;
        let stale = if generation < wanted { ", which is stale" } else { "" };
        let expected = format!("what was written there last, write number {wanted} of this block");
        return fault(expected, format!("write number {generation}{stale}"));
    }
    let found = u32::from_le_bytes(word(block, 20));
    match how {
        Verify::Crc32c => {
            let crc = crc_of(block);
            if crc != found {
                let expected = format!("bytes of CRC-32C {found:#010x}, as its header says");
                return fault(expected, format!("bytes of CRC-32C {crc:#010x}"));
            }
        }
        Verify::Md5 | Verify::Sha256 => {
            if let Err([expected, found]) = compare(how, block) {
                return fault(expected, found);
            }
        }
        Verify::Meta => (),
        Verify::Pattern => {
            let mut prng = body(seed, Stamp { generation, ..stamp });
            for (index, chunk) in block[HEADER..].chunks(8).enumerate() {
                let at = HEADER + index * 8;
                let (random, marked) = (prng.next(), mark::stands_at(at));
                let wanted = &if marked { MAGIC } else { random }.to_le_bytes()[..chunk.len()];
                if chunk != wanted {
                    let expected = format!("{wanted:02x?} at its byte {at}");
                    return fault(expected, format!("{chunk:02x?}"));
                }
            }
        }
    }
    Ok(())
}

/// CRC-32C (Castagnoli), bytes at a time by eight tables.
#[derive(Clone, Copy, Debug)]
pub struct Crc(u32);

impl Default for Crc {
    fn default() -> Crc {
        Crc(!0)
    }
}

/// Reflected polynomial of CRC-32C, RFC 3720 appendix B.4.
const POLYNOMIAL: u32 = 0x82f6_3b78;

static TABLES: [[u32; 256]; 8] = {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = (byte as u32, 0);
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut table = 1;
    while table < 8 {
        byte = 0;
        while byte < 256 {
            let before = tables[table - 1][byte];
            tables[table][byte] = before >> 8 ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        table += 1;
    }
    tables
};

impl Crc {
    /// Takes more bytes in.
    pub fn add(&mut self, bytes: &[u8]) {
        let (eights, rest) = bytes.as_chunks::<8>();
        let mut crc = self.0;
        for eight in eights {
            let low = u32::from_le_bytes([eight[0], eight[1], eight[2], eight[3]]) ^ crc;
            crc = TABLES[7][(low & 0xff) as usize]
                ^ TABLES[6][(low >> 8 & 0xff) as usize]
                ^ TABLES[5][(low >> 16 & 0xff) as usize]
                ^ TABLES[4][(low >> 24) as usize]
                ^ TABLES[3][usize::from(eight[4])]
                ^ TABLES[2][usize::from(eight[5])]
                ^ TABLES[1][usize::from(eight[6])]
                ^ TABLES[0][usize::from(eight[7])];
        }
        for byte in rest {
            crc = crc >> 8 ^ TABLES[0][((crc ^ u32::from(*byte)) & 0xff) as usize];
        }
        self.0 = crc;
    }

    /// The checksum of what was taken in.
    #[must_use]
    pub fn sum(self) -> u32 {
        !self.0
    }
}

/// The CRC-32C of these bytes.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = Crc::default();
    crc.add(bytes);
    crc.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Verify; 4] = [Verify::Crc32c, Verify::Pattern, Verify::Md5, Verify::Sha256];

    fn format(how: Verify) -> Format<'static> {
        Format { how, seed: 7, pattern: &[] }
    }

    #[test]
    fn a_pattern_alone_is_all_that_a_block_holds_and_is_compared_byte_by_byte() {
        let (stamp, mut block) = (Stamp { offset: 4096, generation: 1 }, [0; 1024]);
        let format = Format { how: Verify::Pattern, seed: 7, pattern: b"abc" };
        write(format, stamp, &mut block);
        assert!(block.starts_with(b"abcabc") && block[1023] == b'a');
        // Any block of the pattern will do, wherever and whenever it was written.
        check(format, Stamp { offset: 0, generation: 9 }, &block).expect("the pattern");
        block[1000] ^= 1;
        let what = check(format, stamp, &block).expect_err("a byte").what;
        assert!(what.contains("0x62 at its byte 1000") && what.ends_with("found 0x63"), "{what}");
    }

    #[test]
    fn a_pattern_stands_between_the_header_and_the_marks() {
        for how in [Verify::Meta, Verify::Crc32c, Verify::Sha256] {
            let (stamp, mut block) = (Stamp { offset: 4096, generation: 1 }, [0; 1024]);
            let format = Format { how, seed: 7, pattern: &[0xaa, 0x55] };
            write(format, stamp, &mut block);
            check(format, stamp, &block).expect("it is what was written");
            assert!(block[56..512].iter().enumerate().all(|(at, b)| *b == [0xaa, 0x55][at % 2]));
            assert!(block.chunks(512).all(mark::is_marked));
            let stale = Stamp { generation: 2, ..stamp };
            assert!(check(format, stale, &block).is_err(), "the header is looked at");
            block[100] ^= 1;
            let of_body = check(format, stamp, &block);
            assert_eq!(of_body.is_ok(), how == Verify::Meta, "{of_body:?}");
        }
    }

    #[test]
    fn the_checksum_is_that_of_the_standard() {
        // RFC 3720, appendix B.4.
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn a_block_of_several_sectors_is_what_was_written_and_damage_to_any_mark_is_found() {
        for how in ALL {
            let stamp = Stamp { offset: 4096, generation: 1 };
            let mut block = [0; 4096];
            write(format(how), stamp, &mut block);
            check(format(how), stamp, &block).expect("it is what was written");
            for sector in 1..8 {
                block[sector * 512] ^= 1;
                let what = check(format(how), stamp, &block).expect_err("a mark").what;
                let place = format!("at its byte {}", sector * 512);
                let named = ["CRC-32C", "MD5", "SHA-256", &place];
                assert!(named.iter().any(|part| what.contains(part)), "{what}");
                block[sector * 512] ^= 1;
            }
        }
    }

    #[test]
    fn each_kind_of_damage_is_named_with_what_was_found() {
        for how in ALL {
            let stamp = Stamp { offset: 8192, generation: 3 };
            let mut block = [0; 512];
            write(format(how), stamp, &mut block);
            check(format(how), stamp, &block).expect("it is what was written");
            check(format(how), Stamp { generation: 0, ..stamp }, &block).expect("any generation");
            let said = |stamp, block: &[u8]| check(format(how), stamp, block).unwrap_err().what;
            assert!(said(Stamp { generation: 4, ..stamp }, &block).contains("stale"));
            assert!(said(Stamp { offset: 4096, ..stamp }, &block).contains("byte 8192"));
            assert!(said(stamp, &[0; 512]).ends_with(", found zeros"));
            block[300] ^= 1;
            let torn = said(stamp, &block);
            let named = ["CRC-32C", "MD5", "SHA-256", "at its byte 296"];
            assert!(named.iter().any(|part| torn.contains(part)), "{torn}");
            block[300] ^= 1;
            // What the sum itself stands in counts as well.
            block[HEADER] ^= 1;
            said(stamp, &block);
            block[0] ^= 1;
            assert!(said(stamp, &block).contains("which begin with"));
            assert_eq!(check(format(how), stamp, &block).unwrap_err().bytes, 512);
        }
    }
}
