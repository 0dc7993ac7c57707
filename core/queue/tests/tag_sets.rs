//! Devices that share one set of tags, as the logical units behind one host adapter do.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use weir_bio::{Bio, Buf, Limits, Nanos, Prng, Status};
use weir_queue::driver::Affinity;
use weir_queue::{
    Batch, Bell, Cancel, Config, Device, Done, Driver, DriverError, DriverQueue, Home, QueueMode,
    Queues, Refused, Submitter, Tag, TagSet,
};
use weir_ring::NoWake;

use weir_laws::Tell;

/// An adapter: its tags, and what its units have under way.
struct Adapter {
    tags: Arc<TagSet>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// What is under way, oldest first: unit and queue, and the tag.
    under_way: VecDeque<((usize, u16), Tag)>,
    /// What was answered, and not reaped.
    answered: BTreeMap<(usize, u16), Vec<Tag>>,
    /// Most commands at once.
    peak: usize,
    /// A unit whose requests are never answered.
    mute: Option<usize>,
}

impl Adapter {
    fn new(depth: u16, reserved: u16) -> Arc<Adapter> {
        let tags = TagSet::new(depth, reserved);
        Arc::new(Adapter { tags, state: Mutex::default() })
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("the adapter's lock")
    }

    /// Answers so many, oldest first.
    fn answer(&self, count: usize) {
        let mut state = self.state();
        let State { under_way, answered, mute, .. } = &mut *state;
        for _ in 0..count {
            let next = under_way.iter().position(|((unit, _), _)| Some(*unit) != *mute);
            let Some((place, tag)) = next.and_then(|next| under_way.remove(next)) else { return };
            answered.entry(place).or_default().push(tag);
        }
    }

    /// Commands of each unit.
    fn of_each(&self) -> Vec<usize> {
        let state = self.state();
        let units = state.under_way.iter().map(|((unit, _), _)| *unit + 1).max().unwrap_or(0);
        let of = |unit| state.under_way.iter().filter(|((other, _), _)| *other == unit).count();
        (0..units).map(of).collect()
    }
}

/// A logical unit.
struct Unit(Arc<Adapter>, usize);

impl Driver for Unit {
    fn limits(&self) -> Limits {
        Limits { capacity: 1 << 20, ..Limits::default() }
    }

    fn queues(&self) -> Queues {
        Queues { max: 4, depth: 1, reserved: 0, shared_tags: false, home: Affinity::Any }
    }

    fn tag_set(&self) -> Option<Arc<TagSet>> {
        Some(Arc::clone(&self.0.tags))
    }

    fn open(&self, index: u16, depth: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
        assert_eq!(depth, self.0.tags.depth());
        Ok(Box::new(UnitQueue { adapter: Arc::clone(&self.0), place: (self.1, index) }))
    }
}

struct UnitQueue {
    adapter: Arc<Adapter>,
    place: (usize, u16),
}

impl DriverQueue for UnitQueue {
    fn submit(&mut self, batch: &mut Batch<'_>, _: Nanos) {
        let mut state = self.adapter.state();
        batch.take_all(|tag, _| {
            let out = state.under_way.iter().any(|(_, other)| other.0 == tag.0);
            assert!(!out, "tag {} is another command's", tag.0);
            assert!(tag.0 >= self.adapter.tags.reserved(), "tag {} is reserved", tag.0);
            state.under_way.push_back((self.place, tag));
        });
        state.peak = state.peak.max(state.under_way.len());
    }

    fn commit(&mut self, _: Nanos) {}

    fn reap(&mut self, _: Nanos, done: &mut Done) {
        let answered = self.adapter.state().answered.remove(&self.place);
        answered.into_iter().flatten().for_each(|tag| done.push(tag, Status::Ok));
    }

    fn announces(&self) -> bool {
        true
    }

    fn cancel(&mut self, _: Tag) -> Cancel {
        Cancel::Pending
    }

    fn in_flight(&self) -> usize {
        let state = self.adapter.state();
        let under_way = state.under_way.iter().filter(|(place, _)| *place == self.place).count();
        under_way + state.answered.get(&self.place).map_or(0, Vec::len)
    }
}

