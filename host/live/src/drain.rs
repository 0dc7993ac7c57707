//! Finishing what devices were given: wait for all of it, flush, and say what did not end. One
//! thread, the caller's, does so for any number of devices.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use weir_bio::{Nanos, Status};
use weir_queue::{Bell, Closing, Device, Frozen, Home, Lane, Progress, Step, Then, Watch};
use weir_ring::PendingBits;

use crate::clock::Clock;
use crate::homes::Homes;
use crate::limited::sleep;
use crate::wake::Unpark;

/// How long reactors may take to say what is oldest, ns.
const QUESTION_NS: u64 = 200_000_000;

/// A device that could not be brought to rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfinished {
    /// The device's name; empty for the host as a whole.
    pub device: String,
    /// I/O accepted and not ended.
    pub requests: u64,
    /// How long ago the oldest of it was accepted, ns, as far as its lanes know.
    pub oldest_ns: Option<u64>,
    /// How the last flush ended, if it did.
    pub flush: Option<Status>,
    /// The obstacle beside I/O.
    pub obstacle: Option<Obstacle>,
}

/// Why a device is not closed although none of its I/O is unfinished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Obstacle {
    /// One of the host's reactors asked, and would wait for itself.
    OnReactor,
    /// This reactor does not answer, so lanes of it are open.
    Silent(usize),
    /// Another change of the device, or another freeze, was not over.
    Control(weir_queue::Wait),
}

impl Unfinished {
    pub(crate) fn because(device: &str, obstacle: Obstacle) -> Unfinished {
        let (device, obstacle) = (String::from(device), Some(obstacle));
        Unfinished { device, requests: 0, oldest_ns: None, flush: None, obstacle }
    }
}

