//! Workloads of the documents, by name. `oltp` is not here: its sessions are no streams
//! ([`crate::oltp`]).

use serde::{Deserialize, Serialize};

use crate::job::{Access, Direction, Job};
use crate::quantity::Amount;
use crate::sizes::Sizes;

/// Jobs that run at once; stages run one after the other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stage {
    /// Its name, if there are several.
    #[serde(deserialize_with = "Option::deserialize")]
    pub name: Option<String>,
    /// Its jobs.
    pub jobs: Vec<Job>,
}

/// The presets, each with what it is.
pub const PRESETS: &[(&str, &str)] = &[
    ("oltp", "transactions on 8 KiB blocks, 25 % updates, commits through a redo log"),
    ("vdbench", "4 KiB, half reads and half writes, by 8, 16, 32 and 64 threads in turn"),
    ("streams", "8 parallel sequential readers of 1 MiB"),
    ("hdparm", "2 MiB from the page cache (as hdparm -T), then all from the target (-t)"),
    ("hpc", "4 sequential writers of 1 MiB beside small metadata with flushes"),
    ("dd32", "32 writers of 10 MiB each, at once"),
];

/// Threads of the vdbench runs of illumos issue 11827.
pub const VDBENCH_THREADS: [u16; 4] = [8, 16, 32, 64];

const MIB: u64 = 1 << 20;

fn all(bytes: u64) -> [Sizes; 3] {
    [0; 3].map(|_| Sizes::Fixed(bytes))
}

/// The stages of a preset; `None` for `oltp` and for what is none.
#[must_use]
pub fn stages(name: &str) -> Option<Vec<Stage>> {
    let job = |name: &str| Job { name: String::from(name), time_based: true, ..Job::default() };
    let one = |jobs| Some(vec![Stage { name: None, jobs }]);
    match name {
        "vdbench" => Some(VDBENCH_THREADS.map(vdbench).to_vec()),
        "streams" => {
            one(vec![Job { sizes: all(MIB), clones: 8, parted: true, depth: 4, ..job("streams") }])
        }
        "hdparm" => {
            let read = |name, size: Option<u64>| {
                let cached = size.is_some();
                let size = size.map(Amount::Bytes);
                let jobs = vec![Job { sizes: all(2 * MIB), size, cached, ..job(name) }];
                Stage { name: Some(String::from(name)), jobs }
            };
            Some(vec![read("cached", Some(2 * MIB)), read("buffered", None)])
        }
        "hpc" => one(vec![
            Job {
                direction: Direction::Write,
                sizes: all(MIB),
                size: Some(Amount::Percent(90)),
                clones: 4,
                parted: true,
                depth: 4,
                ..job("data")
            },
            Job {
                access: Access::Random,
                direction: Direction::Mixed,
                offset: Amount::Percent(90),
                flush_every: 16,
                ..job("metadata")
            },
        ]),
        // Size, depth and length of one I/O as in docs/behaviour/cfq.md, section 13.
        "dd32" => one(vec![Job {
            direction: Direction::Write,
            sizes: all(128 << 10),
            size: Some(Amount::Bytes(32 * 10 * MIB)),
            clones: 32,
            parted: true,
            depth: 4,
            time_based: false,
            ..job("dd32")
        }]),
        _ => None,
    }
}

fn vdbench(threads: u16) -> Stage {
    let name = format!("{threads} threads");
    let job = Job {
        name: name.clone(),
        access: Access::Random,
        direction: Direction::Mixed,
        clones: threads,
        time_based: true,
        ..Job::default()
    };
    Stage { name: Some(name), jobs: vec![job] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Ground;

    #[test]
    fn every_preset_fits_on_a_target_of_a_gigabyte() {
        let ground = Ground { bytes: 1 << 30, block: 4096, read_only: false };
        for (name, _) in PRESETS.iter().filter(|(name, _)| *name != "oltp") {
            for stage in stages(name).expect(name) {
                for job in stage.jobs {
                    let range = job.range(ground).unwrap_or_else(|why| panic!("{name}: {why}"));
                    let last = job.part(range, job.clones - 1);
                    assert!(last.offset + last.bytes <= 1 << 30);
                }
            }
        }
    }

    #[test]
    fn only_the_first_part_of_hdparm_reads_from_the_page_cache() {
        let stages = stages("hdparm").unwrap();
        let cached = |stage: &Stage| (stage.name.clone(), stage.jobs[0].cached);
        let names = ["cached", "buffered"].map(|name| Some(String::from(name)));
        assert_eq!(
            stages.iter().map(cached).collect::<Vec<_>>(),
            names.into_iter().zip([true, false]).collect::<Vec<_>>()
        );
    }

    #[test]
    fn a_writer_of_dd32_has_10_mib_to_itself() {
        let ground = Ground { bytes: 1 << 30, block: 512, read_only: false };
        let job = &stages("dd32").unwrap()[0].jobs[0];
        let range = job.range(ground).unwrap();
        assert_eq!(job.part(range, 31).bytes, 10 * MIB);
        assert_eq!(job.part(range, 31).offset, 310 * MIB);
    }
}
