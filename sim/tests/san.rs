//! Hosts before the same disks, each reached over several paths by the core's own mapper: what the
//! paths, adapters, links and locks between them do.

use weir_load::{Direction, Job, Sizes};
use weir_map::multipath::table::Policy;
use weir_queue::{Config, QueueMode};
use weir_sim::{Figures, Habit, HostSpec, Ports, Processes, Profile, San, simulate};
use weir_sim_disk::Spec;

const MS: u64 = 1_000_000;

/// Queues of this mode, with a scheduler that costs nothing.
fn queues(mode: QueueMode, queues: u16) -> Config {
    let scheduler = if mode == QueueMode::Sq { "noop" } else { "none" };
    Config {
        mode,
        queues,
        scheduler: Some(scheduler.into()),
        depth: Some(64),
        timeout_ns: 0,
        wbt_lat_us: Some(0),
        ..Config::default()
    }
}

/// One host of four processors before a disk of 100 us, over two paths by as many adapters.
fn spec(mapper: QueueMode, path: QueueMode) -> HostSpec {
    let mut profile = Profile::known("broadwell-2sock-4.1").expect("a profile");
    profile.scheduler.clear();
    let job = Job::random(Direction::Read, 4096);
    HostSpec {
        profile,
        config: queues(mapper, 1),
        disk: Spec::parse("[fixed]\nunits = 512\nlatency = \"100us\"").expect("a disk"),
        disks: 1,
        san: Some(San {
            hosts: vec![4],
            paths: 2,
            adapters: 2,
            link: 0,
            path: queues(path, 1),
            selector: Policy::RoundRobin,
            ports: Ports::default(),
        }),
        processes: vec![Processes::new("readers", 1, Habit::default(), job)],
        weights: Vec::new(),
        seed: 1,
    }
}

const MODES: [[QueueMode; 2]; 4] = [
    [QueueMode::Mq, QueueMode::Mq],
    [QueueMode::Sq, QueueMode::Mq],
    [QueueMode::Mq, QueueMode::Sq],
    [QueueMode::Sq, QueueMode::Sq],
];

/// What comes of it. Each I/O that was begun has ended once: the call holds that.
fn run(spec: HostSpec) -> Figures {
    simulate(spec, 0, 20 * MS).expect("a host").0
}

fn changed(mut spec: HostSpec, change: impl FnOnce(&mut HostSpec, &mut San)) -> HostSpec {
    let mut san = spec.san.take().expect("a network");
    change(&mut spec, &mut san);
    spec.san = Some(san);
    spec
}

#[test]
fn each_i_o_is_one_command_of_a_path_in_every_mode_and_the_same_seed_gives_the_same_figures() {
    for [mapper, path] in MODES {
        let busy = |seed| {
            changed(spec(mapper, path), |spec, san| {
                (spec.seed, spec.disks, san.hosts) = (seed, 3, vec![4, 2]);
                let readers = &mut spec.processes[0];
                (readers.count, readers.habit.depth, readers.habit.think_spread) = (5, 7, 9_000);
            })
        };
        let first = run(busy(1));
        assert!(first.ios > 1_000, "{first:?}");
        // What is under way when the time is over was sent before.
        let apart = first.commands.reads.abs_diff(first.ios);
        assert!(apart <= 2 * 5 * 7, "{first:?}");
        assert_eq!(first, run(busy(1)), "{mapper:?} over {path:?}");
        assert_ne!(first, run(busy(2)), "{mapper:?} over {path:?}");
    }
}

/// Sections of an adapter that cost nothing.
fn no_sections(profile: &mut Profile) {
    (profile.scsi.send, profile.scsi.done) = (0, 0);
}

