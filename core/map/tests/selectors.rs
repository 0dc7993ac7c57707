//! The path selectors, by the rules of dm: each scene is a table of requests and choices.

use weir_bio::Nanos;
use weir_map::multipath::selector::{Figures, Load, Selector, selector};
use weir_map::multipath::table::{GroupLine, PathLine, Policy};

fn paths(count: usize) -> Vec<PathLine> {
    (0..count).map(|number| PathLine::plain(&format!("p{number}"))).collect()
}

fn of(policy: Policy, count: usize) -> Box<dyn Selector> {
    selector(&GroupLine { policy, paths: paths(count) }, |_| 0)
}

fn by_throughput(throughputs: &[u32]) -> Box<dyn Selector> {
    let mut paths = paths(throughputs.len());
    for (path, throughput) in paths.iter_mut().zip(throughputs) {
        path.relative_throughput = *throughput;
    }
    selector(&GroupLine { policy: Policy::ServiceTime, paths }, |_| 0)
}

const NOW: Nanos = Nanos(1_000_000_000);

/// Chooses so often, sending each request; what was chosen.
fn send(selector: &mut dyn Selector, bytes: u64, times: usize) -> Vec<usize> {
    let mut chosen = Vec::new();
    for _ in 0..times {
        let path = selector.choose(Load { bytes, cpu: 0 }, NOW).expect("a valid path");
        selector.started(path, bytes);
        chosen.push(path);
    }
    chosen
}

#[test]
fn round_robin_takes_the_head_and_a_path_that_comes_back_is_the_head() {
    let mut selector = of(Policy::RoundRobin, 3);
    assert_eq!(send(&mut *selector, 4096, 5), [0, 1, 2, 0, 1]);
    selector.fail(0);
    assert_eq!(send(&mut *selector, 4096, 3), [2, 1, 2]);
    selector.reinstate(0);
    assert_eq!(send(&mut *selector, 4096, 4), [0, 1, 2, 0]);
    (0..3).for_each(|path| selector.fail(path));
    assert_eq!(selector.choose(Load::default(), NOW), None);
}

#[test]
fn queue_length_takes_the_shortest_queue_and_of_equals_the_one_longest_unused() {
    let mut selector = of(Policy::QueueLength, 3);
    assert_eq!(send(&mut *selector, 4096, 3), [0, 1, 2]);
    assert_eq!(send(&mut *selector, 4096, 3), [0, 1, 2], "equals, in the order of their use");
    selector.ended(1, 4096, NOW, NOW);
    assert_eq!(send(&mut *selector, 4096, 2), [1, 0], "the shortest, then the longest unused");
    assert_eq!(selector.figures(0), Figures { outstanding: 3, ..Figures::default() });
    // What is idle is taken although an equal stands behind it.
    let mut selector = of(Policy::QueueLength, 3);
    for path in [0, 2] {
        selector.started(path, 4096);
    }
    assert_eq!(send(&mut *selector, 4096, 1), [1]);
    // A path that comes back stands at the end.
    let mut selector = of(Policy::QueueLength, 3);
    selector.fail(0);
    selector.reinstate(0);
    assert_eq!(send(&mut *selector, 4096, 3), [1, 2, 0]);
}

#[test]
fn service_time_compares_bytes_under_way_over_throughput() {
    // Throughputs, bytes under way, bytes of the request, and the path that carries it.
    let scenes: &[(&[u32], &[u64], u64, usize)] = &[
        (&[1, 1], &[0, 0], 4096, 0),
        (&[1, 1], &[8192, 4096], 4096, 1),
        (&[1, 2], &[4096, 4096], 4096, 1), // equal load: the higher throughput
        (&[2, 1], &[0, 0], 4096, 0),
        (&[0, 1], &[0, 1 << 40], 4096, 1), // 0 only if no other is left
        (&[1, 0], &[1 << 40, 0], 4096, 0),
        // (4096 + 4096) / 1 against (12288 + 4096) / 2: a tie, so the higher throughput.
        (&[1, 2], &[4096, 12288], 4096, 1),
        // The same with one byte more under way there.
        (&[1, 2], &[4096, 12289], 4096, 0),
        // (0 + 4096) / 1 against (20480 + 4096) / 4.
        (&[1, 4], &[0, 20480], 4096, 0),
        // A longer request: (0 + 16384) / 1 against (20480 + 16384) / 4.
        (&[1, 4], &[0, 20480], 16384, 1),
    ];
    for (throughputs, under_way, bytes, expected) in scenes {
        let mut selector = by_throughput(throughputs);
        for (path, bytes) in under_way.iter().enumerate() {
            selector.started(path, *bytes);
        }
        let chosen = selector.choose(Load { bytes: *bytes, cpu: 0 }, NOW);
        assert_eq!(chosen, Some(*expected), "{throughputs:?} {under_way:?} {bytes}");
    }
    let mut selector = by_throughput(&[0, 1]);
    selector.fail(1);
    assert_eq!(send(&mut *selector, 4096, 1), [0]);
    selector.ended(0, 4096, NOW, NOW);
    assert_eq!(selector.figures(0).bytes, 0);
}

