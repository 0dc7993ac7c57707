//! What the logical units and ports of a host share: the transport, tags, slots and notices.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_proto_scsi::Lun;
use weir_queue::{Notices, TagSet};

use crate::depth::Ramp;
use crate::transport::{Adapter, Transport};

/// Tags of a set, at most: what the queue core takes.
const TAGS_MAX: u32 = 10_240;

/// Reserved tags of a set, for commands of the block layer that wait for no other.
const RESERVED: u16 = 2;

/// How the logical units of a host are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostOptions {
    /// How long the error handler may take before it resets the session, nanoseconds; `None`: as
    /// long as its levels take.
    pub eh_deadline_ns: Option<u64>,
    /// How long a command of the error handler may take, nanoseconds.
    pub eh_timeout_ns: u64,
    /// How queue depths follow the target.
    pub ramp: Ramp,
    /// The error handler may start a unit that is stopped.
    pub allow_restart: bool,
}

impl Default for HostOptions {
    fn default() -> HostOptions {
        HostOptions {
            eh_deadline_ns: None,
            eh_timeout_ns: 10_000_000_000,
            ramp: Ramp::Tracked,
            allow_restart: true,
        }
    }
}

/// What the logical units and ports of a host share.
pub(crate) struct HostShared {
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) name: String,
    pub(crate) adapter: Adapter,
    pub(crate) options: HostOptions,
    pub(crate) tags: Arc<TagSet>,
    own: Mutex<Vec<u16>>,
    /// Own slots that conversations about port groups leave to the error handler.
    spared: usize,
    suspects: Vec<Suspects>,
    pub(crate) notices: Notices,
}

/// Logical units whose commands at one port may be gone without an answer.
#[derive(Default)]
pub(crate) struct Suspects {
    units: Mutex<Vec<Option<Lun>>>,
    any: AtomicBool,
}

impl HostShared {
    /// # Panics
    /// See [`Host::new`](crate::Host::new).
    pub(crate) fn new(transport: Arc<dyn Transport>, options: HostOptions) -> Arc<HostShared> {
        let adapter = transport.adapter();
        let Adapter { queues, can_queue, own_slots, .. } = adapter;
        assert!(queues > 0 && can_queue > 0 && own_slots > 0, "an adapter of nothing: {adapter:?}");
        // A reserved tag takes the place of one of the adapter's own slots.
        let reserved = RESERVED.min(own_slots - 1);
        let most = TAGS_MAX - u32::from(reserved);
        let tags = (u32::from(queues) * u32::from(can_queue)).min(most) as u16;
        let first = base_of_own(&adapter) + reserved;
        let own: Vec<u16> = (first..base_of_own(&adapter) + own_slots).rev().collect();
        Arc::new(HostShared {
            name: transport.name(),
            adapter,
            options,
            tags: TagSet::new(tags + reserved, reserved),
            spared: own.len() / 3,
            own: Mutex::new(own),
            suspects: (0..queues).map(|_| Suspects::default()).collect(),
            notices: Notices::default(),
            transport,
        })
    }

    /// Slots in all.
    pub(crate) fn slots(&self) -> usize {
        usize::from(base_of_own(&self.adapter)) + usize::from(self.adapter.own_slots)
    }

    /// The slot of a driver tag. Reserved tags come first in a set, and have slots of the adapter's
    /// own.
    #[inline]
    pub(crate) fn slot_of(&self, tag: u16) -> u16 {
        let reserved = self.tags.reserved();
        match tag.checked_sub(reserved) {
            Some(slot) => slot,
            None => base_of_own(&self.adapter) + tag,
        }
    }

    /// A slot for a command of the mid-layer's own.
    pub(crate) fn take_own_slot(&self) -> Option<u16> {
        lock(&self.own).pop()
    }

    /// A slot for a command about a port group, of which a target may have many at once.
    pub(crate) fn take_slot_of_talk(&self) -> Option<u16> {
        let mut own = lock(&self.own);
        if own.len() > self.spared { own.pop() } else { None }
    }

    pub(crate) fn give_own_slot(&self, slot: u16) {
        lock(&self.own).push(slot);
    }

    /// Commands of `lun`, or of all units, may be gone at every port but this one.
    #[cold]
    pub(crate) fn suspect(&self, lun: Option<Lun>, but: u16) {
        for (_, suspects) in self.suspects.iter().enumerate().filter(|(at, _)| *at != but.into()) {
            lock(&suspects.units).push(lun);
            suspects.any.store(true, Ordering::Release);
        }
    }

    /// The suspects at a port, which are taken once.
    #[inline]
    pub(crate) fn suspects(&self, port: u16) -> Option<Vec<Option<Lun>>> {
        let suspects = &self.suspects[usize::from(port)];
        suspects.any.load(Ordering::Acquire).then(|| suspects.take())
    }
}

impl Suspects {
    #[cold]
    fn take(&self) -> Vec<Option<Lun>> {
        let mut units = lock(&self.units);
        self.any.store(false, Ordering::Release);
        std::mem::take(&mut units)
    }
}

fn base_of_own(adapter: &Adapter) -> u16 {
    u32::min(u32::from(adapter.queues) * u32::from(adapter.can_queue), TAGS_MAX) as u16
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics under these locks, so nothing is half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
