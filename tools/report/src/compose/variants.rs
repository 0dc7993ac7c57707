//! The variants: the target of each and its device's options as they took effect.

use serde_json::Value;

use super::rounds::benches;
use crate::numbers::{NONE, words};
use crate::page::{Section, Table};
use weir_trace::document::{Bench, CompareDocument, Variant};

/// Options that stand in the table also where all variants have the same.
const ALWAYS: [(&str, &str); 4] = [
    ("scheduler", "scheduler"),
    ("queue_mode", "queue mode"),
    ("queues", "queues"),
    ("nr_requests", "nr_requests"),
];

/// The job and the target of every variant.
pub(super) fn section(document: &CompareDocument, labels: &[String]) -> Section {
    let mut section = Section::new("What was compared");
    let variants = &document.compare.variants;
    let firsts: Vec<Option<&Bench>> =
        variants.iter().map(|variant| first(document, variant)).collect();
    let mut table = Table::new("Options as they took effect", ["variant"]);
    table.head.extend(variants.iter().zip(labels).map(|(variant, label)| {
        let same = *label == variant.name;
        if same { label.clone() } else { format!("{}: {label}", variant.name) }
    }));
    let mut row = |name: &str, cells: Vec<String>| {
        if cells.iter().any(|cell| cell != NONE) {
            table.rows.push(std::iter::once(String::from(name)).chain(cells).collect());
        }
    };
    let told = |bench: &Option<&Bench>, of: &dyn Fn(&Bench) -> String| {
        bench.map(of).filter(|text| !text.is_empty()).unwrap_or_else(|| String::from(NONE))
    };
    let option = |name: &str| {
        let of = |bench: &Bench| bench.options.get(name).map(words).unwrap_or_default();
        firsts.iter().map(|bench| told(bench, &of)).collect::<Vec<_>>()
    };
    row("target", firsts.iter().map(|bench| told(bench, &|b| b.target.clone())).collect());
    let undurable = |bench: &Bench| match bench.durability_disabled.is_empty() {
        true => String::new(),
        false => String::from("disabled"),
    };
    row("durability", firsts.iter().map(|bench| told(bench, &undurable)).collect());
    let given = |variant: &Variant| variant.options.get("kernel_scheduler").map(words);
    let kernel = variants.iter().map(|v| given(v).unwrap_or_else(|| String::from(NONE)));
    row("the kernel's scheduler", kernel.collect());
    for (field, name) in ALWAYS {
        row(name, option(field));
    }
    let fields = firsts.iter().flatten().flat_map(|bench| bench.options.keys());
    let mut others: Vec<&String> =
        fields.filter(|field| ALWAYS.iter().all(|(known, _)| known != field)).collect();
    others.sort_unstable();
    others.dedup();
    for field in others {
        let cells = option(field);
        if cells.iter().any(|cell| *cell != cells[0]) {
            row(field, cells);
        }
    }
    section.table(table);
    section
}

/// A run of a variant; all of them have its target and its options.
fn first<'a>(document: &'a CompareDocument, variant: &'a Variant) -> Option<&'a Bench> {
    let of_any = || document.runs.iter().find(|run| run.variant == variant.name);
    let counted = benches(document, variant).first().copied();
    counted.or_else(|| of_any().map(|run| &run.document.bench))
}

/// The targets of a run: those of its group, or the only one.
fn targets(bench: &Bench) -> Vec<String> {
    let group = bench.job.get("data_disks").and_then(Value::as_array);
    let target = |disk: &Value| disk.get("target").map(words);
    let group = group.and_then(|disks| disks.iter().map(target).collect::<Option<Vec<String>>>());
    group.filter(|disks| !disks.is_empty()).unwrap_or_else(|| vec![bench.target.clone()])
}

