//! What may stand side by side: figures of windows of one length, and no averages since a start.

use crate::Error;
use crate::document::{CompareDocument, Document, IostatDocument};

/// How far apart the lengths of windows may be, as a share: a run ends with its last I/O.
const TOLERANCE: f64 = 0.05;

/// The same for short windows, seconds.
const TOLERANCE_S: f64 = 0.1;

/// Refuses what cannot be compared.
pub(crate) fn check(documents: &[Document]) -> Result<(), Error> {
    if documents.is_empty() {
        return Err(Error::Nothing);
    }
    for document in documents {
        match document {
            Document::Bench(_) | Document::Iostat(_) => {}
            Document::Compare(compare) => check_compare("the comparison", compare)?,
            Document::Sweep(sweep) => {
                for point in &sweep.points {
                    let place = format!("{}={}", sweep.name, point.value);
                    check_compare(&place, &point.document)?;
                }
            }
        }
    }
    let benches = documents.iter().enumerate().filter_map(|(index, document)| match document {
        Document::Bench(bench) if !bench.partial => {
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

fn check_compare(place: &str, compare: &CompareDocument) -> Result<(), Error> {
    let counted = compare.runs.iter().filter(|run| run.voided.is_none() && !run.document.partial);
    let name = |variant: &str, round: usize| format!("variant {variant}, round {round}");
    let runs =
        counted.map(|run| (name(&run.variant, run.round as usize), run.document.bench.duration_s));
    equal(place, runs)?;
    let rounds = compare.compare.variants.iter().flat_map(|variant| {
        let rounds = variant.rounds.iter().enumerate();
        rounds.map(|(index, bench)| (name(&variant.name, index + 1), bench.duration_s))
    });
    equal(place, rounds)
}

fn equal(place: &str, windows: impl Iterator<Item = (String, f64)>) -> Result<(), Error> {
    let mut first: Option<(String, f64)> = None;
    for (name, length) in windows {
        let Some((other, known)) = &first else {
            first = Some((name, length));
            continue;
        };
        if (length - known).abs() > (TOLERANCE * known).max(TOLERANCE_S) {
            return Err(Error::UnequalWindows(format!(
                "{place}: {other} lasted {known:.2} s, {name} {length:.2} s"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{BenchDocument, IostatReport, Run};

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
    fn windows_of_unequal_length_are_refused_with_both_lengths() {
        let drawn = |lengths: &[f64]| check(&[Document::Compare(Box::new(compare(lengths)))]);
        assert_eq!(drawn(&[2.0, 2.01, 1.99, 2.05]), Ok(()));
        let why = drawn(&[2.0, 2.0, 2.0, 3.5]).expect_err("unequal").to_string();
        assert!(why.contains("variant a, round 1 lasted 2.00 s"), "{why}");
        assert!(why.contains("variant b, round 2 3.50 s"), "{why}");
        let benches = [240.0, 136.0].map(|s| Document::Bench(Box::new(bench(s))));
        assert!(matches!(check(&benches), Err(Error::UnequalWindows(_))));
    }

    #[test]
    fn a_voided_or_broken_round_is_not_compared_so_it_may_be_short() {
        let mut document = compare(&[2.0, 2.0, 0.3, 0.1]);
        document.runs[2].voided = Some(String::from("steal"));
        document.runs[3].document.partial = true;
        assert_eq!(check(&[Document::Compare(Box::new(document))]), Ok(()));
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
