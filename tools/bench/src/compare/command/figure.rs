//! The number that a command prints and is compared by.

use regex::{Captures, Regex};
use weir_trace::document::Figure;

/// A pattern that finds it.
#[derive(Clone, Debug)]
pub struct Pattern {
    pattern: Regex,
    /// Its unit, where the pattern does not find that too.
    unit: String,
}

/// The groups of a pattern that have names: the number, and its unit.
const VALUE: &str = "value";
const UNIT: &str = "unit";
/// Times, in nanoseconds, by their names.
const TIMES: [(&str, f64); 34] = [
    ("ns", 1.0),
    ("nsec", 1.0),
    ("nsecs", 1.0),
    ("nanosecond", 1.0),
    ("nanoseconds", 1.0),
    ("us", 1e3),
    // With the sign for micro, and with the letter of the Greek.
    ("\u{b5}s", 1e3),
    ("\u{3bc}s", 1e3),
    ("usec", 1e3),
    ("usecs", 1e3),
    ("microsecond", 1e3),
    ("microseconds", 1e3),
    ("ms", 1e6),
    ("msec", 1e6),
    ("msecs", 1e6),
    ("millisecond", 1e6),
    ("milliseconds", 1e6),
    ("s", 1e9),
    ("sec", 1e9),
    ("secs", 1e9),
    ("second", 1e9),
    ("seconds", 1e9),
    ("m", 60e9),
    ("min", 60e9),
    ("mins", 60e9),
    ("minute", 60e9),
    ("minutes", 60e9),
    ("h", 3600e9),
    ("hr", 3600e9),
    ("hrs", 3600e9),
    ("hour", 3600e9),
    ("hours", 3600e9),
    ("d", 86_400e9),
    ("days", 86_400e9),
];
/// Multiples of a byte. SI units are what they say here: dd prints them.
const BYTES: [(&str, f64); 8] = [
    ("B", 1.0),
    ("kB", 1e3),
    ("KB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
];
/// Multiples of a number without a unit.
const THOUSANDS: [(&str, f64); 4] = [("k", 1e3), ("K", 1e3), ("M", 1e6), ("G", 1e9)];

impl Pattern {
    /// A pattern, and the unit of what it finds, which may be empty.
    ///
    /// # Errors
    /// A fault of the pattern; one without a group for the number.
    pub fn new(pattern: &str, unit: &str) -> Result<Pattern, String> {
        // The message of a fault has lines that point at its place.
        let pattern = Regex::new(pattern).map_err(|error| error.to_string())?;
        let has_value = pattern.capture_names().flatten().any(|name| name == VALUE);
        // The whole of a match counts as one.
        if pattern.captures_len() < 2 {
            let what = "has no group (...) around the number";
            return Err(format!("{:?} {what}", pattern.as_str()));
        }
        let names: Vec<&str> = pattern.capture_names().flatten().collect();
        if !has_value && names.contains(&UNIT) {
            let what = format!("has a group {UNIT} and none called {VALUE}: (?<{VALUE}>...)");
            return Err(format!("{:?} {what}", pattern.as_str()));
        }
        Ok(Pattern { pattern, unit: String::from(unit) })
    }

    /// The pattern as it was given.
    #[must_use]
    pub fn text(&self) -> &str {
        self.pattern.as_str()
    }

    /// The number in the last match.
    ///
    /// # Errors
    /// That there is no match, or no number in it.
    pub fn find(&self, output: &str) -> Result<Figure, String> {
        let last = self.pattern.captures_iter(output).last();
        let found = last.ok_or_else(|| {
            format!("--figure {:?} is not found in what it printed", self.pattern.as_str())
        })?;
        let group = |found: &Captures<'_>| {
            let group = found.name(VALUE).or_else(|| found.get(1));
            group.map(|group| group.as_str().trim().to_owned())
        };
        let text = group(&found).unwrap_or_default();
        let multiple =
            THOUSANDS.iter().find_map(|(name, by)| Some((text.strip_suffix(name)?, *by)));
        let (digits, by) = multiple.unwrap_or((&text, 1.0));
        let number = digits.parse::<f64>().ok().map(|number| number * by);
        let number = number.filter(|number| number.is_finite()).ok_or_else(|| {
            format!("--figure {:?} found {text:?}, which is no number", self.pattern.as_str())
        })?;
        let unit = found.name(UNIT).map_or(self.unit.as_str(), |unit| unit.as_str().trim());
        // A multiple that is found is one of the unit that is said.
        let multiple = THOUSANDS.iter().find(|(name, _)| *name == unit).map(|(_, by)| *by);
        let found = match multiple.or(unit.is_empty().then_some(1.0)) {
            Some(by) if !self.unit.is_empty() => figure(number * by, &self.unit),
            _ => figure(number, unit),
        };
        match found.value.is_finite() {
            true => Ok(found),
            false => {
                Err(format!("--figure {:?} found {text} {unit}, which is no number", self.text()))
            }
        }
    }
}

