//! The columns of `iostat` and `iostat -x` from two readings of `/proc/diskstats`, and the use of
//! the CPUs from two of `/proc/stat`.
//!
//! Formulas, order, widths and decimals are those of sysstat 12.6.1; a test of the command holds
//! them against the real one. A counter that went backwards counts as one that stood still.

use std::fmt::Write;

/// The counters of a line of `/proc/diskstats` behind the name, in its order and units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters(pub [u64; 17]);

/// A line that is none of `/proc/diskstats`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// Its number, from 1.
    pub line: usize,
    /// The line.
    pub text: String,
}

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Malformed { line, text } = self;
        write!(f, "diskstats line {line}: {text:?} is not `major minor name` and 17 numbers")
    }
}

impl std::error::Error for Malformed {}

/// The disks of a reading of `/proc/diskstats`, in its order.
///
/// # Errors
/// The first line that has not 3 words and 17 numbers.
pub fn parse(text: &str) -> Result<Vec<(String, Counters)>, Malformed> {
    let read = |(index, line): (usize, &str)| {
        let malformed = || Malformed { line: index + 1, text: String::from(line) };
        let mut words = line.split_ascii_whitespace();
        let name = words.nth(2).ok_or_else(malformed)?;
        let numbers: Option<Vec<u64>> = words.map(|word| word.parse().ok()).collect();
        let counters = numbers.and_then(|numbers| numbers.try_into().ok()).ok_or_else(malformed)?;
        Ok((String::from(name), Counters(counters)))
    };
    text.lines().enumerate().map(read).collect()
}

/// A column: its heading, its width and its value.
#[derive(Clone, Copy)]
pub struct Column {
    /// As iostat spells it.
    pub name: &'static str,
    /// Its name where it counts megabytes, if it counts bytes.
    mega: Option<&'static str>,
    width: usize,
    /// Digits behind the point; without any, parts of a unit are left out.
    decimals: usize,
    value: fn(&Change) -> f64,
    /// By how much its value is shown.
    scale: f64,
}

/// The difference of two readings.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    delta: [f64; 17],
    seconds: f64,
}

/// A direction's fields: I/Os, merges, sectors, ms.
const READ: usize = 0;
const WRITE: usize = 4;
const IO_TICKS: usize = 9;
const WEIGHTED: usize = 10;
const DISCARD: usize = 11;
const FLUSHES: usize = 15;

impl Change {
    /// From one reading to a later one, `seconds` apart; without any time nothing happened.
    #[must_use]
    pub fn between(before: &Counters, after: &Counters, seconds: f64) -> Change {
        let mut delta = [0.0; 17];
        for (place, delta) in delta.iter_mut().enumerate() {
            *delta = after.0[place].saturating_sub(before.0[place]) as f64;
        }
        Change { delta, seconds }
    }

    /// Its length, seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.seconds
    }

    fn rate(&self, field: usize) -> f64 {
        quotient(self.delta[field], self.seconds)
    }

    /// Sectors of 512 bytes are half a kilobyte.
    fn kilobytes(&self, from: usize) -> f64 {
        self.rate(from + 2) / 2.0
    }

    fn merged(&self, from: usize) -> f64 {
        100.0 * quotient(self.delta[from + 1], self.delta[from] + self.delta[from + 1])
    }

    fn wait(&self, from: usize) -> f64 {
        quotient(self.delta[from + 3], self.delta[from])
    }

    fn size(&self, from: usize) -> f64 {
        quotient(self.delta[from + 2], self.delta[from]) / 2.0
    }

    fn sum(&self, of: fn(&Change, usize) -> f64) -> f64 {
        of(self, READ) + of(self, WRITE) + of(self, DISCARD)
    }

    fn total(&self, offset: usize) -> f64 {
        self.delta[READ + offset] + self.delta[WRITE + offset] + self.delta[DISCARD + offset]
    }

    fn queued(&self) -> f64 {
        quotient(self.delta[WEIGHTED], self.seconds * 1000.0)
    }

    fn busy(&self) -> f64 {
        100.0 * quotient(self.delta[IO_TICKS], self.seconds * 1000.0)
    }
}

fn quotient(part: f64, of: f64) -> f64 {
    if of > 0.0 { part / of } else { 0.0 }
}

const fn column(name: &'static str, width: usize, value: fn(&Change) -> f64) -> Column {
    Column { name, mega: None, width, decimals: 2, value, scale: 1.0 }
}

