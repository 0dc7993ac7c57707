//! Every target over its corpus, and over variations of it: what `make test` does of fuzzing, with
//! stable Rust and without guidance. `FUZZ_SEED` repeats the variations of one seed, `FUZZ_ROUNDS`
//! says how many variations each input has.

#![forbid(unsafe_code)]

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use weir_bio::Prng;
use weir_fuzz::{TARGETS, Target};

/// Bytes of the corpus of one target: what stands in the repository is small.
const CORPUS_MAX: u64 = 64 << 10;

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

/// The inputs of a target with their paths, in the order of their names.
fn inputs(target: &Target) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = corpus().join(target.name);
    let files = fs::read_dir(&folder).unwrap_or_else(|why| panic!("{}: {why}", folder.display()));
    let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    paths.sort();
    let read = |path: PathBuf| (path.clone(), fs::read(path).unwrap());
    paths.into_iter().map(read).collect()
}

/// Runs a target; an input that it panics on is kept, and named.
fn holds(target: &Target, input: &[u8], whence: &str) {
    if catch_unwind(AssertUnwindSafe(|| (target.check)(input))).is_err() {
        let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fuzz-{}", target.name));
        fs::write(&kept, input).unwrap();
        panic!("target {} fails on {whence}; kept as {}", target.name, kept.display());
    }
}

fn number(variable: &str, default: u64) -> u64 {
    let told = std::env::var(variable).ok();
    told.map_or(default, |text| text.parse().expect("a whole number"))
}

/// One of the changes that bring an input to its neighbours.
fn vary(input: &[u8], others: &[(PathBuf, Vec<u8>)], prng: &mut Prng) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..1 + prng.below(4) {
        let at = prng.below(bytes.len() as u64 + 1) as usize;
        match prng.below(7) {
            0 if at < bytes.len() => bytes[at] ^= 1 << prng.below(8),
            1 if at < bytes.len() => bytes[at] = prng.below(256) as u8,
            2 => bytes.truncate(at),
            3 => bytes.insert(at, b"\0\x01 ,=\"\n\xff"[prng.below(8) as usize]),
            4 if at < bytes.len() => {
                let end = at + prng.below((bytes.len() - at) as u64 + 1) as usize;
                drop(bytes.drain(at..end));
            }
            5 => {
                let end = at + prng.below((bytes.len() - at) as u64 + 1) as usize;
                let again = bytes[at..end].to_vec();
                bytes.splice(at..at, again);
            }
            _ => {
                let other = &others[prng.below(others.len() as u64) as usize].1;
                let from = prng.below(other.len() as u64 + 1) as usize;
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
        }
    }
    bytes
}

#[test]
fn every_input_of_a_corpus_keeps_the_promises_of_its_target() {
    for target in TARGETS {
        for (path, input) in inputs(target) {
            holds(target, &input, &path.display().to_string());
        }
    }
}

#[test]
fn neighbours_of_a_corpus_keep_them_too() {
    let seed = number("FUZZ_SEED", 1);
    for target in TARGETS {
        let inputs = inputs(target);
        let mut prng = Prng::new(seed);
        for (path, input) in &inputs {
            for round in 0..number("FUZZ_ROUNDS", 40) {
                let varied = vary(input, &inputs, &mut prng);
                let path = path.display();
                holds(target, &varied, &format!("FUZZ_SEED={seed}, {path}, round {round}"));
            }
        }
    }
}

#[test]
fn each_target_has_a_corpus_and_each_corpus_a_target_and_a_word_of_what_it_is() {
    let words = fs::read_to_string(corpus().join("README.md")).unwrap();
    let mut folders = Vec::new();
    for entry in fs::read_dir(corpus()).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            folders.push(entry.file_name().into_string().unwrap());
        }
    }
    folders.sort();
    let mut names: Vec<_> = TARGETS.iter().map(|target| target.name.to_owned()).collect();
    names.sort();
    assert_eq!(folders, names);
    for target in TARGETS {
        assert!(words.contains(&format!("`{}`", target.name)), "{} in README.md", target.name);
        let bytes: u64 = inputs(target).iter().map(|(_, input)| input.len() as u64).sum();
        assert!((1..=CORPUS_MAX).contains(&bytes), "corpus of {}: {bytes} bytes", target.name);
    }
}
