//! The way in by one address: which clients come in there, and what each finds.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use weir_access::{Address, Allow, Peer};
use weir_proto_nbd::server::{Offer, Tls};
use weir_tls::ServerTls;

use crate::channel::Security;
use crate::export::Served;

/// Which exports are served at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Those that name it and those that name no address.
    All,
    /// Those that name it.
    Named,
}

/// The way in by one address.
pub(crate) struct Gate {
    /// None for a connection that was handed over.
    pub(crate) address: Option<Address>,
    pub(crate) allow: Allow,
    pub(crate) scope: Scope,
    pub(crate) security: Security,
}

/// A connection on its way to the reactor that will serve it.
pub(crate) struct Visitor {
    pub(crate) fd: OwnedFd,
    pub(crate) peer: Peer,
    /// The peer for people.
    pub(crate) name: String,
    pub(crate) gate: Arc<Gate>,
}

impl Gate {
    /// The TLS rule for a client; `None`: the client may not come in.
    pub(crate) fn way_in(&self, peer: &Peer) -> Option<(Tls, Option<&ServerTls>)> {
        self.security.of(self.allow.admits(peer))
    }

    /// How each export is offered to a client that came in here, by the names in its certificate.
    /// Without a restricted export no list is needed.
    pub(crate) fn offers(
        &self,
        exports: &[Arc<Served>],
        peer: &Peer,
        names: &[String],
    ) -> Box<[Offer]> {
        let offer = |export: &Arc<Served>| {
            let named = self.address.as_ref().is_some_and(|here| export.listen.contains(here));
            match named || (export.listen.is_empty() && self.scope == Scope::All) {
                false => Offer::Absent,
                true if export.allow.admits_named(peer, names) => Offer::Served,
                true => Offer::Refused,
            }
        };
        let offers: Vec<Offer> = exports.iter().map(offer).collect();
        match offers.iter().all(|offer| *offer == Offer::Served) {
            true => Box::default(),
            false => offers.into(),
        }
    }
}
