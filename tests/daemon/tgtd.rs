//! Debian's tgtd on loopback: an iSCSI target for tests, run as the user who runs them.
//!
//! Tests of other crates include this file too, beside `outside.rs`.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

pub use super::outside::free_port;
use super::outside::{Mortal, installed, mortal};

/// What a target allows that is to be tried with many PDUs for a command.
pub const PARAMETERS: [(&str, &str); 5] = [
    ("InitialR2T", "No"),
    ("MaxRecvDataSegmentLength", "65536"),
    ("FirstBurstLength", "131072"),
    ("MaxBurstLength", "262144"),
    ("MaxOutstandingR2T", "8"),
];

/// A running tgtd with its own folder, which goes with it.
pub struct Tgtd {
    pub folder: PathBuf,
    pub port: u16,
    daemon: Option<Mortal>,
}

impl Drop for Tgtd {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A program that stands in a folder that ordinary users do not search.
pub fn program(name: &str) -> String {
    let path = format!("/usr/sbin/{name}");
    if Path::new(&path).exists() { path } else { name.to_owned() }
}

impl Tgtd {
    /// One without targets, with a folder of this name under `under`. `None` where it is not
    /// installed.
    pub fn start(under: &str, name: &str) -> Option<Tgtd> {
        if !installed(&program("tgtd")) {
            return None;
        }
        let folder = Path::new(under).join(format!("tgtd-{name}"));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a folder");
        let mut tgtd = Tgtd { folder, port: free_port(), daemon: None };
        tgtd.run();
        Some(tgtd)
    }

    /// Starts the program, also again after [`Tgtd::kill`]: with no targets.
    pub fn run(&mut self) {
        let portal = format!("portal=127.0.0.1:{}", self.port);
        let mut command = mortal(program("tgtd"));
        command
            .env("TGT_IPC_SOCKET", self.folder.join("ipc"))
            .args(["-f", "-C", "7", "--iscsi", &portal])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(self.folder.join("log")).expect("a log"));
        let mut daemon = Mortal(command.spawn().expect("tgtd"));
        while !self.try_admin(&["--op", "show", "--mode", "system"]) {
            let ended = daemon.try_wait().expect("a child");
            let log = || std::fs::read_to_string(self.folder.join("log"));
            assert!(ended.is_none(), "tgtd ended: {ended:?} {:?}", log());
        }
        self.daemon = Some(daemon);
    }

    /// Kills it with SIGKILL, and waits until it has gone.
    pub fn kill(&mut self) {
        drop(self.daemon.take());
    }

    /// The number of its process.
    pub fn pid(&self) -> u32 {
        self.daemon.as_ref().expect("it runs").id()
    }

    /// Stops the process, or lets it go on.
    pub fn stop(&self, stop: bool) {
        let signal = if stop { "-STOP" } else { "-CONT" };
        let sent = Command::new("kill").args([signal, &self.pid().to_string()]).status();
        assert!(sent.expect("kill").success());
    }

    /// An image of so many bytes in its folder, made if it is not there.
    pub fn image(&self, name: &str, bytes: u64) -> PathBuf {
        let path = self.folder.join(name);
        if !path.exists() {
            std::fs::File::create(&path).expect("an image").set_len(bytes).expect("an image");
        }
        path
    }

    /// A target that all may use, without logical units.
    pub fn target(&self, tid: u32, name: &str) {
        let tid = &*tid.to_string();
        self.admin(&["--op", "new", "--mode", "target", "--tid", tid, "-T", name]);
        for (key, value) in PARAMETERS {
            self.parameter(tid, key, value);
        }
        self.admin(&["--op", "bind", "--mode", "target", "--tid", tid, "-I", "ALL"]);
    }

    /// A logical unit on an image; `more` are further arguments, as `--blocksize 4096`.
    pub fn unit(&self, tid: u32, lun: u32, image: &Path, more: &[&str]) {
        let (tid, lun) = (&*tid.to_string(), &*lun.to_string());
        let image = image.display().to_string();
        let unit = ["--op", "new", "--mode", "logicalunit", "--tid", tid, "--lun", lun];
        self.admin(&[&unit[..], &["-b", &image], more].concat());
    }

    /// Sets parameters of a logical unit.
    pub fn unit_parameters(&self, tid: u32, lun: u32, parameters: &str) {
        let (tid, lun) = (&*tid.to_string(), &*lun.to_string());
        let unit = ["--op", "update", "--mode", "logicalunit", "--tid", tid, "--lun", lun];
        self.admin(&[&unit[..], &["--params", parameters]].concat());
    }

    /// Sets a parameter of a target, for logins to come.
    pub fn parameter(&self, tid: &str, key: &str, value: &str) {
        let update = ["--op", "update", "--mode", "target", "--tid", tid];
        self.admin(&[&update[..], &["-n", key, "-v", value]].concat());
    }

    /// An account for CHAP; an `outgoing` one is the target's own.
    pub fn account(&self, tid: u32, user: &str, secret: &str, outgoing: bool) {
        let account = ["--op", "new", "--mode", "account", "--user", user];
        self.admin(&[&account[..], &["--password", secret]].concat());
        let tid = tid.to_string();
        let bind = ["--op", "bind", "--mode", "account", "--tid", &tid, "--user", user];
        let outgoing: &[&str] = if outgoing { &["--outgoing"] } else { &[] };
        self.admin(&[&bind[..], outgoing].concat());
    }

    /// Listens at a further portal, or no longer.
    pub fn portal(&self, port: u16, listen: bool) {
        let (op, portal) = (if listen { "new" } else { "delete" }, format!("127.0.0.1:{port}"));
        let param = format!("portal={portal}");
        self.admin(&["--op", op, "--mode", "portal", "--param", &param]);
    }

    /// Ends every connection to a target; how many there were.
    pub fn drop_connections(&self, tid: u32) -> usize {
        let tid = &*tid.to_string();
        let shown = self.run_admin(&["--op", "show", "--mode", "conn", "--tid", tid]);
        let shown = String::from_utf8(shown.stdout).expect("text");
        let sessions = shown.lines().filter_map(|line| line.trim().strip_prefix("Session: "));
        let ended = sessions.filter(|sid| {
            let conn = ["--op", "delete", "--mode", "conn", "--tid", tid, "--sid", sid];
            self.try_admin(&[&conn[..], &["--cid", "0"]].concat())
        });
        ended.count()
    }

    fn run_admin(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(program("tgtadm"));
        command.env("TGT_IPC_SOCKET", self.folder.join("ipc"));
        command.args(["-C", "7", "--lld", "iscsi"]).args(arguments);
        command.output().expect("tgtadm")
    }

    pub fn try_admin(&self, arguments: &[&str]) -> bool {
        self.run_admin(arguments).status.success()
    }

    #[track_caller]
    pub fn admin(&self, arguments: &[&str]) {
        let output = self.run_admin(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "tgtadm {arguments:?}: {said}");
    }
}
