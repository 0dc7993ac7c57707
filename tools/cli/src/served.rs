//! The disks of a daemon at this moment: those of pools come and go while it runs.

use std::sync::{OnceLock, PoisonError, RwLock};

use weir::{Device, Opened};

/// Hears of a disk that has come, or that is about to go.
pub(crate) type Listener = Box<dyn Fn(&Device, Change) + Send + Sync>;

/// What has become of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// It is new.
    Came,
    /// It is offline.
    Went,
}

/// The disks that clients see, and the queues of pools.
pub(crate) struct Served {
    disks: RwLock<Vec<Device>>,
    pools: Vec<Device>,
    listener: OnceLock<Listener>,
}

impl Served {
    pub(crate) fn new(disks: Vec<Device>, pools: Vec<Device>) -> Served {
        Served { disks: RwLock::new(disks), pools, listener: OnceLock::new() }
    }

    /// The disks, in the order of the configuration; those that came later are behind it.
    pub(crate) fn disks(&self) -> Vec<Device> {
        self.disks.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn disk(&self, name: &str) -> Option<Device> {
        self.disks().into_iter().find(|disk| disk.config().name == name)
    }

    /// The queue of the pool of this name.
    pub(crate) fn pool(&self, name: &str) -> Option<&Device> {
        self.pools.iter().find(|pool| pool.config().name == name)
    }

    /// The queues of pools, and the disks behind them.
    pub(crate) fn queues(&self) -> Vec<Device> {
        self.pools.iter().cloned().chain(self.disks()).collect()
    }

    /// Has `listener` hear of disks that come and go; only the first that is given counts.
    pub(crate) fn on_change(&self, listener: Listener) {
        // A second one has no meaning: one thread follows the disks.
        let _ = self.listener.set(listener);
    }

    pub(crate) fn add(&self, disk: &Device) {
        self.disks.write().unwrap_or_else(PoisonError::into_inner).push(disk.clone());
        self.tell(disk, Change::Came);
    }

    pub(crate) fn remove(&self, disk: &Device) {
        let mut disks = self.disks.write().unwrap_or_else(PoisonError::into_inner);
        disks.retain(|known| !known.is(disk));
        drop(disks);
        self.tell(disk, Change::Went);
    }

    fn tell(&self, disk: &Device, change: Change) {
        if let Some(listener) = self.listener.get() {
            listener(disk, change);
        }
    }
}

/// Tells the log what a disk says.
pub(crate) fn listen(name: &str, disk: &Opened) {
    disk.notices.iter().for_each(|notice| tracing::info!("{notice}"));
    disk.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    let told = String::from(name);
    disk.on_notice(move |notice| tracing::warn!("disk {told}: {notice}"));
}
