//! A disk over iSCSI and a disk over two paths, whose schedulers are switched while fio writes,
//! reads and checks both over NBD, connections are ended, portals go, and paths fail and come back.
//!
//! `WEIR_SAN_SWITCHES` is the number of switches of all disks together, `WEIR_SAN_SEED` the seed of
//! what goes wrong.

#![forbid(unsafe_code)]

mod daemon;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use daemon::program::{Noise, Running, program};
use daemon::tgtd::{Tgtd, free_port};
use daemon::{Daemon, Folder, PATIENCE, weir};
use serde_json::Value;
use weir_control::ControlClient;

/// Switches of all disks together, unless the environment says otherwise.
const SWITCHES: usize = 60;

/// The modes of a queue with the schedulers that each takes.
const MODES: [(&str, &[&str]); 2] =
    [("sq", &["noop", "deadline", "cfq"]), ("mq", &["none", "mq-deadline", "bfq", "kyber"])];

/// The disks that are loaded and switched, of each mode.
const DISKS: [&str; 2] = ["sda", "mpatha"];

/// The paths of `mpatha`.
const PATHS: [&str; 2] = ["pa", "pb"];

/// I/Os of a disk that end between two of its switches.
const BETWEEN: u64 = 32;

/// Between two looks at how many there were.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

const MIB: u64 = 1 << 20;

const ALONE: &str = "iqn.2024-01.test:alone";
const SHARED: &str = "iqn.2024-01.test:shared";

/// One target behind a portal of its own, and one behind two further portals.
struct San {
    tgtd: Tgtd,
    portals: [u16; 2],
}

impl San {
    fn start(folder: &Folder) -> Option<San> {
        let tgtd = Tgtd::start(&folder.path().display().to_string(), "san")?;
        for (tid, target) in [(1, ALONE), (2, SHARED)] {
            tgtd.target(tid, target);
            tgtd.unit(tid, 1, &tgtd.image(&format!("lun-{tid}"), 64 * MIB), &[]);
        }
        let portals = [0; 2].map(|_| free_port());
        portals.iter().for_each(|portal| tgtd.portal(*portal, true));
        Some(San { tgtd, portals })
    }

    /// Serves both disks in a queue mode.
    fn serve(&self, folder: &Folder, mode: &str) -> Daemon {
        let alone = format!("sda=iscsi://127.0.0.1:{}/{ALONE}/1,queue_mode={mode}", self.tgtd.port);
        let paths = [0, 1].map(|path| {
            let (name, portal) = (PATHS[path], self.portals[path]);
            format!(
                "{name}=iscsi://127.0.0.1:{portal}/{SHARED}/1,queue_mode={mode},\
                 replacement_timeout=0"
            )
        });
        let above = format!(
            "mpatha=multipath:{},queue_mode={mode},no_path_retry=queue,failback=immediate,\
             path_grouping_policy=multibus,path_selector=round-robin,polling_interval=1,\
             max_polling_interval=1,replacement_timeout=5",
            PATHS.join("+")
        );
        let mut command = weir(folder);
        command.args(["serve", "--reactors", "2"]);
        command.arg("--nbd").arg(format!("unix:{}", folder.socket().display()));
        [alone, above].iter().chain(&paths).for_each(|disk| _ = command.args(["--disk", disk]));
        Daemon::spawn(command)
    }
}

/// One fio after the other on a disk, and what they did.
struct Load {
    uri: String,
    figures: PathBuf,
    running: Option<Running>,
    runs: usize,
    /// Reads, writes and flushes that fio had answers to.
    ios: u64,
}

impl Load {
    fn new(folder: &Folder, disk: &str) -> Load {
        let (uri, figures) = (folder.uri(disk), folder.near(&format!("{disk}.json")));
        Load { uri, figures, running: None, runs: 0, ios: 0 }
    }

    /// Begins the next run if there is none, or the last one has ended.
    fn keep_running(&mut self) {
        if self.running.as_mut().is_some_and(Running::is_running) {
            return;
        }
        self.end();
        self.running = Some(fio(&self.uri, &self.figures));
        self.runs += 1;
    }

    /// Waits for the end of the run, and looks at what fio found.
    fn end(&mut self) {
        let Some(running) = self.running.take() else { return };
        running.succeed();
        let said = fs::read_to_string(&self.figures).expect("figures");
        let told: Value = serde_json::from_str(&said).unwrap_or_else(|e| panic!("{e} in {said}"));
        let job = &told["jobs"][0];
        assert_eq!(job["error"], 0, "{said}");
        let of = |direction: &str| job[direction]["total_ios"].as_u64().expect("a figure");
        self.ios += of("read") + of("write") + of("sync");
    }
}

