//! Calls that would wait for ever: of a reactor for itself, and of a host that has ended.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use weir_bio::{Bio, Buf, Nanos};
use weir_live::{Handle, Host, Limited, Readiness, Seat, Service, Turn, Unpark};
use weir_local::{Null, Ram};
use weir_map::{FaultPlan, Faulty};
use weir_queue::{Bell, Config, Device, Driver, Error};

const SECOND: u64 = 1_000_000_000;

/// How long anything may take on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(60);

fn device(name: &str, queues: u16, driver: Arc<dyn Driver>) -> Device {
    let config = Config { name: name.into(), queues, ..Config::default() };
    Device::new(config, driver).unwrap()
}

fn ram(name: &str) -> Device {
    device(name, 2, Arc::new(Ram::new(1 << 20).unwrap()))
}

struct Idle;

impl Service for Idle {
    fn ready(&mut self, _: &mut Turn<'_>, _: u32, _: Readiness) {}
    fn completed(&mut self, _: &mut Turn<'_>, _: u32) {}
    fn settle(&mut self, _: &mut Turn<'_>) {}
}

/// The result of `call` when a reactor of `host` makes it.
fn on_reactor<T: Send + 'static>(
    host: &Arc<Host>,
    call: impl FnOnce(&Host) -> T + Send + 'static,
) -> T {
    let (said, says) = channel();
    let inside = Arc::downgrade(host);
    let handle = host.install(1, |_| Idle).unwrap();
    handle.post(move |_, _| {
        let host = inside.upgrade().unwrap();
        said.send(call(&host)).unwrap();
    });
    says.recv_timeout(PATIENCE).expect("a reactor that waits for itself hangs")
}

#[test]
fn a_reactor_that_would_wait_for_itself_is_told_so() {
    let host = Arc::new(Host::new(2).unwrap());
    let (sda, sdb) = (ram("sda"), ram("sdb"));
    host.adopt(&sda).unwrap();
    let one = sdb.clone();
    let said = on_reactor(&host, move |host| host.adopt(&one).unwrap_err().to_string());
    assert_eq!(said, "disk sdb: a reactor cannot open it, as it would wait for itself");
    for retire in [true, false] {
        let one = sda.clone();
        let said = on_reactor(&host, move |host| {
            let end = if retire { host.retire(&one, SECOND) } else { host.release(&one, SECOND) };
            end.unwrap_err().to_string()
        });
        assert_eq!(said, "disk sda: a reactor cannot close it, as it would wait for itself");
    }
    let said = on_reactor(&host, |host| host.stop(SECOND).unwrap_err()[0].to_string());
    assert_eq!(said, "a reactor cannot stop its host, as it would wait for itself");
    let said = on_reactor(&host, |host| host.install(1, |_| Idle).err().unwrap().to_string());
    assert_eq!(said, "a reactor cannot install a service, as it would wait for itself");
    let one = sda.clone();
    let said = on_reactor(&host, move |_| {
        let call = Limited::of(&one);
        [
            call.set_queues(1).unwrap_err().to_string(),
            call.set_scheduler("none").unwrap_err().to_string(),
            call.reconfigure(|parts| parts.nomerges = 2).unwrap_err().to_string(),
            call.freeze().err().unwrap().to_string(),
            call.quiesce().err().unwrap().to_string(),
        ]
    });
    let expected = "disk sda: a reactor cannot change it, as it would wait for itself";
    assert!(said.iter().all(|said| said == expected), "{said:?}");
    assert_eq!((sda.queues(), sda.settings().nomerges), (2, 0));
    host.stop(10 * SECOND).unwrap();
}

#[test]
fn a_host_that_has_ended_says_so() {
    let host = Host::new(2).unwrap();
    let sda = ram("sda");
    host.stop(10 * SECOND).unwrap();
    let error = host.adopt(&sda).unwrap_err().to_string();
    assert_eq!(error, "disk sda: its host has ended");
    let error = host.install(1, |_| Idle).err().unwrap().to_string();
    assert_eq!(error, "reactor 1 has ended");
    host.retire(&sda, SECOND).unwrap();
    host.stop(SECOND).unwrap();
}

#[test]
fn the_queues_of_a_disk_whose_host_is_dropped_stay_as_they_are() {
    let host = Host::new(2).unwrap();
    let sda = ram("sda");
    host.adopt(&sda).unwrap();
    let ended = host.install(0, |_| Idle).unwrap();
    drop(host);
    // The reactors end soon after; until then they still open lanes.
    wait_for_end(&ended);
    let error = Limited::of(&sda).within(10 * SECOND).set_queues(1).unwrap_err();
    assert!(matches!(error, Error::Invalid(_) | Error::Dying(_)), "{error}");
    assert_eq!(sda.queues(), 2);
}

/// Waits until the reactor of this service takes nothing any more.
fn wait_for_end(handle: &Handle<Idle>) {
    loop {
        let (sender, receiver) = channel::<()>();
        handle.post(move |_, _| sender.send(()).unwrap_or_default());
        match receiver.recv_timeout(PATIENCE) {
            Ok(()) => std::thread::yield_now(),
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => panic!("an order is neither run nor dropped"),
        }
    }
}

/// Says when it is dropped.
struct Told(Sender<()>);

impl Drop for Told {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

#[test]
fn what_is_posted_to_a_reactor_that_has_ended_is_dropped_at_once() {
    let host = Host::new(1).unwrap();
    let handle = host.install(0, |_| Idle).unwrap();
    host.stop(10 * SECOND).unwrap();
    let (dropped, drops) = channel();
    for _ in 0..1000 {
        let told = Told(dropped.clone());
        handle.post(move |_, _| drop(told));
    }
    assert_eq!(drops.try_iter().count(), 1000, "the rest is kept for ever");
}

/// Threads of this process by the name they have.
fn threads_called(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| {
        // A thread may end meanwhile.
        std::fs::read_to_string(task.unwrap().path().join("comm")).ok()
    });
    names.filter(|found| found.trim() == name).count()
}

struct Lost {
    seat: Seat,
}

impl Service for Lost {
    fn ready(&mut self, _: &mut Turn<'_>, _: u32, _: Readiness) {}
    fn completed(&mut self, _: &mut Turn<'_>, _: u32) {}
    fn settle(&mut self, _: &mut Turn<'_>) {}
}

#[test]
fn a_thousand_devices_are_closed_by_one_thread_and_the_silent_ones_are_named() {
    let host = Host::new(2).unwrap();
    let lose = FaultPlan { lost: 100, ..FaultPlan::default() };
    let mut silent = Vec::new();
    for index in 0..1000_usize {
        let null = Arc::new(Null::new(1 << 20).unwrap());
        let driver: Arc<dyn Driver> = match index % 100 {
            7 => Arc::new(Faulty::new(null, lose.clone(), 1)),
            _ => null,
        };
        let device = device(&format!("d{index}"), 1, driver);
        host.adopt(&device).unwrap();
        if index % 100 == 7 {
            let one = device.clone();
            let handle =
                host.install(0, move |turn| Lost { seat: turn.submitter(&one, 0).unwrap() });
            handle.unwrap().post(|lost, turn| {
                let bio = Bio::write(0, Buf::zeroed(4096));
                lost.seat.submitter.submit(bio, turn.now()).unwrap();
                lost.seat.submitter.flush_plug(turn.now());
            });
            silent.push((index, device));
        }
    }
    let late = host.stop(2 * SECOND).unwrap_err();
    // One that was joined may still be listed for a moment.
    let began = Instant::now();
    while threads_called("weir-drain") > 0 {
        assert!(began.elapsed() < Duration::from_secs(60), "a thread is left behind");
        std::thread::yield_now();
    }
    let named: Vec<String> = late.iter().map(|late| late.device.clone()).collect();
    let expected: Vec<String> = silent.iter().map(|(index, _)| format!("d{index}")).collect();
    assert_eq!(named, expected);
    for (late, (_, device)) in late.iter().zip(&silent) {
        assert_eq!(late.requests, 1, "{late}");
        assert!(late.oldest_ns.is_some(), "{late}");
        assert!(!device.is_offline(), "{late}");
    }
}

#[test]
fn a_control_call_that_is_late_is_given_up_with_what_it_waited_for() {
    let host = Host::new(1).unwrap();
    let plan = FaultPlan { lost: 100, ..FaultPlan::default() };
    let driver = Faulty::new(Arc::new(Null::new(1 << 20).unwrap()), plan, 1);
    let sda = device("sda", 1, Arc::new(driver));
    host.adopt(&sda).unwrap();
    let bell = Bell::new(Box::new(Unpark::current()), 1);
    let mut submitter = sda.submitter(&bell, 0, 0).unwrap();
    let write = || Bio::write(0, Buf::zeroed(4096));
    submitter.submit(write(), Nanos::ZERO).unwrap();
    submitter.flush_plug(Nanos::ZERO);
    let call = Limited::of(&sda).within(SECOND / 10);
    for error in [
        call.set_scheduler("none").unwrap_err(),
        call.reconfigure(|parts| parts.nomerges = 2).unwrap_err(),
        call.freeze().err().unwrap(),
    ] {
        let text = error.to_string();
        assert!(text.starts_with("disk sda: given up after 0."), "{text}");
        assert!(text.ends_with(" s of waiting for 1 request to end"), "{text}");
    }
    assert_eq!((sda.scheduler(), sda.settings().nomerges), ("mq-deadline", 0));
    submitter.submit(write(), Nanos::ZERO).expect("the gate is open");
    submitter.flush_plug(Nanos::ZERO);
    drop(call.quiesce().unwrap());
}
