//! The shares of clients in a disk: by weight, by class, and under a cap. Counts are the disk's
//! own, of each group; a share is a ratio of counts and a rate a count over a time that was
//! measured, so neither depends on how fast the machine is.

#![forbid(unsafe_code)]

mod daemon;

use std::fs;
use std::io::Read;
use std::time::{Duration, Instant};

use daemon::client::READ;
use daemon::program::{A_MOMENT, Running, program};
use daemon::{Daemon, Folder, PATIENCE, weir};
use weir_control::ControlClient;

/// A device that answers after 50 ms and takes 128 requests, so 2,560 a second at most: few enough
/// for any machine, and clients of depth 256 always have some waiting.
const SLOW: &str = "null:16GiB,latency_us=50000,queues=1,nr_requests=1024";

/// Two clients of different weights, and one of the idle class.
const PEOPLE: &str = r#"
[nbd]
listen = ["unix:nbd.sock"]
[[disk]]
name = "sda"
target = "TARGET"
[[group]]
path = "light"
weight = 100
[[group]]
path = "heavy"
weight = 300
[[group]]
path = "last"
[[export]]
name = "light"
disk = "sda"
group = "light"
[[export]]
name = "heavy"
disk = "sda"
group = "heavy"
[[export]]
name = "last"
disk = "sda"
group = "last"
class = "idle"
"#;

/// A daemon with these people, and a way to its tree.
struct Shared {
    folder: Folder,
    daemon: Daemon,
    tree: ControlClient,
}

impl Shared {
    #[track_caller]
    fn begin(target: &str, people: &str) -> Shared {
        let folder = Folder::new();
        let file = folder.near("weir.toml");
        fs::write(&file, people.replace("TARGET", target)).expect("a file");
        let mut serve = weir(&folder);
        serve.args(["serve", "-c"]).arg(&file);
        let daemon = Daemon::spawn(serve);
        let tree =
            ControlClient::connect(&folder.near("weir-data/control.sock")).expect("a daemon");
        Shared { folder, daemon, tree }
    }

    /// Starts a client that reads at random from an export, with so many requests in flight, for
    /// as long as it is let.
    fn client(&self, export: &str, depth: u32) -> Running {
        let mut fio = program("fio");
        fio.args(["--name=client", "--ioengine=nbd", "--rw=randread", "--bs=4k", "--time_based"]);
        // Of one process, so that it ends with the value.
        fio.arg("--thread");
        fio.args([format!("--iodepth={depth}"), format!("--runtime={}", PATIENCE.as_secs())]);
        fio.arg("--size=8g").arg(format!("--uri={}", self.folder.uri(export)));
        Running::start(fio)
    }

    /// Reads and writes a group had accepted so far.
    #[track_caller]
    fn accepted(&mut self, group: &str) -> u64 {
        let stat = self.tree.read(&format!("cgroup/{group}/io.stat")).expect("a group");
        let counts = stat.split_whitespace().filter_map(|word| {
            let count = word.strip_prefix("rios=").or_else(|| word.strip_prefix("wios="));
            count.map(|count| count.parse::<u64>().expect("a number"))
        });
        counts.sum()
    }

    #[track_caller]
    fn write(&mut self, path: &str, value: &str) {
        let written = self.tree.write(path, value.as_bytes());
        written.unwrap_or_else(|error| panic!("{path}: {error}"));
    }

    /// Looks again and again until `count` is at least so much; what it is then.
    #[track_caller]
    fn wait_for(&mut self, least: u64, mut count: impl FnMut(&mut Shared) -> u64) -> u64 {
        let began = Instant::now();
        loop {
            let now = count(self);
            if now >= least {
                return now;
            }
            assert!(began.elapsed() < PATIENCE, "{now} of {least} after {PATIENCE:?}");
            std::thread::sleep(A_MOMENT);
        }
    }

