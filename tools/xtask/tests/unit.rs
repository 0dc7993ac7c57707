//! The sample unit keeps the exposure that its comment tells.

#![forbid(unsafe_code)]

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;

const UNIT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib/systemd/weir.service");

/// In tenths, as `--threshold` of systemd-analyze takes it.
const MOST: &str = "16";
/// The same with the lines for disks that the machine itself mounts.
const MOST_FOR_OWN_MACHINE: &str = "18";

/// Expects the unit in a file to be exposed by `most` tenths at most.
#[track_caller]
fn expect_exposure(unit: &Path, most: &str) {
    let threshold = format!("--threshold={most}");
    let judged = Command::new("systemd-analyze")
        .args(["security", "--offline=true", "--no-pager", &threshold])
        .arg(unit)
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

#[test]
fn the_service_is_exposed_no_more_than_its_comment_says() {
    expect_exposure(Path::new(UNIT), MOST);
}

#[test]
fn the_service_with_the_lines_for_its_own_machine_is_exposed_as_its_comment_says() {
    let text = fs::read_to_string(UNIT).expect("the unit");
    let mut inside = false;
    let mut lines = 0;
    let applied: Vec<&str> = text
        .lines()
        .map(|line| {
            inside = (inside || line.contains("this machine itself mounts")) && !line.is_empty();
            let setting = line.strip_prefix('#').filter(|line| !line.starts_with(' '));
            match setting.filter(|_| inside) {
                Some(setting) => {
                    lines += 1;
                    setting
                }
                None => line,
            }
        })
        .collect();
    assert_eq!(lines, 5, "the lines of that paragraph");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("own-machine");
    fs::create_dir_all(&folder).expect("a folder");
    let unit = folder.join("weir.service");
    fs::write(&unit, applied.join("\n")).expect("room for a unit");
    expect_exposure(&unit, MOST_FOR_OWN_MACHINE);
}
