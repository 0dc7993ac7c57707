use weir_map::multipath::table::Policy;
use weir_queue::QueueMode;

use super::*;
use crate::scene::Bounds;
use crate::spec::{PortFault, PortFaultKind, Ports};

const TEXT: &str = r#"about = "readers beside a writer"

[host]
cores = [2, 4]

[disk.model]
depth = 8
[disk.model.fixed]
units = 8
latency = "100us"

[queue]
scheduler = ["none", "bfq"]
tunables.low_latency = 0

[process.readers]
count = 2
depth = 4

[process.writer]
access = "sequential"
direction = "write"
size = "64KiB"
bytes = "1MiB"
group = "batch"

[weights]
batch = 50

[run]
warm_up = "0"
time = "5ms"
"#;

#[test]
fn each_host_that_the_documents_show_can_be_simulated() {
    let shown = include_str!("../../../../docs/fidelity.md").split("```toml\n").skip(1);
    let shown = shown.filter_map(|rest| rest.split("```").next());
    let examples = [include_str!("../../../../examples/san.toml")];
    let hosts: Vec<&str> = shown.filter(|text| text.contains("[host]")).chain(examples).collect();
    assert_eq!(hosts.len(), 4, "three are shown, and one is an example");
    for text in hosts {
        let custom = Custom::parse(text, "host.toml").unwrap_or_else(|why| panic!("{why}\n{text}"));
        let cases = custom.cases(1).unwrap_or_else(|why| panic!("{why}\n{text}"));
        let first = cases.into_iter().next().expect("a case");
        let host = crate::host::Host::new(first.host).unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(host.finish(), 0, "nothing was begun");
    }
}

#[test]
fn what_would_be_ignored_or_cannot_be_told_apart_is_refused() {
    let host = |more: &str| {
        let text = format!("{more}\n[process.r]\n");
        let read = Custom::parse(&text, "host.toml").map(|custom| custom.cases(1).map(drop));
        read.and_then(|cases| cases).expect_err(&text).to_string()
    };
    let paths = host("[path]\nmode = \"sq\"");
    assert_eq!(paths, "all: path.mode=sq without path.count: there are no paths");
    let cores = host("[host]\nsockets = 2\ncores = 200");
    assert_eq!(cores, "all: processors=400 is outside 1..=256");
    let deep = host(
        "[host]\nprofile = \"broadwell-2sock-4.1\"\n[disk]\ncount = 512\ndepth = 10240\n\
         [path]\ncount = 64\ndepth = 10240",
    );
    assert!(
        deep.starts_with("all: hard queues * depth=") && deep.ends_with("1..=67108864"),
        "{deep}"
    );
    for name in ["a b", "a=b", "", "a\\n"] {
        let why = host(&format!("[process.\"{name}\"]"));
        assert!(why.contains("letters, digits, - and _ are a name"), "{name:?}: {why}");
    }
}

fn refused(text: &str) -> String {
    let custom = Custom::parse(text, "host.toml").expect(text);
    custom.cases(1).expect_err(text).to_string()
}

#[test]
fn paths_and_several_hosts_need_a_profile_that_has_prices_for_them_which_is_named() {
    for over in ["[path]\ncount = 4\n", "[host]\ncount = 2\n"] {
        let why = refused(&format!("{over}[process.r]\n"));
        assert_eq!(
            why,
            "all: host.profile=cascade-1sock-6.3 has no prices for paths; there are \
             broadwell-2sock-4.1"
        );
    }
    let told = row_of("path.count").expect("a setting").meaning;
    for profile in crate::profile::Profile::with_paths() {
        assert!(told.contains(profile), "{profile} is not in the list: {told}");
    }
}

#[test]
fn weights_of_groups_without_processes_and_levels_without_a_class_are_refused() {
    let of = |more: &str| format!("[process.r]\ngroup = \"a/b\"\n{more}");
    let weight = refused(&of("[weights]\nb = 50\n"));
    assert_eq!(
        weight,
        "weights.b: no processes are in the group \"b\" or one below it (process.NAME.group)"
    );
    assert!(refused(&of("[weights]\n\"a/b/c\" = 50\n")).starts_with("weights.a/b/c: no"));
    assert!(refused(&of("[weights]\na = 50\n\"a/bc\" = 7\n")).starts_with("weights.a/bc: no"));
    let level = refused(&of("level = 2\n"));
    assert!(level.starts_with("process.r.level=2 without process.r.class: "), "{level}");
    assert!(refused(&of("level = 2\nclass = \"none\"\n")).contains("without process.r.class"));
    let fits = ["[weights]\na = 50\n\"a/b\" = 7\n", "level = 2\nclass = [\"none\", \"idle\"]\n"];
    for text in fits.map(of) {
        let custom = Custom::parse(&text, "host.toml").expect(&text);
        assert!(custom.cases(1).is_ok(), "{text}");
    }
}

