//! `weir status`: how a running daemon is, on one screen.

mod screen;

use std::time::Duration;

use clap::Args;
use serde_json::Value;
use weir_control::{ClientError, ControlClient, Errno};

use crate::Failure;
use crate::control::Control;
use crate::output::{print, print_line};

/// Shows how a running daemon is, on one screen, and what is degraded.
///
/// The exit status is 0 if all is well, 1 if something is degraded (a path that is down, a server
/// that is lost, a disk that is closed or lets no I/O in, a flush that failed), and 2 without an
/// answer of a daemon.
///
/// Example: weir status
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Status {
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    control: Control,
}

/// The document in the tree.
const PLACE: &str = "weir/status";

/// How long the daemon may take to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// A disk that lets no I/O in is looked at again after so long: a change of a setting, such as
/// another scheduler, does that for a moment.
const SECOND_LOOK: Duration = Duration::from_millis(250);

impl Status {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let mut daemon = self.control.connect()?;
        daemon.wait_at_most(ANSWER_LIMIT)?;
        let mut state = read(&mut daemon)?;
        let disks = state["disks"].as_array();
        if disks.into_iter().flatten().any(|disk| disk["held"] == true) {
            std::thread::sleep(SECOND_LOOK);
            state = read(&mut daemon)?;
        }
        if self.json {
            print_line(&state.to_string())?;
        } else {
            print(&screen::of(&state))?;
        }
        match state["degraded"].as_array().map_or(0, Vec::len) {
            0 => Ok(()),
            1 => Err(Failure::No(String::from("1 thing is degraded"))),
            many => Err(Failure::No(format!("{many} things are degraded"))),
        }
    }
}

fn read(daemon: &mut ControlClient) -> Result<Value, Failure> {
    let text = daemon.read(PLACE).map_err(|error| match error {
        ClientError::Refused(failure) if failure.errno == Errno::NotFound => {
            Failure::Bad(format!("the daemon has no {PLACE}: it is of an older version"))
        }
        error => error.into(),
    })?;
    serde_json::from_str(&text).map_err(|error| Failure::Bad(format!("{PLACE}: {error}")))
}
