use super::*;

/// A run of so many I/Os a second; latency is their inverse.
pub(crate) fn run(variant: &str, round: u32, iops: f64) -> Run {
    let mut run = Run { variant: String::from(variant), round, ..Run::default() };
    let bench = &mut run.document.bench;
    bench.figures.iops = iops;
    bench.figures.latency_ns.mean = 1e9 / iops;
    bench.figures.latency_ns.p50 = (1e9 / iops) as u64;
    bench.cpu.ns_per_io = Some(500.0);
    run
}

fn two(runs: &[Run]) -> Compare {
    let variants = ["a", "b"].map(|name| (String::from(name), serde_json::json!({})));
    summary(&variants, runs, CompareEnvironment::default(), Judging::default())
}

fn of<'a>(compare: &'a Compare, metric: &str) -> &'a Comparison {
    compare.comparisons.iter().find(|found| found.metric == metric).expect("a metric")
}

#[test]
fn what_is_slower_in_every_round_is_slower_by_throughput_and_by_latency() {
    let runs: Vec<Run> = (1..=10)
        .flat_map(|n| {
            let drift = 1000.0 * f64::from(n);
            [run("a", n, drift), run("b", n, drift * 0.95 * (1.0 + f64::from(n % 3) * 0.001))]
        })
        .collect();
    let compare = two(&runs);
    let iops = of(&compare, "iops");
    assert_eq!(iops.verdict, "b is slower");
    assert!((iops.ratio.expect("a ratio") - 0.951).abs() < 0.001, "{iops:?}");
    let [low, high] = iops.ci99.expect("an interval");
    assert!(low < 0.951 && 0.951 < high && high < 0.96, "{iops:?}");
    assert!(iops.min_detectable_effect.is_some_and(|least| least < 0.01), "{iops:?}");
    assert_eq!(of(&compare, "latency_mean_ns").verdict, "b is slower");
    assert_eq!(of(&compare, "cpu_ns_per_io").verdict, SAME);
    assert_eq!(of(&compare, "latency_p99_ns").ratio, None, "nothing was measured");
    assert!(!is_decided(of(&compare, "latency_p99_ns")));
    assert!(!compare.comparisons.iter().any(|found| found.metric == "commits_per_s"));
    assert_eq!(compare.variants[0].rounds.len(), 10);
    assert_eq!(compare.variants[0].iops.mean, 5500.0);
}

#[test]
fn a_voided_run_and_its_partner_are_left_out_of_the_difference() {
    let mut runs: Vec<Run> =
        (1..=9).flat_map(|n| [run("a", n, 1000.0 + f64::from(n)), run("b", n, 1000.0)]).collect();
    runs.push(run("a", 10, 10.0));
    runs.push(Run { voided: Some(String::from("disturbed")), ..run("b", 10, 1e9) });
    let compare = two(&runs);
    assert!(of(&compare, "iops").ratio.is_some_and(|ratio| (0.99..1.0).contains(&ratio)));
    assert_eq!((compare.variants[0].rounds.len(), compare.variants[1].rounds.len()), (10, 9));
    // The tenth of a, without a partner, would make b look faster.
    assert_eq!(compare.variants.iter().map(|v| v.iops.mean).collect::<Vec<_>>(), [1005.0, 1000.0]);
}

#[test]
fn without_an_interval_nothing_is_compared_and_the_rounds_that_count_are_told() {
    let compare = two(&[run("a", 1, 1000.0), run("b", 1, 4000.0)]);
    let iops = of(&compare, "iops");
    assert_eq!((iops.ratio, iops.ci95, iops.ci99), (Some(4.0), None, None));
    let told = "not compared: too few rounds count (1 of 1)";
    assert_eq!((iops.min_detectable_effect, iops.verdict.as_str()), (None, told));
    assert!(!differs(iops));
    let voided = Run { voided: Some(String::from("disturbed")), ..run("b", 1, 4000.0) };
    let compare = two(&[run("a", 1, 1000.0), voided]);
    let told = "not compared: too few rounds count (0 of 1)";
    assert_eq!(of(&compare, "iops").verdict, told);
    assert_eq!(undecided(&compare), Some(format!("a and b: {told}")));
    // Two rounds that are far apart would have an interval from nothing to everything.
    let few = [(1, 1000.0), (2, 3000.0)];
    let few: Vec<Run> =
        few.iter().flat_map(|(n, iops)| [run("a", *n, 1e3), run("b", *n, *iops)]).collect();
    assert_eq!(of(&two(&few), "iops").ci99, None);
    assert_eq!(of(&two(&few), "iops").verdict, "not compared: too few rounds count (2 of 2)");
    let third = [few.as_slice(), &[run("a", 3, 1e3), run("b", 3, 2e3)]].concat();
    assert_eq!(of(&two(&third), "iops").verdict, SAME);
    assert_eq!(undecided(&two(&third)), None);
}

