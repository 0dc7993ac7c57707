//! What the targets over disks of the same daemon have in common: as many queues as there are
//! homes, an identity and settings that are their text, and words for what they refuse.

use weir_queue::DriverError;

/// The methods of [`Backing`](weir_queue::Backing) that are alike in all targets over disks which
/// are `Clone`. What is written there stays as long as those disks keep it, which say so
/// themselves.
macro_rules! alike_over_disks {
    () => {
        fn queues(&self, driver: &dyn weir_queue::Driver, homes: u16) -> u16 {
            homes.clamp(1, driver.queues().max)
        }

        fn identity(&self) -> weir_queue::Identity {
            weir_queue::Identity::Own
        }

        fn settings(&self) -> String {
            format!("{self:?}")
        }

        fn keeps(&self) -> weir_queue::Keeps {
            match self.legs().is_empty() {
                true => weir_queue::Keeps::Nothing,
                false => weir_queue::Keeps::Flushed,
            }
        }

        fn boxed(&self) -> Box<dyn weir_queue::Backing> {
            Box::new(self.clone())
        }
    };
}

pub(crate) use alike_over_disks;

/// The failure of a target that is opened without its disks.
pub(crate) fn not_open(disks: &[String]) -> DriverError {
    let are = if let [_] = disks { "is" } else { "are" };
    failed(format!("it lies on {}, which {are} not open", disks.join(", ")))
}

/// The refusal of an option by a line that is none of multipath.
pub(crate) fn of_multipath(option: &str, value: &str) -> String {
    format!("{option}={value}: it is for a multipath table")
}

/// A failure without a cause below.
pub(crate) fn failed(what: String) -> DriverError {
    DriverError { what, source: None }
}
