//! A disk that grows while clients use it.

#![forbid(unsafe_code)]

mod daemon;

use std::fs;
use std::path::PathBuf;
use std::process::Output;
use std::time::Instant;

use daemon::client::Client;
use daemon::words::told;
use daemon::{Daemon, Folder, PATIENCE, weir};
use rustix::process::Signal;

const MIB: u64 = 1 << 20;

/// The NBD command.
const FLUSH: u16 = 3;

struct Served {
    folder: Folder,
    daemon: Daemon,
    control: PathBuf,
}

/// Two disks, one in a file and one in memory.
fn serve(options: &str) -> Served {
    let folder = Folder::new();
    let control = folder.near("control.sock");
    let mut command = weir(&folder);
    command.args(["serve", "--disk", &folder.file_disk("sda", "8MiB", options)]);
    command.args(["--disk", "sdb=ram:8MiB", "--control"]).arg(&control);
    command.arg("--nbd").arg(format!("unix:{}", folder.socket().display()));
    let daemon = Daemon::spawn(command);
    Served { folder, daemon, control }
}

impl Served {
    fn set(&self, disk: &str, sectors: &str) -> Output {
        let mut command = weir(&self.folder);
        command.args(["set", &format!("block/{disk}/size"), sectors, "--control"]);
        command.arg(&self.control).output().expect("weir can be started")
    }

    #[track_caller]
    fn refused(&self, disk: &str, sectors: &str) -> String {
        let ended = self.set(disk, sectors);
        assert_eq!(ended.status.code(), Some(2), "{sectors}");
        String::from_utf8_lossy(&ended.stderr).into_owned()
    }

    fn client(&self, disk: &str) -> Client {
        Client::connect(&self.folder.socket(), disk)
    }
}

#[test]
fn a_disk_grows_under_its_clients_and_new_ones_see_it() {
    for options in ["", ",scheduler=bfq", ",queue_mode=sq"] {
        let served = serve(options);
        let mut old = served.client("sda");
        assert_eq!(old.write(0, 0, &[1; 4096]).expect("an answer"), 0);
        let ended = served.set("sda", "32768");
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
        let image = served.folder.image("sda");
        assert_eq!(fs::metadata(&image).expect("the image").len(), 16 * MIB);
        // The old client goes on with what it knows, the new one has all.
        assert_eq!(old.read(0, 4096).expect("an answer"), Ok(vec![1; 4096]));
        assert_ne!(old.write(0, 8 * MIB, &[2; 4096]).expect("an answer"), 0, "{options}");
        let mut new = served.client("sda");
        assert_eq!((old.size, new.size), (8 * MIB, 16 * MIB), "{options}");
        assert_eq!(new.write(0, 16 * MIB - 4096, &[3; 4096]).expect("an answer"), 0, "{options}");
        assert_eq!(new.read(16 * MIB - 4096, 4096).expect("an answer"), Ok(vec![3; 4096]));
        old.disconnect().expect("a parting");
        new.disconnect().expect("a parting");
        served.daemon.stop();
    }
}

#[test]
fn an_image_of_any_size_grows_to_any_other() {
    let folder = Folder::new();
    let (image, control) = (folder.image("sda"), folder.near("control.sock"));
    let file = fs::File::create(&image).expect("a file");
    let mut command = weir(&folder);
    // Direct I/O would serve whole blocks alone, and an empty file may have it.
    let disk = format!("sda=file:{},cache=writeback", image.display());
    command.args(["serve", "--disk", &disk, "--control"]);
    command.arg(&control).arg("--nbd").arg(format!("unix:{}", folder.socket().display()));
    let daemon = Daemon::spawn(command);
    let served = Served { folder, daemon, control };
    assert_eq!(served.client("sda").size, 0);
    let mut written = Vec::new();
    for bytes in [1000, 1024, 5001, 5002] {
        file.set_len(bytes).expect("a size");
        let mut reload = weir(&served.folder);
        let ended = reload.args(["set", "--reload", "--control"]).arg(&served.control).output();
        assert!(ended.expect("weir can be started").status.success());
        let mut client = served.client("sda");
        assert_eq!(client.size, bytes);
        let end = client.read(0, bytes as u32).expect("an answer").expect("all of it");
        assert!(end.starts_with(&written) && end[written.len()..].iter().all(|byte| *byte == 0));
        assert_eq!(client.write(0, 0, &vec![7; bytes as usize]).expect("an answer"), 0);
        written = vec![7; bytes as usize];
        assert_ne!(client.write(0, bytes, &[1]).expect("an answer"), 0, "behind the end");
        client.disconnect().expect("a parting");
        assert!(fs::read(&image).expect("the image") == written, "{bytes} bytes and no more");
    }
    assert!(served.set("sda", "16").status.success());
    assert_eq!(served.client("sda").size, 8192);
    served.daemon.stop();
}

#[test]
fn a_size_that_cannot_be_is_refused_with_its_bound() {
    let served = serve("");
    assert!(served.refused("sda", "16383").contains("is below 16384 sectors"));
    assert!(served.refused("sda", "much").contains("is not a number of sectors"));
    assert!(served.refused("sda", "99999999999999999").contains("cannot be made"));
    assert!(served.refused("sdb", "32768").contains("the disk has 16384 sectors"));
    assert!(served.set("sdb", "16384").status.success(), "no change is none");
    assert_eq!(served.client("sda").size, 8 * MIB);
    served.daemon.stop();
}

