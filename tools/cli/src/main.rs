//! The weir command.
//!
//! Exit status: 0 on success, 1 when the answer is no, 2 on bad usage or input.

#![forbid(unsafe_code)]

mod activation;
mod bench;
mod compare;
mod completion;
mod control;
mod data_folder;
mod descriptors;
mod fronts;
mod handover;
mod iostat;
mod iscsi;
mod log;
mod manual;
mod map;
mod order;
mod output;
mod progress;
mod reach;
mod record;
mod reload;
mod replay;
mod report;
mod schedulers;
mod serve;
mod served;
mod sim;
mod status;
#[cfg(feature = "top")]
mod top;
mod tree;
mod udev;
mod values;
mod weights;
mod wrapped;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

// Counts allocations for `weir bench core`; for all other commands the cost is a thread-local
// increment.
#[global_allocator]
static ALLOCATOR: weir_bench::core::alloc::Counting = weir_bench::core::alloc::Counting;

/// The multi-queue block layer for user space.
#[derive(Debug, Parser)]
#[command(name = "weir", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::Serve),
    Ls(tree::Ls),
    Get(tree::Get),
    Set(tree::Set),
    Tree(tree::Tree),
    Iostat(iostat::Iostat),
    #[cfg(feature = "top")]
    Top(top::Top),
    Status(status::Status),
    Map(map::Map),
    Schedulers(schedulers::Schedulers),
    Iscsi(iscsi::Command),
    Udev(udev::Udev),
    Bench(bench::Bench),
    Compare(Box<compare::Compare>),
    Record(record::Record),
    Replay(replay::Replay),
    Sim(sim::Sim),
    Report(report::Report),
    Man(manual::Man),
}

/// Why a command ends without success.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The answer is no.
    No(String),
    /// Bad usage or input, or something could not be had.
    Bad(String),
}

impl From<weir::Error> for Failure {
    fn from(error: weir::Error) -> Failure {
        Failure::Bad(error.to_string())
    }
}

impl From<&str> for Failure {
    fn from(text: &str) -> Failure {
        Failure::Bad(String::from(text))
    }
}

impl From<String> for Failure {
    fn from(text: String) -> Failure {
        Failure::Bad(text)
    }
}

/// The word behind a flag is its value even if it begins with a hyphen: `--fsync -1` is refused
/// with the name and the bounds of the flag, and not as an unknown flag `-1`.
fn strict(command: clap::Command) -> clap::Command {
    let takes_value = |arg: &clap::Arg| !arg.is_positional() && arg.get_action().takes_values();
    let strict_arg = |arg: clap::Arg| match takes_value(&arg) {
        true => arg.allow_hyphen_values(true),
        false => arg,
    };
    command.mut_args(strict_arg).mut_subcommands(strict)
}

/// The command line as it is understood, with the help that is made of other tables.
fn whole() -> clap::Command {
    let command = strict(Cli::command());
    command
        .mut_subcommand("compare", compare::help::grouped)
        .mut_subcommand("bench", compare::help::with_words)
}

/// Names that people give as flags, and that are options of a target.
const OF_TARGET: [&str; 7] =
    ["scheduler", "queue_mode", "queues", "nr_requests", "nomerges", "barriers", "spread"];

/// The hint for an unknown flag that is the name of an option of a target.
fn of_target(error: &clap::Error) -> Option<String> {
    use clap::error::{ContextKind, ContextValue, ErrorKind};
    let ErrorKind::UnknownArgument = error.kind() else { return None };
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else { return None };
    let name = flag.trim_start_matches('-').split('=').next()?.replace('-', "_");
    OF_TARGET.contains(&name.as_str()).then(|| {
        format!("{flag} is no flag here but an option of a target: --target TARGET,{name}=VALUE")
    })
}

/// A write beyond the limit on file sizes is an error and not the end: with a handler, and not
/// ignored, because the programs that are started from here inherit what is ignored.
fn hear_of_sizes() {
    let heard = std::sync::Arc::default();
    // Without the handler a limit ends the process, as it does any other.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, heard);
}

fn main() -> ExitCode {
    completion::answer_shell();
    let arguments = wrapped::wrapped(whole()).try_get_matches().unwrap_or_else(|error| {
        match of_target(&error) {
            Some(why) => {
                log::say(&format!("weir: {why}"));
                std::process::exit(2)
            }
            None => error.exit(),
        }
    });
    let cli = Cli::from_arg_matches(&arguments).unwrap_or_else(|error| error.exit());
    // The command that runs in a tree takes the place of this one, with the limits that it had.
    if !matches!(cli.command, Command::Tree(_)) {
        descriptors::raise();
        hear_of_sizes();
    }
    let outcome = match cli.command {
        Command::Serve(serve) => serve.run(),
        Command::Ls(ls) => ls.run(),
        Command::Get(get) => get.run(),
        Command::Set(set) => set.run(),
        Command::Tree(tree) => tree.run(),
        Command::Iostat(iostat) => iostat.run(),
        #[cfg(feature = "top")]
        Command::Top(top) => top.run(),
        Command::Status(status) => status.run(),
        Command::Map(map) => map.run(),
        Command::Schedulers(schedulers) => schedulers.run(),
        Command::Iscsi(iscsi) => iscsi.run(),
        Command::Udev(udev) => udev.run(),
        Command::Bench(bench) => bench.run(),
        Command::Compare(compare) => compare.run(),
        Command::Record(record) => record.run(),
        Command::Replay(replay) => replay.run(),
        Command::Sim(sim) => sim.run(),
        Command::Report(report) => report.run(),
        Command::Man(man) => man.run(),
    };
    let (text, code) = match outcome {
        Ok(()) => (None, ExitCode::SUCCESS),
        Err(Failure::No(text)) => (Some(text), ExitCode::from(1)),
        Err(Failure::Bad(text)) => (Some(text), ExitCode::from(2)),
    };
    if let Some(text) = text {
        log::say(&format!("weir: {text}"));
    }
    log::end();
    code
}
