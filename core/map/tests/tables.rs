//! The table line of multipath: what is read is written again, and errors name the bound.

use proptest::prelude::*;
use weir_map::multipath::table::{Features, GroupLine, MANY_MAX, Mode, PathLine, Policy, Table};

#[test]
fn the_line_of_the_documents_is_read_and_written_again() {
    let line = "1 queue_if_no_path 0 2 1 service-time 0 2 2 8:0 1 1 8:16 1 1 round-robin 0 1 1 \
                8:32 1";
    let table = Table::parse(line).unwrap();
    assert_eq!(table.to_string(), line);
    assert!(table.features.queue_if_no_path);
    let names: Vec<&str> = table.paths().map(|path| path.device.as_str()).collect();
    assert_eq!(names, ["8:0", "8:16", "8:32"]);
    assert_eq!((table.groups[0].policy, table.initial), (Policy::ServiceTime, 1));
}

#[test]
fn what_is_left_out_has_its_default_and_a_repeat_count_is_one() {
    let table = Table::parse("0 0 1 1 service-time 0 2 0 a b").unwrap();
    assert_eq!(table.to_string(), "0 0 1 1 service-time 0 2 2 a 1 1 b 1 1");
    let table = Table::parse("0 0 1 1 round-robin 0 1 1 a 1000").unwrap();
    assert!(table.groups[0].paths[0].was_repeated);
    assert_eq!(table.to_string(), "0 0 1 1 round-robin 0 1 1 a 1");
    let table = Table::parse("0 0 1 1 historical-service-time 0 1 0 a").unwrap();
    assert_eq!(table.to_string(), "0 0 1 1 historical-service-time 2 972 0 1 1 a 1");
    let table = Table::parse("2 QUEUE_MODE RQ 1 alua 0 0").unwrap();
    assert_eq!(table.to_string(), "0 1 alua 0 0", "rq is not written");
    let table = Table::parse("0 0 1 1 io-affinity 0 1 1 a 0x1,00000003").unwrap();
    assert_eq!(table.paths().next().unwrap().cpus, 0x1_0000_0003);
    assert_eq!(table.to_string(), "0 0 1 1 io-affinity 0 1 1 a 1,00000003");
}

#[test]
fn an_error_names_what_is_wrong_and_the_bound() {
    let errors = [
        ("", "feature args is missing: a number in 0..=8"),
        ("9 a b", "feature args=9 is outside 0..=8"),
        ("2 a", "feature args=2, and 1 follow"),
        ("1 fly 0 0 0", "unknown multipath feature \"fly\"; known are queue_if_no_path, "),
        ("2 pg_init_retries 51 0 0 0", "pg_init_retries=51 is outside 1..=50"),
        ("2 pg_init_retries 0 0 0 0", "pg_init_retries=0 is outside 1..=50"),
        ("1 pg_init_retries 0 0 0", "pg_init_retries is missing: a number in 1..=50"),
        ("2 pg_init_delay_msecs 60001 0 0 0", "pg_init_delay_msecs=60001 is outside 0..=60000"),
        ("2 queue_mode sq 0 0 0", "queue_mode=\"sq\" is none of bio, rq, mq"),
        ("2 queue_mode bio 1 alua 0 0", "queue_mode bio takes no hw handler"),
        ("0 0 1025 1", "PGs=1025 is outside 0..=1024"),
        ("0 0 1 0 round-robin 0 1 0 a", "initial PG=0 is outside 1..=1"),
        ("0 0 1 2 round-robin 0 1 0 a", "initial PG=2 is outside 1..=1"),
        ("0 0 0 1", "initial PG=1 is outside 0..=0"),
        ("0 0 2 1 round-robin 0 1 0 a", "priority group count mismatch: PGs=2, and 1 are"),
        ("0 0 1 1 round-robin 0 1 0 a round-robin 0 1 0 b", "priority group count mismatch"),
        ("0 0 1 1 fastest 0 1 0 a", "unknown path selector \"fastest\"; known are round-robin"),
        ("0 0 1 1 round-robin 1 x 1 0 a", "round-robin args=1 is outside 0..=0"),
        ("0 0 1 1 round-robin 0 0 0", "paths=0 is outside 1..=1024"),
        ("0 0 1 1 round-robin 0 2 1 a 1 b", "not enough path parameters: 2 paths with 1 args"),
        ("0 0 1 1 round-robin 0 1 2 a 1 1", "round-robin: args per path=2 is outside 0..=1"),
        (
            "0 0 1 1 service-time 0 1 2 a 1 101",
            "path a: relative_throughput=101 is outside 0..=100",
        ),
        ("0 0 1 1 service-time 0 1 1 a x", "path a: repeat_count=x is outside 0..="),
        ("0 0 1 1 historical-service-time 1 1024 1 0 a", "base_weight=1024 is outside 0..=1023"),
        ("0 0 1 1 io-affinity 0 1 0 a", "io-affinity: args per path=0 is outside 1..=1"),
        ("0 0 1 1 io-affinity 0 1 1 a 0", "path a: CPU mask \"0\" names no CPU"),
        ("0 0 1 1 io-affinity 0 1 1 a xyz", "is no hexadecimal number of up to 128 bits"),
        ("0 0 1 1 round-robin 0 2 0 a a", "path a is named twice"),
    ];
    for (line, expected) in errors {
        let error = Table::parse(line).expect_err(line);
        assert!(error.contains(expected), "{line:?}: {error}");
    }
}

