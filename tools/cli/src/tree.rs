//! `weir ls`, `get` and `set`: the tree of a running daemon, over its control socket.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

mod exec;
mod paths;

use clap::Args;
use serde_json::{Value, json};
use weir_control::{ControlClient, Node};

use crate::Failure;
use crate::completion::tree_paths;
use crate::control::Control;
use crate::log::say;
use crate::output::{harmless, print, print_line};
use crate::reload::FAILED;

pub(crate) use exec::Tree;
use paths::{Found, expand, is_pattern, plain};

/// Lists a directory of a running daemon's tree.
///
/// A path may begin with /sys, and may be a pattern of a shell, in quotes.
///
/// Example: weir ls block/sda/queue
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Ls {
    /// A path in the tree, as block/sda; the root if not given.
    #[arg(default_value = "", add = tree_paths())]
    path: String,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    control: Control,
}

impl Ls {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let mut client = self.control.connect()?;
        if is_pattern(&self.path) {
            return self.list_all(&mut client);
        }
        let names = client.list(plain(&self.path))?;
        match self.json {
            true => print_line(&as_json(&names).to_string()),
            false => print(&as_lines(&names)),
        }
    }

    /// Lists every directory that a pattern matches, and names the files, as `ls` does.
    fn list_all(&self, client: &mut ControlClient) -> Result<(), Failure> {
        let found = expand(client, &self.path)?;
        let (mut files, mut folders) = (String::new(), Vec::new());
        let mut entries = Vec::new();
        for Found { shown, path, node } in &found {
            if *node == Node::Directory {
                let names = client.list(path)?;
                entries.push(json!({ "path": shown, "entries": as_json(&names) }));
                folders.push((shown, as_lines(&names)));
            } else {
                entries.push(json!({ "path": shown }));
                files.push_str(&format!("{shown}\n"));
            }
        }
        if self.json {
            return print_line(&json!(entries).to_string());
        }
        let mut parts = if files.is_empty() { Vec::new() } else { vec![files] };
        let is_one = found.len() == 1;
        parts.extend(folders.into_iter().map(|(shown, lines)| match is_one {
            true => lines,
            false => format!("{shown}:\n{lines}"),
        }));
        print(&parts.join("\n"))
    }
}

fn as_json(names: &[(String, Node)]) -> Value {
    let entries = names.iter().map(|(name, node)| {
        let (kind, writable) = match node {
            Node::Directory => ("directory", false),
            Node::File { writable } => ("file", *writable),
        };
        json!({ "name": name, "kind": kind, "writable": writable })
    });
    entries.collect()
}

fn as_lines(names: &[(String, Node)]) -> String {
    let line = |(name, node): &(String, Node)| {
        format!("{name}{}\n", if *node == Node::Directory { "/" } else { "" })
    };
    names.iter().map(line).collect()
}

/// Prints a file of a running daemon's tree.
///
/// A path may begin with /sys, and may be a pattern of a shell, in quotes: where it matches several
/// files, the path stands before each line.
///
/// Example: weir get block/sda/queue/scheduler
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Get {
    /// A path in the tree, as block/sda/queue/scheduler.
    #[arg(add = tree_paths())]
    path: String,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    control: Control,
}

impl Get {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let mut client = self.control.connect()?;
        if is_pattern(&self.path) {
            return self.read_all(&mut client);
        }
        let text = client.read(plain(&self.path))?;
        match self.json {
            true => print_line(&value_of(&self.path, &text).to_string()),
            false => print(&text),
        }
    }

    /// Prints every file that a pattern matches, each line behind the path if there are several.
    fn read_all(&self, client: &mut ControlClient) -> Result<(), Failure> {
        let found = files_of(client, &self.path)?;
        let (mut values, mut text, mut failed) = (Vec::new(), String::new(), 0);
        for Found { shown, path, .. } in &found {
            match client.read(path) {
                Ok(value) if found.len() == 1 => text = value,
                Ok(value) => {
                    text.extend(value.lines().map(|line| format!("{shown}: {line}\n")));
                    values.push(value_of(shown, &value));
                    continue;
                }
                Err(why) => {
                    failed += 1;
                    say(&format!("weir: {why}"));
                    continue;
                }
            }
            values.push(value_of(shown, &text));
        }
        match self.json {
            true => print_line(&json!(values).to_string())?,
            false => print(&text)?,
        }
        some_failed(failed, found.len(), "could not be read")
    }
}

fn value_of(path: &str, text: &str) -> Value {
    json!({ "path": path, "value": text.trim_end_matches('\n') })
}

/// The files that a pattern matches.
fn files_of(client: &mut ControlClient, pattern: &str) -> Result<Vec<Found>, Failure> {
    let mut found = expand(client, pattern)?;
    found.retain(|found| found.node != Node::Directory);
    match found.is_empty() {
        true => Err(Failure::Bad(format!("ENOENT: {pattern} matches directories only, no file"))),
        false => Ok(found),
    }
}

fn some_failed(failed: usize, of: usize, what: &str) -> Result<(), Failure> {
    match failed {
        0 => Ok(()),
        failed => Err(Failure::No(format!("{failed} of {of} files {what}"))),
    }
}