/// Ten rounds in which b does `ratio` of what a does, and takes as much of its CPU.
fn apart(ratio: f64, judging: Judging<'_>) -> Compare {
    let runs: Vec<Run> = (1..=10)
        .flat_map(|n| {
            let noise = 1.0 + f64::from(n % 3) * 0.001;
            let mut b = run("b", n, 1000.0 * ratio * noise);
            b.document.bench.cpu.ns_per_io = Some(500.0 * ratio * noise);
            [run("a", n, 1000.0), b]
        })
        .collect();
    let variants = ["a", "b"].map(|name| (String::from(name), serde_json::json!({})));
    summary(&variants, &runs, CompareEnvironment::default(), judging)
}

#[test]
fn cpu_time_is_less_or_more_and_never_faster() {
    for (ratio, cpu, iops, is_worse_by) in [
        (0.9, "b takes less CPU", "b is slower", [false, true]),
        (1.1, "b takes more CPU", "b is faster", [true, false]),
    ] {
        let compare = apart(ratio, Judging::default());
        let [of_cpu, of_iops] = ["cpu_ns_per_io", "iops"].map(|name| of(&compare, name));
        assert_eq!((of_cpu.verdict.as_str(), of_iops.verdict.as_str()), (cpu, iops));
        assert!(differs(of_cpu) && differs(of_iops));
        assert_eq!([of_cpu, of_iops].map(is_worse), is_worse_by, "{ratio}");
    }
    assert!(!is_worse(of(&apart(1.0, Judging::default()), "iops")), "no difference");
}

#[test]
fn what_is_known_to_differ_by_less_than_matters_is_the_same_within_that() {
    let within = |ratio: f64, share: f64| {
        let compare =
            apart(ratio, Judging { within: Some(share), metric: None, ..Judging::default() });
        assert_eq!(compare.within, Some(share));
        of(&compare, "iops").verdict.clone()
    };
    // The interval is some 0.1 % wide.
    assert_eq!(within(1.02, 0.03), "the same within 3 %");
    assert_eq!(within(0.98, 0.025), "the same within 2.5 %");
    assert_eq!(within(1.02, 0.02), "b is faster", "the interval goes beyond it");
    assert_eq!(within(0.98, 0.018), "b is slower");
    // a over b may not be further off than b over a.
    assert_eq!(within(0.9705, 0.03), "b is slower");
    let compare = apart(1.02, Judging { within: Some(0.03), metric: None, ..Judging::default() });
    assert!(!differs(of(&compare, "iops")) && is_decided(of(&compare, "iops")));
    assert_eq!(of(&apart(1.02, Judging::default()), "iops").verdict, "b is faster");
}

