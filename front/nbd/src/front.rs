//! The server as a front of the daemon.

mod addresses;
mod secure;

use std::io;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use weir_access::{Address, Inherited, TlsRule};
use weir_bio::Limits;
use weir_control::Clients;
use weir_control::config;
use weir_front::{Front, FrontKind, Grounds, Plan, Reloaded, Restated, Users, poll_rule};
use weir_queue::Device;

use self::addresses::Sockets;
use crate::export::{Export, Slice};
use crate::plan::{Nbd, OPTIONS};
use crate::server::{NAME, Server};

/// The NBD server as a front of the daemon.
pub const KIND: FrontKind = FrontKind {
    name: NAME,
    doc: "The NBD server: exports over TCP and UNIX sockets.",
    options: OPTIONS,
    fixed: "the addresses or bounds of [nbd]",
    room: env!("CARGO_CRATE_NAME"),
    plan: |config| Ok(Box::new(config.section::<Nbd>(NAME)?)),
};

impl Plan for Nbd {
    fn kind(&self) -> &'static FrontKind {
        &KIND
    }

    fn set(&mut self, option: &str, values: &[String]) -> Result<(), String> {
        Nbd::set(self, option, values)
    }

    fn start(&self, grounds: &Grounds<'_>) -> Result<Option<Arc<dyn Front>>, String> {
        Ok(Some(Arc::new(NbdFront::new(self.clone(), grounds)?)))
    }
}

/// A server with the addresses that its plan asks for.
struct NbdFront {
    plan: Nbd,
    server: Arc<Server>,
    exports: Mutex<Vec<weir_front::Export>>,
    default_folder: fn() -> Result<&'static Path, String>,
    /// Those that are open, with the ports that the system chose.
    addresses: Mutex<Vec<(Address, TlsRule)>>,
    /// Sockets of the daemon before.
    inherited: Mutex<Vec<Inherited>>,
}

impl NbdFront {
    /// A server without an address yet.
    ///
    /// # Errors
    /// Exports that cannot be served together.
    fn new(plan: Nbd, grounds: &Grounds<'_>) -> Result<NbdFront, String> {
        let Grounds { host, groups, default_folder, .. } = *grounds;
        let served = grounds.exports.iter().map(|export| served(export, &plan)).collect();
        let server = Server::with_groups(host, served, plan.settings(), Arc::clone(groups));
        let server = Arc::new(server.map_err(|error| error.to_string())?);
        let exports = Mutex::new(grounds.exports.to_vec());
        let (addresses, inherited) = (Mutex::default(), Mutex::default());
        Ok(NbdFront { plan, server, exports, default_folder, addresses, inherited })
    }

    fn exports(&self) -> MutexGuard<'_, Vec<weir_front::Export>> {
        self.exports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn addresses(&self) -> Vec<(Address, TlsRule)> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn served(export: &weir_front::Export, plan: &Nbd) -> Export {
    let stated = &export.stated;
    let mut served = Export::new(&stated.name, export.device.clone());
    served.read_only = stated.readonly;
    served.minimum_block = stated.minimum_block.or(plan.minimum_block).unwrap_or(1);
    served.ioprio = stated.ioprio();
    served.background = stated.background;
    served.group = export.group;
    served.listen = stated.listen.iter().map(|listen| listen.address.clone()).collect();
    served.allow = stated.allow.clone();
    served.polling = poll_rule(stated.polling());
    served.slice = Slice { offset: stated.offset, size: stated.size.map(NonZeroU64::get) };
    served
}

impl Front for NbdFront {
    fn kind(&self) -> &'static FrontKind {
        &KIND
    }

    fn clients(&self) -> Arc<dyn Clients> {
        Arc::clone(&self.server) as Arc<dyn Clients>
    }

