//! The matches of rules and their effects, for disks on paper.

use std::collections::BTreeMap;

use weir_control::Rules;
use weir_control::rules::{Event, Plan, Subject};

/// A disk of a name, with files.
struct Paper {
    name: &'static str,
    files: BTreeMap<&'static str, &'static str>,
}

impl Subject for Paper {
    fn name(&self) -> &str {
        self.name
    }

    fn read(&self, file: &str) -> Option<String> {
        self.files.get(file).map(|text| format!("{text}\n"))
    }

    fn mode(&self, file: &str) -> Option<u16> {
        self.files.contains_key(file).then_some(0o644)
    }

    fn mode_elsewhere(&self, path: &str) -> Option<u16> {
        matches!(path, "block" | "block/sdb" | "block/sdb/queue").then_some(0o555)
    }
}

fn disk(name: &'static str, rotational: &'static str) -> Paper {
    let files = BTreeMap::from([
        ("queue/rotational", rotational),
        ("queue/scheduler", "[none] mq-deadline kyber bfq"),
        ("queue/nr_requests", "128"),
        ("weir/queues", "4"),
        ("device/model", "DISK 1  "),
        ("dev", "259:7"),
        ("weir/kernel_cmdline", CMDLINE),
    ]);
    Paper { name, files }
}

/// What stands twice counts last; what is behind `--` is not the kernel's.
const CMDLINE: &str =
    r#"quiet elevator=noop net.if-names=0 note="a b" elevator=cfq cost=5% -- init_only elevator=x"#;

#[track_caller]
fn plan(disk: &Paper, text: &str) -> Plan {
    let rules = Rules::parse([("60-x.rules", text)]);
    assert!(rules.errors().is_empty(), "{:?}", rules.errors());
    rules.plan(disk, Event::Add)
}

/// The writes of a plan, as `file=value`.
fn writes(plan: &Plan) -> Vec<String> {
    plan.writes.iter().map(|write| format!("{}={}", write.name, write.value)).collect()
}

/// Rules as distributions have them.
const TYPICAL: &str = r#"
ACTION=="add|change", KERNEL=="sd[a-z]*", ATTR{queue/rotational}=="1", ATTR{queue/scheduler}="bfq"
ACTION=="add|change", KERNEL=="sd[a-z]*|mmcblk[0-9]*", ATTR{queue/rotational}=="0", \
  ATTR{queue/scheduler}="mq-deadline"
ACTION=="add|change", KERNEL=="nvme[0-9]*n[0-9]*", ENV{DEVTYPE}=="disk", \
  ATTR{queue/scheduler}="none", ATTR{queue/nr_requests}="256"
SUBSYSTEM=="block", ENV{DM_UUID}=="mpath-?*", ATTR{queue/scheduler}="none"
SUBSYSTEM!="block", GOTO="end"
LABEL="end"
"#;

#[test]
fn the_typical_rules_come_to_the_writes_they_say() {
    for (name, rotational, expected) in [
        ("sda", "1", &["queue/scheduler=bfq"][..]),
        ("sdab", "0", &["queue/scheduler=mq-deadline"]),
        ("mmcblk0", "0", &["queue/scheduler=mq-deadline"]),
        ("mmcblk0", "1", &[]),
        ("nvme0n1", "0", &["queue/scheduler=none", "queue/nr_requests=256"]),
        ("vda", "0", &[]),
    ] {
        let plan = plan(&disk(name, rotational), TYPICAL);
        assert_eq!(writes(&plan), expected, "{name}, rotational {rotational}");
    }
}

