//! `cargo xtask tunables`: writes docs/tunables.md, the page that the tables in the code make.
//!
//! The command knows the tables; this program uses no other room, so it asks the command. A test
//! of host/control fails while the page is out of date.

use std::process::Command;

use crate::workspace::{Error, Workspace, cargo};

/// The page, relative to the workspace root.
const PAGE: &str = "docs/tunables.md";

/// What cargo is told to make the command print it.
const PRINT: [&str; 7] =
    ["run", "--quiet", "--package", "weir-cli", "--", "schedulers", "--markdown"];

/// Writes the page; true if that worked.
pub fn run(workspace: &Workspace) -> Result<bool, Error> {
    let output = Command::new(cargo())
        .args(PRINT)
        .current_dir(&workspace.root)
        .output()
        .map_err(|error| format!("cannot start cargo: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("cargo {}: {}\n{said}", PRINT.join(" "), output.status));
    }
    let page = workspace.root.join(PAGE);
    std::fs::write(&page, &output.stdout).map_err(|error| format!("{PAGE}: {error}"))?;
    println!("xtask tunables: {PAGE}, {} bytes", output.stdout.len());
    Ok(true)
}
