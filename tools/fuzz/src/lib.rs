//! Fuzz targets: functions from bytes to nothing that panic when a promise is broken.
//!
//! A target is one row of [`TARGETS`]. Its seeds lie in `corpus/NAME/`, a file an input;
//! `tests/corpora.rs` replays them, and variations of them that a printed seed makes again, with
//! stable Rust and nothing else. `cargo xtask ci long` runs each target under libFuzzer, which is
//! led by the code that an input reaches; what it finds becomes a file of the corpus and a named
//! test in the room that was wrong.

#![forbid(unsafe_code)]

mod addresses;
mod config;
mod control;
mod cuts;
mod iscsi_initiator;
mod iscsi_port;
mod iscsi_session;
mod jobs;
mod nbd_client;
mod nbd_server;
mod replays;
mod rules;
mod schedulers;
mod scsi;
mod targets;
mod text;

/// One fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name: the folder of its corpus, and what `WEIR_FUZZ` takes.
    pub name: &'static str,
    /// Holds every promise against one input.
    pub check: fn(&[u8]),
}

/// Every target.
pub const TARGETS: &[Target] = &[
    Target { name: "nbd_server", check: nbd_server::check },
    Target { name: "nbd_client", check: nbd_client::check },
    Target { name: "iscsi_initiator", check: iscsi_initiator::check },
    Target { name: "iscsi_session", check: iscsi_session::check },
    Target { name: "iscsi_port", check: iscsi_port::check },
    Target { name: "scsi", check: scsi::check },
    Target { name: "control", check: control::check },
    Target { name: "config", check: config::check },
    Target { name: "jobs", check: jobs::check },
    Target { name: "rules", check: rules::check },
    Target { name: "replays", check: replays::check },
    Target { name: "schedulers", check: schedulers::check },
    Target { name: "targets", check: targets::check },
    Target { name: "addresses", check: addresses::check },
];

/// The target of this name.
#[must_use]
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
