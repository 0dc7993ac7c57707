//! Reactors with real threads, devices and time.

mod noted;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use noted::Noted;
use weir_bio::{Bio, Buf, Limits, Nanos, Status};
use weir_live::{
    Clock, Handle, Host, PollMode, PollRule, PollVote, Polling, Readiness, Seat, Service, Turn,
};
use weir_local::{Null, Ram};
use weir_map::{FaultPlan, Faulty};
use weir_queue::{Config, Device, Driver, DriverError, DriverQueue, QueueMode, Queues, Refused};

const SECOND: u64 = 1_000_000_000;

fn device(name: &str, mode: QueueMode, queues: u16, driver: Arc<dyn Driver>) -> Device {
    let config = Config { name: name.into(), mode, queues, ..Config::default() };
    Device::new(config, driver).unwrap()
}

/// Submits reads as it is told and reports how each ended.
struct Reader {
    seat: Seat,
    waiting: Vec<Bio>,
    ended: Sender<(u64, Status)>,
    vote: Option<PollVote>,
}

impl Reader {
    fn install(
        host: &Host,
        reactor: usize,
        device: &Device,
    ) -> (Handle<Reader>, Receiver<(u64, Status)>) {
        let (ended, receiver) = channel();
        let device = device.clone();
        let handle = host.install(reactor, move |turn| {
            let seat = turn.submitter(&device, 5).unwrap();
            Reader { seat, waiting: Vec::new(), ended, vote: None }
        });
        let handle = handle.unwrap();
        (handle, receiver)
    }

    fn submit(&mut self, now: Nanos) {
        let submitter = &mut self.seat.submitter;
        while let Some(bio) = self.waiting.pop() {
            if let Err(refused @ (Refused::Full(_) | Refused::Frozen(_))) =
                submitter.submit(bio, now)
            {
                self.waiting.push(refused.into_bio());
                break;
            }
        }
        submitter.flush_plug(now);
    }

    fn read(handle: &Handle<Reader>, count: u64) {
        handle.post(move |reader, turn| {
            let bios = (0..count).map(|i| Bio::read(i * 64, Buf::zeroed(4096)).cookie(i));
            reader.waiting.extend(bios);
            reader.submit(turn.now());
        });
    }
}

impl Service for Reader {
    fn ready(&mut self, _: &mut Turn<'_>, token: u32, _: Readiness) {
        panic!("nothing is watched, and {token} is ready");
    }

    fn completed(&mut self, turn: &mut Turn<'_>, token: u32) {
        assert_eq!(token, 5);
        let ended = &self.ended;
        self.seat.submitter.complete(turn.now(), |completion| {
            ended.send((completion.cookie, completion.status)).unwrap();
        });
        self.submit(turn.now());
    }