/// Units of one adapter, each with a submitter that always wants so many under way.
struct Bench {
    adapter: Arc<Adapter>,
    homes: Vec<Home>,
    units: Vec<Device>,
    clients: Vec<Client>,
    now: Nanos,
}

struct Client {
    submitter: Submitter,
    wants: u64,
    ended: u64,
    sector: u64,
}

impl Bench {
    fn new(adapter: &Arc<Adapter>, homes: usize) -> Bench {
        let homes = (0..homes)
            .map(|_| Home::strict(Bell::with_lanes(Box::new(NoWake), weir_queue::SUBMITTERS_MAX)));
        Bench {
            adapter: Arc::clone(adapter),
            homes: homes.collect(),
            units: Vec::new(),
            clients: Vec::new(),
            now: Nanos(1),
        }
    }

    fn add(&mut self, config: Config, wants: u64) {
        let unit = self.units.len();
        let device = Device::new(config, Arc::new(Unit(Arc::clone(&self.adapter), unit))).unwrap();
        let homes = self.homes.len();
        for index in 0..usize::from(device.config().queues) {
            self.homes[(unit + index) % homes].open(&device, index).unwrap();
        }
        for index in 0..usize::from(device.config().queues) {
            let home = (unit + index) % homes;
            let bell = self.homes[home].bell();
            let token = self.clients.len() % weir_queue::SUBMITTERS_MAX;
            let submitter = device.submitter(bell, token, index).unwrap();
            self.clients.push(Client { submitter, wants, ended: 0, sector: 0 });
        }
        self.units.push(device);
    }

    /// Every client makes its number full, and every home that has a reason makes a round, the
    /// order of both by chance.
    fn round(&mut self, prng: &mut Prng) {
        let from = prng.below(self.clients.len() as u64) as usize;
        for n in 0..self.clients.len() {
            let place = (from + n) % self.clients.len();
            self.clients[place].go(self.now);
        }
        let from = prng.below(self.homes.len() as u64) as usize;
        for n in 0..self.homes.len() {
            let place = (from + n) % self.homes.len();
            let home = &mut self.homes[place];
            home.bell().ready().take(|_| {});
            // Its adapter's interrupt.
            let heard = !self.adapter.state().answered.is_empty();
            if heard {
                let places: Vec<usize> = home.lanes().map(weir_queue::Lane::place).collect();
                places.iter().for_each(|place| home.hear(*place));
            }
            if heard || home.wants_turn(self.now) {
                home.turn(self.now);
            }
        }
        self.now = self.now + 1000;
    }
}

impl Client {
    fn go(&mut self, now: Nanos) {
        let Client { submitter, ended, .. } = self;
        submitter.complete(now, |completion| {
            assert_eq!(completion.status, Status::Ok);
            *ended += 1;
        });
        while self.submitter.in_flight() < self.wants {
            // Apart, so that none merges.
            self.sector = (self.sector + 64) % (1 << 20);
            match self.submitter.submit(Bio::read(self.sector, Buf::zeroed(4096)), now) {
                Ok(()) => {}
                Err(Refused::Full(_) | Refused::Frozen(_)) => break,
                Err(refused) => panic!("{refused:?}"),
            }
        }
        self.submitter.flush_plug(now);
    }
}

fn config(scheduler: &str) -> Config {
    let mode = if scheduler == "noop" { QueueMode::Sq } else { QueueMode::Mq };
    Config { scheduler: Some(scheduler.into()), mode, timeout_ns: 0, ..Config::default() }
}

#[test]
fn units_never_have_more_commands_at_once_than_their_adapter_has_tags() {
    for seed in weir_laws::seeds("TAG_SETS", 8) {
        let _tell = Tell(format!("TAG_SETS_SEED={seed}"));
        let mut prng = Prng::new(seed);
        let adapter = Adapter::new(24, 3);
        let mut bench = Bench::new(&adapter, 3);
        for scheduler in ["none", "mq-deadline", "noop", "bfq", "kyber", "none"] {
            let queues = if scheduler == "noop" { 1 } else { 1 + prng.below(3) as u16 };
            bench.add(Config { queues, ..config(scheduler) }, 16);
        }
        for _ in 0..400 {
            let answers = prng.below(12) as usize;
            adapter.answer(answers);
            bench.round(&mut prng);
        }
        assert_eq!(adapter.state().peak, 21, "all but the reserved are used");
        let least = bench.clients.iter().map(|client| client.ended).min();
        assert!(
            least > Some(20),
            "{:?}",
            bench.clients.iter().map(|c| c.ended).collect::<Vec<_>>()
        );
        end(bench);
        assert_eq!(adapter.tags.out(), 0);
    }
}

