//! Job files as fio has them: sections in brackets, an option a line, `[global]` for those that
//! follow it. A word that is neither in the table of options nor among those of a file is an error
//! that names the line.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use crate::engine::{self, Engine};
use crate::job::{Job, JobError};
use crate::options::{OPTIONS, Section};
use crate::presets::Stage;
use crate::quantity::{Amount, whole, yes};

/// A job file, read.
#[derive(Clone, Debug)]
pub struct JobFile {
    /// Its jobs, in order.
    pub jobs: Vec<Job>,
    /// Notes on them, a sentence each with file and line.
    pub notes: Vec<String>,
    /// The first job of each stage: those of one run at once.
    starts: Vec<usize>,
    /// What each job runs on where nothing is named.
    own: Vec<Own>,
    /// Whether each has another seed in each run.
    draws: Vec<bool>,
    /// How many files each has where it names none.
    files: Vec<usize>,
}

/// The place of a job that names none.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Own {
    /// There is none.
    No,
    /// A file of this name for each clone.
    File(String),
    /// Nothing: its I/O is dropped.
    Null(u64),
}

impl JobFile {
    /// Lets jobs that name nothing run on what fio makes for them: a file of their own, or nothing
    /// where their engine drops what it is given.
    pub fn use_own(&mut self) {
        let JobFile { jobs, notes, own, .. } = self;
        for (job, own) in jobs.iter_mut().zip(own).filter(|(job, _)| job.target.is_none()) {
            let (Own::File(_), Some(Amount::Bytes(bytes))) = (&own, job.size) else {
                if let Own::Null(bytes) = own {
                    job.target = Some(engine::null_target(*bytes));
                }
                continue;
            };
            let Own::File(file) = own else { continue };
            job.target = Some(file.clone());
            if job.clones > 1 && job.offset == Amount::Bytes(0) {
                job.parted = true;
                job.size = Some(Amount::Bytes(bytes.saturating_mul(u64::from(job.clones))));
                notes.push(format!(
                    "job {}: {file} has a part for each of numjobs={}, which have files of their \
                     own in fio",
                    job.name, job.clones
                ));
            }
        }
    }

    /// Gives the jobs that are to have another seed in each run this one, and says so.
    pub fn use_seed(&mut self, seed: u64) {
        for (job, _) in self.jobs.iter_mut().zip(&self.draws).filter(|(_, draws)| **draws) {
            job.seed = seed;
            self.notes.push(format!("job {}: randrepeat=0: randseed={seed}", job.name));
        }
    }

    /// Its jobs: those of one stage run at once, and the stages one after the other.
    #[must_use]
    pub fn stages(&self) -> Vec<Stage> {
        let ends = self.starts.iter().skip(1).copied().chain([self.jobs.len()]);
        let parts = self.starts.iter().copied().zip(ends);
        parts.map(|(from, to)| Stage { name: None, jobs: self.jobs[from..to].to_vec() }).collect()
    }
}

/// A section, with what only a file says of a job.
#[derive(Clone, Debug, Default)]
struct Words {
    section: Section,
    /// The line it begins at.
    line: usize,
    name: Option<String>,
    directory: Option<String>,
    stonewall: bool,
    wait_for: Option<String>,
    draws_seed: bool,
    /// How many files the job has.
    files: Option<usize>,
}

/// Files that a job may have: as many as a striped disk has legs.
const FILES: std::ops::RangeInclusive<u64> = 1..=64;

/// Reads a job file; `file` is its name for messages.
///
/// # Errors
/// File and line, the option, and what is allowed.
pub fn read(file: &str, text: &str) -> Result<JobFile, JobError> {
    read_in(file, text, |name| std::env::var(name).ok())
}