#[test]
fn each_key_matches_what_it_says() {
    for (condition, expected) in [
        (r#"ACTION=="add""#, true),
        (r#"ACTION=="change""#, false),
        (r#"ACTION!="change""#, true),
        (r#"KERNEL!="sd*""#, false),
        (r#"KERNELS=="sda", ATTRS{weir/queues}=="4""#, true),
        (r#"SUBSYSTEMS=="scsi""#, false),
        (r#"DEVPATH=="*/block/sda""#, true),
        (r#"DRIVER=="""#, true),
        (r#"DRIVERS=="?*""#, false),
        (r#"ATTR{queue/none}=="*""#, false),
        (r#"ATTR{queue/none}!="*""#, false),
        (r#"ATTR{device/model}=="DISK 1""#, true),
        (r#"ATTR{device/model}=="DISK 1  ""#, true),
        (r#"ATTR{device/model}=="DISK 1 ""#, false),
        (r#"ENV{NONE}=="""#, true),
        (r#"ENV{NONE}=="?*""#, false),
        (r#"ENV{SUBSYSTEM}=="block", ENV{DEVNAME}=="/dev/sda""#, true),
        (r#"TEST=="queue/scheduler""#, true),
        (r#"TEST=="queue/none""#, false),
        (r#"TEST!="queue/none""#, true),
        (r#"TEST{0200}=="queue/scheduler""#, true),
        (r#"TEST{0111}=="queue/scheduler""#, false),
        (r#"TEST=="%S%p/queue/scheduler""#, true),
        (r#"TEST{0200}=="$sys$devpath/queue/scheduler""#, true),
        (r#"TEST{0111}=="%S%p/queue/scheduler""#, false),
        (r#"TEST=="%S%p/queue/none""#, false),
        (r#"TEST=="/sys/block/sda/queue/scheduler""#, true),
        (r#"TEST=="/sys/class/block/%k/weir//./queues""#, true),
        (r#"TEST=="/sys/block/sdb/queue""#, true),
        (r#"TEST=="/sys/block/sdb/queue/scheduler""#, false),
        (r#"TEST=="/sys/block/sda/../sdb""#, false),
        (r#"TEST=="/block/sda/queue/scheduler""#, false),
        // Nothing else of the machine is looked at.
        (r#"TEST=="/etc/passwd""#, false),
        (r#"IMPORT{cmdline}="elevator""#, true),
        (r#"IMPORT{cmdline}=="elevator""#, true),
        (r#"IMPORT{cmdline}!="elevator""#, false),
        (r#"IMPORT{cmdline}="none""#, false),
        (r#"IMPORT{cmdline}!="none""#, true),
        (r#"IMPORT{cmdline}="init_only""#, false),
        (r#"ENV{MAJOR}=="259", ENV{MINOR}=="7""#, true),
        (r#"TAG=="x""#, false),
        (r#"CONST{virt}=="none", CONST{arch}=="?*""#, true),
    ] {
        let plan = plan(&disk("sda", "1"), &format!("{condition}, ATTR{{ro}}=\"1\""));
        assert_eq!(!plan.writes.is_empty(), expected, "{condition}");
        assert_eq!(plan.matched.len(), plan.writes.len());
    }
}

#[test]
fn a_later_rule_overrides_an_earlier_one_that_is_not_final() {
    let text = r#"
ATTR{queue/nr_requests}="64", ATTR{queue/nomerges}:="2"
ATTR{queue/nr_requests}="32", ATTR{queue/nomerges}="1"
ATTR{queue/scheduler}="bfq"
"#;
    let plan = plan(&disk("sda", "1"), text);
    let expected = ["queue/scheduler=bfq", "queue/nr_requests=32", "queue/nomerges=2"];
    assert_eq!(writes(&plan), expected, "the scheduler comes first");
    assert_eq!(plan.writes[1].rule, "60-x.rules:3");
}

#[test]
fn variables_and_tags_set_by_one_rule_are_seen_by_the_next() {
    let text = r#"
KERNEL=="sd*", ENV{KIND}="slow", TAG+="weir", TAG+="x", TAG-="x"
ENV{KIND}=="slow", TAG=="weir", ENV{KIND}+="disk"
ENV{KIND}=="slow disk", TAG!="x", ATTR{queue/scheduler}="kyber"
"#;
    assert_eq!(writes(&plan(&disk("sda", "1"), text)), ["queue/scheduler=kyber"]);
}

#[test]
fn a_boot_parameter_is_taken_over_by_its_name() {
    let text = r#"
IMPORT{cmdline}="elevator", ATTR{a}="$env{elevator}"
IMPORT{cmdline}="quiet", IMPORT{cmdline}="net.if_names", ATTR{b}="$env{quiet}$env{net.if_names}"
IMPORT{cmdline}="note", ATTR{c}="$env{note}"
IMPORT{cmdline}="cost", ATTR{d}="$env{cost}"
ENV{elevator}=="cfq", ATTR{e}="1"
# Not taken over where its rule does not hold otherwise, and all of a rule has to be there.
KERNEL=="sdb", IMPORT{cmdline}="note", ENV{note}="x"
IMPORT{cmdline}="nothing", ATTR{f}="1"
"#;
    let plan = plan(&disk("sda", "1"), text);
    assert_eq!(writes(&plan), ["a=cfq", "b=10", "c=a b", "d=5%", "e=1"]);
    assert!(plan.warnings.is_empty(), "{:?}", plan.warnings);
    assert!(plan.others.iter().all(weir_control::rules::Planned::is_for_rules));
}

/// The two files of rules that come with weir.
const SSD: &str = include_str!("../../../contrib/rules/60-ssd-scheduler.rules");
const IO: &str = include_str!("../../../contrib/rules/60-io-scheduler.rules");

#[test]
fn the_rules_of_ssds_choose_deadline_for_whole_ones_and_elevator_overrides_them() {
    for (name, rotational, cmdline, expected) in [
        ("sda", "0", "quiet", &["queue/scheduler=deadline"][..]),
        ("sdab", "0", "elevator=", &["queue/scheduler=deadline"]),
        ("sda", "0", "elevator=noop", &[]),
        ("sda", "1", "quiet", &[]),
        ("sda1", "0", "quiet", &[]),
        ("vda", "0", "quiet", &[]),
    ] {
        let mut disk = disk(name, rotational);
        disk.files.insert("weir/kernel_cmdline", cmdline);
        assert_eq!(writes(&plan(&disk, SSD)), expected, "{name} {rotational} {cmdline}");
        let rules = Rules::parse([("60-x.rules", SSD)]);
        assert!(rules.plan(&disk, Event::Change).writes.is_empty(), "of new disks alone");
    }
}

#[test]
fn the_rules_of_schedulers_choose_by_path_and_disk_and_elevator_is_for_the_legacy_path() {
    let multi = ["mq", "mq/0"];
    let several = ["mq", "mq/0", "mq/1"];
    for (folders, rotational, cmdline, expected) in [
        (&[][..], "1", "quiet", "cfq"),
        (&[], "0", "quiet", "deadline"),
        (&[], "1", "elevator=noop", ""),
        (&[], "0", "elevator=noop", ""),
        (&multi, "1", "quiet", "bfq"),
        (&multi, "0", "quiet", "mq-deadline"),
        (&multi, "1", "elevator=noop", "bfq"),
        (&multi, "0", "elevator=noop", "mq-deadline"),
        (&several, "1", "quiet", ""),
        (&several, "0", "quiet", ""),
    ] {
        let mut disk = disk("sda", rotational);
        disk.files.insert("weir/kernel_cmdline", cmdline);
        disk.files.insert("queue/zoned", "none");
        disk.files.extend(folders.iter().map(|folder| (*folder, "")));
        let expected: Vec<String> =
            [expected].iter().filter(|name| !name.is_empty()).map(said).collect();
        for event in [Event::Add, Event::Change] {
            let rules = Rules::parse([("60-x.rules", IO)]);
            assert!(rules.errors().is_empty() && rules.warnings().is_empty());
            let found = writes(&rules.plan(&disk, event));
            assert_eq!(found, expected, "{folders:?} {rotational} {cmdline}");
            // The path of a multipath disk, which a rule before them knows.
            let path = "ENV{DM_MULTIPATH_DEVICE_PATH}=\"1\"\n";
            let rules = Rules::parse([("50-x.rules", path), ("60-x.rules", IO)]);
            let alone = said(&if folders.is_empty() { "noop" } else { "none" });
            assert_eq!(writes(&rules.plan(&disk, event)), [alone], "{folders:?}");
        }
        disk.files.insert("queue/scheduler", "none");
        assert!(writes(&plan(&disk, IO)).is_empty(), "there is nothing to choose");
    }
}

fn said(scheduler: &&str) -> String {
    format!("queue/scheduler={scheduler}")
}

#[test]
fn a_goto_passes_over_what_lies_between() {
    let text = r#"
KERNEL=="sda", GOTO="end"
ATTR{ro}="1"
LABEL="end", ATTR{range}="1"
"#;
    assert_eq!(writes(&plan(&disk("sda", "1"), text)), ["range=1"]);
    assert_eq!(writes(&plan(&disk("sdb", "1"), text)), ["ro=1", "range=1"]);
}

#[test]
fn values_are_filled_in() {
    for (value, expected) in [
        ("$kernel %k $name %b $id", "sda1 sda1 sda1 sda1 sda1"),
        ("$number-%n", "1-1"),
        (
            "$devpath|$devnode|$root|$sys|%p|%N|%r|%S",
            "/block/sda1|/dev/sda1|/dev|/sys|/block/sda1|/dev/sda1|/dev|/sys",
        ),
        ("$attr{weir/queues}%s{device/model}.", "4DISK 1."),
        ("$env{DEVTYPE}%E{ACTION}", "diskadd"),
        ("$$kernel %%k", "$kernel %k"),
        ("$major:%m", "259:7"),
        ("$env{NONE}", ""),
    ] {
        let plan = plan(&disk("sda1", "1"), &format!("ENV{{A}}=\"{value}\""));
        assert_eq!(plan.others[0].value, expected, "{value}");
        assert!(plan.warnings.is_empty(), "{:?}", plan.warnings);
    }
}

#[test]
fn a_value_that_means_nothing_is_not_written() {
    let text = "ATTR{queue/nr_requests}=\"%P\", ATTR{ro}=\"1\"\n";
    let rules = Rules::parse([("60-x.rules", text)]);
    assert_eq!(rules.warnings().len(), 1, "{:?}", rules.warnings());
    assert_eq!(writes(&rules.plan(&disk("sda", "1"), Event::Add)), ["ro=1"]);
}

#[test]
fn what_is_final_is_seen_as_it_is_by_later_rules() {
    let text = r#"
ENV{A}:="x", TAG:="t", SYMLINK:="l"
ENV{A}="y", TAG+="u", SYMLINK+="m"
ENV{A}=="x", TAG=="t", TAG!="u", ATTR{a}="$env{A} $links"
"#;
    let plan = plan(&disk("sda", "1"), text);
    assert_eq!(writes(&plan), ["a=x l"]);
    let others: Vec<_> = plan.others.iter().map(|one| (&*one.name, &*one.value)).collect();
    assert_eq!(others, [("ENV{A}", "x"), ("TAG", "t"), ("SYMLINK", "l")]);
}

#[test]
fn a_scheduler_comes_first_however_its_path_is_written() {
    let text = r#"
ATTR{queue/nr_requests}="64", ATTR{queue//scheduler}="bfq"
ATTR{./queue/scheduler}="kyber"
"#;
    let plan = plan(&disk("sda", "1"), text);
    assert_eq!(writes(&plan), ["queue/scheduler=kyber", "queue/nr_requests=64"]);
}

#[test]
fn what_has_no_effect_here_is_recorded() {
    let text =
        r#"SYMLINK+="a b", SYMLINK+="c", SYMLINK-="b", RUN+="/bin/x", OWNER="root", MODE="0600""#;
    let plan = plan(&disk("sda", "1"), text);
    let others: Vec<_> = plan.others.iter().map(|one| (&*one.name, &*one.value)).collect();
    assert_eq!(
        others,
        [("SYMLINK", "a c"), ("RUN", "/bin/x"), ("OWNER", "root"), ("MODE", "0600")]
    );
    assert!(plan.writes.is_empty());
}

#[test]
fn files_are_merged_by_name_and_a_later_folder_takes_the_place_of_an_earlier() {
    let root = std::env::temp_dir().join(format!("weir-rules-{}", std::process::id()));
    let folders = ["system", "local"].map(|name| root.join(name));
    folders.iter().for_each(|folder| std::fs::create_dir_all(folder).unwrap());
    let write = |at: usize, name: &str, value: &str| {
        let text = format!("ATTR{{ro}}=\"{value}\", ATTR{{{name}}}=\"1\"\n");
        std::fs::write(folders[at].join(name), text).unwrap();
    };
    write(0, "10-a.rules", "1");
    write(0, "20-b.rules", "2");
    write(0, "30-c.rules", "3");
    write(0, "90-off.rules.disabled", "4");
    write(1, "15-d.rules", "5");
    write(1, "20-b.rules", "6");
    std::os::unix::fs::symlink("/dev/null", folders[1].join("30-c.rules")).unwrap();
    let rules = Rules::read(&folders).unwrap();
    let plan = rules.plan(&disk("sda", "1"), Event::Add);
    let expected = ["ro=6", "10-a.rules=1", "15-d.rules=1", "20-b.rules=1"];
    assert_eq!(writes(&plan), expected);
    assert_eq!(plan.writes[0].rule, format!("{}:1", folders[1].join("20-b.rules").display()));
    let missing = Rules::read(&[root.join("none")]).unwrap_err();
    assert!(missing.to_string().contains("none: No such file"), "{missing}");
    std::fs::remove_dir_all(&root).unwrap();
}

/// How long each value of a plan may be at most, as in udev: 1,024 bytes.
const MOST: usize = 1024;

#[test]
fn a_value_that_grows_is_left_out_at_its_bound() {
    for (first, again) in [
        ("ENV{A}=\"x\"\n", "ENV{A}=\"$env{A}$env{A}\"\n"),
        ("ENV{A}=\"x\"\n", "ENV{A}+=\"$env{A}\"\n"),
        ("ENV{A}=\"xxxx\"\n", "ENV{A}=\"$env{A}$env{A}\", ATTR{ro}=\"$env{A}$env{A}$env{A}\"\n"),
    ] {
        let plan = plan(&disk("sda", "1"), &format!("{first}{}", again.repeat(40)));
        let values = plan.others.iter().chain(&plan.writes).map(|planned| planned.value.len());
        let longest = values.max().unwrap_or_default();
        assert!((MOST / 2..=MOST).contains(&longest), "{again}: {longest}");
        let told = plan.warnings.last().map(ToString::to_string).unwrap_or_default();
        assert!(told.starts_with("60-x.rules:41: ") && told.contains("is 1024"), "{told}");
    }
    let long = "x".repeat(MOST);
    let exact = plan(&disk("sda", "1"), &format!("ATTR{{ro}}=\"{long}\"\n"));
    assert_eq!((exact.writes[0].value.len(), exact.warnings.len()), (MOST, 0));
    let above = plan(&disk("sda", "1"), &format!("ATTR{{ro}}=\"{long}y\", ATTR{{a}}=\"1\"\n"));
    assert_eq!(writes(&above), ["a=1"]);
    let told = above.warnings[0].to_string();
    assert!(told.contains("ATTR{ro} would have") && told.contains("most is 1024"), "{told}");
}

#[test]
fn lists_of_a_whole_file_stay_bounded() {
    for key in ["SYMLINK", "RUN", "TAG"] {
        let text: String = (0..20_000).map(|at| format!("{key}+=\"name-{at}\"\n")).collect();
        let plan = plan(&disk("sda", "1"), &text);
        let length = plan.others[0].value.len();
        assert!((15 << 10..=16 << 10).contains(&length), "{key}: {length}");
        assert!(plan.warnings[0].to_string().contains("the most is 16384"), "{key}");
    }
}

#[test]
fn a_file_that_is_no_regular_one_or_too_long_is_left_out_by_name() {
    let root = std::env::temp_dir().join(format!("weir-rules-odd-{}", std::process::id()));
    std::fs::create_dir_all(root.join("30-folder.rules")).unwrap();
    let line = "ATTR{ro}=\"1\"\n";
    let write = |name: &str, text: &str| std::fs::write(root.join(name), text).unwrap();
    write("10-good.rules", line);
    write("20-fits.rules", &format!("#{}\n", "x".repeat((1 << 20) - 2)));
    write("20-long.rules", &format!("#{}\n{line}", "x".repeat((1 << 20) - 2)));
    let made = std::process::Command::new("mkfifo").arg(root.join("40-fifo.rules")).status();
    assert!(made.expect("mkfifo is there").success());
    std::os::unix::fs::symlink("/dev/zero", root.join("50-zero.rules")).unwrap();
    // A thread that opens the pipe to read it waits for a writer that never comes, so this thread
    // looks on.
    let (sender, receiver) = std::sync::mpsc::channel();
    let folder = root.clone();
    std::thread::spawn(move || sender.send(Rules::read(&[folder])));
    let rules = receiver.recv_timeout(std::time::Duration::from_secs(20));
    let rules = rules.expect("no file is waited for").unwrap();
    let told: Vec<String> = rules.errors().iter().map(ToString::to_string).collect();
    let odd = "it is no regular file, nor /dev/null";
    let expected = [
        ("20-long.rules", "it has more than 1048576 bytes"),
        ("30-folder.rules", odd),
        ("40-fifo.rules", odd),
        ("50-zero.rules", odd),
    ];
    assert_eq!(told.len(), expected.len(), "{told:?}");
    for (told, (name, what)) in told.iter().zip(expected) {
        assert!(told.ends_with(&format!("{name}: {what}")), "{told}");
    }
    assert_eq!(writes(&rules.plan(&disk("sda", "1"), Event::Add)), ["ro=1"]);
    std::fs::remove_dir_all(&root).unwrap();
}
