//! The server: exports, addresses and the connections on all reactors.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_access::{Address, Allow, Inherited, Listen, Peer, SocketFile};
use weir_bio::GroupId;
use weir_control::config::ExportPolling;
use weir_control::{Classing, Client, Clients, Failure, Memory};
use weir_front::stated_rule;
use weir_live::{Clock, Handle, Host, PollRule};
use weir_proto_nbd::wire::text;
use weir_queue::{ClientTimes, Groups};

use crate::channel::Security;
use crate::export::{Export, Served};
use crate::gate::{Gate, Scope, Visitor};
use crate::listen::{Held, ListenError, bind};
use crate::service::NbdService;
use crate::settings::Settings;
use crate::shared::Shared;

/// The name of this kind of front.
pub(crate) const NAME: &str = "nbd";

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
    /// This export is no part of its device; why.
    Slice(String, String),
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
            ExportError::Slice(name, why) => write!(f, "export {name:?}: {why}"),
            ExportError::Name(name, why) => write!(f, "export name {name:?}: {why}"),
            ExportError::Host(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for ExportError {}

/// An NBD server on the reactors of a host.
///
/// Dropping it closes its addresses and its connections without waiting for clients;
/// [`stop`](Server::stop) is the orderly way.
pub struct Server {
    shared: Arc<Shared>,
    /// By reactor.
    handles: Vec<Handle<NbdService>>,
    held: Mutex<Vec<Held>>,
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
        if exports.is_empty() {
            return Err(ExportError::None);
        }
        prepare(&exports, &[], &groups)?;
        let shared = Arc::new(Shared::new(&exports, settings, host.reactors(), groups));
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
        let told = handles.clone();
        shared.admission.on_errand(move |reactor, errand| {
            told[reactor].post(move |service: &mut NbdService, turn| service.run(turn, errand));
        });
        Ok(Server { shared, handles, held: Mutex::default() })
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
        let fd = Arc::new(bound.fd);
        self.held().push(Held::new(&fd, &listen.address, bound.path));
        self.watch(fd, listen, scope, security);
        Ok(bound.address)
    }

    /// Listens on a socket of the daemon before, whose `file` it is.
    pub(crate) fn listen_on_inherited(
        &self,
        fd: OwnedFd,
        file: Option<SocketFile>,
        listen: &Listen,
        scope: Scope,
        security: Security,
    ) {
        let fd = Arc::new(fd);
        self.held().push(Held::new(&fd, &listen.address, file));
        self.watch(fd, listen, scope, security);
    }

    /// The sockets that are listened on, for another daemon.
    pub(crate) fn sockets(&self) -> io::Result<Vec<Inherited>> {
        self.held().iter().map(Held::inherited).collect()
    }

    /// Has a stop leave the files of the sockets.
    pub(crate) fn keep_files(&self) {
        self.held().drain(..).for_each(Held::keep);
    }

    fn held(&self) -> MutexGuard<'_, Vec<Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Listens on a socket that is bound and listening already, as a service supervisor passes
    /// them; of `listen` the address by which exports name it and the list of clients count. It is
    /// made non-blocking.
    pub fn listen_on(&self, fd: OwnedFd, listen: &Listen, scope: Scope, security: Security) {
        let fd = Arc::new(fd);
        self.held().push(Held::passed(&fd, &listen.address));
        self.watch(fd, listen, scope, security);
    }

    fn watch(&self, fd: Arc<OwnedFd>, listen: &Listen, scope: Scope, security: Security) {
        if let Err(error) = rustix::io::ioctl_fionbio(&fd, true) {
            tracing::error!(%error, "a listening socket cannot be made non-blocking");
        }
        let (address, allow) = (Some(listen.address.clone()), listen.allow.clone());
        let gate = Arc::new(Gate { address, allow, scope, security });
        self.handles[0].post(move |service: &mut NbdService, turn| {
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
        let admission = &self.shared.admission;
        let Ok(ticket) = admission.admit(&visitor.peer) else { return false };
        admission.send(visitor, ticket);
        true
    }

    /// Connections there are, those in the handshake included.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.admission.count()
    }

    /// The groups that exports and clients may be in.
    #[must_use]
    pub fn groups(&self) -> &Arc<Groups> {
        &self.shared.groups
    }

    /// Serves further exports, which clients that come from now on find.
    ///
    /// # Errors
    /// As [`with_groups`](Server::with_groups); then none of them is served.
    pub fn add_exports(&self, exports: &[Export]) -> Result<(), ExportError> {
        self.shared.change_exports(|known| {
            let names: Vec<&str> = known.served.iter().map(|known| known.name.as_str()).collect();
            prepare(exports, &names, &self.shared.groups)?;
            Ok((known.with(exports), ()))
        })
    }

    /// Serves the exports of a disk no more, and ends their clients; I/O that was accepted is
    /// finished. Returns how many clients that were.
    pub fn remove_exports_of(&self, disk: &str) -> usize {
        let is_of = |export: &Served| export.device.config().name == disk;
        let removed = self.shared.change_exports(|known| {
            Ok::<_, std::convert::Infallible>((known.only(|export| !is_of(export)), ()))
        });
        let Ok(()) = removed;
        let clients = self.clients();
        let ended = clients.iter().filter(|client| client.disk == disk);
        ended.filter(|client| self.dismiss(client.number)).count()
    }

    /// Gives an export another rule of polling, which its clients ask for from now on. False if it
    /// has that rule, or there is no such export.
    pub fn set_polling(&self, export: &str, rule: PollRule) -> bool {
        let exports = self.shared.exports();
        let known = exports.served.iter().find(|known| known.name == export);
        let Some(export) = known.filter(|known| known.set_polling(rule)) else { return false };
        // A client that comes before has read the new rule or is found there.
        for handle in &self.handles {
            let export = Arc::clone(export);
            handle.post(move |service: &mut NbdService, turn| service.vote_anew(turn, &export));
        }
        true
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
        self.held().clear();
        self.shared.admission.close();
        for handle in &self.handles {
            handle.post(|service: &mut NbdService, turn| service.shut_down(turn));
        }
        if self.wait_until_empty(until.since(Clock.now())) {
            return 0;
        }
        let left = self.connections();
        for handle in &self.handles {
            handle.post(|service: &mut NbdService, turn| service.cut(turn));
        }
        left
    }
}

impl Clients for Server {
    fn kind(&self) -> &'static str {
        NAME
    }

    /// The default one first.
    fn exports(&self) -> Vec<String> {
        self.shared.exports().served.iter().map(|export| export.name.clone()).collect()
    }

    fn polling(&self) -> Vec<(String, ExportPolling)> {
        let exports = self.shared.exports();
        let told = exports.served.iter();
        let told = told.map(|export| (export.name.clone(), stated_rule(export.polling())));
        told.filter(|(_, rule)| !rule.is_default()).collect()
    }

    fn clients(&self) -> Vec<Client> {
        self.shared.seen()
    }

    fn times(&self, number: u64) -> Option<ClientTimes> {
        self.shared.times(number)
    }

    /// What each connection may hold without asking is not among it.
    fn memory(&self) -> Option<Memory> {
        let budget = &self.shared.budget;
        Some(Memory { bound: budget.bound() as u64, held: budget.held() as u64 })
    }

    fn reclassify(&self, number: u64, to: Classing) -> Result<bool, Failure> {
        let known = self.shared.reclassify(number, to)?;
        let Some((reactor, place, member)) = known else { return Ok(false) };
        self.handles[reactor].post(move |service: &mut NbdService, turn| {
            service.reclassify(turn, place, number, member, to);
        });
        Ok(true)
    }

    fn dismiss(&self, number: u64) -> bool {
        let Some((reactor, place)) = self.shared.place_of(number) else { return false };
        self.handles[reactor].post(move |service: &mut NbdService, turn| {
            service.dismiss(turn, place, number);
        });
        true
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.handles.iter().for_each(Handle::remove);
    }
}

/// Checks exports that are to be served beside others of these names, and gives their devices the
/// groups.
fn prepare(exports: &[Export], known: &[&str], groups: &Arc<Groups>) -> Result<(), ExportError> {
    for (index, export) in exports.iter().enumerate() {
        let name = &export.name;
        if let Err(why) = text(name.as_bytes()) {
            return Err(ExportError::Name(name.clone(), why.to_string()));
        }
        let is_same = |other: &Export| other.name == *name;
        if exports[..index].iter().any(is_same) || known.contains(&name.as_str()) {
            return Err(ExportError::Twice(name.clone()));
        }
        if let Err(why) = export.slice.check(&export.device.limits(), export.minimum_block) {
            return Err(ExportError::Slice(name.clone(), why));
        }
        if groups.join(export.group).is_err() {
            return Err(ExportError::Group(name.clone(), export.group));
        }
    }
    for export in exports {
        export.device.attach_groups(groups);
        if export.device.is_durability_disabled() {
            let name = &export.name;
            tracing::warn!(export = %name, "not durable: FLUSH and FUA are not offered");
        }
    }
    Ok(())
}
