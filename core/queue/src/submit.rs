//! From a bio to a request that is published: what is checked, what is cut, who pays, where
//! neighbours merge, and how an I/O comes back to who asked for it. Lanes and drivers are not known
//! here beyond the ring that leads to them.

mod admit;
mod failing;
pub(crate) mod payer;
pub(crate) mod submitter;
