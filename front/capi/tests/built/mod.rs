//! The shared library as it was built for the tests, under the names that it has where it is
//! installed.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The folder of this crate.
pub const ROOM: &str = env!("CARGO_MANIFEST_DIR");

/// A folder with the library in it, that goes with it.
pub struct Built {
    pub folder: PathBuf,
}

impl Built {
    pub fn new(test: &str) -> Built {
        let own = std::env::current_exe().expect("this test's path");
        let deps = own.parent().expect("a folder");
        let built = deps.join("libweir_capi.so");
        let name = format!("weir-capi-{test}-{}", std::process::id());
        assert!(built.exists(), "{} was not built", built.display());
        let folder = std::env::temp_dir().join(name);
        // Of a run that was killed, whose number this one has.
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a folder");
        for name in ["libweir.so.0", "libweir.so"] {
            let link = folder.join(name);
            let made = std::os::unix::fs::symlink(&built, &link);
            made.unwrap_or_else(|error| panic!("{}: {error}", link.display()));
        }
        Built { folder }
    }

    /// A file in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

impl Drop for Built {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Runs it to its end, which has to be a good one.
pub fn succeed(command: &mut Command) -> String {
    let Output { status, stdout, stderr } =
        command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let [stdout, stderr] = [stdout, stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    assert!(status.success(), "{command:?}: {status}\n{stdout}\n{stderr}");
    stdout
}

/// A file of this crate.
pub fn in_room(path: &str) -> PathBuf {
    Path::new(ROOM).join(path)
}
