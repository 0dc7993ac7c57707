//! A run and its document: neither loses anything on the way to the other.

use std::time::Duration;

use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use weir_bench::workload::spec::{Oltp, Prepare, RAMP_TIME, RUNTIME, RunSpec, Workload};
use weir_bio::{Class, IoPrio};
use weir_load::presets::Stage;
use weir_load::{
    Access, Amount, Arrival, Batching, Direction, Distribution, Flow, Job, Logs, Sizes, Strides,
    Thinking, Told, Urgent, Verify, Zone,
};

fn one_of<T: Clone + std::fmt::Debug + 'static>(all: &'static [T]) -> impl Strategy<Value = T> {
    (0..all.len()).prop_map(|index| all[index].clone())
}

/// Shares that come to 100.
fn shares() -> impl Strategy<Value = Vec<u8>> {
    vec(0_u8..=100, 0..4).prop_map(|cuts| {
        let mut cuts = [vec![0], cuts, vec![100]].concat();
        cuts.sort_unstable();
        cuts.windows(2).map(|pair| pair[1] - pair[0]).collect()
    })
}

fn sizes() -> impl Strategy<Value = Sizes> {
    let size = || 1..=i64::MAX as u64;
    prop_oneof![
        size().prop_map(Sizes::Fixed),
        (1..=u64::from(u32::MAX), 1..=u64::from(u32::MAX))
            .prop_map(|(least, more)| Sizes::Range { least, most: least + more }),
        (shares(), vec(size(), 5))
            .prop_map(|(shares, sizes)| Sizes::Split(sizes.into_iter().zip(shares).collect())),
    ]
}

fn distribution() -> impl Strategy<Value = Distribution> {
    let zoned = |shares: Vec<u8>| {
        Distribution::Zoned(shares.into_iter().map(|s| Zone { access: s, size: s }).collect())
    };
    prop_oneof![
        Just(Distribution::Uniform),
        (0.0..1.0_f64).prop_filter("above 0", |t| *t > 0.0).prop_map(Distribution::Zipf),
        (1.000_000_1..=10.0_f64).prop_map(Distribution::Zipf),
        (1e-6..=0.999_999_f64).prop_map(Distribution::Pareto),
        shares().prop_map(zoned),
    ]
}

fn amount() -> impl Strategy<Value = Amount> {
    prop_oneof![
        (0..=i64::MAX as u64).prop_map(Amount::Bytes),
        (1..=100_u8).prop_map(Amount::Percent)
    ]
}

fn ioprio() -> impl Strategy<Value = IoPrio> {
    let classes = &[Class::None, Class::RealTime, Class::BestEffort, Class::Idle];
    (one_of(classes), 0..=7_u8).prop_map(|(class, level)| IoPrio::new(class, level))
}

fn job() -> impl Strategy<Value = Job> {
    const MONTH: u64 = 30 * 24 * 3600 * 1_000_000_000;
    let what = (
        (any::<String>(), of(any::<String>()), one_of(&[Access::Random, Access::Sequential])),
        one_of(&[Direction::Read, Direction::Write, Direction::Mixed, Direction::Trim]),
        (distribution(), 0..=100_u8, [sizes(), sizes(), sizes()], amount(), of(amount())),
    );
    let how = (
        (1..=4096_u16, 1..=256_u16, any::<bool>(), of(1_000_000..=MONTH), any::<bool>()),
        (0..=MONTH, [0..=100_000_000_u32, 0..=100_000_000, 0..=100_000_000]),
        one_of(&[Arrival::Even, Arrival::Poisson]),
        (any::<u32>(), any::<u64>(), ioprio()),
        (
            of(one_of(&[Verify::Crc32c, Verify::Pattern, Verify::Md5, Verify::Sha256])),
            any::<bool>(),
            any::<bool>(),
        ),
    );
    (what, how, order()).prop_map(|(what, how, order)| {
        let ((name, target, access), direction, ranges) = what;
        let (distribution, read_percent, sizes, offset, size) = ranges;
        let (loop_, times, arrival, rest, last) = how;
        let (depth, clones, parted, runtime_ns, time_based) = loop_;
        let (ramp_ns, rate) = times;
        let (flush_every, seed, ioprio) = rest;
        let (verify, background, cached) = last;
        Job {
            name,
            target,
            access,
            distribution,
            direction,
            read_percent,
            sizes,
            offset,
            size,
            depth,
            clones,
            parted,
            runtime_ns,
            time_based,
            ramp_ns,
            rate,
            arrival,
            flush_every,
            seed,
            ioprio,
            verify,
            background,
            cached,
            ..order
        }
    })
}

