//! Files written without following a link: another user who may write in the folder cannot choose
//! another file to be written over.
//!
//! Only the last part of a path counts; the folders on the way are the caller's choice. Links of
//! the system's own folders (`/dev/stdout`, `/dev/fd/63`, `/proc/self/fd/1`) stand for what is open
//! already, and are followed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// Writes a file whole or not at all: a new one takes the place of one that was there. A path that
/// is no regular file, as a pipe or a terminal, is written as it is.
///
/// # Errors
/// That it is a link; the system's.
pub fn save(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if is_stream(path)? {
        return OpenOptions::new()
            .write(true)
            .custom_flags(flags(path)?)
            .open(path)?
            .write_all(bytes);
    }
    let (beside, mut file) = beside(path)?;
    let written = file.write_all(bytes).and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        // A file that is half written is of no use.
        let _ = fs::remove_file(&beside);
    }
    written
}

/// Sees that a file could be saved: found out before the work rather than behind it. A file that is
/// there stays as it is.
///
/// # Errors
/// As [`save`].
pub fn probe(path: &Path) -> io::Result<()> {
    if is_stream(path)? {
        // To open a pipe would tell its reader that a writer had come and gone.
        return Ok(());
    }
    let (beside, _) = beside(path)?;
    fs::remove_file(beside)
}

/// Opens a file to be added to, and made if it is missing; to be read too, if it is a regular one.
///
/// # Errors
/// As [`save`].
pub fn append(path: &Path) -> io::Result<File> {
    let read = !is_stream(path)?;
    let mut how = OpenOptions::new();
    how.create(true).append(true).read(read).custom_flags(flags(path)?).open(path)
}

/// Whether a path leads to something else than a regular file or the place for one.
fn is_stream(path: &Path) -> io::Result<bool> {
    let data = match fs::symlink_metadata(path) {
        Ok(data) if data.is_symlink() && is_of_system(path) => fs::metadata(path)?,
        Ok(data) if data.is_symlink() => return Err(link()),
        Ok(data) => data,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    if data.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    // A file that is open already is written where it is, also if it is a regular file.
    Ok(!data.is_file() || is_of_system(path))
}

fn link() -> io::Error {
    let why = "is a symbolic link, which is not followed: name the file itself";
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

/// Whether the folder of a path is one that the system fills.
fn is_of_system(path: &Path) -> bool {
    let folder = path.parent().and_then(|folder| fs::canonicalize(folder).ok());
    folder.is_some_and(|folder| folder == Path::new("/dev") || folder.starts_with("/proc"))
}

fn flags(path: &Path) -> io::Result<i32> {
    let flags = if is_of_system(path) { OFlags::empty() } else { OFlags::NOFOLLOW };
    Ok(flags.bits() as i32)
}

/// A new file beside the one to be written, under a name that could not be known before. It has
/// the mode of the one that is there, which its owner may have closed to others.
fn beside(path: &Path) -> io::Result<(PathBuf, File)> {
    let mut random = [0; 8];
    File::open("/dev/urandom")?.read_exact(&mut random)?;
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{:016x}.new", u64::from_ne_bytes(random)));
    let mode = fs::symlink_metadata(path).map_or(0o666, |data| data.mode() & 0o777);
    let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&name)?;
    Ok((PathBuf::from(name), file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_file_is_made_anew_and_no_link_is_followed() {
        let base = std::env::temp_dir().join(format!("weir-save-{}", std::process::id()));
        fs::create_dir(&base).expect("a folder");
        let [file, other, to_file, to_nothing, hard] =
            ["file", "other", "to-file", "to-nothing", "hard"].map(|name| base.join(name));
        save(&file, b"one").expect("a new file");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("a mode");
        probe(&file).expect("it can be written");
        save(&file, b"two").expect("a file in place of it");
        assert_eq!(fs::read(&file).expect("it is there"), b"two");
        assert_eq!(fs::metadata(&file).expect("it is there").mode() & 0o777, 0o600);
        fs::write(&other, "kept").expect("a file");
        symlink(&other, &to_file).expect("a link");
        symlink(base.join("missing"), &to_nothing).expect("a link");
        for link in [&to_file, &to_nothing] {
            for done in [save(link, b"x"), probe(link), append(link).map(drop)] {
                let why = done.expect_err("a link").to_string();
                assert!(why.contains("symbolic link"), "{why}");
            }
        }
        assert!(!base.join("missing").exists());
        fs::hard_link(&other, &hard).expect("a link");
        save(&hard, b"new").expect("a file of its own");
        assert_eq!(fs::read(&other).expect("it is there"), b"kept");
        append(&file).and_then(|mut file| file.write_all(b"more")).expect("it is ours");
        assert_eq!(fs::read(&file).expect("it is there"), b"twomore");
        assert_eq!(fs::read_dir(&base).expect("a folder").count(), 5, "nothing else is left");
        fs::remove_dir_all(&base).expect("ours");
    }

    #[test]
    fn what_is_no_file_is_written_as_it_is() {
        let (mut reader, writer) = io::pipe().expect("a pipe");
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&writer));
        probe(Path::new(&path)).expect("it can be written");
        save(Path::new(&path), b"through").expect("it is open");
        append(Path::new(&path)).and_then(|mut file| file.write_all(b"!")).expect("it is open");
        drop(writer);
        let mut said = String::new();
        reader.read_to_string(&mut said).expect("a pipe");
        assert_eq!(said, "through!");
        save(Path::new("/dev/null"), b"gone").expect("a device");
        assert!(save(Path::new("/dev/full"), b"x").is_err());
        assert!(save(&std::env::temp_dir(), b"x").is_err());
    }
}
