//! Each rule from a disk's pages to limits, and from ranges to commands.

use weir_bio::Status;
use weir_proto_scsi::capacity::Capacity;
use weir_proto_scsi::command::{SynchronizeCache, Transfer, WriteSame};
use weir_proto_scsi::limits::{
    BlockPayload, CarriedCommand, CdbRule, DiscardBy, DiskLimits, DiskPages, SectorRange,
};
use weir_proto_scsi::mode::{CachingPage, DeviceSpecific};
use weir_proto_scsi::unmap::UnmapRange;
use weir_proto_scsi::vpd::{BlockCharacteristics, BlockLimits, Provisioning};
use weir_proto_scsi::{CdbSize, ScsiCommand};

const SIXTEEN: CdbSize = CdbSize::Sixteen;
const TEN: CdbSize = CdbSize::Ten;

/// A disk of blocks of so many bytes that tells nothing more.
fn plain(block_len: u32) -> DiskPages {
    let capacity = Capacity { last_lba: 999_999, block_len, ..Capacity::default() };
    DiskPages { capacity, ..DiskPages::default() }
}

/// The same with block limits.
fn limited(block_len: u32, limits: BlockLimits) -> DiskPages {
    DiskPages { limits: Some(limits), ..plain(block_len) }
}

/// A thin disk with page B2h and block limits.
fn thin(provisioning: Provisioning, limits: BlockLimits) -> DiskPages {
    let mut pages = DiskPages { provisioning: Some(provisioning), ..limited(512, limits) };
    pages.capacity.provisioned = true;
    pages
}

const UNMAPS: BlockLimits = BlockLimits {
    write_same_not_zero: false,
    max_compare_and_write: 0,
    optimal_granularity: 0,
    max_transfer: 0,
    optimal_transfer: 0,
    max_prefetch: 0,
    max_unmap: 1000,
    max_unmap_descriptors: 8,
    unmap_granularity: 0,
    unmap_alignment: None,
    max_write_same: 0,
};

fn all_ways() -> Provisioning {
    Provisioning {
        unmap: true,
        write_same_16: true,
        write_same_10: true,
        ..Provisioning::default()
    }
}

#[test]
fn a_disk_that_tells_nothing_has_the_widths_of_the_fields_for_limits() {
    let limits = DiskLimits::new(&plain(512));
    assert_eq!((limits.capacity, limits.logical_block_size), (1_000_000, 512));
    assert_eq!((limits.physical_block_size, limits.io_min, limits.io_opt), (512, 512, 0));
    assert_eq!((limits.max_dev_sectors, limits.max_sectors), (0xffff, 2560));
    assert_eq!((limits.discard, limits.max_discard_sectors), (DiscardBy::None, 0));
    assert_eq!((limits.max_discard_segments, limits.discard_granularity), (1, 0));
    assert_eq!((limits.zeros_unmapping, limits.zeros_writing), (None, None));
    assert_eq!(limits.max_write_zeroes_sectors, 0);
    assert!(limits.rotational && !limits.read_only && !limits.volatile_cache && !limits.fua);
}

#[test]
fn a_block_that_is_not_usable_leaves_a_disk_without_size() {
    for (block, capacity, size) in
        [(512, 1_000_000, 512), (4096, 8_000_000, 4096), (520, 0, 512), (0, 0, 512), (8192, 0, 512)]
    {
        let limits = DiskLimits::new(&plain(block));
        assert_eq!((limits.capacity, limits.logical_block_size), (capacity, size), "{block}");
    }
    let mut pages = plain(512);
    pages.capacity.physical_exponent = 3;
    assert_eq!(DiskLimits::new(&pages).physical_block_size, 4096);
    pages.capacity.physical_exponent = 255;
    assert_eq!(DiskLimits::new(&pages).physical_block_size, 512 << 15);
}

