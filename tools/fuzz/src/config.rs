//! The configuration file against any text.
//!
//! - An error of the text names a line within it.
//! - What is taken passes its own check again, and can be built: groups, exports of disks that are
//!   there, priorities.

use std::collections::BTreeSet;

use weir_bio::IoPrio;
use weir_control::Config;
use weir_control::config::PrioClass;

pub(crate) fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let read = Config::parse(text, &["nbd"]);
    // A section is read by its front, and only of a file that is right besides.
    let read = read.and_then(|config| (weir_front_nbd::KIND.plan)(&config).map(|_| config));
    let config = match read {
        Ok(config) => config,
        Err(error) => {
            let what = error.to_string();
            // Names that contradict each other stand on several lines, and name themselves.
            if what.starts_with("line ") {
                crate::text::names_a_line(&what, "line ", text);
            }
            return;
        }
    };
    assert_eq!(config.check(), Ok(()), "what was checked passes again");
    assert!(config.groups().is_ok(), "groups that were checked can be made");
    let disks: BTreeSet<_> = config.disk.iter().map(|disk| disk.name.as_str()).collect();
    let exports = config.exports();
    assert!(exports.iter().all(|export| disks.contains(export.disk.as_str())), "{exports:?}");
    let mut names = BTreeSet::new();
    for export in &exports {
        assert!(names.insert(export.name.as_str()), "{} is there twice", export.name);
        let (class, ioprio) = (export.class, export.ioprio());
        assert_eq!(class == PrioClass::None, ioprio == IoPrio::NONE, "{class:?} is {ioprio:?}");
    }
    assert!(disks.len() <= exports.len() || disks.is_empty(), "a disk has no export");
}
