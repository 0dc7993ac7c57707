//! A daemon that starts while portals accept connections and then say nothing: it starts without
//! those paths, and waits for all of them at a time.

#![forbid(unsafe_code)]

mod daemon;

use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use daemon::client::Client;
use daemon::{Daemon, Folder};

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
