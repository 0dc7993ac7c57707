//! `weir compare --sim`: variants of a scene over seeds, with the verdicts, files and exit statuses
//! of any other comparison.

#![forbid(unsafe_code)]

mod daemon;

use daemon::program::{Ended, Running};
use daemon::{Folder, weir};
use serde_json::Value;

/// A scene, two of its variants, and a seed.
const PAIR: &[&str] = &[
    "--sim=icpe24",
    "--set=processes=2",
    "--set=cores=2",
    "--a=scheduler=none",
    "--b=scheduler=bfq",
    "--rounds=3",
    "--randseed=7",
];

fn compare(folder: &Folder, arguments: &[&str]) -> Ended {
    let mut command = weir(folder);
    command.arg("compare").args(arguments);
    Running::start(command).end()
}

/// The document of a comparison that is made.
#[track_caller]
fn document(folder: &Folder, arguments: &[&str]) -> Value {
    let Ended { code, stdout, stderr } = compare(folder, &[arguments, &["--json"]].concat());
    assert_eq!(code, Some(0), "{arguments:?}\n{stdout}\n{stderr}");
    serde_json::from_str(&stdout).expect("one document")
}

#[track_caller]
fn refused(arguments: &[&str]) -> String {
    let folder = Folder::new();
    let Ended { code, stdout, stderr } = compare(&folder, arguments);
    assert_eq!((code, stdout.as_str()), (Some(2), ""), "{arguments:?}: {stderr}");
    assert!(!folder.path().join("weir-data").exists(), "nothing is left: {arguments:?}");
    stderr
}

#[test]
fn variants_of_a_scene_are_compared_over_seeds_and_the_same_seed_gives_the_same_figures() {
    let folder = Folder::new();
    let strip = |mut document: Value| {
        let fields = document["environment"].as_object_mut().expect("an object");
        assert!(fields.remove("wall_s").and_then(|s| s.as_f64()).is_some_and(|s| s > 0.0));
        document
    };
    let first = strip(document(&folder, PAIR));
    let of = |name: &str| {
        let mut all = first["variants"].as_array().expect("variants").iter();
        all.find(|one| one["name"] == name).expect("it is there").clone()
    };
    assert_eq!(of("a")["options"], serde_json::json!({"scheduler": "none"}));
    for name in ["a", "b"] {
        let rounds = of(name)["rounds"].clone();
        let rounds = rounds.as_array().expect("rounds");
        let seeds: Vec<u64> = rounds.iter().filter_map(|round| round["seed"].as_u64()).collect();
        assert!(seeds.len() == 3 && seeds[0] != seeds[1], "a seed for each round: {seeds:?}");
        for round in rounds {
            let field = |name: &str| round[name].as_f64().expect(name);
            let time = field("duration_s");
            assert!((field("ios") / time - field("iops")).abs() < 1.0, "{round}");
            assert!(round["cpu"]["ns_per_io"].as_f64().is_some_and(|ns| ns > 0.0), "{round}");
            let mean = |what: &str| round[what]["mean"].as_f64().expect(what);
            let parts = mean("queue_wait_ns") + mean("device_ns");
            assert!(parts > 0.0 && parts <= mean("latency_ns"), "{round}");
        }
    }
    let verdict = |metric: &str| {
        let all = first["comparisons"].as_array().expect("comparisons");
        all.iter().find(|one| one["metric"] == metric).expect(metric)["verdict"].clone()
    };
    assert_eq!(verdict("iops"), "b is slower");
    assert_eq!(verdict("cpu_ns_per_io"), "b takes more CPU");
    assert_eq!(strip(document(&folder, PAIR)), first);
    let (seed, rest) = PAIR.split_last().expect("flags");
    assert_eq!(*seed, "--randseed=7");
    let other = document(&folder, &[rest, &["--randseed=8"]].concat());
    let iops = |document: &Value| document["variants"][0]["rounds"][0]["iops"].clone();
    assert_ne!(iops(&other), iops(&first));
}

#[test]
fn without_variants_each_case_of_the_settings_is_one_and_a_sweep_is_over_a_setting() {
    let folder = Folder::new();
    let words = ["--sim=icpe24", "--set=processes=1", "--set=scheduler=none,bfq", "--rounds=3"];
    let swept = document(&folder, &[&words[..], &["--sweep=cores=1,2"]].concat());
    assert_eq!(swept["sweep"], "cores");
    let points = swept["points"].as_array().expect("points");
    assert_eq!(points.iter().map(|one| &one["value"]).collect::<Vec<_>>(), ["1", "2"]);
    for (point, cpus) in points.iter().zip([1, 2]) {
        let compare = &point["compare"];
        assert_eq!(compare["environment"]["cpus"], cpus, "the simulated host's");
        let options = |at: usize| compare["variants"][at]["options"]["scheduler"].clone();
        assert_eq!([options(0), options(1)], ["none", "bfq"]);
    }
    let files = std::fs::read_dir(folder.path().join("weir-data")).expect("a folder");
    let kinds: Vec<String> = files
        .filter_map(|file| Some(file.ok()?.path().extension()?.to_str()?.to_owned()))
        .collect();
    assert!(["json", "html"].iter().all(|kind| kinds.iter().any(|one| one == kind)), "{kinds:?}");
}

