//! Image files: made in one step, and shared with QEMU's programs by the locks of both.

#![forbid(unsafe_code)]

mod daemon;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use daemon::outside::{Mortal, leave_out};
use daemon::program::{Running, attempt, program, run};
use daemon::{Daemon, Folder, PATIENCE, WEIR, wait, weir};
use rustix::process::Signal;

const BYTES: u64 = 8 << 20;

#[test]
#[ignore = "needs strace"]
fn a_kill_while_an_image_is_made_leaves_none_or_a_whole_one() {
    let mut killed = 0;
    for call in ["ftruncate", "fsync", "linkat", "fchmod", "flock"] {
        let folder = Folder::new();
        let image = folder.image("sda");
        // The kernel kills it as it makes the call for the first time.
        let mut command = program("strace");
        command.args(["-f", "-qq", "-o", "/dev/null", "-e"]);
        command.arg(format!("inject={call}:signal=KILL:when=1"));
        command.args([WEIR, "serve", "--stdio", "--disk", &folder.file_disk("sda", "8MiB", "")]);
        command.current_dir(folder.path()).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = Mortal(command.spawn().expect("strace can be started"));
        let status = wait(&mut child, PATIENCE).expect("it ends");
        killed += usize::from(!status.success());
        if let Ok(found) = fs::metadata(&image) {
            assert_eq!(found.len(), BYTES, "killed at {call}");
        }
        let listed = fs::read_dir(image.parent().expect("a folder")).expect("a folder").count();
        assert_eq!(listed, usize::from(image.exists()), "something is left beside it");
        // The next start has its image.
        let daemon = Daemon::start(&folder, &[&folder.file_disk("sda", "8MiB", "")]);
        assert_eq!(fs::metadata(&image).expect("the image").len(), BYTES);
        daemon.stop();
    }
    if killed == 0 {
        leave_out("strace may not trace here");
    }
}

#[test]
#[ignore = "needs qemu-img"]
fn qemu_img_leaves_an_image_alone_that_is_served() {
    let folder = Folder::new();
    let (image, other) = (folder.image("sda"), folder.image("other"));
    let [image, other] = [image, other].map(|path| path.display().to_string());
    fs::File::create(&other).and_then(|file| file.set_len(BYTES)).expect("a file");
    let daemon = Daemon::start(&folder, &[&folder.file_disk("sda", "8MiB", "")]);
    let refused = |arguments: &[&str]| {
        let ended = attempt("qemu-img", arguments);
        assert_eq!(ended.code, Some(1), "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.contains("lock"), "{arguments:?}: {}", ended.stderr);
    };
    refused(&["resize", "-f", "raw", &image, "+1M"]);
    refused(&["convert", "-n", "-f", "raw", "-O", "raw", &other, &image]);
    refused(&["convert", "-f", "raw", "-O", "raw", &image, &other]);
    // A reader that accepts changes meanwhile (`-U`) may read.
    run("qemu-img", &["convert", "-U", "-f", "raw", "-O", "raw", &image, &other]);
    daemon.stop();
    run("qemu-img", &["resize", "-f", "raw", &image, "+1M"]);
    // Readers share.
    let disk = format!("sda=file:{image},readonly");
    let daemon = Daemon::start(&folder, &[&disk]);
    run("qemu-img", &["convert", "-f", "raw", "-O", "raw", &image, &other]);
    refused(&["resize", "-f", "raw", &image, "+1M"]);
    daemon.stop();
}

/// Waits until `done`: while QEMU's programs open an image both could turn each other away.
#[track_caller]
fn wait_until(done: impl Fn() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < PATIENCE, "no work is done");
        std::thread::yield_now();
    }
}

/// Blocks of a file that are in use.
fn blocks(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |found| found.blocks())
}

/// Runs a daemon that must refuse to serve an image; what it says.
#[track_caller]
fn refused(folder: &Folder, disk: &str) -> String {
    let mut command = weir(folder);
    command.args(["serve", "--stdio", "--disk", disk]);
    let mut daemon = Daemon::spawn_unready(command);
    let status = daemon.wait();
    assert_eq!(status.code(), Some(2), "{}", daemon.said());
    daemon.said()
}

#[test]
#[ignore = "needs qemu-img"]
fn an_image_that_qemu_img_uses_is_not_served() {
    let folder = Folder::new();
    let (image, copy) = (folder.image("sda"), folder.image("copy"));
    fs::File::create(&image).and_then(|file| file.set_len(BYTES)).expect("a file");
    let [disk, read_only] =
        ["", ",readonly"].map(|options| format!("sda=file:{}{options}", image.display()));
    // One that writes without an end.
    let mut command = program("qemu-img");
    command.args(["bench", "-f", "raw", "-c", "1000000000", "-t", "none", "-w"]).arg(&image);
    let writer = Running::start(command);
    wait_until(|| blocks(&image) > 0);
    let said = refused(&folder, &disk);
    assert!(said.contains("is in use already") && said.contains("QEMU"), "{said}");
    let said = refused(&folder, &read_only);
    assert!(said.contains("is in use for writing") && said.contains("QEMU"), "{said}");
    writer.signal(Signal::KILL);
    assert_ne!(writer.end().code, Some(0));
    Daemon::start(&folder, &[&disk]).stop();
    // And one that reads slowly what has to stay as it is.
    fs::write(&image, vec![1; BYTES as usize]).expect("a file");
    let mut command = program("qemu-img");
    command.args(["convert", "-r", "64k", "-f", "raw", "-O", "raw"]).arg(&image).arg(&copy);
    let reader = Running::start(command);
    wait_until(|| blocks(&copy) > 0);
    let said = refused(&folder, &disk);
    assert!(said.contains("is in use already") && said.contains("QEMU"), "{said}");
    Daemon::start(&folder, &[&read_only]).stop();
    reader.signal(Signal::KILL);
    assert_ne!(reader.end().code, Some(0));
    Daemon::start(&folder, &[&disk]).stop();
}
