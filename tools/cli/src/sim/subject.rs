//! What is simulated: a scene with its settings, or a host that a file describes.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;

use serde_json::{Map, Value, json};
use weir_sim::scene::{self, Case, Custom, Outcome, Row, Scene, SceneError, Settings};

use crate::Failure;

/// What is simulated.
#[derive(Clone, Debug)]
pub(crate) enum Subject {
    /// A scene, with settings.
    Scene(&'static Scene, Settings),
    /// A host that the file of this name describes.
    File(String, Box<Custom>),
}

pub(super) fn refused(why: SceneError) -> Failure {
    Failure::Bad(why.to_string())
}

/// Bytes of a file that describes a host at most.
const FILE_MAX: u64 = 1 << 20;

/// The text of a regular file: a FIFO or a terminal would be waited for.
fn text_of(name: &str) -> Result<String, String> {
    let said = |error: std::io::Error| error.to_string();
    // Without this flag the opening of a FIFO waits for a writer.
    let no_wait = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = File::options().read(true).custom_flags(no_wait).open(name).map_err(said)?;
    if !file.metadata().map_err(said)?.is_file() {
        return Err(String::from("it is not a regular file"));
    }
    let mut text = Vec::new();
    // A file may grow while it is read.
    file.take(FILE_MAX + 1).read_to_end(&mut text).map_err(said)?;
    match text.len() as u64 {
        ..=FILE_MAX => String::from_utf8(text).map_err(|error| error.to_string()),
        _ => Err(format!("it has more than {FILE_MAX} bytes")),
    }
}

impl Subject {
    /// The scene of this name, or the file if it ends in `.toml`.
    ///
    /// # Errors
    /// There is no such scene; what is wrong with the file, and where.
    pub(crate) fn open(name: &str) -> Result<Subject, Failure> {
        if !name.ends_with(".toml") {
            return Ok(Subject::of(scene::find(name).map_err(refused)?));
        }
        let text = text_of(name).map_err(|why| Failure::Bad(format!("{name}: {why}")))?;
        let custom = Custom::parse(&text, name).map_err(refused)?;
        Ok(Subject::File(name.to_owned(), Box::new(custom)))
    }

    /// A scene with the settings that it has by default.
    pub(crate) fn of(scene: &'static Scene) -> Subject {
        Subject::Scene(scene, scene.defaults())
    }

    /// Sets something by text, `NAME=VALUE`.
    ///
    /// # Errors
    /// An unknown name, a value outside its bounds.
    pub(crate) fn set(&mut self, text: &str) -> Result<(), String> {
        match self {
            Subject::Scene(_, settings) => settings.set(text),
            Subject::File(_, custom) => custom.set(text),
        }
        .map_err(|why| why.to_string())
    }

    /// The cases that its settings come to.
    ///
    /// # Errors
    /// Settings that contradict each other, or are too many.
    pub(crate) fn cases(&self, seed: u64) -> Result<Vec<Case>, Failure> {
        match self {
            Subject::Scene(scene, settings) => scene.cases(settings, seed),
            Subject::File(_, custom) => custom.cases(seed),
        }
        .map_err(refused)
    }

    /// The rows of these outcomes of its cases, and those that follow from them.
    pub(super) fn rows(&self, outcomes: &[Outcome]) -> Vec<Row> {
        match self {
            Subject::Scene(scene, _) => scene.rows(outcomes),
            Subject::File(..) => scene::rows_of_all(outcomes),
        }
    }

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        match self {
            Subject::Scene(scene, _) => scene.name,
            Subject::File(name, _) => name,
        }
    }

    /// What is set, by name.
    pub(crate) fn settings(&self) -> Map<String, Value> {
        match self {
            Subject::Scene(_, settings) => {
                settings.iter().map(|(name, value)| (name.to_owned(), json!(value))).collect()
            }
            Subject::File(_, custom) => {
                custom.settings().map(|(path, value)| (path.to_owned(), json!(value))).collect()
            }
        }
    }

    /// What has several values, with them.
    pub(crate) fn lists(&self) -> Vec<(String, Vec<String>)> {
        match self {
            Subject::Scene(_, settings) => settings
                .iter()
                .map(|(name, value)| {
                    (name.to_owned(), value.split(',').map(String::from).collect())
                })
                .filter(|(_, values): &(_, Vec<String>)| values.len() > 1)
                .collect(),
            Subject::File(_, custom) => {
                custom.lists().map(|(path, values)| (path.to_owned(), values.to_vec())).collect()
            }
        }
    }

    /// What is to be known beside the figures.
    pub(crate) fn notes(&self) -> Vec<&str> {
        match self {
            Subject::Scene(scene, _) => scene.notes.to_vec(),
            Subject::File(_, custom) => {
                Some(custom.about()).filter(|about| !about.is_empty()).into_iter().collect()
            }
        }
    }
}
