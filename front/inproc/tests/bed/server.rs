//! Real NBD servers, each on a socket of its own, ended by pid.

use std::process::{Command, Stdio};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::inotify;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::Folder;
use super::outside::{Mortal, installed, mortal};

/// A server in the background, ended with the value.
pub struct Server {
    // Gone before its folder is.
    _child: Mortal,
    folder: Folder,
}

impl Server {
    /// nbdkit with these arguments; `None` where it is not installed.
    pub fn nbdkit(arguments: &[&str]) -> Option<Server> {
        installed("nbdkit").then_some(())?;
        let folder = Folder::new();
        let mut command = mortal("nbdkit");
        command.args(["-f", "-U"]).arg(folder.join("socket")).arg("-P").arg(folder.join("pid"));
        command.args(arguments);
        Some(Server::start(command, folder))
    }

    /// qemu-nbd with these arguments on a raw file of `bytes` bytes; `None` where it is not
    /// installed.
    pub fn qemu_nbd(bytes: u64, arguments: &[&str]) -> Option<Server> {
        installed("qemu-nbd").then_some(())?;
        let folder = Folder::new();
        let image = folder.join("image");
        std::fs::File::create(&image).and_then(|file| file.set_len(bytes)).expect("an image");
        let mut command = mortal("qemu-nbd");
        command.args(["-t", "-f", "raw", "-k"]).arg(folder.join("socket"));
        command.arg(format!("--pid-file={}", folder.join("pid").display()));
        command.args(arguments).arg(image);
        Some(Server::start(command, folder))
    }

    /// Both write their pid when they listen, and not before.
    fn start(mut command: Command, folder: Folder) -> Server {
        let log = std::fs::File::create(folder.join("log")).expect("a log");
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a log")).stderr(log);
        let news = inotify::init(inotify::CreateFlags::CLOEXEC).expect("inotify");
        let watched = inotify::WatchFlags::CREATE | inotify::WatchFlags::MOVED_TO;
        inotify::add_watch(&news, folder.path(), watched).expect("inotify");
        let mut child = Mortal(command.spawn().expect("the server can be started"));
        let end = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).expect("a child");
        while !folder.join("pid").exists() {
            let mut either = [PollFd::new(&news, PollFlags::IN), PollFd::new(&end, PollFlags::IN)];
            poll(&mut either, None).expect("news of the server");
            if let Ok(Some(status)) = child.try_wait() {
                let log = std::fs::read_to_string(folder.join("log")).unwrap_or_default();
                panic!("{command:?}: {status}: {log}");
            }
            rustix::io::read(&news, &mut [0_u8; 4096]).expect("news of the folder");
        }
        Server { _child: child, folder }
    }

    /// As a target.
    pub fn target(&self) -> String {
        format!("nbd+unix:{}", self.folder.join("socket").display())
    }
}