impl Column {
    /// The same, which counts kilobytes and may count megabytes under this name.
    const fn or(self, mega: &'static str) -> Column {
        Column { mega: Some(mega), ..self }
    }

    /// The same, in whole units.
    const fn whole(self) -> Column {
        Column { decimals: 0, ..self }
    }
}

/// The columns of `iostat`.
pub const PLAIN: [Column; 7] = [
    column("tps", 8, |of| of.sum(Change::rate)),
    column("kB_read/s", 12, |of| of.kilobytes(READ)).or("MB_read/s"),
    column("kB_wrtn/s", 12, |of| of.kilobytes(WRITE)).or("MB_wrtn/s"),
    column("kB_dscd/s", 12, |of| of.kilobytes(DISCARD)).or("MB_dscd/s"),
    column("kB_read", 10, |of| of.delta[READ + 2] / 2.0).or("MB_read").whole(),
    column("kB_wrtn", 10, |of| of.delta[WRITE + 2] / 2.0).or("MB_wrtn").whole(),
    column("kB_dscd", 10, |of| of.delta[DISCARD + 2] / 2.0).or("MB_dscd").whole(),
];

/// The columns of `iostat -x`.
pub const EXTENDED: [Column; 22] = [
    column("r/s", 7, |of| of.rate(READ)),
    column("rkB/s", 9, |of| of.kilobytes(READ)).or("rMB/s"),
    column("rrqm/s", 8, |of| of.rate(READ + 1)),
    column("%rrqm", 6, |of| of.merged(READ)),
    column("r_await", 7, |of| of.wait(READ)),
    column("rareq-sz", 8, |of| of.size(READ)),
    column("w/s", 7, |of| of.rate(WRITE)),
    column("wkB/s", 9, |of| of.kilobytes(WRITE)).or("wMB/s"),
    column("wrqm/s", 8, |of| of.rate(WRITE + 1)),
    column("%wrqm", 6, |of| of.merged(WRITE)),
    column("w_await", 7, |of| of.wait(WRITE)),
    column("wareq-sz", 8, |of| of.size(WRITE)),
    column("d/s", 7, |of| of.rate(DISCARD)),
    column("dkB/s", 9, |of| of.kilobytes(DISCARD)).or("dMB/s"),
    column("drqm/s", 8, |of| of.rate(DISCARD + 1)),
    column("%drqm", 6, |of| of.merged(DISCARD)),
    column("d_await", 7, |of| of.wait(DISCARD)),
    column("dareq-sz", 8, |of| of.size(DISCARD)),
    column("f/s", 7, |of| of.rate(FLUSHES)),
    column("f_await", 7, |of| quotient(of.delta[FLUSHES + 1], of.delta[FLUSHES])),
    column("aqu-sz", 7, Change::queued),
    column("%util", 6, Change::busy),
];

/// The columns of `iostat -x -s`.
pub const SHORT: [Column; 7] = [
    column("tps", 8, |of| of.sum(Change::rate)),
    column("kB/s", 9, |of| of.sum(Change::kilobytes)).or("MB/s"),
    column("rqm/s", 8, |of| quotient(of.total(1), of.seconds)),
    column("await", 7, |of| quotient(of.total(3), of.total(0))),
    column("areq-sz", 8, |of| quotient(of.total(2), of.total(0)) / 2.0),
    column("aqu-sz", 7, Change::queued),
    column("%util", 6, Change::busy),
];

impl Column {
    /// Its value, in iostat's unit: a rate per second, kB, ms or per cent.
    #[must_use]
    pub fn value(&self, of: &Change) -> f64 {
        (self.value)(of) * self.scale
    }
}

/// The same columns, with megabytes where they have kilobytes.
#[must_use]
pub fn in_megabytes(columns: &[Column]) -> Vec<Column> {
    let mega = |column: &Column| match column.mega {
        Some(name) => Column { name, mega: None, scale: column.scale / 1024.0, ..*column },
        None => *column,
    };
    columns.iter().map(mega).collect()
}

/// The line of headings.
#[must_use]
pub fn heading(columns: &[Column]) -> String {
    let mut line = format!("{:<13}", "Device");
    for column in columns {
        write!(line, " {:>width$}", column.name, width = column.width)
            .expect("a string takes text");
    }
    line
}

/// The line of a disk.
#[must_use]
pub fn row(columns: &[Column], name: &str, change: &Change) -> String {
    let mut line = format!("{name:<13}");
    for column in columns {
        let value = column.value(change);
        let value = if column.decimals == 0 { value.floor() } else { value };
        let (width, decimals) = (column.width, column.decimals);
        write!(line, " {value:>width$.decimals$}").expect("a string takes text");
    }
    line
}

