//! Rules in the form of udev's (udev(7), the subset of the multipath and exports spec, section 9),
//! for the daemon's own disks: they match what a disk is and say what its files shall hold.
//!
//! Reading and matching are pure: [`Rules::plan`] asks a [`Subject`] and answers what would be
//! written, so that a trial says what a start does. Two things differ from udev. All keys are
//! matched before anything is written, so ATTR sees the disk as it was; and of several writes to a
//! file the last is made alone, `queue/scheduler` first, because a switch resets what depends on
//! it. Programs are never run.

mod glob;
mod parse;
mod plan;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use parse::{Rule, Told};

pub use plan::{Event, Plan, Planned, Subject, TreeDisk};

/// What is wrong with a line of a rule file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleError {
    /// The file.
    pub file: String,
    /// The line, from 1; 0 where it is the file as a whole.
    pub line: usize,
    /// What is wrong.
    pub what: String,
}

/// What should be known of a line that holds all the same.
pub type Warning = RuleError;

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RuleError { file, line, what } = self;
        match line {
            0 => write!(f, "{file}: {what}"),
            line => write!(f, "{file}:{line}: {what}"),
        }
    }
}

impl std::error::Error for RuleError {}

/// The rules of all files, in the order they count.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// A list for each file, in the order of their names.
    files: Vec<Vec<Rule>>,
    errors: Vec<RuleError>,
    warnings: Vec<Warning>,
}

impl Rules {
    /// Reads every `*.rules` file of `folders`. Files count in the order of their names, wherever
    /// they are; of several of one name that in the last folder counts alone, and one that leads
    /// to /dev/null stands for no rules.
    ///
    /// # Errors
    /// A folder or file that cannot be read. What is wrong with a line is in
    /// [`errors`](Rules::errors), and the line alone is left out, as udev does.
    pub fn read(folders: &[PathBuf]) -> Result<Rules, RuleError> {
        let failed = |path: &Path, error: std::io::Error| RuleError {
            file: path.display().to_string(),
            line: 0,
            what: error.to_string(),
        };
        let mut found = BTreeMap::new();
        for folder in folders {
            for entry in std::fs::read_dir(folder).map_err(|e| failed(folder, e))? {
                let path = entry.map_err(|e| failed(folder, e))?.path();
                if path.extension().is_some_and(|extension| extension == "rules")
                    && let Some(name) = path.file_name()
                {
                    found.insert(name.to_owned(), path);
                }
            }
        }
        let mut texts = Vec::new();
        for path in found.into_values() {
            let bytes = std::fs::read(&path).map_err(|e| failed(&path, e))?;
            texts.push((path.display().to_string(), String::from_utf8_lossy(&bytes).into_owned()));
        }
        Ok(Rules::parse(texts.iter().map(|(name, text)| (name.as_str(), text.as_str()))))
    }

    /// Parses files, given by name and text in the order they count.
    pub fn parse<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Rules {
        let mut told = Told::default();
        let files = files.into_iter().map(|(name, text)| parse::file(name, text, &mut told));
        let files = files.collect();
        Rules { files, errors: told.errors, warnings: told.warnings }
    }

    /// Lines that are left out, and why.
    #[must_use]
    pub fn errors(&self) -> &[RuleError] {
        &self.errors
    }

    /// Parts of lines that are passed over.
    #[must_use]
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// Whether there is no rule.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.iter().all(Vec::is_empty)
    }
}
