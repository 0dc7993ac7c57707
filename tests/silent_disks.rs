//! A daemon whose disks have fallen silent: it is asked to stop, and to change them. The silent
//! server below is another weir that is stopped by a signal.

#![forbid(unsafe_code)]

mod daemon;

use std::io::Write;
use std::time::Duration;

use daemon::client::{Client, request};
use daemon::{Daemon, Folder, weir};
use rustix::process::Signal;

/// The time a stop may take: its limit, and room for a busy machine.
const STOP_MAX: Duration = Duration::from_secs(12);

/// Two disks below, and above them both of these and one of its own.
fn pair(below: &Folder, above: &Folder) -> (Daemon, Daemon) {
    let silent = Daemon::start(below, &["a=ram:1MiB", "b=ram:1MiB"]);
    let disk =
        |name: &str, export: &str| format!("{name}=nbd+unix:{}?{export}", below.socket().display());
    let mut command = weir(above);
    command.arg("serve").arg("--nbd").arg(format!("unix:{}", above.socket().display()));
    command.arg("--control").arg(above.near("control.sock"));
    for disk in [disk("sda", "a"), disk("sdb", "b"), String::from("sdc=ram:1MiB")] {
        command.args(["--disk", &disk]);
    }
    (silent, Daemon::spawn(command))
}

/// Has a read of this disk under way that does not end.
fn read_for_ever(above: &Folder, export: &str) -> Client {
    let mut client = Client::connect(&above.socket(), export);
    client.stream.write_all(&request(0, 0, 1, 0, 4096)).expect("a request");
    client
}

#[test]
fn a_daemon_with_silent_disks_stops_in_time_and_names_each() {
    let (below, above) = (Folder::new(), Folder::new());
    let (silent, mut daemon) = pair(&below, &above);
    silent.signal(Signal::STOP);
    let clients = ["sda", "sdb"].map(|export| read_for_ever(&above, export));
    let mut healthy = Client::connect(&above.socket(), "sdc");
    assert_eq!(healthy.write(0, 0, &[7; 4096]).expect("an answer"), 0);
    // A change that waits for such a disk is given up with the daemon.
    let mut store = weir(&above);
    store.args(["set", "block/sda/queue/scheduler", "kyber"]);
    store.arg("--control").arg(above.near("control.sock"));
    let mut store = store.stderr(std::process::Stdio::null()).spawn().expect("weir set");
    let (status, took) = daemon.terminate();
    silent.signal(Signal::CONT);
    assert!(took <= STOP_MAX, "it took {took:?} to stop");
    assert_eq!(status.code(), Some(1), "{}", daemon.said());
    for disk in ["sda", "sdb"] {
        let text = format!("disk {disk}: 1 request unfinished, the oldest after ");
        assert!(daemon.said().contains(&text), "{}", daemon.said());
    }
    assert!(!daemon.said().contains("disk sdc"), "{}", daemon.said());
    assert!(!store.wait().expect("weir set ends").success());
    drop(clients);
    silent.stop();
}