    fn settle(&mut self, _: &mut Turn<'_>) {}
}

fn take(ended: &Receiver<(u64, Status)>, count: u64) -> Vec<(u64, Status)> {
    let limit = Duration::from_secs(20);
    (0..count).map(|_| ended.recv_timeout(limit).expect("every read ends")).collect()
}

#[test]
fn every_reactor_finishes_what_its_services_submit_however_it_waits_and_in_both_queue_modes() {
    for mode in [PollMode::Off, PollMode::Adaptive, PollMode::Always] {
        finish_what_is_submitted(Polling { mode, share: 80 });
    }
}

fn finish_what_is_submitted(polling: Polling) {
    for (mode, queues) in [(QueueMode::Mq, 1), (QueueMode::Mq, 3), (QueueMode::Sq, 1)] {
        for driver in [
            Arc::new(Null::new(1 << 30).unwrap()) as Arc<dyn Driver>,
            Arc::new(Null::new(1 << 30).unwrap().latency_ns(30_000)),
            Arc::new(Ram::new(1 << 30).unwrap()),
        ] {
            let host = Host::with_polling(2, polling).unwrap();
            let device = device("sda", mode, queues, driver);
            host.adopt(&device).unwrap();
            let readers: Vec<_> = (0..2).map(|i| Reader::install(&host, i, &device)).collect();
            readers.iter().for_each(|(handle, _)| Reader::read(handle, 2000));
            for (_, ended) in &readers {
                let mut done = take(ended, 2000);
                done.sort_unstable_by_key(|(cookie, _)| *cookie);
                assert!(done.iter().enumerate().all(|(i, d)| *d == (i as u64, Status::Ok)));
            }
            readers.iter().for_each(|(handle, _)| handle.remove());
            host.stop(10 * SECOND).unwrap();
            assert_eq!(device.stats().in_flight, 0);
            let polls = host.poll_counts().iter().map(|counts| counts.polls).sum::<u64>();
            assert!(polling.mode != PollMode::Off || polls == 0, "{polls} waits were polled");
        }
    }
}

#[test]
fn a_reactor_that_never_sleeps_polls_each_wait_and_none_once_it_is_told_to_sleep() {
    let always = Polling { mode: PollMode::Always, share: 1 };
    let host = Host::with_polling(1, always).unwrap();
    let device = device("sda", QueueMode::Mq, 1, Arc::new(Null::new(1 << 30).unwrap()));
    host.adopt(&device).unwrap();
    let (handle, ended) = Reader::install(&host, 0, &device);
    let counts = || host.poll_counts()[0];
    let read = || {
        Reader::read(&handle, 1);
        take(&ended, 1);
    };
    let begun = Clock.now();
    while counts().met < 10 {
        assert!(Clock.now().since(begun) < 20 * SECOND, "{:?}", counts());
        read();
    }
    host.set_polling(Polling::default());
    // Orders are taken in turn: behind a read the rule holds.
    read();
    let before = counts();
    assert_eq!((before.met, before.vain_ns), (before.polls, 0), "a wait ended in a sleep");
    (0..10).for_each(|_| read());
    assert_eq!(counts(), before);
    handle.remove();
    host.stop(10 * SECOND).unwrap();
}

#[test]
fn a_reactor_polls_while_a_client_asks_for_it_and_the_others_sleep() {
    let host = Host::new(2).unwrap();
    let device = device("sda", QueueMode::Mq, 2, Arc::new(Null::new(1 << 30).unwrap()));
    host.adopt(&device).unwrap();
    let readers: Vec<_> = (0..2).map(|i| Reader::install(&host, i, &device)).collect();
    let read = || {
        for (handle, ended) in &readers {
            Reader::read(handle, 1);
            take(ended, 1);
        }
    };
    let vote = |mode| {
        readers[0].0.post(move |reader, turn| {
            reader.vote = Some(turn.vote(PollRule { mode: Some(mode), share: None }));
        });
    };
    let polls = |reactor: usize| host.poll_counts()[reactor].polls;
    (0..10).for_each(|_| read());
    assert_eq!((polls(0), polls(1)), (0, 0));
    vote(PollMode::Always);
    let begun = Clock.now();
    while polls(0) < 10 {
        assert!(Clock.now().since(begun) < 20 * SECOND, "{:?}", host.poll_counts());
        read();
    }
    let always = Polling { mode: PollMode::Always, share: 80 };
    assert_eq!(host.poll_rules(), [always, Polling::default()]);
    assert_eq!(polls(1), 0);
    // The rule of the host is the weaker one; it is another's all the same.
    host.set_polling(Polling { mode: PollMode::Adaptive, share: 5 });
    read();
    let modes = host.poll_rules().into_iter().map(|rule| (rule.mode, rule.share));
    assert!(modes.eq([(PollMode::Always, 5), (PollMode::Adaptive, 5)]), "{:?}", host.poll_rules());
    host.set_polling(Polling::default());
    read();
    vote(PollMode::Off);
    read();
    let before = host.poll_counts();
    (0..10).for_each(|_| read());
    assert_eq!((polls(0), polls(1)), (before[0].polls, before[1].polls), "none asks for it");
    // A vote goes with the service that holds it.
    vote(PollMode::Always);
    read();
    assert_eq!(host.poll_rules()[0].mode, PollMode::Always);
    readers[0].0.remove();
    let (next, ended) = Reader::install(&host, 0, &device);
    assert_eq!(host.poll_rules()[0], Polling::default());
    Reader::read(&next, 1);
    take(&ended, 1);
    next.remove();
    readers[1].0.remove();
    host.stop(10 * SECOND).unwrap();
}

/// Memory with up to 8 hard queues, which notes those that a request has come to, a bit each.
struct Memory {
    inner: Ram,
    used: Arc<AtomicU64>,
    /// Queues that were prepared and not opened since.
    prepared: Mutex<BTreeSet<u16>>,
    /// When it is asked to prepare a queue it says which, and waits.
    server: Mutex<Option<(Sender<u16>, Receiver<()>)>>,
}

impl Memory {
    fn new() -> Memory {
        Memory {
            inner: Ram::new(1 << 30).unwrap(),
            used: Arc::default(),
            prepared: Mutex::default(),
            server: Mutex::default(),
        }
    }
}

impl Driver for Memory {
    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    fn queues(&self) -> Queues {
        Queues { max: 8, ..self.inner.queues() }
    }

