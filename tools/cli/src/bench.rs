//! `weir bench`: a workload on a target.

mod core;
mod flags;

use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant, SystemTime};

use clap::{Args, Subcommand};
use signal_hook::consts::SIGINT;
use weir_bench::check::{self, Checked, Lost};
use weir_bench::conduct::{Conducted, Oltp, Request, Workload as Work, conduct};
use weir_bench::run::Progress;
use weir_bench::{document, tables};
use weir_load::presets::{PRESETS, Stage, stages};
use weir_load::{Access, Job, Zone, jobfile};

use self::flags::JobFlags;
use crate::Failure;
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
    /// The target of all jobs: KIND:REST[,OPTION=VALUE]...
    #[arg(long)]
    target: Option<String>,
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

/// What concerns the preset `oltp` alone.
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
    /// oltp: the target of the redo log; the end of the target if not given.
    #[arg(long, value_name = "TARGET")]
    redo: Option<String>,
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

/// How long a run is if nobody says so, each stage of it.
const RUNTIME: Duration = Duration::from_secs(10);
/// How long it runs before that.
const RAMP_TIME: Duration = Duration::from_secs(1);

/// A workload as it was asked for.
struct Asked {
    work: Work,
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

impl Workload {
    fn run(&self) -> Result<(), Failure> {
        let asked = self.asked()?;
        if self.oltp.check {
            return self.check();
        }
        if !self.quiet {
            asked.notes.iter().for_each(|note| eprintln!("weir: {note}"));
        }
        let interrupted = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(SIGINT, Arc::clone(&interrupted))
            .map_err(|e| Failure::Bad(format!("SIGINT: {e}")))?;
        let commits = self.oltp.commits.as_deref().map(append).transpose()?;
        let (started, told) = (SystemTime::now(), Told::new(self.quiet));
        let conducted = conduct(&Request {
            workload: asked.work,
            target: self.target.clone(),
            runtime: asked.runtime,
            ramp: asked.ramp,
            seed: self.flags.seed(),
            run: run_number(started),
            commits: commits.as_ref(),
            interrupted: &interrupted,
            progress: &|progress| told.progress(progress),
            notice: &|notice| told.notice(notice),
        })?;
        told.end();
        self.report(&conducted, asked.preset.as_deref(), started)
    }

    fn asked(&self) -> Result<Asked, Failure> {
        let preset = self.job.clone().filter(|job| PRESETS.iter().any(|(name, _)| name == job));
        if preset.as_deref() == Some("oltp") {
            return self.asked_oltp();
        }
        if let Some(flag) = self.oltp.first() {
            return Err(Failure::Bad(format!("--{flag} is for the preset oltp alone")));
        }
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
        if self.target.is_none()
            && jobs().all(|job| job.target.is_none())
            && !self.flags.has("filename")
        {
            let what = "there is no target: --target TARGET, or filename= in a job file";
            return Err(Failure::Bad(String::from(what)));
        }
        let mut runtime = self.flags.runtime();
        let finite = jobs().all(|job| !job.time_based);
        for job in stages.iter_mut().flat_map(|stage| &mut stage.jobs) {
            notes.extend(self.flags.apply(job)?);
            // What has an end of its own, as dd32 has, keeps it.
            job.time_based |= is_file && runtime.is_some();
        }
        if runtime.is_none() && !is_file && !finite {
            runtime = Some(RUNTIME * u32::try_from(stages.len()).unwrap_or(1));
        }
        let own_ramp = is_file || finite || self.flags.has("ramp_time");
        let ramp = if own_ramp { Duration::ZERO } else { RAMP_TIME };
        Ok(Asked { work: Work::Stages(stages), preset, runtime, ramp, notes })
    }

    fn asked_oltp(&self) -> Result<Asked, Failure> {
        if self.target.is_none() {
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
            redo: redo.clone(),
        };
        Ok(Asked {
            work: Work::Oltp(oltp),
            preset: Some(String::from("oltp")),
            runtime: Some(self.flags.runtime().unwrap_or(RUNTIME)),
            ramp: self.flags.ramp().unwrap_or(RAMP_TIME),
            notes: Vec::new(),
        })
    }