/// The same with an environment, from which `${NAME}` is.
fn read_in(
    file: &str,
    text: &str,
    environment: impl Fn(&str) -> Option<String>,
) -> Result<JobFile, JobError> {
    let (notes, starts, own, draws) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut read = JobFile { jobs: Vec::new(), notes, starts, own, draws, files: Vec::new() };
    let mut global = Words { section: Section::of_fio(), ..Words::default() };
    // The section being read; none yet, or `global`.
    let mut current: Option<Words> = None;
    let mut before_any = true;
    for (line, text) in (1..).zip(text.lines()) {
        let place = |what: String| JobError(format!("{file}:{line}: {what}"));
        let text = expanded(without_comment(text), &environment).map_err(place)?;
        if text.is_empty() {
            continue;
        }
        if let Some(rest) = text.strip_prefix('[') {
            let name = rest.strip_suffix(']').map(str::trim).filter(|name| !name.is_empty());
            let name = name.ok_or_else(|| place(format!("{text:?} is no section, as in [job]")))?;
            current.take().map_or(Ok(()), |words| read.end(file, words))?;
            before_any = false;
            if name != "global" {
                let mut words = Words { line, ..global.clone() };
                words.section.job.name = words.name.take().unwrap_or_else(|| String::from(name));
                current = Some(words);
            }
            continue;
        }
        if before_any {
            return Err(place(format!("{text:?} stands before any section, as [global] or [job]")));
        }
        let words = current.as_mut().unwrap_or(&mut global);
        words.set(&text).map_err(place)?;
        let notes = words.section.notes.drain(..);
        read.notes.extend(notes.map(|note| format!("{file}:{line}: {note}")));
    }
    current.map_or(Ok(()), |words| read.end(file, words))?;
    number_equal_names(&mut read.jobs);
    if read.jobs.is_empty() {
        return Err(JobError(format!("{file}: there is no job section, as in [job]")));
    }
    read.name_files();
    Ok(read)
}

/// The text of a line before a comment, which begins it or follows a blank.
fn without_comment(line: &str) -> &str {
    let begins = |(at, c): &(usize, char)| {
        matches!(c, '#' | ';') && line[..*at].chars().next_back().is_none_or(char::is_whitespace)
    };
    line.char_indices().find(begins).map_or(line, |(at, _)| &line[..at]).trim()
}

/// A line with what `${NAME}` stands for.
fn expanded(line: &str, value: impl Fn(&str) -> Option<String>) -> Result<String, String> {
    let (mut text, mut rest) = (String::new(), line);
    while let Some((before, after)) = rest.split_once("${") {
        let (name, behind) =
            after.split_once('}').ok_or_else(|| format!("{line:?} has a ${{ without its }}"))?;
        let value = value(name).ok_or_else(|| {
            format!("{name} is not set in the environment, and {line:?} is made with it")
        })?;
        text.extend([before, &value]);
        rest = behind;
    }
    text.push_str(rest);
    Ok(text)
}

impl JobFile {
    /// A section is over.
    fn end(&mut self, file: &str, words: Words) -> Result<(), JobError> {
        let place = |what: String| JobError(format!("{file}:{}: {what}", words.line));
        let engine = words.section.engine();
        let mut job = words.section.clone().whole().map_err(place)?;
        if self.jobs.is_empty() || words.begins_stage(self).map_err(place)? {
            self.starts.push(self.jobs.len());
        }
        if let (Some(directory), Some(name)) = (&words.directory, &job.target)
            && engine != Engine::Null
        {
            let names: Vec<String> =
                split_names(name).iter().map(|n| within(directory, n)).collect();
            job.target = Some(names.join(":"));
        }
        let is_sized = matches!((job.size, job.offset), (Some(Amount::Bytes(_)), Amount::Bytes(_)));
        let own = match engine {
            Engine::Null => job.extent().map_or(Own::No, Own::Null),
            Engine::Deep | Engine::Alone if is_sized => {
                Own::File(words.directory.as_ref().map_or_else(String::new, Clone::clone))
            }
            _ => Own::No,
        };
        if let Some(note) = words.files_note(&job, engine, &own).map_err(place)? {
            self.notes.push(format!("{file}:{}: {note}", words.line));
        }
        self.files.push(words.files.unwrap_or(1));
        self.own.push(own);
        self.draws.push(words.draws_seed);
        self.jobs.push(job);
        Ok(())
    }

