//! The cost of idle disks for a busy one: CPU time per I/O of a reactor whose disk is used, beside
//! none and beside 1,000 that are not. Both reactors are of this process, and take turns.
//!
//! cargo bench -p weir-bench --bench disks [-- --disks 1000 --rounds 400 --ios 4000]

#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use rustix::time::{ClockId, clock_gettime};
use weir_bench::arguments::{Arguments, Parameter, Usage};
use weir_bench::rounds::{Figure, machine};
use weir_bio::{Bio, Buf, Nanos};
use weir_live::{Handle, Host, Readiness, Seat, Service, Turn};
use weir_local::{Null, Ram};
use weir_queue::{Config, Device, Driver};

/// Most that an I/O may cost beside the idle disks, times what it costs beside none.
const GOAL: f64 = 1.03;

/// Bytes of each disk: what is read stays in a CPU's cache, wherever the disk's memory lies.
const BYTES: u64 = 256 << 10;

const USAGE: Usage = Usage {
    bench: concat!(env!("CARGO_PKG_NAME"), " --bench ", env!("CARGO_CRATE_NAME")),
    about: "The cost of idle disks for a busy one.",
    parameters: &[
        Parameter::number("--disks", (1000, 20), "idle disks"),
        Parameter::number("--rounds", (400, 2), "rounds in which each is measured"),
        Parameter::number("--ios", (4000, 100), "I/Os of a round"),
    ],
};

fn main() {
    let arguments = Arguments::of_process(&USAGE);
    let disks = arguments.number("--disks");
    let rounds = arguments.number("--rounds");
    let ios = arguments.number("--ios");
    println!("{}", machine());
    let mut missed = Vec::new();
    for (target, depth) in [("ram", 1), ("null", 1), ("null", 32)] {
        let [alone, beside] = [0, disks].map(|idle| Bench::new(target, depth, idle));
        let (mut costs, mut beside_costs) = (Figure::default(), Figure::default());
        for round in 0..rounds + 1 {
            // Each goes first as often.
            let (one, other) = match round % 2 {
                0 => (alone.run(ios), beside.run(ios)),
                _ => {
                    let other = beside.run(ios);
                    (alone.run(ios), other)
                }
            };
            // The first round warms up.
            if round > 0 {
                costs.add(one);
                beside_costs.add(other);
            }
        }
        let ratio = beside_costs.over(&costs);
        println!(
            "{target}, depth {depth}: {costs:.1} ns of CPU per I/O, beside {disks} idle disks \
             {beside_costs:.1} ns, ratio {ratio:.3}, goal {GOAL}"
        );
        if ratio.median() > GOAL {
            missed.push(format!("{target}, depth {depth}: {:.3}", ratio.median()));
        }
        alone.end();
        beside.end();
    }
    // A small run shows that it runs; of so few I/Os it says nothing.
    assert!(missed.is_empty() || disks < 1000, "above {GOAL}: {missed:?}");
}

/// A reactor with a busy disk and idle ones.
struct Bench {
    host: Host,
    handle: Handle<Reader>,
    ended: Receiver<f64>,
}

impl Bench {
    fn new(target: &str, depth: u32, idle: u32) -> Bench {
        let host = Host::new(1).expect("a reactor");
        for index in 0..idle {
            let null = Null::new(BYTES).expect("whole sectors");
            host.adopt(&device(format!("idle{index}"), Arc::new(null))).expect("an idle disk");
        }
        let driver: Arc<dyn Driver> = match target {
            "ram" => Arc::new(Ram::new(BYTES).expect("whole sectors")),
            _ => Arc::new(Null::new(BYTES).expect("whole sectors")),
        };
        let busy = device("busy".into(), driver);
        host.adopt(&busy).expect("the busy disk");
        let (said, ended) = channel();
        let make = move |turn: &mut Turn<'_>| {
            let seat = turn.submitter(&busy, 0).expect("a submitter");
            let spare = (0..depth).map(|_| Buf::zeroed(4096)).collect();
            Reader { seat, spare, next: 0, to_submit: 0, to_end: 0, of: 0, began: 0, said }
        };
        let handle = host.install(0, make).expect("a service");
        Bench { host, handle, ended }
    }

    /// CPU time for each of so many reads, ns.
    fn run(&self, ios: u32) -> f64 {
        self.handle.post(move |reader, turn| {
            (reader.to_submit, reader.to_end, reader.of) = (ios, ios, ios);
            reader.began = cpu_ns();
            reader.submit(turn.now());
        });
        self.ended.recv().expect("the reactor answers")
    }

    fn end(self) {
        self.handle.remove();
        self.host.stop(10_000_000_000).expect("the host stops");
    }
}

fn device(name: String, driver: Arc<dyn Driver>) -> Device {
    let config = Config { name, scheduler: Some("none".into()), ..Config::default() };
    Device::new(config, driver).expect("a disk")
}

/// CPU time of the calling thread so far, ns.
fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Keeps as many reads under way as it has buffers.
struct Reader {
    seat: Seat,
    spare: Vec<Buf>,
    next: u64,
    to_submit: u32,
    to_end: u32,
    of: u32,
    began: u64,
    said: Sender<f64>,
}

impl Reader {
    fn submit(&mut self, now: Nanos) {
        while self.to_submit > 0
            && let Some(buf) = self.spare.pop()
        {
            self.to_submit -= 1;
            self.next = (self.next + 8) % (BYTES / 512);
            let refused = self.seat.submitter.submit(Bio::read(self.next, buf), now);
            assert!(refused.is_ok(), "a slot for each");
        }
        self.seat.submitter.flush_plug(now);
    }
}

impl Service for Reader {
    fn ready(&mut self, _: &mut Turn<'_>, _: u32, _: Readiness) {}

    fn completed(&mut self, turn: &mut Turn<'_>, _: u32) {
        let Reader { seat, spare, to_end, .. } = self;
        seat.submitter.complete(turn.now(), |done| {
            *to_end -= 1;
            spare.extend(done.data.into_spare());
        });
        if self.to_end == 0 && self.of > 0 {
            let spent = (cpu_ns() - self.began) as f64 / f64::from(std::mem::take(&mut self.of));
            // The bench may have ended.
            let _ = self.said.send(spent);
        }
        self.submit(turn.now());
    }

    fn settle(&mut self, _: &mut Turn<'_>) {}
}
