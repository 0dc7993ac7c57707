//! The I/Os of one clone as a trace in fio's format, version 2: in the order in which they are
//! begun, to be replayed.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::FileExt;
use std::path::Path;

use weir_bio::{Op, SECTOR};
use weir_load::Job;

/// Text that is kept until it is written.
const KEPT: usize = 64 << 10;

/// The first line of a trace.
const HEAD: &str = "fio version 2 iolog\n";

/// A trace that is being written.
pub(crate) struct Trace {
    name: String,
    file: File,
    text: String,
    /// The file or target that it is of.
    of: String,
    failed: Option<String>,
}

impl Trace {
    /// That of a job on this disk, if it has one.
    ///
    /// # Errors
    /// As [`open`](Trace::open).
    pub(crate) fn of(job: &Job, disk: &str) -> Result<Option<Box<Trace>>, String> {
        let on = job.target.as_deref().unwrap_or(disk);
        job.trace.as_ref().map(|name| Trace::open(name, on)).transpose()
    }

    /// One behind what the file holds; `of` is the name of what the I/O is on.
    ///
    /// # Errors
    /// A file that cannot be opened, or that holds something else.
    fn open(name: &str, of: &str) -> Result<Box<Trace>, String> {
        let failed = |error: std::io::Error| format!("write_iolog={name}: {error}");
        let open = OpenOptions::new().create(true).read(true).append(true).open(name);
        let file = open.map_err(failed)?;
        let about = file.metadata().map_err(failed)?;
        let is_new = about.is_file() && about.len() == 0;
        let mut begins = vec![0; HEAD.len()];
        if !is_new && (file.read_exact_at(&mut begins, 0).is_err() || begins != HEAD.as_bytes()) {
            return Err(format!("write_iolog={name}: it holds something else than a trace"));
        }
        let of = match Path::new(of).exists() {
            true => std::path::absolute(of).map_err(failed)?.display().to_string(),
            false => String::from(of),
        };
        let mut text = String::from(if is_new { HEAD } else { "" });
        write!(text, "{of} add\n{of} open\n").expect("a string takes text");
        Ok(Box::new(Trace { name: String::from(name), file, text, of, failed: None }))
    }

    /// An I/O is begun, or a flush.
    pub(crate) fn note(&mut self, op: Op, sector: u64, sectors: u32) {
        let action = match (op, sectors) {
            (Op::Read, _) => "read",
            (Op::Discard, _) => "trim",
            (Op::Write, 1..) => "write",
            _ => "datasync",
        };
        let (offset, bytes) = (sector * SECTOR, u64::from(sectors) * SECTOR);
        writeln!(self.text, "{} {action} {offset} {bytes}", self.of).expect("a string takes text");
        if self.text.len() > KEPT {
            self.write_out();
        }
    }

    /// The end of the trace.
    ///
    /// # Errors
    /// Lines that could not be written, now or before.
    pub(crate) fn finish(&mut self) -> Result<(), String> {
        writeln!(self.text, "{} close", self.of).expect("a string takes text");
        self.write_out();
        self.failed.take().map_or(Ok(()), Err)
    }

    fn write_out(&mut self) {
        if let Err(error) = self.file.write_all(self.text.as_bytes()) {
            self.failed.get_or_insert_with(|| format!("write_iolog={}: {error}", self.name));
        }
        self.text.clear();
    }
}
