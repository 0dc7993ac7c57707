//! Numbers as people read them: grouped digits, three figures, a unit that fits.

pub(crate) use weir_trace::labels::words;
use weir_trace::metric::{Metric, Unit};

/// The sign in the place of a missing number.
pub(crate) const NONE: &str = "–";

/// A count or a rate: `12,345`, `123`, `12.3`, `0.123`.
pub(crate) fn count(value: f64) -> String {
    if !value.is_finite() {
        return String::from(NONE);
    }
    let size = value.abs();
    let decimals = match size {
        _ if value == value.trunc() || size >= 100.0 => 0,
        _ if size >= 10.0 => 1,
        _ if size >= 1.0 => 2,
        _ => 3,
    };
    grouped(&format!("{value:.decimals$}"))
}

/// Puts a comma after each third digit before the point.
fn grouped(digits: &str) -> String {
    let (sign, rest) = digits.strip_prefix('-').map_or(("", digits), |rest| ("-", rest));
    let (whole, fraction) = rest.split_once('.').map_or((rest, ""), |(w, f)| (w, f));
    let mut text = String::from(sign);
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if !fraction.is_empty() {
        text.push('.');
        text.push_str(fraction);
    }
    text
}

const TIMES: [(f64, &str); 4] = [(1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns")];

/// A time: `1.23 ms`.
pub(crate) fn time(ns: f64) -> String {
    if !ns.is_finite() {
        return String::from(NONE);
    }
    let (unit, name) = TIMES.into_iter().find(|(unit, _)| ns.abs() >= *unit).unwrap_or((1.0, "ns"));
    format!("{} {name}", three(ns / unit))
}

/// A value of a metric.
pub(crate) fn shown(metric: &Metric, value: f64) -> String {
    match metric.unit {
        Unit::PerSecond => count(value),
        Unit::Nanoseconds | Unit::CpuNanoseconds => time(value),
    }
}

/// A byte rate: `1.23 GiB/s`.
pub(crate) fn byte_rate(bytes: f64) -> String {
    let units = [(1_073_741_824.0, "GiB/s"), (1_048_576.0, "MiB/s"), (1024.0, "KiB/s")];
    let found = units.into_iter().find(|(unit, _)| bytes.abs() >= *unit);
    match found {
        _ if !bytes.is_finite() => String::from(NONE),
        Some((unit, name)) => format!("{} {name}", three(bytes / unit)),
        None => format!("{} B/s", count(bytes)),
    }
}

/// Three figures, no more.
fn three(value: f64) -> String {
    let decimals = match value.abs() {
        size if size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        _ => 2,
    };
    let text = format!("{value:.decimals$}");
    let plain = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => &text,
    };
    grouped(plain)
}

/// A share as per cent without sign: 0.231 is `23 %`, 0.0123 is `1.2 %`.
pub(crate) fn percent(share: f64) -> String {
    let size = share.abs() * 100.0;
    match size {
        _ if !size.is_finite() => String::from(NONE),
        // Beyond that its digits say nothing.
        _ if size > 1000.0 => String::from("more than 1,000 %"),
        _ if size >= 9.95 => format!("{} %", grouped(&format!("{size:.0}"))),
        _ => format!("{size:.1} %"),
    }
}

/// A change as per cent with its sign: `+22.9 %`.
pub(crate) fn change(before: f64, after: f64) -> String {
    let share = (after / before - 1.0) * 100.0;
    match share.is_finite() {
        true => format!("{share:+.1} %"),
        false => String::from(NONE),
    }
}

/// A ratio: `1.234`.
pub(crate) fn ratio(value: f64) -> String {
    match value {
        _ if !value.is_finite() => String::from(NONE),
        _ if value > 1000.0 => String::from("more than 1,000"),
        _ => format!("{value:.3}"),
    }
}

/// Longest command line that stands on one line, characters.
const LINE_MAX: usize = 76;

/// A command line that a shell reads as it was given; a long one has a line for each option.
pub(crate) fn command_line(words: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    let quoted = words.iter().map(|word| match !word.is_empty() && word.chars().all(plain) {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    });
    let quoted: Vec<String> = quoted.collect();
    let whole = quoted.join(" ");
    if whole.chars().count() <= LINE_MAX {
        return whole;
    }
    let mut lines = String::new();
    for (index, word) in quoted.iter().enumerate() {
        match word.starts_with("--") {
            _ if index == 0 => {}
            true => lines.push_str(" \\\n  "),
            false => lines.push(' '),
        }
        lines.push_str(word);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_have_the_digits_and_the_unit_that_people_read() {
        assert_eq!(
            [12_345.6, 163_194.0, 0.0, 12.34, 0.1234, 999.9, -1234.0].map(count),
            ["12,346", "163,194", "0", "12.3", "0.123", "1000", "-1,234"].map(|text| match text {
                "1000" => String::from("1,000"),
                text => String::from(text),
            })
        );
        assert_eq!(
            [1.0, 999.0, 1500.0, 123_456.0, 1e6, 2.5e9, 0.0].map(time),
            ["1 ns", "999 ns", "1.5 µs", "123 µs", "1 ms", "2.5 s", "0 ns"]
        );
        assert_eq!(byte_rate(1_572_864.0), "1.5 MiB/s");
        assert_eq!([0.231, 0.0123, -0.5].map(percent), ["23 %", "1.2 %", "50 %"]);
        assert_eq!(change(70_691.0, 81_217.0), "+14.9 %");
        assert_eq!((change(0.0, 1.0), count(f64::NAN), time(f64::INFINITY)), {
            (NONE.to_owned(), NONE.to_owned(), NONE.to_owned())
        });
    }

    #[test]
    fn options_and_command_lines_are_written_as_they_were_given() {
        assert_eq!(
            words(&json!({"queue_mode": "sq", "queues": 4, "x": null})),
            "queue_mode=sq, queues=4"
        );
        let line = ["weir", "compare", "--a", "it's", ""].map(String::from);
        assert_eq!(command_line(&line), r"weir compare --a 'it'\''s' ''");
        let long =
            "weir compare vdbench --target null:1GiB --rounds 10 --runtime 2s --quiet --csv x";
        let words: Vec<String> = long.split(' ').map(String::from).collect();
        let lines = command_line(&words);
        assert!(lines.starts_with("weir compare vdbench \\\n  --target null:1GiB \\\n  --r"));
        assert_eq!(lines.replace("\\\n  ", ""), long);
    }
}
