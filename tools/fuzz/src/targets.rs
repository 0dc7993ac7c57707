//! Target strings, boot parameters, sizes and times against any text.
//!
//! - What is taken is within the bounds that its queues have.
//! - Parts whose commas and backslashes are written as the doc says come back as they were.
//! - A size that is shown is read as the same size.

use weir::target::split_at_commas;
use weir::units::{parse_size, parse_time_ns, show_size};
use weir::{Cmdline, QueueMode, Target};

pub(crate) fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Err(why) = Cmdline::parse(text) {
        assert!(!why.is_empty(), "no reason");
    }
    if let Ok(bytes) = parse_size(text) {
        let shown = show_size(bytes).replace([' '], "").replace("bytes", "");
        assert_eq!(parse_size(&shown), Ok(bytes), "{text:?} as it is shown");
    }
    if let Err(why) = parse_time_ns(text) {
        assert!(!why.is_empty(), "no reason");
    }
    let parts = split_at_commas(text);
    assert!(!parts.is_empty() && parts.iter().map(String::len).sum::<usize>() <= text.len());
    if !text.contains('"') {
        let written: Vec<_> =
            parts.iter().map(|part| part.replace('\\', r"\\").replace(',', r"\,")).collect();
        assert_eq!(split_at_commas(&written.join(",")), parts, "parts come back as they were");
    }
    match Target::parse(text) {
        Err(why) => assert!(!why.is_empty(), "no reason"),
        Ok(target) => {
            let config = &target.config;
            assert!(config.mode != QueueMode::Sq || !target.queues_given || config.queues == 1);
            assert!(config.nr_requests.is_none_or(|count| (4..=2048).contains(&count)));
            let mut names: Vec<_> = target.attributes.iter().map(|(name, _)| name).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), target.attributes.len(), "the last of a name counts");
        }
    }
}
