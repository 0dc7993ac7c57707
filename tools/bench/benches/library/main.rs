//! What the library costs the programs that embed it, beside the same done by hand: a write-ahead
//! log, tasks, a disk of one thread, pages of the caller's. Both sides of a figure run in turns, in
//! one process.
//!
//! cargo bench -p weir-bench --bench library [-- --rounds 15 --only log,writer,tasks,inline,pages
//! --folder /var/tmp]

mod inline;
mod log;
mod pages;
mod ring;
mod tasks;

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use weir_bench::arguments::{Arguments, Parameter, Usage};
use weir_bench::rounds::{Figure, machine};

/// Bytes of each file.
const FILE: u64 = 64 << 20;

const USAGE: Usage = Usage {
    bench: concat!(env!("CARGO_PKG_NAME"), " --bench ", env!("CARGO_CRATE_NAME")),
    about: "What the library costs programs that embed it, beside the same by hand.",
    parameters: &[
        Parameter::number("--rounds", (15, 1), "rounds in which each is measured"),
        Parameter::word("--only", "NAMES", "some of log,writer,tasks,inline,pages"),
        Parameter::word("--folder", "DIR", "where its files lie [that of temporary files]"),
    ],
};

fn main() {
    let arguments = Arguments::of_process(&USAGE);
    let rounds = arguments.number("--rounds");
    let small = rounds < 3;
    let benches = [
        ("log", log::threads as fn(&Bed)),
        ("writer", log::one_writer),
        ("tasks", tasks::run),
        ("inline", inline::run),
        ("pages", pages::run),
    ];
    let only = arguments.word("--only").map(|names| names.split(',').collect::<Vec<_>>());
    for name in only.iter().flatten() {
        if benches.iter().all(|(known, _)| known != name) {
            arguments.refuse(&format!("--only: there is no {name}"));
        }
    }
    println!("{}", machine());
    let folder = arguments.word("--folder").map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = folder.join(format!("weir-bench-library-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("a folder for the files");
    let bed = Bed { rounds, small, folder };
    for (name, bench) in benches {
        if only.as_ref().is_none_or(|only| only.contains(&name)) {
            bench(&bed);
        }
    }
    std::fs::remove_dir_all(&bed.folder).expect("the files are this bench's");
}

/// How much to do, and where.
struct Bed {
    rounds: u32,
    small: bool,
    folder: PathBuf,
}

impl Bed {
    /// Work of a round.
    fn work(&self, full: u64) -> u64 {
        if self.small { full / 50 + 1 } else { full }
    }

    /// A file that has all its blocks written.
    fn file(&self, name: &str) -> PathBuf {
        let path = self.folder.join(name);
        let mut file = File::create(&path).expect("a file");
        for at in 0..FILE >> 20 {
            file.write_all(&[at as u8; 1 << 20]).expect("its blocks");
        }
        file.sync_all().expect("on the disk");
        path
    }
}

/// Runs each side once a round, each as often first, and gives all figures of each. The first round
/// warms up.
fn in_turns<const N: usize>(bed: &Bed, mut side: impl FnMut(usize, bool) -> f64) -> [Figure; N] {
    let mut figures = [(); N].map(|()| Figure::default());
    for round in 0..=bed.rounds as usize {
        for turn in 0..N {
            let which = (turn + round) % N;
            let figure = side(which, round > 0);
            if round > 0 {
                figures[which].add(figure);
            }
        }
    }
    figures
}

/// A target of the file driver.
fn target(path: &Path) -> String {
    format!("file:{}", path.display())
}