/// When its I/Os begin and where they go: the rest of a job is the default.
fn order() -> impl Strategy<Value = Job> {
    const MONTH: u64 = 30 * 24 * 3600 * 1_000_000_000;
    let thinking = (0..=MONTH, any::<u32>(), 0..=MONTH, any::<bool>());
    let thinking =
        thinking.prop_map(|(ns, ios, io_ns, from_issue)| Thinking { ns, ios, io_ns, from_issue });
    let batching = (any::<u16>(), any::<u16>(), any::<u16>(), any::<bool>())
        .prop_map(|(submit, complete, low, at_once)| Batching { submit, complete, low, at_once });
    let strides = (any::<u64>(), any::<u64>(), any::<u64>())
        .prop_map(|(bytes, range, skip)| Strides { bytes, range, skip });
    let places = (any::<bool>(), of(any::<u64>()), any::<i64>(), of(strides));
    let bounds = (of(amount()), 1..=u32::MAX, amount(), 0..=MONTH);
    let last = (of(any::<bool>()), any::<bool>(), any::<bool>(), any::<bool>());
    (places, bounds, thinking, batching, last, content()).prop_map(
        |(places, bounds, thinking, batching, last, content)| {
            let (buffered, durable, read_back, poll) = last;
            let (map, align, step, strides) = places;
            let (io_size, loops, offset_increment, delay) = bounds;
            let start_delay_ns = [delay / 2, delay];
            Job {
                map,
                align,
                step,
                strides,
                io_size,
                loops,
                offset_increment,
                start_delay_ns,
                thinking,
                batching,
                poll,
                buffered,
                durable,
                read_back,
                ..content
            }
        },
    )
}

/// What it writes, its share and its logs.
fn content() -> impl Strategy<Value = Job> {
    let verify = (any::<u64>(), any::<[u32; 2]>(), vec(any::<u8>(), 0..9), any::<bool>());
    let flow = (0..=1000_u32, any::<u64>(), any::<u64>());
    let name = || of(any::<String>());
    let traces = (name(), name(), any::<[(u8, u8); 2]>());
    let logs = (name(), name(), name(), any::<u64>(), any::<u32>(), any::<[bool; 4]>());
    let told = one_of(&[Told::Average, Told::Most, Told::Both]);
    (verify, flow, logs, told, traces).prop_map(|(verify, flow, logs, told, traces)| {
        let (verify_interval, verify_backlog, pattern, serialize_overlap) = verify;
        let (weight, id, sleep_ns) = flow;
        let (latency, bandwidth, iops, window_ns, first, flags) = logs;
        let [offset, priority, issue_time, shared] = flags;
        let logs = Logs {
            latency,
            bandwidth,
            iops,
            window_ns,
            told,
            offset,
            priority,
            issue_time,
            shared,
            first,
        };
        Job {
            verify_interval,
            verify_backlog,
            pattern,
            serialize_overlap,
            must_exist: shared,
            flow: Flow { weight, id, sleep_ns },
            logs,
            replay: traces.0,
            trace: traces.1,
            urgent: traces.2.map(|(percent, level)| Urgent {
                percent,
                ioprio: IoPrio::new(Class::Idle, level),
            }),
            ..Job::default()
        }
    })
}

