//! A daemon in use for as long as the environment says: clients of four kinds over TLS and without,
//! some of them killed, while schedulers and numbers of queues change. Memory and descriptors stay
//! flat, what was accepted has ended, and no client that lived sees an error.
//!
//! `WEIR_SOAK=3600` is the soak of `cargo xtask ci long`; the tests take a few seconds of it. Each
//! second is a line of `target/tmp/soak/soak.csv`; the picture beside it shows them.

#![forbid(unsafe_code)]

#[path = "../proto/tls/tests/authority/mod.rs"]
mod authority;
mod daemon;
#[path = "soak/graph.rs"]
mod graph;
#[path = "soak/probe.rs"]
mod probe;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use authority::Authority;
use daemon::program::{A_MOMENT, Noise, Running, checksum, program, python, run};
use daemon::{Daemon, Folder, weir};
use probe::Probe;
use rustix::process::Signal;
use weir_control::ControlClient;

const MIB: u64 = 1 << 20;

/// The length of the soak in the tests, seconds; too short to judge whether figures are flat.
const SHORT: u64 = 12;

/// The length from which flatness can be judged, seconds.
const LONG: u64 = 600;

/// The time before memory and descriptors are compared, seconds: pools and heaps fill up in it.
/// Measured: 309 MiB after 60 s, and from 200 to 540 s between 319 and 325.
const WARM_UP: f64 = 200.0;

/// How much the memory of the last third may be above that of the middle one, KiB and share of it.
/// The first third is left out: heaps fill their gaps more slowly the less the daemon gets done,
/// and on a machine that builds beside the soak that takes 20 minutes. From the middle of one third
/// to the middle of the next a steady leak of 2.5 KiB a second is found in an hour.
const GROWTH_KIB: u64 = 2048;
const GROWTH_PER_CENT: u64 = 1;

/// How long a flush of a file may take. The kernel answers it when the store below the file system
/// has written what it had, which includes whatever other programs wrote to it: on a machine that
/// builds beside the soak, minutes. That is the machine's business and no failure of the daemon;
/// how long the flushes took is in the table. A flush that never comes back is found by this limit
/// too.
const STALL: Duration = Duration::from_secs(600);

/// What the log says, once for each hard queue, when threads do what io_uring's workers should.
const NO_WORKERS: &str = "io_uring's workers did not make the calls";

/// One disk for each kind of client, half of it over TLS and half of it without.
const DISKS: [&str; 4] = ["fio", "python", "copy", "qemu"];
const DISK_MIB: u64 = 64;

/// Those of them that are files.
const FILES: [&str; 2] = ["python", "qemu"];

const SEED: u64 = 20_261_124;

/// The state that all threads share.
struct Soak {
    folder: Folder,
    certificates: authority::Folder,
    began: Instant,
    end: Instant,
    stopped: Mutex<bool>,
    stop: Condvar,
    runs: AtomicU64,
    killed: AtomicU64,
    changes: AtomicU64,
    failed: AtomicBool,
    probes: [Probe; FILES.len()],
}

/// How a client comes in, and its half of the disk.
#[derive(Clone, Copy)]
enum Way {
    Plain,
    Tls,
}

const WAYS: [Way; 2] = [Way::Plain, Way::Tls];

impl Soak {
    /// Whether to go on.
    fn goes_on(&self) -> bool {
        Instant::now() < self.end && !self.failed.load(Ordering::Relaxed)
    }

