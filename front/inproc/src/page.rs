//! The page of targets, docs/targets.md, out of the tables of all kinds.

use std::fmt::Write;

use weir_queue::TargetOption;

use crate::drivers::kinds;
use crate::target::options;

/// The page of all kinds with their options, Markdown.
#[must_use]
pub fn targets() -> String {
    let mut page = String::from(HEAD);
    for kind in kinds() {
        let _ = write!(page, "\n## {}\n\n{}\n\n", kind.names[0], kind.doc);
        for syntax in kind.syntax {
            // A syntax that begins with a kind is shown as it is written, a sentence as a sentence.
            let _ = match syntax.split_once(':') {
                Some((name, _)) if kind.names.contains(&name) => writeln!(page, "- `{syntax}`"),
                _ => writeln!(page, "- {syntax}"),
            };
        }
        let _ = writeln!(page, "- for example `{}`", kind.example);
        table(&mut page, kind.options.iter());
        #[cfg(feature = "scsi-sim")]
        {
            if kind.names == crate::scsi_sim::KIND.names {
                let _ = write!(page, "\n{SCSI_SIM}");
            }
        }
    }
    page.push_str("\n## Options of every target\n\n");
    page.push_str("Also each tunable of its scheduler ([tunables.md](tunables.md)).\n");
    table(&mut page, options());
    page
}

/// The file that a target `scsi-sim` names.
#[cfg(feature = "scsi-sim")]
const SCSI_SIM: &str = include_str!("scsi_sim/format.md");

const HEAD: &str = "\
# Targets

`KIND:REST[,OPTION=VALUE]...`, the same string in `--target`, `--disk` and the configuration file.
A comma inside a path is written `\\,`, a plus `\\+`, a backslash `\\\\`.

In `--target` of `weir bench` and `weir compare`, and in the library, a target may stand in the
place of a DISK: `striped:64KiB:file:a.img+file:b.img,scheduler=none`. Options behind a plain comma
are the outer target's. An inner one has its options behind `\\,`, and the names in it are parted
by `\\+`: each level takes one backslash away, so the third has `\\\\\\,`. A disk of `weir serve`
lies on disks that have names.

`cargo xtask tunables` makes this page from the tables in the code; do not edit it by hand.
";

fn table<'a>(page: &mut String, options: impl Iterator<Item = &'a TargetOption>) {
    let mut head = "\n| option | takes | default | meaning |\n|---|---|---|---|\n";
    for TargetOption { name, values, default, doc } in options {
        let values = values.replace('|', "\\|");
        let _ = writeln!(page, "{head}| `{name}` | {values} | {default} | {doc} |");
        head = "";
    }
    page.truncate(page.trim_end().len());
    page.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_kinds_share_a_name_and_no_option_of_a_kind_is_one_of_all() {
        let names: Vec<&str> = kinds().iter().flat_map(|kind| kind.names).copied().collect();
        let mut once = names.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), names.len(), "{names:?}");
        for kind in kinds() {
            for own in kind.options {
                assert!(options().all(|all| all.name != own.name), "{}", own.name);
            }
        }
    }

    #[test]
    fn the_file_of_a_simulated_target_is_one_as_the_page_shows_it() {
        let (_, block) = SCSI_SIM.split_once("```toml\n").expect("a block");
        let (text, _) = block.split_once("```").expect("its end");
        let spec = weir_sim_target::Spec::parse(text).unwrap();
        let of_lun = spec.luns.iter().map(|lun| (lun.number, lun.size, lun.queue_depth));
        assert_eq!(of_lun.collect::<Vec<_>>(), [(0, 256 << 20, 32)]);
        let ports = spec.ports.iter().map(|port| (port.id, port.group, port.speed.latency_ns));
        assert_eq!(ports.collect::<Vec<_>>(), [(1, 1, 0), (2, 2, 200_000)]);
        assert_eq!((spec.seed, spec.faults.len(), spec.events.len()), (7, 1, 2));
        assert_eq!(spec.events[1].at_ns, 60_000_000_000);
    }

    /// Each key that the page has is one that a file takes, with the default that stands there.
    #[test]
    fn the_page_names_the_keys_of_each_table_of_a_simulated_target() {
        let mut heads = 0;
        for part in SCSI_SIM.split("\n\n").filter(|part| part.starts_with("| option of ")) {
            let (head, rows) = part.split_once("|---|---|---|---|\n").expect("a table");
            let table = head.split('`').nth(1).map_or(String::new(), |name| format!("{name}\n"));
            heads += 1;
            for row in rows.lines() {
                let names = row.split('|').nth(1).expect("a cell");
                for name in names.split('`').skip(1).step_by(2) {
                    // An array fits no key: a key that is known is refused for its value.
                    let text = format!("{table}{name} = [[[]]]\n");
                    let why = weir_sim_target::Spec::parse(&text).unwrap_err().to_string();
                    assert!(!why.contains("unknown field"), "{table}{name}: {why}");
                }
            }
        }
        assert_eq!(heads, 6);
    }

    #[test]
    fn the_page_of_targets_is_what_the_tables_make() {
        let written = include_str!("../../../docs/targets.md");
        assert!(written == targets(), "docs/targets.md is out of date: cargo xtask tunables");
    }
}
