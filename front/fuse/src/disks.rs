//! `dev/<disk>`: the disks themselves as files, read and written through the block layer.
//!
//! Past the page cache, so that what other clients write is seen at once and many writes to one
//! file are under way together. Reads and writes are of any bytes, as of any file: the kernel cuts
//! a large write after 256 pages of memory, and what begins between two pages is cut within a block
//! of the disk. A write that begins or ends there is a read-modify-write of that block, atomic
//! towards all other I/O of the disk, so that two parts of one write do not undo each other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use fuser::Errno;
use weir_access::Peer;
use weir_bio::{Bio, Buf, Flags, GroupId, IoPrio, SECTOR};
use weir_control::config::{self, ExportPolling};
use weir_control::{Classing, Client, Clients, Failure, Memory, priority_of};
use weir_front::Export;
use weir_live::Host;
use weir_queue::{ClientTimes, Device, Groups, Kept};

use crate::budget::{Budget, Need, Share};
use crate::polling::{Rules, shown};
use crate::port::{Caller, Kind, Opener, Outcome, Reply, Short};

/// The name of this kind of front.
pub(crate) const NAME: &str = "fuse";

/// A disk that is open as a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OpenDisk {
    /// The disk's name.
    pub(crate) disk: String,
    /// The process that opened it, or its thread. It may have ended: a loop device keeps the file
    /// open.
    pub(crate) process: u32,
}

/// The process that opens a disk, or its thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Process {
    pub(crate) user: u32,
    pub(crate) group: u32,
    pub(crate) number: u32,
}

/// The disks that can be opened as files, and their open files.
pub(crate) struct Disks {
    host: Arc<Host>,
    devices: RwLock<Vec<Device>>,
    /// The disks whose files take background writes at first: an export of theirs does.
    pub(crate) background: Mutex<BTreeSet<String>>,
    /// Held while files are given theirs. No reactor takes the lock, whose holder waits for one.
    pub(crate) rules: Mutex<Rules>,
    /// The groups that an open file may be in.
    groups: Arc<Groups>,
    openers: Mutex<Openers>,
    processes: Mutex<Processes>,
    placement: Mutex<Placement>,
    budget: Arc<Budget>,
}

/// Moves the calls to another reactor.
type Migration = Box<dyn FnMut(&Host, usize) + Send>;

/// The reactor that takes the calls for disks. No reactor takes the lock, whose holder waits for
/// one.
struct Placement {
    reactor: usize,
    /// `None` where a thread of the library takes them.
    migration: Option<Migration>,
}

#[derive(Default)]
struct Openers {
    /// No disk may be opened any more.
    closed: bool,
    /// The number of the last open file, of a disk or not.
    number: u64,
    /// By handle.
    table: BTreeMap<u64, Open>,
}

/// An open file, as a client.
struct Open {
    device: Device,
    /// `None` once the client was ended: the file stays open and can no longer be used.
    opener: Option<Arc<Opener>>,
    client: Client,
    process: u32,
    opened: Instant,
    /// The disk's number in the budget.
    account: u64,
}

/// The way to the disk of an open file.
struct Way {
    device: Device,
    opener: Arc<Opener>,
    account: u64,
}

impl Open {
    /// Says that the file is closed, or can no longer be used.
    fn tell(&self, why: &str) {
        let Some(opener) = &self.opener else { return };
        let client = self.client.seen(opener.tally(), &self.device);
        let (peer, disk, bytes) = (&client.peer, &client.disk, client.bytes);
        let lasted_s = self.opened.elapsed().as_secs();
        let client = client.number;
        tracing::info!(%peer, %disk, client, lasted_s, bytes, why, "disk is a file no more");
    }
}

/// How often the priority of one process is asked for.
const ASK: Duration = Duration::from_millis(100);

