//! The server: exports, addresses and the connections on all reactors.

use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use weir_access::{Address, Allow, Listen, Peer, SocketFile};
use weir_bio::{GroupId, IoPrio, SECTOR};
use weir_live::{Clock, Handle, Host};
use weir_proto_nbd::server as proto;
use weir_proto_nbd::wire::text;
use weir_queue::{Device, Groups, Member, QueueMode, Spread, Tally};

use crate::admission::Admission;
use crate::budget::Budget;
use crate::channel::Security;
use crate::export::{Export, size_of};
use crate::gate::{Gate, Scope};
use crate::listen::{ListenError, bind};
use crate::service::{NbdService, Visitor};
use crate::survey::Surveyor;

/// How a server treats clients.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Connections at one time; for one more a half-open or idle one may be closed, or it is.
    pub connections_max: usize,
    /// Connections of one peer: of a local user, or of an address.
    pub connections_per_peer: usize,
    /// A client that did something so short a time ago does not lose its place to another, ns.
    pub idle_least_ns: u64,
    /// Bytes that all clients together may hold, 64 MiB at least: requests under way and replies
    /// owed, beyond 256 KiB of each connection.
    pub memory: usize,
    /// A handshake may take so long, and so may a client to read the last replies, ns.
    pub handshake_timeout_ns: u64,
    /// The options that clients may negotiate.
    pub handshake: proto::Settings,
}

impl Default for Settings {
    /// 1,024 connections, 256 of one peer, a minute, 1 GiB, 10 s, everything the protocol machine
    /// grants.
    fn default() -> Settings {
        Settings {
            connections_max: 1024,
            connections_per_peer: 256,
            idle_least_ns: 60_000_000_000,
            memory: 1 << 30,
            handshake_timeout_ns: 10_000_000_000,
            handshake: proto::Settings::default(),
        }
    }
}

/// Exports that cannot be served together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExportError {
    /// There is none.
    None,
    /// Two have this name.
    Twice(String),
    /// This name is no string of the protocol; why.
    Name(String, String),
    /// This export's group does not exist.
    Group(String, GroupId),
    /// The host takes no service: why.
    Host(String),
}

impl fmt::Display for ExportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExportError::None => f.write_str("there is nothing to export"),
            ExportError::Twice(name) => write!(f, "two exports are named {name:?}"),
            ExportError::Group(name, group) => {
                write!(f, "export {name:?}: there is no group number {}", group.0)
            }
            ExportError::Name(name, why) => write!(f, "export name {name:?}: {why}"),
            ExportError::Host(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for ExportError {}

/// One export as connections use it.
pub(crate) struct Served {
    pub(crate) device: Device,
    pub(crate) group: GroupId,
    pub(crate) ioprio: IoPrio,
    pub(crate) surveyor: Surveyor,
    pub(crate) listen: Vec<Address>,
    pub(crate) allow: Allow,
}

/// The state that the parts of a server on different reactors share. None of it is touched per I/O.
pub(crate) struct Shared {
    pub(crate) exports: Vec<Served>,
    pub(crate) advertised: Arc<[proto::Export]>,
    pub(crate) settings: Settings,
    pub(crate) budget: Arc<Budget>,
    pub(crate) admission: Admission,
    handles: OnceLock<Vec<Handle<NbdService>>>,
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
    tally: Tally,
    device: Device,
}

impl Place {
    /// The client with its figures as they are now.
    fn seen(&self) -> Client {
        let config = self.device.config();
        // On the single path there is one queue for all, and a spread in turn uses every one.
        let feeds_one = config.mode == QueueMode::Mq && config.spread == Spread::Submitter;
        Client {
            ios: self.tally.ios(),
            bytes: self.tally.sectors() * SECTOR,
            hard_queue: feeds_one.then(|| self.tally.hard_queue(self.device.queues())),
            ..self.client.clone()
        }
    }
}

/// A client as a server knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// Its number: never used again while the server runs.
    pub number: u64,
    /// The name of its export.
    pub export: String,
    /// Where it comes from: host and port, the credentials of a local one, or what it was called
    /// when it was [adopted](Server::adopt).
    pub peer: String,
    /// The group its I/O counts in.
    pub group: GroupId,
    /// The priority of its I/O.
    pub ioprio: IoPrio,
    /// The disk behind the export.
    pub disk: String,
    /// I/Os that ended; a command that was cut counts as its parts.
    pub ios: u64,
    /// Bytes they moved.
    pub bytes: u64,
    /// The hard queue of its disk that it feeds; none if it feeds the one that all do, or each in
    /// turn.
    pub hard_queue: Option<u16>,
}

