//! The cost of the generator alone: a job run by the threads of `weir bench` as ever, with a sink
//! in the place of every device.

use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use weir::Clock;
use weir_live::EventWake;
use weir_load::{Ground, Job, Stream};

use crate::cpu::thread_time;
use crate::engine::client::STREAM_KINDS;
use crate::engine::run::stream_plan;
use crate::engine::tally::Tally;
use crate::engine::used::Used;
use crate::engine::worker::{Shared, Window, Worker};

/// The outcome.
#[derive(Debug)]
pub struct Alone {
    /// All figures, by row: reads, writes, trims, flushes.
    pub tally: Tally,
    /// CPU time of the thread over the whole run, its end included.
    pub cpu: Duration,
    /// How long it ran.
    pub wall: Duration,
}

/// Runs the first clone of a job on the calling thread for so long, on a sink of such a size.
///
/// # Errors
/// A refusal by the job or the system, before anything ran.
pub fn alone(job: &Job, ground: Ground, runtime: Duration) -> Result<Alone, String> {
    let stream = Stream::new(job, ground, 0).map_err(|e| e.to_string())?;
    let plan = stream_plan(job, stream, (0, 0, 0), Some(runtime.as_nanos() as u64));
    let wake = EventWake::new().map_err(|e| format!("eventfd: {e}"))?;
    let shared = Shared {
        devices: Vec::new(),
        below: &[],
        threads: 1,
        window: OnceLock::new(),
        stop: AtomicBool::new(false),
        abandon: AtomicBool::new(false),
        busy: AtomicUsize::new(1),
        used: Used::new(1),
        wakes: vec![Arc::new(wake)],
        commits: None,
        is_io: STREAM_KINDS.iter().map(|(.., is_io)| *is_io).collect(),
    };
    let (news, _unheard) = channel();
    let worker = Worker::without_devices(&shared, 0, vec![plan], &news)?;
    let (cpu, from) = (thread_time(), Clock.now());
    let until = Some(from + runtime.as_nanos() as u64);
    let left = worker.through(Window { from, until });
    let wall = Duration::from_nanos(Clock.now().since(from).min(runtime.as_nanos() as u64));
    Ok(Alone { tally: left.tally, cpu: thread_time() - cpu, wall })
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_load::{Access, Amount, Direction};

    const GROUND: Ground = Ground { bytes: 1 << 30, block: 512, read_only: false };

    #[test]
    fn a_job_on_a_sink_asks_for_the_ios_that_it_asks_a_device_for() {
        let size = Some(Amount::Bytes(1 << 20));
        let direction = Direction::Mixed;
        let job = Job { access: Access::Random, direction, depth: 8, size, ..Job::default() };
        let Alone { tally, .. } = alone(&job, GROUND, Duration::from_secs(3600)).expect("it runs");
        let all = tally.all();
        assert_eq!((all.ios, all.bytes, tally.errors), (256, 1 << 20, 0));
        let device = weir::Target::parse("null:1GiB").expect("a target");
        let device = weir::open("alone", &device, 1).expect("it opens").device;
        let (ramp, runtime) = (Duration::ZERO, Duration::from_secs(3600));
        let there = crate::engine::run::one(&job, &device, ramp, runtime).expect("it runs");
        let count = |tally: &Tally| [0, 1].map(|row| tally.row(row).map(|row| row.ios));
        assert_eq!(count(&tally), count(&there.tally));
    }
}
