//! What a logical unit says of itself and of its target.

use weir_proto_scsi::alua::{
    PortGroupReport, StateCause, SupportedStates, put_port_groups, state_wishes,
};
use weir_proto_scsi::command::ReportOpcode;
use weir_proto_scsi::inquiry::{Inquiry, Peripheral, Tpgs};
use weir_proto_scsi::report_luns::put_lun_list;
use weir_proto_scsi::supported::{CommandSupport, Support};
use weir_proto_scsi::vpd::{
    self, Association, BlockCharacteristics, BlockLimits, Designator, DesignatorKind, Provisioning,
    ProvisioningType, put_page,
};
use weir_proto_scsi::{AdditionalSense, Cdb, Lun, Opcode, ScsiCommand};

use super::blocks::{UNMAP_BLOCKS_MAX, UNMAP_RANGES_MAX};
use super::{BAD_LIST, CUT_LIST, DataIn, Job, Outcome, illegal};
use crate::state::Target;

/// Every state, by the bits of [`SupportedStates`].
const ALL_STATES: SupportedStates = SupportedStates(0xdf);
const SPC_4: u8 = 6;

/// Text in a field that is filled up with blanks.
fn field<const N: usize>(text: &str) -> [u8; N] {
    let mut bytes = [b' '; N];
    bytes.iter_mut().zip(text.bytes()).for_each(|(to, from)| *to = from);
    bytes
}

impl Target {
    fn standard_inquiry(&self, peripheral: Peripheral) -> Inquiry {
        Inquiry {
            peripheral,
            removable: false,
            version: SPC_4,
            aca: false,
            hierarchical: false,
            format: 2,
            tpgs: if self.spec.explicit_alua { Tpgs::Both } else { Tpgs::Implicit },
            third_party_copy: false,
            protect: false,
            multiport: self.ports.len() > 1,
            queuing: true,
            vendor: field(&self.spec.vendor),
            product: field(&self.spec.product),
            revision: field("1"),
            versions: [0; 8],
        }
    }

    pub(super) fn inquiry_of_none(&mut self, allocation: u16) -> DataIn {
        self.standard_inquiry(Peripheral::ABSENT).put(&mut self.reply);
        DataIn::Reply { most: u32::from(allocation) }
    }

    pub(super) fn inquiry(
        &mut self,
        unit: usize,
        job: Job<'_>,
        page: Option<u8>,
        allocation: u16,
    ) -> Outcome {
        let mut reply = std::mem::take(&mut self.reply);
        let known = match page {
            None => {
                self.standard_inquiry(Peripheral::DISK).put(&mut reply);
                true
            }
            Some(code) => {
                let mut known = false;
                put_page(&mut reply, Peripheral::DISK, code, |out| {
                    known = self.put_vpd(unit, job.nexus, code, out);
                });
                known
            }
        };
        self.reply = reply;
        if known {
            Ok(DataIn::Reply { most: u32::from(allocation) })
        } else {
            Err(job.bad_field(2))
        }
    }

    /// Appends the body of a page, if there is one of that code.
    fn put_vpd(&self, unit: usize, nexus: usize, code: u8, out: &mut Vec<u8>) -> bool {
        let is = &self.units[unit];
        let thin = is.spec.thin != 0;
        match code {
            vpd::SUPPORTED_PAGES => {
                out.extend_from_slice(&[
                    vpd::SUPPORTED_PAGES,
                    vpd::UNIT_SERIAL_NUMBER,
                    vpd::DEVICE_IDENTIFICATION,
                    vpd::BLOCK_LIMITS,
                    vpd::BLOCK_CHARACTERISTICS,
                    vpd::PROVISIONING,
                ]);
            }
            vpd::UNIT_SERIAL_NUMBER => out.extend(format!("{:016x}", is.naa).bytes()),
            vpd::DEVICE_IDENTIFICATION => self.put_designators(is.naa, nexus, out),
            vpd::BLOCK_LIMITS => BlockLimits {
                max_compare_and_write: u8::MAX,
                max_transfer: is.spec.transfer_blocks_max,
                max_unmap: if thin { UNMAP_BLOCKS_MAX } else { 0 },
                max_unmap_descriptors: if thin { UNMAP_RANGES_MAX } else { 0 },
                unmap_granularity: if thin { 4096 / is.spec.block } else { 0 },
                max_write_same: u64::from(is.spec.write_same_blocks_max),
                ..BlockLimits::default()
            }
            .put(out),
            vpd::BLOCK_CHARACTERISTICS => {
                let rotation = is.spec.rotation;
                BlockCharacteristics { rotation, ..BlockCharacteristics::default() }.put(out);
            }
            vpd::PROVISIONING => Provisioning {
                unmap: thin,
                write_same_16: thin,
                write_same_10: thin,
                reads: u8::from(thin),
                kind: if thin { ProvisioningType::Thin } else { ProvisioningType::Full },
                ..Provisioning::default()
            }
            .put(out),
            _ => return false,
        }
        true
    }

