//! The state of a device that only control calls use.

use std::sync::{Arc, Mutex, OnceLock, Weak};

use weir_bio::WriteCache;

use super::Device;
use super::freeze::Changes;
use super::queues::LaneHomes;
use crate::config::Attached;
use crate::driver::Driver;

/// The state that only control calls use.
pub(super) struct Control {
    /// `None` once the device is offline.
    pub(super) driver: Mutex<Option<Arc<dyn Driver>>>,
    /// The homes that open and close lanes, while a host turns the device.
    pub(super) lane_homes: Mutex<Option<Weak<dyn LaneHomes>>>,
    /// The entry that the elevator's scheduler was made from.
    pub(super) attached: Mutex<Attached>,
    /// Whose turn it is to change parts; begins before the gate is closed.
    pub(super) changes: Changes,
    /// The driver's write cache as the limits in force were told of it.
    pub(super) write_cache: Mutex<WriteCache>,
    /// The devices it lies on, once told.
    legs: OnceLock<Vec<Device>>,
}

impl Control {
    pub(super) fn new(driver: Arc<dyn Driver>, attached: Attached) -> Control {
        Control {
            write_cache: Mutex::new(driver.limits().write_cache()),
            driver: Mutex::new(Some(driver)),
            lane_homes: Mutex::default(),
            attached: Mutex::new(attached),
            changes: Changes::default(),
            legs: OnceLock::new(),
        }
    }

    /// The scheduler as it was looked up.
    pub(super) fn attached(&self) -> Attached {
        self.attached.lock().expect("the lock of the scheduler's name").clone()
    }

    pub(super) fn lie_on(&self, legs: &[Device]) {
        let _ = self.legs.set(legs.to_vec());
    }

    pub(super) fn legs(&self) -> &[Device] {
        self.legs.get().map_or(&[], Vec::as_slice)
    }

    /// The device ends without its last flush: its legs owe one.
    pub(super) fn ends_unflushed(&self) {
        self.legs().iter().for_each(|leg| leg.shared.submitters().owes_flush = true);
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // A panic elsewhere may have poisoned a lock, and this may be what unwinds.
        if !std::thread::panicking() && self.driver.get_mut().is_ok_and(|driver| driver.is_some()) {
            self.ends_unflushed();
        }
    }
}