/// Each of its jobs writes and reads its part of the disk, then checks all that it wrote.
fn fio(uri: &str, figures: &Path) -> Running {
    let mut fio = program("fio");
    fio.args(["--name=san", "--ioengine=nbd", "--rw=randrw", "--bsrange=4k-64k"]);
    fio.args(["--bs_unaligned=0", "--iodepth=16", "--numjobs=2", "--size=24m"]);
    fio.args(["--offset_increment=32m", "--verify=crc32c", "--verify_fatal=1"]);
    fio.args(["--verify_state_save=0", "--fsync=64", "--group_reporting"]);
    fio.args(["--output-format=json", &format!("--output={}", figures.display())]);
    fio.arg(format!("--uri={uri}"));
    Running::start(fio)
}

/// The tree of the running daemon.
struct Tree(ControlClient);

impl Tree {
    #[track_caller]
    fn read(&mut self, disk: &str, file: &str) -> String {
        let text = self.0.read(&format!("block/{disk}/{file}"));
        text.unwrap_or_else(|error| panic!("{disk}/{file}: {error}")).trim().to_owned()
    }

    #[track_caller]
    fn write(&mut self, disk: &str, file: &str, value: &str) {
        let written = self.0.write(&format!("block/{disk}/{file}"), value.as_bytes());
        written.unwrap_or_else(|error| panic!("{value} to {disk}/{file}: {error}"));
    }

    /// The fields of `stat`, the first of which is number 0.
    #[track_caller]
    fn stat(&mut self, disk: &str) -> Vec<u64> {
        let stat = self.read(disk, "stat");
        stat.split_whitespace().map(|field| field.parse().expect("a number")).collect()
    }

    /// Reads, writes and flushes that have ended, each by itself. A flush counts as a write.
    #[track_caller]
    fn ended(&mut self, disk: &str) -> u64 {
        let stat = self.stat(disk);
        stat[0] + stat[1] + stat[4] + stat[5]
    }

    /// The scheduler that is shown as the one in use.
    #[track_caller]
    fn scheduler(&mut self, disk: &str) -> String {
        let listed = self.read(disk, "queue/scheduler");
        let used = listed.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
        used.unwrap_or_else(|| panic!("{disk}: {listed}")).0.to_owned()
    }
}

/// What goes wrong and right again, how often.
type Mischief = BTreeMap<&'static str, usize>;

/// A run in one mode.
struct Run<'a> {
    san: &'a San,
    daemon: &'a Daemon,
    tree: Tree,
    noise: Noise,
    mischief: Mischief,
    /// The path that a message has failed.
    failed: Option<&'static str>,
}

