//! From a target to a device.

use std::fmt;
use std::io;
use std::sync::Arc;

use weir_queue::{
    Config, Device, DriverError, MapControl, NoticeListener, OpenedBacking, QueueMode, Speaker,
};

use crate::target::Target;

/// Why something could not be opened or done; a sentence naming the place, the value and the bound.
#[derive(Debug)]
pub struct Error {
    what: String,
    kind: ErrorKind,
    source: Option<io::Error>,
}

/// The kind of an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A target, a name or a value is wrong, or does not suit the others.
    Invalid,
    /// The system, a server or a driver refused; the error's source is what the system said, if it
    /// said something.
    Refused,
    /// The disk, or one that it lies on, is closed or going away.
    Closed,
    /// I/O did not end in time, or the last flush failed: the disk goes on.
    Unfinished,
    /// A reactor may not call this, as it would wait for itself.
    OnReactor,
}

impl Error {
    /// One of the kind [`Invalid`](ErrorKind::Invalid).
    pub(crate) fn new(what: impl fmt::Display) -> Error {
        Error::of(ErrorKind::Invalid, what)
    }

    pub(crate) fn of(kind: ErrorKind, what: impl fmt::Display) -> Error {
        Error { what: what.to_string(), kind, source: None }
    }

    /// What the system refused, with what for.
    pub(crate) fn refused(what: impl fmt::Display, source: io::Error) -> Error {
        let what = format!("{what}: {source}");
        Error { what, kind: ErrorKind::Refused, source: Some(source) }
    }

    /// What a driver could not do for the disk of this name.
    pub(crate) fn of_driver(name: &str, error: DriverError) -> Error {
        let what = format!("{name}: {error}");
        Error { what, kind: ErrorKind::Refused, source: error.source }
    }

    /// Why the device of this name could not be made.
    pub(crate) fn of_device(name: &str, error: weir_queue::Error) -> Error {
        let error = Error::from(error);
        Error { what: format!("{name}: {error}"), ..error }
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}

impl From<weir_queue::Error> for Error {
    fn from(error: weir_queue::Error) -> Error {
        let what = error.to_string();
        let (kind, source) = match error {
            weir_queue::Error::Invalid(_) | weir_queue::Error::Limits(_) => {
                (ErrorKind::Invalid, None)
            }
            weir_queue::Error::Driver(error) => (ErrorKind::Refused, error.source),
            weir_queue::Error::Dying(_) => (ErrorKind::Closed, None),
            weir_queue::Error::Late(_) => (ErrorKind::Unfinished, None),
        };
        Error { what, kind, source }
    }
}

/// A device, and what a person should know of how it was opened.
pub struct Opened {
    /// The device; its lanes are not open yet.
    pub device: Device,
    /// Sentences for the log: which engine was chosen, what the backing lacks.
    pub notices: Vec<String>,
    /// Sentences for the log that are warnings: what the target gives up.
    pub warnings: Vec<String>,
    /// What a mapped disk is asked and told while it runs.
    pub map: Option<Arc<dyn MapControl>>,
    /// The disks that its target names by their targets: with this one they are open.
    pub(crate) below: Vec<Opened>,
    pub(crate) speaker: Option<Box<dyn Speaker>>,
}

impl Opened {
    /// Tells `listener` each further notice when it comes, as that a flush has failed, that I/O
    /// fails, that a server was lost or is back, or that a file was closed while the kernel still
    /// worked on it. It is called on the thread that turns the lane concerned, or that had
    /// submitted the I/O, which waits for it. Before a lane is open nothing comes; a second
    /// listener takes the first one's place. The first one has warnings of `tracing` made of them.
    /// Disks below it that have no other name are heard as well.
    pub fn on_notice(&self, listener: impl Fn(&str) + Send + Sync + 'static) {
        self.hear(&(Arc::new(listener) as NoticeListener));
    }

    fn hear(&self, listener: &NoticeListener) {
        self.below.iter().for_each(|below| below.hear(listener));
        self.device.on_failure(Arc::clone(listener));
        if let Some(speaker) = &self.speaker {
            speaker.on_notice(Arc::clone(listener));
        }
    }