/// Lets everything end, and whatever is left over is a lost wake-up.
fn end(mut bench: Bench) {
    bench.clients.iter_mut().for_each(|client| client.wants = 0);
    let mut prng = Prng::new(0);
    for _ in 0..2000 {
        bench.adapter.answer(99);
        bench.now = bench.now + 1_000_000;
        bench.round(&mut prng);
    }
    let left: Vec<u64> = bench.clients.iter().map(|client| client.submitter.in_flight()).collect();
    assert!(left.iter().all(|left| *left == 0), "requests are left over: {left:?}");
}

#[test]
fn no_unit_starves_beside_greedy_ones_whatever_the_order_of_turns() {
    for scheduler in ["none", "mq-deadline", "noop"] {
        // More units than tags, and some of them always have more to send than there are tags.
        let adapter = Adapter::new(8, 0);
        let mut bench = Bench::new(&adapter, 1);
        for unit in 0..20 {
            bench.add(config(scheduler), if unit % 2 == 0 { 64 } else { 1 });
        }
        let mut prng = Prng::new(1);
        for _ in 0..4000 {
            adapter.answer(2);
            bench.round(&mut prng);
        }
        let ended: Vec<u64> = bench.clients.iter().map(|client| client.ended).collect();
        let all = ended.iter().sum::<u64>();
        assert!(all >= 7900, "{scheduler}: {all} of 8000 answers were used");
        let modest = ended.iter().skip(1).step_by(2).min();
        assert!(modest >= Some(&100), "{scheduler}: {ended:?}");
        end(bench);
    }
}

#[test]
fn a_thousand_units_share_a_set_and_each_gets_on() {
    let adapter = Adapter::new(64, 0);
    let mut bench = Bench::new(&adapter, 2);
    for _ in 0..1000 {
        bench.add(config("none"), 2);
    }
    let mut prng = Prng::new(3);
    for _ in 0..400 {
        adapter.answer(32);
        bench.round(&mut prng);
    }
    let ended: Vec<u64> = bench.clients.iter().map(|client| client.ended).collect();
    assert!(ended.iter().all(|ended| *ended >= 2), "{ended:?}");
    assert_eq!(adapter.state().peak, 64);
    end(bench);
}

#[test]
fn a_unit_that_goes_while_others_wait_leaves_them_its_tags() {
    let adapter = Adapter::new(4, 0);
    let mut bench = Bench::new(&adapter, 1);
    (0..3).for_each(|_| bench.add(config("none"), 4));
    let mut prng = Prng::new(5);
    bench.clients[0].go(bench.now);
    bench.homes[0].turn(bench.now);
    assert_eq!(adapter.tags.out(), 4, "the first one has all");
    bench.round(&mut prng);
    // Its client goes, its requests end, its lane closes, and no other lane has anything under way.
    let gone = bench.clients.remove(0);
    drop(gone);
    let device = bench.units.remove(0);
    adapter.answer(99);
    bench.homes[0].extract(
        |lane| device.owns(lane),
        |_, mut lane| {
            for _ in 0..4 {
                lane.run(Nanos(10));
            }
            drop(lane);
        },
    );
    drop(device);
    // Only what the tags' coming back has marked is turned: no interrupt comes.
    for _ in 0..10 {
        if bench.homes[0].wants_turn(bench.now) {
            bench.homes[0].turn(bench.now);
        }
    }
    assert_eq!(adapter.tags.out(), 4, "the others have them");
    end(bench);
}

