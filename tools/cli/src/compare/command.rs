//! `weir compare --run COMMAND`: the user's own workload on a mounted disk, under each of the
//! kernel's schedulers.

use std::ops::RangeInclusive;
use std::time::Duration;

use clap::Args;
use weir_bench::compare::command::figure::Pattern;
use weir_bench::compare::command::{self, CommandWork};
use weir_bench::compare::{Disk, Plan, Switch, Variant, Work};

use super::leaving::{Scratch, signals};
use super::{Compare, judging, output, seed_of_the_clock};
use crate::Failure;
use crate::compare::flags::time;

/// How long a command may take.
const TIMEOUT: RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_secs(7 * 24 * 3600);

/// Under which they stand in the help.
const HEADING: &str = "A command of yours, with --kernel-scheduler";

/// Flags of a command that is run.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct CommandFlags {
    /// The disk whose scheduler is switched: sda, /dev/sda, a partition, a mapped device on one
    /// disk, or a path on a mounted file system.
    #[arg(long, help_heading = HEADING, value_name = "DEV", requires = "run")]
    pub(super) device: Option<String>,
    /// The command, for sh -c. It has WEIR_VARIANT, WEIR_SCHEDULER, WEIR_ROUND and WEIR_DEVICE in
    /// its environment.
    #[arg(
        long,
        help_heading = HEADING,
        value_name = "COMMAND",
        requires_all = ["device", "kernel_scheduler"],
        conflicts_with_all = ["target", "sweep", "destroy", "prepare", "runtime", "ramp_time"]
    )]
    pub(super) run: Option<String>,
    /// Compare what it prints: the first group of the last match of this pattern, or the group
    /// called value. If not given, the time that it takes.
    #[arg(long, help_heading = HEADING, value_name = "REGEX", requires = "run")]
    figure: Option<String>,
    /// The unit of that: of a time (ns, us, ms, s, min) less is faster. A group called unit in the
    /// pattern says it too.
    #[arg(long, help_heading = HEADING, value_name = "UNIT", requires = "figure")]
    unit: Option<String>,
    /// Run this once before all rounds; what it leaves in the background ends with them.
    #[arg(long, help_heading = HEADING, value_name = "COMMAND", requires = "run")]
    setup: Option<String>,
    /// Run this before each run, outside of its time.
    #[arg(long, help_heading = HEADING, value_name = "COMMAND", requires = "run")]
    between: Option<String>,
    /// How long any of these may take before it is ended and has failed: 1h if not given.
    #[arg(
        long,
        help_heading = HEADING,
        value_name = "TIME",
        requires = "run",
        value_parser = time(TIMEOUT)
    )]
    run_timeout: Option<Duration>,
}

/// How long a command may take where nothing is said.
const USUAL_TIMEOUT: Duration = Duration::from_secs(3600);

impl CommandFlags {
    fn pattern(&self) -> Result<Option<Pattern>, String> {
        let unit = self.unit.as_deref().unwrap_or_default();
        let pattern = self.figure.as_deref().map(|text| Pattern::new(text, unit));
        pattern.transpose().map_err(|why| format!("--figure {why}"))
    }
}

impl Compare {
    /// Makes the comparison with a command.
    pub(super) fn run_command(mut self) -> Result<(), Failure> {
        if let Some(given) = self.job.first_given().or_else(|| self.first_variant()) {
            let why = format!("{given} and --run both say what is run or compared");
            return Err(Failure::Bad(why));
        }
        self.check_kernel_names()?;
        self.check_command_metric()?;
        let figure = self.command.pattern()?;
        let seed = *self.randseed.get_or_insert_with(seed_of_the_clock);
        let variants: Vec<Variant> = self
            .kernel_names()
            .map(|(name, scheduler)| Variant::of_kernel(&name, scheduler))
            .collect();
        let disk = Disk::named(self.command.device.as_deref().unwrap_or_default())?;
        let stop = signals()?;
        // Whether it may is known by this; the disk is as before if anything is refused later.
        let switch = self.kept(Switch::take_disk(&disk, &self.kernel_scheduler)?);
        self.outputs().try_for_each(output::probe)?;
        let folder = Scratch::new()?;
        let timeout = self.command.run_timeout.unwrap_or(USUAL_TIMEOUT);
        let setup = self
            .command
            .setup
            .as_deref()
            .map(|setup| command::set_up(setup, &disk, folder.path(), timeout, &stop));
        let setup = setup.transpose()?;
        let work = CommandWork {
            command: self.command.run.clone().unwrap_or_default(),
            between: self.command.between.clone(),
            figure,
            timeout,
            disk,
            folder: folder.path().to_owned(),
        };
        let plan = Plan {
            variants: &variants,
            work: Work::Command(&work),
            length: self.length(),
            earlier: self.earlier(),
            seed,
            judging: judging(&self),
            switch: Some(&switch),
            stop: &stop,
        };
        let mut compared = self.at("", &plan);
        let stopped = compared.stopped.take();
        drop(setup);
        // The scheduler is put back before results are written: other programs use the disk.
        let back = switch.put_back();
        let ended = self.end(vec![(String::new(), compared.document)], stopped);
        back?;
        ended
    }

    /// That a command has the primary metric.
    fn check_command_metric(&self) -> Result<(), Failure> {
        let has_figure = self.command.figure.is_some();
        let metric = self.metric.as_deref().unwrap_or_default();
        let why = match metric {
            "commits_per_s" => "only the preset oltp commits",
            "latency_p50_ns" | "latency_p99_ns" => "the kernel counts means alone",
            "cpu_ns_per_io" => "of a command machine_cpu_ns is compared",
            "figure" | "figure_ns" if !has_figure => "there is no --figure",
            "makespan_ns" if has_figure => "the time it takes is compared without --figure",
            _ => return Ok(()),
        };
        Err(Failure::Bad(format!("--metric {metric}: {why}")))
    }
}
