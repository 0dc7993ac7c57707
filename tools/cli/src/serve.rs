//! `weir serve`: the daemon.

mod about;
mod begin;
mod bounds;
mod changes;
mod disks;
mod hangup;
mod polls;
mod pressure;
mod signals;
mod stop;
mod users;

use std::io::Write;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::Args;
use weir::units::show_size;
use weir::{Clock, Device, Groups, Host, Limited, Nanos, QueueMode, Target};
use weir_access::{Address, Listen};
use weir_control::config::{self, CLIENTS_MAX, Config};
use weir_control::{ControlCalls, LiveDisk, Parameters, Tree};
use weir_front::{Export, Front, Grounds, Plan};
use weir_queue::{Error, LiveRecording, Settings};

use begin::Beginning;
use bounds::Bounds;
use hangup::HangUp;
use polls::Polls;
use pressure::Pressure;
use signals::Signals;

use crate::Failure;
use crate::activation;
use crate::control::{Control, DEFAULT_CONTROL};
use crate::data_folder::{DEFAULT_DIR, default_folder};
use crate::descriptors;
use crate::fronts;
use crate::handover::{Handed, Place, Sockets, Takeover, hear_signals, step_aside};
use crate::log;
use crate::order;
use crate::reach::Reach;
use crate::reload::{self, Latest, Parts, Reload, Source, Stated};
use crate::served::Served;
use crate::values::{time, whole};
use crate::weights;

/// The disk of a daemon that was told nothing.
const DEFAULT_DISK: &str = "sda";
const DEFAULT_SIZE: &str = "1GiB";

/// How long a stop may take.
const STOP_TIMEOUT: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3600);

/// Serves disks over NBD until SIGINT or SIGTERM.
///
/// Without arguments it makes ./weir-data/sda.img (1 GiB, sparse) and serves it as disk sda.
///
/// Example: weir serve --disk sda=ram:1GiB --nbd unix:/tmp/weir.sock
#[derive(Clone, Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Serve {
    /// Configuration file.
    #[arg(short = 'c', long = "config", value_name = "FILE")]
    config: Option<PathBuf>,
    /// A disk: its name and its target. May be repeated; the first is the default export.
    #[arg(long, value_name = "NAME=TARGET")]
    disk: Vec<String>,
    /// An address to listen on: unix:PATH[,mode=0600][,owner=USER][,group=GROUP] or
    /// HOST:PORT[,insecure], either with allow=uid:USER, allow=gid:GROUP, allow=ADDRESS/BITS or
    /// allow=tls:NAME, and with tls=off|on|require, tls_certificates=DIR and
    /// tls_verify_peer=on|off. May be repeated; unix:./weir-data/nbd.sock if none is given.
    #[arg(long, value_name = "ADDR")]
    nbd: Vec<String>,
    /// Requests have to be multiples of so many bytes, a power of two up to 65536; others are
    /// refused. 1 if neither this nor minimum_block in the configuration says otherwise.
    #[arg(long, value_name = "BYTES", value_parser = config::parse_minimum_block)]
    minimum_block: Option<u32>,
    #[command(flatten)]
    control: Control,
    /// An address for metrics (/metrics, for Prometheus): HOST:PORT[,insecure] or unix:PATH, with
    /// the options of --nbd but for TLS. May be repeated. In place of those of the configuration;
    /// none if neither has any.
    #[arg(long, value_name = "ADDR")]
    metrics: Vec<String>,
    /// A folder to mount the tree at: DIR/block/sda/queue/scheduler, DIR/proc/diskstats, and the
    /// disks as files, DIR/dev/sda.
    #[arg(long, value_name = "DIR")]
    tree: Option<PathBuf>,
    /// Let other users look at that folder, as at sysfs; the disks in it stay the daemon's user's.
    #[arg(long, requires = "tree")]
    tree_allow_other: bool,
    /// What reads and writes of all disks as files together may hold, 64MiB or more: a quarter of
    /// the machine's memory if not given. Others wait until there is room.
    #[arg(long, value_name = "SIZE", requires = "tree", value_parser = config::parse_memory)]
    tree_memory: Option<u64>,
    /// A folder of rule files, *.rules in the form of udev's, applied to each disk at the start and
    /// on `weir set --reload`; ./weir-data/rules.d if it is there and none is given. May be
    /// repeated; of files of one name the one in the last folder counts.
    #[arg(long, value_name = "DIR")]
    rules: Vec<PathBuf>,
    /// Serve one connection on standard input and output, and no other.
    #[arg(long)]
    stdio: bool,
    /// Take the place of the daemon at the control socket: it passes its listening sockets on,
    /// answers its clients, closes its disks and ends when this one serves. If this one cannot
    /// serve, it goes on. Without a daemon there, this one just starts.
    #[arg(long, conflicts_with = "stdio")]
    replace: bool,
    /// Reactor threads; one for each CPU if not given.
    #[arg(long, value_parser = whole::<u16>(1..=64))]
    reactors: Option<u16>,
    #[command(flatten)]
    polls: Polls,
    /// How long a stop may take, 1s to 1h: clients may read their last answers for half of it, and
    /// a back end that has not answered after four fifths of it is given up.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = time(STOP_TIMEOUT))]
    stop_timeout: Duration,
    #[command(flatten)]
    bounds: Bounds,
    #[command(flatten)]
    pressure: Pressure,
    /// Say nothing but errors, and `weir: ready`.
    #[arg(long)]
    quiet: bool,
}

