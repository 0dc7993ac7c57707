//! The control side: one port of a simulated target as a transport of the mid-layer.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use weir_bio::{Buf, Data};
use weir_driver_scsi::{
    Adapter, Asked, Asker, Command, Delivered, Direction, Ends, Port, Transport,
};
use weir_proto_scsi::decide::Delivery;
use weir_proto_scsi::{Lun, ScsiStatus};
use weir_queue::DriverError;

use super::link::Route;
use super::port::SimPort;
use super::shared::SharedTarget;

/// How long an inquiry waits for an answer.
const ASK_NS: u64 = 30_000_000_000;

/// A port of a simulated target as a transport.
#[derive(Debug)]
pub struct SimTransport {
    shared: Arc<SharedTarget>,
    route: Route,
    /// The number of the first session's initiator; inquiries have that behind the last.
    initiator: u32,
    /// The file of the target, if disks are named by one.
    file: Option<PathBuf>,
}

impl SimTransport {
    /// A transport to `shared`, which is asked for nothing yet.
    #[must_use]
    pub fn new(shared: &Arc<SharedTarget>, route: Route) -> SimTransport {
        let initiator = shared.new_initiators(u32::from(route.sessions) + 1);
        SimTransport { shared: Arc::clone(shared), route, initiator, file: None }
    }

    /// The same, of a target whose disks are named by its file.
    #[must_use]
    pub fn of_file(self, file: &Path) -> SimTransport {
        SimTransport { file: Some(file.to_owned()), ..self }
    }

    /// The target.
    #[must_use]
    pub fn target(&self) -> &Arc<SharedTarget> {
        &self.shared
    }

    /// A nexus for inquiries.
    fn caller(&self) -> Result<SimPort, DriverError> {
        let initiator = self.initiator + u32::from(self.route.sessions);
        let mut port = SimPort::new(&self.shared, &self.route, initiator, 1);
        port.commit(self.shared.now());
        match port.outage_until() {
            None => Ok(port),
            Some(_) => {
                Err(DriverError { what: format!("{}: no answer", self.route.name), source: None })
            }
        }
    }

    /// Sends one command and waits for its end; `None` if there is none in time.
    fn ask_one(
        &self,
        port: &mut SimPort,
        (lun, cdb, asked): &(Lun, Vec<u8>, Asked),
    ) -> Option<(Delivered, Vec<u8>, Vec<u8>)> {
        let mut memory = Vec::new();
        let direction = match asked {
            Asked::Nothing => Direction::None,
            Asked::In(bytes) => {
                memory.push(Data::One(Buf::zeroed(*bytes as usize)));
                Direction::In(*bytes)
            }
            Asked::Out(bytes) => {
                memory.push(Data::One(Buf::filled(bytes.len(), |to| to.copy_from_slice(bytes))));
                Direction::Out(bytes.len() as u32)
            }
        };
        let mut now = self.shared.now();
        let limit = now + ASK_NS;
        let mut ends = Ends::default();
        let command = Command { slot: 0, lun: *lun, cdb, direction };
        port.send(&command, &mut memory, now).ok()?;
        port.commit(now);
        loop {
            port.reap(now, &mut ends);
            if let Some(end) = ends.commands.pop() {
                let mut data = vec![0; end.moved as usize];
                if matches!(direction, Direction::In(_)) {
                    ends.memory[0].copy_to_at(0, &mut data);
                }
                return Some((end, data, ends.sense));
            }
            let next = port.wake_at().unwrap_or(limit).min(limit);
            if now >= limit {
                return None;
            }
            self.shared.wait(next);
            now = self.shared.now().max(next);
        }
    }
}

impl Transport for SimTransport {
    fn target_line(&self, lun: Lun) -> Option<String> {
        let (file, port) = (self.file.as_ref()?.display(), self.route.port.0);
        Some(format!("scsi-sim:{file},port={port},lun={}", lun.number()?))
    }

    fn node_name(&self) -> Option<String> {
        self.file.as_ref().map(|file| file.display().to_string())
    }

    fn adapter(&self) -> Adapter {
        Adapter {
            queues: self.route.sessions,
            can_queue: self.route.depth,
            own_slots: 8,
            cmd_per_lun: self.route.depth,
            segments_max: 256,
            sectors_max: 8192,
            cdb_max: 16,
        }
    }

    fn name(&self) -> String {
        self.route.name.clone()
    }

    fn ask(&self, asker: &mut dyn Asker) -> Result<(), DriverError> {
        let mut port = self.caller()?;
        while let Some(question) = asker.next() {
            match self.ask_one(&mut port, &question) {
                Some((end, data, sense)) => {
                    asker.answer(end.delivery, end.status, &data, &sense);
                }
                None => {
                    // What gave no answer ends with its nexus.
                    drop(port);
                    asker.answer(Delivery::TimedOut, ScsiStatus::GOOD, &[], &[]);
                    port = self.caller()?;
                }
            }
        }
        Ok(())
    }

    fn open(&self, index: u16) -> Result<Box<dyn Port>, DriverError> {
        let adapter = self.adapter();
        let slots = usize::from(adapter.queues) * usize::from(adapter.can_queue);
        let slots = slots + usize::from(adapter.own_slots);
        let initiator = self.initiator + u32::from(index);
        Ok(Box::new(SimPort::new(&self.shared, &self.route, initiator, slots)))
    }
}
