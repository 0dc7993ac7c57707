//! Reactors that poll before they sleep: what they serve is the same, what it costs and saves is
//! told, and the rule can be changed while they run.

#![forbid(unsafe_code)]

mod daemon;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use daemon::client::Client;
use daemon::outside::leave_out;
use daemon::words::{attempt, told};
use daemon::{Daemon, Folder, PATIENCE, weir};
use serde_json::Value;

/// A daemon of this configuration and these flags, of one reactor: one that never sleeps leaves the
/// other CPU to the tests beside.
fn start(folder: &Folder, text: &str, flags: &[&str]) -> Daemon {
    start_on("1", folder, text, flags)
}

fn start_on(reactors: &str, folder: &Folder, text: &str, flags: &[&str]) -> Daemon {
    restate(folder, text);
    let mut command = weir(folder);
    command.args(["serve", "-c", "weir.toml", "--reactors", reactors, "--nbd"]);
    command.arg(format!("unix:{}", folder.socket().display())).args(flags);
    Daemon::spawn(command)
}

fn restate(folder: &Folder, text: &str) {
    fs::write(folder.near("weir.toml"), text).expect("a file");
}

/// What a reload of this configuration says.
fn reload(folder: &Folder, text: &str) -> String {
    restate(folder, text);
    told(folder, &["set", "--reload"])
}

const DISK: &str = "[[disk]]\nname = \"sda\"\ntarget = \"ram:64MiB\"\n";

fn with(poll: &str) -> String {
    format!("{DISK}[host]\npoll = \"{poll}\"\n")
}

/// The disk, and an export of it with these keys.
fn export(name: &str, keys: &str) -> String {
    format!("{DISK}{}", another(name, keys))
}

fn another(name: &str, keys: &str) -> String {
    format!("[[export]]\nname = {name:?}\ndisk = \"sda\"\n{keys}")
}

/// What `weir status` has of polling.
fn state(folder: &Folder) -> Value {
    let state = told(folder, &["status", "--json"]);
    serde_json::from_str::<Value>(&state).expect("a document")["polling"].take()
}

/// The rule that each reactor follows now.
fn rules(folder: &Folder) -> Vec<String> {
    let polling = state(folder);
    let reactors = polling["reactors"].as_array().expect("a list").iter();
    let rule = |one: &Value| format!("{} {}", one["poll"], one["share_pct"]).replace('"', "");
    reactors.map(rule).collect()
}

/// Waits until the reactors follow these rules: a client that goes is seen when it comes to it.
fn wait_for_rules(folder: &Folder, expected: &[&str]) {
    let begun = Instant::now();
    while rules(folder) != expected {
        assert!(begun.elapsed() < PATIENCE, "{:?}, not {expected:?}", rules(folder));
    }
}

/// The waits that each reactor has polled.
fn polls(folder: &Folder) -> Vec<u64> {
    let lines = told(folder, &["get", "weir/poll_stat"]);
    let count = |line: &str| line.split([' ', '=']).nth(2).and_then(|count| count.parse().ok());
    lines.lines().map(|line| count(line).expect("a count")).collect()
}

/// A sum over all reactors.
fn counted(folder: &Folder, what: &str) -> u64 {
    let lines = told(folder, &["get", "weir/poll_stat"]);
    let words = lines.split_whitespace().filter_map(|word| word.strip_prefix(what));
    words.map(|count| count.strip_prefix('=').expect("a count").parse::<u64>().expect("it")).sum()
}

/// Writes and reads back so many blocks, one after the other.
fn use_disk(client: &mut Client, blocks: u64) {
    for block in 0..blocks {
        let (offset, byte) = (block % 256 * 4096, (block * 7 + 1) as u8);
        assert_eq!(client.write(0, offset, &[byte; 4096]).expect("an answer"), 0);
        let read = client.read(offset, 4096).expect("an answer").expect("data");
        assert!(read == [byte; 4096], "block {block}");
    }
}

/// Uses the disk until `holds`, for so long as others may keep the machine busy.
fn use_until(folder: &Folder, client: &mut Client, holds: impl Fn(&Folder) -> bool) {
    let begun = Instant::now();
    while !holds(folder) {
        assert!(begun.elapsed() < PATIENCE, "{}", told(folder, &["get", "weir/poll_stat"]));
        use_disk(client, 100);
    }
}

