//! Folders that no other user can change.

use std::fs::{self, DirBuilder};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

use rustix::process::geteuid;

/// Makes a folder that only its owner can enter, or sees that the one that is there can be trusted.
///
/// # Errors
/// As [`check`]; the system's.
pub fn own(path: &Path) -> Result<(), String> {
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => check(path),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

/// Sees that what stands in a folder was put there by this user: it is no link, belongs to this
/// user and can be written by no other.
///
/// The rights on the folder above it, in which it could be renamed, are not checked.
///
/// # Errors
/// The fault of the folder.
pub fn check(path: &Path) -> Result<(), String> {
    let shown = path.display();
    let data = fs::symlink_metadata(path).map_err(|error| format!("{shown}: {error}"))?;
    if data.is_symlink() {
        return Err(format!(
            "{shown} is a symbolic link: its owner chooses what is used; remove it"
        ));
    }
    if !data.is_dir() {
        return Err(format!("{shown} is no folder"));
    }
    let (owner, user) = (data.uid(), geteuid().as_raw());
    if owner != user {
        return Err(format!(
            "{shown} belongs to user {owner}, not to user {user}: its owner chooses what is used; \
             start in another folder"
        ));
    }
    let mode = data.mode() & 0o7777;
    if mode & 0o022 != 0 {
        return Err(format!(
            "{shown} has mode {mode:04o}: others may write in it and choose what is used; \
             chmod go-w {shown}"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_folder_of_ours_is_trusted_and_one_that_others_can_change_is_not() {
        let base = std::env::temp_dir().join(format!("weir-folder-{}", std::process::id()));
        own(&base).expect("a new folder");
        let mode = |path: &Path| fs::metadata(path).expect("it is there").mode() & 0o7777;
        assert_eq!(mode(&base) & 0o077, 0);
        own(&base).expect("it is still ours");
        let folder = base.join("data");
        own(&folder).expect("a new folder");
        for (open, trusted) in [(0o755, true), (0o700, true), (0o775, false), (0o702, false)] {
            fs::set_permissions(&folder, fs::Permissions::from_mode(open)).expect("a mode");
            let found = own(&folder);
            assert_eq!(found.is_ok(), trusted, "{open:o}: {found:?}");
            assert_eq!(mode(&folder), open, "it stays as it is");
        }
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).expect("a mode");
        symlink(&folder, base.join("link")).expect("a link");
        assert!(own(&base.join("link")).is_err_and(|why| why.contains("symbolic link")));
        fs::write(base.join("file"), "").expect("a file");
        assert!(own(&base.join("file")).is_err_and(|why| why.contains("no folder")));
        if geteuid().is_root() {
            std::os::unix::fs::chown(&folder, Some(65534), None).expect("root may");
            let why = own(&folder).expect_err("it is another's");
            assert!(why.contains("user 65534, not to user 0"), "{why}");
        }
        fs::remove_dir_all(&base).expect("ours");
    }
}
