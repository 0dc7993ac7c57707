//! Making an image in one step: it has its name when it has its size, both durably, or it is not
//! there.
//!
//! The file has no name at first (open(2), O_TMPFILE), and a process that ends takes it along. A
//! file system without such files gets one under another name, which a later start takes away if
//! its maker is gone.

use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use weir_bio::SECTOR;
use weir_queue::DriverError;

use super::FileOptions;
use super::errors::error;

/// Only its owner reads and writes an image.
const MODE: u32 = 0o600;

/// Makes a sparse file of `bytes` bytes that survives a power loss. If another process is quicker
/// its file is taken.
pub(super) fn create(path: &Path, bytes: u64, options: &FileOptions) -> Result<(), DriverError> {
    if options.read_only {
        return Err(error(path, "does not exist and is not made read-only", None));
    }
    if bytes == 0 || !bytes.is_multiple_of(SECTOR) {
        let what = format!("size={bytes} is not a positive multiple of {SECTOR} bytes");
        return Err(error(path, &what, None));
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let folder = parent.unwrap_or(Path::new("."));
    let made = match nameless(folder, path, bytes) {
        Err(cause) if lacks_nameless(&cause) => beside(path, bytes),
        made => made,
    };
    let made = made.and_then(|()| fs::File::open(folder)?.sync_all());
    made.map_err(|cause| error(path, &format!("cannot be made {bytes} bytes long"), Some(cause)))
}

/// Whether it is the file system that has no files without a name, or no names for them here.
fn lacks_nameless(cause: &io::Error) -> bool {
    let errnos = [Errno::OPNOTSUPP, Errno::ISDIR, Errno::INVAL, Errno::NOSYS, Errno::XDEV];
    let found = cause.raw_os_error();
    errnos.iter().any(|errno| found == Some(errno.raw_os_error()))
        // Without /proc there is no such path.
        || cause.kind() == io::ErrorKind::NotFound && !Path::new("/proc/self/fd").exists()
}

fn nameless(folder: &Path, path: &Path, bytes: u64) -> io::Result<()> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = fs::File::from(rustix::fs::open(folder, flags, Mode::from_raw_mode(MODE))?);
    file.set_len(bytes)?;
    file.sync_all()?;
    // By this name as open(2) says; with an empty one it needs a right of its own.
    let name = format!("/proc/self/fd/{}", file.as_raw_fd());
    exists(rustix::fs::linkat(CWD, name, CWD, path, AtFlags::SYMLINK_FOLLOW))
}

/// That another process made it meanwhile is as good.
fn exists(linked: Result<(), Errno>) -> io::Result<()> {
    match linked {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// The name that `path` has until it is whole.
fn unfinished(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".weir-unfinished");
    path.with_file_name(name)
}

fn beside(path: &Path, bytes: u64) -> io::Result<()> {
    let other = unfinished(path);
    let file = loop {
        let mut how = fs::OpenOptions::new();
        match how.write(true).create_new(true).mode(MODE).open(&other) {
            Ok(file) => break file,
            Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => take_away(&other)?,
            Err(cause) => return Err(cause),
        }
    };
    // Held for as long as the file is made: a file without the lock was left behind.
    let lock = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
    lock.map_err(io::Error::from)
        .and_then(|()| file.set_len(bytes))
        .and_then(|()| file.sync_all())
        .and_then(|()| {
            let moved = rustix::fs::renameat_with(CWD, &other, CWD, path, RenameFlags::NOREPLACE);
            match moved {
                Err(Errno::INVAL | Errno::NOSYS) => exists(rustix::fs::link(&other, path)),
                moved => exists(moved),
            }
        })
        .inspect_err(|_| _ = fs::remove_file(&other))?;
    // There still if it was linked, or if another process was quicker.
    match fs::remove_file(&other) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => Err(cause),
        _ => Ok(()),
    }
}

/// Removes what a process that ended left behind.
fn take_away(other: &Path) -> io::Result<()> {
    let file = fs::OpenOptions::new().write(true).open(other)?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => fs::remove_file(other),
        Err(errno) => {
            let what = format!("another process makes it, as {}: {errno}", other.display());
            Err(io::Error::new(io::ErrorKind::ResourceBusy, what))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const BYTES: u64 = 1 << 20;

    fn folder(name: &str) -> PathBuf {
        let name = format!("weir-making-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).expect("a folder");
        folder
    }

    #[track_caller]
    fn expect_alone(folder: &Path, image: &Path) {
        let found = fs::metadata(image).expect("the image");
        assert_eq!((found.len(), found.permissions().mode() & 0o777), (BYTES, MODE));
        assert_eq!(fs::read_dir(folder).expect("a folder").count(), 1, "something is left over");
        fs::remove_dir_all(folder).expect("the folder");
    }

    #[test]
    fn an_image_is_made_in_one_step_and_nothing_is_left_beside_it() {
        let folder = folder("nameless");
        let image = folder.join("a.img");
        let options = FileOptions::default();
        create(&image, BYTES, &options).expect("an image");
        create(&image, 2 * BYTES, &options).expect("one that is there is taken");
        expect_alone(&folder, &image);
    }

    #[test]
    fn without_nameless_files_one_is_made_under_another_name() {
        let folder = folder("beside");
        let image = folder.join("a.img");
        // As a maker that was killed leaves it.
        fs::write(unfinished(&image), "half").expect("a file");
        beside(&image, BYTES).expect("an image");
        beside(&image, 2 * BYTES).expect("one that is there is taken");
        expect_alone(&folder, &image);
    }

    #[test]
    fn an_image_that_another_process_makes_is_not_taken_from_it() {
        let folder = folder("busy");
        let image = folder.join("a.img");
        let other = fs::File::create(unfinished(&image)).expect("a file");
        rustix::fs::flock(&other, FlockOperation::LockExclusive).expect("a lock");
        let refused = beside(&image, BYTES).expect_err("another makes it").to_string();
        assert!(refused.contains("another process makes it"), "{refused}");
        assert!(!image.exists());
        fs::remove_dir_all(&folder).expect("the folder");
    }
}
