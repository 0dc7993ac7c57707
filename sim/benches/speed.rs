//! How fast the simulator is: requests that it simulates a second, by one thread.
//!
//! cargo bench -p weir-sim --bench speed [-- SCHEDULER]
//!
//! One NVMe disk of a host with 10 cores, random reads of 4 KiB, five processes with 128 under way
//! each. Interleaved rounds; CPU time, building the host left out: the best round, the median. The
//! checksum of the figures tells whether another build simulates the same.

#![forbid(unsafe_code)]

#[path = "../../core/queue/benches/words/mod.rs"]
mod words;

use weir_bio::Prng;
use weir_load::{Direction, Job};
use weir_queue::Config;
use weir_sim::{Habit, Host, HostSpec, Processes, Profile};
use weir_sim_disk::Spec;

const SCHEDULERS: [&str; 4] = ["none", "mq-deadline", "kyber", "bfq"];
const PROCESSES: usize = 5;

const USAGE: &str = "cargo bench -p weir-sim --bench speed [-- none|mq-deadline|kyber|bfq ...]\n\n\
    With schedulers it runs these alone.";

fn spec(scheduler: &str) -> HostSpec {
    let config = Config {
        queues: 10,
        scheduler: Some(scheduler.into()),
        nr_requests: (scheduler != "none").then_some(2048),
        wbt_lat_us: Some(0),
        timeout_ns: 0,
        ..Config::default()
    };
    let job = Job::random(Direction::Read, 4096);
    HostSpec {
        profile: Profile::known("cascade-1sock-6.3").expect("a profile of ours"),
        config,
        disk: Spec::preset("nvme-980pro").expect("a disk of ours"),
        disks: 1,
        san: None,
        processes: vec![Processes::new(
            "readers",
            PROCESSES,
            Habit { depth: 128, ..Habit::default() },
            job,
        )],
        weights: Vec::new(),
        seed: 1,
    }
}

/// CPU time of this thread so far, s: other work beside it is not counted, and disturbs it less
/// than it does the time of day.
fn clock() -> f64 {
    let stat =
        std::fs::read_to_string("/proc/thread-self/schedstat").expect("the time of a thread");
    let ns = stat.split_whitespace().next().and_then(|ns| ns.parse::<u64>().ok());
    ns.expect("a number") as f64 / 1e9
}

/// Requests a second of CPU time, and a checksum of the figures.
fn round(scheduler: &str, ns: u64) -> (f64, u64) {
    let mut host = Host::new(spec(scheduler)).expect("a host within its bounds");
    let begun = clock();
    let figures = host.run(ns);
    let seconds = clock() - begun;
    host.finish();
    let time = figures.time;
    let sums = [figures.ios, figures.latency, time.user, time.system, time.spin];
    let mixed = sums.iter().fold(0_u64, |sum, one| sum.rotate_left(13) ^ one);
    (figures.ios as f64 / seconds, Prng::new(mixed).next())
}

fn main() {
    let small = std::env::var("WEIR_BENCH").is_ok_and(|size| size == "small");
    let (rounds, ns) = if small { (1, 10_000_000) } else { (9, 100_000_000) };
    let chosen = words::words(USAGE);
    if chosen.iter().any(|word| !SCHEDULERS.contains(&&**word)) {
        words::refuse(&chosen, USAGE);
    }
    let schedulers = SCHEDULERS
        .iter()
        .filter(|scheduler| chosen.is_empty() || chosen.iter().any(|word| word == **scheduler));
    let schedulers: Vec<&str> = schedulers.copied().collect();
    let mut speeds = vec![Vec::new(); schedulers.len()];
    let mut sums = vec![0; schedulers.len()];
    for _ in 0..rounds {
        for (index, scheduler) in schedulers.iter().enumerate() {
            let (speed, sum) = round(scheduler, ns);
            speeds[index].push(speed);
            sums[index] = sum;
        }
    }
    println!("scheduler     best, M/s  median, M/s  checksum");
    for (index, scheduler) in schedulers.iter().enumerate() {
        let of = &mut speeds[index];
        of.sort_by(f64::total_cmp);
        let (median, best) = (of[of.len() / 2] / 1e6, of[of.len() - 1] / 1e6);
        println!("{scheduler:12}  {best:9.3}  {median:11.3}  {:016x}", sums[index]);
    }
}
