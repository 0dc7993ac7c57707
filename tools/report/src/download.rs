//! Raw data as links: the documents themselves, in base64 (RFC 4648), inside the page.

use serde::Serialize;

use crate::document::Document;

/// A file inside the page.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Download {
    pub(crate) name: String,
    pub(crate) href: String,
}

/// Longest document for one link, bytes: browsers take data URLs of 2 MB, and base64 adds a third.
const WHOLE_MAX: usize = 1_400_000;

/// A link for each document; where one is too long, one for what it says and one for each run.
pub(crate) fn links(documents: &[Document]) -> Vec<Download> {
    let mut links = Vec::new();
    for (index, document) in documents.iter().enumerate() {
        add(&mut links, document, &format!("result-{}", index + 1));
    }
    links
}

fn add(links: &mut Vec<Download>, document: &Document, name: &str) {
    let text = json(document);
    if text.len() <= WHOLE_MAX {
        links.push(link(name, &text));
        return;
    }
    match document {
        // One run has a bounded number of samples and buckets; a longer one is no less its data.
        Document::Bench(_) | Document::Iostat(_) => links.push(link(name, &text)),
        Document::Compare(compare) => {
            let mut summary = compare.clone();
            let runs = std::mem::take(&mut summary.runs);
            links.push(link(name, &json(&summary)));
            for (index, run) in runs.iter().enumerate() {
                links.push(link(&format!("{name}-run-{}", index + 1), &json(run)));
            }
        }
        Document::Sweep(sweep) => {
            for (index, point) in sweep.points.iter().enumerate() {
                let compare = Document::Compare(Box::new(point.document.clone()));
                add(links, &compare, &format!("{name}-{}-{}", "point", index + 1));
            }
        }
    }
}

fn json(document: &impl Serialize) -> String {
    // The types of documents have string keys and no foreign serialisers, so this does not fail.
    serde_json::to_string(document).expect("documents are JSON")
}

fn link(name: &str, text: &str) -> Download {
    let href = format!("data:application/json;base64,{}", base64(text.as_bytes()));
    Download { name: format!("{name}.json"), href }
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |index: usize| u32::from(chunk.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * place) & 63) as usize];
            text.push(if place <= chunk.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{BenchDocument, CompareDocument, Run};

    #[test]
    fn base64_is_that_of_the_rfc() {
        // RFC 4648, section 10.
        let pairs =
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")];
        for (plain, coded) in pairs {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
    }

    #[test]
    fn a_result_too_long_for_one_link_has_one_for_each_run() {
        let long = BenchDocument { failure: Some("x".repeat(WHOLE_MAX)), ..Default::default() };
        let run = Run { document: long, ..Run::default() };
        let compare = CompareDocument { runs: vec![run.clone(), run], ..Default::default() };
        let links = links(&[Document::Compare(Box::new(compare))]);
        let names: Vec<_> = links.iter().map(|link| link.name.as_str()).collect();
        assert_eq!(names, ["result-1.json", "result-1-run-1.json", "result-1-run-2.json"]);
    }
}
