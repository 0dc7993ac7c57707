//! Jobs that would write over what others keep on a target.

#![forbid(unsafe_code)]

mod daemon;

use std::fs;
use std::path::PathBuf;

use daemon::Folder;
use daemon::outside::leave_out;
use daemon::program::{program, run};
use daemon::words::{attempt, expect_refused, told};

const MIB: u64 = 1 << 20;

/// The words of a short job that reads, writes or both.
fn job<'a>(target: &'a str, rw: &'a str) -> Vec<&'a str> {
    let how = ["--quiet", "--bs", "64k", "--runtime", "50ms", "--ramp-time", "0"];
    [&["bench", "--target", target, "--rw", rw], &how[..]].concat()
}

/// An image with such bytes at the start and zeros behind them.
fn image(folder: &Folder, name: &str, bytes: &[u8]) -> (PathBuf, String) {
    let path = folder.near(name);
    let file = fs::File::create(&path).expect("an image");
    std::os::unix::fs::FileExt::write_all_at(&file, bytes, 0).expect("an image");
    file.set_len(8 * MIB).expect("an image");
    let target = format!("file:{}", path.display());
    (path, target)
}

#[test]
fn data_of_others_are_read_and_written_over_only_where_that_is_said() {
    let folder = Folder::new();
    let (path, target) = image(&folder, "notes", b"not to be lost");
    let before = fs::read(&path).expect("the image");
    let why = [&target, "data that no job of weir has written, at byte 0", "--destroy"];
    for rw in ["write", "randrw", "trim"] {
        expect_refused(&folder, &job(&target, rw), &why);
    }
    expect_refused(&folder, &["bench", "oltp", "--quiet", "--target", &target], &why);
    let redo = ["bench", "oltp", "--quiet", "--target", "ram:64MiB", "--redo", &target];
    expect_refused(&folder, &redo, &why);
    let striped = format!("striped:64KiB:ram\\:8MiB+{}", target.replace(':', "\\:"));
    expect_refused(&folder, &job(&striped, "write"), &why[1..]);
    told(&folder, &job(&target, "randread"));
    assert!(fs::read(&path).expect("the image") == before);
    // What a job of weir has written is in no job's way.
    told(&folder, &[&job(&target, "write")[..], &["--destroy"]].concat());
    told(&folder, &job(&target, "write"));
    told(&folder, &[&job(&target, "write")[..], &["--verify", "crc32c"]].concat());
    told(&folder, &job(&target, "randwrite"));
    assert!(fs::read(&path).expect("the image") != before);
}

#[test]
fn a_comparison_leaves_data_of_others_alone_and_says_why_there_is_none() {
    let folder = Folder::new();
    let (path, target) = image(&folder, "notes", b"not to be lost");
    let before = fs::read(&path).expect("the image");
    let words = ["compare", "--target", &target, "--rw", "write", "--rounds", "3", "--quiet"];
    let short = ["--runtime", "50ms", "--ramp-time", "0", "--same", "--a", "", "--b", ""];
    let words = [&words[..], &short].concat();
    let ended = attempt(&folder, &words);
    assert_eq!(ended.code, Some(2), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stderr.contains("no job of weir has written"), "{}", ended.stderr);
    assert!(fs::read(&path).expect("the image") == before);
    let ended = attempt(&folder, &[&words[..], &["--destroy"]].concat());
    assert!(!ended.stderr.contains("no job of weir"), "{}", ended.stderr);
    assert!(fs::read(&path).expect("the image") != before);
}

#[test]
fn what_is_refused_has_a_name_where_it_is_known() {
    let folder = Folder::new();
    let (path, target) = image(&folder, "notes", b"QFI\xfb");
    expect_refused(&folder, &job(&target, "write"), &["holds a qcow2 image"]);
    assert!(fs::read(&path).expect("the image").starts_with(b"QFI\xfb\0"));
}

#[test]
fn blocks_larger_than_what_is_looked_at_are_known_as_a_load_s_own() {
    let folder = Folder::new();
    // The last MiB begins in the middle of a block.
    let target = format!("file:{},size=9728KiB", folder.near("disk").display());
    let verified = ["--bs", "3m", "--verify", "crc32c", "--size", "9m", "--runtime", "1s"];
    for _ in 0..2 {
        told(
            &folder,
            &[&["bench", "--quiet", "--target", &target, "--rw", "write"], &verified[..]].concat(),
        );
    }
    told(&folder, &job(&target, "randtrim"));
    told(&folder, &job(&target, "write"));
}

/// A loop device that is detached, and what is mounted of it before, with the value.
struct Mounted {
    device: String,
    on: PathBuf,
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = program("umount").arg(&self.on).status();
        let _ = program("losetup").args(["--detach", &self.device]).status();
    }
}

#[test]
#[ignore = "needs mkfs.ext4, losetup, mount"]
fn a_mounted_file_system_is_read_and_never_written() {
    if !rustix::process::geteuid().is_root() {
        return leave_out("loop devices need root");
    }
    let folder = Folder::new();
    let (path, target) = image(&folder, "sda", b"");
    run("mkfs.ext4", &["-q", &path.display().to_string()]);
    expect_refused(&folder, &job(&target, "write"), &["holds an ext2, ext3 or ext4 file system"]);
    let device = run("losetup", &["--find", "--show", &path.display().to_string()]);
    let mounted = Mounted { device: device.trim().into(), on: folder.near("on") };
    fs::create_dir(&mounted.on).expect("a folder");
    run("mount", &[&mounted.device, &mounted.on.display().to_string()]);
    let target = format!("file:{}", mounted.device);
    told(&folder, &job(&target, "randread"));
    let twice = ["compare", "--quiet", "--target", &target, "--rw", "randread", "--rounds", "3"];
    let short = ["--runtime", "50ms", "--ramp-time", "0", "--same", "--a", "", "--b", ""];
    let ended = attempt(&folder, &[&twice[..], &short].concat());
    assert!(!ended.stderr.contains("in use"), "{}", ended.stderr);
    expect_refused(&folder, &job(&target, "write"), &["holds an ext2, ext3 or ext4 file system"]);
    let by_force = [&job(&target, "write")[..], &["--destroy"]].concat();
    expect_refused(&folder, &by_force, &["is in use by the kernel: mounted"]);
    drop(mounted);
    run("e2fsck", &["-fn", &path.display().to_string()]);
}
