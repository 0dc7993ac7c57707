//! Power cuts: what is kept, what may be lost, and what a target forgets.

mod bed;

use std::collections::BTreeSet;

use bed::{Bed, disk, flush, spec, write, write_fua};
use weir_proto_scsi::command::{ModeSelect, ReserveOut, StartStopUnit, SynchronizeCache};
use weir_proto_scsi::mode::{CachingPage, ModeForm, put_mode_data};
use weir_proto_scsi::reservation::{
    ReservationKey, ReservationType, ReserveOutAction, ReserveOutList,
};
use weir_proto_scsi::unmap::{UnmapRange, put_unmap_list};
use weir_proto_scsi::{CdbSize, Lun, ScsiCommand};
use weir_sim_target::{Action, LunSpec, Management, NexusId, Spec};

/// The values a block has after a power cut, over 64 seeds.
fn values(luns: &[LunSpec], lba: u64, life: impl Fn(&mut Bed, NexusId)) -> Vec<u8> {
    let mut values = BTreeSet::new();
    for seed in 0..64 {
        let (mut bed, nexus) = Bed::ready(Spec { seed, luns: luns.to_vec(), ..spec() });
        life(&mut bed, nexus);
        bed.target.apply(Action::PowerCut, bed.now).unwrap();
        values.insert(bed.byte(0, lba));
    }
    values.into_iter().collect()
}

fn put(bed: &mut Bed, nexus: NexusId, byte: u8) {
    bed.to(nexus, 0, write(3, 1), &[byte; 512]).good();
}

fn set_cache(bed: &mut Bed, nexus: NexusId, write_cache: bool) {
    let mut list = Vec::new();
    put_mode_data(&mut list, ModeForm::Ten, None, |out| {
        CachingPage::new(write_cache, true).put(out);
    });
    let length = list.len() as u16;
    let select = ModeSelect { ten: true, page_format: true, save: false, length };
    bed.to(nexus, 0, ScsiCommand::ModeSelect(select), &list).good();
}

fn sync(lba: u64, blocks: u32) -> ScsiCommand {
    let size = CdbSize::Ten;
    ScsiCommand::SynchronizeCache(SynchronizeCache { size, lba, blocks, immediate: false })
}

fn stop(no_flush: bool) -> ScsiCommand {
    ScsiCommand::StartStopUnit(StartStopUnit { no_flush, ..StartStopUnit::default() })
}

#[test]
fn a_block_has_any_value_it_had_since_its_last_flush_and_none_from_before() {
    let all = values(&[disk()], 3, |bed, nexus| {
        put(bed, nexus, 1);
        put(bed, nexus, 2);
        bed.to(nexus, 0, flush(), &[]).good();
        (3..=6).for_each(|byte| put(bed, nexus, byte));
    });
    assert_eq!(all, [2, 3, 4, 5, 6]);
}

#[test]
fn what_was_made_durable_is_kept_whichever_way_it_was() {
    let kept = |life: &dyn Fn(&mut Bed, NexusId)| {
        values(&[disk()], 3, |bed, nexus| {
            put(bed, nexus, 8);
            life(bed, nexus);
        })
    };
    assert_eq!(kept(&|_, _| ()), [0, 8]);
    assert_eq!(kept(&|bed, nexus| bed.to(nexus, 0, flush(), &[]).good().clear()), [8]);
    assert_eq!(kept(&|bed, nexus| bed.to(nexus, 0, sync(3, 1), &[]).good().clear()), [8]);
    assert_eq!(kept(&|bed, nexus| bed.to(nexus, 0, sync(4, 0), &[]).good().clear()), [0, 8]);
    assert_eq!(kept(&|bed, nexus| bed.to(nexus, 0, sync(0, 3), &[]).good().clear()), [0, 8]);
    assert_eq!(kept(&|bed, nexus| set_cache(bed, nexus, false)), [8]);
    assert_eq!(kept(&|bed, nexus| bed.to(nexus, 0, stop(false), &[]).good().clear()), [8]);
    assert_eq!(kept(&|bed, nexus| bed.to(nexus, 0, stop(true), &[]).good().clear()), [0, 8]);
    let fua = write_fua(3, 1);
    assert_eq!(kept(&|bed, nexus| bed.to(nexus, 0, fua, &[9; 512]).good().clear()), [9]);
    let without = [LunSpec { write_cache: false, ..disk() }];
    assert_eq!(values(&without, 3, |bed, nexus| put(bed, nexus, 7)), [7]);
}

