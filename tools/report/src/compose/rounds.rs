//! The rounds of a comparison that count.

use weir_trace::document::{Bench, BenchDocument, CompareDocument, Variant};

/// The runs of a variant that count.
pub(crate) fn counted<'a>(
    document: &'a CompareDocument,
    variant: &Variant,
) -> Vec<&'a BenchDocument> {
    let runs = document.runs.iter().filter(|run| run.variant == variant.name);
    let counted = runs.filter(|run| run.voided.is_none() && !run.document.partial);
    counted.map(|run| &run.document).collect()
}

/// The figures of a variant's rounds: of its runs, or of those in the comparison itself.
pub(crate) fn benches<'a>(document: &'a CompareDocument, variant: &'a Variant) -> Vec<&'a Bench> {
    let runs = counted(document, variant);
    match runs.is_empty() {
        true => variant.rounds.iter().collect(),
        false => runs.into_iter().map(|run| &run.bench).collect(),
    }
}