    /// Waits, no longer than the soak goes on.
    fn pause(&self, length: Duration) {
        let length = length.min(self.end.saturating_duration_since(Instant::now()));
        let stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.stop.wait_timeout_while(stopped, length, |stopped| !*stopped));
    }

    /// A part that fails ends all: the waiting thread is told.
    fn watched(&self, work: impl FnOnce()) {
        struct Watch<'a>(&'a Soak);
        impl Drop for Watch<'_> {
            fn drop(&mut self) {
                if std::thread::panicking() {
                    self.0.failed.store(true, Ordering::Relaxed);
                    *self.0.stopped.lock().unwrap_or_else(PoisonError::into_inner) = true;
                    self.0.stop.notify_all();
                }
            }
        }
        let _watch = Watch(self);
        work();
    }

    fn tls_socket(&self) -> PathBuf {
        self.folder.near("tls.sock")
    }

    fn uri(&self, way: Way, disk: &str) -> String {
        match way {
            Way::Plain => self.folder.uri(disk),
            Way::Tls => format!(
                "nbds+unix:///{disk}?socket={}&tls-certificates={}",
                self.tls_socket().display(),
                self.certificates.path().display()
            ),
        }
    }

    fn control(&self) -> ControlClient {
        let path = self.folder.near("weir-data/control.sock");
        ControlClient::connect(&path).expect("the daemon's control socket")
    }
}

impl Way {
    /// Where its half of a disk begins, MiB.
    fn start_mib(self) -> u64 {
        match self {
            Way::Plain => 0,
            Way::Tls => DISK_MIB / 2,
        }
    }
}

fn serve(folder: &Folder, certificates: &authority::Folder) -> Daemon {
    let mut command = weir(folder);
    command.args(["serve", "--reactors", "4"]);
    command.arg("--stop-timeout").arg(format!("{}s", STALL.as_secs()));
    for disk in DISKS {
        let memory = format!("{disk}=ram:{DISK_MIB}MiB,queues=2");
        let patient = format!(",queues=2,io_timeout={}", STALL.as_millis());
        let file = folder.file_disk(disk, &format!("{DISK_MIB}MiB"), &patient);
        command.arg("--disk").arg(if FILES.contains(&disk) { file } else { memory });
    }
    command.arg("--nbd").arg(format!("unix:{}", folder.socket().display()));
    command.arg("--nbd").arg(format!(
        "unix:{},tls=require,tls_certificates={}",
        folder.near("tls.sock").display(),
        certificates.path().display()
    ));
    Daemon::spawn(command)
}

/// fio writes, reads and checks; weir's own client does where fio cannot name certificates.
fn verified(soak: &Soak, way: Way, noise: &mut Noise) -> Command {
    match way {
        Way::Plain => {
            let mut fio = program("fio");
            fio.args(["--name=soak", "--ioengine=nbd", "--rw=randrw", "--bsrange=512-64k"]);
            fio.args(["--iodepth=16", "--numjobs=2", "--size=8m", "--offset_increment=16m"]);
            fio.args(["--verify=crc32c", "--verify_fatal=1", "--verify_state_save=0"]);
            fio.args(["--fsync=64", "--rate_iops=1000", "--allrandrepeat=1"]);
            fio.arg(format!("--randseed={}", noise.word() >> 1));
            fio.arg(format!("--uri={}", soak.uri(way, "fio")));
            fio
        }
        Way::Tls => {
            let mut bench = weir(&soak.folder);
            bench.args(["bench", "--quiet", "--destroy", "--rw", "randrw", "--bsrange", "512-64k"]);
            bench.args(["--iodepth", "16", "--size", "8M"]);
            bench.args(["--verify", "crc32c", "--rate_iops", "1000", "--offset"]);
            bench.arg(format!("{}M", way.start_mib()));
            bench.arg("--randseed").arg((noise.word() >> 1).to_string());
            bench.arg("--target").arg(soak.uri(way, "fio"));
            bench
        }
    }
}

fn modelled(soak: &Soak, way: Way, noise: &mut Noise) -> Command {
    let mut client = python("soak_client.py");
    client.arg(soak.uri(way, "python"));
    for number in [way.start_mib() * MIB, 8 * MIB, noise.below(1 << 32), 200] {
        client.arg(number.to_string());
    }
    client
}