#[test]
fn a_unit_that_keeps_tags_beyond_their_time_takes_them_from_no_other_for_good() {
    let adapter = Adapter::new(6, 0);
    let mut bench = Bench::new(&adapter, 1);
    let timed = Config { timeout_ns: 2_000_000_000, ..config("none") };
    bench.add(timed, 0);
    bench.add(config("none"), 8);
    adapter.state().mute = Some(0);
    let mut prng = Prng::new(7);
    for sector in [0, 64] {
        let read = Bio::read(sector, Buf::zeroed(4096));
        bench.clients[0].submitter.submit(read, bench.now).unwrap();
    }
    bench.round(&mut prng);
    for _ in 0..6 {
        bench.now = bench.now + 1_000_000_000;
        bench.homes[0].turn_all(bench.now);
    }
    let mut ended = Vec::new();
    bench.clients[0].submitter.complete(bench.now, |ending| ended.push(ending.status));
    assert_eq!(ended, [Status::Timeout; 2]);
    assert_eq!(bench.units[0].stats().quarantined, 2);
    bench.round(&mut prng);
    assert_eq!(adapter.tags.out(), 6, "four are left to the other");
    let before = bench.clients[1].ended;
    // The driver that keeps them goes, and they are everyone's again.
    drop(bench.clients.remove(0));
    let device = bench.units.remove(0);
    bench.homes[0].extract(|lane| device.owns(lane), |_, lane| drop(lane));
    adapter.state().under_way.retain(|((unit, _), _)| *unit != 0);
    adapter.state().mute = None;
    adapter.answer(99);
    for _ in 0..10 {
        adapter.answer(99);
        bench.round(&mut prng);
    }
    assert!(bench.clients[0].ended >= before + 20, "{}", bench.clients[0].ended);
    end(bench);
    assert_eq!(adapter.tags.out(), 0);
}

#[test]
fn a_frozen_unit_gives_its_tags_up_and_a_smaller_one_keeps_to_its_number() {
    let adapter = Adapter::new(16, 0);
    let mut bench = Bench::new(&adapter, 1);
    (0..2).for_each(|_| bench.add(config("none"), 16));
    let mut prng = Prng::new(9);
    for _ in 0..40 {
        adapter.answer(4);
        bench.round(&mut prng);
    }
    (0..4).for_each(|_| bench.round(&mut prng));
    assert_eq!(adapter.of_each(), [8, 8]);
    let step = |bench: &mut Bench, prng: &mut Prng| {
        adapter.answer(4);
        bench.round(prng);
    };
    let changing = {
        use weir_queue::{Progress, Step, Watch};
        let watch = Watch::new(bench.homes[0].bell(), 0);
        let mut change = bench.units[0].begin_reconfigure(&watch, |parts| parts.nr_requests = 4);
        let mut rounds = 0;
        loop {
            match change.poll(bench.now) {
                Progress::Ended(outcome) => break outcome,
                Progress::Waits => step(&mut bench, &mut prng),
            }
            rounds += 1;
            assert!(rounds < 100, "the freeze never ends");
        }
    };
    changing.unwrap();
    (0..20).for_each(|_| step(&mut bench, &mut prng));
    (0..4).for_each(|_| bench.round(&mut prng));
    let held = adapter.of_each();
    assert_eq!(held[0], 4, "{held:?}");
    assert!(held[1] >= 8, "{held:?}");
    end(bench);
}

#[test]
fn a_depth_other_than_that_of_the_set_is_refused() {
    let adapter = Adapter::new(16, 2);
    let driver = || Arc::new(Unit(Arc::clone(&adapter), 0));
    let asked = |depth| Config { depth: Some(depth), ..config("none") };
    let refused = Device::new(asked(8), driver()).err().expect("refused").to_string();
    assert_eq!(refused, "depth=8: the tags are those of a set of 16");
    let device = Device::new(asked(16), driver()).unwrap();
    assert_eq!((device.depth(), device.reserved_tags(), device.nr_requests()), (16, 2, 16));
    // One set for all queues: the default rule takes it for one queue.
    let device = Device::new(Config { queues: 4, ..Config::default() }, driver()).unwrap();
    assert_eq!(device.scheduler(), "mq-deadline");
}