/// An option of a front, given as flags: the front, the option and its values.
type Given = (&'static str, &'static str, Vec<String>);

/// The front that serves a connection on standard input and output.
const STDIO: &str = "nbd";

struct Daemon {
    host: Arc<Host>,
    /// In the order in which they are opened and stopped.
    fronts: Vec<Arc<dyn Front>>,
    groups: Arc<Groups>,
    served: Arc<Served>,
    tree: Arc<Tree>,
}

impl Serve {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        self.pressure.apply()?;
        log::start(self.quiet).map_err(|e| format!("the log has no thread: {e}"))?;
        let signals = Signals::install()?;
        let hangup = HangUp::install().map_err(|e| format!("signals: {e}"))?;
        hear_signals().map_err(|e| format!("signals: {e}"))?;
        let Some(begin) = Beginning::of(self, &signals)? else { return Ok(()) };
        let Beginning { stated, rules, sockets, before, again, first } = begin;
        let (daemon, stated) = match (self.start(&stated), first) {
            (Err(Failure::No(why) | Failure::Bad(why)), Some(first)) => {
                tracing::error!("{why}: it serves as it was at the start");
                (self.start(&first)?, first)
            }
            (started, _) => (started.map_err(|why| begin::beside(self, again, why))?, stated),
        };
        let latest = Arc::new(Mutex::new(Latest::of(&stated.config)));
        let place = self.place(&latest, &daemon);
        let ways = about::show(&daemon, &latest);
        let config = stated.config.clone();
        let parts = Parts {
            fronts: daemon.fronts.clone(),
            groups: Arc::clone(&daemon.groups),
            served: Arc::clone(&daemon.served),
            host: Arc::clone(&daemon.host),
            shown: live,
            latest: Arc::clone(&latest),
        };
        let reload = Reload::new(self.source(), stated, parts);
        reload.start(&rules, &daemon.tree)?;
        // Behind the rules: they may have chosen a scheduler.
        watch_weights(&daemon, &latest);
        reload.attach(&daemon.tree);
        let tree = Arc::clone(&daemon.tree);
        hangup.reload(tree).map_err(|e| format!("a thread for SIGHUP: {e}"))?;
        changes::follow(&daemon.served).map_err(|e| format!("a thread for changes: {e}"))?;
        let bell = signals.end().map_err(|e| format!("signals: {e}"))?;
        let waiting = place.offer(&daemon.tree, bell);
        let metrics = match fronts::open_metrics(&config.metrics, &daemon.tree) {
            Err(why) if again => {
                tracing::error!("{why}: it serves without metrics");
                Vec::new()
            }
            opened => opened?,
        };
        let reach = self.open(&daemon, sockets, before, &signals);
        let reach = reach.map_err(|why| begin::beside(self, again, why))?;
        ways.open(&reach, &metrics);
        waiting.open();
        if let Some(shortage) = descriptors::shortage(CLIENTS_MAX.into()) {
            tracing::warn!("{shortage}");
        }
        if !self.quiet && !self.stdio {
            // Disks are served whether or not the addresses can be printed.
            log::print(&introduce(&daemon, &reach, &metrics));
        }
        log::say("weir: ready");
        activation::notify("READY=1\n");
        if self.stdio {
            serve_stdio(&daemon, &signals)?;
        } else if let Some(given) = signals.wait_for_either(&waiting) {
            drop(metrics);
            return self.hand_over(daemon, reach, &given, &latest, &signals);
        }
        activation::notify("STOPPING=1\n");
        tracing::info!("stopping: {}", signals.name().unwrap_or("the connection has ended"));
        users::tell(&daemon.served.disks(), &daemon.fronts);
        drop((reach, metrics));
        daemon.stop(self.stop_timeout)
    }

    /// Opens the ways in, with the sockets of the daemon before, which then is no longer needed. If
    /// one cannot be opened, the daemon is stopped.
    fn open(
        &self,
        daemon: &Daemon,
        mut sockets: Sockets,
        before: Option<Takeover>,
        signals: &Signals,
    ) -> Result<Reach, Failure> {
        // No client is served before everything else is there: from then on a stop has to be
        // orderly.
        let reach = self.open_tree(daemon, sockets.control.take())?;
        let mut opened = self.open_fronts(daemon, &mut sockets);
        if before.is_some() && signals.is_heard() {
            // The daemon before is to go on then, which would have ended at our word.
            let why = String::from("a signal came before it took the other daemon's place");
            opened = opened.and(Err(Failure::No(why)));
        }
        if let Err(failure) = opened {
            if before.is_some() {
                // The daemon before goes on at them.
                daemon.fronts.iter().for_each(|front| front.keep_sockets());
                reach.leave();
            } else {
                drop(reach);
            }
            daemon.stop(self.stop_timeout)?;
            return Err(failure);
        }
        if let Some(before) = before {
            before.serving();
        }
        Ok(reach)
    }

    /// The place of this daemon, for one that asks for it.
    fn place(&self, latest: &Arc<Mutex<Latest>>, daemon: &Daemon) -> Place {
        let stdio = self.stdio.then(|| String::from("it serves standard input and output alone"));
        Place {
            fronts: daemon.fronts.clone(),
            served: Arc::clone(&daemon.served),
            latest: Arc::clone(latest),
            obstacle: stdio,
            stop_timeout: self.stop_timeout,
        }
    }

    /// Stops as ever, but for the sockets, and waits for the new daemon's word. Returns only if
    /// that cannot be waited for, or a signal came meanwhile.
    fn hand_over(
        &self,
        daemon: Daemon,
        reach: Reach,
        given: &Handed,
        latest: &Mutex<Latest>,
        signals: &Signals,
    ) -> Result<(), Failure> {
        tracing::info!("another daemon takes the place of this one: {given}");
        daemon.fronts.iter().for_each(|front| front.keep_sockets());
        reach.leave();
        if let Err(Failure::No(why) | Failure::Bad(why)) = daemon.stop(self.stop_timeout) {
            // All disks came to rest a moment ago.
            tracing::error!("{why}; it is given up, as at a stop");
        }
        if let Some(signal) = signals.name() {
            // The other daemon waits for the end of this process, which closes what it had open.
            tracing::info!("stopped: {signal}; the other daemon is left to itself");
            return Ok(());
        }
        log::end();
        let latest = latest.lock().unwrap_or_else(PoisonError::into_inner);
        let texts = [latest.text.clone(), latest.first.clone()];
        let texts = self.config.is_some().then_some(texts);
        let error = step_aside(given, signals.heard(), texts);
        Err(format!("this daemon cannot wait for the one that takes its place: {error}").into())
    }

    fn source(&self) -> Source {
        let serve = self.clone();
        let configuration = Box::new(move || serve.stated());
        Source { rules: self.rules.clone(), configuration }
    }

    /// The configuration with a plan of each front, and the flags over both; checked as a whole.
    fn stated(&self) -> Result<Stated, Failure> {
        self.stated_in(None)
    }

    /// The same, with the text that the configuration file had, if it is not to be read.
    fn stated_in(&self, text: Option<String>) -> Result<Stated, Failure> {
        let bad = |error: config::ConfigError| Failure::Bad(error.to_string());
        let kinds = fronts::kinds();
        let mut config = match &self.config {
            Some(path) => {
                let names: Vec<&str> = kinds.iter().map(|kind| kind.name).collect();
                match text {
                    Some(text) => Config::of_text(path, text, &names),
                    None => Config::read(path, &names),
                }
                .map_err(bad)?
            }
            None => Config::default(),
        };
        let plans = kinds.iter().map(|kind| (kind.plan)(&config)).collect::<Result<_, _>>();
        let mut plans: Vec<Box<dyn Plan>> = plans.map_err(bad)?;
        self.polls.put_over(&mut config.host);
        self.add_disks(&mut config)?;
        if !self.metrics.is_empty() {
            let listen = |text: &String| text.parse::<Listen>();
            let listen = self.metrics.iter().map(listen).collect::<Result<_, _>>();
            config.metrics.listen = listen.map_err(|why| format!("--metrics: {why}"))?;
        }
        config.metrics.addresses().map_err(bad)?;
        for (kind, option, values) in self.options()? {
            let plan = plans.iter_mut().find(|plan| plan.kind().name == kind);
            let plan = plan.expect("a flag is of a front that is there");
            let known = plan.kind().options.iter().find(|known| known.name == option);
            let flag = known.and_then(|known| known.flag).unwrap_or(option);
            plan.set(option, &values).map_err(|why| format!("{flag}: {why}"))?;
        }
        config.check().map_err(bad)?;
        let targets = reload::targets(&config)?;
        order::of_opening(&config, &targets)?;
        config.lie(order::legs(&config, &targets)).map_err(bad)?;
        // Who has an export may have changed.
        config.check().map_err(bad)?;
        Ok(Stated { config, plans })
    }

    /// The options of fronts that were given as flags.
    fn options(&self) -> Result<Vec<Given>, Failure> {
        let mut given = Vec::new();
        if !self.nbd.is_empty() {
            given.push(("nbd", "listen", self.nbd.clone()));
        }
        let block = self.minimum_block.map(|bytes| bytes.to_string());
        let bounds = self.bounds.stated().into_iter().chain([("minimum_block", block)]);
        given.extend(bounds.filter_map(|(name, value)| Some(("nbd", name, vec![value?]))));
        if let Some(folder) = &self.tree {
            let text = folder.to_str().ok_or_else(|| format!("--tree {folder:?} is not UTF-8"))?;
            given.push(("fuse", "tree", vec![String::from(text)]));
        }
        if self.tree_allow_other {
            given.push(("fuse", "allow_other", Vec::new()));
        }
        if let Some(bytes) = self.tree_memory {
            given.push(("fuse", "memory", vec![bytes.to_string()]));
        }
        Ok(given)
    }

    /// Adds the disks that were given as flags, or the default one.
    fn add_disks(&self, config: &mut Config) -> Result<(), Failure> {
        for disk in &self.disk {
            let (name, target) = disk
                .split_once('=')
                .ok_or_else(|| format!("--disk {disk:?} is not NAME=TARGET, as in sda=ram:1GiB"))?;
            config.disk.push(config::Disk::new(name, target));
        }
        if config.disk.is_empty() && self.config.is_none() {
            default_folder()?;
            let path = format!("{DEFAULT_DIR}/{DEFAULT_DISK}.img");
            let target = format!("file:{path},size={DEFAULT_SIZE},follow=off");
            config.disk.push(config::Disk::new(DEFAULT_DISK, &target));
        }
        if config.disk.is_empty() {
            return Err(Failure::Bad(String::from("no disk: give [[disk]] or --disk NAME=TARGET")));
        }
        Ok(())
    }

    fn start(&self, stated: &Stated) -> Result<Daemon, Failure> {
        let Stated { config, plans } = stated;
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let reactors = self.reactors.map_or(cpus, usize::from);
        let polling = reload::polling::rule_of(&config.host);
        let host =
            Host::with_polling(reactors, polling).map_err(|e| format!("reactor threads: {e}"))?;
        let mut disks = Vec::new();
        let cmdline = reload::cmdline(config)?;
        reload::tell_passed_over(config);
        let asked = Parameters::default();
        let tree = Arc::new(Tree::new(Parameters {
            scsi_mod_use_blk_mq: cmdline.scsi_mod_use_blk_mq.unwrap_or(asked.scsi_mod_use_blk_mq),
            dm_mod_use_blk_mq: cmdline.dm_mod_use_blk_mq.unwrap_or(asked.dm_mod_use_blk_mq),
        }));
        let opened = disks::open(config, &host)?;
        for pool in &opened.pools {
            let queue = live(&pool.device).with_kernel_cmdline(cmdline.text.clone());
            tree.add(Arc::new(queue), host.reactors());
        }
        for disk in opened.disks {
            let name = &disk.device.config().name;
            let target = config.disk.iter().find(|stated| stated.name == *name);
            let own = target.and_then(|stated| Target::parse(&stated.target()).ok());
            let own = own.map(|target| target.cmdline).unwrap_or_default();
            let target = target.map(|stated| weir::target::shown(&stated.target));
            let shown = live(&disk.device).mapped(disk.map).of_target(target.unwrap_or_default());
            let shown = shown.with_kernel_cmdline(cmdline.clone().then(&own).text);
            match disk.device.partition() {
                None => tree.add(Arc::new(shown), host.reactors()),
                Some(_) => {
                    let pool = disk.device.whole().config().name.clone();
                    tree.add_partition(&pool, Arc::new(shown), host.reactors());
                }
            }
            disks.push(disk.device);
        }
        let pools: Vec<Device> = opened.pools.into_iter().map(|pool| pool.device).collect();
        let groups = config.groups().map_err(|e| e.to_string())?;
        // A disk that is no export has its file, whose I/O is the root's.
        disks.iter().for_each(|disk| disk.attach_groups(&groups));
        let exports = exports(config, &disks, &groups);
        tree.show_groups(Arc::clone(&groups));
        let host = Arc::new(host);
        let grounds = Grounds {
            host: &host,
            tree: &tree,
            disks: &disks,
            exports: &exports,
            groups: &groups,
            default_folder: || default_folder().map(|()| Path::new(DEFAULT_DIR)),
        };
        let started = plans.iter().map(|plan| plan.start(&grounds));
        let fronts = started.filter_map(Result::transpose).collect::<Result<Vec<_>, _>>()?;
        fronts.iter().for_each(|front| tree.show_front(front.clients()));
        let served = Arc::new(Served::new(disks, pools));
        Ok(Daemon { host, fronts, groups, served, tree })
    }

    /// Opens the control socket. One connection on standard input and output has one only if it was
    /// named: many such daemons may run side by side.
    fn open_tree(&self, daemon: &Daemon, before: Option<OwnedFd>) -> Result<Reach, Failure> {
        let default = (!self.stdio).then_some(DEFAULT_CONTROL);
        Reach::open(&daemon.tree, self.control.named(), default, before)
    }

    /// Lets clients in, but for those of the front that serves standard input and output alone.
    fn open_fronts(&self, daemon: &Daemon, before: &mut Sockets) -> Result<(), Failure> {
        for front in &daemon.fronts {
            front.inherit(before.take(front.kind().name)?);
            match (front.kind().name, self.stdio) {
                (STDIO, true) => {}
                (STDIO, false) => front.open(activation::listeners()?)?,
                _ => front.open(Vec::new())?,
            }
        }
        Ok(())
    }
}

