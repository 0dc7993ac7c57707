//! The targets of jobs, from the names of files.

use std::path::Path;

use weir::drivers::kind_of;
use weir_load::jobfile::{plain_name, split_names};
use weir_load::{Job, Sizes};

/// The target of a job: what is given for all, or its own file or target.
pub(crate) fn target_of(job: &Job, given: Option<&str>) -> Result<String, String> {
    if let Some(target) = given {
        return Ok(String::from(target));
    }
    let Some(name) = &job.target else {
        return Err(format!(
            "job {} has no target: --target TARGET, or filename= in its section",
            job.name
        ));
    };
    if name.split_once(':').is_some_and(|(kind, _)| kind_of(kind).is_some()) {
        return Ok(name.clone());
    }
    let files = split_names(name);
    let bytes = job.extent();
    if let [alone] = &files[..] {
        return Ok(file_target(alone, bytes));
    }
    // Files take turns, an I/O each: as a stripe has them whose chunk is one.
    let bs = match &job.sizes[job.placed()[0]] {
        Sizes::Fixed(bs) if job.placed().iter().all(|d| job.sizes[*d] == Sizes::Fixed(*bs)) => *bs,
        _ => {
            return Err(format!(
                "job {}: several files take turns by I/Os of one size: filename={name}",
                job.name
            ));
        }
    };
    let each = bytes.map(|bytes| bytes.div_ceil(files.len() as u64).next_multiple_of(bs));
    let legs = files.iter().map(|file| escaped(&file_target(file, each)));
    Ok(format!("striped:{bs}:{}", legs.collect::<Vec<_>>().join("+")))
}

/// A file as a target: one that is not there is made, if it is known how long.
fn file_target(name: &str, bytes: Option<u64>) -> String {
    let name = plain_name(name);
    let path = escaped(&name);
    match bytes.filter(|_| !Path::new(&name).exists()) {
        Some(bytes) => format!("file:{path},size={bytes}"),
        None => format!("file:{path}"),
    }
}

/// A text within a target.
fn escaped(text: &str) -> String {
    let escape = |c: char| matches!(c, ',' | '+' | '\\').then_some('\\').into_iter().chain([c]);
    text.chars().flat_map(escape).collect()
}