#[test]
fn a_daemon_sleeps_unless_it_is_told_to_poll() {
    let folder = Folder::new();
    let daemon = start(&folder, DISK, &["--poll", "off"]);
    let mut client = Client::connect(&folder.socket(), "sda");
    use_disk(&mut client, 500);
    assert_eq!(told(&folder, &["get", "weir/poll"]), "off\n");
    assert_eq!(counted(&folder, "polls"), 0);
    assert!(!told(&folder, &["status"]).contains("polling"));
    daemon.stop();
}

#[test]
fn polling_serves_the_same_and_tells_its_cost_and_its_gain() {
    for poll in ["adaptive", "always"] {
        let folder = Folder::new();
        let daemon = start(&folder, &with(poll), &[]);
        let mut client = Client::connect(&folder.socket(), "sda");
        use_until(&folder, &mut client, |folder| counted(folder, "met") >= 100);
        assert_eq!(told(&folder, &["get", "weir/poll"]), format!("{poll}\n"));
        assert!(counted(&folder, "polled_us") > 0);
        let state = told(&folder, &["status", "--json"]);
        let state: Value = serde_json::from_str(&state).expect("a document");
        let polling = &state["polling"];
        assert_eq!((&polling["poll"], &polling["share_pct"]), (&poll.into(), &80.into()));
        assert!(polling["met"].as_u64() >= Some(100), "{polling}");
        let screen = told(&folder, &["status"]);
        assert!(screen.contains(&format!("polling {poll}")), "{screen}");
        let frame = attempt(&folder, &["top", "--once"]);
        assert!(frame.stdout.contains(&format!("polling {poll}: ")), "{frame:?}");
        client.disconnect().expect("an orderly end");
        daemon.stop();
    }
}

#[test]
fn a_reload_changes_the_rule_and_a_flag_stands_above_it() {
    let folder = Folder::new();
    let daemon = start(&folder, &with("always"), &["--poll-share", "30"]);
    let mut client = Client::connect(&folder.socket(), "sda");
    use_until(&folder, &mut client, |folder| counted(folder, "met") >= 10);
    let restate = |text: &str| reload(&folder, text);
    assert_eq!(restate(&with("off")), "changed: poll of [host] is off\n");
    assert_eq!(told(&folder, &["get", "weir/poll"]), "off\n");
    // Each reactor takes the order when it comes to it; from then on it polls no wait.
    let begun = Instant::now();
    loop {
        let before = counted(&folder, "polls");
        use_disk(&mut client, 100);
        if counted(&folder, "polls") == before {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "it goes on polling");
    }
    assert_eq!(restate(&with("adaptive")), "changed: poll of [host] is adaptive\n");
    let before = counted(&folder, "met");
    use_until(&folder, &mut client, |folder| counted(folder, "met") >= before + 10);
    let told_share = format!("{}poll_share = 50\n", with("adaptive"));
    assert_eq!(restate(&told_share), "nothing to change\n", "the flag says 30");
    // What is stated no longer goes back to its default.
    assert_eq!(restate(DISK), "changed: poll of [host] is off\n");
    assert_eq!(restate(&with("always")), "changed: poll of [host] is always\n");
    daemon.stop();
}

#[test]
fn the_reactor_of_an_export_that_polls_does_and_another_sleeps() {
    let folder = Folder::new();
    let text = export("quiet", "") + &another("fast", "poll = \"always\"\npoll_share = 7\n");
    let daemon = start_on("2", &folder, &text, &[]);
    // Each connection goes to the reactor with the fewest.
    let mut quiet = Client::connect(&folder.socket(), "quiet");
    let mut fast = Client::connect(&folder.socket(), "fast");
    let here = rules(&folder).iter().position(|rule| rule == "always 7").expect("one polls");
    let is_met = |folder: &Folder| polls(folder)[here] >= 100;
    use_until(&folder, &mut fast, is_met);
    use_disk(&mut quiet, 200);
    assert_eq!(polls(&folder)[1 - here], 0);
    assert_eq!(rules(&folder)[1 - here], "off 80");
    let polling = state(&folder);
    assert_eq!(polling["poll"], "off", "that of the daemon");
    let exports = polling["exports"].as_array().expect("a list");
    assert_eq!(exports.len(), 1, "{polling}");
    let [front, export, poll, share] =
        ["front", "export", "poll", "share_pct"].map(|key| &exports[0][key]);
    assert_eq!((front, export), (&"nbd".into(), &"fast".into()));
    assert_eq!((poll, share), (&"always".into(), &7.into()));
    for (path, value) in [("fast/1/poll", "always"), ("fast/1/poll_share", "7")] {
        assert_eq!(told(&folder, &["get", &format!("nbd/{path}")]), format!("{value}\n"));
    }
    assert_eq!(told(&folder, &["get", "nbd/quiet/0/poll"]), "host\n");
    let screen = told(&folder, &["status"]);
    assert!(screen.contains("polling off, 1 of 2 threads: "), "{screen}");
    assert!(screen.contains("nbd/fast             polling always\n"), "{screen}");
    let frame = attempt(&folder, &["top", "--once"]).stdout;
    assert!(frame.contains("polling on 1 of 2 reactors (always): "), "{frame}");
    // With the last of its clients the reactor sleeps again, whatever it serves beside.
    fast.disconnect().expect("an orderly end");
    wait_for_rules(&folder, &["off 80", "off 80"]);
    let before = polls(&folder);
    let mut next = Client::connect(&folder.socket(), "quiet");
    for client in [&mut quiet, &mut next] {
        use_disk(client, 200);
    }
    assert_eq!(polls(&folder), before);
    daemon.stop();
}

