//! The command line of a bench: each bench declares its parameters once, and the help, the defaults
//! and the refusals come from there.

use clap::builder::PossibleValuesParser;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, Error, value_parser};

/// A bench, and what it may be told.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// Behind `cargo bench -p`: `weir-cli --bench nbd`.
    pub bench: &'static str,
    /// What it measures, in a line.
    pub about: &'static str,
    /// Its flags, in the order of the help.
    pub parameters: &'static [Parameter],
}

/// One flag of a bench.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    flag: &'static str,
    takes: Takes,
    about: &'static str,
}

/// The word behind a flag.
#[derive(Clone, Copy, Debug)]
enum Takes {
    Nothing,
    /// Any, named so in the help.
    Word(&'static str),
    /// One of these.
    OneOf(&'static [&'static str]),
    /// A number, and what it is in a full and in a small run if it is not given.
    Number {
        full: u32,
        small: u32,
    },
}

impl Parameter {
    /// A flag that is there or not.
    #[must_use]
    pub const fn switch(flag: &'static str, about: &'static str) -> Parameter {
        Parameter { flag, takes: Takes::Nothing, about }
    }

    /// A flag with a word, which the help calls `name`.
    #[must_use]
    pub const fn word(flag: &'static str, name: &'static str, about: &'static str) -> Parameter {
        Parameter { flag, takes: Takes::Word(name), about }
    }

    /// A flag with one of some words.
    #[must_use]
    pub const fn one_of(
        flag: &'static str,
        words: &'static [&'static str],
        about: &'static str,
    ) -> Parameter {
        Parameter { flag, takes: Takes::OneOf(words), about }
    }

    /// A flag with a number, and its defaults in a full and in a small run.
    #[must_use]
    pub const fn number(
        flag: &'static str,
        (full, small): (u32, u32),
        about: &'static str,
    ) -> Parameter {
        Parameter { flag, takes: Takes::Number { full, small }, about }
    }

    /// The word of the flag without its dashes.
    fn name(&self) -> &'static str {
        self.flag.trim_start_matches('-')
    }

    fn argument(&self) -> Arg {
        let argument = Arg::new(self.flag).long(self.name()).help(self.about);
        match self.takes {
            Takes::Nothing => argument.action(ArgAction::SetTrue),
            Takes::Word(name) => argument.value_name(name),
            Takes::OneOf(words) => {
                argument.value_name("WORD").value_parser(PossibleValuesParser::new(words))
            }
            Takes::Number { full, small } => {
                let about = match full == small {
                    true => format!("{} [{full}]", self.about),
                    false => format!("{} [{full}, small {small}]", self.about),
                };
                argument.value_name("N").value_parser(value_parser!(u32)).help(about)
            }
        }
    }
}

/// The arguments of a bench, and whether it is to run small.
#[derive(Clone, Debug)]
pub struct Arguments {
    usage: Usage,
    given: ArgMatches,
    small: bool,
}

impl Arguments {
    /// Those of this process. `WEIR_BENCH=small` asks for a run that only shows that it still runs.
    ///
    /// With `--help` the process ends here with 0, and with a word that is refused with 2.
    #[must_use]
    pub fn of_process(usage: &Usage) -> Arguments {
        let small = std::env::var("WEIR_BENCH").is_ok_and(|size| size == "small");
        Arguments::parse(usage, std::env::args(), small).unwrap_or_else(|error| error.exit())
    }

    fn parse(
        usage: &Usage,
        words: impl IntoIterator<Item = String>,
        small: bool,
    ) -> Result<Arguments, Error> {
        let given = usage.command().try_get_matches_from(words)?;
        Ok(Arguments { usage: *usage, given, small })
    }

    /// The word behind the flag `name`.
    ///
    /// # Panics
    /// When the bench does not declare the flag with a word.
    #[must_use]
    pub fn word(&self, name: &str) -> Option<&str> {
        self.given.get_one::<String>(name).map(String::as_str)
    }

    /// The number behind the flag `name`, or its default.
    ///
    /// # Panics
    /// When the bench does not declare the flag with a number.
    #[must_use]
    pub fn number(&self, name: &str) -> u32 {
        let declared = self.usage.parameters.iter().find(|parameter| parameter.flag == name);
        let Some(Takes::Number { full, small }) = declared.map(|parameter| parameter.takes) else {
            panic!("{} declares no number {name}", self.usage.bench);
        };
        let given = self.given.get_one(name).copied();
        given.unwrap_or(if self.small { small } else { full })
    }

