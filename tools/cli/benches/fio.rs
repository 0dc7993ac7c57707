//! The same job file run by fio and by `weir bench`, in turn, on the same file and on the same loop
//! device: I/Os a second and mean latency, round by round.
//!
//! Both have the same file of jobs, file or device (`filename`), direct I/O, io_uring, depth, ramp
//! and runtime; and no map of the places that have had their turn (`norandommap`): with one fio
//! cuts mixed sizes where they would meet such a place.
//!
//! fio's latency is its `lat_ns`, from when it has made an I/O up until it has its answer, and
//! weir's `latency_ns` is the same, from when an I/O was to begin. Of what each calls submission
//! (fio's `slat_ns`, weir's `queue_wait_ns`) the other has no equal; nor has weir's CPU time, which
//! holds the kernel's workers of the ring: fio's is of its own thread.
//!
//! Both run on one CPU, the last: where the interrupts of a disk go to one CPU, it is luck on which
//! of them a program finds itself.
//!
//! `--same 1` has fio in both places: how far apart one program is from itself here.
//!
//! The file is written whole before, past the page cache. The loop device stands on the same file,
//! which is read before each of its jobs, so that it answers from the page cache: a fast device
//! beside a disk. Where there is no right to make one, or no fio, that part is left out and it says
//! so.
//!
//! cargo bench -p weir-cli --bench fio [-- --rounds 7 --seconds 2 --mib 512 --on file|loop
//!     --job NAME --folder DIR --same 1]

#![forbid(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use weir_bench::arguments::{Arguments, Parameter, Usage};
use weir_bench::cpu::pin;
use weir_bench::rounds::{Figure, machine};
use weir_bio::{Buf, Prng};

/// Name and options of each job; all else they have in common.
const JOBS: &[(&str, &str)] = &[
    ("random", "rw=randread\nnorandommap\nbs=4k\niodepth=16\n"),
    ("sequential", "rw=read\nbs=64k\niodepth=4\n"),
    ("mixed", "rw=randrw\nnorandommap\nrwmixread=70\nbssplit=4k/70:64k/30\niodepth=8\n"),
    ("paced-random", "rw=randread\nnorandommap\nbs=4k\niodepth=16\nrate_iops=2000\n"),
    ("paced-sequential", "rw=write\nbs=16k\niodepth=4\nrate_iops=1000\n"),
];

/// How far the two may be apart, in 100.
const GOAL_PERCENT: f64 = 5.0;
/// With fewer rounds than so many nothing is concluded.
const ROUNDS_LEAST: u32 = 7;
/// How long a program runs until the other has its turn: what a shared disk gives changes from
/// second to second.
const TURN_MS: u32 = 500;
/// How long each runs in a run that only shows that it runs.
const SMALL_MS: u32 = 200;
const RAMP_MS: u32 = 300;

const USAGE: Usage = Usage {
    bench: concat!(env!("CARGO_PKG_NAME"), " --bench ", env!("CARGO_CRATE_NAME")),
    about: "The same job run by fio and by weir bench, on a file and on a loop device.",
    parameters: &[
        Parameter::number("--rounds", (7, 1), "rounds of each job"),
        Parameter::number("--seconds", (2, 0), "of a program in a round; 0: one short turn"),
        Parameter::number("--mib", (512, 16), "MiB of the file"),
        Parameter::one_of("--on", &["file", "loop"], "only there"),
        Parameter::one_of(
            "--job",
            &["random", "sequential", "mixed", "paced-random", "paced-sequential"],
            "only this job",
        ),
        Parameter::word("--folder", "DIR", "where its files lie [the folder of the build]"),
        Parameter::number("--same", (0, 0), "1: fio in both places"),
    ],
};

