//! Job files as fio has them: sections in brackets, an option a line, `[global]` for those that
//! follow it. A word that is not in the table of options is an error that names the line.

use std::collections::BTreeSet;

use crate::job::{Job, JobError};
use crate::options::{OPTIONS, Section};

/// A job file, read.
#[derive(Clone, Debug)]
pub struct JobFile {
    /// Its jobs, in order; all run at once.
    pub jobs: Vec<Job>,
    /// Notes on them, a sentence each with file and line.
    pub notes: Vec<String>,
}

/// Reads a job file; `file` is its name for messages.
///
/// # Errors
/// File and line, the option, and what is allowed.
pub fn read(file: &str, text: &str) -> Result<JobFile, JobError> {
    let mut global = Section::default();
    let mut read = JobFile { jobs: Vec::new(), notes: Vec::new() };
    // The section being read; none yet, or `global`.
    let mut current: Option<Section> = None;
    let mut before_any = true;
    for (line, text) in (1..).zip(text.lines()) {
        let place = |what: String| JobError(format!("{file}:{line}: {what}"));
        let text = text.trim();
        if text.is_empty() || text.starts_with(['#', ';']) {
            continue;
        }
        if let Some(rest) = text.strip_prefix('[') {
            let name = rest.strip_suffix(']').map(str::trim).filter(|name| !name.is_empty());
            let name = name.ok_or_else(|| place(format!("{text:?} is no section, as in [job]")))?;
            read.jobs.extend(current.take().map(|section| section.job));
            before_any = false;
            if name != "global" {
                let job = Job { name: String::from(name), ..global.job.clone() };
                current = Some(Section { job, notes: Vec::new(), flushes: global.flushes });
            }
            continue;
        }
        if before_any {
            return Err(place(format!("{text:?} stands before any section, as [global] or [job]")));
        }
        let section = current.as_mut().unwrap_or(&mut global);
        set(section, text).map_err(place)?;
        read.notes.extend(section.notes.drain(..).map(|note| format!("{file}:{line}: {note}")));
    }
    read.jobs.extend(current.map(|section| section.job));
    number_equal_names(&mut read.jobs);
    if read.jobs.is_empty() {
        return Err(JobError(format!("{file}: there is no job section, as in [job]")));
    }
    Ok(read)
}

/// Sections of one name are jobs of their own, with figures and seeds of their own: the second is
/// told as `name-2`.
fn number_equal_names(jobs: &mut [Job]) {
    let mut taken: BTreeSet<String> = jobs.iter().map(|job| job.name.clone()).collect();
    let mut seen = BTreeSet::new();
    for job in jobs {
        if seen.insert(job.name.clone()) {
            continue;
        }
        let names = (2..).map(|number: u32| format!("{}-{number}", job.name));
        if let Some(name) = names.into_iter().find(|name| !taken.contains(name)) {
            taken.insert(name.clone());
            job.name = name;
        }
    }
}

fn set(section: &mut Section, text: &str) -> Result<(), String> {
    let (name, value) = text.split_once('=').unwrap_or((text, ""));
    let (name, value) = (name.trim(), value.trim());
    let Some(option) = OPTIONS.iter().find(|option| option.name == alias(name)) else {
        let known: Vec<_> = OPTIONS.iter().map(|option| option.name).collect();
        return Err(format!("{name} is not among the options here: {}", known.join(", ")));
    };
    option.read(section, value).map_err(|why| format!("{name}={value}: {why}"))
}

/// Other names that fio takes for the same.
fn alias(name: &str) -> &str {
    match name {
        "readwrite" => "rw",
        "blocksize" => "bs",
        "blocksize_range" => "bsrange",
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
            ("[a]\nstonewall\n", &["x.fio:2:", "stonewall", "allowed", "iodepth"]),
            ("rw=read\n", &["x.fio:1:", "before any section"]),
            ("[a\n", &["x.fio:1:", "no section"]),
            ("[a]\nbs=\n", &["x.fio:2:", "bs=", "needs a value"]),
            ("[a]\niodepth=0\n", &["x.fio:2:", "iodepth=0", "1..=4096"]),
            ("[a]\nbssplit=4k/50\n", &["x.fio:2:", "bssplit=4k/50", "100 in all"]),
            ("[a]\nruntime=0\n", &["x.fio:2:", "runtime=0", "1ms..=2592000s"]),
            ("[global]\nbs=4k\n", &["x.fio", "no job section"]),
            ("[a]\nverify=md5\n", &["x.fio:2:", "verify=md5", "crc32c"]),
            ("[a]\nsize=101%\n", &["x.fio:2:", "size=101%", "1..=100"]),
        ] {
            let why = read("x.fio", text).unwrap_err().to_string();
            let missing = parts.iter().find(|part| !why.contains(**part) && **part != "allowed");
            assert!(missing.is_none(), "{missing:?} is not in {why}");
        }
    }

    #[test]
    fn what_weir_does_itself_is_accepted_with_a_note() {
        let file = read("x.fio", "[a]\nioengine=libaio\ndirect=1\nthinktime=5\n").unwrap();
        assert_eq!(file.notes, ["x.fio:2: ioengine=libaio: weir drives the target itself"]);
        assert_eq!(file.jobs[0].think_ns, 5000);
    }
}