#[test]
fn what_a_disk_has_no_place_for_is_told_in_the_words_of_the_file() {
    let of = |process: &str| {
        let disk =
            "[host]\ncores = 1\n[disk.model]\nsize = \"1MiB\"\n[disk.model.fixed]\nunits = 1\n";
        format!("{disk}[process.r]\n{process}")
    };
    for (process, why) in [
        ("size = 1000", "process.r.size=1000 is not a multiple of 512"),
        ("size = \"2MiB\"", "process.r.size=2MiB is more than the disk has: it has 1048576 bytes"),
        (
            "size = \"512KiB\"\ncount = 3\naccess = \"sequential\"",
            "process.r.size=512KiB is more than the disk has for each of 3 processes: it has \
             1048576 bytes",
        ),
        ("bytes = 512", "process.r.bytes=512 is no multiple of process.r.size=4KiB"),
        ("bytes = \"6KiB\"", "process.r.bytes=6KiB is no multiple of process.r.size=4KiB"),
        (
            "bytes = \"512KiB\"\ncount = 3",
            "process.r.bytes=512KiB for each of 3 processes is more than the disk's 1048576 bytes",
        ),
    ] {
        assert_eq!(refused(&of(process)), format!("all: {why}"));
    }
    let why = refused("[disk]\ncount = 2\n[process.r]\nflush_every = 3\n");
    assert_eq!(why, "all: process.r.flush_every=3 with disk.count=2: a flush is for one disk");
    for fits in ["size = \"1MiB\"", "bytes = \"512KiB\"\ncount = 2"] {
        let custom = Custom::parse(&of(fits), "host.toml").expect(fits);
        custom.cases(1).expect(fits)[0].run().expect(fits);
    }
}

#[test]
fn each_process_moves_its_bytes_on_however_many_hosts() {
    let text = "[host]\nprofile = \"broadwell-2sock-4.1\"\ncount = [1, 2]\ncores = 1\n\
        [process.w]\ncount = 3\nbytes = \"40KiB\"\ndirection = \"write\"\n[path]\ncount = 1\n\
        [run]\nuntil = \"end\"\n";
    let custom = Custom::parse(text, "host.toml").expect("hosts");
    let requests = |case: &Case| case.run().expect("hosts that can be").requests;
    let all: Vec<u64> = custom.cases(1).expect("cases").iter().map(requests).collect();
    assert_eq!(all, [30, 60]);
}

#[test]
fn paths_of_one_queue_below_queues_that_requests_are_dealt_out_over_come_to_rest() {
    let text = "[host]\nprofile = \"broadwell-2sock-4.1\"\ncores = 2\n[path]\ncount = 2\n\
        mode = [\"sq\", \"mq\"]\n[queue]\nspread = \"round-robin\"\n[process.r]\ncount = 3\n";
    for case in Custom::parse(text, "host.toml").expect("a host").cases(1).expect("cases") {
        assert!(case.run().expect("it can be").requests > 100, "{}", case.name);
    }
}

#[test]
fn no_path_is_checked_with_commands_that_no_process_asked_for() {
    // Longer than the time between two checks.
    let text = "[host]\nprofile = \"broadwell-2sock-4.1\"\ncores = 1\n[path]\ncount = 4\n\
        [process.r]\npause = \"400ms\"\n[run]\ntime = \"12s\"\nwarm_up = \"0\"\n";
    let case = Custom::parse(text, "host.toml").expect("a host").cases(1).expect("a case");
    let outcome = case[0].run().expect("it can be");
    let commands = outcome.rows.iter().find(|row| row.metric == "commands").expect("a row").value;
    assert!(commands <= outcome.requests as f64, "{commands} for {} I/Os", outcome.requests);
}

