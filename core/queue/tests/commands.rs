//! Passthrough commands: past the scheduler, on reserved tags if they ask for one, with sense data.

use std::sync::{Arc, Mutex};

use weir_bio::{Bio, Buf, Data, Limits, Nanos, Status};
use weir_queue::driver::Affinity;
use weir_queue::{
    Batch, Bell, CDB_MAX, Cancel, Command, CommandEnd, Config, Detail, Device, Done, Driver,
    DriverError, DriverQueue, Home, NoWake, Progress, QueueMode, Queues, RefusedCommand, SENSE_MAX,
    Step, Submitter, Tag, TagSet, UNTIL_KICKED, Watch,
};

/// A device that answers when it is let.
struct Unit {
    state: Arc<Mutex<State>>,
    queues: Queues,
    tags: Option<Arc<TagSet>>,
    takes: bool,
}

#[derive(Default)]
struct State {
    /// What arrived: the command block, or the sector.
    arrived: Vec<String>,
    under_way: Vec<(Tag, Option<Vec<u8>>, Vec<Data>)>,
    silent: bool,
    /// Has no place for anything.
    busy: bool,
    /// Hands everything back until it kicks, or to be sent at once; and kicks at the next reap.
    returns: bool,
    at_once: bool,
    kicks: bool,
}

fn lock(state: &Mutex<State>) -> std::sync::MutexGuard<'_, State> {
    state.lock().expect("the unit's lock")
}

impl Driver for Unit {
    fn limits(&self) -> Limits {
        Limits { capacity: 1 << 20, ..Limits::default() }
    }

    fn queues(&self) -> Queues {
        self.queues
    }

    fn tag_set(&self) -> Option<Arc<TagSet>> {
        self.tags.clone()
    }

    fn takes_commands(&self) -> bool {
        self.takes
    }

    fn open(&self, _: u16, _: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
        Ok(Box::new(UnitQueue(Arc::clone(&self.state))))
    }
}

struct UnitQueue(Arc<Mutex<State>>);

impl DriverQueue for UnitQueue {
    fn submit(&mut self, batch: &mut Batch<'_>, _: Nanos) {
        let mut state = lock(&self.0);
        if state.busy {
            return batch.refuse(Status::Resource);
        }
        batch.take_all(|tag, request| {
            let cdb = request.cdb().map(<[u8]>::to_vec);
            state.arrived.push(match &cdb {
                Some(cdb) => format!("{cdb:x?} on {}", tag.0),
                None => format!("{}+{}", request.rq().sector, request.rq().sectors),
            });
            let mut lent = Vec::new();
            request.lend(&mut lent);
            state.under_way.push((tag, cdb, lent));
        });
    }

    fn commit(&mut self, _: Nanos) {}

    fn reap(&mut self, _: Nanos, done: &mut Done) {
        let mut state = lock(&self.0);
        if std::mem::take(&mut state.kicks) {
            done.kick();
        }
        if state.silent {
            return;
        }
        if state.returns {
            let after = if state.at_once { 0 } else { UNTIL_KICKED };
            for (tag, _, lent) in state.under_way.drain(..) {
                done.push_requeue(tag, after, lent);
            }
        }
        for (tag, cdb, mut lent) in state.under_way.drain(..) {
            let status = match cdb.as_deref() {
                // INQUIRY: 36 bytes of what it is asked for.
                Some([0x12, ..]) => {
                    lent[0].bufs_mut().unwrap()[0][..36].fill(b'w');
                    let residue = (lent[0].len() - 36) as u32;
                    done.push_detail(tag, Detail { residue, ..Detail::default() });
                    Status::Ok
                }
                // TEST UNIT READY: CHECK CONDITION.
                Some([0, ..]) => {
                    let sense = Some([0x70, 0, 2, 0, 4, 1].into());
                    done.push_detail(tag, Detail { driver_status: 2, residue: 0, sense });
                    Status::IoErr
                }
                _ => Status::Ok,
            };
            done.push_lent(tag, status, &mut lent);
        }
    }

    fn announces(&self) -> bool {
        true
    }

