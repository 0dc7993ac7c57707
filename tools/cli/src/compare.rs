//! `weir compare`: the same job on two or more variants, interleaved, with a verdict.

mod flags;
mod output;

use std::collections::BTreeSet;
use std::fs::{DirBuilder, File};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use weir::Target;
use weir::target::Backing;
use weir_bench::compare::{Compared, Plan, Program, Switch, Variant, kernel};
use weir_trace::document::{CompareDocument, Document, Point, SweepDocument};

use crate::values::{RAMP_TIME, RUNTIME, time, whole};
use crate::{Failure, report};
use flags::{JobFlags, Sweep, VariantFlags};

/// The target where none is given.
const TARGET: &str = "ram:1GiB";
/// Where results go.
const FOLDER: &str = "weir-data";
/// The report there.
const PAGE: &str = "compare.html";

/// Runs the same job on two or more variants in turn and says whether they differ.
///
/// Each round has one run of every variant, in random order, each a process of its own; a run that
/// the host disturbed is made again. OPTS are options of the target (a=b,c=d), or a whole target.
/// Without --a and --b the legacy path is compared with multi-queue. A preset, a job file or
/// flags, as for `weir bench`, say what is run; without any, and without --target, it is oltp on
/// ram:1GiB. Exit status: 0 if no verdict names a difference, 1 if one does.
///
/// Example: weir compare --target ram:1GiB --a scheduler=none --b scheduler=bfq --iodepth 32
/// Example: weir compare --target file:/dev/sdb --kernel-scheduler none,mq-deadline,bfq --rw read
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Compare {
    /// The target: KIND:REST[,OPTION=VALUE]...; ram:1GiB if not given.
    #[arg(long)]
    target: Option<String>,
    #[command(flatten)]
    variants: VariantFlags,
    /// The kernel's own schedulers as variants, switched on the block device of --target (root).
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    kernel_scheduler: Vec<String>,
    /// Repeat the comparison with each value of a flag of the job or an option of the target.
    #[arg(long, value_name = "NAME=V1,V2,...")]
    sweep: Option<Sweep>,
    /// Rounds that count; each has one run of every variant.
    #[arg(long, default_value_t = 10, value_parser = whole::<u32>(1..=1000))]
    rounds: u32,
    /// How long each run measures.
    #[arg(long, default_value = "2s", value_parser = time(RUNTIME))]
    runtime: Duration,
    /// How long each run runs before that.
    #[arg(long, default_value = "500ms", value_parser = time(RAMP_TIME))]
    ramp_time: Duration,
    /// Seed of the order and of everything random in the runs.
    #[arg(long, default_value_t = 1, value_parser = whole::<u64>(0..=u64::MAX))]
    randseed: u64,
    /// Let a variant be the same as another, to see what noise does.
    #[arg(long)]
    same: bool,
    /// Where every run is saved as JSON; ./weir-data/compare-<UTC time>.json if not given.
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Where the report is written; ./weir-data/compare.html if not given.
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    /// Write words and tables as Markdown to this file.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Write the figures of every run as CSV to this file.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Put back the scheduler that a killed comparison left switched, from the file it wrote.
    #[arg(long, value_name = "FILE", exclusive = true)]
    put_back: Option<PathBuf>,
    /// One JSON document on standard output and nothing else.
    #[arg(long)]
    json: bool,
    /// No progress on standard error.
    #[arg(long)]
    quiet: bool,
    #[command(flatten)]
    job: JobFlags,
}