fn qemu(soak: &Soak, way: Way, noise: &mut Noise) -> Command {
    let mut client = program("qemu-io");
    let socket = match way {
        Way::Plain => soak.folder.socket(),
        Way::Tls => soak.tls_socket(),
    };
    let mut options =
        format!("driver=nbd,server.type=unix,server.path={},export=qemu", socket.display());
    if matches!(way, Way::Tls) {
        let directory = soak.certificates.path().display();
        let object = format!("tls-creds-x509,id=tls,endpoint=client,dir={directory}");
        client.args(["--object", &object]);
        options.push_str(",tls-creds=tls,tls-hostname=localhost");
    }
    client.args(["--image-opts", &options]);
    let at = way.start_mib() + noise.below(16);
    for step in 0..8 {
        let (pattern, at) = (1 + noise.below(255), at * MIB + step * 128 * 1024);
        client.args(["-c", &format!("write -q -P {pattern} {at} 128k")]);
        client.args(["-c", &format!("read -q -P {pattern} {at} 128k")]);
    }
    client.args(["-c", "flush"]);
    client
}

type Make = fn(&Soak, Way, &mut Noise) -> Command;

const KINDS: [Make; 3] = [verified, modelled, qemu];

/// One client after the other until the end; none may see an error.
fn clients(soak: &Soak, make: Make, way: Way, seed: u64) {
    let mut noise = Noise::new(seed);
    while soak.goes_on() {
        let ended = Running::start(make(soak, way, &mut noise)).succeed_within(STALL);
        let said = format!("{}{}", ended.stdout, ended.stderr);
        assert!(!said.contains("verification failed"), "seed {seed}: {said}");
        soak.runs.fetch_add(1, Ordering::Relaxed);
    }
}

/// A whole disk is written and read back by nbdcopy, over TLS every other time.
fn copies(soak: &Soak, source: &Path) {
    let (right, copy) = (checksum(source), soak.folder.image("copied"));
    let (from, to) = (source.display().to_string(), copy.display().to_string());
    for way in WAYS.into_iter().cycle() {
        if !soak.goes_on() {
            return;
        }
        let uri = soak.uri(way, "copy");
        for arguments in [["--flush", &from, &uri].as_slice(), &[&uri, &to]] {
            let mut copy = program("nbdcopy");
            copy.arg("--connections=4").args(arguments);
            Running::start(copy).succeed_within(STALL);
        }
        assert_eq!(checksum(&copy), right, "{uri}");
        soak.runs.fetch_add(1, Ordering::Relaxed);
        soak.pause(Duration::from_millis(500));
    }
}

/// A client that would go on for long, in a part of a disk where no other client checks anything:
/// what a killed client had sent is still done, and may end when the next one has begun.
fn victim(soak: &Soak, way: Way, noise: &mut Noise) -> Command {
    let at = way.start_mib() + 24;
    if noise.below(2) == 0 {
        let mut client = python("soak_client.py");
        client.arg(soak.uri(way, "python"));
        for number in [at * MIB, 8 * MIB, noise.below(1 << 32), 0] {
            client.arg(number.to_string());
        }
        return client;
    }
    let uri = soak.uri(way, "fio");
    let mut client = match way {
        Way::Plain => program("fio"),
        Way::Tls => weir(&soak.folder),
    };
    match way {
        // Its jobs are threads, which end with it.
        Way::Plain => client.args(["--name=victim", "--ioengine=nbd", "--thread"]),
        Way::Tls => client.args(["bench", "--quiet", "--destroy"]),
    };
    client.args(["--rw=randrw", "--bs=64k", "--iodepth=32", "--size=8m", "--rate_iops=2000"]);
    client.args(["--time_based", "--runtime=600s"]).arg(format!("--offset={at}m"));
    client.arg(match way {
        Way::Plain => format!("--uri={uri}"),
        Way::Tls => format!("--target={uri}"),
    });
    client
}

/// One victim after the other, killed somewhere in its work.
fn kills(soak: &Soak, way: Way, seed: u64) {
    let mut noise = Noise::new(seed);
    while soak.goes_on() {
        let mut client = Running::start(victim(soak, way, &mut noise));
        soak.pause(Duration::from_millis(200 + noise.below(2000)));
        assert!(client.is_running(), "seed {seed}: it ended by itself: {:?}", client.end());
        client.signal(Signal::KILL);
        client.end();
        soak.killed.fetch_add(1, Ordering::Relaxed);
    }
}

