//! A device whose requests need a place beside their tags, as the commands of a logical unit do.

use std::sync::{Arc, Mutex};

use weir_bio::{Bio, Buf, Limits, Nanos, Prng, Status};
use weir_laws::Tell;
use weir_queue::driver::Affinity;
use weir_queue::{
    Batch, Bell, Budget, Config, Device, Done, Driver, DriverError, DriverQueue, Home, NoWake,
    QueueMode, Queues, Refused, Submitter, Tag, Wake,
};

/// A unit with so many places, on all its queues together.
struct Unit(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    places: usize,
    /// Got and not given up.
    out: usize,
    /// Queues that wait for places.
    short: Vec<bool>,
    lanes: Vec<Option<Arc<dyn Wake>>>,
    /// By queue.
    under_way: Vec<Vec<Tag>>,
    peak: usize,
    /// Requests taken, as first sector and sectors.
    taken: Vec<(u64, u32)>,
    refuses: bool,
}

fn lock(state: &Mutex<State>) -> std::sync::MutexGuard<'_, State> {
    state.lock().expect("the unit's lock")
}

/// The places of all its queues.
struct Places(Arc<Mutex<State>>);

impl State {
    fn give_up(&mut self, places: usize) -> Vec<Arc<dyn Wake>> {
        assert!(self.out >= places, "{places} are given up of {}", self.out);
        self.out -= places;
        if places == 0 { Vec::new() } else { self.wake_short() }
    }

    fn wake_short(&mut self) -> Vec<Arc<dyn Wake>> {
        let short: Vec<usize> = (0..self.short.len()).filter(|lane| self.short[*lane]).collect();
        self.short.iter_mut().for_each(|short| *short = false);
        short.into_iter().filter_map(|lane| self.lanes[lane].clone()).collect()
    }
}

impl Budget for Places {
    fn get(&self, _: u16, wanted: usize) -> usize {
        assert!(wanted > 0);
        let mut state = lock(&self.0);
        let got = wanted.min(state.places - state.out);
        state.out += got;
        got
    }

    fn put(&self, unused: usize) {
        assert!(unused > 0);
        let short = lock(&self.0).give_up(unused);
        short.iter().for_each(|lane| lane.wake());
    }

    fn wait(&self, lane: u16) {
        let mut state = lock(&self.0);
        let lane = usize::from(lane);
        let lanes = state.short.len().max(lane + 1);
        state.short.resize(lanes, false);
        state.short[lane] = true;
        let short = if state.out < state.places { state.wake_short() } else { Vec::new() };
        drop(state);
        short.iter().for_each(|lane| lane.wake());
    }
}

impl Driver for Unit {
    fn limits(&self) -> Limits {
        Limits { capacity: 1 << 20, ..Limits::default() }
    }

    fn queues(&self) -> Queues {
        Queues { max: 4, depth: 32, reserved: 0, shared_tags: false, home: Affinity::Any }
    }

    fn budget(&self) -> Option<Arc<dyn Budget>> {
        Some(Arc::new(Places(Arc::clone(&self.0))))
    }

    fn open(&self, index: u16, _: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
        let mut state = lock(&self.0);
        let index = usize::from(index);
        let length = state.under_way.len().max(index + 1);
        state.under_way.resize_with(length, Vec::new);
        state.lanes.resize_with(length, || None);
        Ok(Box::new(UnitQueue(Arc::clone(&self.0), index)))
    }
}

struct UnitQueue(Arc<Mutex<State>>, usize);

impl DriverQueue for UnitQueue {
    fn at_home(&mut self, lane: Arc<dyn Wake>) {
        lock(&self.0).lanes[self.1] = Some(lane);
    }

    fn submit(&mut self, batch: &mut Batch<'_>, _: Nanos) {
        let mut state = lock(&self.0);
        if state.refuses {
            return batch.refuse(Status::Resource);
        }
        let lane = self.1;
        batch.take_all(|tag, request| {
            let rq = request.rq();
            assert_eq!(rq.flags.0 >> 17, 0, "a mark of the core's own");
            state.taken.push((rq.sector, rq.sectors));
            state.under_way[lane].push(tag);
        });
        let all = state.under_way.iter().map(Vec::len).sum();
        assert!(all <= state.out, "{all} requests on {} places", state.out);
        state.peak = state.peak.max(all);
    }

    fn commit(&mut self, _: Nanos) {}

    fn reap(&mut self, _: Nanos, done: &mut Done) {
        let mut state = lock(&self.0);
        let lane = self.1;
        let answers = std::mem::take(&mut state.under_way[lane]);
        answers.iter().for_each(|tag| done.push(*tag, Status::Ok));
        let short = state.give_up(answers.len());
        drop(state);
        short.iter().for_each(|lane| lane.wake());
    }

    fn announces(&self) -> bool {
        true
    }

    fn in_flight(&self) -> usize {
        lock(&self.0).under_way[self.1].len()
    }
}

struct Bench {
    state: Arc<Mutex<State>>,
    device: Device,
    homes: Vec<Home>,
    clients: Vec<Submitter>,
    now: Nanos,
}

