//! The driver of a multipath device, and its control side: messages, texts, suspension.

use std::sync::Arc;

use weir_bio::{Flags, Limits, Nanos, Size, WriteCache};
use weir_queue::{
    Device, Driver, DriverError, DriverQueue, Extent, MapControl, NoticeListener, Queues, Speaker,
};

use super::asked::MultipathControl;
use super::control::Control;
use super::lane::{LaneParts, LaneQueue};
use super::settings::Settings;
use super::shared::Shared;
use super::table::{Mode, Table};
use super::view::{LaneShape, View};
use crate::mapped::{queues_over, write_cache_over};
use crate::outgoing::Outgoing;

/// One device over several paths to it.
///
/// # Contract
/// Each path leads to the same sectors, and a flush on any of them covers what was answered on
/// every one. Nothing here can see whether that is so.
pub struct Multipath {
    shared: Arc<Shared>,
    legs: Arc<[Device]>,
    settings: Settings,
    limits: Limits,
    is_bio_based: bool,
    node_of: fn(u32) -> u32,
}

impl Multipath {
    /// The device of a table; `paths` are its paths, in the table's order.
    ///
    /// # Errors
    /// A sentence: there is no path, or two differ in size or block size.
    pub fn new(table: Table, paths: Vec<Device>, settings: Settings) -> Result<Multipath, String> {
        let names: Vec<String> = table.paths().map(|path| path.device.clone()).collect();
        assert_eq!(names.len(), paths.len(), "a device for each path of the table");
        let limits = limits_over(&names, &paths)?;
        let repeated: Vec<&str> = table
            .paths()
            .filter(|path| path.was_repeated)
            .map(|path| path.device.as_str())
            .collect();
        let notice = (!repeated.is_empty())
            .then(|| format!("repeat_count above 1 is taken for 1, as of {}", repeated.join(", ")));
        let ports = paths.iter().map(Device::target_port).collect();
        let is_bio_based = table.features.queue_mode == Some(Mode::Bio);
        let shared = Shared::new(Control::new(table, settings.clone(), Nanos::ZERO), ports);
        notice.into_iter().for_each(|notice| shared.notices.add(notice));
        let (legs, node_of) = (paths.into(), |_| 0);
        Ok(Multipath { shared, legs, settings, limits, is_bio_based, node_of })
    }

    /// The same on a machine where `node_of` says on which NUMA node a CPU is.
    #[must_use]
    pub fn on_nodes(self, node_of: fn(u32) -> u32) -> Multipath {
        Multipath { node_of, ..self }
    }

    /// What it is asked and told while it runs.
    #[must_use]
    pub fn control(&self) -> Arc<dyn MapControl> {
        let sectors = self.limits.capacity;
        Arc::new(MultipathControl { shared: Arc::clone(&self.shared), sectors })
    }

    /// Its notices so far: one for each event of a path.
    #[must_use]
    pub fn notices(&self) -> Vec<String> {
        self.shared.notices.all()
    }

    /// Where its notices come from, without keeping its paths open.
    #[must_use]
    pub fn speaker(&self) -> Box<dyn Speaker> {
        Box::new(Notifier(Arc::clone(&self.shared)))
    }
}

struct Notifier(Arc<Shared>);

impl Speaker for Notifier {
    fn on_notice(&self, listener: NoticeListener) {
        self.0.notices.listen(listener);
    }
}

/// All paths are one device, so they are alike; what only one of them cannot do, none is asked for.
/// A path that does not know its size yet, as behind a port in standby, has it from the others.
fn limits_over(names: &[String], paths: &[Device]) -> Result<Limits, String> {
    let any_known = paths.iter().any(|path| path.limits().capacity > 0);
    let known = |(limits, _): &(Limits, &String)| limits.capacity > 0 || !any_known;
    let mut each = paths.iter().map(Device::limits).zip(names).filter(known);
    let Some((first, first_name)) = each.next() else {
        return Err(String::from("a multipath device has at least one path"));
    };
    let mut limits = first.clone();
    for (path, name) in each {
        let size = |of: &Limits| (of.size().bytes(), of.logical_block_size);
        if size(&path) != size(&first) {
            let ((bytes, block), (first_bytes, first_block)) = (size(&path), size(&first));
            return Err(format!(
                "paths {first_name} and {name} are not one device: {first_bytes} bytes in blocks \
                 of {first_block}, and {bytes} bytes in blocks of {block}"
            ));
        }
        limits = limits.stack(&path);
    }
    Ok(limits)
}

