//! How a host is put together: its processors, its disks, and the devices in front of them.

use std::fmt;
use std::sync::Arc;

use weir_map::multipath::Multipath;
use weir_map::multipath::settings::{Checker, Settings};
use weir_map::multipath::table::{Mode, Table};
use weir_queue::{Config, Device, Driver, QueueMode};
use weir_sim_disk::{Disk, Kind};

use crate::cpu::Cpu;
use crate::driver::SimDriver;
use crate::host::{DeviceSide, DiskSide, Host, HostSide, LaneSide, Layer};
use crate::link::Link;
use crate::midlayer::Facts;
use crate::nexus::{self, Outlet, TargetUnit};
use crate::profile::SchedulerPrice;
use crate::scsi::{Identified, PortSide};
use crate::spec::{HostError, HostSpec, San};

/// A volume that a host reaches over the ports of its target.
struct Volume<'a> {
    host: usize,
    volume: usize,
    disk: usize,
    facts: &'a Arc<Facts>,
    ports: &'a [PortSide],
}

/// A device that is to be.
struct Plan<'a> {
    layer: Layer,
    config: Config,
    driver: Arc<dyn Driver>,
    /// What each hard queue hands its commands to.
    outlets: Vec<Outlet>,
    /// The processor that the interrupts of each hard queue go to.
    cpu_of: &'a dyn Fn(usize) -> usize,
}

fn refused(why: &dyn fmt::Display) -> HostError {
    HostError(why.to_string())
}

impl Host {
    /// Processors of each host.
    pub(crate) fn add_hosts(&mut self, spec: &HostSpec) {
        let sockets = spec.profile.machine.sockets;
        for cpus in spec.hosts() {
            let from = self.cpus.len();
            let cores = cpus.div_ceil(sockets);
            self.cpus.extend((0..cpus).map(|index| Cpu {
                socket: index / cores,
                rests: true,
                ..Cpu::default()
            }));
            self.hosts.push(HostSide { cpus: from..from + cpus, devices: Vec::new() });
        }
    }

    /// The disks, and what each host has in front of them.
    pub(crate) fn add_disks(&mut self, spec: &HostSpec) -> Result<(), HostError> {
        let is_one = spec.san.is_some() && matches!(spec.disk.kind, Kind::Array(_));
        for index in 0..if is_one { 1 } else { spec.disks } {
            let disk = Disk::new(&spec.disk, spec.seed.wrapping_add(index as u64));
            self.disks.push(DiskSide { disk, alarm: None });
        }
        match &spec.san {
            None => {
                for host in 0..self.hosts.len() {
                    (0..spec.disks).try_for_each(|disk| self.add_direct(spec, host, disk))?;
                }
                Ok(())
            }
            Some(san) => self.add_network(spec, san, is_one),
        }
    }

    /// The adapters of all hosts, and the disks behind them: all of them one array, or each a disk.
    fn add_network(&mut self, spec: &HostSpec, san: &San, is_one: bool) -> Result<(), HostError> {
        let identified = Identified::new(spec)?;
        let facts = (0..spec.disks).map(|disk| identified.facts(disk));
        let facts = facts.collect::<Result<Vec<_>, _>>()?;
        for host in 0..self.hosts.len() {
            for _ in 0..san.adapters {
                let (adapter, line) = (self.add_lock(), self.lines.len());
                self.adapters.push(adapter);
                self.lines.resize(line + 1, None);
                self.links.extend([Link::new(san.link), Link::new(san.link)]);
            }
            let port = |path| PortSide::new(spec, san, [host, path], &identified);
            let ports: Vec<PortSide> = (0..san.paths).map(port).collect();
            for (volume, facts) in facts.iter().enumerate() {
                let disk = if is_one { 0 } else { volume };
                let volume = Volume { host, volume, disk, facts, ports: &ports };
                self.add_over_paths(spec, san, &volume)?;
            }
        }
        Ok(())
    }

    /// A disk that its host reaches directly.
    fn add_direct(&mut self, spec: &HostSpec, host: usize, disk: usize) -> Result<(), HostError> {
        let config = Config { name: format!("disk{disk}"), ..spec.config.clone() };
        let queues = usize::from(config.queues);
        let driver = Arc::new(SimDriver::new(spec.disk.clone(), config.queues, self.lanes.len()));
        let outlets = (0..queues).map(|queue| Outlet::Disk(driver.port(queue))).collect();
        let vectors = spec.profile.path.vectors.clamp(1, queues);
        let cpus = self.hosts[host].cpus.clone();
        let cpu_of = |queue: usize| cpus.start + (queue % vectors) * cpus.len() / vectors;
        let layer = Layer::Disk(disk);
        let plan = Plan { layer, config, driver, outlets, cpu_of: &cpu_of };
        let device = self.add_device(plan)?;
        self.devices[device].device.attach_groups(&self.groups);
        self.hosts[host].devices.push(device);
        Ok(())
    }

