//! `weir bench`: a workload on a target.

mod core;
mod flags;
mod signals;

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use clap::{Args, Command, FromArgMatches, Subcommand};
use weir_access::save;
use weir_bench::engine::run::Progress;
use weir_bench::results::{document, outcome, tables};
use weir_bench::workload::check::{self, Checked, Lost};
use weir_bench::workload::conduct::{Conducted, Oltp, Request, Workload as Work, conduct};
use weir_load::presets::{PRESETS, Stage, stages};
use weir_load::{Access, Job, Zone, jobfile};

use self::flags::JobFlags;
use crate::Failure;
use crate::output::{print, print_line};
use crate::values::whole;

/// Runs a workload on a target and reports what it got: IOPS, latencies, CPU per I/O.
///
/// A workload is a preset (oltp, vdbench, streams, hdparm, hpc, dd32), a job file as fio has them,
/// or flags of the same names. Given by flags alone, a job is time-based and reads randomly for
/// 10 s after a ramp of 1 s. Beside a preset or a file, flags change all its jobs, and a runtime
/// makes them time-based.
///
/// Example: weir bench --target ram:1GiB --rw randrw --rwmixread 70 --bs 4k --iodepth 32
/// Example: weir bench oltp --target file:data.img,size=1GiB --runtime 30s
/// Example: weir bench oltp --target file:a.img --target file:b.img --redo file:redo.img
/// Example: weir bench job.fio
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, verbatim_doc_comment)]
pub(crate) struct Bench {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    workload: Workload,
}

#[derive(Debug, Subcommand)]
enum What {
    Core(core::Core),
}

#[derive(Debug, Args)]
struct Workload {
    /// A preset (oltp, vdbench, streams, hdparm, hpc, dd32) or a job file.
    job: Option<String>,
    /// The target of all jobs: KIND:REST[,OPTION=VALUE]... For oltp it can be given several times:
    /// the data is striped over all of them.
    #[arg(long)]
    target: Vec<String>,
    #[command(flatten)]
    flags: JobFlags,
    #[command(flatten)]
    oltp: OltpFlags,
    /// Keep the figures, histograms and time series in this file.
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// One JSON document on standard output and nothing else.
    #[arg(long)]
    json: bool,
    /// No progress on standard error.
    #[arg(long)]
    quiet: bool,
}

/// Flags of the preset `oltp` alone.
#[derive(Debug, Args)]
struct OltpFlags {
    /// oltp: users (default 80).
    #[arg(long, value_parser = whole::<u16>(1..=1000))]
    users: Option<u16>,
    /// oltp: sessions of each user (default 2).
    #[arg(long, value_parser = whole::<u16>(1..=64))]
    threads: Option<u16>,
    /// oltp: statements in 100 that change what they read (default 25).
    #[arg(long, value_name = "PERCENT", value_parser = whole::<u8>(0..=100))]
    update: Option<u8>,
    /// oltp: accesses in 100 that go to the hot set, and its share of the data (default 80/20).
    #[arg(long, value_name = "ACCESS/SIZE", value_parser = hot)]
    hot: Option<Zone>,
    /// oltp: the target of the redo log, or several that it is striped over; the end of the data if
    /// not given.
    #[arg(long, value_name = "TARGET")]
    redo: Vec<String>,
    /// oltp: append every acknowledged commit to this file, or look for those in it.
    #[arg(long, value_name = "FILE")]
    commits: Option<PathBuf>,
    /// oltp: run nothing, but look on the target for every commit of the file.
    #[arg(long, requires = "commits")]
    check: bool,
}

fn hot(text: &str) -> Result<Zone, String> {
    let pair = text.split_once('/').and_then(|(access, size)| {
        let percent = |text: &str| text.parse::<u8>().ok().filter(|p| (1..=100).contains(p));
        Some(Zone { access: percent(access)?, size: percent(size)? })
    });
    pair.ok_or_else(|| String::from("not two shares in 1..=100, as in 80/20"))
}

/// How long each stage of a run is by default.
const RUNTIME: Duration = Duration::from_secs(10);
/// How long it runs before that.
const RAMP_TIME: Duration = Duration::from_secs(1);

/// A workload as it was asked for.
struct Asked {
    work: Work,
    /// Where, unless the workload says that.
    target: Option<String>,
    /// Its preset, if it is one.
    preset: Option<String>,
    runtime: Option<Duration>,
    ramp: Duration,
    notes: Vec<String>,
}

impl Bench {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        match &self.what {
            Some(What::Core(core)) => core.run(),
            None => self.workload.run(),
        }
    }
}

