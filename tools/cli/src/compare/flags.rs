//! Flags of `weir compare` that are no plain values: the variants, the job, the sweep.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use weir_load::{jobfile, quantity};

use crate::bench::Bench;

/// Names that variants may have.
const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

/// `--a OPTS --b OPTS ...`.
#[derive(Clone, Debug)]
pub(super) struct VariantFlags(Vec<(&'static str, String)>);

impl VariantFlags {
    /// Name and options of each.
    pub(super) fn given(&self) -> Vec<(&'static str, &str)> {
        self.0.iter().map(|(name, options)| (*name, options.as_str())).collect()
    }

    /// Whether any of them, or the default ones, are options of the target of all.
    pub(super) fn need_a_target(&self) -> bool {
        let is_target = |options: &str| weir_bench::compare::variant::is_target(options);
        self.0.is_empty() || self.0.iter().any(|(_, options)| !is_target(options))
    }

    /// Whether none of them is a target of its own.
    pub(super) fn are_options(&self) -> bool {
        self.0.iter().all(|(_, options)| !weir_bench::compare::variant::is_target(options))
    }
}

impl Args for VariantFlags {
    fn augment_args(command: Command) -> Command {
        NAMES.iter().fold(command, |command, name| {
            let flag = Arg::new(*name).long(*name).value_name("OPTS");
            let hidden = !["a", "b", "c"].contains(name);
            let help = format!("Variant {name}: options of the target, or a target.");
            command.arg(flag.help(help).hide(hidden))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        VariantFlags::augment_args(command)
    }
}

impl FromArgMatches for VariantFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<VariantFlags, clap::Error> {
        let given = |name: &&'static str| Some((*name, matches.get_one::<String>(name)?.clone()));
        Ok(VariantFlags(NAMES.iter().filter_map(given).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = VariantFlags::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Flags of `weir bench` that compare has itself, or says itself to every run, or that run nothing
/// to compare: a file of commits is of one run.
const OWN: &[&str] =
    &["target", "runtime", "ramp_time", "randseed", "json", "quiet", "save", "check", "commits"];

/// The job where neither that nor a target is given.
const JOB: &str = "oltp";
/// The flags of that preset that can be varied.
const OLTP: [&str; 5] = ["users", "threads", "update", "hot", "redo"];

/// The job: whatever `weir bench` takes, as given.
#[derive(Clone, Debug)]
pub(super) struct JobFlags(Vec<Given>);

/// One argument of the job.
#[derive(Clone, Debug)]
struct Given {
    /// The flag, `--bs`; none for the name of a job.
    flag: Option<String>,
    /// Its values; none for one that takes none.
    values: Vec<String>,
}

impl Given {
    /// Whether it is for the default job and for no other.
    fn is_of_oltp(&self) -> bool {
        self.flag.as_ref().is_some_and(|flag| OLTP.contains(&flag.trim_start_matches('-')))
    }
}

/// A target as a job names it: with its kind, or a path.
fn target_of(named: &str) -> String {
    if named.split_once(':').is_some_and(|(kind, _)| KINDS.contains(&kind)) {
        return String::from(named);
    }
    let escaped = |c: char| matches!(c, ',' | '+' | '\\').then_some('\\').into_iter().chain([c]);
    format!("file:{}", named.chars().flat_map(escaped).collect::<String>())
}

/// The kinds of targets that a job may name.
const KINDS: [&str; 5] = ["null", "ram", "file", "nbd", "nbd+unix"];

/// Takes a time as flags of a job do, within `bounds`.
pub(super) fn time(
    bounds: RangeInclusive<Duration>,
) -> impl Fn(&str) -> Result<Duration, String> + Clone {
    move |text| {
        const SECOND: u64 = 1_000_000_000;
        let time = Duration::from_nanos(quantity::time(text, SECOND)?);
        if bounds.contains(&time) {
            return Ok(time);
        }
        Err(format!("outside {:?}..={:?}", bounds.start(), bounds.end()))
    }
}

impl JobFlags {
    /// These, or the default job where there is none and what is varied is nothing of another job.
    pub(super) fn or_default(&self, sweep: Option<&Sweep>) -> JobFlags {
        let suits = |sweep: &Sweep| OLTP.contains(&sweep.name.as_str()) || !sweep.is_of_job();
        if !self.0.iter().all(Given::is_of_oltp) || !sweep.is_none_or(suits) {
            return self.clone();
        }
        let job = Given { flag: None, values: vec![String::from(JOB)] };
        JobFlags([job].into_iter().chain(self.0.iter().cloned()).collect())
    }

    /// The target that the job names: the only file of its jobs; none where it names none.
    ///
    /// # Errors
    /// Jobs of several files, which cannot all be what is compared.
    pub(super) fn target(&self) -> Result<Option<String>, String> {
        let flag = self.0.iter().rfind(|given| given.flag.as_deref() == Some("--filename"));
        if let Some(named) = flag.and_then(|given| given.values.last()) {
            return Ok(Some(target_of(named)));
        }
        let Some(Given { values, .. }) = self.0.iter().find(|given| given.flag.is_none()) else {
            return Ok(None);
        };
        let file = values.first().map_or("", String::as_str);
        // Faults of a file are left to the runs; a preset is none.
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let jobs = jobfile::read(file, &text).map(|read| read.jobs).unwrap_or_default();
        let named: BTreeSet<String> = jobs.into_iter().filter_map(|job| job.target).collect();
        if named.len() > 1 {
            let all: Vec<String> = named.into_iter().collect();
            return Err(format!(
                "{file}: its jobs have several files ({}): --target says what is compared",
                all.join(", ")
            ));
        }
        Ok(named.first().map(|named| target_of(named)))
    }

    /// Takes out where the redo is: a variant may have it elsewhere.
    pub(super) fn take_redo(&mut self) -> Vec<String> {
        let is_redo = |given: &Given| given.flag.as_deref() == Some("--redo");
        let redo = self.0.iter().filter(|given| is_redo(given));
        let redo = redo.flat_map(|given| given.values.clone()).collect();
        self.0.retain(|given| !is_redo(given));
        redo
    }

    /// Whether it is the preset that runs on groups of targets.
    pub(super) fn is_oltp(&self) -> bool {
        self.0.iter().any(|given| given.flag.is_none() && given.values == [JOB])
    }

    /// As words of a command line.
    pub(super) fn words(&self) -> Vec<String> {
        let words = self.0.iter().flat_map(|Given { flag, values }| match flag {
            Some(flag) if values.is_empty() => vec![flag.clone()],
            // In one word, for a flag that need not have a value takes it in no other way.
            Some(flag) => values.iter().map(|value| format!("{flag}={value}")).collect(),
            None => values.clone(),
        });
        words.collect()
    }
}

/// The arguments of `weir bench` that say what is run.
fn job_arguments() -> Vec<Arg> {
    let bench = Bench::augment_args(Command::new("bench"));
    let of_job = |arg: &&Arg| !OWN.contains(&arg.get_id().as_str());
    // Whether the job is complete is for each run to say.
    bench.get_arguments().filter(of_job).map(|arg| arg.clone().required(false)).collect()
}

impl Args for JobFlags {
    fn augment_args(command: Command) -> Command {
        command.next_help_heading("The job, as for weir bench").args(job_arguments())
    }

    fn augment_args_for_update(command: Command) -> Command {
        JobFlags::augment_args(command)
    }
}

impl FromArgMatches for JobFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<JobFlags, clap::Error> {
        let given = job_arguments().into_iter().filter_map(|arg| {
            let id = arg.get_id().as_str();
            let source = matches.value_source(id)?;
            if source == clap::parser::ValueSource::DefaultValue {
                return None;
            }
            let takes = arg.get_action().takes_values();
            let values = matches.get_raw(id).into_iter().flatten().filter(|_| takes);
            let values = values.map(|value| value.to_string_lossy().into_owned()).collect();
            let flag = arg.get_long().map(|long| format!("--{long}"));
            Some(Given { flag, values })
        });
        Ok(JobFlags(given.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = JobFlags::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The flag or option that is varied: a flag of the job or an option of the target, and its values.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sweep {
    /// Its name.
    pub(super) name: String,
    /// Its values, in the order given.
    pub(super) values: Vec<String>,
}

impl FromStr for Sweep {
    type Err = String;

    fn from_str(text: &str) -> Result<Sweep, String> {
        let shape = || format!("{text:?} is not NAME=V1,V2,...");
        let (name, values) = text.split_once('=').ok_or_else(shape)?;
        let values: Vec<String> = values.split(',').map(String::from).collect();
        if name.is_empty() || values.iter().any(String::is_empty) {
            return Err(shape());
        }
        if let Some(twice) = values.iter().enumerate().find(|(n, v)| values[..*n].contains(v)) {
            return Err(format!("{name}={} stands there twice", twice.1));
        }
        Ok(Sweep { name: String::from(name), values })
    }
}

/// The flag of the job with this name, in either spelling.
fn flag_named(name: &str) -> Option<Arg> {
    let named = |arg: &Arg| arg.get_long() == Some(name) || arg.get_id() == name;
    job_arguments().into_iter().find(named).filter(|arg| arg.get_long().is_some())
}

impl Sweep {
    fn is_of_job(&self) -> bool {
        flag_named(&self.name).is_some()
    }

    /// The job with this value, if it is the job that is varied.
    pub(super) fn on_job(&self, job: &JobFlags, value: &str) -> Option<Result<JobFlags, String>> {
        // Threads are what the processes of a job are here; oltp has threads of its own.
        let is_clones = self.name == "threads" && !job.is_oltp();
        let name = if is_clones { "numjobs" } else { self.name.as_str() };
        let arg = flag_named(name)?;
        let flag = format!("--{}", arg.get_long().unwrap_or(name));
        if !arg.get_action().takes_values() {
            return Some(Err(format!("--sweep {name}: the flag takes no value")));
        }
        let checked = Command::new("sweep").no_binary_name(true).arg(arg.clone());
        if let Err(error) = checked.try_get_matches_from([format!("{flag}={value}")]) {
            let said = error.to_string();
            let said = said.lines().next().unwrap_or_default().trim_start_matches("error: ");
            return Some(Err(format!("--sweep {name}: {said}")));
        }
        let mut varied = job.clone();
        varied.0.retain(|given| given.flag.as_ref() != Some(&flag));
        varied.0.push(Given { flag: Some(flag), values: vec![String::from(value)] });
        Some(Ok(varied))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(words: &[&str]) -> JobFlags {
        let command = JobFlags::augment_args(Command::new("compare").no_binary_name(true));
        let matches = command.try_get_matches_from(words).expect("flags of bench");
        JobFlags::from_arg_matches(&matches).expect("flags")
    }

    #[test]
    fn flags_of_bench_are_passed_on_as_given_and_defaults_are_not() {
        assert_eq!(job(&[]).words(), [""; 0]);
        let mut passed = job(&["--iodepth", "8", "--rw=randrw"]).words();
        passed.sort();
        assert_eq!(passed, ["--iodepth=8", "--rw=randrw"]);
        let command = JobFlags::augment_args(Command::new("compare").no_binary_name(true));
        assert!(command.clone().try_get_matches_from(["--iodepth", "0"]).is_err());
        assert!(command.try_get_matches_from(["--frob"]).is_err());
    }

    #[test]
    fn what_runs_nothing_to_compare_is_no_flag_of_it() {
        let command = JobFlags::augment_args(Command::new("compare").no_binary_name(true));
        for words in [&["--commits", "file"][..], &["--commits", "file", "--check"]] {
            let refused = command.clone().try_get_matches_from(words).expect_err("no such flag");
            assert!(refused.to_string().contains("unexpected argument '--commits'"), "{refused}");
        }
    }

    #[test]
    fn the_default_job_is_oltp_and_its_threads_are_its_own() {
        let sweep: Sweep = "threads=1,2".parse().expect("a sweep");
        let swept = |job: &JobFlags| sweep.on_job(job, "2").expect("a flag").expect("in range");
        let words = |job: &JobFlags| swept(job).words();
        let default = job(&[]).or_default(Some(&sweep));
        assert_eq!(words(&default), ["oltp", "--threads=2"]);
        assert_eq!(words(&job(&["oltp"])), ["oltp", "--threads=2"]);
        assert_eq!(words(&job(&["vdbench"])), ["vdbench", "--numjobs=2"]);
        assert_eq!(job(&[]).or_default(None).words(), ["oltp"]);
        let given = job(&["--iodepth", "8"]).or_default(None).words();
        assert_eq!(given, ["--iodepth=8"]);
        let option: Sweep = "scheduler=none,bfq".parse().expect("a sweep");
        assert_eq!(job(&[]).or_default(Some(&option)).words(), ["oltp"]);
        let mut varied = job(&["--users", "20", "--hot=90/10"]).or_default(None).words();
        varied[1..].sort();
        assert_eq!(varied, ["oltp", "--hot=90/10", "--users=20"]);
        // oltp has no depth to vary.
        let depth: Sweep = "iodepth=1,2".parse().expect("a sweep");
        assert_eq!(job(&[]).or_default(Some(&depth)).words(), [""; 0]);
    }

    #[test]
    fn the_only_file_that_a_job_names_is_the_target() {
        let folder = std::env::temp_dir().join(format!("weir-flags-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let of = |text: &str| {
            let file = folder.join("c.fio");
            std::fs::write(&file, text).expect("a file");
            job(&[&file.display().to_string()]).target()
        };
        let some = |target: &str| Ok(Some(String::from(target)));
        assert_eq!(of("[a]\nfilename=/tmp/x+y\n[b]\nfilename=/tmp/x+y\n"), some("file:/tmp/x\\+y"));
        assert_eq!(of("[global]\nfilename=null:1GiB\n[a]\n[b]\n"), some("null:1GiB"));
        assert_eq!(of("[a]\nrw=read\n"), Ok(None));
        let several = of("[a]\nfilename=/tmp/x\n[b]\nfilename=/tmp/y\n").expect_err("two");
        assert!(several.contains("/tmp/x, /tmp/y") && several.contains("--target"), "{several}");
        assert_eq!(job(&["--filename", "/dev/sdb"]).target(), some("file:/dev/sdb"));
        assert_eq!(job(&["oltp"]).target(), Ok(None));
        std::fs::remove_dir_all(&folder).expect("the folder goes");
    }

    #[test]
    fn times_are_those_of_a_job() {
        let runtime = time(Duration::from_millis(1)..=Duration::from_secs(7200));
        assert_eq!(runtime("1m"), Ok(Duration::from_secs(60)));
        assert_eq!((runtime("2h"), runtime("5")), (runtime("7200s"), runtime("5s")));
        assert!(runtime("1d").is_err_and(|why| why.contains("outside 1ms..=7200s")));
        assert!(runtime("1x").is_err_and(|why| why.contains("ms, s, m, h or d")));
    }

    #[test]
    fn a_sweep_varies_a_flag_of_the_job_and_leaves_options_to_the_target() {
        let sweep: Sweep = "threads=1,2".parse().expect("a sweep");
        let swept = |value| sweep.on_job(&job(&["--numjobs", "7"]), value);
        let words = |value| swept(value).map(|job| job.map(|job| job.words()));
        assert_eq!(words("2"), Some(Ok(vec![String::from("--numjobs=2")])));
        let bad = words("0").expect("a flag").expect_err("no such number");
        assert!(bad.contains("numjobs") && bad.contains("1..="), "{bad}");
        let option: Sweep = "scheduler=none,bfq".parse().expect("a sweep");
        assert!(option.on_job(&job(&[]), "none").is_none());
        for text in ["iodepth", "iodepth=", "=1", "iodepth=1,,2"] {
            assert!(text.parse::<Sweep>().is_err_and(|e| e.contains("NAME=V1,V2")), "{text}");
        }
        assert!("iodepth=1,1".parse::<Sweep>().is_err_and(|e| e.contains("twice")));
    }
}