    fn check(&self) -> Result<(), Failure> {
        let (Some(target), Some(commits)) = (&self.target, &self.oltp.commits) else {
            return Err(Failure::Bad(String::from("--check needs --target and --commits")));
        };
        match check::check(target, self.oltp.redo.as_deref(), commits) {
            Ok(Checked { commits, in_log, checkpointed, blocks }) => {
                println!(
                    "{commits} acknowledged commits found: {in_log} in the redo log, \
                     {checkpointed} below its checkpoint; {blocks} data blocks hold them"
                );
                Ok(())
            }
            Err(Lost::Commits(why)) => Err(Failure::No(why)),
            Err(Lost::Unreadable(why)) => Err(Failure::Bad(why)),
        }
    }

    fn report(
        &self,
        conducted: &Conducted,
        preset: Option<&str>,
        started: SystemTime,
    ) -> Result<(), Failure> {
        let Conducted { outcome, measured, failure } = conducted;
        if let Some(path) = &self.save {
            let command: Vec<_> = std::env::args().collect();
            let document = document::document(conducted, &command, started)?;
            let text = serde_json::to_string(&document).map_err(|e| Failure::Bad(e.to_string()))?;
            std::fs::write(path, text)
                .map_err(|e| Failure::Bad(format!("{}: {e}", path.display())))?;
        }
        if self.json {
            print_json(outcome)?;
        } else {
            print!("{}", outcome.table());
            print!("{}", tables::table(preset.unwrap_or_default(), outcome, measured));
        }
        match failure {
            None => Ok(()),
            Some(failure) => Err(Failure::No(format!(
                "{failure}; the figures are partial, of the {:.2} s until then, with {} errors",
                outcome.duration_s, outcome.errors
            ))),
        }
    }
}

fn stages_of(preset: &str) -> Vec<Stage> {
    stages(preset).expect("a preset of streams has stages")
}

fn not_found(job: &str, error: &std::io::Error) -> String {
    let presets: Vec<_> = PRESETS.iter().map(|(name, _)| *name).collect();
    format!("'{job}' is neither a preset ({}) nor a job file: {error}", presets.join(", "))
}

fn append(path: &Path) -> Result<File, Failure> {
    let file = OpenOptions::new().create(true).append(true).open(path);
    file.map_err(|e| Failure::Bad(format!("{}: {e}", path.display())))
}

/// A number that no other run on the same target has.
fn run_number(started: SystemTime) -> u64 {
    let since = started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    (since.as_nanos() as u64) ^ u64::from(std::process::id()).rotate_left(40)
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
            ("redo", redo.is_some()),
            ("commits", commits.is_some()),
            ("check", *check),
        ];
        given.into_iter().find(|(_, given)| *given).map(|(name, _)| name)
    }
}

/// What a person is told meanwhile, on standard error.
struct Told {
    quiet: bool,
    /// When the line of progress was last written, and the I/Os by then.
    last: Cell<(Option<Instant>, u64, u64)>,
    any: Cell<bool>,
}

impl Told {
    fn new(quiet: bool) -> Told {
        Told { quiet, last: Cell::new((None, 0, 0)), any: Cell::new(false) }
    }

    fn notice(&self, notice: &str) {
        if !self.quiet {
            eprintln!("weir: {notice}");
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
        // Nobody is helped by an error about a line of progress.
        let _ = write!(std::io::stderr(), "\r{done}  {iops:.0} IOPS  {mib:.0} MiB/s\x1b[K");
    }

    fn end(&self) {
        if self.any.get() {
            eprint!("\r\x1b[K");
        }
    }
}

fn print_json(outcome: &impl serde::Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(outcome).map_err(|e| Failure::Bad(e.to_string()))?;
    println!("{text}");
    Ok(())
}
