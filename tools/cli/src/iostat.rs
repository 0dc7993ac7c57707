//! `weir iostat`: what the disks of a running daemon do, in the columns of sysstat's iostat.

use std::fs;
use std::io::{self, Write};
use std::time::{Duration, Instant, SystemTime};

use clap::Args;
use serde_json::{Map, json};
use weir_bench::results::document::utc;
use weir_control::ControlClient;
use weir_trace::document::{IostatDisk, IostatDocument, IostatKind, IostatReport};
use weir_trace::iostat::{
    Change, Column, Counters, CpuTicks, EXTENDED, PLAIN, SHORT, cpu_lines, heading, in_megabytes,
    parse, parse_cpu, row,
};

use crate::Failure;
use crate::control::Control;
use crate::output::print_line;

/// Shows what the disks of a running daemon and the CPUs of the machine do, as iostat does.
///
/// The first report is the average since the daemon took up the disk, as iostat's is since boot;
/// of the CPUs it is since boot. Each further one covers the interval before it.
///
/// Example: weir iostat -x sda 1 10
#[derive(Debug, Args)]
#[command(verbatim_doc_comment, override_usage = "weir iostat [OPTIONS] [DISK] [INTERVAL [COUNT]]")]
pub(crate) struct Iostat {
    /// A disk (all if not given), seconds between reports, and how many reports.
    #[arg(value_name = "DISK|INTERVAL|COUNT", num_args = 0..=3)]
    what: Vec<String>,
    /// Extended statistics: waits, sizes, merges, queue and use.
    #[arg(short = 'x', long)]
    extended: bool,
    /// The short form of those: all directions together.
    #[arg(short, long)]
    short: bool,
    /// The disks without the CPUs.
    #[arg(short, long)]
    disks: bool,
    /// The CPUs of the machine; without --disks no disk.
    #[arg(short, long)]
    cpu: bool,
    /// Kilobytes, as without it.
    #[arg(short, long, overrides_with = "megabytes")]
    kilobytes: bool,
    /// Megabytes in place of kilobytes.
    #[arg(short, long, overrides_with = "kilobytes")]
    megabytes: bool,
    /// Leaves the first report out, where there are further ones.
    #[arg(short = 'y', long)]
    omit_first: bool,
    /// Puts the time before each report, UTC.
    #[arg(short, long)]
    time: bool,
    /// One JSON document on standard output and nothing else, with the extended statistics of
    /// disks; with an interval it needs a count.
    #[arg(long, conflicts_with_all = ["disks", "cpu", "megabytes", "time"])]
    json: bool,
    #[command(flatten)]
    control: Control,
}

/// The disks and the interval asked for.
#[derive(Debug, PartialEq)]
struct Asked {
    disk: Option<String>,
    interval: Option<Duration>,
    count: Option<u64>,
}

/// Shortest and longest interval, seconds.
const INTERVAL_S: std::ops::RangeInclusive<f64> = 0.1..=86_400.0;

/// Reads `[DISK] [INTERVAL [COUNT]]`: a first word that is a number is an interval, unless two
/// numbers follow it.
fn asked(words: &[String]) -> Result<Asked, String> {
    let numbers = |words: &[String]| words.iter().all(|word| word.parse::<f64>().is_ok());
    let (disk, times) = match words {
        [disk, times @ ..] if times.len() == 2 || !numbers(words) => (Some(disk.clone()), times),
        times => (None, times),
    };
    let interval = times.first().map(|word| {
        let seconds = word.parse::<f64>().ok().filter(|seconds| INTERVAL_S.contains(seconds));
        let why = || {
            let (least, most) = (INTERVAL_S.start(), INTERVAL_S.end());
            format!("INTERVAL={word} is not a number of seconds in {least}..={most}")
        };
        seconds.map(Duration::from_secs_f64).ok_or_else(why)
    });
    let count = times.get(1).map(|word| {
        let count = word.parse::<u64>().ok().filter(|count| *count > 0);
        count.ok_or_else(|| format!("COUNT={word} is not a whole number above 0"))
    });
    Ok(Asked { disk, interval: interval.transpose()?, count: count.transpose()? })
}

/// Counters of disks, and when they were read.
pub(crate) struct Reading {
    pub(crate) disks: Vec<(String, Counters)>,
    pub(crate) at: Instant,
}