#[test]
fn the_ceiling_of_a_transfer_is_the_smaller_of_page_and_field() {
    for (cdbs, max_transfer, sectors) in [
        (CdbRule::SixOnly, 0, 256 * 8),
        (CdbRule::TenOrSixteen, 0, 0xffff * 8),
        (CdbRule::TenOrSixteen, 100, 800),
        (CdbRule::TenOrSixteen, 0x1_0000, 0xffff * 8),
        (CdbRule::SixteenOnly, 0x1_0000, 0x1_0000 * 8),
        (CdbRule::SixteenOnly, 0, u32::MAX / 8 * 8),
    ] {
        let pages = limited(4096, BlockLimits { max_transfer, ..BlockLimits::default() });
        let limits = DiskLimits::new(&DiskPages { cdbs, ..pages });
        assert_eq!(limits.max_dev_sectors, sectors, "{cdbs:?} {max_transfer}");
        assert_eq!(limits.max_sectors, sectors.min(2560));
    }
}

#[test]
fn a_disk_of_more_than_2_to_the_32_blocks_takes_16_bytes() {
    let mut pages = plain(512);
    for (last_lba, rule) in
        [(u32::MAX.into(), CdbRule::TenOrSixteen), (1 << 32, CdbRule::SixteenOnly)]
    {
        pages.capacity.last_lba = last_lba;
        assert_eq!(DiskLimits::new(&pages).cdbs, rule, "{last_lba:#x}");
    }
}

#[test]
fn the_optimal_transfer_counts_if_requests_can_have_it() {
    for (optimal_transfer, max_transfer, opt, soft) in [
        (0, 0, 0, 2560),
        (7, 0, 0, 2560),
        (8, 0, 4096, 8),
        (256, 0, 256 * 512, 256),
        (256, 256, 256 * 512, 256),
        (256, 255, 0, 255),
        (0xffff, 0, 0xffff * 512, 0xffff),
        (0x1_0000, 0, 0, 2560),
    ] {
        let limits = BlockLimits { optimal_transfer, max_transfer, ..BlockLimits::default() };
        let limits = DiskLimits::new(&limited(512, limits));
        assert_eq!((limits.io_opt, limits.max_sectors), (opt, soft), "{optimal_transfer}");
    }
    let large = BlockLimits { optimal_transfer: 0x1_0000, ..BlockLimits::default() };
    let pages = DiskPages { cdbs: CdbRule::SixteenOnly, ..limited(512, large) };
    assert_eq!(DiskLimits::new(&pages).io_opt, 0, "more than 16 bits of blocks");
    let granular = BlockLimits { optimal_granularity: 0x80, ..BlockLimits::default() };
    assert_eq!(DiskLimits::new(&limited(4096, granular)).io_min, 0x80 * 4096);
}

#[test]
fn a_discard_goes_by_unmap_else_by_the_larger_write_same() {
    let none = Provisioning::default();
    let same = |size| DiscardBy::WriteSame(size);
    for (page, limits, by) in [
        (all_ways(), UNMAPS, DiscardBy::Unmap),
        (all_ways(), BlockLimits { max_unmap: 0, ..UNMAPS }, same(SIXTEEN)),
        (all_ways(), BlockLimits { max_unmap_descriptors: 0, ..UNMAPS }, same(SIXTEEN)),
        (Provisioning { unmap: false, ..all_ways() }, UNMAPS, same(SIXTEEN)),
        (Provisioning { write_same_10: true, ..none }, UNMAPS, same(TEN)),
        (none, UNMAPS, DiscardBy::None),
    ] {
        let pages = thin(page, limits);
        assert_eq!(DiskLimits::new(&pages).discard, by, "{page:?}");
        let mut thick = pages.clone();
        thick.capacity.provisioned = false;
        assert_eq!(DiskLimits::new(&thick).discard, DiscardBy::None, "LBPME");
        let refused = DiskPages { unmap_refused: true, ..pages };
        assert_eq!(DiskLimits::new(&refused).discard, DiscardBy::None);
    }
    let mut pages = DiskPages { provisioning: None, ..thin(none, UNMAPS) };
    assert_eq!(DiskLimits::new(&pages).discard, DiscardBy::Unmap, "without page B2h");
    pages.limits = None;
    assert_eq!(DiskLimits::new(&pages).discard, same(SIXTEEN));
}

