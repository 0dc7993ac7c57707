//! An initiator for tests: it sends a command, and turns the target until the command has ended.

#![allow(dead_code)]

use weir_bio::Nanos;
use weir_proto_scsi::command::{SynchronizeCache, Transfer};
use weir_proto_scsi::{AdditionalSense, CdbSize, Lun, ScsiCommand, ScsiStatus, Sense, SenseKey};
use weir_sim_target::{
    Command, DataPlace, End, Fault, InitiatorId, LunSpec, NexusId, PortId, Spec, Target, TaskTag,
};

pub const MS: u64 = 1_000_000;
pub const S: u64 = 1_000 * MS;

/// A command that has ended.
#[derive(Clone, Debug)]
pub struct Ended {
    pub end: End,
    pub data: Vec<u8>,
}

impl Ended {
    pub fn is_good(&self) -> bool {
        self.end.status == ScsiStatus::GOOD
    }

    pub fn sense(&self) -> Option<Sense> {
        Sense::decode(&self.end.sense).ok()
    }

    /// Key and code of a CHECK CONDITION.
    pub fn why(&self) -> (SenseKey, u16) {
        assert_eq!(self.end.status, ScsiStatus::CHECK_CONDITION, "{:?}", self.end);
        let sense = self.sense().expect("sense");
        (sense.key, sense.code.0)
    }

    #[track_caller]
    pub fn good(self) -> Vec<u8> {
        assert!(self.is_good(), "{:?} {:?}", self.end, self.sense());
        self.data
    }

    #[track_caller]
    pub fn fails(&self, key: SenseKey, code: AdditionalSense) {
        assert_eq!(self.why(), (key, code.0));
    }
}

pub struct Bed {
    pub target: Target,
    pub now: Nanos,
    tag: u32,
}

/// A small disk.
pub fn disk() -> LunSpec {
    LunSpec { size: 1 << 20, ..LunSpec::default() }
}

pub fn spec() -> Spec {
    Spec { journal: 10_000, luns: vec![disk()], ..Spec::default() }
}

pub fn read(lba: u64, blocks: u32) -> ScsiCommand {
    ScsiCommand::Read(Transfer { size: CdbSize::Sixteen, lba, blocks, dpo: false, fua: false })
}

pub fn write(lba: u64, blocks: u32) -> ScsiCommand {
    ScsiCommand::Write(Transfer { size: CdbSize::Sixteen, lba, blocks, dpo: false, fua: false })
}

pub fn write_fua(lba: u64, blocks: u32) -> ScsiCommand {
    ScsiCommand::Write(Transfer { size: CdbSize::Ten, lba, blocks, dpo: false, fua: true })
}

pub fn flush() -> ScsiCommand {
    let size = CdbSize::Sixteen;
    ScsiCommand::SynchronizeCache(SynchronizeCache { size, lba: 0, blocks: 0, immediate: false })
}

impl Bed {
    pub fn new(spec: Spec) -> Self {
        Self { target: Target::new(spec).unwrap(), now: Nanos::ZERO, tag: 0 }
    }

    /// A target with one nexus that has heard of its power on.
    pub fn ready(spec: Spec) -> (Self, NexusId) {
        let mut bed = Self::new(spec);
        let nexus = bed.login(1, 1);
        (bed, nexus)
    }

    pub fn connect(&mut self, port: u16, initiator: u32) -> NexusId {
        self.target.connect(PortId(port), InitiatorId(initiator), self.now).unwrap()
    }

    /// Connects, and takes the unit attentions of all logical units below 8.
    pub fn login(&mut self, port: u16, initiator: u32) -> NexusId {
        let nexus = self.connect(port, initiator);
        for lun in 0..8 {
            self.to(nexus, lun, ScsiCommand::TestUnitReady, &[]);
        }
        nexus
    }

    pub fn fault(&mut self, fault: Fault) {
        self.target.add_fault(fault).unwrap();
    }

    /// Sends a command and does not wait.
    pub fn send(
        &mut self,
        nexus: NexusId,
        lun: u32,
        cdb: &[u8],
        data: &[u8],
        room: u32,
    ) -> TaskTag {
        self.tag += 1;
        let tag = TaskTag(self.tag);
        let lun = Lun::new(lun).unwrap();
        let command = Command { tag, lun, cdb, data_out: data, expected_in: room };
        self.target.command(nexus, command, self.now).unwrap();
        tag
    }

    pub fn start(
        &mut self,
        nexus: NexusId,
        lun: u32,
        command: ScsiCommand,
        data: &[u8],
    ) -> TaskTag {
        let room = if data.is_empty() { 1 << 20 } else { 0 };
        self.send(nexus, lun, command.encode().unwrap().bytes(), data, room)
    }

    /// The next end, at its time; `None` if there is none to come.
    pub fn next(&mut self) -> Option<Ended> {
        self.next_by(Nanos(u64::MAX))
    }

    fn next_by(&mut self, limit: Nanos) -> Option<Ended> {
        loop {
            let mut data = Vec::new();
            let mut take = |place: DataPlace, bytes: &[u8]| {
                assert_eq!(place.offset as usize, data.len(), "the pieces come in order");
                data.extend_from_slice(bytes);
            };
            if let Some(end) = self.target.next_end(self.now, &mut take) {
                assert_eq!(end.moved_in as usize, data.len());
                return Some(Ended { end, data });
            }
            self.now = self.target.wake_at().filter(|at| *at > self.now && *at <= limit)?;
        }
    }

    /// All ends until a time.
    pub fn until(&mut self, time: Nanos) -> Vec<Ended> {
        let all = std::iter::from_fn(|| self.next_by(time)).collect();
        self.now = time;
        all
    }

    /// Sends a command and waits for its end, which is the only one to come.
    pub fn try_to(
        &mut self,
        nexus: NexusId,
        lun: u32,
        command: ScsiCommand,
        data: &[u8],
    ) -> Option<Ended> {
        let tag = self.start(nexus, lun, command, data);
        let ended = self.next()?;
        assert_eq!((ended.end.nexus, ended.end.tag), (nexus, tag));
        Some(ended)
    }

    #[track_caller]
    pub fn to(&mut self, nexus: NexusId, lun: u32, command: ScsiCommand, data: &[u8]) -> Ended {
        self.try_to(nexus, lun, command, data).expect("an end")
    }

    /// The first byte of a block, as it is now.
    pub fn byte(&self, lun: u32, lba: u64) -> u8 {
        let mut block = [0; 512];
        self.target.peek(lun, lba, &mut block);
        block[0]
    }
}
