//! The real SCSI mid-layer below the paths of a simulated host: its limits, what it does about a
//! target that says no, and its error handler, in virtual time.

use std::sync::Arc;

use weir_driver_scsi::{Counts, Unit, UnitState};
use weir_load::{Direction, Job};
use weir_map::multipath::table::Policy;
use weir_queue::{Config, QueueMode};
use weir_sim::{
    Figures, Habit, Host, HostSpec, PortFault, PortFaultKind, Ports, Processes, Profile, San,
};
use weir_sim_disk::Spec;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;

/// One host of two processors before disks of 1 ms, over two paths by as many adapters.
fn spec(mode: QueueMode, disks: usize) -> HostSpec {
    let queues = Config {
        mode,
        scheduler: Some(if mode == QueueMode::Sq { "noop" } else { "none" }.into()),
        depth: Some(64),
        timeout_ns: 0,
        wbt_lat_us: Some(0),
        ..Config::default()
    };
    let habit = Habit { depth: 32, ..Habit::default() };
    HostSpec {
        profile: Profile::known("broadwell-2sock-4.1").expect("a profile"),
        config: queues.clone(),
        disk: Spec::parse("[fixed]\nunits = 512\nlatency = \"1ms\"").expect("a disk"),
        disks,
        san: Some(San {
            hosts: vec![2],
            paths: 2,
            adapters: 2,
            link: 0,
            path: queues,
            selector: Policy::RoundRobin,
            ports: Ports::default(),
        }),
        processes: vec![Processes::new("readers", 1, habit, Job::random(Direction::Read, 4096))],
        weights: Vec::new(),
        seed: 1,
    }
}

fn changed(mut spec: HostSpec, change: impl FnOnce(&mut HostSpec, &mut San)) -> HostSpec {
    let mut san = spec.san.take().expect("a network");
    change(&mut spec, &mut san);
    spec.san = Some(san);
    spec
}

fn with_fault(mode: QueueMode, fault: PortFault) -> HostSpec {
    changed(spec(mode, 1), |_, san| {
        (san.ports.fault, san.path.timeout_ns) = (Some(fault), 100 * MS);
    })
}

fn fault(kind: PortFaultKind) -> PortFault {
    PortFault { kind, paths: 1, from: 50 * MS, lasts: 1000 * SECOND }
}

/// What comes of it in so much time, and the units. Each I/O that was begun has ended once.
fn run(spec: HostSpec, ns: u64) -> (Figures, Vec<Arc<Unit>>) {
    let mut host = Host::new(spec).expect("a host");
    let figures = host.run(ns);
    let units = host.units().to_vec();
    host.finish();
    (figures, units)
}

const MODES: [QueueMode; 2] = [QueueMode::Mq, QueueMode::Sq];

#[test]
fn each_command_on_a_path_is_one_that_the_mid_layer_of_the_scsi_driver_sent_and_got_back() {
    for mode in MODES {
        let mut host = Host::new(spec(mode, 3)).expect("a host");
        let figures = host.run(50 * MS);
        let units = host.units().to_vec();
        assert_eq!(units.len(), 3 * 2);
        let begun = host.finish();
        let counts: Vec<Counts> = units.iter().map(|unit| unit.counts()).collect();
        assert!(figures.ios > 1_000 && counts.iter().all(|unit| unit.requests > 100), "{counts:?}");
        let [sent, back] = [|one: &Counts| one.requests, |one: &Counts| one.done]
            .map(|of| counts.iter().map(of).sum::<u64>());
        assert_eq!((sent, back), (begun, begun), "{mode:?}: {counts:?}");
        // Its disks are as the mid-layer's probe found them.
        let facts = units[2].facts();
        assert_eq!((facts.lun.number(), facts.inquiry.vendor), (Some(1), *b"weir    "));
    }
}

#[test]
fn a_path_has_so_many_commands_as_its_unit_has_depth_and_a_port_as_its_host_can_queue() {
    let iops = |disks, change: fn(&mut San)| {
        let spec = changed(spec(QueueMode::Mq, disks), |spec, san| {
            (san.paths, san.adapters) = (1, 1);
            spec.processes[0].habit.depth = 64;
            change(san);
        });
        run(spec, 200 * MS).0.iops()
    };
    let about = |rate: f64, commands: f64| {
        let most = commands * 1_000.0;
        assert!((0.9 * most..1.001 * most).contains(&rate), "{rate}, {commands} at once");
    };
    about(iops(1, |san| san.path.depth = Some(3)), 3.0);
    about(iops(4, |san| san.path.depth = Some(3)), 12.0);
    about(iops(4, |san| san.ports.can_queue = Some(8)), 8.0);
    let free = iops(4, |_| {});
    assert!(free > 30_000.0, "{free}");
}