impl Reading {
    /// Reads the counters of every disk at once.
    pub(crate) fn take(client: &mut ControlClient) -> Result<Reading, Failure> {
        let text = client.read("proc/diskstats")?;
        let at = Instant::now();
        let disks = parse(&text).map_err(|error| Failure::Bad(error.to_string()))?;
        Ok(Reading { disks, at })
    }

    /// The difference to an earlier reading, of the disks that are in both.
    pub(crate) fn since(&self, before: &Reading) -> Vec<(String, Change)> {
        let seconds = self.at.duration_since(before.at).as_secs_f64();
        let both = self.disks.iter().filter_map(|(name, after)| {
            let (_, earlier) = before.disks.iter().find(|(known, _)| known == name)?;
            Some((name.clone(), Change::between(earlier, after, seconds)))
        });
        both.collect()
    }
}

/// The figures since the daemon took up each disk.
fn since_start(
    client: &mut ControlClient,
    reading: &Reading,
) -> Result<Vec<(String, Change)>, Failure> {
    let change = |(name, counters): &(String, Counters)| {
        let text = client.read(&format!("class/block/{name}/weir/uptime_ms"))?;
        let millis: f64 = text.trim().parse().unwrap_or(0.0);
        Ok((name.clone(), Change::between(&Counters::default(), counters, millis / 1000.0)))
    };
    reading.disks.iter().map(change).collect()
}

impl Iostat {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let asked = asked(&self.what)?;
        if self.json && asked.interval.is_some() && asked.count.is_none() {
            let what = "--json prints one document at the end: it needs a COUNT behind INTERVAL";
            return Err(Failure::Bad(String::from(what)));
        }
        let mut output = self.output()?;
        match self.report(&asked, &mut output) {
            Err(Stop::Daemon(failure)) => return Err(failure),
            // The reader has seen enough.
            Err(Stop::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            Err(Stop::Output(error)) => {
                return Err(Failure::Bad(format!("standard output: {error}")));
            }
            Ok(()) => {}
        }
        if let Some(mut document) = output.document {
            document.kind = IostatKind::Iostat;
            print_line(&json!(document).to_string())?;
        }
        Ok(())
    }

    /// What each report has, and where it goes.
    fn output(&self) -> Result<Output, Failure> {
        let columns: &[Column] = match (self.short, self.extended || self.json) {
            (true, _) => &SHORT,
            (false, true) => &EXTENDED,
            (false, false) => &PLAIN,
        };
        let has_cpu = !self.json && (self.cpu || !self.disks);
        let cpu = has_cpu.then(|| Cpu { before: CpuTicks::default() });
        Ok(Output {
            columns: if self.megabytes && !self.kilobytes {
                in_megabytes(columns)
            } else {
                columns.to_vec()
            },
            cpu,
            has_disks: self.disks || !self.cpu,
            has_time: self.time,
            document: self.json.then(IostatDocument::default),
        })
    }

    fn report(&self, asked: &Asked, output: &mut Output) -> Result<(), Stop> {
        // A daemon lets go of a client that is silent for long, so each reading is a new one.
        let mut client = self.control.connect()?;
        let mut before = Reading::take(&mut client)?;
        if let Some(disk) = &asked.disk
            && before.disks.iter().all(|(name, _)| name != disk)
        {
            let names: Vec<_> = before.disks.iter().map(|(name, _)| name.as_str()).collect();
            let why = format!("no disk {disk:?}; there are {}", names.join(", "));
            return Err(Stop::Daemon(Failure::Bad(why)));
        }
        let first = wanted(since_start(&mut client, &before)?, asked);
        drop(client);
        let is_left_out = self.omit_first && asked.interval.is_some();
        match is_left_out {
            true => output.pass()?,
            false => output.put(true, &first)?,
        }
        let Some(interval) = asked.interval else { return Ok(()) };
        let mut next = before.at + interval;
        let reports = asked.count.unwrap_or(u64::MAX);
        // As many as asked for, whichever is the first.
        for _ in u64::from(!is_left_out)..reports {
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
            let after = Reading::take(&mut self.control.connect()?)?;
            output.put(false, &wanted(after.since(&before), asked))?;
            // After a machine stood still, the reports of that time are not made up for.
            next = (next + interval).max(after.at);
            before = after;
        }
        Ok(())
    }
}

fn wanted(mut changes: Vec<(String, Change)>, asked: &Asked) -> Vec<(String, Change)> {
    if let Some(disk) = &asked.disk {
        changes.retain(|(name, _)| name == disk);
    }
    changes
}

