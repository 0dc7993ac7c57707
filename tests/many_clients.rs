//! As many clients as are allowed, and more than there are descriptors for.

#![forbid(unsafe_code)]

mod daemon;

use std::fs;
use std::io::ErrorKind;
use std::process::Command;

use daemon::client::{Client, greeted};
use daemon::outside::{leave_out, mortal};
use daemon::{Daemon, Folder, WEIR};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Connections the server allows by default.
const CONNECTIONS: usize = 1024;

/// `weir serve` on the folder's socket, started under these limits of `RLIMIT_NOFILE`.
fn limited(folder: &Folder, limits: &str) -> Daemon {
    let mut command: Command = mortal("/bin/sh");
    let line = format!(
        "{limits} && exec \"$0\" serve --reactors 2 --disk sda=ram:1MiB --clients-per-peer 1024 \
         --nbd unix:nbd.sock"
    );
    command.args(["-c", &line, WEIR]).current_dir(folder.path());
    command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null());
    Daemon::spawn(command)
}

/// Makes room for the other ends of the connections in this process.
fn room_here(descriptors: u64) -> bool {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    if maximum.is_some_and(|most| most < descriptors) {
        leave_out(&format!("the hard limit is below {descriptors} descriptors"));
        return false;
    }
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).expect("the hard limit");
    true
}

#[track_caller]
fn expect_served(client: &mut Client) {
    assert_eq!(client.read(0, 512).expect("an answer"), Ok(vec![0; 512]));
}

#[test]
fn every_client_that_is_allowed_is_served_though_the_soft_limit_is_low() {
    if !room_here(2 * CONNECTIONS as u64) {
        return;
    }
    let folder = Folder::new();
    let mut daemon = limited(&folder, "ulimit -Sn 256");
    let limits = fs::read_to_string(format!("/proc/{}/limits", daemon.child().id()));
    let limits = limits.expect("a running daemon");
    let line = limits.lines().find(|line| line.starts_with("Max open files")).expect("a limit");
    let [soft, hard] = [3, 4].map(|word| line.split_whitespace().nth(word).expect("a limit"));
    assert_eq!(soft, hard, "{line}");
    let connect = |_| Client::connect(&folder.socket(), "sda");
    let mut clients: Vec<_> = (0..CONNECTIONS).map(connect).collect();
    clients.iter_mut().for_each(expect_served);
    assert!(daemon.descriptors() > CONNECTIONS);
    // One more is turned away, and no other client notices.
    let refused = greeted(&folder.socket()).expect_err("too many").kind();
    let closed = [ErrorKind::UnexpectedEof, ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
    assert!(closed.contains(&refused), "{refused}");
    clients.iter_mut().for_each(expect_served);
    drop(clients);
    let said = daemon.stop();
    assert!(!said.contains("RLIMIT_NOFILE"), "{said}");
    assert!(said.contains("too many") && said.contains("limit=1024"), "{said}");
}

#[test]
fn a_hard_limit_that_is_too_small_is_told_and_those_beyond_it_wait() {
    let folder = Folder::new();
    let daemon = limited(&folder, "ulimit -Sn 40 && ulimit -Hn 60");
    let line = daemon.wait_for(|line| line.contains("RLIMIT_NOFILE=60"));
    assert!(line.contains("WARN") && line.contains("1024"), "{line}");
    let words = line.split_once("room for ").expect("a number").1;
    let room: usize = words.split(' ').next().expect("a number").parse().expect("a number");
    assert!((20..60).contains(&room), "{line}");
    let connect = |_| Client::connect(&folder.socket(), "sda");
    let mut clients: Vec<_> = (0..room - 1).map(connect).collect();
    // These do not fit altogether. A client that does not fit is greeted when another one leaves.
    let late: Vec<_> = (0..4)
        .map(|_| {
            let socket = folder.socket();
            std::thread::spawn(move || expect_served(&mut Client::connect(&socket, "sda")))
        })
        .collect();
    daemon.wait_for(|line| line.contains("accepting connections fails"));
    clients.iter_mut().for_each(expect_served);
    clients.drain(..8).for_each(|client| client.disconnect().expect("an orderly end"));
    late.into_iter().for_each(|client| client.join().expect("a client that is served"));
    clients.iter_mut().for_each(expect_served);
    drop(clients);
    daemon.stop();
}