/// The priorities of the processes and threads that have used disks a moment ago.
#[derive(Default)]
struct Processes {
    /// Each with when it is to be asked for again.
    known: BTreeMap<u32, (IoPrio, Instant)>,
    /// When those that have not been asked for since are to be forgotten.
    clean_at: Option<Instant>,
}

impl Processes {
    fn priority(&mut self, process: u32, now: Instant, ask: impl Fn(u32) -> IoPrio) -> IoPrio {
        // A process that is not seen from here.
        if process == 0 {
            return IoPrio::NONE;
        }
        if let Some((priority, until)) = self.known.get(&process)
            && now < *until
        {
            return *priority;
        }
        if self.clean_at.is_none_or(|at| at <= now) {
            self.known.retain(|_, (_, until)| now < *until);
            self.clean_at = Some(now + ASK);
        }
        let priority = ask(process);
        self.known.insert(process, (priority, now + ASK));
        priority
    }
}

impl Disks {
    /// The calls for them may hold `memory` bytes.
    pub(crate) fn new(
        host: Arc<Host>,
        devices: Vec<Device>,
        groups: Arc<Groups>,
        memory: usize,
    ) -> Disks {
        let (devices, background) = (RwLock::new(devices), Mutex::default());
        let (openers, processes) = (Mutex::default(), Mutex::default());
        // Clients of other fronts begin with the first.
        let placement = Placement { reactor: host.reactors() - 1, migration: None };
        let placement = Mutex::new(placement);
        let budget = Budget::new(memory);
        let rules = Mutex::default();
        Disks { host, devices, background, rules, groups, openers, processes, placement, budget }
    }

    fn openers(&self) -> MutexGuard<'_, Openers> {
        self.openers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses to open disks and to use open ones from now on: the reactors are about to end.
    pub(crate) fn close(&self) {
        self.openers().closed = true;
        self.budget.withdraw(|_| true);
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.devices().iter().map(|device| device.config().name.clone()).collect()
    }

