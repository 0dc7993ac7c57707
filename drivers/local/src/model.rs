//! The model driver: memory that answers when a modelled disk would, for trials of a disk that is
//! not there.
//!
//! The bytes move when a request is submitted, as in [`Ram`]; the answer comes at the end that
//! [`weir_sim_disk`] computes. All hard queues lead to the one disk: the queue that is reaped first
//! finds the ends of all, and wakes the lanes of the others.

pub mod target;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_bio::{Flags, Limits, Nanos, Op, SECTOR, Status};
use weir_queue::{
    Affinity, Batch, Done, Driver, DriverError, DriverQueue, Extent, Queues, Request, Tag, Wake,
};
use weir_sim_disk::{Disk, Job, Spec};

use crate::Ram;

/// Hard queues at most: their numbers stand in the names of commands.
const QUEUES_MAX: u16 = 256;

/// Seed of what the model leaves to chance: two trials of one disk are alike.
const SEED: u64 = 1;

/// A device in memory with the times of a disk.
pub struct Model {
    ram: Ram,
    spec: Spec,
    shared: Arc<Mutex<Shared>>,
}

impl Model {
    /// A disk at rest that reads as zeros.
    ///
    /// # Errors
    /// As [`Ram::new`], and where no read was measured.
    pub fn new(spec: Spec) -> Result<Model, DriverError> {
        if !spec.takes(Op::Read) {
            let what = String::from("no read was measured: a disk is read, at least");
            return Err(DriverError { what, source: None });
        }
        let (ram, disk) = (Ram::new(spec.size)?.depth(spec.depth), Disk::new(&spec, SEED));
        let shared = Shared { disk, now: Nanos::ZERO, queues: Vec::new() };
        Ok(Model { ram, spec, shared: Arc::new(Mutex::new(shared)) })
    }
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model").field("spec", &self.spec).finish_non_exhaustive()
    }
}

impl Driver for Model {
    fn limits(&self) -> Limits {
        let volatile_cache = self.spec.has_volatile_cache();
        let limits = self.ram.limits();
        let longest = self.spec.command_sectors().unwrap_or(u32::MAX);
        Limits {
            rotational: self.spec.rotational,
            volatile_cache,
            fua: volatile_cache,
            max_hw_sectors: limits.max_hw_sectors.min(longest),
            // Where no write was measured, none has a time.
            read_only: limits.read_only || !self.spec.takes(Op::Write),
            ..limits
        }
    }

    fn queues(&self) -> Queues {
        Queues { max: QUEUES_MAX, home: Affinity::Any, ..self.ram.queues() }
    }

    fn open(&self, index: u16, depth: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
        let tags = usize::from(depth);
        let memory = self.ram.open(index, depth)?;
        let place = lock(&self.shared).open();
        Ok(Box::new(ModelQueue {
            place,
            memory,
            shared: Arc::clone(&self.shared),
            jobs: Vec::with_capacity(tags),
            served: Done::default(),
            answers: vec![None; tags],
            ended: Vec::with_capacity(tags),
            in_flight: 0,
        }))
    }

