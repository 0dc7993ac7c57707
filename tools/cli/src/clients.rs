//! The NBD server's clients as the tree shows them.

use std::sync::Arc;

use weir::{GroupId, IoPrio};
use weir_control::{Clients, Connected, Failure, Memory};
use weir_front_nbd::Server;

/// A server whose clients stand in a tree.
pub(crate) struct NbdClients(pub(crate) Arc<Server>);

impl Clients for NbdClients {
    fn exports(&self) -> Vec<String> {
        self.0.exports()
    }

    fn connected(&self) -> Vec<Connected> {
        let shown = |client: weir_front_nbd::Client| Connected {
            number: client.number,
            export: client.export,
            address: client.peer,
            group: client.group,
            ioprio: client.ioprio,
            disk: client.disk,
            ios: client.ios,
            bytes: client.bytes,
            hard_queue: client.hard_queue,
        };
        self.0.clients().into_iter().map(shown).collect()
    }

    fn memory(&self) -> Memory {
        let (bound, held) = self.0.memory();
        Memory { bound: bound as u64, held: held as u64 }
    }

    fn reclassify(
        &self,
        number: u64,
        group: Option<GroupId>,
        ioprio: Option<IoPrio>,
    ) -> Result<bool, Failure> {
        Ok(self.0.reclassify(number, group, ioprio)?)
    }
}
