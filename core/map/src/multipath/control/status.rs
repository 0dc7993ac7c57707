//! The texts of a multipath device: dm's table and status lines, and a listing for people.

use std::fmt::Write as _;

use weir_queue::PathSeen;

use super::Control;
use crate::multipath::port::letter;
use crate::multipath::selector::Figures;
use crate::multipath::table::{Mode, PolicyArgs, Table};

/// The figures of a path for a listing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathFigures {
    /// Requests under way.
    pub in_flight: u64,
    /// Requests that ended, errors among them.
    pub ios: u64,
    /// Requests that ended with an error of the path.
    pub errors: u64,
    /// 99 of 100 requests were faster, ns.
    pub p99_ns: u64,
}

impl Control {
    /// The group that status and table name: the one to come, the one in use, or the first.
    fn named_group(&self) -> usize {
        self.next.or(self.current).map_or(usize::from(!self.groups.is_empty()), |group| group + 1)
    }

    /// The arguments of the table line, as they are now.
    #[must_use]
    pub fn table_text(&self) -> String {
        let mut features = self.table.features.clone();
        features.queue_if_no_path = self.saved_queueing.unwrap_or(self.queue_if_no_path);
        let initial = self.named_group() as u32;
        Table { features, initial, ..self.table.clone() }.to_string()
    }

    /// The status line behind `START LENGTH multipath`, with the selectors' figures for each path.
    #[must_use]
    pub fn status_text(&self, figures: impl Fn(usize) -> Figures) -> String {
        let queues = u8::from(self.pg_init.queues_io);
        let mut line = format!("2 {queues} {} 0", self.pg_init.count);
        let _ = write!(line, " {} {}", self.groups.len(), self.named_group());
        for (number, (group, described)) in self.groups.iter().zip(&self.table.groups).enumerate() {
            let policy = described.policy;
            let _ = write!(line, " {} {}", self.letter(number), PolicyArgs(policy));
            let _ = write!(line, " {} {}", group.paths.len(), Figures::words(policy));
            for (path, described) in group.paths.clone().zip(&described.paths) {
                let state = &self.paths[path];
                let valid = if state.is_valid { 'A' } else { 'F' };
                let _ = write!(line, " {} {valid} {}", described.device, state.fail_count);
                for word in figures(path).text(policy, described.relative_throughput) {
                    let _ = write!(line, " {word}");
                }
            }
        }
        line
    }

    fn letter(&self, group: usize) -> char {
        if self.groups[group].is_bypassed {
            'D'
        } else if self.current == Some(group) {
            'A'
        } else {
            'E'
        }
    }

    /// Groups and paths as `multipath -ll` lists them, a line each.
    #[must_use]
    pub fn listing(&self, figures: impl Fn(usize) -> PathFigures) -> Vec<String> {
        let features = match self.queue_if_no_path {
            true => "1 queue_if_no_path",
            false => "0",
        };
        let handler = match self.table.handler.is_empty() {
            true => String::from("0"),
            false => format!("{} {}", self.table.handler.len(), self.table.handler.join(" ")),
        };
        let mode = self.table.features.queue_mode.unwrap_or_default();
        let mut lines = vec![format!(
            "features='{features}' hwhandler='{handler}' queue_mode={} paths={}/{}",
            Mode::word(mode),
            self.valid(),
            self.paths.len()
        )];
        for (number, group) in self.groups.iter().enumerate() {
            let last = number + 1 == self.groups.len();
            let policy = self.table.groups[number].policy;
            let valid = group.paths.clone().filter(|path| self.is_valid(*path));
            let priorities: Vec<u32> = valid.map(|path| self.priority(path)).collect();
            let prio = priorities.iter().sum::<u32>() / (priorities.len().max(1) as u32);
            let status = match self.letter(number) {
                'A' => "active",
                'D' => "disabled",
                _ => "enabled",
            };
            lines.push(format!(
                "{}-+- policy='{} {}' prio={prio} status={status}",
                if last { '`' } else { '|' },
                policy.name(),
                PolicyArgs(policy)
            ));
            for path in group.paths.clone() {
                let bar = if last { ' ' } else { '|' };
                let end = if path + 1 == group.paths.end { '`' } else { '|' };
                lines.push(format!("{bar} {end}- {}", self.path_line(path, figures(path))));
            }
        }
        lines
    }

    /// The paths and whether they are valid.
    #[must_use]
    pub fn seen(&self) -> Vec<PathSeen> {
        let seen = |path: usize| PathSeen {
            name: String::from(self.name(path)),
            is_valid: self.is_valid(path),
            fails: self.paths[path].fail_count.into(),
        };
        (0..self.paths.len()).map(seen).collect()
    }

    fn path_line(&self, path: usize, figures: PathFigures) -> String {
        let state = &self.paths[path];
        let valid = match (state.is_valid, state.on_probation) {
            (true, false) => "active",
            (true, true) => "active slow",
            (false, _) => "failed",
        };
        let port = match state.port {
            Some(port) => format!(" port={}", letter(port.access)),
            None => String::new(),
        };
        format!(
            "{} {valid} prio={}{port} in_flight={} ios={} errors={} fails={} p99_us={}",
            self.name(path),
            self.priority(path),
            figures.in_flight,
            figures.ios,
            figures.errors,
            state.fail_count,
            figures.p99_ns / 1000
        )
    }
}