/// Another scheduler or number of hard queues for one disk, some twice a second.
fn changes(soak: &Soak, seed: u64) {
    let (mut noise, mut client) = (Noise::new(seed), soak.control());
    while soak.goes_on() {
        let disk = DISKS[noise.below(DISKS.len() as u64) as usize];
        let (file, value) = if noise.below(2) == 0 {
            let file = format!("block/{disk}/queue/scheduler");
            let names = client.read(&file).expect("the scheduler of a disk");
            let names: Vec<&str> = names.split_whitespace().collect();
            let name = names[noise.below(names.len() as u64) as usize];
            (file, name.trim_matches(['[', ']']).to_owned())
        } else {
            (format!("block/{disk}/weir/queues"), (1 + noise.below(4)).to_string())
        };
        let written = client.write(&file, value.as_bytes());
        written.unwrap_or_else(|error| panic!("seed {seed}: {value} to {file}: {error}"));
        soak.changes.fetch_add(1, Ordering::Relaxed);
        soak.pause(Duration::from_millis(400 + noise.below(200)));
    }
}

/// Counters in the tree, of all disks together.
#[derive(Clone, Copy, Default)]
struct Counters {
    /// Accepted and not ended (field 9), with the driver (`inflight`), and ended.
    in_flight: u64,
    in_driver: u64,
    ended: u64,
    clients: u64,
}

fn counters(client: &mut ControlClient) -> Counters {
    let mut sum = Counters::default();
    let numbers = |text: String| -> Vec<u64> {
        text.split_whitespace().map(|number| number.parse().expect("a number")).collect()
    };
    for disk in DISKS {
        let stat = numbers(client.read(&format!("block/{disk}/stat")).expect("the statistics"));
        sum.ended += stat[0] + stat[4] + stat[11] + stat[15];
        sum.in_flight += stat[8];
        let inflight = client.read(&format!("block/{disk}/inflight")).expect("the gauges");
        sum.in_driver += numbers(inflight).iter().sum::<u64>();
        sum.clients += client.list(&format!("nbd/{disk}")).expect("the clients").len() as u64;
    }
    sum
}

/// One line of the table.
struct Sample {
    second: f64,
    resident_kib: u64,
    descriptors: u64,
    counters: Counters,
    /// The longest flush of a file that ended or waited since the sample before.
    flush_ms: u64,
}

fn sample(daemon: &Daemon, client: &mut ControlClient, soak: &Soak) -> Sample {
    // Asked first: a connection that is not taken yet is no descriptor of the daemon.
    let counters = counters(client);
    let (resident_kib, descriptors) = (daemon.resident_kib(), daemon.descriptors() as u64);
    let flush_ms = soak.probes.iter().map(Probe::longest_ms).max().unwrap_or_default();
    let second = soak.began.elapsed().as_secs_f64();
    Sample { second, resident_kib, descriptors, counters, flush_ms }
}

/// A sample each second until the end; the table grows as it goes on.
fn samples(soak: &Soak, daemon: &Daemon, table: &Path) -> Vec<Sample> {
    let mut client = soak.control();
    let (mut taken, mut last) = (Vec::new(), Instant::now());
    let mut text = String::from(
        "second,resident_kib,descriptors,clients,in_flight,in_driver,ended,runs,killed,changes,\
         longest_flush_ms\n",
    );
    while soak.goes_on() {
        let one = sample(daemon, &mut client, soak);
        let Sample { second, resident_kib, descriptors, counters, flush_ms } = &one;
        let Counters { in_flight, in_driver, ended, clients } = counters;
        write!(text, "{second:.1},{resident_kib},{descriptors},{clients},{in_flight},")
            .expect("memory");
        let [runs, killed, changes] =
            [&soak.runs, &soak.killed, &soak.changes].map(|count| count.load(Ordering::Relaxed));
        writeln!(text, "{in_driver},{ended},{runs},{killed},{changes},{flush_ms}").expect("memory");
        taken.push(one);
        if last.elapsed() > Duration::from_secs(30) || taken.len() < 3 {
            fs::write(table, &text).expect("room for the table");
            last = Instant::now();
        }
        soak.pause(Duration::from_secs(1));
    }
    fs::write(table, text).expect("room for the table");
    taken
}