fn is_below(one: Size, other: Size) -> bool {
    one.bytes() < other.bytes()
}

fn failed(error: &weir_queue::Error) -> DriverError {
    DriverError { what: error.to_string(), source: None }
}

impl Driver for Multipath {
    fn limits(&self) -> Limits {
        self.limits.clone()
    }

    fn is_bio_based(&self) -> bool {
        self.is_bio_based
    }

    fn write_cache(&self) -> WriteCache {
        write_cache_over(&self.legs)
    }

    fn queues(&self) -> Queues {
        queues_over(&self.legs)
    }

    /// I/O that waits for a path ends while the device is brought to rest.
    fn comes_to_rest(&self, begins: bool) {
        // Nothing of it is a matter of time.
        self.shared.change(Nanos::ZERO, |control| match begins {
            true => control.suspend(false),
            false => control.resume(),
        });
    }

    fn open(&self, index: u16, depth: u16) -> Result<Box<dyn DriverQueue>, DriverError> {
        let outgoing = Outgoing::open(&self.legs, index, depth)?;
        // The path is tried again here, on another one: below it would only take longer.
        let outgoing = outgoing.with_flags(Flags::FAILFAST_TRANSPORT);
        let tally = self.shared.tally(index, self.legs.len());
        let shape = LaneShape { index, depth };
        let view =
            self.shared.look(|control| View::new(control, shape, Arc::clone(&tally), self.node_of));
        Ok(Box::new(LaneQueue::new(LaneParts {
            shape,
            shared: Arc::clone(&self.shared),
            legs: Arc::clone(&self.legs),
            outgoing,
            view,
            tally,
            settings: self.settings.clone(),
        })))
    }

    /// A path of another size than the device ends I/O beyond its end: so it grows if each path
    /// that is to tell its size does. All are asked, so that the error names all that do not.
    fn enlarge(&self, sectors: u64) -> Result<Size, DriverError> {
        let (mut sizes, mut silent, mut refused) = (Vec::new(), Vec::new(), Vec::new());
        for (path, leg) in self.legs.iter().enumerate() {
            match leg.enlarge(sectors) {
                Ok(size) if size.bytes() > 0 && self.shared.port_takes_io(path) => sizes.push(size),
                // It says its size once its port takes I/O, and has that of the others until then.
                Ok(_) => silent.push(leg),
                Err(error) => {
                    let name = self.shared.look(|control| control.name(path).to_owned());
                    refused.push(format!("path {name}: {error}"));
                }
            }
        }
        if !refused.is_empty() {
            return Err(DriverError { what: refused.join("; "), source: None });
        }
        let smallest = sizes.into_iter().min_by_key(|size| size.bytes()).unwrap_or_default();
        for leg in silent.into_iter().filter(|leg| is_below(leg.limits().size(), smallest)) {
            let promised = leg.reconfigure(|parts| parts.limits.grow_to(smallest));
            promised.map_err(|error| failed(&error))?;
        }
        Ok(smallest)
    }

    fn allocation(&self, sector: u64, sectors: u64) -> Result<Vec<Extent>, DriverError> {
        let mut error = None;
        for (path, leg) in self.legs.iter().enumerate() {
            if !self.shared.look(|control| control.is_valid(path)) {
                continue;
            }
            match leg.allocation(sector, sectors) {
                Ok(extents) => return Ok(extents),
                Err(failure) => error = Some(failed(&failure)),
            }
        }
        let none = || DriverError { what: String::from("no path is left"), source: None };
        Err(error.unwrap_or_else(none))
    }
}
