//! Flags of `weir compare` that are no plain values: the variants, the job, the sweep.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use weir::drivers::kind_of;
use weir_bench::workload::experiment;
use weir_bench::workload::spec::{RunSpec, Workload};
use weir_load::{jobfile, quantity};
use weir_trace::labels::JOB;

use crate::bench::{self, Asked, Bench, OLTP, OltpFlags, Window};
use crate::{Failure, completion};

/// Names that variants may have.
pub(super) const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

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

    /// Whether any is given.
    pub(super) fn are_given(&self) -> bool {
        !self.0.is_empty()
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
            let help =
                format!("Variant {name}: options of the target, or a target; settings with --sim.");
            command.arg(flag.help(help).hide(hidden).add(completion::options()))
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
const OWN: &[&str] = &[
    "target",
    "destroy",
    "prepare",
    "runtime",
    "ramp_time",
    "randseed",
    "json",
    "quiet",
    "save",
    "check",
    "commits",
    "spec_on_stdin",
];

/// The flags of the preset `oltp` that can be varied.
const OF_OLTP: [&str; 5] = ["users", "threads", "update", "hot", "redo"];

/// The job: whatever `weir bench` takes, read as it reads it.
#[derive(Clone, Debug, Default)]
pub(super) struct JobFlags {
    /// A preset or a job file.
    job: Option<String>,
    flags: bench::JobFlags,
    oltp: OltpFlags,
}

/// A target as a job names it: with its kind, or a path.
fn target_of(named: &str) -> String {
    if named.split_once(':').is_some_and(|(kind, _)| kind_of(kind).is_some()) {
        return String::from(named);
    }
    let escaped = |c: char| matches!(c, ',' | '+' | '\\').then_some('\\').into_iter().chain([c]);
    format!("file:{}", named.chars().flat_map(escaped).collect::<String>())
}

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
        let suits = |sweep: &Sweep| OF_OLTP.contains(&sweep.name.as_str()) || !sweep.is_of_job();
        let is_open = self.job.is_none() && self.flags.is_empty();
        let default = (is_open && sweep.is_none_or(suits)).then(|| String::from(OLTP));
        JobFlags { job: default.or(self.job.clone()), ..self.clone() }
    }

    /// The target that the job names: the only file of its jobs; none where it names none.
    ///
    /// # Errors
    /// Jobs of several files, which cannot all be what is compared.
    pub(super) fn target(&self) -> Result<Option<String>, String> {
        if let Some(named) = self.flags.value("filename") {
            return Ok(Some(target_of(named)));
        }
        let Some(file) = self.job.as_deref() else { return Ok(None) };
        if file == experiment::NAME {
            return Ok(Some(String::from(experiment::DISK)));
        }
        // Faults of a file are told when the run is made of it; a preset is none.
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

    /// The first of these that is given, as it is typed.
    pub(super) fn first_given(&self) -> Option<String> {
        let flag = || self.flags.other_than(&[]).or_else(|| self.oltp.first());
        self.job.clone().or_else(|| flag().map(|name| format!("--{}", name.replace('_', "-"))))
    }

    /// Where the redo is; a variant may have it elsewhere.
    pub(super) fn redo(&self) -> &[String] {
        &self.oltp.redo
    }

    /// Whether it is the preset that runs on groups of targets.
    pub(super) fn is_oltp(&self) -> bool {
        self.job.as_deref() == Some(OLTP)
    }

    /// The run that it comes to.
    ///
    /// # Errors
    /// As of `weir bench`.
    pub(super) fn spec(&self, target: &[String], window: Window) -> Result<RunSpec, Failure> {
        let JobFlags { job, flags, oltp } = self;
        let spec = Asked { job: job.as_deref(), target, flags, oltp, window }.spec()?;
        if let Workload::Stages(stages) = &spec.workload
            && let Some(job) = stages
                .iter()
                .flat_map(|s| &s.jobs)
                .find(|j| !j.logs.are_none() || j.trace.is_some())
        {
            return Err(Failure::Bad(format!(
                "job {} writes logs, and each run of a comparison would overwrite them: weir bench \
                 runs it once",
                job.name
            )));
        }
        Ok(spec)
    }

    /// The same with this value of a flag; none where there is no such flag.
    pub(super) fn with(&self, name: &str, value: &str) -> Option<Result<JobFlags, String>> {
        // Threads are what the processes of a job are here; oltp has threads of its own.
        let is_clones = name == "threads" && !self.is_oltp();
        let name = if is_clones { "numjobs" } else { name };
        let arg = flag_named(name)?;
        let flag = format!("--{}", arg.get_long().unwrap_or(name));
        if !arg.get_action().takes_values() {
            return Some(Err(format!("{name}: the flag takes no value")));
        }
        let command = JobFlags::augment_args(Command::new("with").no_binary_name(true));
        let read = command.try_get_matches_from([format!("{flag}={value}")]);
        Some(match read.and_then(|matches| JobFlags::from_arg_matches(&matches)) {
            Ok(others) => {
                let mut varied = self.clone();
                varied.replace(others);
                Ok(varied)
            }
            Err(error) => {
                let said = error.to_string();
                let said = said.lines().next().unwrap_or_default().trim_start_matches("error: ");
                Err(format!("{name}: {said}"))
            }
        })
    }

    /// Whether it is this preset.
    pub(super) fn is(&self, preset: &str) -> bool {
        self.job.as_deref() == Some(preset)
    }

    /// Puts others in the place of those that they name too.
    fn replace(&mut self, others: JobFlags) {
        let JobFlags { job, flags, oltp } = others;
        self.job = job.or(self.job.take());
        self.flags.replace(flags);
        self.oltp.replace(oltp);
    }
}