#[test]
fn the_strongest_rule_of_a_reactors_connections_holds_and_in_the_handshake_that_of_the_daemon() {
    let folder = Folder::new();
    let text = export("off", "poll = \"off\"\n")
        + &another("some", "poll = \"adaptive\"\npoll_share = 20\n")
        + &another("part", "poll_share = 30\n")
        + "[host]\npoll = \"always\"\npoll_share = 60\n";
    let daemon = start(&folder, &text, &[]);
    let connect = |name| Client::connect(&folder.socket(), name);
    assert_eq!(rules(&folder), ["always 60"]);
    let off = connect("off");
    assert_eq!(rules(&folder), ["off 60"]);
    let some = [connect("some"), connect("some")];
    assert_eq!(rules(&folder), ["adaptive 20"]);
    // It is greeted, and has chosen no export.
    let newcomer = daemon::client::greeted(&folder.socket()).expect("a greeting");
    assert_eq!(rules(&folder), ["always 60"]);
    drop(newcomer);
    wait_for_rules(&folder, &["adaptive 20"]);
    let part = connect("part");
    assert_eq!(rules(&folder), ["always 30"]);
    assert_eq!(
        reload(&folder, &text.replace("\"always\"", "\"off\"")),
        "changed: poll of [host] is off\n"
    );
    wait_for_rules(&folder, &["adaptive 20"]);
    let [one, other] = some;
    one.disconnect().expect("an orderly end");
    assert_eq!(told(&folder, &["set", "nbd/some/2/delete", "1"]), "");
    wait_for_rules(&folder, &["off 60"]);
    drop((off, other, part));
    daemon.stop();
}

#[test]
fn a_reload_changes_the_rule_of_an_export_under_its_clients() {
    let folder = Folder::new();
    let both = |keys: &str| export("a", keys) + &another("b", "");
    let daemon = start(&folder, &both(""), &[]);
    let mut client = Client::connect(&folder.socket(), "a");
    let other = Client::connect(&folder.socket(), "b");
    use_disk(&mut client, 100);
    assert_eq!(counted(&folder, "polls"), 0);
    let always = both("poll = \"always\"\n");
    assert_eq!(reload(&folder, &always), "changed: poll of export \"a\" is always\n");
    wait_for_rules(&folder, &["always 80"]);
    use_until(&folder, &mut client, |folder| counted(folder, "met") >= 10);
    assert_eq!(told(&folder, &["get", "nbd/a/0/poll"]), "always\n");
    assert_eq!(reload(&folder, &always), "nothing to change\n");
    let adaptive = both("poll = \"adaptive\"\npoll_share = 5\n");
    assert_eq!(
        reload(&folder, &adaptive),
        "changed: poll of export \"a\" is adaptive\n\
         changed: poll_share of export \"a\" is 5\n"
    );
    wait_for_rules(&folder, &["adaptive 5"]);
    // The rest of an export waits for the next start, and its rule does not.
    let closed = both("readonly = true\n");
    assert_eq!(
        reload(&folder, &closed),
        "changed: poll of export \"a\" is that of [host]\n\
         changed: poll_share of export \"a\" is that of [host]\n\
         needs a restart: export \"a\" has changed\n"
    );
    wait_for_rules(&folder, &["off 80"]);
    let before = counted(&folder, "polls");
    use_disk(&mut client, 100);
    assert_eq!(counted(&folder, "polls"), before);
    // That of an export with no client yet is found by those that come.
    assert!(reload(&folder, &always).starts_with("changed: poll of export \"a\" is always\n"));
    drop(client);
    wait_for_rules(&folder, &["off 80"]);
    let client = Client::connect(&folder.socket(), "a");
    assert_eq!(rules(&folder), ["always 80"]);
    drop((client, other));
    daemon.stop();
}

