//! `weir bench`: a workload on a target.

mod asked;
mod core;
mod flags;
mod signals;

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant, SystemTime};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use weir_access::save;
use weir_bench::engine::run::Progress;
use weir_bench::results::{document, outcome, tables};
use weir_bench::workload::check::{self, Checked, Lost};
use weir_bench::workload::conduct::{Conducted, Request, conduct};
use weir_bench::workload::spec::{Prepare, RunSpec};
use weir_trace::document::BenchDocument;

pub(crate) use self::asked::{Asked, OLTP, OltpFlags};
pub(crate) use self::flags::{JobFlags, Window};
pub(crate) use signals::interrupted;

use crate::output::{print, print_line};
use crate::{Failure, completion};

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
    #[arg(add = completion::presets())]
    job: Option<String>,
    /// The target of all jobs: KIND:REST[,OPTION=VALUE]... For oltp it can be given several times:
    /// the data is striped over all of them.
    #[arg(long, add = completion::targets())]
    target: Vec<String>,
    #[command(flatten)]
    flags: JobFlags,
    #[command(flatten)]
    oltp: OltpFlags,
    #[command(flatten)]
    commits: CommitFlags,
    /// Write over what others keep on a target: a file system, a partition table, any data that no
    /// job of weir has written.
    #[arg(long)]
    destroy: bool,
    /// Write the target first: auto what is weir's own, memory and the holes of files that weir has
    /// made; fill all that the jobs touch; no nothing.
    #[arg(long, value_name = "WHAT", default_value = "auto", value_parser = prepare())]
    prepare: Prepare,
    /// Keep the figures, histograms and time series in this file.
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// One JSON document on standard output and nothing else.
    #[arg(long)]
    json: bool,
    /// No progress on standard error.
    #[arg(long)]
    quiet: bool,
    /// Make the run whose document is on standard input, and print its own as `--save` keeps it:
    /// between `weir compare` and its runs.
    #[arg(long, hide = true, exclusive = true)]
    spec_on_stdin: bool,
}

/// Flags of the preset `oltp` about the commits of one run.
#[derive(Debug, Args)]
struct CommitFlags {
    /// oltp: append every acknowledged commit to this file, or look for those in it.
    #[arg(long, value_name = "FILE")]
    commits: Option<PathBuf>,
    /// oltp: run nothing, but look on the target for every commit of the file.
    #[arg(long, requires = "commits")]
    check: bool,
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
        if self.spec_on_stdin {
            return carry_out_given();
        }
        let asked = self.asked();
        let spec = asked.spec()?;
        if asked.preset() != Some(OLTP)
            && let Some(flag) = self.commits.first()
        {
            return Err(asked::not_of_oltp(flag));
        }
        if self.commits.check {
            return self.check();
        }
        self.save.as_deref().map_or(Ok(()), writable)?;
        let interrupted = interrupted()?;
        let commits = self.commits.commits.as_deref().map(append).transpose()?;
        let spec = RunSpec {
            command: std::env::args().map(|word| weir::target::shown(&word)).collect(),
            destroy: self.destroy,
            prepare: self.prepare,
            ..spec
        };
        let outputs = Outputs { commits: commits.as_ref(), quiet: self.quiet };
        let Done { conducted, document } = carry_out(spec, &interrupted, &outputs)?;
        self.report(&conducted, asked.preset().unwrap_or_default(), &document)
    }

    fn asked(&self) -> Asked<'_> {
        Asked {
            job: self.job.as_deref(),
            target: &self.target,
            flags: &self.flags,
            oltp: &self.oltp,
            window: self.flags.window(),
        }
    }

    fn check(&self) -> Result<(), Failure> {
        let (false, Some(file)) = (self.target.is_empty(), &self.commits.commits) else {
            return Err(Failure::Bad(String::from("--check needs --target and --commits")));
        };
        let of_run = self.oltp.first().filter(|name| *name != "redo");
        let given = of_run.or(self.save.is_some().then_some("save"));
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
        preset: &str,
        document: &BenchDocument,
    ) -> Result<(), Failure> {
        let Conducted { bench, measured, failure } = conducted;
        if let Some(path) = &self.save {
            save::save(path, text_of(document)?.as_bytes())
                .map_err(|e| Failure::Bad(format!("{}: {e}", path.display())))?;
        }
        if self.json {
            let partial = failure.is_some();
            print_json(&Printed { bench, partial, failure: failure.as_deref() })?;
        } else {
            print(&outcome::table(bench, &outcome::cores(measured)))?;
            print(&tables::table(preset, bench, measured))?;
        }
        ended(conducted)
    }
}

/// How a run ended.
fn ended(Conducted { bench, measured, failure }: &Conducted) -> Result<(), Failure> {
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

/// Where a run tells what it does.
struct Outputs<'a> {
    commits: Option<&'a File>,
    quiet: bool,
}

/// A run that was made.
struct Done {
    conducted: Conducted,
    document: BenchDocument,
}

/// Makes a run.
fn carry_out(
    spec: RunSpec,
    interrupted: &AtomicBool,
    outputs: &Outputs<'_>,
) -> Result<Done, Failure> {
    let (started, told) = (SystemTime::now(), Told::new(outputs.quiet));
    spec.notes.iter().for_each(|note| told.notice(note));
    let request = Request {
        spec,
        run: run_number(started),
        commits: outputs.commits,
        interrupted,
        progress: &|progress| told.progress(progress),
        notice: &|notice| told.notice(notice),
    };
    let conducted = conduct(&request)?;
    told.end();
    let document = document::document(&conducted, &request.spec.command, started);
    let mut notices = told.notices.take();
    let bench = &conducted.bench;
    notices.extend(bench.prepared.iter().cloned().chain(outcome::unfinished(bench)));
    Ok(Done { conducted, document: BenchDocument { notices, ..document } })
}

/// Makes the run whose document is on standard input; what is saved of a run goes to standard
/// output.
fn carry_out_given() -> Result<(), Failure> {
    let given = |why: String| format!("the run's document on standard input: {why}");
    let spec = RunSpec::read(std::io::stdin().lock()).map_err(given)?;
    let interrupted = interrupted()?;
    let outputs = Outputs { commits: None, quiet: true };
    let Done { conducted, document } = carry_out(spec, &interrupted, &outputs)?;
    print_line(&text_of(&document)?)?;
    ended(&conducted)
}

fn text_of(document: &BenchDocument) -> Result<String, Failure> {
    serde_json::to_string(document).map_err(|error| Failure::Bad(error.to_string()))
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

fn append(path: &Path) -> Result<File, Failure> {
    // The end of the file is looked at, unless another process reads it meanwhile.
    save::append(path).map_err(|e| Failure::Bad(format!("{}: {e}", path.display())))
}

/// A number that no other run on the same target has.
fn run_number(started: SystemTime) -> u64 {
    let since = started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    (since.as_nanos() as u64) ^ u64::from(std::process::id()).rotate_left(40)
}

impl CommitFlags {
    /// The first that was given.
    fn first(&self) -> Option<&'static str> {
        let given = [("commits", self.commits.is_some()), ("check", self.check)];
        given.into_iter().find(|(_, given)| *given).map(|(name, _)| name)
    }
}

/// Takes whether targets are written first.
pub(crate) fn prepare() -> impl TypedValueParser<Value = Prepare> {
    PossibleValuesParser::new(["auto", "no", "fill"]).map(|word| match word.as_str() {
        "no" => Prepare::No,
        "fill" => Prepare::Fill,
        _ => Prepare::Auto,
    })
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
