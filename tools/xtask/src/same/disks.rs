//! The disks that variants are compared on: one of each kind, each written by what it is compared
//! with.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::failed;
use crate::workspace::Error;

/// What all of them hold.
const SIZE: &str = "64MiB";
const BYTES: u64 = 64 << 20;

/// The scheduler of the kernel that is compared with itself.
const SCHEDULER: &str = "mq-deadline";

/// How long a server may take to listen.
const STARTS_IN: Duration = Duration::from_secs(30);

/// A kind of disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Kind {
    /// A file of weir's own.
    File,
    /// Memory.
    Ram,
    /// A disk in the memory of a second weir, by NBD over a UNIX socket.
    Nbd,
    /// A loop device under a scheduler of the kernel (root).
    Loop,
}

impl Kind {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Kind::File => "file",
            Kind::Ram => "ram",
            Kind::Nbd => "nbd",
            Kind::Loop => "loop",
        }
    }
}

/// One of them; a server, or the loop device, ends with the value.
pub struct Disk {
    target: String,
    is_kernels: bool,
    /// The server of it.
    server: Option<Child>,
    /// Kept open: the loop device goes when it is closed, however this program ends.
    _device: Option<File>,
}

impl Disk {
    /// Makes a disk, or tells why this machine has none of the kind.
    pub fn of(kind: Kind, program: &Path, folder: &Path) -> Result<Result<Disk, String>, Error> {
        let plain =
            |target: String| Disk { target, is_kernels: false, server: None, _device: None };
        let image = folder.join("disk.img");
        match kind {
            Kind::Ram => Ok(Ok(plain(format!("ram:{SIZE}")))),
            Kind::File => {
                remove(&image)?;
                Ok(Ok(plain(format!("file:{},size={SIZE}", image.display()))))
            }
            Kind::Nbd => serve(program, folder).map(Ok),
            Kind::Loop => attach(&image),
        }
    }

    /// The flags of `weir compare` that say what is compared.
    pub fn variants(&self) -> Vec<String> {
        let same = ["--a", "scheduler=mq-deadline", "--b", "scheduler=mq-deadline"];
        let kernels = format!("{SCHEDULER},{SCHEDULER}");
        let kernels = ["--kernel-scheduler", &kernels];
        let flags = if self.is_kernels { &kernels[..] } else { &same[..] };
        let target = ["--target", &self.target];
        target.iter().chain(flags).map(|word| (*word).to_owned()).collect()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let Some(server) = &mut self.server {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

/// A second weir that serves a disk in its memory.
fn serve(program: &Path, folder: &Path) -> Result<Disk, Error> {
    let [socket, control] = ["nbd.sock", "control.sock"].map(|name| folder.join(name));
    remove(&socket)?;
    remove(&control)?;
    let said = folder.join("server.txt");
    let log = File::create(&said).map_err(|error| failed(&said, &error))?;
    let mut command = Command::new(program);
    command.args(["serve", "--disk", &format!("same=ram:{SIZE}")]);
    command.arg("--nbd").arg(format!("unix:{}", socket.display()));
    command.arg("--control").arg(&control).current_dir(folder);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    let server = command.spawn().map_err(|error| failed(program, &error))?;
    let target = format!("nbd+unix:{}?same", socket.display());
    let mut disk = Disk { target, is_kernels: false, server: Some(server), _device: None };
    let began = Instant::now();
    while !socket.exists() {
        let server = disk.server.as_mut().expect("it was just started");
        let ended = server.try_wait().map_err(|error| failed(program, &error))?;
        if ended.is_some() || began.elapsed() > STARTS_IN {
            return Err(format!("the server does not listen; see {}", said.display()));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(disk)
}

/// A loop device over a new file; why there is none, where the user may not have one.
fn attach(image: &Path) -> Result<Result<Disk, String>, Error> {
    remove(image)?;
    let file = File::create(image).and_then(|file| file.set_len(BYTES));
    file.map_err(|error| failed(image, &error))?;
    let losetup = |words: &[&str]| {
        let output = Command::new("losetup").args(words).output();
        let output = output.map_err(|error| format!("losetup: {error}"))?;
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
            false => Err(format!("losetup {}: {said}", words.join(" "))),
        }
    };
    let name = match losetup(&["--find", "--show", &image.display().to_string()]) {
        Ok(name) => name,
        Err(why) => return Ok(Err(why)),
    };
    let device = PathBuf::from(&name);
    let opened = OpenOptions::new().read(true).open(&device);
    // One that is open goes when it is closed.
    let detached = losetup(&["--detach", &name]);
    let opened = opened.map_err(|error| failed(&device, &error))?;
    detached?;
    let own = Path::new("/sys/block").join(device.file_name().unwrap_or_default());
    let schedulers = own.join("queue/scheduler");
    let known = fs::read_to_string(&schedulers).map_err(|error| failed(&schedulers, &error))?;
    let target = format!("file:{name}");
    let disk = Disk { target, is_kernels: true, server: None, _device: Some(opened) };
    match known.split_whitespace().any(|one| one.trim_matches(['[', ']']) == SCHEDULER) {
        true => Ok(Ok(disk)),
        false => Ok(Err(format!("{}: no {SCHEDULER} in {known:?}", schedulers.display()))),
    }
}

fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(failed(path, &error)),
        _ => Ok(()),
    }
}
