//! The kinds of target of this crate: `null:SIZE`, `ram:SIZE`, `model:NAME` and `file:PATH`.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use weir_bio::units::{parse_number, parse_switch};
use weir_queue::{
    Backing, Config, Driver, DriverError, Identity, Keeps, NoticeListener, OpenedBacking, Speaker,
    TargetKind, TargetOption, Written,
};

use crate::model::target::MODEL;
use crate::{File, FileOptions, Io, Null, Ram, device_size, one_each};

/// All of them.
pub const KINDS: &[&TargetKind] = &[&NULL, &RAM, &MODEL, &FILE];

/// Nothing behind the queues.
pub const NULL: TargetKind = TargetKind {
    names: &["null"],
    syntax: &["null:SIZE"],
    example: "null:8MiB,latency_us=0",
    doc: "Nothing: writes are dropped, reads are zeros, and the next reap answers.",
    options: &[TargetOption {
        name: "latency_us",
        values: "NUMBER",
        default: "0",
        doc: "Microseconds by which each answer is late.",
    }],
    parse: |written| {
        let bytes = device_size(written.rest)?;
        Ok(Box::new(NullTarget { bytes, latency_ns: 0 }))
    },
};

/// Memory of this process.
pub const RAM: TargetKind = TargetKind {
    names: &["ram"],
    syntax: &["ram:SIZE"],
    example: "ram:8MiB",
    doc: "Sparse memory of the daemon, gone when it ends.",
    options: &[],
    parse: |written| Ok(Box::new(RamTarget { bytes: device_size(written.rest)? })),
};

/// A file or a block device.
pub const FILE: TargetKind = TargetKind {
    names: &["file"],
    syntax: &["file:PATH"],
    example: "file:DIR/disk.img,size=8MiB",
    doc: "A file or a block device.",
    options: &[
        TargetOption {
            name: "size",
            values: "SIZE",
            default: "as it is",
            doc: "The size of the file that is made if there is none.",
        },
        TargetOption {
            name: "io",
            values: "auto|uring|threads",
            default: "auto",
            doc: "How the kernel is called: one io_uring for each hard queue, or threads.",
        },
        TargetOption {
            name: "cache",
            values: "none|writeback",
            default: "none",
            doc: "Past the page cache where that is possible, or through it.",
        },
        TargetOption {
            name: "follow",
            values: "on|off",
            default: "on",
            doc: "Whether a symbolic link at the end of the path is followed.",
        },
    ],
    parse: parse_file,
};

fn parse_file(written: &Written<'_>) -> Result<Box<dyn Backing>, String> {
    if written.rest.is_empty() {
        return Err(format!("target {:?} names no file", written.text));
    }
    Ok(file(PathBuf::from(written.rest)))
}

/// The target of a file or block device, for a path that no text may spell.
#[must_use]
pub fn file(path: PathBuf) -> Box<dyn Backing> {
    Box::new(FileTarget { path, size: None, io: Io::Auto, direct: true, follow: true })
}

#[derive(Clone, Debug)]
struct NullTarget {
    bytes: u64,
    latency_ns: u64,
}

impl Backing for NullTarget {
    fn kind(&self) -> &'static TargetKind {
        &NULL
    }

    fn set(&mut self, option: &str, value: &str) -> Result<(), String> {
        // The one option there is.
        self.latency_ns = parse_number(option, value, 0, 3_600_000_000)? * 1000;
        Ok(())
    }

    fn open(&self, _config: &Config) -> Result<OpenedBacking, DriverError> {
        Ok(OpenedBacking::silent(Null::new(self.bytes)?.latency_ns(self.latency_ns)))
    }

    fn queues(&self, driver: &dyn Driver, homes: u16) -> u16 {
        one_each(driver, homes)
    }

    fn identity(&self) -> Identity {
        Identity::Own
    }

    fn settings(&self) -> String {
        format!("{self:?}")
    }

    fn keeps(&self) -> Keeps {
        Keeps::Nothing
    }

    fn boxed(&self) -> Box<dyn Backing> {
        Box::new(self.clone())
    }
}