    fn put_designators(&self, naa: u64, nexus: usize, out: &mut Vec<u8>) {
        let port = &self.ports[self.nexuses[nexus].port];
        let mut put = |kind, association, bytes: &[u8]| {
            Designator { code_set: 1, association, kind, bytes }.put(out);
        };
        put(DesignatorKind::NAA, Association::LogicalUnit, &naa.to_be_bytes());
        let relative = u32::from(port.id.0).to_be_bytes();
        put(DesignatorKind::RELATIVE_TARGET_PORT, Association::TargetPort, &relative);
        let group = u32::from(self.groups[port.group].id).to_be_bytes();
        put(DesignatorKind::TARGET_PORT_GROUP, Association::TargetPort, &group);
    }

    pub(super) fn report_luns(&mut self, job: Job<'_>, select: u8, allocation: u32) -> Outcome {
        if select > 2 {
            return Err(job.bad_field(2));
        }
        if allocation < 16 {
            return Err(job.bad_field(6));
        }
        let present = self.units.iter().filter(|unit| unit.present && select != 1);
        let luns: Vec<Lun> = present.map(|unit| unit.lun()).collect();
        put_lun_list(&mut self.reply, &luns);
        for told in &mut self.nexuses[job.nexus].told {
            told.forget(AdditionalSense::REPORTED_LUNS_DATA_HAS_CHANGED);
        }
        Ok(DataIn::Reply { most: allocation })
    }

    pub(super) fn report_groups(&mut self, extended: bool, allocation: u32) -> DataIn {
        let of_group = |at: usize| self.ports.iter().filter(move |port| port.group == at);
        let groups = self.groups.iter().enumerate().map(|(at, group)| PortGroupReport {
            preferred: group.preferred,
            state: group.state,
            supported: ALL_STATES,
            group: group.id,
            cause: group.cause,
            ports: of_group(at).map(|port| port.id.0).collect(),
        });
        let seconds = self.spec.transition_ns.div_ceil(1_000_000_000);
        let seconds = u8::try_from(seconds).unwrap_or(u8::MAX);
        put_port_groups(&mut self.reply, extended.then_some(seconds), &groups.collect::<Vec<_>>());
        DataIn::Reply { most: allocation }
    }

    /// All wishes, or none. It is answered at once; the groups are in transition for their time.
    pub(super) fn set_groups(&mut self, job: Job<'_>, length: u32) -> Outcome {
        if length == 0 {
            return Ok(DataIn::None);
        }
        let len = usize::try_from(length).unwrap_or(usize::MAX);
        let list = job.data.get(..len).ok_or(illegal(CUT_LIST))?;
        let wishes = || state_wishes(list).map_err(|_| illegal(CUT_LIST));
        let group_of = |id: u16| self.groups.iter().position(|group| group.id == id);
        // A state that the target goes through by itself cannot be asked for.
        let may = |bits: u8| matches!(bits, 0x0..=0x4);
        if wishes()?.any(|wish| !may(wish.state.bits()) || group_of(wish.group).is_none()) {
            return Err(illegal(BAD_LIST));
        }
        self.taken = list.len();
        for wish in wishes()? {
            let at = self.groups.iter().position(|group| group.id == wish.group);
            let at = at.expect("a group that was checked");
            if self.groups[at].state != wish.state {
                let by = Some(job.task.nexus);
                self.change_group(at, wish.state, StateCause::EXPLICIT, by, job.now);
            }
        }
        Ok(DataIn::None)
    }

    /// The bits that are looked at are found by flipping each of a CDB that is valid.
    pub(super) fn report_opcode(&mut self, unit: usize, report: ReportOpcode) -> DataIn {
        let mut cdb = [0; Cdb::MAX_LEN];
        cdb[0] = report.opcode.0;
        cdb[1] = report.service_action.map_or(0, |action| action.to_be_bytes()[1] & 0x1f);
        // REPORT SUPPORTED OPERATION CODES is valid with an option for one command.
        cdb[2] = u8::from(report.opcode == Opcode::MAINTENANCE_IN && cdb[1] == 0x0c);
        let len = report.opcode.cdb_len().unwrap_or(0);
        let known = ScsiCommand::decode(&cdb[..len]).is_ok() && self.speaks(report.opcode, unit);
        let mut usage = cdb;
        for bit in 8..len * 8 {
            let (at, mask) = (bit / 8, 0x80 >> (bit % 8));
            let mut other = cdb;
            other[at] ^= mask;
            if ScsiCommand::decode(&other[..len]).is_ok_and(|it| it.opcode() == report.opcode) {
                usage[at] |= mask;
            }
        }
        let support = if known { Support::Standard } else { Support::Unsupported };
        let usage = if known { &usage[..len] } else { &[] };
        CommandSupport { support, timeouts: false, usage }.put(&mut self.reply);
        DataIn::Reply { most: report.allocation }
    }
}
