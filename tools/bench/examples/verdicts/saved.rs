//! Documents of comparisons of a variant with itself, read.

use std::fs::{self, File};
use std::io::BufReader;
use std::path::Path;

use weir_bench::compare::summary::{by_primary, differs, is_decided};
use weir_trace::document::{BenchDocument, CompareDocument, Document, Run};
use weir_trace::metric::METRICS;

/// What was recorded on one disk.
#[derive(Debug, Default)]
pub struct Recorded {
    /// The folder's name.
    pub name: String,
    /// What each document says.
    pub told: Vec<Told>,
    /// The rounds that count, of all documents: the run that was first, and the other.
    pub rounds: Vec<[BenchDocument; 2]>,
}

/// What one document says.
#[derive(Debug, Default)]
pub struct Told {
    /// Its file.
    pub file: String,
    /// Rounds made.
    pub rounds: u32,
    /// Runs made, and those that do not count.
    pub runs: u32,
    pub voided: u32,
    /// The primary metric has a verdict, and it is that the two differ.
    pub is_judged: bool,
    pub is_wrong: bool,
    /// Verdicts of all metrics, and those that the two differ.
    pub verdicts: u32,
    pub wrong: u32,
    /// The latter in words.
    pub differing: Vec<String>,
}

/// Everything in the folders of a folder, by name.
pub fn read(folder: &Path) -> Result<Vec<Recorded>, String> {
    let mut disks = Vec::new();
    for own in entries(folder)?.into_iter().filter(|path| path.is_dir()) {
        let name = own.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut disk = Recorded { name, ..Recorded::default() };
        let is_document = |path: &std::path::PathBuf| path.extension().is_some_and(|e| e == "json");
        for file in entries(&own)?.into_iter().filter(is_document) {
            let document = document(&file)?;
            disk.rounds.extend(rounds(&document));
            let file = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            disk.told.push(Told { file, ..told(&document) });
        }
        if !disk.told.is_empty() {
            disks.push(disk);
        }
    }
    match disks.is_empty() {
        true => Err(format!("{}: no folder in it has documents", folder.display())),
        false => Ok(disks),
    }
}

fn entries(folder: &Path) -> Result<Vec<std::path::PathBuf>, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    let entries = fs::read_dir(folder).map_err(failed)?.map(|entry| entry.map(|one| one.path()));
    let mut paths: Vec<_> = entries.collect::<Result<_, _>>().map_err(failed)?;
    paths.sort();
    Ok(paths)
}

fn document(file: &Path) -> Result<CompareDocument, String> {
    let failed = |why: &dyn std::fmt::Display| format!("{}: {why}", file.display());
    let opened = File::open(file).map_err(|error| failed(&error))?;
    match serde_json::from_reader(BufReader::new(opened)) {
        Ok(Document::Compare(document)) if document.compare.variants.len() == 2 => Ok(*document),
        Ok(_) => Err(failed(&"no comparison of two variants")),
        Err(error) => Err(failed(&error)),
    }
}

fn told(document: &CompareDocument) -> Told {
    let CompareDocument { compare, runs, .. } = document;
    let decided = || compare.comparisons.iter().filter(|found| is_decided(found));
    let wrong = || decided().filter(|found| differs(found));
    let words = wrong().map(|found| format!("{}: {}", found.metric, found.verdict));
    Told {
        file: String::new(),
        rounds: runs.iter().map(|run| run.round).max().unwrap_or_default(),
        runs: runs.len() as u32,
        voided: runs.iter().filter(|run| run.voided.is_some()).count() as u32,
        is_judged: by_primary(compare).any(is_decided),
        is_wrong: by_primary(compare).any(differs),
        verdicts: decided().count() as u32,
        wrong: wrong().count() as u32,
        differing: words.collect(),
    }
}

/// The rounds of a document in which both runs count, each in the order in which it was made.
fn rounds(document: &CompareDocument) -> Vec<[BenchDocument; 2]> {
    let last = document.runs.iter().map(|run| run.round).max().unwrap_or_default();
    let round = |round: u32| {
        let is_of = |run: &&Run| run.round == round && run.voided.is_none();
        let counted: Vec<&Run> = document.runs.iter().filter(is_of).collect();
        match counted[..] {
            [first, second] if first.variant != second.variant => {
                Some([first, second].map(|run| light(&run.document)))
            }
            _ => None,
        }
    };
    (1..=last).filter_map(round).collect()
}

/// A run without what no metric is made of.
fn light(run: &BenchDocument) -> BenchDocument {
    let mut light = run.clone();
    light.series.clear();
    light.cores.clear();
    light.bench.cores.clear();
    light.bench.options.clear();
    light.notices.clear();
    light.histograms.clear();
    if METRICS.iter().any(|metric| metric.of_run(&light) != metric.of_run(run)) {
        light.histograms.clone_from(&run.histograms);
    }
    light
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(variant: &str, round: u32, iops: f64, voided: bool) -> Run {
        let mut run = Run { variant: variant.into(), round, ..Run::default() };
        run.document.bench.figures.iops = iops;
        run.voided = voided.then(|| String::from("disturbed"));
        run
    }

    #[test]
    fn a_round_is_the_runs_that_count_in_the_order_in_which_they_were_made() {
        let runs = vec![
            run("b", 1, 1.0, false),
            run("a", 1, 2.0, false),
            run("a", 2, 3.0, true),
            run("b", 2, 4.0, false),
            run("a", 3, 5.0, true),
            run("b", 3, 6.0, false),
            run("a", 3, 7.0, false),
        ];
        let document = CompareDocument { runs, ..CompareDocument::default() };
        let iops = |[first, second]: &[BenchDocument; 2]| {
            [first.bench.figures.iops, second.bench.figures.iops]
        };
        let found: Vec<[f64; 2]> = rounds(&document).iter().map(iops).collect();
        assert_eq!(found, [[1.0, 2.0], [6.0, 7.0]]);
        assert_eq!((told(&document).rounds, told(&document).voided), (3, 2));
    }
}
