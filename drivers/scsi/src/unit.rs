//! A logical unit: what its lanes share.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_bio::Nanos;
use weir_proto_scsi::Lun;
use weir_proto_scsi::alua::PathIo;
use weir_proto_scsi::decide::{Notice, Purpose, UnitTraits};
use weir_proto_scsi::inquiry::Tpgs;
use weir_proto_scsi::limits::{CdbRule, DiskLimits};
use weir_queue::ChangeListener;

use crate::counters::{Counters, Counts};
use crate::depth::DepthTracker;
use crate::places::Places;
use crate::port_view::PortView;
use crate::probe::{Access, Facts};
use crate::shared::HostShared;

const SECOND: u64 = 1_000_000_000;

/// The time of a command that writes zeros, at least.
const WRITE_SAME_NS: u64 = 120 * SECOND;

/// Log lines about failed commands of a unit are at least so far apart.
const TELL_NS: u64 = SECOND;

/// Whether a unit is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum UnitState {
    /// It is.
    Running = 0,
    /// It is not, until the administrator says so: no reset helped, or the administrator said so.
    Offline,
}

impl UnitState {
    /// Linux' text.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            UnitState::Running => "running",
            UnitState::Offline => "offline",
        }
    }
}

/// What has been learnt of a unit while it runs, and waits to be looked into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Wish {
    /// READ CAPACITY says something else.
    Capacity = 1,
    /// REPORT LUNS says something else.
    Luns = 1 << 1,
    /// Mode pages, VPD pages or INQUIRY data say something else.
    Pages = 1 << 2,
}

/// A wish for the size that waits for a port which takes I/O.
const PUT_OFF: u8 = 1 << 3;

const EXPECTING: u8 = 1;
const ALUA: u8 = 1 << 1;
const REMOVABLE: u8 = 1 << 2;
const RESTART: u8 = 1 << 3;
const MAY_NEED_SIX: u8 = 1 << 4;

/// What the lanes of a logical unit share.
pub(crate) struct UnitShared {
    pub(crate) host: Arc<HostShared>,
    pub(crate) lun: Lun,
    pub(crate) name: String,
    pub(crate) places: Arc<Places>,
    depth: Mutex<DepthTracker>,
    /// The depth may rise.
    pub(crate) may_rise: AtomicBool,
    state: AtomicU8,
    traits: AtomicU8,
    wishes: AtomicU8,
    on_change: Mutex<Option<ChangeListener>>,
    /// Held by the thread that asks everything anew, and whether one does.
    asking: Mutex<()>,
    is_asked: AtomicBool,
    /// An earlier write has failed: no flush may succeed.
    doubtful: AtomicBool,
    /// It has refused a write as one to a disk that is write-protected.
    protected: AtomicBool,
    timeout_ns: AtomicU64,
    /// The time of a command of the error handler.
    eh_timeout_ns: AtomicU64,
    facts: Mutex<Arc<Facts>>,
    /// Changes with the facts.
    version: AtomicU64,
    pub(crate) port: PortView,
    counters: Mutex<Vec<Arc<Counters>>>,
    /// When a failed command was told of last, and how many were not since.
    told: Mutex<(Option<Nanos>, u64)>,
}

impl fmt::Debug for UnitShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name)
    }
}