    fn devices(&self) -> Vec<Device> {
        self.devices.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn change_devices(&self, change: impl FnOnce(&mut Vec<Device>)) {
        change(&mut self.devices.write().unwrap_or_else(PoisonError::into_inner));
    }

    fn background(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.background.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn rules(&self) -> MutexGuard<'_, Rules> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A disk that is new on the host, with its exports.
    pub(crate) fn add(&self, disk: &Device, exports: &[Export]) {
        if exports.iter().any(|export| export.stated.background) {
            self.background().insert(disk.config().name.clone());
        }
        self.rules().add(exports);
        self.change_devices(|devices| devices.push(disk.clone()));
    }

    /// A disk that goes: its open files can no longer be used. Returns how many those are.
    pub(crate) fn remove(&self, disk: &Device) -> usize {
        self.change_devices(|devices| devices.retain(|known| !known.is(disk)));
        self.background().remove(&disk.config().name);
        self.rules().remove(&disk.config().name);
        let mut openers = self.openers();
        let open = openers.table.iter_mut().filter(|(_, open)| open.device.is(disk));
        let end = |(number, open): (&u64, &mut Open)| {
            open.tell("closed by us: the disk goes");
            open.opener.take().map(|opener| (*number, opener))
        };
        let gone: BTreeMap<_, _> = open.filter_map(end).collect();
        drop(openers);
        if !gone.is_empty() {
            self.budget.withdraw(|handle| gone.contains_key(&handle));
        }
        gone.len()
    }

    /// The size in bytes of the disk of this name, and whether it may be written.
    pub(crate) fn describe(&self, name: &str) -> Option<(u64, bool)> {
        let limits = self.named(name)?.limits();
        Some((limits.size().bytes(), !limits.read_only))
    }

    fn named(&self, name: &str) -> Option<Device> {
        self.devices().into_iter().find(|device| device.config().name == name)
    }

    /// The disks that are open, once for each time.
    pub(crate) fn open_disks(&self) -> Vec<OpenDisk> {
        let openers = self.openers();
        let open = openers
            .table
            .values()
            .map(|open| OpenDisk { disk: open.client.disk.clone(), process: open.process });
        open.collect()
    }

    /// A number for an open file, which no other has: not in the other file system either.
    pub(crate) fn number(&self) -> u64 {
        let mut openers = self.openers();
        openers.number += 1;
        openers.number
    }

    /// Opens a disk under the number `handle`, for the process that asks.
    pub(crate) fn open(
        &self,
        name: &str,
        handle: u64,
        process: Process,
        writes: bool,
    ) -> Result<(), Errno> {
        let device = self.named(name).ok_or(Errno::ENOENT)?;
        if writes && device.limits().read_only {
            return Err(Errno::EROFS);
        }
        if self.openers().closed {
            return Err(Errno::ENODEV);
        }
        // The reactor that is asked may be about to look up another open file.
        let reactor = self.reactor_for(&device);
        let opener = Opener::open(&self.host, reactor, &device).map_err(|error| {
            tracing::warn!("disk {name} cannot be opened once more: {error}");
            Errno::EBUSY
        })?;
        let Process { user: uid, group: gid, number: process } = process;
        let background = self.background().contains(name);
        if background {
            opener.reclassify(GroupId(0), IoPrio::NONE, true);
        }
        // A number that the kernel may give to a process fits.
        let pid = process as i32;
        let client = Client {
            number: handle,
            export: String::from(name),
            peer: Peer::Process { uid, gid, pid }.to_string(),
            group: GroupId(0),
            ioprio: IoPrio::NONE,
            process_priority: IoPrio::NONE,
            background,
            polling: ExportPolling::default(),
            disk: String::from(name),
            ios: 0,
            bytes: 0,
            in_flight: 0,
            hard_queue: None,
        };
        let mut openers = self.openers();
        // Meanwhile the disk may have gone, or all of them.
        if openers.closed || !self.devices().iter().any(|known| known.is(&device)) {
            return Err(Errno::ENODEV);
        }
        let peer = &client.peer;
        tracing::info!(%peer, disk = %name, client = handle, writes, "disk opened as a file");
        let (opener, opened) = (Some(Arc::new(opener)), Instant::now());
        let same = openers.table.values().find(|open| open.device.is(&device));
        let account = same.map_or(handle, |open| open.account);
        openers.table.insert(handle, Open { device, opener, client, process, opened, account });
        drop(openers);
        self.vote(&self.rules(), |open| open.client.number == handle);
        Ok(())
    }

    /// Takes the rules of polling on that exports have now.
    pub(crate) fn restate(&self, exports: &[config::Export]) {
        let mut rules = self.rules();
        let changed = rules.restate(exports);
        if !changed.is_empty() {
            self.vote(&rules, |open| changed.contains(&open.client.disk));
        }
    }

    /// Has the open files that are meant ask for these rules.
    fn vote(&self, rules: &Rules, is_meant: impl Fn(&Open) -> bool) {
        let mut voters = Vec::new();
        for open in self.openers().table.values_mut().filter(|open| is_meant(open)) {
            let rules = rules.of_disk(&open.client.disk);
            open.client.polling = shown(&rules);
            voters.extend(open.opener.clone().map(|opener| (opener, rules)));
        }
        let placement = self.placement();
        let calls = placement.migration.is_some().then_some(placement.reactor);
        drop(placement);
        for (opener, rules) in voters {
            opener.vote(&self.host, calls, rules);
        }
    }

    pub(crate) fn host(&self) -> &Host {
        &self.host
    }

    /// The reactor that takes the calls for disks.
    pub(crate) fn reactor(&self) -> usize {
        self.placement().reactor
    }

    /// Sets what moves the calls to another reactor.
    pub(crate) fn on_migration(&self, migration: Migration) {
        self.placement().migration = Some(migration);
    }

    fn placement(&self) -> MutexGuard<'_, Placement> {
        self.placement.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The reactor whose submitter a disk is to be used through. It takes the calls as well, if no
    /// other disk is open: then none is woken for another.
    fn reactor_for(&self, device: &Device) -> usize {
        let mut placement = self.placement();
        let home = |lane| self.host.home_of(device, lane);
        if (0..usize::from(device.queues())).any(|lane| home(lane) == placement.reactor) {
            return placement.reactor;
        }
        let Placement { reactor, migration } = &mut *placement;
        if let Some(migrate) = migration
            && self.openers().table.is_empty()
        {
            *reactor = home(0);
            migrate(&self.host, *reactor);
        }
        home(0)
    }

    /// Whether `handle` is an open disk.
    pub(crate) fn has(&self, handle: u64) -> bool {
        self.openers().table.contains_key(&handle)
    }

    pub(crate) fn release(&self, handle: u64) {
        let mut openers = self.openers();
        let gone = openers.table.remove(&handle);
        drop(openers);
        gone.iter().for_each(|open| open.tell("closed"));
        drop(gone);
    }

    fn way(&self, handle: u64) -> Result<Way, Errno> {
        let openers = self.openers();
        // A program that still has a disk open when the daemon stops must not keep the disk from
        // coming to rest.
        if openers.closed {
            return Err(Errno::ENODEV);
        }
        let open = openers.table.get(&handle).ok_or(Errno::EBADF)?;
        let opener = open.opener.clone().ok_or(Errno::ENODEV)?;
        Ok(Way { device: open.device.clone(), opener, account: open.account })
    }

    /// The priority of the process that asks for this, or of its thread.
    fn priority(&self, process: u32) -> IoPrio {
        let mut processes = self.processes.lock().unwrap_or_else(PoisonError::into_inner);
        processes.priority(process, Instant::now(), priority_of)
    }

    /// Reads, for a process. A read for which there is no memory waits until there is.
    pub(crate) fn read(
        &self,
        process: u32,
        handle: u64,
        (offset, len): (u64, u32),
        caller: Caller,
    ) {
        let Way { device, opener, account } = match self.way(handle) {
            Ok(found) => found,
            Err(error) => return caller.fail(error),
        };
        let limits = device.limits();
        let end = limits.size().bytes();
        let len = u64::from(len).min(end.saturating_sub(offset));
        if len == 0 {
            return caller.end(Outcome::Read(&[]));
        }
        let block = u64::from(limits.logical_block_size);
        let start = offset - offset % block;
        let whole = ((offset + len).next_multiple_of(block) - start) as usize;
        let (skip, priority) = ((offset - start) as usize, self.priority(process));
        let enter = move |opener: &Opener, caller, share| {
            let bio = Bio::read(start / SECTOR, Buf::zeroed(whole));
            let kind = Kind::Read { skip, len: len as usize };
            let reply = Reply { caller, kind, share: Some(share) };
            opener.enter(bio, Kept::default(), priority, reply);
        };
        let need = Need { disk: account, handle, data: whole, writes: false };
        if let Some(share) = self.budget.take(need) {
            return enter(&opener, caller, share);
        }
        // The client may be ended meanwhile, and goes only when its opener is held no more.
        let opener = Arc::downgrade(&opener);
        self.wait(need, move |share| match opener.upgrade().zip(share) {
            Some((opener, share)) => enter(&opener, caller, share),
            None => caller.fail(Errno::ENODEV),
        });
    }

    /// Calls `go`, once, with memory for a call when there is as much, and with none when its file
    /// can be used no more.
    pub(crate) fn wait(&self, need: Need, go: impl FnOnce(Option<Share>) + Send + 'static) {
        self.budget.wait(need, go);
        // It may have gone before the call stood in line.
        if self.way(need.handle).is_err() {
            self.budget.withdraw(|handle| handle == need.handle);
        }
    }

    /// Writes bytes at an offset; `durable` if they have to be so when it has ended. `share` is
    /// memory that it has waited for.
    pub(crate) fn write(
        &self,
        process: u32,
        handle: u64,
        (offset, bytes): (u64, &[u8]),
        durable: bool,
        (caller, share): (Caller, Option<Share>),
    ) -> Result<(), Short> {
        let Way { device, opener, account } = match self.way(handle) {
            Ok(found) => found,
            Err(error) => {
                caller.fail(error);
                return Ok(());
            }
        };
        let limits = device.limits();
        let block = u64::from(limits.logical_block_size);
        let end = limits.size().bytes();
        if offset >= end {
            caller.fail(Errno::ENOSPC);
            return Ok(());
        }
        let len = (bytes.len() as u64).min(end - offset);
        if len == 0 {
            caller.end(Outcome::Written(0));
            return Ok(());
        }
        let lead = offset % block;
        let whole = (lead + len).next_multiple_of(block);
        let need = Need { disk: account, handle, data: whole as usize, writes: true };
        let had = share.filter(|share| share.is_enough(need.data));
        let Some(share) = had.or_else(|| self.budget.take(need)) else {
            return Err(Short { caller, need });
        };
        // Also behind the end of a disk that ends within a block: it may grow meanwhile.
        let kept = Kept { lead: lead as u32, trail: (whole - lead - len) as u32 };
        let bytes = &bytes[..len as usize];
        let buf = Buf::filled(whole as usize, |buf| {
            buf[lead as usize..][..bytes.len()].copy_from_slice(bytes);
        });
        let flags = if durable { Flags::FUA } else { Flags::NONE };
        let bio = Bio::write((offset - lead) / SECTOR, buf).with(flags);
        let reply = Reply { caller, kind: Kind::Write { len: len as u32 }, share: Some(share) };
        opener.enter(bio, kept, self.priority(process), reply);
        Ok(())
    }

    /// Makes everything durable that was answered before.
    pub(crate) fn flush(&self, process: u32, handle: u64, caller: Caller) {
        match self.way(handle) {
            Ok(Way { opener, .. }) => {
                let reply = Reply { caller, kind: Kind::Flush, share: None };
                opener.enter(Bio::flush(), Kept::default(), self.priority(process), reply);
            }
            Err(error) => caller.fail(error),
        }
    }
}

impl Clients for Disks {
    fn kind(&self) -> &'static str {
        NAME
    }

    fn exports(&self) -> Vec<String> {
        self.names()
    }

    fn clients(&self) -> Vec<Client> {
        let openers = self.openers();
        let seen = |open: &Open| {
            let opener = open.opener.as_ref()?;
            let seen = open.client.seen(opener.tally(), &open.device);
            Some(Client { process_priority: opener.priority.get(), ..seen })
        };
        openers.table.values().filter_map(seen).collect()
    }

    fn times(&self, number: u64) -> Option<ClientTimes> {
        let openers = self.openers();
        Some(openers.table.get(&number)?.opener.as_ref()?.times())
    }

    fn memory(&self) -> Option<Memory> {
        let budget = &self.budget;
        Some(Memory { bound: budget.bound() as u64, held: budget.held() as u64 })
    }

    fn reclassify(&self, number: u64, to: Classing) -> Result<bool, Failure> {
        to.group.map(|group| self.groups.join(group)).transpose()?;
        let mut openers = self.openers();
        let Some(Open { opener: Some(opener), client, .. }) = openers.table.get_mut(&number) else {
            return Ok(false);
        };
        client.take(to);
        opener.reclassify(client.group, client.ioprio, client.background);
        Ok(true)
    }

    fn dismiss(&self, number: u64) -> bool {
        let mut openers = self.openers();
        let open = openers.table.get_mut(&number);
        let opener = open.and_then(|open| {
            open.tell("closed by us, as it was asked for");
            open.opener.take()
        });
        drop(openers);
        if opener.is_some() {
            self.budget.withdraw(|handle| handle == number);
        }
        opener.is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::mpsc::channel;

    use weir_bio::Class;
    use weir_local::Ram;
    use weir_queue::Config;

    use super::*;

    const MEMORY: usize = 64 << 20;

    /// A host with a disk whose lane is with the first reactor, and the disks as files.
    fn one_disk(reactors: usize) -> (Arc<Host>, Device, Arc<Disks>) {
        let host = Arc::new(Host::new(reactors).unwrap());
        let config = Config { name: String::from("sda"), queues: 1, ..Config::default() };
        let device = Device::new(config, Arc::new(Ram::new(1 << 20).unwrap())).unwrap();
        host.adopt_at(&device, 0).unwrap();
        let disks = Disks::new(Arc::clone(&host), vec![device.clone()], Arc::default(), MEMORY);
        (host, device, Arc::new(disks))
    }

    const PROCESS: Process = Process { user: 0, group: 0, number: 1 };

    #[test]
    fn a_disk_that_goes_while_it_is_opened_is_not_open_behind_that() {
        // Calls are taken by the last reactor.
        let (host, device, disks) = one_disk(2);
        disks.open("sda", 1, PROCESS, true).expect("it is there");
        disks.release(1);
        // So the calls go to the disk's reactor first, and while they do the disk goes.
        disks.placement().reactor = 1;
        let (remover, gone) = (Arc::clone(&disks), device.clone());
        disks.on_migration(Box::new(move |_, _| assert_eq!(remover.remove(&gone), 0)));
        let error = disks.open("sda", 2, PROCESS, true).unwrap_err();
        assert_eq!((error, disks.open_disks()), (Errno::ENODEV, vec![]));
        disks.placement().migration = None;
        host.stop(10_000_000_000).unwrap();
    }

    #[test]
    fn calls_that_wait_end_when_their_disk_goes_and_none_waits_behind_that() {
        let (host, device, disks) = one_disk(1);
        disks.open("sda", 1, PROCESS, true).expect("it is there");
        // Another disk, which gives no answer, has all the memory.
        let full = Need { disk: 99, handle: 99, data: MEMORY, writes: true };
        let full = disks.budget.take(full).expect("alone it passes");
        let (sender, receiver) = channel();
        let to = sender.clone();
        let caller = Caller::library(move |outcome| {
            let _ = to.send(matches!(outcome, Outcome::Failed(Errno::ENODEV)));
        });
        disks.read(0, 1, (0, 4096), caller);
        assert!(receiver.try_recv().is_err(), "it waits");
        assert_eq!(disks.remove(&device), 1);
        assert_eq!(receiver.try_recv(), Ok(true));
        // One that had found its file before.
        for writes in [false, true] {
            let (to, need) = (sender.clone(), Need { disk: 1, handle: 1, data: 4096, writes });
            disks.wait(need, move |share| _ = to.send(share.is_none()));
            assert_eq!(receiver.try_recv(), Ok(true));
        }
        drop(full);
        host.stop(10_000_000_000).unwrap();
    }

    #[test]
    fn a_process_is_asked_for_again_after_a_while_and_is_forgotten_when_it_has_left() {
        let (asked, start) = (Cell::new(0), Instant::now());
        let mut processes = Processes::default();
        let mut at = |process: u32, ms: u64| {
            let given = processes.priority(process, start + Duration::from_millis(ms), |process| {
                asked.set(asked.get() + 1);
                IoPrio::new(Class::BestEffort, process as u8)
            });
            (given.level(), asked.get(), processes.known.len())
        };
        assert_eq!(at(0, 0), (0, 0, 0));
        assert_eq!(at(1, 0), (1, 1, 1));
        assert_eq!(at(1, 99), (1, 1, 1));
        assert_eq!(at(2, 99), (2, 2, 2));
        assert_eq!(at(1, 100), (1, 3, 2));
        assert_eq!(at(3, 250), (3, 4, 1));
    }
}
