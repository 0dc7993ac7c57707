//! What a driver shows of itself beside what every device has, and lets be written: the files of
//! `device/` in the tree, such as the queue depth of a logical unit.

/// The attribute that takes a 1 where a device can be asked for its size anew: what is above it
/// [enlarges](crate::Device::enlarge) the device then. It has no text.
pub const RESCAN: &str = "rescan";

/// A file of `device/`: declared once, with what its documentation says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceAttribute {
    /// Its name.
    pub name: &'static str,
    /// The unit of its number; empty for a name or a text.
    pub unit: &'static str,
    /// The accepted values, in words; empty if nothing may be written.
    pub accepted: &'static str,
    /// Its meaning, in one sentence.
    pub meaning: &'static str,
}

/// The attributes of a driver. They are asked and told by any thread, slowly.
pub trait DeviceAttributes {
    /// Those that it has now, sorted by name.
    fn list(&self) -> Vec<&'static DeviceAttribute>;

    /// The text of one, without a newline at its end; `None` of one that it does not have.
    fn show(&self, name: &str) -> Option<String>;

    /// Writes one that accepts something. A refused value leaves everything as it was.
    ///
    /// # Errors
    /// A sentence with name, value and bound.
    fn store(&self, name: &str, text: &str) -> Result<(), String>;
}
