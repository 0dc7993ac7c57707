//! Laws over random input: what is put is read, CDBs that are accepted are those that are made, and
//! no bytes make a decoder panic or say more than they hold. A failing case prints its seed.

use proptest::prelude::*;
use weir_bio::{Flags, Status};
use weir_proto_scsi::alua::{
    AccessState, PortGroupReport, PortGroups, StateCause, SupportedStates, put_port_groups,
    state_wishes,
};
use weir_proto_scsi::capacity::Capacity;
use weir_proto_scsi::decide::{
    Attempt, Delivery, Disposition, Purpose, ScsiEnd, UnitTraits, decide,
};
use weir_proto_scsi::inquiry::{Inquiry, Peripheral};
use weir_proto_scsi::limits::{BlockPayload, CdbRule, DiskLimits, DiskPages, SectorRange};
use weir_proto_scsi::mode::{CachingPage, DeviceSpecific, ModeData, ModeForm, put_mode_data};
use weir_proto_scsi::report_luns::{LunList, put_lun_list};
use weir_proto_scsi::reservation::{
    ReservationKey, ReserveCapabilities, ReserveInList, ReserveOutList, put_keys,
};
use weir_proto_scsi::sense::SenseFormat;
use weir_proto_scsi::supported::CommandSupport;
use weir_proto_scsi::unmap::{UnmapRange, put_unmap_list, unmap_ranges};
use weir_proto_scsi::vpd::{BlockLimits, Provisioning, VpdPage, Wwid, put_page};
use weir_proto_scsi::{
    AdditionalSense, CdbSize, Lun, Opcode, ScsiCommand, ScsiStatus, Sense, SenseKey,
};

/// Bytes that begin like something, so that more than the first check is reached.
fn likely_bytes() -> impl Strategy<Value = Vec<u8>> {
    let starts: Vec<Vec<u8>> = [
        &[0x70][..],
        &[0xf1],
        &[0x72],
        &[0x73, 3, 0x11],
        &[0x00, 0x83, 0, 0x20],
        &[0x00, 0xb0, 0, 0x3c],
        &[0x00, 0x83, 0xff, 0xff],
        &[0, 0, 0, 0x20],
        &[0xff, 0xff, 0xff, 0xff],
        &[0, 0, 0, 0x20, 0x10],
        &[0, 0x26, 0, 0x20],
        &[0x1f, 0, 0x10, 8],
        &[],
    ]
    .map(<[u8]>::to_vec)
    .to_vec();
    (prop::sample::select(starts), prop::collection::vec(any::<u8>(), 0..96))
        .prop_map(|(start, rest)| [start, rest].concat())
}

fn likely_cdbs() -> impl Strategy<Value = Vec<u8>> {
    let opcodes =
        prop_oneof![prop::sample::select(Opcode::NAMED).prop_map(|opcode| opcode.0), any::<u8>()];
    // Few bits set: a CDB with noise everywhere is refused at once.
    let sparse = prop_oneof![3 => Just(0_u8), 1 => any::<u8>()];
    (opcodes, prop::collection::vec(sparse, 0..20))
        .prop_map(|(opcode, rest)| std::iter::once(opcode).chain(rest).collect())
}

fn senses() -> impl Strategy<Value = Sense> {
    let specific = (0x80_u8..=0xff, any::<u8>(), any::<u8>());
    (
        (any::<bool>(), 0..16_u8, any::<u16>(), any::<bool>(), any::<u8>()),
        prop::option::of(any::<u32>()),
        prop::option::of(1..=u32::MAX),
        prop::option::of(specific),
    )
        .prop_map(
            |((deferred, key, code, incorrect_length, unit), information, command, own)| Sense {
                deferred,
                key: SenseKey::from_bits(key),
                code: AdditionalSense(code),
                information: information.map(u64::from),
                command: command.map(u64::from),
                unit,
                incorrect_length,
                specific: own.map(|(a, b, c)| [a, b, c]),
            },
        )
}

fn states() -> impl Strategy<Value = AccessState> {
    (0..16_u8).prop_map(AccessState::from_bits)
}

fn groups() -> impl Strategy<Value = PortGroupReport> {
    let ports = prop::collection::vec(any::<u16>(), 0..6);
    (any::<bool>(), states(), any::<u8>(), any::<u16>(), any::<u8>(), ports).prop_map(
        |(preferred, state, supported, group, cause, ports)| PortGroupReport {
            preferred,
            state,
            supported: SupportedStates(supported),
            group,
            cause: StateCause(cause),
            ports,
        },
    )
}