#[test]
fn the_primary_metric_is_the_one_chosen_or_what_the_job_is_about() {
    let primary = |compare: &Compare| {
        by_primary(compare).map(|found| found.metric.clone()).collect::<Vec<_>>()
    };
    assert_eq!(primary(&apart(1.1, Judging::default())), ["iops"]);
    let chosen = Judging { metric: Some("latency_mean_ns"), within: None, ..Judging::default() };
    assert_eq!(primary(&apart(1.1, chosen)), ["latency_mean_ns"]);
    let finished = |judging| {
        let runs: Vec<Run> = (1..=4)
            .flat_map(|n| ["a", "b"].map(|name| run(name, n, 1000.0)))
            .map(|mut run| {
                run.document.bench.makespan_ns = Some(1_000_000);
                run
            })
            .collect();
        let variants = ["a", "b"].map(|name| (String::from(name), serde_json::json!({})));
        summary(&variants, &runs, CompareEnvironment::default(), judging)
    };
    let all = |compare: &Compare, name| compare.comparisons.iter().any(|c| c.metric == name);
    let compare = finished(Judging::default());
    assert_eq!(primary(&compare), [MAKESPAN]);
    assert!(!all(&compare, "iops"), "it says the same again");
    let compare = finished(Judging { metric: Some("iops"), within: None, ..Judging::default() });
    assert_eq!(primary(&compare), ["iops"]);
    let mut runs: Vec<Run> =
        (1..=4).flat_map(|n| ["a", "b"].map(|name| run(name, n, 1000.0))).collect();
    runs.iter_mut().for_each(|run| {
        run.document.bench.transactions =
            Some(weir_trace::document::Transactions { commits_per_s: 10.0, ..Default::default() });
    });
    assert_eq!(primary(&two(&runs)), [COMMITS]);
}

#[test]
fn a_pair_without_a_verdict_by_the_primary_metric_is_named_whatever_else_was_decided() {
    assert_eq!(unanswered(&apart(0.9, Judging::default())), None);
    assert_eq!(unanswered(&apart(1.0, Judging::default())), None, "no difference is a verdict");
    let commits = Judging { metric: Some(COMMITS), within: None, ..Judging::default() };
    let compare = apart(0.9, commits);
    assert_eq!(undecided(&compare), None, "other metrics were compared");
    let told = "a and b, commits_per_s: it was not measured";
    assert_eq!(unanswered(&compare).as_deref(), Some(told));
    let rounds = |name: &'static str, commits: f64| {
        (1..=4).map(move |n| {
            let mut run = run(name, n, 1000.0 + f64::from(n));
            let commits_per_s = if name == "c" && n == 2 { 0.0 } else { commits };
            run.document.bench.transactions =
                Some(weir_trace::document::Transactions { commits_per_s, ..Default::default() });
            run
        })
    };
    let runs: Vec<Run> = ["a", "b", "c"].into_iter().flat_map(|name| rounds(name, 10.0)).collect();
    let variants = ["a", "b", "c"].map(|name| (String::from(name), serde_json::json!({})));
    let compare = summary(&variants, &runs, CompareEnvironment::default(), Judging::default());
    assert_eq!(undecided(&compare), None);
    let told = "a and c, commits_per_s: not compared: c did no commit in 1 of 4 rounds";
    assert_eq!(unanswered(&compare).as_deref(), Some(told));
}

#[test]
fn geometric_means_have_the_ratio_that_is_compared() {
    let runs: Vec<Run> = (1..=6)
        .flat_map(|n| [run("a", n, 1e3 * f64::from(n)), run("b", n, 500.0 * f64::from(7 - n))])
        .collect();
    let compare = two(&runs);
    let [a, b] = [0, 1].map(|at| compare.variants[at].iops);
    let ratio = of(&compare, "iops").ratio.expect("a ratio");
    let [of_a, of_b] = [a, b].map(|iops| iops.gmean.expect("six rounds"));
    assert!((of_b / of_a - ratio).abs() < 1e-9 && (ratio - 0.5).abs() < 1e-9);
}

#[test]
fn a_variant_that_did_nothing_in_some_rounds_is_not_judged_by_the_others() {
    let mut runs: Vec<Run> =
        (1..=10).flat_map(|n| [run("a", n, 1000.0), run("b", n, 2000.0 + f64::from(n))]).collect();
    for starved in [3, 9, 15] {
        runs[starved].document.bench.figures.iops = 0.0;
    }
    let compare = two(&runs);
    for metric in ["iops", "latency_mean_ns", "cpu_ns_per_io"] {
        let found = of(&compare, metric);
        assert_eq!(found.verdict, "not compared: b did no I/O in 3 of 10 rounds");
        assert_eq!((found.ratio, found.ci99), (None, None));
    }
    assert!(undecided(&compare).is_some_and(|why| why.contains("b did no I/O")));
}

