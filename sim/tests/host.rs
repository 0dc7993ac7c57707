//! The engine: what a host does is a function of its spec and seed, and follows from the prices.

use weir_bio::{Class, IoPrio};
use weir_load::{Access, Amount, Direction, Job};
use weir_queue::{Config, QueueMode, Spread};
use weir_sim::{
    Commands, Figures, Habit, Host, HostSpec, Processes, Profile, Service, simulate,
    simulate_to_the_end,
};
use weir_sim_disk::Spec;

const MS: u64 = 1_000_000;

fn host(scheduler: &str, processes: usize, seed: u64) -> HostSpec {
    let job = Job::random(Direction::Read, 4096);
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
        san: None,
        processes: vec![Processes::new(
            "readers",
            processes,
            Habit { depth: 32, ..Habit::default() },
            job,
        )],
        weights: Vec::new(),
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
    spec.processes[0].habit.depth = 1;
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
        spec.processes[0].habit.depth = 128;
        run(spec).iops()
    };
    let (cheap, dear) = (iops(500), iops(5_000));
    assert!(dear * 2.0 < cheap, "{cheap} {dear}");
}

#[test]
fn processes_that_share_a_scheduler_s_lock_wait_for_it_and_without_a_scheduler_they_do_not() {
    let spin = |scheduler: &str| {
        let mut spec = host(scheduler, 8, 1);
        spec.processes[0].habit.depth = 128;
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
        spec.processes[0].habit = Habit { think: 1_000, ..Habit::default() };
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
    spec.processes[0].habit.depth = 32;
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
    assert_eq!(why(|spec| spec.disks = 0), "disks=0 is outside 1..=1024");
    assert_eq!(why(|spec| spec.disks = 1025), "disks=1025 is outside 1..=1024");
    assert_eq!(why(|spec| spec.processes.clear()), "processes=0 is outside 1..=4096");
    let pairs = why(|spec| (spec.disks, spec.processes[0].count) = (1024, 1025));
    assert_eq!(pairs, "processes * disks=1049600 is outside 1..=1048576");
    let cores = why(|spec| spec.profile.machine.cores = 0);
    assert_eq!(cores, "processors=0 is outside 1..=256");
    assert_eq!(why(|spec| spec.processes[0].habit.batch = 0), "batch=0 is outside 1..=65535");
    assert_eq!(why(|spec| spec.processes[0].count = 0), "processes=0 is outside 1..=4096");
    let pause = why(|spec| spec.processes[0].habit.pause = 1_000_000_000_001);
    assert_eq!(pause, "pause=1000000000001 is outside 0..=1000000000000");
    assert_eq!(
        why(|spec| spec.processes[0].ios = Some(0)),
        format!("ios=0 is outside 1..={}", u64::MAX)
    );
    let twice = why(|spec| spec.processes.push(spec.processes[0].clone()));
    assert_eq!(twice, "two kinds of processes are called \"readers\"");
    let flushes = why(|spec| {
        (spec.disks, spec.processes[0].job.flush_every) = (2, 1);
    });
    assert_eq!(flushes, "flush_every=1 with disks=2: a flush is for one disk");
    let memory =
        why(|spec| (spec.processes[0].count, spec.processes[0].habit.depth) = (4096, 4096));
    assert!(memory.starts_with("bytes of all I/Os under way=68719476736 is outside"), "{memory}");
    let weight = why(|spec| spec.weights.push(("a".into(), 1001)));
    assert!(weight.contains("1001"), "{weight}");
    let queues = why(|spec| spec.config.mode = QueueMode::Sq);
    assert!(queues.contains("queue_mode=sq has exactly 1"), "{queues}");
}

#[test]
fn a_process_that_keeps_more_under_way_than_it_has_slots_waits_for_one() {
    let figures = |depth: u16| {
        let mut spec = host("mq-deadline", 1, 1);
        spec.disk = Spec::parse("[fixed]\nunits = 1\nlatency = \"10us\"").expect("a disk");
        (spec.processes[0].habit.depth, spec.config.nr_requests) = (depth, Some(256));
        simulate(spec, 20 * MS, 40 * MS).expect("a host").0
    };
    let (as_many, more) = (figures(512), figures(1000));
    assert!(as_many.ios > 3_900 && more.ios > 3_900, "{as_many:?} {more:?}");
    // One waits in front of the 512, and begins no other meanwhile.
    let more_ns = more.latency_ns() - as_many.latency_ns();
    assert!((9_000.0..=11_000.0).contains(&more_ns), "{more_ns} ns more");
}

/// Processes of a disk that takes one command at a time, 100 us.
fn on_a_slow_disk(processes: Vec<Processes>) -> HostSpec {
    let disk = Spec::parse("[fixed]\nunits = 1\nlatency = \"100us\"").expect("a disk");
    HostSpec { processes, disk, ..host("none", 1, 1) }
}

fn job(direction: Direction) -> Job {
    Job::random(direction, 4096)
}

#[test]
fn processes_of_each_kind_have_figures_of_their_own() {
    let kinds = vec![
        Processes::new("readers", 2, Habit { depth: 4, ..Habit::default() }, job(Direction::Read)),
        Processes::new("writers", 3, Habit::default(), job(Direction::Write)),
    ];
    let figures = run(on_a_slow_disk(kinds));
    let [readers, writers] = ["readers", "writers"].map(|name| figures.kind(name));
    assert_eq!((readers.each.len(), writers.each.len()), (2, 3));
    for kind in [readers, writers] {
        assert_eq!(kind.all.ios, kind.each.iter().map(|one| one.ios).sum::<u64>());
        assert_eq!(kind.all.bytes, kind.all.ios * 4096);
        assert!(kind.each.iter().all(|one| one.ios > 0), "{kind:?}");
        let Service { p50, p95, p99, p999, max, .. } = kind.all;
        assert!(100_000 < p50 && p50 <= p95 && p95 <= p99 && p99 <= p999 && p999 <= max);
        assert_eq!(kind.all.finished, None, "it goes on for ever");
    }
    assert_eq!(figures.ios, readers.all.ios + writers.all.ios);
    assert_eq!(figures.latency, readers.all.latency + writers.all.latency);
    let Commands { reads, flushes, changes } = figures.commands;
    assert!(reads.abs_diff(readers.all.ios) <= 8 && changes.abs_diff(writers.all.ios) <= 3);
    assert_eq!(flushes, 0);
}

#[test]
fn a_process_finishes_with_its_bytes_or_its_count_and_begins_when_it_is_to() {
    let sized = Job {
        access: Access::Sequential,
        size: Some(Amount::Bytes(64 << 12)),
        time_based: false,
        ..job(Direction::Write)
    };
    let mut late = Processes::new("late", 2, Habit::default(), sized);
    (late.start, late.stagger) = (5 * MS, 3 * MS);
    let mut counted = Processes::new("counted", 1, Habit::default(), job(Direction::Read));
    counted.ios = Some(10);
    let endless = Processes::new("endless", 1, Habit::default(), job(Direction::Read));
    let spec = on_a_slow_disk(vec![late, counted, endless]);
    let (figures, ios) = simulate_to_the_end(spec, 1_000 * MS).expect("a host");
    let late = figures.kind("late");
    assert_eq!(late.each.iter().map(|one| one.ios).collect::<Vec<_>>(), [64, 64]);
    assert_eq!(late.all.bytes, 2 * 64 * 4096);
    assert_eq!(late.each.iter().map(|one| one.began.0).collect::<Vec<_>>(), [5 * MS, 8 * MS]);
    let ends: Vec<u64> = late.each.iter().map(|one| one.finished.expect("an end").0).collect();
    assert!(ends[0] < ends[1] && figures.ns.abs_diff(ends[1]) < MS, "{ends:?}");
    // 64 commands of the disk at least lie between beginning and end.
    assert!(ends[0] > 5 * MS + 64 * MS / 10, "{ends:?}");
    let counted = figures.kind("counted").all;
    assert_eq!(counted.ios, 10);
    // Nothing else was there in its first 5 ms but the endless one: they took turns.
    assert!(counted.finished.is_some_and(|end| end.0 < 3 * MS), "{counted:?}");
    assert_eq!(figures.kind("endless").all.finished, None);
    assert!(ios > 138, "{ios}");
}

#[test]
fn processes_that_do_not_finish_in_time_are_told_of() {
    let spec = on_a_slow_disk(vec![Processes {
        ios: Some(1_000),
        ..Processes::new("readers", 3, Habit::default(), job(Direction::Read))
    }]);
    let why = simulate_to_the_end(spec, 10 * MS).expect_err("too many").to_string();
    assert_eq!(why, "3 processes have not finished after 10000000 ns");
}

#[test]
fn a_process_pauses_after_each_io_and_its_pause_is_no_time_of_a_processor() {
    let paused = |pause_spread: u64| {
        let habit = Habit { pause: MS, pause_spread, ..Habit::default() };
        let kind = Processes::new("readers", 1, habit, job(Direction::Read));
        simulate(on_a_slow_disk(vec![kind]), 0, 1_000 * MS).expect("a host").0
    };
    let figures = paused(0);
    // A pause of 1 ms, a command of 100 us and some 10 us of work for each.
    assert!((880..=909).contains(&figures.ios), "{figures:?}");
    assert!(figures.time.system + figures.time.user < 20 * MS, "{figures:?}");
    let longer = paused(MS).ios;
    assert!((600..=660).contains(&longer), "half a millisecond more in the mean: {longer}");
}

#[test]
fn a_flush_after_each_write_is_no_io_of_a_process_but_a_command_of_the_disk() {
    let writes = Job {
        flush_every: 1,
        access: Access::Sequential,
        size: Some(Amount::Bytes(20 << 12)),
        time_based: false,
        ..job(Direction::Write)
    };
    let mut spec = on_a_slow_disk(vec![Processes::new("writer", 1, Habit::default(), writes)]);
    for (cache, commands) in [("volatile = true", 20), ("volatile = false", 0)] {
        let text = format!("[fixed]\nlatency = \"100us\"\n{cache}");
        spec.disk = Spec::parse(&text).expect("a disk");
        let (figures, _) = simulate_to_the_end(spec.clone(), 1_000 * MS).expect("a host");
        let all = figures.kind("writer").all;
        assert_eq!((all.ios, all.flushes), (20, 20), "{cache}");
        assert_eq!((figures.commands.changes, figures.commands.flushes), (20, commands));
    }
}

#[test]
fn groups_share_a_disk_by_their_weights_and_levels_by_theirs() {
    let share = |change: fn(&mut [Processes; 2])| {
        let reader = |name: &str, offset: u64| Processes {
            // Processes that begin together are one for bfq.
            start: offset / 512,
            ..Processes::new(
                name,
                1,
                Habit { depth: 4, ..Habit::default() },
                Job {
                    access: Access::Sequential,
                    offset: Amount::Bytes(offset),
                    ..job(Direction::Read)
                },
            )
        };
        let mut kinds = [reader("one", 0), reader("other", 512 * 700 * MS)];
        change(&mut kinds);
        let mut spec = on_a_slow_disk(kinds.to_vec());
        spec.disk = spec.disk.sized(1 << 40).expect("a size");
        spec.disk.depth = 1;
        spec.weights = vec![("light".into(), 100), ("heavy".into(), 300)];
        (spec.config.queues, spec.config.nr_requests) = (1, Some(256));
        spec.config.scheduler = Some("bfq".into());
        spec.config.tunables = vec![("low_latency".into(), "0".into())];
        let figures = simulate(spec, 1_500 * MS, 4_000 * MS).expect("a host").0;
        figures.kind("other").all.ios as f64 / figures.kind("one").all.ios as f64
    };
    let groups = share(|kinds| {
        (kinds[0].group, kinds[1].group) = ("light".into(), "heavy".into());
    });
    assert!((2.5..=3.5).contains(&groups), "{groups}");
    let levels = share(|kinds| {
        kinds[0].job.ioprio = IoPrio::new(Class::BestEffort, 6);
        kinds[1].job.ioprio = IoPrio::new(Class::BestEffort, 0);
    });
    assert!((3.2..=4.8).contains(&levels), "8 : 2, not {levels}");
    let equal = share(|_| ());
    assert!((0.9..=1.1).contains(&equal), "{equal}");
}

/// The same host with the single-queue path.
fn single(scheduler: &str, processes: usize) -> HostSpec {
    let mut spec = host(scheduler, processes, 1);
    (spec.config.mode, spec.config.queues) = (QueueMode::Sq, 1);
    spec
}

#[test]
fn each_legacy_scheduler_serves_the_single_queue_and_the_same_seed_gives_the_same_figures() {
    for scheduler in ["noop", "deadline", "cfq"] {
        let mut spec = single(scheduler, 3);
        let first = run(spec.clone());
        assert!(first.ios > 300, "{scheduler}: {first:?}");
        assert_eq!(first, run(spec.clone()), "{scheduler}");
        spec.seed = 2;
        assert_ne!(first, run(spec), "{scheduler}");
    }
    let refused = simulate(single("bfq", 1), 0, MS).expect_err("a scheduler of the other path");
    assert!(refused.to_string().contains("its counterpart here is cfq"), "{refused}");
}

#[test]
fn one_io_at_a_time_takes_each_hold_of_the_single_queue_s_lock() {
    let mut spec = HostSpec { disk: fixed(), ..single("noop", 1) };
    spec.processes[0].habit.depth = 1;
    // All that is left in a hold is what happens there.
    spec.profile.scheduler.clear();
    spec.profile.lock.near = 1_000;
    let path = spec.profile.path;
    let machine = spec.profile.machine;
    // Into the pool; inserted and sent on.
    let there = path.syscall + path.submit + path.issue + path.doorbell + 2 * 1_000;
    // Reaped, ended, looked for another, restarted.
    let back = path.interrupt + path.end + path.wake + machine.idle_exit + machine.switch;
    let expected = (100_000 + there + back + 4 * 1_000) as f64;
    let latency = run(spec).latency_ns();
    assert!((latency - expected).abs() < 1.0, "{latency} for {expected}");
}

#[test]
fn the_one_lock_of_the_single_queue_is_waited_for_and_bounds_the_rate() {
    let figures = |spec: HostSpec| {
        let mut spec = HostSpec { disk: fixed(), ..spec };
        spec.disk.depth = 1_000;
        spec.disk.kind =
            Spec::parse("[fixed]\nunits = 1000\nlatency = \"10us\"").expect("a disk").kind;
        spec.processes[0].habit.depth = 32;
        run(spec)
    };
    let (sq, mq) = (figures(single("noop", 8)), figures(host("none", 8, 1)));
    assert_eq!(mq.time.spin, 0);
    assert!(sq.time.spin > 8 * 20 * MS / 4, "{sq:?}");
    assert!(sq.iops() < mq.iops() / 2.0, "{} {}", sq.iops(), mq.iops());
    // What one request holds the lock for: 350 ns to insert, send and end each.
    assert!(sq.iops() < 1e9 / 1_050.0, "{}", sq.iops());
    let (dear, one) = (figures(single("cfq", 8)), figures(single("noop", 1)));
    assert!(dear.iops() < sq.iops() && sq.iops() < 3.0 * one.iops(), "{dear:?} {one:?}");
}

#[test]
fn neighbours_merge_in_the_single_queue_and_a_full_pool_is_waited_for() {
    let kind = Processes::new(
        "writer",
        4,
        Habit { depth: 32, ..Habit::default() },
        Job { access: Access::Sequential, parted: true, ..job(Direction::Write) },
    );
    let mut spec = HostSpec { processes: vec![kind], ..single("deadline", 1) };
    spec.disk = Spec::parse("depth = 1\n[fixed]\nlatency = \"100us\"").expect("a disk");
    let merging = run(spec.clone());
    assert!(merging.ios > 4 * merging.commands.changes, "{merging:?}");
    spec.config.nomerges = 2;
    let apart = run(spec.clone());
    assert!(apart.ios.abs_diff(apart.commands.changes) <= 128, "{apart:?}");
    let all = apart.latency_ns();
    // A pool of 4, and half as many again for a batcher, for 128: those that are behind it have
    // begun, but one for each process.
    spec.config.nr_requests = Some(4);
    let few = run(spec);
    assert!(few.ios.abs_diff(apart.ios) <= 4, "{few:?}");
    assert!(few.latency_ns() < all * 10.0 / 32.0, "{few:?} {all}");
}

#[test]
fn what_is_under_way_ends_however_long_it_takes() {
    let one = Processes::new("readers", 1, Habit::default(), job(Direction::Read));
    let mut thinker = on_a_slow_disk(vec![one.clone()]);
    thinker.processes[0].habit.think = 1_000_000 * MS;
    let mut slow = on_a_slow_disk(vec![one]);
    slow.disk = Spec::parse("[fixed]\nlatency = \"1000s\"").expect("a disk");
    for mut spec in [thinker, slow] {
        spec.config.timeout_ns = 0;
        let (figures, ios) = simulate(spec.clone(), 0, MS).expect("a host");
        assert_eq!((figures.ios, ios), (0, 1));
        spec.processes[0].ios = Some(1);
        let why = simulate_to_the_end(spec, MS).expect_err("it takes longer").to_string();
        assert_eq!(why, "1 processes have not finished after 1000000 ns");
    }
}

#[test]
fn a_process_that_pauses_after_its_last_io_has_finished_with_that() {
    // Its slice is used up when it has handed in, and the other is ready.
    let habit = Habit { think: 10 * MS, pause: 5 * MS, ..Habit::default() };
    let sized = Job {
        access: Access::Sequential,
        size: Some(Amount::Bytes(5 << 12)),
        time_based: false,
        ..job(Direction::Write)
    };
    let counted =
        Processes { ios: Some(5), ..Processes::new("some", 2, habit, job(Direction::Read)) };
    let bytes = Processes::new("some", 2, habit, sized);
    // A count is known to be full at once, what a job has moved only after the pause.
    for (kind, knows) in [(counted, 0), (bytes, 5 * MS)] {
        let mut spec = on_a_slow_disk(vec![kind]);
        (spec.profile.machine.sockets, spec.profile.machine.cores) = (1, 1);
        spec.config.queues = 1;
        let (figures, _) = simulate_to_the_end(spec, 1_000 * MS).expect("both finish");
        let kind = figures.kind("some");
        assert_eq!(kind.each.iter().map(|one| one.ios).collect::<Vec<_>>(), [5, 5]);
        // Five rounds of two thoughts, and four pauses between them.
        let last = kind.all.finished.expect("an end").0;
        assert!((120 * MS..121 * MS).contains(&last), "{last}");
        assert!(figures.ns.abs_diff(last + knows) < MS / 10, "{figures:?}");
    }
}

#[test]
fn a_long_thought_counts_in_each_stretch_by_what_of_it_is_there() {
    let habit = Habit { think: 1_000 * MS, ..Habit::default() };
    let kind = Processes::new("thinker", 1, habit, job(Direction::Read));
    let mut host = Host::new(on_a_slow_disk(vec![kind])).expect("a host");
    for number in 0..5 {
        let figures = host.run(150 * MS);
        let busy = figures.time.user + figures.time.system;
        assert_eq!(busy, 150 * MS, "stretch {number}: {figures:?}");
    }
    host.finish();
    // Beside a process whose interrupts come on its processor.
    let reader = Processes::new("reader", 1, Habit::default(), job(Direction::Read));
    let thinker = Processes::new("thinker", 1, habit, job(Direction::Read));
    let mut spec = on_a_slow_disk(vec![thinker, reader]);
    (spec.profile.machine.sockets, spec.profile.machine.cores) = (1, 2);
    spec.config.queues = 1;
    let mut host = Host::new(spec).expect("a host");
    for number in 0..50 {
        let ns = 40_000 + 7 * number;
        let figures = host.run(ns);
        let busy = figures.time.user + figures.time.system;
        assert!((ns..=2 * ns).contains(&busy), "stretch {number}: {figures:?}");
    }
    host.finish();
}

#[test]
fn a_process_that_pauses_is_refused_where_the_fewest_at_once_that_were_measured_are_several() {
    let times = "[\"1us\"".to_owned() + &", \"1us\"".repeat(13) + "]";
    let disk = |least: u32| {
        let text = format!(
            "size = \"1GiB\"\ndepth = 64\n[measured]\nof_size = \"4KiB\"\nleast_size = \"4KiB\"\n\
             most_size = \"4KiB\"\nread_percent = [100, 100]\naccess = \"random\"\n\
             [[measured.at]]\nin_flight = {least}\nread = {times}\n[[measured.at]]\n\
             in_flight = 64\nread = {times}\n"
        );
        Spec::parse(&text).unwrap_or_else(|why| panic!("{why}"))
    };
    let with = |least: u32, habit: Habit| {
        let mut spec = HostSpec { disk: disk(least), ..host("none", 1, 1) };
        spec.processes[0].habit = habit;
        simulate(spec, 0, MS).map(|_| ()).map_err(|why| why.to_string())
    };
    let busy = Habit { depth: 32, ..Habit::default() };
    assert_eq!(with(16, busy), Ok(()));
    assert_eq!(with(1, Habit { pause: 10 * MS, ..busy }), Ok(()));
    for habit in [Habit { think: 1000, ..busy }, Habit { pause_spread: MS, ..busy }] {
        let why = with(16, habit).expect_err("it pauses");
        assert!(why.contains("process readers: it pauses") && why.contains("16"), "{why}");
    }
}
