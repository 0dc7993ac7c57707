//! The ways out of a comparison: nothing in the folder for temporary files, and a chance to stop in
//! its own time.

use std::fs::{DirBuilder, File};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use signal_hook::consts;

use crate::Failure;

/// The signals that end a program and can be taken, but those of a fault in it: a device whose
/// scheduler is switched is put back on each.
const ENDING: [i32; 7] = [
    consts::SIGINT,
    consts::SIGTERM,
    consts::SIGHUP,
    consts::SIGQUIT,
    consts::SIGALRM,
    consts::SIGUSR1,
    consts::SIGUSR2,
];

/// A descriptor that is readable once a signal asked for the end.
pub(super) fn signals() -> Result<OwnedFd, Failure> {
    let failed = |e: std::io::Error| format!("signals: {e}");
    let (pipe, writer) = UnixStream::pair().map_err(failed)?;
    for signal in ENDING {
        let writer = writer.try_clone().map_err(failed)?;
        signal_hook::low_level::pipe::register(signal, writer).map_err(failed)?;
    }
    Ok(pipe.into())
}

/// Does something first when there is a panic: where that ends the process no destructor runs.
pub(super) fn before_a_panic(first: impl Fn() + Send + Sync + 'static) {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        first();
        before(panic);
    }));
}

/// A folder for what runs write, gone with the value and in a panic.
pub(super) struct Scratch(PathBuf);

impl Scratch {
    /// In the folder for temporary files, under a name that cannot be guessed.
    pub(super) fn new() -> Result<Scratch, Failure> {
        const SOURCE: &str = "/dev/urandom";
        let mut random = [0; 8];
        let read = File::open(SOURCE).and_then(|mut source| source.read_exact(&mut random));
        read.map_err(|e| format!("{SOURCE}: {e}"))?;
        let name = format!("weir-compare-{:016x}", u64::from_ne_bytes(random));
        let scratch = Scratch::at(std::env::temp_dir().join(name))?;
        let folder = scratch.0.clone();
        before_a_panic(move || {
            let _ = std::fs::remove_dir_all(&folder);
        });
        Ok(scratch)
    }

    /// Created by this process: a folder that is there already may belong to another user, with
    /// links in it to files that root would then write over.
    fn at(folder: PathBuf) -> Result<Scratch, Failure> {
        let made = DirBuilder::new().mode(0o700).create(&folder);
        made.map_err(|e| format!("{}: {e}", folder.display()))?;
        Ok(Scratch(folder))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Files that cannot be removed are a few in the folder for temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::Mutex;

    /// A panic anywhere in the process takes all folders with it.
    static ALONE: Mutex<()> = Mutex::new(());

    #[test]
    fn the_folder_of_runs_is_new_closed_to_others_and_never_one_that_was_there() {
        let _alone = ALONE.lock();
        let scratch = Scratch::new().expect("a folder");
        let mode = std::fs::metadata(&scratch.0).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        assert!(Scratch::at(scratch.0.clone()).is_err(), "it was there");
        let other = Scratch::new().expect("a folder");
        assert_ne!(scratch.0, other.0);
        let link = scratch.0.join("link");
        std::os::unix::fs::symlink(&other.0, &link).expect("a link");
        assert!(Scratch::at(link).is_err(), "a link to a folder");
    }

    #[test]
    fn the_folder_of_runs_is_gone_before_a_panic_can_end_the_process() {
        let _alone = ALONE.lock();
        let scratch = Scratch::new().expect("a folder");
        let folder = scratch.0.clone();
        // As where a panic ends the process: the value is never dropped.
        std::mem::forget(scratch);
        std::fs::write(folder.join("output"), "").expect("a file");
        assert!(std::panic::catch_unwind(|| panic!("on purpose")).is_err());
        assert!(!folder.exists());
    }
}
