//! From ranges of sectors to commands. Sizes that are no whole blocks end as an I/O error before
//! any command is sent.

use weir_bio::{SECTOR, Status};

use super::{CdbRule, DiscardBy, DiskLimits};
use crate::command::{CdbSize, ScsiCommand, SynchronizeCache, Transfer, WriteSame};
use crate::unmap::{UnmapRange, unmap_list_len};

/// A range of a disk, sectors of 512 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SectorRange {
    /// The first sector.
    pub sector: u64,
    /// How many.
    pub sectors: u32,
}

/// What is sent with a command on a range, beside the data of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockPayload {
    /// One logical block of zeros, for WRITE SAME.
    ZeroBlock,
    /// The parameter list of UNMAP with this range.
    Unmap(UnmapRange),
}

/// A command and what is sent with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CarriedCommand {
    /// The command.
    pub command: ScsiCommand,
    /// What is sent.
    pub payload: BlockPayload,
}

impl DiskLimits {
    /// The READ of a range.
    ///
    /// # Errors
    /// See [`DiskLimits::write`].
    pub fn read(&self, range: SectorRange, fua: bool) -> Result<ScsiCommand, Status> {
        Ok(ScsiCommand::Read(self.transfer(range, fua)?))
    }

    /// The WRITE of a range.
    ///
    /// # Errors
    /// [`Status::IoErr`] for a range that is no whole blocks, is empty, or is outside the only form
    /// the disk takes; [`Status::NotSupp`] for FUA on a disk that takes 6 bytes only.
    pub fn write(&self, range: SectorRange, fua: bool) -> Result<ScsiCommand, Status> {
        Ok(ScsiCommand::Write(self.transfer(range, fua)?))
    }

    fn transfer(&self, range: SectorRange, fua: bool) -> Result<Transfer, Status> {
        let UnmapRange { lba, blocks } = self.blocks(range)?;
        if fua && self.cdbs == CdbRule::SixOnly {
            return Err(Status::NotSupp);
        }
        let size = self.cdbs.size(lba, blocks);
        if lba > size.lba_max() || blocks > size.blocks_max() {
            return Err(Status::IoErr);
        }
        Ok(Transfer { size, lba, blocks, dpo: false, fua })
    }

    /// The command that empties the volatile cache of the whole disk, and answers when that is
    /// done.
    #[must_use]
    pub const fn flush(&self) -> ScsiCommand {
        let size = match self.cdbs {
            CdbRule::SixOnly | CdbRule::TenOrSixteen => CdbSize::Ten,
            CdbRule::SixteenOnly => CdbSize::Sixteen,
        };
        ScsiCommand::SynchronizeCache(SynchronizeCache {
            size,
            lba: 0,
            blocks: 0,
            immediate: false,
        })
    }

    /// The command that deallocates a range.
    ///
    /// # Errors
    /// [`Status::NotSupp`] without a way; [`Status::IoErr`] as of [`DiskLimits::write`].
    pub fn discard(&self, range: SectorRange) -> Result<CarriedCommand, Status> {
        match self.discard {
            DiscardBy::None => Err(Status::NotSupp),
            DiscardBy::Unmap => {
                let length = unmap_list_len(1).expect("one range fits");
                let command = ScsiCommand::Unmap { anchor: false, length };
                Ok(CarriedCommand { command, payload: BlockPayload::Unmap(self.blocks(range)?) })
            }
            DiscardBy::WriteSame(size) => self.write_same(range, size, true),
        }
    }

    /// The command after which a range reads as zeros. With `keep` it stays allocated.
    ///
    /// # Errors
    /// [`Status::NotSupp`] without a way, where zeros have to be written instead;
    /// [`Status::IoErr`] as of [`DiskLimits::write`].
    pub fn write_zeroes(&self, range: SectorRange, keep: bool) -> Result<CarriedCommand, Status> {
        match (self.zeros_unmapping, self.zeros_writing) {
            (Some(size), _) if !keep => self.write_same(range, size, true),
            (_, Some(size)) => self.write_same(range, size, false),
            (_, None) => Err(Status::NotSupp),
        }
    }

    fn write_same(
        &self,
        range: SectorRange,
        size: CdbSize,
        unmap: bool,
    ) -> Result<CarriedCommand, Status> {
        let UnmapRange { lba, blocks } = self.blocks(range)?;
        if lba > size.lba_max() || blocks > size.blocks_max() {
            return Err(Status::IoErr);
        }
        let command = ScsiCommand::WriteSame(WriteSame {
            size,
            lba,
            blocks,
            unmap,
            anchor: false,
            ndob: false,
        });
        Ok(CarriedCommand { command, payload: BlockPayload::ZeroBlock })
    }

    /// The range in logical blocks. An empty one is refused: a length of zero means 256 blocks, or
    /// all to the end, in some CDBs.
    fn blocks(&self, range: SectorRange) -> Result<UnmapRange, Status> {
        let per_block = self.logical_block_size / SECTOR as u32;
        let SectorRange { sector, sectors } = range;
        let whole =
            sector.is_multiple_of(u64::from(per_block)) && sectors.is_multiple_of(per_block);
        if !whole || sectors == 0 {
            return Err(Status::IoErr);
        }
        Ok(UnmapRange { lba: sector / u64::from(per_block), blocks: sectors / per_block })
    }
}
