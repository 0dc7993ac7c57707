//! How redo and data lie on the medium. Little-endian.

pub use crate::ask::CHANGES;

use crate::mark::{self, DATA as DATA_MAGIC, REDO as REDO_MAGIC};
use crate::verify::crc32c;

/// Bytes of a data block.
pub const BLOCK_BYTES: u64 = 8192;
/// Bytes of a redo block.
pub const REDO_BYTES: u64 = 4096;
/// Transactions in one redo block.
pub const RECORDS: usize = 7;

const HEADER: usize = 64;
/// Light redo: half a kilobyte for a transaction, whatever it changed.
const RECORD_BYTES: usize = 512;
// Where a sector begins, its mark, there is none of a record.
const _: () = assert!(8 + 8 * CHANGES <= RECORD_BYTES - HEADER);

/// The changes of one transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The transaction: they count from 1 within an instance, in the order of their commits.
    pub id: u64,
    /// The data blocks it changed.
    pub blocks: [u64; CHANGES],
}

/// A block of the redo log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogBlock {
    /// Which run wrote it.
    pub run: u64,
    /// Which instance of that.
    pub instance: u16,
    /// Its number; its place is that modulo the blocks of the log.
    pub number: u64,
    /// Transactions below this have their data blocks on the medium.
    pub checkpoint: u64,
    /// At most [`RECORDS`].
    pub records: Vec<Record>,
}

fn put(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

fn take(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

impl LogBlock {
    /// Writes it into [`REDO_BYTES`] bytes.
    pub fn encode(&self, bytes: &mut [u8]) {
        bytes.fill(0);
        mark::put(REDO_MAGIC, bytes);
        let count = self.records.len() as u64;
        let identity = u64::from(self.instance) | count << 16;
        let header = [REDO_MAGIC, 0, self.run, self.number, self.checkpoint, identity];
        header.iter().enumerate().for_each(|(word, value)| put(bytes, word * 8, *value));
        for (record, bytes) in self.records.iter().zip(bytes[HEADER..].chunks_mut(RECORD_BYTES)) {
            put(bytes, 0, record.id);
            let blocks = record.blocks.iter().enumerate();
            blocks.for_each(|(index, block)| put(bytes, 8 + index * 8, *block));
        }
        let crc = crc32c(bytes);
        put(bytes, 8, u64::from(crc));
    }

    /// Reads it back; `None` for what is no redo block, or a torn one.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<LogBlock> {
        if bytes.len() != REDO_BYTES as usize || take(bytes, 0) != REDO_MAGIC {
            return None;
        }
        let mut blank = bytes.to_vec();
        put(&mut blank, 8, 0);
        let count = (take(bytes, 40) >> 16) as usize;
        if u64::from(crc32c(&blank)) != take(bytes, 8) || count > RECORDS {
            return None;
        }
        let records = bytes[HEADER..].chunks(RECORD_BYTES).take(count).map(|bytes| Record {
            id: take(bytes, 0),
            blocks: std::array::from_fn(|index| take(bytes, 8 + index * 8)),
        });
        Some(LogBlock {
            run: take(bytes, 16),
            instance: take(bytes, 40) as u16,
            number: take(bytes, 24),
            checkpoint: take(bytes, 32),
            records: records.collect(),
        })
    }
}

/// Writes what a data block says of itself: at its head, and its newest change at its tail again,
/// so that a torn one shows.
pub fn encode_data(run: u64, instance: u16, block: u64, newest: u64, bytes: &mut [u8]) {
    mark::put(DATA_MAGIC, bytes);
    let header = [DATA_MAGIC, run, u64::from(instance), block, newest];
    header.iter().enumerate().for_each(|(word, value)| put(bytes, word * 8, *value));
    put(bytes, bytes.len() - 8, newest);
}

/// The newest change of a data block, if it is that block of that instance and whole.
#[must_use]
pub fn decode_data(run: u64, instance: u16, block: u64, bytes: &[u8]) -> Option<u64> {
    let header = [DATA_MAGIC, run, u64::from(instance), block];
    let mine = header.iter().enumerate().all(|(word, value)| take(bytes, word * 8) == *value);
    let newest = take(bytes, 32);
    (mine && take(bytes, bytes.len() - 8) == newest).then_some(newest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redo_block_comes_back_as_it_was_and_a_torn_one_does_not() {
        let record = |id| Record { id, blocks: std::array::from_fn(|n| id * 100 + n as u64) };
        let records = (5..5 + RECORDS as u64).map(record).collect();
        let block = LogBlock { run: 9, instance: 3, number: 77, checkpoint: 4, records };
        let mut bytes = vec![0xaa; REDO_BYTES as usize];
        block.encode(&mut bytes);
        assert_eq!(LogBlock::decode(&bytes), Some(block));
        bytes[REDO_BYTES as usize - 1] ^= 1;
        assert_eq!(LogBlock::decode(&bytes), None);
    }

    #[test]
    fn a_data_block_says_which_change_it_holds_unless_it_is_torn() {
        let mut bytes = vec![0xaa; BLOCK_BYTES as usize];
        encode_data(9, 1, 12, 500, &mut bytes);
        assert_eq!(decode_data(9, 1, 12, &bytes), Some(500));
        assert_eq!(decode_data(9, 1, 13, &bytes), None);
        assert_eq!(decode_data(8, 1, 12, &bytes), None);
        bytes[BLOCK_BYTES as usize - 8] ^= 1;
        assert_eq!(decode_data(9, 1, 12, &bytes), None);
    }
}