fn limits() -> impl Strategy<Value = BlockLimits> {
    (
        (any::<bool>(), any::<u8>(), any::<u16>(), any::<u32>(), any::<u32>(), any::<u32>()),
        (any::<u32>(), any::<u32>(), any::<u32>(), any::<u64>()),
        prop::option::of(0..1_u32 << 31),
    )
        .prop_map(|(a, b, unmap_alignment)| BlockLimits {
            write_same_not_zero: a.0,
            max_compare_and_write: a.1,
            optimal_granularity: a.2,
            max_transfer: a.3,
            optimal_transfer: a.4,
            max_prefetch: a.5,
            max_unmap: b.0,
            max_unmap_descriptors: b.1,
            unmap_granularity: b.2,
            unmap_alignment,
            max_write_same: b.3,
        })
}

/// Disks that tell anything at all.
fn disks() -> impl Strategy<Value = DiskPages> {
    let block = prop::sample::select(&[512_u32, 1024, 2048, 4096, 520, 0, u32::MAX][..]);
    let rule =
        prop::sample::select(&[CdbRule::SixOnly, CdbRule::TenOrSixteen, CdbRule::SixteenOnly][..]);
    (
        (any::<u64>(), block, 0..16_u8, any::<bool>(), any::<bool>()),
        prop::option::of(limits()),
        prop::option::of((any::<bool>(), any::<bool>(), any::<bool>(), 0..8_u8)),
        (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>()),
        (prop::option::of(any::<bool>()), 0..64_u32, rule),
    )
        .prop_map(|(capacity, limits, thin, flags, (cache, shift, cdbs))| DiskPages {
            capacity: Capacity {
                last_lba: capacity.0 >> shift,
                block_len: capacity.1,
                physical_exponent: capacity.2,
                provisioned: capacity.3,
                reads_zeros: capacity.4,
                ..Capacity::default()
            },
            limits,
            characteristics: None,
            provisioning: thin.map(|(unmap, write_same_16, write_same_10, reads)| Provisioning {
                unmap,
                write_same_16,
                write_same_10,
                reads,
                ..Provisioning::default()
            }),
            device: DeviceSpecific { write_protected: flags.0, dpo_fua: flags.1 },
            caching: cache.map(|on| CachingPage::new(on, true)),
            write_same_16: flags.2,
            write_same_10: flags.3,
            unmap_refused: flags.4,
            cdbs,
        })
}

