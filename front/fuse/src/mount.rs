//! Mounting, and what can be in the way.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fuser::{BackgroundSession, Config, MountOption, SessionACL};
use rustix::mount::{UnmountFlags, unmount};
use weir_control::Tree;

use crate::disks::Disks;
use crate::files::{DEV, Files};

/// A mounted tree. Dropping it unmounts, also under a process that still has a file open or works
/// in one of its folders.
pub(crate) struct Mount {
    folder: PathBuf,
    session: Option<BackgroundSession>,
    /// The disks, in it; `None` where they are part of the tree's.
    inner: Option<BackgroundSession>,
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
    /// A daemon that mounted there is gone, and its mount is not.
    LeftOver(PathBuf),
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
            MountError::LeftOver(folder) => write!(
                f,
                "tree {0}: busy, the mount of a daemon that is gone is still there; `umount -l \
                 {0}` takes it away",
                folder.display()
            ),
            MountError::Refused(folder, error) => {
                write!(f, "tree {}: cannot be mounted: {error}", folder.display())
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
            | MountError::LeftOver(_) => None,
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
        check(folder)?;
        let refused = |error| MountError::Refused(folder.into(), error);
        // Whatever the working folder is when it ends.
        let folder = std::fs::canonicalize(folder).map_err(refused)?;
        let refused = |error| MountError::Refused(folder.clone(), error);
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName(String::from("weir")),
            MountOption::Subtype(String::from("weir")),
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
        let inner = fuser::spawn_mount(files(DEV), folder.join(DEV), &config)
            .inspect_err(|error| {
                let folder = folder.display();
                tracing::warn!("tree {folder}: the disks share its thread: {DEV}: {error}");
            })
            .ok();
        Ok(Mount { folder, session: Some(session), inner, disks })
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
        for session in [self.inner.take(), self.session.take()].into_iter().flatten() {
            if detached {
                // It would unmount once more, by name, and that may be another mount by now.
                std::mem::forget(session);
            } else {
                drop(session);
            }
        }
    }
}

fn check(folder: &Path) -> Result<(), MountError> {
    let metadata = std::fs::metadata(folder).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => MountError::Missing(folder.into()),
        io::ErrorKind::NotConnected => MountError::LeftOver(folder.into()),
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
}
