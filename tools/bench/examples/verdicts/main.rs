//! How often comparisons of a variant with itself see a difference, and how often they see one that
//! is planted, from the documents that `cargo xtask same-variants` keeps.
//!
//! `count` reads the verdicts as they were given. `resample` and `plant` make new comparisons of
//! the recorded rounds, by the code that turns the rounds of `weir compare` and judges them. Tables
//! are Markdown.

#![forbid(unsafe_code)]

mod chance;
mod planted;
mod replay;
mod saved;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use chance::{Share, median};
use saved::Recorded;

/// The share of comparisons that may name a difference by the primary metric where there is none,
/// and by any: that of the others together is as much again.
const BOUND: f64 = 0.01;
const BOUND_OF_ANY: f64 = 0.02;

/// Counts wrong verdicts of comparisons of a variant with itself.
#[derive(Parser)]
#[command(name = "verdicts")]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Count the verdicts of the documents.
    Count {
        /// The folder that has one of documents for each disk.
        folder: PathBuf,
    },
    /// Make comparisons of recorded rounds, drawn with replacement, and judge them after each.
    Resample {
        #[command(flatten)]
        drawing: Drawing,
        /// Comparisons of each disk's rounds.
        #[arg(long, default_value_t = 2500, value_parser = clap::value_parser!(u32).range(1..))]
        comparisons: u32,
    },
    /// The same with differences of known size put into one of the two.
    Plant {
        #[command(flatten)]
        drawing: Drawing,
        /// Comparisons of each disk's rounds, for each difference.
        #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u32).range(1..))]
        comparisons: u32,
    },
}

#[derive(Args)]
struct Drawing {
    /// The folder that has one of documents for each disk.
    folder: PathBuf,
    /// The most rounds of a comparison.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(5..=1000))]
    rounds: u32,
    /// The seed of all that is drawn.
    #[arg(long, default_value_t = 1)]
    randseed: u64,
}

/// Exit status: 0, or 1 where more verdicts are wrong than there may be and chance allows, or 2.
fn main() -> ExitCode {
    let done = match Arguments::parse().what {
        What::Count { folder } => saved::read(&folder).map(|disks| count(&disks)),
        What::Resample { drawing, comparisons } => {
            saved::read(&drawing.folder).and_then(|disks| resample(&disks, &drawing, comparisons))
        }
        What::Plant { drawing, comparisons } => saved::read(&drawing.folder)
            .and_then(|disks| planted::table(&disks, &drawing, comparisons)),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(why) => {
            eprintln!("verdicts: {why}");
            ExitCode::from(2)
        }
    }
}

/// Tells what the documents say; whether no more of it is wrong than may be.
fn count(disks: &[Recorded]) -> bool {
    println!(
        "| disk | comparisons | rounds, median | runs voided | wrong by the primary metric | wrong \
         by any metric | wrong verdicts |"
    );
    println!("|---|---|---|---|---|---|---|");
    let row = |name: &str, of: &[&saved::Told], rounds: &[u32]| {
        let sum = |what: fn(&saved::Told) -> u32| of.iter().map(|told| what(told)).sum::<u32>();
        let count = of.len() as u32;
        let primary =
            Share::of(sum(|told| u32::from(told.is_wrong)), sum(|told| u32::from(told.is_judged)));
        let any = Share::of(sum(|told| u32::from(told.wrong > 0)), count);
        let verdicts = Share::of(sum(|told| told.wrong), sum(|told| told.verdicts));
        let (voided, runs) = (sum(|told| told.voided), sum(|told| told.runs));
        let rounds = median(rounds).map_or(String::from("–"), |rounds| rounds.to_string());
        println!(
            "| {name} | {count} | {rounds} | {voided} of {runs} | {primary} | {any} | {verdicts} |"
        );
        primary.is_within(BOUND) && any.is_within(BOUND_OF_ANY)
    };
    let mut is_bounded = true;
    for disk in disks {
        let told: Vec<&saved::Told> = disk.told.iter().collect();
        let rounds: Vec<u32> = told.iter().map(|told| told.rounds).collect();
        is_bounded &= row(&disk.name, &told, &rounds);
    }
    let told: Vec<&saved::Told> = disks.iter().flat_map(|disk| &disk.told).collect();
    let rounds: Vec<u32> = told.iter().map(|told| told.rounds).collect();
    is_bounded &= row("all", &told, &rounds);
    println!(
        "\nIntervals are 95 %, by Clopper and Pearson. Those of verdicts take the verdicts of a \
         comparison for independent, which they are not."
    );
    for disk in disks {
        for told in disk.told.iter().filter(|told| !told.differing.is_empty()) {
            println!("{}, {}: {}", disk.name, told.file, told.differing.join("; "));
        }
    }
    verdict(is_bounded)
}

fn verdict(is_bounded: bool) -> bool {
    let told = if is_bounded { "no more is wrong than" } else { "MORE IS WRONG THAN" };
    println!("{told} one comparison in a hundred by the primary metric, and two by any");
    is_bounded
}

/// Draws comparisons of each disk's rounds; whether no more of them are wrong than may be.
fn resample(disks: &[Recorded], drawing: &Drawing, comparisons: u32) -> Result<bool, String> {
    let Drawing { rounds, randseed, .. } = drawing;
    println!(
        "Each comparison has {rounds} rounds, drawn with replacement from all recorded ones of its \
         disk, whole; which of the two runs of a round is a's is drawn too, as in weir compare. \
         That takes rounds for independent of each other and sides for alike. Judged after each \
         round from the fifth on. --randseed {randseed}\n"
    );
    println!(
        "| disk | rounds recorded | comparisons | ever differ by the primary metric | ever differ \
         by any metric |"
    );
    println!("|---|---|---|---|---|");
    let mut is_bounded = true;
    let (mut primary, mut any, mut all) = (0, 0, 0);
    for disk in disks {
        let found = replay::never_stopping(disk, drawing, comparisons)?;
        let by = |of: fn(&replay::Seen) -> bool| found.iter().filter(|one| of(one)).count() as u32;
        let [own_primary, own_any] = [by(|seen| seen.primary), by(|seen| seen.any)];
        let shares = [own_primary, own_any].map(|wrong| Share::of(wrong, comparisons));
        let recorded = disk.rounds.len();
        println!("| {} | {recorded} | {comparisons} | {} | {} |", disk.name, shares[0], shares[1]);
        is_bounded &= shares[0].is_within(BOUND) && shares[1].is_within(BOUND_OF_ANY);
        (primary, any, all) = (primary + own_primary, any + own_any, all + comparisons);
    }
    let shares = [primary, any].map(|wrong| Share::of(wrong, all));
    println!("| all | | {all} | {} | {} |", shares[0], shares[1]);
    is_bounded &= shares[0].is_within(BOUND) && shares[1].is_within(BOUND_OF_ANY);
    println!("\nIntervals are 95 %, by Clopper and Pearson.");
    Ok(verdict(is_bounded))
}
