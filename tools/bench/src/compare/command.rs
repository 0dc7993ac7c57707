//! The user's own command in the place of a run of weir's: what it took, what it printed, and what
//! the device below did meanwhile.
//!
//! It runs in a shell, in a process group of its own, with its output in a file. Before each run
//! what is dirty in the page cache is written, so that no run writes for the one before it; the
//! cache itself stays as it is.

mod counters;
pub mod figure;
mod group;
pub mod table;

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde_json::json;
use weir_trace::document::{
    Bench, BenchDocument, CommandRun, Core, Cpu, Figure, Figures, Group as Part, LatencyNs,
};

use super::disk::Disk;
use super::rounds::Stop;
use super::variant::Variant;
use crate::cpu::{CpuTime, PerCpu};
use crate::results::document::environment;
use crate::results::outcome::machine_s;
use counters::Counters;
use figure::Pattern;
use group::Kept;

/// A command that is run in each round.
#[derive(Debug)]
pub struct CommandWork {
    /// The command, for `sh -c`.
    pub command: String,
    /// What is run before each run, outside of its time.
    pub between: Option<String>,
    /// What it is compared by; none: the time that it takes.
    pub figure: Option<Pattern>,
    /// How long it may take.
    pub timeout: Duration,
    /// The disk whose scheduler is switched.
    pub disk: Disk,
    /// A folder of its own for its output.
    pub folder: PathBuf,
}

/// The assumed length of a run before there was one.
pub const UNKNOWN: Duration = Duration::from_secs(10);
/// How long it may take to write what is dirty in the page cache, of all file systems.
const WRITTEN: Duration = Duration::from_secs(600);
/// How much of the end of an output is searched, bytes.
const SEARCHED: u64 = 4 << 20;
/// How much of it is kept: lines, and bytes.
const LINES: usize = 12;
const KEPT: usize = 2000;

/// The ways in which a wait ends.
#[derive(Debug, PartialEq)]
enum Over {
    /// What was waited for has ended; a process has not been waited for yet.
    Ended,
    /// The time was up.
    TimedOut,
    /// This process was asked to end.
    Asked,
}

/// The machine and the device at one moment.
struct Moment {
    at: Instant,
    device: Option<Counters>,
    cpus: PerCpu,
    children: CpuTime,
}

/// A run that has ended.
struct Ended {
    /// Why it failed; none if it did not.
    failure: Option<String>,
    took: Duration,
    cpu: CpuTime,
    /// Processes that it left behind.
    left: usize,
    before: Moment,
    after: Moment,
}

impl CommandWork {
    /// Runs it once, to its end or until `stop` can be read from. The failure of the command itself
    /// is in the document.
    ///
    /// # Errors
    /// That it was stopped, could not be started, or printed no figure; a failure of what is run
    /// before it.
    pub fn run(
        &self,
        variant: &Variant,
        round: u32,
        stop: &OwnedFd,
    ) -> Result<BenchDocument, Stop> {
        if let Some(between) = &self.between {
            let ended = self.shell(between, variant, round, stop)?;
            if let Some(why) = ended.failure {
                let said = last_lines(&self.output().map_err(failed)?);
                return Err(failed(format!("--between: it {why}{}", behind(&said))));
            }
        }
        match write_dirty(stop, WRITTEN).map_err(|error| failed(error.to_string()))? {
            Over::Ended => {}
            Over::Asked => return Err(Stop::Interrupted),
            Over::TimedOut => {
                return Err(failed(format!(
                    "what was dirty in the page cache of this machine was not written within \
                     {WRITTEN:?} (sync)"
                )));
            }
        }
        let started = SystemTime::now();
        let ended = self.shell(&self.command, variant, round, stop)?;
        let output = self.output().map_err(failed)?;
        let said = last_lines(&output);
        let figure = match &self.figure {
            Some(pattern) if ended.failure.is_none() => {
                let found = pattern.find(&output).map_err(|why| {
                    failed(format!("{why}{}{}", self.not_searched(), behind(&said)))
                })?;
                Some(found)
            }
            _ => None,
        };
        Ok(self.document(variant, &ended, figure, said, started))
    }

