//! `hdparm -Tt` and `iostat` on a laptop's eMMC disk, before and after `scsi_mod.use_blk_mq=1`.
//!
//! That parameter is one of the SCSI mid-layer, and an eMMC disk is none of its disks: the host
//! that is simulated does not depend on it. What is no figure of a disk under one load stands as
//! the document has it, with the reason why nothing of ours is beside it.

use weir_load::{Access, Direction, Job};
use weir_queue::Config;
use weir_sim_disk::{Kind, Spec};

use super::settings::{Bounds, Setting, Settings};
use super::{Bound, Case, Raw, Row, Scene, SceneError, Source, Span, rows_of};
use crate::figures::Figures;
use crate::process::{Habit, Processes};
use crate::profile::Profile;
use crate::spec::HostSpec;

const MS: u64 = 1_000_000;

pub(super) const SCENE: Scene = Scene {
    name: "x205ta-hdparm",
    about: "hdparm on a laptop's eMMC disk, before and after a parameter of SCSI",
    settings: &[
        Setting {
            name: "use_blk_mq",
            bounds: Bounds::Words(&["0", "1"]),
            default: "0,1",
            meaning: "scsi_mod.use_blk_mq, which an mmc device does not have: it changes nothing",
        },
        Setting {
            name: "interface_mb_s",
            bounds: Bounds::Whole(1, 10_000),
            default: "200",
            meaning: "10^6 bytes a second over the interface of the disk",
        },
        Setting {
            name: "command_us",
            bounds: Bounds::Whole(0, 100_000),
            default: "493",
            meaning: "what a command of 128 KiB takes in the disk besides",
        },
    ],
    cases,
    derive,
    sources: SOURCES,
    raw: RAW,
    notes: &[
        "The parameter does not apply to an mmc device: both cases are the same host by structure, \
         so ours differ by nothing, and the document's 1.6 % are what two runs of 3 s differ by. \
         No figure has a bound: before is fitted, and one near it would hold for that alone.",
        "The document says that cached reads are 13 % faster, and in the same sentence that cached \
         reads are 1 % faster: the second are the buffered ones (1.6 %).",
        "The document's 74, 75 and 43 % of iostat compare averages since boot: over windows of \
         239.8 and 136.0 s, as the kB that were read and their rates say. In the longer one there \
         were 15,469 transfers, in the shorter 15,292: the same work.",
    ],
};

/// The disk of a laptop of 2015, which the document does not name. Eight lines at 200 MHz carry 200
/// MB/s by the standard (HS200). With one command at a time what it takes besides is fitted to the
/// figure before.
const DISK: &str = "
size = \"32GiB\"
depth = 1

[fixed]
units = 1
";

fn cases(settings: &Settings) -> Result<Vec<Case>, SceneError> {
    let case = |parameter: &str| Case {
        name: format!("use_blk_mq={parameter}"),
        host: host(settings),
        // As long as hdparm reads.
        span: Span::Time { warm_up: 10 * MS, ns: 3_000 * MS },
        rows: figures,
    };
    Ok(settings.words("use_blk_mq").into_iter().map(case).collect())
}

fn host(settings: &Settings) -> HostSpec {
    // What a processor does takes microseconds here, and the disk milliseconds.
    let mut profile = Profile::known("cascade-1sock-6.3").expect("a profile of ours");
    profile.machine.cores = 4;
    let mut disk = Spec::parse(DISK).expect("a disk of ours");
    let Kind::Fixed(fixed) = &mut disk.kind else { unreachable!("it is one of times alone") };
    fixed.bandwidth = settings.whole("interface_mb_s") * 1_000_000;
    fixed.latency = settings.whole("command_us") * 1_000;
    let job = Job { access: Access::Sequential, ..Job::random(Direction::Read, 128 << 10) };
    // The page cache reads ahead: the next is asked for before the one before is there.
    let habit = Habit { depth: 2, ..Habit::default() };
    HostSpec {
        profile,
        config: Config { timeout_ns: 0, wbt_lat_us: Some(0), ..Config::default() },
        disk,
        disks: 1,
        san: None,
        processes: vec![Processes::new("hdparm", 1, habit, job)],
        weights: Vec::new(),
        seed: 0,
    }
}

/// hdparm's MB are of 2^20 bytes.
const MIB: f64 = 1_048_576.0;

