//! Multipath as a kind of target: `multipath:A+B+...`, or a line of a table.

use std::sync::Arc;

use weir_bio::Size;
use weir_queue::{
    Backing, Config, Device, Driver, DriverError, OpenedBacking, QueueMode, TargetKind,
};

use super::Multipath;
use super::settings::{Grouping, Handler, OPTIONS, Settings};
use super::table::{Mode, Table};
use crate::names::{names_of, target_of};
use crate::over::{alike_over_disks, failed, not_open};

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

    /// The table, as far as it is known without the paths.
    fn table(&self) -> Table {
        match &self.how {
            How::Table(_, table) => table.clone(),
            How::Paths(names) => {
                Table::of_paths(self.settings.path_selector, names.iter().map(String::as_str))
            }
        }
    }

    /// The table with its groups, and the paths in its order.
    fn table_over(&self, legs: &[Device]) -> (Table, Vec<Device>) {
        let mut table = self.table();
        let How::Paths(names) = &self.how else { return (table, legs.to_vec()) };
        let ports: Vec<_> = legs.iter().map(Device::target_port).collect();
        let states = ports.iter().map(|port| port.as_ref().and_then(|port| port.state()));
        let priorities: Vec<u32> = states.map(|state| self.settings.priority(state)).collect();
        let key = |path: usize| self.group_key(path, priorities[path], &legs[path]);
        // The best path comes first; of equals, the one that was named first.
        let mut order: Vec<usize> = (0..legs.len()).collect();
        order.sort_by_key(|path| std::cmp::Reverse(priorities[*path]));
        let mut groups: Vec<(GroupKey, Vec<usize>)> = Vec::new();
        for path in order {
            let key = key(path);
            match groups.iter_mut().find(|(known, _)| *known == key) {
                Some((_, paths)) => paths.push(path),
                None => groups.push((key, vec![path])),
            }
        }
        let line = |paths: &Vec<usize>| {
            let names = paths.iter().map(|path| names[*path].as_str());
            Table::of_paths(self.settings.path_selector, names).groups
        };
        table.groups = groups.iter().flat_map(|(_, paths)| line(paths)).collect();
        let has_handler = match self.settings.hardware_handler {
            Handler::Detect => ports.iter().any(Option::is_some),
            Handler::None => false,
            Handler::Alua => true,
        };
        table.handler = has_handler.then(|| String::from("alua")).into_iter().collect();
        let order = groups.iter().flat_map(|(_, paths)| paths);
        (table, order.map(|path| legs[*path].clone()).collect())
    }

    fn group_key(&self, path: usize, priority: u32, leg: &Device) -> GroupKey {
        let text = |name| GroupKey::Text(leg.with_attributes(|page| page.show(name)).flatten());
        match self.settings.path_grouping_policy {
            Grouping::Failover => GroupKey::Number(path),
            Grouping::Multibus => GroupKey::Number(0),
            Grouping::ByPrio => GroupKey::Number(priority as usize),
            Grouping::BySerial => text("vpd_pg80"),
            Grouping::ByNodeName => text("node_name"),
        }
    }
}

/// A path that could not say its size has that of the others: they are one device.
fn promise_size(legs: &[Device], size: Size) -> Result<(), String> {
    for leg in legs.iter().filter(|leg| leg.limits().capacity == 0) {
        let promised = leg.reconfigure(|parts| parts.limits.grow_to(size));
        promised.map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// What the paths of one group have in common.
#[derive(PartialEq, Eq)]
enum GroupKey {
    Number(usize),
    /// What their drivers show; paths that show nothing are one group.
    Text(Option<String>),
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
        let table = ["path_selector", "path_grouping_policy", "hardware_handler"];
        let says_table = table.contains(&option);
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
        Err(not_open(&self.legs()))
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
        let (mut table, paths) = self.table_over(legs);
        let mode = &mut table.features.queue_mode;
        *mode = match (*mode, config.mode) {
            (Some(Mode::Bio), _) => Some(Mode::Bio),
            (_, QueueMode::Mq) => Some(Mode::Mq),
            (_, QueueMode::Sq) => Some(Mode::Rq),
        };
        let multipath = Multipath::new(table, paths, self.settings.clone()).map_err(failed)?;
        let size = multipath.limits().size();
        promise_size(legs, size).map_err(failed)?;
        let sectors = size.sectors;
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

    alike_over_disks!();
}
