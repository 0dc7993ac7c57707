//! A copy of the rooms under test with all mutations built in, and its test programs.
//!
//! What does not compile is found by the compiler: an error inside the text of a mutation drops
//! that mutation, one elsewhere in a place drops what was found for the place, and the copy is
//! built again.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::points::{Mutation, Points, Rendered};
use crate::files::{self, read, write};
use crate::workspace::{Error, cargo};

/// Rooms that the copy consists of.
const ROOMS: [&str; 2] = ["core/bio", "core/sched"];

/// The package whose tests are run.
const PACKAGE: &str = "weir-sched";

/// The file that gets the switch.
const ROOT_FILE: &str = "core/sched/src/lib.rs";

/// Test targets beside the unit tests: tables and scenes. The laws and long runs are left out.
const SCENES: [&str; 4] = ["bfq", "cfq", "deadline", "golden"];

/// Builds until no mutation is left that does not compile. The borrow checker speaks up only when
/// types are right, so there are a few.
const ROUNDS: usize = 12;

/// The switch, as it stands in the copy: which mutation is on, and which were come by.
const SWITCH: &str = r#"
#[doc(hidden)]
pub mod mutant {
    use std::io::Write as _;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, Ordering};

    static CHOSEN: OnceLock<(usize, Option<std::path::PathBuf>)> = OnceLock::new();
    static REACHED: [AtomicBool; COUNT] = [const { AtomicBool::new(false) }; COUNT];

    fn chosen() -> (usize, Option<std::path::PathBuf>) {
        let number = std::env::var("WEIR_MUTANT").ok().and_then(|number| number.parse().ok());
        let reached = std::env::var_os("WEIR_MUTANTS_REACHED").map(Into::into);
        (number.unwrap_or(usize::MAX), reached)
    }

    #[inline]
    pub fn is(number: usize) -> bool {
        let (chosen, reached) = CHOSEN.get_or_init(chosen);
        if let Some(reached) = reached {
            if !REACHED[number].swap(true, Ordering::Relaxed) {
                let mut file = std::fs::OpenOptions::new();
                let mut file = file.append(true).create(true).open(reached).unwrap();
                file.write_all(format!("{number}\n").as_bytes()).unwrap();
            }
        }
        *chosen == number
    }
}
"#;

/// One source file with decision code.
struct Decisions {
    path: String,
    text: String,
    points: Points,
    /// Number of its first mutation.
    first: usize,
}

/// The copy.
pub struct Tree {
    pub folder: PathBuf,
    files: Vec<Decisions>,
    unviable: BTreeSet<usize>,
    /// Of all that was copied, before a mutation came into it.
    pub hash: u64,
}

/// A mutation with its number and file.
#[derive(Clone, Debug)]
pub struct Numbered {
    pub number: usize,
    pub path: String,
    pub mutation: Mutation,
}

impl Tree {
    /// Copies the rooms from `root`, `except` for one file, and finds the mutations of the files
    /// that `takes` wants.
    pub fn of(root: &Path, except: &str, takes: impl Fn(&str) -> bool) -> Result<Tree, Error> {
        let folder = root.join("target/mutants/tree");
        let mut tree = Tree { folder, files: Vec::new(), unviable: BTreeSet::new(), hash: FNV };
        let mut paths = Vec::new();
        for room in ROOMS {
            files::below(root, Path::new(room), &mut paths)?;
        }
        paths.retain(|path| path != except);
        paths.sort();
        let mut first = 0;
        for path in paths {
            let text = read(&root.join(&path))?;
            tree.hash = fnv(fnv(tree.hash, path.as_bytes()), &text);
            let copied = tree.folder.join(&path);
            if !path.ends_with(".rs") || !takes(&path) {
                if path != ROOT_FILE {
                    write(&copied, &text)?;
                }
                continue;
            }
            let text = String::from_utf8(text).map_err(|error| format!("{path}: {error}"))?;
            let points = Points::of(&text).map_err(|error| format!("{path}: {error}"))?;
            let count = points.mutations.len();
            tree.files.push(Decisions { path, text, points, first });
            first += count;
        }
        tree.remove_strangers(root)?;
        tree.write_manifest(root)?;
        let switch = SWITCH.replace("COUNT", &first.max(1).to_string());
        let mut root_file = read(&root.join(ROOT_FILE))?;
        root_file.extend(switch.as_bytes());
        write(&tree.folder.join(ROOT_FILE), &root_file)?;
        Ok(tree)
    }

    /// Mutations that compile, once the copy was built.
    pub fn viable(&self) -> Vec<Numbered> {
        let all = self.files.iter().flat_map(|file| {
            let numbered = file.points.mutations.iter().enumerate();
            numbered.map(|(at, mutation)| Numbered {
                number: file.first + at,
                path: file.path.clone(),
                mutation: mutation.clone(),
            })
        });
        all.filter(|one| !self.unviable.contains(&one.number)).collect()
    }

    /// How many do not compile.
    pub fn unviable(&self) -> usize {
        self.unviable.len()
    }