#[test]
fn a_variant_that_failed_in_more_than_a_tenth_of_its_runs_is_not_judged_by_the_others() {
    let failed = |n| {
        let mut run = Run { voided: Some(String::from("failed: status 1")), ..run("b", n, 1.0) };
        run.document.failure = Some(String::from("status 1"));
        run
    };
    // One that was disturbed is made again without a word of it.
    let disturbed = |n| Run { voided: Some(String::from("disturbed")), ..run("b", n, 1.0) };
    let with = |more: Vec<Run>| {
        let noise = |n: u32| 1.0 + f64::from(n % 3) * 0.001;
        let rounds = (1..=10).flat_map(|n| [run("a", n, 1000.0), run("b", n, 500.0 * noise(n))]);
        let compare = two(&rounds.chain(more).collect::<Vec<_>>());
        let [iops, cpu] = ["iops", "cpu_ns_per_io"].map(|metric| of(&compare, metric));
        // More rounds may bring it below the tenth.
        assert_eq!(unsettled(&compare).is_some(), iops.verdict.contains("failed"));
        (iops.verdict.clone(), cpu.verdict.clone())
    };
    assert_eq!(with(vec![failed(3), disturbed(3), disturbed(4)]).0, "b is slower");
    let why = "not compared: b failed in 2 of 12 runs";
    assert_eq!(with(vec![failed(3), failed(7)]), (String::from(why), String::from(why)));
}

#[test]
fn a_jump_of_a_percentile_by_one_bucket_of_its_histogram_is_no_difference() {
    let of_error = |before: u64, after: u64, error: Option<f64>| {
        let runs = (1..=10).flat_map(|n| {
            let [mut a, mut b] = ["a", "b"].map(|name| run(name, n, 1000.0));
            a.document.bench.figures.latency_ns.p50 = before;
            b.document.bench.figures.latency_ns.p50 = after;
            b.document.bench.percentile_error = error;
            a.document.bench.percentile_error = Some(1.0 / 1024.0);
            [a, b]
        });
        two(&runs.collect::<Vec<Run>>())
    };
    // Of documents that do not say how far they are off, which is more than those say that do.
    let compared = |before: u64, after: u64| {
        let compare = of_error(before, after, None);
        let widths = compare.variants[1..].iter().map(|variant| {
            let p50 = variant.latency_p50_ns.expect("it was measured");
            let [low, high] = p50.ci95.expect("ten rounds");
            (high - low) / p50.mean
        });
        assert!(widths.clone().all(|width| (0.003..0.02).contains(&width)), "{before}");
        of(&compare, "latency_p50_ns").clone()
    };
    // Upper bounds of neighbouring buckets: of 2048 ns, and where their width doubles.
    for [before, after] in [[313_343, 315_391], [262_143, 264_191], [524_287, 528_383]] {
        for (before, after) in [(before, after), (after, before)] {
            let found = compared(before, after);
            assert_eq!(found.verdict, SAME, "{before} {after}: {found:?}");
            assert!(found.min_detectable_effect.is_some_and(|least| least > 0.003));
        }
    }
    assert_eq!(compared(313_343, 317_439).verdict, "b is slower", "by two");
    let fine = |after: u64| of_error(313_343, after, Some(1.0 / 1024.0));
    assert_eq!(of(&fine(313_599), "latency_p50_ns").verdict, SAME, "by one of 256 ns");
    assert_eq!(of(&fine(313_900), "latency_p50_ns").verdict, "b is slower", "by two of them");
}

#[test]
fn an_interval_beyond_all_numbers_is_left_out() {
    let runs: Vec<Run> = (1..=4)
        .flat_map(|n| {
            let far = if n % 2 == 0 { 1e-290 } else { 1e290 };
            [run("a", n, 1.0), run("b", n, far)]
        })
        .collect();
    let compare = two(&runs);
    let text = serde_json::to_string(&compare).expect("JSON");
    let read: Compare = serde_json::from_str(&text).expect("what is written can be read");
    assert_eq!(of(&read, "iops").ci99, None, "{text}");
    assert_eq!(of(&read, "iops").verdict, "not compared: too few rounds for 99 % (4)");
}

fn three(runs: &[Run]) -> Compare {
    let variants = ["a", "b", "c"].map(|name| (String::from(name), serde_json::json!({})));
    summary(&variants, runs, CompareEnvironment::default(), Judging::default())
}

