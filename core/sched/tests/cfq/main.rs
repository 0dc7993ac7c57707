//! `cfq` on modelled disks over virtual time.

mod bed;
mod properties;
mod writers;