/// Whether a run with these words, for at most so long, ends when its jobs have done what they have
/// to do. Faults of the words are left to the run.
pub(crate) fn ends_by_itself(words: &[String], target: &str, runtime: Option<Duration>) -> bool {
    let mut command = vec![String::from("bench")];
    command.extend_from_slice(words);
    command.extend([String::from("--target"), String::from(target)]);
    command.extend(runtime.map(|time| format!("--runtime={}us", time.as_micros())));
    let matches = Bench::augment_args(Command::new("bench")).try_get_matches_from(command);
    let bench = matches.and_then(|matches| Bench::from_arg_matches(&matches));
    match bench.map(|bench| bench.workload.asked()) {
        Ok(Ok(Asked { work: Work::Stages(stages), .. })) => {
            stages.iter().flat_map(|stage| &stage.jobs).all(|job| !job.time_based)
        }
        Ok(_) | Err(_) => false,
    }
}

impl Workload {
    fn run(&self) -> Result<(), Failure> {
        let asked = self.asked()?;
        if self.oltp.check {
            return self.check();
        }
        self.save.as_deref().map_or(Ok(()), writable)?;
        let interrupted = signals::interrupted()?;
        let commits = self.oltp.commits.as_deref().map(append).transpose()?;
        let (started, told) = (SystemTime::now(), Told::new(self.quiet));
        asked.notes.iter().for_each(|note| told.notice(note));
        let conducted = conduct(&Request {
            workload: asked.work.clone(),
            target: asked.target.clone(),
            runtime: asked.runtime,
            ramp: asked.ramp,
            seed: asked.seed(self.flags.seed()),
            run: run_number(started),
            commits: commits.as_ref(),
            interrupted: &interrupted,
            progress: &|progress| told.progress(progress),
            notice: &|notice| told.notice(notice),
        })?;
        told.end();
        let notices = told.notices.into_inner();
        self.report(&conducted, asked.preset.as_deref(), started, notices)
    }

    fn asked(&self) -> Result<Asked, Failure> {
        let preset = self.job.clone().filter(|job| PRESETS.iter().any(|(name, _)| name == job));
        if preset.as_deref() == Some("oltp") {
            return self.asked_oltp();
        }
        if let Some(flag) = self.oltp.first() {
            return Err(Failure::Bad(format!(
                "--{flag} is for the preset oltp alone: weir bench oltp --{flag} ..."
            )));
        }
        let target = match &self.target[..] {
            [] => None,
            [target] => Some(target.clone()),
            several => {
                return Err(Failure::Bad(format!(
                    "--target is given {} times: only the preset oltp runs on a group of targets, \
                     and jobs of a file each on its own filename=",
                    several.len()
                )));
            }
        };
        let (mut stages, mut notes) = (Vec::new(), Vec::new());
        let is_file = preset.is_none() && self.job.is_some();
        match (&preset, &self.job) {
            (Some(name), _) => stages.extend(stages_of(name)),
            (None, Some(file)) => {
                let text =
                    std::fs::read_to_string(file).map_err(|error| not_found(file, &error))?;
                let read = jobfile::read(file, &text).map_err(|e| e.to_string())?;
                notes.extend(read.notes);
                stages.push(Stage { name: None, jobs: read.jobs });
            }
            (None, None) => {
                let job = Job { access: Access::Random, time_based: true, ..Job::default() };
                stages.push(Stage { name: None, jobs: vec![job] });
            }
        }
        let jobs = || stages.iter().flat_map(|stage| &stage.jobs);
        if target.is_none() && jobs().all(|job| job.target.is_none()) && !self.flags.has("filename")
        {
            let what = "there is no target: --target TARGET, or filename= in a job file";
            return Err(Failure::Bad(String::from(what)));
        }
        let mut runtime = self.flags.runtime();
        let finite = jobs().all(|job| !job.time_based);
        for job in stages.iter_mut().flat_map(|stage| &mut stage.jobs) {
            notes.extend(self.flags.apply(job)?);
            // A job with an end of its own, as dd32 has, keeps it.
            job.time_based |= is_file && runtime.is_some();
        }
        if runtime.is_none() && !is_file && !finite {
            runtime = Some(RUNTIME * u32::try_from(stages.len()).unwrap_or(1));
        }
        let own_ramp = is_file || finite || self.flags.has("ramp_time");
        let ramp = if own_ramp { Duration::ZERO } else { RAMP_TIME };
        Ok(Asked { work: Work::Stages(stages), target, preset, runtime, ramp, notes })
    }