/// Has the tree tell of weights that act on nothing, and tells those there are.
fn watch_weights(daemon: &Daemon, latest: &Arc<Mutex<Latest>>) {
    let (served, now) = (Arc::clone(&daemon.served), Arc::clone(latest));
    daemon.tree.on_remarks(move || {
        let config = now.lock().unwrap_or_else(PoisonError::into_inner).config.clone();
        weights::remarks(&config, &served.disks())
    });
    daemon.tree.remarks().iter().for_each(|(_, line)| tracing::warn!("{line}"));
}

/// A disk as the tree has it.
fn live(device: &Device) -> LiveDisk {
    LiveDisk::new(device.clone(), Calls, || Clock.now())
}

fn exports(config: &Config, disks: &[Device], groups: &Groups) -> Vec<Export> {
    let by_name = |name: &str| {
        let device = disks.iter().find(|device| device.config().name == name);
        device.expect("the configuration was checked").clone()
    };
    let export = |stated: config::Export| {
        let group = stated.group.as_deref().and_then(|path| groups.find(path));
        let (device, group) = (by_name(&stated.disk), group.unwrap_or_default());
        Export { stated, device, group }
    };
    config.exports().into_iter().map(export).collect()
}

/// Serves one connection on standard input and output until it ends or a signal comes.
fn serve_stdio(daemon: &Daemon, signals: &Signals) -> Result<(), Failure> {
    let bad = |e: std::io::Error| Failure::Bad(format!("standard input and output: {e}"));
    let input = std::io::stdin().as_fd().try_clone_to_owned().map_err(bad)?;
    let socket = if rustix::net::sockopt::socket_type(&input).is_ok() {
        input
    } else {
        bridge(input).map_err(bad)?
    };
    let front = daemon.fronts.iter().find(|front| front.kind().name == STDIO);
    let wait = front.expect("it is always started").adopt(socket, "stdio")?;
    let end = signals.end().map_err(bad)?;
    std::thread::spawn(move || {
        wait();
        // A byte that cannot be written means that no thread waits any more.
        let _ = (&end).write_all(b"e");
    });
    signals.wait();
    Ok(())
}