/// The number in the middle.
fn median(mut numbers: Vec<u64>) -> u64 {
    numbers.sort_unstable();
    numbers[numbers.len() / 2]
}

/// Medians of the thirds of what comes after the warm-up.
fn thirds(samples: &[Sample], figure: fn(&Sample) -> u64) -> [u64; 3] {
    let warm = &samples[samples.partition_point(|sample| sample.second < WARM_UP)..];
    let third = warm.len() / 3;
    [&warm[..third], &warm[third..2 * third], &warm[2 * third..]]
        .map(|part| median(part.iter().map(figure).collect()))
}

#[track_caller]
fn expect_flat(samples: &[Sample]) {
    let [early, middle, late] = thirds(samples, |sample| sample.resident_kib);
    println!("resident, median of each third: {early} KiB, {middle} KiB, {late} KiB");
    let most = middle + GROWTH_KIB.max(middle * GROWTH_PER_CENT / 100);
    assert!(late <= most, "{late} KiB resident in the last third, {middle} in the middle one");
    // Clients come and go: what each connection needs is no growth.
    let [early, _, late] = thirds(samples, |sample| sample.descriptors - sample.counters.clients);
    println!("descriptors beside those of clients: {early} in the first third, {late} in the last");
    assert!(late <= early + 4, "{late} descriptors in the last third, {early} in the first");
}

/// All disks as they began, without a client, and nothing on its way.
#[track_caller]
fn expect_balance(soak: &Soak, daemon: &Daemon, before: &Sample) {
    let mut client = soak.control();
    for disk in DISKS {
        for (file, value) in [("weir/queues", "2"), ("queue/scheduler", "none")] {
            let path = format!("block/{disk}/{file}");
            client.write(&path, value.as_bytes()).expect("a value it had");
        }
    }
    let asked = Instant::now();
    let after = loop {
        let after = sample(daemon, &mut client, soak);
        let Counters { in_flight, in_driver, clients, .. } = after.counters;
        let idle = in_flight + in_driver + clients == 0;
        if idle && after.descriptors <= before.descriptors {
            break after;
        }
        let waited = asked.elapsed();
        assert!(
            waited < STALL,
            "after {waited:?} without clients: {in_flight} in flight, {in_driver} with drivers, \
             {clients} clients, {} descriptors of {} before",
            after.descriptors,
            before.descriptors
        );
        std::thread::sleep(A_MOMENT);
    };
    println!(
        "{} I/Os, all ended; without clients {} KiB and {} descriptors, before {} and {}",
        after.counters.ended,
        after.resident_kib,
        after.descriptors,
        before.resident_kib,
        before.descriptors
    );
}

fn seconds() -> u64 {
    let told = std::env::var("WEIR_SOAK").ok();
    told.map_or(SHORT, |text| text.parse().expect("WEIR_SOAK is a number of seconds"))
}

