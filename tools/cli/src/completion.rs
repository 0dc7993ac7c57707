//! Completions for a shell, and the man page: both from the declarations of the commands, the list
//! of schedulers, and the tree of the daemon that runs.

use std::ffi::OsStr;
use std::io;
use std::path::PathBuf;

use clap::{Args, Command};
use clap_complete::CompleteEnv;
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter, CompletionCandidate};
use weir_control::Node;
use weir_load::presets::PRESETS;
use weir_sched::SCHEDULERS;

use crate::control::Control;
use crate::{Failure, whole};

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
        let names = client.list(folder).unwrap_or_default();
        let within = typed.strip_suffix(start).unwrap_or_default();
        let found = names.into_iter().filter(|(name, _)| name.starts_with(start));
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
        let names = client.list("block").unwrap_or_default();
        names.into_iter().map(|(name, _)| CompletionCandidate::new(name)).collect()
    })
}

/// Without the command that is a page already.
fn helpless(command: Command) -> Command {
    command.disable_help_subcommand(true).mut_subcommands(helpless)
}

/// Prints the man page of a command, or writes those of all into a folder.
///
/// Example: weir man | man -l -
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Man {
    /// Write weir.1, weir-serve.1 and so on into this folder instead.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// The command, as serve; weir itself if not given.
    command: Option<String>,
}

impl Man {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let mut weir = helpless(whole());
        weir.build();
        if let Some(folder) = &self.dir {
            let written = clap_mangen::generate_to(weir, folder);
            return written.map_err(|error| {
                Failure::Bad(format!("man pages into {:?}: {error}", folder.display()))
            });
        }
        let found = match &self.command {
            None => weir,
            Some(name) => weir.find_subcommand(name).cloned().ok_or_else(|| {
                let names: Vec<_> = weir.get_subcommands().map(Command::get_name).collect();
                Failure::Bad(format!("no command {name:?}; there are {}", names.join(", ")))
            })?,
        };
        let printed = clap_mangen::Man::new(found).render(&mut io::stdout());
        match printed {
            // The reader may have seen enough.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(Failure::Bad(format!("standard output: {error}")))
            }
            _ => Ok(()),
        }
    }
}
