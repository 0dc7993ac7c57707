//! `weir ls`, `get` and `set`: the tree of a running daemon, over its control socket.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use clap::Args;
use serde_json::json;
use weir_control::Node;

use crate::Failure;
use crate::completion::tree_paths;
use crate::control::Control;
use crate::log::say;
use crate::output::{print, print_line};
use crate::reload::FAILED;

/// Lists a directory of a running daemon's tree.
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
        let names = self.control.connect()?.list(&self.path)?;
        if self.json {
            let entries = names.iter().map(|(name, node)| {
                let (kind, writable) = match node {
                    Node::Directory => ("directory", false),
                    Node::File { writable } => ("file", *writable),
                };
                json!({ "name": name, "kind": kind, "writable": writable })
            });
            return print_line(&json!(entries.collect::<Vec<_>>()).to_string());
        }
        let line = |(name, node): (String, Node)| {
            format!("{name}{}\n", if node == Node::Directory { "/" } else { "" })
        };
        print(&names.into_iter().map(line).collect::<String>())
    }
}

/// Prints a file of a running daemon's tree.
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
        let text = self.control.connect()?.read(&self.path)?;
        if self.json {
            let value = json!({ "path": self.path, "value": text.trim_end_matches('\n') });
            print_line(&value.to_string())
        } else {
            print(&text)
        }
    }
}

/// Writes to a file of a running daemon's tree, or has it read its configuration again.
///
/// A value is taken, cut down to its range or refused as Linux does with the file of that name;
/// then the error's name is printed and the exit status is 2.
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

impl Set {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let mut client = self.control.connect()?;
        if let (Some(path), Some(value)) = (&self.path, &self.value) {
            client.write(path, value.as_bytes())?;
            // A file that cannot be read shows nothing to compare.
            if let Ok(now) = client.read(path)
                && let Some(note) = cut_down(path, &value.to_string_lossy(), &now)
            {
                say(&note);
            }
            return Ok(());
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
    fn a_number_that_was_taken_as_another_is_told_and_nothing_else_is() {
        let note = "weir: block/sda/queue/nr_requests is 4 now, not 1";
        assert_eq!(cut_down("block/sda/queue/nr_requests", "1", "4\n").as_deref(), Some(note));
        for (asked, now) in [("64", "64\n"), (" 064 ", "64"), ("-1", "75000"), ("kyber", "[kyber]")]
        {
            assert_eq!(cut_down("x", asked, now), None, "{asked} {now}");
        }
    }
}