#[test]
#[ignore = "needs fio, qemu-io, nbdcopy, libnbd for Python"]
fn a_daemon_in_mixed_use_stays_as_it_was() {
    let (folder, certificates) = (Folder::new(), Authority::new().folder());
    let (mut daemon, length) = (serve(&folder, &certificates), seconds());
    let output = Path::new(env!("CARGO_TARGET_TMPDIR")).join("soak");
    fs::create_dir_all(&output).expect("a folder for the table");
    let source = folder.image("source");
    Noise::new(SEED).write_file(&source, DISK_MIB * MIB);
    // Memory that is given to disks at their first write is not what is looked for.
    for disk in DISKS {
        run("nbdcopy", &[&source.display().to_string(), &folder.uri(disk)]);
    }
    let began = Instant::now();
    let soak = Soak {
        folder,
        certificates,
        began,
        end: began + Duration::from_secs(length),
        stopped: Mutex::new(false),
        stop: Condvar::new(),
        runs: AtomicU64::new(0),
        killed: AtomicU64::new(0),
        changes: AtomicU64::new(0),
        failed: AtomicBool::new(false),
        probes: Default::default(),
    };
    println!("{length} s, seed {SEED}");
    let mut control = soak.control();
    let before = sample(&daemon, &mut control, &soak);
    let (one, source) = (&soak, source.as_path());
    let taken = std::thread::scope(|scope| {
        for (index, way) in WAYS.into_iter().enumerate() {
            let seed = SEED + 100 * index as u64;
            for (kind, make) in KINDS.into_iter().enumerate() {
                scope.spawn(move || one.watched(|| clients(one, make, way, seed + kind as u64)));
            }
            scope.spawn(move || one.watched(|| kills(one, way, seed + 50)));
        }
        for (probe, disk) in one.probes.iter().zip(FILES) {
            scope.spawn(move || one.watched(|| probe.run(one, disk)));
        }
        scope.spawn(|| one.watched(|| copies(one, source)));
        scope.spawn(|| one.watched(|| changes(one, SEED + 1000)));
        samples(one, &daemon, &output.join("soak.csv"))
    });
    let picture = graph::drawn(&taken);
    fs::write(output.join("soak.svg"), picture).expect("room for the picture");
    // The daemon closes a control connection that says nothing for long.
    drop(control);
    expect_balance(&soak, &daemon, &before);
    let [runs, killed, changes] =
        [&soak.runs, &soak.killed, &soak.changes].map(|count| count.load(Ordering::Relaxed));
    let longest = taken.iter().map(|sample| sample.flush_ms).max().unwrap_or_default();
    println!("the longest flush of a file took {longest} ms");
    println!("{runs} clients ended well, {killed} were killed, {changes} changes of a disk");
    assert!(runs > 0 && killed > 0 && changes > 0, "not everything was there");
    if length >= LONG {
        expect_flat(&taken);
    }
    let (status, _) = daemon.terminate();
    let said = daemon.said();
    assert_eq!(status.code(), Some(0), "{said}");
    let odd = said.lines().filter(|line| line.contains("WARN") || line.contains("ERROR"));
    // Its images are new.
    let odd = odd.filter(|line| !line.contains("a new file without data was made"));
    // The kernel left calls of a ring undone, and the disk went on without workers: told, and no
    // failure of the daemon.
    let (mended, odd): (Vec<_>, Vec<_>) = odd.partition(|line| line.contains(NO_WORKERS));
    mended.iter().for_each(|line| println!("the daemon went on: {line}"));
    assert!(odd.is_empty(), "{odd:#?}");
}

/// A soak of so many seconds with these figures, by the second.
fn made_up(length: u64, figures: impl Fn(u64) -> (u64, u64)) -> Vec<Sample> {
    let sample = |second| {
        let (resident_kib, descriptors) = figures(second);
        let counters = Counters { clients: second % 7, ..Counters::default() };
        let descriptors = descriptors + counters.clients;
        Sample { second: second as f64, resident_kib, descriptors, counters, flush_ms: 0 }
    };
    (0..length).map(sample).collect()
}

#[test]
fn memory_that_is_given_back_and_descriptors_of_clients_are_no_growth() {
    // It fills up in the warm-up, and swings afterwards.
    expect_flat(&made_up(600, |second| (200_000 + 1_000 * second.min(200) + second % 5 * 900, 40)));
}

#[test]
#[should_panic(expected = "resident in the last third")]
fn memory_that_grows_for_good_is_found() {
    expect_flat(&made_up(600, |second| (200_000 + 20 * second, 40)));
}

#[test]
#[should_panic(expected = "descriptors in the last third")]
fn descriptors_that_are_not_given_back_are_found() {
    expect_flat(&made_up(600, |second| (200_000, 40 + second / 50)));
}
