//! Rules in the form of udev's (udev(7), as far as docs/behaviour/rules.md says), for the daemon's
//! own disks: they match what a disk is and say what its files shall hold.
//!
//! Reading and matching are pure: [`Rules::plan`] asks a [`Subject`] and answers what would be
//! written, so that a trial says what a start does. Two things differ from udev. All keys are
//! matched before anything is written, so ATTR sees the disk as it was; and of several writes to a
//! file the last is made alone, `weir/queues` and `queue/scheduler` first, because a change of
//! these resets what depends on them. Programs are never run.

mod glob;
mod parse;
mod plan;
mod substitution;

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use parse::{Rule, Told};

pub use glob::matches_name;
pub use plan::{Event, LIST_MAX, Plan, Planned, Subject, TreeDisk, VALUE_MAX, turn_of};

/// The most bytes of a file that is read.
pub const FILE_MAX: u64 = 1 << 20;

/// A fault of a line of a rule file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleError {
    /// The file.
    pub file: String,
    /// The line, from 1; 0 where it is the file as a whole.
    pub line: usize,
    /// The fault.
    pub what: String,
}

/// A note on a line that holds all the same.
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
    /// to /dev/null stands for no rules. A file that is no regular one, or has more than
    /// [`FILE_MAX`] bytes, is left out and stands in [`errors`](Rules::errors).
    ///
    /// # Errors
    /// A folder or file that cannot be read. Faults of lines are in [`errors`](Rules::errors), and
    /// only those lines are left out, as udev does.
    pub fn read(folders: &[PathBuf]) -> Result<Rules, RuleError> {
        let failed = |path: &Path, error: io::Error| RuleError {
            file: path.display().to_string(),
            line: 0,
            what: error.to_string(),
        };
        let mut found = BTreeMap::new();
        for folder in folders {
            for entry in fs::read_dir(folder).map_err(|e| failed(folder, e))? {
                let path = entry.map_err(|e| failed(folder, e))?.path();
                if path.extension().is_some_and(|extension| extension == "rules")
                    && let Some(name) = path.file_name()
                {
                    found.insert(name.to_owned(), path);
                }
            }
        }
        let (mut texts, mut left_out) = (Vec::new(), Vec::new());
        for path in found.into_values() {
            let name = path.display().to_string();
            match text_of(&path).map_err(|e| failed(&path, e))? {
                Ok(text) => texts.push((name, text)),
                Err(what) => left_out.push(RuleError { file: name, line: 0, what }),
            }
        }
        let texts = texts.iter().map(|(name, text)| (name.as_str(), text.as_str()));
        let mut rules = Rules::parse(texts);
        rules.errors.splice(..0, left_out);
        Ok(rules)
    }

    /// Parses files, given by name and text in the order they count.
    pub fn parse<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Rules {
        let mut told = Told::default();
        let files = files.into_iter().map(|(name, text)| parse::file(name, text, &mut told));
        let files = files.collect();
        Rules { files, errors: told.errors, warnings: told.warnings }
    }

    /// Lines and files that are left out, and why.
    #[must_use]
    pub fn errors(&self) -> &[RuleError] {
        &self.errors
    }

    /// Parts of lines that are passed over.
    #[must_use]
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// Whether a rule of this text is among them, wherever it stands.
    #[must_use]
    pub fn has(&self, text: &str) -> bool {
        self.files.iter().flatten().any(|rule| rule.text == text)
    }

    /// Whether there is no rule.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.iter().all(Vec::is_empty)
    }
}

/// The text of a file, or why it is none that rules are read from. A pipe or a device is not even
/// opened: that may wait for ever.
fn text_of(path: &Path) -> io::Result<Result<String, String>> {
    if fs::canonicalize(path)? == Path::new("/dev/null") {
        return Ok(Ok(String::new()));
    }
    if !fs::metadata(path)?.is_file() {
        return Ok(Err(String::from("it is no regular file, nor /dev/null")));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(FILE_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_MAX {
        return Ok(Err(format!("it has more than {FILE_MAX} bytes")));
    }
    Ok(Ok(String::from_utf8_lossy(&bytes).into_owned()))
}