/// A number of some unit as documents have it.
fn figure(number: f64, unit: &str) -> Figure {
    let named = |table: &[(&str, f64)], name: &str| {
        table.iter().find(|(known, _)| *known == name).map(|(_, factor)| *factor)
    };
    let rate = ["/s", "/sec", "ps"].iter().find_map(|end| unit.strip_suffix(end));
    // A time for each of something is a time: less of it is better.
    let time = unit.split_once('/').map_or(unit, |(time, _)| time).trim();
    if let Some(factor) = named(&TIMES, time) {
        return Figure { value: number * factor, unit: String::from("ns"), is_time: true };
    }
    if let Some(factor) = rate.and_then(|bytes| named(&BYTES, bytes)) {
        return Figure { value: number * factor, unit: String::from("B/s"), is_time: false };
    }
    if let Some(factor) = named(&THOUSANDS, unit) {
        return Figure { value: number * factor, unit: String::new(), is_time: false };
    }
    Figure { value: number, unit: String::from(unit), is_time: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pattern: &str, unit: &str, output: &str) -> Result<(f64, String, bool), String> {
        let Figure { value, unit, is_time } = Pattern::new(pattern, unit)?.find(output)?;
        Ok((value, unit, is_time))
    }

    fn is(value: f64, unit: &str, is_time: bool) -> Result<(f64, String, bool), String> {
        Ok((value, String::from(unit), is_time))
    }

    #[test]
    fn the_number_is_the_first_group_of_the_last_match_or_the_one_with_its_name() {
        let pgbench =
            "progress: 1.0 s, 900.0 tps\ntps = 812.5 (initial)\ntps = 1024.25 (without)\n";
        assert_eq!(found(r"tps = ([0-9.]+)", "tps", pgbench), is(1024.25, "tps", false));
        let named = r"(done|ended) in (?<value>[0-9.]+)";
        assert_eq!(found(named, "", "ended in 3e2"), is(3.0, "", false));
        assert_eq!(found(r"(?m)^(\S+)$", "", " 1\n1e3"), is(1000.0, "", false));
    }

    #[test]
    fn the_unit_is_found_too_and_makes_figures_of_several_units_comparable() {
        let dd = r"(?<value>[0-9.]+) (?<unit>[kMG]?B/s)$";
        assert_eq!(found(dd, "", "copied, 0.5 s, 1.5 GB/s"), is(1.5e9, "B/s", false));
        assert_eq!(found(dd, "", "copied, 0.5 s, 900 kB/s"), is(9e5, "B/s", false));
        let fio = r"IOPS=(?<value>[0-9.]+)(?<unit>k?)";
        assert_eq!(found(fio, "", "IOPS=12.5k, BW"), is(12500.0, "", false));
        // A multiple, or none, of the unit that is said.
        assert_eq!(found(fio, "iops", "IOPS=12.5k, BW"), is(12500.0, "iops", false));
        assert_eq!(found(fio, "iops", "IOPS=125, BW"), is(125.0, "iops", false));
        assert_eq!(found(fio, "", "IOPS=125, BW"), is(125.0, "", false));
        assert_eq!(found("([0-9.]+)", "ms", "latency 2.5"), is(2.5e6, "ns", true));
        assert_eq!(found("([0-9]+)", "MiB/s", "at 3"), is(3.0 * 1_048_576.0, "B/s", false));
    }

    #[test]
    fn a_time_is_one_by_any_of_its_names_also_for_each_of_something() {
        for (unit, ns) in [
            ("milliseconds", 2e6),
            ("\u{3bc}s", 2e3),
            ("\u{b5}s", 2e3),
            ("hours", 7.2e12),
            ("msecs", 2e6),
            ("ms/op", 2e6),
            ("us / query", 2e3),
        ] {
            assert_eq!(found("([0-9]+)", unit, "took 2"), is(ns, "ns", true), "{unit}");
        }
        for rate in ["tps", "req/s", "queries/sec", ""] {
            assert!(!found("([0-9]+)", rate, "did 2").expect("a rate").2, "{rate}");
        }
    }

    #[test]
    fn a_number_may_have_its_multiple_with_it() {
        let fio = |output| found("IOPS=([0-9.]+k?)", "iops", output).expect("a number");
        assert_eq!([fio("IOPS=985").0, fio("IOPS=18.5k").0], [985.0, 18_500.0]);
        assert_eq!(found("([0-9]+M)", "", "2M").expect("a number").0, 2e6);
    }

    #[test]
    fn what_is_not_found_or_no_number_is_told_with_the_pattern() {
        let missing = found("tps = ([0-9]+)", "", "no such line").expect_err("nothing");
        assert!(missing.contains(r#"--figure "tps = ([0-9]+)" is not found"#), "{missing}");
        let word = found("tps = (.+)", "", "tps = many").expect_err("a word");
        let unknown = found("([0-9a-z]+)", "", "18q").expect_err("no multiple");
        assert!(unknown.contains(r#"found "18q", which is no number"#), "{unknown}");
        assert!(word.contains(r#"found "many", which is no number"#), "{word}");
        assert!(found("x(.+)", "", "xinf").is_err_and(|why| why.contains("no number")));
    }

    #[test]
    fn a_pattern_has_a_group_around_the_number() {
        let bare = Pattern::new("tps = [0-9]+", "").expect_err("no group");
        assert!(bare.contains("no group (...) around the number"), "{bare}");
        let unit = Pattern::new("[0-9]+(?<unit>k)", "").expect_err("no number");
        assert!(unit.contains("none called value"), "{unit}");
        assert!(Pattern::new("tps = (", "").is_err_and(|why| why.contains("unclosed group")));
    }
}
