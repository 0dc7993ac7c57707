//! The settings of a multipath device beside its table: what Linux leaves to its daemon, by the
//! names and defaults of multipath.conf(5), and weir's own rules for late writes and slow paths.

use weir_queue::{PortState, TargetOption};

use super::port::priority;
use super::table::Policy;
use super::words::number;

/// Rules while no path is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPathRetry {
    /// I/O fails.
    Fail,
    /// I/O waits.
    Queue,
    /// I/O waits for so many checks, then fails until a path is back.
    Checks(u32),
}

/// When I/O goes back to the best group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failback {
    /// By a message only.
    Manual,
    /// As soon as it is the best.
    Immediate,
    /// When the first path of it has come back.
    FollowOver,
    /// After so many seconds.
    After(u32),
}

/// Where priorities of paths come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prio {
    /// From the states of port groups where the paths have such.
    Detect,
    /// All are alike.
    Const,
    /// From the states of port groups.
    Alua,
}

/// How a path is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checker {
    /// TEST UNIT READY where the path takes commands, else a read.
    Tur,
    /// A read of the first block.
    ReadSector0,
    /// The same: weir's reads are direct and asynchronous always.
    DirectIo,
    /// Not at all.
    None,
}

/// When a write that failed on one path goes down another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// When it can no longer land late.
    Fenced,
    /// At once: it may land after newer data.
    Immediate,
}

/// How the paths of a target make groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grouping {
    /// Each path is a group: one carries I/O, the others are for need.
    Failover,
    /// All paths are one group.
    Multibus,
    /// The paths of one priority are a group, of which only those with the highest carry I/O when
    /// their priorities come to differ.
    ByPrio,
    /// The paths that say one serial number are a group.
    BySerial,
    /// The paths to one node of a target are a group.
    ByNodeName,
}

/// Whether a group is activated before I/O goes there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handler {
    /// If its paths have port groups.
    Detect,
    /// No.
    None,
    /// Yes.
    Alua,
}

/// All of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The selector of a target that is no table.
    pub path_selector: Policy,
    /// The groups of a target that is no table.
    pub path_grouping_policy: Grouping,
    /// The hardware handler of a target that is no table.
    pub hardware_handler: Handler,
    /// Rules while no path is left; `None`: as the table's features say.
    pub no_path_retry: Option<NoPathRetry>,
    /// How long I/O waits for a path, s; 0: for ever.
    pub queue_if_no_path_timeout_secs: u32,
    /// When I/O goes back to the best group.
    pub failback: Failback,
    /// Where priorities come from.
    pub prio: Prio,
    /// The preferred bit counts for an optimized port as well.
    pub exclusive_pref_bit: bool,
    /// How a path is checked.
    pub path_checker: Checker,
    /// Time between two checks at first, s; it doubles while a path is stable.
    pub polling_interval: u32,
    /// Longest time between two checks, s.
    pub max_polling_interval: u32,
    /// A check without an answer for so long means down, s.
    pub checker_timeout: u32,
    /// When a write goes down another path.
    pub retry: Retry,
    /// The transport's bound, s: twice that, and a write no longer lands.
    pub replacement_timeout: u32,
    /// Slow paths are put on probation.
    pub slow_path: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            path_selector: Policy::ServiceTime,
            path_grouping_policy: Grouping::Failover,
            hardware_handler: Handler::Detect,
            no_path_retry: None,
            queue_if_no_path_timeout_secs: 0,
            failback: Failback::Manual,
            prio: Prio::Detect,
            exclusive_pref_bit: false,
            path_checker: Checker::Tur,
            polling_interval: 5,
            max_polling_interval: 20,
            checker_timeout: 30,
            retry: Retry::Fenced,
            replacement_timeout: 120,
            slow_path: false,
        }
    }
}

/// The options of a target that set them.
pub const OPTIONS: &[TargetOption] = &[
    TargetOption {
        name: "path_grouping_policy",
        values: "failover|multibus|group_by_prio|group_by_serial|group_by_node_name",
        default: "failover",
        doc: "Whether each path is a priority group of its own, one of which is in use, or all \
              paths are one, or those of one priority, one serial number or one target.",
    },
    TargetOption {
        name: "hardware_handler",
        values: "detect|none|alua",
        default: "detect",
        doc: "Whether a group's target ports are activated before I/O goes there; detected by the \
              paths' port groups.",
    },
    TargetOption {
        name: "path_selector",
        values: "service-time|queue-length|round-robin|historical-service-time",
        default: "service-time",
        doc: "Which path of a group carries the next request.",
    },
    TargetOption {
        name: "no_path_retry",
        values: "fail|queue|N",
        default: "as the table says",
        doc: "What I/O does while no path is left: fail, wait, or wait for N checks.",
    },
    TargetOption {
        name: "queue_if_no_path_timeout_secs",
        values: "0..=86400",
        default: "0",
        doc: "How long I/O waits for a path, in seconds; 0 is for ever.",
    },
    TargetOption {
        name: "failback",
        values: "manual|immediate|followover|N",
        default: "manual",
        doc: "When I/O goes back to the best group: by a message, at once, when its first path is \
              back, or after N seconds.",
    },
    TargetOption {
        name: "prio",
        values: "detect|const|alua",
        default: "detect",
        doc: "Where the priorities of paths come from: all are alike, or they follow the states of \
              the target ports; detected by whether a path has such states.",
    },
    TargetOption {
        name: "exclusive_pref_bit",
        values: "on|off",
        default: "off",
        doc: "The preferred bit raises the priority of an optimized port as well.",
    },
    TargetOption {
        name: "path_checker",
        values: "tur|readsector0|directio|none",
        default: "tur",
        doc: "How paths are checked: TEST UNIT READY where a path takes commands, or a read of \
              the first block.",
    },
    TargetOption {
        name: "polling_interval",
        values: "1..=3600",
        default: "5",
        doc: "Seconds between two checks of a path; doubles while the path is stable.",
    },
    TargetOption {
        name: "max_polling_interval",
        values: "1..=3600",
        default: "20",
        doc: "Most seconds between two checks of a path.",
    },
    TargetOption {
        name: "checker_timeout",
        values: "1..=3600",
        default: "30",
        doc: "Seconds without an answer to a check after which the path is down.",
    },
    TargetOption {
        name: "retry",
        values: "fenced|immediate",
        default: "fenced",
        doc: "When a write that failed on one path goes down another: when it can no longer land \
              late, or at once, which may leave older data over newer.",
    },
    TargetOption {
        name: "replacement_timeout",
        values: "0..=86400",
        default: "120",
        doc: "The transport's bound in seconds: after twice that a write no longer lands late.",
    },
    TargetOption {
        name: "slow_path",
        values: "on|off",
        default: "off",
        doc: "A path whose p99 over 10 s is above five times the group's median path carries one \
              request a second, until 30 s of good answers.",
    },
];

