//! The dd experiment of SUSE's tuning guide (`dd32`): the disk that it needs, and what to expect of
//! it on another.

use weir::{Device, QueueMode};
use weir_load::Job;
use weir_load::presets::{Stage, stages};

/// The preset.
pub const NAME: &str = "dd32";

/// A disk that is slow as the one of the document: one jump and one media rate, which follow from
/// its two totals, turned by the real clock (docs/behaviour/cfq.md, section 13).
///
/// The simulator's scene has one command at a time in the disk. Here a second one waits there, as
/// a thread that sleeps comes back later than a simulated one: the disk would idle until it is
/// awake. All bands of the section hold in the simulator with either.
pub const DISK: &str = "model:dd32,size=1GiB,depth=2";

/// How the queue of the document's disk was set, twice.
const LEVELS: [&str; 2] = ["low_latency=1", "low_latency=0"];

/// The whole experiment: on the embedded disk with `low_latency`, then without.
///
/// # Panics
/// Never: the preset has stages.
#[must_use]
pub fn both() -> Vec<Stage> {
    let stages_of = |level: &&str| {
        let disk = format!("{DISK},queue_mode=sq,scheduler=cfq,{level}");
        let mut stages = stages(NAME).expect("a preset of streams");
        for stage in &mut stages {
            stage.name = Some((*level).to_owned());
            stage.jobs.iter_mut().for_each(|job| job.target = Some(disk.clone()));
        }
        stages
    };
    LEVELS.iter().flat_map(stages_of).collect()
}

/// What to expect of the experiment on a disk where it cannot show what the document shows.
pub(super) fn expected(job: &Job, name: &str, device: &Device) -> Option<String> {
    if job.name != NAME {
        return None;
    }
    let under_way = u32::from(job.clones) * u32::from(job.depth);
    let config = device.config();
    let tags = u32::from(device.depth()) * u32::from(config.queues);
    let embedded = "weir bench dd32 without --target has the document's disk";
    if tags >= under_way {
        return Some(format!(
            "{NAME}: all {under_way} I/Os of its writers fit in the driver of {name}, which takes \
             {tags}: no scheduler has to hold any back, so expect no effect of one; {embedded}"
        ));
    }
    if config.mode == QueueMode::Sq && device.scheduler() == "cfq" {
        return None;
    }
    Some(format!(
        "{NAME}: the document's figures are those of cfq on the single-queue path, and {name} has \
         {}: expect another spread; {embedded}",
        device.scheduler()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::devices;

    /// What is told of the experiment on a target.
    fn told(target: &str) -> Option<String> {
        let parsed = weir::Target::parse(target).expect("a target");
        let device = devices::open(target, &parsed, 1).expect("it opens").device;
        expected(&stages(NAME).expect("stages")[0].jobs[0], target, &device)
    }

    #[test]
    fn a_driver_that_takes_all_of_it_and_another_scheduler_are_told_and_the_document_s_disk_is_not()
    {
        let fits = told("ram:512MiB").expect("a notice");
        assert!(fits.contains("all 128 I/Os of its writers fit in the driver of ram:512MiB"));
        let other = told(&format!("{DISK},scheduler=bfq")).expect("a notice");
        assert!(other.contains("has bfq: expect another spread"), "{other}");
        for stage in both() {
            assert_eq!(told(stage.jobs[0].target.as_deref().expect("a disk")), None);
        }
    }

    #[test]
    fn only_the_experiment_is_told_of() {
        let target = weir::Target::parse("ram:512MiB").expect("a target");
        let device = devices::open("ram:512MiB", &target, 1).expect("it opens").device;
        assert_eq!(expected(&Job::default(), "ram:512MiB", &device), None);
    }
}
