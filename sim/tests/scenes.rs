//! Each scene: its source's figures within their bounds, and what its settings do.

use weir_sim::scene::{self, Outcome, Row};

fn rows(name: &str, set: &[&str], seed: u64) -> Vec<Row> {
    let scene = scene::find(name).expect("a scene");
    let mut settings = scene.defaults();
    set.iter().for_each(|text| settings.set(text).expect("a setting"));
    let cases = scene.cases(&settings, seed).expect("cases");
    let outcomes: Vec<Outcome> = cases.iter().map(|case| case.run().expect("a case")).collect();
    scene.rows(&outcomes)
}

fn value(rows: &[Row], metric: &str) -> f64 {
    rows.iter().find(|row| row.metric == metric).expect(metric).value
}

/// All of a scene's figures are there, and those that are off are the ones that are known to be.
fn within_its_bounds(name: &str, figures: usize, missed: usize) {
    within_its_bounds_with(name, &[], figures, missed);
}

fn within_its_bounds_with(name: &str, set: &[&str], figures: usize, missed: usize) {
    let scene = scene::find(name).expect("a scene");
    let checked =
        scene.check(&rows(name, set, 1)).expect("each figure of the source has one of ours");
    let checked: Vec<_> = checked.iter().filter(|one| one.source.is_some()).collect();
    assert_eq!(checked.len(), figures, "each of the source's figures has one of ours");
    let off: Vec<_> = checked.iter().filter(|one| one.is_off()).collect();
    assert!(off.is_empty(), "{off:#?}");
    let known = checked.iter().filter(|one| one.source.is_some_and(|source| source.missed));
    let known: Vec<_> = known.collect();
    assert_eq!(known.len(), missed);
    assert!(
        known.iter().all(|one| one.is_within() == Some(false)),
        "one is off no more: {known:#?}"
    );
}

#[test]
fn the_rows_of_the_illumos_issue_are_within_their_bounds() {
    within_its_bounds("illumos-11827", 24, 0);
}

#[test]
fn the_points_of_the_icpe_table_and_both_peaks_are_within_their_bounds() {
    within_its_bounds("icpe24", 30, 0);
}

#[test]
fn the_outcomes_of_linux_are_within_their_bounds() {
    within_its_bounds("linux-outcomes", 46, 0);
}

#[test]
fn the_bands_of_the_dd_experiment_hold() {
    within_its_bounds("suse-dd32", 11, 0);
    // With the depth of the disk on which `weir bench dd32` runs without a target.
    within_its_bounds_with("suse-dd32", &["depth=2"], 11, 0);
}

#[test]
fn the_figures_of_the_oracle_test_are_within_their_bounds_but_for_three_that_are_known() {
    within_its_bounds("dell-slob", 17, 3);
}

#[test]
fn both_figures_of_the_lustre_server_are_within_their_bounds() {
    within_its_bounds("lustre-scsi-mq", 2, 0);
}

#[test]
fn the_paths_of_a_lustre_server_differ_by_locks_alone_and_not_where_the_links_are_full() {
    let of = |size: &str| rows("lustre-scsi-mq", &["writers=72", size], 1);
    let mode = |rows: &[Row], mode: &str, metric: &str| {
        let is_it = |row: &&Row| row.metric == metric && row.case.ends_with(mode);
        rows.iter().find(is_it).expect(metric).value
    };
    let small = of("size_kib=4");
    assert!(mode(&small, "mode=legacy", "lock_wait_pct") > 20.0, "{small:#?}");
    assert_eq!(mode(&small, "mode=mq", "lock_wait_pct"), 0.0, "{small:#?}");
    let large = of("size_kib=1024");
    let less = value(&large, "write_latency_reduction_pct");
    assert!(less.abs() < 1.0, "{large:#?}");
}

#[test]
fn a_parameter_of_scsi_changes_nothing_before_an_mmc_device() {
    within_its_bounds("x205ta-hdparm", 3, 0);
    let rows = rows("x205ta-hdparm", &[], 1);
    let of = |case: &str| -> Vec<(&str, f64)> {
        let ours = rows.iter().filter(|row| row.case == case);
        ours.map(|row| (row.metric, row.value)).collect()
    };
    assert!(of("use_blk_mq=0").len() == 3 && of("use_blk_mq=0") == of("use_blk_mq=1"), "{rows:?}");
    assert_eq!(value(&rows, "buffered_gain_pct"), 0.0);
    // What was fitted is there.
    assert!((value(&rows, "buffered_mib_s") / 108.51 - 1.0).abs() < 0.005, "{rows:?}");
}

#[test]
fn nothing_but_locks_is_waited_for_longer_on_the_legacy_path_of_the_oracle_test() {
    let of = |mode: &str| {
        let set = ["servers=1", "hit=6", "processes=160", "volumes=4", "paths=4", mode];
        let rows = rows("dell-slob", &set, 1);
        (value(&rows, "lock_wait_pct"), value(&rows, "iops"))
    };
    let ((waited, legacy), (none, mq)) = (of("mode=legacy"), of("mode=mq"));
    assert!(waited > 5.0 && none == 0.0 && legacy < mq, "{waited} {none} {legacy} {mq}");
}

