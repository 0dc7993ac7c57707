//! Finds out what is allocated: the answers to BLOCK_STATUS.
//!
//! A driver may block for as long as it likes over that question, so each export has a thread of
//! its own for it, started with the first question. Connections with questions take turns there,
//! and a turn is one call of the driver, which finds [`weir_queue::EXTENTS_MAX`] extents at most:
//! neither many questions nor a fragmented disk hold up those of another client. The questions of a
//! connection are dropped as soon as its [`Asker`] is.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound::{Excluded, Unbounded};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use weir_bio::SECTOR;
use weir_proto_nbd::server::Range;
use weir_proto_nbd::wire::{Extent, StatusFlags};
use weir_queue::Device;

/// Extents from the start of the range on, or why there are none.
pub(crate) type Found = Result<Vec<Extent>, String>;

/// The first step of a survey, sectors: 1 GiB. Each step doubles while answers stay short, so that
/// a vast empty disk does not take long.
const STEP: u64 = 1 << 21;

/// A step that found fewer extents was short.
const SHORT: usize = weir_queue::EXTENTS_MAX / 4;

/// A reply has at most so many extents; the client asks again behind them.
const EXTENTS_MAX: usize = 4 * weir_queue::EXTENTS_MAX;

/// Bytes an extent takes: as it is found, and in the reply.
const EXTENT_BYTES: u64 = 32;

/// Bytes that the answer to a question takes at most, until it is a reply and in it.
pub(crate) fn price(range: Range, one: bool) -> u32 {
    let extents = if one { 1 } else { (range.length / SECTOR).min(EXTENTS_MAX as u64) };
    (extents.max(1) * EXTENT_BYTES + 4 * EXTENT_BYTES) as u32
}

/// A BLOCK_STATUS on its way from a session to the surveyor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) slot: u32,
    pub(crate) range: Range,
    pub(crate) one: bool,
}

/// The right to ask, one for each connection. Without it no connection waits for the answers.
#[derive(Clone, Debug)]
pub(crate) struct Asker {
    number: u64,
    alive: Arc<()>,
}

/// A question and how far its answer is.
struct Survey {
    sector: u64,
    end: u64,
    one: bool,
    step: u64,
    extents: Vec<Extent>,
    answer: Box<dyn FnOnce(Found) + Send>,
}

/// The questions of one connection, oldest first.
struct Line {
    alive: Weak<()>,
    surveys: VecDeque<Survey>,
}

/// The questions of all connections.
#[derive(Default)]
struct Desk {
    lines: BTreeMap<u64, Line>,
    askers: u64,
    /// Whose turn was last.
    last: u64,
    closed: bool,
}

/// The state that the thread of an export shares with the connections that ask.
#[derive(Default)]
struct Shared {
    desk: Mutex<Desk>,
    asked: Condvar,
}

/// The thread of one export that finds extents.
pub(crate) struct Surveyor {
    device: Device,
    shared: Arc<Shared>,
    /// Whether there is a thread.
    thread: OnceLock<bool>,
}

impl Surveyor {
    pub(crate) fn new(device: Device) -> Surveyor {
        Surveyor { device, shared: Arc::default(), thread: OnceLock::new() }
    }

    /// For a connection that is about to ask.
    pub(crate) fn asker(&self) -> Asker {
        let mut desk = self.shared.desk();
        desk.askers += 1;
        Asker { number: desk.askers, alive: Arc::default() }
    }

    /// Surveys `range`, which is inside the device and of whole sectors, and hands what was found
    /// to `answer` on another thread; only the first extent has to be right if `one`.
    pub(crate) fn ask(
        &self,
        asker: &Asker,
        range: Range,
        one: bool,
        answer: impl FnOnce(Found) + Send + 'static,
    ) {
        if !self.thread.get_or_init(|| start(&self.device, &self.shared)) {
            // Without a thread nothing can be found out, and "data" is always a true answer.
            return answer(Ok(vec![Extent { length: range.length, flags: StatusFlags::EMPTY }]));
        }
        let survey = Survey {
            sector: range.offset / SECTOR,
            end: (range.offset + range.length) / SECTOR,
            one,
            step: STEP,
            extents: Vec::new(),
            answer: Box::new(answer),
        };
        let line = || Line { alive: Arc::downgrade(&asker.alive), surveys: VecDeque::new() };
        let mut desk = self.shared.desk();
        desk.lines.entry(asker.number).or_insert_with(line).surveys.push_back(survey);
        self.shared.asked.notify_one();
    }
}

impl Drop for Surveyor {
    fn drop(&mut self) {
        self.shared.desk().closed = true;
        self.shared.asked.notify_one();
    }
}

