//! The engine: what a host does is a function of its spec and seed, and follows from the prices.

use weir_load::{Access, Direction, Job, Sizes};
use weir_queue::{Config, QueueMode, Spread};
use weir_sim::{Figures, Habit, HostSpec, Profile, simulate};
use weir_sim_disk::Spec;

const MS: u64 = 1_000_000;

fn host(scheduler: &str, processes: usize, seed: u64) -> HostSpec {
    let job = Job {
        access: Access::Random,
        direction: Direction::Read,
        sizes: [0; 3].map(|_| Sizes::Fixed(4096)),
        time_based: true,
        ..Job::default()
    };
    let config = Config {
        queues: 10,
        scheduler: Some(scheduler.into()),
        wbt_lat_us: Some(0),
        ..Config::default()
    };
    HostSpec {
        profile: Profile::known("cascade-1sock-6.3").expect("a profile"),
        config,
        disk: Spec::preset("nvme-980pro").expect("a disk"),
        disks: 1,
        processes,
        habit: Habit { depth: 32, think: 0, think_spread: 0, batch: 1 },
        job,
        seed,
    }
}

fn run(spec: HostSpec) -> Figures {
    simulate(spec, 0, 20 * MS).expect("a host").0
}

#[test]
fn the_same_seed_gives_the_same_figures_and_another_does_not() {
    for scheduler in ["none", "mq-deadline", "kyber", "bfq"] {
        let first = run(host(scheduler, 3, 7));
        assert_eq!(first, run(host(scheduler, 3, 7)), "{scheduler}");
        assert_ne!(first, run(host(scheduler, 3, 8)), "{scheduler}");
    }
}

fn fixed() -> Spec {
    Spec::parse("[fixed]\nunits = 64\nlatency = \"100us\"").expect("a disk")
}

#[test]
fn one_io_at_a_time_takes_the_disk_s_time_and_the_way_there_and_back() {
    let mut spec = HostSpec { disk: fixed(), ..host("none", 1, 1) };
    spec.habit.depth = 1;
    let path = spec.profile.path;
    let machine = spec.profile.machine;
    let there = path.syscall + path.submit + path.issue + path.doorbell;
    let back = path.interrupt + path.end + path.wake + machine.idle_exit + machine.switch;
    let figures = run(spec);
    let latency = figures.latency_ns();
    let expected = (100_000 + there + back) as f64;
    assert!((latency - expected).abs() < 1.0, "{latency} for {expected}");
}

#[test]
fn a_price_that_rises_is_paid() {
    let iops = |submit: u64| {
        let mut spec = host("none", 1, 1);
        spec.profile.path.submit = submit;
        spec.habit.depth = 128;
        run(spec).iops()
    };
    let (cheap, dear) = (iops(500), iops(5_000));
    assert!(dear * 2.0 < cheap, "{cheap} {dear}");
}

#[test]
fn processes_that_share_a_scheduler_s_lock_wait_for_it_and_without_a_scheduler_they_do_not() {
    let spin = |scheduler: &str| {
        let mut spec = host(scheduler, 8, 1);
        spec.habit.depth = 128;
        let figures = run(spec);
        figures.time.spin as f64 / figures.time.system as f64
    };
    assert_eq!(spin("none"), 0.0);
    assert!(spin("mq-deadline") > 0.5, "{}", spin("mq-deadline"));
}

#[test]
fn requests_that_are_dealt_out_wait_for_the_lock_of_their_queue() {
    let figures = |queues: u16| {
        let mut spec = host("none", 8, 1);
        spec.profile = Profile::known("illumos-2019").expect("a profile");
        // Nothing holds a section up, and the interrupt is no bottleneck.
        (spec.profile.shared_queue.stall_every, spec.profile.path.interrupt) = (0, 500);
        (spec.profile.shared_queue.start, spec.profile.shared_queue.leave) = (3_000, 3_000);
        spec.config.spread = Spread::RoundRobin;
        spec.config.queues = queues;
        spec.habit = Habit { depth: 1, think: 1_000, think_spread: 0, batch: 1 };
        spec.disk = Spec::parse("[fixed]\nunits = 64\nlatency = \"10us\"").expect("a disk");
        run(spec)
    };
    let (one, eight) = (figures(1), figures(8));
    assert!(one.time.spin > 3 * eight.time.spin, "{one:?} {eight:?}");
    assert!(eight.iops() > 1.5 * one.iops(), "{} {}", one.iops(), eight.iops());
    // The two sections of one I/O after the other, of all threads.
    assert!(one.iops() < 1e9 / 6_000.0, "{}", one.iops());
}

#[test]
fn two_disks_are_used_alike() {
    let mut spec = host("none", 1, 1);
    spec.disks = 2;
    spec.habit.depth = 32;
    spec.disk = Spec::parse("[fixed]\nunits = 1\nlatency = \"100us\"").expect("a disk");
    let figures = run(spec);
    assert!((19_000.0..=20_100.0).contains(&figures.iops()), "{}", figures.iops());
}

#[test]
fn a_host_that_cannot_be_is_refused_with_the_figure_and_its_bound() {
    let why = |change: fn(&mut HostSpec)| {
        let mut spec = host("mq-deadline", 1, 1);
        change(&mut spec);
        simulate(spec, 0, MS).expect_err("it cannot be").to_string()
    };
    assert_eq!(why(|spec| spec.disks = 0), "disks=0 is outside 1..=64");
    assert_eq!(why(|spec| spec.disks = 65), "disks=65 is outside 1..=64");
    assert_eq!(why(|spec| spec.processes = 0), "processes=0 is outside 1..=4096");
    let pairs = why(|spec| (spec.disks, spec.processes) = (64, 65));
    assert_eq!(pairs, "processes * disks=4160 is outside 1..=4096");
    let cores = why(|spec| spec.profile.machine.cores = 0);
    assert_eq!(cores, "sockets * cores=0 is outside 1..=256");
    assert_eq!(why(|spec| spec.habit.batch = 0), "batch=0 is outside 1..=65535");
    let depth = why(|spec| (spec.habit.depth, spec.config.nr_requests) = (1000, Some(256)));
    assert_eq!(depth, "depth=1000 is above the 512 slots of a submitter");
    assert!(why(|spec| spec.config.mode = QueueMode::Sq).contains("queue_mode=sq"));
}

#[test]
fn as_many_ios_as_a_submitter_has_slots_are_simulated() {
    let mut spec = host("mq-deadline", 1, 1);
    (spec.habit.depth, spec.config.nr_requests) = (512, Some(256));
    assert!(run(spec).ios > 512);
}
