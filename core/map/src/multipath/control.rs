//! The state of a multipath device: which paths are valid, which group is in use, and what follows
//! when one fails or comes back. Pure: time goes in, decisions come out as [`Order`]s and
//! [`Event`]s, so that a simulator turns it as well as a lane.
//!
//! It decides when something changes, never for each request: lanes keep a copy, and look here
//! when [`version`](Control::version) has changed.
//! Rules: docs/behaviour/multipath.md, section 1.1.

mod activation;
mod check;
mod failback;
mod message;
mod status;

use weir_bio::Nanos;
use weir_queue::PortState;

use super::port::takes_io;
use super::settings::{Grouping, NoPathRetry, Settings};
use super::table::Table;
use activation::PgInit;
use check::Check;
pub use check::Verdict;
pub use status::PathFigures;

const SECOND_NS: u64 = 1_000_000_000;

/// Something to be done for the state machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Check this path; the end is [`Control::checked`].
    Check(usize),
    /// Activate this path; the end is [`Control::activated`].
    Activate(usize),
}

/// Something that has happened, for the log: one line each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event(pub String);

/// The highest rank among the valid paths of each group: made once for all paths, of which
/// there may be a thousand.
#[derive(Clone, Debug)]
pub struct Ranks(Vec<Rank>);

/// A path whose port takes I/O is above each that does not; then the priority counts.
type Rank = (bool, u32);

/// The state of one path.
#[derive(Debug)]
struct Path {
    group: usize,
    is_valid: bool,
    fail_count: u32,
    port: Option<PortState>,
    check: Check,
    on_probation: bool,
    is_activating: bool,
}

/// The state of one priority group.
#[derive(Debug)]
struct Group {
    is_bypassed: bool,
    paths: std::ops::Range<usize>,
}

/// Why I/O that waits for a path has an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Until {
    /// `no_path_retry`: until a path is back.
    Checks,
    /// `queue_if_no_path_timeout_secs`: for good.
    Timeout,
}

/// The state machine.
#[derive(Debug)]
pub struct Control {
    table: Table,
    settings: Settings,
    groups: Vec<Group>,
    paths: Vec<Path>,
    current: Option<usize>,
    next: Option<usize>,
    queue_if_no_path: bool,
    /// As it was before the suspension.
    saved_queueing: Option<bool>,
    no_path_until: Vec<(Nanos, Until)>,
    pg_init: PgInit,
    failback_at: Option<Nanos>,
    version: u64,
    orders: Vec<Order>,
    events: Vec<Event>,
}

impl Control {
    /// The machine for a table; all paths are valid.
    #[must_use]
    pub fn new(table: Table, settings: Settings, now: Nanos) -> Control {
        let mut groups = Vec::new();
        let mut paths = Vec::new();
        for (number, group) in table.groups.iter().enumerate() {
            let first = paths.len();
            for _ in &group.paths {
                paths.push(Path {
                    group: number,
                    is_valid: true,
                    fail_count: 0,
                    port: None,
                    check: Check::new(&settings, now),
                    on_probation: false,
                    is_activating: false,
                });
            }
            groups.push(Group { is_bypassed: false, paths: first..paths.len() });
        }
        let queueing = match settings.no_path_retry {
            None => table.features.queue_if_no_path,
            Some(NoPathRetry::Fail) => false,
            Some(NoPathRetry::Queue | NoPathRetry::Checks(_)) => true,
        };
        let next = (table.initial as usize).checked_sub(1);
        Control {
            table,
            settings,
            groups,
            paths,
            current: None,
            next,
            queue_if_no_path: queueing,
            saved_queueing: None,
            no_path_until: Vec::new(),
            pg_init: PgInit::default(),
            failback_at: None,
            version: 0,
            orders: Vec::new(),
            events: Vec::new(),
        }
    }

    /// The table it was made of.
    #[must_use]
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// The settings.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Changes with everything that lanes follow.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The group that requests go to, once there was one.
    #[must_use]
    pub fn group_in_use(&self) -> Option<usize> {
        self.current.filter(|_| self.next.is_none())
    }

    /// Whether a path carries one request a second.
    #[must_use]
    pub fn is_on_probation(&self, path: usize) -> bool {
        self.paths[path].on_probation
    }

    /// Whether a group has a path that carries I/O and is not on probation.
    #[must_use]
    pub fn has_trusted(&self, group: usize, ranks: &Ranks) -> bool {
        let mut paths = self.groups[group].paths.clone();
        paths.any(|path| {
            self.is_valid(path) && !self.is_on_probation(path) && !self.is_outranked(path, ranks)
        })
    }

    /// The numbers of the paths of each group.
    #[must_use]
    pub fn groups_of_paths(&self) -> Vec<std::ops::Range<usize>> {
        self.groups.iter().map(|group| group.paths.clone()).collect()
    }