impl Shared {
    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the question whose turn it is; `None` at the end.
    fn next(&self) -> Option<(u64, Survey)> {
        let mut desk = self.desk();
        loop {
            if desk.closed {
                return None;
            }
            if let Some(next) = desk.next() {
                return Some(next);
            }
            desk = self.asked.wait(desk).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Takes back a question that needs another turn.
    fn go_on_later(&self, number: u64, survey: Survey) {
        // Its line may have gone with its connection.
        if let Some(line) = self.desk().lines.get_mut(&number) {
            line.surveys.push_front(survey);
        }
    }
}

impl Desk {
    /// The first question of the line behind the one that was last.
    fn next(&mut self) -> Option<(u64, Survey)> {
        self.lines.retain(|_, line| line.alive.strong_count() > 0);
        let waits = |(number, line): (&u64, &Line)| (!line.surveys.is_empty()).then_some(*number);
        let behind = self.lines.range((Excluded(self.last), Unbounded)).find_map(waits);
        let number = behind.or_else(|| self.lines.iter().find_map(waits))?;
        self.last = number;
        let survey = self.lines.get_mut(&number)?.surveys.pop_front()?;
        Some((number, survey))
    }
}

/// Starts the thread of an export; whether there is one.
fn start(device: &Device, shared: &Arc<Shared>) -> bool {
    let name = format!("weir-map-{}", device.config().name);
    let (device, shared) = (device.clone(), Arc::clone(shared));
    let work = move || {
        while let Some((number, mut survey)) = shared.next() {
            // A driver that panics leaves its own state as it left it, and its caller with an
            // error: nothing else would ever answer.
            let step = catch_unwind(AssertUnwindSafe(|| survey.step(&device)));
            let step = step.unwrap_or_else(|_| Err(String::from("the driver panicked")));
            if let Ok(false) = step {
                shared.go_on_later(number, survey);
                continue;
            }
            let Survey { answer, extents, .. } = survey;
            // It costs this question alone: the others wait for the same thread.
            let told = catch_unwind(AssertUnwindSafe(|| answer(step.map(|_| extents))));
            if told.is_err() {
                tracing::error!("the answer to a question of block status panicked");
            }
        }
    };
    let thread = std::thread::Builder::new().name(name).spawn(work);
    if let Err(error) = &thread {
        tracing::error!(%error, "no thread for block status: everything is taken for data");
    }
    thread.is_ok()
}

impl Survey {
    /// Asks the driver once; whether that was enough.
    fn step(&mut self, device: &Device) -> Result<bool, String> {
        let sectors = self.step.min(self.end - self.sector);
        let found = device.allocation(self.sector, sectors).map_err(|error| error.to_string())?;
        if found.len() < SHORT {
            self.step = self.step.saturating_mul(2);
        }
        let before = self.sector;
        for extent in found {
            self.sector += extent.sectors;
            join(&mut self.extents, extent);
        }
        if self.sector == before {
            return Err(format!("the driver found nothing at sector {before}"));
        }
        let enough = self.extents.len() >= EXTENTS_MAX || (self.one && self.extents.len() > 1);
        self.extents.truncate(EXTENTS_MAX);
        Ok(enough || self.sector >= self.end)
    }
}

fn join(extents: &mut Vec<Extent>, found: weir_queue::Extent) {
    let mut flags = StatusFlags::EMPTY;
    if found.hole {
        flags = flags | StatusFlags::HOLE;
    }
    if found.zero {
        flags = flags | StatusFlags::ZERO;
    }
    let length = found.sectors * SECTOR;
    match extents.last_mut() {
        Some(last) if last.flags == flags => last.length += length,
        _ => extents.push(Extent { length, flags }),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use weir_bio::Limits;
    use weir_queue::{Config, Driver, DriverError, DriverQueue, Queues};

    use super::*;

    /// A disk in memory whose allocation is beyond its driver.
    struct Panics(weir_local::Ram);

    impl Driver for Panics {
        fn limits(&self) -> Limits {
            self.0.limits()
        }

        fn queues(&self) -> Queues {
            self.0.queues()
        }

        fn open(&self, index: u16, depth: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
            self.0.open(index, depth)
        }

        fn allocation(&self, _: u64, _: u64) -> Result<Vec<weir_queue::Extent>, DriverError> {
            panic!("no idea")
        }
    }

    #[test]
    fn an_answer_that_panics_costs_no_other_question_its_answer() {
        let driver = weir_local::Ram::new(1 << 20).unwrap();
        let surveyor = Surveyor::new(Device::new(Config::default(), Arc::new(driver)).unwrap());
        let asker = surveyor.asker();
        let range = Range { offset: 0, length: 4096 };
        surveyor.ask(&asker, range, false, |_| panic!("as was asked for"));
        let (sender, answers) = channel();
        surveyor.ask(&asker, range, false, move |found| sender.send(found).unwrap());
        answers.recv_timeout(Duration::from_secs(60)).expect("an answer").unwrap();
    }

    #[test]
    fn a_driver_that_panics_over_a_question_leaves_none_without_an_answer() {
        let driver = Panics(weir_local::Ram::new(1 << 20).unwrap());
        let device = Device::new(Config::default(), Arc::new(driver)).unwrap();
        let surveyor = Surveyor::new(device);
        let asker = surveyor.asker();
        for _ in 0..2 {
            let (sender, answers) = channel();
            let range = Range { offset: 0, length: 4096 };
            surveyor.ask(&asker, range, false, move |found| sender.send(found).unwrap());
            let found = answers.recv_timeout(Duration::from_secs(60)).expect("an answer");
            assert_eq!(found.unwrap_err(), "the driver panicked");
        }
    }
}
