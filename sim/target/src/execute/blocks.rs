//! Commands on blocks.

use weir_bio::PAGE;
use weir_proto_scsi::command::{CompareAndWrite, SynchronizeCache, Transfer, WriteSame};
use weir_proto_scsi::unmap::{list_length_error, unmap_ranges};
use weir_proto_scsi::{AdditionalSense, Sense, SenseKey};

use super::{BAD_LIST, DataIn, Job, Outcome, Refusal, check, illegal};
use crate::image::Ink;
use crate::journal::LunRange;
use crate::state::Target;

/// The most blocks of one UNMAP.
pub(super) const UNMAP_BLOCKS_MAX: u32 = 0x40_0000;
/// The most ranges of one UNMAP.
pub(super) const UNMAP_RANGES_MAX: u32 = 256;

/// A range that was checked.
#[derive(Clone, Copy)]
struct Blocks {
    lba: u64,
    count: u64,
}

impl Target {
    /// Refuses a range that ends behind the last block.
    fn inside(&self, unit: usize, lba: u64, count: u64) -> Result<Blocks, Refusal> {
        match lba.checked_add(count) {
            Some(end) if end <= self.units[unit].blocks => Ok(Blocks { lba, count }),
            _ => Err(illegal(AdditionalSense::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE)),
        }
    }

    fn inside_transfer(
        &self,
        unit: usize,
        job: Job<'_>,
        transfer: Transfer,
    ) -> Result<Blocks, Refusal> {
        let range = self.inside(unit, transfer.lba, u64::from(transfer.blocks))?;
        let most = self.units[unit].spec.transfer_blocks_max;
        if most != 0 && transfer.blocks > most {
            let at = match job.task.cdb_len {
                6 => 4,
                10 => 7,
                12 => 6,
                _ => 10,
            };
            return Err(job.bad_field(at));
        }
        Ok(range)
    }

    /// Refuses to change blocks of a disk that is read-only, or has no room for them.
    fn room_for(&self, unit: usize, blocks: Blocks) -> Result<(), Refusal> {
        let unit = &self.units[unit];
        if unit.spec.readonly {
            return Err(check(SenseKey::DataProtect, AdditionalSense::WRITE_PROTECTED));
        }
        let Some(most) = unit.thin_pages() else { return Ok(()) };
        let block = u64::from(unit.spec.block);
        let more = unit.image.unmapped_pages(blocks.lba * block, blocks.count * block);
        if unit.image.mapped_pages() + more > most {
            let code = AdditionalSense::SPACE_ALLOCATION_FAILED_WRITE_PROTECT;
            return Err(check(SenseKey::DataProtect, code));
        }
        Ok(())
    }

    /// Changes blocks. With `fua`, or without a cache, they are on the medium.
    fn put_blocks(&mut self, unit: usize, blocks: Blocks, ink: Ink<'_>, fua: bool) {
        let is = &mut self.units[unit];
        let block = u64::from(is.spec.block);
        let cached = is.write_cache && !fua;
        let (at, len) = (blocks.lba * block, blocks.count * block);
        is.image.write(at, len, ink, cached, &mut self.dice);
        if blocks.count > 0 {
            let lun = is.spec.number;
            self.landed.push(LunRange { lun, lba: blocks.lba, blocks: blocks.count });
        }
    }

    pub(super) fn read(&mut self, unit: usize, job: Job<'_>, transfer: Transfer) -> Outcome {
        let range = self.inside_transfer(unit, job, transfer)?;
        let block = u64::from(self.units[unit].spec.block);
        Ok(DataIn::Blocks { unit, at: range.lba * block, len: range.count * block })
    }

    pub(super) fn write(&mut self, unit: usize, job: Job<'_>, transfer: Transfer) -> Outcome {
        let range = self.inside_transfer(unit, job, transfer)?;
        self.room_for(unit, range)?;
        let len = range.count * u64::from(self.units[unit].spec.block);
        let Some(bytes) = usize::try_from(len).ok().and_then(|len| job.data.get(..len)) else {
            return Err(job.bad_field(0));
        };
        self.taken = bytes.len();
        if range.count > 0 {
            self.put_blocks(unit, range, Ink::Bytes(bytes), transfer.fua);
        }
        Ok(DataIn::None)
    }

