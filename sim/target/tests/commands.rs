//! Commands: what each answers, and what is refused with which sense.

mod bed;

use bed::{Bed, disk, flush, read, spec, write, write_fua};
use weir_proto_scsi::capacity::Capacity;
use weir_proto_scsi::command::{
    CompareAndWrite, ModeSelect, ModeSense, PageControl, ReportOpcode, SynchronizeCache, Transfer,
    WriteSame,
};
use weir_proto_scsi::inquiry::{Inquiry, Tpgs};
use weir_proto_scsi::mode::{CACHING, CachingPage, ModeData, ModeForm, put_mode_data};
use weir_proto_scsi::report_luns::LunList;
use weir_proto_scsi::supported::CommandSupport;
use weir_proto_scsi::unmap::{UnmapRange, put_unmap_list};
use weir_proto_scsi::vpd::{self, ProvisioningType, VpdPage};
use weir_proto_scsi::{AdditionalSense, CdbSize, Lun, Opcode, ScsiCommand, Sense, SenseKey};
use weir_sim_target::{Action, LunChange, LunSpec, PortSpec, Residual, Spec};

const TUR: ScsiCommand = ScsiCommand::TestUnitReady;
const ILLEGAL: SenseKey = SenseKey::IllegalRequest;

fn transfer(size: CdbSize, lba: u64, blocks: u32) -> Transfer {
    Transfer { size, lba, blocks, dpo: false, fua: false }
}

fn inquiry(page: Option<u8>) -> ScsiCommand {
    ScsiCommand::Inquiry { page, allocation: 4096 }
}

fn report_luns(select: u8) -> ScsiCommand {
    ScsiCommand::ReportLuns { select, allocation: 4096 }
}

fn caching(control: PageControl) -> ScsiCommand {
    let (ten, page) = (false, CACHING);
    let sense = ModeSense { ten, no_descriptors: true, control, page, subpage: 0, allocation: 255 };
    ScsiCommand::ModeSense(sense)
}

fn select(write_cache: bool) -> (ScsiCommand, Vec<u8>) {
    let mut list = Vec::new();
    let page = CachingPage::new(write_cache, true);
    put_mode_data(&mut list, ModeForm::Six, None, |out| page.put(out));
    let length = list.len() as u16;
    let select = ModeSelect { ten: false, page_format: true, save: false, length };
    (ScsiCommand::ModeSelect(select), list)
}

fn same(lba: u64, blocks: u32) -> WriteSame {
    let size = CdbSize::Sixteen;
    WriteSame { size, lba, blocks, unmap: false, anchor: false, ndob: false }
}

fn thin() -> Spec {
    Spec { luns: vec![LunSpec { thin: 1 << 20, ..disk() }], ..spec() }
}

#[test]
fn every_form_of_write_is_read_back_by_every_form_of_read() {
    let sizes = [CdbSize::Six, CdbSize::Ten, CdbSize::Twelve, CdbSize::Sixteen];
    for block in [512, 4096] {
        let luns = vec![LunSpec { block, ..disk() }];
        let (mut bed, nexus) = Bed::ready(Spec { luns, ..spec() });
        for (byte, size) in sizes.into_iter().enumerate() {
            let data: Vec<u8> = (0..3 * block).map(|at| at as u8 ^ byte as u8).collect();
            bed.to(nexus, 0, ScsiCommand::Write(transfer(size, 5, 3)), &data).good();
            for size in sizes {
                let command = ScsiCommand::Read(transfer(size, 5, 3));
                let room = 3 * block;
                bed.send(nexus, 0, command.encode().unwrap().bytes(), &[], room);
                let ended = bed.next().unwrap();
                assert_eq!(ended.end.residual, Residual::None);
                assert_eq!(ended.good(), data, "{size:?} of {block}");
            }
        }
    }
}

