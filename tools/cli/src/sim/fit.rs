//! `weir sim fit`: a model of a disk from a recording of it, or from jobs that are run on it.

mod measure;

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};
use weir_access::save;
use weir_sched::replay::Recording;
use weir_sim::fit::{Held, Model, Pair, recorded};

use super::{table, told};
use crate::output::{print, print_line};
use crate::{Failure, log};

/// Fits a model of a disk to a recording of it, or to jobs that it runs on a target, and says how
/// far off a model of one part is on another that was held back from it.
///
/// The model is a file for weir sim run, and for the target model:FILE.toml. It holds what it was
/// fitted to: commands at once, sizes, directions. A simulation that goes beyond is refused.
///
/// From a recording (weir record) come the times of the disk: fitted to and held back are
/// stretches of time in turn. With --target they come from random reads at some depths without a
/// scheduler, and with them what an I/O costs the processor here, and what each scheduler adds on a
/// null device; fitted to and held back are rounds in turn, and the model that is written is of all
/// of them. --predict measures jobs under schedulers that it is not fitted to beside them.
///
/// Example: weir sim fit --target ram:64MiB --rounds 2 --runtime 50ms -o disk.toml
/// Example: weir sim run disk.toml --set queue.scheduler=none,bfq --set process.job.depth=1,8,32
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Fit {
    /// A recording of weir record.
    recording: Option<PathBuf>,
    /// Runs jobs on this target instead; nothing is written to it.
    #[arg(long, conflicts_with = "recording")]
    target: Option<String>,
    #[command(flatten)]
    jobs: measure::Jobs,
    /// Write the model to this file.
    #[arg(short, long, value_name = "MODEL.toml")]
    output: Option<PathBuf>,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
    /// Do not say what is measured.
    #[arg(long)]
    quiet: bool,
}

impl Fit {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        if let Some(path) = &self.output {
            if path.extension().is_none_or(|of| of != "toml") {
                let what = format!("-o {}: the name of a model ends in .toml", path.display());
                return Err(Failure::Bad(what));
            }
            save::probe(path).map_err(|error| bad(path, &error))?;
        }
        let (source, model) = match (&self.recording, &self.target) {
            (Some(recording), _) => self.of_recording(recording)?,
            (None, Some(target)) => self.jobs.run(target, self.quiet)?,
            (None, None) => {
                let what = "a recording, or --target: there is nothing to fit to";
                return Err(Failure::Bad(String::from(what)));
            }
        };
        if let Some(path) = &self.output {
            let text = model.text(&source);
            save::save(path, text.as_bytes()).map_err(|error| bad(path, &error))?;
        }
        match self.json {
            true => print_line(&self.document(&source, &model).to_string()),
            false => print(&self.text(&model)),
        }
    }

    fn of_recording(&self, path: &Path) -> Result<(String, Model), Failure> {
        if let Some(flag) = self.jobs.first_given() {
            let what = format!("{flag} is of jobs on a --target, and a recording has its own");
            return Err(Failure::Bad(what));
        }
        let bytes = std::fs::read(path).map_err(|error| bad(path, &error))?;
        let recording = Recording::read(&bytes).map_err(|error| bad(path, &error))?;
        let model = recorded::fit(&recording).map_err(|error| bad(path, &error))?;
        if !self.quiet && model.disk.at.len() == 1 {
            let depth = model.disk.most_in_flight();
            log::say(&format!(
                "{}: commands at once were {depth} nearly always, and the model is for that alone: \
                 record the disk under several depths for more",
                path.display()
            ));
        }
        Ok((format!("the recording {}", path.display()), model))
    }

    fn text(&self, model: &Model) -> String {
        let heads =
            ["scheduler", "at once", "op", "commands", "metric", "measured", "model", "error"];
        let mut rows = vec![heads.map(String::from)];
        for (scheduler, held) in beside(model) {
            for (metric, Pair { measured, model }, off) in figures(held) {
                let Held { in_flight, op, commands, .. } = held;
                rows.push([
                    scheduler.map_or_else(|| String::from("held back"), String::from),
                    in_flight.to_string(),
                    String::from(*op),
                    commands.to_string(),
                    String::from(metric),
                    told(measured),
                    told(model),
                    format!("{off:+.1} %"),
                ]);
            }
        }
        let written = match &self.output {
            Some(path) => format!("the model is in {}\n", path.display()),
            None => String::from("the model is not kept: -o MODEL.toml keeps it\n"),
        };
        table(&rows) + &written
    }

    fn document(&self, source: &str, model: &Model) -> Value {
        let rows = beside(model).flat_map(|(scheduler, held)| {
            figures(held).map(move |(metric, Pair { measured, model }, off)| {
                json!({"scheduler": scheduler,
                       "in_flight": held.in_flight, "op": held.op, "commands": held.commands,
                       "metric": metric, "source": measured, "value": model, "error_pct": off})
            })
        });
        let disk = &model.disk;
        let seen: Vec<u32> = disk.at.iter().map(|level| level.in_flight).collect();
        json!({
            "source": source,
            "model": model.text(source),
            "file": self.output.as_ref().map(|path| path.display().to_string()),
            "seen": {"in_flight": seen, "sizes": [disk.least_size, disk.most_size],
                     "read_percent": disk.read_percent,
                     "access": format!("{:?}", disk.access).to_lowercase()},
            "rows": rows.collect::<Vec<Value>>(),
        })
    }
}

/// What the model is held against: jobs that were held back, and those under a scheduler that it
/// predicts.
fn beside(model: &Model) -> impl Iterator<Item = (Option<&str>, &Held)> {
    let held_back = model.held_back.iter().map(|held| (None, held));
    held_back.chain(model.predicted.iter().map(|one| (Some(one.scheduler.as_str()), &one.held)))
}

/// The figures of a line, each with how far the model is off.
fn figures(held: &Held) -> [(&'static str, Pair, f64); 3] {
    [("iops", held.rate), ("p50_us", held.p50_us), ("p99_us", held.p99_us)]
        .map(|(metric, pair)| (metric, pair, pair.error_pct()))
}

fn bad(path: &Path, why: &dyn std::fmt::Display) -> Failure {
    Failure::Bad(format!("{}: {why}", path.display()))
}
