//! The help of commands that run jobs on targets: flags under headings, and what stands behind the
//! words TARGET and JOB.

use clap::Command;
use weir::drivers::kinds;
use weir_load::presets::PRESETS;
use weir_sched::{Family, SCHEDULERS};

/// The headings of `weir compare` and the flags under them; flags of jobs have one of their own,
/// and what is left is about the comparison.
const HEADINGS: [(&str, &[&str]); 2] = [
    (
        "Targets and variants",
        &[
            "target",
            "device",
            "kernel_scheduler",
            "destroy",
            "prepare",
            "run",
            "figure",
            "setup",
            "between",
            "unit",
            "run_timeout",
            "sim",
            "set",
            "a",
            "b",
            "c",
            "d",
            "e",
            "f",
            "g",
            "h",
        ],
    ),
    ("Output", &["save", "report", "markdown", "csv", "json", "quiet"]),
];
const COMPARISON: &str = "The comparison";

/// The command with its flags under headings.
pub(crate) fn grouped(command: Command) -> Command {
    let of = |name: &str| {
        let found = HEADINGS.iter().find(|(_, flags)| flags.contains(&name));
        found.map_or(COMPARISON, |(heading, _)| heading)
    };
    let command = command.mut_args(|arg| match arg.get_help_heading() {
        Some(_) => arg,
        None => {
            let heading = of(arg.get_id().as_str());
            arg.help_heading(heading)
        }
    });
    with_words(command)
}

/// The command with lists of targets, presets and schedulers behind its flags.
pub(crate) fn with_words(command: Command) -> Command {
    let written = |kind: &&weir_queue::TargetKind| (kind.syntax.join(", "), kind.doc);
    let targets: Vec<(String, &str)> = kinds().iter().map(written).collect();
    let presets: Vec<(String, &str)> =
        PRESETS.iter().map(|(name, doc)| (String::from(*name), *doc)).collect();
    let schedulers = |family| {
        let names = SCHEDULERS.iter().filter(move |entry| entry.family == family);
        names.map(|entry| entry.name).collect::<Vec<_>>().join(", ")
    };
    command.after_help(format!(
        "A TARGET is what the job runs on, with options of it behind commas \
         (ram:1GiB,scheduler=bfq):\n{}\n\
         A JOB is a preset, a job file as fio has them, or flags:\n{}\n\
         Schedulers: {}; with queue_mode=sq {}. weir schedulers has their tunables.",
        list(&targets),
        list(&presets),
        schedulers(Family::Multi),
        schedulers(Family::Legacy),
    ))
}

/// Columns of a name and of a line.
const NAME: usize = 16;
const LINE: usize = 80;

/// Names and what they are: a line each, or the name above what goes on below it.
fn list(all: &[(String, &str)]) -> String {
    let line = |(name, doc): &(String, &str)| {
        let line = format!("  {name:<NAME$} {doc}\n");
        match name.chars().count() < NAME && line.chars().count() <= LINE {
            true => line,
            false => format!("  {name}\n  {:<NAME$} {doc}\n", ""),
        }
    };
    all.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Args;

    #[test]
    fn every_flag_stands_under_a_heading_and_the_words_are_told() {
        let command = crate::compare::Compare::augment_args(Command::new("compare"));
        let mut command = grouped(command);
        let left: Vec<_> =
            command.get_arguments().filter(|arg| arg.get_help_heading().is_none()).collect();
        assert!(left.is_empty(), "{left:?}");
        let help = command.render_long_help().to_string();
        // The last of them: examples in front have some of these words too.
        let at = |words: &str| help.rfind(words).unwrap_or_else(|| panic!("{words}: {help}"));
        assert!(at("Targets and variants:") < at("\n      --kernel-scheduler"));
        assert!(at("The comparison:") < at("\n      --rounds"));
        assert!(at("Output:") < at("\n      --report"));
        assert!(at("The job, as for weir bench:") < at("\n      --iodepth"));
        for words in ["ram:SIZE", "\n  oltp\n", "mq-deadline", "with queue_mode=sq"] {
            assert!(at(words) > at("\n      --iodepth"), "{words}");
        }
    }

    #[test]
    fn what_a_name_is_stands_beside_it_if_a_line_holds_both_and_else_below() {
        let name = |name: &str| String::from(name);
        let long = "x".repeat(LINE - NAME - 2);
        let all = [(name("a"), "short"), (name("b"), &long), (name(&"c".repeat(NAME)), "short")];
        let indent = " ".repeat(NAME + 3);
        let c = "c".repeat(NAME);
        let expected =
            format!("  a{}short\n  b\n{indent}{long}\n  {c}\n{indent}short\n", " ".repeat(NAME));
        assert_eq!(list(&all), expected);
    }
}
