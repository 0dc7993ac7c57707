//! What many disks, paths and processors cost: time for each simulated request, and memory.
//!
//! cargo bench -p weir-sim --bench scale [-- small | disks | cores | DISKSxPATHSxPROCESSORS]
//!
//! One host before disks of a fixed time, each over several paths: 64 processes with 4 reads under
//! way each. `small` has 16 disks of 4 paths and 16 processors, `disks` 1,000 disks of 64 paths,
//! `cores` 64 processors. CPU time, building the host left out, the best of three stretches of
//! simulated time; the most memory that the program ever had, so each is to be run alone. `disks`
//! takes gigabytes, and runs only if it is named.

#![forbid(unsafe_code)]

#[path = "../../core/queue/benches/words/mod.rs"]
mod words;

use weir_load::{Direction, Job};
use weir_map::multipath::table::Policy;
use weir_queue::Config;
use weir_sim::{Habit, Host, HostSpec, Ports, Processes, Profile, San};
use weir_sim_disk::Spec;

#[derive(Clone)]
struct Size {
    name: &'static str,
    disks: usize,
    paths: usize,
    cpus: usize,
}

const SIZES: [Size; 3] = [
    Size { name: "small", disks: 16, paths: 4, cpus: 16 },
    Size { name: "disks", disks: 1_000, paths: 64, cpus: 16 },
    Size { name: "cores", disks: 16, paths: 4, cpus: 64 },
];

const USAGE: &str = "cargo bench -p weir-sim --bench scale [-- SIZE ...]\n\n\
    SIZE is small, disks, cores or DISKSxPATHSxPROCESSORS; small and cores unless told.";

/// The size that a word names, or tells in numbers.
fn named(word: &str) -> Option<Size> {
    if let Some(known) = SIZES.iter().find(|size| size.name == word) {
        return Some(known.clone());
    }
    let numbers = word.split('x').map(|number| number.parse().ok());
    let [disks, paths, cpus] = numbers.collect::<Option<Vec<usize>>>()?[..] else { return None };
    Some(Size { name: "other", disks, paths, cpus })
}

fn spec(size: &Size) -> HostSpec {
    let queues = |depth| Config {
        scheduler: Some(String::from("none")),
        depth: Some(depth),
        timeout_ns: 0,
        wbt_lat_us: Some(0),
        ..Config::default()
    };
    let job = Job::random(Direction::Read, 4096);
    let habit = Habit { depth: 4, ..Habit::default() };
    HostSpec {
        profile: Profile::known("broadwell-2sock-4.1").expect("a profile of ours"),
        config: queues(64),
        disk: Spec::parse("[fixed]\nunits = 64\nlatency = \"200us\"").expect("a disk of ours"),
        disks: size.disks,
        san: Some(San {
            hosts: vec![size.cpus],
            paths: size.paths,
            adapters: 4,
            link: 1_600_000_000,
            path: queues(32),
            selector: Policy::ServiceTime,
            ports: Ports::default(),
        }),
        processes: vec![Processes::new("readers", 64, habit, job)],
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

/// The most memory that this program ever had, MiB.
fn memory_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.unwrap_or(0) >> 10
}

fn main() {
    let small = std::env::var("WEIR_BENCH").is_ok_and(|size| size == "small");
    let ns = if small { 1_000_000 } else { 200_000_000 };
    let chosen = words::words(USAGE);
    let sizes: Option<Vec<Size>> = match chosen.is_empty() {
        true => ["small", "cores"].into_iter().map(named).collect(),
        false => chosen.iter().map(|word| named(word)).collect(),
    };
    let Some(sizes) = sizes else { words::refuse(&chosen, USAGE) };
    println!("size   disks  paths  processors  build, s  us/request  most MiB  requests");
    for size in sizes {
        let begun = clock();
        let mut host = Host::new(spec(&size)).expect("a host within its bounds");
        let built = clock() - begun;
        let (mut best, mut ios) = (f64::INFINITY, 0);
        for _ in 0..3 {
            let begun = clock();
            let figures = host.run(ns);
            best = best.min((clock() - begun) * 1e6 / figures.ios as f64);
            ios += figures.ios;
        }
        let Size { name, disks, paths, cpus } = size;
        let most = memory_mib();
        println!(
            "{name:5}  {disks:5}  {paths:5}  {cpus:10}  {built:8.2}  {best:10.2}  {most:8}  {ios}"
        );
        host.finish();
    }
}
