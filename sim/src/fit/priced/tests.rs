use super::*;
use weir_sim_disk::measured::SHARES;

/// What prices cost, and what the disk takes: by these jobs are made up.
const PRICE: Price = Price { each: 900.0, burst: 3_000.0 };

fn setting() -> Setting {
    let schedulers = vec![Added::of("bfq", 33, [800.0, 30.0])];
    let (size, rotational, paces) = (1 << 30, false, None);
    Setting { size, tags: 128, rotational, block: 4096, cpus: 2, schedulers, paces }
}

/// On a host that is at half its speed for half the time.
fn uneven() -> Setting {
    Setting { paces: Some([67, 67, 67, 67, 200, 200, 200, 200]), ..setting() }
}

fn known(ns: u64) -> Measured {
    let level = |in_flight: u32, ns: u64| Level {
        in_flight,
        read: SHARES.iter().map(|share| ns * (10_000 + share) / 10_000).collect(),
        write: Vec::new(),
    };
    Measured {
        of_size: 4096,
        least_size: 4096,
        most_size: 4096,
        read_bandwidth: 0,
        write_bandwidth: 0,
        read_percent: [100, 100],
        access: Access::Random,
        jump: 0,
        at: vec![level(1, ns), level(8, ns * 2), level(64, ns * 6)],
    }
}

/// Jobs as they would have been measured on a disk with these prices.
fn ran(disk: &Measured, scheduler: &str, depths: &[u16], setting: &Setting) -> Vec<Ran> {
    let one = |depth: &u16| {
        let scheduler = scheduler.to_owned();
        let under = (scheduler.clone(), *depth);
        let host = host(&under, disk, PRICE, setting);
        let (figures, _) = simulate(host, 10_000_000, 200_000_000).expect("it runs");
        let cpu_ns = figures.time.user + figures.time.system;
        Ran { scheduler, depth: *depth, wall_ns: figures.ns, cpu_ns, row: figures.all }
    };
    depths.iter().map(one).collect()
}

#[test]
fn jobs_on_a_known_disk_and_host_come_out_as_they_were() {
    // One that takes its time, and one in memory, where all of it is the processor's.
    for ns in [80_000, 0] {
        let disk = known(ns);
        let jobs = ran(&disk, "none", &[1, 8, 64], &setting());
        // A depth that was not fitted, and a scheduler that was not.
        let others = ran(&disk, "bfq", &[1, 24], &setting());
        let model = fit(&jobs, &jobs, &others, &setting()).expect("a model");
        assert_eq!((model.held_back.len(), model.predicted.len()), (3, 2));
        model.held_back.iter().for_each(|held| is_near(held, 4.0));
        for Predicted { scheduler, held } in &model.predicted {
            assert_eq!(scheduler, "bfq");
            is_near(held, 8.0);
        }
        let host = model.host.as_ref().expect("prices");
        // 800 alone and 30 with 33: 794 once, and 6 for each.
        let bfq = &host.scheduler["bfq"];
        assert_eq!((bfq.own, bfq.turn), (5, 794));
        // In memory no time is left for a disk; one that takes its time has all of it.
        let times = model.disk.at.iter().flat_map(|level| &level.read);
        assert!(times.clone().all(|time| (*time > 0) == (ns > 0)), "{:?}", model.disk);
    }
}

#[test]
fn the_model_is_of_all_rounds_and_what_is_held_back_is_held_against_the_others() {
    let [fast, slow] = [60_000, 120_000].map(|ns| ran(&known(ns), "none", &[1, 8], &setting()));
    let model = fit(&fast, &slow, &[&fast[..], &slow].concat(), &setting()).expect("a model");
    for Held { in_flight, p50_us, .. } in &model.held_back {
        assert!(p50_us.error_pct() < -30.0, "{in_flight}: {p50_us:?} of the fast half");
    }
    for Predicted { held, .. } in &model.predicted {
        let off = held.rate.error_pct();
        assert!(off.abs() < 4.0, "{off:.1} %: {held:?}");
    }
}