#[test]
fn a_range_behind_the_last_block_is_out_of_range_in_every_command() {
    let (mut bed, nexus) = Bed::ready(thin());
    let code = AdditionalSense::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE;
    let last = 2047;
    bed.to(nexus, 0, write(last, 1), &[1; 512]).good();
    bed.to(nexus, 0, read(last + 1, 0), &[]).good();
    let (dpo, fua) = (false, false);
    let cache = SynchronizeCache { size: CdbSize::Ten, lba: last, blocks: 2, immediate: false };
    let commands = [
        read(last, 2),
        read(last + 2, 0),
        read(u64::MAX, 1),
        write(last, 2),
        ScsiCommand::CompareAndWrite(CompareAndWrite { lba: last, blocks: 2, dpo, fua }),
        ScsiCommand::SynchronizeCache(cache),
        ScsiCommand::WriteSame(same(last, 2)),
    ];
    for command in commands {
        let ended = bed.to(nexus, 0, command, &[1; 2048]);
        assert_eq!(ended.why(), (ILLEGAL, code.0), "{command:?}");
    }
    let mut list = Vec::new();
    let ranges = [UnmapRange { lba: last, blocks: 1 }, UnmapRange { lba: last, blocks: 2 }];
    put_unmap_list(&mut list, &ranges).unwrap();
    let unmap = ScsiCommand::Unmap { anchor: false, length: list.len() as u16 };
    bed.to(nexus, 0, unmap, &list).fails(ILLEGAL, code);
    assert_eq!(bed.byte(0, last), 1, "all ranges or none");
}

#[test]
fn unknown_commands_fields_and_units_are_refused_with_the_byte() {
    let (mut bed, nexus) = Bed::ready(spec());
    bed.send(nexus, 0, &[0x04; 6], &[], 0);
    let code = AdditionalSense::INVALID_COMMAND_OPERATION_CODE;
    bed.next().unwrap().fails(ILLEGAL, code);
    bed.send(nexus, 0, &[0x00, 0, 0, 1, 0, 0], &[], 0);
    let ended = bed.next().unwrap();
    ended.fails(ILLEGAL, AdditionalSense::INVALID_FIELD_IN_CDB);
    assert_eq!(ended.sense().unwrap().field_pointer().unwrap().byte, 3);
    bed.to(nexus, 5, TUR, &[]).fails(ILLEGAL, AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED);
    bed.to(nexus, 0, ScsiCommand::Unmap { anchor: false, length: 0 }, &[]).fails(ILLEGAL, code);
    bed.to(nexus, 0, inquiry(Some(0xcc)), &[])
        .fails(ILLEGAL, AdditionalSense::INVALID_FIELD_IN_CDB);
    bed.to(nexus, 0, write(0, 2), &[1; 512]).fails(ILLEGAL, AdditionalSense::INVALID_FIELD_IN_CDB);
    assert_eq!(bed.byte(0, 0), 0, "data that are missing are no write");
}

#[test]
fn transfers_and_write_sames_above_the_unit_s_limits_are_refused() {
    let lun = LunSpec { transfer_blocks_max: 8, write_same_blocks_max: 16, ..disk() };
    let (mut bed, nexus) = Bed::ready(Spec { luns: vec![lun], ..spec() });
    let code = AdditionalSense::INVALID_FIELD_IN_CDB;
    bed.to(nexus, 0, read(0, 8), &[]).good();
    bed.to(nexus, 0, read(0, 9), &[]).fails(ILLEGAL, code);
    bed.to(nexus, 0, ScsiCommand::WriteSame(same(0, 16)), &[7; 512]).good();
    bed.to(nexus, 0, ScsiCommand::WriteSame(same(0, 17)), &[7; 512]).fails(ILLEGAL, code);
    bed.to(nexus, 0, ScsiCommand::WriteSame(same(0, 0)), &[7; 512]).fails(ILLEGAL, code);
    bed.to(nexus, 0, ScsiCommand::WriteSame(same(2040, 0)), &[7; 512]).good();
    assert_eq!([15, 16, 2039, 2040, 2047].map(|lba| bed.byte(0, lba)), [7, 0, 0, 7, 7]);
}

