//! Paths as they are typed: with `/sys` in front as on a Linux host, and with patterns of a shell.

use weir_control::rules::matches_name;
use weir_control::{ClientError, ControlClient, Node};

use crate::Failure;

/// A node that a pattern matches.
pub(super) struct Found {
    /// Its path as it would have been typed.
    pub(super) shown: String,
    /// Its path in the tree.
    pub(super) path: String,
    pub(super) node: Node,
}

/// The path in the tree: what stands behind `/sys` or `sys`, as that of a Linux host.
pub(super) fn plain(typed: &str) -> &str {
    let path = typed.trim_start_matches('/');
    match path.strip_prefix("sys") {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => rest.trim_start_matches('/'),
        _ => path,
    }
}

/// Whether a path is a pattern.
pub(super) fn is_pattern(path: &str) -> bool {
    path.contains(['*', '?', '['])
}

/// What a pattern matches, in the order of the tree. A name of the tree that is written so matches
/// itself alone.
///
/// # Errors
/// A pattern that matches nothing, or a daemon that is gone.
pub(super) fn expand(client: &mut ControlClient, pattern: &str) -> Result<Vec<Found>, Failure> {
    let path = plain(pattern);
    let before = &pattern[..pattern.len() - path.len()];
    let mut here = vec![(String::new(), Node::Directory)];
    for part in path.split('/').filter(|part| !part.is_empty()) {
        let mut next = Vec::new();
        for (folder, _) in here.iter().filter(|(_, node)| *node == Node::Directory) {
            let mut names = match client.list(folder) {
                Ok(names) => names,
                // One that has gone meanwhile matches nothing.
                Err(ClientError::Refused(_)) => continue,
                Err(lost) => return Err(lost.into()),
            };
            let is_name = names.iter().any(|(name, _)| name == part);
            names.retain(|(name, _)| match is_name {
                true => name == part,
                false => matches_name(part, name),
            });
            let slash = if folder.is_empty() { "" } else { "/" };
            next.extend(
                names.into_iter().map(|(name, node)| (format!("{folder}{slash}{name}"), node)),
            );
        }
        here = next;
    }
    if here.is_empty() {
        return Err(Failure::Bad(format!("ENOENT: {pattern} matches nothing in the tree")));
    }
    let found = here.into_iter().map(|(path, node)| {
        let shown = format!("{before}{path}");
        Found { shown, path, node }
    });
    Ok(found.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_a_host_is_one_of_the_tree() {
        for (typed, path) in [
            ("block/sda", "block/sda"),
            ("/sys/block/sda/queue/scheduler", "block/sda/queue/scheduler"),
            ("sys/class/block", "class/block"),
            ("/sys", ""),
            ("//sys//block", "block"),
            ("/proc/diskstats", "proc/diskstats"),
            ("system/x", "system/x"),
        ] {
            assert_eq!(plain(typed), path, "{typed}");
        }
    }
}