impl Compare {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        if let Some(state) = &self.put_back {
            let device = kernel::put_back_from(state)?;
            println!("{device} is as it was");
            return Ok(());
        }
        let variants = self.variants()?;
        let points = self.points(&variants)?;
        let stop = signals()?;
        let switch = self.switch(&variants)?;
        let folder = Scratch::new()?;
        let mut done = Vec::new();
        let mut stopped = None;
        for (value, variants, job) in &points {
            let program = Program {
                path: std::env::current_exe().map_err(|e| format!("the command itself: {e}"))?,
                job: job.clone(),
                runtime: self.runtime,
                ramp: self.ramp_time,
                folder: folder.0.clone(),
            };
            let plan = Plan {
                variants,
                program: &program,
                rounds: self.rounds,
                seed: self.randseed,
                switch: switch.as_ref(),
                stop: &stop,
            };
            let mut compared = self.at(value, &plan);
            stopped = compared.stopped.take();
            done.push((value.clone(), compared.document));
            if stopped.is_some() {
                break;
            }
        }
        // Before anything that is only written: the device is somebody's.
        let back = switch.map_or(Ok(()), Switch::put_back);
        let ended = self.end(done, stopped);
        back?;
        ended
    }

    /// One comparison, with its progress; what it is called goes into its document.
    fn at(&self, value: &str, plan: &Plan<'_>) -> Compared {
        let mut progress = output::Progress::new(self.quiet, value);
        let mut compared = plan.run(&mut |now| progress.show(&now));
        progress.end();
        compared.document.command = std::env::args().collect();
        compared.document.target = String::from(self.target());
        compared
    }

    /// Saves, prints, draws, and says how it ended.
    fn end(
        &self,
        done: Vec<(String, CompareDocument)>,
        stopped: Option<String>,
    ) -> Result<(), Failure> {
        let measured = done.iter().any(|(_, document)| !document.runs.is_empty());
        if !measured && let Some(why) = stopped {
            return Err(Failure::Bad(why));
        }
        let differences: usize = done.iter().map(|(_, d)| output::differences(&d.compare)).sum();
        let started = done.first().map(|(_, document)| document.started_at.replace(':', ""));
        if !self.json {
            for (value, document) in &done {
                output::print(self.sweep.as_ref().map(|sweep| (&sweep.name, value)), document);
            }
        }
        let document = self.document(done).ok_or("nothing was compared")?;
        let saved = self.save.clone().unwrap_or_else(|| {
            Path::new(FOLDER).join(format!("compare-{}.json", started.unwrap_or_default()))
        });
        output::save(&saved, &document)?;
        if self.json {
            output::print_json(&document)?;
        } else {
            println!("every run: {}", saved.display());
        }
        let drawn = self.draw(document);
        let ended = match stopped {
            Some(why) => {
                let kept = format!("{why}; what was measured is in {}", saved.display());
                Err(Failure::Bad(kept))
            }
            None if differences > 0 => {
                Err(Failure::No(format!("{differences} verdicts name a difference")))
            }
            None => Ok(()),
        };
        // The verdict is the answer also where the page could not be written.
        if ended.is_err()
            && let Err(Failure::Bad(why) | Failure::No(why)) = &drawn
        {
            eprintln!("weir: the report: {why}");
        }
        ended.and(drawn)
    }

    /// All that was compared as one document; none if nothing was.
    fn document(&self, done: Vec<(String, CompareDocument)>) -> Option<Document> {
        let Some(sweep) = &self.sweep else {
            return done.into_iter().next().map(|(_, d)| Document::Compare(Box::new(d)));
        };
        let points = done.into_iter().map(|(value, document)| Point { value, document }).collect();
        let name = sweep.name.clone();
        let sweep = SweepDocument { name, points, ..SweepDocument::default() };
        Some(Document::Sweep(Box::new(sweep)))
    }

    fn draw(&self, document: Document) -> Result<(), Failure> {
        let (words, table) = (self.markdown.as_deref(), self.csv.as_deref());
        let page = self.report.clone().unwrap_or_else(|| {
            // Beside what is saved there by default, which may have been saved elsewhere.
            let _ = std::fs::create_dir_all(FOLDER);
            Path::new(FOLDER).join(PAGE)
        });
        report::write(&[document], Some(&page), words, table)?;
        if !self.json {
            println!("report: {}", page.display());
        }
        Ok(())
    }

    fn target(&self) -> &str {
        self.target.as_deref().unwrap_or(TARGET)
    }

    /// What is compared, checked as far as text can be.
    fn variants(&self) -> Result<Vec<Variant>, Failure> {
        let given = self.variants.given();
        if !self.kernel_scheduler.is_empty() {
            if let Some((name, _)) = given.first() {
                let why = format!("--{name} and --kernel-scheduler both say what the variants are");
                return Err(Failure::Bad(why));
            }
            return self.kernel_variants();
        }
        let defaults = [("a", "queue_mode=sq"), ("b", "queue_mode=mq")];
        let given = if given.is_empty() { defaults.to_vec() } else { given };
        if let [(name, _)] = given[..] {
            return Err(Failure::Bad(format!("--{name} alone has nothing to be compared with")));
        }
        let made: Result<Vec<Variant>, String> = given
            .iter()
            .map(|(name, options)| Variant::new(name, self.target(), options))
            .collect();
        let made = made?;
        if !self.same {
            all_differ(&made)?;
        }
        Ok(made)
    }

    /// One variant for each of the kernel's schedulers, with none of weir's in front.
    fn kernel_variants(&self) -> Result<Vec<Variant>, Failure> {
        let names = &self.kernel_scheduler;
        if names.len() < 2 {
            let only = names.join("");
            let why =
                format!("--kernel-scheduler {only}: one scheduler has nothing to be compared with");
            return Err(Failure::Bad(why));
        }
        let mut seen = BTreeSet::new();
        if let Some(twice) = names.iter().find(|name| !seen.insert(*name))
            && !self.same
        {
            return Err(Failure::Bad(format!("--kernel-scheduler names {twice} twice")));
        }
        let target = Target::parse(self.target())?;
        if let Some(own) = target.config.scheduler.filter(|own| own != "none") {
            let why = format!(
                "scheduler={own} of the target stands before the kernel's: only none shows the \
                 kernel's own"
            );
            return Err(Failure::Bad(why));
        }
        let variant = |name: &String| {
            let variant = Variant::new(name, self.target(), "scheduler=none")?;
            let options = serde_json::json!({"kernel_scheduler": name});
            Ok(Variant { options, kernel_scheduler: Some(name.clone()), ..variant })
        };
        let made: Result<Vec<Variant>, String> = names.iter().map(variant).collect();
        Ok(made?)
    }

    /// The comparisons to be made: the value swept, the variants and the words of the job.
    #[allow(clippy::type_complexity)] // Rows of one list, taken apart where they are made.
    fn points(
        &self,
        variants: &[Variant],
    ) -> Result<Vec<(String, Vec<Variant>, Vec<String>)>, Failure> {
        let job = if self.target.is_none() && self.variants.are_options() {
            self.job.or_default(self.sweep.as_ref())
        } else {
            self.job.clone()
        };
        let Some(sweep) = &self.sweep else {
            return Ok(vec![(String::new(), variants.to_vec(), job.words())]);
        };
        let point = |value: &String| {
            if let Some(job) = sweep.on_job(&job, value) {
                return Ok((value.clone(), variants.to_vec(), job?));
            }
            let option = format!("{}={value}", sweep.name);
            let swept: Result<Vec<Variant>, String> =
                variants.iter().map(|variant| variant.with(&option)).collect();
            let swept = swept.map_err(|error| format!("--sweep {}: {error}", sweep.name))?;
            Ok((value.clone(), swept, job.words()))
        };
        let points: Result<Vec<_>, String> = sweep.values.iter().map(point).collect();
        Ok(points?)
    }

    /// The kernel's scheduler in our hands, if that is what is compared.
    fn switch(&self, variants: &[Variant]) -> Result<Option<Switch>, Failure> {
        let Some(first) = variants.first().filter(|v| v.kernel_scheduler.is_some()) else {
            return Ok(None);
        };
        let Backing::File { path, .. } = Target::parse(&first.target)?.backing else {
            let why = format!(
                "--kernel-scheduler: target {:?} is no block device of the kernel: file:/dev/...",
                self.target()
            );
            return Err(Failure::Bad(why));
        };
        let switch = Switch::take(&path, &self.kernel_scheduler)?;
        if switch.recovered && !self.quiet {
            eprintln!("weir: put back first what a comparison that was killed had left switched");
        }
        // Where a panic ends the process no destructor runs.
        let (kept, before) = (switch.kept(), std::panic::take_hook());
        std::panic::set_hook(Box::new(move |panic| {
            if let Err(error) = kept.put_back() {
                eprintln!("weir: {error}");
            }
            before(panic);
        }));
        Ok(Some(switch))
    }
}

