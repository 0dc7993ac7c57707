//! A block device of the kernel over a file, for tests that may have one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Folder;
use super::outside::leave_out;
use super::program::attempt;

/// A loop device whose queue has settings that do not occur by chance; it is given back with the
/// value.
pub struct Loop {
    pub device: PathBuf,
    image: PathBuf,
}

impl Loop {
    pub fn new(folder: &Folder) -> Option<Loop> {
        Loop::of(folder, 64 << 20)
    }

    /// One of so many bytes.
    pub fn of(folder: &Folder, bytes: u64) -> Option<Loop> {
        let image = folder.image("loop.img");
        fs::File::create(&image).and_then(|file| file.set_len(bytes)).expect("an image");
        let ended = attempt("losetup", &["--find", "--show", &image.display().to_string()]);
        if ended.code != Some(0) {
            leave_out(&format!("no loop device: {}", ended.stderr));
            return None;
        }
        let made = Loop { device: PathBuf::from(ended.stdout.trim()), image };
        if !made.read("scheduler").contains("bfq") {
            leave_out("the kernel has no bfq");
            return None;
        }
        for (file, text) in
            [("scheduler", "mq-deadline"), ("nr_requests", "77"), ("iosched/fifo_batch", "5")]
        {
            fs::write(made.queue().join(file), text).expect("root may write it");
        }
        Some(made)
    }

    pub fn queue(&self) -> PathBuf {
        let name = self.device.file_name().expect("a name");
        Path::new("/sys/block").join(name).join("queue")
    }

    pub fn read(&self, file: &str) -> String {
        fs::read_to_string(self.queue().join(file)).unwrap_or_default().trim().to_owned()
    }

    /// Where a comparison writes how it was.
    pub fn state_file(&self) -> String {
        let number = fs::read_to_string(self.queue().with_file_name("dev")).expect("a number");
        format!("/run/weir/kernel-scheduler-{}.json", number.trim())
    }

    /// Every file of the queue, with what it says.
    pub fn state(&self) -> Vec<(String, String)> {
        let names = ["", "iosched"].into_iter().flat_map(|folder| {
            let entries = fs::read_dir(self.queue().join(folder)).into_iter().flatten().flatten();
            entries.filter(|entry| entry.path().is_file()).map(move |entry| {
                format!("{folder}/{}", entry.file_name().display()).trim_matches('/').to_owned()
            })
        });
        let mut state: Vec<_> = names.map(|name| (name.clone(), self.read(&name))).collect();
        state.sort();
        state
    }

    /// Its name, as `loop0`.
    pub fn name(&self) -> String {
        self.device.file_name().expect("a name").display().to_string()
    }

    pub fn target(&self) -> String {
        format!("file:{}", self.device.display())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = fs::write(self.queue().join("scheduler"), "none");
        let _ = Command::new("losetup").arg("--detach").arg(&self.device).status();
        let _ = fs::remove_file(&self.image);
    }
}
