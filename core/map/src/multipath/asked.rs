//! Multipath as `weir map` asks and tells it.

use std::sync::Arc;

use weir_bio::Nanos;
use weir_queue::{MapControl, PathSeen};

use super::control::Control;
use super::shared::Shared;

/// What a multipath device is asked and told, without keeping its paths open.
pub(super) struct MultipathControl {
    pub(super) shared: Arc<Shared>,
    pub(super) sectors: u64,
}

impl MapControl for MultipathControl {
    fn table(&self) -> String {
        let arguments = self.shared.look(Control::table_text);
        format!("0 {} multipath {arguments}", self.sectors)
    }

    fn status(&self) -> String {
        let status =
            self.shared.look(|control| control.status_text(|path| self.shared.sum(path).figures));
        format!("0 {} multipath {status}", self.sectors)
    }

    fn message(&self, text: &str, now: Nanos) -> Result<(), String> {
        self.shared.change(now, |control| control.message(text, now))
    }

    fn paths(&self) -> Vec<PathSeen> {
        self.shared.look(Control::seen)
    }

    fn listing(&self) -> Vec<String> {
        self.shared.look(|control| control.listing(|path| self.shared.sum(path).listed()))
    }
}
