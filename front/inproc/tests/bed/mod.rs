//! The support that the tests share: a folder, and a disk's contents as they should be.

#![allow(dead_code, reason = "each test file uses its own part")]

pub mod cached;
#[path = "../../../../tests/daemon/outside.rs"]
pub mod outside;
pub mod server;
#[path = "../../../../tests/daemon/tgtd.rs"]
pub mod tgtd;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use weir::{Clock, Session, Status, Turner};
use weir_bio::Prng;

/// A folder that goes away with the value.
pub struct Folder(PathBuf);

impl Folder {
    /// In the folder for temporary files.
    pub fn new() -> Folder {
        Folder::within(&std::env::temp_dir())
    }

    /// In a folder of choice.
    pub fn within(parent: &Path) -> Folder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("weir-{}-{count}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The seed of a random test: from the environment, or new each time; printed either way.
pub fn seed() -> u64 {
    let given = std::env::var("WEIR_SEED").ok().and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(|| Clock.now().0);
    println!("WEIR_SEED={seed}");
    seed
}

/// A range of a disk as it should be, byte for byte; what was discarded may be anything.
pub struct Model {
    pub offset: u64,
    bytes: Vec<Option<u8>>,
}

impl Model {
    /// `len` zeros from byte `offset` on.
    pub fn zeros(offset: u64, len: u64) -> Model {
        Model { offset, bytes: vec![Some(0); len as usize] }
    }

    pub fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn range(&mut self, offset: u64, len: u64) -> &mut [Option<u8>] {
        let start = (offset - self.offset) as usize;
        &mut self.bytes[start..start + len as usize]
    }

    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        let range = self.range(offset, bytes.len() as u64);
        range.iter_mut().zip(bytes).for_each(|(mine, new)| *mine = Some(*new));
    }

    pub fn zero(&mut self, offset: u64, len: u64) {
        self.range(offset, len).fill(Some(0));
    }

    pub fn forget(&mut self, offset: u64, len: u64) {
        self.range(offset, len).fill(None);
    }

    #[track_caller]
    pub fn check(&mut self, offset: u64, found: &[u8]) {
        let expected = self.range(offset, found.len() as u64);
        let wrong = expected.iter().zip(found).position(|(e, f)| e.is_some_and(|e| e != *f));
        if let Some(at) = wrong {
            let (expected, found) = (expected[at], found[at]);
            panic!("byte {} is {found}, expected {expected:?}", offset + at as u64);
        }
    }
}

/// Does `count` random things to a range through a session, and verifies every byte it reads.
#[track_caller]
pub fn exercise<T: Turner>(
    session: &mut Session<T>,
    model: &mut Model,
    block: u64,
    prng: &mut Prng,
    count: u32,
) {
    let blocks = model.len() / block;
    for _ in 0..count {
        // Mostly small, now and then more than one piece of a call.
        let most = if prng.percent(10) { blocks } else { 8.min(blocks) };
        let len = (1 + prng.below(most)) * block;
        let at = model.offset + prng.below((model.len() - len) / block + 1) * block;
        let mut bytes = vec![0xEE; len as usize];
        match prng.below(10) {
            0 => session.flush().unwrap(),
            1 => {
                model.zero(at, len);
                session.write_zeroes(at, len, prng.percent(50)).unwrap();
            }
            2 => match session.discard(at, len) {
                Ok(()) => model.forget(at, len),
                Err(error) => assert_eq!(error.status, Status::NotSupp, "{error}"),
            },
            3..=5 => {
                prng.fill(&mut bytes);
                model.write(at, &bytes);
                match prng.percent(30) {
                    true => session.write_at_durable(at, &bytes).unwrap(),
                    false => session.write_at(at, &bytes).unwrap(),
                }
            }
            _ => {
                session.read_at(at, &mut bytes).unwrap();
                model.check(at, &bytes);
            }
        }
    }
    let mut all = vec![0xEE; model.len() as usize];
    session.read_at(model.offset, &mut all).unwrap();
    model.check(model.offset, &all);
}
