//! Lives: runs of the core, each of which its kind and its seed decide.

pub mod cut;
pub mod paths;
pub mod queue;
pub mod stripes;
pub mod tower;
pub mod turns;

use std::fmt;

use weir_bio::{Nanos, Prng};

use crate::outage::Cache;
use crate::path::{Order, Path};
use cut::{CACHE, CACHE_WITH_FUA, NO_CACHE, Way};
use paths::{Kind, LOSES};
use tower::Mapper;

/// How far a life came: two of one seed came equally far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lived {
    /// Bios that were sent.
    pub bios: u64,
    /// The time at its end.
    pub until: Nanos,
    /// Turns that its homes took.
    pub turns: u64,
}

/// A life that is still to be lived: its kind, and what beside the seed of its chances decides it.
#[derive(Clone, Copy, Debug)]
pub enum Life {
    /// One device, whose driver may fall silent.
    Queue(Path, bool),
    /// A power cut below one device with this cache.
    Cut(Way, Cache),
    /// A power cut below a stripe.
    Stripes,
    /// Several paths to one device.
    Paths(Kind),
    /// A device over others: the mapper, the way through it, and the way through each leg.
    Tower(Mapper, Path, Path),
    /// One client beside others that never stop.
    Turns(Path),
}

impl Life {
    /// The life of a seed, and the seed of its chances.
    #[must_use]
    pub fn of(seed: u64) -> (Life, u64) {
        let mut prng = Prng::new(seed ^ 0x11fe_0000_0000_0000);
        let life = match prng.below(100) {
            0..25 => Life::Queue(Path::any(&mut prng), false),
            25..45 => Life::Queue(Path::any(&mut prng), true),
            45..65 => Life::Cut(any_way(&mut prng), any_cache(&mut prng)),
            65..70 => Life::Stripes,
            70..80 => {
                let queues = prng.percent(30);
                let bound_s = (!queues && prng.percent(50)).then_some(8);
                Life::Paths(Kind { queues, bound_s, ..LOSES })
            }
            80..92 => {
                let mapper = Mapper::any(&mut prng);
                Life::Tower(mapper, Path::any(&mut prng), Path::any(&mut prng))
            }
            _ => Life::Turns(Path::any(&mut prng)),
        };
        (life, prng.next())
    }

    /// Lives it.
    ///
    /// # Panics
    /// When a law is broken: the message has the values.
    pub fn live(self, chance: u64) -> Lived {
        match self {
            Life::Queue(path, silent) => queue::live(path, chance, silent),
            Life::Cut(way, cache) => cut::live(way, cache, chance),
            Life::Stripes => stripes::live(chance),
            Life::Paths(kind) => paths::live(kind, chance).lived,
            Life::Tower(mapper, path, below) => tower::live(mapper, path, below, chance),
            Life::Turns(path) => turns::live(path, chance),
        }
    }

    /// The kind of life in a word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Life::Queue(_, false) => "queue",
            Life::Queue(_, true) => "silence",
            Life::Cut(..) => "cut",
            Life::Stripes => "stripes",
            Life::Paths(_) => "paths",
            Life::Tower(..) => "tower",
            Life::Turns(_) => "turns",
        }
    }
}

fn any_way(prng: &mut Prng) -> Way {
    let ways = [
        Way::Sq,
        Way::SqBy(Order::Deadline),
        Way::SqBy(Order::Cfq),
        Way::Mq,
        Way::MqScheduled,
        Way::MqBy(Order::Deadline),
        Way::MqBy(Order::Kyber),
        Way::MqBy(Order::Bfq),
        Way::RoundRobin,
    ];
    ways[prng.below(ways.len() as u64) as usize]
}

fn any_cache(prng: &mut Prng) -> Cache {
    [NO_CACHE, CACHE, CACHE_WITH_FUA][prng.below(3) as usize]
}

impl fmt::Display for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Life::Queue(path, false) => write!(f, "a device, {path}"),
            Life::Queue(path, true) => write!(f, "a device whose driver falls silent, {path}"),
            Life::Cut(way, cache) => write!(f, "a power cut, {way:?}, {cache:?}"),
            Life::Stripes => f.write_str("a power cut below a stripe"),
            Life::Paths(kind) => write!(f, "several paths, {kind:?}"),
            Life::Tower(mapper, path, below) => write!(f, "{mapper}: {path}; legs {below}"),
            Life::Turns(path) => write!(f, "one beside others that never stop, {path}"),
        }
    }
}
