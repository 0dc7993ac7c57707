//! In what order requests go: the scheduler with what it has staged and the tags it hands out, and
//! how lanes of the multi-queue path share it. Requests that were picked are in `hard/`; the
//! schedulers themselves are another crate.

pub(crate) mod arrivals;
pub(crate) mod dispatcher;
pub(crate) mod elevator;
pub(crate) mod link;
mod magazines;
mod parked;
