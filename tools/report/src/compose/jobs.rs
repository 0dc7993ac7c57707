//! The names and descriptions of jobs.

use serde_json::{Map, Value};

use crate::numbers::words;
use crate::sources;

/// How many jobs of a file a title names.
const NAMED_MAX: usize = 3;

/// The name of a job: its preset, the names in its file, or what it does.
pub(super) fn name(job: &Value) -> String {
    let field = |name: &str| job.get(name).and_then(Value::as_str);
    if let Some(preset) = sources::preset(job) {
        return String::from(sources::name(preset));
    }
    // Options of a command line make one job, which the command calls `job`.
    let named = field("preset").or_else(|| field("name").filter(|name| *name != "job"));
    if let Some(name) = named.or(job.as_str()) {
        return String::from(name);
    }
    if let Some(jobs) = job.get("jobs").and_then(Value::as_array) {
        let mut names: Vec<String> = jobs.iter().take(NAMED_MAX).map(name).collect();
        if jobs.len() > NAMED_MAX {
            names.push(format!("{} more", jobs.len() - NAMED_MAX));
        }
        return names.join(", ");
    }
    match field("rw") {
        Some(rw) => {
            let bytes = job.get("bs").map(single).unwrap_or_default();
            format!("{rw} {}", size_name(&bytes)).trim_end().into()
        }
        None => String::from("a job"),
    }
}

/// Bytes of a block as people say them: 4096 is `4k`.
fn size_name(bytes: &str) -> String {
    match bytes.parse::<u64>() {
        Ok(bytes) if bytes > 0 && bytes.is_multiple_of(1 << 20) => format!("{}M", bytes >> 20),
        Ok(bytes) if bytes > 0 && bytes.is_multiple_of(1 << 10) => format!("{}k", bytes >> 10),
        _ => String::from(bytes),
    }
}

/// The disks of a group, and what each of them is called.
const GROUPS: [(&str, &str); 2] = [("data_disks", "data disk"), ("redo_disks", "redo disk")];

/// The fields on the redo in jobs without such lines: the target, and its options.
const REDO: [&str; 2] = ["redo", "redo_options"];

/// A line for each job: its name and its options, without the one named `except`; and one for each
/// disk of its groups.
pub(super) fn facts(job: &Value, except: &str) -> Vec<(&'static str, String)> {
    let jobs = job.get("jobs").and_then(Value::as_array);
    let all = jobs.map_or_else(|| vec![job], |jobs| jobs.iter().collect());
    let line = |job: &Value| match job {
        Value::Object(fields) => options(fields, except),
        other => words(other),
    };
    let mut facts: Vec<_> = all.into_iter().map(|job| ("job", line(job))).collect();
    for (field, name) in GROUPS {
        let disks = job.get(field).and_then(Value::as_array).into_iter().flatten();
        facts.extend(disks.map(|disk| {
            let target = disk.get("target").map(words).unwrap_or_default();
            let options = disk.get("options").map(words).unwrap_or_default();
            (name, format!("{target}: {options}"))
        }));
    }
    facts
}

/// The same where variants differ in the options of the data's disks, which one of them cannot
/// speak for.
pub(super) fn facts_of_all(job: &Value, except: &str) -> Vec<(&'static str, String)> {
    facts(job, except).into_iter().filter(|(name, _)| *name != GROUPS[0].1).collect()
}

fn options(fields: &Map<String, Value>, except: &str) -> String {
    let name = fields.get("name").and_then(Value::as_str);
    let redo_lines = fields.get(GROUPS[1].0).and_then(Value::as_array);
    let has_redo_lines = redo_lines.is_some_and(|disks| !disks.is_empty());
    // Threads are what a job file calls numjobs.
    let is_swept = |name: &str| name == except || (except == "threads" && name == "numjobs");
    let pairs = fields
        .iter()
        .filter(|(field, value)| !value.is_null() && *field != "name" && !is_swept(field))
        .filter(|(field, _)| GROUPS.iter().all(|(group, _)| group != field))
        .filter(|(field, _)| !(has_redo_lines && REDO.contains(&field.as_str())));
    let shown = |field: &str, value| if field == REDO[0] { words(value) } else { single(value) };
    let pairs: Vec<String> =
        pairs.map(|(field, value)| format!("{field}={}", shown(field, value))).collect();
    match name {
        Some(name) => format!("{name}: {}", pairs.join(", ")),
        None => pairs.join(", "),
    }
}