impl fmt::Display for Unfinished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Unfinished { device, requests, .. } = self;
        match self.obstacle {
            Some(Obstacle::OnReactor) if device.is_empty() => {
                return f.write_str("a reactor cannot stop its host, as it would wait for itself");
            }
            Some(Obstacle::OnReactor) => {
                return write!(
                    f,
                    "disk {device}: a reactor cannot close it, as it would wait for itself"
                );
            }
            Some(Obstacle::Silent(reactor)) => {
                return write!(
                    f,
                    "disk {device}: reactor {reactor} does not close its hard queues"
                );
            }
            Some(Obstacle::Control(wait)) => {
                return write!(f, "disk {device}: not closed: it waits for {wait}");
            }
            None => {}
        }
        if let Some(status) = self.flush {
            return write!(f, "disk {device}: the last flush failed: {status}");
        }
        let plural = if *requests == 1 { "" } else { "s" };
        write!(f, "disk {device}: {requests} request{plural} unfinished")?;
        match self.oldest_ns {
            Some(ns) => write!(f, ", the oldest after {:.1} s", ns as f64 / 1e9),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Unfinished {}

/// Brings each device to rest and then into the state that `then` says, `limit_ns` for all
/// together. Returns each frozen device, or its unfinished I/O: that device goes on as before.
pub(crate) fn drain(
    homes: &Homes,
    devices: &[Device],
    limit_ns: u64,
    then: impl Fn(&Device) -> Then,
) -> Vec<Result<Frozen, Unfinished>> {
    let began = Clock.now();
    let until = Nanos(began.0.saturating_add(limit_ns));
    // Orders given before are submitted before: each reactor has come this far. One that does not
    // answer leaves the others half of the time.
    let here: Vec<_> = (0..homes.remotes.len()).map(|reactor| homes.ask(reactor, |_| ())).collect();
    for here in here {
        // A reactor that has not come so far is found out below.
        let _ = here.recv_timeout(left(Nanos(began.0.saturating_add(limit_ns / 2))));
    }
    let bell = Bell::new(Box::new(Unpark::current()), devices.len().min(PendingBits::SOURCES_MAX));
    let (tokens, home) = (bell.submitters(), Home::new(Arc::clone(&bell)));
    let begin = |(index, device): (usize, &Device)| {
        Rest::Waits(device.begin_close(&Watch::new(&bell, index % tokens), then(device)))
    };
    let mut rests: Vec<Rest> = devices.iter().enumerate().map(begin).collect();
    let mut told: Vec<usize> = (0..tokens).collect();
    let mut missing = devices.len();
    while missing > 0 {
        let now = Clock.now();
        for token in told.drain(..) {
            for rest in rests.iter_mut().skip(token).step_by(tokens) {
                missing -= usize::from(rest.poll(now));
            }
        }
        if missing == 0 || now >= until {
            break;
        }
        sleep(&home, until);
        home.take_told(&mut told);
    }
    // Only then are the steps dropped that did not end: until then nothing new is let in.
    report(homes, devices, &rests)
        .into_iter()
        .zip(rests)
        .map(|(unfinished, rest)| match (unfinished, rest) {
            (None, Rest::Ended(Ok(frozen))) => Ok(frozen),
            (unfinished, _) => Err(unfinished.expect("a device that does not rest is reported")),
        })
        .collect()
}

/// The devices level by level: each above those that it lies on.
pub(crate) fn levels(devices: Vec<Device>) -> Vec<Vec<Device>> {
    let (mut levels, mut left) = (Vec::new(), devices);
    while !left.is_empty() {
        let is_leg = |device: &Device| left.iter().flat_map(Device::legs).any(|leg| leg.is(device));
        let legs: Vec<bool> = left.iter().map(is_leg).collect();
        let mut is_leg = legs.into_iter();
        let (below, level) = left.into_iter().partition(|_| is_leg.next() == Some(true));
        levels.push(level);
        left = below;
    }
    levels
}

/// How far a device has come.
enum Rest {
    Waits(Closing),
    Ended(Result<Frozen, Status>),
}

impl Rest {
    /// Whether it has just ended.
    fn poll(&mut self, now: Nanos) -> bool {
        let Rest::Waits(closing) = self else { return false };
        let Progress::Ended(end) = closing.poll(now) else { return false };
        *self = Rest::Ended(end);
        true
    }
}

pub(crate) fn left(until: Nanos) -> Duration {
    Duration::from_nanos(until.since(Clock.now()))
}

/// The unfinished I/O of each device that is not at rest.
fn report(homes: &Homes, devices: &[Device], rests: &[Rest]) -> Vec<Option<Unfinished>> {
    let now = Clock.now();
    // All are asked before any is waited for.
    let asked: Vec<_> = devices
        .iter()
        .zip(rests)
        .map(|(device, rest)| match rest {
            Rest::Ended(Ok(_)) => None,
            rest => Some((device, rest, ask_oldest(homes, device))),
        })
        .collect();
    let until = now + QUESTION_NS;
    asked
        .into_iter()
        .map(|asked| {
            let (device, rest, answers) = asked?;
            let answers = answers.into_iter();
            let oldest =
                answers.filter_map(|answer| answer.recv_timeout(left(until)).ok().flatten()).min();
            let (flush, obstacle) = match rest {
                Rest::Ended(end) => (end.as_ref().err().copied(), None),
                Rest::Waits(closing) => (None, obstacle(closing.waits_for())),
            };
            let requests = device.stats().in_flight;
            Some(Unfinished {
                device: device.config().name.clone(),
                requests,
                oldest_ns: oldest.map(|at| now.since(at)),
                flush,
                // Another change waits for that I/O as well.
                obstacle: obstacle.filter(|_| requests == 0),
            })
        })
        .collect()
}

/// The obstacle that a close waits for, if it is no I/O.
fn obstacle(wait: weir_queue::Wait) -> Option<Obstacle> {
    use weir_queue::Wait;
    match wait {
        Wait::Requests(_) | Wait::Flush => None,
        Wait::Change | Wait::Freeze | Wait::Lanes | Wait::Opening(_) | Wait::Closing(_) => {
            Some(Obstacle::Control(wait))
        }
    }
}

type Oldest = std::sync::mpsc::Receiver<Option<Nanos>>;

fn ask_oldest(homes: &Homes, device: &Device) -> Vec<Oldest> {
    (0..homes.remotes.len())
        .map(|reactor| {
            let device = device.clone();
            homes.ask(reactor, move |reactor| {
                let mine = reactor.home().lanes().filter(|lane| device.owns(lane));
                mine.filter_map(Lane::oldest).min()
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_names_the_disk_the_number_and_the_age() {
        let stuck = Unfinished {
            device: "sda".into(),
            requests: 3,
            oldest_ns: Some(4_200_000_000),
            flush: None,
            obstacle: None,
        };
        assert_eq!(stuck.to_string(), "disk sda: 3 requests unfinished, the oldest after 4.2 s");
        let failed = Unfinished { flush: Some(Status::Medium), ..stuck.clone() };
        assert_eq!(failed.to_string(), "disk sda: the last flush failed: medium error");
        let held = Unfinished::because("sda", Obstacle::Control(weir_queue::Wait::Freeze));
        assert_eq!(
            held.to_string(),
            "disk sda: not closed: it waits for another freeze of the disk to be lifted"
        );
    }
}