    fn cancel(&mut self, _: Tag) -> Cancel {
        Cancel::Pending
    }

    fn in_flight(&self) -> usize {
        lock(&self.0).under_way.len()
    }
}

struct Bench {
    state: Arc<Mutex<State>>,
    device: Device,
    home: Home,
    client: Submitter,
    now: Nanos,
}

const QUEUES: Queues =
    Queues { max: 1, depth: 4, reserved: 1, shared_tags: false, home: Affinity::Any };

impl Bench {
    fn of(scheduler: &str, queues: Queues, tags: Option<Arc<TagSet>>, takes: bool) -> Bench {
        let state = Arc::new(Mutex::new(State::default()));
        let mode = if scheduler == "noop" { QueueMode::Sq } else { QueueMode::Mq };
        let scheduler = Some(scheduler.to_owned());
        let config = Config { scheduler, mode, ..Config::default() };
        let driver = Unit { state: Arc::clone(&state), queues, tags, takes };
        let device = Device::new(config, Arc::new(driver)).unwrap();
        let mut home = Home::strict(Bell::with_lanes(Box::new(NoWake), 4));
        home.open(&device, 0).unwrap();
        let client = device.submitter(home.bell(), 0, 0).unwrap();
        Bench { state, device, home, client, now: Nanos(1) }
    }

    fn new(scheduler: &str) -> Bench {
        Bench::of(scheduler, QUEUES, None, true)
    }

    /// Rounds with an interrupt; those who have ended.
    fn run(&mut self) -> Vec<CommandEnd> {
        for _ in 0..4 {
            self.home.turn_all(self.now);
        }
        self.client.complete(self.now, drop);
        std::iter::from_fn(|| self.client.take_command_end()).collect()
    }

    fn send(&mut self, command: Command) {
        self.client.submit_command(command, self.now).expect("room for a command");
    }

    fn read(&mut self, sector: u64) {
        self.client.submit(Bio::read(sector, Buf::zeroed(4096)), self.now).expect("room");
        self.client.flush_plug(self.now);
    }

    fn arrived(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.state).arrived)
    }
}

const PATHS: [&str; 3] = ["none", "mq-deadline", "noop"];

fn ready() -> Command {
    Command::new(&[0; 6])
}

#[test]
fn a_command_brings_back_its_memory_the_drivers_status_and_sense_data() {
    for path in PATHS {
        let mut bench = Bench::new(path);
        let inquiry = Command::new(&[0x12, 0, 0, 0, 36, 0]).reading(Data::One(Buf::zeroed(100)));
        bench.send(inquiry.cookie(7));
        bench.send(ready().cookie(8));
        let ended = bench.run();
        let [inquiry, ready] = &ended[..] else { panic!("{path}: {ended:?}") };
        assert_eq!((inquiry.cookie, inquiry.status, inquiry.detail.residue), (7, Status::Ok, 64));
        assert_eq!(&inquiry.data.bufs().unwrap()[0][34..38], b"ww\0\0", "{path}");
        assert_eq!(inquiry.detail.sense, None);
        assert_eq!((ready.cookie, ready.status, ready.detail.driver_status), (8, Status::IoErr, 2));
        assert_eq!(ready.detail.sense.as_deref(), Some(&[0x70, 0, 2, 0, 4, 1][..]));
    }
}

#[test]
fn a_reserved_command_is_sent_while_everything_else_waits_and_an_ordinary_one_goes_before_io() {
    for path in PATHS {
        let mut bench = Bench::new(path);
        lock(&bench.state).silent = true;
        for sector in [0, 64, 128, 192, 256] {
            bench.read(sector);
        }
        bench.run();
        assert_eq!(bench.arrived().len(), 3, "{path}: one of four tags is reserved");
        bench.send(Command::new(&[1; 10]));
        bench.send(Command::new(&[2; 10]).first());
        bench.send(Command::new(&[3; CDB_MAX]).reserved());
        bench.send(Command::new(&[4; 1]).reserved());
        bench.run();
        let arrived = bench.arrived();
        assert_eq!(arrived.len(), 1, "{path}: {arrived:?}");
        assert!(arrived[0].starts_with("[3, 3,") && arrived[0].ends_with(" on 0"), "{arrived:?}");
        lock(&bench.state).silent = false;
        let ended = bench.run();
        assert_eq!(ended.len(), 4, "{path}");
        let order = bench.arrived();
        let place = |text: &str| order.iter().position(|line| line.starts_with(text));
        assert!(place("[2") < place("[1") && place("[1") < place("256"), "{path}: {order:?}");
        assert_eq!(order[0], "[4] on 0", "{path}");
        assert_eq!(bench.client.in_flight(), 0);
    }
}