#[test]
fn a_discard_is_as_large_as_its_command_and_its_page_allow() {
    let sixteen = Provisioning { write_same_16: true, ..Provisioning::default() };
    let ten = Provisioning { write_same_10: true, ..Provisioning::default() };
    let max = |max_unmap, max_write_same| BlockLimits { max_unmap, max_write_same, ..UNMAPS };
    for (page, limits, sectors, segments) in [
        (all_ways(), max(1000, 7), 1000, 8),
        (all_ways(), max(u32::MAX, 7), 0x7f_ffff, 8),
        (sixteen, max(1000, 0), 0x7f_ffff, 1),
        (sixteen, max(1000, 9000), 9000, 1),
        (sixteen, max(1000, u64::MAX), 0x7f_ffff, 1),
        (ten, max(1000, 0), 0xffff, 1),
        (ten, max(1000, 0x1_0000), 0xffff, 1),
        (ten, max(1000, 77), 77, 1),
    ] {
        let limits = DiskLimits::new(&thin(page, limits));
        assert_eq!(limits.max_discard_sectors, sectors, "{page:?}");
        assert_eq!(limits.max_discard_segments, segments);
    }
    let many = BlockLimits { max_unmap_descriptors: u32::MAX, ..UNMAPS };
    assert_eq!(DiskLimits::new(&thin(all_ways(), many)).max_discard_segments, 4095);
}

#[test]
fn the_unit_of_discards_is_at_least_a_physical_block() {
    for (granularity, alignment, unit, offset) in [
        (0, None, 4096, 0),
        (4, Some(2), 4096, 1024),
        (16, Some(0), 8192, 0),
        (u32::MAX, Some(0x7fff_ffff), 4096, 0),
    ] {
        let limits =
            BlockLimits { unmap_granularity: granularity, unmap_alignment: alignment, ..UNMAPS };
        let mut pages = thin(all_ways(), limits);
        pages.capacity.physical_exponent = 3;
        let limits = DiskLimits::new(&pages);
        assert_eq!((limits.discard_granularity, limits.discard_alignment), (unit, offset));
        pages.unmap_refused = true;
        let limits = DiskLimits::new(&pages);
        assert_eq!((limits.discard_granularity, limits.discard_alignment), (0, 0));
    }
}

#[test]
fn zeros_come_by_deallocation_only_where_what_was_deallocated_reads_as_zeros() {
    let sixteen = Provisioning { write_same_16: true, ..Provisioning::default() };
    let ten = Provisioning { write_same_10: true, ..Provisioning::default() };
    for (page, unmapping) in [
        (Provisioning { reads: 1, ..all_ways() }, Some(SIXTEEN)),
        (Provisioning { reads: 1, ..sixteen }, Some(SIXTEEN)),
        (Provisioning { reads: 1, ..ten }, Some(TEN)),
        (Provisioning { reads: 1, unmap: true, ..Provisioning::default() }, None),
        (Provisioning { reads: 2, ..all_ways() }, None),
        (all_ways(), None),
    ] {
        let mut pages = thin(page, UNMAPS);
        let zeros = |pages: &DiskPages| DiskLimits::new(pages).zeros_unmapping;
        assert_eq!(zeros(&pages), unmapping, "{page:?}");
        pages.unmap_refused = true;
        assert_eq!(zeros(&pages), None);
        pages.unmap_refused = false;
        pages.capacity.provisioned = false;
        assert_eq!(zeros(&pages), None);
    }
    let mut pages = thin(sixteen, UNMAPS);
    pages.capacity.reads_zeros = true;
    assert_eq!(DiskLimits::new(&pages).zeros_unmapping, Some(SIXTEEN), "by READ CAPACITY(16)");
}

