//! What variants are called: by what sets them apart rather than by their letters.

use serde_json::Value;

use crate::document::Variant;

/// Before the name of a flag of the job among the options of a variant.
pub const JOB: &str = "job.";

/// Whether any of these variants, given by options, has a job that another has not.
#[must_use]
pub fn jobs_differ<'a>(variants: impl IntoIterator<Item = &'a Value>) -> bool {
    let of = |options: &'a Value| {
        let fields = options.as_object().into_iter().flatten();
        fields.filter(|(name, _)| name.starts_with(JOB)).collect::<Vec<_>>()
    };
    let mut jobs = variants.into_iter().map(of);
    let first = jobs.next();
    jobs.any(|job| Some(&job) != first.as_ref())
}

/// What has taken effect of the options of a variant, as its runs tell: the queue mode, the
/// scheduler, how many queues, and of how many requests. None of the kernel's own schedulers, which
/// stand behind those of the runs.
#[must_use]
pub fn in_effect(variant: &Variant) -> Option<String> {
    let options = &variant.rounds.first()?.options;
    if variant.options.get("kernel_scheduler").is_some() {
        return None;
    }
    let text = |name: &str| options.get(name).and_then(Value::as_str);
    let number = |name: &str| options.get(name).and_then(Value::as_u64);
    let (queues, requests) = (number("queues")?, number("nr_requests")?);
    let queues = if queues == 1 { String::from("1 queue") } else { format!("{queues} queues") };
    Some(format!("{} with {}, {queues} of {requests}", text("queue_mode")?, text("scheduler")?))
}

/// Longest label, characters.
const LABEL_MAX: usize = 40;

