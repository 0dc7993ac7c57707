//! Programs of other projects: started so that they do not outlive the test, and missed aloud.
//!
//! Tests of other crates include this file too.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::ffi::OsStr;
use std::io::Write;
use std::net::TcpListener;
use std::ops::{Deref, DerefMut};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process::{Child, Command};
use std::sync::OnceLock;

/// Set by `cargo xtask ci`, which comes after `tests/packages.sh`: a missing program is an error.
const NEEDED: &str = "WEIR_TEST_PROGRAMS";

/// A command for a program that the kernel kills with the thread that starts it.
///
/// A test that is killed runs no destructor, and what it started would live on. `setpriv` of
/// util-linux asks the kernel and then becomes the program, under the same pid; where it is
/// missing, the destructor of [`Mortal`] has to do.
pub fn mortal(program: impl AsRef<OsStr>) -> Command {
    if !kernel_is_asked() {
        return Command::new(program);
    }
    let mut command = Command::new("env");
    command.args(ASK).arg(program);
    command
}

/// It hears of a terminal that goes, also where this is run so that it does not (`nohup`).
const ASK: [&str; 5] = ["--default-signal=HUP", "setpriv", "--pdeathsig", "KILL", "--"];

/// Whether there is a `setpriv` for [`mortal`].
pub fn kernel_is_asked() -> bool {
    static ASKED: OnceLock<bool> = OnceLock::new();
    let probe = || Command::new("env").args(ASK).arg("true").output();
    *ASKED.get_or_init(|| probe().is_ok_and(|ended| ended.status.success()))
}

/// A running child that is killed and waited for with the value.
pub struct Mortal(pub Child);

impl Deref for Mortal {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Mortal {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Mortal {
    fn drop(&mut self) {
        // It may have ended by itself; either way it is waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether the program is installed; says so if it is not.
#[track_caller]
pub fn installed(name: &str) -> bool {
    let found = Command::new(name).arg("--version").output().is_ok();
    if !found {
        let needed = std::env::var_os(NEEDED).is_some();
        assert!(!needed, "{name} is not installed; tests/packages.sh installs it");
        leave_out(&format!("{name} is not installed"));
    }
    found
}

/// A port above 20000 on which nothing listens, for a program that cannot say which one the kernel
/// gave it.
///
/// It lies below the ports of connections, of which any may be taken before the program listens;
/// and no other test has it while this process runs.
pub fn free_port() -> u16 {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
    let lowest = range.ok().and_then(|range| range.split_whitespace().next()?.parse().ok());
    // A host may let connections have all ports: then there is none that they cannot take.
    let end = lowest.filter(|lowest| *lowest > PORTS + 1000).unwrap_or(u16::MAX);
    // Tests that run side by side do not try the same ones.
    let first = std::process::id() % u32::from(end - PORTS);
    let mut ports = (PORTS + first as u16..end).chain(PORTS..PORTS + first as u16);
    ports.find(|port| take(*port)).expect("a free port")
}

/// The first port that tests may have.
const PORTS: u16 = 20_001;

/// Whether the port is this process's now, and nothing listens on it. Tests tell each other by a
/// name that the kernel gives back when a process ends.
fn take(port: u16) -> bool {
    let name = SocketAddr::from_abstract_name(format!("weir-test-port-{port}")).expect("a name");
    let Ok(held) = UnixListener::bind_addr(&name) else { return false };
    std::mem::forget(held);
    TcpListener::bind(("127.0.0.1", port)).is_ok()
}

/// Says on standard error, past the harness that keeps what a passing test prints, that the
/// calling test shows nothing here and why.
pub fn leave_out(why: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    // Standard error may be closed; the test is left out all the same.
    let _ = writeln!(std::io::stderr(), "LEFT OUT: {test}: {why}");
}