fn all_differ(variants: &[Variant]) -> Result<(), Failure> {
    for (position, a) in variants.iter().enumerate() {
        if let Some(b) = variants[position + 1..].iter().find(|b| a.is_like(b)) {
            return Err(Failure::Bad(format!(
                "variants {} and {} are the same, {}; --same compares them all the same",
                a.name, b.name, a.target
            )));
        }
    }
    Ok(())
}

/// What can be read from once SIGINT, SIGTERM or SIGHUP came.
fn signals() -> Result<OwnedFd, Failure> {
    let failed = |e: std::io::Error| format!("signals: {e}");
    let (pipe, writer) = UnixStream::pair().map_err(failed)?;
    for signal in
        [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP]
    {
        let writer = writer.try_clone().map_err(failed)?;
        signal_hook::low_level::pipe::register(signal, writer).map_err(failed)?;
    }
    Ok(pipe.into())
}

/// A folder for what runs write, gone with the value.
struct Scratch(PathBuf);

impl Scratch {
    /// In the folder for such, under a name that nobody could know before.
    fn new() -> Result<Scratch, Failure> {
        const SOURCE: &str = "/dev/urandom";
        let mut random = [0; 8];
        let read = File::open(SOURCE).and_then(|mut source| source.read_exact(&mut random));
        read.map_err(|e| format!("{SOURCE}: {e}"))?;
        let name = format!("weir-compare-{:016x}", u64::from_ne_bytes(random));
        Scratch::at(std::env::temp_dir().join(name))
    }

    /// Ours from the beginning and nobody else's: what is there already may be a stranger's, with
    /// links in it to files that root would then write over.
    fn at(folder: PathBuf) -> Result<Scratch, Failure> {
        let made = DirBuilder::new().mode(0o700).create(&folder);
        made.map_err(|e| format!("{}: {e}", folder.display()))?;
        Ok(Scratch(folder))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed is a few files in the folder for such.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_folder_of_runs_is_new_closed_to_others_and_never_one_that_was_there() {
        let scratch = Scratch::new().expect("a folder");
        let mode = std::fs::metadata(&scratch.0).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        assert!(Scratch::at(scratch.0.clone()).is_err(), "it was there");
        let other = Scratch::new().expect("a folder");
        assert_ne!(scratch.0, other.0);
        let link = scratch.0.join("link");
        std::os::unix::fs::symlink(&other.0, &link).expect("a link");
        assert!(Scratch::at(link).is_err(), "a link to a folder");
    }
}
