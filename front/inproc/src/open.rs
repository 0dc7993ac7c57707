//! From a target to a device: the one place that knows every driver.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use weir_driver_nbd::{Address, ClientTls, Nbd, Options as NbdOptions};
use weir_local::{File, FileOptions, Null, Ram};
use weir_queue::{Device, Driver, QueueMode};

use crate::target::{Backing, Target, Tls};

/// Why something could not be opened or done; a sentence naming the place, the value and the bound.
#[derive(Debug)]
pub struct Error(pub(crate) String);

impl Error {
    pub(crate) fn new(what: impl fmt::Display) -> Error {
        Error(what.to_string())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

impl From<weir_queue::Error> for Error {
    fn from(error: weir_queue::Error) -> Error {
        Error::new(error)
    }
}

/// A device, and what a person should know of how it was opened.
pub struct Opened {
    /// The device; its lanes are not open yet.
    pub device: Device,
    /// Sentences for the log: which engine was chosen, what the backing lacks.
    pub notices: Vec<String>,
    speaker: Option<Speaker>,
}

/// A driver that has notices to tell while it runs.
enum Speaker {
    /// Weak, so that the file and its lock go with the device.
    File(Weak<File>),
    Nbd(Arc<Nbd>),
}

impl Opened {
    /// Tells `listener` each further notice when it comes, as that a flush has failed, that a
    /// server was lost or is back, or that a file was closed while the kernel still worked on it.
    /// It is called on the thread that turns the lane concerned, which waits for it. Before a lane
    /// is open nothing comes; a second listener takes the first one's place.
    pub fn on_notice(&self, listener: impl Fn(&str) + Send + Sync + 'static) {
        let listener: Arc<dyn Fn(&str) + Send + Sync> = Arc::new(listener);
        self.device.on_flush_error(Arc::clone(&listener));
        match &self.speaker {
            Some(Speaker::Nbd(nbd)) => nbd.on_notice(move |notice| listener(notice)),
            Some(Speaker::File(file)) => {
                if let Some(file) = file.upgrade() {
                    file.on_notice(move |notice| listener(notice));
                }
            }
            None => {}
        }
    }
}

/// What a target's backing is made into.
struct Made {
    driver: Arc<dyn Driver>,
    notices: Vec<String>,
    speaker: Option<Speaker>,
}

impl Made {
    fn new(driver: impl Driver + 'static, notices: Vec<String>) -> Made {
        Made { driver: Arc::new(driver), notices, speaker: None }
    }
}

/// Opens a target as the device `name`, with one hard queue for each of `homes` threads unless the
/// target says otherwise. Its boot parameters count as far as they are for a disk of that name.
///
/// # Errors
/// What is wrong with the target, or what its driver could not do.
pub fn open(name: &str, target: &Target, homes: usize) -> Result<Opened, Error> {
    let mut applied = target.clone();
    let told = target.cmdline.apply(name, &mut applied);
    let target = &applied;
    let made = driver(target).map_err(|e| Error::new(format!("{name}: {e}")))?;
    let Made { driver, mut notices, speaker } = made;
    notices.extend(told);
    let mut config = target.config.clone();
    config.name = String::from(name);
    if !target.queues_given {
        config.queues = default_queues(target, driver.as_ref(), homes);
    }
    if !config.barriers {
        notices.push(format!(
            "{name}: barriers are off: durability disabled, a crash loses what was written"
        ));
    }
    let device = Device::new(config, driver).map_err(|e| Error::new(format!("{name}: {e}")))?;
    Ok(Opened { device, notices, speaker })
}

fn driver(target: &Target) -> Result<Made, Error> {
    Ok(match &target.backing {
        Backing::Null { bytes, latency_ns } => {
            let null = Null::new(*bytes).map_err(Error::new)?;
            Made::new(null.latency_ns(*latency_ns), Vec::new())
        }
        Backing::Ram { bytes } => Made::new(Ram::new(*bytes).map_err(Error::new)?, Vec::new()),
        Backing::File { path, size, io, direct, follow } => {
            let options = FileOptions {
                size: *size,
                io: *io,
                direct: *direct,
                follow: *follow,
                read_only: target.config.read_only,
                ..FileOptions::default()
            };
            let file = Arc::new(File::open(path, &options).map_err(Error::new)?);
            let (notices, speaker) = (file.notices(), Speaker::File(Arc::downgrade(&file)));
            Made { driver: file, notices, speaker: Some(speaker) }
        }
        Backing::Nbd { server, export, connections, reconnect_s, tls } => {
            let reconnect = match (reconnect_s, target.config.timeout_ns) {
                (Some(seconds), _) => Duration::from_secs(*seconds),
                // A disk that never gives a request up never gives its server up.
                (None, 0) => Duration::MAX,
                (None, timeout_ns) => Duration::from_nanos(timeout_ns),
            };
            let options = NbdOptions {
                connections: *connections,
                barriers_off: !target.config.barriers,
                read_only: target.config.read_only,
                reconnect,
                ..NbdOptions::default()
            };
            let tls = tls.as_ref().map(|tls| client_tls(tls, server)).transpose()?;
            let nbd =
                Nbd::connect_over(server.clone(), export, options, tls).map_err(Error::new)?;
            let (notices, nbd) = (nbd.notices(), Arc::new(nbd));
            let driver: Arc<dyn Driver> = nbd.clone();
            Made { driver, notices, speaker: Some(Speaker::Nbd(nbd)) }
        }
    })
}

fn client_tls(tls: &Tls, server: &Address) -> Result<ClientTls, Error> {
    let name = match (&tls.hostname, server) {
        (Some(name), _) => name,
        (None, Address::Tcp { host, .. }) => host,
        // As nbdkit and qemu-nbd are asked for on their own machine.
        (None, Address::Unix(_)) => "localhost",
    };
    ClientTls::read(&tls.certificates, name).map_err(Error::new)
}

/// One hard queue per home for what has no heads to move, as many as connections for a server.
fn default_queues(target: &Target, driver: &dyn Driver, homes: usize) -> u16 {
    let most = driver.queues().max;
    match &target.backing {
        _ if target.config.mode == QueueMode::Sq => 1,
        Backing::Nbd { .. } => most.clamp(1, 64),
        Backing::File { .. } if driver.limits().rotational => 1,
        Backing::Null { .. } | Backing::Ram { .. } | Backing::File { .. } => {
            (homes.min(64) as u16).clamp(1, most)
        }
    }
}