#[test]
fn an_export_that_is_taken_away_or_replaced_takes_its_rule_along() {
    let folder = Folder::new();
    let disk = |name: &str, keys: &str| {
        format!("[[disk]]\nname = {name:?}\npool = \"p\"\ntarget = \"ram:1MiB\"\n{keys}")
    };
    let pool = format!("[[pool]]\nname = \"p\"\n{}", disk("vm1", ""));
    let with = |poll: &str| pool.clone() + &disk("vm2", &format!("poll = {poll:?}\n"));
    let daemon = start(&folder, &with("always"), &[]);
    let mut client = Client::connect(&folder.socket(), "vm2");
    assert_eq!(rules(&folder), ["always 80"]);
    assert!(reload(&folder, &pool).starts_with("changed: "));
    wait_for_rules(&folder, &["off 80"]);
    client.read(0, 4096).expect_err("it is closed");
    assert!(state(&folder)["exports"].as_array().expect("a list").is_empty());
    assert!(reload(&folder, &with("adaptive")).starts_with("changed: "));
    assert_eq!(rules(&folder), ["off 80"]);
    let client = Client::connect(&folder.socket(), "vm2");
    assert_eq!(rules(&folder), ["adaptive 80"]);
    drop(client);
    daemon.stop();
}

/// A daemon with the tree mounted, and its `dev`; `None` where that cannot be done.
fn mounted(reactors: &str, folder: &Folder, text: &str) -> Option<(Daemon, PathBuf)> {
    if !Path::new("/dev/fuse").exists() || !rustix::process::geteuid().is_root() {
        leave_out("mounting needs /dev/fuse and root");
        return None;
    }
    let tree = folder.near("tree");
    fs::create_dir_all(&tree).expect("a folder");
    let flags = ["--tree", tree.to_str().expect("text")];
    Some((start_on(reactors, folder, text, &flags), tree.join("dev")))
}

/// What the only open file of a disk says of polling.
fn told_of_file(folder: &Folder, disk: &str) -> String {
    let file = told(folder, &["ls", &format!("fuse/{disk}")]);
    let of = |key: &str| format!("fuse/{disk}/{}{key}", file.trim_end());
    told(folder, &["get", &of("poll")]) + &told(folder, &["get", &of("poll_share")])
}

#[test]
fn an_open_file_of_a_disk_has_its_reactor_poll_by_the_rule_of_the_disk() {
    let folder = Folder::new();
    let disk = |keys: &str| format!("{DISK}{keys}");
    let always = disk("poll = \"always\"\npoll_share = 7\n");
    let Some((daemon, dev)) = mounted("1", &folder, &always) else { return };
    assert_eq!(rules(&folder), ["off 80"]);
    let file = fs::File::open(dev.join("sda")).expect("a disk");
    wait_for_rules(&folder, &["always 7"]);
    assert_eq!(told_of_file(&folder, "sda"), "always\n7\n");
    let (before, begun) = (counted(&folder, "met"), Instant::now());
    while counted(&folder, "met") < before + 10 {
        assert!(begun.elapsed() < PATIENCE, "{}", told(&folder, &["get", "weir/poll_stat"]));
        file.read_exact_at(&mut [0; 4096], 0).expect("a block");
    }
    // Each opening has its say, and one that is ended none.
    let other = fs::File::open(dev.join("sda")).expect("a disk");
    drop(file);
    let said = reload(&folder, &disk("poll = \"adaptive\"\n"));
    assert!(said.starts_with("changed: poll of export \"sda\" is adaptive\n"), "{said}");
    wait_for_rules(&folder, &["adaptive 80"]);
    assert_eq!(told_of_file(&folder, "sda"), "adaptive\nhost\n");
    let number = told(&folder, &["ls", "fuse/sda"]);
    told(&folder, &["set", &format!("fuse/sda/{}delete", number.trim_end()), "1"]);
    wait_for_rules(&folder, &["off 80"]);
    drop(other);
    let file = fs::File::open(dev.join("sda")).expect("a disk");
    wait_for_rules(&folder, &["adaptive 80"]);
    drop(file);
    wait_for_rules(&folder, &["off 80"]);
    daemon.stop();
}

