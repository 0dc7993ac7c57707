//! Choosing a scheduler for good: boot parameters, rules, and a reload of a running daemon.

#![forbid(unsafe_code)]

mod daemon;

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::process::Command;

use daemon::client::Client;
use daemon::program::Ended;
use daemon::words::{attempt, told};
use daemon::{Daemon, Folder, weir};
use serde_json::Value;

/// The scheduler a disk has.
#[track_caller]
fn scheduler(folder: &Folder, disk: &str) -> String {
    let text = told(folder, &["get", &format!("block/{disk}/queue/scheduler")]);
    let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    chosen.map_or(text.trim_end(), |(chosen, _)| chosen).into()
}

#[track_caller]
fn read(folder: &Folder, path: &str) -> String {
    told(folder, &["get", path]).trim_end().into()
}

/// Writes a file into the folder of the test.
fn put(folder: &Folder, name: &str, text: &str) {
    let path = folder.near(name);
    // Not open to others, as the daemon insists, whatever the umask of who runs this.
    let mut folders = fs::DirBuilder::new();
    let made = folders.recursive(true).mode(0o755).create(path.parent().expect("a folder"));
    made.expect("a folder");
    fs::write(path, text).expect("a file");
}

fn serve(folder: &Folder, words: &[&str]) -> Command {
    let mut command = weir(folder);
    command.arg("serve").arg("--nbd").arg(format!("unix:{}", folder.socket().display()));
    command.args(words);
    command
}

