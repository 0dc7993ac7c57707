//! `weir tree exec`: a command that finds a mounted tree where a kernel has its own disks.
//!
//! The mounts are in a mount namespace of the command, which ends with its last process: nothing of
//! them is seen outside. The command takes the place of this process, so signals reach it and its
//! exit status is that of the command line.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{Args, Subcommand};
use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, mount_bind, mount_change};
use rustix::thread::UnshareFlags;

use crate::Failure;

/// Works with a mounted tree (`weir serve --tree DIR`).
#[derive(Debug, Args)]
pub(crate) struct Tree {
    #[command(subcommand)]
    command: Sub,
}

#[derive(Debug, Subcommand)]
enum Sub {
    Exec(Exec),
}

/// Runs a command that finds the tree mounted at DIR in place of the kernel's disks.
///
/// It has /sys/block, /sys/class/block, /proc/diskstats and /proc/uptime of the tree, in a mount
/// namespace of its own; without the right to make one, in a user namespace, where the kernel lets
/// every user have one. Its exit status is that of the command.
///
/// /dev and /sys/dev stay the host's: /dev/sda is no disk of weir's there, which is DIR/dev/sda,
/// and lsblk and fdisk do not work.
///
/// Example: weir tree exec /run/weir/tree -- iostat -x 1
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
struct Exec {
    /// Where the tree is mounted.
    #[arg(value_name = "DIR")]
    tree: PathBuf,
    /// The command and its arguments.
    #[arg(value_name = "COMMAND", required = true, last = true)]
    command: Vec<OsString>,
}

/// What of the tree stands in place of what.
const PLACES: [(&str, &str); 4] = [
    ("block", "/sys/block"),
    ("class/block", "/sys/class/block"),
    ("proc/diskstats", "/proc/diskstats"),
    // By it programs divide what diskstats counts.
    ("proc/uptime", "/proc/uptime"),
];

impl Tree {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let Sub::Exec(exec) = &self.command;
        exec.run()
    }
}

impl Exec {
    fn run(&self) -> Result<(), Failure> {
        let tree = checked(&self.tree)?;
        enter_namespace()?;
        for (file, place) in PLACES {
            let from = tree.join(file);
            mount_bind(from.as_path(), place).map_err(|error| {
                let hint = hint(error);
                Failure::Bad(format!("{} in place of {place}: {error}{hint}", from.display()))
            })?;
        }
        let Some((program, arguments)) = self.command.split_first() else {
            return Err(Failure::from("COMMAND is missing"));
        };
        let error = Command::new(program).args(arguments).exec();
        Err(Failure::Bad(format!("{}: {error}", Path::new(program).display())))
    }
}

/// The tree at `at`, as a whole path.
fn checked(at: &Path) -> Result<PathBuf, Failure> {
    let failed = |path: &Path, error: io::Error| {
        let ended = "the daemon that had mounted it there has ended";
        match Errno::from_io_error(&error) {
            Some(Errno::NOTCONN) => Failure::Bad(format!("{}: {ended}: {error}", path.display())),
            _ => Failure::Bad(format!("{}: {error}", path.display())),
        }
    };
    let tree = fs::canonicalize(at).map_err(|error| failed(at, error))?;
    let is_none = |what: &str| {
        let how = "it is what `weir serve --tree DIR` has mounted";
        Failure::Bad(format!("{} is no tree of weir: {what}; {how}", tree.display()))
    };
    let kind = rustix::fs::statfs(&tree).map_err(|error| failed(&tree, error.into()))?.f_type;
    if u64::try_from(kind).ok() != Some(FUSE) {
        return Err(is_none("it is no FUSE file system"));
    }
    let device = fs::metadata(&tree).map_err(|error| failed(&tree, error))?.dev();
    // The version is there of no other file system that has the rest.
    for file in PLACES.map(|(file, _)| file).into_iter().chain(["weir/version"]) {
        let path = tree.join(file);
        let is_it = fs::metadata(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => is_none(&format!("it has no {file}")),
            _ => failed(&path, error),
        })?;
        if file.ends_with("block") != is_it.is_dir() || is_it.dev() != device {
            return Err(is_none(&format!("its {file} is none")));
        }
    }
    Ok(tree)
}

/// FUSE_SUPER_MAGIC, statfs(2).
const FUSE: u64 = 0x6573_5546;

/// Who may have a namespace.
const TAKES: &str = ": it takes root, or a kernel that lets every user make one \
    (user.max_user_namespaces, and where there is one kernel.unprivileged_userns_clone or \
    kernel.apparmor_restrict_unprivileged_userns)";

/// What it takes, where a right is missing.
fn hint(error: Errno) -> &'static str {
    if matches!(error, Errno::PERM | Errno::ACCESS) { TAKES } else { "" }
}

/// A mount namespace of this process, from which nothing is seen outside.
fn enter_namespace() -> Result<(), Failure> {
    match unshare(UnshareFlags::NEWNS) {
        Ok(()) => {}
        Err(Errno::PERM) => enter_user_namespace()?,
        Err(error) => return Err(Failure::Bad(format!("a mount namespace: {error}"))),
    }
    // What is mounted here goes nowhere; what the host unmounts is not kept here.
    let inward = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    mount_change("/", inward).map_err(|error| {
        Failure::Bad(format!("the mounts of a namespace of its own: {error}{}", hint(error)))
    })
}

/// The same in a user namespace in which every id is what it was.
fn enter_user_namespace() -> Result<(), Failure> {
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNS).map_err(|error| {
        Failure::Bad(format!(
            "this user may make no mount namespace, nor a user namespace ({error}){TAKES}"
        ))
    })?;
    let (user, group) = (user.as_raw(), group.as_raw());
    for (file, text) in [
        // Without this a user may not map a group.
        ("setgroups", String::from("deny")),
        ("uid_map", format!("{user} {user} 1")),
        ("gid_map", format!("{group} {group} 1")),
    ] {
        fs::write(format!("/proc/self/{file}"), text).map_err(|error| {
            let hint = Errno::from_io_error(&error).map_or("", hint);
            Failure::Bad(format!("the {file} of a user namespace of its own: {error}{hint}"))
        })?;
    }
    Ok(())
}

/// Not with `UnshareFlags::FILES`, for which threads could miss descriptors: that is why the other
/// call is unsafe.
#[expect(deprecated, reason = "the other one is unsafe, and no code here may be")]
fn unshare(flags: UnshareFlags) -> Result<(), Errno> {
    rustix::thread::unshare(flags)
}
