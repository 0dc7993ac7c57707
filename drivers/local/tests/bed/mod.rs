//! The support of the tests of drivers: files that disappear with their test, and a rig that waits
//! for answers as a reactor would.

#![allow(dead_code)] // Each test file uses its part.

#[path = "../../../../tests/daemon/outside.rs"]
pub mod outside;

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec};
use weir_bio::{Bio, Buf, Nanos, Prng};
use weir_queue::rig::{Answered, Rig};
use weir_queue::{Driver, DriverQueue};

/// A path of this test alone; the file there, if any, is removed with this.
pub struct TempFile(PathBuf);

impl TempFile {
    /// In the build's folder for tests: a real file system.
    pub fn on_disk() -> TempFile {
        TempFile::within(Path::new(env!("CARGO_TARGET_TMPDIR")))
    }

    pub fn within(folder: &Path) -> TempFile {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        TempFile(folder.join(format!("weir-local-{}-{count}.img", std::process::id())))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        _ = std::fs::remove_file(&self.0);
    }
}

/// A loop device on a file of its own; both go with this.
pub struct LoopDevice {
    device: PathBuf,
    _file: TempFile,
}

impl LoopDevice {
    /// `bytes` bytes in blocks of `block` bytes, or why there is none here.
    pub fn new(bytes: u64, block: u32) -> Result<LoopDevice, String> {
        LoopDevice::within(Path::new(env!("CARGO_TARGET_TMPDIR")), bytes, block)
    }

    /// The same, with its file in this folder.
    pub fn within(folder: &Path, bytes: u64, block: u32) -> Result<LoopDevice, String> {
        let file = TempFile::within(folder);
        let made = std::fs::File::create(file.path()).and_then(|file| file.set_len(bytes));
        made.map_err(|error| error.to_string())?;
        let block = block.to_string();
        let losetup = Command::new("losetup")
            .args(["--find", "--show", "--sector-size", &block])
            .arg(file.path())
            .output()
            .map_err(|error| format!("losetup: {error}"))?;
        if !losetup.status.success() {
            return Err(String::from_utf8_lossy(&losetup.stderr).trim().to_owned());
        }
        let device = PathBuf::from(String::from_utf8_lossy(&losetup.stdout).trim());
        Ok(LoopDevice { device, _file: file })
    }

    pub fn path(&self) -> &Path {
        &self.device
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        _ = Command::new("losetup").arg("--detach").arg(&self.device).status();
    }
}

/// A rig with a clock that moves only when the driver asks for it.
pub struct Bed {
    pub rig: Rig,
    pub now: Nanos,
    depth: usize,
}

impl Bed {
    pub fn new(driver: &dyn Driver) -> Bed {
        Bed::with_depth(driver, driver.queues().depth)
    }

    pub fn with_depth(driver: &dyn Driver, depth: u16) -> Bed {
        Bed::of(driver.open(0, depth).expect("a queue"), depth)
    }

    pub fn of(queue: Box<dyn DriverQueue>, depth: u16) -> Bed {
        Bed { rig: Rig::new(queue, depth), now: Nanos(1), depth: usize::from(depth) }
    }

    /// Submits all and waits for all, again and again where the driver refuses. Answers come in the
    /// order they ended.
    pub fn run(&mut self, mut bios: Vec<Bio>) -> Vec<Answered> {
        let wanted = bios.len();
        let mut answers = Vec::new();
        while answers.len() < wanted {
            let room = self.depth - self.rig.queue().in_flight();
            let later = bios.split_off(room.min(bios.len()));
            if let Some((_, rest)) = self.rig.submit(bios, self.now) {
                bios = rest;
            } else {
                bios = Vec::new();
            }
            bios.extend(later);
            self.wait();
            answers.extend(self.rig.reap(self.now));
        }
        answers
    }

    /// One bio that must succeed.
    pub fn one(&mut self, bio: Bio) -> Answered {
        let answer = self.run(vec![bio]).remove(0);
        assert!(answer.status.is_ok(), "{:?}", answer.status);
        answer
    }

    /// Blocks until the driver says that there is something to reap.
    pub fn wait(&mut self) {
        let queue = self.rig.queue();
        if queue.in_flight() == 0 {
            return;
        }
        if let Some(at) = queue.wake_at() {
            self.now = self.now.max(at);
            return;
        }
        let Some(fd) = queue.event_fd() else { return };
        let mut polled = [PollFd::new(&fd, PollFlags::IN)];
        let patience = Timespec { tv_sec: 30, tv_nsec: 0 };
        loop {
            match rustix::event::poll(&mut polled, Some(&patience)) {
                Ok(0) => panic!("no answer within 30 s"),
                Ok(_) => return,
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => panic!("poll: {errno}"),
            }
        }
    }
}

/// `len` random bytes.
pub fn noise(prng: &mut Prng, len: usize) -> Buf {
    Buf::filled(len, |bytes| prng.fill(bytes))
}

/// A seed that differs from run to run unless `WEIR_SEED` fixes it; printed, so that it shows when
/// the test fails.
pub fn seed() -> u64 {
    let fixed = std::env::var("WEIR_SEED").ok().and_then(|text| text.parse().ok());
    let seed = fixed.unwrap_or_else(|| {
        let mut bytes = [0; 8];
        let random = std::fs::File::open("/dev/urandom");
        random.and_then(|mut file| std::io::Read::read_exact(&mut file, &mut bytes)).unwrap();
        u64::from_ne_bytes(bytes)
    });
    println!("WEIR_SEED={seed}");
    seed
}

/// Whether a file descriptor is readable at this moment.
pub fn is_readable(fd: impl AsFd) -> bool {
    let mut polled = [PollFd::new(&fd, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut polled, Some(&now)).unwrap() > 0
}
