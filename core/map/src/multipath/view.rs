//! The copy that a lane has of the state machine, with its own selectors: what a choice reads.

use std::sync::Arc;

use weir_bio::Nanos;

use super::control::Control;
use super::selector::{Load, Selector, selector};
use super::shared::Shared;
use super::table::Policy;
use super::tally::LaneTally;

/// A lane's paths.
pub(super) struct View {
    version: u64,
    group: Option<usize>,
    /// I/O waits although there is a path.
    queues_io: bool,
    /// I/O waits if there is none.
    queueing: bool,
    valid: usize,
    /// Something was taken over since [`take_news`](View::take_news).
    has_news: bool,
    groups: Vec<GroupView>,
    paths: Vec<PathView>,
    /// Paths on probation, which the selectors do not know of.
    probation: Vec<usize>,
    /// Requests a path may have while another could carry them.
    cap: u32,
    depth: u32,
    tally: Arc<LaneTally>,
}

struct GroupView {
    selector: Box<dyn Selector>,
    first: usize,
    /// Its selector has figures that nothing else counts.
    publishes: bool,
}

struct PathView {
    group: usize,
    is_valid: bool,
    /// Its selector takes it for valid.
    is_usable: bool,
    under_way: u32,
}

/// A lane and its tags.
#[derive(Clone, Copy, Debug)]
pub(super) struct LaneShape {
    pub(super) index: u16,
    pub(super) depth: u16,
}

impl View {
    /// The view of a lane before it has looked at the machine for the first time.
    pub(super) fn new(
        control: &Control,
        lane: LaneShape,
        tally: Arc<LaneTally>,
        node_of: fn(u32) -> u32,
    ) -> View {
        let (mut groups, mut paths) = (Vec::new(), Vec::new());
        for (group, line) in control.table().groups.iter().enumerate() {
            let (first, count) = (paths.len(), line.paths.len());
            let mut selector = selector(line, node_of);
            if line.policy != Policy::IoAffinity {
                // Not every lane begins with the first path.
                for _ in 0..usize::from(lane.index) % count {
                    selector.choose(Load::default(), Nanos::ZERO);
                }
            }
            let publishes =
                matches!(line.policy, Policy::HistoricalServiceTime { .. } | Policy::IoAffinity);
            groups.push(GroupView { selector, first, publishes });
            let path = || PathView { group, is_valid: true, is_usable: true, under_way: 0 };
            paths.extend((0..count).map(|_| path()));
        }
        let depth = u32::from(lane.depth);
        let mut view = View {
            version: 0,
            group: None,
            queues_io: false,
            queueing: false,
            valid: 0,
            has_news: false,
            groups,
            paths,
            probation: Vec::new(),
            cap: depth,
            depth,
            tally,
        };
        view.take_over(control);
        view
    }

    /// Looks at the machine if it has changed.
    #[inline]
    pub(super) fn follow(&mut self, shared: &Shared) {
        if shared.version() != self.version {
            self.follow_now(shared);
        }
    }

    /// Whether the machine has changed since the news were last taken.
    #[inline]
    pub(super) fn has_news(&self) -> bool {
        self.has_news
    }

