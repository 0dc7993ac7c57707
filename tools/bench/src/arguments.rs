//! The command line of a bench: each bench declares its parameters once, and the help, the defaults
//! and the refusals come from there.

use std::io::Write;

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

    fn shown(&self) -> String {
        match self.takes {
            Takes::Nothing => self.flag.to_owned(),
            Takes::Word(name) => format!("{} {name}", self.flag),
            Takes::OneOf(words) => format!("{} {}", self.flag, words.join("|")),
            Takes::Number { .. } => format!("{} N", self.flag),
        }
    }

    /// What is wrong with a word behind it.
    fn refuses(&self, word: &str) -> Option<String> {
        match self.takes {
            Takes::OneOf(words) if !words.contains(&word) => {
                Some(format!("{} {word} is none of {}", self.flag, words.join(", ")))
            }
            Takes::Number { .. } if word.parse::<u32>().is_err() => {
                Some(format!("{} {word} is no number of 0..={}", self.flag, u32::MAX))
            }
            _ => None,
        }
    }
}

/// The arguments of a bench, and whether it is to run small.
#[derive(Clone, Debug)]
pub struct Arguments {
    usage: Usage,
    given: Vec<(&'static str, String)>,
    small: bool,
}

/// What a command line comes to.
#[derive(Debug)]
enum Told {
    Run(Arguments),
    /// The help is asked for.
    Help(String),
    /// It is refused.
    Refused(String),
}

impl Arguments {
    /// Those of this process. `WEIR_BENCH=small` asks for a run that only shows that it still runs.
    ///
    /// With `--help` the process ends here with 0, and with a word that is refused with 2.
    #[must_use]
    pub fn of_process(usage: &Usage) -> Arguments {
        let small = std::env::var("WEIR_BENCH").is_ok_and(|size| size == "small");
        match Arguments::parse(usage, std::env::args().skip(1), small) {
            Told::Run(arguments) => arguments,
            Told::Help(text) => {
                // Where nothing reads it there is nothing to tell.
                let _ = std::io::stdout().write_all(text.as_bytes());
                std::process::exit(0);
            }
            Told::Refused(why) => end(usage, &why),
        }
    }

    fn parse(usage: &Usage, words: impl IntoIterator<Item = String>, small: bool) -> Told {
        let mut given: Vec<(&'static str, String)> = Vec::new();
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--help" | "-h" => return Told::Help(usage.help()),
                // cargo's own, before or behind ours.
                "--bench" => continue,
                _ => {}
            }
            let (name, joined) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (&*word, None),
            };
            let found = usage.parameters.iter().find(|parameter| parameter.flag == name);
            let Some(parameter) = found else {
                return Told::Refused(format!("{word} is none of {}", usage.flags()));
            };
            let value = match (parameter.takes, joined) {
                (Takes::Nothing, Some(_)) => {
                    return Told::Refused(format!("{word}: {name} takes no word"));
                }
                (Takes::Nothing, None) => String::new(),
                (_, joined) => match joined.or_else(|| words.next()) {
                    Some(value) => value,
                    None => return Told::Refused(format!("{name}: {} is cut", parameter.shown())),
                },
            };
            if let Some(why) = parameter.refuses(&value) {
                return Told::Refused(why);
            }
            if given.iter().any(|(flag, _)| *flag == parameter.flag) {
                return Told::Refused(format!("{name} is given twice"));
            }
            given.push((parameter.flag, value));
        }
        Told::Run(Arguments { usage: *usage, given, small })
    }

    /// The word behind the flag `name`.
    ///
    /// # Panics
    /// When the bench does not declare the flag.
    #[must_use]
    pub fn word(&self, name: &str) -> Option<&str> {
        let _declared = self.usage.parameter(name);
        self.given.iter().find(|(flag, _)| *flag == name).map(|(_, word)| word.as_str())
    }

    /// The number behind the flag `name`, or its default.
    ///
    /// # Panics
    /// When the bench does not declare the flag with a number.
    #[must_use]
    pub fn number(&self, name: &str) -> u32 {
        let Takes::Number { full, small } = self.usage.parameter(name).takes else {
            panic!("{name} is declared without a number");
        };
        let default = if self.small { small } else { full };
        self.word(name).map_or(default, |word| word.parse().expect("it was looked at"))
    }

    /// Whether the flag `name` is there.
    ///
    /// # Panics
    /// When the bench does not declare the flag.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.word(name).is_some()
    }

    /// Ends the process with 2 for arguments that do not go together, and why.
    pub fn refuse(&self, why: &str) -> ! {
        end(&self.usage, why)
    }
}

