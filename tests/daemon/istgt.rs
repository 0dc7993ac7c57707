//! Debian's istgt on loopback: a second iSCSI target for tests, of another family of code than
//! tgtd, as an ordinary process with all its files in one folder.
//!
//! It has three targets, each with one unit 0 of 64 MiB on a file: without proof, with the proof of
//! the initiator, and with that of both sides.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use super::outside::{Mortal, installed, mortal};
use super::tgtd::{free_port, program};

pub const PLAIN: &str = "iqn.2024-01.test:plain";
pub const PROVED: &str = "iqn.2024-01.test:proved";
pub const MUTUAL: &str = "iqn.2024-01.test:mutual";

/// Each target: the end of its name, and how it wants proof.
const TARGETS: [(&str, &str); 3] =
    [("plain", "None"), ("proved", "CHAP"), ("mutual", "CHAP Mutual")];

/// A running istgt with its own folder, which goes with it.
pub struct Istgt {
    pub folder: PathBuf,
    pub port: u16,
    daemon: Option<Mortal>,
}

impl Drop for Istgt {
    fn drop(&mut self) {
        self.kill();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Istgt {
    /// One with a folder under `under`. `None` where it is not installed.
    pub fn start(under: &Path) -> Option<Istgt> {
        if !installed(&program("istgt")) {
            return None;
        }
        let folder = under.join("istgt");
        fs::create_dir_all(folder.join("media")).expect("a folder");
        let mut istgt = Istgt { folder, port: free_port(), daemon: None };
        istgt.configure();
        istgt.run();
        Some(istgt)
    }

    /// The file behind the unit of a target, by the end of the target's name.
    pub fn image(&self, target: &str) -> PathBuf {
        self.folder.join(format!("{target}.img"))
    }

    fn configure(&self) {
        let folder = self.folder.display();
        let mut text = format!(
            "[Global]\n  NodeBase \"iqn.2024-01.test\"\n  PidFile {folder}/pid\n  \
             AuthFile {folder}/auth.conf\n  MediaDirectory {folder}/media\n  \
             LogFacility \"local7\"\n  Timeout 30\n  NopInInterval 20\n  \
             DiscoveryAuthMethod None\n  MaxSessions 16\n  MaxConnections 4\n  MaxR2T 32\n  \
             MaxOutstandingR2T 16\n  DefaultTime2Wait 2\n  DefaultTime2Retain 60\n  \
             FirstBurstLength 65536\n  MaxBurstLength 262144\n  \
             MaxRecvDataSegmentLength 65536\n  InitialR2T Yes\n  ImmediateData Yes\n  \
             DataPDUInOrder Yes\n  DataSequenceInOrder Yes\n  ErrorRecoveryLevel 0\n\
             [UnitControl]\n  AuthMethod CHAP Mutual\n  AuthGroup AuthGroup1\n  \
             Portal UC1 127.0.0.1:{control}\n  Netmask 127.0.0.1\n\
             [PortalGroup1]\n  Portal DA1 127.0.0.1:{port}\n\
             [InitiatorGroup1]\n  InitiatorName \"ALL\"\n  Netmask 127.0.0.0/8\n",
            control = free_port(),
            port = self.port,
        );
        for (number, (name, method)) in (1..).zip(TARGETS) {
            text.push_str(&format!(
                "[LogicalUnit{number}]\n  TargetName {name}\n  \
                 Mapping PortalGroup1 InitiatorGroup1\n  AuthMethod {method}\n  \
                 AuthGroup AuthGroup1\n  UseDigest Auto\n  UnitType Disk\n  \
                 UnitInquiry \"WEIR\" \"ISTGT DISK\" \"0123\" \"1000000{number}\"\n  \
                 QueueDepth 32\n  LUN0 Storage {image} 64MB\n",
                image = self.image(name).display(),
            ));
        }
        fs::write(self.folder.join("istgt.conf"), text).expect("a file");
        let auth = self.folder.join("auth.conf");
        let proof = "[AuthGroup1]\n  Auth \"weir\" \"weirsecret123\" \"out\" \"outsecret4567\"\n";
        fs::write(&auth, proof).expect("a file");
        fs::set_permissions(&auth, PermissionsExt::from_mode(0o600)).expect("a mode");
    }

    /// Starts the program, also again after [`Istgt::kill`], and waits until it listens.
    pub fn run(&mut self) {
        let log = fs::File::create(self.folder.join("log")).expect("a log");
        let mut command = mortal(program("istgt"));
        command.arg("-D").arg("-c").arg(self.folder.join("istgt.conf"));
        command.arg("-p").arg(self.folder.join("pid"));
        command.stdin(Stdio::null()).stderr(log.try_clone().expect("a log")).stdout(log);
        let mut daemon = Mortal(command.spawn().expect("istgt"));
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            let ended = daemon.try_wait().expect("a child");
            let log = || fs::read_to_string(self.folder.join("log"));
            assert!(ended.is_none(), "istgt ended: {ended:?} {:?}", log());
        }
        self.daemon = Some(daemon);
    }

    /// Kills it with SIGKILL, and waits until it has gone.
    pub fn kill(&mut self) {
        drop(self.daemon.take());
    }
}
