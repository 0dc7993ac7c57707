//! A pool: one queue over several drivers. Each partition's data, flushes, errors and figures are
//! its own; the scheduler, its tags and the driver's tags are the pool's.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::event::{EventfdFlags, eventfd};
use weir_bio::{Bio, Buf, Data, Flags, Limits, Nanos, Op, Prng, SECTOR, Status};
use weir_local::Pool;
use weir_queue::{
    Affinity, Batch, Bell, Completion, Config, Device, Done, Driver, DriverError, DriverQueue,
    Home, Kept, NoWake, PARTITIONS_MAX, Progress, Queues, Request, Step, Submitter, Tag, Then,
    Wake, Watch,
};

#[derive(Default)]
struct State {
    sectors: u64,
    /// By sector, the first byte.
    written: BTreeMap<u64, u8>,
    seen: Vec<Op>,
    /// Nothing is answered.
    stalls: bool,
    /// Nothing is taken: its server is away.
    is_away: bool,
    looked_for: Option<Nanos>,
    /// How its queue has its lane turned.
    lane: Option<Arc<dyn Wake>>,
    /// An event of its queue, which stays.
    event: Option<Arc<OwnedFd>>,
    reaps: usize,
    status: Option<Status>,
    /// Driver queues that are open.
    open: usize,
    /// Logical blocks of so many bytes, if not 512.
    block: Option<u32>,
    rotational: bool,
}

/// A disk with a volatile cache that keeps the first byte of each sector.
#[derive(Clone, Default)]
struct Disk(Arc<Mutex<State>>);

