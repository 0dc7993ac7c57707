//! Mounting, and what can be in the way.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use fuser::{BackgroundSession, Config, MountOption, SessionACL};
use rustix::mount::{UnmountFlags, unmount};
use weir_control::Tree;

use crate::disk_mount::DiskMount;
use crate::disks::Disks;
use crate::files::{DEV, Files};

/// What is mounted, as /proc/mounts says it: its source and the second half of its type.
const SOURCE: &str = "weir";

/// Dead mounts over one another that are taken away, at most.
const LEFT_OVER_MOST: usize = 16;

/// A mounted tree. Dropping it unmounts, also under a process that still has a file open or works
/// in one of its folders.
pub(crate) struct Mount {
    folder: PathBuf,
    session: Option<BackgroundSession>,
    /// The disks, in it; `None` where they are part of the tree's.
    disk_mount: Option<DiskMount>,
    disks: Arc<Disks>,
}

/// Whether other users may look at a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Others {
    /// The user that mounts it alone, not even root if that is another user.
    #[default]
    Out,
    /// All users, as far as the files' permissions go, as at sysfs. A daemon that is not root needs
    /// `user_allow_other` in /etc/fuse.conf.
    MayLook,
}

/// Why a tree cannot be mounted: the folder and the reason.
#[derive(Debug)]
pub(crate) enum MountError {
    /// There is no such folder.
    Missing(PathBuf),
    /// It is not a folder.
    NotFolder(PathBuf),
    /// Something is mounted there.
    Busy(PathBuf),
    /// A process that mounted there is gone, and its mount is not. `Err` is why one of weir's could
    /// not be taken away; one of another program is left.
    LeftOver(PathBuf, Result<(), String>),
    /// The system refuses.
    Refused(PathBuf, io::Error),
}

impl fmt::Display for MountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MountError::Missing(folder) => {
                write!(f, "tree {}: there is no such folder", folder.display())
            }
            MountError::NotFolder(folder) => {
                write!(f, "tree {}: it is no folder", folder.display())
            }
            MountError::Busy(folder) => {
                write!(f, "tree {}: busy, something is mounted there", folder.display())
            }
            MountError::LeftOver(folder, tried) => {
                let why = match tried {
                    Ok(()) => String::new(),
                    Err(why) => format!(" ({why})"),
                };
                write!(
                    f,
                    "tree {0}: busy, the mount of a process that is gone is still there{why}; \
                     `umount -l {0}` takes it away",
                    folder.display()
                )
            }
            MountError::Refused(folder, error) => {
                let how = match error.kind() {
                    io::ErrorKind::PermissionDenied => {
                        " (without root it takes fusermount3 and the right to open /dev/fuse)"
                    }
                    _ => "",
                };
                write!(f, "tree {}: cannot be mounted: {error}{how}", folder.display())
            }
        }
    }
}

impl std::error::Error for MountError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            MountError::Refused(_, error) => Some(error),
            MountError::Missing(_)
            | MountError::NotFolder(_)
            | MountError::Busy(_)
            | MountError::LeftOver(..) => None,
        }
    }
}

impl Mount {
    /// Mounts `tree` at `folder`, which has to exist, with `disks` under `dev/`.
    ///
    /// # Errors
    /// The obstacle.
    pub(crate) fn open(
        folder: &Path,
        tree: Arc<Tree>,
        disks: Arc<Disks>,
        others: Others,
    ) -> Result<Mount, MountError> {
        clear(folder)?;
        let refused = |error| MountError::Refused(folder.into(), error);
        // Whatever the working folder is when it ends.
        let folder = std::fs::canonicalize(folder).map_err(refused)?;
        let refused = |error| MountError::Refused(folder.clone(), error);
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName(String::from(SOURCE)),
            MountOption::Subtype(String::from(SOURCE)),
            MountOption::DefaultPermissions,
            MountOption::NoDev,
            MountOption::NoSuid,
            MountOption::NoExec,
            MountOption::NoAtime,
        ];
        if others == Others::MayLook {
            config.acl = SessionACL::All;
        }
        let files = |root| Files::new(Arc::clone(&tree), Arc::clone(&disks), root);
        let session = fuser::spawn_mount(files(""), &folder, &config).map_err(refused)?;
        let disk_mount = DiskMount::open(&folder.join(DEV), files(DEV), &disks, &config)
            .inspect_err(|error| {
                let folder = folder.display();
                tracing::warn!("tree {folder}: the disks share its thread: {DEV}: {error}");
            })
            .ok();
        Ok(Mount { folder, session: Some(session), disk_mount, disks })
    }

    /// Where it is mounted.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        self.disks.close();
        // Lazily, which a file that is still open does not hinder. For an ordinary user, who may
        // not unmount, dropping the session does it.
        let detached = unmount(&self.folder, UnmountFlags::DETACH).is_ok();
        let (disk_mount, session) = (self.disk_mount.take(), self.session.take());
        if detached {
            // They would unmount once more, by name, and that may be other mounts by now.
            std::mem::forget((disk_mount, session));
        } else {
            drop(disk_mount);
            drop(session);
        }
    }
}

/// Checks a folder, once the mounts of daemons that are gone were taken away from it: one that was
/// killed leaves its own behind, and the next start would be refused for ever.
fn clear(folder: &Path) -> Result<(), MountError> {
    for _ in 0..LEFT_OVER_MOST {
        let Err(MountError::LeftOver(..)) = check(folder) else { break };
        let left = |why: String| MountError::LeftOver(folder.into(), Err(why));
        let Some(place) = place_of_weir(folder).map_err(|error| left(error.to_string()))? else {
            break;
        };
        // Another daemon may have taken it away meanwhile, and have one of its own there.
        let Err(MountError::LeftOver(..)) = check(&place) else { continue };
        detach(&place).map_err(left)?;
        tracing::warn!(
            "tree {}: the mount of a daemon that is gone was still there, and is taken away",
            folder.display()
        );
    }
    check(folder)
}

