//! Raw data as links: the documents themselves, packed by gzip (RFC 1952) and in base64 (RFC 4648),
//! inside the page.

use std::io::Write;

use base64::prelude::{BASE64_STANDARD, Engine};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;
use serde_json::Value;

/// A file inside the page.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Download {
    pub(crate) name: String,
    pub(crate) href: String,
}

/// Longest packed document for one link, bytes: browsers take data URLs of 2 MB, and base64 adds a
/// third.
const WHOLE_MAX: usize = 1_400_000;

/// A link for each document; where one is too long, one for what it says and one for each run.
/// They are values, so that what was read from a file is handed on with every field it had.
pub(crate) fn links(documents: Vec<Value>) -> Vec<Download> {
    let mut links = Vec::new();
    for (index, document) in documents.into_iter().enumerate() {
        add(&mut links, document, &format!("result-{}", index + 1));
    }
    links
}

fn add(links: &mut Vec<Download>, mut document: Value, name: &str) {
    let text = document.to_string();
    let list = |document: &mut Value, field: &str| match document.get_mut(field) {
        Some(Value::Array(list)) => std::mem::take(list),
        _ => Vec::new(),
    };
    // One run has a bounded number of samples and buckets; a longer one is no less its data.
    let is_long = packed(&text).len() > WHOLE_MAX;
    let runs = if is_long { list(&mut document, "runs") } else { Vec::new() };
    let points = if is_long { list(&mut document, "points") } else { Vec::new() };
    if runs.is_empty() && points.is_empty() {
        return links.push(link(name, &text));
    }
    links.push(link(name, &document.to_string()));
    for (index, run) in runs.into_iter().enumerate() {
        links.push(link(&format!("{name}-run-{}", index + 1), &run.to_string()));
    }
    for (index, mut point) in points.into_iter().enumerate() {
        let name = format!("{name}-point-{}", index + 1);
        match point.get_mut("document") {
            Some(document) => add(links, document.take(), &name),
            None => links.push(link(&name, &point.to_string())),
        }
    }
}

fn link(name: &str, text: &str) -> Download {
    let href = format!("data:application/gzip;base64,{}", BASE64_STANDARD.encode(packed(text)));
    Download { name: format!("{name}.json.gz"), href }
}

fn packed(text: &str) -> Vec<u8> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::default());
    let packed = packer.write_all(text.as_bytes()).and_then(|()| packer.finish());
    packed.expect("a vector takes all bytes")
}

/// The text of a link, as a reader unpacks it.
#[cfg(test)]
pub(crate) fn unpacked(href: &str) -> String {
    let coded = href.split_once("base64,").expect("a link").1;
    let bytes = BASE64_STANDARD.decode(coded).expect("base64");
    let mut text = String::new();
    let mut reader = flate2::read::GzDecoder::new(bytes.as_slice());
    std::io::Read::read_to_string(&mut reader, &mut text).expect("gzip of text");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn names(document: Value) -> Vec<String> {
        links(vec![document]).into_iter().map(|link| link.name).collect()
    }

    #[test]
    fn a_result_too_long_for_one_link_has_one_for_each_run() {
        // Letters that no packer foresees, from a generator of numbers (Knuth's, MMIX).
        let letter = |state: &mut u64| {
            *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            Some(char::from(b'!' + (*state >> 58) as u8))
        };
        let text = |seed: u64| -> String {
            std::iter::successors(Some((seed, ' ')), |(state, _)| {
                let mut state = *state;
                letter(&mut state).map(|c| (state, c))
            })
            .map(|(_, c)| c)
            .take(WHOLE_MAX)
            .collect()
        };
        let run = json!({"document": {"failure": text(1)}});
        let compare = json!({"kind": "compare", "runs": [run, run]});
        let expected = ["result-1.json.gz", "result-1-run-1.json.gz", "result-1-run-2.json.gz"];
        assert_eq!(names(compare.clone()), expected);
        let sweep = json!({"kind": "sweep", "points": [{"value": "1", "document": compare}]});
        let expected = ["", "-point-1", "-point-1-run-1", "-point-1-run-2"];
        assert_eq!(names(sweep), expected.map(|rest| format!("result-1{rest}.json.gz")));
        assert_eq!(names(json!({"runs": [1]})), ["result-1.json.gz"]);
    }

    #[test]
    fn a_link_has_every_field_of_what_was_read() {
        let file = json!({"kind": "bench", "cores": [{"cpu": 0, "user_s": 1.5}]});
        let page = crate::html_of_files(std::slice::from_ref(&file)).expect("a page");
        let href = page.split("href=\"").find(|rest| rest.starts_with("data:application/gzip"));
        let href = href.and_then(|rest| rest.split('"').next()).expect("a link");
        assert_eq!(unpacked(href), file.to_string());
        // What is packed is the same whenever that is done.
        assert_eq!(page, crate::html_of_files(std::slice::from_ref(&file)).expect("a page"));
    }
}
