//! The shared library through the foreign functions of Python: tests/disk.py.

#![forbid(unsafe_code)]

mod built;

use std::path::Path;
use std::process::Command;

use built::{Built, in_room, succeed};

#[test]
fn a_program_in_python_brings_its_own_memory() {
    let distributions = Path::new("/usr/bin/python3");
    let python = if distributions.exists() { distributions } else { Path::new("python3") };
    let is_there = Command::new(python).arg("--version").output().is_ok();
    if !is_there && std::env::var_os("WEIR_TEST_PROGRAMS").is_none() {
        eprintln!("LEFT OUT: there is no {}", python.display());
        return;
    }
    let built = Built::new("python");
    let mut command = Command::new(python);
    command.arg(in_room("tests/disk.py")).arg(built.path("libweir.so")).arg(&built.folder);
    succeed(command.env("PYTHONDONTWRITEBYTECODE", "1"));
}