#[test]
fn residuals_say_how_far_data_and_expectation_are_apart() {
    let (mut bed, nexus) = Bed::ready(spec());
    let mut residual = |data: &[u8], command: ScsiCommand, room: u32| {
        bed.send(nexus, 0, command.encode().unwrap().bytes(), data, room);
        let end = bed.next().unwrap().end;
        (end.moved_in, end.moved_out, end.residual)
    };
    assert_eq!(residual(&[], read(0, 2), 1024), (1024, 0, Residual::None));
    assert_eq!(residual(&[], read(0, 2), 2048), (1024, 0, Residual::Underflow(1024)));
    assert_eq!(residual(&[], read(0, 2), 100), (100, 0, Residual::Overflow(924)));
    assert_eq!(residual(&[1; 1024], write(0, 1), 0), (0, 512, Residual::Underflow(512)));
    assert_eq!(residual(&[1; 1024], write(0, 2), 0), (0, 1024, Residual::None));
    assert_eq!(residual(&[], inquiry(None), 36), (36, 0, Residual::None));
    assert_eq!(residual(&[], inquiry(None), 255), (36, 0, Residual::Underflow(219)));
}

#[test]
fn inquiry_and_the_pages_say_what_the_spec_has() {
    let ports = vec![PortSpec::default(), PortSpec { id: 9, ..PortSpec::default() }];
    let luns = vec![
        LunSpec { number: 3, block: 4096, thin: 8192, rotation: 7200, ..disk() },
        LunSpec { transfer_blocks_max: 77, ..disk() },
    ];
    let mut bed = Bed::new(Spec { vendor: "ACME".into(), ports, luns, ..spec() });
    let nexus = bed.login(9, 1);
    let standard = Inquiry::decode(&bed.to(nexus, 3, inquiry(None), &[]).good()).unwrap();
    assert_eq!((standard.vendor_text(), standard.tpgs), ("ACME".into(), Tpgs::Both));
    assert!(standard.peripheral.is_disk() && standard.multiport && standard.queuing);
    let absent = Inquiry::decode(&bed.to(nexus, 1, inquiry(None), &[]).good()).unwrap();
    assert_eq!(absent.peripheral.qualifier(), 3);
    let mut page = |lun, code| bed.to(nexus, lun, inquiry(Some(code)), &[]).good();
    let pages = page(3, vpd::SUPPORTED_PAGES);
    let pages = VpdPage::decode(0, &pages).unwrap().body.to_vec();
    assert_eq!(pages, [0, 0x80, 0x83, 0xb0, 0xb1, 0xb2]);
    let bytes = pages.map_pages(|code| page(3, code));
    let of = |code| VpdPage::decode(code, &bytes[&code]).unwrap();
    assert_eq!(of(0x80).serial().len(), 16);
    let names: Vec<_> = of(0x83).designators().collect();
    assert_eq!(names.iter().find_map(|name| name.relative_target_port()), Some(9));
    assert_eq!(names.iter().find_map(|name| name.target_port_group()), Some(1));
    let wwid = vpd::Wwid::choose(of(0x83).designators(), None).unwrap();
    assert_eq!(wwid.to_string(), format!("naa.{}", of(0x80).serial()));
    let limits = of(0xb0).block_limits();
    assert_eq!((limits.unmap_granularity, limits.max_unmap_descriptors), (1, 256));
    assert_eq!(of(0xb1).characteristics().rotation, 7200);
    let provisioning = of(0xb2).provisioning();
    assert!(provisioning.unmap && provisioning.reads_zeros());
    assert_eq!(provisioning.kind, ProvisioningType::Thin);
    let bytes = page(0, 0xb0);
    let limits = VpdPage::decode(0xb0, &bytes).unwrap().block_limits();
    assert_eq!((limits.max_transfer, limits.max_unmap), (77, 0));
    assert_ne!(page(0, 0x80), page(3, 0x80), "each unit has a name of its own");
}

