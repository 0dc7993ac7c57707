//! `cargo xtask planted`: whether lives of the core (`core/laws`, `weir sim fuzz`) find bugs that
//! are known to be there.
//!
//! All bugs are built into one copy of the tree, each behind a question that the environment
//! answers, so that nothing of them is in the tree itself. The lives are those of `weir sim fuzz`,
//! from its first seed on: without a bug they find nothing, with each of them they have to.

mod bugs;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use self::bugs::{BUGS, Bug};
use crate::files;
use crate::workspace::{Error, Workspace, cargo};

/// Where the copy lies, in the workspace.
const FOLDER: &str = "target/planted";

/// The file that gets the question, and the question.
const ROOT_FILE: &str = "core/bio/src/lib.rs";
const QUESTION: &str = r#"
#[doc(hidden)]
pub fn planted(name: &str) -> bool {
    static ON: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    ON.get_or_init(|| std::env::var("WEIR_PLANTED").ok()).as_deref() == Some(name)
}
"#;

/// The test that lives.
const TEST: &str = "no_life_breaks_a_law";

/// Lives without a bug, which find nothing.
const CONTROL_LIVES: u64 = 300;

/// A run that lasts longer hangs in a life, which is a finding of its own.
const RUN_MAX: Duration = Duration::from_secs(900);

/// Which bugs are planted.
#[derive(Debug, clap::Args)]
pub struct Settings {
    /// Those with one of these words in their names, as in `flush,tag`; all otherwise.
    #[arg(long, value_name = "WORDS", value_delimiter = ',')]
    of: Vec<String>,
    /// Lives in which each has to be found.
    #[arg(long, value_name = "COUNT", default_value_t = 20_000)]
    lives: u64,
}

/// How a run of lives ended.
enum End {
    Fine,
    /// A life broke a law: its seed and what it said.
    Found(String),
    Hangs,
}

/// Plants one after the other; whether each is found.
pub fn run(workspace: &Workspace, settings: &Settings) -> Result<bool, Error> {
    let folder = workspace.root.join(FOLDER);
    let program = build(workspace, &folder)?;
    let start = Instant::now();
    match live(&program, &folder, None, CONTROL_LIVES)? {
        End::Fine => {}
        End::Found(what) => return Err(format!("without a bug a life breaks a law: {what}")),
        End::Hangs => return Err(String::from("without a bug a life hangs")),
    }
    println!("planted: none: nothing is found ({:.1} s)", start.elapsed().as_secs_f64());
    let named = |bug: &&Bug| {
        settings.of.is_empty() || settings.of.iter().any(|word| bug.name.contains(word.as_str()))
    };
    let chosen: Vec<&Bug> = BUGS.iter().filter(named).collect();
    let mut missed = 0;
    for bug in &chosen {
        let start = Instant::now();
        let end = live(&program, &folder, Some(bug.name), settings.lives)?;
        let told = match end {
            End::Fine => format!("NOT FOUND in {} lives", settings.lives),
            End::Found(ref what) => format!("found by {what}"),
            End::Hangs => format!("found: a life hangs for {} s", RUN_MAX.as_secs()),
        };
        missed += usize::from(matches!(end, End::Fine));
        println!("planted: {}: {told} ({:.1} s)", bug.name, start.elapsed().as_secs_f64());
    }
    println!("planted: {} of {} found", chosen.len() - missed, chosen.len());
    Ok(missed == 0 && !chosen.is_empty())
}