#[test]
fn the_reactor_that_takes_the_calls_for_files_polls_by_the_rules_of_all_that_are_open() {
    let folder = Folder::new();
    let fast = "[[disk]]\nname = \"fast\"\ntarget = \"ram:1MiB,queues=1\"\n";
    let exports = [("a", "poll = \"always\"\n"), ("b", "")]
        .map(|(name, keys)| format!("[[export]]\nname = {name:?}\ndisk = \"fast\"\n{keys}"));
    // It has a lane on each reactor, and the last one takes the calls.
    let quiet = "[[disk]]\nname = \"sda\"\ntarget = \"ram:1MiB,queues=2\"\npoll = \"off\"\n";
    let host = "[host]\npoll = \"adaptive\"\n";
    let text = format!("{fast}{}{quiet}{host}", exports.concat());
    let Some((daemon, dev)) = mounted("2", &folder, &text) else { return };
    assert_eq!(rules(&folder), ["adaptive 80", "adaptive 80"]);
    let quiet = fs::File::open(dev.join("sda")).expect("a disk");
    wait_for_rules(&folder, &["adaptive 80", "off 80"]);
    // Its only lane is on the other one.
    let fast = fs::File::open(dev.join("fast")).expect("a disk");
    wait_for_rules(&folder, &["always 80", "always 80"]);
    assert_eq!(told_of_file(&folder, "fast"), "always\nhost\n");
    let said = reload(&folder, &text.replace("\"always\"", "\"off\""));
    assert_eq!(said, "changed: poll of export \"a\" is off\n");
    // That of its other export is the host's.
    wait_for_rules(&folder, &["adaptive 80", "adaptive 80"]);
    drop(fast);
    wait_for_rules(&folder, &["adaptive 80", "off 80"]);
    drop(quiet);
    wait_for_rules(&folder, &["adaptive 80", "adaptive 80"]);
    daemon.stop();
}

#[test]
fn a_rule_that_is_none_is_refused_with_its_place() {
    let folder = Folder::new();
    for (text, flags, parts) in [
        (with("on"), &[][..], &["weir.toml", "line 5", "poll=\"on\"", "adaptive"][..]),
        (
            format!("{}poll = \"fast\"\n", export("a", "")),
            &[],
            &["weir.toml", "line 7", "poll=\"fast\" is not one of off, adaptive, always"],
        ),
        (
            format!("{}poll_share = 0\n", export("a", "")),
            &[],
            &["weir.toml", "line 7", "poll_share=0 is outside 1..=100"],
        ),
        (
            format!("{}poll = \"off\"\n{}", DISK, &export("a", "")[DISK.len()..]),
            &[],
            &["weir.toml", "disk \"sda\"", "poll is for the clients of its own export"],
        ),
        (format!("{DISK}[host]\npoll_share = 0\n"), &[], &["line 5", "poll_share=0", "1..=100"]),
        (DISK.into(), &["--poll", "on"], &["--poll", "off, adaptive, always"]),
        (DISK.into(), &["--poll-share", "101"], &["--poll-share", "101", "1..=100"]),
    ] {
        fs::write(folder.near("weir.toml"), text).expect("a file");
        let words = [&["serve", "-c", "weir.toml"][..], flags].concat();
        daemon::words::expect_refused(&folder, &words, parts);
    }
}

#[test]
fn reactors_that_leave_no_cpu_are_told() {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let count = cpus.to_string();
    let folder = Folder::new();
    fs::write(folder.near("weir.toml"), with("always")).expect("a file");
    let mut command = weir(&folder);
    command.args(["serve", "-c", "weir.toml", "--reactors", &count]);
    let said = Daemon::spawn(command).stop();
    let what = format!("poll=always, and reactors={cpus} of {cpus} CPUs never sleep");
    assert!(said.contains(&what), "{said}");
    let daemon = start_on(&count, &folder, &export("a", ""), &[]);
    let said = reload(&folder, &export("a", "poll = \"always\"\n"));
    let what = "note: export \"a\": poll=always, and with as many clients of it reactors=";
    assert!(said.contains(what), "{said}");
    // There can be no client of an export that waits for the next start.
    assert_eq!(
        reload(&folder, &export("a", "")),
        "changed: poll of export \"a\" is that of [host]\n"
    );
    let disk = "[[disk]]\nname = \"sdb\"\ntarget = \"ram:1MiB\"\npoll = \"always\"\n";
    let new = export("a", "") + &another("b", "poll = \"always\"\n") + disk;
    let said = reload(&folder, &new);
    assert!(said.contains("needs a restart: export \"b\" has changed\n"), "{said}");
    assert!(said.contains("needs a restart: disk sdb is new\n"), "{said}");
    assert!(!said.contains("note: "), "{said}");
    daemon.stop();
    let daemon = start_on(&count, &folder, &new, &[]);
    let what = "export \"b\": poll=always, and with as many clients of it reactors=";
    assert!(daemon.stop().contains(what));
}