fn main() {
    let arguments = Arguments::of_process(&USAGE);
    let rounds = arguments.number("--rounds");
    let (turns, runtime_ms) = match arguments.number("--seconds") {
        0 => (1, SMALL_MS),
        seconds => (seconds * 1000 / TURN_MS, TURN_MS),
    };
    let megabytes = u64::from(arguments.number("--mib"));
    let folder = arguments.word("--folder").unwrap_or(env!("CARGO_TARGET_TMPDIR"));
    println!("{}", machine());
    if Command::new("fio").arg("--version").output().is_err() {
        return println!("LEFT OUT: fio is not installed");
    }
    let bed = Bed::new(Path::new(folder), megabytes << 20);
    let same = arguments.number("--same") > 0;
    if same {
        println!("fio beside itself: what is called weir is fio");
    }
    let wanted = |flag: &str, name: &str| arguments.word(flag).is_none_or(|word| word == name);
    let mut places = Vec::new();
    if wanted("--on", "file") {
        places.push(("file", bed.file.clone()));
    }
    let device = wanted("--on", "loop").then(|| Loop::of(&bed.file));
    match &device {
        Some(Ok(device)) => places.push(("loop", device.0.clone())),
        Some(Err(why)) => println!("LEFT OUT: the loop device: {why}"),
        None => (),
    }
    let cpu = std::thread::available_parallelism().map_or(0, |cpus| cpus.get() - 1);
    let pinned = if pin(cpu) { format!("on CPU {cpu}") } else { String::from("anywhere") };
    println!(
        "{rounds} rounds of {turns} x {runtime_ms} ms each, in turn, {pinned}; medians (spread)"
    );
    let mut apart = Vec::new();
    for (place, path) in &places {
        for (name, options) in JOBS.iter().filter(|(name, _)| wanted("--job", name)) {
            if *place == "loop" {
                bed.warm();
            }
            let job = Job { bed: &bed, path, options, turns, same, runtime_ms };
            let sides = job.compare(rounds);
            apart.extend(sides.tell(&format!("{name} on the {place}")));
        }
    }
    if rounds >= ROUNDS_LEAST {
        let list = if apart.is_empty() { String::from("none") } else { apart.join(", ") };
        println!("medians more than {GOAL_PERCENT} % apart: {list}");
    }
}

/// A folder with a file that is written whole, for as long as it lives.
struct Bed {
    folder: PathBuf,
    file: PathBuf,
}

