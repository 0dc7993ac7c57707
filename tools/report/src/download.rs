//! Raw data as links: the documents themselves, in base64 (RFC 4648), inside the page.

use base64::prelude::{BASE64_STANDARD, Engine};
use serde::Serialize;
use serde_json::Value;

/// A file inside the page.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Download {
    pub(crate) name: String,
    pub(crate) href: String,
}

/// Longest document for one link, bytes: browsers take data URLs of 2 MB, and base64 adds a third.
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
    let is_long = text.len() > WHOLE_MAX;
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
    let href = format!("data:application/json;base64,{}", BASE64_STANDARD.encode(text));
    Download { name: format!("{name}.json"), href }
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
        let run = json!({"document": {"failure": "x".repeat(WHOLE_MAX)}});
        let compare = json!({"kind": "compare", "runs": [run, run]});
        let expected = ["result-1.json", "result-1-run-1.json", "result-1-run-2.json"];
        assert_eq!(names(compare.clone()), expected);
        let sweep = json!({"kind": "sweep", "points": [{"value": "1", "document": compare}]});
        let expected = ["", "-point-1", "-point-1-run-1", "-point-1-run-2"];
        assert_eq!(names(sweep), expected.map(|rest| format!("result-1{rest}.json")));
        assert_eq!(names(json!({"runs": [1]})), ["result-1.json"]);
    }

    #[test]
    fn a_link_has_every_field_of_what_was_read() {
        let file = json!({"kind": "bench", "cores": [{"cpu": 0, "user_s": 1.5}]});
        let page = crate::html_of_files(std::slice::from_ref(&file)).expect("a page");
        let coded = BASE64_STANDARD.encode(file.to_string());
        assert!(page.contains(&coded), "{page}");
    }
}