    /// Builds the test programs, which are answered.
    pub fn build(&mut self) -> Result<Vec<PathBuf>, Error> {
        // Checking is quicker than building, and finds what does not compile.
        for _ in 0..ROUNDS {
            let rendered = self.write_files()?;
            let (programs, errors) = self.cargo(&["check", "--lib"])?;
            drop(programs);
            if errors.is_empty() {
                let (programs, errors) = self.cargo(&["test", "--no-run"])?;
                if let Some((_, _, said)) = errors.first() {
                    return Err(format!("the copy with its mutations does not build: {said}"));
                }
                return Ok(programs);
            }
            self.drop_unviable(&rendered, &errors)?;
        }
        Err(format!("after {ROUNDS} rounds mutations are left that do not compile"))
    }

    fn write_files(&self) -> Result<Vec<Rendered>, Error> {
        let mut all = Vec::new();
        for file in &self.files {
            let keeps = |at: usize| !self.unviable.contains(&(file.first + at));
            let rendered = file.points.render(&file.text, file.first, keeps);
            write(&self.folder.join(&file.path), rendered.text.as_bytes())?;
            all.push(rendered);
        }
        Ok(all)
    }

    fn drop_unviable(&mut self, all: &[Rendered], errors: &[Fault]) -> Result<(), Error> {
        let before = self.unviable.len();
        for (path, bytes, said) in errors {
            let found = self.files.iter().zip(all).find(|(file, _)| file.path == *path);
            let Some((file, rendered)) = found else {
                return Err(format!("{path}, which has no mutation: {said}"));
            };
            let around = rendered.ranges.iter().filter(|(range, numbers)| {
                let left = |at: &usize| !self.unviable.contains(&(file.first + at));
                range.start <= bytes.0 && bytes.1 <= range.end && numbers.iter().any(left)
            });
            if let Some((_, numbers)) = around.min_by_key(|(range, _)| range.len()) {
                let numbers: Vec<usize> = numbers.iter().map(|at| file.first + at).collect();
                self.unviable.extend(numbers);
            }
        }
        if self.unviable.len() == before {
            let said: Vec<&str> = errors.iter().map(|(_, _, said)| said.as_str()).collect();
            return Err(format!("errors outside of mutations:\n{}", said.join("\n")));
        }
        Ok(())
    }

    fn cargo(&self, line: &[&str]) -> Result<(Vec<PathBuf>, Vec<Fault>), Error> {
        let mut command = Command::new(cargo());
        command.args(line).args(["--package", PACKAGE, "--message-format=json", "--offline"]);
        command.arg("--target-dir").arg(self.folder.join("../build"));
        if line[0] == "test" {
            command.arg("--lib").args(SCENES.iter().flat_map(|scene| ["--test", scene]));
        }
        // Lints are for people; the copy is read by the compiler alone.
        command.current_dir(&self.folder).env("RUSTFLAGS", "--cap-lints allow -Awarnings");
        command.env("CARGO_PROFILE_DEV_DEBUG", "false").env_remove("CARGO_TARGET_DIR");
        let output = command.stderr(Stdio::piped()).output();
        let output = output.map_err(|error| format!("{}: {error}", cargo()))?;
        let (mut programs, mut errors) = (Vec::new(), Vec::new());
        for line in output.stdout.split(|&byte| byte == b'\n') {
            let Ok(message) = serde_json::from_slice::<Value>(line) else { continue };
            programs.extend(message["executable"].as_str().map(PathBuf::from));
            errors.extend(fault(&message["message"]));
        }
        if !output.status.success() && errors.is_empty() {
            return Err(format!("cargo: {}", String::from_utf8_lossy(&output.stderr)));
        }
        Ok((programs, errors))
    }

    fn write_manifest(&self, root: &Path) -> Result<(), Error> {
        let manifest = String::from_utf8_lossy(&read(&root.join("Cargo.toml"))?).into_owned();
        let rooms = ROOMS.map(|room| format!("{room:?}")).join(", ");
        let line = |line: &str| match line.starts_with("members = ") {
            true => format!("members = [{rooms}]\n"),
            false => format!("{line}\n"),
        };
        let manifest: String = manifest.lines().map(line).collect();
        write(&self.folder.join("Cargo.toml"), manifest.as_bytes())
    }

    /// Takes files out of the copy that the rooms have no more.
    fn remove_strangers(&self, root: &Path) -> Result<(), Error> {
        let mut copied = Vec::new();
        for room in ROOMS {
            files::below(&self.folder, Path::new(room), &mut copied)?;
        }
        for path in copied.iter().filter(|path| !root.join(path).exists()) {
            let path = self.folder.join(path);
            fs::remove_file(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        Ok(())
    }
}

/// An error of the compiler: file, first and last byte, its words.
type Fault = (String, (usize, usize), String);

fn fault(message: &Value) -> Option<Fault> {
    if message["level"] != "error" {
        return None;
    }
    let spans = message["spans"].as_array()?;
    let primary = spans.iter().find(|span| span["is_primary"] == true)?;
    let byte = |name: &str| primary[name].as_u64().unwrap_or(0) as usize;
    let path = primary["file_name"].as_str()?.to_owned();
    let said = message["rendered"].as_str().unwrap_or_default().to_owned();
    Some((path, (byte("byte_start"), byte("byte_end")), said))
}

/// The offset basis and the prime of the 64-bit FNV-1a hash.
const FNV: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;

fn fnv(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(FNV_PRIME))
}
