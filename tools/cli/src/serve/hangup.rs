//! SIGHUP: a reload, as `weir set --reload` asks for it.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use weir_control::Tree;

/// SIGHUP, as bytes in a pipe. It ends the process no more from the moment this is there.
pub(super) struct HangUp {
    heard: UnixStream,
}

impl HangUp {
    pub(super) fn install() -> io::Result<HangUp> {
        let (heard, writer) = UnixStream::pair()?;
        signal_hook::low_level::pipe::register(signal_hook::consts::SIGHUP, writer)?;
        Ok(HangUp { heard })
    }

    /// Has `tree` reload with each signal, on a thread of its own: a reload may wait for a disk,
    /// and a stop must not wait for a reload.
    pub(super) fn reload(mut self, tree: Arc<Tree>) -> io::Result<()> {
        let listen = move || {
            // Signals that come together are one wish.
            while self.heard.read(&mut [0; 64]).is_ok_and(|bytes| bytes > 0) {
                tracing::info!("SIGHUP: a reload");
                // The outcome is in the log.
                let _ = tree.reload();
            }
        };
        std::thread::Builder::new().name(String::from("weir-reload")).spawn(listen).map(drop)
    }
}
