//! Which job files are accepted: `cargo run -p weir-load --example job_files -- FILE ...`.
//!
//! A refused file has a line for its first reason; with `--all` as the first argument one for each,
//! found by leaving the refused lines out. Nothing is opened but the job files.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use weir_load::jobfile;

fn main() -> ExitCode {
    let mut files: Vec<String> = std::env::args().skip(1).collect();
    let all = files.first().is_some_and(|first| first == "--all");
    if all {
        files.remove(0);
    }
    let mut accepted = 0;
    for file in &files {
        let text = match std::fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) => {
                eprintln!("{file}: {error}");
                return ExitCode::FAILURE;
            }
        };
        let reasons = reasons(file, text, all);
        accepted += usize::from(reasons.is_empty());
        reasons.iter().for_each(|why| println!("{why}"));
    }
    println!("{accepted} of {} are accepted", files.len());
    ExitCode::SUCCESS
}

/// Why a job file is refused.
fn reasons(file: &str, mut text: String, all: bool) -> Vec<String> {
    let mut reasons = Vec::new();
    while let Err(why) = jobfile::read(file, &text) {
        reasons.push(why.0);
        let last = &reasons[reasons.len() - 1];
        let number = last.strip_prefix(file).and_then(|rest| rest.split(':').nth(1));
        let line = number.and_then(|number| number.parse::<usize>().ok());
        let mut lines: Vec<&str> = text.lines().collect();
        match line.and_then(|line| lines.get_mut(line - 1)) {
            Some(line) if all && !line.trim().is_empty() && !line.trim().starts_with('[') => {
                *line = "";
            }
            _ => break,
        }
        text = lines.join("\n");
    }
    reasons
}
