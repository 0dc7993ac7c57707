//! Inode numbers: a number for each path that was ever looked at, for good.
//!
//! There are as many paths as the tree has, so little is gained by forgetting one: of a client that
//! is gone, the few paths that were looked up remain.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The number of the root, as the kernel has it.
pub(crate) const ROOT: u64 = 1;

/// Paths by number and numbers by path.
pub(crate) struct Inodes {
    table: Mutex<Table>,
}

struct Table {
    /// The path of number `index + 1`.
    paths: Vec<String>,
    numbers: BTreeMap<String, u64>,
}

impl Inodes {
    /// With this path as the root of the file system.
    pub(crate) fn new(root: &str) -> Inodes {
        let (root, numbers) = (String::from(root), BTreeMap::from([(String::from(root), ROOT)]));
        Inodes { table: Mutex::new(Table { paths: vec![root], numbers }) }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The path of a number that was given out.
    pub(crate) fn path(&self, number: u64) -> Option<String> {
        let index = usize::try_from(number.checked_sub(ROOT)?).ok()?;
        self.lock().paths.get(index).cloned()
    }

    /// The number of a path.
    pub(crate) fn number(&self, path: &str) -> u64 {
        let mut table = self.lock();
        if let Some(number) = table.numbers.get(path) {
            return *number;
        }
        table.paths.push(String::from(path));
        let number = table.paths.len() as u64;
        table.numbers.insert(String::from(path), number);
        number
    }
}

/// The path of `name` in the directory `folder`.
pub(crate) fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() { String::from(name) } else { format!("{folder}/{name}") }
}

/// The directory that holds `path`; the root holds itself.
pub(crate) fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_keeps_its_number() {
        let inodes = Inodes::new("");
        assert_eq!(inodes.path(ROOT).as_deref(), Some(""));
        let block = inodes.number("block");
        assert_eq!((inodes.number("block"), inodes.number("")), (block, ROOT));
        assert_ne!(inodes.number("proc"), block);
        assert_eq!(inodes.path(block).as_deref(), Some("block"));
        assert_eq!((inodes.path(0), inodes.path(99)), (None, None));
    }

    #[test]
    fn paths_are_put_together_and_taken_apart() {
        assert_eq!((join("", "block").as_str(), join("a/b", "c").as_str()), ("block", "a/b/c"));
        assert_eq!((parent(""), parent("block"), parent("a/b/c")), ("", "", "a/b"));
    }
}
