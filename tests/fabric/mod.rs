//! Logical units with several paths: one tgtd for each path, all with the same images, so that a
//! path can lose its portal, its connections or its target's answers while the others have theirs.
//! And a load that finds lost and stale blocks: fio and numbered blocks side by side.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::daemon::blocks::{EndsLoad, Job, Past, Progress};
use crate::daemon::client::Client;
use crate::daemon::program::{Running, program};
use crate::daemon::tgtd::Tgtd;
use crate::daemon::words::told;
use crate::daemon::{Daemon, Folder, PATIENCE};

pub const TARGET: &str = "iqn.2024-01.test:paths";
pub const MIB: u64 = 1 << 20;

/// Size of a unit. The numbered blocks are below 4 MiB, fio's regions from 16 MiB on.
pub const UNIT: u64 = 64 * MIB;

/// Options of a path: a target that says nothing is asked after 1 s, and given up 1 s later.
/// Commands then wait for a session for 1 s.
pub const PATH: &str = "replacement_timeout=1,noop_interval=1,noop_timeout=1,login_timeout=5";

/// Options of the disk above that go with them.
pub const ABOVE: &str =
    "nomerges=2,replacement_timeout=1,polling_interval=1,max_polling_interval=1";

/// The time in which the failure of a path is noticed with [`PATH`].
pub const NOTICED: Duration = Duration::from_secs(2);

/// How long a write that may still land waits before it goes down another path: twice the
/// `replacement_timeout`, at least 10 s.
pub const FENCED: Duration = Duration::from_secs(10);

/// Jobs that write numbered blocks.
const JOBS: u64 = 2;

/// The targets of all paths, which are called `a`, `b` and so on.
pub struct Fabric {
    pub folder: Folder,
    images: PathBuf,
    pub paths: Vec<Tgtd>,
    units: u32,
}

impl Fabric {
    /// So many units, each with so many paths. `None` where tgtd is not installed.
    pub fn start(paths: usize, units: u32) -> Option<Fabric> {
        let folder = Folder::new();
        let images = folder.image("units");
        fs::create_dir_all(&images).expect("a folder");
        for unit in 1..=units {
            let image = fs::File::create(images.join(unit.to_string())).expect("an image");
            image.set_len(UNIT).expect("an image");
        }
        let mut fabric = Fabric { folder, images, paths: Vec::new(), units };
        for path in 0..paths {
            let under = fabric.folder.path().display().to_string();
            fabric.paths.push(Tgtd::start(&under, letter(path))?);
            fabric.configure(path);
        }
        Some(fabric)
    }

    fn configure(&self, path: usize) {
        let tgtd = &self.paths[path];
        tgtd.target(1, TARGET);
        for unit in 1..=self.units {
            // What was answered is in the file, whatever becomes of the process.
            tgtd.unit(1, unit, &self.image(unit), &["--bsoflags", "direct"]);
        }
    }

    pub fn image(&self, unit: u32) -> PathBuf {
        self.images.join(unit.to_string())
    }

    /// The disk of one path of a unit.
    pub fn path_disk(&self, name: &str, unit: u32, path: usize) -> String {
        format!("{name}=iscsi://127.0.0.1:{}/{TARGET}/{unit},{PATH}", self.paths[path].port)
    }

    /// The disk `name` over all paths of a unit, and the disks of the paths: `name` with the letter
    /// of the path behind it.
    pub fn disks(&self, name: &str, unit: u32, options: &str) -> Vec<String> {
        let all = 0..self.paths.len();
        let names: Vec<String> = all.clone().map(|path| leg(name, path)).collect();
        let above = format!("{name}=multipath:{},{ABOVE}{options}", names.join("+"));
        let legs = all.map(|path| self.path_disk(&names[path], unit, path));
        [above].into_iter().chain(legs).collect()
    }

    #[track_caller]
    pub fn serve(&self, disks: &[String]) -> Daemon {
        let disks: Vec<&str> = disks.iter().map(String::as_str).collect();
        Daemon::start(&self.folder, &disks)
    }

    #[track_caller]
    pub fn client(&self, disk: &str) -> Client {
        Client::connect(&self.folder.socket(), disk)
    }

