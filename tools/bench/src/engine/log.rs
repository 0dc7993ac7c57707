//! The logs of one clone in fio's format ("Log File Formats" in its HOWTO), a row for each I/O or
//! for each window of time: rows go to their files while the job runs, 64 KiB at a time.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::Write as _;

use weir_bio::{Class, IoPrio, Nanos};
use weir_load::{Job, Logs, Told};

/// Text that is kept until it is written.
const KEPT: usize = 64 << 10;
/// Directions: reads, writes, trims.
const DIRECTIONS: usize = 3;

/// One I/O that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) direction: usize,
    /// Its first byte, and how many.
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    /// From when it was to begin until its end, and the part of it before the device had it.
    pub(crate) total_ns: u64,
    pub(crate) wait_ns: u64,
    pub(crate) issued: Nanos,
    pub(crate) at: Nanos,
    pub(crate) ioprio: IoPrio,
}

/// What a log is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Latency,
    Wait,
    Device,
    Bandwidth,
    Ios,
}

struct Output {
    kind: Kind,
    name: String,
    file: File,
    text: String,
}

/// The I/Os of a window in one direction.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    /// Which window.
    window: u64,
    ios: u64,
    bytes: u64,
    total: Spread,
    wait: Spread,
    device: Spread,
    /// When the last of them ended.
    last: u64,
}

/// Times: their sum and the largest.
#[derive(Clone, Copy, Debug, Default)]
struct Spread {
    sum: u128,
    most: u64,
}

impl Spread {
    fn add(&mut self, ns: u64) {
        self.sum += u128::from(ns);
        self.most = self.most.max(ns);
    }

    fn mean(self, count: u64) -> u64 {
        (self.sum / u128::from(count.max(1))) as u64
    }
}

/// The logs of a clone.
pub(crate) struct Log {
    outputs: Vec<Output>,
    window_ns: u64,
    told: Told,
    offset: bool,
    issue_time: bool,
    /// The job's priority, and the column of it.
    ioprio: IoPrio,
    priority: String,
    whole_priority: bool,
    /// When the job is measured from.
    from: Nanos,
    sums: [Sum; DIRECTIONS],
    /// Why rows are missing.
    failed: Option<String>,
}

impl Log {
    /// The logs of a clone of a job, empty files or the ends of files; `None` if it has none.
    ///
    /// # Errors
    /// A file that cannot be made.
    pub(crate) fn open(job: &Job, clone: u16) -> Result<Option<Box<Log>>, String> {
        let Logs { latency, bandwidth, iops, window_ns, told, .. } = &job.logs;
        let wanted = [
            (latency, Kind::Latency, "lat"),
            (latency, Kind::Wait, "slat"),
            (latency, Kind::Device, "clat"),
            (bandwidth, Kind::Bandwidth, "bw"),
            (iops, Kind::Ios, "iops"),
        ];
        let mut outputs = Vec::new();
        for (name, kind, end) in wanted {
            let Some(name) = name else { continue };
            let name = file_name(job, name, end, clone);
            let mut options = OpenOptions::new();
            options.create(true);
            match job.logs.shared {
                true => options.append(true),
                false => options.write(true).truncate(true),
            };
            let file = options.open(&name).map_err(|e| format!("job {}: {name}: {e}", job.name))?;
            outputs.push(Output { kind, name, file, text: String::new() });
        }
        let IoPrioColumn(priority) = IoPrioColumn::of(job.ioprio, job.logs.priority);
        Ok((!outputs.is_empty()).then(|| {
            Box::new(Log {
                outputs,
                window_ns: *window_ns,
                told: *told,
                offset: job.logs.offset,
                issue_time: job.logs.issue_time,
                ioprio: job.ioprio,
                priority,
                whole_priority: job.logs.priority,
                from: Nanos::ZERO,
                sums: [Sum::default(); DIRECTIONS],
                failed: None,
            })
        }))
    }

    /// Times are told from here on.
    pub(crate) fn begin(&mut self, from: Nanos) {
        self.from = from;
    }