/// A socket that stands for two pipes.
fn bridge(input: OwnedFd) -> std::io::Result<OwnedFd> {
    let output = std::io::stdout().as_fd().try_clone_to_owned()?;
    let (ours, theirs) = UnixStream::pair()?;
    let mut from = ours.try_clone()?;
    let (mut input, mut output) = (std::fs::File::from(input), std::fs::File::from(output));
    // Each thread ends when its side does; an error is an end too.
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut input, &mut &ours);
        let _ = ours.shutdown(std::net::Shutdown::Write);
    });
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut output);
    });
    Ok(theirs.into())
}

/// Changes of a disk, given up when it does not come to rest.
struct Calls;

impl ControlCalls for Calls {
    fn reconfigure(
        &self,
        device: &Device,
        change: &mut dyn FnMut(&mut Settings),
    ) -> Result<(), Error> {
        Limited::of(device).reconfigure(change)
    }

    fn set_scheduler(&self, device: &Device, name: &str) -> Result<Nanos, Error> {
        Limited::of(device).set_scheduler(name)
    }

    fn set_queues(&self, device: &Device, queues: u16) -> Result<(), Error> {
        Limited::of(device).set_queues(queues)
    }

    fn record(&self, device: &Device) -> Result<LiveRecording, Error> {
        Limited::of(device).record()
    }
}

