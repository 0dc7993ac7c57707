//! A disk that grows while clients use it.

#![forbid(unsafe_code)]

mod daemon;

use std::fs;
use std::path::PathBuf;
use std::process::Output;

use daemon::client::Client;
use daemon::{Daemon, Folder, weir};
use rustix::process::Signal;

const MIB: u64 = 1 << 20;

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
