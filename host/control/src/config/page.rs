//! The keys of the configuration file with their meaning, for the page that describes it. A test
//! holds them against what the file is read into.

use std::fmt::Write;

/// Of a key its name, the values it takes, its default and its meaning.
type Row = [&'static str; 4];

/// A table of the file.
struct Section {
    /// As it is written.
    head: &'static str,
    doc: &'static str,
    keys: &'static [Row],
}

const GROUP: &str = "a path of a `[[group]]`";
const COUNT: &str = "a number, 1 or more";
const BYTES: &str = "a number, or a size as in `\"50MiB\"`";

// Keys of several tables.
const CLASS: Row =
    ["class", "none, real-time, best-effort, idle", "none", "The priority class of its clients."];
const LEVEL: Row = ["level", "0 to 7", "4", "The level within the class; 0 is the best."];
const POLL: Row = [
    "poll",
    "off, adaptive, always",
    "as `[host]` says",
    "Whether a thread that serves its clients over NBD polls before it sleeps; the strongest rule \
     among those of the connections that a thread serves holds.",
];
const POLL_SHARE: Row = [
    "poll_share",
    "1 to 100",
    "as `[host]` says",
    "The part of its time that such a thread may poll where `poll` is `adaptive`, percent.",
];
const RIOPS: Row = ["riops", COUNT, "no cap", "Reads a second at most."];
const WIOPS: Row = ["wiops", COUNT, "no cap", "Writes a second at most."];
const RBPS: Row = ["rbps", BYTES, "no cap", "Bytes read a second at most."];
const WBPS: Row = ["wbps", BYTES, "no cap", "Bytes written a second at most."];
const BURST: Row =
    ["burst", "seconds, 0.0 to 3600.0", "0.0", "Unused allowance that may be spent at once."];

const SECTIONS: [Section; 6] = [
    Section {
        head: "[[disk]]",
        doc: "A disk. What it says of clients (`group` and all below it) is for the export of its \
              own, which it has if no `[[export]]` names it. With caps its clients are in a group \
              of its name, below the one that is stated.",
        keys: &[
            [
                "name",
                "1 to 32 letters, digits, `-`, `_`, `.`",
                "",
                "Its name in the tree, and that of its export.",
            ],
            ["target", "a target", "", "What is served: weir-targets(7)."],
            [
                "table",
                "lines of a table",
                "",
                "In place of a target: a table in the device \
              mapper's words, with disks of this file as devices.",
            ],
            ["pool", "the name of a `[[pool]]`", "", "The pool whose queue it shares."],
            ["group", GROUP, "the root", "The group that its clients are in."],
            CLASS,
            LEVEL,
            POLL,
            POLL_SHARE,
            RIOPS,
            WIOPS,
            RBPS,
            WBPS,
            BURST,
        ],
    },
    Section {
        head: "[[export]]",
        doc: "A way to a disk. A disk with exports has no other one.",
        keys: &[
            ["name", "1 to 4096 bytes", "", "The name that clients ask for."],
            ["disk", "the name of a `[[disk]]`", "", "The disk behind it."],
            ["group", GROUP, "the root", "The group that its clients are in."],
            ["readonly", "true, false", "false", "Writes are refused."],
            [
                "background",
                "true, false",
                "false",
                "Writes of its clients are background writes, as write-back is.",
            ],
            [
                "shared",
                "true, false",
                "false",
                "Clients may write to a disk on which another one lies.",
            ],
            [
                "minimum_block",
                "a power of two, 1 to 65536",
                "as `[nbd]` says",
                "Bytes that offsets and lengths of requests are multiples of.",
            ],
            CLASS,
            LEVEL,
            POLL,
            POLL_SHARE,
            [
                "listen",
                "addresses, as in `[nbd]`",
                "those of `[nbd]`",
                "The only addresses it is served at.",
            ],
            [
                "allow",
                "a list, as in `[\"uid:1000\"]`",
                "all clients",
                "The clients that may use it.",
            ],
            [
                "offset",
                "bytes or a size, whole blocks",
                "0",
                "Where on the disk it begins. NBD alone: a file below `--tree` is the whole disk.",
            ],
            ["size", "bytes or a size, whole blocks", "to the disk's end", "How long it is."],
        ],
    },
    Section {
        head: "[[group]]",
        doc: "A group of clients, which share by weight and are held by caps together.",
        keys: &[
            ["path", "names joined by `/`", "", "Its place among the groups."],
            [
                "weight",
                "1 to 1000",
                "100",
                "Its weight among its siblings, for schedulers that share by weight.",
            ],
            RIOPS,
            WIOPS,
            RBPS,
            WBPS,
            BURST,
        ],
    },
    Section {
        head: "[[pool]]",
        doc: "One queue for the disks that name it, which share a device.",
        keys: &[
            ["name", "1 to 32 letters, digits, `-`, `_`, `.`", "", "Its name in the tree."],
            ["scheduler", "a scheduler", "as any disk's", "Its scheduler: `weir schedulers`."],
            [
                "nr_requests",
                "a number",
                "as any disk's",
                "Requests that the scheduler chooses from.",
            ],
            [
                "depth",
                "a number",
                "as its disks'",
                "Requests that its disks have together at a time, for each hard queue.",
            ],
        ],
    },
    Section {
        head: "[metrics]",
        doc: "Figures for Prometheus.",
        keys: &[
            ["listen", "addresses, as in `[nbd]`, without TLS", "none", "Where they are shown."],
            ["insecure", "true, false", "false", "Addresses may be reached from other hosts."],
            [
                "hosts",
                "names, as in `[\"weir.example\"]`",
                "none",
                "Names that a request may call the address by, beside its own in `listen`, \
                 its number and `localhost`.",
            ],
        ],
    },
    Section {
        head: "[host]",
        doc: "The threads that serve.",
        keys: &[
            [
                "poll",
                "off, adaptive, always",
                "off",
                "A thread with nothing to do sleeps (`off`), polls before it sleeps while waits \
                 are short (`adaptive`), or never sleeps (`always`).",
            ],
            [
                "poll_share",
                "1 to 100",
                "80",
                "The part of its time that a thread may poll where `poll` is `adaptive`, percent.",
            ],
        ],
    },
];

/// The sections of the file that are no front's, Markdown.
#[must_use]
pub fn page() -> String {
    let mut page = String::new();
    let _ = write!(
        page,
        "## Top level\n\n| key | takes | default | meaning |\n|---|---|---|---|\n\
         | `kernel_cmdline` | a string | | Boot parameters of a kernel, for every disk, as in \
         `\"elevator=deadline\"`. |\n"
    );
    for Section { head, doc, keys } in SECTIONS {
        let _ = write!(page, "\n## {head}\n\n{doc}\n\n| key | takes | default | meaning |\n");
        page.push_str("|---|---|---|---|\n");
        for [name, values, default, doc] in keys {
            let _ = writeln!(page, "| `{name}` | {values} | {default} | {doc} |");
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::super::{Config, KEYS};
    use super::*;

    /// The words in backticks of a refusal, but for the one refused.
    fn expected(text: &str) -> Vec<String> {
        let said = Config::parse(text, &[]).expect_err("no such key").to_string();
        let words = said.split('`').skip(1).step_by(2).skip(1);
        words.map(String::from).collect()
    }

    #[test]
    fn the_page_has_every_key_of_the_file_and_no_other() {
        for Section { head, keys, .. } in SECTIONS {
            let described: Vec<_> = keys.iter().map(|[name, ..]| (*name).to_owned()).collect();
            assert_eq!(described, expected(&format!("{head}\nfrob = 1\n")), "{head}");
        }
        let mut top: Vec<_> =
            SECTIONS.iter().map(|section| section.head.trim_matches(['[', ']'])).collect();
        top.push("kernel_cmdline");
        top.sort_unstable();
        let mut known = KEYS.to_vec();
        known.sort_unstable();
        assert_eq!(top, known);
    }
}