/// Calls every decoder, and everything that walks what it gave.
fn decode_all(bytes: &[u8]) {
    let most = bytes.len();
    if let Ok(sense) = Sense::decode(bytes) {
        let _ = (sense.field_pointer(), sense.progress(), sense.to_string());
    }
    if let Ok(inquiry) = Inquiry::decode(bytes) {
        let _ = (inquiry.vendor_text(), inquiry.product_text(), inquiry.revision_text());
    }
    for code in [0x00, 0x80, 0x83, 0xb0, 0xb1, 0xb2] {
        let Ok(page) = VpdPage::decode(code, bytes) else { continue };
        assert!(page.body.len() + 4 <= most && page.body.len() <= usize::from(page.length));
        let _ = (page.lists(code), page.block_limits(), page.characteristics());
        let _ = page.provisioning();
        let named: usize = page.designators().map(|name| name.bytes.len() + 4).sum();
        assert!(named + 4 <= most);
        let _ = Wwid::choose(page.designators(), Some(&page.serial())).map(|id| id.to_string());
    }
    if let Ok(list) = LunList::decode(bytes) {
        assert!(list.luns().count() * 8 <= most);
        list.luns().for_each(|lun| drop((lun.to_string(), lun.address())));
    }
    if let Ok(data) = PortGroups::decode(bytes) {
        let ports: usize = data.groups().map(|group| 8 + 4 * group.ports().count()).sum();
        assert!(ports <= most);
    }
    let _ = state_wishes(bytes).map(|wishes| assert!(wishes.count() * 4 <= most));
    let _ = unmap_ranges(bytes).map(|ranges| assert!(ranges.count() * 16 <= most));
    for form in [ModeForm::Six, ModeForm::Ten] {
        for data in [ModeData::decode_sense(form, bytes), ModeData::decode_select(form, bytes)] {
            let Ok(data) = data else { continue };
            assert!(data.pages().map(|page| 2 + page.body.len()).sum::<usize>() <= most);
            let _ = data.caching();
        }
    }
    if let Ok(list) = ReserveInList::decode(bytes) {
        assert!(list.keys().count() * 8 <= most);
        let _ = list.reservation();
        let named: usize = list.registrations().map(|one| 24 + one.initiator.len()).sum();
        assert!(named <= most);
    }
    let _ = (ReserveOutList::decode(bytes), ReserveCapabilities::decode(bytes));
    let _ = (Capacity::decode_10(bytes), Capacity::decode_16(bytes).map(|is| is.sectors()));
    let _ = CommandSupport::decode(bytes).map(|told| assert!(told.usage.len() <= most));
    let _ =
        ScsiCommand::decode(bytes).map_err(|invalid| drop((invalid.sense(), invalid.to_string())));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn no_bytes_make_a_decoder_panic_or_say_more_than_they_hold(bytes in likely_bytes()) {
        for len in 0..=bytes.len() {
            decode_all(&bytes[..len]);
        }
    }

    #[test]
    fn a_cdb_is_accepted_if_it_is_one_that_is_made(bytes in likely_cdbs()) {
        match ScsiCommand::decode(&bytes) {
            Ok(command) => {
                let cdb = command.encode().expect("what was decoded fits");
                prop_assert_eq!(cdb.bytes(), &bytes[..cdb.bytes().len()]);
            }
            Err(invalid) => {
                let sense = invalid.sense();
                prop_assert_eq!(sense.key, SenseKey::IllegalRequest);
            }
        }
    }

    #[test]
    fn sense_comes_back_from_either_format(sense in senses()) {
        for format in [SenseFormat::Fixed, SenseFormat::Descriptors] {
            let mut bytes = Vec::new();
            sense.put(format, &mut bytes);
            prop_assert_eq!(Sense::decode(&bytes), Ok(sense));
        }
    }

    #[test]
    fn lists_come_back(
        numbers in prop::collection::vec(0..1_u32 << 24, 0..20),
        groups in prop::collection::vec(groups(), 0..5),
        transition in prop::option::of(any::<u8>()),
        ranges in prop::collection::vec((any::<u64>(), any::<u32>()), 0..20),
        keys in prop::collection::vec(any::<u64>(), 0..10),
    ) {
        let luns: Vec<_> = numbers.iter().map(|&n| Lun::new(n).expect("24 bits")).collect();
        let mut bytes = Vec::new();
        put_lun_list(&mut bytes, &luns);
        prop_assert!(LunList::decode(&bytes).expect("whole").luns().eq(luns));

        let mut bytes = Vec::new();
        put_port_groups(&mut bytes, transition, &groups);
        let data = PortGroups::decode(&bytes).expect("whole");
        prop_assert_eq!(data.transition_s, transition.unwrap_or(0));
        let read: Vec<_> = data.groups().map(|group| PortGroupReport {
            preferred: group.preferred,
            state: group.state,
            supported: group.supported,
            group: group.group,
            cause: group.cause,
            ports: group.ports().collect(),
        }).collect();
        prop_assert_eq!(read, groups);

        let ranges: Vec<_> =
            ranges.into_iter().map(|(lba, blocks)| UnmapRange { lba, blocks }).collect();
        let mut bytes = Vec::new();
        put_unmap_list(&mut bytes, &ranges).expect("few");
        prop_assert!(unmap_ranges(&bytes).expect("whole").eq(ranges));

        let keys: Vec<_> = keys.into_iter().map(ReservationKey).collect();
        let mut bytes = Vec::new();
        put_keys(&mut bytes, 1, &keys);
        prop_assert!(ReserveInList::decode(&bytes).expect("whole").keys().eq(keys));
    }

    #[test]
    fn limits_and_capacities_come_back(limits in limits(), last_lba: u64, block_len: u32,
        protection in prop::option::of(1..=8_u8), physical_exponent in 0..16_u8,
        lowest_aligned in 0..1_u16 << 14, provisioned: bool, reads_zeros: bool,
        form in prop::sample::select(&[ModeForm::Six, ModeForm::Ten][..]),
    ) {
        let mut bytes = Vec::new();
        put_page(&mut bytes, Peripheral::DISK, 0xb0, |out| limits.put(out));
        prop_assert_eq!(VpdPage::decode(0xb0, &bytes).expect("whole").block_limits(), limits);
        let capacity = Capacity {
            last_lba, block_len, protection, physical_exponent, lowest_aligned, provisioned,
            reads_zeros,
        };
        let mut bytes = Vec::new();
        capacity.put_16(&mut bytes);
        prop_assert_eq!(Capacity::decode_16(&bytes), Ok(capacity));
        let device = DeviceSpecific { write_protected: provisioned, dpo_fua: reads_zeros };
        let page = CachingPage::new(provisioned, reads_zeros);
        let mut bytes = Vec::new();
        put_mode_data(&mut bytes, form, Some(device), |out| page.put(out));
        let data = ModeData::decode_sense(form, &bytes).expect("whole");
        prop_assert_eq!((data.device, data.caching()), (device, Some(page)));
    }

    #[test]
    fn every_range_within_the_limits_has_a_command_that_fits(
        pages in disks(), sector: u64, sectors: u32, shift in 0..64_u32, fua: bool, keep: bool,
    ) {
        let limits = DiskLimits::new(&pages);
        let per_block = limits.logical_block_size / 512;
        prop_assert!(limits.max_dev_sectors > 0);
        prop_assert!(limits.max_dev_sectors.is_multiple_of(per_block));
        prop_assert!(limits.max_sectors <= limits.max_dev_sectors);
        prop_assert!(limits.max_discard_sectors.is_multiple_of(per_block));
        prop_assert!(limits.max_write_zeroes_sectors.is_multiple_of(per_block));
        let sector = (sector >> shift) / u64::from(per_block) * u64::from(per_block);
        let range = |most: u32| {
            let most = most.min(u32::MAX - per_block);
            let sectors = 1 + sectors % most.max(1);
            SectorRange { sector, sectors: sectors.next_multiple_of(per_block) }
        };
        let six = limits.cdbs == CdbRule::SixOnly;
        let lba = sector / u64::from(per_block);
        let read = limits.read(range(limits.max_dev_sectors), fua);
        match read {
            Ok(command) => {
                command.encode().expect("fits");
                let ScsiCommand::Read(read) = command else { panic!("{command:?}") };
                prop_assert_eq!((read.lba, read.fua, read.dpo), (lba, fua, false));
            }
            Err(Status::NotSupp) => prop_assert!(six && fua),
            Err(status) => prop_assert!(six && lba > 0x1f_ffff, "{status}"),
        }
        limits.flush().encode().expect("fits");
        if let Ok(made) = limits.discard(range(limits.max_discard_sectors)) {
            made.command.encode().expect("fits");
            if let BlockPayload::Unmap(range) = made.payload {
                prop_assert_eq!(range.lba, lba);
            }
        }
        if let Ok(made) = limits.write_zeroes(range(limits.max_write_zeroes_sectors), keep) {
            let ScsiCommand::WriteSame(same) = made.command else { panic!("{made:?}") };
            prop_assert!(!(keep && same.unmap));
            made.command.encode().expect("fits");
        }
    }

    #[test]
    fn every_end_of_every_command_is_decided(
        delivery in 0..15_usize, status in any::<u8>(), sense in prop::option::of(senses()),
        purpose in 0..7_usize, flags in 0..8_u32, retries in 0..7_u8, bits in 0..64_u8, late: bool,
    ) {
        let end = ScsiEnd { delivery: DELIVERIES[delivery], status: ScsiStatus(status), sense };
        let bit = |at: u8| bits >> at & 1 != 0;
        let attempt = Attempt {
            purpose: PURPOSES[purpose],
            flags: Flags(flags << 12),
            retries,
            retries_allowed: 5,
            out_of_time: late,
            unit: UnitTraits {
                allow_restart: bit(0),
                retry_hardware_errors: bit(1),
                removable: bit(2),
                alua: bit(3),
                expecting_attention: bit(4),
                may_need_six: bit(5),
            },
        };
        let decision = decide(&end, &attempt);
        prop_assert!(!decision.reason.is_empty());
        match decision.disposition {
            Disposition::Retry => prop_assert!(retries < 5 && !late),
            Disposition::Fail(status) => {
                prop_assert!(!status.is_ok());
                prop_assert_eq!(decision.is_path_error(), status.is_path_error());
            }
            Disposition::RetryUncounted | Disposition::Requeue | Disposition::UseSix => {
                prop_assert!(!late);
            }
            Disposition::Complete | Disposition::Recover(_) => {}
        }
    }
}

