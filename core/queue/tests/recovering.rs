//! A driver that sees to the time of its requests itself, as a mid-layer with an error handler.

use std::sync::{Arc, Mutex};

use weir_bio::{Bio, Buf, Limits, Nanos, Status};
use weir_queue::driver::Affinity;
use weir_queue::{
    Batch, Bell, Cancel, Config, Device, Done, Driver, DriverError, DriverQueue, Home, NoWake,
    Queues, Tag,
};

const SECOND: u64 = 1_000_000_000;

#[derive(Default)]
struct State {
    held: Vec<Tag>,
    /// How often it was asked to cancel.
    asked: usize,
    /// What it says then.
    gives_up: bool,
    /// Answers now.
    answers: bool,
    timeouts: Vec<u64>,
}

struct Unit(Arc<Mutex<State>>);

impl Driver for Unit {
    fn limits(&self) -> Limits {
        Limits { capacity: 1 << 20, ..Limits::default() }
    }

    fn queues(&self) -> Queues {
        Queues { max: 1, depth: 4, reserved: 0, shared_tags: false, home: Affinity::Any }
    }

    fn follow_timeout(&self, timeout_ns: u64) {
        self.0.lock().unwrap().timeouts.push(timeout_ns);
    }

    fn open(&self, _: u16, _: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
        Ok(Box::new(UnitQueue(Arc::clone(&self.0))))
    }
}

struct UnitQueue(Arc<Mutex<State>>);

impl DriverQueue for UnitQueue {
    fn submit(&mut self, batch: &mut Batch<'_>, _: Nanos) {
        batch.take_all(|tag, _| self.0.lock().unwrap().held.push(tag));
    }

    fn commit(&mut self, _: Nanos) {}

    fn reap(&mut self, _: Nanos, done: &mut Done) {
        let mut state = self.0.lock().unwrap();
        if state.answers {
            state.held.drain(..).for_each(|tag| done.push(tag, Status::Medium));
        }
    }

    fn cancel(&mut self, _: Tag) -> Cancel {
        let mut state = self.0.lock().unwrap();
        state.asked += 1;
        if state.gives_up { Cancel::Pending } else { Cancel::Recovering }
    }

    fn in_flight(&self) -> usize {
        self.0.lock().unwrap().held.len()
    }
}

struct Bench {
    state: Arc<Mutex<State>>,
    device: Device,
    home: Home,
    client: weir_queue::Submitter,
    now: Nanos,
}

impl Bench {
    fn new() -> Bench {
        let state = Arc::new(Mutex::new(State::default()));
        let config = Config { scheduler: Some("none".into()), ..Config::default() };
        let device = Device::new(config, Arc::new(Unit(Arc::clone(&state)))).unwrap();
        let mut home = Home::strict(Bell::with_lanes(Box::new(NoWake), 4));
        home.open(&device, 0).unwrap();
        let mut client = device.submitter(home.bell(), 0, 0).unwrap();
        let now = Nanos(SECOND);
        client.submit(Bio::read(0, Buf::zeroed(512)), now).unwrap();
        client.flush_plug(now);
        Bench { state, device, home, client, now }
    }

    /// So many seconds pass; the ends.
    fn pass(&mut self, seconds: u64) -> Vec<Status> {
        let mut ended = Vec::new();
        for _ in 0..seconds * 4 {
            self.now = self.now + SECOND / 4;
            self.home.turn_all(self.now);
            self.client.complete(self.now, |end| ended.push(end.status));
        }
        ended
    }

    fn asked(&self) -> usize {
        self.state.lock().unwrap().asked
    }
}

#[test]
fn a_request_that_its_driver_recovers_stays_in_flight_and_is_asked_about_at_each_look() {
    let mut bench = Bench::new();
    assert_eq!((bench.pass(29), bench.asked()), (vec![], 0));
    assert_eq!(bench.pass(31), []);
    let asked = bench.asked();
    assert!((28..=32).contains(&asked), "{asked} times in half a minute");
    bench.state.lock().unwrap().answers = true;
    assert_eq!(bench.pass(1), [Status::Medium], "the driver's own words");
    assert_eq!((bench.pass(60), bench.asked()), (vec![], asked), "there is nothing to ask about");
}

#[test]
fn a_driver_that_gives_up_recovering_has_its_request_told_as_timed_out() {
    let mut bench = Bench::new();
    assert_eq!(bench.pass(40), []);
    bench.state.lock().unwrap().gives_up = true;
    assert_eq!(bench.pass(2), [Status::Timeout]);
    let asked = bench.asked();
    assert_eq!((bench.pass(60), bench.asked()), (vec![], asked), "once");
}

#[test]
fn a_driver_is_told_how_long_requests_may_take() {
    let mut bench = Bench::new();
    // A device is frozen for a change, so nothing may be in flight.
    bench.state.lock().unwrap().answers = true;
    assert_eq!(bench.pass(1), [Status::Medium]);
    bench.device.reconfigure(|settings| settings.timeout_ns = 5 * SECOND).unwrap();
    bench.device.reconfigure(|settings| settings.nomerges = 1).unwrap();
    assert_eq!(bench.state.lock().unwrap().timeouts, [30 * SECOND, 5 * SECOND]);
}