/// The common ground of all variants: what the targets of each disk begin with, or those of each
/// variant where they begin with nothing in common.
pub(super) fn ground(document: &CompareDocument) -> String {
    let variants = document.compare.variants.iter();
    let own = |variant: &'_ Variant| {
        let asked = variant.options.get("target").and_then(Value::as_str);
        let ran = first(document, variant).map(targets);
        let ran = ran.filter(|targets| targets.iter().all(|target| !target.is_empty()));
        ran.or_else(|| Some(vec![String::from(asked?)]))
    };
    let Some(mut groups) = variants.map(own).collect::<Option<Vec<_>>>() else {
        return document.target.clone();
    };
    groups.dedup();
    let Some((head, rest)) = groups.split_first() else { return document.target.clone() };
    let shared = |disk: usize| {
        let parts: Vec<&str> = head[disk].split(',').collect();
        let is_shared = |at: &usize| {
            rest.iter().all(|other| other[disk].split(',').nth(*at) == Some(parts[*at]))
        };
        let count = (0..parts.len()).take_while(is_shared).count();
        (count > 0).then(|| parts[..count].join(","))
    };
    let is_alike = rest.iter().all(|other| other.len() == head.len());
    let of_all = || (0..head.len()).map(shared).collect::<Option<Vec<String>>>();
    match is_alike.then(of_all).flatten() {
        Some(shared) => shared.join(" "),
        None => groups.iter().map(|group| group.join(" ")).collect::<Vec<_>>().join(" and "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn document(targets: [&str; 2], schedulers: [&str; 2]) -> CompareDocument {
        let variant = |name: &str, target: &str, scheduler: &str| {
            let options = json!({"scheduler": scheduler, "queues": 2, "nomerges": 0});
            let options = options.as_object().expect("an object").clone();
            let bench = Bench { target: target.into(), options, ..Bench::default() };
            Variant { name: name.into(), rounds: vec![bench], ..Variant::default() }
        };
        let mut document = CompareDocument { target: "ram:1GiB".into(), ..Default::default() };
        document.compare.variants =
            vec![variant("a", targets[0], schedulers[0]), variant("b", targets[1], schedulers[1])];
        document
    }

    #[test]
    fn the_ground_is_what_ran_and_not_a_target_that_nobody_ran() {
        let none = ["none", "none"];
        let of = |a, b| ground(&document([a, b], none));
        assert_eq!(of("null:1GiB,latency_us=2", "null:1GiB,latency_us=3"), "null:1GiB");
        assert_eq!(of("ram:1GiB,queue_mode=sq", "ram:1GiB,queue_mode=mq"), "ram:1GiB");
        assert_eq!(of("file:x", "ram:1MiB"), "file:x and ram:1MiB");
        assert_eq!(of("file:x", "file:x"), "file:x");
        assert_eq!(ground(&CompareDocument { target: "t".into(), ..Default::default() }), "t");
    }

    #[test]
    fn the_ground_of_a_group_is_all_of_its_targets() {
        let group = |names: &[&str]| -> Vec<Value> {
            names.iter().map(|name| json!({ "target": name })).collect()
        };
        let of = |disks: [&[&str]; 2]| {
            let mut document = document(["", ""], ["none", "none"]);
            for (variant, disks) in document.compare.variants.iter_mut().zip(disks) {
                variant.rounds[0].target = disks.join(" ");
                variant.rounds[0].job = json!({ "data_disks": group(disks) });
            }
            ground(&document)
        };
        let (sq, mq) =
            (["ram:1M,mode=sq", "file:b c,mode=sq"], ["ram:1M,mode=mq", "file:b c,mode=mq"]);
        assert_eq!(of([&sq, &mq]), "ram:1M file:b c");
        assert_eq!(
            of([&sq, &["ram:2M", "file:b c"]]),
            "ram:1M,mode=sq file:b c,mode=sq and ram:2M file:b c"
        );
        assert_eq!(of([&["ram:1M", "ram:2M"], &["ram:1M"]]), "ram:1M ram:2M and ram:1M");
    }

    #[test]
    fn each_variant_has_its_target_its_scheduler_and_its_queues() {
        let document = document(["ram:1", "ram:2"], ["deadline", "mq-deadline"]);
        let section = section(&document, &["x".into(), "b".into()]);
        let text = serde_json::to_string(&section.blocks).expect("JSON");
        assert!(text.contains(r#"["variant","a: x","b"]"#), "{text}");
        assert!(text.contains(r#"["target","ram:1","ram:2"]"#), "{text}");
        assert!(text.contains(r#"["scheduler","deadline","mq-deadline"]"#), "{text}");
        assert!(text.contains(r#"["queues","2","2"]"#) && !text.contains("nomerges"), "{text}");
    }
}