    fn asked_oltp(&self) -> Result<Asked, Failure> {
        if self.target.is_empty() {
            return Err(Failure::Bad(String::from("oltp has no target: --target TARGET")));
        }
        if let Some(name) = self.flags.other_than(&["runtime", "ramp_time", "randseed"]) {
            return Err(Failure::Bad(format!("--{name} is not for the preset oltp")));
        }
        let OltpFlags { users, threads, update, hot, redo, .. } = &self.oltp;
        let oltp = Oltp {
            users: users.unwrap_or(80),
            threads: threads.unwrap_or(2),
            update_percent: update.unwrap_or(25),
            hot: hot.unwrap_or(Zone { access: 80, size: 20 }),
            data: self.target.clone(),
            redo: redo.clone(),
        };
        Ok(Asked {
            work: Work::Oltp(oltp),
            target: None,
            preset: Some(String::from("oltp")),
            runtime: Some(self.flags.runtime().unwrap_or(RUNTIME)),
            ramp: self.flags.ramp().unwrap_or(RAMP_TIME),
            notes: Vec::new(),
        })
    }

    fn check(&self) -> Result<(), Failure> {
        let (false, Some(file)) = (self.target.is_empty(), &self.oltp.commits) else {
            return Err(Failure::Bad(String::from("--check needs --target and --commits")));
        };
        let OltpFlags { users, threads, update, hot, .. } = &self.oltp;
        let of_run = [
            ("users", users.is_some()),
            ("threads", threads.is_some()),
            ("update", update.is_some()),
            ("hot", hot.is_some()),
            ("save", self.save.is_some()),
        ];
        let given = of_run.into_iter().find(|(_, given)| *given).map(|(name, _)| name);
        if let Some(name) = given.or(self.flags.other_than(&[])) {
            let why = format!("--{name} is for a run, and --check runs nothing");
            return Err(Failure::Bad(why));
        }
        let (found, lost) = match check::check(&self.target, &self.oltp.redo, file) {
            Ok(found) => (Some(found), None),
            Err(Lost::Commits(why)) => (None, Some(why)),
            Err(Lost::Unreadable(why)) => return Err(Failure::Bad(why)),
        };
        if found.is_some_and(|found| found.commits == 0) {
            let why = format!("{}: there is no commit in it to look for", file.display());
            return Err(Failure::Bad(why));
        }
        print(&said(found, lost.as_deref(), self.json))?;
        lost.map_or(Ok(()), |why| Err(Failure::No(why)))
    }

    fn report(
        &self,
        conducted: &Conducted,
        preset: Option<&str>,
        started: SystemTime,
        notices: Vec<String>,
    ) -> Result<(), Failure> {
        let Conducted { bench, measured, failure } = conducted;
        if let Some(path) = &self.save {
            let command: Vec<_> = std::env::args().collect();
            let mut document = document::document(conducted, &command, started);
            document.notices = notices;
            let text = serde_json::to_string(&document).map_err(|e| Failure::Bad(e.to_string()))?;
            save::save(path, text.as_bytes())
                .map_err(|e| Failure::Bad(format!("{}: {e}", path.display())))?;
        }
        if self.json {
            let partial = failure.is_some();
            print_json(&Printed { bench, partial, failure: failure.as_deref() })?;
        } else {
            print(&outcome::table(bench, &outcome::cores(measured)))?;
            print(&tables::table(preset.unwrap_or_default(), bench, measured))?;
        }
        let Some(failure) = failure else { return Ok(()) };
        let why = format!(
            "{failure}; the figures are partial, of the {:.2} s until then, with {} errors",
            bench.duration_s, bench.errors
        );
        // A block that was not what it should be is an answer; a run broken off is none.
        match measured.iter().any(|(_, part)| part.tally.faults > 0) {
            true => Err(Failure::No(why)),
            false => Err(Failure::Bad(why)),
        }
    }
}

/// The figures as `--json` prints them; those of a run that was broken off say so.
#[derive(serde::Serialize)]
struct Printed<'a> {
    #[serde(flatten)]
    bench: &'a weir_trace::document::Bench,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    partial: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<&'a str>,
}

/// The outcome of a look for commits.
fn said(found: Option<Checked>, lost: Option<&str>, as_json: bool) -> String {
    if as_json {
        let found = found.map(|found| {
            let Checked { commits, in_log, checkpointed, blocks } = found;
            serde_json::json!({
                "commits": commits, "in_log": in_log, "checkpointed": checkpointed,
                "data_blocks": blocks,
            })
        });
        return format!("{:#}\n", serde_json::json!({ "found": found, "lost": lost }));
    }
    let Some(Checked { commits, in_log, checkpointed, blocks }) = found else {
        return String::new();
    };
    format!(
        "{commits} acknowledged commits found: {in_log} in the redo log, {checkpointed} below its \
         checkpoint; {blocks} data blocks hold them\n"
    )
}