    /// The name of a path.
    #[must_use]
    pub fn name(&self, path: usize) -> &str {
        self.table.paths().nth(path).map_or("", |line| &line.device)
    }

    /// The path of this name.
    #[must_use]
    pub fn path(&self, name: &str) -> Option<usize> {
        self.table.paths().position(|line| line.device == name)
    }

    /// Paths that are valid.
    #[must_use]
    pub fn valid(&self) -> usize {
        self.paths.iter().filter(|path| path.is_valid).count()
    }

    /// Whether a path is valid.
    #[must_use]
    pub fn is_valid(&self, path: usize) -> bool {
        self.paths[path].is_valid
    }

    /// Whether I/O waits while no path is left.
    #[must_use]
    pub fn queues_if_no_path(&self) -> bool {
        self.queue_if_no_path
    }

    /// Whether I/O waits for the activation of the group in use.
    #[must_use]
    pub fn queues_io(&self) -> bool {
        self.pg_init.queues_io
    }

    /// What is to be done, oldest first.
    pub fn take_orders(&mut self) -> Vec<Order> {
        std::mem::take(&mut self.orders)
    }

    /// What has happened, oldest first.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    fn tell(&mut self, event: String) {
        self.events.push(Event(event));
    }

    fn changed(&mut self) {
        self.version += 1;
    }

    fn has_valid(&self, group: usize) -> bool {
        self.paths[self.groups[group].paths.clone()].iter().any(|path| path.is_valid)
    }

    /// The group whose selector chooses next: the one asked for once if it has a path; else the
    /// one in use as long as it has; else the first that has, bypassed ones last.
    pub fn choose_group(&mut self, now: Nanos) -> Option<usize> {
        if self.valid() == 0 {
            if self.current.take().is_some() || self.pg_init.queues_io {
                self.pg_init.queues_io = false;
                self.changed();
            }
            return None;
        }
        if let Some(next) = self.next.take() {
            if self.has_valid(next) {
                self.switch_to(next, false, now);
                return Some(next);
            }
            self.changed();
        }
        if let Some(current) = self.current.filter(|group| self.has_valid(*group)) {
            return Some(current);
        }
        for bypassed in [false, true] {
            let fits = |group: &usize| {
                self.groups[*group].is_bypassed == bypassed && self.has_valid(*group)
            };
            if let Some(group) = (0..self.groups.len()).find(fits) {
                self.switch_to(group, bypassed, now);
                return Some(group);
            }
        }
        None
    }

    fn switch_to(&mut self, group: usize, is_delayed: bool, now: Nanos) {
        let before = self.current.replace(group);
        self.changed();
        if before == Some(group) {
            return;
        }
        let paths = self.groups[group].paths.len();
        self.tell(format!("priority group {} of {paths} paths is in use", group + 1));
        let has_handler = !self.table.handler.is_empty();
        self.pg_init = PgInit::of_group(has_handler, is_delayed);
        if has_handler {
            self.begin_activation(now);
        }
    }

    /// A path has failed, for this reason. Whether it was valid until now.
    pub fn fail(&mut self, path: usize, reason: &str, now: Nanos) -> bool {
        if !std::mem::replace(&mut self.paths[path].is_valid, false) {
            return false;
        }
        let state = &mut self.paths[path];
        state.fail_count += 1;
        state.on_probation = false;
        state.check.changed(&self.settings, now);
        let left = self.valid();
        self.tell(format!("path {} failed: {reason}; {left} paths left", self.name(path)));
        if left == 0 {
            self.lose_last(now);
        }
        self.changed();
        self.lost_while_activating(path, now);
        self.consider_failback(None, now);
        true
    }

    /// No path is left.
    fn lose_last(&mut self, now: Nanos) {
        self.no_path_until.clear();
        if !self.queue_if_no_path {
            self.tell(String::from("no path is left: I/O fails"));
            return;
        }
        let mut ends = Vec::new();
        if let Some(NoPathRetry::Checks(checks)) = self.settings.no_path_retry {
            let wait_s = u64::from(checks) * u64::from(self.settings.polling_interval);
            ends.push((now + wait_s * SECOND_NS, Until::Checks));
        }
        let timeout_s = u64::from(self.settings.queue_if_no_path_timeout_secs);
        if timeout_s > 0 {
            ends.push((now + timeout_s * SECOND_NS, Until::Timeout));
        }
        let bound = ends.iter().map(|(at, _)| at.since(now) / SECOND_NS).min();
        self.tell(match bound {
            Some(bound_s) => format!("no path is left: I/O waits for up to {bound_s} s"),
            None => String::from("no path is left: I/O waits"),
        });
        self.no_path_until = ends;
    }

    /// A path is valid again. Whether it was not until now.
    pub fn reinstate(&mut self, path: usize, reason: &str, now: Nanos) -> bool {
        if std::mem::replace(&mut self.paths[path].is_valid, true) {
            return false;
        }
        self.paths[path].check.changed(&self.settings, now);
        let (valid, group) = (self.valid(), self.paths[path].group);
        self.tell(format!("path {} is back: {reason}; {valid} paths", self.name(path)));
        if valid == 1 {
            self.no_path_until.clear();
            if matches!(self.settings.no_path_retry, Some(NoPathRetry::Checks(_)))
                && self.saved_queueing.is_none()
            {
                self.queue_if_no_path = true;
            }
        }
        if !self.table.handler.is_empty() && valid == 1 {
            // Nothing carries I/O, so it waits until the group has been activated.
            self.leave_group();
        } else if !self.table.handler.is_empty() && self.current == Some(group) {
            self.begin_activation_of(path);
        }
        self.changed();
        let of_group = &self.paths[self.groups[group].paths.clone()];
        let is_first = of_group.iter().filter(|path| path.is_valid).count() == 1;
        self.consider_failback(is_first.then_some(group), now);
        true
    }

    /// What is known of the port of a path at first: nothing has happened to it.
    pub fn begin_with_port(&mut self, path: usize, port: Option<PortState>) {
        self.paths[path].port = port;
    }

    /// What is known of the port of a path now.
    pub fn port_is(&mut self, path: usize, port: Option<PortState>, now: Nanos) {
        if std::mem::replace(&mut self.paths[path].port, port) != port {
            let words = match port {
                Some(port) => format!("{:?}", port.access),
                None => String::from("unknown"),
            };
            self.tell(format!("path {}: its port is {words} now", self.name(path)));
            self.changed();
            self.consider_failback(None, now);
        }
    }

    fn priority(&self, path: usize) -> u32 {
        self.settings.priority(self.paths[path].port)
    }

    /// The highest ranks now, where the groups are to be of one priority.
    #[must_use]
    pub fn ranks(&self) -> Ranks {
        let mut highest = vec![Rank::default(); self.groups.len()];
        if self.settings.path_grouping_policy == Grouping::ByPrio {
            for (number, path) in self.paths.iter().enumerate().filter(|(_, path)| path.is_valid) {
                highest[path.group] = self.rank(number).max(highest[path.group]);
            }
        }
        Ranks(highest)
    }

    fn rank(&self, path: usize) -> Rank {
        let port = self.paths[path].port;
        (port.is_none_or(|port| takes_io(port.access)), self.priority(path))
    }

    /// Whether a valid path of the same group has a higher rank, and the groups are to be of
    /// one priority.
    #[must_use]
    pub fn is_outranked(&self, path: usize, ranks: &Ranks) -> bool {
        self.rank(path) < ranks.0[self.paths[path].group]
    }

    /// A path carries one request a second from now on, or all that come to it.
    pub fn put_on_probation(&mut self, path: usize, on: bool, reason: &str) {
        if std::mem::replace(&mut self.paths[path].on_probation, on) != on {
            let state = if on { "is on probation" } else { "is trusted again" };
            self.tell(format!("path {} {state}: {reason}", self.name(path)));
            self.changed();
        }
    }

    /// Does what is due.
    pub fn tick(&mut self, now: Nanos) {
        let ended: Vec<Until> =
            self.no_path_until.extract_if(.., |(at, _)| *at <= now).map(|(_, why)| why).collect();
        for why in ended {
            if std::mem::replace(&mut self.queue_if_no_path, false) {
                let name = match why {
                    Until::Checks => "no_path_retry",
                    Until::Timeout => "queue_if_no_path_timeout_secs",
                };
                self.tell(format!("no path has come back in the time of {name}: I/O fails"));
                self.changed();
            }
        }
        if self.pg_init.at.is_some_and(|at| at <= now) {
            self.begin_activation(now);
        }
        if self.failback_at.is_some_and(|at| at <= now) {
            self.failback_at = None;
            self.fail_back();
        }
        self.tick_checks(now);
    }

    /// When [`tick`](Control::tick) has something to do.
    #[must_use]
    pub fn wake_at(&self) -> Option<Nanos> {
        let ends = self.no_path_until.iter().map(|(at, _)| *at);
        let checks = self.paths.iter().filter_map(|path| path.check.wake_at(&self.settings));
        ends.chain(checks).chain(self.pg_init.at).chain(self.failback_at).min()
    }

    /// I/O is brought to rest: what waits for a path ends, unless it is to be kept.
    pub fn suspend(&mut self, keeps_io: bool) {
        if self.saved_queueing.is_none() {
            self.saved_queueing = Some(self.queue_if_no_path);
            if !keeps_io {
                self.queue_if_no_path = false;
            }
            self.changed();
        }
    }

    /// The suspension is over.
    pub fn resume(&mut self) {
        if let Some(saved) = self.saved_queueing.take() {
            self.queue_if_no_path = saved;
            self.changed();
        }
    }
}
