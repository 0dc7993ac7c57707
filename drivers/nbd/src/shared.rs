//! The state that all connections of a device share: the server's address, the terms agreed on with
//! it, and the notices for the user.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use weir_proto_nbd::client::{ServerInfo, Wanted};
use weir_queue::{DriverError, Notices};
use weir_tls::ClientTls;

use crate::address::Place;
use crate::agreed;
use crate::dial::{self, Errand, Opened};
use crate::durability::Durability;
use crate::translate::Terms;

/// The state that all connections of a device share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Server and export, as they stand in a target.
    pub(crate) site: String,
    pub(crate) places: Vec<Place>,
    pub(crate) wanted: Wanted,
    pub(crate) tls: Option<ClientTls>,
    pub(crate) info: ServerInfo,
    pub(crate) terms: Terms,
    pub(crate) connect_timeout: Duration,
    pub(crate) reconnect_ns: u64,
    pub(crate) notices: Notices,
    pub(crate) durability: Durability,
    /// Connections that are lost and not back, by their numbers; with the difference, where the
    /// server is back with another export.
    pub(crate) lost: Mutex<BTreeMap<u16, Option<String>>>,
}

impl Shared {
    pub(crate) fn lost(&self) -> MutexGuard<'_, BTreeMap<u16, Option<String>>> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn connect_timeout_ns(&self) -> u64 {
        nanoseconds(self.connect_timeout)
    }

    pub(crate) fn errand(&self) -> Errand<'_> {
        Errand { wanted: &self.wanted, tls: self.tls.as_ref() }
    }

    /// Connects, and holds the export against the one that was agreed on. May block for
    /// `connect_timeout`.
    pub(crate) fn connect(&self, what: &str) -> Result<Opened, DriverError> {
        let named = |why: DriverError| DriverError {
            what: format!("{}: {what}: {}", self.site, why.what),
            source: why.source,
        };
        let opened =
            dial::connect(&self.places, self.errand(), self.connect_timeout).map_err(named)?;
        match agreed::difference(&self.info, &opened.info) {
            None => Ok(opened),
            Some(difference) => Err(named(DriverError {
                what: format!("the server has another export now: {difference}"),
                source: None,
            })),
        }
    }
}

pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
