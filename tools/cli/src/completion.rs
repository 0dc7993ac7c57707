//! Completions for a shell: from the declarations of the commands, the lists of presets, targets
//! and schedulers, and the tree of the daemon that runs.

use std::ffi::OsStr;

use clap_complete::CompleteEnv;
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter, CompletionCandidate};
use weir_control::Node;
use weir_load::presets::PRESETS;
use weir_sched::SCHEDULERS;

use crate::control::Control;
use crate::whole;

/// Answers a shell that asks (`COMPLETE` names it) and ends; otherwise does nothing.
pub(crate) fn answer_shell() {
    CompleteEnv::with_factory(whole).complete();
}

/// The names of schedulers.
pub(crate) fn schedulers() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        SCHEDULERS.iter().map(|entry| CompletionCandidate::new(entry.name)).collect()
    })
}

/// The presets of jobs, each with what it is; files complete themselves.
pub(crate) fn presets() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let candidate = |(name, doc): &(&'static str, &'static str)| {
            CompletionCandidate::new(name).help(Some((*doc).into()))
        };
        PRESETS.iter().map(candidate).collect()
    })
}

/// How targets of each kind begin.
pub(crate) fn targets() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let candidate = |kind: &&weir_queue::TargetKind| {
            CompletionCandidate::new(format!("{}:", kind.names[0])).help(Some(kind.doc.into()))
        };
        weir::drivers::kinds().iter().map(candidate).collect()
    })
}

/// Options of targets that variants often differ in.
pub(crate) fn options() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let schedulers = SCHEDULERS.iter().map(|entry| format!("scheduler={}", entry.name));
        let modes = ["sq", "mq"].map(|mode| format!("queue_mode={mode}"));
        modes.into_iter().chain(schedulers).map(CompletionCandidate::new).collect()
    })
}

/// Paths in the tree of the daemon whose socket `$WEIR_CONTROL` names, or of the default one.
pub(crate) fn tree_paths() -> ArgValueCompleter {
    ArgValueCompleter::new(|typed: &OsStr| {
        let Some(typed) = typed.to_str() else { return Vec::new() };
        let (folder, start) = typed.rsplit_once('/').unwrap_or(("", typed));
        // Without a daemon there is nothing to offer, and no place for an error.
        let Ok(mut client) = Control::default().connect() else { return Vec::new() };
        let names = offered(client.list(folder).unwrap_or_default());
        let within = typed.strip_suffix(start).unwrap_or_default();
        let found = names.filter(|(name, _)| name.starts_with(start));
        let path = |(name, node)| match node {
            Node::Directory => format!("{within}{name}/"),
            Node::File { .. } => format!("{within}{name}"),
        };
        found.map(path).map(CompletionCandidate::new).collect()
    })
}

/// The disks of the same daemon.
pub(crate) fn disks() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let Ok(mut client) = Control::default().connect() else { return Vec::new() };
        let names = offered(client.list("block").unwrap_or_default());
        names.map(|(name, _)| CompletionCandidate::new(name)).collect()
    })
}

/// The names that a shell may get: it puts them into the command line as they are, and the daemon
/// that sent them may belong to another user. Those in which a shell sees more than letters are not
/// offered.
fn offered(names: Vec<(String, Node)>) -> impl Iterator<Item = (String, Node)> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._:!+@-".contains(c);
    names.into_iter().filter(move |(name, _)| name.chars().all(plain))
}