    /// A volume that its host reaches over paths, each a device of its own below the mapper.
    fn add_over_paths(
        &mut self,
        spec: &HostSpec,
        san: &San,
        volume: &Volume<'_>,
    ) -> Result<(), HostError> {
        let Volume { host, volume: number, .. } = *volume;
        let names: Vec<String> =
            (0..san.paths).map(|path| format!("host{host}-disk{number}-path{path}")).collect();
        let mut legs = Vec::new();
        for (path, name) in names.iter().enumerate() {
            let leg = self.add_path(san, (volume, path), name)?;
            legs.push(self.devices[leg].device.clone());
        }
        let mut table = Table::of_paths(san.selector, names.iter().map(String::as_str));
        let is_single = spec.config.mode == QueueMode::Sq;
        table.features.queue_mode = Some(if is_single { Mode::Rq } else { Mode::Mq });
        // Where no path fails, checks would be commands that no process asked for.
        let path_checker = if san.may_fail() { Checker::Tur } else { Checker::None };
        let settings = Settings { path_checker, ..Settings::default() };
        let mapped = Multipath::new(table, legs, settings).map_err(|why| refused(&why))?;
        let name = format!("host{host}-disk{number}");
        let config = Config { name, ..spec.config.clone() };
        let first = self.hosts[host].cpus.start;
        let driver = Arc::new(mapped);
        let outlets = (0..config.queues).map(|_| Outlet::Legs).collect();
        let cpu_of = &|_| first;
        let plan = Plan { layer: Layer::Mapped, config, driver, outlets, cpu_of };
        let device = self.add_device(plan)?;
        self.devices[device].device.attach_groups(&self.groups);
        self.hosts[host].devices.push(device);
        Ok(())
    }

    fn add_path(
        &mut self,
        san: &San,
        (volume, path): (&Volume<'_>, usize),
        name: &str,
    ) -> Result<usize, HostError> {
        let Volume { host, disk, facts, ports, .. } = *volume;
        // Its tags are those of the port; what a path may have at once is the unit's depth.
        let config = Config { name: name.to_owned(), depth: None, ..san.path.clone() };
        let queues = usize::from(config.queues);
        let driver = Arc::new(ports[path].unit(facts)?);
        self.units.push(Arc::clone(&driver));
        let lanes_from = self.lanes.len();
        let at_target = Arc::<TargetUnit>::default();
        let outlet = |(queue, nexus): (usize, &nexus::SharedNexus)| {
            let unit = nexus::lock(nexus).add_unit(lanes_from + queue, &at_target);
            Outlet::Nexus(Arc::clone(nexus), unit)
        };
        let outlets = ports[path].nexuses.iter().enumerate().map(outlet).collect();
        let own = path % san.adapters;
        let vectors = san.adapters * queues;
        let cpus = self.hosts[host].cpus.clone();
        let cpu_of = |queue| cpus.start + (own * queues + queue) * cpus.len() / vectors;
        let layer = Layer::Path { disk, adapter: host * san.adapters + own };
        let plan = Plan { layer, config, driver, outlets, cpu_of: &cpu_of };
        let index = self.add_device(plan)?;
        if san.path.mode == QueueMode::Sq {
            self.has_single_paths = true;
            self.devices[index].device.listen_to_mappers(self.heard_below.of(index));
        }
        Ok(index)
    }

    /// The price of this scheduler, by its profile.
    fn price_of(&mut self, scheduler: &str) -> Arc<SchedulerPrice> {
        if let Some(price) = self.prices.get(scheduler) {
            return Arc::clone(price);
        }
        let price = self.profile.scheduler.get(scheduler).cloned().unwrap_or_default();
        Arc::clone(self.prices.entry(scheduler.to_owned()).or_insert(Arc::new(price)))
    }

    fn add_device(&mut self, plan: Plan<'_>) -> Result<usize, HostError> {
        let Plan { layer, config, driver, outlets, cpu_of } = plan;
        let is_single = config.mode == QueueMode::Sq;
        // The figures are those of processes: what a device would count is memory that each request
        // has to fetch, and no figure comes from it.
        let config = Config { iostats: false, ..config };
        let device = Device::new(config, driver).map_err(|why| refused(&why))?;
        let price = self.price_of(device.scheduler());
        let (lanes_from, index) = (self.lanes.len(), self.devices.len());
        for (queue, outlet) in outlets.into_iter().enumerate() {
            let lane = device.open_lane(queue, &self.bell).map_err(|why| refused(&why))?;
            let place = lane.place();
            if self.places.len() <= place {
                self.places.resize(place + 1, usize::MAX);
            }
            self.places[place] = self.lanes.len();
            let mutex = self.add_lock();
            self.lanes.push(LaneSide {
                lane,
                device: index,
                cpu: cpu_of(queue),
                outlet,
                raised: false,
                timer: None,
                mutex,
            });
        }
        let right = self.add_lock();
        self.devices.push(DeviceSide { device, layer, is_single, lanes_from, price, right });
        Ok(index)
    }
}