    /// Runs a command in a shell, and ends what it leaves behind.
    fn shell(
        &self,
        command: &str,
        variant: &Variant,
        round: u32,
        stop: &OwnedFd,
    ) -> Result<Ended, Stop> {
        let scheduler = variant.kernel_scheduler.as_deref().unwrap_or_default();
        let environment = [
            ("WEIR_VARIANT", variant.name.as_str()),
            ("WEIR_ROUND", &round.to_string()),
            ("WEIR_SCHEDULER", scheduler),
            ("WEIR_DEVICE", &self.disk.name),
        ];
        let mut shell = shell(command, &self.output_file()).map_err(failed)?;
        shell.envs(environment);
        let before = Moment::now(&self.disk);
        let mut kept = Kept::start(&mut shell).map_err(|error| failed(format!("sh: {error}")))?;
        let over = until_over(kept.pid(), stop, self.timeout);
        let after = Moment::now(&self.disk);
        let over = over.map_err(|error| failed(error.to_string()))?;
        if over == Over::Asked {
            return Err(Stop::Interrupted);
        }
        if over == Over::TimedOut {
            kept.group().end();
        }
        let (left, of_left) = kept.group().end_others();
        let failure = match over {
            Over::TimedOut => Some(format!("did not end within {:?}", self.timeout)),
            _ => kept.failure().map_err(|error| failed(error.to_string()))?,
        };
        kept.wait().map_err(|error| failed(error.to_string()))?;
        let of_tree = CpuTime::of_children();
        let cpu = CpuTime {
            user: of_tree.user.saturating_sub(before.children.user) + of_left.user,
            system: of_tree.system.saturating_sub(before.children.system) + of_left.system,
        };
        Ok(Ended { failure, took: after.at - before.at, cpu, left, before, after })
    }

    fn output_file(&self) -> PathBuf {
        self.folder.join("output")
    }