impl Shared {
    /// The exports as a client that comes now is told of them: a disk may have grown.
    pub(crate) fn advertised_now(&self) -> Arc<[proto::Export]> {
        let told = self.exports.iter().zip(self.advertised.iter());
        let sizes = told.map(|(served, told)| size_of(&served.device, told.block.minimum));
        if self.advertised.iter().map(|export| export.size).eq(sizes.clone()) {
            return Arc::clone(&self.advertised);
        }
        let grown =
            |(export, size): (&proto::Export, u64)| proto::Export { size, ..export.clone() };
        self.advertised.iter().zip(sizes).map(grown).collect()
    }

    fn clients(&self) -> MutexGuard<'_, Clients> {
        self.clients.lock().expect("the clients' lock")
    }

    /// Notes a client and gives it a number.
    pub(crate) fn add_client(
        &self,
        export: usize,
        (reactor, place): (usize, u32),
        peer: &str,
        tally: Tally,
    ) -> u64 {
        let mut clients = self.clients();
        let number = clients.next;
        clients.next += 1;
        let Served { group, ioprio, .. } = &self.exports[export];
        let client = Client {
            number,
            export: self.advertised[export].name.clone(),
            peer: String::from(peer),
            group: *group,
            ioprio: *ioprio,
            disk: self.exports[export].device.config().name.clone(),
            ios: 0,
            bytes: 0,
            hard_queue: None,
        };
        let device = self.exports[export].device.clone();
        clients.there.insert(number, Place { client, reactor, place, tally, device });
        number
    }

    /// A member of a group for who serves itself from this export.
    pub(crate) fn join(&self, group: GroupId, export: &str) -> Result<Member, weir_queue::Error> {
        let named = self.advertised.iter().position(|known| known.name == export);
        let device = named.map(|index| &self.exports[index].device);
        self.groups.join_on(group, device.map_or("", |device| &device.config().name))
    }

    /// A client has gone.
    pub(crate) fn forget_client(&self, number: u64) {
        self.clients().there.remove(&number);
    }

    pub(crate) fn handle(&self, reactor: usize) -> &Handle<NbdService> {
        &self.handles.get().expect("connections come after the handles")[reactor]
    }

    pub(crate) fn reactors(&self) -> usize {
        self.handles().len()
    }

    fn handles(&self) -> &[Handle<NbdService>] {
        self.handles.get().map_or(&[], Vec::as_slice)
    }
}

/// An NBD server on the reactors of a host.
///
/// Dropping it closes its addresses and its connections without waiting for clients;
/// [`stop`](Server::stop) is the orderly way.
pub struct Server {
    shared: Arc<Shared>,
    paths: Mutex<Vec<SocketFile>>,
}

impl Server {
    /// A server without an address yet. The first export is also the one with the empty name. The
    /// devices have to be [adopted](Host::adopt) by the host.
    ///
    /// # Errors
    /// No export, two of one name, a name the protocol does not allow, or a host that has ended.
    pub fn new(
        host: &Host,
        exports: Vec<Export>,
        settings: Settings,
    ) -> Result<Server, ExportError> {
        Server::with_groups(host, exports, settings, Arc::default())
    }

