//! The ways a request can take through the core.

use std::fmt;
use std::sync::Arc;

use weir_bio::Prng;
use weir_queue::driver::Affinity;
use weir_queue::{Config, Device, Driver, QueueMode, Spread};
use weir_sched::Make;
use weir_sched::legacy::noop::Noop;
use weir_sched::mq::bfq::Bfq;
use weir_sched::mq::kyber::Kyber;

use super::tokens;
use super::watched::Watched;

/// The scheduler that decides the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// First in, first out; the same for every lane.
    Noop,
    /// By deadline and sector; the same for every lane.
    Deadline,
    /// Each lane its own requests; tokens go round among all lanes.
    Kyber,
    /// Budgets for each submitter, and waits between them.
    Bfq,
    /// One token for all lanes.
    OneToken,
    /// Two tokens that rest in between.
    TokensThatRest,
    /// Slices of time for each submitter, and waits between them; on the single-queue path.
    Cfq,
}

/// A way from a submitter to the driver.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// Single-queue or multi-queue.
    pub mode: QueueMode,
    /// How submitters find lanes.
    pub spread: Spread,
    /// Lanes in use.
    pub lanes: u16,
    /// There is a scheduler.
    pub scheduled: bool,
    /// Which one.
    pub order: Order,
    /// The lanes share one set of tags.
    pub shared_tags: bool,
    /// The threads that may turn a lane.
    pub home: Affinity,
}

impl Path {
    /// Multi-queue, no scheduler.
    pub const fn mq(lanes: u16) -> Path {
        Path {
            mode: QueueMode::Mq,
            spread: Spread::Submitter,
            lanes,
            scheduled: false,
            order: Order::Noop,
            shared_tags: false,
            home: Affinity::Any,
        }
    }

    /// Single-queue, with `noop`.
    pub const fn sq(home: Affinity) -> Path {
        Path { mode: QueueMode::Sq, scheduled: true, home, ..Path::mq(1) }
    }

    /// With a scheduler: first in, first out.
    pub const fn scheduled(self) -> Path {
        Path { scheduled: true, ..self }
    }

    /// With this scheduler.
    pub const fn by(self, order: Order) -> Path {
        Path { scheduled: true, order, ..self }
    }

    /// With one set of tags for all lanes.
    pub const fn sharing(self) -> Path {
        Path { shared_tags: true, ..self }
    }

    /// With submitters that take the lanes in turn.
    pub const fn in_turn(self) -> Path {
        Path { spread: Spread::RoundRobin, ..self }
    }

    /// One by chance: any of the schedulers, in any of its modes.
    pub fn any(prng: &mut Prng) -> Path {
        let lanes = 1 + prng.below(4) as u16;
        let home = if prng.percent(70) { Affinity::Any } else { Affinity::Fixed };
        let path = match prng.below(10) {
            0 => return Path::sq(home),
            1 => return Path::sq(home).by(Order::Deadline),
            2 => return Path::sq(home).by(Order::Cfq),
            3 => Path::mq(lanes).in_turn(),
            4 => Path::mq(lanes).scheduled(),
            5 => Path::mq(lanes).by(Order::Deadline),
            6 => Path::mq(lanes).by(Order::Kyber),
            7 => Path::mq(lanes).by(Order::Bfq),
            _ => Path::mq(lanes),
        };
        if prng.percent(30) { path.sharing() } else { path }
    }

    /// The same with the scheduler that is there now.
    pub fn as_it_is(self, device: &Device) -> Path {
        let order = match device.scheduler() {
            "kyber" => Order::Kyber,
            "bfq" => Order::Bfq,
            "cfq" => Order::Cfq,
            "deadline" | "mq-deadline" => Order::Deadline,
            "none" | "noop" => Order::Noop,
            _ => self.order,
        };
        Path { scheduled: device.scheduler() != "none", order, ..self }
    }

    /// A device of this path in front of `driver`; the rest as `config` says.
    pub fn device(&self, config: Config, driver: Arc<dyn Driver>) -> Device {
        let config = Config { mode: self.mode, spread: self.spread, queues: self.lanes, ..config };
        let listed = match (self.mode, self.order) {
            (QueueMode::Sq, Order::Deadline) => "deadline",
            (QueueMode::Sq, Order::Cfq) => "cfq",
            (QueueMode::Sq, _) => "noop",
            (QueueMode::Mq, Order::Deadline) => "mq-deadline",
            (QueueMode::Mq, _) => "none",
        };
        let config = Config { scheduler: Some(String::from(listed)), ..config };
        let own = self.mode == QueueMode::Mq && self.order != Order::Deadline;
        let device = if self.scheduled && own {
            let make: Make = match self.order {
                Order::Cfq => panic!("cfq is for the single-queue path"),
                Order::Noop | Order::Deadline => |setup| Box::new(Watched::new(Noop::new(setup))),
                Order::Kyber => |setup| Box::new(Watched::new(Kyber::new(setup))),
                Order::Bfq => |setup| Box::new(Watched::new(Bfq::new(setup))),
                Order::OneToken => tokens::one,
                Order::TokensThatRest => tokens::two_that_rest,
            };
            Device::with_scheduler(config, driver, make)
        } else {
            Device::new(config, driver)
        };
        device.expect("a configuration within its bounds")
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mode = if self.mode == QueueMode::Sq { "sq" } else { "mq" };
        write!(f, "{mode}, {} lanes", self.lanes)?;
        if self.scheduled {
            write!(f, ", {:?}", self.order)?;
        }
        if self.spread == Spread::RoundRobin {
            f.write_str(", round robin")?;
        }
        if self.shared_tags {
            f.write_str(", shared tags")?;
        }
        write!(f, ", homes {:?}", self.home)
    }
}