#[test]
fn each_setting_can_be_stated_in_a_table_of_a_file() {
    for setting in SETTINGS {
        let path = setting.name.replace("NAME", "low_latency").replace("PATH", "a");
        let (table, key) = path.rsplit_once('.').expect("a table and a name");
        let value = match setting.bounds {
            _ if !setting.default.is_empty() => setting.default.to_owned(),
            Bounds::Wholes(least, _) | Bounds::Whole(least, _) => least.to_string(),
            Bounds::Words(known) => known[0].to_owned(),
            Bounds::Known(known) => known()[0].to_owned(),
            Bounds::Sizes(least, _) | Bounds::Times(least, _) => least.to_string(),
            Bounds::Text => String::from("1"),
        };
        let text = format!("[{table}]\n{key} = \"{value}\"\n[process.other]\n");
        let read = Custom::parse(&text, "host.toml");
        assert!(read.is_ok(), "{text}{}", read.expect_err("it is refused"));
    }
}

fn why(text: &str) -> String {
    Custom::parse(text, "host.toml").expect_err(text).to_string()
}

#[test]
fn lists_are_cases_in_the_order_of_the_file_and_the_last_changes_fastest() {
    let custom = Custom::parse(TEXT, "host.toml").expect("a host");
    assert_eq!(custom.about(), "readers beside a writer");
    let cases = custom.cases(1).expect("cases");
    let names: Vec<&str> = cases.iter().map(|case| case.name.as_str()).collect();
    let of = |cores, scheduler| format!("host.cores={cores} queue.scheduler={scheduler}");
    let expected = [of(2, "none"), of(2, "bfq"), of(4, "none"), of(4, "bfq")];
    assert_eq!(names, expected.each_ref().map(String::as_str));
    let why = cases[0].run().expect_err("none has no tunables").to_string();
    assert!(why.starts_with("host.cores=2 queue.scheduler=none: "), "{why}");
}

#[test]
fn what_a_file_states_comes_to_a_host() {
    let mut custom = Custom::parse(TEXT, "host.toml").expect("a host");
    custom.set("queue.scheduler=bfq").expect("a scheduler");
    let cases = custom.cases(7).expect("cases");
    let names: Vec<&str> = cases.iter().map(|case| case.name.as_str()).collect();
    assert_eq!(names, ["host.cores=2", "host.cores=4"]);
    let host = &cases[1].host;
    assert_eq!((host.profile.machine.cores, host.config.queues, host.seed), (4, 4, 7));
    assert_eq!((host.disk.depth, host.disks), (8, 1));
    assert_eq!(host.config.tunables, [(String::from("low_latency"), String::from("0"))]);
    assert_eq!(host.weights, [(String::from("batch"), 50)]);
    let [readers, writer] = &host.processes[..] else { panic!("two kinds") };
    assert_eq!((readers.name.as_str(), readers.count, readers.habit.depth), ("readers", 2, 4));
    assert!(!readers.are_finite() && writer.are_finite());
    assert_eq!((writer.group.as_str(), writer.job.buffer_bytes()), ("batch", 64 << 10));
    for case in &cases {
        let outcome = case.run().expect("a host that can be");
        let is_of = |row: &&crate::scene::Row| row.case.ends_with(" process=writer");
        assert!(outcome.rows.iter().filter(is_of).count() >= 6, "{outcome:?}");
    }
}

#[test]
fn several_hosts_and_paths_are_a_network_and_one_host_without_paths_is_none() {
    let parsed = |text: &str| Custom::parse(text, "a.toml").expect("hosts");
    let host = |custom: &Custom| custom.cases(1).expect("a case").remove(0).host;
    let text = "[host]\nprofile = \"broadwell-2sock-4.1\"\ncores = 2\nsockets = 1\n\
        [process.a]\nios = 30\n";
    assert!(host(&parsed(text)).san.is_none());
    let mut custom = parsed(text);
    custom.set("host.count=3").expect("hosts");
    let san = host(&custom).san.expect("a network");
    assert_eq!((san.hosts, san.paths, san.adapters), (vec![2; 3], 1, 1));
    let mut custom = parsed(text);
    for set in ["path.count=8", "queue.mode=sq", "queue.scheduler=noop", "path.link=100MiB"] {
        custom.set(set).expect(set);
    }
    let san = host(&custom).san.expect("a network");
    assert_eq!((san.hosts, san.paths, san.adapters, san.link), (vec![2], 8, 4, 100 << 20));
    assert_eq!((san.path.mode, san.path.scheduler.as_deref()), (QueueMode::Sq, Some("noop")));
    assert_eq!((san.path.queues, san.path.depth, san.selector), (1, None, Policy::ServiceTime));
    for set in ["path.mode=mq", "path.queues=2", "path.depth=16", "path.selector=round-robin"] {
        custom.set(set).expect(set);
    }
    custom.set("path.adapters=2").expect("adapters");
    custom.set("path.scheduler=mq-deadline").expect("a scheduler");
    let san = host(&custom).san.expect("a network");
    assert_eq!((san.path.mode, san.path.queues, san.path.depth), (QueueMode::Mq, 2, Some(16)));
    assert_eq!((san.adapters, san.selector), (2, Policy::RoundRobin));
    assert_eq!(san.path.scheduler.as_deref(), Some("mq-deadline"));
    custom.set("host.count=2").expect("hosts");
    let case = custom.cases(1).expect("a case").remove(0);
    assert_eq!(case.run().expect("hosts that can be").requests, 2 * 30);
}