fn workload() -> impl Strategy<Value = Workload> {
    let stage =
        (of(any::<String>()), vec(job(), 0..3)).prop_map(|(name, jobs)| Stage { name, jobs });
    let names = || vec(any::<String>(), 0..3);
    let oltp = (1..=1000_u16, 1..=64_u16, 0..=100_u8, 1..=100_u8, 1..=100_u8, names(), names());
    let oltp = oltp.prop_map(|(users, threads, update_percent, access, size, data, redo)| Oltp {
        users,
        threads,
        update_percent,
        hot: Zone { access, size },
        data,
        redo,
    });
    prop_oneof![vec(stage, 0..3).prop_map(Workload::Stages), oltp.prop_map(Workload::Oltp)]
}

fn time(least: Duration, most: Duration) -> impl Strategy<Value = Duration> {
    let nanos = |time: Duration| time.as_nanos() as u64;
    (nanos(least)..=nanos(most)).prop_map(Duration::from_nanos)
}

fn spec() -> impl Strategy<Value = RunSpec> {
    let runtime = of(time(*RUNTIME.start(), *RUNTIME.end()));
    let ramp = time(*RAMP_TIME.start(), *RAMP_TIME.end());
    let texts = || vec(any::<String>(), 0..3);
    let (seed, destroy) = (any::<u64>(), any::<bool>());
    let prepare =
        prop::sample::select(vec![Prepare::Auto, Prepare::No, Prepare::Fill, Prepare::Memory]);
    let told = (prepare, texts(), texts());
    let all = (workload(), of(any::<String>()), runtime, ramp, seed, destroy, told);
    all.prop_map(|(workload, target, runtime, ramp, seed, destroy, told)| RunSpec {
        target: target.filter(|_| matches!(workload, Workload::Stages(_))),
        workload,
        runtime,
        ramp,
        seed,
        destroy,
        prepare: told.0,
        notes: told.1,
        command: told.2,
    })
}

proptest! {
    #[test]
    fn a_run_comes_out_of_its_document_as_it_went_in(spec in spec()) {
        let document = spec.document().expect("text");
        let read = RunSpec::read(document.as_bytes());
        prop_assert_eq!(read.as_ref(), Ok(&spec), "{}", document);
    }

    #[test]
    fn no_beginning_of_a_document_is_one(spec in spec(), cut in any::<prop::sample::Index>()) {
        let document = spec.document().expect("text");
        let cut = cut.index(document.len());
        prop_assert!(RunSpec::read(&document.as_bytes()[..cut]).is_err(), "{cut} of {document}");
    }
}

#[test]
fn the_same_run_on_other_disks_has_their_names_and_one_seed_for_all_its_jobs() {
    let job = |seed| Job { seed, ..Job::default() };
    let stages = vec![
        Stage { name: None, jobs: vec![job(1), job(2)] },
        Stage { name: None, jobs: vec![job(3)] },
    ];
    let streams = RunSpec::of(Workload::Stages(stages));
    let [data, redo] = ["ram:1M", "ram:2M"].map(|target| vec![String::from(target)]);
    let other = streams.on(&data, &redo, 7);
    let Workload::Stages(stages) = &other.workload else { panic!("{other:?}") };
    let seeds: Vec<u64> = stages.iter().flat_map(|stage| &stage.jobs).map(|job| job.seed).collect();
    assert_eq!((other.seed, seeds), (7, vec![7, 7, 7]));
    assert_eq!(other.target, Some(data[0].clone()));
    let hot = Zone { access: 80, size: 20 };
    let (users, threads, update_percent) = (1, 1, 25);
    let oltp = Oltp { users, threads, update_percent, hot, data: redo.clone(), redo: Vec::new() };
    let other = RunSpec::of(Workload::Oltp(oltp.clone())).on(&data, &redo, 7);
    assert_eq!((other.seed, other.target), (7, None));
    assert_eq!(other.workload, Workload::Oltp(Oltp { data, redo, ..oltp }));
}