    /// As [`new`](Server::new), with the groups that exports and clients may be in.
    ///
    /// # Errors
    /// As [`new`](Server::new), and a group that is not among them.
    pub fn with_groups(
        host: &Host,
        exports: Vec<Export>,
        settings: Settings,
        groups: Arc<Groups>,
    ) -> Result<Server, ExportError> {
        check(&exports)?;
        for export in &exports {
            if groups.join(export.group).is_err() {
                return Err(ExportError::Group(export.name.clone(), export.group));
            }
            export.device.attach_groups(&groups);
        }
        for export in exports.iter().filter(|export| !export.device.config().barriers) {
            let name = &export.name;
            tracing::warn!(export = %name, "not durable: FLUSH and FUA are not offered");
        }
        let served = |export: &Export| Served {
            device: export.device.clone(),
            group: export.group,
            ioprio: export.ioprio,
            surveyor: Surveyor::new(export.device.clone()),
            listen: export.listen.clone(),
            allow: export.allow.clone(),
        };
        let shared = Arc::new(Shared {
            exports: exports.iter().map(served).collect(),
            advertised: exports.iter().map(Export::advertised).collect(),
            settings,
            budget: Budget::new(settings.memory, host.reactors()),
            admission: Admission::new(host.reactors()),
            handles: OnceLock::new(),
            groups,
            clients: Mutex::default(),
        });
        let handles = (0..host.reactors()).map(|index| {
            let shared = Arc::clone(&shared);
            host.install(index, move |_| NbdService::new(shared, index))
        });
        let handles = handles.collect::<Result<_, _>>();
        let handles: Vec<Handle<NbdService>> =
            handles.map_err(|error: weir_queue::Error| ExportError::Host(error.to_string()))?;
        let eased = handles.clone();
        shared.budget.on_ease(move |reactor| {
            eased[reactor].post(|service: &mut NbdService, turn| service.ease(turn));
        });
        assert!(shared.handles.set(handles).is_ok(), "the handles are set once");
        Ok(Server { shared, paths: Mutex::default() })
    }

    /// Listens on an address and returns it with the port the system chose, if it was to.
    ///
    /// # Errors
    /// The address is in use, cannot be bound, or is reached by other hosts and may not be. A
    /// socket file at which no process listens is replaced.
    pub fn listen(&self, listen: &Listen, scope: Scope) -> Result<Address, ListenError> {
        self.listen_secured(listen, scope, Security::default())
    }

    /// As [`listen`](Server::listen), with what is done about TLS there.
    ///
    /// # Errors
    /// As [`listen`](Server::listen).
    pub fn listen_secured(
        &self,
        listen: &Listen,
        scope: Scope,
        security: Security,
    ) -> Result<Address, ListenError> {
        let bound = bind(listen)?;
        self.paths.lock().expect("the paths' lock").extend(bound.path);
        self.listen_on(bound.fd, listen, scope, security);
        Ok(bound.address)
    }

    /// Listens on a socket that is bound and listening already, as a service supervisor passes
    /// them; of `listen` the address by which exports name it and the list of clients count. It is
    /// made non-blocking.
    pub fn listen_on(&self, fd: OwnedFd, listen: &Listen, scope: Scope, security: Security) {
        if let Err(error) = rustix::io::ioctl_fionbio(&fd, true) {
            tracing::error!(%error, "a listening socket cannot be made non-blocking");
        }
        let (address, allow) = (Some(listen.address.clone()), listen.allow.clone());
        let gate = Arc::new(Gate { address, allow, scope, security });
        self.shared.handle(0).post(move |service: &mut NbdService, turn| {
            service.listen(turn, fd, gate);
        });
    }

    /// Serves a socket that is connected already, with the exports that name no address; false,
    /// and it is closed, when there are too many connections.
    pub fn adopt(&self, fd: OwnedFd, name: impl Into<String>) -> bool {
        self.adopt_secured(fd, name, Security::default())
    }