/// One request of a path that takes so long.
fn serve(selector: &mut dyn Selector, path: usize, from: Nanos, ns: u64) {
    selector.started(path, 4096);
    selector.ended(path, 4096, from, from + ns);
}

#[test]
fn historical_service_time_is_a_weighted_mean_and_a_long_service_weighs_more() {
    let mut selector = of(Policy::HISTORICAL, 2);
    let time = |selector: &dyn Selector| selector.figures(0).service_time;
    assert_eq!(time(&*selector), 1024);
    serve(&mut *selector, 0, NOW, 1_000_000);
    // (1024 * 972 + (1000000 << 10) * 52 + 512) >> 10
    assert_eq!(time(&*selector), 52_000_972);
    // Until now, 2 valid paths: stale after twice the service time.
    let stale = selector.figures(0).stale_after;
    assert_eq!(stale, NOW + 1_000_000 + 2 * (52_000_972 >> 10));
    // It counts from the last end at earliest: this one was served for 1 ms, not for 2.
    serve(&mut *selector, 0, NOW, 2_000_000);
    assert_eq!(time(&*selector), (52_000_972 * 972 + 1_024_000_000 * 52 + 512) >> 10);
    // A service of 64 << 24 ns or more is all that counts.
    let mut selector = of(Policy::HISTORICAL, 1);
    serve(&mut *selector, 0, NOW, 64 << 24);
    assert_eq!(time(&*selector), (64 << 24) << 10);
    // The weight of the bucket of 1 << 24 ns is the square of the base.
    let mut selector = of(Policy::HISTORICAL, 1);
    serve(&mut *selector, 0, NOW, 1 << 24);
    let weight = (972 * 972 + 512) >> 10;
    assert_eq!(time(&*selector), (1024 * weight + ((1u64 << 34) * (1024 - weight)) + 512) >> 10);
}

#[test]
fn historical_service_time_takes_the_path_that_would_be_through_first() {
    let prepared = |outstanding: [usize; 2]| {
        let mut selector = of(Policy::HISTORICAL, 2);
        serve(&mut *selector, 0, NOW, 1_000_000);
        serve(&mut *selector, 1, NOW, 3_000_000);
        for (path, count) in outstanding.into_iter().enumerate() {
            (0..count).for_each(|_| selector.started(path, 4096));
        }
        selector
    };
    let at = |ns: u64| NOW + ns;
    let choose = |outstanding, now| prepared(outstanding).choose(Load::default(), now).unwrap();
    let fresh = at(3_000_010);
    // Equal counts: the faster.
    assert_eq!(choose([1, 1], at(1_000_000)), 0);
    // 0.05 ms * (1 + 2) against 0.15 ms * (1 + 1), both fresh.
    assert_eq!(choose([2, 1], at(1_000_010)), 0);
    // 0.05 ms * (1 + 6) against 0.15 ms * (1 + 1).
    assert_eq!(choose([6, 1], at(1_000_010)), 1);
    // Path 0 is fast and stale (its figures end at 1.1 ms): the shorter queue.
    assert_eq!(choose([2, 1], fresh), 1);
    // Both idle: the one out of date longest.
    assert_eq!(choose([0, 0], fresh), 0);
    // An idle one that is out of date is to be tried.
    assert_eq!(choose([1, 0], at(60_000_000)), 1);
    assert_eq!(choose([0, 1], at(60_000_000)), 0);
    // Idle and fresh is no reason: 0.05 ms * 2 against 0.15 ms.
    assert_eq!(choose([1, 0], at(1_000_010)), 0);
}

