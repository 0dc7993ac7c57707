//! How many descriptors this process may have open.
//!
//! The soft limit is kept low for programs that hand descriptors to `select`, and weir does not:
//! it takes what the hard limit allows. Source: the manual page getrlimit(2), RLIMIT_NOFILE.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the soft limit to the hard one.
pub(crate) fn raise() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return;
    }
    // A process that may not raise it goes on with its limit, and `shortage` says what that means.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// A warning if so many connections, each with a descriptor, do not fit beside what is open now.
pub(crate) fn shortage(connections: usize) -> Option<String> {
    let limit = getrlimit(Resource::Nofile).current?;
    let open = std::fs::read_dir("/proc/self/fd").ok()?.count() as u64;
    said(connections as u64, limit, open)
}

fn said(connections: u64, limit: u64, open: u64) -> Option<String> {
    let room = limit.saturating_sub(open);
    (room < connections).then(|| {
        format!(
            "RLIMIT_NOFILE={limit} leaves room for {room} connections, below the {connections} \
             that are allowed; raise the hard limit (LimitNOFILE= in a systemd unit)"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_is_told_with_the_limit_and_what_fits() {
        assert_eq!(said(1024, 1044, 20), None);
        let text = said(1024, 1043, 20).unwrap();
        assert!(text.contains("RLIMIT_NOFILE=1043") && text.contains("1023"), "{text}");
        assert!(said(1, 10, 20).unwrap().contains("room for 0"));
    }
}
