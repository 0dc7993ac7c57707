//! The control side: a target as a transport of the SCSI mid-layer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use weir_driver_scsi::{Adapter, Asker, Port, Transport};
use weir_proto_iscsi::IscsiName;
use weir_proto_scsi::Lun;
use weir_queue::DriverError;

use crate::dial::{Opened, failed};
use crate::peer::Peer;
use crate::port::IscsiPort;
use crate::{Options, ask, identity};

/// A target of iSCSI.
#[derive(Debug)]
pub struct Iscsi {
    peer: Arc<Peer>,
    /// Sessions that were prepared, until their ports take them.
    waiting: Mutex<BTreeMap<u16, Opened>>,
    /// Ports log in by themselves, however long that takes, and look for this logical unit.
    unreached: Option<Lun>,
}

impl Iscsi {
    /// The target of this name at the options' portals. It is not asked for anything yet; names of
    /// portals are looked up, which may block.
    ///
    /// # Errors
    /// No portal has an address that is known, or the options contradict each other.
    pub fn new(target: IscsiName, options: Options) -> Result<Iscsi, DriverError> {
        let peer = Peer::new(target, options)?;
        let named = |why: String| failed(&peer.site, why);
        if peer.options.sessions == 0 || peer.options.depth == 0 {
            return Err(named("sessions and depth are 1 or more".to_owned()));
        }
        if peer.options.target_secret.is_some() && peer.options.initiator_secret.is_none() {
            let why = "the target is to prove itself, but the initiator has no secret of its own";
            return Err(named(why.to_owned()));
        }
        // What makes no login makes no device.
        let settings = peer.settings(peer.isid(0)).map_err(|why| named(why.to_string()))?;
        settings.check().map_err(|why| named(why.to_string()))?;
        Ok(Iscsi { peer: Arc::new(peer), waiting: Mutex::default(), unreached: None })
    }

    /// The same target, which cannot be reached now. Its ports are open at once, and refuse
    /// commands until they have logged in and found the logical unit that this page 83h names.
    /// `None`: it names none, so that there is nothing by which to know it.
    #[must_use]
    pub fn unreached(mut self, lun: Lun, page: &[u8]) -> Option<Iscsi> {
        let identity = identity::of(page).filter(|names| !names.is_empty())?;
        self.peer.learn(lun, identity);
        self.unreached = Some(lun);
        Some(self)
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeMap<u16, Opened>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn log_in(&self, index: u16) -> Result<Opened, DriverError> {
        let isid = self.peer.isid(index);
        self.peer.log_in(isid, index.into()).map_err(|why| DriverError {
            what: format!("session {index}: {}", why.what),
            source: why.source,
        })
    }
}

/// Whether the target has not ended an idle session.
fn is_silent(opened: &Opened) -> bool {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    recv(&opened.socket, &mut [0; 1][..], flags).err() == Some(Errno::AGAIN)
}

impl Transport for Iscsi {
    fn adapter(&self) -> Adapter {
        self.peer.adapter()
    }

    fn name(&self) -> String {
        self.peer.site.clone()
    }

    fn ask(&self, asker: &mut dyn Asker) -> Result<(), DriverError> {
        ask::ask(&self.peer, asker)
    }

    fn target_line(&self, lun: Lun) -> Option<String> {
        Some(format!("{}/{}", self.peer.site, lun.number()?))
    }

    fn node_name(&self) -> Option<String> {
        Some(self.peer.target.to_string())
    }

    fn faults(&self) -> Vec<String> {
        self.peer.faults()
    }

    fn prepare(&self, index: u16) -> Result<(), DriverError> {
        // Another login with the ISID of a session ends it.
        if self.unreached.is_some()
            || self.peer.is_open(index)
            || self.waiting().get(&index).is_some_and(is_silent)
        {
            return Ok(());
        }
        let opened = self.log_in(index)?;
        self.waiting().insert(index, opened);
        Ok(())
    }

    fn open(&self, index: u16) -> Result<Box<dyn Port>, DriverError> {
        if !self.peer.opens(index) {
            return Err(failed(&self.peer.site, format!("session {index} is open already")));
        }
        let peer = Arc::clone(&self.peer);
        let prepared = self.waiting().remove(&index);
        let port = match self.unreached {
            Some(unit) => IscsiPort::unreached(peer, index, unit),
            None => {
                // One that has ended meanwhile is made anew in the background.
                let opened = prepared.map_or_else(|| self.log_in(index), Ok);
                opened.and_then(|opened| IscsiPort::new(peer, index, opened))
            }
        };
        match port {
            Ok(port) => Ok(Box::new(port)),
            Err(why) => {
                self.peer.closed(index);
                Err(why)
            }
        }
    }
}

impl Drop for Iscsi {
    /// Sessions that no port took are left.
    fn drop(&mut self) {
        for (index, opened) in std::mem::take(&mut *self.waiting()) {
            drop(IscsiPort::new(Arc::clone(&self.peer), index, opened));
        }
    }
}
