//! Random reads of 4 KiB by fio on a loop device over a disk as a file (`DIR/dev/<disk>` of
//! `weir serve --tree DIR`), of a `file:` disk and of a `null:` one, against a plain loop device
//! over a second image, all past the page cache.
//!
//! Loop devices are not alike: some have had a third of the others' IOPS over the same daemon. So
//! all sides of a round have the same one, in turn, and rounds change it; the bench takes idle
//! ones, says which, and prints each one's figures where they differ. Images are written whole.
//! CPU time is the daemon's, over all reads that the loop device has counted meanwhile.
//!
//! What is attached and mounted goes with the bench, also when it panics or is asked to stop.
//!
//! cargo bench -p weir-cli --bench loop [-- --rounds 7 --milliseconds 1000 --mib 1024 --folder DIR
//!     --devices 4]
//! cargo bench -p weir-cli --bench loop -- --before PROGRAM    another version of weir beside

#![forbid(unsafe_code)]

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Program, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use weir_bench::arguments::{Arguments, Parameter, Usage};
use weir_bench::cpu::CpuTime;
use weir_bench::rounds::{Figure, machine};
use weir_bio::{Buf, Prng};

const WEIR: &str = env!("CARGO_BIN_EXE_weir");

/// What the IOPS over those of a plain loop device must be, and what they are to be.
const MUST: f64 = 0.7;
const AIM: f64 = 0.85;

/// I/Os under way at a time.
const DEPTHS: [u32; 3] = [1, 8, 32];

/// Medians of two devices so far apart are told by device.
const APART: f64 = 1.2;

/// Looks at what takes a moment, and the time between two.
const LOOKS: u32 = 1000;
const BETWEEN: Duration = Duration::from_millis(10);

const USAGE: Usage = Usage {
    bench: concat!(env!("CARGO_PKG_NAME"), " --bench ", env!("CARGO_CRATE_NAME")),
    about: "fio on a loop device over a disk as a file, beside a plain loop device.",
    parameters: &[
        Parameter::number("--rounds", (7, 1), "rounds in which each side is measured"),
        Parameter::number("--milliseconds", (1000, 200), "how long fio runs at each depth"),
        Parameter::number("--mib", (1024, 16), "MiB of each image"),
        Parameter::number("--devices", (4, 1), "idle loop devices to take in turn, at most"),
        Parameter::word("--before", "PROGRAM", "another version of weir beside"),
        Parameter::word("--folder", "DIR", "where its files lie [the folder of the build]"),
    ],
};

fn main() {
    let arguments = Arguments::of_process(&USAGE);
    for name in ["losetup", "fio"] {
        if Program::new(name).arg("--version").output().is_err() {
            return println!("{name} is not installed: nothing is measured");
        }
    }
    if let Err(why) = OpenOptions::new().read(true).write(true).open("/dev/fuse") {
        return println!("/dev/fuse: {why}: nothing is measured");
    }
    let stopped = Arc::new(AtomicBool::new(false));
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let heard = signal_hook::flag::register(signal.as_raw(), Arc::clone(&stopped));
        heard.expect("a signal can be heard");
    }
    let parent = arguments.word("--folder").unwrap_or(env!("CARGO_TARGET_TMPDIR"));
    let bed = Bed::new(Path::new(parent));
    let bytes = u64::from(arguments.number("--mib")) << 20;
    let plain = bed.image("plain", bytes);
    let devices = match idle_devices(&plain, arguments.number("--devices") as usize) {
        Ok(devices) => devices,
        Err(why) => return println!("no loop device can be attached: {why}: nothing is measured"),
    };
    let mut daemons = vec![Daemon::start(&bed, "weir", WEIR, bytes)];
    let before = arguments.word("--before");
    daemons.extend(before.map(|program| Daemon::start(&bed, "weir before", program, bytes)));
    let bench = Bench {
        rounds: arguments.number("--rounds"),
        turn_ms: arguments.number("--milliseconds"),
        sides: sides(&daemons, plain),
        daemons,
        devices,
        stopped,
    };
    let outcomes = bench.run();
    bench.tell(&outcomes);
}

/// A folder for images, mounts and sockets, for as long as it lives.
struct Bed(PathBuf);