#[test]
fn what_is_the_matter_with_paths_comes_to_the_host_as_it_is_stated() {
    let text = "[host]\nprofile = \"broadwell-2sock-4.1\"\n[path]\ncount = 4\n[process.a]\n";
    let mut custom = Custom::parse(text, "a.toml").expect("hosts");
    let san = |custom: &Custom| custom.cases(1).expect("a case").remove(0).host.san;
    let plain = san(&custom).expect("a network");
    assert_eq!((plain.ports, plain.path.timeout_ns), (Ports::default(), 0));
    let why = |custom: &Custom| custom.cases(1).expect_err("it would be ignored").to_string();
    custom.set("path.fault_paths=2").expect("a number");
    assert_eq!(why(&custom), "all: path.fault_paths=2 without path.fault: there is none");
    for set in ["can_queue=99", "task_set=7", "timeout=3s", "fault_from=40ms", "fault_lasts=9ms"] {
        custom.set(&format!("path.{set}")).expect(set);
    }
    for (word, kind) in [
        ("lost", PortFaultKind::Lost),
        ("silent", PortFaultKind::Silent),
        ("busy", PortFaultKind::Busy),
        ("attention", PortFaultKind::Attention),
    ] {
        custom.set(&format!("path.fault={word}")).expect(word);
        let san = san(&custom).expect("a network");
        let fault = PortFault { kind, paths: 2, from: 40_000_000, lasts: 9_000_000 };
        let ports = Ports { can_queue: Some(99), task_set: 7, fault: Some(fault) };
        assert_eq!((san.ports, san.path.timeout_ns), (ports, 3_000_000_000));
    }
    let set = |custom: &mut Custom, text| custom.set(text).map_err(|why| why.to_string());
    let short = set(&mut custom, "path.fault_lasts=0").expect_err("no time");
    assert!(short.starts_with("path.fault_lasts=0 is "), "{short}");
    custom.set("path.fault_from=110ms").expect("a time");
    assert_eq!(
        why(&custom),
        "all: path.fault_from=110ms is not before the end of run.time=100ms after \
         run.warm_up=10ms: nothing would come of it"
    );
    custom.set("path.fault_from=109ms").expect("a time");
    san(&custom).expect("the last millisecond has it");
    for set in ["run.until=end", "process.a.ios=10"] {
        custom.set(set).expect(set);
    }
    assert!(why(&custom).ends_with("end of run.time=100ms: nothing would come of it"));
    custom.set("path.fault=none").expect("none");
    assert_eq!(san(&custom).expect("a network").ports.fault, None);
}

#[test]
fn the_tags_of_a_port_are_counted_as_its_host_has_them() {
    let text = "[host]\nprofile = \"broadwell-2sock-4.1\"\n[disk]\ncount = 8\n[path]\ncount = 16\n\
        queues = 32\n[process.a]\n";
    let mut custom = Custom::parse(text, "a.toml").expect("hosts");
    // 32 * 512 are more than the 10,240 that a host has: 8 * 16 * 32 * 10,240 are 42 million.
    assert!(custom.cases(1).is_ok());
    custom.set("disk.count=13").expect("disks");
    let why = custom.cases(1).expect_err("too many").to_string();
    assert!(why.starts_with("all: hard queues * depth=68"), "{why}");
}

