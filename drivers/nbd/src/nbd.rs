//! The device: what was agreed on with the server, and its control side.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_bio::Limits;
use weir_proto_nbd::client::{ServerInfo, Wanted};
use weir_proto_nbd::wire::TransmissionFlags as Offer;
use weir_queue::{Affinity, Driver, DriverError, DriverQueue, Extent, Queues, Unflushed};

use crate::address::Address;
use crate::allocation::Allocation;
use crate::connection::Connection;
use crate::dial::{self, Errand, Opened};
use crate::durability::Durability;
use crate::queue::NbdQueue;
use crate::shared::{Shared, nanoseconds};
use crate::slots::Slots;
use crate::translate::Terms;
use crate::{Options, agreed};
use weir_queue::Notices;
use weir_tls::ClientTls;

/// Tags per queue by default.
const DEPTH: u16 = 128;

/// An export of an NBD server as a device.
///
/// It is connected once it exists: what the server said of the export is what the device's limits
/// are made of, and a server that comes back with less is refused.
#[derive(Debug)]
pub struct Nbd {
    shared: Arc<Shared>,
    limits: Limits,
    connections: u16,
    depth: u16,
    /// Connections until their queues take them: at first the one that was negotiated on, for
    /// queue 0.
    waiting: Mutex<BTreeMap<u16, Waiting>>,
    allocation: Allocation,
}

/// A connection that no queue has taken yet.
#[derive(Debug)]
struct Waiting {
    opened: Opened,
    /// Its queue is about to be opened, and will not wait: should the server go away meanwhile, it
    /// begins by connecting again in the background.
    prepared: bool,
}

impl Waiting {
    fn is_alive(&mut self) -> bool {
        self.opened.channel.is_silent() || !self.opened.behind.is_empty()
    }
}

impl Nbd {
    /// Connects to the server at `address` and negotiates `export`, the empty name being its
    /// default one. Blocks for the options' `connect_timeout` at most, and while a host name is
    /// looked up.
    ///
    /// # Errors
    /// The failure, naming server and export: no connection, a handshake the server refused or
    /// broke off, an export that is no device, or one that is writable without a FLUSH command
    /// while barriers are on.
    pub fn connect(address: Address, export: &str, options: Options) -> Result<Nbd, DriverError> {
        Nbd::connect_over(address, export, options, None)
    }

    /// The same, and with `tls` over TLS or not at all: every connection, also those made anew.
    ///
    /// # Errors
    /// As [`connect`](Nbd::connect), a server that does not offer TLS, and one whose certificate is
    /// not good.
    pub fn connect_over(
        address: Address,
        export: &str,
        options: Options,
        tls: Option<ClientTls>,
    ) -> Result<Nbd, DriverError> {
        let site = site(&address, export, tls.is_some());
        let named = |what: String, source| DriverError { what: format!("{site}: {what}"), source };
        if options.connections == 0 {
            return Err(named("connections=0 is outside 1..=65535".to_owned(), None));
        }
        let places = address
            .resolve()
            .map_err(|source| named("look up the address".to_owned(), Some(source)))?;
        let wanted = Wanted { extended: options.extended, ..Wanted::everything(export) };
        let errand = Errand { wanted: &wanted, tls: tls.as_ref() };
        let opened = dial::connect(&places, errand, options.connect_timeout)
            .map_err(|why| named(why.what, why.source))?;
        let info = opened.info;
        let (limits, told) = agreed::limits(&site, &info, &options)?;
        let notices = Notices::default();
        told.into_iter().for_each(|notice| notices.add(notice));
        let mut connections = options.connections;
        if connections > 1 && !info.flags.contains(Offer::CAN_MULTI_CONN) {
            notices.add(format!(
                "{site}: connections={connections} but the server does not offer CAN_MULTI_CONN, \
                 by which a flush covers all connections: using 1"
            ));
            connections = 1;
        }
        let terms = Terms {
            flags: info.flags,
            payload_max: limits.max_hw_sectors * weir_bio::SECTOR as u32,
            barriers_off: options.barriers_off,
        };
        let Options { connect_timeout, reconnect, .. } = options;
        let durability = Durability::default();
        let shared = Shared {
            site,
            places,
            wanted,
            tls,
            info,
            terms,
            connect_timeout,
            reconnect_ns: nanoseconds(reconnect),
            notices,
            lost: Mutex::default(),
            durability,
        };
        Ok(Nbd {
            shared: Arc::new(shared),
            limits,
            connections,
            depth: DEPTH,
            waiting: Mutex::new(BTreeMap::from([(0, Waiting { opened, prepared: false })])),
            allocation: Allocation::default(),
        })
    }

