//! The settings of a device as submitters and lanes know them: a snapshot that is replaced as a
//! whole while the gate is closed and no I/O is inside, so that no I/O sees it change.

use std::ops::Deref;
use std::sync::{Arc, Mutex};

use weir_bio::{Flags, Limits, Op, SECTOR};
use weir_ring::SharedCounter;

use crate::config::slots;
use crate::settings::Settings;
use crate::wbt::DIRECT;

/// Flags that need a closer look.
const SPECIAL: Flags =
    Flags::PREFLUSH.with(Flags::FUA).with(Flags::ATOMIC).with(Flags::NOWAIT).with(Flags::RAHEAD);

/// The settings that submitters and lanes use, and that never change under an I/O.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) version: u64,
    /// Those that can be changed; read as if they were fields of the snapshot.
    pub(crate) settings: Settings,
    /// A scheduler is attached (multi-queue path).
    pub(crate) scheduled: bool,
    /// It wants to know the times of what has ended.
    pub(crate) timed: bool,
    /// Everything ends with `Offline`.
    pub(crate) offline: bool,
    /// A bio of one segment up to so many sectors is never split.
    pub(crate) whole_sectors: u32,
    /// Writes that are not direct are throttled.
    pub(crate) throttled: bool,
    /// Plain reads and writes, by op.
    pub(crate) plain: [Plain; 2],
    /// A plain bio from here on needs a closer look as well: it may reach beyond the end.
    pub(crate) plain_end: u64,
    /// Bits that no address or length in sectors may have.
    pub(crate) block_mask: u64,
    /// Bits that no address in memory may have.
    pub(crate) memory_mask: u64,
    /// Bits in which two addresses of one segment agree.
    pub(crate) beyond_segment: u64,
    /// Slots of a submitter.
    pub(crate) slots: u16,
    /// Lanes in use: the first so many.
    pub(crate) queues: u16,
    /// How often that number has changed.
    pub(crate) layout: u64,
}

/// The reads or writes that need no closer look.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Plain {
    /// Their length at most, sectors.
    pub(crate) sectors: u32,
    /// The bits of their flags that are not free, and how those are.
    pub(crate) bound: Flags,
    pub(crate) flags: Flags,
}

impl Deref for Snapshot {
    type Target = Settings;
    #[inline(always)]
    fn deref(&self) -> &Settings {
        &self.settings
    }
}

impl Snapshot {
    /// Of a device with so many lanes that is opened.
    pub(crate) fn first(settings: Settings, queues: u16) -> Snapshot {
        Snapshot {
            version: 0,
            slots: slots(settings.nr_requests),
            settings,
            scheduled: false,
            timed: false,
            offline: false,
            whole_sectors: 0,
            throttled: false,
            plain: [Plain::default(); 2],
            plain_end: 0,
            block_mask: 0,
            memory_mask: 0,
            beyond_segment: 0,
            queues,
            layout: 0,
        }
    }

    /// With what follows from the rest worked out.
    pub(crate) fn derived(mut self) -> Snapshot {
        self.whole_sectors = whole_sectors(&self.limits);
        let room = self.limits.capacity.checked_sub(u64::from(self.whole_sectors));
        self.plain_end = room.map_or(0, |room| room + 1);
        let plain = if self.offline { 0 } else { self.whole_sectors };
        self.throttled = self.settings.wbt.is_on();
        let of = |sectors, flags| Plain { sectors, bound: SPECIAL.with(flags), flags };
        self.plain[Op::Read as usize] = of(plain, Flags::NONE);
        let plain = if self.limits.read_only { 0 } else { plain };
        let direct = if self.throttled { DIRECT } else { Flags::NONE };
        self.plain[Op::Write as usize] = of(plain, direct);
        self.block_mask = u64::from(self.limits.block_sectors() - 1);
        self.memory_mask = u64::from(self.limits.dma_alignment);
        self.beyond_segment = !self.limits.seg_boundary_mask;
        self
    }
}

impl Snapshot {
    /// The latency that the write-back throttle keeps reads to, ns; 0 while it is off.
    pub(crate) fn throttled_ns(&self) -> u64 {
        self.settings.wbt.ns()
    }
}

/// The largest single-segment bio that is never split, sectors; 0 when its place decides.
pub(crate) fn whole_sectors(limits: &Limits) -> u32 {
    let simple = limits.chunk_sectors == 0 && limits.virt_boundary_mask == 0;
    let segment = limits.max_segment_size / SECTOR as u32;
    // An op with a limit of 0 is not supported, and none of it arrives.
    let smallest = [
        limits.max_discard_sectors(),
        limits.max_secure_erase_sectors,
        limits.max_write_zeroes_sectors,
    ]
    .into_iter()
    .filter(|most| *most != 0)
    .fold(limits.max_sectors().min(segment), u32::min);
    if simple { smallest } else { 0 }
}

/// The snapshot in force.
pub(crate) struct Current {
    version: SharedCounter,
    snapshot: Mutex<Arc<Snapshot>>,
}

impl Current {
    pub(crate) fn new(snapshot: Snapshot) -> Current {
        Current { version: SharedCounter::default(), snapshot: Mutex::new(Arc::new(snapshot)) }
    }

    pub(crate) fn get(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot.lock().expect("the snapshot's lock"))
    }

    /// Differs from [`Snapshot::version`] of one that was replaced since.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        self.version.read()
    }

    pub(crate) fn replace(&self, snapshot: Snapshot) {
        *self.snapshot.lock().expect("the snapshot's lock") = Arc::new(snapshot.derived());
        self.version.next();
    }
}