#[test]
fn the_single_queue_is_one_by_default_whatever_the_number_of_processors() {
    let mut custom = Custom::parse("[process.a]\nios = 3\n", "a.toml").expect("a host");
    custom.set("queue.mode=sq").expect("a mode");
    custom.set("queue.scheduler=noop").expect("a scheduler");
    let case = custom.cases(1).expect("a case").remove(0);
    assert_eq!(case.host.config.queues, 1);
    assert!(case.run().is_ok_and(|outcome| outcome.requests == 3));
}

#[test]
fn what_cannot_be_is_refused_with_file_and_line() {
    let line = |from: &str, to: &str| {
        assert!(TEXT.contains(from), "{from}");
        why(&TEXT.replace(from, to))
    };
    assert_eq!(
        line("cores = [2, 4]", "cores = [2, 400]"),
        "host.toml:4: host.cores=400 is outside 1..=256"
    );
    let unknown = line("depth = 4\n", "dept = 4\n");
    assert!(
        unknown.starts_with(
            "host.toml:18: no setting \"process.readers.dept\"; there are host.profile"
        ),
        "{unknown}"
    );
    assert_eq!(line("[weights]", "[wights]"), "host.toml:27: no table [wights]");
    assert_eq!(
        line("size = \"64KiB\"", "size = 1.5"),
        "host.toml:23: process.writer.size is a float: no whole number, text or list"
    );
    let size = line("\"64KiB\"", "\"64KoB\"");
    assert!(size.starts_with("host.toml:23: process.writer.size="), "{size}");
    let twice = line("[2, 4]", "[2, 2]");
    assert_eq!(twice, "host.toml:4: host.cores=2,2 names 2 twice");
    assert_eq!(line("[2, 4]", "[]"), "host.toml:4: host.cores has no value");
    let model = line("units = 8", "unit = 8");
    assert!(model.starts_with("host.toml:6: disk.model: ") && model.contains("unit"), "{model}");
    let both = line("[host]", "[disk]\npreset = \"dd32\"\n[host]");
    assert!(both.ends_with("[disk.model] beside disk.preset: a disk is one"), "{both}");
    let broken = line("[host]", "[host");
    assert!(broken.starts_with("host.toml:3: "), "{broken}");
    assert_eq!(why("[host]\ncores = 1\n"), "host.toml: there is no table [process.NAME]");
    let large = line("count = 2", "count = 99999999999999999999");
    assert!(large.starts_with("host.toml:17: "), "{large}");
}

#[test]
fn a_name_with_a_dot_in_it_is_no_path() {
    let model = why("[\"disk.model\"]\nfixed = {}\n[process.a]\n");
    assert_eq!(model, "host.toml:1: \"disk.model\": a name has no dot");
    let nested = why("disk = {}\n\"disk.model\" = { fixed = {} }\n[process.a]\n");
    assert_eq!(nested, "host.toml:2: \"disk.model\": a name has no dot");
    let process = why("[process.a]\n[\"process.a\"]\n");
    assert_eq!(process, "host.toml:2: \"process.a\": a name has no dot");
}

#[test]
fn a_list_has_at_most_as_many_values_as_there_may_be_cases() {
    let mut custom = Custom::parse("[process.a]\n", "a.toml").expect("a host");
    let list = |count: u64| {
        let values: Vec<String> = (0..count).map(|ns| format!("{ns}ns")).collect();
        format!("process.a.think={}", values.join(","))
    };
    custom.set(&list(4096)).expect("as many as there may be");
    let why = custom.set(&list(4097)).expect_err("one more").to_string();
    assert_eq!(why, "process.a.think has 4097 values, more than 4096");
}

#[test]
fn what_is_set_is_held_against_the_same_bounds_as_what_is_in_the_file() {
    let mut custom = Custom::parse(TEXT, "host.toml").expect("a host");
    let mut why = |text: &str| custom.set(text).expect_err(text).to_string();
    assert_eq!(why("host.cores=0"), "host.cores=0 is outside 1..=256");
    assert_eq!(why("host.cores"), "\"host.cores\" is not NAME=VALUE");
    assert_eq!(why("process.other.count=1"), "no processes \"other\"; there are readers, writer");
    assert!(why("process.readers.pause=1h").contains("process.readers.pause="));
    assert!(why("queue.scheduler=cfs").contains("is none of none, mq-deadline"));
    assert!(why("disk.preset=dd32").contains("a disk is one"));
    assert!(why("cores=1").starts_with("no setting \"cores\"; there are host.profile"));
    assert_eq!(why("weights.batch=0"), "weights.batch=0 is outside 1..=1000");
}