#[test]
fn a_scenario_of_linux_can_have_another_scheduler() {
    let cases = |set: &[&str]| -> Vec<String> {
        let scene = scene::find("linux-outcomes").expect("a scene");
        let mut settings = scene.defaults();
        set.iter().for_each(|text| settings.set(text).expect("a setting"));
        let cases = scene.cases(&settings, 1).expect("cases");
        cases.into_iter().map(|case| case.name).collect()
    };
    let of = cases(&["scenario=writers-32", "scheduler=kyber,source,bfq"]);
    let bfq = ["bfq low_latency=1", "bfq low_latency=0"];
    let expected = [&["kyber"], &bfq[..]].concat();
    let expected = expected.iter().map(|name| format!("scenario=writers-32 scheduler={name}"));
    assert_eq!(of, expected.collect::<Vec<_>>());
    let flushes = cases(&["scenario=flushes", "writers=2", "scheduler=mq-deadline"]);
    assert_eq!(flushes, ["scenario=flushes scheduler=mq-deadline writers=2"]);
    let iops = |scheduler: &str| {
        let set = ["scenario=groups", scheduler];
        let rows = rows("linux-outcomes", &set, 1);
        value(&rows, "heavy_iops") / value(&rows, "light_iops")
    };
    // Only bfq knows weights.
    assert!(iops("scheduler=bfq") > 3.5 && iops("scheduler=mq-deadline") < 1.1);
}

#[test]
fn writers_end_one_after_the_other_where_cfq_favours_none_that_waits() {
    let variation = |level| value(&rows("suse-dd32", &[level], 1), "variation");
    let (on, off) = (variation("low_latency=1"), variation("low_latency=0"));
    assert!(off > 2.0 * on, "{on} {off}");
    let rows = rows("suse-dd32", &["writers=8", "mib=4", "scheduler=deadline,noop"], 1);
    let cases: Vec<&str> = rows.iter().map(|row| row.case.as_str()).collect();
    assert!(cases.contains(&"scheduler=noop writers=8"), "no low_latency there: {cases:?}");
    // 32 MiB at 104 MB/s.
    let ends = rows.iter().filter(|row| row.metric == "makespan_s");
    assert!(ends.clone().count() == 2 && ends.clone().all(|row| row.value > 0.32), "{rows:?}");
}

#[test]
fn a_third_of_the_points_of_the_icpe_table_and_none_of_the_illumos_issue_is_predicted() {
    let predicted = |scene: &scene::Scene| {
        let predicted = scene.sources.iter().filter(|source| !source.fitted);
        (predicted.count(), scene.sources.len())
    };
    let [illumos, icpe] =
        ["illumos-11827", "icpe24"].map(|name| predicted(scene::find(name).expect("a scene")));
    assert_eq!(illumos, (0, 24));
    assert!(3 * icpe.0 >= icpe.1, "{icpe:?}");
    let dell = predicted(scene::find("dell-slob").expect("a scene"));
    assert!(3 * dell.0 >= dell.1, "{dell:?}");
    let linux = predicted(scene::find("linux-outcomes").expect("a scene"));
    assert_eq!(linux.0, linux.1, "nothing is fitted there");
    assert_eq!(predicted(scene::find("suse-dd32").expect("a scene")), (2, 11));
}

#[test]
fn the_only_difference_between_before_and_after_is_the_number_of_queues() {
    let rows = rows("illumos-11827", &["threads=16", "queues_before=4", "queues_after=4"], 1);
    let of = |kind: &str| -> Vec<(&str, f64)> {
        let ours = rows.iter().filter(|row| row.case.starts_with(kind));
        ours.map(|row| (row.metric, row.value)).collect()
    };
    assert!(of("before").len() == 3 && of("before") == of("after"), "{rows:?}");
}

#[test]
fn more_disks_carry_more_until_the_cores_are_busy() {
    let iops = |ssds: &str| {
        let set = ["scheduler=none", "processes=4", ssds];
        value(&rows("icpe24", &set, 1), "iops")
    };
    let (one, two, eight) = (iops("ssds=1"), iops("ssds=2"), iops("ssds=8"));
    assert!(two > 1.8 * one, "{one} {two}");
    // Four cores with 2.62 us of work for each read.
    assert!(eight < 4.0 / 2.4e-6, "{eight}");
}

#[test]
fn a_lock_for_each_disk_is_waited_for_less_than_one_for_all_the_same_work() {
    let wait = |ssds: &str| {
        let set = ["scheduler=mq-deadline", "processes=8", ssds];
        value(&rows("icpe24", &set, 1), "lock_wait_pct")
    };
    let (one, four) = (wait("ssds=1"), wait("ssds=4"));
    assert!(four < one / 2.0, "{one} {four}");
}

#[test]
fn a_name_that_is_none_is_refused_with_those_that_are() {
    let why = scene::find("no-such").expect_err("none").to_string();
    assert_eq!(
        why,
        "no scene \"no-such\"; there are illumos-11827, icpe24, dell-slob, lustre-scsi-mq, \
         linux-outcomes, suse-dd32, x205ta-hdparm"
    );
}

#[test]
fn a_figure_of_the_source_that_no_case_gives_is_named() {
    let set = ["scheduler=none", "processes=1"];
    let why = scene::find("icpe24").expect("a scene").check(&rows("icpe24", &set, 1));
    let why = why.expect_err("most are missing").to_string();
    assert_eq!(why, "icpe24: no case gives iops of scheduler=none processes=2 ssds=1");
}
