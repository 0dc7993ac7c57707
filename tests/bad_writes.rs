//! Bad writes to the mounted tree and to the control socket, beside the same writes to a loop
//! device of the kernel: the same error, and the same value afterwards. The values that each file
//! takes are compared at length by the tests of host/control; this test tries the two ways in.

#![forbid(unsafe_code)]

mod daemon;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use daemon::outside::leave_out;
use daemon::program::{program, run};
use daemon::{Daemon, Folder, weir};
use weir_control::{ClientError, ControlClient};

/// Files that do not depend on what the device below is like.
const FILES: &[&str] = &[
    "scheduler",
    "nr_requests",
    "read_ahead_kb",
    "nomerges",
    "rq_affinity",
    "iostats",
    "rotational",
    "wbt_lat_usec",
    "add_random",
    "io_poll",
    "nr_zones",
    "frob",
    "iosched/fifo_batch",
    "iosched/front_merges",
    "iosched/writes_starved",
    "iosched/async_depth",
];

/// An empty text makes no write call at all in a shell, and none here.
const TEXTS: &[&str] = &[
    "\n",
    " ",
    "0",
    "3",
    "-1",
    "2049",
    "4294967296",
    "99999999999999999999",
    "64 ",
    "0x10",
    "1.5",
    "many",
    "nonesuch",
    "cfq",
    "mq-deadline\n",
];

/// A loop device over a sparse file, given back with the value: the next who uses it finds its
/// files as they were.
struct Loop {
    device: String,
    before: Vec<(PathBuf, String)>,
}

impl Drop for Loop {
    fn drop(&mut self) {
        self.before.iter().for_each(|(path, text)| _ = stored(path, text.as_bytes()));
        let _ = program("losetup").args(["--detach", &self.device]).status();
    }
}

/// Files that the last user of a loop device may have changed, and what they are to say on all
/// three.
const ALIKE: &[(&str, &str)] = &[
    ("scheduler", "mq-deadline"),
    ("read_ahead_kb", "128"),
    ("rotational", "0"),
    ("wbt_lat_usec", "2000"),
    ("nomerges", "0"),
    ("rq_affinity", "1"),
    ("iostats", "1"),
    ("add_random", "0"),
];

/// The error's number of one write call as a shell makes it; 0 for none.
fn stored(path: &Path, text: &[u8]) -> i32 {
    let file = fs::OpenOptions::new().write(true).open(path);
    let written = file.and_then(|mut file| file.write(text));
    written.err().map_or(0, |error| error.raw_os_error().expect("an error of the system"))
}

/// The same through the control socket.
fn sent(client: &mut ControlClient, path: &str, text: &[u8]) -> i32 {
    match client.write(path, text) {
        Ok(()) => 0,
        Err(ClientError::Refused(failure)) => failure.errno.number(),
        Err(error) => panic!("{path}: {error}"),
    }
}

#[test]
#[ignore = "needs losetup, mount"]
fn a_bad_write_through_mount_and_socket_does_what_it_does_to_a_loop_device() {
    let there = |path: &str| Path::new(path).exists();
    let root = rustix::process::geteuid().is_root();
    if !root || !there("/dev/fuse") || !there("/dev/loop-control") {
        return leave_out("needs root, /dev/fuse and loop devices");
    }
    let folder = Folder::new();
    let (tree, image) = (folder.near("tree"), folder.image("kernel"));
    fs::create_dir(&tree).expect("a folder");
    fs::File::create(&image).and_then(|file| file.set_len(64 << 20)).expect("a file");
    let device = run("losetup", &["--find", "--show", &image.display().to_string()]);
    let device = String::from(device.trim());
    let kernel = PathBuf::from(device.replace("/dev/", "/sys/block/")).join("queue");
    let mut kernels = Loop { device, before: Vec::new() };
    for (file, _) in &ALIKE[1..] {
        let path = kernel.join(file);
        let text = fs::read_to_string(&path).unwrap_or_default();
        kernels.before.push((path, text));
    }
    let mut serve = weir(&folder);
    serve.args(["serve", "--disk", "sda=ram:64MiB,queues=1", "--disk", "vdb=ram:64MiB,queues=1"]);
    serve.args(["--nbd", "unix:nbd.sock", "--tree"]).arg(&tree);
    let daemon = Daemon::spawn(serve);
    let mut client =
        ControlClient::connect(&folder.near("weir-data/control.sock")).expect("a daemon");
    let mounted = tree.join("block/sda/queue");
    for (file, value) in ALIKE {
        assert_eq!(stored(&kernel.join(file), value.as_bytes()), 0, "{file}");
    }
    let (nines, letters) = ("9".repeat(1 << 20), "x".repeat(1 << 20));
    let long = [nines.as_str(), letters.as_str()];
    let (mut found, mut compared) = (Vec::new(), 0);
    for file in FILES {
        for text in TEXTS.iter().copied().chain(long) {
            let bytes = text.as_bytes();
            let path = format!("block/vdb/queue/{file}");
            let real = stored(&kernel.join(file), bytes);
            let through = [stored(&mounted.join(file), bytes), sent(&mut client, &path, bytes)];
            let shows = |path: &Path| fs::read_to_string(path).unwrap_or_default();
            let real = (real, shows(&kernel.join(file)));
            let values = [shows(&mounted.join(file)), client.read(&path).unwrap_or_default()];
            compared += 1;
            for (way, (errno, value)) in
                ["mount", "socket"].iter().zip(through.into_iter().zip(values))
            {
                let same = (errno, value.trim()) == (real.0, real.1.trim());
                if !same {
                    let text: String = text.chars().take(20).collect();
                    found.push(format!(
                        "{way} {file} {text:?}: {real:?}, weir {:?}",
                        (errno, value)
                    ));
                }
            }
        }
    }
    println!("{compared} writes compared");
    assert!(found.is_empty(), "{}:\n{}", found.len(), found.join("\n"));
    assert_eq!(stored(&kernel.join("scheduler"), b"none"), 0);
    drop((client, kernels));
    daemon.stop();
}
