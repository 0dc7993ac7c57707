//! The weir command.
//!
//! Exit status: 0 on success, 1 when the answer is no, 2 on bad usage or input.

#![forbid(unsafe_code)]

mod activation;
mod bench;
mod serve;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

// Counts allocations for `weir bench core`; a thread-local increment for everybody else.
#[global_allocator]
static ALLOCATOR: weir_bench::alloc::Counting = weir_bench::alloc::Counting;

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
    Bench(bench::Bench),
}

/// Why a command ends without success.
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

impl From<String> for Failure {
    fn from(text: String) -> Failure {
        Failure::Bad(text)
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match cli.command {
        Command::Serve(serve) => serve.run(),
        Command::Bench(bench) => bench.run(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::No(text)) => {
            eprintln!("weir: {text}");
            ExitCode::from(1)
        }
        Err(Failure::Bad(text)) => {
            eprintln!("weir: {text}");
            ExitCode::from(2)
        }
    }
}
