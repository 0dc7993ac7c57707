//! The files in which clones of jobs write down what they do.

use weir_load::Job;

use super::client::Plan;
use super::log::Log;
use super::trace::Trace;

/// Opens them, each for the plan at its place: a job, its clone, and the name of its disk. Logs
/// begin anew, so that this comes when no job is refused any more.
///
/// # Errors
/// A file that cannot be opened.
pub(crate) fn open(plans: &mut [Plan], of: &[(usize, &Job, u16, &String)]) -> Result<(), String> {
    for (place, job, clone, disk) in of {
        let plan = &mut plans[*place];
        (plan.log, plan.trace) = (Log::open(job, *clone)?, Trace::of(job, disk)?);
    }
    Ok(())
}
