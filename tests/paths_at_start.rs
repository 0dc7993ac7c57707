//! A daemon that starts while paths are down: it waits for all of them at a time, serves what the
//! others lead to, and takes those that can be recognised in as soon as they answer.

#![forbid(unsafe_code)]

mod daemon;
mod fabric;

use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use daemon::client::Client;
use daemon::{Daemon, Folder};
use fabric::{Fabric, MIB};

const SILENT: usize = 8;
const TARGET: &str = "iqn.2024-01.test:silent";

/// A multipath disk for each portal, over the unit behind it and memory.
fn disks(portals: &[TcpListener], login_timeout_s: u64) -> Vec<String> {
    let each = portals.iter().enumerate().flat_map(|(number, portal)| {
        let address = portal.local_addr().expect("an address");
        let login = format!("login_timeout={login_timeout_s}");
        [
            format!("m{number}=multipath:s{number}+r{number}"),
            format!("s{number}=iscsi://{address}/{TARGET}/1,{login}"),
            format!("r{number}=ram:8MiB"),
        ]
    });
    each.collect()
}

/// Sockets to which the kernel connects, with nothing behind them.
fn portals() -> Vec<TcpListener> {
    (0..SILENT).map(|_| TcpListener::bind("127.0.0.1:0").expect("a port")).collect()
}

#[track_caller]
fn start(folder: &Folder, disks: &[String]) -> Daemon {
    let disks: Vec<&str> = disks.iter().map(String::as_str).collect();
    Daemon::start(folder, &disks)
}

#[test]
fn a_daemon_asks_all_portals_before_it_has_waited_for_one() {
    let (folder, portals) = (Folder::new(), portals());
    let disks = disks(&portals, 5);
    let daemon = std::thread::scope(|scope| {
        // None is let go before all of them have been asked.
        scope.spawn(|| {
            let accept = |portal: &TcpListener| portal.accept().expect("a connection").0;
            let asked: Vec<TcpStream> = portals.iter().map(accept).collect();
            drop(asked);
        });
        start(&folder, &disks)
    });
    for number in 0..SILENT {
        let left_out = format!("disk m{number} starts without this path");
        let said = daemon.wait_for(|line| line.contains(&left_out));
        assert!(!said.contains("does not answer in time"), "{said}");
        let mut client = Client::connect(&folder.socket(), &format!("m{number}"));
        assert_eq!(client.write(0, 0, &[7; 4096]).expect("an answer"), 0);
    }
    daemon.stop();
}

#[test]
fn eight_silent_portals_cost_the_start_one_login_timeout() {
    let (folder, portals) = (Folder::new(), portals());
    let (disks, limit) = (disks(&portals, 1), Duration::from_secs(1));
    let began = Instant::now();
    let daemon = start(&folder, &disks);
    let took = began.elapsed();
    daemon.wait_for_many(SILENT, |line| line.contains("the target does not answer in time"));
    println!("the start took {took:?}");
    // One after the other they would take eight times as long.
    assert!((limit..4 * limit).contains(&took), "the start took {took:?}");
    daemon.stop();
}

/// A daemon that is started without path a of the disk `sda`.
#[track_caller]
fn start_without_a(fabric: &Fabric) -> Daemon {
    fabric.take_portal(0);
    let daemon = fabric.serve(&fabric.disks("sda", 1, ",failback=immediate"));
    let words = "disk sda starts without this path, and uses it when it answers";
    let said = daemon.wait_for(|line| line.contains(words));
    assert!(said.contains("sdaa: ") && said.contains("refused"), "{said}");
    let mut client = fabric.client("sda");
    assert_eq!(client.size, fabric::UNIT);
    assert_eq!(client.write(0, 0, &[1; 4096]).expect("an answer"), 0);
    assert_eq!(client.read(0, 4096).expect("an answer"), Ok(vec![1; 4096]));
    let status = fabric.status("sda");
    assert!(status.contains(" sdaa F 1 ") && status.contains(" sdab A 0 "), "{status}");
    daemon
}

#[test]
#[ignore = "needs tgtd"]
fn a_path_that_was_down_at_the_start_carries_io_when_it_answers() {
    let Some(fabric) = Fabric::start(2, 1) else { return };
    let daemon = start_without_a(&fabric);
    fabric.give_portal(0);
    daemon.wait_for(|line| line.contains("disk sdaa: ") && line.ends_with("session 0: is there"));
    daemon.wait_for(|line| line.contains("path sdaa is back: its check succeeded"));
    let before = [fabric.listed("sda", 0), fabric.listed("sda", 1)];
    let mut client = fabric.client("sda");
    for at in 0..8 {
        assert_eq!(client.write(0, at * MIB, &[2; 4096]).expect("an answer"), 0);
        assert_eq!(client.read(at * MIB, 4096).expect("an answer"), Ok(vec![2; 4096]));
    }
    let [a, b] = [fabric.listed("sda", 0), fabric.listed("sda", 1)];
    assert!(a.ios >= before[0].ios + 16 && a.errors == before[0].errors, "{a:?}, {before:?}");
    assert_eq!(b, before[1], "it failed back");
    // From now on it is a path as any other.
    fabric.take_portal(0);
    daemon.wait_for(|line| line.contains("disk sdaa: ") && line.contains("lost with"));
    fabric.give_portal(0);
    daemon.wait_for(|line| line.contains("disk sdaa: ") && line.ends_with("session 0: is back"));
    drop(client);
    daemon.stop();
}

#[test]
#[ignore = "needs tgtd"]
fn a_path_that_turns_out_to_lead_to_another_unit_is_never_used() {
    let Some(fabric) = Fabric::start(2, 1) else { return };
    fabric.paths[0].unit_parameters(1, 1, "scsi_id=another");
    let daemon = start_without_a(&fabric);
    fabric.give_portal(0);
    daemon.wait_for(|line| line.contains("sdaa: ") && line.contains("another logical unit 1"));
    let refused = daemon::words::attempt(&fabric.folder, &["get", "block/sdaa/stat"]);
    assert_eq!(refused.code, Some(0), "{refused:?}");
    // Its checks go on, and fail.
    let mut client = fabric.client("sda");
    assert_eq!(client.write(0, 0, &[3; 4096]).expect("an answer"), 0);
    fabric.message("sda", &["reinstate_path", "sdaa"]);
    daemon.wait_for_many(2, |line| line.contains("path sdaa failed: "));
    assert_eq!(client.read(0, 4096).expect("an answer"), Ok(vec![3; 4096]));
    drop(client);
    daemon.stop();
}