#[test]
fn of_three_variants_means_and_ratios_are_of_the_same_rounds() {
    let mut runs: Vec<Run> =
        (1..=9).flat_map(|n| ["a", "b", "c"].map(|name| run(name, n, 1000.0))).collect();
    // The tenth of c was voided: a and b are paired in it, a and c are not.
    runs.extend([run("a", 10, 2000.0), run("b", 10, 4000.0)]);
    runs.push(Run { voided: Some(String::from("disturbed")), ..run("c", 10, 1.0) });
    let compare = three(&runs);
    for found in compare.comparisons.iter().filter(|found| found.metric == "iops") {
        let mean = |name: &str| {
            compare.variants.iter().find(|v| v.name == name).expect("a variant").iops.mean
        };
        let ratio = found.ratio.expect("a ratio");
        let of_means = mean(&found.b) / mean(&found.a);
        assert!((ratio - of_means).abs() < 1e-9, "{ratio} and {of_means}: {found:?}");
    }
    // One that never counts takes no rounds from the others.
    let absent = |run: &mut Run| run.voided = Some(String::from("failed"));
    runs.iter_mut().filter(|run| run.variant == "c").for_each(absent);
    let compare = three(&runs);
    assert_eq!(compare.variants[1].iops.mean, 1300.0);
    assert!(of(&compare, "iops").ratio.is_some_and(|ratio| ratio > 1.05));
}

#[test]
fn work_that_ends_is_compared_by_the_time_it_took_and_by_its_throughput_not_again() {
    let done = |name: &str, round: u32, ms: u64| {
        let mut run = run(name, round, 1e6 / ms as f64);
        run.document.bench.makespan_ns = Some(ms * 1_000_000);
        run
    };
    let mut runs: Vec<Run> = (1..=10)
        .flat_map(|n| [done("a", n, 1000), done("b", n, 1200 + u64::from(n % 3))])
        .collect();
    let compare = two(&runs);
    assert_eq!(of(&compare, MAKESPAN).verdict, "b is slower");
    assert!(!compare.comparisons.iter().any(|found| found.metric == "iops"));
    assert_eq!(compare.variants[0].iops.mean, 1000.0, "it is shown all the same");
    assert_eq!(compare.variants[0].makespan_ns.map(|e| e.mean), Some(1e9));
    // Where time was up first for one, throughput is what there is to be compared.
    runs[7].document.bench.makespan_ns = None;
    let compare = two(&runs);
    assert_eq!(of(&compare, "iops").verdict, "b is slower");
    assert_eq!(compare.variants[0].makespan_ns.map(|e| e.mean), Some(1e9));
}

#[test]
fn every_pair_of_three_is_compared() {
    let runs: Vec<Run> =
        ["a", "b", "c"].iter().flat_map(|name| [run(name, 1, 7.0), run(name, 2, 7.0)]).collect();
    let compare = three(&runs);
    let pairs: Vec<_> = compare.comparisons.iter().filter(|c| c.metric == "iops").collect();
    let pairs: Vec<_> = pairs.iter().map(|c| (c.a.as_str(), c.b.as_str())).collect();
    assert_eq!(pairs, [("a", "b"), ("a", "c"), ("b", "c")]);
}

/// Rounds of several variants in an order and its reverse, of which the second run of each has
/// `second` of what it had; the values vary by a few parts in a thousand.
fn in_turn(names: &[&str], rounds: u32, second: f64, looks: Looks) -> Compare {
    let noise =
        |round: u32, name: usize| 1.0 + f64::from((round * 7 + name as u32 * 5) % 11) * 1e-3;
    let mut runs = Vec::new();
    for round in 1..=rounds {
        let mut order: Vec<usize> = (0..names.len()).collect();
        if round % 2 == 0 {
            order.reverse();
        }
        for (place, name) in order.into_iter().enumerate() {
            let iops = 1000.0 * noise(round, name) * second.powi(place as i32);
            runs.push(run(names[name], round, iops));
        }
    }
    let variants: Vec<(String, serde_json::Value)> =
        names.iter().map(|name| (String::from(*name), serde_json::json!({}))).collect();
    let judging = Judging { looks, ..Judging::default() };
    summary(&variants, &runs, CompareEnvironment::default(), judging)
}