    /// As [`adopt`](Server::adopt), with what is done about TLS on it.
    pub fn adopt_secured(&self, fd: OwnedFd, name: impl Into<String>, security: Security) -> bool {
        let (allow, scope) = (Allow::default(), Scope::All);
        let gate = Arc::new(Gate { address: None, allow, scope, security });
        let visitor = Visitor { peer: Peer::of(&fd), name: name.into(), fd, gate };
        let Ok(ticket) = self.shared.admit(&visitor.peer) else { return false };
        self.shared.handle(ticket.reactor).post(move |service: &mut NbdService, turn| {
            service.welcome(turn, visitor, ticket);
        });
        true
    }

    /// Connections there are, those in the handshake included.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.admission.count()
    }

    /// The bound on what all clients together may hold, and what they hold now, bytes; what each
    /// connection may hold without asking is not among it.
    #[must_use]
    pub fn memory(&self) -> (usize, usize) {
        (self.shared.budget.bound(), self.shared.budget.held())
    }

    /// The groups that exports and clients may be in.
    #[must_use]
    pub fn groups(&self) -> &Arc<Groups> {
        &self.shared.groups
    }

    /// The names of its exports, the default one first.
    #[must_use]
    pub fn exports(&self) -> Vec<String> {
        self.shared.advertised.iter().map(|export| export.name.clone()).collect()
    }

    /// The clients that are served now.
    #[must_use]
    pub fn clients(&self) -> Vec<Client> {
        self.shared.clients().there.values().map(Place::seen).collect()
    }

    /// Gives a client another group or priority; its I/O from then on has them. False if it is
    /// gone.
    ///
    /// # Errors
    /// No such group.
    pub fn reclassify(
        &self,
        number: u64,
        group: Option<GroupId>,
        ioprio: Option<IoPrio>,
    ) -> Result<bool, weir_queue::Error> {
        // A group that does not exist is an error whether or not such a client is there.
        group.map(|group| self.shared.groups.join(group)).transpose()?;
        let mut clients = self.shared.clients();
        let Some(Place { client, reactor, place, .. }) = clients.there.get_mut(&number) else {
            return Ok(false);
        };
        let member = group.map(|group| self.shared.join(group, &client.export)).transpose()?;
        client.group = group.unwrap_or(client.group);
        client.ioprio = ioprio.unwrap_or(client.ioprio);
        let place = *place;
        self.shared.handle(*reactor).post(move |service: &mut NbdService, turn| {
            service.reclassify(turn, place, number, member, ioprio);
        });
        Ok(true)
    }

    /// Waits until there is no connection, `limit_ns` at most; whether it came to that.
    pub fn wait_until_empty(&self, limit_ns: u64) -> bool {
        self.shared.admission.wait_until_empty(limit_ns)
    }

    /// Stops: no address is listened on, handshakes are ended, what was received is finished and
    /// answered, what comes after it is refused with ESHUTDOWN. Clients that have not read their
    /// answers after `limit_ns` are cut off; what they wrote is finished all the same. Returns how
    /// many that were.
    pub fn stop(&self, limit_ns: u64) -> usize {
        let until = Clock.now() + limit_ns;
        self.paths.lock().expect("the paths' lock").clear();
        self.shared.admission.close();
        for handle in self.shared.handles() {
            handle.post(|service: &mut NbdService, turn| service.shut_down(turn));
        }
        if self.wait_until_empty(until.since(Clock.now())) {
            return 0;
        }
        let left = self.connections();
        for handle in self.shared.handles() {
            handle.post(|service: &mut NbdService, turn| service.cut(turn));
        }
        left
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.handles().iter().for_each(Handle::remove);
    }
}

fn check(exports: &[Export]) -> Result<(), ExportError> {
    if exports.is_empty() {
        return Err(ExportError::None);
    }
    for (index, export) in exports.iter().enumerate() {
        let name = &export.name;
        if let Err(why) = text(name.as_bytes()) {
            return Err(ExportError::Name(name.clone(), why.to_string()));
        }
        if exports[..index].iter().any(|other| other.name == *name) {
            return Err(ExportError::Twice(name.clone()));
        }
    }
    Ok(())
}