    /// Files that jobs have by default are named for them, as in fio: the job, the clone, the file.
    fn name_files(&mut self) {
        for ((job, own), files) in self.jobs.iter().zip(&mut self.own).zip(&self.files) {
            let Own::File(directory) = own else { continue };
            let name = |number| {
                let name = format!("{}.0.{number}", job.name.replace(['/', ':'], "_"));
                if directory.is_empty() { name } else { within(directory, &name) }
            };
            *directory = (0..*files).map(name).collect::<Vec<_>>().join(":");
        }
    }
}

impl Words {
    /// Where the files of a job are, if it has several; what is to be said of it.
    fn files_note(&self, job: &Job, engine: Engine, own: &Own) -> Result<Option<String>, String> {
        let Some(count) = self.files else { return Ok(None) };
        let named = job.target.as_ref().map(|name| split_names(name).len());
        match (count, named, own) {
            (1, ..) | (_, None, Own::File(_) | Own::Null(_)) => Ok(None),
            _ if engine == Engine::Elsewhere => {
                Ok(Some(format!("nrfiles={count}: all are on the one disk that --target names")))
            }
            (_, Some(named), _) if named == count => Ok(None),
            (_, Some(named), _) => Err(format!(
                "nrfiles={count}, and filename names {named}: filename=A:B names them all"
            )),
            _ => Err(format!("nrfiles={count} needs a size= in bytes")),
        }
    }

    /// Whether it waits for all jobs before it.
    fn begins_stage(&self, read: &JobFile) -> Result<bool, String> {
        if self.stonewall {
            return Ok(true);
        }
        let Some(name) = &self.wait_for else { return Ok(false) };
        let Some(job) = read.jobs.iter().rposition(|job| job.name == *name) else {
            return Err(format!("wait_for={name}: no job before it has this name"));
        };
        let last = read.starts.last().copied().unwrap_or(0);
        match job.cmp(&last) {
            // It is over before any of this stage begins.
            Ordering::Less => Ok(false),
            Ordering::Equal if read.jobs.len() == last + 1 => Ok(true),
            _ => Err(format!(
                "wait_for={name}: other jobs run beside it, and a job waits for all that run here"
            )),
        }
    }

    fn set(&mut self, text: &str) -> Result<(), String> {
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        let (name, value) = (name.trim(), value.trim());
        let wrong = |why: String| format!("{name}={value}: {why}");
        if self.set_word(name, value).map_err(wrong)? {
            return Ok(());
        }
        if let Some(why) = engine::noted(name) {
            self.section.notes.push(format!("{text}: {why}"));
            return Ok(());
        }
        let Some(option) = OPTIONS.iter().find(|option| option.name == alias(name)) else {
            let known: Vec<_> = OPTIONS.iter().map(|option| option.name).collect();
            return Err(format!(
                "{name} is not among the options here: {}, {}",
                WORDS.join(", "),
                known.join(", ")
            ));
        };
        option.read(&mut self.section, value).map_err(wrong)
    }

