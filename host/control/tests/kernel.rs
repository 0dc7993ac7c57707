//! Each write to `queue/` beside the same write to a loop device of the kernel: the same error,
//! and the same value afterwards. It needs root, `losetup` and a kernel with the file; what is not
//! there is left out and said.
//!
//! The devices are alike: the model has the limits that the kernel reports of its own.

mod bed;

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bed::{Model, Paper, live, tree};
use weir_bio::Limits;
use weir_control::Tree;
use weir_queue::{Config, Device};
use weir_sched::{Family, SCHEDULERS, Tunable, Unit};

/// The texts written to every file that is there on both sides. Nothing in it makes a device
/// unusable.
const TEXTS: &[&str] = &[
    "0",
    "1",
    "2",
    "3",
    "4",
    "5",
    "7",
    "8",
    "64",
    "127",
    "128",
    "129",
    "255",
    "256",
    "257",
    "1280",
    "1281",
    "2048",
    "2049",
    "4095",
    "4096",
    "4097",
    "65535",
    "65536",
    "2147483647",
    "2147483648",
    "4294966784",
    "4294966785",
    "4294967295",
    "4294967296",
    "18446744073709551615",
    "18446744073709551616",
    "-1",
    "-0",
    "-2147483648",
    "-2147483649",
    "+5",
    "+",
    "-",
    "007",
    "010",
    "0x10",
    "0x",
    "1e3",
    "1.5",
    " 1",
    "1 ",
    "1\n",
    "1\n\n",
    "\n",
    " ",
    "1\0junk",
    "\0",
    "a",
    "one",
    "none",
    "none\n",
    " none ",
    "nonesuch",
    "mq-deadline",
    "deadline",
    "kyber\n",
    "bfq",
    "bfqx",
    "BFQ",
    "cfq",
    "noop",
    "[bfq]",
    "bfq             x",
    "bfq            x",
    "write back",
    "write back\n",
    "write backwards",
    "write through",
    "write throughout",
    "writeback",
    "write",
    "\u{e9}",
];

/// Files that are left as they are, and why.
const LEFT_OUT: &[(&str, &str)] = &[];

/// A loop device over a sparse file, given back with the value.
struct Loop {
    name: String,
    file: PathBuf,
    /// The contents its files had, to be written back: the next who uses the device finds it as it
    /// was.
    before: Vec<(String, String)>,
}

impl Loop {
    fn new() -> io::Result<Loop> {
        // Tests of one process have a device each.
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("weir-loop-{}-{count}", std::process::id());
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::File::create(&file)?.set_len(bed::BYTES)?;
        let made = Command::new("losetup").args(["--find", "--show"]).arg(&file).output();
        let device = match made {
            Ok(output) if output.status.success() => {
                String::from_utf8_lossy(&output.stdout).trim().to_owned()
            }
            Ok(output) => {
                let _ = fs::remove_file(&file);
                return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
            }
            Err(error) => {
                let _ = fs::remove_file(&file);
                return Err(error);
            }
        };
        let name = device.trim_start_matches("/dev/").to_owned();
        let mut kernel = Loop { name, file, before: Vec::new() };
        for name in kernel.files("") {
            // One that cannot be read cannot be written back either.
            let Ok(text) = kernel.read(&name) else { continue };
            kernel.before.push((name, text));
        }
        Ok(kernel)
    }

    fn queue(&self) -> PathBuf {
        Path::new("/sys/block").join(&self.name).join("queue")
    }