    fn prepare(&self, index: u16) -> Result<(), DriverError> {
        let thread = std::thread::current();
        assert!(!thread.name().unwrap_or("").contains("reactor"), "a reactor would wait");
        // One client at a time waits for it.
        let server = self.server.lock().unwrap().take();
        if let Some((asked, answer)) = server {
            asked.send(index).unwrap();
            if answer.recv().is_err() {
                let what = format!("the server of queue {index} hangs");
                return Err(DriverError { what, source: None });
            }
        }
        self.prepared.lock().unwrap().insert(index);
        Ok(())
    }

    fn open(&self, index: u16, depth: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
        if !self.prepared.lock().unwrap().remove(&index) {
            let what = format!("queue {index} was not prepared");
            return Err(DriverError { what, source: None });
        }
        let inner = self.inner.open(index, depth)?;
        Ok(Box::new(Noted { inner, bit: 1 << index, used: Arc::clone(&self.used) }))
    }
}

#[test]
fn services_that_are_there_already_use_the_queues_a_device_gets_later() {
    let host = Host::new(2).unwrap();
    let memory = Memory::new();
    let used = Arc::clone(&memory.used);
    let sda = device("sda", QueueMode::Mq, 2, Arc::new(memory));
    host.adopt(&sda).unwrap();
    let readers: Vec<_> = (0..8).map(|i| Reader::install(&host, i, &sda)).collect();
    for queues in [2, 8, 4, 8, 1, 2] {
        sda.set_queues(queues).unwrap();
        used.store(0, Ordering::Relaxed);
        for (reader, ended) in &readers {
            Reader::read(reader, 1);
            take(ended, 1);
        }
        assert_eq!(used.load(Ordering::Relaxed), (1 << queues) - 1, "{queues} queues");
    }
    host.stop(10 * SECOND).unwrap();
}

#[test]
fn i_o_goes_on_while_a_driver_prepares_more_queues_and_others_may_change_their_number() {
    let host = Host::new(1).unwrap();
    let memory = Arc::new(Memory::new());
    let sda = device("sda", QueueMode::Mq, 2, Arc::clone(&memory) as Arc<dyn Driver>);
    host.adopt(&sda).unwrap();
    let (reader, ended) = Reader::install(&host, 0, &sda);
    let reads_on = || {
        Reader::read(&reader, 10);
        assert_eq!(take(&ended, 10).len(), 10);
    };
    let limit = Duration::from_secs(20);
    for (others, hangs) in [(None, true), (None, false), (Some(8), false), (Some(1), false)] {
        sda.set_queues(2).unwrap();
        let (asked, asking) = channel();
        let (answer, answers) = channel();
        *memory.server.lock().unwrap() = Some((asked, answers));
        let one = sda.clone();
        let change = std::thread::spawn(move || one.set_queues(4));
        assert_eq!(asking.recv_timeout(limit), Ok(2), "the first of those to come");
        reads_on();
        if let Some(queues) = others {
            sda.set_queues(queues).unwrap();
        }
        if hangs {
            drop(answer);
            let error = change.join().unwrap().unwrap_err().to_string();
            assert!(error.contains("the server of queue 2 hangs"), "{error}");
            assert_eq!(sda.queues(), 2);
        } else {
            answer.send(()).unwrap();
            change.join().unwrap().unwrap();
            assert_eq!(sda.queues(), 4);
        }
        reads_on();
    }
    host.stop(10 * SECOND).unwrap();
}

#[test]
fn a_device_is_adopted_once_and_can_be_released_and_adopted_again() {
    let host = Host::new(2).unwrap();
    let sda = device("sda", QueueMode::Mq, 2, Arc::new(Null::new(1 << 20).unwrap()));
    host.adopt(&sda).unwrap();
    let error = host.adopt(&sda).unwrap_err().to_string();
    assert_eq!(error, "disk sda is on this host already");
    host.release(&sda, 10 * SECOND).unwrap();
    host.adopt(&sda).unwrap();
    let (reader, ended) = Reader::install(&host, 1, &sda);
    Reader::read(&reader, 10);
    assert_eq!(take(&ended, 10).len(), 10);
    host.stop(10 * SECOND).unwrap();
}

#[test]
fn a_stop_waits_for_what_is_under_way() {
    let host = Host::new(1).unwrap();
    let driver = Null::new(1 << 30).unwrap().latency_ns(60_000_000);
    let sda = device("sda", QueueMode::Mq, 1, Arc::new(driver));
    host.adopt(&sda).unwrap();
    let (reader, ended) = Reader::install(&host, 0, &sda);
    Reader::read(&reader, 100);
    host.stop(10 * SECOND).unwrap();
    assert_eq!(take(&ended, 100).len(), 100);
}

#[test]
fn a_service_that_leaves_has_its_reads_finished_without_it() {
    let host = Host::new(1).unwrap();
    let driver = Null::new(1 << 30).unwrap().latency_ns(30_000_000);
    let sda = device("sda", QueueMode::Mq, 1, Arc::new(driver));
    host.adopt(&sda).unwrap();
    let (reader, ended) = Reader::install(&host, 0, &sda);
    Reader::read(&reader, 100);
    reader.remove();
    host.stop(10 * SECOND).unwrap();
    assert_eq!(sda.stats().in_flight, 0);
    assert!(ended.recv().is_err(), "nobody is told");
}

#[test]
fn a_device_that_never_answers_is_named_with_what_is_unfinished() {
    let host = Host::new(2).unwrap();
    let plan = FaultPlan { lost: 100, ..FaultPlan::default() };
    let lossy = Faulty::new(Arc::new(Ram::new(1 << 30).unwrap()), plan, 1);
    let sdb = device("sdb", QueueMode::Mq, 2, Arc::new(lossy));
    let sda = device("sda", QueueMode::Mq, 2, Arc::new(Ram::new(1 << 30).unwrap()));
    host.adopt(&sda).unwrap();
    host.adopt(&sdb).unwrap();
    let (reader, _ended) = Reader::install(&host, 1, &sdb);
    Reader::read(&reader, 3);
    let start = Clock.now();
    let late = host.stop(SECOND / 2).unwrap_err();
    let took = Clock.now().since(start);
    assert!((SECOND / 2..4 * SECOND).contains(&took), "{took} ns");
    assert_eq!(late.len(), 1, "{late:?}");
    assert_eq!((late[0].device.as_str(), late[0].requests), ("sdb", 3));
    assert!(late[0].oldest_ns.is_some_and(|ns| ns >= SECOND / 4), "{late:?}");
}

#[test]
fn a_retired_device_answers_whoever_goes_on_submitting_that_it_is_offline() {
    for (mode, queues) in [(QueueMode::Mq, 2), (QueueMode::Sq, 1)] {
        let host = Host::new(2).unwrap();
        let sda = device("sda", mode, queues, Arc::new(Ram::new(1 << 30).unwrap()));
        host.adopt(&sda).unwrap();
        let (reader, ended) = Reader::install(&host, 0, &sda);
        Reader::read(&reader, 5000);
        host.retire(&sda, 10 * SECOND).unwrap();
        Reader::read(&reader, 5);
        let late = take(&ended, 5005);
        let expected = |status| matches!(status, Status::Ok | Status::Offline);
        assert!(late.iter().all(|(_, status)| expected(*status)), "{mode:?}");
        assert!(late[5000..].iter().all(|(_, status)| *status == Status::Offline), "{mode:?}");
        assert_eq!(sda.stats().in_flight, 0);
        let bell = weir_queue::Bell::new(Box::new(weir_live::Unpark::current()), 1);
        let error = sda.submitter(&bell, 0, 0).err().unwrap().to_string();
        assert_eq!(error, "device sda is being removed");
        assert!(!host.is_here());
        host.stop(10 * SECOND).unwrap();
    }
}