#[test]
fn zeros_are_written_by_the_write_same_that_is_known_as_many_as_every_form_takes() {
    let unmapping = Provisioning { write_same_16: true, reads: 1, ..Provisioning::default() };
    for (sixteen, ten, thin_too, max, by, sectors) in [
        (true, true, false, 0, Some(SIXTEEN), 0xffff),
        (true, false, false, 0x10_0000, Some(SIXTEEN), 0x10_0000),
        (true, false, false, u64::MAX, Some(SIXTEEN), 0x7f_ffff),
        (true, false, false, 10, Some(SIXTEEN), 10),
        (false, true, false, u64::MAX, Some(TEN), 0xffff),
        (false, true, true, 0x10_0000, Some(TEN), 0xffff),
        (false, false, true, 0x10_0000, None, 0x10_0000),
        (false, false, false, 0x10_0000, None, 0),
    ] {
        let limits = BlockLimits { max_write_same: max, ..UNMAPS };
        let page = if thin_too { unmapping } else { Provisioning::default() };
        let pages = DiskPages { write_same_16: sixteen, write_same_10: ten, ..thin(page, limits) };
        let limits = DiskLimits::new(&pages);
        assert_eq!(limits.zeros_writing, by);
        assert_eq!(limits.max_write_zeroes_sectors, sectors, "{sixteen} {ten} {max:#x}");
    }
}

#[test]
fn the_cache_and_fua_go_by_the_mode_pages() {
    let dpo_fua = DeviceSpecific { dpo_fua: true, write_protected: false };
    let none = DeviceSpecific::default();
    let (on, off) = (CachingPage::new(true, true), CachingPage::new(false, true));
    for (caching, device, cdbs, cached, fua) in [
        (Some(on), dpo_fua, CdbRule::TenOrSixteen, true, true),
        (Some(on), dpo_fua, CdbRule::SixteenOnly, true, true),
        (Some(on), dpo_fua, CdbRule::SixOnly, true, false),
        (Some(on), none, CdbRule::TenOrSixteen, true, false),
        (Some(off), dpo_fua, CdbRule::TenOrSixteen, false, false),
        (None, dpo_fua, CdbRule::TenOrSixteen, false, false),
    ] {
        let limits = DiskLimits::new(&DiskPages { caching, device, cdbs, ..plain(512) });
        assert_eq!((limits.volatile_cache, limits.fua), (cached, fua), "{caching:?} {cdbs:?}");
        assert!(!limits.read_only);
    }
    let device = DeviceSpecific { write_protected: true, dpo_fua: false };
    assert!(DiskLimits::new(&DiskPages { device, ..plain(512) }).read_only);
}

#[test]
fn a_disk_turns_unless_it_says_that_it_does_not() {
    for (rotation, turns) in [(Some(0), true), (Some(1), false), (Some(7200), true), (None, true)] {
        let characteristics =
            rotation.map(|rotation| BlockCharacteristics { rotation, ..Default::default() });
        let limits = DiskLimits::new(&DiskPages { characteristics, ..plain(512) });
        assert_eq!(limits.rotational, turns, "{rotation:?}");
    }
}

fn range(sector: u64, sectors: u32) -> SectorRange {
    SectorRange { sector, sectors }
}