    /// Takes a portal away, with the connections it has.
    pub fn take_portal(&self, path: usize) {
        let tgtd = &self.paths[path];
        tgtd.portal(tgtd.port, false);
        tgtd.drop_connections(1);
    }

    pub fn give_portal(&self, path: usize) {
        self.paths[path].portal(self.paths[path].port, true);
    }

    /// Kills the targets of all paths, and starts them again.
    pub fn restart_all(&mut self) {
        self.paths.iter_mut().for_each(Tgtd::kill);
        for path in 0..self.paths.len() {
            self.paths[path].run();
            self.configure(path);
        }
    }

    /// The path of a disk as the tree lists it.
    #[track_caller]
    pub fn listed(&self, disk: &str, path: usize) -> Listed {
        let listing = told(&self.folder, &["get", &format!("block/{disk}/weir/listing")]);
        Listed::find(&listing, &leg(disk, path))
    }

    /// The status line of a disk.
    #[track_caller]
    pub fn status(&self, disk: &str) -> String {
        told(&self.folder, &["map", "status", disk]).trim().to_owned()
    }

    #[track_caller]
    pub fn message(&self, disk: &str, words: &[&str]) {
        told(&self.folder, &[&["map", "message", disk], words].concat());
    }

    /// Requests that a disk has ended: reads, writes and flushes.
    #[track_caller]
    pub fn ended(&self, disk: &str) -> Stat {
        let text = told(&self.folder, &["get", &format!("block/{disk}/stat")]);
        let fields: Vec<u64> = text.split_whitespace().map(|n| n.parse().expect("n")).collect();
        Stat { reads: fields[0], writes: fields[4], flushes: fields[15] }
    }

    /// Each I/O of the disk under load ended on one path without an error, whatever it met before,
    /// and nothing is under way. A flush that was asked for counts as a write of the disk, and
    /// flushes that were asked for together went down as one.
    #[track_caller]
    pub fn check_figures(&self, disk: &str, felt: &Felt) {
        let paths: Vec<_> = (0..self.paths.len()).map(|path| self.listed(disk, path)).collect();
        let Stat { reads, writes, flushes } = self.ended(disk);
        println!("{reads} reads, {writes} writes, {flushes} flushes of {felt:?}; {paths:#?}");
        assert!(paths.iter().all(|path| path.in_flight == 0));
        let ended: u64 = paths.iter().map(|path| path.ios - path.errors).sum();
        assert_eq!(ended, reads + writes - felt.flushes + flushes);
    }
}

/// Requests of a disk, by the fields of its file `stat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    pub reads: u64,
    pub writes: u64,
    pub flushes: u64,
}

/// A line of the listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub state: String,
    pub in_flight: u64,
    pub ios: u64,
    pub errors: u64,
    pub fails: u64,
}

impl Listed {
    #[track_caller]
    fn find(listing: &str, name: &str) -> Listed {
        let words = listing.lines().find_map(|line| line.split_once(&format!("- {name} ")));
        let (_, words) = words.unwrap_or_else(|| panic!("no path {name} in {listing}"));
        let figure = |name: &str| -> u64 {
            let found = words.split(' ').find_map(|word| word.strip_prefix(&format!("{name}=")));
            found.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{name} in {words}"))
        };
        Listed {
            state: words.split(" prio").next().expect("a state").to_owned(),
            in_flight: figure("in_flight"),
            ios: figure("ios"),
            errors: figure("errors"),
            fails: figure("fails"),
        }
    }
}

pub fn letter(path: usize) -> &'static str {
    ["a", "b", "c", "d"][path]
}

/// The name of the disk of a path.
pub fn leg(disk: &str, path: usize) -> String {
    format!("{disk}{}", letter(path))
}

/// The load, as it was.
#[derive(Debug, Default)]
pub struct Felt {
    /// The longest operation.
    pub longest: Duration,
    /// Operations that fio and the jobs saw end.
    pub operations: u64,
    /// Flushes that were asked for.
    pub flushes: u64,
}

/// The blocks of jobs as the load left them.
pub struct Left {
    jobs: Vec<Past>,
    pub felt: Felt,
}

