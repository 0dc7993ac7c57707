//! What cases of scenes come to, to the last bit: two programs that print the same simulate the
//! same. `cargo xtask alike` holds a program with debug assertions and overflow checks against one
//! as it is released.
//!
//! cargo run -p weir-sim --example outcomes [-- SCENE...]
//!
//! A few cases of each scene with two seeds; of scenes that are named, all there are by default,
//! with seed 1.

#![forbid(unsafe_code)]

use std::hash::{DefaultHasher, Hasher};

use weir_sim::scene;

/// Small ones: both paths, every scheduler, each kind of disk, paths, merges, flushes, groups.
const CASES: [(&str, &[&str]); 5] = [
    ("illumos-11827", &["threads=8"]),
    ("icpe24", &["processes=3"]),
    ("dell-slob", &["servers=1", "hit=60", "processes=80", "volumes=4", "paths=4"]),
    ("linux-outcomes", &["scenario=groups,flushes", "writers=2"]),
    ("suse-dd32", &["writers=8", "mib=4"]),
];

fn tell(name: &str, set: &[&str], seed: u64) -> Result<(), Box<dyn std::error::Error>> {
    let scene = scene::find(name)?;
    let mut settings = scene.defaults();
    for text in set {
        settings.set(text)?;
    }
    for case in scene.cases(&settings, seed)? {
        let outcome = case.run()?;
        let mut hasher = DefaultHasher::new();
        hasher.write(format!("{outcome:?}").as_bytes());
        println!("{name} seed={seed} {}: {:016x}", case.name, hasher.finish());
        for row in &outcome.rows {
            println!("    {} {:?}", row.metric, row.value);
        }
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let scenes: Vec<String> = std::env::args().skip(1).collect();
    for name in &scenes {
        tell(name, &[], 1)?;
    }
    if scenes.is_empty() {
        for (name, set) in CASES {
            tell(name, set, 1)?;
            tell(name, set, 2)?;
        }
    }
    Ok(())
}
