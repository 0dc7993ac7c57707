//! The scenes of a device over two others, with the mapper of this crate: what `weir_queue::Legs`
//! asks of every mapper.

#[path = "../../queue/tests/stacked/scenes.rs"]
mod scenes;

use std::sync::Arc;

use weir_bio::Limits;
use weir_map::{Layout, Mapped};
use weir_queue::{Affinity, Device, Driver, DriverError, DriverQueue, Queues};

/// The devices one behind the other, by queues of so many tags.
fn linear(legs: &[Device], depth: u16, home: Affinity) -> Arc<dyn Driver> {
    let lengths: Vec<u64> = legs.iter().map(|leg| leg.limits().capacity).collect();
    let mapped = Mapped::new(Layout::linear(&lengths), legs.to_vec());
    Arc::new(Narrow { mapped, depth, home })
}

/// A mapped device with fewer tags, and with homes as a scene wants them.
struct Narrow {
    mapped: Mapped,
    depth: u16,
    home: Affinity,
}

impl Driver for Narrow {
    fn limits(&self) -> Limits {
        self.mapped.limits()
    }

    fn queues(&self) -> Queues {
        let (depth, home) = (self.depth, self.home);
        Queues { max: 8, depth, home, ..self.mapped.queues() }
    }

    fn open(&self, index: u16, depth: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
        self.mapped.open(index, depth)
    }
}