#[test]
fn a_command_that_waits_for_its_tag_is_sent_in_a_pass_that_brings_nothing() {
    let mut bench = Bench::new("none");
    lock(&bench.state).silent = true;
    for op in [3, 4] {
        bench.send(Command::new(&[op]).reserved());
    }
    bench.run();
    assert_eq!(bench.arrived(), ["[3] on 0"]);
    lock(&bench.state).silent = false;
    let Bench { home, client, now, .. } = &mut bench;
    home.pass(client, *now, || *now, drop);
    assert_eq!(bench.arrived(), ["[4] on 0"]);
    assert_eq!(bench.run().len(), 2);
}

#[test]
fn a_reserved_command_that_is_refused_or_handed_back_gets_a_reserved_tag_again() {
    for path in PATHS {
        let mut bench = Bench::new(path);
        // I/O has every tag but the reserved one, number 0, and is not answered.
        lock(&bench.state).silent = true;
        for sector in [0, 64, 128, 192] {
            bench.read(sector);
        }
        bench.run();
        assert_eq!(bench.arrived().len(), 3, "{path}");
        lock(&bench.state).busy = true;
        bench.send(Command::new(&[7; 6]).reserved());
        bench.send(Command::new(&[8; 6]).reserved());
        bench.run();
        assert_eq!(bench.arrived().len(), 0, "{path}: refused");
        // The driver names no time, so the core does.
        lock(&bench.state).busy = false;
        bench.now = bench.home.wake_at().expect("it is offered again").max(bench.now);
        bench.run();
        assert_eq!(bench.arrived(), ["[7, 7, 7, 7, 7, 7] on 0"], "{path}: in order");
        // The command is handed back; I/O stays where it is.
        let io: Vec<_> =
            lock(&bench.state).under_way.extract_if(.., |(_, c, _)| c.is_none()).collect();
        (lock(&bench.state).silent, lock(&bench.state).returns) = (false, true);
        bench.home.turn_all(bench.now);
        lock(&bench.state).silent = true;
        bench.run();
        let next = bench.arrived();
        assert_eq!(next, ["[8, 8, 8, 8, 8, 8] on 0"], "{path}: the tag was free");
        (lock(&bench.state).silent, lock(&bench.state).returns) = (false, false);
        assert_eq!(bench.run().len(), 1, "{path}: and is free again");
        assert_eq!(bench.arrived(), [""; 0], "{path}: the first waits until it is kicked");
        lock(&bench.state).kicks = true;
        let ended = bench.run();
        assert_eq!(ended.len(), 1, "{path}: all other tags are out");
        assert_eq!(bench.arrived(), ["[7, 7, 7, 7, 7, 7] on 0"], "{path}");
        lock(&bench.state).under_way.extend(io);
        bench.run();
        assert_eq!((bench.arrived().len(), bench.client.in_flight()), (1, 0), "{path}");
    }
}

#[test]
fn a_tag_is_free_when_its_request_is_handed_back() {
    for path in PATHS {
        let queues = Queues { depth: 1, reserved: 0, ..QUEUES };
        let mut bench = Bench::of(path, queues, None, true);
        lock(&bench.state).returns = true;
        bench.send(Command::new(&[1]).cookie(1));
        bench.run();
        assert_eq!(bench.arrived(), ["[1] on 0"], "{path}");
        // The only tag, while the first waits for its kick.
        lock(&bench.state).returns = false;
        bench.send(Command::new(&[2]).cookie(2));
        let cookies =
            |ended: Vec<CommandEnd>| ended.iter().map(|end| end.cookie).collect::<Vec<_>>();
        assert_eq!(cookies(bench.run()), [2], "{path}");
        lock(&bench.state).kicks = true;
        assert_eq!(cookies(bench.run()), [1], "{path}");
        assert_eq!(bench.arrived(), ["[2] on 0", "[1] on 0"], "{path}");
    }
}