#[derive(Clone, Debug)]
struct RamTarget {
    bytes: u64,
}

impl Backing for RamTarget {
    fn kind(&self) -> &'static TargetKind {
        &RAM
    }

    fn set(&mut self, option: &str, _value: &str) -> Result<(), String> {
        unreachable!("option {option} of a kind without any")
    }

    fn open(&self, _config: &Config) -> Result<OpenedBacking, DriverError> {
        Ok(OpenedBacking::silent(Ram::new(self.bytes)?))
    }

    fn queues(&self, driver: &dyn Driver, homes: u16) -> u16 {
        one_each(driver, homes)
    }

    fn identity(&self) -> Identity {
        Identity::Own
    }

    fn settings(&self) -> String {
        format!("{self:?}")
    }

    fn keeps(&self) -> Keeps {
        Keeps::WhileOpen
    }

    fn boxed(&self) -> Box<dyn Backing> {
        Box::new(self.clone())
    }
}

#[derive(Clone, Debug)]
struct FileTarget {
    path: PathBuf,
    size: Option<u64>,
    io: Io,
    direct: bool,
    follow: bool,
}

impl Backing for FileTarget {
    fn kind(&self) -> &'static TargetKind {
        &FILE
    }

    fn set(&mut self, option: &str, value: &str) -> Result<(), String> {
        match (option, value) {
            ("size", _) => self.size = Some(device_size(value)?),
            ("io", "auto") => self.io = Io::Auto,
            ("io", "uring") => self.io = Io::Uring,
            ("io", "threads") => self.io = Io::Threads,
            ("io", _) => return Err(format!("io={value} is neither auto, uring nor threads")),
            ("cache", "none") => self.direct = true,
            ("cache", "writeback") => self.direct = false,
            ("cache", _) => return Err(format!("cache={value} is neither none nor writeback")),
            // The one option that is left.
            _ => self.follow = parse_switch(option, value)?,
        }
        Ok(())
    }

    fn open(&self, config: &Config) -> Result<OpenedBacking, DriverError> {
        let options = FileOptions {
            size: self.size,
            io: self.io,
            direct: self.direct,
            follow: self.follow,
            read_only: config.read_only,
            ..FileOptions::default()
        };
        let file = Arc::new(File::open(&self.path, &options)?);
        let speaker = FileSpeaker(Arc::downgrade(&file));
        let notices = file.notices();
        Ok(OpenedBacking { driver: file, notices, speaker: Some(Box::new(speaker)), map: None })
    }

    fn queues(&self, driver: &dyn Driver, homes: u16) -> u16 {
        one_each(driver, homes)
    }

    fn identity(&self) -> Identity {
        match std::fs::metadata(&self.path) {
            Ok(data) if data.file_type().is_block_device() => Identity::Block(data.rdev()),
            Ok(data) => Identity::File(data.dev(), data.ino()),
            Err(_) => Identity::Missing(self.path.clone()),
        }
    }

    fn settings(&self) -> String {
        format!("{:?}", (self.io, self.direct, self.follow))
    }

    fn keeps(&self) -> Keeps {
        Keeps::Flushed
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.path)
    }

    fn size_to_make(&mut self) -> Option<&mut Option<u64>> {
        Some(&mut self.size)
    }

    fn use_page_cache(&mut self) -> bool {
        self.direct = false;
        true
    }

    fn boxed(&self) -> Box<dyn Backing> {
        Box::new(self.clone())
    }
}

/// Weak, so that the file and its lock go with the device.
struct FileSpeaker(Weak<File>);

impl Speaker for FileSpeaker {
    fn on_notice(&self, listener: NoticeListener) {
        if let Some(file) = self.0.upgrade() {
            file.on_notice(move |notice| listener(notice));
        }
    }
}
