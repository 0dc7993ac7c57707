//! Weights that act on nothing: on a disk whose scheduler knows none, or of a group that has the
//! disk for itself.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use weir::Device;
use weir_control::config::{Config, Export};

/// The schedulers that share a disk by the weights of groups.
const BY_WEIGHT: [&str; 2] = ["bfq", "cfq"];

/// A remark for each queue on which a weight that is stated acts on nothing, by the queue's name.
pub(crate) fn remarks(config: &Config, disks: &[Device]) -> Vec<(String, String)> {
    if config.group.iter().all(|group| group.weight.is_none()) {
        return Vec::new();
    }
    let disks: HashMap<&str, &Device> =
        disks.iter().map(|disk| (disk.config().name.as_str(), disk)).collect();
    let mut queues: BTreeMap<String, (String, Vec<Export>)> = BTreeMap::new();
    for export in config.exports() {
        let Some(disk) = disks.get(export.disk.as_str()) else { continue };
        let (queue, scheduler) = (disk.whole().config().name.clone(), disk.scheduler());
        let of_queue = queues.entry(queue).or_insert((String::from(scheduler), Vec::new()));
        of_queue.1.push(export);
    }
    let remark = |(queue, (scheduler, exports)): (&String, &(String, Vec<Export>))| {
        let groups: BTreeSet<&str> =
            exports.iter().map(|export| export.group.as_deref().unwrap_or("")).collect();
        let weighted = groups.iter().copied().find(|group| has_weight(config, group))?;
        if !BY_WEIGHT.contains(&scheduler.as_str()) {
            let remark = format!(
                "the weight of group {weighted:?} does not act on {queue}: its scheduler \
                 {scheduler} does not share by weight; {} do",
                BY_WEIGHT.join(" and ")
            );
            return Some((queue.clone(), remark));
        }
        (groups.len() == 1).then(|| {
            let remark = format!(
                "the weight of group {weighted:?} does not act on {queue}: no other group has an \
                 export there, and weights act among the groups of one disk or pool"
            );
            (queue.clone(), remark)
        })
    };
    queues.iter().filter_map(remark).collect()
}

/// Whether a weight is stated of a group or of one above it.
fn has_weight(config: &Config, path: &str) -> bool {
    let holds = |above: &str| {
        path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    config.group.iter().any(|group| group.weight.is_some() && holds(&group.path))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The remarks on exports of a disk with this scheduler in these groups.
    fn of(scheduler: &str, exports: &[&str]) -> Vec<String> {
        let target = format!("ram:1MiB,scheduler={scheduler}");
        let mut text = format!("[[disk]]\nname = \"sda\"\ntarget = \"{target}\"\n");
        for (number, group) in exports.iter().enumerate() {
            text += &format!("[[export]]\nname = \"e{number}\"\ndisk = \"sda\"\n");
            if !group.is_empty() {
                text += &format!("group = \"{group}\"\n");
            }
        }
        text += "[[group]]\npath = \"a\"\nweight = 300\n[[group]]\npath = \"a/b\"\n";
        text += "[[group]]\npath = \"ab\"\n";
        let config = Config::parse(&text, &[]).expect("a configuration");
        let target = weir::Target::parse(&target).expect("a target");
        let disk = weir::open("sda", &target, 1).expect("a disk");
        remarks(&config, &[disk.device]).into_iter().map(|(_, remark)| remark).collect()
    }

    #[test]
    fn a_weight_that_acts_on_nothing_is_told_with_the_reason() {
        let none = "the weight of group \"a\" does not act on sda: its scheduler none does not \
                    share by weight; bfq and cfq do";
        assert_eq!(of("none", &["a", ""]), [none]);
        let alone = "the weight of group \"a/b\" does not act on sda: no other group has an export \
                     there, and weights act among the groups of one disk or pool";
        assert_eq!(of("bfq", &["a/b", "a/b"]), [alone]);
        for exports in [&["a", "ab"][..], &["a", ""], &["ab"], &[""], &[]] {
            assert!(of("bfq", exports).is_empty(), "{exports:?}");
        }
        assert!(of("none", &["ab", ""]).is_empty(), "no weight is stated");
    }
}
