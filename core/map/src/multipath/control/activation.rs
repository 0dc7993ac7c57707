//! The activation of the group in use, where the table names a hardware handler: I/O waits until
//! the activation of each of its valid paths has ended.
//! Rules: docs/behaviour/multipath.md, section 5.

use weir_bio::Nanos;
use weir_queue::Activation;

use super::{Control, Order};

/// The activation of the group in use.
#[derive(Debug, Default)]
pub(super) struct PgInit {
    /// I/O waits until it is through.
    pub(super) queues_io: bool,
    /// Repeats since the group was switched to.
    pub(super) count: u32,
    /// When the next one begins.
    pub(super) at: Option<Nanos>,
    /// It begins after the delay.
    is_delayed: bool,
    /// A path asked for another one, which begins once all have ended.
    repeats: bool,
}

impl PgInit {
    pub(super) fn of_group(queues_io: bool, is_delayed: bool) -> PgInit {
        PgInit { queues_io, is_delayed, ..PgInit::default() }
    }
}

impl Control {
    /// Activates all valid paths of the group in use, now or after the delay.
    pub(super) fn begin_activation(&mut self, now: Nanos) {
        self.pg_init.repeats = false;
        if std::mem::take(&mut self.pg_init.is_delayed) {
            let delay_ms = u64::from(self.table.features.pg_init_delay_msecs);
            self.pg_init.at = Some(now + delay_ms * 1_000_000);
            return;
        }
        self.pg_init.at = None;
        let Some(current) = self.current else { return };
        for path in self.groups[current].paths.clone() {
            if self.paths[path].is_valid {
                self.begin_activation_of(path);
            }
        }
    }

    pub(super) fn begin_activation_of(&mut self, path: usize) {
        if !std::mem::replace(&mut self.paths[path].is_activating, true) {
            self.orders.push(Order::Activate(path));
        }
    }

    /// The activation of a path has ended.
    pub fn activated(&mut self, path: usize, how: Activation, now: Nanos) {
        if !std::mem::take(&mut self.paths[path].is_activating) {
            return;
        }
        let group = self.paths[path].group;
        match how {
            Activation::Done => self.groups[group].is_bypassed = false,
            Activation::Busy => {
                self.groups[group].is_bypassed = true;
                let number = group + 1;
                self.tell(format!("priority group {number} is busy, so it is bypassed"));
            }
            // The group was left: the next switch to it activates it anew.
            Activation::Retry | Activation::RetryNow if self.current != Some(group) => {}
            Activation::Retry | Activation::RetryNow => {
                if self.may_repeat(path, now) {
                    self.pg_init.is_delayed |= how == Activation::Retry;
                    self.pg_init.repeats = true;
                }
            }
            Activation::Failed => _ = self.fail(path, "its activation failed", now),
        }
        self.go_on_if_activated(group, now);
    }

    /// No group is in use until one is looked for, and no activation is waited for until then.
    pub(super) fn leave_group(&mut self) {
        self.current = None;
        self.pg_init = PgInit::default();
    }

    /// A path has failed: its activation is waited for no longer.
    pub(super) fn lost_while_activating(&mut self, path: usize, now: Nanos) {
        if self.paths[path].is_activating {
            self.go_on_if_activated(self.paths[path].group, now);
        }
    }

    /// Once no activation of the group in use is waited for, it is repeated, or I/O goes on.
    fn go_on_if_activated(&mut self, group: usize, now: Nanos) {
        let paths = &self.paths[self.groups[group].paths.clone()];
        let waits = paths.iter().any(|path| path.is_valid && path.is_activating);
        if self.current != Some(group) || waits || self.pg_init.at.is_some() {
            return;
        }
        if self.pg_init.repeats {
            self.pg_init.count += 1;
            return self.begin_activation(now);
        }
        self.pg_init.queues_io = false;
        if self.groups[group].is_bypassed {
            // Another group, as soon as there is I/O for it.
            self.current = None;
        }
        self.changed();
    }

    fn may_repeat(&mut self, path: usize, now: Nanos) -> bool {
        let may = self.pg_init.count < self.table.features.pg_init_retries;
        if !may {
            self.fail(path, "its activation was tried as often as it may be", now);
        }
        may
    }
}