#[test]
fn boot_parameters_choose_path_and_scheduler_of_the_disks_they_are_for() {
    let folder = Folder::new();
    put(
        &folder,
        "weir.toml",
        r#"
kernel_cmdline = "quiet scsi_mod.use_blk_mq=0 elevator=noop"
[[disk]]
name = "sda"
target = "ram:1MiB"
[[disk]]
name = "sdb"
target = "ram:1MiB,queue_mode=mq,queues=1"
[[disk]]
name = "sdc"
target = 'ram:1MiB,kernel_cmdline="elevator=deadline splash"'
[[disk]]
name = "vda"
target = "ram:1MiB,queue_mode=mq,queues=1"
[[disk]]
name = "sdd"
target = 'ram:1MiB,kernel_cmdline="scsi_mod.use_blk_mq=1 splash",queues=1'
"#,
    );
    let daemon = Daemon::spawn(serve(&folder, &["-c", "weir.toml"]));
    for (disk, mode, expected) in [
        ("sda", "sq", "noop"),
        ("sdb", "mq", "mq-deadline"),
        ("sdc", "sq", "deadline"),
        ("vda", "mq", "mq-deadline"),
        ("sdd", "mq", "mq-deadline"),
    ] {
        assert_eq!(read(&folder, &format!("block/{disk}/weir/queue_mode")), mode, "{disk}");
        assert_eq!(scheduler(&folder, disk), expected, "{disk}");
    }
    assert_eq!(read(&folder, "module/scsi_mod/parameters/use_blk_mq"), "N");
    assert_eq!(read(&folder, "module/dm_mod/parameters/use_blk_mq"), "Y");
    let said = daemon.stop();
    for part in [
        "sdb: scsi_mod.use_blk_mq does not apply to this device: its target states queue_mode",
        "vda: scsi_mod.use_blk_mq does not apply to this device: it is for disks named sd*",
        "vda: elevator=noop does not apply to this device: it is for queue_mode=sq",
    ] {
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
    for told in [
        "kernel_cmdline: quiet is no parameter of disks and is passed over",
        "kernel_cmdline of sdc, sdd: splash is no parameter of disks and is passed over",
    ] {
        assert_eq!(said.matches(told).count(), 1, "{told:?} once in {said}");
    }
}

#[test]
fn a_bad_boot_parameter_is_refused_with_its_place() {
    let folder = Folder::new();
    put(
        &folder,
        "weir.toml",
        "kernel_cmdline = \"dm_mod.use_blk_mq=7\"\n[[disk]]\nname = \"a\"\ntarget = \"ram:1M\"\n",
    );
    let disk = "sda=ram:1M,kernel_cmdline=elevator=";
    for (words, part) in [
        (["serve", "-c", "weir.toml"], "kernel_cmdline: dm_mod.use_blk_mq=7 is none of 0, 1"),
        (["serve", "--disk", disk], "disk \"sda\": \"elevator=\" names no scheduler"),
    ] {
        let Ended { code, stderr, .. } = attempt(&folder, &words);
        assert_eq!(code, Some(2), "{stderr}");
        assert!(stderr.contains(part), "{stderr}");
    }
}

#[test]
fn the_default_scheduler_follows_what_is_stated_and_stays_when_rotational_is_written() {
    let folder = Folder::new();
    let disks = [
        "sda=ram:1M,queue_mode=sq,rotational=1",
        "sdb=ram:1M,queue_mode=sq,rotational=0",
        "sdc=ram:1M,rotational=1",
        "sdd=ram:1M,rotational=1,queues=2",
    ];
    let daemon = Daemon::start(&folder, &disks);
    for (disk, rotational, expected) in [
        ("sda", "1", "cfq"),
        ("sdb", "0", "deadline"),
        ("sdc", "1", "mq-deadline"),
        ("sdd", "1", "none"),
    ] {
        assert_eq!(scheduler(&folder, disk), expected, "{disk}");
        assert_eq!(read(&folder, &format!("block/{disk}/queue/rotational")), rotational);
    }
    told(&folder, &["set", "block/sdb/queue/rotational", "1"]);
    assert_eq!(read(&folder, "block/sdb/queue/rotational"), "1");
    assert_eq!(scheduler(&folder, "sdb"), "deadline");
    // The same again is no news.
    told(&folder, &["set", "block/sdb/queue/rotational", "1"]);
    let said = daemon.stop();
    let news = "disk sdb: rotational is 1 from now on; its scheduler stays deadline";
    assert_eq!(said.matches(news).count(), 1, "{said}");
}

#[test]
fn blocks_as_stated_hold_for_clients_and_show_in_the_tree() {
    let folder = Folder::new();
    let blocks = "sda=ram:1M,logical_block_size=4096,physical_block_size=16384";
    let daemon = Daemon::start(&folder, &[blocks]);
    for (file, bytes) in [
        ("logical_block_size", "4096"),
        ("hw_sector_size", "4096"),
        ("physical_block_size", "16384"),
        ("minimum_io_size", "16384"),
    ] {
        assert_eq!(read(&folder, &format!("block/sda/queue/{file}")), bytes, "{file}");
    }
    // As on a disk with such blocks, what begins inside one is a read-modify-write.
    let mut client = Client::connect(&folder.socket(), "sda");
    assert_eq!(client.write(0, 0, &[7; 4096]).expect("an answer"), 0);
    assert_eq!(client.write(0, 1000, &[9; 100]).expect("an answer"), 0);
    let bytes = client.read(990, 120).expect("an answer").expect("the bytes");
    let expected = [vec![7; 10], vec![9; 100], vec![7; 10]].concat();
    assert_eq!(bytes, expected);
    client.disconnect().expect("it ends");
    daemon.stop();
    let odd = folder.near("odd.img");
    fs::write(&odd, [0; 5120]).expect("a file");
    let disk = format!("sda=file:{},logical_block_size=4096", odd.display());
    let Ended { code, stderr, .. } = attempt(&folder, &["serve", "--disk", &disk]);
    assert_eq!(code, Some(2), "{stderr}");
    assert!(stderr.contains("sda: logical_block_size=4096: its size of 5120 bytes"), "{stderr}");
}

const RULES: &str = r#"
ACTION=="add|change", KERNEL=="sd[a-z]*", ATTR{queue/rotational}=="0", \
  ATTR{queue/nr_requests}="64", ATTR{queue/scheduler}="kyber"
KERNEL=="sdb", ATTR{queue/iosched/read_lat_nsec}="1000000", ATTR{queue/frob}="1"
FROB=="x"
"#;

#[test]
fn rules_hold_at_the_start_and_a_failing_write_stops_nothing() {
    let folder = Folder::new();
    put(&folder, "weir-data/rules.d/60-disks.rules", RULES);
    put(&folder, "weir-data/rules.d/60-disks.rules.off", "not a rule");
    let disks = ["--disk", "sda=ram:1M", "--disk", "sdb=ram:1M", "--disk", "vda=ram:1M,queues=1"];
    let daemon = Daemon::spawn(serve(&folder, &disks));
    assert_eq!(scheduler(&folder, "sda"), "kyber");
    assert_eq!(read(&folder, "block/sda/queue/nr_requests"), "64");
    assert_eq!(scheduler(&folder, "sdb"), "kyber");
    assert_eq!(read(&folder, "block/sdb/queue/iosched/read_lat_nsec"), "1000000");
    assert_eq!(scheduler(&folder, "vda"), "mq-deadline");
    let said = daemon.stop();
    for part in ["60-disks.rules:5: unknown key FROB", "ENOENT", "60-disks.rules:4)"] {
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
}

#[test]
fn a_trial_says_which_rules_match_and_sets_nothing() {
    let folder = Folder::new();
    put(&folder, "trial/60-disks.rules", &RULES.replace("FROB==\"x\"\n", ""));
    let daemon = Daemon::start(&folder, &["sda=ram:1M,queues=1", "vda=ram:1M"]);
    let text = told(&folder, &["udev", "test", "--rules", "trial", "sda"]);
    let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part:?} is not in {text}"));
    at("trial/60-disks.rules:2: ACTION==\"add|change\"");
    assert!(
        at("would write \"kyber\" to block/sda/queue/scheduler (trial/60-disks.rules:2)")
            < at("would write \"64\" to block/sda/queue/nr_requests")
    );
    assert_eq!(scheduler(&folder, "sda"), "mq-deadline", "nothing is set");
    let text = told(&folder, &["udev", "test", "--rules", "trial", "vda"]);
    assert_eq!(text, "no rule matches vda\n");
    let words = ["udev", "test", "--rules", "trial", "--json", "--action", "change", "sda"];
    let json: Value = serde_json::from_str(&told(&folder, &words)).expect("JSON");
    assert_eq!(json["writes"][0]["value"], "kyber", "{json}");
    put(&folder, "trial/70-bad.rules", "KERNEL=\"sda\"\n");
    for (words, part) in [
        (&["udev", "test", "--rules", "trial", "sda"][..], "trial/70-bad.rules:1: KERNEL does not"),
        (&["udev", "test", "--rules", "trial", "sdz"], "ENOENT"),
        (&["udev", "test", "--rules", "none", "sda"], "none: No such file"),
        (&["udev", "test", "sda"], "no rules: give --rules"),
        (&["serve", "--rules", "none", "--disk", "a=ram:1M"], "none: No such file"),
    ] {
        let Ended { code, stderr, .. } = attempt(&folder, words);
        assert_eq!(code, Some(2), "{words:?}: {stderr}");
        assert!(stderr.contains(part), "{words:?}: {stderr}");
    }
    daemon.stop();
}

/// Writes of which some would be refused, and some only because of those before them.
const REFUSED: &str = r#"
ATTR{queue/scheduler}="bfq", ATTR{queue/iosched/slice_idle}="0", ATTR{queue/iosched/low_latency}="x"
ATTR{queue/iosched/fifo_batch}="1", ATTR{queue/nr_requests}="200", ATTR{queue/nomerges}="2"
ATTR{queue/frob}="1", ATTR{ro}="1", ATTR{size}="8", ATTR{queue/max_sectors_kb}="3"
ATTR{weir/queues}="200", ATTR{queue/wbt_lat_usec}="x", ATTR{queue/rotational}="1"
ENV{KIND}="slow", RUN+="/bin/true"
"#;

#[test]
fn a_trial_says_which_writes_the_daemon_would_refuse_and_is_right() {
    let folder = Folder::new();
    put(&folder, "trial/60-x.rules", REFUSED);
    let daemon = Daemon::start(&folder, &["sda=ram:1M,queues=1", "sdb=ram:1M,queue_mode=sq"]);
    let words = ["udev", "test", "--rules", "trial"];
    for disk in ["sda", "sdb"] {
        let before = told(&folder, &["get", &format!("block/{disk}/queue/*")]);
        let ended = attempt(&folder, &[&words[..], &["--json", disk]].concat());
        assert_eq!(ended.code, Some(1), "{ended:?}");
        let shown = attempt(&folder, &[&words[..], &[disk]].concat());
        assert_eq!(told(&folder, &["get", &format!("block/{disk}/queue/*")]), before, "as it was");
        let plan: Value = serde_json::from_str(&ended.stdout).expect("JSON");
        let writes = plan["writes"].as_array().expect("a list");
        assert_eq!(writes.len(), 13, "{plan}");
        // The daemon does what the trial says, in that order.
        for write in writes {
            let text = |key: &str| write[key].as_str().expect("text");
            let path = format!("block/{disk}/{}", text("name"));
            let Ended { code, stderr, .. } = attempt(&folder, &["set", &path, text("value")]);
            assert_eq!(code == Some(0), write["refused"].is_null(), "{write}: {stderr}");
            if let Some(why) = write["refused"].as_str() {
                assert!(stderr.contains(why), "{why}: {stderr}");
                assert!(
                    shown.stdout.contains(&format!("  would be refused: {why}\n")),
                    "{shown:?}"
                );
            }
        }
        let refused = writes.iter().filter(|write| !write["refused"].is_null()).count();
        assert!((5..12).contains(&refused), "{plan}");
        let told = format!("{disk}: {refused} writes would be refused");
        assert!(ended.stderr.contains(&told), "{ended:?}");
        for part in ["for the rules behind: ENV{KIND}=\"slow\"", "without effect here: RUN="] {
            assert!(shown.stdout.contains(part), "{shown:?}");
        }
        assert_eq!(plan["others"][0]["for_rules"], true, "{plan}");
    }
    put(&folder, "trial/60-x.rules", "ATTR{queue/frob}=\"1\"\n");
    let one = attempt(&folder, &[&words[..], &["sda"]].concat());
    assert!(one.code == Some(1) && one.stderr.contains("sda: 1 write would be refused"), "{one:?}");
    let said = daemon.stop();
    assert_eq!(said.matches("rotational is 1 from now on").count(), 2, "no trial: {said}");
}

/// Disks that have other schedulers than the rules that come with weir choose.
const OF_PACKAGES: &str = r#"
kernel_cmdline = "quiet CMDLINE"
[[disk]]
name = "sda"
target = "ram:1MiB,queue_mode=sq,rotational=0"
[[disk]]
name = "sdb"
target = "ram:1MiB,queue_mode=sq,rotational=1,scheduler=noop"
[[disk]]
name = "sdc"
target = "ram:1MiB,queues=1,rotational=1,scheduler=none"
[[disk]]
name = "sdd"
target = "ram:1MiB,queues=2,rotational=0,scheduler=kyber"
[[disk]]
name = "sde"
target = 'ram:1MiB,queue_mode=sq,rotational=0,scheduler=noop,kernel_cmdline="elevator=cfq"'
[[disk]]
name = "sdf"
target = "ram:1MiB,queues=1,rotational=0,scheduler=none"
"#;

#[test]
fn the_rules_that_come_with_weir_choose_unless_elevator_does() {
    let rules = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib/rules");
    let io = ["deadline", "cfq", "bfq", "kyber", "noop", "mq-deadline"];
    let ssd = ["deadline", "noop", "none", "mq-deadline", "noop", "mq-deadline"];
    let kept = ["noop", "noop", "none", "kyber", "noop", "none"];
    for (file, cmdline, expected) in [
        ("60-io-scheduler.rules", "", io),
        ("60-io-scheduler.rules", "elevator=noop", ["noop", "noop", io[2], io[3], io[4], io[5]]),
        ("60-ssd-scheduler.rules", "", ssd),
        ("60-ssd-scheduler.rules", "elevator=noop", kept),
    ] {
        let folder = Folder::new();
        let text = fs::read_to_string(format!("{rules}/{file}")).expect("a file of rules");
        put(&folder, &format!("rules/{file}"), &text);
        put(&folder, "weir.toml", &OF_PACKAGES.replace("CMDLINE", cmdline));
        let daemon = Daemon::spawn(serve(&folder, &["-c", "weir.toml", "--rules", "rules"]));
        let disks = ["sda", "sdb", "sdc", "sdd", "sde", "sdf"];
        let found = disks.map(|disk| scheduler(&folder, disk));
        assert_eq!(found, expected, "{file} {cmdline}");
        let line = format!("quiet {cmdline}");
        assert_eq!(read(&folder, "block/sda/weir/kernel_cmdline"), line.trim());
        let own = read(&folder, "block/sde/weir/kernel_cmdline");
        assert_eq!(own, format!("{} elevator=cfq", line.trim()));
        // The trial with the daemon's own file says the same.
        let plan = told(&folder, &["udev", "test", "--rules", "rules", "--json", "sdc"]);
        let plan: Value = serde_json::from_str(&plan).expect("JSON");
        assert_eq!(plan["writes"][0]["value"].as_str() == Some("bfq"), file.contains("-io-"));
        let said = daemon.stop();
        assert!(!said.contains("WARN") && !said.contains("ERROR"), "nothing is wrong: {said}");
    }
}

const CONFIG: &str = r#"
[[disk]]
name = "sda"
target = "ram:1MiB,queues=1,scheduler=mq-deadline,fifo_batch=8"
[[group]]
path = "tenants/a"
weight = 300
[[export]]
name = "a"
disk = "sda"
group = "tenants/a"
"#;

#[test]
fn a_reload_changes_what_may_change_and_names_what_needs_a_restart() {
    let folder = Folder::new();
    put(&folder, "weir.toml", CONFIG);
    let daemon = Daemon::spawn(serve(&folder, &["-c", "weir.toml", "--rules", "."]));
    let reload = || told(&folder, &["set", "--reload"]);
    assert_eq!(reload(), "nothing to change\n");
    let changed = CONFIG.replace("fifo_batch=8", "fifo_batch=4").replace("300", "200\nriops = 500");
    put(&folder, "weir.toml", &changed);
    assert_eq!(
        reload(),
        "changed: group \"tenants/a\": weight 300 -> 200\n\
         changed: group \"tenants/a\": its caps\n\
         changed: block/sda/queue/iosched/fifo_batch 8 -> 4\n"
    );
    assert_eq!(read(&folder, "block/sda/queue/iosched/fifo_batch"), "4");
    assert_eq!(reload(), "nothing to change\n");
    told(&folder, &["set", "block/sda/queue/scheduler", "none"]);
    assert!(reload().starts_with("changed: block/sda/queue/scheduler none -> mq-deadline\n"));
    let more = changed
        .replace("ram:1MiB", "ram:2MiB")
        .replace(",fifo_batch=4", "")
        .replace("name = \"a\"", "name = \"b\"")
        + "[[disk]]\nname = \"sdb\"\ntarget = \"ram:1M\"\n[nbd]\nlisten = [\"unix:x.sock\"]\n";
    put(&folder, "weir.toml", &format!("kernel_cmdline = \"elevator=noop\"\n{more}"));
    let text = reload();
    for part in [
        "the addresses or bounds of [nbd]",
        "kernel_cmdline",
        "export \"a\" has changed",
        "export \"b\" has changed",
        "disk sda differs in more than scheduler and tunables",
        "disk sdb is new",
    ] {
        assert!(text.contains(&format!("needs a restart: {part}\n")), "{part:?} not in {text}");
    }
    let back = "changed: block/sda/queue/iosched/fifo_batch 4 -> 16 (no longer stated)\n";
    assert!(text.ends_with(back), "{text}");
    assert_eq!(reload(), text.replace(back, "nothing to change while it runs\n"));
    daemon.stop();
}

#[test]
fn a_reload_applies_rules_after_the_configuration_and_leaves_what_they_hold() {
    let folder = Folder::new();
    put(&folder, "weir.toml", CONFIG);
    put(&folder, "rules.d/none.txt", "");
    let daemon = Daemon::spawn(serve(&folder, &["-c", "weir.toml", "--rules", "rules.d"]));
    assert_eq!(scheduler(&folder, "sda"), "mq-deadline");
    let rule = "ACTION==\"change\", KERNEL==\"sda\", ATTR{queue/scheduler}=\"kyber\"\n";
    put(&folder, "rules.d/60-x.rules", rule);
    let ended = attempt(&folder, &["set", "--reload"]);
    let switched = "changed: block/sda/queue/scheduler mq-deadline -> kyber (rules.d/60-x.rules:1)";
    assert!(ended.stdout.contains(switched), "{ended:?}");
    assert_eq!(scheduler(&folder, "sda"), "kyber");
    // The tunable in the configuration is of a scheduler that the rule has replaced.
    let note =
        "note: disk sda: fifo_batch=8 does nothing while rules.d/60-x.rules:1 has it use kyber";
    assert!(ended.stdout.contains(note), "{ended:?}");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(told(&folder, &["set", "--reload"]), format!("{note}\nnothing to change\n"));
    put(&folder, "rules.d/60-x.rules", "");
    assert_eq!(
        told(&folder, &["set", "--reload"]),
        "changed: block/sda/queue/scheduler kyber -> mq-deadline\n\
         changed: block/sda/queue/iosched/fifo_batch 16 -> 8\n\
         note: the weight of group \"tenants/a\" does not act on sda: its scheduler mq-deadline \
         does not share by weight; bfq and cfq do\n"
    );
    daemon.stop();
}

/// One disk of this target.
fn one_disk(target: &str) -> String {
    format!("[[disk]]\nname = \"sda\"\ntarget = \"{target}\"\n")
}

#[test]
fn one_reload_restores_all_that_is_stated_also_when_the_scheduler_was_switched_away() {
    let stated = "ram:1MiB,queues=1,scheduler=bfq,slice_idle=0,nr_requests=64,nomerges=1,\
                  io_timeout=500,max_sectors_kb=64";
    for (rule, why) in [("", ""), ("ATTR{queue/scheduler}=\"bfq\"\n", " (./60-x.rules:1)")] {
        let folder = Folder::new();
        put(&folder, "weir.toml", &one_disk(stated));
        put(&folder, "60-x.rules", rule);
        let daemon = Daemon::spawn(serve(&folder, &["-c", "weir.toml", "--rules", "."]));
        let reload = || told(&folder, &["set", "--reload"]);
        assert_eq!(reload(), "nothing to change\n");
        for (file, value) in [
            ("scheduler", "none"),
            ("nomerges", "0"),
            ("io_timeout", "7"),
            ("max_sectors_kb", "128"),
        ] {
            told(&folder, &["set", &format!("block/sda/queue/{file}"), value]);
        }
        assert_eq!(
            reload(),
            format!(
                "changed: block/sda/queue/scheduler none -> bfq{why}\n\
                 changed: block/sda/queue/nr_requests 256 -> 64\n\
                 changed: block/sda/queue/io_timeout 7 -> 500\n\
                 changed: block/sda/queue/iosched/slice_idle 8 -> 0\n\
                 changed: block/sda/queue/max_sectors_kb 128 -> 64\n\
                 changed: block/sda/queue/nomerges 0 -> 1\n"
            )
        );
        assert_eq!(reload(), "nothing to change\n");
        daemon.stop();
    }
}

#[test]
fn what_a_start_takes_a_reload_takes_and_holds_already() {
    let folder = Folder::new();
    let target = "ram:1MiB,queues=1,scheduler=deadline,fifo_batch=0x10,writes_starved=010";
    put(&folder, "weir.toml", &one_disk(target));
    let daemon = Daemon::spawn(serve(&folder, &["-c", "weir.toml"]));
    assert_eq!(read(&folder, "block/sda/queue/iosched/fifo_batch"), "16");
    assert_eq!(read(&folder, "block/sda/queue/iosched/writes_starved"), "8");
    assert_eq!(told(&folder, &["set", "--reload"]), "nothing to change\n");
    daemon.stop();
}

#[test]
fn the_caps_of_a_disk_stay_with_its_clients_until_the_next_start() {
    let folder = Folder::new();
    let plain = one_disk("ram:1MiB");
    put(&folder, "weir.toml", &format!("{plain}riops = 50\n"));
    let daemon = Daemon::spawn(serve(&folder, &["-c", "weir.toml"]));
    put(&folder, "weir.toml", &plain);
    let said = told(&folder, &["set", "--reload"]);
    assert!(said.contains("group \"sda\" is gone"), "{said}");
    assert!(read(&folder, "cgroup/sda/io.max").contains("riops=50"), "its clients are in it");
    daemon.stop();
}

#[test]
fn what_an_edit_brought_goes_when_the_edit_is_undone() {
    let folder = Folder::new();
    let plain = one_disk("ram:1MiB,queues=1");
    put(&folder, "weir.toml", &plain);
    put(&folder, "60-x.rules", "");
    let daemon = Daemon::spawn(serve(&folder, &["-c", "weir.toml", "--rules", "."]));
    let reload = || told(&folder, &["set", "--reload"]);
    let edited = one_disk("ram:1MiB,queues=1,scheduler=kyber,write_lat_nsec=5000,nomerges=2");
    let group = "[[group]]\npath = \"x\"\nweight = 900\nriops = 5\n";
    put(&folder, "weir.toml", &format!("{edited}{group}"));
    put(&folder, "60-x.rules", "ATTR{queue/read_ahead_kb}=\"512\"\n");
    assert_eq!(
        reload(),
        "changed: group \"x\": weight 100 -> 900\n\
         changed: group \"x\": its caps\n\
         changed: block/sda/queue/scheduler mq-deadline -> kyber\n\
         changed: block/sda/queue/read_ahead_kb 128 -> 512 (./60-x.rules:1)\n\
         changed: block/sda/queue/iosched/write_lat_nsec 10000000 -> 5000\n\
         changed: block/sda/queue/nomerges 0 -> 2\n"
    );
    assert_eq!(reload(), "nothing to change\n");
    // The tunable alone goes first: its scheduler stays.
    put(&folder, "weir.toml", &format!("{}{group}", edited.replace(",write_lat_nsec=5000", "")));
    assert_eq!(
        reload(),
        "changed: block/sda/queue/iosched/write_lat_nsec 5000 -> 10000000 (no longer stated)\n"
    );
    put(&folder, "weir.toml", &plain);
    put(&folder, "60-x.rules", "");
    assert_eq!(
        reload(),
        "changed: group \"x\": weight 900 -> 100\n\
         changed: group \"x\": its caps\n\
         changed: block/sda/queue/scheduler kyber -> mq-deadline (no longer stated)\n\
         changed: block/sda/queue/nomerges 2 -> 0 (no longer stated)\n\
         changed: block/sda/queue/read_ahead_kb 512 -> 128 (no longer stated)\n"
    );
    assert_eq!(reload(), "nothing to change\n");
    daemon.stop();
}

#[test]
fn a_rule_for_new_disks_or_one_that_undoes_its_match_holds_over_reloads() {
    for rule in [
        "ACTION==\"add\", ATTR{queue/scheduler}=\"bfq\", ATTR{queue/iosched/slice_idle}=\"0\"\n",
        "ATTR{queue/scheduler}==\"*[mq-deadline]*\", ATTR{queue/scheduler}=\"bfq\", \
         ATTR{queue/iosched/slice_idle}=\"0\"\n",
    ] {
        // A bracket in a pattern begins a class, as in a shell.
        let rule = rule.replace("*[mq-deadline]*", "*[[]mq-deadline]*");
        let folder = Folder::new();
        put(&folder, "weir.toml", &one_disk("ram:1MiB,queues=1,scheduler=mq-deadline"));
        put(&folder, "60-x.rules", &rule);
        let daemon = Daemon::spawn(serve(&folder, &["-c", "weir.toml", "--rules", "."]));
        let reload = || told(&folder, &["set", "--reload"]);
        assert_eq!(scheduler(&folder, "sda"), "bfq", "{rule}");
        assert_eq!(reload(), "nothing to change\n", "{rule}");
        told(&folder, &["set", "block/sda/queue/scheduler", "kyber"]);
        assert_eq!(reload(), "nothing to change\n", "{rule}: it has been applied");
        put(&folder, "60-x.rules", "");
        let back = "changed: block/sda/queue/scheduler kyber -> mq-deadline\n";
        assert_eq!(reload(), back, "{rule}");
        assert_eq!(reload(), "nothing to change\n");
        daemon.stop();
    }
}

#[test]
fn a_reload_of_what_is_wrong_changes_nothing() {
    let folder = Folder::new();
    put(&folder, "weir.toml", CONFIG);
    let daemon = Daemon::spawn(serve(&folder, &["-c", "weir.toml"]));
    for (from, to, part) in [
        ("weight = 300", "weight = 1001", "weight=1001 is outside 1..=1000"),
        ("fifo_batch=8", "frob=8", "unknown option \"frob\""),
        ("[[group]]", "[[group]]\nfrob = 1", "line 6: unknown field `frob`"),
    ] {
        let text = CONFIG.replace("scheduler=mq-deadline", "scheduler=kyber").replace(from, to);
        put(&folder, "weir.toml", &text);
        let Ended { code, stderr, .. } = attempt(&folder, &["set", "--reload"]);
        assert_eq!(code, Some(2), "{stderr}");
        assert!(stderr.contains("EINVAL") && stderr.contains(part), "{stderr}");
        assert_eq!(scheduler(&folder, "sda"), "mq-deadline");
    }
    put(&folder, "weir.toml", &CONFIG.replace("fifo_batch=8", "fifo_batch=-1"));
    let Ended { code, stdout, .. } = attempt(&folder, &["set", "--reload"]);
    assert_eq!(code, Some(1));
    assert!(stdout.contains("fifo_batch \"-1\" is outside 0..="), "{stdout}");
    assert_eq!(read(&folder, "block/sda/queue/iosched/fifo_batch"), "8");
    daemon.stop();
}
