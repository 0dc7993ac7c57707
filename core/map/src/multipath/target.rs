//! Multipath as a kind of target: `multipath:A+B+...`, or a line of a table.

use std::sync::Arc;

use weir_queue::{
    Backing, Config, Device, Driver, DriverError, Identity, Keeps, OpenedBacking, QueueMode,
    TargetKind,
};

use super::Multipath;
use super::settings::{Grouping, OPTIONS, Settings};
use super::table::{Mode, Table};
use crate::names::{names_of, target_of};

/// One disk over several paths to it.
pub const MULTIPATH: TargetKind = TargetKind {
    names: &["multipath"],
    syntax: &["multipath:DISK+DISK..."],
    example: "multipath:sda+sdb",
    doc: "Disks of the same daemon that are paths to one device.",
    options: OPTIONS,
    parse: |written| {
        let names = names_of(written, written.rest)?;
        let (kind, how, settings) = (&MULTIPATH, How::Paths(names), Settings::default());
        Ok(Box::new(MultipathTarget { kind, how, settings }))
    },
};

/// A multipath disk.
#[derive(Clone, Debug)]
pub(crate) struct MultipathTarget {
    kind: &'static TargetKind,
    how: How,
    settings: Settings,
}

#[derive(Clone, Debug)]
enum How {
    /// Paths by name, grouped as the settings say.
    Paths(Vec<String>),
    /// A table line of so many sectors.
    Table(u64, Table),
}

impl MultipathTarget {
    /// The target of a table line, without options; `kind` is that of tables.
    ///
    /// # Errors
    /// A sentence with name, value and bound.
    pub(crate) fn of_line(
        kind: &'static TargetKind,
        sectors: u64,
        arguments: &str,
    ) -> Result<MultipathTarget, String> {
        let table = Table::parse(arguments)?;
        if table.groups.is_empty() {
            return Err(String::from("a multipath device has at least one path"));
        }
        let (how, settings) = (How::Table(sectors, table), Settings::default());
        Ok(MultipathTarget { kind, how, settings })
    }

    fn table(&self) -> Table {
        match &self.how {
            How::Table(_, table) => table.clone(),
            How::Paths(names) => {
                let all = || names.iter().map(String::as_str);
                let mut table = Table::of_paths(self.settings.path_selector, all());
                if self.settings.path_grouping_policy == Grouping::Failover {
                    let alone = |name| Table::of_paths(self.settings.path_selector, [name]).groups;
                    table.groups = all().flat_map(alone).collect();
                }
                table
            }
        }
    }
}

impl Backing for MultipathTarget {
    fn kind(&self) -> &'static TargetKind {
        self.kind
    }

    fn queue_mode(&self) -> Option<QueueMode> {
        match &self.how {
            How::Paths(_) => None,
            // As in Linux: bio-based is without a queue above, which is what mq without a
            // scheduler is; rq is the legacy queue.
            How::Table(_, table) => table.features.queue_mode.map(|mode| match mode {
                Mode::Bio | Mode::Mq => QueueMode::Mq,
                Mode::Rq => QueueMode::Sq,
            }),
        }
    }

    fn set(&mut self, option: &str, value: &str) -> Result<(), String> {
        let says_table = matches!(option, "path_selector" | "path_grouping_policy");
        if says_table && matches!(self.how, How::Table(..)) {
            return Err(format!("{option}={value}: the table says that"));
        }
        let is_known = self.settings.set(option, value)?;
        assert!(is_known, "no option {option} is declared");
        Ok(())
    }

    fn check(&self, config: &Config, _queues_given: bool, text: &str) -> Result<(), String> {
        let is_bio = self.table().features.queue_mode == Some(Mode::Bio);
        if let Some(scheduler) = config.scheduler.as_ref().filter(|name| is_bio && *name != "none")
        {
            return Err(format!("scheduler={scheduler} in {text:?}: queue_mode bio has none"));
        }
        let Settings { polling_interval, max_polling_interval, .. } = self.settings;
        if max_polling_interval < polling_interval {
            return Err(format!(
                "max_polling_interval={max_polling_interval} is below \
                 polling_interval={polling_interval}"
            ));
        }
        Ok(())
    }

    fn open(&self, _config: &Config) -> Result<OpenedBacking, DriverError> {
        let what = format!("it lies on {}, which are not open", self.legs().join(", "));
        Err(DriverError { what, source: None })
    }

    fn legs(&self) -> Vec<String> {
        self.table().paths().map(|path| path.device.clone()).collect()
    }

    fn leg_target(&self, leg: &str) -> Option<&str> {
        match &self.how {
            How::Paths(names) => target_of(names, leg),
            How::Table(..) => None,
        }
    }

    fn has_paths(&self) -> bool {
        true
    }

    /// One path is enough. Groups without a path go with it.
    fn without(&self, missing: &dyn Fn(&str) -> bool) -> Option<Box<dyn Backing>> {
        let mut left = self.clone();
        let any = match &mut left.how {
            How::Paths(names) => {
                names.retain(|name| !missing(name));
                !names.is_empty()
            }
            How::Table(_, table) => {
                table.keep_paths(|name| !missing(name));
                !table.groups.is_empty()
            }
        };
        any.then(|| Box::new(left) as Box<dyn Backing>)
    }

    fn open_over(&self, config: &Config, legs: &[Device]) -> Result<OpenedBacking, DriverError> {
        let failed = |what| DriverError { what, source: None };
        let mut table = self.table();
        let mode = &mut table.features.queue_mode;
        *mode = match (*mode, config.mode) {
            (Some(Mode::Bio), _) => Some(Mode::Bio),
            (_, QueueMode::Mq) => Some(Mode::Mq),
            (_, QueueMode::Sq) => Some(Mode::Rq),
        };
        let multipath =
            Multipath::new(table, legs.to_vec(), self.settings.clone()).map_err(failed)?;
        let sectors = multipath.limits().capacity;
        if let How::Table(length, _) = &self.how
            && *length != sectors
        {
            let what = format!("a table of {length} sectors, and its paths have {sectors}");
            return Err(failed(what));
        }
        let notices = multipath.notices();
        let (speaker, map) = (Some(multipath.speaker()), Some(multipath.control()));
        Ok(OpenedBacking { driver: Arc::new(multipath), notices, speaker, map })
    }

    fn queues(&self, driver: &dyn Driver, homes: u16) -> u16 {
        homes.clamp(1, driver.queues().max)
    }

    fn identity(&self) -> Identity {
        Identity::Own
    }

    fn settings(&self) -> String {
        format!("{self:?}")
    }

    fn keeps(&self) -> Keeps {
        // As long as its disks keep it, which say so themselves.
        Keeps::Flushed
    }

    fn boxed(&self) -> Box<dyn Backing> {
        Box::new(self.clone())
    }
}