#[test]
fn reads_and_writes_take_the_form_of_their_range() {
    let disk = |block, cdbs| DiskLimits::new(&DiskPages { cdbs, ..plain(block) });
    let made = |size, lba, blocks, fua| Transfer { size, lba, blocks, dpo: false, fua };
    let ten = disk(512, CdbRule::TenOrSixteen);
    assert_eq!(ten.read(range(9, 7), false), Ok(ScsiCommand::Read(made(TEN, 9, 7, false))));
    assert_eq!(ten.write(range(9, 7), true), Ok(ScsiCommand::Write(made(TEN, 9, 7, true))));
    let long = Ok(ScsiCommand::Write(made(SIXTEEN, 9, 0x1_0000, false)));
    assert_eq!(ten.write(range(9, 0x1_0000), false), long);
    let four = disk(4096, CdbRule::SixteenOnly);
    assert_eq!(four.read(range(80, 8), true), Ok(ScsiCommand::Read(made(SIXTEEN, 10, 1, true))));
    for bad in [range(4, 8), range(8, 4), range(0, 0)] {
        assert_eq!(four.read(bad, false), Err(Status::IoErr), "{bad:?}");
        assert_eq!(four.write(bad, false), Err(Status::IoErr), "{bad:?}");
    }
    let six = disk(512, CdbRule::SixOnly);
    let made_six = Ok(ScsiCommand::Read(made(CdbSize::Six, 0x1f_ffff, 256, false)));
    assert_eq!(six.read(range(0x1f_ffff, 256), false), made_six);
    assert_eq!(six.read(range(0x20_0000, 1), false), Err(Status::IoErr));
    assert_eq!(six.read(range(0, 257), false), Err(Status::IoErr));
    assert_eq!(six.write(range(0, 1), true), Err(Status::NotSupp));

    let flush = |size| {
        ScsiCommand::SynchronizeCache(SynchronizeCache {
            size,
            lba: 0,
            blocks: 0,
            immediate: false,
        })
    };
    assert_eq!([ten.flush(), six.flush(), four.flush()], [flush(TEN), flush(TEN), flush(SIXTEEN)]);
}

fn same(size: CdbSize, unmap: bool) -> Result<CarriedCommand, Status> {
    let command = ScsiCommand::WriteSame(WriteSame {
        size,
        lba: 16,
        blocks: 8,
        unmap,
        anchor: false,
        ndob: false,
    });
    Ok(CarriedCommand { command, payload: BlockPayload::ZeroBlock })
}

#[test]
fn discards_and_zeros_carry_a_list_or_a_block() {
    let discard = |pages: &DiskPages| DiskLimits::new(pages).discard(range(16, 8));
    let unmap = CarriedCommand {
        command: ScsiCommand::Unmap { anchor: false, length: 24 },
        payload: BlockPayload::Unmap(UnmapRange { lba: 16, blocks: 8 }),
    };
    assert_eq!(discard(&thin(all_ways(), UNMAPS)), Ok(unmap));
    assert_eq!(discard(&thin(all_ways(), BlockLimits::default())), same(SIXTEEN, true));
    let ten = Provisioning { write_same_10: true, ..Provisioning::default() };
    assert_eq!(discard(&thin(ten, UNMAPS)), same(TEN, true));
    assert_eq!(discard(&plain(512)), Err(Status::NotSupp));

    let zeros = |pages: &DiskPages, keep| DiskLimits::new(pages).write_zeroes(range(16, 8), keep);
    let page = Provisioning { reads: 1, write_same_16: true, ..Provisioning::default() };
    let both = DiskPages { write_same_10: true, ..thin(page, UNMAPS) };
    assert_eq!(zeros(&both, false), same(SIXTEEN, true));
    assert_eq!(zeros(&both, true), same(TEN, false), "the blocks stay allocated");
    let only = thin(page, UNMAPS);
    assert_eq!(zeros(&only, true), Err(Status::NotSupp));
    assert_eq!(zeros(&plain(512), false), Err(Status::NotSupp));
    let plain_same = DiskPages { write_same_16: true, ..plain(512) };
    assert_eq!(zeros(&plain_same, false), same(SIXTEEN, false));

    let limits = DiskLimits::new(&DiskPages { ..thin(ten, UNMAPS) });
    assert!(limits.discard(range((1 << 32) - 1, 0xffff)).is_ok(), "the most of a 10-byte CDB");
    assert_eq!(limits.discard(range(1 << 32, 8)), Err(Status::IoErr), "outside a 10-byte CDB");
    assert_eq!(limits.discard(range(0, 0x1_0000)), Err(Status::IoErr));
    assert_eq!(limits.discard(range(0, 0)), Err(Status::IoErr), "zero would mean all of the disk");
}
