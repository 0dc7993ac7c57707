//! What is run, as flags ask for it: the run they come to, or their fault.

use std::time::Duration;

use clap::Args;
use weir::Target;
use weir_bench::workload::devices::is_of_kernel;
use weir_bench::workload::experiment;
use weir_bench::workload::spec::{Oltp, RunSpec, Workload};
use weir_load::options::Section;
use weir_load::presets::{PRESETS, Stage, stages};
use weir_load::{Access, Job, Zone, jobfile};

use super::flags::{JobFlags, Window};
use crate::Failure;
use crate::values::whole;

/// The preset that runs on groups of targets, and is no streams.
pub(crate) const OLTP: &str = "oltp";
/// How long each stage of a run is by default.
const RUNTIME: Duration = Duration::from_secs(10);
/// I/Os under way on a block device of the kernel.
const KERNEL_DEPTH: u16 = 32;
/// How long it runs before that.
const RAMP_TIME: Duration = Duration::from_secs(1);

/// Flags of the preset `oltp` alone.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct OltpFlags {
    /// oltp: users (default 80).
    #[arg(long, value_parser = whole::<u16>(Oltp::USERS))]
    users: Option<u16>,
    /// oltp: sessions of each user (default 2).
    #[arg(long, value_parser = whole::<u16>(Oltp::THREADS))]
    threads: Option<u16>,
    /// oltp: statements in 100 that change what they read (default 25).
    #[arg(long, value_name = "PERCENT", value_parser = whole::<u8>(Oltp::UPDATE_PERCENT))]
    update: Option<u8>,
    /// oltp: accesses in 100 that go to the hot set, and its share of the data (default 80/20).
    #[arg(long, value_name = "ACCESS/SIZE", value_parser = hot)]
    hot: Option<Zone>,
    /// oltp: the target of the redo log, or several that it is striped over; the end of the data if
    /// not given.
    #[arg(long, value_name = "TARGET")]
    pub(crate) redo: Vec<String>,
}

fn hot(text: &str) -> Result<Zone, String> {
    let pair = text.split_once('/').and_then(|(access, size)| {
        let percent =
            |text: &str| text.parse::<u8>().ok().filter(|p| Oltp::HOT.contains(&u64::from(*p)));
        Some(Zone { access: percent(access)?, size: percent(size)? })
    });
    pair.ok_or_else(|| String::from("not two shares in 1..=100, as in 80/20"))
}

impl OltpFlags {
    /// The first that was given, of those that a look for commits has no use for first.
    pub(crate) fn first(&self) -> Option<&'static str> {
        let OltpFlags { users, threads, update, hot, redo } = self;
        let given = [
            ("users", users.is_some()),
            ("threads", threads.is_some()),
            ("update", update.is_some()),
            ("hot", hot.is_some()),
            ("redo", !redo.is_empty()),
        ];
        given.into_iter().find(|(_, given)| *given).map(|(name, _)| name)
    }

    /// Puts others in the place of those that they name too.
    pub(crate) fn replace(&mut self, others: OltpFlags) {
        let OltpFlags { users, threads, update, hot, redo } = others;
        self.users = users.or(self.users);
        self.threads = threads.or(self.threads);
        self.update = update.or(self.update);
        self.hot = hot.or(self.hot);
        if !redo.is_empty() {
            self.redo = redo;
        }
    }
}

/// The flags that say what is run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    /// A preset or a job file.
    pub(crate) job: Option<&'a str>,
    pub(crate) target: &'a [String],
    pub(crate) flags: &'a JobFlags,
    pub(crate) oltp: &'a OltpFlags,
    /// It stands above the same flags.
    pub(crate) window: Window,
}