impl Bed {
    fn new(parent: &Path, bytes: u64) -> Bed {
        let folder = parent.join(format!("weir-bench-fio-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        let bed = Bed { file: folder.join("disk.img"), folder };
        let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
        let new = || OpenOptions::new().write(true).create(true).truncate(true).clone();
        // Not every file system has direct I/O; where it has not, neither program has it either.
        let file = new().custom_flags(direct).open(&bed.file).or_else(|_| new().open(&bed.file));
        let mut file = file.unwrap_or_else(|e| panic!("{}: {e}", bed.file.display()));
        let mut prng = Prng::new(1);
        let piece = Buf::filled(1 << 20, |bytes| prng.fill(bytes));
        for _ in 0..bytes >> 20 {
            file.write_all(&piece).unwrap_or_else(|e| panic!("{}: {e}", bed.file.display()));
        }
        file.sync_all().unwrap_or_else(|e| panic!("{}: {e}", bed.file.display()));
        bed
    }

    /// Brings the whole file into the page cache: what goes past it drops its pages.
    fn warm(&self) {
        let mut piece = vec![0; 1 << 20];
        let mut file = File::open(&self.file).expect("the file opens");
        while file.read(&mut piece).expect("the file can be read") > 0 {}
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        // A folder that cannot be removed is in the build's own folder.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A loop device, for as long as it lives.
struct Loop(PathBuf);

impl Loop {
    /// On a file.
    fn of(file: &Path) -> Result<Loop, String> {
        let made = Command::new("losetup").args(["--find", "--show"]).arg(file).output();
        let made = made.map_err(|error| format!("losetup: {error}"))?;
        if !made.status.success() {
            return Err(String::from_utf8_lossy(&made.stderr).trim().to_owned());
        }
        let device = Loop(PathBuf::from(String::from_utf8_lossy(&made.stdout).trim()));
        Ok(device)
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

/// A job on its place.
struct Job<'a> {
    bed: &'a Bed,
    path: &'a Path,
    options: &'a str,
    /// Runs of each program in a round.
    turns: u32,
    /// fio stands in for weir as well.
    same: bool,
    runtime_ms: u32,
}

/// The result of one run.
#[derive(Clone, Copy)]
struct Outcome {
    iops: f64,
    latency_us: f64,
}

impl Outcome {
    /// The joint result of runs of one length.
    fn of_all(runs: &[Outcome]) -> Outcome {
        let ios: f64 = runs.iter().map(|run| run.iops).sum();
        let spent: f64 = runs.iter().map(|run| run.iops * run.latency_us).sum();
        Outcome { iops: ios / runs.len() as f64, latency_us: spent / ios }
    }
}

impl Job<'_> {
    fn compare(&self, rounds: u32) -> Sides {
        let mut sides = Sides::default();
        for round in 0..rounds {
            let job = self.write(round);
            let (mut weir, mut fio) = (Vec::new(), Vec::new());
            for turn in 0..self.turns {
                // The program that comes first finds the device rested, so each comes first in
                // turn.
                if (round + turn) % 2 == 0 {
                    weir.push(self.weir(&job));
                    fio.push(self.fio(&job));
                } else {
                    fio.push(self.fio(&job));
                    weir.push(self.weir(&job));
                }
            }
            sides.weir.add(Outcome::of_all(&weir));
            sides.fio.add(Outcome::of_all(&fio));
        }
        sides
    }

    /// The file of a round's job: the same for both.
    fn write(&self, round: u32) -> PathBuf {
        let Job { path, options, runtime_ms, .. } = self;
        let job = format!(
            "[job]\nfilename={}\nioengine=io_uring\ndirect=1\nsize=100%\ntime_based\n\
             ramp_time={RAMP_MS}ms\nruntime={runtime_ms}ms\nrandseed={}\n{options}",
            path.display(),
            round + 1
        );
        let file = self.bed.folder.join("job.fio");
        std::fs::write(&file, job).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        file
    }

    fn weir(&self, job: &Path) -> Outcome {
        if self.same {
            return self.fio(job);
        }
        let mut weir = Command::new(env!("CARGO_BIN_EXE_weir"));
        let said = said(weir.args(["bench", "--json", "--quiet", "--destroy"]).arg(job));
        Outcome {
            iops: number(&said["iops"]),
            latency_us: number(&said["latency_ns"]["mean"]) / 1000.0,
        }
    }

    fn fio(&self, job: &Path) -> Outcome {
        let mut fio = Command::new("fio");
        let said = said(fio.arg("--output-format=json").arg(job).current_dir(&self.bed.folder));
        let job = &said["jobs"][0];
        let both = |figure: fn(&Value) -> f64| ["read", "write"].map(|way| figure(&job[way]));
        let ios: [f64; 2] = both(|way| number(&way["lat_ns"]["N"]));
        let means = both(|way| number(&way["lat_ns"]["mean"]));
        let iops: f64 = both(|way| number(&way["iops"])).iter().sum();
        let spent: f64 = ios.iter().zip(means).map(|(ios, mean)| ios * mean).sum();
        Outcome { iops, latency_us: spent / ios.iter().sum::<f64>() / 1000.0 }
    }
}

/// The document that a command prints.
fn said(command: &mut Command) -> Value {
    let ended = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let complaint = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{command:?}: {complaint}");
    let text = String::from_utf8_lossy(&ended.stdout);
    let json = text.find('{').map_or("", |at| &text[at..]);
    serde_json::from_str(json).unwrap_or_else(|error| panic!("{command:?}: {error} in {text}"))
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[derive(Default)]
struct Side {
    iops: Figure,
    latency_us: Figure,
}

impl Side {
    fn add(&mut self, Outcome { iops, latency_us }: Outcome) {
        assert!(iops > 0.0, "something was done");
        self.iops.add(iops);
        self.latency_us.add(latency_us);
    }
}

#[derive(Default)]
struct Sides {
    weir: Side,
    fio: Side,
}

impl Sides {
    /// Prints them; the figures that are too far apart.
    fn tell(&self, name: &str) -> Vec<String> {
        let Sides { weir, fio } = self;
        println!("{name}");
        println!("    IOPS         weir {:.0}, fio {:.0}", weir.iops, fio.iops);
        println!("    mean us      weir {:.1}, fio {:.1}", weir.latency_us, fio.latency_us);
        let iops = ("IOPS", weir.iops.over(&fio.iops));
        let latency = ("mean latency", weir.latency_us.over(&fio.latency_us));
        println!("    weir / fio   IOPS {:.3}, mean latency {:.3}", iops.1, latency.1);
        let far = |ratio: &Figure| (ratio.median() - 1.0).abs() * 100.0 > GOAL_PERCENT;
        let apart = [iops, latency].into_iter().filter(|(_, ratio)| far(ratio));
        apart.map(|(what, _)| format!("{what} of {name}")).collect()
    }
}