    /// The counts of these groups while they get so much in all.
    #[track_caller]
    fn counts(&mut self, groups: [&str; 2], sum: u64) -> [u64; 2] {
        let before = groups.map(|group| self.accepted(group));
        let from = before.iter().sum::<u64>();
        self.wait_for(from + sum, |here| groups.map(|group| here.accepted(group)).iter().sum());
        let after = groups.map(|group| self.accepted(group));
        [after[0] - before[0], after[1] - before[1]]
    }

    fn end(self) {
        drop(self.tree);
        self.daemon.stop();
    }
}

/// So many I/Os make a share: some hundred slots of the scheduler.
const A_SHARE: u64 = 16_000;

#[track_caller]
fn expect_ratio(what: &str, [light, heavy]: [u64; 2], wanted: f64) {
    let ratio = heavy as f64 / light as f64;
    println!("{what}: {light} and {heavy}, 1 : {ratio:.3}");
    assert!((ratio / wanted - 1.0).abs() <= 0.05, "{what}: 1 : {ratio:.3}, not 1 : {wanted}");
}

#[test]
#[ignore = "needs fio"]
fn two_clients_before_bfq_share_a_saturated_disk_by_weight_and_by_a_new_one() {
    // Slots of 64 requests: a share is exact to one of them.
    let mut shared =
        Shared::begin(&format!("{SLOW},scheduler=bfq,low_latency=0,max_budget=512"), PEOPLE);
    let clients = ["light", "heavy"].map(|export| shared.client(export, 256));
    for group in ["light", "heavy"] {
        shared.wait_for(1000, |here| here.accepted(group));
    }
    let counts = shared.counts(["light", "heavy"], A_SHARE);
    expect_ratio("weights 100 and 300", counts, 3.0);
    shared.write("cgroup/heavy/io.bfq.weight", "100");
    shared.counts(["light", "heavy"], 2000);
    let counts = shared.counts(["light", "heavy"], A_SHARE / 2);
    expect_ratio("weights 100 and 100", counts, 1.0);
    let share = shared.tree.read("cgroup/heavy/weir.share").expect("a share");
    assert!(share.starts_with("259:0 configured=33.33 reported="), "of three groups: {share}");
    drop(clients);
    shared.end();
}

/// I/Os a second, over the time in which a group gets at least so many.
#[track_caller]
fn rate(shared: &mut Shared, group: &str, least: u64) -> f64 {
    // A reading that took long says little about when it was.
    let read = |shared: &mut Shared| loop {
        let began = Instant::now();
        let count = shared.accepted(group);
        if began.elapsed() < Duration::from_millis(5) {
            return (count, began);
        }
    };
    let (from, began) = read(shared);
    shared.wait_for(from + least, |here| here.accepted(group));
    let (to, ended) = read(shared);
    (to - from) as f64 / (ended - began).as_secs_f64()
}

#[test]
#[ignore = "needs fio"]
fn a_cap_holds_and_is_changed_twice_under_load() {
    let mut shared = Shared::begin("ram:64MiB", PEOPLE);
    shared.write("cgroup/light/io.max", "riops=500");
    let mut fio = program("fio");
    fio.args(["--name=client", "--ioengine=nbd", "--rw=randread", "--bs=4k", "--time_based"]);
    fio.args(["--iodepth=16", "--size=64m", "--runtime=120", "--thread"]);
    fio.arg(format!("--uri={}", shared.folder.uri("light")));
    let client = Running::start(fio);
    shared.wait_for(50, |here| here.accepted("light"));
    for cap in [500, 1500, 300] {
        shared.write("cgroup/light/io.max", &format!("default riops={cap}"));
        let rate = rate(&mut shared, "light", cap * 3);
        println!("a cap of {cap}: {rate:.1} a second");
        assert!((rate / cap as f64 - 1.0).abs() <= 0.02, "{rate:.1} a second, not {cap}");
    }
    shared.write("cgroup/light/io.max", "riops=max");
    assert_eq!(shared.tree.read("cgroup/light/io.max").expect("a group"), "");
    let free = rate(&mut shared, "light", 10_000);
    assert!(free > 2000.0, "{free:.0} a second without a cap");
    drop(client);
    shared.end();
}

