//! Real servers: nbdkit and qemu-nbd, each on a socket of its own, ended by pid.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::inotify;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, kill_process, pidfd_open, waitpid};
use weir_driver_nbd::Address;

use super::Folder;
use super::outside::{Mortal, free_port, installed, mortal};

/// A server that runs in the background until the value is dropped.
pub struct Program {
    /// `None` once it was killed. Gone before its folder is.
    child: Option<Mortal>,
    pub folder: Folder,
    pub address: Address,
}

/// nbdkit with these arguments, or `None` where it is missing.
pub fn nbdkit(arguments: &[&str]) -> Option<Program> {
    installed("nbdkit").then_some(())?;
    let folder = Folder::new();
    let child = Some(start(nbdkit_command(&folder, arguments), &folder));
    let address = Address::Unix(folder.join("socket"));
    Some(Program { folder, address, child })
}

fn nbdkit_command(folder: &Folder, arguments: &[&str]) -> Command {
    let mut command = mortal("nbdkit");
    command
        .arg("-f")
        .arg("-U")
        .arg(folder.join("socket"))
        .arg("-P")
        .arg(folder.join("pid"))
        .args(arguments);
    command
}

/// nbdkit on a loopback port.
pub fn nbdkit_tcp(arguments: &[&str]) -> Option<Program> {
    installed("nbdkit").then_some(())?;
    let folder = Folder::new();
    let port = free_port();
    let mut command = mortal("nbdkit");
    command.args(["-f", "-i", "127.0.0.1", "-p", &port.to_string(), "-P"]);
    command.arg(folder.join("pid")).args(arguments);
    let child = Some(start(command, &folder));
    let address = Address::Tcp { host: "127.0.0.1".to_owned(), port };
    Some(Program { folder, address, child })
}

/// qemu-nbd on a raw file of so many bytes.
pub fn qemu_nbd(bytes: u64, arguments: &[&str]) -> Option<Program> {
    installed("qemu-nbd").then_some(())?;
    let folder = Folder::new();
    let image = folder.join("image");
    std::fs::File::create(&image).and_then(|file| file.set_len(bytes)).expect("an image");
    let mut command = mortal("qemu-nbd");
    command.args(["-t", "-f", "raw", "-k"]).arg(folder.join("socket"));
    command.arg(format!("--pid-file={}", folder.join("pid").display()));
    command.args(arguments).arg(image);
    let child = Some(start(command, &folder));
    let address = Address::Unix(folder.join("socket"));
    Some(Program { folder, address, child })
}

/// Starts a server in the foreground. Both write their pid once they listen.
fn start(mut command: Command, folder: &Folder) -> Mortal {
    let _ = std::fs::remove_file(folder.join("pid"));
    let log = std::fs::File::create(folder.join("log")).expect("a log");
    command.stdin(Stdio::null()).stdout(log.try_clone().expect("a log")).stderr(log);
    let news = inotify::init(inotify::CreateFlags::CLOEXEC).expect("inotify");
    let watched = inotify::WatchFlags::CREATE | inotify::WatchFlags::MOVED_TO;
    inotify::add_watch(&news, folder.path(), watched).expect("inotify");
    let mut child = Mortal(command.spawn().expect("the server can be started"));
    let ended = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).expect("a child");
    let mut bytes = [0; 4096];
    while !folder.join("pid").exists() {
        let fds = [PollFd::new(&news, PollFlags::IN), PollFd::new(&ended, PollFlags::IN)];
        poll(&mut fds.clone(), None).expect("poll");
        if let Ok(Some(status)) = child.try_wait() {
            let said = std::fs::read_to_string(folder.join("log")).unwrap_or_default();
            panic!("{command:?}: {status}: {said}");
        }
        rustix::io::read(&news, &mut bytes[..]).expect("news of the folder");
    }
    child
}

impl Program {
    pub fn image(&self) -> PathBuf {
        self.folder.join("image")
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(self.child.as_ref().expect("a running server"))
    }

    /// Stops the server. Nothing of it runs any more when this returns.
    pub fn pause(&self) {
        kill_process(self.pid(), Signal::STOP).expect("a running server");
        // The signal alone returns before every thread has seen it.
        let stopped = waitpid(Some(self.pid()), WaitOptions::UNTRACED).expect("a child");
        assert!(stopped.is_some_and(|(_, status)| status.stopped()));
    }

    /// Lets a server that was stopped go on.
    pub fn go_on(&self) {
        kill_process(self.pid(), Signal::CONT).expect("a stopped server");
    }

    /// Kills the server and waits until it is gone, and its socket with it.
    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("a running server");
        child.kill().expect("a running server");
        child.wait().expect("its end");
        std::fs::remove_file(self.folder.join("socket")).expect("it leaves its socket");
    }

    /// Starts nbdkit again where it was.
    pub fn restart(&mut self, arguments: &[&str]) {
        assert!(self.child.is_none(), "killed before");
        self.child = Some(start(nbdkit_command(&self.folder, arguments), &self.folder));
    }
}