#[test]
fn a_run_to_the_end_needs_processes_that_have_one_and_too_many_cases_are_refused() {
    let text = "[process.a]\ndepth = 2\n[run]\nuntil = \"end\"\n";
    let mut custom = Custom::parse(text, "a.toml").expect("a host");
    let error = custom.cases(1).expect_err("endless").to_string();
    assert_eq!(error, "all: run.until=end, and no processes have bytes or ios");
    custom.set("process.a.ios=20").expect("an end");
    let rows = custom.cases(1).expect("a case")[0].run().expect("a host").rows;
    assert!(rows.iter().any(|row| row.metric == "makespan_s"), "{rows:?}");
    let many: Vec<String> = (1..=65).map(|n: u32| n.to_string()).collect();
    custom.set(&format!("process.a.depth={}", many.join(","))).expect("a list");
    custom.set(&format!("process.a.batch={}", many[..63].join(","))).expect("a list");
    assert_eq!(custom.cases(1).expect("4095 of 4096").len(), 4095);
    custom.set(&format!("process.a.batch={}", many.join(","))).expect("a list");
    assert_eq!(custom.cases(1).expect_err("4225").to_string(), "more than 4096 cases");
}

#[test]
fn every_default_is_within_its_bounds_and_every_row_has_a_meaning() {
    for setting in SETTINGS.iter().filter(|setting| !setting.default.is_empty()) {
        setting.check_all(setting.name, &[setting.default.to_owned()]).expect(setting.name);
    }
    assert!(SETTINGS.iter().all(|setting| !setting.meaning.is_empty()));
}

const FITTED: &str = r#"
size = "1GiB"
depth = 128
[measured]
of_size = "4KiB"
least_size = "4KiB"
most_size = "4KiB"
read_percent = [100, 100]
access = "random"
[[measured.at]]
in_flight = 1
read = [TIMES]
[[measured.at]]
in_flight = 16
read = [TIMES]
"#;

/// A disk that takes 50 us, and maybe a host.
fn fitted(host: &str) -> String {
    FITTED.replace("TIMES", &vec!["\"50us\""; 14].join(",")) + host
}

#[test]
fn a_file_that_describes_a_disk_alone_is_a_host_with_a_job() {
    let mut custom = Custom::parse(&fitted(""), "disk.toml").expect("a disk");
    custom.set("process.job.depth=1,4").expect("its process");
    let cases = custom.cases(1).expect("cases");
    let outcomes: Vec<_> = cases.iter().map(|case| case.run().expect("it runs")).collect();
    let p50 = |outcome: &crate::scene::Outcome| outcome.figures.all.device.quantile_ns(0.5);
    for outcome in &outcomes {
        assert!((50_000..60_000).contains(&p50(outcome)), "{}", p50(outcome));
    }
    let why = custom.set("process.other.depth=1").expect_err("no such kind").to_string();
    assert!(why.contains("there are job"), "{why}");
    custom.set("process.job.depth=17").expect("a depth");
    let why = custom.cases(1).expect_err("it was not seen").to_string();
    assert!(why.contains("process job: commands at once=17 is outside 1..=16"), "{why}");
    custom.set("disk.depth=16").expect("tags");
    custom.set("queue.queues=1").expect("a queue");
    assert!(custom.cases(1).is_ok(), "what there is no tag for waits");
}

#[test]
fn the_host_that_a_disk_was_measured_on_is_its_host_unless_another_is_stated() {
    let host = crate::profile::PROFILES.iter().find(|(name, _)| *name == "guest-1cpu-6.12");
    let host: String = host.expect("a profile").1.replace('[', "[host.");
    let mut custom = Custom::parse(&fitted(&host), "disk.toml").expect("a disk");
    let cpus = |custom: &Custom| {
        let case = custom.cases(1).expect("a case").remove(0);
        (case.host.profile.machine.cores, case.host.processes[0].habit.batch)
    };
    custom.set("process.job.depth=9").expect("a depth");
    assert_eq!(cpus(&custom), (1, 9), "and whatever there is goes together");
    custom.set("host.profile=cascade-1sock-6.3").expect("a profile");
    assert_eq!(cpus(&custom), (10, 1));
    let broken = fitted(&host.replace("cores = 1", "cores = 0"));
    let why = Custom::parse(&broken, "disk.toml").expect_err("no processor").to_string();
    assert!(why.starts_with("disk.toml:") && why.contains("host: sockets * cores"), "{why}");
}
