use super::*;
use weir_sim_disk::measured::SHARES;

/// What prices cost, and what the disk takes: by these jobs are made up.
const PRICE: Price = Price { each: 900.0, burst: 3_000.0 };

fn setting() -> Setting {
    let schedulers = vec![Added::of("bfq", 33, [800.0, 30.0])];
    Setting { size: 1 << 30, tags: 128, rotational: false, block: 4096, cpus: 2, schedulers }
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
fn ran(disk: &Measured, depths: &[u16]) -> Vec<Ran> {
    let one = |depth: &u16| {
        let host = host(*depth, disk, PRICE, &setting());
        let (figures, _) = simulate(host, 10_000_000, 200_000_000).expect("it runs");
        let cpu_ns = figures.time.user + figures.time.system;
        Ran { depth: *depth, wall_ns: figures.ns, cpu_ns, row: figures.all }
    };
    depths.iter().map(one).collect()
}

#[test]
fn jobs_on_a_known_disk_and_host_come_out_as_they_were() {
    // One that takes its time, and one in memory, where all of it is the processor's.
    for ns in [80_000, 0] {
        let disk = known(ns);
        let jobs = ran(&disk, &[1, 8, 64]);
        let model = fit(&jobs, &jobs, &setting()).expect("a model");
        assert_eq!(model.held_back.len(), 3);
        for Held { in_flight, rate, p50_us, p99_us, .. } in &model.held_back {
            for (name, pair) in [("rate", rate), ("p50", p50_us), ("p99", p99_us)] {
                let off = pair.error_pct();
                assert!(off.abs() < 4.0, "{ns} ns: {name} with {in_flight}: {off:.1} %");
            }
        }
        // A depth that was not fitted, and a scheduler that was not.
        let other = &ran(&disk, &[24])[0];
        let host = model.host.as_ref().expect("prices");
        let price = Price {
            each: (host.path.submit + host.path.end) as f64,
            burst: (host.path.syscall + host.path.interrupt) as f64,
        };
        let spec = self::host(24, &model.disk, price, &setting());
        let (ours, _) = simulate(spec, 10_000_000, 200_000_000).expect("it runs");
        let off = ours.iops() / (other.row.ios as f64 * 1e9 / other.wall_ns as f64) - 1.0;
        assert!(off.abs() < 0.08, "{ns} ns: {:.1} % at a depth between", off * 100.0);
        // 800 alone and 30 with 33: 794 once, and 6 for each.
        let bfq = &host.scheduler["bfq"];
        assert_eq!((bfq.own, bfq.turn), (5, 794));
    }
}

#[test]
fn the_text_of_a_priced_model_has_its_prices() {
    let jobs = ran(&known(50_000), &[1, 8]);
    let model = fit(&jobs, &jobs, &setting()).expect("a model");
    let text = model.text("a test");
    let table: toml::Table = text.parse().unwrap_or_else(|why| panic!("{why}\n{text}"));
    let host = Profile::read(table["host"].as_table().expect("a table")).expect("prices");
    assert_eq!(Some(host), model.host);
    assert!(Spec::parse(&text).is_ok(), "{text}");
}

#[test]
fn too_few_ios_are_refused_with_their_number() {
    let few = vec![Ran { depth: 4, wall_ns: 1, cpu_ns: 1, row: Row { ios: 3, ..Row::default() } }];
    let why = fit(&few, &few, &setting()).expect_err("three").to_string();
    assert!(why.starts_with("too few I/Os: 3 with a depth of 4"), "{why}");
    assert!(fit(&[], &[], &setting()).is_err());
}