    fn open(&self, passed: Vec<OwnedFd>) -> Result<(), String> {
        let exports = self.exports();
        let exports: Vec<_> = exports.iter().map(|export| &export.stated).collect();
        let mut inherited = self.inherited.lock().unwrap_or_else(PoisonError::into_inner);
        let sockets = Sockets { passed, inherited: std::mem::take(&mut *inherited) };
        let opened = addresses::open(&self.server, &self.plan, &exports, sockets, || {
            Ok((self.default_folder)()?.join("nbd.sock"))
        })?;
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner).extend(opened);
        Ok(())
    }

    fn sockets(&self) -> io::Result<Vec<Inherited>> {
        self.server.sockets()
    }

    fn inherit(&self, sockets: Vec<Inherited>) {
        self.inherited.lock().unwrap_or_else(PoisonError::into_inner).extend(sockets);
    }

    fn keep_sockets(&self) {
        self.server.keep_files();
    }

    fn reload(&self, now: &Restated<'_>) -> Reloaded {
        let mut exports = self.exports();
        let started = exports.iter().map(|export| &export.stated);
        let mut reloaded =
            Reloaded::of_fixed(&self.plan, now.plan).and_fixed_exports(started, now.exports);
        for export in exports.iter_mut().map(|export| &mut export.stated) {
            let Some(now) = now.exports.iter().find(|now| now.name == export.name) else {
                continue;
            };
            reloaded.changed.extend(polling_changed(export, now));
            if export.polling() != now.polling() {
                self.server.set_polling(&export.name, poll_rule(now.polling()));
                (export.poll, export.poll_share) = (now.poll, now.poll_share);
            }
        }
        reloaded
    }

    fn add_disk(&self, _: &Device, exports: &[weir_front::Export]) -> Result<(), String> {
        let open: Vec<Address> = self.addresses().into_iter().map(|(address, _)| address).collect();
        for export in exports {
            let mut listen = export.stated.listen.iter().map(|listen| &listen.address);
            if let Some(address) = listen.find(|address| !open.contains(address)) {
                let name = &export.stated.name;
                return Err(format!("export {name:?}: {address} is opened at the next start only"));
            }
        }
        let served: Vec<Export> = exports.iter().map(|export| served(export, &self.plan)).collect();
        self.server.add_exports(&served).map_err(|error| error.to_string())?;
        self.exports().extend_from_slice(exports);
        Ok(())
    }

    fn remove_disk(&self, disk: &Device) -> usize {
        self.exports().retain(|export| !export.device.is(disk));
        self.server.remove_exports_of(&disk.config().name)
    }

    fn adopt(&self, socket: OwnedFd, name: &str) -> Result<Box<dyn FnOnce() + Send>, String> {
        let security = secure::of_all(&self.plan)?;
        // Refused, it is closed, and then there is no client to wait for.
        self.server.adopt_secured(socket, name, security);
        let server = Arc::clone(&self.server);
        Ok(Box::new(move || {
            server.wait_until_empty(u64::MAX);
        }))
    }

    fn introduce(&self) -> String {
        let line = |(address, rule): (Address, TlsRule)| {
            let tls = match rule {
                TlsRule::Off => "",
                TlsRule::On => ", with TLS for those that ask for it",
                TlsRule::Require => ", TLS required",
            };
            format!("  {address}{tls}\n")
        };
        let lines: String = self.addresses().into_iter().map(line).collect();
        format!("listening on:\n{lines}")
    }

    fn places(&self) -> Vec<String> {
        self.addresses().into_iter().map(|(address, _)| address.to_string()).collect()
    }

    fn example(&self, disk: &Device) -> Option<String> {
        let plain = self.addresses().into_iter().find(|(_, rule)| *rule != TlsRule::Require);
        let uri = uri(&plain?.0);
        Some(format!(
            "  nbdinfo '{uri}'\n  qemu-img info '{uri}'\n  \
             fio --name=try --ioengine=nbd --uri='{uri}' {} --bs=4k --iodepth=32 \
             --runtime=10 --time_based\n",
            on_disk(&disk.limits())
        ))
    }

    /// The protocol tells them that the server goes.
    fn users(&self, disk: &str) -> Users {
        let clients = self.server.clients();
        let listed = match clients.iter().filter(|client| client.disk == disk).count() {
            0 => Vec::new(),
            1 => vec![String::from("1 NBD client")],
            many => vec![format!("{many} NBD clients")],
        };
        Users { listed, unwarned: false }
    }

    fn stop(&self, limit: Duration) -> Vec<String> {
        match self.server.stop(limit.as_nanos().min(u128::from(u64::MAX)) as u64) {
            0 => Vec::new(),
            cut => vec![format!("{cut} clients were cut off before they had read their answers")],
        }
    }
}

/// The parts of an export's rule of polling that are others now, a sentence each.
fn polling_changed(before: &config::Export, now: &config::Export) -> Vec<String> {
    let told = |key: &str, part: Option<String>| {
        let value = part.unwrap_or_else(|| String::from("that of [host]"));
        format!("{key} of export {:?} is {value}", now.name)
    };
    let mut lines = Vec::new();
    if now.poll != before.poll {
        lines.push(told("poll", now.poll.map(|poll| poll.to_string())));
    }
    if now.poll_share != before.poll_share {
        lines.push(told("poll_share", now.poll_share.map(|share| share.to_string())));
    }
    lines
}

/// The words of the fio line for a disk: what may be done on it, and on how much, for it takes no
/// size from a server.
fn on_disk(limits: &Limits) -> String {
    let rw = if limits.read_only { "randread" } else { "randrw" };
    let bytes = (limits.capacity * 512).min(256 << 20) / 4096 * 4096;
    let size = if bytes.is_multiple_of(1 << 20) {
        format!("{}m", bytes >> 20)
    } else {
        format!("{}k", bytes >> 10)
    };
    format!("--rw={rw} --size={size}")
}

fn uri(address: &Address) -> String {
    match address {
        Address::Unix(path) => format!("nbd+unix:///?socket={}", path.display()),
        Address::Tcp(address) => format!("nbd://{address}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_to_be_pasted_fits_the_disk() {
        let of = |bytes: u64, read_only| {
            on_disk(&Limits { capacity: bytes / 512, read_only, ..Limits::default() })
        };
        assert_eq!(of(1 << 30, false), "--rw=randrw --size=256m");
        assert_eq!(of(64 << 20, true), "--rw=randread --size=64m");
        assert_eq!(of((1 << 20) + 4096 + 512, false), "--rw=randrw --size=1028k");
    }
}