/// A unit that is being asked everything anew.
pub(crate) struct Asking<'a> {
    unit: &'a UnitShared,
    _one: MutexGuard<'a, ()>,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.unit.is_asked.store(false, Ordering::SeqCst);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics under these locks, so nothing is half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl UnitShared {
    pub(crate) fn new(host: &Arc<HostShared>, facts: Arc<Facts>) -> Arc<UnitShared> {
        let options = &host.options;
        let most = host.tags.depth() - host.tags.reserved();
        let depth = host.adapter.cmd_per_lun.clamp(1, most);
        let flag = |is, flag| if is { flag } else { 0 };
        let traits = flag(facts.inquiry.tpgs != Tpgs::None, ALUA)
            | flag(facts.inquiry.removable, REMOVABLE)
            | flag(options.allow_restart, RESTART)
            | flag(!facts.inquiry.has_vpd(), MAY_NEED_SIX);
        Arc::new(UnitShared {
            host: Arc::clone(host),
            lun: facts.lun,
            name: format!("{}: LUN {}", host.name, facts.lun),
            places: Arc::new(Places::new(depth)),
            depth: Mutex::new(DepthTracker::new(depth, options.ramp)),
            may_rise: AtomicBool::new(false),
            state: AtomicU8::new(UnitState::Running as u8),
            traits: AtomicU8::new(traits),
            wishes: AtomicU8::new(0),
            on_change: Mutex::default(),
            asking: Mutex::default(),
            is_asked: AtomicBool::new(false),
            doubtful: AtomicBool::new(false),
            protected: AtomicBool::new(false),
            timeout_ns: AtomicU64::new(30 * SECOND),
            eh_timeout_ns: AtomicU64::new(options.eh_timeout_ns),
            port: PortView::new(facts.access),
            facts: Mutex::new(facts),
            version: AtomicU64::new(0),
            counters: Mutex::default(),
            told: Mutex::default(),
        })
    }

    pub(crate) fn state(&self) -> UnitState {
        match self.state.load(Ordering::Relaxed) {
            0 => UnitState::Running,
            _ => UnitState::Offline,
        }
    }

    pub(crate) fn set_state(&self, state: UnitState, why: &str) {
        if self.state.swap(state as u8, Ordering::Relaxed) != state as u8 {
            self.tell(&format!("{} ({why})", state.name()));
        }
    }

    /// What decisions need to know of it.
    pub(crate) fn traits(&self) -> UnitTraits {
        let traits = self.traits.load(Ordering::Relaxed);
        UnitTraits {
            allow_restart: traits & RESTART != 0,
            retry_hardware_errors: false,
            removable: traits & REMOVABLE != 0,
            alua: traits & ALUA != 0,
            expecting_attention: traits & EXPECTING != 0,
            may_need_six: traits & MAY_NEED_SIX != 0,
        }
    }

    /// It was reset from here, and will say so once; or it has.
    pub(crate) fn expect_attention(&self, expected: bool) {
        match expected {
            true => self.traits.fetch_or(EXPECTING, Ordering::Relaxed),
            false => self.traits.fetch_and(!EXPECTING, Ordering::Relaxed),
        };
    }

    /// The time of one attempt at a command, nanoseconds: twice as long for a flush, and at least
    /// 120 s for one that writes zeros.
    pub(crate) fn attempt_ns(&self, purpose: Purpose) -> u64 {
        let timeout = self.timeout_ns();
        match purpose {
            Purpose::Flush => timeout.saturating_mul(2),
            Purpose::WriteSame => timeout.max(WRITE_SAME_NS),
            Purpose::Transfer
            | Purpose::Unmap
            | Purpose::TestUnitReady
            | Purpose::Inquiry
            | Purpose::Other => timeout,
        }
    }

    pub(crate) fn timeout_ns(&self) -> u64 {
        self.timeout_ns.load(Ordering::Relaxed)
    }

    pub(crate) fn set_timeout(&self, timeout_ns: u64) {
        if timeout_ns > 0 {
            self.timeout_ns.store(timeout_ns, Ordering::Relaxed);
        }
    }

    pub(crate) fn eh_timeout_ns(&self) -> u64 {
        self.eh_timeout_ns.load(Ordering::Relaxed)
    }

    pub(crate) fn set_eh_timeout(&self, timeout_ns: u64) {
        self.eh_timeout_ns.store(timeout_ns, Ordering::Relaxed);
    }

    pub(crate) fn facts(&self) -> Arc<Facts> {
        Arc::clone(&lock(&self.facts))
    }

    pub(crate) fn change_facts(&self, change: impl FnOnce(&mut Facts)) {
        let mut facts = lock(&self.facts);
        change(Arc::make_mut(&mut facts));
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Changes with the limits of the disk.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    pub(crate) fn disk_limits(&self) -> DiskLimits {
        lock(&self.facts).disk_limits()
    }

    /// A probe has found the state of its target port group.
    pub(crate) fn set_access(&self, access: Option<Access>) {
        if self.port.set(access) {
            self.tell_access(access);
        }
    }

    /// The target has told a lane the state of its target port group.
    pub(crate) fn set_access_answered(&self, access: Option<Access>, transition_s: u8, now: Nanos) {
        if self.port.set_answered(access, transition_s, now) {
            self.tell_access(access);
            let is_put_off = self.wishes.load(Ordering::Relaxed) & PUT_OFF != 0;
            if (is_put_off || self.facts().is_partial())
                && access.is_some_and(|access| access.state.io() == PathIo::Allowed)
            {
                self.wishes.fetch_and(!PUT_OFF, Ordering::Relaxed);
                self.wish(Wish::Capacity, "its port takes I/O now: its size can be asked for");
            }
        }
    }

    fn tell_access(&self, access: Option<Access>) {
        let Some(access) = access else { return };
        let preferred = if access.preferred { ", preferred" } else { "" };
        self.tell(&format!("port group {} is {}{preferred}", access.group, access.state.name()));
    }

    /// Counters for one more lane.
    pub(crate) fn new_counters(&self) -> Arc<Counters> {
        let counters = Arc::new(Counters::default());
        lock(&self.counters).push(Arc::clone(&counters));
        counters
    }

    /// What was counted.
    pub(crate) fn counts(&self) -> Counts {
        let mut sums = Counts::default();
        lock(&self.counters).iter().for_each(|counters| counters.add_to(&mut sums));
        sums
    }

    /// One line for the log.
    pub(crate) fn tell(&self, what: &str) {
        self.host.notices.add(format!("{}: {what}", self.name));
    }

    /// A command has failed: one line a second at most.
    pub(crate) fn tell_failure(&self, what: impl FnOnce() -> String, now: Nanos) {
        let mut told = lock(&self.told);
        if told.0.is_some_and(|last| now.since(last) < TELL_NS) {
            told.1 += 1;
            return;
        }
        let untold = std::mem::take(&mut told.1);
        told.0 = Some(now);
        drop(told);
        match untold {
            0 => self.tell(&what()),
            more => self.tell(&format!("{}; and {more} more since", what())),
        }
    }

    /// Whether flushes fail: an earlier write that was answered has been lost.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.doubtful.load(Ordering::Relaxed)
    }

    /// Whether the target has said, by a refusal or when it was asked last, that it takes no
    /// writes.
    pub(crate) fn is_protected(&self) -> bool {
        self.protected.load(Ordering::Relaxed) || self.disk_limits().read_only
    }

    /// Whether it has refused a write as one that it does not take; what it was before.
    pub(crate) fn set_refused(&self, refused: bool) -> bool {
        self.protected.swap(refused, Ordering::Relaxed)
    }

    /// A wish was left; each is taken once.
    pub(crate) fn take_wish(&self, wish: Wish) -> bool {
        let bit = wish as u8;
        self.wishes.fetch_and(!bit, Ordering::Relaxed) & bit != 0
    }

    /// A wish that could not be seen to stands again.
    pub(crate) fn put_back(&self, wish: Wish) {
        self.wishes.fetch_or(wish as u8, Ordering::SeqCst);
    }

    /// The unit is asked everything anew, by one thread at a time: of two answers the one that is
    /// put in force last is the later one.
    pub(crate) fn begin_asking(&self) -> Asking<'_> {
        let one = lock(&self.asking);
        self.is_asked.store(true, Ordering::SeqCst);
        Asking { unit: self, _one: one }
    }

    /// The unit is to be asked for its size once its port takes I/O.
    pub(crate) fn put_size_off(&self) {
        self.wishes.fetch_or(PUT_OFF, Ordering::Relaxed);
    }

    fn wish(&self, wish: Wish, what: &str) {
        if self.leave_wish(wish) {
            self.tell(what);
        }
    }

    /// Leaves a wish and has it heard; whether it was not there already.
    fn leave_wish(&self, wish: Wish) -> bool {
        let bit = wish as u8;
        let is_new = self.wishes.fetch_or(bit, Ordering::SeqCst) & bit == 0;
        if is_new {
            let listener = lock(&self.on_change).clone();
            if let Some(listener) = listener {
                listener();
            }
        }
        is_new
    }

    /// A listener hears of the wishes that were left before there was one, too.
    pub(crate) fn set_on_change(&self, listener: ChangeListener) {
        *lock(&self.on_change) = Some(Arc::clone(&listener));
        if self.wishes.load(Ordering::SeqCst) & !PUT_OFF != 0 {
            listener();
        }
    }

    pub(crate) fn depth(&self) -> u16 {
        lock(&self.depth).depth()
    }

    pub(crate) fn ramp_up_period_ns(&self) -> u64 {
        lock(&self.depth).period_ns()
    }

    pub(crate) fn set_ramp_up_period(&self, period_ns: u64) {
        lock(&self.depth).set_period(period_ns);
    }

    /// The administrator sets the depth.
    pub(crate) fn set_depth(&self, depth: u16) {
        self.change_depth(|tracker| tracker.set(depth));
    }

    pub(crate) fn task_set_full(&self, now: Nanos) {
        self.change_depth(|tracker| tracker.full(now));
    }

    /// So many commands succeeded while the depth may rise.
    #[cold]
    pub(crate) fn rise(&self, ends: u32, now: Nanos) {
        self.change_depth(|tracker| tracker.good(ends, now));
    }

    fn change_depth(&self, change: impl FnOnce(&mut DepthTracker)) {
        let (before, after) = {
            let mut tracker = lock(&self.depth);
            let before = tracker.depth();
            change(&mut tracker);
            self.may_rise.store(tracker.may_rise(), Ordering::Relaxed);
            (before, tracker.depth())
        };
        if before != after {
            self.places.set_depth(after);
        }
    }

    /// It cannot be asked what it has.
    pub(crate) fn take_for_cached(&self) {
        self.change_facts(Facts::take_for_cached);
    }

    /// It takes 6-byte commands only.
    #[cold]
    pub(crate) fn use_six(&self) {
        self.change_facts(|facts| facts.disk.cdbs = CdbRule::SixOnly);
        self.traits.fetch_and(!MAY_NEED_SIX, Ordering::Relaxed);
        self.tell("it knows no 10-byte commands: 6-byte commands from now on");
    }

    /// Deals with what an answer told beside the fate of its command.
    #[cold]
    pub(crate) fn notice(&self, notice: Notice) {
        match notice {
            Notice::CapacityChanged => self.wish(Wish::Capacity, "its capacity has changed"),
            Notice::ThinThreshold => self.tell("its thin store is nearly full"),
            Notice::LunsChanged => {
                self.wish(Wish::Luns, "the target's list of logical units has changed");
            }
            Notice::ModeChanged => self.wish(Wish::Pages, "its mode pages have changed"),
            Notice::InquiryChanged => self.wish(Wish::Pages, "its INQUIRY data have changed"),
            Notice::MediumChanged => self.wish(Wish::Pages, "its medium may be another one"),
            Notice::LunGone => self.wish(Wish::Luns, "the target has no such logical unit now"),
            // The port sees to all units of the target, and reads the access state anew.
            Notice::TaskSetFull | Notice::AccessStateChanged | Notice::OtherAttention => {}
            // Its mode pages may have their defaults again, and so a cache that it had not before.
            // Each session begins so, and that is no news for the log.
            Notice::WasReset => {
                // An answer that says otherwise may be under way.
                if !self.disk_limits().volatile_cache || self.is_asked.load(Ordering::SeqCst) {
                    self.leave_wish(Wish::Pages);
                }
            }
            Notice::UnmapRefused => self.turn_off("UNMAP", |facts| facts.disk.unmap_refused = true),
            Notice::WriteSameRefused => self.turn_off("WRITE SAME", |facts| {
                (facts.disk.write_same_10, facts.disk.write_same_16) = (false, false);
            }),
            Notice::WriteProtected => {
                if !self.protected.swap(true, Ordering::Relaxed) {
                    self.tell("it is write-protected: it refuses writes");
                }
            }
            Notice::DeferredError => {
                if !self.doubtful.swap(true, Ordering::Relaxed) {
                    self.tell("an earlier write has failed: flushes fail until it is opened anew");
                }
            }
        }
    }

    fn turn_off(&self, what: &str, change: impl FnOnce(&mut Facts)) {
        let before = self.disk_limits();
        self.change_facts(change);
        if before != self.disk_limits() {
            self.tell(&format!("it refuses {what}, which is not tried again"));
        }
    }
}
