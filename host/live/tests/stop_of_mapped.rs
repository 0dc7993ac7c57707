//! The stop of a host whose devices lie on one another.

use std::sync::Arc;

use weir_bio::{Bio, Buf, Status};
use weir_live::{Clock, Host, Unpark};
use weir_local::ram::{Cache, CrashRam};
use weir_map::multipath::Multipath;
use weir_map::multipath::settings::Settings;
use weir_map::multipath::table::Table;
use weir_map::{FaultPlan, Faulty};
use weir_queue::{Bell, Config, Device, Driver, Submitter};

const SECOND: u64 = 1_000_000_000;

fn cached() -> Arc<CrashRam> {
    Arc::new(CrashRam::new(1 << 20, Cache { volatile: true, fua: false }).unwrap())
}

fn device(name: &str, barriers: bool, driver: Arc<dyn Driver>) -> Device {
    let config = Config { name: name.into(), barriers, ..Config::default() };
    Device::new(config, driver).unwrap()
}

/// A disk over the path `a`, with the path `b` in reserve.
fn over(a: &Device, b: &Device, barriers: bool) -> Device {
    let table = Table::parse("0 0 2 1 round-robin 0 1 0 a round-robin 0 1 0 b").unwrap();
    let legs = vec![a.clone(), b.clone()];
    let multipath = Multipath::new(table, legs.clone(), Settings::default()).unwrap();
    let above = device("m", barriers, Arc::new(multipath));
    above.lies_on(&legs);
    above
}

fn submitter(device: &Device) -> Submitter {
    let bell = Bell::new(Box::new(Unpark::current()), 1);
    device.submitter(&bell, 0, 0).unwrap()
}

fn send(submitter: &mut Submitter) {
    submitter.submit(Bio::write(0, Buf::zeroed(4096)), Clock.now()).unwrap();
    submitter.flush_plug(Clock.now());
}

fn write(device: &Device) -> Status {
    let mut submitter = submitter(device);
    send(&mut submitter);
    let mut status = None;
    while status.is_none() {
        std::thread::yield_now();
        submitter.complete(Clock.now(), |completion| status = Some(completion.status));
    }
    status.expect("it ended")
}

/// The path `b` of a disk, of which each request fails.
struct Paths {
    host: Host,
    ram: Arc<CrashRam>,
    a: Device,
    b: Device,
    above: Device,
}

impl Paths {
    fn new(barriers: bool) -> Paths {
        let ram = cached();
        let plan = FaultPlan { failed: 100, ..FaultPlan::default() };
        let a = device("a", true, Arc::clone(&ram) as Arc<dyn Driver>);
        let b = device("b", true, Arc::new(Faulty::new(cached(), plan, 1)));
        let above = over(&a, &b, barriers);
        let host = Host::new(2).unwrap();
        for device in [&a, &b, &above] {
            host.adopt(device).unwrap();
        }
        Paths { host, ram, a, b, above }
    }

    /// What is said of the stop. Nothing that was answered is lost.
    fn stop(self) -> Vec<String> {
        let end = self.host.stop(10 * SECOND);
        assert_eq!(self.ram.unflushed(), 0);
        end.err().unwrap_or_default().iter().map(ToString::to_string).collect()
    }
}

const FAILED: &str = "disk b: the last flush failed: I/O error";

#[test]
fn a_path_that_cannot_be_flushed_is_closed_once_the_disk_above_was_flushed() {
    let paths = Paths::new(true);
    assert_eq!(write(&paths.above), Status::Ok);
    assert_eq!(paths.stop(), [""; 0]);
}

#[test]
fn a_disk_above_that_sends_no_flush_leaves_that_to_its_paths() {
    let paths = Paths::new(false);
    assert_eq!(write(&paths.above), Status::Ok);
    assert_eq!(paths.stop(), [FAILED]);
}

#[test]
fn a_path_with_a_client_of_its_own_is_flushed_whatever_is_known_of_its_writes() {
    // Half of the writes that fail have reached the medium.
    let paths = Paths::new(true);
    assert_eq!(write(&paths.b), Status::IoErr);
    assert_eq!(paths.stop(), [FAILED]);
    // No figure tells of them.
    let paths = Paths::new(true);
    paths.b.reconfigure(|settings| settings.iostats = false).unwrap();
    assert_eq!(write(&paths.b), Status::IoErr);
    assert_eq!(paths.stop(), [FAILED]);
    // The submitter is gone before its write has ended.
    let paths = Paths::new(true);
    send(&mut submitter(&paths.b));
    assert_eq!(paths.stop(), [FAILED]);
}

#[test]
fn a_disk_above_that_is_gone_without_a_flush_leaves_that_to_its_paths() {
    type End = fn(&Host, Device);
    let taken: End = |_, above| above.take_offline();
    // It is flushed, and nothing tells so of a device that is only dropped.
    let dropped: End = |host, above| host.release(&above, SECOND).unwrap();
    let retired: End = |host, above| host.retire(&above, SECOND).unwrap();
    for (end, said) in [(taken, vec![FAILED]), (dropped, vec![FAILED]), (retired, vec![])] {
        let Paths { host, ram, a, b, above } = Paths::new(true);
        let other = over(&a, &b, true);
        host.adopt(&other).unwrap();
        assert_eq!(write(&other), Status::Ok);
        end(&host, other);
        assert_eq!(Paths { host, ram, a, b, above }.stop(), said);
    }
}