#[test]
fn a_failure_is_what_fail_if_says_and_equal_variants_do_not_differ() {
    let folder = Folder::new();
    let slower = compare(&folder, &[PAIR, &["--fail-if=slower"]].concat());
    assert_eq!(slower.code, Some(1), "{}", slower.stderr);
    let same = ["--sim=icpe24", "--set=processes=1", "--a=cores=2", "--b=cores=2", "--rounds=3"];
    assert!(refused(&[&same[..], &["--set=scheduler=none"]].concat()).contains("are the same"));
    let all = [&same[..], &["--set=scheduler=none", "--same", "--fail-if=different"]].concat();
    let Ended { code, stdout, stderr } = compare(&folder, &all);
    assert_eq!(code, Some(0), "{stdout}\n{stderr}");
    assert!(stdout.contains("nothing measurably faster"), "{stdout}");
    assert!(stdout.contains("simulated: the intervals are over seeds"), "{stdout}");
    // All variants of a round have one seed: what is the same has the same figures.
    let twice = document(&folder, &[&same[..], &["--set=scheduler=none", "--same"]].concat());
    let figures = |at: usize| {
        let mut rounds = twice["variants"][at]["rounds"].clone();
        for round in rounds.as_array_mut().expect("rounds") {
            assert!(round["ios"].as_u64().is_some_and(|ios| ios > 0));
            round["options"].take();
        }
        rounds
    };
    assert_eq!(figures(0), figures(1));
}

#[test]
fn i_o_that_fails_is_told_and_makes_no_variant_faster() {
    let folder = Folder::new();
    let file = folder.path().join("host.toml");
    let text = "[host]\nprofile = \"broadwell-2sock-4.1\"\n[disk]\npreset = \"powermax-8000\"\n\
        [path]\ncount = 2\nfault_paths = 2\nfault_from = \"15ms\"\n[process.readers]\n\
        [run]\ntime = \"20ms\"\n";
    std::fs::write(&file, text).expect("a file");
    let sim = format!("--sim={}", file.display());
    let words = [&*sim, "--a=path.fault=none", "--b=path.fault=lost", "--rounds=3"];
    let compared = document(&folder, &words);
    let variant = |at: usize| compared["variants"][at]["rounds"][0].clone();
    let [well, lost] = [0, 1].map(variant);
    assert_eq!(well["errors"], 0);
    assert!(lost["errors"].as_u64().is_some_and(|errors| errors > 0), "{lost}");
    assert!(lost["ios"].as_u64() < well["ios"].as_u64(), "{lost}\n{well}");
    let all = compared["comparisons"].as_array().expect("comparisons");
    let iops = all.iter().find(|one| one["metric"] == "iops").expect("a verdict");
    assert_eq!(iops["verdict"], "b is slower");
    let stdout = compare(&folder, &words).stdout;
    assert!(stdout.contains("note: b: I/Os failed: errors has how many"), "{stdout}");
}

#[test]
fn what_cannot_be_simulated_is_refused_before_anything_is() {
    let with = |more: &[&str]| refused(&[&["--sim=icpe24"], more].concat());
    assert!(with(&[]).contains("(28 cases), and 2 to 8 cases can be compared"));
    assert!(with(&["--a=scheduler=none"]).contains("--a alone has nothing to be compared with"));
    let several = with(&["--a=scheduler=none", "--b=scheduler=bfq"]);
    assert!(several.contains("the settings come to 7 cases, and a variant is one"), "{several}");
    let value = with(&["--set=processes=1", "--a=cores=0", "--b=cores=2"]);
    assert!(value.contains("--a cores=0: cores=0 is outside 1..=64"), "{value}");
    let job = with(&["--rw=read"]);
    assert!(job.contains("--rw beside --sim"), "{job}");
    assert!(with(&["--runtime=2s"]).contains("--runtime beside --sim"));
    assert!(with(&["--users=2"]).contains("--users beside --sim"));
    let pair = ["--set=processes=1", "--set=scheduler=none,bfq"];
    let metric = |name: &str| with(&[&pair[..], &[&format!("--metric={name}")]].concat());
    assert!(metric("commits_per_s").contains("no simulated process commits"));
    assert!(metric("makespan_ns").contains("the case does not end by itself"));
    assert!(with(&["--target=ram:1MiB"]).contains("cannot be used with"));
    assert!(refused(&["--set=processes=1"]).contains("--sim"));
    assert!(refused(&["--sim=no-such"]).contains("no scene \"no-such\"; there are illumos-11827"));
    let sweep = with(&["--set=processes=1", "--set=scheduler=none,bfq", "--sweep=disks=1,2"]);
    assert!(sweep.contains("no setting \"disks\""), "{sweep}");
}
