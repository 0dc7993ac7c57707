//! A disk as a probe meets it: answers to the commands of a conversation.

use std::collections::BTreeMap;

use weir_driver_scsi::{Asked, Asker};
use weir_proto_scsi::alua::{AccessState, PortGroupReport, StateCause, SupportedStates};
use weir_proto_scsi::capacity::Capacity;
use weir_proto_scsi::command::ReportOpcode;
use weir_proto_scsi::decide::Delivery;
use weir_proto_scsi::inquiry::{Inquiry, Peripheral, Tpgs};
use weir_proto_scsi::mode::{CachingPage, DeviceSpecific, ModeForm, put_mode_data};
use weir_proto_scsi::report_luns::put_lun_list;
use weir_proto_scsi::sense::SenseFormat;
use weir_proto_scsi::supported::{CommandSupport, Support};
use weir_proto_scsi::vpd::{self, BlockLimits, Provisioning, ProvisioningType};
use weir_proto_scsi::{AdditionalSense, Lun, Opcode, ScsiCommand, ScsiStatus, Sense, SenseKey};

/// An answer.
#[derive(Clone, Debug)]
pub struct Answer {
    pub delivery: Delivery,
    pub status: ScsiStatus,
    pub data: Vec<u8>,
    pub sense: Vec<u8>,
}

impl Answer {
    pub fn good(data: Vec<u8>) -> Answer {
        let (delivery, status) = (Delivery::Delivered, ScsiStatus::GOOD);
        Answer { delivery, status, data, sense: Vec::new() }
    }

    pub fn check(key: SenseKey, code: AdditionalSense) -> Answer {
        let status = ScsiStatus::CHECK_CONDITION;
        Answer { status, sense: sense(key, code), ..Answer::good(Vec::new()) }
    }

    fn refused() -> Answer {
        Answer::check(SenseKey::IllegalRequest, AdditionalSense::INVALID_COMMAND_OPERATION_CODE)
    }
}

/// Sense data.
pub fn sense(key: SenseKey, code: AdditionalSense) -> Vec<u8> {
    let mut bytes = Vec::new();
    Sense::new(key, code).put(SenseFormat::Fixed, &mut bytes);
    bytes
}

/// What a probe finds.
#[derive(Clone, Debug)]
pub struct Disk {
    pub version: u8,
    pub tpgs: Tpgs,
    pub peripheral: Peripheral,
    pub blocks: u64,
    pub block_len: u32,
    pub write_cache: bool,
    pub fua: bool,
    pub unmaps: bool,
    pub zeroes: bool,
    pub name: [u8; 8],
    pub group: u16,
    pub access: AccessState,
    pub luns: Vec<Lun>,
    /// Answers that come first, by operation code.
    pub first: BTreeMap<u8, Vec<Answer>>,
    /// Commands that were asked.
    pub log: Vec<Vec<u8>>,
}

impl Default for Disk {
    /// 1 GiB with a volatile cache, FUA, UNMAP and WRITE SAME(16).
    fn default() -> Disk {
        Disk {
            version: 6,
            tpgs: Tpgs::None,
            peripheral: Peripheral::DISK,
            blocks: 1 << 21,
            block_len: 512,
            write_cache: true,
            fua: true,
            unmaps: true,
            zeroes: true,
            name: [0x60, 1, 2, 3, 4, 5, 6, 7],
            group: 0x101,
            access: AccessState::ActiveOptimized,
            luns: vec![Lun::ZERO],
            first: BTreeMap::new(),
            log: Vec::new(),
        }
    }
}

impl Disk {
    /// Sends what a conversation asks for.
    pub fn ask(&mut self, asker: &mut dyn Asker) {
        while let Some((_, cdb, asked)) = asker.next() {
            let Answer { delivery, status, mut data, sense } = self.answer(&cdb);
            if let Asked::In(most) = asked {
                data.truncate(most as usize);
            }
            asker.answer(delivery, status, &data, &sense);
            assert!(self.log.len() < 2000, "the conversation does not end");
        }
    }

