//! The control socket of a running daemon, as commands reach it.

use std::path::PathBuf;

use clap::Args;
use weir_control::{ClientError, ControlClient};

use crate::Failure;

/// The control socket of a daemon that was told nothing.
pub(crate) const DEFAULT_CONTROL: &str = "weir-data/control.sock";

/// Where a daemon's control socket is.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Control {
    /// The daemon's control socket; else $WEIR_CONTROL, else ./weir-data/control.sock.
    #[arg(long = "control", value_name = "SOCK")]
    socket: Option<PathBuf>,
}

impl Control {
    /// The socket that was named, by flag or environment.
    pub(crate) fn named(&self) -> Option<PathBuf> {
        let environment = || std::env::var_os("WEIR_CONTROL").filter(|path| !path.is_empty());
        self.socket.clone().or_else(|| environment().map(PathBuf::from))
    }

    pub(crate) fn connect(&self) -> Result<ControlClient, Failure> {
        let path = self.named().unwrap_or_else(|| PathBuf::from(DEFAULT_CONTROL));
        Ok(ControlClient::connect(&path)?)
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Failure {
        Failure::Bad(error.to_string())
    }
}