    /// Sets what only a file says; whether `name` is of that.
    fn set_word(&mut self, name: &str, value: &str) -> Result<bool, String> {
        let text = || match value.is_empty() {
            true => Err(String::from("needs a value")),
            false => Ok(String::from(value)),
        };
        match name {
            "name" if self.line == 0 => self.name = Some(text()?),
            "name" => self.section.job.name = text()?,
            "description" => self.section.notes.push(text()?),
            "directory" => {
                let directory = text()?;
                if split_names(&directory).len() > 1 {
                    return Err(String::from("takes one directory"));
                }
                self.directory = Some(directory);
            }
            "stonewall" | "wait_for_previous" => self.stonewall = yes(value)?,
            "wait_for" => self.wait_for = Some(text()?),
            "nrfiles" | "nr_files" => self.files = Some(whole(value, FILES)? as usize),
            "filename_format" => {
                let note =
                    format!("filename_format={value}: not done, a file has the name of its job");
                self.section.notes.push(note);
            }
            "randrepeat" => self.draws_seed = !yes(value)?,
            "exitall" if yes(value)? => {
                return Err(String::from("takes 0: a job does not end those beside it"));
            }
            "exitall" => (),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// What only a file says, in the order of its documentation.
const WORDS: [&str; 9] = [
    "name",
    "description",
    "directory",
    "nrfiles",
    "filename_format",
    "stonewall",
    "wait_for",
    "randrepeat",
    "exitall",
];

/// A file of a directory.
fn within(directory: &str, name: &str) -> String {
    format!("{}/{name}", directory.strip_suffix('/').unwrap_or(directory))
}

/// The names between colons, but those behind a backslash, which stay as they are.
#[must_use]
pub fn split_names(text: &str) -> Vec<String> {
    let (mut names, mut escaped) = (vec![String::new()], false);
    for c in text.chars() {
        match c {
            ':' if !escaped => names.push(String::new()),
            c => names.last_mut().expect("there is one").push(c),
        }
        escaped = c == '\\' && !escaped;
    }
    names
}

/// A name without the backslashes before its colons.
#[must_use]
pub fn plain_name(name: &str) -> String {
    name.replace("\\:", ":")
}

/// Sections of one name are jobs of their own, with figures and seeds of their own: the second is
/// told as `name-2`.
fn number_equal_names(jobs: &mut [Job]) {
    let mut taken: BTreeSet<String> = jobs.iter().map(|job| job.name.clone()).collect();
    // By name: the number to try next, so that a thousand of one name try a thousand.
    let mut next: BTreeMap<String, u32> = BTreeMap::new();
    for job in jobs {
        let Some(number) = next.get_mut(&job.name) else {
            next.insert(job.name.clone(), 2);
            continue;
        };
        job.name = loop {
            let name = format!("{}-{number}", job.name);
            *number += 1;
            if taken.insert(name.clone()) {
                break name;
            }
        };
    }
}

/// Other names that fio takes for the same.
fn alias(name: &str) -> &str {
    match name {
        "readwrite" => "rw",
        "blocksize" => "bs",
        "blocksize_range" => "bsrange",
        "ba" => "blockalign",
        "io_limit" => "io_size",
        "timeout" => "runtime",
        "fill_fs" => "fill_device",
        "log_max_value" => "log_window_value",
        "iodepth_batch_submit" => "iodepth_batch",
        "iodepth_batch_complete" => "iodepth_batch_complete_min",
        name => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Access, Direction};
    use crate::quantity::Amount;
    use crate::sizes::Sizes;

    #[test]
    fn sections_of_one_name_are_told_apart() {
        let file = read("x.fio", "[a]\n[a-2]\n[a]\n[b]\n[a]\n").unwrap();
        let names: Vec<_> = file.jobs.iter().map(|job| job.name.as_str()).collect();
        assert_eq!(names, ["a", "a-2", "a-3", "b", "a-4"]);
        let many = read("x.fio", &"[a]\n".repeat(100_000)).unwrap();
        assert_eq!((&*many.jobs[0].name, &*many.jobs[99_999].name), ("a", "a-100000"));
    }

    #[test]
    fn sections_take_what_was_global_before_them() {
        let text = "; a comment\n[global]\nbs = 8k\nrw=randread\nruntime=2m\n\n# another\n[a]\n\
                    iodepth=4\nsize=25%\n[b]\nrw=write\nbsrange=4k-64k\n[global]\nbs=16k\n[c]\n\
                    time_based\n";
        let file = read("x.fio", text).unwrap();
        let [a, b, c] = &file.jobs[..] else { panic!("three jobs: {file:?}") };
        assert_eq!((a.name.as_str(), a.depth, a.access), ("a", 4, Access::Random));
        assert_eq!((a.size, a.runtime_ns), (Some(Amount::Percent(25)), Some(120_000_000_000)));
        assert_eq!((b.direction, b.depth, b.access), (Direction::Write, 1, Access::Sequential));
        assert_eq!(b.sizes[1], Sizes::Range { least: 4096, most: 65536 });
        assert_eq!(
            (c.sizes[0].clone(), c.time_based, a.time_based),
            (Sizes::Fixed(16384), true, false)
        );
    }

    #[test]
    fn each_mistake_is_named_with_its_line_and_what_is_allowed() {
        for (text, parts) in [
            ("[a]\nrw=sideways\n", &["x.fio:2:", "rw=sideways", "randrw"][..]),
            ("[a]\n\nfrob=1\n", &["x.fio:3:", "frob", "rwmixread"]),
            ("[a]\nunlink=1\n", &["x.fio:2:", "unlink", "stonewall", "iodepth"]),
            ("[a]\n[b]\nwait_for=c\n", &["x.fio:2:", "wait_for=c", "no job before it"]),
            ("[a]\n[b]\n[c]\nwait_for=a\n", &["x.fio:3:", "wait_for=a", "beside it"]),
            ("[a]\nrw=${RW}\n", &["x.fio:2:", "RW is not set"]),
            ("[a]\nioengine=net\n", &["x.fio:2:", "ioengine=net", "network"]),
            ("[a]\nioengine=frob\n", &["x.fio:2:", "ioengine=frob", "libaio"]),
            ("[a]\nzonemode=strided\n", &["x.fio:1:", "zonesize"]),
            ("[a]\nzonemode=zbd\n", &["x.fio:1:", "no target here has zones of its own"]),
            ("[a]\nthinktime_spin=5\n", &["x.fio:2:", "thinktime_spin=5"]),
            ("[a]\nrw=randread:8k\n", &["x.fio:2:", "rw=randread:8k", "sequential"]),
            ("[a]\nstartdelay=5-2\n", &["x.fio:2:", "startdelay=5-2", "above its end"]),
            ("rw=read\n", &["x.fio:1:", "before any section"]),
            ("[a\n", &["x.fio:1:", "no section"]),
            ("[a]\nbs=\n", &["x.fio:2:", "bs=", "needs a value"]),
            ("[a]\niodepth=0\n", &["x.fio:2:", "iodepth=0", "1..=4096"]),
            ("[a]\nbssplit=4k/50\n", &["x.fio:2:", "bssplit=4k/50", "100 in all"]),
            ("[a]\nruntime=0\n", &["x.fio:2:", "runtime=0", "1ms..=2592000s"]),
            ("[global]\nbs=4k\n", &["x.fio", "no job section"]),
            ("[a]\nverify=crc64\n", &["x.fio:2:", "verify=crc64", "crc32c"]),
            ("[a]\nsize=101%\n", &["x.fio:2:", "size=101%", "1..=100"]),
        ] {
            let why = read("x.fio", text).unwrap_err().to_string();
            let missing = parts.iter().find(|part| !why.contains(**part));
            assert!(missing.is_none(), "{missing:?} is not in {why}");
        }
    }

    #[test]
    fn what_weir_does_itself_is_accepted_with_a_note() {
        let file = read("x.fio", "[a]\nioengine=libaio\ndirect=1\nthinktime=5\n").unwrap();
        assert_eq!(file.notes, ["x.fio:2: ioengine=libaio: weir drives the target itself"]);
        assert_eq!(file.jobs[0].thinking.ns, 5000);
    }
}
