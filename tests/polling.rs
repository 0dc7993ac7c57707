//! Reactors that poll before they sleep: what they serve is the same, what it costs and saves is
//! told, and the rule can be changed while they run.

#![forbid(unsafe_code)]

mod daemon;

use std::fs;
use std::time::Instant;

use daemon::client::Client;
use daemon::words::{attempt, told};
use daemon::{Daemon, Folder, PATIENCE, weir};
use serde_json::Value;

/// A daemon of this configuration and these flags.
fn start(folder: &Folder, text: &str, flags: &[&str]) -> Daemon {
    fs::write(folder.near("weir.toml"), text).expect("a file");
    let mut command = weir(folder);
    // One that never sleeps leaves the other CPU to the tests beside.
    command.args(["serve", "-c", "weir.toml", "--reactors", "1", "--nbd"]);
    command.arg(format!("unix:{}", folder.socket().display())).args(flags);
    Daemon::spawn(command)
}

const DISK: &str = "[[disk]]\nname = \"sda\"\ntarget = \"ram:64MiB\"\n";

fn with(poll: &str) -> String {
    format!("{DISK}[host]\npoll = \"{poll}\"\n")
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
    let restate = |text: &str| {
        fs::write(folder.near("weir.toml"), text).expect("a file");
        told(&folder, &["set", "--reload"])
    };
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
fn a_rule_that_is_none_is_refused_with_its_place() {
    let folder = Folder::new();
    for (text, flags, parts) in [
        (with("on"), &[][..], &["weir.toml", "line 5", "`on`", "`adaptive`"][..]),
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
}