/// Why there are no more reports.
enum Stop {
    Daemon(Failure),
    Output(io::Error),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Stop {
        Stop::Daemon(failure)
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Stop {
        Stop::Output(error)
    }
}

/// Where reports go: to standard output at once, or into a document.
struct Output {
    columns: Vec<Column>,
    /// The CPUs, if they are to be in it.
    cpu: Option<Cpu>,
    has_disks: bool,
    has_time: bool,
    document: Option<IostatDocument>,
}

/// The time of the CPUs at the last report.
struct Cpu {
    before: CpuTicks,
}

impl Cpu {
    /// The lines on the time since the last report.
    fn lines(&mut self) -> Result<[String; 2], Failure> {
        let text = fs::read_to_string(STAT).map_err(|error| format!("{STAT}: {error}"))?;
        let now = parse_cpu(&text).ok_or_else(|| format!("{STAT} has no line `cpu` of numbers"))?;
        let lines = cpu_lines(&self.before, &now);
        self.before = now;
        Ok(lines)
    }
}

const STAT: &str = "/proc/stat";

impl Output {
    /// Passes over a report: the next one is of the time after it.
    fn pass(&mut self) -> Result<(), Stop> {
        if let Some(cpu) = &mut self.cpu {
            cpu.lines()?;
        }
        Ok(())
    }

    fn put(&mut self, is_first: bool, changes: &[(String, Change)]) -> Result<(), Stop> {
        let seconds = changes.iter().map(|(_, change)| change.seconds()).fold(0.0, f64::max);
        if let Some(document) = &mut self.document {
            let disks = changes.iter().map(|(name, change)| {
                let value =
                    |column: &Column| (String::from(column.name), json!(column.value(change)));
                let columns: Map<_, _> = self.columns.iter().map(value).collect();
                IostatDisk { name: name.clone(), columns }
            });
            let disks = disks.collect();
            document.reports.push(IostatReport {
                since_start: is_first,
                interval_s: seconds,
                disks,
            });
            return Ok(());
        }
        let mut text = String::new();
        if self.has_time {
            // As iostat has it where S_TIME_FORMAT is ISO.
            let time = utc(SystemTime::now());
            text.push_str(&format!("{}+0000\n", time.trim_end_matches('Z')));
        }
        if is_first && self.has_disks {
            text.push_str(&format!("averages since the start, {seconds:.1} s ago\n"));
        }
        if let Some(cpu) = &mut self.cpu {
            text.push_str(&format!("{}\n\n", cpu.lines()?.join("\n")));
        }
        if self.has_disks {
            text.push_str(&heading(&self.columns));
            text.push('\n');
            for (name, change) in changes {
                text.push_str(&row(&self.columns, name, change));
                text.push('\n');
            }
            text.push('\n');
        }
        let mut stdout = io::stdout().lock();
        stdout.write_all(text.as_bytes())?;
        Ok(stdout.flush()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Result<Asked, String> {
        asked(&words.iter().map(|word| String::from(*word)).collect::<Vec<_>>())
    }

    #[test]
    fn words_are_a_disk_an_interval_and_a_count() {
        let found = |disk: Option<&str>, seconds: Option<u64>, count| {
            let disk = disk.map(String::from);
            Ok(Asked { disk, interval: seconds.map(Duration::from_secs), count })
        };
        assert_eq!(read(&[]), found(None, None, None));
        assert_eq!(read(&["sda"]), found(Some("sda"), None, None));
        assert_eq!(read(&["2"]), found(None, Some(2), None));
        assert_eq!(read(&["2", "5"]), found(None, Some(2), Some(5)));
        assert_eq!(read(&["sda", "2", "5"]), found(Some("sda"), Some(2), Some(5)));
        assert_eq!(read(&["7", "2", "5"]), found(Some("7"), Some(2), Some(5)));
    }

    #[test]
    fn an_interval_or_count_that_is_none_is_refused_with_its_bounds() {
        assert_eq!(
            read(&["sda", "0"]),
            Err(String::from("INTERVAL=0 is not a number of seconds in 0.1..=86400"))
        );
        assert!(read(&["sda", "NaN"]).is_err() && read(&["sda", "x"]).is_err());
        assert_eq!(
            read(&["sda", "1", "0"]),
            Err(String::from("COUNT=0 is not a whole number above 0"))
        );
    }
}