/// Two others keep the disk busy; waits until they do.
#[track_caller]
fn busy(shared: &mut Shared) -> [Running; 2] {
    let clients = ["light", "heavy"].map(|export| shared.client(export, 256));
    shared.wait_for(2000, |here| here.accepted("light") + here.accepted("heavy"));
    clients
}

/// Requests the idle client has under way at one time.
const DEPTH: u64 = 8;

/// A client of the idle class that takes the answers one by one.
struct Idler(daemon::client::Client);

impl Idler {
    #[track_caller]
    fn begin(shared: &Shared) -> Idler {
        let mut idler = Idler(daemon::client::Client::connect(&shared.folder.socket(), "last"));
        (0..DEPTH).for_each(|_| idler.ask());
        idler
    }

    #[track_caller]
    fn ask(&mut self) {
        self.0.send(0, READ, 4 << 30, 4096, &[]).expect("a connection");
    }

    /// Takes so many answers, asking anew for each; how many a second that were.
    #[track_caller]
    fn rate(&mut self, count: u64) -> f64 {
        let began = Instant::now();
        for _ in 0..count {
            assert_eq!(self.0.reply().expect("an answer").1, 0, "an error");
            self.0.stream.read_exact(&mut [0; 4096]).expect("a block");
            self.ask();
        }
        count as f64 / began.elapsed().as_secs_f64()
    }
}

/// The least that a client alone gets: its depth every 50 ms, on a machine that does other things.
const ALONE: f64 = 40.0;

#[test]
#[ignore = "needs fio"]
fn an_idle_client_before_bfq_gets_its_floor_while_others_wait_and_then_everything() {
    // All in one group: a group is of no class, and between groups weights alone count.
    let people = PEOPLE.replace("\ngroup = \"heavy\"", "\ngroup = \"light\"");
    let people = people.replace("\ngroup = \"last\"", "\ngroup = \"light\"");
    let target = format!("{SLOW},scheduler=bfq,low_latency=0");
    let mut shared = Shared::begin(&target, &people);
    let others = busy(&mut shared);
    let mut idler = Idler::begin(&shared);
    idler.rate(2);
    let rate = idler.rate(28);
    println!("{rate:.2} a second beside others");
    assert!((3.0..=5.0).contains(&rate), "{rate:.2} a second beside others");
    drop(others);
    idler.rate(DEPTH);
    let rate = idler.rate(200);
    println!("{rate:.0} a second alone");
    assert!(rate > ALONE, "{rate:.0} a second alone");
    shared.end();
}

#[test]
#[ignore = "needs fio"]
fn an_idle_client_before_mq_deadline_waits_until_it_has_aged_or_others_stop() {
    let aged = Duration::from_secs(4);
    let expire = format!("prio_aging_expire={}", aged.as_millis());
    let mut shared = Shared::begin(&format!("{SLOW},scheduler=mq-deadline,{expire}"), PEOPLE);
    let others = busy(&mut shared);
    let began = Instant::now();
    let mut idler = Idler::begin(&shared);
    idler.rate(1);
    println!("the first after {:?}", began.elapsed());
    assert!(began.elapsed() >= aged, "the first after {:?}", began.elapsed());
    idler.rate(DEPTH - 1);
    // In another class it waits no longer than any other client; what it has asked for before does.
    let (names, began) = (shared.tree.list("nbd/last").expect("an export"), Instant::now());
    let class = format!("nbd/last/{}/class", names[0].0);
    shared.write(&class, "best-effort");
    idler.rate(4 * DEPTH);
    println!("{} of another class after {:?}", 4 * DEPTH, began.elapsed());
    assert!(began.elapsed() < 2 * aged, "{:?} for {}", began.elapsed(), 4 * DEPTH);
    shared.write(&class, "idle");
    drop(others);
    idler.rate(2 * DEPTH);
    let rate = idler.rate(200);
    println!("{rate:.0} a second alone");
    assert!(rate > ALONE, "{rate:.0} a second alone");
    shared.end();
}