fn any_policy() -> impl Strategy<Value = Policy> {
    prop_oneof![
        Just(Policy::RoundRobin),
        Just(Policy::QueueLength),
        Just(Policy::ServiceTime),
        (0..=1023_u32, 0..=1024_u32).prop_map(|(base_weight, threshold_multiplier)| {
            Policy::HistoricalServiceTime { base_weight, threshold_multiplier }
        }),
        Just(Policy::IoAffinity),
    ]
}

fn any_group(number: usize) -> impl Strategy<Value = GroupLine> {
    let path = (0..=1_u32, 0..=100_u32, 1..=u128::MAX);
    (any_policy(), proptest::collection::vec(path, 1..5)).prop_map(move |(policy, paths)| {
        let line = |(index, (repeat_count, throughput, cpus)): (usize, (u32, u32, u128))| {
            let mut line = PathLine::plain(&format!("disk{number}.{index}"));
            // A line has the arguments of its selector only.
            match policy {
                Policy::IoAffinity => line.cpus = cpus,
                Policy::ServiceTime => {
                    (line.repeat_count, line.relative_throughput) = (repeat_count, throughput);
                }
                _ => line.repeat_count = repeat_count,
            }
            line
        };
        GroupLine { policy, paths: paths.into_iter().enumerate().map(line).collect() }
    })
}

fn any_table() -> impl Strategy<Value = Table> {
    let mode = prop_oneof![Just(None), Just(Some(Mode::Mq)), Just(Some(Mode::Bio))];
    let features = (any::<bool>(), any::<bool>(), 0..=50_u32, 0..=60_000_u32, mode).prop_map(
        |(queue_if_no_path, retain, pg_init_retries, pg_init_delay_msecs, queue_mode)| Features {
            queue_if_no_path,
            retain_attached_hw_handler: retain,
            pg_init_retries,
            pg_init_delay_msecs,
            queue_mode,
        },
    );
    let groups = (any_group(0), any_group(1), any_group(2), 0..=3_usize)
        .prop_map(|(a, b, c, count)| vec![a, b, c].into_iter().take(count).collect::<Vec<_>>());
    (features, groups, any::<bool>(), any::<prop::sample::Index>()).prop_map(
        |(features, groups, has_handler, initial)| {
            let is_bio = features.queue_mode == Some(Mode::Bio);
            let handler = match has_handler && !is_bio {
                true => vec![String::from("alua"), String::from("x")],
                false => Vec::new(),
            };
            let initial = match groups.len() {
                0 => 0,
                count => 1 + initial.index(count) as u32,
            };
            Table { features, handler, groups, initial }
        },
    )
}

proptest! {
    #[test]
    fn what_is_written_is_read_as_the_same_table(table in any_table()) {
        let text = table.to_string();
        // At most 8 words of features are read; a table can have no more.
        prop_assert_eq!(Table::parse(&text), Ok(table), "{}", text);
    }

    #[test]
    fn no_line_makes_the_parser_panic(words in proptest::collection::vec(
        prop_oneof![
            Just("0"), Just("1"), Just("2"), Just("1024"), Just("round-robin"),
            Just("service-time"), Just("historical-service-time"), Just("io-affinity"),
            Just("queue_if_no_path"), Just("queue_mode"), Just("a"), Just("-1"),
        ], 0..20)) {
        if let Ok(table) = Table::parse(&words.join(" ")) {
            prop_assert!(table.groups.len() <= MANY_MAX as usize);
            prop_assert_eq!(Table::parse(&table.to_string()).map(|t| t.to_string()),
                            Ok(table.to_string()));
        }
    }
}
