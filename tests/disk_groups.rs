//! The example of disk groups as it stands in `examples`: a database's load on `data` and `redo`
//! over two portals, one of which goes, and then the daemon too. Every commit that was acknowledged
//! is there.

#![forbid(unsafe_code)]

mod daemon;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use daemon::program::{Ended, Running, wait_for_writes};
use daemon::tgtd::{Tgtd, free_port};
use daemon::words::{attempt, told};
use daemon::{Daemon, Folder, weir};

const EXAMPLE: &str = include_str!("../examples/disk-groups.toml");

/// The target of the example.
const TARGET: &str = "iqn.2024-01.com.example:groups";

/// Its logical units: 16 of data and 8 of redo.
const DATA: std::ops::RangeInclusive<u32> = 1..=16;
const REDO: std::ops::RangeInclusive<u32> = 17..=24;

/// Bytes of a logical unit of data.
const DATA_BYTES: u64 = 4 << 20;

/// Bytes of one of redo: the log of an instance of the load has 512 KiB and starts over often, so
/// that commits are looked for in the data.
fn redo_bytes() -> u64 {
    let instances = std::thread::available_parallelism().map_or(1, usize::from).min(16);
    instances as u64 * (512 << 10) / REDO.count() as u64
}

/// How often the load tells of commits, at the least one, before the next thing happens.
const TELLINGS: usize = 800;

/// The example's configuration, its units and the commands that use it.
struct Example {
    folder: Folder,
    tgtd: Tgtd,
    /// The portal that goes: the one whose paths are first in each group.
    first: u16,
}

impl Example {
    fn start() -> Option<Example> {
        let folder = Folder::new();
        let tgtd = Tgtd::start(&folder.path().display().to_string(), "groups")?;
        let first = free_port();
        tgtd.portal(first, true);
        tgtd.target(1, TARGET);
        let data = DATA.map(|lun| (lun, DATA_BYTES));
        for (lun, bytes) in data.chain(REDO.map(|lun| (lun, redo_bytes()))) {
            tgtd.unit(1, lun, &tgtd.image(&format!("lun-{lun}"), bytes), &[]);
        }
        // What a reader of the example changes: the ports and the folder.
        let there = |text: String, was: &str, is: &str| {
            assert!(text.contains(was), "the example has no {was}");
            text.replace(was, is)
        };
        let text = there(EXAMPLE.to_owned(), ":3260/", &format!(":{first}/"));
        let text = there(text, ":3261/", &format!(":{}/", tgtd.port));
        let text = there(text, "/run/weir", &folder.path().display().to_string());
        fs::write(folder.near("disk-groups.toml"), text).expect("a file");
        Some(Example { folder, tgtd, first })
    }

    fn serve(&self) -> Daemon {
        let mut command = weir(&self.folder);
        command.args(["serve", "--config", "disk-groups.toml", "--reactors", "2"]);
        Daemon::spawn(command)
    }

    /// The target of an export. I/O of a server that is lost fails at once, and that of one that
    /// waits for a path does not.
    fn target(&self, export: &str) -> String {
        format!("{},reconnect=0,io_timeout=100000", self.folder.uri(export))
    }

    /// Starts the database's load.
    fn load(&self) -> Running {
        let (data, redo) = (self.target("data"), self.target("redo"));
        let mut command = weir(&self.folder);
        command.args(["bench", "oltp", "--target", &data, "--redo", &redo]);
        command.args(["--commits", "commits", "--runtime", "1h", "--users", "8", "--quiet"]);
        Running::start(command)
    }

    fn commits(&self) -> usize {
        let text = fs::read_to_string(self.folder.near("commits")).unwrap_or_default();
        text.lines().filter(|line| line.starts_with("commit ")).count()
    }

    /// Looks for the commits; their number, or what is said of those that are lost.
    fn check(&self) -> Ended {
        let (data, redo) = (self.target("data"), self.target("redo"));
        let words = ["bench", "oltp", "--check", "--commits", "commits"];
        attempt(&self.folder, &[&words[..], &["--target", &data, "--redo", &redo]].concat())
    }

    /// How the paths of a disk are, in the order of the example.
    fn paths(&self, disk: &str) -> String {
        let control = self.folder.near("weir-data/control.sock").display().to_string();
        let status = told(&self.folder, &["map", "status", disk, "--control", &control]);
        let words: Vec<&str> = status.split_whitespace().collect();
        let state = |path: &str| {
            let at = words.iter().position(|word| *word == format!("{disk}{path}"));
            at.map_or("-", |at| words[at + 1])
        };
        [state("a"), state("b")].concat()
    }
}

/// Empties the image of a unit, as a target does that acknowledges and forgets.
fn forget(image: &Path) {
    let image = fs::OpenOptions::new().write(true).open(image).expect("an image");
    let bytes = image.metadata().expect("an image").len();
    image.write_all_at(&vec![0; bytes as usize], 0).expect("zeros");
}

#[test]
#[ignore = "needs tgtd"]
fn every_commit_on_the_disk_groups_outlives_a_portal_and_the_daemon() {
    let Some(example) = Example::start() else { return };
    let daemon = example.serve();
    let status = told(&example.folder, &["map", "status", "data"]);
    assert!(status.starts_with("0 131072 striped 16 data00 data01 "), "{status}");
    assert_eq!((example.paths("data07"), example.paths("redo03")), ("AA".into(), "AA".into()));
    let commits = example.folder.near("commits");
    fs::write(&commits, "").expect("a file of commits");
    let load = example.load();
    wait_for_writes(&commits, TELLINGS);
    // The portal goes with its connections; those of the other one are made again.
    example.tgtd.portal(example.first, false);
    assert!(example.tgtd.drop_connections(1) >= 48, "two for each unit");
    daemon.wait_for(|line| line.contains("path data07a failed"));
    daemon.wait_for(|line| line.contains("path redo03a failed"));
    wait_for_writes(&commits, TELLINGS);
    assert_eq!((example.paths("data07"), example.paths("redo03")), ("FA".into(), "FA".into()));
    daemon.kill();
    let ended = load.end();
    assert_eq!(ended.code, Some(2), "{ended:?}");
    // Without the portal it starts all the same.
    let daemon = example.serve();
    assert!(daemon.said().contains("disk data07 starts without this path"), "{}", daemon.said());
    let Ended { code, stdout, stderr } = example.check();
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    let found = format!("{} acknowledged commits found", example.commits());
    assert!(example.commits() >= 2 * TELLINGS && stdout.starts_with(&found), "{stdout}");
    // Each disk of either group has its part in that.
    forget(&example.tgtd.folder.join(format!("lun-{}", DATA.end())));
    let Ended { code, stderr, .. } = example.check();
    assert!(code == Some(1) && stderr.contains("was never written"), "{stderr}");
    forget(&example.tgtd.folder.join(format!("lun-{}", REDO.start())));
    let Ended { code, stderr, .. } = example.check();
    assert!(code == Some(1) && stderr.contains("acknowledged commits are lost"), "{stderr}");
    daemon.stop();
}
