//! What signals do to a daemon.

#![forbid(unsafe_code)]

mod daemon;

use std::fs;
use std::time::Duration;

use daemon::client::{Client, READ};
use daemon::{Daemon, Folder, weir};
use rustix::process::Signal;

#[track_caller]
fn expect_served(folder: &Folder) {
    let mut client = Client::connect(&folder.socket(), "");
    assert_eq!(client.read(0, 512).expect("an answer"), Ok(vec![0; 512]));
    client.disconnect().expect("a parting");
}

#[test]
fn a_hangup_without_a_configuration_ends_nothing() {
    let folder = Folder::new();
    let daemon = Daemon::start(&folder, &["sda=ram:1MiB"]);
    daemon.signal(Signal::HUP);
    daemon.wait_for(|line| line.contains("nothing to change"));
    expect_served(&folder);
    daemon.stop();
}

#[test]
fn a_hangup_reloads_the_configuration() {
    let folder = Folder::new();
    let path = folder.near("weir.toml");
    let write = |nr_requests: u16| {
        let target = format!("ram:1MiB,scheduler=mq-deadline,nr_requests={nr_requests}");
        let text = format!("[[disk]]\nname = \"sda\"\ntarget = \"{target}\"\n");
        fs::write(&path, text).expect("a file");
    };
    write(64);
    let mut command = weir(&folder);
    command.arg("serve").arg("-c").arg(&path);
    command.arg("--nbd").arg(format!("unix:{}", folder.socket().display()));
    let daemon = Daemon::spawn(command);
    write(32);
    daemon.signal(Signal::HUP);
    daemon.wait_for(|line| line.contains("block/sda/queue/nr_requests 64 -> 32"));
    // A file that is wrong is told, and all stays as it is.
    fs::write(&path, "[[disk]\n").expect("a file");
    daemon.signal(Signal::HUP);
    daemon.wait_for(|line| line.contains("WARN reload: "));
    expect_served(&folder);
    daemon.stop();
}

#[test]
fn a_stop_takes_no_longer_than_it_is_given() {
    let folder = Folder::new();
    let mut command = weir(&folder);
    command.args(["serve", "--stop-timeout", "1s", "--disk", "sda=ram:64MiB", "--nbd"]);
    command.arg(format!("unix:{}", folder.socket().display()));
    let mut daemon = Daemon::spawn(command);
    // Answers that are not read are waited for.
    let mut client = Client::connect(&folder.socket(), "sda");
    for _ in 0..8 {
        client.send(0, READ, 0, 1 << 20, &[]).expect("a request");
    }
    let mut header = [0; 16];
    std::io::Read::read_exact(&mut client.stream, &mut header).expect("an answer's beginning");
    let (status, took) = daemon.terminate();
    assert_eq!(status.code(), Some(0), "{}", daemon.said());
    assert!(daemon.said().contains("1 clients were cut off"), "{}", daemon.said());
    // A stop without the option gives such a client 2.5 s.
    assert!(took < Duration::from_millis(2400), "it took {took:?} to stop");
}

#[test]
fn a_stop_is_given_a_second_to_an_hour() {
    let folder = Folder::new();
    for time in ["0s", "999ms", "3601s", "soon"] {
        let mut command = weir(&folder);
        command.args(["serve", "--stop-timeout", time]);
        let ended = command.output().expect("weir can be started");
        assert_eq!(ended.status.code(), Some(2), "{time}");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(said.contains("--stop-timeout") && said.contains(time), "{said}");
        assert!(time == "soon" || said.contains("1s..=3600s"), "{said}");
    }
}
