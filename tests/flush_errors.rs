//! Reports of flushes to clients, the log and the tree: when the store below a disk has lost a
//! write, and when the disk is set to need no flushes.

#![forbid(unsafe_code)]

mod daemon;

use std::path::PathBuf;

use daemon::client::{Client, FLUSH, FUA};
use daemon::program::{program, run};
use daemon::words::told;
use daemon::{Daemon, Folder};

const MIB: u64 = 1 << 20;
const IO_ERROR: u32 = 5;

/// A block device of 16 MiB on a file system that has room for 1 MiB.
struct Lossy {
    below: PathBuf,
    device: String,
}

impl Lossy {
    fn new(folder: &Folder) -> Lossy {
        let below = folder.near("below");
        std::fs::create_dir(&below).expect("a folder");
        let path = below.display().to_string();
        run("mount", &["-t", "tmpfs", "-o", "size=1M", "tmpfs", &path]);
        let mut lossy = Lossy { device: String::new(), below };
        let image = lossy.below.join("image");
        let made = std::fs::File::create(&image).and_then(|file| file.set_len(16 * MIB));
        made.expect("a sparse file");
        let image = image.display().to_string();
        lossy.device = run("losetup", &["--find", "--show", &image]).trim().to_owned();
        lossy
    }
}

impl Drop for Lossy {
    fn drop(&mut self) {
        if !self.device.is_empty() {
            // Else the kernel goes on trying to write what there is no room for.
            _ = program("blockdev").args(["--flushbufs", &self.device]).output();
            _ = program("losetup").args(["--detach", &self.device]).status();
        }
        _ = program("umount").arg("--lazy").arg(&self.below).status();
    }
}

#[track_caller]
fn ask(client: &mut Client, flags: u16, command: u16) -> u32 {
    client.one(flags, command, 0, 0).expect("an answer")
}

#[test]
#[ignore = "needs losetup, mount"]
fn a_lost_write_fails_the_flushes_of_all_clients_and_is_shown_and_told_once() {
    for options in [",cache=writeback", ",cache=writeback,io=threads,queues=2"] {
        let folder = Folder::new();
        let lossy = Lossy::new(&folder);
        let mut daemon = Daemon::start(&folder, &[&format!("sda=file:{}{options}", lossy.device)]);
        let socket = folder.socket();
        let connect = |_| Client::connect(&socket, "sda");
        let mut clients: Vec<_> = (0..4).map(connect).collect();
        let first = || told(&folder, &["get", "block/sda/weir/flush_error"]);
        assert_eq!(first().trim(), "none");
        assert_eq!(ask(&mut clients[0], 0, FLUSH), 0, "nothing is lost yet");
        for at in 0..8 {
            let written = clients[0].write(0, at * MIB, &vec![7; MIB as usize]);
            assert_eq!(written.expect("an answer"), 0, "the page cache has room");
        }
        // All at once: one of them is told by the kernel.
        for client in &mut clients {
            client.send(0, FLUSH, 0, 0, &[]).expect("a socket");
        }
        for client in &mut clients {
            assert_eq!(client.reply().expect("an answer").1, IO_ERROR, "{options}");
        }
        let mut late = connect(4);
        assert_eq!(ask(&mut late, 0, FLUSH), IO_ERROR, "a client that came later");
        let durable = late.write(FUA, 0, &[1; 4096]);
        assert_ne!(durable.expect("an answer"), 0);
        assert_eq!(first().trim(), "I/O error");
        let (status, _) = daemon.terminate();
        assert_eq!(status.code(), Some(1), "not all of it is durable");
        let log = daemon.said();
        let count = log.matches("a flush has failed: I/O error").count();
        assert_eq!(count, 1, "{options}: {log}");
        assert!(!log.contains("write of 0 bytes"), "a flush is none: {log}");
        assert!(log.contains("not all disks were flushed when they were closed"), "{log}");
    }
}

/// How often the disk's device was flushed: field 16 of its statistics.
fn flushes(folder: &Folder) -> u64 {
    let stat = told(folder, &["get", "block/sda/stat"]);
    stat.split_whitespace().nth(15).and_then(|field| field.parse().ok()).expect("16 fields")
}

#[test]
#[ignore = "runs the built daemon"]
fn after_write_through_a_flush_of_a_client_told_of_a_cache_reaches_no_device_and_this_is_told_once()
{
    let folder = Folder::new();
    let daemon = Daemon::start(&folder, &[&folder.file_disk("sda", "8MiB", "")]);
    let mut client = Client::connect(&folder.socket(), "sda");
    let says = |cache: &str| told(&folder, &["set", "block/sda/queue/write_cache", cache]);
    let write = |client: &mut Client, flags| {
        assert_eq!(client.write(flags, 0, &[1; 4096]).expect("an answer"), 0);
    };
    write(&mut client, 0);
    assert_eq!(ask(&mut client, 0, FLUSH), 0);
    assert_eq!(flushes(&folder), 1);
    says("write through");
    says("write through");
    write(&mut client, FUA);
    assert_eq!(ask(&mut client, 0, FLUSH), 0, "as to a device without a cache");
    assert_eq!(flushes(&folder), 1);
    says("write back");
    write(&mut client, 0);
    assert_eq!(ask(&mut client, 0, FLUSH), 0);
    assert_eq!(flushes(&folder), 2);
    let log = daemon.stop();
    assert_eq!(log.matches("flushes do not reach it").count(), 1, "{log}");
}