/// The time of all CPUs together by what they did, ticks, as in the first line of `/proc/stat`:
/// user, nice, system, idle, iowait, irq, softirq, steal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTicks([u64; 8]);

/// The line of `/proc/stat` for all CPUs; `None` if there is none. What a kernel does not count is
/// 0.
#[must_use]
pub fn parse_cpu(text: &str) -> Option<CpuTicks> {
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let mut ticks = [0; 8];
    for (place, word) in ticks.iter_mut().zip(line.split_ascii_whitespace()) {
        *place = word.parse().ok()?;
    }
    Some(CpuTicks(ticks))
}

/// The two lines of iostat on the CPUs between two readings. A counter that went backwards counts
/// as one that stood still, and without any time all are 0.
#[must_use]
pub fn cpu_lines(before: &CpuTicks, after: &CpuTicks) -> [String; 2] {
    let mut spent = [0.0; 8];
    for (place, spent) in spent.iter_mut().enumerate() {
        *spent = after.0[place].saturating_sub(before.0[place]) as f64;
    }
    let [user, nice, system, idle, iowait, irq, softirq, steal] = spent;
    let all: f64 = spent.iter().sum();
    let parts = [
        ("%user", user),
        ("%nice", nice),
        ("%system", system + irq + softirq),
        ("%iowait", iowait),
        ("%steal", steal),
        ("%idle", idle),
    ];
    let heads: Vec<String> = parts.iter().map(|(name, _)| format!("{name:>7}")).collect();
    let values: Vec<String> =
        parts.iter().map(|(_, part)| format!("{:>7.2}", 100.0 * quotient(*part, all))).collect();
    [format!("avg-cpu:{}", heads.join(" ")), format!("{:8}{}", "", values.join(" "))]
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str =
        " 259       0 sda 1000 20 80000 500 2000 300 640000 9000 3 4000 9600 10 2 5000 40 7 100\n";
    const AFTER: &str =
        " 259 0 sda 1500 25 120000 900 2600 450 840000 19000 5 6000 19900 15 4 9000 90 12 400\n";

    fn counters(text: &str) -> Counters {
        parse(text).expect("diskstats")[0].1
    }

    fn value(change: &Change, name: &str) -> f64 {
        let column = EXTENDED.iter().chain(&SHORT).find(|column| column.name == name);
        column.expect("a column").value(change)
    }

    #[test]
    fn each_column_is_the_difference_over_the_interval() {
        let change = Change::between(&counters(BEFORE), &counters(AFTER), 10.0);
        let expected = [
            ("r/s", 50.0),
            ("rkB/s", 2000.0),
            ("rrqm/s", 0.5),
            ("r_await", 0.8),
            ("rareq-sz", 40.0),
            ("w/s", 60.0),
            ("%wrqm", 20.0),
            ("d/s", 0.5),
            ("d_await", 10.0),
            ("f/s", 0.5),
            ("f_await", 60.0),
            ("aqu-sz", 1.03),
            ("%util", 20.0),
            ("tps", 110.5),
            ("rqm/s", 15.7),
        ];
        for (name, expected) in expected {
            assert!((value(&change, name) - expected).abs() < 1e-9, "{name}");
        }
    }

    #[test]
    fn rates_are_0_when_counters_went_backwards_or_no_time_passed() {
        let (before, after) = (counters(BEFORE), counters(AFTER));
        for change in
            [Change::between(&after, &before, 10.0), Change::between(&before, &after, 0.0)]
        {
            for name in ["r/s", "wkB/s", "f/s", "aqu-sz", "%util"] {
                assert_eq!(value(&change, name), 0.0, "{name}");
            }
        }
        let idle = Change::between(&before, &before, 1.0);
        assert!(EXTENDED.iter().chain(&SHORT).all(|column| column.value(&idle) == 0.0));
    }

    #[test]
    fn a_line_that_is_none_is_named() {
        let error = parse(&format!("{BEFORE}259 1 sdb 1 2 3\n")).unwrap_err();
        assert_eq!(error.line, 2);
        assert!(error.to_string().contains("sdb 1 2 3"), "{error}");
        assert!(parse("x").is_err() && parse(&BEFORE.replace("2000", "-1")).is_err());
        assert_eq!(parse(""), Ok(Vec::new()));
    }
}