/// The pages of a list by their codes.
trait Pages {
    fn map_pages(self, page: impl FnMut(u8) -> Vec<u8>) -> std::collections::BTreeMap<u8, Vec<u8>>;
}

impl Pages for Vec<u8> {
    fn map_pages(
        self,
        mut page: impl FnMut(u8) -> Vec<u8>,
    ) -> std::collections::BTreeMap<u8, Vec<u8>> {
        self.into_iter().map(|code| (code, page(code))).collect()
    }
}

#[test]
fn read_capacity_says_size_block_and_provisioning_and_follows_a_resize() {
    let luns = vec![LunSpec { block: 4096, thin: 4096, ..disk() }, LunSpec { number: 1, ..disk() }];
    let (mut bed, nexus) = Bed::ready(Spec { luns, ..spec() });
    let long = ScsiCommand::ReadCapacity16 { allocation: 32 };
    let capacity = Capacity::decode_16(&bed.to(nexus, 0, long, &[]).good()).unwrap();
    assert_eq!((capacity.last_lba, capacity.block_len), (255, 4096));
    assert!(capacity.provisioned && capacity.reads_zeros);
    let ended = bed.to(nexus, 1, ScsiCommand::ReadCapacity10, &[]);
    let capacity = Capacity::decode_10(&ended.good()).unwrap().unwrap();
    assert_eq!((capacity.last_lba, capacity.block_len), (2047, 512));
    bed.to(nexus, 1, write(8, 1), &[1; 512]).good();
    for size in [4096, 1 << 20] {
        let resize = Action::Lun { number: 1, change: LunChange::Resize(size) };
        bed.target.apply(resize, bed.now).unwrap();
        let code = AdditionalSense::CAPACITY_DATA_HAS_CHANGED;
        bed.to(nexus, 1, TUR, &[]).fails(SenseKey::UnitAttention, code);
        let capacity = Capacity::decode_16(&bed.to(nexus, 1, long, &[]).good()).unwrap();
        assert_eq!(capacity.last_lba, size / 512 - 1);
    }
    assert_eq!(bed.to(nexus, 1, read(8, 1), &[]).good(), [0; 512], "what was cut off is gone");
}

#[test]
fn write_cache_is_toggled_by_mode_select_which_changes_nothing_else() {
    let (mut bed, nexus) = Bed::ready(spec());
    let other = bed.login(1, 2);
    let mut caches = |control| {
        let bytes = bed.to(nexus, 0, caching(control), &[]).good();
        ModeData::decode_sense(ModeForm::Six, &bytes).unwrap().caching().unwrap().write_cache()
    };
    assert!(caches(PageControl::Current) && caches(PageControl::Changeable));
    let (command, list) = select(false);
    bed.to(nexus, 0, command, &list).good();
    let code = AdditionalSense::MODE_PARAMETERS_CHANGED;
    bed.to(other, 0, TUR, &[]).fails(SenseKey::UnitAttention, code);
    bed.to(nexus, 0, TUR, &[]).good();
    let bytes = bed.to(nexus, 0, caching(PageControl::Current), &[]).good();
    let data = ModeData::decode_sense(ModeForm::Six, &bytes).unwrap();
    assert!(!data.caching().unwrap().write_cache() && data.device.dpo_fua);
    let bytes = bed.to(nexus, 0, caching(PageControl::Default), &[]).good();
    let data = ModeData::decode_sense(ModeForm::Six, &bytes).unwrap();
    assert!(data.caching().unwrap().write_cache());
    let saved = bed.to(nexus, 0, caching(PageControl::Saved), &[]);
    saved.fails(ILLEGAL, AdditionalSense::SAVING_PARAMETERS_NOT_SUPPORTED);
    // RCD cannot be changed, and a list that is cut is no list.
    let mut bad = list.clone();
    bad[6] |= 1;
    bed.to(nexus, 0, command, &bad)
        .fails(ILLEGAL, AdditionalSense::INVALID_FIELD_IN_PARAMETER_LIST);
    bed.to(nexus, 0, command, &list[..9])
        .fails(ILLEGAL, AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);
}