    /// The same with `depth` tags per queue, at least 1.
    #[must_use]
    pub fn depth(mut self, depth: u16) -> Nbd {
        self.depth = depth.max(1);
        self
    }

    /// The notices about the device for its user, oldest first: what the server lacks, lost
    /// connections, and reconnects. The newest 64 are kept.
    #[must_use]
    pub fn notices(&self) -> Vec<String> {
        self.shared.notices.all()
    }

    /// Tells `listener` each further notice when it comes, on the thread of the connection it
    /// concerns, which waits for it. A second listener takes the first one's place.
    pub fn on_notice(&self, listener: impl Fn(&str) + Send + Sync + 'static) {
        self.shared.notices.listen(Arc::new(listener));
    }

    /// The server's description of the export, and the terms agreed on.
    #[must_use]
    pub fn server(&self) -> ServerInfo {
        self.shared.info
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeMap<u16, Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connect_queue(&self, index: u16) -> Result<Opened, DriverError> {
        self.shared.connect(&format!("connection {index}"))
    }
}

impl Driver for Nbd {
    fn limits(&self) -> Limits {
        self.limits.clone()
    }

    fn faults(&self) -> Vec<String> {
        let site = &self.shared.site;
        let lost = self.shared.lost();
        let lost = lost.iter().map(|(index, difference)| match difference {
            None => format!("{site}: connection {index} is lost and not back"),
            Some(difference) => format!(
                "{site}: connection {index} is lost, as the server is back with another export, \
                 until the disk is opened anew: {difference}"
            ),
        });
        let doubt = self.shared.durability.is_lost().then(|| {
            format!(
                "{site}: writes that were answered and not flushed may be gone: flushes fail until \
                 the disk is opened anew"
            )
        });
        lost.chain(doubt).collect()
    }

    fn unflushed(&self) -> Unflushed {
        self.shared.durability.unflushed()
    }

    fn queues(&self) -> Queues {
        Queues {
            max: self.connections,
            depth: self.depth,
            reserved: 0,
            shared_tags: false,
            home: Affinity::Any,
        }
    }

    fn prepare(&self, index: u16) -> Result<(), DriverError> {
        if let Some(waiting) = self.waiting().get_mut(&index)
            && waiting.is_alive()
        {
            waiting.prepared = true;
            return Ok(());
        }
        let opened = self.connect_queue(index)?;
        self.waiting().insert(index, Waiting { opened, prepared: true });
        Ok(())
    }

    fn open(&self, index: u16, depth: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
        let mut waiting = self.waiting().remove(&index);
        let good = |waiting: &mut Waiting| waiting.prepared || waiting.is_alive();
        let opened = match waiting.take_if(good) {
            Some(waiting) => waiting.opened,
            None => self.connect_queue(index)?,
        };
        Ok(Box::new(NbdQueue::new(Arc::clone(&self.shared), index, depth, opened)?))
    }

    fn allocation(&self, sector: u64, sectors: u64) -> Result<Vec<Extent>, DriverError> {
        self.allocation.query(&self.shared, sector, sectors)
    }
}

impl Drop for Nbd {
    fn drop(&mut self) {
        for waiting in std::mem::take(&mut *self.waiting()).into_values() {
            if let Ok(connection) = Connection::new(waiting.opened, &self.shared.durability) {
                connection.part(&mut Slots::new(0));
            }
        }
    }
}

/// Server and export as they stand in a target.
fn site(address: &Address, export: &str, tls: bool) -> String {
    let address = match tls {
        true => address.to_string().replacen("nbd", "nbds", 1),
        false => address.to_string(),
    };
    match export.is_empty() {
        true => address,
        false if address.contains("+unix:") => format!("{address}?{export}"),
        false => format!("{address}/{export}"),
    }
}