fn width(found: &Comparison) -> f64 {
    let [low, high] = found.ci99.expect("an interval");
    (high / low).ln()
}

#[test]
fn the_primary_metric_has_an_interval_of_its_own_and_the_others_hold_together() {
    let compare = in_turn(&["a", "b"], 10, 1.0, Looks::Once);
    // The one is the other inverted, and three others were measured.
    let [primary, other] = ["iops", "latency_mean_ns"].map(|name| width(of(&compare, name)));
    assert!(other > primary * 1.2, "{primary} {other}");
    let primary_of_three = width(of(&in_turn(&["a", "b", "c"], 10, 1.0, Looks::Once), "iops"));
    assert!(primary_of_three > primary * 1.2, "{primary} {primary_of_three}: of three pairs");
}

#[test]
fn an_interval_for_any_time_is_wider_and_said_to_be_one() {
    let [once, any] =
        [Looks::Once, Looks::AnyTime].map(|looks| in_turn(&["a", "b"], 20, 1.0, looks));
    assert_eq!((once.inference, any.inference), (Inference::Fixed, Inference::Anytime));
    assert!(width(of(&any, "iops")) > width(of(&once, "iops")) * 1.2);
}

#[test]
fn what_the_order_does_is_told_and_is_not_in_the_ratio() {
    let plain = in_turn(&["a", "b"], 10, 1.0, Looks::Once);
    assert_eq!(of(&plain, "iops").second_run, None, "it does nothing");
    let compare = in_turn(&["a", "b"], 10, 0.8, Looks::Once);
    let iops = of(&compare, "iops");
    let second = iops.second_run.expect("it is known");
    assert!((second.mean - 0.8).abs() < 0.01, "{second:?}");
    let [ratio, expected] = [iops, of(&plain, "iops")].map(|found| found.ratio.expect("a ratio"));
    assert!((ratio / expected - 1.0).abs() < 0.001, "{ratio} {expected}");
    assert!((width(iops) / width(of(&plain, "iops")) - 1.0).abs() < 0.3, "it is no noise either");
    assert_eq!(iops.verdict, SAME);
    // In an odd number of rounds one of the two was first more often.
    for count in [10, 11] {
        let compare = in_turn(&["a", "b"], count, 0.8, Looks::Once);
        let [a, b] = [0, 1].map(|n| compare.variants[n].iops.gmean.expect("a mean"));
        let ratio = of(&compare, "iops").ratio.expect("a ratio");
        assert!((b / a / ratio - 1.0).abs() < 1e-9, "{count} rounds: {a} {b} {ratio}");
    }
}

#[test]
fn what_is_not_settled_is_what_more_rounds_may_decide() {
    let settled = |compare: &Compare| unsettled(compare).is_none();
    assert!(settled(&apart(0.9, Judging::default())));
    assert!(!settled(&in_turn(&["a", "b"], 10, 1.0, Looks::Once)));
    assert!(settled(&apart(1.0, Judging { within: Some(0.05), ..Judging::default() })));
    let few = two(&[run("a", 1, 1000.0), run("b", 1, 4000.0)]);
    assert!(!settled(&few), "too few rounds");
    let idle: Vec<Run> = (1..=6).flat_map(|n| [run("a", n, 1000.0), run("b", n, 0.0)]).collect();
    assert!(settled(&two(&idle)), "no round changes that one did nothing");
    let three = in_turn(&["a", "b", "c"], 10, 1.0, Looks::Once);
    let open = unsettled(&three).expect("no two differ");
    assert_eq!((open.a.as_str(), open.b.as_str()), ("a", "b"));
    let said = super::super::table::so_far(&three, &|name| String::from(name));
    assert!(said.starts_with("b / a +") || said.starts_with("b / a -"), "{said}");
}