/// Says what is served and how to use it, in lines to paste.
fn introduce(daemon: &Daemon, reach: &Reach, metrics: &[fronts::MetricsServer]) -> String {
    let mut lines = Vec::new();
    let disks = daemon.served.disks();
    for device in &disks {
        let (limits, whole) = (device.limits(), device.whole());
        let queue = whole.config();
        let pool = device.partition().map(|_| format!(" in pool {}", queue.name));
        lines.push(format!(
            "disk {}: {}{}, queue_mode={}, {} hard queue(s), scheduler {}{}{}\n",
            device.config().name,
            show_size(limits.capacity * 512),
            pool.unwrap_or_default(),
            if queue.mode == QueueMode::Sq { "sq" } else { "mq" },
            device.queues(),
            device.scheduler(),
            if limits.read_only { ", read-only" } else { "" },
            if device.is_durability_disabled() { ", durability disabled" } else { "" },
        ));
    }
    lines.extend(daemon.fronts.iter().rev().map(|front| front.introduce()));
    lines.push(reach.introduce());
    lines.extend(metrics.iter().map(|server| match server.address() {
        Address::Tcp(place) => format!("metrics:\n  http://{place}/metrics\n"),
        address => format!("metrics:\n  {address}\n"),
    }));
    if let Some(first) = disks.first() {
        let examples: String =
            daemon.fronts.iter().filter_map(|front| front.example(first)).collect();
        if !examples.is_empty() {
            lines.push(format!("\nto try it, paste:\n{examples}\n"));
        }
    }
    lines.concat()
}