/// A value of a document in words, as `queue_mode=sq, queues=4`.
#[must_use]
pub fn words(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Object(fields) => {
            let pairs = fields.iter().filter(|(_, value)| !value.is_null());
            let pairs = pairs.map(|(name, value)| format!("{name}={}", words(value)));
            pairs.collect::<Vec<_>>().join(", ")
        }
        Value::Array(values) => values.iter().map(words).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

/// At most so many characters. Those that are missing are missed in the middle, for names often
/// differ at their end.
#[must_use]
pub fn shortened(text: &str, most: usize) -> String {
    let count = text.chars().count();
    if count <= most {
        return String::from(text);
    }
    let kept = most.saturating_sub(1);
    let head = text.chars().take(kept / 2);
    let tail = text.chars().skip(count - (kept - kept / 2));
    head.chain(['…']).chain(tail).collect()
}

/// Texts with at most so many characters each, apart where the texts are: where two would be the
/// same without their middle, they end in their positions, counted from 1, as `#2`.
#[must_use]
pub fn shortened_apart(texts: &[String], most: usize) -> Vec<String> {
    let short: Vec<String> = texts.iter().map(|text| shortened(text, most)).collect();
    let is_taken = |at: usize| {
        (0..texts.len()).any(|other| short[other] == short[at] && texts[other] != texts[at])
    };
    let numbered = |(at, text): (usize, &String)| {
        if !is_taken(at) {
            return short[at].clone();
        }
        let number = format!("#{}", at + 1);
        shortened(text, most.saturating_sub(number.chars().count())) + &number
    };
    texts.iter().enumerate().map(numbered).collect()
}

/// The labels of variants, given by name and options: the values of the options in which they
/// differ, or their names where that tells them apart no longer once it is short.
#[must_use]
pub fn labels(variants: &[(&str, &Value)]) -> Vec<String> {
    let options: Vec<&Value> = variants.iter().map(|(_, options)| *options).collect();
    let short: Vec<String> =
        options.iter().map(|one| shortened(&apart(one, &options), LABEL_MAX)).collect();
    let unique = short.iter().enumerate().all(|(index, label)| !short[..index].contains(label));
    if unique && short.iter().all(|label| !label.is_empty()) {
        return short;
    }
    variants.iter().map(|(name, _)| String::from(*name)).collect()
}

/// The values of the options in which the variants differ; of a list, as a target is one, the
/// parts that not all of them have.
fn apart(own: &Value, all: &[&Value]) -> String {
    let Some(options) = own.as_object() else { return words(own) };
    let differs = |name: &String, value: &Value| {
        let others: Vec<String> =
            all.iter().map(|other| other.get(name).map(words).unwrap_or_default()).collect();
        let value = words(value);
        if others.iter().all(|other| *other == value) {
            return None;
        }
        let is_shared =
            |part: &&str| others.iter().all(|other| other.split(',').any(|one| one == *part));
        let parts: Vec<&str> = value.split(',').filter(|part| !is_shared(part)).collect();
        // One that has all of another's parts and more is called by what it adds; the other as it
        // is.
        let told = if parts.is_empty() { value.clone() } else { parts.join(",") };
        // A number alone does not say what it is of, nor does a switch.
        let is_bare = told.starts_with(|c: char| c.is_ascii_digit()) && !told.contains([':', '=']);
        let is_switch = ["on", "off", "true", "false", "yes", "no"].contains(&told.as_str());
        Some(if is_bare || is_switch { format!("{name}={told}") } else { told })
    };
    options.iter().filter_map(|(name, value)| differs(name, value)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    use crate::document::Bench;

    #[test]
    fn what_has_taken_effect_is_what_the_runs_tell() {
        let options = json!({
            "queue_mode": "sq", "scheduler": "cfq", "queues": 1, "nr_requests": 128,
        });
        let options = options.as_object().cloned().expect("an object");
        let bench = Bench { options, ..Default::default() };
        let mut told = Variant { rounds: vec![bench], ..Default::default() };
        assert_eq!(in_effect(&told).as_deref(), Some("sq with cfq, 1 queue of 128"));
        told.rounds[0].options.insert(String::from("queues"), Value::from(2));
        assert_eq!(in_effect(&told).as_deref(), Some("sq with cfq, 2 queues of 128"));
        told.options = json!({ "kernel_scheduler": "bfq" });
        assert_eq!(in_effect(&told), None);
        told = Default::default();
        assert_eq!(in_effect(&told), None, "no round counts");
    }

    #[test]
    fn texts_that_differ_in_the_middle_alone_are_told_apart_when_they_are_short() {
        let texts = ["target-first-of-disk", "target-other-of-disk", "a", "b"].map(String::from);
        let short = shortened_apart(&texts, 11);
        assert_eq!(short, ["targ…disk#1", "targ…disk#2", "a", "b"]);
        assert!(short.iter().all(|text| text.chars().count() <= 11), "{short:?}");
        let same = shortened_apart(&[texts[0].clone(), texts[0].clone()], 11);
        assert_eq!(same, ["targe…-disk"; 2], "these are the same");
    }

    #[test]
    fn jobs_differ_by_flags_of_the_job_and_by_nothing_else() {
        let differ = |all: &[Value]| jobs_differ(all);
        let job = |threads: &str| json!({"queue_mode": "sq", "job.threads": threads});
        assert!(differ(&[job("4"), job("2")]));
        assert!(differ(&[json!({}), json!({}), job("2")]));
        assert!(!differ(&[job("2"), json!({"queue_mode": "mq", "job.threads": "2"})]));
        assert!(!differ(&[json!({"queue_mode": "sq"}), json!({"queue_mode": "mq"})]));
        assert!(!differ(&[]));
    }

    #[test]
    fn variants_are_called_by_what_sets_them_apart() {
        let of = |a: Value, b: Value| labels(&[("a", &a), ("b", &b)]);
        let queue = |mode: &str| json!({"queue_mode": mode, "barriers": "on"});
        assert_eq!(of(queue("sq"), queue("mq")), ["sq", "mq"]);
        assert_eq!(of(queue("sq"), queue("sq")), ["a", "b"]);
        let delay = |us: &str| json!({ "latency_us": us });
        assert_eq!(of(delay("200"), delay("1000")), ["latency_us=200", "latency_us=1000"]);
        let barriers = |how: &str| json!({ "barriers": how });
        assert_eq!(of(barriers("on"), barriers("off")), ["barriers=on", "barriers=off"]);
        let whole = ["scheduler=bfq", "scheduler=kyber"];
        assert_eq!(of(json!(whole[0]), json!(whole[1])), whole);
        let target = |target: &str| json!({ "target": target });
        let [slow, slower] = ["null:1GiB,latency_us=200", "null:1GiB,latency_us=300"].map(target);
        assert_eq!(of(slow, slower.clone()), ["latency_us=200", "latency_us=300"]);
        assert_eq!(of(target("null:1GiB"), slower), ["null:1GiB", "latency_us=300"]);
    }

    #[test]
    fn a_long_label_is_missed_in_its_middle_as_long_as_that_tells_variants_apart() {
        let long = |end: &str| json!({ "path": format!("{}{end}", "x".repeat(60)) });
        let found = labels(&[("a", &long("1")), ("b", &long("2"))]);
        assert!(found.iter().all(|label| label.chars().count() == LABEL_MAX), "{found:?}");
        assert!(found[0].contains('…') && found[0].ends_with('1') && found[1].ends_with('2'));
        let middle = |at: &str| json!({ "path": format!("{0}{at}{0}", "x".repeat(30)) });
        assert_eq!(labels(&[("a", &middle("1")), ("b", &middle("2"))]), ["a", "b"]);
    }

    #[test]
    fn a_long_name_keeps_its_end() {
        assert_eq!(shortened("null:1GiB,latency_us=200", 24), "null:1GiB,latency_us=200");
        assert_eq!(shortened("null:1GiB,latency_us=200", 15), "null:1G…_us=200");
        assert_eq!(shortened("abcdef", 4), "a…ef");
        assert_eq!(shortened("abcdef", 1), "…");
    }
}