    /// An I/O has ended.
    pub(crate) fn note(&mut self, ended: &Ended) {
        if self.window_ns == 0 {
            self.write_one(ended);
            return;
        }
        let at = ended.at.since(self.from);
        let window = at / self.window_ns;
        if self.sums[ended.direction].window != window {
            self.write_window(ended.direction, self.window_ns);
        }
        let sum = &mut self.sums[ended.direction];
        sum.window = window;
        sum.ios += 1;
        sum.bytes += ended.bytes;
        sum.total.add(ended.total_ns);
        sum.wait.add(ended.wait_ns);
        sum.device.add(ended.total_ns - ended.wait_ns);
        sum.last = at;
    }

    /// The windows that have begun, and whatever is not written yet. The last one goes until the
    /// clone's time was up, if it has one, else until the last I/O.
    ///
    /// # Errors
    /// Rows that could not be written, now or before.
    pub(crate) fn finish(&mut self, until: Option<Nanos>) -> Result<(), String> {
        for direction in 0..DIRECTIONS {
            let Sum { window, last, .. } = self.sums[direction];
            let until = until.map_or(last, |until| until.since(self.from).max(last));
            let passed = until - window * self.window_ns;
            self.write_window(direction, passed.clamp(1, self.window_ns.max(1)));
        }
        self.write_out(0);
        self.failed.take().map_or(Ok(()), Err)
    }

    /// The reason for which rows are missing, once.
    pub(crate) fn take_failure(&mut self) -> Option<String> {
        self.failed.take()
    }

    fn write_one(&mut self, ended: &Ended) {
        let Ended { direction, offset, bytes, total_ns, wait_ns, issued, at, .. } = *ended;
        let ms = at.since(self.from) / 1_000_000;
        for output in &mut self.outputs {
            let (value, of_device) = match output.kind {
                Kind::Latency => (total_ns, false),
                Kind::Wait => (wait_ns, true),
                Kind::Device => (total_ns - wait_ns, true),
                Kind::Bandwidth => (rate(bytes, total_ns) / 1024, false),
                Kind::Ios => (1, false),
            };
            let text = &mut output.text;
            let mut row = format!("{ms}, {value}, {direction}, {bytes}");
            if self.offset {
                write!(row, ", {offset}").expect("a string takes text");
            }
            let own = ended.ioprio != self.ioprio;
            let own = own.then(|| IoPrioColumn::of(ended.ioprio, self.whole_priority).0);
            let priority = own.as_ref().unwrap_or(&self.priority);
            write!(row, ", {priority}").expect("a string takes text");
            if self.issue_time {
                let issued = if of_device { issued.since(self.from) } else { 0 };
                write!(row, ", {issued}").expect("a string takes text");
            }
            writeln!(text, "{row}").expect("a string takes text");
        }
        self.write_out(KEPT);
    }

    /// The row of a direction's window, of which so much is over.
    fn write_window(&mut self, direction: usize, ns: u64) {
        let sum = std::mem::take(&mut self.sums[direction]);
        let Sum { window, ios, bytes, total, wait, device, last } = sum;
        if ios == 0 {
            return;
        }
        let end = if ns == self.window_ns { (window + 1) * ns } else { last };
        // A rate over a moment says nothing.
        let is_rate = |kind| matches!(kind, Kind::Bandwidth | Kind::Ios);
        let is_short = ns < self.window_ns / 10;
        for output in self.outputs.iter_mut().filter(|one| !(is_short && is_rate(one.kind))) {
            let times = |spread: Spread| [spread.mean(ios), spread.most];
            let [mean, most] = match output.kind {
                Kind::Latency => times(total),
                Kind::Wait => times(wait),
                Kind::Device => times(device),
                Kind::Bandwidth => [rate(bytes, ns) / 1024; 2],
                Kind::Ios => [rate(ios, ns); 2],
            };
            let value = match self.told {
                Told::Average => mean.to_string(),
                Told::Most => most.to_string(),
                Told::Both => format!("{mean}, {most}"),
            };
            let (offset, priority) = (if self.offset { ", 0" } else { "" }, &self.priority);
            let issued = if self.issue_time { ", 0" } else { "" };
            let ms = end / 1_000_000;
            writeln!(output.text, "{ms}, {value}, {direction}, 0{offset}, {priority}{issued}")
                .expect("a string takes text");
        }
        self.write_out(KEPT);
    }