#[test]
fn a_reset_brings_the_write_cache_back() {
    let reset = |bed: &mut Bed, nexus| {
        set_cache(bed, nexus, false);
        bed.target.manage(nexus, Management::LunReset(Lun::ZERO), bed.now);
        bed.to(nexus, 0, ScsiCommand::TestUnitReady, &[]);
        put(bed, nexus, 7);
    };
    assert_eq!(values(&[disk()], 3, reset), [0, 7]);
}

#[test]
fn a_deallocated_block_may_come_back_until_it_is_flushed_and_takes_its_room_again() {
    let luns = [LunSpec { thin: 4096, ..disk() }];
    let unmap = |bed: &mut Bed, nexus: NexusId| {
        let mut list = Vec::new();
        put_unmap_list(&mut list, &[UnmapRange { lba: 0, blocks: 8 }]).unwrap();
        let unmap = ScsiCommand::Unmap { anchor: false, length: list.len() as u16 };
        bed.to(nexus, 0, unmap, &list).good();
    };
    let begin = |bed: &mut Bed, nexus| {
        put(bed, nexus, 5);
        bed.to(nexus, 0, flush(), &[]).good();
        unmap(bed, nexus);
    };
    assert_eq!(values(&luns, 3, begin), [0, 5]);
    let flushed = |bed: &mut Bed, nexus| {
        begin(bed, nexus);
        bed.to(nexus, 0, flush(), &[]).good();
    };
    assert_eq!(values(&luns, 3, flushed), [0]);
    for seed in 0..64 {
        let (mut bed, nexus) = Bed::ready(Spec { seed, luns: luns.to_vec(), ..spec() });
        begin(&mut bed, nexus);
        bed.target.apply(Action::PowerCut, bed.now).unwrap();
        let back = bed.byte(0, 3) == 5;
        let nexus = bed.login(1, 1);
        let fits = bed.to(nexus, 0, write(100, 1), &[1; 512]).is_good();
        assert_eq!(fits, !back, "seed {seed}: the store has one page");
    }
}

#[test]
fn nexuses_commands_and_reservations_do_not_outlive_a_power_cut() {
    let (mut bed, nexus) = Bed::ready(spec());
    let register = |bed: &mut Bed, nexus, action, (key, action_key)| {
        let mut list = Vec::new();
        let (key, action_key) = (ReservationKey(key), ReservationKey(action_key));
        ReserveOutList { key, action_key, ..ReserveOutList::default() }.put(&mut list);
        let (kind, length) = (ReservationType::EXCLUSIVE_ACCESS, list.len() as u32);
        let out = ReserveOut { action, scope: 0, kind, length };
        bed.to(nexus, 0, ScsiCommand::ReserveOut(out), &list).good();
    };
    register(&mut bed, nexus, ReserveOutAction::REGISTER, (0, 1));
    register(&mut bed, nexus, ReserveOutAction::RESERVE, (1, 0));
    bed.start(nexus, 0, write(0, 1), &[1; 512]);
    bed.target.apply(Action::PowerCut, bed.now).unwrap();
    assert!(!bed.target.is_connected(nexus));
    assert_eq!((bed.target.tasks(), bed.byte(0, 0)), (0, 0));
    let other = bed.login(1, 2);
    bed.to(other, 0, write(0, 1), &[2; 512]).good();
}