/// The arguments of `weir bench` that say what is run.
fn job_arguments() -> Vec<Arg> {
    let bench = Bench::augment_args(Command::new("bench"));
    let of_job = |arg: &&Arg| !OWN.contains(&arg.get_id().as_str());
    // Whether the job is complete is for each run to say.
    let of_job = bench.get_arguments().filter(of_job);
    let heading = "The job, as for weir bench";
    of_job.map(|arg| arg.clone().required(false).help_heading(heading)).collect()
}

impl Args for JobFlags {
    fn augment_args(command: Command) -> Command {
        command.args(job_arguments())
    }

    fn augment_args_for_update(command: Command) -> Command {
        JobFlags::augment_args(command)
    }
}

impl FromArgMatches for JobFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<JobFlags, clap::Error> {
        Ok(JobFlags {
            job: matches.get_one::<String>("job").cloned(),
            flags: bench::JobFlags::given(matches, |name| !OWN.contains(&name)),
            oltp: OltpFlags::from_arg_matches(matches)?,
        })
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
        let with = job.with(&self.name, value)?;
        Some(with.map_err(|why| format!("--sweep {why}")))
    }
}

/// Options of a variant without those of its job, and these: flags with their values.
///
/// # Errors
/// One without a value, or that says where the job runs, which the variant does.
pub(super) fn own_job(options: &str) -> Result<(String, Vec<(String, String)>), String> {
    let (mut rest, mut job): (Vec<&str>, Vec<(String, String)>) = (Vec::new(), Vec::new());
    for part in parts(options) {
        let Some(flag) = part.strip_prefix(JOB) else {
            rest.push(part);
            continue;
        };
        let Some((name, value)) = flag.split_once('=').filter(|(_, value)| !value.is_empty())
        else {
            return Err(format!("{part:?} is not job.FLAG=VALUE"));
        };
        let name = name.replace('-', "_");
        if ["redo", "filename"].contains(&name.as_str()) {
            return Err(format!("{part}: the target of all, or of the variant, says where"));
        }
        if job.iter().any(|(known, _)| *known == name) {
            return Err(format!("job.{name} stands there twice"));
        }
        job.push((name, unescaped(value)));
    }
    Ok((rest.join(","), job))
}