#[test]
fn a_path_that_is_told_of_full_task_sets_has_its_depth_lowered_to_what_fits() {
    for mode in MODES {
        let spec = changed(spec(mode, 1), |_, san| {
            (san.paths, san.adapters) = (1, 1);
            (san.path.depth, san.ports.task_set) = (Some(12), 8);
        });
        let mut host = Host::new(spec).expect("a host");
        let depths: Vec<u16> = (0..6)
            .map(|_| {
                host.run(700 * MS);
                host.units()[0].queue_depth()
            })
            .collect();
        assert!(depths[0] > 8 && depths.is_sorted_by(|one, next| one >= next), "{depths:?}");
        assert_eq!(depths.last(), Some(&8), "{mode:?}: {depths:?}");
        let before = host.units()[0].counts();
        let figures = host.run(700 * MS);
        let after = host.units()[0].counts();
        // But for those that the process does not have back yet, at either end.
        let refused = (after.done - before.done).abs_diff(figures.ios);
        assert!(refused <= 32, "what fits is refused no more: {refused}");
        assert!((6_000.0..8_100.0).contains(&figures.iops()), "{}", figures.iops());
        assert_eq!(figures.failed, 0);
        host.finish();
    }
}

#[test]
fn the_hard_queues_of_a_path_are_one_nexus_with_one_task_set_and_one_unit_attention() {
    let over_four = |spec| {
        changed(spec, |_, san| {
            (san.hosts, san.paths, san.adapters) = (vec![4], 1, 1);
            (san.path.queues, san.path.depth) = (4, Some(64));
        })
    };
    let busy = |mut spec: HostSpec| {
        (spec.processes[0].count, spec.config.queues) = (4, 4);
        spec
    };
    let bounded = changed(spec(QueueMode::Mq, 1), |_, san| san.ports.task_set = 8);
    let (figures, _) = run(busy(over_four(bounded)), 200 * MS);
    assert!((4_000.0..8_100.0).contains(&figures.iops()), "8 at once: {}", figures.iops());
    let reset = with_fault(QueueMode::Mq, fault(PortFaultKind::Attention));
    let (figures, units) = run(busy(over_four(reset)), 200 * MS);
    let told = units[0].counts();
    assert_eq!((told.keys[6], figures.failed), (1, 0), "{told:?}");
}

#[test]
fn a_path_takes_no_longer_command_than_was_measured_of_its_disk() {
    let times = vec!["\"50us\""; 14].join(",");
    let disk = format!(
        "size = \"1GiB\"\ndepth = 128\n[measured]\nof_size = \"4KiB\"\nleast_size = \"4KiB\"\n\
         most_size = \"4KiB\"\nread_percent = [100, 100]\naccess = \"sequential\"\n\
         [[measured.at]]\nin_flight = 1\nread = [{times}]\n\
         [[measured.at]]\nin_flight = 32\nread = [{times}]\n"
    );
    let spec = changed(spec(QueueMode::Mq, 1), |spec, _| {
        spec.disk = Spec::parse(&disk).expect("a disk");
        spec.config.scheduler = Some(String::from("mq-deadline"));
        let readers = &mut spec.processes[0];
        (readers.habit.batch, readers.job.access) = (32, weir_load::Access::Sequential);
    });
    let mut host = Host::new(spec).expect("a host");
    let figures = host.run(20 * MS);
    let (ios, reads) = (figures.ios, figures.commands.reads);
    assert!(ios > 1_000 && reads.abs_diff(ios) <= 64, "a command is one I/O: {ios} by {reads}");
    host.finish();
}

#[test]
fn a_path_whose_connection_is_lost_fails_at_once_and_i_o_goes_down_the_other() {
    for mode in MODES {
        let (figures, units) = run(with_fault(mode, fault(PortFaultKind::Lost)), 300 * MS);
        let [lost, other] = [0, 1].map(|path| units[path].counts());
        assert_eq!((figures.failed, lost.timeouts), (0, 0), "{mode:?}");
        assert!(lost.requests < other.requests / 3, "{mode:?}: {lost:?} {other:?}");
        // At worst a command that was under way, once more.
        assert!(figures.kind("readers").all.max < 5 * MS, "{:?}", figures.kind("readers").all);
    }
}