#[test]
fn write_same_writes_one_block_many_times_zeros_without_data_and_deallocates() {
    let (mut bed, nexus) = Bed::ready(thin());
    bed.to(nexus, 0, ScsiCommand::WriteSame(same(3, 20)), &[9; 512]).good();
    assert_eq!([2, 3, 22, 23].map(|lba| bed.byte(0, lba)), [0, 9, 9, 0]);
    let zeros = WriteSame { ndob: true, ..same(4, 2) };
    bed.to(nexus, 0, ScsiCommand::WriteSame(zeros), &[]).good();
    assert_eq!([3, 4, 5, 6].map(|lba| bed.byte(0, lba)), [9, 0, 0, 9]);
    let unmap = WriteSame { unmap: true, ..same(8, 8) };
    bed.to(nexus, 0, ScsiCommand::WriteSame(unmap), &[0; 512]).good();
    bed.to(nexus, 0, ScsiCommand::WriteSame(unmap), &[5; 512]).good();
    assert_eq!(bed.byte(0, 8), 5, "what is no zero is written");
    let ten = WriteSame { size: CdbSize::Ten, ..same(0, 1) };
    bed.to(nexus, 0, ScsiCommand::WriteSame(ten), &[6; 512]).good();
    assert_eq!(bed.byte(0, 0), 6);
    let (mut bed, nexus) = Bed::ready(spec());
    let refused = bed.to(nexus, 0, ScsiCommand::WriteSame(unmap), &[0; 512]);
    refused.fails(ILLEGAL, AdditionalSense::INVALID_FIELD_IN_CDB);
}

#[test]
fn compare_and_write_writes_if_all_is_equal_and_else_says_where_it_differs() {
    let (mut bed, nexus) = Bed::ready(spec());
    let command =
        ScsiCommand::CompareAndWrite(CompareAndWrite { lba: 7, blocks: 2, dpo: false, fua: false });
    bed.to(nexus, 0, command, &[vec![0; 1024], vec![4; 1024]].concat()).good();
    let mut expected = vec![4; 1024];
    expected[700] = 3;
    let ended = bed.to(nexus, 0, command, &[expected, vec![5; 1024]].concat());
    ended.fails(SenseKey::Miscompare, AdditionalSense::MISCOMPARE_DURING_VERIFY_OPERATION);
    assert_eq!(ended.sense().unwrap().information, Some(700));
    assert_eq!(bed.byte(0, 7), 4);
}

#[test]
fn luns_are_listed_and_a_change_of_the_map_is_told_until_they_are() {
    let luns = [4, 0, 300].map(|number| LunSpec { number, ..disk() }).to_vec();
    let (mut bed, nexus) = Bed::ready(Spec { luns, ..spec() });
    bed.to(nexus, 300, TUR, &[]);
    let list = |bed: &mut Bed, lun, select| {
        let bytes = bed.to(nexus, lun, report_luns(select), &[]).good();
        LunList::decode(&bytes).unwrap().luns().filter_map(Lun::number).collect::<Vec<_>>()
    };
    assert_eq!(list(&mut bed, 0, 0), [0, 4, 300]);
    assert_eq!(list(&mut bed, 0, 1), [0_u32; 0]);
    let change = |bed: &mut Bed, change| {
        bed.target.apply(Action::Lun { number: 4, change }, bed.now).unwrap();
    };
    change(&mut bed, LunChange::Remove);
    let told = AdditionalSense::REPORTED_LUNS_DATA_HAS_CHANGED;
    bed.to(nexus, 0, TUR, &[]).fails(SenseKey::UnitAttention, told);
    bed.to(nexus, 4, TUR, &[]).fails(ILLEGAL, AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED);
    assert_eq!(list(&mut bed, 0, 2), [0, 300]);
    bed.to(nexus, 300, TUR, &[]).good();
    change(&mut bed, LunChange::Add);
    assert_eq!(list(&mut bed, 9, 0), [0, 4, 300], "also where no unit is");
    bed.to(nexus, 4, TUR, &[]).good();
    let few = ScsiCommand::ReportLuns { select: 0, allocation: 15 };
    bed.to(nexus, 0, few, &[]).fails(ILLEGAL, AdditionalSense::INVALID_FIELD_IN_CDB);
}

