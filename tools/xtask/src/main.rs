//! Repository chores: `cargo xtask tidy`, `tunables`, `mutants`, `planted`, `alike`,
//! `same-variants`, `without-uring` and `ci STEP`.
//!
//! This is not part of the product and uses no other room, so that it still builds when they do
//! not. The limits it holds come from the room table and the house style; CONTRIBUTING.md says
//! them in words.

#![forbid(unsafe_code)]

mod alike;
mod ci;
mod files;
mod mutants;
mod planted;
mod same;
mod tidy;
mod tunables;
mod without;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::workspace::Workspace;

/// Repository chores of weir.
#[derive(Parser)]
#[command(name = "cargo xtask", after_help = "Example: cargo xtask ci smoke")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Hold the tree against the house limits; every finding is one line `file:line: what`.
    Tidy,
    /// Write docs/tunables.md from the tables in the code.
    Tunables,
    /// Change decisions of the schedulers, one at a time, and tell which change no test notices.
    Mutants {
        #[command(flatten)]
        settings: mutants::Settings,
    },
    /// Plant known bugs in a copy of the core, one at a time, and tell which no life finds.
    Planted {
        #[command(flatten)]
        settings: planted::Settings,
    },
    /// Tell whether the simulator does the same with debug assertions and as it is released.
    Alike,
    /// Compare variants with themselves on disks that are written, and count wrong verdicts.
    SameVariants {
        #[command(flatten)]
        settings: same::Settings,
    },
    /// Run a command to which the kernel refuses io_uring, as the rules of many containers do.
    WithoutUring {
        /// The program and its arguments.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// Run one stage of continuous integration.
    Ci {
        /// Which stage.
        stage: ci::Stage,
        #[command(flatten)]
        choice: ci::Choice,
    },
}

/// Exit status: 0 all is well, 1 something was found or a step failed, 2 the chore could not run.
fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let answer = Workspace::here().and_then(|workspace| match arguments.chore {
        Chore::Tidy => tidy::run(&workspace),
        Chore::Tunables => tunables::run(&workspace),
        Chore::Mutants { settings } => mutants::run(&workspace, &settings),
        Chore::Planted { settings } => planted::run(&workspace, &settings),
        Chore::Alike => alike::run(&workspace),
        Chore::SameVariants { settings } => same::run(&workspace, &settings),
        Chore::WithoutUring { command } => without::run(&command),
        Chore::Ci { stage, choice } => ci::run(&workspace, stage, &choice),
    });
    match answer {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::from(2)
        }
    }
}
