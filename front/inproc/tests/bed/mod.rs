//! What the tests share: a folder, and a disk's contents as they should be.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder that goes away with the value.
pub struct Folder(PathBuf);

impl Folder {
    /// In the folder for temporary files.
    pub fn new() -> Folder {
        Folder::within(&std::env::temp_dir())
    }

    /// In a folder of choice.
    pub fn within(parent: &Path) -> Folder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("weir-{}-{count}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