    /// The files in a folder below the queue, by name.
    fn files(&self, folder: &str) -> Vec<String> {
        let listed = fs::read_dir(self.queue().join(folder)).into_iter().flatten().flatten();
        let files = listed.filter(|entry| entry.path().is_file());
        let mut names: Vec<_> = files.filter_map(|e| e.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    fn read(&self, name: &str) -> io::Result<String> {
        fs::read_to_string(self.queue().join(name))
    }

    fn write(&self, name: &str, text: &[u8]) -> io::Result<()> {
        // One call, as a shell's echo makes.
        let mut file = fs::OpenOptions::new().write(true).open(self.queue().join(name))?;
        file.write(text).map(drop)
    }

    fn number(&self, name: &str) -> u32 {
        let text = self.read(name).unwrap();
        text.trim().parse().unwrap_or_else(|_| panic!("{name} of the kernel is {text:?}"))
    }

    /// The limits it reports.
    fn limits(&self) -> Limits {
        let sectors = |name: &str| self.number(name) / 512;
        Limits {
            capacity: bed::BYTES / 512,
            rotational: self.number("rotational") == 1,
            volatile_cache: self.read("write_cache").unwrap().starts_with("write back"),
            fua: self.number("fua") == 1,
            max_hw_sectors: self.number("max_hw_sectors_kb") * 2,
            max_hw_discard_sectors: sectors("discard_max_hw_bytes"),
            // The limit set by the last user of this device is still in force.
            max_user_discard_sectors: sectors("discard_max_bytes"),
            discard_granularity: self.number("discard_granularity"),
            max_write_zeroes_sectors: sectors("write_zeroes_max_bytes"),
            io_min: self.number("minimum_io_size"),
            io_opt: self.number("optimal_io_size"),
            max_segments: self.number("max_segments") as u16,
            ..Limits::default()
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        for (name, text) in &self.before {
            let text = match text.split_once('[').and_then(|(_, rest)| rest.split_once(']')) {
                Some((active, _)) => active,
                None => text,
            };
            // A write to a read-only file is refused, and the file stays as it was.
            let _ = self.write(name, text.as_bytes());
        }
        let device = format!("/dev/{}", self.name);
        let _ = Command::new("losetup").arg("--detach").arg(device).status();
        let _ = fs::remove_file(&self.file);
    }
}

/// A loop device, or the reason why there is none.
fn loop_device() -> Option<Loop> {
    match Loop::new() {
        Ok(device) => Some(device),
        Err(error) => {
            // Past the harness, which keeps what a passing test prints.
            let _ = writeln!(io::stderr(), "LEFT OUT: the kernel's tree: no loop device: {error}");
            None
        }
    }
}

fn ours(tree: &Tree, path: &str, text: &[u8]) -> Result<(), i32> {
    tree.write(path, text).map_err(|failure| failure.errno.number())
}

fn theirs(kernel: &Loop, name: &str, text: &[u8]) -> Result<(), i32> {
    kernel.write(name, text).map_err(|error| error.raw_os_error().expect("an error of the system"))
}

/// How a write ended, and what the file says then.
type Seen = (Result<(), i32>, String);

/// Writes every text to one file on both sides. Returns how many; what differs, unless `excused`,
/// is added to `found`.
fn compare(
    kernel: &Loop,
    tree: &Tree,
    name: &str,
    excused: impl Fn(&str, &Seen, &Seen) -> bool,
    found: &mut Vec<String>,
) -> usize {
    let path = format!("block/sda/queue/{name}");
    let long = ["9".repeat(1 << 20), "x".repeat(1 << 20), "0".repeat(1 << 20)];
    let long = long.iter().map(String::as_str);
    let mut compared = 0;
    for text in TEXTS.iter().copied().chain(long) {
        // A kernel does not take a 0 back as long as the device exists, and others use it too.
        if name == "discard_max_bytes" && text.bytes().all(|byte| byte == b'0') {
            continue;
        }
        let bytes = text.as_bytes();
        let (mine, real) = (ours(tree, &path, bytes), theirs(kernel, name, bytes));
        let mine = (mine, tree.read(&path).unwrap());
        let real = (real, kernel.read(name).unwrap());
        compared += 1;
        if mine != real && !excused(text, &mine, &real) {
            let text: String = text.chars().take(20).collect();
            found.push(format!("{name} {text:?}: the kernel {real:?}, weir {mine:?}"));
        }
    }
    compared
}

/// Holds every file of the queue against the kernel's.
fn compare_queue(kernel: &Loop, tree: &Tree) {
    let left_out: BTreeSet<&str> = LEFT_OUT.iter().map(|(name, _)| *name).collect();
    let same_names =
        kernel.read("scheduler").unwrap() == tree.read("block/sda/queue/scheduler").unwrap();
    let (mut found, mut compared, mut files) = (Vec::new(), 0, 0);
    for name in kernel.files("") {
        let excused = left_out.contains(name.as_str()) || name == "scheduler" && !same_names;
        if excused {
            continue;
        }
        assert!(tree.look_up(&format!("block/sda/queue/{name}")).is_ok(), "queue/{name}");
        files += 1;
        compared += compare(kernel, tree, &name, |_, _, _| false, &mut found);
    }
    println!("{compared} writes to {files} files compared");
    assert!(
        files > 40 && found.is_empty(),
        "{files} files, {}:\n{}",
        found.len(),
        found.join("\n")
    );
}

#[test]
fn a_write_to_a_queue_file_does_what_it_does_to_a_loop_device() {
    let Some(kernel) = loop_device() else { return };
    if kernel.read("scheduler").unwrap() != "[none] mq-deadline kyber bfq \n" {
        let _ = writeln!(io::stderr(), "LEFT OUT: the kernel's tree: other schedulers");
        return;
    }
    compare_queue(&kernel, &tree(Model::new("sda", kernel.limits())));
}

/// A device whose driver has the kernel's limits.
fn device(kernel: &Loop) -> Device {
    let config = Config {
        name: String::from("sda"),
        scheduler: Some(String::from("none")),
        ..Config::default()
    };
    Device::new(config, Arc::new(Paper(kernel.limits()))).unwrap()
}

#[test]
fn the_queue_core_takes_what_a_loop_device_takes() {
    let Some(kernel) = loop_device() else { return };
    kernel.write("scheduler", b"none").unwrap();
    compare_queue(&kernel, &tree(live(device(&kernel))));
}

/// Where weir differs on purpose: what is no number is refused by every scheduler. A kernel counts
/// milliseconds in ticks and reads back multiples of them, of which the one above the largest wraps
/// around.
fn is_excused(row: &Tunable, mine: &Seen, real: &Seen) -> bool {
    let number = |seen: &Seen| seen.1.trim().parse::<i128>().ok();
    let refused = mine.0 == Err(EINVAL) && real.0.is_ok();
    let near = row.unit == Unit::Milliseconds
        && mine.0 == real.0
        && number(mine)
            .zip(number(real))
            .is_some_and(|(a, b)| ((a - b) as i32).abs() <= TICK_MS_MAX);
    refused || near
}

const EINVAL: i32 = 22;

/// The longest tick of a kernel, ms (HZ = 100).
const TICK_MS_MAX: i32 = 10;

#[test]
fn a_tunable_takes_what_the_kernels_scheduler_of_that_name_takes() {
    let Some(kernel) = loop_device() else { return };
    let there = kernel.read("scheduler").unwrap();
    let tree = tree(live(device(&kernel)));
    let (mut found, mut compared) = (Vec::new(), 0);
    for entry in SCHEDULERS.iter().filter(|entry| entry.family == Family::Multi) {
        if !there.contains(entry.name) {
            continue;
        }
        kernel.write("scheduler", entry.name.as_bytes()).unwrap();
        tree.write("block/sda/queue/scheduler", entry.name.as_bytes()).unwrap();
        for name in kernel.files("iosched") {
            let Some(row) = entry.tunables.iter().find(|row| row.name == name) else {
                found.push(format!("{} has no {name}", entry.name));
                continue;
            };
            let path = format!("iosched/{name}");
            let excused = |_: &str, mine: &Seen, real: &Seen| is_excused(row, mine, real);
            compared += compare(&kernel, &tree, &path, excused, &mut found);
        }
    }
    println!("{compared} writes to tunables compared");
    assert!(found.is_empty(), "{}:\n{}", found.len(), found.join("\n"));
}
