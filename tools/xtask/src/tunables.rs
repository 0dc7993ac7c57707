//! `cargo xtask tunables`: writes docs/tunables.md, docs/targets.md and docs/fronts.md, the pages
//! that the tables in the code make.
//!
//! The command and the library know the tables; this program uses no other room, so it asks them.
//! For each page a test fails while it is out of date.

use std::process::Command;

use crate::workspace::{Error, Workspace, cargo};

/// Each page, relative to the workspace root, and what cargo is told to have it printed.
const PAGES: [(&str, &[&str]); 3] = [
    (
        "docs/tunables.md",
        &["run", "--quiet", "--package", "weir-cli", "--", "schedulers", "--markdown"],
    ),
    ("docs/targets.md", &["run", "--quiet", "--package", "weir-block", "--example", "targets"]),
    ("docs/fronts.md", &["run", "--quiet", "--package", "weir-cli", "--example", "fronts"]),
];

/// Writes the pages; true if that worked.
pub fn run(workspace: &Workspace) -> Result<bool, Error> {
    for (page, print) in PAGES {
        let output = Command::new(cargo())
            .args(print)
            .current_dir(&workspace.root)
            .output()
            .map_err(|error| format!("cannot start cargo: {error}"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("cargo {}: {}\n{said}", print.join(" "), output.status));
        }
        let path = workspace.root.join(page);
        std::fs::write(&path, &output.stdout).map_err(|error| format!("{page}: {error}"))?;
        println!("xtask tunables: {page}, {} bytes", output.stdout.len());
    }
    Ok(true)
}
