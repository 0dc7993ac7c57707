//! The state that the parts of a server on different reactors share: the exports, the bounds, and
//! the clients that are served now.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use weir_bio::{GroupId, IoPrio, Nanos, SECTOR};
use weir_control::{Classing, Client, Seen};
use weir_front::stated_rule;
use weir_queue::{ClientTimes, Group, Groups, Histogram, Member, Tally};

use crate::admission::Admission;
use crate::budget::Budget;
use crate::export::{Export, Exports, Served};
use crate::settings::Settings;

/// The state that the parts of a server on different reactors share. None of it is touched per I/O.
pub(crate) struct Shared {
    exports: RwLock<Arc<Exports>>,
    pub(crate) settings: Settings,
    pub(crate) budget: Arc<Budget>,
    pub(crate) admission: Arc<Admission>,
    pub(crate) groups: Arc<Groups>,
    clients: Mutex<Clients>,
}

/// The clients that are served now.
#[derive(Default)]
struct Clients {
    next: u64,
    there: BTreeMap<u64, Place>,
}

/// A client and where it is served.
struct Place {
    client: Client,
    reactor: usize,
    place: u32,
    figures: Figures,
    export: Arc<Served>,
    came: Nanos,
}

/// A client that has gone, for the log.
pub(crate) struct Gone {
    pub(crate) export: String,
    pub(crate) came: Nanos,
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
}

/// The counters of a client.
pub(crate) struct Figures {
    /// Of its submitter.
    pub(crate) tally: Tally,
    /// Times for which caps held its requests back.
    pub(crate) held: Arc<Histogram>,
    /// The priority of its process.
    pub(crate) priority: Seen,
}

impl Figures {
    fn times(&self) -> ClientTimes {
        let mut times = self.tally.times();
        self.held.add_to(&mut times.held);
        times
    }
}

impl Shared {
    /// For a server on so many reactors.
    pub(crate) fn new(
        exports: &[Export],
        settings: Settings,
        reactors: usize,
        groups: Arc<Groups>,
    ) -> Shared {
        let budget = Budget::new(settings.memory, reactors);
        Shared {
            exports: RwLock::new(Arc::new(Exports::new(exports))),
            settings,
            admission: Admission::new(settings, Arc::clone(&budget), reactors),
            budget,
            groups,
            clients: Mutex::default(),
        }
    }

    /// The exports that there are now.
    pub(crate) fn exports(&self) -> Arc<Exports> {
        Arc::clone(&self.exports.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Another list of exports, made from the present one. What `change` returns beside it.
    pub(crate) fn change_exports<T, E>(
        &self,
        change: impl FnOnce(&Exports) -> Result<(Exports, T), E>,
    ) -> Result<T, E> {
        let mut exports = self.exports.write().unwrap_or_else(PoisonError::into_inner);
        let (changed, out) = change(&exports)?;
        *exports = Arc::new(changed);
        Ok(out)
    }

    /// Whether this export is still there.
    pub(crate) fn has(&self, export: &Arc<Served>) -> bool {
        self.exports().served.iter().any(|known| Arc::ptr_eq(known, export))
    }

    /// The clients that are served now.
    pub(crate) fn seen(&self) -> Vec<Client> {
        let clients = self.clients();
        let seen = |place: &Place| Client {
            process_priority: place.figures.priority.get(),
            polling: stated_rule(place.export.polling()),
            ..place.client.seen(&place.figures.tally, &place.export.device)
        };
        clients.there.values().map(seen).collect()
    }

    /// The times of a client's I/O; `None` if it is gone.
    pub(crate) fn times(&self, number: u64) -> Option<ClientTimes> {
        self.clients().there.get(&number).map(|place| place.figures.times())
    }

    /// The reactor and the place of a client's connection there; `None` if it is gone.
    pub(crate) fn place_of(&self, number: u64) -> Option<(usize, u32)> {
        self.clients().there.get(&number).map(|place| (place.reactor, place.place))
    }

    fn clients(&self) -> MutexGuard<'_, Clients> {
        self.clients.lock().expect("the clients' lock")
    }

    /// Notes a client and gives it a number.
    pub(crate) fn add_client(
        &self,
        export: &Arc<Served>,
        (reactor, place): (usize, u32),
        peer: &str,
        figures: Figures,
        came: Nanos,
    ) -> u64 {
        let mut clients = self.clients();
        let number = clients.next;
        clients.next += 1;
        let Served { name, group, ioprio, background, device, .. } = &**export;
        let client = Client {
            number,
            export: name.clone(),
            peer: String::from(peer),
            group: *group,
            ioprio: *ioprio,
            process_priority: IoPrio::NONE,
            background: *background,
            polling: stated_rule(export.polling()),
            disk: device.config().name.clone(),
            ios: 0,
            bytes: 0,
            in_flight: 0,
            hard_queue: None,
        };
        let export = Arc::clone(export);
        clients.there.insert(number, Place { client, reactor, place, figures, export, came });
        number
    }

    /// A member of a group for who serves itself from this export.
    fn join(&self, group: GroupId, export: &str) -> Result<Member, weir_queue::Error> {
        let exports = self.exports();
        let named = exports.served.iter().find(|known| known.name == export);
        self.groups.join_on(group, named.map_or("", |named| &named.device.config().name))
    }

    /// A client has gone.
    pub(crate) fn forget_client(&self, number: u64) -> Option<Gone> {
        let Place { client, figures, came, .. } = self.clients().there.remove(&number)?;
        let bytes = |group| figures.tally.sectors_of(group) * SECTOR;
        let (read_bytes, written_bytes) = (bytes(Group::Read), bytes(Group::Write));
        Some(Gone { export: client.export, came, read_bytes, written_bytes })
    }

    /// Notes that a client's I/O has another class: the reactor and the place of its
    /// connection there, with the member that its I/O counts for. `None` if it is gone.
    pub(crate) fn reclassify(
        &self,
        number: u64,
        to: Classing,
    ) -> Result<Option<(usize, u32, Option<Member>)>, weir_queue::Error> {
        // A group that does not exist is an error whether or not such a client is there.
        to.group.map(|group| self.groups.join(group)).transpose()?;
        let mut clients = self.clients();
        let Some(Place { client, reactor, place, .. }) = clients.there.get_mut(&number) else {
            return Ok(None);
        };
        let member = to.group.map(|group| self.join(group, &client.export)).transpose()?;
        client.take(to);
        Ok(Some((*reactor, *place, member)))
    }
}