#[test]
fn historical_service_time_counts_times_only_beyond_the_threshold() {
    let policy = |threshold_multiplier| Policy::HistoricalServiceTime {
        base_weight: 972,
        threshold_multiplier,
    };
    // Service times of about 1 : 3.
    for (threshold, expected) in [(2, 0), (3, 1), (4, 1)] {
        let mut selector = of(policy(threshold), 2);
        serve(&mut *selector, 0, NOW, 1_000_000);
        serve(&mut *selector, 1, NOW, 2_999_000);
        (0..2).for_each(|_| selector.started(0, 4096));
        selector.started(1, 4096);
        let now = NOW + 1_000_010;
        let chosen = selector.choose(Load::default(), now);
        assert_eq!(chosen, Some(expected), "threshold {threshold}");
    }
}

#[test]
fn with_a_thousand_under_way_service_times_are_coarse() {
    let mut selector = of(Policy::HISTORICAL, 2);
    // Both below 1 ns more than a whole one: equal once the fraction is gone.
    serve(&mut *selector, 0, NOW, 0);
    (0..1024).for_each(|_| selector.started(0, 1));
    (0..1023).for_each(|_| selector.started(1, 1));
    // 972 >> 10 is 0 against 1024 * 1.
    assert_eq!(selector.choose(Load::default(), NOW), Some(0));
    // 2012 and 1024 are both 1, so the shorter queue is through first: 1025 against 1101.
    let mut selector = of(Policy::HISTORICAL, 2);
    serve(&mut *selector, 0, NOW, 20);
    serve(&mut *selector, 1, NOW, 1);
    (0..1024).for_each(|_| selector.started(0, 1));
    (0..1100).for_each(|_| selector.started(1, 1));
    assert_eq!(selector.choose(Load::default(), NOW + 2), Some(0));
}

#[test]
fn io_affinity_takes_the_path_of_the_cpu_then_of_its_node_then_any() {
    let masks = [0b0011_u128, 0b0110, 0b1000];
    let mut paths = paths(3);
    for (path, mask) in paths.iter_mut().zip(masks) {
        path.cpus = mask;
    }
    let group = GroupLine { policy: Policy::IoAffinity, paths };
    // CPUs 0 and 1 are node 0, 2 and 3 node 1.
    let mut selector = selector(&group, |cpu| cpu / 2);
    let on = |selector: &mut Box<dyn Selector>, cpu| selector.choose(Load { bytes: 1, cpu }, NOW);
    let all = |selector: &mut Box<dyn Selector>| [0, 1, 2, 3].map(|cpu| on(selector, cpu));
    // Two masks name CPU 1: the first has it.
    assert_eq!(all(&mut selector), [Some(0), Some(0), Some(1), Some(2)]);
    selector.fail(1);
    assert_eq!(all(&mut selector), [Some(0), Some(0), Some(2), Some(2)], "of the same node");
    assert_eq!(selector.figures(1).misses, 1);
    selector.fail(2);
    assert_eq!(all(&mut selector), [Some(0); 4], "any that is left");
    selector.fail(0);
    assert_eq!(all(&mut selector), [None; 4]);
    selector.reinstate(1);
    assert_eq!(all(&mut selector), [Some(1); 4]);
}

#[test]
fn the_words_of_a_status_line_are_those_of_each_selector() {
    let figures = Figures {
        outstanding: 3,
        bytes: 4096,
        service_time: 2048,
        stale_after: Nanos(7),
        misses: 5,
    };
    let policies = [
        (Policy::RoundRobin, ""),
        (Policy::QueueLength, "3"),
        (Policy::ServiceTime, "4096 9"),
        (Policy::HISTORICAL, "2048 3 7"),
        (Policy::IoAffinity, "5"),
    ];
    for (policy, words) in policies {
        assert_eq!(figures.text(policy, 9).join(" "), words);
        assert_eq!(Figures::words(policy), words.split_ascii_whitespace().count());
    }
}
