//! The flags of a job: one for each option of a job file, from the same table.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use weir_load::Job;
use weir_load::options::{JobOption, OPTIONS, Section};

/// The options that were given, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct JobFlags(BTreeMap<&'static str, String>);

impl JobFlags {
    /// Whether none was given.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value of one, as given.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Those of `names` that a command was given.
    pub(crate) fn given(matches: &ArgMatches, names: impl Fn(&str) -> bool) -> JobFlags {
        let options = OPTIONS.iter().filter(|option| names(option.name));
        let given = options.filter_map(|option| {
            Some((option.name, matches.get_one::<String>(option.name)?.clone()))
        });
        JobFlags(given.collect())
    }

    /// Puts others in the place of those that they name too.
    pub(crate) fn replace(&mut self, others: JobFlags) {
        self.0.extend(others.0);
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// The first that is none of `allowed`.
    pub(crate) fn other_than(&self, allowed: &[&str]) -> Option<&'static str> {
        self.0.keys().find(|name| !allowed.contains(name)).copied()
    }

    /// Changes a job as they say; what is to be said about that.
    pub(super) fn apply(&self, job: &mut Job) -> Result<Vec<String>, String> {
        let mut section = self.section(job.clone())?;
        let notes = std::mem::take(&mut section.notes);
        *job = section.whole()?;
        Ok(notes)
    }

    /// What they say of a job, each by itself.
    fn section(&self, job: Job) -> Result<Section, String> {
        let mut section = Section::of(job);
        for (option, value) in given(self) {
            option.read(&mut section, value)?;
        }
        Ok(section)
    }

    /// The times and the seed among them.
    pub(super) fn window(&self) -> Window {
        // Each was held against its bounds when it was read; whether they go together is a question
        // of the job that they change.
        let job = self.section(Job::default()).unwrap_or_default().job;
        Window {
            runtime: job.runtime_ns.map(Duration::from_nanos),
            ramp: self.has("ramp_time").then(|| Duration::from_nanos(job.ramp_ns)),
            seed: self.has("randseed").then_some(job.seed),
        }
    }
}

/// How long a run is, and its seed, as far as these are given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) runtime: Option<Duration>,
    pub(crate) ramp: Option<Duration>,
    pub(crate) seed: Option<u64>,
}

/// In the order of the table, which is that in which they count.
fn given(flags: &JobFlags) -> impl Iterator<Item = (&'static JobOption, &str)> {
    OPTIONS.iter().filter_map(|option| Some((option, flags.0.get(option.name)?.as_str())))
}

impl FromArgMatches for JobFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<JobFlags, clap::Error> {
        Ok(JobFlags::given(matches, |_| true))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = JobFlags::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for JobFlags {
    fn augment_args(command: Command) -> Command {
        command.args(OPTIONS.iter().map(argument))
    }

    fn augment_args_for_update(command: Command) -> Command {
        JobFlags::augment_args(command)
    }
}

fn argument(option: &'static JobOption) -> Arg {
    let read = |text: &str| -> Result<String, String> {
        option.read(&mut Section::default(), text).map(|()| String::from(text))
    };
    let argument = Arg::new(option.name)
        .long(option.flag)
        .value_name(option.value)
        .help(option.doc)
        .value_parser(read);
    // As fio spells it.
    let argument = match option.name != option.flag {
        true => argument.alias(option.name),
        false => argument,
    };
    match option.bare {
        true => {
            let missing = option.left_out();
            argument.num_args(0..=1).require_equals(true).default_missing_value(missing)
        }
        false => argument,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(words: &[&str]) -> Result<JobFlags, clap::Error> {
        let command = JobFlags::augment_args(Command::new("bench").no_binary_name(true));
        JobFlags::from_arg_matches(&command.try_get_matches_from(words)?)
    }

    #[test]
    fn times_are_known_where_other_flags_need_the_job_that_they_change() {
        let window = flags(&["--zonesize=8k", "--runtime=7", "--randseed=3"]).unwrap().window();
        assert_eq!((window.runtime, window.seed), (Some(Duration::from_secs(7)), Some(3)));
    }

    #[test]
    fn every_option_of_a_job_file_is_a_flag_in_either_spelling() {
        for option in OPTIONS {
            for name in [option.name, option.flag] {
                let why = flags(&[&format!("--{name}=@")]).map(|_| ()).map_err(|e| e.to_string());
                // Names are free text.
                let is_log = option.name.starts_with("write_") && option.name.ends_with("log");
                let free = is_log || ["filename", "read_iolog"].contains(&option.name);
                assert_eq!(why.is_ok(), free, "--{name}: {why:?}");
                assert!(why.is_ok() || !why.unwrap_err().contains("unexpected"), "--{name}");
            }
        }
    }

    #[test]
    fn flags_change_what_they_name_and_nothing_else() {
        let flags = flags(&["--bs", "64k", "--time-based", "--rate_iops=7"]).expect("flags");
        let mut job = Job { depth: 9, ..Job::default() };
        flags.apply(&mut job).expect("they were read before");
        assert_eq!((job.depth, job.time_based, job.rate), (9, true, [7; 3]));
        assert_eq!(flags.other_than(&["bs", "time_based"]), Some("rate_iops"));
    }
}
