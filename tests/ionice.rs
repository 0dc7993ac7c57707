//! `ionice` on programs that use a disk as a file, and on clients of a UNIX socket: the priority
//! of the process counts where none was given to the client. Counts are the disk's own, of each
//! client, so that nothing depends on how fast the machine is.

#![forbid(unsafe_code)]

mod daemon;

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use daemon::outside::leave_out;
use daemon::program::{A_MOMENT, Running, program};
use daemon::{Daemon, Folder, PATIENCE, weir};
use weir_control::ControlClient;

/// Each request takes half a millisecond, on a disk that says it turns: schedulers wait for the
/// next request of a reader rather than turn to another.
const SLOW: &str = "null:16GiB,latency_us=500,queues=1,rotational=1";

/// Reads that the reader of the better class is waited for.
const READS: u64 = 1500;

/// Looks again and again until there is an answer.
#[track_caller]
fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(A_MOMENT);
    }
}

/// A daemon with the disk as a file, and a way to its tree.
struct Mounted {
    folder: Folder,
    daemon: Daemon,
    tree: ControlClient,
    mount: PathBuf,
}

impl Mounted {
    /// `None` where this user may not mount.
    fn begin(scheduler: &str) -> Option<Mounted> {
        let may = rustix::process::geteuid().is_root()
            && fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok();
        if !may {
            return None;
        }
        let folder = Folder::new();
        let mount = folder.near("tree");
        fs::create_dir(&mount).expect("a folder");
        let mut serve = weir(&folder);
        serve.args(["serve", "--tree"]).arg(&mount);
        serve.arg("--nbd").arg(format!("unix:{}", folder.socket().display()));
        let mode = if scheduler == "cfq" { "sq" } else { "mq" };
        // As long as a reader on a busy machine may take until its next request.
        let idle = "slice_idle=500";
        let disk = format!("sda={SLOW},queue_mode={mode},scheduler={scheduler},{idle}");
        serve.args(["--disk", &disk]);
        let daemon = Daemon::spawn(serve);
        let tree =
            ControlClient::connect(&folder.near("weir-data/control.sock")).expect("a daemon");
        Some(Mounted { folder, daemon, tree, mount })
    }

    /// A program that reads the disk's file one request after another, as long as it is let.
    fn reader(&self, ionice: &[&str]) -> Running {
        let mut dd = program("ionice");
        dd.args(ionice).arg("dd").arg(format!("if={}", self.mount.join("dev/sda").display()));
        Running::start({
            dd.args(["of=/dev/null", "bs=4k", "iflag=direct"]);
            dd
        })
    }

    /// What the clients of a kind have as their priority, with the reads of each, once there are so
    /// many that have read.
    fn clients(&mut self, kind: &str, count: usize) -> Vec<(String, u64)> {
        until(&format!("there are no {count} clients that have read"), || {
            let folder = format!("{kind}/sda");
            let names = self.tree.list(&folder).expect("a folder");
            let mut seen: Vec<(String, u64)> = Vec::new();
            for name in names {
                let mut read = |file: &str| self.tree.read(&format!("{folder}/{}/{file}", name.0));
                // A client that has left meanwhile is none.
                let (Ok(priority), Ok(ios)) = (read("ioprio"), read("ios")) else { continue };
                seen.push((priority.trim().into(), ios.trim().parse().expect("a number")));
            }
            seen.retain(|(_, ios)| *ios > 0);
            seen.sort();
            (seen.len() >= count).then_some(seen)
        })
    }

    /// The reads of the client of this priority by the time the other has made [`READS`] more.
    fn reads_beside(&mut self, priority: &str, other: &str) -> u64 {
        let of = |seen: &[(String, u64)], priority: &str| {
            let known = seen.iter().find(|(known, _)| known == priority);
            known.unwrap_or_else(|| panic!("{priority} is not in {seen:?}")).1
        };
        let before = self.clients("fuse", 2);
        until("the better class reads too little", || {
            let now = self.clients("fuse", 2);
            let is_over = of(&now, other) >= of(&before, other) + READS;
            is_over.then(|| of(&now, priority) - of(&before, priority))
        })
    }
}

#[test]
#[ignore = "needs ionice, dd and /dev/fuse"]
fn an_idle_reader_of_the_disks_file_waits_for_one_of_the_best_level() {
    for scheduler in ["cfq", "bfq"] {
        let Some(mut here) = Mounted::begin(scheduler) else { return leave_out("needs /dev/fuse") };
        let first = here.reader(&["-c2", "-n0"]);
        let idle = here.reader(&["-c3"]);
        let reads = here.reads_beside("idle", "best-effort: prio 0");
        println!("{scheduler}: {reads} reads of the idle class beside {READS}");
        assert!(reads < READS / 10, "{scheduler}: {reads} beside {READS}");
        // Alone it has the disk.
        first.signal(rustix::process::Signal::KILL);
        drop(first);
        let of_idle = |seen: Vec<(String, u64)>| {
            seen.into_iter().filter(|(known, _)| known == "idle").map(|(_, ios)| ios).sum::<u64>()
        };
        let before = of_idle(here.clients("fuse", 1));
        until("the idle class has nothing, alone on the disk", || {
            (of_idle(here.clients("fuse", 1)) >= before + READS / 10).then_some(())
        });
        drop(idle);
        here.daemon.stop();
        drop(here.folder);
    }
}

#[test]
#[ignore = "needs ionice, dd and /dev/fuse"]
fn a_priority_that_is_given_to_the_client_counts_before_that_of_its_process() {
    let Some(mut here) = Mounted::begin("bfq") else { return leave_out("needs /dev/fuse") };
    let idle = here.reader(&["-c3"]);
    assert_eq!(here.clients("fuse", 1)[0].0, "idle");
    let name = here.tree.list("fuse/sda").expect("a folder").remove(0).0;
    here.tree.write(&format!("fuse/sda/{name}/class"), b"best-effort").expect("a class");
    here.tree.write(&format!("fuse/sda/{name}/level"), b"2").expect("a level");
    assert_eq!(here.clients("fuse", 1)[0].0, "best-effort: prio 2");
    here.tree.write(&format!("fuse/sda/{name}/class"), b"none").expect("a class");
    assert_eq!(here.clients("fuse", 1)[0].0, "idle");
    drop(idle);
    here.daemon.stop();
    drop(here.folder);
}

#[test]
#[ignore = "needs ionice, fio"]
fn a_client_of_a_unix_socket_has_the_priority_of_its_process_and_follows_it() {
    let Some(mut here) = Mounted::begin("bfq") else { return leave_out("needs /dev/fuse") };
    let mut fio = program("ionice");
    fio.args(["-c2", "-n6", "fio", "--name=client", "--ioengine=nbd", "--rw=randread"]);
    fio.args(["--bs=4k", "--time_based", "--thread", "--size=1g"]);
    fio.arg(format!("--runtime={}", PATIENCE.as_secs()));
    fio.arg(format!("--uri={}", here.folder.uri("sda")));
    let fio = Running::start(fio);
    assert_eq!(here.clients("nbd", 1)[0].0, "best-effort: prio 6");
    let process = fio.pid().as_raw_nonzero().to_string();
    daemon::program::run("ionice", &["-c3", "-p", &process]);
    until("the new priority never counts", || {
        (here.clients("nbd", 1)[0].0 == "idle").then_some(())
    });
    drop(fio);
    here.daemon.stop();
    drop(here.folder);
}
