//! The real SCSI mid-layer of `drivers/scsi` over the simulated target: a host of it for each port
//! of the target that a simulated host reaches, each disk behind that port a logical unit.
//!
//! A logical unit is identified by the mid-layer's own probe, which asks the simulated target of
//! `sim/target`; paths to a unit share what was found out. Its commands go over a
//! [`Nexus`](crate::nexus::Nexus).

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use weir_bio::{Nanos, SECTOR};
use weir_proto_scsi::Lun;
use weir_proto_scsi::decide::Delivery;
use weir_proto_scsi::inquiry::Tpgs;
use weir_queue::DriverError;
use weir_sim_target::{
    Command, DataPlace, InitiatorId, LunSpec, NexusId, PortId, Spec as TargetSpec, Target, TaskTag,
};

use crate::midlayer::{
    Adapter, Asked, Asker, Facts, HostOptions, Port, Probe, ScsiHost, Transport, Unit, UnitOptions,
};
use crate::nexus::{Nexus, NexusPort, SharedNexus};
use crate::spec::{HostError, HostSpec, San};

fn refused(why: &dyn fmt::Display) -> HostError {
    HostError(why.to_string())
}

/// Slots of a port for commands of the mid-layer's own.
const OWN_SLOTS: u16 = 8;

/// Sectors of one command at most: the bound that processes see is the user's.
const SECTORS_MAX: u32 = 1 << 17;

/// The target as the mid-layer's probe knows it.
pub(crate) struct Identified {
    target: Mutex<(Target, NexusId)>,
}

impl Identified {
    /// A target with the disks as its logical units.
    pub(crate) fn new(spec: &HostSpec) -> Result<Arc<Identified>, HostError> {
        let disk = &spec.disk;
        let lun = |number| LunSpec {
            number,
            size: disk.size / SECTOR * SECTOR,
            write_cache: disk.has_volatile_cache(),
            rotation: if disk.rotational { 7200 } else { 1 },
            ..LunSpec::default()
        };
        let luns = (0..spec.disks as u32).map(lun).collect();
        let spec = TargetSpec { luns, ..TargetSpec::default() };
        let mut target = Target::new(spec).map_err(|why| refused(&why))?;
        let nexus = target.connect(PortId(1), InitiatorId(1), Nanos::ZERO);
        let nexus = nexus.map_err(|why| HostError(format!("{why:?}")))?;
        Ok(Arc::new(Identified { target: Mutex::new((target, nexus)) }))
    }

    /// Commands one after the other, each answered at once.
    fn ask(&self, asker: &mut dyn Asker) {
        let mut target = self.target.lock().unwrap_or_else(PoisonError::into_inner);
        let (target, nexus) = &mut *target;
        while let Some((lun, cdb, asked)) = asker.next() {
            let (data_out, expected_in) = match &asked {
                Asked::Nothing => (&[][..], 0),
                Asked::In(bytes) => (&[][..], *bytes),
                Asked::Out(bytes) => (&bytes[..], 0),
            };
            let command = Command { tag: TaskTag(0), lun, cdb: &cdb, data_out, expected_in };
            target.command(*nexus, command, Nanos::ZERO).expect("its nexus is there");
            let mut data = Vec::new();
            let mut sink = |place: DataPlace, bytes: &[u8]| {
                data.resize(place.offset as usize, 0);
                data.extend_from_slice(bytes);
            };
            let end = target.next_end(Nanos(1_000_000), &mut sink).expect("it takes no time");
            asker.answer(Delivery::Delivered, end.status, &data, &end.sense);
        }
    }

    /// What the mid-layer finds out about a disk. Its port groups are left out: paths are alike.
    pub(crate) fn facts(&self, disk: usize) -> Result<Arc<Facts>, HostError> {
        let mut probe = Probe::new(Lun::new(disk as u32).expect("disks are few"));
        self.ask(&mut probe);
        let mut facts = probe.finish().map_err(|why| refused(&why))?;
        facts.inquiry.tpgs = Tpgs::None;
        (facts.group, facts.access) = (None, None);
        Ok(Arc::new(facts))
    }
}

/// A port of the target as a transport of the mid-layer.
struct TargetPort {
    name: String,
    adapter: Adapter,
    nexuses: Vec<SharedNexus>,
    identified: Arc<Identified>,
}

impl Transport for TargetPort {
    fn adapter(&self) -> Adapter {
        self.adapter
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn ask(&self, asker: &mut dyn Asker) -> Result<(), DriverError> {
        self.identified.ask(asker);
        Ok(())
    }

    fn open(&self, index: u16) -> Result<Box<dyn Port>, DriverError> {
        Ok(Box::new(NexusPort(Arc::clone(&self.nexuses[usize::from(index)]))))
    }
}

/// One port of the target as one simulated host reaches it.
pub(crate) struct PortSide {
    host: Arc<ScsiHost>,
    pub(crate) nexuses: Vec<SharedNexus>,
}

impl PortSide {
    pub(crate) fn new(
        spec: &HostSpec,
        san: &San,
        [host, path]: [usize; 2],
        identified: &Arc<Identified>,
    ) -> PortSide {
        let ports = &san.ports;
        let fault = ports.fault.filter(|fault| path < fault.paths);
        let nexus = || Arc::new(Mutex::new(Nexus::new(ports.task_set, fault)));
        let nexuses: Vec<SharedNexus> = (0..san.path.queues).map(|_| nexus()).collect();
        let adapter = Adapter {
            queues: san.path.queues,
            can_queue: spec.can_queue(san),
            own_slots: OWN_SLOTS,
            cmd_per_lun: san.path.depth.unwrap_or(spec.disk.depth),
            segments_max: 128,
            sectors_max: SECTORS_MAX.min(spec.disk.command_sectors().unwrap_or(u32::MAX)),
            cdb_max: 16,
        };
        let name = format!("host{host}-port{path}");
        let (own, identified) = (nexuses.clone(), Arc::clone(identified));
        let port = TargetPort { name, adapter, nexuses: own, identified };
        PortSide { host: ScsiHost::new(Arc::new(port), HostOptions::default()), nexuses }
    }

    /// A disk behind it, as the driver of a path.
    pub(crate) fn unit(&self, facts: &Arc<Facts>) -> Result<Unit, HostError> {
        let facts = Arc::clone(facts);
        Unit::of_facts(&self.host, facts, UnitOptions::default()).map_err(|why| refused(&why))
    }
}