    pub(super) fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.has_news)
    }

    /// Whether a request without a path is to wait for one.
    pub(super) fn holds(&self) -> bool {
        self.queueing || self.queues_io
    }

    #[cold]
    fn follow_now(&mut self, shared: &Shared) {
        shared.look(|control| self.take_over(control));
    }

    fn take_over(&mut self, control: &Control) {
        (self.version, self.has_news) = (control.version(), true);
        self.valid = control.valid();
        self.group = control.group_in_use();
        self.queues_io = control.queues_io();
        self.queueing = control.queues_if_no_path();
        self.probation.clear();
        let ranks = control.ranks();
        for path in 0..self.paths.len() {
            let (is_valid, is_slow) = (control.is_valid(path), control.is_on_probation(path));
            // A slow path is better than none.
            let is_spared = is_slow && control.has_trusted(self.paths[path].group, &ranks);
            if is_valid && is_spared {
                self.probation.push(path);
            }
            self.paths[path].is_valid = is_valid;
            let is_usable = is_valid && !is_spared && !control.is_outranked(path, &ranks);
            if std::mem::replace(&mut self.paths[path].is_usable, is_usable) == is_usable {
                continue;
            }
            let group = &mut self.groups[self.paths[path].group];
            match is_usable {
                true => group.selector.reinstate(path - group.first),
                false => group.selector.fail(path - group.first),
            }
        }
        self.cap = self.cap_now();
    }

    /// Paths that answer nothing fill up to three quarters of the tags, so that one that does has
    /// the rest.
    fn cap_now(&self) -> u32 {
        let Some(group) = self.group else { return self.depth };
        let usable = |path: &&PathView| path.group == group && path.is_usable;
        let usable = self.paths.iter().filter(usable).count() as u32;
        match usable {
            0 | 1 => self.depth,
            _ => (self.depth * 3 / 4 / (usable - 1)).max(1),
        }
    }

    pub(super) fn is_valid(&self, path: usize) -> bool {
        self.paths[path].is_valid
    }

    /// The path for a request. `None`: there is none, or I/O waits.
    #[inline(always)]
    pub(super) fn choose(&mut self, load: Load, shared: &Shared, now: Nanos) -> Option<usize> {
        if !self.probation.is_empty()
            && let Some(path) = self.choose_probe(shared, now)
        {
            return Some(path);
        }
        if let Some(group) = self.group.filter(|_| !self.queues_io) {
            let group = &mut self.groups[group];
            if let Some(place) = group.selector.choose(load, now) {
                let path = group.first + place;
                if self.paths[path].under_way < self.cap {
                    return Some(path);
                }
                return Some(self.choose_below_cap(path, load, now));
            }
        }
        self.choose_anew(load, shared, now)
    }

    #[cold]
    fn choose_probe(&mut self, shared: &Shared, now: Nanos) -> Option<usize> {
        let group = self.group.filter(|_| !self.queues_io)?;
        let of_group = |path: &usize| self.paths[*path].group == group;
        let mut paths = self.probation.iter().copied().filter(of_group);
        paths.find(|path| shared.claims_probe(*path, now))
    }

    /// The path chosen has as much as it may: another one, if one has less.
    #[cold]
    fn choose_below_cap(&mut self, chosen: usize, load: Load, now: Nanos) -> usize {
        let group = &mut self.groups[self.paths[chosen].group];
        for _ in 0..self.paths.len() {
            let Some(place) = group.selector.choose(load, now) else { break };
            let path = group.first + place;
            if self.paths[path].under_way < self.cap {
                return path;
            }
        }
        // A selector that always takes the same one, such as by relative throughput.
        let is_free = |path: &PathView, of: usize| {
            path.is_usable && path.group == of && path.under_way < self.cap
        };
        let of = self.paths[chosen].group;
        self.paths.iter().position(|path| is_free(path, of)).unwrap_or(chosen)
    }

    /// The group in use has no path, or none is in use yet.
    #[cold]
    fn choose_anew(&mut self, load: Load, shared: &Shared, now: Nanos) -> Option<usize> {
        if self.queues_io || self.valid == 0 && self.group.is_none() {
            return None;
        }
        shared.change(now, |control| control.choose_group(now));
        self.follow(shared);
        let group = self.group.filter(|_| !self.queues_io)?;
        let group = &mut self.groups[group];
        let place = group.selector.choose(load, now)?;
        Some(group.first + place)
    }

    /// A bio was sent down a path.
    #[inline]
    pub(super) fn started(&mut self, path: usize, bytes: u64) {
        self.tally.path(path).count_sent(bytes);
        let view = &mut self.paths[path];
        view.under_way += 1;
        let group = &mut self.groups[view.group];
        group.selector.started(path - group.first, bytes);
    }

    /// One has come back.
    #[inline]
    pub(super) fn ended(&mut self, path: usize, bytes: u64, latency_ns: u64, now: Nanos) {
        let tally = self.tally.path(path);
        tally.count_ended(bytes, latency_ns);
        let view = &mut self.paths[path];
        view.under_way -= 1;
        let group = &mut self.groups[view.group];
        group.selector.ended(path - group.first, bytes, now - latency_ns, now);
        if group.publishes {
            tally.publish(group.selector.figures(path - group.first));
        }
    }

    /// One has come back that no leg has had.
    pub(super) fn recalled(&mut self, path: usize, bytes: u64, now: Nanos) {
        self.tally.path(path).count_recalled(bytes);
        let view = &mut self.paths[path];
        view.under_way -= 1;
        let group = &mut self.groups[view.group];
        group.selector.ended(path - group.first, bytes, now, now);
    }

    pub(super) fn count_error(&self, path: usize) {
        self.tally.path(path).count_error();
    }
}