#[test]
fn commands_are_inside_but_in_no_figure_of_io() {
    let mut bench = Bench::new("none");
    lock(&bench.state).silent = true;
    bench.send(ready());
    bench.home.turn_all(bench.now);
    let stats = bench.device.stats();
    assert_eq!((bench.client.in_flight(), stats.in_flight), (1, 1));
    lock(&bench.state).silent = false;
    assert_eq!(bench.run().len(), 1);
    let stats = bench.device.stats();
    assert_eq!(stats.in_flight, 0);
    let fields = stats.fields();
    assert_eq!((fields[0], fields[4]), (0, 0), "neither a read nor a write: {fields:?}");
}

#[test]
fn a_frozen_device_lets_no_command_in_and_a_quiesced_one_keeps_it_waiting() {
    for path in PATHS {
        let mut bench = Bench::new(path);
        let watch = Watch::new(bench.home.bell(), 3);
        lock(&bench.state).silent = true;
        bench.send(ready());
        bench.home.turn_all(bench.now);
        let mut freezing = bench.device.begin_freeze(&watch);
        assert!(matches!(freezing.poll(bench.now), Progress::Waits), "{path}: one is inside");
        let refused = bench.client.submit_command(ready(), bench.now);
        assert!(matches!(refused, Err(RefusedCommand::Frozen(_))), "{path}");
        lock(&bench.state).silent = false;
        assert_eq!(bench.run().len(), 1);
        let Progress::Ended(frozen) = freezing.poll(bench.now) else { panic!("{path}: frozen") };
        drop(frozen);
        bench.arrived();
        let mut quiescing = bench.device.begin_quiesce(&watch);
        bench.home.turn_all(bench.now);
        let Progress::Ended(quiesced) = quiescing.poll(bench.now) else { panic!("{path}") };
        bench.send(ready());
        bench.send(ready().reserved());
        assert_eq!(bench.run().len(), 0, "{path}");
        assert_eq!(bench.arrived().len(), 0);
        drop(quiesced);
        assert_eq!(bench.run().len(), 2, "{path}");
    }
}

#[test]
fn the_time_of_a_reserved_command_that_was_handed_back_stands_still_in_a_pause() {
    const STEP: u64 = 500_000_000;
    for path in PATHS {
        let mut bench = Bench::new(path);
        let watch = Watch::new(bench.home.bell(), 3);
        lock(&bench.state).silent = true;
        bench.send(ready().reserved());
        bench.run();
        assert_eq!(bench.arrived().len(), 1, "{path}");
        let mut quiescing = bench.device.begin_quiesce(&watch);
        bench.home.turn_all(bench.now);
        let Progress::Ended(quiesced) = quiescing.poll(bench.now) else { panic!("{path}") };
        {
            let mut state = lock(&bench.state);
            (state.silent, state.returns, state.at_once) = (false, true, true);
        }
        bench.run();
        *lock(&bench.state) = State::default();
        // It waits for nothing but the end of the pause, which is longer than its time.
        for _ in 0..300 {
            bench.now = bench.now + STEP;
            assert!(bench.run().is_empty() && bench.arrived().is_empty(), "{path}: paused");
        }
        lock(&bench.state).silent = true;
        drop(quiesced);
        bench.run();
        assert_eq!(bench.arrived().len(), 1, "{path}: sent again");
        for _ in 0..40 {
            bench.now = bench.now + STEP;
            assert!(bench.run().is_empty(), "{path}: within its time");
        }
        lock(&bench.state).silent = false;
        let ended = bench.run();
        assert_eq!(ended.len(), 1, "{path}");
        assert_eq!(ended[0].detail.driver_status, 2, "{path}: its own answer");
    }
}