    fn output(&self) -> Result<String, String> {
        let path = self.output_file();
        end_of(&path).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// That not all of a long output was searched.
    fn not_searched(&self) -> String {
        let length = std::fs::metadata(self.output_file()).map_or(0, |data| data.len());
        match length > SEARCHED {
            true => format!(", of which the last {} MiB are searched", SEARCHED >> 20),
            false => String::new(),
        }
    }

    fn document(
        &self,
        variant: &Variant,
        ended: &Ended,
        figure: Option<Figure>,
        said: String,
        started: SystemTime,
    ) -> BenchDocument {
        let Ended { took, before, after, .. } = ended;
        let (device, figures, groups) = of_device(&self.disk.name, before, after, *took);
        let cores: Vec<Core> =
            after.cpus.since(&before.cpus).within(*took).0.iter().map(Core::from).collect();
        let cpu = cpu(ended, &cores, figure.as_ref());
        let makes = self.figure.is_none() && ended.failure.is_none();
        let figure_job = self.figure.as_ref().map(Pattern::text);
        let bench = Bench {
            weir: String::from(env!("CARGO_PKG_VERSION")),
            target: self.disk.name.clone(),
            options: variant.options.as_object().cloned().unwrap_or_default(),
            job: json!({
                "name": "run", "run": self.command, "between": self.between,
                "figure": figure_job, "time_based": false,
            }),
            duration_s: took.as_secs_f64(),
            makespan_ns: makes.then_some(took.as_nanos() as u64),
            figures,
            groups,
            cpu,
            cores: cores.clone(),
            command_run: Some(CommandRun {
                command: self.command.clone(),
                scheduler: variant.kernel_scheduler.clone().unwrap_or_default(),
                wall_s: took.as_secs_f64(),
                figure,
                device,
                output: said,
            }),
            ..Bench::default()
        };
        let failure = ended.failure.as_ref().map(|why| format!("the command {why}"));
        let notices = self.notices(ended);
        let environment = environment(started);
        let partial = failure.is_some();
        BenchDocument {
            bench,
            cores,
            environment,
            partial,
            failure,
            notices,
            ..BenchDocument::default()
        }
    }

    fn notices(&self, ended: &Ended) -> Vec<String> {
        let mut notices: Vec<String> = self.disk.notice.clone().into_iter().collect();
        if ended.left > 0 {
            let why = "the command left processes in the background: they were ended with the run";
            notices.push(String::from(why));
        }
        if ended.before.device.is_none() {
            let name = &self.disk.name;
            notices.push(format!("{name} is not counted in /proc/diskstats: no figures of it"));
        } else if self.disk.counts() == Some(false) {
            let name = &self.disk.name;
            notices.push(format!("iostats of {name} is 0: the kernel does not count its I/O"));
        }
        notices
    }
}

/// What is run once before all rounds; what it leaves in the background ends with the value.
#[derive(Debug)]
pub struct Setup {
    _kept: Kept,
}

/// Runs a command before all rounds, to its end.
///
/// # Errors
/// That it was stopped, could not be started, failed, or did not end.
pub fn set_up(
    command: &str,
    disk: &Disk,
    folder: &Path,
    timeout: Duration,
    stop: &OwnedFd,
) -> Result<Setup, String> {
    let path = folder.join("setup");
    let mut shell = shell(command, &path)?;
    shell.env("WEIR_DEVICE", &disk.name);
    let kept = Kept::start(&mut shell).map_err(|error| format!("sh: {error}"))?;
    let over = until_over(kept.pid(), stop, timeout).map_err(|error| error.to_string())?;
    let failure = match over {
        Over::Asked => return Err(String::from("--setup: interrupted")),
        Over::TimedOut => Some(format!("did not end within {timeout:?}")),
        Over::Ended => kept.failure().map_err(|error| error.to_string())?,
    };
    match failure {
        None => Ok(Setup { _kept: kept }),
        Some(why) => {
            let said = last_lines(&end_of(&path).unwrap_or_default());
            Err(format!("--setup: it {why}{}", behind(&said)))
        }
    }
}

fn failed(why: String) -> Stop {
    Stop::Failed { why, measured: None }
}

/// Writes what is dirty in the page cache. One file system whose server does not answer holds that
/// up for ever, so a thread waits for it, and this one for the thread.
fn write_dirty(stop: &OwnedFd, most: Duration) -> io::Result<Over> {
    let (waiting, done) = UnixStream::pair()?;
    std::thread::Builder::new().name(String::from("sync")).spawn(move || {
        rustix::fs::sync();
        drop(done);
    })?;
    until_readable(&waiting.into(), stop, most)
}

/// A shell for a command, with its output in this file, which is a new one: what an earlier command
/// has left running goes on writing to its own.
fn shell(command: &str, output: &Path) -> Result<Command, String> {
    let create = || {
        match std::fs::remove_file(output) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = File::create_new(output)?;
        Ok((file.try_clone()?, file))
    };
    let shown = |error: io::Error| format!("{}: {error}", output.display());
    let (stdout, stderr) = create().map_err(shown)?;
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(command).stdin(Stdio::null()).stdout(stdout).stderr(stderr);
    // A signal from the terminal is for us; the group is ended whole.
    shell.process_group(0);
    Ok(shell)
}

/// Waits for the end of a process, which stays a zombie.
fn until_over(pid: Pid, stop: &OwnedFd, most: Duration) -> io::Result<Over> {
    until_readable(&pidfd_open(pid, PidfdFlags::empty())?, stop, most)
}

/// Waits until a descriptor can be read from.
fn until_readable(ended: &OwnedFd, stop: &OwnedFd, most: Duration) -> io::Result<Over> {
    let began = Instant::now();
    loop {
        let left = most.saturating_sub(began.elapsed());
        let timeout =
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        let mut fds = [PollFd::new(ended, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if fds[1].revents().contains(PollFlags::IN) {
            return Ok(Over::Asked);
        }
        if fds[0].revents().contains(PollFlags::IN) {
            return Ok(Over::Ended);
        }
        if left.is_zero() {
            return Ok(Over::TimedOut);
        }
    }
}

impl Moment {
    fn now(disk: &Disk) -> Moment {
        Moment {
            at: Instant::now(),
            device: Counters::now(&disk.number),
            cpus: PerCpu::now(),
            children: CpuTime::of_children(),
        }
    }
}

/// What the device did between two moments: as such, and as the figures of any run are told.
fn of_device(
    name: &str,
    before: &Moment,
    after: &Moment,
    took: Duration,
) -> (Option<weir_trace::document::DeviceUse>, Figures, Vec<Part>) {
    let known = before.device.as_ref().zip(after.device.as_ref());
    let Some((before, after)) = known else { return (None, Figures::default(), Vec::new()) };
    let device = after.since(before, name, took);
    let seconds = took.as_secs_f64();
    let part = |a_second: f64, bytes: f64, latency: Option<f64>| Figures {
        ios: (a_second * seconds).round() as u64,
        bytes: (bytes * seconds).round() as u64,
        iops: a_second,
        bytes_per_s: bytes,
        latency_ns: LatencyNs { mean: latency.unwrap_or_default(), ..LatencyNs::default() },
        ..Figures::default()
    };
    let read = part(device.reads_per_s, device.read_bytes_per_s, device.read_latency_ns);
    let write = part(device.writes_per_s, device.write_bytes_per_s, device.write_latency_ns);
    let iops = read.iops + write.iops;
    let mean = (read.latency_ns.mean * read.iops + write.latency_ns.mean * write.iops) / iops;
    let all =
        part(iops, read.bytes_per_s + write.bytes_per_s, Some(mean).filter(|n| n.is_finite()));
    let named = |op: &str, figures: Figures| {
        let (name, op) = (String::from(name), String::from(op));
        (figures.ios > 0).then_some(Part { name, op, figures })
    };
    let parts = [named("read", read), named("write", write)].into_iter().flatten().collect();
    (Some(device), all, parts)
}

/// CPU time of the command and of the machine, that of the machine for each of what the command
/// made so many of in a second, or for the whole run where its time is compared.
fn cpu(ended: &Ended, cores: &[Core], figure: Option<&Figure>) -> Cpu {
    let machine_s = machine_s(cores);
    let made = match figure {
        Some(figure) if figure.is_rate() && figure.value > 0.0 => {
            let bytes = if figure.unit == "B/s" { MIB } else { 1.0 };
            Some(figure.value * ended.took.as_secs_f64() / bytes)
        }
        // Of what, it is not said: a run that makes more may have taken more time.
        Some(figure) if !figure.is_time => None,
        _ => Some(1.0),
    };
    Cpu {
        user_s: ended.cpu.user.as_secs_f64(),
        sys_s: ended.cpu.system.as_secs_f64(),
        ns_per_io: None,
        machine_s,
        machine_ns: machine_s.zip(made).map(|(s, made)| s * 1e9 / made),
    }
}

const MIB: f64 = 1_048_576.0;

/// The end of a file, as far as it is searched.
fn end_of(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let from = file.metadata()?.len().saturating_sub(SEARCHED);
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(SEARCHED).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The last lines of an output.
fn last_lines(output: &str) -> String {
    let lines: Vec<&str> = output.trim_end().lines().collect();
    let text = lines[lines.len().saturating_sub(LINES)..].join("\n");
    let from = text.len().saturating_sub(KEPT);
    let from = (from..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or_default();
    String::from(&text[from..])
}

/// The last lines as they stand behind a message.
pub(super) fn behind(said: &str) -> String {
    match said.trim() {
        "" => String::from("; it printed nothing"),
        _ => format!("; the last that it printed:\n{said}"),
    }
}

#[cfg(test)]
mod tests;