/// A value that is given for reads, writes and trims; once, if they are the same.
fn single(value: &Value) -> String {
    let parts: Vec<String> = match value {
        Value::Array(parts) => parts.iter().map(words).collect(),
        Value::String(text) => text.split(',').map(String::from).collect(),
        other => return words(other),
    };
    match parts.split_first() {
        Some((first, rest)) if rest.iter().all(|part| part == first) => first.clone(),
        _ => parts.join("/"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_job_is_called_by_its_preset_its_sections_or_what_it_does() {
        let file = json!({"jobs": [{"name": "readers"}, {"name": "log"}]});
        assert_eq!(name(&file), "readers, log");
        assert_eq!(name(&json!({"preset": "oltp", "users": 80})), "oltp");
        assert_eq!(name(&json!({"preset": "streams"})), "streams");
        assert_eq!(name(&json!({"name": "job", "rw": "randread", "bs": 4096})), "randread 4k");
        assert_eq!(name(&json!({"rw": "read", "bs": "4096,4096"})), "read 4k");
        let many: Vec<Value> = (0..5).map(|n| json!({"name": n.to_string()})).collect();
        assert_eq!(name(&json!({"jobs": many})), "0, 1, 2, 2 more");
    }

    #[test]
    fn each_disk_of_a_group_has_a_line_of_its_own() {
        let disk = |target: &str| json!({"target": target, "options": {"scheduler": "none"}});
        let job = json!({"preset": "oltp", "stripe": 1_048_576,
            "data_disks": [disk("file:a"), disk("file:b")], "redo_disks": [disk("file:c")]});
        let expected = [
            ("job", "preset=oltp, stripe=1048576"),
            ("data disk", "file:a: scheduler=none"),
            ("data disk", "file:b: scheduler=none"),
            ("redo disk", "file:c: scheduler=none"),
        ];
        let facts = facts(&job, "");
        assert!(facts.iter().map(|(name, text)| (*name, text.as_str())).eq(expected), "{facts:?}");
        // Where the redo is stands in its own lines, or else in that of the job.
        let mut said = job.clone();
        said["redo"] = "file:c,queues=2".into();
        said["redo_options"] = json!({"queues": 2});
        assert_eq!(super::facts(&said, ""), facts);
        let alone = json!({"preset": "oltp", "redo": "file:c,queues=2"});
        assert_eq!(super::facts(&alone, "")[0].1, "preset=oltp, redo=file:c,queues=2");
        let of_all: Vec<&str> = facts_of_all(&job, "").iter().map(|(name, _)| *name).collect();
        assert_eq!(of_all, ["job", "redo disk"]);
    }

    #[test]
    fn each_job_has_a_line_in_which_nothing_stands_twice() {
        let file = json!({"jobs": [
            {"name": "a", "bs": "4096/60:8192/40,4096/60:8192/40", "rate_iops": [300, 300, 300]},
            {"name": "b", "rate_iops": [300, 200, 0], "iodepth": 4, "size": null}]});
        let lines: Vec<String> = facts(&file, "").into_iter().map(|(_, line)| line).collect();
        assert_eq!(lines[0], "a: bs=4096/60:8192/40, rate_iops=300");
        assert_eq!(lines[1], "b: iodepth=4, rate_iops=300/200/0");
        assert_eq!(facts(&file, "iodepth")[1].1, "b: rate_iops=300/200/0");
        assert_eq!(facts(&json!("mine"), "")[0].1, "mine");
    }
}