    /// Writes text of more bytes than that; after a failure nothing more.
    fn write_out(&mut self, kept: usize) {
        for output in self.outputs.iter_mut().filter(|output| output.text.len() > kept) {
            if let Err(error) = output.file.write_all(output.text.as_bytes()) {
                self.failed.get_or_insert_with(|| format!("log {}: {error}", output.name));
            }
            output.text.clear();
        }
    }
}

/// So many of something in so long, as a rate in a second.
fn rate(count: u64, ns: u64) -> u64 {
    (u128::from(count) * 1_000_000_000 / u128::from(ns.max(1))) as u64
}

/// The file of a log: all clones of a job file are counted, from 1.
fn file_name(job: &Job, name: &str, end: &str, clone: u16) -> String {
    let name = match name {
        "" => job.name.replace('/', "_"),
        name => String::from(name),
    };
    match job.logs.shared {
        true => format!("{name}_{end}.log"),
        false => format!("{name}_{end}.{}.log", job.logs.first.max(1) + u32::from(clone)),
    }
}

/// How rows tell a priority.
struct IoPrioColumn(String);

impl IoPrioColumn {
    fn of(ioprio: IoPrio, whole: bool) -> IoPrioColumn {
        let (class, level) = (ioprio.class(), ioprio.level());
        IoPrioColumn(match whole {
            // Three bits of class above thirteen of level.
            true => format!("0x{:04x}", (class as u16) << 13 | u16::from(level)),
            false => u8::from(class == Class::RealTime).to_string(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn folder(name: &str) -> String {
        let folder = std::env::temp_dir().join(format!("weir-log-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        folder.display().to_string()
    }

    fn log(folder: &str, logs: Logs, ioprio: IoPrio) -> Box<Log> {
        let name = |name: Option<String>| name.map(|name| format!("{folder}/{name}"));
        let Logs { latency, bandwidth, iops, .. } = logs.clone();
        let [latency, bandwidth, iops] = [latency, bandwidth, iops].map(name);
        let logs = Logs { latency, bandwidth, iops, ..logs };
        let job = Job { logs, ioprio, ..Job::default() };
        let mut log = Log::open(&job, 1).expect("it opens").expect("there are logs");
        log.begin(Nanos(7));
        log
    }

    fn ended(direction: usize, at_ms: u64, total_ms: u64, wait_ms: u64) -> Ended {
        let at = Nanos(7 + at_ms * MS);
        Ended {
            direction,
            offset: 8192,
            bytes: 4096,
            total_ns: total_ms * MS,
            wait_ns: wait_ms * MS,
            issued: Nanos(7 + (at_ms - total_ms + wait_ms) * MS),
            at,
            ioprio: IoPrio::new(Class::RealTime, 3),
        }
    }

    fn rows(folder: &str, file: &str) -> Vec<String> {
        let text = std::fs::read_to_string(format!("{folder}/{file}")).expect(file);
        text.lines().map(String::from).collect()
    }

    fn x() -> Option<String> {
        Some(String::from("x"))
    }

    #[test]
    fn each_io_has_a_row_of_what_was_asked_for() {
        let folder = folder("ios");
        let logs = Logs { latency: x(), bandwidth: x(), iops: x(), first: 4, ..Logs::default() };
        let rich = Logs { offset: true, priority: true, issue_time: true, ..logs.clone() };
        let mut log = log(&folder, logs, IoPrio::new(Class::RealTime, 3));
        log.note(&ended(1, 30, 10, 4));
        log.finish(None).expect("it is written");
        for (end, row) in [
            ("lat", "30, 10000000, 1, 4096, 1"),
            ("slat", "30, 4000000, 1, 4096, 1"),
            ("clat", "30, 6000000, 1, 4096, 1"),
            ("bw", "30, 400, 1, 4096, 1"),
            ("iops", "30, 1, 1, 4096, 1"),
        ] {
            assert_eq!(rows(&folder, &format!("x_{end}.5.log")), [row], "{end}");
        }
        let mut log = super::tests::log(&folder, rich, IoPrio::new(Class::BestEffort, 3));
        // One of the job's priority, and one of its own.
        let ioprio = IoPrio::new(Class::BestEffort, 3);
        log.note(&Ended { ioprio, ..ended(0, 30, 10, 4) });
        log.note(&ended(0, 30, 10, 4));
        log.finish(None).expect("it is written");
        for (end, value, issued) in [("lat", 10_000_000, 0), ("clat", 6_000_000, 24_000_000)] {
            let row = |ioprio: &str| format!("30, {value}, 0, 4096, 8192, {ioprio}, {issued}");
            let written = rows(&folder, &format!("x_{end}.5.log"));
            assert_eq!(written, ["0x4003", "0x2003"].map(row), "{end}");
        }
        std::fs::remove_dir_all(folder).expect("it goes");
    }

    #[test]
    fn each_window_has_a_row_for_each_direction_that_has_ios() {
        let folder = folder("windows");
        let logs = Logs { latency: x(), bandwidth: x(), iops: x(), ..Logs::default() };
        let logs = Logs { window_ns: 100 * MS, told: Told::Both, ..logs };
        let mut log = log(&folder, logs, IoPrio::NONE);
        for (direction, at, total) in
            [(0, 20, 10), (1, 40, 10), (0, 60, 20), (0, 150, 10), (0, 350, 8)]
        {
            log.note(&ended(direction, at, total, 2));
        }
        // Its time is up in the middle of the last window, in which one of its I/Os ended.
        log.finish(Some(Nanos(7 + 380 * MS))).expect("it is written");
        let lat = ["100, 15000000, 20000000, 0, 0, 0", "200, 10000000, 10000000, 0, 0, 0"];
        let last = ["350, 8000000, 8000000, 0, 0, 0", "100, 10000000, 10000000, 1, 0, 0"];
        assert_eq!(rows(&folder, "x_lat.2.log"), [lat, last].concat());
        // 8 KiB in 100 ms, and 4 KiB in four fifths of the last window.
        let bw = rows(&folder, "x_bw.2.log");
        assert_eq!(bw[0], "100, 80, 80, 0, 0, 0");
        assert_eq!(bw[2], "350, 50, 50, 0, 0, 0");
        assert_eq!(
            rows(&folder, "x_iops.2.log")[..2],
            ["100, 20, 20, 0, 0, 0", "200, 10, 10, 0, 0, 0"]
        );
        std::fs::remove_dir_all(folder).expect("it goes");
    }

    #[test]
    fn the_last_window_has_no_rate_of_a_moment() {
        let folder = folder("moment");
        let logs = Logs { latency: x(), iops: x(), window_ns: 100 * MS, ..Logs::default() };
        let mut log = log(&folder, logs, IoPrio::NONE);
        log.note(&ended(0, 50, 1, 0));
        log.note(&ended(0, 101, 1, 0));
        log.finish(None).expect("it is written");
        assert_eq!(rows(&folder, "x_iops.2.log"), ["100, 10, 0, 0, 0"]);
        assert_eq!(rows(&folder, "x_lat.2.log").len(), 2);
        std::fs::remove_dir_all(folder).expect("it goes");
    }

    #[test]
    fn a_shared_log_is_added_to_and_another_begins_anew() {
        let folder = folder("shared");
        for (shared, file, wanted) in [(true, "x_bw.log", 2), (false, "x_bw.2.log", 1)] {
            for _ in 0..2 {
                let logs = Logs { bandwidth: x(), shared, ..Logs::default() };
                let mut log = log(&folder, logs, IoPrio::NONE);
                log.note(&ended(0, 1, 1, 0));
                log.finish(None).expect("it is written");
            }
            assert_eq!(rows(&folder, file).len(), wanted, "{file}");
        }
        std::fs::remove_dir_all(folder).expect("it goes");
    }

    #[test]
    fn what_cannot_be_written_is_told_with_its_file() {
        let logs = |name: &str| Logs { iops: Some(String::from(name)), ..Logs::default() };
        let job = Job { logs: logs("/no/such/place"), ..Job::default() };
        let why = Log::open(&job, 0).err().expect("there is no folder");
        assert!(why.starts_with("job job: /no/such/place_iops.1.log: "), "{why}");
        let folder = folder("full");
        std::os::unix::fs::symlink("/dev/full", format!("{folder}/x_iops.2.log")).expect("a link");
        let mut log = log(&folder, logs("x"), IoPrio::NONE);
        log.note(&ended(0, 1, 1, 0));
        let why = log.finish(None).expect_err("the disk is full");
        assert!(why.contains("x_iops.2.log: No space left"), "{why}");
        std::fs::remove_dir_all(folder).expect("it goes");
    }
}
