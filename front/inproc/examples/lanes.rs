//! Below sessions: a device whose hard queues belong to the program's own threads. Each thread
//! opens one lane, submits to it and turns it, so a write never leaves the thread that made it.
//!
//! ```text
//! cargo run --release --example lanes -- file:/disk.img,size=64M
//! ```

use std::error::Error;
use std::process::ExitCode;
use std::sync::mpsc::{Sender, channel};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use weir::{Bell, Bio, Buf, Clock, Device, EventWake, Home, Limited, Target, open};

/// Threads, each with a lane; writes that each makes, and those under way at one time.
const THREADS: usize = 2;
const WRITES: u64 = 500;
const DEPTH: u64 = 8;

/// Sectors of a write.
const SECTORS: u64 = 8;

fn main() -> ExitCode {
    let target = std::env::args().nth(1).unwrap_or_else(|| String::from("ram:64MiB"));
    match run(&target) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lanes: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Writes with all threads, then closes the disk.
pub fn run(target: &str) -> Result<(), Box<dyn Error>> {
    // As many hard queues as threads, unless the target states a number.
    let device = open("sda", &Target::parse(target)?, THREADS)?.device;
    let (size, lanes) = (device.limits().capacity * 512, usize::from(device.queues()));
    let needed = lanes as u64 * WRITES * SECTORS * 512;
    if size < needed {
        return Err(format!("the disk has {size} bytes, this takes {needed}").into());
    }
    let (sender, written) = channel();
    let threads: Vec<_> = (0..lanes)
        .map(|index| {
            let (device, written) = (device.clone(), sender.clone());
            std::thread::spawn(move || {
                let told = work(&device, index, &written).map_err(|error| error.to_string());
                // Nothing is told twice: of a thread that has told its end this is not heard.
                let _ = written.send(told.map(|()| 0));
            })
        })
        .collect();
    for _ in 0..lanes {
        written.recv()??;
    }
    // It flushes and takes the disk offline. The lanes are turned meanwhile, and then closed.
    Limited::of(&device).close()?;
    threads.into_iter().for_each(|thread| thread.join().expect("a thread that does not panic"));
    println!("{lanes} threads wrote {} blocks, each on its own lane", lanes as u64 * WRITES);
    Ok(())
}

/// The life of a lane: one thread opens it, turns it until the disk is closed, and drops it. Tells
/// when all is written.
fn work(
    device: &Device,
    index: usize,
    written: &Sender<Result<u64, String>>,
) -> Result<(), Box<dyn Error>> {
    // Others ring this bell; it wakes the thread by a descriptor. `Unpark` is for one that parks.
    let wake = EventWake::new()?;
    let mut home = Home::new(Bell::new(Box::new(wake.clone()), 1));
    device.prepare_lane(index)?;
    home.open(device, index)?;
    // Readable when the driver has answers; of a driver without, `wake_at` says when to look.
    let event = home.lanes().find_map(|lane| lane.event().transpose()).transpose()?;
    let mut submitter = device.submitter(home.bell(), 0, index)?;
    let (mut sent, mut ended, mut failed, mut told) = (0, 0, None, Vec::new());
    while !device.is_offline() {
        // One round: submit, turn, take what has ended.
        let now = Clock.now();
        while sent < WRITES && submitter.in_flight() < DEPTH {
            let sector = (index as u64 * WRITES + sent) * SECTORS;
            let bio = Bio::write(sector, Buf::zeroed(SECTORS as usize * 512));
            if submitter.submit(bio, now).is_err() {
                break; // full or frozen: an end, or the opening, rings the bell
            }
            sent += 1;
        }
        submitter.flush_plug(now);
        home.turn(now);
        home.take_told(&mut told);
        submitter.complete(now, |completion| {
            ended += 1;
            failed = failed.or((!completion.status.is_ok()).then_some(completion.status));
        });
        if ended == WRITES {
            ended = u64::MAX; // told once
            written.send(failed.map_or(Ok(WRITES), |status| Err(format!("a write: {status}"))))?;
        }
        let has_more = !told.is_empty();
        told.clear();
        if !has_more && home.before_sleep(now, || device.is_offline()) {
            let mut fds = vec![PollFd::new(&wake, PollFlags::IN)];
            fds.extend(event.iter().map(|event| PollFd::new(event, PollFlags::IN)));
            let left = home.wake_at().map(|at| at.since(now));
            let time = left.map(|ns| Timespec {
                tv_sec: (ns / 1_000_000_000) as i64,
                tv_nsec: (ns % 1_000_000_000) as i64,
            });
            poll(&mut fds, time.as_ref())?;
            home.awake();
            wake.clear();
        }
    }
    Ok(())
}