/// Whether figures can be saved in this file, before they are measured.
fn writable(path: &Path) -> Result<(), Failure> {
    save::probe(path).map_err(|error| Failure::Bad(format!("--save {}: {error}", path.display())))
}

fn stages_of(preset: &str) -> Vec<Stage> {
    stages(preset).expect("a preset of streams has stages")
}

fn not_found(job: &str, error: &std::io::Error) -> String {
    let presets: Vec<_> = PRESETS.iter().map(|(name, _)| *name).collect();
    format!("'{job}' is neither a preset ({}) nor a job file: {error}", presets.join(", "))
}

fn append(path: &Path) -> Result<File, Failure> {
    // The end of the file is looked at, unless another process reads it meanwhile.
    save::append(path).map_err(|e| Failure::Bad(format!("{}: {e}", path.display())))
}

/// A number that no other run on the same target has.
fn run_number(started: SystemTime) -> u64 {
    let since = started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    (since.as_nanos() as u64) ^ u64::from(std::process::id()).rotate_left(40)
}

impl Asked {
    /// The seed of the first job: of a file's jobs each says its own.
    fn seed(&self, otherwise: u64) -> u64 {
        match &self.work {
            Work::Stages(stages) => {
                stages.iter().flat_map(|stage| &stage.jobs).next().map_or(otherwise, |job| job.seed)
            }
            Work::Oltp(_) => otherwise,
        }
    }
}

impl OltpFlags {
    /// The first that was given.
    fn first(&self) -> Option<&'static str> {
        let OltpFlags { users, threads, update, hot, redo, commits, check } = self;
        let given = [
            ("users", users.is_some()),
            ("threads", threads.is_some()),
            ("update", update.is_some()),
            ("hot", hot.is_some()),
            ("redo", !redo.is_empty()),
            ("commits", commits.is_some()),
            ("check", *check),
        ];
        given.into_iter().find(|(_, given)| *given).map(|(name, _)| name)
    }
}

/// The messages of a run, on standard error.
struct Told {
    quiet: bool,
    /// When the line of progress was last written, and the I/Os by then.
    last: Cell<(Option<Instant>, u64, u64)>,
    any: Cell<bool>,
    /// The notices so far, each once.
    notices: RefCell<Vec<String>>,
}

impl Told {
    fn new(quiet: bool) -> Told {
        let (last, any) = (Cell::new((None, 0, 0)), Cell::new(false));
        Told { quiet, last, any, notices: RefCell::default() }
    }

    /// Notices about the figures are shown also where progress is not.
    fn notice(&self, notice: &str) {
        let mut notices = self.notices.borrow_mut();
        if !notices.iter().any(|known| known == notice) {
            let _ = writeln!(std::io::stderr(), "weir: {notice}");
            notices.push(String::from(notice));
        }
    }

    fn progress(&self, progress: &Progress) {
        let Progress { measured, of, ios, bytes } = *progress;
        let long = of.is_none_or(|of| of > Duration::from_secs(2));
        if self.quiet || !long || !std::io::stderr().is_terminal() {
            return;
        }
        let (last, ios_before, bytes_before) = self.last.get();
        let Some(last) = last else { return self.last.set((Some(Instant::now()), ios, bytes)) };
        let since = last.elapsed();
        if since < Duration::from_millis(500) {
            return;
        }
        self.last.set((Some(Instant::now()), ios, bytes));
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / since.as_secs_f64();
        let (iops, mib) = (rate(ios, ios_before), rate(bytes, bytes_before) / (1 << 20) as f64);
        let done = match of {
            Some(of) => {
                let part = (measured.as_secs_f64() / of.as_secs_f64().max(1e-9)).min(1.0);
                let full = (part * 20.0) as usize;
                format!("[{}{}] {:3.0} %", "#".repeat(full), ".".repeat(20 - full), part * 100.0)
            }
            None => format!("{:.1} s", measured.as_secs_f64()),
        };
        self.any.set(true);
        // An error about a line of progress would help no user.
        let _ = write!(std::io::stderr(), "\r{done}  {iops:.0} IOPS  {mib:.0} MiB/s\x1b[K");
    }

    fn end(&self) {
        if self.any.get() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

fn print_json(outcome: &impl serde::Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(outcome).map_err(|e| Failure::Bad(e.to_string()))?;
    print_line(&text)
}
