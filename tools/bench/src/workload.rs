//! The plan of a run: stages of jobs, and groups of disks.
//!
//! [`spec`] is what is asked for, as a document. [`conduct`] opens the targets and runs stage after
//! stage; [`devices`] knows which targets are one device; [`check`] looks after a crash for the
//! commits that a run had acknowledged, and `content` before a run for what others keep there.
//! `files` makes targets of the names of files, and `told` is how documents tell of jobs.
//! [`experiment`] has the disk of `dd32`, `memory` keeps disks in memory from stage to stage,
//! [`prepare`] writes targets before they are measured, `threads` says how many do what a stage
//! asks for, and `patience` knows for what a run is too short.

pub mod check;
pub mod conduct;
pub(crate) mod content;
pub mod devices;
pub mod experiment;
pub(crate) mod files;
pub(crate) mod groups;
pub mod mark;
mod memory;
mod patience;
pub mod prepare;
pub mod spec;
mod threads;
pub(crate) mod told;
