//! Lanes that have nothing to do are not turned, whatever others do; and each is found again by
//! whatever gives it something to do.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use weir_bio::{Bio, Buf, Limits, Status};
use weir_live::{Handle, Host, Readiness, Seat, Service, Turn};
use weir_local::Null;
use weir_queue::{
    Batch, Cancel, Config, Device, Done, Driver, DriverError, DriverQueue, QueueMode, Queues, Tag,
};

const SECOND: u64 = 1_000_000_000;

/// A disk that counts the turns of its lanes: each asks the driver for answers.
struct Counted {
    inner: Null,
    turns: Arc<AtomicU64>,
}

impl Driver for Counted {
    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    fn queues(&self) -> Queues {
        self.inner.queues()
    }

    fn open(&self, index: u16, depth: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
        let (queue, turns) = (self.inner.open(index, depth)?, Arc::clone(&self.turns));
        Ok(Box::new(CountedQueue { queue, turns }))
    }
}

struct CountedQueue {
    queue: Box<dyn DriverQueue>,
    turns: Arc<AtomicU64>,
}

impl DriverQueue for CountedQueue {
    fn submit(&mut self, batch: &mut Batch<'_>, now: weir_bio::Nanos) {
        self.queue.submit(batch, now);
    }

    fn commit(&mut self, now: weir_bio::Nanos) {
        self.queue.commit(now);
    }

    fn reap(&mut self, now: weir_bio::Nanos, done: &mut Done) {
        self.turns.fetch_add(1, Ordering::Relaxed);
        self.queue.reap(now, done);
    }

    fn cancel(&mut self, tag: Tag) -> Cancel {
        self.queue.cancel(tag)
    }

    fn wake_at(&self) -> Option<weir_bio::Nanos> {
        self.queue.wake_at()
    }

    fn in_flight(&self) -> usize {
        self.queue.in_flight()
    }
}

fn disk(config: Config, latency_ns: u64) -> (Device, Arc<AtomicU64>) {
    let turns = Arc::new(AtomicU64::new(0));
    let inner = Null::new(1 << 30).unwrap().latency_ns(latency_ns);
    let driver = Counted { inner, turns: Arc::clone(&turns) };
    (Device::new(config, Arc::new(driver)).unwrap(), turns)
}

/// Reads as often as it is told, one after the other, and says when that is done.
struct Reader {
    seat: Seat,
    left: u64,
    ended: Sender<()>,
}

impl Reader {
    fn install(host: &Host, reactor: usize, device: &Device) -> (Handle<Reader>, Receiver<()>) {
        let (ended, receiver) = channel();
        let device = device.clone();
        let make = move |turn: &mut Turn<'_>| Reader {
            seat: turn.submitter(&device, 0).unwrap(),
            left: 0,
            ended,
        };
        (host.install(reactor, make).unwrap(), receiver)
    }

    fn go(handle: &Handle<Reader>, count: u64) {
        handle.post(move |reader, turn| {
            reader.left = count;
            reader.submit(turn);
        });
    }

    fn submit(&mut self, turn: &mut Turn<'_>) {
        let bio = Bio::read(0, Buf::zeroed(4096));
        assert!(self.seat.submitter.submit(bio, turn.now()).is_ok(), "one at a time");
        self.seat.submitter.flush_plug(turn.now());
    }
}

impl Service for Reader {
    fn ready(&mut self, _: &mut Turn<'_>, _: u32, _: Readiness) {}

    fn completed(&mut self, turn: &mut Turn<'_>, _: u32) {
        let check = |status| assert_eq!(status, Status::Ok);
        let ended = self.seat.submitter.complete(turn.now(), |done| check(done.status));
        if ended == 0 {
            return;
        }
        self.left -= 1;
        match self.left {
            0 => self.ended.send(()).unwrap(),
            _ => self.submit(turn),
        }
    }

    fn settle(&mut self, _: &mut Turn<'_>) {}
}

fn wait(ended: &Receiver<()>) {
    ended.recv_timeout(Duration::from_secs(20)).expect("every read ends");
}

fn configs() -> impl Iterator<Item = Config> {
    let mq = ["none", "mq-deadline", "kyber", "bfq"].map(|name| (QueueMode::Mq, name));
    let sq = ["noop", "deadline"].map(|name| (QueueMode::Sq, name));
    mq.into_iter().chain(sq).map(|(mode, scheduler)| Config {
        name: format!("{mode:?}-{scheduler}"),
        mode,
        scheduler: Some(scheduler.into()),
        ..Config::default()
    })
}

#[test]
fn an_idle_disk_is_not_turned_while_another_is_busy() {
    let host = Host::new(1).unwrap();
    let idle: Vec<_> = configs().map(|config| disk(config, 0)).collect();
    let (busy, turns) = disk(Config::default(), 0);
    idle.iter().for_each(|(device, _)| host.adopt(device).unwrap());
    host.adopt(&busy).unwrap();
    let (handle, ended) = Reader::install(&host, 0, &busy);
    // Each idle disk has been used, is watched for a time, and found quiet.
    for (device, _) in &idle {
        let (handle, ended) = Reader::install(&host, 0, device);
        Reader::go(&handle, 10);
        wait(&ended);
    }
    Reader::go(&handle, 100);
    wait(&ended);
    let read = || idle.iter().map(|(_, turns)| turns.load(Ordering::Relaxed)).collect::<Vec<_>>();
    let (before, began) = (read(), turns.load(Ordering::Relaxed));
    // Less than the second after which a disk that was used is looked over.
    Reader::go(&handle, 1000);
    wait(&ended);
    let looked_over = 1;
    for ((device, _), (before, after)) in idle.iter().zip(before.into_iter().zip(read())) {
        let name = &device.config().name;
        assert!(after - before <= looked_over, "{name} was turned {} times", after - before);
    }
    assert!(turns.load(Ordering::Relaxed) - began >= 1000, "the busy disk was turned");
    host.stop(10 * SECOND).unwrap();
}

#[test]
fn a_disk_that_rested_is_found_by_work_from_its_own_reactor_another_and_its_own_time() {
    let host = Host::new(2).unwrap();
    let (busy, _) = disk(Config::default(), 0);
    host.adopt(&busy).unwrap();
    let (beside, passed) = Reader::install(&host, 0, &busy);
    for config in configs() {
        let (device, _) = disk(config, 50_000);
        host.adopt(&device).unwrap();
        let readers = [0, 1].map(|reactor| Reader::install(&host, reactor, &device));
        for round in 0..20 {
            // Rounds enough for a disk to be struck off.
            Reader::go(&beside, 40);
            wait(&passed);
            let (handle, ended) = &readers[round % 2];
            Reader::go(handle, 3);
            wait(ended);
            if round % 5 == 0 {
                // An order of the control side finds a lane at rest as well.
                drop(device.freeze());
                drop(device.quiesce());
            }
        }
        host.release(&device, 10 * SECOND).unwrap();
        host.adopt(&device).unwrap();
        Reader::go(&readers[0].0, 3);
        wait(&readers[0].1);
        readers.iter().for_each(|(handle, _)| handle.remove());
    }
    host.stop(10 * SECOND).unwrap();
}