    fn answer(&mut self, cdb: &[u8]) -> Answer {
        self.log.push(cdb.to_vec());
        if let Some(first) = self.first.get_mut(&cdb[0])
            && !first.is_empty()
        {
            return first.remove(0);
        }
        let command = ScsiCommand::decode(cdb).expect("a command of the standard");
        let mut data = Vec::new();
        match command {
            ScsiCommand::Inquiry { page: None, .. } => self.inquiry().put(&mut data),
            ScsiCommand::Inquiry { page: Some(page), .. } => match self.page(page) {
                Some(page) => data = page,
                None => return Answer::check(SenseKey::IllegalRequest, FIELD),
            },
            ScsiCommand::TestUnitReady | ScsiCommand::StartStopUnit(_) => {}
            ScsiCommand::ReadCapacity16 { .. } if self.version >= 5 => {
                self.capacity().put_16(&mut data);
            }
            ScsiCommand::ReadCapacity10 => self.capacity().put_10(&mut data),
            ScsiCommand::ModeSense(_) => {
                let device = DeviceSpecific { write_protected: false, dpo_fua: self.fua };
                put_mode_data(&mut data, ModeForm::Six, Some(device), |out| {
                    CachingPage::new(self.write_cache, true).put(out);
                });
            }
            ScsiCommand::ReportOpcode(ReportOpcode { opcode, .. }) if self.version >= 5 => {
                let known = self.zeroes && opcode == Opcode::WRITE_SAME_16;
                let support = if known { Support::Standard } else { Support::Unsupported };
                CommandSupport { support, timeouts: false, usage: &[] }.put(&mut data);
            }
            ScsiCommand::ReportTargetPortGroups { .. } => {
                weir_proto_scsi::alua::put_port_groups(&mut data, None, &[self.port_group()]);
            }
            ScsiCommand::ReportLuns { .. } => put_lun_list(&mut data, &self.luns),
            _ => return Answer::refused(),
        }
        Answer::good(data)
    }

    pub fn port_group(&self) -> PortGroupReport {
        PortGroupReport {
            preferred: false,
            state: self.access,
            supported: SupportedStates(0xff),
            group: self.group,
            cause: StateCause::NONE,
            ports: vec![7],
        }
    }

    fn inquiry(&self) -> Inquiry {
        Inquiry {
            peripheral: self.peripheral,
            removable: false,
            version: self.version,
            aca: false,
            hierarchical: false,
            format: 2,
            tpgs: self.tpgs,
            third_party_copy: false,
            protect: false,
            multiport: false,
            queuing: true,
            vendor: *b"WEIR    ",
            product: *b"SCRIPTED DISK   ",
            revision: *b"0001",
            versions: [0x00a0, 0, 0, 0, 0, 0, 0, 0],
        }
    }

    fn capacity(&self) -> Capacity {
        Capacity {
            last_lba: self.blocks - 1,
            block_len: self.block_len,
            provisioned: self.unmaps,
            reads_zeros: self.unmaps,
            ..Capacity::default()
        }
    }

    fn page(&self, code: u8) -> Option<Vec<u8>> {
        let mut page = Vec::new();
        let listed = [0, 0x80, 0x83, 0xb0, 0xb1, 0xb2];
        let body: Vec<u8> = match code {
            0 => listed.to_vec(),
            0x80 => b" serial-1 ".to_vec(),
            0x83 => {
                let mut body = vec![0x01, 0x03, 0, 8];
                body.extend(self.name);
                body.extend([0x01, 0x14, 0, 4, 0, 0, 0, 7]);
                let [high, low] = self.group.to_be_bytes();
                body.extend([0x01, 0x15, 0, 4, 0, 0, high, low]);
                body
            }
            0xb0 => {
                let limits = BlockLimits {
                    max_unmap: if self.unmaps { 1 << 16 } else { 0 },
                    max_unmap_descriptors: u32::from(self.unmaps),
                    max_write_same: 1 << 12,
                    ..BlockLimits::default()
                };
                limits.put(&mut page);
                page[..].to_vec()
            }
            0xb1 => {
                let mut body = vec![0; 60];
                body[1] = 1;
                body
            }
            0xb2 => {
                let provisioning = Provisioning {
                    unmap: self.unmaps,
                    kind: ProvisioningType::Thin,
                    ..Provisioning::default()
                };
                provisioning.put(&mut page);
                page[..].to_vec()
            }
            _ => return None,
        };
        let mut whole = Vec::new();
        vpd::put_page(&mut whole, Peripheral::DISK, code, |out| out.extend(body));
        Some(whole)
    }
}

const FIELD: AdditionalSense = AdditionalSense::INVALID_FIELD_IN_CDB;
