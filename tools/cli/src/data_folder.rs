//! The folder of a daemon that was told no other: its disk, its sockets, its rules.

use std::path::Path;

use weir_access::folder;

/// Its name, in the folder where the daemon was started.
pub(crate) const DEFAULT_DIR: &str = "weir-data";

/// Makes the default folder of a daemon, or checks that no other user can change what is in the one
/// that is there.
pub(crate) fn default_folder() -> Result<(), String> {
    folder::own(Path::new(DEFAULT_DIR))
}