/// Copies the tree, plants the bugs and builds the test program.
fn build(workspace: &Workspace, folder: &Path) -> Result<PathBuf, Error> {
    let (root, tree) = (&workspace.root, folder.join("tree"));
    let mut paths = vec![String::from("Cargo.toml"), String::from("Cargo.lock")];
    for member in workspace.members() {
        files::below(root, &member.folder, &mut paths)?;
    }
    for path in &paths {
        let mut text = files::read(&root.join(path))?;
        for bug in BUGS.iter().filter(|bug| bug.file == path.as_str()) {
            let whole = String::from_utf8(text).map_err(|error| format!("{path}: {error}"))?;
            text = bug.plant(&whole)?.into_bytes();
        }
        if path == ROOT_FILE {
            text.extend(QUESTION.as_bytes());
        }
        files::write(&tree.join(path), &text)?;
    }
    remove_strangers(workspace, &tree)?;
    let mut command = Command::new(cargo());
    command.args(["test", "--no-run", "--package", "weir-laws", "--test", "lives"]);
    command.args(["--message-format=json", "--offline", "--target-dir"]).arg(folder.join("build"));
    // Lints are for people; the copy is read by the compiler alone.
    command.current_dir(&tree).env("RUSTFLAGS", "--cap-lints allow -Awarnings");
    command.env("CARGO_PROFILE_DEV_DEBUG", "false").env_remove("CARGO_TARGET_DIR");
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("{}: {error}", cargo()))?;
    let lines = output.stdout.split(|byte| *byte == b'\n');
    let messages: Vec<Value> = lines.filter_map(|line| serde_json::from_slice(line).ok()).collect();
    if !output.status.success() {
        let said = messages.iter().filter_map(|message| message["message"]["rendered"].as_str());
        return Err(format!("the copy does not build: {}", said.collect::<String>()));
    }
    let program = messages.iter().rev().find_map(|message| message["executable"].as_str());
    program.map(PathBuf::from).ok_or_else(|| String::from("cargo built no test program"))
}

/// Takes files out of the copy that the rooms have no more.
fn remove_strangers(workspace: &Workspace, tree: &Path) -> Result<(), Error> {
    let mut copied = Vec::new();
    for member in workspace.members() {
        files::below(tree, &member.folder, &mut copied)?;
    }
    for path in copied.iter().filter(|path| !workspace.root.join(path).exists()) {
        let path = tree.join(path);
        fs::remove_file(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

/// Runs so many lives with this bug.
fn live(program: &Path, folder: &Path, bug: Option<&str>, lives: u64) -> Result<End, Error> {
    let said = folder.join("said.txt");
    let failed = |error: std::io::Error| format!("{}: {error}", program.display());
    let file = File::create(&said).map_err(|error| format!("{}: {error}", said.display()))?;
    let mut command = Command::new(program);
    command.args([TEST, "--exact", "--nocapture"]).env("LIFE_SEEDS", lives.to_string());
    command.env_remove("WEIR_PLANTED").env("RUST_BACKTRACE", "0");
    if let Some(bug) = bug {
        command.env("WEIR_PLANTED", bug);
    }
    let mut child = command.stdout(Stdio::null()).stderr(file).spawn().map_err(failed)?;
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            break status;
        }
        if begun.elapsed() > RUN_MAX {
            child.kill().and_then(|()| child.wait()).map_err(failed)?;
            return Ok(End::Hangs);
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    if status.success() {
        return Ok(End::Fine);
    }
    let text = fs::read_to_string(&said).map_err(|error| format!("{}: {error}", said.display()))?;
    match found(&text) {
        Some(what) => Ok(End::Found(what)),
        None => Err(format!("the lives ended with {status}: {text}")),
    }
}

/// The seed and the words of the first panic.
fn found(said: &str) -> Option<String> {
    let mut lines = said.lines();
    lines.find(|line| line.contains(" panicked at "))?;
    let what = lines.next()?;
    let seed =
        said.lines().find(|line| line.starts_with("LIFE_SEED=")).unwrap_or("an aborted life");
    Some(format!("{seed}: {what}"))
}

impl Bug {
    /// The text of its file with the bug.
    fn plant(&self, text: &str) -> Result<String, Error> {
        match text.matches(self.old).count() {
            1 => {
                let question = format!("weir_bio::planted({:?})", self.name);
                Ok(text.replacen(self.old, &self.new.replace("PLANTED", &question), 1))
            }
            count => {
                Err(format!("{}: the place of {} is there {count} times", self.file, self.name))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bug_has_its_place_and_its_question() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for bug in BUGS {
            let text = fs::read_to_string(root.join(bug.file)).unwrap();
            let planted = bug.plant(&text).unwrap();
            assert!(planted.contains(&format!("planted(\"{}\")", bug.name)), "{}", bug.name);
            assert_eq!(BUGS.iter().filter(|other| other.name == bug.name).count(), 1);
        }
        assert!(BUGS.len() >= 10);
    }

    #[test]
    fn what_a_life_says_at_its_end_is_read() {
        let said = "\nrunning 1 test\nthread 'a' (1) panicked at a.rs:1:2:\nit broke: 3\n\
                    LIFE_SEED=7: a device\n";
        assert_eq!(found(said).unwrap(), "LIFE_SEED=7: a device: it broke: 3");
        assert!(found("running 1 test\n").is_none());
    }
}