#[test]
fn what_is_asked_after_each_round_is_what_the_whole_says_by_the_primary_metric() {
    let runs: Vec<Run> = (1..=9)
        .flat_map(|n| [run("a", n, 1000.0), run("b", n, 900.0 + f64::from(n)), run("c", n, 1e3)])
        .collect();
    let names = ["a", "b", "c"];
    let variants = names.map(|name| (String::from(name), serde_json::json!({})));
    let judging = Judging { looks: Looks::AnyTime, ..Judging::default() };
    let all = summary(&variants, &runs, CompareEnvironment::default(), judging);
    let asked = primary(&names, &runs, judging);
    let without = |found: &Comparison| Comparison { min_detectable_effect: None, ..found.clone() };
    let of_primary: Vec<Comparison> = by_primary(&all).map(without).collect();
    assert_eq!((asked.comparisons.len(), &asked.comparisons), (3, &of_primary));
    assert_eq!((&asked.metric, asked.inference), (&all.metric, Inference::Anytime));
    let told = verdicts(&names, &runs, judging);
    let of_all: Vec<Comparison> = all.comparisons.iter().map(without).collect();
    assert_eq!((&told.comparisons, told.metric), (&of_all, all.metric));
    assert!(all.comparisons.iter().any(|found| found.min_detectable_effect.is_some()));
}

/// A run whose reads and writes have a rate and a latency each.
fn mixed(variant: &str, round: u32, [reads, writes]: [f64; 2]) -> Run {
    let mut run = run(variant, round, reads + writes);
    let group = |op: &str, iops: f64| {
        let mut group = weir_trace::document::Group { op: op.into(), ..Default::default() };
        (group.figures.ios, group.figures.iops) = (iops as u64, iops);
        group.figures.latency_ns.mean = if iops > 0.0 { 1e9 / iops } else { 0.0 };
        group
    };
    run.document.bench.groups = vec![group("read", reads), group("write", writes)];
    run
}

/// Ten rounds of two variants, with these rates of their reads and writes.
fn of_kinds(kinds: impl Fn(&str, u32) -> [f64; 2]) -> Compare {
    let one = |name: &str, round: u32| {
        let noise = 1.0 + f64::from((round + u32::from(name == "b")) % 3) * 0.001;
        mixed(name, round, kinds(name, round).map(|rate| rate * noise))
    };
    two(&(1..=10).flat_map(|n| ["a", "b"].map(|name| one(name, n))).collect::<Vec<Run>>())
}

#[test]
fn reads_and_writes_are_told_apart_where_a_job_has_both() {
    // What one kind gains the other loses.
    let compare = of_kinds(|name, _| if name == "a" { [500.0, 500.0] } else { [800.0, 200.0] });
    assert_eq!(of(&compare, "iops").verdict, SAME);
    assert_eq!(of(&compare, "read_iops").verdict, "b is faster");
    assert_eq!(of(&compare, "write_iops").verdict, "b is slower");
    assert_eq!(of(&compare, "write_latency_mean_ns").verdict, "b is slower");
    let read = compare.variants[1].of_one_kind["read_iops"];
    assert!((read.mean - 800.0).abs() < 2.0, "{read:?}");
    // Of one kind alone the figures of all I/O are that kind's.
    let compare = of_kinds(|_, _| [500.0, 0.0]);
    let names: Vec<&str> = compare.comparisons.iter().map(|c| c.metric.as_str()).collect();
    assert!(names.iter().all(|name| !name.starts_with("read_") && !name.contains("write")));
    assert!(compare.variants[0].of_one_kind.is_empty());
}

#[test]
fn more_metrics_widen_the_others_intervals_and_not_that_of_the_primary_one() {
    let mix = of_kinds(|_, _| [500.0, 500.0]);
    let one = of_kinds(|_, _| [1000.0, 0.0]);
    let ratio = |name: &str| width(of(&mix, name)) / width(of(&one, name));
    assert!((ratio("iops") - 1.0).abs() < 1e-9, "{}", ratio("iops"));
    // Four others of one, ten of the other.
    assert!((1.1..1.5).contains(&ratio("latency_mean_ns")), "{}", ratio("latency_mean_ns"));
}

#[test]
fn a_kind_that_starved_in_some_rounds_is_not_judged_by_the_others() {
    let compare =
        of_kinds(|name, n| if name == "b" && n > 6 { [1000.0, 0.0] } else { [500.0, 500.0] });
    for metric in ["write_iops", "write_latency_mean_ns"] {
        let found = of(&compare, metric);
        assert_eq!(found.verdict, "not compared: b did no write in 4 of 10 rounds");
    }
    assert!(is_decided(of(&compare, "iops")) && is_decided(of(&compare, "read_iops")));
}