    /// The devices that its target names by their targets, each after those that it lies on: their
    /// lanes are opened before its own.
    #[must_use]
    pub fn below(&self) -> Vec<Device> {
        let of = |below: &Opened| [below.below(), vec![below.device.clone()]].concat();
        self.below.iter().flat_map(of).collect()
    }
}

/// Opens a target as the device `name`, with one hard queue for each of `homes` threads unless the
/// target says otherwise. Its boot parameters count as far as they are for a disk of that name.
///
/// # Errors
/// The fault in the target, or the driver's failure.
pub fn open(name: &str, target: &Target, homes: usize) -> Result<Opened, Error> {
    open_over(name, target, homes, |_| None)
}

/// As [`open`], of a target that may lie on other disks: `find` has those that are open, by name.
/// One that stands in the target by its own target is opened with it, unless `find` has it.
///
/// # Errors
/// As [`open`], and a disk that is not there.
pub fn open_over(
    name: &str,
    target: &Target,
    homes: usize,
    find: impl Fn(&str) -> Option<Device>,
) -> Result<Opened, Error> {
    let opened = open_unheard(name, target, homes, find)?;
    let disk = String::from(name);
    opened.on_notice(move |what| tracing::warn!("disk {disk}: {what}"));
    Ok(opened)
}

fn open_unheard(
    name: &str,
    target: &Target,
    homes: usize,
    find: impl Fn(&str) -> Option<Device>,
) -> Result<Opened, Error> {
    let (target, told) = applied(name, target);
    let mut nested = target.nested().map_err(|why| Error::new(format!("{name}: {why}")))?;
    let (mut legs, mut below) = (Vec::new(), Vec::new());
    for leg in target.backing.legs() {
        if let Some(device) = find(&leg) {
            legs.push(device);
            continue;
        }
        let Some(at) = nested.iter().position(|(known, _)| *known == leg) else {
            return Err(Error::new(format!("{name}: its disk {leg:?} is not open")));
        };
        let opened = open(&leg, &nested.swap_remove(at).1, homes)?;
        legs.push(opened.device.clone());
        below.push(opened);
    }
    let mut config = target.config.clone();
    let is_mapped = target.backing.is_mapped();
    if is_mapped {
        suit_mapped(&mut config, &target);
    }
    let opened = match is_mapped {
        false => target.backing.open(&config),
        true => target.backing.open_over(&config, &legs),
    };
    let opened = opened.map_err(|e| Error::of_driver(name, e))?;
    let opened = opened_on(&target, config, opened, homes)?;
    if !legs.is_empty() {
        opened.device.lies_on(&legs);
    }
    let of_legs = below.iter().flat_map(|below| &below.notices).cloned();
    let notices = of_legs.chain(told).chain(opened.notices).collect();
    let of_legs = below.iter().flat_map(|below| &below.warnings).cloned();
    let warnings = of_legs.chain(opened.warnings).collect();
    Ok(Opened { notices, warnings, below, ..opened })
}

/// As [`open`], of a target that cannot be reached now, as another path to the device `alike`: it
/// is reached in the background, and until then its I/O ends with an error of the path. `None`: it
/// cannot be opened so.
///
/// # Errors
/// As [`open`].
pub fn open_unreached(
    name: &str,
    target: &Target,
    homes: usize,
    alike: &Device,
) -> Option<Result<Opened, Error>> {
    let likeness = alike.likeness()?;
    let (target, told) = applied(name, target);
    let opened = target.backing.open_unreached(&target.config, &*likeness)?;
    let opened = opened.map_err(|e| Error::of_driver(name, e));
    let opened = opened.and_then(|opened| opened_on(&target, target.config.clone(), opened, homes));
    Some(opened.map(|mut opened| {
        opened.notices.extend(told);
        opened
    }))
}

/// The target under the name of the device, with its boot parameters, and what is to be said of
/// those.
pub(crate) fn applied(name: &str, target: &Target) -> (Target, Vec<String>) {
    let mut applied = target.clone();
    let told = target.cmdline.apply(name, &mut applied);
    applied.config.name = String::from(name);
    (applied, told)
}

/// The device on a backing that is open.
pub(crate) fn opened_on(
    target: &Target,
    mut config: Config,
    opened: OpenedBacking,
    homes: usize,
) -> Result<Opened, Error> {
    let name = config.name.clone();
    let opened = target.stated.over(&name, opened).map_err(Error::new)?;
    let OpenedBacking { driver, notices, speaker, map } = opened;
    if !target.queues_given {
        config.queues = match config.mode {
            QueueMode::Sq => 1,
            QueueMode::Mq => target.backing.queues(driver.as_ref(), homes.clamp(1, 64) as u16),
        };
    }
    let warnings = match config.barriers {
        true => Vec::new(),
        false => vec![format!(
            "{name}: barriers are off: durability disabled, a crash loses what was written"
        )],
    };
    let device = Device::new(config, driver).map_err(|e| Error::of_device(&name, e))?;
    Ok(Opened { device, notices, warnings, map, below: Vec::new(), speaker })
}

/// The defaults of a mapped disk: order and time-outs are its legs' business, where the driver can
/// be asked to let go.
fn suit_mapped(config: &mut Config, target: &Target) {
    if !target.attributes.iter().any(|(name, _)| *name == "io_timeout") {
        config.timeout_ns = 0;
    }
    let own = match config.mode {
        QueueMode::Mq => "none",
        QueueMode::Sq => "noop",
    };
    config.scheduler.get_or_insert_with(|| String::from(own));
}