impl Bed {
    fn new(parent: &Path) -> Bed {
        let folder = parent.join(format!("weir-bench-loop-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        Bed(folder)
    }

    /// An image that is written whole, past the page cache.
    fn image(&self, name: &str, bytes: u64) -> PathBuf {
        let path = self.0.join(format!("{name}.img"));
        let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
        let new = || OpenOptions::new().write(true).create(true).truncate(true).clone();
        // Not every file system has direct I/O.
        let file = new().custom_flags(direct).open(&path).or_else(|_| new().open(&path));
        let mut file = file.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let mut prng = Prng::new(1);
        let piece = Buf::filled(1 << 20, |bytes| prng.fill(bytes));
        let written = (0..bytes >> 20).try_for_each(|_| file.write_all(&piece));
        let durable = written.and_then(|()| file.sync_all());
        durable.unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        path
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        // Never through a mount that is still there.
        if mounts_below(&self.0).is_empty() {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

/// Where something is mounted in a folder, the last mount first.
fn mounts_below(folder: &Path) -> Vec<String> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let places = mounts.lines().filter_map(|line| line.split(' ').nth(1));
    let below = places.filter(|place| Path::new(place).starts_with(folder)).map(String::from);
    below.collect::<Vec<_>>().into_iter().rev().collect()
}

/// A daemon that is ended with the value, and its mounts with it.
struct Daemon {
    name: &'static str,
    child: Child,
    tree: PathBuf,
}

impl Daemon {
    fn start(bed: &Bed, name: &'static str, program: &str, bytes: u64) -> Daemon {
        let place = |kind: &str| bed.0.join(format!("{}.{kind}", name.replace(' ', "-")));
        let (tree, log) = (place("tree"), place("log"));
        fs::create_dir_all(&tree).expect("a folder");
        let image = bed.image(name, bytes);
        let mut serve = Program::new(program);
        serve.args(["serve", "--quiet", "--disk"]).arg(format!("sda=file:{}", image.display()));
        serve.args(["--disk", "nul=null:64GiB", "--tree"]).arg(&tree);
        serve.arg("--nbd").arg(format!("unix:{}", place("sock").display()));
        serve.arg("--control").arg(place("control"));
        serve.stdin(Stdio::null()).stdout(Stdio::null());
        serve.stderr(File::create(&log).expect("a log"));
        // A terminal's signals are for the bench, which detaches what stands on the daemon first.
        serve.process_group(0);
        let child = serve.spawn().unwrap_or_else(|e| panic!("{program}: {e}"));
        let mut daemon = Daemon { name, child, tree };
        let mounted = waited(|| {
            let runs = daemon.child.try_wait().is_ok_and(|ended| ended.is_none());
            assert!(runs, "{program}: {}", fs::read_to_string(&log).unwrap_or_default());
            daemon.disk("sda").exists()
        });
        assert!(mounted, "{program} mounts nothing");
        daemon
    }

    fn disk(&self, name: &str) -> PathBuf {
        self.tree.join("dev").join(name)
    }

    fn cpu(&self) -> Duration {
        CpuTime::of(self.child.id()).expect("the daemon runs").total()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended by itself; either way it is waited for.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        if !waited(|| self.child.try_wait().is_ok_and(|ended| ended.is_some())) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        for place in mounts_below(&self.tree) {
            let _ = Program::new("umount").args(["--lazy", &place]).status();
        }
    }
}

/// Whether it is so before long.
fn waited(mut is_so: impl FnMut() -> bool) -> bool {
    (0..LOOKS).any(|look| {
        if look > 0 {
            std::thread::sleep(BETWEEN);
        }
        is_so()
    })
}

/// A loop device over a file, for as long as it lives.
struct Loop<'a>(&'a str);

impl<'a> Loop<'a> {
    fn attach(device: &'a str, file: &Path) -> Result<Loop<'a>, String> {
        let mut losetup = Program::new("losetup");
        losetup.args(["--direct-io=on", &format!("/dev/{device}")]).arg(file);
        let ended = losetup.output().map_err(|error| format!("losetup: {error}"))?;
        if !ended.status.success() {
            return Err(String::from_utf8_lossy(&ended.stderr).trim().to_owned());
        }
        let attached = Loop(device);
        let direct = fs::read_to_string(attached.sys("loop/dio")).unwrap_or_default();
        match direct.trim() {
            "1" => Ok(attached),
            _ => Err(format!("{}: no direct I/O", file.display())),
        }
    }

    fn sys(&self, file: &str) -> PathBuf {
        Path::new("/sys/block").join(self.0).join(file)
    }

    /// Reads that have ended so far: the first number of `stat`.
    fn reads(&self) -> u64 {
        let stat = fs::read_to_string(self.sys("stat")).expect("the device's statistics");
        stat.split_whitespace().next().and_then(|n| n.parse().ok()).expect("a number")
    }
}

impl Drop for Loop<'_> {
    fn drop(&mut self) {
        let _ = Program::new("losetup").arg("--detach").arg(format!("/dev/{}", self.0)).status();
        // It goes when the last one who looks at it has gone, such as udev.
        waited(|| is_idle(self.0));
    }
}

fn is_idle(device: &str) -> bool {
    !Path::new("/sys/block").join(device).join("loop/backing_file").exists()
}

/// So many loop devices at most that nothing is attached to, and that this file can be.
fn idle_devices(file: &Path, most: usize) -> Result<Vec<String>, String> {
    let names = fs::read_dir("/sys/block").map_err(|error| format!("/sys/block: {error}"))?;
    let names = names.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> =
        names.filter(|name| name.starts_with("loop") && is_idle(name)).collect();
    names.sort_by_key(|name| (name.len(), name.clone()));
    let mut why = String::from("none is idle");
    let attaches = |name: &String| Loop::attach(name, file).map_err(|error| why = error).is_ok();
    let devices: Vec<String> = names.into_iter().filter(attaches).take(most).collect();
    if devices.is_empty() { Err(why) } else { Ok(devices) }
}

/// A file that loop devices are made of.
struct Side {
    name: String,
    file: PathBuf,
    /// The daemon that serves it, if it is one's.
    daemon: Option<usize>,
}

/// The plain image last.
fn sides(daemons: &[Daemon], plain: PathBuf) -> Vec<Side> {
    let disks = daemons.iter().enumerate().flat_map(|(index, daemon)| {
        [("file", "sda"), ("null", "nul")].map(|(kind, disk)| Side {
            name: format!("{}, {kind}", daemon.name),
            file: daemon.disk(disk),
            daemon: Some(index),
        })
    });
    let plain = Side { name: String::from("plain loop"), file: plain, daemon: None };
    disks.chain([plain]).collect()
}

struct Bench {
    rounds: u32,
    turn_ms: u32,
    // Dropped in this order.
    sides: Vec<Side>,
    daemons: Vec<Daemon>,
    devices: Vec<String>,
    stopped: Arc<AtomicBool>,
}

/// One measurement.
struct Outcome {
    side: usize,
    device: usize,
    depth: u32,
    iops: f64,
    /// The daemon's for each read; 0 where there is none.
    cpu_us: f64,
}

impl Bench {
    fn run(&self) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        for round in 0..self.rounds as usize {
            let (count, device) = (self.sides.len(), round % self.devices.len());
            for side in (0..count).map(|turn| (round + turn) % count) {
                let file = &self.sides[side].file;
                let attached = Loop::attach(&self.devices[device], file);
                let attached = attached.unwrap_or_else(|why| panic!("{why}"));
                for depth in DEPTHS {
                    let (iops, cpu_us) = self.measure(&attached, side, depth, round);
                    outcomes.push(Outcome { side, device, depth, iops, cpu_us });
                }
            }
        }
        outcomes
    }

    /// IOPS, and us of the daemon's CPU time for each.
    fn measure(&self, device: &Loop<'_>, side: usize, depth: u32, round: usize) -> (f64, f64) {
        let daemon = self.sides[side].daemon.map(|index| &self.daemons[index]);
        let used = || (daemon.map_or(Duration::ZERO, Daemon::cpu), device.reads());
        let (cpu, reads) = used();
        let mut fio = Program::new("fio");
        fio.args(["--name=loop", "--ioengine=io_uring", "--direct=1", "--rw=randread"]);
        fio.args(["--bs=4k", "--norandommap", "--time_based", "--output-format=json"]);
        fio.arg(format!("--filename=/dev/{}", device.0)).arg(format!("--iodepth={depth}"));
        fio.arg(format!("--runtime={}ms", self.turn_ms)).arg("--ramp_time=200ms");
        fio.arg(format!("--randseed={}", round + 1));
        let ended = fio.output().expect("fio runs");
        assert!(!self.stopped.load(Ordering::Relaxed), "stopped by a signal");
        let complaint = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success(), "{fio:?}: {complaint}");
        let text = String::from_utf8_lossy(&ended.stdout);
        let json = text.find('{').map_or("", |at| &text[at..]);
        let said: Value = serde_json::from_str(json).expect("fio prints JSON");
        let iops = said["jobs"][0]["read"]["iops"].as_f64().filter(|iops| *iops > 0.0);
        let (cpu_after, reads_after) = used();
        let each = (cpu_after - cpu).as_secs_f64() * 1e6 / (reads_after - reads).max(1) as f64;
        (iops.unwrap_or_else(|| panic!("{fio:?} read nothing")), each)
    }

    fn tell(&self, outcomes: &[Outcome]) {
        println!("{}", machine());
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        println!(
            "4 KiB random reads by fio, io_uring, {} rounds of {} ms at each depth, on {} in turn; \
             load {}; medians (spread)",
            self.rounds,
            self.turn_ms,
            self.devices.join(", "),
            load.split(' ').next().unwrap_or_default(),
        );
        let plain = self.sides.len() - 1;
        for (side, Side { name, daemon, .. }) in self.sides.iter().enumerate() {
            for depth in DEPTHS {
                let iops = iops(outcomes, side, depth);
                let cpu = figure(outcomes, side, depth, |outcome| outcome.cpu_us);
                let cpu = daemon.map(|_| format!(", daemon's CPU us for each {cpu:.1}"));
                println!("{name:18} depth {depth:2}: IOPS {iops:.0}{}", cpu.unwrap_or_default());
            }
        }
        for side in (0..plain).step_by(2) {
            let name = &self.sides[side].name;
            for depth in DEPTHS {
                let ratio = iops(outcomes, side, depth).over(&iops(outcomes, plain, depth));
                let verdict = match ratio.median() {
                    ratio if ratio >= AIM => "reached",
                    ratio if ratio >= MUST => "held, aim missed",
                    _ => "missed",
                };
                println!(
                    "{name} over the plain loop, depth {depth:2}: {ratio:.2} (must {MUST}, aim \
                     {AIM}): {verdict}"
                );
            }
        }
        // The two sides of a version follow those of the one before.
        for (own, other) in [(0, 2), (1, 3)].into_iter().filter(|(_, other)| *other < plain) {
            let [own_name, other_name] = [own, other].map(|side| &self.sides[side].name);
            for depth in DEPTHS {
                let ratio = iops(outcomes, own, depth).over(&iops(outcomes, other, depth));
                println!("{own_name} over {other_name}, depth {depth:2}: {ratio:.2}");
            }
        }
        self.tell_devices(outcomes);
    }

    /// The figures of each loop device, where they differ.
    fn tell_devices(&self, outcomes: &[Outcome]) {
        let plain = self.sides.len() - 1;
        for depth in DEPTHS {
            for side in [0, plain] {
                let of = |device: usize| {
                    let here = outcomes.iter().filter(|outcome| outcome.device == device);
                    let mut figure = Figure::default();
                    here.filter(|outcome| outcome.side == side && outcome.depth == depth)
                        .for_each(|outcome| figure.add(outcome.iops));
                    figure
                };
                let used = 0..self.devices.len().min(self.rounds as usize);
                let figures: Vec<Figure> = used.map(of).collect();
                let medians = || figures.iter().map(Figure::median);
                let most = medians().fold(0.0, f64::max);
                let least = medians().fold(f64::INFINITY, f64::min);
                if most > APART * least {
                    let name = &self.sides[side].name;
                    let each = self.devices.iter().zip(&figures);
                    let each = each.map(|(device, iops)| format!("{device} {iops:.0}"));
                    println!("{name}, depth {depth}: {}", each.collect::<Vec<_>>().join(", "));
                }
            }
        }
    }
}

fn iops(outcomes: &[Outcome], side: usize, depth: u32) -> Figure {
    figure(outcomes, side, depth, |outcome| outcome.iops)
}

/// A figure over all rounds, in their order.
fn figure(outcomes: &[Outcome], side: usize, depth: u32, of: impl Fn(&Outcome) -> f64) -> Figure {
    let mut figure = Figure::default();
    let here = outcomes.iter().filter(|outcome| outcome.side == side && outcome.depth == depth);
    here.for_each(|outcome| figure.add(of(outcome)));
    figure
}