/// What stands between commas that no backslash protects.
fn parts(options: &str) -> Vec<&str> {
    let mut is_protected = false;
    options
        .split(|c| {
            let parts_here = c == ',' && !is_protected;
            is_protected = c == '\\' && !is_protected;
            parts_here
        })
        .collect()
}

/// A value without the backslashes before its commas.
fn unescaped(value: &str) -> String {
    value.replace("\\,", ",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_bench::workload::spec::{Oltp, Workload};
    use weir_load::{Access, Direction, Job, Zone};

    fn job(words: &[&str]) -> JobFlags {
        let command = JobFlags::augment_args(Command::new("compare").no_binary_name(true));
        let matches = command.try_get_matches_from(words).expect("flags of bench");
        JobFlags::from_arg_matches(&matches).expect("flags")
    }

    /// The run of a job on one target.
    fn spec(job: &JobFlags) -> RunSpec {
        let target = [String::from("ram:1MiB")];
        match job.spec(&target, Window::default()) {
            Ok(spec) => spec,
            Err(Failure::Bad(why) | Failure::No(why)) => panic!("{job:?}: {why}"),
        }
    }

    fn oltp(job: &JobFlags) -> Oltp {
        let Workload::Oltp(oltp) = spec(job).workload else { panic!("{job:?} is no oltp") };
        oltp
    }

    /// The first job of one that is no `oltp`.
    fn stream(job: &JobFlags) -> Job {
        let Workload::Stages(stages) = spec(job).workload else { panic!("{job:?} is oltp") };
        stages[0].jobs[0].clone()
    }

    #[test]
    fn flags_of_bench_are_read_as_bench_reads_them() {
        let Job { depth, direction, access, .. } = stream(&job(&["--iodepth", "8", "--rw=randrw"]));
        assert_eq!((depth, direction, access), (8, Direction::Mixed, Access::Random));
        assert!(stream(&job(&["--time-based=0"])).depth == 1);
        let command = JobFlags::augment_args(Command::new("compare").no_binary_name(true));
        assert!(command.clone().try_get_matches_from(["--iodepth", "0"]).is_err());
        assert!(command.try_get_matches_from(["--frob"]).is_err());
    }

    #[test]
    fn times_and_a_seed_of_the_comparison_stand_for_those_of_the_jobs() {
        let [runtime, ramp] = [1_500_000_001, 250_000_007].map(Duration::from_nanos);
        let window = Window { runtime: Some(runtime), ramp: Some(ramp), seed: Some(7) };
        let target = [String::from("ram:1MiB")];
        let of = |words: &[&str]| job(words).spec(&target, window).unwrap_or_else(|_| panic!());
        let RunSpec { workload, ramp: before, seed, runtime: all, .. } = of(&["--bs", "8k"]);
        let Workload::Stages(stages) = workload else { panic!("a stream") };
        let job = &stages[0].jobs[0];
        assert_eq!((all, seed, before), (Some(runtime), 7, Duration::ZERO));
        assert_eq!((job.runtime_ns, job.ramp_ns), (Some(1_500_000_001), 250_000_007));
        assert_eq!((job.seed, of(&["oltp"]).seed), (7, 7));
        assert_eq!((of(&["oltp"]).runtime, of(&["oltp"]).ramp), (Some(runtime), ramp));
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
        let default = job(&[]).or_default(Some(&sweep));
        assert_eq!(oltp(&swept(&default)).threads, 2);
        assert_eq!(oltp(&swept(&job(&["oltp", "--threads=3"]))).threads, 2);
        assert_eq!(stream(&swept(&job(&["streams"]))).clones, 2);
        assert_eq!(oltp(&job(&[]).or_default(None)).users, 80);
        assert_eq!(stream(&job(&["--iodepth", "8"]).or_default(None)).depth, 8);
        let option: Sweep = "scheduler=none,bfq".parse().expect("a sweep");
        assert!(job(&[]).or_default(Some(&option)).is_oltp());
        let varied = oltp(&job(&["--users", "20", "--hot=90/10"]).or_default(None));
        assert_eq!((varied.users, varied.hot), (20, Zone { access: 90, size: 10 }));
        // oltp has no depth to vary.
        let depth: Sweep = "iodepth=1,2".parse().expect("a sweep");
        assert!(!job(&[]).or_default(Some(&depth)).is_oltp());
    }

    #[test]
    fn what_a_sweep_varies_takes_the_place_of_the_same_flag_and_of_no_other() {
        let words = ["oltp", "--users=3", "--threads=4", "--update=5", "--hot=6/7", "--redo=ram:1"];
        let all = job(&words);
        let with = |name: &str, value: &str| {
            let sweep: Sweep = format!("{name}={value}").parse().expect("a sweep");
            oltp(&sweep.on_job(&all, value).expect("a flag").expect("in range"))
        };
        let before = oltp(&all);
        assert_eq!(with("users", "9"), Oltp { users: 9, ..before.clone() });
        assert_eq!(with("threads", "9"), Oltp { threads: 9, ..before.clone() });
        assert_eq!(with("update", "9"), Oltp { update_percent: 9, ..before.clone() });
        let hot = Zone { access: 9, size: 8 };
        assert_eq!(with("hot", "9/8"), Oltp { hot, ..before.clone() });
        let redo = vec![String::from("ram:2")];
        assert_eq!(with("redo", "ram:2"), Oltp { redo, ..before });
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
    fn flags_of_the_job_are_taken_out_of_the_options_of_a_variant() {
        let of = |text: &str| own_job(text).map(|(rest, job)| (rest, job.into_iter().collect()));
        let pair = |name: &str, value: &str| (String::from(name), String::from(value));
        let said = |rest: &str, job: Vec<(String, String)>| Ok((String::from(rest), job));
        let both = "queue_mode=sq,job.threads=4,nr_requests=8";
        assert_eq!(of(both), said("queue_mode=sq,nr_requests=8", vec![pair("threads", "4")]));
        let sizes = r"job.bs=4k\,8k,job.time-based=1,ram:1MiB";
        let sized = vec![pair("bs", "4k,8k"), pair("time_based", "1")];
        assert_eq!(of(sizes), said("ram:1MiB", sized));
        let other = r#"file:a\,job.x=1,kernel_cmdline="elevator=noop a,b""#;
        assert_eq!(of(other), said(other, Vec::new()), "a comma of a name parts nothing");
        for (text, why) in [
            ("job.threads", "is not job.FLAG=VALUE"),
            ("job.threads=", "is not job.FLAG=VALUE"),
            ("job.redo=ram:1MiB", "says where"),
            ("job.filename=x", "says where"),
            ("job.bs=4k,job.bs=8k", "job.bs stands there twice"),
        ] {
            assert!(own_job(text).is_err_and(|e| e.contains(why)), "{text}");
        }
        let varied = job(&["oltp"]).with("threads", "4").expect("a flag").expect("in range");
        assert_eq!(oltp(&varied).threads, 4);
        assert!(job(&[]).with("frob", "4").is_none());
    }

    #[test]
    fn a_sweep_varies_a_flag_of_the_job_and_leaves_options_to_the_target() {
        let sweep: Sweep = "threads=1,2".parse().expect("a sweep");
        let swept = |value| sweep.on_job(&job(&["--numjobs", "7"]), value);
        let varied = swept("2").expect("a flag").expect("in range");
        assert_eq!(stream(&varied).clones, 2);
        let bad = swept("0").expect("a flag").expect_err("no such number");
        assert!(bad.contains("numjobs") && bad.contains("1..="), "{bad}");
        let option: Sweep = "scheduler=none,bfq".parse().expect("a sweep");
        assert!(option.on_job(&job(&[]), "none").is_none());
        for text in ["iodepth", "iodepth=", "=1", "iodepth=1,,2"] {
            assert!(text.parse::<Sweep>().is_err_and(|e| e.contains("NAME=V1,V2")), "{text}");
        }
        assert!("iodepth=1,1".parse::<Sweep>().is_err_and(|e| e.contains("twice")));
    }
}