    fn allocation(&self, sector: u64, sectors: u64) -> Result<Vec<Extent>, DriverError> {
        self.ram.allocation(sector, sectors)
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    // Nothing panics under the lock, so nothing is half done.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The disk, and what it has for the hard queues.
struct Shared {
    disk: Disk,
    /// The latest time that a queue told: that of another may be a moment behind.
    now: Nanos,
    /// Those that are open, and those that are closed with commands under way: the disk ends those
    /// all the same, and they are no commands of a queue that was opened since.
    queues: Vec<Queue>,
}

#[derive(Default)]
struct Queue {
    is_open: bool,
    /// Commands that the disk has.
    under_way: usize,
    /// Numbers of tags whose commands have ended.
    ended: Vec<u16>,
    lane: Option<Arc<dyn Wake>>,
}

impl Shared {
    /// A place for a queue: one that no command names.
    fn open(&mut self) -> u16 {
        let is_free = |queue: &Queue| !queue.is_open && queue.under_way == 0;
        let place = self.queues.iter().position(is_free).unwrap_or(self.queues.len());
        let queue = Queue { is_open: true, ..Queue::default() };
        match self.queues.get_mut(place) {
            Some(free) => *free = queue,
            None => self.queues.push(queue),
        }
        place as u16
    }

    /// Sorts out what has ended, and wakes the lanes of other queues than `mine`.
    fn look(&mut self, now: Nanos, mine: u16) {
        self.now = self.now.max(now);
        while let Some(end) = self.disk.take_end(self.now) {
            let (queue, tag) = ((end.id >> 16) as u16, end.id as u16);
            let to = &mut self.queues[usize::from(queue)];
            to.under_way -= 1;
            if !to.is_open {
                continue;
            }
            let is_first = to.ended.is_empty();
            to.ended.push(tag);
            if let Some(lane) = to.lane.as_ref().filter(|_| is_first && queue != mine) {
                lane.wake();
            }
        }
    }
}

struct ModelQueue {
    place: u16,
    memory: Box<dyn DriverQueue>,
    shared: Arc<Mutex<Shared>>,
    /// Commands of the burst.
    jobs: Vec<Job>,
    served: Done,
    /// What the memory said, by tag, until the disk has come to it.
    answers: Vec<Option<(Tag, Status)>>,
    /// Handed over in one reap.
    ended: Vec<u16>,
    in_flight: usize,
}

impl ModelQueue {
    fn job(&self, tag: Tag, request: &Request) -> Job {
        Job {
            id: u32::from(self.place) << 16 | u32::from(tag.0),
            op: request.op(),
            sector: request.offset() / SECTOR,
            sectors: (request.len() / SECTOR) as u32,
            fua: request.flags().has(Flags::FUA),
        }
    }
}

impl DriverQueue for ModelQueue {
    fn submit(&mut self, batch: &mut Batch<'_>, now: Nanos) {
        while let Some((tag, request)) = batch.peek() {
            let job = self.job(tag, request);
            let before = self.memory.in_flight();
            batch.offer(1, |one| self.memory.submit(one, now));
            if self.memory.in_flight() > before {
                self.jobs.push(job);
            }
        }
        self.memory.reap(now, &mut self.served);
        for (tag, status, _) in self.served.drain() {
            self.answers[usize::from(tag.0)] = Some((tag, status));
        }
    }

    fn commit(&mut self, now: Nanos) {
        let mut shared = lock(&self.shared);
        shared.now = shared.now.max(now);
        let now = shared.now;
        self.in_flight += self.jobs.len();
        shared.queues[usize::from(self.place)].under_way += self.jobs.len();
        self.jobs.drain(..).for_each(|job| shared.disk.start(job, now));
    }

    fn at_home(&mut self, lane: Arc<dyn Wake>) {
        lock(&self.shared).queues[usize::from(self.place)].lane = Some(lane);
    }

    fn reap(&mut self, now: Nanos, done: &mut Done) {
        if self.in_flight == 0 {
            return;
        }
        let mut shared = lock(&self.shared);
        shared.look(now, self.place);
        let mine = &mut shared.queues[usize::from(self.place)].ended;
        std::mem::swap(mine, &mut self.ended);
        drop(shared);
        for number in self.ended.drain(..) {
            let answer = self.answers[usize::from(number)].take();
            let (tag, status) = answer.expect("the memory has answered when it was submitted");
            done.push(tag, status);
            self.in_flight -= 1;
        }
    }

    fn wake_at(&self) -> Option<Nanos> {
        if self.in_flight == 0 {
            return None;
        }
        let shared = lock(&self.shared);
        match shared.queues[usize::from(self.place)].ended.is_empty() {
            true => shared.disk.wake_at(),
            false => Some(shared.now),
        }
    }

    fn in_flight(&self) -> usize {
        self.in_flight + self.jobs.len()
    }
}

impl Drop for ModelQueue {
    fn drop(&mut self) {
        let mut shared = lock(&self.shared);
        let mine = &mut shared.queues[usize::from(self.place)];
        (mine.is_open, mine.lane) = (false, None);
        mine.ended.clear();
    }
}

#[cfg(test)]
mod tests {
    use weir_bio::{Bio, Buf, Data};
    use weir_queue::Cancel;
    use weir_queue::rig::Rig;

    use super::*;

    const US: u64 = 1_000;

    fn model(text: &str) -> Model {
        Model::new(Spec::parse(text).expect("a disk")).expect("a device")
    }

    #[test]
    fn bytes_are_kept_and_answers_come_when_the_disk_would() {
        let model = model("size = \"1MiB\"\n[fixed]\nlatency = \"100us\"");
        let mut rig = Rig::new(model.open(0, 4).unwrap(), 4);
        let page = Buf::filled(4096, |bytes| bytes.fill(7));
        let bios = vec![Bio::write(8, page).cookie(1), Bio::read(8, Buf::zeroed(4096)).cookie(2)];
        assert!(rig.submit(bios, Nanos(10 * US)).is_none());
        assert_eq!((rig.queue().in_flight(), rig.queue().wake_at()), (2, Some(Nanos(110 * US))));
        assert!(rig.reap(Nanos(110 * US - 1)).is_empty());
        let first = rig.reap(Nanos(110 * US));
        assert_eq!((first.len(), first[0].cookie), (1, 1));
        // One command at a time.
        let second = rig.reap(Nanos(210 * US)).remove(0);
        assert_eq!((second.cookie, second.status), (2, Status::Ok));
        let Data::One(bytes) = second.data else { panic!("{:?}", second.data) };
        assert!(bytes.iter().all(|byte| *byte == 7));
        assert_eq!((rig.queue().in_flight(), rig.queue().wake_at()), (0, None));
    }

    struct Told(std::sync::atomic::AtomicUsize);

    impl Wake for Told {
        fn wake(&self) {
            self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        }
    }

    #[test]
    fn queues_share_the_disk_and_wake_the_one_whose_command_has_ended() {
        let model = model("size = \"1MiB\"\n[fixed]\nlatency = \"100us\"");
        let told = Arc::new(Told(0.into()));
        let mut rigs = [0, 1].map(|index| {
            let mut queue = model.open(index, 4).unwrap();
            if index == 1 {
                queue.at_home(Arc::clone(&told) as Arc<dyn Wake>);
            }
            Rig::new(queue, 4)
        });
        for rig in &mut rigs {
            assert!(rig.submit(vec![Bio::read(0, Buf::zeroed(4096))], Nanos::ZERO).is_none());
        }
        // The second waits for the first: one disk.
        assert_eq!(rigs[0].reap(Nanos(250 * US)).len(), 1);
        assert_eq!(told.0.load(std::sync::atomic::Ordering::SeqCst), 1);
        assert_eq!(rigs[1].queue().wake_at(), Some(Nanos(250 * US)), "at once");
        assert_eq!(rigs[1].reap(Nanos(200 * US)).len(), 1, "though its time is a moment behind");
    }

    #[test]
    fn a_command_of_a_queue_that_is_closed_is_none_of_the_next_one() {
        let model = model("size = \"1MiB\"\n[fixed]\nlatency = \"100us\"");
        let read = || vec![Bio::read(0, Buf::zeroed(4096))];
        for round in 0..3 {
            let begun = round * 1_000 * US;
            let mut closed = Rig::new(model.open(0, 4).unwrap(), 4);
            assert!(closed.submit(read(), Nanos(begun)).is_none());
            // Given up, as the disk cannot forget it.
            assert_eq!(closed.cancel_all(Nanos(begun)), [Cancel::Pending]);
            drop(closed);
            let mut next = Rig::new(model.open(0, 4).unwrap(), 4);
            // The disk still has the first one before it.
            assert!(next.submit(read(), Nanos(begun + 50 * US)).is_none());
            assert!(next.reap(Nanos(begun + 150 * US)).is_empty());
            assert_eq!(next.reap(Nanos(begun + 200 * US)).len(), 1);
        }
        assert!(lock(&model.shared).queues.len() <= 2, "places are used again");
    }

    #[test]
    fn a_disk_says_what_its_model_is() {
        let of = |name: &str| Model::new(Spec::preset(name).unwrap()).unwrap();
        let (disk, ssd) = (of("nearline-7200"), of("sas-ssd"));
        let facts = |limits: Limits| (limits.rotational, limits.volatile_cache, limits.fua);
        assert_eq!(facts(disk.limits()), (true, true, true));
        assert_eq!(facts(ssd.limits()), (false, false, false), "its cache is protected");
        assert_eq!((disk.queues().depth, ssd.queues().depth), (32, 128));
        assert_eq!(ssd.limits().capacity * SECTOR, 960_197_124_096);
    }
}
