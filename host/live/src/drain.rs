//! Finishing what devices were given: wait for all of it, flush, and say what did not end.

use std::fmt;
use std::sync::mpsc::channel;
use std::time::Duration;

use weir_bio::{Bio, Nanos, Status};
use weir_queue::{Bell, Device};

use crate::clock::Clock;
use crate::host::Host;
use crate::wake::Unpark;

/// How long reactors may take to say what is oldest, ns.
const QUESTION_NS: u64 = 200_000_000;

/// A device that could not be brought to rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfinished {
    /// The device's name.
    pub device: String,
    /// I/O accepted and not ended.
    pub requests: u64,
    /// How long ago the oldest of it was accepted, ns, as far as its lanes know.
    pub oldest_ns: Option<u64>,
    /// How the last flush ended, if it did.
    pub flush: Option<Status>,
}

impl fmt::Display for Unfinished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Unfinished { device, requests, .. } = self;
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

/// What becomes of a device that was drained.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    /// Its lanes will be opened again.
    Rests,
    /// Nothing reaches its lanes any more.
    Ends,
}

/// Waits until each device has ended all it was given and is flushed, `limit_ns` for all together.
/// Returns those that did not get there.
pub(crate) fn drain(host: &Host, devices: &[Device], limit_ns: u64, then: Then) -> Vec<Unfinished> {
    let until = Clock.now() + limit_ns;
    // What was ordered before is submitted before: each reactor has come this far.
    let here: Vec<_> = (0..host.reactors()).map(|reactor| host.ask(reactor, |_| ())).collect();
    let left = || Duration::from_nanos(until.since(Clock.now()));
    for here in here {
        // One that has not come so far is found out below.
        let _ = here.recv_timeout(left());
    }
    let (sender, receiver) = channel();
    for (index, device) in devices.iter().enumerate() {
        let (device, sender) = (device.clone(), sender.clone());
        // A thread each: a freeze cannot be given up, and one stuck device must not cost the
        // others their flush. A stuck thread ends with the process.
        let work = move || {
            let _ = sender.send((index, bring_to_rest(&device, until, then)));
        };
        if let Err(error) = std::thread::Builder::new().name("weir-drain".into()).spawn(work) {
            tracing::error!(%error, "no thread to drain a disk with");
        }
    }
    drop(sender);
    let mut ends: Vec<Option<Option<Status>>> = vec![None; devices.len()];
    while ends.iter().any(Option::is_none) {
        match receiver.recv_timeout(left()) {
            Ok((index, end)) => ends[index] = Some(end),
            Err(_) => break,
        }
    }
    let late = devices.iter().zip(ends).filter_map(|(device, end)| match end.flatten() {
        Some(Status::Ok) => None,
        flush => Some(report(host, device, flush)),
    });
    late.collect()
}

/// How the flush ended, if everything did by `until`.
fn bring_to_rest(device: &Device, until: Nanos, then: Then) -> Option<Status> {
    drop(device.freeze());
    loop {
        if Clock.now() >= until {
            // Nobody waits any more, and the device is in use.
            return None;
        }
        let before = written(device);
        let end = flush(device, until);
        if then == Then::Ends && end == Some(Status::Ok) {
            let _frozen = device.freeze();
            if written(device) != before {
                // Somebody was told of a write that this flush does not cover.
                continue;
            }
            device.take_offline();
        }
        // Whoever took it offline meanwhile has done this.
        return if device.is_offline() { Some(Status::Ok) } else { end };
    }
}

/// Sectors that went towards the device so far.
fn written(device: &Device) -> u64 {
    device.stats().directions[1..].iter().map(|direction| direction.sectors).sum()
}

fn report(host: &Host, device: &Device, flush: Option<Status>) -> Unfinished {
    let now = Clock.now();
    let questions: Vec<_> = (0..host.reactors())
        .map(|reactor| {
            let device = device.clone();
            host.ask(reactor, move |reactor| {
                let mine = reactor.lanes.iter().filter(|home| home.device.is(&device));
                mine.filter_map(|home| home.lane.oldest()).min()
            })
        })
        .collect();
    let wait = Duration::from_nanos(QUESTION_NS);
    let oldest = questions.into_iter().filter_map(|q| q.recv_timeout(wait).ok().flatten()).min();
    Unfinished {
        device: device.config().name.clone(),
        requests: device.stats().in_flight,
        oldest_ns: oldest.map(|at| now.since(at)),
        flush,
    }
}

/// Flushes the device from this thread; `None` if that had not ended by `until`.
fn flush(device: &Device, until: Nanos) -> Option<Status> {
    let bell = Bell::new(Box::new(Unpark::current()), 1);
    let mut submitter = match device.submitter(&bell, 0, 0) {
        Ok(submitter) => submitter,
        Err(error) => {
            tracing::error!(%error, "the last flush cannot be submitted");
            return Some(Status::Resource);
        }
    };
    let mut bio = Some(Bio::flush());
    loop {
        let now = Clock.now();
        if let Some(waiting) = bio.take() {
            match submitter.submit(waiting, now) {
                Ok(()) => submitter.flush_plug(now),
                Err(refused) => bio = Some(refused.into_bio()),
            }
        }
        let mut ended = None;
        submitter.complete(now, |completion| ended = Some(completion.status));
        if ended.is_some() || now >= until {
            return ended;
        }
        bell.doorbell().prepare_sleep();
        if !bell.ready().any() {
            std::thread::park_timeout(Duration::from_nanos(until.since(now)));
        }
        bell.doorbell().awake();
        bell.ready().take(|_| ());
    }
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
        };
        assert_eq!(stuck.to_string(), "disk sda: 3 requests unfinished, the oldest after 4.2 s");
        let failed = Unfinished { flush: Some(Status::Medium), ..stuck };
        assert_eq!(failed.to_string(), "disk sda: the last flush failed: medium error");
    }
}
