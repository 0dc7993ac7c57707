//! The scenes of a device over two others, with the mapper of this bed.

mod bed;
#[path = "stacked/scenes.rs"]
mod scenes;

use std::sync::Arc;

use weir_queue::{Affinity, Device, Driver};

/// The devices one behind the other, by queues of so many tags.
fn linear(legs: &[Device], depth: u16, home: Affinity) -> Arc<dyn Driver> {
    bed::linear::Linear::new(legs, depth, home)
}
