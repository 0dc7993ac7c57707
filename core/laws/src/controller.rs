//! Control of a device in the middle of I/O, on the thread that plays its homes: each change is a
//! step, polled when its watch says so and at no other time. A watch that is not told is then a
//! change that never ends.

use std::sync::Arc;

use weir_bio::{Nanos, Prng};
use weir_queue::{
    Bell, Device, Error, Freezing, Frozen, NoWake, Progress, Quiesced, Quiescing, Reconfiguring,
    Settings, Step, Watch,
};

use super::device::Sim;

type Change = Box<dyn FnOnce(&mut Settings)>;

enum Call {
    Freezing(Freezing),
    Frozen(#[expect(dead_code, reason = "held")] Frozen),
    Quiescing(Quiescing),
    Quiesced(#[expect(dead_code, reason = "held")] Quiesced),
    Reconfiguring(Box<Reconfiguring<Change>>),
    Over,
}

/// A control call under way.
pub struct Controller {
    device: Device,
    sim: Arc<Sim>,
    bell: Arc<Bell>,
    call: Call,
    told: bool,
    /// The name of the call.
    pub what: &'static str,
}

impl Controller {
    /// Starts a call chosen at random.
    pub fn start(device: &Device, sim: &Arc<Sim>, prng: &mut Prng, fixed: Fixed) -> Controller {
        let bell = Bell::new(Box::new(NoWake), 1);
        let watch = Watch::new(&bell, 0);
        let mut own = Prng::new(prng.next());
        let (call, what) = match own.below(5) {
            0 => (Call::Freezing(device.begin_freeze(&watch)), "freeze"),
            1 => (Call::Quiescing(device.begin_quiesce(&watch)), "quiesce"),
            _ => {
                let change: Change = Box::new(changes(device, Arc::clone(sim), own, fixed));
                let step = device.begin_reconfigure(&watch, change);
                (Call::Reconfiguring(Box::new(step)), "reconfigure")
            }
        };
        let (device, sim) = (device.clone(), Arc::clone(sim));
        Controller { device, sim, bell, call, told: true, what }
    }

    /// Goes on as far as it can, if it was told that it may; whether the call is over.
    pub fn poll(&mut self, now: Nanos) -> bool {
        self.bell.ready().take(|_| self.told = true);
        if std::mem::take(&mut self.told) {
            self.call = match std::mem::replace(&mut self.call, Call::Over) {
                Call::Freezing(mut step) => match step.poll(now) {
                    Progress::Ended(frozen) => {
                        let inside = self.device.stats().in_flight;
                        assert_eq!(inside, 0, "a frozen device holds nothing");
                        Call::Frozen(frozen)
                    }
                    Progress::Waits => Call::Freezing(step),
                },
                Call::Quiescing(mut step) => match step.poll(now) {
                    Progress::Ended(quiesced) => {
                        self.sim.world().quiesced = true;
                        Call::Quiesced(quiesced)
                    }
                    Progress::Waits => Call::Quiescing(step),
                },
                Call::Reconfiguring(mut step) => match step.poll(now) {
                    Progress::Ended(changed) => {
                        changed.expect("values within their bounds");
                        Call::Over
                    }
                    Progress::Waits => Call::Reconfiguring(step),
                },
                held => held,
            };
        }
        matches!(self.call, Call::Over)
    }

    /// Whether the device is held until it is [let go](Controller::release).
    pub fn is_held(&self) -> bool {
        matches!(self.call, Call::Frozen(_) | Call::Quiesced(_))
    }

    /// Lets a held device go; the call is over.
    pub fn release(&mut self) {
        self.sim.world().quiesced = false;
        self.call = Call::Over;
    }
}

/// Settings of a device that may not change.
#[derive(Clone, Copy)]
pub struct Fixed {
    /// `barriers` stays.
    pub barriers: bool,
    /// `nomerges` stays.
    pub nomerges: bool,
    /// Write-back throttling stays.
    pub wbt: bool,
}

/// A change of whatever else of a device can be changed under load.
pub fn changes(
    device: &Device,
    sim: Arc<Sim>,
    mut prng: Prng,
    fixed: Fixed,
) -> impl FnOnce(&mut Settings) + 'static {
    let (depth, has_wbt) = (device.depth(), device.has_wbt());
    move |parts| {
        parts.limits.max_user_sectors = 8 * (1 + prng.below(8) as u32);
        parts.limits.max_segments = 1 + prng.below(6) as u16;
        let nomerges = prng.below(3) as u8;
        if !fixed.nomerges {
            parts.nomerges = nomerges;
        }
        parts.nr_requests = 1 + prng.below(u64::from(depth)) as u16;
        if !fixed.barriers {
            parts.barriers = prng.percent(50);
        }
        if has_wbt && !fixed.wbt {
            // Off, so tight that all reads are too late, and the default.
            parts.wbt.write([0, 1, 2000][prng.below(3) as usize]).unwrap();
        }
        let mut world = sim.world();
        world.limits = parts.limits.clone().validate().unwrap();
        (world.nomerges, world.barriers) = (parts.nomerges, parts.barriers);
    }
}

/// The same, waited for: for threads that turn no lanes.
pub fn reconfigure(device: &Device, sim: &Arc<Sim>, prng: &mut Prng, fixed: Fixed) {
    let own = Prng::new(prng.next());
    let change = changes(device, Arc::clone(sim), own, fixed);
    let changed: Result<(), Error> = device.reconfigure(change);
    changed.expect("values within their bounds");
}
