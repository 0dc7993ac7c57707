//! A file system on the disk: made, filled and checked through the daemon.

#![forbid(unsafe_code)]

mod daemon;

use std::fs;
use std::path::{Path, PathBuf};

use daemon::outside::leave_out;
use daemon::program::{Noise, Server, background, program, run};
use daemon::{Daemon, Folder};

/// Files of many sizes in folders, the same for the same seed.
fn tree(root: &Path, seed: u64) -> Vec<PathBuf> {
    println!("seed {seed}");
    let mut noise = Noise::new(seed);
    let mut files = Vec::new();
    for folder in ["", "a", "a/b", "c"] {
        fs::create_dir_all(root.join(folder)).expect("a folder");
        for index in 0..12 {
            let size = [0, 1, 4095, 4096, 70_000, 1 << 20][index % 6] + noise.below(1000);
            let name = Path::new(folder).join(format!("file-{index}"));
            noise.write_file(&root.join(&name), size);
            files.push(name);
        }
    }
    files
}

/// Takes every file out of the file system without mounting it, and holds it against the original.
#[track_caller]
fn compare(image: &Path, files: &[PathBuf], original: &Path, into: &Path) {
    fs::create_dir_all(into).expect("a folder");
    let dump = format!("rdump / {}", into.display());
    run("debugfs", &["-R", &dump, &image.display().to_string()]);
    for file in files {
        let (was, is) = (fs::read(original.join(file)), fs::read(into.join(file)));
        let is = is.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        assert!(was.expect("the original") == is, "{} differs", file.display());
    }
}

#[test]
#[ignore = "needs mkfs.ext4, e2fsck, debugfs, nbdcopy"]
fn a_file_system_that_was_copied_in_and_out_is_whole() {
    for options in ["", ",queue_mode=sq"] {
        let folder = Folder::new();
        let (original, image) = (folder.image("tree"), folder.image("made.img"));
        let files = tree(&original, 70);
        let (made, from) = (image.display().to_string(), original.display().to_string());
        run("mkfs.ext4", &["-q", "-d", &from, &made, "64M"]);
        let disk = folder.file_disk("sda", "64MiB", options);
        let daemon = Daemon::start(&folder, &[&disk]);
        run("nbdcopy", &["--flush", &made, &folder.uri("sda")]);
        let copy = folder.image("copy.img");
        run("nbdcopy", &[&folder.uri("sda"), &copy.display().to_string()]);
        daemon.stop();
        for (image, into) in [(copy, "from-copy"), (folder.image("sda"), "from-disk")] {
            run("e2fsck", &["-f", "-n", &image.display().to_string()]);
            compare(&image, &files, &original, &folder.image(into));
        }
    }
}

/// The disk as a file, through a client that is a FUSE file system; unmounted with the value.
struct Mounted {
    folder: PathBuf,
    client: Option<Server>,
}

impl Mounted {
    /// `None` where this user may not mount.
    fn begin(folder: &Folder) -> Option<Mounted> {
        let may = rustix::process::geteuid().is_root()
            && fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok();
        if !may {
            return None;
        }
        let (mount, pid) = (folder.near("mnt"), folder.near("fuse.pid"));
        fs::create_dir_all(&mount).expect("a folder");
        let mut command = program("nbdfuse");
        command.arg("-P").arg(&pid).arg(mount.join("disk")).arg(folder.uri("sda"));
        let client = background(folder, command, folder.socket(), &pid);
        Some(Mounted { folder: mount, client: Some(client) })
    }

    fn file(&self) -> String {
        self.folder.join("disk").display().to_string()
    }

    /// Unmounts, which ends the client.
    #[track_caller]
    fn end(mut self) {
        run("umount", &[&self.folder]);
        self.client.take().expect("unmounted once").ended();
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.client.is_some() {
            let _ = program("umount").arg(&self.folder).status();
        }
    }
}

#[test]
#[ignore = "needs nbdfuse, mkfs.ext4, e2fsck, debugfs; looks through FUSE where root may"]
fn a_file_system_that_is_made_and_filled_through_the_daemon_is_whole() {
    let folder = Folder::new();
    let original = folder.image("tree");
    let files = tree(&original, 71);
    let disk = folder.file_disk("sda", "64MiB", "");
    let daemon = Daemon::start(&folder, &[&disk]);
    let Some(mounted) = Mounted::begin(&folder) else {
        daemon.stop();
        return leave_out("no right to mount by FUSE");
    };
    run("mkfs.ext4", &["-q", "-F", &mounted.file()]);
    let mut script = String::from("mkdir a\nmkdir a/b\nmkdir c\n");
    for file in &files {
        let from = original.join(file);
        script.push_str(&format!("write {} {}\n", from.display(), file.display()));
    }
    // Some go again, so that blocks are freed and used once more.
    let (gone, kept) = files.split_at(6);
    gone.iter().for_each(|file| script.push_str(&format!("rm {}\n", file.display())));
    fs::write(folder.near("script"), script).expect("a file");
    let script = folder.near("script").display().to_string();
    run("debugfs", &["-w", "-f", &script, &mounted.file()]);
    run("e2fsck", &["-f", "-n", &mounted.file()]);
    compare(Path::new(&mounted.file()), kept, &original, &folder.image("through"));
    mounted.end();
    daemon.stop();
    let image = folder.image("sda");
    run("e2fsck", &["-f", "-n", &image.display().to_string()]);
    compare(&image, kept, &original, &folder.image("from-disk"));
    let listing = run("debugfs", &["-R", "ls -p /", &image.display().to_string()]);
    assert!(!listing.contains("/file-0/"), "a removed file is there: {listing}");
}
