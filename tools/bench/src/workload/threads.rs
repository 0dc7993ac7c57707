//! How many threads a stage has.

use weir_load::Job;
use weir_load::presets::Stage;

use crate::workload::spec::Workload;

/// Threads that what a stage runs can use.
pub(crate) fn asked(workload: &Workload, stage: &Stage) -> usize {
    match workload {
        Workload::Stages(_) => of(stage),
        Workload::Oltp(oltp) => usable(usize::from(oltp.users) * usize::from(oltp.threads)),
    }
}

/// Threads that the clones of a stage can use.
pub(crate) fn of(stage: &Stage) -> usize {
    usable(clones_of(stage))
}

/// Threads that a stage gets of those that it can use. What waits in the kernel needs no CPU of its
/// own: there each clone has its thread.
///
/// # Errors
/// More threads than CPUs that are to poll: they would take the CPUs from one another, and from
/// what they wait for.
pub(crate) fn given(stage: &Stage, usable: usize, of_kernel: bool) -> Result<usize, String> {
    let given = if of_kernel { clones_of(stage).max(usable) } else { usable };
    let (cpus, polling) = (cpus(), clones(stage.jobs.iter().filter(|job| job.poll)).min(given));
    match stage.jobs.iter().find(|job| job.poll).filter(|_| polling > cpus) {
        None => Ok(given),
        Some(job) => Err(format!(
            "job {}: poll=1 on {cpus} CPUs with {polling} threads that poll, one for each clone: \
             each keeps a CPU busy",
            job.name
        )),
    }
}

/// All clones of the jobs of a stage.
fn clones_of(stage: &Stage) -> usize {
    clones(stage.jobs.iter())
}

fn clones<'a>(jobs: impl Iterator<Item = &'a Job>) -> usize {
    jobs.map(|job| usize::from(job.clones)).sum()
}

fn usable(contexts: usize) -> usize {
    contexts.clamp(1, cpus())
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_threads_poll_than_there_are_cpus() {
        let stage = |clones: usize, poll| Stage {
            name: None,
            jobs: vec![Job { clones: clones as u16, poll, ..Job::default() }],
        };
        let too_many = cpus() + 1;
        let refused = given(&stage(too_many, true), cpus(), true);
        assert!(refused.is_err_and(|why| why.contains("poll=1 on")), "a kernel's disk");
        assert_eq!(given(&stage(too_many, true), cpus(), false), Ok(cpus()));
        assert_eq!(given(&stage(cpus(), true), cpus(), true), Ok(cpus()));
        assert_eq!(given(&stage(too_many, false), cpus(), true), Ok(too_many));
        // Threads that sleep take no CPU from one that polls.
        let mut both = stage(too_many, false);
        both.jobs.push(Job { clones: 1, poll: true, ..Job::default() });
        assert_eq!(given(&both, cpus(), true), Ok(too_many + 1));
    }
}