impl Asked<'_> {
    /// Its preset, if it is one.
    pub(crate) fn preset(&self) -> Option<&str> {
        self.job.filter(|job| PRESETS.iter().any(|(name, _)| name == job))
    }

    /// The run.
    ///
    /// # Errors
    /// A flag that is for another job, no target or too many, a job file that cannot be read.
    pub(crate) fn spec(&self) -> Result<RunSpec, Failure> {
        if self.preset() == Some(OLTP) {
            return self.oltp_spec();
        }
        if let Some(flag) = self.oltp.first() {
            return Err(not_of_oltp(flag));
        }
        let target = self.only_target()?;
        let is_file = self.preset().is_none() && self.job.is_some();
        let (mut stages, mut notes) = self.stages()?;
        for job in stages.iter_mut().flat_map(|stage| &mut stage.jobs) {
            notes.extend(self.flags.apply(job)?);
        }
        // No two clones of a run have one log.
        let mut first = 1;
        for job in stages.iter_mut().flat_map(|stage| &mut stage.jobs) {
            job.logs.first = first;
            first += u32::from(job.clones);
        }
        self.deepen(&mut stages, target.as_deref());
        let jobs = || stages.iter().flat_map(|stage| &stage.jobs);
        if target.is_none() && jobs().all(|job| job.target.is_none()) && !self.flags.has("filename")
        {
            let what = "there is no target: --target TARGET, or filename= in a job file";
            return Err(Failure::Bad(String::from(what)));
        }
        let Window { mut runtime, ramp: own_ramp, seed } = self.window;
        let finite = jobs().all(|job| !job.time_based);
        for job in stages.iter_mut().flat_map(|stage| &mut stage.jobs) {
            // A job with an end of its own, as dd32 has, keeps it; so does one that is told to.
            job.time_based |= is_file && runtime.is_some() && !self.flags.has("time_based");
            job.runtime_ns = runtime.map(nanos).or(job.runtime_ns);
            job.ramp_ns = own_ramp.map_or(job.ramp_ns, nanos);
            job.seed = seed.unwrap_or(job.seed);
        }
        if runtime.is_none() && !is_file && !finite {
            runtime = Some(RUNTIME * u32::try_from(stages.len()).unwrap_or(1));
        }
        let own_ramp = is_file || finite || own_ramp.is_some();
        let ramp = if own_ramp { Duration::ZERO } else { RAMP_TIME };
        let first = stages.iter().flat_map(|stage| &stage.jobs).next();
        // Of a file's jobs each says its own.
        let seed = first.map_or(1, |job| job.seed);
        let spec = RunSpec::of(Workload::Stages(stages));
        Ok(RunSpec { target, runtime, ramp, seed, notes, ..spec })
    }

    /// Gives a job of flags the depth of a kernel's device, where neither they nor what stands for
    /// an engine of one I/O at a time say it: alone in its queue no I/O meets a scheduler.
    fn deepen(&self, stages: &mut [Stage], target: Option<&str>) {
        let says = ["iodepth", "ioengine"].iter().any(|name| self.flags.has(name));
        let named = target.or(self.flags.value("filename")).unwrap_or_default();
        // What is no target is refused where it is opened.
        let parsed = Target::parse(named).or_else(|_| Target::parse(&format!("file:{named}")));
        let is_of_kernel = parsed.is_ok_and(|parsed| is_of_kernel(named, &parsed));
        if self.job.is_none() && !says && is_of_kernel {
            let jobs = stages.iter_mut().flat_map(|stage| &mut stage.jobs);
            jobs.for_each(|job| job.depth = KERNEL_DEPTH);
        }
    }

    /// The stages before flags change them, and notes on them.
    fn stages(&self) -> Result<(Vec<Stage>, Vec<String>), Failure> {
        if let Some(name) = self.preset() {
            // Without a disk of its own the experiment has that of its document.
            if name == experiment::NAME && self.target.is_empty() && !self.flags.has("filename") {
                return Ok((experiment::both(), Vec::new()));
            }
            let stages = stages(name).expect("a preset of streams has stages");
            return Ok((stages, Vec::new()));
        }
        let Some(file) = self.job else {
            let job = Job { access: Access::Random, time_based: true, ..Section::of_fio().job };
            return Ok((vec![Stage { name: None, jobs: vec![job] }], Vec::new()));
        };
        let text = std::fs::read_to_string(file).map_err(|error| not_found(file, &error))?;
        let mut read = jobfile::read(file, &text).map_err(|e| e.to_string())?;
        if self.target.is_empty() && !self.flags.has("filename") {
            read.use_own();
        }
        if !self.flags.has("randseed") {
            read.use_seed(drawn_seed());
        }
        Ok((read.stages(), read.notes))
    }

    fn only_target(&self) -> Result<Option<String>, Failure> {
        match self.target {
            [] => Ok(None),
            [target] => Ok(Some(target.clone())),
            several => Err(Failure::Bad(format!(
                "--target is given {} times: only the preset oltp takes several; jobs of a file \
                 run each on its own filename=, and one job on all of them as on a stripe: \
                 --target striped:1MiB:{}",
                several.len(),
                several.iter().map(|target| inner(target)).collect::<Vec<_>>().join("+")
            ))),
        }
    }

    fn oltp_spec(&self) -> Result<RunSpec, Failure> {
        if self.target.is_empty() {
            return Err(Failure::Bad(String::from("oltp has no target: --target TARGET")));
        }
        if let Some(name) = self.flags.other_than(&["runtime", "ramp_time", "randseed"]) {
            return Err(Failure::Bad(format!("--{name} is not for the preset oltp")));
        }
        let OltpFlags { users, threads, update, hot, redo } = self.oltp;
        let oltp = Oltp {
            users: users.unwrap_or(80),
            threads: threads.unwrap_or(2),
            update_percent: update.unwrap_or(25),
            hot: hot.unwrap_or(Zone { access: 80, size: 20 }),
            data: self.target.to_vec(),
            redo: redo.clone(),
        };
        let Window { runtime, ramp, seed } = self.window;
        Ok(RunSpec {
            runtime: Some(runtime.unwrap_or(RUNTIME)),
            ramp: ramp.unwrap_or(RAMP_TIME),
            seed: seed.unwrap_or(1),
            ..RunSpec::of(Workload::Oltp(oltp))
        })
    }
}

/// A target as it is written in another.
fn inner(target: &str) -> String {
    let escaped = |c: char| matches!(c, '\\' | ',' | '+').then_some('\\').into_iter().chain([c]);
    weir::target::shown(target).chars().flat_map(escaped).collect()
}

/// The fault of a flag that another job has no use for.
pub(super) fn not_of_oltp(flag: &str) -> Failure {
    Failure::Bad(format!("--{flag} is for the preset oltp alone: weir bench oltp --{flag} ..."))
}

/// A seed that is another in each run.
fn drawn_seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.unwrap_or_default().as_nanos() as u64 ^ u64::from(std::process::id()).rotate_left(40)
}

/// Times are held below 30 days.
fn nanos(time: Duration) -> u64 {
    time.as_nanos().min(u128::from(u64::MAX)) as u64
}

fn not_found(job: &str, error: &std::io::Error) -> String {
    let presets: Vec<_> = PRESETS.iter().map(|(name, _)| *name).collect();
    let meant = weir_sched::nearest(job, presets.iter().copied());
    let meant = meant.map(|meant| format!(" (is {meant} meant?)")).unwrap_or_default();
    let presets = presets.join(", ");
    format!("'{job}'{meant} is neither a preset ({presets}) nor a job file: {error}")
}
