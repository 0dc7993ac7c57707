//! The stop of a host whose devices lie on one another.

use std::sync::Arc;

use weir_bio::{Bio, Buf, Status};
use weir_live::{Clock, Host, Unpark};
use weir_local::ram::{Cache, CrashRam};
use weir_map::multipath::Multipath;
use weir_map::multipath::settings::Settings;
use weir_map::multipath::table::Table;
use weir_map::{FaultPlan, Faulty};
use weir_queue::{Bell, Config, Device, Driver};

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

fn write(device: &Device) -> Status {
    let bell = Bell::new(Box::new(Unpark::current()), 1);
    let mut submitter = device.submitter(&bell, 0, 0).unwrap();
    submitter.submit(Bio::write(0, Buf::zeroed(4096)), Clock.now()).unwrap();
    submitter.flush_plug(Clock.now());
    let mut status = None;
    while status.is_none() {
        std::thread::yield_now();
        submitter.complete(Clock.now(), |completion| status = Some(completion.status));
    }
    status.expect("it ended")
}

#[test]
fn a_path_that_cannot_be_flushed_is_closed_once_the_disk_above_was_flushed() {
    for (by_client, barriers, fails) in
        [(false, true, false), (true, true, true), (false, false, true)]
    {
        let ram = cached();
        let plan = FaultPlan { failed: 100, ..FaultPlan::default() };
        let a = device("a", true, Arc::clone(&ram) as Arc<dyn Driver>);
        let b = device("b", true, Arc::new(Faulty::new(cached(), plan, 1)));
        let above = over(&a, &b, barriers);
        let host = Host::new(2).unwrap();
        for device in [&a, &b, &above] {
            host.adopt(device).unwrap();
        }
        assert_eq!(write(&above), Status::Ok);
        if by_client {
            // Half of the writes that fail have reached the medium.
            assert_eq!(write(&b), Status::IoErr);
        }
        let end = host.stop(10 * SECOND);
        assert_eq!(ram.unflushed(), 0, "by client {by_client}, barriers {barriers}");
        match end {
            Ok(()) => assert!(!fails, "by client {by_client}, barriers {barriers}"),
            Err(late) => {
                let said: Vec<String> = late.iter().map(ToString::to_string).collect();
                assert!(fails, "by client {by_client}, barriers {barriers}: {said:?}");
                assert_eq!(said, ["disk b: the last flush failed: I/O error"]);
            }
        }
    }
}
