//! A second, real thread that freezes, quiesces or changes a device while its homes go on: those
//! calls block, so the thread that plays the homes cannot make them.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use weir_bio::Prng;
use weir_queue::Device;

use super::device::Sim;

/// A control call under way.
pub struct Controller {
    thread: Option<JoinHandle<()>>,
    release: Sender<()>,
    held: Receiver<()>,
    pub is_held: bool,
    pub what: &'static str,
}

impl Controller {
    /// Starts a call chosen at random.
    pub fn start(device: &Device, sim: &Arc<Sim>, prng: &mut Prng, fixed: Fixed) -> Controller {
        let (release, go) = channel::<()>();
        let (say, held) = channel();
        let (device, sim, mut prng) = (device.clone(), Arc::clone(sim), Prng::new(prng.next()));
        let which = prng.below(5);
        let what = ["freeze", "quiesce", "reconfigure"][which.min(2) as usize];
        let work = move || match which {
            0 => {
                let frozen = device.freeze();
                assert_eq!(device.stats().in_flight, 0, "a frozen device holds nothing");
                say.send(()).unwrap();
                let _ = go.recv();
                drop(frozen);
            }
            1 => {
                let quiesced = device.quiesce();
                sim.world().quiesced = true;
                say.send(()).unwrap();
                let _ = go.recv();
                sim.world().quiesced = false;
                drop(quiesced);
            }
            _ => reconfigure(&device, &sim, &mut prng, fixed),
        };
        #[expect(clippy::disallowed_methods, reason = "a test may own a thread; core may not")]
        let thread = Some(std::thread::spawn(work));
        Controller { thread, release, held, is_held: false, what }
    }

    /// Whether the call is over.
    pub fn is_finished(&mut self) -> bool {
        self.is_held |= self.held.try_recv().is_ok();
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Lets a held device go.
    pub fn release(&mut self) {
        if std::mem::take(&mut self.is_held) {
            let _ = self.release.send(());
        }
    }

    pub fn join(mut self) {
        if let Err(panic) = self.thread.take().unwrap().join() {
            std::panic::resume_unwind(panic);
        }
    }
}

/// What of a device may not change.
#[derive(Clone, Copy)]
pub struct Fixed {
    pub barriers: bool,
    pub nomerges: bool,
}

/// Changes whatever else of a device can be changed under load.
pub fn reconfigure(device: &Device, sim: &Sim, prng: &mut Prng, fixed: Fixed) {
    let depth = device.depth();
    let changed = device.reconfigure(|parts| {
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
        let mut world = sim.world();
        world.limits = parts.limits.clone().validate().unwrap();
        (world.nomerges, world.barriers) = (parts.nomerges, parts.barriers);
    });
    changed.expect("values within their bounds");
}