#[test]
fn a_file_that_has_grown_is_noticed_on_reload() {
    let served = serve("");
    let old = served.client("sda");
    let image = fs::OpenOptions::new().write(true).open(served.folder.image("sda"));
    image.and_then(|image| image.set_len(12 * MIB)).expect("a longer file");
    assert_eq!(served.client("sda").size, 8 * MIB);
    served.daemon.signal(Signal::HUP);
    served.daemon.wait_for(|line| line.contains("block/sda/size 16384 -> 24576"));
    let mut new = served.client("sda");
    assert_eq!((old.size, new.size), (8 * MIB, 12 * MIB));
    assert_eq!(new.write(0, 12 * MIB - 4096, &[3; 4096]).expect("an answer"), 0);
    served.daemon.stop();
}

#[test]
fn a_disk_that_its_target_says_has_grown_grows_with_those_above_it() {
    let folder = Folder::new();
    let target = r#"
        [[port]]
        id = 1
        [[port]]
        id = 2
        [[lun]]
        number = 0
        size = "4MiB"
        [[event]]
        at = "200ms"
        action = { lun = { number = 0, change = { resize = "8MiB" } } }
    "#;
    fs::write(folder.near("t.toml"), target).expect("a target");
    let path = |name: &str, port: u16| {
        format!("{name}=scsi-sim:{},port={port}", folder.near("t.toml").display())
    };
    let disks = [path("sda", 1), path("sdb", 2), String::from("m=multipath:sda+sdb")];
    let daemon = Daemon::start(&folder, &disks.each_ref().map(String::as_str));
    let client = |disk: &str| Client::connect(&folder.socket(), disk);
    let mut old = client("m");
    assert_eq!(old.write(0, 0, &[1; 4096]).expect("an answer"), 0);
    // The target says so to the command that comes next.
    let end = Instant::now() + PATIENCE;
    while client("m").size == 4 * MIB {
        assert!(Instant::now() < end, "it does not grow");
        assert_eq!(old.read(0, 4096).expect("an answer"), Ok(vec![1; 4096]));
    }
    daemon.wait_for(|line| line.contains("block/m/size 8192 -> 16384"));
    let mut new = client("m");
    assert_eq!((old.size, new.size), (4 * MIB, 8 * MIB));
    assert_eq!(new.write(0, 8 * MIB - 4096, &[3; 4096]).expect("an answer"), 0);
    assert_eq!(new.read(8 * MIB - 4096, 4096).expect("an answer"), Ok(vec![3; 4096]));
    // The old client goes on with what it knows.
    assert_ne!(old.write(0, 4 * MIB, &[2; 4096]).expect("an answer"), 0);
    assert_eq!(old.read(0, 4096).expect("an answer"), Ok(vec![1; 4096]));
    daemon.stop();
}

#[test]
fn a_write_cache_that_a_target_turns_on_is_flushed_by_the_disks_above_it() {
    let folder = Folder::new();
    let target = r#"
        [[port]]
        id = 1
        [[port]]
        id = 2
        [[lun]]
        number = 0
        size = "4MiB"
        write_cache = false
        [[event]]
        at = "200ms"
        action = { lun = { number = 0, change = { write-cache = true } } }
    "#;
    fs::write(folder.near("t.toml"), target).expect("a target");
    let path = |name: &str, port: u16| {
        format!("{name}=scsi-sim:{},port={port}", folder.near("t.toml").display())
    };
    let above = [String::from("m=multipath:sda+sdb"), String::from("l=linear:m")];
    let disks = [&[path("sda", 1), path("sdb", 2)], &above[..]].concat();
    let disks: Vec<&str> = disks.iter().map(String::as_str).collect();
    let daemon = Daemon::start(&folder, &disks);
    let show = |path: &str| told(&folder, &["get", path]).trim().to_owned();
    let mut client = Client::connect(&folder.socket(), "l");
    assert_eq!(client.write(0, 0, &[1; 4096]).expect("an answer"), 0);
    // Each path hears of it from the command that it carries next.
    let end = Instant::now() + PATIENCE;
    while show("block/l/queue/write_cache") != "write back" {
        assert!(Instant::now() < end, "the cache is not noticed");
        assert_eq!(client.read(0, 4096).expect("an answer"), Ok(vec![1; 4096]));
    }
    daemon.wait_for(|line| line.contains("block/l/queue/write_cache write through -> write back"));
    // Whichever path the flush takes.
    let flushes = || {
        let of = |disk: &str| {
            let stat = show(&format!("block/{disk}/stat"));
            stat.split_whitespace().nth(15).expect("17 fields").parse::<u64>().expect("a number")
        };
        of("sda") + of("sdb")
    };
    let before = flushes();
    assert_eq!(client.one(0, FLUSH, 0, 0).expect("an answer"), 0);
    assert_eq!(flushes(), before + 1);
    daemon.stop();
}