    pub(super) fn compare_and_write(
        &mut self,
        unit: usize,
        job: Job<'_>,
        compare: CompareAndWrite,
    ) -> Outcome {
        let range = self.inside(unit, compare.lba, u64::from(compare.blocks))?;
        self.room_for(unit, range)?;
        let block = self.units[unit].spec.block as usize;
        let len = block * usize::from(compare.blocks);
        let Some(bytes) = job.data.get(..2 * len) else { return Err(job.bad_field(13)) };
        self.taken = bytes.len();
        let (expected, new) = bytes.split_at(len);
        let (mut done, mut differs) = (0, None);
        self.units[unit].image.read(compare.lba * block as u64, len as u64, |piece| {
            let pairs = piece.iter().zip(&expected[done..]);
            let at = pairs.into_iter().position(|(is, must)| is != must);
            differs = differs.or(at.map(|at| done + at));
            done += piece.len();
        });
        if let Some(at) = differs {
            let code = AdditionalSense::MISCOMPARE_DURING_VERIFY_OPERATION;
            let sense = Sense::new(SenseKey::Miscompare, code);
            return Err(Refusal::Check(Sense { information: Some(at as u64), ..sense }));
        }
        if range.count > 0 {
            self.put_blocks(unit, range, Ink::Bytes(new), compare.fua);
        }
        Ok(DataIn::None)
    }

    pub(super) fn synchronize(&mut self, unit: usize, cache: SynchronizeCache) -> Outcome {
        let range = self.inside(unit, cache.lba, u64::from(cache.blocks))?;
        let unit = &mut self.units[unit];
        let count = if range.count == 0 { unit.blocks - range.lba } else { range.count };
        let block = u64::from(unit.spec.block);
        unit.image.flush(range.lba * block, count * block);
        Ok(DataIn::None)
    }

    pub(super) fn write_same(&mut self, unit: usize, job: Job<'_>, same: WriteSame) -> Outcome {
        let is = &self.units[unit];
        let thin = is.spec.thin != 0;
        if same.anchor || (same.unmap && !thin) {
            return Err(job.bad_field(1));
        }
        let range = self.inside(unit, same.lba, u64::from(same.blocks))?;
        let count = if range.count == 0 { is.blocks - range.lba } else { range.count };
        if count > u64::from(is.spec.write_same_blocks_max) {
            return Err(job.bad_field(if job.task.cdb_len == 10 { 7 } else { 10 }));
        }
        let block = is.spec.block as usize;
        let zeros = [0; PAGE];
        let pattern = if same.ndob { Some(&zeros[..block]) } else { job.data.get(..block) };
        let Some(pattern) = pattern else { return Err(job.bad_field(0)) };
        let range = Blocks { count, ..range };
        // A disk that is fully provisioned reads as zeros where there is nothing.
        let frees = (same.unmap || !thin) && pattern.iter().all(|&byte| byte == 0);
        self.room_for(unit, if frees { Blocks { count: 0, ..range } } else { range })?;
        self.taken = if same.ndob { 0 } else { block };
        let ink = if frees { Ink::Unmapped } else { Ink::Bytes(pattern) };
        self.put_blocks(unit, range, ink, false);
        Ok(DataIn::None)
    }

    /// UNMAP: all of its ranges, or none.
    pub(super) fn deallocate(
        &mut self,
        unit: usize,
        job: Job<'_>,
        anchor: bool,
        length: u16,
    ) -> Outcome {
        if anchor {
            return Err(job.bad_field(1));
        }
        if length == 0 {
            return Ok(DataIn::None);
        }
        let list = &job.data[..job.data.len().min(usize::from(length))];
        let cut = |_| Refusal::Check(list_length_error());
        let (mut blocks, mut count) = (0_u64, 0);
        for range in unmap_ranges(list).map_err(cut)? {
            self.inside(unit, range.lba, u64::from(range.blocks))?;
            blocks += u64::from(range.blocks);
            count += 1;
        }
        if count > UNMAP_RANGES_MAX || blocks > u64::from(UNMAP_BLOCKS_MAX) {
            return Err(illegal(BAD_LIST));
        }
        self.room_for(unit, Blocks { lba: 0, count: 0 })?;
        self.taken = list.len();
        for range in unmap_ranges(list).map_err(cut)? {
            let blocks = Blocks { lba: range.lba, count: u64::from(range.blocks) };
            self.put_blocks(unit, blocks, Ink::Unmapped, false);
        }
        Ok(DataIn::None)
    }
}