#[test]
fn a_command_that_does_not_fit_its_device_ends_and_is_never_sent() {
    let mut none = Bench::of("none", QUEUES, None, false);
    none.send(ready());
    assert_eq!(none.run()[0].status, Status::NotSupp);
    let mut unreserved = Bench::of("none", Queues { reserved: 0, ..QUEUES }, None, true);
    unreserved.send(ready().reserved());
    assert_eq!(unreserved.run()[0].status, Status::Inval);
    assert_eq!((unreserved.arrived().len(), unreserved.client.in_flight()), (0, 0));
    // A bio cannot be one.
    let bio = Bio::new(weir_bio::Op::DrvIn, 0, 8, Data::None);
    unreserved.client.submit(bio, Nanos(2)).unwrap();
    let mut ended = Vec::new();
    unreserved.client.complete(Nanos(2), |ending| ended.push(ending.status));
    assert_eq!(ended, [Status::NotSupp]);
}

#[test]
fn commands_are_bounded_in_number() {
    let mut bench = Bench::new("none");
    let mut sent = 0;
    while bench.client.submit_command(ready(), bench.now).is_ok() {
        sent += 1;
    }
    assert_eq!(sent, 1024);
    let mut ended = 0;
    while bench.client.in_flight() > 0 {
        ended += bench.run().len();
    }
    assert_eq!(ended, sent);
}

#[test]
fn a_command_without_an_answer_ends_in_its_time_and_its_reserved_tag_comes_back_with_the_answer() {
    for path in PATHS {
        let mut bench = Bench::new(path);
        lock(&bench.state).silent = true;
        bench.send(Command::new(&[9]).reserved().reading(Data::One(Buf::zeroed(512))));
        bench.send(Command::new(&[8]).reserved());
        let mut ended = Vec::new();
        for _ in 0..70 {
            ended.extend(bench.run());
            bench.now = bench.now + 1_000_000_000;
        }
        assert_eq!(ended.len(), 2, "{path}: also the one that waited for its tag");
        assert!(ended.iter().all(|end| end.status == Status::Timeout), "{path}: {ended:?}");
        assert!(ended.iter().all(|end| end.data.is_empty()), "the device has it");
        lock(&bench.state).silent = false;
        bench.run();
        bench.arrived();
        bench.send(Command::new(&[7]).reserved());
        assert_eq!(bench.run().len(), 1);
        assert_eq!(bench.arrived(), ["[7] on 0"], "{path}");
    }
}

#[test]
fn devices_of_one_set_have_its_reserved_tags_together() {
    let set = TagSet::new(4, 1);
    let mut units: Vec<Bench> = ["none", "mq-deadline", "noop"]
        .map(|path| Bench::of(path, QUEUES, Some(Arc::clone(&set)), true))
        .into();
    units.iter().for_each(|unit| lock(&unit.state).silent = true);
    for unit in &mut units {
        unit.send(Command::new(&[5]).reserved());
        unit.run();
    }
    let arrived: Vec<usize> = units.iter().map(|unit| unit.arrived().len()).collect();
    assert_eq!(arrived, [1, 0, 0]);
    units.iter().for_each(|unit| lock(&unit.state).silent = false);
    for _ in 0..3 {
        units[0].run();
        for unit in &mut units[1..] {
            // Only because it was told.
            if unit.home.wants_turn(unit.now) {
                unit.home.turn(unit.now);
            }
        }
    }
    let arrived: Vec<Vec<String>> = units.iter().map(Bench::arrived).collect();
    assert!(arrived.iter().skip(1).flatten().count() >= 1, "{arrived:?}");
    for unit in &mut units {
        unit.run();
    }
    for unit in &mut units {
        unit.run();
        assert_eq!(unit.client.in_flight(), 0);
    }
    assert_eq!(set.out(), 0);
}

#[test]
#[should_panic(expected = "sense data of 253 bytes, at most 252")]
fn longer_sense_data_are_a_drivers_mistake() {
    let sense = Some(vec![0; SENSE_MAX + 1].into());
    Done::default().push_detail(Tag::first(0), Detail { sense, ..Detail::default() });
}