/// The whole path of `folder`, at which the mount of a process that is gone is seen, if that mount
/// is one of weir's.
fn place_of_weir(folder: &Path) -> io::Result<Option<PathBuf>> {
    // Other mounts may have names that are no text.
    let mounts = std::fs::read("/proc/self/mountinfo")?;
    let mounts = String::from_utf8_lossy(&mounts);
    // The folder itself cannot be asked any more, but for the link that it may be.
    let folder = match std::fs::read_link(folder) {
        Ok(to) => folder.parent().map_or_else(|| to.clone(), |above| above.join(&to)),
        Err(_) => folder.to_path_buf(),
    };
    let name = folder.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let above = match folder.parent().filter(|above| !above.as_os_str().is_empty()) {
        Some(above) => std::fs::canonicalize(above)?,
        None => std::env::current_dir()?,
    };
    let place = above.join(name);
    Ok(last_is_weir(&mounts, &place).then_some(place))
}

/// The same, of the text of proc_pid_mountinfo(5): of several at one place the last is seen.
fn last_is_weir(mounts: &str, place: &Path) -> bool {
    let at = |line: &&str| line.split(' ').nth(4).map(unescaped).as_deref() == place.to_str();
    let line = mounts.lines().rfind(at);
    let of = line.and_then(|line| line.split_once(" - ")).map(|(_, rest)| rest);
    let words = of.and_then(|rest| rest.split(' ').take(2).collect::<Vec<_>>().try_into().ok());
    // Where the kernel was not told the second half of the type there is none.
    words.is_some_and(|[kind, source]: [&str; 2]| {
        matches!(kind, "fuse" | "fuse.weir") && source == SOURCE
    })
}

/// A path as mountinfo writes it, in which blank, tab, newline and backslash are octal.
fn unescaped(text: &str) -> String {
    let pairs = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    pairs.iter().fold(String::from(text), |text, (from, to)| text.replace(from, to))
}

/// Takes a mount away lazily; as a user that may not, with the program that unmounts for users.
fn detach(folder: &Path) -> Result<(), String> {
    let how = UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
    let Err(error) = unmount(folder, how) else { return Ok(()) };
    if error != rustix::io::Errno::PERM {
        return Err(error.to_string());
    }
    let mut command = Command::new("fusermount3");
    command.args(["-u", "-z", "--"]).arg(folder);
    match command.output() {
        Ok(ended) if ended.status.success() => Ok(()),
        Ok(ended) => {
            let said = String::from_utf8_lossy(&ended.stderr);
            Err(format!("{error}; fusermount3: {} {}", ended.status, said.trim()))
        }
        Err(none) => Err(format!("{error}; fusermount3: {none}")),
    }
}

fn check(folder: &Path) -> Result<(), MountError> {
    let metadata = std::fs::metadata(folder).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => MountError::Missing(folder.into()),
        io::ErrorKind::NotConnected => MountError::LeftOver(folder.into(), Ok(())),
        _ => MountError::Refused(folder.into(), error),
    })?;
    if !metadata.is_dir() {
        return Err(MountError::NotFolder(folder.into()));
    }
    match is_mount_point(folder) {
        Ok(false) => Ok(()),
        Ok(true) => Err(MountError::Busy(folder.into())),
        Err(error) => Err(MountError::Refused(folder.into(), error)),
    }
}

/// Whether a file system begins at `folder`.
fn is_mount_point(folder: &Path) -> io::Result<bool> {
    use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};
    let status = statx(CWD, folder, AtFlags::empty(), StatxFlags::TYPE)?;
    Ok(status.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(folder: &Path) -> String {
        check(folder).unwrap_err().to_string()
    }

    #[test]
    fn what_is_in_the_way_is_named() {
        assert!(why(Path::new("/nowhere/at/all")).contains("/nowhere/at/all: there is no such"));
        assert!(why(Path::new("/dev/null")).contains("/dev/null: it is no folder"));
        assert!(why(Path::new("/proc")).contains("/proc: busy, something is mounted there"));
        assert!(check(Path::new("/proc/self")).is_ok());
    }

    #[test]
    fn a_dead_mount_is_weirs_if_the_last_one_at_the_place_is() {
        let mounts = "\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
30 22 0:40 / /run/a\\040tree rw,nosuid - fuse.weir weir rw,user_id=0\n\
31 30 0:41 / /run/a\\040tree/dev rw,nosuid - fuse.weir weir rw,user_id=0\n\
32 22 0:42 / /run/b rw - fuse.weir weir rw\n\
33 32 0:43 / /run/b rw - fuse.sshfs weir rw\n\
34 22 0:44 / /run/c rw - fuse.weir other rw\n\
35 22 0:45 / /run/d rw - fuse weir rw\n\
36 22 0:46 / /run/e rw - ext4 weir rw\n\
37 22 0:47 / /run/f rw - fuse other rw\n";
        let found = |place: &str| last_is_weir(mounts, Path::new(place));
        assert!(found("/run/a tree") && found("/run/a tree/dev") && found("/run/d"));
        let others = ["/run/b", "/run/c", "/run/e", "/run/f", "/", "/run", "/run/a"];
        assert!(others.iter().all(|place| !found(place)));
    }
}