const GROUPINGS: &[(&str, Grouping)] = &[
    ("failover", Grouping::Failover),
    ("multibus", Grouping::Multibus),
    ("group_by_prio", Grouping::ByPrio),
    ("group_by_serial", Grouping::BySerial),
    ("group_by_node_name", Grouping::ByNodeName),
];

const HANDLERS: &[(&str, Handler)] =
    &[("detect", Handler::Detect), ("none", Handler::None), ("alua", Handler::Alua)];

const PRIOS: &[(&str, Prio)] =
    &[("detect", Prio::Detect), ("const", Prio::Const), ("alua", Prio::Alua)];

impl Settings {
    /// Sets one of [`OPTIONS`]. Whether there is such an option.
    ///
    /// # Errors
    /// A sentence with name, value and bound.
    pub fn set(&mut self, name: &str, value: &str) -> Result<bool, String> {
        let within = |range| number(name, Some(value), range);
        match name {
            "path_grouping_policy" => self.path_grouping_policy = word(name, value, GROUPINGS)?,
            "hardware_handler" => self.hardware_handler = word(name, value, HANDLERS)?,
            "path_selector" => {
                // io-affinity has no paths without masks, which only a table has.
                let policies = [
                    Policy::ServiceTime,
                    Policy::QueueLength,
                    Policy::RoundRobin,
                    Policy::HISTORICAL,
                ];
                self.path_selector = word(name, value, &policies.map(|of| (of.name(), of)))?;
            }
            "no_path_retry" => {
                self.no_path_retry = Some(match value {
                    "fail" => NoPathRetry::Fail,
                    "queue" => NoPathRetry::Queue,
                    _ => NoPathRetry::Checks(or_words(value, "fail, queue", within(1..=86_400))?),
                });
            }
            "queue_if_no_path_timeout_secs" => {
                self.queue_if_no_path_timeout_secs = within(0..=86_400)?;
            }
            "failback" => {
                self.failback = match value {
                    "manual" => Failback::Manual,
                    "immediate" => Failback::Immediate,
                    "followover" => Failback::FollowOver,
                    _ => {
                        let words = "manual, immediate, followover";
                        Failback::After(or_words(value, words, within(1..=86_400))?)
                    }
                }
            }
            "prio" => self.prio = word(name, value, PRIOS)?,
            "exclusive_pref_bit" => self.exclusive_pref_bit = switch(name, value)?,
            "path_checker" => {
                let words = [
                    ("tur", Checker::Tur),
                    ("readsector0", Checker::ReadSector0),
                    ("directio", Checker::DirectIo),
                    ("none", Checker::None),
                ];
                self.path_checker = word(name, value, &words)?;
            }
            "polling_interval" => self.polling_interval = within(1..=3600)?,
            "max_polling_interval" => self.max_polling_interval = within(1..=3600)?,
            "checker_timeout" => self.checker_timeout = within(1..=3600)?,
            "retry" => {
                let words = [("fenced", Retry::Fenced), ("immediate", Retry::Immediate)];
                self.retry = word(name, value, &words)?;
            }
            "replacement_timeout" => self.replacement_timeout = within(0..=86_400)?,
            "slow_path" => self.slow_path = switch(name, value)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The priority of a path whose port is in this state.
    #[must_use]
    pub fn priority(&self, port: Option<PortState>) -> u32 {
        match (self.prio, port) {
            (Prio::Const, _) | (_, None) => 1,
            (Prio::Detect | Prio::Alua, Some(port)) => priority(port, self.exclusive_pref_bit),
        }
    }

    /// Time after which a write no longer lands whatever its path says, ns.
    #[must_use]
    pub fn late_write_ns(&self) -> u64 {
        2 * u64::from(self.replacement_timeout) * 1_000_000_000
    }
}

/// A number where words are allowed as well.
fn or_words(value: &str, words: &str, number: Result<u32, String>) -> Result<u32, String> {
    number.map_err(|error| match value.parse::<u32>() {
        Ok(_) => error,
        Err(_) => format!("{error}, and none of {words}"),
    })
}

fn word<T: Copy>(name: &str, value: &str, words: &[(&str, T)]) -> Result<T, String> {
    match words.iter().find(|(word, _)| *word == value) {
        Some((_, meant)) => Ok(*meant),
        None => {
            let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            Err(format!("{name}={value} is none of {}", known.join(", ")))
        }
    }
}

fn switch(name: &str, value: &str) -> Result<bool, String> {
    word(name, value, &[("on", true), ("off", false)])
}
