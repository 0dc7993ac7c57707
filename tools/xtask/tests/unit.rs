//! The sample unit keeps the exposure that its comment tells.

#![forbid(unsafe_code)]

use std::io::Write;
use std::process::Command;

/// In tenths, as `--threshold` of systemd-analyze takes it.
const MOST: &str = "16";

#[test]
fn the_service_is_exposed_no_more_than_its_comment_says() {
    let unit = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib/systemd/weir.service");
    let threshold = format!("--threshold={MOST}");
    let judged = Command::new("systemd-analyze")
        .args(["security", "--offline=true", "--no-pager", &threshold, unit])
        .output();
    match judged {
        Ok(judged) => {
            let said = String::from_utf8_lossy(&judged.stdout);
            assert!(judged.status.success(), "{said}{}", String::from_utf8_lossy(&judged.stderr));
        }
        Err(error) => {
            let mut out = std::io::stderr();
            let _ = writeln!(out, "LEFT OUT: systemd-analyze cannot be started: {error}");
        }
    }
}
