//! Rule files against any text, and what they come to for a disk.
//!
//! - Errors and warnings name a file and a line within it.
//! - A plan is the same each time, is in the order that writes are made in, and names rules that
//!   are there.
//!
//! Input: files with a NUL between them.

use weir_control::Rules;
use weir_control::rules::{Event, Subject, VALUE_MAX, turn_of};

/// Files: what rule files may well be split into.
const FILES_MAX: usize = 3;

pub(crate) fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let names = ["10-a.rules", "50-b.rules", "90-c.rules"];
    let files: Vec<(&str, &str)> = names.into_iter().zip(text.splitn(FILES_MAX, '\0')).collect();
    let rules = Rules::parse(files.iter().copied());
    let within = |what: &str| {
        let (name, text) = files.iter().find(|(name, _)| what.starts_with(name)).expect("a file");
        crate::text::names_a_line(&format!("{what}: "), &format!("{name}:"), text);
    };
    for told in rules.errors().iter().chain(rules.warnings()) {
        within(&format!("{}:{}", told.file, told.line));
        assert!(!told.what.is_empty(), "{told:?} says nothing");
    }
    for event in [Event::Add, Event::Change] {
        let plan = rules.plan(&Disk, event);
        assert_eq!(plan, rules.plan(&Disk, event), "a plan is the same each time");
        for (place, text) in &plan.matched {
            within(place);
            assert!(rules.has(text), "{place} is a rule that is there");
        }
        for planned in plan.writes.iter().chain(&plan.others) {
            within(&planned.rule);
        }
        for write in &plan.writes {
            assert!(write.value.len() <= VALUE_MAX, "{} bytes are written", write.value.len());
        }
        let turns = plan.writes.iter().map(|write| turn_of(&write.name));
        assert!(turns.is_sorted(), "{:?} are in turn", plan.writes);
        plan.warnings.iter().for_each(|told| within(&format!("{}:{}", told.file, told.line)));
    }
}

/// A disk with a few files.
struct Disk;

impl Subject for Disk {
    fn name(&self) -> &str {
        "sda"
    }

    fn read(&self, file: &str) -> Option<String> {
        let text = match file {
            "queue/scheduler" => "none [mq-deadline] kyber bfq\n",
            "queue/rotational" => "1\n",
            "queue/nr_requests" => "64\n",
            "size" => "2097152\n",
            "weir/kernel_cmdline" => "quiet elevator=noop\n",
            _ => return None,
        };
        Some(text.to_owned())
    }

    fn mode(&self, file: &str) -> Option<u16> {
        match file {
            "queue" => Some(0o755),
            "queue/scheduler" | "queue/nr_requests" => Some(0o644),
            "queue/rotational" | "size" => Some(0o444),
            _ => None,
        }
    }

    fn mode_elsewhere(&self, path: &str) -> Option<u16> {
        matches!(path, "block" | "block/sdb").then_some(0o555)
    }
}
