//! Random reads submitted and answered on a reactor, as a daemon serves its clients: the reactor
//! sleeps on its descriptors and is woken by the driver's event.

use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use weir_bench::cpu::thread_time;
use weir_bio::{Bio, Buf, Nanos, Prng, Status};
use weir_live::{Host, PollMode, Polling, Readiness, Seat, Service, Turn};

/// Bytes of a read, and sectors.
const BLOCK: u64 = 4096;
const SECTORS: u64 = BLOCK / 512;

/// For a reactor that has nothing to do to end.
const STOP_NS: u64 = 10_000_000_000;

/// What a reactor reads, and for how long.
pub struct Load<'a> {
    pub target: &'a str,
    pub bytes: u64,
    pub depth: u32,
    pub ramp: Duration,
    pub runtime: Duration,
    pub seed: u64,
    pub poll: PollMode,
}

/// Reads for as long as the load says: I/Os a second, and CPU ns of the reactor's thread per I/O.
/// The reactor runs on the CPUs of the calling thread.
pub fn run(load: &Load<'_>) -> (f64, f64) {
    let target = weir::Target::parse(load.target).expect("a target");
    let opened = weir::open("file", &target, 1).expect("the file opens");
    let polling = Polling { mode: load.poll, ..Polling::default() };
    let host = Host::with_polling(1, polling).expect("a reactor");
    host.adopt(&opened.device).expect("the disk's lanes");
    let (said, outcome) = channel();
    let (device, Load { bytes, depth, ramp, runtime, seed, .. }) = (opened.device.clone(), load);
    let (places, depth, seed) = (bytes / BLOCK, *depth, *seed);
    let (ramp, runtime) = (*ramp, *runtime);
    let make = move |turn: &mut Turn<'_>| {
        let mut reader = Reader {
            seat: turn.submitter(&device, 0).expect("a submitter"),
            spare: (0..depth).map(|_| Buf::zeroed(BLOCK as usize)).collect(),
            prng: Prng::new(seed),
            places,
            counted: Instant::now() + ramp,
            runtime,
            begun: None,
            ios: 0,
            said: Some(said),
        };
        reader.submit(turn.now());
        reader
    };
    let handle = host.install(0, make).expect("a service");
    let outcome = outcome.recv().expect("the reactor reads");
    handle.remove();
    host.stop(STOP_NS).expect("the reactor ends");
    outcome
}

/// Keeps as many reads under way as it has buffers.
struct Reader {
    seat: Seat,
    spare: Vec<Buf>,
    prng: Prng,
    places: u64,
    /// When reads begin to count.
    counted: Instant,
    runtime: Duration,
    /// When they did, and the thread's CPU time then.
    begun: Option<(Instant, Duration)>,
    /// Reads that ended since.
    ios: u64,
    /// Takes the outcome; gone when it is said.
    said: Option<Sender<(f64, f64)>>,
}

impl Reader {
    fn submit(&mut self, now: Nanos) {
        while let Some(buf) = self.spare.pop() {
            let sector = self.prng.below(self.places) * SECTORS;
            let refused = self.seat.submitter.submit(Bio::read(sector, buf), now);
            assert!(refused.is_ok(), "a slot for each");
        }
        self.seat.submitter.flush_plug(now);
    }

    /// Begins to count, or says what was counted, when the time has come.
    fn look_at_time(&mut self) {
        let now = Instant::now();
        match self.begun {
            None if now >= self.counted => {
                self.begun = Some((now, thread_time()));
                self.ios = 0;
            }
            Some((begun, cpu)) if now - begun >= self.runtime => {
                let ios = self.ios as f64;
                let spent = (thread_time() - cpu).as_nanos() as f64;
                let outcome = (ios / (now - begun).as_secs_f64(), spent / ios);
                if let Some(said) = self.said.take() {
                    said.send(outcome).expect("the bench waits for it");
                }
            }
            None | Some(_) => {}
        }
    }
}

impl Service for Reader {
    fn ready(&mut self, _: &mut Turn<'_>, _: u32, _: Readiness) {}

    fn completed(&mut self, turn: &mut Turn<'_>, _: u32) {
        let Reader { seat, spare, ios, .. } = self;
        seat.submitter.complete(turn.now(), |done| {
            assert_eq!(done.status, Status::Ok);
            *ios += 1;
            spare.extend(done.data.into_spare());
        });
        self.look_at_time();
        if self.said.is_some() {
            self.submit(turn.now());
        }
    }

    fn settle(&mut self, _: &mut Turn<'_>) {}
}