/// What is changed, how, and by how much an I/O takes longer then, ns.
type PriceChange = (&'static str, fn(&mut Profile), f64);

#[test]
fn each_layer_has_its_price_and_the_adapter_s_sections_cost_the_same_in_both_modes() {
    let changes: [PriceChange; 3] = [
        ("send", |profile| profile.scsi.send = 9_000, 9_000.0),
        ("done", |profile| profile.scsi.done = 7_000, 7_000.0),
        (
            "map and end",
            |profile| {
                profile.mapper.map += 2_000;
                profile.mapper.end += 3_000;
            },
            5_000.0,
        ),
    ];
    for [mapper, path] in MODES {
        let latency = |change: fn(&mut Profile)| {
            let mut spec = spec(mapper, path);
            no_sections(&mut spec.profile);
            change(&mut spec.profile);
            simulate(spec, 0, 400 * MS).expect("a host").0.latency_ns()
        };
        let before = latency(no_sections);
        for (what, change, expected) in changes {
            let more = latency(change) - before;
            // Under a lock a section is at random up to twice its mean.
            assert!((more - expected).abs() < 300.0, "{mapper:?} over {path:?}: {what}: {more}");
        }
    }
}

#[test]
fn one_i_o_takes_the_locks_of_the_mapper_of_its_path_and_of_the_adapter_each_so_often() {
    // By mapper and path. A single queue's lock: into the pool, inserted, reaped, ended, looked for
    // another, restarted. A path that the mapper gave something does not send it at once but in a
    // turn of its own, of three holds. The adapter's lock is had twice, and each time the queue's
    // again.
    let expected = [0, 6, 2 + 3 + 4 + 4, 6 + 2 + 3 + 4 + 4];
    let counted = MODES.map(|[mapper, path]| {
        let latency = |near: u64| {
            let mut spec = spec(mapper, path);
            (spec.profile.lock.near, spec.profile.lock.lines) = (near, 0);
            (spec.profile.scsi.send, spec.profile.scsi.done) = (0, 0);
            run(spec).latency_ns()
        };
        ((latency(1_000) - latency(0)) / 1_000.0).round() as i64
    });
    assert_eq!(counted, expected);
}

#[test]
fn the_lock_of_an_adapter_is_waited_for_by_all_its_paths_and_only_on_the_single_queue_path() {
    let spin = |path, adapters, disks| {
        let spec = changed(spec(path, path), |spec, san| {
            (spec.disks, san.adapters) = (disks, adapters);
            (spec.processes[0].count, spec.processes[0].habit.depth) = (4, 16);
        });
        run(spec).spin_percent()
    };
    assert_eq!(spin(QueueMode::Mq, 1, 8), 0.0);
    let [one, two] = [1, 2].map(|adapters| spin(QueueMode::Sq, adapters, 8));
    assert!(one > 20.0 && two < 0.8 * one, "{one} {two}");
}

#[test]
fn counters_of_an_adapter_come_from_the_processor_that_changed_them_last() {
    let system = |cpus, counters| {
        let spec = changed(spec(QueueMode::Mq, QueueMode::Mq), |spec, san| {
            san.hosts = vec![cpus];
            spec.profile.scsi.counters = counters;
            spec.processes[0].count = cpus;
        });
        let figures = run(spec);
        figures.time.system as f64 / figures.ios as f64
    };
    let [alone, shared] = [1, 4].map(|cpus| system(cpus, 50) - system(cpus, 0));
    // Two changes of 50 lines, of 44 or 118 ns each, most of them by another processor.
    assert!(alone == 0.0 && (2_000.0..2.0 * 50.0 * 118.0).contains(&shared), "{alone} {shared}");
}

#[test]
fn a_link_carries_its_rate_each_way_and_no_more() {
    let bytes = |direction, adapters| {
        let spec = changed(spec(QueueMode::Mq, QueueMode::Mq), |spec, san| {
            (san.link, san.adapters) = (100_000_000, adapters);
            spec.processes[0].habit.depth = 32;
            let job = &mut spec.processes[0].job;
            (job.direction, job.sizes) = (direction, [0; 3].map(|_| Sizes::Fixed(65_536)));
        });
        simulate(spec, 50 * MS, 500 * MS).expect("a host").0.ios as f64 * 65_536.0 * 2.0
    };
    for direction in [Direction::Read, Direction::Write] {
        for (adapters, most) in [(1, 1e8), (2, 2e8)] {
            let rate = bytes(direction, adapters);
            assert!((0.97 * most..1.01 * most).contains(&rate), "{direction:?}: {rate}");
        }
    }
    let both = bytes(Direction::Mixed, 1);
    assert!((1.7e8..2.02e8).contains(&both), "each way for itself: {both}");
}

#[test]
fn hosts_share_an_array_and_each_of_them_its_own_processors() {
    let array = "[array]\nhit_percent = 100\nhit_engine = \"10us\"\nhit_latency = \"50us\"";
    let iops = |disk: &str, hosts: Vec<usize>, disks| {
        let spec = changed(spec(QueueMode::Mq, QueueMode::Mq), |spec, san| {
            (spec.disk, spec.disks) = (Spec::parse(disk).expect("a disk"), disks);
            (san.hosts, spec.processes[0].count) = (hosts, 4);
            spec.processes[0].habit.depth = 16;
        });
        simulate(spec, 5 * MS, 50 * MS).expect("a host").0.iops()
    };
    // One engine for all volumes and all hosts.
    for (hosts, disks) in [(vec![4], 1), (vec![4], 4), (vec![4, 4, 4], 4)] {
        let rate = iops(array, hosts, disks);
        assert!((98_000.0..101_000.0).contains(&rate), "{disks} volumes: {rate}");
    }
    // Disks that are none of an array are each one, whatever the number of hosts.
    let fixed = "[fixed]\nunits = 1\nlatency = \"20us\"";
    for (hosts, disks, most) in [(vec![4], 1, 5e4), (vec![4], 3, 1.5e5), (vec![4, 4], 1, 5e4)] {
        let rate = iops(fixed, hosts, disks);
        assert!((0.97 * most..1.01 * most).contains(&rate), "{disks} disks: {rate}");
    }
    // Processors are what bounds it where the disk does not.
    let fast = "[fixed]\nunits = 512\nlatency = \"1us\"";
    let [one, two] = [vec![1], vec![1, 1]].map(|hosts| iops(fast, hosts, 1));
    assert!((1.95..2.05).contains(&(two / one)), "{one} {two}");
}

#[test]
fn a_figure_of_the_network_outside_its_bound_is_refused_with_it() {
    let why = |change: fn(&mut HostSpec, &mut San)| {
        let spec = changed(spec(QueueMode::Mq, QueueMode::Mq), change);
        simulate(spec, 0, MS).expect_err("a figure").to_string()
    };
    assert_eq!(why(|_, san| san.paths = 65), "paths=65 is outside 1..=64");
    assert_eq!(why(|_, san| san.adapters = 3), "adapters=3 is outside 1..=2");
    assert_eq!(why(|_, san| san.hosts = vec![]), "processors=0 is outside 1..=256");
    assert_eq!(why(|_, san| san.hosts = vec![4, 0]), "cpus=0 is outside 1..=256");
    assert_eq!(why(|_, san| san.hosts = vec![200, 57]), "processors=257 is outside 1..=256");
    let queues = why(|spec, san| (spec.disks, san.paths, san.path.queues) = (1_000, 64, 2));
    assert_eq!(queues, "hard queues=129000 is outside 1..=65536");
    let processes = why(|spec, san| {
        (san.hosts, spec.processes[0].count) = (vec![1; 8], 1_000);
    });
    assert_eq!(processes, "processes=8000 is outside 1..=4096");
}