#[test]
fn i_o_that_fails_is_counted_as_such_and_is_in_no_other_figure() {
    for mode in MODES {
        let both = PortFault { paths: 2, ..fault(PortFaultKind::Lost) };
        let mut host = Host::new(with_fault(mode, both)).expect("a host");
        let before = host.run(50 * MS);
        assert!(before.failed == 0 && before.ios > 1_000, "{mode:?}: {}", before.ios);
        // What was under way when the connections were lost ends meanwhile.
        host.run(10 * MS);
        let after = host.run(50 * MS);
        let readers = &after.kind("readers").all;
        assert!(after.failed > 0, "{mode:?}");
        assert_eq!([after.ios, after.latency, after.all.ios, after.all.bytes], [0; 4], "{mode:?}");
        assert_eq!([readers.ios, readers.bytes, readers.max], [0; 3], "{mode:?}");
        assert_eq!(after.latency_ns(), 0.0);
        assert!(host.finish() >= before.ios + after.failed, "each has ended once all the same");
    }
}

#[test]
fn a_path_without_answers_is_timed_out_and_given_up_and_its_i_o_goes_down_the_other() {
    for mode in MODES {
        let spec = with_fault(mode, fault(PortFaultKind::Silent));
        // Few I/Os, because it takes minutes.
        let few = Habit { depth: 4, pause: 20 * MS, ..Habit::default() };
        let mut host =
            Host::new(changed(spec, |spec, _| spec.processes[0].habit = few)).expect("a host");
        // Each queue looks once a second whose time is up.
        let first = host.run(5 * SECOND);
        let [silent, _] = [0, 1].map(|path| host.units()[path].counts());
        assert!(silent.timeouts > 0, "{mode:?}: {silent:?}");
        let later = host.run(200 * SECOND);
        assert_eq!(host.units()[0].state(), UnitState::Offline, "{mode:?}: no reset helps");
        assert_eq!(host.units()[1].state(), UnitState::Running, "{mode:?}");
        let last = host.run(SECOND);
        assert_eq!(first.failed + later.failed + last.failed, 0, "{mode:?}");
        assert!(last.iops() > 150.0, "{mode:?}: {}", last.iops());
        host.finish();
    }
}

#[test]
fn a_path_that_answers_again_is_checked_and_used_again() {
    let short = PortFault { lasts: SECOND, ..fault(PortFaultKind::Lost) };
    let mut host = Host::new(with_fault(QueueMode::Mq, short)).expect("a host");
    host.run(SECOND);
    let during = host.units()[0].counts().requests;
    host.run(20 * SECOND);
    let after = host.units()[0].counts().requests;
    assert!(after > during + 100_000, "{during} {after}");
    host.finish();
}

#[test]
fn a_unit_that_is_busy_is_held_back_and_asked_again_and_no_path_fails() {
    for mode in MODES {
        let busy = PortFault { lasts: 50 * MS, ..fault(PortFaultKind::Busy) };
        let (figures, units) = run(with_fault(mode, busy), 300 * MS);
        let [busy, other] = [0, 1].map(|path| units[path].counts());
        assert!(busy.retries > 50 && other.retries == 0, "{mode:?}: {busy:?} {other:?}");
        assert_eq!(figures.failed, 0, "{mode:?}");
        assert!(busy.requests > other.requests / 2, "it is used again: {busy:?} {other:?}");
    }
}

#[test]
fn a_unit_that_was_reset_says_so_once_and_the_command_is_sent_again() {
    for mode in MODES {
        let (figures, units) = run(with_fault(mode, fault(PortFaultKind::Attention)), 300 * MS);
        let [told, other] = [0, 1].map(|path| units[path].counts());
        assert_eq!((told.keys[6], told.retries, told.errors), (1, 1, 0), "{mode:?}: {told:?}");
        assert_eq!((other.retries, figures.failed), (0, 0), "{mode:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_figures_with_faults_as_well() {
    let kinds = [PortFaultKind::Lost, PortFaultKind::Silent, PortFaultKind::Busy];
    for (mode, kind) in MODES.into_iter().flat_map(|mode| kinds.map(|kind| (mode, kind))) {
        let figures = [(); 2].map(|()| run(with_fault(mode, fault(kind)), 400 * MS).0);
        assert_eq!(figures[0], figures[1], "{mode:?} {kind:?}");
    }
}

#[test]
fn a_fault_outside_its_bounds_is_refused_with_them() {
    let why = |change: fn(&mut San)| {
        let spec = changed(spec(QueueMode::Mq, 1), |_, san| change(san));
        Host::new(spec).err().expect("a figure").to_string()
    };
    let of_three = why(|san| {
        san.ports.fault = Some(PortFault { paths: 3, ..fault(PortFaultKind::Lost) });
    });
    assert_eq!(of_three, "fault_paths=3 is outside 1..=2");
    let silent = why(|san| san.ports.fault = Some(fault(PortFaultKind::Silent)));
    assert!(silent.contains("fault=silent with timeout=0"), "{silent}");
    assert_eq!(why(|san| san.ports.can_queue = Some(0)), "can_queue=0 is outside 1..=10000");
}
