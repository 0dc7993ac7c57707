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

fn within_its_bounds(name: &str, figures: usize) {
    let scene = scene::find(name).expect("a scene");
    let checked =
        scene.check(&rows(name, &[], 1)).expect("each figure of the source has one of ours");
    let checked: Vec<_> = checked.iter().filter(|one| one.source.is_some()).collect();
    assert_eq!(checked.len(), figures, "each of the source's figures has one of ours");
    let off: Vec<_> = checked.iter().filter(|one| one.is_within() != Some(true)).collect();
    assert!(off.is_empty(), "{off:#?}");
}

#[test]
fn the_rows_of_the_illumos_issue_are_within_their_bounds() {
    within_its_bounds("illumos-11827", 24);
}

#[test]
fn the_points_of_the_icpe_table_and_both_peaks_are_within_their_bounds() {
    within_its_bounds("icpe24", 30);
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
    assert_eq!(why, "no scene \"no-such\"; there are illumos-11827, icpe24");
}

#[test]
fn a_figure_of_the_source_that_no_case_gives_is_named() {
    let set = ["scheduler=none", "processes=1"];
    let why = scene::find("icpe24").expect("a scene").check(&rows("icpe24", &set, 1));
    let why = why.expect_err("most are missing").to_string();
    assert_eq!(why, "icpe24: no case gives iops of scheduler=none processes=2 ssds=1");
}