    /// Whether the flag `name` is there.
    ///
    /// # Panics
    /// When the bench does not declare the flag.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.given.value_source(name) == Some(ValueSource::CommandLine)
    }

    /// Ends the process with 2 for arguments that do not go together, and why.
    pub fn refuse(&self, why: &str) -> ! {
        self.usage.command().error(ErrorKind::ArgumentConflict, why).exit()
    }
}

impl Usage {
    fn command(&self) -> Command {
        let Usage { bench, about, parameters } = *self;
        // cargo's own, before or behind ours.
        let cargo = Arg::new("bench").long("bench").action(ArgAction::SetTrue).hide(true);
        Command::new(bench)
            .override_usage(format!("cargo bench -p {bench} [-- OPTIONS]"))
            .about(about)
            .after_help("WEIR_BENCH=small: a run that only shows that it still runs")
            .arg(cargo)
            .args(parameters.iter().map(Parameter::argument))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USAGE: Usage = Usage {
        bench: "weir-bench --bench pool",
        about: "What a pool costs",
        parameters: &[
            Parameter::number("--rounds", (7, 1), "rounds"),
            Parameter::word("--before", "PROGRAM", "another version"),
            Parameter::one_of("--on", &["file", "loop"], "only there"),
            Parameter::switch("--quick", "in a hurry"),
        ],
    };

    fn told(words: &[&str]) -> Result<Arguments, Error> {
        let words = ["pool"].iter().chain(words).map(|word| (*word).to_owned());
        Arguments::parse(&USAGE, words, true)
    }

    #[test]
    fn every_bench_command_holds_together() {
        USAGE.command().debug_assert();
    }

    #[test]
    fn arguments_are_found_behind_their_flags_and_numbers_have_defaults() {
        // As cargo calls a bench.
        let arguments = told(&["--rounds", "3", "--before=a b", "--quick", "--bench"]).unwrap();
        assert_eq!(arguments.number("--rounds"), 3);
        assert_eq!((arguments.word("--before"), arguments.word("--on")), (Some("a b"), None));
        assert!(arguments.has("--quick") && arguments.has("--rounds") && !arguments.has("--on"));
        let small = told(&["--bench"]).unwrap();
        assert_eq!((small.number("--rounds"), small.has("--quick")), (1, false));
        let full = Arguments { small: false, ..told(&["--on", "loop"]).unwrap() };
        assert_eq!((full.number("--rounds"), full.word("--on")), (7, Some("loop")));
    }

    #[test]
    fn what_is_not_declared_is_refused_and_named() {
        for (words, named) in [
            (&["--round", "3"][..], "'--round'"),
            (&["7"], "'7'"),
            (&["--rounds", "x"], "'x' for '--rounds <N>'"),
            (&["--rounds=4294967296"], "4294967296 is not in 0..=4294967295"),
            (&["--quick", "--rounds"], "'--rounds <N>'"),
            (&["--on", "disk"], "[possible values: file, loop]"),
            (&["--quick=yes"], "'--quick'"),
            (&["--quick", "--quick"], "'--quick' cannot be used multiple times"),
        ] {
            let error = told(words).unwrap_err();
            assert!(error.to_string().contains(named), "{words:?}: {error}");
            assert_eq!(error.exit_code(), 2);
        }
    }

    #[test]
    fn the_help_tells_every_flag_with_its_default() {
        for words in [&["--help", "--bench"][..], &["--quick", "-h"]] {
            let help = told(words).unwrap_err();
            assert_eq!((help.kind(), help.exit_code()), (ErrorKind::DisplayHelp, 0));
            let text = help.to_string();
            for part in [
                "What a pool costs",
                "cargo bench -p weir-bench --bench pool [-- OPTIONS]",
                "rounds [7, small 1]",
                "--before <PROGRAM>",
                "[possible values: file, loop]",
                "--quick",
                "WEIR_BENCH=small",
            ] {
                assert!(text.contains(part), "{part}: {text}");
            }
        }
    }
}
