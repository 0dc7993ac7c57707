//! A host that a file describes: processors, disks, queues and processes, each figure one value or
//! a list of them, for each of which there is a case.
//!
//! One table says what can be stated, in a file and by `--set` alike.

use std::collections::BTreeMap;

use weir_sim_disk::Spec;

use super::settings::{Setting, VALUES_MAX};
use super::{Case, SceneError, Span};
use crate::profile::Profile;

mod build;
mod check;
mod file;
mod rows;
mod table;

pub use table::SETTINGS;

/// Cases of a file at most: as many as one list has values.
const CASES_MAX: usize = VALUES_MAX;

/// A host as a file describes it.
#[derive(Clone, Debug)]
pub struct Custom {
    about: String,
    /// What is stated, in the order in which it first is, each with its values.
    stated: Vec<(String, Vec<String>)>,
    /// The kinds of processes.
    kinds: Vec<String>,
    /// A disk that is no preset.
    model: Option<Spec>,
    /// The prices of the host that the disk was measured on.
    measured_on: Option<Profile>,
}

/// The processes of a file that describes a disk and nothing else.
const JOB: &str = "job";

/// One value for each path that is stated.
type Chosen<'a> = BTreeMap<&'a str, &'a str>;

/// The row of the table that a path is of: `process.NAME.count` for `process.readers.count`.
fn row_of(path: &str) -> Option<&'static Setting> {
    let mut words = path.splitn(3, '.');
    let general = match (words.next(), words.next(), words.next()) {
        (Some("process"), Some(_), Some(field)) => format!("process.NAME.{field}"),
        (Some("queue"), Some("tunables"), Some(_)) => String::from("queue.tunables.NAME"),
        (Some("weights"), Some(_), None) => String::from("weights.PATH"),
        _ => path.to_owned(),
    };
    SETTINGS.iter().find(|setting| setting.name == general)
}

impl Custom {
    /// Reads a file's text; `file` is its name, for errors. A text that describes a disk alone, as
    /// [`Spec::parse`] reads it, is a host with that disk and one process, called `job`.
    ///
    /// # Errors
    /// What is wrong, with the file's name and the line.
    pub fn parse(text: &str, file: &str) -> Result<Custom, SceneError> {
        let custom = file::read(text, file)?;
        match custom.kinds.is_empty() {
            true => Err(SceneError(format!("{file}: there is no table [process.NAME]"))),
            false => Ok(custom),
        }
    }

    /// What the file says of itself.
    #[must_use]
    pub fn about(&self) -> &str {
        &self.about
    }

    /// States something else than the file, by text: `PATH=VALUE`. Several values are separated by
    /// commas.
    ///
    /// # Errors
    /// What cannot be stated, or a value outside its bounds.
    pub fn set(&mut self, text: &str) -> Result<(), SceneError> {
        let Some((path, values)) = text.split_once('=') else {
            return Err(SceneError(format!("{text:?} is not NAME=VALUE")));
        };
        if let Some(name) = path.strip_prefix("process.").and_then(|rest| rest.split('.').next())
            && !self.kinds.iter().any(|kind| kind == name)
        {
            let names = self.kinds.join(", ");
            return Err(SceneError(format!("no processes {name:?}; there are {names}")));
        }
        let values = values.split(',').map(String::from).collect();
        self.state(path, values).map_err(SceneError)
    }

    /// Each path that is stated, with its values.
    pub fn settings(&self) -> impl Iterator<Item = (&str, String)> {
        self.stated.iter().map(|(path, values)| (path.as_str(), values.join(",")))
    }

    /// What has several values, with them: a case is one of each.
    pub fn lists(&self) -> impl Iterator<Item = (&str, &[String])> {
        let several = self.stated.iter().filter(|(_, values)| values.len() > 1);
        several.map(|(path, values)| (path.as_str(), values.as_slice()))
    }

    fn state(&mut self, path: &str, values: Vec<String>) -> Result<(), String> {
        let Some(setting) = row_of(path) else {
            let names: Vec<&str> = SETTINGS.iter().map(|setting| setting.name).collect();
            return Err(format!("no setting {path:?}; there are {}", names.join(", ")));
        };
        setting.check_all(path, &values)?;
        if path == "disk.preset" && self.model.is_some() {
            return Err(String::from("disk.preset beside a table [disk.model]: a disk is one"));
        }
        match self.stated.iter_mut().find(|(known, _)| known == path) {
            Some((_, stated)) => *stated = values,
            None => self.stated.push((path.to_owned(), values)),
        }
        Ok(())
    }

    /// The cases: one for each choice of a value from each list.
    ///
    /// # Errors
    /// Too many of them, or figures that contradict each other.
    pub fn cases(&self, seed: u64) -> Result<Vec<Case>, SceneError> {
        self.check_stated().map_err(SceneError)?;
        let count = self.stated.iter().try_fold(1_usize, |count, (_, values)| {
            count.checked_mul(values.len()).filter(|count| *count <= CASES_MAX)
        });
        let count = count.ok_or_else(|| SceneError(format!("more than {CASES_MAX} cases")))?;
        (0..count).map(|index| self.case(index, seed)).collect()
    }

    /// The last list changes fastest.
    fn case(&self, mut index: usize, seed: u64) -> Result<Case, SceneError> {
        let (mut chosen, mut name) = (Chosen::new(), Vec::new());
        for (path, values) in self.stated.iter().rev() {
            let value = &values[index % values.len()];
            index /= values.len();
            chosen.insert(path, value);
            if values.len() > 1 {
                name.push(format!("{path}={value}"));
            }
        }
        name.reverse();
        let name = if name.is_empty() { String::from("all") } else { name.join(" ") };
        let built = build::Build {
            chosen: &chosen,
            kinds: &self.kinds,
            model: self.model.as_ref(),
            measured_on: self.measured_on.as_ref(),
        };
        let refused = |why: String| SceneError(format!("{name}: {why}"));
        let mut host = built.host().map_err(refused)?;
        host.check().map_err(|why| refused(why.to_string()))?;
        host.seed = seed;
        built.check_fault().map_err(refused)?;
        let span = match built.word("run.until") {
            "end" => Span::ToTheEnd(built.time("run.time")),
            _ => Span::Time { warm_up: built.time("run.warm_up"), ns: built.time("run.time") },
        };
        if matches!(span, Span::ToTheEnd(_)) && !host.processes.iter().any(|one| one.are_finite()) {
            let what = "run.until=end, and no processes have bytes or ios";
            return Err(SceneError(format!("{name}: {what}")));
        }
        Ok(Case { name, host, span, rows: rows::rows })
    }
}

#[cfg(test)]
mod tests;