#[test]
fn request_sense_tells_attentions_and_states_with_good_status() {
    let mut bed = Bed::new(spec());
    let nexus = bed.connect(1, 1);
    let sense = |bed: &mut Bed, lun, descriptors| {
        let command = ScsiCommand::RequestSense { descriptors, allocation: 252 };
        let sense = Sense::decode(&bed.to(nexus, lun, command, &[]).good()).unwrap();
        (sense.key, sense.code.0)
    };
    bed.to(nexus, 0, inquiry(None), &[]).good();
    assert_eq!(sense(&mut bed, 0, false), (SenseKey::UnitAttention, 0x2900));
    assert_eq!(sense(&mut bed, 0, true), (SenseKey::NoSense, 0));
    assert_eq!(sense(&mut bed, 7, true), (ILLEGAL, 0x2500));
    let offline = Action::Lun { number: 0, change: LunChange::Offline };
    bed.target.apply(offline, bed.now).unwrap();
    assert_eq!(sense(&mut bed, 0, false), (SenseKey::NotReady, 0x0401));
}

#[test]
fn supported_opcodes_are_those_that_are_spoken_with_the_bits_that_are_looked_at() {
    let (mut bed, nexus) = Bed::ready(spec());
    let mut ask = |opcode: Opcode, service_action| {
        let (timeouts, allocation) = (false, 255);
        let report = ReportOpcode { timeouts, opcode, service_action, allocation };
        let bytes = bed.to(nexus, 0, ScsiCommand::ReportOpcode(report), &[]).good();
        let support = CommandSupport::decode(&bytes).unwrap();
        support.support.is_standard().then(|| support.usage.to_vec())
    };
    let write_10 = [0x2a, 0x18, 255, 255, 255, 255, 0, 255, 255, 0];
    assert_eq!(ask(Opcode::WRITE_10, None).unwrap(), write_10);
    let same_16 = ask(Opcode::WRITE_SAME_16, None).unwrap();
    assert_eq!(same_16[..2], [0x93, 0x19]);
    let groups = ask(Opcode::MAINTENANCE_IN, Some(0x0a)).unwrap();
    assert_eq!(groups, [0xa3, 0x2a, 0, 0, 0, 0, 255, 255, 255, 255, 0, 0]);
    assert!(ask(Opcode::MAINTENANCE_IN, Some(0x0c)).is_some());
    assert!(ask(Opcode::MAINTENANCE_IN, Some(0x05)).is_none());
    assert!(ask(Opcode::UNMAP, None).is_none(), "fully provisioned");
    assert!(ask(Opcode(0x04), None).is_none());
    for opcode in Opcode::NAMED.iter().filter(|opcode| **opcode != Opcode::UNMAP) {
        let actions = [Some(0x0a), Some(0x10)];
        let known =
            ask(*opcode, None).is_some() || actions.iter().any(|a| ask(*opcode, *a).is_some());
        assert!(known, "{opcode}");
    }
}

#[test]
fn commands_go_on_without_memory_of_those_before() {
    // A write through a cache, a flush and FUA leave the same bytes for the next command.
    let (mut bed, nexus) = Bed::ready(spec());
    bed.to(nexus, 0, write(0, 1), &[1; 512]).good();
    bed.to(nexus, 0, write_fua(0, 1), &[2; 512]).good();
    bed.to(nexus, 0, flush(), &[]).good();
    assert_eq!(bed.to(nexus, 0, read(0, 1), &[]).good(), [2; 512]);
    assert_eq!(bed.target.tasks(), 0);
}
