//! Reads a file: every value with its line.

use toml::Spanned;
use toml::de::{DeTable, DeValue};
use weir_sim_disk::Spec;

use super::{Custom, JOB, SETTINGS};
use crate::profile::Profile;
use crate::scene::{SceneError, Setting};

/// The tables of which a disk has one.
const KINDS: [&str; 5] = ["fixed", "measured", "ssd", "hdd", "array"];

/// Whether something can be stated in this table, one of processes apart.
fn is_table(path: &str) -> bool {
    let is_in = |setting: &Setting| {
        setting.name.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'))
    };
    SETTINGS.iter().any(is_in)
}

/// Whether processes may be called so: cases are told apart by words, and settings by dots.
fn is_name(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    !name.is_empty() && name.chars().all(is_part)
}

struct Reader<'a> {
    text: &'a str,
    file: &'a str,
    into: Custom,
}

pub(super) fn read(text: &str, file: &str) -> Result<Custom, SceneError> {
    let table = DeTable::parse(text).map_err(|error| {
        let line = error.span().map_or(1, |span| line_of(text, span.start));
        SceneError(format!("{file}:{line}: {}", error.message()))
    })?;
    let into = Custom {
        about: String::new(),
        stated: vec![],
        kinds: vec![],
        model: None,
        measured_on: None,
    };
    let mut reader = Reader { text, file, into };
    if let Some(key) = KINDS.iter().find_map(|kind| table.get_ref().get_key_value(*kind)) {
        let at = key.0.span().start;
        // The parser above takes numbers that no value holds.
        let disk = text.parse::<toml::Table>().map_err(|error| {
            reader.error(error.span().map_or(at, |span| span.start), error.message())
        })?;
        reader.disk(at, toml::Value::Table(disk), "")?;
        reader.into.kinds.push(String::from(JOB));
        return Ok(reader.into);
    }
    reader.table("", table.get_ref())?;
    Ok(reader.into)
}

fn line_of(text: &str, at: usize) -> usize {
    let before = &text.as_bytes()[..at.min(text.len())];
    before.iter().filter(|byte| **byte == b'\n').count() + 1
}

impl Reader<'_> {
    fn error(&self, at: usize, what: &str) -> SceneError {
        SceneError(format!("{}:{}: {what}", self.file, line_of(self.text, at)))
    }

    /// Its entries in the order of the file, which is that of the cases.
    fn table(&mut self, prefix: &str, table: &DeTable<'_>) -> Result<(), SceneError> {
        let mut entries: Vec<_> = table.iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        for (key, value) in entries {
            let name = key.get_ref();
            // A path is split at its dots: ["disk.model"] is not [disk.model].
            if name.contains('.') {
                return Err(self.error(key.span().start, &format!("{name:?}: a name has no dot")));
            }
            let path = match prefix {
                "" => name.to_string(),
                prefix => format!("{prefix}.{name}"),
            };
            self.entry(&path, key.span().start, value)?;
        }
        Ok(())
    }

    fn entry(
        &mut self,
        path: &str,
        at: usize,
        value: &Spanned<DeValue<'_>>,
    ) -> Result<(), SceneError> {
        match value.get_ref() {
            DeValue::Table(_) if path == "disk.model" => {
                let whole = self.text.parse::<toml::Table>().map_err(|error| {
                    self.error(error.span().map_or(at, |span| span.start), error.message())
                })?;
                let model = whole["disk"]["model"].clone();
                self.disk(at, model, path)?;
                match self.into.stated.iter().any(|(path, _)| path == "disk.preset") {
                    true => Err(self.error(at, "[disk.model] beside disk.preset: a disk is one")),
                    false => Ok(()),
                }
            }
            DeValue::Table(table) => {
                match path.strip_prefix("process.") {
                    Some(name) if is_name(name) => self.into.kinds.push(name.to_owned()),
                    Some(name) => {
                        let what =
                            format!("processes {name:?}: letters, digits, - and _ are a name");
                        return Err(self.error(at, &what));
                    }
                    _ if is_table(path) => {}
                    _ => return Err(self.error(at, &format!("no table [{path}]"))),
                }
                self.table(path, table)
            }
            DeValue::String(text) if path == "about" => {
                self.into.about = text.to_string();
                Ok(())
            }
            DeValue::Array(list) => {
                let values = list.iter().map(|one| self.scalar(path, one)).collect();
                self.state(path, at, values)
            }
            _ => {
                let value = self.scalar(path, value).map(|value| vec![value]);
                self.state(path, at, value)
            }
        }
    }

    /// A disk by its table, with the host that it was measured on if that is stated there.
    fn disk(&mut self, at: usize, model: toml::Value, path: &str) -> Result<(), SceneError> {
        let path = if path.is_empty() { String::new() } else { format!("{path}: ") };
        let host = model.get("host").and_then(toml::Value::as_table).cloned();
        let model = Spec::read(model).map_err(|why| self.error(at, &format!("{path}{why}")))?;
        if let Some(host) = host {
            let host = Profile::read(&host);
            let host = host.map_err(|why| self.error(at, &format!("{path}host: {why}")))?;
            self.into.measured_on = Some(host);
        }
        self.into.model = Some(model);
        Ok(())
    }

    fn state(
        &mut self,
        path: &str,
        at: usize,
        values: Result<Vec<String>, SceneError>,
    ) -> Result<(), SceneError> {
        let stated = self.into.state(path, values?);
        stated.map_err(|what| self.error(at, &what))
    }

    fn scalar(&self, path: &str, value: &Spanned<DeValue<'_>>) -> Result<String, SceneError> {
        let at = value.span().start;
        match value.get_ref() {
            DeValue::String(text) => Ok(text.to_string()),
            DeValue::Boolean(yes) => Ok(yes.to_string()),
            DeValue::Integer(number) => {
                let parsed = i64::from_str_radix(number.as_str(), number.radix());
                let what = format!("{path}: {} is too large", number.as_str());
                parsed.map(|number| number.to_string()).map_err(|_| self.error(at, &what))
            }
            other => {
                let what =
                    format!("{path} is a {}: no whole number, text or list", other.type_str());
                Err(self.error(at, &what))
            }
        }
    }
}