impl Left {
    /// Reads all numbered blocks.
    #[track_caller]
    pub fn verify(&self, client: &mut Client) {
        self.jobs.iter().for_each(|past| past.verify(client));
    }

    /// The same when the daemon has gone, and a write that was given up has done all that it does:
    /// another daemon reads the disk `sda` by its second path alone.
    #[track_caller]
    pub fn verify_below(&self, fabric: &Fabric, daemon: Daemon) {
        daemon.stop();
        let daemon = fabric.serve(&[fabric.path_disk("sda", 1, 1)]);
        self.verify(&mut fabric.client("sda"));
        daemon.stop();
    }
}

/// fio and numbered blocks on the disk `sda` while `act` runs, which is given the progress. No
/// operation fails, and none takes longer than `limit`.
#[track_caller]
pub fn under_load<R>(
    fabric: &Fabric,
    limit: Duration,
    act: impl FnOnce(&Progress) -> R,
) -> (R, Left) {
    let progress = Progress::new(JOBS);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ends = (EndsLoad(&progress), Over(&over));
        let job = |job| Job::new(job, &fabric.folder.socket(), limit + PATIENCE, &progress);
        let jobs: Vec<_> = (0..JOBS).map(job).collect();
        let jobs: Vec<_> = jobs.into_iter().map(|job| scope.spawn(|| job.run())).collect();
        let fio = scope.spawn(|| fio_until(fabric, &over));
        progress.wait_for(20, PATIENCE);
        let result = act(&progress);
        progress.wait_for(20, limit + PATIENCE);
        drop(ends);
        let ended = jobs.into_iter().map(|job| job.join().expect("a job that saw no fault"));
        let jobs: Vec<Past> = ended.collect();
        let mut felt = fio.join().expect("what fio read is what it wrote");
        for Past { seen, .. } in &jobs {
            println!("a job: {seen:?}");
            let failed = (seen.failed_writes, seen.failed_reads, seen.failed_flushes);
            assert_eq!(failed, (0, 0, 0), "{seen:?}");
            felt.longest = felt.longest.max(seen.longest);
            felt.operations += seen.acknowledged;
            felt.flushes += seen.flushes;
        }
        println!("the load: {felt:?}");
        assert!(felt.longest <= limit, "an operation took {:?} of {limit:?}", felt.longest);
        (result, Left { jobs, felt })
    })
}

/// Ends fio with the value.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One fio after the other, each with other content. Each reads back all that it wrote.
#[track_caller]
fn fio_until(fabric: &Fabric, over: &AtomicBool) -> Felt {
    let mut felt = Felt::default();
    for seed in 1.. {
        let figures = fabric.folder.near("fio.json");
        let mut fio = program("fio");
        fio.args(["--name=paths", "--ioengine=nbd", "--rw=randrw", "--bsrange=4k-64k"]);
        fio.args(["--iodepth=8", "--numjobs=2", "--size=4m", "--bs_unaligned=0"]);
        fio.args(["--offset=16m", "--offset_increment=16m", "--group_reporting", "--fsync=64"]);
        fio.args(["--verify=crc32c", "--do_verify=1", "--verify_fatal=1"]);
        fio.args(["--verify_state_save=0", "--output-format=json"]);
        fio.arg(format!("--randseed={seed}"));
        fio.arg(format!("--output={}", figures.display()));
        fio.arg(format!("--uri={}", fabric.folder.uri("sda")));
        Running::start(fio).succeed_within(2 * PATIENCE);
        let said = fs::read_to_string(&figures).expect("figures");
        let told: Value = serde_json::from_str(&said).unwrap_or_else(|e| panic!("{e} in {said}"));
        let job = &told["jobs"][0];
        assert_eq!(job["error"], 0, "{said}");
        for direction in ["read", "write"] {
            let longest = job[direction]["lat_ns"]["max"].as_u64().expect("a figure");
            felt.longest = felt.longest.max(Duration::from_nanos(longest));
            felt.operations += job[direction]["total_ios"].as_u64().expect("a figure");
        }
        felt.flushes += job["sync"]["total_ios"].as_u64().expect("a figure");
        if over.load(Ordering::Relaxed) {
            break;
        }
    }
    felt
}