fn figures(case: &str, figures: &Figures) -> Vec<Row> {
    let bytes = figures.kind("hdparm").all.bytes;
    let busy = (figures.time.user + figures.time.system) as f64 / figures.ns as f64;
    let rows = [
        ("buffered_mib_s", bytes as f64 * 1e9 / figures.ns as f64 / MIB),
        ("latency_us", figures.latency_ns() / 1e3),
        ("cpu_busy_pct", busy / figures.cpus as f64 * 100.0),
    ];
    rows_of(case, rows)
}

fn derive(rows: &[Row]) -> Vec<Row> {
    let of = |case: &str| {
        let found = rows.iter().find(|row| row.case == case && row.metric == "buffered_mib_s");
        found.map(|row| row.value)
    };
    let gain = of(AFTER).zip(of(BEFORE)).map(|(after, before)| (after / before - 1.0) * 100.0);
    let row = |value| Row { case: String::from("both"), metric: "buffered_gain_pct", value };
    gain.map(row).into_iter().collect()
}

const BEFORE: &str = "use_blk_mq=0";
const AFTER: &str = "use_blk_mq=1";

const fn source(case: &'static str, metric: &'static str, value: f64, fitted: bool) -> Source {
    Source { case, metric, value, fitted, bound: Bound::None, missed: false }
}

const SOURCES: &[Source] = &[
    source(BEFORE, "buffered_mib_s", 108.51, true),
    source(AFTER, "buffered_mib_s", 110.24, false),
    source("both", "buffered_gain_pct", 1.594, false),
];

const RAW: &[Raw] = &[
    Raw {
        what: "hdparm -T, cached reads, MB/s",
        values: [1304.82, 1485.04],
        why: "It is a copy out of the page cache, which no disk and no queue has a part in: there \
              is neither here, and no profile has a price for a copy.",
    },
    Raw {
        what: "iostat mmcblk0, kB_read",
        values: [200_476.0, 198_780.0],
        why: "What was read since boot, by all that a system starts: no load that could be run.",
    },
    Raw {
        what: "iostat mmcblk0, kB_read/s",
        values: [835.91, 1461.30],
        why: "An average since boot: kB_read is this rate for 239.8 s, and for 136.0 s.",
    },
    Raw {
        what: "iostat mmcblk0, tps",
        values: [64.50, 112.42],
        why: "An average since boot: 15,469 transfers in the window of 239.8 s, 15,292 in that of \
              136.0 s.",
    },
    Raw {
        what: "iostat mmcblk0, kB_wrtn",
        values: [14_196.0, 12_432.0],
        why: "What was written since boot, by all that a system starts.",
    },
    Raw {
        what: "iostat mmcblk0, kB_wrtn/s",
        values: [59.19, 85.19],
        why: "An average since boot that contradicts the others: by it the second window had 145.9 \
              s, where kB_read and its rate have 136.0 s; the first has 239.8 s by both.",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(what: &str) -> [f64; 2] {
        RAW.iter().find(|raw| raw.what.ends_with(what)).expect(what).values
    }

    fn why(what: &str) -> &'static str {
        RAW.iter().find(|raw| raw.what.ends_with(what)).expect(what).why
    }

    #[test]
    fn the_windows_of_iostat_and_the_work_in_them_are_those_that_the_reasons_state() {
        let per = |a: [f64; 2], b: [f64; 2]| [a[0] / b[0], a[1] / b[1]];
        let windows = per(raw("kB_read"), raw("kB_read/s"));
        let [first, second] = windows.map(|window| format!("{window:.1} s"));
        assert_eq!([first.as_str(), second.as_str()], ["239.8 s", "136.0 s"]);
        for what in ["kB_read/s", "tps"] {
            assert!(why(what).contains(&first) && why(what).contains(&second), "{what}");
        }
        let [longer, shorter] = [0, 1].map(|at| (raw("tps")[at] * windows[at]).round());
        assert_eq!([longer, shorter], [15_469.0, 15_292.0]);
        assert!(why("tps").starts_with("An average since boot: 15,469"), "{}", why("tps"));
        let written = per(raw("kB_wrtn"), raw("kB_wrtn/s"));
        assert_eq!(written.map(|s| format!("{s:.1}")), ["239.8", "145.9"]);
    }
}