/// Writes to a file of a running daemon's tree, or has it read its configuration again.
///
/// A value is taken, cut down to its range or refused as Linux does with the file of that name;
/// then the error's name is printed and the exit status is 2. With a pattern that matches several
/// files, those that refuse the value are told, the others have it, and the exit status is 1.
///
/// With --reload the daemon reads its rules and its configuration file again: weights and caps of
/// groups, schedulers, tunables and queue attributes of disks become what these say, or their
/// defaults again where they no longer say anything, and what needs a restart is told.
///
/// Example: weir set block/sda/queue/nr_requests 64
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Set {
    /// A path in the tree, as block/sda/queue/nr_requests.
    #[arg(required_unless_present = "reload", add = tree_paths())]
    path: Option<String>,
    /// What to write.
    #[arg(allow_hyphen_values = true, required_unless_present = "reload")]
    value: Option<OsString>,
    /// Have the daemon read its rules and its configuration again.
    #[arg(long, conflicts_with_all = ["path", "value"])]
    reload: bool,
    #[command(flatten)]
    control: Control,
}

/// The note on a number that was taken as another one: cut down to its range, or rounded.
fn cut_down(path: &str, asked: &str, now: &str) -> Option<String> {
    let asked: i128 = asked.trim().parse().ok()?;
    let now: i128 = now.trim().parse().ok()?;
    // A negative number asks for a default where it is taken at all.
    (asked >= 0 && asked != now).then(|| format!("weir: {path} is {now} now, not {asked}"))
}

/// Writes to a file, and tells if the value was taken as another one.
fn write_one(
    client: &mut ControlClient,
    shown: &str,
    path: &str,
    value: &OsStr,
) -> Result<(), Failure> {
    client.write(path, value.as_bytes())?;
    // A file that cannot be read shows nothing to compare.
    if let Ok(now) = client.read(path)
        && let Some(note) = cut_down(shown, &value.to_string_lossy(), &now)
    {
        say(&note);
    }
    Ok(())
}

/// Tells what the daemon has to remark on those of these files that are schedulers of disks.
fn tell_remarks<'a>(client: &mut ControlClient, paths: impl Iterator<Item = &'a str>) {
    let disks: BTreeSet<&str> = paths.filter_map(rescheduled).collect();
    if disks.is_empty() {
        return;
    }
    // A daemon that has no such file has nothing to say there.
    let remarks = client.read("weir/remarks").unwrap_or_default();
    let of_disks = |line: &&str| line.split_once(": ").is_some_and(|(of, _)| disks.contains(of));
    // The daemon's own text.
    let note = |line: &str| say(&format!("weir: note: {}", harmless(line)));
    remarks.lines().filter(of_disks).for_each(note);
}

/// The disk whose scheduler is written to by this path.
fn rescheduled(path: &str) -> Option<&str> {
    path.trim_matches('/').strip_prefix("block/")?.strip_suffix("/queue/scheduler")
}

/// Writes to every file that a pattern matches; one that refuses the value keeps none of the others
/// from it.
fn write_all(client: &mut ControlClient, pattern: &str, value: &OsStr) -> Result<(), Failure> {
    let found = files_of(client, pattern)?;
    let (mut failed, mut written) = (0, Vec::new());
    for Found { shown, path, .. } in &found {
        match write_one(client, shown, path, value) {
            Ok(()) => written.push(path.as_str()),
            Err(why) if found.len() == 1 => return Err(why),
            Err(Failure::No(why) | Failure::Bad(why)) => {
                failed += 1;
                say(&format!("weir: {why}"));
            }
        }
    }
    tell_remarks(client, written.into_iter());
    some_failed(failed, found.len(), "refused it; the others have it")
}

impl Set {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let mut client = self.control.connect()?;
        if let (Some(path), Some(value)) = (&self.path, &self.value) {
            return match is_pattern(path) {
                true => write_all(&mut client, path, value),
                false => {
                    write_one(&mut client, path, plain(path), value)?;
                    tell_remarks(&mut client, std::iter::once(plain(path)));
                    Ok(())
                }
            };
        }
        let told = client.reload()?;
        print(&told)?;
        match told.lines().filter(|line| line.starts_with(FAILED)).count() {
            0 => Ok(()),
            failed => Err(Failure::No(format!("{failed} of the changes failed"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheduler_of_a_disk_is_known_by_its_path() {
        assert_eq!(rescheduled("block/sda/queue/scheduler"), Some("sda"));
        assert_eq!(rescheduled("/block/ssd0/queue/scheduler"), Some("ssd0"));
        for path in ["block/sda/queue/nr_requests", "queue/scheduler", "weir/status"] {
            assert_eq!(rescheduled(path), None, "{path}");
        }
    }

    #[test]
    fn a_number_that_was_taken_as_another_is_told_and_nothing_else_is() {
        let note = "weir: block/sda/queue/nr_requests is 4 now, not 1";
        assert_eq!(cut_down("block/sda/queue/nr_requests", "1", "4\n").as_deref(), Some(note));
        for (asked, now) in [("64", "64\n"), (" 064 ", "64"), ("-1", "75000"), ("kyber", "[kyber]")]
        {
            assert_eq!(cut_down("x", asked, now), None, "{asked} {now}");
        }
    }
}