#[test]
fn prices_are_those_that_miss_all_depths_least_and_not_two_of_them() {
    let of = Price { each: 100.0, burst: 100.0 };
    // One, an eighth and a 64th of a burst for each I/O.
    let bursts = [1.0, 1.0 / 8.0, 1.0 / 64.0];
    let figures = bursts.map(|share: f64| {
        let mut figures = Figures { ios: 1_000_000, ..Figures::default() };
        figures.time.user = ((of.each + of.burst * share) * 1e6) as u64;
        figures
    });
    let cost = |price: Price, share: f64| price.each + price.burst * share;
    let next = |factors: [f64; 3]| {
        let mut jobs = BTreeMap::new();
        for ((depth, share), factor) in [1, 8, 64].into_iter().zip(bursts).zip(factors) {
            let cpu_ns = (cost(PRICE, share) * factor * 1e6) as u64;
            let at = AtDepth { ios: 1_000_000, cpu_ns, ..AtDepth::default() };
            jobs.insert((String::from("none"), depth), at);
        }
        next_price(of, &jobs, &figures)
    };
    let exact = next([1.0; 3]);
    assert!((exact.each - 900.0).abs() < 1.0 && (exact.burst - 3000.0).abs() < 1.0, "{exact:?}");
    // The middle one cost a fifth more: all three are missed by some, and none by a fifth.
    let spread = next([1.0, 1.2, 1.0]);
    let errors: Vec<f64> = bursts
        .into_iter()
        .zip([1.0, 1.2, 1.0])
        .map(|(share, factor)| cost(spread, share) / cost(PRICE, share) / factor - 1.0)
        .collect();
    assert!(errors.iter().all(|error| error.abs() < 0.15), "{errors:?}");
    assert!(errors[1] < -0.05 && errors[2] > 0.02, "{errors:?}");
}

fn is_near(held: &Held, bound: f64) {
    let Held { in_flight, rate, p50_us, p99_us, .. } = held;
    for (name, pair) in [("rate", rate), ("p50", p50_us), ("p99", p99_us)] {
        let off = pair.error_pct();
        assert!(off.abs() < bound, "{name} with {in_flight}: {off:.1} %, {pair:?}");
    }
}

#[test]
fn a_scheduler_costs_more_where_the_processor_is_slower() {
    let jobs = ran(&known(0), "none", &[1, 8], &uneven());
    let others = ran(&known(0), "bfq", &[1], &uneven());
    let model = fit(&jobs, &jobs, &others, &uneven()).expect("a model");
    is_near(&model.predicted[0].held, 4.0);
    // A model that does not know of it takes the time of all I/Os for as much longer.
    let even = fit(&jobs, &jobs, &others, &setting()).expect("a model");
    let off = even.predicted[0].held.p99_us.error_pct();
    assert!(off < -5.0, "{off:.1} %");
}

#[test]
fn paces_are_shares_of_the_time_about_the_mean_speed() {
    let mut alone = Times::default();
    // Four times as slow for half the time, so four of five I/Os are fast.
    alone.record(100, 4_000);
    alone.record(400, 1_000);
    let paces = paces(&alone).expect("enough");
    assert!(paces.is_sorted());
    let rate = paces.iter().map(|pace| 100.0 / f64::from(*pace)).sum::<f64>() / 8.0;
    assert!((rate - 1.0).abs() < 0.01, "{rate}: {paces:?}");
    let slow = paces.iter().filter(|pace| **pace > 150).count();
    assert_eq!(slow, 4, "{paces:?}");
    alone.record(50_000_000, 1);
    assert_eq!(super::paces(&alone), Some(paces), "it was interrupted");
    let mut few = Times::default();
    few.record(100, LEAST as u64 - 1);
    assert_eq!(super::paces(&few), None);
}

#[test]
fn the_text_of_a_priced_model_has_its_prices() {
    let jobs = ran(&known(50_000), "none", &[1, 8], &uneven());
    let model = fit(&jobs, &jobs, &[], &uneven()).expect("a model");
    let text = model.text("a test");
    let table: toml::Table = text.parse().unwrap_or_else(|why| panic!("{why}\n{text}"));
    let host = Profile::read(table["host"].as_table().expect("a table")).expect("prices");
    assert_eq!(Some(host), model.host);
    assert!(Spec::parse(&text).is_ok(), "{text}");
}

#[test]
fn too_few_ios_are_refused_with_their_number() {
    let row = Row { ios: 3, ..Row::default() };
    let few = vec![Ran { depth: 4, wall_ns: 1, cpu_ns: 1, row, ..Ran::default() }];
    let why = fit(&few, &few, &[], &setting()).expect_err("three").to_string();
    assert!(why.starts_with("too few I/Os: 3 with a depth of 4"), "{why}");
    assert!(fit(&[], &[], &[], &setting()).is_err());
    let enough = ran(&known(50_000), "none", &[1], &setting());
    let why = fit(&enough, &enough, &few, &setting()).expect_err("three").to_string();
    assert!(why.contains("in the part that is predicted"), "{why}");
}
