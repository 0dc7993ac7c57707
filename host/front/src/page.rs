//! The page of fronts, docs/fronts.md, out of the tables of all kinds.

use std::fmt::Write;

use crate::kind::{FrontKind, FrontOption};

const HEAD: &str = "\
# Fronts

Each front with its section of the configuration file. A flag of `weir serve` stands above the
option. The clients of a front are in the tree ([tunables.md](tunables.md)), as `nbd/sda/0`.
`cargo xtask tunables` makes this page from the tables in the code; do not edit it by hand.
";

/// The page of these kinds with their options, Markdown.
#[must_use]
pub fn page(kinds: &[&FrontKind]) -> String {
    let mut page = String::from(HEAD);
    for FrontKind { name, doc, options, .. } in kinds {
        let _ = write!(page, "\n## [{name}]\n\n{doc}\n");
        let mut head = "\n| option | takes | default | flag | meaning |\n|---|---|---|---|---|\n";
        for FrontOption { name, values, default, flag, doc } in *options {
            let flag = flag.map(|flag| format!("`{flag}`")).unwrap_or_default();
            let _ = writeln!(page, "{head}| `{name}` | {values} | {default} | {flag} | {doc} |");
            head = "";
        }
    }
    page
}
