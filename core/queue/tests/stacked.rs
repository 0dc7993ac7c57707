//! The scenes of a device over two others, with the mapper of this bed.

#[path = "stacked/scenes.rs"]
mod scenes;

use std::sync::Arc;

use weir_queue::{Affinity, Device, Driver};

/// The devices one behind the other, by queues of so many tags.
fn linear(legs: &[Device], depth: u16, home: Affinity) -> Arc<dyn Driver> {
    weir_laws::linear::Linear::new(legs, depth, home)
}
