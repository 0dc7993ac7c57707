//! The real clock, threads and reactors: what turns the queue core outside the simulator.
//!
//! - [`Clock`] reads the time every device of the process is told;
//! - [`EventWake`] and [`Unpark`] wake a sleeping owner of a [`Bell`](weir_queue::Bell);
//! - [`Limited`] is the control side of a device for threads that may wait, with a limit;
//! - [`OwnLanes`] are the lanes of a thread that turns them itself, between its other work;
//! - a [`Door`] lets I/O in from threads that turn no lane;
//! - a [`Host`] is a few reactor threads. Each owns lanes of the devices it was given, and
//!   [`Service`]s: those who have sockets and submit what comes in. It runs to completion:
//!   readiness, lanes, completions and replies in one pass, and one blocking call when nothing is
//!   left to do, or [polls](Polling) for a while before.
//!
//! It is not: a runtime for anything else. A service that blocks holds up its whole reactor, and
//! one that panics ends the process, because the disks behind that reactor would be silent for ever
//! otherwise.

#![forbid(unsafe_code)]

mod clock;
mod drain;
mod homes;
mod host;
mod intake;
mod limited;
mod own;
mod poll;
mod polling;
mod reactor;
mod service;
mod services;
mod wake;

pub use clock::Clock;
pub use drain::{Obstacle, Unfinished};
pub use host::Host;
pub use intake::{Answer, Door, Entry, Job, Place, Waiting};
pub use limited::Limited;
pub use own::OwnLanes;
pub use poll::{Interest, Readiness};
pub use polling::{PollCounts, PollMode, PollRule, PollVote, Polling};
pub use service::{Handle, Seat, Service, Turn};
pub use wake::{EventWake, Unpark};