impl Run<'_> {
    /// Lines of the log about the sessions at a port, with these words in them.
    fn lines(&self, port: u16, words: &str) -> usize {
        let at = format!("127.0.0.1:{port}/");
        self.daemon.said().lines().filter(|line| is_about(line, &at, words)).count()
    }

    fn count(&mut self, what: &'static str) {
        *self.mischief.entry(what).or_default() += 1;
    }

    /// Lets something go wrong with a disk, or right again, just before it is switched.
    fn go_wrong(&mut self, disk: &str) {
        match (disk, self.noise.below(12)) {
            (_, 0 | 1) => {
                let dropped = self.san.tgtd.drop_connections(if disk == "sda" { 1 } else { 2 });
                *self.mischief.entry("connections ended").or_default() += dropped;
            }
            ("sda", _) => {}
            (_, 2) => self.lose_a_portal(),
            (_, 3..=8) => self.fail_or_reinstate(),
            _ => {}
        }
    }

    /// Waits until the session at a port is there.
    fn wait_for_session(&self, port: u16) {
        let (lost, at) = (self.lines(port, "lost with"), format!("127.0.0.1:{port}/"));
        self.daemon.wait_for_many(lost, |line| is_about(line, &at, "is back"));
    }

    /// Nothing is wrong any more: a disk that cannot be flushed is one of which the daemon says so.
    fn heal(&mut self) {
        if self.failed.is_some() {
            self.fail_or_reinstate();
        }
        let ports = self.san.portals.iter().chain([&self.san.tgtd.port]);
        ports.for_each(|port| self.wait_for_session(*port));
    }

    fn fail_or_reinstate(&mut self) {
        let (message, path) = match self.failed.take() {
            Some(path) => ("reinstate_path", path),
            None => ("fail_path", PATHS[self.noise.below(2) as usize]),
        };
        if message == "fail_path" {
            self.failed = Some(path);
        }
        self.count(message);
        self.tree.write("mpatha", "weir/message", &format!("{message} {path}"));
    }

    /// A portal goes with its sessions, and comes back once the daemon has noticed. Of writes that
    /// were under way no answer can come before that.
    fn lose_a_portal(&mut self) {
        let portal = self.san.portals[self.noise.below(2) as usize];
        let at = format!("127.0.0.1:{portal}/");
        // The daemon says once an outage that it cannot log in.
        self.wait_for_session(portal);
        let fails = self.lines(portal, "cannot log in again");
        self.san.tgtd.portal(portal, false);
        self.count("portals gone");
        if self.san.tgtd.drop_connections(2) > 0 {
            let failed = |line: &str| is_about(line, &at, "cannot log in again");
            self.daemon.wait_for_many(fails + 1, failed);
        }
        self.san.tgtd.portal(portal, true);
    }

    /// Switches both disks in turn, so often each, while fio runs on both.
    fn switch(&mut self, loads: &mut [Load; 2], names: &[&str], switches: usize) {
        let mut last = DISKS.map(|disk| self.tree.ended(disk));
        for switch in 0..switches {
            for (at, disk) in DISKS.into_iter().enumerate() {
                last[at] = self.wait_for_ios(loads, at, last[at]);
                self.go_wrong(disk);
                let name = names[switch % names.len()];
                self.tree.write(disk, "queue/scheduler", name);
                assert_eq!(self.tree.scheduler(disk), name, "{disk}, switch {switch}");
            }
        }
    }

    /// Waits until so many I/Os of a disk have ended.
    fn wait_for_ios(&mut self, loads: &mut [Load; 2], at: usize, before: u64) -> u64 {
        let began = Instant::now();
        loop {
            loads.iter_mut().for_each(Load::keep_running);
            let now = self.tree.ended(DISKS[at]);
            if now >= before + BETWEEN {
                return now;
            }
            let listing = || self.daemon.said();
            assert!(began.elapsed() < PATIENCE, "{} stands still: {}", DISKS[at], listing());
            // Asking takes what fio and the daemon need.
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// At rest every disk has given out what it took in.
    fn balance(&mut self, loads: &[Load; 2]) {
        for (load, disk) in loads.iter().zip(DISKS) {
            assert_eq!(self.tree.ended(disk), load.ios, "I/Os of {disk} and those of fio");
        }
        let began = Instant::now();
        for disk in DISKS.into_iter().chain(PATHS) {
            // A path may be checked just now.
            while let Some(left) = self.left(disk) {
                assert!(began.elapsed() < PATIENCE, "{disk} is left with {left}");
                std::thread::sleep(LOOK_AGAIN);
            }
        }
    }

    /// What a disk has taken in and not given out.
    fn left(&mut self, disk: &str) -> Option<String> {
        let (bios, held) = (self.tree.stat(disk)[8], self.tree.read(disk, "inflight"));
        if bios != 0 || held.split_whitespace().ne(["0", "0"]) {
            return Some(format!("{bios} bios, {held} requests with the driver"));
        }
        if disk == "mpatha" {
            return None;
        }
        let mut count = |file: &str| self.tree.read(disk, &format!("device/{file}"));
        let (sent, ended) = (count("iorequest_cnt"), count("iodone_cnt"));
        (sent != ended).then(|| format!("{sent} commands sent, {ended} ended"))
    }
}

fn is_about(line: &str, at: &str, words: &str) -> bool {
    line.contains(at) && line.contains(words)
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

#[test]
#[ignore = "needs tgtd, fio"]
fn switches_of_all_schedulers_over_a_san_that_fails_lose_nothing() {
    let all = number("WEIR_SAN_SWITCHES").map_or(SWITCHES, |count| count as usize);
    let seed = number("WEIR_SAN_SEED").unwrap_or(1);
    println!("WEIR_SAN_SWITCHES={all} WEIR_SAN_SEED={seed}");
    let each = all.div_ceil(MODES.len() * DISKS.len());
    for (mode, names) in MODES {
        let folder = Folder::new();
        let Some(san) = San::start(&folder) else { return };
        let daemon = san.serve(&folder, mode);
        let control = ControlClient::connect(&folder.near("weir-data/control.sock"));
        let tree = Tree(control.expect("a daemon"));
        let (noise, mischief) = (Noise::new(seed), Mischief::new());
        let mut run = Run { san: &san, daemon: &daemon, tree, noise, mischief, failed: None };
        let mut loads = DISKS.map(|disk| Load::new(&folder, disk));
        let began = Instant::now();
        run.switch(&mut loads, names, each);
        loads.iter_mut().for_each(Load::end);
        run.heal();
        run.balance(&loads);
        for (load, disk) in loads.iter().zip(DISKS) {
            let (Load { runs, ios, .. }, last) = (load, run.tree.scheduler(disk));
            assert_eq!(last, names[(each - 1) % names.len()], "the last one written to {disk}");
            println!("{mode}, {disk}: {each} switches beside {ios} I/Os of {runs} runs of fio");
        }
        println!("{mode}: {:?} in {:?}", run.mischief, began.elapsed());
        drop(run);
        daemon.stop();
    }
}
