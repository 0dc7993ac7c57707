//! The load of benches of one device: random I/O of 4 KiB, 70 % reads, by one thread in rounds.
//! Other crates' benches take it in by its path.

use weir_bio::{Bio, Buf, Data, Nanos, Op, Prng};
use weir_queue::{Bell, Device, Home, Submitter};
use weir_ring::NoWake;

const BATCH: usize = 32;
/// I/Os under way at most.
pub const DEPTH: usize = 128;
const SEED: u64 = 1;

#[expect(clippy::disallowed_methods, reason = "a bench measures time; the crate takes `now`")]
fn clock() -> std::time::Instant {
    std::time::Instant::now()
}

/// A home that is turned by hand.
pub fn home() -> Home {
    Home::new(Bell::with_lanes(Box::new(NoWake), 16))
}

/// A submitter of the device, and all that its I/O takes.
pub struct Load {
    home: Home,
    submitter: Submitter,
    sectors: u64,
    spare: Vec<Buf>,
    prng: Prng,
    now: u64,
}

impl Load {
    /// On a device with so many sectors, whose lane is opened in this home.
    pub fn new(mut home: Home, device: &Device, sectors: u64) -> Load {
        home.open(device, 0).expect("a lane");
        let submitter = device.submitter(home.bell(), 0, 0).expect("a submitter");
        let spare = (0..DEPTH).map(|_| Buf::zeroed(4096)).collect();
        Load { home, submitter, sectors, spare, prng: Prng::new(SEED), now: 1 }
    }

    fn submit(&mut self, buf: Buf) {
        let op = if self.prng.percent(70) { Op::Read } else { Op::Write };
        let bio = Bio::new(op, self.prng.below(self.sectors / 8) * 8, 8, Data::One(buf));
        self.submitter.submit(bio, Nanos(self.now)).expect("room");
    }

    /// Nanoseconds of each of so many I/Os, and a checksum.
    pub fn round(&mut self, ios: u64) -> (f64, u64) {
        let (mut left, mut checksum) = (ios, 0);
        let begun = clock();
        while left > 0 {
            for _ in 0..BATCH.min(self.spare.len()) {
                let buf = self.spare.pop().expect("memory");
                self.submit(buf);
                left = left.saturating_sub(1);
            }
            self.turn(&mut checksum);
        }
        while self.spare.len() < DEPTH {
            self.turn(&mut checksum);
        }
        (begun.elapsed().as_nanos() as f64 / ios as f64, checksum)
    }

    fn turn(&mut self, checksum: &mut u64) {
        self.now += 1000;
        let now = Nanos(self.now);
        self.submitter.flush_plug(now);
        self.home.turn(now);
        self.home.bell().ready().take(|_| {});
        let spare = &mut self.spare;
        self.submitter.complete(now, |end| {
            assert!(end.status.is_ok());
            *checksum += u64::from(end.sectors);
            spare.push(end.data.into_spare().expect("its memory"));
        });
    }
}
