//! docs/tunables.md, made from the tables that the tree is made from.

use std::fmt::Write;

use weir_sched::{Entry, Family, SCHEDULERS, Tunable};

use crate::tree::{
    Attribute, BLOCK_ATTRIBUTES, CLIENT_ATTRIBUTES, DAEMON_ATTRIBUTES, DEVICE_ATTRIBUTES,
    DM_ATTRIBUTES, FRONT_ATTRIBUTES, GROUP_ATTRIBUTES, MAP_ATTRIBUTES, PARTITION_ATTRIBUTES,
    PARTITION_WEIR_ATTRIBUTES, QUEUE_ATTRIBUTES, WEIR_ATTRIBUTES,
};

const HEAD: &str = "\
# Tunables

Every scheduler with its tunables, and every file of a disk, a group and a client. `cargo xtask
tunables` makes this page from the tables in the code; do not edit it by hand.

Reach them in three ways: `weir ls`, `weir get` and `weir set` with a path as
`block/sda/queue/scheduler`; `cat` and `echo` under the folder of `weir serve --tree`; target
options, as in `ram:1GiB,scheduler=none,nr_requests=64`.

A scheduler's tunable takes what Linux takes in `iosched/`: a number outside its range becomes
the nearest bound, text is refused with EINVAL, a number beyond its type with ERANGE. Target
options and the configuration file refuse whatever is outside.

`compat` is a target option, as in `ram:1GiB,scheduler=kyber,compat=4.12`: the release of Linux
whose behaviour the scheduler has. `compat=sles12` is SUSE Linux Enterprise 12 as its tuning guide
has it (chapter 12), for every scheduler, so that a switch keeps it. At `4.12` and `sles12` the
file `scheduler` lists `none` last, as kernels of that time did.
";

/// The whole page.
#[must_use]
pub fn markdown() -> String {
    let mut page = String::from(HEAD);
    for (family, title) in [
        (Family::Multi, "Schedulers of the multi-queue path"),
        (Family::Legacy, "Schedulers of the single-queue path"),
    ] {
        write(&mut page, format_args!("\n## {title}\n"));
        for entry in SCHEDULERS.iter().filter(|entry| entry.family == family) {
            scheduler(&mut page, entry);
        }
    }
    for (title, path, table) in [
        ("Queue attributes", "block/<disk>/queue", QUEUE_ATTRIBUTES),
        ("Files of a disk", "block/<disk>", BLOCK_ATTRIBUTES),
        (
            "Files of a SCSI disk, beside those that the disk tells of itself",
            "block/<disk>/device",
            DEVICE_ATTRIBUTES,
        ),
        ("weir's own files", "block/<disk>/weir", WEIR_ATTRIBUTES),
        ("Of a mapped disk beside", "block/<disk>/weir", MAP_ATTRIBUTES),
        ("Files of a disk in a pool", "block/<pool>/<disk>", PARTITION_ATTRIBUTES),
        ("weir's own files of it", "block/<pool>/<disk>/weir", PARTITION_WEIR_ATTRIBUTES),
        ("dm's files of a mapped disk", "block/<disk>/dm", DM_ATTRIBUTES),
    ] {
        attributes(&mut page, title, path, table);
    }
    attributes(&mut page, "Groups", "cgroup/<path>", GROUP_ATTRIBUTES);
    attributes(&mut page, "The daemon", "weir", DAEMON_ATTRIBUTES);
    attributes(&mut page, "The NBD server", "nbd", FRONT_ATTRIBUTES);
    let paths = "nbd/<export>/<connection>`, `fuse/<disk>/<open file>";
    attributes(&mut page, "Clients", paths, CLIENT_ATTRIBUTES);
    page
}

fn write(page: &mut String, text: std::fmt::Arguments<'_>) {
    page.write_fmt(text).expect("a string takes everything");
}

fn scheduler(page: &mut String, entry: &Entry) {
    let Entry { name, counterpart, tunables, compat, levels, .. } = entry;
    write(page, format_args!("\n### {name}\n\nCounterpart on the other path: {counterpart}.\n"));
    let newest = compat.first().unwrap_or(&"");
    let others = levels.iter().map(|(level, change)| format!("; `compat={level}`: {change}"));
    let others = others.collect::<String>();
    write(page, format_args!("Its behaviour: `compat={newest}`, the default{others}.\n"));
    if tunables.is_empty() {
        write(page, format_args!("It has no tunables.\n"));
        return;
    }
    write(page, format_args!("\n| tunable | unit | default | range | holds | meaning |\n"));
    write(page, format_args!("|---|---|---|---|---|---|\n"));
    for row in *tunables {
        let Tunable { name, unit, default, when, meaning, .. } = row;
        let range = range(row);
        let values = format!("{unit} | {default} | {range} | {when}");
        write(page, format_args!("| `{name}` | {values} | {meaning} |\n"));
    }
}

/// The numbers a tunable takes, in words.
#[must_use]
pub fn range(row: &Tunable) -> String {
    let Tunable { least, most, .. } = row;
    format!("{least} to {most}")
}

fn attributes<T>(page: &mut String, title: &str, path: &str, table: &[Attribute<T>]) {
    write(page, format_args!("\n## {title}\n\n`{path}`\n\n"));
    write(page, format_args!("| file | unit | default | may be written | meaning |\n"));
    write(page, format_args!("|---|---|---|---|---|\n"));
    for row in table {
        let Attribute { name, unit, default, accepted, meaning, .. } = row;
        write(page, format_args!("| `{name}` | {unit} | {default} | {accepted} | {meaning} |\n"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_in_docs_is_what_the_tables_say() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/tunables.md");
        let page = std::fs::read_to_string(path).expect("docs/tunables.md");
        assert!(page == markdown(), "docs/tunables.md is out of date: run `cargo xtask tunables`");
    }

    #[test]
    fn each_scheduler_and_each_tunable_has_its_line() {
        let page = markdown();
        for entry in SCHEDULERS {
            assert!(page.contains(&format!("### {}\n", entry.name)));
            for row in entry.tunables {
                assert!(page.contains(&format!("| `{}` | ", row.name)), "{}", row.name);
            }
        }
        let of_disks = [QUEUE_ATTRIBUTES, BLOCK_ATTRIBUTES, DEVICE_ATTRIBUTES, WEIR_ATTRIBUTES];
        for table in of_disks.into_iter().chain([MAP_ATTRIBUTES, DM_ATTRIBUTES]) {
            for row in table {
                assert!(page.contains(&format!("| `{}` | ", row.name)), "{}", row.name);
                assert_eq!(row.is_writable(), !row.accepted.is_empty(), "{}", row.name);
            }
        }
    }
}