const DELIVERIES: [Delivery; 15] = [
    Delivery::Delivered,
    Delivery::NoConnect,
    Delivery::BadTarget,
    Delivery::Aborted,
    Delivery::TimedOut,
    Delivery::BusBusy,
    Delivery::Parity,
    Delivery::Error,
    Delivery::SoftError,
    Delivery::Disrupted,
    Delivery::RetryNow,
    Delivery::Requeue,
    Delivery::FailFast,
    Delivery::Reset,
    Delivery::Other,
];

const PURPOSES: [Purpose; 7] = [
    Purpose::Transfer,
    Purpose::Unmap,
    Purpose::WriteSame,
    Purpose::Flush,
    Purpose::TestUnitReady,
    Purpose::Inquiry,
    Purpose::Other,
];

#[test]
fn the_form_of_a_range_is_the_shortest_that_the_rule_allows() {
    let size = |rule: CdbRule, lba, blocks| rule.size(lba, blocks);
    let rule = CdbRule::TenOrSixteen;
    assert_eq!(size(rule, 0, 0xffff), CdbSize::Ten);
    assert_eq!(size(rule, 0, 0x1_0000), CdbSize::Sixteen);
    assert_eq!(size(rule, 0xffff_ffff, 1), CdbSize::Ten);
    assert_eq!(size(rule, 0x1_0000_0000, 1), CdbSize::Sixteen);
    assert_eq!(size(CdbRule::SixteenOnly, 0, 1), CdbSize::Sixteen);
    assert_eq!(size(CdbRule::SixOnly, 0, 1), CdbSize::Six);
}