impl Bench {
    fn new(scheduler: &str, queues: u16, places: usize) -> Bench {
        let state = Arc::new(Mutex::new(State { places, ..State::default() }));
        let mode = if scheduler == "noop" { QueueMode::Sq } else { QueueMode::Mq };
        let scheduler = Some(scheduler.to_owned());
        let config = Config { scheduler, mode, queues, timeout_ns: 0, ..Config::default() };
        let device = Device::new(config, Arc::new(Unit(Arc::clone(&state)))).unwrap();
        let (mut homes, mut clients) = (Vec::new(), Vec::new());
        for index in 0..usize::from(queues) {
            let mut home = Home::strict(Bell::with_lanes(Box::new(NoWake), 4));
            home.open(&device, index).unwrap();
            clients.push(device.submitter(home.bell(), 0, index).unwrap());
            homes.push(home);
        }
        Bench { state, device, homes, clients, now: Nanos(1) }
    }

    /// Turns those homes that have a reason, until none has; those that answer have one.
    fn run(&mut self, answers: &[bool]) {
        for (lane, home) in self.homes.iter_mut().enumerate() {
            if answers[lane] {
                let places: Vec<usize> = home.lanes().map(weir_queue::Lane::place).collect();
                places.iter().for_each(|place| home.hear(*place));
                home.turn(self.now);
            }
        }
        for _ in 0..1000 {
            let mut rested = true;
            for home in &mut self.homes {
                home.bell().ready().take(|_| {});
                if home.wants_turn(self.now) {
                    home.turn(self.now);
                    rested = false;
                }
            }
            if rested {
                return;
            }
        }
        panic!("homes do not come to rest");
    }
}

fn read(sector: u64) -> Bio {
    Bio::read(sector, Buf::zeroed(4096))
}

#[test]
fn a_request_without_a_place_stays_where_it_is_merged_and_sorted() {
    for scheduler in ["none", "mq-deadline", "noop"] {
        let mut bench = Bench::new(scheduler, 1, 0);
        for sector in [800, 400, 408, 416] {
            bench.clients[0].submit(read(sector), bench.now).unwrap();
            bench.clients[0].flush_plug(bench.now);
            bench.homes[0].turn(bench.now);
        }
        assert_eq!(lock(&bench.state).taken, [], "{scheduler}: there is no place");
        bench.run(&[false]);
        // Another device of its host gives one up.
        let short = {
            let mut state = lock(&bench.state);
            (state.places, state.out) = (1, 1);
            state.give_up(1)
        };
        assert_eq!(short.len(), 1, "{scheduler}: the lane is short");
        short.iter().for_each(|lane| lane.wake());
        bench.run(&[false]);
        assert_eq!(
            lock(&bench.state).taken.len(),
            1,
            "{scheduler}: one went without any other event"
        );
        for _ in 0..10 {
            bench.run(&[true]);
        }
        let taken = lock(&bench.state).taken.clone();
        let sorted = scheduler == "mq-deadline";
        let asked = if sorted { [(400, 24), (800, 8)] } else { [(800, 8), (400, 24)] };
        assert_eq!(taken, asked, "{scheduler}");
        let mut ended = 0;
        bench.clients[0].complete(bench.now, |ending| {
            assert_eq!(ending.status, Status::Ok);
            ended += 1;
        });
        assert_eq!((ended, lock(&bench.state).out), (4, 0), "{scheduler}");
    }
}

#[test]
fn places_are_never_exceeded_nor_lost_and_no_lane_is_forgotten() {
    for seed in weir_laws::seeds("BUDGET", 6) {
        for (scheduler, queues) in [
            ("none", 3),
            ("mq-deadline", 1),
            ("mq-deadline", 4),
            ("kyber", 3),
            ("bfq", 2),
            ("noop", 1),
        ] {
            let _tell = Tell(format!("BUDGET_SEED={seed} {scheduler} {queues}"));
            let mut prng = Prng::new(seed);
            let places = 1 + prng.below(12) as usize;
            let mut bench = Bench::new(scheduler, queues, places);
            let (mut sent, mut ended) = (0, 0);
            for round in 0..300 {
                for client in &mut bench.clients {
                    for _ in 0..prng.below(6) {
                        match client.submit(read(prng.below(1 << 13) * 64), bench.now) {
                            Ok(()) => sent += 1,
                            Err(Refused::Full(_)) => break,
                            Err(refused) => panic!("{refused:?}"),
                        }
                    }
                    client.flush_plug(bench.now);
                }
                lock(&bench.state).refuses = prng.percent(5);
                let quiesced = prng.percent(5).then(|| {
                    // What is picked for a lane that stops goes with its place.
                    use weir_queue::{Step, Watch};
                    let watch = Watch::new(bench.homes[0].bell(), 3);
                    let mut quiescing = bench.device.begin_quiesce(&watch);
                    bench.homes.iter_mut().for_each(|home| home.turn_all(bench.now));
                    let _ = quiescing.poll(bench.now);
                    quiescing
                });
                let answers: Vec<bool> = bench.homes.iter().map(|_| prng.percent(50)).collect();
                bench.run(&answers);
                drop(quiesced);
                bench.run(&vec![false; bench.homes.len()]);
                for client in &mut bench.clients {
                    ended += client.complete(bench.now, |ending| {
                        assert_eq!(ending.status, Status::Ok, "round {round}");
                    });
                }
                bench.now = bench.now + 100_000;
            }
            lock(&bench.state).refuses = false;
            for _ in 0..2000 {
                bench.now = bench.now + 10_000_000;
                bench.run(&vec![true; bench.homes.len()]);
                for client in &mut bench.clients {
                    ended += client.complete(bench.now, drop);
                }
            }
            assert_eq!((ended, lock(&bench.state).out), (sent, 0));
            let peak = lock(&bench.state).peak;
            assert!(peak * 2 >= places, "{peak} of {places} are used at most");
        }
    }
}