impl Disk {
    fn of(sectors: u64) -> Disk {
        Disk(Arc::new(Mutex::new(State { sectors, ..State::default() })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Has the lane of its queue turned.
    fn call(&self) {
        let lane = self.state().lane.clone();
        lane.expect("its queue is open").wake();
    }

    fn flushes(&self) -> usize {
        self.state().seen.iter().filter(|op| **op == Op::Flush).count()
    }
}

impl Driver for Disk {
    fn limits(&self) -> Limits {
        let State { sectors, block, rotational, .. } = *self.state();
        let limits = Limits { volatile_cache: true, rotational, ..Limits::of_memory(sectors) };
        match block {
            None => limits,
            Some(block) => Limits {
                logical_block_size: block,
                physical_block_size: block,
                io_min: block,
                ..limits
            },
        }
    }

    fn queues(&self) -> Queues {
        Queues { max: 4, depth: 8, reserved: 0, shared_tags: false, home: Affinity::Any }
    }

    fn enlarge(&self, _: u64) -> Result<weir_bio::Size, DriverError> {
        Ok(self.limits().size())
    }

    fn open(&self, _: u16, _: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
        self.state().open += 1;
        let event = self.state().event.clone();
        Ok(Box::new(DiskQueue { disk: self.clone(), held: Vec::new(), event }))
    }
}

struct DiskQueue {
    disk: Disk,
    held: Vec<(Tag, Status)>,
    event: Option<Arc<OwnedFd>>,
}

impl Drop for DiskQueue {
    fn drop(&mut self) {
        self.disk.state().open -= 1;
    }
}

fn serve(state: &mut State, request: &mut Request) -> Status {
    state.seen.push(request.op());
    if let Some(status) = state.status {
        return status;
    }
    let (first, sectors) = (request.offset() / SECTOR, request.len() / SECTOR);
    assert!(first + sectors <= state.sectors, "{first}+{sectors} of {}", state.sectors);
    let (op, mut at) = (request.op(), first);
    request.for_each_data(|data| match op {
        Op::Write => {
            let mut bytes = vec![0; data.len()];
            data.copy_to_at(0, &mut bytes);
            for sector in bytes.chunks(SECTOR as usize) {
                state.written.insert(at, sector[0]);
                at += 1;
            }
        }
        Op::Read => {
            let sectors = data.len() as u64 / SECTOR;
            let filled = Buf::filled(data.len(), |bytes| {
                for (number, sector) in bytes.chunks_mut(SECTOR as usize).enumerate() {
                    let value = state.written.get(&(at + number as u64)).copied().unwrap_or(0);
                    sector.fill(value);
                }
            });
            *data = Data::One(filled);
            at += sectors;
        }
        _ => {}
    });
    Status::Ok
}

impl DriverQueue for DiskQueue {
    fn submit(&mut self, batch: &mut Batch<'_>, _: Nanos) {
        let mut state = self.disk.state();
        if state.is_away {
            return batch.refuse(Status::Resource);
        }
        batch.take_all(|tag, request| self.held.push((tag, serve(&mut state, request))));
    }

    fn commit(&mut self, _: Nanos) {}

    fn reap(&mut self, _: Nanos, done: &mut Done) {
        self.disk.state().reaps += 1;
        if !self.disk.state().stalls {
            self.held.drain(..).for_each(|(tag, status)| done.push(tag, status));
        }
    }

    /// It names times while it holds nothing.
    fn announces(&self) -> bool {
        true
    }

    fn at_home(&mut self, lane: Arc<dyn Wake>) {
        self.disk.state().lane = Some(lane);
    }

    fn event_fd(&self) -> Option<BorrowedFd<'_>> {
        self.event.as_ref().map(|event| event.as_fd())
    }

    fn in_flight(&self) -> usize {
        self.held.len()
    }

    fn outage_until(&self) -> Option<Nanos> {
        self.disk.state().is_away.then_some(Nanos(u64::MAX))
    }

    /// A server that is away is looked for, whether or not anything waits for it.
    fn wake_at(&self) -> Option<Nanos> {
        self.disk.state().looked_for
    }
}

/// A pool with its one lane, and a client of each partition.
struct Bed {
    pool: Device,
    home: Home,
    now: Nanos,
    disks: Vec<Disk>,
    partitions: Vec<Device>,
    clients: Vec<Submitter>,
}

impl Bed {
    fn new(scheduler: &str, sizes: &[u64]) -> Bed {
        let disks: Vec<Disk> = sizes.iter().map(|sectors| Disk::of(*sectors)).collect();
        let drivers: Vec<Arc<dyn Driver>> =
            disks.iter().map(|disk| Arc::new(disk.clone()) as Arc<dyn Driver>).collect();
        let config = Config {
            name: String::from("ssd0"),
            scheduler: Some(String::from(scheduler)),
            depth: Some(16),
            ..Config::default()
        };
        let pool = Device::new(config, Arc::new(Pool::for_drivers(&drivers))).unwrap();
        let home = Home::strict(Bell::with_lanes(Box::new(NoWake), 128));
        let (partitions, clients) = (Vec::new(), Vec::new());
        let mut bed = Bed { pool, home, now: Nanos::ZERO, disks: Vec::new(), partitions, clients };
        for disk in disks {
            bed.add(disk);
        }
        bed.home.open(&bed.pool, 0).unwrap();
        bed
    }

    /// Another partition, as large as its disk, with a client. Nothing is under way.
    fn add(&mut self, disk: Disk) {
        let number = self.partitions.len();
        let config = Config { name: format!("vm{}", number + 1), ..Config::default() };
        let partition = self.pool.open_partition(config, Arc::new(disk.clone())).unwrap();
        self.clients.push(partition.submitter(self.home.bell(), number, 0).unwrap());
        self.partitions.push(partition);
        self.disks.push(disk);
    }

    /// One round: what has ended, by partition.
    fn turn(&mut self) -> Vec<(usize, Completion)> {
        self.now = self.now + 1_000_000;
        let mut ended = Vec::new();
        self.clients.iter_mut().for_each(|client| client.flush_plug(self.now));
        self.home.turn_all(self.now);
        for (number, client) in self.clients.iter_mut().enumerate() {
            client.complete(self.now, |end| ended.push((number, end)));
        }
        ended
    }

    /// Submits one bio and waits for its end.
    fn run(&mut self, partition: usize, bio: Bio) -> Completion {
        self.clients[partition].submit(bio, self.now).expect("accepted");
        for _ in 0..10_000 {
            if let Some((_, end)) = self.turn().pop() {
                return end;
            }
        }
        panic!("it does not end");
    }

    /// Polls a change of the pool while `load` goes on.
    fn carry_out<S: Step>(
        &mut self,
        begin: impl FnOnce(&Watch) -> S,
        mut load: impl FnMut(&mut Bed),
    ) -> S::Out {
        let bell = Bell::new(Box::new(NoWake), 1);
        let mut step = begin(&Watch::new(&bell, 0));
        for _ in 0..10_000 {
            load(self);
            if let Progress::Ended(out) = step.poll(self.now) {
                return out;
            }
        }
        panic!("the change does not end");
    }
}

fn write(sector: u64, value: u8) -> Bio {
    Bio::write(sector, Buf::filled(SECTOR as usize, |bytes| bytes.fill(value)))
}

fn value_of(end: Completion) -> u8 {
    let mut bytes = [0; SECTOR as usize];
    end.data.copy_to_at(0, &mut bytes);
    bytes[0]
}

const SCHEDULERS: [&str; 4] = ["none", "mq-deadline", "kyber", "bfq"];

#[test]
fn the_data_of_each_partition_stays_its_own_whatever_the_scheduler() {
    for scheduler in SCHEDULERS {
        for seed in 0..4 {
            let mut prng = Prng::new(seed);
            let sizes = [8, 64, 40];
            let mut bed = Bed::new(scheduler, &sizes);
            let mut models: Vec<BTreeMap<u64, u8>> = vec![BTreeMap::new(); sizes.len()];
            for round in 0..200_u64 {
                // A burst of neighbours in all partitions, which merge as far as they may.
                let mut sent = 0;
                for _ in 0..prng.below(9) {
                    let of = prng.below(3) as usize;
                    let sector = prng.below(sizes[of]);
                    let value = (round % 255) as u8 + 1;
                    let free = !models[of].contains_key(&sector) || prng.below(2) == 0;
                    if free && bed.clients[of].submit(write(sector, value), bed.now).is_ok() {
                        models[of].insert(sector, value);
                        sent += 1;
                    }
                }
                let mut ended = 0;
                for _ in 0..1000 {
                    for (_, end) in bed.turn() {
                        assert_eq!(end.status, Status::Ok, "{scheduler}, seed {seed}");
                        ended += 1;
                    }
                }
                assert_eq!(ended, sent, "{scheduler}, seed {seed}");
                let of = prng.below(3) as usize;
                let sector = prng.below(sizes[of]);
                let read = value_of(bed.run(of, Bio::read(sector, Buf::zeroed(512))));
                let right = models[of].get(&sector).copied().unwrap_or(0);
                assert_eq!(read, right, "{scheduler}, seed {seed}: {of}/{sector}");
            }
            for (disk, model) in bed.disks.iter().zip(&models) {
                assert_eq!(disk.state().written, *model, "{scheduler}, seed {seed}");
            }
        }
    }
}

#[test]
fn a_partition_ends_where_its_disk_does_and_no_sector_leads_into_another() {
    let mut bed = Bed::new("none", &[8, 16]);
    assert_eq!(bed.partitions[0].limits().capacity, 8);
    let beyond = [8, 9, 1 << 44, (1 << 44) - 1, u64::MAX - (1 << 44), u64::MAX - 1];
    for sector in beyond {
        for of in 0..2 {
            let sector = if of == 1 && sector < 16 { sector + 8 } else { sector };
            assert_eq!(bed.run(of, write(sector, 1)).status, Status::IoErr, "{of}/{sector}");
        }
    }
    assert!(bed.disks.iter().all(|disk| disk.state().written.is_empty()));
    assert_eq!(bed.run(0, write(7, 1)).status, Status::Ok);
    let why = bed.pool.submitter(bed.home.bell(), 9, 0).err().expect("refused").to_string();
    assert_eq!(why, "pool ssd0 has no I/O but that of its disks");
}

#[test]
fn a_refused_bio_comes_back_with_the_sector_it_was_submitted_with() {
    let mut bed = Bed::new("none", &[8, 1 << 20]);
    bed.disks[1].state().stalls = true;
    let refused = loop {
        if let Err(refused) = bed.clients[1].submit(write(77, 1), bed.now) {
            break refused;
        }
    };
    assert_eq!(refused.into_bio().sector, 77);
    bed.disks[1].state().stalls = false;
}

#[test]
fn a_flush_reaches_its_own_disk_alone_and_the_last_one_of_the_pool_all_of_them() {
    for scheduler in SCHEDULERS {
        let mut bed = Bed::new(scheduler, &[8, 8, 8]);
        assert_eq!(bed.run(1, Bio::flush()).status, Status::Ok);
        let flushes = |bed: &Bed| bed.disks.iter().map(Disk::flushes).collect::<Vec<_>>();
        assert_eq!(flushes(&bed), [0, 1, 0], "{scheduler}");
        assert_eq!(bed.run(2, Bio::flush()).status, Status::Ok);
        assert_eq!(flushes(&bed), [0, 1, 1], "{scheduler}");
        let pool = bed.pool.clone();
        let closed = bed.carry_out(
            |watch| pool.begin_close(watch, Then::Ends),
            |bed| {
                bed.turn();
            },
        );
        assert!(closed.is_ok());
        assert_eq!(flushes(&bed), [1, 2, 2], "{scheduler}");
    }
}

#[test]
fn a_flush_that_fails_is_the_error_of_its_own_partition_and_of_the_last_flush() {
    let mut bed = Bed::new("none", &[8, 8]);
    bed.disks[0].state().status = Some(Status::IoErr);
    assert_eq!(bed.run(0, Bio::flush()).status, Status::IoErr);
    assert_eq!(bed.run(1, Bio::flush()).status, Status::Ok);
    let errors = |bed: &Bed| bed.partitions.iter().map(Device::flush_error).collect::<Vec<_>>();
    assert_eq!(errors(&bed), [Some(Status::IoErr), None]);
    let pool = bed.pool.clone();
    let closed = bed.carry_out(
        |watch| pool.begin_close(watch, Then::Ends),
        |bed| {
            bed.turn();
        },
    );
    assert_eq!(closed.err(), Some(Status::IoErr));
    assert_eq!(bed.run(1, write(3, 9)).status, Status::Ok, "it goes on");
}

#[test]
fn an_error_or_a_stall_of_one_disk_harms_no_other() {
    for scheduler in SCHEDULERS {
        let mut bed = Bed::new(scheduler, &[64, 64]);
        bed.disks[0].state().stalls = true;
        for sector in 0..4 {
            bed.clients[0].submit(write(2 * sector, 1), bed.now).expect("accepted");
        }
        bed.clients[0].submit(Bio::flush(), bed.now).expect("accepted");
        bed.disks[1].state().seen.clear();
        for sector in 0..32 {
            let end = bed.run(1, write(sector, 2));
            assert_eq!((end.status, bed.clients[0].in_flight()), (Status::Ok, 5), "{scheduler}");
            assert_eq!(bed.run(1, Bio::flush()).status, Status::Ok, "{scheduler}");
        }
        bed.disks[0].state().stalls = false;
        bed.disks[0].state().status = Some(Status::Medium);
        let mut ended = Vec::new();
        while bed.clients[0].in_flight() > 0 {
            ended.extend(bed.turn().into_iter().map(|(of, end)| (of, end.status)));
        }
        assert_eq!(ended.len(), 5, "{scheduler}");
        assert_eq!(bed.run(0, write(1, 1)).status, Status::Medium, "{scheduler}");
        assert_eq!(bed.run(1, write(1, 1)).status, Status::Ok, "{scheduler}");
    }
}

#[test]
fn a_disk_whose_server_is_away_holds_up_no_other_and_goes_on_when_it_is_back() {
    for scheduler in SCHEDULERS {
        let mut bed = Bed::new(scheduler, &[64, 64]);
        bed.disks[0].state().is_away = true;
        for sector in 0..4 {
            bed.clients[0].submit(write(2 * sector, 1), bed.now).expect("accepted");
        }
        for sector in 0..32 {
            assert_eq!(bed.run(1, write(sector, 2)).status, Status::Ok, "{scheduler}");
        }
        assert_eq!(bed.clients[0].in_flight(), 4, "{scheduler}");
        bed.disks[0].state().is_away = false;
        let mut ended = Vec::new();
        while bed.clients[0].in_flight() > 0 {
            ended.extend(bed.turn().into_iter().map(|(of, end)| (of, end.status)));
        }
        assert_eq!(ended, [(0, Status::Ok); 4], "{scheduler}");
        // One that holds nothing looks for its server as well.
        let soon = bed.now + 3_000_000;
        bed.disks[1].state().is_away = true;
        bed.disks[1].state().looked_for = Some(soon);
        bed.disks[1].call();
        bed.turn();
        assert_eq!(bed.home.wake_at(), Some(soon), "{scheduler}");
        // Until it is found.
        bed.disks[1].state().looked_for = None;
        bed.disks[1].state().is_away = false;
        bed.turn();
        assert_ne!(bed.home.wake_at(), Some(soon), "{scheduler}");
    }
}

#[test]
fn what_a_disk_that_holds_nothing_says_is_heard_among_a_hundred() {
    let mut bed = Bed::new("none", &[64; 100]);
    let soon = bed.now + 100_000_000;
    for disk in [0, 63, 64, 99] {
        bed.disks[disk].state().looked_for = Some(soon);
        bed.disks[disk].call();
        // Another one is busy, and is seen to as before.
        assert_eq!(bed.run(1, write(0, 2)).status, Status::Ok, "{disk}");
        assert_eq!(bed.home.wake_at(), Some(soon), "{disk}");
        // Its time comes, and it is turned for that alone.
        bed.disks[disk].state().looked_for = Some(bed.now);
        let before = bed.disks[disk].state().reaps;
        bed.turn();
        let reaps = bed.disks[disk].state().reaps - before;
        assert_eq!(reaps, 1, "of disk {disk}");
        bed.disks[disk].state().looked_for = None;
        (0..20).for_each(|_| drop(bed.turn()));
        assert_ne!(bed.home.wake_at(), Some(soon), "{disk}");
    }
}

#[test]
fn the_event_of_a_disk_that_holds_nothing_is_seen_to_while_another_is_busy() {
    let mut bed = Bed::new("none", &[64]);
    let disk = Disk::of(64);
    let event = eventfd(1, EventfdFlags::CLOEXEC).unwrap();
    disk.state().event = Some(Arc::new(event));
    bed.add(disk);
    bed.disks[0].state().stalls = true;
    bed.clients[0].submit(write(0, 1), bed.now).expect("accepted");
    for _ in 0..3 {
        let before = bed.disks[1].state().reaps;
        (0..20).for_each(|_| drop(bed.turn()));
        let reaps = bed.disks[1].state().reaps - before;
        assert!(reaps > 0, "disk 1 was never reaped");
    }
    assert_eq!(bed.clients[0].in_flight(), 1);
    bed.disks[0].state().stalls = false;
    while bed.clients[0].in_flight() > 0 {
        bed.turn();
    }
}

#[test]
fn the_flush_of_a_patch_reaches_its_own_disk_alone() {
    let mut bed = Bed::new("none", &[64, 64]);
    bed.partitions.iter().for_each(|partition| assert!(!partition.limits().fua));
    let kept = Kept { lead: 100, trail: 0 };
    let mut bio = write(5, 7);
    bio.flags = Flags::FUA;
    bed.clients[1].submit_patch(bio, kept, bed.now).expect("accepted");
    let end = (0..1000).find_map(|_| bed.turn().pop()).expect("it ends");
    assert_eq!((end.0, end.1.status), (1, Status::Ok));
    assert_eq!(bed.disks.iter().map(Disk::flushes).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(bed.disks[1].state().written.len(), 1);
}

#[test]
fn figures_are_those_of_a_partition_and_of_the_whole() {
    let mut bed = Bed::new("mq-deadline", &[64, 64]);
    for sector in 0..3 {
        assert_eq!(bed.run(0, write(2 * sector, 1)).status, Status::Ok);
    }
    assert_eq!(bed.run(1, Bio::read(0, Buf::zeroed(1024))).status, Status::Ok);
    bed.disks[1].state().stalls = true;
    bed.clients[1].submit(write(0, 1), bed.now).expect("accepted");
    bed.turn();
    bed.turn();
    let of = |device: &Device| {
        let stats = device.stats();
        let [reads, writes, _] = &stats.directions;
        let sectors = [reads.sectors, writes.sectors];
        (reads.ios, writes.ios, sectors, stats.in_flight, stats.in_driver)
    };
    assert_eq!(of(&bed.partitions[0]), (0, 3, [0, 3], 0, [0, 0]));
    assert_eq!(of(&bed.partitions[1]), (1, 0, [2, 0], 1, [0, 1]));
    assert_eq!(of(&bed.pool), (1, 3, [2, 3], 1, [0, 1]));
    assert!(bed.partitions[0].stats().busy_ticks <= bed.pool.stats().busy_ticks);
    // A reader sees the time go on in which a disk gives no answer, of 4 ms a tick.
    let grows = |device: &Device| {
        let before = device.stats().busy_ticks;
        device.stats_at(bed.now + 40_000_000).busy_ticks - before
    };
    assert_eq!(grows(&bed.partitions[0]), 0);
    assert!((10..=11).contains(&grows(&bed.partitions[1])) && grows(&bed.partitions[1]) == 0);
    assert!((10..=11).contains(&grows(&bed.pool)));
    // What a client has done stays when it is gone.
    bed.clients.remove(0);
    assert_eq!(of(&bed.partitions[0]).1, 3);
    assert_eq!(of(&bed.pool).1, 3);
    bed.disks[1].state().stalls = false;
    bed.turn();
    assert_eq!(of(&bed.partitions[1]), (1, 1, [2, 1], 0, [0, 0]));
}

/// Keeps writes of the first partition under way, none of which may fail.
fn keep_busy(bed: &mut Bed) {
    for sector in 0..4 {
        // Refused while the pool is frozen.
        let _ = bed.clients[0].submit(write(sector, 7), bed.now);
    }
    for (of, end) in bed.turn() {
        assert!(of != 0 || end.status == Status::Ok, "{:?}", end.status);
    }
}

#[test]
fn a_partition_grows_comes_and_goes_while_another_is_busy() {
    for scheduler in SCHEDULERS {
        let mut bed = Bed::new(scheduler, &[64, 8]);
        keep_busy(&mut bed);
        // It grows.
        bed.disks[1].state().sectors = 32;
        let grown = bed.partitions[1].clone();
        assert_eq!(bed.run_beside(1, write(20, 1)), Status::IoErr, "{scheduler}");
        let size = grown.enlarge(0).unwrap();
        let grow = grown.clone();
        let changed = bed.carry_out(
            move |watch| grow.begin_reconfigure(watch, move |parts| parts.limits.grow_to(size)),
            keep_busy,
        );
        changed.unwrap();
        assert_eq!((grown.limits().capacity, bed.pool.limits().capacity), (32, 1 << 54));
        assert_eq!(bed.run_beside(1, write(20, 1)), Status::Ok, "{scheduler}");
        // Another comes.
        let added = Disk::of(16);
        let config = Config { name: String::from("vm3"), ..Config::default() };
        let vm3 = bed.pool.attach_partition(config, Arc::new(added.clone())).unwrap();
        let size = vm3.enlarge(0).unwrap();
        let grow = vm3.clone();
        let changed = bed.carry_out(
            move |watch| grow.begin_reconfigure(watch, move |parts| parts.limits.grow_to(size)),
            keep_busy,
        );
        changed.unwrap();
        bed.clients.push(vm3.submitter(bed.home.bell(), 2, 0).unwrap());
        assert_eq!(bed.run_beside(2, write(5, 3)), Status::Ok, "{scheduler}");
        assert_eq!(added.state().written.get(&5), Some(&3), "{scheduler}");
        assert_eq!(added.state().open, 1, "{scheduler}");
        // It goes: flushed, and no other is.
        let before = bed.disks[1].flushes();
        let gone = vm3.clone();
        let closed = bed.carry_out(move |watch| gone.begin_close(watch, Then::Ends), keep_busy);
        assert_eq!(closed.map(drop), Ok(()), "{scheduler}");
        assert_eq!((added.flushes(), bed.disks[1].flushes()), (1, before), "{scheduler}");
        assert_eq!(bed.run_beside(2, write(5, 4)), Status::Offline, "{scheduler}");
        keep_busy(&mut bed);
        assert_eq!(added.state().open, 0, "its queue is closed");
        assert_eq!(bed.pool.partitions().len(), 2);
        assert_eq!(bed.run_beside(1, write(20, 1)), Status::Ok, "{scheduler}");
        // As long as a client of it is there, no other disk has its number.
        let config = |name: &str| Config { name: String::from(name), ..Config::default() };
        while bed.clients[0].in_flight() > 0 {
            bed.turn();
        }
        let vm4 = bed.pool.open_partition(config("vm4"), Arc::new(Disk::of(16))).unwrap();
        assert_eq!((vm3.partition(), vm4.partition()), (Some(3), Some(4)));
        assert_eq!(bed.run_beside(2, write(5, 4)), Status::Offline, "{scheduler}");
        drop((bed.clients.pop(), vm3));
        let vm5 = bed.pool.open_partition(config("vm5"), Arc::new(Disk::of(16))).unwrap();
        assert_eq!(vm5.partition(), Some(3));
    }
}

impl Bed {
    /// How a bio ends, while the first partition has I/O under way.
    fn run_beside(&mut self, partition: usize, bio: Bio) -> Status {
        self.clients[partition].submit(bio, self.now).expect("accepted");
        for _ in 0..10_000 {
            if let Some((_, end)) = self.turn().into_iter().find(|(of, _)| *of == partition) {
                return end.status;
            }
        }
        panic!("it does not end");
    }
}

#[test]
fn what_cannot_be_a_partition_is_refused_with_the_value_and_the_bound() {
    let bed = Bed::new("none", &[8]);
    let config = |name: &str| Config { name: String::from(name), ..Config::default() };
    let refused = |name: &str| {
        let disk: Arc<dyn Driver> = Arc::new(Disk::of(8));
        bed.pool.attach_partition(config(name), disk).err().expect("refused").to_string()
    };
    assert_eq!(refused("vm1"), "pool ssd0 has a partition vm1 already");
    let plain = Device::new(config("sda"), Arc::new(Disk::of(8))).unwrap();
    let why = plain.attach_partition(config("x"), Arc::new(Disk::of(8))).err().unwrap();
    assert_eq!(why.to_string(), "sda is no pool");
    let large = bed.pool.open_partition(config("large"), Arc::new(Disk::of(1 << 45))).unwrap();
    assert_eq!(large.limits().capacity, (1 << 44) - (1 << 20), "what fits in its room");
    let all: Vec<Device> = (bed.pool.partitions().len()..usize::from(PARTITIONS_MAX))
        .map(|n| {
            bed.pool.attach_partition(config(&format!("p{n}")), Arc::new(Disk::of(8))).unwrap()
        })
        .collect();
    assert_eq!(refused("more"), "pool ssd0 has 1023 partitions, the most");
    drop(all);
}

fn named(name: &str) -> Config {
    Config { name: String::from(name), ..Config::default() }
}

#[test]
fn a_partition_that_is_dropped_and_not_closed_leaves_nothing_behind() {
    let mut bed = Bed::new("none", &[64, 64]);
    assert_eq!(bed.run(1, write(20, 1)).status, Status::Ok);
    drop((bed.clients.pop(), bed.partitions.pop()));
    bed.turn();
    assert_eq!(bed.disks[1].state().open, 0, "its queue is closed");
    assert_eq!(bed.pool.partitions().len(), 1);
    // A smaller disk with its number ends where it does itself.
    bed.add(Disk::of(8));
    let smaller = bed.partitions[1].clone();
    assert_eq!((smaller.partition(), smaller.limits().capacity), (Some(2), 8));
    assert_eq!(bed.run(1, write(20, 1)).status, Status::IoErr);
    assert_eq!(bed.run(1, write(7, 1)).status, Status::Ok);
    // None is in the way of larger blocks.
    drop((bed.clients.drain(..), bed.partitions.drain(..), smaller));
    let large = Disk::of(64);
    large.state().block = Some(4096);
    bed.add(large);
    assert_eq!(bed.pool.limits().logical_block_size, 4096);
}

#[test]
fn io_of_a_submitter_that_is_gone_reaches_a_disk_that_is_dropped_behind_it() {
    let mut bed = Bed::new("none", &[64, 64]);
    bed.clients[1].submit(write(20, 1), bed.now).expect("accepted");
    drop((bed.clients.pop(), bed.partitions.pop()));
    for _ in 0..10 {
        bed.turn();
    }
    let state = bed.disks[1].state();
    assert_eq!((state.written.get(&20), state.open), (Some(&1), 0));
}

#[test]
fn a_number_is_free_when_no_late_write_can_hold_up_another_disk() {
    let mut bed = Bed::new("none", &[64, 64]);
    bed.pool.reconfigure(|parts| parts.timeout_ns = 5_000_000).unwrap();
    bed.disks[1].state().stalls = true;
    assert_eq!(bed.run(1, write(0, 1)).status, Status::Timeout);
    let gone = bed.partitions.pop().expect("there are two");
    let closing = gone.clone();
    let closed = bed.carry_out(
        move |watch| closing.begin_close(watch, Then::EndsUnflushed),
        |bed| _ = bed.turn(),
    );
    assert_eq!(closed.map(drop), Ok(()));
    drop((bed.clients.pop(), gone));
    let stalled = bed.disks.pop().expect("there are two");
    bed.add(Disk::of(64));
    assert_eq!(bed.partitions[1].partition(), Some(3));
    assert_eq!(bed.run(1, write(0, 2)).status, Status::Ok);
    stalled.state().stalls = false;
    bed.turn();
    bed.turn();
    bed.add(Disk::of(64));
    assert_eq!(bed.partitions[2].partition(), Some(2));
    assert_eq!(bed.run(2, write(0, 3)).status, Status::Ok);
}

#[test]
fn a_pool_that_is_closed_lets_go_of_the_drivers_of_its_disks() {
    let mut bed = Bed::new("none", &[64]);
    let driver = Arc::new(Disk::of(64));
    let last = bed.pool.open_partition(named("last"), driver.clone()).unwrap();
    let pool = bed.pool.clone();
    let closed =
        bed.carry_out(move |watch| pool.begin_close(watch, Then::Ends), |bed| _ = bed.turn());
    assert!(closed.is_ok());
    drop(closed);
    bed.home = Home::strict(Bell::with_lanes(Box::new(NoWake), 128));
    assert_eq!(Arc::strong_count(&driver), 1, "a handle of the partition keeps nothing open");
    assert!(last.is_offline());
}

#[test]
fn a_setting_of_the_pool_stays_when_a_partition_that_it_knows_grows() {
    let mut bed = Bed::new("none", &[64]);
    let disk = Disk::of(8);
    disk.state().rotational = true;
    bed.add(disk);
    assert!(bed.pool.limits().rotational && bed.pool.limits().volatile_cache);
    let set = |parts: &mut weir_queue::Settings| {
        (parts.limits.rotational, parts.limits.volatile_cache) = (false, false);
    };
    bed.pool.reconfigure(set).unwrap();
    bed.disks[1].state().sectors = 32;
    let size = bed.partitions[1].enlarge(0).unwrap();
    bed.partitions[1].reconfigure(|parts| parts.limits.grow_to(size)).unwrap();
    assert_eq!(bed.partitions[1].limits().capacity, 32);
    assert!(!bed.pool.limits().rotational && !bed.pool.limits().volatile_cache);
    // Another one counts for itself.
    let disk = Disk::of(8);
    disk.state().rotational = true;
    bed.add(disk);
    assert!(bed.pool.limits().rotational && bed.pool.limits().volatile_cache);
}
