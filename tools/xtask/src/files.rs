//! Files of a copy of the tree.

use std::fs;
use std::path::Path;

use crate::workspace::Error;

/// The paths of all files below `folder`, from `root` on. A folder that is not there has none.
pub(crate) fn below(root: &Path, folder: &Path, found: &mut Vec<String>) -> Result<(), Error> {
    let Ok(entries) = fs::read_dir(root.join(folder)) else { return Ok(()) };
    for entry in entries {
        let entry = entry.map_err(|error| format!("{}: {error}", folder.display()))?;
        let path = folder.join(entry.file_name());
        if root.join(&path).is_dir() {
            below(root, &path, found)?;
        } else {
            found.push(path.to_string_lossy().into_owned());
        }
    }
    Ok(())
}

pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Writes a file unless it is like that already: cargo builds what is newer.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    if fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    let made = fs::create_dir_all(path.parent().unwrap_or(path));
    let written = made.and_then(|()| fs::write(path, bytes));
    written.map_err(|error| format!("{}: {error}", path.display()))
}
