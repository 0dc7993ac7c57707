//! The results that may stand side by side: figures of windows of one length, and no averages since
//! a start.
//!
//! How far a window may be off stands in `weir_trace::window`. A comparison holds each run against
//! the length that was asked for, and voids what is off. Its counts are drawn.

use weir_trace::window::{ends_by_itself, tolerance_s};

use crate::Error;
use weir_trace::document::{CompareDocument, Document, IostatDocument};

/// Whether two windows may have been asked for with one length.
fn are_equal(a_s: f64, b_s: f64) -> bool {
    // Each may be off, to either side; a nanosecond more, for these are rounded.
    (a_s - b_s).abs() <= 2.0 * tolerance_s(a_s.max(b_s)) + 1e-9
}

/// Refuses what cannot be compared.
pub(crate) fn check(documents: &[Document]) -> Result<(), Error> {
    if documents.is_empty() {
        return Err(Error::Nothing);
    }
    let benches = documents.iter().enumerate().filter_map(|(index, document)| match document {
        Document::Bench(bench) if !bench.partial && !ends_by_itself(&bench.bench.job) => {
            Some((format!("result {}", index + 1), bench.bench.duration_s))
        }
        _ => None,
    });
    equal("the results", benches)?;
    check_iostat(documents)
}

/// Readings of two times are compared as soon as they stand side by side.
fn check_iostat(documents: &[Document]) -> Result<(), Error> {
    let readings: Vec<(String, &IostatDocument)> = documents
        .iter()
        .enumerate()
        .filter_map(|(index, document)| match document {
            Document::Iostat(iostat) => Some((format!("result {}", index + 1), &**iostat)),
            _ => None,
        })
        .collect();
    if readings.len() < 2 {
        return Ok(());
    }
    for (name, iostat) in &readings {
        if iostat.seconds() <= 0.0 {
            let what = format!("{name} has no interval after its first report");
            return Err(Error::SinceStart(what));
        }
    }
    equal("the readings", readings.iter().map(|(name, iostat)| (name.clone(), iostat.seconds())))
}

/// The windows of the runs of a comparison that count, where they are not of one length: which two.
/// It is told and not refused: which runs count, the comparison has decided.
pub(crate) fn of_comparison(compare: &CompareDocument) -> Option<String> {
    let counted = compare.runs.iter().filter(|run| run.voided.is_none() && !run.document.partial);
    let timed = counted.filter(|run| !ends_by_itself(&run.document.bench.job));
    let runs = timed.map(|run| {
        let name = format!("variant {}, round {}", run.variant, run.round);
        (name, run.document.bench.duration_s)
    });
    unequal(runs)
}

fn equal(place: &str, windows: impl Iterator<Item = (String, f64)>) -> Result<(), Error> {
    match unequal(windows) {
        Some(which) => Err(Error::UnequalWindows(format!("{place}: {which}"))),
        None => Ok(()),
    }
}

/// The first window, and one that is not as long.
fn unequal(mut windows: impl Iterator<Item = (String, f64)>) -> Option<String> {
    let (first, known) = windows.next()?;
    let (other, length) = windows.find(|(_, length)| !are_equal(known, *length))?;
    Some(format!("{first} lasted {known:.2} s, {other} {length:.2} s"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_trace::document::{BenchDocument, IostatReport, Run};

    fn bench(duration_s: f64) -> BenchDocument {
        let mut document = BenchDocument::default();
        document.bench.duration_s = duration_s;
        document
    }

    fn compare(lengths: &[f64]) -> CompareDocument {
        let run = |(index, length): (usize, &f64)| Run {
            variant: String::from(if index % 2 == 0 { "a" } else { "b" }),
            round: index as u32 / 2 + 1,
            document: bench(*length),
            ..Run::default()
        };
        let runs = lengths.iter().enumerate().map(run).collect();
        CompareDocument { runs, ..CompareDocument::default() }
    }

    #[test]
    fn results_of_windows_of_unequal_length_are_refused_with_both_lengths() {
        let side_by_side =
            |lengths: [f64; 2]| check(&lengths.map(|s| Document::Bench(Box::new(bench(s)))));
        assert_eq!(side_by_side([2.0, 2.1]), Ok(()));
        let why = side_by_side([240.0, 136.0]).expect_err("unequal").to_string();
        assert!(why.contains("result 1 lasted 240.00 s, result 2 136.00 s"), "{why}");
    }

    #[test]
    fn whatever_a_comparison_may_count_is_equal_here() {
        for asked in [0.1, 0.5, 2.0, 20.0, 3600.0] {
            let off = tolerance_s(asked);
            let lengths = [asked - off, asked + off, asked];
            assert_eq!(of_comparison(&compare(&lengths)), None, "{asked}");
            assert!(!are_equal(asked, asked * 1.5 + 0.2), "{asked}");
        }
    }

    #[test]
    fn a_comparison_of_unequal_windows_is_told_of_and_drawn() {
        let document = compare(&[2.0, 2.0, 2.0, 3.5]);
        let why = of_comparison(&document).expect("unequal");
        assert_eq!(why, "variant a, round 1 lasted 2.00 s, variant b, round 2 3.50 s");
        let page = crate::markdown(&[Document::Compare(Box::new(document))]).expect("a page");
        assert!(page.contains(&why), "{page}");
    }

    #[test]
    fn a_job_that_ends_by_itself_has_no_window() {
        let job = |time_based: bool| serde_json::json!({"name": "dd", "time_based": time_based});
        let both = |a, b| serde_json::json!({"jobs": [job(a), job(b)]});
        assert!(ends_by_itself(&job(false)) && ends_by_itself(&both(false, false)));
        assert!(!ends_by_itself(&job(true)) && !ends_by_itself(&both(false, true)));
        assert!(!ends_by_itself(&serde_json::json!({"preset": "oltp"})));
        let runs = [3.5, 5.0].map(|seconds| {
            let mut run = bench(seconds);
            run.bench.job = job(false);
            Document::Bench(Box::new(run))
        });
        assert_eq!(check(&runs), Ok(()));
    }

    #[test]
    fn a_voided_or_broken_round_is_not_compared_so_it_may_be_short() {
        let mut document = compare(&[2.0, 2.0, 0.3, 0.1]);
        document.runs[2].voided = Some(String::from("steal"));
        document.runs[3].document.partial = true;
        assert_eq!(of_comparison(&document), None);
    }

    #[test]
    fn averages_since_a_start_are_drawn_alone_and_refused_side_by_side() {
        let report = |since_start, interval_s| IostatReport {
            since_start,
            interval_s,
            ..IostatReport::default()
        };
        let reading = |reports: Vec<IostatReport>| {
            Document::Iostat(Box::new(IostatDocument { reports, ..IostatDocument::default() }))
        };
        // The uptimes behind the figures of the x205ta comparison.
        let uptimes = [239.8, 136.0].map(|uptime| reading(vec![report(true, uptime)]));
        assert_eq!(check(&uptimes[..1]), Ok(()));
        assert!(matches!(check(&uptimes), Err(Error::SinceStart(_))));
        let after = |seconds| reading(vec![report(true, 136.0), report(false, seconds)]);
        assert_eq!(check(&[after(10.0), after(10.0)]), Ok(()));
        assert!(matches!(check(&[after(10.0), after(5.0)]), Err(Error::UnequalWindows(_))));
    }

    #[test]
    fn nothing_is_nothing_to_draw() {
        assert_eq!(check(&[]), Err(Error::Nothing));
    }
}
