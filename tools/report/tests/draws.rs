//! Saved results of every kind, drawn: what a page has to hold, and that it holds together.

use std::path::Path;

use base64::prelude::{BASE64_STANDARD, Engine};
use serde_json::json;
use weir_report::{Document, Error, csv, html, markdown};

fn saved(name: &str) -> Document {
    let path = format!("{}/tests/documents/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(Path::new(&path)).expect("a saved document");
    serde_json::from_str(&text).expect("a document")
}

fn document(value: serde_json::Value) -> Document {
    serde_json::from_value(value).expect("a document")
}

/// Every element of a page is closed where it was opened; the names of all, in order.
fn elements(page: &str) -> Vec<String> {
    let (mut open, mut all): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    let mut rest = page;
    while let Some(start) = rest.find('<') {
        let end = start + rest[start..].find('>').expect("a tag ends");
        let tag = &rest[start + 1..end];
        rest = &rest[end + 1..];
        let name: String =
            tag.trim_start_matches('/').chars().take_while(char::is_ascii_alphanumeric).collect();
        let is_void = ["meta", "link", "br"].contains(&name.as_str()) || tag.ends_with('/');
        match tag.chars().next() {
            Some('!') => {}
            Some('/') => assert_eq!(open.pop().as_ref(), Some(&name), "closed out of turn"),
            _ => {
                all.push(name.clone());
                if !is_void {
                    open.push(name);
                }
            }
        }
    }
    assert!(open.is_empty(), "never closed: {open:?}");
    all
}

fn count(page: &str, name: &str) -> usize {
    elements(page).iter().filter(|element| *element == name).count()
}

#[test]
fn a_comparison_has_its_verdicts_first_and_then_charts_and_tables() {
    let page = html(&[saved("compare")]).expect("a page");
    assert!(count(&page, "svg") >= 10, "{} charts", count(&page, "svg"));
    assert!(count(&page, "table") >= 4);
    let answer = page.find("class=\"answer\"").expect("an answer");
    assert!(answer < page.find("<svg").expect("a chart"));
    assert!(page.find("<svg") < page.find("<details class=\"section\""), "one chart before all");
    for words in [
        "faster than sq: IOPS",
        "CPU per I/O, sq and mq: no detectable difference; 3.0 % would have been seen",
        "the control took 1.31 times its usual time",
        "Latency percentiles",
        "Where the time went",
        "weir compare --target ram:1GiB --a queue_mode=sq --b queue_mode=mq",
        "Example CPU 3000",
        "The published figures: SLOB on a PowerMax",
    ] {
        let page = page.replace('\u{a0}', " ").replace("&#x2f;", "/");
        assert!(page.contains(words), "{words:?} is not there");
    }
    assert!(page.contains("186,214 (320 processes)") && page.contains("ours: mq"));
}

#[test]
fn a_sweep_has_the_table_of_the_documents_and_names_their_contradiction() {
    let page = html(&[saved("sweep")]).expect("a page");
    assert!(page.contains(r#"<th scope="col">threads</th><th scope="col">8</th>"#));
    assert!(page.contains("IOPS, ours: mq"));
    let page = page.replace('\u{a0}', " ");
    assert!(page.contains("it prints response-time reductions of 13, 27, 47 and 44 %"));
    assert!(page.contains("-37.7 %") && page.contains("−47 %"));
}

#[test]
fn a_page_of_any_document_is_whole_and_asks_nobody_for_anything() {
    for name in ["bench", "compare", "one-round", "single", "sweep"] {
        let page = html(&[saved(name)]).expect(name);
        assert!(count(&page, "svg") > 0 && count(&page, "table") > 0, "{name}");
        assert_eq!(count(&page, "script") + count(&page, "img") + count(&page, "iframe"), 0);
        assert!(page.contains("default-src 'none'"));
        let addresses = page.matches("http").count();
        assert_eq!(addresses, page.matches("http://www.w3.org/2000/svg").count() + 1, "{name}");
        // What is packed may have any letters.
        let (words, _) = page.split_once("<section class=\"raw\"").expect("the data");
        assert!(!words.contains("NaN") && !words.contains("inf\""), "{name}");
    }
}

#[test]
fn empty_partial_and_zero_documents_are_drawn_too() {
    let kinds = ["bench", "compare", "sweep", "iostat"];
    for kind in kinds {
        elements(&html(&[document(json!({"kind": kind}))]).expect(kind));
        assert!(markdown(&[document(json!({"kind": kind}))]).is_ok());
    }
    let partial = json!({"kind": "bench", "partial": true, "failure": "sda: EIO at sector 8",
        "series": [{"at_s": 0.1, "ios": 0}, {"at_s": 0.1, "ios": 5}]});
    let page = html(&[document(partial)]).expect("a page");
    assert!(page.contains("The run broke off: sda: EIO at sector 8."));
    elements(&page);
    let zeros = json!({"kind": "compare", "compare": {"variants": [
        {"name": "a", "rounds": [{}], "iops": {"mean": 0, "ci95": [0, 0]}},
        {"name": "b", "rounds": [{}], "iops": {"mean": 0, "ci95": [0, 0]}}],
        "comparisons": [{"a": "a", "b": "b", "metric": "iops", "ratio": null, "verdict": ""}]}});
    let page = html(&[document(zeros)]).expect("a page");
    assert!(page.contains("IOPS of a and b: not compared") && page.contains("No answer"));
    elements(&page);
    assert!(!page.contains("NaN"));
}

#[test]
fn text_from_documents_is_text_in_the_page() {
    let hostile = "<script>alert(1)</script>\"'&";
    let text = serde_json::to_string(&saved("compare")).expect("JSON");
    // Into every string that a document has.
    let mut value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    fn taint(value: &mut serde_json::Value, hostile: &str, key: &str) {
        match value {
            serde_json::Value::String(text) if key != "kind" => text.push_str(hostile),
            serde_json::Value::Array(all) => all.iter_mut().for_each(|v| taint(v, hostile, key)),
            serde_json::Value::Object(all) => {
                all.iter_mut().for_each(|(name, value)| taint(value, hostile, name));
            }
            _ => {}
        }
    }
    taint(&mut value, hostile, "");
    let documents = [document(value)];
    let page = html(&documents).expect("a page");
    assert!(page.contains("&lt;script&gt;"), "it is there, as text");
    assert_eq!(count(&page, "script"), 0);
    // In a fence nothing has a meaning, so what stands there is as it was given.
    let mut fenced = false;
    for line in markdown(&documents).expect("Markdown").lines() {
        fenced ^= line.starts_with("```");
        assert!(fenced || !line.contains("<script"), "{line}");
    }
}

#[test]
fn raw_data_in_the_page_is_the_document_again() {
    let page = html(&[saved("bench")]).expect("a page");
    let start = page.find("data:application/gzip;base64,").expect("a link") + 29;
    let coded = &page[start..start + page[start..].find('"').expect("its end")];
    let bytes = BASE64_STANDARD.decode(coded).expect("base64");
    let again: Document =
        serde_json::from_reader(flate2::read::GzDecoder::new(bytes.as_slice())).expect("JSON");
    assert_eq!(again, saved("bench"));
}

#[test]
fn markdown_and_csv_have_the_same_figures() {
    let documents = [saved("compare")];
    let text = markdown(&documents).expect("Markdown");
    assert!(text.contains("| IOPS |") && text.contains("## Before and after"), "{text}");
    let table = csv(&documents).expect("CSV");
    let lines: Vec<_> = table.lines().collect();
    assert_eq!(lines[0], "result,sweep,value,variant,round,voided,group,op,metric,number");
    let rounds = |variant: &str| {
        let metric = ",all,all,iops,";
        let start = format!("1,,,{variant},");
        lines.iter().filter(|line| line.starts_with(&start) && line.contains(metric)).count()
    };
    assert_eq!((rounds("a"), rounds("b")), (4, 4));
    assert!(lines.iter().any(|line| line.contains("the control took 1.31 times")));
}

#[test]
fn results_of_unequal_windows_are_refused_with_the_reason() {
    let bench = |seconds: f64| {
        document(json!({"kind": "bench", "bench": {"duration_s": seconds, "ios": 9}}))
    };
    let documents = [bench(10.0), bench(20.0)];
    for refused in [html(&documents), markdown(&documents), csv(&documents)] {
        let error = refused.expect_err("unequal windows");
        assert!(matches!(error, Error::UnequalWindows(_)));
        assert!(error.to_string().contains("result 1 lasted 10.00 s, result 2 20.00 s"), "{error}");
    }
    let page = html(&[bench(10.0), bench(10.0)]).expect("equal windows");
    assert!(page.contains("Side by side") && page.contains("no verdict"));
}

/// The saved sweep as JSON, to be changed.
fn sweep() -> serde_json::Value {
    serde_json::to_value(saved("sweep")).expect("JSON")
}

#[test]
fn a_sweep_that_broke_off_says_where_and_what_was_never_reached() {
    let mut value = sweep();
    let points = value["points"].as_array_mut().expect("points");
    let last = points.pop().expect("several points");
    let environment = &mut points[0]["document"]["compare"]["environment"];
    environment["failure"] = json!("interrupted in round 2");
    let page = html(&[document(value)]).expect("a page");
    let first = &sweep()["points"][0]["value"];
    let first = first.as_str().expect("a value");
    let words = format!("threads={first}: Partial: the comparison ended early: interrupted in rou");
    assert!(page.contains(&words), "{words}");
    let never = format!("nothing was run at threads={}.", last["value"].as_str().expect("a value"));
    assert!(page.contains(&never), "{never}");
    assert!(!html(&[saved("sweep")]).expect("a page").contains("nothing was run"));
}

#[test]
fn a_swept_depth_does_not_stand_among_numbers_of_threads() {
    assert!(html(&[saved("sweep")]).expect("a page").contains("IOPS, ours: mq"));
    let mut depth = sweep();
    depth["name"] = json!("iodepth");
    assert!(!html(&[document(depth)]).expect("a page").contains("IOPS, ours: mq"));
    let mut stages = sweep();
    for point in stages["points"].as_array_mut().expect("points") {
        point["document"]["job"]["jobs"] = json!([{"numjobs": 8}, {"numjobs": 16}]);
    }
    assert!(!html(&[document(stages)]).expect("a page").contains("IOPS, ours: mq"));
}

#[test]
fn a_difference_that_turns_along_a_sweep_is_neither_better_nor_worse() {
    let tone = |ratios: [f64; 2]| {
        let point = |(value, ratio): (usize, f64)| {
            let ends = [ratio * 0.99, ratio * 1.01];
            let way = if ratio > 1.0 { "b is faster" } else { "b is slower" };
            json!({"value": value.to_string(), "document": {"kind": "compare", "compare": {
                "variants": [{"name": "a", "options": "x"}, {"name": "b", "options": "y"}],
                "comparisons": [{"a": "a", "b": "b", "metric": "iops", "ratio": ratio,
                    "ci95": ends, "ci99": ends, "verdict": way}]}}})
        };
        let points: Vec<_> = ratios.into_iter().enumerate().map(point).collect();
        let value = json!({"kind": "sweep", "name": "iodepth", "points": points});
        let page = html(&[document(value)]).expect("a page");
        let start = page.find("IOPS, y against x").expect("a verdict");
        let (_, class) = page[..start].rsplit_once("class=\"").expect("its tone");
        String::from(class.split('"').next().expect("its end"))
    };
    assert_eq!(tone([0.7, 1.02]), "plain");
    assert_eq!((tone([1.1, 1.02]), tone([0.9, 0.8])), ("better".into(), "worse".into()));
}

#[test]
fn titles_of_several_results_count_along() {
    let page = html(&[saved("bench"), saved("compare")]).expect("a page");
    let title = &page[page.find("<h1>").expect("a title")..page.find("</h1>").expect("its end")];
    assert!(title.contains("1. ") && title.contains("; 2. "), "{title}");
}

#[test]
fn what_runs_say_of_themselves_stands_at_the_top_as_a_warning() {
    let notice = "durability disabled: barriers=off";
    let run = json!({"kind": "bench", "notices": [notice], "bench": {"ios": 7}});
    let page = html(&[document(run.clone())]).expect("a page");
    let at = page.find(notice).expect("the notice");
    assert!(at < page.find("</header>").expect("a header"), "it is further down");
    assert!(page[..at].ends_with("<li class=\"warning\">"));
    assert!(markdown(&[document(run.clone())]).expect("Markdown").contains(&format!("- {notice}")));
    let two = json!({"kind": "compare", "compare": {"variants": [{"name": "a"}, {"name": "b"}]},
        "runs": [{"variant": "a", "document": {}}, {"variant": "b", "document": run.clone()},
            {"variant": "b", "document": run}]});
    let page = html(&[document(two)]).expect("a page");
    assert_eq!(page.matches(&format!(">b: {notice}<")).count(), 1, "once, with its variant");
}

#[test]
fn a_disk_that_was_measured_without_durability_is_named_beside_the_figures() {
    let safe = json!({"kind": "bench", "bench": {"ios": 7}});
    let mut run = safe.clone();
    run["bench"]["durability_disabled"] = json!(["file:x,barriers=off"]);
    let told = "durability disabled";
    let page = |run: &serde_json::Value| {
        let documents = [document(run.clone())];
        [html(&documents).expect("a page"), markdown(&documents).expect("Markdown")]
    };
    for text in page(&run) {
        assert!(text.contains(told) && text.contains("file:x,barriers=off"), "{text}");
    }
    assert!(page(&safe).iter().all(|text| !text.contains(told)));
    let two = json!({"kind": "compare", "compare": {"variants": [{"name": "a"}, {"name": "b"}]},
        "runs": [{"variant": "a", "document": safe}, {"variant": "b", "document": run}]});
    let words = markdown(&[document(two)]).expect("Markdown");
    let row = words.lines().find(|line| line.contains("durability")).expect("a row");
    let cells: Vec<&str> = row.split('|').map(str::trim).filter(|cell| !cell.is_empty()).collect();
    assert_eq!(cells, ["durability", "–", "disabled"], "{row}");
}

/// A comparison of so many variants and rounds, made of the saved one.
fn many(variants: usize, rounds: usize) -> Document {
    let mut value = serde_json::to_value(saved("compare")).expect("JSON");
    let run = value["runs"][0].clone();
    let variant = value["compare"]["variants"][0].clone();
    let found = value["compare"]["comparisons"][0].clone();
    let name = |at: usize| format!("v{at}");
    let label =
        |at: usize| format!("a-scheduler-with-a-name-of-some-sixty-characters-in-all-{at:04}");
    value["compare"]["variants"] = (0..variants)
        .map(|at| {
            let mut one = variant.clone();
            one["name"] = name(at).into();
            one["options"] = json!({"kernel_scheduler": label(at)});
            one["rounds"] = json!([]);
            one
        })
        .collect();
    value["compare"]["comparisons"] = (0..variants)
        .flat_map(|a| (a + 1..variants).map(move |b| (a, b)))
        .map(|(a, b)| {
            let mut one = found.clone();
            (one["a"], one["b"]) = (name(a).into(), name(b).into());
            one["verdict"] = "no detectable difference".into();
            one
        })
        .collect();
    value["runs"] = (0..rounds * variants)
        .map(|at| {
            let mut one = run.clone();
            one["variant"] = name(at % variants).into();
            one["round"] = (at / variants + 1).into();
            one["voided"] = serde_json::Value::Null;
            one
        })
        .collect();
    document(value)
}

#[test]
fn a_page_of_many_variants_and_rounds_is_small_without_its_data() {
    let page = html(&[many(12, 150)]).expect("a page");
    let raw: usize = page
        .split("href=\"data:application/gzip")
        .skip(1)
        .map(|rest| rest.find('"').expect("its end"))
        .sum();
    assert!(page.len() - raw < 1_000_000, "{} bytes without the data", page.len() - raw);
    assert!(raw > 0 && raw < page.len());
    assert!(page.contains("further runs are in the raw data"));
    let answer = &page[page.find("class=\"answer\"").expect("an answer")..];
    let answer = &answer[..answer.find("</p>").expect("its end")];
    assert!(answer.contains("Keep ") && answer.contains("nothing measurably faster"), "{answer}");
    assert!(page.contains("in-all-0011") && page.contains("★= "), "all of them are there");
}

#[test]
fn a_chart_has_its_figures_under_it() {
    for name in ["bench", "compare", "one-round", "single", "sweep"] {
        let page = html(&[saved(name)]).expect(name);
        for figure in page.split("<figure>").skip(1) {
            let figure = &figure[..figure.find("</figure>").expect("its end")];
            assert!(figure.contains("class=\"figures\"") && figure.contains("<table"), "{name}");
        }
    }
}

#[test]
fn what_answers_no_first_question_is_folded() {
    let page = html(&[saved("compare")]).expect("a page");
    let at = |words: &str| page.find(words).unwrap_or_else(|| panic!("{words}"));
    assert!(at("class=\"card") < at("Every metric against sq"));
    let folded = at("<details class=\"section\"");
    assert!(at("Every metric against sq") < folded);
    for title in ["Every two variants", "What was compared", "Before and after", "Every round"] {
        assert!(folded < at(&format!("<h2>{title}")), "{title}");
    }
}
