//! The targets of jobs, from the names of files.

use std::collections::BTreeMap;
use std::path::Path;

use weir::drivers::kind_of;
use weir_load::jobfile::{plain_name, split_names};
use weir_load::presets::Stage;
use weir_load::{Job, Sizes};

/// What the jobs of a run name as their targets.
pub(crate) struct Files<'a> {
    /// The target of all.
    given: Option<&'a str>,
    /// By file: the largest size that a job of any stage needs it to have.
    lengths: BTreeMap<String, u64>,
}

impl<'a> Files<'a> {
    /// Those of these stages. A file that is missing is made once, as long as the last stage needs.
    pub(crate) fn of(stages: &[Stage], given: Option<&'a str>) -> Files<'a> {
        let mut lengths = BTreeMap::new();
        for job in stages.iter().flat_map(|stage| &stage.jobs) {
            let Some(name) = job.target.as_ref().filter(|name| !is_target(name)) else { continue };
            let files = split_names(name);
            let Some(bytes) = share(job, files.len() as u64) else { continue };
            for file in files {
                let length: &mut u64 = lengths.entry(file).or_default();
                *length = (*length).max(bytes);
            }
        }
        Files { given, lengths }
    }

    /// The target of a job: what is given for all, or its own file or target.
    pub(crate) fn target_of(&self, job: &Job) -> Result<String, String> {
        if let Some(target) = self.given {
            return Ok(String::from(target));
        }
        let Some(name) = &job.target else {
            return Err(format!(
                "job {} has no target: --target TARGET, or filename= in its section",
                job.name
            ));
        };
        if is_target(name) {
            return Ok(name.clone());
        }
        let files = split_names(name);
        let missing = |file: &&String| !Path::new(&plain_name(file)).exists();
        if let Some(file) = files.iter().find(missing).filter(|_| job.must_exist) {
            return Err(format!("job {}: allow_file_create=0, and {file} is not there", job.name));
        }
        if let [alone] = &files[..] {
            return Ok(self.file_target(alone));
        }
        // Files take turns, an I/O each: as a stripe has them whose chunk is one.
        let bs = fixed_size(job).ok_or_else(|| {
            format!(
                "job {}: several files take turns by I/Os of one size: filename={name}",
                job.name
            )
        })?;
        let legs = files.iter().map(|file| escaped(&self.file_target(file)));
        Ok(format!("striped:{bs}:{}", legs.collect::<Vec<_>>().join("+")))
    }

    /// A file as a target: one that is not there is made, if it is known how long.
    fn file_target(&self, file: &str) -> String {
        let name = plain_name(file);
        let path = escaped(&name);
        match self.lengths.get(file).filter(|_| !Path::new(&name).exists()) {
            Some(bytes) => format!("file:{path},size={bytes}"),
            None => format!("file:{path}"),
        }
    }
}

/// Whether a name is one of a target with its kind.
fn is_target(name: &str) -> bool {
    name.split_once(':').is_some_and(|(kind, _)| kind_of(kind).is_some())
}

/// The length of each of a job's files, if it is known.
fn share(job: &Job, files: u64) -> Option<u64> {
    let bytes = job.extent()?;
    match files {
        1 => Some(bytes),
        several => bytes.div_ceil(several).checked_next_multiple_of(fixed_size(job)?),
    }
}

/// The size of all I/Os of a job, if they have one.
fn fixed_size(job: &Job) -> Option<u64> {
    let first = &job.sizes[job.placed()[0]];
    match first {
        Sizes::Fixed(bs) if job.placed().iter().all(|d| job.sizes[*d] == *first) => Some(*bs),
        _ => None,
    }
}

/// A text within a target.
fn escaped(text: &str) -> String {
    let escape = |c: char| matches!(c, ',' | '+' | '\\').then_some('\\').into_iter().chain([c]);
    text.chars().flat_map(escape).collect()
}