fn end(usage: &Usage, why: &str) -> ! {
    // Where nothing reads it the exit status tells.
    let _ = writeln!(std::io::stderr(), "{}: {why}", usage.bench);
    // As for every program of this workspace: wrong usage.
    std::process::exit(2)
}

impl Usage {
    fn parameter(&self, name: &str) -> &'static Parameter {
        let found = self.parameters.iter().find(|parameter| parameter.flag == name);
        found.unwrap_or_else(|| panic!("{} does not declare {name}", self.bench))
    }

    fn flags(&self) -> String {
        let flags = self.parameters.iter().map(|parameter| parameter.flag);
        flags.chain(["--help"]).collect::<Vec<_>>().join(", ")
    }

    fn help(&self) -> String {
        let Usage { bench, about, parameters } = self;
        let mut text = format!("{about}\n\ncargo bench -p {bench} [-- OPTIONS]\n\n");
        let shown: Vec<_> = parameters.iter().map(Parameter::shown).collect();
        let width = shown.iter().map(String::len).max().unwrap_or_default().max("--help".len());
        for (parameter, shown) in parameters.iter().zip(&shown) {
            let default = match parameter.takes {
                Takes::Number { full, small } if full == small => format!(" [{full}]"),
                Takes::Number { full, small } => format!(" [{full}, small {small}]"),
                _ => String::new(),
            };
            text.push_str(&format!("  {shown:width$}  {}{default}\n", parameter.about));
        }
        text.push_str(&format!("  {:width$}  tell these options\n", "--help"));
        text.push_str("\nWEIR_BENCH=small: a run that only shows that it still runs\n");
        text
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

    fn told(words: &[&str]) -> Told {
        Arguments::parse(&USAGE, words.iter().map(|word| (*word).to_owned()), true)
    }

    #[track_caller]
    fn run(words: &[&str]) -> Arguments {
        match told(words) {
            Told::Run(arguments) => arguments,
            told => panic!("{told:?}"),
        }
    }

    #[test]
    fn arguments_are_found_behind_their_flags_and_numbers_have_defaults() {
        // As cargo calls a bench.
        let arguments = run(&["--rounds", "3", "--before=a b", "--quick", "--bench"]);
        assert_eq!(arguments.number("--rounds"), 3);
        assert_eq!((arguments.word("--before"), arguments.word("--on")), (Some("a b"), None));
        assert!(arguments.has("--quick") && !arguments.has("--on"));
        assert_eq!(run(&["--bench"]).number("--rounds"), 1);
        let full = Arguments { small: false, ..run(&["--on", "loop"]) };
        assert_eq!((full.number("--rounds"), full.word("--on")), (7, Some("loop")));
    }

    #[test]
    fn what_is_not_declared_is_refused_and_named() {
        for (words, named) in [
            (&["--round", "3"][..], "--round is none of --rounds, --before, --on, --quick, --help"),
            (&["7"], "7 is none of --rounds"),
            (&["--rounds", "x"], "--rounds x is no number of 0..=4294967295"),
            (&["--rounds=-1"], "--rounds -1 is no number"),
            (&["--quick", "--rounds"], "--rounds: --rounds N is cut"),
            (&["--on", "disk"], "--on disk is none of file, loop"),
            (&["--quick=yes"], "--quick=yes: --quick takes no word"),
            (&["--quick", "--quick"], "--quick is given twice"),
        ] {
            let Told::Refused(why) = told(words) else { panic!("{words:?} is taken") };
            assert!(why.starts_with(named), "{why}");
        }
    }

    #[test]
    fn the_help_tells_every_flag_with_its_default() {
        for words in [&["--help", "--bench"][..], &["--quick", "-h"]] {
            let Told::Help(text) = told(words) else { panic!("no help for {words:?}") };
            let expected = "What a pool costs\n\n\
                cargo bench -p weir-bench --bench pool [-- OPTIONS]\n\n  \
                --rounds N        rounds [7, small 1]\n  \
                --before PROGRAM  another version\n  \
                --on file|loop    only there\n  \
                --quick           in a hurry\n  \
                --help            tell these options\n\n\
                WEIR_BENCH=small: a run that only shows that it still runs\n";
            assert_eq!(text, expected);
        }
    }
}
