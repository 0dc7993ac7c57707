//! The effects of signals on a daemon.

#![forbid(unsafe_code)]

mod daemon;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use daemon::client::{Client, READ};
use daemon::outside::leave_out;
use daemon::program::{program, run};
use daemon::{Daemon, Folder, weir};
use rustix::process::Signal;

#[track_caller]
fn expect_served(folder: &Folder) {
    let mut client = Client::connect(&folder.socket(), "");
    assert_eq!(client.read(0, 512).expect("an answer"), Ok(vec![0; 512]));
    client.disconnect().expect("a parting");
}

#[test]
fn a_hangup_without_a_configuration_ends_nothing() {
    let folder = Folder::new();
    let daemon = Daemon::start(&folder, &["sda=ram:1MiB"]);
    daemon.signal(Signal::HUP);
    daemon.wait_for(|line| line.contains("nothing to change"));
    expect_served(&folder);
    daemon.stop();
}

#[test]
fn a_hangup_reloads_the_configuration() {
    let folder = Folder::new();
    let path = folder.near("weir.toml");
    let write = |nr_requests: u16| {
        let target = format!("ram:1MiB,scheduler=mq-deadline,nr_requests={nr_requests}");
        let text = format!("[[disk]]\nname = \"sda\"\ntarget = \"{target}\"\n");
        fs::write(&path, text).expect("a file");
    };
    write(64);
    let mut command = weir(&folder);
    command.arg("serve").arg("-c").arg(&path);
    command.arg("--nbd").arg(format!("unix:{}", folder.socket().display()));
    let daemon = Daemon::spawn(command);
    write(32);
    daemon.signal(Signal::HUP);
    daemon.wait_for(|line| line.contains("block/sda/queue/nr_requests 64 -> 32"));
    // A file that is wrong is told, and all stays as it is.
    fs::write(&path, "[[disk]\n").expect("a file");
    daemon.signal(Signal::HUP);
    daemon.wait_for(|line| line.contains("WARN reload: "));
    expect_served(&folder);
    daemon.stop();
}

#[test]
fn a_stop_takes_no_longer_than_it_is_given() {
    let folder = Folder::new();
    let mut command = weir(&folder);
    command.args(["serve", "--stop-timeout", "1s", "--disk", "sda=ram:64MiB", "--nbd"]);
    command.arg(format!("unix:{}", folder.socket().display()));
    let mut daemon = Daemon::spawn(command);
    // Answers that are not read are waited for.
    let mut client = Client::connect(&folder.socket(), "sda");
    for _ in 0..8 {
        client.send(0, READ, 0, 1 << 20, &[]).expect("a request");
    }
    let mut header = [0; 16];
    std::io::Read::read_exact(&mut client.stream, &mut header).expect("an answer's beginning");
    let (status, took) = daemon.terminate();
    assert_eq!(status.code(), Some(0), "{}", daemon.said());
    assert!(daemon.said().contains("1 clients were cut off"), "{}", daemon.said());
    // A stop without the option gives such a client 2.5 s.
    assert!(took < Duration::from_millis(2400), "it took {took:?} to stop");
}

#[test]
fn a_stop_is_given_a_second_to_an_hour() {
    let folder = Folder::new();
    for time in ["0s", "999ms", "3601s", "soon"] {
        let mut command = weir(&folder);
        command.args(["serve", "--stop-timeout", time]);
        let ended = command.output().expect("weir can be started");
        assert_eq!(ended.status.code(), Some(2), "{time}");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(said.contains("--stop-timeout") && said.contains(time), "{said}");
        assert!(time == "soon" || said.contains("1s..=3600s"), "{said}");
    }
}

#[test]
fn a_stop_under_nbd_clients_alone_is_no_reason_to_warn() {
    let folder = Folder::new();
    let daemon = Daemon::start(&folder, &["sda=ram:1MiB"]);
    let client = Client::connect(&folder.socket(), "sda");
    let said = daemon.stop();
    drop(client);
    // The protocol tells them.
    assert!(!said.contains("WARN"), "{said}");
}

/// A loop device, given back with the value.
struct Loop(String);

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = program("losetup").args(["-d", &self.0]).status();
    }
}

/// A mounted file system, unmounted with the value.
struct MountedAt(PathBuf);

impl Drop for MountedAt {
    fn drop(&mut self) {
        let _ = program("umount").args(["-l"]).arg(&self.0).status();
    }
}

#[test]
#[ignore = "needs losetup, mkfs.ext4, mount"]
fn a_stop_says_who_still_uses_a_disk() {
    let may = rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists();
    if !may {
        return leave_out("needs root and /dev/fuse");
    }
    let folder = Folder::new();
    let (tree, mnt, image) = (folder.near("tree"), folder.near("mnt"), folder.image("sda"));
    fs::create_dir_all(&tree).expect("a folder");
    fs::create_dir_all(&mnt).expect("a folder");
    fs::File::create(&image).and_then(|file| file.set_len(16 << 20)).expect("an image");
    run("mkfs.ext4", &["-q", "-F", &image.display().to_string()]);
    let mut command = weir(&folder);
    command.args(["serve", "--disk", &format!("sda=file:{}", image.display())]);
    command.args(["--disk", "sdb=ram:1MiB", "--tree"]).arg(&tree);
    command.arg("--nbd").arg(format!("unix:{}", folder.socket().display()));
    let daemon = Daemon::spawn(command);
    let disk = |name: &str| tree.join("dev").join(name).display().to_string();
    let mut losetup = program("losetup");
    losetup.args(["--find", "--show", "--read-only", &disk("sda")]);
    let found = losetup.output().expect("losetup");
    if !found.status.success() {
        daemon.stop();
        return leave_out("no loop device is to be had");
    }
    let device = String::from_utf8_lossy(&found.stdout).trim().to_owned();
    let device = Loop(device);
    run("mount", &["-o", "ro,noload", &device.0, &mnt.display().to_string()]);
    let mounted = MountedAt(mnt.clone());
    let file = fs::File::open(disk("sdb")).expect("the disk as a file");
    let client = Client::connect(&folder.socket(), "sdb");
    let said = daemon.stop();
    drop((file, client, mounted));
    let place = format!("{} (mounted at {})", device.0, mnt.display());
    drop(device);
    let line = |disk: &str| {
        let begin = format!(" WARN disk {disk} is still used, and the daemon stops: ");
        let found = said.lines().find_map(|line| line.strip_prefix(&begin));
        found.unwrap_or_else(|| panic!("{said}"))
    };
    assert_eq!(line("sda"), place);
    // This test's thread has opened it.
    let user = line("sdb");
    assert!(user.starts_with("process ") && user.ends_with("), 1 NBD client"), "{user}");
}
